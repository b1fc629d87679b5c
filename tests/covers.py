"""Random covers of networks: groups in which operators run again, whatever they cost."""

from __future__ import annotations

import numpy as np

from lfopt.fusion import connected
from lfopt.ir import Copy, Graph
from lfopt.ops import Dataflow, bits
from lfopt.ops.compute import folding
from lfopt.rewrite.covers import CoverGroup, write_cover

LARGEST = 5  # operators of a group that is drawn


def random_cover(flow: Dataflow, rng: np.random.Generator) -> list[CoverGroup]:
    """Groups in the order in which they run; drawn from the last one to the first.

    Each operator joins a group if something in it reads what the operator makes, or if its result is to be
    stored; some of these results are stored by an earlier group nevertheless.
    """
    inputs = {m for m, producer in enumerate(flow.producer) if producer < 0}
    needed = {m for m, is_output in enumerate(flow.is_output) if is_output} - inputs
    groups: list[CoverGroup] = []
    while needed:
        last = max(flow.producer[m] for m in needed)
        group = 1 << last
        for _ in range(int(rng.integers(LARGEST))):
            makers = {flow.producer[o.map] for i in bits(group) for o in flow.operands[i]} - {-1}
            joining = [i for i in makers if not group >> i & 1 and connected(flow.neighbours, group | 1 << i)]
            if joining:
                group |= 1 << int(rng.choice(sorted(joining)))
        stores = {m for m in flow.results[last] if m in needed}
        for i in bits(group & ~(1 << last)):
            own = {m for m in flow.results[i] if m in needed}
            if rng.random() < 0.5:
                stores |= own
        groups.append(CoverGroup(group, sum(1 << m for m in stores)))
        reads = {o.map for i in bits(group) for o in flow.operands[i] if not flow.makes(group, o.map)}
        needed = (needed - stores | reads) - inputs
    return groups[::-1]


def with_random_copies(graph: Graph, rng: np.random.Generator) -> tuple[Graph, tuple[Copy, ...]]:
    """A network in which some operators run again, and what is copied."""
    flow = Dataflow.of(graph)
    written = write_cover(flow, random_cover(flow, rng))
    return written.graph, written.copies


def with_copies_before_means(graph: Graph) -> tuple[Graph, tuple[Copy, ...]]:
    """A network in which each mean over rows has what it folds made for it alone, and what is copied."""
    flow = Dataflow.of(graph)
    groups = [CoverGroup(_with_what_it_folds(flow, i), _needed(flow, i)) for i in range(len(flow))]
    written = write_cover(flow, groups)
    return written.graph, written.copies


def _with_what_it_folds(flow: Dataflow, op: int) -> int:
    """A mean, and the elementwise operators before it up to one that is none; any other operator alone."""
    group = 1 << op
    if folding(flow.calls[op]) != "rows":
        return group
    waiting = [*bits(flow.preds[op])]
    while waiting:
        before = waiting.pop()
        group |= 1 << before
        if flow.specs[before].elementwise:
            waiting += bits(flow.preds[before] & ~group)
    return group


def _needed(flow: Dataflow, op: int) -> int:
    return sum(1 << m for m in flow.results[op] if flow.is_output[m] or flow.readers[m])
