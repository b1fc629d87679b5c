"""Floating-point operations of an operator, counted as DNNFusion (PLDI'21, arXiv 2108.13342, table of rewriting rules) counts them.

An elementwise operator is one per element of its result, a reduction one per element that it folds, a multiply-accumulate two; moving elements is
free. An operator that stands for several (Gelu, LayerNormalization) counts as those do, so that recognising it is no saving by itself.
"""

from __future__ import annotations

from math import prod

from lfopt.ops import Call, spec

PER_RESULT: dict[str, int] = {
    "Cast": 0,
    "CastLike": 0,
    "Clip": 1,
    "Gelu": 5,
    "HardSigmoid": 3,
    "HardSwish": 4,
    "LayerNormalization": 5,  # and one each for scale and bias
    "LogSoftmax": 3,
    "Mish": 3,
    "RMSNormalization": 3,  # and one for the scale
    "Shrink": 2,
    "Softmax": 3,
    "Softplus": 3,
    "Softsign": 3,
    "Swish": 2,
}
PER_OPERAND: dict[str, int] = {
    "GlobalAveragePool": 1,
    "GlobalMaxPool": 1,
    "ReduceL1": 2,
    "ReduceL2": 2,
    "ReduceLogSum": 1,
    "ReduceLogSumExp": 2,
    "ReduceMax": 1,
    "ReduceMean": 1,
    "ReduceMin": 1,
    "ReduceProd": 1,
    "ReduceSum": 1,
    "ReduceSumSquare": 2,
}
AFTER: dict[str, int] = {"ReduceL2": 1, "ReduceLogSum": 1, "ReduceLogSumExp": 1}  # per element of the result, once all is folded
TANH_GELU = 8
HARDNESS = {"Pow": 2, "Div": 1, "Sum": 1}  # breaks ties between forms with as many operations: how much more one costs than a multiplication


def flops(call: Call) -> int:
    """Operations of one inference."""
    kind, made = call.operator.kind, prod(call.result)
    row = spec(kind, call.operator.domain)
    if row.macs is not NO_MACS:
        biased = row.bias is not None and call.has(row.bias)
        return 2 * row.macs(call) + made * biased
    if kind in PER_OPERAND:
        return PER_OPERAND[kind] * prod(call.shape(0)) + AFTER.get(kind, 0) * made
    if kind in ("MaxPool", "AveragePool", "LpPool"):
        return made * prod(call.attribute("kernel_shape", (1,)))
    if kind == "Gelu" and call.attribute("approximate", "none") == "tanh":
        return TANH_GELU * made
    if kind in ("LayerNormalization", "RMSNormalization"):
        return made * (PER_RESULT[kind] + len(call.shapes) - 1)
    if kind in PER_RESULT:
        return PER_RESULT[kind] * made
    if kind in ("Max", "Mean", "Min", "Sum"):
        return made * (len(call.shapes) - (kind != "Mean"))
    return made if row.elementwise else 0


NO_MACS = spec("Identity").macs
