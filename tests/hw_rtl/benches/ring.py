"""lf_ring and lf_modulo: places in a ring of slots, and remainders, against Python's."""

from __future__ import annotations

from typing import Any

import cocotb

from tests.hw_rtl.benches.harness import Unit, matrix

ROUNDS = 60


def extra_cycles(number: int, slots: int) -> int:
    """What a remainder costs where the number is not below the slots, by the head of lf_ring.sv."""
    return number.bit_length() - slots.bit_length() + 3 if number >= slots else 0


@cocotb.test()
@matrix
async def places_are_remainders_times_slot_words(dut: Any, stalled: bool, pressed: bool) -> None:
    unit = Unit(dut, "ring", 1)
    await unit.reset(start=0)
    for k in range(ROUNDS):
        slots = unit.pick(1, (3, 40, 4095)[k % 3])
        words = unit.pick(0, (1 << 20) - 1)
        value = (
            unit.pick(-slots, slots)
            if k % 4 == 0
            else unit.pick(-(1 << (8, 14, 21)[k % 3]), 1 << (8, 14, 21)[k % 3])
        )
        row_step, kernel_step = unit.pick(0, 31), unit.pick(0, 31)
        while not unit.often(stalled):
            await unit.cycle()
        given = {
            "value": value & (1 << 23) - 1,
            "row_step": row_step,
            "kernel_step": kernel_step,
            "slots": slots,
            "slot_words": words,
        }
        await unit.cycle(start=1, **given)
        took = 0
        await unit.cycle(start=0)
        while not unit.see("done"):
            took += 1
            await unit.cycle()
        limit = 4 + sum(extra_cycles(number, slots) for number in (abs(value), row_step, kernel_step))
        assert took <= limit, f"{took} cycles for {given}; wanted at most {limit}"
        await unit.cycle()
        while not unit.often(pressed):  # results stay
            await unit.cycle()
        assert unit.see("offset") == value % slots * words, given
        assert unit.see("row_words") == row_step % slots * words, given
        assert unit.see("kernel_words") == kernel_step % slots * words, given
        assert unit.see("limit") == slots * words, given


@cocotb.test()
@matrix
async def remainders_are_those_of_python(dut: Any, stalled: bool, pressed: bool) -> None:
    unit = Unit(dut, "modulo", 2)
    await unit.reset(valid=0)
    for k in range(ROUNDS):
        value, divisor = unit.pick(0, 65535), unit.pick(1, (5, 300, 4095)[k % 3])
        while not unit.often(stalled):
            await unit.cycle()
        await unit.cycle(valid=1, value=value, divisor=divisor)
        assert unit.see("ready")
        # The next one stands at the door: it must not disturb this one.
        await unit.cycle(valid=not stalled, value=unit.pick(0, 65535), divisor=unit.pick(1, 4095))
        took = 1
        while not unit.see("found"):
            assert not unit.see("ready")
            took += 1
            # In the last cycle the unit is ready again; withdraw before.
            await unit.cycle(valid=not stalled and took < 16)
        assert took == 17, took
        while not unit.often(pressed):  # the remainder stays
            await unit.cycle(valid=0)
        assert unit.see("remainder") == value % divisor, (value, divisor)
        await unit.cycle(valid=0)
        assert not unit.see("found")
