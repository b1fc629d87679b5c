"""Epilogue groups: an operator and elementwise operators on its output, legal on any buffer."""

from __future__ import annotations

from lfopt.ops import OPAQUE, Dataflow, bits
from lfopt.ops.rows import same_row


def followed(flow: Dataflow) -> list[int]:
    """Per operator: producers after which it may stand in an epilogue.

    It must be elementwise on the same rows of the same shape.
    """
    producers: list[int] = []
    for i, row in enumerate(flow.specs):
        mask = 0
        if row.elementwise and len(flow.results[i]) == 1:
            result = flow.maps[flow.results[i][0]]
            for operand in flow.operands[i]:
                source = flow.maps[operand.map]
                if (
                    source.shape == result.shape
                    and operand.reads is same_row(source.rows)
                    and flow.producer[operand.map] >= 0
                ):
                    mask |= 1 << flow.producer[operand.map]
        producers.append(mask)
    return producers


def is_epilogue_group(flow: Dataflow, follows: list[int], mask: int) -> bool:
    """Whether the group is one operator and its epilogue; `follows` is what `followed` gives."""
    anchor = mask & -mask
    first = anchor.bit_length() - 1
    if len(flow.results[first]) != 1 or flow.specs[first] is OPAQUE:
        return False
    return all((inside := flow.preds[i] & mask) and not inside & ~follows[i] for i in bits(mask ^ anchor))


def epilogue_candidates(follows: list[int]) -> list[int]:
    """Per operator: all that may stand in an epilogue group of which it is the anchor, itself included."""
    candidates: list[int] = []
    for anchor in range(len(follows)):
        mask = 1 << anchor
        for i in range(anchor + 1, len(follows)):
            if follows[i] & mask:
                mask |= 1 << i
        candidates.append(mask)
    return candidates
