"""Epilogue groups: one operator followed by elementwise operators on its output, which may run together whatever the buffer."""

from __future__ import annotations

from lfopt.ir import Hardware
from lfopt.ops import OPAQUE, Dataflow, bits
from lfopt.ops.rows import same_row


def followed(flow: Dataflow) -> list[int]:
    """Per operator: producers after which it may stand in an epilogue: elementwise on the same rows, same shape."""
    found: list[int] = []
    for i, row in enumerate(flow.specs):
        mask = 0
        if row.elementwise and len(flow.results[i]) == 1:
            result = flow.maps[flow.results[i][0]]
            for operand in flow.operands[i]:
                source = flow.maps[operand.map]
                if source.shape == result.shape and operand.reads is same_row(source.rows) and flow.producer[operand.map] >= 0:
                    mask |= 1 << flow.producer[operand.map]
        found.append(mask)
    return found


def is_epilogue_group(flow: Dataflow, follows: list[int], mask: int) -> bool:
    """Whether the group is one operator and its epilogue; `follows` is what `followed` gives."""
    head = mask & -mask
    first = head.bit_length() - 1
    if len(flow.results[first]) != 1 or flow.specs[first] is OPAQUE:
        return False
    return all((inside := flow.preds[i] & mask) and not inside & ~follows[i] for i in bits(mask ^ head))


def families(follows: list[int]) -> list[int]:
    """Per operator: everything that may stand in an epilogue group of which it is the head, itself included."""
    found: list[int] = []
    for head in range(len(follows)):
        family = 1 << head
        for i in range(head + 1, len(follows)):
            if follows[i] & family:
                family |= 1 << i
        found.append(family)
    return found


def streams_and_held(flow: Dataflow, mask: int, hardware: Hardware) -> tuple[list[int], int]:
    """(maps that stream beside the head's input, buffer bytes of one-row operands held throughout) of an epilogue group."""
    head = (mask & -mask).bit_length() - 1
    streaming = [m for i in bits(mask) for m in flow.results[i] if flow.is_output[m] or flow.readers[m] & ~mask]
    held: set[int] = set()
    for i in bits(mask & ~(1 << head)):
        for operand in flow.operands[i]:
            m = operand.map
            inside = flow.producer[m] >= 0 and mask >> flow.producer[m] & 1
            if inside or m in streaming:
                continue
            if flow.maps[m].rows == flow.heights[head]:
                streaming.append(m)
            else:
                held.add(m)
    return streaming, sum(hardware.row_bytes(flow.maps[m]) * flow.maps[m].rows for m in held)
