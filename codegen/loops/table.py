"""Which loops make which operator."""

from __future__ import annotations

from codegen.kernels.table import KERNELS
from codegen.loops import (
    contraction,
    convolution,
    elementwise,
    integer,
    moving,
    normalizing,
    pooling,
    reals,
    reducing,
    resizing,
    sampling,
    searching,
)
from codegen.loops.nest import Nest

LOOPS = {
    **contraction.LOOPS,
    **convolution.LOOPS,
    **elementwise.LOOPS,
    **moving.LOOPS,
    **normalizing.LOOPS,
    **pooling.LOOPS,
    **reducing.LOOPS,
    **resizing.LOOPS,
    **sampling.LOOPS,
    **searching.LOOPS,
    **reals.BORDER,
}
# else `integer.integers` has it
REFUSED = {"QuantizeLinear": "a result whose type or scales lfopt does not take for a quantised map"}


def loops(nest: Nest) -> None:
    """Write the loops of an operator. Raises Unsupported."""
    if nest.call.result_tensors[0].quantization is not None:
        integer.integers(nest, _plain)
    else:
        _plain(nest)


def _plain(nest: Nest) -> None:
    kind = nest.call.operator.kind
    if nest.call.operator.domain not in ("", "ai.onnx") or kind not in LOOPS:
        raise nest.unsupported(
            REFUSED.get(kind, "an operator that has no kernel"), ", ".join(sorted({*LOOPS, *KERNELS}))
        )
    LOOPS[kind](nest)
