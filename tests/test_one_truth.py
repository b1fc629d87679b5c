"""One truth: the bytes that a plan predicts are the bytes that its execution counts, and what it computes is what the network computes.

Random graphs on random chips under random legal schemes, in every mode; quantised ones, to the bit; and real networks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from threadpoolctl import threadpool_limits

from lfopt.app.arrays import with_values
from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model, load
from lfopt.ir import (
    Box,
    Compute,
    Cost,
    Graph,
    Hardware,
    Loop,
    ModelReference,
    Plan,
    Quantization,
    SearchRecord,
    Tensor,
    Totals,
    Transfer,
    box_shape,
    dram_bytes,
    parameters_of,
    row_axis,
    row_count,
    store_ends,
    unfold,
)
from lfopt.ir.listing import listing, parse
from lfopt.ops import Call, Dataflow, Tiling, row_of, spec
from lfopt.ops.fixed_point import quantized
from lfopt.ops.reference import reference
from lfopt.planning import SCHEMES as SCHEME_ROWS
from lfopt.planning import GroupCosts, Propose, Traffic, memory_map, plan_groups, total_dram
from search.exact import solve
from search.options import SearchOptions
from search.partition import Dice, Partitions
from simulator.interpreter.execute import Execution, execute
from simulator.recount import recount
from tests.strategies import random_bands, random_graph, random_hardware, random_joins, random_mlp, random_reduction, with_weight_buffer

SCHEMES = tuple(SCHEME_ROWS)
Values = Mapping[str, np.ndarray]


# -- plans ---------------------------------------------------------------------------------------------------------------------------------


def random_scheme(costs: GroupCosts, seed: int) -> tuple[int, ...]:
    """Connected, convex groups with an acyclic quotient that may run, drawn at random, in an executable order."""
    partitions = Partitions(costs)
    return partitions.in_order(partitions.draw(Dice((seed, 1))))


def planned(costs: GroupCosts, groups: tuple[int, ...], bands: Propose | None = None) -> Plan:
    """The plan of these groups."""
    made = plan_groups(costs, groups, bands)
    assert isinstance(made, tuple), made
    return Plan(
        ModelReference(costs.dataflow.graph.name, "0" * 64, "simplified.onnx"),
        costs.hardware,
        costs.scheme,
        costs.traffic.value,
        costs.epilogue,
        memory_map(costs, made),
        made,
        Totals(total_dram(made).total, 0, 0, 0, 0, 0.0, "none"),
        SearchRecord("random", 0, 0, 0, 0.0),
        costs.max_recompute,
    )


def computable(graph: Graph) -> Graph:
    """The graph with operators that nothing defines replaced by ReverseSequence, which lfopt does not know either but can compute."""
    operators, tensors, constants = list(graph.operators), dict(graph.tensors), dict(graph.constants)
    for k, op in enumerate(operators):
        if op.domain:
            name, shape = f"lengths of {op.name}", graph.shape(op.inputs[0])
            tensors[name] = Tensor(name, shape[:1], "int64")
            constants[name] = np.full(shape[:1], shape[1], np.int64)
            operators[k] = replace(op, kind="ReverseSequence", domain="", inputs=(*op.inputs, name), attributes={"batch_axis": 0, "time_axis": 1})
    return replace(graph, operators=tuple(operators), tensors=tensors, constants=constants)


def random_inputs(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: rng.standard_normal(graph.shape(name)).astype(graph.tensors[name].dtype) for name in graph.inputs}


# -- what must agree -----------------------------------------------------------------------------------------------------------------------


def planned_need(costs: GroupCosts, mask: int, price: Cost, band_rows: int) -> int:
    """F_beta of the group as it is planned: slices are as wide as fit, and in mode lbdf bands may have several rows."""
    return costs.modes[price.mode].schedule(mask, costs.hardware.buffer_bytes, band_rows).buffer_bytes


def disagreements(costs: GroupCosts, groups: tuple[int, ...], plan: Plan, done: Execution, wanted: Values) -> list[str]:
    """Where prediction, plan and execution differ; where outputs are not those of the reference."""
    found: list[str] = []
    for mask, group, counted in zip(groups, plan.groups, done.groups, strict=True):
        what = f"group {group.id} ({group.mode}): "
        price = costs.evaluate(mask)
        assert isinstance(price, Cost)
        if price.dram_bytes != group.dram.total:
            found.append(f"{what}the search was told {price.dram_bytes} bytes, the plan says {group.dram.total}")
        if counted.by_formula:
            assert group.unexecutable, f"{what}no steps, and no reason why"
            continue
        if dram_bytes(group.steps) != group.dram:
            found.append(f"{what}steps move {dram_bytes(group.steps)}, the plan says {group.dram}")
        if counted.dram != group.dram:
            found.append(f"{what}counted {counted.dram}, the plan says {group.dram}")
        needed = planned_need(costs, mask, price, group.band_rows)
        if not counted.peak_bytes == group.allocated_bytes == needed:
            found.append(f"{what}peak {counted.peak_bytes}, plan {group.allocated_bytes}, F_beta {needed}")
        fixed = group.mode not in ("resident", "brr", "sliced", "gated") and (group.mode != "lbdf" or group.band_rows == 1)
        if fixed and needed != price.buffer_bytes:
            found.append(f"{what}planned with {needed} bytes, the search was told {price.buffer_bytes}")
        if group.mode == "lbdf" and counted.touched_bytes != needed:
            found.append(f"{what}touched {counted.touched_bytes}, rings and weights {needed}")
        if counted.peak_bytes >= plan.hardware.buffer_bytes:
            found.append(f"{what}peak {counted.peak_bytes} of {plan.hardware.buffer_bytes}")
    return found + misplaced(costs.dataflow.graph, plan, done) + differing(done.outputs, wanted)


def differing(outputs: Values, wanted: Values) -> list[str]:
    """Outputs that are not the same: floats within 1e-4 of the largest value, where that is finite; all else exactly."""
    found: list[str] = []
    for name, value in wanted.items():
        got = outputs[name]
        if got.dtype != value.dtype or got.shape != value.shape:
            found.append(f"output {name!r}: {got.dtype} {got.shape}, wanted {value.dtype} {value.shape}")
        elif value.dtype.kind != "f":
            if not np.array_equal(got, value):
                found.append(f"output {name!r}: {int((got != value).sum())} of {value.size} elements differ")
        elif np.isfinite(got[~(finite := np.isfinite(value))]).any():  # which infinity, or none, depends on the order of sums
            found.append(f"output {name!r}: finite where it overflows")
        elif not np.allclose(got[finite], value[finite], rtol=1e-4, atol=1e-4 * np.abs(value[finite]).max(initial=0)):
            found.append(f"output {name!r}: differs by {np.nanmax(np.abs(got - value))}")
    return found


def roots(graph: Graph) -> dict[str, str]:
    """The map behind every tensor that is a map or a view of one."""
    real = {op.name for op in Dataflow.of(graph).operators}
    found = {name: name for name in graph.inputs}
    for op in graph.operators:
        for name in op.outputs:
            found[name] = name if op.name in real else found.get(op.inputs[0], name)
    return found


def full_rows(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether the box is made of whole rows."""
    return all(axis == row_axis(shape) or span == (0, extent) for axis, (span, extent) in enumerate(zip(box, shape, strict=True)))


