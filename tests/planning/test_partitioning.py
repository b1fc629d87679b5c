"""Groups cut among workers: each row of a result made once, each row read there when it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from lfopt.ir import Compute, Node, Transfer, unfold
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from lfopt.planning.cpu.partitioning import WorkPartition, cut
from lfopt.planning.modes.lbdf import line_buffer_nest
from lfopt.planning.nest.lowering import lower
from lfopt.planning.steps.layout import BufferLayout, row_span
from tests.random_plans import random_scheme
from tests.strategies import random_graph, random_hardware

Case = tuple[GroupCosts, int, int, int]  # costs, group, rows of a band, workers


def cases(seeds: range) -> Iterator[Case]:
    """Random groups of random graphs that run in mode lbdf, row by row and in bands."""
    for seed in seeds:
        rng = np.random.default_rng((seed, 9))
        graph = random_graph(rng, int(rng.integers(2, 13)))
        costs = GroupCosts(Dataflow.of(graph), random_hardware(rng, graph, element_bytes=4))
        for group in random_scheme(costs, seed):
            price = costs.price(group)
            if price is not None and price.mode == "lbdf" and group & (group - 1):
                yield costs, group, int(rng.choice([1, 1, 2, 3, 8])), int(rng.integers(2, 6))


def leaving(flow: Dataflow, group: int) -> frozenset[int]:
    """Maps that leave the group."""
    return frozenset(
        m for i in bits(group) for m in flow.results[i] if flow.is_output[m] or flow.readers[m] & ~group
    )


def partition(case: Case) -> WorkPartition | str:
    costs, group, band_rows, workers = case
    layout = BufferLayout(costs.dataflow, costs.hardware)
    places, _ = lower(layout, group, line_buffer_nest(group, band_rows), costs.groups.waiting)
    return cut(layout, group, places, band_rows, leaving(costs.dataflow, group), workers)


class Buffers:
    """Which row is in which slot, of maps that all workers reach and in the rings of each."""

    def __init__(self, case: Case, cut: WorkPartition) -> None:
        costs, self.group, band_rows, self.workers = case
        self.flow = costs.dataflow
        self.rings = costs.groups.line_buffers.ring_rows(self.group, band_rows)
        self.common = cut.common | leaving(self.flow, self.group)
        self.slots: dict[tuple[int, int], dict[int, int]] = {}  # (worker, or -1: all; map) -> slot -> row
        self.times = Counter[tuple[int, int]]()  # (map, row) -> times made, of common maps
        self.before: set[tuple[int, int]] = set()  # (map, row) of common maps, from earlier stages
        self.index = {operator.name: i for i, operator in enumerate(self.flow.operators)}

    def run(self, worker: int, steps: tuple[Node, ...], *, together: bool) -> None:
        """What a worker does in a stage. Of common maps, it may read rows of earlier stages, and its own."""
        flow, own = self.flow, set[tuple[int, int]]()
        for step in unfold(steps):
            if not isinstance(step, Compute):
                if isinstance(step, Transfer) and step.gather:
                    self.write(
                        worker,
                        next(m for m, tensor in enumerate(flow.maps) if tensor.name == step.tensor),
                        row_span(step.box),
                        own,
                    )
                continue
            i = self.index[step.operator]
            spans = {
                m: row_span(box)
                for m, box, place in zip(flow.results[i], step.boxes, step.places, strict=True)
                if place >= 0
            }
            for r in range(
                min(first for first, _ in spans.values()), max(stop for _, stop in spans.values())
            ):
                for operand in flow.operands[i]:
                    m = operand.map
                    if flow.producer[m] < 0 or not self.group >> flow.producer[m] & 1:
                        continue
                    for row in range(operand.reads.first[r], operand.reads.last[r] + 1):
                        if m in self.common:
                            assert (m, row) in self.before or (m, row) in own, (flow.maps[m].name, row)
                        else:
                            assert self.slots[worker, m][row % self.rings[m]] == row, (flow.maps[m].name, row)
            for m, span in spans.items():
                self.write(worker, m, span, own)
        self.before |= own if together else set()
        self.times.update(own)

    def write(self, worker: int, m: int, span: tuple[int, int], own: set[tuple[int, int]]) -> None:
        for row in range(*span):
            if m in self.common:
                assert (m, row) not in own
                own.add((m, row))
            else:
                self.slots.setdefault((worker, m), {})[row % self.rings[m]] = row


def check(case: Case, cut: WorkPartition) -> None:
    buffers = Buffers(case, cut)
    flow, (_, group, _, workers) = buffers.flow, case
    assert {i for stage in cut.stages for i in stage.rows[0]} == {*bits(group)}
    for stage in cut.stages:
        assert len(stage.steps) == len(stage.rows) == (1 if stage.together else workers)
        assert all((flow.heights[i] == 1) == stage.together for i in stage.rows[0])
        for worker, steps in enumerate(stage.steps):
            buffers.run(worker, steps, together=stage.together)
        buffers.before |= {*buffers.times}  # all have waited
    assert set(buffers.times.values()) <= {1}
    for m in leaving(flow, group):
        assert {row for other, row in buffers.times if other == m} == {*range(flow.maps[m].rows)}, flow.maps[
            m
        ].name
    for m in cut.common:
        assert buffers.rings[m] >= flow.maps[m].rows


@pytest.mark.parametrize("part", range(4))
def test_random_groups_are_cut_so_that_every_row_read_is_there(part: int) -> None:
    tally = Counter[str]()
    for case in cases(range(part * 60, (part + 1) * 60)):
        cut = partition(case)
        if isinstance(cut, str):
            tally[cut.split("' ")[-1]] += 1
            continue
        check(case, cut)
        tally["cut"] += 1
        tally["stages"] += len(cut.stages) > 1
    assert tally["cut"] > 25
    assert tally["stages"] > 8
