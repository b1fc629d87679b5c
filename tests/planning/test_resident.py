"""A resident group computes the reference in the planned buffer and no less, moving what was planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lfopt import zoo
from lfopt.frontend import from_model
from lfopt.ir import (
    Compute,
    Graph,
    Hardware,
    Loop,
    Place,
    PlannedGroup,
    Step,
    Transfer,
    dram_bytes,
    fold,
    unfold,
)
from lfopt.ops import OPAQUE, Dataflow, bits
from lfopt.ops.reference import reference
from lfopt.planning.nest.lowering import lower
from lfopt.planning.resident import SLOTS, Peak, Resident
from lfopt.planning.steps.addresses import Life, allocate, peak_bytes
from lfopt.rewrite import simplify
from simulator.interpreter.buffer import Overrun
from simulator.interpreter.execute import Machine, Violation
from simulator.recount import RecountNetwork
from tests.brute import Oracle
from tests.cases import few, some
from tests.line_buffers import count
from tests.strategies import OPSET, random_graph, random_hardware


def cases(
    seeds: range, least: int = 3, most: int = 8
) -> Iterator[tuple[str, np.random.Generator, Graph, Hardware]]:
    """Seeded random networks of operators that can be executed, each on a chip."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(least, most + 1)))
        hardware = random_hardware(rng, graph)
        if all(row is not OPAQUE for row in Dataflow.of(graph).specs):
            yield f"seed {seed}, {hardware}", rng, graph, hardware


def live_bytes(flow: Dataflow, mask: int, hardware: Hardware) -> int:
    """Most bytes of whole maps that one operator of the group reads or makes on chip, by enumeration."""
    most = 0
    for now in bits(mask):
        total = 0
        for m, tensor in enumerate(flow.maps):
            uses = [i for i in bits(mask) if flow.readers[m] >> i & 1 or m in flow.results[i]]
            if uses and min(uses) <= now <= max(uses):
                total += tensor.rows * hardware.row_bytes(tensor)
        most = max(most, total)
    return most


# -- addresses -----------------------------------------------------------------------------------------------


def test_no_two_that_are_alive_together_overlap() -> None:
    perfect = 0
    for seed in range(600):
        rng = np.random.default_rng(seed)
        starts = rng.integers(0, 20, int(rng.integers(1, 30)))
        lives = [
            Life(int(rng.integers(1, 100)), int(first), int(first + rng.geometric(0.3) - 1))
            for first in starts
        ]
        addresses, top = allocate(lives)
        for j, (a, at) in enumerate(zip(lives, addresses, strict=True)):
            assert at >= 0
            assert at + a.bytes <= top
            for b, other in zip(lives[:j], addresses[:j], strict=True):
                together = a.first <= b.last and b.first <= a.last
                assert not together or at + a.bytes <= other or other + b.bytes <= at
        live = max(sum(life.bytes for life in lives if life.first <= now <= life.last) for now in range(60))
        assert peak_bytes(lives) == live
        assert live <= top <= 1.35 * live
        perfect += top == live
    assert perfect > 450


@pytest.fixture(scope="module")
def real():
    """Real networks without weights, by name."""
    known: dict[str, Dataflow] = {}

    def of(name: str) -> Dataflow:
        if name not in known:
            known[name] = Dataflow.of(simplify(from_model(zoo.build(name, weights=False)), "default"))
        return known[name]

    return of


