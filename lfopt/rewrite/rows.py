"""Matrix products by a constant, and what is rowwise beside them, on maps [b, s, d], cut along s.

Exporters write a linear layer as Gemm on a view [b s, d], or as MatMul on a map [b, h, w, d] whose channels
come last. Both do the same for every vector of d elements. Elementwise operators, normalisations and
reductions along d beside them take the same form, so that nothing but the ends of such a part of the network
needs a view.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from lfopt.ir import Graph, Operator, Tensor
from lfopt.ops import spec
from lfopt.ops.call import Shape
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.traits import Tiling
from lfopt.rewrite.mutable_graph import MutableGraph
from lfopt.rewrite.views import add_view, behind, new_tensor, skip_views, view_of

# operators with an attribute axis, by default the last
ALONG_LAST = frozenset({"LayerNormalization", "Softmax", "LogSoftmax"})
BY_CHANNEL = frozenset({"BatchNormalization", "PRelu"})  # elementwise, with an axis of their own

Rows = tuple[int, int]  # (b, s)


def on_rows(graph: Graph) -> Graph:
    """Linear layers on maps of other shapes, and what is rowwise beside them, as operators on [b, s, d].

    Views stand where such a part begins and ends.
    """
    mutable = MutableGraph(graph)
    rows = dict[str, Rows]()
    for operator in graph.operators:
        if operator.name not in rows and _is_layer(mutable, operator):
            part = _around(mutable, operator)
            rows |= dict.fromkeys(part, _rows(mutable, part, mutable.tensors[operator.outputs[0]].shape))
    for operator in graph.operators:
        if operator.name in rows:
            _convert(mutable, operator, rows[operator.name])
    if not rows:
        return graph
    for operator in graph.operators:
        skip_views(mutable, operator)
    mutable.drop_dead()
    return mutable.finish()


# -- what takes part -----------------------------------------------------------------------------------------


def _is_cut_otherwise(shape: Shape) -> bool:
    """Whether a map of vectors along its last axis is not [b, s, d], and there are several vectors."""
    return len(shape) not in (0, 1, 3) and prod(shape[:-1]) > 1


def _is_layer(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether it multiplies every vector of a map by a constant matrix, and adds nothing but a constant."""
    if (
        operator.kind not in ("Gemm", "MatMul")
        or not mutable.is_plain(operator)
        or not _is_cut_otherwise(mutable.tensors[operator.outputs[0]].shape)
    ):
        return False
    source, matrix, *bias = operator.inputs
    constant = (
        all(name in mutable.constants for name in (matrix, *bias) if name) and source not in mutable.constants
    )
    scales = [
        operator.attributes.get(name, default)
        for name, default in (("transA", 0), ("alpha", 1.0), ("beta", 1.0))
    ]
    return constant and len(mutable.tensors[matrix].shape) == 2 and scales == [0, 1, 1]


