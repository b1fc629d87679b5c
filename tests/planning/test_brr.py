"""Bands run in the planned buffer and move the planned bytes; Optimus' formula on cases by hand.

The schedule is walked step by step on a model of the buffer that knows, per slot, which row and which
channels lie in it. Everything that a step reads must be there. Which rows and channels an operator reads is
decided here, from the row rules of the operator table and from the operator's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lfopt import zoo
from lfopt.app import api
from lfopt.frontend import from_model
from lfopt.fusion.legality import connected, convex_gap
from lfopt.ir import (
    Compute,
    Cost,
    DoesNotFit,
    DramBytes,
    Graph,
    Hardware,
    Node,
    Place,
    PlannedGroup,
    Transfer,
    UnsupportedModel,
    box_elements,
    dram_bytes,
    round_up,
    row_axis,
    step_count,
    unfold,
    whole,
)
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, bits
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.brr.banded import NEVER, Banded, BandedGroups
from lfopt.planning.costs import optimus
from lfopt.planning.costs.optimus import Optimus, OptimusCosts, OptimusFigures, paper_bands
from lfopt.planning.nest.lowering import lower
from lfopt.planning.nest.price import NestPricing
from lfopt.rewrite import simplify
from lfopt.zoo.builder import Net
from search.exact import solve
from simulator.interpreter.execute import Machine
from tests.brute import Oracle
from tests.cases import few, some
from tests.strategies import OPSET, random_graph, random_hardware

MOST_STEPS = 5_000  # of a schedule that is walked


# -- a model of the buffer -----------------------------------------------------------------------------------


class Spilled(AssertionError):
    """Something is read that is not on chip, or something is written where it has no place."""


def check(fact: bool, message: str) -> None:
    if not fact:
        raise Spilled(message)


class Chip:
    """The buffer while one group runs."""

    def __init__(self, flow: Dataflow, mask: int, hardware: Hardware, places: tuple[Place, ...]) -> None:
        self.flow, self.mask, self.hardware, self.places = flow, mask, hardware, places
        # per place and slot: number, channels there (or sums so far)
        self.held: list[dict[int, tuple[int, np.ndarray]]] = [{} for _ in places]
        # per place and slot: number, boxes
        self.constants: list[dict[int, tuple[int, list[tuple[str, tuple]]]]] = [{} for _ in places]
        self.moved: dict[str, np.ndarray] = {}  # per tensor: how often each element was moved
        self.index = {tensor.name: m for m, tensor in enumerate(flow.maps)}
        self.at = {place.name: k for k, place in enumerate(places)}
        self.operators = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.over = [
            [k for k, b in enumerate(places) if k != j and a.address < b.end and b.address < a.end]
            for j, a in enumerate(places)
        ]
        check(all(place.slots > 0 for place in places), "a place without slots")
        check(len(self.at) == len(places), "places with one name")

    def channels(self, shape: tuple[int, ...]) -> int:
        axis = CHANNEL_AXIS_OF_RANK.get(len(shape))
        return 1 if axis is None else shape[axis]

    def spans(self, box: tuple) -> tuple[range, tuple[int, int]]:
        """Rows and channels of a box of a map; everything else must be whole."""
        rows, channel = row_axis(tuple(stop for _, stop in box)), CHANNEL_AXIS_OF_RANK.get(len(box))
        return range(*(box[rows] if rows is not None else (0, 1))), box[channel] if channel is not None else (
            0,
            1,
        )

    # -- writing ---------------------------------------------------------------------------------------------

    def overwrite(self, place: int) -> None:
        """What shares bytes with a place is lost when something is written there."""
        for other in self.over[place]:
            self.held[other].clear()
            self.constants[other].clear()

    def write_map(self, m: int, box: tuple, place: int) -> None:
        shape, where = self.flow.maps[m].shape, self.places[place]
        check(
            where.name == self.flow.maps[m].name and where.purpose == "map",
            f"{self.flow.maps[m].name} written to {where.name}",
        )
        for k, (start, stop) in enumerate(box):
            check(0 <= start < stop <= shape[k], f"box {box} of {where.name} {shape}")
        rows, (low, high) = self.spans(box)
        check(len(rows) <= where.slots, f"{len(rows)} rows at once into {where.slots} slots of {where.name}")
        count = self.channels(shape)
        one_row = self.hardware.row_bytes(self.flow.maps[m]) // round_up(count, self.hardware.channel_align)
        fits = where.slot_bytes == one_row * round_up(count, self.hardware.channel_align)
        check(
            fits or one_row * round_up(high - low, self.hardware.channel_align) == where.slot_bytes,
            f"{high - low} channels into {where}",
        )
        self.overwrite(place)
        for row in rows:
            number, there = self.held[place].get(row % where.slots, (-1, np.zeros(count, bool)))
            if number != row or not fits:
                there = np.zeros(count, bool)
            there[low:high] = True
            self.held[place][row % where.slots] = row, there

    def write_constant(self, step: Transfer) -> None:
        where = self.places[step.place]
        check(where.purpose == "weight", f"constant {step.tensor} into {where.name}")
        check(
            step.offset + step.bytes <= where.slot_bytes,
            f"constant {step.tensor} beyond its slot of {where.name}",
        )
        self.overwrite(step.place)
        slot = step.slot % where.slots
        number, boxes = self.constants[step.place].get(slot, (-1, []))
        if number != step.slot or step.offset == 0:
            boxes = []
        self.constants[step.place][slot] = step.slot, [*boxes, (step.tensor, step.box)]

    # -- reading ---------------------------------------------------------------------------------------------

    def read_map(self, m: int, rows: range, channels: tuple[int, int], who: str) -> None:
        name = self.flow.maps[m].name
        check(name in self.at or not rows, f"{who}: {name} has no place")
        for row in rows:
            place = self.at[name]
            number, there = self.held[place].get(row % self.places[place].slots, (-1, np.zeros(1, bool)))
            check(number == row, f"{who}: row {row} of {name} is read, its slot holds {number}")
            check(
                bool(there[slice(*channels)].all()),
                f"{who}: channels {channels} of row {row} of {name} are not all there",
            )

    def read_constant(self, name: str, box: tuple, who: str) -> None:
        def covers(loaded: tuple) -> bool:
            return all(
                low <= start and stop <= high for (start, stop), (low, high) in zip(box, loaded, strict=True)
            )

        slots = (boxes for place in self.constants for _, boxes in place.values())
        check(
            any(known == name and covers(loaded) for boxes in slots for known, loaded in boxes),
            f"{who}: {box} of constant {name} is not there",
        )

    # -- steps -----------------------------------------------------------------------------------------------

    def transfer(self, step: Transfer) -> None:
        graph, hardware = self.flow.graph, self.hardware
        shape = graph.shape(step.tensor)
        counts = self.moved.setdefault(step.tensor, np.zeros(shape, int))
        counts[tuple(slice(*span) for span in step.box)] += 1
        if step.kind == "weight":
            self.write_constant(step)
            return
        m = self.index[step.tensor]
        rows, channels = self.spans(step.box)
        check(step.slot == rows.start, f"rows {rows} of {step.tensor} go to slot {step.slot}")
        row = box_elements(step.box) // len(rows) * hardware.element_bytes
        check(
            step.bytes == len(rows) * round_up(row, hardware.dram_row_align),
            f"{step.bytes} bytes for {step.box} of {step.tensor}",
        )
        if step.store:
            check(
                step.kind == "output" and self.places[step.place].name == step.tensor,
                f"store of {step.tensor}",
            )
            self.read_map(m, rows, channels, "store")
        else:
            check(step.kind == "input" and channels == (0, self.channels(shape)), f"load of {step.tensor}")
            self.write_map(m, step.box, step.place)

    def compute(self, step: Compute) -> None:
        flow, op = self.flow, self.operators[step.operator]
        check(bool(self.mask >> op & 1), f"{step.operator} is not of this group")
        rows, out = self.spans(step.boxes[0])
        check(
            all(self.spans(box)[0] == rows for box in step.boxes),
            f"{step.operator}: results of different rows",
        )
        if out != (0, self.channels(flow.calls[op].result)):
            check(
                all(self.spans(box)[1] == out for box in step.boxes),
                f"{step.operator}: results of different channels",
            )
        check(len(rows) > 0, f"{step.operator}: no rows")
        who = f"{step.operator} rows {rows}"
        for operand in flow.operands[op]:
            for row in rows:
                needed = range(operand.reads.first[row], operand.reads.last[row] + 1)
                self.read_map(
                    operand.map,
                    needed,
                    self.channels_read(op, operand.map, operand.input, out, step.inputs),
                    who,
                )
        for weight in flow.weights[op]:
            for k, name in enumerate(flow.operators[op].inputs):
                if name == weight.name and (step.last or k == 1):
                    self.read_constant(name, self.constant_read(op, k, out, step.inputs), who)
        if step.accumulator >= 0:
            self.add(op, rows, out, step)
        else:
            check(step.first and step.last and step.inputs is None, f"{who}: sums without a place")
        if step.last:
            for m, box, place in zip(flow.results[op], step.boxes, step.places, strict=True):
                if place >= 0:
                    self.write_map(m, box, place)
                else:
                    check(not flow.readers[m] and not flow.is_output[m], f"{who}: a result has no place")

    def add(self, op: int, rows: range, out: tuple[int, int], step: Compute) -> None:
        where, inputs = self.places[step.accumulator], step.inputs
        assert inputs is not None
        result = self.flow.maps[self.flow.results[op][0]]
        need = (
            self.hardware.row_bytes(result) // self.hardware.element_bytes * self.hardware.accumulator_bytes
        )
        check(
            where.purpose == "sum" and where.slot_bytes == need and len(rows) <= where.slots,
            f"sums of {step.operator} in {where}",
        )
        if step.first:
            self.overwrite(step.accumulator)
        count = self.channels(result.shape)
        for row in rows:
            number, done = self.held[step.accumulator].get(row % where.slots, (-1, np.zeros(count, int)))
            if step.first:
                if number != row:
                    done = np.zeros(count, int)
                done[slice(*out)] = 0
            else:
                check(number == row, f"{step.operator}: sums of row {row} are lost")
            check(
                bool((done[slice(*out)] == inputs[0]).all()),
                f"{step.operator}: sums up to {done[slice(*out)]} go on with {inputs}",
            )
            done[slice(*out)] = inputs[1]
            self.held[step.accumulator][row % where.slots] = row, done
        if step.last:
            check(
                inputs[1] == self.channels(self.flow.calls[op].shape(0)),
                f"{step.operator}: sums end at {inputs}",
            )

    # -- what operators read ---------------------------------------------------------------------------------

    def channels_read(
        self, op: int, m: int, index: int, out: tuple[int, int], inputs: tuple[int, int] | None
    ) -> tuple[int, int]:
        """Channels of a map that an operator reads for some of its output channels."""
        call, shape = self.flow.calls[op], self.flow.maps[m].shape
        every = 0, self.channels(shape)
        as_is = call.shape(index) == shape or (
            call.operator.kind == "Gemm" and shape == (*call.shape(index), 1, 1)
        )
        if not as_is or out == (0, self.channels(call.result)) and inputs is None:
            return every
        if call.operator.kind in ("Conv", "ConvTranspose") and call.attribute("group", 1) > 1:
            group = call.attribute("group", 1)
            per_in, per_out = every[1] // group, call.result[1] // group
            return out[0] // per_out * per_in, -(-out[1] // per_out) * per_in
        if call.operator.kind == "MatMul" and len(shape) == len(call.result) == 4:
            return out  # a batch of matrices: the heads are the channels
        if call.operator.kind in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
            return inputs or every
        if self.flow.specs[op].elementwise and len(shape) == len(call.result) and every[1] > 1:
            return out
        if call.operator.kind in (
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "Resize",
            "Pad",
            "Slice",
            "DepthToSpace",
            "SpaceToDepth",
        ):
            return out
        if call.operator.kind in ("ReduceMean", "ReduceMax"):
            return every if CHANNEL_AXIS_OF_RANK[len(shape)] in (call.ints(1) or ()) else out
        if call.operator.kind in ("Softmax", "LayerNormalization", "Concat", "Split", "Gather"):
            return (
                every if call.attribute("axis", -1) % len(shape) == CHANNEL_AXIS_OF_RANK[len(shape)] else out
            )
        if call.operator.kind == "Transpose":
            axis = CHANNEL_AXIS_OF_RANK[len(shape)]
            return out if call.attribute("perm", ())[axis] == axis else every
        return every

    def constant_read(
        self, op: int, index: int, out: tuple[int, int], inputs: tuple[int, int] | None
    ) -> tuple:
        call = self.flow.calls[op]
        box = list(whole(call.shape(index)))
        kind, group = call.operator.kind, call.attribute("group", 1)
        if kind == "Conv":
            box[0] = out
            if index == 1 and inputs:
                box[1] = inputs
        elif kind == "ConvTranspose" and index == 1:
            if group == 1:
                box[:2] = inputs or box[0], out
            elif box[1] == (0, 1):
                box[0] = out
        elif (
            kind in ("Gemm", "MatMul")
            and index == 1
            and CHANNEL_AXIS_OF_RANK.get(len(call.result)) == len(call.result) - 1
        ):
            turned = kind == "Gemm" and call.attribute("transB", 0)
            box[-2 if turned else -1] = out
            if inputs:
                box[-1 if turned else -2] = inputs
        elif kind in ("ConvTranspose", "Gemm") and index == 2 and box[-1] == (0, self.channels(call.result)):
            box[-1] = out
        return tuple(box)


def walk(
    flow: Dataflow, mask: int, hardware: Hardware, places: tuple[Place, ...], steps: Sequence[Node]
) -> dict[str, np.ndarray]:
    """Run the steps; returns how often each element of each tensor moved."""
    chip = Chip(flow, mask, hardware, places)
    for step in unfold(steps):
        if isinstance(step, Transfer):
            chip.transfer(step)
        elif isinstance(step, Compute):
            chip.compute(step)
    return chip.moved


def verify(
    costs: GroupCosts, bands: BandedGroups, mask: int, banded: Banded, what: str, *, tight: bool = False
) -> bool:
    """Check one schedule; whether it was short enough to be walked.

    `tight`: with one row less anywhere, something must be missing.
    """
    flow, hardware = costs.dataflow, costs.hardware
    places, steps = lower(bands.slices.layout, mask, bands.nest(mask, banded))
    what = f"{what} {banded} on {hardware}"
    once = costs.dram(mask)
    whole, _ = costs.groups.weight_bytes(mask)
    planned = DramBytes(once.input, once.output, banded.weight_bytes)
    assert dram_bytes(steps) == planned, f"{what}: {dram_bytes(steps)}, planned {planned}"
    priced = NestPricing(bands.slices.layout).price(mask, bands.nest(mask, banded))
    need = hardware.buffer_need(int(priced.map_bytes[0]), int(priced.constant_bytes[0]))
    nest = (need, int(priced.input[0]), int(priced.output[0]), int(priced.weight[0]))
    assert nest == (banded.buffer_bytes, planned.input, planned.output, planned.weight), what
    one_pass = banded.weight_bytes - (banded.weight_passes - 1) * banded.pass_bytes
    assert one_pass == whole or (one_pass > whole and hardware.pads_constants and not banded.resident), what
    held, _ = bands.slices.constants(mask)
    assert max(place.end for place in places) == banded.buffer_bytes, what
    if step_count(steps) > MOST_STEPS:
        return False
    walked: dict[str, int] = {}
    for step in unfold(steps):
        if isinstance(step, Transfer):
            walked[step.kind] = walked.get(step.kind, 0) + step.rows * step.row_bytes
    assert DramBytes(**walked) == planned, what
    try:
        moved = walk(flow, mask, hardware, places, steps)
    except Spilled as error:
        raise AssertionError(f"{what}: {error}") from error
    written = {m for i in bits(mask) for m in flow.results[i]}
    for m in {o.map for i in bits(mask) for o in flow.operands[i]} - written:
        assert (moved.pop(flow.maps[m].name) == 1).all(), f"{what}: {flow.maps[m].name} is not loaded once"
    for m in written:
        if flow.is_output[m] or flow.readers[m] & ~mask:
            assert (moved.pop(flow.maps[m].name) == 1).all(), (
                f"{what}: {flow.maps[m].name} is not stored once"
            )
    for name in {w.name for i in bits(mask) for w in flow.weights[i]}:
        passes = 1 if name in held else banded.weight_passes
        assert (moved.pop(name) == passes).all(), f"{what}: {name} is not loaded in every pass"
    assert not moved, what
    for k, place in enumerate(places if tight else ()):
        if place.slots > 1 and place.purpose != "weight":
            less = (*places[:k], replace(place, slots=place.slots - 1), *places[k + 1 :])
            with pytest.raises(Spilled):
                walk(flow, mask, hardware, less, steps)
    return True


# -- groups --------------------------------------------------------------------------------------------------


def conv_net(rng: np.random.Generator, operators: int) -> Graph:
    """Optimus' networks: convolutions, depthwise ones, pools, residuals, branches, at times a classifier."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    shapes: dict[str, tuple[int, ...]] = {
        "in": (
            int(rng.choice([1, 1, 1, 2])),
            int(rng.integers(1, 8)),
            int(rng.integers(2, 13)),
            int(rng.integers(2, 5)),
        )
    }

    def constant(*shape: int) -> str:
        constants.append(
            onnx.numpy_helper.from_array(
                (rng.random(shape, np.float32) - 0.5).astype(np.float32), f"c{len(constants)}"
            )
        )
        return constants[-1].name

    def add(kind: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        nodes.append(
            helper.make_node(kind, inputs, [f"t{len(nodes)}"], name=f"{kind}{len(nodes)}", **attributes)
        )
        shapes[nodes[-1].output[0]] = shape
        return nodes[-1].output[0]

    def conv(x: str, channels: int, *, depthwise: bool = False) -> str:
        n, c, h, w = shapes[x]
        kernel, stride, dilation = (
            int(rng.choice([1, 3, 3, 2])),
            int(rng.choice([1, 1, 2])),
            int(rng.choice([1, 1, 2])),
        )
        pad = (kernel - 1) * dilation // 2
        size = [(extent + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1 for extent in (h, w)]
        if min(size) < 1:
            return x
        channels = c if depthwise else channels
        weight = constant(channels, 1 if depthwise else c, kernel, kernel)
        bias = [constant(channels)] if rng.random() < 0.6 else []
        group = c if depthwise else 1
        box: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "dilations": [dilation] * 2,
            "pads": [pad] * 4,
        }
        return add("Conv", [x, weight, *bias], (n, channels, *size), group=group, **box)

    x = "in"
    while len(nodes) < operators:
        n, c, h, w = shapes[x]
        match rng.choice(["conv", "conv", "depthwise", "relu", "prelu", "pool", "residual", "branches"]):
            case "conv":
                x = conv(x, int(rng.integers(1, 8)))
            case "depthwise":
                x = conv(x, c, depthwise=True)
            case "relu":
                x = add("Relu", [x], shapes[x])
            case "prelu":
                x = add("PRelu", [x, constant(c, 1, 1)], shapes[x])
            case "pool" if min(h, w) > 2:
                x = add(
                    "MaxPool",
                    [x],
                    (n, c, (h - 2) // 2 + 1, (w - 2) // 2 + 1),
                    kernel_shape=[2, 2],
                    strides=[2, 2],
                )
            case "residual":
                skips = [name for name, shape in shapes.items() if shape == shapes[x] and name != x]
                if skips:
                    x = add("Add", [x, skips[int(rng.integers(len(skips)))]], shapes[x])
            case "branches":
                ends = [
                    add("Conv", [x, constant(3, c, 1, 1)], (n, 3, h, w), kernel_shape=[1, 1])
                    for _ in range(2)
                ]
                x = add("Concat", ends, (n, 6, h, w), axis=1)
    if rng.random() < 0.3:
        n, c, _, _ = shapes[x]
        x = add("GlobalAveragePool", [x], (n, c, 1, 1))
        flat = add("Flatten", [x], (n, c), axis=1)
        x = add("Gemm", [flat, constant(c, 5), constant(5)], (n, 5))
    read = {name for node in nodes for name in node.input}
    outputs = [name for name in shapes if name not in read or (name != "in" and rng.random() < 0.05)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs]
    source = [helper.make_tensor_value_info("in", TensorProto.FLOAT, shapes["in"])]
    graph = helper.make_graph(nodes, "convs", source, info, constants)
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10))


