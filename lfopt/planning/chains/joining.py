"""Stages of a chain one after the other: their steps, and an address for everything that they take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from lfopt.ir import Carry, Compute, Loop, Node, Place, Store, Transfer, dram_bytes, leaves, store_ends
from lfopt.ops import Dataflow, bits
from lfopt.planning.chains.stages import ChainStage
from lfopt.planning.modes import Linked
from lfopt.planning.steps.addresses import Life, allocate, from_both_ends
from lfopt.planning.steps.layout import BufferLayout

ALIGN = 64  # bytes: where maps that stay end at the upper end of the buffer


class Joining:
    """Puts stages one after the other."""

    def __init__(self, flow: Dataflow, layout: BufferLayout, mask: int) -> None:
        self.layout = layout
        self.mask = mask
        inside = {m for i in bits(mask) for m in flow.results[i]}
        # maps without consumers outside the chain
        self.inside = {flow.maps[m].name for m in inside.difference(flow.leaving(mask))}
        self.behind = flow.behind
        self.places: list[Place] = []
        self.nodes: list[Node] = []
        self.macs = Fraction(0)
        self.lives: list[Life] = []
        self.stores: list[Store] = []  # per life: the buffer that it is in
        self.at: list[tuple[int, int]] = []  # per place: life, and bytes from its start
        self.here: dict[int, int] = {}  # maps on chip: place
        self.names: set[str] = set()
        self.ends: list[int] = []  # nodes up to the end of each stage
        self.held: list[int] = []  # places of maps that stay

    def add(self, stage: ChainStage, parameters: Sequence[Node], enter: set[int], leave: set[int]) -> None:
        """Append a stage, behind the loads of its parameters.

        `enter`, `leave`: maps that are on chip before and after it.
        """
        self.nodes += parameters
        self.macs += stage.macs
        base = len(self.nodes)
        number = dict[int, int]()
        for m, k in stage.held.items():
            first, last = (base + node for node in stage.used[m])
            if m not in enter:
                self.here[m] = self._new(stage.places[k])
                self.held.append(self.here[m])
                if m in stage.over:
                    self.at.append((self.at[self.here[stage.over[m]]][0], 0))
                else:
                    self.at.append((len(self.lives), 0))
                    self.lives.append(Life(stage.places[k].bytes, first, last))
                    self.stores.append("buffer")
            number[k] = self.here[m]
            self._prolong(m, last)
        for lot in stage.lots:
            for k, offset in lot.places:
                number[k] = self._new(stage.places[k])
                self.at.append((len(self.lives), offset))
            self.lives.append(Life(lot.life.bytes, base + lot.life.first, base + lot.life.last))
            self.stores.append(self.layout.hardware.store_of(stage.places[lot.places[0][0]].purpose))
        self.nodes += [self._renumbered(node, number) for node in stage.nodes]
        self.here = {m: k for m, k in self.here.items() if m in leave}
        self.ends.append(len(self.nodes))

    def _prolong(self, m: int, last: int) -> None:
        life = self.at[self.here[m]][0]
        self.lives[life] = self.lives[life]._replace(last=max(self.lives[life].last, last))

    def _new(self, place: Place) -> int:
        name = place.name
        while name in self.names:
            name = self.layout.place_name(f"{name}~")
        self.names.add(name)
        self.places.append(replace(place, name=name))
        return len(self.places) - 1

    def _renumbered(self, node: Node, number: dict[int, int]) -> Node:
        if isinstance(node, Loop):
            return replace(node, body=tuple(self._renumbered(inner, number) for inner in node.body))
        if isinstance(node, Compute):
            places = tuple(number.get(k, -1) for k in node.places)
            return replace(node, places=places, accumulator=number.get(node.accumulator, -1))
        if isinstance(node, Carry):
            return replace(node, place=number.get(node.place, -1))
        map_name = self.behind.get(node.tensor, node.tensor)  # a view of it may be what is loaded
        spilled = map_name in self.inside and node.kind in ("input", "output")
        return replace(node, place=number.get(node.place, -1), kind="spill" if spilled else node.kind)

    def build(self, beta: int) -> Linked | tuple[int, int]:
        """The chain; where it does not fit: the stage that reaches highest, and by how much."""
        addresses = [0] * len(self.lives)
        for store, size in (self.layout.hardware.stores | {"buffer": beta}).items():
            own = [k for k, of in enumerate(self.stores) if of == store]
            lives = [self.lives[k] for k in own]
            addresses_here, top = allocate(lives)
            if top >= size:
                held = {self.at[k][0] for k in self.held}
                other = from_both_ends(
                    lives, {j for j, k in enumerate(own) if k in held}, (size - 1) // ALIGN * ALIGN
                )
                addresses_here, top = other if other[1] < top else (addresses_here, top)
            if top >= size:
                ends = [address + life.bytes for address, life in zip(addresses_here, lives, strict=True)]
                highest = lives[max(range(len(ends)), key=lambda k: (ends[k], -lives[k].bytes))]
                return bisect_right(self.ends, highest.first), top - size + 1
            for k, address in zip(own, addresses_here, strict=True):
                addresses[k] = address
        places = tuple(
            replace(place, address=addresses[life] + offset)
            for place, (life, offset) in zip(self.places, self.at, strict=True)
        )
        nodes = tuple(self.nodes)
        stored = (node for node in leaves(nodes) if isinstance(node, Transfer) and node.store)
        spilled = sorted({node.tensor for node in stored if node.kind == "spill"})
        end = store_ends(places, self.layout.hardware)["buffer"]
        return Linked(self.mask, places, nodes, end, dram_bytes(nodes), tuple(spilled), ceil(self.macs))
