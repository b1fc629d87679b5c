"""Convolutions in register tiles: groups, images, whole maps, long sums, channels that fill no vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from codegen.emit import emit_c
from codegen.layout import Image, natural
from lfopt.app.compiled import plan_for_cpu
from lfopt.ir import Graph, Hardware, Tensor
from lfopt.ops.reference import reference
from tests.codegen.random_networks import RUNS_HERE, agrees, planned
from tests.codegen.shared import Net
from tests.codegen.test_bf16 import here
from tests.codegen.twice import compiled

MIB = 1024  # in KiB


def in_groups() -> Graph:
    """Groups that fill vectors, that leave them half empty, and of one channel each."""
    net = Net(1, 48, 15, 13)
    for channels, group, kernel, attributes in (
        (48, 3, 3, {}),
        (96, 2, 3, {"strides": [2, 2]}),
        (48, 12, 3, {"dilations": [2, 1]}),
        (72, 24, 3, {}),
        (96, 48, 5, {}),
        (60, 4, 1, {}),
        (60, 4, 1, {"strides": [2, 2]}),
        (129, 3, 3, {}),
    ):
        net.outputs.append(net.conv(channels, kernel, source="x", group=group, **attributes))
    net.conv(58, 3, source="x", group=2)
    net.add("Relu")
    return net.finish()


def of_images() -> Graph:
    """Several images, side by side in every row."""
    net = Net(3, 32, 9, 7)
    net.outputs.append(net.conv(40, 3))
    net.outputs.append(net.conv(27, 3, strides=[2, 2], pads=(0, 1, 1, 0)))
    net.outputs.append(net.conv(64, 3, source="x", group=2))
    net.outputs.append(net.conv(32, 1, source="x"))
    net.outputs.append(net.conv(32, 5, source="x", group=32))
    net.outputs.append(net.add("MaxPool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    net.outputs.append(net.add("AveragePool", "x", kernel_shape=[2, 3], pads=[0, 1, 1, 1], strides=[2, 1]))
    net.add("Add", net.conv(32, 5, source="x"), "x")
    net.add("Relu")
    return net.finish()


def of_many_weights() -> Graph:
    """Weights that are read once: whole maps row by row, and sums over many channels in blocks."""
    net = Net(1, 256, 7, 5)
    down = net.conv(130, 3, strides=[2, 2])
    net.outputs.append(net.conv(256, 3, source="x", dilations=[2, 2], pads=(2, 2, 2, 2)))
    net.outputs.append(net.add("Add", net.conv(130, 3, source=down), down))
    wide = net.conv(2100, 1, source="x")
    net.outputs.append(net.conv(66, 1, source=wide))
    net.conv(66, 1, source=wide, strides=[2, 2])
    net.add("Sigmoid")
    return net.finish()


def of_long_rows() -> Graph:
    """Wide kernels over long rows, whose edges are single pixels; and transposed ones of few channels."""
    net = Net(1, 40, 4, 203)
    net.outputs.append(net.conv(34, 7))
    net.outputs.append(net.conv(20, 5, source="x", strides=[1, 2], dilations=[1, 3], pads=(1, 4, 2, 7)))
    net.outputs.append(net.conv(3, 5, source="x", group=1))
    for channels, kernel, attributes in (
        (1, 4, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        (2, 3, {"strides": [1, 3], "dilations": [2, 2]}),
        (3, 5, {"strides": [2, 1]}),
    ):
        weights = net.rng.standard_normal((40, channels, kernel, kernel)).astype(np.float32)
        net.weights.append(numpy_helper.from_array(weights, f"w{len(net.weights)}"))
        name = net.weights[-1].name
        net.outputs.append(net.add("ConvTranspose", "x", name, channels=channels, **attributes))
    net.conv(8, 1, source="x")
    return net.finish()


def drawn_inputs(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}


NETWORKS = {"groups": in_groups, "images": of_images, "weights": of_many_weights, "rows": of_long_rows}


@pytest.mark.parametrize("name", NETWORKS)
def test_they_give_what_the_reference_gives(name: str, tmp_path: Path) -> None:
    graph = NETWORKS[name]()
    plan = planned(graph, 4 * MIB, "resident")
    inputs = drawn_inputs(graph)
    for target in RUNS_HERE:
        source = emit_c(plan, graph, target)
        assert not any(function.how == "loops" for function in source.schedule.functions), target
        agrees(source, graph, tmp_path / target, 5e-5)
    target = RUNS_HERE[-1]
    alone = compiled(emit_c(plan, graph, target), tmp_path / "alone").run(inputs)
    together = compiled(emit_c(plan, graph, target, threads=3), tmp_path / "together").run(inputs)
    assert all(np.array_equal(alone[key], together[key]) for key in alone)


def test_many_weights_are_read_once_and_fetched_ahead() -> None:
    graph = of_many_weights()
    source = emit_c(planned(graph, 4 * MIB, "resident"), graph, "avx512")
    kernels = [one.kernel for one in source.decisions]
    assert kernels.count("direct convolution of a whole map") == 4
    code = source.files["model.c"].decode()
    assert "FETCH(ahead);" in code
    assert "done < 2100; done += " in code


def test_images_lie_side_by_side_in_a_row() -> None:
    layout = natural(Tensor("x", (3, 8, 5, 4), "float32"), pixels=True)
    assert layout.image == Image(5, 12, 8, images=3)
    assert layout.image.width == 4
    assert layout.image.group(2) == Image(5, 12, 4, gap=4, images=3)


@here
@pytest.mark.parametrize("name", ["groups", "images", "rows"])
def test_in_bfloat16_they_are_as_far_off_as_rounding_takes_them(name: str, tmp_path: Path) -> None:
    graph = NETWORKS[name]()
    plan = plan_for_cpu(graph, Hardware(1 << 20, element_bytes=2), element="bf16")
    inputs = drawn_inputs(graph)
    outputs = compiled(emit_c(plan, graph, element="bf16"), tmp_path).run(inputs)
    wanted = reference(graph, inputs)
    for key, values in outputs.items():
        assert 2.0**-12 < np.abs(values - wanted[key]).max() / np.abs(wanted[key]).max() < 2.0**-7, key