Group = tuple[str, np.random.Generator, GroupCosts, BandedGroups, int]


def groups(
    make: Callable[[np.random.Generator, int], Graph],
    seeds: range,
    least: int,
    most: int,
    *,
    wide: bool = False,
) -> Iterator[Group]:
    """The connected convex groups of seeded random networks, each on a random chip.

    `wide`: sums of all output channels at once.
    """
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = make(rng, int(rng.integers(least, most + 1)))
        hardware, flow = random_hardware(rng, graph), Dataflow.of(graph)
        costs, bands = (
            GroupCosts(flow, hardware, Traffic.ONCE, epilogue=False),
            BandedGroups(flow, hardware, wide=wide),
        )
        for mask in Oracle(graph).legal_groups():
            yield f"seed {seed}, {flow.names(mask)}", rng, costs, bands, mask


def sample(rng: np.random.Generator, candidates: Sequence[Banded], count: int) -> list[Banded]:
    """Some of them."""
    return [candidates[int(k)] for k in rng.permutation(len(candidates))[:count]]


@dataclass
class Tally:
    """What was checked: a test that checks nothing proves nothing."""

    walked: int = 0
    several: int = 0  # groups of several operators
    sliced: int = 0  # with a segment that sums over slices
    streamed: int = 0  # weights passing several times

    def add(self, bands: BandedGroups, mask: int, banded: Banded) -> None:
        self.walked += 1
        self.several += mask & (mask - 1) != 0
        self.sliced += bool(bands.slices.draft(mask, banded.start).summing)
        self.streamed += banded.weight_passes > 1


