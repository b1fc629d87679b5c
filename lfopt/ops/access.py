"""Access patterns: where the elements of a tensor lie that operators only move.

What a Transpose, Split, Slice, Concat, DepthToSpace, SpaceToDepth or a Gather by constant indices makes is
there already, in the maps behind it. A reader can take it from there, in *pieces*: boxes of the tensor, each
of which is one nest of counted loops over one stored tensor. So reads a DMA with as many loops, or a pointer
with as many steps. An axis may take several loops: the 64 windows of a map of 8 x 8 windows are two.

Reshapes never need a copy: a piece that cannot be said in the new axes is cut into several that can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, product
from math import prod
from typing import TypeVar

from lfopt.ir import Box, Graph, InvalidPlan, Span, Tensor, cut, row_axis, whole
from lfopt.ops.call import Call
from lfopt.ops.dataflow import maps_behind
from lfopt.ops.parameters import permutation, slice_steps, split_sizes
from lfopt.ops.table import spec

MOST_PIECES = 64  # of a tensor behind all that may be read through
# of a tensor in any plan: where some of that is executed after all, pieces may be cut otherwise
MOST_PIECES_EVER = 1 << 12

Loops = tuple[tuple[int, int], ...]  # (iterations, stride in elements), outermost first


@dataclass(frozen=True, slots=True)
class AccessPiece:
    """A box of a tensor, and the loops over a stored tensor that read it in order."""

    box: Box  # in the axes of the tensor that is read
    source: str  # the stored tensor: a map or a constant
    offset: int  # elements from its start to the first element of the box
    loops: tuple[Loops, ...]  # per axis of the box: iterations multiply to its extent

    def spanning(self, axis: int, span: Span, offset: int, loops: Loops) -> AccessPiece:
        """The piece with another span along an axis, that begins `offset` elements further."""
        return AccessPiece(
            cut(self.box, axis, span),
            self.source,
            self.offset + offset,
            (*self.loops[:axis], loops, *self.loops[axis + 1 :]),
        )


Access = tuple[AccessPiece, ...]  # pieces that together are a whole tensor, without overlap
Sources = Sequence[Access]  # of the operands, in ONNX order
P = TypeVar("P")


class TooManyPieces(InvalidPlan):
    """A tensor lies in more pieces than a plan may read."""


def _limited(pieces: Iterable[P]) -> list[P]:
    """The pieces. Raises TooManyPieces, before they are all made."""
    kept = list(islice(pieces, MOST_PIECES_EVER + 1))
    if len(kept) > MOST_PIECES_EVER:
        raise TooManyPieces(f"a tensor is read in more than {MOST_PIECES_EVER:,} pieces")
    return kept


# -- counted loops -------------------------------------------------------------------------------------------


def merged(loops: Loops) -> Loops:
    """The same sequence of elements in as few loops as possible.

    >>> merged(((2, 12), (3, 4), (1, 9)))
    ((6, 4),)
    """
    fewer: list[tuple[int, int]] = []
    for count, stride in loops:
        if count == 1:
            continue
        if fewer and fewer[-1][1] == count * stride:
            fewer[-1] = (fewer[-1][0] * count, stride)
        else:
            fewer.append((count, stride))
    return tuple(fewer)


def part_of(loops: Loops, start: int, stop: int) -> Iterator[tuple[Span, int, Loops]]:
    """(span, elements to its first, loops) of the fewest pieces that are `start` up to `stop` of a sequence.

    >>> [*part_of(((4, 100), (3, 1)), 2, 9)]
    [((2, 3), 2, ()), ((3, 9), 100, ((2, 100), (3, 1)))]
    """
    if start >= stop:
        return
    if not loops:
        yield (start, stop), 0, ()
        return
    (_, stride), inner = loops[0], loops[1:]
    size = prod(count for count, _ in inner)
    first, last = start // size, (stop - 1) // size
    if first == last:
        base = first * size
        for (low, high), offset, within in part_of(inner, start - base, stop - base):
            yield (base + low, base + high), first * stride + offset, within
        return
    if start % size:
        turn = (first + 1) * size
        yield from part_of(loops, start, turn)
        yield from part_of(loops, turn, stop)
        return
    turn = stop // size * size
    yield (start, turn), first * stride, merged((((turn - start) // size, stride), *inner))
    yield from part_of(loops, turn, stop)


def _shared_out(loops: Loops, extents: Sequence[int]) -> tuple[Loops, ...] | None:
    """The loops of a sequence shared out among axes of these extents; None where a loop cannot be cut so."""
    left = [*loops]
    axes: list[Loops] = []
    for extent in reversed(extents):
        own: list[tuple[int, int]] = []
        while extent > 1:
            count, stride = left.pop()
            if extent % count == 0:
                own.append((count, stride))
                extent //= count
            elif count % extent == 0:
                own.append((extent, stride))
                left.append((count // extent, stride * extent))
                extent = 1
            else:
                return None
        axes.append(merged(tuple(reversed(own))))
    return tuple(reversed(axes))


# -- reshapes ------------------------------------------------------------------------------------------------


def _axis_groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[range, range]]:
    """Axes of two shapes of equally many elements in runs of the same number of elements, as short as can be.

    >>> _axis_groups((2, 12, 5), (2, 3, 4, 5))
    [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 3)), (range(2, 3), range(3, 4))]
    """
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        first_i, first_j, left, right = i, j, 1, 1
        if i < len(before):
            left, i = before[i], i + 1
        if j < len(after):
            right, j = after[j], j + 1
        while left != right:
            if left < right:
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def reshaped(access: Access, before: Sequence[int], after: Sequence[int]) -> Access:
    """The same elements, in the same order, as a tensor of another shape. Raises TooManyPieces."""
    if tuple(before) == tuple(after):
        return access
    groups = _axis_groups(before, after)
    return tuple(_limited(new for piece in access for new in _reshaped(piece, before, after, groups)))


def _reshaped(
    piece: AccessPiece, before: Sequence[int], after: Sequence[int], groups: Sequence[tuple[range, range]]
) -> Iterator[AccessPiece]:
    """Pieces of the new shape; a group of axes after the other is said in the new axes."""
    pending = [AccessPiece((), piece.source, piece.offset, ())]
    for old, new in groups:
        spans = [piece.box[axis] for axis in old]
        loops = [piece.loops[axis] for axis in old]
        extents = [after[axis] for axis in new]
        parts = _limited(
            part
            for start, stop, offset, sequence in _runs(spans, [before[axis] for axis in old], loops)
            for part in _in_axes(start, stop, offset, sequence, extents)
        )
        pending = _limited(
            AccessPiece((*one.box, *box), one.source, one.offset + offset, (*one.loops, *own))
            for one in pending
            for box, offset, own in parts
        )
    yield from pending


def _runs(
    spans: Sequence[Span], shape: Sequence[int], loops: Sequence[Loops]
) -> Iterator[tuple[int, int, int, Loops]]:
    """(start, stop, elements to its first, loops) of a box of some axes as runs of their joint index."""
    if not spans:
        yield 0, 1, 0, ()
        return
    (low, high), size = spans[0], prod(shape[1:])
    if all(span == (0, extent) for span, extent in zip(spans[1:], shape[1:], strict=True)):
        yield low * size, high * size, 0, merged(tuple(loop for axis in loops for loop in axis))
        return
    for index in range(low, high):
        ((_, along, _),) = part_of(loops[0], index - low, index - low + 1)
        for start, stop, offset, own in _runs(spans[1:], shape[1:], loops[1:]):
            yield index * size + start, index * size + stop, along + offset, own


def _in_axes(
    start: int, stop: int, offset: int, loops: Loops, extents: Sequence[int]
) -> Iterator[tuple[Box, int, tuple[Loops, ...]]]:
    """(box, elements to its first, loops by axis) of a run of the joint index of axes of these extents."""
    if len(extents) <= 1:
        if extents:
            yield ((start, stop),), offset, (loops,)
        else:
            yield (), offset, ()
        return
    size = prod(extents[1:])
    first, last = start // size, (stop - 1) // size
    if first == last:
        base = first * size
        for box, more, own in _in_axes(start - base, stop - base, offset, loops, extents[1:]):
            yield ((first, first + 1), *box), more, ((), *own)
        return
    if start % size == 0 and stop % size == 0:
        inner = extents[1:]
        shared = _shared_out(loops, [(stop - start) // size, *inner])
        if shared is not None:
            yield ((start // size, stop // size), *whole(tuple(inner))), offset, shared
            return
        turns = [*range(start, stop, size), stop]
    else:
        inside = {-(-start // size) * size, stop // size * size}
        turns = sorted({start, stop, *(turn for turn in inside if start < turn < stop)})
    for low, high in pairwise(turns):
        for (began, ended), along, own in part_of(loops, low - start, high - start):
            yield from _in_axes(start + began, start + ended, offset + along, own, extents)


# -- operators -----------------------------------------------------------------------------------------------


def _along(access: Access, axis: int, start: int, stop: int) -> Access:
    """Indices `start` up to `stop` of an axis, counted from 0 again."""
    parts: list[AccessPiece] = []
    for piece in access:
        low, high = piece.box[axis]
        begin, end = max(low, start), min(high, stop)
        for (first, last), offset, loops in part_of(piece.loops[axis], begin - low, end - low):
            span = (low + first - start, low + last - start)
            parts.append(piece.spanning(axis, span, offset, loops))
    return tuple(parts)


def _chosen(access: Access, axis: int, indices: Sequence[int]) -> Access:
    """The elements of an axis by index, in as few pieces as steady steps between indices allow."""

    def parts() -> Iterator[AccessPiece]:
        at = 0
        for steady in _steady(indices):
            for piece in access:
                yield from _stepped(piece, axis, steady, at)
            at += len(steady)

    return tuple(_limited(parts()))


def _steady(indices: Sequence[int]) -> Iterator[range]:
    """Indices as runs of equal steps.

    >>> [*_steady([3, 4, 5, 9, 7])]
    [range(3, 6), range(9, 5, -2)]
    """
    if isinstance(indices, range):
        yield indices
        return
    at = 0
    while at < len(indices):
        stop, step = at + 1, 1
        if stop < len(indices) and indices[stop] != indices[at]:
            step = indices[stop] - indices[at]
            while stop < len(indices) and indices[stop] - indices[stop - 1] == step:
                stop += 1
        yield range(indices[at], indices[at] + step * (stop - at), step)
        at = stop


def _stepped(piece: AccessPiece, axis: int, indices: range, at: int) -> Iterator[AccessPiece]:
    """The elements of a piece with these indices along an axis, the first of which becomes index `at`."""
    if indices.step == 1:
        low, high = piece.box[axis]
        begin, end = max(low, indices.start), min(high, indices.stop)
        for (first, last), offset, loops in part_of(piece.loops[axis], begin - low, end - low):
            shift = at - indices.start + low
            yield piece.spanning(axis, (shift + first, shift + last), offset, loops)
        return
    low, high = piece.box[axis]
    inside = [k for k, index in enumerate(indices) if low <= index < high]
    if not inside:
        return
    loops = merged(piece.loops[axis])
    first = indices[inside[0]] - low
    if len(loops) <= 1:
        stride = loops[0][1] if loops else 0
        span = (at + inside[0], at + inside[-1] + 1)
        own = merged(((len(inside), stride * indices.step),))
        yield piece.spanning(axis, span, first * stride, own)
        return
    for k in inside:
        ((_, offset, _),) = part_of(loops, indices[k] - low, indices[k] - low + 1)
        yield piece.spanning(axis, (at + k, at + k + 1), offset, ())


def _transpose(call: Call, sources: Sources) -> list[Access] | None:
    order = permutation(call)
    return [
        tuple(
            AccessPiece(
                tuple(piece.box[axis] for axis in order),
                piece.source,
                piece.offset,
                tuple(piece.loops[axis] for axis in order),
            )
            for piece in sources[0]
        )
    ]


def _split(call: Call, sources: Sources) -> list[Access] | None:
    sizes = split_sizes(call)
    if sizes is None:
        return None
    axis = call.attribute("axis", 0) % len(call.shape(0))
    starts = accumulate(sizes, initial=0)
    return [
        _along(sources[0], axis, start, start + size)
        for start, size, name in zip(starts, sizes, call.operator.outputs, strict=False)
        if name
    ]


def _concat(call: Call, sources: Sources) -> list[Access] | None:
    axis = call.attribute("axis", 0) % len(call.result)
    joined: list[AccessPiece] = []
    start = 0
    for k, access in enumerate(sources):
        for piece in access:
            low, high = piece.box[axis]
            joined.append(piece.spanning(axis, (start + low, start + high), 0, piece.loops[axis]))
        start += call.shape(k)[axis]
    return [tuple(joined)]


def _slice(call: Call, sources: Sources) -> list[Access] | None:
    steps = slice_steps(call)
    if steps is None:
        return None
    access = sources[0]
    for axis, ((start, step), extent) in enumerate(zip(steps, call.result, strict=True)):
        if (start, step, extent) != (0, 1, call.shape(0)[axis]):
            access = _chosen(access, axis, range(start, start + step * extent, step))
    return [access]


def _gather(call: Call, sources: Sources) -> list[Access] | None:
    indices = call.values[1]
    if indices is None or call.constant[0]:
        return None
    shape = call.shape(0)
    axis = call.attribute("axis", 0) % len(shape)
    flat = [int(index) % shape[axis] for index in indices.reshape(-1)]
    access = _chosen(sources[0], axis, flat)
    gathered = (*shape[:axis], len(flat), *shape[axis + 1 :])
    return [reshaped(access, gathered, call.result)]


def _depth_to_space(call: Call, sources: Sources) -> list[Access] | None:
    n, c, h, w = call.shape(0)
    block = call.attribute("blocksize", 1)
    depth_first = call.attribute("mode", "DCR") == "DCR"
    blocks = (block, block, c // block**2) if depth_first else (c // block**2, block, block)
    order = (0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3)
    return [_rearranged(sources[0], call.shape(0), (n, *blocks, h, w), order, call.result)]


def _space_to_depth(call: Call, sources: Sources) -> list[Access] | None:
    n, c, h, w = call.shape(0)
    block = call.attribute("blocksize", 1)
    order = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = (n, c, h // block, block, w // block, block)
    return [_rearranged(sources[0], call.shape(0), blocks, order, call.result)]


def _rearranged(
    access: Access, shape: Sequence[int], blocks: Sequence[int], order: Sequence[int], result: Sequence[int]
) -> Access:
    """The elements in blocks, whose axes change their order."""
    laid_out = reshaped(access, shape, blocks)
    turned = tuple(
        AccessPiece(
            tuple(piece.box[axis] for axis in order),
            piece.source,
            piece.offset,
            tuple(piece.loops[axis] for axis in order),
        )
        for piece in laid_out
    )
    return reshaped(turned, [blocks[axis] for axis in order], result)


RULES: Mapping[str, Callable[[Call, Sources], list[Access] | None]] = {
    "Transpose": _transpose,
    "Split": _split,
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}


# -- networks ------------------------------------------------------------------------------------------------


def stored_whole(tensor: Tensor, *, by_rows: bool = False) -> Access:
    """The access of a tensor that lies in memory, in ONNX's order; `by_rows`: row after row, as plans say."""
    if not tensor.elements:
        return ()
    shape, rows = tensor.shape, row_axis(tensor.shape)
    order = [*range(len(shape))]
    if by_rows and rows is not None:
        order = [rows, *(axis for axis in order if axis != rows)]
    strides = dict[int, int]()
    for position, axis in enumerate(order):
        strides[axis] = prod(shape[inner] for inner in order[position + 1 :])
    loops = tuple(merged(((extent, strides[axis]),)) for axis, extent in enumerate(shape))
    return (AccessPiece(whole(shape), tensor.name, 0, loops),)


