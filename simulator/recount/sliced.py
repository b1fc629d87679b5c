"""Groups that claim to run slice by slice: how often their tensors are loaded, and what is recomputed.

Both follow from bands, parts and operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Span, row_axis
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops.table import Tiling
from lfopt.ops.traits import Family
from simulator.recount.groups import runs
from simulator.recount.network import MapOperand
from simulator.recount.progressions import times_along, times_covered
from simulator.recount.schedule import GroupSteps
from simulator.recount.traffic import computed_problems, covered, parameter_problems


class Slices(NamedTuple):
    """Slices in which a group runs."""

    tail: str  # the contraction that sums over slices; "": there is none
    bands: int  # of rows
    parts: int  # that the channels of the tail's result fall into


def sliced_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems of loads, stores and computations, and of how often they are done."""
    net, members = schedule.net, schedule.members
    yield from parameter_problems(schedule)
    slices = slices_of(schedule)
    if isinstance(slices, str):
        yield slices
        return
    yield from _constants(schedule, slices)
    yield from _maps(schedule, slices)
    for name in sorted(name for name in schedule.produced if net.needed_outside(name, members)):
        yield from covered(schedule, name, schedule.stores.get(name, ()), "stored", 1)
    yield from computed_problems(schedule)


def slices_of(schedule: GroupSteps) -> Slices | str:
    """Slices of the group by its steps and the band rows that it claims; or why they cannot be."""
    net, claimed = schedule.net, schedule.group.band_rows
    summing = {
        computation.step.operator
        for computation in schedule.computations
        if computation.step.inputs is not None
    }
    tails = sorted(op for op in summing if net.specs[op].tiling is Tiling.CONTRACT)
    if len(tails) > 1:
        return f"{tails[0]!r} and {tails[1]!r} both sum over slices"
    tallest = max((_row_count(schedule, net.maker[name]) for name in schedule.stores), default=1)
    bands = -(-tallest // max(claimed, 1))
    if not 1 <= claimed <= tallest or -(-tallest // bands) != claimed:
        return f"band rows: the plan says {claimed}, of {tallest}, which no number of bands has"
    starts: set[int] = set()
    for computation in schedule.computations:
        if tails and computation.step.operator == tails[0]:
            axis = CHANNEL_AXIS_OF_RANK[len(computation.pieces[0].extents)]
            starts.update(np.unique(computation.pieces[0].start(axis)).tolist())
    return Slices(tails[0] if tails else "", bands, max(len(starts), 1))


def _row_count(schedule: GroupSteps, op: str) -> int:
    """Rows in which an operator advances; of a reduction, those of its operand."""
    net = schedule.net
    return net.tensor(net.reads[op][0].map).rows if runs(net, op) else net.height(op)


# -- how often -----------------------------------------------------------------------------------------------


def _constants(schedule: GroupSteps, slices: Slices) -> Iterator[str]:
    """Problems unless every constant is loaded once, or as often as its blocks are needed again.

    Weights of the tail: once per band; before the tail: once per band and part.
    """
    net, most = schedule.net, 1
    for name in sorted(schedule.constants):
        readers = [(op, c) for op in schedule.members for c in net.constants[op] if c.name == name]
        ((op, constant), *others) = readers
        weights = (constant.by, constant.index) == (slices.tail, 1)
        allowed = (
            slices.bands if weights else 1 if op == slices.tail or others else slices.bands * slices.parts
        )
        grid = times_covered(net.graph.shape(name), [piece.boxes for piece in schedule.loads.get(name, ())])
        loads = np.unique(grid).tolist() if grid.size else [1]
        if not {*loads} <= {1, allowed}:
            yield f"{name!r} is loaded {' and '.join(map(str, loads))} times, must be 1" + (
                f" or {allowed}" if allowed > 1 else ""
            )
        most = max(most, *loads)
    if most != schedule.group.weight_passes:
        yield f"weight passes: the plan says {schedule.group.weight_passes}, counted {most}"


def _maps(schedule: GroupSteps, slices: Slices) -> Iterator[str]:
    """Problems unless rows of inputs are loaded as often as slices need them.

    Once; rows that are read slice by slice, once per part in every band that needs them.
    """
    net, rows, ahead = schedule.net, band_rows(schedule, slices), _prologues(schedule, slices)
    for name in schedule.loads.keys() - {read.map for _, read in schedule.external} - schedule.constants:
        yield f"{name!r} is loaded, but who reads it has it under another name"
    for name in sorted({read.map for _, read in schedule.external}):
        tensor = net.tensor(name)
        reading = [(op, read) for op, read in schedule.external if read.map == name and op not in ahead]
        once = int(any(op in ahead and read.map == name for op, read in schedule.external))
        beside = [op == slices.tail and (read.by, read.index) != (op, 0) for op, read in reading]
        wanted = np.ones(tensor.rows, np.int64) * any(beside)
        summed = any((op, read.by, read.index) == (slices.tail, slices.tail, 0) for op, read in reading)
        if (tensor.rows == 1 and not summed) or any(
            _is_head(schedule, slices, op) and (read.by, read.index) == (op, 0) for op, read in reading
        ):
            wanted = np.ones(tensor.rows, np.int64)
        elif not all(beside):
            spans = _passing(
                [(read, rows[op]) for (op, read), part in zip(reading, beside, strict=True) if not part],
                tensor.rows,
            )
            for start, stop in spans:
                wanted[start:stop] += slices.parts
        wanted += once
        counted = _times_by_row(schedule, name)
        if (wrong := np.flatnonzero((counted != wanted[:, None]).any(axis=1))).size:
            row = int(wrong[0])
            least, most = counted[row].tolist()
            times = f"{least} times" if least == most else f"{least} to {most} times"
            yield f"row {row} of {name!r} is loaded {times}, must be {wanted[row]}"


def _times_by_row(schedule: GroupSteps, name: str) -> np.ndarray:
    """(rows, 2) int64: least and greatest number of loads of the elements of each row."""
    shape, boxes = schedule.net.graph.shape(name), [piece.boxes for piece in schedule.loads.get(name, ())]
    axis = row_axis(shape)
    if axis is None:
        grid = times_covered(shape, boxes)
        return np.array([[grid.min(), grid.max()]])
    return times_along(shape, boxes, axis)


def _prologues(schedule: GroupSteps, slices: Slices) -> set[str]:
    """Operators that make the heads' operands; their rows stay as long as heads need them."""
    net = schedule.net
    heads = [op for op in schedule.members if _is_head(schedule, slices, op)]
    read = {read.map for op in heads for read in net.reads[op] if (read.by, read.index) == (op, 0)}
    return {net.maker[name] for name in read if net.maker.get(name) in schedule.members}


def _is_head(schedule: GroupSteps, slices: Slices, op: str) -> bool:
    """Whether an operator is a contraction that needs all channels of its first operand for every slice."""
    call, row = schedule.net.calls[op], schedule.net.specs[op]
    if op == slices.tail or row.tiling is not Tiling.CONTRACT or call.attribute("group", 1) > 1:
        return False
    return row.family is Family.CONVOLUTION or CHANNEL_AXIS_OF_RANK[len(call.result)] == len(call.result) - 1


# -- rows ----------------------------------------------------------------------------------------------------


def band_rows(schedule: GroupSteps, slices: Slices) -> dict[str, list[Span]]:
    """Rows that every operator makes in every band.

    Sums go on where they were; rows of slices are made again as far as the band needs them.
    """
    net, bands, ahead = schedule.net, range(slices.bands), _prologues(schedule, slices)
    rows: dict[str, list[Span]] = {}
    lows: dict[str, list[int]] = {}  # the lowest row that a band, or one after it, makes
    for op in reversed(schedule.members):
        (name,) = net.makes[op]
        high = _row_count(schedule, op)
        readers = [
            (read, other)
            for other in schedule.members
            if other in rows
            for read in net.reads[other]
            if read.map == name
        ]
        leaves = net.needed_outside(name, schedule.members)
        stops = [
            max(
                [
                    -(-(b + 1) * high // slices.bands) * leaves,
                    *(_needed(schedule, other, read, rows[other][b][1]) for read, other in readers),
                ]
            )
            for b in bands
        ]
        new = [0, *stops[:-1]]
        low = [first if first < stops[-1] else high for first in new]
        if op == slices.tail or op in ahead or runs(net, op):
            rows[op], lows[op] = [*zip(new, stops, strict=True)], low
            continue
        lows[op] = [
            min(
                [
                    *([low[b]] if leaves else []),
                    *(_lowest(schedule, other, read, lows[other][b]) for read, other in readers),
                ]
            )
            for b in bands
        ]
        active = [
            leaves and stops[b] > new[b] or any(rows[other][b][0] < rows[other][b][1] for _, other in readers)
            for b in bands
        ]
        rows[op] = [(min(lows[op][b], stops[b]) if active[b] else stops[b], stops[b]) for b in bands]
    return rows


def _passing(readers: Sequence[tuple[MapOperand, Sequence[Span]]], height: int) -> list[Span]:
    """Rows of a map that pass in every band; no row is left out."""
    spans: list[Span] = []
    for band in range(len(readers[0][1])):
        before = spans[-1][1] if spans else 0
        stop = max([0, *(max(read.last[: rows[band][1]], default=-1) + 1 for read, rows in readers)])
        low = [
            min(read.first[rows[band][0] :], default=height)
            for read, rows in readers
            if rows[band][0] < rows[band][1]
        ]
        stop = height if band == len(readers[0][1]) - 1 else stop
        spans.append((min([before, stop, *low]) if low else min(before, stop), stop))
    return spans


def _needed(schedule: GroupSteps, op: str, read: MapOperand, stop: int) -> int:
    """Rows of a map that so many rows of its reader need."""
    if runs(schedule.net, op):
        return stop
    return [0, *accumulate((row + 1 for row in read.last), max)][stop]


def _lowest(schedule: GroupSteps, op: str, read: MapOperand, low: int) -> int:
    """The lowest row of a map that this row of its reader, or a later one, needs."""
    if runs(schedule.net, op):
        return low
    return min(read.first[low:], default=schedule.net.tensor(read.map).rows)


def repeated_macs(schedule: GroupSteps) -> Fraction:
    """Multiply-accumulates of the steps, beyond those of the group's operators."""
    raw, macs = schedule.raw, Fraction(0)
    for computation in schedule.computations:
        step, piece = computation.step, computation.pieces[0]
        elements = piece.leaf.runs * prod(piece.extents)
        share = Fraction(step.inputs[1] - step.inputs[0], computation.depth) if step.inputs is not None else 1
        for op, part in ((step.operator, share), *((op, 1) for op in step.then if step.last)):
            macs += (
                Fraction(raw.specs[op].macs(raw.calls[op]) * elements, prod(raw.calls[op].results[0])) * part
            )
    return macs - sum(raw.specs[op].macs(raw.calls[op]) for op in schedule.operators)
