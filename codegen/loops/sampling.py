"""DeformConv and RoiAlign: maps read between their elements, at places that are computed.

Whatever these are, nothing outside an array is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product
from math import gcd, prod

import numpy as np

from codegen.kernels.tiles import added
from codegen.loops.nest import Array, Nest
from codegen.loops.sums import double
from lfopt.ops.sampling import Deformed, half_pixel

MOST_TAPS = 1 << 15  # elements on the stack: all that some pixels of a DeformConv are made from
ROWS, VECTORS = 6, 4  # of a tile: pixels, and vectors of channels
PIXELS = 8  # that are made together, so that weights are read once for them


def deform_conv(nest: Nest) -> None:
    """Some pixels at a time: their taps, then the products of these with the weights of each group.

    Taps are interpolated once for all channels of the result.
    """
    if _in_vectors(nest):
        _deformed_tiles(nest)
    else:
        _deformed_elements(nest)


def _in_vectors(nest: Nest) -> bool:
    """Whether channels lie side by side, and constant weights make vectors of them."""
    x = nest.operand(0)
    y = nest.results[0]
    groups = nest.call.attribute("group", 1)
    return (
        bool(nest.lanes)
        and len(x.shape) == 4
        and nest.call.values[1] is not None
        and all(
            type(array) is Array and (array.stored or array.ctype) == "float" and array.step(1) == 1
            for array in (x, y)
        )
        and 2 * y.shape[1] // groups >= nest.lanes
        and ROWS * prod(nest.call.shape(1)[1:]) * groups <= MOST_TAPS
    )


def _deformed_tiles(nest: Nest) -> None:
    """Tiles of a few pixels by a few vectors of channels of the result."""
    call = nest.call
    out = nest.out
    y = nest.results[0]
    lanes = nest.lanes
    groups = call.attribute("group", 1)
    taps = prod(call.shape(1)[1:])
    outputs = y.shape[1] // groups
    vectors = min(-(-outputs // lanes), VECTORS)
    blocks = -(-outputs // (vectors * lanes))
    weights, bias = _packed(nest, groups, blocks * vectors * lanes)
    width = y.shape[3]
    rows = -(-width // -(-width // ROWS))
    rest = width % rows
    with nest.each(axes=(0, 2)) as at:
        for first, stop, size in ((0, width - rest, rows), (width - rest, width, rest)):
            if first == stop:
                continue
            with out.block(f"for (int w = {first}; w < {stop}; w += {size})"):
                out(f"float taps[{size}][{groups * taps}];")
                with nest.over((size,), "p") as (p,):
                    _interpolated(nest, [at[0], "0", at[2], f"(w + {p})"], p)
                with nest.over((groups, blocks), "g") as (g, block):
                    _tile(nest, [at[0], "0", at[2], "w"], (g, block), size, vectors, blocks, weights, bias)


def _packed(nest: Nest, groups: int, width: int) -> tuple[str, str]:
    """Addresses of weights (groups, taps, `width` channels made) and of the bias (groups, `width`).

    Taps are ordered by place in the window, then by channel read. Weights of missing channels are 0.
    """
    value = nest.call.values[1]
    assert value is not None
    m, read, *window = value.shape
    outputs = m // groups
    packed = np.zeros((groups, prod(window), read, width), np.float32)
    packed[..., :outputs] = value.reshape(groups, outputs, read, prod(window)).transpose(0, 3, 2, 1)
    shifts = np.zeros((groups, width), np.float32)
    if nest.call.has(3) and nest.call.values[3] is not None:
        shifts[:, :outputs] = nest.call.values[3].reshape(groups, outputs)
    return nest.constant(packed), nest.constant(shifts)


def _interpolated(nest: Nest, at: Sequence[str], pixel: str) -> None:
    """The elements that the taps of a pixel meet in row `pixel` of `taps`, in the order of `_packed`."""
    call = nest.call
    out = nest.out
    x = nest.operand(0)
    channels, (kh, kw) = x.shape[1], call.shape(1)[2:]
    groups = call.attribute("group", 1)
    offset_groups = Deformed.of(call)[4]
    of_group = channels // groups
    of_offset = channels // offset_groups
    together = gcd(of_group, of_offset)  # channels of one group and of one offset
    with nest.over((offset_groups, kh, kw), "k") as (g, row, column):
        _place(nest, at, (g, row, column))
        tap = f"(({g}) * {kh} + {row}) * {kw} + {column}"
        mask = f" * (double){nest.operand(4).at([at[0], tap, at[2], at[3]])}" if call.has(4) else ""
        corners = [*product("01", "01")]
        for r, s in corners:
            out(
                f"const int has{r}{s} = has_y{r} && has_x{s};",
                f"const float share{r}{s} = (float)({_share(r, s)}{mask});",
            )
        with nest.over((of_offset // together,), "u") as (u,):
            channel = f"({g}) * {of_offset} + {u} * {together}"
            for r, s in corners:
                out(f"const float *const x{r}{s} = &{x.at([at[0], channel, f'y{r}', f'x{s}'])};")
            # taps of a group, those of a place of the window, channels of a group
            window = f"(({row}) * {kw} + {column}) * {of_group}"
            start = f"({channel}) / {of_group} * {kh * kw * of_group} + {window} + ({channel}) % {of_group}"
            out(f"float *const tap = taps[{pixel}] + {start};")
            interior = " + ".join(f"share{r}{s} * x{r}{s}[c]" for r, s in corners)
            border = " + ".join(f"(has{r}{s} ? share{r}{s} * x{r}{s}[c] : 0)" for r, s in corners)
            inside = " && ".join(f"has{r}{s}" for r, s in corners)
            head = f"EACH for (int c = 0; c < {together}; c++)"
            for condition, interpolated in ((f"if ({inside})", interior), ("else", border)):
                with out.nested([condition, head]):
                    out(f"tap[c] = {interpolated};")


def _tile(
    nest: Nest,
    at: Sequence[str],
    block: tuple[str, str],
    size: int,
    vectors: int,
    blocks: int,
    weights: str,
    bias: str,
) -> None:
    """Pixels `at` and after, as many as `size`, by a block (group, number) of channels of the result."""
    call = nest.call
    out = nest.out
    y = nest.results[0]
    lanes = nest.lanes
    taps = prod(call.shape(1)[1:])
    outputs = y.shape[1] // call.attribute("group", 1)
    width = vectors * lanes
    group, number = block
    first = f"(({group}) * {blocks} + {number}) * {width}"
    sums = [[f"s{p}_{v}" for v in range(vectors)] for p in range(size)]
    for p in range(size):
        out.all(
            f"v{lanes} {name} = *(const u{lanes} *)({bias} + {first} + {v * lanes});"
            for v, name in enumerate(sums[p])
        )
    with out.block(f"for (int t = 0; t < {taps}; t++)"):
        out(
            f"const float *const w_t = {weights} + (({group}) * {taps} + t) * {blocks * width} + "
            f"({number}) * {width};"
        )
        out.all(f"const v{lanes} w{v} = *(const u{lanes} *)(w_t + {v * lanes});" for v in range(vectors))
        for p in range(size):
            out(f"const v{lanes} a{p} = SPLAT_{lanes}(taps[{p}][({group}) * {taps} + t]);")
            out.all(added(name, f"a{p}", f"w{v}", lanes) for v, name in enumerate(sums[p]))
    out(f"float tile[{size}][{width}];")
    out.all(
        f"*(u{lanes} *)(tile[{p}] + {v * lanes}) = {name};"
        for p in range(size)
        for v, name in enumerate(sums[p])
    )
    channel = f"({group}) * {outputs} + ({number}) * {width}"
    out(f"const int count = smaller({width}, {outputs} - ({number}) * {width});")
    shift = ""
    if call.has(3) and call.values[3] is None:
        shift = f" + {nest.operand(3).at([f'({channel} + c)'])}"
    with out.block(f"for (int p = 0; p < {size}; p++)"):
        out(f"float *const y = &{y.at([at[0], channel, at[2], f'({at[3]} + p)'])};")
        with out.nested(["EACH for (int c = 0; c < count; c++)"]):
            out(f"y[c] = tile[p][c]{shift};")


def _deformed_elements(nest: Nest) -> None:
    """Pixels in the order in which they come, of any type."""
    call = nest.call
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    if len(x.shape) != 4 or prod(call.shape(1)[1:]) * call.attribute("group", 1) > MOST_TAPS:
        raise nest.unsupported(
            f"weights of shape {[*call.shape(1)]}", f"2 spatial axes, up to {MOST_TAPS} taps of a pixel"
        )
    _, _, _, groups, _ = Deformed.of(call)
    taps = prod(call.shape(1)[1:])
    outputs = y.shape[1] // groups
    together = max(min(PIXELS, MOST_TAPS // (groups * taps), y.shape[3]), 1)
    held = "float" if y.dtype == "float32" else "double"
    first, stop = nest.ends(3)
    with nest.each(axes=(0, 2)) as at, out.block(f"for (int w = {first}; w < {stop}; w += {together})"):
        out(
            f"const int count = smaller({together}, {stop} - w);",
            f"{y.ctype} taps[{together}][{groups * taps}];",
            f"{held} sums[{together}][{outputs}];",
        )
        with nest.over(("count",), "p") as (p,):
            _deformed_taps(nest, [at[0], "0", at[2], f"(w + {p})"], p)
        with nest.over((groups,), "g") as (g,):
            weight = _weights(nest)
            out(f"for (int p = 0; p < count; p++) EACH for (int o = 0; o < {outputs}; o++) sums[p][o] = 0;")
            with nest.over((taps,), "t") as (t,), out.block("for (int p = 0; p < count; p++)"):
                out(f"const {held} tap = ({held})taps[p][({g}) * {taps} + {t}];")
                out(
                    f"EACH for (int o = 0; o < {outputs}; o++) "
                    f"sums[p][o] += tap * ({held}){weight(g, t, 'o')};"
                )
            with nest.over((outputs,), "o") as (o,), out.block("for (int p = 0; p < count; p++)"):
                channel = f"({g}) * {outputs} + {o}"
                bias = f" + ({held}){nest.operand(3).at([channel])}" if nest.call.has(3) else ""
                with _where(nest, {1: channel}):
                    out(f"{y.at([at[0], channel, at[2], '(w + p)'])} = ({y.ctype})(sums[p][{o}]{bias});")


def _deformed_taps(nest: Nest, at: Sequence[str], pixel: str) -> None:
    """The elements that the taps of a pixel meet, interpolated, in row `pixel` of `taps`."""
    call = nest.call
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    offset_groups = Deformed.of(call)[4]
    channels, (kh, kw) = x.shape[1], call.shape(1)[2:]
    of_offset = channels // offset_groups
    with nest.over((offset_groups, kh, kw), "k") as (g, row, column):
        tap = f"(({g}) * {kh} + {row}) * {kw} + {column}"
        _place(nest, at, (g, row, column))
        weighed = f" * (double){nest.operand(4).at([at[0], tap, at[2], at[3]])}" if nest.call.has(4) else ""
        with out.block(f"EACH for (int c = 0; c < {of_offset}; c++)"):
            channel = f"({g}) * {of_offset} + c"
            parts = [
                f"(has_y{r} && has_x{s} ? {_share(r, s)} * "
                f"(double){x.at([at[0], channel, f'y{r}', f'x{s}'])} : 0)"
                for r, s in product("01", "01")
            ]
            out(
                f"taps[{pixel}][({channel}) * {kh * kw} + ({row}) * {kw} + {column}] = "
                f"({y.ctype})(({' + '.join(parts)}){weighed});"
            )


def _place(nest: Nest, at: Sequence[str], tap: tuple[str, str, str]) -> None:
    """Where a tap (offset group, row, column of the window) of a pixel meets the map, along both axes.

    Variables y0, y1: rows beside it, has_y0, has_y1: whether they are in the map, fy: how far it is from the
    first; of columns alike.
    """
    call = nest.call
    out = nest.out
    x = nest.operand(0)
    offset = nest.operand(2)
    strides, dilations, pads = Deformed.of(call)[:3]
    (height, width), (kh, kw) = x.shape[2:], call.shape(1)[2:]
    g, row, column = tap
    number = f"(({g}) * {kh} + {row}) * {kw} + {column}"
    for name, o, k, axis in (("y", at[2], row, 0), ("x", at[3], column, 1)):
        place = f"({o}) * {strides[axis]} + ({k}) * {dilations[axis]} - ({pads[axis]})"
        out(
            f"const double {name} = {place} + "
            f"(double){offset.at([at[0], f'({number}) * 2 + {axis}', at[2], at[3]])};"
        )
    out(f"const int inside = y > -1 && y < {height} && x > -1 && x < {width};")
    for name, extent in (("y", height), ("x", width)):
        # what lies beside the map is not added; the map is read where it begins or ends
        out(
            f"const int low_{name} = inside ? (int)floor({name}) : 0;",
            f"const double f{name} = {name} - low_{name};",
            f"const int has_{name}0 = inside && low_{name} >= 0;",
            f"const int has_{name}1 = inside && low_{name} + 1 < {extent};",
            f"const int {name}0 = larger(low_{name}, 0), {name}1 = smaller(low_{name} + 1, {extent - 1});",
        )


def _weights(nest: Nest) -> Callable[[str, str, str], str]:
    """The weight of a tap of a group for one of its channels.

    Constant weights are packed so that those of all channels lie side by side.
    """
    value = nest.call.values[1]
    groups = nest.call.attribute("group", 1)
    (m, _, kh, kw), taps = nest.call.shape(1), prod(nest.call.shape(1)[1:])
    if value is None:
        w = nest.operand(1)
        return lambda g, t, o: w.at(
            [f"({g}) * {m // groups} + {o}", f"({t}) / {kh * kw}", f"({t}) / {kw} % {kh}", f"({t}) % {kw}"]
        )
    pointer = nest.constant(value.reshape(groups, m // groups, taps).transpose(0, 2, 1))
    return lambda g, t, o: f"{pointer}[(({g}) * {taps} + {t}) * {m // groups} + {o}]"


def _share(row: str, column: str) -> str:
    """C expression: the weight of one of the four elements around a place."""
    return " * ".join(f"f{name}" if k == "1" else f"(1 - f{name})" for name, k in (("y", row), ("x", column)))


def roi_align(nest: Nest) -> None:
    """Bin by bin: its samples one after the other, each of all channels."""
    call, out, (x, regions, images, y) = (
        nest.call,
        nest.out,
        (*(nest.operand(i) for i in range(3)), nest.results[0]),
    )
    count, (_, channels, high, wide) = x.shape[0], y.shape
    average = call.attribute("mode", "avg") == "avg"
    ratio = call.attribute("sampling_ratio", 0)
    corner = 0.5 if half_pixel(call) else 0.0
    if channels > MOST_TAPS:
        raise nest.unsupported(f"{channels} channels", f"up to {MOST_TAPS}")
    with nest.each(axes=(0, 2, 3)) as at:
        if count > 1:
            out(f"const int image = nearest_of({images.at([at[0]])}, {count});")
        out(f"double made[{channels}];")
        for name, bin_, bins, edges in (("y", at[2], high, "13"), ("x", at[3], wide, "02")):
            _along(
                nest,
                name,
                [
                    f"(double){regions.at([at[0], edge])} * {double(call.attribute('spatial_scale', 1.0))} - "
                    f"{corner}"
                    for edge in edges
                ],
            )
            out(f"const double size_{name} = length_{name} / {bins};")
            out(f"const int count_{name} = {ratio or f'to_int32(ceil(size_{name}))'};")
            out(f"const double first_{name} = start_{name} + ({bin_}) * size_{name};")
        out(f"for (int c = 0; c < {channels}; c++) made[c] = {'0' if average else '-INFINITY'};")
        with out.block("for (int j = 0; j < count_y; j++)"), out.block("for (int k = 0; k < count_x; k++)"):
            _sample(nest, x, average=average)
        samples = "count_y > 0 && count_x > 0"
        with nest.over((channels,), "c") as (c,), _where(nest, {1: c}):
            value = f"made[{c}] / ((double)count_y * count_x)" if average else f"made[{c}]"
            out(f"{y.at([at[0], c, at[2], at[3]])} = ({y.ctype})({samples} ? {value} : 0);")


@contextmanager
def _where(nest: Nest, at: Mapping[int, str]) -> Iterator[None]:
    """A block for elements of the result that are to be made, at these indices by axis."""
    conditions = nest.wanted(at)
    with nest.out.block(f"if ({' && '.join(conditions)})") if conditions else nullcontext():
        yield


def _along(nest: Nest, name: str, edges: Sequence[str]) -> None:
    """Start and length of a region along an axis."""
    start, stop = edges
    nest.out(f"const double start_{name} = {start}, stop_{name} = {stop};")
    length = f"stop_{name} - start_{name}"
    nest.out(
        f"const double length_{name} = {length if half_pixel(nest.call) else f'{length} > 1 ? {length} : 1'};"
    )


def _sample(nest: Nest, x: Array, *, average: bool) -> None:
    """Add one sample of every channel to what its bin has so far."""
    out, (_, channels, height, width) = nest.out, x.shape
    for name, index in (("y", "j"), ("x", "k")):
        out(f"const double at_{name} = first_{name} + ({index} + 0.5) * size_{name} / count_{name};")
    out(f"const int inside = at_y >= -1 && at_y <= {height} && at_x >= -1 && at_x <= {width};")
    for name, extent in (("y", height), ("x", width)):
        out(
            f"const double {name} = inside && at_{name} > 0 ? (at_{name} < {extent - 1} ? at_{name} : "
            f"{extent - 1}) : 0;"
        )
        out(
            f"const int {name}0 = (int){name}, {name}1 = smaller({name}0 + 1, {extent - 1});",
            f"const double f{name} = {name} - {name}0;",
        )
    with nest.over((channels,), "c") as (c,), _where(nest, {1: c}):
        image = "image" if x.shape[0] > 1 else "0"
        parts = [
            f"{_share(r, s)} * (double){x.at([image, c, f'y{r}', f'x{s}'])}" for r, s in product("01", "01")
        ]
        if average:
            out(f"if (inside) made[{c}] += {' + '.join(parts)};")
        else:
            out("double v = -INFINITY;")
            for part in parts:
                out(f"v = fmax(v, {part});")
            out(f"made[{c}] = fmax(made[{c}], inside ? v : 0);")


LOOPS: dict[str, Callable[[Nest], None]] = {"DeformConv": deform_conv, "RoiAlign": roi_align}
