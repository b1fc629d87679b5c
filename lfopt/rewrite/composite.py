"""One spelling for what exporters spell in many ways, and operators that are recognised from their pieces.

A *normal form* costs no more than what it replaces and makes the patterns below few. A *composite* is one
operator of ONNX whose definition stands in the graph; recognising it saves operators, not arithmetic.
Sources: the ONNX operators of these names, each of which states its formula.
"""

from __future__ import annotations

from collections.abc import Iterator

from lfopt.rewrite.rule import Rule, rule

NORMAL_FORMS: tuple[Rule, ...] = tuple(
    rule("normal form", text, where)
    for text, where in (
        ("Pow(a, 2) -> a * a", ""),
        ("Pow(a, 0.5) -> Sqrt(a)", ""),
        ("Pow(a, -1) -> Reciprocal(a)", ""),
        ("1 / a -> Reciprocal(a)", ""),
        ("a / k -> a * Reciprocal(k)", "scalar(k) and k != 0"),
        ("a * Reciprocal(b) -> a / b", "b != 0"),
        ("Sum(a, b) -> a + b", ""),
        ("Sum(a, b, c) -> a + b + c", ""),
        ("Max(a, 0) -> Relu(a)", ""),
        ("Clip(a, 0) -> Relu(a)", ""),
        ("Min(Max(a, k), l) -> Clip(a, k, l)", "scalar(k, l) and without_axes(k, l)"),
        ("Max(Min(a, l), k) -> Clip(a, k, l)", "scalar(k, l) and without_axes(k, l) and ordered(k, l)"),
        ("Min(Relu(a), l) -> Clip(a, 0, l)", "scalar(l) and without_axes(l) and l >= 0"),
        ("Relu(Min(a, l)) -> Clip(a, 0, l)", "scalar(l) and without_axes(l) and l >= 0"),
        ("Clip(Relu(a), 0, l) -> Clip(a, 0, l)", "scalar(l) and l >= 0"),
        ("Relu(Clip(a, 0, l)) -> Clip(a, 0, l)", "scalar(l) and l >= 0"),
        ("ReduceSum[x](Abs(a)) -> ReduceL1[x](a)", ""),
        ("ReduceSum[x](a * a) -> ReduceSumSquare[x](a)", ""),
        ("Sqrt(ReduceSumSquare[x](a)) -> ReduceL2[x](a)", ""),
        ("Log(ReduceSum[x](Exp(a))) -> ReduceLogSumExp[x](a)", ""),
        ("Log(ReduceSum[x](a)) -> ReduceLogSum[x](a)", ""),
        ("Exp(ReduceLogSumExp[x](a)) -> ReduceSum[x](Exp(a))", ""),
        ("Exp(ReduceLogSum[x](a)) -> ReduceSum[x](a)", ""),
    )
)

