"""A network of several images as the same network of one, where it treats each alone."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from lfopt.ir import Box, Graph, Operator, cut, whole
from lfopt.ops import spec
from lfopt.ops.call import Call
from lfopt.rewrite.mutable_graph import MutableGraph

# index of the operand that is the shape of the result, by operator
SHAPED = {"Reshape": 1, "Expand": 1, "Resize": 3}
# operators whose result follows from where an element is in the last two axes
BY_POSITION = frozenset({"Trilu", "EyeLike"})


def one_image(graph: Graph) -> tuple[Graph, int] | str:
    """The network for one image, and how many there are; or why it is not one image after the other.

    Every input has as many images as its first axis is long; a map may have several entries of that axis for
    each. Whether an operator treats images alike follows from the boxes of its operands that a box of its
    result needs.
    """
    firsts = {graph.shape(name)[:1] for name in graph.inputs}
    if len(firsts) != 1 or firsts == {()}:
        return "its inputs do not begin with the same axis"
    ((images,),) = firsts
    if images < 2:
        return "it has one image"
    if absent := [name for name in graph.outputs if name in graph.constants]:
        return f"output {absent[0]!r} is a constant"
    if behind := [name for name in graph.outputs if graph.shape(name)[:1] in ((), (1,))]:
        return f"output {behind[0]!r} does not begin with the images"
    several = {*graph.inputs}
    for operator in graph.operators:
        if why := _differs(graph, operator, several, images):
            return f"node {operator.name!r} ({operator.kind}): {why}"
        several |= {name for name in operator.outputs if name}
    return _narrowed(graph, several, images), images


def _differs(graph: Graph, operator: Operator, several: set[str], images: int) -> str:
    """Why an operator does not treat every image alone and alike; "" if it does."""
    call = Call.of(graph, operator)
    row = spec(operator.kind, operator.domain)
    if not any(name in several for name in operator.inputs):
        return "reads no image"
    if any(prod(shape) == 0 or (shape[_axis(shape)] if shape else 1) % images for shape in call.results):
        return "makes something that is not a part for each image"
    if (given := _shape_operand(operator)) and graph.constants.get(given) is None:
        return "has a shape whose values are not known"
    if row.view:
        return ""
    if operator.kind in BY_POSITION and len(call.results[0]) < 3:
        return "goes by where an element is"
    asked = [k for k, name in enumerate(operator.outputs) if name]
    for result, shape in zip(asked, call.results, strict=True):
        for index, name in enumerate(operator.inputs):
            if not name or index in row.parameters or call.shape(index) == ():
                continue
            needs = [
                row.box(call, index, _part(shape, image, images), result, None)
                for image in (0, 1, images - 1)
            ]
            alone = name in several
            axis = _axis(call.shape(index))
            if alone and any(
                box[axis] != _part(call.shape(index), image, images)[axis]
                for box, image in zip(needs, (0, 1, images - 1), strict=True)
            ):
                return f"reads more of input {index} than one image"
            if not alone and len(set(needs)) > 1:
                return f"reads another part of input {index} for each image"
    return ""


def _shape_operand(operator: Operator) -> str:
    """The operand that is the shape of the result, or "" where there is none."""
    index = SHAPED.get(operator.kind, len(operator.inputs))
    if index < len(operator.inputs):
        return operator.inputs[index]
    return ""


def _part(shape: tuple[int, ...], image: int, images: int) -> Box:
    """The box of one image."""
    axis = _axis(shape)
    each = shape[axis] // images
    return cut(whole(shape), axis, (image * each, (image + 1) * each))


def _axis(shape: tuple[int, ...]) -> int:
    """The axis of images: the outermost that has several entries."""
    return next((axis for axis, extent in enumerate(shape) if extent > 1), 0)


def _each(shape: tuple[int, ...], images: int) -> tuple[int, ...]:
    axis = _axis(shape)
    return (*shape[:axis], shape[axis] // images, *shape[axis + 1 :])


def _narrowed(graph: Graph, several: set[str], images: int) -> Graph:
    mutable = MutableGraph(graph)
    for name in several:
        tensor = mutable.tensors[name]
        mutable.tensors[name] = replace(tensor, shape=_each(tensor.shape, images))
    for operator in graph.operators:
        if not (name := _shape_operand(operator)):
            continue
        index = SHAPED[operator.kind]
        old = graph.constants[name]
        narrowed = mutable.tensors[operator.outputs[0]].shape
        assert old is not None, "seen above"
        shape = np.array(
            narrowed
            if operator.kind == "Reshape"
            else _shrunk(old, graph.shape(operator.outputs[0]), narrowed),
            old.dtype,
        )
        constant = mutable.add_constant(f"{operator.outputs[0]}.shape", shape.shape, old.dtype.name, shape)
        mutable.change(
            replace(operator, inputs=(*operator.inputs[:index], constant, *operator.inputs[index + 1 :]))
        )
    return mutable.finish()


def _shrunk(old: np.ndarray, before: tuple[int, ...], after: tuple[int, ...]) -> list[int]:
    """A shape, of the same rank, for the result of one image. Of fewer axes it does not speak of images."""
    if len(old) == len(before):
        return [
            b if extent == a != b else int(extent) for extent, a, b in zip(old, before, after, strict=True)
        ]
    return old.tolist()