def walk_groups(drawn_groups: Iterator[Group]) -> Tally:
    """Walk some schedules of every group."""
    tally = Tally()
    for what, rng, costs, bands, mask in drawn_groups:
        for banded in sample(rng, bands.candidates(mask), 2):
            if verify(costs, bands, mask, banded, what, tight=bool(rng.random() < 0.2)):
                tally.add(bands, mask, banded)
    return tally


def test_random_groups_run_within_what_was_planned_and_need_every_row_of_it() -> None:
    tally = walk_groups(groups(random_graph, some(range(40)), 2, 6))
    assert tally.walked > few(400)
    assert tally.several > few(200)
    assert tally.sliced > few(7)
    assert tally.streamed > few(80)


@pytest.mark.slow
def test_larger_random_groups_run_within_what_was_planned_and_need_every_row_of_it() -> None:
    tally = walk_groups(groups(random_graph, range(10_000, 10_400), 2, 8))
    assert tally.walked > 10_000
    assert tally.sliced > 200
    assert tally.streamed > 2000


def test_groups_of_convolutions_run_within_what_was_planned_and_need_every_row_of_it() -> None:
    tally = walk_groups(groups(conv_net, some(range(40)), 2, 6))
    assert tally.walked > few(400)
    assert tally.sliced > few(80)
    assert tally.streamed > few(80)


