"""The operator table: one row per ONNX operator that lfopt knows.

A row says everything that fusion, planning, rewriting and execution ask of an operator: how output rows and
boxes depend on input rows and boxes, what it costs, which inputs are parameters rather than data, how a
single operator may be tiled, and traits by which operators are treated alike. Other modules read the row and
keep no sets of operators of their own. Shapes come from ONNX's own inference (`lfopt.frontend`); values from
`lfopt.ops.compute`, C and commands from the tables of the back ends (docs/adding-an-operator.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from lfopt.ops import attention as a
from lfopt.ops import boxes as b
from lfopt.ops import counts as n
from lfopt.ops import dependence as d
from lfopt.ops.call import Call
from lfopt.ops.rows import RowReads
from lfopt.ops.traits import Arithmetic, Family, Mapping, Pattern, Range, Tiling

__all__ = ["ATTENTION", "OPAQUE", "TABLE", "Mapping", "OpSpec", "Tiling", "row_of", "spec"]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What lfopt knows of one operator type."""

    kind: str
    family: Family
    mapping: Mapping
    rows: d.RowRule  # (call, input index) -> RowReads
    box: b.BoxRule
    tiling: Tiling = Tiling.SPLIT
    pattern: Pattern = Pattern.OPAQUE
    # on quantised maps, where operands allow it (see `integer.arithmetic`)
    integers: Arithmetic = Arithmetic.FLOAT
    macs: n.Count = n.none  # multiply-accumulates of one inference
    flops: n.Count = n.none  # floating-point operations of one inference, of what has no multiply-accumulates
    parameters: frozenset[int] = frozenset()  # inputs that are shapes, axes, scales or bounds, never data
    bias: int | None = None  # index of the bias operand
    # axis of the channels that it works on or makes: 1 of [n, c, ...], -1 of the columns of a matrix
    channel_axis: int | None = None
    # each input element is scattered over the window, instead of each output element being gathered from it
    transposed: bool = False
    passes: int = 1  # over the elements, on vector lanes
    range: Range | None = None  # of all elements of the result

    @property
    def elementwise(self) -> bool:
        """Whether it may end an epilogue group."""
        return self.family is Family.ELEMENTWISE

    @property
    def view(self) -> bool:
        """Whether it renames the same bytes, and moves nothing in any plan."""
        return self.family is Family.VIEW

    @property
    def slides(self) -> bool:
        """Whether each output element is made from a window of the input."""
        return self.family in (Family.CONVOLUTION, Family.POOL) and not self.transposed

    @property
    def picks(self) -> bool:
        """Whether every element of the result is an element of operand 0."""
        return (
            self.integers in (Arithmetic.MOVE, Arithmetic.EXTREME) and self.family is not Family.INTERPOLATION
        )

    @property
    def permutes(self) -> bool:
        """Whether it permutes axes: a box of the result needs just that box of the operand.

        That is so even where rows become something else.
        """
        return self.kind == "Transpose"

    def reads(self, call: Call, index: int) -> RowReads:
        """Rows of input `index` that each output row reads."""
        if call.too_tall:
            return d.everything(call, index)
        return self.rows(call, index)


O2O, O2M, M2M, REORGANIZE, SHUFFLE = Mapping
SPLIT, FOLD, CONTRACT, ATTEND, WHOLE = Tiling
UNARY, BROADCAST, INJECTIVE, REDUCING, COMPLEX, NOT_FUSED = Pattern
SUMS, TABLED, TERMS, PRODUCT, SLOPES, MEAN, EXTREME, CHOICE, MOVE, FLOAT = Arithmetic
ELEMENTWISE, CONVOLUTION, MATRICES, POOL, REDUCTION, ARG, NORMAL, MOVES, INDEX, INTERPOLATION, VIEW, OTHER = (
    Family
)
ONE = n.per_result(1)
TWO = n.per_result(2)
POSITIVE = Range(0, inf, zero_at_zero=True)
SYMMETRIC = Range(-1, 1, zero_at_zero=True)


def _inputs(*indices: int) -> frozenset[int]:
    return frozenset(indices)


def _unary(
    kinds: str, flops: n.Count = ONE, bounds: Range | None = None, parameters: frozenset[int] = frozenset()
) -> OpSpec:
    """One operand that elements are functions of."""
    return OpSpec(
        kinds,
        ELEMENTWISE,
        O2O,
        d.broadcast,
        b.broadcast,
        pattern=UNARY,
        flops=flops,
        integers=TABLED,
        range=bounds,
        parameters=parameters,
    )


