"""Nests: what a nest is priced at is what its steps move and hold, and its text says all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan, load_network, steps_of
from lfopt.app.plan_nests import nest_problems
from lfopt.ir import (
    DramBytes,
    Hardware,
    InvalidConfig,
    PlannedGroup,
    Transfer,
    dram_bytes,
    store_ends,
    unfold,
    whole,
)
from lfopt.ops import Dataflow
from lfopt.planning import NEVER, GroupCosts
from lfopt.planning.brr.banded import BandedGroups
from lfopt.planning.columns.patches import PatchGroups
from lfopt.planning.columns.strips import StripGroups
from lfopt.planning.modes.lbdf import line_buffer_nest
from lfopt.planning.modes.sliced import SlicedMode
from lfopt.planning.nest.lowering import lower
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.nest.spans import BlockGrid
from lfopt.planning.nest.tree import BlockLoop, Blocks, GroupNest
from lfopt.planning.passes.lowering import lower_nest
from lfopt.planning.passes.price import price_nest
from lfopt.planning.resident import Resident
from lfopt.planning.sliced.nest import sliced_nest
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.steps.macs import executed_macs
from lfopt.planning.written.text import parse_nest
from lfopt.planning.written.writer import folded, nest_text
from tests.cases import few, some
from tests.planning.written_nests import altered, refusal
from tests.row_networks import network
from tests.strategies import random_block, random_graph, random_hardware, random_mlp, random_windows

IN_A_BLOCK = """in passes
  keep 3 channels of conv
  channels, 2 blocks
    at once: conv
  channels, 2 blocks
    at once: relu
"""


class Case(NamedTuple):
    """A group, and how it runs."""

    costs: GroupCosts
    mask: int
    nest: GroupNest


def groups(seeds: range) -> Iterator[tuple[np.random.Generator, GroupCosts, int]]:
    """Runs of operators of random networks, with chips of all kinds."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_windows(rng) if seed % 2 else random_graph(rng, int(rng.integers(2, 8)))
        hardware = random_hardware(rng, graph)
        costs = GroupCosts.of(graph, hardware, scheme="all")
        count = len(costs.dataflow)
        for _ in range(3):
            first = int(rng.integers(count))
            stop = int(rng.integers(first + 1, min(first + 6, count) + 1))
            yield rng, costs, sum(1 << i for i in range(first, stop))


def nests(seeds: range) -> Iterator[Case]:
    """Nests of the six templates."""
    for rng, costs, mask in groups(seeds):
        flow, known = costs.dataflow, costs.groups
        if not mask & flow.too_tall:
            yield Case(costs, mask, line_buffer_nest(mask, int(rng.integers(1, 4))))
        strips = StripGroups(known, 50.0)
        for choice in strips.choices(mask)[:2]:
            yield Case(costs, mask, strips.nest(mask, choice))
        patches = PatchGroups(known)
        for size in patches.choices(mask)[:2]:
            yield Case(costs, mask, patches.nest(mask, size))
        bands = BandedGroups(flow, costs.hardware)
        if bands.floor(mask) < NEVER:
            choices = bands.candidates(mask)
            for k in rng.permutation(len(choices))[:2]:
                yield Case(costs, mask, bands.nest(mask, choices[int(k)]))
        yield Case(costs, mask, Resident(flow, costs.hardware).nest(mask))
    for seed in seeds:
        yield from sliced_nests(seed)


def sliced_nests(seed: int) -> Iterator[Case]:
    """Nests of a block between two contractions, in bands, parts and slices, some weights staying."""
    rng = np.random.default_rng(seed)
    graph = random_mlp(rng, normalised=seed % 4 == 0) if seed % 3 == 2 else random_block(rng)
    costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme="all")
    mask, mode = costs.dataflow.everything, costs.modes["sliced"]
    assert isinstance(mode, SlicedMode)
    need = mode.need(mask)
    for beta in (need + 1, 2 * need) if need < NEVER else ():
        choice = mode.sliced.cheapest(mask, beta)
        if choice is not None:
            yield Case(costs, mask, sliced_nest(mode.sliced.rows, mode.sliced.segments, mask, choice.option))


def test_a_price_is_what_steps_move_and_places_hold() -> None:
    seen = 0
    for costs, mask, nest in nests(range(60)):
        if getattr(nest.root, "lives", False):  # priced by addresses
            continue
        layout = BufferLayout(costs.dataflow, costs.hardware)
        places, steps = lower(layout, mask, nest, costs.groups.line_buffers)
        price = NestPricing(layout, costs.groups.line_buffers).price(mask, nest)
        moved = DramBytes(int(price.input[0]), int(price.output[0]), int(price.weight[0]))
        assert dram_bytes(steps) == moved, nest_text(costs.dataflow, nest)
        ends = store_ends(places, costs.hardware)
        maps, constants = int(price.map_bytes[0]), int(price.constant_bytes[0])
        held = (maps, constants) if costs.hardware.weight_buffer_bytes else (maps + constants,)
        assert tuple(ends.values()) == held, nest_text(costs.dataflow, nest)
        group = PlannedGroup(0, costs.dataflow.names(mask), "nest", moved, places, steps)
        executed = executed_macs(costs.dataflow, [group])
        assert executed <= int(price.macs[0]), nest_text(costs.dataflow, nest)
        if not nest.row_engines:  # which make no rows that nothing asks for
            # each operator's share is rounded up in the price, the sum of all down in the steps
            assert int(price.macs[0]) <= executed + mask.bit_count(), nest_text(costs.dataflow, nest)
        seen += 1
    assert seen > 200


