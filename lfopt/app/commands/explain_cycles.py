"""The tables of `lfopt explain --objective cycles`."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.app.explain_cycles import CyclesTaken, GroupCycles
from lfopt.app.screen import out, spread


def print_cycles(group: GroupCycles, top: int) -> None:
    """Print where the cycles go: in all, by tensor, by operator, and what cutting each link would bring."""
    saved = group.alone - group.cycles
    out.print(
        f"[bold]{group.cycles:,} cycles[/] in mode {group.mode}, {abs(saved):,} "
        f"{'less' if saved >= 0 else 'more'} than its operators alone"
    )
    out.print(
        f"the compute engine works {_share(group.computing, group.cycles)} of the time, the busier channel "
        f"to DRAM {_share(group.port, group.cycles)}"
    )
    for what, rows in (("moves", group.tensors), ("computes", group.operators)):
        out.print()
        out.print(_waited(what, rows, top, group.cycles))
    if group.links:
        out.print()
        _print_links(group, top)


def _waited(what: str, rows: Sequence[CyclesTaken], top: int, whole: int) -> object:
    shown = [(row.name, f"{row.busy:,}", f"{row.cycles:,}", _share(row.cycles, whole)) for row in rows[:top]]
    if rest := rows[top:]:
        shown.append(
            (f"{len(rest)} other{'s' * (len(rest) > 1)}", f"{sum(row.busy for row in rest):,}", "", "")
        )
    return spread((what, "busy cycles", "less without", "share"), shown)


def _print_links(group: GroupCycles, top: int) -> None:
    rows: list[tuple[str, ...]] = []
    for link in group.links[:top]:
        ends = " → ".join(link.ends)
        if link.groups:
            rows.append(
                (
                    ends,
                    " + ".join(str(len(names)) for names in link.groups),
                    f"{link.cycles:,}",
                    f"{link.cycles - group.cycles:+,}",
                )
            )
        else:
            rows.append((ends, "", "no legal cut", ""))
    if rest := group.links[top:]:
        rows.append((f"{len(rest)} other{'s' * (len(rest) > 1)}", "", "", ""))
    out.print(spread(("cut here", "operators", "cycles of both", "change"), rows))
    if group.links_left:
        out.print(f"[dim]{group.links_left} more links were not looked at: the time limit struck[/]")
    best = group.links[0]
    if best.groups and best.cycles < group.cycles:
        out.print(
            f"[bold]cut at the first: {group.cycles - best.cycles:,} cycles less[/] [dim](one group after "
            "the other)[/]"
        )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"
