"""Pooling by lf_exec on a buffer in the bench: SUM and MAX windows, strides, padding, rings, as NumPy's."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from lfopt.isa.tables import COMPUTATION, WINDOW, Operation, Scale
from lfopt.ops.fixed_point import Multipliers, averaged, scaled
from tests.hw_rtl.benches.harness import BUFFER_BYTES, LANES, Unit, bytes_of, matrix, word

ROUNDS = 6  # commands
WORDS = BUFFER_BYTES // LANES
RESULTS = 2048  # first word of the results


def pooled(x: np.ndarray, d: dict[str, int], row: int, count: int) -> np.ndarray:
    """(count, o_width, lanes) int64: sums or maxima of windows of x, (rows, columns, lanes) int64."""
    results = np.zeros((count, d["o_width"], LANES), np.int64)
    for y in range(count):
        rows = (row + y) * d["stride_rows"] - d["pad_rows"] + d["dilation"] * np.arange(d["kernel_rows"])
        rows = rows[(rows >= 0) & (rows < d["a_height"])]
        for column in range(d["o_width"]):
            columns = (
                column * d["stride_columns"]
                - d["pad_columns"]
                + d["dilation"] * np.arange(d["kernel_columns"])
            )
            window = x[np.ix_(rows, columns[(columns >= 0) & (columns < d["a_width"])])].reshape(-1, LANES)
            if d["operation"] == Operation.SUM:
                results[y, column] = (window - d["a_zero"]).sum(0)
            else:
                results[y, column] = window.max(0, initial=-(1 << 31))
    return results


class Pool:
    """The buffer, and what is written into it."""

    def __init__(self, unit: Unit, *, stalled: bool, pressed: bool) -> None:
        self.unit, self.stalled, self.pressed = unit, stalled, pressed
        self.buffer = unit.rng.integers(0, 256, (WORDS, LANES), np.uint8)
        self.late: dict[str, int] = {}
        self.done = 0
        self.written: list[int] = []

    async def cycle(self, **inputs: int) -> None:
        unit = self.unit
        reads = sum(int(unit.often(self.stalled)) << port for port in range(3))
        garbage = {"rd_data": word(unit.rng.integers(0, 256, 3 * WINDOW * LANES, np.uint8))}
        await unit.cycle(
            **{"valid": 0}
            | {"rd_allow": reads, "wr_allow": unit.often(self.pressed)}
            | garbage
            | self.late
            | inputs
        )
        self.late = {}
        if grants := unit.see("rd_grant"):
            places, masks = unit.see("rd_word"), unit.see("rd_mask")
            data = unit.rng.integers(0, 256, (3, WINDOW, LANES), np.uint8)
            for port in range(3):
                for t in range(WINDOW):
                    if grants >> port & 1 and masks >> (WINDOW * port + t) & 1:
                        # the first place may lie before the buffer
                        data[port, t] = self.buffer[(places >> (20 * port)) + t & 0xFFFFF]
            self.late = {"rd_data": word(data)}
        if unit.see("wr_grant"):
            place, mask = unit.see("wr_word"), unit.see("wr_mask")
            data = bytes_of(unit.see("wr_data"), WINDOW * LANES).reshape(WINDOW, LANES)
            for t in range(WINDOW):
                if mask >> t & 1:
                    self.buffer[place + t] = data[t]
                    self.written.append(place + t)
        self.done += unit.see("done")
        assert not unit.see("error")

    async def run(self, d: dict[str, int], row: int, count: int) -> None:
        """One command, and what it must have done."""
        before, blocks = self.buffer.copy(), d["out_blocks"]
        self.written, self.done = [], 0
        await self.cycle(valid=1, descriptor=COMPUTATION.pack(d), row=row, count=count)
        while not self.unit.see("ready"):
            await self.cycle(valid=1)
        while not self.done:
            await self.cycle()
        wanted: dict[int, np.ndarray] = {}
        for block in range(blocks):
            y = (
                np.arange(d["a_height"]) % d["a_slots"] * d["a_slot_words"]
                + d["a_base"]
                + block * d["a_block_words"]
            )
            data = before[y[:, None] + np.arange(d["a_width"])]
            sums = pooled((data if d["a_unsigned"] else data.view(np.int8)).astype(np.int64), d, row, count)
            if d["scale"] == Scale.SCALAR:
                scale = averaged if d["operation"] == Operation.SUM else scaled
                by = Multipliers(np.array(d["multiplier"]), np.array(d["shift"]))
                sums = scale(sums, by) + d["o_zero"]
            pixels = np.clip(sums, d["low"], d["high"]).astype(np.uint8)
            channels = d["out_tail"] if block == blocks - 1 else LANES
            for k in range(count):
                place = (
                    d["o_base"] + (row + k) % d["o_slots"] * d["o_slot_words"] + block * d["o_block_words"]
                )
                wanted |= {place + x: pixels[k, x, :channels] for x in range(d["o_width"])}
        assert sorted(self.written) == sorted(wanted), d  # every word once, and none beside
        for place, data in wanted.items():
            assert self.buffer[place, : len(data)].tolist() == data.tolist(), (place, d)


def random_pooling(unit: Unit, operation: Operation) -> tuple[dict[str, int], int, int]:
    """(descriptor, row, count).

    The ring of the operand holds all its rows, or those that the command reads.
    """
    pick = unit.pick
    kernel_rows, kernel_columns, stride, dilation = (
        pick(1, 4),
        pick(1, 6),
        pick(1, 3),
        pick(1, 2) if unit.rng.random() < 0.3 else 1,
    )
    height, width, count, row = pick(2, 9), pick(2, 12), pick(1, 3), pick(0, 2)
    o_width, blocks, unsigned = pick(1, 10), pick(1, 2), pick(0, 1)
    o_slots = pick(count, 5)
    d = {
        "kind": 2, "operation": operation, "first": 1, "last": 1, "a_base": pick(0, 100), "a_slots": height,
        "a_slot_words": 2 * width + 1, "a_block_words": width, "a_height": height, "a_width": width,
        "a_zero": pick(-128, 127), "a_unsigned": unsigned, "kernel_rows": kernel_rows,
        "kernel_columns": kernel_columns, "stride_rows": stride, "stride_columns": pick(1, 3),
        "dilation": dilation, "pad_rows": pick(-1, kernel_rows - 1),
        "pad_columns": pick(-1, kernel_columns - 1), "out_blocks": blocks, "out_tail": pick(1, LANES),
        "o_base": RESULTS + pick(0, 100), "o_slots": o_slots, "o_slot_words": 25, "o_block_words": 12,
        "o_width": o_width, "o_step": 1, "o_row_step": 1, "o_zero": pick(-128, 127),
        "low": -128 * (1 - unsigned), "high": 127 + 128 * unsigned,
        "scale": Scale.SCALAR if operation is Operation.SUM else pick(0, 1) * Scale.SCALAR,
        "multiplier": pick(1 << 30, (1 << 31) - 1), "shift": pick(31, 35),
    }  # fmt: skip
    return d, row, count


async def run(dut: Any, operation: Operation, *, stalled: bool, pressed: bool) -> None:
    unit = Unit(dut, "exec", 5)
    pool = Pool(unit, stalled=stalled, pressed=pressed)
    await unit.reset(valid=0, descriptor=0, row=0, count=0, rd_allow=0, rd_data=0, wr_allow=0)
    for _ in range(ROUNDS):
        await pool.run(*random_pooling(unit, operation))
    for _ in range(3):
        await pool.cycle()
    assert unit.see("idle")


@cocotb.test()
@matrix
async def sums_of_windows_are_those_of_numpy(dut: Any, stalled: bool, pressed: bool) -> None:
    await run(dut, Operation.SUM, stalled=stalled, pressed=pressed)


@cocotb.test()
@matrix
async def largest_elements_of_windows_are_those_of_numpy(dut: Any, stalled: bool, pressed: bool) -> None:
    await run(dut, Operation.MAX, stalled=stalled, pressed=pressed)
