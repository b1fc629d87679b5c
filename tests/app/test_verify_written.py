"""A plan that its own recount refuses is no plan: nobody gets it, and no file is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lfopt
from lfopt.app import pipeline
from lfopt.app.command_line import run
from lfopt.frontend import save
from lfopt.ir import FalsePlan, Plan
from lfopt.planning import PlanDraft
from tests.strategies import random_graph


def test_a_plan_that_its_recount_refuses_is_an_internal_error_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The draft loses its last step: search ends with exit code 4, one line and no file."""
    graph = random_graph(np.random.default_rng(4), 6)
    save(graph, tmp_path / "m.onnx")
    finished = PlanDraft.finished

    def without_a_step(self: PlanDraft, *limits: object) -> Plan:
        plan = finished(self, *limits)  # type: ignore[arg-type]
        group = next(group for group in plan.groups if group.steps)
        lie = replace(group, steps=group.steps[:-1])
        return replace(plan, groups=tuple(lie if one is group else one for one in plan.groups))

    monkeypatch.setattr(pipeline.PlanDraft, "finished", without_a_step)
    with pytest.raises(FalsePlan, match="internal error"):
        lfopt.search(graph, "64KiB")
    words = ["search", str(tmp_path / "m.onnx"), "--buffer", "64KiB", "--out", str(tmp_path / "out")]
    assert run(words) == 4
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("lfopt: internal error: the plan of ")
    assert not (tmp_path / "out" / "plan.json").exists()
