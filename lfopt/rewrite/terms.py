"""The language that rules are written in: expressions over tensors, spelled as Python spells them.

    a, b             a tensor; the same letter is the same tensor everywhere in a rule
    0.5              a constant of one element with that value
    Relu(a)          an operator with its operands; a + b, a - b, a * b, a / b, a @ b, -a and Square(a) are
                     short for operators
    ReduceSum[x](a)  x stands for everything else that the operator is told: its attributes, and its inputs
                     after the operands shown
    Softmax(a, axis=1)  an attribute with its value; in a replacement also a function of the match:
                        axis=only_axis(x)

A guard is what must be known of a match before the rule holds: `b >= 0 and a != 0 and scalar(k)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

INFIX: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.MatMult: "MatMul",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.NotEq: "!=",
    ast.LtE: "<=",
    ast.Lt: "<",
}
MIRRORED = {">": "<", ">=": "<=", "!=": "!=", "<=": ">=", "<": ">"}


@dataclass(frozen=True, slots=True)
class Variable:
    """Any tensor."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A constant of one element."""

    value: float


@dataclass(frozen=True, slots=True)
class Derived:
    """An attribute that is worked out from a match: `function(variable)`."""

    function: str
    variable: str  # of a tensor or of settings


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator and its operands."""

    kind: str
    operands: tuple[Term, ...]
    label: str | None = None  # name of the settings
    attributes: tuple[tuple[str, float | str | Derived], ...] = ()


Term = Variable | Number | Apply


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be known: a bound of one variable, or a predicate over several.

    `subject` of a bound is >, >=, !=, <= or <.
    """

    subject: str  # a comparison, or the name of a predicate
    variables: tuple[str, ...]
    bound: float = 0.0  # of a comparison

    def __str__(self) -> str:
        if self.subject in MIRRORED:
            return f"{self.variables[0]} {self.subject} {self.bound:g}"
        return f"{self.subject}({', '.join(self.variables)})"


def parse(text: str) -> Term:
    """The term that a text spells.

    >>> parse("Sqrt(b)")
    Apply(kind='Sqrt', operands=(Variable(name='b'),), label=None, attributes=())
    """
    return _term(ast.parse(text, mode="eval").body)


def parse_guard(text: str) -> tuple[Condition, ...]:
    """The conditions of a guard, all of which must hold.

    >>> [str(condition) for condition in parse_guard("-1 <= a <= 1 and same(a, b)")]
    ['a >= -1', 'a <= 1', 'same(a, b)']
    """
    if not text:
        return ()
    node = ast.parse(text, mode="eval").body
    parts = node.values if isinstance(node, ast.BoolOp) else [node]
    return tuple(condition for part in parts for condition in _conditions(part))


def subterms(term: Term) -> Iterator[Term]:
    """The term and everything in it, from the outside in."""
    yield term
    if isinstance(term, Apply):
        for operand in term.operands:
            yield from subterms(operand)


def variables(term: Term) -> tuple[str, ...]:
    """Names of its tensors, in order of appearance."""
    return tuple(dict.fromkeys(t.name for t in subterms(term) if isinstance(t, Variable)))


def labels(term: Term) -> dict[str, str]:
    """Kind of the operator that each label is told of, by label; of several, the last that is read."""
    return {t.label: t.kind for t in subterms(term) if isinstance(t, Apply) and t.label is not None}


def depth(term: Term) -> int:
    """Operators on the longest way from the root to a leaf.

    >>> depth(parse("Sqrt(a) * b")), depth(parse("a"))
    (2, 0)
    """
    if isinstance(term, Apply):
        return 1 + max((depth(operand) for operand in term.operands), default=0)
    return 0


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Name(id=name):
            return Variable(name)
        case ast.Constant(value=int() | float() as value):
            return Number(float(value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return Number(-float(value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Apply("Neg", (_term(operand),))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in INFIX:
            return Apply(INFIX[type(op)], (_term(left), _term(right)))
        case ast.Call(func=ast.Name(id="Square"), args=[operand]):
            return Apply("Mul", (_term(operand), _term(operand)))
        case ast.Call(func=ast.Name(id=kind), args=operands, keywords=keywords):
            return Apply(
                kind,
                tuple(map(_term, operands)),
                None,
                tuple((k.arg or "", _attribute(k.value)) for k in keywords),
            )
        case ast.Call(func=ast.Subscript(value=ast.Name(id=kind), slice=ast.Name(id=label)), args=operands):
            return Apply(kind, tuple(map(_term, operands)), label)
    raise SyntaxError(f"no term of a rule: {ast.unparse(node)}")


def _attribute(node: ast.expr) -> float | str | Derived:
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=variable)]):
            return Derived(function, variable)
    raise SyntaxError(f"no attribute of a rule: {ast.unparse(node)}")


def _conditions(node: ast.expr) -> Iterator[Condition]:
    match node:
        case ast.Call(func=ast.Name(id=predicate), args=names):
            yield Condition(predicate, tuple(ast.unparse(name) for name in names))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for one, op, other in zip((left, *comparators), ops, comparators, strict=False):
                sign = COMPARISONS[type(op)]
                if isinstance(one, ast.Name):
                    yield Condition(sign, (one.id,), float(ast.literal_eval(other)))
                elif isinstance(other, ast.Name):
                    yield Condition(MIRRORED[sign], (other.id,), float(ast.literal_eval(one)))
        case _:
            raise SyntaxError(f"no condition of a rule: {ast.unparse(node)}")
