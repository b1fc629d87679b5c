"""The accelerator's registers: the one table behind SystemVerilog, C header, harness and documentation."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import Enum, IntEnum

from lfopt.isa import tables
from lfopt.isa.fields import Field, WordLayout

BITS = 32  # of a register
BYTES = BITS // 8
ADDRESS_BITS = 12  # of a byte address of a register
PAGE_BYTES = 4096  # bursts do not cross multiples of it


class Access(Enum):
    """What software may do with a register."""

    READ = "read"
    COMMAND = "write; reads as 0"
    IDLE = "read; write while it is not busy"
    ANY = "read, write"
    CLEAR = "read; write 1 to clear"


@dataclass(frozen=True, slots=True)
class Of:
    """What not every register has."""

    fields: tuple[Field, ...] = ()  # from the lowest bit up; none: one number
    reset: int | None = 0  # None: fixed when the hardware is made
    multiple: int = 1  # lower bits are 0, whatever is written
    count: int = 1  # registers, one behind the other


_ENDS = Of(
    (
        Field("done", 1, "a run has ended, in whichever way"),
        Field("failed", 1, "a run was stopped before HALT"),
    )
)
_FIXED = Of(reset=None)


class Register(IntEnum):
    """Registers of 32 bits, by their byte address. What is not listed reads as 0."""

    access: Access
    about: str
    of: Of

    def __new__(cls, offset: int, access: Access, about: str, of: Of = Of()) -> Register:
        """A member, written as a row of the table."""
        member = int.__new__(cls, offset)
        member._value_ = offset
        member.access = access
        member.about = about
        member.of = of
        return member

    ID = 0x000, Access.READ, "that this is the accelerator: LFX, 1", _FIXED
    VERSION = 0x004, Access.READ, "digest of this table of registers, errors and counters", _FIXED
    ISA = (
        0x008,
        Access.READ,
        "digest of the instruction set: programs for another one are not for this hardware",
        _FIXED,
    )
    CAPABILITY = 0x00C, Access.READ, "what the hardware was built with", Of((
        Field("lanes", 8, "channels side by side"),
        Field("outstanding", 8, "requests that may be under way at the memory port, reads and writes each"),
    ), None)  # fmt: skip
    BUFFER_BYTES = 0x010, Access.READ, "bytes of the buffer", _FIXED

    CONTROL = 0x020, Access.COMMAND, "what to do now", Of((
        Field("start", 1, "run the program; ignored while busy"),
        Field("clear", 1, "set the counters to 0; ignored while busy"),
        Field("abort", 1, "give up the run: no new burst, those under way end, and it fails with ABORTED. "
                          "With `start`: nothing starts"),
    ))  # fmt: skip
    STATUS = 0x024, Access.READ, "how the run goes, or went", Of((
        Field("busy", 1, "a run is under way"),
        Field("done", 1, "it has ended, in whichever way"),
        Field("failed", 1, "it was stopped before HALT: see ERROR"),
        Field("bus", 1, "memory owes beats or responses; after TIMEOUT, also when the run has ended"),
    ))  # fmt: skip
    ERROR = 0x028, Access.READ, "why the run was stopped; the first reason stays", Of((
        Field("code", 8, "Error"),
        Field("queue", 2, "Queue that found it"),
    ))  # fmt: skip
    ERROR_INDEX = (
        0x02C,
        Access.READ,
        "how many commands of that queue (words, of the sequencer) came before the one at fault",
    )
    INTERRUPT_ENABLE = (
        0x030,
        Access.ANY,
        "the interrupt line is high while a bit is set here and in INTERRUPT_PENDING",
        _ENDS,
    )
    INTERRUPT_PENDING = (
        0x034,
        Access.CLEAR,
        "what has happened; a bit that is cleared as it happens stays set",
        _ENDS,
    )

    DRAM_OFFSET = (
        0x040,
        Access.IDLE,
        "added to every address on its way to memory: a program's address 0",
        Of(multiple=PAGE_BYTES),
    )
    PROGRAM_ADDRESS = (
        0x044,
        Access.IDLE,
        "address of the program's first word",
        Of(multiple=tables.WORD_BYTES),
    )
    PROGRAM_WORDS = 0x048, Access.IDLE, "words of the program"
    READ_BASE = 0x04C, Access.IDLE, "bytes READ_BASE to READ_LIMIT - 1 may be read, in whole beats"
    READ_LIMIT = 0x050, Access.IDLE, "see READ_BASE"
    WRITE_BASE = 0x054, Access.IDLE, "bytes WRITE_BASE to WRITE_LIMIT - 1 may be written, in whole beats"
    WRITE_LIMIT = 0x058, Access.IDLE, "see WRITE_BASE"
    WATCHDOG = (
        0x05C,
        Access.IDLE,
        "cycles without any progress after which a run fails with TIMEOUT; 0: never",
        Of(reset=1 << 16),
    )
    CYCLE_LIMIT = 0x060, Access.IDLE, "cycles after which a run fails with LIMIT; 0: never", Of(reset=1 << 30)

    COUNTERS = (
        0x100,
        Access.READ,
        "Counter k, of 64 bits, 8 * k bytes from here, its low half first",
        Of(count=2 * len(tables.Counter)),
    )

    @property
    def layout(self) -> WordLayout:
        """Its fields as a word."""
        return WordLayout(self.name.lower(), BITS, self.about, self.of.fields)


def _digest(*facts: object) -> int:
    return zlib.crc32(repr(facts).encode())


def _shape(layout: WordLayout) -> tuple[str, list[tuple[str, int, bool]]]:
    return layout.name, [(field.name, field.bits, field.signed) for field in layout.fields]


def _members(*enums: type[IntEnum]) -> list[tuple[str, list[tuple[str, int]]]]:
    return [(enum.__name__, [(member.name, int(member)) for member in enum]) for enum in enums]


_LAYOUTS = (tables.DESCRIBE, tables.RUN, tables.LOOP, tables.PLAIN, tables.TRANSFER, tables.COMPUTATION)
_ENCODINGS = (tables.Opcode, tables.Kind, tables.Class, tables.Space, tables.Operation, tables.Scale)
_LIMITS = (
    tables.WORD_BITS, tables.PAYLOAD_WORDS, tables.BEAT_BYTES, tables.DESCRIPTORS,
    tables.LOOP_DEPTH, tables.LOOP_WORDS, tables.NO_WAIT, tables.WINDOW, tables.TABLES,
    tables.FACTOR_ROWS, tables.ACCUMULATORS, tables.FACTOR_BYTES, tables.TABLE_BYTES,
    tables.MEAN_BITS,
)  # fmt: skip
IDENTIFICATION = 0x4C465801
ISA = _digest([_shape(layout) for layout in _LAYOUTS], _members(*_ENCODINGS), _LIMITS)
VERSION = _digest(
    [
        (
            register.access.name,
            register.of.reset,
            register.of.multiple,
            register.of.count,
            _shape(register.layout),
        )
        for register in Register
    ],
    _members(Register, tables.Error, tables.Queue, tables.Counter),
)
# values in every accelerator of this version
FIXED = {Register.ID: IDENTIFICATION, Register.VERSION: VERSION, Register.ISA: ISA}
