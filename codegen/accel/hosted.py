"""Operators at the end of a network that the host could compute in the accelerator's place."""

from __future__ import annotations

from lfopt.ir import Graph
from lfopt.ir.names import one_line, plural
from lfopt.ops import Dataflow, Tiling, bits
from lfopt.planning.accelerator.commands import refusal

MOST_NAMES = 32  # of tensors that a line says


def advice(graph: Graph) -> str:
    """The line that says where the network could end, so that no operator left is refused.

    "" if refused operators lead to more than outputs.
    """
    flow = Dataflow.of(graph)
    tail = 0
    for i, call in enumerate(flow.calls):  # in topological order
        behind = any(flow.producer[o.map] >= 0 and tail >> flow.producer[o.map] & 1 for o in flow.operands[i])
        if behind or refusal(call) is not None:
            tail |= 1 << i
    if (
        not tail
        or tail == flow.everything
        or any(flow.specs[i].tiling is Tiling.CONTRACT for i in bits(tail))
    ):
        return ""
    kept = [m for m, maker in enumerate(flow.producer) if maker >= 0 and not tail >> maker & 1]
    ends = [flow.maps[m].name for m in kept if flow.is_output[m] or flow.readers[m] & tail]
    if not ends or len(ends) > MOST_NAMES:
        return ""
    options = " ".join(f"--end {one_line(name)}" for name in ends)
    return f"{plural(tail.bit_count(), 'operator')} at the end could be the host's: lfopt quantize {options}"
