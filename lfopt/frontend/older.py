"""Operators of older opsets, as the newest opset spells them.

One row for every version in which ONNX changed the form, a default or the meaning of an operator. Shapes and
constants are known when a row is applied, so an axis that used to be implied can be written out.

Source: the version histories of ONNX's operators; the schemas say which attributes and operands changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto

from lfopt.frontend.builder import Builder
from lfopt.frontend.values import DATA_TYPES, options
from lfopt.ir import InvalidModel, UnsupportedModel

# the node as a later opset has it, or the names of tensors that stand for its outputs
Newer = NodeProto | list[str]
Form = Callable[[Builder, NodeProto], Newer]


def newer_form(node: NodeProto, opset: int) -> tuple[int, Form] | None:
    """(opset, form): the first opset after `opset` in which a standard node is spelled otherwise, and how.

    None: the newest opset spells it like this one.
    """
    if opset < NO_CONSUMED_INPUTS and any(a.name == "consumed_inputs" for a in node.attribute):
        return opset, _without_consumed_inputs
    return next(((until, form) for until, form in FORMS.get(node.op_type, ()) if opset < until), None)


NO_CONSUMED_INPUTS = 6  # first opset without the attribute, a hint on memory


def _without_consumed_inputs(build: Builder, node: NodeProto) -> Newer:
    return _edited(node, without=["consumed_inputs"])


def _edited(
    node: NodeProto,
    kind: str = "",
    inputs: Sequence[str] | None = None,
    without: Sequence[str] = (),
    **attributes: Any,
) -> NodeProto:
    """A copy of a node with another kind, other operands, or other attributes."""
    copy = onnx.helper.make_node(
        kind or node.op_type,
        [*(node.input if inputs is None else inputs)],
        [*node.output],
        name=node.name,
        domain=node.domain or None,
    )
    copy.attribute.extend(a for a in node.attribute if a.name not in (*without, *attributes))
    copy.attribute.extend(onnx.helper.make_attribute(*item) for item in attributes.items())
    return copy


def _with_defaults(**defaults: Any) -> Form:
    """Defaults that a later version has not, written out."""

    def form(build: Builder, node: NodeProto) -> Newer:
        stated = options(node)
        return _edited(node, **{name: value for name, value in defaults.items() if name not in stated})

    return form


def _without(*names: str) -> Form:
    """The node without attributes that a later version dropped."""
    return lambda build, node: _edited(node, without=names)


def _operands(node: NodeProto, count: int) -> list[str]:
    """The first operands of a node, "" for those that are absent."""
    return [*node.input, *[""] * count][:count]


def _listed(build: Builder, values: Sequence[int]) -> str:
    return build.constant(np.array(values, np.int64))


def _constant(build: Builder, name: str, what: str) -> np.ndarray:
    """The values of an operand that must be a constant, as a vector. Raises UnsupportedModel."""
    value = build.known(name)
    if value is None:
        raise UnsupportedModel(f"its {what} is computed, or absent; lfopt reads a constant")
    return value.reshape(-1)


def _required(told: dict[str, Any], name: str) -> Any:
    if name not in told:
        raise InvalidModel(f"attribute {name!r} is absent")
    return told[name]


# -- operands that used to be attributes ---------------------------------------------------------------------


def _as_operand(name: str, position: int, *, required: bool = False) -> Form:
    """A list of whole numbers that a later version has as an operand."""

    def form(build: Builder, node: NodeProto) -> Newer:
        told = options(node)
        if name not in told:
            if required:
                raise InvalidModel(f"attribute {name!r} is absent")
            return node
        values = told[name] if isinstance(told[name], list) else [told[name]]
        inputs = [*_operands(node, position), _listed(build, values)]
        return _edited(node, inputs=inputs, without=[name])

    return form


def _clip(build: Builder, node: NodeProto) -> Newer:
    told = options(node)
    dtype = build.dtype(node.input[0])
    ends = [build.constant(np.array(told[name], dtype)) if name in told else "" for name in ("min", "max")]
    return _edited(node, inputs=[node.input[0], *ends], without=["min", "max"])


def _pad(build: Builder, node: NodeProto) -> Newer:
    told = options(node)
    dtype = build.dtype(node.input[0])
    pads = _listed(build, _required(told, "pads"))
    value = np.array(told.get("value", 0.0), dtype)
    inputs = [node.input[0], pads, build.constant(value)]
    return _edited(node, inputs=inputs, without=["pads", "value"])


def _paddings(build: Builder, node: NodeProto) -> Newer:
    return _edited(node, without=["paddings"], pads=_required(options(node), "paddings"))


def _slice(build: Builder, node: NodeProto) -> Newer:
    told = options(node)
    starts, ends = (_required(told, name) for name in ("starts", "ends"))
    axes = told.get("axes", [*range(len(starts))])
    lists = [_listed(build, values) for values in (starts, ends, axes)]
    return _edited(node, inputs=[node.input[0], *lists], without=["starts", "ends", "axes"])


def _dft(build: Builder, node: NodeProto) -> Newer:
    axis = build.constant(np.array(options(node).get("axis", 1), np.int64))
    return _edited(node, inputs=[*_operands(node, 2), axis], without=["axis"])


def _reshape(build: Builder, node: NodeProto) -> Newer:
    shape = _listed(build, _required(options(node), "shape"))
    return _edited(node, inputs=[node.input[0], shape], without=["shape"])


def _tile(build: Builder, node: NodeProto) -> Newer:
    x, tiles, axis = _operands(node, 3)
    rank = len(build.shape(x))
    (along,), (count,) = (
        _constant(build, name, what).astype(np.int64)[:1] for name, what in ((axis, "axis"), (tiles, "tiles"))
    )
    repeats = [1] * rank
    repeats[_axis(int(along), rank)] = int(count)
    return _edited(node, inputs=[x, _listed(build, repeats)])


def _split_operand(build: Builder, node: NodeProto) -> Newer:
    """Sizes that Split-1 may have as an operand."""
    x, sizes = _operands(node, 2)
    if not sizes:
        return _with_defaults(axis=0)(build, node)
    values = _constant(build, sizes, "split").tolist()
    return _edited(_with_defaults(axis=0)(build, node), inputs=[x], split=[int(size) for size in values])  # type: ignore[arg-type]


def _split_evenly(build: Builder, node: NodeProto) -> Newer:
    """Equal parts, which a later version counts."""
    if _operands(node, 2)[1]:
        return node
    shape = build.shape(node.input[0])
    count = len(node.output)
    extent = shape[_axis(int(options(node).get("axis", 0)), len(shape))]
    if extent % count:
        raise InvalidModel(f"{extent} elements in {count} equal parts")
    return _edited(node, num_outputs=count)


# -- broadcasting --------------------------------------------------------------------------------------------


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InvalidModel(f"attribute 'axis' is {axis}, of {rank}")
    return axis % rank


def _legacy_broadcast(build: Builder, node: NodeProto) -> Newer:
    """The second operand is brought to the shape of the first, from an axis on, and only if that is said."""
    left, right = _operands(node, 2)
    told = options(node)
    shape = build.shape(left)
    given = build.shape(right)
    if not told.get("broadcast", 0):
        if shape != given:
            raise InvalidModel(
                f"shapes {[*shape]} and {[*given]} with attribute 'broadcast' 0; accepted: equal"
            )
        return _edited(node, without=["axis", "broadcast"])
    first = len(shape) - len(given)
    if "axis" in told and given:
        first = _axis(int(told["axis"]), len(shape))
    behind = len(shape) - first - len(given)
    wanted = (*given, *[1] * behind)
    if behind < 0 or _broadcast_shapes(shape, wanted) != shape:
        raise InvalidModel(f"shape {[*given]} does not broadcast to {[*shape]} from axis {first} on")
    return _edited(node, inputs=[left, build.reshape(right, *wanted)], without=["axis", "broadcast"])


def _broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*(tuple(shape) for shape in shapes))
    except ValueError:
        return None


def _gemm(build: Builder, node: NodeProto) -> Newer:
    told, (a, b, c) = options(node), _operands(node, 3)
    rows, columns = (
        build.shape(name)[::-1] if told.get(flag, 0) else build.shape(name)
        for name, flag in ((a, "transA"), (b, "transB"))
    )
    result = (*rows[:1], *columns[1:])
    if not told.get("broadcast", 0) and c and build.shape(c) != result:
        raise InvalidModel(
            f"operand C of shape {[*build.shape(c)]} with attribute 'broadcast' 0; accepted: {[*result]}"
        )
    return _edited(node, without=["broadcast"])


def _slope_by_channel(build: Builder, node: NodeProto) -> Newer:
    """One slope for each channel (axis 1), or one for all."""
    x, slope = _operands(node, 2)
    count = prod(build.shape(slope))
    behind = len(build.shape(x)) - 2
    spread = build.reshape(slope, count, *[1] * max(behind, 0)) if count > 1 else slope
    return _edited(node, inputs=[x, spread])


# -- meanings that changed -----------------------------------------------------------------------------------


def _over_all_behind(build: Builder, node: NodeProto) -> Newer:
    """Softmax, LogSoftmax and Hardmax over the axes from one on, taken as one; later along a single axis."""
    shape = build.shape(node.input[0])
    axis = _axis(int(options(node).get("axis", 1)), len(shape))
    longer = [k for k in range(axis, len(shape)) if shape[k] > 1]
    if len(longer) < 2 or not prod(shape):
        return _edited(node, axis=longer[0] if longer else axis)
    flat = build.reshape(node.input[0], *shape[:axis], prod(shape[axis:]))
    result = build.run(node.op_type, flat, axis=axis)
    return [build.run("Reshape", result, _listed(build, shape), output=node.output[0])]


def _test_mode(build: Builder, node: NodeProto) -> Newer:
    """BatchNormalization and Dropout before opset 7, which train unless they say otherwise."""
    if not options(node).get("is_test", 0):
        raise UnsupportedModel("attribute 'is_test' is 0: training mode is not supported")
    return _edited(node, without=["is_test"])


def _spatial(build: Builder, node: NodeProto) -> Newer:
    """BatchNormalization by channel, or, where attribute `spatial` is 0, by element of a map."""
    told = options(node)
    _refuse_statistics(node)
    if told.get("spatial", 1):
        return _edited(node, without=["spatial"])
    x, scale, bias, mean, variance = _operands(node, 5)
    shape = build.shape(x)
    for name in (scale, bias, mean, variance):
        if build.shape(name) != shape[1:]:
            raise InvalidModel(
                f"operand {name!r} of shape {[*build.shape(name)]} with attribute 'spatial' 0; "
                f"accepted: {[*shape[1:]]}"
            )
    epsilon = np.array(told.get("epsilon", 1e-5), build.dtype(variance))
    factor = build.run("Div", scale, build.run("Sqrt", build.run("Add", variance, epsilon)))
    offset = build.run("Sub", bias, build.run("Mul", mean, factor))
    return [build.run("Add", build.run("Mul", x, factor), offset, output=node.output[0])]


def _one_result(build: Builder, node: NodeProto) -> Newer:
    _refuse_statistics(node)
    return node


def _refuse_statistics(node: NodeProto) -> None:
    """Statistics as further outputs are there in training alone."""
    if any(node.output[1:]):
        raise UnsupportedModel(
            f"{len(node.output)} outputs, which is training mode; accepted: the normalised map alone"
        )
    del node.output[1:]


def _dropout(*, of_booleans: bool) -> Form:
    """Data as they are; of the mask, whose meaning is open before opset 12, ONNX Runtime makes zeros."""

    def form(build: Builder, node: NodeProto) -> Newer:
        if any(node.output[1:]):
            data = node.input[0]
            mask = np.zeros(build.shape(data), bool if of_booleans else build.dtype(data))
            build.run("Identity", mask, output=node.output[1])
        kept = _edited(node, without=["ratio"])
        del kept.output[1:]
        return kept

    return form


def _cast(build: Builder, node: NodeProto) -> Newer:
    """The type by its name."""
    name = str(_required(options(node), "to")).upper()
    if name not in DATA_TYPES:
        raise InvalidModel(f"attribute 'to' is {name!r}, which is no element type")
    return _edited(node, to=DATA_TYPES[name])


def _whole_power(build: Builder, node: NodeProto) -> Newer:
    power = float(options(node).get("p", 2.0))
    if not power.is_integer():
        raise UnsupportedModel(f"attribute 'p' is {power:g}; lfopt reads whole numbers")
    return _edited(node, p=int(power))


def _group_normalization(build: Builder, node: NodeProto) -> Newer:
    """One scale and one bias for each group, later for each channel."""
    x, *by_group = _operands(node, 3)
    channels = build.shape(x)[1]
    groups = int(_required(options(node), "num_groups"))
    if groups < 1 or channels % groups or any(build.shape(name) != (groups,) for name in by_group):
        shapes = " and ".join(str([*build.shape(name)]) for name in by_group)
        raise InvalidModel(f"{channels} channels in {groups} groups, with scale and bias of shapes {shapes}")
    wide = [
        build.reshape(
            build.run("Expand", build.reshape(name, groups, 1), _listed(build, [groups, channels // groups])),
            channels,
        )
        for name in by_group
    ]
    return _edited(node, inputs=[x, *wide])


def _grid_sample(build: Builder, node: NodeProto) -> Newer:
    mode = options(node).get("mode", "bilinear")
    return _edited(node, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _forward(build: Builder, node: NodeProto) -> Newer:
    """The first GRU misspells its default direction."""
    stated = options(node).get("direction", "")
    if stated == "foward":
        return _edited(node, direction="forward")
    return node


# -- Upsample and Resize -------------------------------------------------------------------------------------


def _upsample_by_two(build: Builder, node: NodeProto) -> Newer:
    told = options(node)
    scales = [1.0, 1.0, *(float(_required(told, name)) for name in ("height_scale", "width_scale"))]
    mode = {"bilinear": "linear"}.get(told.get("mode", "nearest"), told.get("mode", "nearest"))
    return _edited(node, without=["height_scale", "width_scale"], scales=scales, mode=mode)


def _upsample_by_attribute(build: Builder, node: NodeProto) -> Newer:
    scales = build.constant(np.array(_required(options(node), "scales"), np.float32))
    return _edited(node, inputs=[node.input[0], scales], without=["scales"])


def _upsample(build: Builder, node: NodeProto) -> Newer:
    return _edited(node, "Resize")


def _resize(build: Builder, node: NodeProto) -> Newer:
    """Positions are asymmetric; the nearest element lies below where an axis grows, above where it shrinks.

    ONNX Runtime has it so. Where some axes grow and others shrink, one Resize does after the other.
    """
    x, scales = _operands(node, 2)
    told: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric"}
    if options(node).get("mode", "nearest") != "nearest":
        return _edited(node, inputs=[x, "", scales], **told)
    ratios = _constant(build, scales, "scales").astype(np.float32)
    if (ratios > 1).any() and (ratios < 1).any():
        grown = build.run(
            "Resize", x, "", np.maximum(ratios, 1), mode="nearest", nearest_mode="floor", **told
        )
        least = build.constant(np.minimum(ratios, 1))
        return _edited(node, inputs=[grown, "", least], nearest_mode="ceil", **told)
    rounding = "ceil" if (ratios < 1).any() else "floor"
    return _edited(node, inputs=[x, "", scales], nearest_mode=rounding, **told)


# ------------------------------------------------------------------------------------------------------------

_AXES = _as_operand("axes", 1)
_BROADCAST = ((7, _legacy_broadcast),)
_FLATTENED = ((13, _over_all_behind),)
_REDUCED = ((18, _AXES),)

# operator -> (opset, form): the first opset that spells it otherwise, and what it is there; in order
FORMS: dict[str, tuple[tuple[int, Form], ...]] = {
    "Add": _BROADCAST,
    "And": _BROADCAST,
    "BatchNormalization": ((7, _test_mode), (9, _spatial), (14, _one_result)),
    "Cast": ((6, _cast),),
    "Clip": ((11, _clip),),
    "Concat": ((4, _with_defaults(axis=1)),),
    "DFT": ((20, _dft),),
    "Div": _BROADCAST,
    "Dropout": ((7, _test_mode), (10, _dropout(of_booleans=False)), (12, _dropout(of_booleans=True))),
    "Equal": _BROADCAST,
    "GRU": ((3, _forward), (7, _without("output_sequence"))),
    "Gemm": ((7, _gemm),),
    "GlobalLpPool": ((2, _whole_power),),
    "Greater": _BROADCAST,
    "GridSample": ((20, _grid_sample),),
    "GroupNormalization": ((21, _group_normalization),),
    "Hardmax": _FLATTENED,
    "LSTM": ((7, _without("output_sequence")),),
    "Less": _BROADCAST,
    "LogSoftmax": _FLATTENED,
    "LpPool": ((2, _whole_power),),
    "Mul": _BROADCAST,
    "Or": _BROADCAST,
    "PRelu": ((7, _slope_by_channel),),
    "Pad": ((2, _paddings), (11, _pad)),
    "Pow": _BROADCAST,
    "RNN": ((7, _without("output_sequence")),),
    "ReduceL1": _REDUCED,
    "ReduceL2": _REDUCED,
    "ReduceLogSum": _REDUCED,
    "ReduceLogSumExp": _REDUCED,
    "ReduceMax": _REDUCED,
    "ReduceMean": _REDUCED,
    "ReduceMin": _REDUCED,
    "ReduceProd": _REDUCED,
    "ReduceSum": ((13, _AXES),),
    "ReduceSumSquare": _REDUCED,
    "Reshape": ((5, _reshape),),
    "Resize": ((11, _resize),),
    "RoiAlign": ((16, _with_defaults(coordinate_transformation_mode="output_half_pixel")),),
    "Scatter": ((11, lambda build, node: _edited(node, "ScatterElements")),),
    "Selu": ((6, _with_defaults(alpha=1.6732, gamma=1.0507)),),
    "Slice": ((10, _slice),),
    "Softmax": _FLATTENED,
    "Split": ((2, _split_operand), (13, _as_operand("split", 1)), (18, _split_evenly)),
    "Squeeze": ((13, _AXES),),
    "Sub": _BROADCAST,
    "Tile": ((6, _tile),),
    "TopK": ((10, _as_operand("k", 1, required=True)),),
    "Unsqueeze": ((13, _as_operand("axes", 1, required=True)),),
    "Upsample": ((7, _upsample_by_two), (9, _upsample_by_attribute), (10, _upsample)),
    "Xor": _BROADCAST,
}
