"""The part of a program that runs: its commands up to HALT, or up to the first word at fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hw_rtl.emulator.errors import Fault
from lfopt.isa.fields import BadField
from lfopt.isa.program import BadProgram, Command, decode
from lfopt.isa.tables import (
    LOOP_DEPTH,
    LOOP_WORDS,
    PAYLOAD_WORDS,
    PAYLOADS,
    WORD_BITS,
    WORD_BYTES,
    WORDS,
    Error,
    Kind,
    Opcode,
)


class ProgramSource(NamedTuple):
    """The part of a program that runs."""

    # up to HALT, or to the first word at fault; without the loops that are open there
    commands: Sequence[Command]
    words: int  # of the program up to there, HALT included
    words_run: int  # the same, loops unrolled
    fault: Fault | None  # found behind the commands


def source_of(program: bytes) -> ProgramSource:
    """The commands up to HALT or to the first word at fault.

    All faults of words and loops stand at fixed places. A fault inside a loop is met in the loop's first
    iteration: what is before it runs once, and the loops that are still open then are left out.
    """
    commands, fault = _decoded(program)
    kept: list[Command] = []
    open_loops: list[tuple[int, int]] = []  # (place in `kept`, first word)
    words_run = [0]  # of the program, then of every open loop
    words = 0
    for command in commands:
        size = _size(command.opcode)
        if here := _loop_fault(command, [first for _, first in open_loops], words + size):
            fault = here
            break
        words += size
        words_run[-1] += size
        if command.opcode is Opcode.HALT:
            fault = None
            break
        if command.opcode is Opcode.LOOP:
            open_loops.append((len(kept), words - 1))
            words_run.append(0)
        elif command.opcode is Opcode.END:
            start, _ = open_loops.pop()
            turn_words = words_run.pop()
            words_run[-1] += turn_words * kept[start].values["count"]
        kept.append(command)
    else:
        fault = fault or Fault(Error.PROGRAM, "the program ends without HALT")
    unclosed = {start for start, _ in open_loops}
    return ProgramSource(
        [command for at, command in enumerate(kept) if at not in unclosed], words, sum(words_run), fault
    )


def _loop_fault(command: Command, first_words: Sequence[int], end: int) -> Fault | None:
    """Fault of the loops at this command, or None.

    `first_words`: where the loops begin that it is in, outermost first; `end`: the word after the command.
    """
    if first_words and end - first_words[0] > LOOP_WORDS:
        return Fault(Error.LOOP, f"the loop at word {first_words[0]} has more than {LOOP_WORDS} words")
    if command.opcode is Opcode.LOOP and (len(first_words) == LOOP_DEPTH or not command.values["count"]):
        return Fault(
            Error.LOOP,
            f"{len(first_words) + 1} loops in each other, {command.values['count']} turns; accepted: "
            f"{LOOP_DEPTH}, 1 or more",
        )
    if command.opcode is Opcode.END and not first_words:
        return Fault(Error.LOOP, "END without LOOP")
    if command.opcode is Opcode.HALT and first_words:
        return Fault(Error.LOOP, "HALT inside a loop")
    return None


def _decoded(program: bytes) -> tuple[list[Command], Fault | None]:
    """(commands up to the first malformed word, its fault or None)."""
    try:
        return decode(program), None
    except BadProgram:
        pass
    commands: list[Command] = []
    at = 0
    while at < len(program):  # word by word, to find the place
        opcode = program[at] & 15
        size = WORD_BYTES * _size(opcode)
        words = program[at : at + size]
        try:
            commands += decode(words)
        except BadProgram as error:
            return commands, Fault(
                _word_error(words, opcode, size), f"word {at // WORD_BYTES} of the program: {error}"
            )
        at += size
        if opcode == Opcode.HALT:
            break
    return commands, None


def _word_error(words: bytes, opcode: int, size: int) -> Error:
    """Error of the malformed words of one command."""
    if opcode not in list(Opcode):
        return Error.OPCODE
    head_bytes = WORDS[Opcode(opcode)].bits // 8
    try:
        head = WORDS[Opcode(opcode)].unpack(int.from_bytes(words[:head_bytes], "little"))
        if head.get("kind", Kind.TRANSFER) not in list(Kind):
            return Error.FIELD
        if len(words) < size:
            return Error.PROGRAM
        PAYLOADS[Kind(head["kind"])].unpack(int.from_bytes(words[head_bytes:], "little"))
    except BadField:
        return Error.RESERVED
    return Error.FIELD  # the payload is of another kind


def _size(opcode: int) -> int:
    """Words of a command; 1 for an unknown opcode."""
    if opcode not in list(Opcode):
        return 1
    return WORDS[Opcode(opcode)].bits // WORD_BITS + PAYLOAD_WORDS * (opcode == Opcode.DESCRIBE)
