"""A Compute of a plan as the EXEC commands that do it: which operation, on which rings, scaled how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from codegen.accel.chip import Ring
from codegen.accel.constants import is_depthwise, is_narrow, matrix_shape
from codegen.accel.job import Job, Parameters, Site, Spread, Window, refused
from codegen.accel.maps import Extent, blocks, dimensions, extent
from codegen.accel.runs import Run, Words
from codegen.source import Unsupported
from lfopt.ir import Compute, Tensor
from lfopt.isa.tables import Operation, Scale
from lfopt.ops import Call, row_of, spec
from lfopt.ops.fixed_point import limits
from lfopt.ops.footprint import footprints
from lfopt.ops.integer import (
    CHOICE,
    EXTREME,
    MEAN,
    MOVE,
    PRODUCT,
    SUMS,
    TABLE,
    TERMS,
    Arithmetic,
    arithmetic,
    arithmetics,
    mean_factors,
    product_factors,
    recoding,
    sum_terms,
    table,
    window_counts,
)
from lfopt.ops.parameter_data import clamps
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.reducing import folded_elements
from lfopt.ops.windows import windows


def runs_of(site: Site, call: Call, step: Compute) -> list[Run]:
    """The commands of a Compute. Raises Unsupported for what the accelerator does not do."""
    how = arithmetic(call) if call.result_tensors[0].quantization is not None else None
    method = METHODS.get(how) if how is not None else None
    if method is None or len(step.boxes) != 1:
        raise refused(call, _other_arithmetic(how.value if how else f"that of {call.result_tensors[0].dtype}"))
    if not method.does(call.operator.kind):
        raise refused(call, method.accepted)
    result = call.result_tensors[0]
    box = extent(result, step.boxes[0])
    if not (box.depth and box.height and box.width):
        return []
    if step.last:
        site.chip.write(result.name, result, box, step.places[0], box.rows[0])
    else:
        site.chip.write(result.name, result, box, step.sums, box.rows[0], sums=True)
    return [run for job in method.jobs(site, call, step, box) for run in job.runs()]


def refusal(kind: str) -> str | None:
    """Why the accelerator does no operator of that kind, whatever its operands; None if it does some."""
    methods = [METHODS[how] for how in arithmetics(spec(kind)) if how in METHODS]
    if any(method.does(kind) for method in methods):
        return None
    return methods[0].accepted if methods else _other_arithmetic(spec(kind).integers.value)


def _other_arithmetic(found: str) -> str:
    return f"its arithmetic is {found}; the accelerator does {', '.join(sorted(how.value for how in METHODS))}"


def _sliding(call: Call, box: Extent | None = None) -> Window:
    """The window of a convolution or pool in two dimensions; of a pool, without what meets the map nowhere in the box (kernels may be far larger)."""
    if len(call.result) != 4:
        raise refused(call, f"found {len(call.result) - 2} spatial axes; the accelerator does 2")
    rows, columns = windows(call)
    if rows.dilation != columns.dilation and min(rows.kernel, columns.kernel) > 1:
        raise refused(call, f"found dilations {rows.dilation} and {columns.dilation}; the accelerator has one for both axes")
    dilation = rows.dilation if rows.kernel > 1 else columns.dilation
    stride_rows, stride_columns = (found.stride if found.size_out > 1 else 1 for found in (rows, columns))  # a single window does not move
    if box is not None:
        rows, columns = rows.trimmed(box.rows), columns.trimmed(box.columns)
    return Window(rows.kernel, columns.kernel, stride_rows, stride_columns, dilation, rows.pad, columns.pad)


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
    kind = call.operator.kind
    if not call.constant[1] or (kind == "Gemm" and (call.attribute("transA", 0) or len(call.shape(0)) != 2)):
        raise refused(call, METHODS[SUMS].accepted)
    outputs, inputs, _, _ = matrix_shape(call)
    group = call.attribute("group", 1)
    if group > 1 and not (inputs == 1 and group == outputs):
        raise refused(call, f"found {group} groups of {inputs} channels; the accelerator does 1 group, or as many as channels in and out")
    depthwise = is_depthwise(call)
    lanes = site.lanes
    if box.channels[0] % lanes:
        raise refused(call, f"its steps make channels from {box.channels[0]} on; accepted: multiples of {lanes}")
    window = _sliding(call) if kind == "Conv" else Window()
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=None if depthwise else step.inputs))
    second = call.tensors[1]
    assert second is not None
    values = {**_read(seen), **_read(second, "b"), **_made(call.result_tensors[0]), "scale": Scale.CHANNEL}
    at = site.parameters.get(call.operator.name, Parameters())
    values["factors"] = at.factors
    if not depthwise:
        values["in_blocks"], values["in_tail"] = blocks(part.depth, lanes)
        values["narrow"] = int(is_narrow(call, lanes))
    weights = site.weights(call, step)
    first, count = box.channels[0] // lanes, blocks(box.depth, lanes)[0]
    factor_words = [(site.factor_words + at.factors + first, count)] if step.last else []
    operation = Operation.DEPTHWISE if depthwise else Operation.CONV
    yield Job(site, call, step, box, operation, values, a, part, seen, window, weights=weights, reads=factor_words)


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
    yield Job(site, call, step, box, Operation.COPY, values, a, part, seen, Window(), reads=reads)


def _terms(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    if len(call.tensors) != 2:
        raise refused(call, f"found {len(call.tensors)} operands; the accelerator adds 2")
    (a, part, seen), (b, _, b_seen) = (site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1))
    if dimensions(seen) != dimensions(b_seen):
        raise refused(call, f"found operands {list(seen.shape)} and {list(b_seen.shape)}; the accelerator adds maps of one shape")
    found = sum_terms(call)
    values = {**_read(seen), **_read(b_seen, "b"), **_made(call.result_tensors[0]), **_scaled(1, found.shift)}
    values |= {"a_multiplier": found.multipliers[0], "b_multiplier": found.multipliers[1]}
    yield Job(site, call, step, box, Operation.ADD, values, a, part, seen, Window(), b=_level(call, b))


def _product(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    found = [site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1)]
    if dimensions(found[0][2]) != dimensions(call.result_tensors[0]):
        found.reverse()  # the second is the one that may be smaller
    (a, part, seen), (b, _, b_seen) = found
    shape, other = dimensions(call.result_tensors[0]), dimensions(b_seen)
    vector = other == (shape[0], 1, 1) and shape[1:] != (1, 1)
    if dimensions(seen) != shape or (other != shape and not vector):
        accepted = "maps of one shape, or a map by a vector of its channels"
        raise refused(call, f"found operands {[list(tensor.shape) for _, _, tensor in found]}; the accelerator multiplies {accepted}")
    factor = product_factors(call)
    values = {
        **_read(seen),
        **_read(b_seen, "b"),
        **_made(call.result_tensors[0]),
        **_scaled(factor.multiplier, factor.shift),
        "b_vector": int(vector),
    }
    yield Job(site, call, step, box, Operation.MUL, values, a, part, seen, Window(), b=_still(b) if vector else _level(call, b))


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
        window = _sliding(call, box)
        for rows, columns in _alike(counts):
            factor = mean_factors(call, np.array(counts[rows[0], columns[0]]))
            values = {**_read(seen), **_made(result), **_scaled(factor.multiplier, factor.shift)}
            here = Extent(box.channels, tuple(box.rows[0] + y for y in rows), tuple(box.columns[0] + x for x in columns))  # type: ignore[arg-type]
            yield Job(site, call, step, here, Operation.SUM, values, a, part, seen, window, out_channels=box.channels)
        return
    factor = mean_factors(call, np.array(folded_elements(call)))
    values = {**_read(seen), **_made(result), **_scaled(factor.multiplier, factor.shift)}
    yield Job(site, call, step, box, Operation.SUM, values, a, part, seen, _everything(call, part))


def _alike(counts: np.ndarray) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Rectangles of equal counts, as (rows, columns) from start to stop."""

    def runs(same: Callable[[int], bool], size: int) -> list[tuple[int, int]]:
        cuts = [0, *(k for k in range(1, size) if not same(k)), size]
        return list(pairwise(cuts))

    height, width = counts.shape
    rows = runs(lambda k: bool((counts[k] == counts[k - 1]).all()), height)
    columns = runs(lambda k: bool((counts[:, k] == counts[:, k - 1]).all()), width)
    return [(r, c) for r in rows for c in columns]


