"""Traffic of a group's steps: bytes by class, parameters in their store, and data that DRAM has in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from math import prod

import numpy as np

from lfopt.ir import DramBytes, Transfer, parameter_runs, round_up
from simulator.recount.groups import parameter_bytes, table_count
from simulator.recount.network import gathered_runs
from simulator.recount.progressions import MOST_CELLS, Ints, TooMuch, cell_spans, cuts_along, times_covered
from simulator.recount.schedule import GroupSteps, StepBox, describe


def traffic_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems of bytes, parameters, and maps in DRAM."""
    yield from byte_problems(schedule)
    yield from parameter_problems(schedule)
    yield from dram_problems(schedule)


# -- bytes ---------------------------------------------------------------------------------------------------


def byte_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems of bytes: those of the boxes against the claims of steps and group."""
    total: Counter[str] = Counter()
    for step, piece in schedule.transfers:
        rows, row_bytes, kind = moved(schedule, step, piece)
        if (step.rows, step.row_bytes, step.kind) != (rows, row_bytes, kind):
            yield (
                f"{describe(piece.leaf)}: the plan says {step.kind} {step.rows} x {step.row_bytes} B, "
                f"counted {kind} {rows} x {row_bytes} B"
            )
        total[kind] += piece.leaf.runs * rows * row_bytes
    for entry in fields(DramBytes):
        if (claimed := getattr(schedule.group.dram, entry.name)) != total[entry.name]:
            yield f"{entry.name} bytes: the plan says {claimed}, its steps move {total[entry.name]}"


def moved(schedule: GroupSteps, step: Transfer, piece: StepBox) -> tuple[int, int, str]:
    """(pieces in DRAM, bytes of each, class) of a transfer, from its box alone."""
    hardware = schedule.hardware
    elements = prod(piece.extents)
    if step.kind == "parameter":
        return 1, elements, "parameter"
    if step.gather:
        return (
            1,
            hardware.constant_bytes(
                elements, bias=False, pieces=gathered_runs(schedule.net.calls[step.gather], piece.extents)
            ),
            "weight",
        )
    if step.tensor in schedule.constants:
        return 1, hardware.constant_bytes(elements, bias=step.tensor in schedule.net.biases), "weight"
    row_bytes = round_up(elements // max(piece.height, 1) * hardware.element_bytes, hardware.dram_row_align)
    spilled = schedule.net.behind.get(step.tensor, step.tensor) in schedule.inner
    kind = "spill" if spilled else "output" if step.store else "input"
    return piece.height, row_bytes, kind


# -- parameters ----------------------------------------------------------------------------------------------


def parameter_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems unless parameters are loaded whole, fit their store, and are there when they are used.

    Loads without another step between them are in the store together, and replace those before.
    """
    hardware = schedule.hardware
    alone = len(schedule.operators) == 1
    first = {id(leaf.step): leaf.first for leaf in schedule.leaves}
    for step, piece in schedule.transfers:
        if step.kind == "parameter":
            size = parameter_bytes(schedule.raw, step.tensor, hardware)
            if step.box != ((0, size),) or not size:
                yield (
                    f"{describe(piece.leaf)}: "
                    f"the plan says bytes {step.box}, {step.tensor!r} has {size} bytes of parameters"
                )
    runs = [*parameter_runs(schedule.group.steps)]
    names = [{step.tensor for step in run} for run in runs]
    for together in () if alone else names:
        size = sum(parameter_bytes(schedule.raw, name, hardware) for name in together)
        if size > hardware.parameter_store_bytes:
            yield f"parameters of {size} B at once, their store has {hardware.parameter_store_bytes}"
        tables = sum(table_count(schedule.raw, name, hardware) for name in together)
        if (most := hardware.parameter_tables) and tables > most:
            yield f"{tables} tables at once, their store holds {most}"
    starts = np.array([first[id(run[0])] for run in runs], np.int64)
    users = [
        (computation.leaf, (computation.step.operator, *computation.step.then))
        for computation in schedule.computations
    ]
    users += [(piece.leaf, (op,)) for op, piece in schedule.gathers]
    for leaf, operators in users:
        for op in operators:
            if op in schedule.raw.operators and parameter_bytes(schedule.raw, op, hardware):
                intervals = np.unique(np.searchsorted(starts, leaf.times) - 1).tolist()
                if any(k < 0 or op not in names[k] for k in intervals):
                    yield f"{describe(leaf)}: the parameters of {op!r} are not in their store"