def test_the_text_of_a_nest_says_all_of_it() -> None:
    for costs, mask, nest in nests(range(100, 130)):
        flow = costs.dataflow
        layout, text = BufferLayout(flow, costs.hardware), nest_text(flow, nest)
        again, parsed = parse_nest(text, flow, "a.nest")
        assert again == mask
        assert nest_text(flow, parsed) == text
        narrow = "\n".join(folded(text.splitlines(), 50))
        assert nest_text(flow, parse_nest(narrow, flow, "a.nest")[1]) == text
        line_buffers = costs.groups.line_buffers
        assert lower_nest(layout, mask, parsed, line_buffers) == lower(layout, mask, nest, line_buffers)


def test_constants_that_a_leaf_holds_come_with_every_block() -> None:
    flow = small()
    mask, nest = parse_nest("rows, 3 blocks\n  at once: conv\n    hold w\n", flow, "a.nest")
    layout = BufferLayout(flow, Hardware(1 << 20))
    loads = [step for step in unfold(lower_nest(layout, mask, nest)[1]) if isinstance(step, Transfer)]
    assert sum(step.tensor == "w" for step in loads) == 3
    moved = price_nest(NestPricing(layout), mask, nest).dram
    assert moved.weight == 3 * layout.constant_bytes("w", whole((4, 4, 1, 1)))


def test_blocks_priced_together_cost_what_each_costs() -> None:
    """All ways to cut a loop at once, and one at a time."""
    for costs, mask, nest in nests(range(200, 215)):
        root = nest.root
        if not isinstance(root, BlockLoop) or root.axis == "channels":
            continue
        ways = [Blocks(count) for count in (1, 2, 3)] if not root.blocks.size else [root.blocks]
        pricing = NestPricing(BufferLayout(costs.dataflow, costs.hardware), costs.groups.line_buffers)
        together = pricing.price(mask, nest, {root: BlockGrid(ways)})
        for way, blocks in enumerate(ways):
            alone = pricing.price(mask, nest, {root: BlockGrid([blocks])})
            for figure in ("map_bytes", "constant_bytes", "input", "output", "weight", "macs"):
                every = np.broadcast_to(getattr(together, figure), len(ways))
                assert every[way] == getattr(alone, figure)[0], figure


def small() -> Dataflow:
    """A convolution and what follows it."""
    nodes = [("Conv", "x w", "conv", {"kernel_shape": [1, 1]}), ("Relu", "conv", "relu", {})]
    return Dataflow.of(network(nodes, 6, {"w": (4, 4, 1, 1)}))


