"""Nests of groups on the screen, and those of a plan from a file: whether they say what the groups do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lfopt.app.screen import out, printable
from lfopt.ir import DramBytes, Graph, InvalidConfig, Plan, PlannedGroup
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.passes.price import price_nest
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.written.parts import has_parts, parts_of
from lfopt.planning.written.text import parse_nest
from lfopt.planning.written.writer import folded


def print_nest(lines: Iterable[str]) -> None:
    """Print a nest, as wide as the screen."""
    out.print("[bold]nest[/] [dim]how the group runs: docs/nests.md[/]")
    for line in folded(lines, out.width):
        out.print(printable(line), markup=False, soft_wrap=True)


def nest_problems(plan: Plan, graph: Graph) -> Iterator[str]:
    """Where the nest of a group cannot be read, or is not that of its operators and bytes.

    Bytes on a chip with a second level of memory are not compared: a nest does not know of it.
    """
    nested = [group for group in plan.groups if group.nest]
    wanted = plan.search.constraints.nests
    for group in plan.groups:
        asking = [name for name in group.nodes if name in wanted]
        if asking and not group.nest:
            text = wanted[asking[0]]
            yield f"group {group.id}: it has no nest, and constraint nests.{asking[0]} asks for {text}"
    if not nested:
        return
    try:
        costs = GroupCosts.of(
            graph,
            plan.hardware,
            Traffic(plan.traffic),
            scheme=plan.scheme,
            groups=[group.nodes for group in plan.groups],
            constraints=plan.search.constraints,
        )
    except InvalidConfig as error:
        yield f"nests: {error}"
        return
    # a plan may be one that was found without flights
    unfused = costs.unfused()
    for group in nested:
        wrong = [*_wrong(plan, group, costs)]
        if wrong and unfused is not costs and not [*_wrong(plan, group, unfused)]:
            continue
        yield from wrong


def _wrong(plan: Plan, group: PlannedGroup, costs: GroupCosts) -> Iterator[str]:
    flow = costs.dataflow
    pricing = NestPricing(BufferLayout(flow, costs.hardware), costs.groups.line_buffers)
    try:
        mask, nest = parse_nest("\n".join(group.nest), flow, f"group {group.id}: nest")
    except InvalidConfig as error:
        yield str(error)
        return
    if {*flow.names(mask)} != {*group.nodes}:
        yield f"group {group.id}: nest: it runs {len(flow.names(mask))} operators, and not those of the group"
        return
    for name, text in plan.search.constraints.nests.items():
        if name in group.nodes and not has_parts(nest, parts_of(text, f"nests.{name}")):
            yield f"group {group.id}: nest: constraint nests.{name} asks for {text}"
    moved = price_nest(pricing, mask, nest).dram + DramBytes(parameter=costs.groups.parameter_bytes(mask))
    if moved != group.dram and not plan.hardware.l2_bytes:
        yield f"group {group.id}: nest: it moves {moved}, the plan says {group.dram}"
