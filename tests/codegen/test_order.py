"""Outputs with equal operands are equal, bit for bit, wherever they lie: in a main panel or behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.codegen.random_networks import RUNS_HERE
from tests.codegen.side_by_side import Operators, compiled, graph_of, plan_of

# channels: all residues of panels of 4 vectors in some of their multiples, few of them by default
FEW = (1, 7, 15, 23, 40, 41, 77, 1000)
MANY = (*range(1, 130), 161, 191, 200, 257, 1000)
FUNCTIONS = "Sigmoid Tanh Erf Exp Gelu HardSwish Mish Softplus Sqrt Elu Softsign".split()


def products(widths: tuple[int, ...], depth: int, rows: int) -> Operators:
    """Rows of equal numbers times equal weights."""
    net = Operators()
    x = net.given(np.full((rows, depth), 0.3, np.float32))
    for width in widths:
        net.put("Gemm", x, net.fixed(np.full((depth, width), 0.1)), net.fixed(np.full(width, 0.7)))
    return net


def products_of_maps(widths: tuple[int, ...]) -> Operators:
    """The same, of two maps."""
    net = Operators()
    for width in widths:
        net.put("MatMul", np.full((2, width, 37), 0.3, np.float32), np.full((2, 37, 21), 0.1, np.float32))
        net.put("MatMul", np.full((2, 5, 37), 0.3, np.float32), np.full((2, 37, width), 0.1, np.float32))
    return net


def windows(widths: tuple[int, ...]) -> Operators:
    """Convolutions and pools without padding, of maps that are the same everywhere."""
    net = Operators()
    for width in widths:
        image = np.full((1, width, 5, 8), 0.3, np.float32)
        net.put("Conv", np.full((1, 9, 5, 8), 0.3, np.float32), net.fixed(np.full((width, 9, 3, 3), 0.1)))
        net.put("Conv", image, net.fixed(np.full((10, width, 1, 1), 0.1)))
        if width > 1:
            net.put("Conv", image, net.fixed(np.full((width, 1, 3, 3), 0.1)), group=width)
        net.put("AveragePool", image, kernel_shape=[3, 3])
        net.put("GlobalAveragePool", image)
        net.put("ReduceMean", image, net.fixed([1], "int64"))
        net.put("ConvTranspose", image, net.fixed(np.full((width, 3, 1, 1), 0.1)))
    return net


def rows(widths: tuple[int, ...]) -> Operators:
    """What goes along rows, and functions of single elements."""
    net = Operators()
    for width in widths:
        x = net.given(np.full((3, width), 0.3, np.float32))
        for kind in FUNCTIONS:
            net.put(kind, x)
        net.put("Softmax", x)
        net.put("ReduceMean", x, net.fixed([1], "int64"))
        net.put("ReduceSum", x, net.fixed([1], "int64"))
        net.put("ReduceL2", x, net.fixed([0], "int64"))
    return net


def check(nets: list[Operators], folder: Path, targets: list[str]) -> None:
    """Checks that all elements of every output are the same."""
    faults: list[str] = []
    graphs = [graph_of(net) for net in nets]
    given = [(plan_of(graph), graph, net.inputs) for graph, net in zip(graphs, nets, strict=True)]
    for outputs in compiled(given, folder, targets, "-O2"):
        for name, values in outputs.items():
            if len(kinds := np.unique(values)) > 1:
                faults.append(f"{name} {list(values.shape)}: {kinds.tolist()[:4]}")
    assert not faults, "\n".join(faults)


def test_equal_operands_give_equal_outputs_in_panels_and_behind_them(tmp_path: Path) -> None:
    few = FEW[1::4]
    nets = [products(FEW, 300, 1), products(few, 37, 5), products_of_maps(few), windows(few), rows(few)]
    check(nets, tmp_path, RUNS_HERE[-1:])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_equal_operands_give_equal_outputs_whatever_is_left_behind_panels(part: int, tmp_path: Path) -> None:
    widths = MANY[part::8]
    nets = [products(widths, depth, rows) for depth in (3, 37, 300) for rows in (1, 2, 13)]
    for first in range(0, len(widths), 8):
        some = widths[first : first + 8]
        nets += [products_of_maps(some), windows(some), rows(some)]
    check(nets, tmp_path, [*dict.fromkeys(RUNS_HERE)])
