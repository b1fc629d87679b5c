"""Jobs: dispatched commands of the three queues, with all that they need to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hw_rtl.emulator.descriptors import DescriptorEntry
from lfopt.isa.tables import Opcode

LOAD, STORE, EXEC = range(3)  # places of the queues in everything that is said by queue
OPCODES = (Opcode.LOAD, Opcode.STORE, Opcode.EXEC)  # by queue


@dataclass(frozen=True, slots=True)
class DispatchedJob:
    """A command that has been dispatched."""

    queue: int  # LOAD, STORE, EXEC
    index: int  # commands of the queue before it
    descriptor: int
    values: Mapping[str, int]  # of the command: count, and MOVING as it is in this turn
    entry: DescriptorEntry
    targets: tuple[int, ...]  # by queue: commands that must be finished before it starts
    # by queue: commands that are finished when it starts, all waits before it considered
    finished: tuple[int, ...]
