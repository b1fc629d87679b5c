"""Mode `chained`: stages in other modes in turn, with maps that stay on chip between them.

See `lfopt.planning.chains.linking`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lfopt.ir import BufferUse, Cost, DramBytes, Node, Place
from lfopt.planning.chains.stages import Around, ChainStage
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    ModeOption,
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
    parts: tuple[ChainPart, ...] = ()  # its stages, where they are known


class ChainPart(NamedTuple):
    """A stage of a chain."""

    stage: ChainStage
    around: Around


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
        # likewise: all chains that were found, in the order in which they were
        self._found: dict[tuple[int, int], list[Linked]] = {}

    def learn(self, chain: Linked, beta: int) -> None:
        """Keep a chain: that of the fewest bytes is how its group runs, others are options."""
        key = chain.mask, beta
        self._found.setdefault(key, []).append(chain)
        if key not in self.known or chain.dram.total < self.known[key].dram.total:
            self.known[key] = chain

    def number_of_chains(self, mask: int, beta: int) -> int:
        """How many chains of a group are known."""
        return len(self._found.get((mask, beta), ()))

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """Bytes that its stages move."""
        chain = self.known.get((mask, beta))
        if chain is None:
            return None
        return self._cost(chain)

    @staticmethod
    def _cost(chain: Linked) -> Cost:
        return Cost(chain.dram.total, chain.buffer_bytes, "chained", chain.buffer_bytes)

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """One row at a time and one pass of weights for the chain: its stages have their own."""
        return self._terms(self.known[mask, beta])

    @staticmethod
    def _terms(chain: Linked) -> TrafficTerms:
        return TrafficTerms(chain.dram, spilled=chain.spilled)

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """All chains that were found, in the order in which they were: so they keep their numbers."""
        for chain in self._found.get((mask, beta), ()):
            yield ModeOption(self._cost(chain), self._terms(chain), self._schedule(chain))

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule that was found."""
        return self._schedule(self.known[mask, beta])

    @staticmethod
    def _schedule(chain: Linked) -> Scheduled:
        def make(limit: Limit) -> PlacesAndSteps:
            return chain.places, chain.nodes

        return Scheduled(chain.buffer_bytes, make, macs=chain.macs)

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
