"""lfopt inspect: what a network is made of, and what cannot be fused."""

from __future__ import annotations

from collections import defaultdict

from rich.markup import escape

from lfopt.app.answers.networks import InspectAnswer, OperatorAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import chip
from lfopt.app.config import Config
from lfopt.app.options import (
    BufferOption,
    ElementBytesOption,
    HardwareOption,
    InputShapesOption,
    ModelOption,
    RulesOption,
)
from lfopt.app.origins import by_name, named_table, scope_of_named
from lfopt.app.pipeline import load_network
from lfopt.app.screen import mib, note, out, table
from lfopt.app.sizes import format_size, parse_shapes
from lfopt.fusion import mapping_of
from lfopt.fusion.mapping import COMPLEXITY
from lfopt.ir import DoesNotFit, Graph, Hardware
from lfopt.ops import OPAQUE
from lfopt.planning import GroupCosts

SHOWN = 12  # unfusable operators listed without --all


def inspect(
    model: ModelOption,
    /,
    *,
    buffer: BufferOption | None = None,
    hardware: HardwareOption | None = None,
    element_bytes: ElementBytesOption | None = None,
    input_shape: InputShapesOption = (),
    rules: RulesOption = Config.rules,
    all_operators: bool = False,
) -> None:
    """Show a network's operators, and what cannot be fused at a given buffer and why.

    Operators are shown with mapping types, MACs, weights and map sizes.

    Example: lfopt inspect zoo:mobilenet_v2 --buffer 128KiB --all-operators

    Parameters
    ----------
    all_operators
        List every operator.
    """
    chosen = chip(hardware, buffer, element_bytes)
    graph = load_network(model, parse_shapes(input_shape), rules, weights=False)
    note(graph)
    costs = GroupCosts.of(graph, chosen, epilogue=False)
    flow = costs.dataflow
    macs = flow.macs
    views = len(graph.operators) - len(flow)
    out.print(
        f"[bold]{escape(graph.name)}[/]: {len(flow)} operators and {views} views, {sum(macs) / 1e9:.3f} GMACs"
    )
    for name in graph.inputs:
        out.print(f"input   {escape(name)} {list(graph.shape(name))}{_meaning(graph, name)}")
    for name in graph.outputs:
        out.print(f"output  {escape(name)} {list(graph.shape(name))}{_meaning(graph, name)}")
    out.print()
    _print_kinds(costs, macs)
    out.print()
    if all_operators:
        _print_operators(costs, macs)
        out.print()
    _print_unfusable(costs, chosen, everything=all_operators)
    answer(_answer(costs, views))


def _meaning(graph: Graph, end: str) -> str:
    """What the integers of a quantised input or output stand for, behind its type in the file; else ""."""
    tensor = graph.tensors[end]
    if tensor.quantization is None:
        return ""
    held = f" held as {tensor.dtype}" if graph.held(end) else ""
    scale = tensor.quantization.scale[0]
    zero_point = tensor.quantization.zero_point[0]
    return f" {graph.end_type(end)}{held}, scale {scale:.9g}, zero point {zero_point}"


def _answer(costs: GroupCosts, views: int) -> InspectAnswer:
    flow = costs.dataflow
    beta = costs.hardware.buffer_bytes
    listed: list[OperatorAnswer] = []
    for i, operator in enumerate(flow.operators):
        mapping = "opaque" if flow.specs[i] is OPAQUE else mapping_of(flow.calls[i]).value
        weights = costs.groups.weight_bytes(1 << i)[0]
        needs = costs.groups.line_need(1 << i)
        shape = flow.maps[flow.results[i][0]].shape
        listed.append(
            OperatorAnswer(
                operator.name, operator.kind, mapping, shape, flow.macs[i], weights, needs, needs < beta
            )
        )
    graph = flow.graph
    inputs, outputs = ({name: graph.shape(name) for name in names} for names in (graph.inputs, graph.outputs))
    return InspectAnswer(graph.name, beta, views, sum(flow.macs), inputs, outputs, tuple(listed))


