"""Networks of several images as networks of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen.emit import emit_c
from lfopt.app.compiled import image_by_image, plan_for_cpu
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware
from lfopt.ops.reference import reference
from lfopt.rewrite.images import one_image
from tests.codegen.twice import compiled

IMAGES = 6
RNG = np.random.default_rng(0)


def network(*nodes: onnx.NodeProto, x: tuple[int, ...] = (IMAGES, 3, 9, 8), **constants: np.ndarray) -> Graph:
    """From x to y."""
    ends = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        nodes, "net", *ends, [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return from_model(onnx.shape_inference.infer_shapes(model))


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def classifier() -> Graph:
    """Convolution, pool, resize, a view of all that is left, two layers, a softmax."""
    nodes = (
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("PRelu", ["a", "s"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        helper.make_node("Resize", ["c", "", "", "sizes"], ["d"], mode="nearest"),
        helper.make_node("Transpose", ["d"], ["t"], perm=[0, 3, 2, 1]),
        helper.make_node("Reshape", ["t", "flat"], ["e"]),
        helper.make_node("Gemm", ["e", "v", "bias"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=1),
    )
    sizes, flat = np.array([IMAGES, 7, 5, 6]), np.array([IMAGES, -1])
    return network(
        *nodes,
        w=floats(7, 3, 3, 3),
        s=floats(7, 1, 1),
        sizes=sizes,
        flat=flat,
        v=floats(210, 10),
        bias=floats(10),
    )


def test_one_image_gives_what_all_give() -> None:
    graph = classifier()
    split = one_image(graph)
    assert not isinstance(split, str)
    each, images = split
    assert (images, each.shape("x"), each.shape(each.outputs[0])) == (IMAGES, (1, 3, 9, 8), (1, 10))
    x = floats(*graph.shape("x"))
    apart = [reference(each, {"x": x[k : k + 1]})["y"] for k in range(images)]
    assert np.allclose(np.concatenate(apart), reference(graph, {"x": x})["y"], atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_compiled_images_are_those_of_the_reference(threads: int, tmp_path: Path) -> None:
    """One thread; a share of the images for each thread; every image by all threads."""
    graph = classifier()
    each, images = image_by_image(graph)
    source = emit_c(
        plan_for_cpu(each, Hardware(1 << 14, element_bytes=4)), each, threads=threads, images=images
    )
    assert (source.schedule.crew, source.schedule.threads) == {1: (1, 1), 3: (3, 1), 4: (1, 4)}[threads]
    x = floats(*graph.shape("x"))
    model, want = compiled(source, tmp_path), reference(graph, {"x": x})["y"]
    for _ in range(2):
        assert np.allclose(model.run({"x": x})["y"], want, atol=1e-5)


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (
            lambda: network(helper.make_node("Softmax", ["x"], ["y"], axis=0)),
            "reads more of input 0 than one image",
        ),
        (
            lambda: network(helper.make_node("CumSum", ["x", "k"], ["y"]), k=np.array(0)),
            "reads more of input 0 than one image",
        ),
        (
            lambda: network(helper.make_node("Mul", ["x", "k"], ["y"]), k=floats(IMAGES, 1, 1, 1)),
            "reads another part of input 1 for each image",
        ),
        (
            lambda: network(helper.make_node("Trilu", ["x"], ["y"]), x=(IMAGES, 4)),
            "goes by where an element is",
        ),
        (
            lambda: network(helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2, 3])),
            "is not a part for each image",
        ),
        (lambda: network(helper.make_node("Relu", ["x"], ["y"]), x=(1, 3, 4)), "it has one image"),
    ],
)
def test_images_that_meet_are_not_taken_apart(graph, why: str) -> None:
    refusal = one_image(graph())
    assert isinstance(refusal, str)
    assert why in refusal


def test_products_keep_all_their_rows() -> None:
    graph = network(helper.make_node("MatMul", ["x", "w"], ["y"]), x=(IMAGES, 8), w=floats(8, 4))
    assert image_by_image(graph) == (graph, 1)
