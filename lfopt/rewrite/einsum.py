"""Einsum of one or two operands as Transpose, Reshape, ReduceSum and MatMul, or Mul where nothing is summed.

A label of two operands and the result counts matrices, one of both operands alone is summed, others are rows
or columns: "bqhd,bkhd->bhqk" is [b, h, q, d] x [b, h, d, k]. What says a label twice in one operand, or
broadcasts one, stays Einsum.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Attribute, Graph, Operator, Tensor
from lfopt.ops.parameters import einsum_terms
from lfopt.rewrite.engine import REAL
from lfopt.rewrite.mutable_graph import MutableGraph

# labels of the axes that "..." stands for; files have Latin letters alone
ELLIPSIS = [chr(code) for code in range(0x3B1, 0x3B1 + 32)]


class Indexed(NamedTuple):
    """A tensor with a label for each axis."""

    name: str
    labels: str


def einsums_as_products(graph: Graph) -> Graph:
    """The graph with Einsums as matrix products, as far as they are."""
    if all(operator.kind != "Einsum" for operator in graph.operators):
        return graph
    mutable = MutableGraph(graph)
    for operator in graph.operators:
        if (
            operator.kind == "Einsum"
            and mutable.is_plain(operator)
            and graph.tensors[operator.outputs[0]].dtype.startswith(REAL)
        ):
            _replace(mutable, operator)
    return mutable.finish()


def _replace(mutable: MutableGraph, einsum: Operator) -> None:
    terms, labels = _labels(mutable, einsum)
    extents = {
        (label, n)
        for name, term in zip(einsum.inputs, terms, strict=True)
        for label, n in zip(term, mutable.tensors[name].shape, strict=True)
    }
    plain = all(len(set(term)) == len(term) for term in (*terms, labels)) and len(dict(extents)) == len(
        extents
    )
    if len(terms) > 2 or not plain:
        return
    work = _Work(mutable, einsum, dict(extents))
    operands: list[Indexed] = []
    for k, (name, term) in enumerate(zip(einsum.inputs, terms, strict=True)):
        kept = {*labels, *"".join(terms[:k] + terms[k + 1 :])}
        operands.append(work.summed(Indexed(name, term), "".join(label for label in term if label in kept)))
    result = operands[0] if len(operands) == 1 else work.product(operands[0], operands[1], labels)
    mutable.replace_and_erase(einsum, work.transposed(result, labels).name)


def _labels(mutable: MutableGraph, einsum: Operator) -> tuple[list[str], str]:
    """Labels of the operands and of the result, with some for "..."."""
    terms, result = einsum_terms(mutable.call(einsum))
    counts = [
        len(mutable.tensors[name].shape) - len(term.replace("...", ""))
        for name, term in zip(einsum.inputs, terms, strict=True)
    ]
    most = max((count for count, term in zip(counts, terms, strict=True) if "..." in term), default=0)
    spelled = [
        term.replace("...", "".join(ELLIPSIS[most - count : most]))
        for count, term in zip(counts, terms, strict=True)
    ]
    return spelled, result.replace("...", "".join(ELLIPSIS[:most]))


@dataclass
class _Work:
    """Operators that come in the place of one Einsum."""

    mutable: MutableGraph
    einsum: Operator
    extents: dict[str, int]  # by label

    def shape(self, labels: str) -> tuple[int, ...]:
        return tuple(self.extents[label] for label in labels)

    def product(self, left: Indexed, right: Indexed, labels: str) -> Indexed:
        """Matrix product, or Mul where no label is summed.

        A constant stands on the right; else the order is that which moves fewer operands.
        """
        orders = [self._order(left, right, labels), self._order(right, left, labels)]
        chosen = min(orders, key=lambda order: (order.left.name in self.mutable.constants, order.moves))
        if not chosen.inner:
            return self._multiplied(chosen)
        stack = chosen.stack
        rows = chosen.rows
        inner = chosen.inner
        columns = chosen.columns
        a = self.transposed(chosen.left, stack + rows + inner)
        b = self.transposed(chosen.right, stack + inner + columns)
        tall = (prod(self.shape(rows)),) if stack or not rows else self.shape(rows)
        deep = prod(self.shape(inner))
        wide = prod(self.shape(columns))
        x = self._reshaped(a.name, (*self.shape(stack), *tall, deep))
        w = self._reshaped(b.name, (*self.shape(stack), deep, wide))
        y = self._add("MatMul", (x, w), (*self.shape(stack), *tall, wide))
        return Indexed(self._reshaped(y, self.shape(stack + rows + columns)), stack + rows + columns)

    def _order(self, left: Indexed, right: Indexed, labels: str) -> _Order:
        """Labels of the product, in the order of the result; summed ones, in that of the left operand."""
        stack = "".join(label for label in labels if label in left.labels and label in right.labels)
        rows, columns = (
            "".join(label for label in labels if label in a and label not in b)
            for a, b in ((left.labels, right.labels), (right.labels, left.labels))
        )
        inner = "".join(label for label in left.labels if label not in labels)
        return _Order(left, right, stack, rows, inner, columns, labels)

    def _multiplied(self, order: _Order) -> Indexed:
        """The product element by element, both operands laid out as the result."""
        laid = [
            self.transposed(one, "".join(label for label in order.labels if label in one.labels))
            for one in (order.left, order.right)
        ]
        wide = [
            tuple(self.extents[label] if label in one.labels else 1 for label in order.labels) for one in laid
        ]
        inputs = tuple(self._reshaped(one.name, shape) for one, shape in zip(laid, wide, strict=True))
        return Indexed(self._add("Mul", inputs, self.shape(order.labels)), order.labels)

    def transposed(self, given: Indexed, labels: str) -> Indexed:
        """The tensor with its axes in another order."""
        if given.labels == labels:
            return given
        perm = tuple(given.labels.index(label) for label in labels)
        if given.name not in self.mutable.constants:
            return Indexed(self._add("Transpose", (given.name,), self.shape(labels), {"perm": perm}), labels)
        value = self.mutable.constants[given.name]
        return Indexed(
            self._constant(self.shape(labels), None if value is None else value.transpose(perm)), labels
        )

    def summed(self, given: Indexed, labels: str) -> Indexed:
        """The tensor summed over all other labels."""
        if given.labels == labels:
            return given
        axes = np.array([axis for axis, label in enumerate(given.labels) if label not in labels])
        if given.name in self.mutable.constants:
            value = self.mutable.constants[given.name]
            total = None if value is None else value.sum(axis=tuple(axes))
            of = ("sum", given.name, *axes.tolist())
            return Indexed(self._constant(self.shape(labels), total, of), labels)
        inputs = given.name, self.mutable.add_constant(f"{self.einsum.name}.axes", axes.shape, "int64", axes)
        return Indexed(self._add("ReduceSum", inputs, self.shape(labels), {"keepdims": 0}), labels)

    def _reshaped(self, name: str, shape: Sequence[int]) -> str:
        if self.mutable.tensors[name].shape == tuple(shape):
            return name
        if name in self.mutable.constants:
            value = self.mutable.constants[name]
            shaped = None if value is None else value.reshape(shape)
            return self._constant(tuple(shape), shaped, ("reshape", name))
        wanted = self.mutable.add_constant(
            f"{self.einsum.name}.shape", (len(shape),), "int64", np.array(shape, np.int64)
        )
        return self._add("Reshape", (name, wanted), tuple(shape))

    def _constant(
        self, shape: tuple[int, ...], value: np.ndarray | None, of: tuple[Hashable, ...] | None = None
    ) -> str:
        """Name of a constant operand in another form; `of`: see `MutableGraph.add_constant`."""
        mutable = self.mutable
        einsum = self.einsum
        dtype = mutable.tensors[einsum.outputs[0]].dtype
        return mutable.add_constant(
            f"{einsum.name}.constant",
            shape,
            dtype,
            None if value is None else np.ascontiguousarray(value),
            of,
        )

    def _add(
        self,
        kind: str,
        inputs: tuple[str, ...],
        shape: tuple[int, ...],
        attributes: dict[str, Attribute] | None = None,
    ) -> str:
        """Name of the result of a new operator."""
        mutable = self.mutable
        einsum = self.einsum
        name = mutable.fresh(f"{einsum.name}.{kind}")
        mutable.tensors[name] = Tensor(name, shape, mutable.tensors[einsum.outputs[0]].dtype)
        mutable.add(
            Operator(name, kind, inputs, (name,), attributes or {}, origin=einsum.origin),
            mutable.position[einsum.name],
        )
        return name


class _Order(NamedTuple):
    """A product of two operands, the left one with the rows."""

    left: Indexed
    right: Indexed
    stack: str  # labels of which matrix it is
    rows: str
    inner: str  # those that are summed
    columns: str
    labels: str  # of the result, in its order

    @property
    def moves(self) -> int:
        """Operands and results that have to be transposed."""
        laid = (
            (self.left.labels, self.stack + self.rows + self.inner),
            (self.right.labels, self.stack + self.inner + self.columns),
            (self.labels, self.stack + self.rows + self.columns),
        )
        return sum(order != wanted for order, wanted in laid)
