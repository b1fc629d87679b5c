"""The optimal fusion scheme, as a shortest path over order ideals, with a proof or a bound.

A state is the set of operators already executed (a downset of the dataflow); a step executes one legal group.
What keeps this small:

* A group is grown operator by operator in topological order, and given up when a lower bound on its buffer
  that never falls as it grows says that no group containing it can fit. F_beta itself may fall when an
  operator is added, so it is not used to prune.
* Two operators that no legal group can hold together are never tried together.
* Independent groups commute, so only one order of them is walked: of the groups that can be executed, the one
  with the lowest operator goes first. Hence a group may overtake an unexecuted operator u below all of its
  own only if the group of u cannot be executed yet: if some operator that may share a group with u has an
  unexecuted ancestor that does not descend from u.
* A state whose bytes so far, plus what the rest must move at the very least, reach the best scheme known is
  dropped.

States are walked in passes of growing width: of the states with equally many operators executed, a pass keeps
the most promising ones. A pass ends with a scheme, and with a proof: no scheme moves less than the least that
any dropped state promised. Where nothing promising was dropped, that is the optimum; on most CNNs the first
pass does it.

A search that takes long edits its best scheme by local search (`search.local`), and goes on with what that
finds: states that reach no less are dropped. It does so after a tenth of its time limit (at most two
seconds), and behind every pass that ends without a proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lfopt.fusion import CostModel, component, connected
from lfopt.ops import Dataflow, bits
from search.budget import NOTHING, SearchBudget
from search.intervals import best_intervals
from search.local import improve
from search.options import DEFAULTS, SearchOptions
from search.partition import Partition, Partitions
from search.result import Result

FIRST_WIDTH, WIDER = 2, 16  # states kept per size in the first pass, and how much wider each next pass is
GROUPS_PER_WIDTH = 48  # groups grown from one state in a pass, per state kept
EDITS_AFTER = 0.1  # share of the time limit after which the best scheme is edited, and seconds at the most
EDITS_AFTER_SECONDS = 2.0
EDITING = 0.25  # share of the time that is left, for which it is edited
EDITED = 3000  # schemes that local search may try each time
LONG = 512  # operators of a network on which a pass may take long: it begins with the best intervals too


def solve(model: CostModel, options: SearchOptions = DEFAULTS) -> Result:
    """Find the scheme of least DRAM bytes; stopped early, the best scheme so far and a bound."""
    search = _Search(model, options)
    width = FIRST_WIDTH
    budget = search.budget
    try:
        for plan in options.start:
            budget.count(plan, search.dram_bytes(plan))
        if (simpler := model.simpler) is not None:
            search.begin_with(simpler)
        if len(model.dataflow) >= LONG and budget.bound < budget.best_bytes:
            plan = best_intervals(model, budget.over)
            budget.count(plan, search.dram_bytes(plan))
        done = 0
        while budget.bound < budget.best_bytes and not budget.over() and done != options.passes:
            search.walk(width)
            width = width * WIDER
            done = done + 1
            if search.takes_long:
                search.edit()
    except KeyboardInterrupt:
        budget.interrupted = True
    groups = tuple(budget.best)
    dram_bytes = budget.best_bytes
    if not groups:
        groups = tuple(1 << i for i in range(len(model.dataflow)))
        dram_bytes = search.dram_bytes(groups)
    budget.bound = min(budget.bound, dram_bytes)
    return budget.result("exact", groups, dram_bytes)


@dataclass
class _State:
    """A downset that some sequence of groups executes."""

    cost: int  # least bytes found so far to get here
    rest: int  # bytes that the remaining operators must move at the very least
    group: int  # last group of that sequence


class _Search:
    """Passes of beam search over one model."""

    def __init__(self, model: CostModel, options: SearchOptions) -> None:
        self.model = model
        self.options = options
        self.asked = 0
        self.edits = 0  # times that the best scheme was edited
        self.partitions: Partitions | None = None  # what local search has learnt of groups
        self.budget = SearchBudget(model, options, lambda: self.asked)

    def dram_bytes(self, groups: Partition) -> int:
        """Bytes of a scheme of legal groups."""
        total = 0
        for group in groups:
            self.asked += 1
            cost = self.model.price(group)
            assert cost is not None, "groups of a scheme are legal"
            total += cost.dram_bytes
        return total

    def begin_with(self, simpler: CostModel) -> None:
        """Begin with the scheme that one pass over a simpler model finds, in at most a third of the time."""
        limit = self.options.time_limit
        first = _Search(
            simpler,
            replace(
                self.options, time_limit=None if limit is None else limit / 3, lower_bound_bytes=0, passes=1
            ),
        )
        try:
            for plan in self.options.start:
                if all(simpler.price(group) is not None for group in plan):  # fewer groups are legal there
                    first.budget.count(plan, first.dram_bytes(plan))
            first.walk(FIRST_WIDTH)
        finally:  # also what it has when it is interrupted
            self.asked += first.asked
            if first.budget.best:
                self.budget.count(first.budget.best, self.dram_bytes(tuple(first.budget.best)))

    @property
    def takes_long(self) -> bool:
        """Whether so much of the time limit is over that the best scheme is to be edited between passes."""
        limit = self.options.time_limit
        if limit is None or self.options.passes is not None:
            return False
        return self.budget.spent > min(limit * EDITS_AFTER, EDITS_AFTER_SECONDS)

    @property
    def first_takes_long(self) -> bool:
        """Whether the first pass takes so long that the best scheme is to be edited meanwhile."""
        return not self.edits and self.takes_long

    def edit(self) -> None:
        """Go on with what local search makes of the best scheme, unless that is proven.

        Raises KeyboardInterrupt where it is interrupted.
        """
        budget = self.budget
        left = self.budget.seconds_left
        if not budget.best or budget.bound >= budget.best_bytes or budget.over():
            return
        if self.partitions is None:
            self.partitions = Partitions(self.model)
        options = SearchOptions(
            time_limit=None if left is None else left * EDITING,
            stop=self.options.stop,
            partitions=self.partitions,
            budget=EDITED,
            seed=self.edits,
            start=(tuple(budget.best),),
        )
        edited = improve(self.model, options, keep=1)
        self.edits += 1
        self.asked += edited.groups_evaluated
        budget.count(edited.groups, edited.dram_bytes)
        if edited.interrupted:
            raise KeyboardInterrupt

    def walk(self, width: int) -> None:
        """One pass, which improves the best scheme and the bound; only the scheme if it is interrupted."""
        states = {0: _State(0, self.model.least_bytes, 0)}
        try:
            self._walk(width, states)
        except KeyboardInterrupt:
            self._settle(states)
            raise

    def _walk(self, width: int, states: dict[int, _State]) -> None:
        flow = self.model.dataflow
        budget = self.budget
        levels: list[list[int]] = [[] for _ in range(len(flow) + 1)]
        levels[0].append(0)
        dropped = NOTHING  # least that any dropped state promises
        for size in range(len(flow)):
            level = levels[size]
            if len(level) > width:
                level.sort(key=lambda mask: (states[mask].cost + states[mask].rest, mask))
                lost = states[level[width]]
                dropped = min(dropped, lost.cost + lost.rest)
                del level[width:]
            for position, mask in enumerate(level):
                if budget.over():
                    waiting = [level[position:], *levels[size + 1 :]]
                    promised = min(states[m].cost + states[m].rest for masks in waiting for m in masks)
                    budget.bound = max(budget.bound, min(dropped, promised, budget.best_bytes))
                    self._settle(states)
                    return
                if self.first_takes_long:
                    self._settle(states)
                    self.edit()
                dropped = min(dropped, self._expand(mask, states, levels, width * GROUPS_PER_WIDTH))
            if self.options.progress is not None:
                self.options.progress(
                    size + 1, len(flow), budget.best_bytes if budget.best else None, budget.bound
                )
        end = states.get(flow.everything)
        if end is not None:
            budget.count(_path(states, flow.everything), end.cost)
        budget.bound = max(budget.bound, min(dropped, budget.best_bytes))

    def _settle(self, states: dict[int, _State]) -> None:
        """Count the plan of an unfinished pass: the path to its best furthest state, then the best so far.

        Of the best scheme, groups that the path has a part of are unfused.
        """
        furthest = max(mask.bit_count() for mask in states)
        reached = min(
            (mask for mask in states if mask.bit_count() == furthest),
            key=lambda mask: states[mask].cost + states[mask].rest,
        )
        groups = [*_path(states, reached)]
        for group in self.budget.best or [1 << i for i in range(len(self.model.dataflow))]:
            groups += (1 << i for i in bits(group & ~reached)) if group & reached else [group]
        self.budget.count(tuple(groups), self.dram_bytes(tuple(groups)))

    def _expand(self, mask: int, states: dict[int, _State], levels: list[list[int]], most: int) -> int:
        """Reach the states after one.

        Returns what the groups that were not grown, if any, promise at the least.
        """
        model = self.model
        here = states[mask]
        best = self.budget.best_bytes
        if here.cost + here.rest >= best:
            return NOTHING
        for group, least in next_groups(model, mask, most):
            if not group or self.budget.over():
                return here.cost + here.rest
            after = mask | group
            known = states.get(after)
            rest = model.rest_bytes(mask, here.rest, group) if known is None else known.rest
            worth = (best if known is None else min(best, known.cost + rest)) - here.cost - rest
            if least >= worth or model.at_least(group) >= worth:
                continue
            self.asked += 1
            price = model.price(group)
            if price is None:
                continue
            cost = here.cost + price.dram_bytes
            if known is None:
                if cost + rest < best:
                    states[after] = _State(cost, rest, group)
                    levels[after.bit_count()].append(after)
            elif cost < known.cost:
                known.cost = cost
                known.group = group
        return NOTHING


def _path(states: dict[int, _State], mask: int) -> tuple[int, ...]:
    groups: list[int] = []
    while mask:
        groups.append(states[mask].group)
        mask ^= groups[-1]
    return tuple(reversed(groups))


def next_groups(model: CostModel, state: int, most: int = NOTHING) -> Iterator[tuple[int, int]]:
    """(group, DRAM bytes that it moves at the least) of what may be executed next in the canonical order.

    After growing `most` sets of operators it ends with the empty group.
    """
    flow = model.dataflow
    preds = flow.preds
    succs = flow.succs
    neighbours = flow.neighbours
    compatible = model.compatible
    rest = flow.everything & ~state
    ready = 0
    for i in bits(rest):
        if not preds[i] & rest:
            ready |= 1 << i
    limit = _last_start(flow, compatible, rest)
    for start in bits(ready):
        if start > limit:
            return
        floor, dram = model.grow(0, None, 0, start)
        stack = [(1 << start, floor, dram, ready | succs[start], compatible[start] & rest, True)]
        while stack:
            mask, floor, dram, frontier, allowed, joined = stack.pop()
            most -= 1
            if most < 0:
                yield 0, 0
                return
            if joined:
                # an operator that only moves data may run for less than every tensor once
                yield mask, dram if mask & (mask - 1) else 0
            if not model.may_grow(mask, floor):
                continue
            last = mask.bit_length()
            allowed = allowed >> last << last
            if not joined and not _may_join(neighbours, mask, allowed):
                continue
            done = state | mask
            # so that the operator that comes next is tried next
            for i in reversed([*bits(frontier & allowed)]):
                if preds[i] & ~done:
                    continue
                larger = mask | 1 << i
                larger_floor, larger_dram = model.grow(mask, floor, dram, i)
                if model.may_grow(larger, larger_floor):
                    whole = bool(neighbours[i] & mask) if joined else connected(neighbours, larger)
                    stack.append(
                        (
                            larger,
                            larger_floor,
                            larger_dram,
                            frontier | succs[i],
                            allowed & compatible[i],
                            whole,
                        )
                    )


def _last_start(flow: Dataflow, compatible: tuple[int, ...], rest: int) -> int:
    """Highest operator that may be the lowest of the next group: the first whose group needs no other."""
    for i in bits(rest):
        others = rest & ~(flow.descendants[i] | 1 << i)
        if not any(flow.ancestors[joining] & others for joining in bits(compatible[i] & rest)):
            return i
    return len(flow)


def _may_join(neighbours: tuple[int, ...], mask: int, extra: int) -> bool:
    """Whether operators of `extra` can connect the parts of the set."""
    return not mask & ~component(neighbours, mask | extra, mask & -mask)
