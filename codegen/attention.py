"""Attention in counting C: every query runs through a block of keys, with what it keeps of those before.

Its parts are functions of the index of one element: what a product of attention reads is looked for in the
buffer, and goes through whatever scales it, masks it or permutes its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from codegen.blob import Blob
from codegen.layout import COUNTED, MapLayout
from codegen.loops.nest import Array, Nest
from codegen.loops.scalar import Scalar
from codegen.loops.table import loops
from codegen.source import Unsupported
from codegen.writer import Writer
from lfopt.ir import Compute, Graph, Span, Tensor
from lfopt.ops import Call, attention, statistics
from lfopt.ops.attention import Use, form_of, state_shape
from lfopt.ops.parameters import permutation


@dataclass(frozen=True, slots=True)
class Called(Array):
    """The results of a C function, element by element; `pointer` is its name."""

    def at(self, index: Sequence[str]) -> str:
        """The element at an index, as a C expression."""
        return f"{self.pointer}({', '.join(('m', *index))})"


@dataclass(frozen=True, slots=True)
class One(Array):
    """The one element that is made: `pointer` is its name."""

    def at(self, index: Sequence[str]) -> str:
        """Its name, whatever the index."""
        return self.pointer


class OnElement(Nest):
    """The loops of an operator for the element of one result at `i0`, `i1`, ..."""

    def __init__(
        self,
        out: Writer,
        call: Call,
        operands: Mapping[int, Array],
        results: Sequence[Array],
        blob: Blob,
        result: int,
    ) -> None:
        super().__init__(out, call, operands, results, blob, whole=True, threads=1)
        self.result = result

    @contextmanager
    def each(
        self,
        result: int = 0,
        axes: Sequence[int] | None = None,
        name: str = "i",
        spans: Mapping[int, Span] | None = None,
    ) -> Iterator[dict[int, str]]:
        """The index, where it is wanted."""
        wanted = [] if result == self.result else ["0"]
        for axis, (first, stop) in (spans or {}).items():
            wanted += [f"i{axis} >= {first}", f"i{axis} < {stop}"]
        with self.out.nested([f"if ({' && '.join(wanted)})"] if wanted else []):
            yield {k: f"i{k}" for k in range(len(self.results[result].shape)) if axes is None or k in axes}


class CountedAttention:
    """The C function of an attention in a group."""

    def __init__(
        self,
        out: Writer,
        call: Call,
        graph: Graph,
        blob: Blob,
        name: str,
        outside: Callable[[int], Array],
        kept: Array,
    ) -> None:
        """`outside`: an operand in the buffer, by its number; `kept`: of every query, between two blocks."""
        self.out = out
        self.call = call
        self.form = form_of(call)
        self.graph = graph
        self.blob = blob
        self.name = name
        self.outside = outside
        self.kept = kept
        self.functions: dict[Use, Called] = {}

    def write(self, result: Array) -> None:
        """C function `name(m, b0, s, from, to, first, last)` on box `b0` of the result, `s` of what is kept.

        Raises Unsupported for scores that are no floats.
        """
        form = self.form
        out = self.out
        *stack, width = form.mixing.result
        scores = self._function(form.softmax.operator.inputs[0], "scores")
        values = self._function(form.mixing.operator.inputs[1], "values")
        kind = scores.ctype
        if not Scalar(scores.dtype).floating:
            raise Unsupported(
                f"node {self.call.operator.name!r}: found scores of type {scores.dtype}; counting C accepts "
                "floats"
            )
        window = self._window()
        exp = Scalar(scores.dtype).function
        at = [f"i{k}" for k in range(len(stack))]
        value = [*self._stacked(at[:-1], form.mixing.shape(1)), "k", "e"]
        with out.block(
            f"static void {self.name}(const context *m, const box *b0, const box *s, int from, int to, int "
            "first, int last)"
        ):
            out("(void)b0;")
            head = "head"
            query = at[-1]
            with out.nested(
                [
                    f"for (int {head} = s->first[0]; {head} < s->stop[0]; {head}++)",
                    f"for (int {query} = s->first[1]; {query} < s->stop[1]; {query}++)",
                ]
            ):
                for k, i in enumerate(at[:-1]):
                    out(f"const int {i} = {head} / {prod(stack[k + 1 : -1])} % {stack[k]};", f"(void){i};")
                kept = [head, query]
                out(f"{kind} sum[{width}], most = -INFINITY, total = 0;")
                out(f"for (int e = 0; e < {width}; e++) sum[e] = first ? 0 : {self.kept.at([*kept, 'e'])};")
                out(
                    f"if (!first) most = {self.kept.at([*kept, str(width)])}, total = "
                    f"{self.kept.at([*kept, str(width + 1)])};"
                )
                low, high = (
                    (f"larger(from, {window[0]}[{at[-1]}])", f"smaller(to, {window[1]}[{at[-1]}])")
                    if window
                    else ("from", "to")
                )
                with out.block(f"for (int k = {low}; k < {high}; k++)"):
                    out(f"const {kind} score = {scores.at(self._of_scores([*at, 'k']))};")
                    with out.block("if (score > most)"):
                        out(f"const {kind} scale = isinf(most) ? 0 : {exp('exp', 'most - score')};")
                        out(
                            f"for (int e = 0; e < {width}; e++) sum[e] *= scale;",
                            "total *= scale, most = score;",
                        )
                    out(
                        f"const {kind} weight = isinf(most) && most < 0 && !isnan(score) ? 0 : "
                        f"{exp('exp', 'score - most')};",
                        "total += weight;",
                    )
                    out(f"for (int e = 0; e < {width}; e++) sum[e] += weight * ({kind}){values.at(value)};")
                with out.block("if (!last)"):
                    out(f"for (int e = 0; e < {width}; e++) {self.kept.at([*kept, 'e'])} = sum[e];")
                    most = self.kept.at([*kept, str(width)])
                    total = self.kept.at([*kept, str(width + 1)])
                    out(f"{most} = most, {total} = total;", "continue;")
                quotient = "sum[e] / total"
                if form.guard:
                    quotient = (
                        f"({'isnan(total) || ' if form.guard == 'IsNaN' else ''}total == 0 ? 0 : {quotient})"
                    )
                out(
                    f"for (int e = 0; e < {width}; e++) {result.at(self._laid_out([*at, 'e']))} = "
                    f"({result.ctype})({quotient});"
                )
        out("")

    def _window(self) -> tuple[str, str] | None:
        """Names of tables of the keys that each query sees."""
        if self.form.window is None:
            return None
        first, stop = (
            f"((const int32_t *){self.blob.add(np.ascontiguousarray(ends, np.int32), 'int32')})"
            for ends in self.form.window
        )
        return first, stop

    # -- indices ---------------------------------------------------------------------------------------------

    def _of_scores(self, at: list[str]) -> list[str]:
        """The index of a score, from that of the weight in the product with the values."""
        shape = self.form.mixing.shape(0)
        return self._behind([*self._stacked(at[:-2], shape), *at[-2:]], shape, self.form.softmax.result)

    def _laid_out(self, at: list[str]) -> list[str]:
        """The index of an element of the result, from that in the product with the values."""
        form = self.form
        name = self.form.mixed
        for part in form.parts[form.parts.index(form.mixing) + 1 :]:
            at = self._behind(at, form.tensors[name].shape, part.shape(0))
            at = [at[axis] for axis in permutation(part)]
            name = part.operator.outputs[0]
        return at

    @staticmethod
    def _behind(at: list[str], shape: tuple[int, ...], source: tuple[int, ...]) -> list[str]:
        """The index of the same element in a tensor of another shape."""
        if shape == source:
            return at
        return Array(MapLayout(Tensor("", source, "float32"), tuple(range(len(source)))), shape, "").behind(
            at
        )

    # -- parts -----------------------------------------------------------------------------------------------

    def _function(self, name: str, use: str) -> Called:
        """The function of a tensor's elements."""
        if (name, use) in self.functions:
            return self.functions[name, use]
        tensor = self.graph.tensors[name]
        if tensor.dtype not in COUNTED:
            raise Unsupported(
                f"tensor {name!r}: found {tensor.dtype}; counting C accepts {', '.join(COUNTED)}"
            )
        number = len(self.functions)
        called = Called(
            MapLayout(tensor, tuple(range(len(tensor.shape)))), tensor.shape, f"{self.name}_{number}"
        )
        self.functions[name, use] = called
        body = Writer()
        if name in self.form.views:
            source = self._function(self.form.views[name], use)
            at = self._behind([f"i{k}" for k in range(len(tensor.shape))], tensor.shape, source.shape)
            body(f"y = {source.at(at)};")
        elif name in self.form.makers:
            self._part(body, name, use)
        else:
            given = self.outside(self.form.uses.index((name, use)))
            body(f"y = {given.at([f'i{k}' for k in range(len(tensor.shape))])};")
        index = [f"i{k}" for k in range(len(tensor.shape))]
        with self.out.block(
            f"static inline {called.ctype} "
            f"{called.pointer}({', '.join(('const context *m', *(f'int {i}' for i in index)))})"
        ):
            self.out("".join(f"(void){i}; " for i in ("m", *index)).strip(), f"{called.ctype} y = 0;")
            self.out(body.text().rstrip("\n"), "return y;")
        self.out("")
        return called

    def _part(self, body: Writer, name: str, use: str) -> None:
        part, k = self.form.makers[name]
        results = [
            One(MapLayout(tensor, tuple(range(len(tensor.shape)))), tensor.shape, "y")
            for tensor in part.result_tensors
        ]
        asked = [j for j, output in enumerate(part.operator.outputs) if output]
        operands: dict[int, Array] = {}
        for i, operand in enumerate(part.operator.inputs):
            if operand and operand != self.form.mask and i not in self.form.parameters[part.operator.name]:
                operands[i] = self._function(operand, self.form.use(part, i, use))
        if part is self.form.product:
            self._scored(body, part, operands)
            return
        loops(OnElement(body, part, operands, results, self.blob, asked.index(k)))

    def _scored(self, body: Writer, part: Call, operands: Mapping[int, Array]) -> None:
        """One product of a query and a key."""
        queries = operands[0]
        keys = operands[1]
        *stack, query, key = (f"i{k}" for k in range(len(part.result)))
        left = queries.at([*self._stacked(stack, queries.shape), query, "e"])
        right = keys.at([*self._stacked(stack, keys.shape), "e", key])
        body(f"for (int e = 0; e < {queries.shape[-1]}; e++) y += {left} * {right};")

    @staticmethod
    def _stacked(stack: Sequence[str], shape: tuple[int, ...]) -> list[str]:
        """The index before the last two axes, broadcast."""
        return [
            "0" if extent == 1 else i
            for i, extent in zip(stack[len(stack) - len(shape) + 2 :], shape[:-2], strict=True)
        ]


