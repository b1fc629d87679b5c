"""Where ../shared/models has the same network, the zoo's is the same graph, node by node, in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
from onnx import helper, numpy_helper

from lfopt import zoo
from lfopt.zoo.builder import Net
from lfopt.zoo.vit import vit
from tests.zoo.test_published_figures import macs

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
    "whisper_tiny_encoder": "hf_whisper_tiny_encoder",
    "segformer_b0": "hf_segformer_b0",
}
BIASES_DROPPED = ("whisper_tiny_encoder",)  # of convolutions, by its export: they were zeros

# Attributes that cannot change the result here: no size is 0, no index is asked of a pool, no interpolation
# is nearest or cubic.
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
    values = {}
    for name, declared in onnx.defs.get_schema(node.op_type, 18).attributes.items():
        default = (
            helper.get_attribute_value(declared.default_value)
            if declared.default_value.name
            else DEFAULTS_IN_WORDS.get(name)
        )
        value = given.get(name, default)
        values[name] = round(value, 6) if isinstance(value, float) else value
    return {name: value for name, value in values.items() if name not in WITHOUT_EFFECT.get(node.op_type, ())}


def constant(tensor: onnx.TensorProto) -> tuple[object, ...]:
    """Type and dims; the values too of shapes, axes and clipping bounds."""
    known = tensor.data_type == onnx.TensorProto.INT64 or not tensor.dims
    return tensor.data_type, tuple(tensor.dims), numpy_helper.to_array(tensor).tolist() if known else None


def signature(model: onnx.ModelProto, biases: bool = True) -> list[object]:
    """The graph without names: tensors are inputs by number, constants, or outputs of a node by its number.

    Without what a Reshape is told, which its output shows, and without a Reshape to the shape that is there.
    biases: of convolutions.
    """
    graph = model.graph
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*graph.value_info, *graph.input, *graph.output)
    }
    known: dict[str, object] = {"": None}
    known |= {t.name: constant(t) for t in graph.initializer}
    known |= {v.name: ("input", number, shapes[v.name]) for number, v in enumerate(graph.input)}
    rows: list[object] = []
    for node in graph.node:
        inputs = node.input[: {"Reshape": 1, "Conv": 3 if biases else 2}.get(node.op_type)]
        if node.op_type == "Reshape" and shapes[inputs[0]] == shapes[node.output[0]]:
            known[node.output[0]] = known[inputs[0]]
            continue
        known |= {name: ("node", len(rows), index) for index, name in enumerate(node.output)}
        rows.append(
            (
                node.op_type,
                [known[name] for name in inputs],
                [shapes[name] for name in node.output],
                attributes(node),
            )
        )
    return [*rows, [known[v.name] for v in graph.output]]


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_graph_equals_its_shared_counterpart(name: str) -> None:
    path = SHARED / f"{COUNTERPARTS[name]}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    models = zoo.build(name, weights=False), onnx.load(path, load_external_data=False)
    ours, theirs = (signature(model, name not in BIASES_DROPPED) for model in models)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


def kinds(model: onnx.ModelProto) -> Counter[str]:
    """Operators that compute, how often; a Gemm is a product and a sum."""
    counts = Counter(node.op_type for node in model.graph.node)
    counts["MatMul"], counts["Add"] = counts["MatMul"] + counts["Gemm"], counts["Add"] + counts["Gemm"]
    return Counter(
        {
            kind: counts[kind]
            for kind in (
                "Conv",
                "MatMul",
                "Add",
                "Softmax",
                "LayerNormalization",
                "Erf",
                "Tanh",
                "Split",
                "Concat",
            )
        }
    )


@pytest.mark.parametrize(
    ("name", "theirs", "masked"),
    [("bert_base", "hf_bert_base", 12), ("vit_b16", "hf_vit_b16_2l", 2)],
)
def test_graph_computes_what_its_shared_counterpart_does_but_for_the_mask(
    name: str, theirs: str, masked: int
) -> None:
    """The exports add masks that hide nothing, in each layer once; ViT's has two layers."""
    path = SHARED / f"{theirs}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    net = Net(name, 0, weights=False)
    image = net.image((1, 3, 224, 224))
    ours = (
        zoo.build(name, weights=False)
        if name == "bert_base"
        else net.model(image, vit(net, image, 768, 12, layers=2), "")
    )
    wanted = onnx.load(path, load_external_data=False)
    assert macs(ours) == macs(wanted)
    assert kinds(ours) + Counter({"Add": masked}) == kinds(wanted)


def test_signature_sees_the_order_of_operands() -> None:
    model = zoo.build("mobilenet_v2", weights=False)
    before = signature(model)
    add = next(node for node in model.graph.node if node.op_type == "Add")
    add.input[:] = reversed(add.input)
    assert signature(model) != before
