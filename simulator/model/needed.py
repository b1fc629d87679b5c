"""Which operators every plan computes wholly: those of whose results every element is needed for an output.

Of a map that is used in part, what is known is kept where only some indices of one axis are: the row of one
token, a slice. Such a part is followed through operators that keep the axis, to the maps that are used wholly
again: keys and values of an attention, what a sum runs over.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from lfopt.ops import Call, Dataflow, Family, bits, row_of
from lfopt.ops.attention import form_of
from lfopt.ops.content import elements_used, used_positions
from lfopt.ops.recognise import RecognisedAttention, attentions_of


class AxisPart(NamedTuple):
    """Some indices of one axis, all of the others; that axis has an extent that no other has."""

    extent: int
    indices: frozenset[int]


def needed_operators(flow: Dataflow) -> int:
    """Mask of the operators of whose results every element is needed for an output of the network."""
    return _Needs(flow).needed


class _Needs:
    """What is needed of every map, from the outputs to the inputs."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.whole = {m for m, is_output in enumerate(flow.is_output) if is_output}
        self.parts: dict[int, AxisPart] = {}  # of maps that are not needed wholly, as far as is known
        self.needed = 0
        self._reading = 0  # operators that use all elements of operands that `elements_used` says
        self._attentions: dict[int, RecognisedAttention] = {
            max(attention.members): attention for attention in attentions_of(flow).recognised
        }
        for op in reversed(range(len(flow))):
            self._look_at(op)

    def _look_at(self, op: int) -> None:
        """What is needed of an operator's results, all of whose readers have been looked at."""
        flow = self.flow
        for m in flow.results[op]:
            if self._is_read_wholly(m):
                self.whole.add(m)
            elif m not in self.whole:
                part = next(self._parts_of(m), None)
                if part is not None:
                    self.parts[m] = part
        results = [m in self.whole for m in flow.results[op]]
        self.needed |= all(results) << op
        # parts of what is moved go to results of their own; any other result is made of all operands
        moves = flow.specs[op].family is Family.MOVE
        self._reading |= (all(results) if moves else any(results)) << op
        if op in self._attentions:
            self._need_keys(self._attentions[op], op)

    def _reads(self, m: int, readers: int) -> Iterator[tuple[Call, int]]:
        for i in bits(self.flow.readers[m] & readers):
            for operand in self.flow.operands[i]:
                if operand.map == m:
                    yield self.flow.calls[i], operand.input

    def _is_read_wholly(self, m: int) -> bool:
        """Whether its readers use every element of a map for what is needed of their results."""
        tensor = self.flow.maps[m]
        if elements_used(tensor.shape, [*self._reads(m, self._reading)]) >= tensor.elements:
            return True
        return any(self._is_covered(i, m) for i in bits(self.flow.readers[m]))

    def _is_covered(self, op: int, m: int) -> bool:
        """Whether an operator joins maps, and of its result a part is needed that holds all of this one."""
        flow = self.flow
        call = flow.calls[op]
        if call.operator.kind != "Concat" or flow.results[op][0] not in self.parts:
            return False
        part = self.parts[flow.results[op][0]]
        axis = call.attribute("axis", 0) % len(call.result)
        if call.result[axis] != part.extent or not _unique(call.result, part.extent):
            return False
        first = 0
        for index, shape in enumerate(call.shapes):
            stop = first + (0 if shape is None else shape[axis])
            reads_it = any(operand.map == m and operand.input == index for operand in flow.operands[op])
            if reads_it and part.indices.issuperset(range(first, stop)):
                return prod(call.shape(index)) == flow.maps[m].elements
            first = stop
        return False

    def _parts_of(self, m: int) -> Iterator[AxisPart]:
        """Parts of a map that some reader needs."""
        flow = self.flow
        for i in bits(flow.readers[m]):
            for operand in flow.operands[i]:
                if operand.map != m:
                    continue
                if self._reading >> i & 1:
                    part = _read_part(flow.calls[i], operand.input)
                elif len(flow.results[i]) == 1 and flow.results[i][0] in self.parts:
                    part = _behind(flow.calls[i], operand.input, self.parts[flow.results[i][0]])
                else:
                    part = None
                if part is not None and part.extent in flow.maps[m].shape:
                    yield part

    def _need_keys(self, attention: RecognisedAttention, op: int) -> None:
        """A row of an attention's result needs all keys and values, where it sees them all."""
        form = form_of(attention.call)
        (result,) = self.flow.results[op]
        part = self.parts.get(result)
        if part is None or form.window is not None:
            return
        if not _unique(form.mixing.result, part.extent) or form.mixing.result[-2] != part.extent:
            return
        for operand in attention.operands:
            shape = attention.call.shape(operand.input)
            is_whole = prod(shape) == self.flow.maps[operand.map].elements
            if is_whole and form.uses[operand.input][1] in ("keys", "values"):
                self.whole.add(operand.map)


def _unique(shape: tuple[int, ...], extent: int) -> bool:
    """Whether just one axis has that extent."""
    return shape.count(extent) == 1


def _read_part(call: Call, index: int) -> AxisPart | None:
    """The part of an operand that an operator reads all of whose results are needed."""
    used = used_positions(call, index)
    if isinstance(used, int):
        return None
    extents = call.shape(index)
    axes = [(extent, some) for extent, some in zip(extents, used, strict=True) if some is not None]
    if len(axes) != 1:
        return None
    extent, indices = axes[0]
    if not len(indices) or not _unique(call.shape(index), extent):
        return None
    return AxisPart(extent, frozenset(int(k) for k in indices))


def _behind(call: Call, index: int, part: AxisPart) -> AxisPart | None:
    """The part of an operand that a part of an operator's result needs; None where nothing is known."""
    shape = call.shape(index)
    if not _unique(call.result, part.extent) or not _unique(shape, part.extent):
        return None
    row = row_of(call)
    keeps = shape == call.result and row.family in (Family.ELEMENTWISE, Family.NORMALISATION)
    rows = (
        row.family is Family.PRODUCT and index == 0 and shape[-2:-1] == call.result[-2:-1] == (part.extent,)
    )
    return part if keeps or rows or row.permutes else None
