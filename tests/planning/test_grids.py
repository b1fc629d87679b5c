"""Tiles along any axes: every operator of the table, any cut of it, on any buffer that holds a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from lfopt.ir import Compute, Cost, Graph, Hardware, PlannedGroup, dram_bytes
from lfopt.ir.schedule import counted_leaves
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, memory_map, totals_of
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.modes.tiled import TiledMode
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.grids import Grids, TargetGrids
from lfopt.planning.tiling.tiles import Tiles
from lfopt.planning.tiling.tiling_region import TilingRegion
from simulator.interpreter.execute import Machine
from simulator.recount import recount
from tests.agreement import differing
from tests.operators import ARITHMETIC, FAMILIES, Case, alone, cases, spec
from tests.random_plans import planned
from tests.strategies import random_contraction, random_graph, random_hardware

PLAIN, ALIGNED = Hardware(1), Hardware(1, dram_row_align=16, channel_align=4)
ALL = 12  # cases of each family of operators; one of them in `make test`
GRIDS = 3  # drawn of a case, and of those that fold in parts


class Drawn:
    """An operator alone, its inputs, and what it gives."""

    def __init__(self, case: Case) -> None:
        self.case, self.graph = case, alone(case)
        self.flow = Dataflow.of(self.graph)
        given = {f"x{i}": value for i, value in enumerate(case.operands) if value is not None}
        self.inputs = {name: given[name] for name in self.graph.inputs}
        self.wanted = reference(self.graph, self.inputs)

    def region(self, chip: Hardware) -> TilingRegion:
        return self.tiles(chip).region(1)

    def tiles(self, chip: Hardware) -> Tiles:
        return Tiles(self.flow, chip, LineBuffers(self.flow, Lines.plain(self.flow)).ring_rows)


def operators(count: int) -> Iterator[Drawn]:
    """So many of each family, but for views."""
    for family in dict.fromkeys(FAMILIES + ARITHMETIC):
        for case in cases(family, count):
            if not spec(case.kind).view:
                yield Drawn(case)


def run(graph: Graph, inputs: Mapping[str, np.ndarray], chip: Hardware, group: PlannedGroup) -> Machine:
    """The group, run on just the buffer that it takes."""
    machine = Machine(graph, replace(chip, buffer_bytes=group.allocated_bytes(chip) + 1), inputs)
    done = machine.run(group)
    assert done.dram == group.dram
    return machine


def check(drawn: Drawn, chip: Hardware, grids: TargetGrids) -> None:
    """A grid moves and takes what it says, and gives what the operator gives."""
    what = f"{drawn.case} on {chip}: {grids.blocks}, parts of {grids.grids[0].parts}"
    places, steps = grids.schedule(Limit())
    assert dram_bytes(steps) == grids.dram, what
    assert max((place.end for place in places), default=0) == grids.need, what
    names = drawn.flow.names(1)
    group = PlannedGroup(0, names, "tiled", grids.dram, places, steps)
    outputs = run(drawn.graph, drawn.inputs, chip, group).outputs()
    assert not differing(outputs, drawn.wanted), what


def any_grids(count: int) -> Counter[str]:
    """Check random grids of so many operators of each family: how many of each kind of operator."""
    rng, checked = np.random.default_rng(0), Counter[str]()
    for drawn in operators(count):
        chip = ALIGNED if rng.random() < 0.3 else PLAIN
        every = list(islice(Grids(drawn.region(chip)).every(), 150))
        assert every, f"{drawn.case}: no grid"
        in_parts = [grids for grids in every if grids.grids[0].parts < grids.grids[0].target.depth]
        picked = [every[int(k)] for k in rng.integers(len(every), size=GRIDS)]
        picked += [in_parts[int(k)] for k in rng.integers(len(in_parts), size=GRIDS)] if in_parts else []
        for grids in {id(grids): grids for grids in picked}.values():
            check(drawn, chip, grids)
            checked[drawn.case.kind] += 1
    return checked


def any_buffers(count: int) -> int:
    """Check buffers from the smallest step up, of so many operators of each family: how many."""
    checked = 0
    for drawn in operators(count):
        tiles, last = drawn.tiles(PLAIN), None
        smallest = next(size for k in range(40) if tiles.best(1, size := 1 << k).kind != "none")
        low = smallest // 2
        while smallest - low > 1:
            middle = (low + smallest) // 2
            low, smallest = (low, middle) if tiles.best(1, middle).kind != "none" else (middle, smallest)
        for beta in sorted({smallest, *(smallest << k for k in (1, 3)), 1 << 22}):
            tile = tiles.best(1, beta)
            assert tile.kind != "none", f"{drawn.case} at {beta} B, but not at {smallest} B"
            assert tile.buffer_bytes < beta
            assert last is None or tile.dram.total <= last, f"{drawn.case} at {beta} B"
            last = tile.dram.total
            checked += 1
        none = GroupCosts(drawn.flow, replace(PLAIN, buffer_bytes=smallest - 1), scheme="lbdf").evaluate(1)
        assert isinstance(none, Cost)
        assert not none.executable or none.mode == "lbdf", f"{drawn.case} at {smallest - 1} B: {none}"
    return checked


def test_any_grid_of_any_operator_does_what_it_says() -> None:
    assert any_grids(1).total() > 150


def long_operators() -> Iterator[Drawn]:
    """Operators on long axes: grids of them have blocks that only move on."""
    rng = np.random.default_rng(0)
    x, rows, square = (rng.random(shape, np.float32) for shape in ((1, 4, 40, 12), (60, 8), (48, 44)))
    ones, weights = np.ones(4, np.float32), rng.random((44, 40), np.float32)
    kernel = rng.random((4, 4, 3, 3), np.float32)

    def ends(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    for case in (
        Case("Softmax", [square], {"axis": 1}),
        Case("InstanceNormalization", [x, ones, ones], {}, (1, 2)),
        Case("LpNormalization", [x], {"axis": 2}),
        Case("Slice", [rows, ends(1), ends(59), ends(0), ends(2)], {}, (1, 2, 3, 4)),
        Case("Slice", [rows, ends(-1), ends(-61), ends(0), ends(-1)], {}, (1, 2, 3, 4)),
        Case("Slice", [rows, ends(-2), ends(-61), ends(0), ends(-3)], {}, (1, 2, 3, 4)),
        Case("Pad", [rows, ends(2, 0, 1, 0)], {}, (1,)),
        Case("Pad", [rows, ends(2, 0, 3, 0)], {"mode": "reflect"}, (1,)),
        Case("Conv", [x, kernel], {"pads": (1, 1, 1, 1)}, (1,)),
        Case("Conv", [x, kernel], {"strides": (2, 1), "dilations": (1, 3)}, (1,)),
        Case("MaxPool", [x], {"kernel_shape": (2, 2), "strides": (3, 3)}),
        Case("MatMul", [square, weights], {}, (1,)),
        Case("MatMul", [square, weights], {}),
        Case("ReduceSum", [square, ends(0)], {}, (1,)),
        Case("Transpose", [square], {"perm": (1, 0)}),
        Case("CumSum", [square, ends(1).reshape(())], {}, (1,)),
        Case("LayerNormalization", [rows, np.ones(8, np.float32)], {}, (1,)),
    ):
        yield Drawn(case)


def moves_on(grids: TargetGrids) -> bool:
    """Whether a loop of the grids is known to move on."""
    cuts = [cut for grid in grids.grids for of_operand in (grid.cuts or {}).values() for cut in of_operand]
    return any(cut.regular for cut in cuts)


def test_blocks_that_only_move_on_are_like_blocks_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    for drawn in long_operators():
        monkeypatch.setattr("lfopt.planning.tiling.grid_targets.FEW", 8)
        known = list(islice(Grids(drawn.region(PLAIN)).every(), 60))
        numbers = [k for k, grids in enumerate(known) if moves_on(grids)]
        assert numbers, drawn.case
        monkeypatch.setattr("lfopt.planning.tiling.grid_targets.FEW", 1 << 30)
        looked_at = list(islice(Grids(drawn.region(PLAIN)).every(), 60))
        for k in rng.permutation(numbers)[:5].tolist():
            assert not moves_on(looked_at[k])
            assert known[k].dram == looked_at[k].dram, drawn.case
            assert known[k].schedule(Limit()) == looked_at[k].schedule(Limit()), drawn.case


@pytest.mark.slow
def test_any_grid_of_many_operators_does_what_it_says() -> None:
    checked = any_grids(ALL)
    assert checked.total() > 2000


def test_the_recount_agrees_with_normalizations_in_two_passes() -> None:
    rng = np.random.default_rng(0)
    x, scale, bias = (rng.random(shape).astype(np.float32) for shape in ((1, 4, 48, 8), (4,), (4,)))
    for case in (
        Case("InstanceNormalization", [x, scale, bias], {}, (1, 2)),
        Case("GroupNormalization", [x, scale, bias], {"num_groups": 2}, (1, 2)),
        Case("MeanVarianceNormalization", [x], {"axes": (2, 3)}),
        Case("Softmax", [x], {"axis": 2}),
        Case("LpNormalization", [x], {"axis": 2}),
    ):
        drawn, in_parts = Drawn(case), 0
        for size in (96, 192, 384, 768):
            costs = GroupCosts.of(drawn.graph, Hardware(size))
            price = costs.price(1)
            if price is None or not price.executable:
                continue
            plan = planned(costs, (1,))
            totals = totals_of(costs.unfused(), plan.groups, costs.bounds.compulsory_bytes)
            plan = replace(plan, memory=memory_map(costs, plan.groups), totals=totals)
            recounted = recount(drawn.graph, plan)
            assert recounted.agrees, f"{case.kind} at {size} B: {recounted.discrepancies}"
            in_parts += any(
                isinstance(step, Compute) and step.inputs is not None
                for _, step in counted_leaves(plan.groups[0].steps)
            )
        assert in_parts, case.kind


def test_more_buffer_never_moves_more_from_the_smallest_step_on() -> None:
    assert any_buffers(1) > 150


@pytest.mark.slow
def test_more_buffer_never_moves_more_of_many_operators() -> None:
    assert any_buffers(ALL) > 1500


def test_the_smallest_step_that_is_named_fits_and_no_smaller_one_does() -> None:
    named = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 4) if seed % 2 else random_contraction(rng)
        hardware = replace(random_hardware(rng, graph), buffer_bytes=6)
        costs = GroupCosts.of(graph, hardware, scheme="auto")
        tiled = costs.modes["tiled"]
        assert isinstance(tiled, TiledMode)
        for mask in (1 << i for i in range(len(costs.dataflow))):
            price = costs.price(mask)
            if price is None or price.executable or price.mode != "tiled":
                continue
            size = tiled.tiles.smallest(mask)
            assert tiled.tile(mask, size + 1).kind != "none", f"seed {seed}: {size}"
            assert tiled.tile(mask, size).kind == "none", f"seed {seed}: {size}"
            assert costs.executable([mask]) is False
            assert f"takes {size:,} B" in str(tiled.schedule(mask, 6, 1).make)
            named += 1
    assert named > 60
