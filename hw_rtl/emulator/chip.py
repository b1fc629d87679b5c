"""The descriptor table, and the execution of commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hw_rtl.emulator.computation import compute
from hw_rtl.emulator.descriptors import DescriptorEntry, entry_of, moved
from hw_rtl.emulator.errors import Fault, ProgramError
from hw_rtl.emulator.jobs import EXEC, OPCODES, STORE, DispatchedJob
from hw_rtl.emulator.memory import EmulatedMemory
from hw_rtl.emulator.patch import Writes
from hw_rtl.emulator.transfers import transfer
from lfopt.isa.program import Command
from lfopt.isa.tables import DESCRIPTORS, Error, Opcode, Queue, Space


class EmulatedChip:
    """Execution of commands, one by one, on the memory."""

    def __init__(self, memory: EmulatedMemory) -> None:
        self.memory = memory
        self.entries: list[DescriptorEntry | None] = [None] * DESCRIPTORS
        self.commands: Counter[Opcode] = Counter()  # that ran

    def describe(self, command: Command) -> None:
        """Fill an entry of the descriptor table."""
        self.entries[command.descriptor] = entry_of(command, self.memory.lanes)
        self.commands[Opcode.DESCRIBE] += 1
        if self.memory.hazards is not None:
            self.memory.hazards.describe(command.descriptor)

    def run(self, job: DispatchedJob) -> Writes:
        """Run a command; of a computation, return the writes of its result, which are still to be done.

        Raises ProgramError and Hazard. A Fault of the command is raised as a ProgramError.
        """
        d = job.entry.values
        with self._running(job):
            if job.queue == EXEC:
                d = moved(d, job.values, self.memory.lanes)
            if not job.values["count"] or job.entry.problem:
                raise Fault(Error.FIELD, job.entry.problem or "a count of 0")
            self.commands[OPCODES[job.queue]] += 1
            if job.queue == EXEC:
                return compute(self.memory, d, job.values["row"], job.values["count"])
            transfer(self.memory, d, job.values, store=job.queue == STORE)
            return ()

    def finish(self, job: DispatchedJob, writes: Writes) -> None:
        """Write the result of a computation. Raises ProgramError, Hazard."""
        with self._running(job):
            for patch, values, lanes in writes:
                self.memory.put(patch, Space.BUFFER, values, lanes)

    @contextmanager
    def _running(self, job: DispatchedJob) -> Iterator[None]:
        """Context of a running job: hazards are noted for it, a Fault becomes its ProgramError."""
        self.memory.clock += 1
        if self.memory.hazards is not None:
            self.memory.hazards.job = job
        try:
            yield
        except Fault as fault:
            raise ProgramError(fault.code, Queue(job.queue + 1), job.index, fault.text) from None
