"""Mode `chained`: stages in other modes in turn, with maps that stay on chip between them.

See `lfopt.planning.chains.linking`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lfopt.ir import BufferUse, Cost, DramBytes, Node, Place
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    PlacesAndSteps,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    place_use,
)
from lfopt.planning.steps.limit import Limit


class Linked(NamedTuple):
    """A chain, with its steps."""

    mask: int
    places: tuple[Place, ...]
    nodes: tuple[Node, ...]
    buffer_bytes: int  # F_beta, bytes
    dram: DramBytes
    spilled: tuple[str, ...]
    macs: int  # multiply-accumulates of its stages


class ChainedMode(ExecutionMode):
    """Groups that were found to be chains, and no others.

    The stages of a group are found by a search over all of a network.
    """

    parameters = True
    structural = False
    summary = "stages in other modes, one after the other, with maps that stay on chip between them"
    in_paper = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space` changes nothing here."""
        self.groups = groups
        self.known: dict[tuple[int, int], Linked] = {}  # by group and size of the buffer

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """Bytes that its stages move."""
        chain = self.known.get((mask, beta))
        if chain is None:
            return None
        return Cost(chain.dram.total, chain.buffer_bytes, "chained", chain.buffer_bytes)

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """One row at a time and one pass of weights for the chain: its stages have their own."""
        chain = self.known[mask, beta]
        return TrafficTerms(chain.dram, spilled=chain.spilled)

    def macs(self, mask: int, beta: int) -> int:
        """Multiply-accumulates of its stages, rounded up."""
        return self.known[mask, beta].macs

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule that was found."""
        chain = self.known[mask, beta]

        def make(limit: Limit) -> PlacesAndSteps:
            return chain.places, chain.nodes

        return Scheduled(chain.buffer_bytes, make)

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """All places: those at the fullest point are not told apart."""
        chain = self.known.get((mask, beta))
        yield from map(place_use, chain.places if chain else ())

    def never(self, mask: int) -> str:
        """Why it is no chain: no search has found it to be one."""
        return "no search has found it to be a chain"

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """Chains do not come from growing groups."""
        return False
