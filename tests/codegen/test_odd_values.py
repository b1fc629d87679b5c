"""What is no number, infinite, minus zero or at a border of its type comes out as ONNX Runtime has it.

In the reference, the executor and compiled C. Where ONNX Runtime's own result depends on the place of an
element in its vectors, or on the optimisations of a session, lfopt has a rule of its own: docs/numbers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import TensorProto

from lfopt.ops.reference import reference
from simulator.interpreter.execute import execute
from tests.codegen.random_networks import RUNS_HERE
from tests.codegen.side_by_side import ODD, Operators, compiled, graph_of, plan_of
from tests.qdq_models import run as by_runtime

NAN, INF = np.nan, np.inf
UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish LeakyRelu Log Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt
    Tan Tanh ThresholdedRelu Mish IsNaN IsInf Shrink""".split()
BINARY = """Add Sub Mul Div Max Min Pow PRelu Greater Less Equal GreaterOrEqual LessOrEqual""".split()
SUMS = "ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare ReduceSum".split()
EXTREMES = "ReduceMax ReduceMin".split()
BOUNDS = ((0, 6), (NAN, 6), (0, NAN), (NAN, NAN), (2, -2), (-INF, 1), (-1, INF), (-0.0, 1), (1, 1))


def elementwise() -> Operators:
    """Every odd value, and every pair of them."""
    net = Operators()
    a = net.given(np.repeat(ODD, len(ODD)).reshape(len(ODD), -1))
    b = net.given(np.tile(ODD, len(ODD)).reshape(len(ODD), -1))
    for kind in UNARY:
        net.put(kind, a)
    net.put("Gelu", a, approximate="tanh")
    for kind in BINARY:
        net.put(kind, a, b)
    for kind in ("Max", "Min", "Mean", "Sum"):
        net.put(kind, a, b, net.maps(len(ODD), len(ODD)))
    net.put("Mod", a, b, fmod=1)
    for low, high in BOUNDS:
        net.put("Clip", a, net.fixed(low), net.fixed(high))
        net.put("Clip", a, np.array(low, np.float32), np.array(high, np.float32))
    net.put("Where", net.maps(len(ODD), len(ODD)) > 0, a, b)
    return net


def integers() -> Operators:
    """Integers at the borders of their types; no divisor is 0, which stops ONNX Runtime."""
    net = Operators()
    for dtype in ("int32", "int64", "int8", "uint8"):
        x, y = net.maps(12, 12, dtype=dtype), net.maps(12, 12, dtype=dtype)
        divisor = np.where((y == 0) | (y.astype(int) == -1), 3, y).astype(dtype)
        for kind in ("Max", "Min"):
            net.put(kind, x, y)
        for fmod in (0, 1):
            net.put("Mod", x, divisor, fmod=fmod)
        net.put("Sign", x)
        if np.dtype(dtype).itemsize > 1:
            for kind in ("Add", "Sub", "Mul"):
                net.put(kind, x, y)
            net.put("Div", x, divisor)
            net.put("Abs", x)
            net.put("Neg", x)
    halves = net.rng.choice(np.array([0.0, 0.5, 1.5, 2.5, 100.7, 0.999], np.float32), (5, 9))
    for to in (TensorProto.INT32, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL):
        net.put("Cast", halves, to=to)
    return net


def along_axes(*, nans: bool) -> Operators:
    """Reductions, searches and pools. `nans`: those to which a NaN is the same wherever it stands."""
    net = Operators()
    for axis in (0, 1, 2):
        x = net.given(net.maps(4, 5, 6, nans=nans))
        axes = net.fixed([axis], "int64")
        for kind in SUMS if nans else EXTREMES:
            net.put(kind, x, axes)
        if not nans:
            net.put("TopK", x, net.fixed([2], "int64"), outputs=2, axis=axis)
            net.put("TopK", x, net.fixed([2], "int64"), outputs=2, axis=axis, largest=0)
            net.put("Hardmax", x, axis=axis)
            continue
        for last in (0, 1):
            net.put("ArgMax", x, axis=axis, select_last_index=last)
            net.put("ArgMin", x, axis=axis, select_last_index=last)
        net.put("Softmax", x, axis=axis)
        net.put("LogSoftmax", x, axis=axis)
        net.put("CumSum", x, net.fixed(axis, "int64"))
    for shape, kernel in (
        ((1, 9, 8, 9), [2, 3]),
        ((2, 3, 8, 9), [3, 3]),
        ((1, 3, 20), [3]),
        ((1, 3, 4, 5, 6), [2] * 3),
    ):
        x, pads = net.given(net.maps(*shape, nans=nans)), [1] * 2 * len(kernel)
        net.put("AveragePool" if nans else "MaxPool", x, kernel_shape=kernel, pads=pads)
    x = net.given(net.maps(1, 40, 3, 3, nans=nans))
    net.put("GlobalAveragePool" if nans else "GlobalMaxPool", x)
    if not nans:
        net.put("MaxPool", x, outputs=2, kernel_shape=[2, 2])
        net.put("MaxPool", np.full((1, 9, 4, 4), -INF, np.float32), kernel_shape=[2, 2])
    return net