def _binary(kinds: str, flops: n.Count = ONE, integers: Arithmetic = FLOAT) -> OpSpec:
    """Several operands, broadcast."""
    return OpSpec(
        kinds, ELEMENTWISE, O2O, d.broadcast, b.broadcast, pattern=BROADCAST, flops=flops, integers=integers
    )


_ROWS = (  # several operators in one row differ in their values alone
    # elementwise: one input
    _unary(
        "Abs Asinh Atanh BitwiseNot Ceil Celu Elu Floor IsInf IsNaN LeakyRelu "
        "Log Neg Not Reciprocal Relu Round Selu Sinh Sqrt Tan ThresholdedRelu",
    ),
    _unary("Acos", bounds=Range(0, 3.15)),
    _unary("Acosh", bounds=Range(0)),
    _unary("Asin Atan", bounds=Range(-1.58, 1.58, zero_at_zero=True)),
    _unary("Cos Sin", bounds=Range(-1, 1)),
    _unary("Cosh", bounds=Range(1)),
    _unary("Erf Sign Tanh", bounds=SYMMETRIC),
    _unary("Exp", bounds=Range(0, nonzero=True)),
    _unary("Gelu", n.gelu, Range(-0.18)),
    _unary("HardSigmoid", n.per_result(3), Range(0, 1)),
    _unary("HardSwish", n.per_result(4), Range(-0.375)),
    _unary("Mish", n.per_result(3)),
    _unary("Shrink Swish", TWO),
    _unary("Sigmoid", bounds=Range(0, 1, nonzero=True)),
    _unary("Softplus", n.per_result(3), Range(0, nonzero=True)),
    _unary("Softsign", n.per_result(3), SYMMETRIC),
    _unary("Cast CastLike", n.none, parameters=_inputs(1)),
    _unary("Clip", parameters=_inputs(1, 2)),
    # elementwise: several inputs, broadcast
    _binary("Add Sub", integers=TERMS),
    _binary("Sum", n.combined, TERMS),
    _binary("Mean", n.averaged, TERMS),
    _binary("Mul", integers=PRODUCT),
    _binary("PRelu", integers=SLOPES),
    _binary("Max Min", n.combined, CHOICE),
    _binary("Where", integers=CHOICE),
    _binary(
        "Div Pow Mod And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift "
        "Equal Greater GreaterOrEqual Less LessOrEqual",
    ),
    OpSpec(
        "BatchNormalization", ELEMENTWISE, O2O, d.first_input_broadcast, b.per_channel, pattern=BROADCAST,
        flops=ONE, channel_axis=1,
    ),
    OpSpec(
        "QuantizeLinear", ELEMENTWISE, O2O, d.first_input_broadcast, b.same, pattern=BROADCAST,
        integers=TABLED, flops=ONE, parameters=_inputs(1, 2),
    ),
    OpSpec(
        "DequantizeLinear", ELEMENTWISE, O2O, d.first_input_broadcast, b.same, pattern=BROADCAST,
        flops=ONE, parameters=_inputs(1, 2),
    ),
    # contractions
    OpSpec(
        "Conv", CONVOLUTION, M2M, d.convolution, b.conv, CONTRACT, COMPLEX, SUMS, n.conv_macs, bias=2,
        channel_axis=1,
    ),
    OpSpec(
        "ConvTranspose", CONVOLUTION, M2M, d.convolution, b.conv_transpose, CONTRACT, COMPLEX, SUMS,
        n.conv_transpose_macs, bias=2, channel_axis=1, transposed=True,
    ),
    OpSpec(
        "Gemm", MATRICES, M2M, d.everything, b.gemm, CONTRACT, COMPLEX, SUMS, n.gemm_macs, bias=2,
        channel_axis=-1,
    ),
    OpSpec(
        "MatMul", MATRICES, M2M, d.matmul, b.matmul, CONTRACT, COMPLEX, SUMS, n.matmul_macs, channel_axis=-1,
    ),
    OpSpec("Einsum", OTHER, M2M, d.everything, b.einsum, WHOLE),
    OpSpec("DeformConv", OTHER, M2M, d.everything, b.deform_conv, WHOLE, flops=n.deformed),
    OpSpec("RoiAlign", OTHER, M2M, d.everything, b.roi_align, WHOLE),
    # pools and reductions
    OpSpec(
        "AveragePool", POOL, M2M, d.convolution, b.pool, SPLIT, COMPLEX, MEAN, flops=n.windowed,
        channel_axis=1,
    ),
    OpSpec(
        "MaxPool", POOL, M2M, d.convolution, b.pool, SPLIT, COMPLEX, EXTREME, flops=n.windowed,
        channel_axis=1,
    ),
    OpSpec(
        "LpPool", POOL, M2M, d.convolution, b.pool, SPLIT, COMPLEX, flops=n.windowed, channel_axis=1,
    ),
    OpSpec(
        "GlobalAveragePool", REDUCTION, M2M, d.everything, b.reduce, FOLD, COMPLEX, MEAN,
        flops=n.per_operand(1), channel_axis=1,
    ),
    OpSpec(
        "GlobalMaxPool", REDUCTION, M2M, d.everything, b.reduce, FOLD, COMPLEX, EXTREME,
        flops=n.per_operand(1), channel_axis=1,
    ),
    OpSpec("GlobalLpPool", REDUCTION, M2M, d.everything, b.reduce, FOLD, COMPLEX, channel_axis=1),
    OpSpec(
        "ReduceMean", REDUCTION, M2M, d.reduction, b.reduce, FOLD, COMPLEX, MEAN, flops=n.per_operand(1),
        parameters=_inputs(1),
    ),
    OpSpec(
        "ReduceSum", REDUCTION, M2M, d.reduction, b.reduce, FOLD, REDUCING, MEAN, flops=n.per_operand(1),
        parameters=_inputs(1),
    ),
    OpSpec(
        "ReduceMax ReduceMin", REDUCTION, M2M, d.reduction, b.reduce, FOLD, REDUCING, EXTREME,
        flops=n.per_operand(1), parameters=_inputs(1),
    ),
    OpSpec(
        "ReduceProd", REDUCTION, M2M, d.reduction, b.reduce, FOLD, REDUCING, flops=n.per_operand(1),
        parameters=_inputs(1),
    ),
    OpSpec(
        "ReduceL1 ReduceSumSquare", REDUCTION, M2M, d.reduction, b.reduce, FOLD, REDUCING,
        flops=n.per_operand(2), parameters=_inputs(1), range=POSITIVE,
    ),
    OpSpec(
        "ReduceL2", REDUCTION, M2M, d.reduction, b.reduce, FOLD, REDUCING, flops=n.per_operand(2, 1),
        parameters=_inputs(1), range=POSITIVE,
    ),
    OpSpec(
        "ReduceLogSum", REDUCTION, M2M, d.reduction, b.reduce, FOLD, flops=n.per_operand(1, 1),
        parameters=_inputs(1),
    ),
    OpSpec(
        "ReduceLogSumExp", REDUCTION, M2M, d.reduction, b.reduce, flops=n.per_operand(2, 1),
        parameters=_inputs(1),
    ),
    OpSpec("ArgMax ArgMin", ARG, M2M, d.along_axis(0), b.arg_reduce, pattern=COMPLEX),
    OpSpec("CumProd CumSum", OTHER, M2M, d.everything, b.cumulative, parameters=_inputs(1)),
    OpSpec("TopK", OTHER, M2M, d.everything, b.along(-1), integers=MOVE, parameters=_inputs(1)),
    # normalisations: a maximum or a sum, a sum of exponentials or squares, the scaling
    OpSpec(
        "Softmax", NORMAL, M2M, d.along_axis(-1), b.along(-1), pattern=COMPLEX, flops=n.per_result(3),
        passes=3, range=Range(0, 1, nonzero=True),
    ),
    OpSpec(
        "LogSoftmax", NORMAL, M2M, d.along_axis(-1), b.along(-1), pattern=COMPLEX, flops=n.per_result(3),
        passes=3, range=Range(high=0),
    ),
    OpSpec("Hardmax", NORMAL, M2M, d.along_axis(-1), b.along(-1)),
    OpSpec(
        "LayerNormalization", NORMAL, M2M, d.along_axis(-1, to_the_end=True), b.normalized, pattern=COMPLEX,
        flops=n.scaled(5), passes=3,
    ),
    OpSpec(
        "RMSNormalization", NORMAL, M2M, d.along_axis(-1, to_the_end=True), b.normalized, flops=n.scaled(3),
        passes=3,
    ),
    OpSpec("LpNormalization", NORMAL, M2M, d.along_axis(-1), b.along(-1), passes=3),
    OpSpec("LRN", NORMAL, M2M, d.along_axis(1), b.local_response, channel_axis=1, passes=3),
    OpSpec("InstanceNormalization", NORMAL, M2M, d.everything, b.spatial, channel_axis=1, passes=3),
    OpSpec("GroupNormalization", NORMAL, M2M, d.everything, b.group_normalization, channel_axis=1, passes=3),
    OpSpec("MeanVarianceNormalization", NORMAL, M2M, d.everything, b.mean_variance, passes=3),
    # moving elements without arithmetic
    OpSpec("BitCast", MOVES, O2O, d.broadcast, b.broadcast, pattern=UNARY),
    OpSpec("Concat", MOVES, O2O, d.concat, b.concat, pattern=INJECTIVE, integers=CHOICE),
    OpSpec("Split", MOVES, O2O, d.split, b.split, pattern=INJECTIVE, integers=MOVE, parameters=_inputs(1)),
    OpSpec(
        "Slice", MOVES, O2O, d.slice_, b.slice_, pattern=INJECTIVE, integers=MOVE,
        parameters=_inputs(1, 2, 3, 4),
    ),
    OpSpec("Pad", MOVES, O2O, d.pad, b.pad, pattern=INJECTIVE, integers=CHOICE, parameters=_inputs(1, 2, 3)),
    OpSpec(
        "Expand", MOVES, O2M, d.broadcast, b.broadcast, pattern=BROADCAST, integers=MOVE,
        parameters=_inputs(1),
    ),
    OpSpec("Tile", MOVES, O2M, d.tile, b.tile, pattern=INJECTIVE, integers=MOVE, parameters=_inputs(1)),
    OpSpec("Gather", MOVES, O2M, d.gather, b.gather, pattern=INJECTIVE, integers=MOVE),
    OpSpec("Transpose", MOVES, SHUFFLE, d.transpose, b.transpose, pattern=INJECTIVE, integers=MOVE),
    OpSpec(
        "DepthToSpace", MOVES, SHUFFLE, d.depth_to_space, b.depth_to_space, pattern=INJECTIVE,
        integers=MOVE, channel_axis=1,
    ),
    OpSpec(
        "SpaceToDepth", MOVES, SHUFFLE, d.space_to_depth, b.space_to_depth, pattern=INJECTIVE,
        integers=MOVE, channel_axis=1,
    ),
    OpSpec(
        "Resize", INTERPOLATION, O2M, d.resize, b.resize, pattern=INJECTIVE, integers=MOVE,
        parameters=_inputs(1, 2, 3), channel_axis=1,
    ),
    OpSpec("Trilu", OTHER, O2O, d.broadcast, b.broadcast, pattern=INJECTIVE, parameters=_inputs(1)),
    OpSpec("GatherElements", INDEX, O2M, d.everything, b.gather_elements, WHOLE, INJECTIVE, MOVE),
    OpSpec("GatherND", INDEX, O2M, d.everything, b.gather_nd, WHOLE, INJECTIVE, MOVE),
    OpSpec("ScatterElements", INDEX, O2M, d.everything, b.scatter_elements, WHOLE),
    OpSpec("ScatterND", INDEX, O2M, d.everything, b.scatter_nd, WHOLE),
    # views
    OpSpec(
        "Reshape Squeeze Unsqueeze", VIEW, REORGANIZE, d.everything, b.everything, integers=MOVE,
        parameters=_inputs(1),
    ),
    OpSpec("Flatten", VIEW, REORGANIZE, d.everything, b.everything, integers=MOVE),
    OpSpec("Identity", VIEW, O2O, d.everything, b.everything, integers=MOVE),
    OpSpec("Dropout", VIEW, O2O, d.everything, b.everything, integers=MOVE, parameters=_inputs(1, 2)),
)  # fmt: skip
TABLE: dict[str, OpSpec] = {kind: replace(row, kind=kind) for row in _ROWS for kind in row.kind.split()}
# operators that stand for one: see `lfopt.ops.recognise`
ATTENTION = OpSpec(a.KIND, OTHER, M2M, a.row_rule, a.box_rule, ATTEND)
# an operator that lfopt does not know: all rows, always alone
OPAQUE = OpSpec("opaque", OTHER, M2M, d.everything, b.everything, WHOLE)


def spec(kind: str, domain: str = "") -> OpSpec:
    """The table's row for an operator type; `OPAQUE` for one that is not listed."""
    if domain in ("", "ai.onnx"):
        return TABLE.get(kind, OPAQUE)
    return OPAQUE


def row_of(call: Call) -> OpSpec:
    """The row of an operator."""
    if call.attention is not None:
        return ATTENTION
    operator = call.operator
    if operator.domain:
        return spec(operator.kind, operator.domain)
    return TABLE.get(operator.kind, OPAQUE)
