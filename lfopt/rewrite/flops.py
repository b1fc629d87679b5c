"""The cost that rewriting goes by: floating-point operations (`lfopt.ops.counts`), two per MAC."""

from __future__ import annotations

from math import prod

from lfopt.ops import Call, Tiling, spec

# breaks ties between forms with as many operations: how much more one costs than a multiplication
HARDNESS = {"Pow": 2, "Div": 1, "Sum": 1}


def flops(call: Call) -> int:
    """Operations of one inference."""
    row = spec(call.operator.kind, call.operator.domain)
    if row.tiling is Tiling.CONTRACT:
        biased = row.bias is not None and call.has(row.bias)
        return 2 * row.macs(call) + prod(call.result) * biased
    return row.flops(call)
