"""The associative family: products and sums whose factors meet in another order, or under one function.

Representatives are printed in DNNFusion (PLDI'21, arXiv 2108.13342), in its table of rewriting rules; the
full set of its 45 rules is not published. Here they are derived from the tables of `lfopt.rewrite.functions`.
That operands of a chain may be grouped at will is not a rule but part of the matching
(`lfopt.rewrite.match`).
"""

from __future__ import annotations

from collections.abc import Iterator

from lfopt.rewrite.functions import MULTIPLICATIVE
from lfopt.rewrite.rule import Rule, rule


def _multiplicative() -> Iterator[Rule]:
    """f(a) * f(b) = f(a * b)."""
    for f in MULTIPLICATIVE:
        yield rule("associative", f"{f('a')} * {f('b')} -> {f('a * b')}", f.guard("a", "b"))
        yield rule("associative", f"{f('a')} / {f('b')} -> {f('a / b')}", f.guard("a", "b"))


PRODUCTS = (
    ("Reciprocal(a) * Reciprocal(a * b) -> Square(Reciprocal(a)) * Reciprocal(b)", "a != 0 and b != 0"),
    ("Sqrt(a) * Sqrt(a) -> a", "a >= 0"),
    ("Abs(a) * Abs(a) -> a * a", ""),
    ("Abs(a) * Sign(a) -> a", ""),
    ("a * a * b * b -> Square(a * b)", ""),
    ("(a * a) / (b * b) -> Square(a / b)", ""),
    ("a / Reciprocal(b) -> a * b", "b != 0"),
    ("Reciprocal(a / b) -> b / a", "a != 0 and b != 0"),
    ("Reciprocal(a * Reciprocal(b)) -> b / a", "a != 0 and b != 0"),
    ("(a / b) * b -> a", "b != 0"),
    ("(a * b) / b -> a", "b != 0"),
    ("a / (a / b) -> b", "a != 0 and b != 0"),
    ("a / (a * b) -> Reciprocal(b)", "a != 0 and b != 0"),
    ("(a * c) / (b * c) -> a / b", "b != 0 and c != 0"),
    ("(a / c) / (b / c) -> a / b", "b != 0 and c != 0"),
    ("(a / b) / c -> a / (b * c)", "b != 0 and c != 0"),
    ("a / (b / c) -> (a * c) / b", "b != 0 and c != 0"),
    ("(a / b) * (c / d) -> (a * c) / (b * d)", "b != 0 and d != 0"),
    ("(a / b) / (c / d) -> (a * d) / (b * c)", "b != 0 and c != 0 and d != 0"),
    ("(a / b) * c -> a * (c / b)", "b != 0"),
    ("a / Sqrt(a) -> Sqrt(a)", "a > 0"),
    ("a * Reciprocal(Sqrt(a)) -> Sqrt(a)", "a > 0"),
    ("Sqrt(a) / a -> Reciprocal(Sqrt(a))", "a > 0"),
)
POWERS = (
    ("Pow(a, k) * Pow(a, l) -> Pow(a, k + l)", "a > 0 and scalar(k, l)"),
    ("Pow(a, k) / Pow(a, l) -> Pow(a, k - l)", "a > 0 and scalar(k, l)"),
    ("a * Pow(a, k) -> Pow(a, k + 1)", "a > 0 and scalar(k)"),
    ("Pow(a, k) / a -> Pow(a, k - 1)", "a > 0 and scalar(k)"),
    ("a / Pow(a, k) -> Pow(a, 1 - k)", "a > 0 and scalar(k)"),
    ("Pow(Pow(a, k), l) -> Pow(a, k * l)", "a > 0 and scalar(k, l)"),
    ("Pow(a, k) * Pow(b, k) -> Pow(a * b, k)", "a > 0 and b > 0 and scalar(k)"),
    ("Pow(a, k) / Pow(b, k) -> Pow(a / b, k)", "a > 0 and b > 0 and scalar(k)"),
    ("Pow(Sqrt(a), k) -> Pow(a, 0.5 * k)", "a > 0 and scalar(k)"),
    ("Sqrt(Pow(a, k)) -> Pow(a, 0.5 * k)", "a > 0 and scalar(k)"),
    ("Pow(Reciprocal(a), k) -> Pow(a, -k)", "a > 0 and scalar(k)"),
    ("Reciprocal(Pow(a, k)) -> Pow(a, -k)", "a > 0 and scalar(k)"),
    ("Pow(Exp(a), k) -> Exp(a * k)", "scalar(k)"),
    ("Exp(k * Log(a)) -> Pow(a, k)", "a > 0 and scalar(k)"),
    ("Log(Pow(a, k)) -> Log(a) * k", "a > 0 and scalar(k)"),
)
EXPONENTIALS = (
    ("Exp(a) * Exp(b) -> Exp(a + b)", ""),
    ("Exp(a) / Exp(b) -> Exp(a - b)", ""),
    ("Exp(-Log(a)) -> Reciprocal(a)", "a > 0"),
    ("Exp(a + Log(b)) -> Exp(a) * b", "b > 0"),
    ("Exp(a - Log(b)) -> Exp(a) / b", "b > 0"),
    ("Exp(Log(a) - b) -> a / Exp(b)", "a > 0"),
    ("Log(a) + Log(b) -> Log(a * b)", "a > 0 and b > 0"),
    ("Log(a) - Log(b) -> Log(a / b)", "a > 0 and b > 0"),
    ("Log(a * Exp(b)) -> Log(a) + b", "a > 0"),
    ("Log(a / Exp(b)) -> Log(a) - b", "a > 0"),
    ("Log(Exp(a) / b) -> a - Log(b)", "b > 0"),
    ("Log(a / b) + Log(b) -> Log(a)", "a > 0 and b > 0"),
    ("Log(a * b) - Log(b) -> Log(a)", "a > 0 and b > 0"),
)
SUMS = (
    ("(a - b) + b -> a", "modest(b)"),
    ("(a + b) - b -> a", "modest(b)"),
    ("a - (a - b) -> b", ""),
    ("a - (a + b) -> -b", ""),
    ("(a + c) - (b + c) -> a - b", ""),
    ("(a - c) - (b - c) -> a - b", ""),
    ("(c - a) - (c - b) -> b - a", ""),
    ("(a - b) + (b - c) -> a - c", ""),
    ("(a - k) + l -> a + (l - k)", "constant(k, l) and modest(k, l)"),
    ("(a + k) - l -> a + (k - l)", "constant(k, l) and modest(k, l)"),
    ("(a - k) - l -> a - (k + l)", "constant(k, l) and modest(k, l)"),
    ("k - (a + l) -> (k - l) - a", "constant(k, l) and modest(k, l)"),
    ("k - (l - a) -> a + (k - l)", "constant(k, l) and modest(k, l)"),
    ("(k - a) + l -> (k + l) - a", "constant(k, l) and modest(k, l)"),
)
QUOTIENTS_BY_CONSTANTS = (
    ("(a / k) * l -> a * (l / k)", "constant(k, l) and k != 0"),
    ("(a * k) / l -> a * (k / l)", "constant(k, l) and l != 0"),
    ("(a / k) / l -> a / (k * l)", "constant(k, l) and k != 0 and l != 0"),
    ("k / (a * l) -> (k / l) / a", "constant(k, l) and l != 0"),
)
MATRICES = (
    ("(a @ b) @ c -> a @ (b @ c)", "matrix(a, b, c)"),
    ("a @ (b @ c) -> (a @ b) @ c", "matrix(a, b, c)"),
    ("(a @ b + d) @ c -> a @ (b @ c) + d @ c", "matrix(a, b, c) and constant(b, c, d) and row(d)"),
    ("(a * k) @ b -> (a @ b) * k", "scalar(k)"),
    ("a @ (b * k) -> (a @ b) * k", "scalar(k)"),
    ("(a @ b) * k -> (a * k) @ b", "scalar(k)"),
    ("(a @ b) * k -> a @ (b * k)", "scalar(k)"),
    ("(a * k) @ b -> a @ (b * k)", "scalar(k)"),
    ("a @ (b * k) -> (a * k) @ b", "scalar(k)"),
    ("(a * k) @ (b * l) -> (a * (k * l)) @ b", "scalar(k, l)"),
    ("(a * k) @ (b * l) -> a @ (b * (k * l))", "scalar(k, l)"),
)
LATTICE = ("Max", "Min", "And", "Or", "BitwiseAnd", "BitwiseOr")  # f(a, a) = a


def _rules() -> Iterator[Rule]:
    yield from _multiplicative()
    for text, where in (*PRODUCTS, *POWERS, *EXPONENTIALS, *SUMS, *QUOTIENTS_BY_CONSTANTS, *MATRICES):
        yield rule("associative", text, where)
    for kind in LATTICE:
        yield rule("associative", f"{kind}(a, a) -> a", exact=True)


ASSOCIATIVE: tuple[Rule, ...] = tuple(_rules())
