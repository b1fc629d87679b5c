"""Spans of blocks that only move on, beside the same spans listed one by one."""

from __future__ import annotations

import random

import pytest

from lfopt.ir import Span
from lfopt.planning.tiling.block_spans import NOTHING, _closed
from lfopt.planning.tiling.frames import without_gaps

CASES = 5_000
MOVES = (0, 1, -1, 2, 3, -3, 4, -4, 5)  # of a span, behind the one before it


class Blocks:
    """Spans of which the ones in the middle move on by `step`, and a few at the ends are odd now and then."""

    def __init__(self, rng: random.Random) -> None:
        ends, middle = rng.choice((2, 2, 3)), rng.randint(3, 6)
        self.step, self.width, self._rng = rng.choice(MOVES), rng.randint(1, 5), rng
        self.count = 2 * ends + middle
        start = rng.randint(4, 9) + max(-self.step, 0) * (middle + 2)
        starts = [start + k * self.step for k in range(middle + 2)]
        self.regular = [(low, low + self.width) for low in starts]
        first, last = self.regular[0], self.regular[-1]
        before = [self._near(first, -self.step * k) for k in range(ends - 1, 0, -1)]
        after = [self._near(last, self.step * k) for k in range(1, ends)]
        self.head, self.tail = [*before, first], [last, *after]
        self.spans = [*self.head, *self.regular[1:-1], *self.tail]
        read = [span for span in self.spans if span != NOTHING]
        least, most = min(low for low, _ in read), max(high for _, high in read)
        self.limit = max(least - self._rarely(3), 0), most + self._rarely(3)

    def _near(self, span: Span, moved: int) -> Span:
        """Where the regular spans would go on, or almost there, or anywhere."""
        start = span[0] + moved + self._rng.randint(-1, 1)
        return (start, start + self.width) if start > 0 and self._rng.random() < 0.5 else self._anywhere()

    def _anywhere(self) -> Span:
        if self._rng.random() < 0.1:
            return NOTHING
        if self._rng.random() < 0.2:
            return self._rng.choice(self.regular)
        near = self._rng.choice((1, self.regular[0][0] - 3, self.regular[-1][0]))
        start = max(near + self._rng.randint(0, 7), 1)
        return start, start + self._rng.randint(1, 7)

    def _rarely(self, most: int) -> int:
        return self._rng.randint(0, most) if self._rng.random() < 0.5 else 0


@pytest.mark.parametrize("seed", range(2))
def test_spans_without_gaps_are_those_of_a_list(seed: int) -> None:
    rng = random.Random(seed)
    regular = 0
    for _ in range(CASES):
        blocks = Blocks(rng)
        closed = _closed(blocks.head, blocks.step, blocks.tail, blocks.count, blocks.limit)
        if closed is None:  # no longer regular once they are extended
            continue
        regular += 1
        read = [(span,) for span in blocks.spans if span != NOTHING]
        extended = iter(without_gaps(read, (blocks.limit,)))
        wanted = [span if span == NOTHING else next(extended)[0] for span in blocks.spans]
        assert [closed[k] for k in range(blocks.count)] == wanted, (blocks.spans, blocks.limit)
    assert regular > CASES // 4, "most are worth a look"
