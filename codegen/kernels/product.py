"""Products of two maps, matrix by matrix: what attention is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from codegen.elements import FLOAT32, Element
from codegen.kernels.choice import Write
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.pairs import weighed
from codegen.kernels.tiles import Channels, Pixels, added, pixels, tile, tile_costs
from codegen.layout import MapLayout
from codegen.writer import CModule, Writer
from lfopt.ir import row_axis


@dataclass(frozen=True)
class _Stack:
    """The matrices: y[s][m, n] = sum over k of a[s][m, k] * b[s][k, n].

    Steps are elements from one index to the next.
    """

    # (extent, steps of a, b and, in pixels, y) of every axis before the last two
    heads: tuple[tuple[int, int, int, int], ...]
    rows: int  # m
    depth: int  # k
    columns: int  # n
    a: tuple[int, int]  # steps along m, k
    b: tuple[int, int]  # steps along k, n
    y: int  # step along m, in pixels

    @property
    def count(self) -> int:
        """Number of matrix products."""
        products = 1
        for extent, *_ in self.heads:
            products *= extent
        return products


def product(fused: FusedKernel) -> Write:
    """The kernel of a MatMul of two maps. Raises Unsupported."""
    sources = fused.operand(0), fused.operand(1)
    stack = _stack(fused, *map(fused.layouts, sources))
    fused.require_extras()
    if fused.flat or fused.images(fused.result).rows == 1:
        _, size = tile(stack.columns, stack.rows, fused.target, filled=True)
        for every in (
            extra.every
            for extra in fused.epilogue.extras
            if extra.reach == "row" and size > 1 and stack.y % extra.every
        ):
            raise fused.unsupported(
                f"an operand that is the same for {every} pixels", "one that tiles of other pixels can read"
            )
        return lambda out: _packed(out, fused, stack, sources)
    rows = fused.images(sources[0]).rows, fused.images(fused.result).rows
    if (
        stack.b[1] != 1
        or not fused.dense(sources[1])
        or row_axis(fused.call.result) != len(fused.call.result) - 2
        or rows[0] != rows[1]
    ):
        raise fused.unsupported(
            "columns that do not lie side by side", "a second matrix that is there as a whole, row by row"
        )
    return lambda out: _by_rows(out, fused, stack, sources)


def _stack(fused: FusedKernel, a: MapLayout, b: MapLayout) -> _Stack:
    """The matrices of a product of two maps. Raises Unsupported for orders of axes that it cannot read."""
    written = fused.layouts(fused.result).packed
    rank = len(written.shape)
    if min(len(a.shape), len(b.shape)) < 2 or written.order[-1] != rank - 1:
        raise fused.unsupported(
            f"{list(a.shape)} times {list(b.shape)}, axes in the order {list(written.order)}",
            "matrices, the last axis innermost",
        )
    heads: list[tuple[int, int, int, int]] = []
    for axis in range(rank - 2):
        steps: list[int] = []
        for operand in (a, b):
            at = axis - rank + len(operand.shape)
            steps.append(operand.strides[at] if at >= 0 and operand.shape[at] > 1 else 0)
        if written.shape[axis] > 1:
            heads.append(
                (written.shape[axis], steps[0], steps[1], written.strides[axis] // written.shape[-1])
            )
    channels = written.shape[-1]
    along_a, along_b = ((matrix.strides[-2], matrix.strides[-1]) for matrix in (a, b))
    return _Stack(
        tuple(heads), a.shape[-2], a.shape[-1], channels, along_a, along_b, written.strides[-2] // channels
    )


def _packed(out: CModule, fused: FusedKernel, stack: _Stack, sources: tuple[int, int]) -> None:
    """Whole maps: the second matrix is packed as tiles read it, so that its own order does not matter."""
    across, size = tile(stack.columns, stack.rows, fused.target, filled=True)
    along = pixels(stack.rows, size, 1, [0], stack.rows)
    in_pairs = not any(fused.stored(m).floats for m in sources)
    steps = -(-stack.depth // 2) if in_pairs else stack.depth
    held = fused.stored(sources[0]), FLOAT32
    names = out.functions(
        fused.name,
        {
            (part.size, channels.lanes, channels.channels): partial(
                _tile_of_pairs, fused, stack, part, channels
            )
            if in_pairs
            else partial(_tile, fused, stack, part, channels, channels.width, held)
            for channels in across
            for part in along
        },
    )
    scratch = out.scratch(steps * sum(channels.width * channels.tiles for channels in across))
    with out.kernel(fused.name):
        _matrices(out, fused, sources, "0")
        out(
            f"pair *restrict w = (pair *)(void *){scratch};"
            if in_pairs
            else f"float *restrict w = {scratch};"
        )
        by_heads = (
            fused.partitions_better([1] * stack.count, tile_costs(along))
            or stack.count >= 4 * fused.target.threads
        )
        with fused.each(out, "s", stack.count, split=by_heads):
            _locate(out, fused, stack, sources)
            start = 0
            for channels in across:
                if in_pairs:
                    _pack_pairs(out, stack, channels, start)
                else:
                    _pack(out, stack, channels, start, fused.stored(sources[1]))
                start += steps * channels.width * channels.tiles
            for part in fused.tiles(out, along, "q", split=not by_heads):
                out(f"const int p = {part.first} + q * {part.size};")
                start = 0
                for channels in fused.tiles(out, across, "t", split=False):
                    out(f"const int c = {channels.first} + t * {channels.width};")
                    name = names[part.size, channels.lanes, channels.channels]
                    step = steps * channels.width
                    out(f"const int at = from + p * {stack.y};")
                    to = f"y + at * {fused.images(fused.result).pitch} + c"
                    extras = fused.arguments("at", "c", stack.columns)
                    out(f"{name}(x + p * {stack.a[0]}, w + {start} + t * {step}, {to}{extras});")
                    start += step * channels.tiles


def _matrices(out: CModule, fused: FusedKernel, sources: tuple[int, int], row: str) -> None:
    """C statements: `a`, `b` and `y`, from which matrices are reached, and the epilogue's operands."""
    out.all(
        f"const {fused.pointer(m)}{name} = {fused.address(m, at)};"
        for m, name, at in zip(sources, "ab", (row, "0"), strict=True)
    )
    fused.begin(out, row)


