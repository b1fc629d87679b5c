"""Schedules: folding loses nothing, listings are read back as written, and nothing else is a listing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lfopt.app.files import read_plan, write_plan
from lfopt.app.pipeline import load_network
from lfopt.ir import (
    Compute,
    DramBytes,
    Hardware,
    InvalidPlan,
    Loop,
    Node,
    Step,
    Transfer,
    dram_bytes,
    fold,
    line_count,
    step_count,
    unfold,
)
from lfopt.ir.listing import listing, parse
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from search.exact import solve
from tests.random_plans import SCHEMES, planned, random_scheme
from tests.strategies import random_graph, random_hardware

# -- random schedules ----------------------------------------------------------------------------------------

NAMES = [
    "x",
    "conv1",
    "/model/layer.0/Conv_output_0",
    "a:b",
    "-",
    "a b",
    "say%22hi%22",
    "loop 3",
    "by 1",
    "back%5Cslash",
    "zeile%0Azwei",
    "~#;@",
    "",
]
KINDS = ["input", "output", "weight", "parameter", "spill"]
small = st.integers(0, 9)


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(small)
    return start, start + draw(small)


boxes = st.lists(spans(), max_size=4).map(tuple)


@st.composite
def transfers(draw: st.DrawFn) -> Transfer:
    store = draw(st.booleans())
    return Transfer(
        store=store,
        tensor=draw(st.sampled_from(NAMES)),
        box=draw(boxes),
        kind=draw(st.sampled_from(KINDS)),  # type: ignore[arg-type]
        rows=draw(small),
        row_bytes=draw(st.integers(0, 1 << 40)),
        place=draw(small),
        slot=draw(small),
        offset=draw(small),
        gather=draw(st.sampled_from(["", *filter(None, NAMES)])),
    )


@st.composite
def computes(draw: st.DrawFn) -> Compute:
    written = draw(st.lists(boxes.filter(bool), min_size=1, max_size=3))
    first, last = draw(st.sampled_from([(True, True), (True, False), (False, False), (False, True)]))
    return Compute(
        operator=draw(st.sampled_from(NAMES)),
        boxes=tuple(written),
        places=tuple(draw(st.integers(-1, 9)) for _ in written),
        inputs=draw(st.none() | spans()),
        accumulator=draw(st.integers(0, 9)) if not (first and last) else draw(st.integers(-1, 9)),
        first=first,
        last=last,
    )


steps = transfers() | computes()


def shifted(step: Step, by: int) -> Step:
    """The step further on: every origin by so much."""
    return step.moved((by,) * len(step.origin))


@st.composite
def repetitive(draw: st.DrawFn, depth: int = 2) -> list[list[Node]]:
    """Blocks many of which repeat, moved on: what schedules are made of.

    Blocks of a deeper level are folded ones.
    """
    blocks: list[list[Node]] = []
    for _ in range(draw(st.integers(1, 3))):
        body = draw(st.lists(steps, min_size=1, max_size=3))
        by, count = draw(st.integers(-1, 2)), draw(st.integers(1, 4))
        body = [shifted(step, 9) for step in body]  # so that nothing moves below 0
        blocks += [list[Node](shifted(step, by * k) for step in body) for k in range(count)]
    if depth:
        inner = fold(draw(repetitive(depth=depth - 1)), 2)
        at = draw(st.integers(0, len(blocks)))
        blocks[at:at] = [list(inner)] * draw(st.integers(1, 3))
    return blocks


def flat(nodes: Sequence[Node]) -> list[Step]:
    return list(unfold(nodes))


def joined(blocks: Sequence[Sequence[Node]]) -> list[Node]:
    return [node for block in blocks for node in block]


# -- folding -------------------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(repetitive(), st.integers(1, 4))
def test_unfolding_undoes_folding(blocks: list[list[Node]], longest: int) -> None:
    folded = fold(blocks, longest)
    assert flat(folded) == flat(joined(blocks))
    assert step_count(folded) == len(flat(folded))
    assert line_count(folded) == len([*listing(folded)])
    assert dram_bytes(folded) == sum(
        (DramBytes(**{s.kind: s.bytes}) for s in flat(folded) if isinstance(s, Transfer)), DramBytes()
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, min_size=1, max_size=4), st.integers(2, 50), st.integers(1, 3))
def test_blocks_that_repeat_become_one_loop(body: list[Step], count: int, by: int) -> None:
    blocks = [[shifted(step, by * k) for step in body] for k in range(count)]
    (loop,) = fold(blocks)
    assert isinstance(loop, Loop)
    assert (loop.count, len(loop.body)) == (count, len(body))
    pairs = [
        [shifted(step, by * (k // 2)) for step in ([*body, body[0]] if k % 2 else body)]
        for k in range(2 * count)
    ]
    assert len(fold(pairs, 1)) > 1
    (loop,) = fold(pairs, 2)
    assert isinstance(loop, Loop)
    assert loop.count == count


def test_blocks_that_are_not_alike_stay_apart() -> None:
    step = Transfer(
        store=False, tensor="x", box=((0, 1), (0, 4)), kind="input", rows=1, row_bytes=8, place=0, slot=0
    )
    others = [
        replace(step, store=True),
        replace(step, tensor="y"),
        replace(step, box=((0, 1), (0, 3))),
        replace(step, kind="spill"),
        replace(step, rows=2),
        replace(step, row_bytes=9),
        replace(step, place=1),
        replace(step, offset=4),
        replace(step, gather="g"),
    ]
    for other in others:
        assert fold([[step], [other]]) == (step, other)
    compute = Compute("conv", (((0, 1), (0, 4)),), (0,), inputs=(0, 2), accumulator=1, first=True, last=False)
    different = [
        replace(compute, operator="other"),
        replace(compute, boxes=(((0, 1), (0, 5)),)),
        replace(compute, places=(1,)),
        replace(compute, inputs=(0, 3)),
        replace(compute, inputs=None),
        replace(compute, accumulator=2),
        replace(compute, first=False),
        replace(compute, last=True),
    ]
    for other in different:
        assert fold([[compute], [other]]) == (compute, other)
    uneven = [replace(step, slot=slot) for slot in (0, 1, 3, 4)]
    assert flat(fold([[s] for s in uneven])) == uneven


def test_a_loop_of_ten_thousand_million_turns_is_summed_without_walking_it() -> None:
    step = Transfer(
        store=False,
        tensor="x",
        box=((0, 1),),
        kind="input",
        rows=2,
        row_bytes=3,
        place=0,
        slot=0,
        strides=((1, 1), (0, 1)),
    )
    nodes = (Loop(100_000, (Loop(100_000, (step,)),)),)
    start = time.process_time()
    assert dram_bytes(nodes) == DramBytes(input=6 * 10**10)
    assert step_count(nodes) == 10**10
    assert time.process_time() - start < 1


# -- listings ------------------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(repetitive(), st.integers(1, 3))
def test_parsing_undoes_listing(blocks: list[list[Node]], longest: int) -> None:
    nodes = fold(blocks, longest)
    lines = list(listing(nodes))
    assert parse(lines) == nodes
    assert not any("\n" in line for line in lines)
    assert parse(json.loads(json.dumps(lines))) == nodes  # as plan.json holds them


GOOD = [
    "load x[0:1, 0:4] input 1x8 -> 0.0",
    "loop 3 {",
    "  compute conv [0:1, 0:4] -> 1 in 0:2 sums 2:first by 0,1,0",
    "}",
    "store y[0:1, 0:4] output 1x8 <- 1.0",
]
HOSTILE = {
    "a name that is not plain": ['load "a*/b"[0:1] input 1x8 -> 0.0'],
    "a name of other letters": ["load 名前[0:1] input 1x8 -> 0.0"],
    "a name with a line break": ['load "a\\nb"[0:1] input 1x8 -> 0.0'],
    "an open loop": GOOD[:3],
    "a brace too many": [*GOOD, "}"],
    "no loop": ["loop {", "}"],
    "a loop of less than nothing": ["loop -3 {", "}"],
    "an unknown verb": ["move x[0:1] input 1x8 -> 0.0"],
    "an unknown class": ["load x[0:1] tea 1x8 -> 0.0"],
    "a box without end": ["load x[0:] input 1x8 -> 0.0"],
    "a box of words": ["load x[a:b] input 1x8 -> 0.0"],
    "a box of dashes": ["load x[-:-] input 1x8 -> 0.0"],
    "a box of too many colons": ["load x[0:1:2] input 1x8 -> 0.0"],
    "half a box": ["load x[0:1 input 1x8 -> 0.0"],
    "two boxes in one": ["load x[0:1,,0:2] input 1x8 -> 0.0"],
    "negative bytes": ["load x[0:1] input 1x-8 -> 0.0"],
    "a negative place": ["load x[0:1] input 1x8 -> -1.0"],
    "moves outside of loops": [GOOD[0] + " by 0,0,1"],
    "too few moves": ["loop 2 {", "load x[0:1, 0:4] input 1x8 -> 0.0 by 1", "}"],
    "moves for one loop in two": [
        "loop 2 {",
        "loop 2 {",
        "load x[0:1, 0:4] input 1x8 -> 0.0 by 0,0,1",
        "}",
        "}",
    ],
    "moves that are no numbers": ["loop 2 {", "load x[0:1, 0:4] input 1x8 -> 0.0 by -,-,-", "}"],
    "moves of nothing": ["loop 2 {", "load x[0:1, 0:4] input 1x8 -> 0.0 by  ", "}"],
    "no result": ["compute conv -> 1"],
    "sums that neither begin nor end": ["compute conv [0:1] -> 1 sums 2:some"],
    "an unquoted name with a blank": ["load a b[0:1] input 1x8 -> 0.0"],
    "an open quotation": ['load "x[0:1] input 1x8 -> 0.0'],
    "a quotation that JSON does not know": [r'load "\q"[0:1] input 1x8 -> 0.0'],
    "a line break": ["load x[0:1] input 1x8 -> 0.0\nload x[0:1] input 1x8 -> 0.0"],
    "an empty line": [""],
    "a number of five thousand digits": [f"load x[0:{'9' * 5000}] input 1x8 -> 0.0"],
    "loops a hundred deep": ["loop 2 {"] * 100 + ["}"] * 100,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_listing_is_refused(what: str) -> None:
    parse(GOOD)
    with pytest.raises(InvalidPlan, match="steps"):
        parse(HOSTILE[what])


@settings(max_examples=250, deadline=None)
@given(st.lists(st.sampled_from(GOOD), max_size=6), st.data())
def test_a_damaged_listing_is_refused_or_read_as_it_stands(lines: list[str], data: st.DataObject) -> None:
    """The reader raises InvalidPlan alone, and writes what it accepts back with the same meaning."""
    for _ in range(data.draw(st.integers(1, 3))):
        if not lines:
            break
        k = data.draw(st.integers(0, len(lines) - 1))
        at = data.draw(st.integers(0, len(lines[k])))
        lines[k] = (
            lines[k][:at]
            + data.draw(st.text('0-19:,[]x{} "\\/ab.>+', max_size=3))
            + lines[k][at + data.draw(st.integers(0, 3)) :]
        )
    try:
        nodes = parse(lines)
    except InvalidPlan:
        return
    assert parse(list(listing(nodes))) == nodes


# -- schedules of plans --------------------------------------------------------------------------------------


def test_plans_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    modes: Counter[str] = Counter()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 9)))
        hardware = random_hardware(rng, graph)
        scheme = SCHEMES[seed % len(SCHEMES)]
        costs = GroupCosts(Dataflow.of(graph), hardware, scheme=scheme)
        plan = planned(costs, random_scheme(costs, seed))
        write_plan(plan, tmp_path / "plan.json")
        assert read_plan(tmp_path) == plan
        for group in plan.groups:
            steps = flat(group.steps)
            assert flat(parse([line for step in steps for line in listing((step,))])) == steps
            assert dram_bytes(group.steps) == dram_bytes(steps)
            assert fold([[node] for node in group.steps]) or not steps
            modes[group.mode] += 1
    assert all(modes[mode] > 5 for mode in ("lbdf", "brr", "resident", "tiled"))


@pytest.mark.parametrize(
    ("name", "times"), [("efficientnet_b0", 20), pytest.param("efficientnet_b3", 7, marks=pytest.mark.slow)]
)
def test_the_plan_of_a_real_network_is_a_few_lines_a_group(name: str, times: int) -> None:
    """Folded, a schedule of tens of thousands of steps is a file of two thousand lines."""
    costs = GroupCosts(
        Dataflow.of(load_network(f"zoo:{name}", {}, "default", weights=False)), Hardware(256 * 1024)
    )
    plan = planned(costs, solve(costs).groups)
    lines = sum(1 for group in plan.groups for _ in listing(group.steps))
    run = sum(step_count(group.steps) for group in plan.groups)
    print(f"\n{name}: {len(plan.groups)} groups, {run:,} steps in {lines:,} lines")
    assert lines * times < run
    assert lines < 30 * len(plan.groups)


@pytest.mark.parametrize("schema", ["lfopt.plan/1", "lfopt.plan/2", ["lfopt.plan/3"], None])
def test_a_file_of_another_schema_is_refused_in_one_line(tmp_path, schema) -> None:
    costs = GroupCosts(Dataflow.of(random_graph(np.random.default_rng(0), 4)), Hardware(1 << 16))
    write_plan(planned(costs, solve(costs).groups), tmp_path / "plan.json")
    data = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(data | {"schema": schema}))
    with pytest.raises(InvalidPlan, match=r"schema: found .*; accepted: 'lfopt.plan/3'$"):
        read_plan(tmp_path)


def test_a_plan_of_too_many_lines_is_refused_before_they_are_read(tmp_path, monkeypatch) -> None:
    costs = GroupCosts(Dataflow.of(random_graph(np.random.default_rng(0), 4)), Hardware(1 << 16))
    write_plan(planned(costs, solve(costs).groups), tmp_path / "plan.json")
    monkeypatch.setattr("lfopt.app.files.MOST_LINES", 2)
    with pytest.raises(InvalidPlan, match=r"plan.json: found \d+ lines of steps; accepted: up to 2$"):
        read_plan(tmp_path)


def test_folding_what_repeats_to_the_end_compares_each_block_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the longest period: a loop that reaches the end leaves nothing for a longer one to spare."""
    asked = count()
    origin = Transfer.origin.fget
    assert origin is not None
    monkeypatch.setattr(Transfer, "origin", property(lambda step: (next(asked), origin(step))[1]))
    rows = [
        [
            Transfer(
                store=False, tensor="x", box=((k, k + 1),), kind="input", rows=1, row_bytes=4, place=0, slot=k
            )
        ]
        for k in range(500)
    ]
    (loop,) = fold(rows, 64)
    assert isinstance(loop, Loop)
    assert loop.count == 500
    assert next(asked) < 2 * len(rows)
