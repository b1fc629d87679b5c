"""Cycles of schedules on the accelerator that a Hardware describes: a model, command by command.

Steps become commands (`simulator.model.engines`), which wait in three queues (`simulator.model.queues`):
loads, stores, computations.

    queues         a command enters its queue dispatch_cycles after the one before it in the program, once
                   less than queue_depth of the same queue are unfinished

    the program    is fetched through the port of loads, instruction_bytes for each step as it is written:
                   those of a loop once. It is fetched ahead

    groups         follow one another in the queues: one begins while the one before it ends, but for what
                   needs the same bytes of the buffer, or of the stores of parameters (see
                   `simulator.model.parameters`), or maps in DRAM that are not stored yet

Not modelled: a store to the second level that waits for loads of what lay there before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from lfopt.ir import Carry, Compute, Cycles, Loop, Node, Place, Step, Transfer, leaves, unfold
from simulator.model.engines import Engines
from simulator.model.iterations import summed
from simulator.model.queues import Queues, Timeline, latency

WALKED = 50_000  # commands of a plan, or of a group by itself, that are timed one by one: some three seconds
AHEAD = 48  # computations of a group that are looked at to see how it begins
KEPT = 2  # ways of a group that are followed


GroupSchedule = tuple[Sequence[Node], Sequence[Place]]  # of a group


class Ran(NamedTuple):
    """One command of a schedule, in cycles from its beginning.

    Between `begin` and `end` it holds its channel or the compute engine, alone.
    """

    queue: int  # 0 loads, 1 stores, 2 computes
    number: int  # of its step, among all that run
    step: Step  # a transfer, or what of a computation is one command
    start: int  # when nothing keeps it waiting: its operands are there, and room for its results
    begin: int
    end: int
    done: int  # when its results are there


class Accelerator(Engines):
    """Timing of schedules on the accelerator."""

    def time(self, nodes: Sequence[Node], places: Sequence[Place], walked: int = WALKED) -> Cycles:
        """Cycles of a schedule.

        Up to `walked` commands are timed one by one. Of more, loops are cut short to so many and to half as
        many iterations; what the longer run takes beyond the shorter one, against what its steps take one
        after the other, holds for all further iterations.
        """
        if self.command_count(nodes) <= walked:
            done = self._queues([(nodes, places)])
            shared = self._shared(nodes)
            return Cycles(max(*done.busy[:2], shared), done.busy[2], max(done.line.end, shared))
        iterations = 4
        while self.command_count(shortened(nodes, 2 * iterations)) <= walked:
            iterations *= 2
        some = shortened(nodes, iterations // 2)
        more = shortened(nodes, iterations)
        dma, compute = self.busy(nodes)
        if self.command_count(more) > 4 * walked:
            return Cycles(
                dma, compute, max(dma, compute) if self.hardware.overlap else dma + compute, "formula"
            )
        first = self.timeline(some, places).end
        second = self.timeline(more, places).end
        work_first = self._serial(some)
        work_second = self._serial(more)
        rest = (self._serial(nodes) - work_second) * Fraction(
            second - first, max(work_second - work_first, 1)
        )
        return Cycles(dma, compute, max(second + round(rest), dma, compute), "extrapolated")

    def timeline(self, nodes: Sequence[Node], places: Sequence[Place]) -> Timeline:
        """Start and end of every command of a schedule."""
        return self._queues([(nodes, places)]).line

    def commands(self, groups: Iterable[GroupSchedule]) -> Iterator[list[Ran]]:
        """Per group, its commands in program order with start and end; groups overlap as in `in_a_row`."""
        queues = Queues(self.flow, self._index, self.hardware, self.accesses)
        for nodes, places in groups:
            queues.begin(nodes, places)
            ran: list[Ran] = []
            for number, step in enumerate(_fetched(queues, nodes)):
                for command, cycles in self._run(queues, step):
                    queue = int(command.store) if isinstance(command, Transfer) else 2
                    start, done = queues.line[queue][-1]
                    end = queues.ended if queue == 2 else done
                    ran.append(Ran(queue, number, command, start, end - cycles, end, done))
            yield ran

    def in_a_row(self, groups: Iterable[GroupSchedule]) -> int:
        """Cycles of the schedules of groups in sequence, where each may overlap with those before it."""
        return self._queues(groups).line.end

    def soonest(
        self, choices: Sequence[Sequence[GroupSchedule]], late: Callable[[], bool]
    ) -> tuple[list[int], int] | None:
        """(per group, position of the schedule to take; cycles of all in sequence); None once it is `late`.

        `choices`: alternative schedules of each group. Beam search: group by group, the KEPT schedules are
        followed whose first AHEAD computations are done soonest, each after the schedule of the group before
        that is best for it.
        """
        first = Queues(self.flow, self._index, self.hardware, self.accesses)
        followed: list[tuple[Queues, list[int]]] = [(first, [])]
        for choice in choices:
            if late():
                return None
            ends = [
                [self._walk(queues.ahead(), *way, computations=AHEAD) for queues, _ in followed]
                for way in choice
            ]
            kept = sorted(range(len(choice)), key=lambda k: min(ends[k]))[:KEPT]
            forks: list[tuple[Queues, list[int]]] = []
            for k in kept:
                queues, choices_made = followed[ends[k].index(min(ends[k]))]
                forks.append((queues.ahead(), [*choices_made, k]))
                self._walk(forks[-1][0], *choice[k])
            followed = forks
        queues, choices_made = min(followed, key=lambda one: one[0].line.end)
        return choices_made, queues.line.end

    def _queues(self, groups: Iterable[GroupSchedule]) -> Queues:
        queues = Queues(self.flow, self._index, self.hardware, self.accesses)
        for nodes, places in groups:
            self._walk(queues, nodes, places)
        return queues

    def _walk(
        self, queues: Queues, nodes: Sequence[Node], places: Sequence[Place], computations: int | None = None
    ) -> int:
        """Run a group, or its first `computations` computations; the cycle in which they are done."""
        queues.begin(nodes, places)
        for step in _fetched(queues, nodes):
            deque(self._run(queues, step), maxlen=0)
            if (
                computations is not None
                and isinstance(step, Compute)
                and (computations := computations - 1) <= 0
            ):
                break
        return queues.line.end

    def _run(self, queues: Queues, step: Step) -> Iterator[tuple[Step, int]]:
        """Issue a step: its commands in order, and the cycles of each."""
        if isinstance(step, Transfer):
            cycles = self.cycles(step)
            queues.transfer(step, cycles)
            yield step, cycles
        elif isinstance(step, Carry):
            cycles = self.cycles(step)
            queues.carry(step, cycles)
            yield step, cycles
        else:
            for part, command in self.issued(step):
                queues.compute(part, command)
                yield part, command.cycles

    def busy(self, nodes: Sequence[Node]) -> tuple[int, int]:
        """(cycles of the busiest DRAM channel, or of DRAM itself; cycles of the compute engine).

        Iterations of a loop are counted as in `summed`.
        """
        loads = summed(nodes, lambda step: self.cycles(step) if _through_port(step, store=False) else 0)
        stores = summed(nodes, lambda step: self.cycles(step) if _through_port(step, store=True) else 0)
        return max(loads, stores, self._shared(nodes)), self.computing(nodes)

    def computing(self, nodes: Sequence[Node]) -> int:
        """Cycles of the compute engine."""
        return summed(nodes, lambda step: 0 if isinstance(step, Transfer) else self.cycles(step))

    def _shared(self, nodes: Sequence[Node]) -> int:
        """Cycles of DRAM for all transfers in sequence; 0 if it is as fast as both channels of the port."""
        if self.hardware.dram_bytes_per_second is None:
            return 0
        return summed(
            nodes,
            lambda step: self.dram_cycles(step) if isinstance(step, Transfer) and step.kind != "l2" else 0,
        )

    def _serial(self, nodes: Sequence[Node]) -> int:
        """Cycles of the schedule without any overlap of commands."""
        return summed(nodes, self._alone)

    def _alone(self, step: Step) -> int:
        """Cycles of a step by itself, from when it is issued until its results are there."""
        hardware = self.hardware
        if isinstance(step, Transfer):
            return self.cycles(step) + latency(step, hardware)
        if isinstance(step, Carry):
            return self.cycles(step) + hardware.start_cycles + hardware.drain_cycles
        parts = [self.command(part) for part in self.split(step)]
        return sum(part.cycles + part.fill + hardware.start_cycles + hardware.drain_cycles for part in parts)


def _through_port(step: Step, *, store: bool) -> bool:
    """Whether a step is a load from DRAM, or a store to it."""
    return isinstance(step, Transfer) and step.kind != "l2" and step.store == store


def _fetched(queues: Queues, nodes: Sequence[Node]) -> Iterator[Step]:
    """Steps of a schedule in the order of execution, each part of the program fetched before them."""
    for node in nodes:
        queues.fetch(sum(1 for _ in leaves((node,))))
        yield from unfold((node,))


def shortened(nodes: Sequence[Node], iterations: int) -> tuple[Node, ...]:
    """The schedule with loops of at most `iterations` iterations."""
    return tuple(
        Loop(min(node.count, iterations), shortened(node.body, iterations))
        if isinstance(node, Loop)
        else node
        for node in nodes
    )


def walked_each(counts: Sequence[int], most: int = WALKED) -> int:
    """Commands of a group that may be timed one by one, so that all groups together have at most `most`.

    `counts`: commands per group. A group that has fewer leaves the rest to the others.
    """
    left = most
    for left_over, count in zip(range(len(counts), 0, -1), sorted(counts), strict=True):
        if count * left_over > left:
            return max(left // left_over, 1)
        left -= count
    return most
