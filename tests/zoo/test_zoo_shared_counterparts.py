"""Where ../shared/models holds the same network, the zoo's is the same graph: node by node, in the same order."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper, numpy_helper

from lfopt import zoo

SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"
COUNTERPARTS = {
    "efficientnet_b0": "hf_efficientnet_b0",
    "efficientnet_b3": "hf_efficientnet_b3",
    "mobilenet_v1": "hf_mobilenet_v1",
    "mobilenet_v2": "hf_mobilenet_v2",
    "mobilenet_v3_large": "tv_mobilenet_v3_large",
    "resnet18": "hf_resnet18",
    "resnet34": "hf_resnet34",
    "resnet50": "hf_resnet50",
    "resnet101": "hf_resnet101",
    "squeezenet1_1": "tv_squeezenet1_1",
    "vgg16": "tv_vgg16",
    "deeplabv3_mobilenet_v3_large": "tv_deeplabv3_mobilenet_v3_large",
}

# Attributes that cannot change the result here: no size is 0, no index is asked of a pool, no interpolation is nearest or cubic.
WITHOUT_EFFECT = {
    "Reshape": {"allowzero"},
    "MaxPool": {"storage_order"},
    "Resize": {"nearest_mode", "cubic_coeff_a", "extrapolation_value"},
}
# Defaults that ONNX states in words, for want of a fixed length.
DEFAULTS_IN_WORDS = {"pads": [0, 0, 0, 0], "dilations": [1, 1], "strides": [1, 1]}


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    """All attributes that have an effect, defaults filled in."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    found = {}
    for name, declared in onnx.defs.get_schema(node.op_type, 18).attributes.items():
        default = helper.get_attribute_value(declared.default_value) if declared.default_value.name else DEFAULTS_IN_WORDS.get(name)
        value = given.get(name, default)
        found[name] = round(value, 6) if isinstance(value, float) else value
    return {name: value for name, value in found.items() if name not in WITHOUT_EFFECT.get(node.op_type, ())}


def constant(tensor: onnx.TensorProto) -> tuple[object, ...]:
    """Type and dims; the values too of shapes, axes and clipping bounds."""
    known = tensor.data_type == onnx.TensorProto.INT64 or not tensor.dims
    return tensor.data_type, tuple(tensor.dims), numpy_helper.to_array(tensor).tolist() if known else None


def signature(model: onnx.ModelProto) -> list[object]:
    """The graph without names: tensors are inputs by number, constants, or outputs of a node by its number."""
    graph = model.graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.value_info, *graph.input, *graph.output)}
    known: dict[str, object] = {"": None}
    known |= {t.name: constant(t) for t in graph.initializer}
    known |= {v.name: ("input", number, shapes[v.name]) for number, v in enumerate(graph.input)}
    rows: list[object] = []
    for number, node in enumerate(graph.node):
        rows.append((node.op_type, [known[name] for name in node.input], [shapes[name] for name in node.output], attributes(node)))
        known |= {name: ("node", number, index) for index, name in enumerate(node.output)}
    return [*rows, [known[v.name] for v in graph.output]]


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_graph_equals_its_shared_counterpart(name: str) -> None:
    path = SHARED / f"{COUNTERPARTS[name]}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    ours, theirs = signature(zoo.build(name, weights=False)), signature(onnx.load(path, load_external_data=False))
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


def test_signature_sees_the_order_of_operands() -> None:
    model = zoo.build("mobilenet_v2", weights=False)
    before = signature(model)
    add = next(node for node in model.graph.node if node.op_type == "Add")
    add.input[:] = reversed(add.input)
    assert signature(model) != before
