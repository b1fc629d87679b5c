"""Mode patches: halos kept in both directions, in less buffer than line buffers, and no copy too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from codegen.accel.encode import encode
from codegen.source import Unsupported
from lfopt.app.pipeline import load_network
from lfopt.ir import Carry, Graph, Hardware, Loop, Node, Plan
from lfopt.ops.reference import reference
from lfopt.planning import NEVER, GroupCosts, totals_of
from lfopt.planning.columns.patches import PatchGroups
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.steps.layout import BufferLayout
from search.exact import solve
from simulator.interpreter.execute import Violation, execute
from simulator.recount import recount
from tests.agreement import differing, disagreements
from tests.random_plans import Values, computable, planned, random_inputs
from tests.strategies import random_hardware, random_windows


class Case(NamedTuple):
    """A plan with groups in patches."""

    costs: GroupCosts
    groups: tuple[int, ...]
    plan: Plan
    graph: Graph
    inputs: Values


@cache
def cases(count: int) -> list[Case]:
    """Plans of random networks with windows, each on a chip that is too small for line buffers."""
    drawn: list[Case] = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        graph = computable(random_windows(rng))
        costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme="patches")
        groups = solve(costs).groups
        plan = planned(costs, groups)
        plan = replace(plan, totals=totals_of(costs.unfused(), plan.groups, costs.least_bytes))
        modes = {group.mode for group in plan.groups}
        if "patches" in modes and all(group.steps for group in plan.groups):
            drawn.append(Case(costs, groups, plan, graph, random_inputs(graph, rng)))
        if len(drawn) == count:
            return drawn
    raise AssertionError(f"{len(drawn)} of {count} cases")


def carries(nodes: tuple[Node, ...]) -> int:
    """Copies within the buffer, as they are written."""
    return sum(carries(node.body) if isinstance(node, Loop) else isinstance(node, Carry) for node in nodes)


def without(nodes: tuple[Node, ...], number: int) -> tuple[Node, ...]:
    """The nodes without the copy of this number."""
    left: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            inside = carries(node.body)
            body = without(node.body, number) if 0 <= number < inside else node.body
            number -= inside
            if body:
                left.append(replace(node, body=body))
            continue
        if isinstance(node, Carry):
            number -= 1
            if number == -1:
                continue
        left.append(node)
    return tuple(left)


@pytest.mark.parametrize(
    ("operators", "most_bytes", "line_buffers"), [(range(5), 20_000, 50_624), (range(10), 56_000, 160_832)]
)
def test_mobilenet_runs_in_less_than_line_buffers_and_nothing_twice(
    operators: range, most_bytes: int, line_buffers: int
) -> None:
    graph = load_network("zoo:mobilenet_v2", None, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(256 * 1024), scheme="patches")
    mask = sum(1 << i for i in operators)
    patches = PatchGroups(costs.groups)
    size = patches.least(mask)
    assert size is not None
    weights, once = costs.groups.weight_bytes(mask)[1], costs.groups.once(mask)
    assert size.buffer_bytes - weights <= most_bytes
    assert costs.groups.line_need(mask) - weights == line_buffers
    layout = BufferLayout(costs.dataflow, costs.hardware)
    price = NestPricing(layout).price(mask, patches.nest(mask, size))
    assert [int(price.input[0]), int(price.output[0]), int(price.weight[0])] == [
        once.input,
        once.output,
        once.weight,
    ]
    assert int(price.macs[0]) == sum(costs.dataflow.macs[i] for i in operators)


def test_random_plans_move_what_was_planned_and_compute_the_same() -> None:
    for costs, groups, plan, graph, inputs in cases(12):
        done = execute(plan, graph, inputs)
        assert disagreements(costs, groups, plan, done, reference(graph, inputs)) == []
        assert recount(graph, plan).discrepancies == ()


def test_a_copy_that_is_left_out_is_noticed() -> None:
    """Where a recount sees nothing wrong, outputs are as before: the place still held the patch before."""
    noticed = 0
    for case, k, position in list(altered())[:60]:
        group = case.plan.groups[k]
        groups = [*case.plan.groups]
        groups[k] = replace(group, steps=without(group.steps, position))
        changed = replace(case.plan, groups=tuple(groups))
        if recount(case.graph, changed).agrees:
            after = execute(changed, case.graph, case.inputs).outputs
            assert not differing(after, execute(case.plan, case.graph, case.inputs).outputs)
            continue
        noticed += 1
        with pytest.raises(Violation):
            execute(changed, case.graph, case.inputs)
    assert noticed > 20


def altered() -> Iterator[tuple[Case, int, int]]:
    """(case, group in patches, copy) of every copy of every plan."""
    for case in cases(12):
        for k, group in enumerate(case.plan.groups):
            for position in range(carries(group.steps)):
                yield case, k, position


def test_a_bound_is_below_every_group_that_holds_its_operators() -> None:
    checked = 0
    for costs, _, _, _, _ in cases(12):
        mode = costs.modes["patches"]
        for mask in range(1, min(1 << len(costs.dataflow), 256)):
            need, bound, grown = mode.need(mask), None, 0
            if need == NEVER:
                continue
            for i in (i for i in range(len(costs.dataflow)) if mask >> i & 1):
                bound, grown = mode.grow(grown, bound, i), grown | 1 << i
                assert bound <= need
                checked += 1
    assert checked > 200


def test_the_accelerator_refuses_copies_within_its_buffer() -> None:
    case = cases(12)[0]
    with pytest.raises(Unsupported) as refusal:
        encode(case.plan, case.graph)
    assert "\n" not in str(refusal.value)
