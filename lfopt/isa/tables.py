"""The accelerator's command words: the one table behind its SystemVerilog package, assembler and page.

A program is a sequence of words of 128 bits in DRAM. The sequencer reads it in order, runs its loops, and
hands what there is to do to three queues, which work side by side, each in order: loads, stores (both through
the memory port) and computation.

    DESCRIBE            fills an entry of the descriptor table: what a later command works on, but for its
                        rows
    LOAD, STORE, EXEC   rows `row` .. `row + count - 1` of what a descriptor says. In loops, its numbers
                        (MOVING) move by a step with every iteration
    LOOP .. END         the commands in between, several times; loops may hold loops
    HALT                the end: once every queue is empty, the accelerator stops

What a command must wait for, it says itself: a *distance* per queue, the number of that queue's commands
before it (in the order of the program, loops unrolled) that may still be unfinished; NO_WAIT asks for
nothing. Commands wait for earlier ones alone, so no program can make them wait for one another.

**Memory.** Addresses in DRAM are bytes, multiples of a beat (16 B). The buffer is addressed in words of LANES
bytes: one byte for each of LANES channels. A row of a feature map lies on chip as [block of
channels][column][lane], and in DRAM as [block of channels][column][lane], where the last block has only as
many lanes as there are channels left (`tail`), and the row is padded to a beat. A *ring* of `slots` slots
holds row r in slot r mod slots.

Of a word of a result, those lanes are written that have a channel: up to out_tail in the last block, from
o_lane on in CONV; and in COPY, if `lanes` is not 0, lanes o_lane + k * o_lane_step for k below `lanes`, each
from the operand's lane a_lane + k * a_lane_step. All others stay as they were.

**Weights** come in the order in which the MAC array takes them, without gaps: for every block of output
channels, every kernel row, every kernel column (or group of WINDOW columns, see `narrow` and DEPTHWISE),
every block of input channels: for every input channel (or kernel column) one byte for each output channel of
the block.

**Arithmetic** is that of `lfopt.ops.integer`: int32 sums; a factor (multiplier, shift) takes v to v *
multiplier / 2**shift, rounded to nearest, halves to even (of SUM, the product first to a multiple of
2**MEAN_BITS); then zero point, bounds, and perhaps a table of 256 bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from lfopt.isa.fields import Field, WordLayout

WORD_BITS = 128  # of a word of the program
WORD_BYTES = WORD_BITS // 8
PAYLOAD_WORDS = 6  # of a descriptor, after the word DESCRIBE
PAYLOAD_BITS = PAYLOAD_WORDS * WORD_BITS
BEAT_BYTES = 16  # of the memory port
DESCRIPTORS = 64  # entries of the descriptor table
LOOP_DEPTH = 3  # loops in loops
LOOP_WORDS = 512  # from LOOP to END, both included, of an outermost loop
NO_WAIT = 63  # a distance: do not wait
WINDOW = 4  # words side by side that the buffer gives in one cycle
TABLES = 64  # tables of 256 bytes on chip
FACTOR_ROWS = 256  # rows of LANES factors on chip
ACCUMULATORS = 512  # columns (of all rows of a command together) whose sums are held beside the MAC array
FACTOR_BYTES = 5  # of one factor: multiplier in bits 0-30, shift in bits 32-37
MEAN_BITS = 18  # products of means are multiples of 2**MEAN_BITS
TABLE_BYTES = 256  # of one table: an entry for each value of a byte


class Told(IntEnum):
    """Numbers that say what they mean."""

    about: str

    def __new__(cls, value: int, about: str) -> Self:
        """A member, written as (number, what it means)."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.about = about
        return member


class Opcode(IntEnum):
    """What a word asks for. 0 is none of them, so memory that nothing wrote stops the accelerator."""

    DESCRIBE = 1
    LOAD = 2
    STORE = 3
    EXEC = 4
    LOOP = 5
    END = 6
    HALT = 7


class Kind(IntEnum):
    """What a descriptor describes."""

    TRANSFER = 1
    COMPUTATION = 2


class Class(IntEnum):
    """What bytes are counted as, at the memory port."""

    INPUT = 0
    WEIGHT = 1
    PARAMETER = 2
    OUTPUT = 3
    SPILL = 4
    INSTRUCTION = 5


class Space(IntEnum):
    """Where a transfer puts things, or takes them from."""

    BUFFER = 0
    FACTORS = 1  # base: row of LANES factors; loads only
    TABLES = 2  # base: number of the table; loads only


