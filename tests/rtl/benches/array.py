"""lf_array: sums of every operation against NumPy, in every cycle."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from lfopt.isa.tables import COMPUTATION, WINDOW, Operation
from tests.rtl.benches.harness import LANES, Unit, matrix, numbers, packed

NARROW = LANES // WINDOW  # channels of a narrow CONV
COLUMNS = 12  # of a pass
WINDOWS = (Operation.DEPTHWISE, Operation.SUM, Operation.MAX)
ALONE = (Operation.COPY, Operation.ADD, Operation.MUL)


class Array:
    """The array beside its model."""

    def __init__(self, unit: Unit, *, stalled: bool, pressed: bool) -> None:
        self.unit, self.stalled, self.pressed = unit, stalled, pressed
        self.d: dict[str, int] = {}
        self.weights = self.next = np.zeros((LANES, LANES), np.int64)
        self.rows: list[dict[str, int]] = []  # of the next weights, still to be sent
        self.last = np.zeros((WINDOW, LANES), np.uint8)  # window of the column before
        self.sums: list[np.ndarray | None] = [None, None]  # what the next two cycles will show, if it is new
        self.shown: np.ndarray | None = None
        self.second: dict[str, int] = {}  # second operand of the column that was sent in the cycle before
        self.checked = 0

    async def cycle(self, **inputs: int) -> None:
        """A cycle, with a row of weights if some wait. The sums that are due are there, and stay."""
        row: dict[str, int] = {"row_valid": 0}
        if self.rows and self.unit.often(self.pressed):
            row = {"row_valid": 1, **self.rows.pop()}
        await self.unit.cycle(**{"valid": 0, "pass_start": 0, "start": 0, **inputs, **row, **self.second})
        self.second = {}
        due = self.sums.pop(0)
        self.sums.append(None)
        self.shown = due if due is not None else self.shown
        if self.shown is not None:
            assert numbers(self.unit.see("sum"), LANES).tolist() == self.shown.tolist(), self.d
            self.checked += 1

    def value(self, data: np.ndarray, unsigned: int) -> np.ndarray:
        return data.astype(np.int64) if unsigned else data.astype(np.int8).astype(np.int64)

    def load(self) -> None:
        """Random weights, as rows to be sent in random order."""
        rng = self.unit.rng
        data = rng.integers(0, 256, (LANES, LANES), np.uint8)
        zero, unsigned = self.d["b_zero"], self.d["b_unsigned"]
        self.next = self.value(data, unsigned) - zero
        self.rows = [{"row": int(k), "row_data": packed(data[k], 8), "zero": zero & 511, "unsigned": unsigned} for k in rng.permutation(LANES)]

    def wanted(self, window: np.ndarray, taps: np.ndarray, lane: int, lanes: int, second: np.ndarray | None) -> np.ndarray:
        """Sums of one column."""
        d, operation = self.d, Operation(self.d["operation"])
        raw = self.value(window, d["a_unsigned"])
        x = np.where(taps[:, None], raw - d["a_zero"], 0)
        if operation is Operation.CONV and d["narrow"]:
            x = np.where(np.arange(NARROW) < lanes, x[:, :NARROW], 0).reshape(-1)
            found = x @ self.weights
        elif operation is Operation.CONV:
            found = np.where((lane <= np.arange(LANES)) & (np.arange(LANES) < lanes), x[0], 0) @ self.weights
        elif operation is Operation.DEPTHWISE:
            found = (x * self.weights[:WINDOW]).sum(0)
        elif operation is Operation.SUM:
            found = x.sum(0)
        elif operation is Operation.MAX:
            found = np.where(taps[:, None], raw, -(1 << 31)).max(0)
        elif operation is Operation.COPY:
            source, k = np.arange(LANES), np.arange(d["lanes"])
            source[d["o_lane"] + k * d["o_lane_step"]] = d["a_lane"] + k * d["a_lane_step"]
            return np.where(taps[0], raw[0][source], d["a_zero"])
        else:
            assert second is not None
            b = self.value(second.view(np.uint8)[:LANES], d["b_unsigned"]) - d["b_zero"]
            return d["a_multiplier"] * x[0] + d["b_multiplier"] * b if operation is Operation.ADD else x[0] * b
        if second is not None:
            held = second.view(np.int32).astype(np.int64)
            found = np.maximum(found, held) if operation is Operation.MAX else found + held
        return found

    async def column(self, start: bool, first: bool) -> None:
        """Send a column; its sums are due two cycles later."""
        unit, operation = self.unit, Operation(self.d["operation"])
        while not unit.often(self.stalled):
            await self.cycle()
        window = unit.rng.integers(0, 256, (WINDOW, LANES), np.uint8)
        taps = unit.rng.random(WINDOW) < 0.8
        taps[1:] &= operation in WINDOWS or bool(self.d["narrow"])
        lanes = unit.pick(1, NARROW if self.d["narrow"] else LANES)
        lane = unit.pick(0, lanes - 1) if operation is Operation.CONV and not self.d["narrow"] else 0
        uses_second = operation in (Operation.ADD, Operation.MUL) or not self.d["first"]
        second = unit.rng.integers(-(1 << 20), 1 << 20, LANES).astype(np.int32)
        again, sent, stride = 0, window.copy(), self.d["stride_columns"]
        if not start and (operation in WINDOWS or self.d["narrow"]):
            for t in range(WINDOW - stride):
                if unit.rng.random() < 0.5:
                    again |= 1 << t
                    window[t] = self.last[t + stride]
        self.last = window
        weighted = operation in (Operation.CONV, Operation.DEPTHWISE)
        if start and weighted:
            while self.rows:
                await self.cycle()
            self.weights = self.next
        sent_as = {"window": packed(sent.reshape(-1), 8), "taps": packed(taps, 1), "again": again}
        await self.cycle(valid=1, lane=lane, lanes=lanes, pass_start=start and weighted, **sent_as)
        self.sums[1] = self.wanted(window, taps, lane, lanes, second if uses_second and (first or operation in ALONE) else None)
        self.second = {"second": packed(second, 32), "first": first, "second_used": uses_second}

    async def run(self, d: dict[str, int], passes: int) -> None:
        """Columns of a few passes."""
        self.d = d
        for _ in range(3):  # the descriptor belongs to the last column, too
            await self.cycle()
        await self.cycle(descriptor=COMPUTATION.pack(d), start=1)
        weighted = d["operation"] in (Operation.CONV, Operation.DEPTHWISE)
        if weighted:
            self.load()
        for k in range(passes):
            for column in range(COLUMNS):
                await self.column(column == 0, k == 0)
                if column == 0 and weighted:
                    self.load()  # those of the next pass arrive while this one goes on
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
        "kind": 2, "operation": operation, "narrow": narrow, "first": 1 if operation in ALONE else unit.pick(0, 1), "last": 1,
        "a_zero": unit.pick(-128, 127) + 128 * unsigned, "a_unsigned": unsigned, "b_zero": unit.pick(-128, 127) + 128 * b_unsigned,
        "b_unsigned": b_unsigned, "stride_columns": unit.pick(1, 3), "a_multiplier": unit.pick(-(1 << 22), 1 << 22),
        "b_multiplier": unit.pick(-(1 << 22), 1 << 22), **lanes_of_a_copy(unit),
    }  # fmt: skip


@cocotb.test()
@matrix
async def products_are_those_of_numpy(dut: Any, stalled: bool, pressed: bool) -> None:
    array = await started(dut, stalled=stalled, pressed=pressed)
    for operation, narrow in ((Operation.CONV, 0), (Operation.CONV, 1), (Operation.DEPTHWISE, 0)) * 3:
        await array.run(description(array.unit, operation, narrow), 3)
    assert array.checked > 9 * 3 * COLUMNS


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
        descriptor=0, valid=0, window=0, taps=0, again=0, lane=0, lanes=0, start=0, pass_start=0, first=0, second_used=0, second=0, row_valid=0,
        row=0, row_data=0, zero=0, unsigned=0,
    )  # fmt: skip
    return Array(unit, stalled=stalled, pressed=pressed)
