"""Attention as one kernel: a tile of queries runs through blocks of keys, a block of scores at a time.

    for each head, for each tile of queries, which threads share out:
        begin the tile
        for each block of keys that some query of the tile sees:
            take the tile through the block
        end the tile

What these do is said in `codegen.kernels.attention_tiles`. A block of scores and the turned queries stay in
L1, the keys and values of a head in L2. They are read element by element, each for all vectors of queries:
where they lie, or, if many queries read a head whose rows lie apart (every row is a page of its own then, and
all of them share few sets of a cache), from a copy.

Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 3; Dao et al. (FlashAttention), arXiv 2205.14135,
algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from math import prod

import numpy as np

from codegen.epilogue import arity
from codegen.kernels.attention_operands import AttentionOperands, HeadMatrix
from codegen.kernels.attention_tiles import QueryTile, TileFunctions, TileRun
from codegen.kernels.fused_kernel import FusedKernel
from codegen.layout import MapLayout
from codegen.target import Target
from codegen.writer import CModule, Writer
from lfopt.ops.attention import Attention

WIDE = 3  # vectors of queries in a tile, where there are registers for it
MANY = 24  # registers for sums, from which on that is so
KEYS = 128  # of a block, about: as many rows of scores lie in L1 beside the queries
CACHED = 1 << 17  # floats of the keys and values of a head that stay in L2, about
# tiles that share the keys and values of a block, where more come from further away: as many stay in L2
# themselves
BAND = 16
TASKS = 4  # bands for every thread, at least
COPIED = 512  # queries that read a head, from which on a copy is worth its making


def unfused(form: Attention, target: Target) -> str:
    """Why an attention becomes no kernel of its own, whatever lies where; "" where it may.

    With less than half a vector of queries, most lanes would be idle. It reads float32 maps, whatever others
    are stored in.
    """
    *stack, queries, _ = form.mixing.result
    heads = prod(stack)
    if not all(prod(call.result[:-2]) == heads for call in (form.product, form.softmax)):
        return "found heads that share scores; accepted: scores for each"
    floats = all(
        tensor.dtype == "float32"
        for call in (form.product, *form.before, form.softmax, form.mixing)
        for tensor in call.result_tensors
    )
    given = [
        t.dtype for call in (form.product, *form.before, form.mixing) for t in call.tensors if t is not None
    ]
    if not floats or not {*given} <= {"float32", "bool"}:
        return f"found {', '.join(sorted({*given}))}; accepted: float32, and masks of bool"
    if not all(arity(call) and call.operator.kind != "Transpose" for call in form.before):
        return (
            f"found {', '.join(call.operator.kind for call in form.before)} on scores; accepted: "
            "operators that kernels take as they are made"
        )
    if 2 * queries >= target.lanes[0]:
        return ""
    return f"found {queries} queries; accepted: half a vector at least, {target.lanes[0] // 2}"


class AttentionKernel:
    """The kernel of one attention."""

    def __init__(self, fused: FusedKernel, form: Attention, layouts: Sequence[MapLayout]) -> None:
        """`fused`: of the product with the values; `layouts`: of all maps.

        Raises Unsupported for operands that are there in no order of axes.
        """
        self.fused = fused
        self.form = form
        self.operands = operands = AttentionOperands(fused, form, layouts)
        self.heads = operands.heads
        self.queries = operands.queries
        apart = operands.b.across != operands.depth or operands.v.down != operands.width
        self.copied = apart and operands.queries >= COPIED
        self.k, self.v = operands.b, operands.v  # as tiles read them
        if self.copied:
            self.k = HeadMatrix("k", "float", (), 1, operands.depth)
            self.v = HeadMatrix("v", "float", (), operands.width, 1)

    # -- tiles -----------------------------------------------------------------------------------------------

    @cached_property
    def runs(self) -> list[TileRun]:
        """The tiles of a head, as equal as they can be."""
        target = self.fused.target
        most = target.lanes[0]
        lanes = [most] * (self.queries // most)
        if rest := self.queries % most:
            lanes.append(min(width for width in target.lanes if width >= rest))
        count = -(-len(lanes) // (WIDE if target.accumulators >= MANY else WIDE - 1))
        wide, more = divmod(len(lanes), count)
        ends = accumulate([wide + 1] * more + [wide] * (count - more), initial=0)
        tiles = [QueryTile(tuple(lanes[a:b]), target) for a, b in pairwise(ends)]
        runs: list[TileRun] = []
        for tile, alike in groupby(tiles):
            first = runs[-1].first + runs[-1].count * runs[-1].tile.queries if runs else 0
            runs.append(TileRun(tile, first, len([*alike])))
        return runs

    @cached_property
    def _seen(self) -> np.ndarray | None:
        """(tiles, 4) int32 keys that the queries of a tile see; None: all see all.

        The first that some query sees, and behind the last, in whole steps; then those between which all
        queries see every key.
        """
        if self.form.window is None:
            return None
        first, stop = self.form.window
        step = max(run.tile.keys for run in self.runs)
        spans = list[tuple[int, ...]]()
        for run in self.runs:
            for k in range(run.count):
                at = run.first + k * run.tile.queries
                own = slice(at, at + run.tile.queries)
                low = int(first[own].min()) // step * step
                high = min(-(-int(stop[own].max()) // step) * step, self.form.keys)
                spans.append((low, high, int(first[own].max()), int(stop[own].min())))
        return np.array(spans, np.int32)

    def _hidden(self, window: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """(2, queries) int32: the first key that each query sees, and how many.

        Queries that pad the last vector see all.
        """
        first, stop = window
        spans = np.zeros((2, self.operands.padded), np.int32)
        spans[1] = self.form.keys
        spans[:, : self.queries] = first, stop - first
        return spans

    @cached_property
    def block(self) -> int:
        """Number of keys in a block."""
        step = max(run.tile.keys for run in self.runs)
        return -(-min(self.form.keys, KEYS) // step) * step

    @cached_property
    def band(self) -> int:
        """Tiles that go through the blocks of keys together."""
        count = sum(run.count for run in self.runs)
        wanted = BAND if self.form.keys * (self.operands.depth + self.operands.width) > CACHED else 1
        return max(1, min(wanted, self.heads * count // (TASKS * self.fused.target.threads), count))

    # -- text ------------------------------------------------------------------------------------------------

    def write(self, out: CModule) -> None:
        """The kernel, after the functions that it calls."""
        fused = self.fused
        operands = self.operands
        count = sum(run.count for run in self.runs)
        functions = TileFunctions(out, fused, operands, self.block, self.k, self.v)
        bands = -(-count // self.band)
        kinds = [run.tile for run in self.runs]
        begins, steps, ends = (
            [make(tile) for tile in kinds] for make in (functions.begin, functions.step, functions.end)
        )
        shared = max(map(functions.shared, kinds))
        state = max(map(functions.state, kinds))
        copies = operands.keys * (operands.depth + operands.width) if self.copied else 0
        scratch = out.scratch(shared + self.band * state + copies)
        arrays = {
            "a": operands.a,
            "b": operands.b,
            "c": operands.v,
            **{operand.name: operand.matrix for operand in operands.scores.operands},
        }
        a = operands.a
        y = operands.y
        with out.kernel(fused.name):
            out.all(f"const {matrix.ctype} *{name} = {matrix.place(out)};" for name, matrix in arrays.items())
            out(
                f"{y.ctype} *y = {y.pointer};",
                f"float *const scores = {scratch}, *const tiles = scores + {shared};",
            )
            if self.copied:
                out(
                    f"float *const k = tiles + {self.band * state}, *const v = k + "
                    f"{operands.keys * operands.depth};",
                    "int head = -1;",
                )
            first = "0"
            stop = str(operands.keys)
            keys = f"const int from = j, keys = smaller({self.block}, {operands.keys} - j);"
            if self.form.window is not None and self._seen is not None:
                hidden = out.constant(self._hidden(self.form.window), "int32")
                out(
                    "const int32_t *ends = (const int32_t *)(const void "
                    f"*){out.constant(self._seen, 'int32')};"
                )
                out(f"const int32_t *hidden = (const int32_t *)(const void *){hidden};")
                first = "low"
                stop = "high"
                keys = (
                    f"const int from = larger(j, ends[4 * t]), keys = smaller(j + {self.block}, ends[4 * "
                    "t + 1]) - from;"
                )
            with out.block(self._each_band(out, bands)):
                last = f"smaller({count}, t0 + {self.band})" if count % self.band else f"t0 + {self.band}"
                out(f"const int s = n / {bands}, t0 = n % {bands} * {self.band}, t1 = {last};")
                if self.copied:
                    with out.block("if (s != head)"):
                        self._copy(
                            out,
                            "b",
                            "k",
                            operands.b.first,
                            operands.b.across,
                            operands.b.down,
                            operands.depth,
                        )
                        self._copy(
                            out,
                            "c",
                            "v",
                            operands.v.first,
                            operands.v.down,
                            operands.v.across,
                            operands.width,
                        )
                        out("head = s;")
                if self._seen is not None:
                    out(f"int low = {operands.keys}, high = 0;")
                    out(
                        "for (int t = t0; t < t1; t++) low = smaller(low, ends[4 * t]), high = larger(high, "
                        "ends[4 * t + 1]);"
                    )
                self._each_tile(
                    out,
                    begins,
                    state,
                    lambda tile: f"a + {a.first} + at * {a.down}, w, {self._queries(tile)}",
                )
                with out.block(f"for (int j = {first}; j < {stop}; j += {self.block})"):
                    self._each_tile(out, steps, state, self._operands, keys)
                self._each_tile(
                    out,
                    ends,
                    state,
                    lambda tile: f"y + {y.first} + at * {y.down}, w, scores, {self._queries(tile)}",
                )

    def _copy(
        self, out: Writer, source: str, to: str, first: str, row: int, element: int, width: int
    ) -> None:
        """Copy the rows of a head, one for each key.

        `row`, `element`: elements from one row to the next, and from one element of a row to the next.
        """
        with out.block(f"for (int j = 0; j < {self.operands.keys}; j++)"):
            if element == 1:
                out(f"memcpy({to} + j * {width}, {source} + {first} + j * {row}, {width} * sizeof *{to});")
            else:
                out(
                    f"for (int e = 0; e < {width}; e++) {to}[j * {width} + e] = {source}[{first} + j * {row} "
                    f"+ e * {element}];"
                )

    def _queries(self, tile: QueryTile) -> str:
        """C expression: queries that are there, of a tile that begins at query `at`."""
        return f"smaller({tile.queries}, {self.queries} - at)"

    def _operands(self, tile: QueryTile) -> str:
        """Arguments of the function that takes a tile, from query `at` on, through a block of keys."""
        k, v = ("k", "v") if self.copied else ("b", "c")
        operands = [
            f"{k} + {self.k.first} + from * {self.k.across}",
            f"{v} + {self.v.first} + from * {self.v.down}",
            "w",
            "scores",
            self._queries(tile),
            "keys",
        ]
        operands += [
            f"{x.name} + {x.matrix.first} + at * {x.matrix.down} + from * {x.matrix.across}"
            for x in self.operands.scores.operands
        ]
        if self._seen is not None:
            operands += [
                "from",
                "from < ends[4 * t + 2] || from + keys > ends[4 * t + 3] ? hidden + at : NULL",
            ]
        return ", ".join(operands)

    def _each_tile(
        self,
        out: Writer,
        names: Sequence[str],
        state: int,
        arguments: Callable[[QueryTile], str],
        keys: str = "",
    ) -> None:
        """A loop over the tiles of a band; `names`: the function for each run of them.

        With `keys`, what says which, for those that see any.
        """
        before = 0
        with out.block("for (int t = t0; t < t1; t++)"):
            out(f"float *const w = tiles + (t - t0) * {state};")
            if keys:
                out(keys)
            if keys and self._seen is not None:
                out("if (keys <= 0) continue;")
            for name, run in zip(names, self.runs, strict=True):
                with out.block(f"{'else ' if before else ''}if (t < {before + run.count})"):
                    out(
                        f"const int at = {run.first} + (t - {before}) * {run.tile.queries};",
                        f"{name}({arguments(run.tile)});",
                    )
                before += run.count

    def _each_band(self, out: Writer, bands: int) -> str:
        """The loop over the bands of all heads, of which threads take equal parts, in keys that are seen."""
        threads = self.fused.target.threads
        total = self.heads * bands
        if threads == 1:
            return f"for (int n = 0; n < {total}; n++)"
        widths = np.array([len(run.tile.lanes) for run in self.runs for _ in range(run.count)])
        tiles = widths * (self.form.keys if self._seen is None else self._seen[:, 1] - self._seen[:, 0])
        cost = np.tile(np.add.reduceat(tiles, range(0, len(tiles), self.band)), self.heads).cumsum()
        cuts = [
            0,
            *(int(np.searchsorted(cost, cost[-1] * k / threads, side="right")) for k in range(1, threads)),
            total,
        ]
        out(f"static const int cuts[] = {{{', '.join(map(str, cuts))}}};")
        return "for (int n = cuts[m->me]; n < cuts[m->me + 1]; n++)"
