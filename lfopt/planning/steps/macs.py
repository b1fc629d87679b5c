"""Multiply-accumulates that a plan's steps execute, those of what is computed again too."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from lfopt.ir import Compute, PlannedGroup, box_shape
from lfopt.ir.schedule import counted_leaves
from lfopt.ops import Dataflow
from lfopt.ops.attention import form_of
from lfopt.ops.call import Call
from lfopt.ops.footprint import folded_axis
from lfopt.ops.recognise import attentions_of


def executed_macs(flow: Dataflow, groups: Sequence[PlannedGroup]) -> int:
    """MACs of all steps, in proportion to the parts of results and of sums; of groups without, each once."""
    index = flow.position
    attentions = attentions_of(flow)
    total = Fraction(0)
    for group in groups:
        if not group.steps:
            total += sum(flow.macs[i] for i in {index[name] for name in group.nodes})
        for times, step in counted_leaves(group.steps):
            if not isinstance(step, Compute):
                continue
            attention, then = attentions.named(step)
            # parts of an attention, and what follows in flight, may be one operator of the dataflow
            head = {index[name] for name in (step.operator, *step.then[: len(step.then) - len(then)])}
            call = flow.calls[index[step.operator]] if attention is None else attention.call
            elements = prod(call.result)
            if not elements:
                continue
            part = Fraction(times * prod(box_shape(step.boxes[0])), elements)
            head_macs = sum(flow.macs[i] for i in head)
            if head_macs:  # statistics of a normalization come in parts as well, and are no products
                total += part * _share(call, step) * head_macs
            following = {index[name] for name in then if step.last} - head
            total += part * sum(flow.macs[i] for i in following)
    return int(total)


def _share(call: Call, step: Compute) -> Fraction:
    """The part of what an operator folds that a step takes."""
    if step.inputs:
        return Fraction(step.inputs[1] - step.inputs[0], _folded(call))
    return Fraction(1)


def _folded(call: Call) -> int:
    """Extent of what an operator folds and may take in parts."""
    if call.attention is not None:
        return form_of(call).keys
    axis = folded_axis(call, 0)
    assert axis is not None, f"{call.operator.kind} has no partial sums"
    groups = call.attribute("group", 1) if call.operator.kind in ("Conv", "ConvTranspose") else 1
    return call.shape(0)[axis] // groups
