"""A Compute of a plan as the EXEC commands that do it: which operation, on which rings, scaled how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from codegen.accel.chip import Ring
from codegen.accel.job import Job, Parameters, Site, Spread, refused
from codegen.accel.maps import Extent, dimensions, extent
from codegen.accel.runs import Run, Words
from codegen.source import Unsupported
from lfopt.ir import Compute, Tensor
from lfopt.isa.tables import WINDOW, Scale
from lfopt.ops import Call, row_of
from lfopt.ops.arithmetic import CHOICE, EXTREME, MEAN, MOVE, PRODUCT, SUMS, TABLE, TERMS, arithmetic
from lfopt.ops.fixed_point import limits
from lfopt.ops.footprint import footprints
from lfopt.ops.parameter_data import clamps
from lfopt.ops.reducing import folded_elements
from lfopt.ops.scaling import mean_factors, product_factors, recoding, sum_terms, table, window_counts
from lfopt.ops.traits import Arithmetic
from lfopt.planning.commands import Window, blocks, contraction, is_depthwise, refusal, sliding


def runs_of(site: Site, call: Call, step: Compute) -> list[Run]:
    """The commands of a Compute. Raises Unsupported for what the accelerator does not do."""
    if (reason := refusal(call)) is not None:
        raise refused(call, reason)
    if len(step.boxes) != 1:
        raise refused(call, f"its steps make {len(step.boxes)} results; the accelerator makes 1")
    result = call.result_tensors[0]
    box = extent(result, step.boxes[0])
    if not (box.depth and box.height and box.width):
        return []
    if step.last:
        site.chip.write(result.name, result, box, step.places[0], box.rows[0])
    else:
        site.chip.write(result.name, result, box, step.sums, box.rows[0], sums=True)
    return [run for job in METHODS[arithmetic(call)](site, call, step, box) for run in job.runs()]


def _read(tensor: Tensor, letter: str = "a") -> dict[str, int]:
    """Zero point and type of an operand."""
    by = tensor.quantization
    assert by is not None
    if len(set(by.zero_point)) > 1:
        raise Unsupported(f"tensor {tensor.name!r}: found several zero points; the accelerator accepts one")
    return {f"{letter}_zero": by.zero_point[0], f"{letter}_unsigned": int(tensor.dtype == "uint8")}


def _made(tensor: Tensor) -> dict[str, int]:
    """Zero point and bounds of a result."""
    low, high = limits(tensor.dtype)
    assert tensor.quantization is not None
    return {"o_zero": tensor.quantization.zero_point[0], "low": low, "high": high}


def _scaled(multiplier: np.ndarray | int, shift: np.ndarray | int) -> dict[str, int]:
    """A scalar factor."""
    return {"scale": Scale.SCALAR, "multiplier": int(multiplier), "shift": int(shift)}


def _untouched(tensor: Tensor) -> dict[str, int]:
    """Bytes as they are."""
    low, high = limits(tensor.dtype)
    return {"scale": Scale.NONE, "low": low, "high": high, "a_unsigned": int(tensor.dtype == "uint8")}


def _through(site: Site, values: dict[str, int], number: int | None) -> list[Words]:
    """Send the result through a table; what that reads."""
    if number is None:
        return []
    values |= {"has_table": 1, "table_id": number}
    return [(site.table_words + number, 1)]


# -- one function for each arithmetic ------------------------------------------------------------------------------------------------------


def _sums(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    """Conv, and Gemm or MatMul by a constant matrix."""
    lanes, depthwise = site.lanes, is_depthwise(call)
    if box.channels[0] % lanes:
        raise refused(call, f"its steps make channels from {box.channels[0]} on; accepted: multiples of {lanes}")
    window = sliding(call) if call.operator.kind == "Conv" else Window()
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=None if depthwise else step.inputs))
    second = call.tensors[1]
    assert second is not None
    values = {**_read(seen), **_read(second, "b"), **_made(call.result_tensors[0]), "scale": Scale.CHANNEL}
    at = site.parameters.get(call.operator.name, Parameters())
    values["factors"] = at.factors
    if not depthwise:
        values["in_blocks"], values["in_tail"] = blocks(part.depth, lanes)
        values["narrow"] = int(contraction(call).narrow(lanes, WINDOW))
    weights = site.weights(call, step)
    first, count = box.channels[0] // lanes, blocks(box.depth, lanes)[0]
    factor_words = [(site.factor_words + at.factors + first, count)] if step.last else []
    yield Job(site, call, step, box, values, a, part, seen, window, weights=weights, reads=factor_words)


def _table(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    index = next(i for i, tensor in enumerate(call.tensors) if tensor is not None and not call.constant[i])
    a, part, seen = site.operand(call, index, footprints(call, index, step.boxes))
    entries = table(call)
    values = _untouched(seen)
    if clamps(entries, seen.dtype):
        values |= {"low": int(entries.min()), "high": int(entries.max())}
        reads: list[Words] = []
    else:
        reads = _through(site, values, site.parameters[call.operator.name].tables[0])
    yield Job(site, call, step, box, values, a, part, seen, Window(), reads=reads)


def _terms(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    (a, part, seen), (b, _, b_seen) = (site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1))
    found = sum_terms(call)
    values = {**_read(seen), **_read(b_seen, "b"), **_made(call.result_tensors[0]), **_scaled(1, found.shift)}
    values |= {"a_multiplier": found.multipliers[0], "b_multiplier": found.multipliers[1]}
    yield Job(site, call, step, box, values, a, part, seen, Window(), b=_level(call, b))


def _product(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    found = [site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1)]
    if call.shape(0) != call.result:
        found.reverse()  # the second is the one that may be smaller
    (a, part, seen), (b, _, b_seen) = found
    vector = b_seen.shape != call.result
    factor = product_factors(call)
    values = {
        **_read(seen),
        **_read(b_seen, "b"),
        **_made(call.result_tensors[0]),
        **_scaled(factor.multiplier, factor.shift),
        "b_vector": int(vector),
    }
    yield Job(site, call, step, box, values, a, part, seen, Window(), b=_still(b) if vector else _level(call, b))


def _level(call: Call, ring: Ring) -> Ring:
    """A ring whose rows are numbered as the result's are."""
    if ring.shift % ring.slots:
        raise refused(call, "its second operand's rows are numbered from the middle of a ring")
    return ring