def misplaced(graph: Graph, plan: Plan, done: Execution) -> list[str]:
    """Where the DRAM map does not hold what was moved."""
    found: list[str] = []
    root, memory = roots(graph), {entry.name: entry for entry in plan.memory}
    ranges = sorted((entry.address, entry.address + entry.rows * entry.row_bytes, entry.name) for entry in plan.memory)
    found += [f"{a[2]!r} and {b[2]!r} overlap in DRAM" for a, b in pairwise(ranges) if b[0] < a[1]]
    found += [f"{entry.name!r} is listed twice" for entry in plan.memory if memory[entry.name] is not entry]
    if (moved := sum(done.loaded.values()) + sum(done.stored.values())) != done.dram.total:
        found.append(f"{moved} bytes by tensor, {done.dram.total} by class")
    if absent := (done.loaded.keys() | done.stored.keys()) - memory.keys():
        return [*found, f"{sorted(absent)} were moved and have no place in DRAM"]
    parameters = {parameters_of(node) for group in plan.groups for node in group.nodes}
    for name in done.loaded:
        wanted = ("weight",) if name in graph.constants else ("parameter",) if name in parameters else ("input", "output", "map")
        if memory[name].role not in wanted:
            found.append(f"{name!r} is a {memory[name].role}")
    found += [f"{name!r} was stored, and is a {memory[name].role}" for name in done.stored if memory[name].role not in ("output", "map")]
    ran = [group for group, counted in zip(plan.groups, done.groups, strict=True) if not counted.by_formula]
    for group in ran:
        for step in {step for step in unfold(group.steps) if isinstance(step, Transfer) and not step.gather}:
            if step.kind == "parameter":
                if step.bytes != memory[parameters_of(step.tensor)].row_bytes:
                    found.append(f"parameters of {step.tensor!r}: {step.bytes} bytes are moved")
                continue
            name = root.get(step.tensor, step.tensor)
            shape, entry = graph.shape(name), memory[name]
            if name in graph.constants:
                sizes = [
                    tuple(plan.hardware.constant_bytes(int(np.prod(extents)), bias=bias) for extents in (shape, box_shape(step.box)))
                    for bias in (False, True)
                ]
                if (entry.rows * entry.row_bytes, step.bytes) not in sizes:
                    found.append(f"{name!r}: {step.box} moves {step.bytes} bytes, all of it are {entry.rows * entry.row_bytes}")
            elif row_count(shape) != entry.rows or step.row_bytes > entry.row_bytes and name == step.tensor:
                found.append(f"{name!r}: {row_count(shape)} rows of at least {step.row_bytes} bytes, in DRAM {entry.rows} of {entry.row_bytes}")
            elif name == step.tensor and full_rows(step.box, shape) and step.row_bytes != entry.row_bytes:
                found.append(f"{name!r}: rows of {step.row_bytes} bytes are moved, in DRAM they have {entry.row_bytes}")
    aligned = plan.hardware.dram_row_align == 1
    for name, entry in memory.items():
        size = entry.rows * entry.row_bytes
        stores = sum(name in group.outputs for group in ran)
        if stores and (done.stored.get(name, 0) != size if aligned else done.stored.get(name, 0) < size):
            found.append(f"{name!r} has {size} bytes, {done.stored.get(name, 0)} were stored")
        readers = [group for group in ran if name in group.inputs]
        once = aligned or all(group.mode == "lbdf" for group in readers)
        moved_again = ("attention", "tiled", "strips", "sliced", "gated", "chained")
        once = once and entry.role not in ("weight", "parameter") and all(group.mode not in moved_again for group in readers)
        once = once and not any(name in (*group.spilled, *(group.outputs if group.mode == "chained" else ())) for group in ran)
        if once and done.loaded.get(name, 0) != size * len(readers):
            found.append(f"{name!r} has {size} bytes and {len(readers)} groups read it, {done.loaded.get(name, 0)} were loaded")
    return found


