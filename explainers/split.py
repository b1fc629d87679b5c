"""SPLIT: break a group that does not fit into groups that do, where an explanation says to cut.

One *step* takes the `links` links of a group that the explanation blames most (a link whose cuts are there
already does not count), completes each to cuts, and judges both halves of every cut:

    S1  some cut leaves two valid halves     the one that moves the fewest bytes; done
    S2  else some cut leaves one valid half  the cut whose valid half has the most operators; the other half
                                             is split in turn
    S3  else                                 both halves of each cut are split in turn, and the cheapest
                                             outcome is taken

Steps of S3 multiply, so only the `width` cuts that move the fewest elements are followed there, half as many
at the next S3 below, and in the end one: for a group of n operators, at most about 8 n steps with a width of
4. Each is remembered. What is returned for a group depends on nothing but the group.

The checker alone decides what is valid; an explanation only says where to look.
Source: arXiv 2501.00636, algorithm 1. How many links an explanation has, and how S3 ends, it does not say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from explainers.cuts import MOST, Cut, GroupCuts
from explainers.graph import links as links_of
from lfopt.fusion import connected_parts
from lfopt.ops import Dataflow, bits

# (group) -> (links,) float64: the higher, the better a place to cut; -inf: not part of the explanation
Explain = Callable[[int], np.ndarray]

# links of an explanation that are tried, those that add no cut aside; of 3 to 12, best on average over
# seven networks
LINKS = 8
WIDTH = 4  # cuts that are followed where none leaves a valid half
KEPT = 200_000  # groups whose step, and whose outcome, is remembered before these memories start afresh


class SplitStep(NamedTuple):
    """Next cut of a group, settled, or candidates of which the cheapest outcome is taken."""

    cuts: tuple[Cut, ...]  # none: there is nothing to cut
    settled: bool


class Splitter:
    """SPLIT on the groups of one dataflow, memoised: a callable from a group to valid groups."""

    def __init__(
        self,
        flow: Dataflow,
        explain: Explain,
        valid: Callable[[int], bool],
        dram_bytes: Callable[[int], int],
        *,
        links: int = LINKS,
        cuts: int = MOST,
        width: int = WIDTH,
        alone: int = 0,
    ) -> None:
        """`valid` judges connected, convex groups, `dram_bytes` those that are valid.

        `alone`: operators that share no valid group; cut out first.
        """
        self.flow = flow
        self.explain = explain
        self.valid = valid
        self.dram_bytes = dram_bytes
        self.links = links
        self.cuts = cuts
        self.width = width
        self.alone = alone
        self.explained = 0  # groups that were explained
        self._steps: dict[int, SplitStep] = {}
        self._outcomes: dict[tuple[int, int], tuple[int, ...] | None] = {}

    def __call__(self, mask: int) -> tuple[int, ...] | None:
        """Valid groups in place of an invalid one, in an executable order; None if SPLIT finds none."""
        groups: list[int] = []
        for part in without(self.flow, mask, self.alone):
            whole = part != mask and self.valid(part)
            if (pieces := (part,) if whole else self._split(part, self.width)) is None:
                return None
            groups += pieces
        return tuple(groups)

    def _split(self, mask: int, width: int) -> tuple[int, ...] | None:
        key = mask, width
        if key not in self._outcomes:
            if len(self._outcomes) >= KEPT:
                self._outcomes.clear()
            self._outcomes[key] = self._followed(mask, width)
        return self._outcomes[key]

    def _followed(self, mask: int, width: int) -> tuple[int, ...] | None:
        done: list[int] = []
        waiting = [(mask, False)]  # (group, whether it may be valid as it is)
        while waiting:
            group, maybe = waiting.pop()
            if maybe and self.valid(group):
                done.append(group)
                continue
            step = self._step(group)
            if not step.cuts:
                return None
            if step.settled or width == 1:
                waiting += [(step.cuts[0].second, True), (step.cuts[0].first, True)]
                continue
            outcomes = [
                outcome for cut in step.cuts[:width] if (outcome := self._both(cut, width // 2)) is not None
            ]
            if not outcomes:
                return None
            done += min(outcomes, key=lambda groups: sum(map(self.dram_bytes, groups)))
        return tuple(done)

    def _both(self, cut: Cut, width: int) -> tuple[int, ...] | None:
        """Valid groups of both halves of a cut, neither of them valid; None if SPLIT finds none."""
        first = self._split(cut.first, width)
        second = self._split(cut.second, width) if first is not None else None
        if first is None or second is None:
            return None
        return first + second

    def _step(self, mask: int) -> SplitStep:
        if mask not in self._steps:
            if len(self._steps) >= KEPT:
                self._steps.clear()
            self._steps[mask] = self._judged(self.candidates(mask))
        return self._steps[mask]

    def candidates(self, mask: int) -> list[Cut]:
        """Distinct cuts through the links that the explanation blames most, fewest elements moved first."""
        where = links_of(self.flow, mask)
        if not where.size:
            return []
        self.explained += 1
        scores = np.asarray(self.explain(mask), np.float64)
        operators = [*bits(mask)]
        group = GroupCuts(self.flow, mask)
        cuts: set[Cut] = set()
        left = self.links
        for k in np.argsort(-scores, kind="stable").tolist():
            if not left or scores[k] == -np.inf:
                break
            before = len(cuts)
            cuts.update(group.through(operators[where[0, k]], operators[where[1, k]], self.cuts))
            left -= len(cuts) > before
        return sorted(cuts)

    def _judged(self, cuts: list[Cut]) -> SplitStep:
        both: list[Cut] = []
        one: list[tuple[int, Cut]] = []  # (operators of the valid half, cut)
        for cut in cuts:
            first = self.valid(cut.first)
            second = self.valid(cut.second)
            if first and second:
                both.append(cut)
            elif first or second:
                one.append(((cut.first if first else cut.second).bit_count(), cut))
        if both:
            return SplitStep(
                (min(both, key=lambda cut: self.dram_bytes(cut.first) + self.dram_bytes(cut.second)),),
                settled=True,
            )
        if one:
            return SplitStep((max(one, key=lambda item: item[0])[1],), settled=True)
        return SplitStep((*cuts[: self.width],), settled=False)


def without(flow: Dataflow, mask: int, alone: int) -> list[int]:
    """Parts of a group, in an executable order, with the operators of `alone` as groups of their own.

    The ancestors of each such operator go before it, everything else after.
    """
    if mask & (mask - 1) == 0 or not mask & alone:
        return [mask]
    groups: list[int] = []
    for i in bits(mask & alone):
        before = mask & flow.ancestors[i]
        groups += [*connected_parts(flow.neighbours, before), 1 << i]
        mask &= ~(before | 1 << i)
    return groups + connected_parts(flow.neighbours, mask)
