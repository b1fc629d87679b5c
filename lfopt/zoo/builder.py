"""Write a network down as a readable list of layers: an ONNX model with seeded, well-scaled weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from lfopt.zoo import moments
from lfopt.zoo.activations import FUNCTIONS, OPERATORS, PIECES, PRELU_SLOPE, pieces_of
from lfopt.zoo.writer import ModelWriter, Outputs, Value

__all__ = ["Net", "Outputs", "Pads", "Sizes", "Value"]

Pads = tuple[int, ...]  # before each axis of the map, then after each: top, left, bottom, right
Sizes = int | tuple[int, ...]  # of a window: the same along all axes of the map, or one an axis


class Net(ModelWriter):
    """The layers written so far.

    Each method appends one operator, or where it says so a few, and returns its output.

    `at` names the operator, its output and, with `.weight` and `.bias` after it, its weights:
    "stage2.block1.expand". Convolutions and pools take maps of any rank: h, w of an image; t, h, w of a
    video.

    >>> net = Net("tiny", seed=0, weights=True)
    >>> x = net.image((1, 3, 8, 8))
    >>> y = net.conv("stem", x, 16, 3, stride=2, act="relu")
    >>> y.name, y.shape
    ('stem.relu', (1, 16, 4, 4))
    >>> [node.name for node in net.model(x, y, "one layer").graph.node]
    ['stem', 'stem.relu']
    """

    # Layers with weights

    def conv(
        self,
        at: str,
        x: Value,
        out: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        pads: Pads | None = None,
        group: int = 1,
        dilation: int = 1,
        act: str | None = None,
        std: float | None = None,
        shift: float = 0.0,
    ) -> Value:
        """Convolution, and the activation `act` after it.

        pads: None is as many on each side as keep the size at stride 1. std: wanted standard deviation of the
        output, before the activation; None is what suits the activation. shift: wanted mean of the output,
        before the activation.
        """
        n, channels, *sizes = x.shape
        rank = len(sizes)
        pads = pads or (dilation * (kernel - 1) // 2,) * (2 * rank)
        reach = dilation * (kernel - 1) + 1
        ends = [
            (size + before + after - reach) // stride + 1
            for size, before, after in zip(sizes, pads[:rank], pads[rank:], strict=True)
        ]
        axes = zip(sizes, ends, pads[:rank], strict=True)
        live = prod(
            moments.live_taps(size, end, kernel, stride, dilation, before) for size, end, before in axes
        )
        inputs, stats = self._linear(at, x, (out, channels // group, *[kernel] * rank), act, std, live, shift)
        window = _window((kernel,) * rank, (stride,) * rank, pads)
        y = self.emit(
            "Conv", at, inputs, (n, out, *ends), stats, **window, dilations=[dilation] * rank, group=group
        )
        return self.act(y, act) if act else y

    def conv_transpose(self, at: str, x: Value, out: int, kernel: int, *, stride: int) -> Value:
        """Transposed convolution whose output is exactly `stride` times as large as its input."""
        n, channels, h, w = x.shape
        before, after = (kernel - stride + 1) // 2, (kernel - stride) // 2
        # Of the kernel's taps, one in stride * stride reaches a given output.
        inputs, stats = self._linear(
            at, x, (channels, out, kernel, kernel), None, None, stride**-2, input_axis=0
        )
        window = _window((kernel, kernel), (stride, stride), (before, before, after, after))
        return self.emit("ConvTranspose", at, inputs, (n, out, h * stride, w * stride), stats, **window)

    def dense(
        self,
        at: str,
        x: Value,
        out: int,
        *,
        act: str | None = None,
        std: float | None = None,
        input_first: bool = False,
    ) -> Value:
        """Fully connected layer on a vector, n, c, and the activation `act` after it.

        Weights are (out, features); with `input_first`, (features, out).
        """
        n, features = x.shape
        shape, input_axis = ((features, out), 0) if input_first else ((out, features), 1)
        inputs, stats = self._linear(at, x, shape, act, std, input_axis=input_axis)
        y = self.emit("Gemm", at, inputs, (n, out), stats, alpha=1.0, beta=1.0, transB=input_axis)
        return self.act(y, act) if act else y

    def linear(
        self,
        at: str,
        x: Value,
        out: int,
        *,
        act: str | None = None,
        std: float | None = None,
        bias: bool = True,
    ) -> Value:
        """Fully connected layer at every position of n, s, c, and the activation `act` after it.

        A matrix product, and an addition if it has a bias.
        """
        inputs, stats = self._linear(at, x, (x.shape[-1], out), act, std, input_axis=0, bias=bias)
        shape = (*x.shape[:-1], out)
        y = self.emit("MatMul", f"{at}.product" if bias else at, inputs[:2], shape, stats)
        if bias:
            y = self.emit("Add", at, [y.name, inputs[2]], shape, stats)
        return self.act(y, act) if act else y

    # Layers without weights

    def act(self, x: Value, kind: str) -> Value:
        """Activation: one operator, or several for the kinds in `lfopt.zoo.activations.PIECES`.

        Raises ValueError for a kind that the zoo does not have.
        """
        if kind not in FUNCTIONS:
            raise ValueError(
                f"{self.name}: activation {kind!r} after {x.name!r}; the zoo writes {', '.join(FUNCTIONS)}"
            )
        if kind in PIECES:
            return self._act_in_pieces(x, kind)
        at, operands = f"{x.name}.{kind}", [x.name]
        if kind == "relu6":
            operands += [
                self.constant(name, np.array(value, np.float32)) for name, value in (("zero", 0), ("six", 6))
            ]
        elif kind == "prelu":
            operands.append(
                self.constant(f"{at}.slope", np.full((x.shape[1], 1, 1), PRELU_SLOPE, np.float32))
            )
        operator, attributes = OPERATORS[kind]
        latent = x.linear if kind == "relu" else None
        return self.emit(
            operator,
            at,
            operands,
            x.shape,
            moments.activated(FUNCTIONS[kind], x.linear),
            latent=latent,
            **attributes,
        )

    def add(self, at: str, a: Value, b: Value) -> Value:
        """a + b, same shape."""
        stats, latent = moments.added(a.moments, b.moments), moments.added(a.linear, b.linear)
        return self.emit("Add", at, [a.name, b.name], a.shape, stats, latent=latent)

    def mul(self, at: str, a: Value, b: Value) -> Value:
        """a * b, where one may be 1 x 1 in height and width."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        return self.emit("Mul", at, [a.name, b.name], shape, moments.multiplied(a.moments, b.moments))

    def concat(self, at: str, parts: Sequence[Value], axis: int = 1) -> Value:
        """All parts, one after the other along an axis: that of the channels, unless told otherwise."""
        shape = list(parts[0].shape)
        shape[axis] = sum(x.shape[axis] for x in parts)
        stats = moments.joined([(x.shape[axis], x.moments) for x in parts])
        return self.emit("Concat", at, [x.name for x in parts], tuple(shape), stats, axis=axis)

    def max_pool(
        self, at: str, x: Value, kernel: Sizes, *, stride: Sizes, pad: int = 0, ceil_mode: bool = False
    ) -> Value:
        """Largest value of a window; ceil_mode keeps a last window that does not lie wholly inside."""
        n, channels, *sizes = x.shape
        kernels, strides = _each(kernel, len(sizes)), _each(stride, len(sizes))
        ends = [
            (size + 2 * pad - k + (s - 1 if ceil_mode else 0)) // s + 1
            for size, k, s in zip(sizes, kernels, strides, strict=True)
        ]
        stats, window = (
            moments.largest(x.moments, prod(kernels)),
            _window(kernels, strides, (pad,) * (2 * len(sizes))),
        )
        return self.emit(
            "MaxPool", at, [x.name], (n, channels, *ends), stats, **window, ceil_mode=int(ceil_mode)
        )

    def average_pool(self, at: str, x: Value, kernel: int, *, ceil_mode: bool = False) -> Value:
        """Mean over a 1 x 1 window, or over the whole map if the kernel is larger (then with ceil_mode)."""
        n, channels, h, w = x.shape
        (p, q), stats = ((h, w), x.moments) if kernel == 1 else ((1, 1), moments.averaged(x.moments, h * w))
        window = _window((kernel, kernel), (kernel, kernel), (0, 0, 0, 0))
        return self.emit(
            "AveragePool",
            at,
            [x.name],
            (n, channels, p, q),
            stats,
            **window,
            ceil_mode=int(ceil_mode),
            count_include_pad=1,
        )

    def mean(self, at: str, x: Value) -> Value:
        """Mean over height and width, which stay as 1 x 1."""
        n, channels, h, w = x.shape
        axes = self.constant("height_and_width", np.array([-1, -2]))
        return self.emit(
            "ReduceMean",
            at,
            [x.name, axes],
            (n, channels, 1, 1),
            moments.averaged(x.moments, h * w),
            keepdims=1,
        )

    def reshape(self, at: str, x: Value, shape: tuple[int, ...]) -> Value:
        """The same elements in another shape."""
        return self.emit(
            "Reshape", at, [x.name, self.constant(f"{at}.shape", np.array(shape))], shape, x.moments
        )

    def flatten(self, at: str, x: Value) -> Value:
        """Reshape to a vector n, c."""
        return self.reshape(at, x, (x.shape[0], prod(x.shape[1:])))

    def transpose(self, at: str, x: Value, order: Sequence[int]) -> Value:
        """The axes of x in another order."""
        return self.emit(
            "Transpose", at, [x.name], tuple(x.shape[axis] for axis in order), x.moments, perm=list(order)
        )

    def split(self, at: str, x: Value, names: Sequence[str]) -> tuple[Value, ...]:
        """Equal parts of the last axis, each with a name of its own under `at`."""
        shape = (*x.shape[:-1], x.shape[-1] // len(names))
        parts = [Value(f"{at}.{name}", shape, x.moments) for name in names]
        return self.emit_parts("Split", at, [x.name], parts, axis=-1, num_outputs=len(parts))

    def resize(self, at: str, x: Value, height: int, width: int) -> Value:
        """Bilinear interpolation between pixel centres."""
        return self._resize(at, x, height, width, mode="linear", coordinate_transformation_mode="half_pixel")

    def repeat(self, at: str, x: Value, factor: int) -> Value:
        """Each pixel as a square of factor * factor: nearest neighbour."""
        height, width = (size * factor for size in x.shape[2:])
        return self._resize(
            at,
            x,
            height,
            width,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def depth_to_space(self, at: str, x: Value, block: int) -> Value:
        """Each block * block channels become one channel that is `block` times as high and wide."""
        n, channels, h, w = x.shape
        return self.emit(
            "DepthToSpace",
            at,
            [x.name],
            (n, channels // block**2, h * block, w * block),
            x.moments,
            blocksize=block,
        )

    def _act_in_pieces(self, x: Value, kind: str) -> Value:
        """The pieces of an activation, named after x; the last one is the activation."""
        names, y = {"x": x.name}, x
        for piece in PIECES[kind]:
            stats = moments.activated(lambda values, name=piece.name: pieces_of(kind, values)[name], x.linear)
            operands = [
                names[operand] if isinstance(operand, str) else self.scalar(operand)
                for operand in piece.operands
            ]
            y = self.emit(piece.operator, f"{x.name}.{piece.name}", operands, x.shape, stats)
            names[piece.name] = y.name
        return y

    def _resize(self, at: str, x: Value, height: int, width: int, **attributes: Any) -> Value:
        shape = (*x.shape[:2], height, width)
        inputs = [x.name, "", "", self.constant(f"{at}.sizes", np.array(shape))]
        return self.emit("Resize", at, inputs, shape, x.moments, **attributes)


def _each(size: Sizes, rank: int) -> tuple[int, ...]:
    """One size for each axis."""
    return size if isinstance(size, tuple) else (size,) * rank


def _window(kernel: tuple[int, ...], stride: tuple[int, ...], pads: Pads) -> dict[str, Any]:
    """The attributes that convolutions and pools share."""
    return {"kernel_shape": list(kernel), "strides": list(stride), "pads": list(pads)}