# -- quantised graphs ----------------------------------------------------------------------------------------------------------------------


def in_integers(graph: Graph, inputs: Values, rng: np.random.Generator) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph with every map of real numbers in int8, weights in int8 (some with a scale per channel), biases in int32; and its inputs so.

    Scales are those of what the graph computes on these inputs.
    """
    real = {**inputs, **reference(graph, inputs, everything=True)}
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    flow = Dataflow.of(graph)
    for name in graph.inputs:
        tensors[name] = _in_bytes(graph.tensors[name], real[name], rng)
    made = {op.name for op in flow.operators}
    for op in graph.operators:
        for name in filter(None, op.outputs):
            if op.name in made:
                tensors[name] = _in_bytes(graph.tensors[name], real[name], rng)
            else:  # a view
                source = tensors[op.inputs[0]]
                tensors[name] = replace(graph.tensors[name], dtype=source.dtype, quantization=source.quantization)
    readers = Counter(name for op in graph.operators for name in op.inputs)
    biases: list[tuple[Call, str]] = []
    for call in flow.calls:
        for index, name in enumerate(call.operator.inputs):
            value = graph.constants.get(name)
            if value is None or value.dtype.kind != "f" or index in spec(call.operator.kind).parameters or tensors[name].quantization:
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
    zero_point = int(np.clip(round(-128 - low / scale), -128, 127)) if rng.random() < 0.7 else int(rng.integers(-3, 4))
    return replace(tensor, dtype="int8", quantization=Quantization((scale,), (zero_point,)))


def _channel_axis(call: Call) -> int | None:
    if call.operator.kind == "Conv":
        return 0
    if call.operator.kind == "ConvTranspose":
        return 1
    return len(call.shape(1)) - 1 if call.operator.kind in ("Gemm", "MatMul") and not call.attribute("transB", 0) else None


def _weights(tensor: Tensor, value: np.ndarray, axis: int | None) -> tuple[Tensor, np.ndarray]:
    others = tuple(a for a in range(value.ndim) if a != axis)
    scales = np.maximum(np.abs(value).max(axis=None if axis is None else others), 1e-3).reshape(-1) / 127
    by = Quantization(tuple(scales.tolist()), (0,) * len(scales), axis)
    return replace(tensor, dtype="int8", quantization=by), quantized(value, by, "int8")


# -- random graphs -------------------------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What ran."""

    plans: int = 0
    modes: Counter[str] = field(default_factory=Counter)  # groups
    too_small: Counter[bool] = field(default_factory=Counter)  # groups that no tiling fits, by whether the chip has room: see `add`
    roomy: Counter[bool] = field(default_factory=Counter)  # all groups, likewise

    def add(self, plan: Plan) -> None:
        roomy = plan.hardware.buffer_bytes >= 64 * plan.hardware.channel_align  # bytes
        self.plans += 1
        self.modes.update(group.mode for group in plan.groups)
        self.roomy[roomy] += len(plan.groups)
        self.too_small[roomy] += sum("the buffer is too small" in group.unexecutable for group in plan.groups)
        assert all(group.steps for group in plan.groups if not group.unexecutable)
        assert {group.mode for group in plan.groups if group.unexecutable} <= {"attention", "tiled", "opaque"}

    def share_too_small(self, *, roomy: bool) -> float:
        return self.too_small[roomy] / max(self.roomy[roomy], 1)


