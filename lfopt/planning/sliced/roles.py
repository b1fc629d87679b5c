"""Positions that operators may take in segments."""

from __future__ import annotations

from typing import NamedTuple

from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, Tiling
from lfopt.ops.rows import same_row
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.line_buffers.lines import Lines


class Role(NamedTuple):
    """Positions that an operator may take in any segment."""

    contracts: bool  # it may be the head
    sums: bool  # it may be the tail
    runs: bool  # it is a reduction that takes rows one at a time, and ends the segment
    joins: bool  # it lays maps side by side by channels, and may begin a segment
    by_row: bool  # it needs the same row of its operands, and of some all channels: it begins a prologue
    row_wise: bool  # it makes a row [b, s, d] from the same row of its operands: it may be in a prologue
    local: frozenset[int]  # inputs of which a slice of the result needs just the same channels
    channels: int  # of its result
    least: dict[int, int]  # per map that it reads: rows that are on chip at once in any group
    computes: bool  # whether it computes a row in any group


def all_roles(slices: SliceSizes, lines: Lines) -> list[Role | None]:
    """Per operator; None where it is in no segment."""
    return [_role(slices, lines, i) for i in range(len(slices.dataflow))]


def _role(slices: SliceSizes, lines: Lines, op: int) -> Role | None:
    flow = slices.dataflow
    known = slices.facts[op]
    call = flow.calls[op]
    axis = CHANNEL_AXIS_OF_RANK.get(len(call.result))
    one_map = len(flow.results[op]) == 1 and call.result == flow.maps[flow.results[op][0]].shape
    if known.never or axis is None or not one_map:
        return None
    runs = bool(flow.running >> op & 1)
    local = frozenset(o.input for o in flow.operands[op] if slices.is_local(op, o.input))
    least: dict[int, int] = {}
    for m, rows in [(o.map, 1) for o in flow.operands[op]] if runs else known.least_held:
        least[m] = max(least.get(m, 0), rows)
    joins = _joins(flow, op, axis)
    in_rows = _in_rows(flow, op)
    return Role(
        contracts=known.contracts,
        sums=known.sums,
        runs=runs,
        joins=joins,
        by_row=in_rows and not local and not joins and not flow.specs[op].elementwise,
        row_wise=in_rows and not runs and len(call.result) == 3,
        local=local,
        channels=call.result[axis],
        least=least,
        computes=lines.least[op] > 0,
    )


def _joins(flow: Dataflow, op: int, axis: int) -> bool:
    """Whether an operator lays different maps side by side along an axis."""
    call = flow.calls[op]
    if flow.specs[op].kind != "Concat" or call.attribute("axis", 0) % len(call.result) != axis:
        return False
    own = [o for o in flow.operands[op] if o.input < len(call.operator.inputs)]
    alike = all(flow.maps[o.map].shape == call.shape(o.input) for o in own)
    return alike and len({o.map for o in own}) == len(own) and not flow.weights[op]


def _in_rows(flow: Dataflow, op: int) -> bool:
    """Whether an operator makes every row from the same row of its operands, and sums over no weights."""
    call = flow.calls[op]
    if call.rows_out < 2 or flow.specs[op].tiling is Tiling.CONTRACT or not flow.operands[op]:
        return False
    for operand in flow.operands[op]:
        tensor = flow.maps[operand.map]
        seen_as_it_is = tensor.shape == call.shape(operand.input) and tensor.rows == call.rows_out
        if not seen_as_it_is or operand.reads is not same_row(tensor.rows):
            return False
    return True
