"""What a plan was chosen beside, or how far it is from the least, on the screen."""

from __future__ import annotations

from lfopt.app.objectives import ObjectiveResult
from lfopt.app.screen import mib, out, table
from lfopt.app.trade import Trade
from lfopt.ir import Figures
from lfopt.planning.modes import SCHEMES
from search.objectives import Objective


def print_judged(wanted: Objective, scheme: str, judged: ObjectiveResult) -> None:
    """What the plan of an objective was chosen beside, or how far it is from the least value there can be.

    Of objective bytes, the proof is told beside the bytes.
    """
    if judged.figures is None or wanted == Objective():
        return
    if judged.trade is not None:
        print_trade(judged.trade, judged.figures)
        if judged.least is not None:
            out.print(_least_of_all(judged.trade, judged.least), soft_wrap=True)
        return
    value = wanted.value(judged.figures)
    least = 0 if judged.least is None else wanted.value(judged.least)
    if judged.bound > least:
        space = "of groups one after the other"
        if SCHEMES[scheme].copies:
            space += " in which nothing is computed again"
        if value <= judged.bound:
            proven = "the least, proven of the ways looked at"
        else:
            proven = f"{_above(value, judged.bound)} the least of the ways looked at"
        out.print(f"[dim]{wanted.name}, {space}: {proven}[/]", soft_wrap=True)
    if least:
        out.print(f"[dim]{wanted.name}: {_above(value, least)} the least of any plan[/]", soft_wrap=True)
    elif not judged.bound:
        out.print(f"[dim]{wanted.name}: nothing is proven[/]", soft_wrap=True)


def _above(value: int, least: int) -> str:
    """How far a value is from a lower bound.

    >>> _above(250, 200), _above(200, 200)
    ('at most 25.0 % above', 'no more than')
    """
    if value <= least:
        return "no more than"
    return f"at most {100 * (value - least) / least:.1f} % above"


def _least_of_all(trade: Trade, least: Figures) -> str:
    """How far the fastest plan and that of the least energy are from what any plan takes."""
    return (
        f"fewest cycles: {_above(trade.fastest.cycles, least.cycles)} the least of any plan; "
        f"least energy: {_above(trade.least_energy.energy_pj, least.energy_pj)} it"
    )


def print_trade(trade: Trade, chosen: Figures) -> None:
    """The plan beside those of the fewest bytes, fewest cycles and least energy, and beside the baselines.

    `chosen`: figures of the plan.
    """
    rows = table("groups one after the other", "DRAM bytes", "MiB", "kcycles", "uJ")

    def add(name: str, figures: Figures, style: str | None = None) -> None:
        moved, cycles, energy = figures
        rows.add_row(
            name, f"{moved:,}", mib(moved), f"{cycles / 1e3:,.1f}", f"{energy / 1e6:,.1f}", style=style
        )

    for name, figures in trade.baselines:
        add(f"{name}, as a plan", figures)
    for name, figures in trade.papers:
        add(name, figures)
    add("this plan, balanced", chosen, "bold green")
    add("fewest bytes found", trade.fewest_bytes)
    add("fewest cycles found", trade.fastest)
    add("least energy found", trade.least_energy)
    out.print()
    out.print(rows)
    if trade.baselines:
        name, fastest = min(trade.baselines, key=lambda baseline: baseline[1].cycles)
        if trade.most_cycles is not None and chosen.cycles > trade.most_cycles:
            out.print(f"no plan was found within {trade.most_cycles:,} cycles, the cap: this is the fastest")
        out.print(
            f"{_change(fastest.cycles, chosen.cycles, 'fewer', 'cycles')} and "
            f"{_change(fastest.energy_pj, chosen.energy_pj, 'less', 'energy')} than {name}, "
            f"{_change(trade.fewest_bytes.dram_bytes, chosen.dram_bytes, 'fewer', 'bytes')} than the fewest "
            "found",
            soft_wrap=True,
        )


def _change(before: int, after: int, less: str, what: str) -> str:
    """How much less of something, or more; `less`: the word for that.

    >>> _change(200, 150, "fewer", "cycles"), _change(200, 201, "fewer", "bytes")
    ('25.0 % fewer cycles', '0.5 % more bytes')
    >>> _change(200, 200, "less", "energy")
    'no more energy'
    """
    if after == before:
        return f"no more {what}"
    share = 100 * abs(after - before) / max(before, 1)
    return f"{share:.1f} % {less if after < before else 'more'} {what}"
