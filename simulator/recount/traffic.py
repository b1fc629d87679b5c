"""Traffic and computation of a group's steps: bytes by class, loads and stores, and parts of sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from math import prod

import numpy as np

from lfopt.ir import DramBytes, Span, Transfer, parameter_runs, round_up, row_axis
from simulator.recount import gated
from simulator.recount.attention import key_problems
from simulator.recount.groups import parameter_bytes, table_count
from simulator.recount.modes import MODES
from simulator.recount.network import gathered_runs
from simulator.recount.progressions import Boxes, times_covered
from simulator.recount.schedule import Computation, GroupSteps, StepBox, describe


def traffic_problems(schedule: GroupSteps, spans: dict[str, list[Span]]) -> Iterator[str]:
    """What is wrong with what the steps load, store and compute, and how often.

    `spans`: of line buffers, rows of every step of every operator.
    """
    yield from parameter_problems(schedule)
    yield from gated.passed(schedule) if MODES[schedule.group.mode].spills else _loaded(schedule)
    for name in sorted(
        name for name in schedule.produced if schedule.net.needed_outside(name, schedule.members)
    ):
        yield from covered(schedule, name, schedule.stores.get(name, ()), "stored", 1)
    yield from computed_problems(schedule)
    yield from rows_of_steps(schedule, spans) if MODES[schedule.group.mode].rings else _band_rows(schedule)


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
    hardware, elements = schedule.hardware, prod(piece.extents)
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
    return (
        piece.height,
        row_bytes,
        "spill" if step.tensor in schedule.spilled else "output" if step.store else "input",
    )


def parameter_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems unless parameters are loaded whole and once, before anything else of the group.

    In a chain: before their operator's computations.
    """
    loads: Counter[str] = Counter()
    others = (
        leaf.first
        for leaf in schedule.leaves
        if not (isinstance(leaf.step, Transfer) and leaf.step.kind == "parameter")
    )
    head = next(others, schedule.steps)  # where something else begins
    chains = MODES[schedule.group.mode].chains
    for step, piece in schedule.transfers:
        if step.kind == "parameter":
            loads[step.tensor] += piece.leaf.runs
            size = parameter_bytes(schedule.raw, step.tensor, schedule.hardware)
            if step.box != ((0, size),):
                yield (
                    f"{describe(piece.leaf)}: "
                    f"the plan says bytes {step.box}, {step.tensor!r} has {size} bytes of parameters"
                )
            if head < piece.leaf.first and not chains:
                yield f"{describe(piece.leaf)}: it is not at the head of the group"
    for op in schedule.operators:
        wanted = int(parameter_bytes(schedule.raw, op, schedule.hardware) > 0)
        if loads[op] != wanted:
            yield f"parameters of {op!r} are loaded {loads[op]} times, must be {wanted}"
    if chains:
        yield from _stored_parameters(schedule)


def _stored_parameters(schedule: GroupSteps) -> Iterator[str]:
    """Problems unless consecutive parameter loads fit their store, and every operator finds its own.

    They overwrite those before.
    """
    first = {id(leaf.step): leaf.first for leaf in schedule.leaves}
    runs = [*parameter_runs(schedule.group.steps)]
    names = [{step.tensor for step in run} for run in runs]
    for together in names:
        size = sum(parameter_bytes(schedule.raw, name, schedule.hardware) for name in together)
        if size > schedule.hardware.parameter_store_bytes and len(together) > 1:
            yield f"parameters of {size} B at once, their store has {schedule.hardware.parameter_store_bytes}"
        tables = sum(table_count(schedule.raw, name, schedule.hardware) for name in together)
        if (most := schedule.hardware.parameter_tables) and tables > most and len(together) > 1:
            yield f"{tables} tables at once, their store holds {most}"
    starts = np.array([first[id(run[0])] for run in runs], np.int64)
    for computation in schedule.computations:
        for op in (computation.step.operator, *computation.step.then):
            if parameter_bytes(schedule.raw, op, schedule.hardware):
                intervals = np.unique(np.searchsorted(starts, computation.leaf.times) - 1).tolist()
                if any(k < 0 or op not in names[k] for k in intervals):
                    yield f"{describe(computation.leaf)}: the parameters of {op!r} are not in their store"


# -- how often -----------------------------------------------------------------------------------------------