def _locate(out: Writer, fused: FusedKernel, stack: _Stack, sources: tuple[int, int]) -> None:
    """C statements: the matrices of product s, and the first pixel of its result."""
    offsets: list[list[str]] = [[], [], []]
    inside = stack.count
    for extent, *steps in stack.heads:
        inside //= extent
        for terms, step in zip(offsets, steps, strict=True):
            if step:
                terms.append(f"s / {inside} % {extent} * {step}" if len(stack.heads) > 1 else f"s * {step}")
    x, v, y = (" + ".join(terms) or "0" for terms in offsets)
    out(
        f"const {fused.pointer(sources[0])}x = a + {x};",
        f"const {fused.pointer(sources[1])}v = b + {v};",
        f"const int from = {y};",
    )
    if not stack.heads:
        out("(void)s;")


def _pack(out: Writer, stack: _Stack, channels: Channels, start: int, held: Element) -> None:
    """Columns of the second matrix as (tiles, depth, channels of a tile), zeros where there are none."""
    down, across = stack.b
    width = channels.width
    with out.block(f"for (int t = 0; t < {channels.tiles}; t++)"):
        out(f"const {held.ctype} *g = v + ({channels.first} + t * {width}) * {across};")
        out(f"float *restrict to = w + {start} + t * {stack.depth * width};")
        present = channels.channels
        with out.block(f"for (int k = 0; k < {stack.depth}; k++)"):
            if across == 1:
                at = 0
                for lanes in channels.lanes:
                    if at + lanes <= present:
                        out(
                            f"*(u{lanes} *)(to + k * {width} + {at}) = "
                            f"{held.load(lanes, f'g + k * {down} + {at}')};"
                        )
                    elif at < present:
                        out(
                            f"for (int c = {at}; c < {present}; c++) to[k * {width} + c] = "
                            f"{held.read(f'g[k * {down} + c]')};"
                        )
                    at += lanes
            else:
                out(
                    f"for (int c = 0; c < {present}; c++) to[k * {width} + c] = "
                    f"{held.read(f'g[k * {down} + c * {across}]')};"
                )
            if present < width:
                out(f"for (int c = {present}; c < {width}; c++) to[k * {width} + c] = 0.0f;")


