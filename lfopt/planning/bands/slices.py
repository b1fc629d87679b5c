"""Full and sliced maps of a group in bands of rows, constants that pass in blocks, and bounds on both.

A *full* map is on chip with all its channels, in a ring of rows. A *sliced* map is there `width` channels at
a time, and only inside its *segment*: the contraction that makes it from a full map, the operators that
follow it channel by channel, and the contractions that sum over it, slice by slice, into full maps. A map
that is all in one slice is full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TypeVar, cast, overload

from lfopt.ir import Box, Hardware, Span, cut, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import OPAQUE, Dataflow, Family, RowReads, Tiling, bits, same_axes
from lfopt.ops.footprint import footprint, footprints
from lfopt.planning.bands.channel_spans import ChannelSpans
from lfopt.planning.bands.slicing import STARTS, Slicing, SlicingFacts, Start, Streamed
from lfopt.planning.steps.layout import BufferLayout

T = TypeVar("T")
KEPT = 1 << 14  # drafts of groups that are remembered


class OnDemand(Sequence[T]):
    """`count` values by number, each made when it is first asked for."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._items = cast("list[T | None]", [None] * count)
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        """One of them, or several."""
        if isinstance(at, slice):
            return [self[k] for k in range(*at.indices(len(self)))]
        item = self._items[at]
        if item is None:
            item = self._items[at] = self._make(at)
        return item


