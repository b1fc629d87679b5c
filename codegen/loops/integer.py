"""Operators on quantised maps, in the integer arithmetic of `lfopt.ops.integer`: the same bits as the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from codegen.layout import CTYPES
from codegen.loops.nest import Array, Nest
from codegen.loops.sliding import taps
from lfopt.ir import Quantization, Tensor, row_axis, whole
from lfopt.ops import Call
from lfopt.ops import scaling as by
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.fixed_point import BYTES, Factors, limits
from lfopt.ops.interpolation import Taps
from lfopt.ops.parameters import reduced_axes, split_sizes
from lfopt.ops.reducing import folded_elements
from lfopt.ops.resizing import axis_taps
from lfopt.ops.traits import Arithmetic
from lfopt.ops.windows import windows

Loops = Callable[[Nest], None]
Element = Callable[[Sequence[str]], str]  # index -> C expression
REALS = ("float32", "float64")
MOST_ADDED = 4096  # doubles on the stack


def integers(nest: Nest, plain: Loops) -> None:
    """The loops of an operator whose first result is quantised; `plain`: those of the same operator on numbers that stand for themselves.

    Raises Unsupported.
    """
    how = arithmetic(nest.call)
    if how is Arithmetic.MOVE and nest.call.operator.kind == "Split":
        _split(nest)
    elif how in (Arithmetic.MOVE, Arithmetic.CHOICE):
        plain(_recoded(nest))
    else:
        LOOPS[how](nest)


# -- parts of expressions ------------------------------------------------------------------------------------------------------------------


def entry(nest: Nest, values: np.ndarray, at: Sequence[str]) -> str:
    """C expression: the entry of a constant that meets the element at an index; a number where all entries are equal."""
    if values.size and (values == values.flat[0]).all():
        return str(values.flat[0])
    near = at[len(at) - values.ndim :]
    return f"{nest.constant(values)}[{_flat([i if n > 1 else '0' for i, n in zip(near, values.shape, strict=True)], values.shape)}]"


def _flat(at: Sequence[str], shape: Sequence[int]) -> str:
    steps = [prod(shape[k + 1 :]) for k in range(len(shape))]
    return " + ".join(f"({i}) * {step}" if step > 1 else f"({i})" for i, step in zip(at, steps, strict=True) if i != "0") or "0"


def _less(value: str, zero: int) -> str:
    """A stored integer less its zero point."""
    return f"({value} - {zero})" if zero > 0 else f"({value} + {-zero})" if zero < 0 else value


def _quantization(tensor: Tensor | None) -> Quantization:
    assert tensor is not None
    assert tensor.quantization is not None
    return tensor.quantization


def _zero(tensor: Tensor | None) -> int:
    return _quantization(tensor).zero_point[0]


def _centred(nest: Nest, index: int, order: Sequence[int] | None = None) -> Element:
    """Elements of an operand less their zero points. `order`: of the axes, in which a constant had better lie."""
    call, tensor = nest.call, nest.call.tensors[index]
    value, found = call.values[index], _quantization(tensor)
    if value is None:
        array = nest.operand(index)
        return lambda at: _less(array.at(at), found.zero_point[0])
    axes = [*range(value.ndim)] if order is None else [*order]
    zeros = np.reshape(found.zero_point, () if found.axis is None else tuple(-1 if axis == found.axis else 1 for axis in range(value.ndim)))
    if index in nest.maps:  # in the buffer
        held = nest.operand(index)
        return lambda at: f"({held.at(at)} - ({entry(nest, zeros, at)}))"
    laid = (value.astype(np.int16) - zeros.astype(np.int16)).transpose(axes)
    laid = laid.astype(np.int8) if laid.size == 0 or (laid.min() >= -128 and laid.max() <= 127) else laid
    pointer = nest.constant(laid)
    return lambda at: f"{pointer}[{_flat([at[k] if value.shape[k] > 1 else '0' for k in axes], laid.shape)}]"


def _store(nest: Nest, at: Sequence[str], value: str) -> None:
    """An integer, less the zero point of the result, that may be beyond its range."""
    result = nest.call.result_tensors[0]
    least, most = limits(result.dtype)
    y = nest.results[0]
    nest.out(f"{y.at(at)} = ({y.ctype})clamped({value} + ({_zero(result)}), {least}, {most});")


def _store_scaled(nest: Nest, at: Sequence[str], value: str, found: Factors) -> None:
    """An int32 sum, scaled by factors that broadcast against the result."""
    _store(nest, at, _scaled(nest, at, value, found))


def _scaled(nest: Nest, at: Sequence[str], value: str, found: Factors) -> str:
    return f"rescaled({value}, {entry(nest, found.multiplier.astype(np.int32), at)}, {entry(nest, found.shift.astype(np.uint8), at)})"


def _table(nest: Nest, values: np.ndarray, byte: str) -> str:
    return f"{nest.constant(values)}[(uint8_t){byte}]"


# -- sums of products ----------------------------------------------------------------------------------------------------------------------


def _sums(nest: Nest) -> None:
    call = nest.call
    found = by.contraction(call)
    bias, factors = by.bias(call).astype(np.int32), found.by
    if call.operator.kind in ("Conv", "ConvTranspose"):
        factors = Factors(*(f.reshape(-1, *(1,) * (len(call.result) - 2)) if f.ndim else f for f in factors))
    with nest.elements() as at:
        nest.out(f"int32_t sum = {nest.begin(at, '0')};")
        PRODUCTS[call.operator.kind](nest, at)
        with nest.end(at, "sum"):
            _store_scaled(nest, at, f"(sum + {entry(nest, bias, at)})", factors)


def _first_read(call: Call, made: str) -> str:
    """The start of a C sum: the first channel that the group of channel `made` of a convolution's result reads; empty if there is one group."""
    groups = call.attribute("group", 1)
    return f"{made} / {call.result[1] // groups} * {call.shape(0)[1] // groups} + " if groups > 1 else ""


