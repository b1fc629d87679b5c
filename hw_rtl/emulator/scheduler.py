"""Orders in which the commands of the three queues run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

from hw_rtl.emulator.chip import EmulatedChip
from hw_rtl.emulator.dispatch import dispatched
from hw_rtl.emulator.jobs import EXEC, LOAD, STORE, DispatchedJob
from hw_rtl.emulator.patch import Writes
from lfopt.isa.program import Command
from lfopt.isa.tables import DESCRIPTORS

WRITING = 3  # beside the queues, something that may happen next: a computation's result is written
STRETCH = 8  # steps for which order RANDOM keeps to a preference, on average


class QueueOrder(Enum):
    """Order between commands of different queues; all but PROGRAM keep to the waits alone."""

    PROGRAM = "program"  # one after the other, as they stand
    EAGER_LOADS = "eager loads"  # loads as early as they may, then computations; stores last
    LATE_LOADS = "late loads"  # stores as early as they may, then computations; loads last
    RANDOM = "random"  # stretches of one of the three; by `rng`


def run(chip: EmulatedChip, commands: Sequence[Command], order: QueueOrder, queue_depth: int | None) -> None:
    """Run all commands. Raises ProgramError, Hazard."""
    if order is not QueueOrder.PROGRAM:
        Scheduler(chip, order, queue_depth).run(commands)
        return
    for what in dispatched(chip, commands):
        if isinstance(what, DispatchedJob):
            writes = chip.run(what)
            if what.queue == EXEC:
                chip.finish(what, writes)


class Scheduler:
    """Three queues, each in order, that keep to the waits and to nothing else.

    A computation's result is held back until the next one has read its operands, unless something waits for
    it, as hardware may do.
    """

    def __init__(self, chip: EmulatedChip, order: QueueOrder, queue_depth: int | None) -> None:
        self.chip = chip
        self.order = order
        self.queue_depth = queue_depth
        self.queues: tuple[deque[DispatchedJob], ...] = (deque(), deque(), deque())
        self.completed = [0, 0, 0]
        # by entry: 1 + index of each queue's last command that names it
        self.named = [[0, 0, 0] for _ in range(DESCRIPTORS)]
        self.held: tuple[DispatchedJob, Writes] | None = None  # a computation and its result
        if order is QueueOrder.EAGER_LOADS:
            self.preference = [LOAD, EXEC, WRITING, STORE]
        else:
            self.preference = [STORE, EXEC, WRITING, LOAD]

    def run(self, commands: Sequence[Command]) -> None:
        """Run all commands in this order. Raises ProgramError, Hazard."""
        rng = self.chip.memory.rng
        coming = dispatched(self.chip, commands)
        what = next(coming, None)
        while True:
            while what is not None and self._may_dispatch(what):
                if isinstance(what, DispatchedJob):
                    self.queues[what.queue].append(what)
                    self.named[what.descriptor][what.queue] = what.index + 1
                what = next(coming, None)
            if self.order is QueueOrder.RANDOM and rng.random() < 1 / STRETCH:
                self.preference = rng.permutation(4).tolist()
            action = next((action for action in self.preference if self._may_start(action)), None)
            if action is None:
                break
            self._do(action)
        assert what is None and not any(self.queues)

    def _may_dispatch(self, what: DispatchedJob | Command) -> bool:
        if isinstance(what, DispatchedJob):
            return self.queue_depth is None or len(self.queues[what.queue]) < self.queue_depth
        return all(
            done >= named for done, named in zip(self.completed, self.named[what.descriptor], strict=True)
        )

    def _may_start(self, action: int) -> bool:
        if action == WRITING:
            return self.held is not None
        queue = self.queues[action]
        return bool(queue) and all(
            done >= target for done, target in zip(self.completed, queue[0].targets, strict=True)
        )

    def _do(self, action: int) -> None:
        before = self.held if action in (EXEC, WRITING) else None
        if action == WRITING:
            self.held = None
        else:
            job = self.queues[action].popleft()
            writes = self.chip.run(job)
            if action == EXEC:
                self.held = job, writes
            else:
                self.completed[action] += 1
        if before is not None:
            self.chip.finish(*before)
            self.completed[EXEC] += 1
