"""Bytes of a plan add up; cycles are those worked out by hand, and steps wait for what they need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lfopt import zoo
from lfopt.app.commands.options import chip
from lfopt.app.config import validate
from lfopt.frontend import from_model
from lfopt.ir import (
    Box,
    Compute,
    Cost,
    Cycles,
    DramAccess,
    DramBytes,
    Energy,
    Graph,
    Hardware,
    InvalidConfig,
    InvalidPlan,
    Loop,
    ModelReference,
    Place,
    Plan,
    PlannedGroup,
    Report,
    SearchRecord,
    Step,
    Totals,
    Transfer,
    box_shape,
    counted_leaves,
    dram_bytes,
    fold,
    row_axis,
    step_count,
    unfold,
    whole,
)
from lfopt.ops import Dataflow
from lfopt.ops.footprint import footprints
from lfopt.ops.part import is_empty
from lfopt.planning import SCHEMES, GroupCosts, Traffic, plan_groups, totals_of
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.modes.lbdf import line_buffer_nest
from lfopt.planning.nest.lowering import lower
from lfopt.planning.resident import Resident
from lfopt.planning.steps.layout import BufferLayout
from lfopt.rewrite import simplify
from search.exact import solve
from simulator.model.engines import COMMAND_CYCLES, transfer_cycles
from simulator.model.queues import BEGIN_CYCLES, Queues
from simulator.model.simulate import simulate
from simulator.model.timing import Accelerator
from tests.cases import few, some
from tests.strategies import OPSET, random_graph, random_hardware

INT8 = Hardware(1 << 18, element_bytes=1)


def network(*nodes: onnx.NodeProto, x: tuple[int, ...], **weights: tuple[int, ...]) -> Dataflow:
    """A network of these nodes from "x" to "y"; weights by shape."""
    constants = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, np.zeros(shape, np.float32).tobytes(), raw=True)
        for name, shape in weights.items()
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, x),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(list(nodes), "n", ends[:1], ends[1:], constants)
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    )
    return Dataflow.of(from_model(model, {}, label="n", name="n"))


def conv(x: str, w: str, y: str, *, kernel: int = 1, group: int = 1, stride: int = 1) -> onnx.NodeProto:
    pads = [kernel // 2] * 4
    return helper.make_node(
        "Conv",
        [x, w],
        [y],
        y,
        kernel_shape=[kernel, kernel],
        pads=pads,
        group=group,
        strides=[stride, stride],
    )


def row(flow: Dataflow, op: int = 0, rows: int = 1, **options: object) -> Compute:
    """An operator of a network on the first rows of its result."""
    (result,) = flow.results[op]
    shape = flow.maps[result].shape
    box = tuple((0, rows if axis == row_axis(shape) else extent) for axis, extent in enumerate(shape))
    return Compute(flow.operators[op].name, (box,), (0,), **options)  # type: ignore[arg-type]


def cycles(flow: Dataflow, step: Step, hardware: Hardware = INT8) -> int:
    return Accelerator(flow, hardware).cycles(step)


def real(name: str) -> Graph:
    return simplify(from_model(zoo.build(name, weights=False), {}, label=name, name=name), "default")


def planned(graph: Graph, hardware: Hardware, traffic: Traffic = Traffic.TILED, scheme: str = "lbdf") -> Plan:
    """The optimal plan."""
    costs = GroupCosts.of(graph, hardware, traffic, scheme=scheme)
    searched = solve(costs)
    groups = plan_groups(costs, searched.groups)
    assert isinstance(groups, tuple)
    totals = totals_of(costs.unfused(), groups, searched.lower_bound_bytes)
    model, search = (
        ModelReference(graph.name, "0" * 64, "simplified.onnx"),
        SearchRecord("exact", None, searched.plans_evaluated, searched.groups_evaluated, searched.seconds),
    )
    return Plan(model, hardware, costs.scheme, traffic.value, costs.epilogue, (), groups, totals, search)


def random_plan(seed: int) -> tuple[Graph, Plan]:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 9)))
    traffic = list(Traffic)[int(rng.integers(3))]
    scheme = tuple(SCHEMES)[seed % 4] if traffic is Traffic.TILED else "lbdf"
    return graph, planned(graph, random_hardware(rng, graph), traffic, scheme)


Schedule = tuple[tuple[Place, ...], tuple[Step | Loop, ...]]


def schedules(seeds: range) -> Iterator[tuple[Dataflow, Hardware, Schedule]]:
    """Line-buffer and resident schedules of groups of random networks."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(2, 9)))
        hardware = replace(
            random_hardware(rng, graph),
            buffer_bytes=1 << 30,
            port_latency=int(rng.integers(0, 50)),
            start_cycles=int(rng.integers(9)),
        )
        flow = Dataflow.of(graph)
        costs = GroupCosts(flow, hardware)
        for group in solve(costs).groups:
            yield (
                flow,
                hardware,
                lower(
                    BufferLayout(flow, hardware), group, line_buffer_nest(group), costs.groups.line_buffers
                ),
            )
            resident = Resident(flow, hardware)
            yield flow, hardware, lower(resident.layout, group, resident.nest(group))


# -- cycles of a step ----------------------------------------------------------------------------------------


