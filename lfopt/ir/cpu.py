"""What the threads of a CPU run: functions over rows of maps, in order, with the barriers between them.

A *function* makes what an operator makes, and what elementwise operators that follow it make of that in
registers. A thread that calls one makes rows of the map that it ends with; or the whole map, or a part of
either, where threads divide each call among themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lfopt.ir.box import Span

MOST_THREADS = 64  # that code is generated for
Makes = Literal["map", "row"]
How = Literal["kernel", "loops"]
CpuElement = Literal["float32", "bf16"]


@dataclass(frozen=True, slots=True)
class CpuFunction:
    """A function that threads call: an operator, and the elementwise ones that follow it in registers."""

    name: str  # unique in the schedule, and an identifier of C
    operators: tuple[str, ...]  # by name: the first, and those that follow it in registers
    makes: Makes  # by one call: the whole map, whatever rows the call names, or the row that it names
    # whether all threads make what one call makes together, each a part; else its caller makes all of it
    split: bool
    how: How  # a fast kernel, or plain loops
    why: str = ""  # for plain loops: why no fast kernel took the operator


@dataclass(frozen=True, slots=True)
class CpuCall:
    """A function called for each of some rows, or once."""

    function: str  # by name
    rows: Span  # of the map that it makes, in the first iteration of every loop around
    shared: bool = False  # whether each thread makes its share of the rows (`share`)
    strides: tuple[int, ...] = ()  # rows from one iteration to the next of every loop around, outermost first


@dataclass(frozen=True, slots=True)
class CpuBarrier:
    """Where every thread waits for all others: without it, two would meet at a row.

    Placed by `lfopt.planning.cpu.barriers`.
    """


@dataclass(frozen=True, slots=True)
class CpuLoop:
    """Calls, barriers and loops that run several times; rows move on with every iteration."""

    count: int
    body: tuple[CpuNode, ...]


CpuNode = CpuCall | CpuBarrier | CpuLoop


@dataclass(frozen=True, slots=True)
class CpuSection:
    """A part of a group: what every thread runs, or what each one runs alone, after which all wait."""

    # one body: all threads run it; else one for each thread, without barriers
    threads: tuple[tuple[CpuNode, ...], ...]

    @property
    def together(self) -> bool:
        """Whether all threads run the same."""
        return len(self.threads) == 1


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """How one fusion group runs."""

    id: int  # of the group in the plan
    # whether rows pass through the rings of the plan in the order of its steps; else whole maps are made
    rings: bool
    why: str  # where the plan's steps are not followed, or threads share every row: why; "" otherwise
    functions: tuple[CpuFunction, ...]
    sections: tuple[CpuSection, ...]
    # operators without a function: their results lie within the maps that they read, or that read them
    idle: tuple[str, ...] = ()
    own: tuple[str, ...] = ()  # maps whose rings every thread has for itself


@dataclass(frozen=True, slots=True)
class CpuMap:
    """Where a map lies: in the memory between groups as a whole, or in a ring of its group."""

    name: str
    holder: str  # the map that it lies within; itself where it lies by itself
    # of the holder, bytes from the start of the memory between groups; -1: in the plan's ring of its name
    address: int
    bytes: int  # of the holder; 0 in a ring


@dataclass(frozen=True, slots=True)
class CpuSchedule:
    """Everything that the threads of a CPU run for one plan."""

    target: str  # instructions
    threads: int
    groups: tuple[CpuGroup, ...]  # in order
    maps: tuple[CpuMap, ...]  # that lie anywhere: not those that stay in registers
    images: int = 1  # for which all of it runs, one after the other
    # threads that each run a share of the images, with maps and rings of their own; then `threads` is 1
    crew: int = 1
    element: CpuElement = "float32"  # that float32 maps are stored in; of bf16, some are float32 all the same

    @property
    def functions(self) -> Iterator[CpuFunction]:
        """The functions of all groups."""
        return (function for group in self.groups for function in group.functions)

    @property
    def arenas(self) -> int:
        """Sets of rings in memory: `threads` if any section runs apart on each thread, else `crew`."""
        if any(not section.together for group in self.groups for section in group.sections):
            return self.threads
        return self.crew


def share(rows: Span, thread: int, threads: int) -> Span:
    """A thread's part of rows that all threads share.

    >>> [share((10, 17), k, 3) for k in range(3)]
    [(10, 12), (12, 14), (14, 17)]
    """
    first, stop = rows
    return first + (stop - first) * thread // threads, first + (stop - first) * (thread + 1) // threads


def cpu_calls(nodes: Sequence[CpuNode]) -> Iterator[CpuCall | CpuBarrier]:
    """Calls and barriers one by one, in the order in which a thread meets them."""
    iterations: list[int] = []

    def walk(inside: Sequence[CpuNode]) -> Iterator[CpuCall | CpuBarrier]:
        for node in inside:
            if isinstance(node, CpuLoop):
                iterations.append(0)
                for iterations[-1] in range(node.count):
                    yield from walk(node.body)
                iterations.pop()
            elif isinstance(node, CpuCall) and node.strides:
                by = sum(iteration * move for iteration, move in zip(iterations, node.strides, strict=True))
                yield CpuCall(node.function, (node.rows[0] + by, node.rows[1] + by), node.shared)
            else:
                yield node

    return walk(nodes)
