"""Find a pattern in a graph: commutative operators in any order, associative ones in any grouping.

Full matching modulo associativity and commutativity is NP-complete (DNNFusion, PLDI'21, arXiv 2108.13342,
says so where it matches greedily). Here a tree of one such operator is flattened into its operands, and a
pattern takes a few of them: exact for patterns of two or three operands, which is what rules have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, permutations
from math import isclose

from lfopt.ir import Attribute, Operator
from lfopt.ops import Family, spec
from lfopt.ops.parameters import reduced_axes
from lfopt.rewrite.mutable_graph import MutableGraph, signature
from lfopt.rewrite.rule import Match, OperatorSettings
from lfopt.rewrite.terms import Apply, Derived, Number, Term, Variable

# associative and commutative
ASSOCIATIVE = frozenset("Add Mul Max Min And Or Xor BitwiseAnd BitwiseOr BitwiseXor".split())
COMMUTATIVE = ASSOCIATIVE | {"Equal"}
CLOSE = 1e-6  # relative: a number that an exporter has rounded to float32
LARGE = 2.0**16  # above this, adding a constant costs float32 digits that matter
LONGEST = 12  # operators of a chain that are looked at together
TRIALS = 200  # orders of the operands of an inner chain that are tried


def matches(
    mutable: MutableGraph, pattern: Apply, operator: Operator, chain: Chain | None
) -> Iterator[Match]:
    """Ways in which the pattern stands at an operator.

    Of an associative one the chain is given, and matches name the operands left over.
    """
    if chain is None:
        yield from _applied(mutable, pattern, operator, Match())
        return
    wanted = sorted(flattened(pattern), key=lambda term: isinstance(term, Variable))  # the most telling first
    if len(wanted) <= len(chain.leaves):
        yield from _laid(mutable, wanted, chain.leaves, Match(operators=chain.operators))


def _laid(
    mutable: MutableGraph, wanted: Sequence[Term], leaves: tuple[str, ...], partial: Match
) -> Iterator[Match]:
    """Ways to lay terms over different leaves."""
    if not wanted:
        yield Match(partial.tensors, partial.settings, partial.operators, leaves)
        return
    for place, leaf in enumerate(leaves):
        for step in _term(mutable, wanted[0], leaf, partial):
            yield from _laid(mutable, wanted[1:], (*leaves[:place], *leaves[place + 1 :]), step)


class Chain:
    """A tree of one associative operator: the leaves that it combines, and its operators, the root first."""

    def __init__(self, leaves: tuple[str, ...], operators: tuple[str, ...]) -> None:
        self.leaves = leaves
        self.operators = operators

    @classmethod
    def of(cls, mutable: MutableGraph, root: Operator) -> Chain:
        """The largest chain below an operator; a result between that others read is a leaf."""
        leaves: list[str] = []
        operators = [root.name]
        loose = _is_loose(mutable, root)

        def walk(tensor: str) -> None:
            maker = mutable.plain_maker(tensor)
            inner = (
                maker is not None
                and maker.kind == root.kind
                and len(maker.inputs) == 2
                and loose
                and _is_loose(mutable, maker)
            )
            if maker is None or not inner or mutable.only_reader(tensor) is None or len(operators) >= LONGEST:
                leaves.append(tensor)
                return
            operators.append(maker.name)
            for name in maker.inputs:
                walk(name)

        for tensor in root.inputs:
            walk(tensor)
        return cls(tuple(leaves), tuple(operators))


def is_inner(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether it is part of the chain of the operator that reads it."""
    if operator.kind in ASSOCIATIVE and len(operator.inputs) == 2:
        reader = mutable.only_reader(operator.outputs[0])
    else:
        reader = None
    if reader is None or reader.kind != operator.kind or not mutable.is_plain(reader):
        return False
    return _is_loose(mutable, reader) and _is_loose(mutable, operator)