def _loaded(schedule: GroupSteps) -> Iterator[str]:
    """Problems unless inputs and constants are loaded whole: in most modes once, weights as claimed."""
    net, loads, passes = schedule.net, schedule.loads, schedule.group.weight_passes
    wanted = dict.fromkeys(read.seen if read.seen in loads else read.map for _, read in schedule.external)
    for name in loads.keys() - wanted.keys() - schedule.constants:
        yield f"{name!r} is loaded, but who reads it has it under another name"
    exact: dict[str, int] = {}
    if not MODES[schedule.group.mode].tiles:
        exact = dict.fromkeys(wanted, 1) | dict.fromkeys(schedule.constants, passes)
        if passes != 1 and (not MODES[schedule.group.mode].bands or not schedule.constants):
            yield f"weight passes: the plan says {passes}, counted 1"
    elif net.contracts(schedule.members[0]):
        exact = dict.fromkeys(_second_operand(schedule), passes)
    elif passes != 1:
        yield f"weight passes: the plan says {passes}, but there are none"
    for name in (*wanted, *sorted(schedule.constants)):
        yield from covered(schedule, name, loads.get(name, ()), "loaded", exact.get(name))


def _second_operand(schedule: GroupSteps) -> set[str]:
    """Names that operand 1 of a tiled group's head is loaded by; none if it has other readers too."""
    net, head = schedule.net, schedule.members[0]
    others = {
        name
        for _, read in schedule.external
        if (read.by, read.index) != (head, 1)
        for name in (read.seen, read.map)
    }
    others |= {
        constant.name
        for op in schedule.members
        for constant in net.constants[op]
        if (constant.by, constant.index) != (head, 1)
    }
    second = net.operators[head].inputs[1]
    return ({second, net.behind.get(second, second)} & schedule.loads.keys()) - others


def covered(
    schedule: GroupSteps, name: str, pieces: Sequence[StepBox], what: str, times: int | None
) -> Iterator[str]:
    """Problems unless boxes cover all of a tensor `times` times; None: at least once."""
    grid = times_covered(schedule.net.graph.shape(name), [piece.boxes for piece in pieces])
    least, most = (int(grid.min()), int(grid.max())) if grid.size else (times or 1, times or 1)
    if times is None and least < 1:
        yield f"{name!r} is not {what} whole"
    elif times is not None and (least, most) != (times, times):
        yield (
            f"{name!r} is {what} "
            + (f"{least} times" if least == most else f"{least} to {most} times")
            + f", must be {times}"
        )


# -- computation ---------------------------------------------------------------------------------------------


