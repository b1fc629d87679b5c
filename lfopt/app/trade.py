"""What a balanced plan gives up for what."""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.ir import Figures


@dataclass(frozen=True)
class Trade:
    """What the plan gives up for what: plans found within the time, beside the baselines."""

    baselines: tuple[tuple[str, Figures], ...]  # what compilers run
    papers: tuple[tuple[str, Figures], ...]  # the fewest bytes in the schemes of the papers
    most_cycles: int | None  # of the faster baseline; None: none of them runs
    fewest_bytes: Figures
    fastest: Figures
    least_energy: Figures
