"""Functions that undo, repeat or ignore one another, signs that cancel, and operands that change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from lfopt.rewrite.functions import (
    EVEN,
    EVEN_FOLDS,
    IDEMPOTENT,
    INVERSES,
    INVOLUTIONS,
    ODD,
    PLAIN_IF_POSITIVE,
    TO_INTEGERS,
)
from lfopt.rewrite.rule import Rule, rule

ROOTS = (
    ("Sqrt(a * a) -> a", "a >= 0"),
    ("Sqrt(a * a) -> Abs(a)", ""),
    ("Pow(Sqrt(a), 2) -> a", "a >= 0"),
    ("ReduceL2[x](Sqrt(a)) -> Sqrt(ReduceSum[x](a))", "a >= 0"),
)
SIGNS = (
    ("-(a - b) -> b - a", ""),
    ("a + -b -> a - b", ""),
    ("a - -b -> a + b", ""),
    ("(-a) + (-b) -> -(a + b)", ""),
    ("(-a) - (-b) -> b - a", ""),
    ("(-a) * (-b) -> a * b", ""),
    ("(-a) / (-b) -> a / b", ""),
    ("(-a) @ (-b) -> a @ b", ""),
    ("-(a * -b) -> a * b", ""),
    ("-(a / -b) -> a / b", ""),
    ("-((-a) / b) -> a / b", ""),
    ("-((-a) @ b) -> a @ b", ""),
    ("-(a @ (-b)) -> a @ b", ""),
    ("(-a) * k -> a * -k", "constant(k)"),
    ("(-a) / k -> a / -k", "constant(k)"),
    ("-(a * k) -> a * -k", "constant(k)"),
    ("-(a / k) -> a / -k", "constant(k)"),
    ("-(k / a) -> (-k) / a", "constant(k)"),
    ("-(a + k) -> (-k) - a", "constant(k)"),
    ("k - (-a) -> a + k", "constant(k)"),
)
NEUTRAL = (  # what is exact for every type
    ("a + 0 -> a", ""),
    ("a - 0 -> a", ""),
    ("a * 1 -> a", ""),
    ("a / 1 -> a", ""),
    ("0 - a -> -a", ""),
    ("a * -1 -> -a", ""),
    ("a / -1 -> -a", ""),
    ("Pow(a, 1) -> a", ""),
    ("And(a, 1) -> a", ""),
    ("Or(a, 0) -> a", ""),
    ("Xor(a, 0) -> a", ""),
    ("Xor(a, 1) -> Not(a)", ""),
    ("BitwiseOr(a, 0) -> a", ""),
    ("BitwiseXor(a, 0) -> a", ""),
    ("BitShift[x](a, 0) -> a", ""),
    ("Clip[x](a) -> a", "within(a, x)"),
)


def _undone() -> Iterator[Rule]:
    for f in INVOLUTIONS:
        yield rule("inverse", f"{f(f('a'))} -> a", f.guard("a"), exact=f.exact)
    for f in IDEMPOTENT:
        yield rule("inverse", f"{f(f('a'))} -> {f('a')}", exact=True)
    for outer in ("Ceil", "Floor", "Round"):
        for inner in TO_INTEGERS:
            if outer != inner:
                yield rule("inverse", f"{outer}({inner}(a)) -> {inner}(a)", exact=True)
    for outer, inner, where in INVERSES:
        yield rule("inverse", f"{outer}({inner}(a)) -> a", where)
    for form in PLAIN_IF_POSITIVE:
        yield rule("inverse", f"{form.format(a='a')} -> a", "a >= 0", exact=True)


def _signed() -> Iterator[Rule]:
    for f in EVEN:
        yield rule("inverse", f"{f('-a')} -> {f('a')}", exact=f.exact)
        if f.kind != "Abs":
            yield rule("inverse", f"{f('Abs(a)')} -> {f('a')}")
    for kind in EVEN_FOLDS:
        for inner in ("-a", "Abs(a)"):
            yield rule("inverse", f"{kind}[x]({inner}) -> {kind}[x](a)")
    for f in ODD:
        yield rule("inverse", f"-{f('-a')} -> {f('a')}", exact=f.exact)
        yield rule("inverse", f"{f('-a')} * {f('-b')} -> {f('a')} * {f('b')}")
        yield rule("inverse", f"{f('-a')} * -b -> {f('a')} * b")
        yield rule("inverse", f"{f('-a')} / -b -> {f('a')} / b")
        yield rule("inverse", f"Abs({f('-a')}) -> Abs({f('a')})", exact=f.exact)


def _rules() -> Iterator[Rule]:
    yield from _undone()
    yield from _signed()
    for text, where in (*ROOTS, *SIGNS):
        yield rule("inverse", text, where)
    for text, where in NEUTRAL:
        yield rule("identity", text, where, exact=True)


INVERSE: tuple[Rule, ...] = tuple(_rules())
