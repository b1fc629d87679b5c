"""Layouts of feature maps in memory: row by row, in a buffer as between groups.

Within a row the other axes come in order, or, where convolutions work on a map, rows are made of pixels and
the channels of a pixel lie side by side. Only where a graph's inputs and outputs cross the border are
elements moved into ONNX's order and out of it.

DNNFusion (PLDI'21) gives each fused block the layout that its dominant operator wants, and converts maps
between blocks. Here the dominant operator of a map is whichever works on [n, c, ...], or, where none does,
products, softmax and normalisations, which want the last axis innermost. Its choice spreads along elementwise
operators, and those that cut or join maps, through the whole graph, not just a block, so that nothing is left
to convert between groups. Operators that only move elements follow: see `codegen.aliasing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple

from codegen.source import Unsupported
from lfopt.ir import Tensor, row_axis
from lfopt.ops import Call, Dataflow, Family, Mapping, bits
from lfopt.ops.parameters import permutation, reduced_axes, split_sizes
from lfopt.ops.traits import Arithmetic

PIXELS = (2, 0, 3, 1)  # axes of [N, C, H, W], outermost first
CTYPES = {
    "float32": "float", "float64": "double", "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "half", "bfloat16": "brain",
}  # fmt: skip
HALVES = frozenset({"float16", "bfloat16"})  # that Cast alone computes with; see halves.h
COUNTED = tuple(dtype for dtype in CTYPES if dtype not in HALVES)  # that counting C takes
LARGEST = 1 << 31  # elements of a map: indices are of type int

# operators whose kernels want the channels of a pixel side by side; others read them in any order
ON_PIXELS = frozenset({Family.CONVOLUTION, Family.INTERPOLATION})
POOLS = frozenset({"AveragePool", "MaxPool"})  # that have kernels on pixels, which are better for short rows
LONG_ROW = 32  # results along the last axis from which a pool is as fast along rows
# normalizations whose loops write any order of axes, best that in which they read
NORMAL = frozenset({"GroupNormalization", "InstanceNormalization"})
# reductions that have kernels on channels: the loops of others read any order
OVER_CHANNELS = (Arithmetic.MEAN, Arithmetic.EXTREME)


class Image(NamedTuple):
    """Extents of a map, as kernels that work on channels see it."""

    rows: int
    pixels: int  # in a row
    channels: int
    gap: int = 0  # elements of others between one pixel and the next,
    row_gap: int = 0  # and after the last pixel of a row: of a map that lies within another
    images: int = 1  # side by side in a row

    @property
    def width(self) -> int:
        """Pixels of an image in a row."""
        return self.pixels // self.images

    @property
    def pitch(self) -> int:
        """Elements from one pixel to the next."""
        return self.channels + self.gap

    @property
    def step(self) -> int:
        """Elements from one row to the next."""
        return self.pixels * self.pitch + self.row_gap

    @property
    def row(self) -> int:
        """Number of elements in a row."""
        return self.pixels * self.channels

    @property
    def elements(self) -> int:
        """Number of elements in the map."""
        return self.rows * self.row

    def group(self, groups: int) -> Image:
        """The channels of one of so many equal groups."""
        channels = self.channels // groups
        return self._replace(channels=channels, gap=self.pitch - channels)

    @property
    def flat(self) -> Image:
        """The whole map as one row."""
        return Image(1, self.rows * self.pixels, self.channels)


@dataclass(frozen=True, slots=True)
class MapLayout:
    """The order of a tensor's elements in memory."""

    tensor: Tensor
    order: tuple[int, ...]  # axes, outermost first
    # of one that lies within another, whose elements are between its own; (): they lie side by side
    alias_strides: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.tensor.shape

    @property
    def ctype(self) -> str:
        """C type of an element."""
        return CTYPES[self.tensor.dtype]

    @property
    def strides(self) -> tuple[int, ...]:
        """Per axis: elements from one index to the next."""
        if self.alias_strides:
            return self.alias_strides
        strides = [0] * len(self.order)
        step = 1
        for axis in reversed(self.order):
            strides[axis] = step
            step *= self.shape[axis]
        return tuple(strides)

    @property
    def packed(self) -> MapLayout:
        """The layout of the same order, with elements side by side."""
        return MapLayout(self.tensor, self.order)

    @property
    def sequence(self) -> tuple[tuple[int, int], ...]:
        """The elements as they lie: (how many, how far apart in ONNX's order), outermost first.

        Equal sequences, equal bytes, whatever the shapes.
        """
        merged: list[tuple[int, int]] = []
        for axis in self.order:
            extent = self.shape[axis]
            step = prod(self.shape[axis + 1 :])
            if extent != 1:
                if merged and merged[-1][1] == extent * step:
                    merged[-1] = (merged[-1][0] * extent, step)
                else:
                    merged.append((extent, step))
        return tuple(merged)

    @property
    def onnx(self) -> bool:
        """Whether the elements lie in ONNX's order."""
        return not self.alias_strides and len(self.sequence) <= 1

    @property
    def pixel_axes(self) -> tuple[int, ...]:
        """Axes of more than one element, outermost first, without the innermost: pixels come in their order.

        >>> MapLayout(Tensor("x", (1, 3, 4, 5), "float32"), (2, 0, 3, 1)).pixel_axes
        (2, 3)
        """
        return tuple(axis for axis in self.order[:-1] if self.shape[axis] > 1)

    def has_order_of(self, other: MapLayout) -> bool:
        """Whether pixels come in the order of another's, and elements of a pixel lie along the same axis."""
        return self.order[-1:] == other.order[-1:] and self.pixel_axes == other.pixel_axes

    @property
    def by_rows(self) -> bool:
        """Whether rows lie one after the other."""
        axis = row_axis(self.shape)
        if axis is None or self.shape[axis] == 1:
            return True
        return axis == next(each for each in self.order if self.shape[each] != 1)

    @property
    def usual(self) -> bool:
        """Whether the elements lie as they do in a tensor of this shape by itself."""
        return self.sequence == natural(self.tensor).sequence

    @property
    def in_pixels(self) -> bool:
        """Whether it is one image: rows of pixels."""
        return self.in_images and self.shape[0] == 1

    @property
    def in_images(self) -> bool:
        """Whether it is images: rows of pixels, those of one image after those of the other."""
        return self.order == PIXELS

    @property
    def whole(self) -> Image:
        """Extents, of floats in any order of axes, as one row. Raises Unsupported for anything else."""
        tensor = self.tensor
        if tensor.dtype != "float32" or not tensor.elements:
            raise Unsupported(
                f"tensor {tensor.name!r}: found {tensor.dtype} {list(self.shape)}; kernels on channels "
                "accept float32, not empty"
            )
        channels = self.shape[self.order[-1]] if self.order else 1
        return Image(
            1, tensor.elements // channels, channels, self._between(self.order) if self.alias_strides else 0
        )

    def seen(self, tensor: Tensor) -> MapLayout | None:
        """The layout of a view of the same elements; None where no order of its axes says how they lie."""
        if tensor.shape == self.shape:
            return MapLayout(tensor, self.order, self.alias_strides)
        if self.alias_strides:
            return self._seen_aliased(tensor)
        own = self.sequence
        for usual in (natural(tensor, pixels=self.order == PIXELS or not self.usual), natural(tensor)):
            if usual.sequence == own:
                return usual
        apart: dict[int, int] = {}  # axis -> elements from one index to the next
        for axis, extent in enumerate(tensor.shape):
            step = prod(tensor.shape[axis + 1 :])
            inside = 1
            for count, by in reversed(own):
                if step % by == 0 and step * extent <= count * by and extent > 1:
                    apart[axis] = step // by * inside
                inside *= count
        alone = [axis for axis, extent in enumerate(tensor.shape) if extent == 1]
        layout = MapLayout(tensor, (*alone, *sorted(apart, key=lambda axis: -apart[axis])))
        if len(layout.order) == len(tensor.shape) and layout.sequence == own:
            return layout
        return None

    def _seen_aliased(self, tensor: Tensor) -> MapLayout | None:
        """`seen`, where axes of the view are parts of ours, or ours are parts of its and lie side by side."""
        steps = [0] * len(tensor.shape)
        for mine, behind in alike(tensor.shape, self.shape):
            step = inside = self.alias_strides[behind[-1]]
            for axis in reversed(behind):
                if self.alias_strides[axis] != inside:
                    return None
                inside *= self.shape[axis]
            for axis in reversed(mine):
                steps[axis] = step
                step *= tensor.shape[axis]
        order = sorted(range(len(steps)), key=lambda axis: (tensor.shape[axis] > 1, -steps[axis]))
        return MapLayout(tensor, tuple(order), tuple(steps))

    def permuted(self, axes: Sequence[int], tensor: Tensor) -> MapLayout:
        """The layout of a Transpose's result within this one: its axis k is our axis axes[k]."""
        if self.alias_strides:
            return MapLayout(
                tensor,
                tuple(axes.index(axis) for axis in self.order),
                tuple(self.alias_strides[axis] for axis in axes),
            )
        usual = natural(tensor)
        layout = MapLayout(tensor, tuple(axes.index(axis) for axis in self.order))
        if usual.sequence == layout.sequence:
            return usual
        return layout

    @property
    def image(self) -> Image:
        """Extents, of floats in rows. Raises Unsupported for anything else."""
        if self.tensor.dtype != "float32":
            raise Unsupported(
                f"tensor {self.tensor.name!r}: found {self.tensor.dtype}; kernels on channels accept float32"
            )
        return self.extents

    @property
    def extents(self) -> Image:
        """Extents, of elements of any type in rows. Raises Unsupported for anything else."""
        tensor = self.tensor
        if not self.by_rows or not tensor.elements:
            axes = f"{list(self.shape)}, axes in the order {list(self.order)}"
            raise Unsupported(
                f"tensor {tensor.name!r}: found {axes}; kernels on channels accept row by row, not empty"
            )
        axis = row_axis(self.shape)
        alone = not self.order or (self.order[-1] == axis and tensor.rows > 1)
        channels = 1 if alone else self.shape[self.order[-1]]
        images = self.shape[0] if self.in_images else 1
        image = Image(tensor.rows, tensor.elements // (tensor.rows * channels), channels, images=images)
        if not self.alias_strides:
            return image
        if alone:
            raise Unsupported(
                f"tensor {tensor.name!r}: found rows of one element that lie within another map; kernels on "
                "channels accept pixels"
            )
        image = image._replace(gap=self._between([k for k in self.order if k != axis]))
        if axis is not None and tensor.rows > 1:
            return image._replace(row_gap=self.alias_strides[axis] - image.step)
        return image

    def _between(self, axes: Sequence[int]) -> int:
        """Elements between one pixel and the next along some axes, the last of which are channels.

        Raises Unsupported where that differs.
        """
        channels, *pixels = reversed(axes)
        runs = [(self.shape[axis], self.alias_strides[axis]) for axis in pixels if self.shape[axis] > 1]
        even = all(by == step * extent for (extent, step), (_, by) in pairwise(runs))
        if not even or (self.shape[channels] > 1 and self.alias_strides[channels] != 1):
            raise Unsupported(
                f"tensor {self.tensor.name!r}: found pixels at uneven distances; kernels on channels accept "
                "even ones"
            )
        if runs:
            return runs[0][1] - self.shape[channels]
        return 0

    def place(self, pixel: str, channels: int) -> str:
        """C expression: elements from the first to where a pixel begins, in the order in which they lie.

        `channels`: elements of a pixel. Raises Unsupported where they do not lie side by side.
        """
        left = channels
        count = 1
        step = 1
        runs: list[tuple[int, int]] = []  # (pixels, elements from one to the next), innermost first
        for axis in reversed(self.order):
            extent = self.shape[axis]
            by = self.strides[axis]
            if extent == 1:
                continue
            if (left > 1 and by != step) or (left % extent and extent % left):
                raise Unsupported(
                    f"tensor {self.tensor.name!r}: found elements apart from one another; accepted: "
                    f"{channels} side by side"
                )
            inside = min(left, extent)
            left = left // inside
            step = by * inside
            rest = extent // inside
            if rest > 1 and runs and by * inside == runs[-1][0] * runs[-1][1]:
                runs[-1] = (runs[-1][0] * rest, runs[-1][1])
            elif rest > 1:
                runs.append((rest, by * inside))
        terms: list[str] = []
        for k, (extent, by) in enumerate(runs):
            digit = pixel if count == 1 else f"{pixel} / {count}"
            terms.append(f"{digit} * {by}" if k == len(runs) - 1 else f"{digit} % {extent} * {by}")
            count *= extent
        return " + ".join(terms) or "0"


def alike(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Axes of two shapes of as many elements that stand for one another, without those of one element.

    >>> alike((1, 112, 56), (28, 4, 56))
    [([1], [0, 1]), ([2], [2])]
    """
    pairs: list[tuple[list[int], list[int]]] = []
    left, right = ([k for k, extent in enumerate(shape) if extent != 1] for shape in (a, b))
    while left and right:
        mine = [left.pop(0)]
        other = [right.pop(0)]
        while (sizes := (prod(a[k] for k in mine), prod(b[k] for k in other)))[0] != sizes[1]:
            (mine if sizes[0] < sizes[1] else other).append((left if sizes[0] < sizes[1] else right).pop(0))
        pairs.append((mine, other))
    return pairs


def natural(tensor: Tensor, *, pixels: bool = False) -> MapLayout:
    """The layout of a tensor by itself; of images and videos with its channels last if `pixels`."""
    axis = row_axis(tensor.shape)
    axes = range(len(tensor.shape))
    if pixels and len(axes) == 4:
        return MapLayout(tensor, PIXELS)
    if pixels and len(axes) == 5 and axis is not None:
        return MapLayout(tensor, (axis, *(k for k in axes if k not in (axis, 1)), 1))
    return MapLayout(tensor, tuple(axes) if axis is None else (axis, *(k for k in axes if k != axis)))


def layouts(flow: Dataflow, free: AbstractSet[int] = frozenset(), ringed: int = 0) -> list[MapLayout]:
    """The layout of every map.

    Channels are last where convolutions and their like read or make a map, and where elementwise operators
    lead there. Maps in `free`, which no rings hold, need not lie row by row: a Transpose leaves everything
    where it is, if all consumers can read it so. Operators of the mask `ringed` go by rows: they accept only
    what lies as usual to them.

    Raises Unsupported for types and sizes that generated code does not hold.
    """
    for tensor in flow.maps:
        if tensor.dtype not in CTYPES:
            raise Unsupported(
                f"tensor {tensor.name!r}: found type {tensor.dtype}; generated C accepts {', '.join(CTYPES)}"
            )
        if tensor.elements >= LARGEST:
            raise Unsupported(
                f"tensor {tensor.name!r}: found {tensor.elements:,} elements; generated C accepts fewer than "
                f"{LARGEST:,}"
            )
    first, last = _alike(flow)
    in_rows = {first[m] for m in range(len(flow.maps)) if not _whole(flow, m, free, ringed)}
    at_ends = {first[m] for m, producer in enumerate(flow.producer) if producer < 0 or flow.is_output[m]}
    sizes = Counter(first)
    turned = {
        first[m]
        for call, operands, results in zip(flow.calls, flow.operands, flow.results, strict=True)
        for m in ([operands[0].map, results[0]] if call.operator.kind == "Transpose" else [])
        if sizes[first[m]] > 1
    }
    as_given = at_ends - in_rows - last - turned  # as callers have them
    laid_out = [
        MapLayout(tensor, tuple(range(len(tensor.shape))))
        if first[m] in as_given
        else natural(tensor, pixels=first[m] in last)
        for m, tensor in enumerate(flow.maps)
    ]
    in_pixels = {m for m, of in enumerate(first) if of in last}
    for m in range(len(flow.maps)):
        if flow.producer[m] < 0 or (m in free and flow.operators[flow.producer[m]].kind == "Transpose"):
            laid_out[m] = _in_pixels(flow, m, in_pixels) or laid_out[m]
    for call, spec, operands, results in zip(
        flow.calls, flow.specs, flow.operands, flow.results, strict=True
    ):
        moves = call.operator.kind == "Transpose"
        normal = call.operator.kind in NORMAL
        if not (moves or normal or spec.elementwise) or not free >= {*results}:
            continue
        if moves and first[results[0]] in as_given:
            continue  # it is moved as it is made
        for operand in operands[:1] if normal else operands:
            (m,), seen = results, laid_out[operand.map].seen(tensor_of(call, operand.input))
            if seen is None or not (moves or seen.shape == call.result):
                continue
            if moves:
                there = seen.permuted(permutation(call), flow.maps[m])
            else:
                there = MapLayout(flow.maps[m], seen.order)
            if (
                there.sequence != laid_out[m].sequence
                and (moves or not seen.usual)
                and _accepted(flow, m, there, ringed, laid_out)
            ):
                laid_out[m] = there
                break
    return laid_out


def _alike(flow: Dataflow) -> tuple[Sequence[int], set[int]]:
    """For each map the first of those that shall lie as it does, and which of these are pixels."""
    # maps that shall lie alike: each points to another of them, the first to itself
    same = list(range(len(flow.maps)))

    def first(m: int) -> int:
        while same[m] != m:
            m = same[m]
        return m

    pixels: set[int] = set()
    for call, spec, operands, results in zip(
        flow.calls, flow.specs, flow.operands, flow.results, strict=True
    ):
        near = [o.map for o in operands if call.shape(o.input) == flow.maps[o.map].shape] + list(results)
        near = [m for m in near if len(flow.maps[m].shape) in (4, 5)]
        folds = (
            spec.family is Family.REDUCTION
            and spec.integers in OVER_CHANNELS
            and len(call.shape(0)) == 4
            and reduced_axes(call) == {2, 3}
        )
        joins = call.operator.kind == "Concat" and call.attribute("axis", 0) % len(call.result) == 1
        short = call.operator.kind in POOLS and len(call.result) == 4 and call.result[3] < LONG_ROW
        if (spec.family in ON_PIXELS or short) and spec.channel_axis == 1:
            pixels.update(near)
        if call.operator.kind == "DeformConv":
            pixels.update(o.map for o in operands if o.input != 1 and len(flow.maps[o.map].shape) == 4)
            pixels.update(results)
        # results are best laid out as operands are
        moves = spec.family is Family.MOVE and spec.mapping is Mapping.ONE_TO_ONE
        together = spec.elementwise or moves or spec.family is Family.PRODUCT
        if together or spec.channel_axis == 1 or folds or joins:
            for m in near[1:]:
                same[first(m)] = first(near[0])
    return [first(m) for m in range(len(flow.maps))], {first(m) for m in pixels}


def _whole(flow: Dataflow, m: int, free: AbstractSet[int], ringed: int) -> bool:
    """Whether no operator makes or reads a map row by row."""
    return (flow.producer[m] < 0 or m in free) and not flow.readers[m] & ringed


def channel_shuffles(flow: Dataflow) -> set[int]:
    """Transposes whose results are read as images of another rank: they move channels, or parts of them."""
    first, last = _alike(flow)
    in_pixels = {m for m, of in enumerate(first) if of in last}
    return {
        i
        for i, results in enumerate(flow.results)
        if flow.operators[i].kind == "Transpose" and _in_pixels(flow, results[0], in_pixels)
    }


def _in_pixels(flow: Dataflow, m: int, pixels: AbstractSet[int]) -> MapLayout | None:
    """The layout of a map that is read as images of another rank alone, such as a sound: pixels.

    `pixels`: maps whose channels lie side by side.
    """
    calls = [(flow.calls[i], o.input) for i in bits(flow.readers[m]) for o in flow.operands[i] if o.map == m]
    shapes = {call.shape(index) for call, index in calls}

    def reads_pixels(i: int) -> bool:
        along_channels = flow.calls[i].attribute("axis", 0) == 1
        moves = flow.operators[i].kind in ("Concat", "Split") and along_channels
        return flow.specs[i].channel_axis == 1 or (moves and flow.results[i][0] in pixels)

    images = all(reads_pixels(i) for i in bits(flow.readers[m])) and len(shapes) == 1
    if not images or flow.is_output[m] or len(flow.maps[m].shape) == 4 or len(shape := shapes.pop()) != 4:
        return None
    order: list[int] = []
    for axis in PIXELS:
        order += next(
            (
                mine
                for mine, theirs in alike(flow.maps[m].shape, shape)
                if theirs == [axis] or (theirs == [axis, axis + 1] and len(mine) == 1)
            ),
            [],
        )
    alone = [axis for axis, extent in enumerate(flow.maps[m].shape) if extent == 1]
    if len(alone) + len(order) != len(flow.maps[m].shape):
        return None
    layout = MapLayout(flow.maps[m], (*alone, *order))
    seen = layout.seen(Tensor("", shape, flow.maps[m].dtype))
    if seen is not None and seen.in_pixels:
        return layout
    return None


def _accepted(flow: Dataflow, m: int, layout: MapLayout, ringed: int, laid_out: Sequence[MapLayout]) -> bool:
    """Whether all consumers of a map can read it so.

    Where it does not lie as usual, those are products of maps, Transposes and elementwise operators, whose
    results lie so or can. `laid_out`: the layouts of maps as they are so far.
    """
    for i in bits(flow.readers[m]):
        call = flow.calls[i]
        for operand in flow.operands[i]:
            if operand.map != m:
                continue
            seen = layout.seen(tensor_of(call, operand.input))
            if seen is None:
                return False
            if seen.usual or (seen.in_pixels and flow.specs[i].channel_axis == 1):
                continue
            if ringed >> i & 1:
                return False
            if call.operator.kind == "Transpose" or (
                call.operator.kind == "MatMul" and len(flow.operands[i]) == 2
            ):
                continue
            normal = call.operator.kind in NORMAL and operand.input == 0
            if not (flow.specs[i].elementwise or normal) or seen.shape != call.result:
                return False
            (written,) = flow.results[i][:1]
            result = MapLayout(flow.maps[written], seen.order)
            if laid_out[written].sequence == result.sequence:
                continue
            if not _accepted(flow, written, result, ringed, laid_out):
                return False
    return True


def split_starts(call: Call) -> list[int]:
    """First index along the axis of each part of a Split that is asked for."""
    sizes = split_sizes(call)
    assert sizes is not None, "shapes are static"
    starts = zip(call.operator.outputs, accumulate((0, *sizes)), strict=False)
    return [start for name, start in starts if name]


def tensor_of(call: Call, index: int) -> Tensor:
    """An input that is there, as an operator sees it."""
    tensor = call.tensors[index]
    assert tensor is not None, f"{call.operator.name}: input {index} is absent"
    return tensor