# -- maps in DRAM --------------------------------------------------------------------------------------------


def dram_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems unless results are stored whole, nothing twice, and nothing is loaded before it is stored."""
    for name in sorted(schedule.produced):
        stores = schedule.stores.get(name, ())
        loads = schedule.loads.get(name, ())
        if name not in schedule.inner:
            yield from covered(schedule, name, stores)
        elif stores and times_covered(schedule.net.graph.shape(name), [p.boxes for p in stores]).max() > 1:
            yield f"{name!r} is stored several times"
        if loads:
            yield from _loaded_too_early(schedule, name, stores, loads)


def covered(schedule: GroupSteps, name: str, pieces: Sequence[StepBox]) -> Iterator[str]:
    """Problems unless boxes of stores cover all of a tensor just once."""
    grid = times_covered(schedule.net.graph.shape(name), [piece.boxes for piece in pieces])
    least, most = (int(grid.min()), int(grid.max())) if grid.size else (1, 1)
    if (least, most) != (1, 1):
        times = f"{least} times" if least == most else f"{least} to {most} times"
        yield f"{name!r} is stored {times}, must be 1"


def _loaded_too_early(
    schedule: GroupSteps, name: str, stores: Sequence[StepBox], loads: Sequence[StepBox]
) -> Iterator[str]:
    """Problems unless every element that comes back was sent out before."""
    shape = schedule.net.graph.shape(name)
    never = schedule.steps
    if 0 in shape:
        return
    pieces = [piece for piece in (*stores, *loads) if all(piece.extents)]
    cuts = [cuts_along(axis, extent, [p.boxes for p in pieces]) for axis, extent in enumerate(shape)]
    sizes = tuple(len(cut) - 1 for cut in cuts)
    if prod(sizes) > MOST_CELLS:
        raise TooMuch(f"boxes cut {name!r} into {prod(sizes):,} parts; a recount takes {MOST_CELLS:,}")
    stored = np.full(sizes, never, np.int64)
    for piece in stores:
        for time, cells in _cells_of(schedule, piece, cuts):
            stored[cells] = np.minimum(stored[cells], time)
    for piece in loads:
        for time, cells in _cells_of(schedule, piece, cuts):
            if (stored[cells] >= time).any():
                yield f"{describe(piece.leaf)}: at step {time} it comes back before all of it was stored"
                return


def _cells_of(
    schedule: GroupSteps, piece: StepBox, cuts: Sequence[Ints]
) -> Iterator[tuple[int, tuple[slice, ...]]]:
    """(step, cells of the grid) of all runs of a box. Raises TooMuch."""
    if not all(piece.extents):
        return
    schedule.work.spend(piece.leaf.runs)
    spans = [cell_spans(cut, piece.part(axis)) for axis, cut in enumerate(cuts)]
    ends = [end.tolist() for span in spans for end in span]
    for time, *sides in zip(piece.leaf.times.tolist(), *ends, strict=True):
        pairs = zip(sides[::2], sides[1::2], strict=True)
        yield time, tuple(slice(start, stop) for start, stop in pairs)


# -- computation ---------------------------------------------------------------------------------------------


def executed_macs(schedule: GroupSteps) -> Fraction:
    """Multiply-accumulates of a group's steps, those of what is computed again too."""
    net = schedule.net
    raw = schedule.raw
    macs = Fraction(0)
    for computation in schedule.computations:
        step = computation.step
        piece = computation.pieces[0]
        if not all(shape := net.graph.shape(piece.tensor)):
            continue
        part = Fraction(piece.leaf.runs * prod(piece.extents), prod(shape))
        share = Fraction(step.inputs[1] - step.inputs[0], computation.depth) if step.inputs else Fraction(1)
        call = net.calls[step.operator]
        then = step.then
        names = [step.operator]
        if call.attention is not None:
            names = [one.operator.name for one in call.parts]
            then = then[len(names) - 1 :]
        macs += part * share * sum(raw.specs[op].macs(raw.calls[op]) for op in names)
        macs += part * sum(raw.specs[op].macs(raw.calls[op]) for op in then if step.last)
    return macs