@pytest.mark.slow
def test_larger_groups_of_convolutions_run_within_what_was_planned_and_need_every_row_of_it() -> None:
    tally = walk_groups(groups(conv_net, range(10_000, 10_200), 3, 8))
    assert tally.walked > 5000
    assert tally.sliced > 1000
    assert tally.streamed > 1000


# -- executed with numbers -----------------------------------------------------------------------------------


def execute_groups(
    make: Callable[[np.random.Generator, int], Graph], seeds: range, least: int, most: int
) -> Tally:
    """Run schedules of every group on values in F_beta bytes of buffer; compare with the reference."""
    tally, before, machine, values = Tally(), None, None, dict[str, np.ndarray]()
    for what, rng, costs, bands, mask in groups(make, seeds, least, most):
        flow, hardware = costs.dataflow, costs.hardware
        if flow is not before:
            before = flow
            inputs = {
                name: rng.standard_normal(flow.graph.shape(name)).astype(np.float32)
                for name in flow.graph.inputs
            }
            try:
                values = inputs | reference(flow.graph, inputs, everything=True)
            except UnsupportedModel:  # an operator that nobody knows
                values = {}
            machine = Machine(flow.graph, hardware, inputs)
        if not values:
            continue
        assert machine is not None
        for banded in sample(rng, bands.candidates(mask), 2):
            places, steps = lower(bands.slices.layout, mask, bands.nest(mask, banded))
            machine.hardware = replace(hardware, buffer_bytes=banded.buffer_bytes + 1)
            for tensor in flow.maps:
                machine.dram[tensor.name], machine.written[tensor.name] = (
                    values[tensor.name],
                    np.ones(tensor.shape, bool),
                )
            names = flow.names(mask)
            group = PlannedGroup(
                0,
                names,
                "brr",
                DramBytes(),
                places,
                steps,
            )
            done = machine.run(group)
            assert done.dram == dram_bytes(steps), what
            assert done.peak_bytes == banded.buffer_bytes, what
            for m in (
                m for i in bits(mask) for m in flow.results[i] if flow.is_output[m] or flow.readers[m] & ~mask
            ):
                name = flow.maps[m].name
                assert machine.written[name].all(), what
                np.testing.assert_allclose(
                    machine.dram[name], values[name], rtol=1e-3, atol=1e-4, err_msg=f"{what} {banded}"
                )
            tally.add(bands, mask, banded)
    return tally


