"""Small networks by name, and random groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from scipy.stats import spearmanr

from lfopt.frontend import from_model
from lfopt.fusion import connected, convex_gap
from lfopt.ops import Dataflow, bits
from tests.strategies import random_graph

SHAPE = (1, 2, 8, 4)


def network(edges: dict[str, list[str]]) -> Dataflow:
    """Operators by name, each with what it reads; "x" is the input. One that reads several adds them up."""
    nodes = [
        helper.make_node(("Relu", "Add", "Sum")[min(len(reads), 3) - 1], reads, [name], name=name)
        for name, reads in edges.items()
    ]
    read = {name for reads in edges.values() for name in reads}
    return _flow(nodes, SHAPE, [name for name in edges if name not in read], [])


def chain(length: int) -> Dataflow:
    """Operators a, b, c and so on, each reading the one before."""
    names = [chr(ord("a") + i) for i in range(length)]
    return network({name: [names[i - 1] if i else "x"] for i, name in enumerate(names)})


def convolutions(channels: list[int], kernels: list[int], size: int = 12) -> Dataflow:
    """A chain of convolutions with padding."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    for i, kernel in enumerate(kernels):
        shape = (channels[i + 1], channels[i], kernel, kernel)
        weights.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), f"w{i}"))
        pads = [kernel // 2] * 4
        nodes.append(
            helper.make_node(
                "Conv",
                [f"m{i}" if i else "x", f"w{i}"],
                [f"m{i + 1}"],
                name=f"conv{i}",
                kernel_shape=shape[2:],
                pads=pads,
            )
        )
    return _flow(nodes, (1, channels[0], size, size), [f"m{len(kernels)}"], weights)


def _flow(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], outputs: list[str], weights: list[onnx.TensorProto]
) -> Dataflow:
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(
        nodes, "net", infos, [helper.make_empty_tensor_value_info(name) for name in outputs], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return Dataflow.of(from_model(onnx.shape_inference.infer_shapes(model)))


def random_groups(count: int, most: int) -> list[tuple[Dataflow, int]]:
    """Connected, convex groups of random networks, of 2 to `most` operators."""
    groups: list[tuple[Dataflow, int]] = []
    seed = 0
    while len(groups) < count:
        seed += 1
        rng = np.random.default_rng(seed)
        flow = Dataflow.of(random_graph(rng, int(rng.integers(3, 16))))
        for _ in range(4):
            mask = int(rng.integers(1, 1 << len(flow)))
            for i in bits(mask):
                for j in bits(mask):
                    mask |= flow.descendants[i] & flow.ancestors[j]
            if (
                1 < mask.bit_count() <= most
                and connected(flow.neighbours, mask)
                and not convex_gap(flow, mask)
            ):
                groups.append((flow, mask))
    return groups


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's."""
    correlation: Any = spearmanr(a, b)
    return float(correlation.statistic)
