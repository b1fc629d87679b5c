"""One time limit for a whole job: by when its stages end, and what a stage does when that is past."""

from __future__ import annotations

import time
from itertools import count

import pytest

from lfopt.app.config import Config, SearchConfig
from lfopt.app.deadline import ENDS, LEAST_SECONDS, Deadline
from lfopt.app.overlap import overlapped
from lfopt.app.pipeline import find_plan, load_network, steps_of
from lfopt.ir import Hardware


def test_stages_end_one_after_the_other_and_the_last_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 1078.0)
    shares = [*ENDS.values()]
    assert shares == sorted(shares)
    assert shares[-1] <= 1
    past = Deadline(100.0, start=1000.0)
    assert [past.late(stage) for stage in ENDS] == [share < 0.78 for share in shares]
    assert {past.late(stage) for stage in ENDS} == {True, False}
    assert past.left("search") == LEAST_SECONDS
    assert past.left("steps", 2) == pytest.approx((100 * ENDS["steps"] - 78) / 2)
    assert not Deadline().late("search")
    assert Deadline().left("steps") is None


def test_steps_are_held_to_the_limit_that_the_search_began() -> None:
    outcome = find_plan(
        Config(
            "zoo:fsrcnn",
            Hardware(1 << 16),
            input_shapes={"image": (1, 1, 20, 24)},
            search=SearchConfig(time_limit=1e-6),
        )
    )
    assert all(group.unwritten for group in steps_of(outcome).plan.groups)


def test_groups_are_not_placed_to_overlap_once_time_is_over() -> None:
    graph = load_network("zoo:fsrcnn", {"image": (1, 1, 20, 24)}, "default", weights=False)
    chip = Hardware(1 << 13, clock_hz=700_000_000)
    plan = find_plan(Config("fsrcnn", chip, "auto"), graph=graph).draft.finished()
    looks = count()
    assert overlapped(plan, graph, lambda: next(looks) >= 2) is plan
    assert next(looks) > 2, "it was looked at, and left"
