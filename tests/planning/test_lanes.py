"""Copies of lanes put every channel where it belongs; channel shuffles become Gather."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import Graph
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning.accelerator.lanes import channel_runs, copies
from lfopt.rewrite.shuffle import shuffles_as_gathers
from lfopt.rewrite.simplify import simplify

SIZE = 60  # channels of x


def network(
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]],
    ints: dict[str, list[int]],
    shape: tuple[int, ...],
) -> Graph:
    """A network on x; the last node makes the outputs."""
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, outputs, **more) for kind, inputs, outputs, more in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in nodes[-1][2]],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in ints.items()],
    )
    return simplify(from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])))


ORDER = np.random.default_rng(0).permutation(SIZE).tolist()
CASES = {
    "Concat": ([("Concat", ["x", "x", "x"], ["y"], {"axis": 1})], {}),
    "Split": ([("Split", ["x", "s"], ["a", "b", "c"], {"axis": 1})], {"s": [7, 32, SIZE - 39]}),
    "Slice": (
        [("Slice", ["x", "from", "to", "axes", "by"], ["y"], {})],
        {"from": [5], "to": [SIZE], "axes": [1], "by": [3]},
    ),
    "far apart": (
        [("Slice", ["x", "from", "to", "axes", "by"], ["y"], {})],
        {"from": [1], "to": [SIZE], "axes": [1], "by": [29]},
    ),
    "shuffle": (
        [("Gather", ["x", "i"], ["y"], {"axis": 1})],
        {"i": np.arange(SIZE).reshape(3, -1).T.reshape(-1).tolist()},
    ),
    "from behind": ([("Gather", ["x", "i"], ["y"], {"axis": 1})], {"i": list(range(-1, -SIZE - 1, -1))}),
    "any order": ([("Gather", ["x", "i"], ["y"], {"axis": 1})], {"i": ORDER}),
}


@pytest.mark.parametrize("lanes", [8, 16, 64])
@pytest.mark.parametrize("case", CASES)
def test_copies_put_every_channel_where_it_belongs(case: str, lanes: int) -> None:
    nodes, ints = CASES[case]
    graph = network(nodes, ints, (1, SIZE, 1, 1))
    (call,) = Dataflow.of(graph).calls
    channels = np.arange(SIZE, dtype=np.float32)
    wanted = reference(graph, {"x": channels.reshape(1, -1, 1, 1)})
    operand = np.resize(channels, -(-SIZE // lanes) * lanes)
    for k, name in enumerate(graph.outputs):
        runs = channel_runs(call, k)
        assert runs is not None
        depth = call.results[k][1]
        got = np.full(-(-depth // lanes) * lanes, -1.0)
        for first in range(0, depth, 2 * lanes):  # two blocks at a time
            for copy in copies(runs, (first, min(first + 2 * lanes, depth)), lanes):
                for block in range(copy.blocks):
                    lane = np.arange(copy.tail if copy.tail and block == copy.blocks - 1 else copy.size)
                    to = (copy.to_block + block) * lanes + copy.o_lane + lane * copy.o_step
                    assert (got[to] == -1).all()
                    got[to] = operand[(copy.from_block + block) * lanes + copy.a_lane + lane * copy.a_step]
        assert got[:depth].tolist() == wanted[name].reshape(-1).tolist()
        assert (got[depth:] == -1).all()


@pytest.mark.parametrize("what", ["rows", "two maps", "an index that is not known"])
def test_what_moves_more_than_channels_is_none(what: str) -> None:
    nodes, ints = {
        "rows": ([("Split", ["x"], ["a", "b"], {"axis": 2, "num_outputs": 2})], {}),
        "two maps": ([("Concat", ["x", "x"], ["y"], {"axis": 0})], {}),
        "an index that is not known": (
            [("Cast", ["x"], ["i"], {"to": TensorProto.INT64}), ("Gather", ["x", "i"], ["y"], {"axis": 1})],
            {},
        ),
    }[what]
    assert channel_runs(Dataflow.of(network(nodes, ints, (1, 4, 4, 2))).calls[-1]) is None


@pytest.mark.parametrize(("cut", "axes", "kinds"), [
    ((1, 2, 30, 4, 5), (0, 2, 1, 3, 4), ["Gather"]),
    ((1, 3, 4, 5, 4, 5), (0, 3, 1, 2, 4, 5), ["Gather"]),
    ((1, 2, 30, 4, 5), (0, 1, 2, 4, 3), ["Reshape", "Transpose", "Reshape"]),
    ((1, 60, 2, 2, 5), (0, 1, 3, 2, 4), ["Reshape", "Transpose", "Reshape"]),
])  # fmt: skip
def test_a_shuffle_of_channels_is_one_gather(
    cut: tuple[int, ...], axes: tuple[int, ...], kinds: list[str]
) -> None:
    nodes = [
        ("Reshape", ["x", "cut"], ["a"], {}),
        ("Transpose", ["a"], ["b"], {"perm": axes}),
        ("Reshape", ["b", "whole"], ["y"], {}),
    ]
    graph = network(nodes, {"cut": list(cut), "whole": [1, SIZE, 4, 5]}, (1, SIZE, 4, 5))
    after = shuffles_as_gathers(graph)
    assert [operator.kind for operator in after.operators] == kinds
    x = np.random.default_rng(0).normal(size=(1, SIZE, 4, 5)).astype(np.float32)
    assert np.array_equal(reference(after, {"x": x})["y"], reference(graph, {"x": x})["y"])