def test_random_groups_give_the_values_of_the_reference() -> None:
    tally = execute_groups(random_graph, some(range(1000, 1040)), 2, 6)
    assert tally.walked > few(300)
    assert tally.several > few(150)


@pytest.mark.slow
def test_larger_groups_give_the_values_of_the_reference() -> None:
    assert execute_groups(random_graph, range(20_000, 20_200), 2, 8).walked > 5000
    assert execute_groups(conv_net, range(20_000, 20_100), 2, 8).sliced > 500


def test_groups_of_convolutions_give_the_values_of_the_reference() -> None:
    tally = execute_groups(conv_net, some(range(1000, 1025)), 2, 6)
    assert tally.walked > few(200)
    assert tally.sliced > few(40)
    assert tally.streamed > few(40)


# -- bounds --------------------------------------------------------------------------------------------------


def check_bounds(drawn_groups: Iterator[Group]) -> int:
    """A part's floor is within its group's need; more buffer never adds bytes of weights."""
    pairs = 0
    for what, rng, _, bands, mask in drawn_groups:
        choices = bands.choices(mask)
        part = 0
        for op in bits(mask):
            part |= 1 << op
            assert bands.floor(part) <= min((choice.buffer_bytes for choice in choices), default=NEVER), (
                f"{what}, grown from {part:b}"
            )
            pairs += bool(choices)
        assert all(
            any(c.weight_bytes <= b.weight_bytes and c.buffer_bytes <= b.buffer_bytes for c in choices)
            for b in bands.candidates(mask)
        ), what
        assert bands.least(mask) == min((b.buffer_bytes for b in bands.candidates(mask)), default=NEVER), what
        moved = [c.weight_bytes for c in choices]
        assert moved == sorted(moved), what
        for size in rng.integers(1, 2 * choices[0].buffer_bytes, 4).tolist() if choices else ():
            cheapest = bands.cheapest(mask, size)
            fitting = [b for b in bands.candidates(mask) if b.buffer_bytes < size]
            assert (cheapest is None) == (not fitting), what
            if cheapest is not None:
                wanted = min((b.weight_bytes, b.buffer_bytes) for b in fitting)
                assert (cheapest.weight_bytes, cheapest.buffer_bytes) == wanted, what
    return pairs


