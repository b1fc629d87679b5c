"""The commutative family: functions that change places with what picks, folds or compares.

Representatives (ReduceProd of Exp, ReduceSum of a shift) are printed in DNNFusion (PLDI'21, arXiv
2108.13342), in its table of rewriting rules; the full set of its 66 rules is not published. Here they are
derived from the tables of `lfopt.rewrite.functions`. That operands of Add and Mul change places is part of
the matching (`lfopt.rewrite.match`), and enables the other families.
"""

from __future__ import annotations

from collections.abc import Iterator

from lfopt.rewrite.functions import COMPARISONS, DECREASING, ELEMENTWISE, INCREASING, MULTIPLICATIVE
from lfopt.rewrite.rule import Rule, rule

PICKS = (("ReduceMax[y]({a})", "ReduceMin[y]({a})"), ("ReduceMin[y]({a})", "ReduceMax[y]({a})"))
POOLS = ("GlobalMaxPool[y]({a})", "MaxPool[y]({a})")


def _monotone() -> Iterator[Rule]:
    """What picks the largest element before an increasing function, which is then of fewer elements."""
    for f in INCREASING:
        for kind in ("Max", "Min"):
            yield rule(
                "commutative",
                f"{kind}({f('a')}, {f('b')}) -> {f(f'{kind}(a, b)')}",
                f.guard("a"),
                exact=f.exact,
            )
        for form in (*(pick for pick, _ in PICKS), *POOLS):
            yield rule(
                "commutative",
                f"{form.format(a=f('a'))} -> {f(form.format(a='a'))}",
                f.guard("a"),
                exact=f.exact,
            )
    for f in DECREASING:
        for kind, other in (("Max", "Min"), ("Min", "Max")):
            yield rule(
                "commutative", f"{kind}({f('a')}, {f('b')}) -> {f(f'{other}(a, b)')}", f.guard("a", "b")
            )
        for form, other in PICKS:
            yield rule("commutative", f"{form.format(a=f('a'))} -> {f(other.format(a='a'))}", f.guard("a"))


def _chosen() -> Iterator[Rule]:
    """Where takes elements as they are: a function may come after it, once instead of twice."""
    for f in ELEMENTWISE:
        yield rule("commutative", f"Where(c, {f('a')}, {f('b')}) -> {f('Where(c, a, b)')}", exact=True)


