"""The emulator of the accelerator against a slow one, channel by channel: results, orders, waits, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from hw_rtl.emulator import Hazard, ProgramError, QueueOrder, emulate
from lfopt.isa.program import Command, assemble, encode
from lfopt.isa.tables import (
    MOVING,
    NO_WAIT,
    PAYLOAD_WORDS,
    RUN,
    Class,
    Error,
    Kind,
    Opcode,
    Operation,
    Queue,
    Scale,
    Space,
)

BUFFER_BYTES = 65536
FACTOR_BYTES, TABLE_BYTES = 5, 256
DRAM_BYTES = 1 << 18
DUMP = 1 << 17  # where the whole buffer is stored at the end


def int8(byte: int, unsigned: int) -> int:
    return byte if unsigned or byte < 128 else byte - 256


def int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


class Slow:
    """The accelerator with loops over everything. Bytes that may be anything are -1."""

    def __init__(self, memory: np.ndarray, lanes: int) -> None:
        self.memory = memory.astype(int).tolist()
        self.lanes = lanes
        self.chip = {
            Space.BUFFER: [-1] * BUFFER_BYTES,
            Space.FACTORS: [-1] * 256 * 5 * lanes,
            Space.TABLES: [-1] * 64 * 256,
        }
        self.read: Counter[Class] = Counter()
        self.written: Counter[Class] = Counter()

    def run(self, opcode: Opcode, d: Mapping[str, int], command: Mapping[str, int]) -> None:
        if opcode is Opcode.EXEC:
            self.compute(d, command)
        else:
            self.transfer(d, command, store=opcode is Opcode.STORE)

    def transfer(self, d: Mapping[str, int], command: Mapping[str, int], *, store: bool) -> None:
        dram_block, chip_block = (
            command["to_block" if store else "from_block"],
            command["from_block" if store else "to_block"],
        )
        chip = self.chip[Space(d["space"])]
        base = (
            d["base"]
            * {Space.BUFFER: self.lanes, Space.FACTORS: 5 * self.lanes, Space.TABLES: 256}[Space(d["space"])]
        )
        for k in range(command["count"]):
            for b in range(d["blocks"]):
                lanes = d["tail"] if b == d["blocks"] - 1 else self.lanes
                at = d["dram"] + 16 * (
                    (command["row"] + k) * d["row_beats"] + (dram_block + b) * d["block_beats"]
                )
                size = -(-d["columns"] * lanes // 16) * 16
                (self.written if store else self.read)[Class(d["class_"])] += size
                if store:
                    self.memory[at : at + size] = [0] * size
                for x in range(d["columns"]):
                    word = (
                        (command["slot"] + k) % d["slots"] * d["slot_words"]
                        + (chip_block + b) * d["block_words"]
                        + x
                    )
                    place = base + word * self.lanes
                    if store:
                        self.memory[at + x * lanes : at + (x + 1) * lanes] = chip[place : place + lanes]
                    else:
                        chip[place : place + self.lanes] = self.memory[
                            at + x * lanes : at + (x + 1) * lanes
                        ] + [0] * (self.lanes - lanes)

    def compute(self, d: Mapping[str, int], command: Mapping[str, int]) -> None:
        slot = command["slot"] % max(1, d["w_slots"])
        pair = d["operation"] in (Operation.ADD, Operation.MUL)
        results: list[tuple[int, list[int]]] = []
        for y in range(command["row"], command["row"] + command["count"]):
            for ob in range(d["out_blocks"]):
                n = d["out_tail"] if ob == d["out_blocks"] - 1 else self.lanes
                for x in range(d["o_width"]):
                    sums = [self.sum(d, command, slot, y, x, ob, lane, n) for lane in range(n)]
                    if d["last"]:
                        word = (
                            d["o_base"]
                            + (y * d["o_row_step"] + d["o_row"]) % d["o_slots"] * d["o_slot_words"]
                        )
                        word += (command["to_block"] + ob) * d["o_block_words"] + x * d["o_step"]
                        values = [self.byte(d, command, slot, ob, lane, v) for lane, v in enumerate(sums)]
                        results.append((word, values + [-1] * (self.lanes - n)))
                    else:
                        assert not pair
                        word = (
                            d["b_base"]
                            + y % d["b_slots"] * d["b_slot_words"]
                            + (command["to_block"] + ob) * d["b_block_words"]
                            + 4 * x
                        )
                        values = [byte for v in sums for byte in v.to_bytes(4, "little", signed=True)]
                        results.append((word, values + [-1] * 4 * (self.lanes - n)))
        for word, values in results:
            self.chip[Space.BUFFER][word * self.lanes : word * self.lanes + len(values)] = values

    def sum(
        self,
        d: Mapping[str, int],
        command: Mapping[str, int],
        slot: int,
        y: int,
        x: int,
        ob: int,
        lane: int,
        n: int,
    ) -> int:
        buffer, operation = self.chip[Space.BUFFER], d["operation"]
        total = 0 if d["first"] else None
        if not d["first"]:
            word = (
                d["b_base"]
                + y % d["b_slots"] * d["b_slot_words"]
                + (command["to_block"] + ob) * d["b_block_words"]
                + 4 * x
            )
            total = self.int32(word * self.lanes + 4 * lane)
        elif operation == Operation.MAX:
            total = -(2**31)
        assert total is not None
        depth = (d["in_blocks"] - 1) * self.lanes + d["in_tail"] if operation == Operation.CONV else 1
        weight = d["w_base"] + self.lanes * slot * d["w_slot_words"] + ob * d["w_block_bytes"]
        for ky in range(d["kernel_rows"]):
            for kx in range(d["kernel_columns"]):
                iy = y * d["stride_rows"] - d["pad_rows"] + ky * d["dilation"]
                ix = x * d["stride_columns"] - d["pad_columns"] + kx * d["dilation"]
                inside = 0 <= iy < d["a_height"] and 0 <= ix < d["a_width"]
                for channel in range(depth):
                    block, c = divmod(channel, self.lanes) if operation == Operation.CONV else (ob, lane)
                    a = d["a_zero"]
                    if inside:
                        word = (
                            d["a_base"]
                            + iy % d["a_slots"] * d["a_slot_words"]
                            + (command["from_block"] + block) * d["a_block_words"]
                            + ix
                        )
                        a = int8(buffer[word * self.lanes + c], d["a_unsigned"])
                    if operation in (Operation.CONV, Operation.DEPTHWISE) and inside:
                        place = weight + (((ky * d["kernel_columns"]) + kx) * depth + channel) * n + lane
                        total += (a - d["a_zero"]) * (int8(buffer[place], d["b_unsigned"]) - d["b_zero"])
                    elif operation == Operation.SUM:
                        total += a - d["a_zero"]
                    elif operation == Operation.MAX and inside:
                        total = max(total, a)
                    elif operation == Operation.COPY:
                        total += a
                    elif operation in (Operation.ADD, Operation.MUL):
                        word = (
                            d["b_base"]
                            + y % d["b_slots"] * d["b_slot_words"]
                            + (command["from_block"] + ob) * d["b_block_words"]
                        )
                        b = (
                            int8(
                                buffer[(word + (0 if d["b_vector"] else x)) * self.lanes + lane],
                                d["b_unsigned"],
                            )
                            - d["b_zero"]
                        )
                        a -= d["a_zero"]
                        total = (
                            a * b
                            if operation == Operation.MUL
                            else d["a_multiplier"] * a + d["b_multiplier"] * b
                        )
        return int32(total)

    def byte(
        self, d: Mapping[str, int], command: Mapping[str, int], slot: int, ob: int, lane: int, v: int
    ) -> int:
        if d["has_bias"]:
            v = int32(
                v + self.int32((d["bias"] + slot * d["bias_slot_words"] + 4 * ob) * self.lanes + 4 * lane)
            )
        multiplier, shift = d["multiplier"], d["shift"]
        if d["scale"] == Scale.CHANNEL:
            at = (d["factors"] + command["factor"] + ob) * 5 * self.lanes + 5 * lane
            factor = int.from_bytes(bytes(self.chip[Space.FACTORS][at : at + 5]), "little")
            multiplier, shift = factor & 2**31 - 1, factor >> 32 & 63
        if d["scale"] != Scale.NONE:
            v = (v * multiplier + 2 ** (shift - 1) >> shift) + d["o_zero"]
        code = min(max(v, d["low"]), d["high"]) & 255
        return self.chip[Space.TABLES][256 * d["table_id"] + code] if d["has_table"] else code

    def int32(self, at: int) -> int:
        return int.from_bytes(bytes(self.chip[Space.BUFFER][at : at + 4]), "little", signed=True)


def described(entry: int, kind: Kind, values: Mapping[str, int]) -> Command:
    return Command(Opcode.DESCRIBE, values, entry, kind)


def ran(opcode: Opcode, entry: int, **values: int) -> Command:
    waits = {"wait_load": 0, "wait_store": 0, "wait_exec": 0}
    return Command(opcode, {"descriptor": entry, "count": 1, **waits, **values})


def filling(lanes: int) -> list[Command]:
    """Everything on chip, from the beginning of DRAM; factors have shifts of 30 to 45."""
    spaces = {Space.BUFFER: BUFFER_BYTES, Space.FACTORS: 256 * 5 * lanes, Space.TABLES: 64 * 256}
    at, commands = 0, []
    for entry, (space, size) in enumerate(spaces.items(), 61):
        values = {
            "space": space,
            "dram": at,
            "columns": size // lanes,
            "blocks": 1,
            "tail": lanes,
            "slots": 1,
        }
        commands += [described(entry, Kind.TRANSFER, values), ran(Opcode.LOAD, entry)]
        at += size
    return commands


def dumping(lanes: int) -> list[Command]:
    values = {
        "dram": DUMP,
        "columns": BUFFER_BYTES // lanes,
        "blocks": 1,
        "tail": lanes,
        "slots": 1,
        "class_": Class.OUTPUT,
    }
    return [described(60, Kind.TRANSFER, values), ran(Opcode.STORE, 60), Command(Opcode.HALT)]


def random_memory(rng: np.random.Generator, lanes: int) -> np.ndarray:
    memory = rng.integers(0, 256, DRAM_BYTES, np.uint8)
    memory[BUFFER_BYTES + 4 : BUFFER_BYTES + 256 * 5 * lanes : 5] = rng.integers(30, 46, 256 * lanes)
    return memory


def assert_agree(commands: Iterable[Command], memory: np.ndarray, lanes: int, **arguments: object) -> None:
    """What the emulator leaves in DRAM, and counts, is what the slow one does."""
    commands = list(commands)
    slow = Slow(memory, lanes)
    entries: dict[int, Mapping[str, int]] = {}
    for command in commands:
        if command.opcode is Opcode.DESCRIBE:
            assert command.kind is not None
            entries[command.descriptor] = {
                name: command.values.get(name, 0) for name in command.layout.by_name
            }
        elif command.layout is RUN:
            slow.run(
                command.opcode,
                entries[command.values["descriptor"]],
                {name: command.values.get(name, 0) for name in RUN.by_name},
            )
    emulated = emulate(encode(commands), memory, lanes=lanes, buffer_bytes=BUFFER_BYTES, **arguments)  # pyright: ignore[reportArgumentType]
    wanted = np.array(slow.memory)
    differ = np.flatnonzero((wanted != emulated.memory) & (wanted >= 0))
    assert not differ.size, (differ.size, differ[:5] - DUMP, wanted[differ[:5]], emulated.memory[differ[:5]])
    for of in Class:
        if of is not Class.INSTRUCTION:
            assert (emulated.read[of], emulated.written[of]) == (slow.read[of], slow.written[of]), of
    assert emulated.instruction_words_fetched == len(encode(commands)) // 16
    assert emulated.read[Class.INSTRUCTION] == len(encode(commands))


def ring(
    rng: np.random.Generator, letter: str, blocks: int, columns: int, first: int, end: int
) -> dict[str, int]:
    """A ring of any shape in words `first` to `end`, with room for three more blocks than `blocks`."""
    block_words = columns + int(rng.integers(0, 3))
    slots = int(rng.integers(1, 6))
    slot_words = block_words * (blocks + 3) + int(rng.integers(0, 4))
    slots = max(1, min(slots, (end - first) // slot_words))
    base = first + int(rng.integers(0, end - first - slots * slot_words + 1))
    return {
        f"{letter}_base": base,
        f"{letter}_slots": slots,
        f"{letter}_slot_words": slot_words,
        f"{letter}_block_words": block_words,
    }


def random_computation(
    rng: np.random.Generator, operation: Operation, lanes: int
) -> tuple[dict[str, int], dict[str, int]]:
    """(descriptor, command): operands in the lower half of the buffer, results in its third quarter.

    Held sums are in the last quarter.
    """

    def pick(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    words = BUFFER_BYTES // lanes
    elementwise = operation in (Operation.COPY, Operation.ADD, Operation.MUL)
    narrow = operation is Operation.CONV and rng.random() < 0.4
    wide = operation is not Operation.CONV and rng.random() < 0.2  # a large window
    height, width = pick(1, 9), pick(1, 9)
    in_blocks = 1 if narrow or operation is not Operation.CONV else pick(1, 3)
    kernel = (1, 1) if elementwise else (pick(1, 9), pick(1, 9)) if wide else (pick(1, 4), pick(1, 5))
    out_blocks, count, o_width = pick(1, 3), pick(1, 3), pick(1, 7)
    dilation = 1 if rng.random() < 0.6 else pick(2, 3)
    d = {
        "operation": operation, "narrow": int(narrow), "first": 1, "last": 1,
        **ring(rng, "a", max(in_blocks, out_blocks), width, 0, words // 2),
        **ring(rng, "b", out_blocks, max(1, o_width) * 4, words * 3 // 4, words), "a_height": height,
        "a_width": width, "a_zero": pick(-128, 255), "a_unsigned": pick(0, 1), "kernel_rows": kernel[0],
        "kernel_columns": kernel[1], "dilation": dilation, "stride_rows": pick(0, 3),
        "stride_columns": pick(0, 3), "pad_rows": pick(-2, 4), "pad_columns": pick(-2, 4),
        "in_blocks": in_blocks, "in_tail": pick(1, lanes // 4 if narrow else lanes), "out_blocks": out_blocks,
        "out_tail": pick(1, lanes), "o_width": o_width, "o_step": pick(1, 3), "o_row_step": pick(0, 3),
        "o_row": pick(0, 3), "o_zero": pick(-128, 255), "low": pick(-128, 60), "high": pick(60, 255),
        "table_id": pick(0, 63), "has_table": pick(0, 1), "scale": pick(0, 2), "factors": pick(0, 240),
        "multiplier": pick(0, 2**31 - 1), "shift": pick(28, 45), "has_bias": pick(0, 1),
        "bias": pick(0, words // 2), "bias_slot_words": pick(0, 20), "w_slots": pick(1, 4),
        "w_slot_words": pick(0, 40), "w_base": pick(0, BUFFER_BYTES // 2), "w_block_bytes": pick(0, 2000),
        "b_vector": pick(0, 1), "b_zero": pick(-128, 255), "b_unsigned": pick(0, 1),
        "a_multiplier": pick(-(2**22), 2**22), "b_multiplier": pick(-(2**22), 2**22),
    }  # fmt: skip
    d.update(ring(rng, "o", out_blocks, (o_width - 1) * d["o_step"] + 1, words // 2, words * 3 // 4))
    command = {
        "row": pick(0, 6), "count": count, "slot": pick(0, 9), "factor": pick(0, 12),
        "from_block": pick(0, 3), "to_block": pick(0, 3),
    }  # fmt: skip
    return d, command


@pytest.mark.parametrize("operation", Operation)
def test_every_operation_gives_the_bytes_of_the_slow_one(operation: Operation):
    for seed in range(24):
        rng = np.random.default_rng([operation, seed])
        lanes = 32 if seed % 4 == 3 else 16
        commands = filling(lanes)
        for _ in range(2):
            d, command = random_computation(rng, operation, lanes)
            commands += [described(0, Kind.COMPUTATION, d), ran(Opcode.EXEC, 0, **command)]
        assert_agree([*commands, *dumping(lanes)], random_memory(rng, lanes), lanes)


@pytest.mark.parametrize(
    "operation", [Operation.CONV, Operation.DEPTHWISE, Operation.SUM, Operation.MAX, Operation.COPY]
)
def test_sums_may_be_held_between_commands(operation: Operation):
    for seed in range(12):
        rng = np.random.default_rng([9, operation, seed])
        d, command = random_computation(rng, operation, 16)
        commands = filling(16)
        for first, last in ((seed % 3 != 0, 0), (0, 0), (0, 1)):
            # Each command meets another part of the operand, and the held sums of the one before.
            part = {
                **d,
                "first": int(first),
                "last": last,
                "a_base": int(rng.integers(0, 50)),
                "a_block_words": 9,
                "a_slot_words": 60,
            }
            commands += [described(0, Kind.COMPUTATION, part), ran(Opcode.EXEC, 0, **command)]
        assert_agree([*commands, *dumping(16)], random_memory(rng, 16), 16)


def test_weights_and_factors_that_change_under_the_same_descriptor_are_seen():
    rng = np.random.default_rng(5)
    d, command = random_computation(rng, Operation.CONV, 16)
    d.update(
        w_slots=1,
        w_base=200 * 16,
        kernel_rows=1,
        kernel_columns=1,
        out_blocks=1,
        a_height=99,
        pad_rows=0,
        pad_columns=0,
        stride_rows=0,
    )
    d.update(
        scale=Scale.CHANNEL,
        low=-128,
        high=127,
        narrow=0,
        in_blocks=1,
        in_tail=9,
        a_base=400,
        has_table=0,
        has_bias=0,
        factors=0,
        a_width=50,
    )
    d.update(o_zero=0, a_zero=0, b_zero=0)
    commands = [*filling(16), described(0, Kind.COMPUTATION, d)]
    for entry, where in (
        (1, {"base": 200, "columns": 8}),
        (2, {"base": 0, "columns": 5, "space": Space.FACTORS}),
    ):
        commands.append(
            described(
                entry,
                Kind.TRANSFER,
                {"dram": BUFFER_BYTES, "row_beats": 5, "blocks": 1, "tail": 16, "slots": 1, **where},
            )
        )
    for row in range(4):
        commands += [
            ran(Opcode.EXEC, 0, **{**command, "factor": 0, "to_block": row}),
            ran(Opcode.LOAD, 1 + row % 2, row=row + 3),
        ]
    assert_agree([*commands, *dumping(16)], random_memory(rng, 16), 16)


@pytest.mark.parametrize("channels", [40, 16, 8])
def test_large_sums_are_exact(channels: int):
    rng = np.random.default_rng(channels)
    d, command = random_computation(rng, Operation.CONV, 16)
    d.update(
        a_unsigned=1,
        b_unsigned=1,
        a_zero=-200,
        b_zero=-200,
        in_blocks=-(-channels // 16),
        in_tail=(channels - 1) % 16 + 1,
        narrow=0,
    )
    d.update(
        last=0,
        kernel_rows=3,
        kernel_columns=3,
        a_height=90,
        a_width=9,
        pad_rows=0,
        pad_columns=0,
        dilation=1,
        a_base=0,
        a_slot_words=40,
    )
    d.update(a_slots=4, a_block_words=9)
    memory = random_memory(rng, 16)
    memory[:BUFFER_BYTES] |= 0xF0
    assert_agree(
        [*filling(16), described(0, Kind.COMPUTATION, d), ran(Opcode.EXEC, 0, **command), *dumping(16)],
        memory,
        16,
    )


@pytest.mark.parametrize("lanes", [16, 32])
def test_rows_are_loaded_and_stored_with_tails_blocks_and_rings(lanes: int):
    for seed in range(40):
        rng = np.random.default_rng([7, lanes, seed])
        columns, blocks, tail = (int(rng.integers(1, most + 1)) for most in (12, 3, lanes))
        piece = columns * lanes // 16
        commands = filling(lanes)
        for opcode in (Opcode.LOAD, Opcode.STORE, Opcode.LOAD, Opcode.STORE):
            block_beats = piece + int(rng.integers(0, 3)) * int(rng.integers(0, 2))
            shape = ring(rng, "x", blocks, columns, 0, BUFFER_BYTES // lanes)
            values = {
                "class_": int(rng.integers(0, 5)), "dram": int(rng.integers(0, 100)) * 16,
                "block_beats": block_beats, "row_beats": block_beats * (blocks + 3) + int(rng.integers(0, 3)),
                "columns": columns, "blocks": blocks, "tail": tail, "base": shape["x_base"],
                "slots": shape["x_slots"], "slot_words": shape["x_slot_words"],
                "block_words": shape["x_block_words"],
            }  # fmt: skip
            numbers = {
                name: int(rng.integers(0, most + 1))
                for name, most in (("row", 5), ("slot", 9), ("from_block", 3), ("to_block", 3))
            }
            commands += [
                described(1, Kind.TRANSFER, values),
                ran(opcode, 1, count=int(rng.integers(1, 5)), **numbers),
            ]
        assert_agree([*commands, *dumping(lanes)], rng.integers(0, 256, DRAM_BYTES, np.uint8), lanes)


def test_loops_move_every_number_of_a_command():
    rng = np.random.default_rng(8)
    d, _ = random_computation(rng, Operation.CONV, 16)
    d.update(o_step=1, o_slots=3, scale=Scale.CHANNEL, factors=0)
    memory = random_memory(rng, 16)
    steps = {f"{name}_step{k}": int(rng.integers(-1, 2)) for name in MOVING for k in range(3)}
    looped, straight = [described(0, Kind.COMPUTATION, d)], [described(0, Kind.COMPUTATION, d)]
    start = {"row": 7, "slot": 9, "from_block": 6, "to_block": 6, "factor": 8, "wait_load": NO_WAIT}
    for turns in ((2, 3, 2), (3,), ()):
        looped += [Command(Opcode.LOOP, {"count": count}) for count in turns]
        looped += [ran(Opcode.EXEC, 0, **start, **steps)] + [Command(Opcode.END)] * len(turns)
        for at in np.ndindex(*turns):
            by = [0] * (3 - len(at)) + list(at)
            moved = {
                name: start[name] + sum(steps[f"{name}_step{k}"] * by[2 - k] for k in range(3))
                for name in MOVING
            }
            straight.append(ran(Opcode.EXEC, 0, **{**start, **moved}))
    emulations = [
        emulate(encode([*filling(16), *commands, *dumping(16)]), memory, buffer_bytes=BUFFER_BYTES)
        for commands in (looped, straight)
    ]
    assert (emulations[0].memory == emulations[1].memory).all()
    assert emulations[0].commands == emulations[1].commands and emulations[0].commands[Opcode.EXEC] == 16
    assert emulations[0].instruction_words_fetched == len(encode([*filling(16), *looped, *dumping(16)])) // 16


# Orders. Rows of a map come, are copied and leave, all in rings of two slots.

PIPELINE = [
    "describe 0 transfer class=input row_beats=8 columns=8 blocks=1 tail=16 slots=2 slot_words=8",
    (
        "describe 1 computation operation=copy first=1 last=1 a_slots=2 a_slot_words=8 a_height=64 a_width=8 "
        "kernel_rows=1 kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 out_blocks=1 out_tail=16 "
        "o_base=64 o_slots=2 o_slot_words=8 o_width=8 o_step=1 o_row_step=1 low=-128 high=127"
    ),
    (
        "describe 2 transfer class=output dram=0x8000 row_beats=8 "
        "columns=8 blocks=1 tail=16 base=64 slots=2 slot_words=8"
    ),
    "load 0 row=0 slot=0 count=1",
    "load 0 row=1 slot=1 count=1",
    "loop 12",
    "exec 1 row=0 count=1 row_step0=1 wait_load=1 wait_store=1",
    "store 2 row=0 slot=0 count=1 row_step0=1 slot_step0=1 wait_exec=0",
    "load 0 row=2 slot=2 count=1 row_step0=1 slot_step0=1 wait_exec=0",
    "end",
    "halt",
]


def pipeline(*without: str) -> bytes:
    lines = [
        " ".join(part for part in line.split() if f"{line.split()[0]} {part}" not in without)
        for line in PIPELINE
    ]
    return encode(assemble(lines))


def pipeline_memory() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, 1 << 16, np.uint8)


@pytest.mark.parametrize("order", QueueOrder)
def test_a_program_with_all_its_waits_does_the_same_in_every_order(order: QueueOrder):
    memory = pipeline_memory()
    for seed in range(5):
        emulated = emulate(
            pipeline(),
            memory,
            order=order,
            rng=np.random.default_rng(seed),
            check=True,
            queue_depth=(None, 2)[seed % 2],
        ).memory
        assert (emulated[0x8000 : 0x8000 + 12 * 128] == memory[: 12 * 128]).all()
        assert (
            np.delete(emulated, np.s_[0x8000 : 0x8000 + 12 * 128])
            == np.delete(memory, np.s_[0x8000 : 0x8000 + 12 * 128])
        ).all()


@pytest.mark.parametrize(
    "wait", ["exec wait_load=1", "exec wait_store=1", "store wait_exec=0", "load wait_exec=0"]
)
def test_a_missing_wait_shows(wait: str):
    memory = pipeline_memory()
    program = pipeline(wait)
    right = emulate(pipeline(), memory).memory
    assert (emulate(program, memory).memory == right).all(), "in the order of the program all is well"
    assert any(
        (emulate(program, memory, order=order).memory != right).any()
        for order in (QueueOrder.EAGER_LOADS, QueueOrder.LATE_LOADS)
    )
    assert any(
        (
            emulate(program, memory, order=QueueOrder.RANDOM, rng=np.random.default_rng(seed)).memory != right
        ).any()
        for seed in range(20)
    )
    with pytest.raises(Hazard, match="no wait orders them"):
        emulate(program, memory, check=True)


def test_a_computation_must_wait_for_the_computation_whose_result_it_reads():
    lines = [line for line in PIPELINE if line.startswith(("describe", "load", "halt"))][:5]
    again = (
        PIPELINE[1]
        .replace("describe 1", "describe 3")
        .replace("a_slots", "a_base=64 a_slots")
        .replace("o_base=64", "o_base=128")
    )
    dump = PIPELINE[2].replace("describe 2", "describe 4").replace("base=64", "base=128")
    memory = pipeline_memory()

    def program(wait: str) -> bytes:
        tail = ["exec 1 count=1 wait_load=0", f"exec 3 count=1 {wait}", "store 4 count=1 wait_exec=0", "halt"]
        return encode(assemble([*lines, again, dump, *tail]))

    right = emulate(program("wait_exec=0"), memory, check=True).memory
    assert (right[0x8000:0x8080] == memory[:128]).all()
    for order in QueueOrder:
        assert (emulate(program("wait_exec=0"), memory, order=order).memory == right).all()
    assert (emulate(program(""), memory, order=QueueOrder.LATE_LOADS).memory != right).any()
    with pytest.raises(Hazard, match="EXEC 1 reads a word that EXEC 0 writes"):
        emulate(program(""), memory, check=True)


def test_waits_reach_through_other_commands_and_describe():
    # The second store waits for the second computation, which waits for the load; DESCRIBE 0 waits for the
    # load.
    lines = [
        *PIPELINE[:3],
        "load 0 count=1",
        "exec 1 count=1 wait_load=0",
        "store 2 count=1 wait_exec=0",
        "load 0 count=1 wait_store=0",
    ]
    emulate(encode(assemble([*lines, "halt"])), pipeline_memory(), check=True)
    without = [*PIPELINE[:3], "load 0 count=1", PIPELINE[0], "exec 1 count=1", "halt"]
    for order in QueueOrder:
        emulate(encode(assemble(without)), pipeline_memory(), check=True, order=order)


def test_words_that_nothing_has_written_are_found():
    lines = [*PIPELINE[:3], "load 0 count=1", "exec 1 row=1 count=1 wait_load=0", "halt"]
    with pytest.raises(Hazard, match="EXEC 0 reads word 8, which nothing has written"):
        emulate(encode(assemble(lines)), pipeline_memory(), check=True)


def test_a_result_may_take_the_place_of_an_operand_only_where_that_has_been_read():
    load = (
        PIPELINE[0]
        .replace("blocks=1", "blocks=2 block_beats=8 block_words=8")
        .replace("slot_words=8", "slot_words=16")
    )
    shape = CONV.replace("a_slot_words=8", "a_slot_words=16 a_block_words=8").replace(
        "in_blocks=1", "in_blocks=2"
    )
    shape = shape.replace("out_blocks=1", "out_blocks=2").replace(
        "o_slot_words=8", "o_slot_words=16 o_block_words=8"
    )
    weights = "describe 7 transfer class=weight columns=64 blocks=1 tail=16 base=200 slots=1"

    def run(line: str) -> None:
        lines = [
            load,
            weights,
            line,
            "load 0 count=1",
            "load 7 count=1",
            "exec 1 count=1 wait_load=0",
            "halt",
        ]
        emulate(encode(assemble([*lines])), pipeline_memory(), check=True)

    run(shape + " w_base=3200 w_block_bytes=512 o_base=64")
    run(shape.replace("conv", "copy"))  # block by block, each in its own place
    run(shape.replace("conv", "copy").replace("out_blocks=2", "out_blocks=1") + " o_base=8")
    with pytest.raises(Hazard, match="EXEC 0 writes a word that it reads later: word 0"):
        run(shape + " w_base=3200 w_block_bytes=512")
    with pytest.raises(Hazard, match="EXEC 0 writes a word that it reads later: word 8"):
        run(shape.replace("conv", "copy") + " o_base=8")


def test_dram_that_is_stored_and_loaded_again_is_ordered_too():
    spill = PIPELINE[0].replace("describe 0", "describe 5") + " dram=0x8000"
    lines = [
        *PIPELINE[:3],
        spill,
        "load 0 count=1",
        "exec 1 count=1 wait_load=0",
        "store 2 count=1 wait_exec=0",
        "load 5 slot=1 count=1",
    ]
    with pytest.raises(Hazard, match="LOAD 1 reads a beat that STORE 0 writes"):
        emulate(encode(assemble([*lines, "halt"])), pipeline_memory(), check=True)
    emulate(
        encode(assemble([*lines[:-1], lines[-1] + " wait_store=0", "halt"])), pipeline_memory(), check=True
    )


# Errors

CONV = (
    "describe 1 computation operation=conv first=1 last=1 a_slots=2 a_slot_words=8 a_height=64 a_width=8 "
    "kernel_rows=1 kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 in_blocks=1 in_tail=16 "
    "out_blocks=1 out_tail=16 o_slots=2 o_slot_words=8 o_width=8 o_step=1 o_row_step=1 w_slots=1"
)
ROW, ENTRY = PIPELINE[0], 1 + PAYLOAD_WORDS  # and its words
ERRORS = {
    "entry never described": (["load 9 count=1"], Error.DESCRIPTOR, Queue.LOAD, 0),
    "entry of the other kind": (
        [ROW, PIPELINE[1], "load 0 count=1", "loop 3", "load 0 count=1", "end", "load 1 count=1"],
        Error.DESCRIPTOR,
        Queue.LOAD,
        4,
    ),
    "no rows": ([ROW, "load 0 count=1", "load 0 count=0"], Error.FIELD, Queue.LOAD, 1),
    "no columns": ([ROW.replace("columns=8", "columns=0"), "load 0 count=1"], Error.FIELD, Queue.LOAD, 0),
    "tail too long": ([ROW.replace("tail=16", "tail=17"), "load 0 count=1"], Error.FIELD, Queue.LOAD, 0),
    "no such class": ([ROW.replace("class=input", "class=7"), "load 0 count=1"], Error.FIELD, Queue.LOAD, 0),
    "store of tables": ([ROW + " space=tables", "store 0 count=1"], Error.FIELD, Queue.STORE, 0),
    "dram not at a beat": ([ROW + " dram=8", "load 0 count=1"], Error.FIELD, Queue.LOAD, 0),
    "behind the buffer": ([ROW + " base=0x3ff9", "load 0 count=1"], Error.BUFFER, Queue.LOAD, 0),
    "behind the factors": ([ROW + " space=factors base=255", "load 0 count=1"], Error.BUFFER, Queue.LOAD, 0),
    "behind the tables": ([ROW + " space=tables base=64", "load 0 count=1"], Error.BUFFER, Queue.LOAD, 0),
    "outside what may be read": (
        [ROW, "load 0 count=1", "load 0 row=400 count=1"],
        Error.REGION,
        Queue.LOAD,
        1,
    ),
    "outside what may be written": ([ROW, "store 0 count=1"], Error.REGION, Queue.STORE, 0),
    "behind DRAM": ([ROW, "store 0 row=511 count=2"], Error.BUS, Queue.STORE, 0),
    "too many pixels": ([CONV, "exec 1 count=65"], Error.FIELD, Queue.EXEC, 0),
    "no slots": ([CONV.replace("o_slots=2", "o_slots=0"), "exec 1 count=1"], Error.FIELD, Queue.EXEC, 0),
    "no such operation": ([CONV.replace("=conv", "=7"), "exec 1 count=1"], Error.FIELD, Queue.EXEC, 0),
    "no such scale": ([CONV + " scale=3", "exec 1 count=1"], Error.FIELD, Queue.EXEC, 0),
    "weights without slots": (
        [CONV.replace("w_slots=1", "w_slots=0"), "exec 1 count=1"],
        Error.FIELD,
        Queue.EXEC,
        0,
    ),
    "narrow, but wide": ([CONV + " narrow=1", "exec 1 count=1"], Error.FIELD, Queue.EXEC, 0),
    "operand behind the buffer": ([CONV + " a_base=0x3ff9", "exec 1 count=1"], Error.BUFFER, Queue.EXEC, 0),
    "result behind the buffer": ([CONV + " o_base=0x3ff9", "exec 1 count=1"], Error.BUFFER, Queue.EXEC, 0),
    "weights behind the buffer": ([CONV + " w_base=0x3ff01", "exec 1 count=1"], Error.BUFFER, Queue.EXEC, 0),
    "factors behind the last": (
        [CONV + " scale=channel factors=255", "exec 1 count=1", "exec 1 count=1 factor=1"],
        Error.BUFFER,
        Queue.EXEC,
        1,
    ),
    "a base of more than 20 bits": (
        [CONV + " a_block_words=60000", "exec 1 count=1 from_block=20"],
        Error.BUFFER,
        Queue.EXEC,
        0,
    ),
    "a loop of no turns": ([ROW, "loop 0"], Error.LOOP, Queue.SEQUENCER, ENTRY),
    "four loops": (["loop 1", "loop 1", "loop 1", "loop 1"], Error.LOOP, Queue.SEQUENCER, 3),
    "a long loop": (
        [ROW, "loop 2", *["load 0 count=1"] * 256, "end"],
        Error.LOOP,
        Queue.SEQUENCER,
        ENTRY + 1 + 2 * 255,
    ),
    "end without loop": (
        [ROW, "loop 3", "load 0 count=1", "end", "end"],
        Error.LOOP,
        Queue.SEQUENCER,
        ENTRY + 1 + 3 * 3,
    ),
    "halt in a loop": (["loop 2", "halt"], Error.LOOP, Queue.SEQUENCER, 1),
}


@pytest.mark.parametrize("order", [QueueOrder.PROGRAM, QueueOrder.RANDOM])
@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_code_queue_and_index(name: str, order: QueueOrder):
    lines, code, queue, index = ERRORS[name]
    program = encode(assemble([*lines, "halt"]))
    with pytest.raises(ProgramError) as raised:
        emulate(
            program,
            np.zeros(1 << 16, np.uint8),
            order=order,
            read_region=(0, 0x8000),
            write_region=(0x8000, 0x20000),
        )
    assert (raised.value.code, raised.value.queue, raised.value.index) == (code, queue, index)


def word(*parts: tuple[int, int]) -> bytes:
    return sum(value << at for at, value in parts).to_bytes(16, "little")


HALT, HEAD = encode([Command(Opcode.HALT)]), encode(assemble([ROW]))[:16]
WORDS = {
    "no such opcode": (HALT[:0] + word((0, 9)) + HALT, Error.OPCODE, 0),
    "memory that nobody wrote": (
        encode(assemble([ROW, "load 0 count=1"])) + bytes(16),
        Error.OPCODE,
        ENTRY + 2,
    ),
    "spare bits of END": (word((0, Opcode.END), (100, 1)), Error.RESERVED, 0),
    "spare bits of LOOP": (
        encode(assemble([ROW])) + word((0, Opcode.LOOP), (4, 5), (20, 1)) + HALT,
        Error.RESERVED,
        ENTRY,
    ),
    "spare bits of a payload": (
        HEAD + word((0, Kind.TRANSFER)) + bytes(16 * (PAYLOAD_WORDS - 2)) + word((127, 1)) + HALT,
        Error.RESERVED,
        0,
    ),
    "no such kind": (word((0, Opcode.DESCRIBE), (10, 3)) + bytes(16 * PAYLOAD_WORDS) + HALT, Error.FIELD, 0),
    "a payload of the other kind": (
        HEAD + word((0, Kind.COMPUTATION)) + bytes(16 * (PAYLOAD_WORDS - 1)) + HALT,
        Error.FIELD,
        0,
    ),
    "half a DESCRIBE": (encode(assemble([ROW, ROW]))[:-16], Error.PROGRAM, ENTRY),
    "half a LOAD": (encode(assemble([ROW, "load 0 count=1"]))[:-16], Error.PROGRAM, ENTRY),
    "no HALT": (encode(assemble([ROW])), Error.PROGRAM, ENTRY),
    "no END": (encode(assemble([ROW, "loop 5", "load 0 count=1"])), Error.PROGRAM, ENTRY + 3),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_that_are_no_command_stop_the_sequencer(name: str):
    program, code, index = WORDS[name]
    with pytest.raises(ProgramError) as raised:
        emulate(program, np.zeros(1 << 16, np.uint8))
    assert (raised.value.code, raised.value.queue, raised.value.index) == (code, Queue.SEQUENCER, index)


def test_what_stands_behind_halt_does_not_matter():
    assert emulate(HALT + bytes(32), np.zeros(16, np.uint8)).instruction_words_fetched == 1
    assert emulate(HALT + word((0, 9)), np.zeros(16, np.uint8)).commands[Opcode.EXEC] == 0


def test_memory_given_stays_as_it_is():
    memory = pipeline_memory()
    before = memory.copy()
    memory.setflags(write=False)
    emulated = emulate(pipeline(), memory)
    assert (memory == before).all() and (emulated.memory != before).any()


def test_arguments_without_sense_are_refused():
    with pytest.raises(ValueError, match="lanes"):
        emulate(HALT, np.zeros(16, np.uint8), lanes=8)
    with pytest.raises(ValueError, match="uint8"):
        emulate(HALT, np.zeros(16, np.int8))
    with pytest.raises(ValueError, match="words of 16"):
        emulate(HALT[:5], np.zeros(16, np.uint8))
