"""Blocks around a barrier (squeeze-and-excite): a map is reduced over its rows, then gated by the result.

    ahead      operators that make the map, channel by channel; the first may be a contraction, the *head*,
               which reads all channels of its operand
    folds      reductions of the map over its rows
    vectors    operators on one-row maps, from what the folds make to what gates
    behind     operators that take the map and the vectors, channel by channel, the first of them the gate
    tail       a contraction that sums over the channels of what those make

A group of a block has folds, vectors and gate; some last operators of those ahead; some first ones of those
behind, and the tail if it has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from lfopt.ops import bits
from lfopt.ops.rows import same_row
from lfopt.planning.bands.slices import SliceSizes


@dataclass(frozen=True)
class GatedBlock:
    """Operators around a barrier, by index: all of a block, or those of a group."""

    map: int  # index of the map that is reduced, and gated
    ahead: tuple[int, ...]  # in the order in which they run, as in all fields
    folds: tuple[int, ...]
    vectors: tuple[int, ...]
    behind: tuple[int, ...]
    tail: int  # operator; -1: none
    head: bool  # whether the first of `ahead` reads all channels of a map

    @property
    def last(self) -> int:
        """The operator whose result leaves."""
        if self.tail < 0:
            return self.behind[-1]
        return self.tail

    @cached_property
    def core(self) -> int:
        """Mask of the operators that no group of the block lacks."""
        return sum(1 << i for i in (*self.folds, *self.vectors, self.behind[0]))

    @cached_property
    def operators(self) -> tuple[int, ...]:
        """All operators, in the order in which they run."""
        return (
            *self.ahead,
            *self.folds,
            *self.vectors,
            *self.behind,
            *((self.tail,) if self.tail >= 0 else ()),
        )

    @cached_property
    def members(self) -> int:
        """Mask of all operators."""
        return sum(1 << i for i in self.operators)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """Masks of all groups of the block."""
        behind = [self.behind[:count] for count in range(1, len(self.behind) + 1)]
        if self.tail >= 0:
            behind.append((*self.behind, self.tail))
        ahead = (self.ahead[first:] for first in range(len(self.ahead) + 1))
        return tuple(self.core | sum(1 << i for i in (*some, *others)) for some in ahead for others in behind)

    def part(self, mask: int) -> GatedBlock | None:
        """The group of these operators; None if it is none of the block, or has not all that it must have."""
        if mask not in self.groups:
            return None
        ahead, behind = (tuple(i for i in some if mask >> i & 1) for some in (self.ahead, self.behind))
        tail = self.tail if self.tail >= 0 and mask >> self.tail & 1 else -1
        return replace(
            self, ahead=ahead, behind=behind, tail=tail, head=self.head and len(ahead) == len(self.ahead)
        )


class Gates:
    """The blocks of one dataflow. Each is found by its reductions."""

    def __init__(self, slices: SliceSizes) -> None:
        self.slices = slices
        self.flow = slices.dataflow

    @cached_property
    def blocks(self) -> tuple[GatedBlock, ...]:
        """All blocks, as large as they can be."""
        flow = self.flow
        read = dict.fromkeys(o.map for i in bits(flow.running) for o in flow.operands[i])
        return tuple(block for m in read if (block := self._around(m)) is not None)

    @cached_property
    def by_folds(self) -> dict[int, GatedBlock]:
        """Blocks by the mask of their reductions."""
        return {sum(1 << i for i in block.folds): block for block in self.blocks}

    def find(self, mask: int) -> GatedBlock | None:
        """A group that is one of a block; None if it is not."""
        block = self.by_folds.get(mask & self.flow.running)
        if block is not None:
            return block.part(mask)
        return None

    def others(self) -> Iterator[int]:
        """Masks of operators of which a group of a cover may be a block, and that are in none of the network.

        There something else reads one of their maps as well.
        """
        flow = self.flow
        for fold in bits(flow.running):
            m = flow.operands[fold][0].map
            for gate in bits(flow.readers[m] & flow.descendants[fold]):
                region = 1 << fold | 1 << gate | flow.descendants[fold] & flow.ancestors[gate]
                region |= self._before(m) | self._behind(gate)
                if not any(not region & ~block.members for block in self.blocks):
                    yield region

    def _before(self, m: int) -> int:
        """Mask of the operators that may be ahead of a barrier over a map, whatever else reads their maps."""
        flow = self.flow
        before = 0
        maps = [m]
        while maps:
            op = flow.producer[maps.pop()]
            if op < 0 or before >> op & 1:
                continue
            if self.slices.facts[op].contracts:
                before |= int(self._is_head(op)) << op
            elif flow.heights[op] > 1 and all(
                self.slices.takes_slices(op, o.input) for o in flow.operands[op]
            ):
                before |= 1 << op
                maps += [o.map for o in flow.operands[op]]
        return before

    def _behind(self, gate: int) -> int:
        """Mask of the operators that may be behind a gate, whatever else reads their maps."""
        flow = self.flow
        behind = 0
        waiting = [*bits(flow.succs[gate])]
        while waiting:
            op = waiting.pop()
            if behind >> op & 1:
                continue
            if self.slices.facts[op].contracts:
                behind |= 1 << op
            elif flow.heights[op] > 1:
                behind |= 1 << op
                waiting += bits(flow.succs[op])
        return behind

    # -- recognition -----------------------------------------------------------------------------------------

    def _around(self, m: int) -> GatedBlock | None:
        flow = self.flow
        facts = self.slices.facts
        folds = tuple(
            i
            for i in bits(flow.readers[m] & flow.running)
            if self._is_plain(i) and self.slices.takes_slices(i, 0)
        )
        others = [i for i in bits(flow.readers[m]) if i not in folds]
        if not folds or len(others) != 1 or flow.is_output[m]:
            return None
        (gate,) = others
        between = [
            i for i in bits(flow.ancestors[gate]) if any(flow.ancestors[i] >> fold & 1 for fold in folds)
        ]
        vectors = self._vectors(folds, between)
        if vectors is None or not self._is_behind(gate, m, vectors):
            return None
        inner = {v for i in (*folds, *between) for v in flow.results[i]}
        inside = {*folds, *between, gate}
        behind = [gate]
        tail = -1
        while tail < 0 and (after := self._only_reader(flow.results[behind[-1]][0])) >= 0:
            r = flow.results[behind[-1]][0]
            if facts[after].contracts:
                if self._is_tail(after, r):
                    tail = after
                break
            if not self._is_behind(after, r, vectors):
                break
            behind.append(after)
            inside.add(after)
        if any(flow.is_output[v] or flow.readers[v] & ~sum(1 << i for i in inside) for v in inner):
            return None
        ahead, head = self._ahead(m)
        return GatedBlock(m, ahead, folds, tuple(between), tuple(behind), tail, head)

    def _is_plain(self, op: int) -> bool:
        """Whether the operator has one result and constants that can be loaded."""
        return not self.slices.facts[op].never and len(self.flow.results[op]) == 1

    def _vectors(self, folds: tuple[int, ...], between: list[int]) -> set[int] | None:
        """Results of the operators between the reductions and the gate, all maps of one row.

        None if such an operator reads or makes anything else.
        """
        flow = self.flow
        vectors = {v for i in folds for v in flow.results[i]}
        if any(flow.maps[v].rows != 1 for v in vectors):
            return None
        for i in between:
            if i in folds:
                continue
            if (
                not self._is_plain(i)
                or flow.heights[i] != 1
                or any(flow.maps[o.map].rows != 1 for o in flow.operands[i])
            ):
                return None
            vectors |= {*flow.results[i]}
        return vectors

    def _is_behind(self, op: int, source: int, vectors: set[int]) -> bool:
        """Whether the operator takes a map channel by channel, and else vectors and maps from outside."""
        flow = self.flow
        if not self._is_plain(op) or self.slices.facts[op].contracts or flow.heights[op] == 1:
            return False
        return all(
            o.map in vectors or self.slices.takes_slices(op, o.input) for o in flow.operands[op]
        ) and any(o.map == source for o in flow.operands[op])

    def _is_tail(self, op: int, source: int) -> bool:
        """Whether a contraction can sum over a map slice by slice.

        What is read in flight must come from outside, element by element.
        """
        flow = self.flow
        slices = self.slices
        if not self._is_plain(op) or not slices.facts[op].streamed:
            return False
        own, *others = flow.operands[op]
        if own.map != source or not slices.takes_slices(op, own.input):
            return False
        return all(o.map != source and self.alongside(op, o.input) for o in others)

    def alongside(self, op: int, index: int) -> bool:
        """Whether an operand is read in flight, element by element."""
        flow = self.flow
        (operand,) = (o for o in flow.operands[op] if o.input == index)
        shape = flow.maps[flow.results[op][0]].shape
        direct = flow.maps[operand.map].shape == shape and flow.calls[op].shape(index) == shape
        return direct and operand.reads is same_row(flow.heights[op])

    def _only_reader(self, m: int) -> int:
        """The only reader of a map that is no output of the network; else -1."""
        readers = self.flow.readers[m]
        if readers and not readers & (readers - 1) and not self.flow.is_output[m]:
            return readers.bit_length() - 1
        return -1

    def _ahead(self, m: int) -> tuple[tuple[int, ...], bool]:
        """(operators that make a map, whether the first reads all channels).

        As far back as they work channel by channel.
        """
        channelwise: list[int] = []
        for op in self._back(m):
            if self.slices.facts[op].contracts:
                if not self._is_head(op):
                    break
                return (op, *reversed(channelwise)), True
            if (
                not all(self.slices.takes_slices(op, o.input) for o in self.flow.operands[op])
                or self.flow.heights[op] == 1
            ):
                break
            channelwise.append(op)
        return tuple(reversed(channelwise)), False

    def _back(self, m: int) -> Iterator[int]:
        """The producer of a map, and so on back, as long as each reads one map without other readers."""
        flow = self.flow
        while (op := flow.producer[m]) >= 0 and self._is_plain(op):
            yield op
            inside = {
                o.map
                for o in flow.operands[op]
                if flow.producer[o.map] >= 0 and self._only_reader(o.map) == op
            }
            if len(inside) != 1:
                return
            (m,) = inside

    def _is_head(self, op: int) -> bool:
        """Whether a contraction makes slices of channels from a whole operand.

        What is read in flight must come from outside, element by element.
        """
        own, *others = self.flow.operands[op]
        several = self.flow.maps[own.map].rows > 1 and bool(self.slices.facts[op].streamed)
        return several and all(o.map != own.map and self.alongside(op, o.input) for o in others)
