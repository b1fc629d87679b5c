"""What every search is given: a dataflow and plain callables that price a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from lfopt.ir import Cost, DoesNotFit
from lfopt.ir.names import plural
from lfopt.ops import Dataflow

Floor = Any  # what a cost model knows of the buffer that a group, and whatever it is grown into, takes at the least; a search only passes it on


class Prices(Protocol):
    """A cost model of groups, as planning has one; the fields are those of `Problem`."""

    dataflow: Dataflow

    @property
    def least_bytes(self) -> int:
        """See `Problem`."""
        ...

    @property
    def mates(self) -> tuple[int, ...]:
        """See `Problem`."""
        ...

    def evaluate(self, mask: int, /) -> Cost | DoesNotFit:
        """See `Problem`."""
        ...

    def grow(self, mask: int, floor: Floor, dram: int, op: int, /) -> tuple[Floor, int]:
        """See `Problem`."""
        ...

    def may_grow(self, mask: int, floor: Floor, /) -> bool:
        """See `Problem`."""
        ...

    def rest_bytes(self, executed: int, before: int, group: int, /) -> int:
        """See `Problem`."""
        ...

    def legal_anywhere(self, mask: int, /) -> bool:
        """See `Problem`."""
        ...


@dataclass(frozen=True, eq=False)
class Problem:
    """Partition the operators of `dataflow` into legal groups of least DRAM traffic. A group is a mask of operators."""

    dataflow: Dataflow
    evaluate: Callable[[int], Cost | DoesNotFit | None]  # (group) -> its cost; anything else where it is not legal
    grow: Callable[[int, Floor, int, int], tuple[Floor, int]]  # (group, floor, dram, operator above all in it) -> (floor, dram) of the larger group
    may_grow: Callable[[int, Floor], bool]  # (group, floor) -> whether it, or a group that it is grown into, may be legal
    legal_anywhere: Callable[[int], bool]  # (group) -> whether it may run on any buffer, tiled if need be
    least_bytes: int  # what no scheme can avoid
    rest_bytes: Callable[[int, int, int], int]  # (operators executed, least bytes of the others, group) -> the same once the group is executed too
    mates: tuple[int, ...]  # per operator: a superset of the operators that share a legal group with it, itself included
    simpler: Problem | None = None  # one that is solved faster, all of whose schemes are legal here too and move no more here than there

    @classmethod
    def of(cls, prices: Prices) -> Problem:
        """The problem that a cost model poses.

        Where the model has a `price`, which does not say why a group is not legal, that is asked: it is cheaper. It may also have a `simpler` model.
        """
        simpler: Prices | None = getattr(prices, "simpler", None)
        return cls(
            prices.dataflow,
            getattr(prices, "price", prices.evaluate),
            prices.grow,
            prices.may_grow,
            prices.legal_anywhere,
            prices.least_bytes,
            prices.rest_bytes,
            prices.mates,
            cls.of(simpler) if simpler is not None else None,
        )


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


def unfused(problem: Problem, method: str) -> Result:
    """Every operator alone, which is always legal: what an interrupted search has before it found anything."""
    groups = tuple(1 << i for i in range(len(problem.dataflow)))
    dram_bytes = sum(cost.dram_bytes for cost in map(problem.evaluate, groups) if isinstance(cost, Cost))
    return Result(groups, dram_bytes, problem.least_bytes, "bound", method, None, 0, 0.0, interrupted=True)
