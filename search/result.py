"""What every search returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from lfopt.fusion import CostModel
from lfopt.ir.names import plural

Front = tuple[tuple[int, int, tuple[int, ...]], ...]  # (DRAM bytes, buffer bytes, groups) per plan, fewest DRAM bytes first


class Repairs(NamedTuple):
    """How often a search broke a group that did not fit, or was taken not to."""

    guided: int = 0  # where the given split said
    random: int = 0  # at random: no split was given, or it had nothing to say
    screened: int = 0  # of both: taken for illegal, and never checked


@dataclass(frozen=True, repr=False)
class Result:
    """What a search found."""

    groups: tuple[int, ...]  # in an executable order
    dram_bytes: int
    lower_bound_bytes: int  # no scheme of this space moves less
    proof: str  # optimal | bound | none
    method: str
    seed: int | None
    evaluations: int  # of plans; for the exact search, of groups
    seconds: float
    history: tuple[tuple[int, int], ...] = field(default=())  # (evaluations, best DRAM bytes) at each improvement
    front: Front = field(default=())  # plans that no other plan found beats in both DRAM and buffer bytes, if the search keeps them
    interrupted: bool = False  # stopped by Ctrl-C: the best plan so far
    repairs: Repairs = field(default_factory=Repairs)

    def __repr__(self) -> str:
        found = "optimal" if self.proof == "optimal" else f"bound {self.lower_bound_bytes:,} B"
        return (
            f"Result({self.method}: {plural(len(self.groups), 'group')}, {self.dram_bytes:,} B of DRAM, {found}{', interrupted' * self.interrupted})"
        )

    @cached_property
    def gap(self) -> float:
        """(bytes - bound) / bound."""
        return (self.dram_bytes - self.lower_bound_bytes) / max(self.lower_bound_bytes, 1)


def unfused(model: CostModel, method: str) -> Result:
    """Every operator alone, which is always legal: what an interrupted search has before it found anything."""
    groups = tuple(1 << i for i in range(len(model.dataflow)))
    dram_bytes = sum(cost.dram_bytes for cost in map(model.price, groups) if cost is not None)
    return Result(groups, dram_bytes, model.least_bytes, "bound", method, None, 0, 0.0, interrupted=True)
