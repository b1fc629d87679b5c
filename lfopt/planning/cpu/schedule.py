"""Lowers a plan to what the threads of a CPU run: rows in rings, work of each thread, barriers.

A group in mode lbdf follows the plan's steps through the plan's rings. Loads and stores are left out: on a
CPU those are addresses, and the cache moves the bytes. Groups in other modes run operator by operator on
whole maps, and so does a group of one function, which has no use for rings.

Several threads make every row of a group with rings together; or each makes rows of its own, in rings of its
own, and waits for the others where a stage ends (`lfopt.planning.cpu.partitioning`). Rows that two threads
need are then computed twice. Where that costs more than waiting for one another after every row does, threads
share every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from lfopt.ir import Compute, Loop, Node, Plan, PlannedGroup, Transfer, computations, row_axis
from lfopt.ir.cpu import (
    CpuBarrier,
    CpuCall,
    CpuFunction,
    CpuGroup,
    CpuLoop,
    CpuMap,
    CpuNode,
    CpuSchedule,
    CpuSection,
)
from lfopt.ops import Dataflow, bits
from lfopt.planning.cpu.barriers import needed_barriers
from lfopt.planning.cpu.partitioning import WorkPartition, cut
from lfopt.planning.modes import MODES
from lfopt.planning.steps.layout import BufferLayout

MOVED = 8  # multiply-adds in the time of one element stored
MOST_CALLS = 3000  # of functions in a group whose rows pass through rings
WAIT = 50_000  # multiply-adds in the time that threads lose at a barrier


class RowComputation(NamedTuple):
    """An operator computed at one place of a schedule.

    `first`, `stop`: rows; `strides`: rows that they move with each iteration of the loops around.
    """

    operator: int
    first: int
    stop: int
    strides: tuple[int, ...]


Body = Sequence["RowComputation | tuple[int, Body]"]  # (iterations, what is repeated)
Members = Mapping[int, tuple[int, ...]]  # first operator of each function -> its operators, in order


@dataclass(frozen=True, slots=True)
class Alone:
    """Work that threads do without one another in a group."""

    operators: frozenset[int]  # that each thread makes rows of
    common: frozenset[int]  # maps inside the group that all threads reach; other rings are each thread's own


class Kernels(Protocol):
    """Functions for operators, which a code generator knows."""

    @property
    def maps(self) -> Sequence[CpuMap]:
        """Addresses of maps."""
        ...

    def in_order(self, mask: int) -> Sequence[int]:
        """Operators in the order in which they are best made as whole maps."""
        ...

    def joined(self, mask: int, runs: Sequence[Sequence[RowComputation]], *, whole: bool) -> Members:
        """Which operators of a group become one function, where they are computed in these runs."""
        ...

    def functions(
        self, group: PlannedGroup, members: Members, alone: Alone | None, *, whole: bool
    ) -> Mapping[int, Sequence[CpuFunction]]:
        """The functions that make them: one, several where none makes all, none if nothing is left to do.

        A second answer for a group replaces the first. `alone`: what each thread makes for itself. Raises an
        error of its own where nothing can make an operator.
        """
        ...

    def in_place(self, mask: int, runs: Sequence[Sequence[RowComputation]], common: frozenset[int]) -> bool:
        """Whether maps inside rings of other maps are computed just before those, in these runs.

        None of them may be common to threads.
        """
        ...


def follows_rings(group: PlannedGroup) -> bool:
    """Whether rows of the group may pass through the rings of its plan.

    Not where rings serve operators in flight, or running reductions; nor those of one operator alone; nor
    where steps are so uneven that calls of functions, one by one, would be longer than the functions.
    """
    if len(group.nodes) == 1 or not MODES[group.mode].rings:
        return False
    steps = [*islice(computations(group.steps), MOST_CALLS + 1)]
    return len(steps) <= MOST_CALLS and not any(step.then or step.accumulator >= 0 for step in steps)


def lower_for_cpu(
    plan: Plan, flow: Dataflow, kernels: Kernels, target: str, threads: int, between: frozenset[int]
) -> CpuSchedule:
    """The CPU schedule of a plan: what every thread runs.

    `between`: maps that lie in memory as a whole. Raises what `kernels` raises.
    """
    lowering = _Lowering(plan, flow, kernels, threads, between)
    groups = tuple(lowering.group(group) for group in plan.groups)
    if threads > 1:
        groups = needed_barriers(groups, plan, flow, kernels.maps, threads)
    ends = {
        name
        for group in groups
        if group.rings
        for name in (*group.idle, *(function.operators[-1] for function in group.functions))
    }
    in_rings = {
        flow.maps[m].name
        for i, operator in enumerate(flow.operators)
        if operator.name in ends
        for m in flow.results[i]
    }
    return CpuSchedule(
        target,
        threads,
        groups,
        tuple(cpu_map for cpu_map in kernels.maps if cpu_map.address >= 0 or cpu_map.name in in_rings),
    )


def body(flow: Dataflow, index: Mapping[str, int], nodes: Sequence[Node]) -> Body:
    """The computations of a plan's steps, and the rows that it gathers."""
    lowered: list[RowComputation | tuple[int, Body]] = []
    for node in nodes:
        if isinstance(node, Loop):
            lowered.append((node.count, body(flow, index, node.body)))
        elif isinstance(node, Compute):
            i = index[node.operator]
            axes = [row_axis(flow.maps[m].shape) for m in flow.results[i]]
            spans = [
                (0, 1) if axis is None else box[axis] for box, axis in zip(node.boxes, axes, strict=True)
            ]
            # a result of fewer rows may have none here: the one with the most rows says which
            k = max(range(len(spans)), key=lambda k: spans[k][1] - spans[k][0])
            axis = axes[k]
            before = sum(map(len, node.boxes[:k]))
            lowered.append(
                RowComputation(
                    i, *spans[k], tuple(0 if axis is None else move[before + axis] for move in node.strides)
                )
            )
        elif isinstance(node, Transfer) and node.gather:
            axis = row_axis(flow.maps[flow.results[index[node.gather]][0]].shape)
            span = (0, 1) if axis is None else node.box[axis]
            lowered.append(
                RowComputation(
                    index[node.gather],
                    *span,
                    tuple(0 if axis is None else move[axis] for move in node.strides),
                )
            )
    return lowered


