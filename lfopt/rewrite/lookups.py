"""Products of one-hot vectors and a matrix, as some frameworks export lookups, as rows of the matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lfopt.ir import Graph, Operator, Tensor
from lfopt.rewrite.engine import REAL
from lfopt.rewrite.mutable_graph import MutableGraph

INDEX = frozenset({"int32", "int64"})
LARGEST = 2**31 - 1  # index, so that the one behind the last class is one of either type


class _OneHot(NamedTuple):
    """What one-hot vectors are made of."""

    indices: str  # tensor, with a last axis of one
    first: int  # the index whose vector begins with 1


def products_as_lookups(graph: Graph) -> Graph:
    """MatMul(Cast(Equal(index, [k, k + 1, ..])), matrix) as Gather from the matrix between two zero rows.

    Indices outside give zero vectors, so zeros. Matrices with values that are not finite stay: zero times
    those is not zero.
    """
    if not {"Equal", "MatMul"} <= {operator.kind for operator in graph.operators}:
        return graph
    mutable = MutableGraph(graph)
    for operator in graph.operators:
        if (
            operator.kind == "MatMul"
            and mutable.is_plain(operator)
            and (lookup := _one_hot(mutable, operator)) is not None
        ):
            _look_up(mutable, operator, lookup)
    mutable.drop_dead()
    return mutable.finish()


def _one_hot(mutable: MutableGraph, product: Operator) -> _OneHot | None:
    """The one-hot vectors that a product multiplies with a constant matrix; None if it is no such product."""
    cast = mutable.plain_maker(product.inputs[0])
    equal = mutable.plain_maker(cast.inputs[0]) if cast is not None and cast.kind == "Cast" else None
    matrix = mutable.tensors[product.inputs[1]]
    if (
        cast is None
        or equal is None
        or equal.kind != "Equal"
        or product.inputs[1] not in mutable.constants
        or len(matrix.shape) != 2
    ):
        return None
    values = mutable.constants[matrix.name]
    if (
        not matrix.dtype.startswith(REAL)
        or mutable.only_reader(cast.outputs[0]) is not product
        or not (values is None or np.isfinite(values).all())
    ):
        return None
    for index, classes in (equal.inputs, equal.inputs[::-1]):
        known = mutable.constants.get(classes)
        if (
            known is None
            or index in mutable.constants
            or mutable.tensors[index].dtype not in INDEX
            or known.size != matrix.shape[0] > 1
        ):
            continue
        first = int(known.reshape(-1)[0])
        shape = mutable.tensors[index].shape
        counts = known.shape[-1] == known.size and np.array_equal(
            known.reshape(-1), np.arange(first, first + known.size)
        )
        counts = counts and abs(first) + known.size < LARGEST
        if counts and shape[-1:] == (1,) and shape[:-1] == mutable.tensors[equal.outputs[0]].shape[:-1]:
            return _OneHot(index, first)
    return None


def _look_up(mutable: MutableGraph, product: Operator, vectors: _OneHot) -> None:
    """Put the Gather in the place of the product."""
    name = product.name
    place = mutable.position[product.name]
    matrix = mutable.tensors[product.inputs[1]]
    index = mutable.tensors[vectors.indices]

    def add(part: str, kind: str, inputs: tuple[str, ...], shape: tuple[int, ...]) -> str:
        result = Tensor(mutable.fresh(f"{name}.{part}"), shape, index.dtype)
        mutable.tensors[result.name] = result
        mutable.add(
            Operator(
                mutable.fresh(f"{name}.{kind}"), kind, inputs, (result.name,), {}, origin=product.origin
            ),
            place,
        )
        return result.name

    classes, columns = matrix.shape
    shape = index.shape[:-1]
    dims = mutable.add_constant(f"{name}.dims", (len(shape),), "int64", np.array(shape, np.int64))
    flat = add("index", "Reshape", (vectors.indices, dims), shape)
    below = vectors.first - 1
    limits = (
        mutable.add_scalar(below, index.dtype),
        mutable.add_scalar(vectors.first + classes, index.dtype),
    )
    row = add("within", "Clip", (flat, *limits), shape)
    if below:
        row = add("row", "Sub", (row, mutable.add_scalar(below, index.dtype)), shape)
    values = mutable.constants[matrix.name]
    padded = None if values is None else np.pad(values, ((1, 1), (0, 0)))
    table = mutable.add_constant(
        f"{name}.table", (classes + 2, columns), matrix.dtype, padded, of=("padded", matrix.name)
    )
    mutable.change(
        Operator(name, "Gather", (table, row), product.outputs, {"axis": 0}, origin=product.origin)
    )
