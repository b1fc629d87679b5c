"""lfopt in one minute: two convolutions and a residual addition, from ONNX to a plan."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper as h

from lfopt.frontend import from_model
from lfopt.fusion import legal
from lfopt.ir import Cost, DoesNotFit, FusionScheme, Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from search.exact import solve


def residual_block() -> onnx.ModelProto:
    """x -> conv3x3 -> relu -> conv3x3 -> + x, 4 channels, 8x8."""
    shape = [1, 4, 8, 8]
    kernels = {f"w{k}": np.full((4, 4, 3, 3), k, np.float32) for k in (1, 2)}  # equal ones would be one
    weights = [onnx.numpy_helper.from_array(kernel, name) for name, kernel in kernels.items()]
    nodes = [
        h.make_node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        h.make_node("Relu", ["a"], ["b"], "relu"),
        h.make_node("Conv", ["b", "w2"], ["c"], "conv2", pads=[1, 1, 1, 1]),
        h.make_node("Add", ["c", "x"], ["y"], "add"),
    ]
    tensors = [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y")]
    return h.make_model(
        h.make_graph(nodes, "block", tensors[:1], tensors[1:], weights),
        opset_imports=[h.make_opsetid("", 18)],
    )


MAP, ROW, WEIGHTS = 4 * 8 * 8 * 2, 4 * 8 * 2, 4 * 4 * 9 * 2  # bytes, at 2 per element


def test_a_residual_block_runs_as_one_group_and_moves_only_its_ends():
    flow = Dataflow.of(from_model(residual_block()))
    # x is held for conv1's window of 3 rows, and the addition reads the oldest of them: the skip costs
    # nothing.
    rings = GroupCosts(flow, Hardware(1 << 20)).groups.line_buffers.ring_rows(flow.everything)
    assert {flow.maps[m].name: rows for m, rows in rings.items()} == {"x": 3, "a": 1, "b": 3, "c": 1, "y": 1}
    need = 9 * ROW + 2 * WEIGHTS
    costs = GroupCosts(flow, Hardware(need + 1), Traffic.ONCE, epilogue=False)
    assert costs.evaluate(flow.everything) == Cost(2 * MAP + 2 * WEIGHTS, need, "lbdf", need)
    result = solve(costs)
    assert (result.groups, result.proof) == ((flow.everything,), "optimal")


def test_one_byte_less_and_it_does_not_fit():
    flow = Dataflow.of(from_model(residual_block()))
    need = 9 * ROW + 2 * WEIGHTS
    # valid means strictly less than the buffer
    costs = GroupCosts(flow, Hardware(need), Traffic.ONCE, epilogue=False)
    misfit = costs.evaluate(flow.everything)
    assert isinstance(misfit, DoesNotFit)
    assert (misfit.needed, misfit.available) == (need, need)
    assert sum(use.bytes for use in misfit.uses) == need
    result = solve(costs)
    assert len(result.groups) == 2
    assert result.proof == "optimal"


def test_every_scheme_that_is_not_a_partition_into_convex_groups_is_refused_with_a_reason():
    graph = from_model(residual_block())
    assert legal(graph, FusionScheme((("conv1", "relu"), ("conv2", "add")))).legal
    assert "not convex" in legal(graph, FusionScheme((("conv1", "add"), ("relu",), ("conv2",)))).reasons[0]
    assert "in no group" in legal(graph, FusionScheme((("conv1", "relu"), ("conv2",)))).reasons[0]
    assert "already" in legal(graph, FusionScheme((("conv1", "relu"), ("relu", "conv2", "add")))).reasons[0]
