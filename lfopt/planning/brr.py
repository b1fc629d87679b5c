"""What a group takes whose sinks are made in bands of rows while weights stream past (BRR, buffer requirement reduction), as it can be executed.

    F_beta = rows held of every full map  +  slices and partial sums of the largest segment  +  two of the largest weight blocks
    F_D    = external inputs once each  +  maps needed outside once each  +  T x weights and biases, each block rounded up as blocks are

In band b of T, a sink of H rows makes rows ceil(b H / T) up to ceil((b + 1) H / T). Full maps keep what this band or a later one still reads;
external inputs are full. A slice keeps no rows: what two bands share of it is computed twice. Segments run one after the other and share their space.

A contraction that reads a full map makes a sliced map, but with start "full" the first contractions of the group make full maps; one that reads a
sliced map sums over it and makes a full one; what fits into one slice is full. An operator between contractions has the kind of its operands; where
those made in the group disagree, or are slices of different segments, the group cannot run so. Nor can one in which a single row that the group makes
is spread over many (squeeze-and-excite).

Weights stream past once per band, or all of them stay on chip and pass once. All constants pass equally often, even where an operator has no rows
left to make; those that fall into no blocks (slopes, what several operators read) are held whole.

Source: alternating channel buffers and streamed weights are those of Optimus (Cai, Wang and Zhang, LCTES'21), whose own formula is in
`lfopt.planning.optimus`; what a schedule needs beyond it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lfopt.ir import Hardware, Node, Place
from lfopt.ops import Dataflow, RowReads, bits
from lfopt.ops.rows import same_row
from lfopt.planning.brr_schedule import SLOTS, Run, Schedule
from lfopt.planning.limit import Limit
from lfopt.planning.slices import STARTS, Draft, Slices, Start

NEVER = 1 << 62  # bytes: more than any buffer

Ints = np.ndarray  # int64


@dataclass(frozen=True, slots=True)
class Banded:
    """How a group runs in bands."""

    weight_passes: int  # times that every weight is loaded
    band_rows: int  # of the tallest sink, in the first band; others may have one fewer
    buffer_bytes: int  # F_beta
    start: Start
    bands: int
    resident: bool  # whether all weights stay on chip
    pass_bytes: int  # DRAM bytes of the weights each time that they are loaded

    @property
    def weight_bytes(self) -> int:
        """DRAM bytes of the weights, all passes together."""
        return self.weight_passes * self.pass_bytes


class Grid:
    """Numbers of bands that are tried, and one entry for each band of each of them."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = np.array(counts, np.int64)
        self.offsets = np.concatenate(([0], np.cumsum(self.counts)[:-1]))
        self._of = np.repeat(self.counts, self.counts)
        self._band = np.arange(self._of.size) - np.repeat(self.offsets, self.counts)
        self._last = np.repeat(self.offsets + self.counts - 1, self.counts)
        self._quotas: dict[int, Ints] = {}

    @classmethod
    def up_to(cls, height: int) -> Grid:
        """Every ceil(height / h) for a whole number of rows h."""
        return cls(tuple(sorted({-(-height // h) for h in range(1, height + 1)})))

    def quota(self, height: int) -> Ints:
        """Rows of a sink of so many rows that exist after each band."""
        if height not in self._quotas:
            self._quotas[height] = -(-(self._band + 1) * height // self._of)
        return self._quotas[height]

    def before(self, stop: Ints) -> Ints:
        """The entry of the band before; 0 in the first."""
        found = np.empty_like(stop)
        found[1:] = stop[:-1]
        found[self.offsets] = 0
        return found

    def final(self, stop: Ints) -> Ints:
        """The entry of the last band."""
        return stop[self._last]

    def most(self, values: Ints) -> Ints:
        """Per number of bands: the largest entry."""
        return np.maximum.reduceat(values, self.offsets)


class Made(NamedTuple):
    """Rows that an operator computes, per band."""

    start: Ints
    stop: Ints  # never falls from band to band
    new: Ints  # first row that no earlier band computed
    low: Ints  # lowest row that this band or a later one computes; the height if none does


class Needs(NamedTuple):
    """Slots of places, per number of bands."""

    rings: dict[int, Ints]  # per full map: rows
    slices: dict[int, Ints]  # per sliced map: rows
    sums: dict[int, Ints]  # per operator that sums over slices: rows


class Bands:
    """Buffer needs and schedules of the groups of one dataflow in mode brr, memoised. Only `cheapest` asks for the size of the buffer.

    Slices of maps and blocks of weights are `width` channels wide: by default as narrow as the chip can, `channel_align`.
    """

    def __init__(self, dataflow: Dataflow, hardware: Hardware, width: int | None = None) -> None:
        self.dataflow = dataflow
        self.slices = Slices(dataflow, hardware, width or hardware.channel_align)
        self._arrays: dict[RowReads, tuple[Ints, Ints]] = {}
        self._grids: dict[int, Grid] = {}
        self._floors: dict[int, int] = {}
        self._least: dict[int, int] = {}
        self._choices: dict[int, tuple[Banded, ...]] = {}

    # -- what is asked -----------------------------------------------------------------------------------------------------------------------

    def cheapest(self, mask: int, buffer_bytes: int) -> Banded | None:
        """The fewest bytes of weights that fit the buffer (strictly), with the least buffer; None if nothing fits or the group cannot run so.

        More buffer never gives more bytes.
        """
        if self.floor(mask) >= buffer_bytes or (mask not in self._choices and self.least(mask) >= buffer_bytes):
            return None
        return next((choice for choice in self.choices(mask) if choice.buffer_bytes < buffer_bytes), None)

    def like(self, mask: int, banded: Banded) -> Banded | None:
        """The same way to run the group, as sliced here; None if there is none."""
        found = self._sized(mask, Grid((banded.bands,)))
        return next((choice for choice in found if (choice.start, choice.resident) == (banded.start, banded.resident)), None)

    def floor(self, mask: int) -> int:
        """Lower bound on F_beta, for the group and every group that it is grown into by operators of higher index; NEVER if none can run so."""
        found = self._floors.get(mask)
        if found is None:
            found = self._floors[mask] = min((draft.floor for draft in self.slices.drafts(mask) if draft is not None), default=NEVER)
        return found

    def least(self, mask: int) -> int:
        """The least F_beta of any choice; NEVER if the group cannot run so.

        Where all sinks have equally many rows, a band of several rows is made of bands of one row, and takes no less than any of them.
        """
        if mask not in self._least:
            heights = {self.dataflow.heights[i] for i in bits(self.dataflow.sinks(mask))}
            found = self._sized(mask, Grid((*heights,))) if len(heights) == 1 else self.choices(mask)
            self._least[mask] = min((choice.buffer_bytes for choice in found), default=NEVER)
        return self._least[mask]

    def choices(self, mask: int) -> tuple[Banded, ...]:
        """Fewer and fewer bytes of buffer for more and more bytes of weights, pass after pass; empty if the group cannot run so."""
        if mask not in self._choices:
            best: list[Banded] = []
            for choice in sorted(self.candidates(mask), key=lambda choice: (choice.weight_bytes, choice.buffer_bytes, choice.bands)):
                if not best or choice.buffer_bytes < best[-1].buffer_bytes:
                    best.append(choice)
            self._choices[mask] = tuple(best)
        return self._choices[mask]

    def macs(self, mask: int, banded: Banded) -> int:
        """Multiply-accumulates, those that bands repeat included. All rows of an operator count alike."""
        flow, made = self.dataflow, self._made(mask, self.slices.draft(mask, banded.start), Grid((banded.bands,)))
        return sum(-(-flow.macs[i] * int((rows.stop - rows.start).sum()) // flow.heights[i]) for i, rows in made.items())

    def schedule(self, mask: int, banded: Banded, limit: Limit | None = None) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places in the buffer, and the steps. Raises Unwritten beyond the limit."""
        draft, grid = self.slices.draft(mask, banded.start), Grid((banded.bands,))
        made = self._made(mask, draft, grid)
        rows = {i: [*zip(*(column.tolist() for column in found), strict=True)] for i, found in made.items()}
        slots = [{key: int(found[0]) for key, found in kind.items() if found[0]} for kind in self._needs(mask, draft, made, grid)]
        run = Run(mask, draft, banded.bands, banded.resident, rows, *slots)
        places, steps = Schedule(self.slices, run).build(limit or Limit())
        end = max(place.end for place in places)
        assert end == banded.buffer_bytes, f"the places end at {end}, planned were {banded.buffer_bytes} bytes"
        return places, steps

    def candidates(self, mask: int) -> list[Banded]:
        """Every start and number of bands that is tried, with weights streaming and with all of them on chip."""
        tall = self._tallest(mask)
        if tall not in self._grids:
            self._grids[tall] = Grid.up_to(tall)
        return self._sized(mask, self._grids[tall])

    # -- rows and buffer ---------------------------------------------------------------------------------------------------------------------

    def _tallest(self, mask: int) -> int:
        """Rows of the tallest sink."""
        return max((self.dataflow.heights[i] for i in bits(self.dataflow.sinks(mask))), default=1)

    def _sized(self, mask: int, grid: Grid) -> list[Banded]:
        """See `candidates`; for the numbers of bands of one grid."""
        slices, tall = self.slices, self._tallest(mask)
        held, passing = slices.constants(mask)
        held_bytes = sum(held.values())
        all_bytes = held_bytes + sum(slices.constant_bytes[s.name] for streamed in passing.values() for s in streamed)
        found: list[Banded] = []
        for start, draft in zip(STARTS, slices.drafts(mask), strict=True):
            if draft is None or (found and not draft.forks) or not all(slices.stored_evenly(m) for m in draft.head if slices.leaves(m, mask)):
                continue
            sizes = self._map_bytes(draft, self._needs(mask, draft, self._made(mask, draft, grid), grid))
            block = max((slices.block_bytes(i, sums=bool(draft.summing >> i & 1)) for i in passing), default=0)
            by_blocks = held_bytes + sum(slices.pass_bytes(i, sums=bool(draft.summing >> i & 1)) for i in passing)
            for bands, size in zip(grid.counts.tolist(), sizes.tolist(), strict=True):
                rows = -(-tall // bands)
                if all_bytes:
                    found.append(Banded(bands, rows, size + SLOTS * block + held_bytes, start, bands, resident=False, pass_bytes=by_blocks))
                found.append(Banded(1, rows, size + all_bytes, start, bands, resident=True, pass_bytes=all_bytes))
        return found

    def _needed(self, reads: RowReads, stop: Ints) -> Ints:
        """Rows that must exist before so many rows of the reader."""
        return stop if reads is same_row(reads.rows_in) else self._as_arrays(reads)[0][stop]

    def _kept(self, reads: RowReads, low: Ints) -> Ints:
        """Lowest row that this row of the reader or a later one reads."""
        return low if reads is same_row(reads.rows_in) else self._as_arrays(reads)[1][low]

    def _as_arrays(self, reads: RowReads) -> tuple[Ints, Ints]:
        if reads not in self._arrays:
            self._arrays[reads] = np.array((0, *reads.need), np.int64), np.array(reads.keep, np.int64)
        return self._arrays[reads]

    def _made(self, mask: int, draft: Draft, grid: Grid) -> dict[int, Made]:
        """Rows that every operator computes in every band, by operator, consumers first."""
        flow, slices = self.dataflow, self.slices
        readers: dict[int, list[tuple[Made, RowReads]]] = {}  # per operator
        found: dict[int, Made] = {}
        for i in reversed([*bits(mask)]):
            sink = any(slices.leaves(m, mask) for m in flow.results[i])
            stops = [self._needed(reads, rows.stop) for rows, reads in readers.get(i, ())]
            if sink:
                stops.append(grid.quota(flow.heights[i]))
            stop = stops[0] if len(stops) == 1 else np.maximum.reduce(stops)
            start = new = grid.before(stop)
            low = np.where(new < grid.final(stop), new, flow.heights[i])
            if any(m in draft.head for m in flow.results[i]):
                lows = [self._kept(reads, rows.low) for rows, reads in readers.get(i, ())]
                active = [rows.stop > rows.start for rows, _ in readers.get(i, ())]
                if sink:
                    lows.append(low)
                    active.append(stop > new)
                low = lows[0] if len(lows) == 1 else np.minimum.reduce(lows)
                start = np.where(active[0] if len(active) == 1 else np.logical_or.reduce(active), np.minimum(low, stop), stop)
            found[i] = Made(start, stop, new, low)
            for o in flow.operands[i]:
                producer = flow.producer[o.map]
                if producer >= 0 and mask >> producer & 1:
                    readers.setdefault(producer, []).append((found[i], o.reads))
        return found

    def _needs(self, mask: int, draft: Draft, made: dict[int, Made], grid: Grid) -> Needs:
        """Slots of rings, slices and sums."""
        flow, slices = self.dataflow, self.slices
        kept: dict[int, Ints] = {}  # per full map that is read: lowest row that this band or a later one reads
        loaded: dict[int, Ints] = {}  # per external map: rows that must be there in each band
        for i in bits(mask):
            for o in flow.operands[i]:
                if o.map in draft.head:
                    continue
                low = self._kept(o.reads, made[i].low)
                kept[o.map] = np.minimum(kept[o.map], low) if o.map in kept else low
                producer = flow.producer[o.map]
                if producer < 0 or not mask >> producer & 1:
                    stop = self._needed(o.reads, made[i].stop)
                    loaded[o.map] = np.maximum(loaded[o.map], stop) if o.map in loaded else stop
        needs = Needs({m: np.maximum(grid.most(stop - np.minimum(kept[m], stop)), 1) for m, stop in loaded.items()}, {}, {})
        for i in bits(mask):
            rows = made[i]
            for m in flow.results[i]:
                if m in draft.head:
                    needs.slices[m] = grid.most(rows.stop - rows.start)
                elif slices.needed(m):
                    needs.rings[m] = grid.most(rows.stop - (np.minimum(kept[m], rows.new) if m in kept else rows.new))
            if draft.summing >> i & 1:
                needs.sums[i] = grid.most(rows.stop - rows.start)
        return needs

    def _map_bytes(self, draft: Draft, needs: Needs) -> Ints:
        """Per number of bands: bytes of rings, and of the slices and sums of the largest segment."""
        slices = self.slices
        rings = [rows * slices.row_bytes[m] for m, rows in needs.rings.items()]
        scratch: dict[int, list[Ints]] = {}
        for m, rows in needs.slices.items():
            scratch.setdefault(draft.head[m], []).append(rows * slices.slice_bytes(m))
        for i, rows in needs.sums.items():
            scratch[draft.segment[i]].append(rows * slices.sum_bytes(i))
        segments = [np.add.reduce(parts) for parts in scratch.values()]
        return np.add.reduce([*rings, np.maximum.reduce(segments)]) if segments else np.add.reduce(rings)
