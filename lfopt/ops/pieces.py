"""Strided pieces: where the elements of a tensor lie in stored tensors, as nests of counted loops.

A piece is a box of the tensor that one nest of counted loops over one stored tensor reads. So reads a DMA
with as many loops, or a pointer with so many steps. An axis may take several loops: the 64 windows of a map
of 8 x 8 windows are two.

Reshapes never need a copy: a piece that cannot be said in the new axes is cut into several that can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from math import prod
from typing import TypeVar

from lfopt.ir import Box, InvalidPlan, Span, Tensor, cut, row_axis, whole

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
    first = start // size
    last = (stop - 1) // size
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
        first_i = i
        first_j = j
        left = 1
        right = 1
        if i < len(before):
            left = before[i]
            i = i + 1
        if j < len(after):
            right = after[j]
            j = j + 1
        while left != right:
            if left < right:
                left = left * before[i]
                i = i + 1
            else:
                right = right * after[j]
                j = j + 1
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def reshaped(access: Access, before: Sequence[int], after: Sequence[int]) -> Access:
    """The same elements, in the same order, as a tensor of another shape. Raises TooManyPieces."""
    if not access or tuple(before) == tuple(after):
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
        ((_, before, _),) = part_of(loops[0], index - low, index - low + 1)
        for start, stop, offset, own in _runs(spans[1:], shape[1:], loops[1:]):
            yield index * size + start, index * size + stop, before + offset, own


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
    first = start // size
    last = (stop - 1) // size
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
        for (began, ended), before, own in part_of(loops, low - start, high - start):
            yield from _in_axes(start + began, start + ended, offset + before, own, extents)


# -- parts ---------------------------------------------------------------------------------------------------


def along(access: Access, axis: int, start: int, stop: int) -> Access:
    """Indices `start` up to `stop` of an axis, counted from 0 again."""
    parts: list[AccessPiece] = []
    for piece in access:
        low, high = piece.box[axis]
        begin = max(low, start)
        end = min(high, stop)
        for (first, last), offset, loops in part_of(piece.loops[axis], begin - low, end - low):
            span = (low + first - start, low + last - start)
            parts.append(piece.spanning(axis, span, offset, loops))
    return tuple(parts)


def every(access: Access, axis: int, indices: range) -> Access:
    """The elements of an axis with these indices, some steps apart."""
    if indices.step == 1:
        return along(access, axis, indices.start, indices.stop)
    return tuple(_limited(part for piece in access for part in _stepped(piece, axis, indices)))


def _stepped(piece: AccessPiece, axis: int, indices: range) -> Iterator[AccessPiece]:
    """The elements of a piece with these indices along an axis."""
    low, high = piece.box[axis]
    inside = [k for k, index in enumerate(indices) if low <= index < high]
    if not inside:
        return
    loops = merged(piece.loops[axis])
    if len(loops) <= 1:
        stride = loops[0][1] if loops else 0
        first = indices[inside[0]] - low
        own = merged(((len(inside), stride * indices.step),))
        yield piece.spanning(axis, (inside[0], inside[-1] + 1), first * stride, own)
        return
    for k in inside:
        ((_, offset, _),) = part_of(loops, indices[k] - low, indices[k] - low + 1)
        yield piece.spanning(axis, (k, k + 1), offset, ())


def stored_whole(tensor: Tensor, *, by_rows: bool = False) -> Access:
    """The access of a tensor that lies in memory, in ONNX's order; `by_rows`: row after row, as plans say."""
    if not tensor.elements:
        return ()
    shape = tensor.shape
    rows = row_axis(tensor.shape)
    order = [*range(len(shape))]
    if by_rows and rows is not None:
        order = [rows, *(axis for axis in order if axis != rows)]
    strides = dict[int, int]()
    for position, axis in enumerate(order):
        strides[axis] = prod(shape[inner] for inner in order[position + 1 :])
    loops = tuple(merged(((extent, strides[axis]),)) for axis, extent in enumerate(shape))
    return (AccessPiece(whole(shape), tensor.name, 0, loops),)


def permuted(access: Access, order: Sequence[int]) -> Access:
    """The same elements with their axes in another order: that of axis `order[k]` becomes the k-th."""
    return tuple(
        AccessPiece(
            tuple(piece.box[axis] for axis in order),
            piece.source,
            piece.offset,
            tuple(piece.loops[axis] for axis in order),
        )
        for piece in access
    )


# -- runs in memory ------------------------------------------------------------------------------------------


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
