"""Operators on integers in QDQ form: DequantizeLinear, the operator on real numbers, QuantizeLinear.

They are absorbed later.

ONNX Runtime's quantisers write such operators in their operator-oriented format (QuantFormat.QOperator), and
where they quantise dynamically. Source: ONNX operators QLinearConv, QLinearMatMul, ConvInteger,
MatMulInteger, DynamicQuantizeLinear; contrib operators of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import NodeProto

from lfopt.frontend.builder import Builder, Operand
from lfopt.frontend.values import options
from lfopt.ir import InvalidModel, UnsupportedModel

OLD_SOFTMAX = 13  # opset before which Softmax flattens all axes from its own on
Lowering = Callable[[Builder, NodeProto], list[str]]  # -> the node's outputs


def _operands(node: NodeProto, count: int) -> list[str]:
    """Inputs of a node, those that are absent as ""."""
    return [*node.input, *[""] * count][:count]


def _real(build: Builder, name: str, scale: Operand, zero: str = "", axis: int = 0) -> str:
    """Real numbers that integers stand for.

    `axis`: of several scales. Raises UnsupportedModel for scales of two axes and more.
    """
    values = build.known(scale) if isinstance(scale, str) else scale
    if not name or values is None or values.ndim > 1:
        raise UnsupportedModel(
            "scales that are absent, computed, or of more than one axis; "
            "lfopt reads constants, one or one for each channel"
        )
    if values.size > 1:
        return build.run("DequantizeLinear", name, scale, zero, axis=axis)
    return build.run("DequantizeLinear", name, scale, zero)


def _held(build: Builder, name: str, scale: str, zero: str) -> list[str]:
    """Integers that stand for real numbers. Raises UnsupportedModel without a scale."""
    if not scale:
        raise UnsupportedModel("no scale of its result; lfopt reads quantised results")
    return [build.run("QuantizeLinear", name, scale, zero)]


def _with_bias(build: Builder, bias: str, scales: tuple[str, str], *operands: str) -> list[str]:
    """Operands, and behind them a bias of integers, if any: its scale is the product of the two scales."""
    if not bias:
        return [*operands]
    one, other = (build.known(name) for name in scales)
    if one is None or other is None:
        raise UnsupportedModel("its scales are computed; lfopt reads constants")
    return [
        *operands,
        _real(build, bias, np.asarray(one.reshape(-1) * other.reshape(-1), np.float32), axis=0),
    ]


def _conv(build: Builder, node: NodeProto) -> list[str]:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = _operands(node, 9)
    operands = _real(build, x, x_scale, x_zero), _real(build, w, w_scale, w_zero, axis=0)
    real = build.run("Conv", *_with_bias(build, bias, (x_scale, w_scale), *operands), **options(node))
    return _held(build, real, scale, zero)


def _matmul(build: Builder, node: NodeProto) -> list[str]:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = _operands(node, 8)
    rows, columns = (max(len(build.shape(name)) - back, 0) for name, back in ((a, 2), (b, 1)))
    return _held(
        build,
        build.run(
            "MatMul", _real(build, a, a_scale, a_zero, rows), _real(build, b, b_scale, b_zero, columns)
        ),
        scale,
        zero,
    )


def _gemm(build: Builder, node: NodeProto) -> list[str]:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale, zero = _operands(node, 9)
    told = options(node)
    if told.get("alpha", 1.0) != 1.0:
        raise UnsupportedModel(f"alpha {told['alpha']}; lfopt reads 1")
    operands = (
        _real(build, a, a_scale, a_zero),
        _real(build, b, b_scale, b_zero, axis=0 if told.get("transB", 0) else 1),
    )
    real = build.run("Gemm", *_with_bias(build, bias, (a_scale, b_scale), *operands), **told)
    if scale:
        return _held(build, real, scale, zero)
    return [real]


def _two(kind: str) -> Lowering:
    """An operator on two maps."""

    def written(build: Builder, node: NodeProto) -> list[str]:
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = _operands(node, 8)
        return _held(
            build,
            build.run(kind, _real(build, a, a_scale, a_zero), _real(build, b, b_scale, b_zero)),
            scale,
            zero,
        )

    return written


def _one(kind: str) -> Lowering:
    """An operator on one map."""

    def written(build: Builder, node: NodeProto) -> list[str]:
        x, x_scale, x_zero, scale, zero = _operands(node, 5)
        told: dict[str, Any] = options(node)
        opset = told.pop("opset", OLD_SOFTMAX)
        if told.pop("channels_last", 0) or (
            opset < OLD_SOFTMAX and told.get("axis", -1) not in (-1, len(build.shape(x)) - 1)
        ):
            raise UnsupportedModel(
                "channels last, or a Softmax over several axes; lfopt reads [n, c, ...], and one axis"
            )
        return _held(build, build.run(kind, _real(build, x, x_scale, x_zero), **told), scale, zero)

    return written


def _concat(build: Builder, node: NodeProto) -> list[str]:
    (scale, zero), rest = _operands(node, 2), [*node.input[2:]]
    if len(rest) % 3:
        raise InvalidModel(
            f"{len(node.input)} inputs; "
            "accepted: three for each part behind the scale and zero point of the result"
        )
    parts = [
        _real(build, name, by, of) for name, by, of in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    ]
    return _held(build, build.run("Concat", *parts, **options(node)), scale, zero)


# -- integers that stand for themselves, and scales that are computed ----------------------------------------


def _less(build: Builder, name: str, zero: str, dtype: str, shape: tuple[int, ...]) -> str:
    """Integers less their zero points; `shape`: of zero points along an axis, to broadcast to the operand."""
    wide = build.cast(name, dtype)
    if not zero:
        return wide
    several = len(build.shape(zero)) == 1 and build.shape(zero) != (1,)
    return build.run("Sub", wide, build.cast(build.reshape(zero, *shape) if several else zero, dtype))


def _matmul_integer(build: Builder, node: NodeProto) -> list[str]:
    a, b, a_zero, b_zero = _operands(node, 4)
    return [
        build.run(
            "MatMul", _less(build, a, a_zero, "int32", (-1, 1)), _less(build, b, b_zero, "int32", (-1,))
        )
    ]


def _conv_integer(build: Builder, node: NodeProto) -> list[str]:
    """In float64, which holds every sum: ONNX has no Conv on integers."""
    x, w, x_zero, w_zero = _operands(node, 4)
    filters = (-1, *(1,) * (len(build.shape(w)) - 1))
    operands = _less(build, x, x_zero, "float64", (-1,)), _less(build, w, w_zero, "float64", filters)
    return [build.cast(build.run("Conv", *operands, **options(node)), "int32")]


def _dynamic_quantize(build: Builder, node: NodeProto) -> list[str]:
    """uint8, with the scale and zero point that the range of the map has, 0 in it."""
    (x,) = node.input
    nothing = np.zeros((), np.float32)
    most = np.array(255, np.float32)
    low = build.run("Min", build.run("ReduceMin", x, keepdims=0), nothing)
    high = build.run("Max", build.run("ReduceMax", x, keepdims=0), nothing)
    scale = build.run("Div", build.run("Sub", high, low), most)
    # of a map that is all 0
    step = build.run("Where", build.run("Equal", scale, nothing), np.ones((), np.float32), scale)
    zero = build.run("Clip", build.run("Round", build.run("Div", build.run("Neg", low), step)), nothing, most)
    held = build.run(
        "Clip", build.run("Add", build.run("Round", build.run("Div", x, step)), zero), nothing, most
    )
    return [build.cast(held, "uint8"), scale, build.cast(zero, "uint8")]


STANDARD: dict[str, Lowering] = {
    "ConvInteger": _conv_integer,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
}
OF_MICROSOFT: dict[str, Lowering] = {
    "QGemm": _gemm,
    "QLinearAdd": _two("Add"),
    "QLinearAveragePool": _one("AveragePool"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _one("GlobalAveragePool"),
    "QLinearLeakyRelu": _one("LeakyRelu"),
    "QLinearMul": _two("Mul"),
    "QLinearSigmoid": _one("Sigmoid"),
    "QLinearSoftmax": _one("Softmax"),
}
