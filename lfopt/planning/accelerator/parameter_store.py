"""Addresses of multipliers and tables of quantised operators in their stores beside the buffer.

The cycle model (`simulator.model.parameters`) and the encoder (`codegen.accel`) both go by this: loads wait
for the operators that read what they overwrite.
"""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.ir import Span
from lfopt.isa.tables import Space
from lfopt.ops import Call
from lfopt.ops.arithmetic import SUMS, arithmetic


@dataclass(slots=True)
class ParameterStore:
    """A store that is filled from its start to its end, and then anew.

    Sizes are in units of the caller: bytes, rows of multipliers, tables.

    >>> store = ParameterStore(room=8)
    >>> store.make_room(7)
    >>> store.put(5), store.put(2)
    ((0, 5), (5, 7))
    >>> store.make_room(3)
    >>> store.put(3)
    (0, 3)
    """

    room: int
    free: int = 0  # first free unit

    def make_room(self, size: int) -> None:
        """Begin at the start if `size` units do not fit behind the parameters before.

        Called before parameters that are needed together, with their total.
        """
        if self.free + size > self.room:
            self.free = 0

    def put(self, size: int) -> Span:
        """Start and end of the parameters of the next operator, in units."""
        first = self.free
        self.free = self.free + size
        return first, self.free


def parameter_space(call: Call) -> Space:
    """Store of the parameters of an operator: multipliers of its channels, or tables."""
    if arithmetic(call) is SUMS:
        return Space.FACTORS
    return Space.TABLES
