"""Prove that waits order every two commands of which one writes what the other touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hw_rtl.emulator.errors import Hazard
from hw_rtl.emulator.jobs import EXEC, OPCODES, DispatchedJob
from hw_rtl.emulator.patch import Patch

ALL_BLOCKS = 1 << 16  # more than the blocks of any result
NONE = (0, 0, 0)  # commands, by queue


class Accesses(NamedTuple):
    """The last commands that touched each unit of a memory."""

    unit: str  # what the memory consists of
    read: np.ndarray  # (queues, units) int32: 1 + index of the last command that read it
    written: np.ndarray  # the same, of commands that wrote it
    random: bool  # it begins as random bytes, that nobody may read

    @classmethod
    def none(cls, unit: str, size: int, random: bool) -> Accesses:
        """Accesses of a memory that no command has touched."""
        return cls(unit, np.zeros((3, size), np.int32), np.zeros((3, size), np.int32), random)


class Hazards:
    """Which commands touched each word, and whether waits order them.

    What a command may count on when it starts: those commands are finished that it waits for, that the
    command before it in its queue could count on, that any of the finished ones could count on, and those
    that DESCRIBE waited for. Computations overlap: one may begin while the one before it is still writing, so
    a result may be read by a computation that waits for it, alone.
    """

    job: DispatchedJob  # the one that is running

    def __init__(self, words: int, beats: int) -> None:
        self.chip = Accesses.none("word", words, random=True)
        self.dram = Accesses.none("beat", beats, random=False)
        # by queue and index: commands finished when it starts
        self.known: tuple[list[Sequence[int]], ...] = ([], [], [])
        # by entry: 1 + index of each queue's last command that names it
        self.named: dict[int, list[int]] = {}
        self.dispatcher: Sequence[int] = NONE  # commands finished whatever is dispatched next
        # (words,) int32: 1 + the last block of the result for which the running computation reads the word;
        # 0: it does not read it
        self.wanted = np.zeros(words, np.int32)
        self.operands: list[Patch] = []  # what the running computation has read

    def dispatch(self, queue: int, targets: Sequence[int], descriptor: int) -> tuple[int, ...]:
        """Commands per queue that are finished when this one starts."""
        known = self.known[queue]
        finished = self._closed(_most(self.dispatcher, known[-1] if known else NONE, targets))
        known.append(finished)
        self.named.setdefault(descriptor, [*NONE])[queue] = len(known)
        return finished

    def describe(self, descriptor: int) -> None:
        """Note that DESCRIBE has waited for the commands that name its entry."""
        self.dispatcher = self._closed(_most(self.dispatcher, self.named.get(descriptor, NONE)))

    def _closed(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Transitive closure: commands per queue that are finished if `counts` of each are."""
        return _most(counts, *(self.known[queue][count - 1] for queue, count in enumerate(counts) if count))

    def touch(self, accesses: Accesses, patch: Patch, *, writes: bool) -> None:
        """Note an access of the running command. Raises Hazard."""
        job = self.job
        unit = accesses.unit
        written = [patch.entries(of) for of in accesses.written]  # by queue
        read = [patch.entries(of) for of in accesses.read] if writes else []
        for other in range(3):
            if other != job.queue or (other == EXEC and not writes):
                self._ordered(written[other], patch, other, unit, ("writes" if writes else "reads", "writes"))
            if other != job.queue and writes:
                self._ordered(read[other], patch, other, unit, ("writes", "reads"))
        # it ran ahead, see Scheduler
        if writes and job.queue == EXEC and int(read[EXEC].max()) > job.index + 1:
            raise Hazard(f"EXEC {job.index} writes a {unit} that a later one has read: {unit} {patch.start}")
        if accesses.random and not writes:
            ever = written[0] | written[1] | written[2]
            if not ever.all():
                raise Hazard(
                    f"{_name(job.queue, job.index)} reads {unit} {patch.first(ever == 0)}, "
                    "which nothing has written"
                )
        (written[job.queue] if writes else patch.entries(accesses.read[job.queue]))[...] = job.index + 1

    def _ordered(self, seen: np.ndarray, patch: Patch, other: int, unit: str, does: tuple[str, str]) -> None:
        last = int(seen.max())
        finished = self.job.finished[other]
        if last > finished:
            this = _name(self.job.queue, self.job.index)
            that = _name(other, last - 1)
            where = f"{unit} {patch.first(seen > finished)}"
            raise Hazard(f"{this} {does[0]} a {unit} that {that} {does[1]}, and no wait orders them: {where}")

    def read_operand(self, patch: Patch, *, by_block: bool) -> None:
        """Note that the running computation reads words: for the block of that number, or up to its end."""
        seen = patch.entries(self.wanted)
        np.maximum(seen, _numbers(patch) if by_block else ALL_BLOCKS, out=seen)
        self.operands.append(patch)

    def write_result(self, patches: Sequence[Patch], end: int) -> None:
        """Note where the running computation writes its result.

        Its first blocks are written while it reads for the next. Raises Hazard where it overwrites an
        operand.
        """
        for patch in patches:
            if patch.last < end:
                late = patch.entries(self.wanted) > _numbers(patch)
                if patch.blocks > 1 and late[:-1].any():
                    raise Hazard(
                        f"EXEC {self.job.index} writes a word that it reads later: word {patch.first(late)}"
                    )
        for patch in self.operands:
            patch.entries(self.wanted)[...] = 0
        self.operands.clear()


def _most(*counts: Sequence[int]) -> tuple[int, ...]:
    """Per queue: the greatest of several counts."""
    return tuple(map(max, zip(*counts, strict=True)))


def _numbers(patch: Patch) -> np.ndarray:
    """(blocks, 1) int64: 1 + the number of the block."""
    return np.arange(1, patch.blocks + 1)[:, None]


def _name(queue: int, index: int) -> str:
    return f"{OPCODES[queue].name} {index}"
