"""Groups that claim to run in strips of columns: what each strip needs follows from what it stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, DramBytes, Span, cut, round_up, row_axis, whole
from simulator.recount.groups import LineBuffered, moved_once, run_line_buffered
from simulator.recount.network import MapOperand, RecountNetwork
from simulator.recount.progressions import Boxes, times_covered
from simulator.recount.schedule import GroupSteps, StepBox, describe
from simulator.recount.traffic import covered, parameter_problems, rows_of_steps

WITH_COLUMNS = (4, 5)  # ranks of the maps that strips cut, along their last axis


class Strips(NamedTuple):
    """Spans of columns per map and strip: those on chip, and those of results stored."""

    has: Mapping[str, Sequence[Span]]
    stores: Mapping[str, Sequence[Span]]
    ran: LineBuffered  # rows, in each of the strips
    once: frozenset[str]  # maps that are loaded, or made, for the first strip alone

    def widest(self, name: str) -> int:
        """Columns of the widest strip of a map."""
        return max(stop - start for start, stop in self.has[name])


def columns(net: RecountNetwork, name: str) -> int:
    """Columns into which a map may be cut; 1 where it is not."""
    shape = net.graph.shape(name)
    return shape[-1] if len(shape) in WITH_COLUMNS else 1


def strips_of(schedule: GroupSteps) -> Strips | str:
    """Strips of a group, by its stores; or why there are none."""
    net, members = schedule.net, schedule.members
    stores: dict[str, list[Span]] = {}
    for name in sorted(name for name in schedule.produced if net.needed_outside(name, members)):
        spans = sorted({span for piece in schedule.stores.get(name, ()) for span in _spans(piece)})
        ends = [0, *(stop for _, stop in spans)]
        if [start for start, _ in spans] != ends[:-1] or ends[-1] != columns(net, name) or len(spans) < 2:
            return (
                f"what is stored of {name!r}, columns {spans[:4]} and so on, "
                "does not make strips of all of it"
            )
        stores[name] = spans
    count = {len(spans) for spans in stores.values()}
    if len(count) != 1:
        return f"its results are stored in {' and '.join(map(str, sorted(count)))} strips"
    has: dict[str, list[Span]] = {}
    # per map: what each reader needs of it, strip by strip
    needed: dict[str, list[list[Span]]] = defaultdict(list)
    for name, spans in stores.items():
        needed[name].append(spans)
    for op in reversed(members):
        results = net.makes[op]
        wanted_spans = [spans for name in results for spans in needed[name]]
        if not wanted_spans:
            continue
        together = _without_gaps(
            [_hull(of) for of in zip(*wanted_spans, strict=True)], columns(net, results[0])
        )
        has.update(dict.fromkeys(results, together))
        for read in net.reads[op]:
            needed[read.map].append([_needed(net, read, span) for span in together])
    for name, wanted_spans in needed.items():
        if name not in schedule.produced:
            has[name] = _without_gaps(
                [_hull(of) for of in zip(*wanted_spans, strict=True)], columns(net, name)
            )
    for name, spans in has.items():
        if any(start >= stop for start, stop in spans):
            return f"a strip has nothing of {name!r}"
    ran = run_line_buffered(net, members)
    return Strips(has, stores, ran, frozenset(_once(net, members, ran.rings)))


def _once(net: RecountNetwork, members: Sequence[str], rings: Mapping[str, int]) -> Iterator[str]:
    """Maps that are needed for the first strip alone.

    A map of one column of which all rows are held stays until the end; so what is read for such maps alone is
    needed once.
    """
    stay = {name for name, rows in rings.items() if columns(net, name) == 1 and rows >= net.tensor(name).rows}
    needed = {name for op in members for name in net.makes[op] if net.needed_outside(name, members)}
    inputs = {read.map for op in members for read in net.reads[op]} - {
        name for op in members for name in net.makes[op]
    }
    for op in reversed(members):
        if needed & set(net.makes[op]) - stay:
            needed.update(read.map for read in net.reads[op])
        else:
            yield from net.makes[op]
    yield from inputs - (needed - stay)


def _spans(piece: StepBox) -> set[Span]:
    """Spans of columns of a box in all its runs."""
    start, stop = piece.part(len(piece.extents) - 1)
    return {*zip(np.asarray(start).tolist(), np.asarray(stop).tolist(), strict=True)}


def _needed(net: RecountNetwork, read: MapOperand, span: Span) -> Span:
    """Columns of a map that a read takes for a span of result columns, by the operator table's box rules."""
    call, every = net.calls[read.by], columns(net, read.map)
    if every == 1 or net.graph.shape(read.seen) != net.graph.shape(read.map):
        return 0, every
    numbers = [k for k, name in enumerate(call.operator.outputs) if name]
    boxes = ((k, cut(whole(shape), -1, span)) for k, shape in zip(numbers, call.results, strict=True))
    return _hull([net.specs[read.by].box(call, read.index, box, k, None)[-1] for k, box in boxes])


def _hull(spans: Sequence[Span]) -> Span:
    real = [span for span in spans if span[0] < span[1]] or spans[:1]
    return min(start for start, _ in real), max(stop for _, stop in real)


def _without_gaps(spans: Sequence[Span], every: int) -> list[Span]:
    """Strips extended to cover the map: a gap belongs to the later strip, the last ends with the map."""
    extended: list[Span] = []
    for k, (start, stop) in enumerate(spans):
        before = 0 if k == 0 else spans[k - 1][1]
        extended.append((0 if k == 0 else min(start, before), every if k == len(spans) - 1 else stop))
    return extended


