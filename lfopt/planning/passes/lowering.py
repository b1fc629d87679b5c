"""From passes to places and steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lfopt.ir import Loop, Node, Place, Purpose, Store, Transfer, whole
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.nest.lowering import Lowering, lower_priced
from lfopt.planning.nest.places import Placement
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.nest.tree import LateInput, PartialSums
from lfopt.planning.passes.price import PassesPrice, price_nest
from lfopt.planning.passes.tree import Nest
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.steps.limit import Limit

PlacesAndSteps = tuple[tuple[Place, ...], tuple[Node, ...]]


def lower_nest(
    layout: BufferLayout,
    mask: int,
    nest: Nest,
    line_buffers: LineBuffers | None = None,
    limit: Limit | None = None,
) -> PlacesAndSteps:
    """Places and steps of a group that runs as a nest says, in one pass or several.

    Raises Unwritten beyond the limit. `line_buffers`: of the dataflow, for row engines.
    """
    price = price_nest(NestPricing(layout, line_buffers), mask, nest)
    if isinstance(price, PassesPrice):
        return lower_passes(price, limit or Limit())
    return lower_priced(price, limit or Limit())


def lower_passes(price: PassesPrice, limit: Limit) -> PlacesAndSteps:
    """Places and steps of a group in passes. Raises Unwritten beyond the limit."""
    lowering = PassesLowering(price)
    return tuple(lowering.places), tuple(lowering.steps(limit))


class PassesLowering:
    """Places and steps of one group."""

    def __init__(self, price: PassesPrice) -> None:
        self.price = price
        self.layout = price.layout
        self.flow = price.flow
        self.places: list[Place] = []
        self.kept_at: dict[int | PartialSums, int] = {}  # index of the place of what stays
        addresses = price.addresses
        for part in price.kept:
            self.kept_at[part.key] = len(self.places)
            name = self._name(part.key)
            purpose: Purpose = "map" if isinstance(part.key, int) else "sum"
            address = addresses.kept[part.key]
            self.places.append(Place(name, purpose, address, part.rows, part.row_bytes))
        maps = self.layout.hardware.store_of("map")
        self.placements: list[Placement] = []
        self.own: list[list[int]] = []  # per pass: the places that are taken while it runs
        for number, nest in enumerate(price.prices):
            before = len(self.places)
            starts: dict[Store, int] = {maps: addresses.starts[number]}
            self.placements.append(Placement(nest, self.places, self.kept_at, starts))
            kept = [self.kept_at[p.key] for p in price.kept if p.first <= number <= p.last]
            self.own.append([*kept, *range(before, len(self.places))])

    def _name(self, key: int | PartialSums) -> str:
        if isinstance(key, int):
            return self.flow.maps[key].name
        return self.layout.sums_name(key.operator)

    def fullest(self) -> list[tuple[str, Place]]:
        """(name, place) of what the pass that takes the most of the buffer has there; maps by their names."""
        names = {place: self._name(key) for key, place in self.kept_at.items()}
        for placement in self.placements:
            for key, k in placement.at.items():
                m = key.map if isinstance(key, LateInput) else key
                if isinstance(m, int):
                    names[k] = self.flow.maps[m].name
        store_of = self.layout.hardware.store_of

        def taken(own: Sequence[int]) -> int:
            here = (self.places[k] for k in own)
            return sum(place.bytes for place in here if store_of(place.purpose) == "buffer")

        return [(names.get(k, self.places[k].name), self.places[k]) for k in max(self.own, key=taken)]

    def steps(self, limit: Limit) -> Iterator[Node]:
        """The steps. Raises Unwritten beyond the limit."""
        spilled = frozenset(self.flow.maps[m].name for m in self.price.maps.spilled)
        for number, placement in enumerate(self.placements):
            for m in self.price.maps.arriving(number):
                tensor = self.flow.maps[m]
                yield self.layout.load(tensor.name, whole(tensor.shape), self.kept_at[m])
            yield from self._as_spills(Lowering(placement, limit).steps(), spilled)

    def _as_spills(self, nodes: Iterable[Node], spilled: frozenset[str]) -> Iterator[Node]:
        """The steps, with the transfers of maps that come back told from those of inputs and results."""
        for node in nodes:
            if isinstance(node, Loop):
                yield replace(node, body=tuple(self._as_spills(node.body, spilled)))
            elif isinstance(node, Transfer) and self.flow.behind.get(node.tensor, node.tensor) in spilled:
                yield replace(node, kind="spill")
            else:
                yield node