def sequences(nodes: Body) -> list[list[RowComputation]]:
    """Runs of computations without a loop between them."""
    runs: list[list[RowComputation]] = [[]]
    for node in nodes:
        if isinstance(node, RowComputation):
            runs[-1].append(node)
        else:
            runs += [*sequences(node[1]), []]
    return [run for run in runs if run]


class _Lowering:
    """Lowers groups of a plan to those of a schedule."""

    def __init__(
        self, plan: Plan, flow: Dataflow, kernels: Kernels, threads: int, between: frozenset[int]
    ) -> None:
        self.flow = flow
        self.kernels = kernels
        self.threads = threads
        self.between = between
        self.layout = BufferLayout(flow, plan.hardware)
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}

    def group(self, group: PlannedGroup) -> CpuGroup:
        """The schedule of one group."""
        mask = sum(1 << self.index[node] for node in group.nodes)
        steps: Body = [RowComputation(i, 0, self.flow.heights[i], ()) for i in self.kernels.in_order(mask)]
        members = self.kernels.joined(mask, sequences(steps), whole=True)
        follows = follows_rings(group)
        if not follows or len(members) == 1:
            functions = self.kernels.functions(group, members, None, whole=True)
            # where the same operators have several functions, maps between these lie in rings
            if not follows or all(len(parts) <= 1 for parts in functions.values()):
                if not MODES[group.mode].rings:
                    why = f"mode {group.mode}"
                elif follows:
                    why = "one function"
                else:
                    why = "reductions that run through rows"
                return self._group(
                    group, members, functions, [[steps]], None, whole=True, why=f"{why}: whole maps"
                )
        steps = body(self.flow, self.index, group.steps)
        members = self.kernels.joined(mask, sequences(steps), whole=False)
        sharing = self._cut(group, mask, members) if self.threads > 1 else ""
        alone, stages, why = (None, [[steps]], sharing) if isinstance(sharing, str) else (*sharing, "")
        functions = self.kernels.functions(group, members, alone, whole=False)
        return self._group(group, members, functions, stages, alone, whole=False, why=why)

    # -- what each thread makes ------------------------------------------------------------------------------

    def _cut(self, group: PlannedGroup, mask: int, members: Members) -> tuple[Alone, list[list[Body]]] | str:
        """The group cut among threads: per stage, the body of each; or why it is not."""
        partition = cut(self.layout, mask, group.places, group.band_rows, self.between, self.threads)
        if isinstance(partition, str):
            return partition
        if self._slower(mask, partition, members):
            return "too many rows would be made twice"
        stages = [[body(self.flow, self.index, steps) for steps in stage.steps] for stage in partition.stages]
        runs = [run for stage in stages for steps in stage for run in sequences(steps)]
        if self.kernels.joined(mask, runs, whole=False) != members:
            return "operators would be taken together in another way"
        if not self.kernels.in_place(mask, runs, partition.common):
            return "parts of a Concat would not be made just before it"
        return Alone(
            frozenset(i for stage in partition.stages if not stage.together for i in stage.rows[0]),
            partition.common,
        ), stages

    def _slower(self, mask: int, partition: WorkPartition, members: Members) -> bool:
        """Whether threads that make rows of their own take longer than threads that share every row."""
        flow = self.flow
        threads = self.threads
        work = {
            i: (flow.macs[i] + MOVED * sum(flow.maps[m].elements for m in flow.results[i]))
            / max(flow.heights[i], 1)
            for i in bits(mask)
        }
        apart = 0.0
        for stage in partition.stages:
            most = max(
                sum(work[i] * (stop - first) for i, (first, stop) in rows.items()) for rows in stage.rows
            )
            apart += (
                most / threads + WAIT * sum(i in members for i in stage.rows[0])
                if stage.together
                else most + WAIT
            )
        together = sum(work[i] * flow.heights[i] for i in work) / threads + WAIT * sum(
            flow.heights[i] for i in members
        )
        return apart > together

    # -- calls -----------------------------------------------------------------------------------------------

    def _group(
        self,
        group: PlannedGroup,
        members: Members,
        functions: Mapping[int, Sequence[CpuFunction]],
        stages: Sequence[Sequence[Body]],
        alone: Alone | None,
        *,
        whole: bool,
        why: str,
    ) -> CpuGroup:
        computed = {name for parts in functions.values() for function in parts for name in function.operators}
        idle = tuple(
            self.flow.operators[i].name
            for of in members.values()
            for i in of
            if self.flow.operators[i].name not in computed
        )
        operators = alone.operators if alone else frozenset[int]()
        sections = tuple(
            CpuSection(tuple(tuple(self._nodes(steps, functions, operators)) for steps in stage))
            for stage in stages
        )
        own: tuple[str, ...] = ()
        if alone:
            names = {place.name for place in group.places}
            ends = (*idle, *(function.operators[-1] for parts in functions.values() for function in parts))
            inside = (
                m for name in ends for m in self.flow.results[self.index[name]] if m not in alone.common
            )
            own = tuple(name for name in (self.flow.maps[m].name for m in inside) if name in names)
        return CpuGroup(
            group.id,
            not whole,
            why,
            tuple(f for parts in functions.values() for f in parts),
            sections,
            idle,
            own,
        )

    def _nodes(
        self, steps: Body, functions: Mapping[int, Sequence[CpuFunction]], alone: frozenset[int]
    ) -> Iterator[CpuNode]:
        for step in steps:
            if not isinstance(step, RowComputation):
                yield CpuLoop(step[0], tuple(self._nodes(step[1], functions, alone)))
            else:
                waits = self.threads > 1 and step.operator not in alone
                # an operator without functions is part of another's
                for function in functions.get(step.operator, ()):
                    whole = function.makes == "map"
                    if whole:
                        rows = (0, self.flow.heights[self.index[function.operators[-1]]])
                    else:
                        rows = (step.first, step.stop)
                    strides = () if whole else step.strides
                    yield CpuCall(function.name, rows, waits and not function.split, strides)
                    if waits:
                        yield CpuBarrier()
