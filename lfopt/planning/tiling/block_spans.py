"""What an operator reads of an operand, block by block along an axis of its result.

Of very many blocks the first and the last few are looked at, and some between: where these only move on, by
the same with each block, so do all of them, as what operators read is a pattern that repeats along an axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from lfopt.ir import Box, Span, box_shape
from lfopt.ops.boxes import NOTHING
from lfopt.ops.part import is_empty
from lfopt.planning.tiling.frames import without_gaps

ENDS = 8  # blocks at either end of an axis that may read otherwise than those between


@dataclass(frozen=True, slots=True)
class BlockSpans:
    """Spans of one axis of an operand, per block along one axis of the result.

    All of them, or those of the first and the last blocks: between these, every span is `middle`, moved on by
    `step` with each block.
    """

    count: int
    head: tuple[Span, ...]  # of the first blocks, or of all
    middle: Span = NOTHING  # of the block behind these
    step: int = 0
    tail: tuple[Span, ...] = ()  # of the last blocks

    def __getitem__(self, k: int) -> Span:
        """The span of a block, from 0 on."""
        offset = k - len(self.head)
        if offset < 0:
            return self.head[k]
        if k >= self.count - len(self.tail):
            return self.tail[k - self.count]
        return self.middle[0] + offset * self.step, self.middle[1] + offset * self.step

    @property
    def regular(self) -> bool:
        """Whether all spans but those of the first and the last blocks are equal but for where they are."""
        return len(self.head) != self.count


class AxisCut:
    """The parts of an operand, block by block along one axis of the result, all other axes whole."""

    def __init__(self, axes: Sequence[BlockSpans], count: int) -> None:
        """`axes`: all with heads of one length and tails of one length."""
        self.axes = axes
        self.count = count
        self.head = len(axes[0].head) if axes else min(1, count)  # blocks until parts move on, or all
        self.tail = len(axes[0].tail) if axes else 0  # blocks behind those that move on

    def box(self, k: int) -> Box:
        """The part of a block."""
        return tuple([along[k] for along in self.axes])

    @property
    def regular(self) -> bool:
        """Whether the parts of all blocks but the first and the last move on by the same with each."""
        return self.head != self.count

    @property
    def ends(self) -> list[int]:
        """Blocks whose parts are each told apart: all, or the first and the last."""
        return [*range(self.head), *range(self.count - self.tail, self.count)]

    def rests(self, axis: int) -> bool:
        """Whether all blocks read the same span along an axis; blocks that read nothing do not count."""
        looked_at = [*self.ends, self.head, self.head + 1] if self.regular else self.ends
        return len({self.axes[axis][k] for k in looked_at} - {NOTHING}) <= 1

    @cached_property
    def same(self) -> bool:
        """Whether all blocks read the same part."""
        return all(self.rests(axis) for axis in range(len(self.axes)))

    @cached_property
    def closed(self) -> bool:
        """Whether the last block reads what the first one reads."""
        return self.box(0) == self.box(self.count - 1)

    @cached_property
    def extents(self) -> Counter[tuple[int, ...]]:
        """How many blocks read parts of the same extents."""
        counted = Counter(box_shape(self.box(k)) for k in self.ends)
        if self.regular:
            counted[box_shape(self.box(self.head))] += self.count - self.head - self.tail
        return counted

    @cached_property
    def changed(self) -> Counter[tuple[int, ...]]:
        """Extents of parts that differ from the part of the block before."""
        looked_at = [*self.ends, self.head] if self.regular else self.ends
        counted = Counter(box_shape(self.box(k)) for k in looked_at if k and self.box(k) != self.box(k - 1))
        if self.regular and self.box(self.head + 1) != self.box(self.head):
            counted[box_shape(self.box(self.head))] += self.count - self.head - self.tail - 1
        return counted

    @cached_property
    def later(self) -> Counter[tuple[int, ...]]:
        """Extents of the parts of all blocks but the first."""
        return self.extents - Counter([box_shape(self.box(0))])


def regular_spans(box: Callable[[int], Box], count: int, limits: Box) -> list[BlockSpans] | None:
    """The spans of many blocks, if those between the first and the last ones are one that moves on, or rests.

    They cover `limits` as `without_gaps` makes them do. None where they are not so.
    """
    inner = [*(count * k // 8 for k in range(1, 8))]
    boxes = {k: box(k) for k in (*range(ENDS + 2), *inner, *range(count - ENDS, count))}
    for ends in (2, ENDS):
        looked_at = [*range(ends - 1, ENDS + 2), *inner, *range(count - ENDS, count - ends + 1)]
        regular: list[BlockSpans] = []
        for axis, limit in enumerate(limits):
            start, stop = boxes[ends - 1][axis]
            step = boxes[ends][axis][0] - start
            if any(
                boxes[k][axis] != (start + (k - ends + 1) * step, stop + (k - ends + 1) * step)
                for k in looked_at
            ):
                break
            head = [boxes[k][axis] for k in range(ends)]
            tail = [boxes[k][axis] for k in range(count - ends, count)]
            spans = _closed(head, step, tail, count, limit)
            if spans is None:
                break
            regular.append(spans)
        if len(regular) == len(limits):
            return regular
    return None


def _closed(head: list[Span], step: int, tail: list[Span], count: int, limit: Span) -> BlockSpans | None:
    """Regular spans, extended as `without_gaps` extends them; None if they are not regular then.

    Those from the last of `head` to the first of `tail` move on by `step`. Empty spans stay empty; where all
    that are looked at are, others between may not be, and each is all that there is.
    """
    first = head[-1]
    last = tail[0]
    told_apart = {span for span in (*head, *tail) if span != NOTHING}
    if not told_apart:
        return BlockSpans(count, (limit,) * len(head), limit, 0, (limit,) * len(tail))
    if first == NOTHING:
        return None
    gap = max(abs(step) - (first[1] - first[0]), 0)
    if step:
        # in the order in which they lie along the axis, every span begins at the end of the one before it, at
        # the latest; what others read lies before all those that move on, or behind them
        lowest = min(first, last)
        highest = max(first, last)
        below = {span for span in told_apart if span <= lowest}
        above = {span for span in told_apart if span >= highest}
        if below | above != told_apart or any(stop > lowest[1] for _, stop in below):
            return None
        before = highest[0] - abs(step), highest[1] - abs(step)
        extended = {
            **_extended(sorted(below), limit[0], None),
            **_extended(sorted(above), before[1], limit[1]),
        }
        middle = first[0] + step - gap, first[1] + step
    else:
        extended = _extended(sorted(told_apart), *limit)
        middle = extended[first]
    extended[NOTHING] = NOTHING
    return BlockSpans(count, tuple(extended[s] for s in head), middle, step, tuple(extended[s] for s in tail))


def _extended(spans: Sequence[Span], covered: int, highest: int | None) -> dict[Span, Span]:
    """Spans in their order, each from the end of what is covered on at the latest.

    `highest`: where the last one ends; None: where it does.
    """
    extended: dict[Span, Span] = {}
    for start, stop in spans:
        extended[start, stop] = min(start, covered), max(stop, covered)
        covered = max(covered, stop)
    if spans and highest is not None:
        extended[spans[-1]] = extended[spans[-1]][0], highest
    return extended


def covering(boxes: Sequence[Box], limits: Box) -> list[Box]:
    """The boxes, extended along each axis to cover what lies in these limits; empty ones stay so."""
    covering = iter(without_gaps([box for box in boxes if not is_empty(box)], limits))
    return [box if is_empty(box) else next(covering) for box in boxes]
