"""A plan as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show: when loads, computations and stores run, and how full the buffer is.

Source: Trace Event Format, Google: phases X (complete), C (counter), M (metadata); `ts` and `dur` in microseconds. Perfetto keeps whole nanoseconds,
so both ends of an event are rounded to them; `args.cycles` is exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lfopt.ir import Compute, Graph, GroupReport, Hardware, Plan, PlannedGroup, Report, step_count
from lfopt.ops import Dataflow
from lfopt.planning import MODES
from simulator.occupancy import lives
from simulator.timing import WALKED, Accelerator, Ran

Event = dict[str, Any]
MOST_EVENTS = 200_000  # about 40 MB
GROUPS, LOADS, COMPUTATION, STORES = range(4)  # tracks of a process, from above
TRACKS = {GROUPS: "groups", LOADS: "loads", COMPUTATION: "computation", STORES: "stores"}
TRACK_OF_QUEUE = (LOADS, STORES, COMPUTATION)
VERBS = ("load", "store")
BUFFER = "buffer, bytes in use"
FULL = "the limit of events"


@dataclass(frozen=True, slots=True)
class Clock:
    """From cycles to the times of a trace."""

    hz: float

    def nanoseconds(self, cycles: int) -> int:
        """Rounded, so that what ends where another begins still does."""
        return round(cycles * 1e9 / self.hz)

    def at(self, cycles: int) -> float:
        """`ts` of an event."""
        return self.nanoseconds(cycles) / 1000

    def between(self, begin: int, end: int) -> float:
        """`dur` of an event."""
        return (self.nanoseconds(end) - self.nanoseconds(begin)) / 1000


@dataclass(slots=True)
class Trace:
    """Events of processes (the model, the hardware) under one clock."""

    clock: Clock
    events: list[Event] = field(default_factory=list[Event])
    said: dict[str, object] = field(default_factory=dict[str, object])  # of the trace as a whole

    def process(self, pid: int, name: str, tracks: dict[int, str]) -> None:
        """Name a process and its tracks."""
        self._meta(pid, 0, "process_name", name=name)
        self._meta(pid, 0, "process_sort_index", sort_index=pid)
        for tid, track in tracks.items():
            self._meta(pid, tid, "thread_name", name=track)
            self._meta(pid, tid, "thread_sort_index", sort_index=tid)

    def _meta(self, pid: int, tid: int, what: str, **args: object) -> None:
        self.events.append({"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": what, "args": args})

    def run(self, pid: int, tid: int, name: str, category: str, begin: int, end: int, **args: object) -> None:
        """Something that takes from one cycle to another."""
        times = {"ts": self.clock.at(begin), "dur": self.clock.between(begin, end)}
        self.events.append({"ph": "X", "pid": pid, "tid": tid, **times, "name": name, "cat": category, "args": {"cycles": end - begin, **args}})

    def count(self, pid: int, name: str, at: int, **series: float) -> None:
        """The value of a counter from this cycle on."""
        self.events.append({"ph": "C", "pid": pid, "tid": 0, "ts": self.clock.at(at), "name": name, "args": series})

    def text(self) -> str:
        """JSON, an event a line."""
        head = json.dumps({"displayTimeUnit": "ns", "otherData": self.said})[:-1]
        return head + ', "traceEvents": [\n' + ",\n".join(json.dumps(event, separators=(",", ":")) for event in self.events) + "\n]}\n"


class LeftOut(NamedTuple):
    """Groups of which a trace has a bar and nothing more."""

    groups: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        named = ", ".join(map(str, self.groups[:8])) + (f" and {len(self.groups) - 8} more" if self.groups[8:] else "")
        return f"commands of {'group' if len(self.groups) == 1 else 'groups'} {named}: {self.why}"


def model_trace(plan: Plan, graph: Graph, report: Report, *, only: int | None = None, most: int = MOST_EVENTS) -> tuple[Trace, list[LeftOut]]:
    """What the cycle model says of a plan, or of one of its groups, and what is left out of it.

    Groups follow one another, a bar each. Inside the bars there are up to `most` events: those of the groups that run first.
    """
    hardware = plan.hardware
    trace = Trace(Clock(hardware.clock_hz))
    trace.said = {"model": report.model, "from": "cycle model of lfopt", **_chip(hardware)}
    trace.process(1, f"{report.model}, model", TRACKS)
    flow = Dataflow.of(graph)
    accelerator = Accelerator(flow, hardware)
    missing: dict[str, list[int]] = {}
    begin, room = 0, most
    for group, found in zip(plan.groups, report.groups, strict=True):
        if only not in (None, group.id) or not MODES[group.mode].counted:
            continue
        end = begin + found.cycles.total
        _add_bar(trace, found, begin, end)
        why, inside = _unseen(group, found, room), Trace(trace.clock)
        if not why:
            _add_commands(inside, flow, accelerator, group, begin)
            why = FULL if len(inside.events) > room else ""
        if why:
            missing.setdefault(why, []).append(group.id)
        else:
            trace.events += inside.events
            room -= len(inside.events)
        begin = end
    left = [LeftOut(tuple(groups), why) for why, groups in missing.items()]
    trace.said["left_out"] = [str(line) for line in left]
    return trace, left


def _chip(hardware: Hardware) -> dict[str, object]:
    return {"clock_hz": hardware.clock_hz, "buffer_bytes": hardware.buffer_bytes, "time": "ts and dur are microseconds: cycles / clock_hz"}


def _unseen(group: PlannedGroup, found: GroupReport, room: int) -> str:
    """Why a group has no commands in the trace; nothing where it has."""
    steps = step_count(group.steps)
    if found.by_formula:
        return f"no steps, {found.by_formula}"
    if steps > WALKED:
        return f"more than {WALKED:,} steps, of which the model times some"
    return "" if steps <= room else FULL


def _add_bar(trace: Trace, found: GroupReport, begin: int, end: int) -> None:
    span = found.nodes[0] if len(found.nodes) == 1 else f"{found.nodes[0]} .. {found.nodes[-1]}"
    busy = {"dma_cycles": found.cycles.dma, "compute_cycles": found.cycles.compute, "timing": found.cycles.timing}
    facts = {"operators": len(found.nodes), "dram_bytes": found.dram.total, "buffer_bytes": found.allocated_bytes, **busy}
    trace.run(1, GROUPS, f"{found.id} {span}", found.mode, begin, end, **facts)


def _add_commands(trace: Trace, flow: Dataflow, accelerator: Accelerator, group: PlannedGroup, begin: int) -> None:
    origins = {operator.name: operator.origin for operator in flow.operators}
    ran = [*accelerator.commands(group.steps, group.places)]
    for one in ran:
        args: dict[str, object] = {"group": group.id, "step": one.number, "ready": begin + one.start, "done": begin + one.done}
        if isinstance(one.step, Compute):
            name, category = one.step.operator, "compute"
            args |= {"box": one.step.boxes, **{key: value for key, value in origins[name]._asdict().items() if value}}
        else:
            name, category = f"{VERBS[one.step.store]} {one.step.tensor}", one.step.kind
            args |= {"bytes": one.step.bytes, "box": one.step.box}
        trace.run(1, TRACK_OF_QUEUE[one.queue], name, category, begin + one.begin, begin + one.end, **args)
    for at, size in _held(group, flow, ran):
        trace.count(1, BUFFER, begin + at, bytes=size)


def _held(group: PlannedGroup, flow: Dataflow, ran: Sequence[Ran]) -> Iterator[tuple[int, int]]:
    """(cycle, bytes): a slot is taken when the command that fills it may start, and free once the last one that needs it has read it."""
    taken: dict[int, int] = {}  # per step
    freed: dict[int, int] = {}
    for one in ran:
        taken[one.number] = min(taken.get(one.number, one.start), one.start)
        freed[one.number] = max(freed.get(one.number, 0), one.end)
    changes: dict[int, int] = {}
    for place, first, last in lives(group, flow):
        for at, sign in ((taken[first], 1), (freed[last], -1)):
            changes[at] = changes.get(at, 0) + sign * group.places[place].slot_bytes
    held = 0
    for at in sorted(changes):
        if changes[at]:
            held += changes[at]
            yield at, held