def _conv(nest: Nest, at: Sequence[str]) -> None:
    call = nest.call
    rank, per_group = len(call.result), call.shape(1)[1]
    x, w = _centred(nest, 0), _centred(nest, 1, (0, *range(2, rank), 1))
    first = _first_read(call, at[1])
    with taps(nest, windows(call), at[2:]) as (kernel, places), nest.folded([per_group], "c", 0) as (c,):
        nest.out(f"sum += {x([at[0], first + c, *places])} * {w([at[1], c, *kernel])};")


def _conv_transpose(nest: Nest, at: Sequence[str]) -> None:
    call = nest.call
    rank, of_group = len(call.result), call.shape(1)[1]
    per_group = call.shape(1)[0] // call.attribute("group", 1)
    x, w = _centred(nest, 0), _centred(nest, 1, (1, *range(2, rank), 0))
    first = _first_read(call, at[1])
    made = f"({at[1]}) % {of_group}" if call.attribute("group", 1) > 1 else at[1]
    with taps(nest, windows(call), at[2:]) as (kernel, places), nest.folded([per_group], "c", 0) as (c,):
        nest.out(f"sum += {x([at[0], first + c, *places])} * {w([first + c, made, *kernel])};")


def _gemm(nest: Nest, at: Sequence[str]) -> None:
    call = nest.call
    turned_a, turned_b = call.attribute("transA", 0), call.attribute("transB", 0)
    a, b = _centred(nest, 0), _centred(nest, 1, (0, 1) if turned_b else (1, 0))
    with nest.folded([call.shape(0)[0 if turned_a else 1]], "c", 0) as (c,):
        nest.out(f"sum += {a([c, at[0]] if turned_a else [at[0], c])} * {b([at[1], c] if turned_b else [c, at[1]])};")


def _matmul(nest: Nest, at: Sequence[str]) -> None:
    left, right = nest.call.shape(0), nest.call.shape(1)
    row = [at[len(at) - 1 - (len(right) > 1)]] if len(left) > 1 else []
    column = [at[len(at) - 1]] if len(right) > 1 else []
    stack = at[: len(at) - len(row) - len(column)]
    axes = [*range(len(right))]
    a, b = _centred(nest, 0), _centred(nest, 1, [*axes[:-2], *reversed(axes[-2:])])
    with nest.folded([left[len(left) - 1]], "c", 0) as (c,):
        nest.out(f"sum += {a([*_of_stack(stack, left), *row, c])} * {b([*_of_stack(stack, right), c, *column])};")


