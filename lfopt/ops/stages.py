"""A flight on quantised maps as stages: an operator, and one table of what follows it byte by byte.

Composing is exact: a byte has 256 values, each of which goes through the operators one at a time, rounded as
it is alone. A convolution, its Sigmoid and the product of both are a convolution and one table. An operator
that reads another map begins the next stage.

    conv > sigmoid > mul > mul by a gate > tanh        conv, table | mul, table
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lfopt.ir import Compute, Node, computations
from lfopt.ops import integer
from lfopt.ops.arithmetic import CHOICE, EXTREME, MOVE, PRODUCT, SUMS, TABLE, TERMS, arithmetic, in_bytes
from lfopt.ops.call import Call, once_per_call
from lfopt.ops.parameter_data import TABLE_BYTES, clamps, parameter_blocks, parameter_bytes
from lfopt.ops.part import Part
from lfopt.ops.scaling import recoding, table
from lfopt.ops.table import row_of

BYTES = 256  # values of a byte
MOVED = (TABLE, EXTREME, MOVE)  # their own table is the first that a byte of their operand goes through


@dataclass(frozen=True, slots=True)
class TableStage:
    """An operator, and those behind it whose results are functions of the byte that it makes.

    `table` is what that byte goes through.
    """

    call: Call  # the operator, nothing in flight
    behind: tuple[Call, ...] = ()
    table: np.ndarray | None = None  # 256 stored integers; None: the byte is the result
    # whose parameter the table is: the first operator that does more than clamp; "": there is none
    holder: str = ""

    @property
    def result(self) -> str:
        """The result of the last operator."""
        return (self.behind or (self.call,))[-1].result_tensors[0].name

    @property
    def parts(self) -> tuple[Call, ...]:
        """The operators."""
        return (self.call, *self.behind)

    def parameter_bytes(self, channels: int) -> Iterator[tuple[str, int]]:
        """(operator, bytes) of what the stage needs beside its operands; see `lfopt.ops.parameter_data`."""
        if not self.holder and not self.behind:
            yield self.call.operator.name, parameter_bytes(self.call, channels)
            return
        if arithmetic(self.call) not in MOVED:
            yield self.call.operator.name, parameter_bytes(self.call, channels)
        if self.holder:
            yield self.holder, TABLE_BYTES

    def parameter_blocks(self, channels: int) -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
        """(operator, (5 * channels,) or (256,) uint8 arrays) of what the stage needs beside its operands.

        Raises what `lfopt.ops.scaling.requantization` raises.
        """
        for name, _ in self.parameter_bytes(channels):
            if name == self.holder and self.table is not None:
                yield name, (np.ascontiguousarray(self.table).view(np.uint8),)
            else:
                yield name, parameter_blocks(self.call, channels)


@once_per_call
def stages(call: Call) -> tuple[TableStage, ...]:
    """The stages of an operator and what follows it in flight, in order.

    Each but the first reads what the one before it made.
    """
    groups: list[list[Call]] = []
    for part in (replace(call, then=()) if call.then else call, *call.then):
        if groups and _composes(groups[-1], part):
            groups[-1].append(part)
        else:
            groups.append([part])
    return tuple(_stage(first, tuple(behind)) for first, *behind in groups)


def one_by_one(call: Call) -> bool:
    """Whether one value is in flight at a time.

    Each stage then reads, of what is made in flight, what the stage before it made, and nothing older.
    """
    sequence = stages(call)
    flying = {part.result_tensors[0].name for part in call.flight}
    return all(
        flying.isdisjoint({*after.call.operator.inputs} - {before.result})
        for before, after in pairwise(sequence)
    )


def parameter_sizes(call: Call, channels: int) -> list[tuple[str, int]]:
    """(operator, bytes) of the parameters of an operator and of what follows it in flight, if any."""
    return [(name, size) for stage in stages(call) for name, size in stage.parameter_bytes(channels) if size]


def table_count(call: Call) -> int:
    """Tables among the parameters of an operator and of what follows it in flight."""
    how = {part.operator.name: arithmetic(part) for part in call.parts}
    return sum(size // TABLE_BYTES for name, size in parameter_sizes(call, 1) if how[name] is not SUMS)


def parameters(call: Call, channels: int) -> dict[str, tuple[np.ndarray, ...]]:
    """(5 * channels,) or (256,) uint8 arrays by operator: its rows of multipliers, or tables.

    Of the operator and what follows it in flight.
    """
    return {
        name: blocks for stage in stages(call) for name, blocks in stage.parameter_blocks(channels) if blocks
    }


def least_parameters(calls: Sequence[Call], channels: int, behind: Mapping[str, str]) -> int:
    """Bytes of parameters that no flights of these operators come below.

    `behind`: the map that each tensor is, or is a view of.

    Operators may share a table if they are linked: an elementwise one reads what another makes, a map of the
    shape that it makes itself.
    """
    maker = {call.result_tensors[0].name: call for call in calls if len(call.results) == 1}
    first = {name: name for name in maker}  # one of those that a map's maker is linked with

    def root(name: str) -> str:
        while first[name] != name:
            name = first[name]
        return name

    total = 0
    sharing = set[str]()
    for call in calls:
        name = call.result_tensors[0].name
        size = parameter_bytes(call, channels)
        for operand in (
            (behind.get(seen) for seen in call.operator.inputs)
            if row_of(call).elementwise and name in maker
            else ()
        ):
            if operand in maker and maker[operand].result == call.result:
                first[root(name)] = root(operand)
        if size and name in maker and arithmetic(call) is not SUMS:
            sharing.add(name)
        else:
            total += size
    return total + TABLE_BYTES * len({root(name) for name in sharing})


def calls_of(names: Sequence[str], steps: Sequence[Node], calls: Mapping[str, Call]) -> dict[str, Call]:
    """The operators of a group as its steps compute them, by the first of each flight.

    Raises KeyError for what `calls` lacks.
    """
    flights = {step.operator: step.then for step in computations(steps) if step.then}
    following = {name for then in flights.values() for name in then}
    return {name: flown(calls, name, flights.get(name, ())) for name in names if name not in following}


def flown(calls: Mapping[str, Call], name: str, then: Sequence[str]) -> Call:
    """An operator with others in flight behind it."""
    if then:
        return replace(calls[name], then=tuple(calls[other] for other in then))
    return calls[name]


def stage_steps(step: Compute, sequence: Sequence[TableStage]) -> Iterator[Compute]:
    """A step as one for each stage, what its table holds in flight.

    All put their result where the step does; sums are those of the first.
    """
    names = [tuple(part.operator.name for part in stage.parts) for stage in sequence]
    yield replace(step, operator=names[0][0], then=names[0][1:])
    for first, *behind in names[1:] if step.last else ():
        strides = tuple(move[: len(step.boxes[0])] for move in step.strides)
        yield Compute(first, step.boxes, step.places, then=tuple(behind), strides=strides)


# -- one stage -----------------------------------------------------------------------------------------------


def _composes(stage: Sequence[Call], part: Call) -> bool:
    """Whether an operator is a function of the byte that a stage makes."""
    first = stage[0].result_tensors[0]
    if not in_bytes(first) or not in_bytes(part.result_tensors[0]) or arithmetic(stage[0]) is CHOICE:
        return False
    produced = {member.result_tensors[0].name for member in stage}
    maps = [
        name
        for name, constant in zip(part.operator.inputs, part.constant, strict=True)
        if name and not constant
    ]
    how = arithmetic(part)
    chooses = how is CHOICE and part.operator.kind in ("Max", "Min")
    alike = how is TABLE or ((how in (PRODUCT, TERMS) or chooses) and not any(part.constant))
    return alike and produced.issuperset(maps)


def _stage(call: Call, behind: tuple[Call, ...]) -> TableStage:
    if not in_bytes(call.result_tensors[0]):
        return TableStage(call, behind)
    # what the operator does, and the type of the byte that its table takes
    how = arithmetic(call)
    source = call.result_tensors[0].dtype
    own = None
    if how in MOVED:
        operand = next(
            tensor
            for tensor, constant in zip(call.tensors, call.constant, strict=True)
            if tensor is not None and not constant
        )
        if len(call.results) > 1:
            return TableStage(call)
        source = operand.dtype
        own = table(call) if how is TABLE else recoding(operand, call.result_tensors[0])
    entries = _composed(call, own, behind) if behind else own
    if entries is None:
        return TableStage(call)
    more = [call] * (how in MOVED and parameter_bytes(call) > 0)  # than clamp
    more += [part for part in behind if arithmetic(part) is not TABLE or parameter_bytes(part)]
    assert more or clamps(entries, source)
    return TableStage(call, behind, entries, more[0].operator.name if more else "")


def _composed(call: Call, own: np.ndarray | None, behind: tuple[Call, ...]) -> np.ndarray:
    """256 results of the last operator, by the byte that the first makes, before its own table."""
    tensor = call.result_tensors[0]
    box = ((0, BYTES),)
    produced = {tensor.name: np.arange(BYTES, dtype=np.uint8).view(tensor.dtype) if own is None else own}
    for part in behind:
        operands = [Part(produced[name], box) if name in produced else None for name in part.operator.inputs]
        if arithmetic(part) is TABLE:
            entries = table(part)[
                next(operand.values for operand in operands if operand is not None).view(np.uint8)
            ]
        else:
            alike = replace(part, shapes=tuple((BYTES,) for _ in operands), results=((BYTES,),))
            (entries,) = integer.compute(alike, operands, (box,), 0)
        produced[part.result_tensors[0].name] = entries
    return produced[behind[-1].result_tensors[0].name]
