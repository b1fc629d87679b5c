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
                call = flow.calls[i]
                # where rows do not pass one by one, an operand of the result's shape says the same
                if call.too_tall:
                    row_by_row = call.shape(operand.input) == result.shape
                else:
                    row_by_row = operand.reads is same_row(source.rows)
                if source.shape == result.shape and row_by_row and flow.producer[operand.map] >= 0:
                    mask |= 1 << flow.producer[operand.map]
        producers.append(mask)
    return producers


def is_epilogue_group(flow: Dataflow, follows: list[int], mask: int) -> bool:
    """Whether the group is one operator and its epilogue; `follows` is what `followed` gives."""
    anchor = mask & -mask
    return _has_epilogue(flow, mask) and all(_joins(flow, follows, mask, i) for i in bits(mask ^ anchor))


def extends_epilogue(flow: Dataflow, follows: list[int], mask: int, op: int) -> bool:
    """Whether `op`, above all operators of an epilogue group or a single operator, extends it to one."""
    return _has_epilogue(flow, mask) and _joins(flow, follows, mask, op)


def _has_epilogue(flow: Dataflow, mask: int) -> bool:
    """Whether the first operator of the group may have an epilogue."""
    first = (mask & -mask).bit_length() - 1
    return len(flow.results[first]) == 1 and flow.specs[first] is not OPAQUE


def _joins(flow: Dataflow, follows: list[int], mask: int, op: int) -> bool:
    """Whether all that an operator reads of the group lets it stand in its epilogue."""
    inside = flow.preds[op] & mask
    return bool(inside) and not inside & ~follows[op]


def epilogue_candidates(follows: list[int]) -> list[int]:
    """The largest sets of operators that may stand in one epilogue group, its anchor included.

    That of an anchor which is in the set of another is in that set too, and left out.
    """
    behind: list[list[int]] = [[] for _ in follows]
    for i, producers in enumerate(follows):
        for producer in bits(producers):
            behind[producer].append(i)
    candidates: list[int] = []
    covered = 0
    for anchor in range(len(follows)):
        if covered >> anchor & 1:
            continue
        reached = {anchor}
        waiting = [anchor]
        while waiting:
            new = [i for i in behind[waiting.pop()] if i not in reached]
            reached.update(new)
            waiting += new
        candidates.append(sum(1 << i for i in reached))
        covered |= candidates[-1]
    return candidates
