"""On a chip with tables, functions of one byte follow in flight in every scheme, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan, computations
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, Traffic
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.accelerator import accelerator_hardware
from tests.random_plans import in_integers, random_inputs

CHIP = accelerator_hardware(1 << 13)
SHAPE = [1, 16, 12, 12]


@pytest.fixture(scope="module")
def network() -> tuple[Graph, dict[str, np.ndarray]]:
    """Convolution, SiLU, the same again, and what both make added."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((16, 16, 3, 3)).astype(np.float32), f"w{k}")
        for k in range(2)
    ]
    nodes = [helper.make_node("Conv", ["x", "w0"], ["c0"], "conv0", pads=[1] * 4)]
    nodes += [
        helper.make_node("Sigmoid", ["c0"], ["s0"], "sigmoid0"),
        helper.make_node("Mul", ["c0", "s0"], ["m0"], "mul0"),
    ]
    nodes += [
        helper.make_node("Conv", ["m0", "w1"], ["c1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
    ]
    nodes += [helper.make_node("Add", ["r1", "m0"], ["y"], "add")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = from_model(
        helper.make_model(
            helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
            opset_imports=[helper.make_opsetid("", 18)],
        )
    )
    return in_integers(graph, random_inputs(graph, rng), rng)


def found_plan(graph: Graph, scheme: str) -> Plan:
    outcome = find_plan(
        Config("g", CHIP, scheme, max_recompute=1.0, search=SearchConfig(objective="bytes")), graph=graph
    )
    return outcome.draft.finished()


def flights(plan: Plan) -> set[tuple[str, ...]]:
    return {
        (step.operator, *step.then)
        for group in plan.groups
        for step in computations(group.steps)
        if step.then
    }


@pytest.mark.parametrize("scheme", ["lbdf", "resident", "brr", "auto"])
def test_tables_are_looked_up_as_bytes_are_made(
    network: tuple[Graph, dict[str, np.ndarray]], scheme: str
) -> None:
    graph, inputs = network
    plan = found_plan(graph, scheme)
    # the addition reads another map
    assert flights(plan) == {("conv0", "sigmoid0", "mul0"), ("conv1", "relu1")}
    assert not recount(graph, plan).discrepancies
    done = execute(plan, graph, inputs)
    assert done.dram.total == plan.totals.dram_bytes
    assert np.array_equal(done.outputs["y"], reference(graph, inputs)["y"])


@pytest.mark.parametrize("change", ["no store", "real numbers", "traffic paper"])
def test_elsewhere_nothing_follows_in_flight(
    network: tuple[Graph, dict[str, np.ndarray]], change: str
) -> None:
    graph, _ = network
    if change == "real numbers":
        graph = replace(
            graph,
            tensors={
                name: replace(tensor, dtype="float32", quantization=None)
                for name, tensor in graph.tensors.items()
            },
        )
    hardware: Hardware = replace(CHIP, parameter_store_bytes=0) if change == "no store" else CHIP
    costs = GroupCosts.of(
        graph, hardware, Traffic.PAPER if change == "traffic paper" else Traffic.TILED, scheme="lbdf"
    )
    assert len(costs.dataflow) == 6
    assert not costs.flies


def test_what_reads_another_map_is_in_flight_in_scheme_all(
    network: tuple[Graph, dict[str, np.ndarray]],
) -> None:
    graph, _ = network
    plan = found_plan(graph, "all")
    assert any("add" in flight for flight in flights(plan))
    assert not recount(graph, plan).discrepancies
    assert not any("add" in flight for flight in flights(found_plan(graph, "auto")))
