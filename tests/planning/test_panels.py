"""Mode `panels`: statistics of a normalization first, then its result as each contraction reads it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper

from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model
from lfopt.ir import Compute, DramBytes, Graph, Hardware, Plan, PlannedGroup, Transfer, unfold
from lfopt.ops import bits
from lfopt.ops.reference import reference
from lfopt.planning import NEVER, GroupCosts, totals_of
from lfopt.planning.chains.stages import Around, StageBuilder
from lfopt.planning.modes.passes import PanelsMode
from lfopt.planning.panels.norms import NormGroup
from lfopt.planning.plans.drafts import executable
from lfopt.planning.steps.layout import BufferLayout
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.agreement import disagreements
from tests.cases import few, some
from tests.codegen.counting import disagreement
from tests.planning.alterations import (
    CAUGHT_BY,
    Stage,
    altered_steps,
    rings_with_a_row_less,
    stages,
    verdict,
    with_place,
)
from tests.planning.written_nests import altered, check_read_back, refusal
from tests.random_plans import Values, planned, random_inputs
from tests.strategies import random_hardware, random_normed


class Case(NamedTuple):
    """A random network with a group in mode panels, on a buffer that is just large enough, or larger."""

    graph: Graph
    inputs: Values
    costs: GroupCosts
    groups: tuple[int, ...]
    plan: Plan
    group: PlannedGroup
    norm: NormGroup

    @property
    def kinds(self) -> set[str]:
        """What is special of it."""
        text = "\n".join(self.group.nest)
        return {
            "producer" if self.norm.producer >= 0 else "from outside",
            "several readers" if self.norm.readers[1:] else "one reader",
            *(["bands"] if "rows, blocks" in text else []),
            *(["rows together"] if "line buffers by" in text else []),
            *(["aligned"] if self.plan.hardware.dram_row_align > 1 else []),
            *(["weight buffer"] if self.plan.hardware.weight_buffer_bytes else []),
        }


def panels(costs: GroupCosts) -> PanelsMode:
    mode = costs.modes["panels"]
    assert isinstance(mode, PanelsMode)
    return mode


@cache
def case(seed: int) -> Case | None:
    """None where there is no such group, or the other groups of the network have no steps."""
    rng = np.random.default_rng(seed)
    graph = random_normed(rng)
    inputs = random_inputs(graph, rng)
    hardware = replace(random_hardware(rng, graph), mac_columns=int(rng.choice([1, 2, 4, 16])))
    if rng.random() < 0.15:
        hardware = replace(hardware, dram_row_align=16, channel_align=16, constant_align=16)
    costs = GroupCosts.of(graph, hardware, scheme="all")
    mode = panels(costs)
    groups = [m for m in mode.norms.groups if mode.need(m) < NEVER and costs.groups.parameters_fit(m)]
    if not groups:
        return None
    mask = max(groups) if rng.random() < 0.8 else min(groups)
    costs = costs.at(mode.need(mask) + 1 + int(rng.random() * rng.choice([0, 100, 1000])))
    price = panels(costs).price(mask, costs.hardware.buffer_bytes, 0)
    assert price is not None, "a group runs on any buffer that is larger than its need"
    costs._prices[mask] = price
    others = (1 << i for i in range(len(costs.dataflow)) if not mask >> i & 1)
    scheme = executable(costs.dataflow, (*others, mask))
    plan = planned(costs, scheme)
    if not all(group.steps for group in plan.groups):
        return None
    plan = replace(plan, totals=totals_of(costs.unfused(), plan.groups, costs.least_bytes))
    group = plan.groups[scheme.index(mask)]
    return Case(graph, inputs, costs, scheme, plan, group, panels(costs).norms.groups[mask])


def cases(seeds: range) -> list[Case]:
    return [drawn for seed in seeds if (drawn := case(seed)) is not None]


def stage_of(block: Case) -> Stage | None:
    """None where a pass makes again what still lies in the place of the pass before, which is no fault."""
    try:
        of_plan = [*stages(block.plan, block.graph, block.inputs)]
    except AssertionError as error:
        if str(error).splitlines()[0].endswith(": twice"):
            return None
        raise
    return next(stage for stage in of_plan if stage.group is block.group)


def test_a_group_moves_what_was_priced_and_comes_out_the_same() -> None:
    kinds: Counter[str] = Counter()
    for block in cases(some(range(150))):
        done = execute(block.plan, block.graph, block.inputs)
        wanted = reference(block.graph, block.inputs)
        assert not disagreements(block.costs, block.groups, block.plan, done, wanted), block.graph
        assert not recount(block.graph, block.plan).discrepancies
        assert block.group.mode == "panels"
        kinds.update(block.kinds)
    for kind in ("producer", "from outside", "several readers", "one reader", "bands", "rows together"):
        assert kinds[kind] > few(8), kinds


def test_c_counts_the_same_bytes(tmp_path: Path) -> None:
    wide = [block for block in cases(range(60)) if "producer" in block.kinds][:2]
    wide += [block for block in cases(range(60)) if "from outside" in block.kinds][:1]
    for number, block in enumerate(wide):
        assert not disagreement(block.plan, block.graph, block.inputs, tmp_path / str(number))


def test_the_passes_of_a_group_are_read_back() -> None:
    for block in cases(some(range(120))):
        check_read_back(block.costs, block.group, replace(block.group.dram, parameter=0))


def test_altered_passes_are_refused_by_line_or_move_what_they_are_priced_at() -> None:
    said: list[str] = []
    moved = 0
    for number, block in enumerate(cases(some(range(120)))):
        for k in range(10):
            rng = np.random.default_rng((number, k))
            text = altered(rng, "\n".join(block.group.nest))
            why = refusal(block.costs, text.replace("statistics of ", "", int(rng.random() < 0.2)))
            if why:
                said.append(why)
            else:
                moved += 1
    assert all(line.startswith("a.nest") and "accepted" in line for line in said)
    assert len(said) > few(300)
    assert moved > few(60)


def test_every_place_with_a_row_or_a_byte_less_fails() -> None:
    seen: Counter[str] = Counter()
    for block in cases(some(range(45))):
        stage = stage_of(block)
        if stage is None:
            continue
        for name, gave, why in rings_with_a_row_less(block.costs.dataflow, stage):
            assert gave == "violation" or (not gave and why), f"{block.group.nodes}: {name}: {gave} {why}"
        for index, place in enumerate(block.group.places):
            smaller = with_place(block.group, index, slot_bytes=place.slot_bytes - 1)
            assert verdict(stage, smaller) == "violation", f"{block.group.nodes}: {place}"
            seen[place.purpose] += 1
    assert seen["sum"] > few(20)


def test_no_step_can_be_dropped_repeated_or_shortened_unnoticed() -> None:
    rng = np.random.default_rng(0)
    counts: Counter[tuple[str, str]] = Counter()
    for block in cases(some(range(36))):
        stage = stage_of(block)
        for change, kind, step, seen in altered_steps(stage, rng, 4) if stage is not None else ():
            if change == "repeat" and isinstance(step, Compute) and step.first and not step.last:
                continue  # statistics of all that they are of, made twice, are the same: the recount tells
            wrong = f"{block.group.nodes}: {change} {step}: {seen or 'nothing'} gives it away"
            assert seen in CAUGHT_BY[change, kind], wrong
            counts[change, kind] += 1
    assert counts.total() > few(120)


def test_statistics_read_it_once_and_each_contraction_once() -> None:
    """48 rows of 64 channels normalized, two products by 64 x 64, two bytes each."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["y"], name="norm", axis=-1),
        helper.make_node("MatMul", ["y", "u"], ["a"], name="first"),
        helper.make_node("MatMul", ["y", "v"], ["b"], name="second"),
    ]
    shapes = {"scale": (64,), "shift": (64,), "u": (64, 64), "v": (64, 64)}
    constants = [numpy_helper.from_array(np.ones(shape, np.float32), n) for n, shape in shapes.items()]
    values = [helper.make_tensor_value_info(name, 1, (1, 48, 64)) for name in ("x", "a", "b")]
    graph = from_model(
        helper.make_model(helper.make_graph(nodes, "normed", values[:1], values[1:], constants))
    )
    costs = GroupCosts.of(graph, Hardware(1 << 20, element_bytes=2), scheme="all")
    choice = panels(costs).cheapest(costs.dataflow.everything, 1 << 20)
    assert choice is not None
    x = 48 * 64 * 2
    vectors = 2 * 2 * 64 * 2  # scale and shift, for each contraction
    assert choice.price.dram == DramBytes(input=3 * x, output=2 * x, weight=2 * 64 * 64 * 2 + vectors)
    statistics = 48 * 3 * 4
    sums = 48 * 64 * 4
    assert choice.buffer_bytes > statistics + sums
    # three panels of 22, 22 and 20 outputs: statistics, sums, a slice of weights, scale and shift, one row
    small = statistics + 48 * 22 * 4 + 22 * 2 + vectors // 2 + 2 * (1 + 1 + 22)
    three = panels(costs).cheapest(costs.dataflow.everything, small + 1)
    four = panels(costs).cheapest(costs.dataflow.everything, small)
    assert three is not None and four is not None
    assert (three.price.dram.input, three.buffer_bytes) == (x + 2 * 3 * x, small)
    assert four.price.dram.total > three.price.dram.total


