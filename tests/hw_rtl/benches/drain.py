"""lf_drain: finished sums through bias, factor, zero point, bounds and table, as lfopt.ops.fixed_point.

And sums that are held.
"""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from lfopt.isa.tables import COMPUTATION, FACTOR_BYTES, TABLE_BYTES, WINDOW, Operation, Scale, Space
from lfopt.ops.fixed_point import Multipliers, averaged, scaled
from tests.hw_rtl.benches.harness import BUFFER_BYTES, LANES, Unit, bytes_of, matrix, packed, word

ROUNDS = 14  # commands
ROWS = 6  # of factors
TABLES = 3
HALF = 1 << 30  # with a shift of 31


class Chip:
    """What the drain finds: sums, buffer, factors and tables."""

    def __init__(self, unit: Unit) -> None:
        rng = self.rng = unit.rng
        self.buffer = rng.integers(0, 256, (BUFFER_BYTES // LANES, LANES), np.uint8)
        multipliers, shifts = (
            rng.integers(1 << 30, 1 << 31, (ROWS, LANES)),
            rng.integers(25, 50, (ROWS, LANES)),
        )
        # results that lie between two bytes, exactly
        multipliers[::2], shifts[::2] = HALF, rng.integers(31, 35, LANES)
        self.factors = Multipliers(multipliers, shifts)
        self.tables = rng.integers(0, 256, (TABLES, TABLE_BYTES), np.uint8)
        self.sums = np.zeros((2, 512, LANES), np.int64)

    async def fill(self, unit: Unit) -> None:
        """Write factors and tables."""
        rows = np.zeros((ROWS, LANES, FACTOR_BYTES), np.uint8)
        rows[:, :, :4] = self.factors.multiplier.astype("<u4").view(np.uint8).reshape(ROWS, LANES, 4)
        rows[:, :, 4] = self.factors.shift
        for space, words in (
            (Space.FACTORS, rows.reshape(-1, LANES)),
            (Space.TABLES, self.tables.reshape(-1, LANES)),
        ):
            for k, data in enumerate(words):
                await unit.cycle(aux_valid=1, aux_space=space, aux_word=k, aux_data=word(data))
        await unit.cycle(aux_valid=0)

    def wanted(self, d: dict[str, int], block: int, last_block: bool, sums: np.ndarray) -> list[np.ndarray]:
        """Words of one block, in order: uint8 [1 or WINDOW][lane]."""
        if not d["last"]:
            return list(sums.astype("<i4").view(np.uint8).reshape(-1, WINDOW, LANES))
        values = sums
        if d["has_bias"]:
            first = d["bias"] + block * WINDOW
            values = values + self.buffer[first : first + WINDOW].reshape(-1).view("<i4").astype(np.int64)
        else:
            values = (values + d["bias_value"]).astype(np.int32).astype(np.int64)
        scale = averaged if d["operation"] == Operation.SUM else scaled
        if d["scale"] == Scale.CHANNEL:
            row = d["factors"] + block
            values = scale(values, Multipliers(self.factors.multiplier[row], self.factors.shift[row]))
        elif d["scale"] == Scale.SCALAR:
            values = scale(values, Multipliers(np.array(d["multiplier"]), np.array(d["shift"])))
        values = np.clip(values + d["o_zero"] * (d["scale"] != Scale.NONE), d["low"], d["high"]).astype(
            np.uint8
        )
        if d["has_table"]:
            values = self.tables[d["table_id"]][values]
        channels = d["out_tail"] if last_block else LANES
        return list(values[:, None, :channels])


class Drain:
    """One command after the other: requests go in, sums are finished, words come out."""

    def __init__(self, unit: Unit, chip: Chip, *, stalled: bool, pressed: bool) -> None:
        self.unit, self.chip, self.stalled, self.pressed = unit, chip, stalled, pressed
        self.expected: list[tuple[int, np.ndarray, int]] = []  # word, data, lanes
        self.written = self.done = 0
        self.late: dict[str, int] = {}  # inputs that answer what was granted in the cycle before
        self.bank = 0

    async def cycle(self, **inputs: int) -> None:
        unit, chip = self.unit, self.chip
        allow = {
            "sum_allow": unit.often(self.stalled), "rd_allow": unit.often(self.stalled or self.pressed),
            "wr_allow": unit.often(self.pressed)
        }  # fmt: skip
        defaults = {"request_valid": 0, "final_start": 0, "filled": 0}
        # What is not asked for is garbage, so that nothing can rely on it staying.
        garbage = {
            "sum_data": word(unit.rng.integers(0, 256, 4 * LANES, np.uint8)),
            "rd_data": word(unit.rng.integers(0, 256, LANES, np.uint8)),
        }
        await unit.cycle(**defaults | allow | garbage | self.late | inputs)
        self.late = {}
        if unit.see("sum_read") and allow["sum_allow"]:
            self.late["sum_data"] = packed(chip.sums[unit.see("sum_bank"), unit.see("sum_column")], 32)
        if unit.see("rd_grant"):
            self.late["rd_data"] = word(chip.buffer[unit.see("rd_word")])
        if unit.see("wr_grant"):
            self.check()
        self.done += unit.see("done")
        assert not unit.see("fault")

    def check(self) -> None:
        unit = self.unit
        place, data, lanes = self.expected.pop(0)
        rows = len(data)
        assert unit.see("wr_word") == place
        assert unit.see("wr_lanes") == lanes
        assert unit.see("wr_mask") == (1 if rows == 1 else (1 << WINDOW) - 1)
        written = bytes_of(unit.see("wr_data"), WINDOW * LANES).reshape(WINDOW, LANES)[:rows, : data.shape[1]]
        assert written.tolist() == data.tolist(), place
        self.written += 1

    async def command(self, d: dict[str, int], rows: int, offset: int, row_step: int, limit: int) -> None:
        unit, chip = self.unit, self.chip
        columns = rows * d["o_width"]
        ring, step = ("o", d["o_step"]) if d["last"] else ("b", WINDOW)
        for block in range(d["out_blocks"]):
            last = block == d["out_blocks"] - 1
            magnitude = 2.0 ** unit.rng.uniform(4, (10, 30)[unit.pick(0, 1)])
            sums = (unit.rng.uniform(-1, 1, (columns, LANES)) * magnitude).astype(np.int64)
            while unit.see("bank_busy") >> self.bank & 1:
                await self.cycle()
            chip.sums[self.bank, :columns] = sums
            inputs = {
                "descriptor": COMPUTATION.pack(d),
                "columns": columns,
                "offset": offset,
                "row_step": row_step,
                "limit": limit,
            }
            await self.cycle(
                request_valid=1, request_block=block, request_bank=self.bank, request_last=last, **inputs
            )
            while not unit.see("request_ready"):
                await self.cycle(request_valid=1)
            start = d[f"{ring}_base"] + block * d[f"{ring}_block_words"]
            for k, data in enumerate(chip.wanted(d, block, last, sums)):
                y, x = divmod(k, d["o_width"])
                self.expected.append(
                    (start + (offset + y * row_step) % limit + x * step, data, written(d, last))
                )
            await self.cycle(final_start=1, final_bank=self.bank)
            most, left = unit.pick(1, 4), columns
            while left:
                while not unit.often(self.stalled):
                    await self.cycle()
                filled = min(unit.pick(1, most), left)  # sums that are finished in one cycle
                await self.cycle(filled=filled, filled_bank=self.bank)
                left -= filled
            self.bank ^= 1


def written(d: dict[str, int], last: bool) -> int:
    """Lanes of a block that are meant, as bits."""
    if not d["last"]:
        return (1 << LANES) - 1
    lanes = range(d["o_lane"] * (d["operation"] == Operation.CONV), LANES)
    if d["operation"] == Operation.COPY:
        lanes = range(d["o_lane"], LANES, d["o_lane_step"])[: d["lanes"]]
    return sum(1 << lane for lane in lanes if not last or lane < d["out_tail"])


def random_command(unit: Unit, chip: Chip) -> tuple[dict[str, int], int, int, int, int]:
    """(descriptor, rows, first row's offset, offset from row to row, words of the ring)."""
    pick = unit.pick
    rows, width, blocks, last = pick(1, 4), pick(1, 9), pick(1, 3), int(unit.rng.random() < 0.8)
    slots, row_slots = pick(rows, 6), pick(1, 2)
    slot_words = 4 * 10 * 3
    low, even = pick(-128, 100), pick(0, 1)
    operation, o_lane_step = pick(0, 6), pick(1, 3)
    lanes = pick(1, (LANES - 1) // o_lane_step + 1)
    d = {
        "operation": operation, "lanes": lanes, "o_lane_step": o_lane_step,
        "o_lane": pick(0, LANES - 1 - o_lane_step * (lanes - 1)), "kind": 2, "first": 1, "last": last,
        "out_blocks": blocks, "out_tail": pick(1, LANES), "o_width": width, "o_step": pick(1, 3),
        "o_base": pick(0, 900), "o_block_words": 40, "b_base": pick(0, 900), "b_block_words": 40,
        "o_zero": pick(-128, 255), "low": low, "high": pick(low, 127), "has_table": pick(0, 1),
        "table_id": pick(0, TABLES - 1), "scale": pick(0, 2), "factors": pick(0, ROWS - blocks),
        "multiplier": HALF if even else pick(1, (1 << 31) - 1),
        "shift": pick(31, 35) if even else pick(1, 62), "has_bias": pick(0, 1), "bias": pick(3000, 3100),
        "bias_value": pick(-(1 << 20), 1 << 20),
    }  # fmt: skip
    # Bias of a size that leaves the sums in int32.
    chip.buffer[d["bias"] : d["bias"] + WINDOW * blocks] = (
        unit.rng.integers(-(1 << 24), 1 << 24, (blocks, LANES))
        .astype("<i4")
        .view(np.uint8)
        .reshape(-1, LANES)
    )
    return (
        d,
        rows,
        pick(0, slots - 1) * slot_words,
        min(row_slots, slots) % slots * slot_words,
        slots * slot_words,
    )


@cocotb.test()
@matrix
async def sums_become_bytes_as_fixed_point_says(dut: Any, stalled: bool, pressed: bool) -> None:
    unit = Unit(dut, "drain", 4)
    chip = Chip(unit)
    await unit.reset(
        request_valid=0, request_block=0, request_bank=0, request_last=0, descriptor=0, columns=0, offset=0,
        row_step=0, limit=0, final_start=0, final_bank=0, filled=0, filled_bank=0, sum_allow=0, sum_data=0,
        rd_allow=0, rd_data=0, wr_allow=0, aux_valid=0, aux_space=0, aux_word=0, aux_data=0,
    )  # fmt: skip
    await chip.fill(unit)
    drain = Drain(unit, chip, stalled=stalled, pressed=pressed)
    for _ in range(ROUNDS):
        d, *places = random_command(unit, chip)
        await drain.command(d, *places)
        # sometimes the next command comes while this one is written
        while drain.expected and unit.rng.random() < 0.5:
            await drain.cycle()
        while drain.expected and d["has_bias"]:  # the next bias may lie in the same words
            await drain.cycle()
    while drain.expected:
        await drain.cycle()
    await drain.cycle()
    assert drain.done == ROUNDS
    assert not unit.see("busy")