class SliceSizes:
    """Drafts of the groups of one dataflow, and the sizes of slices, sums and weight blocks on one chip.

    `wide`: contractions that sum over slices add one to all of their output channels at once, and may see a
    map of one row and column as a vector.
    """

    def __init__(self, dataflow: Dataflow, hardware: Hardware, width: int, *, wide: bool = False) -> None:
        self.dataflow = dataflow
        self.hardware = hardware
        self.width = width  # channels
        self.wide = wide
        self.layout = BufferLayout(dataflow, hardware)
        self.row_bytes = [hardware.row_bytes(m) for m in dataflow.maps]
        self._by_slices: dict[tuple[int, int], bool] = {}
        self._blocks: dict[tuple[int, bool], int] = {}
        self._passes: dict[tuple[int, bool], int] = {}
        self._slice_bytes: dict[int, int] = {}
        self._drafts: dict[int, tuple[Slicing | None, Slicing | None]] = {0: (Slicing(), Slicing())}

    # -- groups ----------------------------------------------------------------------------------------------

    def draft(self, mask: int, start: Start) -> Slicing:
        """The group with one start, with which it must be able to run in bands."""
        draft = self.drafts(mask)[STARTS.index(start)]
        assert draft is not None, f"group {self.dataflow.names(mask)} cannot run in bands"
        return draft

    def drafts(self, mask: int) -> tuple[Slicing | None, Slicing | None]:
        """The group with either start.

        None where neither it nor any group that it is grown into can run in bands.
        """
        missing: list[int] = []
        part = mask
        while part not in self._drafts:
            missing.append(part.bit_length() - 1)
            part ^= 1 << missing[-1]
        drafts = self._drafts[part]
        for op in reversed(missing):
            sliced, full = drafts
            drafts = (
                sliced and self._grown(sliced, part, op, "sliced"),
                full and self._grown(full, part, op, "full"),
            )
            part |= 1 << op
            if len(self._drafts) >= KEPT:
                self._drafts = {0: self._drafts[0]}
            self._drafts[part] = drafts
        return drafts

    def _grown(self, draft: Slicing, mask: int, op: int, start: Start) -> Slicing | None:
        """The draft with an operator added whose index is above all others; None if it cannot run so."""
        flow = self.dataflow
        facts = self.facts[op]
        inside = [o for o in flow.operands[op] if flow.makes(mask, o.map)]
        if facts.never or (flow.heights[op] > 1 and any(flow.maps[o.map].rows == 1 for o in inside)):
            return None
        head = draft.head
        segment = draft.segment
        scratch = draft.scratch
        summing = draft.summing
        forks = draft.forks
        results = [m for m in flow.results[op] if self.needed(m)]
        # what follows a contraction in flight reads full maps
        sliced = [o for o in inside if not facts.contracts or self._own(op, o.input)]
        if any(o.map in head for o in inside if o not in sliced):
            return None
        sources = {head.get(o.map, -1) for o in sliced} or {-1}
        source = min(sources)
        if sources != {-1}:
            if len(sources) > 1 or not all(self.takes_slices(op, o.input) for o in sliced):
                return None
            segment = segment | {op: source}
            if facts.contracts:
                summing |= 1 << op
            else:
                head = head | dict.fromkeys(results, source)
        elif facts.contracts:
            first = not flow.preds[op] & draft.deep
            several = len(self.spans(flow.calls[op].result)) > 1
            forks |= first and several
            if several and (start == "sliced" or not first):
                source = op
                segment = segment | {op: op}
                scratch = scratch | {op: 0}
                head = head | dict.fromkeys(results, op)
        rows = dict(draft.rows)
        full_bytes = draft.full_bytes
        more = self.sum_bytes(op) if summing >> op & 1 and facts.computes else 0  # bytes of the segment
        inputs = [(o.map, 1) for o in flow.operands[op] if o not in inside]  # they pass even if unread
        for m, least in (*facts.least_held, *inputs, *((m, int(facts.computes)) for m in results)):
            added = least - rows.get(m, 0)
            if added > 0:
                rows[m] = least
                if m in head:
                    more += added * self.slice_bytes(m)
                else:
                    full_bytes += added * self.row_bytes[m]
        held = draft.held | frozenset(facts.held) if facts.held else draft.held
        return Slicing(
            head,
            segment,
            summing,
            draft.deep | (1 << op if facts.contracts or flow.preds[op] & draft.deep else 0),
            forks,
            rows,
            full_bytes,
            scratch | {source: scratch[source] + more} if more else scratch,
            max(
                draft.block_bytes,
                self.hardware.buffer_need(0, self.block_bytes(op, sums=bool(summing >> op & 1))),
            ),
            held,
            draft.held_bytes
            + sum(self.hardware.buffer_need(0, self.constant_bytes[name]) for name in held - draft.held),
        )

    def needed(self, m: int) -> bool:
        """Whether the map has readers, or is an output of the network."""
        return self.dataflow.is_output[m] or bool(self.dataflow.readers[m])

    def leaves(self, m: int, mask: int) -> bool:
        """Whether a map made in the group is needed outside."""
        return self.dataflow.is_output[m] or bool(self.dataflow.readers[m] & ~mask)

    def constants(
        self, mask: int, *, apart: bool = False
    ) -> tuple[dict[str, int], dict[int, tuple[Streamed, ...]]]:
        """(bytes of constants held whole, by name; constants that pass in blocks, by operator).

        Weights stream. Those that several operators of the group read are held; `apart`: the others of such
        an operator pass nevertheless.
        """
        facts = [(i, self.facts[i]) for i in bits(mask)]
        readers: dict[str, int] = {}
        for _, own_facts in facts:
            for name in (*(s.name for s in own_facts.streamed), *own_facts.held):
                readers[name] = readers.get(name, 0) + 1
        held: dict[str, int] = {}
        passing: dict[int, tuple[Streamed, ...]] = {}
        for i, own_facts in facts:
            own = tuple(s for s in own_facts.streamed if readers[s.name] == 1)
            if own and (apart or own == own_facts.streamed):
                passing[i] = own
            names = (*own_facts.held, *(s.name for s in own_facts.streamed if s not in passing.get(i, ())))
            held |= {name: self.constant_bytes[name] for name in names}
        return held, passing

    # -- operators -------------------------------------------------------------------------------------------

    @cached_property
    def facts(self) -> OnDemand[SlicingFacts]:
        """Per operator.

        There is a `SliceSizes` for every width that some group tries: the network has many operators, the
        group few.
        """
        return OnDemand(
            len(self.dataflow),
            lambda op: self._facts(op, self.dataflow.least_rows[op], dense=self._dense[op]),
        )

    @cached_property
    def _dense(self) -> list[bool]:
        """Per operator: whether no reader leaves gaps in its rows."""
        flow = self.dataflow
        dense = [True] * len(self.dataflow)
        # backwards: an operator's readers come before it
        for i in reversed(range(len(flow))):
            passes = dense[i] or self._contracts(i)
            for operand in flow.operands[i]:
                maker = flow.producer[operand.map]
                if maker >= 0 and dense[maker]:
                    dense[maker] = passes and without_gaps(operand.reads)
        return dense

    def _contracts(self, op: int) -> bool:
        """Whether it sums over the input channels of one map.

        With constant weights that fall into parts by output channels.
        """
        flow = self.dataflow
        call = self.dataflow.calls[op]
        if (
            flow.specs[op].tiling is not Tiling.CONTRACT
            or not call.constant[1]
            or call.attribute("group", 1) != 1
            or not self._makes_channels(op)
        ):
            return False
        return [o.input for o in flow.operands[op] if self._own(op, o.input)] == [0]

    def _facts(self, op: int, least: int, *, dense: bool) -> SlicingFacts:
        flow = self.dataflow
        call = self.dataflow.calls[op]
        never = (
            flow.specs[op] is OPAQUE
            or any(w.gathered for w in flow.weights[op])
            or not any(self.needed(m) for m in flow.results[op])
            or any(flow.maps[m].rows != flow.heights[op] for m in flow.results[op])
        )
        names = tuple(dict.fromkeys(w.name for w in flow.weights[op] if not w.gathered))
        contracts = self._contracts(op)
        streamed = tuple[Streamed, ...]()
        if flow.specs[op].tiling is Tiling.CONTRACT and call.constant[1] and self._makes_channels(op):
            constants = [(k, name) for k, name in enumerate(call.inputs) if name in names]
            if all(self._falls_apart(op, k) for k, _ in constants):
                streamed = tuple(Streamed(k, name, late=k > 1) for k, name in constants)
        held = [
            (o.map, o.reads.widest[least] if dense else _narrowest(o.reads, least)) for o in flow.operands[op]
        ]
        return SlicingFacts(
            never,
            contracts,
            contracts and self._sums(op),
            streamed,
            () if streamed else names,
            least > 0,
            least if dense else 0,
            tuple(held),
        )

    def _makes_channels(self, op: int) -> bool:
        """Whether a contraction's output channels lie along the channel axis of its result.

        And the weights of any span of them are one box.
        """
        call = self.dataflow.calls[op]
        row = self.dataflow.specs[op]
        rank = len(call.result)
        convolves = row.family is Family.CONVOLUTION
        scattered = row.transposed and call.attribute("group", 1) > 1 and call.shape(1)[1] > 1
        return (
            CHANNEL_AXIS_OF_RANK.get(rank) == (1 if convolves else rank - 1)
            and len(call.shape(1)) > 1
            and not scattered
        )

    def _falls_apart(self, op: int, index: int) -> bool:
        """Whether a constant falls into parts by output channels as the result does."""
        call = self.dataflow.calls[op]
        spans = self.spans(call.result)
        name = call.inputs[index]
        first, last = (footprint(call, index, self.result_box(op, span)) for span in (spans[0], spans[-1]))
        return call.inputs.count(name) == 1 and (len(spans) == 1 or first != last)

    def _sums(self, op: int) -> bool:
        """Whether the input channels of a contraction lie along the channel axis of the map that it reads."""
        flow = self.dataflow
        call = self.dataflow.calls[op]
        shape = call.shape(0)
        axis = CHANNEL_AXIS_OF_RANK.get(len(call.shape(0)))
        map_shape = flow.maps[flow.operands[op][0].map].shape
        if axis is None:
            return False
        if map_shape != shape:
            channels = CHANNEL_AXIS_OF_RANK.get(len(map_shape)), axis
            if not self.wide or channels not in (same_axes(map_shape, shape) or ()):
                return False
        every = footprint(call, 0, whole(call.result))
        return all(
            footprint(call, 0, whole(call.result), inputs=span) == cut(every, axis, span)
            for span in self.spans(shape)[:2]
        )

    def takes_slices(self, op: int, index: int) -> bool:
        """Whether the operator can take this operand slice by slice.

        To sum over it, or to make the same channels of its results.
        """
        key = op, index
        if key not in self._by_slices:
            facts = self.facts[op]
            self._by_slices[key] = (
                facts.sums and self._own(op, index) if facts.contracts else self.is_local(op, index)
            )
        return self._by_slices[key]

    def _reads_as_made(self, op: int, index: int) -> bool:
        """Whether an operand is read in the shape in which it is made, not as a view."""
        flow = self.dataflow
        source = next(flow.maps[o.map] for o in flow.operands[op] if o.input == index)
        return source.shape == flow.calls[op].shape(index)

    def _own(self, op: int, index: int) -> bool:
        """Whether an input is the operator's own, not one of what follows it in flight."""
        return index < len(self.dataflow.calls[op].operator.inputs)

    def is_local(self, op: int, index: int) -> bool:
        """Whether channels of every result depend on just the same channels of this operand."""
        call = self.dataflow.calls[op]
        shape = call.shape(index)
        axis = CHANNEL_AXIS_OF_RANK.get(len(call.shape(index)))
        if (
            axis is None
            or not self._reads_as_made(op, index)
            or any(len(s) != len(shape) or s[axis] != shape[axis] for s in call.results)
        ):
            return False
        spans = self.spans(shape)
        probes = {spans[0], spans[len(spans) // 2], spans[-1]}
        return all(
            footprints(call, index, tuple(cut(whole(s), axis, span) for s in call.results))[axis] == span
            for span in probes
        )

    # -- sizes -----------------------------------------------------------------------------------------------

    def spans(self, shape: tuple[int, ...]) -> ChannelSpans:
        """Channels of a map, `width` at a time."""
        return ChannelSpans(shape[CHANNEL_AXIS_OF_RANK[len(shape)]], self.width)

    def blocks(self, op: int, *, sums: bool) -> ChannelSpans:
        """Output channels of the weight blocks of an operator."""
        shape = self.dataflow.calls[op].result
        channels = shape[CHANNEL_AXIS_OF_RANK[len(shape)]]
        if sums and self.wide:
            return ChannelSpans(channels, channels)
        return self.spans(shape)

    def result_box(self, op: int, span: Span) -> Box:
        """Box of some channels of an operator's first result."""
        result = self.dataflow.calls[op].result
        return cut(whole(result), CHANNEL_AXIS_OF_RANK[len(result)], span)

    def slice_bytes(self, m: int) -> int:
        """Bytes of one row of one slice of a map on chip."""
        if m not in self._slice_bytes:
            shape = self.dataflow.maps[m].shape
            self._slice_bytes[m] = self.layout.row_on_chip(
                cut(whole(shape), CHANNEL_AXIS_OF_RANK[len(shape)], self.spans(shape)[0])
            )
        return self._slice_bytes[m]

    def stored_evenly(self, m: int) -> bool:
        """Whether a map stored in slices moves no more bytes than in whole rows, padding in DRAM included."""
        if self.hardware.dram_row_align == 1:
            return True
        shape = self.dataflow.maps[m].shape
        axis = CHANNEL_AXIS_OF_RANK[len(shape)]
        return sum(
            times * self.layout.map_bytes(cut(whole(shape), axis, span))
            for span, times in self.spans(shape).by_width()
        ) == self.layout.map_bytes(whole(shape))

    def sum_bytes(self, op: int) -> int:
        """Bytes of the partial sums of one row of a contraction that sums over slices."""
        return self.hardware.sums_bytes(self.row_bytes[self.dataflow.results[op][0]])

    def block_bytes(self, op: int, *, sums: bool) -> int:
        """Bytes of the largest weight block; if the operator sums over slices, of `width` input channels."""
        key = op, sums
        if key not in self._blocks:
            call = self.dataflow.calls[op]
            streamed = self.facts[op].streamed
            largest = 0
            spans = self.spans(call.shape(0)) if sums else [None]
            for span in (spans[0], spans[-1]) if streamed else ():
                out = self.result_box(op, self.blocks(op, sums=sums)[0])
                boxes = (
                    (s.name, footprint(call, s.input, out, inputs=None if s.late else span))
                    for s in streamed
                    if span == spans[-1] or not s.late
                )
                largest = max(largest, sum(self.layout.constant_bytes(name, box) for name, box in boxes))
            self._blocks[key] = largest
        return self._blocks[key]

    def pass_bytes(self, op: int, *, sums: bool) -> int:
        """DRAM bytes of the constants of an operator when they pass once, block by block."""
        streamed = self.facts[op].streamed
        if not self.hardware.pads_constants:
            return sum(self.constant_bytes[s.name] for s in streamed)
        key = op, sums
        if key not in self._passes:
            call = self.dataflow.calls[op]
            whole_sums: Sequence[tuple[Span | None, int]] = [(None, 1)]
            inputs = self.spans(call.shape(0)).by_width() if sums else whole_sums
            total = 0
            for out, times in self.blocks(op, sums=sums).by_width():
                box = self.result_box(op, out)
                for s in streamed:
                    parts = (
                        (footprint(call, s.input, box, inputs=span), n)
                        for span, n in (whole_sums if s.late else inputs)
                    )
                    total += times * sum(n * self.layout.constant_bytes(s.name, part) for part, n in parts)
            self._passes[key] = total
        return self._passes[key]

    @cached_property
    def read_by_several(self) -> frozenset[str]:
        """Constants that several operators read as data."""
        uses = Counter(name for weights in self.dataflow.weights for name in {w.name for w in weights})
        return frozenset(name for name, count in uses.items() if count > 1)

    @cached_property
    def constant_bytes(self) -> dict[str, int]:
        """Bytes of every constant that is read as data, whole."""
        flow = self.dataflow
        names = {w.name for weights in flow.weights for w in weights if not w.gathered}
        return {name: self.layout.constant_bytes(name, whole(flow.graph.shape(name))) for name in names}


@cache
def without_gaps(reads: RowReads) -> bool:
    """Whether successive rows, from the first on, read rows that touch or overlap."""
    return reads.keep[0] == 0 and all(
        low <= need for low, need in zip(reads.keep[1:-1], reads.need, strict=False)
    )


def _narrowest(reads: RowReads, least: int) -> int:
    """Least rows on chip at once for a reader known to compute one row, the `least`-th or a later one."""
    if least:
        return min(
            (
                max(need - low, 0)
                for need, low in zip(reads.need[least - 1 :], reads.keep[least - 1 :], strict=False)
            ),
            default=0,
        )
    return 0
