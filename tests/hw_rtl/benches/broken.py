"""A handshake broken on purpose: the log is searched for what the hardware's assertions say."""

from __future__ import annotations

from typing import Any

import cocotb

from tests.hw_rtl.benches.dma import started


@cocotb.test()
async def memory_answers_a_write_that_it_was_not_asked_for(dut: Any) -> None:
    unit = (await started(dut, 1, stalled=False, pressed=False)).unit
    await unit.cycle(b_valid=1)
    await unit.cycle(b_valid=0)