def _is_rowwise(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether each vector of its result depends on the same vectors of its maps, and on shared constants."""
    shape = mutable.tensors[operator.outputs[0]].shape
    if not mutable.is_plain(operator) or not _is_cut_otherwise(shape) or operator.kind in BY_CHANNEL:
        return False
    maps = [name for name in operator.inputs if name and name not in mutable.constants]
    if not maps or any(mutable.tensors[name].shape[:-1] != shape[:-1] for name in maps):
        return False
    if operator.kind in ALONG_LAST:
        return operator.attributes.get("axis", -1) in (-1, len(shape) - 1)
    if spec(operator.kind).elementwise:
        return all(
            prod(mutable.tensors[name].shape[:-1]) == 1
            for name in operator.inputs
            if name in mutable.constants
        )
    axes = reduced_axes(mutable.call(operator)) if operator.kind.startswith("Reduce") else None
    return axes is not None and {*axes} == {len(shape) - 1} and operator.attributes.get("keepdims", 1) == 1


def _around(mutable: MutableGraph, layer: Operator) -> list[str]:
    """A layer and what is rowwise around it; [] where that meets products of two maps.

    Their rows are those of single heads.
    """
    members = {layer.name: None}
    todo = [layer]
    while todo:
        operator = todo.pop()
        near = [maker for name in operator.inputs if name and (maker := mutable.maker(name)) is not None]
        near += [mutable.operators[name] for name in mutable.readers.get(operator.outputs[0], ())]
        for other in near:
            layers = _is_layer(mutable, other)
            if (
                not layers
                and spec(other.kind).tiling is Tiling.CONTRACT
                and len(mutable.tensors[layer.outputs[0]].shape) > 3
            ):
                return []
            if other.name not in members and (layers or _is_rowwise(mutable, other)):
                members[other.name] = None
                todo.append(other)
    return [*members]


def _rows(mutable: MutableGraph, part: list[str], shape: Shape) -> Rows:
    """(samples, rows of each) that the vectors are.

    As in a map [b, s, d] that the part reads a view of, if there is one.
    """
    samples, *others = shape[:-1]
    if others:
        return samples, prod(others)
    for source in (source for name in part for source in behind(mutable, mutable.operators[name].inputs[0])):
        match mutable.tensors[source].shape:
            case (b, s, _) if b * s == samples:
                return b, s
            case _:
                pass
    return 1, samples


# -- what becomes of it --------------------------------------------------------------------------------------


def _convert(mutable: MutableGraph, operator: Operator, rows: Rows) -> None:
    """Let an operator work on [b, s, d], with views around it."""
    (result_name,), position = operator.outputs, mutable.position[operator.name]
    tensor = mutable.tensors[result_name]
    result = new_tensor(mutable, f"{result_name}.rows", (*rows, tensor.shape[-1]), tensor.dtype)
    inputs = [_input(mutable, index, operator, rows) for index in range(len(operator.inputs))]
    if operator.kind == "Gemm":
        matrix, *bias = (name for name in inputs[1:] if name)
        matrix = _transposed(mutable, matrix) if operator.attributes.get("transB", 0) else matrix
        if bias:
            product = new_tensor(mutable, f"{result_name}.product", (*rows, tensor.shape[-1]), tensor.dtype)
        else:
            product = result
        mutable.change(
            replace(operator, kind="MatMul", inputs=(inputs[0], matrix), outputs=(product,), attributes={})
        )
        if bias:
            mutable.add(
                Operator(
                    mutable.fresh(f"{operator.name}.bias"),
                    "Add",
                    (product, bias[0]),
                    (result,),
                    origin=operator.origin,
                ),
                position,
            )
    else:
        axes = {name: value for name, value in (("axis", -1), ("axes", (-1,))) if name in operator.attributes}
        mutable.change(
            replace(
                operator, inputs=tuple(inputs), outputs=(result,), attributes={**operator.attributes, **axes}
            )
        )
    add_view(mutable, operator, result, result_name)


def _input(mutable: MutableGraph, index: int, operator: Operator, rows: Rows) -> str:
    """An operand in the form that goes with [b, s, d]."""
    name = operator.inputs[index]
    if not name or (index == 1 and _is_layer(mutable, operator)):
        return name
    tensor = mutable.tensors[name]
    if name not in mutable.constants:
        return view_of(mutable, name, (*rows, tensor.shape[-1]), f"{name}.rows", operator)
    if operator.kind.startswith("Reduce"):
        return mutable.add_constant(f"{operator.name}.axes", (1,), "int64", np.array([-1]))
    if len(tensor.shape) < 2 or prod(tensor.shape[:-1]) > 1:
        return name
    value = mutable.constants[name]
    return mutable.add_constant(
        f"{name}.vector",
        tensor.shape[-1:],
        tensor.dtype,
        None if value is None else value.reshape(-1),
        of=("reshape", name),
    )


def _transposed(mutable: MutableGraph, name: str) -> str:
    """A constant matrix, transposed; the same one each time."""
    tensor = mutable.tensors[name]
    value = mutable.constants[name]
    turn = Operator(f"{name}.turned", "Transpose", (name,), (f"{name}.transposed",), {"perm": (1, 0)})
    if (known := mutable.same(turn.kind, turn.inputs, turn.attributes)) is not None:
        return known
    transposed = Tensor(mutable.fresh(turn.outputs[0]), tensor.shape[::-1], tensor.dtype)
    mutable.add_folded(turn, transposed, None if value is None else np.ascontiguousarray(value.T))
    return transposed.name
