"""Which loops make which operator."""

from __future__ import annotations

from codegen.kernels.heads import HEADS
from codegen.loops import elementwise
from codegen.loops.nest import Nest

LOOPS = {**elementwise.LOOPS}


def loops(nest: Nest) -> None:
    """Write the loops of an operator. Raises Unsupported."""
    kind = nest.call.operator.kind
    if nest.call.operator.domain not in ("", "ai.onnx") or kind not in LOOPS:
        raise nest.unsupported("an operator that has no kernel", ", ".join(sorted({*LOOPS, *HEADS})))
    LOOPS[kind](nest)
