"""Line buffers that load rows of a view, where rows of the map behind it are spread over all of the view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from lfopt import simplify
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Transfer, unfold
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, totals_of
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.agreement import disagreements
from tests.codegen.counting import disagreement
from tests.random_plans import planned, random_inputs

TOKENS, WIDTH = 36, 8


def feed_forward() -> Graph:
    """Two linear layers on tokens, and what is added behind them: a map of rows and columns of tokens."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((WIDTH, 2 * WIDTH)).astype(np.float32),
        "w2": rng.standard_normal((2 * WIDTH, WIDTH)).astype(np.float32),
        "shape": np.array([1, TOKENS, WIDTH], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["hidden"], "first"),
        helper.make_node("Relu", ["hidden"], ["relu"], "relu"),
        helper.make_node("MatMul", ["relu", "w2"], ["mixed"], "second"),
        helper.make_node("Reshape", ["z", "shape"], ["tokens"], "view"),
        helper.make_node("Add", ["mixed", "tokens"], ["y"], "add"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, TOKENS, WIDTH]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 6, 6, WIDTH]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, TOKENS, WIDTH])
    constants = [helper.make_tensor(k, *_typed(v)) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "feed_forward", inputs, [output], constants)
    return simplify(from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])))


def _typed(value: np.ndarray) -> tuple[int, tuple[int, ...], list[float]]:
    kind = TensorProto.INT64 if value.dtype == np.int64 else TensorProto.FLOAT
    return kind, value.shape, value.reshape(-1).tolist()


def test_a_residual_of_rows_and_columns_comes_token_by_token(tmp_path: Path) -> None:
    graph = feed_forward()
    hardware = Hardware(4 * (4 * WIDTH * WIDTH + 8 * WIDTH), element_bytes=4)
    costs = GroupCosts.of(graph, hardware, scheme="all")
    everything = costs.dataflow.everything
    price = costs.price(everything)
    assert price is not None
    assert price.mode == "lbdf"
    assert price.dram_bytes == costs.groups.once(everything).total
    plan = planned(costs, (everything,))
    plan = replace(plan, totals=totals_of(costs.unfused(), plan.groups, costs.least_bytes))
    transfers = [step for step in unfold(plan.groups[0].steps) if isinstance(step, Transfer)]
    loads = {step.tensor for step in transfers if not step.store}
    assert "tokens" in loads
    assert "z" not in loads
    inputs = random_inputs(graph, np.random.default_rng(1))
    done = execute(plan, graph, inputs)
    assert disagreements(costs, (everything,), plan, done, reference(graph, inputs)) == []
    assert recount(graph, plan).discrepancies == ()
    assert disagreement(plan, graph, inputs, tmp_path) == []


def test_where_rows_are_padded_in_dram_the_map_comes_as_it_is() -> None:
    padded = Hardware(1 << 20, dram_row_align=16)
    assert not GroupCosts.of(feed_forward(), padded, scheme="all").groups.line_buffers.seen.by_reader
    plain = GroupCosts.of(feed_forward(), Hardware(1 << 20), scheme="lbdf")
    assert not plain.groups.line_buffers.seen.by_reader
