"""Operator kinds as TVM's fusion rules know them, where they stand."""

from __future__ import annotations

from lfopt.ops import Call, spec
from lfopt.ops.traits import Pattern

__all__ = ["Pattern", "pattern_of"]


def pattern_of(call: Call) -> Pattern:
    """The kind of an operator.

    One that spreads some operands over another that has the result's shape is elementwise, as Relax has it.
    """
    pattern = spec(call.operator.kind, call.operator.domain).pattern
    if pattern is Pattern.BROADCAST and call.result in call.shapes:
        return Pattern.ELEMENTWISE
    return pattern
