"""Covers: the cheapest one of small networks, beside an enumeration of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import cast

import numpy as np
import pytest

from lfopt.fusion import CoverModel, CoverPrice, connected
from lfopt.ops import Dataflow, bits
from search.cover import Cover, WorkLimit, as_cover, covers_between, search_covers
from search.cover_bound import CoverBounds
from search.cover_exact import ProvenCovers
from search.cover_network import CoverNetwork
from search.cover_path import MOST_SETS, UNIT, CoverBudget
from tests.cases import some
from tests.strategies import random_graph

BELOW = 1 << 60


@dataclass
class Toy:
    """Groups are legal up to a weight, and cost what they move; some may repeat products to move less.

    An operator fewer never costs more, as the search takes for granted.
    """

    dataflow: Dataflow
    map_bytes: Sequence[int]
    own_bytes: Sequence[int]
    weights: Sequence[int]
    most: int
    free: int = 0
    repeated: int = 0  # operators of which groups move a byte more each unless they do their products twice
    kept: int = 0
    dear: int = 1 << 30  # weight from which each unit of it costs bytes
    staying: Sequence[int] = ()  # per map: bytes, if it may stay
    room: int = 0  # for maps that stay and are read by a group, or stored
    sharing: int = 0  # operators that read one constant
    shared: int = 0  # its bytes
    input_bytes: Sequence[int] = field(init=False)
    store_bytes: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        self.staying = self.staying or [0] * len(self.map_bytes)
        self.input_bytes = self.map_bytes
        self.store_bytes = [max(pair) for pair in zip(self.map_bytes, self.staying, strict=True)]

    @property
    def work(self) -> Sequence[int]:
        return self.dataflow.macs

    @property
    def parts_join(self) -> bool:
        return bool(self.kept) or any(self.staying)

    @property
    def grouped(self) -> int:
        return self.dataflow.everything

    def group_bytes(self, operators: int, reads: int, stores: int) -> int:
        lacking = max(sum(self.staying[m] for m in bits(reads | stores)) - self.room, 0)
        return lacking + (self.shared if operators & self.sharing else 0)

    @classmethod
    def draw(cls, rng: np.random.Generator, flow: Dataflow) -> Toy:
        sizes = [int(size) for size in rng.integers(1, 100, len(flow.maps))]
        own = [int(size) for size in rng.integers(0, 30, len(flow))]
        weights = [int(weight) for weight in rng.integers(1, 5, len(flow))]
        repeated = int(rng.integers(1 << len(flow)))
        return cls(flow, sizes, own, weights, int(rng.integers(2, 14)), 0, repeated)

    def moved(self, operators: int, stores: int) -> int:
        flow = self.dataflow
        reads = {o.map for i in bits(operators) for o in flow.operands[i] if not flow.makes(operators, o.map)}
        maps = sum(self.map_bytes[m] for m in (*reads, *bits(stores)))
        maps += self.group_bytes(operators, sum(1 << m for m in reads), stores)
        return maps + sum(self.own_bytes[i] for i in bits(operators))

    @classmethod
    def draw_floors(cls, rng: np.random.Generator, flow: Dataflow) -> Toy:
        """With bytes beyond once, and maps that move for nothing, or stay where there is room."""
        drawn = cls.draw(rng, flow)
        kept = int(rng.integers(1 << len(flow.maps))) & int(rng.integers(1 << len(flow.maps)))
        sizes = [0 if kept >> m & 1 else size for m, size in enumerate(drawn.map_bytes)]
        toy = cls(flow, sizes, drawn.own_bytes, drawn.weights, drawn.most, kept=kept, dear=drawn.most // 2)
        if kept and rng.random() < 0.5:
            staying = [int(not size and rng.integers(1, 100)) for size in sizes]
            roomless = sum(1 << m for m, size in enumerate(staying) if not size)
            toy = replace(toy, staying=staying, kept=kept & roomless, room=int(rng.integers(0, 200)))
        if rng.random() < 0.5:
            toy = replace(toy, sharing=int(rng.integers(1 << len(flow))), shared=int(rng.integers(1, 60)))
        return toy

    def least_extra(self, operators: int) -> int | None:
        weight = sum(self.weights[i] for i in bits(operators))
        if operators & (operators - 1) and weight > self.most:
            return None
        return 7 * max(weight - self.dear, 0)

    def dram_bytes(self, operators: int, stores: int) -> int | None:
        extra = self.least_extra(operators)
        return None if extra is None else self.moved(operators, stores) + extra

    def ways(self, operators: int, stores: int) -> Sequence[CoverPrice]:
        macs = sum(self.dataflow.macs[i] for i in bits(operators))
        moved = self.moved(operators, stores) + (self.least_extra(operators) or 0)
        again = operators & self.repeated
        if not again:
            return (CoverPrice(moved, macs),)
        return CoverPrice(moved, 2 * macs), CoverPrice(moved + again.bit_count(), macs)


@dataclass
class Rough:
    """Prices above the floors of a `Toy`, at random: more operators may cost less, or be legal alone."""

    floors: Toy
    seed: int

    def __getattr__(self, name: str) -> object:
        return getattr(self.floors, name)

    def dram_bytes(self, operators: int, stores: int) -> int | None:
        floor = self.floors.dram_bytes(operators, stores)
        rng = np.random.default_rng((self.seed, operators))
        if floor is None or (operators & (operators - 1) and rng.random() < 0.2):
            return None
        return floor + int(rng.integers(0, 40)) * int(rng.integers(0, 2))

    def ways(self, operators: int, stores: int) -> Sequence[CoverPrice]:
        moved = self.dram_bytes(operators, stores)
        macs = sum(self.floors.dataflow.macs[i] for i in bits(operators))
        return () if moved is None else (CoverPrice(moved, macs),)


@dataclass
class Enumeration:
    """All covers of a network, walked backwards: every connected group, whatever maps it stores."""

    model: CoverModel

    @cached_property
    def groups(self) -> list[tuple[int, int, int]]:
        """(operators, maps made, maps read) of every connected set."""
        flow = self.model.dataflow
        every: list[tuple[int, int, int]] = []
        for operators in range(1, 1 << len(flow)):
            if not connected(flow.neighbours, operators):
                continue
            makes = sum(1 << m for i in bits(operators) for m in flow.results[i])
            read = {o.map for i in bits(operators) for o in flow.operands[i]}
            outside = sum(1 << m for m in read if not makes >> m & 1)
            every.append((operators, makes, outside))
        return every

    def useful(self, operators: int, stores: int) -> bool:
        """Whether every operator leads, within the group, to a map that it stores."""
        flow = self.model.dataflow
        leading = 0
        for i in reversed([*bits(operators)]):
            if any(stores >> m & 1 or flow.readers[m] & leading for m in flow.results[i]):
                leading |= 1 << i
        return leading == operators

    def together(self, stores: int, could: int) -> bool:
        """Whether an operator that makes outputs of the network makes all of them in one run."""
        flow = self.model.dataflow
        for results in flow.results:
            if any(flow.is_output[m] for m in results):
                mask = sum(1 << m for m in results)
                if stores & mask and could & mask & ~stores:
                    return False
        return True

    def least(self, macs: int | None = None, price: int = 0) -> int:
        """The least cost of any cover of at most so many multiply-accumulates; `price`: of each, in bytes."""
        flow = self.model.dataflow
        inputs = sum(1 << m for m, producer in enumerate(flow.producer) if producer < 0)
        goal = sum(1 << m for m, is_output in enumerate(flow.is_output) if is_output) & ~inputs
        order = count()
        heap = [(0, 0, next(order), goal)]  # bytes, multiply-accumulates, order, maps needed
        done: dict[int, list[int]] = {}  # by state: multiply-accumulates of what was popped
        while heap:
            moved, spent, _, needed = heappop(heap)
            if not needed:
                return moved
            if any(other <= spent for other in done.setdefault(needed, [])):
                continue
            done[needed].append(spent)
            for operators, makes, outside in self.groups:
                if self.model.dram_bytes(operators, 0) is None:
                    continue
                stores = makes & needed
                while stores:
                    if self.useful(operators, stores) and self.together(stores, makes & needed):
                        after = (needed & ~stores | outside) & ~inputs
                        for way in self.model.ways(operators, stores):
                            total = spent + way.work
                            if macs is None or total <= macs:
                                cost = moved + way.dram_bytes + price * way.work
                                entry = cost, total if macs else 0, next(order), after
                                heappush(heap, entry)
                    stores = (stores - 1) & makes & needed
        raise AssertionError("every operator may be alone")


def alone(model: Toy) -> list[int]:
    return [1 << i for i in range(len(model.dataflow))]


def best(model: Toy, macs: int = BELOW, sets: int = MOST_SETS) -> Cover:
    """The last cover that is found; where there is none, every operator alone."""
    covers = [*search_covers(model, WorkLimit(macs), alone(model), CoverBudget(lambda: False, sets))]
    first = as_cover(CoverNetwork.of(model), alone(model))
    sizes = [cover.dram_bytes for cover in covers]
    assert sizes == sorted({*sizes}, reverse=True)
    return min([first, *covers], key=lambda cover: cover.dram_bytes)


def check(cover: Cover, model: Toy) -> None:
    """Whether every group reads what is there, and all results of the network are made."""
    flow = model.dataflow
    there = {m for m, producer in enumerate(flow.producer) if producer < 0}
    for step in cover.steps:
        reads = {o.map for i in bits(step.operators) for o in flow.operands[i]}
        outside = {m for m in reads if not flow.makes(step.operators, m)}
        assert outside == {*bits(step.reads)}
        assert outside <= there
        assert all(flow.makes(step.operators, m) for m in bits(step.stores))
        there |= {*bits(step.stores)}
    assert all(m in there for m, is_output in enumerate(flow.is_output) if is_output)


def drawn(seed: int) -> tuple[np.random.Generator, Toy]:
    rng = np.random.default_rng(seed)
    return rng, Toy.draw(rng, Dataflow.of(random_graph(rng, int(rng.integers(2, 8)))))


def run(seeds: Sequence[int]) -> int:
    """Compare; how many of the networks compute an operator twice."""
    again = 0
    for seed in seeds:
        _, model = drawn(seed)
        cover = best(model)
        check(cover, model)
        assert cover.dram_bytes == Enumeration(model).least(), seed
        again += sum(step.operators.bit_count() for step in cover.steps) > len(model.dataflow)
    return again


def test_no_cover_of_a_small_network_moves_less() -> None:
    assert run(some(range(400))) > 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_cover_moves_less_of_five_thousand_small_networks() -> None:
    assert run(range(1000, 6000)) > 100


def test_the_bound_is_what_an_enumeration_finds_and_of_a_small_budget_no_more() -> None:
    below = 0
    for seed in some(range(200)):
        rng = np.random.default_rng(seed)
        model = Toy.draw_floors(rng, Dataflow.of(random_graph(rng, int(rng.integers(2, 8)))))
        least = Enumeration(model).least()
        start = alone(model)
        bound = CoverBounds([model], CoverBudget(lambda: False)).search(start)
        # where maps move for nothing, parts that nothing connects may be in one group as far as bounds know
        assert bound <= least if model.parts_join else bound == least, seed
        for sets in (0, 3, 30):
            bound = CoverBounds([model], CoverBudget(lambda: False, sets)).search(start)
            assert bound <= least, seed
            below += bound < least
    assert below


def test_covers_proven_by_prices_are_what_an_enumeration_finds_and_of_a_small_budget_no_more() -> None:
    """Whatever prices are above floors; a cover of a budget that is spent is none, or costs what it says."""
    below = again = 0
    for seed in some(range(300)):
        rng = np.random.default_rng(seed)
        flow = Dataflow.of(random_graph(rng, int(rng.integers(2, 8))))
        drawn = Toy.draw(rng, flow)
        floors = replace(drawn, repeated=0, dear=drawn.most // 2)
        prices = cast("CoverModel", Rough(floors, seed))
        least = Enumeration(prices).least()
        start = alone(floors)
        known = as_cover(CoverNetwork.of(prices), start).dram_bytes
        for sets in (MOST_SETS, 300, 30, 0):
            proven = ProvenCovers(floors, prices, CoverBudget(lambda: False, sets), start).search(known)
            assert proven.lower_bound_bytes <= least, seed
            moved = known
            if proven.steps:
                cover = Cover(proven.steps)
                check(cover, floors)
                moved = cover.dram_bytes
                assert moved < known, seed
                again += sum(step.operators.bit_count() for step in cover.steps) > len(flow)
            if sets == MOST_SETS:
                assert proven.lower_bound_bytes == least, seed
                assert moved == least, seed
            below += proven.lower_bound_bytes < least
    assert below
    assert again


def test_few_multiply_accumulates_are_kept_to_and_more_of_them_never_cost_bytes() -> None:
    tight = 0
    for seed in some(range(60)):
        rng, model = drawn(seed)
        own = sum(model.dataflow.macs)
        most = int(own * rng.uniform(1, 1.3))
        cover = best(model, most)
        check(cover, model)
        if cover.work > most:  # every operator alone does too many
            continue
        assert cover.dram_bytes >= Enumeration(model).least(most)
        free = best(model)
        assert cover.dram_bytes >= free.dram_bytes
        tight += cover.dram_bytes > free.dram_bytes
    assert tight


def test_covers_at_a_price_of_work_are_the_cheapest_and_those_between_two_trade_bytes_for_work() -> None:
    between = 0
    for seed in some(range(80)):
        rng, model = drawn(seed)
        price = int(rng.integers(1, 4))
        limit = WorkLimit(None, price * UNIT)
        budget = CoverBudget(lambda: False)
        covers = [*search_covers(model, limit, alone(model), budget)]
        first = as_cover(CoverNetwork.of(model), alone(model))
        cost = min(map(limit.cost, [first, *covers]))
        assert cost == UNIT * Enumeration(model).least(price=price), seed
        least = best(model)
        for cover in covers_between(model, least, alone(model), budget):
            check(cover, model)
            assert cover.work < least.work
            assert least.dram_bytes < cover.dram_bytes < first.dram_bytes
            between += 1
    assert between


def test_with_fewer_sets_covers_are_as_legal_and_with_more_never_worse() -> None:
    improved = 0
    for seed in some(range(200)):
        _, model = drawn(seed)
        moved: list[int] = []
        for sets in (3, 30, 300, MOST_SETS):
            cover = best(model, sets=sets)
            check(cover, model)
            moved.append(cover.dram_bytes)
        assert moved[-1] <= min(moved), seed
        improved += moved[0] > moved[1] > moved[-1]
    assert improved


def test_parts_of_a_cover_are_replaced_where_the_whole_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no set may be grown for the whole: windows find most of what it would."""
    monkeypatch.setattr("search.cover.WHOLE_SETS", 0)
    optimal = 0
    seeds = some(range(60))
    for seed in seeds:
        _, model = drawn(seed)
        cover = best(model)
        check(cover, model)
        optimal += cover.dram_bytes == Enumeration(model).least()
    assert optimal > 0.8 * len(seeds)
