"""What it takes to evaluate an operator of constants: an upper bound of steps and memory, from its shapes."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isfinite, prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Tensor
from lfopt.ops import Call, Family, row_of
from lfopt.ops.contraction import MAX_COLUMNS
from lfopt.ops.parameters import einsum_terms
from lfopt.ops.table import OPAQUE
from lfopt.ops.windows import windows

MACS_OF_A_STEP = 8  # of a product by BLAS
PYTHON_STEPS = 1 << 10  # of an element that ONNX's reference implementation visits in a loop of Python
# of the operators that it evaluates and the table does not have, those that it gives to NumPy as a whole
VECTORISED = frozenset("Constant NonZero Range Shape Size Unique".split())
WORKING_BYTES = 8  # of an element that is worked with: float64, int64
TEXT_BYTES = 64  # of a string
# copies of the results that an evaluation has at a time, beside the results; 3 of others
COPIES = {Family.VIEW: 0, Family.MOVE: 0, Family.INDEX: 1, Family.ELEMENTWISE: 2}


class Effort(NamedTuple):
    """An upper bound of what evaluating an operator takes."""

    steps: int  # operations of NumPy on one element
    result_bytes: int  # of memory that its results keep; 0 where they are the operand in another order
    working_bytes: int  # of memory beside operands and results


def effort(call: Call, *, own: bool) -> Effort:
    """What an operator takes whose operands are at hand; `own`: by `lfopt.ops`, or by ONNX's reference."""
    row = row_of(call)
    read = sum(prod(shape) for shape in call.shapes if shape is not None)
    touched = read + sum(map(prod, call.results))
    result_bytes = sum(map(bytes_of, call.result_tensors))
    if not own:
        looped = row is OPAQUE and call.operator.kind not in VECTORISED
        return Effort(
            _visited(call, touched) * (PYTHON_STEPS if looped else 1), result_bytes, 3 * result_bytes
        )
    work = WORK.get(call.operator.kind)
    steps, elements = work(call) if work else (0, 0)
    if row.family in (Family.CONVOLUTION, Family.POOL):
        elements += _unfolded(call)
    steps += touched + row.macs(call) // MACS_OF_A_STEP
    if not work:
        steps += row.flops(call)
    if row.view or row.permutes:
        return Effort(steps, 0, 0)
    copies = COPIES.get(row.family, 3)
    if copies > 2:
        elements += read
    wide = sum(max(bytes_of(tensor), 4 * tensor.elements) for tensor in call.result_tensors)
    return Effort(steps, result_bytes, copies * wide + WORKING_BYTES * elements)


def bytes_of(tensor: Tensor) -> int:
    """Bytes of a tensor's elements in memory."""
    item = TEXT_BYTES if tensor.dtype == "string" else np.dtype(tensor.dtype).itemsize
    return tensor.elements * item


def _visited(call: Call, touched: int) -> int:
    """Elements that the reference implementation visits: pairs of boxes, of NonMaxSuppression."""
    if call.operator.kind == "NonMaxSuppression":
        images, boxes, _ = call.shape(0)
        return images * call.shape(1)[1] * boxes * boxes
    return touched


def _unfolded(call: Call) -> int:
    """Elements of the padded map, of counts and of the matrix that windows unfold into."""
    sliding = windows(call)
    if sliding and sliding[0].transposed:
        return 0
    ends = (window.extent((0, n)) for window, n in zip(sliding, call.result[2:], strict=True))
    padded = prod(call.shape(0)[:2]) * prod(stop - start for start, stop in ends)
    if row_of(call).family is Family.POOL:
        return padded + sum(window.size_out * window.kernel for window in sliding)
    row = prod(call.shape(0)[:2]) * prod(window.kernel for window in sliding) * prod(call.result[3:])
    return padded + max(row, min(row * prod(call.result[2:3]), MAX_COLUMNS))


# -- (steps, elements) beside what every operator takes ------------------------------------------------------

Work = tuple[int, int]


def _pooled(call: Call) -> Work:
    taps = sum(min(window.kernel, window.size) for window in windows(call))
    if len(call.results) > 1:
        taps = prod(min(window.kernel, window.size) for window in windows(call))
    return taps * (prod(call.result) + prod(call.shape(0))), 0


def _einsum(call: Call) -> Work:
    """Along the path on which NumPy contracts its operands, two or more at a time."""
    terms, labels = einsum_terms(call)
    rank = max(
        len(shape) - len(term.replace("...", ""))
        for shape, term in zip(call.shapes, terms, strict=True)
        if shape is not None
    )
    extents: dict[str, int] = {}
    operands: list[frozenset[str]] = []
    for term, shape in zip(terms, call.shapes, strict=True):
        assert shape is not None
        before, _, behind = term.partition("...")
        dots = len(shape) - len(before) - len(behind)
        names = [*before, *(f".{k}" for k in range(rank - dots, rank)), *behind]
        for name, extent in zip(names, shape, strict=True):
            extents[name] = max(extents.get(name, 1), extent)
        operands.append(frozenset(names))
    wanted = frozenset([*labels.replace("...", ""), *(name for name in extents if name[0] == ".")])
    equation = ",".join(terms) + "->" + labels
    path = [tuple(range(len(terms)))]
    if len(terms) > 1:
        # views of one element: only their shapes count
        shaped = [np.broadcast_to(np.float32(0), shape or ()) for shape in call.shapes]
        path = np.einsum_path(equation, *shaped, optimize=True)[0][1:]
    steps = elements = 0
    for taken in path:
        joined = frozenset[str]().union(*(operands[k] for k in taken))
        operands = [names for k, names in enumerate(operands) if k not in taken]
        kept = joined & frozenset[str]().union(wanted, *operands)
        operands.append(kept)
        steps += len(taken) * prod(extents[name] for name in joined)
        elements += prod(extents[name] for name in kept)
    return steps, 2 * elements


def _resize(call: Call) -> Work:
    """One axis after the other, by all the elements that it takes in or makes."""
    elements = prod(max(one, other) for one, other in zip(call.shape(0), call.result, strict=True))
    return 4 * elements, 3 * elements


def _roi_align(call: Call) -> Work:
    """Samples of one region after the other."""
    regions, channels, high, wide = call.result
    counts = [call.attribute("sampling_ratio", 0)] * 2
    boxes = call.values[1]
    if not counts[0] and boxes is not None and boxes.size:
        scaled = np.abs(boxes.astype(np.float64)) * abs(call.attribute("spatial_scale", 1.0))
        most = 2 * float(scaled.max()) + 1
        counts = [ceil(most / bins) if isfinite(most) else 0 for bins in (high, wide)]
    samples = channels * high * wide * prod(max(count, 1) for count in counts)
    return 8 * samples * regions, 8 * samples


def _deformed(call: Call) -> Work:
    images, _, high, wide = call.result
    return 0, 8 * images * high * wide * call.shape(0)[1] * prod(call.shape(1)[2:])


WORK: dict[str, Callable[[Call], Work]] = {
    **dict.fromkeys(["AveragePool", "LpPool", "MaxPool"], _pooled),
    "DeformConv": _deformed,
    "Einsum": _einsum,
    "Resize": _resize,
    "RoiAlign": _roi_align,
}
