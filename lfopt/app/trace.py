"""Timelines of plans for Perfetto and chrome://tracing: loads, computations, stores, and buffer occupancy.

Source: Trace Event Format, Google: phases X (complete), C (counter), M (metadata); `ts` and `dur` in
microseconds. Perfetto keeps whole nanoseconds, so both ends of an event are rounded to them; `args.cycles` is
exact.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from codegen.accel import origins
from hw_rtl.run import CommandTime, RunResult
from lfopt.app.files import path_of, write_text
from lfopt.app.screen import err, shown
from lfopt.ir import (
    Carry,
    Compute,
    Graph,
    GroupReport,
    Hardware,
    InvalidPlan,
    Origin,
    Plan,
    PlannedGroup,
    Report,
    Step,
    Store,
    step_count,
)
from lfopt.ir.names import span
from lfopt.isa.tables import Opcode, Queue
from lfopt.ops import Dataflow
from lfopt.planning import MODES
from simulator.model.occupancy import lives
from simulator.model.timing import Accelerator, Ran

Event = dict[str, Any]
MOST_EVENTS = 200_000  # about 40 MB
GROUPS, LOADS, COMPUTATION, STORES = range(4)  # tracks of a process, from above
TRACKS = {GROUPS: "groups", LOADS: "loads", COMPUTATION: "computation", STORES: "stores"}
TRACK_OF_QUEUE = (LOADS, STORES, COMPUTATION)
VERBS = ("load", "store")
# in the order in which Ran.queue counts them
QUEUES = {Opcode.LOAD: Queue.LOAD, Opcode.STORE: Queue.STORE, Opcode.EXEC: Queue.EXEC}
MODEL, RTL = 1, 2  # processes
BUFFER = "buffer, bytes in use"
COUNTERS: dict[Store, str] = {"buffer": BUFFER, "weight buffer": "weight buffer, bytes in use"}
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
class EventTrace:
    """Events of processes (the model, the hardware) under one clock."""

    clock: Clock
    events: list[Event] = field(default_factory=list[Event])
    said: dict[str, Any] = field(default_factory=dict[str, Any])  # of the trace as a whole

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
        self.events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": tid,
                **times,
                "name": name,
                "cat": category,
                "args": {"cycles": end - begin, **args},
            }
        )

    def count(self, pid: int, name: str, at: int, **series: float) -> None:
        """The value of a counter from this cycle on."""
        self.events.append(
            {"ph": "C", "pid": pid, "tid": 0, "ts": self.clock.at(at), "name": name, "args": series}
        )

    def text(self) -> str:
        """JSON, an event a line."""
        head = json.dumps({"displayTimeUnit": "ns", "otherData": self.said})[:-1]
        return (
            head
            + ', "traceEvents": [\n'
            + ",\n".join(json.dumps(event, separators=(",", ":")) for event in self.events)
            + "\n]}\n"
        )


class LeftOut(NamedTuple):
    """Groups of which a trace has a bar and nothing more. In RTL: those whose commands are not named."""

    groups: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        named = ", ".join(map(str, self.groups[:8])) + (
            f" and {len(self.groups) - 8} more" if self.groups[8:] else ""
        )
        return f"commands of {'group' if len(self.groups) == 1 else 'groups'} {named}: {self.why}"


def write_trace(path: Path, trace: EventTrace, left: Sequence[LeftOut]) -> None:
    """Write it, and say on stderr where, and what it lacks."""
    write_text(path_of(path, "--trace"), trace.text())
    err.print(
        f"[dim]wrote[/] {shown(path)}: {len(trace.events):,} events, to open in ui.perfetto.dev",
        soft_wrap=True,
    )
    for line in left:
        err.print(f"note: left out: {shown(line)}", style="yellow", soft_wrap=True)


def model_trace(
    plan: Plan, graph: Graph, report: Report, *, only: int | None = None, most: int = MOST_EVENTS
) -> tuple[EventTrace, list[LeftOut]]:
    """What the cycle model says of a plan, or of one of its groups, and what is left out of it.

    Groups overlap as the model has it: a bar begins where the one before it ends. Where it does not know all
    of their commands, or shows one group alone, each begins on an idle chip. Inside the bars there are up to
    `most` events: those of the groups that run first.
    """
    hardware = plan.hardware
    trace = EventTrace(Clock(hardware.clock_hz))
    trace.said = {
        "model": report.model,
        "from": "cycle model of lfopt",
        "clock_hz": hardware.clock_hz,
        "buffer_bytes": hardware.buffer_bytes,
    }
    trace.said["time"] = "ts and dur are microseconds: cycles / clock_hz"
    trace.process(MODEL, f"{report.model}, model", TRACKS)
    flow = Dataflow.of(graph)
    accelerator = Accelerator(flow, hardware, plan.read_through)
    drawing = _Drawing(trace, MODEL, flow, hardware, most)
    shown = [
        pair
        for pair in zip(plan.groups, report.groups, strict=True)
        if only in (None, pair[0].id) and MODES[pair[0].mode].counted
    ]
    together = None
    if not any(_untimed(figures) for _, figures in shown):
        together = accelerator.commands((group.steps, group.places) for group, _ in shown)
    begin = 0
    for group, figures in shown:
        ran = [] if together is None else next(together)
        end = begin + figures.cycles.total if together is None else max([begin, *(one.done for one in ran)])
        drawing.bar(
            figures,
            begin,
            end,
            timing=figures.cycles.timing,
            dma_cycles=figures.cycles.dma,
            compute_cycles=figures.cycles.compute,
        )
        if why := _untimed(figures):
            drawing.missing(why, group)
        elif step_count(group.steps) > drawing.room:
            drawing.missing(FULL, group)
        else:
            alone = [] if together is not None else next(accelerator.commands([(group.steps, group.places)]))
            drawing.inside(group, ran or [_later(one, begin) for one in alone])
        begin = end
    return trace, drawing.finish()


def rtl_trace(
    plan: Plan, graph: Graph, report: Report, done: RunResult, *, most: int = MOST_EVENTS
) -> tuple[EventTrace, list[LeftOut]]:
    """What the accelerator did with a plan, below what the cycle model says of it; and what is left out.

    The program has commands in the order in which steps were encoded, queue by queue: so they have names. A
    command is shown from the end of the one before it in its queue on, so that a queue's bars are the cycles
    in which it works. Groups overlap: a bar begins where the one before it ends. Raises InvalidPlan for the
    run of another program.
    """
    trace, left = model_trace(plan, graph, report, most=most)
    trace.said["from"] = "cycle model of lfopt, and the accelerator in RTL"
    trace.process(RTL, f"{report.model}, RTL", TRACKS)
    drawing = _Drawing(trace, RTL, Dataflow.of(graph), plan.hardware, most)
    planned = [*origins(plan, graph)]
    counts = Counter(opcode for _, commands in planned for _, _, opcode in commands)
    ran = {opcode: [one for one in done.commands if one.queue is queue] for opcode, queue in QUEUES.items()}
    if any(
        len(queue) > counts[opcode] or (done.failure is None and len(queue) < counts[opcode])
        for opcode, queue in ran.items()
    ):
        raise InvalidPlan(
            f"the program ran {len(done.commands):,} commands; accepted: the {counts.total():,} of its plan, "
            "to name them in a trace"
        )
    clocks = {opcode: _in_turn(queue) for opcode, queue in ran.items()}
    before = 0
    for (group, commands), figures in zip(planned, report.groups, strict=True):
        timed = [
            Ran([*QUEUES].index(opcode), number, step, **times)
            for step, number, opcode in commands
            if (times := next(clocks[opcode], None)) is not None
        ]
        if not timed:
            continue
        end = max(one.end for one in timed)
        first = max(min(one.begin for one in timed), before)
        drawing.bar(figures, first, max(end, first), timing="measured")
        if len(timed) == len(commands):
            drawing.inside(group, timed)
        else:
            drawing.missing("the run stopped in it", group)
        before = max(end, first)
    return trace, left + drawing.finish()


def _in_turn(queue: Iterable[CommandTime]) -> Iterator[dict[str, int]]:
    """Times of each command in turn, as fields of a Ran."""
    before = 0
    for one in queue:
        yield {"start": one.start, "begin": max(one.start, before), "end": one.end, "done": one.end}
        before = one.end


def _later(one: Ran, cycles: int) -> Ran:
    return one._replace(
        start=one.start + cycles, begin=one.begin + cycles, end=one.end + cycles, done=one.done + cycles
    )


def _untimed(figures: GroupReport) -> str:
    """Why the model has no times of a group's commands; nothing where it has."""
    if figures.by_formula:
        return f"no steps, {figures.by_formula}"
    if figures.cycles.timing != "exact":
        return f"so many steps that the model times some of them ({figures.cycles.timing})"
    return ""


