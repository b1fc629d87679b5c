"""A page as a session: its commands and Python blocks run in order in a folder; output is compared."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lfopt.app.cli import main
from tests.docs.pages import ROOT, Block

COLUMNS = "120"  # of the terminal that outputs are shown for
TIMEOUT = 500  # seconds, of one command
VOLATILE = (  # what differs from run to run, or between machines
    (re.compile(r"\b\d[\d,.]* ?(s|ms|us)\b"), r"# \1"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "#"),
    (re.compile(r"\S+/lfopt/#"), "CACHE"),
    (re.compile(r"\b\d\.?\d*e-\d+"), "#"),  # rounding errors: the order of sums is the processor's
    (re.compile(r"\.html: [\d,]+ B"), ".html: # B"),
    (re.compile(r"ONNX Runtime \d+\.\d+"), "ONNX Runtime #"),
    (re.compile(r"for (avx512|avx2|neon|rvv|c99)$"), "for TARGET"),
)
SKIPPED = "..."
NOTE = "note: "  # of a command, on stderr: compared where the page shows one
SIMULATED = "lfopt rtl run"
SHELL_WORDS = re.compile(r"[|;&<>$*]")


def seen(line: str) -> str:
    """A line as it is compared: without what is volatile, and with one space for several."""
    for pattern, instead in VOLATILE:
        line = pattern.sub(instead, line)
    return " ".join(line.split())


def lines(text: Sequence[str]) -> list[str]:
    """Lines as they are compared, without empty ones."""
    return [compared for line in text if (compared := seen(line))]


def heard(shown: Sequence[str], printed: str) -> list[str]:
    """The lines of an output; notes only where a page shows one."""
    noted = any(line.startswith(NOTE) for line in shown)
    return [line.rstrip() for line in printed.splitlines() if noted or not line.startswith(NOTE)]


def difference(shown: Sequence[str], printed: Sequence[str]) -> str | None:
    """The first line shown that is not what was printed at its place; None if all are.

    `...` stands for any number of lines.
    """
    runs: list[list[str]] = [[]]
    for line in shown:
        if line == SKIPPED:
            runs.append([])
        else:
            runs[-1].append(line)
    if len(runs) == 1:
        return None if list(shown) == list(printed) else _culprit(shown, printed)
    at = 0
    for k, run in enumerate(runs):
        starts = range(at, len(printed) - len(run) + 1)
        if k == 0:
            starts = starts[:1]
        elif k == len(runs) - 1:
            starts = starts[-1:]
        start = next((start for start in starts if list(printed[start : start + len(run)]) == run), None)
        if start is None:
            return _culprit(run, printed[at:])
        at = start + len(run)
    return None


def _culprit(run: Sequence[str], printed: Sequence[str]) -> str:
    """A line of `run` that is not printed at all; else one where they part."""
    absent = next((line for line in run if line not in printed), None)
    parted = next(
        (line for line, other in zip(run, [*printed, *run], strict=False) if line != other), "the end"
    )
    return parted if absent is None else absent


class Session:
    """One folder, one namespace of Python, and a command line in this process."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, blocks: Sequence[Block]) -> None:
        """Makes `folder` the current one until `patch` is undone. `blocks`: those that will run."""
        # the model of the RTL takes a minute to build, and is kept
        if not any(SIMULATED in block.text for block in blocks):
            patch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
        patch.chdir(folder)
        patch.setenv("COLUMNS", COLUMNS)
        patch.setenv("NO_COLOR", "1")
        patch.delenv("FORCE_COLOR", raising=False)
        shims = folder / ".shims"
        shims.mkdir()
        for name, program in {
            "lfopt": [sys.executable, "-m", "lfopt.app.cli"],
            "python": [sys.executable],
        }.items():
            (shims / name).write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
            (shims / name).chmod(0o755)
        patch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(ROOT))
        self.folder = folder
        self.names: dict[str, Any] = {}
        self._patch = patch

    def run(self, block: Block) -> None:
        """Run a block and compare; AssertionError names the page's line."""
        if "given" in block.markers:
            for part in block.markers["given"].split("; "):
                self._give(*part.split())
        if "file" in block.markers:
            path = self.folder / block.markers["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif "part of" in block.markers:
            assert block.text in (ROOT / block.markers["part of"]).read_text(), (
                f"{block.where}: not so in {block.markers['part of']}"
            )
        elif "output of" in block.markers:
            status, printed = self.command(block.markers["output of"])
            assert status == 0, f"{block.where}: {printed}"
            self.compare(
                block, block.markers["output of"], [SKIPPED, *block.text.splitlines(), SKIPPED], printed
            )
        elif block.language == "python":
            self._python(block)
        else:
            self._commands(block)

    def command(self, line: str) -> tuple[int, str]:
        """(exit code, what it prints) of a command; lfopt runs in this process where no shell is needed."""
        if line.startswith("lfopt ") and not SHELL_WORDS.search(line.partition("  #")[0]):
            self._patch.setattr(sys, "argv", shlex.split(line, comments=True))
            printed = io.StringIO()
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
                pytest.raises(SystemExit) as stop,
            ):
                main()
            return int(stop.value.code or 0), printed.getvalue()
        done = subprocess.run(
            ["bash", "-c", line],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return done.returncode, done.stdout

    def _give(self, name: str, spec: str) -> None:
        """A file that the page takes for granted: a network of the zoo, or arrays drawn at random."""
        if spec.startswith("zoo:"):
            assert self.command(f"lfopt zoo export {spec.removeprefix('zoo:')} -o {name}")[0] == 0
            return
        arrays: dict[str, np.ndarray] = {}
        for part in spec.split("+"):
            key, _, shape = part.rpartition("=")
            arrays[key] = np.random.default_rng(0).random([int(n) for n in shape.split(",")], np.float32)
        if name.endswith(".npy"):
            np.save(name, arrays[""])
        else:
            np.savez(name, allow_pickle=False, **arrays)

    def _commands(self, block: Block) -> None:
        commands = block.commands()
        for k, (command, shown) in enumerate(commands):
            status, printed = self.command(command)
            accepted = int(block.markers.get("exit", 0)) if k == len(commands) - 1 else 0
            assert status == accepted, f"{block.where}: {command} ends with {status}:\n{printed}"
            if shown:
                self.compare(block, command, shown, printed)

    def compare(self, block: Block, command: str, shown: list[str], printed: str) -> None:
        """Hold what a page shows of a command's output against what it prints."""
        wrong = difference(lines(shown), lines(heard(shown, printed)))
        assert wrong is None, (
            f"{block.where}: {command}\nshows {wrong!r}, which it does not print there:\n{printed}"
        )

    def _python(self, block: Block) -> None:
        self.names.setdefault("__name__", "__main__")
        if ">>> " not in block.text:
            exec(compile(block.text, block.where, "exec"), self.names)
            return
        example = doctest.DocTestParser().get_doctest(
            block.text, self.names, block.where, str(block.page), block.line
        )
        said: list[str] = []
        runner = doctest.DocTestRunner(
            optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
        )
        runner.run(example, out=said.append, clear_globs=False)
        self.names.update(example.globs)
        assert runner.failures == 0, "".join(said)