IN_THE_MIDST = """\
in turn
  stream 2 blocks behind 1 channels that stay of w
  channels, 2 blocks
    at once: conv
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a.nest: found nothing"),
        ("at once: conv\nat once: relu\n", "a.nest: found 2 nodes"),
        ("at first: conv\n", "a.nest:1: found 'at first: conv'"),
        ("at once: conf\n", "a.nest:1: found operator 'conf'"),
        ("in turn\n", "a.nest:1: found nothing below 'in turn'"),
        ("rows, 2 blocks\n  at once: conv\n  at once: relu\n", "a.nest:1: found 2 nodes below a loop"),
        ("rows, 0 blocks\n  at once: conv\n", "a.nest:1: found 0"),
        ("rows, 99999999999999999 blocks\n  at once: conv\n", "a.nest:1: found 99999999999999999"),
        ("in turn\n  at once: relu\n  at once: conv\n", "a.nest:2: found 'relu' before 'conv'"),
        ("in turn\n  at once: conv\n  at once: conv\n", "a.nest:3: found operator 'conv' in two leaves"),
        (
            "in turn\n  at once: conv\n    hold conv\n  at once: relu\n",
            "a.nest:3: found 'relu', which touches it",
        ),
        ("in turn\n  hold nothing\n  at once: conv\n", "a.nest:2: found tensor 'nothing'"),
        ("in turn\n   at once: conv\n", "a.nest:2: found 3 spaces"),
        (
            "rows, 2 blocks\n  columns, 2 blocks\n    line buffers: conv, relu\n",
            "a.nest:3: found line buffers in loops",
        ),
        ("rows, 2 blocks\n  rows, 2 blocks\n    at once: conv\n", "a.nest:2: found a loop over rows"),
        (
            "channels, 2 blocks\n  channels, 2 blocks\n    at once: conv\n",
            "a.nest:2: found a loop that cuts the channels of 'conv' again",
        ),
        (
            "in turn\n  channels, 2 blocks, summed by conv\n    hold sums of conv\n    at once: conv, relu\n",
            "a.nest:2: found 'relu', which reads the sums",
        ),
        ("rows, 1000000000 blocks\n  at once: conv\n", "a.nest:1: found 1,000,000,000 blocks of at most"),
        (
            "channels, 2 blocks\n  stream 2 blocks behind 1 channels that stay of w\n  at once: conv\n",
            "a.nest:3: found channels that stay",
        ),
        ("channels, blocks of 2 of 4, anew at 2\n  at once: conv\n", "a.nest:1: found anew at [2]"),
        (IN_THE_MIDST, "a.nest:3: found 1 channels that stay, in the midst of a block"),
        ("in turn\n  stream 2 blocks of conv\n  at once: conv\n", "a.nest:2: found constant 'conv'"),
        ('at once: "conv\n', "a.nest:1: found"),
        ("in turn\n  at once: conv\n    carry conv\n", "a.nest:3: found 'carry' elsewhere"),
        ("at once: conv\n  carry w\n", "a.nest:2: found what is no map"),
        ("rows, 2 blocks\n  at once: conv\n    carry x\n", "a.nest:3: found 'carry' elsewhere"),
        ("columns, 2 blocks\n  rows, 2 blocks\n    at once: conv\n      carry x\n", "a.nest:4: found"),
        ('at once: "\\ud800x", relu\n', "a.nest:1: found operator"),
        ("in passes\n  at once: conv, relu\n", "a.nest:1: found 1 nodes below 'in passes'"),
        ("in passes\n  keep nothing\n  at once: conv\n  at once: relu\n", "a.nest:2: found map 'nothing'"),
        ("in passes\n  at once: relu\n  at once: conv\n", "a.nest:2: found 'relu' in a pass before 'conv'"),
        ("in passes\n  keep x\n  at once: conv\n  at once: relu\n", "a.nest:2: found 'x', which is kept and"),
        (
            "in passes\n  keep conv\n  at once: conv\n    hold conv\n  at once: relu\n",
            "a.nest:2: found 'conv', which is kept and held",
        ),
        (
            "in passes\n  keep conv\n  at once: conv\n  at once: conv, relu\n",
            "a.nest:2: found 'conv', which is kept and made again",
        ),
        (
            "in passes\n  keep 2 channels of conv\n  at once: conv\n  at once: relu\n",
            "a.nest:2: found 2 channels of 'conv' kept, and 0 loops",
        ),
        (IN_A_BLOCK, "a.nest:2: found 3 channels of 'conv' kept, in the midst of a block"),
    ],
)
def test_a_broken_text_names_the_line(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_nest(text, small(), "a.nest")
    assert str(caught.value).startswith(said)
    assert "accepted" in str(caught.value)


def test_an_altered_nest_is_refused_by_line_or_moves_what_it_is_priced_at() -> None:
    said: list[str] = []
    moved = 0
    for number, (costs, _, nest) in enumerate(nests(some(range(300, 324)))):
        for k in range(4):
            text = altered(np.random.default_rng((number, k)), nest_text(costs.dataflow, nest))
            why = refusal(costs, text)
            if why:
                said.append(why)
            else:
                moved += 1
    assert all(line.startswith("a.nest") and "accepted" in line for line in said)
    assert len(said) > few(800)
    assert moved > few(800)


def test_groups_of_a_plan_say_their_nests_and_no_other_is_believed() -> None:
    """Each is read and lowered to the places and steps of its group; changed ones are refused by line."""
    graph = load_network("zoo:fsrcnn", {"image": (1, 1, 20, 24)}, "default", weights=False)
    outcome = find_plan(
        Config("fsrcnn", Hardware(8192), "auto", search=SearchConfig(objective="bytes")), graph=graph
    )
    finished = steps_of(outcome)
    plan, costs = finished.plan, outcome.costs
    flow, layout = costs.dataflow, BufferLayout(costs.dataflow, costs.hardware)
    nested = [group for group in plan.groups if group.nest]
    assert {group.mode for group in nested} == {"lbdf", "brr", "resident"}
    for group in nested:
        mask, nest = parse_nest("\n".join(group.nest), flow, "nest")
        lowered = lower_nest(layout, mask, nest, costs.groups.line_buffers)
        assert lowered == (group.places, group.steps)
    assert [*nest_problems(plan, graph)] == []
    group = next(group for group in nested if group.mode == "brr" and group.dram.weight)
    halos_again = tuple(line.replace("hold image, ", "hold ") for line in group.nest)
    changed = {
        "1: found 'nonsense'": ("nonsense", *group.nest[1:]),
        "and not those of the group": nested[1].nest,
        "it moves": halos_again,
    }
    for words, lines in changed.items():
        groups = tuple(replace(one, nest=lines) if one is group else one for one in plan.groups)
        (line,) = nest_problems(replace(plan, groups=groups), graph)
        assert words in line and line.startswith(f"group {group.id}: nest"), line
