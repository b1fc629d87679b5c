"""One time limit for a whole job: by when its stages end, and what a stage does when that is past."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count

import pytest

from lfopt.app.config import Config, SearchConfig
from lfopt.app.deadline import ENDS, LEAST_SECONDS, Deadline
from lfopt.app.overlap import overlapped
from lfopt.app.pipeline import find_plan, load_network, steps_of
from lfopt.app.verify import require_true
from lfopt.ir import Hardware
from simulator.recount import recount


def test_stages_end_one_after_the_other_and_the_last_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = [*ENDS.values()]
    assert shares == sorted(shares)
    assert shares[-1] <= 1
    deadline = Deadline(100.0, start=1000.0, loaded=20.0).setting_aside(steps=8.0, files=12.0)
    ends = [deadline.end(stage) for stage in ENDS]
    assert ends == pytest.approx([20 + 60 * share for share in shares])
    assert deadline.end("steps") == pytest.approx(94), "half of the grace beyond the limit"
    assert deadline.end("report") == pytest.approx(110), "the grace beyond the limit"
    monkeypatch.setattr(time, "perf_counter", lambda: 1078.0)
    assert [deadline.late(stage) for stage in ENDS] == [end < 78 for end in ends]
    assert {deadline.late(stage) for stage in ENDS} == {True, False}
    assert deadline.left("search") == LEAST_SECONDS
    assert deadline.left("steps", 2) == pytest.approx((94 - 78) / 2)
    assert not Deadline().late("search")
    assert Deadline().left("steps") is None


def test_steps_take_what_they_take_where_nobody_asked_for_a_limit() -> None:
    asked = Deadline(20.0, start=0.0)
    usual = Deadline(20.0, start=0.0, open_ended=True)
    for stage in ("search", "chains", "cycles"):
        assert usual.end(stage) == asked.end(stage)
    for stage in ("layout", "steps", "report"):
        assert asked.end(stage) < usual.end(stage) == float("inf")
    assert not usual.over(1e9)
    assert usual.allows_recount(10**6, 10**9)
    assert usual.for_network(seconds=0.5) == usual
    assert usual.for_network(seconds=3.0).seconds == 60.0
    assert asked.for_network(seconds=3.0) == asked


def test_half_of_the_limit_at_least_is_left_for_the_search() -> None:
    deadline = Deadline(10.0, start=0.0).setting_aside(steps=1e3, files=1e3)
    assert deadline.end("layout") >= 5
    assert Deadline(1e-6, loaded=3.0).end("layout") > 3


def test_a_job_whose_limit_is_over_before_it_is_loaded_writes_a_plan_with_steps() -> None:
    config = Config(
        "zoo:fsrcnn",
        Hardware(1 << 16),
        input_shapes={"image": (1, 1, 20, 24)},
        search=SearchConfig(time_limit=1e-6, objective="bytes"),
        scheme="lbdf",
    )
    finished = steps_of(find_plan(config))
    assert all(group.steps for group in finished.plan.groups)
    assert recount(finished.graph, finished.plan).discrepancies == ()


def test_a_recount_that_its_time_leaves_unfinished_says_nothing_of_the_plan() -> None:
    graph = load_network("zoo:fsrcnn", {"image": (1, 1, 20, 24)}, "default", weights=False)
    finished = steps_of(
        find_plan(
            Config("fsrcnn", Hardware(1 << 13), scheme="lbdf", search=SearchConfig(objective="bytes")),
            graph=graph,
        )
    )
    assert finished.recounted
    assert not require_true(finished.plan, finished.graph, lambda: True)
    over = Deadline(seconds=1.0, start=time.perf_counter() - 60)
    assert over.recount_over()
    assert not Deadline().recount_over()
    begun = Deadline(seconds=1.0, start=time.perf_counter())
    assert not begun.recount_over()
    assert replace(begun, before=60.0).recount_over(), "in a process that began a minute before"


def test_groups_are_not_placed_to_overlap_once_time_is_over() -> None:
    graph = load_network("zoo:fsrcnn", {"image": (1, 1, 20, 24)}, "default", weights=False)
    chip = Hardware(1 << 13, clock_hz=700_000_000)
    plan = find_plan(
        Config("fsrcnn", chip, "auto", search=SearchConfig(objective="bytes")), graph=graph
    ).draft.finished()
    looks = count()
    assert overlapped(plan, graph, lambda: next(looks) >= 2) is plan
    assert next(looks) > 2, "it was looked at, and left"