def test_a_transfer_takes_its_beats_or_the_words_that_it_fills() -> None:
    load = Transfer(
        store=False, tensor="x", box=((0, 1), (0, 3)), kind="input", rows=2, row_bytes=17, place=0, slot=0
    )
    assert transfer_cycles(load, INT8) == 3
    assert transfer_cycles(load, replace(INT8, port_bytes=1)) == 34
    image = Transfer(
        store=False,
        tensor="x",
        box=((0, 1), (0, 3), (0, 2), (0, 224)),
        kind="input",
        rows=2,
        row_bytes=672,
        place=0,
        slot=0,
    )
    assert transfer_cycles(image, INT8) == 2 * 42
    assert transfer_cycles(image, replace(INT8, channel_align=16)) == 2 * 224


def loads(flow: Dataflow, *boxes: Box) -> Iterator[Transfer]:
    layout = BufferLayout(flow, INT8)
    return (layout.load("x", box, 0) for box in boxes)


def test_runs_that_lie_side_by_side_are_rounded_up_to_bursts_and_open_pages() -> None:
    """A map of 16 channels, 10 rows of 20 pixels: row after row, and channel after channel in a row."""
    flow = network(conv("x", "w", "y"), x=(1, 16, 10, 20), w=(16, 16, 1, 1))
    hardware = replace(INT8, dram_row_align=1, channel_align=1, dram_burst_bytes=64, dram_page_bytes=256)
    accelerator = Accelerator(flow, hardware)
    whole_rows, channels, strip = (accelerator.access(step) for step in loads(
        flow, ((0, 1), (0, 16), (2, 4), (0, 20)), ((0, 1), (4, 8), (2, 4), (0, 20)),
        ((0, 1), (0, 16), (2, 4), (5, 15)),
    ))  # fmt: skip
    assert whole_rows == DramAccess(640, 3)  # two rows of 320 bytes
    assert channels == DramAccess(2 * 128, 2)  # 80 bytes of each row
    assert strip == DramAccess(32 * 64, 3)  # 10 bytes of each channel of each row, in what two rows take
    block = BufferLayout(flow, hardware).load_constant("w", whole((16, 16, 1, 1)), 0)
    assert accelerator.access(block) == DramAccess(256, 1)
    assert Accelerator(flow, INT8).access(block) == DramAccess(256, 0)


def test_dram_slower_than_the_port_bounds_loads_and_stores_together() -> None:
    flow = network(conv("x", "w", "y"), x=(1, 16, 10, 20), w=(16, 16, 1, 1))
    (step,) = loads(flow, ((0, 1), (0, 16), (2, 4), (0, 20)))
    fast, slow = INT8, replace(INT8, clock_hz=10**9, dram_bytes_per_second="4GB/s")
    assert cycles(flow, step, fast) == 40
    assert cycles(flow, step, slow) == 160  # 640 bytes, 4 a cycle
    paged = replace(slow, dram_page_bytes=128, dram_page_cycles=7)
    assert cycles(flow, step, paged) == 160 + 5 * 7
    for seed in range(20):
        graph, plan = random_plan(seed)
        quick = simulate(plan, graph)
        late = simulate(
            replace(plan, hardware=replace(plan.hardware, dram_bytes_per_second=plan.hardware.clock_hz)),
            graph,
        )
        assert late.dram == quick.dram
        assert all(
            g.cycles.total >= max(g.dram.total, q.cycles.total)
            for g, q in zip(late.groups, quick.groups, strict=True)
        )
        assert late.energy == quick.energy


def test_bursts_and_pages_change_cycles_and_energy_but_no_bytes() -> None:
    for seed in range(40):
        graph, plan = random_plan(seed)
        plain = simulate(plan, graph)
        energy = replace(plan.hardware.energy, dram_page_pj=1000.0)
        chip = replace(
            plan.hardware, dram_burst_bytes=64, dram_page_bytes=1024, dram_page_cycles=20, energy=energy
        )
        simulated = simulate(replace(plan, hardware=chip), graph)
        assert plain.dram_access == DramAccess(plain.dram.total)
        assert (simulated.dram, simulated.disagreements) == (plain.dram, plain.disagreements)
        assert simulated.dram_access.burst_bytes % 64 == 0
        assert simulated.dram_access.burst_bytes >= plain.dram.total
        assert simulated.dram_access.pages * 1024 >= plain.dram.total
        assert simulated.cycles.total >= plain.cycles.total
        spent = (
            simulated.dram_access.burst_bytes * energy.pj_per_dram_byte
            + simulated.dram_access.pages * energy.dram_page_pj
        )
        assert simulated.energy.dram_pj == pytest.approx(spent)
        assert simulated.energy.buffer_pj == pytest.approx(plain.energy.buffer_pj)


def test_energy_of_dram_may_be_written_per_bit() -> None:
    assert (
        Energy(dram_pj_per_bit=10).pj_per_dram_byte
        == Energy(dram_pj_per_bit="10pJ/bit").pj_per_dram_byte  # type: ignore[arg-type]
        == 80
    )
    assert (Energy().pj_per_dram_byte, Energy(dram_byte_pj=90).pj_per_dram_byte) == (160, 90)
    with pytest.raises(InvalidConfig, match="dram_pj_per_bit: found 10 beside dram_byte_pj 90"):
        Energy(dram_byte_pj=90, dram_pj_per_bit=10)


