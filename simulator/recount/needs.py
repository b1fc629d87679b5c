"""Which part of an operand a part of a result needs, axis by axis, for many parts at once.

Rows follow the row rules of the operator table. The other axes are said here, for contractions, pools, elementwise operators, Concat and Pad; for all
others they are left open (None): of what those read, only rows are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lfopt.ir import row_axis
from lfopt.ops.call import Call
from lfopt.ops.dependence import spatial_window
from lfopt.ops.parameters import pad_amounts
from lfopt.ops.table import spec
from simulator.recount.network import Network, Read
from simulator.recount.progressions import Ints

Part = tuple[Ints, Ints]  # along one axis, for many boxes: start, stop


@dataclass(frozen=True)
class Result:
    """Boxes of an operator's results, in many runs of one step."""

    axes: tuple[Part, ...]  # of the first result
    rows: Part  # of all results together
    inputs: Part  # input channels that the step reads, of a contraction


Rule = Callable[[Result], Part]


def operand_rules(net: Network, read: Read, call: Call, *, seen: bool) -> tuple[Rule | None, ...]:
    """Per axis of a map that an operator reads, as it sees it or as the map behind: what it needs of it."""
    shape = net.graph.shape(read.seen if seen else read.map)
    known = seen or net.graph.shape(read.seen) == shape
    rules: list[Rule | None] = [*_rules(call, read.index)] if known and len(call.results) == 1 else [None] * len(shape)
    axis = row_axis(shape)
    if axis is not None and not (known and _summed(call, read.index, axis)):
        first, last = (read.first_seen, read.last_seen) if seen else (read.first, read.last)
        rules[axis] = partial(_rows, np.array(first, np.int64), np.array(last, np.int64) + 1)
    return tuple(rules)


def constant_rules(call: Call, index: int) -> tuple[Rule | None, ...]:
    """Per axis of a constant that an operator reads: what it needs of it."""
    return _rules(call, index) if len(call.results) == 1 else (None,) * len(call.shape(index))


def input_channels(call: Call) -> int:
    """Input channels that one output element of a contraction sums over; 0 of other operators."""
    kind = call.operator.kind
    if kind == "Conv":
        return call.shape(1)[1]
    if kind == "ConvTranspose":
        return call.shape(0)[1] // call.attribute("group", 1)
    if kind == "Gemm":
        return call.shape(0)[0 if call.attribute("transA", 0) else 1]
    return call.shape(0)[-1] if kind == "MatMul" else 0


# -- rules -----------------------------------------------------------------------------------------------------------------------------------


def _rows(first: Ints, stop: Ints, result: Result) -> Part:
    return _hull(first, stop, *result.rows)


def _hull(first: Ints, stop: Ints, start: Ints, end: Ints) -> Part:
    """Lowest `first` and highest `stop` among indices start .. end - 1, for many of them."""
    low, high = np.zeros_like(start), np.zeros_like(start)
    for extent in np.unique(end - start):
        here = end - start == extent
        if extent > 0:
            low[here] = np.lib.stride_tricks.sliding_window_view(first, extent).min(axis=1)[start[here]]
            high[here] = np.lib.stride_tricks.sliding_window_view(stop, extent).max(axis=1)[start[here]]
    return low, high


def _same(axis: int, result: Result) -> Part:
    return result.axes[axis]


def _whole(extent: int, result: Result) -> Part:
    return np.zeros_like(result.rows[0]), np.full_like(result.rows[0], extent)


def _inputs(result: Result) -> Part:
    return result.inputs


def _grouped(outputs: int, inputs: int, result: Result) -> Part:
    """Input channels of the groups (of so many output and input channels) that some output channels belong to."""
    (start, stop), (low, high) = result.axes[1], result.inputs
    return start // outputs * inputs + low, (stop - 1) // outputs * inputs + high


