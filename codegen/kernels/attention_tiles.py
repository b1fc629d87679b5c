"""The C functions of a tile of queries: one begins it, one takes it through a block of keys, one ends it.

    begin   q = the tile, turned: (width, queries), times the scale;  m = -inf
    step    s = scores: (keys, queries)                      vectors run along the queries: largest scores and
                                                             sums are those of lanes
            known maximum:    p = e^(s - m) as the product leaves s, in registers
            else:             m' = max(m, s)    p = e^(s - m')    l = l e^(m - m')    o = o e^(m - m')
            l = l + sum p     o = o + v p: (width, queries)
    end     result = o / l, turned back

Any m that is not too small serves for a result: that of the keys so far, until some query has a score that
makes its weights add up to more than BOUND. Then the block is taken again with its own maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import exp, log2

from codegen.epilogue import number
from codegen.kernels.attention_operands import AttentionOperands, HeadMatrix, ScoreOperand
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import added
from codegen.target import Target
from codegen.writer import CModule, Writer

MOST_SUMS = 16  # keys, or elements of values, that are summed at a time, at most
BOUND = 2.0**20  # far enough from the largest float for sums of values times weights


@dataclass(frozen=True)
class QueryTile:
    """Queries that run through the keys together."""

    lanes: tuple[int, ...]  # of their vectors
    target: Target

    @property
    def queries(self) -> int:
        """Number of queries."""
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
        """Keys whose scores are made at a time.

        A power of two, so that steps of one kind of tile are whole steps of another.
        """
        return 1 << self.most.bit_length() - 1


@dataclass(frozen=True)
class TileRun:
    """Equal tiles, one behind the other."""

    tile: QueryTile
    first: int  # query
    count: int  # tiles


class TileFunctions:
    """Prints the functions of tiles, and gives their names.

    Functions that another attention has already go by its name for them.
    """

    def __init__(
        self,
        out: CModule,
        fused: FusedKernel,
        operands: AttentionOperands,
        block: int,
        k: HeadMatrix,
        v: HeadMatrix,
    ) -> None:
        """`block`: keys of a block, at most; `k`, `v`: as tiles read them.

        `k`: (elements, keys), `v`: (keys, elements).
        """
        self.out = out
        self.fused = fused
        self.operands = operands
        self.block = block
        self.k = k
        self.v = v
        self.scores = operands.scores
        self.windows = operands.form.window is not None
        self.functions = 0  # that were asked for

    def state(self, tile: QueryTile) -> int:
        """Floats that are kept of a tile from block to block.

        Its queries, the sums, and three numbers for each query.
        """
        return tile.pitch * (self.operands.depth + self.operands.width + 3)

    def shared(self, tile: QueryTile) -> int:
        """Floats of a block, which tiles share.

        Scores, and what is transposed beside them; or a result that is still to be rounded.

        Scores, and what is turned beside them; or a result that is still to be rounded.
        """
        return tile.pitch * max((1 + len(self.scores.turned)) * self.block, self.operands.width)

    def begin(self, tile: QueryTile) -> str:
        """The function that begins a tile: it transposes the queries."""
        body = Writer(1)
        pitch = tile.pitch
        a = self.operands.a
        depth = self.operands.depth
        factor = self.scores.scale * log2(exp(1)) if self.scores.binary else self.scores.scale
        body(self._places(tile), f"static const float factor = {number(factor)};")
        body(f"if (queries < {tile.queries}) memset(w, 0, {depth * pitch} * sizeof *w);")
        body(f"turn(q, {a.down}, {a.across}, queries, {depth}, w, {pitch}, 1, &factor, 0);")
        body(f"memset(o, 0, {self.operands.width * pitch} * sizeof *o);")
        body(f"for (int i = 0; i < {pitch}; i++) most[i] = -INFINITY, total[i] = 0.0f;", "(void)scale;")
        return self._function("static void NAME(const float *q, float *restrict w, int queries)", body)

    def step(self, tile: QueryTile) -> str:
        """The function that takes a tile through a block of keys."""
        width = self.operands.width
        pitch = tile.pitch
        operands = self.scores.operands
        given = [f"{x.name}t" if x.turned else x.name for x in operands]
        across = -(-width // tile.most)
        cuts = [width * k // across for k in range(across + 1)]
        several = self.operands.keys > self.block  # blocks, so that the maximum of keys before may be known
        first = self._own_maximum(tile, given)
        known = self._known_maximum(tile, given) if several else []
        mixes = {b - a: self._mix(tile, b - a) for a, b in pairwise(cuts)}
        body = Writer(1)
        body(self._places(tile))
        for k, operand in enumerate(self.scores.turned):
            body(f"float *const {operand.name}t = s + {(1 + k) * self.block * pitch};")
            body.all(self._turn(operand, "keys" if operand.matrix.across else "1", tile))
        body.all(known)
        with body.block("if (!known)" if known else ""):
            body.all(first)
        body.all(
            f"{mixes[b - a]}(s, v + {a * self.v.across}, keys, o + {a * pitch});" for a, b in pairwise(cuts)
        )
        if not self.scores.turned:
            body("(void)queries;")
        head = (
            "static void NAME(const float *k, const float *v, float *restrict w, float *restrict s, int "
            "queries, int keys"
        )
        beside = "".join(f", {x.parameter}" for x in operands) + (
            ", int key, const int32_t *hidden" if self.windows else ""
        )
        return self._function(f"{head}{beside})", body)

    def end(self, tile: QueryTile) -> str:
        """The function that ends a tile: divides by the sums of the weights, and transposes the result.

        What lay at `s` is lost.
        """
        body = Writer(1)
        guard = f"{self.scores.guard} ? 0.0f : " if self.scores.guard else ""
        y = self.operands.y
        width = self.operands.width
        body(self._places(tile), "(void)most, (void)scale;")
        with body.block("for (int i = 0; i < queries; i++)"):
            body("const float l = total[i];", f"total[i] = {guard}1.0f / l;")
        stored = self.fused.stored(self.fused.result)
        if stored.floats:
            body(
                f"turn(o, {tile.pitch}, 1, {width}, queries, y, {y.down}, {y.across}, total, 1);", "(void)s;"
            )
        else:
            body(f"turn(o, {tile.pitch}, 1, {width}, queries, s, {width}, 1, total, 1);")
            element = stored.write(f"y[i * {y.down} + e * {y.across}]", f"s[i * {width} + e]")
            if y.across == 1:
                row = f"narrow(y + i * {y.down}, s + i * {width}, {width});"
            else:
                row = f"for (int e = 0; e < {width}; e++) {element}"
            body(f"for (int i = 0; i < queries; i++) {row}")
        return self._function(
            f"static void NAME({y.ctype} *restrict y, float *restrict w, float *restrict s, int queries)",
            body,
        )

    # -- a block of keys -------------------------------------------------------------------------------------

    def _own_maximum(self, tile: QueryTile, given: list[str]) -> list[str]:
        """C statements that make the weights of a block by the largest score so far, the block's included.

        What was added up before is scaled.
        """
        hiding = ["key", "hidden"] if self.windows else []
        largest = self._largest(tile)
        weights = self._weights(tile)
        scaled = self._scaled(tile)
        return [
            *self._each_step(tile, {keys: self._products(tile, keys) for keys in self._steps(tile)}),
            f"{largest}({', '.join(('s', 'keys', 'most', 'scale', *given, *hiding))});",
            f"{weights}(s, keys, most, scale, total);",
            f"{scaled}(scale, o);",
        ]

    def _known_maximum(self, tile: QueryTile, given: list[str]) -> list[str]:
        """C statements that make the weights of a block by the largest score of the blocks before.

        `known` says whether that would do.
        """
        moved = [
            f", {name} + AT * {x.step(tile.pitch)}"
            for name, x in zip(given, self.scores.operands, strict=True)
        ]
        products = {keys: self._products(tile, keys, weights=True) for keys in self._steps(tile)}
        steps = self._each_step(tile, products, f", most, scale{''.join(moved)}")
        return [
            f"int known = *most > -INFINITY{' && !hidden' if self.windows else ''};",
            "if (known) {",
            f"    memset(scale, 0, {tile.pitch} * sizeof *scale);",
            *(f"    {line}" for line in steps),
            f"    known = {self._added(tile)}(scale, total);",
            "}",
        ]

    def _steps(self, tile: QueryTile) -> list[int]:
        """Keys of each kind of step."""
        rest = self.operands.keys % tile.keys
        return [tile.keys, *([rest] if rest else [])]

    def _each_step(self, tile: QueryTile, products: dict[int, str], more: str = "") -> list[str]:
        """C statements that call a function for every step of keys of a block.

        `products`: keys of a step -> its function; `more` arguments, where AT is the first key.
        """
        step, *rest = products

        def call(keys: int, at: str) -> str:
            places = f"w, k + {at} * {self.k.across}, s + {at} * {tile.pitch}"
            return f"{products[keys]}({places}{more.replace('AT', at)});"

        statements = [f"for (int i = 0; i + {step} <= keys; i += {step}) {call(step, 'i')}"]
        return statements + [f"if (keys % {step}) {call(keys, f'(keys - {keys})')}" for keys in rest]

    def _products(self, tile: QueryTile, keys: int, *, weights: bool = False) -> str:
        """The function that makes the scores of some keys.

        With `weights`: their weights by the maximum that is known, added to `sums`.
        """
        body = Writer(1)
        sums = [(k, w, lanes) for k in range(keys) for w, lanes in enumerate(tile.lanes)]
        body.all(f"v{lanes} s{k}_{w} = SPLAT_{lanes}(0.0f);" for k, w, lanes in sums)
        with body.block(f"for (int e = 0; e < {self.operands.depth}; e++)"):
            body.all(
                f"v{lanes} q{w} = *(const u{lanes} *)(q + {at});"
                for w, (lanes, at) in enumerate(tile.vectors)
            )
            for key in range(keys):
                body(f"float k{key} = k[{key * self.k.across}];")
                body.all(
                    added(f"s{key}_{w}", f"k{key}", f"q{w}", lanes) for w, lanes in enumerate(tile.lanes)
                )
            body(f"k += {self.k.down};", f"q += {tile.pitch};")
        if not weights:
            body.all(
                f"*(u{lanes} *)(s + {k * tile.pitch + tile.vectors[w][1]}) = s{k}_{w};"
                for k, w, lanes in sums
            )
            return self._function("APART void NAME(const float *q, const float *k, float *restrict s)", body)
        for w, (lanes, at) in enumerate(tile.vectors):
            body(
                f"const v{lanes} m{w} = *(const u{lanes} *)(most + "
                f"{at}){'' if self.scores.binary else f' * SPLAT_{lanes}(LOG2_E)'};"
            )
            body(f"v{lanes} t{w} = *(const u{lanes} *)(sums + {at});")
            for k in range(keys):
                with body.block(""):
                    lines = [f"v@ x = s{k}_{w};", *self.scores.statements(tile.pitch, at, str(k))]
                    if self.scores.binary:
                        exponent = f"x - m{w}"
                    else:
                        exponent = f"{self.scores.result} * SPLAT_@(LOG2_E) - m{w}"
                    lines += [
                        f"v@ p = power_of_2_@(bounded_@({exponent}));",
                        f"*(u@ *)(s + {k * tile.pitch + at}) = p;",
                    ]
                    body.all(line.replace("@", str(lanes)) for line in lines)
                    body(f"t{w} += p;")
            body(f"*(u{lanes} *)(sums + {at}) = t{w};")
        beside = "".join(f", {x.beside}" for x in self.scores.operands)
        return self._function(
            "APART void NAME(const float *q, const float *k, float *restrict s, const float *most, float "
            f"*restrict sums{beside})",
            body,
        )

    def _added(self, tile: QueryTile) -> str:
        """The function that adds the weights of a block to those before it, if the sums are below BOUND.

        It returns whether they are.
        """
        body = Writer(1)
        for w, (lanes, at) in enumerate(tile.vectors):
            body(f"const v{lanes} t{w} = *(const u{lanes} *)(sums + {at});")
            beyond = (
                f"SELECT_{lanes}(t{w} < SPLAT_{lanes}({number(BOUND)}), SPLAT_{lanes}(0.0f), "
                f"SPLAT_{lanes}(1.0f))"
            )
            body(f"if (largest_{lanes}({beyond}) > 0.0f) return 0;")
        body.all(f"*(u{lanes} *)(total + {at}) += t{w};" for w, (lanes, at) in enumerate(tile.vectors))
        body("return 1;")
        return self._function("static int NAME(const float *sums, float *restrict total)", body)

    def _largest(self, tile: QueryTile) -> str:
        """The function that finishes a block of scores and finds the largest.

        It leaves that, and e^(m - m').
        """
        body = Writer(1)
        scores = self.scores
        for w, (lanes, at) in enumerate(tile.vectors):
            body(f"v{lanes} m{w} = *(const u{lanes} *)(most + {at});")

        def rows(*, hiding: bool) -> None:
            with body.block(f"for (int j = 0; j < keys; j++, s += {tile.pitch})"):
                for w, (lanes, at) in enumerate(tile.vectors):
                    lines = [f"v@ x = *(const u@ *)(s + {at});", *scores.statements(tile.pitch, at, "j")]
                    score = scores.result
                    if hiding:
                        padded = self.operands.padded
                        lines.append(
                            f"i@ first = *(const i@ *)(hidden + {at}), seen = *(const i@ *)(hidden + "
                            f"{padded + at});"
                        )
                        lines.append("i@ there = (i@)((i@){0} + (uint32_t)(key + j) - first < seen);")
                        score = f"SELECT_@(there, {score}, SPLAT_@(-INFINITY))"
                    if scores.lines or hiding:
                        lines += [f"v@ z = {score};", f"*(u@ *)(s + {at}) = z;"]
                        score = "z"
                    lines.append(f"m{w} = max_@(m{w}, {score});")
                    with body.block(""):
                        body.all(line.replace("@", str(lanes)) for line in lines)

        if self.windows:
            with body.block("if (hidden)"):
                rows(hiding=True)
            with body.block("else"):
                rows(hiding=False)
        else:
            rows(hiding=False)
        for w, (lanes, at) in enumerate(tile.vectors):
            body(
                f"v{lanes} z{w} = SELECT_{lanes}(m{w} == SPLAT_{lanes}(-INFINITY), SPLAT_{lanes}(0.0f), "
                f"m{w});"
            )
            body(
                f"*(u{lanes} *)(scale + {at}) = "
                f"{self._power(f'*(const u{lanes} *)(most + {at}) - z{w}', lanes)};"
            )
            body(f"*(u{lanes} *)(most + {at}) = m{w};")
        beside = "".join(f", {x.beside}" for x in scores.operands) + (
            ", int key, const int32_t *hidden" if self.windows else ""
        )
        return self._function(
            "APART void NAME(float *restrict s, int keys, float *restrict most, float *restrict "
            f"scale{beside})",
            body,
        )

    def _weights(self, tile: QueryTile) -> str:
        """The function that makes the weights of a block of scores, and adds them up."""
        body = Writer(1)
        for w, (lanes, at) in enumerate(tile.vectors):
            body(
                f"v{lanes} m{w} = *(const u{lanes} *)(most + {at}), t{w} = *(const u{lanes} *)(total + {at}) "
                f"* *(const u{lanes} *)(scale + {at});"
            )
            body(f"m{w} = SELECT_{lanes}(m{w} == SPLAT_{lanes}(-INFINITY), SPLAT_{lanes}(0.0f), m{w});")
        with body.block(f"for (int j = 0; j < keys; j++, s += {tile.pitch})"):
            for w, (lanes, at) in enumerate(tile.vectors):
                body(f"v{lanes} p{w} = {self._power(f'*(const u{lanes} *)(s + {at}) - m{w}', lanes)};")
                body(f"*(u{lanes} *)(s + {at}) = p{w};", f"t{w} += p{w};")
        body.all(f"*(u{lanes} *)(total + {at}) = t{w};" for w, (lanes, at) in enumerate(tile.vectors))
        return self._function(
            "APART void NAME(float *restrict s, int keys, const float *restrict most, const float *restrict "
            "scale, float *restrict total)",
            body,
        )

    def _power(self, difference: str, lanes: int) -> str:
        """C expression: what a difference of scores, of which the largest is 0, is the logarithm of."""
        if self.scores.binary:
            return f"power_of_2_{lanes}(within_{lanes}({difference}, 127.0f))"
        return f"exp_{lanes}({difference})"

    def _scaled(self, tile: QueryTile) -> str:
        """The function that scales what was added up of values."""
        body = Writer(1)
        body.all(
            f"const v{lanes} c{w} = *(const u{lanes} *)(scale + {at});"
            for w, (lanes, at) in enumerate(tile.vectors)
        )
        with body.block(f"for (int e = 0; e < {self.operands.width}; e++, o += {tile.pitch})"):
            body.all(f"*(u{lanes} *)(o + {at}) *= c{w};" for w, (lanes, at) in enumerate(tile.vectors))
        return self._function("static void NAME(const float *scale, float *restrict o)", body)

    def _mix(self, tile: QueryTile, count: int) -> str:
        """The function that adds values times weights, `count` elements of each value."""
        body = Writer(1)
        sums = [(e, w, lanes) for e in range(count) for w, lanes in enumerate(tile.lanes)]
        at = [first for _, first in tile.vectors]
        body.all(
            f"v{lanes} o{e}_{w} = *(const u{lanes} *)(o + {e * tile.pitch + at[w]});" for e, w, lanes in sums
        )
        with body.block("for (int j = 0; j < keys; j++)"):
            body.all(
                f"v{lanes} s{w} = *(const u{lanes} *)(s + {first});"
                for w, (lanes, first) in enumerate(tile.vectors)
            )
            for e in range(count):
                body(f"float v{e} = v[{e * self.v.across}];")
                body.all(added(f"o{e}_{w}", f"v{e}", f"s{w}", lanes) for w, lanes in enumerate(tile.lanes))
            body(f"v += {self.v.down};", f"s += {tile.pitch};")
        body.all(f"*(u{lanes} *)(o + {e * tile.pitch + at[w]}) = o{e}_{w};" for e, w, lanes in sums)
        return self._function(
            "APART void NAME(const float *s, const float *v, int keys, float *restrict o)", body
        )

    # -- parts of functions ----------------------------------------------------------------------------------

    def _function(self, head: str, body: Writer) -> str:
        """The name of the function with this head, whose name stands as NAME there."""
        self.functions += 1
        name = f"{self.fused.name}_{self.functions}"
        text = Writer()
        text(f"{head.replace('NAME', name)} {{", *body.text().splitlines(), "}")
        return self.out.function(name, text)

    def _places(self, tile: QueryTile) -> str:
        """C statement: what is kept of a tile at `w`, behind its queries."""
        pitch = tile.pitch
        depth = self.operands.depth
        width = self.operands.width
        places = {
            "o": f"w + {depth * pitch}",
            "most": f"o + {width * pitch}",
            "scale": f"most + {pitch}",
            "total": f"scale + {pitch}",
        }
        return f"float {', '.join(f'*const {name} = {place}' for name, place in places.items())};"

    def _turn(self, operand: ScoreOperand, keys: str, tile: QueryTile) -> list[str]:
        """C statements that turn what a tile reads beside a block of scores."""
        matrix = operand.matrix
        name = operand.name
        to = f"{operand.name}t"
        if matrix.ctype == "float":
            call = (
                f"turn({name}, {matrix.down}, {matrix.across}, queries, {keys}, {to}, {tile.pitch}, 1, "
                f"&{name}f, 0);"
            )
            return [f"static const float {name}f = 1.0f;", call]
        element = f"{name}[c * {matrix.across} + i * {matrix.down}]"
        return [
            f"for (int c = 0; c < {keys}; c++)",
            f"    for (int i = 0; i < queries; i++) {to}[c * {tile.pitch} + i] = (float){element};",
        ]
