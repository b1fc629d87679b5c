"""The tables of `lfopt explain --objective cycles`."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.app.explain_cycles import GroupCycles, Waited
from lfopt.app.screen import out, spread


def print_cycles(found: GroupCycles, top: int) -> None:
    """Where the cycles go: in all, by tensor, by operator, and what cutting each link would bring."""
    saved = found.alone - found.cycles
    out.print(f"[bold]{found.cycles:,} cycles[/] in mode {found.mode}, {abs(saved):,} {'less' if saved >= 0 else 'more'} than its operators alone")
    out.print(
        f"the compute engine works {_share(found.computing, found.cycles)} of the time, the busier channel to DRAM {_share(found.port, found.cycles)}"
    )
    for what, rows in (("moves", found.tensors), ("computes", found.operators)):
        out.print()
        out.print(_waited(what, rows, top, found.cycles))
    if found.links:
        out.print()
        _print_links(found, top)


def _waited(what: str, rows: Sequence[Waited], top: int, whole: int) -> object:
    shown = [(row.name, f"{row.busy:,}", f"{row.cycles:,}", _share(row.cycles, whole)) for row in rows[:top]]
    if rest := rows[top:]:
        shown.append((f"{len(rest)} other{'s' * (len(rest) > 1)}", f"{sum(row.busy for row in rest):,}", "", ""))
    return spread((what, "busy cycles", "less without", "share"), shown)


def _print_links(found: GroupCycles, top: int) -> None:
    rows: list[tuple[str, ...]] = []
    for link in found.links[:top]:
        ends = " → ".join(link.ends)
        if link.groups:
            rows.append((ends, " + ".join(str(len(names)) for names in link.groups), f"{link.cycles:,}", f"{link.cycles - found.cycles:+,}"))
        else:
            rows.append((ends, "", "no legal cut", ""))
    if rest := found.links[top:]:
        rows.append((f"{len(rest)} other{'s' * (len(rest) > 1)}", "", "", ""))
    out.print(spread(("cut here", "operators", "cycles of both", "change"), rows))
    if found.links_left:
        out.print(f"[dim]{found.links_left} more links were not looked at: the time limit struck[/]")
    best = found.links[0]
    if best.groups and best.cycles < found.cycles:
        out.print(f"[bold]cut at the first: {found.cycles - best.cycles:,} cycles less[/] [dim](one group after the other)[/]")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"
