"""Operators that only move data, read through: plans without their bytes, executed and counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import DramBytes, Graph, Hardware, Plan
from lfopt.ops import Dataflow, bits
from lfopt.ops.access import AccessPatterns
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, link, totals_of
from lfopt.planning.steps.macs import executed_macs
from search.exact import solve
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from simulator.recount import recount
from tests.agreement import disagreements
from tests.brute import Oracle
from tests.codegen.counting import disagreement
from tests.random_plans import planned, random_inputs, random_scheme


class Moving:
    """A random network of convolutions, products and operators that only move data."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {"x": (1, 8, 12, 10)}

    def add(self, kind: str, inputs: list[str], *shapes: tuple[int, ...], **attributes: Any) -> list[str]:
        outputs = [f"t{len(self.shapes) + k}" for k in range(len(shapes))]
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        self.shapes.update(zip(outputs, shapes, strict=True))
        return outputs

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weights(self, *shape: int) -> np.ndarray:
        return (self.rng.normal(size=shape) / shape[1]).astype("f4")

    def conv(self, x: str, channels: int) -> str:
        _, before, height, width = self.shapes[x]
        kernel = int(self.rng.choice([1, 3]))
        weights = self.constant(
            (self.rng.normal(size=(channels, before, kernel, kernel)) / before).astype("f4")
        )
        pads = [kernel // 2] * 4
        return self.add("Conv", [x, weights], (1, channels, height, width), pads=pads)[0]

    def block(self, x: str) -> str:
        """Halves of channels, one of which is computed on; then both side by side (C2f, ShuffleNet)."""
        _, channels, height, width = self.shapes[x]
        half = (1, channels // 2, height, width)
        sizes = self.constant(np.array([channels // 2] * 2, np.int64))
        left, right = self.add("Split", [x, sizes], half, half, axis=1)
        right = self.conv(right, channels // 2)
        parts = [left, right] if self.rng.integers(2) else [right, left]
        return self.add("Concat", parts, (1, channels, height, width), axis=1)[0]

    def rolled(self, x: str) -> str:
        """Rows turned around by some, as Swin rolls windows."""
        _, channels, height, width = self.shapes[x]
        k = int(self.rng.integers(1, height))
        zero, at, end, axis = (self.constant(np.array([v], np.int64)) for v in (0, k, height, 2))
        (low,) = self.add("Slice", [x, zero, at, axis], (1, channels, k, width))
        (high,) = self.add("Slice", [x, at, end, axis], (1, channels, height - k, width))
        return self.add("Concat", [high, low], (1, channels, height, width), axis=2)[0]

    def tokens(self, x: str) -> str:
        """As tokens, a product on them, and back."""
        _, channels, height, width = self.shapes[x]
        flat = self.constant(np.array([1, channels, height * width], np.int64))
        (y,) = self.add("Reshape", [x, flat], (1, channels, height * width))
        (y,) = self.add("Transpose", [y], (1, height * width, channels), perm=[0, 2, 1])
        weights = self.constant(self.weights(channels, channels))
        (y,) = self.add("MatMul", [y, weights], (1, height * width, channels))
        (y,) = self.add("Transpose", [y], (1, channels, height * width), perm=[0, 2, 1])
        back = self.constant(np.array([1, channels, height, width], np.int64))
        return self.add("Reshape", [y, back], (1, channels, height, width))[0]

    def windows(self, x: str) -> str:
        """Windows of 2 x 2 pixels, a product on each, and back."""
        _, c, h, w = self.shapes[x]
        cut = self.constant(np.array([1, c, h // 2, 2, w // 2, 2], np.int64))
        (y,) = self.add("Reshape", [x, cut], (1, c, h // 2, 2, w // 2, 2))
        (y,) = self.add("Transpose", [y], (1, h // 2, w // 2, 2, 2, c), perm=[0, 2, 4, 3, 5, 1])
        many = h * w // 4
        (y,) = self.add("Reshape", [y, self.constant(np.array([many, 4, c], np.int64))], (many, 4, c))
        weights = self.constant(self.weights(c, c))
        (y,) = self.add("MatMul", [y, weights], (many, 4, c))
        (y,) = self.add(
            "Reshape", [y, self.constant(np.array([1, h // 2, w // 2, 2, 2, c], np.int64))],
            (1, h // 2, w // 2, 2, 2, c),
        )  # fmt: skip
        (y,) = self.add("Transpose", [y], (1, c, h // 2, 2, w // 2, 2), perm=[0, 5, 1, 3, 2, 4])
        return self.add("Reshape", [y, self.constant(np.array([1, c, h, w], np.int64))], (1, c, h, w))[0]

    def shuffled(self, x: str) -> str:
        """Pixels of four channels as one of twice the height and width, and back."""
        _, c, h, w = self.shapes[x]
        (y,) = self.add("DepthToSpace", [x], (1, c // 4, 2 * h, 2 * w), blocksize=2)
        y = self.conv(y, c // 4)
        return self.add("SpaceToDepth", [y], (1, c, h, w), blocksize=2)[0]

    def picked(self, x: str) -> str:
        """Channels in another order, by constant indices."""
        order = self.constant(self.rng.permutation(self.shapes[x][1]).astype(np.int64))
        return self.add("Gather", [x, order], self.shapes[x], axis=1)[0]

    def graph(self) -> Graph:
        x = self.conv("x", 8)
        kinds = [self.block, self.rolled, self.tokens, self.windows, self.shuffled, self.picked]
        for _ in range(int(self.rng.integers(1, 4))):
            x = kinds[self.rng.integers(len(kinds))](x)
            if self.rng.integers(3):
                x = self.conv(x, 8)
        x = self.conv(x, 8)
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in ("x", x)]
        graph = helper.make_graph(self.nodes, "moving", ends[:1], ends[1:], self.constants)
        return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize("seed", range(24))
def test_plans_execute_as_they_say(seed: int, tmp_path: Path) -> None:
    """Best and random schemes: searched, planned, executed, recounted, simulated, and counted in C."""
    graph = Moving(seed).graph()
    costs = GroupCosts.of(graph, Hardware(4 << 10 << seed % 3), scheme="all")
    groups = solve(costs).groups if seed % 2 else random_scheme(costs, seed)
    groups = link(costs, groups) if seed % 4 else groups
    plan = planned(costs, groups)
    bound = costs.unfused().bounds.recomputing_bytes
    plan = replace(plan, totals=totals_of(costs.unfused(), plan.groups, bound, costs.dataflow))
    inputs = random_inputs(graph, np.random.default_rng(seed))
    done = execute(plan, graph, inputs)
    assert disagreements(costs, groups, plan, done, reference(graph, inputs)) == []
    assert recount(graph, plan).discrepancies == ()
    assert simulate(plan, graph).disagreements == ()
    if seed % 3 == 0:
        assert disagreement(plan, graph, inputs, tmp_path) == []


@pytest.mark.parametrize("seed", range(0, 24, 4))
def test_a_search_finds_the_fewest_bytes(seed: int) -> None:
    """By enumeration of all partitions; no bound is above them."""
    graph = Moving(seed).graph()
    costs = GroupCosts.of(graph, Hardware(4 << 10 << seed % 3), scheme="all")
    oracle = Oracle(graph)
    if len(costs.dataflow) > 9 or len(costs.dataflow) != len(oracle.names):
        pytest.skip("too many partitions, or operators in flight")
    least, _ = oracle.least(lambda mask: cost.dram_bytes if (cost := costs.price(mask)) else None)
    assert solve(costs).dram_bytes == least
    assert costs.least_bytes <= least
    assert costs.bounds.recomputing_bytes <= least


def planned_with_accesses() -> tuple[Graph, GroupCosts, Plan]:
    """A network of halves of channels, with what its plan reads through."""
    drawn = (Moving(seed).graph() for seed in range(50))
    graph = next(graph for graph in drawn if any(operator.kind == "Concat" for operator in graph.operators))
    costs = GroupCosts.of(graph, Hardware(4 << 10), scheme="all")
    alone = tuple(1 << i for i in range(len(costs.dataflow)))
    plan = planned(costs, alone)
    bound = costs.unfused().bounds.recomputing_bytes
    return graph, costs, replace(plan, totals=totals_of(costs.unfused(), plan.groups, bound, costs.dataflow))


def test_a_recount_refuses_what_cannot_be_read_through() -> None:
    graph, _, plan = planned_with_accesses()
    assert plan.read_through
    assert recount(graph, plan).agrees
    computes = next(group for group in plan.groups if group.steps)
    changed = {
        "cannot be read through": replace(computes, mode="access", steps=(), places=(), dram=DramBytes()),
        "moves nothing": replace(plan.groups[0], mode="access"),
    }
    for words, group in changed.items():
        groups = tuple(group if group.id == one.id else one for one in plan.groups)
        assert any(words in line for line in recount(graph, replace(plan, groups=groups)).discrepancies)
    for other in (replace(plan, scheme="auto"), replace(plan, traffic="once")):
        assert any("mode access, which" in line for line in recount(graph, other).discrepancies)
    padded = replace(plan, hardware=replace(plan.hardware, dram_row_align=16))
    assert any("pads rows" in line for line in recount(graph, padded).discrepancies)


def test_a_map_stays_in_memory_as_long_as_it_is_read_through() -> None:
    """What overwrites it after the last group that names it, but before one that reads through to it."""
    graph, costs, plan = planned_with_accesses()
    accesses = AccessPatterns.through(graph, plan.read_through)
    owner = {name: group.id for group in plan.groups for name in group.nodes}
    flow, entries = costs.dataflow, {entry.name: entry for entry in plan.memory}
    late = [
        (source, name)
        for name in accesses.known
        for source in accesses.sources(name)
        if source in entries and entries[source].role == "map" and name in flow.map_index
    ]
    source, name = late[0]
    reader = max(owner[flow.operators[i].name] for i in bits(flow.readers[flow.map_index[name]]))
    victim = next(
        entry
        for entry in plan.memory
        if entry.role in ("map", "output")
        and entry.name != source
        and made_before(entry.name, flow, owner, reader)
    )
    moved = tuple(
        replace(entry, address=entries[source].address) if entry is victim else entry for entry in plan.memory
    )
    assert any("lies over" in line for line in recount(graph, replace(plan, memory=moved)).discrepancies)


def made_before(name: str, flow: Dataflow, owner: dict[str, int], group: int) -> bool:
    """Whether a map is made no later than a group runs."""
    maker = flow.producer[flow.map_index[name]]
    return maker >= 0 and owner[flow.operators[maker].name] <= group


def test_chips_that_pad_rows_read_nothing_through() -> None:
    graph, _, _ = planned_with_accesses()
    for chip in (Hardware(4 << 10, dram_row_align=16), Hardware(4 << 10, l2_bytes=1 << 20)):
        assert not GroupCosts.of(graph, chip, scheme="all").bounds.through
    assert not GroupCosts.of(graph, Hardware(4 << 10), scheme="auto").bounds.through


def test_bands_make_no_more_again_than_a_plan_may() -> None:
    """A network of one group in bands, which made 8.6 times the products that it must."""
    graph = Moving(2886).graph()
    costs = GroupCosts.of(graph, Hardware(4 << 10), scheme="all")
    everything = costs.dataflow.everything
    assert GroupCosts.of(graph, Hardware(4 << 10), scheme="brr").price(everything) is not None
    for mask in range(1, everything + 1):
        plan = planned(costs, (mask,)) if costs.price(mask) else None
        if plan is not None:
            assert executed_macs(costs.dataflow, plan.groups) <= costs.groups.most_macs(mask, 2.0)
