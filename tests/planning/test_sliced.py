"""Mode sliced: blocks of two contractions by slices, bands and parts, weights resident, nothing in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import helper

from codegen.source import Unsupported
from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model
from lfopt.ir import Compute, Cost, DoesNotFit, Graph, Hardware, Plan, PlannedGroup, Step, step_count
from lfopt.ops import Dataflow, bits
from lfopt.ops.reference import reference
from lfopt.planning import NEVER, GroupCosts, Limit, memory_map, plan_groups, totals_of
from lfopt.planning.modes.sliced import SlicedMode
from lfopt.planning.sliced.profile import SlicedOption
from lfopt.rewrite import simplify
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.agreement import disagreements
from tests.codegen.counting import disagreement
from tests.planning.alterations import (
    altered_steps,
    check_alterations,
    rings_with_a_row_less,
    rows_of,
    stages,
    unread_rows,
    verdict,
    with_place,
)
from tests.random_plans import Values, in_integers, planned, random_inputs
from tests.strategies import random_block, random_hardware, random_mlp


class Case(NamedTuple):
    """A block that runs slice by slice on a chip."""

    costs: GroupCosts  # with no other mode
    every: GroupCosts  # with all modes
    plan: Plan
    graph: Graph
    inputs: Values
    option: SlicedOption

    @property
    def mask(self) -> int:
        return self.costs.dataflow.everything

    @property
    def kind(self) -> tuple[str, str, str]:
        parts = sliced(self.costs).sliced.rows.outputs(self.option.segment) > self.option.part > 0
        return (
            "bands" if self.option.bands > 1 else "",
            "parts" if parts else "",
            "stay" if self.option.pinned or self.option.pinned_tail else "",
        )


def sliced(costs: GroupCosts) -> SlicedMode:
    mode = costs.modes["sliced"]
    assert isinstance(mode, SlicedMode)
    return mode


def alone(costs: GroupCosts) -> GroupCosts:
    """The same with mode sliced alone."""
    only = costs.at(costs.hardware.buffer_bytes)
    only.pricing.whole = [costs.modes["sliced"]]
    only.pricing.anywhere = []
    for name, value in {"_nothing": (None,), "_grown": {}}.items():
        setattr(only, name, value)
    return only


def blocks(seeds: range, *, branches: bool = True) -> Iterator[tuple[GroupCosts, Graph, Values, int]]:
    """Random blocks and linear layers that can run slice by slice, and what they need for it.

    `branches`: of some, results within leave the block. Each part makes them again, only one stores them.
    """
    for seed in seeds:
        rng = np.random.default_rng(seed)
        if seed % 3 == 2:
            graph = random_mlp(rng, normalised=seed % 12 in (5, 8))
        else:
            graph = random_block(rng, branches=branches and seed % 4 == 3)
        inputs: Values = random_inputs(graph, rng)
        if seed % 2:
            graph, inputs = in_integers(graph, inputs, rng)
        costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme="all")
        need = sliced(costs).need(costs.dataflow.everything)
        if need < NEVER and costs.groups.parameters_fit(costs.dataflow.everything):
            yield costs, graph, inputs, need


def cases(seeds: range, *, branches: bool = True) -> Iterator[Case]:
    """Those blocks, on the smallest buffer that does and on larger ones."""
    for costs, graph, inputs, need in blocks(seeds, branches=branches):
        for beta in (need + 1, need + 1 + need // 3, 3 * need):
            every = costs.at(beta)
            only = alone(every)
            mask = only.dataflow.everything
            choice = sliced(only).sliced.cheapest(mask, beta)
            assert choice is not None
            yield Case(only, every, planned(only, (mask,)), graph, inputs, choice.option)


def late_until_steps() -> Callable[[], bool]:
    """A clock that says that it is late when a group is laid out, and not from then on."""
    looks = count()
    return lambda: next(looks) == 0


# -- one truth -----------------------------------------------------------------------------------------------


def test_a_block_moves_what_was_planned_executed_and_recounted_and_computes_the_same() -> None:
    kinds: Counter[tuple[str, str, str]] = Counter()
    for case in cases(range(42)):
        wrong = disagreements(
            case.costs,
            (case.mask,),
            case.plan,
            execute(case.plan, case.graph, case.inputs),
            reference(case.graph, case.inputs),
        )
        plan = replace(
            case.plan, totals=totals_of(case.costs.unfused(), case.plan.groups, case.every.least_bytes)
        )
        wrong += recount(case.graph, plan).discrepancies
        assert not wrong, (case.graph, case.costs.hardware, wrong)
        written = sliced(case.costs).schedule(case.mask, case.costs.hardware.buffer_bytes, 1).make
        assert not isinstance(written, str)
        assert written(Limit()) == written(Limit()), "a way is written twice: timed, then planned"
        planned = plan_groups(case.costs, (case.mask,), limit=Limit(late_until_steps()))
        assert not isinstance(planned, DoesNotFit)
        (group,) = planned
        assert group.dram == case.plan.groups[0].dram
        assert step_count(group.steps) >= step_count(case.plan.groups[0].steps) > 0, (
            "in a hurry slices are the narrowest"
        )
        again = replace(plan, groups=(group,))
        assert not recount(case.graph, replace(again, memory=memory_map(case.costs, (group,)))).discrepancies
        kinds[case.kind] += 1
    assert len(kinds) == 8, kinds
    assert min(kinds.values()) > 1


def test_a_block_moves_the_same_in_c_that_counts(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()
    for number, case in enumerate(cases(range(100, 140))):
        if all(kinds[what] for what in case.kind if what):
            continue
        try:
            wrong = disagreement(case.plan, case.graph, case.inputs, tmp_path / str(number))
        except Unsupported:
            continue
        assert not wrong
        kinds.update(case.kind)
    assert {"bands", "parts", "stay"} <= kinds.keys()


# -- price ---------------------------------------------------------------------------------------------------


def test_bytes_never_rise_with_the_buffer_and_fall_to_every_tensor_once() -> None:
    reached = 0
    for costs, _, _, need in blocks(range(200, 280)):
        mask = costs.dataflow.everything
        once, moved = costs.groups.once(mask).total, list[int]()
        for beta in (*range(need + 1, 3 * need, max(need // 16, 1)), 40 * need, 1 << 30):
            price = sliced(costs).price(mask, beta, once)
            assert isinstance(price, Cost)
            assert once <= price.dram_bytes
            assert price.buffer_bytes < beta
            moved.append(price.dram_bytes)
        assert moved == sorted(moved, reverse=True)
        reached += moved[-1] == once
    assert reached > 40


def test_the_bound_of_a_block_never_falls_and_mates_hold_it() -> None:
    grown = 0
    for costs, _, _, need in blocks(range(300, 400)):
        mode, mask, bound, done, floors = sliced(costs), costs.dataflow.everything, None, 0, [0]
        compatible = mode.compatible(need + 1)
        for op in bits(mask):
            assert mode.least(op) <= need
            assert not mask & ~compatible[op]
            bound = mode.grow(done, bound, op)
            done |= 1 << op
            assert mode.may_fit(done, bound, need + 1)
            assert bound is not None
            floors.append(bound.least)
        assert floors == sorted(floors)
        grown += len(floors) > 2
    assert grown > 40


def test_a_group_repeats_no_more_multiply_accumulates_than_allowed() -> None:
    """Rows that two bands share are computed twice; each part repeats what comes before the tail."""
    moved: dict[float, list[int]] = {}
    refused = 0
    for allowed in (1.0, 1.3, 3.0):
        moved[allowed] = []
        for costs, graph, _, need in blocks(range(400, 430)):
            capped = GroupCosts.of(
                graph, replace(costs.hardware, buffer_bytes=2 * need), scheme="all", max_recompute=allowed
            )
            mask, own = capped.dataflow.everything, sum(capped.dataflow.macs)
            choice = sliced(capped).sliced.cheapest(mask, 2 * need)
            moved[allowed].append(NEVER if choice is None else choice.weight_bytes + choice.input_bytes)
            if choice is None or not own:
                continue
            assert choice.macs <= allowed * own
            plan = planned(alone(capped), (mask,))
            assert not macs_found(graph, replace(plan, max_recompute=choice.macs / own))
            if (less := 0.99 * choice.macs / own - 0.01) > 1:
                assert macs_found(graph, replace(plan, max_recompute=less))
                refused += 1
    assert all(a >= b >= c for a, b, c in zip(*moved.values(), strict=True))
    assert moved[1.0] != moved[1.3] != moved[3.0]
    assert refused > 4


def macs_found(graph: Graph, plan: Plan) -> list[str]:
    """What a recount says of multiply-accumulates."""
    return [line for line in recount(graph, plan).discrepancies if line.startswith("max_recompute")]


# -- nothing in vain -----------------------------------------------------------------------------------------


def test_a_slot_or_a_byte_less_anywhere_is_noticed() -> None:
    verdicts: Counter[str] = Counter()
    for case in cases(range(500, 515)):
        for stage in stages(case.plan, case.graph, case.inputs):
            for name, seen, why in rings_with_a_row_less(case.costs.dataflow, stage):
                assert seen == "violation" or (seen == "" and why), (
                    f"{stage.group.nodes}: {name}: {seen} {why}"
                )
                verdicts[seen] += 1
            for index, place in enumerate(stage.group.places):
                assert (
                    verdict(stage, with_place(stage.group, index, slot_bytes=place.slot_bytes - 1))
                    == "violation"
                ), place
    assert verdicts["violation"] > 100
    assert verdicts[""] < 0.06 * verdicts.total(), verdicts


def test_no_step_can_be_altered_unnoticed() -> None:
    """But for rows that come between others and that nobody reads."""
    rng, counts = np.random.default_rng(0), Counter[tuple[str, str]]()
    for case in cases(range(600, 625), branches=False):
        for stage in stages(case.plan, case.graph, case.inputs):
            if step_count(stage.group.steps) < 400:
                alterations = [*altered_steps(stage, rng, 4)]
                missed = [
                    step
                    for change, _, step, seen in alterations
                    if not seen and change == "drop" and is_unread(case, stage.group, step)
                ]
                counts["missed", ""] += len(missed)
                check_alterations((each for each in alterations if each[2] not in missed), counts)
    assert counts.total() > 250
    assert counts["missed", ""] < 0.05 * counts.total()


def is_unread(case: Case, group: PlannedGroup, step: Step) -> bool:
    """Whether a step computes a row that nobody reads."""
    if not isinstance(step, Compute):
        return False
    flow = Dataflow.of(case.graph)
    (m,) = next(
        results
        for op, results in zip(flow.operators, flow.results, strict=True)
        if op.name == (step.operator, *step.then)[-1]
    )
    return all(unread_rows(flow, group, flow.maps[m].name)[row] for row in rows_of(step.boxes[0]))


# -- a network -----------------------------------------------------------------------------------------------


def test_mobilenet_moves_less_and_its_wide_slices_take_few_steps() -> None:
    graph = load_network("zoo:mobilenet_v2", {}, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(128 * 1024), scheme="all")
    block = next(i for i in range(len(costs.dataflow)) if costs.dataflow.calls[i].result[1:] == (576, 14, 14))
    mask = 0b111 << block
    price = costs.evaluate(mask)
    assert isinstance(price, Cost)
    assert (price.mode, price.dram_bytes) == ("sliced", costs.groups.once(mask).total)
    (group,) = planned(costs, (mask,)).groups
    assert step_count(group.steps) < 14 * 4 * 576 / 2


def test_rows_are_normalised_as_they_come_for_all_that_read_them() -> None:
    """Three products of a normalised map, two with one bias: every map moves once.

    The rows of some bands fit the buffer, and no weights do.
    """
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(64, 64)).astype(np.float32) for name in "qkv"}
    weights |= {"one": np.ones(64, np.float32), "zero": np.zeros(64, np.float32)}
    nodes = [helper.make_node("LayerNormalization", ["x", "one", "zero"], ["norm"], name="norm", axis=-1)]
    for name in "qkv":
        nodes.append(helper.make_node("MatMul", ["norm", name], [f"{name}.product"]))
        nodes.append(helper.make_node("Add", [f"{name}.product", "zero"], [f"{name}.sum"]))
    x, *results = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 48, 64))
        for name in ("x", "q.sum", "k.sum", "v.sum")
    )
    constants = [onnx.numpy_helper.from_array(values, name) for name, values in weights.items()]
    net = helper.make_graph(nodes, "qkv", [x], results, constants)
    graph = simplify(from_model(helper.make_model(net, opset_imports=[helper.make_opsetid("", 21)])))
    costs = GroupCosts.of(graph, Hardware(5000, element_bytes=2), scheme="all")
    mask, bands = costs.dataflow.everything, 2
    price, once = costs.price(mask), costs.groups.once(mask)
    assert price is not None
    assert price.mode == "sliced"
    assert once.total < price.dram_bytes <= once.total + (bands - 1) * once.weight
    plan, inputs = planned(costs, (mask,)), random_inputs(graph, rng)
    assert not disagreements(costs, (mask,), plan, execute(plan, graph, inputs), reference(graph, inputs))
