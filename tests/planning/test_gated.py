"""Mode `gated`: a map waits for its own reductions, in two phases; part of it stays, the rest is spilled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.ir import (
    Graph,
    Hardware,
    Loop,
    Node,
    Plan,
    PlannedGroup,
    Transfer,
    computations,
    dram_bytes,
)
from lfopt.ops import Dataflow
from lfopt.ops.flight import in_flight
from lfopt.ops.reference import reference
from lfopt.planning import NEVER, GroupCosts, totals_of
from lfopt.planning.gated.choices import Choices
from lfopt.planning.gated.sizes import GatedChoice, Sizes
from lfopt.planning.modes.passes import GatedMode
from lfopt.planning.plans.drafts import executable
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from simulator.recount import recount
from tests.accelerator import accelerator_hardware
from tests.agreement import disagreements
from tests.cases import few, some
from tests.codegen.counting import disagreement
from tests.codegen.streams import disagreement as emulated
from tests.following import follow
from tests.planning.alterations import (
    CAUGHT_BY,
    Stage,
    altered_steps,
    rings_with_a_row_less,
    stages,
    verdict,
    with_place,
)
from tests.planning.written_nests import altered, check_read_back, refusal
from tests.random_plans import Values, in_integers, planned, random_inputs
from tests.strategies import inverted_residual, random_gate, random_hardware


class Case(NamedTuple):
    """A random network with a group in mode gated, and a buffer that keeps none, all or some of its map."""

    graph: Graph
    inputs: Values
    costs: GroupCosts
    groups: tuple[int, ...]
    plan: Plan
    group: PlannedGroup
    choices: Choices
    choice: GatedChoice

    @property
    def sizes(self) -> Sizes:
        return self.choices.sizes

    @property
    def kinds(self) -> set[str]:
        """What is special of it."""
        option, sizes, kept = self.choice.option, self.sizes, self.choice.kept
        return {
            "all kept" if kept == sizes.channels else "none kept" if kept == 0 else "some kept",
            "head" if sizes.block.head else "no head" if sizes.inside else "map from outside",
            "tail" if sizes.block.tail >= 0 else "no tail",
            "weights held" if option.held else "weights in blocks",
            *(["input stays"] if option.stays else ["input again"] if sizes.input in sizes.beside else []),
            *(["parts"] if option.part < sizes.outputs else []),
            *(["bands"] if option.band < sizes.rows_out else []),
            *([] if sizes.in_step else ["windows"]),
            *(["made again"] if option.again else []),
            *(["flights"] if any(step.then for step in computations(self.group.steps)) else []),
            *(["aligned"] if self.plan.hardware.dram_row_align > 1 else []),
        }


@cache
def case(seed: int, *, integers: bool = False) -> Case | None:
    """None where there is no such group, or the other groups of the network have no steps."""
    rng = np.random.default_rng(seed)
    graph = random_gate(rng)
    inputs = random_inputs(graph, rng)
    if integers:
        graph, inputs = in_integers(graph, inputs, rng)
    hardware = replace(random_hardware(rng, graph), mac_columns=int(rng.choice([1, 2, 4, 16])))
    if rng.random() < 0.1:
        hardware = replace(hardware, dram_row_align=16, channel_align=16, constant_align=16)
    costs = GroupCosts.of(graph, hardware, scheme="all")
    mode = gated(costs)
    groups = [
        mask
        for block in mode.gates.blocks
        for mask in block.groups
        if mode.need(mask) < NEVER and costs.groups.parameters_fit(mask)
    ]
    if not groups:
        return None
    mask = max(groups) if rng.random() < 0.6 else int(rng.choice(groups))
    (m,) = {block.map for block in mode.gates.blocks if mask in block.groups}
    costs = costs.at(mode.need(mask) + 1 + int(rng.random() * 1.2 * costs.groups.map_bytes[m]))
    # mode gated is taken, whatever other modes would move
    costs._prices[mask] = gated(costs).price(mask, costs.hardware.buffer_bytes, 0)
    scheme = executable(
        costs.dataflow, (*(1 << i for i in range(len(costs.dataflow)) if not mask >> i & 1), mask)
    )
    plan = planned(costs, scheme)
    if not all(group.steps for group in plan.groups):
        return None
    return _found(graph, inputs, costs, scheme, plan, mask)


def _found(
    graph: Graph, inputs: Values, costs: GroupCosts, scheme: tuple[int, ...], plan: Plan, mask: int
) -> Case:
    beta = costs.hardware.buffer_bytes
    choices = gated(costs).choices(mask)
    cheapest = gated(costs).cheapest(mask, beta)
    assert choices is not None and cheapest is not None
    _, choice = gated(costs)._widened(mask, beta, cheapest)
    plan = replace(plan, totals=totals_of(costs.unfused(), plan.groups, costs.least_bytes))
    return Case(graph, inputs, costs, scheme, plan, plan.groups[scheme.index(mask)], choices, choice)


@cache
def remaking(
    parts: int, chip: Hardware, channels: int = 32, *, skip: bool = True, integers: bool = False
) -> Case:
    """`channels` to 96 and back, 10 x 10 pixels, on the least buffer that recomputes in `parts` parts.

    Some slices are kept, the others are made again.
    """
    rng = np.random.default_rng(1)
    graph = inverted_residual(rng, channels, 96, 10, skip=skip)
    inputs = random_inputs(graph, rng)
    if integers:
        graph, inputs = in_integers(graph, inputs, rng)
    costs = GroupCosts.of(graph, chip, scheme="all")
    every = costs.dataflow.everything
    for beta in range(gated(costs).need(every) // 512 * 512 + 512, 1 << 17, 512):
        choice = gated(costs).cheapest(every, beta)
        if (
            choice is not None
            and choice.option.again
            and choice.kept
            and choice.option.part * parts == channels
        ):
            costs = costs.at(beta)
            costs._prices[every] = gated(costs).price(every, beta, 0)
            return _found(graph, inputs, costs, (every,), planned(costs, (every,)), every)
    raise AssertionError(f"it never makes slices again {parts} times")


CHIP = Hardware(1 << 16, element_bytes=2, mac_columns=4, parameter_store_bytes=1 << 20)


def gated(costs: GroupCosts) -> GatedMode:
    mode = costs.modes["gated"]
    assert isinstance(mode, GatedMode)
    return mode


def cases(seeds: range, *, integers: bool = False) -> list[Case]:
    return [drawn for seed in seeds if (drawn := case(seed, integers=integers)) is not None]


# -- one truth -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("integers", [False, True])
def test_a_block_moves_what_was_priced_and_comes_out_the_same(*, integers: bool) -> None:
    kinds: Counter[str] = Counter()
    for block in cases(range(45), integers=integers):
        done = execute(block.plan, block.graph, block.inputs)
        assert not disagreements(
            block.costs, block.groups, block.plan, done, reference(block.graph, block.inputs)
        )
        assert not recount(block.graph, block.plan).discrepancies
        kinds.update(block.kinds)
    everything = (
        "made again,all kept,none kept,some kept,head,no head,map from outside,tail,no "
        "tail,weights held,weights in blocks,input stays,input again"
    )
    assert all(
        kinds[kind] for kind in (*everything.split(","), "parts", "bands", "windows", "flights", "aligned")
    ), kinds


@pytest.mark.parametrize("integers", [False, True])
def test_c_counts_the_same_bytes(tmp_path: Path, *, integers: bool) -> None:
    wanted = {"some kept", "tail", "head"}
    wide = [case for case in cases(range(45), integers=integers) if case.kinds >= wanted][:2]
    assert wide
    for number, case in enumerate(wide):
        assert not disagreement(case.plan, case.graph, case.inputs, tmp_path / str(number))


@pytest.mark.parametrize(("parts", "skip"), [(1, True), (2, False)])
def test_what_is_not_kept_is_made_again(parts: int, tmp_path: Path, *, skip: bool) -> None:
    for integers in (False, True):
        block = remaking(parts, CHIP, skip=skip, integers=integers)
        done = execute(block.plan, block.graph, block.inputs)
        assert not disagreements(
            block.costs, block.groups, block.plan, done, reference(block.graph, block.inputs)
        )
        assert not recount(block.graph, block.plan).discrepancies
        assert not disagreement(block.plan, block.graph, block.inputs, tmp_path / str(integers))


@pytest.mark.parametrize(("parts", "channels"), [(1, 16), (2, 32)])
def test_the_accelerator_makes_slices_again(parts: int, channels: int) -> None:
    block = remaking(parts, accelerator_hardware(1 << 16), channels, integers=True)
    assert not emulated(block.plan, block.graph, block.inputs, parts)


def test_what_making_slices_again_takes_and_moves() -> None:
    """32 to 96 to 32 channels, 3 x 3, 10 x 10 pixels, with biases, two bytes each; sums have four."""
    block = remaking(2, CHIP)
    (group,), gone, flow = block.plan.groups, 96 - block.choice.kept, block.costs.dataflow
    elements = [weight.elements for i in block.sizes.block.ahead for weight in flow.weights[i]]
    assert sum(elements) >= 96 * (32 + 9)
    assert (group.spilled, group.dram.spill) == ((), 0)
    assert (
        group.dram.total
        == block.costs.groups.once(block.groups[0]).total + 2 * 2 * sum(elements) * gone // 96
    )
    assert block.choice.macs == 2 * gone * 100 * (32 + 9) == simulate(block.plan, block.graph).recomputed_macs


def test_no_more_is_made_again_than_is_allowed() -> None:
    block = remaking(2, CHIP)
    own, beta = sum(block.costs.dataflow.macs), block.costs.hardware.buffer_bytes
    most = own + block.choice.macs
    allowed = most / own
    assert not recount(block.graph, replace(block.plan, max_recompute=allowed)).discrepancies
    assert any(
        "max_recompute" in line
        for line in recount(block.graph, replace(block.plan, max_recompute=allowed - 1 / own)).discrepancies
    )
    same, less, none = (Choices(block.sizes, macs).cheapest(beta) for macs in (most, most - 1, own))
    assert same is not None and less is not None and none is not None
    assert same.dram == block.choice.dram
    assert less.macs < same.macs and less.dram.total > same.dram.total
    assert none.macs == 0 and not none.option.again


def test_of_all_ways_the_one_that_moves_the_fewest_bytes_is_taken() -> None:
    """All options, widths of slices and numbers of kept channels are tried.

    Where some are kept, slices are as wide as that needs.
    """
    for block in [*cases(range(8)), remaking(2, CHIP)]:
        sizes, choices, beta = block.sizes, block.choices, block.costs.hardware.buffer_bytes
        traffic = choices.traffic
        best: list[tuple[int, int]] = []
        for option, width, kept in product(choices.options, sizes.widths, range(sizes.channels + 1)):
            step = width if choices._rounded else sizes.hardware.channel_align
            if (
                (kept and kept < sizes.channels and width < choices.full_width)
                or kept % step
                and kept < sizes.channels
                or (option.again and kept == sizes.channels)
            ):
                continue
            wide = min(width, max(kept, sizes.channels - kept))
            fits = any(sizes.buffer_bytes(option, wide, kept, (rows, 1)) < beta for rows in (1, sizes.height))
            if fits and traffic.macs_again(option, kept) <= choices.spare_macs:
                best.append(
                    (
                        traffic.dram(option, wide, kept, sizes.widths[0]).total,
                        traffic.macs_again(option, kept),
                    )
                )
        choice = choices.cheapest(beta)
        assert choice is not None
        assert (choice.dram.total, choice.macs) == min(best)


def test_the_passes_of_a_group_are_read_back() -> None:
    for block in [*cases(some(range(60))), remaking(1, CHIP), remaking(2, CHIP, skip=False)]:
        check_read_back(block.costs, block.group, block.choice.dram)


def test_altered_passes_are_refused_by_line_or_move_what_they_are_priced_at() -> None:
    said: list[str] = []
    moved = 0
    for number, block in enumerate([*cases(some(range(100))), remaking(2, CHIP)]):
        for k in range(12):
            rng = np.random.default_rng((number, k))
            text = altered(rng, "\n".join(block.group.nest))
            why = refusal(block.costs, text.replace("keep", "hold", int(rng.random() < 0.2)))
            if why:
                said.append(why)
            else:
                moved += 1
    assert all(line.startswith("a.nest") and "accepted" in line for line in said)
    assert len(said) > few(500)
    assert moved > few(60)


# -- no more than it needs -----------------------------------------------------------------------------------


def stage_of(block: Case) -> Stage:
    return next(
        stage for stage in stages(block.plan, block.graph, block.inputs) if stage.group is block.group
    )


def test_every_place_with_a_row_or_a_byte_less_fails() -> None:
    seen: Counter[str] = Counter()
    for block in [*cases(range(14)), remaking(1, CHIP)]:
        stage = stage_of(block)
        for name, gave, why in rings_with_a_row_less(block.costs.dataflow, stage):
            assert gave == "violation" or (not gave and why), f"{block.group.nodes}: {name}: {gave} {why}"
            seen["rows"] += gave == "violation"
        for index, place in enumerate(block.group.places):
            assert (
                verdict(stage, with_place(block.group, index, slot_bytes=place.slot_bytes - 1)) == "violation"
            ), f"{block.group.nodes}: {place}"
            seen[place.purpose] += 1
    assert seen["rows"] > 40
    assert seen["sum"] > 6


def test_no_step_can_be_dropped_repeated_or_shortened_unnoticed() -> None:
    rng, counts = np.random.default_rng(0), Counter[tuple[str, str]]()
    for block in [*cases(some(range(14))), remaking(1, CHIP)]:
        for change, kind, step, seen in altered_steps(stage_of(block), rng, 6):
            spills = isinstance(step, Transfer) and step.store and step.kind == "spill"
            # what is not stored is missed later
            caught = {"bytes" if change == "repeat" else "violation"} if spills else CAUGHT_BY[change, kind]
            assert seen in caught, f"{block.group.nodes}: {change} {step}: {seen or 'nothing'} gives it away"
            counts[change, kind] += 1
    assert counts.total() > few(100)


def as_output(node: Node, names: Sequence[str]) -> Node:
    """A node with the transfers of these maps as outputs, and inputs."""
    if isinstance(node, Loop):
        return replace(node, body=tuple(as_output(inner, names) for inner in node.body))
    if isinstance(node, Transfer) and node.tensor in names:
        return replace(node, kind="output" if node.store else "input")
    return node


@pytest.mark.parametrize("wrong", ["kept to itself", "spill bytes"])
def test_what_a_plan_says_of_what_it_spills_is_recounted(wrong: str) -> None:
    noticed = 0
    for block in cases(range(45)):
        group = block.group
        steps = tuple(as_output(node, group.spilled) for node in group.steps)
        changed = {
            "kept to itself": replace(group, steps=steps, dram=dram_bytes(steps)),
            "spill bytes": replace(group, dram=replace(group.dram, spill=group.dram.spill + 1)),
        }[wrong]
        if changed != group and group.spilled:
            plan = replace(
                block.plan, groups=tuple(changed if other is group else other for other in block.plan.groups)
            )
            assert recount(block.graph, follow(plan)).discrepancies
            noticed += 1
    assert noticed > 5


# -- what a buffer brings ------------------------------------------------------------------------------------


def test_more_buffer_keeps_more_and_never_moves_more() -> None:
    for block in cases(some(range(20))):
        before: GatedChoice | None = None
        for beta in range(
            block.choices.least + 1, block.choices.least + 2 * block.sizes.kept_bytes(block.sizes.channels), 7
        ):
            choice = block.choices.cheapest(beta)
            assert choice is not None
            if before is not None:
                assert choice.dram.total <= before.dram.total
                assert (choice.option, choice.width) != (
                    before.option,
                    before.width,
                ) or choice.kept >= before.kept
            assert (
                block.choices.cheapest(choice.buffer_bytes) is None
                or block.choices.cheapest(choice.buffer_bytes + 1) == choice
            )
            before = choice
        assert block.choices.cheapest(block.choices.least) is None


@pytest.fixture(scope="module")
def network() -> GroupCosts:
    """EfficientNet-B3 at 300 x 300, fp16, 256 KiB."""
    graph = load_network("zoo:efficientnet_b3", {}, "default", weights=False)
    return GroupCosts(in_flight(Dataflow.of(graph)), Hardware(256 * 1024, element_bytes=2), scheme="all")


def test_a_block_of_efficientnet_b3_takes_and_moves_what_the_formulas_say(network: GroupCosts) -> None:
    """stage5.block2: 136 -> 816 -> 136 channels, 5 x 5, 18 x 18 pixels, with a skip."""
    mode = gated(network)
    block = next(
        block
        for block in mode.gates.blocks
        if network.dataflow.operators[block.ahead[0]].name == "stage5.block2.expand"
    )
    choices = mode.choices(block.members)
    assert choices is not None
    own = sum(network.dataflow.macs[i] for i in block.operators)
    choice = Choices(choices.sizes, own).cheapest(256 * 1024)  # with nothing made again
    assert choice is not None
    once, pixels, width = network.groups.once(block.members).total, 18 * 18, choice.width
    whole, x, y = 816 * pixels * 2, 136 * pixels * 2, 136 * pixels * 4
    kept, ring = choice.kept * pixels * 2, width * 18 * 2
    assert (choice.option.part, choice.option.band, choice.option.stays) == (136, 18, False)
    assert choice.dram.total == once + 2 * (whole - kept) + x
    weights = (136 + 25 + 2) * 2 * width  # of a slice: expand, depthwise, biases
    first = x + kept + 5 * ring + ring + 816 * 2 + weights + width * 4
    row = 18 * 136
    shortest = (816 - choice.kept) % width or width
    # sums; rows of the result and the skip; weights, bias
    last = kept + 816 * 2 + 2 * ring + y + 2 * row * 2 + 136 * max(width, shortest + 1) * 2
    assert choice.buffer_bytes == max(first, last)
    assert choice.buffer_bytes + pixels * 2 >= 256 * 1024  # not a channel more fits
    choice = mode.cheapest(block.members, 256 * 1024)  # twice as many multiply-accumulates
    assert choice is not None
    kept, width, gone = choice.kept * pixels * 2, choice.width, 816 - choice.kept
    assert (choice.option.part, choice.option.again, choice.dram.spill) == (68, True, 0)
    assert choice.dram.total == once + 2 * gone * (136 + 25 + 2) * 2
    assert choice.macs == 2 * gone * (136 + 25) * pixels <= own
    # rings of expand, D, and what is gated
    rings, weights = (5 + 1 + 1) * width * 18 * 2, (136 + 25 + 2 + 68) * 2 * width
    last = kept + x + 816 * 2 + rings + 68 * pixels * 4 + 68 * 18 * 2 + weights
    assert last <= choice.buffer_bytes < last + 68 * 2 + 1


def test_slices_use_all_columns_of_the_mac_array(network: GroupCosts) -> None:
    mode = gated(network)
    chosen = [mode.cheapest(block.members, 256 * 1024) for block in mode.gates.blocks]
    assert all(
        choice.width >= 16
        for choice in chosen
        if choice is not None and (choice.dram.spill or choice.macs and choice.kept)
    )
    assert sum(choice is not None for choice in chosen) > 15


def test_a_network_without_gates_has_no_blocks() -> None:
    graph = load_network("zoo:mobilenet_v2", {"image": (1, 3, 64, 64)}, "default", weights=False)
    costs = GroupCosts(in_flight(Dataflow.of(graph)), Hardware(1 << 16), scheme="all")
    assert not gated(costs).gates.blocks
    assert gated(costs).need(costs.dataflow.everything) == NEVER