def drawn(rng: np.random.Generator, *, integers: bool = False, linear: bool = False) -> tuple[Graph, Hardware, dict[str, np.ndarray]]:
    """A random network, a chip for it, and its inputs; in float32 or in int8. `linear`: two linear layers, plain or gated."""
    graph = random_mlp(rng) if linear else computable(random_graph(rng, int(rng.integers(1, 10))))
    hardware, inputs = random_hardware(rng, graph), random_inputs(graph, rng)
    if integers:
        graph, inputs = in_integers(graph, inputs, rng)
    return graph, hardware, inputs


def run_random(seed: int, tally: Tally, scheme: str, *, integers: bool = False, linear: bool = False) -> list[str]:
    """Plan and execute one random graph; what disagrees, one line each."""
    rng = np.random.default_rng(seed)
    graph, hardware, inputs = drawn(rng, integers=integers, linear=linear)
    wanted = reference(graph, inputs)
    costs = GroupCosts.of(graph, hardware, Traffic.TILED, scheme=scheme, epilogue=bool(rng.random() < 0.7))
    groups = random_scheme(costs, seed)
    plan = planned(costs, groups)
    tally.add(plan)
    return [f"seed {seed}, {scheme}: {line}" for line in disagreements(costs, groups, plan, execute(plan, graph, inputs), wanted)]


def run_many(seeds: range, *, integers: bool = False) -> None:
    """Graphs under every scheme. Few groups have no steps: chips of a few bytes hold no tile of anything, and some operators nobody knows."""
    tally, wrong = Tally(), list[str]()
    with threadpool_limits(1):
        for seed in seeds:
            for scheme in SCHEMES:
                wrong += run_random(seed, tally, scheme, integers=integers)
    assert not wrong, "\n".join(wrong[:10])
    assert tally.plans == len(seeds) * len(SCHEMES)
    print(f"\n{tally}")
    assert all(tally.modes[mode] > 10 for mode in ("lbdf", "brr", "resident", "tiled"))
    assert tally.modes["opaque"] < 0.06 * tally.modes.total()
    assert tally.share_too_small(roomy=True) < 0.1
    assert tally.share_too_small(roomy=False) < 0.4


