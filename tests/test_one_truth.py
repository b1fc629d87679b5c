"""One truth: a plan's predicted bytes are those its execution counts, its results are the network's.

Random graphs on random chips under random legal schemes, in every mode; quantised ones, to the bit; and real
networks.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from threadpoolctl import threadpool_limits

from lfopt.frontend import from_model, load
from lfopt.ir import Compute, Cost, Graph, Hardware, Loop, Plan, store_ends, unfold
from lfopt.ir.listing import listing, parse
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, Traffic, total_dram
from search.exact import solve
from search.options import SearchOptions
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.agreement import disagreements
from tests.cases import few, some
from tests.random_plans import (
    ACCELERATOR,
    SCHEMES,
    computable,
    drawn,
    in_integers,
    planned,
    random_inputs,
    random_scheme,
    real_network,
)
from tests.strategies import (
    random_bands,
    random_graph,
    random_hardware,
    random_joins,
    random_reduction,
    with_weight_buffer,
)

# -- random graphs -------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What ran."""

    plans: int = 0
    modes: Counter[str] = field(default_factory=Counter)  # groups
    # groups that no tiling fits, by whether the chip has room: see `add`
    too_small: Counter[bool] = field(default_factory=Counter)
    roomy: Counter[bool] = field(default_factory=Counter)  # all groups, likewise

    def add(self, plan: Plan) -> None:
        roomy = plan.hardware.buffer_bytes >= 64 * plan.hardware.channel_align  # bytes
        self.plans += 1
        self.modes.update(group.mode for group in plan.groups)
        self.roomy[roomy] += len(plan.groups)
        self.too_small[roomy] += sum("the buffer is too small" in group.unexecutable for group in plan.groups)
        assert all(group.steps or group.is_access for group in plan.groups if not group.unexecutable)
        assert {group.mode for group in plan.groups if group.unexecutable} <= {"attention", "tiled", "opaque"}

    def share_too_small(self, *, roomy: bool) -> float:
        return self.too_small[roomy] / max(self.roomy[roomy], 1)


def run_random(
    seed: int, tally: Tally, scheme: str, *, integers: bool = False, linear: bool = False
) -> list[str]:
    """Plan and execute one random graph; what disagrees, one line each."""
    rng = np.random.default_rng(seed)
    graph, hardware, inputs = drawn(rng, integers=integers, linear=linear)
    wanted = reference(graph, inputs)
    costs = GroupCosts.of(graph, hardware, Traffic.TILED, scheme=scheme, epilogue=bool(rng.random() < 0.7))
    groups = random_scheme(costs, seed)
    plan = planned(costs, groups)
    tally.add(plan)
    return [
        f"seed {seed}, {scheme}: {line}"
        for line in disagreements(costs, groups, plan, execute(plan, graph, inputs), wanted)
    ]


def run_many(seeds: range, *, integers: bool = False) -> None:
    """Graphs under every scheme.

    Few groups have no steps: chips of a few bytes hold no tile of anything, and some operators nobody knows.
    """
    tally, wrong = Tally(), list[str]()
    with threadpool_limits(1):
        for seed in seeds:
            for scheme in SCHEMES:
                wrong += run_random(seed, tally, scheme, integers=integers)
    assert not wrong, "\n".join(wrong[:10])
    assert tally.plans == len(seeds) * len(SCHEMES)
    print(f"\n{tally}")
    assert all(tally.modes[mode] > few(10) for mode in ("lbdf", "brr", "resident", "tiled"))
    assert tally.modes["opaque"] < 0.06 * tally.modes.total()
    assert tally.share_too_small(roomy=True) < 0.1
    assert tally.share_too_small(roomy=False) < 0.4


@pytest.mark.parametrize("integers", [False, True])
def test_two_buffers_move_and_hold_what_was_planned(*, integers: bool) -> None:
    """Weights in a buffer of their own: bytes, what either buffer holds, and outputs.

    Cycles do not depend on where things lie apart.
    """
    apart = 0
    with threadpool_limits(1):
        for seed in some(range(40_000, 40_030)):
            rng = np.random.default_rng(seed)
            graph, hardware, inputs = drawn(rng, integers=integers)
            chip, wanted = with_weight_buffer(rng, graph, hardware), reference(graph, inputs)
            for scheme in SCHEMES:
                costs = GroupCosts.of(graph, chip, scheme=scheme, epilogue=bool(rng.random() < 0.7))
                groups = random_scheme(costs, seed)
                plan = planned(costs, groups, random_bands(rng))
                done = execute(plan, graph, inputs)
                assert not disagreements(costs, groups, plan, done, wanted), f"seed {seed}, {scheme}"
                assert [d for d in recount(graph, plan).discrepancies if "totals" not in d] == [], (
                    f"seed {seed}, {scheme}"
                )
                for group, counted in zip(plan.groups, done.groups, strict=True):
                    held = store_ends(group.places, chip)["weight buffer"]
                    assert held == counted.weight_peak_bytes < chip.weight_buffer_bytes
                    apart += held > 0
    assert apart > few(40)