@pytest.mark.parametrize(
    "name", ["resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "squeezenet1_1", "vgg16"]
)
def test_address_maps_of_real_networks_have_no_gaps(real, name: str) -> None:
    """Of runs of operators at least: none ends above the most bytes alive at once."""
    flow = real(name)
    resident = Resident(flow, Hardware(1, element_bytes=1, bias_bytes=4))
    for first in range(len(flow)):
        for stop in (*range(first + 1, min(first + 40, len(flow)), 6), len(flow)):
            mask = (1 << stop) - (1 << first)
            assert resident.need(mask) == live_of(resident, mask) == resident.least(mask)


def live_of(resident: Resident, mask: int) -> int:
    return peak_bytes(resident.lives(mask).values()) + resident.slice_bytes(mask)


# -- bytes and bounds ----------------------------------------------------------------------------------------


def test_a_schedule_moves_every_tensor_once() -> None:
    groups = 0
    for what, _, graph, hardware in cases(some(range(250))):
        flow, net, resident = (
            Dataflow.of(graph),
            RecountNetwork(graph),
            Resident(Dataflow.of(graph), hardware),
        )
        for mask in Oracle(graph).legal_groups():
            places, steps = lower(resident.layout, mask, resident.nest(mask))
            once, padding = (
                count(net, flow.names(mask), replace(hardware, parameter_store_bytes=0)).dram,
                resident.padding(mask),
            )
            assert dram_bytes(steps) == replace(once, weight=once.weight + padding), (
                f"{what}, {flow.names(mask)}"
            )
            assert padding == 0 or (padding > 0 and hardware.pads_constants)
            assert max(place.end for place in places) == resident.need(mask)
            assert len({place.name for place in places}) == len(places)
            groups += 1
    assert groups > few(4_000)


def test_the_bound_holds_for_every_group_that_a_group_is_grown_into() -> None:
    pairs = tight = 0
    for what, _, graph, hardware in cases(some(range(10_000, 10_150)), 3, 7):
        flow = Dataflow.of(graph)
        resident = Resident(flow, hardware)
        needs = {mask: resident.need(mask) for mask in range(1, 1 << len(flow))}
        for mask, need in needs.items():
            least, lives = resident.least(mask), live_of(resident, mask)
            assert least <= lives <= need, f"{what}, {flow.names(mask)}"
            assert live_bytes(flow, mask, hardware) <= peak_bytes(resident.lives(mask).values())
            tight += least == need
            top = mask.bit_length()
            for above in range(1 << (len(flow) - top)):
                pairs += 1
                grown = mask | above << top
                assert least <= needs[grown], (
                    f"{what}: {flow.names(mask)} takes {least} at the least, "
                    f"{flow.names(grown)} takes {needs[grown]}"
                )
                assert least <= resident.least(grown)
    assert pairs > few(20_000)
    assert tight > few(4_000)


def test_growing_operator_by_operator_gives_the_bound_of_the_whole() -> None:
    """Without shared constants the bound is the peak of live bytes and the largest weight blocks."""
    for what, _, graph, hardware in cases(range(20_000, 20_150)):
        flow = Dataflow.of(graph)
        resident = Resident(flow, hardware)
        readers: dict[str, int] = {}
        for weights in flow.weights:
            for name in {w.name for w in weights if not w.gathered}:
                readers[name] = readers.get(name, 0) + 1
        if max(readers.values(), default=0) > 1:
            continue
        for mask in Oracle(graph).legal_groups():
            peak, part = Peak(), 0
            for op in bits(mask):
                peak = resident.grow(part, peak, op)
                part |= 1 << op
            assert peak.bytes == live_of(resident, mask), f"{what}, {flow.names(mask)}"
            assert [live for _, live in peak.steps] == sorted({live for _, live in peak.steps}, reverse=True)


def test_two_operators_of_a_group_that_fits_are_mates() -> None:
    apart = 0
    for what, rng, graph, hardware in cases(range(30_000, 30_100)):
        flow = Dataflow.of(graph)
        resident = Resident(flow, hardware)
        limit = int(rng.integers(1, resident.need(flow.everything) + 1))
        compatible = resident.compatible(limit)
        apart += any(mask != flow.everything for mask in compatible)
        for mask in Oracle(graph).legal_groups():
            if resident.need(mask) < limit:
                assert all(not mask & ~compatible[op] for op in bits(mask)), f"{what}, {flow.names(mask)}"
    assert apart > 50


# -- execution -----------------------------------------------------------------------------------------------


def execute(
    graph: Graph, mask: int, hardware: Hardware, inputs: dict[str, np.ndarray], truth: dict[str, np.ndarray]
) -> None:
    """Run a group with exactly the buffer that was planned, and with one byte less."""
    flow, resident = Dataflow.of(graph), Resident(Dataflow.of(graph), hardware)
    counted = count(RecountNetwork(graph), flow.names(mask), hardware)
    need = resident.need(mask)
    places, steps = lower(resident.layout, mask, resident.nest(mask))
    group = PlannedGroup(
        0,
        flow.names(mask),
        "resident",
        counted.dram,
        places,
        steps,
    )

    def machine(buffer_bytes: int) -> Machine:
        loaded = Machine(graph, replace(hardware, buffer_bytes=buffer_bytes), inputs)
        for m in (m for i in range(len(flow)) if not mask >> i & 1 for m in flow.results[i]):
            name = flow.maps[m].name
            loaded.dram[name], loaded.written[name] = truth[name], np.ones(flow.maps[m].shape, bool)
        return loaded

    enough = machine(need + 1)
    done = enough.run(group)
    assert (
        done.dram
        == replace(counted.dram, weight=counted.dram.weight + resident.padding(mask))
        == dram_bytes(steps)
    )
    assert done.peak_bytes == need
    for name in counted.outputs:
        np.testing.assert_allclose(enough.dram[name], truth[name], rtol=1e-4, atol=1e-5)
    if need:
        with pytest.raises((Violation, Overrun)):
            machine(need).run(group)


def small_integers(rng: np.random.Generator, graph: Graph) -> dict[str, np.ndarray]:
    return {
        name: rng.integers(-4, 5, graph.shape(name)).astype(graph.tensors[name].dtype)
        for name in graph.inputs
    }


def test_groups_of_random_networks_give_what_the_reference_gives_in_the_buffer_that_was_planned() -> None:
    groups = 0
    for _, rng, graph, hardware in cases(range(40_000, 40_060)):
        inputs = small_integers(rng, graph)
        truth = reference(graph, inputs, everything=True)
        for mask in Oracle(graph).legal_groups():
            if rng.random() < 0.3:
                execute(graph, mask, hardware, inputs, truth)
                groups += 1
    assert groups > 300


# -- weights by hand -----------------------------------------------------------------------------------------


def network(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], output: str, **constants: tuple[int, ...]
) -> Graph:
    """A network with one input x and constants of these shapes."""
    rng = np.random.default_rng(0)
    values = [
        helper.make_tensor(name, TensorProto.FLOAT, s, rng.integers(-3, 4, s).astype(np.float32).reshape(-1))
        for name, s in constants.items()
    ]
    graph = helper.make_graph(
        nodes,
        "by hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(output)],
        values,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return from_model(onnx.shape_inference.infer_shapes(model))


def steps_of(graph: Graph, hardware: Hardware) -> tuple[tuple[Place, ...], list[Step], Resident]:
    """The whole network as one resident group, executed and walked."""
    flow = Dataflow.of(graph)
    inputs = small_integers(np.random.default_rng(1), graph)
    execute(graph, flow.everything, hardware, inputs, reference(graph, inputs, everything=True))
    resident = Resident(flow, hardware)
    places, steps = lower(resident.layout, flow.everything, resident.nest(flow.everything))
    return places, [*unfold(steps)], resident


BYTES = Hardware(1, element_bytes=1, channel_align=2)


def weight_loads(places: tuple[Place, ...], steps: list[Step]) -> list[tuple[str, str, int, int, int]]:
    """(constant, place, slot, offset, bytes) of every load of weights."""
    return [
        (s.tensor, places[s.place].name, s.slot, s.offset, s.bytes)
        for s in steps
        if isinstance(s, Transfer) and s.kind == "weight"
    ]


def test_weight_blocks_of_a_convolution_alternate_between_two_slots_with_their_bias() -> None:
    """5 output channels in blocks of 2, 2 and 1; 3 x 1 x 1 weights and one bias of 4 bytes each."""
    conv = helper.make_node("Conv", ["x", "w", "b"], ["y"])
    graph = network([conv], (1, 3, 2, 2), "y", w=(5, 3, 1, 1), b=(5,))
    places, steps, resident = steps_of(graph, replace(BYTES, bias_bytes=4))
    passing = places[-1]
    assert (passing.slots, passing.slot_bytes) == (SLOTS, 2 * 3 + 2 * 4)
    where = passing.name
    assert weight_loads(places, steps) == [
        *(("w", where, 0, 0, 6), ("b", where, 0, 6, 8)),
        *(("w", where, 1, 0, 6), ("b", where, 1, 6, 8)),
        *(("w", where, 2, 0, 3), ("b", where, 2, 3, 4)),
    ]
    assert [step.boxes[0][1] for step in steps if isinstance(step, Compute)] == [(0, 2), (2, 4), (4, 5)]
    assert resident.need(1) == (4 * 4 + 6 * 4) + 2 * 14  # both maps whole, channels rounded up to 2


def test_blocks_of_equal_size_are_one_loop() -> None:
    """And it is the loop that folding all turns gives."""
    graph = network([helper.make_node("Conv", ["x", "w"], ["y"])], (1, 3, 2, 2), "y", w=(9, 3, 1, 1))
    resident = Resident(Dataflow.of(graph), BYTES)
    _, steps = lower(resident.layout, 1, resident.nest(1))
    loops = [step for step in steps if isinstance(step, Loop)]
    assert [loop.count for loop in loops] == [4]
    turns = [*unfold(loops)]
    assert fold([turns[k : k + 2] for k in range(0, 8, 2)]) == tuple(loops)


@pytest.mark.parametrize(
    ("node", "shape", "constants", "sizes"),
    [
        (
            helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=2),
            (1, 4, 2, 2),
            {"w": (4, 3, 1, 1), "b": (6,)},
            [6, 3, 6, 3],
        ),
        (helper.make_node("Conv", ["x", "w"], ["y"], group=3), (1, 3, 2, 2), {"w": (6, 1, 2, 1)}, [4, 4, 4]),
        (
            helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1),
            (2, 4),
            {"w": (3, 4), "b": (3,)},
            [10, 5],
        ),
        (helper.make_node("Gemm", ["x", "w", "b"], ["y"]), (2, 4), {"w": (4, 3), "b": (2, 3)}, [12, 6]),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), (2, 3, 4), {"w": (2, 4, 3)}, [16, 8]),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), (2, 3, 4), {"w": (4,)}, [4]),
        (helper.make_node("MatMul", ["w", "x"], ["y"]), (2, 3, 4), {"w": (5, 3)}, [15]),
        (helper.make_node("Mul", ["x", "w"], ["y"]), (1, 3, 2, 2), {"w": (3, 1, 1)}, [3]),
        (
            helper.make_node("LayerNormalization", ["x", "w", "b"], ["y"]),
            (1, 3, 4),
            {"w": (4,), "b": (4,)},
            [8],
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)
def test_weights_pass_in_blocks_of_output_channels_or_whole(node, shape, constants, sizes: list[int]) -> None:
    """`sizes`: bytes of the blocks; two output channels each for a contraction with weights."""
    places, steps, _ = steps_of(network([node], shape, "y", **constants), BYTES)
    blocks: dict[int, int] = {}
    for _, where, slot, _, size in weight_loads(places, steps):
        assert where == places[-1].name
        blocks[slot] = blocks.get(slot, 0) + size
    assert [*blocks] == [*range(len(sizes))]
    assert [*blocks.values()] == sizes


