"""One time limit for all that a job does, loading included: what each stage may take of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

LEAST_SECONDS = 0.1  # of a search, if the time is over
# seconds between loading and files, however little the limit leaves: time for the first plan
LEAST_PLANNING = 1.5
# seconds beyond the limit in which the steps of the first plan may still be made, and share of the limit, in
# which the plan may also be simulated
GRACE_SECONDS = 2.0
GRACE_SHARE = 0.1
# of these, what the steps of the plan found may take
FOUND_SHARE = 0.5
# share of the limit that is set aside for steps and files, at the least and at the most
LEAST_RESERVE = 0.1
MOST_RESERVE = 0.5

# seconds beyond the limit and its share by which a plan is recounted, from the start of the process on
RECOUNT_GRACE = 4.0
# seconds that this takes at the least, for each group and for each step
RECOUNT_SECONDS = 0.3
RECOUNT_GROUP_SECONDS = 4e-3
RECOUNT_STEP_SECONDS = 25e-6

ReportProgress = Callable[[str, float], None]  # (what is going on, how much of it is done: 0 to 1)

Stage = Literal["bounds", "search", "chains", "second level", "cycles", "layout", "steps", "report"]
# share of the time between loading and what is set aside by which a stage is to end
ENDS: dict[Stage, float] = {
    "bounds": 0.25,
    "search": 0.88,
    "chains": 0.92,
    "second level": 0.94,
    "cycles": 0.98,
    "layout": 1.0,
}
OPEN_ENDED: tuple[Stage, ...] = ("layout", "steps", "report")
USUAL_FIRST_PLAN = 1.0  # seconds that the first plan of a network takes at the most that is not very large


@dataclass(frozen=True)
class Deadline:
    """When the stages of a job are to end. A stage that ends early leaves its time to those behind it."""

    seconds: float | None = None  # the limit; None: there is none
    start: float = field(default_factory=time.perf_counter)
    loaded: float = 0.0  # seconds from the start until the network was loaded
    reserve: float = 0.0  # seconds set aside for steps and files
    files: float = 0.0  # seconds of these for files
    before: float = 0.0  # seconds that the process took before the start
    # whether steps, recount and report take what they take: nobody has asked for the limit
    open_ended: bool = False

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def after_loading(self) -> Deadline:
        """The deadline once the network is loaded."""
        return replace(self, loaded=self.passed)

    def for_network(self, seconds: float) -> Deadline:
        """The deadline of a network whose first plan took so long; a limit that was asked for stays."""
        if self.seconds is None or not self.open_ended:
            return self
        return replace(self, seconds=self.seconds * max(seconds / USUAL_FIRST_PLAN, 1.0))

    def setting_aside(self, steps: float, files: float) -> Deadline:
        """The deadline with these seconds set aside for steps and files, as far as the limit has them."""
        if self.seconds is None:
            return self
        wanted = max(steps + files, LEAST_RESERVE * self.seconds)
        return replace(self, reserve=min(wanted, MOST_RESERVE * self.seconds), files=files)

    def end(self, stage: Stage) -> float:
        """Seconds after the start at which a stage is to end; endless without a limit."""
        if self.seconds is None:
            return float("inf")
        if self.open_ended and stage in OPEN_ENDED:
            return float("inf")
        least = self.loaded + LEAST_PLANNING
        if stage == "report":
            return max(self.seconds * (1 + GRACE_SHARE), least)
        if stage == "steps":
            return max(self.seconds + FOUND_SHARE * self._grace - self.files, least)
        planning = max(self.seconds - self.reserve - self.loaded, LEAST_PLANNING / 2)
        return self.loaded + planning * ENDS[stage]

    def late(self, stage: Stage) -> bool:
        """Whether the time of a stage is over."""
        return self.passed > self.end(stage)

    def leaves(self, stage: Stage, seconds: float) -> bool:
        """Whether a stage has so many seconds left."""
        return self.passed + seconds <= self.end(stage)

    def over(self, seconds: float = 0.0) -> bool:
        """Whether not even the steps of the first plan may be made any more, or not in so many seconds."""
        if self.seconds is None or self.open_ended:
            return False
        return self.passed + seconds > max(self.end("steps"), self.seconds + self._grace - self.files)

    def allows_recount(self, groups: int, steps: int) -> bool:
        """Whether a recount of so many groups and steps is likely to end in time."""
        takes = RECOUNT_SECONDS + RECOUNT_GROUP_SECONDS * groups + RECOUNT_STEP_SECONDS * steps
        return self.passed + takes <= self._recount_end

    def recount_over(self) -> bool:
        """Whether a recount is to end, wherever it is."""
        return self.passed > self._recount_end

    @property
    def _grace(self) -> float:
        """Seconds beyond the limit."""
        return GRACE_SECONDS + GRACE_SHARE * (self.seconds or 0.0)

    @property
    def _recount_end(self) -> float:
        if self.seconds is None or self.open_ended:
            return float("inf")
        return self.seconds * (1 + GRACE_SHARE) + RECOUNT_GRACE - self.files - self.before

    def clock(self, stage: Stage, most: float) -> Callable[[], bool]:
        """Whether the time of a stage that begins now is over: it has at most a share of the limit.

        `most`: that share, however early the stage begins.
        """
        begin = time.perf_counter()
        return lambda: (
            self.late(stage)
            or (self.seconds is not None and time.perf_counter() - begin > self.seconds * most)
        )

    def within(self, stage: Stage, share: float) -> Deadline:
        """The deadline by which the stage ends when a share of the time that it has left is over."""
        if self.seconds is None:
            return self
        begin = self.passed
        left = max(self.end(stage) - begin, 0.0)
        # a stage of ENDS ends later by its share of what the limit is longer
        earlier = (1 - share) * left / ENDS[stage]
        return replace(self, seconds=self.seconds - earlier)

    def part(self, stage: Stage, share: float) -> Callable[[], bool]:
        """Whether a share of the time that a stage has left from now on is over."""
        shorter = self.within(stage, share)
        return lambda: shorter.late(stage)

    def left(self, stage: Stage, parts: int = 1) -> float | None:
        """Seconds that a stage has left for each of its parts to come; None: as many as it takes."""
        if self.seconds is None:
            return None
        return max((self.end(stage) - self.passed) / parts, LEAST_SECONDS)
