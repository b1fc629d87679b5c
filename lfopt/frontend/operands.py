"""Operands whose types or shapes do not belong together, or to their operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, TypeProto

from lfopt.ir import Operator
from lfopt.ops.call import Shape

Others = Sequence[Shape | None]  # shapes of inputs from the third on; None: absent
Attributes = Mapping[str, object]


ALONG = frozenset({"Hardmax", "LogSoftmax", "LpNormalization", "Softmax"})  # whose axis ONNX does not check


def ill_typed(node: NodeProto, types: Mapping[str, TypeProto]) -> str:
    """What is wrong with the element types of a standard node's operands; empty if nothing is.

    Source: the type constraints of ONNX's schemas, of the newest opset.
    """
    formals = _formals(node.op_type)
    same: dict[str, tuple[str, str]] = {}  # (operand, type) that another of the same constraint has
    for index, name in enumerate(node.input if formals else ()):
        known = types.get(name)
        if known is None or not known.HasField("tensor_type"):
            continue
        formal, constraint, accepted, alike = formals[min(index, len(formals) - 1)]
        named = f"{formal} {name!r}"
        own = TensorProto.DataType.Name(known.tensor_type.elem_type).lower()
        if accepted and own not in accepted:
            return f"{named} is of type {own}; accepted: {', '.join(accepted)}"
        other, wanted = same.setdefault(constraint, (named, own))
        if alike and own != wanted:
            return f"{other} and {named} are of types {wanted} and {own}; accepted: one type"
    return ""


@cache
def _formals(kind: str) -> list[tuple[str, str, tuple[str, ...], bool]]:
    """(name, constraint, types that it accepts, whether all operands of it are of one) of each operand."""
    return [
        (
            formal.name,
            formal.type_str,
            tuple(sorted(text[len("tensor(") : -1] for text in formal.types if text.startswith("tensor("))),
            formal.is_homogeneous,
        )
        for formal in onnx.defs.get_schema(kind).inputs
    ]


def mismatch(operator: Operator, shapes: Sequence[Shape | None]) -> str:
    """What is wrong with the shapes of an operator's inputs; empty if nothing is.

    Source: ONNX operator specifications.
    """
    if operator.domain:
        return ""
    if operator.kind in ALONG and shapes and shapes[0] is not None:
        axis = operator.attributes.get("axis", -1)
        rank = len(shapes[0])
        if rank and not (isinstance(axis, int) and -rank <= axis < rank):
            return f"axis {axis} of {rank} dims; accepted: {-rank} to {rank - 1}"
    rule = RULES.get(operator.kind)
    if rule is None or len(shapes) < 2 or shapes[0] is None or shapes[1] is None:
        return ""
    return rule(shapes[0], shapes[1], shapes[2:], operator.attributes)


def _conv(x: Shape, w: Shape, others: Others, attributes: Attributes) -> str:
    groups = _groups(attributes)
    if len(x) != len(w) or len(x) < 3:
        return f"input of shape {[*x]}, weights of {[*w]}; accepted: the same rank, at least 3"
    if groups < 1 or w[0] % groups or x[1] != w[1] * groups:
        return (
            f"{x[1]} input channels for weights of shape {[*w]} in {groups} groups; "
            f"accepted: {w[1] * max(groups, 1)}"
        )
    return _kernel(w, attributes) or _vectors(2, others, w[0])


def _conv_transpose(x: Shape, w: Shape, others: Others, attributes: Attributes) -> str:
    groups = _groups(attributes)
    if len(x) != len(w) or len(x) < 3:
        return f"input of shape {[*x]}, weights of {[*w]}; accepted: the same rank, at least 3"
    if groups < 1 or w[0] % groups or x[1] != w[0]:
        return f"{x[1]} input channels for weights of shape {[*w]} in {groups} groups; accepted: {w[0]}"
    return _kernel(w, attributes) or _vectors(2, others, w[1] * groups)


def _groups(attributes: Attributes) -> int:
    groups = attributes.get("group", 1)
    if isinstance(groups, int):
        return groups
    return 1


def _kernel(weights: Shape, attributes: Attributes) -> str:
    stated = attributes.get("kernel_shape", weights[2:])
    if stated == weights[2:]:
        return ""
    return f"kernel_shape {stated} for weights of shape {[*weights]}"


def _vectors(first: int, shapes: Others, extent: int) -> str:
    wrong = ((index, shape) for index, shape in enumerate(shapes, first) if shape not in (None, (extent,)))
    return next(
        (f"input {index} of shape {[*(shape or ())]}; accepted: [{extent}]" for index, shape in wrong), ""
    )


def _deform_conv(x: Shape, w: Shape, others: Others, attributes: Attributes) -> str:
    if len(x) != 4 or not others or others[0] is None:
        return f"input of shape {[*x]}; accepted: two spatial axes, with offsets"
    if why := _conv(x, w, (), attributes) or _vectors(3, others[1:2], w[0]):
        return why
    strides, dilations, pads = (
        _numbers(attributes, name, count) for name, count in (("strides", 2), ("dilations", 2), ("pads", 4))
    )
    parts = attributes.get("offset_group", 1)
    if min((*strides, *dilations)) < 1 or not isinstance(parts, int) or parts < 1 or x[1] % parts:
        return (
            f"strides {[*strides]}, dilations {[*dilations]}, {parts} groups of offsets for {x[1]} channels"
        )
    spatial = [
        (x[2 + k] + pads[k] + pads[2 + k] - dilations[k] * (w[2 + k] - 1) - 1) // strides[k] + 1
        for k in (0, 1)
    ]
    taps = parts * w[2] * w[3]
    for index, shape, channels in zip(
        (2, 4), (others[0], others[2] if len(others) > 2 else None), (2 * taps, taps), strict=True
    ):
        if shape is not None and shape != (x[0], channels, *spatial):
            return f"input {index} of shape {[*shape]}; accepted: {[x[0], channels, *spatial]}"
    return ""


def _numbers(attributes: Attributes, name: str, count: int) -> tuple[int, ...]:
    """An attribute of so many whole numbers; of pads 0, of all else 1, where it is absent."""
    numbers = attributes.get(name)
    return (
        numbers
        if isinstance(numbers, tuple) and len(numbers) == count
        else (0 if name == "pads" else 1,) * count
    )  # type: ignore[return-value]


def _roi_align(x: Shape, regions: Shape, others: Others, attributes: Attributes) -> str:
    images = others[0] if others else None
    if len(x) != 4 or len(regions) != 2 or regions[1] != 4 or images != regions[:1]:
        return (
            f"maps of shape {[*x]}, regions of {[*regions]}, of images {[*(images or ())]}; "
            "accepted: [n, c, h, w], [k, 4] and [k]"
        )
    return ""


def _by_channel(x: Shape, w: Shape, others: Others, attributes: Attributes) -> str:
    return _vectors(1, (w, *others), x[1] if len(x) > 1 else 1)


def _gemm(a: Shape, b: Shape, others: Others, attributes: Attributes) -> str:
    left = a[::-1] if attributes.get("transA", 0) else a
    right = b[::-1] if attributes.get("transB", 0) else b
    if len(left) != 2 or len(right) != 2 or left[1] != right[0]:
        return f"product of {[*left]} and {[*right]}"
    added = others[0] if others else None
    if added is None:
        return ""
    return _broadcast(2, added, (left[0], right[1]))


def _prelu(x: Shape, slope: Shape, others: Others, attributes: Attributes) -> str:
    return _broadcast(1, slope, x)


def _broadcast(index: int, shape: Shape, to: Shape) -> str:
    try:
        fits = np.broadcast_shapes(shape, to) == to
    except ValueError:
        fits = False
    if fits:
        return ""
    return f"input {index} of shape {[*shape]}; accepted: one that broadcasts to {[*to]}"


RULES = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "BatchNormalization": _by_channel,
    "InstanceNormalization": _by_channel,
    "Gemm": _gemm,
    "PRelu": _prelu,
    "RoiAlign": _roi_align,
}
