"""Jobs that the sequencer dispatches: commands with their values, the entry they name, and their waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hw_rtl.emulator.chip import EmulatedChip
from hw_rtl.emulator.errors import ProgramError
from hw_rtl.emulator.jobs import EXEC, OPCODES, DispatchedJob
from lfopt.isa.program import WAITS, Command, unrolled
from lfopt.isa.tables import MOVING, NO_WAIT, RUN, Error, Kind, Queue


def dispatched(chip: EmulatedChip, commands: Sequence[Command]) -> Iterator[DispatchedJob | Command]:
    """Jobs and DESCRIBE commands in program order; a DESCRIBE takes effect when the next is asked for.

    Raises ProgramError DESCRIPTOR.
    """
    hazards = chip.memory.hazards
    number = [0, 0, 0]  # by queue: commands before
    for command in unrolled(commands):
        if command.layout is not RUN:
            yield command
            chip.describe(command)
            continue
        values = command.values
        queue = OPCODES.index(command.opcode)
        waits = (values[name] for name in WAITS)
        targets = tuple(
            0 if wait == NO_WAIT else max(0, before - wait)
            for wait, before in zip(waits, number, strict=True)
        )
        descriptor = values["descriptor"]
        wanted = Kind.COMPUTATION if queue == EXEC else Kind.TRANSFER
        entry = chip.entries[descriptor]
        if entry is None or entry.kind is not wanted:
            text = f"entry {descriptor} is {entry.kind.name if entry else 'empty'}; accepted: {wanted.name}"
            raise ProgramError(Error.DESCRIPTOR, Queue(queue + 1), number[queue], text)
        finished = targets if hazards is None else hazards.dispatch(queue, targets, descriptor)
        yield DispatchedJob(queue, number[queue], descriptor, _numbers(values), entry, targets, finished)
        number[queue] += 1


def _numbers(values: Mapping[str, int]) -> Mapping[str, int]:
    """Values of a command in this iteration, truncated to the bits of their fields as in hardware."""
    return {"count": values["count"], **{name: values[name] & RUN.by_name[name].most for name in MOVING}}