SIGMOIDS = (
    ("Reciprocal(Exp(-a) + 1) -> Sigmoid(a)", ""),
    ("1 / (Exp(-a) + 1) -> Sigmoid(a)", ""),
    ("Exp(a) / (Exp(a) + 1) -> Sigmoid(a)", ""),
    ("Tanh(a * 0.5) * 0.5 + 0.5 -> Sigmoid(a)", ""),
    ("(Tanh(a * 0.5) + 1) * 0.5 -> Sigmoid(a)", ""),
    ("Sigmoid(a * 2) * 2 - 1 -> Tanh(a)", ""),
    ("Sinh(a) / Cosh(a) -> Tanh(a)", ""),
    ("Sin(a) / Cos(a) -> Tan(a)", ""),
    ("Log(Exp(a) + 1) -> Softplus(a)", ""),
    ("a / (Abs(a) + 1) -> Softsign(a)", ""),
    ("a * Tanh(Softplus(a)) -> Mish(a)", ""),
    ("a * Sigmoid(a) -> Swish(a)", ""),
    ("a * Sigmoid(a * k) -> Swish(a, alpha=value(k))", "scalar(k)"),
    ("a / (Exp(-a) + 1) -> Swish(a)", ""),
)
HARD = (
    ("Clip(a + 3, 0, 6) * 0.16666667 -> HardSigmoid(a, alpha=0.16666667, beta=0.5)", ""),
    ("Clip(a * k + l, 0, 1) -> HardSigmoid(a, alpha=value(k), beta=value(l))", "scalar(k, l)"),
    ("a * HardSigmoid(a, alpha=0.16666667, beta=0.5) -> HardSwish(a)", ""),
    ("a * Clip(a + 3, 0, 6) * 0.16666667 -> HardSwish(a)", ""),
)
ROOT_HALF = 0.7071067811865476
ROOT_2_PI = 0.7978845608028654
CUBIC = 0.044715
CUBES = (f"Pow(a, 3) * {CUBIC}", f"a * a * a * {CUBIC}")
GELUS = (
    *(
        (f"a * (Erf({inner}) + 1) * 0.5 -> Gelu(a)", "")
        for inner in (f"a * {ROOT_HALF}", "a / 1.4142135623730951")
    ),
    *(
        (f"a * (Erf({inner}) * 0.5 + 0.5) -> Gelu(a)", "")
        for inner in (f"a * {ROOT_HALF}", "a / 1.4142135623730951")
    ),
    *(
        (f'a * (Tanh((a + {cube}) * {ROOT_2_PI}) + 1) * 0.5 -> Gelu(a, approximate="tanh")', "")
        for cube in CUBES
    ),
    (f'a * (Tanh(a * (a * a * {CUBIC} + 1) * {ROOT_2_PI}) + 1) * 0.5 -> Gelu(a, approximate="tanh")', ""),
    (f'a * (Tanh(a * ((a * a * {CUBIC} + 1) * {ROOT_2_PI})) + 1) * 0.5 -> Gelu(a, approximate="tanh")', ""),
)
# its exponentials do not overflow: the parts give what the whole does, NaN for a row of -inf too
BELOW = "(a - ReduceMax[x](a))"
STABLE_SOFTMAXES: tuple[Rule, ...] = tuple(
    rule("composite", text, "single_axis(x)")
    for text in (
        f"Exp({BELOW}) / ReduceSum[x](Exp({BELOW})) -> Softmax(a, axis=only_axis(x))",
        f"Exp({BELOW}) * Reciprocal(ReduceSum[x](Exp({BELOW}))) -> Softmax(a, axis=only_axis(x))",
        f"{BELOW} - Log(ReduceSum[x](Exp({BELOW}))) -> LogSoftmax(a, axis=only_axis(x))",
    )
)
SOFTMAXES = (
    ("Exp(a) / ReduceSum[x](Exp(a)) -> Softmax(a, axis=only_axis(x))", "single_axis(x)"),
    ("Exp(a) * Reciprocal(ReduceSum[x](Exp(a))) -> Softmax(a, axis=only_axis(x))", "single_axis(x)"),
    # the guard that only a row of -inf needs
    ("Where(IsNaN(Softmax[x](a)), k, Softmax[x](a)) -> Softmax[x](a)", "finite(a) and scalar(k)"),
    ("Softmax[y](a - ReduceMax[x](a)) -> Softmax[y](a)", "along(x, y)"),
    ("Log(Softmax[x](a)) -> LogSoftmax[x](a)", ""),
    ("Exp(LogSoftmax[x](a)) -> Softmax[x](a)", ""),
    ("a - ReduceLogSumExp[x](a) -> LogSoftmax(a, axis=only_axis(x))", "single_axis(x)"),
    ("LogSoftmax[y](a - ReduceMax[x](a)) -> LogSoftmax[y](a)", "along(x, y)"),
)
CENTRED = "(a - ReduceMean[x](a))"
DEVIATION = f"Sqrt(ReduceMean[x](Square({CENTRED})) + e)"
TRAILING = "trailing(x) and scalar(e) and e >= 0 and normalized({}, a, x)"


def _normalizations() -> Iterator[tuple[str, str]]:
    """LayerNormalization and RMSNormalization, whichever way the division and the scale are grouped."""
    for centred, deviation, kind in (
        (CENTRED, DEVIATION, "LayerNormalization"),
        ("a", "Sqrt(ReduceMean[x](a * a) + e)", "RMSNormalization"),
    ):
        replacement = f"{kind}(a, s"
        told = "axis=first_axis(x), epsilon=value(e))"
        inverse = f"Reciprocal({deviation})"
        for form in (
            f"{centred} / {deviation} * s",
            f"{centred} * {inverse} * s",
            f"{centred} * s / {deviation}",
            f"{centred} * (s / {deviation})",
        ):
            yield f"{form} -> {replacement}, {told}", TRAILING.format("s")
    yield "LayerNormalization[x](a, s) + b -> LayerNormalization[x](a, s, b)", "same(s, b) and bare(x)"


COMPOSITES: tuple[Rule, ...] = (
    *STABLE_SOFTMAXES,
    *(
        rule("composite", text, where)
        for text, where in (*SIGMOIDS, *HARD, *GELUS, *SOFTMAXES, *_normalizations())
    ),
)
