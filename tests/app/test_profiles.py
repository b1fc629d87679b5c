"""Bands chosen by measuring: what is measured is kept, shared between models, and believed."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.build import find_compiler
from lfopt.app.compiled import compile_graph, cpu_model
from lfopt.app.pipeline import load_network
from lfopt.app.plans import make_draft
from lfopt.app.profiles import Profiles, code_of, group_times, latency_here, measured, tuned
from lfopt.ir import CannotWrite, Graph, Hardware, InvalidConfig
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, Propose
from lfopt.zoo.blocks import gate
from lfopt.zoo.builder import Net
from search.dnnfusion import grow_blocks
from search.exact import solve
from search.options import SearchOptions
from search.result import Result

SMALL = {"image": (1, 3, 64, 64)}
CHIP = Hardware(256 * 1024, element_bytes=4)


def searched(name: str) -> tuple[Graph, GroupCosts, Result]:
    graph = load_network(f"zoo:{name}", SMALL, "default")
    small = GroupCosts(Dataflow.of(graph), Hardware(64 * 1024, element_bytes=4), scheme="lbdf")
    return (
        graph,
        GroupCosts(small.dataflow, CHIP, scheme="lbdf"),
        solve(cpu_model(small), SearchOptions(time_limit=20)),
    )


class Clock:
    """Times by a rule, in place of a machine."""

    def __init__(self, graph: Graph, costs: GroupCosts, searched: Result) -> None:
        self.graph, self.costs, self.searched = graph, costs, searched
        self.calls = 0

    def __call__(self, bands: Propose) -> Sequence[float]:
        self.calls += 1
        plan = make_draft(self.graph, self.costs, self.searched, 0, bands=bands).finished()
        return [abs(group.band_rows - 4) + 1.0 for group in plan.groups]


def test_the_fastest_bands_are_proposed_and_measured_once(tmp_path: Path) -> None:
    graph, costs, searched_plan = searched("mobilenet_v2")
    profiles, clock = Profiles(tmp_path / "a" / "profiles.sqlite", "here"), Clock(graph, costs, searched_plan)
    propose = tuned(costs, searched_plan.groups, profiles, clock)
    plan = make_draft(graph, costs, searched_plan, 0, bands=propose).finished()
    assert sum(group.band_rows == 4 for group in plan.groups) > 3
    measured = clock.calls
    assert 2 <= measured <= 5
    again = tuned(costs, searched_plan.groups, profiles, clock)
    assert clock.calls == measured, "all was known"
    assert [again(group) for group in searched_plan.groups] == [
        propose(group) for group in searched_plan.groups
    ]
    tuned(costs, searched_plan.groups, Profiles(profiles.path, "elsewhere"), clock)
    assert clock.calls > measured, "another machine knows nothing"


def test_equal_groups_share_what_was_measured_whatever_their_model() -> None:
    _, first, searched_plan = searched("mobilenet_v2")
    graph, _, _ = searched("mobilenet_v2")
    second = GroupCosts(Dataflow.of(replace(graph, name="another")), CHIP, scheme="lbdf")
    codes = [code_of(first, group) for group in searched_plan.groups]
    assert codes == [code_of(second, group) for group in searched_plan.groups]
    assert len(set(codes)) < len(codes), "repeated blocks are one group"


def another_table(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE profile (machine TEXT)")


DAMAGES = {
    "no database": lambda path: path.write_text("no database" * 100),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a byte less": lambda path: os.truncate(path, path.stat().st_size - 1),
    "a bit of a time": lambda path: path.write_bytes(
        path.read_bytes().replace(struct.pack(">d", 0.123), struct.pack(">d", 0.125), 1)
    ),
    "another table": another_table,
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_database_is_set_aside_with_a_note_and_begun_anew(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profiles.sqlite"
    for _ in range(2):  # the second is set aside where the first lies
        Profiles(path, "here").add([((f"code{k}", 1), 0.123) for k in range(100)])
        assert len(Profiles(path, "here").seconds()) == 100
        assert capsys.readouterr().err == ""
        path.with_name("profiles.sqlite-journal").write_text("of a run that was killed")
        DAMAGES[kind](path)
        profiles = Profiles(path, "here")
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"note: {path}: ")
        assert profiles.seconds() == {}
        assert sorted(file.name for file in tmp_path.iterdir()) == [
            "profiles.sqlite",
            "profiles.sqlite.damaged",
        ]


def test_a_database_that_others_may_write_is_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.sqlite"
    Profiles(path, "here").add([(("a", 1), 1.0)])
    assert Profiles(path, "here").seconds() == {("a", 1): 1.0}
    path.chmod(0o666)
    assert Profiles(path, "here").seconds() == {}
    assert "other users may write it; it is set aside" in capsys.readouterr().err


def test_a_database_that_goes_away_meanwhile_is_begun_anew(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path / "profiles.sqlite", "here")
    profiles.add([(("code", 1), 0.5)])
    profiles.path.unlink()
    assert profiles.seconds() == {}
    profiles.add([(("code", 1), 0.25)])
    assert profiles.seconds() == {("code", 1): 0.25}


def test_a_place_where_no_database_can_be_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="file: cannot be written: File exists"):
        Profiles(tmp_path / "file" / "profiles.sqlite", "here")
    profiles = Profiles(tmp_path / "profiles.sqlite", "here")
    (tmp_path / "profiles.sqlite").mkdir()
    with pytest.raises(InvalidConfig, match="unable to open database file; accepted: a database of profiles"):
        profiles.seconds()


def test_times_of_groups_are_taken_where_they_run() -> None:
    graph, costs, searched_plan = searched("squeezenet1_1")
    plan = make_draft(graph, costs, searched_plan, 0).finished()
    inputs = {"image": np.zeros((1, 3, 64, 64), np.float32)}
    times = group_times(plan, graph, "native", 2, find_compiler(), inputs)
    assert len(times) == len(plan.groups)
    assert all(0 < seconds < 10 for seconds in times)


def test_a_tuned_model_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graph = load_network("zoo:mobilenet_v3_small", SMALL, "default")
    model, was_kept = compile_graph(graph, hardware=CHIP, tune=True)
    assert not was_kept
    assert (tmp_path / "lfopt" / "profiles.sqlite").exists()
    image = {"image": np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32)}
    expected = reference(graph, image)
    for name, values in model.run(image).items():
        assert np.abs(values - expected[name]).max() <= 2e-5 * np.abs(expected[name]).max()
    assert compile_graph(graph, hardware=CHIP, tune=True)[1]


def test_a_group_is_measured_once_alone_whatever_its_model(tmp_path: Path) -> None:
    _, costs, searched_plan = searched("mobilenet_v2")
    profiles = Profiles(tmp_path / "profiles.sqlite", "here")
    asked: list[int] = []

    def timed(group: int) -> float:
        asked.append(group)
        return float(group.bit_count())

    times = [measured(costs, profiles, timed)(group) for group in searched_plan.groups]
    assert times == [float(group.bit_count()) for group in searched_plan.groups]
    assert (
        len(asked)
        == len({code_of(costs, group) for group in searched_plan.groups})
        < len(searched_plan.groups)
    )
    bands = tuned(costs, searched_plan.groups, profiles, lambda propose: [1.0] * len(searched_plan.groups))
    assert [bands(group) for group in searched_plan.groups], "bands and groups alone are kept apart"
    roomy = GroupCosts(costs.dataflow, replace(CHIP, buffer_bytes=CHIP.buffer_bytes + 1), scheme="lbdf")
    assert [measured(roomy, profiles, timed)(group) for group in searched_plan.groups] == times, (
        "the same code"
    )


def test_a_group_that_no_plan_has_takes_forever(tmp_path: Path) -> None:
    _, costs, _ = searched("mobilenet_v2")
    tiny = GroupCosts(costs.dataflow, Hardware(100, element_bytes=4), scheme="lbdf")
    assert measured(tiny, Profiles(tmp_path / "profiles.sqlite", "here"), lambda group: 1.0)(
        costs.dataflow.everything
    ) == float("inf")


def test_the_machine_decides_doubtful_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs are those of a squeeze-and-excite block; each is measured once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    net = Net("block", seed=0, weights=False)
    image = net.image((1, 8, 16, 16))
    x = net.conv("expand", image, 16, 3, act="hard_swish")
    x = net.mul("gated", x, gate(net, "gate", x, 4, "relu", "hard_sigmoid"))
    graph = load_network(
        net.model(image, net.add("add", net.conv("project", x, 8), image), ""), {}, "default", weights=False
    )
    costs = GroupCosts(Dataflow.of(graph), CHIP, scheme="lbdf")
    counts: list[int] = []
    grown = grow_blocks(cpu_model(costs), SearchOptions(latency=latency_here(costs, counts.append)))
    known = Profiles.here("native", 1, find_compiler()).seconds()
    assert counts == list(range(1, len(known) + 1))
    assert counts
    assert all(0 < seconds < 10 for seconds in known.values())
    assert (
        grow_blocks(cpu_model(costs), SearchOptions(latency=latency_here(costs, counts.append))).groups
        == grown.groups
    )
    assert len(counts) == len(known), "all was known"