def test_a_bias_that_does_not_fall_into_output_channels_stays_whole_while_its_operator_runs() -> None:
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    places, steps, _ = steps_of(
        network([gemm, helper.make_node("Relu", ["y"], ["z"])], (2, 4), "z", w=(4, 6), b=(2, 1)), BYTES
    )
    loads = weight_loads(places, steps)
    assert loads[0] == ("b", "b", 0, 0, 2)
    assert [(name, size) for name, _, _, _, size in loads[1:]] == [("w", 8)] * 3


def test_a_constant_that_several_operators_read_is_loaded_once_and_stays() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("Conv", ["y", "v"], ["u"]),
        helper.make_node("Conv", ["u", "w"], ["z"]),
        helper.make_node("Relu", ["z"], ["o"]),
    ]
    graph = network(nodes, (1, 4, 3, 3), "o", w=(4, 4, 1, 1), v=(4, 4, 1, 1))
    places, steps, resident = steps_of(graph, BYTES)
    loads = weight_loads(places, steps)
    assert [load for load in loads if load[0] == "w"] == [("w", "w", 0, 0, 16)]
    assert [name for name, *_ in loads] == ["w", "v", "v"]
    life = resident.lives(0b1111)["w"]
    assert (life.first, life.last) == (0, 2)
    assert resident.need(0b1111) == 2 * 36 + 16 + SLOTS * 8
    assert resident.need(0b0011) == 2 * 36 + SLOTS * 8  # one reader in the group: it passes in blocks
    assert resident.least(0b0001) == 2 * 36  # for its weights may yet be kept whole