def kept_step(call: Call, step: Compute) -> Compute:
    """The step with the box of what it keeps in the place of that of its result, moving as that does."""
    state_box = attention.state_box if call.attention is not None else statistics.state_box
    (box,) = step.boxes
    kept = state_box(call, box)
    shape = call.result
    by = list[tuple[int, ...]]()
    # how far what is kept moves with the result along each axis
    for axis, ((start, stop), extent) in enumerate(zip(box, shape, strict=True)):
        size = stop - start
        there = start + size if stop + size <= extent else start - size
        if 0 <= there != start:
            other = state_box(call, (*box[:axis], (there, there + size), *box[axis + 1 :]))
        else:
            other = kept
        by.append(
            tuple(
                (b - a) // (there - start) if there != start else 0
                for (a, _), (b, _) in zip(kept, other, strict=True)
            )
        )
    strides = tuple(
        tuple(sum(d * by[axis][a] for axis, d in enumerate(move[: len(box)])) for a in range(len(kept)))
        for move in step.strides
    )
    return replace(step, boxes=(kept,), inputs=None, strides=strides)


def kept_tensor(call: Call) -> Tensor:
    """A tensor for what is kept of every query between two blocks, or of what is normalized."""
    if call.attention is None:
        dtype = "float64" if call.result_tensors[0].dtype == "float64" else "float32"
        return Tensor(call.operator.outputs[0], statistics.state_shape(call), dtype)
    dtype = form_of(call).softmax.result_tensors[0].dtype
    return Tensor(call.operator.outputs[0], state_shape(call), "float64" if dtype == "float64" else "float32")
