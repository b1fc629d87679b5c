"""A Compute of a plan as the EXEC commands that do it: which operation, on which rings, scaled how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from codegen.accel.chip import Chip, Ring
from codegen.accel.constants import is_depthwise, is_narrow, matrix_shape
from codegen.accel.maps import Extent, blocks, dimensions, extent
from codegen.accel.runs import Run, Words, numbers, payload
from codegen.source import Unsupported
from lfopt.ir import Box, Compute, Tensor
from lfopt.isa.tables import ACCUMULATORS, WINDOW, Opcode, Operation, Scale
from lfopt.ops import Call
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
    arithmetic,
    contraction,
    mean_factors,
    product_factors,
    sum_terms,
    table,
    window_counts,
)
from lfopt.ops.parameter_data import clamps
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.reducing import folded_elements
from lfopt.ops.windows import windows

BEHIND = "sums of "  # what the partial sums of a map are called on chip


@dataclass(frozen=True, slots=True)
class Parameters:
    """Where the parameters of an operator lie on chip."""

    factors: int = 0  # first row
    tables: tuple[int, ...] = ()  # numbers, in the order of `lfopt.ops.parameter_data`


@dataclass(slots=True)
class Weights:
    """Where the weights of a computation lie."""

    values: dict[str, int]  # fields of the descriptor
    number: int  # of the weights: the `slot` of the command
    reads: list[Words]


@dataclass(slots=True)
class Site:
    """What surrounds the computations of a group."""

    chip: Chip
    lanes: int
    tensors: Mapping[str, Tensor]  # maps and views by name
    behind: Mapping[str, str]  # the map behind a view
    parameters: Mapping[str, Parameters]  # by operator
    weights: Callable[[Call, Compute], Weights]  # where the weights of a computation lie, and its bias if it finishes the sums
    factor_words: int  # number of the first row of factors, as waits count words
    table_words: int  # of the first table

    def operand(self, call: Call, index: int, box: Box) -> tuple[Ring, Extent, Tensor]:
        """Where the box of an operand lies."""
        name = call.operator.inputs[index]
        seen = self.tensors[name]
        part = extent(seen, box)
        known = name if self.chip.knows(name) else self.behind.get(name, name)
        if known != name and dimensions(self.tensors[known]) != dimensions(seen):
            raise refused(
                call, f"reads {name!r}, {list(seen.shape)}, a view of {list(self.tensors[known].shape)}; it accepts views of maps of one pixel"
            )
        return self.chip.read(known, part), part, seen


def refused(call: Call, found: str) -> Unsupported:
    """An operator that the accelerator does not do."""
    return Unsupported(f"node {call.operator.name!r} ({call.operator.kind}): {found}")


def runs_of(site: Site, call: Call, step: Compute) -> list[Run]:
    """The commands of a Compute. Raises Unsupported for what the accelerator does not do."""
    how = arithmetic(call) if call.result_tensors[0].quantization is not None else None
    make = METHODS.get(how) if how is not None else None
    if make is None or len(step.boxes) != 1:
        names = ", ".join(sorted(found.value for found in METHODS))
        raise refused(call, f"its arithmetic is {how.value if how else 'that of ' + call.result_tensors[0].dtype}; the accelerator does {names}")
    result = call.result_tensors[0]
    box = extent(result, step.boxes[0])
    if not (box.depth and box.height and box.width):
        return []
    if step.last:
        site.chip.write(result.name, result, box, step.places[0], box.rows[0])
    else:
        site.chip.write(BEHIND + result.name, result, box, step.sums, box.rows[0], sums=True)
    return [run for job in make(site, call, step, box) for run in job.runs()]


@dataclass(slots=True)
class Job:
    """One operation on a box of a result."""

    site: Site
    call: Call
    step: Compute
    box: Extent  # of the result; channels that the operation makes
    operation: Operation
    values: dict[str, int]  # of the descriptor: window, scale, table, zero points
    a: Ring
    a_part: Extent  # what is read of operand a
    a_tensor: Tensor
    window: Window
    b: Ring | None = None
    b_part: Extent | None = None
    weights: Weights | None = None
    out_channels: tuple[int, int] | None = None  # where the result's channels lie in the result, if elsewhere than those of the box
    reads: list[Words] = field(default_factory=list[Words])
    spread: Spread | None = None

    def runs(self) -> Iterator[Run]:
        """The commands: as many rows at a time as the accumulators hold columns."""
        site, box, step = self.site, self.box, self.step
        lanes, name = site.lanes, self.call.result_tensors[0].name
        where = Extent(self.out_channels or box.channels, box.rows, box.columns) if self.spread is None else self.spread.where(box)
        o = site.chip.read(name, where) if step.last else None
        held = None if step.first and step.last else site.chip.read(BEHIND + name, where, sums=True)
        count, tail = blocks(box.depth, lanes)
        origin = min(ring.block for ring in (o, held) if ring is not None)
        values = {
            "operation": self.operation,
            "first": step.first,
            "last": step.last,
            "out_blocks": count,
            "out_tail": tail,
            "o_slots": 1,
            **self.values,
        }
        _ring(values, "a", self.a, 0)
        from_block = self.a.block
        if o is not None:
            values |= {"o_step": 1, "o_row_step": 1}
            _ring(values, "o", o, origin)
            values["o_base"] += o.column
            if self.spread is not None:
                values |= {"o_step": self.spread.right, "o_row_step": self.spread.down, "o_row": self.spread.row % self.spread.down}
                values["o_base"] += self.spread.phase
        if held is not None:
            _ring(values, "b", held, origin)
            values["b_base"] += held.column * held.column_words
        if self.b is not None:
            from_block = min(self.a.block, self.b.block)
            _ring(values, "a", self.a, from_block)
            _ring(values, "b", self.b, from_block)
            values["b_base"] += self.b.column
        else:
            values["a_base"] = self.a.base
        if self.weights is not None:
            values |= self.weights.values
        rows_at_once = max(ACCUMULATORS // box.width, 1)
        for x in range(0, box.width, ACCUMULATORS):
            width = min(ACCUMULATORS, box.width - x)
            placed = self._placed(values, x, width)
            for y in range(box.rows[0], box.rows[1], rows_at_once):
                rows = min(rows_at_once, box.rows[1] - y)
                run = Run(Opcode.EXEC, payload(placed), rows, (), self._reads(y, rows, count, held), [])
                if (into := o or held) is not None:
                    run.writes += [into.words(row, count) for row in (range(y, y + rows) if self.spread is None else (self.spread.row,))]
                run.numbers = numbers(
                    row=y,
                    slot=self.weights.number if self.weights else 0,
                    from_block=from_block,
                    to_block=origin,
                    factor=box.channels[0] // lanes if values.get("scale") == Scale.CHANNEL else 0,
                )
                yield run

    def _placed(self, values: Mapping[str, int], x: int, width: int) -> dict[str, int]:
        """The descriptor for columns from `x` on of the box."""
        window, found = self.window, dict(values)
        shift = self.a.shift % self.a.slots
        pad_rows, height = window.pad_rows, dimensions(self.a_tensor)[1]
        if height == 1 and window.rows == 1:
            found |= {"a_slots": 1}
            found["a_base"] += shift * self.a.slot_words
            shift = 0
        elif shift:
            if self.box.rows[0] * window.stride_rows < pad_rows:
                raise refused(self.call, "its operand's rows are numbered from the middle of a ring, and it reads padding above them")
            pad_rows, height = pad_rows - shift, height + shift
        first = (self.box.columns[0] + x) * window.stride_columns - window.pad_columns  # column of the operand that the window begins at
        found |= {
            "a_height": height,
            "a_width": self.a.width,
            "kernel_rows": window.rows,
            "kernel_columns": window.columns,
            "stride_rows": window.stride_rows,
            "stride_columns": window.stride_columns,
            "dilation": window.dilation,
            "pad_rows": pad_rows,
            "pad_columns": self.a_part.columns[0] - self.a.column - first,
            "o_width": width,
        }
        if self.step.last:
            found["o_base"] += x * found["o_step"]
        if "b_base" in found and not found.get("b_vector"):
            found["b_base"] += x * (1 if self.b is not None else WINDOW)
        return found

    def _reads(self, y: int, rows: int, count: int, held: Ring | None) -> list[Words]:
        window, part = self.window, self.a_part
        first = max(y * window.stride_rows - window.pad_rows, part.rows[0])
        stop = min((y + rows - 1) * window.stride_rows - window.pad_rows + (window.rows - 1) * window.dilation + 1, part.rows[1])
        inner = blocks(part.depth, self.site.lanes)[0]
        found = [self.a.words(row, inner) for row in range(first, stop)]
        if self.b is not None and self.b_part is not None:
            b_rows = range(y, y + rows) if self.b_part.height > 1 or part.height == 1 else range(1)
            found += [self.b.words(row, inner) for row in b_rows]
        if held is not None and not self.step.first:
            found += [held.words(row, count) for row in range(y, y + rows)]
        return found + self.reads + (self.weights.reads if self.weights else [])


@dataclass(frozen=True, slots=True)
class Spread:
    """One row of a Resize to the nearest element: every so manieth column of it, from one row of the operand."""

    row: int  # of the result
    down: int  # rows of the result for each of the operand
    right: int  # columns, likewise
    phase: int  # first of the columns of the result

    def where(self, box: Extent) -> Extent:
        """The row of the result; the box is that of the operand."""
        return Extent(box.channels, (self.row, self.row + 1), (0, box.width * self.right))


@dataclass(frozen=True, slots=True)
class Window:
    """Rows and columns of an operand for one element of the result."""

    rows: int = 1
    columns: int = 1
    stride_rows: int = 1
    stride_columns: int = 1
    dilation: int = 1
    pad_rows: int = 0
    pad_columns: int = 0


def _ring(values: dict[str, int], letter: str, ring: Ring, origin: int) -> None:
    """Describe a ring; `origin` blocks of the way to what is asked come with the command."""
    values[f"{letter}_base"] = ring.base + (ring.block - origin) * ring.block_words
    values[f"{letter}_slots"] = ring.slots
    values[f"{letter}_slot_words"] = ring.slot_words
    values[f"{letter}_block_words"] = ring.block_words


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


def _untouched(site: Site, tensor: Tensor) -> dict[str, int]:
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
    if (
        kind not in ("Conv", "Gemm", "MatMul")
        or not call.constant[1]
        or (kind == "Gemm" and (call.attribute("transA", 0) or len(call.shape(0)) != 2))
    ):
        raise refused(call, "the accelerator does Conv, and Gemm and MatMul of one row by constant weights")
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
    found = contraction(call)
    values["o_zero"] = found.zero_point
    weights = site.weights(call, step)
    first, count = box.channels[0] // lanes, blocks(box.depth, lanes)[0]
    factor_words = [(site.factor_words + at.factors + first, count)] if step.last else []
    operation = Operation.DEPTHWISE if depthwise else Operation.CONV
    yield Job(site, call, step, box, operation, values, a, part, seen, window, weights=weights, reads=factor_words)


def _table(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    index = next(i for i, tensor in enumerate(call.tensors) if tensor is not None and not call.constant[i])
    a, part, seen = site.operand(call, index, footprints(call, index, step.boxes))
    entries = table(call)
    values = _untouched(site, seen)
    if clamps(entries, seen.dtype):
        values |= {"low": int(entries.min()), "high": int(entries.max())}
        reads: list[Words] = []
    else:
        reads = _through(site, values, site.parameters[call.operator.name].tables[0])
    yield Job(site, call, step, box, Operation.COPY, values, a, part, seen, Window(), reads=reads)


def _terms(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    if len(call.tensors) != 2:
        raise refused(call, f"found {len(call.tensors)} operands; the accelerator adds 2")
    (a, part, seen), (b, b_part, b_seen) = (site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1))
    if dimensions(seen) != dimensions(b_seen):
        raise refused(call, f"found operands {list(seen.shape)} and {list(b_seen.shape)}; the accelerator adds maps of one shape")
    found = sum_terms(call)
    values = {**_read(seen), **_read(b_seen, "b"), **_made(call.result_tensors[0]), **_scaled(1, found.shift)}
    values |= {"a_multiplier": found.multipliers[0], "b_multiplier": found.multipliers[1]}
    yield Job(site, call, step, box, Operation.ADD, values, a, part, seen, Window(), b=_level(call, b), b_part=b_part)


def _product(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    found = [site.operand(call, i, footprints(call, i, step.boxes)) for i in (0, 1)]
    if dimensions(found[0][2]) != dimensions(call.result_tensors[0]):
        found.reverse()  # the second is the one that may be smaller
    (a, part, seen), (b, b_part, b_seen) = found
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
    yield Job(site, call, step, box, Operation.MUL, values, a, part, seen, Window(), b=_still(b) if vector else _level(call, b), b_part=b_part)


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
    if call.operator.kind == "AveragePool":
        counts = window_counts(call, step.boxes[0])
        counts = np.broadcast_to(counts, (box.height, box.width))
        for rows, columns in _alike(counts):
            count = counts[rows[0], columns[0]]
            window = _sliding(call, box)
            factor = mean_factors(call, np.array(count))
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
    kind = call.operator.kind
    if kind == "ReduceMin" or len([name for name in call.operator.outputs if name]) > 1:
        raise refused(call, "the accelerator finds the largest elements, without their places")
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes, inputs=step.inputs))
    window = _sliding(call, box) if kind == "MaxPool" else _everything(call, part)
    values = _untouched(site, seen)
    tables = site.parameters.get(call.operator.name, Parameters()).tables
    reads = _through(site, values, tables[0] if tables else None)
    yield Job(site, call, step, box, Operation.MAX, values, a, part, seen, window, reads=reads)


def _choice(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    """Concat of channels: one copy for each operand."""
    axis = call.attribute("axis", 1) % len(call.result)
    if call.operator.kind != "Concat" or axis != 1:
        raise refused(call, "the accelerator lays maps side by side by channels")
    tables = iter(site.parameters.get(call.operator.name, Parameters()).tables)
    start = 0
    for index, tensor in enumerate(call.tensors):
        assert tensor is not None
        depth = dimensions(tensor)[0]
        number = None if (tensor.dtype, tensor.quantization) == (call.result_tensors[0].dtype, call.result_tensors[0].quantization) else next(tables)
        low, high = max(box.channels[0], start), min(box.channels[1], start + depth)
        if low < high:
            if low % site.lanes or (low - start) % site.lanes:
                raise refused(call, f"operand {index} begins at channel {low} of the result; accepted: multiples of {site.lanes}")
            a, part, seen = site.operand(call, index, footprints(call, index, step.boxes))
            values = _untouched(site, seen)
            reads = _through(site, values, number)
            here = Extent((low - start, high - start), box.rows, box.columns)
            yield Job(site, call, step, here, Operation.COPY, values, a, part, seen, Window(), out_channels=(low, high), reads=reads)
        start += depth


def _move(site: Site, call: Call, step: Compute, box: Extent) -> Iterator[Job]:
    """Resize to the nearest element, by whole factors."""
    kind = call.operator.kind
    a, part, seen = site.operand(call, 0, footprints(call, 0, step.boxes))
    (_, height, width), (_, rows, columns) = dimensions(seen), dimensions(call.result_tensors[0])
    nearest = call.attribute("mode", "nearest") == "nearest"
    plain = call.attribute("coordinate_transformation_mode", "half_pixel") == "asymmetric" and call.attribute("nearest_mode", "") == "floor"
    if kind != "Resize" or not nearest or not plain or rows % height or columns % width:
        raise refused(call, "the accelerator moves elements by Resize to the nearest one, asymmetric, rounded down, by whole factors")
    down, right = rows // height, columns // width
    if box.columns != (0, columns):
        raise refused(call, "its steps make parts of rows")
    tables = site.parameters.get(call.operator.name, Parameters()).tables
    for y in range(*box.rows):
        for phase in range(right):
            values = _untouched(site, seen)
            reads = _through(site, values, tables[0] if tables else None)
            here = Extent(box.channels, (y // down, y // down + 1), (0, width))
            yield Job(site, call, step, here, Operation.COPY, values, a, part, seen, Window(), reads=reads, spread=Spread(y, down, right, phase))


METHODS = {SUMS: _sums, TABLE: _table, TERMS: _terms, PRODUCT: _product, MEAN: _mean, EXTREME: _extreme, CHOICE: _choice, MOVE: _move}
