"""Attentions as single operators in steps: operands, state between blocks of keys, and the keys added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from lfopt.ir import Box, box_shape
from lfopt.ops import statistics
from lfopt.ops.attention import form_of, mixed_box, row_reads, state_box, state_shape
from lfopt.ops.call import Call
from lfopt.ops.table import ATTENTION
from simulator.recount.needs import ResultBoxes, each_run
from simulator.recount.network import Constant, MapOperand, RecountNetwork
from simulator.recount.progressions import Ints
from simulator.recount.schedule import StepBox


def with_attentions(net: RecountNetwork, calls: Sequence[Call]) -> RecountNetwork:
    """The network with these attentions as operators, named as their first parts, in place of the last."""
    fused = copy(net)
    fused.reads = dict(net.reads)
    fused.makes = dict(net.makes)
    fused.constants = dict(net.constants)
    fused.calls = dict(net.calls)
    fused.maker = dict(net.maker)
    fused.position = dict(net.position)
    fused.operators = dict(net.operators)
    fused.specs = dict(net.specs)
    fused.readers = readers = defaultdict(list, net.readers)
    for call in calls:
        names = [part.operator.name for part in call.parts]
        head, (result,) = call.operator.name, call.operator.outputs
        for op in names:
            for table in (
                fused.reads,
                fused.makes,
                fused.constants,
                fused.operators,
                fused.calls,
                fused.specs,
            ):
                del table[op]
        fused.operators[head], fused.calls[head], fused.specs[head], fused.makes[head] = (
            call.operator,
            call,
            ATTENTION,
            [result],
        )
        rows = row_reads(call)
        given = [(k, name) for k, name in enumerate(call.operator.inputs) if name]
        fused.reads[head] = [
            MapOperand(name, head, k, rows[k].first, rows[k].last, name, rows[k].first, rows[k].last)
            for k, name in given
            if name not in net.graph.constants
        ]
        constants = ((k, name, net.tensor(name).elements) for k, name in given if name in net.graph.constants)
        fused.constants[head] = [
            Constant(name, head, k, size, bias=False, gathered=False)
            for k, name, size in constants
            if size > 1
        ]
        fused.maker[result], fused.position[head] = head, net.position[names[-1]]
        for op in names[1:]:
            del fused.position[op]
        for name in {read.map for read in fused.reads[head]}:
            readers[name] = list(dict.fromkeys(head if op in names else op for op in readers[name]))
    fused.operators = dict(sorted(fused.operators.items(), key=lambda pair: fused.position[pair[0]]))
    return fused


def unmasked(net: RecountNetwork, calls: Sequence[Call]) -> RecountNetwork:
    """The network without the constants of masks, which attentions need not load."""
    without_masks = copy(net)
    without_masks.constants = dict(net.constants)
    for call in calls:
        for part in call.parts:
            name = part.operator.name
            without_masks.constants[name] = [
                constant for constant in without_masks.constants[name] if constant.name != form_of(call).mask
            ]
    return without_masks


# -- what it keeps -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class State(StepBox):
    """State that is kept of a box of the result between two blocks of keys, in all runs of a step."""

    origin: Ints = None  # type: ignore[assignment]  # (runs, axes) where it begins

    def start(self, axis: int) -> Ints:
        """(runs,) first index along an axis."""
        return self.origin[:, axis]

    def ends(self, axis: int) -> tuple[int, int]:
        """(lowest start, highest stop) along an axis in all runs."""
        starts = self.origin[:, axis]
        return int(starts.min()), int(starts.max()) + self.extents[axis]


def state_of(call: Call, piece: StepBox) -> State:
    """The state of a box of the result, of an attention or of a normalization, in all its runs."""
    box_of = statistics.state_box if call.attention is None else state_box
    known: dict[Box, Box] = {}
    starts: list[list[int]] = []
    nothing = np.zeros(piece.leaf.runs, np.int64)
    for box, _ in each_run(piece.parts, (nothing, nothing)):
        if box not in known:
            known[box] = box_of(call, box)
        starts.append([start for start, _ in known[box]])
    shapes = {box_shape(box) for box in known.values()}
    extents = tuple(max(extent) for extent in zip(*shapes, strict=True))
    return State(piece.leaf, piece.tensor, extents, piece.column, np.array(starts, np.int64))


def kept_shape(calls: Mapping[str, Call], op: str) -> tuple[int, ...] | None:
    """Shape of the state that an attention or a normalization keeps; None of other operators."""
    call = calls[op]
    if call.attention is not None:
        return state_shape(call)
    if statistics.has_statistics(call):
        return statistics.state_shape(call)
    return None


def query_by_query(call: Call, index: int, result: ResultBoxes) -> bool:
    """Whether an operand is the queries of a single head, and each result fits in place of its query."""
    form = form_of(call)
    if form.uses[index][1] != "queries" or form.mixing.result[-1] > form.product.shape(0)[-1]:
        return False
    box = tuple((int(start[0]), int(stop[0])) for start, stop in result.axes)
    return all(stop - start == 1 for start, stop in mixed_box(call, box)[:-2])
