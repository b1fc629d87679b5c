"""Fusion schemes of the randomised searches: drawn, decoded from genomes, priced, and repaired until legal.

A *link* joins two operators that may be fused directly: a producer and a reader of its map, or two readers of
one map. A *genome* has one byte per link, 1 = fused and 0 = cut; links are sorted by their later operator. A
*plan* is a tuple of groups (masks of operators).

A map with many readers would have quadratically many pairs, so each reader is paired with at most `PAIRED`
readers before it. Every pair is there for maps of up to PAIRED + 1 readers. Beyond that, readers further
apart meet through those between them, or through the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lfopt.fusion import CostModel, connected_parts
from lfopt.ir import Cost
from lfopt.ops import bits
from search.result import RepairStats

PAIRED = 3  # earlier readers of the same map that a reader is paired with

KEPT = 200_000  # illegal groups, and groups with their parts, remembered before these memories start afresh

Partition = tuple[int, ...]
# an illegal group -> smaller groups in an executable order, or None
Split = Callable[[int], Sequence[int] | None]
# groups -> whether each looks legal; one that does not is broken without being checked
Screen = Callable[[Sequence[int]], Sequence[bool]]


class Price(NamedTuple):
    """Price of a legal group in a plan."""

    dram_bytes: int
    # F_beta in bytes; 0 for a group that does not run whole from the buffer: a tile takes what there is, and
    # says nothing of the fusion
    required_bytes: int
    fused: int  # mask of the links inside it


@dataclass
class RepairPolicy:
    """How one search breaks groups that do not fit, and how often it did: by `split`, else at random.

    A group that `screen` takes for illegal is broken unchecked, unless this search has found it legal before.
    `split` is given illegal groups, and those taken for illegal; the groups that it returns are not screened.
    Both must answer by the group alone, for a seed to mean one plan.
    """

    split: Split | None = None
    screen: Screen | None = None
    guided: int = 0  # groups broken where `split` said
    random: int = 0  # at random
    screened: int = 0  # of both: unchecked
    legal: set[int] = field(default_factory=set[int])  # groups that this search found legal, if it screens

    @property
    def repairs(self) -> RepairStats:
        """Counts of repairs so far."""
        return RepairStats(self.guided, self.random, self.screened)

    def doubted(self, groups: Iterable[int], anywhere: Callable[[int], bool]) -> set[int]:
        """The groups to break unchecked, as `screen` says; none that is legal `anywhere`."""
        if self.screen is None:
            return set()
        unsure = [group for group in dict.fromkeys(groups) if group not in self.legal and not anywhere(group)]
        if unsure:
            return {group for group, passes in zip(unsure, self.screen(unsure), strict=True) if not passes}
        return set()


class Rng:
    """Whole random numbers from PCG64: the same for a seed on every machine."""

    def __init__(self, seed: int | tuple[int, ...]) -> None:
        self._source = np.random.default_rng(seed).bit_generator
        self._words: list[int] = []

    def below(self, stop: int) -> int:
        """A number from 0 to stop - 1."""
        if not self._words:
            self._words = self._source.random_raw(1024).tolist()
        return self._words.pop() * stop >> 64

    def bytes(self, count: int) -> np.ndarray:
        """(count,) uint8."""
        return self._source.random_raw(count + 7 >> 3).astype("<u8").view(np.uint8)[:count]

    def member(self, mask: int) -> int:
        """An operator of the set: the first at or after a random place between its ends.

        Operators after gaps are likelier.
        """
        low = (mask & -mask).bit_length() - 1
        place = low + self.below(mask.bit_length() - low)
        rest = mask >> place
        return place + (rest & -rest).bit_length() - 1


class Partitions:
    """Legal partitions of one model.

    What is learnt of groups is kept, so searches on one model do well to share this.
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model
        flow = self.flow = model.dataflow
        self.links: tuple[tuple[int, int], ...] = tuple(_links(model))  # (earlier operator, later operator)
        self.singles: Partition = tuple(1 << i for i in range(len(flow)))
        self._upto = tuple(above | 1 << i for i, above in enumerate(flow.ancestors))
        self._from = tuple(below | 1 << i for i, below in enumerate(flow.descendants))
        into: list[list[tuple[int, int]]] = [[] for _ in flow.operators]
        for link, (u, v) in enumerate(self.links):
            into[v].append((link, u))
        # Per operator: (producers, links, its only producer and link or None).
        self._steps = tuple(
            (
                producers := tuple(bits(preds)),
                tuple(into[v]),
                into[v][0] if len(producers) == len(into[v]) == 1 and into[v][0][1] == producers[0] else None,
            )
            for v, preds in enumerate(flow.preds)
        )
        self.asked = 0  # how often the model was asked for a price
        self._prices: dict[int, Price] = {}  # of legal groups
        self._illegal: set[int] = set()
        self._parts: dict[int, tuple[int, ...]] = {}
        self._needs: dict[int, int] = {}

    # -- groups ----------------------------------------------------------------------------------------------

    @property
    def judged(self) -> int:
        """Groups that are known to be legal or not, by their price or by bounds."""
        return len(self._prices) + len(self._illegal)

    def price(self, mask: int) -> Price | None:
        """Price of a connected, convex group; None if it is not legal."""
        if known := self._prices.get(mask):
            return known
        if mask in self._illegal:
            return None
        cost = None
        if self._may_fit(mask):
            self.asked += 1
            cost = self.model.price(mask)
        if cost is not None:
            price = self._prices[mask] = self._priced(mask, cost)
            return price
        if len(self._illegal) >= KEPT:
            self._illegal.clear()
        self._illegal.add(mask)
        return None

    def forget(self, mask: int) -> None:
        """Ask for the price of a group anew."""
        self._prices.pop(mask, None)

    def _priced(self, mask: int, cost: Cost) -> Price:
        fused = sum(1 << link for v in bits(mask) for link, u in self._steps[v][1] if mask >> u & 1)
        return Price(cost.dram_bytes, cost.required_bytes, fused)

    def _may_fit(self, mask: int) -> bool:
        """False if a monotone lower bound rules the group out: much cheaper than to evaluate it."""
        if mask & (mask - 1) == 0:
            return True
        if mask & ~self.model.compatible[mask.bit_length() - 1]:
            return False
        group = floor = dram = 0
        for op in bits(mask):
            floor, dram = self.model.grow(group, floor, dram, op)
            group |= 1 << op
            if not self.model.may_grow(group, floor):
                return False
        return True

    def parts(self, mask: int) -> tuple[int, ...]:
        """The connected parts of a set of operators."""
        if mask not in self._parts:
            if len(self._parts) >= KEPT:
                self._parts.clear()
            self._parts[mask] = tuple(connected_parts(self.flow.neighbours, mask))
        return self._parts[mask]

    def needs(self, mask: int) -> int:
        """Operators outside the group whose results it reads."""
        if mask not in self._needs:
            preds = self.flow.preds
            read = 0
            for i in bits(mask):
                read |= preds[i]
            self._needs[mask] = read & ~mask
        return self._needs[mask]

    def before(self, operator: int) -> int:
        """Mask of the operator and all that it depends on."""
        return self._upto[operator]

    def after(self, operator: int) -> int:
        """Mask of the operator and all that depends on it."""
        return self._from[operator]

    def beside(self, mask: int) -> int:
        """Operators outside the set that may be fused with one of its operators."""
        neighbours = 0
        for i in bits(mask):
            neighbours |= self.flow.neighbours[i]
        return neighbours & ~mask

    def cut(self, mask: int, rng: Rng) -> tuple[int, ...]:
        """A convex set cut in two at a random place, as connected parts in an executable order."""
        while True:
            at = rng.member(mask)
            first = mask & self._upto[at] if rng.below(2) else mask & ~self._from[at]
            if first and first != mask:
                return self.parts(first) + self.parts(mask ^ first)

    def fit(self, groups: Iterable[int], rng: Rng, policy: RepairPolicy | None = None) -> list[int]:
        """The groups, each illegal one split in its place into legal ones: as the policy says or at random.

        Convex, connected groups in an executable order stay so. A single operator is always legal, so this
        ends.
        """
        policy = policy or RepairPolicy()
        legal: list[int] = []
        waiting = list(groups)
        split = policy.split
        anywhere = self.model.legal_anywhere
        doubted = policy.doubted(waiting, anywhere) if policy.screen else set[int]()
        waiting.reverse()
        price = self.price
        known = self._prices
        guided = at_random = 0
        while waiting:
            group = waiting.pop()
            if group in doubted:
                policy.screened += 1
            elif group in known or price(group):
                legal.append(group)
                continue
            smaller = split(group) if split else None
            if smaller:
                guided += 1
            else:
                at_random += 1
                smaller = self.cut(group, rng)
                if policy.screen:
                    doubted |= policy.doubted(smaller, anywhere)
            waiting.extend(reversed(smaller))
        policy.guided += guided
        policy.random += at_random
        if policy.screen:
            policy.legal.update(legal)
        return legal

    # -- plans -----------------------------------------------------------------------------------------------

    def dram_bytes(self, plan: Iterable[int]) -> int:
        """DRAM bytes of a plan of groups that fit() returned."""
        prices = self._prices
        return sum([prices[group].dram_bytes for group in plan])

    def required_bytes(self, plan: Iterable[int]) -> int:
        """Bytes that the buffer must exceed for all groups; those that run on any buffer count nothing."""
        prices = self._prices
        return max([prices[group].required_bytes for group in plan], default=0)

    def encode(self, plan: Iterable[int]) -> np.ndarray:
        """(links,) uint8: the genome of a plan of legal groups."""
        fused = 0
        for group in plan:
            fused |= self._prices[group].fused
        count = len(self.links)
        return np.unpackbits(
            np.frombuffer(fused.to_bytes(count + 7 >> 3, "little"), np.uint8), count=count, bitorder="little"
        )

    def decode(self, genome: bytes) -> list[int]:
        """Connected, convex groups with an acyclic quotient that follow a genome as far as that allows.

        They may be too large for the buffer.

        One topological sweep: an operator joins the groups at the other end of its fused links, in order,
        except where that would close a cycle. Groups only grow along links, so they are connected; a path
        that leaves a group and comes back would be a cycle, so they are convex.
        """
        owner = [0] * len(self._steps)  # operator -> group
        members: list[int] = []  # group -> mask of operators
        above: list[int] = []  # group -> mask of the groups that it waits for, directly or not
        for v, (producers, links, only) in enumerate(self._steps):
            if only:  # the common case, quickly: nothing can close a cycle
                home = owner[only[1]]
                if genome[only[0]]:
                    owner[v] = home
                    members[home] |= 1 << v
                else:
                    owner[v] = len(members)
                    members.append(1 << v)
                    above.append(above[home] | 1 << home)
                continue
            direct = indirect = 0
            for p in producers:
                direct |= 1 << owner[p]
                indirect |= above[owner[p]]
            home = -1
            for link, u in links:
                if not genome[link] or (other := owner[u]) == home:
                    continue
                if home < 0:
                    if indirect >> other & 1:  # a producer of v waits for that group
                        continue
                    home = other
                    bit = 1 << other
                    owner[v] = home
                    members[home] |= 1 << v
                    more = (direct | indirect) & ~bit & ~above[home]
                    if more:
                        above[home] |= more
                        above = [a | more if a & bit else a for a in above]
                elif not _between(above, home, other):
                    old = 1 << other
                    bit = 1 << home
                    for i in bits(members[other]):
                        owner[i] = home
                    members[home] |= members[other]
                    members[other] = 0
                    waits = (above[home] | above[other]) & ~(old | bit)
                    above = [(a & ~old) | bit | waits if a & (old | bit) else a for a in above]
                    above[home], above[other] = waits, 0
            if home < 0:
                owner[v] = len(members)
                members.append(1 << v)
                above.append(direct | indirect)
        return [group for group in members if group]

    def draw(self, rng: Rng, policy: RepairPolicy | None = None) -> list[int]:
        """A random legal plan.

        Every link is fused with a probability that is itself drawn, between a half and one. Below a half,
        plans are little better than every operator alone; at one, everything is fused and then cut at random.
        """
        genome = (rng.bytes(len(self.links)) <= 127 + rng.below(129)).tobytes()
        return self.fit(self.decode(genome), rng, policy)

    def bytes_of(self, group: int) -> int:
        """DRAM bytes of a legal group, which is priced if it is not yet."""
        price = self.price(group)
        assert price is not None, "a legal group has a price"
        return price.dram_bytes

    def executable(self, groups: Iterable[int]) -> Partition | None:
        """The groups in an executable order, early operators first; None if there is a cyclic dependency.

        Whatever is in none of these groups counts as executed before them.
        """
        waiting = sorted(groups, key=lambda group: group & -group)
        done = self.flow.everything & ~sum(waiting)
        ordered: list[int] = []
        while waiting:
            late: list[int] = []
            for group in waiting:
                if self.needs(group) & ~done:
                    late.append(group)
                else:
                    ordered.append(group)
                    done |= group
            if len(late) == len(waiting):
                return None
            waiting = late
        return tuple(ordered)

    def in_order(self, plan: Iterable[int]) -> Partition:
        """The groups of a legal plan in an executable order."""
        ordered = self.executable(plan)
        assert ordered is not None, "groups of a legal plan do not wait for one another"
        return ordered


def _links(model: CostModel) -> list[tuple[int, int]]:
    """Pairs of operators that may be fused directly, by later operator, then by earlier."""
    flow = model.dataflow
    pairs: set[tuple[int, int]] = set()
    for m, mask in enumerate(flow.readers):
        readers = list(bits(mask))
        if flow.producer[m] >= 0:
            pairs.update((flow.producer[m], v) for v in readers)
        for k, v in enumerate(readers):
            pairs.update((u, v) for u in readers[max(0, k - PAIRED) : k])
    return sorted(
        ((u, v) for u, v in pairs if flow.neighbours[v] >> u & 1), key=lambda link: (link[1], link[0])
    )


def _between(above: list[int], a: int, b: int) -> bool:
    """Whether a group lies on a path from one of the two groups to the other."""
    return any(above[k] >> a & 1 for k in bits(above[b])) or any(above[k] >> b & 1 for k in bits(above[a]))
