"""Steps in loops as arithmetic progressions over all iterations; and how often boxes cover a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Loop, Node, Step, step_count

Ints = np.ndarray  # int64
MOST_CELLS = 1 << 25  # of a grid that boxes cut a tensor into
MOST_ROWS = 1 << 30  # that are written to places or looked up there, in a plan
# of them that are followed at once: those of one map that are written in a group, some 100 bytes each
MOST_HELD = 1 << 24


class TooMuch(Exception):
    """A schedule that no recount follows in reasonable time and memory; the message says why."""


class RecountStopped(Exception):
    """The time for a recount was over before its end; nothing is said of the plan."""


class RowBudget:
    """Rows that may still be followed in a plan, as long as there is time."""

    def __init__(self, rows: int = MOST_ROWS, late: Callable[[], bool] | None = None) -> None:
        self.left = rows
        self.late = late

    def check_time(self) -> None:
        """Go on. Raises RecountStopped where the time is over."""
        if self.late is not None and self.late():
            raise RecountStopped

    def spend(self, rows: int) -> None:
        """Follow this many rows. Raises TooMuch, and RecountStopped where the time is over."""
        self.check_time()
        self.left -= rows
        if self.left < 0:
            raise TooMuch(
                f"the steps up to here write and read rows more than {MOST_ROWS:,} times; "
                "a recount follows no more"
            )

    def hold(self, rows: int) -> None:
        """Follow the rows written of one map, all at once. Raises TooMuch."""
        if rows > MOST_HELD:
            raise TooMuch(f"its steps write rows of one map {rows:,} times; a recount follows {MOST_HELD:,}")
        self.spend(rows)


@dataclass(frozen=True, eq=False)
class Leaf:
    """A step in the program, and the loops around it: one run per combination of their iterations."""

    step: Step
    counts: tuple[int, ...]  # iterations of the loops, outermost first
    moves: tuple[tuple[int, ...], ...]  # per loop: how far the step's origin moves per iteration
    first: int  # position of its first run among all steps of the group
    strides: tuple[int, ...]  # per loop: by how much the position moves per iteration
    _starts: dict[int, Ints] = field(default_factory=dict[int, Ints])

    @property
    def runs(self) -> int:
        """Number of runs."""
        return prod(self.counts)

    @cached_property
    def times(self) -> Ints:
        """(runs,) position of every run among all steps, ascending."""
        return _spread(self.first, self.counts, self.strides)

    def start(self, column: int) -> Ints:
        """(runs,) one coordinate of its origin, in the order of `times`."""
        if column not in self._starts:
            self._starts[column] = _spread(self.step.origin[column], self.counts, self._along(column))
        return self._starts[column]

    def ends(self, column: int) -> tuple[int, int]:
        """Lowest and highest value of one coordinate of its origin."""
        start = self.step.origin[column]
        reach = [(count - 1) * move for count, move in zip(self.counts, self._along(column), strict=True)]
        return start + sum(min(r, 0) for r in reach), start + sum(max(r, 0) for r in reach)

    def starts(self, columns: Sequence[int]) -> tuple[Ints, int]:
        """(different origins (origins, columns) int64, number of runs that share each of them)."""
        along = [self._along(column) for column in columns]
        moving = [k for k in range(len(self.counts)) if any(move[k] for move in along)]
        counts = tuple(self.counts[k] for k in moving)
        columns_of = [
            _spread(self.step.origin[c], counts, tuple(move[k] for k in moving))
            for c, move in zip(columns, along, strict=True)
        ]
        return np.stack(columns_of, axis=1) if columns_of else np.zeros((1, 0), np.int64), self.runs // max(
            prod(counts), 1
        )

    def _along(self, column: int) -> tuple[int, ...]:
        return tuple(move[column] for move in self.moves)


def _spread(start: int, counts: tuple[int, ...], strides: tuple[int, ...]) -> Ints:
    """start + sum of iteration * stride, for all combinations of iterations, the last loop the fastest."""
    starts = np.full((1,) * len(counts), start, np.int64)
    for k, (count, stride) in enumerate(zip(counts, strides, strict=True)):
        starts = starts + (np.arange(count, dtype=np.int64) * stride).reshape(
            -1, *(1,) * (len(counts) - k - 1)
        )
    return starts.reshape(-1)


def leaves(nodes: Sequence[Node]) -> list[Leaf]:
    """Leaves of the loops, in program order."""
    return list(_leaves(nodes, 0, (), ()))


def _leaves(
    nodes: Sequence[Node], at: int, counts: tuple[int, ...], strides: tuple[int, ...]
) -> Iterator[Leaf]:
    for node in nodes:
        if isinstance(node, Loop):
            length = step_count(node.body)
            yield from _leaves(node.body, at, (*counts, node.count), (*strides, length))
            at += node.count * length
        else:
            yield Leaf(node, counts, node.strides or ((0,) * len(node.origin),) * len(counts), at, strides)
            at += 1


# -- coverage ------------------------------------------------------------------------------------------------


class Boxes(NamedTuple):
    """Boxes of one extent."""

    starts: Ints  # (boxes, axes)
    extents: tuple[int, ...]
    weight: int  # what each of them counts


def times_covered(shape: tuple[int, ...], boxes: Sequence[Boxes]) -> Ints:
    """(cells along each axis) int64: how often boxes cover each cell of a tensor.

    Cells are cut where a box begins or ends. Empty boxes cover nothing.

    >>> times_covered((8,), [Boxes(np.array([[0], [3]]), (4,), 1)])
    array([1, 2, 1, 0])

    Raises TooMuch.
    """
    if 0 in shape:
        return np.zeros(shape, np.int64)
    boxes = [box for box in boxes if all(box.extents)]
    cuts = [cuts_along(axis, extent, boxes) for axis, extent in enumerate(shape)]
    axes = [axis for axis, cut in enumerate(cuts) if len(cut) > 2]  # along the others every box is whole
    sizes = tuple(len(cuts[axis]) for axis in axes)
    if prod(sizes) > MOST_CELLS:
        raise TooMuch(
            f"boxes cut a tensor of shape {list(shape)} into {prod(sizes):,} parts; "
            f"a recount takes {MOST_CELLS:,}"
        )
    change = np.zeros(prod(sizes), np.int64)  # at every corner of a box; its sums are the counts
    for starts, extents, weight in boxes:
        ends = [
            (np.searchsorted(cuts[a], starts[:, a]), np.searchsorted(cuts[a], starts[:, a] + extents[a]))
            for a in axes
        ]
        for corner in product((0, 1), repeat=len(axes)):
            where = np.zeros(len(starts), np.int64)
            for size, end, side in zip(sizes, ends, corner, strict=True):
                where = where * size + end[side]
            np.add.at(change, where, -weight if sum(corner) % 2 else weight)
    covered = change.reshape(sizes)
    for k in range(len(axes)):
        covered = np.cumsum(covered, axis=k)
    covered = covered[tuple(slice(size - 1) for size in sizes)]
    return covered.reshape([len(cut) - 1 for cut in cuts])


def cuts_along(axis: int, extent: int, boxes: Sequence[Boxes]) -> Ints:
    """Ends of the cells along one axis: 0, the extent, and where a box begins or ends; ascending."""
    edges = [np.array([0, extent], np.int64)]
    for starts, extents, _ in boxes:
        edges += [starts[:, axis], starts[:, axis] + extents[axis]]
    return np.unique(np.concatenate(edges))


# -- cells ---------------------------------------------------------------------------------------------------


def cell_spans(cut: Ints, part: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """(first cell, cell behind the last) of spans that begin and end at ends of cells, or lie within one."""
    first = np.searchsorted(cut, part[0], side="right") - 1
    return first, np.maximum(np.searchsorted(cut, part[1]), first)


def product_of(
    count: int, spans: Sequence[tuple[Ints, Ints]], sizes: Sequence[int], work: RowBudget
) -> tuple[Ints, Ints]:
    """(number of a run, number of a cell) of every cell that `count` runs of a box cover.

    `spans`: per axis, the cells of every run; `sizes`: cells of the grid. Raises TooMuch.

    >>> product_of(2, [(np.array([0, 1]), np.array([2, 2]))], [3], RowBudget())
    (array([0, 0, 1]), array([0, 1, 1]))
    """
    runs = np.arange(count)
    cells = np.zeros(count, np.int64)
    for (first, stop), size in zip(spans, sizes, strict=True):
        counts = (stop - first)[runs]
        work.hold(int(counts.sum()))
        further = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        cells = np.repeat(cells, counts) * size
        runs = np.repeat(runs, counts)
        cells += first[runs] + further
    return runs, cells
