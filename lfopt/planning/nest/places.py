"""Places of a nest: what each node holds, at which address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

from lfopt.ir import Place, Purpose, Store, whole
from lfopt.planning.nest.price import NestPrice
from lfopt.planning.nest.regions import Figure
from lfopt.planning.nest.tree import (
    CarriedPart,
    Held,
    LateInput,
    Node,
    PartialSums,
    RowLeaf,
    Seq,
    StayingPart,
    Stream,
    children,
)
from lfopt.planning.steps.addresses import Life, allocate
from lfopt.planning.steps.place_names import ACROSS, BESIDE, DOWN, DOWN_FIRST, IN_BLOCKS

Key = Held | Stream | CarriedPart | LateInput | StayingPart
THROUGHOUT = (Stream, StayingPart)  # places that are taken as long as a node runs, whatever runs in it


class Allocation(NamedTuple):
    """A place before it has an address."""

    key: Key
    name: str
    purpose: Purpose
    slots: int
    slot_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of all slots together."""
        return self.slots * self.slot_bytes


class Placement:
    """The places of one group, or of one of its passes."""

    def __init__(
        self,
        price: NestPrice,
        places: list[Place] | None = None,
        kept_at: Mapping[int | PartialSums, int] | None = None,
        starts: Mapping[Store, int] | None = None,
    ) -> None:
        """`price`: of the nest, whose loops are cut in one way.

        Of a pass: `places` there are before it, which it adds its own to, from the addresses `starts` on;
        `kept_at`: where maps, and statistics, that stay around it lie.
        """
        self.price = price
        self.layout = price.layout
        self.flow = price.flow
        self.mask = price.mask
        self.nest = price.nest
        self.homes = price.regions.homes
        self.places: list[Place] = [] if places is None else places
        self.kept_at = kept_at or {}
        self.at: dict[Key, int] = {}  # index of each place
        self.at |= {key: place for key, place in self.kept_at.items() if isinstance(key, PartialSums)}
        stores = self.layout.hardware.stores
        self._lay_out(self.nest.root, {store: (starts or {}).get(store, 0) for store in stores})

    def place_of(self, m: int, *, kept: bool) -> int | None:
        """Index of the place of a map, or of the part of it that stays around the nest; None: it has none."""
        if kept or self.price.around.is_whole(m):
            return self.kept_at[m]
        return self.at.get(m)

    def _lay_out(self, node: Node, starts: dict[Store, int]) -> dict[Store, int]:
        """Give addresses to what a node and those in it hold, from `starts` on; where they end."""
        held = [*self._allocations(node)]
        if isinstance(node, Seq) and node.lives:
            passing = [allocation for allocation in held if isinstance(allocation.key, THROUGHOUT)]
            ends = self._stack(passing, self._alive(node, held, starts))
        else:
            ends = self._stack(held, starts)
        inner = [self._lay_out(child, ends) for child in children(node)]
        return {store: max([end, *(below[store] for below in inner)]) for store, end in ends.items()}

    def _stack(self, held: Sequence[Allocation], starts: dict[Store, int]) -> dict[Store, int]:
        """Places one after the other."""
        ends = dict(starts)
        for allocation in held:
            store = self.layout.hardware.store_of(allocation.purpose)
            self._add(allocation, ends[store])
            ends[store] = self.places[-1].end
        return ends

    def _alive(self, node: Seq, held: Sequence[Allocation], starts: dict[Store, int]) -> dict[Store, int]:
        """Places that share space where they are not alive together; those taken throughout apart."""
        held = [allocation for allocation in held if not isinstance(allocation.key, THROUGHOUT)]
        lives = {allocation.key: self._life(node, allocation) for allocation in held}
        addresses = dict[Key, int]()
        ends = dict(starts)
        for store in self.layout.hardware.stores:
            keys = [a.key for a in held if self.layout.hardware.store_of(a.purpose) == store]
            offsets, end = allocate([lives[key] for key in keys])
            addresses |= {key: starts[store] + offset for key, offset in zip(keys, offsets, strict=True)}
            ends[store] += end
        for allocation in held:
            self._add(allocation, addresses[allocation.key])
        return ends

    def _life(self, node: Seq, allocation: Allocation) -> Life:
        """From the first part that touches a tensor to the last one, by the operators of the parts."""
        touched = [
            self.nest.operators[part][-1] for part in node.parts if self._touches(part, allocation.key)
        ]
        return Life(allocation.bytes, min(touched), max(touched))

    def _touches(self, part: Node, key: Key) -> bool:
        return any(key in self.tensors(i) for i in self.nest.operators[part])

    def tensors(self, op: int) -> list[Held]:
        """Maps and constants that an operator reads, and maps that it makes."""
        constants = [w.name for w in self.flow.weights[op] if not w.gathered]
        return [*(o.map for o in self.flow.operands[op]), *self.flow.results[op], *constants]

    def _add(self, allocation: Allocation, address: int) -> None:
        self.at[allocation.key] = len(self.places)
        _, _, purpose, slots, slot_bytes = allocation
        self.places.append(Place(self._unused(allocation), purpose, address, slots, slot_bytes))

    def _unused(self, allocation: Allocation) -> str:
        """The name of a place, or one like it where another place has that name."""
        name = allocation.name
        taken = {place.name for place in self.places}
        if isinstance(allocation.key, Stream):
            numbered = (self.layout.place_name(f"{name} {number}") for number in count(2))
            return next(one for one in chain((name,), numbered) if one not in taken)
        suffixes = (BESIDE, IN_BLOCKS) if allocation.purpose == "map" else ()
        names = (name, *(self.layout.place_name(f"{name}{suffix}") for suffix in suffixes))
        unused = next((one for one in names if one not in taken), f"{name}~")
        while unused in taken:
            unused += "~"
        return unused

    def _allocations(self, node: Node) -> Iterator[Allocation]:
        """What a node holds: constants, maps, sums, streams; maps of a `Seq` with lives come first."""
        flow = self.flow
        layout = self.layout
        for name in self.held_constants(node):
            size = layout.constant_bytes(name, whole(flow.graph.shape(name)))
            yield Allocation(name, name, "weight", 1, size)
        for m in self._held_maps(node):
            rows, size = map(single, self.price.map_place(m))
            if rows and size:
                seen = self.price.seen(m)
                name = flow.maps[m].name if seen is None else seen.tensor.name
                yield Allocation(m, name, "map", rows, size)
        for part in self._carried_parts(node):
            rows, size = map(single, self.price.carried_place(part))
            if rows:
                yield Allocation(part, f"{flow.maps[part.map].name}{_kept_where(part)}", "map", rows, size)
        for i in self._held_sums(node):
            rows, size = map(single, self.price.sums_place(i))
            yield Allocation(PartialSums(i), layout.sums_name(i), "sum", rows, size)
        if isinstance(node, RowLeaf):
            yield from self._leaf_allocations(node)
        for stream in self.nest.streams:
            if stream.home is not node:
                continue
            for name, box in self.price.streams.staying(stream):
                yield Allocation(StayingPart(name), name, "weight", 1, layout.constant_bytes(name, box))
            if size := self.price.streams.block(stream):
                name = layout.place_name("weight blocks")
                yield Allocation(stream, name, "weight", stream.slots, size)

    def _leaf_allocations(self, leaf: RowLeaf) -> Iterator[Allocation]:
        """What a row engine holds beside its maps: sums of reductions that run, and what comes late."""
        layout = self.layout
        for i, size in self.price.running_sums(leaf).items():
            yield Allocation(PartialSums(i), layout.sums_name(i), "sum", 1, size)
        for late in self.price.regions.late_inputs(leaf):
            rows, size = map(single, self.price.late_place(late))
            name = self.flow.maps[late.map].name
            if late.map in self.homes:
                name = layout.place_name(f"{name}{BESIDE}")
            yield Allocation(late, name, "map", rows, size)

    def held_constants(self, node: Node) -> list[str]:
        """Constants that a node holds, in the order of their readers."""
        names = [w.name for i in self.nest.operators[node] for w in self.flow.weights[i] if not w.gathered]
        return [name for name in dict.fromkeys(names) if self.homes.get(name) is node]

    def _held_maps(self, node: Node) -> list[int]:
        """Maps that a node holds: those from outside in the order of their readers, then those made."""
        operators = self.nest.operators[node]
        if isinstance(node, Seq) and node.lives:
            touched = [held for i in operators for held in self.tensors(i) if isinstance(held, int)]
            return [m for m in dict.fromkeys(touched) if self.homes.get(m) is node]
        results = [m for i in operators for m in self.flow.results[i]]
        return [*self.held_inputs(node), *(m for m in dict.fromkeys(results) if self.homes.get(m) is node)]

    def held_inputs(self, node: Node) -> list[int]:
        """Maps from outside that a node holds, in the order of their readers."""
        read = [o.map for i in self.nest.operators[node] for o in self.flow.operands[i]]
        return [
            m for m in dict.fromkeys(read) if self.homes.get(m) is node and not self.flow.makes(self.mask, m)
        ]

    def _carried_parts(self, node: Node) -> list[CarriedPart]:
        """What a loop keeps of maps for later blocks, in the order of the maps."""
        carried = sorted(self.nest.carried)
        return [part for m in carried for part in self.nest.carried_parts(m) if part.loop is node]

    def _held_sums(self, node: Node) -> list[int]:
        """Operators of whose partial sums a node holds the place."""
        return [i for i in self.nest.operators[node] if self.nest.homes.get(PartialSums(i)) is node]


def _kept_where(part: CarriedPart) -> str:
    """What follows the name of the map in that of its place."""
    if part.loop.axis == "columns":
        return ACROSS
    if part.first:
        return DOWN_FIRST
    return DOWN


def single(figure: Figure) -> int:
    """A figure of a nest whose loops are cut in one way."""
    if isinstance(figure, int):
        return figure
    return int(figure[0])
