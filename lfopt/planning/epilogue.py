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
    return may_anchor(flow, anchor.bit_length() - 1) and all(
        joins_epilogue(flow, follows, mask, i) for i in bits(mask ^ anchor)
    )


def may_anchor(flow: Dataflow, op: int) -> bool:
    """Whether an operator may have an epilogue."""
    return len(flow.results[op]) == 1 and flow.specs[op] is not OPAQUE


def joins_epilogue(flow: Dataflow, follows: list[int], mask: int, op: int) -> bool:
    """Whether an operator stands in the epilogue of the operators of a group before it."""
    inside = flow.preds[op] & mask
    return bool(inside) and not inside & ~follows[op]


def epilogue_candidates(follows: list[int]) -> list[int]:
    """Of every operator that stands in no epilogue: all that may stand in its own, itself included.

    What may follow another operator is in the epilogues of those that this one may follow.
    """
    behind: list[list[int]] = [[] for _ in follows]  # per operator: those that may follow it at once
    for i, producers in enumerate(follows):
        for producer in bits(producers):
            behind[producer].append(i)
    candidates: list[int] = []
    for anchor in (i for i, producers in enumerate(follows) if not producers):
        mask, frontier = 1 << anchor, [anchor]
        while frontier:
            for i in behind[frontier.pop()]:
                if not mask >> i & 1:
                    mask |= 1 << i
                    frontier.append(i)
        candidates.append(mask)
    return candidates
