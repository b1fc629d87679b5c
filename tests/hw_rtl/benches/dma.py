"""lf_dma, with lf_load and lf_store inside: the bench is its queues, its memory and its buffer.

What must move is worked out from the ISA's words.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import cocotb
import numpy as np

from lfopt.isa.tables import BEAT_BYTES, FACTOR_BYTES, TABLE_BYTES, TRANSFER, Class, Space
from tests.hw_rtl.benches.harness import BUFFER_BYTES, LANES, Unit, bytes_of, matrix, word

COMMANDS = 14  # of each queue
MEMORY_BYTES = 1 << 17
PAGE = 4096
MOST_BEATS = 64
OUTSTANDING = 4


class Transfer:
    """A LOAD or a STORE: its fields, and the places that it names."""

    def __init__(self, unit: Unit, *, store: bool) -> None:
        pick = unit.pick
        self.store, self.space = store, Space.BUFFER
        columns, blocks, tail = pick(1, 30), pick(1, 3), pick(1, LANES) if pick(0, 1) else LANES
        slots, self.count, self.row, self.slot = pick(1, 4), pick(1, 4), pick(0, 5), pick(0, 300)
        self.from_block, self.to_block = pick(0, 2), pick(0, 2)
        if not store and unit.rng.random() < 0.3:
            self.space, blocks, tail, slots, self.count, self.to_block = Space(pick(1, 2)), 1, LANES, 1, 1, 0
            columns = (
                FACTOR_BYTES * pick(1, 4)
                if self.space is Space.FACTORS
                else TABLE_BYTES // LANES * pick(1, 2)
            )
        block_beats = columns + (pick(0, 5) if pick(0, 1) else 0)
        self.line = (blocks - 1) * block_beats + -(-columns * tail // BEAT_BYTES)  # beats of a row
        row_beats = self.line + (pick(0, 9) if pick(0, 1) else 0)
        block_words = columns + pick(0, 2)
        base = pick(0, 40) if self.space is not Space.BUFFER else pick(0, 2000)
        half = MEMORY_BYTES // 2 * store  # loads read the lower half, stores write the upper
        self.d = {
            "kind": 1, "class_": pick(0, len(Class) - 1), "space": self.space,
            "dram": half + BEAT_BYTES * pick(0, 2000), "row_beats": row_beats, "block_beats": block_beats,
            "columns": columns, "blocks": blocks, "tail": tail, "base": base, "slots": slots,
            "slot_words": (blocks + 2) * block_words, "block_words": block_words,
        }  # fmt: skip

    def pieces(self) -> list[tuple[int, int, int]]:
        """(byte in DRAM, first word on chip, lanes) of every block of every row, in order."""
        d = self.d
        chip_block, dram_block = (
            (self.from_block, self.to_block) if self.store else (self.to_block, self.from_block)
        )
        scale = {Space.BUFFER: 1, Space.FACTORS: FACTOR_BYTES, Space.TABLES: TABLE_BYTES // LANES}[self.space]
        pieces = list[tuple[int, int, int]]()
        for k in range(self.count):
            for block in range(d["blocks"]):
                dram = d["dram"] + BEAT_BYTES * (
                    (self.row + k) * d["row_beats"] + (dram_block + block) * d["block_beats"]
                )
                chip = (
                    d["base"] * scale
                    + (self.slot + k) % d["slots"] * d["slot_words"]
                    + (chip_block + block) * d["block_words"]
                )
                pieces.append((dram, chip, d["tail"] if block == d["blocks"] - 1 else LANES))
        return pieces


class Machine:
    """Memory, buffer and queues around the DMA."""

    def __init__(self, unit: Unit, *, stalled: bool, pressed: bool) -> None:
        self.unit, self.stalled, self.pressed = unit, stalled, pressed
        rng = unit.rng
        self.memory = rng.integers(0, 256, MEMORY_BYTES, np.uint8)
        self.buffer = rng.integers(0, 256, (BUFFER_BYTES // LANES, LANES), np.uint8)
        self.beats = deque[int]()  # addresses of beats that memory owes
        self.writes = deque[tuple[int, int]]()  # (address, beats) whose beats have not all come
        self.early = deque[tuple[int, int]]()  # beats (data, last) that came before their request
        self.responses = 0  # that memory owes
        self.words = deque[tuple[int, int, np.ndarray]]()  # (space, word, bytes) that loads must write
        self.under_way = [0, 0]
        self.reading = 0  # requests under way
        self.last_beat = deque[int]()  # of the requests to read, beats left
        self.late: dict[str, int] = {}
        self.answer: dict[str, int] = {}
        self.held: dict[str, tuple[int, ...]] = {}
        self.bytes = Counter[tuple[str, int]]()
        self.done = [0, 0]
        self.written = 0

    def expect(self, load: Transfer) -> None:
        """Words that a load must write, in order."""
        for dram, chip, lanes in load.pieces():
            for x in range(load.d["columns"]):
                data = np.zeros(LANES, np.uint8)
                data[:lanes] = self.memory[dram + x * lanes :][:lanes]
                self.words.append((load.space, chip + x, data))

    def after(self, store: Transfer, memory: np.ndarray) -> None:
        """What a store must leave in memory."""
        pieces, d = store.pieces(), store.d
        for dram, chip, lanes in pieces:
            data = self.buffer[chip : chip + d["columns"], :lanes].reshape(-1)
            memory[dram : dram + -(-data.size // BEAT_BYTES) * BEAT_BYTES] = 0  # rows are padded to a beat
            memory[dram : dram + data.size] = data

    async def cycle(self, **inputs: int) -> None:
        unit = self.unit
        if not self.answer and self.beats and unit.often(self.stalled):
            self.answer = {
                "r_valid": 1,
                "r_data": word(self.memory[self.beats[0] : self.beats[0] + BEAT_BYTES]),
            }
        response = bool(self.responses) and unit.often(self.stalled)
        self.responses -= response
        free = {
            f"{name}": unit.often(self.pressed)
            for name in ("ar_ready", "aw_ready", "w_ready", "wr_allow", "rd_allow")
        }
        garbage = {
            "r_valid": 0,
            "r_data": word(unit.rng.integers(0, 256, BEAT_BYTES, np.uint8)),
            "rd_data": unit.pick(0, 1 << 60),
        }
        await unit.cycle(**garbage | free | self.answer | self.late | {"b_valid": response} | inputs)
        self.late = {}
        self.look(free)
        assert not unit.see("fault")

    def stays(self, channel: str, ready: bool, *names: str) -> tuple[int, ...] | None:
        """What a channel hands over in this cycle. What is valid stays until it is taken."""
        if not self.unit.see(f"{channel}_valid"):
            assert channel not in self.held, channel
            return None
        signals = tuple(self.unit.see(f"{channel}_{name}") for name in names)
        assert self.held.get(channel, signals) == signals, channel
        self.held[channel] = signals
        if ready:
            del self.held[channel]
        return signals if ready else None

    def look(self, free: dict[str, bool]) -> None:
        unit = self.unit
        if taken := self.stays("ar", free["ar_ready"], "addr", "beats"):
            self.request(*taken)
            self.beats.extend(taken[0] + BEAT_BYTES * k for k in range(taken[1]))
            self.last_beat.append(taken[1])
            assert len(self.last_beat) <= OUTSTANDING
        if taken := self.stays("aw", free["aw_ready"], "addr", "beats"):
            self.request(*taken)
            self.writes.append((taken[0], taken[1]))
        if taken := self.stays("w", free["w_ready"], "data", "last", "strb"):
            assert taken[2] == (1 << BEAT_BYTES) - 1  # padding is written, as 0
            self.early.append((taken[0], taken[1]))
            self.bytes["written", unit.see("written_class")] += unit.see("written_bytes")
            assert unit.see("written_bytes") == BEAT_BYTES
        else:
            assert unit.see("written_bytes") == 0
        while self.early and self.writes:
            data, last = self.early.popleft()
            address, beats = self.writes.popleft()
            self.memory[address : address + BEAT_BYTES] = bytes_of(data)
            assert last == (beats == 1)
            self.responses += last
            if not last:
                self.writes.appendleft((address + BEAT_BYTES, beats - 1))
        beat = bool(self.answer) and bool(unit.see("r_ready"))
        assert unit.see("read_beat") == beat
        if beat:
            self.bytes["read", unit.see("read_class")] += BEAT_BYTES
            self.beats.popleft()
            self.answer = {}
            self.last_beat[0] -= 1
            if not self.last_beat[0]:
                self.last_beat.popleft()
        if unit.see("wr_grant"):
            self.put(Space.BUFFER, unit.see("wr_word"), bytes_of(unit.see("wr_data")))
        if unit.see("aux_valid"):
            self.put(unit.see("aux_space"), unit.see("aux_word"), bytes_of(unit.see("aux_data")))
        if unit.see("rd_grant"):
            self.late["rd_data"] = word(self.buffer[unit.see("rd_word")])
        for queue in range(2):
            self.done[queue] += unit.see("done") >> queue & 1

    def request(self, address: int, beats: int) -> None:
        assert address % BEAT_BYTES == 0
        assert 1 <= beats <= MOST_BEATS
        assert address % PAGE + beats * BEAT_BYTES <= PAGE, f"{beats} beats from {address:#x} on cross 4 KiB"

    def put(self, space: int, place: int, data: np.ndarray) -> None:
        wanted = self.words.popleft()
        assert (space, place) == wanted[:2]
        assert data.tolist() == wanted[2].tolist(), (space, place)
        self.written += 1

    async def run(self, queues: tuple[deque[Transfer], deque[Transfer]]) -> None:
        """Both queues at once, each in order."""
        unit = self.unit
        totals = [len(queue) for queue in queues]
        while self.done != totals:
            valid, start, inputs = 0, 0, dict[str, int]()
            for queue, name in enumerate(("load", "store")):
                if queues[queue]:
                    valid |= 1 << queue
                    start |= int(unit.often(self.stalled)) << queue
                    inputs[name] = TRANSFER.pack(queues[queue][0].d)
            heads = [queue[0] if queue else None for queue in queues]
            for name, bits in (
                ("row", 16),
                ("count", 12),
                ("slot", 16),
                ("from_block", 10),
                ("to_block", 10),
            ):
                inputs[name] = sum(
                    (getattr(head, name) if head else 0) << bits * queue for queue, head in enumerate(heads)
                )
            await self.cycle(head_valid=valid, may_start=start, **inputs)
            for queue in range(2):
                if unit.see("take") >> queue & 1:
                    queues[queue].popleft()
        for _ in range(4):
            await self.cycle(head_valid=0)
        assert self.done == totals
        assert unit.see("idle")


async def started(dut: Any, seed: int, *, stalled: bool, pressed: bool) -> Machine:
    unit = Unit(dut, "dma", seed)
    zero = (
        "head_valid may_start load store row count slot from_block to_block wr_allow rd_allow rd_data".split()
    )
    zero += "ar_ready r_valid r_data aw_ready w_ready b_valid".split()
    await unit.reset(**dict.fromkeys(zero, 0))
    return Machine(unit, stalled=stalled, pressed=pressed)


def counted(transfers: list[Transfer]) -> Counter[int]:
    """Bytes at the memory port, by class."""
    bytes_by_class = Counter[int]()
    for transfer in transfers:
        for _, _, lanes in transfer.pieces():
            bytes_by_class[transfer.d["class_"]] += (
                -(-transfer.d["columns"] * lanes // BEAT_BYTES) * BEAT_BYTES
            )
    return bytes_by_class


def same_bytes(machine: Machine, direction: str, transfers: list[Transfer]) -> None:
    moved = Counter({kind: count for (way, kind), count in machine.bytes.items() if way == direction})
    assert moved == counted(transfers)


@cocotb.test()
@matrix
async def loads_write_every_word_once_and_in_order(dut: Any, stalled: bool, pressed: bool) -> None:
    machine = await started(dut, 6, stalled=stalled, pressed=pressed)
    loads = [Transfer(machine.unit, store=False) for _ in range(COMMANDS)]
    for load in loads:
        machine.expect(load)
    await machine.run((deque(loads), deque()))
    assert not machine.words
    same_bytes(machine, "read", loads)


@cocotb.test()
@matrix
async def loads_and_stores_at_once_do_not_disturb_one_another(dut: Any, stalled: bool, pressed: bool) -> None:
    machine = await started(dut, 7, stalled=stalled, pressed=pressed)
    loads = [Transfer(machine.unit, store=False) for _ in range(COMMANDS)]
    stores = [Transfer(machine.unit, store=True) for _ in range(COMMANDS)]
    for load in loads:
        machine.expect(load)
    wanted = machine.memory.copy()
    for store in stores:
        machine.after(store, wanted)
    await machine.run((deque(loads), deque(stores)))
    assert not machine.words
    different = np.flatnonzero(machine.memory != wanted)  # guard bytes: all of memory
    assert not different.size, f"{different.size} bytes, the first at {different[0]:#x}"
    same_bytes(machine, "read", loads)
    same_bytes(machine, "written", stores)
