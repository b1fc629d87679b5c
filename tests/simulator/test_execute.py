"""Executing a plan: what is counted, what is refused, and one clear error for what cannot run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lfopt.frontend import from_model
from lfopt.ir import (
    Compute,
    DramBytes,
    Graph,
    Hardware,
    InvalidPlan,
    MissingValues,
    Place,
    Plan,
    PlannedGroup,
    Step,
    Transfer,
    unfold,
    whole,
)
from lfopt.ir.listing import listing, parse
from lfopt.ops import OPAQUE, Dataflow
from lfopt.ops.on_chip import NotOnChip
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts
from simulator.interpreter.buffer import Buffer, Overrun
from simulator.interpreter.execute import Violation, execute
from tests.agreement import differing
from tests.cases import few, some
from tests.random_plans import SCHEMES, computable, planned, random_inputs, random_scheme
from tests.strategies import random_graph, random_hardware
from tests.test_tiny import MAP, WEIGHTS, residual_block

# -- a block by hand -----------------------------------------------------------------------------------------

BUFFER = 1 << 14


def block(groups: tuple[int, ...] = (0b1111,), **hardware: int) -> tuple[Graph, Plan, dict[str, np.ndarray]]:
    """conv1, relu, conv2, add of the residual block in these groups, under line buffers."""
    graph = from_model(residual_block())
    costs = GroupCosts(Dataflow.of(graph), Hardware(BUFFER, **hardware), epilogue=False)  # type: ignore[arg-type]
    return graph, planned(costs, groups), random_inputs(graph, np.random.default_rng(0))


def with_steps(plan: Plan, change: Callable[[list[Step]], list[Step]], **group: object) -> Plan:
    """The plan with its first group's steps changed."""
    first = plan.groups[0]
    steps = tuple(change(list(unfold(first.steps))))
    return replace(plan, groups=(replace(first, steps=steps, **group), *plan.groups[1:]))


def test_a_fused_block_moves_its_ends_and_its_weights() -> None:
    graph, plan, inputs = block()
    done = execute(plan, graph, inputs)
    assert done.dram == DramBytes(input=MAP, output=MAP, weight=2 * WEIGHTS)
    assert done.loaded == {"x": MAP, "w1": WEIGHTS, "w2": WEIGHTS}
    assert done.stored == {"y": MAP}
    (group,) = done.groups
    assert group.peak_bytes == group.touched_bytes == plan.groups[0].allocated_bytes(plan.hardware)
    assert not group.by_formula
    assert differing(done.outputs, reference(graph, inputs)) == []


def test_in_two_groups_what_is_between_them_goes_out_and_comes_back() -> None:
    graph, plan, inputs = block((0b0011, 0b1100))
    done = execute(plan, graph, inputs)
    assert [group.dram for group in done.groups] == [
        DramBytes(input=MAP, output=MAP, weight=WEIGHTS),
        DramBytes(input=2 * MAP, output=MAP, weight=WEIGHTS),
    ]
    assert done.stored == {"b": MAP, "y": MAP}


def test_padding_of_rows_in_dram_is_counted() -> None:
    """8 rows of 4 x 8 elements of 2 bytes: 64 bytes a row, 128 where rows begin at multiples of 128."""
    graph, plan, inputs = block(dram_row_align=128)
    assert execute(plan, graph, inputs).dram == DramBytes(input=8 * 128, output=8 * 128, weight=2 * WEIGHTS)


def test_inputs_are_left_as_they_were() -> None:
    graph, plan, inputs = block()
    before = {name: value.copy() for name, value in inputs.items()}
    for value in inputs.values():
        value.setflags(write=False)
    execute(plan, graph, inputs)
    assert all(np.array_equal(inputs[name], value) for name, value in before.items())