def _of_stack(stack: Sequence[str], shape: Sequence[int]) -> list[str]:
    """Which matrix of a stack meets the one at an index of the result."""
    own = shape[:-2]
    return ["0" if extent == 1 else i for i, extent in zip(stack[len(stack) - len(own) :], own, strict=True)]


PRODUCTS: dict[str, Callable[[Nest, Sequence[str]], None]] = {"Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul}


# -- elementwise ---------------------------------------------------------------------------------------------------------------------------


def _by_table(nest: Nest) -> None:
    index = next(i for i, tensor in enumerate(nest.call.tensors) if tensor is not None and not nest.call.constant[i])
    x, y, made = nest.operand(index), nest.results[0], by.table(nest.call)
    with nest.elements() as at:
        nest.out(f"{y.at(at)} = {_table(nest, made, x.at(at))};")


def _met(nest: Nest, index: int, at: Sequence[str]) -> str:
    """The element of a broadcast operand that meets the result's, less its zero point."""
    x = nest.operand(index)
    return _less(x.at(x.broadcast(at, nest.call.result)), _zero(nest.call.tensors[index]))


def _terms(nest: Nest) -> None:
    found = by.sum_terms(nest.call)
    with nest.elements() as at:
        nest.out(f"int32_t sum = {1 << found.shift - 1};")
        for index, multiplier in enumerate(found.multipliers):
            nest.out(f"sum += {_met(nest, index, at)} * {multiplier};")
        _store(nest, at, f"shifted(sum, {found.shift})")


def _product(nest: Nest) -> None:
    with nest.elements() as at:
        _store_scaled(nest, at, f"{_met(nest, 0, at)} * {_met(nest, 1, at)}", by.product_factors(nest.call))


def _slopes(nest: Nest) -> None:
    found = by.slopes(nest.call)
    negative = Factors(found.negative.multiplier * found.sign, found.negative.shift)
    with nest.elements() as at:
        nest.out(f"const int32_t x = {_met(nest, 0, at)};")
        _store(nest, at, f"(x < 0 ? {_scaled(nest, at, 'x', negative)} : {_scaled(nest, at, 'x', found.positive)})")


# -- windows and whole axes folded ---------------------------------------------------------------------------------------------------------


def _mean(nest: Nest) -> None:
    call = nest.call
    pool = call.operator.kind == "AveragePool"
    counts = by.window_counts(call, whole(call.result)) if pool else np.array(folded_elements(call))
    found = by.mean_factors(call, counts)
    x = _centred(nest, 0)
    with nest.elements() as at:
        nest.out(f"int32_t sum = {nest.begin(at, '0')};")
        with _read(nest, at, pool=pool) as index:
            nest.out(f"sum += {x(index)};")
        with nest.end(at, "sum"):
            _store_scaled(nest, at, "sum", found)


def _extreme(nest: Nest) -> None:
    call, (x, y) = nest.call, (nest.operand(0), nest.results[0])
    if len(call.results) > 1:
        raise nest.unsupported("the indices of a quantised map's largest elements", "their values alone")
    assert call.tensors[0] is not None
    least, most = limits(x.dtype)
    lowest = call.operator.kind == "ReduceMin"
    recoding = by.recoding(call.tensors[0], call.result_tensors[0])
    with nest.elements() as at:
        nest.out(f"int best = {nest.begin(at, str(most if lowest else least))};")
        with _read(nest, at, pool=call.operator.kind == "MaxPool") as index:
            nest.out(f"const int here = {x.at(index)};", f"best = here {'<' if lowest else '>'} best ? here : best;")
        with nest.end(at, "best"):
            nest.out(f"{y.at(at)} = {f'({y.ctype})best' if recoding is None else _table(nest, recoding, 'best')};")


@contextmanager
def _read(nest: Nest, at: Sequence[str], *, pool: bool) -> Iterator[list[str]]:
    """Loops over the elements that a pool or a reduction folds into the one at an index: their index."""
    if pool:
        with taps(nest, windows(nest.call), at[2:]) as found:
            yield [*at[:2], *found.source]
        return
    shape, axes = nest.call.shape(0), sorted(reduced_axes(nest.call) or ())
    rest = iter(at if len(at) < len(shape) else [i for k, i in enumerate(at) if k not in axes])
    rows = row_axis(shape)
    with nest.folded([shape[axis] for axis in axes], "f", axes.index(rows) if rows in axes else None) as folded:
        along = dict(zip(axes, folded, strict=True))
        yield [along[axis] if axis in along else next(rest) for axis in range(len(shape))]


# -- moved and chosen ----------------------------------------------------------------------------------------------------------------------


def _split(nest: Nest) -> None:
    """Parts of the operand along an axis, each with a scale of its own; those that nobody asked for are passed over."""
    call, x, sizes, start = nest.call, nest.operand(0), split_sizes(nest.call), 0
    axis = call.attribute("axis", 0) % len(x.shape)
    assert call.tensors[0] is not None
    assert sizes is not None, "shapes are static"
    asked = iter(range(len(nest.results)))
    for name, size in zip(call.operator.outputs, sizes, strict=True):
        if name:
            k = next(asked)
            found = by.recoding(call.tensors[0], call.result_tensors[k])
            with nest.elements(k) as at:
                byte = x.at([f"{i} + {start}" if a == axis else i for a, i in enumerate(at)])
                nest.out(f"{nest.results[k].at(at)} = {byte if found is None else _table(nest, found, byte)};")
        start += size


@dataclass(frozen=True, slots=True)
class _Recoded(Array):
    """An operand that is read through a table of 256 bytes."""

    table: str = ""
    made: str = ""  # type of what the table holds
    source: Array | None = None  # what is read

    @property
    def dtype(self) -> str:
        return self.made

    @property
    def ctype(self) -> str:
        return CTYPES[self.made]

    def step(self, axis: int) -> int | None:
        return None

    def at(self, index: Sequence[str]) -> str:
        assert self.source is not None
        return f"{self.table}[(uint8_t){self.source.at(index)}]"


def _recoded(nest: Nest) -> Nest:
    """The operator on bytes that stand for themselves: those of operands are brought to the result's type, scale and zero point as they are read."""
    call = nest.call
    moves = arithmetic(call) is Arithmetic.MOVE
    results = [tensor for tensor in call.result_tensors if tensor.quantization is not None]
    if len({(tensor.dtype, tensor.quantization) for tensor in results}) > 1:
        raise nest.unsupported("results of several scales", "one scale for all results")
    arrays, values, tensors = dict(nest.maps), [*call.values], [*call.tensors]
    for index, tensor in enumerate(call.tensors):
        if tensor is None or tensor.quantization is None or (moves and index):
            continue
        found = by.recoding(tensor, results[0])
        if found is not None and call.operator.kind == "TopK":
            raise nest.unsupported("a scale that changes", "the scale of the operand")
        tensors[index] = Tensor(tensor.name, tensor.shape, results[0].dtype)
        value = values[index]
        if found is not None and value is not None:
            values[index] = found[value.view(np.uint8)]
        elif found is not None and index in arrays:
            array = arrays[index]
            arrays[index] = _Recoded(
                array.layout, array.shape, array.pointer, array.slots, array.slot, table=nest.constant(found), made=results[0].dtype, source=array
            )
    given = replace(call, values=tuple(values), tensors=tuple(tensors), result_tensors=tuple(map(_plain, call.result_tensors)))
    if call.operator.kind == "Pad":
        given = _with_padding(given, by.padding(call), results[0].dtype)
    return nest.reading(given, arrays)


def _plain(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.shape, tensor.dtype)


def _with_padding(call: Call, value: np.ndarray, dtype: str) -> Call:
    """A Pad that adds this integer."""
    name = f"{call.operator.name}.padding"
    inputs = [*call.operator.inputs, ""][:3]
    inputs[2] = name
    tail = call.operator.inputs[3:]

    def put(found: tuple, *, new: object) -> tuple:  # pyright: ignore[reportMissingTypeArgument]
        return (*found[:2], new, *found[3:])

    return replace(
        call,
        operator=replace(call.operator, inputs=(*inputs, *tail)),
        shapes=put(call.shapes, new=()),
        values=put(call.values, new=value),
        constant=put(call.constant, new=True),
        tensors=put(call.tensors, new=Tensor(name, (), dtype)),
    )


# -- by floats -----------------------------------------------------------------------------------------------------------------------------


def _by_floats(nest: Nest) -> None:
    kind = nest.call.operator.kind
    if kind not in FLOATS:
        raise nest.unsupported(
            "a quantised map that is computed in float64, where the last bit depends on the order of a sum or on the library of functions",
            f"of such operators {', '.join(sorted(FLOATS))}",
        )
    FLOATS[kind](nest)


def _store_real(nest: Nest, at: Sequence[str], value: str, real: str = "float64") -> None:
    """A real number, rounded to the nearest step."""
    result = nest.call.result_tensors[0]
    found = _quantization(result)
    shape = () if found.axis is None else tuple(-1 if axis == found.axis else 1 for axis in range(len(result.shape)))
    scale, zero = (_number(nest, np.reshape(v, shape), at, t) for v, t in ((found.scale, real), (found.zero_point, "int32")))
    least, most = limits(result.dtype)
    y, nearest = nest.results[0], "rintf" if real == "float32" else "rint"
    nest.out(f"{y.at(at)} = ({y.ctype})clamped((int64_t)steps((double){nearest}({value} / {scale})) + ({zero}), {least}, {most});")


def _number(nest: Nest, values: np.ndarray, at: Sequence[str], dtype: str) -> str:
    """`entry`, of the type that it says."""
    found = entry(nest, values.astype(dtype), at)
    return f"{found}f" if dtype == "float32" and "[" not in found else found


def _quantize(nest: Nest) -> None:
    x = nest.operand(0)
    if nest.call.tensors[0] is None or nest.call.tensors[0].quantization is not None or x.dtype not in REALS:
        raise nest.unsupported(f"an operand of {x.dtype}", ", ".join(REALS))
    with nest.elements() as at:
        _store_real(nest, at, x.at(at), x.dtype)


def _quotient(nest: Nest) -> None:
    tensors = nest.call.tensors[:2]
    if any(tensor is None or tensor.quantization is None or tensor.quantization.axis is not None for tensor in tensors):
        raise nest.unsupported("operands that are not quantised, or with several scales", "two quantised operands")
    with nest.elements() as at:
        a, b = (f"{_met(nest, k, at)} * {_quantization(tensor).scale[0]!r}" for k, tensor in enumerate(tensors))
        _store_real(nest, at, f"({a} / ({b}))")


def _resize(nest: Nest) -> None:
    """Axis by axis, every product and sum rounded as NumPy rounds it: through a volatile variable, so that none are fused."""
    call, x = nest.call, nest.operand(0)
    found = _quantization(call.tensors[0])
    if found.axis is not None or not all(call.values[i] is not None for i in (1, 2, 3) if call.has(i)):
        raise nest.unsupported("several scales, or sizes that are computed", "one scale, constant sizes")
    axes = {axis: t for axis in range(len(call.result)) if (t := axis_taps(call, axis)) is not None}
    with nest.elements() as at:
        index = list(at)
        value = _interpolated(nest, at, index, [*reversed(axes.items())], lambda: f"{_less(x.at(index), found.zero_point[0])} * {found.scale[0]!r}")
        beyond = [f"{nest.constant(t.outside.astype(np.uint8))}[{at[axis]}]" for axis, t in axes.items() if t.outside is not None]
        if beyond:
            value = f"({' || '.join(beyond)} ? {float(call.attribute('extrapolation_value', 0.0))!r} : {value})"
        _store_real(nest, at, value)


def _interpolated(nest: Nest, at: Sequence[str], index: list[str], axes: Sequence[tuple[int, Taps]], element: Callable[[], str]) -> str:
    """Print what interpolates along the given axes, the last to be done first; C expression of the value."""
    if not axes:
        return element()
    (axis, found), rest = axes[0], axes[1:]
    count = found.indices.shape[1]
    places = nest.constant(found.indices.astype(np.int32))
    if count == 1:
        index[axis] = f"{places}[{at[axis]}]"
        return _interpolated(nest, at, index, rest, element)
    weights, name = nest.constant(found.weights.astype(np.float64)), f"v{axis}"
    nest.out(f"double {name} = 0.0;")
    with nest.out.block(f"for (int t{axis} = 0; t{axis} < {count}; t{axis}++)"):
        index[axis] = f"{places}[({at[axis]}) * {count} + t{axis}]"
        value = _interpolated(nest, at, index, rest, element)
        nest.out(f"const volatile double part = {value} * {weights}[({at[axis]}) * {count} + t{axis}];")
        nest.out(f"{name} = t{axis} == 0 ? part : {name} + part;")
    return name


def _softmax(nest: Nest) -> None:
    """Along the last axis: powers are NumPy's, from a table (a difference of two operands is one of 256 numbers), and added in NumPy's order."""
    call, x = nest.call, nest.operand(0)
    shape, scale = call.result, _quantization(call.tensors[0]).scale[0]
    axis = call.attribute("axis", -1) % len(shape)
    exact = _quantization(call.tensors[0]).axis is None and x.dtype in BYTES and float(np.float32(scale)) == scale
    if not exact or prod(shape[axis + 1 :]) != 1 or shape[axis] > MOST_ADDED:
        raise nest.unsupported(f"axis {axis} of {list(shape)}, {x.dtype}", f"bytes, along the last axis, {MOST_ADDED} of them at most")
    powers = nest.constant(np.exp(-scale * np.arange(256)))
    with nest.each(axes=[k for k in range(len(shape)) if k != axis]) as outer:
        here = [outer.get(k, "k") for k in range(len(shape))]
        each = f"for (int k = 0; k < {shape[axis]}; k++)"
        nest.out(f"int most = {limits(x.dtype)[0]};", f"{each} most = larger(most, {x.at(here)});")
        nest.out(f"double power[{shape[axis]}];", f"{each} power[k] = {powers}[most - {x.at(here)}];")
        nest.out(f"const double total = pairwise_sum(power, {shape[axis]});")
        with nest.out.block(each):
            _store_real(nest, here, "power[k] / total")


FLOATS: dict[str, Loops] = {"QuantizeLinear": _quantize, "Div": _quotient, "Resize": _resize, "Softmax": _softmax}
LOOPS: dict[Arithmetic, Loops] = {
    Arithmetic.SUMS: _sums,
    Arithmetic.TABLE: _by_table,
    Arithmetic.TERMS: _terms,
    Arithmetic.PRODUCT: _product,
    Arithmetic.SLOPES: _slopes,
    Arithmetic.MEAN: _mean,
    Arithmetic.EXTREME: _extreme,
    Arithmetic.FLOAT: _by_floats,
}


# -- where integers become real numbers ----------------------------------------------------------------------------------------------------


def dequantize(nest: Nest) -> None:
    """The loops of DequantizeLinear: (stored - zero point) * scale, in the scale's type."""
    call, x, y = nest.call, nest.operand(0), nest.results[0]
    scale, zero = call.values[1], call.values[2] if call.has(2) else np.zeros((), np.int64)
    if scale is None or zero is None or scale.ndim > 1 or call.attribute("block_size", 0) or scale.dtype.name not in REALS or y.dtype not in REALS:
        raise nest.unsupported("scales that are computed, in blocks, or not real", "float32 constants, one or one for each index of an axis")
    if np.dtype(x.dtype).kind not in "iu" or x.dtype == "uint64":
        raise nest.unsupported(f"an operand of {x.dtype}", "integers")
    axis = call.attribute("axis", 1) % max(len(call.result), 1)
    shape = () if scale.size == 1 else tuple(-1 if k == axis else 1 for k in range(len(call.result)))
    real = scale.dtype.name
    kind = "int64_t" if x.dtype in ("int64", "uint32") or np.dtype(zero.dtype).itemsize > 2 else "int32_t"
    with nest.elements() as at:
        centre = entry(nest, zero.reshape(shape if zero.size > 1 else ()).astype(np.int64 if kind == "int64_t" else np.int32), at)
        nest.out(f"{y.at(at)} = ({y.ctype})(({CTYPES[real]})(({kind}){x.at(at)} - ({centre})) * {_number(nest, scale.reshape(shape), at, real)});")


BORDER: dict[str, Loops] = {"DequantizeLinear": dequantize}
