"""Operators that move elements without arithmetic.

Indices that are computed may be anything, and nothing outside an array is ever touched: one that lies outside
is taken as the nearest inside where elements are read, and passed over where they are written. (NumPy would
raise.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from codegen.layout import split_starts
from codegen.loops.elementwise import FOLDED, Fold, scalar
from codegen.loops.nest import Array, Nest, plus, times
from codegen.loops.scalar import Scalar
from codegen.loops.strided import Move, StridedLoops
from lfopt.ir import Span
from lfopt.ops.parameters import pad_amounts, pad_sources, permutation, slice_steps

Index = Sequence[str]
MOST_BOXES = 81  # that a Pad is copied in: beyond, each index is looked up


def copied(nest: Nest, source: Callable[[Index], Index]) -> None:
    """Loops that take every element of the result from one place in the operand."""
    x = nest.operand(0)
    y = nest.results[0]
    with nest.elements() as at:
        nest.out(f"{y.at(at)} = {x.at(source(at))};")


def moved(nest: Nest, moves: Sequence[Move]) -> None:
    """Copy every element of the result from the place in the operand that its index leads to."""
    x = nest.operand(0)
    loops = nest.strided([(x, moves)])
    if loops is not None:
        nest.copied(loops)
        return

    def source(at: Index) -> Index:
        return [
            plus(times(at[move.axis], move.by), move.start) if move.axis >= 0 else str(move.start)
            for move in moves
        ]

    copied(nest, source)


def part_copied(
    nest: Nest, x: Array, result: int, spans: Mapping[int, Span], starts: Mapping[int, int]
) -> None:
    """Copy a box of an operand to a box of a result: `spans` of indices there, and where the box starts here.

    Along axes that neither names both are whole.
    """
    y = nest.results[result]
    moves = [Move(starts.get(axis, 0), axis) for axis in range(len(y.shape))]
    loops = nest.strided([(x, moves)], result, spans)
    if loops is not None:
        nest.copied(loops)
        return
    with nest.elements(result, spans=spans) as at:
        here = [plus(i, starts.get(axis, 0) - spans.get(axis, (0, 0))[0]) for axis, i in enumerate(at)]
        nest.out(f"{y.at(at)} = {x.at(here)};")


# -- by place ------------------------------------------------------------------------------------------------


def concat(nest: Nest) -> None:
    """One operand after the other along an axis."""
    y = nest.results[0]
    start = 0
    axis = nest.call.attribute("axis", 0) % len(y.shape)
    for k in range(len(nest.call.shapes)):
        stop = start + nest.call.shape(k)[axis]
        if stop > start and k not in nest.aliased:
            part_copied(nest, nest.operand(k), 0, {axis: (start, stop)}, {})
        start = stop


def split(nest: Nest) -> None:
    """Parts of the operand along an axis; those that are not asked for are passed over."""
    x = nest.operand(0)
    axis = nest.call.attribute("axis", 0) % len(x.shape)
    for k, start in enumerate(split_starts(nest.call)):
        if k not in nest.aliased:
            part_copied(nest, x, k, {}, {axis: start})


def slice_(nest: Nest) -> None:
    """Every step-th element from a start, forwards or backwards."""
    steps = slice_steps(nest.call)
    if steps is None:
        raise nest.unsupported("input 1 that is computed", "a constant")
    moved(nest, [Move(start, axis, step) for axis, (start, step) in enumerate(steps)])


def pad(nest: Nest) -> None:
    """A constant, or elements of the map itself, around the map; negative amounts cut it."""
    amounts = pad_amounts(nest.call)
    mode = nest.call.attribute("mode", "constant")
    shape = nest.call.shape(0)
    if amounts is None:
        raise nest.unsupported("input 1 that is computed", "a constant")
    if mode == "constant":
        _filled(nest, amounts)
        return
    sources = {
        axis: pad_sources((0, extent), size, *amount, mode)
        for axis, (extent, size, amount) in enumerate(zip(nest.call.result, shape, amounts, strict=True))
        if amount != (0, 0)
    }
    if _padded_in_runs(nest, sources):
        return
    # axis -> where each index comes from
    tables = {axis: nest.constant(np.array(source, np.int32)) for axis, source in sources.items()}
    copied(nest, lambda at: [f"{tables[axis]}[{i}]" if axis in tables else i for axis, i in enumerate(at)])


def _padded_in_runs(nest: Nest, sources: Mapping[int, Sequence[int]]) -> bool:
    """Copy box by box what moves on evenly, forwards, backwards or not at all; False where that cannot be."""
    x = nest.operand(0)
    y = nest.results[0]
    axes = [*sources]
    boxes: list[StridedLoops | None] = []
    runs = [even_runs(sources[axis]) for axis in axes]
    if prod(len(of) for of in runs) > MOST_BOXES:
        return False
    for chosen in product(*runs):
        spans = {axis: (run.first, run.first + run.length) for axis, run in zip(axes, chosen, strict=True)}
        moves = [Move(0, axis) for axis in range(len(y.shape))]
        for axis, run in zip(axes, chosen, strict=True):
            moves[axis] = Move(run.start, axis, run.by)
        boxes.append(nest.strided([(x, moves)], spans=spans))
    if any(box is None for box in boxes):
        return False
    for box in boxes:
        if box is not None:
            nest.copied(box)
    return True


class EvenRun(NamedTuple):
    """So many indices from the first on, which come from start, start + by, start + 2 by ..."""

    first: int
    length: int
    start: int
    by: int


def even_runs(sources: Sequence[int]) -> list[EvenRun]:
    """The runs of a list of indices, each as long as can be.

    >>> [tuple(run) for run in even_runs([2, 1, 0, 1, 2, 1])]
    [(0, 3, 2, -1), (3, 2, 1, 1), (5, 1, 1, 1)]
    """
    runs: list[EvenRun] = []
    for index, source in enumerate(sources):
        last = runs[-1] if runs else None
        if last is not None and last.length == 1 and abs(source - last.start) <= 1:
            runs[-1] = last._replace(length=2, by=source - last.start)
        elif last is not None and last.length > 1 and source == last.start + last.length * last.by:
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(EvenRun(index, 1, source, 1))
    return runs


def _filled(nest: Nest, amounts: Sequence[Span]) -> None:
    """The map, and slabs of a constant on either side of it, one axis after the other."""
    x = nest.operand(0)
    y = nest.results[0]
    fill = scalar(nest.operand(2)) if nest.call.has(2) else "0"
    inner: dict[int, Span] = {}
    for axis, (extent, size, (before, _)) in enumerate(zip(y.shape, x.shape, amounts, strict=True)):
        first, stop = (min(max(edge, 0), extent) for edge in (before, before + size))
        for span in ((0, first), (stop, extent)):
            if span[1] > span[0]:
                with nest.elements(spans={**inner, axis: span}) as at:
                    nest.out(f"{y.at(at)} = {fill};")
        inner[axis] = first, stop
    if prod(y.shape) and all(stop > first for first, stop in inner.values()):
        starts = {axis: inner[axis][0] - before for axis, (before, _) in enumerate(amounts)}
        part_copied(nest, x, 0, inner, starts)


def expand(nest: Nest) -> None:
    """Repeated along axes of extent one."""
    moved(nest, nest.operand(0).in_step(nest.results[0].shape))


def tile(nest: Nest) -> None:
    """The whole operand again and again along every axis."""
    shape = nest.operand(0).shape
    tiled = nest.results[0].shape
    factors = {
        axis: (extent // n, n)
        for axis, (n, extent) in enumerate(zip(shape, tiled, strict=True))
        if n != extent
    }
    terms = [[(axis, 1 if axis in factors else 0, 1)] for axis in range(len(shape))]
    if _copied_in_parts(nest, factors, terms):
        return
    copied(
        nest,
        lambda at: [
            i if n == extent else "0" if n == 1 else f"{i} % {n}"
            for i, n, extent in zip(at, shape, tiled, strict=True)
        ],
    )


def transpose(nest: Nest) -> None:
    """The loops of a Transpose: axes permuted."""
    order = permutation(nest.call)
    moved(nest, [Move(0, order.index(axis)) for axis in range(len(order))])


def _copied_in_parts(
    nest: Nest, factors: Mapping[int, Sequence[int]], terms: Sequence[Sequence[tuple[int, int, int]]]
) -> bool:
    """Copy the operand by loops over parts of axes (`Nest.strided_in_parts`); False where that cannot be."""
    loops = nest.strided_in_parts(nest.operand(0), factors, terms)
    if loops is not None:
        nest.copied(loops)
    return loops is not None


def bit_cast(nest: Nest) -> None:
    """The bits of elements as another type of the same width."""
    a = nest.operand(0)
    y = nest.results[0]
    loops = nest.strided([(a, a.in_step(y.shape))])
    if loops is not None:
        to, source = loops.arrays
        seen = source._replace(
            pointer=f"(const {to.ctype} *)(const void *)({source.pointer})", ctype=to.ctype
        )
        nest.copied(loops._replace(arrays=(to, seen)))
        return
    with nest.elements() as at:
        nest.out(f"const {a.ctype} a = {a.at(at)};", f"memcpy(&{y.at(at)}, &a, sizeof a);")


def depth_to_space(nest: Nest) -> None:
    """Blocks of channels laid out as blocks of pixels: depth first (DCR) or column first (CRD)."""
    block = nest.call.attribute("blocksize", 1)
    channels = nest.call.result[1]
    depth_first = nest.call.attribute("mode", "DCR") == "DCR"

    _, _, high, wide = nest.call.result
    turn, column, channel = (block * channels, channels, 1) if depth_first else (block, 1, block * block)
    terms = [
        [(0, 0, 1)],
        [(1, 0, channel), (2, 1, turn), (3, 1, column)],
        [(2, 0, 1)],
        [(3, 0, 1)],
    ]
    if _copied_in_parts(nest, {2: (high // block, block), 3: (wide // block, block)}, terms):
        return

    def source(at: Index) -> Index:
        n, c, y, x = at
        inside = f"({y} % {block} * {block} + {x} % {block})"
        channel = f"{inside} * {channels} + {c}" if depth_first else f"{c} * {block * block} + {inside}"
        return n, channel, f"{y} / {block}", f"{x} / {block}"

    copied(nest, source)


def space_to_depth(nest: Nest) -> None:
    """Blocks of pixels stacked as channels: depth first (DCR) or column first (CRD)."""
    block = nest.call.attribute("blocksize", 1)
    channels = nest.call.shape(0)[1]
    depth_first = nest.call.attribute("mode", "DCR") == "DCR"

    factors = (block, block, channels) if depth_first else (channels, block, block)
    row, column, of_channel = (0, 1, 2) if depth_first else (1, 2, 0)
    terms = [
        [(0, 0, 1)],
        [(1, of_channel, 1)],
        [(2, 0, block), (1, row, 1)],
        [(3, 0, block), (1, column, 1)],
    ]
    if _copied_in_parts(nest, {1: factors}, terms):
        return

    def source(at: Index) -> Index:
        n, c, y, x = at
        channel, inside = (
            (f"{c} % {channels}", f"{c} / {channels}")
            if depth_first
            else (f"{c} / {block * block}", f"{c} % {block * block}")
        )
        return n, channel, f"{y} * {block} + {inside} / {block}", f"{x} * {block} + {inside} % {block}"

    copied(nest, source)


def trilu(nest: Nest) -> None:
    """The upper or lower triangle; zero elsewhere."""
    x = nest.operand(0)
    y = nest.results[0]
    sign = ">=" if nest.call.attribute("upper", 1) else "<="
    if nest.call.has(1):
        nest.out(f"const int64_t given = {scalar(nest.operand(1))};")
        nest.out(
            "const int k = (int)(given < INT32_MIN / 2 ? INT32_MIN / 2 : given > INT32_MAX / 2 ? "
            "INT32_MAX / 2 : given);"
        )
    diagonal = "k" if nest.call.has(1) else "0"
    axis = len(y.shape) - 1
    with nest.each(axes=[k for k in range(len(y.shape)) if k != axis]) as outer:
        at = [outer.get(k, "0") for k in range(len(y.shape))]
        if nest.evenly and x.step(axis) == y.step(axis) == 1 and nest.row() != axis:
            nest.out(f"{y.stored or y.ctype} *const to = &{y.at(at)};")
            nest.out(f"const {x.stored or x.ctype} *const from = &{x.at(at)};")
            nest.out(
                f"EACH for (int i = 0; i < {y.shape[axis]}; i++) to[i] = i - {at[-2]} {sign} {diagonal} ? "
                "from[i] : 0;"
            )
        else:
            with nest.each(axes=[axis]) as inner:
                at[-1] = inner[axis]
                nest.out(f"{y.at(at)} = ({y.ctype})({at[-1]} - {at[-2]} {sign} {diagonal} ? {x.at(at)} : 0);")


# -- by index ------------------------------------------------------------------------------------------------


def _indexed(nest: Nest, extents: Sequence[int]) -> None:
    """Raises Unsupported where there is nothing to take: no index would be right."""
    if prod(nest.call.result) and not all(extents):
        raise nest.unsupported("elements that are taken from an empty input", "inputs that have them")


def _taken(nest: Nest, name: str, index: str, extent: int) -> str:
    """The name of an index that was read, made to lie within an extent."""
    if extent == 1:
        return "0"
    nest.out(f"const int {name} = nearest_of({index}, {extent});")
    return name


def gather(nest: Nest) -> None:
    """Entries of the data along an axis, by index; negative ones count from the end."""
    data = nest.operand(0)
    indices = nest.operand(1)
    y = nest.results[0]
    axis = nest.call.attribute("axis", 0) % len(data.shape)
    after = axis + len(indices.shape)
    _indexed(nest, data.shape[axis : axis + 1])
    with nest.each(axes=range(after)) as outer:
        k = _taken(nest, "k", indices.at([outer[a] for a in range(axis, after)]), data.shape[axis])

        def source(at: Index) -> Index:
            return [*at[:axis], k, *at[after:]]

        _parts(nest, data, outer, source, [(a, a - after + axis + 1) for a in range(after, len(y.shape))])


def gather_elements(nest: Nest) -> None:
    """For every element an index of its own along an axis."""
    data = nest.operand(0)
    indices = nest.operand(1)
    y = nest.results[0]
    axis = nest.call.attribute("axis", 0) % len(data.shape)
    _indexed(nest, data.shape)
    if data.shape[axis] == 1:
        moved(nest, [Move(0, -1 if a == axis else a) for a in range(len(y.shape))])
        return
    step = data.step(axis)
    moves = [Move(0, -1 if a == axis else a) for a in range(len(y.shape))]
    loops = nest.strided([(indices, [Move(0, a) for a in range(len(y.shape))]), (data, moves)])
    if loops is not None and step is not None:
        with nest.printed(loops) as (result, index, start):
            k = _taken(nest, "k", index, data.shape[axis])
            nest.out(f"{result} = (&{start})[{k} * {step}];")
        return
    with nest.elements() as at:
        k = _taken(nest, "k", indices.at(at), data.shape[axis])
        nest.out(f"{y.at(at)} = {data.at([*at[:axis], k, *at[axis + 1 :]])};")


def gather_nd(nest: Nest) -> None:
    """Parts of the data, each by an index along several axes; the first `batch_dims` axes are shared."""
    data = nest.operand(0)
    indices = nest.operand(1)
    y = nest.results[0]
    shared = nest.call.attribute("batch_dims", 0)
    count = indices.shape[-1]
    after = len(indices.shape) - 1
    _indexed(nest, data.shape[shared : shared + count])
    with nest.each(axes=range(after)) as outer:
        place = [outer[a] for a in range(after)]
        taken = [
            _taken(nest, f"k{j}", indices.at([*place, str(j)]), data.shape[shared + j]) for j in range(count)
        ]

        def source(at: Index) -> Index:
            return [*at[:shared], *taken, *at[after:]]

        inner = range(after, len(y.shape))
        _parts(nest, data, outer, source, [(a, a - after + shared + count) for a in inner])


def _parts(
    nest: Nest,
    data: Array,
    outer: Mapping[int, str],
    source: Callable[[Index], Index],
    axes: Sequence[tuple[int, int]],
) -> None:
    """Copy what lies along the last axes, of the result and the data, at an index of the others."""
    y = nest.results[0]
    start = [outer.get(a, "0") for a in range(len(y.shape))]
    row = nest.row()
    if row is None or row in outer:
        if not axes:
            nest.out(f"{y.at(start)} = {data.at(source(start))};")
            return
        if nest.part_copied((y, start), (data, source(start)), axes):
            return
    with nest.each(axes=[axis for axis, _ in axes]) as inner:
        at = [{**outer, **inner}[a] for a in range(len(y.shape))]
        nest.out(f"{y.at(at)} = {data.at(source(at))};")


REDUCTIONS: dict[str, Fold] = {
    "none": lambda s, old, new: new,
    "add": FOLDED["Add"],
    "mul": FOLDED["Mul"],
    "max": FOLDED["Max"],
    "min": FOLDED["Min"],
}


def _data_first(nest: Nest) -> None:
    moved(nest, [Move(0, axis) for axis in range(len(nest.results[0].shape))])
    nest.wait()


def _update(nest: Nest, at: Index, updates: Array, place: Index, conditions: Sequence[str]) -> None:
    """Put an update where it belongs, if that is to be made."""
    y = nest.results[0]
    reduction = nest.call.attribute("reduction", "none")
    conditions = [*conditions, *nest.wanted(dict(enumerate(at)))]
    with nest.out.block(f"if ({' && '.join(conditions)})" if conditions else ""):
        nest.out(f"const {y.ctype} x = {updates.at(place)};")
        if reduction != "none":
            nest.out(f"const {y.ctype} old = {y.at(at)};")
        nest.out(f"{y.at(at)} = ({y.ctype}){REDUCTIONS[reduction](Scalar(y.dtype), 'old', 'x')};")


def scatter_elements(nest: Nest) -> None:
    """The data, with updates each at an index of its own along an axis, one after the other."""
    indices = nest.operand(1)
    updates = nest.operand(2)
    y = nest.results[0]
    axis = nest.call.attribute("axis", 0) % len(y.shape)
    _data_first(nest)
    with nest.alone(), nest.over(indices.shape, "j") as place:
        # along the other axes an update stays where it is: those beside the box need not be at hand
        conditions = nest.wanted({a: i for a, i in enumerate(place) if a != axis})
        with nest.out.block(f"if ({' && '.join(conditions)})") if conditions else nullcontext():
            nest.out(f"const int k = place_of({indices.at(place)}, {y.shape[axis]});")
            _update(nest, [*place[:axis], "k", *place[axis + 1 :]], updates, place, ["k >= 0"])


def scatter_nd(nest: Nest) -> None:
    """The data, with parts of it updated, each by an index along the first axes, one after the other."""
    indices = nest.operand(1)
    updates = nest.operand(2)
    y = nest.results[0]
    count = indices.shape[-1]
    after = len(indices.shape) - 1
    _data_first(nest)
    names = [f"k{j}" for j in range(count)]
    rest = len(updates.shape) - after
    adds = nest.call.attribute("reduction", "none") != "none"
    with nest.alone(), nest.over(updates.shape[:after], "j") as place:
        for j, name in enumerate(names):
            nest.out(f"const int {name} = place_of({indices.at([*place, str(j)])}, {y.shape[j]});")
        if nest.whole and nest.evenly and not adds and rest:
            with nest.out.block(f"if ({' && '.join(f'{name} >= 0' for name in names)})"):
                there = [*names, *["0"] * rest]
                here = [*place, *["0"] * rest]
                axes = [(count + k, after + k) for k in range(rest)]
                if nest.part_copied((y, there), (updates, here), axes):
                    return
        with nest.over(updates.shape[after:], "o") as inner:
            here = [*place, *inner]
            _update(nest, [*names, *inner], updates, here, [f"{name} >= 0" for name in names])


COPYING = frozenset(
    """Concat DepthToSpace Expand Gather GatherElements GatherND Slice SpaceToDepth Split Tile
    Transpose""".split()
)  # loops that copy elements as they are stored, whatever that is
LOOPS: dict[str, Callable[[Nest], None]] = {
    "BitCast": bit_cast,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Pad": pad,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
}
