"""Programs of the accelerator: commands, as words, and as text that a person can read and write.

One command a line: `describe 3 transfer class=input base=0x40`, `load 3 row=0 count=2 row_step0=1
wait_exec=0`, `loop 12`, `end`, `halt`; what follows a `#` is a comment. Fields that are not named are 0,
waits that are not named are NO_WAIT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lfopt.isa.fields import BadField, WordLayout
from lfopt.isa.tables import (
    LOOP_DEPTH,
    LOOP_WORDS,
    MOVING,
    NO_WAIT,
    PAYLOADS,
    RUN,
    WORD_BITS,
    WORD_BYTES,
    WORDS,
    Class,
    Kind,
    Opcode,
    Operation,
    Scale,
    Space,
)

WAITS = ("wait_load", "wait_store", "wait_exec")
ENUMS: dict[str, type[IntEnum]] = {"class_": Class, "space": Space, "operation": Operation, "scale": Scale}
HEXADECIMAL = frozenset("dram base a_base b_base o_base w_base bias".split())
INDENT = "  "


class BadProgram(ValueError):
    """Words or lines that are no program."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Of DESCRIBE, `values` are those of the payload, and `descriptor` says which entry it fills.
    """

    opcode: Opcode
    values: Mapping[str, int] = field(default_factory=dict[str, int])
    descriptor: int = 0
    kind: Kind | None = None  # of the payload

    @property
    def layout(self) -> WordLayout:
        """Where the values stand."""
        if self.kind is not None:
            return PAYLOADS[self.kind]
        return WORDS[self.opcode]

    @property
    def bits(self) -> int:
        """Bits of all its words."""
        return WORDS[self.opcode].bits + (self.layout.bits if self.kind is not None else 0)

    def words(self) -> list[int]:
        """The command as words of 128 bits. Raises BadField."""
        layout = WORDS[self.opcode]
        if self.kind is None:
            return _cut(layout.pack({"opcode": self.opcode, **self.values}), layout)
        head = layout.pack({"opcode": self.opcode, "descriptor": self.descriptor, "kind": self.kind})
        return [head, *_cut(self.layout.pack({"kind": self.kind, **self.values}), self.layout)]

    def text(self) -> str:
        """The command as a line."""
        if self.kind is not None:
            return " ".join(
                (
                    self.opcode.name.lower(),
                    str(self.descriptor),
                    self.kind.name.lower(),
                    *self._fields({"kind"}),
                )
            )
        if self.opcode is Opcode.LOOP:
            return f"loop {self.values['count']}"
        if self.layout is RUN:
            return " ".join(
                (
                    self.opcode.name.lower(),
                    str(self.values.get("descriptor", 0)),
                    *self._fields({"opcode", "descriptor"}),
                )
            )
        return self.opcode.name.lower()

    def _fields(self, apart: set[str]) -> Iterator[str]:
        for name in self.layout.by_name:
            value = self.values.get(name, 0)
            usual = NO_WAIT if name in WAITS else 0
            if name in apart or value == usual:
                continue
            if name in ENUMS and value in list(ENUMS[name]):
                yield f"{name.rstrip('_')}={ENUMS[name](value).name.lower()}"
            else:
                yield f"{name}={value:#x}" if name in HEXADECIMAL else f"{name}={value}"


def _cut(value: int, layout: WordLayout) -> list[int]:
    """A layout's bits as words, lowest first."""
    return [value >> at & (1 << WORD_BITS) - 1 for at in range(0, layout.bits, WORD_BITS)]


def encode(commands: Iterable[Command]) -> bytes:
    """A program as it lies in DRAM. Raises BadField."""
    return b"".join(word.to_bytes(WORD_BYTES, "little") for command in commands for word in command.words())


def decode(program: bytes) -> list[Command]:
    """The commands of a program. Raises BadProgram, with the number of the word."""
    if len(program) % WORD_BYTES:
        raise BadProgram(f"found {len(program)} bytes; accepted: a multiple of {WORD_BYTES}")
    words = [
        int.from_bytes(program[k : k + WORD_BYTES], "little") for k in range(0, len(program), WORD_BYTES)
    ]
    commands: list[Command] = []
    at = 0
    while at < len(words):
        try:
            commands.append(_decoded(words, at))
        except (BadField, ValueError) as error:
            raise BadProgram(f"word {at}: {error}") from None
        at += commands[-1].bits // WORD_BITS
    return commands


def _decoded(words: Sequence[int], at: int) -> Command:
    opcode = Opcode(words[at] & 15)
    values = _taken(words, at, WORDS[opcode])
    del values["opcode"]
    if opcode is not Opcode.DESCRIBE:
        return Command(opcode, values)
    kind = Kind(values["kind"])
    payload = _taken(words, at + 1, PAYLOADS[kind])
    if payload.pop("kind") != kind:
        raise BadField("the payload is of another kind than DESCRIBE says")
    return Command(opcode, payload, values["descriptor"], kind)


def _taken(words: Sequence[int], at: int, layout: WordLayout) -> dict[str, int]:
    """The fields of a layout that begins at a word."""
    size = layout.bits // WORD_BITS
    if at + size > len(words):
        raise BadField(f"{layout.name}: found {len(words) - at} words; accepted: {size}")
    return layout.unpack(sum(word << WORD_BITS * k for k, word in enumerate(words[at : at + size])))


