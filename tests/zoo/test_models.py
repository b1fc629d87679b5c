"""Every model of the zoo: legal ONNX, stated shapes, names, the same bytes for the same seed."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import lfopt.zoo
from lfopt import zoo
from lfopt.zoo.cells import NAMES as DRAWN

TEXTS = ("gpt2", "gpt2_step", "bert_base")
BIG = (
    "efficientnet_b5",
    "efficientnet_b6",
    "efficientnet_b7",
    "resnet152",
    "vgg16",
    "yolov4",
    "c3d",
    *TEXTS,
    "vit_b16",
    "detr_resnet50",
)
BY_SIZE = [pytest.param(name, marks=[pytest.mark.slow] if name in BIG else []) for name in zoo.names()]


def shapes(values: list[onnx.ValueInfoProto]) -> dict[str, list[int]]:
    """Tensor name -> dims."""
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


@pytest.mark.parametrize("name", BY_SIZE)
def test_checker_accepts(name: str) -> None:
    onnx.checker.check_model(zoo.build(name))


@pytest.mark.parametrize(
    "name", [*zoo.names(), *(f"{family}@{seed}" for family in DRAWN for seed in range(4))]
)
def test_stated_shapes_are_those_that_onnx_infers(name: str) -> None:
    model = zoo.build(name, weights=False)
    stated = shapes([*model.graph.value_info, *model.graph.output])
    del model.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(
        model, check_type=True, strict_mode=True, data_prop=True
    ).graph
    assert shapes([*inferred.value_info, *inferred.output]) == stated


@pytest.mark.parametrize("name", zoo.names())
def test_header_input_and_names(name: str) -> None:
    model, row = zoo.build(name, weights=False), zoo.summary(name)
    assert (model.ir_version, [(o.domain, o.version) for o in model.opset_import]) == (10, [("", 18)])
    caches = (
        {f"layer{k}.{of}.cache": [1, 12, 1023, 64] for k in range(1, 13) for of in ("key", "value")}
        if name == "gpt2_step"
        else {}
    )
    assert (
        shapes(list(model.graph.input))
        == {"image" if row.vocabulary is None else "tokens": list(row.input_shape)} | caches
    )
    assert len(model.graph.output) == {
        "yolov4": 3,
        "mobilenet_v1_ssd": 2,
        "detr_resnet50": 2,
        "gpt2_step": 25,
    }.get(name, 1)
    assert model.graph.name == name == row.name
    assert row.source
    assert row.description
    assert all(re.fullmatch(r"[a-z]\w*(\.\w+)*", node.name) for node in model.graph.node)
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


def test_a_network_drawn_at_random_is_its_seed() -> None:
    models = {
        f"{family}@{seed}": zoo.build(f"{family}@{seed}").SerializeToString()
        for family in DRAWN
        for seed in (3, 4)
    }
    assert len(set(models.values())) == len(models)
    assert all(zoo.build(name).SerializeToString() == model for name, model in models.items())
    for name in ("cells_dense", "cells_dense@", "cells_dense@-1", "cells_dense@01", "cells_dense@x"):
        with pytest.raises(
            zoo.UnknownNetwork, match="accepted: the seed of a network, a whole number from 0 to 999999999"
        ):
            zoo.summary(name)
    with pytest.raises(zoo.UnknownNetwork, match="cells_graph@SEED"):
        zoo.summary("cells")


def test_names_tell_where_an_operator_is() -> None:
    names = {node.name for node in zoo.build("efficientnet_b0", weights=False).graph.node}
    assert {
        "stem",
        "stage2.block1.expand",
        "stage2.block1.depthwise.silu",
        "stage2.block1.se.reduce",
        "stage2.block2.add",
        "logits",
    } <= names


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenet_v3_small", "squeezenet1_1", "fsrcnn", "unet"])
def test_same_seed_same_bytes(name: str) -> None:
    first, again, other = (
        hashlib.sha256(zoo.build(name, seed).SerializeToString()).digest() for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_deeper_network_keeps_the_weights_it_shares() -> None:
    """Tensors are seeded by name, so a layer added elsewhere changes none."""
    weights = [
        {t.name: numpy_helper.to_array(t) for t in zoo.build(name).graph.initializer}
        for name in ("resnet18", "resnet34")
    ]
    for tensor in ("stem.weight", "stage1.block1.conv1.weight", "stage1.block2.conv2.bias"):
        np.testing.assert_array_equal(weights[0][tensor], weights[1][tensor])


@pytest.mark.parametrize(
    "name", ["efficientnet_b0", "mobilenet_v2", "fsrcnn", "deeplabv3_mobilenet_v3_large", "unet"]
)
def test_without_weights_only_large_tensors_lose_their_values(name: str) -> None:
    full = {t.name: t for t in zoo.build(name).graph.initializer}
    hollow = {t.name: t for t in zoo.build(name, weights=False).graph.initializer}
    assert list(full) == list(hollow)
    for tensor, values in full.items():
        if np.prod(values.dims) <= 256 and not tensor.endswith(".bias"):
            assert hollow[tensor] == values
        elif np.prod(values.dims) > 256:
            stated = {entry.key: entry.value for entry in hollow[tensor].external_data}
            array = numpy_helper.to_array(values)
            assert (hollow[tensor].data_location, hollow[tensor].dims) == (TensorProto.EXTERNAL, values.dims)
            assert stated["location"] == "__random__"
            assert float(stated["std"]) == pytest.approx(array.std(), rel=0.1)
            assert float(stated["min"]) < float(stated["mean"]) < float(stated["max"])


def test_model_without_weights_is_read_back(tmp_path) -> None:
    model = zoo.build("vgg16", weights=False)
    onnx.save(model, tmp_path / "vgg16.onnx")
    assert (tmp_path / "vgg16.onnx").stat().st_size < 100_000
    assert onnx.load(tmp_path / "vgg16.onnx", load_external_data=False) == model


def test_unknown_name_lists_what_there_is_close_ones_first() -> None:
    with pytest.raises(
        zoo.UnknownNetwork, match=r"'resnet51' is not in the zoo; it has resnet50, resnet\d+.*, vgg16"
    ) as caught:
        zoo.build("resnet51")
    assert isinstance(caught.value, ValueError)
    assert all(name in str(caught.value) for name in zoo.names())


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("gpt2@1", (1, 1)),
        ("gpt2@1024", (1, 1024)),
        ("bert_base@512", (1, 512)),
        ("gpt2_step@7", (1, 12, 7, 64)),
    ],
)
def test_texts_have_the_length_that_is_asked_for(name: str, tokens: tuple[int, ...]) -> None:
    model = zoo.build(name, weights=False)
    assert tuple(shapes([model.graph.input[-1]]).popitem()[1]) == tokens
    assert model.graph.name == name
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt2@1025", "network gpt2@1025: found '1025'; accepted: a number of tokens from 1 to 1024"),
        ("bert_base@", "network bert_base@: found ''; accepted: a number of tokens from 1 to 512"),
        ("gpt2@064", "found '064'"),
        ("resnet18@64", "found a length after 'resnet18'; accepted: one after bert_base, gpt2, gpt2_step"),
        ("resnet51@64", "network 'resnet51@64' is not in the zoo"),
    ],
)
def test_another_length_is_one_clear_line(name: str, message: str) -> None:
    with pytest.raises(zoo.UnknownNetwork, match=re.escape(message)):
        zoo.build(name)


def test_public_names_are_exactly_all() -> None:
    assert set(zoo.__all__) == {name for name in vars(lfopt.zoo) if name[0] != "_"} - {
        "activations", "attention", "bert", "blocks", "builder", "c3d", "catalog", "cells", "deeplab", "detr",
        "draws", "efficientnet", "fsrcnn", "gpt2", "mobilenet", "moments", "resnet", "segformer",
        "squeezenet", "ssd", "token_cells", "transformer", "unet", "vgg", "vit", "whisper", "writer", "yolo",
    }  # fmt: skip