def test_transfers_behind_each_other_hide_the_latency() -> None:
    """On the RTL a load of n beats takes n + 43 cycles; in sequence 16, 32, 64 take 29.5, 37.5, 65."""
    flow, places = (
        network(conv("x", "w", "y"), x=(1, 16, 100, 64), w=(16, 16, 1, 1)),
        (Place("x", "map", 0, 100, 1024),),
    )
    hardware = replace(INT8, port_latency=43)
    for beats, measured in ((16, 29.5), (32, 37.5), (64, 65)):
        loads = [
            Transfer(
                store=False,
                tensor="x",
                box=((0, 1), (0, 16), (y, y + 1), (0, beats)),
                kind="input",
                rows=1,
                row_bytes=16 * beats,
                place=0,
                slot=y,
            )
            for y in range(100)
        ]
        line = Accelerator(flow, hardware).timeline(loads, places)
        assert line.loads[0][1] - line.loads[0][0] == beats + 43
        assert line.end / 100 == pytest.approx(measured, rel=0.03)


def test_a_convolution_takes_tiles_x_kernel_x_pixels() -> None:
    """3x3, 64 -> 64 channels, a row of 56 pixels: 4 x 4 tiles x 9 taps x 56 pixels.

    3 of the taps lie in the padding of the first row; a command takes a cycle more (COMMAND_CYCLES).
    """
    flow = network(conv("x", "w", "y", kernel=3), x=(1, 64, 56, 56), w=(64, 64, 3, 3))
    assert cycles(flow, row(flow)) == 4 * 4 * 6 * 56 + 1
    assert cycles(flow, row(flow), replace(INT8, accumulator_banks=1)) == 4 * (4 * 6 * 56 + 56) + 1
    assert cycles(flow, row(flow, rows=2)) == 4 * 4 * 9 * 112 + 1
    assert cycles(flow, row(flow, inputs=(16, 32), accumulator=0, last=False)) == 4 * 6 * 56 + 1
    assert cycles(flow, row(flow, inputs=(16, 32), accumulator=0, first=False)) == 4 * (6 * 56 + 56) + 1
    # commands of 9, 9 and 2 rows: 512 pixels at most
    assert cycles(flow, row(flow, rows=20)) == 4 * 4 * 9 * 20 * 56 + 3 * COMMAND_CYCLES
    assert Accelerator(flow, INT8).work(row(flow)).macs == 56 * 64 * 64 * 9


def test_few_pixels_wait_for_the_weights() -> None:
    """1x1 on one pixel: a tile of 256 weights takes 4 cycles to arrive, in which no pixel is read."""
    flow = network(conv("x", "w", "y"), x=(1, 64, 1, 1), w=(64, 64, 1, 1))
    assert cycles(flow, row(flow)) == 4 * (4 * (4 + 1)) + 1


def test_a_depthwise_convolution_makes_neighbouring_pixels_in_one_cycle() -> None:
    """3 pixels by 5 kernel columns: 5 steps and one for a row of 14, one for every 4 words of weights."""
    flow = network(conv("x", "w", "y", kernel=5, group=40), x=(1, 40, 14, 14), w=(40, 1, 5, 5))
    assert cycles(flow, row(flow)) == 3 * (3 * (5 + 1) + 4) + 1  # 3 of 5 kernel rows meet the map
    # rows of the kernel that meet the map: in the others there is nothing to share, and time for weights
    inside = 14 * 5 - 2 * (2 + 1)
    assert cycles(flow, row(flow, rows=14)) == 3 * (14 * 5 * 5 + inside) + 1
    alone = replace(INT8, depthwise_columns=1)
    assert cycles(flow, row(flow, rows=14), alone) == 3 * 5 * 2 * 14 * 14 + 1


def test_of_few_channels_several_kernel_columns_go_side_by_side() -> None:
    flow = network(conv("x", "w", "y", kernel=3), x=(1, 3, 8, 32), w=(16, 3, 3, 3))
    assert cycles(flow, row(flow, rows=8)) == 3 * 8 * 32 + 1
    assert cycles(flow, row(flow, rows=8), replace(INT8, window_columns=2)) == 2 * 3 * 8 * 32 + 1
    # 8 x 3 channels do not fit 16 rows
    assert cycles(flow, row(flow, rows=8), replace(INT8, window_columns=8)) == 9 * 8 * 32 + 1


def test_a_transposed_convolution_takes_the_pixels_that_it_scatters() -> None:
    """9x9, stride 4: a row of 32 results meets 32 / 16 = 2 input pixels for each of 81 kernel elements."""
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], "y", strides=[4, 4], pads=[4, 4, 4, 4], output_padding=[3, 3]
    )
    flow = network(node, x=(1, 16, 8, 8), w=(16, 16, 9, 9))
    assert flow.maps[1].shape == (1, 16, 32, 32)
    assert cycles(flow, row(flow), replace(INT8, weight_port_bytes=256)) == 81 * (2 + 1) + 1
    assert Accelerator(flow, INT8).work(row(flow)).macs == 81 * 2 * 256


