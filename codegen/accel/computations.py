"""A Compute of a plan as the EXEC commands that do it: which operation, on which rings, scaled how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from codegen.accel.chip import RowRing
from codegen.accel.constants import pieces_of_groups
from codegen.accel.job import BoxOperation, RequantParameters, Site, Spread, refused, still
from codegen.accel.maps import Extent, dimensions, extent
from codegen.accel.runs import IssuedCommand, Words
from codegen.layout import tensor_of
from codegen.source import Unsupported
from lfopt.ir import Compute, Span, Tensor
from lfopt.isa.tables import WINDOW, Scale
from lfopt.ops import Call, row_of
from lfopt.ops.arithmetic import CHOICE, EXTREME, MEAN, MOVE, PRODUCT, SUMS, TABLE, TERMS, arithmetic
from lfopt.ops.fixed_point import limits
from lfopt.ops.footprint import footprints
from lfopt.ops.reducing import folded_elements
from lfopt.ops.scaling import mean_factors, product_factors, recoding, sum_terms, window_counts
from lfopt.ops.stages import TableStage, stage_steps, stages
from lfopt.ops.stored import quantization, zero_of
from lfopt.ops.traits import Arithmetic
from lfopt.planning.accelerator.commands import (
    SpatialWindow,
    blocks,
    contraction_loops,
    is_depthwise,
    phases,
    refusal,
    sliding,
)
from lfopt.planning.accelerator.lanes import channel_runs, copies


def runs_of(site: Site, call: Call, step: Compute) -> list[IssuedCommand]:
    """The commands of a Compute: of each of its stages, all of which put their results in its place.

    Raises Unsupported for what is not done.
    """
    if len(step.boxes) != 1:
        if (reason := refusal(call)) is not None:
            raise refused(call, reason)
        parts = (
            replace(step, boxes=(box,), places=(place,))
            for box, place in zip(step.boxes, step.places, strict=True)
        )
        return [
            run
            for part, result in zip(parts, call.result_tensors, strict=True)
            for run in _made_by(site, call, part, result)
        ]
    return _made_by(site, call, step, call.parts[-1].result_tensors[0])


def _made_by(site: Site, call: Call, step: Compute, result: Tensor) -> list[IssuedCommand]:
    """The commands that make one of the results."""
    box = extent(result, step.boxes[0])
    if not (box.depth and box.height and box.width):
        return []
    site.written = result.name
    site.lying = ""
    commands: list[IssuedCommand] = []
    passes = stages(call)
    for stage, one in zip(passes, stage_steps(step, passes), strict=False):
        if (reason := refusal(stage.call) or _not_lying(site, call, stage)) is not None:
            raise refused(stage.call, reason)
        if not site.lying:
            place, sums = (step.places[0], False) if step.last else (step.accumulator, True)
            site.chip.write(result.name, step.boxes[0], place, box.rows[0], sums=sums)
        commands += [
            run for job in METHODS[arithmetic(stage.call)](site, stage, one, box) for run in job.runs()
        ]
        site.lying = stage.result
    return commands


def _not_lying(site: Site, call: Call, stage: TableStage) -> str | None:
    """Why a stage cannot be computed in the place of the result; None if it can.

    A stage reads an operand in flight only while that lies there.
    """
    flying = {part.operator.outputs[0] for part in call.parts} - {site.lying}
    gone = next((name for name in stage.call.operator.inputs if name in flying), None)
    if gone is None:
        return None
    return (
        f"reads {gone!r}, made in flight, after {site.lying!r} has taken its place; the accelerator has "
        "one value in flight; accepted: scheme auto"
    )


def _read(tensor: Tensor, letter: str = "a") -> dict[str, int]:
    """Fields of a descriptor: zero point and type of an operand.

    Raises Unsupported for several zero points.
    """
    by = quantization(tensor)
    if len(set(by.zero_point)) > 1:
        raise Unsupported(f"tensor {tensor.name!r}: found several zero points; the accelerator accepts one")
    return {f"{letter}_zero": by.zero_point[0], f"{letter}_unsigned": int(tensor.dtype == "uint8")}


def _made(tensor: Tensor) -> dict[str, int]:
    """Fields of a descriptor: zero point and bounds of a result."""
    low, high = limits(tensor.dtype)
    return {"o_zero": zero_of(tensor), "low": low, "high": high}


def _scaled(multiplier: np.ndarray | int, shift: np.ndarray | int) -> dict[str, int]:
    """Fields of a descriptor: one factor for all channels."""
    return {"scale": Scale.SCALAR, "multiplier": int(multiplier), "shift": int(shift)}


def _untouched(tensor: Tensor) -> dict[str, int]:
    """Fields of a descriptor: bytes as they are."""
    low, high = limits(tensor.dtype)
    return {"scale": Scale.NONE, "low": low, "high": high, "a_unsigned": int(tensor.dtype == "uint8")}


def _through(site: Site, values: dict[str, int], number: int) -> list[Words]:
    """Send the result through a table; what that reads."""
    values |= {"has_table": 1, "table_id": number}
    return [(site.table_words + number, 1)]


def _behind(site: Site, values: dict[str, int], stage: TableStage) -> list[Words]:
    """Send the result through the table of a stage, if it has one, or clamp it; what that reads."""
    if stage.table is None:
        return []
    if stage.holder:
        return _through(site, values, site.parameters[stage.holder].tables[0])
    values |= {"low": int(stage.table.min()), "high": int(stage.table.max())}
    return []


# -- one function for each arithmetic ------------------------------------------------------------------------


def _sums(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    """Conv, and Gemm or MatMul by a constant matrix."""
    call = stage.call
    lanes = site.lanes
    depthwise = is_depthwise(call)
    if box.channels[0] % lanes:
        raise refused(
            call, f"its steps make channels from {box.channels[0]} on; accepted: multiples of {lanes}"
        )
    if call.operator.kind == "ConvTranspose":
        yield from _scattered(site, stage, step, box)
        return
    window = sliding(call) if call.operator.kind == "Conv" else SpatialWindow()
    needed = footprints(call, 0, step.boxes, inputs=None if depthwise else step.inputs)
    alone = depthwise or call.attribute("group", 1) == 1
    if not alone and not (step.first and step.last):
        raise refused(call, "its steps fold parts of the channels of a group; accepted: all of them")
    for output, read in [(box.channels, needed[1])] if alone else _grouped(call, box.channels, lanes):
        a_lane = read[0] % lanes if not alone else 0
        o_lane = output[0] % lanes
        a, part, seen = site.operand(call, 0, (needed[0], (read[0] - a_lane, read[1]), *needed[2:]))
        values = _summed(site, call, seen)
        if not depthwise:
            values["in_blocks"], values["in_tail"] = blocks(part.depth, lanes)
            values["narrow"] = int(contraction_loops(call).narrow(lanes, WINDOW) and not a_lane)
            values |= {"a_lane": a_lane, "o_lane": o_lane}
        weights = site.weights(call, step, output, 0)
        here = Extent((output[0] - o_lane, output[1]), box.rows, box.columns)
        reads = [_factor_rows(site, values, here), *_behind(site, values, stage)] if step.last else []
        yield BoxOperation(
            site, call, step, here, values, a, part, seen, window, weights=weights, reads=reads
        )


def _summed(site: Site, call: Call, seen: Tensor) -> dict[str, int]:
    """Fields of what sums products of an operand with constants."""
    factors = site.parameters.get(call.operator.name, RequantParameters()).factors
    return {
        **_read(seen),
        **_read(tensor_of(call, 1), "b"),
        **_made(call.result_tensors[0]),
        "scale": Scale.CHANNEL,
        "factors": factors,
    }


def _factor_rows(site: Site, values: dict[str, int], box: Extent) -> Words:
    """The factors of the channels that are made."""
    return site.factor_words + values["factors"] + box.channels[0] // site.lanes, blocks(
        box.depth, site.lanes
    )[0]


def _scattered(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    """ConvTranspose: a convolution for each of its phases, whose results lie its strides apart."""
    call = stage.call
    lanes = site.lanes
    if not (step.first and step.last):
        raise refused(call, "its steps fold parts of its input channels; accepted: all of them")
    needed = footprints(call, 0, step.boxes)
    if all(start < stop for start, stop in needed):
        a, part, seen = site.operand(call, 0, needed)
    else:  # rows between those of the operand: windows that lie in the padding
        seen = site.tensors[call.operator.inputs[0]]
        a = RowRing(0, 1, 1, 1, 0, 0, 0, 1)
        part = Extent((0, dimensions(seen)[0]), (0, 0), (0, 0))
    for number, phase in enumerate(phases(call)):
        rows, columns = phase.inside(box.rows, box.columns)
        here = Extent(box.channels, rows, columns)
        if rows[0] >= rows[1] or columns[0] >= columns[1]:
            continue
        window = phase.window
        if not (window.rows and window.columns):  # no element of the kernel: a window in the padding above
            window = SpatialWindow(pad_rows=rows[1])
        values = _summed(site, call, seen)
        values["in_blocks"], values["in_tail"] = blocks(part.depth, lanes)
        values["narrow"] = int(window.columns > 1 and part.depth * WINDOW <= lanes)
        reads = [_factor_rows(site, values, here), *_behind(site, values, stage)]
        spread = Spread(phase.down, phase.right, phase.row, phase.column)
        weights = site.weights(call, step, box.channels, number)
        yield BoxOperation(
            site, call, step, here, values, a, part, seen, window, weights=weights, reads=reads, spread=spread
        )


def _grouped(call: Call, channels: Span, lanes: int) -> list[tuple[Span, Span]]:
    """(output channels, input channels) of the commands of a grouped convolution.

    Whole blocks of lanes of a group are one command, others are commands of their own.
    """
    group = call.attribute("group", 1)
    outputs = call.result[1] // group
    read = call.shape(0)[1] // group
    pairs: list[tuple[Span, Span]] = []
    for start, stop in pieces_of_groups(call, channels, lanes):
        inputs = (start // outputs * read, (start // outputs + 1) * read)
        if pairs and pairs[-1][1] == inputs and pairs[-1][0][0] % lanes == 0:
            pairs[-1] = (pairs[-1][0][0], stop), inputs
        else:
            pairs.append(((start, stop), inputs))
    return pairs


def _table(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    call = stage.call
    index = next(i for i, tensor in enumerate(call.tensors) if tensor is not None and not call.constant[i])
    a, part, seen = site.operand(call, index, footprints(call, index, step.boxes))
    values = _untouched(seen)
    reads = _behind(site, values, stage)
    yield BoxOperation(site, call, step, box, values, a, part, seen, SpatialWindow(), reads=reads)


def _terms(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    call = stage.call
    (a, part, seen), (b, _, b_seen) = (site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1))
    terms = sum_terms(call)
    values = {**_read(seen), **_read(b_seen, "b"), **_made(call.result_tensors[0]), **_scaled(1, terms.shift)}
    values |= {"a_multiplier": terms.multipliers[0], "b_multiplier": terms.multipliers[1]}
    reads = _behind(site, values, stage)
    yield BoxOperation(
        site, call, step, box, values, a, part, seen, SpatialWindow(), b=_level(call, b), reads=reads
    )


def _product(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    call = stage.call
    operands = [site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1)]
    if call.shape(0) != call.result:
        operands.reverse()  # the second is the one that may be smaller
    (a, part, seen), (b, _, b_seen) = operands
    vector = b_seen.shape != call.result
    factor = product_factors(call)
    values = {
        **_read(seen),
        **_read(b_seen, "b"),
        **_made(call.result_tensors[0]),
        **_scaled(factor.multiplier, factor.shift),
        "b_vector": int(vector),
    }
    reads = _behind(site, values, stage)
    yield BoxOperation(
        site,
        call,
        step,
        box,
        values,
        a,
        part,
        seen,
        SpatialWindow(),
        b=still(b) if vector else _level(call, b),
        reads=reads,
    )


def _level(call: Call, ring: RowRing) -> RowRing:
    """A ring whose rows are numbered as the result's are."""
    if ring.shift % ring.slots:
        raise refused(call, "its second operand's rows are numbered from the middle of a ring")
    return ring


