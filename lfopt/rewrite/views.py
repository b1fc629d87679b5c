"""Views between parts of a network on maps of other shapes; where two views meet, they are left out."""

from __future__ import annotations

import numpy as np

from lfopt.ir import Operator, Tensor
from lfopt.ops.call import Shape
from lfopt.rewrite.movement import VIEWS
from lfopt.rewrite.mutable_graph import MutableGraph


def view_of(mutable: MutableGraph, name: str, shape: Shape, wanted: str, reader: Operator) -> str:
    """A map in another shape: one that is there, or a new view, named `wanted` if free.

    What is there: what the map is a view of, or a view of it.
    """
    views = (mutable.operators[reader] for reader in mutable.readers.get(name, ()))
    for known in (*behind(mutable, name), *(view.outputs[0] for view in views if view.kind in VIEWS)):
        if mutable.tensors[known].shape == shape:
            return known
    result = new_tensor(mutable, wanted, shape, mutable.tensors[name].dtype)
    add_view(mutable, reader, name, result)
    return result


def add_view(mutable: MutableGraph, beside: Operator, source: str, result: str) -> None:
    """A Reshape from one tensor to another."""
    shape = mutable.tensors[result].shape
    wanted = mutable.add_constant(f"{result}.shape", (len(shape),), "int64", np.array(shape))
    view = Operator(
        mutable.fresh(f"{beside.name}.view"), "Reshape", (source, wanted), (result,), origin=beside.origin
    )
    mutable.add(view, mutable.position[beside.name])


def behind(mutable: MutableGraph, name: str) -> list[str]:
    """A tensor, and those that it is a view of."""
    names = [name]
    while (maker := mutable.plain_maker(names[-1])) is not None and maker.kind in VIEWS:
        names.append(maker.inputs[0])
    return names


def skip_views(mutable: MutableGraph, operator: Operator) -> None:
    """Let operators read a tensor in place of a view that has, by way of other shapes, its own shape."""
    if (
        operator.name not in mutable.operators
        or operator.kind not in VIEWS
        or operator.outputs[0] in mutable.outputs
    ):
        return
    first, *sources = behind(mutable, operator.outputs[0])
    same = [source for source in sources if mutable.tensors[source].shape == mutable.tensors[first].shape]
    if same:
        mutable.replace_and_erase(operator, same[-1])


def new_tensor(mutable: MutableGraph, wanted: str, shape: Shape, dtype: str) -> str:
    """Name of a new tensor."""
    name = mutable.fresh(wanted)
    mutable.tensors[name] = Tensor(name, shape, dtype)
    return name
