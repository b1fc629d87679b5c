"""What constants hold, and which elements of a map operators use, however the network is spelled.

Compulsory bytes are counted of these: a vector repeated for every channel, a matrix beside its transpose and
a map of which a Slice takes a part count alike, whichever operators say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Graph, Tensor, whole
from lfopt.ops.access import RULES
from lfopt.ops.call import Call
from lfopt.ops.parameters import slice_steps, split_sizes
from lfopt.ops.table import OpSpec, row_of
from lfopt.ops.traits import Family, Tiling
from lfopt.ops.windows import Window, windows

MOST_TAPS = 1 << 22  # of a window along an axis that are looked at one by one
PART = 1 << 20  # elements that are hashed at a time


# -- constants -----------------------------------------------------------------------------------------------


class Content(NamedTuple):
    """What a constant holds."""

    key: Hashable  # equal for constants that hold the same elements, in whatever order and shape
    elements: int  # of what it repeats along its axes: 1 if all of its elements are one


def contents(
    names: Iterable[str], tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None]
) -> dict[str, Content]:
    """What each of these constants holds; one without values holds all of its elements, by its name.

    `constants`: arrays shaped as their tensors.
    """
    held = dict[str, Content]()
    compact = dict[str, np.ndarray]()
    alike = defaultdict[Hashable, list[str]](list)
    for name in dict.fromkeys(names):
        value = constants[name]
        if value is None or (words := _words(value)) is None:
            held[name] = Content(name, tensors[name].elements)
            continue
        compact[name] = _without_repeats(words)
        total = int(compact[name].sum(dtype=np.uint64))
        alike[value.dtype.str, compact[name].size, total].append(name)
    for same, members in alike.items():
        for name in members:
            key = (same, _hash(compact[name])) if len(members) > 1 else name
            held[name] = Content(key, compact[name].size)
    return held


def _words(value: np.ndarray) -> np.ndarray | None:
    """The elements as unsigned integers of their bits; None where there is no such type."""
    if value.dtype.kind in "OSU" or value.dtype.itemsize not in (1, 2, 4, 8):
        return None
    return value.view(f"u{value.dtype.itemsize}")


def _without_repeats(words: np.ndarray) -> np.ndarray:
    """Along every axis what the array repeats: element by element first, then as a whole."""
    for axis in range(words.ndim):
        along = np.moveaxis(words, axis, 0)
        if words.strides[axis] == 0:
            along = along[:1]
        if len(along) > 1 and _equal(along[0], along[1]):
            along = along[:: _block(along)]
        along = along[: _period(along)]
        words = np.moveaxis(along, 0, axis)
    return words


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one == other).all())


def _block(along: np.ndarray) -> int:
    """Largest number of parts in succession that are equal, block after block."""
    count = len(along)
    run = next((k for k in range(1, count) if not _equal(along[0], along[k])), count)
    for size in range(run, 1, -1):
        if count % size == 0 and all(_equal(along[k::size], along[::size]) for k in range(1, size)):
            return size
    return 1


def _period(along: np.ndarray) -> int:
    """Least number of parts after which they come again."""
    count = len(along)
    for size in range(1, count // 2 + 1):
        if count % size == 0 and _equal(along[0], along[size]) and _equal(along[size:], along[:-size]):
            return size
    return count


def _hash(words: np.ndarray) -> int:
    """A sum over hashed elements: the same in whatever order they are."""
    flat = words.reshape(-1)
    total = 0
    for start in range(0, flat.size, PART):
        part = flat[start : start + PART].astype(np.uint64)
        part ^= part >> np.uint64(33)
        part *= np.uint64(0xFF51AFD7ED558CCD)
        part ^= part >> np.uint64(33)
        part *= np.uint64(0xC4CEB9FE1A85EC53)
        part ^= part >> np.uint64(33)
        total += int(part.sum(dtype=np.uint64))
    return total % (1 << 64)


class ConstantUse(NamedTuple):
    """One operator's use of a constant as data."""

    name: str
    elements: int  # that it uses, of those of the constant
    weight: bool  # whether it is summed over: all other constants may be stored as biases elsewhere