def test_the_floor_bounds_every_group_that_is_grown_and_the_cheapest_choice_is_taken() -> None:
    assert check_bounds(groups(random_graph, some(range(2000, 2060)), 2, 7)) > few(1200)
    assert check_bounds(groups(conv_net, some(range(2000, 2050)), 2, 7)) > few(1200)


@pytest.mark.slow
def test_the_floor_bounds_every_larger_group() -> None:
    assert check_bounds(groups(random_graph, range(30_000, 30_200), 5, 9)) > 20_000
    assert check_bounds(groups(conv_net, range(30_000, 30_200), 5, 9)) > 20_000


def test_groups_with_wide_sums_run_within_what_was_planned() -> None:
    assert walk_groups(groups(conv_net, range(40_000, 40_012), 2, 5, wide=True)).sliced > 20


# -- networks ------------------------------------------------------------------------------------------------


CHIPS = [
    Hardware(128 * 1024, element_bytes=1, bias_bytes=4, dram_row_align=16, channel_align=16),
    Hardware(64 * 1024, element_bytes=1, bias_bytes=4, dram_row_align=32, channel_align=32),
    Hardware(128 * 1024),
]


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("mobilenet_v2", "resnet50", "vgg16")),
        "resnet18",
        "squeezenet1_1",
    ],
)
def test_groups_of_networks_run_within_what_was_planned(name: str) -> None:
    flow = Dataflow.of(simplify(from_model(zoo.build(name, weights=False))))
    rng = np.random.default_rng(0)
    tally = Tally()
    for hardware in CHIPS:
        costs, bands = GroupCosts(flow, hardware, Traffic.ONCE, epilogue=False), BandedGroups(flow, hardware)
        for size in (1, 2, 4, 6, 9):
            for first in rng.integers(0, len(flow) - size, 6).tolist():
                mask = ((1 << size) - 1) << first
                banded = bands.cheapest(mask, hardware.buffer_bytes)
                if banded and connected(flow.neighbours, mask) and not convex_gap(flow, mask):
                    assert banded.buffer_bytes < hardware.buffer_bytes
                    if verify(costs, bands, mask, banded, str(flow.names(mask))):
                        tally.add(bands, mask, banded)
    assert tally.walked > 15
    assert tally.several > 5


