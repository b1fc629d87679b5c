"""Executable BRR (buffer requirement reduction): sinks in bands of rows while weights stream past.

    F_beta = rows held of every full map  +  slices and partial sums of the largest segment  +  two of the
                                             largest weight blocks
    F_D    = external inputs once each  +  maps needed outside once each  +  T x weights and biases that
             pass, each block rounded up as blocks are  +  constants that stay, once

In band b of T, a sink of H rows makes rows ceil(b H / T) up to ceil((b + 1) H / T). Full maps keep what this
band or a later one still reads; external inputs are full. A slice keeps no rows: what two bands share of it
is computed twice. Segments run one after the other and share their space.

A contraction that reads a full map makes a sliced map, but with start "full" the first contractions of the
group make full maps; one that reads a sliced map sums over it and makes a full one; what fits into one slice
is full. An operator between contractions has the kind of its operands; where those made in the group
disagree, or are slices of different segments, the group cannot run so. Nor can one in which a single row that
the group makes is spread over many (squeeze-and-excite).

Weights stream past once per band, even where an operator has no rows left to make, or all of them stay on
chip. Constants that fall into no blocks (slopes, what several operators read) stay, and are loaded once.

Source: alternating channel buffers and streamed weights are those of Optimus (Cai, Wang and Zhang, LCTES'21),
whose own formula is in `lfopt.planning.costs.optimus`; what a schedule needs beyond it is ours.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lfopt.ir import NEVER, Hardware, Node, Place, store_ends
from lfopt.ops import Dataflow, bits
from lfopt.planning.bands.banding import BandGrid, ComputedRows, Ints, computed_rows, lowest, needed
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.bands.slicing import STARTS, Slicing, Start
from lfopt.planning.brr.schedule import SLOTS, BandScheduler, ChosenBands
from lfopt.planning.steps.limit import Limit


@dataclass(frozen=True, slots=True)
class Banded:
    """How a group runs in bands."""

    weight_passes: int  # times that weights are loaded which do not stay
    band_rows: int  # of the tallest sink, in the first band; others may have one fewer
    buffer_bytes: int  # F_beta, bytes
    start: Start
    bands: int
    resident: bool  # whether all weights stay on chip
    pass_bytes: int  # DRAM bytes of these weights each time that they are loaded
    held_bytes: int  # DRAM bytes of the constants that stay, loaded once

    @property
    def weight_bytes(self) -> int:
        """DRAM bytes of the weights, all passes together."""
        return self.held_bytes + self.weight_passes * self.pass_bytes


class SlotCounts(NamedTuple):
    """Slots of places by number of bands; arrays are (counts,) int64."""

    rings: dict[int, Ints]  # per full map: rows
    slices: dict[int, Ints]  # per sliced map: rows
    sums: dict[int, Ints]  # per operator that sums over slices: rows


class BandedGroups:
    """Buffer needs and schedules of the groups of one dataflow in mode brr, memoised.

    Only `cheapest` asks for the size of the buffer. Slices of maps and blocks of weights are `width` channels
    wide: by default `channel_align`, the narrowest on chip. `wide`: see `SliceSizes`.
    """

    def __init__(
        self, dataflow: Dataflow, hardware: Hardware, width: int | None = None, *, wide: bool = False
    ) -> None:
        self.dataflow = dataflow
        self.slices = SliceSizes(dataflow, hardware, width or hardware.channel_align, wide=wide)
        self._grids: dict[int, BandGrid] = {}
        self._floors: dict[int, int] = {}
        self._least: dict[int, int] = {}
        self._choices: dict[int, tuple[Banded, ...]] = {}

    # -- what is asked ---------------------------------------------------------------------------------------

    def cheapest(self, mask: int, buffer_bytes: int) -> Banded | None:
        """The choice of fewest weight bytes that fits strictly, of equals of the least buffer; None if none.

        More buffer never gives more bytes.
        """
        if self.floor(mask) >= buffer_bytes or (
            mask not in self._choices and self.least(mask) >= buffer_bytes
        ):
            return None
        return next((choice for choice in self.choices(mask) if choice.buffer_bytes < buffer_bytes), None)

    def like(self, mask: int, banded: Banded) -> Banded | None:
        """The same bands and start with the slices here; None if there are none."""
        choices = self._sized(mask, BandGrid((banded.bands,)))
        return next(
            (
                choice
                for choice in choices
                if (choice.start, choice.resident) == (banded.start, banded.resident)
            ),
            None,
        )

    def summing(self, mask: int, bands: int) -> list[Banded]:
        """Choices of so many bands, weights streaming, in which something sums over slices."""
        starts = {
            start
            for start, draft in zip(STARTS, self.slices.drafts(mask), strict=True)
            if draft is not None and draft.summing
        }
        choices = self._sized(mask, BandGrid((bands,))) if starts else []
        return [choice for choice in choices if choice.start in starts and not choice.resident]

    def floor(self, mask: int) -> int:
        """Lower bound on F_beta in bytes; NEVER if none can run so.

        For the group and every group that it is grown into by operators of higher index.
        """
        least = self._floors.get(mask)
        if least is None:
            least = self._floors[mask] = min(
                (draft.floor for draft in self.slices.drafts(mask) if draft is not None), default=NEVER
            )
        return least

    def least(self, mask: int) -> int:
        """The least F_beta of any choice; NEVER if the group cannot run so.

        Where all sinks have equally many rows, a band of several rows is made of bands of one row, and takes
        no less than any of them.
        """
        if mask not in self._least:
            heights = {self.dataflow.heights[i] for i in bits(self.dataflow.sinks(mask))}
            choices = self._sized(mask, BandGrid((*heights,))) if len(heights) == 1 else self.choices(mask)
            self._least[mask] = min((choice.buffer_bytes for choice in choices), default=NEVER)
        return self._least[mask]

    def choices(self, mask: int) -> tuple[Banded, ...]:
        """Pareto front of (weight bytes, buffer bytes), the fewest weight bytes first.

        Empty if the group cannot run so.
        """
        if mask not in self._choices:
            best: list[Banded] = []
            for choice in sorted(
                self.candidates(mask),
                key=lambda choice: (choice.weight_bytes, choice.buffer_bytes, choice.bands),
            ):
                if not best or choice.buffer_bytes < best[-1].buffer_bytes:
                    best.append(choice)
            self._choices[mask] = tuple(best)
        return self._choices[mask]

    def macs(self, mask: int, banded: Banded) -> int:
        """Multiply-accumulates, those that bands repeat included. All rows of an operator count alike."""
        flow, computed = (
            self.dataflow,
            self._computed_rows(mask, self.slices.draft(mask, banded.start), BandGrid((banded.bands,))),
        )
        return sum(
            -(-flow.macs[i] * int((rows.stop - rows.start).sum()) // flow.heights[i])
            for i, rows in computed.items()
        )

    def schedule(
        self, mask: int, banded: Banded, limit: Limit | None = None
    ) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places in the buffer, and the steps. Raises Unwritten beyond the limit."""
        draft, grid = self.slices.draft(mask, banded.start), BandGrid((banded.bands,))
        computed = self._computed_rows(mask, draft, grid)
        rows = {
            i: [*zip(*(column.tolist() for column in columns), strict=True)]
            for i, columns in computed.items()
        }
        slots = [
            {key: int(most[0]) for key, most in kind.items() if most[0]}
            for kind in self._needs(mask, draft, computed, grid)
        ]
        run = ChosenBands(mask, draft, banded.bands, banded.resident, rows, *slots)
        places, steps = BandScheduler(self.slices, run).build(limit or Limit())
        end = store_ends(places, self.slices.hardware)["buffer"]
        assert end == banded.buffer_bytes, (
            f"the places end at {end}, planned were {banded.buffer_bytes} bytes"
        )
        return places, steps

    def candidates(self, mask: int) -> list[Banded]:
        """Every start and number of bands tried, with weights streaming and with all on chip."""
        tall = self._tallest(mask)
        if tall not in self._grids:
            self._grids[tall] = BandGrid.up_to(tall)
        return self._sized(mask, self._grids[tall])

    # -- rows and buffer -------------------------------------------------------------------------------------

    def _tallest(self, mask: int) -> int:
        """Rows of the tallest sink."""
        return max((self.dataflow.heights[i] for i in bits(self.dataflow.sinks(mask))), default=1)

    def _sized(self, mask: int, grid: BandGrid) -> list[Banded]:
        """See `candidates`; for the numbers of bands of one grid."""
        slices, tall = self.slices, self._tallest(mask)
        passing, held_bytes, all_bytes = self._constants(mask)
        choices: list[Banded] = []
        for start, draft in zip(STARTS, slices.drafts(mask), strict=True):
            if (
                draft is None
                or (choices and not draft.forks)
                or not all(slices.stored_evenly(m) for m in draft.head if slices.leaves(m, mask))
            ):
                continue
            sizes = self._map_bytes(
                draft, self._needs(mask, draft, self._computed_rows(mask, draft, grid), grid)
            )
            streaming = self._streaming(draft, passing) + held_bytes
            by_blocks = sum(slices.pass_bytes(i, sums=bool(draft.summing >> i & 1)) for i in passing)
            options = [(False, streaming, by_blocks, held_bytes)] if by_blocks else []
            options.append((True, all_bytes, 0, all_bytes))
            for bands, size in zip(grid.counts.tolist(), sizes.tolist(), strict=True):
                for resident, weights, pass_bytes, held in options:
                    need = slices.hardware.buffer_need(size, weights)
                    if need < NEVER:
                        choices.append(
                            Banded(
                                1 if resident else bands,
                                -(-tall // bands),
                                need,
                                start,
                                bands,
                                resident,
                                pass_bytes,
                                held,
                            )
                        )
        return choices

    def _constants(self, mask: int) -> tuple[Collection[int], int, int]:
        """(operators whose weights can pass, bytes of constants that cannot, bytes of all constants)."""
        held, passing = self.slices.constants(mask)
        held_bytes = sum(held.values())
        return (
            passing,
            held_bytes,
            held_bytes
            + sum(self.slices.constant_bytes[s.name] for streamed in passing.values() for s in streamed),
        )

    def _streaming(self, draft: Slicing, passing: Collection[int]) -> int:
        """Bytes of the place that weights pass through."""
        return SLOTS * max(
            (self.slices.block_bytes(i, sums=bool(draft.summing >> i & 1)) for i in passing), default=0
        )

    def weights(self, mask: int) -> int:
        """The least bytes of constants on chip; NEVER if the group cannot run so."""
        passing, held_bytes, all_bytes = self._constants(mask)
        drafts = (draft for draft in self.slices.drafts(mask) if draft is not None)
        return min(
            (min(self._streaming(draft, passing) + held_bytes, all_bytes) for draft in drafts), default=NEVER
        )

    def _computed_rows(self, mask: int, draft: Slicing, grid: BandGrid) -> dict[int, ComputedRows]:
        """Rows that every operator computes in every band, by operator, consumers first."""
        return computed_rows(
            self.dataflow, mask, grid, draft.head, self.dataflow.operands, self.dataflow.heights
        )

    def _needs(
        self, mask: int, draft: Slicing, computed: dict[int, ComputedRows], grid: BandGrid
    ) -> SlotCounts:
        """Slots of rings, slices and sums."""
        flow, slices = self.dataflow, self.slices
        # per full map that is read: lowest row that this band or a later one reads
        kept: dict[int, Ints] = {}
        loaded: dict[int, Ints] = {}  # per external map: rows that must be there in each band
        for i in bits(mask):
            for o in flow.operands[i]:
                if o.map in draft.head:
                    continue
                low = lowest(o.reads, computed[i].low)
                kept[o.map] = np.minimum(kept[o.map], low) if o.map in kept else low
                producer = flow.producer[o.map]
                if producer < 0 or not mask >> producer & 1:
                    stop = needed(o.reads, computed[i].stop)
                    loaded[o.map] = np.maximum(loaded[o.map], stop) if o.map in loaded else stop
        needs = SlotCounts(
            {m: np.maximum(grid.most(stop - np.minimum(kept[m], stop)), 1) for m, stop in loaded.items()},
            {},
            {},
        )
        for i in bits(mask):
            rows = computed[i]
            for m in flow.results[i]:
                if m in draft.head:
                    needs.slices[m] = grid.most(rows.stop - rows.start)
                elif slices.needed(m):
                    needs.rings[m] = grid.most(
                        rows.stop - (np.minimum(kept[m], rows.new) if m in kept else rows.new)
                    )
            if draft.summing >> i & 1:
                needs.sums[i] = grid.most(rows.stop - rows.start)
        return needs

    def _map_bytes(self, draft: Slicing, needs: SlotCounts) -> Ints:
        """(counts,) int64: bytes of rings, and of the slices and sums of the largest segment."""
        slices = self.slices
        rings = [rows * slices.row_bytes[m] for m, rows in needs.rings.items()]
        scratch: dict[int, list[Ints]] = {}
        for m, rows in needs.slices.items():
            scratch.setdefault(draft.head[m], []).append(rows * slices.slice_bytes(m))
        for i, rows in needs.sums.items():
            scratch[draft.segment[i]].append(rows * slices.sum_bytes(i))
        segments = [np.add.reduce(parts) for parts in scratch.values()]
        return np.add.reduce([*rings, np.maximum.reduce(segments)]) if segments else np.add.reduce(rings)
