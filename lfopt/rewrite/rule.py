"""A rewrite rule as data, and what a match of one is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lfopt.ir import Attribute
from lfopt.rewrite.terms import Condition, Term, parse, parse_guard

Family = Literal[
    "associative", "distributive", "commutative", "inverse", "identity", "normal form", "composite"
]


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What an operator is told besides its operands."""

    kind: str
    attributes: Mapping[str, Attribute]
    inputs: tuple[str, ...]  # those after its operands: axes, bounds, a shape
    key: object  # equal for settings that mean the same
    rank: int | None  # of the first operand, where axes are counted from its first; None: any rank will do
    axes: frozenset[int] | None = None  # that it folds, from 0; None: not known, or it folds none
    keeps: bool = True  # folded axes stay, of extent 1


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern meets a graph."""

    tensors: Mapping[str, str] = field(default_factory=dict[str, str])  # by variable
    settings: Mapping[str, OperatorSettings] = field(default_factory=dict[str, OperatorSettings])  # by label
    operators: tuple[str, ...] = ()  # by name, the root first
    rest: tuple[str, ...] = ()  # operands of the root's chain that the pattern leaves as they are


@dataclass(frozen=True, slots=True)
class Rule:
    """Wherever the pattern stands and the guard holds, the replacement has the same value."""

    name: str  # what it says: "pattern -> replacement"
    family: Family
    pattern: Term
    replacement: Term
    guard: tuple[Condition, ...] = ()
    exact: bool = False  # it holds for integers and booleans to the last bit, too


def rule(family: Family, text: str, where: str = "", *, exact: bool = False) -> Rule:
    """A rule from its text.

    >>> rule("associative", "Sqrt(a) * Sqrt(a) -> a", "a >= 0").guard
    (Condition(subject='>=', variables=('a',), bound=0.0),)
    """
    pattern, replacement = text.split(" -> ")
    return Rule(text, family, parse(pattern), parse(replacement), parse_guard(where), exact)
