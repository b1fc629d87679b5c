"""Operator kinds as TVM's fusion rules know them, from the simplest to the one that nothing fuses with.

Source: the pass FuseOps of TVM (Relay and Relax; Chen et al., OSDI 2018, section 3, has its idea). TVM states a kind with every operator; those of
ONNX operators are given here as its importer translates them, and an operator that it takes apart is opaque.
"""

from __future__ import annotations

from enum import IntEnum

from lfopt.ops import Call


class Pattern(IntEnum):
    """How elements of a result depend on elements of operands."""

    ELEMENTWISE = 0  # one on one
    BROADCAST = 1  # one on one, axes spread
    INJECTIVE = 2  # one on one, anywhere
    REDUCTION = 3  # one on many
    COMPLEX = 4  # as a convolution; elementwise operators may follow it in one kernel
    OPAQUE = 8


_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Cast CastLike Ceil Clip Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mish "
    "Neg Not BitwiseNot Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Celu Gelu"
)
_BROADCAST = (
    "Add Sub Mul Div Pow Mod Max Min Mean Sum And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift Equal Greater GreaterOrEqual Less LessOrEqual "
    "Where PRelu BatchNormalization QuantizeLinear DequantizeLinear Expand"
)
_INJECTIVE = "Concat Split Slice Pad Tile Resize Gather GatherElements GatherND Trilu Transpose DepthToSpace SpaceToDepth"
_REDUCTION = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare ArgMax ArgMin"
_COMPLEX = (
    "Conv ConvTranspose Gemm MatMul AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool Softmax LogSoftmax LRN "
    "LayerNormalization InstanceNormalization GroupNormalization"
)
_PATTERNS = {
    kind: pattern for pattern, kinds in zip(Pattern, (_UNARY, _BROADCAST, _INJECTIVE, _REDUCTION, _COMPLEX), strict=False) for kind in kinds.split()
}


def pattern_of(call: Call) -> Pattern:
    """The kind of an operator."""
    return _PATTERNS.get(call.operator.kind, Pattern.OPAQUE) if call.operator.domain in ("", "ai.onnx") else Pattern.OPAQUE
