"""Operators on quantised maps, in the arithmetic of `lfopt.ops.integer`: the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from codegen.layout import CTYPES, split_starts, tensor_of
from codegen.loops.nest import Array, Loops, Nest
from codegen.loops.reals import by_floats
from codegen.loops.searching import top_k
from codegen.loops.sliding import taps
from codegen.loops.stored import centred, entry, looked_up, met, scaled, store
from lfopt.ir import Tensor, row_axis, whole
from lfopt.ops import Call
from lfopt.ops import scaling as by
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.fixed_point import Multipliers, limits
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.reducing import folded_elements
from lfopt.ops.traits import Arithmetic
from lfopt.ops.windows import windows


def integers(nest: Nest, plain: Loops) -> None:
    """The loops of an operator whose first result is quantised.

    `plain`: those of the same operator on numbers that stand for themselves.

    Raises Unsupported.
    """
    how = arithmetic(nest.call)
    if how is Arithmetic.MOVE and nest.call.operator.kind == "Split":
        _split(nest)
    elif how is Arithmetic.MOVE and nest.call.operator.kind == "TopK":
        _top_k(nest)
    elif how in (Arithmetic.MOVE, Arithmetic.CHOICE):
        plain(_recoded(nest))
    else:
        LOOPS[how](nest)


# -- sums of products ----------------------------------------------------------------------------------------


def _sums(nest: Nest) -> None:
    call = nest.call
    requantization = by.requantization(call)
    bias = by.bias(call).astype(np.int32)
    factors = requantization.by
    if call.operator.kind in ("Conv", "ConvTranspose"):
        factors = Multipliers(
            *(f.reshape(-1, *(1,) * (len(call.result) - 2)) if f.ndim else f for f in factors)
        )
    with nest.elements() as at:
        nest.out(f"int32_t sum = {nest.begin(at, '0')};")
        PRODUCTS[call.operator.kind](nest, at)
        with nest.end(at, "sum"):
            store(nest, at, scaled(nest, at, f"(sum + {entry(nest, bias, at)})", factors))


def _first_read(call: Call, channel: str) -> str:
    """The start of a C sum: the first channel that the group of a convolution's result channel reads.

    "" if there is one group.
    """
    groups = call.attribute("group", 1)
    if groups > 1:
        return f"{channel} / {call.result[1] // groups} * {call.shape(0)[1] // groups} + "
    return ""


def _conv(nest: Nest, at: Sequence[str]) -> None:
    call = nest.call
    rank = len(call.result)
    per_group = call.shape(1)[1]
    x = centred(nest, 0)
    w = centred(nest, 1, (0, *range(2, rank), 1))
    first = _first_read(call, at[1])
    with taps(nest, windows(call), at[2:]) as (kernel, places), nest.folded([per_group], "c", 0) as (c,):
        nest.out(f"sum += {x([at[0], first + c, *places])} * {w([at[1], c, *kernel])};")


def _conv_transpose(nest: Nest, at: Sequence[str]) -> None:
    call = nest.call
    rank = len(call.result)
    of_group = call.shape(1)[1]
    per_group = call.shape(1)[0] // call.attribute("group", 1)
    x = centred(nest, 0)
    w = centred(nest, 1, (1, *range(2, rank), 0))
    first = _first_read(call, at[1])
    channel = f"({at[1]}) % {of_group}" if call.attribute("group", 1) > 1 else at[1]
    with taps(nest, windows(call), at[2:]) as (kernel, places), nest.folded([per_group], "c", 0) as (c,):
        nest.out(f"sum += {x([at[0], first + c, *places])} * {w([first + c, channel, *kernel])};")


def _gemm(nest: Nest, at: Sequence[str]) -> None:
    call = nest.call
    turned_a = call.attribute("transA", 0)
    turned_b = call.attribute("transB", 0)
    a = centred(nest, 0)
    b = centred(nest, 1, (0, 1) if turned_b else (1, 0))
    with nest.folded([call.shape(0)[0 if turned_a else 1]], "c", 0) as (c,):
        nest.out(
            f"sum += {a([c, at[0]] if turned_a else [at[0], c])} * "
            f"{b([at[1], c] if turned_b else [c, at[1]])};"
        )


def _matmul(nest: Nest, at: Sequence[str]) -> None:
    left = nest.call.shape(0)
    right = nest.call.shape(1)
    row = [at[len(at) - 1 - (len(right) > 1)]] if len(left) > 1 else []
    column = [at[len(at) - 1]] if len(right) > 1 else []
    stack = at[: len(at) - len(row) - len(column)]
    axes = [*range(len(right))]
    a = centred(nest, 0)
    b = centred(nest, 1, [*axes[:-2], *reversed(axes[-2:])])
    with nest.folded([left[len(left) - 1]], "c", 0) as (c,):
        nest.out(
            f"sum += {a([*_of_stack(stack, left), *row, c])} * {b([*_of_stack(stack, right), c, *column])};"
        )


def _of_stack(stack: Sequence[str], shape: Sequence[int]) -> list[str]:
    """Which matrix of a stack meets the one at an index of the result."""
    own = shape[:-2]
    return ["0" if extent == 1 else i for i, extent in zip(stack[len(stack) - len(own) :], own, strict=True)]


PRODUCTS: dict[str, Callable[[Nest, Sequence[str]], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}


# -- elementwise ---------------------------------------------------------------------------------------------


def _by_table(nest: Nest) -> None:
    index = next(
        i for i, tensor in enumerate(nest.call.tensors) if tensor is not None and not nest.call.constant[i]
    )
    x = nest.operand(index)
    y = nest.results[0]
    table = by.table(nest.call)
    with nest.elements() as at:
        nest.out(f"{y.at(at)} = {looked_up(nest, table, x.at(at))};")


def _terms(nest: Nest) -> None:
    terms = by.sum_terms(nest.call)
    with nest.elements() as at:
        nest.out("int32_t sum = 0;")
        for index, multiplier in enumerate(terms.multipliers):
            nest.out(f"sum += {met(nest, index, at)} * {multiplier};")
        store(nest, at, f"rounded(sum, {terms.shift})")


def _product(nest: Nest) -> None:
    with nest.elements() as at:
        product = f"{met(nest, 0, at)} * {met(nest, 1, at)}"
        store(nest, at, scaled(nest, at, product, by.product_factors(nest.call)))


def _slopes(nest: Nest) -> None:
    slopes = by.slopes(nest.call)
    negative = Multipliers(slopes.negative.multiplier * slopes.sign, slopes.negative.shift)
    with nest.elements() as at:
        nest.out(f"const int32_t x = {met(nest, 0, at)};")
        store(
            nest,
            at,
            f"(x < 0 ? {scaled(nest, at, 'x', negative)} : {scaled(nest, at, 'x', slopes.positive)})",
        )


# -- windows and whole axes folded ---------------------------------------------------------------------------


def _mean(nest: Nest) -> None:
    call = nest.call
    pool = call.operator.kind == "AveragePool"
    counts = by.window_counts(call, whole(call.result)) if pool else np.array(folded_elements(call))
    factors = by.mean_factors(call, counts)
    x = centred(nest, 0)
    with nest.elements() as at:
        nest.out(f"int32_t sum = {nest.begin(at, '0')};")
        with _read(nest, at, pool=pool) as index:
            nest.out(f"sum += {x(index)};")
        with nest.end(at, "sum"):
            store(nest, at, scaled(nest, at, "sum", factors, "averaged"))


def _extreme(nest: Nest) -> None:
    call, (x, y) = nest.call, (nest.operand(0), nest.results[0])
    if len(call.results) > 1:
        raise nest.unsupported("the indices of a quantised map's largest elements", "their values alone")
    least, most = limits(x.dtype)
    lowest = call.operator.kind == "ReduceMin"
    recoding = by.recoding(tensor_of(call, 0), call.result_tensors[0])
    with nest.elements() as at:
        nest.out(f"int best = {nest.begin(at, str(most if lowest else least))};")
        with _read(nest, at, pool=call.operator.kind == "MaxPool") as index:
            nest.out(
                f"const int here = {x.at(index)};",
                f"best = here {'<' if lowest else '>'} best ? here : best;",
            )
        with nest.end(at, "best"):
            nest.out(
                f"{y.at(at)} = "
                f"{f'({y.ctype})best' if recoding is None else looked_up(nest, recoding, 'best')};"
            )


@contextmanager
def _read(nest: Nest, at: Sequence[str], *, pool: bool) -> Iterator[list[str]]:
    """Loops over the elements that a pool or a reduction folds into the one at an index: their index."""
    if pool:
        with taps(nest, windows(nest.call), at[2:]) as tap:
            yield [*at[:2], *tap.source]
        return
    shape = nest.call.shape(0)
    axes = sorted(reduced_axes(nest.call) or ())
    rest = iter(at if len(at) < len(shape) else [i for k, i in enumerate(at) if k not in axes])
    rows = row_axis(shape)
    with nest.folded(
        [shape[axis] for axis in axes], "f", axes.index(rows) if rows in axes else None
    ) as folded:
        along = dict(zip(axes, folded, strict=True))
        yield [along[axis] if axis in along else next(rest) for axis in range(len(shape))]


# -- moved and chosen ----------------------------------------------------------------------------------------


def _split(nest: Nest) -> None:
    """Parts of the operand along an axis, each with a scale of its own.

    Parts that are not asked for are passed over.
    """
    call = nest.call
    x = nest.operand(0)
    axis = call.attribute("axis", 0) % len(x.shape)
    for k, start in enumerate(split_starts(call)):
        table = by.recoding(tensor_of(call, 0), call.result_tensors[k])
        with nest.elements(k) as at:
            byte = x.at([f"{i} + {start}" if a == axis else i for a, i in enumerate(at)])
            nest.out(f"{nest.results[k].at(at)} = {byte if table is None else looked_up(nest, table, byte)};")


def _top_k(nest: Nest) -> None:
    """The best bytes of the operand, then brought to the result's scale."""
    table = by.recoding(tensor_of(nest.call, 0), nest.call.result_tensors[0])
    top_k(nest, None if table is None else lambda byte: looked_up(nest, table, byte))


