"""The function `plan`: from a graph, a fusion scheme and a chip to a plan, without a file."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from lfopt.app.compiled import print_graph
from lfopt.app.plans import make_draft, write_files
from lfopt.app.report.summary import page_of
from lfopt.app.verify import load_planned, verify
from lfopt.frontend import from_model
from lfopt.ir import (
    DoesNotFit,
    FusionScheme,
    Graph,
    Hardware,
    InvalidConfig,
    InvalidPlan,
    ModelReference,
    Plan,
    line_count,
)
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Limit, Traffic, plan
from search.exact import solve
from simulator.recount import recount
from tests.cases import some
from tests.strategies import random_graph, random_hardware
from tests.test_tiny import residual_block

CHIP = Hardware(1 << 20)
TWO = (("conv1", "relu"), ("conv2", "add"))


@pytest.fixture
def graph() -> Graph:
    return from_model(residual_block())


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes, or asks for a temporary folder, fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file")

    for where, name in (
        (tempfile, "mkdtemp"),
        (tempfile, "mkstemp"),
        (Path, "open"),
        (Path, "mkdir"),
        (Path, "write_bytes"),
        (Path, "write_text"),
    ):
        monkeypatch.setattr(where, name, refuse)


def planned(graph: Graph, groups: tuple[tuple[str, ...], ...], hardware: Hardware = CHIP) -> Plan:
    result = plan(graph, FusionScheme(groups), hardware)
    assert isinstance(result, Plan)
    return result


def test_a_scheme_becomes_a_plan_whose_every_claim_holds(graph: Graph, no_files: None) -> None:
    planned_scheme = planned(graph, TWO)
    assert [group.nodes for group in planned_scheme.groups] == list(TWO)
    assert all(group.steps for group in planned_scheme.groups)
    assert recount(graph, planned_scheme).agrees
    totals = planned_scheme.totals
    assert totals.compulsory_bytes <= totals.lower_bound_bytes < totals.dram_bytes
    assert (totals.proof, planned_scheme.search.method) == ("bound", "given")


def test_what_a_search_finds_plans_the_same_by_name() -> None:
    for seed in some(range(200)):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 9)))
        costs = GroupCosts(
            Dataflow.of(graph), random_hardware(rng, graph), Traffic.TILED, scheme=("lbdf", "auto")[seed % 2]
        )
        result = solve(costs)
        draft = make_draft(graph, costs, result, result.lower_bound_bytes)
        scheme = FusionScheme(tuple(group.nodes for group in draft.plan.groups))
        again = plan(
            graph,
            scheme,
            costs.hardware,
            modes=costs.scheme,
            lower_bound_bytes=result.lower_bound_bytes,
            search=draft.plan.search,
        )
        assert again == draft.finished(), f"seed {seed}"


@pytest.mark.parametrize("seed", [1, 9, 66, 100])
def test_groups_of_many_lines_are_cut_where_a_plan_has_room_for_few(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(4, 12)))
    costs = GroupCosts(Dataflow.of(graph), random_hardware(rng, graph), Traffic.TILED)
    result = solve(costs)
    draft = make_draft(graph, costs, result, result.lower_bound_bytes)
    whole = draft.finished()
    lines = sum(line_count(group.steps) for group in whole.groups)
    assert draft.finished_with_all_steps(lines) == whole
    cut = draft.finished_with_all_steps(lines - 1)
    assert len(cut.groups) > len(whole.groups)
    assert not cut.groups_without_steps
    assert sum(line_count(group.steps) for group in cut.groups) < lines
    assert recount(graph, cut).agrees


def test_groups_may_come_in_any_order(graph: Graph) -> None:
    alone = (("conv1",), ("relu",), ("conv2",), ("add",))
    expected = planned(graph, alone)
    for order in permutations(alone):
        assert planned(graph, order) == expected
        assert recount(graph, planned(graph, order)).agrees


def test_a_group_that_does_not_fit_is_a_value(graph: Graph) -> None:
    misfit = plan(graph, FusionScheme((("conv1", "relu", "conv2", "add"),)), Hardware(300))
    assert isinstance(misfit, DoesNotFit)
    assert misfit.needed >= misfit.available == 300


def test_a_scheme_that_is_not_legal_is_refused_with_the_reason(graph: Graph) -> None:
    with pytest.raises(
        InvalidPlan, match=r"^scheme: not legal: group 0 is not convex: 'conv2' lies between its operators$"
    ):
        plan(graph, FusionScheme((("conv1", "add"), ("relu",), ("conv2",))), CHIP)


@pytest.mark.parametrize(
    ("name", "value"),
    [("modes", "fast"), ("modes", None), ("traffic", "none"), ("band_rows", 0), ("band_rows", "all")],
)
def test_options_are_checked_by_name(graph: Graph, name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}: found {value!r}; accepted: "):
        plan(graph, FusionScheme(TWO), CHIP, **{name: value})  # type: ignore[arg-type]


def test_options_are_those_of_the_plan(graph: Graph) -> None:
    planned_scheme = plan(
        graph,
        FusionScheme(TWO),
        CHIP,
        modes="auto",
        traffic="once",
        epilogue=False,
        band_rows="max",
        limit=Limit(most=0),
    )
    assert isinstance(planned_scheme, Plan)
    assert (planned_scheme.scheme, planned_scheme.traffic, planned_scheme.epilogue) == ("auto", "once", False)
    assert all(group.unwritten for group in planned_scheme.groups)
    banded = plan(graph, FusionScheme(TWO), CHIP, band_rows=4)
    assert isinstance(banded, Plan)
    assert {group.band_rows for group in banded.groups} == {4}


def test_a_plan_refers_to_a_file_once_it_is_written(graph: Graph, tmp_path: Path) -> None:
    planned_scheme = planned(graph, TWO)
    assert not planned_scheme.model.written
    written = write_files(planned_scheme, graph, tmp_path)
    assert written.model.written
    assert verify(tmp_path).wrong == ()
    assert load_planned(tmp_path)[0] == written == replace(planned_scheme, model=written.model)


def test_a_plan_that_was_not_written_makes_a_page_and_says_so_in_check(graph: Graph, tmp_path: Path) -> None:
    planned_scheme = planned(graph, TWO)
    page = page_of(planned_scheme, graph, 0.0, 0.0)
    assert "a scheme that was given, not searched" in page
    assert "SHA-256" not in page
    write_files(planned_scheme, graph, tmp_path)
    text = (tmp_path / "plan.json").read_text()
    digest = write_files(planned_scheme, graph, tmp_path).model.sha256
    (tmp_path / "plan.json").write_text(text.replace(digest, ""))
    assert "the plan was made for no file" in verify(tmp_path).wrong[0]


@pytest.mark.parametrize("digest", ["0" * 63, "g" * 64, "../x"])
def test_a_reference_has_a_digest_or_none(digest: str) -> None:
    with pytest.raises(InvalidPlan, match=r"^model\.sha256: found "):
        ModelReference("m", digest, "simplified.onnx")


def test_printing_a_network_needs_no_folder(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a folder")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    assert "model.c" in print_graph(graph, target="c99").files
