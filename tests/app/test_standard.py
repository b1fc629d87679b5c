"""Standard streams that are closed, full or left, and Ctrl-C while modules are imported."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

LFOPT = f"{shlex.quote(sys.executable)} -m lfopt.app.cli"
FULL = "lfopt: standard output: cannot be written: No space left on device\n"
CLOSED = "lfopt: standard output: cannot be written: Bad file descriptor\n"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("--version > /dev/full", 2, FULL),
        ("--version >&-", 2, CLOSED),
        ("--version 2>&- <&-", 0, ""),
        ("nonsense >&- 2>&- <&-", 2, ""),
    ],
)
def test_a_stream_that_takes_nothing_is_named_and_no_traceback(words: str, status: int, says: str) -> None:
    done = subprocess.run(["bash", "-c", f"{LFOPT} {words}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, says)


INTERRUPTED_IN_AN_IMPORT = """
import os, signal, sys
from lfopt.app import cli

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == NAME:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
sys.argv = ["lfopt", "hw", "list"]
cli.main()
"""


@pytest.mark.parametrize("name", ["cyclopts", "numpy"])
def test_ctrl_c_within_an_import_ends_the_program_at_once(name: str) -> None:
    code = INTERRUPTED_IN_AN_IMPORT.replace("NAME", repr(name))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "lfopt: interrupted\n")