@dataclass(frozen=True, slots=True)
class _Recoded(Array):
    """An operand that is read through a table of 256 bytes."""

    table: str = ""
    held: str = ""  # type of what the table holds
    source: Array | None = None  # what is read

    @property
    def dtype(self) -> str:
        return self.held

    @property
    def ctype(self) -> str:
        return CTYPES[self.held]

    def at(self, index: Sequence[str]) -> str:
        assert self.source is not None
        return f"{self.table}[(uint8_t){self.source.at(index)}]"


def _recoded(nest: Nest) -> Nest:
    """The operator on bytes that stand for themselves.

    Bytes of operands are brought to the result's type, scale and zero point as they are read.
    """
    call = nest.call
    moves = arithmetic(call) is Arithmetic.MOVE
    results = [tensor for tensor in call.result_tensors if tensor.quantization is not None]
    if len({(tensor.dtype, tensor.quantization) for tensor in results}) > 1:
        raise nest.unsupported("results of several scales", "one scale for all results")
    arrays = dict(nest.maps)
    values = [*call.values]
    tensors = [*call.tensors]
    for index, tensor in enumerate(call.tensors):
        if tensor is None or tensor.quantization is None or (moves and index):
            continue
        table = by.recoding(tensor, results[0])
        tensors[index] = Tensor(tensor.name, tensor.shape, results[0].dtype)
        value = values[index]
        if table is not None and value is not None:
            values[index] = table[value.view(np.uint8)]
        elif table is not None and index in arrays:
            array = arrays[index]
            arrays[index] = _Recoded(
                array.layout,
                array.shape,
                array.pointer,
                array.slots,
                array.slot,
                table=nest.constant(table),
                held=results[0].dtype,
                source=array,
            )
    given = replace(
        call,
        values=tuple(values),
        tensors=tuple(tensors),
        result_tensors=tuple(map(_plain, call.result_tensors)),
    )
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
    rest = call.operator.inputs[3:]

    def put(operands: tuple, *, new: object) -> tuple:  # pyright: ignore[reportMissingTypeArgument]
        return (*operands[:2], new, *operands[3:])

    return replace(
        call,
        operator=replace(call.operator, inputs=(*inputs, *rest)),
        shapes=put(call.shapes, new=()),
        values=put(call.values, new=value),
        constant=put(call.constant, new=True),
        tensors=put(call.tensors, new=Tensor(name, (), dtype)),
    )


LOOPS: dict[Arithmetic, Loops] = {
    Arithmetic.SUMS: _sums,
    Arithmetic.TABLE: _by_table,
    Arithmetic.TERMS: _terms,
    Arithmetic.PRODUCT: _product,
    Arithmetic.SLOPES: _slopes,
    Arithmetic.MEAN: _mean,
    Arithmetic.EXTREME: _extreme,
    Arithmetic.FLOAT: by_floats,
}
