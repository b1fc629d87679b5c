"""Small random networks that hold one of everything that makes row schedules and legality hard.

Branches, skips, strides, dilations, asymmetric pads, global pooling with the multiply after it, concats and
splits on rows and on channels, views that keep rows and views that mix them, operators that read a map twice,
weights with several readers, intermediate maps that are also results, operators with several results,
operators that lfopt does not know. Maps are a few rows high, so that validity is a real question for tiny
buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeVar

import hypothesis.strategies as st
import numpy as np
import onnx
from onnx import TensorProto, helper

from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, row_axis
from lfopt.ops import Dataflow
from lfopt.planning import Propose
from lfopt.rewrite import simplify

OPSET = onnx.defs.onnx_opset_version()
Item = TypeVar("Item")
Shape = tuple[int, ...]


def random_graph(rng: np.random.Generator, operators: int) -> Graph:
    """A random network of exactly so many operators, views not counted."""
    net = _Net(rng)
    while net.operators < operators:
        net.grow(operators - net.operators)
    return net.finish()


def random_bands(rng: np.random.Generator) -> Propose:
    """Heights of bands to try, for every group others: a few at random, the whole map now and then."""
    return lambda group: [int(rng.choice([2, 3, 4, 5, 8, 1000])) for _ in range(int(rng.integers(0, 4)))]


def random_reduction(rng: np.random.Generator) -> Graph:
    """A reduction over the rows of a map of any rank, with an epilogue of up to two operators.

    The map may be computed, and seen through a view.
    """
    net = _Net(rng)
    net.inputs, net.shapes = (
        ["x"],
        {"x": (net.one_of(1, 1, 2), *(net.upto(1, 7) for _ in range(net.upto(2, 4))))},
    )
    x = net.add("Relu", ["x"], net.shapes["x"]) if net.chance(0.3) else "x"
    shape = net.shapes[x]
    if net.chance(0.3):
        first, *others = rng.permutation(shape).tolist()
        shape = net.one_of((first, *others), (first * others[0], *others[1:]), (first, 1, *others))
        shape = shape if 3 <= len(shape) <= 5 else net.shapes[x]
        x = net.add("Reshape", [x, net.ints(*shape)], shape, view=True)
    kind = net.one_of(
        "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "GlobalAveragePool", "GlobalMaxPool"
    )
    if kind.startswith("Global") and len(shape) > 3:
        result = (*shape[:2], *(1 for _ in shape[2:]))
        y = net.add(kind, [x], result)
    else:
        kind, keepdims = (
            kind.replace("Global", "Reduce").replace("AveragePool", "Mean").replace("Pool", ""),
            net.chance(0.7),
        )
        axes = [axis for axis in range(len(shape)) if axis == row_axis(shape) or net.chance(0.4)]
        result = tuple(
            1 if axis in axes else extent for axis, extent in enumerate(shape) if keepdims or axis not in axes
        )
        y = net.add(kind, [x, net.ints(*axes)], result, keepdims=int(keepdims))
    for k in range(net.upto(0, 2)):
        other = tuple(extent if net.chance(0.6) else 1 for extent in result)
        if not result or net.chance(0.4):
            y = net.add("Sigmoid", [y], result)
        elif net.chance(0.5):
            y = net.add("Mul", [y, net.weight(*other)], result)
        else:
            net.inputs.append(f"beside{k}")
            net.shapes[f"beside{k}"] = other
            y = net.add("Add", [f"beside{k}", y], result)
    return net.finish()


def random_block(rng: np.random.Generator, *, branches: bool = False) -> Graph:
    """Two contractions with operators by channels between them; or the first, the last, or a mean last.

    `branches`: other operators by channels read what is between them; their results are outputs.
    """
    net = _Net(rng)
    net.inputs, net.shapes = [], {}
    x = net.new_input((net.one_of(1, 1, 1, 2), net.upto(1, 8), net.upto(1, 9), net.upto(1, 4)))
    if net.chance(0.15):
        n, c, h, w = net.shapes[x]
        y = net.new_input((n, net.upto(1, 5), h, w))
        x = net.add("Concat", [x, y], (n, c + net.shapes[y][1], h, w), axis=1)
    here = x
    if net.chance(0.8):
        here = _expansion(net, here)
    for _ in range(net.upto(0, 2)):
        here = _by_channels(net, here)
        if branches and here != x:
            _by_channels(net, here)
    end = net.upto(2, 9) if branches else net.upto(0, 9)
    if end == 0:
        kind = net.one_of("GlobalAveragePool", "ReduceMean", "GlobalMaxPool")
        n, c, _, _ = net.shapes[here]
        if kind == "ReduceMean":
            net.add(kind, [here, net.ints(2, 3)], (n, c, 1, 1), keepdims=1)
        else:
            net.add(kind, [here], (n, c, 1, 1))
    elif end > 1 or here == x:
        like = net.shapes[x] if net.chance(0.5) else None
        here = _expansion(net, here, channels=like[1] if like else None)
        if net.shapes[here] == net.shapes[x]:
            net.add("Add", [here, x] if net.chance(0.5) else [x, here], net.shapes[x])
        elif net.chance(0.2):
            net.add("Add", [here, net.new_input(net.shapes[here])], net.shapes[here])
    return net.finish()


def random_mlp(rng: np.random.Generator, *, normalised: bool = False) -> Graph:
    """Linear layers around an activation, as exporters spell it, perhaps gated; or one layer alone.

    `normalised`: they read rows that are normalised; what is added to their result may be normalised, too.
    """
    net = _Net(rng)
    net.inputs, net.shapes = [], {}
    lead = net.one_of(
        (1, net.upto(2, 9)),
        (1, net.upto(2, 9)),
        (2, net.upto(1, 5)),
        (1, net.upto(1, 3), net.upto(1, 4)),
        (net.upto(1, 9),),
    )
    x = here = net.new_input((*lead, net.upto(1, 8)))
    if net.chance(0.2):
        here = x = net.add("Neg", [x], net.shapes[x])
    skip = x
    if normalised:
        here = x = _row_by_row(net, x)
        skip = net.one_of(skip, x)
    if net.chance(0.9):
        width = net.upto(2, 12)
        products = [_linear(net, x, width) for _ in range(net.one_of(1, 1, 2))]
        here = _activation(net, products[0])
        if products[1:]:
            here = net.add(
                "Mul", [here, products[1]] if net.chance(0.5) else [products[1], here], net.shapes[here]
            )
    if net.chance(0.8) or here == x:
        here = _linear(net, here, net.shapes[x][-1] if net.chance(0.5) else net.upto(1, 9))
        if net.shapes[here] == net.shapes[x] and net.chance(0.6):
            net.add("Add", [here, skip] if net.chance(0.5) else [skip, here], net.shapes[x])
    return simplify(net.finish())


def _row_by_row(net: _Net, x: str) -> str:
    """A normalisation of rows, perhaps with something in flight behind it, or spelled in small operators."""
    if net.chance(0.3):
        return _spelled_norm(net, x)
    shape, kind = (
        net.shapes[x],
        net.one_of("LayerNormalization", "LayerNormalization", "Softmax", "LpNormalization"),
    )
    vectors = [net.weight(shape[-1]), net.weight(shape[-1])] if kind == "LayerNormalization" else []
    y = net.add(kind, [x, *vectors], shape, axis=-1)
    return net.add("Mul", [y, net.weight(shape[-1])], shape) if net.chance(0.3) else y


def random_normed(rng: np.random.Generator) -> Graph:
    """Contractions that read what a normalization makes of rows, which another contraction may have made."""
    net = _Net(rng)
    net.inputs, net.shapes = [], {}
    lead = net.one_of((1, net.upto(2, 9)), (2, net.upto(1, 5)), (net.upto(2, 9),))
    width = net.upto(3, 24)
    x = net.new_input((*lead, width))
    if net.chance(0.6):
        x = _linear(net, net.new_input((*lead, net.upto(2, 24))), width)
        if net.chance(0.5):
            x = net.add("Add", [x, net.inputs[0]], net.shapes[x])
    elif net.chance(0.3):
        x = net.add("Neg", [x], net.shapes[x])
    y = _row_by_row(net, x)
    for _ in range(net.upto(1, 3)):
        z = _linear(net, y, net.upto(1, 24))
        if net.chance(0.5):
            z = _activation(net, z)
    if net.chance(0.3):
        net.add("Relu", [x], net.shapes[x])
    return simplify(net.finish())


def _spelled_norm(net: _Net, x: str) -> str:
    """(x - mean) / sqrt(variance + e) * w, or x / sqrt(mean(x * x) + e) * w, operator by operator."""
    shape = net.shapes[x]
    rows = (*shape[:-1], 1)
    centred = x
    if net.chance(0.5):
        mean = net.add("ReduceMean", [x, net.ints(-1)], rows, keepdims=1)
        centred = net.add("Sub", [x, mean], shape)
    square = net.add("Mul", [centred, centred], shape)
    variance = net.add("ReduceMean", [square, net.ints(-1)], rows, keepdims=1)
    guarded = net.add("Add", [variance, net.constant(np.array(0.01, np.float32))], rows)
    deviation = net.add("Sqrt", [guarded], rows)
    scaled = net.add("Div", [centred, deviation], shape)
    return net.add("Mul", [scaled, net.weight(shape[-1])], shape)


def _linear(net: _Net, x: str, width: int) -> str:
    """A product by a matrix, perhaps with a bias."""
    *lead, depth = net.shapes[x]
    if len(lead) == 1 and net.chance(0.7):
        turned = net.chance(0.3)
        matrix = net.weight(width, depth) if turned else net.weight(depth, width)
        return net.add(
            "Gemm",
            [x, matrix] + ([net.weight(width)] if net.chance(0.5) else []),
            (*lead, width),
            transB=int(turned),
        )
    y = net.add("MatMul", [x, net.weight(depth, width)], (*lead, width))
    return (
        net.add("Add", [net.weight(width), y] if net.chance(0.5) else [y, net.weight(width)], net.shapes[y])
        if net.chance(0.5)
        else y
    )


def _activation(net: _Net, x: str) -> str:
    """Relu, SiLU, or GELU by Erf."""
    shape, kind = net.shapes[x], net.one_of("Relu", "SiLU", "GELU")
    if kind == "Relu":
        return net.add("Relu", [x], shape)
    if kind == "SiLU":
        return net.add("Mul", [x, net.add("Sigmoid", [x], shape)], shape)
    y = net.add("Erf", [net.add("Div", [x, net.weight(1)], shape)], shape)
    return net.add("Mul", [x, net.add("Add", [y, net.weight(1)], shape)], shape)


def _expansion(net: _Net, x: str, channels: int | None = None) -> str:
    """A convolution to some channels, perhaps with an activation."""
    n, c, h, w = net.shapes[x]
    k, kernel, stride = channels or net.upto(2, 12), net.one_of(1, 1, 3), net.one_of(1, 1, 1, 2)
    pad = kernel // 2
    out = ((h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1)
    attributes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    y = net.add(
        "Conv",
        [x, net.weight(k, c, kernel, kernel)] + ([net.weight(k)] if net.chance(0.5) else []),
        (n, k, *out),
        **attributes,
    )
    if net.chance(0.4):
        y = net.add(net.one_of("Relu", "Sigmoid"), [y], net.shapes[y])
    if net.chance(0.2):
        y = net.add("Mul", [y, net.new_input((n, k, *net.one_of((1, 1), out)))], net.shapes[y])
    return y


def _by_channels(net: _Net, x: str) -> str:
    """An operator that makes every channel of its result from the same channel."""
    n, c, h, w = net.shapes[x]
    rows = _window(net, h)
    if rows is None or net.chance(0.1):
        return net.add("Neg", [x], net.shapes[x])
    if c == 1 or net.chance(0.25):
        kernel, stride = net.upto(1, 3), net.upto(1, 2)
        out = [(extent + 2 * (kernel // 2) - kernel) // stride + 1 for extent in (h, w)]
        window: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [kernel // 2] * 4,
        }
        return net.add(net.one_of("MaxPool", "AveragePool"), [x], (n, c, *out), **window)
    kernel, stride, dilation, before, after, high = rows
    wide = net.one_of(1, 3)
    window = {
        "kernel_shape": [kernel, wide],
        "strides": [stride, 1],
        "dilations": [dilation, 1],
        "pads": [before, wide // 2, after, wide // 2],
    }
    bias = [net.weight(c)] if net.chance(0.4) else []
    y = net.add("Conv", [x, net.weight(c, 1, kernel, wide), *bias], (n, c, high, w), group=c, **window)
    return net.add("Add", [y, x], net.shapes[y]) if net.shapes[y] == net.shapes[x] and net.chance(0.3) else y


def one_contraction(
    kind: str,
    inputs: dict[str, list[int]],
    weights: dict[str, list[int]],
    operands: str,
    result: list[int],
    **attributes: Any,
) -> Graph:
    """y = the operator, of these operands; y + x if x is as large."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node(kind, operands.split(), ["sums"], "head", **attributes),
        helper.make_node("Add", ["sums", "x"], ["y"], "add"),
    ]
    if result != inputs["x"]:
        nodes = [helper.make_node(kind, operands.split(), ["y"], "head", **attributes)]
    maps = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {**inputs, "y": result}.items()
    ]
    constants = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(nodes, "contraction", maps[:-1], maps[-1:], constants)
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


