"""The schedule of a group around a barrier (mode gated) that moves the fewest bytes on a buffer.

Chosen from all that `lfopt.planning.gated.sizes` can size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from lfopt.ir import round_up
from lfopt.planning.gated.sizes import SLOTS, GatedChoice, GatingOption, Sizes
from lfopt.planning.gated.traffic import GatedTraffic

MOST_PARTS = 8  # of the output channels, made one after the other
ROUNDING = 1e-9  # of multiply-accumulates, which are capped in floating point


MOST_TRADED = 2  # DRAM bytes that a choice of fewer multiply-accumulates may move, over the fewest


class Choices:
    """The choices of one group."""

    def __init__(self, sizes: Sizes, most_macs: float) -> None:
        """`most_macs`: multiply-accumulates that the group may do."""
        self.sizes = sizes
        self.traffic = GatedTraffic(sizes)
        self.spare_macs = int(most_macs * (1 + ROUNDING)) - sum(
            sizes.flow.macs[i] for i in sizes.block.operators
        )

    @cached_property
    def options(self) -> tuple[GatingOption, ...]:
        """Options for phase 2, those with few parts and bands first."""
        sizes = self.sizes
        stays = (True, False) if sizes.input in sizes.beside else (False,)
        remakes = sizes.remakes and self.spare_macs > 0
        if sizes.block.tail < 0:
            only = GatingOption(sizes.outputs, sizes.rows_out, held=False, stays=False)
            if remakes:
                return (only, only._replace(stays=True, again=True))
            return (only,)
        step = sizes.hardware.narrowest_block
        # each part gates all slices again
        most = 1 if any(sizes.flow.macs[i] for i in sizes.block.behind) else MOST_PARTS
        parts = sorted(
            {min(round_up(-(-sizes.outputs // n), step), sizes.outputs) for n in range(1, most + 1)},
            reverse=True,
        )
        heights = heights_of(sizes.rows_out) if sizes.in_step else [sizes.rows_out]
        streamed = [
            GatingOption(part, band, held=False, stays=stay)
            for part in parts
            for band in heights
            for stay in stays
        ]
        # without such weights, bands cost nothing
        resting = heights if any(sizes.streams(i) for i in sizes.block.behind) else heights[-1:]
        again = [
            GatingOption(part, sizes.rows_out, held=False, stays=True, again=True)
            for part in parts
            if remakes
        ]
        return (
            *(GatingOption(sizes.outputs, band, held=True, stays=stay) for band in resting for stay in stays),
            *streamed,
            *again,
        )

    @cached_property
    def full_width(self) -> int:
        """Channels of a slice that use all columns of the MAC array.

        Slices are never narrower so that more can be kept.
        """
        return next(
            width
            for width in self.sizes.widths
            if width >= min(self.sizes.hardware.mac_columns, self.sizes.channels)
        )

    @cached_property
    def least(self) -> int:
        """The least F_beta in bytes."""
        narrow = min(option.part for option in self.options)
        options = [
            option for option in self.options if not option.stays and (option.part == narrow or option.held)
        ]
        return min(
            self.sizes.buffer_bytes(option, self.sizes.widths[0], 0, (rows, 1))
            for option in options
            for rows in {1, self.sizes.height}
        )

    def cheapest(self, beta: int) -> GatedChoice | None:
        """The choice of fewest DRAM bytes, of equals of fewest MACs, then least buffer; None if none fits.

        More buffer never gives more bytes.
        """
        return self._cheapest(self.options, beta)

    def _cheapest(self, options: Sequence[GatingOption], beta: int) -> GatedChoice | None:
        """The cheapest choice of some options."""
        if self.least >= beta:
            return None
        best: GatedChoice | None = None
        for option in options:
            if best is None or self._at_least(option, beta) < best.dram.total:
                for choice in self._fitting(option, beta):
                    if best is None or _rank(choice) < _rank(best):
                        best = choice
        return best

    def of_fewer_macs(self, beta: int) -> Iterator[GatedChoice]:
        """Choices that fit, the fewest DRAM bytes first, each of fewer multiply-accumulates than the last.

        None moves more than MOST_TRADED times what the first one does.
        """
        first = self.cheapest(beta)
        if first is None:
            return
        yield first
        if not first.option.again:  # nothing is made again: no choice has fewer
            return
        most = MOST_TRADED * first.dram.total
        again = (option for option in self.options if option.again and self._at_least(option, beta) <= most)
        others = [choice for option in again for choice in self._fitting(option, beta)]
        once = self._cheapest([option for option in self.options if not option.again], beta)
        if once is not None:
            others.append(once)
        fewest = first.macs
        for choice in sorted(others, key=_rank):
            if choice.macs < fewest and choice.dram.total <= most:
                fewest = choice.macs
                yield choice

    @cached_property
    def _rounded(self) -> bool:
        """Whether what moves depends on how it is cut into slices."""
        return self.sizes.hardware.dram_row_align > 1 or self.sizes.hardware.pads_constants

    def _at_least(self, option: GatingOption, beta: int) -> int:
        """Lower bound on the DRAM bytes of any choice of an option: sizes are not rounded up."""
        sizes = self.sizes
        room = (
            beta
            - 1
            - sizes.ahead_bytes(sizes.widths[0], 1, 1, stays=option.stays, gone=0)
            - (sizes.input_bytes if option.stays else 0)
        )
        size = sizes.height * sizes.row_bytes(sizes.map)
        if option.again:
            return sizes.once + self._made_again(option, room, size)
        gone = max(sizes.channels * size - max(room, 0), 0)
        least = sizes.once + (-(-sizes.outputs // option.part) + sizes.inside) * gone
        if not option.stays and sizes.input in sizes.beside:
            least += sizes.flow.maps[sizes.input].elements * sizes.hardware.element_bytes
        return least + (
            0
            if option.held or sizes.block.tail < 0
            else (-(-sizes.rows_out // option.band) - 1) * sizes.all_blocks(sizes.block.tail)
        )

    def _made_again(self, option: GatingOption, room: int, size: int) -> int:
        """Bytes in `_at_least` for slices that are made again. `size`: bytes of a channel of the map."""
        sizes = self.sizes
        gone = max(sizes.channels - max(room, 0) // size, 1)
        weights = sum(
            elements * sizes.hardware.constant_bits(bias=bias)
            for i in sizes.block.ahead
            for elements, bias, _ in sizes.streams(i)
        )
        maps = sum(sizes.flow.maps[m].rows * sizes.row_bytes(m) for m in sizes.ahead_reads)
        return -(-sizes.outputs // option.part) * (gone * weights // 8 + gone * maps)

    def _fitting(self, option: GatingOption, beta: int) -> Iterator[GatedChoice]:
        """Choices of one option that keep most channels."""
        full = self.full_width
        narrow = self.sizes.widths[0]
        for width in self.sizes.widths if self._rounded else dict.fromkeys((narrow, full)):
            if (
                not option.again
                and (choice := self._choice(option, width, self.sizes.channels, beta)) is not None
            ):
                yield choice
            if (choice := self._choice(option, width, 0, beta)) is None:
                return
            fullest = self._keeping(choice, beta) if width >= full else choice
            if fullest.macs <= self.spare_macs:
                yield fullest

    def _keeping(self, choice: GatedChoice, beta: int) -> GatedChoice:
        """The choice that keeps most channels, of those that differ in that alone."""
        sizes = self.sizes
        width = choice.width
        step = choice.width if self._rounded else sizes.hardware.channel_align
        most = (sizes.channels - 1) // step
        if 2 * width <= sizes.channels:  # else slices get narrower with what is kept
            again = choice.option.again
            ring = max(
                sizes.passage(1, behind=True, again=again).rings[sizes.map], min(choice.rows[0], sizes.height)
            ) * sizes.row_bytes(sizes.map)
            late = 0 if sizes.block.tail < 0 else sizes.block_bytes(sizes.block.tail, choice.option.part, 0)
            # buffer bytes without what is kept
            least = (
                choice.buffer_bytes
                - ring * sizes.padded(width)
                - late
                - (sizes.remade_bytes(width) if again else 0)
            )
            most = min((beta - 1 - least) // sizes.kept_bytes(step), most)
        fitting = (self._choice(choice.option, width, count * step, beta) for count in range(most, 0, -1))
        return next(filter(None, fitting), choice)

    def _widest(self, kept: int) -> int:
        """Channels of the widest slice, where `kept` are kept."""
        return max(kept, self.sizes.channels - kept)

    def _choice(self, option: GatingOption, width: int, kept: int, beta: int) -> GatedChoice | None:
        sizes = self.sizes
        narrow = sizes.widths[0]
        width = min(width, self._widest(kept))
        gone = sizes.gone(width, kept)
        rows = (
            min(
                (1, sizes.height),
                key=lambda rows: sizes.ahead_bytes(width, rows, 1, stays=option.stays, gone=gone),
            ),
            1,
        )
        size = sizes.buffer_bytes(option, width, kept, rows)
        if size >= beta:
            return None
        return GatedChoice(
            option,
            width,
            kept,
            rows,
            (1, 1),
            narrow,
            size,
            self.traffic.dram(option, width, kept, narrow),
            self.traffic.macs_again(option, kept),
        )

    # -- fewer, longer steps ---------------------------------------------------------------------------------

    def widened(self, choice: GatedChoice, beta: int) -> GatedChoice:
        """The choice with as much in each step as fits, for the same bytes: fewer, longer steps.

        Rows that fill a command, blocks side by side, wider slices, more rows.
        """
        sizes = self.sizes
        maps = [(sizes.flow.maps[m], sizes.axis(m)) for m in (sizes.map, sizes.result)]
        pixels = [
            max(tensor.elements // max(tensor.rows * tensor.shape[axis], 1), 1) for tensor, axis in maps
        ]
        for most in (
            [max(sizes.hardware.accumulator_columns // count, 1) for count in pixels],
            [sizes.height, sizes.rows_out],
        ):
            for behind in (False, True):
                choice = self._taller(choice, beta, most[behind], behind=behind)
            for slots in ((choice.slots[0], SLOTS), (SLOTS, choice.slots[1]), (SLOTS, SLOTS)):
                choice = self._if_fits(choice, beta, slots=slots)
            for width in sizes.widths:
                if width > choice.width < self._widest(choice.kept):
                    choice = self._if_fits(choice, beta, width=min(width, self._widest(choice.kept)))
        width = choice.vector_width
        while width < max((sizes.channels_of(i) for i in sizes.block.vectors), default=1):
            width *= 2
            choice = self._if_fits(choice, beta, vector_width=width)
        return choice

    def _taller(self, choice: GatedChoice, beta: int, most: int, *, behind: bool) -> GatedChoice:
        """The choice with more rows in each step of a phase, at most `most`."""
        option = choice.option
        taller = choice
        for rows in heights_of(self.sizes.rows_out if behind else self.sizes.height):
            if not choice.rows[behind] < rows <= most:
                continue
            band = max(option.band, rows) if option.held else option.band
            if behind and rows > band:
                continue
            both = (choice.rows[0], rows) if behind else (rows, choice.rows[1])
            taller = self._if_fits(
                choice, beta, rows=both, option=option._replace(band=band) if behind else option
            )
            if taller is not choice:
                break
        return taller

    def _if_fits(self, choice: GatedChoice, beta: int, **changes: object) -> GatedChoice:
        """The choice with some changes, if it then fits and moves as many bytes; else the choice."""
        new = choice._replace(**changes)
        size = self.sizes.buffer_bytes(new.option, new.width, new.kept, new.rows, new.slots, new.vector_width)
        if (
            size >= beta
            or self.traffic.dram(new.option, new.width, new.kept, new.vector_width) != choice.dram
        ):
            return choice
        return new._replace(buffer_bytes=size)


def _rank(choice: GatedChoice) -> tuple[int, int, int]:
    """Sort key: DRAM bytes, multiply-accumulates, buffer bytes."""
    return choice.dram.total, choice.macs, choice.buffer_bytes


def heights_of(rows: int) -> list[int]:
    """Heights in rows of bands that differ by one row at most, highest first."""
    return sorted({-(-rows // count) for count in range(1, rows + 1)}, reverse=True)