@pytest.mark.parametrize("integers", [False, True])
def test_two_buffers_move_and_hold_what_was_planned(*, integers: bool) -> None:
    """Weights in a buffer of their own: bytes, what either buffer holds, and outputs. Cycles do not depend on where things lie apart."""
    apart = 0
    with threadpool_limits(1):
        for seed in range(40_000, 40_006):
            rng = np.random.default_rng(seed)
            graph, hardware, inputs = drawn(rng, integers=integers)
            chip, wanted = with_weight_buffer(rng, graph, hardware), reference(graph, inputs)
            for scheme in SCHEMES:
                costs = GroupCosts.of(graph, chip, scheme=scheme, epilogue=bool(rng.random() < 0.7))
                groups = random_scheme(costs, seed)
                plan = planned(costs, groups, random_bands(rng))
                done = execute(plan, graph, inputs)
                assert not disagreements(costs, groups, plan, done, wanted), f"seed {seed}, {scheme}"
                assert [d for d in recount(graph, plan).discrepancies if "totals" not in d] == [], f"seed {seed}, {scheme}"
                for group, counted in zip(plan.groups, done.groups, strict=True):
                    held = store_ends(group.places, chip)["weight buffer"]
                    assert held == counted.weight_peak_bytes < chip.weight_buffer_bytes
                    apart += held > 0
    assert apart > 8


@pytest.mark.parametrize("integers", [False, True])
def test_linear_layers_move_what_was_planned(*, integers: bool) -> None:
    """Plain and gated, spelled as Gemm or MatMul; the whole network is one group wherever a mode runs it so."""
    tally, wrong = Tally(), list[str]()
    with threadpool_limits(1):
        for seed, scheme in product(range(50_000, 50_010), SCHEMES):
            wrong += run_random(seed, tally, scheme, integers=integers, linear=True)
    assert not wrong, "\n".join(wrong[:10])
    assert tally.modes["tiled"] > 3


SMALL, QUANTISED = range(0, 440, 55), range(10_000, 10_120, 30)
LARGER, MORE_QUANTISED = range(440, 2060, 135), range(10_120, 10_660, 90)


@pytest.mark.parametrize("first", SMALL)
def test_bytes_predicted_are_bytes_counted_and_outputs_are_those_of_the_network(first: int) -> None:
    run_many(range(first, first + SMALL.step))


@pytest.mark.slow
@pytest.mark.parametrize("first", LARGER)
def test_the_same_for_many_more_graphs(first: int) -> None:
    run_many(range(first, first + LARGER.step))


