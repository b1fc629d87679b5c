"""What is known of a tensor's values without running the network: bounds, and whether zero can be among them.

Read off the operators that make it, by interval arithmetic. A value that the arithmetic would round to zero
(Exp of a large negative number) counts as what it is in the reals. Of constants only those of one element are
looked at: a graph then rewrites the same with and without its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isnan

from lfopt.ir import Operator
from lfopt.ops import spec
from lfopt.ops.traits import Range
from lfopt.rewrite.mutable_graph import MutableGraph


@dataclass(frozen=True, slots=True)
class Fact:
    """Bounds of every element, inclusive."""

    low: float = -inf
    high: float = inf
    nonzero: bool = False  # no element is 0

    def satisfies(self, sign: str, bound: float) -> bool:
        """Whether every element is >, >=, !=, <=, < the bound, as far as is known."""
        strict = self.nonzero and bound == 0
        return {
            ">": self.low > bound or (self.low >= bound and strict),
            ">=": self.low >= bound,
            "!=": self.low > bound or self.high < bound or strict,
            "<=": self.high <= bound,
            "<": self.high < bound or (self.high <= bound and strict),
        }[sign]


UNKNOWN = Fact()
Transfer = Callable[[Sequence[Fact], Operator], Fact]


def fact(low: float, high: float, nonzero: bool = False) -> Fact:
    """Bounds, of which products of zero and infinity say nothing; nonzero where they leave zero out."""
    low = -inf if isnan(low) else low
    high = inf if isnan(high) else high
    return Fact(low, high, nonzero or low > 0 or high < 0)


def _within(bounds: Range) -> Transfer:
    return lambda given, _: fact(
        bounds.low, bounds.high, bounds.nonzero or (bounds.zero_at_zero and given[0].nonzero)
    )


def _monotone(function: Callable[[float], float]) -> Transfer:
    return lambda given, _: fact(function(given[0].low), function(given[0].high))


def _absolute(given: Sequence[Fact], _: Operator) -> Fact:
    x = given[0]
    return fact(max(x.low, -x.high, 0), max(-x.low, x.high), x.nonzero)


def _square_root(given: Sequence[Fact], _: Operator) -> Fact:
    x = given[0]
    return fact(max(x.low, 0) ** 0.5, x.high**0.5 if x.high >= 0 else inf, x.nonzero)


def _reciprocal(given: Sequence[Fact], _: Operator) -> Fact:
    x = given[0]
    if not x.nonzero or x.low < 0 < x.high:
        return Fact(nonzero=True)
    if x.low >= 0:
        return fact(1 / x.high if x.high < inf else 0, 1 / x.low if x.low > 0 else inf, nonzero=True)
    return fact(1 / x.high if x.high < 0 else -inf, 1 / x.low if x.low > -inf else 0, nonzero=True)


def _sum(given: Sequence[Fact], _: Operator) -> Fact:
    low = sum(x.low for x in given)
    high = sum(x.high for x in given)
    signed = all(x.low >= 0 for x in given) or all(x.high <= 0 for x in given)
    return fact(low, high, signed and any(x.nonzero for x in given))


def _difference(given: Sequence[Fact], _: Operator) -> Fact:
    a, b = given
    return _sum((a, Fact(-b.high, -b.low, b.nonzero)), _)


def _product(given: Sequence[Fact], operator: Operator) -> Fact:
    a, b = given
    if operator.inputs[0] == operator.inputs[1]:
        size = _absolute(given, operator)
        return fact(size.low**2, size.high**2, a.nonzero)
    corners = [0.0 if 0 in (x, y) else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return fact(min(corners), max(corners), a.nonzero and b.nonzero)


def _quotient(given: Sequence[Fact], operator: Operator) -> Fact:
    a, b = given
    inverse = _reciprocal((b,), operator) if b.nonzero else UNKNOWN
    corners = [0.0 if 0 in (x, y) else x * y for x in (a.low, a.high) for y in (inverse.low, inverse.high)]
    if b.nonzero:
        return fact(min(corners), max(corners), a.nonzero)
    return UNKNOWN


def _power(given: Sequence[Fact], _: Operator) -> Fact:
    a, b = given
    exponent = b.low if b.low == b.high else None
    if exponent is not None and exponent % 2 == 0:
        return fact(0, inf, a.nonzero)
    if a.low >= 0:
        return fact(0, inf, a.nonzero)
    return UNKNOWN


def _largest(given: Sequence[Fact], _: Operator) -> Fact:
    return fact(max(x.low for x in given), max(x.high for x in given), all(x.nonzero for x in given))


def _smallest(given: Sequence[Fact], _: Operator) -> Fact:
    return fact(min(x.low for x in given), min(x.high for x in given), all(x.nonzero for x in given))


def _either(given: Sequence[Fact], _: Operator) -> Fact:
    return fact(min(x.low for x in given), max(x.high for x in given), all(x.nonzero for x in given))


def _chosen(given: Sequence[Fact], operator: Operator) -> Fact:
    return _either(given[1:], operator)


def _first(given: Sequence[Fact], _: Operator) -> Fact:
    return given[0]


def _of_one_sign(given: Sequence[Fact], _: Operator) -> Fact:
    """Sums and products of several elements: a sign that all of them share."""
    x = given[0]
    if x.low >= 0:
        return fact(0, inf, x.nonzero)
    if x.high <= 0:
        return fact(-inf, 0, x.nonzero)
    return UNKNOWN


def _product_of_many(given: Sequence[Fact], _: Operator) -> Fact:
    return fact(0 if given[0].low >= 0 else -inf, inf, given[0].nonzero)


def _mean(given: Sequence[Fact], _: Operator) -> Fact:
    x = given[0]
    return fact(x.low, x.high, x.nonzero and (x.low >= 0 or x.high <= 0))


def _clipped(given: Sequence[Fact], operator: Operator) -> Fact:
    names = (*operator.inputs, "", "")[:3]
    x = given[0]
    low = given[1] if names[1] else Fact(-inf, -inf)
    high = given[2] if names[2] else Fact(inf, inf)
    return fact(min(max(x.low, low.low), high.low), min(max(x.high, low.high), high.high))


def _padded(given: Sequence[Fact], operator: Operator) -> Fact:
    if operator.attributes.get("mode", "constant") != "constant":
        return given[0]
    return _either((given[0], given[2] if len(given) > 2 else Fact(0, 0)), operator)


RULES: dict[str, Transfer] = {  # interval arithmetic; of the others the row says what is known
    "Abs": _absolute,
    "Elu": lambda given, op: fact(-abs(float(op.attributes.get("alpha", 1.0))), inf),  # type: ignore[arg-type]
    "Neg": lambda given, _: Fact(-given[0].high, -given[0].low, given[0].nonzero),
    "Reciprocal": _reciprocal,
    "Relu": _monotone(lambda x: max(x, 0)),
    "Sqrt": _square_root,
    "Swish": lambda given, op: fact(-0.28 if op.attributes.get("alpha", 1.0) == 1 else -inf, inf),
    "Add": _sum,
    "Sub": _difference,
    "Mul": _product,
    "Div": _quotient,
    "Pow": _power,
    "Max": _largest,
    "Min": _smallest,
    "Where": _chosen,
    "Clip": _clipped,
    "ReduceSum": _of_one_sign,
    "ReduceProd": _product_of_many,
    "ReduceMean": _mean,
    "GlobalAveragePool": _mean,
    "Concat": _either,
    "Pad": _padded,
    "Trilu": lambda given, op: _either((given[0], Fact(0, 0)), op),
}


def _rule(kind: str) -> Transfer | None:
    """What an operator makes of what is known of its operands; None if nothing is known of its results."""
    row = spec(kind)
    if kind in RULES or not (row.picks or row.range):
        return RULES.get(kind)
    if row.range is None:
        return _first
    return _within(row.range)


class Facts:
    """Facts by tensor. A name keeps its value through every rewrite, so what was found once stays true."""

    def __init__(self, mutable: MutableGraph) -> None:
        self.mutable = mutable
        self._known: dict[str, Fact] = {}

    def of(self, tensor: str) -> Fact:
        """What is known of a tensor."""
        todo = [tensor]
        while todo:
            name = todo[-1]
            if not name or name in self._known:
                todo.pop()
                continue
            waiting = [operand for operand in self._operands(name) if operand and operand not in self._known]
            if waiting:
                todo.extend(waiting)
            else:
                self._known[name] = self._found(name)
                todo.pop()
        return self._known.get(tensor, UNKNOWN)

    def _operands(self, tensor: str) -> tuple[str, ...]:
        """What has to be known first."""
        operator = self._explained(tensor)
        if operator is not None:
            return operator.inputs
        return ()

    def _explained(self, tensor: str) -> Operator | None:
        """The operator that makes a tensor of real numbers, if there is a row for it."""
        known = self.mutable.tensors[tensor]
        operator = self.mutable.maker(tensor)
        real = known.dtype.startswith(("float", "bfloat")) and known.quantization is None
        if operator is not None and real and not operator.domain and _rule(operator.kind):
            return operator
        return None

    def _found(self, tensor: str) -> Fact:
        if (value := self.mutable.scalar(tensor)) is not None:
            return fact(value, value)
        operator = self._explained(tensor)
        rule = _rule(operator.kind) if operator is not None else None
        if operator is not None and rule is not None:
            return rule([self._known.get(name, UNKNOWN) for name in operator.inputs], operator)
        if self.mutable.tensors[tensor].dtype.startswith("uint"):
            return Fact(low=0)
        return UNKNOWN
