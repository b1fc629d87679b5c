"""Budgets of searches: plans, groups and time spent, the best plan so far, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from lfopt.fusion import CostModel
from search.options import SearchOptions
from search.partition import Partition, Partitions, RepairPolicy, Rng
from search.result import Front, RepairStats, Result

NOTHING = 1 << 128  # more bytes than any plan, and more of whatever else is minimised


class SearchBudget:
    """Counts of one search, its limits, and its best plan so far."""

    def __init__(self, model: CostModel, options: SearchOptions, asked: Callable[[], int]) -> None:
        """`asked`: count of prices asked of the cost model so far, by this search or others."""
        self._start = time.perf_counter()
        self._deadline = None if options.time_limit is None else self._start + options.time_limit
        self.options = options
        self.plans_evaluated = 0
        self.interrupted = False
        self.history: list[tuple[int, int]] = []
        self.best: Sequence[int] = ()
        self.best_bytes = NOTHING
        self.bound = max(options.lower_bound_bytes, model.least_bytes)
        self._asked = asked
        self._before = asked()

    @property
    def groups_evaluated(self) -> int:
        """Groups whose price this search asked for, see `Result`."""
        return self._asked() - self._before

    @property
    def spent(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self._start

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the search is to end; None: as many as it takes."""
        if self._deadline is None:
            return None
        return max(self._deadline - time.perf_counter(), 0.0)

    def over(self) -> bool:
        """Whether the search is to end: its time is over, or it was told to stop."""
        if self.options.stop is not None and self.options.stop():
            self.interrupted = True
            return True
        return self._deadline is not None and time.perf_counter() >= self._deadline

    def count(self, plan: Sequence[int], dram_bytes: int) -> bool:
        """Count one more evaluated legal plan; whether it is the best so far."""
        self.plans_evaluated += 1
        if better := dram_bytes < self.best_bytes:
            self.best = plan
            self.best_bytes = dram_bytes
            self.history.append((self.plans_evaluated, dram_bytes))
        return better

    def result(
        self,
        method: str,
        groups: Partition,
        dram_bytes: int,
        *,
        seed: int | None = None,
        front: Front = (),
        repairs: RepairStats | None = None,
    ) -> Result:
        """Result of the search; `groups`: in an executable order."""
        seconds = self.spent
        counts = (self.plans_evaluated, self.groups_evaluated)
        history = tuple(self.history)
        return Result(
            method,
            groups,
            dram_bytes,
            self.bound,
            *counts,
            seconds,
            seed,
            self.interrupted,
            history,
            front,
            repairs or RepairStats(),
        )


class PlanBudget(SearchBudget):
    """The budget of a search that samples plans, with its partitions, random numbers and repair policy."""

    def __init__(self, model: CostModel, options: SearchOptions, rng: Rng | None = None) -> None:
        """`rng`: random numbers; None: those of the seed."""
        self.partitions = partitions = options.partitions or Partitions(model)
        self.rng = rng or Rng(options.seed)
        self.policy = RepairPolicy(options.split, options.screen)
        super().__init__(model, options, lambda: partitions.asked)

    @property
    def left(self) -> int:
        """Plans that may still be evaluated; 0 when the time is over."""
        if self.over():
            return 0
        return self.options.budget - self.plans_evaluated

    def settled(self, plan: Sequence[int], dram_bytes: int, below: int) -> int | None:
        """DRAM bytes of a plan by exact prices; None as soon as optimistic ones are not less than `below`.

        `dram_bytes`: the sum by the prices so far. Where these are optimistic, the evaluator is asked, group
        by group, the largest first.
        """
        settle = self.options.settle
        price = self.partitions.bytes_of
        if settle is None:
            return dram_bytes
        for group in sorted(plan, key=price, reverse=True):
            if dram_bytes >= below:
                return None
            before = price(group)
            if settle(group):
                self.partitions.forget(group)
                dram_bytes += price(group) - before
        if dram_bytes < below:
            return dram_bytes
        return None

    def count(self, plan: Sequence[int], dram_bytes: int) -> bool:
        """As `SearchBudget.count`; reports the best plans, every hundredth, and the last."""
        better = super().count(plan, dram_bytes)
        plans = self.options.budget
        if self.options.progress is not None and (
            better or self.plans_evaluated % 100 == 0 or self.plans_evaluated == plans
        ):
            self.options.progress(self.plans_evaluated, plans, self.best_bytes, self.bound)
        return better

    def sampled(self, method: str, front: Front = ()) -> Result:
        """Result with the best plan so far; every operator unfused if none was evaluated."""
        plan = self.partitions.in_order(self.best or self.partitions.fit(self.partitions.singles, Rng(0)))
        dram_bytes = self.partitions.dram_bytes(plan)
        return self.result(
            method, plan, dram_bytes, seed=self.options.seed, front=front, repairs=self.policy.repairs
        )


def one_scheme(method: str, partitions: Partitions, budget: SearchBudget, groups: Iterable[int]) -> Result:
    """Result of a method that makes a single scheme, of legal groups.

    Of groups that overlap, the larger is taken: Ctrl-C came while operators were being moved to it.
    """
    apart: list[int] = []
    for group in sorted(set(groups), key=lambda group: (-group.bit_count(), group)):
        if not any(group & other for other in apart):
            apart.append(group)
    plan = partitions.in_order(apart)
    try:
        dram_bytes = sum(map(partitions.bytes_of, plan))
    except KeyboardInterrupt:
        if budget.interrupted:
            raise
        budget.interrupted = True
        dram_bytes = sum(map(partitions.bytes_of, plan))
    budget.count(plan, dram_bytes)
    return budget.result(method, plan, dram_bytes)