def products() -> Operators:
    """Products and their like, and what they add."""
    net = Operators()
    weights, usual = net.fixed(net.rng.standard_normal((6, 5))), net.rng.standard_normal((4, 6))
    for beta in (0.0, -0.0, 1.0):
        odd = net.fixed([NAN, INF, 1, -INF, 2])
        net.put("Gemm", net.maps(4, 6), weights, odd, beta=beta)
        net.put("Gemm", usual.astype(np.float32), weights, net.maps(4, 5), beta=beta)
    for alpha in (0.0, 2.0):
        net.put("Gemm", net.maps(4, 6), weights, net.fixed([1, 2, 3, 4, 5]), alpha=alpha)
    net.put("MatMul", net.maps(3, 6), weights)
    net.put("MatMul", net.maps(3, 6), net.maps(6, 4))
    pads = [1, 1, 1, 1]
    net.put("Conv", net.maps(1, 3, 5, 5), net.fixed(net.rng.standard_normal((4, 3, 3, 3))), pads=pads)
    depthwise = net.fixed(net.rng.standard_normal((9, 1, 3, 3)))
    net.put("Conv", net.maps(1, 9, 5, 5), depthwise, pads=pads, group=9)
    scales = net.fixed([1, 1, 2, 2])
    net.put("Resize", net.maps(1, 3, 4, 4), "", scales, mode="nearest")
    net.put("Resize", net.maps(1, 3, 4, 4), "", scales, mode="linear")
    net.put("Pad", net.maps(3, 4), net.fixed([1] * 4, "int64"), net.fixed(NAN))
    net.put("LayerNormalization", net.maps(40, 3), net.fixed([1, 2, 1]), net.fixed([0, 1, 0]))
    return net


def wrong(wanted: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[str]:
    """Outputs that differ: in NaN, infinities, any integer, and in real numbers but for rounding."""
    faults: list[str] = []
    for name, values in wanted.items():
        found = np.asarray(outputs[name])
        assert (found.shape, found.dtype) == (values.shape, values.dtype), name
        if values.dtype.kind == "f":
            with np.errstate(all="ignore"):
                alike = np.isclose(values, found, rtol=2e-5, atol=1e-6, equal_nan=True)
        else:
            alike = values == found
        if not alike.all():
            place = tuple(map(int, np.argwhere(~alike)[0]))
            faults.append(
                f"{name}{list(place)}: {found[place]}, wanted {values[place]}; {(~alike).sum()} in all"
            )
    return faults


def test_odd_values_come_out_as_of_onnx_runtime(tmp_path: Path) -> None:
    nets = [elementwise(), integers(), along_axes(nans=True), along_axes(nans=False), products()]
    graphs = [graph_of(net) for net in nets]
    plans = [plan_of(graph) for graph in graphs]
    targets = [*dict.fromkeys(RUNS_HERE)]
    inputs = [net.inputs for net in nets]
    by_c = compiled([*zip(plans, graphs, inputs, strict=True)], tmp_path, targets)
    faults: list[str] = []
    for k, (net, graph, plan) in enumerate(zip(nets, graphs, plans, strict=True)):
        with np.errstate(all="ignore"):
            found = {
                "reference": reference(graph, net.inputs),
                "executor": execute(plan, graph, net.inputs).outputs,
            }
        found |= dict(zip(targets, by_c[k * len(targets) : (k + 1) * len(targets)], strict=True))
        by_onnx = by_runtime(net.model(), net.inputs)
        wanted = dict(zip(graph.outputs, by_onnx.values(), strict=True))
        faults += [f"{who}: {fault}" for who, outputs in found.items() for fault in wrong(wanted, outputs)]
    assert not faults, "\n".join(faults)


def test_a_nan_stays_in_what_takes_the_largest(tmp_path: Path) -> None:
    """Wherever it stands in a window or along an axis: ONNX Runtime loses some."""
    net = Operators()
    image = np.arange(9 * 25, dtype=np.float32).reshape(1, 9, 5, 5)
    image[0, np.arange(9), np.arange(9) % 5, np.arange(9) // 2] = NAN
    x = net.given(image)
    net.put("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
    net.put("GlobalMaxPool", x)
    for axis in (1, 2, 3):
        net.put("ReduceMax", x, net.fixed([axis], "int64"))
        net.put("ReduceMin", x, net.fixed([axis], "int64"))
    graph = graph_of(net)
    wanted = reference(graph, net.inputs)
    pooled, whole, *_ = wanted.values()
    assert np.isnan(whole).all()
    for channel, (row, column) in enumerate(np.argwhere(np.isnan(image))[:, 2:]):
        assert np.isnan(pooled[0, channel, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]).all()
    for outputs in compiled([(plan_of(graph), graph, net.inputs)], tmp_path, [*dict.fromkeys(RUNS_HERE)]):
        assert not wrong(wanted, outputs)