@pytest.mark.parametrize("first", QUANTISED)
def test_integers_come_out_to_the_bit_in_every_scheme(first: int) -> None:
    run_many(range(first, first + QUANTISED.step), integers=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", MORE_QUANTISED)
def test_integers_come_out_to_the_bit_for_many_more_graphs(first: int) -> None:
    run_many(range(first, first + MORE_QUANTISED.step), integers=True)


def run_in_bands(seeds: range, *, integers: bool = False) -> None:
    """Graphs on chips with room for bands of several rows: what they move does not depend on the bands."""
    heights, folded = Counter[int](), 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph, hardware, inputs = drawn(rng, integers=integers)
        costs = GroupCosts.of(graph, replace(hardware, buffer_bytes=4 * hardware.buffer_bytes))
        groups = random_scheme(costs, seed)
        plan = planned(costs, groups, random_bands(rng))
        found = disagreements(costs, groups, plan, execute(plan, graph, inputs), reference(graph, inputs))
        assert not found, f"seed {seed}: {found}"
        assert all(parse(list(listing(group.steps))) == group.steps for group in plan.groups)
        assert total_dram(plan.groups) == total_dram(planned(costs, groups).groups)
        heights.update(group.band_rows for group in plan.groups if group.mode == "lbdf")
        folded += any(isinstance(node, Loop) for group in plan.groups if group.band_rows > 1 for node in group.steps)
    assert min(heights[rows] for rows in range(1, 6)) > len(seeds) // 20, heights
    assert folded > len(seeds) // 20


@pytest.mark.parametrize("integers", [False, True])
def test_bands_of_several_rows_move_and_compute_the_same(*, integers: bool) -> None:
    with threadpool_limits(1):
        run_in_bands(range(30_000, 30_100), integers=integers)


@pytest.mark.slow
@pytest.mark.parametrize("integers", [False, True])
def test_bands_of_several_rows_move_and_compute_the_same_in_many_more_graphs(*, integers: bool) -> None:
    with threadpool_limits(1):
        run_in_bands(range(31_000, 32_500), integers=integers)


@pytest.mark.parametrize("integers", [False, True])
def test_reductions_over_rows_fold_them_band_by_band(*, integers: bool) -> None:
    tally, parts, wrong = Tally(), 0, list[str]()
    for seed in range(20_000, 20_150):
        rng = np.random.default_rng(seed)
        graph = random_reduction(rng)
        hardware, inputs = random_hardware(rng, graph), random_inputs(graph, rng)
        if integers:
            graph, inputs = in_integers(graph, inputs, rng)
        costs = GroupCosts.of(graph, hardware, epilogue=bool(rng.random() < 0.7))
        groups = random_scheme(costs, seed)
        plan = planned(costs, groups)
        tally.add(plan)
        done = execute(plan, graph, inputs)
        wrong += [f"seed {seed}: {line}" for line in disagreements(costs, groups, plan, done, reference(graph, inputs))]
        parts += sum(isinstance(step, Compute) and step.sums >= 0 for group in plan.groups for step in unfold(group.steps))
        assert all(parse(list(listing(group.steps))) == group.steps for group in plan.groups)
    assert not wrong, "\n".join(wrong[:10])
    assert parts > 200
    assert tally.share_too_small(roomy=True) < 0.1


def test_constants_are_operands_in_any_position() -> None:
    """Of Concat, Where, Add and the like: executed as planned, and recounted."""
    tally, wrong = Tally(), list[str]()
    for seed in range(30_000, 30_120):
        rng = np.random.default_rng(seed)
        graph = random_joins(rng)
        hardware, inputs = random_hardware(rng, graph), random_inputs(graph, rng)
        costs = GroupCosts.of(graph, hardware, scheme=SCHEMES[seed % 4], epilogue=bool(rng.random() < 0.7))
        groups = random_scheme(costs, seed)
        plan = planned(costs, groups)
        tally.add(plan)
        wrong += [f"seed {seed}: {line}" for line in disagreements(costs, groups, plan, execute(plan, graph, inputs), reference(graph, inputs))]
        # This plan has no totals.
        wrong += [f"seed {seed}: {line}" for line in recount(graph, plan).discrepancies if not line.startswith("totals")]
    assert not wrong, "\n".join(wrong[:10])
    assert all(tally.modes[mode] > 10 for mode in ("lbdf", "tiled"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_gathered_from_a_table_are_counted_under_the_table(scheme: str) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "words"], ["found"], "embed", axis=0),
        helper.make_node("MatMul", ["found", "w"], ["y"], "project"),
    ]
    weights = {"table": (50, 6), "w": (6, 4)}
    rng = np.random.default_rng(0)
    made = helper.make_graph(
        nodes,
        "embedding",
        [helper.make_tensor_value_info("words", TensorProto.INT64, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 4])],
        [onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in weights.items()],
    )
    graph = from_model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)]))
    inputs = {"words": rng.integers(0, 50, (1, 8))}
    for buffer_bytes, groups, align in ((4096, (3,), 1), (4096, (1, 2), 1), (40, (1, 2), 1), (4096, (3,), 16), (4096, (1, 2), 16)):
        costs = GroupCosts.of(graph, Hardware(buffer_bytes, constant_align=align), scheme=scheme)
        if not isinstance(costs.evaluate(groups[0]), Cost):
            continue
        plan = planned(costs, groups)
        done = execute(plan, graph, inputs)
        assert disagreements(costs, groups, plan, done, reference(graph, inputs)) == []
        if all(group.steps for group in plan.groups):
            assert done.loaded["table"] == 8 * (6 * 2 if align == 1 else 16)  # eight rows, not fifty
            assert done.loaded["w"] >= 6 * 4 * 2


# -- real networks -------------------------------------------------------------------------------------------------------------------------

ACCELERATOR = Hardware(64 * 1024, dram_row_align=16, channel_align=16)


def real_network(model: str, inputs: dict[str, tuple[int, ...]]) -> Graph:
    """A network with weights drawn at random where it has none."""
    return with_values(load_network(model, inputs, "default"), model, np.random.default_rng(0))


