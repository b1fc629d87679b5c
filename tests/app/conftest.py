"""The command line in this process, and what it says when it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lfopt
from codegen.runtime import Compiled
from lfopt.app.cli import main
from lfopt.app.files import read_plan
from lfopt.frontend import load
from lfopt.ir import Graph, Plan


class Done(NamedTuple):
    """What a command gave."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run the command line in this process: a third of the time."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["lfopt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        return Done(int(stop.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch):
    """Let a module believe plans: what it says of one that no recount would let through."""

    def believe(module: str) -> None:
        def load_planned(path: Path) -> tuple[Plan, Graph]:
            plan = read_plan(path)
            return plan, load(path / plan.model.onnx)

        monkeypatch.setattr(f"{module}.load_planned", load_planned)

    return believe


def one_shape(*network: Any, **options: Any) -> Compiled:
    """`lfopt.compile` of a network whose shapes are all known; arguments are not type-checked."""
    compiled = lfopt.compile(*network, **options)
    assert isinstance(compiled, Compiled)
    return compiled


def refused(done: Done) -> str:
    """The one line that a refusal is."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("note:")]
    return line
