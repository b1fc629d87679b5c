"""Traces of plans: Trace Event Format, with the cycle model's busy cycles and order, within the buffer."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lfopt.app.api import search
from lfopt.app.config import Config, SearchConfig
from lfopt.app.files import read_plan
from lfopt.app.pipeline import run
from lfopt.app.trace import BUFFER, COMPUTATION, GROUPS, LOADS, STORES, TRACKS, model_trace
from lfopt.frontend import load
from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from simulator.model.simulate import simulate
from simulator.model.timing import Accelerator
from tests.strategies import random_graph

FIELDS = {"M": {"name", "ph", "pid", "tid", "ts", "args"}, "C": {"name", "ph", "pid", "tid", "ts", "args"}}
FIELDS["X"] = {"name", "ph", "pid", "tid", "ts", "dur", "cat", "args"}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A network in groups of several modes, on a chip with a clock that is no whole number of nanoseconds."""
    folder = tmp_path_factory.mktemp("plan")
    run(
        Config(
            model="zoo:squeezenet1_1",
            scheme="auto",
            hardware=Hardware(buffer_bytes=96 * 1024, clock_hz=700_000_000),
            search=SearchConfig(objective="bytes"),
        ),
        folder,
    )
    return folder, read_plan(folder), load(folder / "simplified.onnx")


def checked(text: str) -> list[dict]:
    """The events of a trace whose every field is as the format wants it."""
    trace = json.loads(text)
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    for event in trace["traceEvents"]:
        assert set(event) == FIELDS[event["ph"]]
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ts"] >= 0 and event.get("dur", 0) >= 0
        assert event["ph"] != "C" or all(isinstance(value, int) for value in event["args"].values())
    return trace["traceEvents"]


def by_track(events: list[dict]) -> dict[int, list[dict]]:
    by_key = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            by_key[event["tid"]].append(event)
    return by_key


def test_a_trace_of_the_model_adds_up_to_the_model(planned):
    _, plan, graph = planned
    report = simulate(plan, graph)
    trace, left = model_trace(plan, graph, report)
    assert not left
    events = checked(trace.text())
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == set(
        TRACKS.values()
    )
    tracks = by_track(events)
    assert sum(event["args"]["cycles"] for event in tracks[GROUPS]) == report.cycles.total
    assert sum(event["args"]["cycles"] for event in tracks[COMPUTATION]) == report.cycles.compute
    for group in report.groups:
        of = [
            [e["args"]["cycles"] for e in tracks[t] if e["args"].get("group") == group.id]
            for t in (LOADS, STORES)
        ]
        assert max(map(sum, of)) == group.cycles.dma
    assert sum(event["args"]["bytes"] for t in (LOADS, STORES) for event in tracks[t]) == report.dram.total
    for track in tracks.values():
        # monotonic, and none over another
        assert all(one["ts"] + one["dur"] <= other["ts"] + 1e-9 for one, other in pairwise(track))
        # microseconds, in whole nanoseconds
        assert all(abs(event["dur"] - event["args"]["cycles"] / 700) < 0.0011 for event in track)
    counted = [event for event in events if event["name"] == BUFFER]
    assert all(one["ts"] <= other["ts"] for one, other in pairwise(counted))
    held = [event["args"]["bytes"] for event in counted]
    assert (
        min(held) >= 0
        and max(held)
        <= max(group.allocated_bytes(plan.hardware) for group in plan.groups)
        <= plan.hardware.buffer_bytes
    )
    assert held[-1] == 0


def test_commands_of_random_groups_hold_their_engine_one_after_the_other_and_as_long_as_the_model_says():
    for seed in range(6):
        graph = random_graph(np.random.default_rng(seed), 6)
        plan = search(graph, hardware=Hardware(buffer_bytes=1 << 20, element_bytes=4)).plan
        accelerator = Accelerator(Dataflow.of(graph), plan.hardware)
        for group in plan.groups:
            (ran,) = accelerator.commands([(group.steps, group.places)])
            line = accelerator.timeline(group.steps, group.places)
            for queue in range(3):
                mine = [one for one in ran if one.queue == queue]
                assert [(one.start, one.done) for one in mine] == line[queue]
                assert all(a.end <= b.begin for a, b in pairwise(mine))
                assert all(a.start <= a.begin <= a.end <= a.done for a in mine)
            assert [one.number for one in ran] == sorted(one.number for one in ran)


def test_what_a_trace_leaves_out_is_said_in_it_and_on_the_screen(planned, here, tmp_path):
    folder, plan, _ = planned
    done = here("simulate", folder, "--trace", tmp_path / "t.json", "--trace-events", "3000", "--json")
    assert json.loads(done.stdout)["model"] == "squeezenet1_1"
    text = (tmp_path / "t.json").read_text()
    events = checked(text)
    assert (
        1000
        < sum(event["ph"] == "C" or event["tid"] != GROUPS for event in events if event["ph"] != "M")
        <= 3000
    )
    (line,) = json.loads(text)["otherData"]["left_out"]
    assert f"left out: {line}" in " ".join(done.stderr.split())
    assert "the limit of events" in line
    assert len(by_track(events)[GROUPS]) == len(plan.groups)


def test_a_group_without_steps_is_a_bar_that_says_so(planned):
    _, plan, graph = planned
    bare = replace(
        plan,
        groups=(replace(plan.groups[0], steps=(), places=(), unexecutable="for a test"), *plan.groups[1:]),
    )
    trace, (left,) = model_trace(bare, graph, simulate(bare, graph), only=0)
    assert left.groups == (0,) and "for a test" in left.why
    assert [event["tid"] for event in trace.events if event["ph"] == "X"] == [GROUPS]


def test_a_limit_below_one_event_is_refused_in_one_line(here):
    done = here("simulate", "nowhere", "--trace-events", "0")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert "--trace-events: found 0" in done.stderr