@pytest.mark.parametrize("beta", [1 << 10, 1 << 12, 1 << 14])
def test_more_buffer_never_moves_more(beta: int) -> None:
    for block in cases(range(20)):
        mode = panels(block.costs)
        small = mode.price(block.norm.mask, beta, 0)
        large = mode.price(block.norm.mask, 2 * beta, 0)
        if small is not None:
            assert large is not None
            assert large.dram_bytes <= small.dram_bytes


def test_a_group_may_be_a_stage_of_a_chain() -> None:
    """With what is normalized on chip before it: the same products, and the map is not loaded."""
    for block in cases(some(range(90))):
        flow = block.costs.dataflow
        mask = block.norm.mask
        layout = BufferLayout(flow, block.costs.hardware)
        x = flow.operands[block.norm.norm][0].map
        enter = frozenset(() if flow.makes(mask, x) else (x,))
        scheduled = block.group.places, block.group.steps
        stage = StageBuilder(layout, mask, scheduled, Around(enter, frozenset())).stage()
        assert stage.macs == sum(flow.macs[i] for i in bits(mask))
        loads = (step for step in unfold(stage.nodes) if isinstance(step, Transfer))
        assert not enter & {flow.map_index.get(step.tensor, -1) for step in loads}


def test_a_network_without_norms_has_no_groups() -> None:
    graph = load_network("zoo:mobilenet_v2", {"image": (1, 3, 64, 64)}, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(1 << 16), scheme="all")
    assert not panels(costs).norms.groups
    assert panels(costs).need(costs.dataflow.everything) == NEVER
    assert "normalization" in panels(costs).never(costs.dataflow.everything)
