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

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from lfopt.ir import NEVER, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.bands.slicing import STARTS, Slicing, Start, Streamed
from lfopt.planning.nest.spans import BlockGrid, Ints, Spans, kept_from, spans_in_blocks
from lfopt.planning.nest.tree import (
    BlockLoop,
    Blocks,
    GroupNest,
    Held,
    Node,
    PartialSums,
    RowLeaf,
    Seq,
    Stream,
)

SLOTS = 2  # blocks in the place that weights pass through


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
    weight_bytes: int  # DRAM bytes of all constants


class BandedGroups:
    """Buffer needs and schedules of the groups of one dataflow in mode brr, memoised.

    Only `cheapest` asks for the size of the buffer. Slices of maps and blocks of weights are `width` channels
    wide: by default the narrowest on chip. `wide`: see `SliceSizes`. `most_macs`:
    multiply-accumulates that a group may do; None: as many as bands make again.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        hardware: Hardware,
        width: int | None = None,
        *,
        wide: bool = False,
        most_macs: Callable[[int], float] | None = None,
    ) -> None:
        self.dataflow = dataflow
        self.most_macs = most_macs
        self.slices = SliceSizes(dataflow, hardware, width or hardware.narrowest_block, wide=wide)
        self._grids: dict[int, BlockGrid] = {}
        self._latest: tuple[int, tuple[dict[str, int], dict[int, tuple[Streamed, ...]]]] = (0, ({}, {}))
        self._floors: dict[int, int] = {}
        self._least: dict[int, int] = {}
        self._choices: dict[int, tuple[Banded, ...]] = {}

    # -- what is asked ---------------------------------------------------------------------------------------

    def cheapest(self, mask: int, buffer_bytes: int) -> Banded | None:
        """The choice of fewest weight bytes that fits strictly, of equals of the least buffer; None if none.

        More buffer never gives more bytes.
        """
        if self.floor(mask) >= buffer_bytes or (
            mask not in self._choices and self._by_rows(mask) >= buffer_bytes
        ):
            return None
        return next((choice for choice in self.choices(mask) if choice.buffer_bytes < buffer_bytes), None)

    def like(self, mask: int, banded: Banded) -> Banded | None:
        """The same bands and start with the slices here; None if there are none."""
        choices = self._sized(mask, BlockGrid.even([banded.bands]))
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
        choices = self._sized(mask, BlockGrid.even([bands])) if starts else []
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
        """The least F_beta of any choice; NEVER if the group cannot run so."""
        if self.most_macs is None:
            return self._by_rows(mask)
        return min((choice.buffer_bytes for choice in self.choices(mask)), default=NEVER)

    def _by_rows(self, mask: int) -> int:
        """The least F_beta of any choice, whatever is made again; NEVER if the group cannot run so.

        Where all sinks have equally many rows, a band of several rows is made of bands of one row, and takes
        no less than any of them.
        """
        if mask not in self._least:
            heights = {self.dataflow.heights[i] for i in bits(self.dataflow.sinks(mask))}
            even = BlockGrid.even(heights) if len(heights) == 1 else None
            choices = self.choices(mask) if even is None else self._sized(mask, even, limited=False)
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

    def of_fewest_bands(self, mask: int, buffer_bytes: int) -> dict[int, Banded]:
        """By weight bytes: the choice of the fewest bands that fits strictly, of these the least buffer."""
        fitting = [choice for choice in self.candidates(mask) if choice.buffer_bytes < buffer_bytes]
        fitting.sort(key=lambda choice: (choice.bands, choice.buffer_bytes), reverse=True)
        return {choice.weight_bytes: choice for choice in fitting}

    # -- nest ------------------------------------------------------------------------------------------------

    def nest(self, mask: int, banded: Banded) -> GroupNest:
        """The nest of a choice."""
        draft = self.slices.draft(mask, banded.start)
        return self._nest(mask, draft, Blocks(banded.bands), resident=banded.resident)

    def _nest(self, mask: int, draft: Slicing, bands: Blocks, *, resident: bool) -> GroupNest:
        """A loop over bands, in it full operators and segments, which are loops over slices."""
        flow, (held, passing) = self.dataflow, self._constants(mask)
        streamed = frozenset(s.name for streamed in passing.values() for s in streamed)
        constants = {*held, *streamed} if resident else {*held}
        homes: dict[Held, Node] = {}
        parts: list[Node] = []
        for i in bits(mask):
            head = draft.segment.get(i)
            if head is None:
                parts.append(self._leaf(i, passes=not resident and i in passing, sums=False))
            elif head == i:
                parts.append(self._segment(mask, draft, i, () if resident else passing, homes))
        root = BlockLoop("rows", bands, Seq(tuple(parts)))
        maps = (m for m in flow.touched(mask) if self.slices.needed(m))
        for tensor in (*maps, *constants):
            homes.setdefault(tensor, root)
        streams = (Stream(root, streamed, SLOTS),) if streamed and not resident else ()
        return GroupNest(root, homes, streams, complete=True)

    def _segment(
        self, mask: int, draft: Slicing, head: int, passing: Container[int], homes: dict[Held, Node]
    ) -> BlockLoop:
        """The loop over the slices of one segment. `homes`: to which what it holds is added."""
        members = [i for i in bits(mask) if draft.segment.get(i) == head]
        summing = tuple(i for i in members if draft.summing >> i & 1)
        leaves = [self._leaf(i, passes=i in summing and i in passing, sums=True) for i in members]
        body = Seq(tuple(leaves))
        slices = self.slices.spans(self.dataflow.calls[head].result)
        loop = BlockLoop("channels", Blocks.of_size(slices.width, slices.channels), body, folds=summing)
        homes.update((m, body) for i in members for m in self.dataflow.results[i] if m in draft.head)
        homes.update((PartialSums(i), loop) for i in summing)
        return loop

    def _leaf(self, op: int, *, passes: bool, sums: bool) -> Node:
        """An operator: block by block as its weights pass, else all channels at once."""
        leaf = RowLeaf((op,), at_once=True)
        blocks = self.slices.blocks(op, sums=sums) if passes else None
        if blocks is None or len(blocks) == 1:
            return leaf
        return BlockLoop("channels", Blocks.of_size(blocks.width, blocks.channels), leaf)

    def candidates(self, mask: int) -> list[Banded]:
        """Every start and number of bands tried, with weights streaming and with all on chip."""
        tall = self._tallest(mask)
        if tall not in self._grids:
            self._grids[tall] = BlockGrid.up_to(tall)
        return self._sized(mask, self._grids[tall])

    # -- prices ----------------------------------------------------------------------------------------------

    def _tallest(self, mask: int) -> int:
        """Rows of the tallest sink."""
        return max((self.dataflow.heights[i] for i in bits(self.dataflow.sinks(mask))), default=1)

    def _sized(self, mask: int, grid: BlockGrid, *, limited: bool = True) -> list[Banded]:
        """See `candidates`; for the numbers of bands of one grid. `limited`: by `most_macs`."""
        choices: list[Banded] = []
        for start, draft in zip(STARTS, self.slices.drafts(mask), strict=True):
            if draft is None or (choices and not draft.forks):
                continue
            sliced = (m for m in draft.head if self.slices.leaves(m, mask))
            if all(self.slices.stored_evenly(m) for m in sliced):
                choices += self._priced(mask, start, draft, grid, limited=limited)
        return choices

    def _priced(
        self, mask: int, start: Start, draft: Slicing, grid: BlockGrid, *, limited: bool
    ) -> Iterator[Banded]:
        """Every number of bands of a grid, with weights streaming and with all on chip."""
        slices = self.slices
        tall = self._tallest(mask)
        held, passing = self._constants(mask)
        held_bytes = sum(held.values())
        all_bytes = self._all_constants(mask)
        pass_bytes = sum(slices.pass_bytes(i, sums=bool(draft.summing >> i & 1)) for i in passing)
        streaming = held_bytes + self._stream_bytes(draft, passing)
        spans = spans_in_blocks(
            self.dataflow,
            [*bits(mask)],
            grid,
            draft.head,
            self.dataflow.operands,
            self.dataflow.heights,
        )
        sizes = self._map_bytes(mask, draft, grid, spans).tolist()
        allowed = self._allowed(mask, grid, spans) if limited else None
        for way, (bands, maps) in enumerate(zip(grid.counts.tolist(), sizes, strict=True)):
            if allowed is not None and not allowed[way]:
                continue
            rows = -(-tall // bands)
            need = slices.hardware.buffer_need(maps, streaming)
            if pass_bytes and need < NEVER:
                weight = held_bytes + bands * pass_bytes
                yield Banded(
                    bands,
                    rows,
                    need,
                    start,
                    bands,
                    resident=False,
                    pass_bytes=pass_bytes,
                    weight_bytes=weight,
                )
            need = slices.hardware.buffer_need(maps, all_bytes)
            if need < NEVER:
                yield Banded(1, rows, need, start, bands, resident=True, pass_bytes=0, weight_bytes=all_bytes)

    def _allowed(self, mask: int, grid: BlockGrid, spans: Spans) -> np.ndarray | None:
        """(ways,) bool: whether no more is made again than may be; None where nothing limits that."""
        if self.most_macs is None:
            return None
        flow = self.dataflow
        total = np.zeros(grid.counts.size, np.int64)
        for i, own in spans.made.items():
            if flow.macs[i]:
                rows = grid.total(own.stop - own.start)
                total += -(-flow.macs[i] * rows // max(flow.heights[i], 1))
        return total <= self.most_macs(mask)

    def _map_bytes(self, mask: int, draft: Slicing, grid: BlockGrid, spans: Spans) -> Ints:
        """(ways,): bytes of full maps, and of the slices and sums of the largest segment.

        What `NestPrice.map_bytes` says of the nest, in a closed form: a search asks for thousands of groups.
        """
        flow = self.dataflow
        slices = self.slices
        full: list[Ints] = []
        segments: dict[int, list[Ints]] = {}
        for m, own in spans.loaded.items():
            rows = grid.most(own.stop - kept_from(spans.readers[m], own.stop))
            full.append(np.maximum(rows, 1) * slices.row_bytes[m])
        for i, own in spans.made.items():
            for m in flow.results[i]:
                if m in draft.head:
                    rows = grid.most(own.stop - own.start)
                    segments.setdefault(draft.head[m], []).append(rows * slices.slice_bytes(m))
                elif slices.needed(m):
                    kept = np.minimum(kept_from(spans.readers.get(m, ()), own.stop), own.new)
                    full.append(grid.most(own.stop - kept) * slices.row_bytes[m])
            if draft.summing >> i & 1:
                rows = grid.most(own.stop - own.start)
                segments.setdefault(draft.segment[i], []).append(rows * slices.sum_bytes(i))
        total = np.add.reduce(full)
        if not segments:
            return total
        return total + np.maximum.reduce([np.add.reduce(parts) for parts in segments.values()])

    def _constants(self, mask: int) -> tuple[dict[str, int], dict[int, tuple[Streamed, ...]]]:
        """See `SliceSizes.constants`; remembered of the last group that was asked about."""
        if self._latest[0] != mask:
            self._latest = mask, self.slices.constants(mask)
        return self._latest[1]

    def _all_constants(self, mask: int) -> int:
        """Bytes of all constants, each once: what stays where weights do not stream."""
        held, passing = self._constants(mask)
        streamed = {s.name: self.slices.constant_bytes[s.name] for names in passing.values() for s in names}
        return sum((held | streamed).values())

    def _stream_bytes(self, draft: Slicing, passing: Iterable[int]) -> int:
        """Bytes of the place that weights of these operators pass through."""
        blocks = (self.slices.block_bytes(i, sums=bool(draft.summing >> i & 1)) for i in passing)
        return SLOTS * max(blocks, default=0)

    def weights(self, mask: int) -> int:
        """The least bytes of constants on chip; NEVER if the group cannot run so."""
        held, passing = self._constants(mask)
        drafts = [draft for draft in self.slices.drafts(mask) if draft is not None]
        streaming = [sum(held.values()) + self._stream_bytes(draft, passing) for draft in drafts]
        if drafts:
            return min([*streaming, self._all_constants(mask)])
        return NEVER