class Operation(IntEnum):
    """What a computation does with every element of its window, before scaling."""

    has_weights: bool  # at w_base
    needs_second: bool  # b is a second operand; of the others, the held sums
    has_window: bool  # of any size; the others take one element

    def __new__(cls, value: int, *traits: bool) -> Self:
        """A member, written as (number, has_weights, needs_second, has_window)."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.has_weights, member.needs_second, member.has_window = traits
        return member

    # fmt: off
    #           number  weights second  window
    CONV      = 0,      True,   False,  True   # sums over input channels of (x - zero) * (w - zero)
    DEPTHWISE = 1,      True,   False,  True   # the same, each channel by itself
    SUM       = 2,      False,  False,  True   # x - zero
    MAX       = 3,      False,  False,  True   # the largest x; padding does not count
    COPY      = 4,      False,  False,  False  # x
    ADD       = 5,      False,  True,   False  # a_multiplier * (a - zero) + b_multiplier * (b - zero)
    MUL       = 6,      False,  True,   False  # (a - zero) * (b - zero)
    # fmt: on


class Scale(IntEnum):
    """By what finished sums are scaled."""

    NONE = 0
    CHANNEL = 1  # a factor per channel, from `factors` on
    SCALAR = 2  # `multiplier` and `shift`


class Error(Told):
    """Why the accelerator stopped before HALT."""

    NONE = 0, "nothing went wrong"
    OPCODE = 1, "no such opcode"
    RESERVED = 2, "bits are set that no field allows"
    LOOP = 3, "a count of 0, loops too deep or too long, END without LOOP, HALT inside a loop"
    DESCRIPTOR = 4, "an entry that was never described, or is of the wrong kind"
    FIELD = 5, "a size of 0, too many pixels at once, an enumeration without such a member"
    BUFFER = 6, "an address behind the end of the buffer, the factors or the tables"
    REGION = 7, "an address in DRAM outside the region that may be read, or written"
    BUS = 8, "the memory answered with an error"
    TIMEOUT = 9, "nothing moved for too long: see WATCHDOG"
    PROGRAM = 10, "the program ends without HALT"
    LIMIT = 11, "the run took too many cycles: see CYCLE_LIMIT"
    ABORTED = 12, "software gave up the run"


class Queue(Told):
    """Who found an error."""

    SEQUENCER = 0, "what reads the program"
    LOAD = 1, "loads"
    STORE = 2, "stores"
    EXEC = 3, "computations"


_OPCODE = Field("opcode", 4, "Opcode")


def _moving(name: str, bits: int, step_bits: int, about: str) -> tuple[Field, ...]:
    """A number, and what it moves by with each iteration of up to three loops around, innermost first."""
    steps = (
        Field(
            f"{name}_step{k}",
            step_bits,
            f"`{name}` moves by this with each iteration of the loop {where}",
            signed=True,
        )
        for k, where in enumerate(LOOPS)
    )
    return (Field(name, bits, about), *steps)


LOOPS = ("next to the command", "around that", "around both")
MOVING = ("row", "slot", "from_block", "to_block", "factor")
_RUN = (
    _OPCODE,
    Field("descriptor", 6, "entry of the descriptor table"),
    Field("count", 12, "rows, 1 or more"),
    Field("wait_load", 6, "loads before this command that may be unfinished when it starts; 63: any number"),
    Field("wait_store", 6, "stores, likewise"),
    Field("wait_exec", 6, "computations, likewise"),
    *_moving("row", 16, 12, "first row: of DRAM, or of the result"),
    *_moving("slot", 16, 12,
             "LOAD, STORE: number of the first row on chip, in the slot of that number modulo slots. "
             "EXEC: number of the weights"),
    *_moving("from_block", 10, 10, "where what is read begins: "
             "block of channels in DRAM (LOAD), on chip (STORE), of the operands (EXEC)"),
    *_moving("to_block", 10, 10, "where what is made begins: "
             "block of channels on chip (LOAD), in DRAM (STORE), of result and held sums (EXEC)"),
    *_moving("factor", 8, 8, "EXEC: row of factors, counted from `factors`"),
)  # fmt: skip

DESCRIBE = WordLayout("describe", WORD_BITS,
    "Fill an entry of the descriptor table with the payload, which is the words that follow.", (
    _OPCODE,
    Field("descriptor", 6,
          "entry of the descriptor table; waits until no command that names it is under way"),
    Field("kind", 2, "Kind of the payload"),
))  # fmt: skip
RUN = WordLayout("run", 2 * WORD_BITS, "LOAD, STORE or EXEC: rows of what a descriptor says.", _RUN)
LOOP = WordLayout(
    "loop",
    WORD_BITS,
    "Run what follows, up to its END, `count` times.",
    (_OPCODE, Field("count", 16, "iterations, 1 or more")),
)
PLAIN = WordLayout("plain", WORD_BITS, "END of a loop, or HALT.", (_OPCODE,))
WORDS = {
    Opcode.DESCRIBE: DESCRIBE, Opcode.LOAD: RUN, Opcode.STORE: RUN, Opcode.EXEC: RUN, Opcode.LOOP: LOOP,
    Opcode.END: PLAIN, Opcode.HALT: PLAIN,
}  # fmt: skip

TRANSFER = WordLayout("transfer", PAYLOAD_BITS,
    "Rows between DRAM and the chip. "
    "Row r begins at dram + r * row_beats * 16; block b, b * block_beats * 16 later.", (
    Field("kind", 2, "Kind: 1"),
    Field("class_", 3, "Class that the bytes are counted as"),
    Field("space", 2, "Space on chip"),
    Field("dram", 32, "address of row 0, bytes; a multiple of 16"),
    Field("row_beats", 20, "beats from one row to the next in DRAM"),
    Field("block_beats", 20, "beats from one block of channels to the next in DRAM"),
    Field("columns", 20, "elements of a row of one channel; 1 or more"),
    Field("blocks", 10, "blocks of LANES channels; 1 or more"),
    Field("tail", 7, "channels of the last block, 1 to LANES; those of the others are LANES"),
    Field("base", 20, "first word of the ring (or row of factors, or table)"),
    Field("slots", 12, "slots of the ring; 1 or more"),
    Field("slot_words", 20, "words from one slot to the next"),
    Field("block_words", 20, "words from one block of channels to the next on chip"),
))  # fmt: skip


def _ring(letter: str, what: str) -> tuple[Field, ...]:
    return (
        Field(f"{letter}_base", 20, f"{what}: first word of the ring"),
        Field(f"{letter}_slots", 12, f"{what}: slots of the ring; 1 or more"),
        Field(f"{letter}_slot_words", 20, f"{what}: words from one slot to the next"),
        Field(f"{letter}_block_words", 16, f"{what}: words from one block of channels to the next"),
    )


COMPUTATION = WordLayout("computation", PAYLOAD_BITS,
    "Rows of a result, from rows of one or two operands. "
    "With row y of the command and column x: see the fields.", (
    Field("kind", 2, "Kind: 2"),
    Field("operation", 3, "Operation"),
    Field("narrow", 1, "CONV of LANES / WINDOW channels at most: "
                       "WINDOW kernel columns meet in one cycle, in LANES / WINDOW lanes each"),
    Field("first", 1, "sums begin here; else with the sums held at b"),
    Field("last", 1, "sums end here: scaled and written to o; else held at b"),
    *_ring("a", "operand"),
    Field("a_height", 12, "rows of the operand: others are padding"),
    Field("a_width", 12, "columns of the operand: others are padding"),
    Field("a_zero", 9, "zero point of the operand, which padding has", signed=True),
    Field("a_unsigned", 1, "operand of uint8, else int8"),
    Field("kernel_rows", 12, "window of the operand, rows; 1 or more"),
    Field("kernel_columns", 12, "window, columns; 1 or more"),
    Field("stride_rows", 4, "operand row = y * stride_rows - pad_rows + kernel row * dilation"),
    Field("stride_columns", 4,
          "operand column = x * stride_columns - pad_columns + kernel column * dilation"),
    Field("dilation", 5, "of rows and columns; 1 or more"),
    Field("pad_rows", 13, "see stride_rows", signed=True),
    Field("pad_columns", 13, "see stride_columns", signed=True),
    Field("in_blocks", 10, "CONV: blocks of input channels"),
    Field("in_tail", 7, "CONV: input channels of the last block"),
    Field("out_blocks", 10, "blocks of output channels; 1 or more"),
    Field("out_tail", 7, "output channels of the last block"),
    *_ring("o", "result"),
    Field("o_width", 12, "columns of the result that are made; "
                         "rows times columns is at most the accumulator's depth"),
    Field("o_step", 4, "words from one column of the result to the next; 1 but for Resize"),
    Field("o_row_step", 4, "row of the result = y * o_row_step + o_row"),
    Field("o_row", 4, "see o_row_step"),
    Field("o_zero", 9, "zero point of the result", signed=True),
    Field("low", 9, "least value before the table", signed=True),
    Field("high", 9, "greatest value before the table", signed=True),
    Field("table_id", 6, "table that the byte goes through, if has_table"),
    Field("has_table", 1, "whether it goes through a table"),
    Field("scale", 2, "Scale"),
    Field("factors", 8, "first row of factors; one for each block of output channels"),
    Field("multiplier", 31, "scalar factor"),
    Field("shift", 6, "scalar factor; 1 to 62"),
    Field("has_bias", 1, "whether there is a bias: int32, one per output channel, side by side"),
    Field("bias", 20, "first word of the bias"),
    Field("w_base", 28, "CONV, DEPTHWISE: first byte of the weights"),
    Field("w_block_bytes", 24,
          "CONV, DEPTHWISE: bytes from the weights of one block of output channels to those of the next"),
    Field("w_slots", 12, "weights number n lie w_slot_words * (n mod w_slots) words after w_base; 1 or more"),
    Field("w_slot_words", 20, "see w_slots"),
    Field("bias_slot_words", 20, "the bias likewise, after `bias`"),
    *_ring("b", "second operand of ADD and MUL; "
                "of the others, the held sums: int32, WINDOW words a column of a block"),
    Field("b_vector", 1, "MUL: the second operand has one column, which meets all columns of the first"),
    Field("b_zero", 9, "zero point of the second operand, or of the weights", signed=True),
    Field("b_unsigned", 1, "second operand, or weights, of uint8, else int8"),
    Field("a_multiplier", 25, "ADD: see Operation", signed=True),
    Field("b_multiplier", 25, "ADD: see Operation", signed=True),
    Field("a_lane", 6, "CONV: lane of the first input channel, in the first block. "
                       "COPY: lane that goes to o_lane"),
    Field("o_lane", 6, "CONV, COPY: first lane that is written; "
                       "CONV: of one block of output channels, whose sums begin and end here"),
    Field("a_lane_step", 6, "COPY: from one lane of the operand to the next"),
    Field("o_lane_step", 6, "COPY: from one lane of the result to the next"),
    Field("bias_value", 32, "bias of all output channels, where has_bias is 0", signed=True),
    Field("lanes", 7, "COPY: lanes of each block that are written; 0: all, from where they are"),
))  # fmt: skip

PAYLOADS = {Kind.TRANSFER: TRANSFER, Kind.COMPUTATION: COMPUTATION}


class Counter(Told):
    """Counters of 64 bits. They count while the accelerator is busy."""

    READ_INPUT = 0, "bytes of class INPUT that were asked for and crossed the memory port"
    READ_WEIGHT = 1, "bytes read, likewise, of class WEIGHT"
    READ_PARAMETER = 2, "of class PARAMETER"
    READ_OUTPUT = 3, "of class OUTPUT"
    READ_SPILL = 4, "of class SPILL"
    READ_INSTRUCTION = 5, "of class INSTRUCTION"
    WRITTEN_INPUT = 6, "bytes written, of class INPUT"
    WRITTEN_WEIGHT = 7, "of class WEIGHT"
    WRITTEN_PARAMETER = 8, "of class PARAMETER"
    WRITTEN_OUTPUT = 9, "of class OUTPUT"
    WRITTEN_SPILL = 10, "of class SPILL"
    WRITTEN_INSTRUCTION = 11, "of class INSTRUCTION"
    CYCLES = 12, "cycles"
    LOAD_BUSY = 13, "cycles in which the queue of loads works on a command"
    STORE_BUSY = 14, "cycles in which the queue of stores works on a command"
    EXEC_BUSY = 15, "cycles in which the queue of computations works on a command"
    LOAD_WAIT = 16, "cycles in which a load at the head of its queue waits for others"
    STORE_WAIT = 17, "cycles in which a store at the head of its queue waits for others"
    EXEC_WAIT = 18, "cycles in which a computation at the head of its queue waits for others"
    ARRAY_ACTIVE = 19, "cycles in which the MAC array takes a column of CONV or DEPTHWISE"
    WEIGHT_STALL = 20, "cycles in which computation waits for weights"
    BUFFER_STALL = 21, "cycles in which computation waits for a bank of the buffer"
    DRAIN_STALL = 22, "cycles in which computation waits for a bank of accumulators to be free"
    LOADS = 23, "loads completed"
    STORES = 24, "stores completed"
    EXECS = 25, "computations completed"
    WORDS = 26, "words of the program that the sequencer has run"
