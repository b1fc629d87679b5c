"""Constant scales and shifts per channel behind a convolution or matrix product, in its weights and bias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from lfopt.ir import Graph, Operator, Tensor
from lfopt.ops import Call
from lfopt.rewrite.flops import flops
from lfopt.rewrite.log import Applied, Log
from lfopt.rewrite.mutable_graph import MutableGraph

Constants = Mapping[str, np.ndarray | None]


def fold_norms(graph: Graph, log: Log) -> Graph:
    """BatchNormalization goes into the convolution before it."""
    after = fold_batch_normalization(graph)
    left = {operator.name for operator in after.operators}
    gone = [operator for operator in graph.operators if operator.name not in left]
    log.applied.extend(
        Applied("Conv takes in BatchNormalization", "fold", (op.name,), (), flops(Call.of(graph, op)), 0)
        for op in gone
    )
    return after


def fold_batch_normalization(graph: Graph) -> Graph:
    """BatchNormalization after a convolution, folded into its weights and bias.

    W' = W s, b' = (b - mean) s + B with s = scale / sqrt(var + epsilon).

    Only where nothing else reads the convolution's result. Where values are absent, the shapes alone are
    folded.
    """
    uses = Counter(name for op in graph.operators for name in op.inputs)
    uses.update(graph.outputs)
    tensors = dict(graph.tensors)
    constants = dict(graph.constants)
    folded = dict[object, list[str]]()  # weights and bias, by what they are worked out from
    operators: dict[str, Operator] = {}  # by name, in order
    convolutions: dict[str, Operator] = {}  # by the tensor that they make
    for op in graph.operators:
        conv = convolutions.get(op.inputs[0]) if op.kind == "BatchNormalization" and not op.domain else None
        if conv is not None and uses[op.inputs[0]] == 1 and _fits(conv, op, tensors, constants):
            worked_out = (
                conv.kind,
                conv.attributes.get("group", 1),
                op.attributes.get("epsilon", 1e-5),
                *conv.inputs[1:],
                *op.inputs[1:],
            )
            if worked_out not in folded:
                folded[worked_out] = _folded(conv, op, tensors, constants)
            op = replace(conv, inputs=(conv.inputs[0], *folded[worked_out]), outputs=op.outputs)
        operators[op.name] = op
        if op.kind in ("Conv", "ConvTranspose") and not op.domain:
            convolutions[op.outputs[0]] = op
    return replace(
        graph, operators=tuple(operators.values()), tensors=tensors, constants=constants
    ).without_unused()


def _fits(conv: Operator, norm: Operator, tensors: Mapping[str, Tensor], constants: Constants) -> bool:
    """Whether all but the map is constant, one element per output channel, and no integers are in between."""
    if tensors[conv.outputs[0]].quantization is not None:
        return False
    vectors = [name for name in (*conv.inputs[2:], *norm.inputs[1:]) if name]
    if any(name not in constants for name in (conv.inputs[1], *vectors)):
        return False
    weight = tensors[conv.inputs[1]].shape
    group = conv.attributes.get("group", 1)
    assert isinstance(group, int)
    channels = weight[0] if conv.kind == "Conv" else weight[1] * group
    return all(tensors[name].shape == (channels,) for name in vectors)


def _folded(
    conv: Operator, norm: Operator, tensors: dict[str, Tensor], constants: dict[str, np.ndarray | None]
) -> list[str]:
    """Names of weight and bias of the convolution that does the work of both: new constants."""
    filters, *bias = conv.inputs[1:]
    weight = tensors[filters]
    count = tensors[norm.inputs[1]].shape
    folded = [
        constants[name] if name else np.zeros(count) for name in (filters, *(bias or [""]), *norm.inputs[1:])
    ]
    values: tuple[np.ndarray | None, ...] = (None, None)
    if all(value is not None for value in folded):
        values = _folded_values([np.asarray(value) for value in folded], conv, norm, weight.dtype)
    names: list[str] = []
    for part, shape, value in zip(("weight", "bias"), (weight.shape, count), values, strict=True):
        name = f"{conv.name}.{part}.folded"
        while name in tensors:
            name += "_"
        tensors[name], constants[name] = Tensor(name, shape, weight.dtype), value
        names.append(name)
    return names


def _folded_values(
    arrays: list[np.ndarray], conv: Operator, norm: Operator, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """(weights, bias) from [weight, bias, scale, shift, mean, variance], computed in float64."""
    weight, bias, scale, shift, mean, variance = (value.astype(np.float64) for value in arrays)
    epsilon = norm.attributes.get("epsilon", 1e-5)
    group = conv.attributes.get("group", 1)
    assert isinstance(epsilon, float)
    assert isinstance(group, int)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
        if conv.kind == "Conv":  # [out, in / group, ...]
            scaled = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
        else:  # [in, out / group, ...]
            scaled = (
                weight.reshape(group, -1, weight.shape[1], prod(weight.shape[2:]))
                * factor.reshape(group, 1, -1, 1)
            ).reshape(weight.shape)
        return scaled.astype(dtype), ((bias - mean) * factor + shift).astype(dtype)


# -- Mul, Div, Add, Sub by a constant per channel ------------------------------------------------------------


@dataclass(frozen=True)
class Affine:
    """An operator on each channel of a map: map * scale + shift, each one element or one per channel."""

    constant: str  # tensor that it reads besides the map
    kind: str
    map_first: bool

    def scaled(self, values: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Weights or bias times the scale, of the same shape; `by`: the constant, shaped to broadcast."""
        if self.kind == "Mul":
            return values * by
        if self.kind == "Div":
            return values / by
        if self.kind == "Add" or self.map_first:
            return values
        return -values

    def shifted(self, values: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Bias, scaled and shifted, broadcast to (channels,); `by`: the constant, (channels,)."""
        scaled = self.scaled(values, by)
        if self.kind in ("Mul", "Div"):
            return scaled
        if self.kind == "Sub" and self.map_first:
            return scaled - by
        return scaled + by


def fold_affine(mutable: MutableGraph, log: Log, among: Collection[str] | None = None) -> int:
    """Mul, Div, Add, Sub by a constant per channel after Conv, ConvTranspose or Gemm; the number folded.

    `among`: into these layers alone, by name.
    """
    count = 0
    for name in tuple(mutable.operators):
        operator = mutable.operators[name]
        pair = _affine(mutable, operator)
        if pair is None or (among is not None and pair[1].name not in among):
            continue
        affine, layer = pair
        if (reason := _hindrance(mutable, operator, affine, layer)) is not None:
            log.refuse(f"{layer.kind} takes in {operator.kind}", operator.name, reason)
            continue
        before = flops(mutable.call(operator)) + flops(mutable.call(layer))
        position = mutable.position[layer.name]
        inputs = (layer.inputs[0], *_folded_inputs(mutable, affine, layer))
        mutable.remove(operator.name)
        mutable.remove(layer.name)
        mutable.add(replace(layer, inputs=inputs, outputs=operator.outputs), position)
        after = flops(mutable.call(mutable.operators[layer.name]))
        log.applied.append(
            Applied(
                f"{layer.kind} takes in {operator.kind}",
                "fold",
                (layer.name, operator.name),
                (layer.name,),
                before,
                after,
            )
        )
        count += 1
    return count


def _affine(mutable: MutableGraph, operator: Operator) -> tuple[Affine, Operator] | None:
    """What the operator does, and the layer that it follows."""
    if operator.kind not in ("Mul", "Div", "Add", "Sub") or not mutable.is_plain(operator):
        return None
    for place in (0, 1):
        source = operator.inputs[place]
        constant = operator.inputs[1 - place]
        layer = mutable.plain_maker(source)
        if (
            layer is None
            or constant not in mutable.constants
            or layer.kind not in ("Conv", "ConvTranspose", "Gemm")
        ):
            continue
        if not (operator.kind == "Div" and place == 1):
            return Affine(constant, operator.kind, place == 0), layer
    return None


def _hindrance(mutable: MutableGraph, operator: Operator, affine: Affine, layer: Operator) -> str | None:
    """Why it cannot be folded."""
    layer_shape = mutable.tensors[layer.outputs[0]].shape
    shape = mutable.tensors[affine.constant].shape
    if mutable.only_reader(layer.outputs[0]) is not operator:
        return f"the result of {layer.name!r} is needed by others"
    if any(name not in mutable.constants for name in layer.inputs[1:] if name):
        return f"weights or bias of {layer.name!r} are computed"
    padded = (1,) * (len(layer_shape) - len(shape)) + shape
    if len(padded) > len(layer_shape) or any(n != 1 for axis, n in enumerate(padded) if axis != 1):
        return f"the constant of shape {shape} does not stand for channels of {layer_shape}"
    if layer.kind == "Gemm" and affine.kind in ("Add", "Sub") and layer.attributes.get("beta", 1.0) != 1:
        return "beta is not 1"
    return None


def _folded_inputs(mutable: MutableGraph, affine: Affine, layer: Operator) -> tuple[str, ...]:
    """Weights and bias of the layer that does both."""
    filters, *bias = layer.inputs[1:]
    weight = mutable.tensors[filters]
    by = mutable.constants[affine.constant]
    channels = mutable.tensors[layer.outputs[0]].shape[1]
    row = None if by is None else np.broadcast_to(by.astype(np.float64).reshape(-1), (channels,))
    values = mutable.constants[filters]
    names = [filters]
    settings = tuple(str(layer.attributes.get(name)) for name in ("group", "transB"))
    worked_out = (layer.kind, *settings, affine, filters)
    if affine.kind in ("Mul", "Div") or (affine.kind == "Sub" and not affine.map_first):
        if values is None or row is None:
            scaled = None
        else:
            scaled = affine.scaled(values.astype(np.float64), _along_channels(row, layer, weight.shape))
        names = [
            mutable.add_constant(
                f"{layer.name}.weight.folded", weight.shape, weight.dtype, scaled, of=worked_out
            )
        ]
    biased = bool(bias and bias[0])
    if biased or affine.kind in ("Add", "Sub"):
        old = mutable.constants[bias[0]] if biased else np.zeros(channels)
        shifted = None if old is None or row is None else affine.shifted(old.astype(np.float64), row)
        if not biased:
            shape = (channels,)
        else:
            shape = np.broadcast_shapes(mutable.tensors[bias[0]].shape, (channels,))
        names.append(
            mutable.add_constant(
                f"{layer.name}.bias.folded", shape, weight.dtype, shifted, of=("bias", affine, *bias)
            )
        )
    return tuple(names)


def _along_channels(row: np.ndarray, layer: Operator, shape: tuple[int, ...]) -> np.ndarray:
    """One element per output channel, shaped so that it multiplies the weights."""
    if layer.kind == "Conv":  # [out, in / group, ...]
        return row.reshape(-1, *(1,) * (len(shape) - 1))
    if layer.kind == "Gemm":
        if layer.attributes.get("transB", 0):
            return row.reshape(-1, 1)
        return row
    group = layer.attributes.get("group", 1)
    assert isinstance(group, int)
    # [in, out / group, ...]
    per_input = np.repeat(row.reshape(group, 1, shape[1]), shape[0] // group, axis=1)
    return per_input.reshape(shape[0], shape[1], *(1,) * (len(shape) - 2))