def random_contraction(rng: np.random.Generator) -> Graph:
    """A grouped Conv or ConvTranspose, a MatMul of broadcast batches, or a Gemm; up to two epilogues.

    Its operands may be one map.
    """
    net = _Net(rng)
    net.inputs, net.shapes = [], {}
    y = net.one_of(_grouped, _batched, _summed)(net)
    shape = net.shapes[y]
    for _ in range(net.upto(0, 2)):
        known = [x for x in net.inputs if net.shapes[x] == shape]
        other = tuple(extent if net.chance(0.7) else 1 for extent in shape)
        if net.chance(0.3):
            y = net.add("Relu", [y], shape)
        elif known and net.chance(0.6):
            y = net.add("Add", [y, known[0]], shape)
        else:
            y = net.add("Mul", [y, net.weight(*other) if net.chance(0.5) else net.new_input(other)], shape)
    return net.finish()


def _grouped(net: _Net) -> str:
    """A convolution of up to 7 groups along one to three axes."""
    groups, sizes = net.upto(1, 7), [net.upto(1, 6) for _ in range(net.upto(1, 3))]
    kernel, strides = [min(net.upto(1, 3), size) for size in sizes], [net.upto(1, 3) for _ in sizes]
    deep, filters = groups * net.upto(1, 3), groups * net.upto(1, 3)
    x = net.new_input((net.upto(1, 2), deep, *sizes))
    if kind := net.one_of("", "Transpose"):
        weights = net.weight(deep, filters // groups, *kernel)
        out = [(size - 1) * stride + k for size, stride, k in zip(sizes, strides, kernel, strict=True)]
    else:
        weights = net.weight(filters, deep // groups, *kernel)
        out = [(size - k) // stride + 1 for size, stride, k in zip(sizes, strides, kernel, strict=True)]
    inputs = [x, weights, *([net.weight(filters)] if net.chance(0.5) else [])]
    return net.add(
        f"Conv{kind}",
        inputs,
        (net.shapes[x][0], filters, *out),
        group=groups,
        kernel_shape=kernel,
        strides=strides,
    )


def _batched(net: _Net) -> str:
    """Matrices whose batch axes may be 1, or missing, on either side."""
    rows, depth, columns = (net.upto(1, 6) for _ in range(3))
    batch = [net.upto(1, 4) for _ in range(net.upto(0, 2))]
    whole_side = net.one_of(0, 1, 2)
    left, right = (
        tuple(extent if side == whole_side or net.chance(0.6) else 1 for extent in batch)[
            0 if side == whole_side else net.upto(0, len(batch)) :
        ]
        for side in (0, 1)
    )
    x = net.new_input((*left, rows, depth))
    if rows == depth == columns and left == right:
        return net.add("MatMul", [x, x], net.shapes[x])
    other = (*right, depth, columns)
    y = net.new_input(other) if net.chance(0.5) else net.weight(*other)
    return net.add("MatMul", [x, y], (*np.broadcast_shapes(left, right), rows, columns))


def _summed(net: _Net) -> str:
    """A Gemm, which may add a constant or map of any broadcast shape, or its own operand."""
    rows, depth, columns = (net.upto(1, 6) for _ in range(3))
    turned = net.upto(0, 1), net.upto(0, 1)
    x = net.new_input((depth, rows) if turned[0] else (rows, depth))
    inputs = [x, net.weight(*((columns, depth) if turned[1] else (depth, columns)))]
    added = net.one_of((), (columns,), (1, columns), (rows, 1), (rows, columns))
    if net.chance(0.8):
        inputs.append(
            x
            if added == net.shapes[x]
            else net.new_input(added)
            if added and net.chance(0.5)
            else net.weight(*added)
        )
    return net.add("Gemm", inputs, (rows, columns), transA=turned[0], transB=turned[1])


def random_windows(rng: np.random.Generator) -> Graph:
    """Up to eight operators on wide maps of one or two images, whose columns come from windows.

    Convolutions (with strides, dilations, in groups, transposed), pools, Resize to the nearest, depth to
    space, slices, pads, sums and joins of branches, and vectors that scale channels.
    """
    net = _Net(rng)
    net.inputs, net.shapes = (
        ["x"],
        {"x": (net.one_of(1, 1, 2), net.upto(1, 4), net.upto(1, 7), net.upto(6, 33))},
    )
    wanted, chain = net.upto(2, 8), net.chance(0.6)
    while net.operators < wanted:
        rule = net.one_of(
            *(_conv,) * 6,
            _pointwise,
            _pool,
            _unary,
            _binary,
            _binary,
            _concat,
            _widen,
            _widen,
            _columns,
            _scale,
        )
        rule(net, list(net.readable)[-1] if chain and rule is not _binary else net.pick())
    return net.finish()


def random_gate(rng: np.random.Generator) -> Graph:
    """A map that waits for reductions over its rows (squeeze-and-excite), with its producer and gate.

    A contraction follows, and perhaps a skip.
    """
    net = _Net(rng)
    n, c = net.one_of(1, 1, 2), net.upto(1, 5)
    net.inputs, net.shapes = ["x"], {"x": (n, c, net.upto(2, 9), net.upto(1, 5))}
    x = net.add("Relu", ["x"], net.shapes["x"]) if net.chance(0.2) else "x"
    deep, m = net.upto(2, 9), x
    if net.chance(0.75):
        m = _activated(net, _filtered(net, m, deep, group=1, size=net.one_of(1, 1, 1, 3)))
    if net.chance(0.8):
        m = _activated(
            net,
            _filtered(
                net,
                m,
                net.shapes[m][1],
                group=net.shapes[m][1],
                size=net.one_of(1, 3, 3, 5),
                stride=net.one_of(1, 1, 1, 2),
            ),
        )
    deep = net.shapes[m][1]
    vectors = [_folded(net, m) for _ in range(net.one_of(1, 1, 2))]
    v = vectors[0] if len(vectors) == 1 else net.add("Add", vectors, (n, deep, 1, 1))
    for size in (net.upto(1, 4), deep) if net.chance(0.8) else (deep,) if net.chance(0.5) else ():
        v = _activated(net, _filtered(net, v, size, group=1, size=1))
    g = net.add("Mul", [m, v] if net.chance(0.7) else [v, m], net.shapes[m])
    if net.chance(0.2):
        g = net.add("Relu", [g], net.shapes[g])
    if net.chance(0.15):
        g = _filtered(net, g, deep, group=deep, size=3)
    if net.chance(0.9):
        y = _filtered(
            net,
            g,
            c if net.chance(0.8) else net.upto(1, 6),
            group=1,
            size=net.one_of(1, 1, 1, 1, 3),
            stride=net.one_of(1, 1, 1, 1, 1, 2),
        )
        if net.shapes[y] == net.shapes[x] and net.chance(0.9):
            y = net.add("Add", [y, x], net.shapes[y])
        _activated(net, y)
    return net.finish()


def inverted_residual(
    rng: np.random.Generator, channels: int, expanded: int, extent: int, *, skip: bool = True
) -> Graph:
    """A block of EfficientNet: expanded, filtered 3 x 3, gated by its mean, projected, perhaps a skip."""
    net = _Net(rng)
    net.inputs, net.shapes = ["x"], {"x": (1, channels, extent, extent)}

    def filtered(x: str, filters: int, kind: str, *, group: int = 1, size: int = 1) -> str:
        net.weights.clear()  # no two operators read the same
        y = _filtered(net, x, filters, group=group, size=size)
        return net.add(kind, [y], net.shapes[y]) if kind else y

    m = filtered(filtered("x", expanded, "Relu"), expanded, "Relu", group=expanded, size=3)
    v = net.add("GlobalAveragePool", [m], (1, expanded, 1, 1))
    v = filtered(filtered(v, channels, "Relu"), expanded, "Sigmoid")
    y = filtered(net.add("Mul", [m, v], net.shapes[m]), channels, "")
    if skip:
        net.add("Add", [y, "x"], net.shapes[y])
    return net.finish()


def _filtered(net: _Net, x: str, filters: int, *, group: int, size: int, stride: int = 1) -> str:
    """A convolution of `size` x `size`, padded so that a stride of 1 keeps rows and columns."""
    n, c, *extents = net.shapes[x]
    out = [(extent - 1) // stride + 1 for extent in extents]
    inputs = [
        x,
        net.weight(filters, c // group, size, size),
        *([net.weight(filters)] if net.chance(0.4) else []),
    ]
    return net.add(
        "Conv",
        inputs,
        (n, filters, *out),
        group=group,
        kernel_shape=[size] * 2,
        strides=[stride] * 2,
        pads=[size // 2] * 4,
    )


def _activated(net: _Net, x: str) -> str:
    """Perhaps with an activation: one operator, or two of which the first reads what the second does."""
    kind, shape = net.one_of("", "Relu", "Sigmoid", "silu"), net.shapes[x]
    if kind == "silu":
        return net.add("Mul", [x, net.add("Sigmoid", [x], shape)], shape)
    return net.add(kind, [x], shape) if kind else x


def _folded(net: _Net, x: str) -> str:
    """Over rows and columns."""
    n, c, *_ = net.shapes[x]
    if net.chance(0.5):
        return net.add("GlobalAveragePool", [x], (n, c, 1, 1))
    return net.add(
        net.one_of("ReduceMean", "ReduceMax", "ReduceSum"), [x, net.ints(2, 3)], (n, c, 1, 1), keepdims=1
    )


def random_joins(rng: np.random.Generator) -> Graph:
    """Up to six of Concat, Where, Add and the like in sequence, constants as operands in any position."""
    net = _Net(rng)
    net.inputs, net.shapes = (
        ["x"],
        {"x": (net.one_of(1, 1, 2), *(net.upto(1, 6) for _ in range(net.upto(2, 3))))},
    )
    net.add("Relu", ["x"], net.shapes["x"])
    for _ in range(net.upto(1, 5)):
        x = net.pick()
        shape = net.shapes[x]
        kind = net.one_of("Concat", "Concat", "Where", "Add", "Sub", "Max", "Relu")
        if kind == "Concat":
            axis = net.upto(0, len(shape) - 1)
            parts = {name: net.shapes[name][axis] for name in (x, *net.fitting(x, axis)[: net.upto(0, 1)])}
            for _ in range(net.upto(1, 2)):
                wide = net.upto(1, 4)
                parts[net.weight(*(wide if k == axis else extent for k, extent in enumerate(shape)))] = wide
            order = [str(name) for name in rng.permutation(list(parts))]
            net.add(
                "Concat",
                order,
                tuple(sum(parts.values()) if k == axis else extent for k, extent in enumerate(shape)),
                axis=axis,
            )
        elif kind == "Where":
            sides = [x, net.weight(*(extent if net.chance(0.6) else 1 for extent in shape))]
            test = net.constant(rng.random([extent if net.chance(0.6) else 1 for extent in shape]) < 0.5)
            if net.chance(0.4):
                test = net.add("Greater", [x, net.weight(*shape)], shape)
                net.truths.add(test)
                net.unreadable.add(test)
            net.add("Where", [test, *(sides if net.chance(0.5) else sides[::-1])], shape)
        elif kind == "Relu":
            net.add("Relu", [x], shape)
        else:
            sides = [x, net.weight(*(extent if net.chance(0.6) else 1 for extent in shape))]
            net.add(kind, sides if net.chance(0.5) else sides[::-1], shape)
    return net.finish()


def random_hardware(rng: np.random.Generator, graph: Graph, *, element_bytes: int | None = None) -> Hardware:
    """A chip with a buffer between a few rows and the whole network, maybe with odd elements or alignment.

    If there is a store for parameters, it holds everything, or those of a few operators. Weights may have a
    few bits.
    """
    elements = sum(tensor.elements for tensor in graph.tensors.values())
    size = int(rng.choice([1, 2])) if element_bytes is None else element_bytes
    aligned = rng.random() < 0.25
    hardware = Hardware(
        buffer_bytes=int(2 ** rng.uniform(3, np.log2(elements * size + 16))),
        element_bytes=size,
        weight_bytes=int(rng.choice([1, 2])) if rng.random() < 0.2 else None,
        bias_bytes=4 if rng.random() < 0.2 else None,
        dram_row_align=int(rng.choice([4, 16])) if aligned else 1,
        channel_align=int(rng.choice([2, 4])) if aligned else 1,
        constant_align=int(rng.choice([1, 1, 4, 16])),
        parameter_store_bytes=int(rng.choice([0, 0, 700, 1 << 20, 1 << 20])),
    )
    # a generator of its own: what is drawn from `rng` stays as it is
    bits = np.random.default_rng((elements, hardware.buffer_bytes))
    if hardware.weight_bytes is None and bits.random() < 0.25:
        hardware = replace(hardware, weight_bits=int(bits.choice([4, 4, 4, 2, 3, 12])))
    return hardware


def with_weight_buffer(rng: np.random.Generator, graph: Graph, hardware: Hardware) -> Hardware:
    """The chip with a buffer for weights, somewhere between a few bytes and more than the network has."""
    weights = {w.name: w for weights in Dataflow.of(graph).weights for w in weights}
    size = sum(hardware.constant_bytes(w.elements, bias=w.bias) for w in weights.values())
    return replace(hardware, weight_buffer_bytes=int(2 ** rng.uniform(2, np.log2(2 * size + 8))))


def graphs(least: int = 1, most: int = 7) -> st.SearchStrategy[Graph]:
    """Random networks for Hypothesis: a seed and a size, so that what shrinks is the size."""
    return st.builds(
        lambda seed, operators: random_graph(np.random.default_rng(seed), operators),
        st.integers(0, 2**32 - 1),
        st.integers(least, most),
    )


@dataclass
class _Net:
    """A network that grows by one operator (or view) at a time."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)  # of every map, oldest first
    unreadable: set[str] = field(default_factory=set)  # maps that no operator of ours takes: integers, rank 2
    integers: set[str] = field(default_factory=set)
    truths: set[str] = field(default_factory=set)
    weights: dict[Shape, list[str]] = field(default_factory=dict)
    operators: int = 0

    def __post_init__(self) -> None:
        for _ in range(1 + (self.rng.random() < 0.3)):
            self.add_input()

    # -- choices ---------------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def upto(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, *items: Item) -> Item:
        return items[int(self.rng.integers(len(items)))]

    @property
    def readable(self) -> dict[str, Shape]:
        """Maps that operators may read, oldest first."""
        return {name: shape for name, shape in self.shapes.items() if name not in self.unreadable}

    def pick(self) -> str:
        """A map to read: mostly a recent one."""
        names = list(self.readable)
        back = min(int(self.rng.geometric(0.45)) - 1, len(names) - 1)
        return names[-1 - back]

    def fitting(self, like: str, free_axis: int | None = None) -> list[str]:
        """Maps of the same shape, except perhaps along one axis."""
        wanted = self.shapes[like]
        return [
            name
            for name, shape in self.readable.items()
            if len(shape) == len(wanted)
            and all(a == b or i == free_axis for i, (a, b) in enumerate(zip(shape, wanted, strict=True)))
        ]

    # -- parts -----------------------------------------------------------------------------------------------

    def add_input(self) -> None:
        rank3 = self.chance(0.12)
        self.new_input(
            (1, self.upto(1, 8), self.upto(1, 5))
            if rank3
            else (self.one_of(1, 1, 1, 2), self.upto(1, 4), self.upto(1, 12), self.upto(1, 4))
        )

    def new_input(self, shape: Shape) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = shape
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(onnx.numpy_helper.from_array(value, name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weight(self, *shape: int) -> str:
        """A weight of that shape; now and then one that another operator reads already."""
        known = self.weights.setdefault(shape, [])
        if known and self.chance(0.4):
            return known[self.upto(0, len(known) - 1)]
        known.append(self.constant((self.rng.random(shape, np.float32) - 0.5).astype(np.float32)))
        return known[-1]

    def add(
        self,
        kind: str,
        inputs: list[str],
        *shapes: Shape,
        view: bool = False,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """A node with results of these shapes; returns the first."""
        outputs = [f"t{len(self.nodes)}" + (f"_{k}" if k else "") for k in range(len(shapes))]
        self.nodes.append(
            helper.make_node(
                kind, inputs, outputs, name=f"{kind}{len(self.nodes)}", domain=domain, **attributes
            )
        )
        self.shapes |= dict(zip(outputs, shapes, strict=True))
        self.operators += not view
        return outputs[0]

    def grow(self, room: int) -> None:
        """One more operator, if the one drawn applies; `room` operators are still wanted."""
        x = self.pick()
        rules: list[Callable[[_Net, str], None]] = RANK4 if len(self.shapes[x]) == 4 else OTHER
        odds = np.array([ODDS[rule] for rule in rules])
        rule = rules[int(self.rng.choice(len(rules), p=odds / odds.sum()))]
        if rule is _squeeze_excite and room < 3:
            return
        if self.operators and self.chance(0.04) and len(self.inputs) < 3:
            self.add_input()
        rule(self, x)

    def finish(self) -> Graph:
        """The network as a Graph; every map that nothing reads is a result, and so are some that are read."""
        read = {name for node in self.nodes for name in node.input}
        for node in self.nodes:  # some results nobody asks for
            if len(node.output) > 1 and self.chance(0.4):
                asked = [name if name in read else "" for name in node.output]
                if any(asked):
                    node.output[:] = asked
        results = [name for node in self.nodes for name in node.output if name]
        extra = self.one_of(0.0, 0.0, 0.15)
        outputs = [name for name in results if name not in read or self.chance(extra)]
        inputs = [name for name in self.inputs if name in read]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [self.info(name) for name in inputs],
            [self.info(name) for name in outputs],
            self.initializers,
            value_info=[self.info(name) for name in results if name not in outputs],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("test.unknown", 1)]
        return from_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))

    def info(self, name: str) -> onnx.ValueInfoProto:
        """Type and shape of a map."""
        kind = (
            TensorProto.INT64
            if name in self.integers
            else TensorProto.BOOL
            if name in self.truths
            else TensorProto.FLOAT
        )
        return helper.make_tensor_value_info(name, kind, self.shapes[name])


# -- operators -----------------------------------------------------------------------------------------------


def _window(net: _Net, size: int) -> tuple[int, int, int, int, int, int] | None:
    """(kernel, stride, dilation, pad before, pad after, result) along one axis."""
    kernel, stride, dilation = net.upto(1, 4), net.one_of(1, 1, 1, 2, 3), net.one_of(1, 1, 1, 2)
    before, after = net.upto(0, kernel - 1), net.upto(0, kernel - 1)
    if net.chance(0.4):
        before = after = (kernel - 1) * dilation // 2
    out = (size + before + after - (kernel - 1) * dilation - 1) // stride + 1
    return (kernel, stride, dilation, before, after, out) if out >= 1 else None


def _windows(net: _Net, x: str) -> tuple[dict[str, Any], list[int]] | None:
    rows, columns = _window(net, net.shapes[x][2]), _window(net, net.shapes[x][3])
    if rows is None or columns is None:
        return None
    kernel, strides, dilations, before, after, out = ([r, c] for r, c in zip(rows, columns, strict=True))
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": before + after}, out


def _conv(net: _Net, x: str) -> None:
    windows = _windows(net, x)
    if windows is None:
        return
    attributes, out = windows
    n, c = net.shapes[x][:2]
    group = c if net.chance(0.25) else 1
    k = group * net.upto(1, 2) if group > 1 else net.upto(1, 4)
    inputs = [x, net.weight(k, c // group, *attributes["kernel_shape"])] + (
        [net.weight(k)] if net.chance(0.4) else []
    )
    net.add("Conv", inputs, (n, k, *out), group=group, **attributes)


def _pointwise(net: _Net, x: str) -> None:
    n, c, h, w = net.shapes[x]
    k = net.upto(1, 6)
    net.add("Conv", [x, net.weight(k, c, 1, 1)], (n, k, h, w), kernel_shape=[1, 1])


def _conv_transpose(net: _Net, x: str) -> None:
    n, c, h, w = net.shapes[x]
    kernel, stride, dilation = net.upto(1, 3), net.upto(1, 3), net.upto(1, 2)
    before, after, extra = net.upto(0, 1), net.upto(0, 1), net.upto(0, max(stride, dilation) - 1)
    high = stride * (h - 1) + extra + (kernel - 1) * dilation + 1 - before - after
    if not 1 <= high <= 14:
        return
    k = net.upto(1, 3)
    net.add(
        "ConvTranspose",
        [x, net.weight(c, k, kernel, 1)],
        (n, k, high, w),
        kernel_shape=[kernel, 1],
        strides=[stride, 1],
        dilations=[dilation, 1],
        pads=[before, 0, after, 0],
        output_padding=[extra, 0],
    )


def _pool(net: _Net, x: str) -> None:
    windows = _windows(net, x)
    if windows is None:
        return
    attributes, out = windows
    n, c, _, _ = net.shapes[x]
    kind = net.one_of("MaxPool", "AveragePool")
    indices = kind == "MaxPool" and net.chance(0.2)
    result = net.add(kind, [x], (n, c, *out), *([(n, c, *out)] if indices else []), **attributes)
    if indices:
        net.integers.add(result + "_1")
        net.unreadable.add(result + "_1")


def _unary(net: _Net, x: str) -> None:
    net.add(net.one_of("Relu", "Sigmoid", "HardSwish", "Neg"), [x], net.shapes[x])


def _binary(net: _Net, x: str) -> None:
    others = net.fitting(x)
    other = others[net.upto(0, len(others) - 1)] if net.chance(0.85) else x
    net.add(net.one_of("Add", "Mul", "Sub"), [x, other] if net.chance(0.5) else [other, x], net.shapes[x])


def _broadcast(net: _Net, x: str) -> None:
    """Times a constant, or a map with one row or one channel."""
    shape = net.shapes[x]
    others = [
        name
        for name, other in net.readable.items()
        if name != x
        and len(other) == len(shape)
        and all(a in (1, b) for a, b in zip(other, shape, strict=True))
    ]
    other = (
        others[net.upto(0, len(others) - 1)]
        if others and net.chance(0.7)
        else net.weight(*(d if net.chance(0.5) else 1 for d in shape))
    )
    net.add("Mul", [x, other], shape)


def _squeeze_excite(net: _Net, x: str) -> None:
    n, c, h, w = net.shapes[x]
    if net.chance(0.5):
        pooled = net.add("GlobalAveragePool", [x], (n, c, 1, 1))
    else:
        pooled = net.add("ReduceMean", [x, net.ints(2, 3)], (n, c, 1, 1), keepdims=1)
    gate = net.add("Conv", [pooled, net.weight(c, c, 1, 1)], (n, c, 1, 1), kernel_shape=[1, 1])
    net.add("Mul", [x, gate], (n, c, h, w))


def _reduce(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    axis = net.upto(1, len(shape) - 1)
    kept = net.chance(0.8)
    result = tuple(1 if i == axis else d for i, d in enumerate(shape) if kept or i != axis)
    if len(result) >= 3:
        net.add(net.one_of("ReduceMean", "ReduceMax"), [x, net.ints(axis)], result, keepdims=int(kept))


def _concat(net: _Net, x: str) -> None:
    axis = net.one_of(1, 1, 2) if len(net.shapes[x]) == 4 else net.one_of(1, 2)
    others = net.fitting(x, axis)
    inputs = [x, *(others[net.upto(0, len(others) - 1)] for _ in range(net.upto(1, 2)))]
    shape = list(net.shapes[x])
    shape[axis] = sum(net.shapes[name][axis] for name in inputs)
    if shape[axis] <= 14:
        net.add("Concat", inputs, tuple(shape), axis=axis)


def _split(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    axis = net.one_of(1, 2)
    if shape[axis] < 2:
        return
    cut = net.upto(1, shape[axis] - 1)
    parts = [
        tuple(size if i == axis else d for i, d in enumerate(shape)) for size in (cut, shape[axis] - cut)
    ]
    net.add("Split", [x, net.ints(cut, shape[axis] - cut)], *parts, axis=axis)


def _slice(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    axis = net.one_of(1, 2, 2)
    size, step = shape[axis], net.one_of(1, 1, 2, -1, -2)
    start = net.upto(0, size - 1)
    end = net.upto(start + 1, size) if step > 0 else net.upto(-size - 1, start - size - 1)
    stop = end if step > 0 else end + size
    count = len(range(start, stop, step))
    if count:
        net.add(
            "Slice",
            [x, net.ints(start), net.ints(end), net.ints(axis), net.ints(step)],
            tuple(count if i == axis else d for i, d in enumerate(shape)),
        )


def _pad(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    mode = net.one_of("constant", "edge", "reflect")
    before, after = net.upto(0, 2), net.upto(0, 2)
    if mode == "reflect" and max(before, after) >= shape[2]:
        return
    net.add(
        "Pad",
        [x, net.ints(before, after), "", net.ints(2)],
        tuple(d + before + after if i == 2 else d for i, d in enumerate(shape)),
        mode=mode,
    )


def _resize(net: _Net, x: str) -> None:
    n, c, _, w = net.shapes[x]
    high = net.upto(1, 12)
    mode = net.one_of("nearest", "linear", "cubic")
    coordinates = net.one_of("half_pixel", "asymmetric", "align_corners")
    net.add(
        "Resize",
        [x, "", "", net.ints(n, c, high, w)],
        (n, c, high, w),
        mode=mode,
        coordinate_transformation_mode=coordinates,
    )


def _widen(net: _Net, x: str) -> None:
    """More columns: a transposed convolution, Resize to the nearest, or depth to space."""
    n, c, h, w = net.shapes[x]
    if w > 40:
        return
    kind = net.one_of("ConvTranspose", "Resize", "DepthToSpace")
    if kind == "ConvTranspose":
        kernel, stride, dilation = net.upto(1, 4), net.upto(1, 3), net.upto(1, 2)
        before, after, extra = net.upto(0, 1), net.upto(0, 1), net.upto(0, max(stride, dilation) - 1)
        wide = stride * (w - 1) + extra + (kernel - 1) * dilation + 1 - before - after
        k = net.upto(1, 3)
        if wide > 0:
            window: dict[str, Any] = {
                "kernel_shape": [1, kernel],
                "strides": [1, stride],
                "dilations": [1, dilation],
                "pads": [0, before, 0, after],
            }
            net.add(
                kind, [x, net.weight(c, k, 1, kernel)], (n, k, h, wide), output_padding=[0, extra], **window
            )
    elif kind == "Resize":
        by = net.upto(1, 3)
        how: dict[str, Any] = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        net.add(kind, [x, "", "", net.ints(n, c, h * by, w * by)], (n, c, h * by, w * by), **how)
    elif c % 4 == 0:
        net.add(kind, [x], (n, c // 4, 2 * h, 2 * w), blocksize=2)


def _columns(net: _Net, x: str) -> None:
    """Columns left out, or added."""
    n, c, h, w = net.shapes[x]
    if net.chance(0.5):
        first, step = net.upto(0, w // 3), net.one_of(1, 1, 2, -1)
        kept = range(first, w, step) if step > 0 else range(w - 1 - first, 0, -1)
        ends = (kept.start, kept.stop, 3, step)
        if len(kept) > 1:
            net.add("Slice", [x, *(net.ints(end) for end in ends)], (n, c, h, len(kept)))
    else:
        before, after = net.upto(0, 2), net.upto(0, 2)
        mode = net.one_of("constant", "edge", "reflect") if max(before, after) < w else "constant"
        net.add(
            "Pad", [x, net.ints(before, after), "", net.ints(3)], (n, c, h, w + before + after), mode=mode
        )


def _scale(net: _Net, x: str) -> None:
    """Times a vector of channels that comes from outside, or one that is computed from such."""
    n, c, h, w = net.shapes[x]
    vector = net.new_input((n, c, 1, 1))
    if net.chance(0.4):
        vector = net.add("Sigmoid", [vector], (n, c, 1, 1))
    net.unreadable.add(vector)
    net.add("Mul", [x, vector], (n, c, h, w))


def _view(net: _Net, x: str) -> None:
    """A reshape that keeps every row where it is, or one that mixes rows, or no reshape at all."""
    shape = net.shapes[x]
    if len(shape) == 5:
        target: Shape = (*shape[:3], shape[3] * shape[4])
    elif len(shape) == 4:
        n, c, h, w = shape
        target = net.one_of(
            (n, c, h, 1, w),
            (n, c, w, h),
            (n, h, c, w),
            (n, c * h, w),
            (n, c, h * w, 1),
            (n, c, h, w),
            (n, 1, c * h, w),
        )
        if max(target) > 14:
            return
    else:
        n, *rest = shape
        target = (n, 1, *rest) if len(shape) == 3 else (n, 1, prod(rest))
    if target == shape:
        net.add("Identity", [x], shape, view=True)
    else:
        net.add("Reshape", [x, net.ints(*target)], target, view=True)


def _transpose(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    permutation = net.one_of((0, 3, 2, 1), (0, 1, 3, 2), (0, 2, 1, 3)) if len(shape) == 4 else (0, 2, 1)
    if len(shape) in (3, 4):
        net.add("Transpose", [x], tuple(shape[a] for a in permutation), perm=list(permutation))


def _softmax(net: _Net, x: str) -> None:
    net.add("Softmax", [x], net.shapes[x], axis=net.upto(1, len(net.shapes[x]) - 1))


def _normalize(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    net.add("LayerNormalization", [x, net.weight(shape[-1]), net.weight(shape[-1])], shape, axis=-1)


def _matmul(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    partners = [
        name
        for name, other in net.readable.items()
        if len(other) == len(shape) and other[:-2] == shape[:-2] and other[-2] == shape[-1]
    ]
    if partners and net.chance(0.6):
        other = partners[net.upto(0, len(partners) - 1)]
        columns = net.shapes[other][-1]
    else:
        columns = net.upto(1, 4)
        other = net.weight(shape[-1], columns)
    net.add("MatMul", [x, other], (*shape[:-1], columns))


def _gemm(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    flat = net.add("Flatten", [x], (shape[0], prod(shape[1:])), view=True, axis=1)
    k = net.upto(1, 4)
    net.unreadable |= {flat, net.add("Gemm", [flat, net.weight(prod(shape[1:]), k)], (shape[0], k))}


def _gather(net: _Net, x: str) -> None:
    shape = net.shapes[x]
    axis = net.one_of(1, 2)
    index = [net.upto(0, shape[axis] - 1) for _ in range(net.upto(1, 3))]
    net.add(
        "Gather",
        [x, net.ints(*index)],
        tuple(len(index) if i == axis else d for i, d in enumerate(shape)),
        axis=axis,
    )


def _unknown(net: _Net, x: str) -> None:
    net.add("Strange", [x], net.shapes[x], domain="test.unknown")


ODDS: dict[Callable[[_Net, str], None], float] = {
    _conv: 8, _pointwise: 3, _pool: 2.5, _conv_transpose: 1, _unary: 4, _binary: 5, _broadcast: 2,
    _squeeze_excite: 2.5, _reduce: 1, _concat: 3, _split: 2, _slice: 1.5, _pad: 1, _resize: 1.2, _view: 2,
    _transpose: 0.7, _softmax: 0.4, _normalize: 0.6, _matmul: 0.8, _gemm: 0.4, _gather: 0.5, _unknown: 0.25,
}  # fmt: skip
RANK4 = list(ODDS)
OTHER = [
    _unary,
    _binary,
    _broadcast,
    _reduce,
    _concat,
    _split,
    _slice,
    _view,
    _transpose,
    _softmax,
    _normalize,
    _matmul,
    _gather,
]
