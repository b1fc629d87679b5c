"""Bytes that a group around a barrier moves, and what it computes again, as it is chosen to run."""

from __future__ import annotations

from functools import cached_property

from lfopt.ir import DramBytes, round_up
from lfopt.planning.gated.sizes import GatingOption, Lengths, Sizes, slice_lengths


class GatedTraffic:
    """DRAM bytes of one group, and its multiply-accumulates that are repeated, on a buffer of any size."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def dram(self, option: GatingOption, width: int, kept: int, vector_width: int) -> DramBytes:
        """DRAM bytes by class, but for parameters."""
        sizes = self.sizes
        block = sizes.block
        tail = sizes.block.tail
        parts = slice_lengths(sizes.outputs, option.part)
        gone = slice_lengths(sizes.channels - kept, width)
        slices = (*slice_lengths(kept, width), *gone)
        passes = -(-sizes.outputs // option.part)
        rounds = -(-sizes.rows_out // option.band)
        away = self._moved(sizes.map, gone)
        read = self._read_whole + sum([self._moved(m, slices) for m in sizes.ahead_reads])
        read += passes * sum([self._moved(m, slices) for m in sizes.behind_reads])
        read += sum([self._moved(m, parts) for m in sizes.beside if not (option.stays and m == sizes.input)])
        written = self._moved(sizes.result, parts if tail >= 0 else slices)
        weights = self._held_weights + sizes.vector_passes(vector_width)
        weights += sum([n * sizes.block_bytes(i, length) for i in block.ahead for length, n in slices])
        weights += (
            passes
            * rounds
            * sum([n * sizes.block_bytes(i, length) for i in block.behind for length, n in slices])
        )
        if tail >= 0 and option.held:
            weights += sizes.all_blocks(tail)
        elif tail >= 0:
            early = sum(
                [
                    n * k * sizes.block_bytes(tail, part, length, late=False)
                    for part, n in parts
                    for length, k in slices
                ]
            )
            late = sum(
                [
                    n * (sizes.block_bytes(tail, part) - sizes.block_bytes(tail, part, late=False))
                    for part, n in parts
                ]
            )
            weights += rounds * (early + late)
        if option.again:
            read += passes * sum([self._moved(m, gone) for m in sizes.ahead_reads])
            weights += passes * sum(
                [n * sizes.block_bytes(i, length) for i in block.ahead for length, n in gone]
            )
            return DramBytes(input=read, output=written, weight=weights)
        if sizes.inside:
            return DramBytes(input=read, output=written, weight=weights, spill=(1 + passes) * away)
        return DramBytes(
            input=read + self._moved(sizes.map, slices) + passes * away, output=written, weight=weights
        )

    def macs_again(self, option: GatingOption, kept: int) -> int:
        """Multiply-accumulates of the slices that phase 2 makes again.

        Of the rows that it asks for, of the channels that are not kept.
        """
        if not option.again:
            return 0
        parts = -(-self.sizes.outputs // option.part)
        return parts * (self.sizes.channels - kept) * self._remade_macs // self.sizes.channels

    def _moved(self, m: int, lengths: Lengths) -> int:
        """DRAM bytes of a map in slices of these lengths."""
        size = self.sizes.row_bytes(m)
        align = self.sizes.hardware.dram_row_align
        return self.sizes.flow.maps[m].rows * sum(n * round_up(length * size, align) for length, n in lengths)

    @cached_property
    def _remade_macs(self) -> int:
        """Multiply-accumulates of making all channels again, once."""
        rows = self.sizes.passage(1, behind=True, again=True).rows
        flow = self.sizes.flow
        return sum(flow.macs[i] * rows[i][-1][1] // flow.heights[i] for i in self.sizes.block.ahead)

    @cached_property
    def _read_whole(self) -> int:
        return sum(
            self.sizes.hardware.dram_bytes(self.sizes.flow.maps[m])
            for m in (*self.sizes.vector_reads, *((self.sizes.input,) if self.sizes.input >= 0 else ()))
        )

    @cached_property
    def _held_weights(self) -> int:
        return self.sizes.held_bytes(self.sizes.block.operators)
