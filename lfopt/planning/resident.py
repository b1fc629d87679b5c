"""Buffer and schedule of a group that runs operator by operator with its maps whole on chip.

Every map stays on chip from the step that makes or loads it to the last operator of the group that reads it;
nothing is computed in place. Weights pass once, block by block, through a place of two slots, so that a block
can be loaded while the one before it is used. A constant that several operators of the group read is loaded
once and stays from the first of them to the last, like a map.

    F_beta = top of the address map  +  two of the largest weight blocks
    F_D    = external inputs once each  +  maps needed outside once each  +  weights and biases once, each
                                           block rounded up as blocks are
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from lfopt.ir import Box, BufferUse, Hardware, Span, Store, cut, whole
from lfopt.ops import Dataflow, Family, Tiling, bits
from lfopt.ops.footprint import footprint
from lfopt.planning.groups.compatibility import parts
from lfopt.planning.nest.tree import BlockLoop, Blocks, GroupNest, Node, RowLeaf, Seq, Stream
from lfopt.planning.steps.addresses import Life, allocate, peak_bytes
from lfopt.planning.steps.layout import BufferLayout

SLOTS = 2  # blocks in the place that weights pass through
# constants of one operator that others read too: with more of them, its least weight block counts as 0
MOST_SHARED = 6


class Peak(NamedTuple):
    """Lower bound on the buffer of a group, however it grows by operators of higher index."""

    # (operator, bytes on chip while it runs) of those that no later operator reaches: bytes fall
    steps: tuple[tuple[int, int], ...] = ()
    slice_bytes: int = 0  # of the place that weights pass through

    @property
    def bytes(self) -> int:
        """The bound."""
        return (self.steps[0][1] if self.steps else 0) + self.slice_bytes


class Resident:
    """Buffer needs and schedules of the groups of one dataflow, memoised.

    Nothing depends on the size of the buffer.

    Blocks of weights are `width` output channels wide: by default the narrowest on chip.
    """

    def __init__(self, dataflow: Dataflow, hardware: Hardware, width: int | None = None) -> None:
        self.dataflow = dataflow
        self.width = width or hardware.narrowest_block
        self.layout = BufferLayout(dataflow, hardware)
        self._map_bytes = [m.rows * hardware.row_bytes(m) for m in dataflow.maps]
        self._constants = [
            tuple(dict.fromkeys(w.name for w in weights if not w.gathered)) for weights in dataflow.weights
        ]
        self._readers: dict[str, int] = {}  # per constant: mask of operators
        for i, names in enumerate(self._constants):
            for name in names:
                self._readers[name] = self._readers.get(name, 0) | 1 << i
        self._sizes = {
            name: self.layout.constant_bytes(name, whole(dataflow.graph.shape(name)))
            for name in self._readers
        }
        self._pinned = [frozenset(_uncut(dataflow, i, names)) for i, names in enumerate(self._constants)]
        shareable = {name for name, readers in self._readers.items() if readers & (readers - 1)}
        # per operator: constants that others read too
        self._shareable = [tuple(name for name in names if name in shareable) for names in self._constants]
        self._with_shareable = sum(1 << i for i, names in enumerate(self._shareable) if names)
        self._passing = [self._least_slice(i) for i in range(len(dataflow))]
        # buffer bytes: of the place that weights of each operator pass through, of each constant whole
        self._slice = [hardware.buffer_need(0, size) for size in self._passing]
        self._whole = {name: hardware.buffer_need(0, size) for name, size in self._sizes.items()}
        self._touched = [self._bytes_touched(i) for i in range(len(dataflow))]
        self._operands = [tuple(dict.fromkeys(o.map for o in operands)) for operands in dataflow.operands]
        self._users = [
            readers | (1 << p if p >= 0 else 0)
            for readers, p in zip(dataflow.readers, dataflow.producer, strict=True)
        ]
        self._slices: dict[tuple[int, frozenset[str]], int] = {}
        self._paddings: dict[tuple[int, frozenset[str]], int] = {}
        self._needs: dict[int, int] = {}
        # by map and users of it: operators while which it stays
        self._lasting: dict[tuple[int, int], int] = {}

    # -- what a group takes ----------------------------------------------------------------------------------

    def need(self, mask: int) -> int:
        """F_beta in bytes: the top of the address map, and the place that weights pass through."""
        size = self._needs.get(mask)
        if size is None:
            ends = self._addresses(self.lives(mask))[1]
            weights = ends.get("weight buffer", 0) + self.slice_bytes(mask)
            size = self._needs[mask] = self.layout.hardware.buffer_need(ends["buffer"], weights)
        return size

    def least_in_any_order(self, mask: int) -> int:
        """Lower bound on the buffer bytes of every group that holds these operators, in any order.

        While one of them runs, maps are there that it touches, and those that are used before it and read
        after it in every order.
        """
        held = dict.fromkeys(bits(mask), 0)  # bytes of maps while an operator runs
        touched = {m for i in held for m in (*self._operands[i], *self.dataflow.results[i])}
        for m in touched:
            users = self._users[m] & mask
            for i in bits(users | self._between(m, users) & mask):
                held[i] += self._map_bytes[m]
        passing = max((self._slice[i] for i in bits(mask & ~self._with_shareable)), default=0)
        return max(held.values(), default=0) + passing

    def _between(self, m: int, users: int) -> int:
        """Operators behind one of some users of a map, and before one that reads it, in every order."""
        key = m, users
        if key not in self._lasting:
            flow = self.dataflow
            descendants = 0
            for i in bits(users):
                descendants |= flow.descendants[i]
            ancestors = 0
            for i in bits(users & flow.readers[m]):
                ancestors |= flow.ancestors[i]
            self._lasting[key] = descendants & ancestors
        return self._lasting[key]

    def weights(self, mask: int) -> int:
        """Bytes of constants in a weight buffer of their own.

        The top of its address map, and the place that weights pass through.
        """
        return self._addresses(self.lives(mask))[1].get("weight buffer", 0) + self.slice_bytes(mask)

    def _addresses(self, lives: dict[int | str, Life]) -> tuple[dict[int | str, int], dict[Store, int]]:
        """Addresses in bytes of all that is whole on chip, and the end in each buffer."""
        hardware = self.layout.hardware
        addresses = dict[int | str, int]()
        ends = dict[Store, int]()
        for store in hardware.stores:
            keys = [
                key
                for key in lives
                if hardware.store_of("map" if isinstance(key, int) else "weight") == store
            ]
            starts, ends[store] = allocate([lives[key] for key in keys])
            addresses |= dict(zip(keys, starts, strict=True))
        return addresses, ends

    def live_bytes(self, mask: int) -> int:
        """The most bytes alive at once, without the weights that pass through: no address map ends lower."""
        return peak_bytes(self.lives(mask).values())

    def need_of_lives(self, mask: int) -> int:
        """F_beta in bytes if addresses left no gaps: never more than `need`, and seldom less."""
        hardware = self.layout.hardware
        lives = self.lives(mask)
        maps = [life for key, life in lives.items() if isinstance(key, int)]
        constants = [life for key, life in lives.items() if isinstance(key, str)]
        slices = self.slice_bytes(mask)
        if hardware.weight_buffer_bytes:
            return hardware.buffer_need(peak_bytes(maps), peak_bytes(constants) + slices)
        return hardware.buffer_need(peak_bytes(lives.values()), slices)

    def lives(self, mask: int) -> dict[int | str, Life]:
        """Maps (by index) and constants (by name) that lie whole on chip, and while which operators."""
        flow = self.dataflow
        lives = dict[int | str, Life]()
        for i in bits(mask):
            for m in (*self._operands[i], *flow.results[i]):
                if m not in lives:
                    last = (flow.readers[m] & mask).bit_length() - 1
                    lives[m] = Life(self._map_bytes[m], i, max(last, i))
            for name in self._constants[i]:
                readers = self._readers[name] & mask
                if name not in lives and (readers & (readers - 1) or name in self._pinned[i]):
                    lives[name] = Life(self._sizes[name], i, readers.bit_length() - 1)
        return lives

    def slice_bytes(self, mask: int) -> int:
        """Bytes of the place that weights pass through: two of the largest block."""
        largest = max((self._passing[i] for i in bits(mask & ~self._with_shareable)), default=0)
        for i in bits(mask & self._with_shareable):
            kept = frozenset(name for name in self._shareable[i] if (self._readers[name] & mask) != 1 << i)
            if (i, kept) not in self._slices:
                self._slices[i, kept] = self._first_slice(i, kept)
            largest = max(largest, self._slices[i, kept])
        return largest

    def padding(self, mask: int) -> int:
        """DRAM bytes that rounding up each block of weights adds to the group's weights whole."""
        if not self.layout.hardware.pads_constants:
            return 0
        total = 0
        for i in bits(mask):
            key = i, frozenset(name for name in self._shareable[i] if (self._readers[name] & mask) != 1 << i)
            if key not in self._paddings:
                self._paddings[key] = self._padding(*key)
            total += self._paddings[key]
        return total

    def _padding(self, op: int, kept: frozenset[str]) -> int:
        blocks = self._blocks(op, kept)
        spans = [None] if blocks is None else blocks.spans(blocks.extent)
        parts = [pair for span in spans for pair in self._block(op, kept, span)]
        return sum(self.layout.constant_bytes(name, box) for name, box in parts) - sum(
            self._sizes[name] for name in dict(parts)
        )

    def uses(self, mask: int) -> Iterator[BufferUse]:
        """The breakdown of F_beta: what is on chip at its peak, and the weight blocks that pass through."""
        flow = self.dataflow
        lives = self.lives(mask)
        apart = bool(self.layout.hardware.weight_buffer_bytes)
        # lives in the buffer itself
        counted = [life for key, life in lives.items() if isinstance(key, int) or not apart]
        fullest = max(
            bits(mask), key=lambda i: sum(life.bytes for life in counted if life.first <= i <= life.last)
        )
        held = {key: life for key, life in lives.items() if life.first <= fullest <= life.last}
        for m, life in held.items():
            if isinstance(m, int):
                yield BufferUse(
                    flow.maps[m].name,
                    "map",
                    flow.maps[m].rows,
                    life.bytes // max(flow.maps[m].rows, 1),
                    life.bytes,
                )
        for name, life in held.items():
            if isinstance(name, str):
                yield BufferUse(name, "weights", 0, 0, life.bytes)
        if passing := self.slice_bytes(mask):
            yield BufferUse(
                flow.operators[max(bits(mask), key=lambda i: self.slice_bytes(1 << i))].name,
                "weights",
                0,
                0,
                passing,
            )

    # -- bounds ----------------------------------------------------------------------------------------------

    def grow(self, mask: int, peak: Peak, op: int) -> Peak:
        """The bound of the group with an operator added whose index is above all others in it.

        Whatever is on chip while an operator runs still is when the group grows so: lives only get longer,
        and inputs stay inputs, since their producers come before their readers. Of two operators, the later
        one with at least as many bytes stays ahead, because a life that becomes longer reaches from its old
        end to the new operator. Constants that several operators read count once two of them are there: until
        then, they may yet pass in blocks.
        """
        here = self._touched[op]
        longer: list[tuple[int, int]] = []  # (last operator that has the bytes already, bytes)
        last = peak.steps[-1][0] if peak.steps else -1
        for m in self._operands[op]:
            if users := self._users[m] & mask:
                end = users.bit_length() - 1
                if end < last:
                    longer.append((end, self._map_bytes[m]))
        if mask & self._with_shareable:
            for name in self._shareable[op]:
                if users := self._readers[name] & mask:
                    end = users.bit_length() - 1
                    alone = users == 1 << end and name not in self._pinned[end]
                    longer.append((end - alone, self._whole[name]))
                    here += 0 if name in self._pinned[op] else self._whole[name]
        steps: list[tuple[int, int]] = [(op, here)]
        for i, live in reversed(peak.steps):
            for end, size in longer:
                if end < i:
                    live += size
            if live > steps[-1][1]:
                steps.append((i, live))
        return Peak(tuple(reversed(steps)), max(peak.slice_bytes, self._slice[op]))

    def least(self, mask: int) -> int:
        """Lower bound on the buffer bytes of a whole group."""
        peak = Peak()
        done = 0
        for i in bits(mask):
            peak = self.grow(done, peak, i)
            done |= 1 << i
        return peak.bytes

    def compatible(self, limit: int) -> list[int]:
        """Per operator: operators, itself included, that may share a group below `limit` bytes of buffer.

        A group that holds two operators is connected by a path between them; on it the operator that touches
        the most bytes, and the place for the largest weight block, must fit together.
        """
        compatible = [1 << i for i in range(len(self.dataflow))]
        for size in sorted(set(self._slice)):
            inside = sum(
                1 << i
                for i in range(len(compatible))
                if self._slice[i] <= size and self._touched[i] + size < limit
            )
            compatible = [a | b for a, b in zip(compatible, parts(self.dataflow, inside), strict=True)]
        return compatible

    def _bytes_touched(self, op: int) -> int:
        """Bytes of buffer that are whole on chip while the operator runs, in any group."""
        flow = self.dataflow
        maps = {*(o.map for o in flow.operands[op]), *flow.results[op]}
        return sum(self._map_bytes[m] for m in maps) + sum(self._whole[name] for name in self._pinned[op])

    def _least_slice(self, op: int) -> int:
        """Lower bound in bytes on the place that an operator's weights pass through, in any group.

        Those that others read too may be kept whole instead, or not.
        """
        shareable = self._shareable[op]
        if len(shareable) > MOST_SHARED:
            return 0
        choices = (
            frozenset(kept) for count in range(len(shareable) + 1) for kept in combinations(shareable, count)
        )
        return min(self._first_slice(op, kept) for kept in choices)

    def _first_slice(self, op: int, kept: frozenset[str]) -> int:
        blocks = self._blocks(op, kept)
        first = None if blocks is None else blocks.span(0, blocks.extent)  # no later block is larger
        return SLOTS * sum(
            self.layout.constant_bytes(name, box) for name, box in self._block(op, kept, first)
        )

    # -- nest ------------------------------------------------------------------------------------------------

    def nest(self, mask: int) -> GroupNest:
        """A part for each operator, in a loop over the blocks of its weights; maps live between parts."""
        flow = self.dataflow
        lives = self.lives(mask)
        parts: list[Node] = []
        passing: set[str] = set()
        for i in bits(mask):
            leaf = RowLeaf((i,), at_once=True)
            kept = frozenset(name for name in self._constants[i] if name in lives)
            passing.update(name for name in self._constants[i] if name not in lives)
            blocks = None if any(w.gathered for w in flow.weights[i]) else self._blocks(i, kept)
            parts.append(leaf if blocks is None or blocks.count == 1 else BlockLoop("outputs", blocks, leaf))
        root = Seq(tuple(parts), lives=True)
        streams = (Stream(root, frozenset(passing), SLOTS),) if passing else ()
        return GroupNest(root, dict.fromkeys(lives, root), streams)

    def _blocks(self, op: int, kept: frozenset[str]) -> Blocks | None:
        """Output channels of an operator's weight blocks; None: all channels at once.

        Blocks of constants that are kept whole are left out.
        """
        weight = _cut_weight(self.dataflow, op)
        if weight is None or weight in kept or weight in self._pinned[op]:
            return None
        return _channel_blocks(self.dataflow, op, self.width)

    def _block(self, op: int, kept: frozenset[str], span: Span | None) -> Iterator[tuple[str, Box]]:
        """(constant, box in its own axes) of one weight block, one after the other."""
        flow = self.dataflow
        for name in self._constants[op]:
            if name not in kept and name not in self._pinned[op]:
                whole_box = whole(flow.graph.shape(name))
                index = flow.calls[op].inputs.index(name)
                yield (
                    name,
                    whole_box
                    if span is None
                    else footprint(flow.calls[op], index, _channels(flow, op, span)),
                )


