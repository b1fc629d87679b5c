"""Find attention in a network: softmax(Q K' s + mask) V, in whatever form exporters write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import takewhile
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Compute, Graph, Operator, whole
from lfopt.ops.attention import HIDDEN, KIND, Attention, form_of, row_reads
from lfopt.ops.call import Call
from lfopt.ops.dataflow import Dataflow, MapRead, Weight, bits
from lfopt.ops.footprint import needs
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.table import row_of

# what may stand between a product of attention and its operands
LAID_OUT = frozenset({"Concat", "Expand", "Slice", "Split", "Transpose"})
MOST_PARTS = 64  # operators of one attention
FLOATS = ("bool", "float16", "bfloat16", "float32", "float64")  # types of what its parts make
ORDER = ("queries", "keys", "values", "scores", "result")  # of operands; maps come before constants


class RecognisedAttention(NamedTuple):
    """One attention of a network."""

    members: tuple[int, ...]  # its operators
    call: Call  # as one operator
    operands: tuple[MapRead, ...]
    weights: tuple[Weight, ...]


def attentions(flow: Dataflow, owner: Mapping[str, int] | None = None) -> tuple[RecognisedAttention, ...]:
    """The attentions of a network, none of which share operators.

    `owner`: groups of operators by name; each attention lies in one of them.

    Left alone is what has its scores read elsewhere, what is quantised, and a softmax that is no operand of a
    product.
    """
    taken = set[int]()
    views = _views(flow)
    recognised: list[RecognisedAttention] = []
    for op, row in enumerate(flow.specs):
        if (
            row.kind == "Softmax"
            and (core := _core(flow, op)) is not None
            and _together(flow, core.members, owner)
        ):
            members = _widened(flow, core, owner)
            if taken.isdisjoint(members) and len(members) <= MOST_PARTS and _plain(flow, members):
                taken |= members
                recognised.append(_recognised(flow, core, members, views))
    return tuple(recognised)


class Attentions:
    """The attentions of a network, by the name that steps have for them.

    A step names all parts, then what follows in flight.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.recognised = attentions(flow)
        self.by_head = {one.call.operator.name: one for one in self.recognised}

    @cached_property
    def masks(self) -> frozenset[str]:
        """Masks that nothing but attentions reads: which keys they hide is known, so none is loaded."""
        named = {form.mask for one in self.recognised if (form := form_of(one.call)).mask}
        kept = {name for one in self.recognised for name in one.call.operator.inputs}
        inside = {i for one in self.recognised for i in one.members}
        kept |= {w.name for i, weights in enumerate(self.flow.weights) if i not in inside for w in weights}
        return frozenset(named - kept)

    def named(self, step: Compute) -> tuple[RecognisedAttention | None, tuple[str, ...]]:
        """The attention that a step computes, if it does; and what follows in flight."""
        one = self.by_head.get(step.operator)
        names = () if one is None else tuple(part.operator.name for part in one.call.parts[1:])
        if one is None or step.then[: len(names)] != names:
            return (None, step.then)
        return (one, step.then[len(names) :])


@lru_cache(maxsize=16)
def attentions_of(flow: Dataflow) -> Attentions:
    """The attentions of a dataflow, found once: every group of a plan is asked for them."""
    return Attentions(flow)


def attentions_in(graph: Graph) -> Attentions:
    """The attentions of a network."""
    return attentions_of(Dataflow.of(graph))


def _together(flow: Dataflow, members: set[int], owner: Mapping[str, int] | None) -> bool:
    """Whether the operators are of one group."""
    return owner is None or len({owner[flow.operators[i].name] for i in members}) == 1


def _plain(flow: Dataflow, members: set[int]) -> bool:
    """Whether all that its parts make are floats, or tests of them, and not quantised."""
    tensors = [tensor for i in members for tensor in flow.calls[i].result_tensors]
    return all(tensor.quantization is None and tensor.dtype in FLOATS for tensor in tensors)


# -- the products and what is between them -------------------------------------------------------------------


@dataclass
class _Core:
    """The operators from the product of queries and keys to that with the values."""

    products: tuple[int, int]
    softmax: int
    before: tuple[int, ...]  # elementwise operators on the scores, from the softmax up
    guard: tuple[int, ...] = ()  # what makes rows without keys 0
    rounding: tuple[int, ...] = ()  # a Cast of the softmax
    members: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.members = {*self.products, self.softmax, *self.before, *self.guard, *self.rounding}


