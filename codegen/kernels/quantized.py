"""Which kernel makes which operator on quantised maps, in the arithmetic of `lfopt.ops.integer`.

Bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

import numpy as np

from codegen.kernels.channelwise import depthwise
from codegen.kernels.choice import Kernel, Write
from codegen.kernels.dots import LARGEST, Products, convolution, extents, is_signed, rows
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.packed import BLOCK, LANES, Bytes, Scaling, constants
from codegen.kernels.weights import in_order, on_rows, without_groups
from codegen.kernels.window import KernelWindow, window_of
from codegen.kernels.winograd_bytes import winograd
from codegen.layout import tensor_of
from codegen.writer import CModule, Writer
from lfopt.ir import whole
from lfopt.ops import scaling as by
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.fixed_point import Multipliers
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.part import Part
from lfopt.ops.stored import minus_zero, quantization, zero_of
from lfopt.ops.traits import Arithmetic
from lfopt.ops.windows import windows


def kernels_of(fused: FusedKernel) -> tuple[Kernel, ...]:
    """The kernels that may take an operator on quantised maps, in the order in which they are asked.

    Raises Unsupported where none is to be asked.
    """
    if not fused.target.dots:
        raise fused.unsupported(
            f"quantised maps, target {fused.target.name}",
            "fast kernels for them where there are AVX-512 and its VNNI",
        )
    how = arithmetic(fused.call)
    known = (Arithmetic.SUMS, *KERNELS)
    if len(fused.call.results) != 1 or how not in known:
        raise fused.unsupported(
            f"{len(fused.call.results)} results, or arithmetic {how.value!r}",
            ", ".join(key.value for key in known),
        )
    if how is not Arithmetic.SUMS:
        return (KERNELS[how],)
    if fused.call.operator.kind not in SUMS:
        raise fused.unsupported("an operator that has no kernel", ", ".join(SUMS))
    if fused.call.operator.kind == "Conv":
        fused.require_pixels()
        _require(fused, fused.operand(0))
    return SUMS[fused.call.operator.kind]


# -- sums ----------------------------------------------------------------------------------------------------


def _weights(fused: FusedKernel) -> np.ndarray:
    """int16 of the weights' shape: constant weights less their zero points. Raises Unsupported."""
    value = fused.constant(1)
    return minus_zero(Part(value, whole(value.shape)), quantization(tensor_of(fused.call, 1)), "int16")


def _scaled(fused: FusedKernel, count: int) -> Callable[[np.ndarray], Products]:
    """Weights -> products, for `count` output channels, with their biases and factors.

    Raises Unsupported.
    """
    call = fused.call
    requantization = by.requantization(fused.call)
    multiplier, shift = (np.broadcast_to(f, (count,)) for f in requantization.by)
    if 2 * requantization.largest * float(np.max(multiplier / 2.0**shift)) >= LARGEST:
        raise fused.unsupported(
            "results far beyond the range of bytes", "sums that fit int32 when they are scaled"
        )
    bias = by.bias(call)
    if bias.ndim == 2 and bias.shape[0] != 1:
        raise fused.unsupported(f"a bias of {list(bias.shape)}", "one for each channel")
    bias = np.broadcast_to(bias.reshape(-1), (count,))
    zero_in = zero_of(tensor_of(call, 0))
    return lambda weights: Products(
        weights, bias, multiplier, shift, zero_in, _zero_out(fused), requantization.largest
    )


def _zero_out(fused: FusedKernel) -> int:
    return zero_of(fused.call.result_tensors[0])


def _winograd(fused: FusedKernel) -> Write:
    if not fused.tiled:
        raise fused.unsupported(
            "rows in rings, or little to gain",
            "whole maps that it makes faster, by weights that a cache holds",
        )
    products = _scaled(fused, len(fused.constant(1)))
    return lambda out: winograd(out, fused, window_of(fused), products(_weights(fused)))


