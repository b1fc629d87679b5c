"""Results of searches, in the same terms for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from lfopt.fusion import CostModel
from lfopt.ir.names import plural
from lfopt.ir.plan import NO_CERTIFICATE, NOT_LOOKED_FOR, Certificate, NothingKept, Proof

# (DRAM bytes, required bytes, groups) per plan, fewest DRAM bytes first
Front = tuple[tuple[int, int, tuple[int, ...]], ...]


class RepairStats(NamedTuple):
    """Counts of groups that a search broke as they did not fit, or were taken not to."""

    guided: int = 0  # where the given split said
    random: int = 0  # at random: no split was given, or it had nothing to say
    screened: int = 0  # of both: taken for illegal, and never checked


@dataclass(frozen=True, repr=False)
class Result:
    """The best plan that a search found, how good it is, and what it took.

    A plan is evaluated when its DRAM bytes are added up to be compared with the best so far, a group whenever
    the cost model is asked for its price; models remember prices, so asking again costs little. Interrupted
    means by Ctrl-C or by `SearchOptions.stop`: a search that used up its time or its budget is not. Whatever
    stopped it, the plan is legal and the bound holds.
    """

    method: str  # a row of `search.methods.METHODS`
    groups: tuple[int, ...]  # in an executable order
    dram_bytes: int
    # no scheme of this space moves less: proven here, given to the search, or known to the cost model
    lower_bound_bytes: int
    plans_evaluated: int  # 0: it was stopped before it had a plan, and every operator is alone
    groups_evaluated: int
    seconds: float
    seed: int | None = None  # None: the method draws no numbers
    interrupted: bool = False
    # (plans evaluated, DRAM bytes) of each that was better than all before it
    history: tuple[tuple[int, int], ...] = field(default=())
    # plans that no other plan found beats in both DRAM and required bytes, if the search keeps them
    front: Front = field(default=())
    repairs: RepairStats = field(default_factory=RepairStats)
    nothing_kept: NothingKept = NOT_LOOKED_FOR  # of plans in which no map stays between groups
    certificate: Certificate = NO_CERTIFICATE  # of a bound on covers

    def __repr__(self) -> str:
        proven = "optimal" if self.proof == "optimal" else f"bound {self.lower_bound_bytes:,} B"
        return (
            f"Result({self.method}: {plural(len(self.groups), 'group')}, {self.dram_bytes:,} B of DRAM, "
            f"{proven}{', interrupted' * self.interrupted})"
        )

    @property
    def proof(self) -> Proof:
        """What is proven of the bytes.

        optimal: no scheme of this space moves less; bound: none moves less than the lower bound; none: there
        is no bound.
        """
        if self.dram_bytes <= self.lower_bound_bytes:
            return "optimal"
        if self.lower_bound_bytes:
            return "bound"
        return "none"

    @cached_property
    def gap(self) -> float:
        """Optimality gap: (bytes - bound) / bound."""
        return (self.dram_bytes - self.lower_bound_bytes) / max(self.lower_bound_bytes, 1)


def unfused(model: CostModel, method: str) -> Result:
    """Every operator unfused, which is always legal: the result of a search interrupted before any other."""
    groups = tuple(1 << i for i in range(len(model.dataflow)))
    dram_bytes = sum(cost.dram_bytes for cost in map(model.price, groups) if cost is not None)
    return Result(method, groups, dram_bytes, model.least_bytes, 0, len(groups), 0.0, interrupted=True)