def _mean(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    call = stage.call
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=step.inputs))
    result = call.result_tensors[0]
    if row_of(call).slides:
        counts = np.broadcast_to(window_counts(call, step.boxes[0]), (box.height, box.width))
        window = sliding(call, (box.rows, box.columns))
        for rows, columns in _alike(counts):
            factor = mean_factors(call, np.array(counts[rows[0], columns[0]]))
            values = {**_read(seen), **_made(result), **_scaled(factor.multiplier, factor.shift)}
            reads = _behind(site, values, stage)
            here = Extent(
                box.channels,
                tuple(box.rows[0] + y for y in rows),  # type: ignore[arg-type]
                tuple(box.columns[0] + x for x in columns),  # type: ignore[arg-type]
            )
            yield BoxOperation(site, call, step, here, values, a, part, seen, window, reads=reads)
        return
    factor = mean_factors(call, np.array(folded_elements(call)))
    values = {**_read(seen), **_made(result), **_scaled(factor.multiplier, factor.shift)}
    yield _folded(site, stage, step, box, values, a, part, seen)


def _alike(counts: np.ndarray) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Rectangles of equal counts, as (rows, columns) from start to stop."""

    def runs(same: Callable[[int], bool], size: int) -> list[tuple[int, int]]:
        cuts = [0, *(k for k in range(1, size) if not same(k)), size]
        return list(pairwise(cuts))

    height, width = counts.shape
    rows = runs(lambda k: bool((counts[k] == counts[k - 1]).all()), height)
    columns = runs(lambda k: bool((counts[:, k] == counts[:, k - 1]).all()), width)
    return [(r, c) for r in rows for c in columns]


def _folded(
    site: Site,
    stage: TableStage,
    step: Compute,
    box: Extent,
    values: dict[str, int],
    a: RowRing,
    part: Extent,
    seen: Tensor,
) -> BoxOperation:
    """A reduction over rows and columns, or over a band of the rows.

    Commands count rows as the operand does, so that those of all bands are alike.
    """
    window = SpatialWindow(part.height, part.width, pad_columns=-part.columns[0])
    reads = _behind(site, values, stage) if step.last else []
    return BoxOperation(
        site,
        stage.call,
        step,
        box,
        values,
        a,
        part,
        seen,
        window,
        reads=reads,
        from_row=part.rows[0] - box.rows[0],
    )


def _extreme(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    call = stage.call
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=step.inputs))
    values = _untouched(seen)
    if not row_of(call).slides:
        yield _folded(site, stage, step, box, values, a, part, seen)
        return
    window = sliding(call, (box.rows, box.columns))
    yield BoxOperation(
        site, call, step, box, values, a, part, seen, window, reads=_behind(site, values, stage)
    )


def _choice(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    """Concat along channels."""
    call = stage.call
    tables = iter(site.parameters.get(call.operator.name, RequantParameters()).tables)
    recoded = [
        tensor is not None and recoding(tensor, call.result_tensors[0]) is not None for tensor in call.tensors
    ]
    numbers = [next(tables) if needed else None for needed in recoded]
    yield from _copied(
        site,
        call,
        step,
        box,
        lambda values, index: [] if (number := numbers[index]) is None else _through(site, values, number),
    )


def _move(site: Site, stage: TableStage, step: Compute, box: Extent) -> Iterator[BoxOperation]:
    """Split, Slice and Gather along channels, and Resize to the nearest element by whole factors."""
    call = stage.call
    if call.operator.kind != "Resize":
        yield from _copied(
            site,
            call,
            step,
            box,
            lambda values, _: (
                _behind(site, values, stage) if len(call.results) == 1 else _recoded(site, values, call)
            ),
        )
        return
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes))
    (_, height, width), (_, rows, columns) = dimensions(seen), dimensions(call.result_tensors[0])
    down = rows // height
    right = columns // width
    if box.columns != (0, columns):
        raise refused(call, "its steps make parts of rows")
    for y in range(*box.rows):
        for phase in range(right):
            values = _untouched(seen)
            reads = _behind(site, values, stage)
            here = Extent(box.channels, (y // down, y // down + 1), (0, width))
            yield BoxOperation(
                site,
                call,
                step,
                here,
                values,
                a,
                part,
                seen,
                SpatialWindow(),
                reads=reads,
                spread=Spread(down, right, y % down, phase),
            )


def _recoded(site: Site, values: dict[str, int], call: Call) -> list[Words]:
    """Send one of several results through its table, if it has one; what that reads."""
    first = tensor_of(call, 0)
    tables = iter(site.parameters.get(call.operator.name, RequantParameters()).tables)
    numbers = {
        result.name: next(tables) for result in call.result_tensors if recoding(first, result) is not None
    }
    if site.written in numbers:
        return _through(site, values, numbers[site.written])
    return []


def _copied(
    site: Site, call: Call, step: Compute, box: Extent, through: Callable[[dict[str, int], int], list[Words]]
) -> Iterator[BoxOperation]:
    """Channels of a result, each from one of an operand.

    `through`: sends them through the table of that operand; what that reads.
    """
    lanes = site.lanes
    result = next(
        k
        for k, tensor in enumerate(call.result_tensors)
        if tensor.name == site.written or len(call.results) == 1
    )
    depth = call.results[result][1]
    if box.channels[0] % lanes or (box.channels[1] % lanes and box.channels[1] != depth):
        raise refused(call, f"its steps make channels {box.channels}; accepted: multiples of {lanes}")
    runs = channel_runs(call, result)
    assert runs is not None
    for copy in copies(runs, box.channels, lanes):
        shape = call.shape(copy.operand)
        read = copy.from_block * lanes, min((copy.from_block + copy.blocks) * lanes, shape[1])
        a, part, seen = site.operand(call, copy.operand, ((0, 1), read, *step.boxes[0][2:]))
        values = _untouched(seen)
        if (copy.size, copy.o_step, copy.a_step) != (lanes, 1, 1):
            values |= {
                "lanes": copy.size,
                "o_lane": copy.o_lane,
                "a_lane": copy.a_lane,
                "o_lane_step": copy.o_step,
                "a_lane_step": copy.a_step,
            }
        reads = through(values, copy.operand)
        first = copy.to_block * lanes
        stop = (copy.to_block + copy.blocks) * lanes - (lanes - copy.tail if copy.tail else 0)
        here = Extent((first, min(stop, depth)), box.rows, box.columns)
        yield BoxOperation(site, call, step, here, values, a, part, seen, SpatialWindow(), reads=reads)


METHODS: dict[Arithmetic, Callable[[Site, TableStage, Compute, Extent], Iterator[BoxOperation]]] = {
    SUMS: _sums,
    TABLE: _table,
    TERMS: _terms,
    PRODUCT: _product,
    MEAN: _mean,
    EXTREME: _extreme,
    CHOICE: _choice,
    MOVE: _move,
}
