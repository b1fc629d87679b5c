"""Barriers of a CPU schedule, kept only where threads would race without them.

Threads race where one wrote rows of a map that another reads or writes, or the reverse. The schedule is
followed call by call, every iteration of every loop, with what all threads did since the last barrier. At a
race, the last barrier before it is needed; in a loop it is needed in every iteration. Maps in memory are
compared row by row, or as a whole with others that overlap them; rows in rings by their slots, or as whole
rings with others that overlap them, those of groups before included: all groups share the buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import and_, or_
from typing import NamedTuple

from lfopt.ir import Plan, PlannedGroup, Span
from lfopt.ir.cpu import (
    CpuBarrier,
    CpuCall,
    CpuFunction,
    CpuGroup,
    CpuLoop,
    CpuMap,
    CpuNode,
    CpuSection,
    cpu_calls,
    share,
)
from lfopt.ops import Dataflow
from lfopt.planning.cpu.partitioning import reach

Rows = tuple[int, ...]  # per thread, rows or slots of rings as bits


class _Touch(NamedTuple):
    """Rows of one map that a call reads or writes."""

    map: str
    rows: Rows
    written: bool


def needed_barriers(
    groups: Sequence[CpuGroup], plan: Plan, flow: Dataflow, maps: Sequence[CpuMap], threads: int
) -> tuple[CpuGroup, ...]:
    """The groups without barriers that no two threads need."""
    kept = {
        id(node)
        for group in groups
        for section in group.sections
        for nodes in section.threads
        for node in _barriers(nodes)
    }
    epochs = _Epochs(plan, flow, maps, threads)
    while True:
        needed = epochs.needed(groups, kept)
        # others are left out where later iterations of a loop made them superfluous
        if len(needed) == len(kept):
            break
        kept = needed
    sections = [
        tuple(
            CpuSection(tuple(_with(nodes, kept) for nodes in section.threads)) for section in group.sections
        )
        for group in groups
    ]
    return tuple(replace(group, sections=parts) for group, parts in zip(groups, sections, strict=True))


def _barriers(nodes: Iterable[CpuNode]) -> Iterator[CpuBarrier]:
    for node in nodes:
        if isinstance(node, CpuLoop):
            yield from _barriers(node.body)
        elif isinstance(node, CpuBarrier):
            yield node


def _with(nodes: Iterable[CpuNode], kept: set[int]) -> tuple[CpuNode, ...]:
    return tuple(
        CpuLoop(node.count, _with(node.body, kept)) if isinstance(node, CpuLoop) else node
        for node in nodes
        if not isinstance(node, CpuBarrier) or id(node) in kept
    )


class _Epochs:
    """Rows touched between two barriers, call by call."""

    def __init__(self, plan: Plan, flow: Dataflow, maps: Sequence[CpuMap], threads: int) -> None:
        self.plan = plan
        self.flow = flow
        self.threads = threads
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.maps = {cpu_map.name: cpu_map for cpu_map in maps}
        self.memory = _overlaps({m.holder: (m.address, m.address + m.bytes) for m in maps if m.address >= 0})
        self.idle: set[int] = set()  # operators, of all groups so far
        # rows touched since the last barrier, by map and by whether they were written
        self.touched: dict[str, dict[bool, Rows]] = defaultdict(dict)
        self.slots: dict[str, int] = {}  # of the group
        self.places: dict[str, Span] = {}  # bytes of the buffer by ring, of the group
        self.rings: dict[str, Span] = {}  # the same by map that was touched, of all groups so far
        self.calls: dict[tuple[str, Span], list[_Touch]] = {}  # of the group

    def needed(self, groups: Sequence[CpuGroup], barriers: set[int]) -> set[int]:
        """Those of some barriers, by identity, that some call needs."""
        self.idle.clear()
        self.touched.clear()
        self.rings.clear()
        crossed = set[int]()
        last = 0
        for group, planned in zip(groups, self.plan.groups, strict=True):
            self._enter(group, planned)
            functions = {function.name: function for function in group.functions}
            for section in group.sections:
                if not section.together:
                    if self.touched:
                        crossed.add(last)
                    self.touched.clear()
                    continue
                for step in cpu_calls(section.threads[0]):
                    if isinstance(step, CpuBarrier):
                        last = id(step) if id(step) in barriers else last
                        continue
                    touches = self._touches(functions[step.function], step)
                    if any(self._meets(touch) for touch in touches):
                        crossed.add(last)
                        self.touched.clear()
                    for name, rows, written in touches:
                        before = self.touched[name].get(written)
                        self.touched[name][written] = (
                            rows if before is None else tuple(map(or_, before, rows))
                        )
        if any(True in by_access for by_access in self.touched.values()):
            crossed.add(last)  # all threads copy the outputs of the network
        return crossed

    def _enter(self, group: CpuGroup, planned: PlannedGroup) -> None:
        self.idle |= {self.index[name] for name in group.idle}
        places = planned.places if group.rings else ()
        self.slots = {place.name: place.slots for place in places}
        self.places = {
            place.name: (place.address, place.address + place.slots * place.slot_bytes) for place in places
        }
        self.calls.clear()

    # -- one call --------------------------------------------------------------------------------------------

    def _touches(self, function: CpuFunction, step: CpuCall) -> list[_Touch]:
        key = function.name, step.rows
        if key not in self.calls:
            if function.split:
                parts = [step.rows] * self.threads
            else:
                parts = [share(step.rows, k, self.threads) for k in range(self.threads)]
            operators = [self.index[name] for name in function.operators]
            results = self.flow.results[operators[-1]]
            inside = {m for i in operators[:-1] for m in self.flow.results[i]}
            self.calls[key] = [
                *(
                    touch
                    for i in operators
                    for touch in self._read(i, parts, inside, whole=function.makes == "map")
                ),
                *(
                    self._touch(
                        m, [(first, min(stop, self.flow.maps[m].rows)) for first, stop in parts], written=True
                    )
                    for m in results
                ),
            ]
        return self.calls[key]

    def _read(self, i: int, parts: Sequence[Span], inside: set[int], *, whole: bool) -> Iterator[_Touch]:
        """Rows that an operator reads to compute `parts`, one span per thread.

        Of an idle operator, whose result lies within other maps: all rows that it is made of.
        """
        for operand in self.flow.operands[i]:
            # a map without an address has no rows that are read
            if operand.map in inside or self.flow.maps[operand.map].name not in self.maps:
                continue
            rows = self.flow.maps[operand.map].rows
            maker = self.flow.producer[operand.map]
            if maker in self.idle:
                yield from self._read(
                    maker, [(0, self.flow.heights[maker])] * self.threads, set(), whole=True
                )
            else:
                yield self._touch(
                    operand.map,
                    [(0, rows) if whole else reach(operand.reads, part) for part in parts],
                    written=False,
                )

    def _touch(self, m: int, parts: Sequence[Span], *, written: bool) -> _Touch:
        name = self.flow.maps[m].name
        holder = self.maps[name].holder if self.maps[name].address < 0 else ""
        if holder in self.places:
            self.rings[name] = self.places[holder]
        slots = self.slots.get(holder, 0)
        return _Touch(name, tuple(_bits(first, stop, slots) for first, stop in parts), written)

    def _meets(self, touch: _Touch) -> bool:
        """Whether a thread races with others since the last barrier."""
        name, rows, written = touch
        for before, touched in self.touched[name].items() if name in self.touched else ():
            if (written or before) and any(map(and_, rows, _of_others(touched))):
                return True
        return any(
            (written or True in by_access) and self._overlap(name, other)
            for other, by_access in self.touched.items()
        )

    def _overlap(self, name: str, other: str) -> bool:
        """Whether two maps lie over each other: two in memory, or two in rings."""
        one = self.maps[name]
        two = self.maps[other]
        if one.address >= 0 or two.address >= 0:
            return two.holder in self.memory.get(one.holder, frozenset())
        if one.holder == two.holder or name not in self.rings or other not in self.rings:
            return False
        (start, stop), (first, last) = self.rings[name], self.rings[other]
        return start < last and first < stop


def _of_others(rows: Rows) -> Iterator[int]:
    """Per thread, the rows of all others.

    >>> [f"{others:b}" for others in _of_others((0b011, 0b110))]
    ['110', '11']
    """
    every = 0
    twice = 0
    for own in rows:
        every, twice = every | own, twice | every & own
    return (every & ~own | twice for own in rows)


def _bits(first: int, stop: int, slots: int) -> int:
    if first >= stop:
        return 0
    if not slots:
        return (1 << stop) - (1 << first)
    if stop - first >= slots:
        return (1 << slots) - 1
    return sum(1 << row % slots for row in range(first, stop))


def _overlaps(extents: Mapping[str, Span]) -> dict[str, frozenset[str]]:
    """By name: other maps whose bytes overlap its own."""
    overlapping: dict[str, set[str]] = defaultdict(set)
    active: list[tuple[int, str]] = []  # (stop, name)
    for name, (start, stop) in sorted(extents.items(), key=lambda extent: extent[1]):
        active = [one for one in active if one[0] > start]
        for _, other in active:
            overlapping[name].add(other)
            overlapping[other].add(name)
        active.append((stop, name))
    return {name: frozenset(others) for name, others in overlapping.items()}
