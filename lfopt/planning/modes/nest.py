"""Mode `nest`: a group that runs as a nest which someone wrote (`lfopt.planning.written.text`)."""

from __future__ import annotations

from collections.abc import Iterator

from lfopt.ir import BufferUse, Cost, DoesNotFit, DramBytes, Place, dram_bytes, store_ends
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    ModeOption,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    place_use,
)
from lfopt.planning.passes.lowering import lower_nest
from lfopt.planning.passes.tree import Nest, Passes, PassMaps
from lfopt.planning.steps.layout import BufferLayout


class NestMode(ExecutionMode):
    """Groups of which a nest was given, and no others."""

    summary = "as a nest that was written by hand"
    given = True
    in_paper = structural = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space` changes nothing here."""
        self.groups = groups
        self.known: dict[int, ModeOption] = {}  # by group
        self._places: dict[int, tuple[Place, ...]] = {}  # by group

    def give(self, mask: int, nest: Nest) -> DoesNotFit | None:
        """Let a group run as a nest says, if it fits the chip; else what it needs.

        Raises Unwritten for a nest of too many steps.
        """
        groups = self.groups
        hardware = self.groups.hardware
        layout = BufferLayout(groups.dataflow, hardware)
        places, steps = lower_nest(layout, mask, nest, groups.line_buffers)
        for store, end in store_ends(places, hardware).items():
            if end >= hardware.stores[store]:
                uses = tuple(place_use(p) for p in places if hardware.store_of(p.purpose) == store)
                return DoesNotFit(mask, end, hardware.stores[store], uses, store)
        moved = dram_bytes(steps) + DramBytes(parameter=groups.parameter_bytes(mask))
        end = store_ends(places, hardware)["buffer"]
        cost = Cost(moved.total, end, "nest", end)
        spilled: tuple[str, ...] = ()
        if isinstance(nest, Passes):
            maps = PassMaps(groups.dataflow, nest)
            spilled = tuple(groups.dataflow.maps[m].name for m in sorted(maps.spilled))
        terms = TrafficTerms(moved, spilled=spilled)
        scheduled = Scheduled(end, lambda _: (places, steps), nest)
        self.known[mask], self._places[mask] = ModeOption(cost, terms, scheduled), places
        return None

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """What the steps of the nest move."""
        if mask in self.known:
            return self.known[mask].cost
        return None

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """As the steps say."""
        return self.known[mask].terms

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """Places and steps of the nest."""
        return self.known[mask].scheduled

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """The nest, and nothing else."""
        if mask in self.known:
            yield self.known[mask]

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """The places of the nest."""
        for place in self._places.get(mask, ()):
            yield place_use(place)

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """False: no search proposes it."""
        return False
