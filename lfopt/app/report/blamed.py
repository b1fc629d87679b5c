"""An explanation as a figure in a file: the group, the scores of its links, and the cheapest cut."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve
from matplotlib.ticker import FuncFormatter

from lfopt.app.explain import Blame, Explanation, divided
from lfopt.app.files import write_bytes
from lfopt.app.report.layout import Drawing, draw
from lfopt.app.report.picture import FILLS
from lfopt.app.screen import folded, shorten
from lfopt.ir import InvalidConfig
from lfopt.ir.names import plural, printable, shared_prefix
from lfopt.ops import Dataflow, bits

MOST = 400  # operators that can be told apart in a figure
ASPECT = 0.8  # of the layout, before it is stretched
STRETCH = np.array((3.5, 2.0))  # points of a unit of the layout
BOX = (94.0, 32.0)  # points
LETTERS = 25  # of each of two lines of a name in a box
NUMBERED = 8  # links whose scores are written beside them
INK, PALE, BLAMED = "#1b1f24", "#c3c9d0", "#b3261e"
HEAT = LinearSegmentedColormap.from_list("blame", (PALE, "#e0a458", BLAMED))
ANALYTIC = "bytes that a cut there frees"


def write_figure(path: Path, explanation: Explanation, flow: Dataflow, title: str) -> None:
    """Write the figure of an explanation, by the ending of the name as SVG or PNG.

    Raises InvalidConfig for too large a group, CannotWrite.
    """
    count = explanation.group.bit_count()
    if count > MOST:
        raise InvalidConfig(f"--save {path}: found a group of {count:,} operators; accepted: up to {MOST}")
    with mpl.rc_context({"svg.hashsalt": "lfopt", "svg.fonttype": "none"}):
        picture = BytesIO()
        kind = path.suffix.lower().removeprefix(".")
        figure(explanation, flow, title).savefig(
            picture, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {}
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, picture.getvalue())


def figure(explanation: Explanation, flow: Dataflow, title: str) -> Figure:
    """A panel for each explainer, or one without scores where none was asked."""
    place = {i: k for k, i in enumerate(bits(explanation.group))}
    pairs = [(place[u], place[v]) for u, v in explanation.links.T.tolist()]
    direct = [bool(flow.preds[v] >> u & 1) for u, v in explanation.links.T.tolist()]
    (drawing,) = draw(
        [pair for pair, reads in zip(pairs, direct, strict=True) if reads], [0] * len(place), [ASPECT]
    )
    width, height = STRETCH * (drawing.width, drawing.height) + (BOX[0], BOX[1])
    panels: Sequence[Blame | None] = explanation.blames or (None,)
    size = max(width, 430.0) / 72 + 0.9, (height + 26) * len(panels) / 72 + 0.5
    picture = Figure(figsize=size, layout="constrained")
    picture.suptitle(
        f"{printable(title)}: {_verdict(explanation)}",
        x=0.01,
        ha="left",
        fontsize=9,
        color=INK,
        parse_math=False,
    )
    for axes, blame in zip(np.ravel(picture.subplots(len(panels), squeeze=False)), panels, strict=True):
        axes.set(
            xlim=(-BOX[0] / 2, width - BOX[0] / 2), ylim=(height - BOX[1] / 2, -BOX[1] / 2), aspect="equal"
        )
        axes.set_axis_off()
        _panel(picture, axes, explanation, flow, drawing, (pairs, direct), blame)
    return picture


def _verdict(explanation: Explanation) -> str:
    need = explanation.need
    best = explanation.repair
    count = plural(explanation.group.bit_count(), "operator")
    if need.never:
        return f"{count} that no buffer is large enough for"
    heading = f"{count}, {need.bytes:,} of {need.available:,} B of buffer"
    if best is None or len(best.groups) == 1:
        return heading
    proof = "proven" if best.optimal else "best found"
    return (
        f"{heading}; cheapest cut ({proof}): {plural(len(best.groups), 'group')}, {best.dram_bytes:,} B "
        "of DRAM"
    )


def _panel(
    picture: Figure,
    axes: Axes,
    explanation: Explanation,
    flow: Dataflow,
    drawing: Drawing,
    links: tuple[list[tuple[int, int]], list[bool]],
    blame: Blame | None,
) -> None:
    """Draw links, and above them operators in the colours of their groups.

    Links that the cheapest cut divides have a bar across.
    """
    groups = explanation.repair.groups if explanation.repair else (explanation.group,)
    cut = divided(explanation.links, groups)
    nodes = STRETCH * np.array(drawing.nodes, float).reshape(-1, 2)
    routes = iter(drawing.routes)
    scores = blame.scores if blame else np.full(len(cut), -np.inf)
    scored = np.isfinite(scores)
    scale = Normalize(*((scores[scored].min(), scores[scored].max()) if scored.any() else (0.0, 1.0)))
    ranked = set(blame.ranking[:NUMBERED]) if blame else set()
    for k, (pair, reads) in enumerate(zip(*links, strict=True)):
        points = STRETCH * np.array(next(routes), float) if reads else nodes[list(pair)]
        share = float(scale(scores[k])) if scored[k] else 0.0
        curve, middle = _curve(points, bowed=not reads)
        colour = HEAT(share) if scored[k] else PALE
        style = "solid" if reads else (0, (1.5, 1.5))
        axes.add_patch(
            PathPatch(
                curve,
                fill=False,
                color=colour,
                linewidth=0.9 + 3.2 * share,
                linestyle=style,
                zorder=1 + share,
            )
        )
        if cut[k]:
            axes.plot([middle[0]] * 2, [middle[1] - 5, middle[1] + 5], color=INK, linewidth=1.6, zorder=3)
        if k in ranked:
            text = f"{scores[k]:,.0f}" if blame and blame.explainer == "analytic" else f"{scores[k]:.3g}"
            axes.text(
                middle[0],
                middle[1] - 6,
                text,
                fontsize=5.5,
                color=INK,
                ha="center",
                va="bottom",
                zorder=5,
                bbox={"fc": "white", "ec": "none", "pad": 0.3},
            )
    _operators(axes, explanation, flow, nodes, groups)
    if blame:
        what = ANALYTIC if blame.explainer == "analytic" else "the higher, the more to blame"
        if blame.groups:
            split = f"; SPLIT by it: {plural(len(blame.groups), 'group')}, {blame.dram_bytes:,} B"
        else:
            split = ""
        axes.set_title(
            f"{blame.explainer}: {what}{split}; a bar across a link: the cheapest cut",
            fontsize=7.5,
            loc="left",
            color=INK,
        )
        form = FuncFormatter(
            lambda score, _: f"{score:,.0f}" if blame.explainer == "analytic" else f"{score:.3g}"
        )
        bar = picture.colorbar(
            ScalarMappable(scale, HEAT),
            ax=axes,
            shrink=min(0.9, 150 / abs(axes.get_ylim()[0])),
            aspect=14,
            pad=0.01,
            format=form,
        )
        bar.ax.tick_params(labelsize=6)


def _operators(
    axes: Axes, explanation: Explanation, flow: Dataflow, nodes: np.ndarray, groups: Sequence[int]
) -> None:
    owner = {i: g for g, group in enumerate(groups) for i in bits(group)}
    prefix = len(shared_prefix(flow.names(explanation.group)))
    for i, (x, y) in zip(bits(explanation.group), nodes, strict=True):
        operator = flow.operators[i]
        corner = x - BOX[0] / 2, y - BOX[1] / 2
        fill = FILLS[owner[i] % len(FILLS)]
        axes.add_patch(
            FancyBboxPatch(
                corner,
                *BOX,
                boxstyle="round,pad=0,rounding_size=4",
                facecolor=fill,
                edgecolor=INK,
                linewidth=0.4,
                zorder=4,
            )
        )
        lines = folded(shorten(operator.name[prefix:], 2 * LETTERS - 6), LETTERS)
        axes.text(
            x,
            y - 4,
            lines,
            fontsize=5.5,
            color=INK,
            ha="center",
            va="center",
            zorder=6,
            parse_math=False,
            linespacing=1.0,
        )
        if len(groups) > 1:
            kind = f"{printable(operator.kind)}, group {owner[i]}"
        else:
            kind = printable(operator.kind)
        axes.text(
            x,
            y + 10,
            shorten(kind, LETTERS + 4),
            fontsize=5,
            color=INK,
            alpha=0.75,
            ha="center",
            va="center",
            zorder=6,
            parse_math=False,
        )


def _curve(points: np.ndarray, *, bowed: bool) -> tuple[Curve, np.ndarray]:
    """A smooth curve through points, (points, 2) in points of the page, and its middle, (2,).

    `bowed`: a bow from end to end, for a link that stands for no map between them.
    """
    if bowed:
        (x0, y0), (x1, y1) = points
        away = np.array((x0 + x1, y0 + y1)) / 2 + (0, BOX[1] * 1.4)
        return Curve([points[0], away, points[1]], [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3]), (
            points.mean(0) + away
        ) / 2
    vertices = [points[0]]
    codes = [Curve.MOVETO]
    for start, end in pairwise(points):
        middle = (start[0] + end[0]) / 2
        vertices += [np.array((middle, start[1])), np.array((middle, end[1])), end]
        codes += [Curve.CURVE4] * 3
    longest = max(pairwise(points), key=lambda ends: float(np.abs(ends[1] - ends[0]).sum()))
    return Curve(vertices, codes), (longest[0] + longest[1]) / 2
