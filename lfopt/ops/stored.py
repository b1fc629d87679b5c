"""Integers of quantised maps, and the real numbers that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lfopt.ir import Box, Quantization, Tensor
from lfopt.ops.call import Call, once_per_call
from lfopt.ops.contraction import present
from lfopt.ops.fixed_point import dequantized
from lfopt.ops.part import Operands, Part, take


def quantization(tensor: Tensor) -> Quantization:
    """What the integers of a quantised tensor stand for."""
    assert tensor.quantization is not None, f"{tensor.name}: is not quantised"
    return tensor.quantization


def scale_of(tensor: Tensor) -> float:
    """Scale of a tensor that has one, or of its first channel."""
    return quantization(tensor).scale[0]


def zero_of(tensor: Tensor) -> int:
    """Zero point of a tensor that has one, or of its first channel."""
    return quantization(tensor).zero_point[0]


def _cut_to(by: Quantization, box: Box) -> Quantization:
    """The quantization of a part of a tensor."""
    if by.axis is None:
        return by
    span = slice(*box[by.axis])
    return Quantization(by.scale[span], by.zero_point[span], by.axis)


def _along(values: Sequence[float], by: Quantization, rank: int) -> np.ndarray:
    return np.reshape(
        values, () if by.axis is None else tuple(-1 if axis == by.axis else 1 for axis in range(rank))
    )


def minus_zero(part: Part, by: Quantization, dtype: str = "int64") -> np.ndarray:
    """stored - zero point, of the shape of the part, in `dtype`."""
    zeros = _cut_to(by, part.box).zero_point
    values = part.values.astype(dtype)
    if any(zeros):
        return values - _along(zeros, by, values.ndim).astype(dtype)
    return values


def scales(by: Quantization, part: Part) -> np.ndarray:
    """float64 scales of a part of a tensor, shaped to broadcast against it."""
    return _along(_cut_to(by, part.box).scale, by, part.values.ndim).astype(np.float64)


def centred(part: Part | None, tensor: Tensor | None, dtype: str) -> Part | None:
    """stored - zero point of a part of an operand; None if it is absent."""
    if part is None or tensor is None:
        return None
    return Part(minus_zero(part, quantization(tensor), dtype), part.box)


def centred_ints(call: Call, operands: Operands, index: int, box: Box) -> np.ndarray:
    """int64 stored - zero point of a box of an operand, shaped as the box."""
    tensor = call.tensors[index]
    assert tensor is not None
    return minus_zero(Part(take(present(operands, index), box), box), quantization(tensor))


def real_operands(call: Call, operands: Operands) -> list[Part | None]:
    """Operands as the real numbers that they stand for: float64; what is not quantised as it is.

    In C order, on which the order of NumPy's sums depends.
    """
    return [
        part
        if part is None or tensor is None or tensor.quantization is None
        else Part(
            np.asarray(
                dequantized(part.values, _cut_to(tensor.quantization, part.box), "float64"), order="C"
            ),
            part.box,
        )
        for part, tensor in zip(operands, call.tensors, strict=True)
    ]


@once_per_call
def in_floats(call: Call) -> Call:
    """The same operator on real numbers: what is quantised becomes float64."""

    def real(tensor: Tensor) -> Tensor:
        if tensor.quantization is None:
            return tensor
        return Tensor(tensor.name, tensor.shape, "float64")

    tensors = tuple(None if tensor is None else real(tensor) for tensor in call.tensors)
    return replace(call, tensors=tensors, result_tensors=tuple(map(real, call.result_tensors)))
