"""Modelled cycles against recorded RTL: commands of MobileNet-V2 and EfficientNet-B0 in int8.

Recorded from the RTL of 2026-11-23: lf_exec with its buffer (tests/hw_rtl/exec) was given each command alone;
counted from when it was accepted until its last result was written. Those of few columns are of 2026-11-24, a
row of a convolution that the whole accelerator ran.
Whole plans and groups: benchmarks/bench_rtl_cycles.py.
"""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from lfopt.app.commands.options import chip
from lfopt.ir import Compute
from simulator.model.timing import Accelerator
from tests.simulator.test_simulate import conv, network

Shape = tuple[int, ...]


def biased(*, kernel: int = 1, group: int = 1) -> onnx.NodeProto:
    pads = [kernel // 2] * 4
    return helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], "y", kernel_shape=[kernel, kernel], pads=pads, group=group
    )


def add(x: str, y: str) -> onnx.NodeProto:
    return helper.make_node("Add", [x, x], [y], y)


# (node, shape of the operand, of the weights, channels and rows of the result, cycles on the RTL)
RECORDED: tuple[tuple[str, onnx.NodeProto, Shape, Shape, tuple[int, int], tuple[int, int], int], ...] = (
    (
        "first layer",
        conv("x", "w", "y", kernel=3, stride=2),
        (1, 3, 224, 224),
        (32, 3, 3, 3),
        (0, 32),
        (5, 6),
        711,
    ),
    (
        "depthwise",
        conv("x", "w", "y", kernel=3, group=32),
        (1, 32, 112, 112),
        (32, 1, 3, 3),
        (0, 32),
        (5, 6),
        344,
    ),
    (
        "depthwise at the edge",
        conv("x", "w", "y", kernel=3, group=32),
        (1, 32, 112, 112),
        (32, 1, 3, 3),
        (0, 32),
        (0, 1),
        311,
    ),
    (
        "depthwise, stride 2",
        conv("x", "w", "y", kernel=3, group=96, stride=2),
        (1, 96, 112, 112),
        (96, 1, 3, 3),
        (0, 96),
        (5, 6),
        592,
    ),
    (
        "depthwise 5x5, whole map",
        conv("x", "w", "y", kernel=5, group=672),
        (1, 672, 7, 7),
        (672, 1, 5, 5),
        (0, 672),
        (0, 7),
        5690,
    ),
    (
        "depthwise 5x5, stride 2",
        conv("x", "w", "y", kernel=5, group=144, stride=2),
        (1, 144, 56, 56),
        (144, 1, 5, 5),
        (0, 144),
        (5, 9),
        2857,
    ),
    ("32 to 16", conv("x", "w", "y"), (1, 32, 112, 112), (16, 32, 1, 1), (0, 16), (5, 6), 270),
    ("16 to 96", conv("x", "w", "y"), (1, 16, 112, 112), (96, 16, 1, 1), (0, 96), (5, 6), 723),
    ("96 to 24", conv("x", "w", "y"), (1, 96, 56, 56), (24, 96, 1, 1), (0, 24), (5, 6), 718),
    ("24 to 144", conv("x", "w", "y"), (1, 24, 56, 56), (144, 24, 1, 1), (0, 144), (5, 6), 1054),
    (
        "960 to 64 of 320, whole map",
        conv("x", "w", "y"),
        (1, 960, 7, 7),
        (320, 960, 1, 1),
        (0, 64),
        (0, 7),
        11802,
    ),
    ("logits, 64 of 1000", conv("x", "w", "y"), (1, 1280, 1, 1), (1000, 1280, 1, 1), (0, 64), (0, 1), 1626),
    ("64 to 384, 11 columns", biased(), (1, 64, 14, 11), (384, 64, 1, 1), (0, 384), (5, 6), 1462),
    ("64 to 384, 12 columns", biased(), (1, 64, 14, 12), (384, 64, 1, 1), (0, 384), (5, 6), 1664),
    ("64 to 384, 14 columns", biased(), (1, 64, 14, 14), (384, 64, 1, 1), (0, 384), (5, 6), 1713),
    ("64 to 384, 16 columns", biased(), (1, 64, 14, 16), (384, 64, 1, 1), (0, 384), (5, 6), 1668),
    ("depthwise 1x1, 8 columns", biased(group=640), (1, 640, 8, 8), (640, 1, 1, 1), (0, 640), (4, 5), 535),
    (
        "depthwise 5x5, 5 columns",
        biased(kernel=5, group=640),
        (1, 640, 8, 5),
        (640, 1, 5, 5),
        (0, 640),
        (4, 5),
        1029,
    ),
    ("sum", add("x", "y"), (1, 24, 56, 56), (), (0, 24), (5, 6), 143),
    (
        "global pool",
        helper.make_node("GlobalAveragePool", ["x"], ["y"], "y"),
        (1, 1280, 7, 7),
        (),
        (0, 1280),
        (0, 1),
        2265,
    ),
)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case[0])
def test_a_command_takes_what_the_rtl_took(
    case: tuple[str, onnx.NodeProto, Shape, Shape, tuple[int, int], tuple[int, int], int],
) -> None:
    _, node, x, w, channels, rows, cycles = case
    flow = network(node, x=x, **({"w": w} if w else {}), **({"b": w[:1]} if len(node.input) > 2 else {}))
    width = flow.maps[flow.results[0][0]].shape[3]
    step = Compute("y", (((0, 1), channels, rows, (0, width)),), (0,))
    hardware = chip("accelerator_256k.yaml", None, None)
    command = Accelerator(flow, hardware).command(step)
    assert (
        hardware.start_cycles + command.fill + command.cycles + command.late + hardware.drain_cycles
        == pytest.approx(cycles, rel=0.05)
    )
