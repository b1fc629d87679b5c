"""Patches: the words of a memory that an access touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Patch(NamedTuple):
    """Words of a memory: stretches of `columns` words, every `step`-th.

    >>> Patch(0, 2, blocks=2, block_words=4, step=3).entries(np.arange(8, dtype=np.int32)).tolist()
    [[0, 3], [4, 7]]
    """

    start: int  # first word
    columns: int  # words of a stretch
    blocks: int = 1  # stretches
    block_words: int = 0  # words from one stretch to the next
    step: int = 1  # words from one to the next

    @property
    def last(self) -> int:
        """Number of the last word."""
        return self.start + (self.blocks - 1) * self.block_words + (self.columns - 1) * self.step

    def entries(self, table: np.ndarray) -> np.ndarray:
        """(blocks, columns) int32: entries of these words in a table (words,) int32, no copy."""
        start, columns, blocks, block_words, step = self
        return np.ndarray((blocks, columns), np.int32, table, start * 4, (block_words * 4, step * 4))

    def words(self, content: np.ndarray, lanes: int) -> np.ndarray:
        """(blocks, columns, lanes) uint8: these words of content (words x lanes,) uint8, no copy."""
        start, columns, blocks, block_words, step = self
        return np.ndarray(
            (blocks, columns, lanes), np.uint8, content, start * lanes, (block_words * lanes, step * lanes, 1)
        )

    def first(self, marked: np.ndarray) -> int:
        """Number of the first of these words that is marked, by marked (blocks, columns) bool."""
        block, column = (int(places[0]) for places in np.nonzero(marked))
        return self.start + block * self.block_words + column * self.step


# words, their values (blocks, columns, lanes) uint8, and the lanes that are written; None: all
Writes = Sequence[tuple[Patch, np.ndarray, np.ndarray | None]]
