"""How what a segment reads is on chip."""

from __future__ import annotations

from typing import Literal, NamedTuple

from lfopt.ops import MapRead

# All channels of the rows of a band; a slice of them; those channels that the tail makes at a time; whole, a
# map of one row; all channels of one row, for the prologue.
Access = Literal["rows", "slice", "part", "vector", "row"]
Source = tuple[int, Access]  # a map that comes from DRAM, and how


class Reading(NamedTuple):
    """Something that a group reads."""

    op: int
    operand: MapRead  # as rows pass through rings
    access: Access
