"""GroupNormalization from its form before opset 18: InstanceNormalization of groups, then a scale.

The former stands between two Reshapes; scale and shift are per channel. Source: torch.onnx, symbolic of
group_norm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lfopt.ir import Graph, Operator
from lfopt.rewrite.engine import REAL
from lfopt.rewrite.mutable_graph import MutableGraph


class _PerChannel(NamedTuple):
    """What each channel is scaled by, and what is added then; None: values that are not known."""

    scale: np.ndarray | None
    bias: np.ndarray | None

    def times(self, factor: np.ndarray | None) -> _PerChannel:
        return _PerChannel(*(None if own is None or factor is None else own * factor for own in self))

    def plus(self, term: np.ndarray | None) -> _PerChannel:
        return _PerChannel(self.scale, None if self.bias is None or term is None else self.bias + term)


def instances_as_groups(graph: Graph) -> Graph:
    """Add(Mul(Reshape(InstanceNormalization(Reshape(x))), s), b) as GroupNormalization(x, s, b).

    Mul, Add or both may be absent.
    """
    if not any(operator.kind == "InstanceNormalization" for operator in graph.operators):
        return graph
    mutable = MutableGraph(graph)
    for operator in graph.operators:
        if operator.kind == "InstanceNormalization" and mutable.is_plain(operator):
            _recognise(mutable, operator)
    mutable.drop_dead()
    return mutable.finish()


def _recognise(mutable: MutableGraph, instance: Operator) -> None:
    """Put GroupNormalization in the place of the last of the parts, if they are that."""
    split = mutable.plain_maker(instance.inputs[0])
    last = mutable.only_reader(instance.outputs[0])
    if (
        split is None
        or last is None
        or not split.kind == last.kind == "Reshape"
        or not mutable.is_plain(last)
    ):
        return
    source = mutable.tensors[split.inputs[0]]
    grouped = mutable.tensors[instance.inputs[0]]
    if (
        mutable.tensors[last.outputs[0]].shape != source.shape
        or len(source.shape) < 3
        or not source.dtype.startswith(REAL)
    ):
        return
    (images, channels, *_), groups = source.shape, grouped.shape[1]
    if (
        grouped.shape[0] != images
        or channels % groups
        or any(name not in mutable.constants for name in instance.inputs[1:])
    ):
        return
    scale, bias = (mutable.constants[name] for name in instance.inputs[1:])
    worked_out = [*instance.inputs[1:], groups]  # what the new constants are worked out from
    per_channel = _PerChannel(
        *(None if value is None else np.repeat(value, channels // groups) for value in (scale, bias))
    )
    for kind, applied in (("Mul", _PerChannel.times), ("Add", _PerChannel.plus)):
        reader = mutable.only_reader(last.outputs[0])
        if reader is not None and reader.kind == kind:
            operand = _by_channel(mutable, reader, last.outputs[0], channels)
        else:
            operand = None
        if reader is not None and operand is not None:
            value = mutable.constants[operand]
            worked_out += [kind, operand]
            last = reader
            per_channel = applied(per_channel, None if value is None else value.reshape(-1))
    constants = [
        mutable.add_constant(
            f"{instance.name}.{part}", (channels,), source.dtype, value, of=(part, *worked_out)
        )
        for part, value in zip(("scale", "bias"), per_channel, strict=True)
    ]
    attributes = {"num_groups": groups, "epsilon": instance.attributes.get("epsilon", 1e-5)}
    mutable.change(
        Operator(
            last.name,
            "GroupNormalization",
            (source.name, *constants),
            last.outputs,
            attributes,
            origin=instance.origin,
        )
    )


def _by_channel(mutable: MutableGraph, operator: Operator, read: str, channels: int) -> str | None:
    """The constant operand of an elementwise operator: one value, or one per channel; None: no such."""
    shape = mutable.tensors[read].shape
    others = [name for name in operator.inputs if name != read]
    if (
        len(others) != 1
        or others[0] not in mutable.constants
        or not mutable.is_plain(operator)
        or mutable.tensors[operator.outputs[0]].shape != shape
    ):
        return None
    own = mutable.tensors[others[0]].shape
    if len(own) <= len(shape) and (1,) * (len(shape) - len(own)) + own in (
        (1, channels, *(1,) * (len(shape) - 2)),
        (1,) * len(shape),
    ):
        return others[0]
    return None
