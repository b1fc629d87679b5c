"""Views put in where part of a network is to work on maps of another shape, and left out where two of them meet."""

from __future__ import annotations

import numpy as np

from lfopt.ir import Operator, Tensor
from lfopt.ops.call import Shape
from lfopt.rewrite.board import Board
from lfopt.rewrite.movement import VIEWS


def view_of(board: Board, name: str, shape: Shape, wanted: str, reader: Operator) -> str:
    """A map in another shape: what it is a view of, or a view of it that is there, if that has this shape; else a new one, named `wanted` if free."""
    views = (board.operators[reader] for reader in board.readers.get(name, ()))
    for known in (*behind(board, name), *(view.outputs[0] for view in views if view.kind in VIEWS)):
        if board.tensors[known].shape == shape:
            return known
    result = new_tensor(board, wanted, shape, board.tensors[name].dtype)
    add_view(board, reader, name, result)
    return result


def add_view(board: Board, beside: Operator, source: str, result: str) -> None:
    """A Reshape from one tensor to another."""
    shape = board.tensors[result].shape
    wanted = board.add_constant(f"{result}.shape", (len(shape),), "int64", np.array(shape))
    view = Operator(board.fresh(f"{beside.name}.view"), "Reshape", (source, wanted), (result,), origin=beside.origin)
    board.add(view, board.position[beside.name])


def behind(board: Board, name: str) -> list[str]:
    """A tensor, and those that it is a view of."""
    names = [name]
    while (maker := board.plain_maker(names[-1])) is not None and maker.kind in VIEWS:
        names.append(maker.inputs[0])
    return names


def skip_views(board: Board, operator: Operator) -> None:
    """Let operators read a tensor itself in place of a view, by way of other shapes, of its own shape."""
    if operator.name not in board.operators or operator.kind not in VIEWS or operator.outputs[0] in board.outputs:
        return
    first, *sources = behind(board, operator.outputs[0])
    same = [source for source in sources if board.tensors[source].shape == board.tensors[first].shape]
    if same:
        board.bypass(operator, same[-1])


def new_tensor(board: Board, wanted: str, shape: Shape, dtype: str) -> str:
    """Name of a new tensor."""
    name = board.fresh(wanted)
    board.tensors[name] = Tensor(name, shape, dtype)
    return name