class _Drawing:
    """A plan's groups as they go into one process of a trace."""

    def __init__(self, trace: EventTrace, pid: int, flow: Dataflow, hardware: Hardware, most: int) -> None:
        self.trace = trace
        self.pid = pid
        self.flow = flow
        self.hardware = hardware
        self.room = most
        self.origins: Mapping[str, Origin] = {operator.name: operator.origin for operator in flow.operators}
        # changes of the bytes in use, by cycle
        self.changes: dict[Store, Counter[int]] = {store: Counter[int]() for store in hardware.stores}
        self.left: dict[str, list[int]] = {}  # groups, by why they are left out

    def missing(self, why: str, group: PlannedGroup) -> None:
        self.left.setdefault(why, []).append(group.id)

    def bar(self, figures: GroupReport, begin: int, end: int, **more: object) -> None:
        facts = {
            "operators": len(figures.nodes),
            "dram_bytes": figures.dram.total,
            "buffer_bytes": figures.allocated_bytes,
            **more,
        }
        self.trace.run(
            self.pid, GROUPS, f"{figures.id} {span(figures.nodes)}", figures.mode, begin, end, **facts
        )

    def inside(self, group: PlannedGroup, ran: Sequence[Ran]) -> None:
        """Commands of a group, if there is room for them."""
        changes = _held(group, self.flow, self.hardware, ran)
        events = len(ran) + sum(map(len, changes.values()))
        if events > self.room:
            self.missing(FULL, group)
            return
        self.room -= events
        for store, levels in changes.items():
            self.changes[store].update(levels)
        for one in ran:
            self._command(group, one)

    def _command(self, group: PlannedGroup, one: Ran) -> None:
        args: dict[str, object] = {
            "group": group.id,
            "step": one.number,
            "ready": one.start,
            "done": one.done,
        }
        if isinstance(one.step, Compute):
            name = one.step.operator
            category = "compute"
            args |= {
                "box": one.step.boxes,
                **{key: value for key, value in self.origins[name]._asdict().items() if value},
            }
        elif isinstance(one.step, Carry):
            name = f"carry {one.step.tensor}"
            category = "carry"
            args["box"] = one.step.box
        else:
            name = f"{VERBS[one.step.store]} {one.step.tensor}"
            category = one.step.kind
            args |= {"bytes": one.step.bytes, "box": one.step.box}
        self.trace.run(self.pid, TRACK_OF_QUEUE[one.queue], name, category, one.begin, one.end, **args)

    def finish(self) -> list[LeftOut]:
        """Write a counter for each buffer, and say what is not there."""
        for store, changes in self.changes.items():
            held = 0
            for at in sorted(at for at, change in changes.items() if change):
                held += changes[at]
                self.trace.count(self.pid, COUNTERS[store], at, bytes=held)
        left = [LeftOut(tuple(groups), why) for why, groups in self.left.items()]
        self.trace.said.setdefault("left_out", []).extend(map(str, left))
        return left


def _held(
    group: PlannedGroup, flow: Dataflow, hardware: Hardware, ran: Sequence[Ran]
) -> dict[Store, Counter[int]]:
    """Changes of the bytes in use, by buffer and cycle.

    A slot is taken when what fills it may start, and free once the last that needs it ends.
    """
    # (start, end) in cycles, by number and identity of a step
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    steps: list[Step] = []
    for one in ran:
        key = one.number, id(one.step)
        if key not in spans:
            steps.append(one.step)
        start, end = spans.get(key, (one.start, one.end))
        spans[key] = min(start, one.start), max(end, one.end)
    times = [*spans.values()]
    changes: dict[Store, Counter[int]] = {store: Counter[int]() for store in hardware.stores}
    for number, first, last in lives(group, flow, hardware, steps).tolist():
        place = group.places[number]
        changed = changes[hardware.store_of(place.purpose)]
        changed[times[first][0]] += place.slot_bytes
        changed[times[last][1]] -= place.slot_bytes
    return changes
