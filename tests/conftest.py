"""Shared by all tests: where the real network graphs lie, and a runner of the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models"


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


def run_lfopt(folder: Path, *arguments: object, columns: int = 80, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, 80 columns wide."""
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    environment.pop("FORCE_COLOR", None)
    command = [sys.executable, "-m", "lfopt.app.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture
def lfopt(tmp_path: Path):
    """`run_lfopt` in an empty folder."""
    return partial(run_lfopt, tmp_path)