def _depthwise(fused: FusedKernel) -> Write:
    group = fused.call.attribute("group", 1)
    count = len(fused.constant(1))
    if not group == fused.call.shape(0)[1] == count:
        raise fused.unsupported(
            "no groups" if group == 1 else f"{group} groups of {count // group} channels",
            "a group for every channel",
        )
    products = _scaled(fused, count)
    return lambda out: depthwise(out, fused, window_of(fused), products(_weights(fused)))


def _convolution(fused: FusedKernel) -> Write:
    group = fused.call.attribute("group", 1)
    products = _scaled(fused, len(fused.constant(1)))
    return lambda out: convolution(
        out, fused, window_of(fused), products(without_groups(_weights(fused), group))
    )


def _product(fused: FusedKernel) -> Write:
    """Gemm and MatMul with constant weights: a convolution of one tap."""
    call = fused.call
    if not call.constant[1] or call.constant[0] or len(call.shape(1)) != 2 or call.attribute("transA", 0):
        raise fused.unsupported(
            "transA, operands that are both computed, or a stack of matrices",
            "a feature map times a constant matrix",
        )
    as_it_is = call.operator.kind == "Gemm" and bool(call.attribute("transB", 0))
    seen = on_rows(fused)
    products = _scaled(fused, fused.constant(1).shape[0 if as_it_is else 1])
    _require(seen, fused.operand(0))

    def write(out: CModule) -> None:
        weights = _weights(fused) if as_it_is else _weights(fused).T
        convolution(
            out,
            seen,
            KernelWindow(fused.operand(0), (1, 1)),
            products(in_order(fused, weights)[:, :, None, None]),
        )

    return write


def _require(fused: FusedKernel, *maps: int) -> None:
    """Raises Unsupported where a map or the result are no rows of pixels."""
    for m in (*maps, fused.result):
        extents(fused, m)


# -- elementwise ---------------------------------------------------------------------------------------------