def test_progress_is_told_group_by_group() -> None:
    graph, plan, inputs = block((1, 2, 4, 8))
    told: list[tuple[int, int]] = []
    execute(plan, graph, inputs, lambda done, of: told.append((done, of)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


# -- what is refused -----------------------------------------------------------------------------------------


def is_load(step: Step, name: str) -> bool:
    return isinstance(step, Transfer) and not step.store and step.tensor == name


def drop(pick: Callable[[Step], bool]) -> Callable[[list[Step]], list[Step]]:
    def change(steps: list[Step]) -> list[Step]:
        k = next(k for k, step in enumerate(steps) if pick(step))
        return steps[:k] + steps[k + 1 :]

    return change


def swap(pick: Callable[[Step], bool], **changes: object) -> Callable[[list[Step]], list[Step]]:
    def change(steps: list[Step]) -> list[Step]:
        k = next(k for k, step in enumerate(steps) if pick(step))
        return [*steps[:k], replace(steps[k], **changes), *steps[k + 1 :]]

    return change


def computes(name: str) -> Callable[[Step], bool]:
    return lambda step: isinstance(step, Compute) and step.operator == name


def stores(step: Step) -> bool:
    return isinstance(step, Transfer) and step.store


WRONG: dict[str, tuple[Callable[[list[Step]], list[Step]], str]] = {
    "a row that was not loaded": (
        drop(lambda s: is_load(s, "x")),
        r"group 0, step \d+ \(compute 'conv1' .*\): row 0 of 'x' is not on chip",
    ),
    "weights that were not loaded": (drop(lambda s: is_load(s, "w1")), r"constant 'w1' .* is not on chip"),
    "a row that was not computed": (drop(computes("conv1")), r"row 0 of 'a' is not on chip"),
    "a row that was not stored": (drop(stores), r"output 'y': 32 of its elements were never stored"),
    "storing what is not there": (
        lambda steps: [*steps[-1:], *steps],
        r"step 1 \(store 'y' .*\): row 7 of 'y' is not on chip",
    ),
    "a place that there is not": (swap(computes("relu"), places=(99,)), r"there is no place 99"),
    "an operator of no group": (
        swap(computes("relu"), operator="nobody"),
        r"node 'nobody' is not in the group",
    ),
    "a tensor of no network": (
        swap(lambda s: is_load(s, "x"), tensor="nothing"),
        r"'nothing' is no tensor of the network",
    ),
    "a map that nobody has made": (
        swap(lambda s: is_load(s, "x"), tensor="a"),
        r"'a' is loaded, and part of it was never stored",
    ),
    "a box beyond the map": (
        swap(lambda s: is_load(s, "x"), box=((0, 1), (0, 4), (7, 9), (0, 8))),
        r"box \[0:1, 0:4, 7:9, 0:8\] is not in 'x'",
    ),
    "a box of too few axes": (swap(stores, box=((0, 1), (0, 4))), r"box \[0:1, 0:4\] is not in 'y'"),
    "a box inside out": (swap(computes("relu"), boxes=(((0, 1), (0, 4), (3, 1), (0, 8)),)), r"is not in 'b'"),
    "two boxes for one result": (
        swap(computes("relu"), boxes=(whole((1, 4, 8, 8)),) * 2),
        r"2 boxes and 1 places, for 1 results",
    ),
    "sums of an operator that has none": (
        swap(computes("relu"), last=False, accumulator=0),
        r"no partial sums",
    ),
    "sums that nobody began": (
        swap(computes("conv1"), first=False, inputs=(0, 4)),
        r"row 0 of 'sums of a' is not on chip",
    ),
    "sums nowhere": (swap(computes("conv1"), last=False, inputs=(0, 4)), r"there is no place -1"),
    "input channels inside out": (swap(computes("conv1"), inputs=(3, 1)), r"no input channels 3:1"),
    "input channels that there are not": (swap(computes("conv1"), inputs=(4, 8)), r"is not on chip"),
    "a gather that gathers nothing": (
        swap(lambda s: is_load(s, "x"), gather="conv1"),
        r"'conv1' does not gather 'x'",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_step_that_cannot_be_is_refused_with_its_place_and_the_reason(what: str) -> None:
    graph, plan, inputs = block()
    execute(plan, graph, inputs)
    change, message = WRONG[what]
    with pytest.raises(Violation, match=message):
        execute(with_steps(plan, change), graph, inputs)


@pytest.mark.parametrize(
    ("field", "value"),
    [("slots", 0), ("slots", -1), ("address", -1), ("address", BUFFER), ("slot_bytes", -1)],
)
def test_a_place_that_cannot_be_is_refused(field: str, value: int) -> None:
    graph, plan, inputs = block()
    places = (replace(plan.groups[0].places[0], **{field: value}), *plan.groups[0].places[1:])
    with pytest.raises(Violation, match="group 0: place 'w1' takes bytes"):
        execute(with_steps(plan, list, places=places), graph, inputs)


def test_the_last_byte_of_the_buffer_stays_free() -> None:
    """F_beta < beta is strict."""
    graph, plan, inputs = block()
    for buffer_bytes, fits in (
        (plan.groups[0].allocated_bytes(plan.hardware) + 1, True),
        (plan.groups[0].allocated_bytes(plan.hardware), False),
    ):
        smaller = replace(plan, hardware=replace(plan.hardware, buffer_bytes=buffer_bytes))
        if fits:
            execute(smaller, graph, inputs)
        else:
            with pytest.raises(Violation, match="the buffer has"):
                execute(smaller, graph, inputs)


def test_a_map_laid_over_another_is_noticed_or_does_no_harm() -> None:
    """Maps may share a place where the row below is used up (c, when y is written); else the run stops."""
    graph, plan, inputs = block()
    wanted, ran, stopped = reference(graph, inputs), list[tuple[str, str]](), 0
    for k, place in enumerate(plan.groups[0].places):
        for other in plan.groups[0].places:
            places = [*plan.groups[0].places]
            places[k] = replace(place, address=other.address)
            try:
                assert (
                    differing(
                        execute(with_steps(plan, list, places=tuple(places)), graph, inputs).outputs, wanted
                    )
                    == []
                )
                ran += [(place.name, other.name)] * (place != other)
            except Violation:
                stopped += 1
    assert {frozenset(pair) for pair in ran} <= {frozenset(pair) for pair in ("ac", "ay", "cy", "ab")}
    assert stopped > 20


def test_inputs_and_weights_that_are_not_those_of_the_network_are_refused() -> None:
    graph, plan, inputs = block()
    x = inputs["x"]
    for wrong in ({}, {"x": x[:, :, :4]}, {"x": x.astype(np.float64)}, {"y": x}):
        with pytest.raises(
            InvalidPlan,
            match=r"input 'x': found (nothing|float\d\d \[.*\]); accepted: float32 \[1, 4, 8, 8\]",
        ):
            execute(plan, graph, wrong)
    with pytest.raises(MissingValues, match=r"constant 'w2' .* needs weights"):
        execute(plan, replace(graph, constants={**graph.constants, "w2": None}), inputs)


def test_a_plan_of_another_network_is_refused() -> None:
    graph, plan, inputs = block()
    other = replace(plan, groups=(replace(plan.groups[0], nodes=("conv1", "nobody")),))
    with pytest.raises(InvalidPlan, match="group 0: node 'nobody' is not in the model"):
        execute(other, graph, inputs)


def test_a_group_without_steps_runs_outside_the_buffer_and_counts_nothing() -> None:
    graph, plan, inputs = block((0b0011, 0b1100))
    bare = replace(
        plan,
        groups=(replace(plan.groups[0], steps=(), places=(), unexecutable="for the test"), plan.groups[1]),
    )
    done = execute(bare, graph, inputs)
    assert [group.by_formula for group in done.groups] == [True, False]
    assert done.groups[0].dram == DramBytes()
    assert done.dram == done.groups[1].dram
    assert differing(done.outputs, reference(graph, inputs)) == []


def damaged(lines: list[str], graph: Graph, rng: np.random.Generator) -> list[str]:
    """One line of a listing with another number, name, rank or part."""
    k = int(rng.integers(len(lines)))
    line, operators = lines[k], [op.name for op in graph.operators]
    number = list(re.finditer(r"\d+", line))
    match int(rng.integers(7)):
        case 0 | 1 if number:
            match = number[int(rng.integers(len(number)))]
            new = rng.choice([0, 1, 2, 3, 7, 100, int(match[0]) + 1, max(int(match[0]) - 1, 0)])
            line = f"{line[: match.start()]}{new}{line[match.end() :]}"
        case 2:
            line = re.sub(r"(load|store) [^\[]+", lambda m: f"{m[1]} {rng.choice([*graph.tensors])}", line)
        case 3:
            line = re.sub(r"compute \S+", f"compute {rng.choice(operators)}", line)
        case 4:
            line = (
                re.sub(r", \d+:\d+\]", "]", line, count=1)
                if rng.random() < 0.5
                else line.replace("]", "] [0:1]", 1)
            )
        case 5:
            line = re.sub(
                r"( by|$)",
                f" in 0:1 sums 0:{rng.choice(['first', 'more', 'last', 'only'])}\\1",
                line,
                count=1,
            )
        case _:
            line = f"{line} gather {rng.choice(operators)}" if rng.random() < 0.5 else f"{line} 0"
    return [*lines[:k], line, *lines[k + 1 :]]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_damaged_plan_runs_or_is_refused_and_nothing_else(scheme: str) -> None:
    outcomes: Counter[str] = Counter()
    for seed in some(range(60)):
        rng = np.random.default_rng((seed, 5))
        graph = computable(random_graph(rng, int(rng.integers(1, 7))))
        costs = GroupCosts(Dataflow.of(graph), random_hardware(rng, graph), scheme=scheme)  # type: ignore[arg-type]
        plan, inputs = planned(costs, random_scheme(costs, seed)), random_inputs(graph, rng)
        for _ in range(6):
            k = int(rng.integers(len(plan.groups)))
            group: PlannedGroup = plan.groups[k]
            if not group.steps:
                continue
            lines = damaged(
                list(listing(tuple(unfold(group.steps)) if rng.random() < 0.5 else group.steps)), graph, rng
            )
            try:
                steps = parse(lines)
                execute(
                    replace(
                        plan, groups=(*plan.groups[:k], replace(group, steps=steps), *plan.groups[k + 1 :])
                    ),
                    graph,
                    inputs,
                )
                outcomes["ran"] += 1
            except InvalidPlan:
                outcomes["refused"] += 1
    assert outcomes["refused"] > few(80)


# -- the buffer ----------------------------------------------------------------------------------------------

SHAPE = (1, 2, 8, 3)  # 8 rows of 2 x 3 elements of 2 bytes: 12 bytes each


def rows(start: int, stop: int) -> tuple[tuple[int, int], ...]:
    return ((0, 1), (0, 2), (start, stop), (0, 3))


def values(box: tuple[tuple[int, int], ...]) -> np.ndarray:
    return np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)[tuple(slice(*span) for span in box)]


def ring(slots: int, slot_bytes: int = 12, size: int = 1000, **hardware: Any) -> Buffer:
    return Buffer(
        Hardware(size, **hardware),
        (Place("x", "map", 100, slots, slot_bytes), Place("y", "map", 100 + slots * slot_bytes, 1, 12)),
    )


def test_a_ring_holds_its_last_rows() -> None:
    buffer = ring(3)
    for row in range(8):
        buffer.write_rows("x", SHAPE, rows(row, row + 1), values(rows(row, row + 1)), 0, row)
        held = rows(max(row - 2, 0), row + 1)
        assert np.array_equal(buffer.read_rows("x", held), values(held))
        if row >= 3:
            with pytest.raises(NotOnChip, match=f"row {row - 3} of 'x'"):
                buffer.read_rows("x", rows(row - 3, row + 1))
    assert (buffer.peak_bytes, buffer.touched_bytes) == (136, 36)


def test_of_a_row_in_two_places_the_one_that_came_last_is_read() -> None:
    """Two rows come to one place, then the second to another, then to the first again."""
    buffer = ring(3)
    buffer.write_rows("x", SHAPE, rows(0, 2), values(rows(0, 2)), 0, 0)
    buffer.write_rows("x", SHAPE, rows(1, 2), -values(rows(1, 2)), 1, 0)
    assert np.array_equal(buffer.read_rows("x", rows(0, 2)), values(rows(0, 2)) * np.array([1, -1])[:, None])
    buffer.write_rows("x", SHAPE, rows(1, 2), 2 * values(rows(1, 2)), 0, 2)  # in a slot of its own
    assert np.array_equal(buffer.read_rows("x", rows(0, 2)), values(rows(0, 2)) * np.array([1, 2])[:, None])
    buffer.write_rows("y", SHAPE, rows(0, 3), values(rows(0, 3)), 0, 0)
    assert np.array_equal(buffer.read_rows("x", rows(1, 2)), -values(rows(1, 2)))
    with pytest.raises(NotOnChip, match="row 0 of 'x'"):
        buffer.read_rows("x", rows(0, 2))


def test_parts_of_a_row_come_one_by_one_and_only_what_came_can_be_read() -> None:
    buffer = ring(1)
    left, right = ((0, 1), (0, 2), (0, 1), (0, 2)), ((0, 1), (0, 2), (0, 1), (2, 3))
    buffer.write_rows("x", SHAPE, left, values(left), 0, 0)
    assert np.array_equal(buffer.read_rows("x", left), values(left))
    with pytest.raises(NotOnChip):
        buffer.read_rows("x", rows(0, 1))
    buffer.write_rows("x", SHAPE, right, values(right), 0, 0)
    assert np.array_equal(buffer.read_rows("x", rows(0, 1)), values(rows(0, 1)))


def test_a_slot_too_small_for_a_row_takes_a_part_of_it() -> None:
    buffer = ring(1, slot_bytes=8)
    part = ((0, 1), (0, 2), (0, 1), (0, 2))
    buffer.write_rows("x", SHAPE, part, values(part), 0, 0)
    assert np.array_equal(buffer.read_rows("x", part), values(part))
    with pytest.raises(Overrun, match="12 bytes at offset 0 overrun a slot of 8 bytes"):
        buffer.write_rows("x", SHAPE, rows(0, 1), values(rows(0, 1)), 0, 0)


def test_channels_are_padded_on_chip() -> None:
    buffer = ring(1, slot_bytes=23, channel_align=4)
    with pytest.raises(Overrun, match="24 bytes"):
        buffer.write_rows("x", SHAPE, rows(0, 1), values(rows(0, 1)), 0, 0)


def test_sums_take_the_bytes_of_accumulators() -> None:
    buffer = ring(1, slot_bytes=24)
    buffer.write_rows("sums", SHAPE, rows(0, 1), values(rows(0, 1)), 0, 0, sums=True)
    assert buffer.touched_bytes == 24
    with pytest.raises(Overrun, match="24 bytes"):
        ring(1, slot_bytes=23).write_rows("sums", SHAPE, rows(0, 1), values(rows(0, 1)), 0, 0, sums=True)


def test_what_is_written_over_even_by_one_byte_is_gone() -> None:
    buffer = Buffer(Hardware(1000), (Place("x", "map", 0, 2, 12), Place("w", "weight", 23, 1, 8)))
    buffer.write_rows("x", SHAPE, rows(0, 2), values(rows(0, 2)), 0, 0)
    buffer.write_block("w", ((0, 4),), np.zeros(4), 8, 1, 0, 0)
    assert np.array_equal(buffer.read_rows("x", rows(0, 1)), values(rows(0, 1)))
    with pytest.raises(NotOnChip, match="row 1 of 'x'"):
        buffer.read_rows("x", rows(0, 2))
    buffer.write_rows("x", SHAPE, rows(1, 2), values(rows(1, 2)), 0, 1)
    with pytest.raises(NotOnChip, match="constant 'w'"):
        buffer.read_block("w", ((0, 1),))


def test_blocks_share_a_slot_by_offset_and_parts_of_them_can_be_read() -> None:
    buffer = Buffer(Hardware(1000), (Place("weights", "weight", 0, 2, 12),))
    buffer.write_block("w", ((4, 8),), np.arange(4), 8, 0, 3, 0)
    buffer.write_block("b", ((4, 6),), np.arange(2), 4, 0, 3, 8)
    assert np.array_equal(buffer.read_block("w", ((5, 7),)), [1, 2])
    assert np.array_equal(buffer.read_block("b", ((4, 6),)), [0, 1])
    with pytest.raises(NotOnChip):
        buffer.read_block("w", ((3, 5),))
    with pytest.raises(Overrun, match="8 bytes at offset 8"):
        buffer.write_block("w", ((0, 4),), np.arange(4), 8, 0, 0, 8)
    assert (buffer.peak_bytes, buffer.touched_bytes) == (24, 12)


def test_a_view_that_mixes_rows_is_read_from_all_of_them() -> None:
    """t0 [1, c, h, w] is read as [1, c, w, h]: only once all rows are there."""
    mixing = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        graph = computable(random_graph(rng, 4))
        reshapes = [
            op
            for op in graph.operators
            if op.kind == "Reshape" and graph.shape(op.inputs[0])[2:] != graph.shape(op.outputs[0])[2:]
        ]
        if not reshapes:
            continue
        costs = GroupCosts(Dataflow.of(graph), Hardware(1 << 20))
        if any(row is OPAQUE for row in costs.dataflow.specs):
            continue
        plan, inputs = planned(costs, (costs.dataflow.everything,)), random_inputs(graph, rng)
        assert plan.groups[0].mode == "lbdf"
        assert differing(execute(plan, graph, inputs).outputs, reference(graph, inputs)) == []
        mixing += 1
    assert mixing > 20
