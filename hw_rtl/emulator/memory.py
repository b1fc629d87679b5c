"""DRAM and the memories on chip: contents, bytes read and written, and cached results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from hw_rtl.emulator.errors import Fault
from hw_rtl.emulator.hazards import Hazards
from hw_rtl.emulator.jobs import EXEC
from hw_rtl.emulator.patch import Patch
from lfopt.isa.tables import BEAT_BYTES, FACTOR_BYTES, FACTOR_ROWS, TABLE_BYTES, TABLES, Class, Error, Space

CACHED = 64  # matrices of weights that are kept unpacked

T = TypeVar("T")


class EmulatedMemory:
    """DRAM, and the memories on chip side by side, as the running command finds them."""

    def __init__(
        self,
        dram: np.ndarray,
        lanes: int,
        buffer_bytes: int,
        rng: np.random.Generator,
        read_region: tuple[int, int] | None,
        write_region: tuple[int, int] | None,
        check: bool,
    ) -> None:
        self.dram = dram.copy()  # uint8
        self.lanes = lanes
        self.rng = rng
        words = buffer_bytes // lanes
        behind = words + FACTOR_ROWS * FACTOR_BYTES
        total = behind + TABLES * TABLE_BYTES // lanes
        # words on chip
        self.spaces = {
            Space.BUFFER: range(words),
            Space.FACTORS: range(words, behind),
            Space.TABLES: range(behind, total),
        }
        self.bytes = rng.integers(0, 256, total * lanes, np.uint8)  # on chip
        self.read_region = read_region or (0, dram.size)
        self.write_region = write_region or (0, dram.size)
        self.read: Counter[Class] = Counter()  # bytes of DRAM
        self.written: Counter[Class] = Counter()
        self.changed = np.zeros(total, np.int32)  # by word: the clock when its bytes last changed
        self.clock = 1  # moves before every part of a command
        # (clock when it was made, what was made of words)
        self.cache: dict[tuple[object, ...], tuple[int, object]] = {}
        self.hazards = Hazards(total, -(-dram.size // BEAT_BYTES)) if check else None

    def touch(self, patch: Patch, space: Space, *, writes: bool, by_block: bool = False) -> None:
        """Note that the running command reads or writes those words. Raises Fault BUFFER, Hazard.

        A computation reads what is `by_block` for the block of the result with that number, all else up to
        its end.
        """
        words = self.spaces[space]
        if patch.last >= words.stop:
            raise Fault(
                Error.BUFFER, f"word {patch.last - words.start} of {space.name}; accepted: below {len(words)}"
            )
        if self.hazards is not None:
            self.hazards.touch(self.hazards.chip, patch, writes=writes)
            if self.hazards.job.queue == EXEC and not writes:
                self.hazards.read_operand(patch, by_block=by_block)

    def get(self, patch: Patch, space: Space, *, by_block: bool = False) -> np.ndarray:
        """(blocks, columns, lanes) uint8: the words of a patch, no copy. Raises Fault BUFFER, Hazard."""
        self.touch(patch, space, writes=False, by_block=by_block)
        return patch.words(self.bytes, self.lanes)

    def put(self, patch: Patch, space: Space, values: np.ndarray, lanes: np.ndarray | None = None) -> None:
        """Write words of a patch: values (blocks, columns, lanes) uint8.

        `lanes`: bool, broadcast to that shape, the lanes that are written; None: all. Raises Fault BUFFER,
        Hazard.
        """
        self.touch(patch, space, writes=True)
        np.copyto(patch.words(self.bytes, self.lanes), values, where=True if lanes is None else lanes)
        patch.entries(self.changed)[...] = self.clock

    def cached(self, key: tuple[object, ...], patches: Sequence[Patch], compute: Callable[[], T]) -> T:
        """The result of `compute` on the words of patches, computed anew only if they have changed."""
        known = self.cache.pop(key, None)
        if known is None or any(int(patch.entries(self.changed).max()) > known[0] for patch in patches):
            known = (self.clock, compute())
            if len(self.cache) >= CACHED:
                del self.cache[next(iter(self.cache))]
        self.cache[key] = known
        return known[1]  # pyright: ignore[reportReturnType]