FOLDS = (
    *((f"ReduceProd[x]({f('a')}) -> {f('ReduceProd[x](a)')}", f.guard("a")) for f in MULTIPLICATIVE),
    ("ReduceProd[x](a * a) -> Square(ReduceProd[x](a))", ""),
    ("ReduceProd[x](Exp(a)) -> Exp(ReduceSum[x](a))", ""),
    ("ReduceSum[x](-a) -> -ReduceSum[x](a)", ""),
    ("ReduceMean[x](-a) -> -ReduceMean[x](a)", ""),
    ("GlobalAveragePool[x](-a) -> -GlobalAveragePool[x](a)", ""),
    ("ReduceMax[x](a + k) -> ReduceMax[x](a) + k", "uniform(k, x)"),
    ("ReduceMin[x](a + k) -> ReduceMin[x](a) + k", "uniform(k, x)"),
    ("ReduceMean[x](a + k) -> ReduceMean[x](a) + k", "uniform(k, x)"),
    ("ReduceLogSumExp[x](a + k) -> ReduceLogSumExp[x](a) + k", "uniform(k, x)"),
    ("ReduceMax[x](a - k) -> ReduceMax[x](a) - k", "uniform(k, x)"),
    ("ReduceMin[x](a - k) -> ReduceMin[x](a) - k", "uniform(k, x)"),
    ("ReduceMean[x](a - k) -> ReduceMean[x](a) - k", "uniform(k, x)"),
    ("ReduceLogSumExp[x](a - k) -> ReduceLogSumExp[x](a) - k", "uniform(k, x)"),
    ("ReduceMax[x](a * k) -> ReduceMax[x](a) * k", "k >= 0 and uniform(k, x)"),
    ("ReduceMin[x](a * k) -> ReduceMin[x](a) * k", "k >= 0 and uniform(k, x)"),
    ("ReduceMax[x](a * k) -> ReduceMin[x](a) * k", "k <= 0 and uniform(k, x)"),
    ("ReduceMin[x](a * k) -> ReduceMax[x](a) * k", "k <= 0 and uniform(k, x)"),
    ("ReduceMax[x](a / k) -> ReduceMax[x](a) / k", "k > 0 and uniform(k, x)"),
    ("ReduceMin[x](a / k) -> ReduceMin[x](a) / k", "k > 0 and uniform(k, x)"),
    ("ReduceL1[x](a * k) -> ReduceL1[x](a) * k", "k >= 0 and uniform(k, x)"),
    ("ReduceL2[x](a * k) -> ReduceL2[x](a) * k", "k >= 0 and uniform(k, x)"),
    ("ReduceSumSquare[x](a * k) -> ReduceSumSquare[x](a) * Square(k)", "uniform(k, x)"),
    ("ReduceL1[x](a / k) -> ReduceL1[x](a) / k", "k > 0 and uniform(k, x)"),
    ("ReduceL2[x](a / k) -> ReduceL2[x](a) / k", "k > 0 and uniform(k, x)"),
    ("Softmax[x](a + k) -> Softmax[x](a)", "uniform(k, x)"),
    ("Softmax[x](a - k) -> Softmax[x](a)", "uniform(k, x)"),
    ("LogSoftmax[x](a + k) -> LogSoftmax[x](a)", "uniform(k, x)"),
    ("LogSoftmax[x](a - k) -> LogSoftmax[x](a)", "uniform(k, x)"),
)
CHOICES = (
    ("Where(Not(c), a, b) -> Where(c, b, a)", ""),
    ("Where(c, a, a) -> a", ""),
    ("Where(c, Where(c, a, b), d) -> Where(c, a, d)", ""),
    ("Where(c, a, Where(c, b, d)) -> Where(c, a, d)", ""),
    ("Where(c, a, Where(d, a, b)) -> Where(Or(c, d), a, b)", ""),
    ("Where(c, Where(d, a, b), b) -> Where(And(c, d), a, b)", ""),
    *((f"Where({kind}(a, b), a, b) -> Max(a, b)", "") for kind in ("Greater", "GreaterOrEqual")),
    *((f"Where({kind}(a, b), b, a) -> Min(a, b)", "") for kind in ("Greater", "GreaterOrEqual")),
    *((f"Where({kind}(a, b), a, b) -> Min(a, b)", "") for kind in ("Less", "LessOrEqual")),
    *((f"Where({kind}(a, b), b, a) -> Max(a, b)", "") for kind in ("Less", "LessOrEqual")),
    *((f"Where({kind}(a, 0), a, 0) -> Relu(a)", "") for kind in ("Greater", "GreaterOrEqual")),
    *((f"Where({kind}(a, 0), 0, a) -> Relu(a)", "") for kind in ("Less", "LessOrEqual")),
    *((f"Where({kind}(a, 0), a, -a) -> Abs(a)", "") for kind in ("Greater", "GreaterOrEqual")),
    *((f"Where({kind}(a, 0), -a, a) -> Abs(a)", "") for kind in ("Less", "LessOrEqual")),
)
LOGIC = (
    ("And(Not(a), Not(b)) -> Not(Or(a, b))", ""),
    ("Or(Not(a), Not(b)) -> Not(And(a, b))", ""),
    ("Xor(Not(a), Not(b)) -> Xor(a, b)", ""),
    ("Equal(Not(a), Not(b)) -> Equal(a, b)", ""),
    ("BitwiseAnd(BitwiseNot(a), BitwiseNot(b)) -> BitwiseNot(BitwiseOr(a, b))", ""),
    ("BitwiseOr(BitwiseNot(a), BitwiseNot(b)) -> BitwiseNot(BitwiseAnd(a, b))", ""),
    ("BitwiseXor(BitwiseNot(a), BitwiseNot(b)) -> BitwiseXor(a, b)", ""),
    ("Not(Greater(a, b)) -> LessOrEqual(a, b)", "integer(a, b)"),
    ("Not(GreaterOrEqual(a, b)) -> Less(a, b)", "integer(a, b)"),
    ("Not(Less(a, b)) -> GreaterOrEqual(a, b)", "integer(a, b)"),
    ("Not(LessOrEqual(a, b)) -> Greater(a, b)", "integer(a, b)"),
    *((f"{kind}(-a, -b) -> {mirrored}(a, b)", "") for kind, mirrored in COMPARISONS),
)


def _rules() -> Iterator[Rule]:
    yield from _monotone()
    yield from _chosen()
    for text, where in FOLDS:
        yield rule("commutative", text, where)
    for text, where in (*CHOICES, *LOGIC):
        yield rule("commutative", text, where, exact=True)


COMMUTATIVE: tuple[Rule, ...] = tuple(_rules())
