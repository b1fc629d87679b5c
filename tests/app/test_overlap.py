"""Overlapping groups move and compute the same, and the plan's model is no later than groups in turn."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from lfopt.app.overlap import overlapped
from lfopt.app.verify import verified
from lfopt.ir import Compute, Graph, Hardware, Loop, Node, Operator, Quantization, Tensor, Transfer, unfold
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning.steps.entry import constants_first, entries
from simulator.interpreter.execute import execute
from simulator.model.parameters import ParameterResidency
from simulator.model.simulate import simulate
from simulator.model.timing import Accelerator
from tests.accelerator import random_plan

SEEDS = range(0, 40, 2)  # whose plans nobody has placed yet
drawn = cache(random_plan)


def test_however_groups_begin_the_plan_is_carried_out_alike() -> None:
    begun = 0
    for seed in SEEDS:
        plan, graph, inputs = drawn(seed)
        # totals are left out of these plans
        wanted, claims = reference(graph, inputs), verified(plan, graph).wrong
        choices = [[*entries(group, 16)] for group in plan.groups]
        for k in range(1, max(map(len, choices))):
            other = replace(plan, groups=tuple(choice[min(k, len(choice) - 1)] for choice in choices))
            assert verified(other, graph).wrong == claims, f"seed {seed}"
            done = execute(other, graph, inputs)
            assert done.dram == execute(plan, graph, inputs).dram
            assert all(np.array_equal(done.outputs[name], wanted[name]) for name in wanted), f"seed {seed}"
            begun += 1
    assert begun > 20


def test_a_plan_is_placed_to_end_no_later() -> None:
    sooner = 0
    for seed in SEEDS:
        plan, graph, _ = drawn(seed)
        earlier = overlapped(plan, graph)
        before, after = simulate(plan, graph), simulate(earlier, graph)
        assert after.cycles.total <= before.cycles.total
        assert (
            after.dram,
            [g.mode for g in after.groups],
            [g.allocated_bytes(plan.hardware) for g in earlier.groups],
        ) == (
            before.dram,
            [g.mode for g in before.groups],
            [g.allocated_bytes(plan.hardware) for g in plan.groups],
        )
        sooner += after.cycles.total < before.cycles.total
    assert sooner > 2


def test_groups_take_no_longer_together_than_in_turn() -> None:
    apart = 0
    for seed in SEEDS:
        plan, graph, _ = drawn(seed)
        accelerator = Accelerator(Dataflow.of(graph), plan.hardware)
        alone = [accelerator.time(group.steps, group.places).total for group in plan.groups]
        together = accelerator.in_a_row((group.steps, group.places) for group in plan.groups)
        assert max(alone) <= together <= sum(alone)
        apart += together < sum(alone)
    assert apart > 8


def test_parameters_wait_for_those_that_they_overwrite() -> None:
    def weights(k: int) -> Tensor:
        return Tensor(f"w{k}", (16, 16, 1, 1), "int8", Quantization((0.01,) * 16, (0,) * 16, 0))

    maps = [Tensor(f"x{k}", (1, 16, 4, 4), "int8", Quantization((0.1,), (0,))) for k in range(4)]
    convolutions = tuple(
        Operator(f"c{k}", "Conv", (f"x{k}", f"w{k}"), (f"x{k + 1}",), {"kernel_shape": (1, 1)})
        for k in range(3)
    )
    graph = Graph(
        "g",
        convolutions,
        {t.name: t for t in (*maps, *map(weights, range(3)))},
        dict.fromkeys(("w0", "w1", "w2")),
        ("x0",),
        ("x3",),
        21,
    )
    parameters = ParameterResidency(
        Dataflow.of(graph),
        {f"c{k}": k for k in range(3)},
        Hardware(1 << 10, element_bytes=1, parameter_store_bytes=160),
    )

    def loaded(k: int) -> int:
        load = Transfer(
            store=False,
            tensor=f"c{k}",
            box=((0, 80),),
            kind="parameter",
            rows=1,
            row_bytes=80,
            place=-1,
            slot=0,
        )
        parameters.begin([load])
        return parameters.load(load)

    assert [loaded(0), loaded(1)] == [0, 0]
    parameters.read((0,), 100)
    parameters.read((1,), 200)
    ahead = parameters.ahead()
    assert loaded(2) == 100
    assert loaded(0) == 200
    ahead.begin(
        [
            load := Transfer(
                store=False,
                tensor="c2",
                box=((0, 160),),
                kind="parameter",
                rows=1,
                row_bytes=160,
                place=-1,
                slot=0,
            )
        ]
    )
    assert ahead.load(load) == 200


def test_a_smaller_store_of_parameters_makes_no_plan_faster() -> None:
    slower = 0
    for seed in SEEDS:
        plan, graph, _ = drawn(seed)
        groups = [(group.steps, group.places) for group in plan.groups]
        most = max(group.dram.parameter for group in plan.groups)
        cycles = [
            Accelerator(
                Dataflow.of(graph), replace(plan.hardware, parameter_store_bytes=size, parameter_tables=0)
            ).in_a_row(groups)
            for size in (most or 1, 1 << 40)
        ]
        assert cycles[0] >= cycles[1]
        slower += cycles[0] > cycles[1]
    assert slower


def test_the_first_turn_of_a_loop_is_written_apart() -> None:
    def load(name: str, kind: str, row: int = 0, strides: tuple[tuple[int, ...], ...] = ()) -> Transfer:
        return Transfer(
            store=False,
            tensor=name,
            box=((0, 1), (row, row + 1)),
            kind=kind,  # type: ignore[arg-type]
            rows=1,
            row_bytes=16,
            place=0,
            slot=row,
            strides=strides,
        )

    turn: tuple[Node, ...] = (
        load("w", "weight", strides=((0, 1, 1),)),
        Compute("op", (((0, 1), (0, 1)),), (1,), strides=((0, 1),)),
    )
    steps = (load("x", "input"), Loop(3, turn))
    reordered = constants_first(steps)
    assert [node.tensor for node in reordered[:2] if isinstance(node, Transfer)] == ["w", "x"]
    assert sorted(map(repr, unfold(reordered))) == sorted(map(repr, unfold(steps)))
    assert reordered[3] == Loop(
        2, (load("w", "weight", 1, strides=((0, 1, 1),)), replace(turn[1], boxes=(((0, 1), (1, 2)),)))
    )  # type: ignore[call-arg]
    assert constants_first(reordered) == reordered


def test_what_is_loaded_behind_a_gather_stays_behind_it() -> None:
    """The indices are read for the last time there, so a constant may lie in their place."""
    box = ((0, 1), (0, 1))
    load = Transfer(store=False, tensor="w", box=box, kind="weight", rows=1, row_bytes=16, place=0, slot=0)
    indices = replace(load, tensor="tokens", kind="input", place=1)
    gather = replace(load, tensor="words", gather="words", place=2)
    compute = Compute("op", (box,), (3,))
    for gathers in ((gather,), (gather, Loop(20, (replace(gather, strides=((0, 1, 1),)),)))):
        steps: tuple[Node, ...] = (indices, *gathers, load, compute)
        assert constants_first(steps) == steps
    assert constants_first((indices, load, gather, compute)) == (load, indices, gather, compute)