def _pack_pairs(out: Writer, stack: _Stack, channels: Channels, start: int) -> None:
    """Columns of the second matrix in bfloat16: (tiles, pairs along the depth, channels of a tile)."""
    down, across = stack.b
    width = channels.width
    present = channels.channels
    steps = -(-stack.depth // 2)

    def packed(k: str, *, both: bool) -> None:
        g = f"g + {k} * {2 * down}"
        to = f"to + {k} * {width}"
        at = 0
        for lanes in channels.lanes if across == 1 and both else ():
            if at + lanes <= present:
                out(f"*(p{lanes} *)({to} + {at}) = joined_{lanes}({g} + {at}, {g} + {at + down});")
                at += lanes
        if at < present:
            first, second = (f"(pair)*({g} + c * {across} + {move})" for move in (0, down))
            if not both:
                value = first
            elif down == 1:
                value = f"pair_at({g} + c * {across})"
            else:
                value = f"{first} | {second} << 16"
            out(f"for (int c = {at}; c < {present}; c++) *({to} + c) = {value};")
        if present < width:
            out(f"for (int c = {present}; c < {width}; c++) *({to} + c) = 0;")

    with out.block(f"for (int t = 0; t < {channels.tiles}; t++)"):
        out(
            f"const bf16 *g = v + ({channels.first} + t * {width}) * {across};",
            f"pair *restrict to = w + {start} + t * {steps * width};",
        )
        with out.block(f"for (int k = 0; k < {stack.depth // 2}; k++)"):
            packed("k", both=True)
        if stack.depth % 2:
            packed(str(stack.depth // 2), both=False)


def _by_rows(out: CModule, fused: FusedKernel, stack: _Stack, sources: tuple[int, int]) -> None:
    """One row at a time: the second matrix is read where it lies."""
    across, _ = tile(stack.columns, 1, fused.target)
    part = Pixels(0, 1, 1, frozenset())
    held = fused.stored(sources[0]), fused.stored(sources[1])
    names = out.functions(
        fused.name,
        {
            channels.lanes: partial(_tile, fused, stack, part, channels, stack.b[0], held)
            for channels in across
        },
    )
    with out.kernel(fused.name):
        _matrices(out, fused, sources, "r")
        with fused.each(out, "s", stack.count, split=True):
            _locate(out, fused, stack, sources)
            for channels in fused.tiles(out, across, "t", split=False):
                out(f"const int c = {channels.first} + t * {channels.width};")
                extras = fused.arguments("from", "c", stack.columns)
                out(
                    f"{names[channels.lanes]}(x, v + c, y + from * {fused.images(fused.result).pitch} + "
                    f"c{extras});"
                )


def _tile(
    fused: FusedKernel,
    stack: _Stack,
    part: Pixels,
    channels: Channels,
    step: int,
    held: tuple[Element, Element],
    name: str,
) -> Writer:
    """The function of a tile.

    `step`: elements from one row of the second matrix to the next, `held`: how the elements of both matrices
    lie.
    """
    out = Writer()
    offsets = [sum(channels.lanes[:k]) for k in range(len(channels.lanes))]
    a = held[0].ctype
    w = held[1].ctype
    y = fused.pointer(fused.result)
    with out.block(
        f"APART void {name}(const {a} *a, const {w} *restrict w, {y}restrict y{fused.parameters})"
    ):
        for p in range(part.size):
            out.all(f"v{lanes} s{p}_{k} = SPLAT_{lanes}(0.0f);" for k, lanes in enumerate(channels.lanes))
        with out.block(f"for (int i = 0; i < {stack.depth}; i++)"):
            out.all(
                f"v{lanes} w{k} = {held[1].load(lanes, f'w + {offsets[k]}')};"
                for k, lanes in enumerate(channels.lanes)
            )
            for p in range(part.size):
                out(f"float a{p} = {held[0].read(f'a[{p * stack.a[0]}]')};")
                out.all(added(f"s{p}_{k}", f"a{p}", f"w{k}", lanes) for k, lanes in enumerate(channels.lanes))
            out(f"a += {stack.a[1]};", f"w += {step};")
        fused.store_tile(out, part.size, channels, stack.columns, "s{p}_{k}", stack.y)
    return out


def _tile_of_pairs(fused: FusedKernel, stack: _Stack, part: Pixels, channels: Channels, name: str) -> Writer:
    """The function of a tile of matrices in bfloat16, the second of which is packed in pairs."""
    out, (along, depth) = Writer(), stack.a
    with out.block(
        f"APART void {name}(const bf16 *a, const pair *restrict w, {fused.pointer(fused.result)}restrict "
        f"y{fused.parameters})"
    ):
        for p in range(part.size):
            out.all(f"v{lanes} s{p}_{k} = SPLAT_{lanes}(0.0f);" for k, lanes in enumerate(channels.lanes))
        with out.block(f"for (int i = 0; i < {stack.depth // 2}; i++)"):
            firsts = {p: p * along for p in range(part.size)}
            two = {
                p: f"pair_at(a + {at})" if depth == 1 else f"(pair)a[{at}] | (pair)a[{at + depth}] << 16"
                for p, at in firsts.items()
            }
            weighed(out, channels, "w", two)
            out(f"a += {2 * depth};", f"w += {channels.width};")
        if stack.depth % 2:
            with out.block(""):
                weighed(out, channels, "w", {p: f"a[{at}]" for p, at in firsts.items()})
        fused.store_tile(out, part.size, channels, stack.columns, "s{p}_{k}", stack.y)
    return out
