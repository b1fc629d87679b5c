"""Arithmetic in the tensors' own types (floats, plain integers, booleans): a NumPy function per operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lfopt.ir import Box
from lfopt.ops import indexing, moving, pooling, reducing, sampling
from lfopt.ops.call import Call
from lfopt.ops.contraction import RESULTS, SUMS
from lfopt.ops.elementwise import KINDS, elementwise
from lfopt.ops.part import Operands
from lfopt.ops.resizing import resize

# (call, operands, box of the ONNX output, index of that output) -> values of the box
Kernel = Callable[[Call, Operands, Box, int], np.ndarray]

KERNELS: dict[str, Kernel] = {
    **dict.fromkeys(KINDS, elementwise),
    **dict.fromkeys(reducing.REDUCTIONS, reducing.reduction),
    **dict.fromkeys(["ArgMax", "ArgMin"], reducing.arg_reduction),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax"], reducing.softmax),
    **dict.fromkeys(["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"], moving.view),
    "AveragePool": pooling.average_pool,
    "BatchNormalization": reducing.batch_normalization,
    "BitCast": moving.bit_cast,
    "Concat": moving.concat,
    **dict.fromkeys(reducing.CUMULATIVE, reducing.cumulative),
    "DeformConv": sampling.deform_conv,
    "DepthToSpace": moving.depth_to_space,
    "DequantizeLinear": moving.dequantize,
    "Einsum": moving.einsum,
    "Expand": moving.expand,
    "Gather": moving.gather,
    "GatherElements": indexing.gather_elements,
    "GatherND": indexing.gather_nd,
    "GroupNormalization": reducing.group_normalization,
    "InstanceNormalization": reducing.instance_normalization,
    "LRN": reducing.local_response,
    "LayerNormalization": reducing.layer_normalization,
    "LpNormalization": reducing.lp_normalization,
    "LpPool": pooling.lp_pool,
    "MaxPool": pooling.max_pool,
    "MeanVarianceNormalization": reducing.mean_variance_normalization,
    "Pad": moving.pad,
    "QuantizeLinear": moving.quantize,
    "RMSNormalization": reducing.rms_normalization,
    "ReduceLogSumExp": reducing.log_sum_exp,
    "Resize": resize,
    "RoiAlign": sampling.roi_align,
    "ScatterElements": indexing.scatter_elements,
    "ScatterND": indexing.scatter_nd,
    "Slice": moving.slice_,
    "SpaceToDepth": moving.space_to_depth,
    "Split": moving.same_place,
    "Tile": moving.tile,
    "TopK": reducing.top_k,
    "Transpose": moving.transpose,
    "Trilu": moving.trilu,
    # contractions: SUMS and RESULTS of `lfopt.ops.contraction`
}


def accumulate(call: Call, operands: Operands, out: Box, opset: int) -> np.ndarray:
    """Partial sums of box `out`, shaped as it: float32 for narrower types, else in the operands' own."""
    return SUMS.get(call.operator.kind, reducing.partial_reduction)(call, operands, out)


def finish(call: Call, sums: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    """Results from finished sums, shaped as box `out`, in the result's type."""
    finished = RESULTS.get(call.operator.kind, reducing.finished_reduction)(call, sums, operands, out)
    return finished.astype(call.result_tensors[0].dtype, copy=False)