def constant_use(call: Call, index: int, content: Content) -> ConstantUse:
    """What an operator uses of a constant that it reads as data.

    Nothing where a group of a convolution, or a product of a batch, has one element of its weights: taken
    apart by these, that is a parameter.
    """
    row = row_of(call)
    name = call.operator.inputs[index]
    elements = content.elements
    if row.kind == "Gather" and index == 0:
        return ConstantUse(
            name, min(elements, _count(_gathered(call), call.shape(0), elements)), weight=False
        )
    statistics = row.kind == "BatchNormalization" and index > 2  # which scale and shift can take in
    places = index == 1 and (row.kind == "Gather" or row.family is Family.INDEX)  # as a Slice states them
    if statistics or places:
        return ConstantUse(name, 0, weight=False)
    weight = row.tiling is Tiling.CONTRACT and index < 2
    if weight and _per_part(call, row, index) == 1:
        elements = 1
    return ConstantUse(name, elements if elements > 1 else 0, weight)


def _per_part(call: Call, row: OpSpec, index: int) -> int:
    """Elements of a contraction's weights in one group of a convolution, or one product of a batch."""
    shape = call.shape(index)
    if row.family is Family.CONVOLUTION:
        groups: int = call.attribute("group", 1)
        if groups > 1:
            return prod(shape) // groups
        return prod(shape)
    if row.family is Family.PRODUCT and len(shape) > 2:
        return prod(shape[-2:])
    return prod(shape)


# -- maps ----------------------------------------------------------------------------------------------------


# per axis: indices that are used, as a range where they are too many to list; None: all
Positions = Sequence[np.ndarray | range | None]


