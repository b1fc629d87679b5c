"""lfopt diff: two plans side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from lfopt.app.answers import ChangeAnswer, ChangedGroup, DiffAnswer, MisfitAnswer, MovedAnswer, SettingAnswer, SideAnswer, answer
from lfopt.app.commands.options import check_top
from lfopt.app.comparison import Changed, Comparison, compare
from lfopt.app.screen import out, shown, spread, table
from lfopt.app.verify import load_planned
from lfopt.ir import GroupReport, Report
from lfopt.ir.names import plural

TENSORS = 3  # named for one change
CLASSES = {"input": "maps read", "output": "maps written", "weight": "weights", "parameter": "parameters", "spill": "spilled"}


def diff(before: Path, after: Path, *, top: int = 10) -> int:
    """Compare two plans: bytes, cycles, which groups changed, and why.

    Example: lfopt diff runs/bytes runs/cycles --top 3

    Operators are compared by name; what is compared is the smallest sets of them that are whole groups in both plans. Every claim of both plans is
    recounted first. Exit code 0: they are alike in groups, bytes and cycles; 1: they are not.

    Parameters
    ----------
    before
        plan.json, or the folder it is in.
    after
        The other plan.
    top
        Changes listed: those that differ most in bytes, then in cycles.
    """
    check_top(top)
    found = compare(load_planned(before), load_planned(after))
    _print(found, top)
    answer(_answer(found))
    return 1 if found.changed else 0


def _answer(found: Comparison) -> DiffAnswer:
    settings = tuple(SettingAnswer(*setting) for setting in found.settings)
    return DiffAnswer(settings, _side(found.before), _side(found.after), found.same, tuple(map(_change, found.changed)))


def _side(report: Report) -> SideAnswer:
    return SideAnswer(report.dram, report.dram.total, len(report.groups), report.macs, report.cycles.total, report.energy.total_pj)


def _change(changed: Changed) -> ChangeAnswer:
    before, after = (tuple(ChangedGroup(g.id, g.mode, g.dram.total, g.cycles.total) for g in side) for side in (changed.before, changed.after))
    moved = tuple(MovedAnswer(*tensor) for tensor in changed.tensors)
    unfit = tuple(MisfitAnswer(unfit.needed, unfit.available, unfit.store) for unfit in changed.unfit)
    return ChangeAnswer(changed.change, changed.nodes, before, after, moved, unfit)


def _print(found: Comparison, top: int) -> None:
    name = found.before.model if found.before.model == found.after.model else f"{found.before.model} and {found.after.model}"
    out.print(f"[bold]{escape(name)}[/]: {plural(found.same, 'group')} alike, {plural(len(found.changed), 'change')}\n")
    if found.settings:
        out.print(spread(("asked for", "before", "after"), found.settings, stretch=(0,)))
        out.print()
    out.print(_sums(found))
    if not found.changed:
        return
    out.print()
    listed = found.changed[:top]
    out.print(_changes(listed))
    if rest := len(found.changed) - len(listed):
        out.print(f"[dim]{plural(rest, 'change')} more: --top[/]")
    out.print()
    for number, changed in enumerate(listed, 1):
        for line in _why(changed):
            out.print(f"{number}  {shown(line)}", soft_wrap=True)
    out.print("[dim]* model: follows from the hardware description[/]")


def _sums(found: Comparison) -> Table:
    rows = table("", "before", "after", "more", "")

    def add(what: str, old: float, new: float, digits: int = 0) -> None:
        share = f"{100 * (new - old) / old:+.1f} %" if old else ""
        rows.add_row(what, f"{old:,.{digits}f}", f"{new:,.{digits}f}", f"{new - old:+,.{digits}f}", share)

    add("DRAM bytes", found.before.dram.total, found.after.dram.total)
    for name, label in CLASSES.items():
        old, new = (getattr(dram, name) for dram in (found.before.dram, found.after.dram))
        if old or new:
            add(f"  {label}", old, new)
    add("groups", len(found.before.groups), len(found.after.groups))
    add("MACs", found.before.macs, found.after.macs)
    add("cycles*", found.before.cycles.total, found.after.cycles.total)
    add("energy*, uJ", found.before.energy.total_pj / 1e6, found.after.energy.total_pj / 1e6, 1)
    return rows


def _changes(listed: Sequence[Changed]) -> Table:
    rows: list[list[str]] = []
    for number, changed in enumerate(listed, 1):
        nodes = changed.nodes
        span = nodes[0] if len(nodes) == 1 else f"{nodes[0]} .. {nodes[-1]}"
        sides = _groups(changed.before), _groups(changed.after)
        rows.append([f"{number} {span}", changed.change, *sides, f"{changed.more_bytes:+,}", f"{changed.more_cycles:+,}"])
    return spread(("operators", "change", "before", "after", "bytes", "cycles*"), rows)


def _groups(groups: Sequence[GroupReport]) -> str:
    """Numbers of groups, and their modes."""
    numbers = [group.id for group in groups]
    modes = [*dict.fromkeys(group.mode for group in groups)]
    if not numbers:
        return "-"
    joined = f"{numbers[0]}-{numbers[-1]}" if numbers[2:] and numbers == [*range(numbers[0], numbers[-1] + 1)] else ",".join(map(str, numbers))
    return f"{joined} {'/'.join(modes)}"


def _why(changed: Changed) -> list[str]:
    """What tells the two apart: tensors that move otherwise, groups that one chip has no room for."""
    lines: list[str] = []
    for moved in changed.tensors[:TENSORS]:
        verb = "no longer moves" if not moved.after else "moves now" if not moved.before else "moves less" if moved.more < 0 else "moves more"
        lines.append(f"{moved.name} ({moved.role}) {verb}: {moved.before:,} -> {moved.after:,} B")
    if rest := changed.tensors[TENSORS:]:
        lines.append(f"{plural(len(rest), 'other tensor')}: {sum(moved.more for moved in rest):+,} B")
    lines += [f"a group needs {unfit.needed:,} B of {unfit.store}, and the other plan's chip has {unfit.available:,}" for unfit in changed.unfit[:1]]
    return lines or ["the same bytes, in other steps"]
