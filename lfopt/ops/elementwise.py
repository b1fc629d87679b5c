"""Elementwise operators as NumPy functions with ONNX's attributes.

Source: the ONNX operators of the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx

from lfopt.ir import Box
from lfopt.ops.call import Call
from lfopt.ops.contraction import present
from lfopt.ops.evaluate import evaluate
from lfopt.ops.footprint import needs
from lfopt.ops.part import Operands, take

Values = np.ndarray


def elementwise(call: Call, operands: Operands, out: Box, result: int) -> Values:
    """Values of box `out`; operands are broadcast."""
    kind = call.operator.kind
    if kind in CASTS:
        return _cast(call, operands, out)
    values = [
        None if part is None else part.values if part.box == out else take(part, needs(call, i, out))
        for i, part in enumerate(operands)
    ]
    given = [value for value in values if value is not None]
    if kind in REAL and given[0].dtype.itemsize < 4:
        given = [value.astype(np.float32) for value in given]  # as ONNX Runtime does for half precision
    if function := REAL.get(kind):
        return function(call, given[0])
    if function := PLAIN.get(kind):
        return function(call, *given)
    if function := FOLDED.get(kind):
        return reduce(function, given)
    return SPECIAL[kind](call, values)


# -- one real operand ----------------------------------------------------------------------------------------


def _sigmoid(x: Values) -> Values:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Values) -> Values:
    return np.logaddexp(x, 0)


def _elu(call: Call, x: Values) -> Values:
    return np.where(x < 0, call.attribute("alpha", 1.0) * np.expm1(x), x)


def _celu(call: Call, x: Values) -> Values:
    alpha = call.attribute("alpha", 1.0)
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


def _selu(call: Call, x: Values) -> Values:
    alpha = call.attribute("alpha", 1.6732632423543772)
    gamma = call.attribute("gamma", 1.0507009873554805)
    return gamma * np.where(x > 0, x, alpha * np.expm1(x))


def _erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    from scipy.special import erf  # noqa: PLC0415  (takes half a second)

    return erf(x)


def _gelu(call: Call, x: Values) -> Values:
    if call.attribute("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))  # sqrt(2 / pi)
    return 0.5 * x * (1 + _erf(x * 0.7071067811865476))  # 1 / sqrt(2)


def _hard_sigmoid(call: Call, x: Values) -> Values:
    return np.clip(call.attribute("alpha", 0.2) * x + call.attribute("beta", 0.5), 0, 1)


def _shrink(call: Call, x: Values) -> Values:
    bias = call.attribute("bias", 0.0)
    border = call.attribute("lambd", 0.5)
    return np.where(x < -border, x + bias, np.where(x > border, x - bias, 0))


REAL: dict[str, Callable[[Call, Values], Values]] = {
    "Acos": lambda call, x: np.arccos(x),
    "Acosh": lambda call, x: np.arccosh(x),
    "Asin": lambda call, x: np.arcsin(x),
    "Asinh": lambda call, x: np.arcsinh(x),
    "Atan": lambda call, x: np.arctan(x),
    "Atanh": lambda call, x: np.arctanh(x),
    "Celu": _celu,
    "Cos": lambda call, x: np.cos(x),
    "Cosh": lambda call, x: np.cosh(x),
    "Elu": _elu,
    "Erf": lambda call, x: _erf(x),
    "Exp": lambda call, x: np.exp(x),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda call, x: x * np.clip(x * (1 / 6) + 0.5, 0, 1),
    "LeakyRelu": lambda call, x: np.where(x < 0, call.attribute("alpha", 0.01) * x, x),
    "Log": lambda call, x: np.log(x),
    "Mish": lambda call, x: x * np.tanh(_softplus(x)),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": lambda call, x: _sigmoid(x),
    "Sin": lambda call, x: np.sin(x),
    "Sinh": lambda call, x: np.sinh(x),
    "Softplus": lambda call, x: _softplus(x),
    "Softsign": lambda call, x: x / (1 + np.abs(x)),
    "Sqrt": lambda call, x: np.sqrt(x),
    "Swish": lambda call, x: x * _sigmoid(call.attribute("alpha", 1.0) * x),
    "Tan": lambda call, x: np.tan(x),
    "Tanh": lambda call, x: np.tanh(x),
    "ThresholdedRelu": lambda call, x: np.where(x > call.attribute("alpha", 1.0), x, 0),
}


# -- any type ------------------------------------------------------------------------------------------------


def _divide(call: Call, a: Values, b: Values) -> Values:
    """Integers are rounded toward zero. Source: ONNX operator Div."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient, rest = np.divmod(a, b)
    return quotient + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _power(call: Call, a: Values, b: Values) -> Values:
    if a.dtype.kind in "iu" and not (b.dtype.kind in "iu" and (b >= 0).all()):
        return np.power(a.astype(np.float64), b)
    return np.power(a, b.astype(a.dtype))


