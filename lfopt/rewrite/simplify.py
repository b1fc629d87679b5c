"""Make a graph smaller without changing what it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from lfopt.ir import Graph, InvalidConfig, Operator, Tensor

Rule = Callable[[Graph], Graph]
Constants = Mapping[str, np.ndarray | None]


def simplify(graph: Graph, rules: str = "default") -> Graph:
    """Apply a set of rules by name (a key of `RULES`), in order."""
    if rules not in RULES:
        raise InvalidConfig(f"rules {rules!r}: the sets of rules are {', '.join(RULES)}")
    for rule in RULES[rules]:
        graph = rule(graph)
    return graph


def fold_batch_normalization(graph: Graph) -> Graph:
    """BatchNormalization after a convolution goes into its weights and bias: W' = W s, b' = (b - mean) s + B with s = scale / sqrt(var + epsilon).

    Only where nothing else reads the convolution's result. Where values are absent, the shapes alone are folded.
    """
    uses = Counter(name for op in graph.operators for name in op.inputs)
    uses.update(graph.outputs)
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    operators: dict[str, Operator] = {}  # by name, in order
    convolutions: dict[str, Operator] = {}  # by the tensor that they make
    for op in graph.operators:
        conv = convolutions.get(op.inputs[0]) if op.kind == "BatchNormalization" and not op.domain else None
        if conv is not None and uses[op.inputs[0]] == 1 and _fits(conv, op, tensors, constants):
            op = _merged(conv, op, tensors, constants)
        operators[op.name] = op
        if op.kind in ("Conv", "ConvTranspose") and not op.domain:
            convolutions[op.outputs[0]] = op
    return _without_unused(replace(graph, operators=tuple(operators.values()), tensors=tensors, constants=constants))


def _fits(conv: Operator, norm: Operator, tensors: Mapping[str, Tensor], constants: Constants) -> bool:
    """Whether everything but the map is constant, with one element per output channel, and no integers stand between the two."""
    if tensors[conv.outputs[0]].quantization is not None:
        return False
    vectors = [name for name in (*conv.inputs[2:], *norm.inputs[1:]) if name]
    if any(name not in constants for name in (conv.inputs[1], *vectors)):
        return False
    weight, group = tensors[conv.inputs[1]].shape, conv.attributes.get("group", 1)
    assert isinstance(group, int)
    channels = weight[0] if conv.kind == "Conv" else weight[1] * group
    return all(tensors[name].shape == (channels,) for name in vectors)


def _merged(conv: Operator, norm: Operator, tensors: dict[str, Tensor], constants: dict[str, np.ndarray | None]) -> Operator:
    """The convolution that does the work of both; its weight and bias are added to tensors and constants."""
    source, filters, *bias = conv.inputs
    weight, count = tensors[filters], tensors[norm.inputs[1]].shape
    found = [constants[name] if name else np.zeros(count) for name in (filters, *(bias or [""]), *norm.inputs[1:])]
    values: tuple[np.ndarray | None, ...] = (None, None)
    if all(value is not None for value in found):
        values = _folded_values([np.asarray(value) for value in found], conv, norm, weight.dtype)
    names: list[str] = []
    for part, shape, value in zip(("weight", "bias"), (weight.shape, count), values, strict=True):
        name = f"{conv.name}.{part}.folded"
        while name in tensors:
            name += "_"
        tensors[name], constants[name] = Tensor(name, shape, weight.dtype), value
        names.append(name)
    return replace(conv, inputs=(source, *names), outputs=norm.outputs)


def _folded_values(found: list[np.ndarray], conv: Operator, norm: Operator, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """(weights, bias) from [weight, bias, scale, shift, mean, variance], computed in float64."""
    weight, bias, scale, shift, mean, variance = (value.astype(np.float64) for value in found)
    epsilon, group = norm.attributes.get("epsilon", 1e-5), conv.attributes.get("group", 1)
    assert isinstance(epsilon, float)
    assert isinstance(group, int)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
        if conv.kind == "Conv":  # [out, in / group, ...]
            scaled = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
        else:  # [in, out / group, ...]
            scaled = (weight.reshape(group, -1, weight.shape[1], prod(weight.shape[2:])) * factor.reshape(group, 1, -1, 1)).reshape(weight.shape)
        return scaled.astype(dtype), ((bias - mean) * factor + shift).astype(dtype)


def _without_unused(graph: Graph) -> Graph:
    """Drop tensors and constants that nothing reads."""
    used = {name for op in graph.operators for name in (*op.inputs, *op.outputs)} | set(graph.inputs) | set(graph.outputs)
    return replace(
        graph,
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in used},
        constants={name: value for name, value in graph.constants.items() if name in used},
    )


RULES: dict[str, tuple[Rule, ...]] = {
    "default": (fold_batch_normalization,),
    "none": (),
}
