"""One time limit for all that a job does: what each stage may take of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

LEAST_SECONDS = 0.1  # of a search, if the time is over

ReportProgress = Callable[[str, float], None]  # (what is going on, how much of it is done: 0 to 1)

Stage = Literal["search", "chains", "second level", "cycles", "layout", "steps", "report"]
# share of the limit by which a stage is to end; files are written after the steps, and cycles reported if
# there is time left
ENDS: dict[Stage, float] = {
    "search": 0.65,
    "chains": 0.7,
    "second level": 0.72,
    "cycles": 0.75,
    "layout": 0.8,
    "steps": 1.0,
    "report": 1.0,
}


@dataclass(frozen=True)
class Deadline:
    """When the stages of a job are to end. A stage that ends early leaves its time to those behind it."""

    seconds: float | None = None  # the limit; None: there is none
    start: float = field(default_factory=time.perf_counter)

    def late(self, stage: Stage) -> bool:
        """Whether the time of a stage is over."""
        return self.seconds is not None and time.perf_counter() - self.start > self.seconds * ENDS[stage]

    def clock(self, stage: Stage, most: float) -> Callable[[], bool]:
        """Whether the time of a stage that begins now is over: it has at most a share of the limit.

        `most`: that share, however early the stage begins.
        """
        begin = time.perf_counter()
        return lambda: (
            self.late(stage)
            or (self.seconds is not None and time.perf_counter() - begin > self.seconds * most)
        )

    def left(self, stage: Stage, parts: int = 1) -> float | None:
        """Seconds that a stage has left for each of its parts to come; None: as many as it takes."""
        if self.seconds is None:
            return None
        return max((self.seconds * ENDS[stage] - (time.perf_counter() - self.start)) / parts, LEAST_SECONDS)
