"""DRAM bytes and cycles of the compute engine that each operator of a plan is to blame for."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.ir import Compute, GroupReport, Hardware, PlannedGroup, counted_leaves, parameters_of, whole
from lfopt.ops import Dataflow, bits
from simulator.model.timing import Accelerator


def operator_bytes(flow: Dataflow, masks: Sequence[int], reports: Sequence[GroupReport]) -> list[int]:
    """DRAM bytes per operator; they sum to those of its group.

    What is stored counts for the operator that makes it; what is loaded, maps and constants, for the first of
    the group that reads it.
    """
    bytes_of = [0] * len(flow)
    for mask, report in zip(masks, reports, strict=True):
        members = [*bits(mask)]
        reader = {parameters_of(flow.operators[i].name): i for i in members}
        for i in reversed(members):
            reader.update({weight.name: i for weight in flow.weights[i]})
            reader.update({flow.maps[operand.map].name: i for operand in flow.operands[i]})
        writer = {flow.maps[m].name: i for i in members for m in flow.results[i]}
        moves = [move for move in report.tensors if move.role != "l2"]
        for move in moves:
            bytes_of[reader.get(move.name, members[0])] += move.loaded_bytes
            bytes_of[writer.get(move.name, members[-1])] += move.stored_bytes
        # what is read again, of no single tensor
        bytes_of[members[0]] += report.dram.total - sum(
            move.loaded_bytes + move.stored_bytes for move in moves
        )
    return bytes_of


def operator_cycles(flow: Dataflow, groups: Sequence[PlannedGroup], hardware: Hardware) -> list[int]:
    """Cycles that the compute engine works on each operator, by the model.

    In groups without steps, those on whole tensors; none on what is read through.
    """
    accelerator = Accelerator(flow, hardware)
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    cycles_of = [0] * len(flow)
    for group in groups:
        if group.is_access:
            continue
        for times, step in (
            counted_leaves(group.steps)
            if group.steps
            else ((1, _whole(flow, index[name])) for name in group.nodes)
        ):
            if isinstance(step, Compute):
                for part in accelerator.split(step):
                    cycles_of[index[part.operator]] += times * accelerator.command(part).cycles
    return cycles_of


def _whole(flow: Dataflow, i: int) -> Compute:
    results = flow.results[i]
    return Compute(
        flow.operators[i].name, tuple(whole(flow.maps[m].shape) for m in results), (-1,) * len(results)
    )
