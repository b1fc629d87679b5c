"""Modes of operators that run alone and have no steps: `access`, `opaque` and `excluded`.

One in mode `access` only moves data: its readers take its result from the maps behind it. lfopt does not know
an opaque operator; traffic `paper` leaves an excluded one out.
"""

from __future__ import annotations

from functools import cached_property

from lfopt.ir import ACCESS, NEVER, Cost, DramBytes
from lfopt.ops import OPAQUE
from lfopt.planning.groups.accesses import readable, unpadded
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    PlacesAndSteps,
    Scheduled,
    SearchSpace,
    Traffic,
    TrafficTerms,
    is_single,
    tallest,
)
from lfopt.planning.steps.limit import Limit


class AccessMode(ExecutionMode):
    """Single operators that only move data, between maps that lie in DRAM."""

    summary = "an operator that only moves data, read through where its operands lie: no steps, no bytes"
    whole = False
    alone = True
    steady = True
    in_paper = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.traffic`: nothing is read through where every tensor counts once."""
        self.groups = groups
        self.space = space

    @cached_property
    def operators(self) -> int:
        """Mask of the operators that may be read through."""
        if self.space.traffic is not Traffic.TILED or not unpadded(self.groups.hardware):
            return 0
        return readable(self.groups.dataflow)

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """0 bytes, on any buffer; None for operators that cannot be read through."""
        if is_single(mask) and mask & self.operators:
            return Cost(0, 0, ACCESS)
        return None

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Nothing is moved."""
        return TrafficTerms(DramBytes())

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """No places and no steps."""

        def make(limit: Limit) -> PlacesAndSteps:
            return (), ()

        return Scheduled(0, make)

    def need(self, mask: int) -> int:
        """0 of an operator that may be read through, NEVER of others."""
        if is_single(mask) and mask & self.operators:
            return 0
        return NEVER

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """False: it is always alone."""
        return False


class OpaqueMode(ExecutionMode):
    """Operators that lfopt has no rules for: every tensor once, whatever the buffer."""

    summary = "an operator unknown to lfopt: alone, every tensor once, no steps"
    whole = False
    alone = True

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space` changes nothing here."""
        self.groups = groups

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """Cost of a single opaque operator; None for others."""
        unknown = is_single(mask) and self.groups.dataflow.specs[mask.bit_length() - 1] is OPAQUE
        if unknown:
            return Cost(once, self.groups.line_bytes(mask), "opaque", executable=False)
        return None

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """DRAM bytes of every tensor once."""
        return TrafficTerms(self.groups.once(mask), band_rows=tallest(self.groups.dataflow, mask))

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """No steps, with the reason."""
        kind = self.groups.dataflow.operators[mask.bit_length() - 1].kind
        return Scheduled(self.groups.line_bytes(mask), f"lfopt has no rules for operator {kind}")

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """False: it is always alone."""
        return False


class ExcludedMode(ExecutionMode):
    """Operators whose weights reach the buffer, reported apart under traffic `paper`.

    Source: arXiv 2501.00636, section III.
    """

    summary = "under traffic paper, an operator whose weights reach the buffer: reported apart"
    whole = False
    alone = True
    counted = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.traffic` says whether there are any."""
        self.groups = groups
        self.space = space

    @cached_property
    def _weights(self) -> list[int]:
        """Per operator: bytes of weights on chip; -1 where lfopt does not know it."""
        groups = self.groups
        return [
            -1 if row is OPAQUE else groups.weight_bytes(1 << i)[1]
            for i, row in enumerate(groups.dataflow.specs)
        ]

    def operators(self, beta: int) -> int:
        """Mask of the operators that are left out on a buffer of `beta` bytes."""
        if self.space.traffic is not Traffic.PAPER:
            return 0
        return sum(1 << i for i, size in enumerate(self._weights) if size >= beta)

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """Cost of 0 bytes: nothing counts. None for operators that are not excluded."""
        if is_single(mask) and mask & self.operators(beta):
            return Cost(0, self.groups.line_bytes(mask), "excluded")
        return None

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """DRAM bytes of every tensor once, were it counted."""
        return TrafficTerms(self.groups.once(mask), band_rows=tallest(self.groups.dataflow, mask))

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """No steps, with the reason."""
        return Scheduled(self.groups.line_bytes(mask), "traffic 'paper' leaves the operator out")

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """False: it is always alone."""
        return False
