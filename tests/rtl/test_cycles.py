"""The model of cycles against what the RTL took: single commands of MobileNet-V2 in int8, recorded.

Recorded from the RTL of 2026-11-22, from the first column of a command to its last, the weights of the first pass included, as commands that wait for
the one before take them: lf_exec.sv was given a $display for each cycle of take[0], and of the end of columns_busy. Whole plans and groups:
benchmarks/bench_rtl_cycles.py.
"""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from lfopt.app.commands.options import chip
from lfopt.ir import Compute
from simulator.timing import Accelerator
from tests.test_simulate import conv, network

Shape = tuple[int, ...]


def add(x: str, y: str) -> onnx.NodeProto:
    return helper.make_node("Add", [x, x], [y], y)


# (node, shape of the operand, of the weights, channels and rows of the result, cycles on the RTL)
RECORDED: tuple[tuple[str, onnx.NodeProto, Shape, Shape, tuple[int, int], tuple[int, int], int], ...] = (
    ("first layer", conv("x", "w", "y", kernel=3, stride=2), (1, 3, 224, 224), (32, 3, 3, 3), (0, 32), (5, 6), 688),
    ("depthwise", conv("x", "w", "y", kernel=3, group=32), (1, 32, 112, 112), (32, 1, 3, 3), (0, 32), (5, 6), 682),
    ("depthwise at the edge", conv("x", "w", "y", kernel=3, group=32), (1, 32, 112, 112), (32, 1, 3, 3), (0, 32), (0, 1), 458),
    ("depthwise, stride 2", conv("x", "w", "y", kernel=3, group=96, stride=2), (1, 96, 112, 112), (96, 1, 3, 3), (0, 96), (5, 6), 1018),
    ("32 to 16", conv("x", "w", "y"), (1, 32, 112, 112), (16, 32, 1, 1), (0, 16), (5, 6), 247),
    ("16 to 96", conv("x", "w", "y"), (1, 16, 112, 112), (96, 16, 1, 1), (0, 96), (5, 6), 695),
    ("96 to 24", conv("x", "w", "y"), (1, 96, 56, 56), (24, 96, 1, 1), (0, 24), (5, 6), 695),
    ("24 to 144", conv("x", "w", "y"), (1, 24, 56, 56), (144, 24, 1, 1), (0, 144), (5, 6), 1031),
    ("960 to 64 of 320, whole map", conv("x", "w", "y"), (1, 960, 7, 7), (320, 960, 1, 1), (0, 64), (0, 7), 11783),
    ("logits, 64 of 1000", conv("x", "w", "y"), (1, 1280, 1, 1), (1000, 1280, 1, 1), (0, 64), (0, 1), 5220),
    ("sum", add("x", "y"), (1, 24, 56, 56), (), (0, 24), (5, 6), 114),
    ("global pool", helper.make_node("GlobalAveragePool", ["x"], ["y"], "y"), (1, 1280, 7, 7), (), (0, 1280), (0, 1), 2240),
)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case[0])
def test_a_command_takes_what_the_rtl_took(case: tuple[str, onnx.NodeProto, Shape, Shape, tuple[int, int], tuple[int, int], int]) -> None:
    _, node, x, w, channels, rows, cycles = case
    flow = network(node, x=x, **({"w": w} if w else {}))
    width = flow.maps[flow.results[0][0]].shape[3]
    step = Compute("y", (((0, 1), channels, rows, (0, width)),), (0,))
    command = Accelerator(flow, chip("accelerator_256k.yaml", None, None)).command(step)
    assert command.cycles + command.fill == pytest.approx(cycles, rel=0.05)