def test_squeeze_and_excite_does_not_run_in_bands() -> None:
    flow = Dataflow.of(simplify(from_model(zoo.build("mobilenet_v3_small", weights=False))))
    bands = BandedGroups(flow, Hardware(1 << 30))
    gates = [
        i
        for i in range(len(flow))
        if flow.heights[i] > 1 and any(flow.maps[o.map].rows == 1 for o in flow.operands[i])
    ]
    assert gates
    for i in gates:
        maker = next(flow.producer[o.map] for o in flow.operands[i] if flow.maps[o.map].rows == 1)
        assert bands.floor(1 << maker | 1 << i) == NEVER
        assert bands.cheapest(1 << maker | 1 << i, 1 << 30) is None
        assert bands.cheapest(1 << i, 1 << 30) is not None


def test_a_schedule_that_lacks_a_step_does_not_pass() -> None:
    caught = 0
    for what, rng, costs, bands, mask in groups(conv_net, some(range(40)), 2, 5):
        for banded in sample(rng, bands.candidates(mask), 1):
            places, nodes = lower(bands.slices.layout, mask, bands.nest(mask, banded))
            steps = [*unfold(nodes)]
            full = walk(costs.dataflow, mask, costs.hardware, places, steps)
            at = int(rng.integers(len(steps)))
            try:
                moved = walk(costs.dataflow, mask, costs.hardware, places, [*steps[:at], *steps[at + 1 :]])
            except Spilled:
                caught += 1
                continue
            missing = full.keys() != moved.keys() or any((full[name] != moved[name]).any() for name in full)
            assert missing, f"{what} {banded}: nobody misses {steps[at]}"
            caught += 1
    assert caught > few(200)


# -- Optimus' own formula ------------------------------------------------------------------------------------


