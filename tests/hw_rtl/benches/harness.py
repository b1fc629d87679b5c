"""What the benches share: a unit of lf_bench with its clock, a cycle at a time, and when things happen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer

LANES = 16
BUFFER_BYTES = 65536
PERIOD_NS = 10

# inputs with gaps, outputs taken with gaps
matrix = cocotb.parametrize(stalled=[False, True], pressed=[False, True])


class Unit:
    """A unit, by the prefix of its ports.

    Inputs are driven in the middle of a cycle, and outputs are looked at once they have settled after that,
    so what is seen is what the clock meets when it rises. What is driven stays until it is driven again.
    """

    def __init__(self, dut: Any, name: str, seed: int) -> None:
        self.dut, self.name, self.cycles = dut, name, 0
        self.rng = np.random.default_rng(seed)
        self.clock: Any = getattr(dut, f"{name}_clk")

    async def reset(self, **inputs: int) -> None:
        """Start the clock, with these inputs, and all others that are named later undriven."""
        await Timer(1, "ns")
        self.drive(rst_n=0, **inputs)
        Clock(self.clock, PERIOD_NS, "ns").start()
        for _ in range(3):
            await self.cycle()
        await self.cycle(rst_n=1)

    def drive(self, **inputs: int) -> None:
        """Set inputs."""
        for name, value in inputs.items():
            getattr(self.dut, f"{self.name}_{name}").value = int(value)

    async def cycle(self, **inputs: int) -> None:
        """Let the clock rise, drive inputs, and wait until outputs have settled."""
        await FallingEdge(self.clock)
        self.drive(**inputs)
        await ReadOnly()
        self.cycles += 1

    def see(self, name: str) -> int:
        """An output, without sign."""
        return int(getattr(self.dut, f"{self.name}_{name}").value)

    def often(self, held_back: bool) -> bool:
        """Whether something happens in this cycle: always, or 4 times in 10 where it is held back."""
        return not held_back or bool(self.rng.random() < 0.4)

    def pick(self, least: int, most: int) -> int:
        """A number from least to most, both included."""
        return int(self.rng.integers(least, most + 1))


def packed(values: Sequence[int] | np.ndarray, bits: int) -> int:
    """Numbers side by side, the first lowest, as two's complement."""
    word = 0
    for k, value in enumerate(values):
        word |= (int(value) & ((1 << bits) - 1)) << (k * bits)
    return word


def bytes_of(value: int, size: int = LANES) -> np.ndarray:
    """A word as bytes, uint8."""
    return np.frombuffer(value.to_bytes(size, "little"), np.uint8)


def word(data: np.ndarray) -> int:
    """Bytes as a word."""
    return int.from_bytes(data.tobytes(), "little")


def numbers(value: int, count: int) -> np.ndarray:
    """int32 side by side."""
    return np.frombuffer(value.to_bytes(4 * count, "little"), np.int32).astype(np.int64)
