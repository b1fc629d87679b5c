"""Recount what the threads of a CPU run: every thread's calls are followed, row by row, between barriers.

Nothing here comes from what made the schedule. It is checked, exactly, at rows:

* every operator of a group is in one function, or nobody reads what it makes, or that is there already (a
  Concat of parts that lie within it; a Transpose, Slice, Split or Gather of a map that they lie within);
* whatever a thread reads is there: in a map in memory, written and not overwritten by another map since; in a
  ring, the row that is meant, and not a later one;
* between two barriers, no thread touches a row that another one writes, nor a map or ring that lies over one
  that another one writes, also of the group before;
* at the end, the results of the network are there.

What is taken as said: that threads that divide one call among themselves write different parts of its result;
that functions without rows of their own in a listing read what the operator table says; that parts of a map
that lie within it are different parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lfopt.ir import Graph, Plan, Span
from lfopt.ir.cpu import CpuBarrier, CpuCall, CpuFunction, CpuGroup, CpuMap, CpuSchedule, cpu_calls, share
from lfopt.ir.names import one_line
from simulator.recount.network import RecountNetwork

# operators whose results may lie within other maps
WITHIN = frozenset(("Concat", "Gather", "Slice", "Split", "Transpose"))
MANY = 8  # rows that are looked at one by one whenever they are read
MOST_ROWS = 1 << 26  # that are followed: of all calls, operands and threads together
ALL = -1  # a map in memory as a whole, or a ring that all threads share


class _Wrong(Exception):
    """A condition that the schedule breaks; the message says which."""


def recount_threads(schedule: CpuSchedule, plan: Plan, graph: Graph) -> str:
    """Why a schedule does not make the results of the network, or "" if it does."""
    try:
        _ThreadWalk(schedule, plan, RecountNetwork(graph)).run()
    except _Wrong as error:
        return one_line(str(error))
    return ""


HeldPlace = tuple[str, str, int]  # holder, the map in it, whose ring it is or ALL
Touch = dict[int, int]  # call -> threads, as bits


@dataclass
class _RingTouch:
    """Which threads have touched a ring, and where it lies."""

    extent: Span  # bytes of its buffer
    touched: int = 0  # threads, as bits
    written: int = 0


@dataclass
class _Epoch:
    """Accesses since the last barrier."""

    writes: dict[HeldPlace, dict[int, Touch]] = field(default_factory=dict)  # by row, or slot of a ring
    reads: dict[HeldPlace, dict[int, Touch]] = field(default_factory=dict)
    # reads of many rows at once
    ranges: dict[HeldPlace, dict[tuple[int, int], Touch]] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # holders in memory -> threads
    touched: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    rings: dict[tuple[int, int, str], _RingTouch] = field(default_factory=dict)  # by group, buffer and holder


class _ThreadWalk:
    """Walk over the calls of all threads, group by group."""

    def __init__(self, schedule: CpuSchedule, plan: Plan, net: RecountNetwork) -> None:
        self.schedule = schedule
        self.plan = plan
        self.net = net
        self.threads = schedule.threads
        self.maps = {map_.name: map_ for map_ in schedule.maps}
        self.in_memory: dict[str, set[int]] = {}  # map in memory -> rows that have been written
        self.held: dict[str, set[str]] = defaultdict(set)  # the same maps by holder
        self.rings: dict[HeldPlace, dict[int, int]] = {}  # slot -> row
        # rows that were all there -> version of the place then
        self.complete: dict[tuple[HeldPlace, int, int], int] = {}
        # how often something was written there, or lost
        self.versions: dict[HeldPlace, int] = defaultdict(int)
        self.slots: dict[str, int] = {}  # of the group
        self.extents: dict[str, Span] = {}  # bytes of its rings
        self.group = CpuGroup(0, rings=False, why="", functions=(), sections=())
        self.idle: set[str] = set()  # operators, of all groups so far
        self.epoch = _Epoch()
        self.call = 0
        self.followed = 0
        self.over = self._overlaps()

    def run(self) -> None:
        """Follow all calls. Raises _Wrong."""
        net = self.net
        plan = self.plan
        if [group.id for group in self.schedule.groups] != [group.id for group in plan.groups]:
            raise _Wrong("groups: not those of the plan, in order")
        for name in net.graph.inputs:
            if name in self.maps:
                self._fill(name)
        for group, planned in zip(self.schedule.groups, plan.groups, strict=True):
            self.group = group
            places = planned.places if group.rings else ()
            self.slots = {place.name: place.slots for place in places}
            self.extents = {
                place.name: (place.address, place.address + place.slots * place.slot_bytes)
                for place in places
            }
            self._check_operators(planned.nodes)
            self.rings.clear()
            functions = {function.name: function for function in group.functions}
            for section in group.sections:
                if len(section.threads) not in (1, self.threads):
                    raise self._wrong(f"found a section of {len(section.threads)} threads")
                self._section([[*cpu_calls(nodes)] for nodes in section.threads], functions)
        if self.threads > 1 and self.epoch.writes:
            raise _Wrong("the last group does not end with a barrier")
        self.group = CpuGroup(len(plan.groups), rings=False, why="", functions=(), sections=())
        for name in sorted(net.stored):
            self._read(name, range(net.tensor(name).rows), ALL, self._all)

    # -- what there is ---------------------------------------------------------------------------------------

    @property
    def _all(self) -> int:
        return (1 << self.threads) - 1

    def _wrong(self, text: str) -> _Wrong:
        return _Wrong(f"group {self.group.id}: {text}")

    def _overlaps(self) -> dict[str, list[str]]:
        """Maps that lie in the same memory as another, by that.

        Raises _Wrong for holders that are not there, or too small.
        """
        overlapping: dict[str, list[str]] = defaultdict(list)
        for entry in self.maps.values():
            holder = self.maps.get(entry.holder)
            if (
                holder is None
                or holder.holder != holder.name
                or (holder.address, holder.bytes) != (entry.address, entry.bytes)
            ):
                raise _Wrong(
                    f"map {entry.name!r}: lies within {entry.holder!r}, which does not lie there by itself"
                )
            if entry.name not in self.net.graph.tensors:
                raise _Wrong(f"map {entry.name!r}: not of this network")
        roots = sorted(
            (m for m in self.maps.values() if m.holder == m.name and m.address >= 0), key=lambda m: m.address
        )
        active: list[CpuMap] = []
        for entry in roots:
            tensor = self.net.tensor(entry.name)
            if (self.schedule.element, tensor.dtype) == ("bf16", "float32"):
                size = 2
            else:
                size = np.dtype(tensor.dtype).itemsize
            if entry.bytes < tensor.elements * size:
                raise _Wrong(f"map {entry.name!r}: has {entry.bytes} bytes")
            active = [other for other in active if other.address + other.bytes > entry.address]
            for other in active:
                overlapping[other.name].append(entry.name)
                overlapping[entry.name].append(other.name)
            active.append(entry)
        return overlapping

    def _check_operators(self, nodes: Iterable[str]) -> None:
        computed = [name for function in self.group.functions for name in function.operators]
        # windows that hold only padding
        unread = {name for name in nodes if not any(self._is_read(result) for result in self.net.makes[name])}
        if sorted([*computed, *self.group.idle]) != sorted(
            name for name in nodes if name not in unread or name in computed or name in self.group.idle
        ):
            raise self._wrong("its functions and idle operators are not its operators, each once")
        for function in self.group.functions:
            for name in function.operators[:-1]:
                for result in self.net.makes[name]:
                    if result in self.net.stored or not {*self.net.readers[result]} <= {*function.operators}:
                        raise self._wrong(
                            f"{function.name}: others read {result!r} too, which it does not store"
                        )
        for name in self.group.idle:
            operator = self.net.operators[name]
            read = [r.map for r in self.net.reads[name]]
            inside, outside = (
                (read, self.net.makes[name]) if operator.kind == "Concat" else (self.net.makes[name], read)
            )
            holders = {self.maps[m].holder if m in self.maps else "" for m in (*inside, *outside)}
            if operator.kind not in WITHIN or len(holders) != 1 or not outside or "" in holders:
                raise self._wrong(
                    f"operator {name!r}: no function makes it, and what it makes does not lie within what it "
                    "reads, nor the other way round"
                )
            self.idle.add(name)

    def _is_read(self, name: str) -> bool:
        """Whether any row of a map is read, or the map is an output."""
        reads = (
            read for reader in self.net.readers[name] for read in self.net.reads[reader] if read.map == name
        )
        return name in self.net.stored or any(
            low <= high for read in reads for low, high in zip(read.first, read.last, strict=True)
        )

    # -- running ---------------------------------------------------------------------------------------------

    def _section(self, bodies: list[list[CpuCall | CpuBarrier]], functions: dict[str, CpuFunction]) -> None:
        together = len(bodies) == 1
        for thread, body in enumerate(bodies):
            for step in body:
                if isinstance(step, CpuBarrier):
                    if not together:
                        raise self._wrong("a thread waits where others do not")
                    self.epoch = _Epoch()
                elif step.function not in functions:
                    raise self._wrong(f"calls {step.function!r}, which is none of its functions")
                else:
                    self._call(
                        functions[step.function], step, None if together and self.threads > 1 else thread
                    )
        if not together:
            self.epoch = _Epoch()

    def _call(self, function: CpuFunction, step: CpuCall, thread: int | None) -> None:
        """Follow a call of one thread; None: of all."""
        self.call += 1
        rows = self.net.height(function.operators[-1])
        span = step.rows
        if not 0 <= span[0] <= span[1] <= rows or (function.makes == "map" and span != (0, rows)):
            raise self._wrong(f"{function.name}: found rows {span[0]}:{span[1]}; it has {rows}")
        if thread is not None:
            if function.split or step.shared:
                raise self._wrong(f"{function.name}: a thread that runs alone makes only a part of it")
            self._make(function, span, 1 << thread, thread)
        elif function.split != step.shared:
            for k, part in (
                [(ALL, span)]
                if function.split
                else [(k, share(span, k, self.threads)) for k in range(self.threads)]
            ):
                self._make(function, part, self._all if k == ALL else 1 << k, ALL)
        else:
            raise self._wrong(f"{function.name}: every thread makes all of it")

    def _make(self, function: CpuFunction, span: Span, threads: int, own: int) -> None:
        """Rows of what a function ends with.

        `own`: the thread whose own rings are meant where the group has such.
        """
        net = self.net
        inside = {m for name in function.operators[:-1] for m in net.makes[name]}
        reads = [read for name in function.operators for read in net.reads[name] if read.map not in inside]
        results = net.makes[function.operators[-1]]
        row_by_row = any(self._in_ring(m) for m in (*(read.map for read in reads), *results))
        for first, stop in (
            [span] if function.makes == "map" or not row_by_row else [(r, r + 1) for r in range(*span)]
        ):  # rows of rings come one by one
            for read in reads:
                part = slice(None) if function.makes == "map" else slice(first, stop)
                self._read(read.map, _needed(read.first[part], read.last[part]), own, threads)
            for result in results:
                self._write(result, range(first, min(stop, net.tensor(result).rows)), own, threads)

    def _place(self, name: str, own: int) -> HeldPlace:
        """Holder of a map, and the thread whose ring it is."""
        entry = self.maps.get(name)
        if entry is None:
            raise self._wrong(f"map {name!r} lies nowhere")
        if entry.address >= 0:
            return entry.holder, name, ALL
        if entry.holder not in self.slots:
            raise self._wrong(f"map {name!r} lies in ring {entry.holder!r}, which the group does not have")
        return entry.holder, name, own if entry.holder in self.group.own or name in self.group.own else ALL

    def _in_ring(self, name: str) -> bool:
        return name in self.maps and self.maps[name].address < 0

    def _write(self, name: str, rows: range, own: int, threads: int) -> None:
        place = self._place(name, own)
        slots = self.slots[place[0]] if self._in_ring(name) else 0
        if slots:
            self._touch_ring(place, threads, write=True)
        else:
            self._touch(place, threads, write=True)
        for row in rows:
            if slots:
                self.rings.setdefault(place, {})[row % slots] = row
            else:
                self.in_memory.setdefault(name, set()).add(row)
                self.held[place[0]].add(name)
            self._note_write(place, row % slots if slots else row, threads)
        self.versions[place] += 1
        self._count(len(rows))

    def _read(self, name: str, rows: range, own: int, threads: int) -> None:
        """Read rows of a map; where an idle operator makes it, those of its operands."""
        if not rows:
            return
        maker = self.net.maker.get(name)
        if maker in self.idle:
            for read in self.net.reads[maker]:
                part = slice(rows.start, rows.stop)
                self._read(read.map, _needed(read.first[part], read.last[part]), own, threads)
            return
        place = self._place(name, own)
        slots = self.slots[place[0]] if self._in_ring(name) else 0
        if slots:
            self._touch_ring(place, threads, write=False)
        else:
            self._touch(place, threads, write=False)
        key = (place, rows.start, rows.stop)
        if len(rows) <= MANY or self.complete.get(key) != self.versions[place]:
            self._count(len(rows))
            self._check(place, rows, slots)
            self.complete[key] = self.versions[place]
        if self.threads > 1:
            self._note_read(place, [row % slots for row in rows] if slots else rows, threads)

    def _check(self, place: HeldPlace, rows: range, slots: int) -> None:
        """Raises _Wrong unless these rows of a map are present."""
        name = place[1]
        held = self.rings.get(place, {})
        written = self.in_memory.get(place[1], set[int]())
        for row in rows:
            if slots and held.get(row % slots) != row:
                raise self._wrong(
                    f"map {name!r}, row {row}: read from its ring, which holds row "
                    f"{held.get(row % slots, 'none')} there"
                )
            if not slots and row not in written:
                raise self._wrong(f"map {name!r}, row {row}: read, but it is not there")

    # -- threads ---------------------------------------------------------------------------------------------

    def _touch(self, place: HeldPlace, threads: int, *, write: bool) -> None:
        """Note an access to a map in memory; a write ends the maps that overlap it.

        Raises _Wrong where another thread uses the same memory.
        """
        holder, name, _ = place
        for other in self.over.get(holder, ()):
            for lost in self.held.pop(other, ()) if write else ():
                del self.in_memory[lost]
                self.versions[other, lost, ALL] += 1
            if _several((self.epoch.touched if write else self.epoch.written)[other], threads):
                raise self._wrong(
                    f"map {name!r}: a thread meets another one in map {other!r}, "
                    "which lies in the same memory"
                )
        self.epoch.touched[holder] |= threads
        if write:
            self.epoch.written[holder] |= threads

    def _touch_ring(self, place: HeldPlace, threads: int, *, write: bool) -> None:
        """Note an access to a ring. Raises _Wrong where another thread uses the same bytes of the buffer."""
        if self.threads == 1:
            return
        holder, name, own = place
        buffer = max(own, 0)  # the first thread's own buffer is the one that all share
        start, stop = self.extents[holder]
        key = self.group.id, buffer, holder
        for other, ring in self.epoch.rings.items():
            if other == key or other[1] != buffer or ring.extent[0] >= stop or start >= ring.extent[1]:
                continue
            if _several(ring.touched if write else ring.written, threads):
                raise self._wrong(
                    f"map {name!r}: a thread meets another one in ring {other[2]!r} of group {other[0]}, "
                    "which lies in the same bytes"
                )
        ring = self.epoch.rings.setdefault(key, _RingTouch((start, stop)))
        ring.touched |= threads
        if write:
            ring.written |= threads

    def _meet(self, place: HeldPlace, row: int, before: Touch | None, threads: int) -> None:
        """Raises _Wrong for a data race: another thread touched the row since the last barrier."""
        for call, others in before.items() if before else ():
            if call != self.call and _several(others, threads):
                raise self._wrong(
                    f"map {place[1]!r}, row or slot {row}: two threads reach it without a barrier between"
                )

    def _note_write(self, place: HeldPlace, row: int, threads: int) -> None:
        if self.threads == 1:
            return
        writes = self.epoch.writes.setdefault(place, {}).setdefault(row, {})
        self._meet(place, row, writes, threads)
        self._meet(place, row, self.epoch.reads.get(place, {}).get(row), threads)
        for (first, stop), before in self.epoch.ranges.get(place, {}).items():
            if first <= row < stop:
                self._meet(place, row, before, threads)
        writes[self.call] = writes.get(self.call, 0) | threads

    def _note_read(self, place: HeldPlace, rows: Sequence[int], threads: int) -> None:
        if writes := self.epoch.writes.get(place):
            for row in rows:
                self._meet(place, row, writes.get(row), threads)
        if len(rows) > MANY:
            notes = [self.epoch.ranges.setdefault(place, {}).setdefault((min(rows), max(rows) + 1), {})]
        else:
            reads = self.epoch.reads.setdefault(place, {})
            notes = [reads.setdefault(row, {}) for row in rows]
        for note in notes:
            note[self.call] = note.get(self.call, 0) | threads

    def _fill(self, name: str) -> None:
        self.in_memory[name] = {*range(self.net.tensor(name).rows)}
        self.held[self.maps[name].holder].add(name)

    def _count(self, rows: int) -> None:
        self.followed += rows
        if self.followed > MOST_ROWS:
            raise _Wrong(f"more than {MOST_ROWS:,} rows are read and written: they are not followed")


def _several(before: int, now: int) -> bool:
    """Whether memory touched before is not touched now by that one thread alone; threads as bits."""
    together = before | now
    return before > 0 and together & (together - 1) > 0


def _needed(first: tuple[int, ...], last: tuple[int, ...]) -> range:
    """Hull of the rows of an operand that rows of a result read, given the first and last row of each."""
    low = min(first, default=0)
    high = max(last, default=-1)
    return range(low, max(high + 1, low))