def _is_loose(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether it may be reassociated: it is no sum with a large constant, which may be there to round.

    As (x + 1.5 * 2**23) - 1.5 * 2**23 does; or to mask.
    """
    return operator.kind != "Add" or all(abs(mutable.scalar(name) or 0) <= LARGE for name in operator.inputs)


@cache
def flattened(term: Apply) -> tuple[Term, ...]:
    """Operands of a tree of one associative operator."""
    return tuple(
        leaf
        for operand in term.operands
        for leaf in (
            flattened(operand) if isinstance(operand, Apply) and operand.kind == term.kind else (operand,)
        )
    )


def settings_of(mutable: MutableGraph, operator: Operator, operands: int) -> OperatorSettings:
    """What an operator is told besides its first operands."""
    call = mutable.call(operator)
    given = operator.inputs[operands:]
    if spec(operator.kind).family is Family.REDUCTION:
        axes = reduced_axes(call)
        keeps = bool(call.attribute("keepdims", 1))
        key = (axes, keeps) if axes is not None else object()
        return OperatorSettings(
            operator.kind, operator.attributes, given, key, len(call.shape(0)), axes, keeps
        )
    values = tuple(
        name if (value := mutable.constants.get(name)) is None else (value.shape, value.tobytes())
        for name in given
    )
    key = (signature(operator.kind, (), operator.attributes)[1:], values)
    rank = None if spec(operator.kind).elementwise else len(call.shape(0))
    return OperatorSettings(operator.kind, operator.attributes, given, key, rank)


def _term(mutable: MutableGraph, term: Term, tensor: str, partial: Match) -> Iterator[Match]:
    if isinstance(term, Variable):
        bound = partial.tensors.get(term.name)
        if bound is None:
            yield Match(
                {**partial.tensors, term.name: tensor}, partial.settings, partial.operators, partial.rest
            )
        elif bound == tensor:
            yield partial
        return
    if isinstance(term, Number):
        value = mutable.scalar(tensor)
        if value is not None and isclose(value, term.value, rel_tol=CLOSE):
            yield partial
        return
    operator = mutable.plain_maker(tensor)
    if operator is not None and operator.kind == term.kind:
        yield from _applied(mutable, term, operator, partial)


def _applied(mutable: MutableGraph, term: Apply, operator: Operator, partial: Match) -> Iterator[Match]:
    partial = Match(partial.tensors, partial.settings, (*partial.operators, operator.name), partial.rest)
    if term.label is not None:
        if len(operator.inputs) < len(term.operands):
            return
        settings = settings_of(mutable, operator, len(term.operands))
        known = partial.settings.get(term.label)
        if known is not None and known.key != settings.key:
            return
        partial = replace(partial, settings={**partial.settings, term.label: settings})
    elif len(operator.inputs) != len(term.operands) or not _has(operator, term):
        return
    inputs = operator.inputs[: len(term.operands)]
    if term.kind in ASSOCIATIVE and len(wanted := flattened(term)) > 2:
        chain = Chain.of(mutable, operator)
        if len(chain.leaves) == len(wanted):
            partial = replace(partial, operators=(*partial.operators, *chain.operators[1:]))
            for order in islice(permutations(chain.leaves), TRIALS):
                yield from _all(mutable, wanted, order, partial)
        return
    yield from _all(mutable, term.operands, inputs, partial)
    if term.kind in COMMUTATIVE and inputs[0] != inputs[1] and term.operands[0] != term.operands[1]:
        yield from _all(mutable, term.operands, inputs[::-1], partial)


def _all(
    mutable: MutableGraph, terms: Sequence[Term], tensors: Sequence[str], partial: Match
) -> Iterator[Match]:
    if not terms:
        yield partial
        return
    for step in _term(mutable, terms[0], tensors[0], partial):
        yield from _all(mutable, terms[1:], tensors[1:], step)


def _has(operator: Operator, term: Apply) -> bool:
    """Whether its attributes are those that the term states, and no others."""
    stated = dict(term.attributes)
    return operator.attributes.keys() == stated.keys() and all(
        _agrees(operator.attributes[name], value) for name, value in stated.items()
    )


def _agrees(value: Attribute, wanted: float | str | Derived) -> bool:
    if isinstance(wanted, str | Derived) or not isinstance(value, int | float):
        return value == wanted
    return isclose(value, wanted, rel_tol=CLOSE)