def _still(ring: Ring) -> Ring:
    """The one row of a ring, wherever the result is."""
    base = ring.base + ring.shift % ring.slots * ring.slot_words
    return Ring(base, 1, ring.slot_words, ring.block_words, 0, ring.block, ring.column, ring.width)


def _mean(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=step.inputs))
    result = call.result_tensors[0]
    if row_of(call).slides:
        counts = np.broadcast_to(window_counts(call, step.boxes[0]), (box.height, box.width))
        window = sliding(call, (box.rows, box.columns))
        for rows, columns in _alike(counts):
            factor = mean_factors(call, np.array(counts[rows[0], columns[0]]))
            values = {**_read(seen), **_made(result), **_scaled(factor.multiplier, factor.shift)}
            here = Extent(box.channels, tuple(box.rows[0] + y for y in rows), tuple(box.columns[0] + x for x in columns))  # type: ignore[arg-type]
            yield Job(site, call, step, here, values, a, part, seen, window, out_channels=box.channels)
        return
    factor = mean_factors(call, np.array(folded_elements(call)))
    values = {**_read(seen), **_made(result), **_scaled(factor.multiplier, factor.shift)}
    yield Job(site, call, step, box, values, a, part, seen, _everything(part))


def _alike(counts: np.ndarray) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Rectangles of equal counts, as (rows, columns) from start to stop."""

    def runs(same: Callable[[int], bool], size: int) -> list[tuple[int, int]]:
        cuts = [0, *(k for k in range(1, size) if not same(k)), size]
        return list(pairwise(cuts))

    height, width = counts.shape
    rows = runs(lambda k: bool((counts[k] == counts[k - 1]).all()), height)
    columns = runs(lambda k: bool((counts[:, k] == counts[:, k - 1]).all()), width)
    return [(r, c) for r in rows for c in columns]


def _everything(part: Extent) -> Window:
    """The window of a reduction over rows and columns."""
    return Window(part.height, part.width, pad_rows=-part.rows[0], pad_columns=-part.columns[0])


def _extreme(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=step.inputs))
    window = sliding(call, (box.rows, box.columns)) if row_of(call).slides else _everything(part)
    values = _untouched(seen)
    tables = site.parameters.get(call.operator.name, Parameters()).tables
    reads = _through(site, values, tables[0] if tables else None)
    yield Job(site, call, step, box, values, a, part, seen, window, reads=reads)


def _choice(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    """Concat of channels: one copy for each operand."""
    tables = iter(site.parameters.get(call.operator.name, Parameters()).tables)
    start = 0
    for index, tensor in enumerate(call.tensors):
        assert tensor is not None
        depth = dimensions(tensor)[0]
        number = None if recoding(tensor, call.result_tensors[0]) is None else next(tables)
        low, high = max(box.channels[0], start), min(box.channels[1], start + depth)
        if low < high:
            if low % site.lanes or (low - start) % site.lanes:
                raise refused(call, f"operand {index} begins at channel {low} of the result; accepted: multiples of {site.lanes}")
            a, part, seen = site.operand(call, index, footprints(call, index, step.boxes))
            values = _untouched(seen)
            reads = _through(site, values, number)
            here = Extent((low - start, high - start), box.rows, box.columns)
            yield Job(site, call, step, here, values, a, part, seen, Window(), out_channels=(low, high), reads=reads)
        start += depth


def _move(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    """Resize that makes every row so many rows, and every column so many columns."""
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes))
    (_, height, width), (_, rows, columns) = dimensions(seen), dimensions(call.result_tensors[0])
    down, right = rows // height, columns // width
    if box.columns != (0, columns):
        raise refused(call, "its steps make parts of rows")
    tables = site.parameters.get(call.operator.name, Parameters()).tables
    for y in range(*box.rows):
        for phase in range(right):
            values = _untouched(seen)
            reads = _through(site, values, tables[0] if tables else None)
            here = Extent(box.channels, (y // down, y // down + 1), (0, width))
            yield Job(site, call, step, here, values, a, part, seen, Window(), reads=reads, spread=Spread(y, down, right, phase))


METHODS: dict[Arithmetic, Callable[[Site, Call, Compute, Extent], Iterator[Job]]] = {
    SUMS: _sums,
    TABLE: _table,
    TERMS: _terms,
    PRODUCT: _product,
    MEAN: _mean,
    EXTREME: _extreme,
    CHOICE: _choice,
    MOVE: _move,
}
