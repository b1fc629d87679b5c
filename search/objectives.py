"""Plans of the fewest bytes or cycles, the least energy or energy-delay product, with caps on any of them.

Every plan's figures are sums over its groups, but for the product. So a search of any kind, given a
`WeightedModel`, finds plans on the convex hull of all figures; a cap becomes a weight (a Lagrange
multiplier), which is raised until the plan is below it. What a cap leaves unused is then spent on
alternatives of single groups. A plan that no weighted sum finds, because it lies inside the hull, may be
missed under a cap: the bound says by how much at most.

Where something else than bytes is minimised, bytes weigh much at first and then ever less: few groups are of
interest then, and each plan is the first one of the next search, which drops whatever is no better. So a
search that is stopped has plans between the fewest bytes and the fewest cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from lfopt.fusion import CostModel
from lfopt.ir import Figures
from search.result import Result
from search.weighted import CostWeights, Evaluator, Run, WeightedModel, bounded

ObjectiveName = Literal["bytes", "cycles", "energy", "edp", "balanced"]
# that a weighted sum, or a product, says; balanced is the fewest bytes in a number of cycles, then less
OBJECTIVES: tuple[ObjectiveName, ...] = ("bytes", "cycles", "energy", "edp")
PLANNED_FOR: tuple[ObjectiveName, ...] = get_args(ObjectiveName)

# of an objective that is one figure, or of which one counts first
FIGURE: dict[ObjectiveName, str] = {
    "bytes": "dram_bytes",
    "cycles": "cycles",
    "energy": "energy_pj",
    "balanced": "dram_bytes",
}
# weight of an objective: more than a plan's other figures together, at a weight of 1 each; a multiplier
# of UNIT counts as much as the objective
UNIT = 1 << 48
# by which a multiplier is raised or lowered, until it is neither too small nor larger than it must be
FACTOR = 4
MOST = FACTOR**24
BISECTIONS = 6  # of the multiplier then
HEAVY = UNIT * FACTOR**3  # multiplier of bytes to begin with, where something else is minimised
LIGHT = UNIT // FACTOR**3  # from where on they only break ties
CORNERS = 8  # weighted sums towards the least product


class Caps(NamedTuple):
    """The most that a plan may take; None: however much."""

    dram_bytes: int | None = None
    cycles: int | None = None
    energy_pj: int | None = None

    def over(self, figures: Figures) -> Figures:
        """Excess of figures over the caps."""
        return Figures(
            *(
                max(figure - cap, 0) if cap is not None else 0
                for figure, cap in zip(figures, self, strict=True)
            )
        )

    def allow(self, figures: Figures) -> bool:
        """Whether figures are within the caps."""
        return not any(self.over(figures))


NO_CAPS = Caps()


@dataclass(frozen=True)
class Objective:
    """Objective of a plan: a figure to minimise, and caps."""

    name: ObjectiveName = "bytes"
    caps: Caps = NO_CAPS

    def value(self, figures: Figures) -> int:
        """Value to minimise, in bytes, cycles, pJ, or pJ x cycles."""
        if self.name == "edp":
            return figures.energy_pj * figures.cycles
        return getattr(figures, FIGURE[self.name])

    def order(self, figures: Figures) -> tuple[bool, int, int, int]:
        """Sort key of plans: below the caps first, then by value, cycles and bytes."""
        over = self.caps.over(figures)
        return any(over), sum(over) if any(over) else self.value(figures), figures.cycles, figures.dram_bytes


class Choice(NamedTuple):
    """A plan, and the alternative of each of its groups."""

    figures: Figures
    groups: tuple[int, ...]  # in an executable order
    alternatives: tuple[int, ...]  # per group: position in what the `Evaluator` returns


class SearchOutcome(NamedTuple):
    """Outcome of a search for an objective."""

    choice: Choice
    bound: int  # no plan of this space, of these alternatives, has a smaller value; 0: nothing is known
    interrupted: bool  # whether the last search was, by Ctrl-C


def total(evaluator: Evaluator, groups: Sequence[int], chosen: Sequence[int]) -> Figures:
    """Figures of a plan."""
    return sum((evaluator(group)[k] for group, k in zip(groups, chosen, strict=True)), Figures(0, 0, 0))


def best_of(evaluator: Evaluator, groups: Sequence[int], weights: CostWeights) -> Choice:
    """A plan of these groups, each in its best alternative."""
    chosen = tuple(
        min(range(len(known)), key=lambda k: weights.of(known[k])) for known in map(evaluator, groups)
    )
    return Choice(total(evaluator, groups, chosen), tuple(groups), chosen)


def first_of(evaluator: Evaluator, plans: Iterable[Sequence[int]], weights: CostWeights) -> Sequence[int]:
    """The plan of the least weighted sum, among some."""
    return min(
        (best_of(evaluator, groups, weights) for groups in plans),
        key=lambda choice: weights.of(choice.figures),
    ).groups


def optimise(
    model: CostModel,
    evaluator: Evaluator,
    least: Sequence[Figures],
    objective: Objective,
    run: Run,
    start: Sequence[int],
    over: Callable[[], bool] = lambda: False,
    near: float = 0.0,
) -> SearchOutcome:
    """The best plan that searches of weighted sums find.

    `start`: a legal plan to begin with; `run`: a search; `over`: whether its time is over.

    `near`: share of its value by which a plan may be above its bound where that ends the search. See
    `WeightedModel` for the others.
    """
    search = _Search(model, evaluator, least, objective, run, over, near)
    search.known.append(best_of(evaluator, start, lexical(objective.name)))
    last = search.descended()
    if last is None or not objective.caps.allow(search.best.figures):
        last = search.capped(last or search.free())
    return SearchOutcome(spend(evaluator, objective, search.best), search.bound, last.interrupted)


def lexical(name: ObjectiveName) -> CostWeights:
    """Weights by which the value (of a product: the energy) counts first, then cycles and bytes."""
    return CostWeights(1, 1, 0)._replace(**{FIGURE.get(name, "energy_pj"): UNIT})


class _Support(NamedTuple):
    """A line that all plans lie above: per_pj x energy + per_cycle x cycles >= least."""

    per_pj: int
    per_cycle: int
    least: int

    def product_at(self, other: _Support) -> int:
        """Energy x cycles where two lines meet, rounded down; 0 where they do not."""
        determinant = self.per_pj * other.per_cycle - other.per_pj * self.per_cycle
        if not determinant:
            return 0
        energy = self.least * other.per_cycle - other.least * self.per_cycle
        cycles = self.per_pj * other.least - other.per_pj * self.least
        return max(energy * cycles // determinant**2, 0)


class _Gap(NamedTuple):
    """Where plans may lie between two corners of the hull: one of less energy, one of fewer cycles."""

    promise: int  # no plan there has a smaller product
    first: Figures
    above_first: _Support
    second: Figures
    above_second: _Support

    @classmethod
    def between(cls, first: Figures, above_first: _Support, second: Figures, above_second: _Support) -> _Gap:
        """That between two corners, each the lowest on its line."""
        return cls(above_first.product_at(above_second), first, above_first, second, above_second)

    def divided(self, corner: Figures, above: _Support) -> tuple[_Gap, _Gap]:
        """Those that are left on either side of a corner in between."""
        return (
            self.between(self.first, self.above_first, corner, above),
            self.between(corner, above, self.second, self.above_second),
        )

    @property
    def normal(self) -> tuple[int, int]:
        """Weights (of a pJ, of a cycle) of which the two corners have an equal sum."""
        return self.first.cycles - self.second.cycles, self.second.energy_pj - self.first.energy_pj


class _Search:
    def __init__(
        self,
        model: CostModel,
        evaluator: Evaluator,
        least: Sequence[Figures],
        objective: Objective,
        run: Run,
        over: Callable[[], bool],
        near: float,
    ) -> None:
        self.model = model
        self.evaluator = evaluator
        self.least = least
        self.objective = objective
        self.run = run
        self.over = over
        self.near = near
        self.known: list[Choice] = []
        self.bound = 0
        self.interrupted = False

    @property
    def stopped(self) -> bool:
        """Whether the search was stopped by Ctrl-C, or its time is over."""
        return self.interrupted or self.over()

    @property
    def _done(self) -> bool:
        """Whether it is stopped, or near enough to the bound."""
        value = self.objective.value(self.best.figures)
        return self.stopped or (
            self.objective.caps.allow(self.best.figures) and value - self.bound <= self.near * value
        )

    @property
    def best(self) -> Choice:
        return min(self.known, key=lambda choice: self.objective.order(choice.figures))

    def solve(self, weights: CostWeights) -> tuple[Choice, Result]:
        """The plan of the least weighted sum that the search finds."""
        weighted = self.run(
            WeightedModel(self.model, self.evaluator, self.least, weights),
            first_of(self.evaluator, [known.groups for known in self.known], weights),
        )
        self.interrupted = self.interrupted or weighted.interrupted
        choice = best_of(self.evaluator, weighted.groups, weights)
        self.known.append(choice)
        return choice, weighted

    def descended(self) -> Result | None:
        """Search with bytes at a falling multiplier, while there is time, until they exceed their cap.

        None where they never do.
        """
        if self.objective.name == "bytes":
            return None
        last, light = self._squeezed("dram_bytes", self.objective.caps.dram_bytes, HEAVY, LIGHT)
        if light and not self._done:
            return None
        return last

    def free(self) -> Result:
        """Search without caps."""
        name = self.objective.name
        _, result = self.solve(lexical(name))
        if name != "edp":
            self.bound = result.lower_bound_bytes // UNIT
            return result
        energy = _Support(1, 0, result.lower_bound_bytes // UNIT)
        _, fastest = self.solve(lexical("cycles"))
        cycles = _Support(0, 1, fastest.lower_bound_bytes // UNIT)
        return self._least_product(energy, cycles) or result

    def _least_product(self, energy: _Support, cycles: _Support) -> Result | None:
        """Search for the corner of the hull of all plans where energy x cycles is least; the last result.

        Between two corners all plans lie above the lines on which each of them is the lowest. The product is
        least at a corner, or where those lines meet, which bounds it. So the weighted sum that is equal for
        the two corners is searched where that promises the least, until no promise is below the best plan.
        """
        last: Result | None = None
        first = min(self.known, key=lambda choice: choice.figures.energy_pj).figures
        second = min(self.known, key=lambda choice: choice.figures.cycles).figures
        waiting = [_Gap.between(first, energy, second, cycles)]
        settled: list[_Gap] = []  # in which there is nothing to look for
        for _ in range(CORNERS):
            gap = min(waiting, default=None)
            if gap is None or self.stopped or gap.promise >= self.objective.value(self.best.figures):
                break
            waiting.remove(gap)
            if min(gap.normal) <= 0:
                settled.append(gap)
                continue
            per_pj, per_cycle = bounded(gap.normal, max(*gap.first, *gap.second), UNIT)
            choice, last = self.solve(CostWeights(1, per_cycle * UNIT, per_pj * UNIT))
            line = _Support(per_pj, per_cycle, last.lower_bound_bytes // UNIT)
            for part in gap.divided(choice.figures, line):
                (settled if part.normal == gap.normal else waiting).append(part)
        promises = [gap.promise for gap in (*settled, *waiting)]
        self.bound = min(self.objective.value(self.best.figures), *promises)
        return last

    def capped(self, last: Result) -> Result:
        """Search below the caps, each capped figure at the least weight that suffices."""
        caps = self.objective.caps
        for name, cap in zip(Caps._fields, caps, strict=True):
            minimised = FIGURE.get(self.objective.name) == name  # then nothing has less of it
            if cap is None or minimised or self._free_is_allowed():
                continue
            last, _ = self._squeezed(name, cap, UNIT, UNIT // MOST)
        return last

    def _squeezed(self, name: str, cap: int | None, multiplier: int, least: int) -> tuple[Result, bool]:
        """(last result, whether even the multiplier `least` keeps the plan below the cap).

        The multiplier is lowered to the least that suffices, or raised to it.
        """
        last, reached = self._weighed(name, cap, multiplier)
        low = high = multiplier
        while reached and not self._done and low > least:  # more power than it takes
            low, high = low // FACTOR, low
            last, reached = self._weighed(name, cap, low)
        if reached:
            return last, low <= least
        while not reached and not self._done and low == high < UNIT * MOST:  # less
            low = high
            high = high * FACTOR
            last, reached = self._weighed(name, cap, high)
            low = low if reached else high
        for _ in range(BISECTIONS):
            middle = (low + high) // 2
            if self._done or middle in (low, high):
                break
            last, reached = self._weighed(name, cap, middle)
            low, high = (low, middle) if reached else (middle, high)
        return last, False

    def _weighed(self, name: str, cap: int | None, multiplier: int) -> tuple[Result, bool]:
        """(result of the search with a capped figure at a multiplier, whether the plan is below the cap).

        A multiplier of UNIT counts as much as the value.
        The least of value + multiplier x (figure - cap) is a bound on the value of whatever is below the cap.
        """
        weights = lexical(self.objective.name)
        choice, result = self.solve(weights._replace(**{name: getattr(weights, name) + multiplier}))
        if cap is None:
            return result, True
        if self.objective.name != "edp":
            self.bound = max(self.bound, (result.lower_bound_bytes - multiplier * cap) // UNIT)
        return result, getattr(choice.figures, name) <= cap

    def _free_is_allowed(self) -> bool:
        """Whether the plan that is best without caps is below them."""
        value = self.objective.value
        return self.objective.caps.allow(min(self.known, key=lambda choice: value(choice.figures)).figures)


def spend(evaluator: Evaluator, objective: Objective, choice: Choice) -> Choice:
    """The same groups, in other alternatives where that lowers the value and the caps allow it.

    Greedy: first the change that saves most for what it takes of the room under the caps.
    """
    chosen = choice
    while True:
        better = [
            other
            for other in _turns(evaluator, chosen)
            if objective.order(other.figures) < objective.order(chosen.figures)
        ]
        if not better:
            return chosen
        chosen = max(better, key=lambda other: _ratio(objective, chosen.figures, other.figures))


def _turns(evaluator: Evaluator, choice: Choice) -> Iterator[Choice]:
    """Every plan that differs in the alternative of one group."""
    for k, (group, taken) in enumerate(zip(choice.groups, choice.alternatives, strict=True)):
        before = evaluator(group)[taken]
        for other, after in enumerate(evaluator(group)):
            if other != taken:
                figures = Figures(*(a - b + c for a, b, c in zip(choice.figures, before, after, strict=True)))
                yield Choice(
                    figures, choice.groups, (*choice.alternatives[:k], other, *choice.alternatives[k + 1 :])
                )


def _ratio(objective: Objective, before: Figures, after: Figures) -> float:
    """What a change saves, over what it takes of the room under the caps."""
    saved = objective.value(before) - objective.value(after)
    caps = zip(objective.caps, before, after, strict=True)
    taken = sum(max(new - old, 0) / max(cap, 1) for cap, old, new in caps if cap is not None)
    return saved / (taken + 1e-12)
