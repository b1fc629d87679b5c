"""Bytes of operators that do not fit the buffer: never fewer than every tensor once, never more for more buffer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lfopt.frontend import load
from lfopt.ir import Cost, Graph, Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from simulator.recount import Network, count
from tests.strategies import random_graph

MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
KIB = 1024
NETWORKS = ["hf_mobilenet_v2", "hf_efficientnet_b0", "hf_resnet50", "tv_squeezenet1_1", "hf_distilbert_2l", "tv_vgg16", "tv_s3d"]


def price(costs: GroupCosts, op: int) -> Cost:
    found = costs.evaluate(1 << op)
    assert isinstance(found, Cost), "an operator alone is always legal"
    return found


def one_of_each(flow: Dataflow) -> list[int]:
    """One operator of every distinct kind, attributes and shapes."""
    seen: dict[object, int] = {}
    for i, call in enumerate(flow.calls):
        seen.setdefault((call.operator.kind, repr(sorted(call.operator.attributes.items())), call.shapes, call.results), i)
    return list(seen.values())


def sweep(graph: Graph, sizes: list[int], **hardware: int) -> tuple[int, int]:
    """Check every distinct operator over these buffers; returns (operators, buffers at which some operator moved fewer bytes than at the last)."""
    flow, net = Dataflow.of(graph), Network(graph)
    operators = one_of_each(flow)
    once = {i: count(net, flow.names(1 << i), Hardware(1, **hardware)) for i in operators}  # type: ignore[arg-type]
    floor = {i: price(GroupCosts(flow, Hardware(1, **hardware), Traffic.TILED), i) for i in operators}  # type: ignore[arg-type]  # tiles of one element
    before: dict[int, Cost] = {}
    steps = 0
    for size in sizes:
        costs = GroupCosts(flow, Hardware(size, **hardware), Traffic.TILED)  # type: ignore[arg-type]
        for i in operators:
            found, what = price(costs, i), f"{flow.operators[i].name} ({flow.operators[i].kind}) at {size} B"
            assert found.dram_bytes >= once[i].dram.total, what
            assert found.dram_bytes == costs.dram(1 << i).total, what
            fits = once[i].buffer_bytes < size
            assert (found.mode == "lbdf") == (fits and found.mode != "opaque"), what
            if fits:
                assert (found.dram_bytes, found.buffer_bytes) == (once[i].dram.total, once[i].buffer_bytes), what
            elif found.mode == "tiled":
                assert found.buffer_bytes < size or (found == floor[i] and costs.tile(1 << i).kind == "slices"), what
            if i in before:
                assert found.dram_bytes <= before[i].dram_bytes, f"{what}: {found}, with less buffer {before[i]}"
                steps += found.dram_bytes < before[i].dram_bytes
            before[i] = found
    return len(operators), steps


@pytest.mark.parametrize("name", NETWORKS)
def test_more_buffer_never_costs_an_operator_more_bytes(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    sizes = np.unique(np.geomspace(KIB, 4 * KIB * KIB, 48).astype(int)).tolist()
    operators, steps = sweep(load(path), sizes)
    assert operators > 10
    assert steps > 10


@pytest.mark.parametrize("hardware", [{}, {"dram_row_align": 16, "channel_align": 4}, {"element_bytes": 1, "bias_bytes": 4}], ids=str)
def test_more_buffer_never_costs_a_random_operator_more_bytes(hardware: dict[str, int]) -> None:
    operators = steps = 0
    for seed in range(400):
        graph = random_graph(np.random.default_rng(seed), 3)
        most = 8 * sum(tensor.elements for tensor in graph.tensors.values()) + 64
        found = sweep(graph, np.unique(np.geomspace(1, most, 40).astype(int)).tolist(), **hardware)
        operators, steps = operators + found[0], steps + found[1]
    assert operators > 1000
    assert steps > 500
