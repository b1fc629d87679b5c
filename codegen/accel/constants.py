"""Weights and biases as the accelerator reads them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from codegen.source import Unsupported
from lfopt.ir import Box, MissingValues, Span
from lfopt.ops import Call, Family, row_of
from lfopt.ops.scaling import bias
from lfopt.planning.accelerator.commands import is_depthwise, phases


@dataclass(frozen=True, slots=True)
class Chunk:
    """The weights of a span of input channels, inside a block that is loaded."""

    inputs: Span
    offset: int  # bytes from the start of the block
    block_bytes: int  # of one block of output channels
    phase: int = 0  # of a ConvTranspose: which of its convolutions


def matrix(call: Call) -> np.ndarray:
    """(output channels, input channels, kernel rows, columns) stored integers: weights of a contraction.

    Raises MissingValues for a model without weights.
    """
    values = call.values[1]
    if values is None:
        raise MissingValues(
            f"constant {call.operator.inputs[1]!r}: its values are absent from the model; give a model with "
            "weights"
        )
    if call.operator.kind == "Conv":
        return values
    if call.operator.kind == "ConvTranspose":
        return values.transpose(1, 0, 2, 3)
    transposed = call.operator.kind == "Gemm" and bool(call.attribute("transB", 0))
    return (values if transposed else values.T)[:, :, None, None]


def spans_of(call: Call, box: Box) -> tuple[Span, Span]:
    """(output channels, input channels) of a box of a contraction's weights."""
    if call.operator.kind == "Conv" or (call.operator.kind == "Gemm" and call.attribute("transB", 0)):
        return box[0], box[1]
    return box[1], box[0]


def arranged(call: Call, box: Box, spans: Collection[Span], lanes: int) -> tuple[bytes, list[Chunk]]:
    """A loaded block of weights in the order in which the MAC array takes it, and the chunks that it has.

    `box`: of the constant; `spans`: of input channels that single computations fold, all of the box if they
    fold everything. Each chunk has the weights of one span. Raises Unsupported for spans that overlap.
    """
    (first, stop), (low, high) = spans_of(call, box)
    weights = matrix(call)[first:stop].view(np.uint8)
    if is_depthwise(call):
        packed = [
            weights[o : o + lanes, 0].transpose(1, 2, 0).tobytes() for o in range(0, stop - first, lanes)
        ]
        kernel = weights.shape[2] * weights.shape[3]
        return b"".join(packed), [Chunk((0, 1), 0, kernel * lanes)]
    if call.operator.kind == "Conv" and call.attribute("group", 1) > 1:
        blocks = [
            weights[o - first : end - first].transpose(2, 3, 1, 0).tobytes()
            for o, end in pieces_of_groups(call, (first, stop), lanes)
        ]
        return b"".join(blocks), [Chunk((low, high), 0, weights[0].size * lanes)]
    chunks: list[Chunk] = []
    pieces: list[bytes] = []
    inside = sorted({(max(a, low), min(b, high)) for a, b in spans if max(a, low) < min(b, high)}) or [
        (low, high)
    ]
    if any(a[1] > b[0] for a, b in pairwise(inside)):
        raise Unsupported(
            f"node {call.operator.name!r} ({call.operator.kind}): its steps fold spans of input channels "
            f"that overlap: {inside}"
        )
    offset = 0
    if call.operator.kind == "ConvTranspose":
        kernels = [phase.kernel for phase in phases(call)]
    else:
        kernels = [(range(weights.shape[2]), range(weights.shape[3]))]
    for (a, b), (number, (rows, columns)) in product(inside, enumerate(kernels)):
        # [o, i, ky, kx] of the whole input axis
        part = weights[:, a:b][:, :, list(rows)][:, :, :, list(columns)]
        chunks.append(Chunk((a, b), offset, len(rows) * len(columns) * (b - a) * lanes, number))
        for o in range(0, len(part), lanes):
            # [ky, kx, i, o]: narrow or not, input channels follow each other
            block = part[o : o + lanes].transpose(2, 3, 1, 0)
            pieces.append(block.tobytes())
            offset += block.size
    return b"".join(pieces), chunks


def pieces_of_groups(call: Call, channels: Span, lanes: int) -> list[Span]:
    """Output channels of a grouped convolution, cut where groups and blocks of lanes begin."""
    per_group = call.result[1] // call.attribute("group", 1)
    cuts = {*range(0, channels[1], lanes), *range(0, channels[1], per_group)}
    return list(pairwise([channels[0], *sorted(cut for cut in cuts if channels[0] < cut), channels[1]]))


def bias_bytes(call: Call, span: Span) -> bytes:
    """The bias of some output channels, int32 in units of the sums."""
    channels = call.result[1]
    values = bias(call)
    axis = 1 if row_of(call).family is Family.CONVOLUTION else -1
    flat = np.broadcast_to(
        values.reshape(-1) if axis == 1 and values.ndim else values,
        channels if axis == 1 else (*values.shape[:-1], channels),
    )
    return flat.reshape(-1)[span[0] : span[1]].astype("<i4").tobytes()