def listing(commands: Iterable[Command]) -> Iterator[str]:
    """A program as lines, bodies of loops indented."""
    depth = 0
    for command in commands:
        depth -= command.opcode is Opcode.END
        yield INDENT * depth + command.text()
        depth += command.opcode is Opcode.LOOP


def assemble(lines: Iterable[str]) -> list[Command]:
    """The commands of a listing. Raises BadProgram, with the number of the line."""
    commands: list[Command] = []
    for number, line in enumerate(lines, 1):
        if not (parts := line.split("#")[0].split()):
            continue
        try:
            commands.append(_assembled(parts))
        except (BadField, ValueError, IndexError, KeyError) as error:
            raise BadProgram(f"line {number}: {line.strip()!r}: {error}") from None
    return commands


def _assembled(parts: Sequence[str]) -> Command:
    name, *rest = parts
    if name.upper() not in Opcode.__members__:
        raise BadField(f"found {name!r}; accepted: {', '.join(Opcode.__members__).lower()}")
    opcode = Opcode[name.upper()]
    if opcode is Opcode.LOOP:
        return _checked(Command(opcode, {"count": int(rest[0])}))
    if WORDS[opcode] is RUN:
        waits = dict.fromkeys(WAITS, NO_WAIT)
        return _checked(Command(opcode, {"descriptor": int(rest[0]), **waits, **_values(rest[1:], RUN)}))
    if opcode is Opcode.DESCRIBE:
        kind = Kind[rest[1].upper()]
        return _checked(Command(opcode, _values(rest[2:], PAYLOADS[kind]), int(rest[0]), kind))
    return Command(opcode)


def _values(parts: Iterable[str], layout: WordLayout) -> dict[str, int]:
    fields: dict[str, int] = {}
    for part in parts:
        name, _, value = part.partition("=")
        name = name if name in layout.by_name else f"{name}_"
        fields[name] = (
            int(ENUMS[name][value.upper()])
            if name in ENUMS and value.upper() in ENUMS[name].__members__
            else int(value, 0)
        )
    return fields


def _checked(command: Command) -> Command:
    command.words()
    return command


def unrolled(commands: Sequence[Command]) -> Iterator[Command]:
    """The commands that the sequencer hands out, loops unrolled: DESCRIBE, LOAD, STORE and EXEC.

    Each has the numbers of its iteration, and no steps.

    Raises BadProgram for loops that are too deep, too long or unbalanced.
    """
    check_loops(commands)
    stack: list[list[int]] = []  # [place of LOOP, iteration]
    at = 0
    while at < len(commands):
        command = commands[at]
        if command.opcode is Opcode.HALT:
            return
        if command.opcode is Opcode.LOOP:
            stack.append([at, 0])
        elif command.opcode is Opcode.END:
            stack[-1][1] += 1
            if stack[-1][1] < commands[stack[-1][0]].values["count"]:
                at = stack[-1][0]
            else:
                stack.pop()
        elif command.layout is RUN and stack:
            iterations = [iteration for _, iteration in reversed(stack)]
            still = {name: value for name, value in command.values.items() if "_step" not in name}
            moved = {
                name: sum(
                    command.values.get(f"{name}_step{k}", 0) * iteration
                    for k, iteration in enumerate(iterations)
                )
                for name in MOVING
            }
            yield Command(
                command.opcode, {**still, **{name: still.get(name, 0) + by for name, by in moved.items()}}
            )
        else:
            yield command
        at += 1


def count_runs(commands: Sequence[Command]) -> int:
    """LOAD, STORE and EXEC that run before HALT, loops unrolled. Raises BadProgram as `check_loops` does."""
    check_loops(commands)
    iterations = [1]
    total = 0
    for command in commands:
        if command.opcode is Opcode.HALT:
            break
        if command.opcode is Opcode.LOOP:
            iterations.append(iterations[-1] * command.values["count"])
        elif command.opcode is Opcode.END:
            iterations.pop()
        elif command.layout is RUN:
            total += iterations[-1]
    return total


def check_loops(commands: Sequence[Command]) -> None:
    """Raise BadProgram for loops that are too deep, too long, of no iterations or unbalanced."""
    stack: list[tuple[int, int]] = []  # (place, first word) of every LOOP that is open
    word = 0
    for at, command in enumerate(commands):
        if command.opcode is Opcode.LOOP:
            stack.append((at, word))
            if len(stack) > LOOP_DEPTH or not command.values.get("count"):
                here = f"{len(stack)} loops in each other, {command.values.get('count')} iterations"
                raise BadProgram(f"command {at}: found {here}; accepted: up to {LOOP_DEPTH}, 1 or more")
        if command.opcode is Opcode.END:
            if not stack:
                raise BadProgram(f"command {at}: END without LOOP")
            _, first = stack.pop()
            if word - first + 1 > LOOP_WORDS:
                raise BadProgram(
                    f"command {at}: found a loop of {word - first + 1} words; accepted: up to {LOOP_WORDS}"
                )
        word += command.bits // WORD_BITS
    if stack:
        raise BadProgram(f"command {stack[-1][0]}: LOOP without END")
