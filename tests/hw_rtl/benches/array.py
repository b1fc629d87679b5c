"""lf_array: sums of every operation against NumPy, in every cycle."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from lfopt.isa.tables import COMPUTATION, WINDOW, Operation
from tests.hw_rtl.benches.harness import LANES, Unit, matrix, numbers, packed

NARROW = LANES // WINDOW  # channels of a narrow CONV
COLUMNS = 12  # steps of a pass that make columns
REACH = 2 * WINDOW  # words of a window
SPREAD = WINDOW * WINDOW  # rows of a depthwise convolution
WINDOWS = (Operation.DEPTHWISE, Operation.SUM, Operation.MAX)
ALONE = (Operation.COPY, Operation.ADD, Operation.MUL)
TAPS = {1: WINDOW, 2: 6, 3: 5, 4: 4}  # kernel columns that meet in a step that makes so many columns


class Array:
    """The array beside its model."""

    def __init__(self, unit: Unit, *, stalled: bool, pressed: bool) -> None:
        self.unit, self.stalled, self.pressed = unit, stalled, pressed
        self.d: dict[str, int] = {}
        self.starts = False  # the next step begins a pass
        # rows are input lanes or, depthwise, kernel columns
        self.weights = self.next = np.zeros((LANES, LANES), np.int64)
        self.together = 1  # columns of a step
        self.rows: list[dict[str, int]] = []  # of the next weights, still to be sent
        self.last = np.zeros((REACH, LANES), np.uint8)  # window of the step before
        # what the next four cycles will show of each column, if it is new
        self.sums: list[np.ndarray | None] = [None] * 4
        self.shown: np.ndarray | None = None
        self.checked = 0

    async def cycle(self, **inputs: int) -> None:
        """A cycle, with a row of weights if some wait. The sums that are due are there, and stay."""
        row: dict[str, int] = {"row_valid": 0}
        if self.rows and self.unit.often(self.pressed):
            row = {"row_valid": 1, **self.rows.pop()}
        await self.unit.cycle(**{"valid": 0, "pass_start": 0, "start": 0, **inputs, **row})
        due = self.sums.pop(0)
        self.sums.append(None)
        self.shown = due if due is not None else self.shown
        if self.shown is not None:
            columns = len(self.shown)
            assert (
                numbers(self.unit.see("sum"), WINDOW * LANES)[: columns * LANES].tolist()
                == self.shown.reshape(-1).tolist()
            ), self.d
            self.checked += 1

    def value(self, data: np.ndarray, unsigned: int) -> np.ndarray:
        return data.astype(np.int64) if unsigned else data.astype(np.int8).astype(np.int64)

    def load(self) -> None:
        """Random weights, as rows to be sent in random order, of a convolution some at a time."""
        rng = self.unit.rng
        data = rng.integers(0, 256, (LANES, LANES), np.uint8)
        zero, unsigned, depthwise = (
            self.d["b_zero"],
            self.d["b_unsigned"],
            self.d["operation"] == Operation.DEPTHWISE,
        )
        self.next = self.value(data, unsigned) - zero
        starts, self.rows = [0], []
        while starts[-1] < LANES:
            starts.append(
                starts[-1] + (1 if depthwise else self.unit.pick(1, min(WINDOW, LANES - starts[-1])))
            )
        for k in rng.permutation(len(starts) - 1):
            first, stop = starts[k], starts[k + 1]
            if depthwise and first >= TAPS[self.together]:
                continue
            rows = np.concatenate(
                [data[first:stop], rng.integers(0, 256, (WINDOW - stop + first, LANES), np.uint8)]
            )
            how = {
                "row_depthwise": depthwise,
                "row_together": self.together,
                "zero": zero & 511,
                "unsigned": unsigned,
            }
            self.rows.append(
                {"row": first, "row_count": stop - first, "row_data": packed(rows.reshape(-1), 8), **how}
            )

    def wanted(
        self,
        window: np.ndarray,
        present: np.ndarray,
        taps: int,
        lane: int,
        lanes: int,
        second: np.ndarray | None,
    ) -> np.ndarray:
        """Sums of the columns of a step."""
        d, operation = self.d, Operation(self.d["operation"])
        raw = self.value(window, d["a_unsigned"])
        x = np.where(present[:, None], raw - d["a_zero"], 0)
        if operation is Operation.CONV and d["narrow"]:
            sums = np.where(np.arange(NARROW) < lanes, x[:WINDOW, :NARROW], 0).reshape(-1) @ self.weights
        elif operation is Operation.CONV:
            sums = np.where((lane <= np.arange(LANES)) & (np.arange(LANES) < lanes), x[0], 0) @ self.weights
        elif operation is Operation.DEPTHWISE:
            stride = d["stride_columns"]
            columns = [(x[p * stride :][:taps] * self.weights[:taps]).sum(0) for p in range(self.together)]
            if self.together > 1 or second is None:
                return np.stack(columns)
            (sums,) = columns
        elif operation is Operation.SUM:
            sums = x[:WINDOW].sum(0)
        elif operation is Operation.MAX:
            sums = np.where(present[:WINDOW, None], raw[:WINDOW], -(1 << 31)).max(0)
        elif operation is Operation.COPY:
            source, k = np.arange(LANES), np.arange(d["lanes"])
            source[d["o_lane"] + k * d["o_lane_step"]] = d["a_lane"] + k * d["a_lane_step"]
            return np.where(present[0], raw[0][source], d["a_zero"])[None]
        else:
            assert second is not None
            b = self.value(second.view(np.uint8)[:LANES], d["b_unsigned"]) - d["b_zero"]
            return (
                d["a_multiplier"] * x[0] + d["b_multiplier"] * b if operation is Operation.ADD else x[0] * b
            )[None]
        if second is not None:
            held = second.view(np.int32).astype(np.int64)
            sums = np.maximum(sums, held) if operation is Operation.MAX else sums + held
        return sums[None]

    async def column(self, start: bool, first: bool) -> None:
        """Send a step, perhaps with one before it that only fetches; its sums are due four cycles later."""
        unit, operation, rng = self.unit, Operation(self.d["operation"]), self.unit.rng
        while not unit.often(self.stalled):
            await self.cycle()
        wide = operation in WINDOWS or bool(self.d["narrow"])
        taps = unit.pick(1, TAPS[self.together]) if wide else 1
        stride = self.d["stride_columns"]
        advance = self.together * stride
        span, overlap = advance - stride + taps, max(taps - stride, 0) if wide else 0
        fetches = self.together > 1 and overlap > 0 and (start or unit.rng.random() < 0.4)
        window = rng.integers(0, 256, (REACH, LANES), np.uint8)
        if fetches:
            window[advance : advance + overlap] = rng.integers(0, 256, (overlap, LANES), np.uint8)
            await self.send(window, advance, fetch=1)
            window = rng.integers(0, 256, (REACH, LANES), np.uint8)
        shared = (
            overlap
            if fetches or (self.together == 1 and not start and overlap and unit.rng.random() < 0.4)
            else 0
        )
        window[:shared] = self.last[advance : advance + shared]
        if span - shared > WINDOW:  # it cannot come at once, and what came before is of another window
            return
        present = (rng.random(REACH) < 0.8) & (np.arange(REACH) < span)
        lanes = unit.pick(1, NARROW if self.d["narrow"] else LANES)
        lane = unit.pick(0, lanes - 1) if operation is Operation.CONV and not self.d["narrow"] else 0
        uses_second = operation in (Operation.ADD, Operation.MUL) or not self.d["first"]
        second = rng.integers(-(1 << 20), 1 << 20, LANES).astype(np.int32)
        weighted = operation in (Operation.CONV, Operation.DEPTHWISE)
        if self.starts and weighted:
            while self.rows:
                await self.cycle()
            self.weights = self.next
        how = {
            "present": packed(present, 1),
            "taps": taps,
            "lane": lane,
            "lanes": lanes,
            "pass_start": self.starts and weighted,
            "first": first,
        }
        await self.send(window, shared, **how, second=packed(second, 32), second_used=uses_second)
        held = second if uses_second and (first or operation in ALONE) else None
        self.sums[3] = self.wanted(window, present, taps, lane, lanes, held)
        if self.starts and weighted:
            self.load()  # those of the next pass arrive while this one goes on
        self.starts = False

    async def send(self, window: np.ndarray, begin: int, **how: int) -> None:
        """A step whose words come from the buffer from the given one on."""
        sent = np.concatenate([window, np.zeros_like(window)])[begin : begin + WINDOW]
        shift = {
            "from": begin,
            "shift": self.together * self.d["stride_columns"] & 7,
            "together": self.together,
        }
        await self.cycle(valid=1, window=packed(sent.reshape(-1), 8), **{"fetch": 0, **shift, **how})
        self.last = window

    async def run(self, d: dict[str, int], passes: int) -> None:
        """Columns of a few passes."""
        self.d = d
        self.together = (
            self.unit.pick(1, len(TAPS)) if d["operation"] == Operation.DEPTHWISE and d["first"] else 1
        )
        if self.together > 1:
            d["stride_columns"] = 2 if self.together == 2 else 1
        for _ in range(3):  # the descriptor belongs to the last column, too
            await self.cycle()
        await self.cycle(descriptor=COMPUTATION.pack(d), start=1)
        await self.cycle()  # the lanes of a copy are looked up
        if d["operation"] in (Operation.CONV, Operation.DEPTHWISE):
            self.load()
        for k in range(passes):
            self.starts = True  # until a step is sent
            for column in range(COLUMNS):
                await self.column(column == 0, k == 0)
        while self.rows:
            await self.cycle()


def lanes_of_a_copy(unit: Unit) -> dict[str, int]:
    """Some lanes, each from any."""
    a_step, o_step = unit.pick(0, 3), unit.pick(1, 3)
    count = unit.pick(1, (LANES - 1) // max(a_step, o_step) + 1)
    a_lane, o_lane = (unit.pick(0, LANES - 1 - step * (count - 1)) for step in (a_step, o_step))
    return {"lanes": count, "a_lane": a_lane, "a_lane_step": a_step, "o_lane": o_lane, "o_lane_step": o_step}


def description(unit: Unit, operation: Operation, narrow: int) -> dict[str, int]:
    unsigned, b_unsigned = unit.pick(0, 1), unit.pick(0, 1)
    return {
        "kind": 2, "operation": operation, "narrow": narrow,
        "first": 1 if operation in ALONE else unit.pick(0, 1), "last": 1,
        "a_zero": unit.pick(-128, 127) + 128 * unsigned, "a_unsigned": unsigned,
        "b_zero": unit.pick(-128, 127) + 128 * b_unsigned, "b_unsigned": b_unsigned,
        "stride_columns": unit.pick(1, 3), "a_multiplier": unit.pick(-(1 << 22), 1 << 22),
        "b_multiplier": unit.pick(-(1 << 22), 1 << 22), **lanes_of_a_copy(unit),
    }  # fmt: skip


@cocotb.test()
@matrix
async def products_are_those_of_numpy(dut: Any, stalled: bool, pressed: bool) -> None:
    array = await started(dut, stalled=stalled, pressed=pressed)
    for operation, narrow in ((Operation.CONV, 0), (Operation.CONV, 1), (Operation.DEPTHWISE, 0)) * 3:
        await array.run(description(array.unit, operation, narrow), 3)
    assert array.checked > 9 * 3 * COLUMNS // 2


@cocotb.test()
@matrix
async def windows_without_weights_are_those_of_numpy(dut: Any, stalled: bool, pressed: bool) -> None:
    array = await started(dut, stalled=stalled, pressed=pressed)
    for operation in (Operation.SUM, Operation.MAX, *ALONE) * 3:
        await array.run(description(array.unit, operation, 0), 2)
    assert array.checked > 15 * 2 * COLUMNS


async def started(dut: Any, *, stalled: bool, pressed: bool) -> Array:
    unit = Unit(dut, "array", 3)
    await unit.reset(
        descriptor=0, together=1, valid=0, fetch=0, window=0, present=0, shift=0, taps=0, lane=0, lanes=0,
        start=0, pass_start=0, first=0, second_used=0, second=0, row_valid=0, row_depthwise=0, row_together=1,
        row=0, row_count=1, row_data=0, zero=0, unsigned=0, **{"from": 0},
    )  # fmt: skip
    return Array(unit, stalled=stalled, pressed=pressed)
