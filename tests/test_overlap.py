"""Groups overlap: whatever way they begin, they move and compute the same, and the model of the whole plan is no later than its groups in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lfopt.app.overlap import overlapped
from lfopt.app.verify import verified
from lfopt.ir import Compute, Loop, Node, Transfer, unfold
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning.entry import constants_first, entries
from simulator.execute import execute
from simulator.simulate import simulate
from simulator.timing import Accelerator
from tests.rtl.networks import random_plan

SEEDS = range(0, 40, 2)  # whose plans nobody has placed yet


def test_however_groups_begin_the_plan_is_carried_out_alike() -> None:
    begun = 0
    for seed in SEEDS:
        plan, graph, inputs = random_plan(seed)
        wanted, claims = reference(graph, inputs), verified(plan, graph).wrong  # of these plans, totals are left out
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
        plan, graph, _ = random_plan(seed)
        found = overlapped(plan, graph)
        before, after = simulate(plan, graph), simulate(found, graph)
        assert after.cycles.total <= before.cycles.total
        assert (after.dram, [g.mode for g in after.groups], [g.allocated_bytes for g in found.groups]) == (
            before.dram,
            [g.mode for g in before.groups],
            [g.allocated_bytes for g in plan.groups],
        )
        sooner += after.cycles.total < before.cycles.total
    assert sooner > 2


def test_groups_take_no_longer_together_than_in_turn() -> None:
    apart = 0
    for seed in SEEDS:
        plan, graph, _ = random_plan(seed)
        accelerator = Accelerator(Dataflow.of(graph), plan.hardware)
        alone = [accelerator.time(group.steps, group.places).total for group in plan.groups]
        together = accelerator.in_a_row((group.steps, group.places) for group in plan.groups)
        assert max(alone) <= together <= sum(alone)
        apart += together < sum(alone)
    assert apart > 8


def test_the_first_turn_of_a_loop_is_written_apart() -> None:
    def load(name: str, kind: str, row: int = 0, moves: tuple[tuple[int, ...], ...] = ()) -> Transfer:
        return Transfer(store=False, tensor=name, box=((0, 1), (row, row + 1)), kind=kind, rows=1, row_bytes=16, place=0, slot=row, moves=moves)  # type: ignore[arg-type]

    turn: tuple[Node, ...] = (load("w", "weight", moves=((0, 1, 1),)), Compute("op", (((0, 1), (0, 1)),), (1,), moves=((0, 1),)))
    steps = (load("x", "input"), Loop(3, turn))
    found = constants_first(steps)
    assert [node.tensor for node in found[:2] if isinstance(node, Transfer)] == ["w", "x"]
    assert sorted(map(repr, unfold(found))) == sorted(map(repr, unfold(steps)))
    assert found[3] == Loop(2, (load("w", "weight", 1, moves=((0, 1, 1),)), replace(turn[1], boxes=(((0, 1), (1, 2)),))))  # type: ignore[call-arg]
    assert constants_first(found) == found