def _core(flow: Dataflow, softmax: int) -> _Core | None:
    call = flow.calls[softmax]
    if call.attribute("axis", -1) % len(call.result) != len(call.result) - 1:
        return None
    (reached,) = flow.results[softmax]
    reader = _only_reader(flow, reached)
    rounding = () if reader is None or flow.specs[reader].kind != "Cast" else (reader,)
    guard = _guard(flow, flow.results[rounding[0]][0] if rounding else reached)
    (reached,) = flow.results[(softmax, *rounding, *guard)[-1]]
    mixing = _only_reader(flow, reached)
    if mixing is None or flow.specs[mixing].kind != "MatMul" or len(call.result) < 2:
        return None
    given = [o.input for o in flow.operands[mixing]]
    keys = call.result[-1]
    alike = flow.calls[mixing].shape(0)[-2:] == call.result[-2:] and len(flow.calls[mixing].shape(1)) > 1
    if given != [0, 1] or flow.operands[mixing][0].map != reached or not alike or keys < 2:
        return None
    before: list[int] = []
    op = softmax
    wanted = call.result
    while True:
        makers = [flow.producer[o.map] for o in flow.operands[op] if flow.producer[o.map] >= 0]
        for maker in makers:
            alone = len(flow.results[maker]) == 1 and _only_reader(flow, flow.results[maker][0]) == op
            direct = [o.input for o in flow.operands[op] if o.map in flow.results[maker]]
            seen = flow.calls[op].shape(direct[0]) if direct else ()
            if (
                not alone
                or len(direct) != 1
                or seen[-2:] != wanted[-2:]
                or flow.calls[maker].result[-2:] != wanted[-2:]
            ):
                continue
            product = flow.specs[maker].kind == "MatMul" and [o.input for o in flow.operands[maker]] == [0, 1]
            if product and min(len(flow.calls[maker].shape(i)) for i in (0, 1)) > 1:
                if _hides_rows(flow, guard, before):
                    return _Core((maker, mixing), softmax, tuple(before), guard, rounding)
                return None
            reached = flow.calls[maker].result
            # by way of a view, as of the windows of a batch (Swin)
            if flow.specs[maker].elementwise and prod(reached) == prod(wanted):
                before.append(maker)
                op = maker
                wanted = reached
                break
        else:
            return None
        if len(before) > MOST_PARTS:
            return None


def _only_reader(flow: Dataflow, m: int) -> int | None:
    readers = list(bits(flow.readers[m]))
    if len(readers) == 1 and not flow.is_output[m]:
        return readers[0]
    return None


def _guard(flow: Dataflow, weights: int) -> tuple[int, ...]:
    """Operators that make rows without keys 0: Where, and before it IsNaN or a test of a mask; () if none.

    The test looks for rows of -inf, as ONNX defines Attention.
    """
    *tests, chosen = [*bits(flow.readers[weights])] or [-1]
    if chosen < 0 or flow.is_output[weights] or flow.specs[chosen].kind != "Where":
        return ()
    zero, (condition, *others) = flow.calls[chosen].values[1], flow.operands[chosen]
    alike = condition.input == 0 and [(o.map, o.input) for o in others] == [(weights, 2)]
    if (
        not alike
        or _only_reader(flow, condition.map) != chosen
        or zero is None
        or zero.size != 1
        or float(zero.reshape(-1)[0]) != 0
    ):
        return ()
    test = flow.producer[condition.map]
    if tests or test < 0:
        if tests == [test] and flow.specs[test].kind == "IsNaN":
            return (test, chosen)
        return ()
    highest = flow.producer[flow.operands[test][0].map] if flow.operands[test] else -1
    call = flow.calls[highest]
    least = flow.calls[test].values
    hidden = flow.specs[test].kind == "Equal" and any(
        value is not None and value.size == 1 and np.isneginf(value).all() for value in least
    )
    along = (
        hidden
        and highest >= 0
        and flow.specs[highest].kind == "ReduceMax"
        and reduced_axes(call) == {len(call.shape(0)) - 1}
    )
    alone = (
        along and call.attribute("keepdims", 1) == 1 and _only_reader(flow, flow.results[highest][0]) == test
    )
    if alone:
        return (highest, test, chosen)
    return ()


def _hides_rows(flow: Dataflow, guard: tuple[int, ...], before: list[int]) -> bool:
    """Whether a guard's mask, with its rows of -inf, is added to the scores, and only sums follow."""
    if len(guard) < 3:
        return True
    mask = flow.calls[guard[0]].operator.inputs[0]
    kinds = [(flow.specs[op].kind, mask in flow.calls[op].operator.inputs) for op in before]
    sums = list(takewhile(lambda pair: pair[0] in ("Add", "Cast"), kinds))
    return ("Add", True) in sums


# -- what lays operands and result out -----------------------------------------------------------------------


def _widened(flow: Dataflow, core: _Core, owner: Mapping[str, int] | None) -> set[int]:
    """The core with what only lays out what it reads and makes, or scales that."""
    group = None if owner is None else owner[flow.operators[core.softmax].name]
    members = set(core.members)
    kept = set(core.members)

    def may(op: int) -> bool:
        same = owner is None or owner[flow.operators[op].name] == group
        return (
            same
            and not any(flow.is_output[m] for m in flow.results[op])
            and not any(w.gathered for w in flow.weights[op])
        )

    changed = True
    while changed:
        changed = False
        for maker in sorted(
            {flow.producer[o.map] for i in members for o in flow.operands[i]} - members - {-1}, reverse=True
        ):
            readers = {r for m in flow.results[maker] for r in bits(flow.readers[m])}
            if (
                readers <= members
                and may(maker)
                and (flow.specs[maker].kind in LAID_OUT or _scales(flow, maker))
            ):
                members.add(maker)
                changed = True
    lays = {i for i in members - kept if flow.specs[i].kind in LAID_OUT}
    # others belong to what makes their operand
    scales = {i for i in members - kept - lays if any(flow.ancestors[i] >> j & 1 for j in lays)}
    members = kept | lays | scales
    last = core.products[1]
    while (reader := _only_reader(flow, flow.results[last][0])) is not None and flow.specs[
        reader
    ].kind == "Transpose":
        if owner is not None and owner[flow.operators[reader].name] != group:
            break
        last = reader
        members.add(last)
    return members