def elements_used(shape: tuple[int, ...], readers: Iterable[tuple[Call, int]]) -> int:
    """Lower bound on the elements of a map, of this shape, that operators use; they read it as inputs.

    All but what a Slice, Split, Gather or Pad leaves out, windows step over, or indices that are computed
    may leave out.
    """
    most = 0
    total = prod(shape)
    by_axis = dict[int, list[np.ndarray]]()
    for call, index in readers:
        used = used_positions(call, index)
        count = _count(used, call.shape(index), total)
        if count >= total:
            return total
        most = max(most, count)
        if not isinstance(used, int) and call.shape(index) == shape:
            for axis in _only_axis(used):
                indices = used[axis]
                if isinstance(indices, np.ndarray):
                    by_axis.setdefault(axis, []).append(indices)
    parts = [
        len(np.unique(np.concatenate(indices))) * (total // shape[axis]) for axis, indices in by_axis.items()
    ]
    return min(max([most, *parts]), total)


# of the operators that only move elements: those whose result may repeat some, or have others beside them
PICKING = frozenset({"Concat", "Gather"})


def moves_elements(call: Call) -> bool:
    """Whether an operator only moves elements, so that what reads its result may read through it."""
    return call.operator.kind in RULES


def elements_used_through(
    shape: tuple[int, ...], readers: Sequence[tuple[Call, int]], results_used: Callable[[Call], int]
) -> int:
    """As `elements_used`, where operators that only move elements need not run.

    What reads their results may read through them: so they use no more elements than are used of these.
    `results_used`: that number, of an operator.
    """
    executed: list[tuple[Call, int]] = []
    moved = 0
    for call, index in readers:
        if moves_elements(call):
            used = results_used(call)
            if used < elements_used(shape, [(call, index)]):
                moved = max(moved, 0 if call.operator.kind in PICKING else used)
                continue
        executed.append((call, index))
    return max(moved, elements_used(shape, executed))


def _only_axis(used: Positions) -> tuple[int, ...]:
    """The axis along which a part is used, if there is just one."""
    axes = tuple(axis for axis, indices in enumerate(used) if indices is not None)
    if len(axes) == 1:
        return axes
    return ()


def _count(used: Positions | int, shape: tuple[int, ...], most: int) -> int:
    if isinstance(used, int):
        return min(used, most)
    sizes = (extent if indices is None else len(indices) for extent, indices in zip(shape, used, strict=True))
    return min(prod(sizes), most)


def used_positions(call: Call, index: int) -> Positions | int:
    """Which elements of an input an operator uses, along each axis; or how many at the least."""
    row = row_of(call)
    shape = call.shape(index)
    everything: Positions = (None,) * len(shape)
    if index in row.parameters or call.attention is not None:
        return everything
    if row.kind.startswith("Scatter"):
        if index == 0:
            return max(prod(shape) - prod(call.shape(1)), 0)
        return everything
    if index != 0:
        return everything
    if row.kind == "Slice":
        return _sliced(call)
    if row.kind == "Gather":
        return _gathered(call)
    if row.kind == "Split":
        return _split(call)
    if row.kind == "Pad" or row.transposed:
        box = row.box(call, 0, whole(call.result), 0, None)
        return [
            None if span == (0, extent) else _positions(range(*span))
            for span, extent in zip(box, shape, strict=True)
        ]
    if row.slides:
        return (None, None, *(_tapped(axis) for axis in windows(call)))
    if row.family is Family.INDEX:
        return min(prod(call.result), prod(shape))
    if row.family is Family.INTERPOLATION:
        return prod(1 if after < before else before for before, after in zip(shape, call.result, strict=True))
    return everything


def _sliced(call: Call) -> Positions | int:
    steps = slice_steps(call)
    if steps is None:
        return prod(call.result)
    return [
        None if count == extent else _positions(range(start, start + step * count, step))
        for (start, step), count, extent in zip(steps, call.result, call.shape(0), strict=True)
    ]


def _positions(indices: range) -> np.ndarray | range:
    if len(indices) > MOST_TAPS:
        return indices
    return np.array(indices, np.int64)


def _gathered(call: Call) -> Positions | int:
    shape = call.shape(0)
    indices = call.values[1]
    axis = call.attribute("axis", 0) % len(shape)
    if indices is None:
        return min(prod(call.result), prod(shape))
    distinct = np.unique(np.asarray(indices, np.int64) % shape[axis])
    return [distinct if k == axis and len(distinct) < shape[axis] else None for k in range(len(shape))]


def _split(call: Call) -> Positions | int:
    sizes = split_sizes(call)
    shape = call.shape(0)
    if sizes is None or all(call.operator.outputs):
        if sizes is not None:
            return (None,) * len(shape)
        return sum(map(prod, call.results))
    axis = call.attribute("axis", 0) % len(shape)
    ends = [0, *accumulate(sizes)]
    kept = [range(ends[k], ends[k + 1]) for k, name in enumerate(call.operator.outputs) if name]
    if sum(map(len, kept)) > MOST_TAPS:
        return sum(map(prod, call.results))
    return [
        np.concatenate([np.array(part) for part in kept]) if k == axis else None for k in range(len(shape))
    ]


def _tapped(axis: Window) -> np.ndarray | range | None:
    """Indices that windows along an axis tap; of very many, those that one tap of each window meets."""
    if axis.dilation == 1 and axis.stride <= axis.kernel:
        last = (axis.size_out - 1) * axis.stride - axis.pad + axis.kernel
        if axis.pad >= 0 and last >= axis.size:
            return None
        return _positions(range(max(-axis.pad, 0), min(last, axis.size)))
    if axis.size_out > MOST_TAPS:
        return range(
            -axis.pad % axis.stride, min(axis.size, axis.size_out * axis.stride - axis.pad), axis.stride
        )
    kernel = axis.kernel if axis.kernel * axis.size_out <= MOST_TAPS else 1
    taps = np.arange(axis.size_out)[:, None] * axis.stride - axis.pad + np.arange(kernel) * axis.dilation
    tapped = np.unique(taps[(taps >= 0) & (taps < axis.size)])
    if len(tapped) == axis.size:
        return None
    return tapped


def normalises_all(call: Call, index: int) -> bool:
    """Whether a normalisation needs all of an input for every element of its result."""
    row = row_of(call)
    if row.family is not Family.NORMALISATION or row.kind == "LRN" or index != 0:
        return False
    return row.box(call, 0, ((0, 1),) * len(call.result), 0, None) == whole(call.shape(0))


def data_constants(graph: Graph, calls: Iterable[Call]) -> list[tuple[Call, int]]:
    """(operator, input) of every constant of more than one element that is read as data."""
    return [
        (call, index)
        for call in calls
        for index, name in enumerate(call.operator.inputs)
        if name
        and call.constant[index]
        and index not in row_of(call).parameters
        and graph.tensors[name].elements > 1
    ]
