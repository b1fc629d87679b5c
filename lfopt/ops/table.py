"""The operator table: one row per ONNX operator that lfopt knows.

A row says everything that fusion, planning and execution ask of an operator: its mapping type, how output rows depend on input rows, its
multiply-accumulates, which inputs are parameters rather than data, and how a single operator may be tiled. Shapes come from ONNX's own inference
(`lfopt.frontend`), values from `lfopt.ops.compute`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import prod

from lfopt.ops import dependence as d
from lfopt.ops.call import Call
from lfopt.ops.rows import RowReads


class Mapping(Enum):
    """Mapping type between input and output elements. Source: DNNFusion (PLDI'21, arXiv 2108.13342), table 2."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"
    REORGANIZE = "reorganize"
    SHUFFLE = "shuffle"


class Tiling(Enum):
    """How a single operator that does not fit the buffer is cut up (see `lfopt.planning.tiles`)."""

    SPLIT = "split"  # by channel or by element: every byte moves once, whatever the buffer
    FOLD = "fold"  # as split; rows that it folds may also come in bands, with partial results kept in between
    CONTRACT = "contract"  # operand 1 (weights, or the second matrix) meets operand 0 in blocks; one of them is re-read
    WHOLE = "whole"  # nothing is known: counted once, never executed piecewise


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What lfopt knows of one operator type."""

    kind: str
    mapping: Mapping
    rows: d.RowRule  # (call, input index) -> RowReads
    tiling: Tiling = Tiling.SPLIT
    macs: Callable[[Call], int] = lambda call: 0  # multiply-accumulates of one inference
    parameters: frozenset[int] = frozenset()  # inputs that are shapes, axes, scales or bounds, never data
    elementwise: bool = False  # may end an epilogue group
    view: bool = False  # renames the same bytes; moves nothing in any plan
    bias: int | None = None  # index of the bias operand

    def reads(self, call: Call, index: int) -> RowReads:
        """Rows of input `index` that each output row reads."""
        return self.rows(call, index)


O2O, O2M, M2M, REORGANIZE, SHUFFLE = Mapping
SPLIT, FOLD, CONTRACT, WHOLE = Tiling


def _conv_macs(call: Call) -> int:
    """Output elements x kernel elements of one output channel."""
    return prod(call.result) * prod(call.shape(1)[1:])


def _conv_transpose_macs(call: Call) -> int:
    """Input elements x kernel elements that each is scattered to."""
    return prod(call.shape(0)) * prod(call.shape(1)[1:])


def _gemm_macs(call: Call) -> int:
    a = call.shape(0)
    return prod(call.result) * (a[0] if call.attribute("transA", 0) else a[1])


def _matmul_macs(call: Call) -> int:
    return prod(call.result) * call.shape(0)[-1]


def _elementwise(mapping: Mapping, kinds: str, **options: object) -> list[OpSpec]:
    return [OpSpec(kind, mapping, d.broadcast, elementwise=True, **options) for kind in kinds.split()]  # type: ignore[arg-type]


def _same(mapping: Mapping, rows: d.RowRule, kinds: str, **options: object) -> list[OpSpec]:
    return [OpSpec(kind, mapping, rows, **options) for kind in kinds.split()]  # type: ignore[arg-type]


def _parameters(*indices: int) -> frozenset[int]:
    return frozenset(indices)


_ROWS: list[OpSpec] = [
    # elementwise: one input
    *_elementwise(O2O, "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN LeakyRelu"),
    *_elementwise(O2O, "Log Mish Neg Not BitwiseNot Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh"),
    *_elementwise(O2O, "ThresholdedRelu Celu Cast CastLike", parameters=_parameters(1)),
    *_elementwise(O2O, "Clip", parameters=_parameters(1, 2)),
    # elementwise: several inputs, broadcast
    *_elementwise(O2O, "Add Sub Mul Div Pow Mod Max Min Mean Sum And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift"),
    *_elementwise(O2O, "Equal Greater GreaterOrEqual Less LessOrEqual Where PRelu"),
    OpSpec("BatchNormalization", O2O, d.first_input_broadcast, elementwise=True),
    OpSpec("QuantizeLinear", O2O, d.first_input_broadcast, elementwise=True, parameters=_parameters(1, 2)),
    OpSpec("DequantizeLinear", O2O, d.first_input_broadcast, elementwise=True, parameters=_parameters(1, 2)),
    # contractions
    OpSpec("Conv", M2M, d.convolution, CONTRACT, _conv_macs, bias=2),
    OpSpec("ConvTranspose", M2M, d.convolution, CONTRACT, _conv_transpose_macs, bias=2),
    OpSpec("Gemm", M2M, d.everything, CONTRACT, _gemm_macs, bias=2),
    OpSpec("MatMul", M2M, d.matmul, CONTRACT, _matmul_macs),
    OpSpec("Einsum", M2M, d.everything, WHOLE),
    # pooling and reductions
    *_same(M2M, d.convolution, "AveragePool MaxPool LpPool"),
    *_same(M2M, d.everything, "GlobalAveragePool GlobalMaxPool GlobalLpPool", tiling=FOLD),
    *_same(M2M, d.reduction, "ReduceL1 ReduceL2 ReduceLogSum ReduceMax ReduceMean", tiling=FOLD, parameters=_parameters(1)),
    *_same(M2M, d.reduction, "ReduceMin ReduceProd ReduceSum ReduceSumSquare", tiling=FOLD, parameters=_parameters(1)),
    OpSpec("ReduceLogSumExp", M2M, d.reduction, parameters=_parameters(1)),
    *_same(M2M, d.along_axis(0), "ArgMax ArgMin"),
    *_same(M2M, d.along_axis(-1), "Softmax LogSoftmax Hardmax"),
    *_same(M2M, d.along_axis(-1, to_the_end=True), "LayerNormalization RMSNormalization"),
    OpSpec("LpNormalization", M2M, d.along_axis(-1)),
    OpSpec("LRN", M2M, d.along_axis(1)),
    *_same(M2M, d.everything, "InstanceNormalization GroupNormalization MeanVarianceNormalization"),
    OpSpec("CumSum", M2M, d.everything, parameters=_parameters(1)),
    OpSpec("TopK", M2M, d.everything, parameters=_parameters(1)),
    # moving elements without arithmetic
    OpSpec("Concat", O2O, d.concat),
    OpSpec("Split", O2O, d.split, parameters=_parameters(1)),
    OpSpec("Slice", O2O, d.slice_, parameters=_parameters(1, 2, 3, 4)),
    OpSpec("Pad", O2O, d.pad, parameters=_parameters(1, 2, 3)),
    OpSpec("Expand", O2M, d.broadcast, parameters=_parameters(1)),
    OpSpec("Tile", O2M, d.tile, parameters=_parameters(1)),
    OpSpec("Resize", O2M, d.resize, parameters=_parameters(1, 2, 3)),
    OpSpec("Gather", O2M, d.gather),
    *_same(O2M, d.everything, "GatherElements GatherND ScatterElements ScatterND", tiling=WHOLE),
    OpSpec("Trilu", O2O, d.broadcast, parameters=_parameters(1)),
    *_same(SHUFFLE, d.transpose, "Transpose"),
    OpSpec("DepthToSpace", SHUFFLE, d.depth_to_space),
    OpSpec("SpaceToDepth", SHUFFLE, d.space_to_depth),
    # views
    *_same(REORGANIZE, d.everything, "Reshape Squeeze Unsqueeze", view=True, parameters=_parameters(1)),
    *_same(REORGANIZE, d.everything, "Flatten", view=True),
    *_same(O2O, d.everything, "Identity", view=True),
    *_same(O2O, d.everything, "Dropout", view=True, parameters=_parameters(1, 2)),
]
TABLE: dict[str, OpSpec] = {row.kind: row for row in _ROWS}
OPAQUE = OpSpec("opaque", M2M, d.everything, WHOLE)  # an operator that lfopt does not know: all rows, always alone


def spec(kind: str, domain: str = "") -> OpSpec:
    """The table's row for an operator type; `OPAQUE` for one that is not listed."""
    return TABLE.get(kind, OPAQUE) if domain in ("", "ai.onnx") else OPAQUE
