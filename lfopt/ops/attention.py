"""Attention, softmax(Q K' s + mask) V, as one operator over blocks of keys, however it was exported.

Its *parts* are the product of queries and keys, elementwise operators on the scores (a scale, a mask), the
softmax, what guards it against rows without keys, the product with the values, and what only lays queries,
keys, values and the result out: transposes, splits, views, the heads that share keys. Nothing else reads what
they make, so that of scores only those of one block of keys exist at a time:

    m' = max(m, max_j s_j)
    l' = l e^(m - m') + sum_j e^(s_j - m')
    a' = a e^(m - m') + sum_j e^(s_j - m') v_j      result = a / l

Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 3; Dao et al. (FlashAttention), arXiv 2205.14135,
algorithm 1.

Rounding: every block adds two factors e^(m - m') of at most one, each with a relative error of a few units in
the last place u, to those of a sum in one pass. Over n keys in b blocks the result is within (n + O(b)) u of
sum_j p_j |v_j| of the exact one, as a softmax and a product, n u each, are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from lfopt.ir import Box, Compute, Span, Tensor, box_elements, box_shape, cut, row_axis, row_count, whole
from lfopt.ops import rows
from lfopt.ops.boxes import NOTHING
from lfopt.ops.call import Call, Compound, Shape
from lfopt.ops.parameters import permutation
from lfopt.ops.part import Operands, Part, hull, is_empty, take
from lfopt.ops.rows import RowReads

KIND = "Attention"
# the most that scores of hidden keys may be: in float32 e^(HIDDEN - m) is 0 for a largest score m > -9,896
HIDDEN = -1e4
KEPT = 1 << 14  # boxes whose regions are remembered before this memory starts afresh
# what a part computes: `lfopt.ops.compute.compute`
Run = Callable[[Call, Operands, tuple[Box, ...]], tuple[np.ndarray, ...]]
# a tensor from outside, and what it is there: queries, keys, values, scores (a mask), or the result
Use = tuple[str, str]
Needs = Callable[[Call, int, Box, int, Span | None], Box]  # what a part reads: `lfopt.ops.footprint.needs`


@dataclass(frozen=True, eq=False)
class Attention(Compound):
    """The parts of an attention, and how they are connected."""

    views: Mapping[str, str]  # per view of the network: its operand
    tensors: Mapping[str, Tensor]  # of the network
    parameters: Mapping[str, frozenset[int]]  # per part, by name: inputs that are no data
    product: Call  # of queries and keys
    softmax: Call
    mixing: Call  # the product with the values
    needs: Needs
    # what makes the result of a row 0: "Equal": it sees no key; "IsNaN": that, or its weights are NaN
    guard: str = ""
    # per query: first key that it sees, and the first behind; None: it sees all
    window: tuple[np.ndarray, np.ndarray] | None = None
    mask: str = ""  # the constant that says so, which need not be loaded
    uses: tuple[Use, ...] = ()  # by operand
    # of the parts: the products, and what is between them; others lay operands or the result out
    core: tuple[Call, ...] = ()

    @cached_property
    def makers(self) -> dict[str, tuple[Call, int]]:
        """Per tensor that a part makes: the part, and which of its ONNX outputs it is."""
        return {
            name: (part, k) for part in self.parts for k, name in enumerate(part.operator.outputs) if name
        }

    @cached_property
    def before(self) -> tuple[Call, ...]:
        """The elementwise operators on scores before the softmax, in order."""
        scores = [call for call in self.core if prod(call.result) == prod(self.softmax.result)]
        return tuple(scores[scores.index(self.product) + 1 : scores.index(self.softmax)])

    @property
    def keys(self) -> int:
        """Keys of a head."""
        return self.softmax.result[-1]

    @property
    def mixed(self) -> str:
        """The product with the values, by name: [..., queries, width of a head], before it is laid out."""
        return self.mixing.operator.outputs[0]

    # -- boxes -----------------------------------------------------------------------------------------------

    def seen(self, mixed: Box) -> Span:
        """Keys that some query of a box of the product sees."""
        if self.window is None or is_empty(mixed):
            return 0, self.keys
        first, stop = mixed[-2]
        return int(self.window[0][first:stop].min()), int(self.window[1][first:stop].max())

    def behind(self, name: str, box: Box) -> tuple[str, Box]:
        """The tensor that a view is of, and the smallest box of it that holds that box of the view."""
        while name in self.views:
            source = self.views[name]
            box = through_view(box, self.tensors[name].shape, self.tensors[source].shape)
            name = source
        return name, box

    def regions(self, name: str, box: Box, keys: Span | None = None, stop: str = "") -> Mapping[Use, Box]:
        """The smallest boxes of tensors from outside that a box of a tensor needs, by tensor and use.

        Through the tensor `stop` it looks no further. `keys`: of which block; None: of all that are seen.
        """
        known = self._regions
        key = (name, box, keys, stop)
        if key not in known:
            needed: dict[Use, list[Box]] = {}
            self._spread(name, box, "result", keys, stop, needed)
            if len(known) >= KEPT:
                known.clear()
            known[key] = {use: hull(boxes) for use, boxes in needed.items()}
        return known[key]

    @cached_property
    def _regions(self) -> dict[tuple[str, Box, Span | None, str], Mapping[Use, Box]]:
        """Regions worked out so far: of one box, every operand is asked for in turn."""
        return {}

    def _spread(
        self, name: str, box: Box, use: str, keys: Span | None, stop: str, needed: dict[Use, list[Box]]
    ) -> None:
        name, box = self.behind(name, box)
        if name == stop or name not in self.makers:
            needed.setdefault((name, use), []).append(box)
            return
        part, k = self.makers[name]
        for i, operand in enumerate(part.operator.inputs):
            if operand and operand != self.mask and i not in self.parameters[part.operator.name]:
                self._spread(
                    operand, self._read(part, i, box, k, keys), self.use(part, i, use), keys, stop, needed
                )

    def use(self, part: Call, index: int, use: str) -> str:
        """What an operand of a part is, whose result is used so."""
        if part is self.product:
            return ("queries", "keys")[index]
        if part is self.mixing and index:
            return "values"
        if part is self.mixing:
            return "scores"
        return use

    def _read(self, part: Call, index: int, box: Box, k: int, keys: Span | None) -> Box:
        """What a box of a part's result reads of an operand."""
        if is_empty(box):
            return (NOTHING,) * len(part.shape(index))
        if part is self.softmax:
            return box
        return self.needs(part, index, box, k, (keys or self.seen(box)) if part is self.mixing else None)

    # -- values ----------------------------------------------------------------------------------------------

    def value(self, name: str, box: Box, use: str, given: Mapping[Use, Part], run: Run) -> np.ndarray:
        """Values of a box of a tensor in this use, shaped as the box, from the parts that are given."""
        source, part = self.behind(name, box)
        if (source, use) in given:
            values = take(given[source, use], part)
        else:
            maker, k = self.makers[source]
            boxes = tuple(part if j == k else (NOTHING,) * len(shape) for j, shape in self._results(maker))
            operands = [
                self._operand(maker, i, part, k, use, given, run) for i in range(len(maker.operator.inputs))
            ]
            values = run(maker, operands, boxes)[[j for j, _ in self._results(maker)].index(k)]
        if source == name:
            return values
        return viewed(values, part, self.tensors[source].shape, box, self.tensors[name].shape)

    @staticmethod
    def _results(part: Call) -> list[tuple[int, Shape]]:
        """(ONNX output, shape) of those that are requested."""
        return [*zip((k for k, name in enumerate(part.operator.outputs) if name), part.results, strict=True)]

    def _operand(
        self, part: Call, index: int, box: Box, k: int, use: str, given: Mapping[Use, Part], run: Run
    ) -> Part | None:
        name = part.operator.inputs[index]
        if not name or index in self.parameters[part.operator.name]:
            return None
        need = self._read(part, index, box, k, None)
        if name == self.mask:
            values = part.values[index]
            assert values is not None, "what a mask hides is known from its values"
            return Part(take(Part(values, whole(values.shape)), need), need)
        return Part(self.value(name, need, self.use(part, index, use), given, run), need)


