"""Sums in int32 stored as bytes: scaled, saturated, through the table of what follows the operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen.kernels.fused_kernel import FusedKernel
from codegen.writer import CModule, Writer
from lfopt.ops.fixed_point import Multipliers

LANES = 16  # int32 in a vector
BLOCK = 4 * LANES  # bytes in a vector
# shifts with which a result is in the upper half of 64 bits, zero point added, and 62 bits hold it
HIGH = range(32, 55)


@dataclass(frozen=True)
class Bytes:
    """How a kernel stores bytes: their type, and the table of 256 bytes that they go through, if any."""

    kind: str
    table: np.ndarray | None

    @classmethod
    def of(cls, fused: FusedKernel) -> Bytes:
        """Those of a fused kernel."""
        return cls(fused.call.result_tensors[0].dtype, fused.table)

    @property
    def parameter(self) -> str:
        """The table, as a last parameter of a function."""
        if self.table is None:
            return ""
        return ", const uint8_t *table"

    @property
    def argument(self) -> str:
        """The table, as a last argument."""
        if self.table is None:
            return ""
        return ", table"

    def declaration(self, out: CModule) -> list[str]:
        """C statement: the table, for callers of such functions."""
        if self.table is None:
            return []
        return [f"const uint8_t *table = {constants(out, self.table.view(np.uint8))};"]

    def load(self, out: Writer) -> None:
        """C statement: the table in registers, for `put`."""
        if self.table is not None:
            out("const bytes_256 then = table_of(table);")

    def put(
        self, out: Writer, address: str, vectors: Sequence[str], some: str = "", *, in_lanes: bool = False
    ) -> None:
        """C statement: up to four vectors of int32 go to an address as bytes, side by side.

        `some`: mask of those that are there, if not all. `in_lanes`: of each vector in turn, four go to every
        16 bytes.
        """
        parts = [*vectors, *["_mm512_setzero_si512()"] * (4 - len(vectors))]
        value = f"packed_{self.kind}({', '.join(parts)})"
        value = value if in_lanes else f"in_order({value})"
        value = value if self.table is None else f"looked_up({value}, then)"
        if some:
            out(f"put_some({address}, {some}, {value});")
        elif len(vectors) == 1 and self.table is None:
            out(f"put_16_{self.kind}({address}, {vectors[0]});")
        else:
            out(f"put_{LANES * len(vectors)}({address}, {value});")


def constants(out: CModule, values: np.ndarray) -> str:
    """C expression: address of integers of any shape, in C order; int8, uint8, int16 or int32."""
    kind = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t"}[values.dtype.name]
    return f"(const {kind} *){out.constant(values, values.dtype.name)}"


def halves(by: Multipliers, largest: int) -> bool:
    """Whether a factor takes a sum to a whole number and a half; `largest`: of the sums' magnitudes.

    That is a multiple of 2**(shift - 1) which is no multiple of 2**shift.
    """
    divisors = by.multiplier & -by.multiplier  # the largest powers of two that divide the multipliers
    least = np.left_shift(np.int64(1), by.shift - 1) // np.maximum(divisors, 1)
    return bool(((by.multiplier > 0) & (least <= largest)).any())


class Scaling:
    """Fixed-point factors of channels and a zero point, as rows of 16 int32.

    The C function `name` of dots.h takes them.
    """

    def __init__(self, by: Multipliers, zero: int, largest: int, *, mean: bool = False) -> None:
        """`by`: (channels,) multipliers and shifts; `zero`: zero point of the result.

        `largest`: no sum is larger in magnitude; `mean`: whether they are scaled as means. Few factors,
        powers of two among them, make halves of such sums; others need not look for them.
        """
        times, less = (np.pad(f, (0, -len(f) % LANES)) for f in by)
        if mean or halves(by, largest):
            self.name = "scaled_mean" if mean else "scaled_even"
            rows = [
                times.reshape(-1, LANES),
                less.reshape(-1, LANES),
                np.full((len(less) // LANES, LANES), zero),
            ]
            self.rows = np.stack(rows, axis=1).astype(np.int32)
            return
        if high := all(s in HIGH for s in by.shift.tolist()):
            up = np.where(
                less > 0, np.left_shift(np.int64(2 * zero + 1), np.maximum(less - 1, 0)), 0
            ).reshape(-1, LANES // 2, 2)
            ups = [up[..., k].astype("<i8").view("<i4") for k in (0, 1)]
            odd = times.reshape(-1, LANES // 2, 2)[..., 1].repeat(2, axis=1)
            less = np.where(less > 0, less - HIGH.start, 0)
            rows = [times.reshape(-1, LANES), odd, *ups, less.reshape(-1, LANES)]
        else:
            rows = [
                times.reshape(-1, LANES),
                less.reshape(-1, LANES) - 1,
                np.full((len(less) // LANES, LANES), 2 * zero + 1),
            ]
        self.name = "scaled_high" if high else "scaled_any"
        self.rows = np.stack(rows, axis=1).astype(np.int32)  # (vectors, rows, 16)

    def value(self, sums: str, by: str) -> str:
        """C expression: a vector of sums, scaled; `by`: address of the rows of its channels."""
        return f"{self.name}({sums}, {by})"
