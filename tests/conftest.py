"""Shared by all tests: where the real network graphs lie, and a runner of the command line."""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from functools import partial
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models"
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.conftest",
        *(f"lfopt.app.commands.{name}" for name in ("search", "simulate", "report", "quantize")),
    ]
)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Tests and modules live to the end: the garbage collector does not look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Products of small arrays are no faster on many threads, and the tests take every core as it is."""
    assert np.__version__  # loaded: only libraries that are there can be limited
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard():
    """A script starts what it runs in the background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def shared_model():
    """Path of a real network graph by name; the test is skipped where the graphs are absent."""

    def find(name: str) -> Path:
        path = MODELS / f"{name}.onnx"
        if not path.exists():
            pytest.skip(f"{name}.onnx is not at hand")
        return path

    return find


def run_lfopt(
    folder: Path, *arguments: object, columns: int = 80, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run the command line in `folder`, `columns` wide, forked from a process with libraries loaded.

    Importing them takes Python a second.
    """
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    environment.pop("FORCE_COLOR", None)
    command = ["lfopt", *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = FORKS.Process(
            target=_as_program, args=(folder, environment, command, DupFd(out.fileno()), DupFd(err.fileno()))
        )
        process.start()
        process.join(300)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(command, 300)
        for file in (out, err):
            file.seek(0)
        done = subprocess.CompletedProcess(command, process.exitcode, out.read(), err.read())
    assert not check or done.returncode == 0, done.stderr
    return done


def _as_program(folder: Path, environment: dict[str, str], command: list[str], out: Any, err: Any) -> None:
    """What `python -m lfopt.app.cli` does."""
    os.dup2(out.detach(), 1)
    os.dup2(err.detach(), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    runpy.run_module("lfopt.app.cli", run_name="__main__")


@pytest.fixture
def lfopt(tmp_path: Path):
    """`run_lfopt` in an empty folder."""
    return partial(run_lfopt, tmp_path)
