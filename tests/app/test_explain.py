"""Explanations of a group that does not fit: figures are the cost model's, and the cut is the best one."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.patches import FancyBboxPatch, PathPatch

from explainers.controls import brute
from explainers.graph import links
from lfopt import zoo
from lfopt.app.commands.explain import explain
from lfopt.app.config import Config, SearchConfig
from lfopt.app.explain import Explainers, as_data, costs_of_plan, divided, explained, repair, whole_bytes
from lfopt.app.fates import Fates
from lfopt.app.files import sha256
from lfopt.app.needs import full_need, need_of, take_planned
from lfopt.app.nodes import chosen
from lfopt.app.pipeline import load_network, run
from lfopt.app.report.blamed import figure, write_figure
from lfopt.app.report.cuts import cuts, growths
from lfopt.app.report.picture import FILLS
from lfopt.app.verify import load_planned
from lfopt.frontend import from_model, to_model
from lfopt.fusion import connected, convex_gap, legal
from lfopt.ir import DoesNotFit, FusionScheme, Graph, Hardware, InvalidConfig, LfoptError, PlannedGroup
from lfopt.ops import Dataflow, bits
from lfopt.ops.excerpt import excerpt
from lfopt.planning import SCHEMES as EVERY_SCHEME
from lfopt.planning import GroupCosts, masks_of, plan
from lfopt.zoo.builder import Net
from tests.cases import some
from tests.strategies import (
    graphs,
    random_block,
    random_gate,
    random_graph,
    random_hardware,
    random_mlp,
)

SCHEMES = ("lbdf", "resident", "brr", "auto")
FAMILIES = (random_block, random_gate, random_mlp, lambda rng: random_graph(rng, 7))


@pytest.fixture(scope="module")
def mobilenet() -> Dataflow:
    return Dataflow.of(load_network("zoo:mobilenet_v2", {}, "default", weights=False))


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> SimpleNamespace:
    """A plan of a network with skips, and everything that was made from it."""
    folder = tmp_path_factory.mktemp("planned")
    run(
        Config(
            model="zoo:mobilenet_v3_small",
            hardware=Hardware(buffer_bytes=64 * 1024),
            scheme="lbdf",
            search=SearchConfig(objective="bytes"),
        ),
        folder,
    )
    plan, graph = load_planned(folder)
    costs = GroupCosts(Dataflow.of(graph), plan.hardware)
    index = {operator.name: i for i, operator in enumerate(costs.dataflow.operators)}
    masks = tuple(sum(1 << index[name] for name in group.nodes) for group in plan.groups)
    return SimpleNamespace(
        folder=folder,
        plan=plan,
        graph=graph,
        costs=costs,
        masks=masks,
        modes=tuple(group.mode for group in plan.groups),
    )


def bytes_of(costs: GroupCosts, group: int) -> int:
    price = costs.price(group)
    assert price is not None
    return price.dram_bytes


def some_group(flow: Dataflow, rng: np.random.Generator, most: int) -> int:
    """A connected, convex group."""
    mask = 1 << int(rng.integers(len(flow)))
    for _ in range(most - 1):
        beside = 0
        for i in bits(mask):
            beside |= flow.neighbours[i]
        if not (beside := beside & ~mask):
            break
        larger = mask | 1 << int(rng.choice([*bits(beside)]))
        larger |= convex_gap(flow, larger)
        if larger.bit_count() > most or not connected(flow.neighbours, larger):
            break
        mask = larger
    return mask


# -- what takes the buffer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_takes_the_buffer_adds_up_to_the_need(mobilenet, scheme):
    rng = np.random.default_rng(3)
    costs = GroupCosts(mobilenet, Hardware(buffer_bytes=96 * 1024), scheme=scheme)
    for _ in range(25):
        mask = some_group(mobilenet, rng, 12)
        need, price = need_of(costs, mask), costs.price(mask)
        assert sum(use.bytes for use in need.uses) == need.bytes
        assert [use.bytes for use in need.uses if use.role != "gaps"] == sorted(
            (use.bytes for use in need.uses if use.role != "gaps"), reverse=True
        )
        assert all(use.rows * use.row_bytes in (use.bytes, 0) for use in need.uses)
        assert need.fits == (price is not None)
        if need.fits:
            assert price is not None and need.bytes == price.buffer_bytes
        elif not need.never:
            assert need.bytes == costs.smallest_need(mask)[1] >= costs.hardware.buffer_bytes


def planned_alone(graph: Graph, costs: GroupCosts, mask: int, buffer: int) -> PlannedGroup | None:
    """A group as the planner plans it on a buffer, all others unfused; None where it has no steps there."""
    names = costs.dataflow.names(mask)
    rest = (costs.dataflow.names(1 << i) for i in bits(costs.dataflow.everything & ~mask))
    groups = FusionScheme((names, *rest))
    outcome = plan(graph, groups, replace(costs.hardware, buffer_bytes=buffer), modes=costs.scheme)
    if isinstance(outcome, DoesNotFit):
        return None
    group = next(group for group in outcome.groups if {*group.nodes} == {*names})
    return None if group.unexecutable else group


def costs_of_group(
    graph: Graph, hardware: Hardware, scheme: str, rng: np.random.Generator
) -> tuple[GroupCosts, int]:
    """Costs with a group of a network, in which nothing is in flight from one group to another."""
    flow = GroupCosts.of(graph, hardware, scheme=scheme).dataflow
    mask = some_group(flow, rng, 6)
    names = [flow.names(mask), *(flow.names(1 << i) for i in bits(flow.everything & ~mask))]
    costs = GroupCosts.of(graph, hardware, scheme=scheme, groups=names)
    return costs, masks_of(costs.dataflow, names)[0]


@pytest.mark.parametrize("scheme", [*EVERY_SCHEME])
@pytest.mark.parametrize("seed", some(range(12)))
def test_on_the_smallest_sufficient_buffer_a_group_is_planned_and_on_one_byte_less_it_is_not(seed, scheme):
    rng = np.random.default_rng(seed)
    graph = FAMILIES[seed % len(FAMILIES)](rng)
    costs, mask = costs_of_group(graph, random_hardware(rng, graph), scheme, rng)
    need, moved = full_need(costs, mask, {})
    assert need.settled
    if not need.never:
        assert sum(use.bytes for use in need.uses) == need.bytes
        assert all(use.bytes > 0 for use in need.uses)
    assert (planned_alone(graph, costs, mask, costs.hardware.buffer_bytes) is not None) == need.fits
    if not need.enough:
        assert planned_alone(graph, costs, mask, 1 << 40) is None
        return
    smallest = planned_alone(graph, costs, mask, need.enough)
    assert smallest is not None
    assert moved in (None, smallest.dram.total)
    if need.enough > 1:
        assert planned_alone(graph, costs, mask, need.enough - 1) is None


def small_mobilenet(folder: Path) -> str:
    """Depthwise-separable pairs that a small buffer holds as one chain."""
    net = Net("small_mobilenet", seed=0, weights=False)
    image = net.image((1, 3, 32, 32))
    x = net.conv("stem", image, 8, 3, stride=2, act="relu6")
    for k, (channels, stride) in enumerate(((16, 1), (32, 2), (32, 1), (64, 2))):
        x = net.conv(f"pair{k}.depthwise", x, x.shape[1], 3, stride=stride, group=x.shape[1], act="relu6")
        x = net.conv(f"pair{k}.pointwise", x, channels, 1, act="relu6")
    onnx.save(net.model(image, x, "small"), folder / "small.onnx")
    return str(folder / "small.onnx")


@pytest.mark.parametrize(("scheme", "modes"), [("lbdf", {"tiled", "lbdf"}), ("all", {"chained", "strips"})])
def test_of_every_group_of_a_plan_explain_says_what_the_plan_does(tmp_path, scheme, modes):
    config = Config(
        model=small_mobilenet(tmp_path),
        scheme=scheme,
        hardware=Hardware(buffer_bytes=5000),
        search=SearchConfig(objective="bytes"),
    )
    run(config, tmp_path / "plan")
    outcome, graph = load_planned(tmp_path / "plan")
    costs = costs_of_plan(outcome, graph, outcome.hardware)
    masks = masks_of(costs.dataflow, [group.nodes for group in outcome.groups])
    ways = take_planned(costs, outcome, masks)
    assert modes <= {group.mode for group in outcome.groups}
    for mask, group in zip(masks, outcome.groups, strict=True):
        need, moved = full_need(costs, mask, ways)
        assert need.fits
        assert need.mode == group.mode
        assert need.bytes == group.allocated_bytes(outcome.hardware)
        assert sum(use.bytes for use in need.uses) == need.bytes
        assert need.enough <= need.bytes + 1
        assert moved is None or moved >= group.dram.total
        price = costs.price(mask)
        assert price is not None
        assert price.dram_bytes == group.dram.total


def test_a_constant_that_several_operators_read_takes_its_space_once():
    graph = load_network("zoo:squeezenet1_1", {}, "default", weights=False)
    flow = Dataflow.of(graph)
    convs = [i for i, operator in enumerate(flow.operators) if operator.kind == "Conv"]
    shared = list(flow.weights)
    shared[convs[1]] = shared[convs[0]]
    twice = replace(flow, weights=tuple(shared))
    costs = GroupCosts(twice, Hardware(buffer_bytes=1 << 16))
    mask = sum(1 << i for i in range(convs[0], convs[1] + 1))
    need = need_of(costs, mask)
    weights = [use.what for use in need.uses if use.role == "weights"]
    assert twice.operators[convs[0]].name in weights
    assert twice.operators[convs[1]].name not in weights
    assert sum(use.bytes for use in need.uses) == need.bytes == costs.groups.line_need(mask)


def test_bands_say_why_no_buffer_is_large_enough():
    flow = Dataflow.of(load_network("zoo:mobilenet_v3_small", {}, "default", weights=False))
    costs = GroupCosts(flow, Hardware(buffer_bytes=1 << 18), scheme="brr")
    excite = next(
        i for i, operator in enumerate(flow.operators) if operator.kind == "Mul" and "excite" in operator.name
    )
    mask = 1 << excite | sum(1 << p for p in bits(flow.preds[excite]))
    need = need_of(costs, mask | convex_gap(flow, mask))
    assert flow.operators[excite].name in need.never
    assert not need.fits
    assert need.enough == need.bytes == 0


# -- what repairs it -----------------------------------------------------------------------------------------


@given(graphs(3, 9), st.integers(0, 2**32), st.sampled_from(SCHEMES))
@settings(max_examples=60, deadline=None)
def test_groups_cost_the_same_in_a_dataflow_of_their_own(graph: Graph, seed: int, scheme: str):
    rng = np.random.default_rng(seed)
    flow = Dataflow.of(graph)
    assume(len(flow))
    costs = GroupCosts(flow, random_hardware(rng, graph), scheme=scheme)
    mask = some_group(flow, rng, 7)
    operators = [*bits(mask)]
    own = GroupCosts(Dataflow.of(excerpt(flow, mask)), costs.hardware, scheme=scheme)
    assert own.dataflow.names(own.dataflow.everything) == flow.names(mask)
    for _ in range(5):
        part = some_group(own.dataflow, rng, 5)
        outside = sum(1 << operators[k] for k in bits(part))
        assert own.price(part) == costs.price(outside)
        assert own.dram(part) == costs.dram(outside)
        assert own.least_need(part) == costs.least_need(outside)


@given(graphs(3, 9), st.integers(0, 2**32), st.sampled_from(SCHEMES))
@settings(max_examples=60, deadline=None)
def test_the_cheapest_cut_is_what_brute_force_finds(graph: Graph, seed: int, scheme: str):
    rng = np.random.default_rng(seed)
    flow = Dataflow.of(graph)
    assume(len(flow))
    costs = GroupCosts(flow, random_hardware(rng, graph), scheme=scheme)
    mask = some_group(flow, rng, 6)
    assume(mask.bit_count() > 1 and costs.price(mask) is None)
    best_cut = repair(costs, mask, {}, 10)
    assert best_cut.optimal
    assert (
        best_cut.dram_bytes
        == -max(brute(costs)(mask))
        == sum(bytes_of(costs, group) for group in best_cut.groups)
    )
    assert sum(best_cut.groups) == mask
    assert (
        best_cut.dram_bytes
        == best_cut.whole_bytes + sum(crossing.added for crossing in best_cut.crossings) + best_cut.again
    )
    assert whole_bytes(costs, mask) == costs.groups.once(mask).total == best_cut.whole_bytes
    for crossing in best_cut.crossings:
        assert 0 < crossing.added == crossing.bytes * (crossing.added // crossing.bytes)


def test_where_the_exact_search_has_no_time_the_best_split_is_taken(mobilenet):
    costs = GroupCosts(mobilenet, Hardware(buffer_bytes=256 * 1024))
    mask = (1 << 60) - 1
    by = Explainers.of(costs, ("analytic",), 0)
    split = by.by_name["analytic"][1](mask)
    best_cut = repair(costs, mask, {"analytic": split}, 1e-9)
    assert (best_cut.by, best_cut.groups) == ("analytic", split)
    assert not best_cut.optimal
    best = repair(costs, mask, {"analytic": split}, 30)
    assert best_cut.lower_bound_bytes <= best.dram_bytes <= best_cut.dram_bytes
    assert best.by == "exact"


def test_all_that_is_said_of_a_group(mobilenet):
    costs = GroupCosts(mobilenet, Hardware(buffer_bytes=256 * 1024))
    mask, _ = chosen(mobilenet, "stem..stage3.block1.expand")
    explanation = explained(costs, mask, Explainers.of(costs, ("random", "analytic"), 0), 10)
    assert explanation.repair is not None
    assert explanation.links.shape == links(mobilenet, mask).shape
    assert [blame.explainer for blame in explanation.blames] == ["random", "analytic"]
    for blame in explanation.blames:
        assert sorted(blame.ranking) == list(range(explanation.links.shape[1]))
        assert list(blame.scores[blame.ranking]) == sorted(blame.scores, reverse=True)
        assert blame.groups is not None and blame.dram_bytes is not None and sum(blame.groups) == mask
        assert (
            blame.dram_bytes
            == sum(bytes_of(costs, group) for group in blame.groups)
            >= explanation.repair.dram_bytes
        )
    cut = divided(explanation.links, explanation.repair.groups)
    assert 0 < sum(cut) < len(cut)
    data = json.loads(json.dumps(as_data(explanation, mobilenet)))
    assert data["over_bytes"] == data["needed_bytes"] - data["available_bytes"] + 1 > 0
    assert data["operators"] == [name for group in data["cut"]["groups"] for name in group]
    assert data["cut"]["links"] == [k for k, through in enumerate(cut) if through]


def test_a_group_that_fits_is_not_cut(mobilenet):
    costs = GroupCosts(mobilenet, Hardware(buffer_bytes=1 << 20))
    mask, _ = chosen(mobilenet, "stem..stem.relu6")
    explanation = explained(costs, mask, Explainers.of(costs, (), 0), 10)
    assert explanation.need.fits
    assert explanation.repair is None
    assert not explanation.blames
    assert explanation.alone_bytes is not None and explanation.cost is not None
    assert explanation.alone_bytes - explanation.cost.dram_bytes == 2 * costs.hardware.dram_bytes(
        mobilenet.maps[mobilenet.results[0][0]]
    )


def test_explainers_that_nobody_named_are_those_that_can_be_had(mobilenet):
    costs = GroupCosts(mobilenet, Hardware(buffer_bytes=1 << 18), scheme="auto")
    assert [*Explainers.of(costs, (), 0).by_name] == ["analytic"]  # no predictor knows this scheme
    with pytest.raises(InvalidConfig, match="--explainer rg: "):
        Explainers.of(costs, ("rg",), 0)


def test_an_explainer_that_is_asked_for_answers_where_the_group_fits(mobilenet):
    costs = GroupCosts(mobilenet, Hardware(buffer_bytes=1 << 20))
    mask, _ = chosen(mobilenet, "stem..stage1.block1.project")
    explanation = explained(costs, mask, Explainers.of(costs, ("analytic", "pg"), 0), 10)
    assert explanation.need.fits
    assert [blame.explainer for blame in explanation.blames] == ["analytic", "pg"]
    for blame in explanation.blames:
        assert np.isfinite(blame.scores).any()
        assert blame.groups is None  # there is nothing to split


def test_an_explainer_without_its_library_says_so_and_costs_no_other_answer(mobilenet, monkeypatch):
    """The library is torch_geometric, not torch, which may well be there."""
    pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "explainers.gnn_explainer", raising=False)
    for module in [name for name in sys.modules if name.startswith("torch_geometric")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    costs = GroupCosts(mobilenet, Hardware(buffer_bytes=1 << 16))
    mask, _ = chosen(mobilenet, "stem..stage3.block1.expand")
    both = Explainers.of(costs, ("gnne", "analytic"), 0)
    assert "torch_geometric" in both.missing["gnne"]
    data = as_data(explained(costs, mask, both, 1.0), mobilenet)
    assert [*data["explainers"]] == ["analytic"]
    assert data["missing_explainers"] == both.missing
    with pytest.raises(InvalidConfig, match="--explainer gnne: gnne needs torch_geometric"):
        Explainers.of(costs, ("gnne",), 0)


# -- which operators are meant -------------------------------------------------------------------------------


def test_nodes_are_ranges_and_lists_made_convex_and_connected(mobilenet):
    def names(text: str) -> tuple[str, ...]:
        return mobilenet.names(chosen(mobilenet, text)[0])

    block = names("stage2.block2.expand..stage2.block2.add")
    assert block == names("stage2.block2.add..stage2.block2.expand")
    assert "comes before" in chosen(mobilenet, "stage2.block2.add..stage2.block2.expand")[1][0]
    assert block[0] == "stage2.block2.expand"
    assert block[-1] == "stage2.block2.add"
    mask, notes = chosen(mobilenet, "stage2.block2.expand, stage2.block2.add")
    assert mobilenet.names(mask) == block
    assert len(notes) == 1
    assert all(name in notes[0] for name in block[1:4])
    assert names("stem") == ("stem",)


def test_operators_that_hang_together_by_nothing_are_joined_by_the_shortest_way():
    flow = Dataflow.of(load_network("zoo:squeezenet1_1", {}, "default", weights=False))
    two = [i for i, operator in enumerate(flow.operators) if operator.kind == "Relu"]
    branches = next((a, b) for a in two for b in two if a < b and not flow.ancestors[b] >> a & 1)
    mask, notes = chosen(flow, ",".join(flow.operators[i].name for i in branches))
    assert connected(flow.neighbours, mask)
    assert not convex_gap(flow, mask)
    assert "are not connected" in notes[0]
    for i in branches:
        assert mask >> i & 1
    with pytest.raises(InvalidConfig, match="no path leads"):
        chosen(flow, f"{flow.operators[branches[0]].name}..{flow.operators[branches[1]].name}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stage2.blok2.add", "did you mean stage2.block2.add"),
        ("zzz", "accepted: names of operators, e.g. stem"),
        ("", "found ''"),
        ("stem..", "found ''"),
    ],
)
def test_names_that_are_no_operators_are_refused_with_close_ones(mobilenet, text, said):
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        chosen(mobilenet, text)


def test_a_view_stands_for_the_operator_whose_result_it_is(mobilenet):
    view = next(
        operator.name for operator in mobilenet.graph.operators if operator.kind in ("Reshape", "Flatten")
    )
    mask, notes = chosen(mobilenet, view)
    assert mobilenet.names(mask) == ("pool",)
    assert "is a view" in notes[0]
    assert "'pool'" in notes[0]


def exported_block(folder: Path) -> str:
    """A convolution with what exporters leave around it."""
    node = onnx.helper.make_node
    nodes = [
        node("Identity", ["x"], ["x1"], "same"),
        node("Constant", [], ["one"], "one", value=onnx.numpy_helper.from_array(np.array(1, np.float32))),
        node("Conv", ["x1", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "b", "b", "scale"], ["n"], "norm"),
        node("Dropout", ["n"], ["d"], "drop"),
        node("Add", ["d", "one"], ["e"], "plus*"),
        node("Abs", ["d"], ["unused"], "unused"),
        node("Sigmoid", ["e"], ["s"], "gate"),
        node("Mul", ["e", "s"], ["m"], "swish"),
        node("MaxPool", ["m"], ["p"], "pool", kernel_shape=[2, 2]),
        node("Flatten", ["p"], ["y"], "flat"),
    ]
    rng = np.random.default_rng(0)
    weights = {"w": (4, 4, 3, 3), "scale": (4,), "b": (4,)}
    graph = onnx.helper.make_graph(
        nodes,
        "block",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 8, 8])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 196])],
        [
            onnx.numpy_helper.from_array(rng.random(shape, np.float32), name)
            for name, shape in weights.items()
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    onnx.save(model, folder / "b.onnx")
    return str(folder / "b.onnx")


def flow_of(file: str, folder: Path | None) -> Dataflow:
    """A network as its file has it, or as a plan that is in a folder, without the file."""
    if folder is None:
        return Dataflow.of(load_network(file, {}, "default"))
    run(
        Config(model=file, hardware=Hardware(1 << 16), scheme="lbdf", search=SearchConfig(objective="bytes")),
        folder,
    )
    Path(file).unlink()
    return Dataflow.of(load_planned(folder)[1])


@pytest.mark.parametrize("saved", [False, True], ids=["file", "plan"])
@pytest.mark.parametrize(
    ("name", "operators", "said"),
    [
        ("conv", "conv", ""),
        ("norm", "conv", "'norm' (BatchNormalization) became part of 'conv'"),
        ("drop", "conv", "'drop' (Dropout) was removed: it passes on what 'conv' makes"),
        ("plus*", "plus%2A", ""),
        ("same", "conv", "'same' (Identity) became part of 'conv'"),
        ("one", "plus%2A", "'one' (Constant) gives a constant that is read by 'plus%2A'"),
        ("gate", "gate", ""),
        ("flat", "pool", "'flat' is a view (Flatten)"),
        ("m", "swish", "'m' is a tensor that 'swish' makes"),
        ("x", "conv", "'x' is an input of the network that is read by 'conv'"),
        ("n", "conv", "'n' is a tensor that 'conv' makes"),
        ("c", "conv", "'c' is a tensor that became part of 'conv'"),
    ],
)
def test_a_name_of_the_file_stands_for_what_became_of_it(tmp_path, saved, name, operators, said):
    flow = flow_of(exported_block(tmp_path), tmp_path / "plan" if saved else None)
    mask, notes = chosen(flow, [name])
    assert flow.names(mask) == (operators,)
    assert bool(notes) == bool(said)
    assert said in "".join(notes)


@pytest.mark.parametrize("saved", [False, True], ids=["file", "plan"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unused", "'unused' (Abs) was dropped: no output of the network depends on it"),
        ("nomr", "'nomr', which is no operator of "),
        ("nomr", "; did you mean norm?"),
    ],
)
def test_a_name_that_nothing_came_of_is_refused_with_the_reason(tmp_path, saved, name, said):
    flow = flow_of(exported_block(tmp_path), tmp_path / "plan" if saved else None)
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        chosen(flow, [name])


def test_a_plan_of_an_older_version_knows_the_names_of_its_own_network(tmp_path):
    flow = flow_of(exported_block(tmp_path), tmp_path / "plan")
    model = onnx.load(tmp_path / "plan/simplified.onnx")
    del model.metadata_props[:]
    flow = Dataflow.of(from_model(model))
    assert flow.names(chosen(flow, ["conv"])[0]) == ("conv",)
    with pytest.raises(InvalidConfig, match="'norm', which is no operator of "):
        chosen(flow, ["norm"])


def test_an_operator_in_flight_stands_for_its_flight(tmp_path):
    file = exported_block(tmp_path)
    costs = GroupCosts.of(load_network(file, {}, "default"), Hardware(1 << 16), scheme="all")
    mask, notes = chosen(costs.dataflow, "swish")
    assert costs.dataflow.names(mask) == ("conv", "plus%2A", "gate", "swish")
    assert notes == ("--nodes: swish runs in one step with conv",)


def test_every_name_of_a_file_has_a_fate():
    """Operators of networks that loading writes out, folds, fuses and removes."""
    for label in ("zoo:vit_tiny", "zoo:cells_windows@7"):
        costs = GroupCosts.of(load_network(label, {}, "default", weights=False), Hardware(1 << 16))
        fates = Fates(costs.dataflow, costs.dataflow.graph.files[0])
        saved = GroupCosts.of(from_model(to_model(costs.dataflow.graph)), Hardware(1 << 16))
        names = [node.name for node in zoo.build(label.removeprefix("zoo:"), weights=False).graph.node]
        assert not [name for name in names if (fate := fates.fate(name)) is None or not fate.operators]
        again = Fates(saved.dataflow, saved.dataflow.graph.files[0])
        assert [again.fate(name) for name in names] == [fates.fate(name) for name in names]


# -- neighbours ----------------------------------------------------------------------------------------------


def test_growths_say_what_the_cost_model_says(planned):
    costs, masks = planned.costs, planned.masks
    flow, beta = costs.dataflow, costs.hardware.buffer_bytes
    seen = set()
    for g in range(len(masks)):
        options = growths(costs, masks, planned.modes, g)
        assert [growth.cut.saves for growth in options] == sorted(
            (growth.cut.saves for growth in options), reverse=True
        )
        for growth in options:
            merged, left = masks[g] | growth.operators, masks[growth.group] & ~growth.operators
            cut, others = growth.cut, [mask for k, mask in enumerate(masks) if k not in (g, growth.group)]
            seen.add((cut.verdict, growth.whole))
            assert growth.whole == (not left)
            parts = components(flow, left)
            scheme = FusionScheme(tuple(flow.names(mask) for mask in (merged, *parts, *others)))
            assert legal(planned.graph, scheme).legal == (cut.verdict != "cycle")
            before = sum(costs.dram(masks[k]).total for k in (g, growth.group))
            kept = sum(costs.dram(part).total for part in parts)
            if cut.verdict == "overflows":
                assert cut.needed == costs.groups.line_need(merged) >= beta
                assert cut.enough == cut.needed + 1
                assert cut.saves == before - kept - whole_bytes(costs, merged)
            elif cut.verdict in ("gain", "no gain"):
                assert cut.saves == before - kept - costs.price(merged).dram_bytes
    assert {("overflows", True), ("overflows", False), ("cycle", False)} <= seen


def components(flow: Dataflow, mask: int) -> list[int]:
    parts = []
    while mask:
        part = mask & -mask
        while True:
            larger = part
            for i in bits(part):
                larger |= flow.neighbours[i] & mask
            if larger == part:
                break
            part = larger
        parts.append(part)
        mask &= ~part
    return parts


def test_an_optimal_plan_cuts_every_pair_of_its_groups_best(planned):
    assert planned.plan.totals.proof == "optimal"
    pairs = [cut for cut in cuts(planned.costs, planned.masks, planned.modes) if cut.verdict == "overflows"]
    assert pairs
    for cut in pairs[::4]:
        best_cut = repair(planned.costs, planned.masks[cut.before] | planned.masks[cut.after], {}, 10)
        assert best_cut.dram_bytes == sum(
            planned.costs.dram(planned.masks[g]).total for g in (cut.before, cut.after)
        )


# -- the command ---------------------------------------------------------------------------------------------


def figures(text: str) -> set[int]:
    return {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)}


@pytest.mark.parametrize("columns", [80, 120])
def test_explain_says_what_overflows_and_what_repairs_it_on_one_screen(lfopt, tmp_path, columns):
    arguments = (
        "explain",
        "zoo:mobilenet_v2",
        "--nodes",
        "stem..stage3.block1.expand",
        "--explainer",
        "analytic",
        "random",
        "--json",
        "x.json",
    )
    done = lfopt(*arguments, columns=columns)
    data = json.loads((tmp_path / "x.json").read_text())
    said = figures(done.stdout)
    assert {
        data["needed_bytes"],
        data["over_bytes"],
        data["smallest_sufficient_buffer_bytes"],
        data["dram_bytes_in_one_group"],
    } <= said
    assert {data["cut"]["dram_bytes"], *(crossing["added"] for crossing in data["cut"]["crossing"])} <= said
    assert {use["bytes"] for use in data["takes"][:6]} <= said
    assert all(scored["split_dram_bytes"] in said for scored in data["explainers"].values())
    assert data["cut"]["proof"] == "optimal"
    assert "proven optimal" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert len(done.stdout.splitlines()) <= 50
    assert not done.stderr


def test_explain_of_a_plan_says_what_a_group_saves_and_how_it_could_grow(lfopt, planned, tmp_path):
    g = next(
        k for k, group in enumerate(planned.plan.groups) if group.mode == "lbdf" and len(group.nodes) > 2
    )
    done = lfopt("explain", planned.folder, "--group", g, "--grow", "--json", "x.json")
    data = json.loads((tmp_path / "x.json").read_text())
    group = planned.plan.groups[g]
    assert data["fits"]
    assert data["operators"] == list(group.nodes)
    assert data["needed_bytes"] == group.allocated_bytes(planned.plan.hardware)
    assert {
        group.allocated_bytes(planned.plan.hardware),
        planned.plan.hardware.buffer_bytes - group.allocated_bytes(planned.plan.hardware),
        data["dram_bytes_one_by_one"] - data["dram_bytes"],
    } <= figures(done.stdout)
    for growth in data["grown"]:
        if growth["verdict"] != "cycle":
            assert {abs(growth["saved_bytes"])} <= figures(done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 80
    with_more = lfopt("explain", planned.folder, "--group", g, "--buffer", "16MiB").stdout
    assert "fits" in with_more


def test_a_figure_has_a_link_for_every_score_as_wide_as_it_is_blamed_and_names_as_text(mobilenet, tmp_path):
    flow, costs = mobilenet, GroupCosts(mobilenet, Hardware(128 << 10))
    explanation = explained(costs, (1 << 24) - 1, Explainers.of(costs, ("analytic", "random"), 0), 2.0)
    assert explanation.repair is not None
    drawn = figure(explanation, flow, "<b>$x$</b>")
    panels = [axes for axes in drawn.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left").partition(":")[0] for axes in panels] == ["analytic", "random"]
    for axes, blame in zip(panels, explanation.blames, strict=True):
        widths = [patch.get_linewidth() for patch in axes.patches if isinstance(patch, PathPatch)]
        assert np.array_equal(np.argsort(widths, kind="stable"), np.argsort(blame.scores, kind="stable"))
        # bars: the cheapest cut
        assert len(axes.lines) == sum(divided(explanation.links, explanation.repair.groups)) > 0
        colours = [patch.get_facecolor() for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
        assert len(colours) == 24 and len({*colours}) == min(len(explanation.repair.groups), len(FILLS))
    for kind in ("svg", "PNG"):
        write_figure(tmp_path / f"new/a.{kind}", explanation, flow, "<b>$x$</b>")
    texts = [text.text for text in ET.parse(tmp_path / "new/a.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert any((text or "").startswith("<b>$x$</b>: 24 operators") for text in texts) and "stem" in texts
    assert (tmp_path / "new/a.PNG").read_bytes().startswith(b"\x89PNG")
    fits = explained(costs, 1, Explainers({}), 1.0)
    assert not [axes for axes in figure(fits, flow, "one").axes if axes.lines]
    with pytest.raises(InvalidConfig, match=r"found a group of 500 operators; accepted: up to 400"):
        write_figure(tmp_path / "a.svg", replace(fits, group=(1 << 500) - 1), flow, "")


def test_explain_of_a_plan_says_what_became_of_a_name_of_its_file(lfopt, tmp_path):
    file = exported_block(tmp_path)
    of_file = lfopt("explain", file, "--nodes", "norm")
    lfopt("search", file, "--buffer", "64KiB", "--scheme", "lbdf", "--out", "plan")
    Path(file).unlink()
    of_plan = lfopt("explain", "plan", "--nodes", "norm")
    assert (
        of_plan.stderr
        == of_file.stderr
        == "note: --nodes: 'norm' (BatchNormalization) became part of 'conv'\n"
    )
    assert "1 operator, conv" in of_plan.stdout


def test_a_plan_whose_names_of_the_file_are_no_names_is_one_line_and_exit_code_2(lfopt, tmp_path):
    lfopt("search", exported_block(tmp_path), "--buffer", "64KiB", "--out", "plan")
    path = tmp_path / "plan/simplified.onnx"
    path.write_bytes(path.read_bytes().replace(b"norm\tBatchNorm", b"no\nm\tBatchNorm"))
    data = json.loads((tmp_path / "plan/plan.json").read_text())
    data["model"]["sha256"] = sha256(path)
    (tmp_path / "plan/plan.json").write_text(json.dumps(data))
    done = lfopt("explain", "plan", "--nodes", "conv", check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert (
        "simplified.onnx: metadata 'lfopt.operators': line 4: found 'no'; accepted: an operator"
        in done.stderr
    )


def test_wrong_input_to_explain_says_what_is_accepted(planned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = "zoo:fsrcnn"
    first = Dataflow.of(load_network(model, {}, "default", weights=False)).operators[0].name
    cases: list[tuple[str, dict[str, Any], str]] = [
        (model, {}, "neither --nodes nor --group"),
        (model, {"nodes": first, "group": 1}, "both --nodes and --group"),
        (model, {"group": 1}, "which is no plan"),
        (model, {"nodes": first[:-1] + "?"}, f"did you mean {first}"),
        (model, {"nodes": first, "grow": True}, "--grow: found no --group"),
        (model, {"nodes": first, "top": 0}, "--top: found 0"),
        (model, {"nodes": first, "time_limit": 0}, "--time-limit: found 0"),
        (model, {"nodes": first, "save": Path("a.gif")}, "--save: found a.gif; accepted: NAME.svg, NAME.png"),
        (model, {"nodes": first, "buffer": "much"}, "--buffer: found 'much'"),
        (model, {"nodes": first, "scheme": "auto", "explainer": ("rg",)}, "--explainer rg: "),
        (str(planned.folder), {"group": 500}, "--group: found 500; accepted: a group of the plan, 0 to"),
        ("zoo:nothing", {"nodes": "a"}, "is not in the zoo"),
    ]
    for target, options, said in cases:
        with pytest.raises(LfoptError, match=re.escape(said)):
            explain(target, **options)
    assert not [*tmp_path.iterdir()]


def test_wrong_input_to_explain_is_one_line_and_exit_code_2(lfopt):
    for arguments in (
        ("zoo:fsrcnn", "--nodes", "x"),
        ("nowhere.json", "--group", "0"),
        ("zoo:fsrcnn", "--nodes", "x", "--explainer", "best"),
    ):
        done = lfopt("explain", *arguments, check=False)
        assert done.returncode == 2, arguments
        assert "explainer" in arguments[-2] or len(done.stderr.strip().splitlines()) == 1, arguments
