"""Operators that compute every element from the elements at the same place, on any type.

In the expressions, a, b and c are the elements of the operands, x is that of a real function's only one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from codegen.layout import tensor_of
from codegen.loops.nest import Array, Nest
from codegen.loops.scalar import ANGLES, Scalar
from lfopt.ops import Call

Expression = Callable[[Scalar, Call], str]  # type of the operands -> what the result's element is
Fold = Callable[[Scalar, str, str], str]


def scalar(operand: Array) -> str:
    """The one element of an operand."""
    return operand.at(["0"] * len(operand.shape))


def element(operand: Array, at: Sequence[str], shape: Sequence[int]) -> str:
    """The element of an operand that meets the one at an index of a shape that it is broadcast to."""
    if prod(operand.shape) == 1:
        return scalar(operand)
    return operand.at(operand.broadcast(at, shape))


# -- one real operand ----------------------------------------------------------------------------------------


def _sigmoid(s: Scalar, x: str) -> str:
    return f"1 / (1 + {s.function('exp', f'-{x}')})"


def _softplus(s: Scalar) -> str:
    return f"({s.larger('x', '0')} + {s.function('log1p', s.function('exp', '-' + s.function('fabs', 'x')))})"


def _between(s: Scalar, x: str) -> str:
    """C expression: x clipped to 0 .. 1."""
    return f"({x} < 0 ? 0 : {x} > 1 ? 1 : {x})"


def _celu(s: Scalar, call: Call) -> str:
    alpha = s.number(call.attribute("alpha", 1.0))
    return f"x > 0 ? x : {alpha} * {s.function('expm1', f'x / {alpha}')}"


def _elu(s: Scalar, call: Call) -> str:
    return f"x < 0 ? {s.number(call.attribute('alpha', 1.0))} * {s.function('expm1', 'x')} : x"


def _selu(s: Scalar, call: Call) -> str:
    alpha = call.attribute("alpha", 1.6732632423543772)
    gamma = call.attribute("gamma", 1.0507009873554805)
    return f"{s.number(gamma)} * (x > 0 ? x : {s.number(alpha)} * {s.function('expm1', 'x')})"


def _gelu(s: Scalar, call: Call) -> str:
    if call.attribute("approximate", "none") == "tanh":
        inner = f"{s.number(0.7978845608028654)} * (x + {s.number(0.044715)} * x * x * x)"  # sqrt(2 / pi)
        return f"{s.number(0.5)} * x * (1 + {s.function('tanh', inner)})"
    # the number is the square root of a half
    return f"{s.number(0.5)} * x * (1 + {s.function('erf', f'x * {s.number(0.7071067811865476)}')})"


def _hard_sigmoid(s: Scalar, call: Call) -> str:
    return _between(
        s, f"({s.number(call.attribute('alpha', 0.2))} * x + {s.number(call.attribute('beta', 0.5))})"
    )


def _shrink(s: Scalar, call: Call) -> str:
    bias = s.number(call.attribute("bias", 0.0))
    border = s.number(call.attribute("lambd", 0.5))
    return f"x < -{border} ? x + {bias} : x > {border} ? x - {bias} : 0"


def _swish(s: Scalar, call: Call) -> str:
    alpha = s.number(call.attribute("alpha", 1.0))
    return f"x * ({_sigmoid(s, f'({alpha} * x)')})"


FUNCTIONS = {
    "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Log": "log",
    "Round": "rint", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
REAL: dict[str, Expression] = {
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda s, call: f"x * {_between(s, f'(x * {s.number(1 / 6)} + {s.number(0.5)})')}",
    "LeakyRelu": lambda s, call: f"x < 0 ? {s.number(call.attribute('alpha', 0.01))} * x : x",
    "Mish": lambda s, call: f"x * {s.function('tanh', _softplus(s))}",
    "Reciprocal": lambda s, call: "1 / x",
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": lambda s, call: _sigmoid(s, "x"),
    "Softplus": lambda s, call: _softplus(s),
    "Softsign": lambda s, call: f"x / (1 + {s.function('fabs', 'x')})",
    "Swish": _swish,
    "ThresholdedRelu": lambda s, call: f"x > {s.number(call.attribute('alpha', 1.0))} ? x : 0",
}


def real(nest: Nest) -> None:
    """The loops of a function on real numbers; integers are computed as such, too."""
    (y,), a, kind = nest.results, nest.operand(0), nest.call.operator.kind
    own = Scalar(a.dtype)
    s = own if own.floating else Scalar("float32" if own.bits < 32 else "float64")  # as lfopt.ops has it
    expression = s.function(FUNCTIONS[kind], "x") if kind in FUNCTIONS else REAL[kind](s, nest.call)
    angle = s.dtype == "float32" and FUNCTIONS.get(kind) in ANGLES

    def turn(value: str) -> None:
        nest.out(f"const {s.ctype} x = {own.cast(value, s.dtype)};")

    if angle:
        nest.out("int wide = 0; /* whether there are angles that ours are not exact for */")
    with nest.alike(a, joined="wide" if angle else "") as (result, value):
        turn(value)
        nest.out(f"{result} = {s.cast(f'({expression})', y.dtype)};")
        if angle:
            nest.out("wide |= !(fabsf(x) <= REAL_WIDE);")
    if angle:
        with nest.out.block("if (wide)"), nest.alike(a) as (result, value):
            turn(value)
            nest.out(f"if (!(fabsf(x) <= REAL_WIDE)) {result} = {FUNCTIONS[kind]}f(x);")


# -- any type ------------------------------------------------------------------------------------------------


def _sign(s: Scalar, call: Call) -> str:
    if s.signed:
        return "a > 0 ? 1 : a < 0 ? -1 : a"
    return "a > 0"


def _divided(s: Scalar, call: Call) -> str:
    """Integers toward zero; 0 where the divisor is."""
    if s.floating:
        return "a / b"
    if s.signed:
        return f"b == 0 ? 0 : b == -1 ? {s.negative('a')} : a / b"
    return "b == 0 ? 0 : a / b"


def _modulo(s: Scalar, call: Call) -> str:
    """With the sign of the divisor, or (fmod) of the dividend; of integers, 0 where the divisor is."""
    truncated = bool(call.attribute("fmod", 0))
    if s.floating:
        rest = s.function("fmod", "a", "b")
        if truncated:
            return rest
        return (
            f"{rest} == 0 ? {s.function('copysign', '0', 'b')} : ({rest} < 0) != (b < 0) && b != 0 ? "
            f"{rest} + b : {rest}"
        )
    if not s.signed:
        return "b == 0 ? 0 : a % b"
    return "b == 0 || b == -1 ? 0 : " + (
        "a % b" if truncated else "a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b"
    )


def _power(s: Scalar, call: Call) -> str:
    """C expression of a power: of integers modulo 2^bits, real where the exponent is real or negative."""
    exponent = Scalar(tensor_of(call, 1).dtype)
    if s.floating:
        return s.function("pow", "a", exponent.cast("b", s.dtype))
    approximate = Scalar("float64").cast("pow((double)a, (double)b)", s.dtype)
    if exponent.floating:
        return approximate
    exact = f"({s.ctype})power((uint64_t)a, (uint64_t)b)"
    if exponent.signed:
        return f"b < 0 ? {approximate} : {exact}"
    return exact


def _shifted(s: Scalar, call: Call) -> str:
    """C expression of a shift: all bits out where the count is as large as that, or negative."""
    inside = f"({s.around})b < {s.bits}"
    if call.attribute("direction", "") == "LEFT":
        return f"{inside} ? ({s.ctype})(({s.around})a << b) : 0"
    if s.signed:
        return f"a >> ({inside} ? b : {s.bits - 1})"
    return f"{inside} ? a >> b : 0"


def _is_infinite(s: Scalar, call: Call) -> str:
    signs = [
        sign
        for sign, wanted in ((">", "detect_positive"), ("<", "detect_negative"))
        if call.attribute(wanted, 1)
    ]
    if signs:
        return f"isinf(a) && ({' || '.join(f'a {sign} 0' for sign in signs)})"
    return "0"


def _clipped(s: Scalar, call: Call) -> str:
    """C expression: min(max(a, b), c); a bound that is not a number is none."""
    x = "(a < b ? b : a)" if call.has(1) else "a"
    if call.has(2):
        return f"{x} > c ? c : {x}"
    return x


def _plain(expression: str) -> Expression:
    return lambda s, call: expression


PLAIN: dict[str, Expression] = {
    "Abs": lambda s, call: (
        s.function("fabs", "a") if s.floating else f"a < 0 ? {s.negative('a')} : a" if s.signed else "a"
    ),
    "And": _plain("a && b"),
    "BitShift": _shifted,
    "BitwiseAnd": _plain("a & b"),
    "BitwiseNot": _plain("~a"),
    "BitwiseOr": _plain("a | b"),
    "BitwiseXor": _plain("a ^ b"),
    "Clip": _clipped,
    "Div": _divided,
    "Equal": _plain("a == b"),
    "Greater": _plain("a > b"),
    "GreaterOrEqual": _plain("a >= b"),
    "IsInf": _is_infinite,
    "IsNaN": _plain("isnan(a) != 0"),
    "Less": _plain("a < b"),
    "LessOrEqual": _plain("a <= b"),
    "Mod": _modulo,
    "Neg": lambda s, call: s.negative("a"),
    "Not": _plain("!a"),
    "Or": _plain("a || b"),
    "PRelu": lambda s, call: f"a < 0 ? {s.arithmetic('*', 'a', 'b')} : a" if s.signed else "a",
    "Pow": _power,
    "Relu": lambda s, call: "a < 0 ? 0 : a" if s.signed else "a",
    "Sign": _sign,
    "Sub": lambda s, call: s.arithmetic("-", "a", "b"),
    "Where": _plain("a ? b : c"),
    "Xor": _plain("!a != !b"),
}


def plain(nest: Nest) -> None:
    """The loops of a function on up to three operands, broadcast."""
    (y,), kind = nest.results, nest.call.operator.kind
    given = {name: nest.operand(i) for i, name in enumerate("abc") if nest.call.has(i)}
    expression = PLAIN[kind](Scalar(given["a"].dtype), nest.call)
    operands = {name: operand for name, operand in given.items() if re.search(rf"\b{name}\b", expression)}
    with nest.alike(*operands.values()) as (result, *values):
        for (name, operand), value in zip(operands.items(), values, strict=True):
            nest.out(f"const {operand.ctype} {name} = {value};")
        nest.out(f"{result} = ({y.ctype})({expression});")


def cast(nest: Nest) -> None:
    """The loops of Cast and CastLike."""
    a, (y,) = nest.operand(0), nest.results
    with nest.alike(a) as (result, value):
        nest.out(f"{result} = {Scalar(a.dtype).cast(value, y.dtype)};")


FOLDED: dict[str, Fold] = {
    "Add": lambda s, a, b: s.arithmetic("+", a, b),
    "Max": Scalar.larger,
    "Mean": lambda s, a, b: s.arithmetic("+", a, b),
    "Min": Scalar.smaller,
    "Mul": lambda s, a, b: s.arithmetic("*", a, b),
    "Sum": lambda s, a, b: s.arithmetic("+", a, b),
}


def folded(nest: Nest) -> None:
    """The loops of a function that takes any number of operands, broadcast, from left to right."""
    (y,), kind = nest.results, nest.call.operator.kind
    s = Scalar(y.dtype)
    fold = FOLDED[kind]
    operands = [nest.operand(i) for i in range(len(nest.call.shapes))]
    with nest.alike(*operands) as (result, *values):
        for k, operand in enumerate(values):
            nest.out(f"const {s.ctype} x{k} = {operand};")
        value = "x0"
        for k in range(1, len(operands)):
            nest.out(f"const {s.ctype} y{k} = {fold(s, value, f'x{k}')};")
            value = f"y{k}"
        nest.out(f"{result} = {f'{value} / {len(operands)}' if kind == 'Mean' else value};")


def batch_normalization(nest: Nest) -> None:
    """The loops of BatchNormalization with given statistics: those that are constants are combined now."""
    call = nest.call
    x = nest.operand(0)
    y = nest.results[0]
    if len(nest.results) > 1 or len(x.shape) < 2:
        raise nest.unsupported(
            f"{len(nest.results)} results, of shape {list(y.shape)}", "one, of two axes or more"
        )
    epsilon = call.attribute("epsilon", 1e-5)
    given = [call.values[i] for i in range(1, 5)]
    if all(value is not None for value in given):
        scale, bias, mean, variance = (np.asarray(value, np.float64) for value in given)
        factor = scale / np.sqrt(variance + epsilon)
        channels = (len(factor), *[1] * (len(x.shape) - 2))
        factors, offsets = (
            nest.constant_array(value.astype(x.dtype).reshape(channels))
            for value in (factor, bias - mean * factor)
        )
        with nest.alike(x, factors, offsets) as (result, element, by, plus):
            nest.out(f"{result} = {element} * {by} + {plus};")
        return
    operands = [nest.operand(i) for i in range(1, 5)]
    with nest.elements() as at:
        for name, operand in zip(("scale", "bias", "mean", "variance"), operands, strict=True):
            nest.out(f"const double {name} = (double){operand.at(at[1:2])};")
        nest.out(f"const double factor = scale / sqrt(variance + {Scalar('float64').number(epsilon)});")
        nest.out(f"{y.at(at)} = {x.at(at)} * ({x.ctype})factor + ({x.ctype})(bias - mean * factor);")


LOOPS: dict[str, Callable[[Nest], None]] = {
    **dict.fromkeys((*FUNCTIONS, *REAL), real),
    **dict.fromkeys(PLAIN, plain),
    **dict.fromkeys(FOLDED, folded),
    **dict.fromkeys(["Cast", "CastLike"], cast),
    "BatchNormalization": batch_normalization,
}