@pytest.mark.parametrize("integers", [False, True])
def test_linear_layers_move_what_was_planned(*, integers: bool) -> None:
    """Plain and gated, spelled as Gemm or MatMul; one group wherever a mode runs the network so."""
    tally, wrong = Tally(), list[str]()
    with threadpool_limits(1):
        for seed, scheme in product(some(range(50_000, 50_040)), SCHEMES):
            wrong += run_random(seed, tally, scheme, integers=integers, linear=True)
    assert not wrong, "\n".join(wrong[:10])
    assert tally.modes["tiled"] > few(12)


SMALL, QUANTISED = range(175), range(10_000, 10_060)
LARGER, MORE_QUANTISED = range(175, 2065, 135), range(10_060, 10_600, 90)


def test_bytes_predicted_are_bytes_counted_and_outputs_are_those_of_the_network() -> None:
    run_many(some(SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("first", LARGER)
def test_the_same_for_many_more_graphs(first: int) -> None:
    run_many(range(first, first + LARGER.step))


def test_integers_come_out_to_the_bit_in_every_scheme() -> None:
    run_many(some(QUANTISED), integers=True)


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
        differences = disagreements(
            costs, groups, plan, execute(plan, graph, inputs), reference(graph, inputs)
        )
        assert not differences, f"seed {seed}: {differences}"
        assert all(parse(list(listing(group.steps))) == group.steps for group in plan.groups)
        assert total_dram(plan.groups) == total_dram(planned(costs, groups).groups)
        heights.update(group.band_rows for group in plan.groups if group.mode == "lbdf")
        folded += any(
            isinstance(node, Loop) for group in plan.groups if group.band_rows > 1 for node in group.steps
        )
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
    for seed in some(range(20_000, 20_500)):
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
        wrong += [
            f"seed {seed}: {line}"
            for line in disagreements(costs, groups, plan, done, reference(graph, inputs))
        ]
        parts += sum(
            isinstance(step, Compute) and step.accumulator >= 0
            for group in plan.groups
            for step in unfold(group.steps)
        )
        assert all(parse(list(listing(group.steps))) == group.steps for group in plan.groups)
    assert not wrong, "\n".join(wrong[:10])
    assert parts > few(670)
    assert tally.share_too_small(roomy=True) < 0.1


def test_constants_are_operands_in_any_position() -> None:
    """Of Concat, Where, Add and the like: executed as planned, and recounted."""
    tally, wrong = Tally(), list[str]()
    for seed in some(range(30_000, 30_120)):
        rng = np.random.default_rng(seed)
        graph = random_joins(rng)
        hardware, inputs = random_hardware(rng, graph), random_inputs(graph, rng)
        costs = GroupCosts.of(graph, hardware, scheme=SCHEMES[seed % 4], epilogue=bool(rng.random() < 0.7))
        groups = random_scheme(costs, seed)
        plan = planned(costs, groups)
        tally.add(plan)
        wrong += [
            f"seed {seed}: {line}"
            for line in disagreements(
                costs, groups, plan, execute(plan, graph, inputs), reference(graph, inputs)
            )
        ]
        # This plan has no totals.
        wrong += [
            f"seed {seed}: {line}"
            for line in recount(graph, plan).discrepancies
            if not line.startswith("totals")
        ]
    assert not wrong, "\n".join(wrong[:10])
    assert all(tally.modes[mode] > few(10) for mode in ("lbdf", "tiled"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_gathered_from_a_table_are_counted_under_the_table(scheme: str) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "words"], ["found"], "embed", axis=0),
        helper.make_node("MatMul", ["found", "w"], ["y"], "project"),
    ]
    weights = {"table": (50, 6), "w": (6, 4)}
    rng = np.random.default_rng(0)
    net = helper.make_graph(
        nodes,
        "embedding",
        [helper.make_tensor_value_info("words", TensorProto.INT64, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 4])],
        [
            onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    graph = from_model(helper.make_model(net, opset_imports=[helper.make_opsetid("", 18)]))
    inputs = {"words": rng.integers(0, 50, (1, 8))}
    for buffer_bytes, groups, align in (
        (4096, (3,), 1),
        (4096, (1, 2), 1),
        (40, (1, 2), 1),
        (4096, (3,), 16),
        (4096, (1, 2), 16),
    ):
        costs = GroupCosts.of(graph, Hardware(buffer_bytes, constant_align=align), scheme=scheme)
        if not isinstance(costs.evaluate(groups[0]), Cost):
            continue
        plan = planned(costs, groups)
        done = execute(plan, graph, inputs)
        assert disagreements(costs, groups, plan, done, reference(graph, inputs)) == []
        if all(group.steps for group in plan.groups):
            assert done.loaded["table"] == 8 * (6 * 2 if align == 1 else 16)  # eight rows, not fifty
            assert done.loaded["w"] >= 6 * 4 * 2


# -- real networks -------------------------------------------------------------------------------------------


def run_network(graph: Graph, hardware: Hardware, schemes: tuple[str, ...]) -> None:
    """The best scheme that an exact search finds in a little time, planned and executed."""
    inputs = random_inputs(graph, np.random.default_rng(1))
    with threadpool_limits(1):
        wanted = reference(graph, inputs)
        for scheme in schemes:
            costs = GroupCosts.of(graph, hardware, scheme=scheme)
            solution = solve(costs, SearchOptions(time_limit=30))
            plan = planned(costs, solution.groups)
            by_formula = sum(group.dram.total for group in plan.groups if group.unexecutable)
            assert by_formula <= 0.08 * solution.dram_bytes
            start = time.perf_counter()
            done = execute(plan, graph, inputs)
            assert disagreements(costs, solution.groups, plan, done, wanted) == []
            assert done.dram.total + by_formula == solution.dram_bytes
            peak, steps = (
                max(group.peak_bytes for group in done.groups),
                sum(group.steps for group in done.groups),
            )
            print(
                f"\n{graph.name} {scheme} {hardware.buffer_bytes // 1024} KiB: planned = counted = "
                f"{done.dram.total:,} B (+ {by_formula:,} B by formula), peak {peak:,} B, {steps:,} steps, "
                f"{len(plan.groups)} groups, {solution.proof}, {time.perf_counter() - start:.1f} s"
            )


@pytest.mark.parametrize("name", ["tv_mobilenet_v3_large", "tv_squeezenet1_1"])
def test_real_networks_at_64_x_64_move_what_was_planned(shared_model, name: str) -> None:
    path = str(shared_model(name))
    run_network(real_network(path, {load(path).inputs[0]: (1, 3, 64, 64)}), ACCELERATOR, ("lbdf", "auto"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "hf_efficientnet_b0",
        "hf_efficientnet_b3",
        "hf_resnet18",
        "hf_mobilenet_v1",
        "hf_mobilenet_v2",
        "hf_resnet34",
        "hf_resnet50",
        "hf_resnet101",
    ],
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
    run_network(
        real_network(str(shared_model(name)), {}),
        replace(ACCELERATOR, buffer_bytes=256 * 1024),
        ("lbdf", "auto"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v2", "resnet18", "efficientnet_b3"])
def test_networks_of_the_zoo_at_full_size_move_what_was_planned(name: str) -> None:
    run_network(
        real_network(f"zoo:{name}", {}), replace(ACCELERATOR, buffer_bytes=256 * 1024), ("lbdf", "auto")
    )
    run_network(real_network(f"zoo:{name}", {}), Hardware(256 * 1024), ("lbdf",))


@pytest.mark.parametrize(("bits", "blocks"), [(4, (3, 5)), (3, (2, 4)), (12, (8, 15))])
def test_weights_of_a_few_bits_are_packed_and_each_block_is_whole_bytes(
    bits: int, blocks: tuple[int, int]
) -> None:
    """Planned, executed and recounted; and how many bytes a plan saves over two-byte weights."""
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
            assert [
                line for line in recount(graph, plan).discrepancies if not line.startswith("totals")
            ] == []
            moved[k] += done.dram.weight
    assert moved[0] < moved[1]