def test_a_fused_block_takes_what_the_accelerator_trial_measured() -> None:
    """A fused block of 456,176 cycles, 363,888 of them MAC-active, 62,720 requantising, 18,522 DMA.

    1x1 24 -> 144, depthwise 3x3, 1x1 144 -> 24 on 56 x 56; one accumulator bank, one tap of the depthwise
    kernel per cycle, rows of padding skipped (2 of 56 lack 3 taps). Source: rtl.md section 5.
    """
    nodes = conv("x", "a", "e"), conv("e", "b", "d", kernel=3, group=144), conv("d", "c", "y")
    flow = network(*nodes, x=(1, 24, 56, 56), a=(144, 24, 1, 1), b=(144, 1, 3, 3), c=(24, 144, 1, 1))
    trial, cycles = Accelerator(flow, replace(INT8, accumulator_banks=1, window_columns=1)), 0
    for op in range(3):
        (whole,) = row(flow, op).boxes
        cycles += sum(
            trial.cycles(replace(row(flow, op), boxes=((*whole[:2], (y, y + 1), whole[3]),))) - COMMAND_CYCLES
            for y in range(56)
        )
    assert cycles == 363_888 + 62_720
    assert cycles + 18_522 == pytest.approx(456_176, rel=0.03)


def test_what_is_no_contraction_runs_on_the_vector_lanes() -> None:
    flow = network(helper.make_node("Relu", ["x"], ["y"], "y"), x=(1, 24, 8, 8))
    assert cycles(flow, row(flow)) == 2 * (8 + 2) + 1
    flow = network(helper.make_node("MaxPool", ["x"], ["y"], "y", kernel_shape=[3, 3]), x=(1, 16, 8, 8))
    assert cycles(flow, row(flow)) == 3 * 6 + 1
    flow = network(helper.make_node("GlobalAveragePool", ["x"], ["y"], "y"), x=(1, 24, 8, 8))
    assert cycles(flow, row(flow)) == 2 * 8 * 2 * 2 + 1


def test_a_pool_passes_over_the_columns_that_meet_the_map_somewhere_in_the_box() -> None:
    """Of 9 columns over a map of 5: for one pixel or another all 9, for the first pixel 5."""
    flow = network(
        helper.make_node("MaxPool", ["x"], ["y"], "y", kernel_shape=[1, 9], pads=[0, 4, 0, 4]),
        x=(1, 16, 5, 5),
    )
    for columns, passes in ((5, 3), (1, 2)):
        step = replace(row(flow), boxes=(((0, 1), (0, 16), (0, 5), (0, columns)),))
        assert cycles(flow, step) == passes * 5 * columns + 1


@pytest.mark.parametrize("name", ["mobilenet_v2", "fsrcnn_deconv", "squeezenet1_1"])
def test_macs_of_a_step_are_its_share_of_the_operators(name: str) -> None:
    flow = Dataflow.of(real(name))
    accelerator = Accelerator(flow, INT8)
    for i, operator in enumerate(flow.operators):
        height = flow.heights[i]
        if len(flow.results[i]) == 1:
            rows = row(flow, i, height)
            assert accelerator.work(rows).macs == flow.macs[i], operator
            assert accelerator.work(row(flow, i)).macs * height == flow.macs[i]
            # rows of padding are left out
            assert accelerator.cycles(rows) * INT8.mac_rows * INT8.mac_columns >= 0.95 * flow.macs[i]


# -- cycles of a schedule ------------------------------------------------------------------------------------


def streamed(slots: int, port_bytes: int, turns: int = 20) -> Cycles:
    """Cycles of weights, 16 output channels at a time, through `slots` slots; 16 pixels stay on chip."""
    flow = network(conv("x", "w", "y"), x=(1, 16, 1, 16), w=(16 * turns, 16, 1, 1))
    layout, places = BufferLayout(flow, INT8), (Place("w", "weight", 0, slots, 256),)
    blocks = [
        (
            layout.load_constant("w", ((16 * k, 16 * k + 16), (0, 16), (0, 1), (0, 1)), place=0, slot=k),
            Compute("y", (((0, 1), (16 * k, 16 * k + 16), (0, 1), (0, 16)),), (-1,)),
        )
        for k in range(turns)
    ]
    return Accelerator(flow, replace(INT8, port_bytes=port_bytes, port_latency=4)).time(fold(blocks), places)


def test_a_second_slot_hides_the_shorter_of_loading_and_computing() -> None:
    compute = 16 + 2 + COMMAND_CYCLES  # the drain of a single pass, and going on
    # until the first pixel is read, the first weights, the last results
    exposed = BEGIN_CYCLES + (16 + 2) + 14
    for port_bytes in (4, 16):
        load = 256 // port_bytes
        one, two = streamed(1, port_bytes), streamed(2, port_bytes)
        turn = 4 + load + exposed + compute
        assert one == Cycles(20 * load, 20 * compute, 4 + 20 * turn)
        assert two.total == pytest.approx(20 * max(load, turn / 2), abs=turn)


def test_without_overlap_steps_take_turns() -> None:
    for flow, hardware, (places, steps) in schedules(range(20)):
        line = Accelerator(flow, replace(hardware, overlap=False)).timeline(steps, places)
        assert all(
            before[1] <= after[0]
            for before, after in pairwise(sorted([*line.loads, *line.stores, *line.computes]))
        )


def test_a_loop_takes_what_its_turns_take() -> None:
    for flow, hardware, (places, steps) in schedules(range(40)):
        accelerator = Accelerator(flow, hardware)
        assert accelerator.time(steps, places) == accelerator.time(tuple(unfold(steps)), places)


