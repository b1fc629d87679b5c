"""Operator kinds as TVM's fusion rules know them, from the simplest to the one that nothing fuses with.

Source: the pass FuseOps of TVM (Chen et al., OSDI 2018, section 3, has its idea), and what Relax of TVM 0.27 makes of small networks. It reads the
kind of an operator off its loops; those of ONNX operators are given here as its importer translates them; one that it takes apart is opaque.
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
_REDUCTION = "ReduceL1 ReduceL2 ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare"
_COMPLEX = (
    "Conv ConvTranspose Gemm MatMul AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool Softmax LogSoftmax "
    "LayerNormalization ReduceMean ArgMax ArgMin"
)
_PATTERNS = {
    kind: pattern for pattern, kinds in zip(Pattern, (_UNARY, _BROADCAST, _INJECTIVE, _REDUCTION, _COMPLEX), strict=False) for kind in kinds.split()
}


def pattern_of(call: Call) -> Pattern:
    """The kind of an operator. One that spreads some operands over another that has the result's shape is elementwise, as Relax has it."""
    if call.operator.domain not in ("", "ai.onnx"):
        return Pattern.OPAQUE
    found = _PATTERNS.get(call.operator.kind, Pattern.OPAQUE)
    return Pattern.ELEMENTWISE if found is Pattern.BROADCAST and call.result in call.shapes else found