def computed_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems unless rows are computed whole, once but in bands, with every part of a sum added.

    Each part is added as often as the sum is finished.
    """
    finished: dict[str, list[Boxes]] = defaultdict(list)
    by_operator: dict[str, list[Computation]] = defaultdict(list)
    for _, piece in schedule.gathers:
        finished[piece.tensor].append(piece.boxes)
    for computation in schedule.computations:
        by_operator[computation.step.operator].append(computation)
        for piece in computation.pieces if computation.step.last else ():
            finished[piece.tensor].append(piece.boxes)
    mode = MODES[schedule.group.mode]
    repeats = gated.repeats(schedule) if mode.spills and not mode.chains else {}
    for name in sorted(schedule.produced):
        grid = times_covered(schedule.net.graph.shape(name), finished[name])
        others = tuple(k for k in range(grid.ndim) if k != row_axis(schedule.net.graph.shape(name)))
        rows = np.atleast_1d((grid > 0).any(axis=others))
        if grid.size and (rows != np.atleast_1d((grid > 0).all(axis=others))).any():
            yield f"{name!r}: of some rows only a part is computed"
        if mode.bands or mode.slices or mode.chains:
            continue  # bands repeat rows of slices, and leave out what nobody reads of them
        if (~rows[:-1] & rows[1:]).any():
            yield f"{name!r}: rows are left out"
        if grid.size and grid.max() > 1 and set(np.unique(grid)) - {0, *repeats.get(name, {1})}:
            yield f"{name!r}: some of it is computed {grid.max()} times"
    for op, computation in by_operator.items():
        call = schedule.net.calls[op]
        if call.attention is not None:
            yield from key_problems(op, computation, call)
        elif not all(one.whole_sum and one.step.inputs is None for one in computation):
            yield from _sums(schedule, op, computation)


def _sums(schedule: GroupSteps, op: str, computations: Sequence[Computation]) -> Iterator[str]:
    """Problems unless each input channel or row is added once per finished sum.

    Sums must be begun as often as they are finished.
    """
    shape, depth = schedule.net.graph.shape(schedule.net.makes[op][0]), computations[0].depth
    added: list[Boxes] = []
    begun: list[Boxes] = []
    for one in computations:
        boxes, inputs = one.pieces[0].boxes, one.step.inputs or (0, depth)
        starts, repeats = one.input_boxes
        added.append(Boxes(starts, (*boxes.extents, inputs[1] - inputs[0]), repeats))
        if one.step.last:
            added.append(
                Boxes(np.pad(boxes.starts, ((0, 0), (0, 1))), (*boxes.extents, depth), -boxes.weight)
            )
        if not one.whole_sum:
            begun.append(boxes._replace(weight=boxes.weight * (one.step.first - one.step.last)))
    if times_covered((*shape, depth), added).any():
        yield f"{op!r}: not every input channel or row is added to its sums just once"
    if times_covered(shape, begun).any():
        yield f"{op!r}: sums are not begun as often as they are finished"


def _band_rows(schedule: GroupSteps) -> Iterator[str]:
    """Problems of the claimed band rows: of a tiled group's head, or of the tallest output of bands."""
    net, mode, claimed = schedule.net, MODES[schedule.group.mode], schedule.group.band_rows
    least = most = max(net.height(op) for op in schedule.members)
    if mode.tiles:
        pieces = [piece for _, piece in schedule.gathers] + [
            piece for computation in schedule.computations for piece in computation.pieces
        ]
        least = most = max(
            (piece.height for piece in pieces if net.maker[piece.tensor] == schedule.members[0]), default=1
        )
    elif mode.bands:
        tallest = max((net.tensor(name).rows for name in schedule.stores), default=1)
        fewest_bands, most_bands = _bands(schedule)
        least, most = -(-tallest // most_bands), -(-tallest // fewest_bands)
    elif mode.spills:
        least, most = gated.band_rows(schedule)
    if not least <= claimed <= most:
        yield f"band rows: the plan says {claimed}, counted {most}" + (
            f" or fewer, down to {least}" if least < most else ""
        )


def rows_of_steps(schedule: GroupSteps, spans: dict[str, list[Span]]) -> Iterator[str]:
    """Problems unless each step of a line-buffered group makes the rows of the schedule in its bands.

    `spans`: by operator, the rows of every step in bands as high as claimed.
    """
    counted: dict[str, list[Span]] = defaultdict(list)
    for computation in schedule.computations:  # of a reduction that runs: rows of its operand
        if computation.step.inputs is not None:
            counted[computation.step.operator] += zip(
                *(of.tolist() for of in computation.inputs), strict=True
            )
    steps = [
        (computation.step.operator, computation.pieces)
        for computation in schedule.computations
        if computation.step.inputs is None
    ]
    for op, pieces in (*steps, *((op, (piece,)) for op, piece in schedule.gathers)):
        nonempty = [
            piece
            for piece in pieces
            if all(piece.extents) and (piece.row_axis is not None or schedule.net.height(op) == 1)
        ]
        if nonempty:
            counted[op] += zip(*(of.tolist() for of in schedule.result(op, nonempty).rows), strict=True)
    for op, wanted in spans.items():
        if op in counted and (others := sorted(set(counted[op]) ^ set(wanted))):
            first, stop = others[0]
            by = "are" if others[0] in wanted else "are not"
            yield (
                f"band rows: in bands of {schedule.group.band_rows}, rows {first} to {stop - 1} of {op!r} "
                f"{by} made in one step"
            )


def _bands(schedule: GroupSteps) -> tuple[int, int]:
    """(fewest, most) bands that the group can have been run in."""
    if schedule.group.weight_passes > 1:
        return schedule.group.weight_passes, schedule.group.weight_passes
    net = schedule.net
    read_inside = {net.maker.get(read.map) for op in schedule.members for read in net.reads[op]}
    fewest, most = 1, max((net.tensor(name).rows for name in schedule.stores), default=1)
    for name, pieces in schedule.stores.items():
        # each band makes the next rows of it, as long as there are any
        if net.maker[name] not in read_inside:
            times = len(np.unique(np.concatenate([piece.first_row for piece in pieces])))
            fewest = max(fewest, times)
            if times < net.tensor(name).rows:
                most = min(most, times)
    return fewest, most