def test_rows_gathered_from_a_constant_go_straight_into_the_result() -> None:
    indices = helper.make_tensor_value_info("i", TensorProto.INT64, (1, 3))
    table = helper.make_tensor("table", TensorProto.FLOAT, (10, 4), np.arange(40, dtype=np.float32))
    gather, relu = helper.make_node("Gather", ["table", "i"], ["e"]), helper.make_node("Relu", ["e"], ["y"])
    proto = helper.make_graph(
        [gather, relu], "gather", [indices], [helper.make_empty_tensor_value_info("y")], [table]
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    graph = from_model(onnx.shape_inference.infer_shapes(model))
    places, steps, resident = steps_of(graph, replace(BYTES, channel_align=1))
    loads = [step for step in steps if isinstance(step, Transfer) and step.kind == "weight"]
    assert [(step.tensor, places[step.place].name, step.bytes) for step in loads] == [("e", "e", 12)]
    assert [step.operator for step in steps if isinstance(step, Compute)] == [
        relu.name or Dataflow.of(graph).operators[1].name
    ]
    assert resident.slice_bytes(0b11) == 0
    assert resident.need(0b11) == 12 + 12


def test_what_does_not_fit_is_explained_by_the_operator_where_most_is_on_chip() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Add", ["z", "x"], ["o"]),
    ]
    graph = network(nodes, (1, 2, 3, 3), "o", w=(2, 2, 1, 1))
    resident = Resident(Dataflow.of(graph), BYTES)
    assert resident.need(0b111) == 3 * 18 + SLOTS * 4
    assert sum(use.bytes for use in resident.uses(0b111)) == resident.need(0b111)
