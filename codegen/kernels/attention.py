"""Attention as one kernel: a tile of queries runs through blocks of keys, whose scores exist for one block at a time.

    for each head, for each tile of queries, which threads share out:
        q = the tile, turned: (width, queries), times the scale
        for each block of keys that some query of the tile sees:
            s = scores: (keys, queries)                  vectors run along the queries: largest scores and sums are those of lanes
            s += masks; s = -inf where a key is hidden
            m' = max(m, s)    p = e^(s - m')    l = l e^(m - m') + sum p    o = o e^(m - m') + v p: (width, queries)
        result = o / l, turned back

Keys and values are read where they lie, element by element, each for all vectors of queries; nothing is packed. A block of scores and the turned
queries stay in L1, the keys and values of a head in L2.

Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 3; Dao et al. (FlashAttention), arXiv 2205.14135, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from math import prod

import numpy as np

from codegen.kernels.unit import Unit
from codegen.layout import Layout
from codegen.tails import arity, expression, number
from codegen.target import Target
from codegen.writer import Writer
from lfopt.ops import Call, Dataflow
from lfopt.ops.attention import Attention

WIDE = 3  # vectors of queries in a tile, where there are registers for it
MANY = 24  # registers for sums, from which on that is so
KEYS = 128  # of a block, about: as many rows of scores lie in L1 beside the queries
MOST_SUMS = 16  # keys, or elements of values, that are summed at a time, at most
CACHED = 1 << 18  # floats of the keys and values of a head that stay in L2, about
BAND = 4  # tiles that share the keys and values of a block, where more come from further away
TASKS = 4  # bands for every thread, at least


def fuses(form: Attention, target: Target) -> bool:
    """Whether an attention can become one kernel, and had better: with less than half a vector of queries, most lanes would be idle.

    It reads and makes float32 maps, whatever others are stored in.
    """
    *stack, queries, _ = form.mixing.result
    heads = prod(stack)
    alike = all(prod(call.result[:-2]) == heads for call in (form.product, form.softmax))
    floats = all(tensor.dtype == "float32" for call in (form.product, *form.before, form.softmax, form.mixing) for tensor in call.result_tensors)
    given = [t.dtype for call in (form.product, *form.before, form.mixing) for t in call.tensors if t is not None]
    known = all(arity(call) and call.operator.kind != "Transpose" for call in form.before)
    return alike and floats and known and {*given} <= {"float32", "bool"} and 2 * queries >= target.lanes[0]


@dataclass(frozen=True)
class _Operand:
    """A matrix for every head: how its elements lie."""

    pointer: str  # C expression for the first
    ctype: str
    heads: tuple[tuple[int, int], ...]  # of every axis before the last two, of one head after the other: extent, elements from one index to the next
    down: int  # elements from one row to the next
    across: int  # and from one column

    @property
    def first(self) -> str:
        """C expression: elements before those of head `s`."""
        terms: list[str] = []
        inside = prod(extent for extent, _ in self.heads)
        for extent, step in self.heads:
            outermost, inside = inside == prod(e for e, _ in self.heads), inside // extent
            if step:
                terms.append(f"{'s' if inside == 1 else f's / {inside}'}{'' if outermost else f' % {extent}'} * {step}")
        return " + ".join(terms) or "0"


@dataclass(frozen=True)
class _Extra:
    """What an operator on scores reads beside them. Rows are queries, columns are keys."""

    name: str
    matrix: _Operand
    turned: bool  # whether, turned, it has a place beside the scores: elsewhere it is (keys, queries) already, or all queries have it in common

    @property
    def parameter(self) -> str:
        """Of the functions of a tile: where it begins for the head, and, where it is turned at compile time, for the tile."""
        return f"const {self.matrix.ctype} *{self.name}"

    @property
    def beside(self) -> str:
        """As a function finds it that runs through a block of keys."""
        return f"const {'float' if self.turned else self.matrix.ctype} *{self.name}"

    def vector(self, pitch: int, offset: int) -> str:
        """C expression for a vector of queries at key j."""
        if self.matrix.down == 0:
            return f"SPLAT_@((float){self.name}[j * {self.matrix.across}])"
        step = (pitch if self.matrix.across else 0) if self.turned else self.matrix.across
        return f"*(const u@ *)({self.name} + j * {step} + {offset})"


@dataclass(frozen=True)
class _Scores:
    """The operators on scores before the softmax, as statements on vectors of queries."""

    scale: float  # of the products, before all others
    lines: tuple[tuple[str, str], ...]  # (C variable, expression) in order; `x` is the product
    extras: tuple[_Extra, ...]
    guard: str  # condition on the sum `l` of weights under which a query has 0 as its result; "": never


@dataclass(frozen=True)
class _Tile:
    """Queries that run through the keys together."""

    lanes: tuple[int, ...]  # of their vectors
    target: Target

    @property
    def queries(self) -> int:
        """That it holds."""
        return sum(self.lanes)

    @property
    def pitch(self) -> int:
        """Floats from one row of scores to the next: whole vectors."""
        return -(-self.queries // self.target.lanes[0]) * self.target.lanes[0]

    @property
    def vectors(self) -> list[tuple[int, int]]:
        """(lanes, first query) of each."""
        return [*zip(self.lanes, accumulate(self.lanes, initial=0), strict=False)]

    @property
    def most(self) -> int:
        """Sums for each query that registers hold."""
        return max(1, min(self.target.accumulators // len(self.lanes), MOST_SUMS))

    @property
    def keys(self) -> int:
        """Whose scores are made at a time: a power of two, so that steps of one kind of tile are whole steps of another."""
        return 1 << self.most.bit_length() - 1


@dataclass(frozen=True)
class _Run:
    """Equal tiles, one behind the other."""

    tile: _Tile
    first: int  # query
    count: int


class Fused:
    """The functions of one attention."""

    def __init__(self, out: Writer, unit: Unit, form: Attention, lie: Sequence[Layout]) -> None:
        """`unit`: of the product with the values; `lie`: the layouts of all maps.

        Raises Unsupported for operands that are there in no order of axes.
        """
        self.out, self.unit, self.form, self.lie = out, unit, form, lie
        self.functions = 0  # that were asked for
        self.flow: Dataflow = unit.flow
        self.heads, self.queries = prod(form.mixing.result[:-2]), form.mixing.result[-2]
        self.depth, self.width = form.product.shape(0)[-1], form.mixing.result[-1]
        self.a, self.b = self._operand(form.product, 0), self._operand(form.product, 1)
        self.v = self._operand(form.mixing, 1)
        made = unit.layouts(unit.result)
        self.y = _Operand(unit.address(unit.result, "0"), "float", _stack(made, made.shape), *made.strides[-2:])
        self.scores = self._before()

    # -- operands ----------------------------------------------------------------------------------------------------------------------------

    def _operand(self, call: Call, index: int) -> _Operand:
        """An operand of a product, or of an operator on scores, that is a map or a constant as it is."""
        tensor, value = call.tensors[index], call.values[index]
        assert tensor is not None, "an operand of attention is there"
        if value is not None:
            seen = Layout(tensor, tuple(range(len(tensor.shape))))
            pointer = self.unit.blob.add(value.astype(np.float32))
            return self._matrix(call, seen, pointer, "float")
        m = next(o.map for o in self.flow.operands[self.flow.calls.index(call)] if o.input == index)
        seen = self.lie[m].seen(tensor)
        if seen is None:
            raise self.unit.unsupported(f"a view of {list(self.lie[m].shape)} as {list(tensor.shape)}", "views that keep axes apart")
        return self._matrix(call, seen, self.unit.address(m, "0"), seen.ctype)

    def _matrix(self, call: Call, seen: Layout, pointer: str, ctype: str) -> _Operand:
        steps = [0, 0, *(0 if extent == 1 else step for extent, step in zip(seen.shape, seen.strides, strict=True))]
        return _Operand(pointer, ctype, _stack(seen, call.result), *steps[-2:])

    def _before(self) -> _Scores:
        """The operators on scores; what a mask does that hides runs of keys is left to the window."""
        form, scale = self.form, 1.0
        lines, extras = list[tuple[str, str]](), list[_Extra]()
        last = form.product
        value = "x"
        for call in form.before:
            if form.mask and form.mask in call.operator.inputs:
                last = call
                continue
            mine = next(k for k in range(arity(call)) if self._made(call, k) == last.operator.outputs[0])
            other = call.values[1 - mine] if arity(call) == 2 else None
            if value == "x" and other is not None and other.size == 1 and (call.operator.kind == "Mul" or (call.operator.kind == "Div" and not mine)):
                factor = float(other.reshape(-1)[0])
                scale = scale * factor if call.operator.kind == "Mul" else scale / factor
            else:
                terms = [value if k == mine else self._term(call, k, extras) for k in range(arity(call))]
                lines.append((f"y{len(lines)}", expression(call, terms)))
                value = lines[-1][0]
            last = call
        guard = {"": "", "Equal": "l == 0.0f", "IsNaN": "l == 0.0f || l != l"}[form.guard]
        return _Scores(scale, tuple(lines), tuple(extras), guard)

    def _made(self, call: Call, index: int) -> str:
        """The tensor that an operand is a view of."""
        name = call.operator.inputs[index]
        while name in self.form.views:
            name = self.form.views[name]
        return name

    def _term(self, call: Call, index: int, extras: list[_Extra]) -> str:
        """C expression for an operand that is no score."""
        value = call.values[index]
        if value is not None and value.size == 1:
            return f"SPLAT_@({number(float(value.reshape(-1)[0]))})"
        name = f"x{len(extras)}"
        if value is None:
            found = self._operand(call, index)
            extras.append(_Extra(name, found, turned=found.down > 0))
        else:
            extras.append(_Extra(name, self._turned(call, value), turned=False))
        return f"{name}v"

    def _turned(self, call: Call, value: np.ndarray) -> _Operand:
        """A constant, in the order in which tiles read it: (..., keys, queries), and zeros behind the queries."""
        full = value.reshape((1,) * (len(call.result) - value.ndim) + value.shape).astype(np.float32).swapaxes(-1, -2)
        keys, queries = full.shape[-2:]
        if queries > 1:
            full = np.pad(full, [(0, 0)] * (full.ndim - 1) + [(0, self._padded - queries)])
        pitch, rows = full.shape[-1], full.shape[-2]
        steps = [0 if extent == 1 else prod(full.shape[k + 1 :]) for k, extent in enumerate(full.shape[:-2])]
        heads = tuple(zip(call.result[:-2], steps, strict=True))
        assert rows == keys
        return _Operand(self.unit.blob.add(full), "float", heads, int(queries > 1), pitch if keys > 1 else 0)

    @property
    def _padded(self) -> int:
        """Queries, in whole vectors."""
        lanes = self.unit.target.lanes[0]
        return -(-self.queries // lanes) * lanes

    # -- tiles -------------------------------------------------------------------------------------------------------------------------------

    @cached_property
    def runs(self) -> list[_Run]:
        """The tiles of a head, as equal as they can be."""
        target = self.unit.target
        most = target.lanes[0]
        lanes = [most] * (self.queries // most)
        if rest := self.queries % most:
            lanes.append(min(width for width in target.lanes if width >= rest))
        count = -(-len(lanes) // (WIDE if target.accumulators >= MANY else WIDE - 1))
        wide, more = divmod(len(lanes), count)
        ends = accumulate([wide + 1] * more + [wide] * (count - more), initial=0)
        tiles = [_Tile(tuple(lanes[a:b]), target) for a, b in pairwise(ends)]
        found: list[_Run] = []
        for tile, alike in groupby(tiles):
            first = found[-1].first + found[-1].count * found[-1].tile.queries if found else 0
            found.append(_Run(tile, first, len([*alike])))
        return found

    @cached_property
    def _seen(self) -> np.ndarray | None:
        """(tiles, 4) keys: the first that some query sees, and behind the last, in whole steps; then those between which all queries see every key.

        None: all see all keys.
        """
        if self.form.window is None:
            return None
        first, stop = self.form.window
        step, found = max(run.tile.keys for run in self.runs), list[tuple[int, ...]]()
        for run in self.runs:
            for k in range(run.count):
                at = run.first + k * run.tile.queries
                own = slice(at, at + run.tile.queries)
                low, high = int(first[own].min()) // step * step, min(-(-int(stop[own].max()) // step) * step, self.form.keys)
                found.append((low, high, int(first[own].max()), int(stop[own].min())))
        return np.array(found, np.int32)

    def _hidden(self, window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """(2, queries) of each: the first key that it sees, and how many; what lies behind the last query sees all."""
        first, stop = window
        found = np.zeros((2, self._padded), np.int32)
        found[1] = self.form.keys
        found[:, : self.queries] = first, stop - first
        return found

    @cached_property
    def block(self) -> int:
        """Keys in a block."""
        step = max(run.tile.keys for run in self.runs)
        return -(-min(self.form.keys, KEYS) // step) * step

    @cached_property
    def band(self) -> int:
        """Tiles that go through the blocks of keys together."""
        count = sum(run.count for run in self.runs)
        wanted = BAND if self.form.keys * (self.depth + self.width) > CACHED else 1
        return max(1, min(wanted, self.heads * count // (TASKS * self.unit.target.threads), count))

    @property
    def state(self) -> int:
        """Floats that are kept of a tile from block to block: its queries, the sums, and three numbers for each query."""
        return max(run.tile.pitch for run in self.runs) * (self.depth + self.width + 3)

    @property
    def shared(self) -> int:
        """Floats of a block: scores, and what is turned beside them."""
        return max(run.tile.pitch for run in self.runs) * (1 + len(self._beside)) * self.block

    @property
    def _beside(self) -> list[_Extra]:
        """What is turned as it is read."""
        return [extra for extra in self.scores.extras if extra.turned]

    # -- text --------------------------------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """The kernel, after the functions that it calls."""
        unit, out, count = self.unit, self.out, sum(run.count for run in self.runs)
        bands = -(-count // self.band)
        begins, steps, ends = ([make(run.tile) for run in self.runs] for make in (self._begin, self._step, self._end))
        scratch = unit.scratch(self.shared + self.band * self.state)
        arrays = {"a": self.a, "b": self.b, "v": self.v, **{extra.name: extra.matrix for extra in self.scores.extras}}
        with out.kernel(unit.name):
            out.all(f"const {operand.ctype} *{name} = {operand.pointer};" for name, operand in arrays.items())
            out(f"float *y = {self.y.pointer}, *const scores = {scratch};")
            first, stop, keys = "0", str(self.form.keys), f"const int from = j, keys = smaller({self.block}, {self.form.keys} - j);"
            if self.form.window is not None and self._seen is not None:
                hidden = unit.blob.add(self._hidden(self.form.window), "int32")
                out(f"const int32_t *ends = (const int32_t *)(const void *){unit.blob.add(self._seen, 'int32')};")
                out(f"const int32_t *hidden = (const int32_t *)(const void *){hidden};")
                first, stop = "low", "high"
                keys = f"const int from = larger(j, ends[4 * t]), keys = smaller(j + {self.block}, ends[4 * t + 1]) - from;"
            with out.block(self._each_band(bands)):
                last = f"smaller({count}, t0 + {self.band})" if count % self.band else f"t0 + {self.band}"
                out(f"const int s = n / {bands}, t0 = n % {bands} * {self.band}, t1 = {last};")
                if self._seen is not None:
                    out(f"int low = {self.form.keys}, high = 0;")
                    out("for (int t = t0; t < t1; t++) low = smaller(low, ends[4 * t]), high = larger(high, ends[4 * t + 1]);")
                self._each_tile(begins, lambda tile: f"a + {self.a.first} + at * {self.a.down}, w, {self._queries(tile)}")
                with out.block(f"for (int j = {first}; j < {stop}; j += {self.block})"):
                    self._each_tile(steps, self._operands, keys)
                self._each_tile(ends, lambda tile: f"y + {self.y.first} + at * {self.y.down}, w, {self._queries(tile)}")

    def _queries(self, tile: _Tile) -> str:
        """How many are there, of a tile that begins at query `at`."""
        return f"smaller({tile.queries}, {self.queries} - at)"

    def _operands(self, tile: _Tile) -> str:
        """What a block of keys is to a tile that begins at query `at`."""
        found = [
            f"b + {self.b.first} + from * {self.b.across}",
            f"v + {self.v.first} + from * {self.v.down}",
            "w",
            "scores",
            self._queries(tile),
            "keys",
        ]
        found += [f"{x.name} + {x.matrix.first} + at * {x.matrix.down} + from * {x.matrix.across}" for x in self.scores.extras]
        if self._seen is not None:
            found += ["from", "from < ends[4 * t + 2] || from + keys > ends[4 * t + 3] ? hidden + at : NULL"]
        return ", ".join(found)

    def _each_tile(self, names: Sequence[str], arguments: Callable[[_Tile], str], keys: str = "") -> None:
        """A loop over the tiles of a band; `names`: the function for each run of them. With `keys`, what says which, for those that see any."""
        out, before = self.out, 0
        with out.block("for (int t = t0; t < t1; t++)"):
            out(f"float *const w = scores + {self.shared} + (t - t0) * {self.state};")
            if keys:
                out(keys)
            if keys and self._seen is not None:
                out("if (keys <= 0) continue;")
            for name, run in zip(names, self.runs, strict=True):
                with out.block(f"{'else ' if before else ''}if (t < {before + run.count})"):
                    out(f"const int at = {run.first} + (t - {before}) * {run.tile.queries};", f"{name}({arguments(run.tile)});")
                before += run.count

    def _each_band(self, bands: int) -> str:
        """The loop over the bands of all heads, of which threads take equal parts, in keys that are seen."""
        threads, total = self.unit.target.threads, self.heads * bands
        if threads == 1:
            return f"for (int n = 0; n < {total}; n++)"
        widths = np.array([len(run.tile.lanes) for run in self.runs for _ in range(run.count)])
        tiles = widths * (self.form.keys if self._seen is None else self._seen[:, 1] - self._seen[:, 0])
        work = np.tile(np.add.reduceat(tiles, range(0, len(tiles), self.band)), self.heads).cumsum()
        cuts = [0, *(int(np.searchsorted(work, work[-1] * k / threads, side="right")) for k in range(1, threads)), total]
        self.out(f"static const int cuts[] = {{{', '.join(map(str, cuts))}}};")
        return "for (int n = cuts[m->me]; n < cuts[m->me + 1]; n++)"

    def _shared(self, head: str, body: Writer) -> str:
        """The name of the function with this head, whose name stands as NAME there: of one that another attention has, where there is one."""
        self.functions += 1
        lines = [*body.text().splitlines(), "}", ""]
        return self.out.function(f"{self.unit.name}_{self.functions}", lambda name: self.out(f"{head.replace('NAME', name)} {{", *lines))

    def _places(self, tile: _Tile) -> str:
        """C statement: what is kept of a tile at `w`, behind its queries."""
        pitch = tile.pitch
        places = {"o": f"w + {self.depth * pitch}", "most": f"o + {self.width * pitch}", "scale": f"most + {pitch}", "total": f"scale + {pitch}"}
        return f"float {', '.join(f'*const {name} = {place}' for name, place in places.items())};"

    def _begin(self, tile: _Tile) -> str:
        """The function that begins a tile: it turns the queries."""
        body, pitch = Writer(1), tile.pitch
        body(self._places(tile), f"static const float factor = {number(self.scores.scale)};")
        body(f"if (queries < {tile.queries}) memset(w, 0, {self.depth * pitch} * sizeof *w);")
        body(f"turn(q, {self.a.down}, {self.a.across}, queries, {self.depth}, w, {pitch}, 1, &factor, 0);")
        body(f"memset(o, 0, {self.width * pitch} * sizeof *o);")
        body(f"for (int i = 0; i < {pitch}; i++) most[i] = -INFINITY, total[i] = 0.0f;", "(void)scale;")
        return self._shared("static void NAME(const float *q, float *restrict w, int queries)", body)

    def _step(self, tile: _Tile) -> str:
        """The function that takes a tile through a block of keys."""
        form, extras, pitch, step = self.form, self.scores.extras, tile.pitch, tile.keys
        windows, rest, down = form.window is not None, form.keys % tile.keys, self.b.across  # `down`: from one key to the next
        products = {keys: self._products(tile, keys) for keys in (step, *([rest] if rest else []))}
        largest, weights = self._largest(tile), self._weights(tile)
        across = -(-self.width // tile.most)
        cuts = [self.width * k // across for k in range(across + 1)]
        mixes = {b - a: self._mix(tile, b - a) for a, b in pairwise(cuts)}
        body = Writer(1)
        body(self._places(tile))
        body(f"for (int i = 0; i + {step} <= keys; i += {step}) {products[step]}(w, k + i * {down}, s + i * {pitch});")
        if rest:
            body(f"if (keys % {step}) {products[rest]}(w, k + (keys - {rest}) * {down}, s + (keys - {rest}) * {pitch});")
        for k, extra in enumerate(self._beside):
            body(f"float *const {extra.name}t = s + {(1 + k) * self.block * pitch};")
            body.all(self._turn(extra, "keys" if extra.matrix.across else "1", tile))
        given = [f"{x.name}t" if x.turned else x.name for x in extras] + (["key", "hidden"] if windows else [])
        body(f"{largest}({', '.join(('s', 'keys', 'most', 'scale', *given))});", f"{weights}(s, keys, most, scale, total);")
        body.all(f"{mixes[b - a]}(s, v + {a * self.v.across}, keys, scale, o + {a * pitch});" for a, b in pairwise(cuts))
        if not self._beside:
            body("(void)queries;")
        head = "static void NAME(const float *k, const float *v, float *restrict w, float *restrict s, int queries, int keys"
        beside = "".join(f", {x.parameter}" for x in extras) + (", int key, const int32_t *hidden" if windows else "")
        return self._shared(f"{head}{beside})", body)

    def _end(self, tile: _Tile) -> str:
        """The function that ends a tile: it divides by the sums of the weights, and turns the result back."""
        body, guard = Writer(1), f"{self.scores.guard} ? 0.0f : " if self.scores.guard else ""
        body(self._places(tile))
        with body.block("for (int i = 0; i < queries; i++)"):
            body("const float l = total[i];", f"total[i] = {guard}1.0f / l;")
        body(f"turn(o, {tile.pitch}, 1, {self.width}, queries, y, {self.y.down}, {self.y.across}, total, 1);")
        return self._shared("static void NAME(float *restrict y, float *restrict w, int queries)", body)

    def _turn(self, extra: _Extra, keys: str, tile: _Tile) -> list[str]:
        """C statements that turn what a tile reads beside a block of scores."""
        matrix, to = extra.matrix, f"{extra.name}t"
        if matrix.ctype == "float":
            call = f"turn({extra.name}, {matrix.down}, {matrix.across}, queries, {keys}, {to}, {tile.pitch}, 1, &{extra.name}f, 0);"
            return [f"static const float {extra.name}f = 1.0f;", call]
        element = f"{extra.name}[c * {matrix.across} + i * {matrix.down}]"
        return [f"for (int c = 0; c < {keys}; c++)", f"    for (int i = 0; i < queries; i++) {to}[c * {tile.pitch} + i] = (float){element};"]

    def _products(self, tile: _Tile, keys: int) -> str:
        """The function that makes scores of some keys."""
        body, sums = Writer(1), [(k, w, lanes) for k in range(keys) for w, lanes in enumerate(tile.lanes)]
        body.all(f"v{lanes} s{k}_{w} = SPLAT_{lanes}(0.0f);" for k, w, lanes in sums)
        with body.block(f"for (int e = 0; e < {self.depth}; e++)"):
            body.all(f"v{lanes} q{w} = *(const u{lanes} *)(q + {at});" for w, (lanes, at) in enumerate(tile.vectors))
            for key in range(keys):
                body(f"float k{key} = k[{key * self.b.across}];")
                body.all(f"s{key}_{w} += k{key} * q{w};" for w in range(len(tile.lanes)))
            body(f"k += {self.b.down};", f"q += {tile.pitch};")
        body.all(f"*(u{lanes} *)(s + {k * tile.pitch + tile.vectors[w][1]}) = s{k}_{w};" for k, w, lanes in sums)
        return self._shared("APART void NAME(const float *q, const float *k, float *restrict s)", body)

    def _largest(self, tile: _Tile) -> str:
        """The function that finishes a block of scores and finds the largest: it leaves that, and e^(m - m')."""
        body, scores, windows = Writer(1), self.scores, self.form.window is not None
        for w, (lanes, at) in enumerate(tile.vectors):
            body(f"v{lanes} m{w} = *(const u{lanes} *)(most + {at});")

        def rows(*, hiding: bool) -> None:
            with body.block(f"for (int j = 0; j < keys; j++, s += {tile.pitch})"):
                for w, (lanes, at) in enumerate(tile.vectors):
                    lines = [f"v@ x = *(const u@ *)(s + {at});", *(f"v@ {x.name}v = {x.vector(tile.pitch, at)};" for x in scores.extras)]
                    lines += [f"v@ {name} = {value};" for name, value in scores.lines]
                    found = scores.lines[-1][0] if scores.lines else "x"
                    if hiding:
                        lines.append(f"i@ first = *(const i@ *)(hidden + {at}), seen = *(const i@ *)(hidden + {self._padded + at});")
                        lines.append("i@ there = (i@)((i@){0} + (uint32_t)(key + j) - first < seen);")
                        found = f"SELECT_@(there, {found}, SPLAT_@(-INFINITY))"
                    if scores.lines or hiding:
                        lines += [f"v@ z = {found};", f"*(u@ *)(s + {at}) = z;"]
                        found = "z"
                    lines.append(f"m{w} = max_@(m{w}, {found});")
                    with body.block(""):
                        body.all(line.replace("@", str(lanes)) for line in lines)

        if windows:
            with body.block("if (hidden)"):
                rows(hiding=True)
            with body.block("else"):
                rows(hiding=False)
        else:
            rows(hiding=False)
        for w, (lanes, at) in enumerate(tile.vectors):
            body(f"v{lanes} z{w} = SELECT_{lanes}(m{w} == SPLAT_{lanes}(-INFINITY), SPLAT_{lanes}(0.0f), m{w});")
            body(f"*(u{lanes} *)(scale + {at}) = exp_{lanes}(*(const u{lanes} *)(most + {at}) - z{w});", f"*(u{lanes} *)(most + {at}) = m{w};")
        beside = "".join(f", {x.beside}" for x in scores.extras) + (", int key, const int32_t *hidden" if windows else "")
        return self._shared(f"APART void NAME(float *restrict s, int keys, float *restrict most, float *restrict scale{beside})", body)

    def _weights(self, tile: _Tile) -> str:
        """The function that makes the weights of a block of scores, and adds them up."""
        body = Writer(1)
        for w, (lanes, at) in enumerate(tile.vectors):
            body(f"v{lanes} m{w} = *(const u{lanes} *)(most + {at}), t{w} = *(const u{lanes} *)(total + {at}) * *(const u{lanes} *)(scale + {at});")
            body(f"m{w} = SELECT_{lanes}(m{w} == SPLAT_{lanes}(-INFINITY), SPLAT_{lanes}(0.0f), m{w});")
        with body.block(f"for (int j = 0; j < keys; j++, s += {tile.pitch})"):
            for w, (lanes, at) in enumerate(tile.vectors):
                body(f"v{lanes} p{w} = exp_{lanes}(*(const u{lanes} *)(s + {at}) - m{w});", f"*(u{lanes} *)(s + {at}) = p{w};", f"t{w} += p{w};")
        body.all(f"*(u{lanes} *)(total + {at}) = t{w};" for w, (lanes, at) in enumerate(tile.vectors))
        return self._shared(
            "APART void NAME(float *restrict s, int keys, const float *restrict most, const float *restrict scale, float *restrict total)", body
        )

    def _mix(self, tile: _Tile, count: int) -> str:
        """The function that adds values times weights, so many elements of each value."""
        body, sums = Writer(1), [(e, w, lanes) for e in range(count) for w, lanes in enumerate(tile.lanes)]
        at = [first for _, first in tile.vectors]
        body.all(f"v{lanes} c{w} = *(const u{lanes} *)(scale + {first});" for w, (lanes, first) in enumerate(tile.vectors))
        body.all(f"v{lanes} o{e}_{w} = *(const u{lanes} *)(o + {e * tile.pitch + at[w]}) * c{w};" for e, w, lanes in sums)
        with body.block("for (int j = 0; j < keys; j++)"):
            body.all(f"v{lanes} s{w} = *(const u{lanes} *)(s + {first});" for w, (lanes, first) in enumerate(tile.vectors))
            for e in range(count):
                body(f"float v{e} = v[{e * self.v.across}];")
                body.all(f"o{e}_{w} += v{e} * s{w};" for w in range(len(tile.lanes)))
            body(f"v += {self.v.down};", f"s += {tile.pitch};")
        body.all(f"*(u{lanes} *)(o + {e * tile.pitch + at[w]}) = o{e}_{w};" for e, w, lanes in sums)
        return self._shared("APART void NAME(const float *s, const float *v, int keys, const float *restrict scale, float *restrict o)", body)


def _stack(seen: Layout, result: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The axes of a result before its last two, and how far apart an operand lies along them: 0 where it is broadcast."""
    rank, found = len(result), list[tuple[int, int]]()
    for axis, extent in enumerate(result[:-2]):
        at = axis - rank + len(seen.shape)
        found.append((extent, seen.strides[at] if at >= 0 and seen.shape[at] > 1 else 0))
    return tuple(found)