# -- what they take and move ---------------------------------------------------------------------------------


def strip_places(schedule: GroupSteps, strips: Strips) -> set[tuple[str, int, int]]:
    """(name, slots, bytes of a slot) of rings as wide as the widest strip, and of weights."""
    net, hardware = schedule.net, schedule.hardware
    rings = {name: rows for name, rows in strips.ran.rings.items() if rows}
    places = {
        (name, rows, hardware.row_bytes(net.tensor(name)) // columns(net, name) * strips.widest(name))
        for name, rows in rings.items()
    }
    for constant in (c for op in schedule.members for c in net.constants[op] if not c.gathered):
        places.add(
            (constant.name, 1, hardware.constant_bytes(constant.elements, bias=constant.name in net.biases))
        )
    return places


def strip_bytes(schedule: GroupSteps, strips: Strips) -> DramBytes:
    """DRAM bytes by class: each strip's columns of inputs and of results, and everything else once."""
    net, hardware = schedule.net, schedule.hardware

    def moved(name: str, spans: Sequence[Span]) -> int:
        tensor = net.tensor(name)
        row = prod(tensor.shape) // (tensor.rows * columns(net, name)) * hardware.element_bytes
        return sum(
            tensor.rows * round_up(row * (stop - start), hardware.dram_row_align) for start, stop in spans
        )

    once = moved_once(schedule.raw, schedule.operators, hardware)
    read = sum(moved(name, _taken(strips, name)) for name in once.inputs)
    return replace(
        once.dram, input=read, output=sum(moved(name, spans) for name, spans in strips.stores.items())
    )


def _taken(strips: Strips, name: str) -> Sequence[Span]:
    """Spans of columns of a map that are loaded or made, strip by strip."""
    return strips.has[name][:1] if name in strips.once else strips.has[name]


def recomputed_macs(schedule: GroupSteps, strips: Strips) -> Fraction:
    """Multiply-accumulates beyond those of the group's operators."""
    net, macs = schedule.net, Fraction(0)
    for op in schedule.members:
        name = net.makes[op][0]
        if strips.ran.spans[op]:
            columns_made = sum(stop - start for start, stop in _taken(strips, name))
            macs += Fraction(
                net.specs[op].macs(net.calls[op]) * (columns_made - columns(net, name)), columns(net, name)
            )
    return macs


# -- steps ---------------------------------------------------------------------------------------------------


def strip_problems(schedule: GroupSteps, strips: Strips) -> Iterator[str]:
    """Problems of loads, stores and computations: just the strips' columns of every map, row by row."""
    net = schedule.net
    yield from parameter_problems(schedule)
    for constant in sorted(schedule.constants):
        yield from covered(schedule, constant, schedule.loads.get(constant, ()), "loaded", 1)
    inputs = {read.map for _, read in schedule.external}
    for name in sorted(schedule.loads.keys() - inputs - schedule.constants):
        yield f"{name!r} is loaded, but who reads it has it under another name"
    for name in sorted(inputs):
        yield from _as_wanted(net, name, schedule.loads.get(name, ()), _taken(strips, name), "loaded")
    for name, spans in strips.stores.items():
        yield from _as_wanted(net, name, schedule.stores.get(name, ()), spans, "stored")
    computed: dict[str, list[StepBox]] = defaultdict(list)
    for computation in schedule.computations:
        if computation.step.inputs is not None or not computation.whole_sum:
            yield f"{describe(computation.leaf)}: strips have no partial results"
        if any(
            place < 0 and all(piece.extents)
            for place, piece in zip(computation.step.places, computation.pieces, strict=True)
        ):
            yield f"{describe(computation.leaf)}: what it makes has no place"
        for piece in computation.pieces:
            computed[piece.tensor].append(piece)
    for op, rows in strips.ran.spans.items():
        for name in net.makes[op] if rows else ():
            yield from _as_wanted(
                net,
                name,
                computed[name],
                _taken(strips, name),
                "computed",
                rows=min(rows[-1][1], net.tensor(name).rows),
            )
    yield from rows_of_steps(schedule, strips.ran.spans)


def _as_wanted(
    net: RecountNetwork,
    name: str,
    pieces: Sequence[StepBox],
    spans: Sequence[Span],
    what: str,
    rows: int | None = None,
) -> Iterator[str]:
    """Problems unless pieces of a map cover just these spans of columns, once each.

    `rows`: of the map that count, the first ones; None: all.
    """
    shape = net.graph.shape(name)
    wanted = [_on_columns(shape, span) for span in spans]
    if rows is not None and (axis := row_axis(shape)) is not None:
        wanted = [cut(box, axis, (0, rows)) for box in wanted]
    grid = times_covered(shape, [*(piece.boxes for piece in pieces), *(_box(box) for box in wanted)])
    if grid.any():
        yield (
            f"{name!r} is not {what} as its strips need it, "
            f"columns {spans[0][0]} to {spans[0][1] - 1} and so on"
        )


def _on_columns(shape: tuple[int, ...], span: Span) -> Box:
    return cut(whole(shape), -1, span) if len(shape) in WITH_COLUMNS else whole(shape)


def _box(box: Box) -> Boxes:
    return Boxes(
        np.array([[start for start, _ in box]], np.int64), tuple(stop - start for start, stop in box), -1
    )