def _scales(flow: Dataflow, op: int) -> bool:
    """Whether it is a function of single elements of one map."""
    return (
        flow.specs[op].elementwise
        and len(flow.operands[op]) == 1
        and not flow.weights[op]
        and len(flow.results[op]) == 1
    )


# -- as one operator -----------------------------------------------------------------------------------------


def _recognised(
    flow: Dataflow, core: _Core, chosen: set[int], views: Mapping[str, str]
) -> RecognisedAttention:
    members = tuple(sorted(chosen))
    parts = tuple(flow.calls[i] for i in members)
    window, mask = _window(flow, core)
    parameters = {part.operator.name: row_of(part).parameters for part in parts}
    if core.guard:
        # which rows are without keys is seen by the scores themselves
        parameters[flow.operators[core.guard[-1]].name] |= {0}
    form = Attention(
        parts,
        views,
        flow.graph.tensors,
        parameters,
        flow.calls[core.products[0]],
        flow.calls[core.softmax],
        flow.calls[core.products[1]],
        needs,
        flow.specs[core.guard[-2]].kind if core.guard else "",
        window,
        mask,
        core=tuple(flow.calls[i] for i in sorted(core.members)),
    )
    result = flow.calls[members[-1]].operator.outputs[0]
    regions = form.regions(result, whole(flow.graph.shape(result)))
    uses = sorted(regions, key=lambda use: (use[0] in flow.graph.constants, ORDER.index(use[1])))
    form = replace(form, uses=tuple(uses))
    operator = Operator(
        parts[0].operator.name,
        KIND,
        tuple(name for name, _ in uses),
        (result,),
        origin=parts[0].operator.origin,
    )
    call = replace(Call.of(flow.graph, operator), attention=form)
    reads = row_reads(call)
    operands = tuple(
        MapRead(flow.map_index[name], reads[k], k)
        for k, (name, _) in enumerate(uses)
        if name in flow.map_index
    )
    weights = {w.name: w for i in members for w in flow.weights[i] if w.name != mask}
    return RecognisedAttention(members, call, operands, tuple(weights.values()))


def _views(flow: Dataflow) -> dict[str, str]:
    """Per view of a network: its operand."""
    produced = {name for operator in flow.operators for name in operator.outputs}
    return {
        name: op.inputs[0]
        for op in flow.graph.operators
        for name in op.outputs
        if name and name not in produced
    }


# -- masks ---------------------------------------------------------------------------------------------------


def _window(flow: Dataflow, core: _Core) -> tuple[tuple[np.ndarray, np.ndarray] | None, str]:
    """Which keys each query sees, (first, stop), and the constant that says so.

    The constant is a mask that hides all but one run of keys of every row, and changes no other score. None
    for all keys, "" where there is no such mask.
    """
    for op in core.before:
        call = flow.calls[op]
        for index, name in enumerate(call.operator.inputs):
            hides = _hides(call, index)
            if (
                hides is None
                or hides.ndim < 2
                or max(hides.shape[:-2], default=1) > 1
                or len(call.result) < 2
            ):
                continue
            rows = np.broadcast_to(hides.reshape(hides.shape[-2:]), call.result[-2:])
            seen = ~rows
            first = seen.argmax(axis=-1)
            stop = rows.shape[-1] - seen[:, ::-1].argmax(axis=-1)
            if (
                seen.any(axis=-1).all()
                and seen.any(axis=0).all()
                and (seen.sum(axis=-1) == stop - first).all()
            ):
                return (None if seen.all() else (first, stop)), name
    return None, ""


def _hides(call: Call, index: int) -> np.ndarray | None:
    """Where a constant operand of scores hides keys, bool; None if it does more, or is not known."""
    value = call.values[index]
    kind = call.operator.kind
    if value is None or value.size < 2:
        return None
    lowest = np.finfo(value.dtype).min if value.dtype.kind == "f" else 0
    if kind == "Add" and value.dtype.kind == "f":
        hidden = value <= max(HIDDEN, lowest)
        if (hidden | (value == 0)).all():
            return hidden
        return None
    if kind == "Where" and index == 0:
        for branch, when in ((1, value.astype(bool)), (2, ~value.astype(bool))):
            other = call.values[branch]
            if (
                other is not None
                and other.size == 1
                and other.dtype.kind == "f"
                and other.reshape(-1)[0] <= max(HIDDEN, np.finfo(other.dtype).min)
            ):
                return when
    return None
