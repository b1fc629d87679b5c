"""Operators that move elements without arithmetic.

Indices that are computed may be anything, and nothing outside an array is ever touched: one that lies outside
is taken as the nearest inside where elements are read, and passed over where they are written. (NumPy would
raise.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import prod

import numpy as np

from codegen.layout import split_starts
from codegen.loops.elementwise import FOLDED, Fold, scalar
from codegen.loops.nest import Array, Nest
from codegen.loops.scalar import Scalar
from lfopt.ir import Span
from lfopt.ops.parameters import pad_amounts, pad_sources, permutation, slice_steps

Index = Sequence[str]


def plus(index: str, offset: int) -> str:
    """C expression: an index plus an offset."""
    if index.lstrip("-").isdigit():
        return str(int(index) + offset)
    return index if offset == 0 else f"{index} {'+' if offset > 0 else '-'} {abs(offset)}"


def copied(nest: Nest, source: Callable[[Index], Index]) -> None:
    """Loops that take every element of the result from one place in the operand."""
    x, y = nest.operand(0), nest.results[0]
    with nest.elements() as at:
        nest.out(f"{y.at(at)} = {x.at(source(at))};")


# -- by place ------------------------------------------------------------------------------------------------


def concat(nest: Nest) -> None:
    """One operand after the other along an axis."""
    y, start = nest.results[0], 0
    axis = nest.call.attribute("axis", 0) % len(y.shape)
    for k in range(len(nest.call.shapes)):
        stop = start + nest.call.shape(k)[axis]
        if stop > start and k not in nest.aliased:
            x = nest.operand(k)
            with nest.elements(spans={axis: (start, stop)}) as at:
                nest.out(
                    f"{y.at(at)} = {x.at([plus(i, -start) if a == axis else i for a, i in enumerate(at)])};"
                )
        start = stop


def split(nest: Nest) -> None:
    """Parts of the operand along an axis; those that are not asked for are passed over."""
    x = nest.operand(0)
    axis = nest.call.attribute("axis", 0) % len(x.shape)
    for k, start in enumerate(split_starts(nest.call)):
        if k not in nest.aliased:
            with nest.elements(k) as at:
                nest.out(
                    f"{nest.results[k].at(at)} = "
                    f"{x.at([plus(i, start) if a == axis else i for a, i in enumerate(at)])};"
                )


def slice_(nest: Nest) -> None:
    """Every step-th element from a start, forwards or backwards."""
    steps = slice_steps(nest.call)
    if steps is None:
        raise nest.unsupported("input 1 that is computed", "a constant")
    copied(nest, lambda at: [_stepped(i, *move) for i, move in zip(at, steps, strict=True)])


def _stepped(index: str, start: int, step: int) -> str:
    if index == "0" or step == 1:
        return plus(index, start)
    return f"{start} {'+' if step > 0 else '-'} {index} * {abs(step)}"


def pad(nest: Nest) -> None:
    """A constant, or elements of the map itself, around the map; negative amounts cut it."""
    amounts, mode, shape = pad_amounts(nest.call), nest.call.attribute("mode", "constant"), nest.call.shape(0)
    if amounts is None:
        raise nest.unsupported("input 1 that is computed", "a constant")
    if mode == "constant":
        _filled(nest, amounts)
        return
    tables: dict[int, str] = {}  # axis -> where each index comes from
    for axis, (extent, size, amount) in enumerate(zip(nest.call.result, shape, amounts, strict=True)):
        if amount != (0, 0):
            tables[axis] = nest.constant(np.array(pad_sources((0, extent), size, *amount, mode), np.int32))
    copied(nest, lambda at: [f"{tables[axis]}[{i}]" if axis in tables else i for axis, i in enumerate(at)])


def _filled(nest: Nest, amounts: Sequence[Span]) -> None:
    """The map, and slabs of a constant on either side of it, one axis after the other."""
    x, y = nest.operand(0), nest.results[0]
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
        with nest.elements(spans=inner) as at:
            nest.out(
                f"{y.at(at)} = "
                f"{x.at([plus(i, -before) for i, (before, _) in zip(at, amounts, strict=True)])};"
            )


def expand(nest: Nest) -> None:
    """Repeated along axes of extent one."""
    copied(nest, lambda at: nest.operand(0).broadcast(at, nest.results[0].shape))


def tile(nest: Nest) -> None:
    """The whole operand again and again along every axis."""
    shape, tiled = nest.operand(0).shape, nest.results[0].shape
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
    copied(nest, lambda at: [at[order.index(axis)] for axis in range(len(order))])


def bit_cast(nest: Nest) -> None:
    """The bits of elements as another type of the same width."""
    a, y = nest.operand(0), nest.results[0]
    with nest.elements() as at:
        nest.out(f"const {a.ctype} a = {a.at(at)};", f"memcpy(&{y.at(at)}, &a, sizeof a);")


def depth_to_space(nest: Nest) -> None:
    """Blocks of channels laid out as blocks of pixels: depth first (DCR) or column first (CRD)."""
    block, channels = nest.call.attribute("blocksize", 1), nest.call.result[1]
    depth_first = nest.call.attribute("mode", "DCR") == "DCR"

    def source(at: Index) -> Index:
        n, c, y, x = at
        inside = f"({y} % {block} * {block} + {x} % {block})"
        channel = f"{inside} * {channels} + {c}" if depth_first else f"{c} * {block * block} + {inside}"
        return n, channel, f"{y} / {block}", f"{x} / {block}"

    copied(nest, source)


def space_to_depth(nest: Nest) -> None:
    """Blocks of pixels stacked as channels: depth first (DCR) or column first (CRD)."""
    block, channels = nest.call.attribute("blocksize", 1), nest.call.shape(0)[1]
    depth_first = nest.call.attribute("mode", "DCR") == "DCR"

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
    x, y = nest.operand(0), nest.results[0]
    sign = ">=" if nest.call.attribute("upper", 1) else "<="
    with nest.elements() as at:
        if nest.call.has(1):
            nest.out(f"const int64_t k = {scalar(nest.operand(1))};")
        diagonal = "k" if nest.call.has(1) else "0"
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
    data, indices, y = nest.operand(0), nest.operand(1), nest.results[0]
    axis = nest.call.attribute("axis", 0) % len(data.shape)
    after = axis + len(indices.shape)
    _indexed(nest, data.shape[axis : axis + 1])
    with nest.each(axes=range(after)) as outer:
        k = _taken(nest, "k", indices.at([outer[a] for a in range(axis, after)]), data.shape[axis])
        with nest.each(axes=range(after, len(y.shape))) as inner:
            at = [{**outer, **inner}[a] for a in range(len(y.shape))]
            nest.out(f"{y.at(at)} = {data.at([*at[:axis], k, *at[after:]])};")


def gather_elements(nest: Nest) -> None:
    """For every element an index of its own along an axis."""
    data, indices, y = nest.operand(0), nest.operand(1), nest.results[0]
    axis = nest.call.attribute("axis", 0) % len(data.shape)
    _indexed(nest, data.shape)
    with nest.elements() as at:
        k = _taken(nest, "k", indices.at(at), data.shape[axis])
        nest.out(f"{y.at(at)} = {data.at([*at[:axis], k, *at[axis + 1 :]])};")


def gather_nd(nest: Nest) -> None:
    """Parts of the data, each by an index along several axes; the first `batch_dims` axes are shared."""
    data, indices, y = nest.operand(0), nest.operand(1), nest.results[0]
    shared, count = nest.call.attribute("batch_dims", 0), indices.shape[-1]
    after = len(indices.shape) - 1
    _indexed(nest, data.shape[shared : shared + count])
    with nest.each(axes=range(after)) as outer:
        place = [outer[a] for a in range(after)]
        taken = [
            _taken(nest, f"k{j}", indices.at([*place, str(j)]), data.shape[shared + j]) for j in range(count)
        ]
        with nest.each(axes=range(after, len(y.shape))) as inner:
            at = [{**outer, **inner}[a] for a in range(len(y.shape))]
            nest.out(f"{y.at(at)} = {data.at([*at[:shared], *taken, *at[after:]])};")


REDUCTIONS: dict[str, Fold] = {
    "none": lambda s, old, new: new,
    "add": FOLDED["Add"],
    "mul": FOLDED["Mul"],
    "max": FOLDED["Max"],
    "min": FOLDED["Min"],
}


def _data_first(nest: Nest) -> None:
    data, y = nest.operand(0), nest.results[0]
    with nest.elements() as at:
        nest.out(f"{y.at(at)} = {data.at(at)};")
    nest.wait()


def _update(nest: Nest, at: Index, updates: Array, place: Index, conditions: Sequence[str]) -> None:
    """Put an update where it belongs, if that is to be made."""
    y, reduction = nest.results[0], nest.call.attribute("reduction", "none")
    conditions = [*conditions, *nest.wanted(dict(enumerate(at)))]
    with nest.out.block(f"if ({' && '.join(conditions)})" if conditions else ""):
        nest.out(f"const {y.ctype} x = {updates.at(place)};")
        if reduction != "none":
            nest.out(f"const {y.ctype} old = {y.at(at)};")
        nest.out(f"{y.at(at)} = ({y.ctype}){REDUCTIONS[reduction](Scalar(y.dtype), 'old', 'x')};")


def scatter_elements(nest: Nest) -> None:
    """The data, with updates each at an index of its own along an axis, one after the other."""
    indices, updates, y = nest.operand(1), nest.operand(2), nest.results[0]
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
    indices, updates, y = nest.operand(1), nest.operand(2), nest.results[0]
    count, after = indices.shape[-1], len(indices.shape) - 1
    _data_first(nest)
    with nest.alone(), nest.over(updates.shape, "j") as place:
        names = [f"k{j}" for j in range(count)]
        for j, name in enumerate(names):
            nest.out(f"const int {name} = place_of({indices.at([*place[:after], str(j)])}, {y.shape[j]});")
        _update(nest, [*names, *place[after:]], updates, place, [f"{name} >= 0" for name in names])


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
