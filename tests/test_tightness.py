"""The plan holds no more than it needs and does nothing in vain: one row less in a ring, or one step altered, and execution notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from lfopt.ir import (
    Box,
    Compute,
    DramBytes,
    Graph,
    Hardware,
    Place,
    Plan,
    PlannedGroup,
    Scheme,
    Step,
    Transfer,
    box_elements,
    box_shape,
    cut,
    dram_bytes,
    row_axis,
    unfold,
)
from lfopt.ops import Dataflow
from lfopt.ops.footprint import footprints
from lfopt.planning import GroupCosts, Traffic
from simulator.execute import Machine, Violation
from tests.strategies import random_graph, random_hardware
from tests.test_one_truth import SCHEMES, Values, computable, differing, planned, random_inputs, random_scheme


class Stage(NamedTuple):
    """A group about to run, and what it stores when it runs as planned."""

    machine: Machine
    group: PlannedGroup
    stored: dict[str, np.ndarray]


def stages(plan: Plan, graph: Graph, inputs: Values) -> Iterator[Stage]:
    """Group after group that has steps, each with the machine as it is when the group begins; that machine may be run, and is put back."""
    machine = Machine(graph, plan.hardware, inputs)
    for group in plan.groups:
        dram, written = dict(machine.dram), dict(machine.written)
        machine.run(group)
        after = dict(machine.dram), dict(machine.written)
        if group.steps:
            machine.dram, machine.written = dict(dram), dict(written)
            yield Stage(machine, group, {name: after[0][name] for name in group.outputs})
        machine.dram, machine.written = after


def verdict(stage: Stage, group: PlannedGroup) -> str:
    """What gives an altered group away: "violation", "outputs" or "bytes"; "" if nothing does."""
    machine = stage.machine
    dram, written = dict(machine.dram), dict(machine.written)
    try:
        counted = machine.run(group)
        if not all(machine.written[name].all() for name in stage.stored):
            return "outputs"
        if differing({name: machine.dram[name] for name in stage.stored}, stage.stored):
            return "outputs"
        return "bytes" if counted.dram != stage.group.dram else ""
    except Violation:
        return "violation"
    finally:
        machine.dram, machine.written = dram, written


def with_place(group: PlannedGroup, index: int, **changes: int) -> PlannedGroup:
    """The group with one place altered; everything else stays where it is."""
    places = [*group.places]
    places[index] = replace(places[index], **changes)
    return replace(group, places=tuple(places))


def spare_rows(flow: Dataflow, group: PlannedGroup, name: str) -> str:
    """Why a ring may have a row that nobody needs, although a reader's row rule says that it may be read; "" if there is no such reason.

    "never computed": a reader in the group never gets to the row of its result that would read it. "padding": a reader's window lies in the padding
    of columns. "unread": nobody reads the row, or stores it; it is there because maps are loaded and made in order, without gaps.
    """
    (m,) = (k for k, tensor in enumerate(flow.maps) if tensor.name == name)
    computed: dict[str, set[int]] = {node: set() for node in group.nodes}
    for step in unfold(group.steps):
        if isinstance(step, Compute):
            computed[step.operator].update(range(*max((rows_of(box) for box in step.boxes), key=lambda span: span[1] - span[0])))
    read = set[int]() if name not in group.outputs else set(range(flow.maps[m].rows))
    for i, op in enumerate(flow.operators):
        for o in flow.operands[i] if op.name in group.nodes else ():
            if o.map != m:
                continue
            if len(computed[op.name]) < flow.heights[i]:
                return "never computed"
            for row in computed[op.name]:
                rows = range(o.reads.first[row], o.reads.last[row] + 1)
                read.update(rows)
                boxes = tuple(tuple((0, n) if axis != row_axis(shape) else (row, row + 1) for axis, n in enumerate(shape)) for shape in flow.calls[i].results)
                if rows and not box_elements(footprints(flow.calls[i], o.input, boxes)):
                    return "padding"
    return "unread" if len(read) < flow.maps[m].rows else ""


def rows_of(box: Box) -> tuple[int, int]:
    axis = row_axis(box_shape(box))
    return (0, 1) if axis is None else box[axis]