def _shifted(call: Call, a: Values, b: Values) -> Values:
    if call.attribute("direction", "") == "LEFT":
        return np.left_shift(a, b)
    return np.right_shift(a, b)


def _is_infinite(call: Call, x: Values) -> Values:
    return np.isinf(x) & np.where(
        x > 0, bool(call.attribute("detect_positive", 1)), bool(call.attribute("detect_negative", 1))
    )


PLAIN: dict[str, Callable[..., Values]] = {
    "Abs": lambda call, x: np.abs(x),
    "And": lambda call, a, b: np.logical_and(a, b),
    "BitShift": _shifted,
    "BitwiseAnd": lambda call, a, b: np.bitwise_and(a, b),
    "BitwiseNot": lambda call, x: np.bitwise_not(x),
    "BitwiseOr": lambda call, a, b: np.bitwise_or(a, b),
    "BitwiseXor": lambda call, a, b: np.bitwise_xor(a, b),
    "Ceil": lambda call, x: np.ceil(x),
    "Div": _divide,
    "Equal": lambda call, a, b: np.equal(a, b),
    "Floor": lambda call, x: np.floor(x),
    "Greater": lambda call, a, b: np.greater(a, b),
    "GreaterOrEqual": lambda call, a, b: np.greater_equal(a, b),
    "IsInf": _is_infinite,
    "IsNaN": lambda call, x: np.isnan(x),
    "Less": lambda call, a, b: np.less(a, b),
    "LessOrEqual": lambda call, a, b: np.less_equal(a, b),
    "Mean": lambda call, *given: reduce(np.add, given) / len(given),
    "Mod": lambda call, a, b: np.fmod(a, b) if call.attribute("fmod", 0) else np.mod(a, b),
    "Neg": lambda call, x: np.negative(x),
    "Not": lambda call, x: np.logical_not(x),
    "Or": lambda call, a, b: np.logical_or(a, b),
    "PRelu": lambda call, x, slope: np.where(x < 0, x * slope, x),
    "Pow": _power,
    "Reciprocal": lambda call, x: np.reciprocal(x),
    "Relu": lambda call, x: np.maximum(x, 0),
    "Round": lambda call, x: np.rint(x),
    "Sign": lambda call, x: np.sign(x),
    "Where": lambda call, condition, a, b: np.where(condition, a, b),
    "Xor": lambda call, a, b: np.logical_xor(a, b),
}
FOLDED: dict[str, Callable[[Values, Values], Values]] = {
    "Add": np.add,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Sub": np.subtract,
    "Sum": np.add,
}


def _clip(call: Call, values: list[Values | None]) -> Values:
    """min(max(x, low), high); a bound that is not a number is none."""
    x, low, high = (*values, None, None)[:3]
    assert x is not None
    x = x if low is None else np.where(x < low, low, x)
    if high is None:
        return x
    return np.where(x > high, high, x)


SPECIAL: dict[str, Callable[[Call, list[Values | None]], Values]] = {"Clip": _clip}


# -- change of type ------------------------------------------------------------------------------------------


DIGITS = {"float32": 8, "float64": 17}  # that ONNX Runtime writes; ONNX leaves their number open


def _as_text(value: float, digits: int) -> str:
    """A real number as Cast writes it."""
    if np.isnan(value):
        return "NaN"
    if np.isfinite(value):
        return f"{value:.{digits}g}"
    if value > 0:
        return "INF"
    return "-INF"


def _cast(call: Call, operands: Operands, out: Box) -> Values:
    """Between NumPy's own types; 8-bit floats, 4-bit integers, strings and the like by ONNX's reference."""
    x = take(present(operands, 0), needs(call, 0, out))
    dtype = call.result_tensors[0].dtype
    if x.dtype.kind in "biuf" and dtype != "string" and np.dtype(dtype).kind in "biuf":
        return x.astype(dtype)
    if dtype == "string" and x.dtype.name in DIGITS:
        return np.array([_as_text(value, DIGITS[x.dtype.name]) for value in x.flat], object).reshape(x.shape)
    return evaluate(
        call.operator, [x, *(part and part.values for part in operands[1:])], onnx.defs.onnx_opset_version()
    )[0]


CASTS = ("Cast", "CastLike")
KINDS = (*REAL, *PLAIN, *FOLDED, *SPECIAL, *CASTS)
