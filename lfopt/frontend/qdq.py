"""QuantizeLinear and DequantizeLinear as nodes: their quantizations, and constants behind them.

Source: ONNX operators QuantizeLinear, DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from lfopt.frontend.qoperators import OF_MICROSOFT
from lfopt.ir import InvalidModel, Operator, Quantization, Tensor, UnsupportedModel
from lfopt.ops.evaluate import evaluate
from lfopt.ops.fixed_point import dequantized

Q = "QuantizeLinear"
DQ = "DequantizeLinear"
BYTES = ("int8", "uint8")
MICROSOFT = "com.microsoft"
# first letters of operators that are refused, unless OF_MICROSOFT has them
OPERATOR_FORMAT_OF_MICROSOFT = ("QLinear", "QGemm", "QAttention", "MatMulInteger", "DynamicQuantize")
# what constants go through between DQ and their reader
MOVES_BY_SHAPE = frozenset("Flatten Identity Reshape Squeeze Transpose Unsqueeze".split())


class Stored(NamedTuple):
    """A constant as the file stores it, behind the float constant that DequantizeLinear makes of it."""

    tensor: Tensor  # integers with their quantization
    value: np.ndarray | None  # None: absent from the file

    def real(self) -> np.ndarray | None:
        """The float32 constant, shaped as the tensor; None: no values at hand."""
        assert self.tensor.quantization is not None
        if self.value is None:
            return None
        return dequantized(self.value, self.tensor.quantization)


def standard_form(node: NodeProto, what: str) -> NodeProto:
    """The node, with ONNX Runtime's own Q and DQ as the standard ones.

    Raises UnsupportedModel for an operator of the operator-oriented format that `lfopt.frontend.qoperators`
    does not have.
    """
    if (
        node.domain == MICROSOFT
        and node.op_type.startswith(OPERATOR_FORMAT_OF_MICROSOFT)
        and node.op_type not in OF_MICROSOFT
    ):
        raise UnsupportedModel(
            f"{what}: lfopt reads quantised networks in QDQ form (QuantFormat.QDQ); export this one so"
        )
    if node.domain == MICROSOFT and node.op_type in (Q, DQ):
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.domain = ""
        return copy
    return node


def is_q_or_dq(operator: Operator | NodeProto) -> bool:
    """Whether this is QuantizeLinear or DequantizeLinear."""
    kind = operator.kind if isinstance(operator, Operator) else operator.op_type
    return kind in (Q, DQ) and not operator.domain


def quantization_of(
    operator: Operator, tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None], what: str
) -> Quantization | None:
    """The quantization of a Q or DQ; constants: () or (channels,) scales and zero points, by name.

    None if it is of a kind that stays an operator: dynamic, blocked, not float32, not of 8 bits.

    Raises InvalidModel where scales or zero points are not legal ONNX, and UnsupportedModel where their
    values are absent.
    """
    real, scale_name, *rest = operator.inputs
    zero_name = rest[0] if rest else ""
    stored = tensors[operator.outputs[0] if operator.kind == Q else real]
    if zero_name and tensors[zero_name].dtype != stored.dtype:
        raise InvalidModel(
            f"{what}: the zero point is of type {tensors[zero_name].dtype}, "
            f"the integers are of type {stored.dtype}"
        )
    if scale_name not in constants or (zero_name and zero_name not in constants):
        return None  # computed while the network runs
    scale = constants[scale_name]
    zero = constants[zero_name] if zero_name else None
    if scale is None or (zero_name and zero is None):
        raise UnsupportedModel(
            f"{what}: scale {scale_name!r} has no values (external data that is absent), "
            "and without scales integers mean nothing"
        )
    blocked = bool(operator.attributes.get("block_size", 0)) or scale.ndim > 1
    if (
        scale.dtype != np.float32
        or blocked
        or stored.dtype not in (*BYTES, "int32")
        or (stored.dtype == "int32" and operator.kind == Q)
    ):
        return None
    axis = _axis(operator, scale, stored, what)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise InvalidModel(
            f"{what}: a scale is {float(scale.reshape(-1)[np.argmin(np.isfinite(scale) & (scale > 0))]):g}; "
            "scales are above 0"
        )
    if zero is not None and zero.size != scale.size:
        raise InvalidModel(f"{what}: {scale.size} scales and {zero.size} zero points")
    zeros = (0,) * scale.size if zero is None else tuple(int(z) for z in zero.reshape(-1))
    return Quantization(tuple(float(s) for s in scale.reshape(-1)), zeros, axis)


def _axis(operator: Operator, scale: np.ndarray, stored: Tensor, what: str) -> int | None:
    """Axis of per-channel scales; None for one scale."""
    if scale.size == 1:
        return None
    axis = operator.attributes.get("axis", 1)
    rank = len(stored.shape)
    assert isinstance(axis, int)
    if not -rank <= axis < rank:
        raise InvalidModel(f"{what}: axis is {axis}, of {rank}")
    if scale.size != stored.shape[axis]:
        raise InvalidModel(
            f"{what}: {scale.size} scales for {stored.shape[axis]} channels of {list(stored.shape)}, axis "
            f"{axis}"
        )
    return axis % rank


def moved(
    operator: Operator, stored: Stored, inputs: Sequence[np.ndarray | None], result: Tensor, opset: int
) -> Stored | None:
    """The stored constant of the result's shape, if the operator only moves elements of one; else None.

    `inputs`: values of all operands, shaped as those; the first is not looked at.
    """
    by = stored.tensor.quantization
    axis = None
    assert by is not None
    known = all(
        value is not None for name, value in zip(operator.inputs[1:], inputs[1:], strict=True) if name
    )
    if operator.kind not in MOVES_BY_SHAPE or operator.domain or not known:
        return None
    if by.axis is not None:
        order = operator.attributes.get("perm", tuple(reversed(range(len(stored.tensor.shape)))))
        if operator.kind not in ("Identity", "Transpose") or not isinstance(order, tuple):
            return None
        axis = by.axis if operator.kind == "Identity" else order.index(by.axis)
    value = None if stored.value is None else evaluate(operator, [stored.value, *inputs[1:]], opset)[0]
    return Stored(
        Tensor(operator.outputs[0], result.shape, stored.tensor.dtype, replace(by, axis=axis)), value
    )
