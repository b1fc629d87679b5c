"""Random networks in floats and in integers, legal schemes of them, and their plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lfopt.app.arrays import with_values
from lfopt.app.pipeline import load_network
from lfopt.ir import Graph, Hardware, ModelReference, Plan, Quantization, SearchRecord, Tensor, Totals
from lfopt.ops import Call, Dataflow, Tiling, row_of, spec
from lfopt.ops.fixed_point import quantized
from lfopt.ops.reference import reference
from lfopt.planning import SCHEMES as SCHEME_ROWS
from lfopt.planning import GroupCosts, Propose, memory_map, plan_groups, total_dram
from search.partition import Partitions, Rng
from tests.strategies import random_graph, random_hardware, random_mlp

SCHEMES = tuple(SCHEME_ROWS)
Values = Mapping[str, np.ndarray]


def random_scheme(costs: GroupCosts, seed: int) -> tuple[int, ...]:
    """Random connected convex groups that may run, with an acyclic quotient, in an executable order."""
    partitions = Partitions(costs)
    return partitions.in_order(partitions.draw(Rng((seed, 1))))


def planned(costs: GroupCosts, groups: tuple[int, ...], bands: Propose | None = None) -> Plan:
    """The plan of these groups."""
    groups_planned = plan_groups(costs, groups, bands)
    assert isinstance(groups_planned, tuple), groups_planned
    return Plan(
        ModelReference(costs.dataflow.graph.name, "0" * 64, "simplified.onnx"),
        costs.hardware,
        costs.scheme,
        costs.traffic.value,
        costs.epilogue,
        memory_map(costs, groups_planned),
        groups_planned,
        Totals(total_dram(groups_planned).total, 0, 0, 0, 0, 0.0, "none"),
        SearchRecord("random", 0, 0, 0, 0.0),
        costs.max_recompute,
    )


def computable(graph: Graph) -> Graph:
    """The graph with undefined operators replaced by ReverseSequence, opaque to lfopt but computable."""
    operators, tensors, constants = list(graph.operators), dict(graph.tensors), dict(graph.constants)
    for k, op in enumerate(operators):
        if op.domain:
            name, shape = f"lengths of {op.name}", graph.shape(op.inputs[0])
            tensors[name] = Tensor(name, shape[:1], "int64")
            constants[name] = np.full(shape[:1], shape[1], np.int64)
            operators[k] = replace(
                op,
                kind="ReverseSequence",
                domain="",
                inputs=(*op.inputs, name),
                attributes={"batch_axis": 0, "time_axis": 1},
            )
    return replace(graph, operators=tuple(operators), tensors=tensors, constants=constants)


def random_inputs(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        name: rng.standard_normal(graph.shape(name)).astype(graph.tensors[name].dtype)
        for name in graph.inputs
    }


def in_integers(
    graph: Graph, inputs: Values, rng: np.random.Generator
) -> tuple[Graph, dict[str, np.ndarray]]:
    """(graph, inputs) with real maps and weights in int8, biases in int32.

    Some weights have a scale per channel.

    Scales are those of what the graph computes on these inputs.
    """
    real = {**inputs, **reference(graph, inputs, everything=True)}
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    flow = Dataflow.of(graph)
    for name in graph.inputs:
        tensors[name] = _in_bytes(graph.tensors[name], real[name], rng)
    names = {op.name for op in flow.operators}
    for op in graph.operators:
        for name in filter(None, op.outputs):
            if op.name in names:
                tensors[name] = _in_bytes(graph.tensors[name], real[name], rng)
            else:  # a view
                source = tensors[op.inputs[0]]
                tensors[name] = replace(
                    graph.tensors[name], dtype=source.dtype, quantization=source.quantization
                )
    readers = Counter(name for op in graph.operators for name in op.inputs)
    biases: list[tuple[Call, str]] = []
    for call in flow.calls:
        for index, name in enumerate(call.operator.inputs):
            value = graph.constants.get(name)
            if (
                value is None
                or value.dtype.kind != "f"
                or index in spec(call.operator.kind).parameters
                or tensors[name].quantization
            ):
                continue
            if row_of(call).tiling is Tiling.CONTRACT and index == 2 and readers[name] == 1:
                biases.append((call, name))
                continue
            axis = _channel_axis(call) if index == 1 and readers[name] == 1 and rng.random() < 0.5 else None
            tensors[name], constants[name] = _weights(graph.tensors[name], value, axis)
    for call, name in biases:  # in units of the sums, as QDQ has it
        x, w = (tensors[n].quantization for n in call.operator.inputs[:2])
        assert x is not None
        assert w is not None
        channels = np.array(w.scale if w.axis is not None else w.scale * graph.shape(name)[0]) * x.scale[0]
        if len(channels) != graph.shape(name)[0]:  # one scale per channel of a group
            channels = np.tile(channels, graph.shape(name)[0] // len(channels))
        by = Quantization(tuple(channels.tolist()), (0,) * len(channels), 0)
        value = graph.constants[name]
        assert value is not None
        tensors[name] = replace(graph.tensors[name], dtype="int32", quantization=by)
        constants[name] = np.rint(value / channels).astype(np.int32)
    stored = {name: quantized(value, tensors[name].quantization, "int8") for name, value in inputs.items()}  # type: ignore[arg-type]
    return replace(graph, tensors=tensors, constants=constants), stored


def _in_bytes(tensor: Tensor, real: np.ndarray, rng: np.random.Generator) -> Tensor:
    if real.dtype.kind != "f":
        return tensor
    low, high = min(float(real.min()), 0.0), max(float(real.max()), 1e-3)
    scale = (high - low) / 255
    zero_point = (
        int(np.clip(round(-128 - low / scale), -128, 127)) if rng.random() < 0.7 else int(rng.integers(-3, 4))
    )
    return replace(tensor, dtype="int8", quantization=Quantization((scale,), (zero_point,)))


def _channel_axis(call: Call) -> int | None:
    if call.operator.kind == "Conv":
        return 0
    if call.operator.kind == "ConvTranspose":
        return 1
    return (
        len(call.shape(1)) - 1
        if call.operator.kind in ("Gemm", "MatMul") and not call.attribute("transB", 0)
        else None
    )


def _weights(tensor: Tensor, value: np.ndarray, axis: int | None) -> tuple[Tensor, np.ndarray]:
    others = tuple(a for a in range(value.ndim) if a != axis)
    scales = np.maximum(np.abs(value).max(axis=None if axis is None else others), 1e-3).reshape(-1) / 127
    by = Quantization(tuple(scales.tolist()), (0,) * len(scales), axis)
    return replace(tensor, dtype="int8", quantization=by), quantized(value, by, "int8")


def drawn(
    rng: np.random.Generator, *, integers: bool = False, linear: bool = False
) -> tuple[Graph, Hardware, dict[str, np.ndarray]]:
    """A random network, a chip for it, and its inputs; in float32 or in int8.

    `linear`: two linear layers, plain or gated.
    """
    graph = random_mlp(rng) if linear else computable(random_graph(rng, int(rng.integers(1, 10))))
    hardware, inputs = random_hardware(rng, graph), random_inputs(graph, rng)
    if integers:
        graph, inputs = in_integers(graph, inputs, rng)
    return graph, hardware, inputs


ACCELERATOR = Hardware(64 * 1024, dram_row_align=16, channel_align=16)


def real_network(model: str, inputs: dict[str, tuple[int, ...]]) -> Graph:
    """A network with weights drawn at random where it has none."""
    return with_values(load_network(model, inputs, "default"), model, np.random.default_rng(0))
