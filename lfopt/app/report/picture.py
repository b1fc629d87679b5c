"""A plan as a picture for notebooks: the network as the page draws it, in SVG without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise

from lfopt.app.gaps import gap_of, nearness
from lfopt.app.report.colours import colours
from lfopt.app.report.content import COLOURS, Wiring, wiring
from lfopt.app.report.layout import WIDTH, Drawing, Route, draw
from lfopt.app.sizes import memories
from lfopt.ir import Graph, Plan
from lfopt.ir.names import plural, printable
from lfopt.ops import Dataflow
from lfopt.planning import masks_of

XMLNS = ' xmlns="http://www.w3.org/2000/svg"'  # which a picture needs unless it is part of a page
ASPECT = 2.2  # width to height: as cells of notebooks are
MARGIN = 6
MOST = 3000  # operators of a network that is drawn
SCALE = 1.6  # pixels of a unit, where there is room
HIGHEST = 640  # pixels
INK, END = "#14181c", "#f0f0ec"  # of names; of inputs and outputs
HEIGHTS = {True: 14, False: 9}  # of an operator, by whether it has multiply-accumulates
FILLS = "#9ac9fa #ebb989 #98d5ac #e7b0da #7dd5da #d1c685 #c8baf6 #f6b0a4".split()  # as page.css, --g0 to --g7
LINES = "#3d78b2 #a06522 #348757 #9b5a8e #00878e #847514 #7966ae #ab594d".split()  # --l0 to --l7


def summary(plan: Plan, graph: Graph) -> str:
    """HTML: what the plan moves, and its picture."""
    totals = plan.totals
    hardware = plan.hardware
    facts = [plural(len(plan.groups), "group"), f"{totals.dram_bytes:,} B of DRAM", proven(plan)]
    if totals.layer_by_layer_bytes:
        facts.append(
            f"layer by layer {totals.layer_by_layer_bytes / max(totals.dram_bytes, 1):.2f} times as much"
        )
    facts.append(f"{memories(hardware)}, {hardware.element_bytes} B per element, scheme {plan.scheme}")
    head = f"<b>{escape(printable(plan.model.name))}</b>: {escape('; '.join(facts))}"
    flow = Dataflow.of(graph)
    if len(flow) <= MOST:
        drawn = picture(plan, flow)
    else:
        drawn = f"<div>{len(flow):,} operators are too many for a picture</div>"
    return f'<div style="font-variant-numeric:tabular-nums">{head}</div>{drawn}'


def proven(plan: Plan) -> str:
    """How good a plan is, in a word or two."""
    totals = plan.totals
    if count := len(plan.unschedulable):
        return f"cannot run: {plural(count, 'group')} without steps"
    if totals.proof == "optimal":
        return "proven optimal"
    if gap_of(plan) is None:
        return nearness(plan)
    return f"{nearness(plan)} to the proven bound"


def picture(plan: Plan, flow: Dataflow, marks: Mapping[str, int] | None = None) -> str:
    """SVG of a plan: operators in the colours of their groups, and maps as lines.

    Maps that visit DRAM are thin, maps that stay on chip thick. `marks`: numbers of operators by name, which
    their boxes carry; then those without a number are pale.
    """
    masks = masks_of(flow, [group.nodes for group in plan.groups])
    wires = wiring(flow, masks)
    (drawing,) = draw([(a, b) for a, b, _ in wires.edges], wires.group, [ASPECT])
    colour = colours(len(masks), wires.near(drawing), COLOURS)
    width = drawing.width + 2 * MARGIN
    height = drawing.height + 2 * MARGIN
    body = "".join((*_edges(wires, drawing, colour), *_boxes(plan, flow, wires, drawing, colour, marks)))
    size = f"width:100%;max-width:{SCALE * width:g}px;max-height:{HIGHEST}px"
    return (
        f'<svg{XMLNS} role="img" viewBox="{-MARGIN} {-MARGIN} {width} {height}" '
        f'style="{size}" font-family="sans-serif" font-size="5" text-anchor="middle">{body}</svg>'
    )


def _edges(wires: Wiring, drawing: Drawing, colour: Sequence[int]) -> Iterator[str]:
    for (source, target, _), route in zip(wires.edges, drawing.routes, strict=True):
        g = wires.group[source]
        kept = g >= 0 and g == wires.group[target]
        if kept:
            look = f'stroke="{LINES[colour[g]]}" stroke-width="3"'
        else:
            look = 'stroke="currentColor" stroke-opacity=".45" stroke-width="1"'
        yield f'<path fill="none" {look} d="{_path(route)}"/>'


def _path(route: Route) -> str:
    """Straight along lanes, an S from one lane to another."""
    path = f"M{route[0][0]} {route[0][1]}"
    for (x0, y0), (x1, y1) in pairwise(route):
        middle = (x0 + x1) / 2
        path += f"C{middle:g} {y0} {middle:g} {y1} {x1} {y1}" if x1 != x0 and y1 != y0 else f"L{x1} {y1}"
    return path


def _boxes(
    plan: Plan,
    flow: Dataflow,
    wires: Wiring,
    drawing: Drawing,
    colour: Sequence[int],
    marks: Mapping[str, int] | None,
) -> Iterator[str]:
    """Operators, with names that show under the pointer; inputs and outputs as pills."""
    tagged: set[int] = set()
    for node, (x, y) in enumerate(drawing.nodes):
        i = node - wires.first
        g = wires.group[node]
        inside = 0 <= i < len(flow)
        height = HEIGHTS[inside and flow.macs[i] > 0]
        fill = FILLS[colour[g]] if g >= 0 else END
        title = _title(plan, flow, i, g) if inside else flow.maps[wires.ends[node]].name
        outline = 'stroke="currentColor" stroke-opacity=".6" stroke-width=".5"'
        box = (
            f'x="{x - WIDTH / 2:g}" y="{y - height / 2:g}" width="{WIDTH}" height="{height}" '
            f'rx="{2.5 if inside else height / 2:g}"'
        )
        kind = flow.operators[i].kind if inside else "input" if node < wires.first else "output"
        text = f'<text x="{x}" y="{y + 1.8:g}" fill="{INK}">{_text(kind[:9])}</text>'
        number = marks.get(flow.operators[i].name) if marks is not None and inside else None
        mark = "" if marks is None else f' data-change="{number}"' if number else ' opacity=".45"'
        yield f'<g{mark}><title>{_text(title)}</title><rect {box} fill="{fill}" {outline}/>{text}</g>'
        if g >= 0 and g not in tagged:
            tagged.add(g)
            yield f'<text x="{x - WIDTH / 2:g}" y="{y - 9}" fill="currentColor" fill-opacity=".7">{g}</text>'


def _title(plan: Plan, flow: Dataflow, i: int, g: int) -> str:
    where = f"; group {g}, {plan.groups[g].mode}, moves {plan.groups[g].dram.total:,} B" if g >= 0 else ""
    return f"{flow.operators[i].name} ({flow.operators[i].kind}){where}"


def _text(text: str) -> str:
    return escape(printable(text))
