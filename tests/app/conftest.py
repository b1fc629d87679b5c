"""The command line in this process, and what it says when it refuses."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest

from lfopt.app.cli import main


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
        return Done(int(stop.value.code or 0), *capsys.readouterr())

    return run


def refused(done: Done) -> str:
    """The one line that a refusal is."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("note:")]
    return line
