"""The report page: everything on it, nothing from outside, names from models are text and nothing else."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explainers.graph import links
from lfopt.app.explain import ExplainerName, Explainers
from lfopt.app.report.colours import colours
from lfopt.app.report.content import content
from lfopt.app.report.cuts import cuts
from lfopt.app.report.layout import BEND, LANE, WIDTH, draw
from lfopt.app.report.pictures import pictures
from lfopt.app.report.summary import page_of
from lfopt.app.report.sweep import own_stair, sweep
from lfopt.ir import (
    Compute,
    DramBytes,
    Graph,
    Hardware,
    Loop,
    Operator,
    Place,
    PlannedGroup,
    Tensor,
    Transfer,
    step_count,
    unfold,
)
from lfopt.ir.names import plain
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from search.exact import solve
from simulator.model.occupancy import likeness, occupancy, step_at
from simulator.model.simulate import simulate
from tests.app.pages import HOSTILE, Tags, hostile_model, page_inputs
from tests.frontend.exported import block


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory):
    return page_inputs("zoo:squeezenet1_1", 128 * 1024, tmp_path_factory.mktemp("squeezenet"))


@pytest.fixture(scope="module")
def page(squeezenet):
    return page_of(squeezenet.plan, squeezenet.graph, 0.5)


# -- the page ------------------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing_from_anywhere(page):
    tags = Tags(page)
    for tag, attributes in tags.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), (tag, name, value)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    assert {"link", "img", "iframe", "object"} & {tag for tag, _ in tags.elements} == {"link"}
    assert not re.search(
        r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML|\beval\(", page
    )
    policy = next(
        attributes["content"]
        for tag, attributes in tags.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None and policy.startswith("default-src 'none'")


def test_the_head_of_the_page_states_the_figures_of_the_plan(page, squeezenet):
    totals = squeezenet.plan.totals
    head = page[: page.index('<script id="data"')]
    for size in (
        totals.dram_bytes,
        totals.layer_by_layer_bytes - totals.dram_bytes,
        totals.epilogue_fused_bytes - totals.dram_bytes,
    ):
        assert f"{size:,} B" in head
    assert "squeezenet1_1" in head
    assert "proven optimal" in head
    stepped = sum(bool(group.steps) for group in squeezenet.plan.groups)
    assert (
        "Every group has executable steps" in head
        if stepped == len(squeezenet.plan.groups)
        else f"{stepped:,} of" in head
    )


def test_the_data_of_the_page_add_up(page, squeezenet):
    data = json.loads(Tags(page).scripts[0])
    assert sum(sum(group["by"]) for group in data["groups"]) == squeezenet.plan.totals.dram_bytes
    named = {baseline["name"]: baseline for baseline in data["baselines"]}
    for name in ("layer by layer", "epilogue fusion", "this plan", "compulsory"):
        assert sum(named[name]["by"]) == named[name]["bytes"], name
    assert sorted(i for group in data["groups"] for i in group["ops"]) == list(range(data["operators"]))
    for a, b, _ in data["edges"]:
        assert a < b
    of = [-1] * data["inputs"] + data["ops"]["group"] + [-1] * len(data["sinks"])
    touching = {
        tuple(sorted((of[a], of[b])))
        for a, b, _ in data["edges"]
        if of[a] != of[b] and min(of[a], of[b]) >= 0
    }
    assert all(data["colours"][a] != data["colours"][b] for a, b in touching)
    assert {tuple(cut["pair"]) for cut in data["cuts"]} == touching
    heat, report = data["heat"], simulate(squeezenet.plan, squeezenet.graph)
    for group, figures in zip(data["groups"], report.groups, strict=True):
        assert sum(heat["bytes"][i] for i in group["ops"]) == figures.dram.total
        assert max(heat["fill"][i] for i in group["ops"]) <= figures.allocated_bytes
    assert sum(heat["cycles"]) == report.cycles.compute
    for line in data["steps"].values():  # every part of a staircase is level or upright
        assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(line))
    assert data["steps"]["plan"][0][1] >= data["steps"]["plan"][-1][1]
    assert "outside the space of this plan" in data["outside"]
    for drawing in data["drawings"].values():
        names = [name for name, *_ in drawing["stages"]]
        assert "fire2" in names
        assert all(0 <= left < right <= drawing["size"][0] for _, left, right, _ in drawing["stages"])


def test_names_from_a_model_are_text_and_nothing_else(lfopt, tmp_path):
    hostile_model(tmp_path / "h.onnx")
    lfopt("search", "h.onnx", "--out", "o")
    lfopt("report", "o", "--sweep-seconds", "0")
    text = (tmp_path / "o" / "report.html").read_text()
    plan = json.loads((tmp_path / "o" / "plan.json").read_text())
    assert any(plain(HOSTILE) in node for group in plan["groups"] for node in group["nodes"])
    assert "<img" not in text
    tags = Tags(text)
    assert [tag for tag, _ in tags.elements].count("script") == len(tags.scripts) == 2
    assert text.count("</script") == 2
    assert text.count("<!--") == 0
    assert any(plain(HOSTILE) in name for name in json.loads(tags.scripts[0])["ops"]["name"])


def test_a_hostile_name_of_a_chip_is_escaped_in_the_head(squeezenet):
    plan = replace(squeezenet.plan, hardware=replace(squeezenet.plan.hardware, name=HOSTILE))
    text = page_of(plan, squeezenet.graph, 0)
    assert "<img" not in text
    assert text.count("</script") == 2
    assert "&lt;/script&gt;&lt;img" in text
    assert "{{ 7*7 }}" in text  # a template in a name is not one


def test_a_front_of_the_search_is_drawn(squeezenet):
    front = ((7_000_000, 131_000), (8_000_000, 90_000))
    plan = replace(squeezenet.plan, search=replace(squeezenet.plan.search, front=front))
    assert json.loads(Tags(page_of(plan, squeezenet.graph, 0)).scripts[0])["front"] == [
        list(point) for point in front
    ]


def test_modules_of_the_exporter_stand_beside_names_as_text(here, tmp_path):
    model = block(scope=f"net.0{HOSTILE}", stack='File "/a/net.py", line 7, in forward')
    onnx.save(model, tmp_path / "m.onnx")
    here("search", tmp_path / "m.onnx", "--out", tmp_path / "o")
    here("report", tmp_path / "o", "--sweep-seconds", "0", "--explain-seconds", "0")
    text = (tmp_path / "o" / "report.html").read_text()
    assert "<img" not in text
    assert text.count("</script") == 2
    data = json.loads(Tags(text).scripts[0])
    assert all(scope.startswith(plain("net.0</script>")) for scope in data["ops"]["scope"])
    assert data["ops"]["source"] == ["net.py:7"] * 2
    assert plain("net.0<") in data["groups"][0]["scope"]


# -- the command ---------------------------------------------------------------------------------------------


def test_report_writes_one_file_and_says_which_how_large_and_how_long(squeezenet, lfopt, tmp_path):
    done = lfopt("report", squeezenet.folder, "-o", "r.html", "--sweep-seconds", "0.2")
    size = (tmp_path / "r.html").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    assert re.search(rf"r\.html: {size:,} B in \d+\.\d s", done.stdout)
    assert size < 1_000_000


def test_wrong_input_to_report_is_one_line_and_leaves_nothing(squeezenet, lfopt, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    plan = json.loads((squeezenet.folder / "plan.json").read_text())
    plan["model"]["sha256"] = "0" * 64
    (other / "plan.json").write_text(json.dumps(plan))
    (other / "simplified.onnx").write_bytes((squeezenet.folder / "simplified.onnx").read_bytes())
    cases = {
        ("report", "nowhere"): "nowhere",
        ("report", squeezenet.folder, "-o", tmp_path): "a file name in a folder that exists",
        ("report", squeezenet.folder, "-o", "no/such/folder/r.html"): "a file name in a folder that exists",
        ("report", squeezenet.folder, "--sweep-seconds", "-1"): "--sweep-seconds: found -1",
        ("report", squeezenet.folder, "--explain-seconds", "-1"): "--explain-seconds: found -1",
        ("report", other): "the plan was made for 0000000000000000",
    }
    for arguments, said in cases.items():
        done = lfopt(*arguments, check=False)
        assert done.returncode == 2, arguments
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]
    assert sorted(path.name for path in other.iterdir()) == ["plan.json", "simplified.onnx"]


# -- where operators are drawn -------------------------------------------------------------------------------


@st.composite
def graphs(draw_):
    count = draw_(st.integers(1, 40))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    edges = draw_(st.lists(pairs, max_size=80, unique=True)) if count > 1 else []
    return edges, draw_(st.lists(st.integers(-1, 4), min_size=count, max_size=count))


@given(graphs(), st.floats(0.2, 5))
def test_no_two_operators_overlap_and_edges_begin_and_end_at_theirs(graph, aspect):
    edges, group = graph
    (drawing,) = draw(edges, group, [aspect])
    assert len(drawing.nodes) == len(group)
    columns: dict[int, list[int]] = {}
    for x, y in drawing.nodes:
        assert WIDTH // 2 <= x <= drawing.width - WIDTH // 2
        assert 0 <= y <= drawing.height
        columns.setdefault(x, []).append(y)
    for ys in columns.values():
        assert all(low + LANE <= high + 1 for low, high in pairwise(sorted(ys)))  # centres are rounded
    for (source, target), route in zip(edges, drawing.routes, strict=True):
        assert (route[0], route[-1]) == (drawing.nodes[source], drawing.nodes[target])


@given(graphs())
def test_edges_run_to_the_right_where_nothing_is_folded(graph):
    edges, group = graph
    (drawing,) = draw(edges, group, [1e9])
    for route in drawing.routes:
        assert all(a[0] < b[0] for a, b in pairwise(route))


def test_a_chain_is_straight_and_folded_into_lines():
    edges = [(k, k + 1) for k in range(99)]
    one, folded = draw(edges, [0] * 100, [1e9, 1.5])
    assert len({y for _, y in one.nodes}) == 1
    assert 2 < len({y for _, y in folded.nodes}) < 20
    assert 0.9 < folded.width / folded.height < 2.5


def test_a_thousand_operators_are_laid_out_in_about_a_second():
    rng = np.random.default_rng(0)
    edges = sorted(
        {(max(0, k - int(rng.integers(1, 12))), k) for k in range(1, 1000) for _ in range(2)}
        | {(0, k) for k in range(200, 1000, 40)}
    )
    start = time.process_time()
    drawing = draw(edges, [k // 6 for k in range(1000)], [1.5, 0.6])[0]
    assert time.process_time() - start < 3
    assert drawing.width < 20_000
    assert BEND < LANE


@given(st.integers(0, 30), st.data())
def test_neighbouring_groups_differ_in_colour_as_long_as_there_are_enough(count, data):
    pairs = st.tuples(st.integers(0, max(count - 1, 0)), st.integers(0, max(count - 1, 0)))
    near = (
        data.draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=3 * count))
        if count > 1
        else []
    )
    coloured = colours(count, near, 8)
    beside = [sum(k in pair for pair in set(map(frozenset, near))) for k in range(count)]
    assert all(coloured[a] != coloured[b] for a, b in near if max(beside[a], beside[b]) < 8)


# -- why groups end ------------------------------------------------------------------------------------------


def test_every_cut_is_explained_and_an_overflow_is_one(squeezenet):
    boundaries = cuts(
        squeezenet.costs, squeezenet.masks, tuple(group.mode for group in squeezenet.plan.groups)
    )
    assert boundaries
    # the plan is optimal: nothing to gain
    assert {cut.verdict for cut in boundaries} <= {"overflows", "cycle", "no gain"}
    for cut in boundaries:
        merged = squeezenet.costs.evaluate(squeezenet.masks[cut.before] | squeezenet.masks[cut.after])
        if cut.verdict == "overflows":
            assert cut.needed == merged.needed >= squeezenet.plan.hardware.buffer_bytes
            assert cut.rings + cut.weights == cut.needed
            assert f"{cut.needed:,}" in cut.why
            assert [part.bytes for part in cut.largest] == sorted(
                (part.bytes for part in cut.largest), reverse=True
            )


def test_a_plan_with_a_cut_too_many_says_what_it_would_gain(squeezenet):
    whole = next(
        k for k, group in enumerate(squeezenet.plan.groups) if group.mode == "lbdf" and len(group.nodes) > 2
    )
    first = squeezenet.masks[whole] & -squeezenet.masks[whole]
    masks = (
        *squeezenet.masks[:whole],
        first,
        squeezenet.masks[whole] & ~first,
        *squeezenet.masks[whole + 1 :],
    )
    boundaries = {
        (cut.before, cut.after): cut for cut in cuts(squeezenet.costs, masks, ("lbdf",) * len(masks))
    }
    assert boundaries[whole, whole + 1].verdict == "gain"
    assert "would move" in boundaries[whole, whole + 1].why


# -- pictures of what does not fit ---------------------------------------------------------------------------


def drawn(
    plan: SimpleNamespace, *names: ExplainerName, optimal: bool = True, masks: tuple[int, ...] = ()
) -> tuple[list, list]:
    masks = masks or plan.masks
    boundaries = cuts(plan.costs, masks, ("lbdf",) * len(masks))
    return boundaries, pictures(
        plan.costs, masks, boundaries, Explainers.of(plan.costs, names, 0), optimal=optimal, seconds=60
    )


def test_every_pair_that_does_not_fit_is_drawn_with_scores_on_its_links(squeezenet):
    boundaries, shown = drawn(squeezenet, "analytic", "random")
    assert sorted(picture["cut"] for picture in shown) == [
        k for k, cut in enumerate(boundaries) if cut.verdict == "overflows"
    ]
    assert [boundaries[picture["cut"]].saves for picture in shown] == sorted(
        (boundaries[picture["cut"]].saves for picture in shown), reverse=True
    )
    for picture in shown:
        cut, count = boundaries[picture["cut"]], len(picture["links"]) // 2
        pair = squeezenet.masks[cut.before], squeezenet.masks[cut.after]
        assert picture["ops"] == list(bits(pair[0] | pair[1]))
        assert links(squeezenet.costs.dataflow, pair[0] | pair[1]).T.ravel().tolist() == picture["links"]
        assert len(picture["routes"]) == count
        assert len(picture["nodes"]) == 2 * len(picture["ops"])
        for x, y in zip(picture["nodes"][::2], picture["nodes"][1::2], strict=True):
            assert 0 < x < picture["size"][0]
            assert 0 < y < picture["size"][1]
        assert list(picture["by"]) == ["analytic", "random"]
        assert all(len(said["scores"]) == count for said in picture["by"].values())
        assert picture["best"]["bytes"] == sum(squeezenet.costs.dram(group).total for group in pair)


def test_where_the_plan_is_not_proven_the_best_cut_of_a_pair_is_searched(squeezenet):
    costs, masks = squeezenet.costs, [*squeezenet.masks]
    merges = [
        (cut.before, cut.after)
        for cut in cuts(costs, squeezenet.masks, ("lbdf",) * len(masks))
        if cut.verdict == "overflows"
    ]
    moves = [(a, b, masks[b] & -masks[b]) for a, b in merges if masks[b].bit_count() > 1]
    worse = [(a, b, op) for a, b, op in moves if costs.price(masks[a] | op) and costs.price(masks[b] ^ op)]
    a, b, op = next(
        (a, b, op)
        for a, b, op in worse
        if costs.dram(masks[a] | op).total + costs.dram(masks[b] ^ op).total > sum_of(costs, masks, a, b)
    )
    best_bytes = sum_of(costs, masks, a, b)
    masks[a], masks[b] = masks[a] | op, masks[b] ^ op  # cut in the wrong place
    boundaries, shown = drawn(squeezenet, "analytic", optimal=False, masks=tuple(masks))
    for picture in shown:
        cut, best = boundaries[picture["cut"]], picture["best"]
        groups = [
            sum(1 << i for i, part in zip(picture["ops"], best["parts"], strict=True) if part == k)
            for k in range(max(best["parts"]) + 1)
        ]
        assert (
            best["bytes"]
            == sum(costs.price(group).dram_bytes for group in groups)
            <= sum_of(costs, masks, cut.before, cut.after)
        )
        if (cut.before, cut.after) == (a, b):
            assert best["bytes"] == best_bytes < sum_of(costs, masks, a, b)
            break
    else:
        pytest.fail("the pair has no picture")


def sum_of(costs: GroupCosts, masks, a: int, b: int) -> int:
    return costs.dram(masks[a]).total + costs.dram(masks[b]).total


def test_pictures_can_be_left_out(squeezenet):
    text = page_of(squeezenet.plan, squeezenet.graph, 0, explain_seconds=0)
    assert json.loads(Tags(text).scripts[0])["pictures"] == []
    assert 'href="#grown"' not in text
    assert len(text) < len(page_of(squeezenet.plan, squeezenet.graph, 0))


# -- the staircase -------------------------------------------------------------------------------------------


def test_the_staircase_falls_and_its_stairs_are_the_optima_they_say(squeezenet):
    stairs = sweep(squeezenet.costs, own_stair(squeezenet.plan), 3.0)
    assert [s.buffer_bytes for s in stairs] == sorted({s.buffer_bytes for s in stairs})
    assert [s.dram_bytes for s in stairs] == sorted((s.dram_bytes for s in stairs), reverse=True)
    assert squeezenet.plan.totals.dram_bytes in [
        s.dram_bytes for s in stairs if s.buffer_bytes == squeezenet.plan.hardware.buffer_bytes
    ]
    for stair in [
        s for s in stairs if s.dram_bytes == s.lower_bound_bytes and s.since_bytes < s.buffer_bytes
    ][:3]:
        assert solve(squeezenet.costs.at(stair.since_bytes)).dram_bytes == stair.dram_bytes


# -- the buffer while a group runs ---------------------------------------------------------------------------


def test_a_slot_is_taken_from_its_writing_to_its_last_reading():
    tensors = {name: Tensor(name, (1, 1, 4, 2), "float32") for name in "xuy"}
    operators = (
        Operator("pool", "MaxPool", ("x",), ("u",), {"kernel_shape": (2, 1), "pads": (1, 0, 0, 0)}),
        Operator("relu", "Relu", ("u",), ("y",)),
    )
    graph = Graph("g", operators, tensors, {}, ("x",), ("y",), 18)
    box = ((0, 1), (0, 1), (0, 1), (0, 2))
    down = ((0, 0, 1, 0, 1),)
    turn = (
        Transfer(
            store=False, tensor="x", box=box, kind="input", rows=1, row_bytes=4, place=0, slot=0, strides=down
        ),
        Compute("pool", (box,), (1,), strides=((0, 0, 1, 0),)),
        Compute("relu", (box,), (2,), strides=((0, 0, 1, 0),)),
        Transfer(
            store=True, tensor="y", box=box, kind="output", rows=1, row_bytes=4, place=2, slot=0, strides=down
        ),
    )
    places = (Place("x", "map", 0, 2, 4), Place("u", "map", 8, 1, 4), Place("y", "map", 12, 1, 4))
    group = PlannedGroup(0, ("pool", "relu"), "lbdf", DramBytes(16, 16), places, (Loop(4, turn),))
    chip = Hardware(64, element_bytes=4)
    occupied = occupancy(group, Dataflow.of(graph), chip)
    # Row r of x is read by rows r and r + 1 of the pool: it stays until the next turn's pool, the last one
    # until its own.
    assert occupied.slots[0] == (1, 1, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 0, 0)
    assert occupied.slots[1] == (0, 1, 1, 0) * 4
    assert occupied.slots[2] == (0, 0, 1, 1) * 4
    assert occupied.most == (2, 1, 1)
    assert (occupied.peak_bytes, occupied.peak_step, occupied.steps) == (12, 2, 16)  # one row of each
    few = occupancy(group, Dataflow.of(graph), chip, points=3)
    assert len(few.shown) == 3
    assert few.peak_bytes == max(sum(4 * few.slots[p][k] for p in range(3)) for k in range(3)) == 12


def test_the_buffer_never_holds_more_than_is_set_aside_and_no_peak_is_lost(squeezenet):
    flow = squeezenet.costs.dataflow
    assert any(group.steps for group in squeezenet.plan.groups)
    for group in squeezenet.plan.groups:
        if not group.steps:
            continue
        occupied = occupancy(group, flow, squeezenet.plan.hardware, points=40)
        assert occupied.steps == step_count(group.steps)
        assert all(most <= place.slots for most, place in zip(occupied.most, group.places, strict=True))
        assert occupied.peak_bytes <= group.allocated_bytes(squeezenet.plan.hardware)
        totals = [
            sum(place.slot_bytes * row[k] for place, row in zip(group.places, occupied.slots, strict=True))
            for k in range(len(occupied.shown))
        ]
        assert max(totals) == occupied.peak_bytes
        if group.mode == "lbdf":
            rings = [
                (most, place.slots)
                for most, place in zip(occupied.most, group.places, strict=True)
                if place.purpose == "map"
            ]
            assert all(most == slots for most, slots in rings)  # F_beta is tight


def test_groups_that_differ_in_names_alone_are_alike(squeezenet):
    flow, group = (
        squeezenet.costs.dataflow,
        next(group for group in squeezenet.plan.groups if len(group.nodes) > 1 and group.steps),
    )
    assert likeness(group, flow) == likeness(replace(group, id=99), flow)
    assert likeness(group, flow) != likeness(replace(group, steps=group.steps[1:]), flow)


def test_a_step_is_found_without_walking(squeezenet):
    group = max(
        (group for group in squeezenet.plan.groups if step_count(group.steps) < 20_000),
        key=lambda group: step_count(group.steps),
    )
    walked = list(unfold(group.steps))
    for number in (0, 1, len(walked) // 3, len(walked) - 1):
        assert step_at(group.steps, number) == walked[number]
    with pytest.raises(IndexError):
        step_at(group.steps, len(walked))


def test_the_content_of_a_page_is_small(squeezenet):
    report = simulate(squeezenet.plan, squeezenet.graph)
    data = content(
        squeezenet.plan, squeezenet.costs, squeezenet.masks, report, [], [own_stair(squeezenet.plan)], ()
    )
    assert all(len(fill["shown"]) <= 120 for fill in data["fills"] if "shown" in fill)
    assert len(json.dumps(data)) < 300_000
