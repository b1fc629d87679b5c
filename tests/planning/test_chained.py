"""Mode `chained`: maps stay on chip from stage to stage, some overwritten; plans hold nothing in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from lfopt.app.chains import Chains
from lfopt.app.config import Config, SearchConfig
from lfopt.app.figures import GroupFigures
from lfopt.app.pipeline import find_plan, load_network
from lfopt.app.recompute import Recomputed
from lfopt.ir import (
    DoesNotFit,
    FusionScheme,
    Graph,
    Hardware,
    Plan,
    PlannedGroup,
    Transfer,
    leaves,
    step_count,
)
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, link, totals_of
from lfopt.planning import plan as plan_of
from search.exact import solve
from search.options import SearchOptions
from search.result import unfused
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.agreement import differing, disagreements
from tests.cases import few, some
from tests.codegen.transformers import Net
from tests.planning.alterations import (
    altered_steps,
    check_alterations,
    rings_with_a_row_less,
    stages,
    verdict,
    with_place,
)
from tests.random_plans import Values, computable, in_integers, planned, random_inputs
from tests.strategies import random_gate, random_graph, random_hardware


class Case(NamedTuple):
    """A random network with a chain."""

    graph: Graph
    inputs: Values
    costs: GroupCosts
    before: tuple[int, ...]  # groups without chains
    groups: tuple[int, ...]
    plan: Plan

    @property
    def chains(self) -> list[PlannedGroup]:
        return [group for group in self.plan.groups if group.mode == "chained"]

    @property
    def kinds(self) -> set[str]:
        """What is special of it."""
        kinds: set[str] = set()
        for group in self.chains:
            maps = [place for place in group.places if place.purpose == "map"]
            shared = Counter(
                (place.address, place.slots, place.slot_bytes) for place in maps if place.slots > 1
            )
            kinds |= {"over"} if max(shared.values(), default=0) > 1 else set()
            kinds |= {"spilled"} if group.spilled else set()
            kinds |= (
                {"parameters"} if group.dram.parameter > self.costs.hardware.parameter_store_bytes else set()
            )
        return kinds


def cases(seeds: range, *, whole_bytes: bool = False) -> Iterator[Case]:
    """Random networks in float32 and int8 of which some groups are chains.

    `whole_bytes`: of weights, on every chip.
    """
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = computable(random_gate(rng) if seed % 3 == 1 else random_graph(rng, 10 if seed % 3 else 16))
        inputs: Values = random_inputs(graph, rng)
        if seed % 2 and all(np.isfinite(value).all() for value in reference(graph, inputs).values()):
            graph, inputs = in_integers(graph, inputs, rng)
        hardware = random_hardware(rng, graph)
        costs = GroupCosts.of(
            graph, replace(hardware, weight_bits=None) if whole_bytes else hardware, scheme="all"
        )
        before = solve(costs, SearchOptions(passes=1)).groups
        groups = link(costs, before)
        plan = planned(costs, groups)
        if groups != before and not any(group.unexecutable for group in plan.groups):
            yield Case(graph, inputs, costs, before, groups, plan)


def with_totals(plan: Plan, costs: GroupCosts) -> Plan:
    """A plan as it would be written."""
    totals = totals_of(costs.unfused(), plan.groups, costs.bounds.recomputing_bytes)
    return replace(plan, totals=totals)


# -- one truth -----------------------------------------------------------------------------------------------


def test_a_chain_moves_what_was_planned_executed_and_recounted_and_computes_the_same() -> None:
    kinds: Counter[str] = Counter()
    for case in cases(range(60)):
        assert case.costs.dram_bytes(case.groups) < case.costs.dram_bytes(case.before)
        wrong = disagreements(
            case.costs,
            case.groups,
            case.plan,
            execute(case.plan, case.graph, case.inputs),
            reference(case.graph, case.inputs),
        )
        wrong += recount(case.graph, with_totals(case.plan, case.costs)).discrepancies
        assert not wrong, (case.graph, case.costs.hardware, wrong)
        kinds.update({"chain", *case.kinds})
    assert kinds["chain"] > 15
    assert min(kinds["spilled"], kinds["parameters"]) > 1, kinds


def test_most_chains_are_found_again_when_their_groups_are_planned_by_themselves() -> None:
    """A scheme says what is in a chain, not of which stages it was made, nor in which order."""
    counts = [0, 0]
    for case in cases(range(200, 240), whole_bytes=True):
        scheme = FusionScheme(tuple(case.costs.dataflow.names(group) for group in case.groups))
        again = plan_of(case.graph, scheme, case.costs.hardware, modes="all")
        same = not isinstance(again, DoesNotFit) and again.totals.dram_bytes <= sum(
            group.dram.total for group in case.plan.groups
        )
        counts[same] += 1
    assert counts[True] > 2 * counts[False], counts


def test_the_bound_of_a_scheme_that_is_given_lies_between_what_is_compulsory_and_the_plan() -> None:
    """Tables that operators might share in flight, were they joined, are not taken off twice."""
    planned_alone = 0
    for seed in range(1, 100, 2):
        rng = np.random.default_rng(seed)
        graph = computable(random_graph(rng, 8))
        inputs: Values = random_inputs(graph, rng)
        if not all(np.isfinite(value).all() for value in reference(graph, inputs).values()):
            continue
        graph, _ = in_integers(graph, inputs, rng)
        plan = plan_of(
            graph,
            FusionScheme(tuple((op.name,) for op in Dataflow.of(graph).operators)),
            random_hardware(rng, graph),
            modes="all",
        )
        if not isinstance(plan, DoesNotFit):
            assert not [line for line in recount(graph, plan).discrepancies if line.startswith("totals")]
            planned_alone += plan.hardware.parameter_store_bytes > 0
    assert planned_alone > 20


def test_chains_that_are_to_be_fast_move_what_was_planned_and_compute_the_same() -> None:
    """Variants of a chain, and chains for which cycles are worth bytes."""
    chains = Chains(lambda: False)
    taken = more = 0
    for case in cases(some(range(400, 460))):
        costs = case.costs
        own = Recomputed(case.graph, (), costs, unfused(costs, "exact"), optimal=False).of_groups(case.before)
        quick = chains.linked(GroupFigures(costs), own, 2.0).result.groups
        for groups in {case.groups, quick}:
            chains.vary(GroupFigures(costs), groups)
            fewest = costs.dram_bytes(groups)
            for group in groups:
                for way in [*costs.options(group)]:
                    if way.cost.mode != "chained":
                        continue
                    costs.take(group, way)
                    plan = planned(costs, groups)
                    execution = execute(plan, case.graph, case.inputs)
                    wrong = differing(execution.outputs, reference(case.graph, case.inputs))
                    wrong += [] if execution.dram.total == costs.dram_bytes(groups) else ["bytes"]
                    wrong += recount(case.graph, with_totals(plan, costs)).discrepancies
                    assert not wrong, (case.graph, costs.hardware, wrong)
                    taken += 1
                    more += costs.dram_bytes(groups) > fewest
                    costs.take(group, None)
    assert taken > few(40)
    assert more >= few(3)


# -- nothing in vain -----------------------------------------------------------------------------------------


def test_a_slot_or_a_byte_less_anywhere_is_noticed() -> None:
    tally: Counter[str] = Counter()
    for case in cases(some(range(300, 330))):
        for stage in stages(case.plan, case.graph, case.inputs):
            if stage.group.mode != "chained":
                continue
            for _, seen, _ in rings_with_a_row_less(case.costs.dataflow, stage):
                tally[seen] += 1
            for index, place in enumerate(stage.group.places):
                if place.slot_bytes:
                    assert (
                        verdict(stage, with_place(stage.group, index, slot_bytes=place.slot_bytes - 1))
                        == "violation"
                    ), place
    assert tally["violation"] > few(40)
    assert tally[""] < 0.15 * tally.total(), tally


def test_a_place_elsewhere_is_noticed_where_it_lies_over_what_is_needed() -> None:
    """Whatever execution notices, the recount does: it knows one kind of places that share bytes."""
    seen = missed = 0
    for case in cases(some(range(400, 430))):
        for stage in stages(case.plan, case.graph, case.inputs):
            for index, place in enumerate(stage.group.places):
                if stage.group.mode != "chained" or not place.address:
                    continue
                altered = with_place(stage.group, index, address=0)
                if verdict(stage, altered) == "violation":
                    groups = tuple(altered if group.id == altered.id else group for group in case.plan.groups)
                    lines = recount(case.graph, replace(case.plan, groups=groups)).discrepancies
                    seen += 1
                    missed += not any(line.startswith(f"group {altered.id}: ") for line in lines)
    assert seen > few(30)
    assert not missed


def test_no_step_can_be_altered_unnoticed() -> None:
    rng, counts = np.random.default_rng(0), Counter[tuple[str, str]]()
    for case in cases(some(range(500, 530))):
        for stage in stages(case.plan, case.graph, case.inputs):
            if stage.group.mode == "chained" and step_count(stage.group.steps) < 300:
                check_alterations(
                    (each for each in altered_steps(stage, rng, 4) if each[3] or each[0] != "drop"), counts
                )
    assert counts.total() > few(60)


def test_what_is_spilled_may_come_back_as_a_view_of_it() -> None:
    """As boxes of a detector do: made by a convolution, seen with the boxes of a cell apart, transposed."""
    graph = head()
    inputs = random_inputs(graph, np.random.default_rng(0))
    seen = 0
    for kib in (20, 33):
        costs = GroupCosts.of(graph, Hardware(kib * 1024, 2), scheme="all")
        groups = link(costs, solve(costs, SearchOptions(passes=1)).groups)
        plan = planned(costs, groups)
        wrong = disagreements(costs, groups, plan, execute(plan, graph, inputs), reference(graph, inputs))
        assert not wrong, kib
        assert not recount(graph, with_totals(plan, costs)).discrepancies, kib
        for group in plan.groups:
            moved = {step.tensor for step in leaves(group.steps) if isinstance(step, Transfer)}
            behind = costs.dataflow.behind
            views = {name for name in moved if behind.get(name, name) in {*group.spilled} - {name}}
            assert not views.intersection(group.inputs)
            seen += bool(views)
    assert seen


def head() -> Graph:
    """Boxes of four maps, each half as high as the one before."""
    net = Net(x=(1, 24, 16, 16))
    x, channels, side = "x", 24, 16
    boxes: list[str] = []
    for _ in range(4):
        x = net.add("Relu", net.add("Conv", x, net.drawn(48, channels, 3, 3), pads=[1] * 4))
        box = net.add("Conv", x, net.drawn(16, 48, 3, 3), pads=[1] * 4)
        apart = net.add("Transpose", net.shaped(box, 1, 4, 4, side, side), perm=[0, 3, 4, 1, 2])
        boxes.append(net.shaped(apart, 1, -1, 4))
        x = net.add("Relu", net.add("Conv", x, net.drawn(48, 48, 3, 3), pads=[1] * 4, strides=[2, 2]))
        channels = 48
        side //= 2
    return net.graph(net.add("Concat", *boxes, axis=1))


# -- networks ------------------------------------------------------------------------------------------------


def test_residual_blocks_write_their_result_over_what_they_add() -> None:
    graph = load_network("zoo:mobilenet_v2", {"image": (1, 3, 32, 32)}, "default")
    outcome = find_plan(
        Config(
            "mobilenet_v2", Hardware(12 * 1024), "all", search=SearchConfig(time_limit=60, objective="bytes")
        ),
        graph=graph,
    )
    case = Case(
        outcome.graph,
        random_inputs(graph, np.random.default_rng(0)),
        outcome.costs,
        (),
        outcome.best.result.groups,
        outcome.draft.finished(),
    )
    assert "over" in case.kinds
    done = execute(case.plan, case.graph, case.inputs)
    assert not disagreements(case.costs, case.groups, case.plan, done, reference(case.graph, case.inputs))
    assert not recount(case.graph, case.plan).discrepancies


@pytest.mark.slow
def test_mobilenet_moves_each_tensor_of_its_ends_once_and_no_other() -> None:
    graph = load_network("zoo:mobilenet_v2", {}, "default", weights=False)
    outcome = find_plan(
        Config(
            "mobilenet_v2",
            Hardware(128 * 1024, element_bytes=1),
            "all",
            search=SearchConfig(time_limit=60, objective="bytes"),
        ),
        graph=graph,
    )
    totals = outcome.plan.totals
    assert totals.dram_bytes == totals.compulsory_bytes == totals.lower_bound_bytes
    assert totals.proof == "optimal"
    plan = outcome.draft.finished()
    assert [group.mode for group in plan.groups] == ["chained"]
    assert not recount(outcome.graph, plan).discrepancies