def test_no_schedule_is_faster_than_its_engines_or_slower_than_its_steps() -> None:
    for flow, hardware, (places, steps) in schedules(some(range(150))):
        accelerator = Accelerator(flow, hardware)
        cycles = accelerator.time(steps, places)
        all_steps = list(unfold(steps))
        waits = (
            hardware.port_latency
            + hardware.start_cycles
            + hardware.weight_latency
            + hardware.drain_cycles
            + hardware.dispatch_cycles
            + 4
        )
        assert (
            max(cycles.dma, cycles.compute)
            <= cycles.total
            <= sum(map(accelerator.cycles, all_steps)) + len(all_steps) * waits
        )
        assert 2 * cycles.dma * hardware.port_bytes >= dram_bytes(steps).total


FASTER = {  # not the size of the array, nor of commands: larger ones take longer to fill, and to wait for
    "port_bytes": 64,
    "port_latency": 0,
    "weight_latency": 0,
    "drain_cycles": 0,
    "transfers_in_flight": 4,
    "queue_depth": 64,
    "dispatch_cycles": 0,
    "vector_lanes": 64,
    "start_cycles": 0,
    "weight_port_bytes": 1 << 20,
    "accumulator_banks": 3,
}


def test_a_faster_part_never_makes_a_schedule_slower() -> None:
    faster = 0
    for flow, hardware, (places, steps) in schedules(some(range(60))):
        before = Accelerator(flow, hardware).time(steps, places)
        for name, value in FASTER.items():
            after = Accelerator(flow, replace(hardware, **{name: value})).time(steps, places)
            assert after.total <= before.total, (name, before, after)
            faster += after.total < before.total
    assert faster > few(100)


def test_loops_count_what_their_iterations_take() -> None:
    """First and last iterations take less: their windows meet padding."""
    uneven = 0
    for flow, hardware, (places, steps) in schedules(some(range(200))):
        accelerator = Accelerator(flow, hardware)
        exact = accelerator.time(steps, places)
        assert accelerator.busy(steps) == (exact.dma, exact.compute)
        written = sum(
            times * accelerator.cycles(step)
            for times, step in counted_leaves(steps)
            if not isinstance(step, Transfer)
        )
        uneven += written != exact.compute
    assert uneven > few(10)


def test_strips_of_deconvolutions_tell_the_cycles() -> None:
    """Rows of a deconvolution meet more rows of its window than those in the first iteration."""
    graph, hardware = real("fsrcnn"), Hardware(256 << 10)
    accelerator, tried = Accelerator(Dataflow.of(graph), hardware), 0
    for group in planned(graph, hardware, scheme="all").groups:
        exact = accelerator.time(group.steps, group.places, walked=10**6)
        short = accelerator.time(group.steps, group.places, walked=4000)
        if short.timing == "extrapolated":
            tried += 1
            assert short.total == pytest.approx(exact.total, rel=0.002)
    assert tried