def chain(*layers: tuple[str, int, int, int], source: tuple[int, int, int, int]) -> Dataflow:
    """A chain of (type, channels, kernel, stride), no biases; "same" padding for odd kernels, else none."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    shape, name = source, "in"
    for k, (kind, channels, kernel, stride) in enumerate(layers):
        n, c, h, w = shape
        pad = kernel // 2 if kernel % 2 else 0
        shape = (n, channels, *((extent + 2 * pad - kernel) // stride + 1 for extent in (h, w)))
        window: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        if kind == "Relu":
            node = helper.make_node("Relu", [name], [f"t{k}"], name=f"n{k}")
        elif kind == "MaxPool":
            node = helper.make_node("MaxPool", [name], [f"t{k}"], name=f"n{k}", **window)
        else:
            depthwise = kind == "depthwise"
            weight = np.zeros((channels, 1 if depthwise else c, kernel, kernel), np.float32)
            constants.append(onnx.numpy_helper.from_array(weight, f"w{k}"))
            node = helper.make_node(
                "Conv", [name, f"w{k}"], [f"t{k}"], name=f"n{k}", group=c if depthwise else 1, **window
            )
        nodes.append(node)
        name = f"t{k}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, source)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        constants,
    )
    return Dataflow.of(
        from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10))
    )


def test_optimus_two_convolutions() -> None:
    flow = chain(("Conv", 32, 3, 1), ("Conv", 64, 3, 1), source=(1, 8, 16, 10))
    # Not full first: 16 x 3 x 10 of the first layer, 8 x 5 x 10 of its input, 64 x 1 x 10 of the second; a
    # further line takes 160 + 240 + 640. Full first: 32 x 3 x 10 of the first layer, 16 x 1 x 10 of the
    # second; a further line takes 320 + 160.
    assert Optimus(flow).needs(0b11) == ((1520, 1040, False), (1120, 480, True))
    assert paper_bands(flow, 0b11, 1120) is None
    assert paper_bands(flow, 0b11, 1121) == OptimusFigures(
        1120, 480, full_first=True, lines=1, weight_passes=16
    )
    assert paper_bands(flow, 0b11, 2000) == OptimusFigures(
        1120, 480, full_first=True, lines=2, weight_passes=8
    )
    assert paper_bands(flow, 0b11, 1120 + 6 * 480) == OptimusFigures(
        1120, 480, full_first=True, lines=7, weight_passes=3
    )
    weights = 32 * 8 * 9 + 64 * 32 * 9
    assert Optimus(flow).weight_elements(0b11) == weights
    assert paper_bands(flow, 0b11, weights + 1120) == OptimusFigures(
        1120, 480, full_first=True, lines=16, weight_passes=1
    )


def test_optimus_one_convolution() -> None:
    flow = chain(("Conv", 32, 3, 2), source=(1, 8, 16, 10))
    # 8 rows of 5 columns. Not full: 16 x 1 x 5, and 3 rows of the input. Full: 32 x 1 x 5, the input is not
    # held.
    assert Optimus(flow).needs(1) == ((80 + 240, 80 + 240, False), (160, 160, True))
    assert paper_bands(flow, 1, 400) == OptimusFigures(160, 160, full_first=True, lines=2, weight_passes=4)


def test_optimus_strides_and_pools() -> None:
    flow = chain(
        ("Conv", 4, 3, 2), ("Relu", 4, 1, 1), ("MaxPool", 4, 2, 2), ("Conv", 24, 1, 1), source=(1, 3, 32, 32)
    )
    # Rows: 1 of the last layer, 1 of the pool, 2 of Relu and of the first layer (16 columns), (2 - 1) * 2 + 3
    # = 5 of the input. Channels: 4 are fewer than k = 16.
    assert Optimus(flow).needs(0b1111) == (
        (4 * 2 * 16 + 3 * 5 * 32 + 24 * 8, 4 * 2 * 16 + 3 * 5 * 32 + 24 * 8, False),
        (128 + 16 * 8, 128 + 16 * 8, True),
    )
    assert Optimus(flow, channels=2).needs(0b1111)[1] == (128 + 2 * 8, 128 + 2 * 8, True)


def test_optimus_depthwise_convolutions_take_no_buffer_and_keep_the_kind_of_what_they_read() -> None:
    flow = chain(("Conv", 48, 1, 1), ("depthwise", 48, 3, 1), ("Conv", 8, 1, 1), source=(1, 8, 14, 14))
    # Rows: 1, 1, 3, and 3 of the input. Not full first: 16 x 3 x 14 + 8 x 3 x 14 + 8 x 14. Full first: 48 x 3
    # x 14 + 8 x 14 (8 are fewer than k).
    assert Optimus(flow).needs(0b111) == (
        (672 + 336 + 112, 224 + 112 + 112, False),
        (2016 + 112, 672 + 112, True),
    )


def test_optimus_knows_no_group_of_several_that_starts_with_a_local_layer() -> None:
    flow = chain(("Conv", 8, 1, 1), ("Relu", 8, 1, 1), ("Conv", 8, 1, 1), source=(1, 8, 8, 8))
    assert paper_bands(flow, 0b110, 1 << 40) is None
    assert Optimus(flow).floor(0b110) == optimus.NEVER
    costs = OptimusCosts(flow, Hardware(1 << 20))
    assert isinstance(costs.evaluate(0b110), DoesNotFit)
    assert costs.evaluate(0b010) == Cost(2 * 8 * 8 * 8 * 2, 0, "tiled")


def test_optimus_images_of_a_batch_pass_together_when_lines_are_left_over() -> None:
    flow = chain(("Conv", 16, 1, 1), source=(4, 16, 4, 4))
    least, line, full = Optimus(flow).needs(1)[1]
    assert (least, line, full) == (64, 64, True)
    assert paper_bands(flow, 1, least + 2 * line) == OptimusFigures(
        64, 64, full_first=True, lines=3, weight_passes=6
    )
    assert (
        paper_bands(flow, 1, least + 3 * line)
        == OptimusFigures(64, 64, full_first=True, lines=4, weight_passes=4)
        or least + 3 * line >= 256 + 64
    )


def test_optimus_costs_are_those_of_the_formula_and_the_exact_search_finds_the_optimum() -> None:
    tried = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = conv_net(rng, int(rng.integers(3, 7)))
        flow = Dataflow.of(graph)
        hardware = Hardware(int(rng.integers(20, 3000)))
        once, model = GroupCosts(flow, Hardware(1 << 40), Traffic.ONCE, epilogue=False), Optimus(flow, 2)
        costs = OptimusCosts(flow, hardware, channels=2)

        def price(
            mask: int, once: GroupCosts = once, model: Optimus = model, hardware: Hardware = hardware
        ) -> int | None:
            fused, moved = model.fuse(mask, hardware.buffer_bytes // 2), once.dram(mask)
            if fused is None:
                return moved.total if mask & (mask - 1) == 0 else None
            return moved.input + moved.output + fused.weight_passes * moved.weight

        oracle = Oracle(graph)
        for mask in oracle.legal_groups():
            part, cost, wanted = 0, costs.evaluate(mask), price(mask)
            assert (cost.dram_bytes if isinstance(cost, Cost) else None) == wanted
            for op in bits(mask):
                part |= 1 << op
                assert model.floor(part) <= min(
                    (least for least, _, _ in model.needs(mask)), default=optimus.NEVER
                )
        best = solve(costs)
        assert best.proof == "optimal"
        assert best.dram_bytes == oracle.least(price)[0], f"seed {seed}"
        tried += len(best.groups) < len(flow)
    assert tried > 20


@pytest.mark.parametrize("buffer_bytes", [5 << 10, 8 << 10])
def test_a_contraction_sums_over_slices_of_a_pooled_map_that_it_reads_as_a_vector(buffer_bytes: int) -> None:
    net = Net("classifier", seed=0, weights=True)
    image = net.image((1, 256, 3, 3))
    pooled = net.mean("pool", net.conv("pw", image, 64, 1, act="relu6"))
    logits = net.dense("logits", net.flatten("flatten", pooled), 2)
    model = net.model(image, logits, "classifier")
    planned = api.search(model, buffer=buffer_bytes, scheme="brr", objective="bytes")
    sums = [
        step for step in unfold(planned.plan.groups[-1].steps) if isinstance(step, Compute) and step.inputs
    ]
    assert bool(sums) == (buffer_bytes == 8 << 10)
    executed = api.execute(planned)  # raises where a step reads what is not on chip
    assert executed.dram.total == planned.plan.totals.dram_bytes
