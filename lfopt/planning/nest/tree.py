"""The nest of a group: a tree of loops over its operators, and where each tensor is held.

    RowLeaf(operators)             operators make rows on demand, and pass them on through rings
    BlockLoop(axis, blocks, body)  the results of the body, cut along an axis, block after block
    Seq(parts)                     one part after the other

A tensor is *held at* a node: it is on chip from the moment the node is entered until it is left. A map that a
loop holds is kept from block to block as a sliding window, and every element of it is made or loaded once. A
map that is held inside a loop is fresh in every block, halo included. A map that is *carried* is held inside
its loops too, and each of them keeps the part of it that a later block still reads. Constants pass through a
*stream* where they are not held: block after block, through a place of a few slots.

Operators may sum over the blocks of a loop over channels. What they need once their sums are finished, maps
from outside that are read in flight among it, is *late*: it comes with the last block. Operators of the same
row engine that read the sums *wait*: they run with the last block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from lfopt.ir import Span

Axis = Literal["rows", "columns", "channels", "outputs"]


class PartialSums(NamedTuple):
    """The partial results of an operator."""

    operator: int


class CarriedPart(NamedTuple):
    """What a loop keeps of a map from block to block, in a place of its own.

    A loop over rows keeps it for each block of the loop over columns inside it. The first of these has more
    columns than the others, by the halo: it is kept apart.
    """

    map: int
    loop: BlockLoop
    first: bool = False  # whether that of the first block of columns


# a map by its index, a constant by its name, or partial results
Held = int | str | PartialSums


class LateInput(NamedTuple):
    """A map from outside of which a leaf loads rows when the sums that it follows are finished."""

    map: int
    leaf: RowLeaf


class StayingPart(NamedTuple):
    """The part of a constant that does not pass through its stream, but stays."""

    constant: str


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the axis of a tensor is cut into blocks.

    By default blocks are as equal as they can be: block b of n indices ends at ceil((b + 1) n / count). With
    a `size`, every block has so many indices of an axis of `extent`, the last one perhaps fewer, and an axis
    of another extent is cut in proportion.

    >>> by_four = Blocks.of_size(4, 10)
    >>> Blocks(3).ends(7).tolist(), by_four.ends(10).tolist(), by_four.ends(5).tolist()
    ([0, 3, 5, 7], [0, 4, 8, 10], [0, 2, 4, 5])
    >>> Blocks.of_size(4, 10, anew=(3,)).ends(10).tolist()
    [0, 3, 7, 10]
    """

    count: int
    size: int = 0  # indices of each block but the last; 0: as equal as possible
    extent: int = 0  # of the axis that has blocks of this size
    period: int = 0  # indices after which blocks begin anew; 0: they never do
    anew: tuple[int, ...] = ()  # indices at which blocks begin anew, ascending

    @classmethod
    def of_size(cls, size: int, extent: int, period: int = 0, anew: Iterable[int] = ()) -> Blocks:
        """Blocks of `size` indices of an axis of `extent`.

        None crosses a multiple of `period`, or one of the indices `anew`; those that none would are left out.
        """
        if not anew:
            of_period = -(-(period or extent) // size)
            return cls(of_period * max(extent // (period or extent), 1), size, extent, period or extent)
        starts = [0]
        for start in sorted({*anew}):
            if starts[-1] < start < extent and (start - starts[-1]) % size:
                starts.append(start)
        count = sum(-(-(stop - start) // size) for start, stop in pairwise((*starts, extent)))
        return cls(count, size, extent, extent, tuple(starts[1:]))

    def widest(self, extent: int) -> int:
        """Indices of the widest block of an axis of so many indices."""
        if self.size and extent == self.extent:
            return min(self.size, extent)
        return int(np.diff(self.ends(extent)).max())

    def by_width(self, extent: int, behind: int = 0) -> list[tuple[Span, int]]:
        """The first span of each width, and how many there are of it.

        `behind`: an index; blocks that begin before it do not count.

        >>> Blocks.of_size(4, 10).by_width(10), Blocks.of_size(4, 8).by_width(8)
        ([((0, 4), 2), ((8, 10), 1)], [((0, 4), 2)])
        >>> Blocks.of_size(4, 10).by_width(10, behind=4)
        [((4, 8), 1), ((8, 10), 1)]
        """
        ends = self.ends(extent)
        ends = ends[int(np.searchsorted(ends, behind)) :]
        widths, firsts, counts = np.unique(np.diff(ends), return_index=True, return_counts=True)
        order = np.argsort(firsts)
        starts = ends[firsts[order]].tolist()
        of_width = zip(starts, widths[order].tolist(), counts[order].tolist(), strict=True)
        return [((start, start + width), count) for start, width, count in of_width]

    def ends(self, extent: int) -> np.ndarray:
        """(count + 1,) int64: where blocks end along an axis of so many indices; the first one is 0."""
        return self._ends(np.arange(self.count + 1, dtype=np.int64), extent)

    def _ends(self, block: np.ndarray, extent: int) -> np.ndarray:
        """Where these blocks begin along an axis, int64 in the shape of `block`; block `count` at its end."""
        if not self.size:
            return -(-block * extent // self.count)
        if self.anew:
            runs = np.array((0, *self.anew, self.extent), np.int64)
            before = np.cumsum((0, *(-(-np.diff(runs) // self.size))))  # blocks before each run
            run = np.searchsorted(before, block, side="right") - 1
            starts = runs[run] + (block - before[run]) * self.size
        else:
            in_each_period = -(-self.period // self.size)
            period, within = np.divmod(block, in_each_period)
            starts = period * self.period + np.minimum(within * self.size, self.period)
        if extent == self.extent:
            return starts
        # in proportion, to the nearest index
        return (2 * starts * extent + self.extent) // (2 * self.extent)

    def spans(self, extent: int) -> list[Span]:
        """The span of each block along an axis of so many indices."""
        return [*pairwise(self.ends(extent).tolist())]

    def span(self, block: int, extent: int) -> Span:
        """The span of one block along an axis of so many indices.

        >>> Blocks.of_size(4, 10).span(2, 10), Blocks(3).span(-1, 7)
        ((8, 10), (5, 7))
        """
        block %= self.count
        return self._end(block, extent), self._end(block + 1, extent)

    def _end(self, block: int, extent: int) -> int:
        return int(self._ends(np.array([block], np.int64), extent)[0])


@dataclass(frozen=True, eq=False, slots=True)
class RowLeaf:
    """Operators that make rows on demand. The order of the operators is that of their indices."""

    operators: tuple[int, ...]
    # whether each operator makes all that is asked of it in one step, one after the other, without rings
    at_once: bool = False
    band_rows: int = 1  # rows of a result that come next, in a row engine
    summed_rows: int = 1  # and of sums that are finished: with the last block of what is summed
    # whether results come in turn from which no other follows, and others as they are asked for; else all
    last_lead: bool = False
    measures: frozenset[int] = frozenset()  # normalizations of which statistics are made, and no result

    def sums_over(self, loop: BlockLoop) -> bool:
        """Whether it makes results of what its operators sum over the blocks of a loop."""
        return any(i in loop.folds and i not in self.measures for i in self.operators)


@dataclass(frozen=True, eq=False, slots=True)
class BlockLoop:
    """A body that runs once per block of its results, or of what an operator in it sums over."""

    axis: Axis
    blocks: Blocks
    body: Node
    folds: tuple[int, ...] = ()  # operators whose input channels the blocks cut

    @property
    def cuts_channels(self) -> bool:
        """Whether its blocks are of channels, or outputs, and not of rows or columns."""
        return self.axis in ("channels", "outputs")


@dataclass(frozen=True, eq=False, slots=True)
class Seq:
    """Parts that run one after the other. What each part holds takes the same space as what others hold."""

    parts: tuple[Node, ...]
    # whether what is held here takes space only from the first part that touches it to the last one
    lives: bool = False


Node = RowLeaf | BlockLoop | Seq


@dataclass(frozen=True, eq=False, slots=True)
class Stream:
    """Constants that pass, block after block, through one place.

    A block is what a leaf reads of them in one go. The next one can be loaded while one is in use.
    """

    home: Node  # where the place is held
    constants: frozenset[str]
    slots: int = 2  # blocks on chip at once
    # of the channels that blocks cut, so many: constants of the first ones stay from when `home` is entered
    stays: int = 0


@dataclass(frozen=True)
class Surroundings:
    """What lies around a nest that is one of several passes: maps that stay on chip between the passes.

    By default nothing does, and every result that others read is stored.
    """

    # per map: of its channels, so many stay, from the first on; 0: all of it, and the nest does not hold it
    kept: Mapping[int, int] = field(default_factory=dict[int, int])
    there: frozenset[int] = frozenset()  # of these maps: those that a pass before has made or loaded
    stored: frozenset[int] | None = None  # results that go to DRAM; None: all that others read
    # per operator that makes channels of a map which are not there yet, and no others: that map
    idle: Mapping[int, int] = field(default_factory=dict[int, int])
    measured: frozenset[int] = frozenset()  # normalizations of which a pass before has made the statistics

    def is_whole(self, m: int) -> bool:
        """Whether all of a map stays around the nest."""
        return self.kept.get(m) == 0


ALONE = Surroundings()  # a nest that is all of a group


@dataclass(frozen=True, eq=False)
class GroupNest:
    """How a group runs."""

    root: Node
    homes: dict[Held, Node] = field(default_factory=dict[Held, Node])  # the nodes that hold tensors
    streams: tuple[Stream, ...] = ()
    # maps that are held inside loops over rows and columns, and of which each keeps what later blocks read
    carried: frozenset[int] = frozenset()
    complete: bool = False  # whether `homes` has every tensor that is held

    @cached_property
    def paths(self) -> dict[Node, tuple[Node, ...]]:
        """Per node: the nodes from the root down to it, itself included."""
        paths: dict[Node, tuple[Node, ...]] = {self.root: (self.root,)}
        for node in walk(self.root):
            for child in children(node):
                paths[child] = (*paths[node], child)
        return paths

    @cached_property
    def loops_to(self) -> dict[Node, tuple[BlockLoop, ...]]:
        """Per node: the loops from the root down to it, itself included."""
        return {
            node: tuple([around for around in path if isinstance(around, BlockLoop)])
            for node, path in self.paths.items()
        }

    def carrying(self, m: int) -> tuple[BlockLoop, ...]:
        """The loops that carry a map on from block to block, outermost first."""
        if m in self.carried:
            return self.loops_to[self.homes[m]]
        return ()

    def carried_parts(self, m: int) -> list[CarriedPart]:
        """What loops keep of a map that is carried, outermost first."""
        if m not in self.carried:
            return []
        rows, columns = self.carrying(m)
        return [CarriedPart(m, rows, first=True), CarriedPart(m, rows), CarriedPart(m, columns)]

    def inside(self, node: Node) -> list[Node]:
        """All nodes inside a node, itself left out."""
        return [other for other, path in self.paths.items() if node in path and other is not node]

    @cached_property
    def summed_inside(self) -> dict[BlockLoop, int]:
        """Per loop: mask of the operators that sum over the blocks of loops inside it."""
        masks: dict[BlockLoop, int] = {}
        for loop in (node for node in self.paths if isinstance(node, BlockLoop)):
            folds = {i for node in self.inside(loop) if isinstance(node, BlockLoop) for i in node.folds}
            masks[loop] = sum(1 << i for i in folds)
        return masks

    @cached_property
    def measures(self) -> frozenset[int]:
        """Normalizations of which statistics are made, and no result."""
        return frozenset(i for leaf in {*self.leaf_of.values()} for i in leaf.measures)

    @cached_property
    def channel_cuts(self) -> dict[tuple[BlockLoop, int], int | None]:
        """Per loop and operator: the axis of its results that the loop cuts, as far as it was asked for."""
        return {}

    @cached_property
    def operators(self) -> dict[Node, tuple[int, ...]]:
        """Per node: the operators that run in it, in ascending order."""
        operators: dict[Node, list[int]] = {node: [] for node in self.paths}
        for leaf, path in self.paths.items():
            if isinstance(leaf, RowLeaf):
                for node in path:
                    operators[node] += leaf.operators
        return {node: tuple(sorted(inside)) for node, inside in operators.items()}

    @cached_property
    def leaf_of(self) -> dict[int, RowLeaf]:
        """Per operator: the leaf in which it runs."""
        return {i: node for node in self.paths if isinstance(node, RowLeaf) for i in node.operators}

    @cached_property
    def row_engines(self) -> list[RowLeaf]:
        """The leaves that pass rows through rings."""
        return [node for node in self.paths if isinstance(node, RowLeaf) and not node.at_once]

    def parent(self, node: Node) -> Node | None:
        """The node that a node stands in; None: it is the root."""
        path = self.paths[node]
        if len(path) > 1:
            return path[-2]
        return None


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right inside a node."""
    if isinstance(node, BlockLoop):
        return (node.body,)
    if isinstance(node, Seq):
        return node.parts
    return ()


def walk(node: Node) -> Iterator[Node]:
    """A node and all nodes inside it, outermost first."""
    yield node
    for child in children(node):
        yield from walk(child)