def run_network(graph: Graph, hardware: Hardware, schemes: tuple[str, ...]) -> None:
    """The best scheme that an exact search finds in a little time, planned and executed."""
    inputs = random_inputs(graph, np.random.default_rng(1))
    with threadpool_limits(1):
        wanted = reference(graph, inputs)
        for scheme in schemes:
            costs = GroupCosts.of(graph, hardware, scheme=scheme)
            found = solve(costs, SearchOptions(time_limit=30))
            plan = planned(costs, found.groups)
            by_formula = sum(group.dram.total for group in plan.groups if group.unexecutable)
            assert by_formula <= 0.08 * found.dram_bytes
            start = time.perf_counter()
            done = execute(plan, graph, inputs)
            assert disagreements(costs, found.groups, plan, done, wanted) == []
            assert done.dram.total + by_formula == found.dram_bytes
            peak, steps = max(group.peak_bytes for group in done.groups), sum(group.steps for group in done.groups)
            print(
                f"\n{graph.name} {scheme} {hardware.buffer_bytes // 1024} KiB: planned = counted = {done.dram.total:,} B "
                f"(+ {by_formula:,} B by formula), peak {peak:,} B, {steps:,} steps, {len(plan.groups)} groups, {found.proof}, "
                f"{time.perf_counter() - start:.1f} s"
            )


@pytest.mark.parametrize("name", ["tv_mobilenet_v3_large", "tv_squeezenet1_1"])
def test_real_networks_at_64_x_64_move_what_was_planned(shared_model, name: str) -> None:
    path = str(shared_model(name))
    run_network(real_network(path, {load(path).inputs[0]: (1, 3, 64, 64)}), ACCELERATOR, ("lbdf", "auto"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["hf_efficientnet_b0", "hf_efficientnet_b3", "hf_resnet18", "hf_mobilenet_v1", "hf_mobilenet_v2", "hf_resnet34", "hf_resnet50", "hf_resnet101"],
)
def test_more_real_networks_at_64_x_64_move_what_was_planned(shared_model, name: str) -> None:
    path = str(shared_model(name))
    run_network(real_network(path, {load(path).inputs[0]: (1, 3, 64, 64)}), ACCELERATOR, ("lbdf", "auto"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "tv_vgg16",
        "tv_s3d",
        "tv_fasterrcnn_r50_fpn_rpn",
        "tv_maskrcnn_r50_heads",
        "tv_ssd300_vgg16_nopost",
        "hf_mobilenet_v2_deeplab",
        "tv_deeplabv3_mobilenet_v3_large",
    ],
)
def test_real_networks_of_one_size_move_what_was_planned(shared_model, name: str) -> None:
    """Their shapes are written into them: they run at full size."""
    run_network(real_network(str(shared_model(name)), {}), replace(ACCELERATOR, buffer_bytes=256 * 1024), ("lbdf", "auto"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v2", "resnet18", "efficientnet_b3"])
def test_networks_of_the_zoo_at_full_size_move_what_was_planned(name: str) -> None:
    run_network(real_network(f"zoo:{name}", {}), replace(ACCELERATOR, buffer_bytes=256 * 1024), ("lbdf", "auto"))
    run_network(real_network(f"zoo:{name}", {}), Hardware(256 * 1024), ("lbdf",))


@pytest.mark.parametrize(("bits", "blocks"), [(4, (3, 5)), (3, (2, 4)), (12, (8, 15))])
def test_weights_of_a_few_bits_are_packed_and_each_block_is_whole_bytes(bits: int, blocks: tuple[int, int]) -> None:
    """The one rule of blocks: planned, executed, recounted, and by how much a plan moves less than with weights of two bytes."""
    chip = Hardware(256, weight_bits=bits)
    assert (chip.constant_bytes(5, bias=False), chip.constant_bytes(10, bias=False)) == blocks
    assert chip.constant_bytes(5, bias=True) == 10
    assert chip.constant_bytes(10, bias=False, pieces=2) == 2 * blocks[0]
    moved = [0, 0]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        graph = computable(random_graph(rng, 4))
        inputs = random_inputs(graph, rng)
        size = 2 * sum(tensor.elements for tensor in graph.tensors.values())
        for k, hardware in enumerate((Hardware(size // 3 + 16, weight_bits=bits), Hardware(size // 3 + 16))):
            costs = GroupCosts.of(graph, hardware, scheme="auto")
            groups = solve(costs).groups
            plan = planned(costs, groups)
            done = execute(plan, graph, inputs)
            assert disagreements(costs, groups, plan, done, reference(graph, inputs)) == [], seed
            assert [line for line in recount(graph, plan).discrepancies if not line.startswith("totals")] == []
            moved[k] += done.dram.weight
    assert moved[0] < moved[1]
