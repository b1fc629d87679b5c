"""Threads that outlive a run: they serve the next, end with their model, and start again in a fork.

Those of other contexts run beside them.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from codegen.emit import emit_c
from codegen.runtime import CannotRun, Compiled
from codegen.source import CSource
from tests.codegen.shared import NETS, fused
from tests.codegen.twice import compiled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
THREADS = 3
GRAPH = NETS["residual"]().finish()
X = np.random.default_rng(0).standard_normal(GRAPH.shape("x")).astype(np.float32)


def source() -> CSource:
    return emit_c(fused(GRAPH), GRAPH, "c99", threads=THREADS, embed=True)


def without_signals() -> int:
    """Threads of this process that take no signals: those of generated code, and of a library or two."""
    masks = [
        re.search(r"SigBlk:\s*(\w+)", file.read_text()) for file in Path("/proc/self/task").glob("*/status")
    ]
    return sum(int(mask[1], 16) >> signal.SIGINT - 1 & 1 for mask in masks if mask)


@pytest.fixture
def others() -> int:
    """Threads that take no signals before the test: what other tests of this process have left."""
    gc.collect()
    time.sleep(0.05)  # one that has ended is listed for a moment more
    return without_signals()


def waiting(wanted: int) -> bool:
    """Whether there are so many threads that take no signals, within a second: some are about to end."""
    for _ in range(100):
        if without_signals() == wanted:
            return True
        time.sleep(0.01)
    return False


def result(model: Compiled, factor: float = 1.0) -> bytes:
    return b"".join(output.tobytes() for output in model.run(np.float32(factor) * X).values())


def test_threads_outlive_a_run_and_end_with_their_model(tmp_path: Path, others: int) -> None:
    model = compiled(source(), tmp_path)
    assert waiting(others), "who does not run has none"
    expected = [result(model, k) for k in range(4)]
    assert waiting(others + THREADS - 1)
    assert [result(model, k) for k in range(4)] == expected
    assert waiting(others + THREADS - 1)
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(partial(result, model), [k % 4 for k in range(16)])] == expected * 4
        assert len(model._idle) <= 4
    child = os.fork()
    if child == 0:  # it has no threads but this one
        os._exit(0 if [result(model, k) for k in range(4)] == expected and waiting(THREADS - 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert result(model, 3) == expected[3], "those of the parent are still there"
    del model
    gc.collect()
    assert waiting(others)


def test_a_thread_that_cannot_be_had_ends_the_others(tmp_path: Path, others: int) -> None:
    """The second thread is refused the first time."""
    good = source()
    start, code = "pthread_create(&pool->threads[k], NULL, work, w)", good.files["model.c"].decode()
    assert code.count(start) == 1
    bad = code.replace(start, f"(k == 2 && !refused++ ? 1 : {start})").replace(
        "static struct pool *begin", "static int refused;\nstatic struct pool *begin"
    )
    model = compiled(replace(good, files={**good.files, "model.c": bad.encode()}), tmp_path / "bad")
    with pytest.raises(CannotRun, match="a thread could not be started"):
        model.run(X)
    assert waiting(others)
    assert result(model) == result(compiled(good, tmp_path / "good"))
