"""Bytes and buffer of a block around a barrier (squeeze-and-excite), slice by slice in two phases.

What fits of the map stays on chip between the phases.

    phase 1   per slice of channels: make the map, fold its rows, keep the slice on chip, store it, or drop it
    vectors   the operators between the folds and the gate, on whole maps of one row
    phase 2   per part of the output channels, per band of its rows, per slice, kept, loaded again or made
              again: gate it, add it to the sums of the tail

    F_beta = kept + input that stays + the largest of
               phase 1:  input + rings and sums of the folds for one slice + two of its blocks of weights +
                         folds
               vectors:  folds + vectors + two of their blocks of weights
               phase 2:  gates + rings for one slice + sums of a band of the part + rows of it + two blocks of
                         weights, or all those of the tail + rings of what is ahead for one slice, and its
                         weights in the blocks, where slices are made again
    F_D    = every tensor once  +  gone  +  (bands - 1) x weights of the tail, unless they are all on chip
             + input, where it does not stay and what follows the tail in flight reads it
    gone   = (1 + parts) x (map - kept)  where slices that are not kept are stored and loaded again (spilled)
             parts x (weights ahead + what is read slice by slice ahead) of the slices that are not kept,
             where they are made again

The head reads all channels of its input, which is whole on chip in phase 1; it stays where slices are made
again. That repeats up to parts x (1 - kept / map) of the multiply-accumulates ahead, takes one band, and has
no maps in common between what is ahead and what is behind, but for the input. Else nothing is computed twice.
Blocks of constants and rows of slices are each rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import DramBytes, round_up
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops.rows import same_row
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.gated.gates import GatedBlock
from lfopt.planning.gated.passage import Passage, bands, passage

# slots for weight blocks, where that costs no bytes: one block is loaded while the one before is used
SLOTS = 2

Lengths = tuple[tuple[int, int], ...]  # (channels, slices of that length)


class GatingOption(NamedTuple):
    """How phase 2 may run, but for slices and what is kept."""

    part: int  # output channels at a time
    band: int  # rows of the result of which sums are held
    held: bool  # whether all weights of the tail are on chip
    # whether what the head reads stays on chip: for what follows the tail in flight, or to make slices again
    stays: bool
    again: bool = False  # whether slices that are not kept are made again, and not stored and loaded


class GatedChoice(NamedTuple):
    """How a group runs."""

    option: GatingOption
    width: int  # channels of a slice
    kept: int  # channels of the map that stay on chip, from the first on
    rows: tuple[int, int]  # rows made at a time: of the map in phase 1, of the result in phase 2
    slots: tuple[int, int]  # of the places that weight blocks pass through in either phase
    vector_width: int  # output channels of the weight blocks of vectors
    buffer_bytes: int  # F_beta, bytes
    dram: DramBytes  # but for parameters
    macs: int  # multiply-accumulates that are done again


def slice_lengths(count: int, width: int) -> Lengths:
    """Channels of successive slices of `width`, counted by length."""
    whole, rest = divmod(count, width)
    return tuple(pair for pair in ((width, whole), (rest, 1)) if all(pair))


class Sizes:
    """Bytes of one group, on chip and in DRAM. Nothing depends on the size of the buffer."""

    def __init__(self, slices: SliceSizes, block: GatedBlock, once: int) -> None:
        """`once`: DRAM bytes of the group with every tensor once, but for parameters."""
        self.slices = slices
        self.block = block
        self.once = once
        self.flow = slices.dataflow
        self.hardware = slices.hardware
        flow = self.flow
        tail = block.tail
        written = {m for i in block.operators for m in flow.results[i]}
        self.map = block.map
        self.result = flow.results[block.last][0]
        self.channels = flow.maps[self.map].shape[self.axis(self.map)]
        self.height = flow.maps[self.map].rows
        self.outputs = flow.maps[self.result].shape[self.axis(self.result)]
        self.rows_out = flow.maps[self.result].rows
        self.inside = bool(block.ahead)  # whether the group makes the map
        # map that the head reads whole; -1: there is no head
        self.input = flow.operands[block.ahead[0]][0].map if block.head else -1
        self.after = (*block.behind, *((tail,) if tail >= 0 else ()))  # the operators of phase 2
        # maps that come slice by slice: with what is ahead,
        self.ahead_reads = self._outside(block.ahead, written | {self.input})
        self.behind_reads = self._outside(block.behind, written | {self.map})  # and with what is behind
        self.vector_reads = self._outside(block.vectors, written)
        # maps that what follows the tail in flight reads
        self.beside = self._outside(self.after[len(block.behind) :], written)
        vectors = [flow.results[i][0] for i in block.vectors]
        gating = {o.map for i in block.behind for o in flow.operands[i]}
        self.folded = [flow.results[i][0] for i in block.folds]
        self.gates = [v for v in (*self.folded, *vectors) if v in gating]
        self.vectors = [v for v in vectors if v not in gating]
        self._passages: dict[tuple[bool, bool, int], Passage] = {}
        self._rings: dict[tuple[bool, bool, int], int] = {}
        self._streamed: dict[int, tuple[tuple[int, bool, bool], ...]] = {}
        self._vector_passes: dict[int, int] = {}

    def _outside(self, ops: Sequence[int], inside: set[int]) -> list[int]:
        """Maps that operators read, but for some."""
        return [
            m for m in dict.fromkeys(o.map for i in ops for o in self.flow.operands[i]) if m not in inside
        ]

    # -- maps ------------------------------------------------------------------------------------------------

    def axis(self, m: int) -> int:
        """Axis of the channels of a map."""
        return CHANNEL_AXIS_OF_RANK[len(self.flow.maps[m].shape)]

    def row_bytes(self, m: int) -> int:
        """Bytes of one row of one channel of a map on chip."""
        tensor = self.flow.maps[m]
        return (
            tensor.elements // max(tensor.rows * tensor.shape[self.axis(m)], 1) * self.hardware.element_bytes
        )

    def whole_bytes(self, m: int) -> int:
        """Bytes of a map, whole on chip."""
        tensor = self.flow.maps[m]
        return tensor.rows * self.hardware.row_bytes(tensor)

    def padded(self, channels: int) -> int:
        """Channels rounded up to blocks on chip."""
        return round_up(channels, self.hardware.channel_align)

    # -- rows ------------------------------------------------------------------------------------------------

    def passage(self, rows: int, *, behind: bool, again: bool = False) -> Passage:
        """How rows pass through the operators ahead of the barrier, or behind it.

        `rows`: of the result at a time. `again`: through both, in phase 2.
        """
        key = behind, again, rows
        if key not in self._passages:
            ends = bands(self.rows_out if behind else self.height, rows)
            ops = (*(self.block.ahead if again or not behind else ()), *(self.after if behind else ()))
            there = {
                *(self.gates if behind else ()),
                *(self.beside if behind else ()),
                *((self.input,) if again or not behind else ()),
            }
            self._passages[key] = passage(self.flow, ops, ends, there)
        return self._passages[key]

    @cached_property
    def in_step(self) -> bool:
        """Whether all operators behind the barrier make each row from the same row.

        Bands then have nothing in common.
        """
        there = {*self.gates, *self.beside}
        return all(
            o.reads is same_row(self.rows_out)
            for i in self.after
            for o in self.flow.operands[i]
            if o.map not in there
        )

    def _ring_bytes(self, rows: int, *, behind: bool, again: bool = False) -> int:
        """Bytes of the rings of one channel, without those of the map and of the tail's result.

        `again`: those for what is ahead, in phase 2.
        """
        key = behind, again, rows
        if key not in self._rings:
            apart = {self.map, self.result} if self.block.tail >= 0 else {self.map}
            if again:
                apart |= self.passage(rows, behind=behind).rings.keys()
            rings = self.passage(rows, behind=behind, again=again).rings if behind or self.inside else {}
            if not behind and rows >= self.height:  # all at once: rows that nothing reads are there, too
                rings = {m: self.flow.maps[m].rows for m in rings}
            self._rings[key] = sum(count * self.row_bytes(m) for m, count in rings.items() if m not in apart)
        return self._rings[key]

    # -- constants -------------------------------------------------------------------------------------------

    @cached_property
    def able(self) -> bool:
        """Whether every constant is read by one operator alone."""
        names = [name for i in self.block.operators for name in {w.name for w in self.flow.weights[i]}]
        return len(names) == len({*names})

    def streams(self, op: int) -> tuple[tuple[int, bool, bool], ...]:
        """Constants that pass: (elements, whether a bias, whether read when sums are finished) of each.

        Elements are per output channel and, of the tail, per input channel.
        """
        if op not in self._streamed:
            call = self.flow.calls[op]
            flow = self.flow
            outputs = call.result[CHANNEL_AXIS_OF_RANK[len(call.result)]]
            inputs = self.channels if op == self.block.tail else 1
            self._streamed[op] = tuple(
                (
                    flow.graph.tensors[s.name].elements // outputs // (1 if s.late else inputs),
                    s.name in flow.biases,
                    s.late,
                )
                for s in self.slices.facts[op].streamed
            )
        return self._streamed[op]

    def block_bytes(self, op: int, outputs: int, inputs: int = 1, *, late: bool = True) -> int:
        """Bytes of a block of an operator's constants, for `outputs` output channels.

        `inputs`: input channels of the tail. `late`: whether with what is read when sums are finished.
        """
        size = 0
        for elements, bias, is_late in self.streams(op):
            if late or not is_late:
                size += self.hardware.constant_bytes(
                    elements * outputs * (1 if is_late else inputs), bias=bias
                )
        return size

    def all_blocks(self, op: int) -> int:
        """Bytes of all constants of an operator that could pass block by block, each as a whole."""
        return sum(self.slices.constant_bytes[s.name] for s in self.slices.facts[op].streamed)

    def held_bytes(self, ops: Sequence[int]) -> int:
        """Bytes of the constants of operators that fall into no blocks."""
        return sum(self.slices.constant_bytes[name] for i in ops for name in self.slices.facts[i].held)

    def vector_passes(self, width: int) -> int:
        """DRAM bytes of the blocks of weights of vectors, `width` output channels each."""
        if width not in self._vector_passes:
            pairs = (
                (i, length, n)
                for i in self.block.vectors
                if self.streams(i)
                for length, n in slice_lengths(self.channels_of(i), width)
            )
            self._vector_passes[width] = sum(n * self.block_bytes(i, length) for i, length, n in pairs)
        return self._vector_passes[width]

    def channels_of(self, op: int) -> int:
        """Output channels of an operator."""
        m = self.flow.results[op][0]
        return self.flow.maps[m].shape[self.axis(m)]

    # -- what is on chip -------------------------------------------------------------------------------------

    def ahead_bytes(self, width: int, rows: int, slots: int, *, stays: bool, gone: int) -> int:
        """Buffer bytes of phase 1, but for what stays. `gone`: channels of the widest slice not kept."""
        per_channel = self._ring_bytes(rows, behind=False)
        if rows < self.height:
            per_channel += self._fold_bytes
        blocks = sum([self.block_bytes(i, width) for i in self.block.ahead])
        fixed = (
            self._ahead_fixed
            - (self.input_bytes if stays else 0)
            + min(rows, self.height) * self.row_bytes(self.map) * self.padded(gone)
        )
        return self.hardware.buffer_need(
            fixed + per_channel * self.padded(width), self._held_ahead + slots * blocks
        )

    def vector_bytes(self, width: int) -> int:
        """Buffer bytes of the operators between the folds and the gate."""
        return self.hardware.buffer_need(
            self._vector_fixed, self._held_vectors + SLOTS * self.vector_block(width)
        )

    def vector_block(self, width: int) -> int:
        """Bytes of the largest of their blocks of weights, for `width` output channels."""
        return max(
            [self.block_bytes(i, min(width, self.channels_of(i))) for i in self.block.vectors], default=0
        )

    def behind_bytes(self, width: int, rows: int, slots: int, option: GatingOption, kept: int) -> int:
        """Buffer bytes of phase 2, but for what stays and is kept."""
        gone = self.gone(width, kept)
        tail = self.block.tail
        per_channel = self._ring_bytes(rows, behind=True)
        fixed = self._behind_fixed
        fixed += (
            self.passage(rows, behind=True, again=option.again).rings[self.map]
            * self.row_bytes(self.map)
            * self.padded(gone)
        )
        if option.again:
            fixed += self._ring_bytes(rows, behind=True, again=True) * self.padded(gone)
        if tail >= 0:
            part = self.padded(option.part)
            row = part * self.row_bytes(self.result)
            fixed += rows * row + (
                option.band * self.hardware.sums_bytes(row) if self._longest(width, kept)[0] else 0
            )
            fixed += sum(
                rows * part * self.row_bytes(m) for m in self.beside if not (option.stays and m == self.input)
            )
        weights = (
            self._held_behind
            + (self.all_blocks(tail) if option.held and tail >= 0 else 0)
            + slots * self.block_behind(width, option, kept)
        )
        return self.hardware.buffer_need(fixed + per_channel * self.padded(width), weights)

    def remade_bytes(self, width: int) -> int:
        """Buffer bytes to make slices of `width` channels again in phase 2, a row at a time.

        Rings but for that of the map, and a block of weights.
        """
        return self._ring_bytes(1, behind=True, again=True) * self.padded(width) + sum(
            [self.block_bytes(i, width) for i in self.block.ahead]
        )

    def block_behind(self, width: int, option: GatingOption, kept: int) -> int:
        """Bytes of the largest block of weights in phase 2.

        What is read when sums are finished comes with the last.
        """
        if not option.again:
            return max(
                self._block_behind(length, option, late=late)
                for length, late in zip(self._longest(width, kept), (False, True), strict=True)
            )
        # of the slices that are made again, one is the last
        blocks = [self._block_behind(min(width, kept), option, late=False)]
        for length, late in zip(self._longest(width, kept, gone=True), (False, True), strict=True):
            blocks.append(
                self._block_behind(length, option, late=late)
                + sum([self.block_bytes(i, length) for i in self.block.ahead])
            )
        return max(blocks)

    def _block_behind(self, length: int, option: GatingOption, *, late: bool) -> int:
        """Bytes of a block of weights of the operators behind, for `length` channels."""
        size = sum([self.block_bytes(i, length) for i in self.block.behind])
        if self.block.tail >= 0 and not option.held:
            size += self.block_bytes(self.block.tail, option.part, length, late=late)
        return size

    def _longest(self, width: int, kept: int, *, gone: bool = False) -> tuple[int, int]:
        """Channels of the longest slice but the last, 0 if there is no other; and of the last.

        `gone`: of those that are not kept.
        """
        counts = (0 if gone else kept, self.channels - kept)
        lengths = [
            length for count in counts for length, n in slice_lengths(count, width) for _ in range(min(n, 2))
        ]
        return max(lengths[:-1], default=0), lengths[-1]

    def gone(self, width: int, kept: int) -> int:
        """Channels of the widest slice that is not kept."""
        return min(width, self.channels - kept)

    def kept_bytes(self, kept: int) -> int:
        """Bytes on chip of `kept` channels of the map."""
        return self.height * self.row_bytes(self.map) * self.padded(kept)

    def buffer_bytes(
        self,
        option: GatingOption,
        width: int,
        kept: int,
        rows: tuple[int, int] = (1, 1),
        slots: tuple[int, int] = (1, 1),
        vector_width: int = 0,
    ) -> int:
        """F_beta in bytes."""
        first = self.ahead_bytes(width, rows[0], slots[0], stays=option.stays, gone=self.gone(width, kept))
        last = self.behind_bytes(width, rows[1], slots[1], option, kept)
        stays = self.input_bytes if option.stays else 0
        return (
            self.kept_bytes(kept)
            + stays
            + max(first, self.vector_bytes(vector_width or self.widths[0]), last)
        )

    @cached_property
    def input_bytes(self) -> int:
        """Bytes of the head's input, whole on chip."""
        if self.input >= 0:
            return self.whole_bytes(self.input)
        return 0

    @cached_property
    def _ahead_fixed(self) -> int:
        return self.input_bytes + sum(map(self.whole_bytes, self.folded))

    @cached_property
    def _held_ahead(self) -> int:
        return self.held_bytes(self.block.ahead)

    @cached_property
    def _vector_fixed(self) -> int:
        maps = dict.fromkeys((*self.folded, *self.vectors, *self.gates, *self.vector_reads))
        return sum(map(self.whole_bytes, maps))

    @cached_property
    def _held_vectors(self) -> int:
        return self.held_bytes(self.block.vectors)

    @cached_property
    def _behind_fixed(self) -> int:
        return sum(map(self.whole_bytes, self.gates))

    @cached_property
    def _held_behind(self) -> int:
        return self.held_bytes(self.after)

    @cached_property
    def _fold_bytes(self) -> int:
        """Bytes of the partial results of the folds, for one channel."""
        return sum(self.hardware.sums_bytes(self.row_bytes(v)) for v in self.folded)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Channels of a slice, the fewest first."""
        powers = list[int]()
        width = self.hardware.narrowest_block
        while width < self.channels:
            powers.append(width)
            width *= 2
        return (*powers, self.channels)

    @cached_property
    def remakes(self) -> bool:
        """Whether slices can be made again.

        There is a head, and what is ahead has its constants in blocks and shares no map with what is behind.
        """
        behind = {*self.behind_reads, *self.beside} - {self.input}
        held = any(self.slices.facts[i].held for i in self.block.ahead)
        return (
            self.block.head
            and not held
            and self.input not in self.behind_reads
            and behind.isdisjoint(self.ahead_reads)
        )
