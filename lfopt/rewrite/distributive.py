"""The distributive family: a common factor is taken out, so that it is applied once.

Representatives are printed in DNNFusion (PLDI'21, arXiv 2108.13342), in its table of rewriting rules and its
figure of GEMM; the full set of its 38 rules is not published.
"""

from __future__ import annotations

from collections.abc import Iterator

from lfopt.rewrite.functions import ADDITIVE, BINARY, LATTICES
from lfopt.rewrite.rule import Rule, rule


def _over_sums() -> Iterator[tuple[str, str]]:
    """A factor of both sides of a sum or difference."""
    for sign in "+-":
        total = f"(a {sign} b)"
        yield f"a * c {sign} b * c -> {total} * c", ""
        yield f"a / c {sign} b / c -> {total} / c", "c != 0"
        yield f"a @ c {sign} b @ c -> {total} @ c", "same(a, b)"
        yield f"c @ a {sign} c @ b -> c @ {total}", "same(a, b)"
        yield f"a {sign} a * b -> a * (1 {sign} b)", ""
        yield f"a * a {sign} a * b -> a * {total}", ""
        for kind in ADDITIVE:
            where = "same(a, b)"
            yield f"{kind}[x](a) {sign} {kind}[x](b) -> {kind}[x](a {sign} b)", where
        yield f"Conv[x](a, c) {sign} Conv[x](b, c) -> Conv[x](a {sign} b, c)", "same(a, b) and bare(x)"
        yield f"Conv[x](c, a) {sign} Conv[x](c, b) -> Conv[x](c, a {sign} b)", "same(a, b) and bare(x)"
        yield (
            f"ConvTranspose[x](a, c) {sign} ConvTranspose[x](b, c) -> ConvTranspose[x](a {sign} b, c)",
            "same(a, b) and bare(x)",
        )
        yield (
            f"ConvTranspose[x](c, a) {sign} ConvTranspose[x](c, b) -> ConvTranspose[x](c, a {sign} b)",
            "same(a, b) and bare(x)",
        )
    yield "a * b - a -> a * (b - 1)", ""
    yield "a * b - a * a -> a * (b - a)", ""


def _over_extremes() -> Iterator[tuple[str, str]]:
    """A common term of two that are compared."""
    for kind, other in (("Max", "Min"), ("Min", "Max")):
        yield f"{kind}(a + c, b + c) -> {kind}(a, b) + c", ""
        yield f"{kind}(a - c, b - c) -> {kind}(a, b) - c", ""
        yield f"{kind}(c - a, c - b) -> c - {other}(a, b)", ""
        yield f"{kind}(a * c, b * c) -> {kind}(a, b) * c", "c >= 0"
        yield f"{kind}(a * c, b * c) -> {other}(a, b) * c", "c <= 0"
        yield f"{kind}(a / c, b / c) -> {kind}(a, b) / c", "c > 0"
        yield f"{kind}(a / c, b / c) -> {other}(a, b) / c", "c < 0"


def _over_folds() -> Iterator[tuple[str, str]]:
    """A factor that does not change along what is summed."""
    for kind in ("ReduceSum", "ReduceMean", "GlobalAveragePool"):
        yield f"{kind}[x](a * k) -> {kind}[x](a) * k", "uniform(k, x)"
        yield f"{kind}[x](a / k) -> {kind}[x](a) / k", "k != 0 and uniform(k, x)"


def _over_lattices() -> Iterator[str]:
    """Of Max and Min, And and Or, each distributes over the other."""
    for one, two in LATTICES:
        for outer, inner in ((one, two), (two, one)):
            yield f"{outer}({inner}(a, c), {inner}(b, c)) -> {inner}({outer}(a, b), c)"
            yield f"{outer}(a, {inner}(a, b)) -> a"
    yield "Xor(And(a, c), And(b, c)) -> And(Xor(a, b), c)"
    yield "BitwiseXor(BitwiseAnd(a, c), BitwiseAnd(b, c)) -> BitwiseAnd(BitwiseXor(a, b), c)"


def _over_choices() -> Iterator[str]:
    """An operand that both choices share."""
    for form in BINARY:
        one, two, both = (form.format(a=term, b="d") for term in ("a", "b", "Where(c, a, b)"))
        yield f"Where(c, {one}, {two}) -> {both}"
    for form in ("{a} - {b}", "{a} / {b}"):
        one, two, both = (form.format(a="d", b=term) for term in ("a", "b", "Where(c, a, b)"))
        yield f"Where(c, {one}, {two}) -> {both}"


SQUARES = (
    ("a * a + b * b + 2 * a * b -> Square(a + b)", ""),
    ("(a * a + b * b) - 2 * a * b -> Square(a - b)", ""),
    ("(a * a - 2 * a * b) + b * b -> Square(a - b)", ""),
    ("(a + b) * (a - b) + b * b -> a * a", ""),
)
LINEAR_LAYERS = (  # a constant factor goes into weights and bias, past what only moves elements
    ("(a @ b + d) * k -> a @ (b * k) + d * k", "constant(b, d) and scalar(k)"),
    ("(a @ b + d) * k -> a @ (b * k) + d * k", "constant(b, d, k) and matrix(b) and row(k)"),
    ("(a @ b) * k -> a @ (b * k)", "constant(b, k) and matrix(b) and row(k)"),
    ("Transpose[x](a @ b + d) * k -> Transpose[x](a @ (b * k) + d * k)", "constant(b, d) and scalar(k)"),
    ("Reshape[y](a @ b + d) * k -> Reshape[y](a @ (b * k) + d * k)", "constant(b, d) and scalar(k)"),
    (
        "Transpose[x](Reshape[y](a @ b + d)) * k -> Transpose[x](Reshape[y](a @ (b * k) + d * k))",
        "constant(b, d) and scalar(k)",
    ),
    ("Transpose[x](a @ b) * k -> Transpose[x](a @ (b * k))", "constant(b) and scalar(k)"),
    ("Reshape[y](a @ b) * k -> Reshape[y](a @ (b * k))", "constant(b) and scalar(k)"),
    (
        "Transpose[x](Reshape[y](a @ b)) * k -> Transpose[x](Reshape[y](a @ (b * k)))",
        "constant(b) and scalar(k)",
    ),
)


def _rules() -> Iterator[Rule]:
    for text, where in (*_over_sums(), *_over_extremes(), *_over_folds(), *SQUARES, *LINEAR_LAYERS):
        yield rule("distributive", text, where)
    for text in (*_over_lattices(), *_over_choices()):
        yield rule("distributive", text, exact=True)


DISTRIBUTIVE: tuple[Rule, ...] = tuple(_rules())
