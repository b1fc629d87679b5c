"""Two plans as one page: totals and networks side by side, which groups changed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from lfopt.app.comparison import Changed, Comparison, numbered, reasons
from lfopt.app.origins import by_name, scope_of_named
from lfopt.app.report.page import Figure, fill
from lfopt.app.report.picture import MOST, XMLNS, picture
from lfopt.app.screen import shorten, speed
from lfopt.ir import DramBytes, Graph, Operator, Plan, Report
from lfopt.ir.names import plural, printable
from lfopt.ops import Dataflow

SCRIPTS = ("theme", "versus")
LABELS = {
    "input": "maps read",
    "output": "maps written",
    "weight": "weights",
    "parameter": "parameters",
    "spill": "spilled",
}
ROOM = 44  # characters of a span


def page_of_both(
    comparison: Comparison, one: tuple[Plan, Graph], other: tuple[Plan, Graph], names: tuple[object, object]
) -> str:
    """The page. `names` are what the user calls the plans."""
    marks = {name: number for number, changed in enumerate(comparison.changed, 1) for name in changed.nodes}
    models = dict.fromkeys(report.model for report in (comparison.before, comparison.after))
    known = {**by_name(other[1]), **by_name(one[1])}
    most = max((abs(changed.more_bytes) for changed in comparison.changed), default=0) or 1
    values: dict[str, Any] = {
        "name": " and ".join(models),
        "before": printable(names[0]),
        "after": printable(names[1]),
        "counts": f"{plural(comparison.same, 'group')} alike, {plural(len(comparison.changed), 'change')}",
        "figures": _figures(comparison),
        "bars": _bars(comparison),
        "classes": [
            (f"c{k}", LABELS[name]) for k, name in enumerate(asdict(DramBytes())) if _moves(comparison, name)
        ],
        "sums": sums(comparison),
        "settings": comparison.settings,
        "pictures": [(title, _drawn(*pair, marks)) for title, pair in (("before", one), ("after", other))],
        "explained": "The smallest sets of operators that are whole groups of both plans; first those that "
        "differ most in bytes.",
        "changes": [_row(changed, known, most) for changed in comparison.changed],
        "speed": "; ".join(
            dict.fromkeys(f"on {speed(report.hardware)}" for report in (comparison.before, comparison.after))
        ),
        "version": version("lfopt"),
    }
    return fill("versus.html", SCRIPTS, values)


def sums(comparison: Comparison) -> list[tuple[str, str, str, str, str]]:
    """Totals as text: what, before, after, more, in percent."""
    rows: list[tuple[str, str, str, str, str]] = []

    def add(what: str, old: float, new: float, digits: int = 0) -> None:
        share = f"{100 * (new - old) / old:+.1f} %" if old else ""
        rows.append((what, f"{old:,.{digits}f}", f"{new:,.{digits}f}", f"{new - old:+,.{digits}f}", share))

    add("DRAM bytes", comparison.before.dram.total, comparison.after.dram.total)
    for name, label in LABELS.items():
        if _moves(comparison, name):
            add(f"  {label}", getattr(comparison.before.dram, name), getattr(comparison.after.dram, name))
    if comparison.before.l2.total or comparison.after.l2.total:
        add("L2 bytes, beside", comparison.before.l2.total, comparison.after.l2.total)
    add("groups", len(comparison.before.groups), len(comparison.after.groups))
    add("MACs", comparison.before.macs, comparison.after.macs)
    add("cycles*", comparison.before.cycles.total, comparison.after.cycles.total)
    add("energy*, uJ", comparison.before.energy.total_pj / 1e6, comparison.after.energy.total_pj / 1e6, 1)
    return rows


def _moves(comparison: Comparison, name: str) -> bool:
    return any(getattr(report.dram, name) for report in (comparison.before, comparison.after))


def _figures(comparison: Comparison) -> list[Figure]:
    before = comparison.before
    after = comparison.after
    return [
        _change("DRAM bytes", before.dram.total, after.dram.total),
        _change("cycles, model", before.cycles.total, after.cycles.total),
        _change("energy, model", before.energy.total_pj / 1e6, after.energy.total_pj / 1e6, " uJ"),
        Figure(
            "groups",
            f"{len(after.groups) - len(before.groups):+,}",
            "",
            f"{len(before.groups):,} before, {len(after.groups):,} after",
        ),
    ]


def _change(label: str, old: float, new: float, unit: str = "") -> Figure:
    share = 100 * (new - old) / (old or 1)
    return Figure(
        label,
        f"{share:+.1f}",
        "%",
        f"{old:,.0f} before, {new:,.0f}{unit} after",
        "good" if new < old else "bad" if new > old else "",
    )


def _bars(comparison: Comparison) -> list[dict[str, Any]]:
    """DRAM bytes by class, as shares of the larger total."""
    most = max(comparison.before.dram.total, comparison.after.dram.total, 1)

    def bar(name: str, report: Report) -> dict[str, Any]:
        shares = [
            (f"{100 * size / most:.3f}", f"c{k}")
            for k, size in enumerate(asdict(report.dram).values())
            if size
        ]
        return {"name": name, "parts": shares, "size": f"{report.dram.total:,} B"}

    return [bar("before", comparison.before), bar("after", comparison.after)]


def _drawn(plan: Plan, graph: Graph, marks: Mapping[str, int]) -> str:
    """The network in the plan's groups; a sentence where it is too large."""
    flow = Dataflow.of(graph)
    if len(flow) <= MOST:
        return picture(plan, flow, marks).replace(XMLNS, "")
    return f"<p>{len(flow):,} operators are too many for a picture</p>"


def _row(changed: Changed, known: Mapping[str, Operator], most: int) -> dict[str, Any]:
    ends = list(dict.fromkeys((changed.nodes[0], changed.nodes[-1])))
    more = changed.more_bytes
    return {
        "span": " … ".join(ends),
        "short": " … ".join(shorten(name, ROOM // len(ends)) for name in ends),
        "scope": scope_of_named(known, changed.nodes),
        "change": changed.change,
        "before": numbered(changed.before),
        "after": numbered(changed.after),
        "bytes": f"{more:+,}",
        "share": f"{50 * abs(more) / most:.2f}",
        "side": "left" if more >= 0 else "right",
        "tone": "more" if more > 0 else "less",
        "cycles": f"{changed.more_cycles:+,}",
        "why": reasons(changed),
    }
