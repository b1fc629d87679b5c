"""Operators that move elements of boxes without arithmetic; and DequantizeLinear.

Source: the ONNX operators of the same names.
"""

from __future__ import annotations

import numpy as np
import onnx

from lfopt.ir import Box, InvalidModel, Span, UnsupportedModel, box_shape, slices
from lfopt.ops.call import Call
from lfopt.ops.contraction import has, present
from lfopt.ops.footprint import needs
from lfopt.ops.parameters import einsum_terms, pad_amounts, pad_sources, permutation, slice_steps
from lfopt.ops.part import Operands, is_empty, take


def same_place(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Split: a part of the operand as it is, shaped as box `out`."""
    return take(present(operands, 0), needs(call, 0, out, result))


def view(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Reshape and the like: the same elements in the same order, shaped as box `out`."""
    return present(operands, 0).values.reshape(call.result)[slices(out)]


def concat(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Operands one after the other along an axis, shaped as box `out`."""
    boxes = [needs(call, i, out) for i in range(len(operands))]
    parts = [take(present(operands, i), box) for i, box in enumerate(boxes) if not is_empty(box)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts, axis=call.attribute("axis", 0))


def slice_(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Every step-th element from a start, forwards or backwards, shaped as box `out`."""
    values = take(present(operands, 0), needs(call, 0, out))
    steps = slice_steps(call)
    assert steps is not None
    return values[tuple(slice(None, None, step) for _, step in steps)]


def pad(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The map in a frame of a constant or of its own elements, shaped as box `out`; negative amounts cut."""
    data = present(operands, 0)
    box = needs(call, 0, out)
    amounts = pad_amounts(call)
    shape = call.shape(0)
    assert amounts is not None
    values = take(data, box)
    mode = call.attribute("mode", "constant")
    if mode != "constant":
        for axis, (amount, span) in enumerate(zip(amounts, out, strict=True)):
            if amount != (0, 0):
                sources = np.array(pad_sources(span, shape[axis], *amount, mode)) - box[axis][0]
                values = values.take(sources, axis)
        return values
    fill = present(operands, 2).values.reshape(()) if has(operands, 2) else np.zeros((), values.dtype)
    padded = np.full(box_shape(out), fill, values.dtype)
    if not is_empty(box):
        starts = [start + before for (start, _), (before, _) in zip(box, amounts, strict=True)]
        inner = tuple((start, start + n) for start, n in zip(starts, values.shape, strict=True))
        padded[slices(inner, out)] = values
    return padded


def expand(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The operand repeated along axes of extent one, shaped as box `out`."""
    return np.broadcast_to(take(present(operands, 0), needs(call, 0, out)), box_shape(out))


def tile(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The whole operand repeated along every axis, shaped as box `out`."""
    box = needs(call, 0, out)
    values = take(present(operands, 0), box)
    for axis, (span, (start, _), size) in enumerate(zip(out, box, call.shape(0), strict=True)):
        if span[1] - span[0] != values.shape[axis] or span[0] % size != start:
            values = values.take(np.arange(*span) % size - start, axis)
    return values


def gather(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Entries of the data along an axis by index, from the end where negative; shaped as box `out`."""
    shape = call.shape(0)
    axis = call.attribute("axis", 0) % len(shape)
    data, indices = (take(present(operands, i), needs(call, i, out)) for i in (0, 1))
    # `take` would copy all of a slice of channels first
    return data[(*(slice(None),) * axis, np.where(indices < 0, indices + shape[axis], indices))]


def transpose(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The operand with its axes permuted, shaped as box `out`."""
    return take(present(operands, 0), needs(call, 0, out)).transpose(permutation(call))


def depth_to_space(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Blocks of channels as blocks of pixels, depth first (DCR) or column first (CRD), shaped as `out`."""
    box = needs(call, 0, out)
    block = call.attribute("blocksize", 1)
    values = take(present(operands, 0), box)
    n, c, h, w = values.shape
    if call.attribute("mode", "DCR") == "DCR":
        laid = values.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        laid = values.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    origin = (
        (out[0][0], out[0][1]),
        (0, c // block**2),
        *((start * block, stop * block) for start, stop in box[2:]),
    )
    return laid.reshape(n, c // block**2, h * block, w * block)[slices(out, origin)]


def space_to_depth(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Blocks of pixels stacked as channels, depth first (DCR) or column first (CRD), shaped as `out`."""
    values = take(present(operands, 0), needs(call, 0, out))
    block = call.attribute("blocksize", 1)
    n, c, h, w = values.shape
    order = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    laid = values.reshape(n, c, h // block, block, w // block, block).transpose(order)
    return laid.reshape(n, c * block * block, h // block, w // block)[:, slice(*out[1])]


def trilu(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The upper or lower triangle, zero elsewhere, shaped as box `out`."""
    values = take(present(operands, 0), needs(call, 0, out))
    k = call.ints(1)
    above = np.arange(*out[-1]) - np.arange(*out[-2])[:, None] - (k[0] if k else 0)
    return np.where(above >= 0 if call.attribute("upper", 1) else above <= 0, values, 0)


def einsum(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Products summed over the labels that the result lacks, shaped as box `out`."""
    values = [take(present(operands, i), needs(call, i, out)) for i in range(len(operands))]
    terms, labels = einsum_terms(call)
    sums = np.einsum(",".join(terms) + "->" + labels, *values, optimize=len(values) > 1)
    if sums.shape == box_shape(out):
        return sums
    return sums[slices(out)]


def bit_cast(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The same bits as another type of the same width, shaped as box `out`."""
    return take(present(operands, 0), needs(call, 0, out)).view(
        onnx.helper.tensor_dtype_to_np_dtype(call.attribute("to", 0))
    )


def same_width(call: Call) -> None:
    """Raises InvalidModel for a BitCast between types of different widths."""
    source = call.tensors[0]
    target = call.result_tensors[0]
    if (
        source is None
        or "string" in (source.dtype, target.dtype)
        or np.dtype(source.dtype).itemsize != np.dtype(target.dtype).itemsize
    ):
        raise InvalidModel(
            f"node {call.operator.name!r} (BitCast): from {source and source.dtype} to {target.dtype}; "
            "accepted: types of one width"
        )


# -- integers and what they stand for ------------------------------------------------------------------------


def quantize(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """round(x / scale) + zero point, saturated, shaped as box `out`; halves to even.

    What is not a number becomes the least integer, as ONNX Runtime has it on x86.

    Raises UnsupportedModel for 4-bit and floating results.

    Source: ONNX operator QuantizeLinear.
    """
    values = take(present(operands, 0), out)
    scale = _along_axis(call, operands, 1, out)
    assert scale is not None
    target = np.dtype(call.result_tensors[0].dtype)
    if target.kind not in "iu":
        raise UnsupportedModel(
            f"node {call.operator.name!r} (QuantizeLinear): to {target.name}; "
            "lfopt computes integers of 8 bits and more"
        )
    limits = np.iinfo(target)
    zero = _along_axis(call, operands, 2, out)
    real = values if values.dtype.kind == "f" else values.astype(np.float64)
    levels = np.rint(real / scale.astype(real.dtype)).astype(np.float64) + (0 if zero is None else zero)
    return np.clip(np.nan_to_num(levels, nan=-np.inf), limits.min, limits.max).astype(target)


def dequantize(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """(q - zero point) * scale, shaped as box `out`. Source: ONNX operator DequantizeLinear."""
    values = take(present(operands, 0), out)
    scale = _along_axis(call, operands, 1, out)
    zero = _along_axis(call, operands, 2, out)
    assert scale is not None
    if values.dtype.kind in "iu":
        centred = values.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))
    else:
        centred = values
    return centred.astype(scale.dtype) * scale


def _along_axis(call: Call, operands: Operands, index: int, out: Box) -> np.ndarray | None:
    """Scale or zero point, shaped to broadcast to the box: one, or one per index or block of an axis."""
    if not has(operands, index):
        return None
    values = present(operands, index).values
    shape = call.shape(0)
    if values.size == 1:
        return values.reshape(())
    axis = call.attribute("axis", 1) % len(shape)
    if values.ndim == 1 and values.size == shape[axis]:
        return values[slice(*out[axis])].reshape(-1, *(1,) * (len(shape) - axis - 1))
    block = call.attribute("block_size", 0) or -(-shape[axis] // values.shape[axis])
    spread: list[Span] = list(out)
    spread[axis] = (0, values.shape[axis])
    blocks = np.arange(*out[axis]) // block
    return values[slices(tuple(spread))].take(blocks, axis)
