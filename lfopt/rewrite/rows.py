"""Matrix products by a constant, and what stands around them row by row, as operators on maps [b, s, d], which can be cut along s.

Exporters write a linear layer as Gemm on a view [b s, d], or as MatMul on a map [b, h, w, d] whose channels come last. Both do the same for every
vector of d elements. Elementwise operators, normalisations and reductions along d beside them take the same form, so that nothing but the ends of
such a part of the network needs a view.
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
from lfopt.rewrite.board import Board
from lfopt.rewrite.views import add_view, behind, new_tensor, skip_views, view_of

ALONG_LAST = frozenset({"LayerNormalization", "Softmax", "LogSoftmax"})  # that have their axis as an attribute, the last one if nothing is said
BY_CHANNEL = frozenset({"BatchNormalization", "PRelu"})  # elementwise, with an axis of their own

Rows = tuple[int, int]  # (b, s)


def on_rows(graph: Graph) -> Graph:
    """Linear layers on maps of other shapes than [b, s, d], and what stands beside them, as operators on [b, s, d] between views."""
    board, rows = Board(graph), dict[str, Rows]()
    for operator in graph.operators:
        if operator.name not in rows and _is_layer(board, operator):
            part = _around(board, operator)
            rows |= dict.fromkeys(part, _rows(board, part, board.tensors[operator.outputs[0]].shape))
    for operator in graph.operators:
        if operator.name in rows:
            _convert(board, operator, rows[operator.name])
    if not rows:
        return graph
    for operator in graph.operators:
        skip_views(board, operator)
    board.drop_dead()
    return board.finish()


# -- what takes part -------------------------------------------------------------------------------------------------------------------------


def _is_cut_otherwise(shape: Shape) -> bool:
    """Whether a map of vectors along its last axis is not [b, s, d], and there are several vectors."""
    return len(shape) not in (0, 1, 3) and prod(shape[:-1]) > 1


def _is_layer(board: Board, operator: Operator) -> bool:
    """Whether it multiplies every vector of a map by a constant matrix, and adds nothing but a constant."""
    if operator.kind not in ("Gemm", "MatMul") or not board.is_plain(operator) or not _is_cut_otherwise(board.tensors[operator.outputs[0]].shape):
        return False
    source, matrix, *bias = operator.inputs
    constant = all(name in board.constants for name in (matrix, *bias) if name) and source not in board.constants
    scales = [operator.attributes.get(name, default) for name, default in (("transA", 0), ("alpha", 1.0), ("beta", 1.0))]
    return constant and len(board.tensors[matrix].shape) == 2 and scales == [0, 1, 1]


def _is_rowwise(board: Board, operator: Operator) -> bool:
    """Whether each vector of its result depends on the same vectors of maps of that shape, and on constants that are the same for all."""
    shape = board.tensors[operator.outputs[0]].shape
    if not board.is_plain(operator) or not _is_cut_otherwise(shape) or operator.kind in BY_CHANNEL:
        return False
    maps = [name for name in operator.inputs if name and name not in board.constants]
    if not maps or any(board.tensors[name].shape[:-1] != shape[:-1] for name in maps):
        return False
    if operator.kind in ALONG_LAST:
        return operator.attributes.get("axis", -1) in (-1, len(shape) - 1)
    if spec(operator.kind).elementwise:
        return all(prod(board.tensors[name].shape[:-1]) == 1 for name in operator.inputs if name in board.constants)
    axes = reduced_axes(board.call(operator)) if operator.kind.startswith("Reduce") else None
    return axes is not None and {*axes} == {len(shape) - 1} and operator.attributes.get("keepdims", 1) == 1


def _around(board: Board, layer: Operator) -> list[str]:
    """A layer and what stands around it row by row; nothing where that meets products of two maps: their rows are those of single heads."""
    members, todo = {layer.name: None}, [layer]
    while todo:
        operator = todo.pop()
        near = [maker for name in operator.inputs if name and (maker := board.maker(name)) is not None]
        near += [board.operators[name] for name in board.readers.get(operator.outputs[0], ())]
        for other in near:
            layers = _is_layer(board, other)
            if not layers and spec(other.kind).tiling is Tiling.CONTRACT and len(board.tensors[layer.outputs[0]].shape) > 3:
                return []
            if other.name not in members and (layers or _is_rowwise(board, other)):
                members[other.name] = None
                todo.append(other)
    return [*members]


def _rows(board: Board, part: list[str], shape: Shape) -> Rows:
    """How many rows of how many samples the vectors are: as in a map [b, s, d] that the part reads a view of, if there is one."""
    samples, *others = shape[:-1]
    if others:
        return samples, prod(others)
    for source in (source for name in part for source in behind(board, board.operators[name].inputs[0])):
        match board.tensors[source].shape:
            case (b, s, _) if b * s == samples:
                return b, s
            case _:
                pass
    return 1, samples


# -- what becomes of it ----------------------------------------------------------------------------------------------------------------------


def _convert(board: Board, operator: Operator, rows: Rows) -> None:
    """Let an operator work on [b, s, d], with views around it."""
    (result_name,), position = operator.outputs, board.position[operator.name]
    tensor = board.tensors[result_name]
    result = new_tensor(board, f"{result_name}.rows", (*rows, tensor.shape[-1]), tensor.dtype)
    inputs = [_input(board, index, operator, rows) for index in range(len(operator.inputs))]
    if operator.kind == "Gemm":
        matrix, *bias = (name for name in inputs[1:] if name)
        matrix = _transposed(board, matrix) if operator.attributes.get("transB", 0) else matrix
        product = new_tensor(board, f"{result_name}.product", (*rows, tensor.shape[-1]), tensor.dtype) if bias else result
        board.change(replace(operator, kind="MatMul", inputs=(inputs[0], matrix), outputs=(product,), attributes={}))
        if bias:
            board.add(Operator(board.fresh(f"{operator.name}.bias"), "Add", (product, bias[0]), (result,), origin=operator.origin), position)
    else:
        axes = {name: value for name, value in (("axis", -1), ("axes", (-1,))) if name in operator.attributes}
        board.change(replace(operator, inputs=tuple(inputs), outputs=(result,), attributes={**operator.attributes, **axes}))
    add_view(board, operator, result, result_name)


def _input(board: Board, index: int, operator: Operator, rows: Rows) -> str:
    """An operand in the form that goes with [b, s, d]."""
    name = operator.inputs[index]
    if not name or (index == 1 and _is_layer(board, operator)):
        return name
    tensor = board.tensors[name]
    if name not in board.constants:
        return view_of(board, name, (*rows, tensor.shape[-1]), f"{name}.rows", operator)
    if operator.kind.startswith("Reduce"):
        return board.add_constant(f"{operator.name}.axes", (1,), "int64", np.array([-1]))
    if len(tensor.shape) < 2 or prod(tensor.shape[:-1]) > 1:
        return name
    value = board.constants[name]
    return board.add_constant(f"{name}.vector", tensor.shape[-1:], tensor.dtype, None if value is None else value.reshape(-1))


def _transposed(board: Board, name: str) -> str:
    """A constant matrix, transposed; the same for whoever asks again."""
    tensor, value = board.tensors[name], board.constants[name]
    turn = Operator(f"{name}.turned", "Transpose", (name,), (f"{name}.transposed",), {"perm": (1, 0)})
    if (known := board.same(turn.kind, turn.inputs, turn.attributes)) is not None:
        return known
    transposed = Tensor(board.fresh(turn.outputs[0]), tensor.shape[::-1], tensor.dtype)
    board.add_folded(turn, transposed, None if value is None else np.ascontiguousarray(value.T))
    return transposed.name
