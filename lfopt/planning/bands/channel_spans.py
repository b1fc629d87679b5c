"""Spans of channels that cover a map, all of one width but perhaps the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from lfopt.ir import Span


@dataclass(frozen=True, slots=True)
class ChannelSpans(Sequence[Span]):
    """Spans of some width that cover so many channels, the last one perhaps narrower. None is made ahead.

    >>> list(ChannelSpans(10, 4)), ChannelSpans(1 << 31, 1)[-1]
    ([(0, 4), (4, 8), (8, 10)], (2147483647, 2147483648))
    """

    channels: int  # 1 or more
    width: int

    def __len__(self) -> int:
        """How many there are."""
        return len(range(0, self.channels, self.width))

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...

    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        """One of them, or several."""
        if isinstance(index, slice):
            return [self._span(low) for low in range(0, self.channels, self.width)[index]]
        return self._span(range(0, self.channels, self.width)[index])

    def _span(self, low: int) -> Span:
        """The span that begins at a channel."""
        return low, min(low + self.width, self.channels)

    def by_width(self) -> list[tuple[Span, int]]:
        """One span of each width, and how many there are of it.

        >>> ChannelSpans(10, 4).by_width(), ChannelSpans(8, 4).by_width()
        ([((0, 4), 2), ((8, 10), 1)], [((0, 4), 2)])
        """
        full, rest = divmod(self.channels, self.width)
        of_full = [(self[0], full)] if full else []
        if rest:
            return [*of_full, (self[-1], 1)]
        return of_full
