"""Jobs that workers of other processes run in the tests of batches."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple


class Noted(NamedTuple):
    """A job that leaves a line in a file when it has been computed."""

    log: Path
    name: str
    deadly: bool = False  # to its process
    slow: bool = False  # until there is a file `hurry` beside the log


def computed(job: Noted) -> str:
    time.sleep(0.5 if job.slow and not (job.log.parent / "hurry").exists() else 0.04)
    if job.deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    with job.log.open("a") as file:
        file.write(f"{job.name}\n")
    return job.name.upper()


def names(log: Path) -> list[str]:
    """Of jobs that have been computed, once for every time."""
    return log.read_text().split() if log.exists() else []