# -- weights by output channels ------------------------------------------------------------------------------


def _cut_weight(flow: Dataflow, op: int) -> str | None:
    """The constant second operand of a contraction, cut by output channels; None if there is none."""
    call = flow.calls[op]
    if flow.specs[op].tiling is not Tiling.CONTRACT or not call.constant[1] or len(call.shape(1)) < 2:
        return None
    name = call.operator.inputs[1]
    if any(w.name == name for w in flow.weights[op]):
        return name
    return None


def _uncut(flow: Dataflow, op: int, names: Sequence[str]) -> Iterator[str]:
    """Constants that must be whole on chip while the operator runs.

    They do not fall into output channels as its weights do.
    """
    if _cut_weight(flow, op) is None:
        return
    inputs = flow.calls[op].inputs
    call = flow.calls[op]
    blocks = _channel_blocks(flow, op, 1)
    ends = [_channels(flow, op, blocks.span(block, blocks.extent)) for block in (0, -1)]
    for name in names:
        parts = {footprint(call, inputs.index(name), channels) for channels in ends}
        if inputs.count(name) > 1 or len(parts) < min(blocks.count, 2):
            yield name


def _channel_axis(flow: Dataflow, op: int) -> int:
    if flow.specs[op].family is Family.CONVOLUTION:
        return 1
    return -1


def _channels(flow: Dataflow, op: int, span: Span) -> Box:
    """Box of some output channels of a contraction's result."""
    return cut(whole(flow.calls[op].result), _channel_axis(flow, op), span)


def _channel_blocks(flow: Dataflow, op: int, width: int) -> Blocks:
    """Output channels, `width` at a time.

    A block of a ConvTranspose lies within one group, where its weights are one box.
    """
    call = flow.calls[op]
    channels = call.result[_channel_axis(flow, op)]
    return Blocks.of_size(width, channels, call.shape(1)[1] if flow.specs[op].transposed else 0)