@contextmanager
def _blocks(out: Writer, fused: FusedKernel, count: int, lanes: int, *, split: bool) -> Iterator[None]:
    """A loop over `count` elements: `c` is the first of a vector, `some` are the lanes that there are."""
    turns = -(-count // lanes)
    rest = count % lanes
    everything = f"UINT64_C({(1 << lanes) - 1:#x})"
    with fused.each(out, "t", turns, split=split):
        out(f"const int c = t * {lanes};")
        there = (
            f"c + {lanes} <= {count} ? {everything} : UINT64_C({(1 << rest) - 1:#x})" if rest else everything
        )
        out(f"const __mmask{lanes} some = (__mmask{lanes})({there});")
        yield


class _Operand(NamedTuple):
    """An operand of an elementwise operator."""

    map: int
    by_channel: bool  # whether it has a value for every channel, not for every element
    address: str


def _operands(fused: FusedKernel) -> list[_Operand]:
    """The operands of an elementwise operator. Raises Unsupported for constants, and for other layouts."""
    written = fused.layouts(fused.result)
    operands = list[_Operand]()
    extents(fused, fused.result)
    for index in range(len(fused.call.operator.inputs)):
        if fused.call.constant[index]:
            raise fused.unsupported("a constant", "feature maps")
        m = fused.operand(index)
        shape = fused.call.shape(index)
        own = fused.layouts(m)
        if shape == written.shape and own.shape == written.shape and own.order == written.order:
            operands.append(_Operand(m, by_channel=False, address=fused.address(m, "r")))
        elif (
            written.in_pixels
            and shape == (1, written.shape[1], 1, 1)
            and own.extents.elements == written.shape[1]
        ):
            operands.append(_Operand(m, by_channel=True, address=fused.address(m, "0")))
        else:
            raise fused.unsupported(
                f"an operand of {list(shape)}", "one as large as the result, or one value for every channel"
            )
    return operands


def _elementwise(
    out: CModule, fused: FusedKernel, operands: list[_Operand], value: str, lines: list[str]
) -> None:
    """Loops in which v0, v1, ... are 16 elements of the operands, as int32, and `value` is the result."""
    output = extents(fused, fused.result)
    by_pixel = any(operand.by_channel for operand in operands)
    with out.kernel(fused.name):
        out.all(
            f"const {fused.layouts(operand.map).ctype} *x{k} = {operand.address};"
            for k, operand in enumerate(operands)
        )
        out(f"uint8_t *y = (uint8_t *){fused.address(fused.result, 'r')};")
        ends = Bytes.of(fused)
        out.all(ends.declaration(out))
        ends.load(out)
        if not by_pixel:
            with _blocks(out, fused, output.row, BLOCK, split=True):
                _vectors(out, fused, operands, "c", value, lines)
            return
        with _blocks(out, fused, output.channels, BLOCK, split=False):
            for k, operand in enumerate(operands):
                if operand.by_channel:
                    out.all(
                        f"const __m512i x{k}_{j} = {_read(fused, operand.map, f'x{k} + c', j)};"
                        for j in range(4)
                    )
            with fused.each_pixel(out, output.pixels):
                _vectors(out, fused, operands, f"p * {output.channels} + c", value, lines)


def _vectors(
    out: Writer, fused: FusedKernel, operands: list[_Operand], at: str, value: str, lines: list[str]
) -> None:
    """64 elements: four vectors."""
    out("__m512i " + ", ".join(f"made_{j}" for j in range(4)) + ";")
    for j in range(4):
        with out.block(""):
            for k, operand in enumerate(operands):
                out(
                    f"const __m512i v{k} = "
                    f"{f'x{k}_{j}' if operand.by_channel else _read(fused, operand.map, f'x{k} + {at}', j)};"
                )
            out.all(lines)
            out(f"made_{j} = {value};")
    Bytes.of(fused).put(out, f"y + {at}", [f"made_{j}" for j in range(4)], "some")


def _read(fused: FusedKernel, m: int, address: str, j: int) -> str:
    """C expression: of 64 elements from an address on, vector `j`."""
    return f"from_{_short(fused, m)}({address} + {j * LANES}, (__mmask16)(some >> {j * LANES}))"


def _short(fused: FusedKernel, m: int) -> str:
    return fused.layouts(m).ctype.removesuffix("_t")


def _all(value: int) -> str:
    """C expression: a vector of one int32; what is beyond wraps around."""
    return f"_mm512_set1_epi32({(value + (1 << 31)) % (1 << 32) - (1 << 31)})".replace(
        "-2147483648", "INT32_MIN"
    )


def _terms(fused: FusedKernel) -> Write:
    terms = by.sum_terms(fused.call)
    operands = _operands(fused)
    zeros = [zero_of(tensor_of(fused.call, k)) for k in range(len(operands))]
    start = -sum(m * z for m, z in zip(terms.multipliers, zeros, strict=True))
    adds = [
        f"sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(v{k}, {_all(m)}));"
        for k, m in enumerate(terms.multipliers)
    ]
    value = f"_mm512_add_epi32(rounded_16(sum, {terms.shift}), {_all(_zero_out(fused))})"
    return lambda out: _elementwise(out, fused, operands, value, [f"__m512i sum = {_all(start)};", *adds])


def _scaling(fused: FusedKernel, factors: Multipliers, largest: int, *, mean: bool = False) -> Scaling:
    """One factor for all. Raises Unsupported where results may not fit."""
    if (
        factors.multiplier.size != 1
        or 2 * largest * float(factors.multiplier.flat[0]) / 2.0 ** float(factors.shift.flat[0]) >= LARGEST
    ):
        raise fused.unsupported(
            "several factors, or results far beyond the range of bytes",
            "one factor, and results that fit int32",
        )
    return Scaling(
        Multipliers(*(np.broadcast_to(f.reshape(()), (LANES,)) for f in factors)),
        _zero_out(fused),
        largest,
        mean=mean,
    )


def _mul(fused: FusedKernel) -> Write:
    scaling = _scaling(fused, by.product_factors(fused.call), 1 << 16)
    operands = _operands(fused)
    a, b = (f"_mm512_sub_epi32(v{k}, {_all(zero_of(tensor_of(fused.call, k)))})" for k in (0, 1))
    product = f"_mm512_mullo_epi32({a}, {b})"
    return lambda out: _elementwise(
        out, fused, operands, scaling.value(product, constants(out, scaling.rows)), []
    )


def _table(fused: FusedKernel) -> Write:
    index = next(i for i, constant in enumerate(fused.call.constant) if not constant)
    source = fused.operand(index)
    output = extents(fused, fused.result)
    if fused.layouts(source).sequence != fused.layouts(fused.result).sequence:
        raise fused.unsupported(
            "an operand that lies otherwise than the result", "one that lies as the result does"
        )
    x = fused.address(source, "r")
    y = fused.address(fused.result, "r")
    entries = (by.table(fused.call) if fused.table is None else fused.table).view(np.uint8)

    def write(out: CModule) -> None:
        with out.kernel(fused.name):
            out(f"const bytes_256 table = table_of({constants(out, entries)});")
            out(f"const uint8_t *x = (const uint8_t *){x};", f"uint8_t *y = (uint8_t *){y};")
            with _blocks(out, fused, output.row, BLOCK, split=True):
                out("put_some(y + c, some, looked_up(_mm512_maskz_loadu_epi8(some, x + c), table));")

    return write


# -- pools ---------------------------------------------------------------------------------------------------


def _mean(fused: FusedKernel) -> Write:
    """A mean, or sum, over all rows and pixels."""
    call = fused.call
    source = fused.operand(0)
    pool = call.operator.kind == "AveragePool"
    if pool:
        everything = all(w.kernel >= w.size and w.size_out == 1 and not w.pad for w in windows(call))
    else:
        everything = reduced_axes(call) == {2, 3}
    if not everything or not fused.layouts(source).in_pixels:
        raise fused.unsupported(
            f"a mean of {list(call.shape(0))} over part of it", "a mean over all rows and pixels"
        )
    image = fused.layouts(source).extents
    count = prod(call.shape(0)[2:])
    extents(fused, fused.result)
    counted = by.window_counts(call, whole(call.result)) if pool else np.array(count)
    scaling = _scaling(fused, by.mean_factors(call, counted), count * 255, mean=True)
    start = -count * zero_of(tensor_of(call, 0))

    def write(out: CModule) -> None:
        rows_ = constants(out, scaling.rows)
        ends = Bytes.of(fused)
        with out.kernel(fused.name):
            out(f"uint8_t *y = (uint8_t *){fused.address(fused.result, 'r')};")
            out.all(ends.declaration(out))
            ends.load(out)
            with _blocks(out, fused, image.channels, LANES, split=True):
                out(f"__m512i sum = {_all(start)};")
                with out.block(f"for (int h = 0; h < {image.rows}; h++)"):
                    out(f"const {fused.layouts(source).ctype} *x = {fused.address(source, 'h')};")
                    added = f"from_{_short(fused, source)}(x + p * {image.channels} + c, some)"
                    out(f"for (int p = 0; p < {image.pixels}; p++) sum = _mm512_add_epi32(sum, {added});")
                ends.put(out, "y + c", [scaling.value("sum", rows_)], "some")

    return write


def _max_pool(fused: FusedKernel) -> Write:
    call = fused.call
    if call.operator.kind != "MaxPool" or by.recoding(tensor_of(call, 0), call.result_tensors[0]) is not None:
        raise fused.unsupported("another operator, or a scale that changes", "MaxPool")
    fused.require_pixels()
    window = window_of(fused)
    source = extents(fused, window.map)
    output = extents(fused, fused.result)
    signed = is_signed(fused, window.map)

    def write(out: CModule) -> None:
        with out.kernel(fused.name):
            rows(out, fused, window, -128 if signed else 0, BLOCK)
            out(f"uint8_t *y = (uint8_t *){fused.address(fused.result, 'r')};")
            with (
                fused.each_pixel(out, output.pixels),
                _blocks(out, fused, output.channels, BLOCK, split=False),
            ):
                out(
                    f"const int at = p * {window.strides[1] * source.channels} + c;",
                    "__m512i most = _mm512_loadu_si512(x[0] + at);",
                )
                with out.block(f"for (int k = 0; k < {window.kernel[0]}; k++)"):
                    for k in range(window.kernel[1]):
                        read = f"_mm512_loadu_si512(x[k] + at + {k * window.dilations[1] * source.channels})"
                        out(f"most = _mm512_max_{'epi8' if signed else 'epu8'}(most, {read});")
                out(f"_mm512_mask_storeu_epi8(y + p * {output.channels} + c, some, most);")

    return write


# -- side by side --------------------------------------------------------------------------------------------


def _concat(fused: FusedKernel) -> Write:
    """A concatenation of channels, each operand brought to the result's scale."""
    call = fused.call
    written = fused.layouts(fused.result)
    axis = call.attribute("axis", 0) % len(call.result)
    count = len(call.operator.inputs)
    if (
        call.operator.kind != "Concat"
        or any(call.constant)
        or any(fused.layouts(m).order != written.order for m in map(fused.operand, range(count)))
    ):
        raise fused.unsupported(
            "another operator, a constant, or operands that lie otherwise than the result",
            "feature maps side by side",
        )
    if written.order[-1] != axis:
        raise fused.unsupported(f"axis {axis} of {list(call.result)}", "channels")
    maps = [fused.operand(k) for k in range(count)]
    _require(fused, *maps)

    def write(out: CModule) -> None:
        image = extents(fused, fused.result)
        first = 0
        with out.kernel(fused.name):
            out(f"uint8_t *y = (uint8_t *){fused.address(fused.result, 'r')};")
            out.all(
                f"const uint8_t *x{k} = (const uint8_t *){fused.address(m, 'r')};" for k, m in enumerate(maps)
            )
            with fused.each_pixel(out, image.pixels):
                for k, m in enumerate(maps):
                    channels = extents(fused, m).channels
                    recoded = by.recoding(tensor_of(call, k), call.result_tensors[0])
                    to = f"y + p * {image.channels} + {first}"
                    if recoded is None:
                        out(f"memcpy({to}, x{k} + p * {channels}, {channels});")
                    else:
                        with _blocks(out, fused, channels, BLOCK, split=False):
                            read = f"_mm512_maskz_loadu_epi8(some, x{k} + p * {channels} + c)"
                            table = f"table_of({constants(out, recoded.view(np.uint8))})"
                            out(f"_mm512_mask_storeu_epi8({to} + c, some, looked_up({read}, {table}));")
                    first += channels

    return write


MATRIX = (Kernel("matrix product of bytes", _product),)
SUMS: dict[str, tuple[Kernel, ...]] = {  # by kind of operator, in the order in which they are asked
    "Conv": (
        Kernel("Winograd convolution of bytes", _winograd, whole_maps=True),
        Kernel("depthwise convolution of bytes", _depthwise),
        Kernel("direct convolution of bytes", _convolution),
    ),
    "Gemm": MATRIX,
    "MatMul": MATRIX,
}
KERNELS: dict[Arithmetic, Kernel] = {  # of all others
    Arithmetic.TERMS: Kernel("sum of maps of bytes", _terms),
    Arithmetic.PRODUCT: Kernel("elementwise product of bytes", _mul),
    Arithmetic.TABLE: Kernel("table of bytes", _table),
    Arithmetic.MEAN: Kernel("mean of bytes over pixels", _mean),
    Arithmetic.EXTREME: Kernel("max pool of bytes", _max_pool),
    Arithmetic.CHOICE: Kernel("concatenation of bytes", _concat),
}