@pytest.mark.parametrize(("name", "kib"), [("mobilenet_v2", 256), ("efficientnet_b0", 256), ("fsrcnn", 128)])
def test_shortened_loops_tell_the_cycles_within_two_percent(name: str, kib: int) -> None:
    graph = real(name)
    flow, hardware = Dataflow.of(graph), Hardware(kib << 10)
    costs, accelerator, tried = GroupCosts(flow, hardware), Accelerator(flow, hardware), 0
    for group in solve(costs).groups:
        price = costs.evaluate(group)
        if not isinstance(price, Cost) or price.mode != "lbdf":
            continue
        layout = BufferLayout(flow, hardware)
        places, steps = lower(layout, group, line_buffer_nest(group), costs.groups.line_buffers)
        exact = accelerator.time(steps, places)
        short = accelerator.time(steps, places, walked=step_count(steps) // 3)
        if short.timing == "extrapolated":
            tried += 1
            assert short.total == pytest.approx(exact.total, rel=0.02)
    assert tried > 3


def ranges(place: Place, first: int, count: int) -> Iterator[tuple[int, int]]:
    """Bytes of the slots of so many numbers."""
    for number in range(first, first + count):
        start = place.address + number % place.slots * place.slot_bytes
        yield start, start + place.slot_bytes


def accesses(
    flow: Dataflow, places: tuple[Place, ...], steps: list[Step]
) -> Iterator[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Per step: bytes of the buffer read, bytes written; worked out from names of places and footprints."""
    at = {place.name: place for place in places}
    passing: dict[str, tuple[Place, int]] = {}  # constants that pass through: where the last block of each is
    names = {operator.name: i for i, operator in enumerate(flow.operators)}
    for step in steps:
        if isinstance(step, Transfer):
            place = places[step.place]
            touched = list(ranges(place, step.slot, step.rows if place.purpose == "map" else 1))
            if place.purpose == "weight":
                passing[step.tensor] = place, step.slot
            yield (touched, []) if step.store else ([], touched)
            continue
        assert isinstance(step, Compute), "no schedule here copies within the buffer"
        i = names[step.operator]
        read: list[tuple[int, int]] = []
        for index, name in enumerate(flow.operators[i].inputs):
            operand = next((o for o in flow.operands[i] if o.input == index), None)
            if operand:
                map_ = flow.maps[operand.map]
                need = footprints(flow.calls[i], index, step.boxes)
                axis = row_axis(box_shape(need))
                rows = (0, 1) if axis is None else need[axis]
                if map_.shape != flow.graph.shape(name):
                    rows = (
                        (0, map_.rows)
                        if set(operand.reads.first) == {0} and operand.reads.last[0] == map_.rows - 1
                        else rows
                    )
                read += ranges(at[map_.name], rows[0], rows[1] - rows[0])
            elif name in passing:
                place, number = passing[name]
                read += ranges(place, number, 1)
        wrote: list[tuple[int, int]] = []
        for box, k in zip(step.boxes, step.places, strict=True):
            axis = row_axis(box_shape(box))
            first, stop = (0, 1) if axis is None else box[axis]
            wrote += ranges(places[k], first, stop - first) if k >= 0 else ()
        yield read, wrote


def test_no_step_runs_before_what_it_needs_is_there_and_what_it_overwrites_is_done_with() -> None:
    tried = 0
    for flow, hardware, (places, nodes) in schedules(range(120)):
        steps = list(unfold(nodes))
        if len(steps) > 150:
            continue
        accelerator = Accelerator(flow, hardware)
        line = accelerator.timeline(nodes, places)
        steps = [
            part
            for step in steps
            for part in (
                [one for one, _ in accelerator.issued(step)] if isinstance(step, Compute) else [step]
            )
        ]
        queues = [iter(line.loads), iter(line.stores), iter(line.computes)]
        when = [next(queues[int(step.store) if isinstance(step, Transfer) else 2]) for step in steps]
        assert all(before[1] <= after[1] for queue in line for before, after in pairwise(queue))
        wrote: list[tuple[int, int, int]] = []  # (start, end, done)
        used: list[tuple[int, int, int, int]] = []  # and by which queue: one that keeps its order
        for step, (start, end), (reads, writes) in zip(
            steps, when, accesses(flow, places, steps), strict=True
        ):
            queue = int(step.store) if isinstance(step, Transfer) else 2
            for low, high in reads:
                assert all(done <= start for a, b, done in wrote if a < high and low < b)
            for low, high in writes:
                assert all(
                    done <= start for a, b, done, other in used if a < high and low < b and other != queue
                )
            wrote += [(*span, end) for span in writes]
            used += [(*span, end, queue) for span in (*reads, *writes)]
            tried += 1
    assert tried > 2000


def test_every_operand_is_found_where_the_schedule_put_it() -> None:
    for flow, hardware, (places, nodes) in schedules(range(60)):
        names = {operator.name: i for i, operator in enumerate(flow.operators)}
        accelerator = Accelerator(flow, hardware)
        queues = Queues(flow, names, hardware, accelerator.accesses)
        queues.begin(nodes, places)
        for step in unfold(nodes):
            if isinstance(step, Compute):
                i = names[step.operator]
                place_names = [places[place].name for place, _ in queues._operands(i, step)]
                for index, name in enumerate(flow.operators[i].inputs):
                    operand = next((o for o in flow.operands[i] if o.input == index), None)
                    if operand and not is_empty(footprints(flow.calls[i], index, step.boxes)):
                        assert flow.maps[operand.map].name in place_names
                    elif any(w.name == name and not w.gathered for w in flow.weights[i]):
                        assert name in place_names or any(
                            place.startswith("weight blocks") for place in place_names
                        )
            if isinstance(step, Compute):
                queues.compute(step, accelerator.command(step))
            elif isinstance(step, Transfer):
                queues.transfer(step, 1)


# -- plans ---------------------------------------------------------------------------------------------------


def check_sums(graph: Graph, plan: Plan) -> Report:
    report = simulate(plan, graph)
    counted = [group for group in report.groups if group.mode != "excluded"]
    assert not report.disagreements
    assert report.dram.total == plan.totals.dram_bytes
    assert report.dram == sum((group.dram for group in counted), DramBytes())
    by_tensor = sum(t.moved_bytes for t in report.tensors)
    assert by_tensor == report.dram.total or (
        by_tensor < report.dram.total and any(group.by_formula for group in counted)
    )
    for group, given in zip(report.groups, plan.groups, strict=True):
        assert group.dram == given.dram
        if given.steps:
            assert group.dram.total == sum(t.loaded_bytes + t.stored_bytes for t in group.tensors)
            assert group.dram.output == sum(t.stored_bytes for t in group.tensors)
            assert group.dram.weight == sum(t.loaded_bytes for t in group.tensors if t.role == "weight")
        assert group.saved_bytes == group.one_by_one_bytes - group.dram.total
        assert group.cycles.total >= max(group.cycles.dma, group.cycles.compute)
        # a channel for each direction
        assert 2 * group.cycles.dma * plan.hardware.port_bytes >= group.dram.total
        assert group.energy.total_pj == pytest.approx(
            sum(v for k, v in asdict(group.energy).items() if k != "total_pj")
        )
        assert bool(group.by_formula) == (not given.steps)
    assert report.cycles.total + report.overlapped_cycles == sum(group.cycles.total for group in counted)
    assert 0 <= report.overlapped_cycles <= report.cycles.total
    assert report.macs == sum(group.macs for group in counted)
    assert report.energy.total_pj == pytest.approx(sum(group.energy.total_pj for group in counted))
    assert report.energy.dram_pj == pytest.approx(report.dram.total * plan.hardware.energy.pj_per_dram_byte)
    return report


def test_sums_over_groups_and_over_tensors_are_what_the_plan_says() -> None:
    modes: set[str] = set()
    for seed in range(200):
        graph, plan = random_plan(seed)
        report = check_sums(graph, plan)
        modes |= {group.mode for group in plan.groups if group.steps}
        if plan.totals.excluded_bytes == 0:
            assert (
                sum(group.saved_bytes for group in report.groups)
                == plan.totals.layer_by_layer_bytes - plan.totals.dram_bytes
            )
    assert modes == {"lbdf", "brr", "resident", "patches", "tiled"}


@pytest.mark.parametrize(
    ("name", "kib"),
    [("mobilenet_v2", 128), ("squeezenet1_1", 64), ("resnet18", 256), ("efficientnet_b0", 512)],
)
def test_a_real_network_adds_up(name: str, kib: int) -> None:
    graph = real(name)
    flow, plan = Dataflow.of(graph), planned(graph, Hardware(kib << 10))
    report = check_sums(graph, plan)
    assert report.macs - report.recomputed_macs == sum(flow.macs)
    for tensor in report.tensors:
        if tensor.role in ("input", "weight"):
            assert tensor.loaded_bytes >= tensor.size_bytes > 0 == tensor.stored_bytes
        if tensor.role == "output":
            assert tensor.stored_bytes >= tensor.size_bytes > 0
    assert {tensor.role for tensor in report.tensors} == {"input", "output", "map", "weight"}


def test_a_report_survives_json() -> None:
    for seed in range(10):
        graph, plan = random_plan(seed)
        report = simulate(plan, graph)
        assert validate(Report, json.loads(json.dumps(asdict(report))), "report") == report


def test_a_plan_without_steps_is_by_formula_and_says_so() -> None:
    graph = real("mobilenet_v2")
    plan = planned(graph, Hardware(128 << 10))
    bare = replace(
        plan,
        groups=tuple(replace(group, places=(), steps=(), unexecutable="no reason") for group in plan.groups),
    )
    report = check_sums(graph, bare)
    assert all(
        group.by_formula == "no reason" and group.cycles.timing == "formula" for group in report.groups
    )
    assert report.cycles.timing == "formula"


def test_a_plan_whose_bytes_are_not_those_of_its_steps_is_reported() -> None:
    graph = real("squeezenet1_1")
    plan = planned(graph, Hardware(64 << 10))
    group = next(group for group in plan.groups if group.steps)
    lying = replace(group, dram=replace(group.dram, input=group.dram.input - 1))
    report = simulate(replace(plan, groups=tuple(lying if g is group else g for g in plan.groups)), graph)
    assert len(report.disagreements) == 1
    assert f"group {group.id}: the plan says input {group.dram.input - 1:,} B" in report.disagreements[0]


# -- hostile plans -------------------------------------------------------------------------------------------


def small() -> tuple[Graph, Plan]:
    """A convolution of a map of 8 rows, in a loop over its rows."""
    flow = network(conv("x", "w", "y"), x=(1, 4, 8, 8), w=(4, 4, 1, 1))
    hardware = Hardware(1 << 12, element_bytes=1)
    line_buffers = LineBuffers(flow, Lines.plain(flow))
    places, steps = lower(BufferLayout(flow, hardware), 1, line_buffer_nest(1), line_buffers)
    dram = dram_bytes(steps)
    group = PlannedGroup(0, ("y",), "lbdf", dram, places, steps)
    totals = Totals(dram.total, dram.total, dram.total, dram.total, dram.total, 0.0, "optimal")
    model, search = ModelReference("n", "0" * 64, "simplified.onnx"), SearchRecord("exact", None, 1, 1, 0.0)
    return flow.graph, Plan(
        model,
        hardware,
        "lbdf",
        "tiled",
        epilogue=True,
        memory=(),
        groups=(group,),
        totals=totals,
        search=search,
    )


def changed(kind: type, **values: object) -> Callable[[PlannedGroup], PlannedGroup]:
    """The group with one step, the first of its kind inside the loop, changed."""

    def change(group: PlannedGroup) -> PlannedGroup:
        head, loop = group.steps
        assert isinstance(loop, Loop)
        at = next(k for k, node in enumerate(loop.body) if isinstance(node, kind))
        body = (*loop.body[:at], replace(loop.body[at], **values), *loop.body[at + 1 :])
        return replace(group, steps=(head, replace(loop, body=body)))

    return change


def deep(group: PlannedGroup) -> PlannedGroup:
    nodes = group.steps
    for _ in range(100):
        nodes = (Loop(2, nodes),)
    return replace(group, steps=nodes)


HOSTILE: dict[str, tuple[Callable[[PlannedGroup], PlannedGroup], str]] = {
    "no such place": (changed(Transfer, place=9), "place 9"),
    "place below 0": (changed(Transfer, place=-1), "place -1"),
    "no such tensor": (changed(Transfer, tensor="z"), "no such tensor"),
    "box of another rank": (changed(Transfer, box=((0, 1),), strides=((0, 0),)), "leaves 'x'"),
    "box outside": (changed(Transfer, box=((0, 1), (0, 5), (0, 1), (0, 8))), "leaves 'x'"),
    "box that walks out": (changed(Transfer, strides=((0, 0, 2, 0, 1),)), "leaves 'x'"),
    "box inside out": (changed(Transfer, box=((0, 1), (3, 2), (0, 1), (0, 8))), "leaves 'x'"),
    "negative rows": (changed(Transfer, rows=-1), "found -1"),
    "endless rows": (changed(Transfer, row_bytes=1 << 20000), "a number of 20001 bits"),
    "slots below 0": (changed(Transfer, strides=((0, 0, 1, 0, -1),)), "nothing below 0"),
    "gather from no constant": (changed(Transfer, gather="y"), "'y' gathers from no constant"),
    "gather by nobody": (changed(Transfer, gather="q"), "'q' gathers from no constant"),
    "strides of another length": (changed(Transfer, strides=((0, 0, 1),)), "found strides"),
    "strides too many": (changed(Transfer, strides=((0,) * 5,) * 2), "found strides"),
    "no such operator": (changed(Compute, operator="q"), "not an operator of this group"),
    "a result too many": (changed(Compute, places=(1, 1)), "its results are 1"),
    "result outside": (changed(Compute, strides=((1, 0, 1, 0),)), "leaves 'y'"),
    "sums nowhere": (changed(Compute, accumulator=7), "place 7"),
    "inputs inside out": (changed(Compute, inputs=(2, 1), strides=((0, 0, 1, 0, 0),)), "input channels"),
    "no iterations": (lambda g: replace(g, steps=(Loop(0, g.steps),)), "0 iterations"),
    "too deep": (deep, "loops within loops"),
    "endless slots": (
        lambda g: replace(g, places=(replace(g.places[0], slots=1 << 40), *g.places[1:])),
        "out of range",
    ),
    "no slots": (lambda g: replace(g, places=(replace(g.places[0], slots=0), *g.places[1:])), "out of range"),
    "endless bytes": (lambda g: replace(g, dram=DramBytes(1 << 20000)), "a number of 20001 bits"),
    "endless steps": (
        lambda g: replace(g, steps=(Loop(1 << 70, (replace(g.steps[0], strides=()),)),)),
        "number of steps",
    ),
    "another number": (lambda g: replace(g, id=3), "its position"),
    "no operators": (lambda g: replace(g, nodes=()), "found none"),
    "an operator twice": (lambda g: replace(g, nodes=("y", "y")), "earlier group too"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_steps_that_cannot_be_are_refused(case: str) -> None:
    change, said = HOSTILE[case]
    graph, plan = small()
    assert not simulate(plan, graph).disagreements
    bad = replace(plan, groups=(change(plan.groups[0]),))
    with pytest.raises(InvalidPlan, match="groups") as caught:
        simulate(bad, graph)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_operator_in_no_group_is_refused() -> None:
    graph, plan = small()
    with pytest.raises(InvalidPlan, match="in none of them"):
        simulate(replace(plan, groups=()), graph)


def test_endless_loops_are_bounded_not_walked() -> None:
    """2**48 turns of nothing that moves: totals are products, and time is that of the engines."""
    graph, plan = small()
    group = plan.groups[0]
    load = next(step for step in unfold(group.steps) if isinstance(step, Transfer))
    flat = replace(load, strides=((0,) * len(load.origin),) * 12)
    nodes: tuple[Loop | Transfer, ...] = (flat,)
    for _ in range(12):
        nodes = (Loop(16, nodes),)
    report = simulate(replace(plan, groups=(replace(group, steps=nodes),)), graph)
    assert report.dram.total == 16**12 * load.bytes
    assert report.cycles.dma == 16**12 * transfer_cycles(load, plan.hardware)
    assert report.cycles.timing == "formula"
    assert report.disagreements


# -- hardware ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["accelerator_256k.yaml", *(f"buffer_{kib}k.yaml" for kib in (128, 256, 512, 1024, 2048))]
)
def test_chips_of_the_papers_and_the_accelerator_are_modelled_by_the_defaults(name: str) -> None:
    described, plain = chip(name, None, None), Hardware(1)
    sizes = [f.name for f in fields(Hardware)][: [f.name for f in fields(Hardware)].index("mac_rows")]
    if name == "accelerator_256k.yaml":  # fitted to the RTL
        sizes += ["start_cycles", "port_latency", "instruction_bytes", "clock_hz", "byte_slack"]
        plain = replace(plain, energy=Energy(dram_byte_pj=160.0))
    assert (
        replace(
            described, name=plain.name, source=plain.source, **{name: getattr(plain, name) for name in sizes}
        )
        == plain
    )


def test_energy_of_the_buffer_follows_its_size() -> None:
    """Optimus: 6, 9 and 12 at 128K, 256K and 512K, against 200 for DRAM (papers.md 4.3)."""
    for kib, cost in ((128, 6), (256, 9), (512, 12)):
        assert Hardware(kib << 10).buffer_byte_pj == pytest.approx(160 * cost / 200, rel=0.06)
    assert Hardware(1 << 20, energy=Energy(buffer_byte_pj=3.0)).buffer_byte_pj == 3.0


@pytest.mark.parametrize("field", ["dram_byte_pj", "buffer_byte_pj", "mac_pj"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "1 J", True])
def test_an_energy_that_is_none_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"hardware.energy.{field}"):
        Energy(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [("mac_rows", 0), ("port_bytes", 1.5), ("port_latency", -1), ("overlap", 1), ("clock_hz", 0.5)],
)
def test_a_chip_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"hardware.{field}"):
        Hardware(1 << 18, **{field: value})  # type: ignore[arg-type]