def _everything(call: Call, part: Extent) -> Window:
    """The window of a reduction over rows and columns."""
    axes = reduced_axes(call)
    if axes != frozenset({2, 3}):
        raise refused(call, f"found axes {sorted(axes) if axes is not None else None}; the accelerator folds rows and columns together")
    return Window(part.height, part.width, pad_rows=-part.rows[0], pad_columns=-part.columns[0])


def _extreme(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    if len([name for name in call.operator.outputs if name]) > 1:
        raise refused(call, METHODS[EXTREME].accepted)
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=step.inputs))
    window = _sliding(call, box) if row_of(call).slides else _everything(call, part)
    values = _untouched(seen)
    tables = site.parameters.get(call.operator.name, Parameters()).tables
    reads = _through(site, values, tables[0] if tables else None)
    yield Job(site, call, step, box, Operation.MAX, values, a, part, seen, window, reads=reads)


def _choice(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    """Concat of channels: one copy for each operand."""
    axis = call.attribute("axis", 1) % len(call.result)
    if axis != 1:
        raise refused(call, METHODS[CHOICE].accepted)
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
            yield Job(site, call, step, here, Operation.COPY, values, a, part, seen, Window(), out_channels=(low, high), reads=reads)
        start += depth


def _move(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    """Resize to the nearest element, by whole factors."""
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes))
    (_, height, width), (_, rows, columns) = dimensions(seen), dimensions(call.result_tensors[0])
    nearest = call.attribute("mode", "nearest") == "nearest"
    plain = call.attribute("coordinate_transformation_mode", "half_pixel") == "asymmetric" and call.attribute("nearest_mode", "") == "floor"
    if not nearest or not plain or rows % height or columns % width:
        raise refused(call, METHODS[MOVE].accepted)
    down, right = rows // height, columns // width
    if box.columns != (0, columns):
        raise refused(call, "its steps make parts of rows")
    tables = site.parameters.get(call.operator.name, Parameters()).tables
    for y in range(*box.rows):
        for phase in range(right):
            values = _untouched(seen)
            reads = _through(site, values, tables[0] if tables else None)
            here = Extent(box.channels, (y // down, y // down + 1), (0, width))
            yield Job(site, call, step, here, Operation.COPY, values, a, part, seen, Window(), reads=reads, spread=Spread(y, down, right, phase))


class Method(NamedTuple):
    """What the accelerator does of one arithmetic."""

    jobs: Callable[[Site, Call, Compute, Extent], Iterator[Job]]
    kinds: frozenset[str] = frozenset()  # operators that it does; empty: all of that arithmetic
    accepted: str = ""  # said of all others

    def does(self, kind: str) -> bool:
        """Whether it does some operators of that kind."""
        return not self.kinds or kind in self.kinds


METHODS: dict[Arithmetic, Method] = {
    SUMS: Method(
        _sums,
        frozenset({"Conv", "Gemm", "MatMul"}),
        "the accelerator does Conv, and Gemm and MatMul of one row by constant weights",
    ),
    TABLE: Method(_table),
    TERMS: Method(_terms),
    PRODUCT: Method(_product),
    MEAN: Method(_mean),
    EXTREME: Method(
        _extreme,
        frozenset({"MaxPool", "GlobalMaxPool", "ReduceMax"}),
        "the accelerator finds the largest elements, without their places",
    ),
    CHOICE: Method(_choice, frozenset({"Concat"}), "the accelerator lays maps side by side by channels"),
    MOVE: Method(
        _move,
        frozenset({"Resize"}),
        "the accelerator moves elements by Resize to the nearest one, asymmetric, rounded down, by whole factors",
    ),
}
