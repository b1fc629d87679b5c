"""lfopt diff: two plans side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.markup import escape

from lfopt.app.answers.plans import (
    ChangeAnswer,
    ChangedGroup,
    DiffAnswer,
    MisfitAnswer,
    MovedAnswer,
    SettingAnswer,
    SideAnswer,
)
from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import check_top
from lfopt.app.comparison import Changed, Comparison, compare, numbered, reasons
from lfopt.app.files import path_of, write_text
from lfopt.app.options import PlanOption
from lfopt.app.origins import by_name, named_table, scope_of_named
from lfopt.app.report.versus import page_of_both, sums
from lfopt.app.screen import out, shown, speed, spread, table
from lfopt.app.verify import load_planned
from lfopt.ir import Operator, Report
from lfopt.ir.names import plural, span


def diff(before: PlanOption, after: Path, *, top: int = 10, html: Path | None = None) -> int:
    """Compare two plans: bytes, cycles, which groups changed, and why.

    Example: lfopt diff runs/bytes runs/cycles --html bytes-cycles.html

    Operators are compared by name; what is compared is the smallest sets of them that are whole groups in
    both plans. Every claim of both plans is recounted first. Exit code 0: they are alike in groups, bytes and
    cycles; 1: they are not.

    Parameters
    ----------
    after
        The other plan.
    top
        Changes listed: those that differ most in bytes, then in cycles.
    html
        Write both plans side by side as a page, with every change.
    """
    check_top(top)
    one = load_planned(before)
    other = load_planned(after)
    comparison = compare(one, other)
    _print(comparison, top, {**by_name(other[1]), **by_name(one[1])})
    if html is not None:
        write_text(path_of(html, "--html"), page_of_both(comparison, one, other, (before, after)))
        out.print(f"[dim]wrote[/] {shown(html)}", soft_wrap=True)
    answer(_answer(comparison))
    if comparison.changed:
        return 1
    return 0


def _answer(comparison: Comparison) -> DiffAnswer:
    settings = tuple(SettingAnswer(*setting) for setting in comparison.settings)
    return DiffAnswer(
        settings,
        _side(comparison.before),
        _side(comparison.after),
        comparison.same,
        tuple(map(_change, comparison.changed)),
    )


def _side(report: Report) -> SideAnswer:
    return SideAnswer(
        report.dram,
        report.dram.total,
        len(report.groups),
        report.macs,
        report.cycles.total,
        report.energy.total_pj,
    )


def _change(changed: Changed) -> ChangeAnswer:
    before, after = (
        tuple(ChangedGroup(g.id, g.mode, g.dram.total, g.cycles.total) for g in side)
        for side in (changed.before, changed.after)
    )
    moved = tuple(MovedAnswer(*tensor) for tensor in changed.tensors)
    unfit = tuple(MisfitAnswer(unfit.needed, unfit.available, unfit.store) for unfit in changed.unfit)
    return ChangeAnswer(changed.change, changed.nodes, before, after, moved, unfit)


def _print(comparison: Comparison, top: int, known: Mapping[str, Operator]) -> None:
    if comparison.before.model == comparison.after.model:
        name = comparison.before.model
    else:
        name = f"{comparison.before.model} and {comparison.after.model}"
    out.print(
        f"[bold]{escape(name)}[/]: {plural(comparison.same, 'group')} alike, "
        f"{plural(len(comparison.changed), 'change')}\n"
    )
    if comparison.settings:
        out.print(spread(("asked for", "before", "after"), comparison.settings, stretch=(0,)))
        out.print()
    out.print(_sums(comparison))
    if not comparison.changed:
        return
    out.print()
    listed = comparison.changed[:top]
    out.print(_changes(listed, known))
    if rest := len(comparison.changed) - len(listed):
        out.print(f"[dim]{plural(rest, 'change')} more: --top[/]")
    out.print()
    for number, changed in enumerate(listed, 1):
        for line in reasons(changed):
            out.print(f"{number}  {shown(line)}", soft_wrap=True)
    chips = dict.fromkeys(speed(report.hardware) for report in (comparison.before, comparison.after))
    out.print(f"[dim]* model: on {'; '.join(chips)}[/]", soft_wrap=True)


def _sums(comparison: Comparison) -> RenderableType:
    rows = table("", "before", "after", "more", "")
    for row in sums(comparison):
        rows.add_row(*row)
    return rows


def _changes(listed: Sequence[Changed], known: Mapping[str, Operator]) -> RenderableType:
    rows: list[list[str]] = []
    for number, changed in enumerate(listed, 1):
        nodes = changed.nodes
        sides = numbered(changed.before), numbered(changed.after)
        rows.append(
            [
                f"{number} {span(nodes)}",
                changed.change,
                *sides,
                f"{changed.more_bytes:+,}",
                f"{changed.more_cycles:+,}",
            ]
        )
    modules = [scope_of_named(known, changed.nodes) for changed in listed]
    return named_table(("operators", "change", "before", "after", "bytes", "cycles*"), rows, modules)