# -- what the operator table says of it ----------------------------------------------------------------------


def form_of(call: Call) -> Attention:
    """The parts of an operator that is attention."""
    assert isinstance(call.attention, Attention), f"{call.operator.name} is no attention"
    return call.attention


def window_of(call: Call) -> tuple[np.ndarray, np.ndarray] | None:
    """(queries,) each: the first key that a query sees, the first behind; None: all, or no attention."""
    if call.attention is None:
        return None
    return form_of(call).window


def box_rule(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """What a box of the result needs of an operand, for a block of keys."""
    form = form_of(call)
    return form.regions(call.operator.outputs[0], out, inputs).get(form.uses[index]) or (NOTHING,) * len(
        call.shape(index)
    )


def row_rule(call: Call, index: int) -> RowReads:
    """Rows of an operand that each row of the result needs."""
    return row_reads(call)[index]


def row_reads(call: Call) -> tuple[RowReads, ...]:
    """Rows of each operand that each row of the result needs."""
    form = form_of(call)
    axis = None if call.too_tall else row_axis(call.result)
    taps: list[list[tuple[int, ...]]] = [[] for _ in call.shapes]
    for row in range(call.rows_out):
        out = whole(call.result) if axis is None else cut(whole(call.result), axis, (row, row + 1))
        needed = form.regions(call.operator.outputs[0], out)
        for k, use in enumerate(form.uses):
            box = needed.get(use)
            own = None if box is None else row_axis(call.shape(k))
            taps[k].append(
                ()
                if box is None or is_empty(box)
                else (0,)
                if own is None
                else (box[own][0], box[own][1] - 1)
            )
    return tuple(rows.reads(row_count(call.shape(k)), spans) for k, spans in enumerate(taps))


def mixed_box(call: Call, out: Box) -> Box:
    """The part of the product with the values that becomes a box of the result."""
    form = form_of(call)
    return form.regions(call.operator.outputs[0], out, stop=form.mixed)[form.mixed, "result"]


def result_box(call: Call, mixed: Box) -> Box | None:
    """The box of the result that a box of the product with the values becomes; None: it becomes no box."""
    form = form_of(call)
    box = mixed
    name = form_of(call).mixed
    for part in form.parts[form.parts.index(form.mixing) + 1 :]:
        box = through_view(box, form.tensors[name].shape, part.shape(0))
        box = tuple(box[axis] for axis in permutation(part))
        name = part.operator.outputs[0]
    if box_elements(box) == box_elements(mixed):
        return box
    return None


def state_shape(call: Call) -> Shape:
    """(heads, queries, width + 2): the state of every query, kept between blocks of keys.

    Heads: of all axes before the queries. In the last axis, which a chip pads as channels: the weighted sum
    of values (width elements), the largest score, the sum of the weights.
    """
    *heads, queries, width = form_of(call).mixing.result
    return prod(heads), queries, width + 2


def state_box(call: Call, out: Box) -> Box:
    """The part of the state that belongs to a box of the result, which holds heads in their whole width."""
    shape = state_shape(call)
    mixed = through_view(mixed_box(call, out), form_of(call).mixing.result, (*shape[:-1], shape[-1] - 2))
    return cut(mixed, -1, (0, shape[-1]))


# -- what it computes ----------------------------------------------------------------------------------------


def _given(call: Call, operands: Operands) -> dict[Use, Part]:
    return {use: part for use, part in zip(form_of(call).uses, operands, strict=False) if part is not None}


def accumulate(call: Call, operands: Operands, out: Box, inputs: Span | None, run: Run) -> np.ndarray:
    """(heads, queries, width + 2), float32 or float64: the state after one block of keys."""
    form = form_of(call)
    given = _given(call, operands)
    box = mixed_box(call, out)
    keys = inputs or form.seen(box)
    scores = form.value(
        form.softmax.operator.inputs[0], cut(_weights_box(form, box), -1, keys), "scores", given, run
    )
    values = form.value(
        form.mixing.operator.inputs[1], form.needs(form.mixing, 1, box, 0, keys), "values", given, run
    )
    scores = scores.astype(np.float64 if scores.dtype == np.float64 else np.float32, copy=False)
    most = scores.max(axis=-1, keepdims=True)
    weights = _scaled(scores, most)
    mixed = np.matmul(weights.reshape(*box_shape(box)[:-1], -1), values.astype(weights.dtype, copy=False))
    beside = (np.concatenate([most, weights.sum(axis=-1, keepdims=True)], axis=-1)).reshape(
        *box_shape(box)[:-1], 2
    )
    state = np.concatenate([mixed, beside], axis=-1)
    return state.reshape(-1, *state.shape[-2:])


def _weights_box(form: Attention, mixed: Box) -> Box:
    """The part of the softmax behind a box of the product with the values, all keys."""
    name = form.softmax.operator.outputs[0]
    return form.regions(form.mixed, mixed, (0, form.keys), name)[name, "scores"]


def _scaled(scores: np.ndarray, most: np.ndarray) -> np.ndarray:
    """e^(scores - most); 0 where nothing was seen."""
    with np.errstate(all="ignore"):
        return np.where(np.isneginf(most), 0, np.exp(scores - most))


def merge(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(heads, queries, width + 2): the state after two disjoint blocks of keys, from the state after each."""
    most = np.maximum(one[..., -2:-1], other[..., -2:-1])
    with np.errstate(over="ignore", invalid="ignore"):  # of the largest scores, which are set below
        merged = one * _scaled(one[..., -2:-1], most) + other * _scaled(other[..., -2:-1], most)
    merged[..., -2:-1] = most
    return merged


def finish(call: Call, sums: np.ndarray, out: Box, run: Run) -> np.ndarray:
    """A box of the result, shaped as `out`, from the state after all keys (heads, queries, width + 2)."""
    form = form_of(call)
    sums = sums.reshape(*box_shape(mixed_box(call, out))[:-1], sums.shape[-1])
    total = sums[..., -1:]
    with np.errstate(all="ignore"):
        mixed = sums[..., :-2] / total
    if form.guard:
        mixed = np.where((total == 0) | (np.isnan(total) & (form.guard == "IsNaN")), 0, mixed)
    return form.value(
        call.operator.outputs[0],
        out,
        "result",
        {(form.mixed, "result"): Part(mixed, mixed_box(call, out))},
        run,
    )


def in_parts(call: Call, step: Compute) -> Iterator[Compute]:
    """A step of an attention as one step for each part that computes something, in order.

    Each is on what the step needs of the part's result.
    """
    form, (out,) = form_of(call), step.boxes
    mixed = mixed_box(call, out)
    keys = step.inputs or form.seen(mixed)
    scores = cut(_weights_box(form, mixed), -1, keys)
    last = form.parts.index(form.mixing)
    for k, part in enumerate(form.parts[:last]):
        if part is form.product or (
            k > form.parts.index(form.product) and prod(part.result) == prod(form.softmax.result)
        ):
            yield Compute(
                part.operator.name, (through_view(scores, form.softmax.result, part.result),), (-1,)
            )
    yield Compute(
        form.mixing.operator.name, (mixed,), step.places, step.inputs, step.accumulator, step.first, step.last
    )


# -- views ---------------------------------------------------------------------------------------------------


def _groups(one: Shape, other: Shape) -> Iterator[tuple[Span, Span]]:
    """Shortest runs of axes, of two shapes of one size, that hold equally many elements.

    Axes of one element join their neighbours.
    """
    i = j = 0
    while i < len(one) or j < len(other):
        a = i
        b = j
        left = right = 1
        while i == a or j == b or left != right:
            if (left <= right or j == len(other)) and i < len(one):
                left = left * one[i]
                i = i + 1
            elif j < len(other):
                right = right * other[j]
                j = j + 1
            else:
                break
        yield (a, i), (b, j)


def through_view(box: Box, shape: Shape, source: Shape) -> Box:
    """The smallest box of a tensor of shape `source` around what a box of a view of it shows.

    >>> through_view(((0, 1), (2, 5), (1, 2), (0, 4)), (1, 8, 3, 4), (1, 8, 12))
    ((0, 1), (2, 5), (4, 8))
    """
    if is_empty(box):
        return (NOTHING,) * len(source)
    spans: list[Span] = []
    for (a, i), (b, j) in _groups(shape, source):
        mine = shape[a:i]
        theirs = source[b:j]
        first = last = 0
        for (start, stop), extent in zip(box[a:i], mine, strict=True):
            first = first * extent + start
            last = last * extent + stop - 1
        if mine == theirs:
            spans += box[a:i]
            continue
        apart = False
        for k, extent in enumerate(theirs):
            below = prod(theirs[k + 1 :])
            low = first // below % extent
            high = last // below % extent
            spans.append((0, extent) if apart else (low, high + 1))
            apart = apart or first // below != last // below
    return tuple(spans)


def viewed(values: np.ndarray, box: Box, shape: Shape, part: Box, seen: Shape) -> np.ndarray:
    """A part of a view, shaped as the part, from values of a box of the tensor behind the view.

    The tensor has `shape`, its view shape `seen`; the box holds the part.
    """
    if box_elements(box) == box_elements(part):
        return values.reshape(box_shape(part))
    if is_empty(part):
        return np.empty(box_shape(part), values.dtype)
    if seen:
        flat = np.ravel_multi_index(np.ix_(*(np.arange(start, stop) for start, stop in part)), seen)
    else:
        flat = np.zeros((), np.intp)
    index = np.unravel_index(flat, shape)
    return values[tuple(i - start for i, (start, _) in zip(index, box, strict=True))]