class AccessPatterns:
    """How tensors are read of which operators of a network are not executed, but read through."""

    def __init__(self, graph: Graph, *, by_rows: bool = False) -> None:
        """Nothing is read through at first. `by_rows`: maps lie row after row, not in ONNX's order."""
        self.graph, self.by_rows = graph, by_rows
        self.behind = maps_behind(graph)
        # tensors made by operators that are read through, and views of them
        self.known: dict[str, Access] = {}

    @classmethod
    def through(cls, graph: Graph, operators: Collection[str], *, by_rows: bool = False) -> AccessPatterns:
        """`operators`: those that are read through, by name.

        Raises InvalidPlan for one through which nothing can be read, and where a tensor lies in too many
        pieces.
        """
        accesses = cls(graph, by_rows=by_rows)
        for operator in graph.operators if operators else ():
            if spec(operator.kind, operator.domain).view:
                accesses.known |= accesses.view(operator.inputs[0], operator.outputs[0])
            elif operator.name in operators:
                results = accesses.results(Call.of(graph, operator))
                if results is None:
                    raise InvalidPlan(f"node {operator.name!r} ({operator.kind}) cannot be read through")
                accesses.known |= results
        return accesses

    def of(self, name: str) -> Access:
        """The pieces of a tensor: of one that is stored itself, a single one."""
        if name in self.known:
            return self.known[name]
        stored = self.graph.tensors[self.behind.get(name, name)]
        return reshaped(stored_whole(stored, by_rows=self.by_rows), stored.shape, self.graph.shape(name))

    def view(self, source: str, name: str) -> dict[str, Access]:
        """The pieces of a view of a tensor that is read through, by name; nothing of others.

        Raises TooManyPieces.
        """
        if source not in self.known:
            return {}
        return {name: reshaped(self.known[source], self.graph.shape(source), self.graph.shape(name))}

    def results(self, call: Call) -> dict[str, Access] | None:
        """The pieces of an operator's results, by name; None where they cannot be read through it.

        Raises TooManyPieces.
        """
        rule = RULES.get(call.operator.kind)
        data = [k for k in range(len(call.operator.inputs)) if call.operator.kind == "Concat" or k == 0]
        operands = [call.operator.inputs[k] for k in data]
        if rule is None or call.then or call.attention is not None or call.operator.domain:
            return None
        first, alike = call.tensors[0], [call.tensors[k] for k in data]
        if first is None or first.dtype == "string" or call.constant[0] and len(data) == 1:
            return None
        kinds = {(t.dtype, t.quantization) for t in (*alike, *call.result_tensors) if t is not None}
        if len(kinds) > 1:  # integers of another scale are computed anew
            return None
        pieces = rule(call, [self.of(name) for name in operands])
        names = [name for name in call.operator.outputs if name]
        return None if pieces is None else dict(zip(names, pieces, strict=True))

    def sources(self, name: str) -> frozenset[str]:
        """The stored maps and constants that a tensor lies in."""
        return frozenset(piece.source for piece in self.of(name))


def runs_in(access: Access, box: Box) -> tuple[int, int]:
    """(runs, reach) of the elements of a box of a tensor, in whatever order they are read.

    Runs lie side by side in memory. Reach: elements of memory from the first to the last of each piece, all
    pieces together.
    """
    runs = reach = 0
    for piece in access:
        spans = [
            (max(low, first) - first, min(high, last) - first)
            for (low, high), (first, last) in zip(box, piece.box, strict=True)
        ]
        if any(low >= high for low, high in spans):
            continue
        parts = (
            [own for _, _, own in part_of(loops, *span)]
            for loops, span in zip(piece.loops, spans, strict=True)
        )
        for part in product(*parts):
            loops = [loop for own in part for loop in own]
            runs += _runs_of(loops)
            reach += 1 + sum((count - 1) * abs(stride) for count, stride in loops)
    return runs, reach


def _runs_of(loops: Sequence[tuple[int, int]]) -> int:
    """Runs of elements side by side that nested loops read."""
    run = 1
    for count, stride in sorted(loops, key=lambda loop: abs(loop[1])):
        if abs(stride) == run:
            run *= count
    return prod(count for count, _ in loops) // run
