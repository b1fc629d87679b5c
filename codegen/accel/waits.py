"""What every command must wait for: hazards on words on chip, and on maps in DRAM."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from codegen.accel.runs import IssuedCommand, Words
from lfopt.isa.tables import NO_WAIT, Opcode

LOAD = Opcode.LOAD
STORE = Opcode.STORE
EXEC = Opcode.EXEC
QUEUES: tuple[Opcode, ...] = (LOAD, STORE, EXEC)


class Waits:
    """The last command of every queue that read or wrote each word.

    Commands are given in the order of the program.
    """

    def __init__(self, words: int) -> None:
        """`words`: of the buffer, the factors and the tables together."""
        self._wrote: dict[Opcode, np.ndarray] = {
            LOAD: np.full(words, -1, np.int64),
            EXEC: np.full(words, -1, np.int64),
        }
        self._read: dict[Opcode, np.ndarray] = {
            STORE: np.full(words, -1, np.int64),
            EXEC: np.full(words, -1, np.int64),
        }
        # map in DRAM -> index of the last command that loaded it, or stored it
        self._moved: dict[Opcode, dict[str, int]] = {LOAD: {}, STORE: {}}
        self.dispatched: dict[Opcode, int] = dict.fromkeys(QUEUES, 0)
        # queue -> index of the last command of each queue that its commands have waited for
        self._awaited: dict[Opcode, dict[Opcode, int]] = {
            queue: dict.fromkeys(QUEUES, -1) for queue in QUEUES
        }

    def add(self, run: IssuedCommand) -> None:
        """Note a command, and set the distances that it may keep."""
        # index of the last command that must be finished
        needed: dict[Opcode, int] = dict.fromkeys(QUEUES, -1)

        def after(queue: Opcode, last: np.ndarray, touched: Iterable[Words]) -> None:
            for first, size in touched:
                needed[queue] = max(needed[queue], int(last[first : first + size].max()))

        for queue, last in self._wrote.items():
            after(queue, last, run.reads)
        for queue, last in (*self._read.items(), *self._wrote.items()):
            if queue is not run.opcode:  # a queue's own commands write in order
                after(queue, last, run.writes)
        for queue, moved in self._moved.items():
            if queue is not run.opcode:
                needed[queue] = max(needed[queue], moved.get(run.map, -1))
        awaited = self._awaited[run.opcode]
        run.waits = dict.fromkeys(QUEUES, NO_WAIT)
        for queue, index in needed.items():
            # commands of a queue start in order: what one has waited for, those behind it need not wait for
            if index > awaited[queue]:
                awaited[queue] = index
                run.waits[queue] = min(self.dispatched[queue] - 1 - index, NO_WAIT - 1)
        self._note(run)

    def _note(self, run: IssuedCommand) -> None:
        index = self.dispatched[run.opcode]
        if run.opcode in self._wrote:
            for first, size in run.writes:
                self._wrote[run.opcode][first : first + size] = index
        if run.opcode in self._read:
            for first, size in run.reads:
                self._read[run.opcode][first : first + size] = index
        if run.map:
            self._moved[run.opcode][run.map] = index
        self.dispatched[run.opcode] = index + 1