def _shifted(offset: int, extent: int, axis: int, result: Result) -> Part:
    """What lies `offset` further along, as far as there is anything; it may be nothing."""
    start, stop = result.axes[axis]
    return np.maximum(start - offset, 0), np.minimum(stop - offset, extent)


def _window(first: Ints, stop: Ints, axis: int, result: Result) -> Part:
    return _hull(first, stop, *result.axes[axis])


def _broadcast(shape: tuple[int, ...], rank: int, behind: int = 0) -> list[Rule]:
    """NumPy's rule, for an operand (or its first axes) that meets the result's axes but the last `behind`."""
    offset = rank - behind - len(shape)
    return [partial(_whole, 1) if extent == 1 else partial(_same, offset + axis) for axis, extent in enumerate(shape)]


def _spatial(call: Call) -> list[Rule]:
    found: list[Rule] = []
    for axis in range(len(call.result) - 2):
        reads = spatial_window(call, axis)
        found.append(partial(_window, np.array(reads.first, np.int64), np.array(reads.last, np.int64) + 1, axis + 2))
    return found


def _wholes(shape: Sequence[int]) -> list[Rule]:
    return [partial(_whole, extent) for extent in shape]


def _rules(call: Call, index: int) -> tuple[Rule | None, ...]:
    kind, shape, rank = call.operator.kind, call.shape(index), len(call.result)
    if kind == "Conv":
        groups = call.attribute("group", 1)
        data = [partial(_same, 0), partial(_grouped, call.result[1] // groups, call.shape(1)[1]), *_spatial(call)]
        return tuple((data, [partial(_same, 1), _inputs, *_wholes(shape[2:])], [partial(_same, 1)])[index])
    if kind == "ConvTranspose":
        groups = call.attribute("group", 1)
        data = [partial(_same, 0), partial(_grouped, call.result[1] // groups, call.shape(0)[1] // groups), *_spatial(call)]
        weights = [_inputs, partial(_same, 1), *_wholes(shape[2:])] if groups == 1 else [None] * len(shape)
        return tuple((data, weights, [partial(_same, 1)])[index])
    if kind == "Gemm":
        turned = call.attribute("transA" if index == 0 else "transB", 0)
        pairs = ([partial(_same, 0), _inputs], [_inputs, partial(_same, 1)])
        return tuple(_broadcast(shape, rank) if index == 2 else pairs[index][::-1] if turned else pairs[index])
    if kind == "MatMul":
        own = tuple(len(call.shape(k)) > 1 for k in range(2))
        batch = _broadcast(shape[:-2], rank, sum(own))
        if index == 0:
            return (*batch, partial(_same, rank - 1 - own[1]), _inputs) if own[0] else (_inputs,)
        return (*batch, _inputs, partial(_same, rank - 1)) if own[1] else (_inputs,)
    if kind in ("MaxPool", "AveragePool", "LpPool"):
        return (partial(_same, 0), partial(_same, 1), *_spatial(call))
    if kind in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        return (partial(_same, 0), partial(_same, 1), *_wholes(shape[2:]))
    if kind == "Concat":
        axis = call.attribute("axis", 0) % rank
        offset = sum(call.shape(k)[axis] for k in range(index))
        return tuple(partial(_shifted, offset, shape[k], k) if k == axis else partial(_same, k) for k in range(rank))
    if kind == "Pad" and index == 0 and call.attribute("mode", "constant") == "constant" and (amounts := pad_amounts(call)):
        return tuple(partial(_shifted, before, shape[k], k) for k, (before, _) in enumerate(amounts))
    if kind == "BatchNormalization" and index > 0:
        return (partial(_same, 1),)
    return tuple(_broadcast(shape, rank)) if spec(kind, call.operator.domain).elementwise else (None,) * len(shape)


def _summed(call: Call, index: int, axis: int) -> bool:
    """Whether a contraction sums over this axis of an operand."""
    return index < 2 and input_channels(call) > 0 and _rules(call, index)[axis] is _inputs
