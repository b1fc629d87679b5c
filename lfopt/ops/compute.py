"""What operators compute, on any box of their results: the definition that execution and reference share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import onnx

from lfopt.ir import Box, Span, UnsupportedModel, box_shape, row_axis, slices
from lfopt.ops import attention, floating, integer, normalizing
from lfopt.ops.call import Call
from lfopt.ops.evaluate import evaluate
from lfopt.ops.footprint import folded_axis, needs
from lfopt.ops.part import Part, is_empty
from lfopt.ops.reducing import REDUCTIONS
from lfopt.ops.statistics import has_statistics
from lfopt.ops.table import OPAQUE, row_of
from lfopt.ops.traits import Tiling

__all__ = ["Folding", "Part", "accumulate", "compute", "finish", "folding", "merge"]

Folding = Literal["input channels", "rows", "elements", "statistics", "keys"]


def folding(call: Call) -> Folding | None:
    """The axis along which partial sums of the operator may come in parts; None if it has no partial sums.

    Input channels of a contraction (Conv, ConvTranspose, Gemm, MatMul); rows of a reduction or global pool
    over them, elements along the longest axis of one over other axes: then a partial sum may be a maximum, a
    minimum or a product; elements whose statistics a normalization keeps. Not where a quantised result could
    depend, in its last bit, on what the parts are.
    """
    if call.attention is not None:
        return "keys"
    tiling = row_of(call).tiling
    if tiling is Tiling.CONTRACT:
        return "input channels"
    if has_statistics(call):
        return "statistics"
    axis = folded_axis(call, 0) if tiling is Tiling.FOLD else None
    if axis is None or not (call.result_tensors[0].quantization is None or integer.adds_up(call)):
        return None
    if axis == row_axis(call.shape(0)):
        return "rows"
    return "elements"


def compute(
    call: Call, operands: Sequence[Part | None], out: tuple[Box, ...], opset: int
) -> tuple[np.ndarray, ...]:
    """Values of one box per requested output, each shaped as its box.

    In the types of `call.result_tensors`: integers if the first has a quantization.

    `operands[i]` covers at least `footprints(call, i, out)`; None where an optional input is absent. Inputs
    that are parameters (axes, shapes, ...) are given whole. An empty box gives an empty array. Results may be
    views of the operands. Operators that lfopt does not list are evaluated whole by ONNX's own reference and
    cut.

    Raises IndexError if an operand does not cover what is read, UnsupportedModel if ONNX has no reference for
    the operator.
    Source: the ONNX operator specifications, in their newest version; where they leave open what happens
    (AveragePool with ceil_mode), ONNX Runtime.
    """
    if call.attention is not None:
        return (finish(call, accumulate(call, operands, out[0], opset), operands, out[0]),)
    call = _with_values(call, operands)
    if call.result_tensors[0].quantization is not None:
        return integer.compute(call, operands, out, opset)
    if folding(call) == "input channels":
        box = out[0]
        if is_empty(box):
            return (_empty(call, 0, box),)
        return (finish(call, accumulate(call, operands, box, opset), operands, box),)
    row = row_of(call)
    if row is OPAQUE:
        return tuple(
            value[slices(box)] for value, box in zip(_whole(call, operands, opset), out, strict=True)
        )
    kernel = floating.KERNELS[row.kind]
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    with np.errstate(all="ignore"):
        return tuple(
            _empty(call, k, box)
            if is_empty(box)
            else _typed(kernel(call, operands, box, result), call.result_tensors[k].dtype)
            for k, (result, box) in enumerate(zip(asked, out, strict=True))
        )


def accumulate(
    call: Call, operands: Sequence[Part | None], out: Box, opset: int, inputs: Span | None = None
) -> np.ndarray:
    """Partial sums of box `out`, shaped as it, over as much as is at hand of what is folded; no bias.

    That is (see `folding`) the input channels that operands 0 and 1 both cover (of several groups, within
    each group: `footprint(..., inputs=...)`), or the rows of operand 0. The sums over disjoint spans `merge`
    to what `finish` takes. float32 (float64 for float64 operands, and for means of integers; else the
    operands' own type for integers). Of attention: the state, shaped as `lfopt.ops.attention.state_shape`
    says, of the keys `inputs`; of a normalization: its statistics, shaped as `lfopt.ops.statistics` says.
    """
    if call.attention is not None:
        return attention.accumulate(call, operands, out, inputs, partial(_part, opset))
    if has_statistics(call):
        with np.errstate(all="ignore"):
            return normalizing.accumulate(call, operands, out, needs(call, 0, out, inputs=inputs))
    if call.result_tensors[0].quantization is not None:
        return integer.accumulate(call, operands, out, opset)
    with np.errstate(all="ignore"):
        return floating.accumulate(call, operands, out, opset)


def merge(call: Call, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Partial sums over two disjoint spans as one, of the same shape and type; see `accumulate`."""
    if call.attention is not None:
        return attention.merge(one, other)
    if has_statistics(call):
        with np.errstate(all="ignore"):
            return normalizing.merge(call, one, other)
    row = REDUCTIONS.get(call.operator.kind)
    if row is None:
        return np.add(one, other)
    return row.fold(one, other)


def finish(call: Call, sums: np.ndarray, operands: Sequence[Part | None], out: Box) -> np.ndarray:
    """Values of box `out`, shaped as it, from finished sums.

    That is: bias, alpha and beta, division by a count, and the type of the result. Reads only operand 2; of a
    normalization, the elements of box `out` and what scales them.
    """
    if call.attention is not None:
        return _typed(attention.finish(call, sums, out, partial(_part, 0)), call.result_tensors[0].dtype)
    if call.result_tensors[0].quantization is not None:
        return integer.finish(call, sums, operands, out)
    if has_statistics(call):
        with np.errstate(all="ignore"):
            return _typed(normalizing.finish(call, sums, operands, out), call.result_tensors[0].dtype)
    with np.errstate(all="ignore"):
        return floating.finish(call, sums, operands, out)


def _part(
    opset: int, call: Call, operands: Sequence[Part | None], boxes: tuple[Box, ...]
) -> tuple[np.ndarray, ...]:
    """What a part of an attention computes."""
    return compute(call, operands, boxes, opset)


def _with_values(call: Call, operands: Sequence[Part | None]) -> Call:
    """The call with the values of parameters that are computed, or were not at hand when it was made."""
    parameters = row_of(call).parameters
    if not any(i < len(operands) and operands[i] is not None and call.values[i] is None for i in parameters):
        return call
    given = tuple(
        part.values if i in parameters and part is not None else call.values[i]
        for i, part in enumerate(operands)
    )
    return replace(call, values=given)


def _typed(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "string":
        return values
    return values.astype(dtype, copy=False)


def _empty(call: Call, k: int, box: Box) -> np.ndarray:
    dtype = call.result_tensors[k].dtype
    return np.empty(box_shape(box), object if dtype == "string" else dtype)


def _whole(call: Call, operands: Sequence[Part | None], opset: int) -> tuple[np.ndarray, ...]:
    """All results, by ONNX's own reference, from whole operands."""
    operator = call.operator
    named = (
        f"node {operator.name!r} ({operator.kind}{f', domain {operator.domain}' if operator.domain else ''})"
    )
    if operator.domain not in ("", "ai.onnx") or not onnx.defs.has(operator.kind):
        raise UnsupportedModel(f"{named}: lfopt cannot compute it: the operator is not one of ONNX's own")
    for part, shape in zip(operands, call.shapes, strict=True):
        if part is not None and part.values.shape != shape:
            raise IndexError(
                f"{named}: is evaluated whole, and only {part.box} of an operand of shape {shape} is at hand"
            )
    try:
        return evaluate(operator, [None if part is None else part.values for part in operands], opset)
    except (NotImplementedError, RuntimeError) as error:
        raise UnsupportedModel(
            f"{named}: lfopt cannot compute it, nor can ONNX's reference ({type(error).__name__})"
        ) from error