def _print_kinds(costs: GroupCosts, macs: tuple[int, ...]) -> None:
    flow = costs.dataflow
    kinds: dict[str, list[int]] = defaultdict(list)
    for i, operator in enumerate(flow.operators):
        kinds[operator.kind].append(i)
    rows = table("operator", "count", "mapping type", "MMACs", "weights MiB", "largest map MiB")
    for kind, members in sorted(kinds.items(), key=lambda item: -len(item[1])):
        weights = sum(costs.groups.weight_bytes(1 << i)[0] for i in members)
        largest = max(costs.hardware.dram_bytes(flow.maps[m]) for i in members for m in flow.results[i])
        types = sorted({mapping_of(flow.calls[i]) for i in members}, key=COMPLEXITY.index)
        if flow.specs[members[0]] is OPAQUE:
            mapping = "opaque"
        else:
            mapping = ", ".join(mapping_type.value for mapping_type in types)
        rows.add_row(
            kind,
            str(len(members)),
            mapping,
            f"{sum(macs[i] for i in members) / 1e6:,.1f}",
            mib(weights),
            mib(largest),
        )
    out.print(rows)


def _print_operators(costs: GroupCosts, macs: tuple[int, ...]) -> None:
    flow = costs.dataflow
    rows: list[tuple[str, ...]] = []
    for i, operator in enumerate(flow.operators):
        shape = "x".join(str(d) for d in flow.maps[flow.results[i][0]].shape)
        weights = costs.groups.weight_bytes(1 << i)[0]
        needs = costs.groups.line_need(1 << i)
        rows.append(
            (operator.name, operator.kind, shape, f"{macs[i] / 1e6:,.1f}", f"{weights:,}", f"{needs:,}")
        )
    modules = [operator.origin.scope for operator in flow.operators]
    out.print(named_table(("name", "operator", "result", "MMACs", "weights B", "needs B"), rows, modules))


def _print_unfusable(costs: GroupCosts, chosen: Hardware, *, everything: bool) -> None:
    flow = costs.dataflow
    misfits = [
        costs.does_not_fit(1 << i)
        for i in range(len(flow))
        if costs.groups.line_need(1 << i) >= chosen.buffer_bytes
    ]
    size = format_size(chosen.buffer_bytes)
    opaque = sum(row is OPAQUE for row in flow.specs)
    if opaque:
        out.print(f"{opaque} operators are unknown to lfopt: each runs alone")
    if not misfits:
        out.print(f"every operator fits {size} by itself")
        return
    out.print(
        f"[bold]{len(misfits)} operators need {size} or more by themselves[/], so no line-buffer group holds "
        "them:"
    )
    shown = sorted(misfits, key=lambda f: -f.needed)[: None if everything else SHOWN]
    names = [flow.names(misfit.group)[0] for misfit in shown]
    rows = [
        (name, f"{f.needed:,}", f"{f.needed - f.available + 1:,}", why(f))
        for name, f in zip(names, shown, strict=True)
    ]
    modules = [scope_of_named(by_name(flow.graph), [name]) for name in names]
    out.print(named_table(("name", "needs B", "over B", "why"), rows, modules, left=(3,)))
    if len(misfits) > len(shown):
        out.print(f"[dim]... and {len(misfits) - len(shown)} more (--all-operators)[/]")


def why(misfit: DoesNotFit) -> str:
    """The largest part of what a group needs."""
    weights = sum(use.bytes for use in misfit.uses if use.kind == "weights")
    ring = max((use for use in misfit.uses if use.kind == "map"), key=lambda use: use.bytes, default=None)
    if ring is None or weights >= ring.bytes:
        return f"weights {weights:,} B"
    return f"{ring.rows} rows of a map: {ring.bytes:,} B"
