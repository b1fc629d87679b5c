"""Which operators may meet in a legal group, as far as the cheapest path between them tells."""

from __future__ import annotations

import heapq

import numpy as np

from lfopt.fusion import connected_parts
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, bits
from lfopt.planning.bands.slices import SliceSizes

# nodes reached from all operators together; networks of up to 1,024 operators have no more
MOST_REACHED = 1 << 20


def compatible_in_line_buffers(
    flow: Dataflow, holds: list[dict[int, int]], row_bytes: list[int], weights: list[int], limit: int
) -> list[int]:
    """Per operator: operators, itself included, that may share a group below `limit` bytes of buffer.

    A group that holds two operators is connected by a path between them, and takes at least the weights on
    that path and the rows of the maps that join its steps (no map twice: the shortest path in the group has
    no use for that). `holds` gives, per operator, the rows of each map it reads that are held at once for it
    in any group; `row_bytes`: per map; `weights` the buffer bytes of weights that the operator alone
    reads.
    """
    steps: list[dict[int, int]] = []  # per operator: least bytes of a map that joins it to each neighbour
    for i in range(len(flow)):
        reach: dict[int, int] = {}
        for m in {*holds[i], *flow.results[i]}:
            around = flow.readers[m] | (1 << flow.producer[m] if flow.producer[m] >= 0 else 0)
            for j in bits(around & flow.neighbours[i]):
                rows = max(holds[i].get(m, 0), holds[j].get(m, 0))
                reach[j] = min(reach.get(j, limit), rows * row_bytes[m])
        steps.append(reach)
    most = MOST_REACHED // max(len(flow), 1)
    return [_within(steps, weights, i, limit, most) for i in range(len(flow))]


def parts(flow: Dataflow, inside: int) -> list[int]:
    """Per operator: mask of its connected part within the set `inside`; itself alone if it is outside."""
    connected = [1 << i for i in range(len(flow))]
    for part in connected_parts(flow.neighbours, inside):
        for i in bits(part):
            connected[i] = part
    return connected


def compatible_in_bands(slices: SliceSizes, limit: int) -> list[int]:
    """Per operator: operators, itself included, that may share a group of mode brr below `limit` bytes."""
    flow = slices.dataflow
    able = [not slices.facts[i].never and band_bytes(slices, i) < limit for i in range(len(flow))]
    compatible = parts(flow, sum(1 << i for i, fits in enumerate(able) if fits))
    for i, operands in enumerate(flow.operands):
        for o in operands:  # one row spread over many: not with what makes it
            if flow.heights[i] > 1 and flow.maps[o.map].rows == 1 and flow.producer[o.map] >= 0:
                compatible[i] &= ~(1 << flow.producer[o.map])
                compatible[flow.producer[o.map]] &= ~(1 << i)
    return compatible


def band_bytes(slices: SliceSizes, op: int) -> int:
    """Least buffer bytes of an operator in any group of mode brr, maps sliced where they may be.

    One block of its weights is counted. Of a contraction, the map that it reads or the one that it makes is
    full.
    """
    flow = slices.dataflow
    facts = slices.facts[op]
    full = thin = 0  # bytes of the maps that it reads, full, and sliced where they may be
    for m in {o.map for o in flow.operands[op]}:
        reading = [o for o in flow.operands[op] if o.map == m]
        rows = max(1, *(o.reads.widest[facts.least_rows] for o in reading))
        full += rows * slices.row_bytes[m]
        thin += rows * (
            slices.slice_bytes(m)
            if all(slices.takes_slices(op, o.input) for o in reading)
            else slices.row_bytes[m]
        )
    written = [m for m in flow.results[op] if slices.needed(m)]
    made_full = sum(slices.row_bytes[m] for m in written)
    made_thin = sum(
        slices.slice_bytes(m) if len(flow.maps[m].shape) in CHANNEL_AXIS_OF_RANK else slices.row_bytes[m]
        for m in written
    )
    maps = min(full + made_thin, thin + made_full) if facts.contracts else thin + made_thin
    block = min(slices.block_bytes(op, sums=sums) for sums in ((False, True) if facts.sums else (False,)))
    return slices.hardware.buffer_need(maps, block + sum(slices.constant_bytes[name] for name in facts.held))


def convex(flow: Dataflow, compatible: list[int]) -> list[int]:
    """Masks of operators that may share a group with all operators on the paths between them."""
    kept = list(compatible)
    for i, mask in enumerate(compatible):
        for beyond in (flow.descendants, flow.ancestors):
            apart = beyond[i] & ~mask
            while apart:
                # what lies beyond an operator that cannot join cannot join either
                k = apart.bit_length() - 1 if beyond is flow.ancestors else (apart & -apart).bit_length() - 1
                kept[i] &= ~beyond[k]
                apart &= ~(beyond[k] | 1 << k)
    return _both_ways(kept)


def _both_ways(masks: list[int]) -> list[int]:
    """Per operator: mask of its operators in whose masks it is too (symmetric part)."""
    count = len(masks)
    size = -(-len(masks) // 8)
    rows = np.frombuffer(b"".join(mask.to_bytes(size, "little") for mask in masks), np.uint8).reshape(
        count, size
    )
    pairs = np.unpackbits(rows, axis=1, count=count, bitorder="little")
    return [
        int.from_bytes(row.tobytes(), "little")
        for row in np.packbits(pairs & pairs.T, axis=1, bitorder="little")
    ]


def _within(steps: list[dict[int, int]], weights: list[int], start: int, limit: int, most: int) -> int:
    """Mask of the nodes at a distance below `limit` bytes from `start` (Dijkstra).

    Counted are steps and the weights of both ends and all between. All nodes where there are more than
    `most`: in a long chain each would reach every other.
    """
    distance = {start: weights[start]}
    heap = [(weights[start], start)]
    reached = 1 << start
    while heap:
        here, i = heapq.heappop(heap)
        if here > distance[i]:
            continue
        reached |= 1 << i
        if len(distance) > most:
            return (1 << len(steps)) - 1
        for j, step in steps[i].items():
            there = here + step + weights[j]
            if there < limit and there < distance.get(j, limit):
                distance[j] = there
                heapq.heappush(heap, (there, j))
    return reached
