"""What the passes of a group take and move."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import DramBytes, Store, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops.statistics import state_box
from lfopt.planning.nest.places import single
from lfopt.planning.nest.price import NestPrice, NestPricing
from lfopt.planning.nest.tree import PartialSums
from lfopt.planning.passes.tree import Nest, Passes, PassMaps
from lfopt.planning.steps.layout import row_span


class KeptPart(NamedTuple):
    """What stays on chip between passes of a map, or of the statistics of a normalization."""

    key: int | PartialSums
    rows: int
    row_bytes: int
    first: int  # the first pass that touches it
    last: int

    @property
    def bytes(self) -> int:
        """Bytes on chip."""
        return self.rows * self.row_bytes


class PassAddresses(NamedTuple):
    """Where kept maps lie, and where each pass begins, bytes."""

    kept: dict[int | PartialSums, int]  # address of what stays
    starts: list[int]  # address by pass
    end: int


def price_nest(pricing: NestPricing, mask: int, nest: Nest) -> NestPrice | PassesPrice:
    """Figures of a group that runs as a nest says, in one pass or several."""
    if isinstance(nest, Passes):
        return PassesPrice(pricing, nest)
    return pricing.price(mask, nest)


def nest_macs(pricing: NestPricing, mask: int, nest: Nest) -> int:
    """Multiply-accumulates of a group that runs as a nest says, with what is made again: at most."""
    price = price_nest(pricing, mask, nest)
    if isinstance(price, PassesPrice):
        return price.macs
    return int(price.macs[0])


def pass_needs(price: NestPrice) -> dict[Store, int]:
    """Bytes that a pass takes itself, in each store."""
    hardware = price.layout.hardware
    needs = dict.fromkeys(hardware.stores, 0)
    needs[hardware.store_of("map")] += int(price.map_bytes[0])
    needs[hardware.store_of("weight")] += int(price.constant_bytes[0])
    return needs


class PassesPrice:
    """Figures of a group in passes."""

    def __init__(self, pricing: NestPricing, passes: Passes) -> None:
        self.pricing = pricing
        self.layout = pricing.layout
        self.flow = pricing.flow
        self.passes = passes
        self.mask = passes.mask
        self.maps = PassMaps(self.flow, passes)
        self.prices: list[NestPrice] = [
            pricing.price(mask, nest, around=self.maps.around(number))
            for number, (mask, nest) in enumerate(zip(passes.masks, passes.passes, strict=True))
        ]

    # -- on chip ---------------------------------------------------------------------------------------------

    @cached_property
    def kept(self) -> tuple[KeptPart, ...]:
        """What stays on chip, in the order in which it begins to."""
        parts = sorted(self._kept_parts(), key=lambda part: (part.first, -part.last))
        return tuple(parts)

    def _kept_parts(self) -> Iterator[KeptPart]:
        for m, channels in self.passes.kept.items():
            tensor = self.flow.maps[m]
            cut = ((CHANNEL_AXIS_OF_RANK[len(tensor.shape)], channels),) if channels else ()
            row_bytes = self.pricing.row_bytes(m, cut)
            assert isinstance(row_bytes, int), "kept maps are cut in one way"
            touching = self.maps.touching(m)
            yield KeptPart(m, tensor.rows, row_bytes, touching[0], touching[-1])
        for i in sorted(self.passes.measured):
            state = state_box(self.flow.calls[i], whole(self.flow.calls[i].result))
            first, stop = row_span(state)
            running = self.maps.running(i)
            size = self.layout.sums_row(state)
            yield KeptPart(PartialSums(i), stop - first, size, running[0], running[-1])

    def needs(self, number: int) -> dict[Store, int]:
        """Bytes that a pass takes itself, in each store."""
        return pass_needs(self.prices[number])

    @cached_property
    def addresses(self) -> PassAddresses:
        """Addresses in the store of maps.

        What stays to the last pass lies at the bottom, then comes what each pass takes itself, and above that
        what stays and ends earlier.
        """
        store = self.layout.hardware.store_of("map")
        count = len(self.prices)
        starts = [0] * count
        addresses: dict[int | PartialSums, int] = {}
        for part in self.kept:
            if part.last == count - 1:
                addresses[part.key] = starts[part.first]
                for number in range(part.first, count):
                    starts[number] += part.bytes
        tops = [start + self.needs(number)[store] for number, start in enumerate(starts)]
        for part in self.kept:
            if part.last < count - 1:
                alive = range(part.first, part.last + 1)
                addresses[part.key] = max(tops[number] for number in alive)
                for number in alive:
                    tops[number] = addresses[part.key] + part.bytes
        return PassAddresses(addresses, starts, max(tops))

    @cached_property
    def ends(self) -> dict[Store, int]:
        """Bytes that the group takes in each store."""
        needs = [self.needs(number) for number in range(len(self.prices))]
        stores = self.layout.hardware.stores
        ends: dict[Store, int] = {store: max(need[store] for need in needs) for store in stores}
        ends[self.layout.hardware.store_of("map")] = self.addresses.end
        return ends

    # -- over the port ---------------------------------------------------------------------------------------

    @cached_property
    def dram(self) -> DramBytes:
        """DRAM bytes by class, but for parameters."""
        spilled = self.maps.spilled
        spill = 0
        read = sum(self.layout.map_bytes(whole(self.flow.maps[m].shape)) for m in self._arriving())
        written = 0
        weight = 0
        for price in self.prices:
            held = {m for m in price.regions.homes if isinstance(m, int)}
            loaded = sum(single(price.loaded(m)) for m in held & spilled if self._is_loaded(price, m))
            stored = sum(single(price.stored(m)) for m in price.leaving & spilled)
            spill += loaded + stored
            read += int(price.input[0]) - loaded
            written += int(price.output[0]) - stored
            weight += int(price.weight[0])
        return DramBytes(input=read, output=written, weight=weight, spill=spill)

    def _is_loaded(self, price: NestPrice, m: int) -> bool:
        return not self.flow.makes(price.mask, m)

    def _arriving(self) -> Iterator[int]:
        for number in range(len(self.prices)):
            yield from self.maps.arriving(number)

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates, with what is made again."""
        return sum(int(price.macs[0]) for price in self.prices)
