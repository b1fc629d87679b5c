"""A cost model whose value is a weighted sum of bytes, cycles and energy, by each group's best alternative.

Weighted sums find what lies on the convex hull of all plans' figures: the fewest of each, ties broken by
another, and what a cap on one of them costs in another (`search.objectives`). A product of two, such as
energy x delay, is least at a corner of that hull, since it is quasi-concave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lfopt.fusion import Adapted, CostModel, Floor
from lfopt.ir import Cost, Figures
from lfopt.ops import bits
from search.result import Result

# (legal group) -> figures of each alternative that it may run as; at least one
Evaluator = Callable[[int], Sequence[Figures]]


LARGEST = 1 << 126  # of weighted sums: below what a search takes for infinite


def bounded(weights: Sequence[int], largest: int, factor: int) -> tuple[int, ...]:
    """Weights of the same direction, rounded where weighted sums of figures would exceed LARGEST.

    `largest`: of the figures; `factor`: by which the weights are multiplied.
    """
    most = LARGEST // (4 * factor * max(largest, 1))  # where nothing moves, all figures are 0
    over = max(weights) // most + 1
    return tuple(weight // over for weight in weights)


class CostWeights(NamedTuple):
    """Weights of a byte, a cycle and a picojoule: whole numbers."""

    dram_bytes: int
    cycles: int
    energy_pj: int

    def of(self, figures: Figures) -> int:
        """Weighted sum of figures."""
        return (
            self.dram_bytes * figures.dram_bytes
            + self.cycles * figures.cycles
            + self.energy_pj * figures.energy_pj
        )


class WeightedModel(Adapted[Floor]):
    """The model's groups, each with its least weighted sum.

    What `CostModel` and `Result` call DRAM bytes is that sum here.
    """

    def __init__(
        self, model: CostModel[Floor], evaluator: Evaluator, least: Sequence[Figures], weights: CostWeights
    ) -> None:
        """`least`: per operator, what it takes in any group, its bytes aside.

        Bytes must weigh something: the model goes by those of a group.
        """
        assert weights.dram_bytes > 0, weights
        super().__init__(model)
        self.evaluator = evaluator
        self.least = least
        self.weights = weights
        self._least = [weights.of(figures) for figures in least]
        # per set of executed operators: bytes that the others move at the least
        self._rest: dict[int, int] = {0: model.least_bytes}
        self._values: dict[int, Cost | None] = {}
        self.least_bytes = weights.dram_bytes * model.least_bytes + sum(self._least)

    def price(self, group: int, /) -> Cost | None:
        """The model's cost, with the weighted sum of the best alternative in place of its bytes."""
        if group not in self._values:
            cost = self.model.price(group)
            self._values[group] = (
                None
                if cost is None
                else cost._replace(dram_bytes=min(map(self.weights.of, self.evaluator(group))))
            )
        return self._values[group]

    def forget(self, group: int) -> None:
        """Drop the value of a group, so that its alternatives are asked for anew."""
        self._values.pop(group, None)

    def at_least(self, group: int, /) -> int:
        """Lower bound on the weighted sum, without a look at any alternative.

        The value of the fewest bytes that the group can move, and of what its operators take in any group.
        """
        cost = self.model.price(group)
        if cost is None:
            return 0
        return self.weights.dram_bytes * cost.dram_bytes + self._own(group)

    def grow(self, group: int, floor: Floor | None, dram: int, op: int, /) -> tuple[Floor, int]:
        """See `CostModel`."""
        before = (dram - self._own(group)) // self.weights.dram_bytes if group else 0
        larger, grown = self.model.grow(group, floor, before, op)
        return larger, self.weights.dram_bytes * grown + self._own(group | 1 << op)

    def _own(self, group: int) -> int:
        return sum(self._least[i] for i in bits(group))

    def rest_bytes(self, executed: int, before: int, group: int, /) -> int:
        """See `CostModel`."""
        after = executed | group
        others = self.dataflow.everything & ~(executed | group)
        if after not in self._rest:
            self._rest[after] = self.model.rest_bytes(executed, self._rest[executed], group)
        return self.weights.dram_bytes * self._rest[after] + self._own(others)


# (model, groups of a legal plan) -> what a search finds that begins with that plan
Run = Callable[[WeightedModel[Any], Sequence[int]], Result]
