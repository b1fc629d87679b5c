"""Dependent operators that no group holds, or only groups that load weights again.

A *stretch* is two operators, one of which depends on the other, and all operators on the paths between them;
or a single operator. Groups are convex: one that holds the first and the last holds the stretch. Let E be the
bytes that such a group moves beyond every tensor once, for the operators of the stretch, at the least; NEVER
if there is no such group. What stretches prove together is `lfopt.planning.bounds.multicut`.

If the first operator of a stretch has not run yet, none of it has. So the bytes that stretches with that
first operator prove are still to come, and a search that executes group after group may count them among
those that the rest moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lfopt.ir import NEVER
from lfopt.ops import Dataflow, bits
from lfopt.planning.steps.limit import never

# operators in the order from the first of a stretch to its last; consumers of the first have no limit
FAR = 32
TRIES = 48  # stretches from one operator whose E is worked out


class Stretches(NamedTuple):
    """The stretches that begin with one operator and for which a group pays."""

    never: int  # mask of last operators that no group holds the first with
    # E by other last operators, the first itself among them, where it is known to be above 0
    extra: dict[int, int]


def stretches(
    flow: Dataflow, extra_bytes: Callable[[int, int, int], int], late: Callable[[], bool] = never
) -> list[Stretches]:
    """Per operator: the stretches that begin with it.

    `extra_bytes(first, last, operators)` is E of a stretch, which must not fall as the stretch grows. Hence
    it is at least that of a stretch within, and 0 if the stretch is within one that costs 0: the farthest are
    worked out first. Once it is `late`, operators that are not reached begin no stretch, which proves less.
    """
    by_first = [Stretches(0, {})] * len(flow)
    for i in reversed(range(len(flow))):
        if late():
            break
        near = (((1 << FAR) - 1) << i | flow.succs[i]) & flow.descendants[i]
        never = 0
        known = dict[int, int]()
        for s in bits(flow.succs[i]):
            never |= by_first[s].never
            known |= {
                last: max(more, known.get(last, 0))
                for last, more in by_first[s].extra.items()
                if last != s and near >> last & 1
            }
        left = near & ~never
        tries = TRIES
        last = -1
        if not flow.weights[i]:  # it adds little to what is known
            left &= ~sum(1 << k for k in known)
        while left and tries:
            last = left.bit_length() - 1 if last < 0 else _median(left)
            stretch = between(flow, i, last)
            more = extra_bytes(i, last, stretch)
            left &= ~(stretch if more == 0 else 1 << last)
            if 0 < more < NEVER:
                known[last], tries = more, tries - 1
                continue
            if more:
                never |= flow.descendants[last] | 1 << last
                left &= ~never
            last = -1
        if 0 < (alone := extra_bytes(i, i, 1 << i)) < NEVER:
            known[i] = alone
        by_first[i] = Stretches(
            never & near, {last: more for last, more in known.items() if not never >> last & 1}
        )
    return by_first


def between(flow: Dataflow, first: int, last: int) -> int:
    """Mask of the stretch from one operator to another."""
    return flow.descendants[first] & flow.ancestors[last] | 1 << first | 1 << last


def _median(mask: int) -> int:
    """The bit in the middle of those set."""
    positions = [*bits(mask)]
    return positions[len(positions) // 2]
