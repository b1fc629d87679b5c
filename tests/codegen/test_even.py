"""Loops over elements at even distances, and functions of floats without branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from lfopt.ir import Hardware
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts
from tests.codegen.many import Case, build, run
from tests.codegen.random_networks import RUNS_HERE
from tests.codegen.side_by_side import Operators, compiled, graph_of, plan_of
from tests.random_plans import planned

Function = Callable[[np.ndarray], np.ndarray]
FUNCTIONS: Mapping[str, tuple[Function, float, float]] = {  # between these operands
    "Acos": (np.arccos, -1.5, 1.5),
    "Acosh": (np.arccosh, 0.5, 3e38),
    "Asin": (np.arcsin, -1.5, 1.5),
    "Asinh": (np.arcsinh, -3e38, 3e38),
    "Atan": (np.arctan, -3e38, 3e38),
    "Atanh": (np.arctanh, -1.5, 1.5),
    "Cos": (np.cos, -3e38, 3e38),
    "Cosh": (np.cosh, -200, 200),
    "Elu": (lambda x: np.where(x < 0, np.expm1(x), x), -200, 200),
    "Log": (np.log, -2, 3e38),
    "Sin": (np.sin, -3e38, 3e38),
    "Sinh": (np.sinh, -200, 200),
    "Tan": (np.tan, -3e38, 3e38),
}
ODD = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-45, -1e-45, 1e-30, 1e6, -1e6, 1.0000001e6, np.inf, -np.inf, np.nan]
MOST_ULPS = 1  # of float32


def operands(low: float, high: float, count: int) -> np.ndarray:
    """Odd values, and others of every magnitude and near one another."""
    rng = np.random.default_rng(int(high))
    wide = np.exp(rng.uniform(np.log(1e-40), np.log(high), count)) * rng.choice([-1, 1], count)
    near = rng.uniform(max(low, -4), min(high, 4), count)
    values = np.concatenate([ODD, wide, near]).astype(np.float32)
    return np.where((values >= low) | np.isin(values, ODD) | np.isnan(values), values, -values)


@pytest.mark.parametrize("count", [3000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_functions_are_rounded_once(count: int, tmp_path: Path) -> None:
    net = Operators()
    for kind, (_, low, high) in FUNCTIONS.items():
        net.put(kind, operands(low, high, count))
    graph = graph_of(net)
    for outputs in compiled(
        [(plan_of(graph), graph, net.inputs)], tmp_path, [*dict.fromkeys(RUNS_HERE)], "-O2"
    ):
        pairs = zip(outputs.values(), FUNCTIONS.items(), net.inputs.values(), strict=True)
        for result, (kind, (function, _, _)), x in pairs:
            with np.errstate(all="ignore"):
                wanted = function(x.astype(np.float64)).astype(np.float32)
                off = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
                wrong = ~(off <= MOST_ULPS * np.spacing(np.abs(wanted))) & (result != wanted)
            wrong &= ~(np.isnan(result) & np.isnan(wanted))
            assert not wrong.any(), (kind, x[wrong][:5], result[wrong][:5], wanted[wrong][:5])


def moves(rng: np.random.Generator) -> Operators:
    """What copies, pads and turns elements, in shapes around blocks of 16."""
    net = Operators()

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    for rows, columns in ((16, 16), (17, 40), (33, 31), (8, 100), (7, 64), (1, 50)):
        net.put("Transpose", drawn(rows, columns), perm=[1, 0])
        net.put("Transpose", drawn(2, rows, 3, columns), perm=[0, 3, 2, 1])
        net.put("Transpose", rng.integers(0, 99, (rows, 2, columns)), perm=[2, 1, 0])
        net.put("Tile", drawn(1, rows, columns), net.fixed([2, 1, 3], "int64"))
        net.put("Concat", drawn(2, rows, columns), drawn(2, rows, 5), axis=2)
        net.put("Slice", drawn(rows, columns), *(net.fixed([v], "int64") for v in (columns - 1, -99, 1, -1)))
        net.put("Expand", drawn(1, columns), net.fixed([rows, columns], "int64"))
        net.put("Gather", drawn(3, rows, columns), net.fixed([2, 0, -1], "int64"), axis=0)
        net.put("CumSum", drawn(rows, columns), net.fixed(0, "int64"))
        net.put("ReduceMax", drawn(2, rows, columns), net.fixed([1], "int64"))
        net.put("ReduceSum", drawn(2, rows, columns), net.fixed([0, 2], "int64"), keepdims=0)
        net.put("ArgMax", drawn(rows, columns), axis=0)
        net.put("ArgMin", drawn(rows, columns), axis=1, keepdims=0)
        net.put("Softmax", drawn(2, rows, columns), axis=1)
        net.put("Hardmax", drawn(rows, columns), axis=1)
        net.put("TopK", drawn(2, columns), net.fixed([min(columns, 9)], "int64"), outputs=2)
        net.put("Add", drawn(2, rows, columns), drawn(rows, 1))
        net.put("InstanceNormalization", drawn(2, rows, 3, columns), *(net.fixed(drawn(rows)) for _ in "ab"))
    for mode in ("reflect", "edge", "wrap"):
        net.put("Pad", drawn(1, 2, 17, 9), net.fixed([0, 0, 3, 2, 0, 0, 1, 4], "int64"), mode=mode)
    for mode in ("DCR", "CRD"):
        net.put("DepthToSpace", drawn(2, 36, 5, 17), blocksize=3, mode=mode)
    net.put("SpaceToDepth", drawn(2, 4, 6, 32), blocksize=2)
    net.put(
        "ConvTranspose", drawn(1, 5, 14, 19), net.fixed(drawn(5, 41, 3, 4)), strides=[2, 3], pads=[1, 2, 0, 1]
    )
    net.put("Einsum", drawn(7, 9, 5), drawn(7, 21, 5), equation="abc,adc->abd")
    return net


def folds(rng: np.random.Generator) -> Operators:
    """What folds elements along axes, whole vectors of them and parts, odd values among them."""
    net = Operators()

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    for rows, columns in ((17, 40), (1, 50)):
        net.put("CumSum", drawn(2, rows, columns), net.fixed(1, "int64"), exclusive=1, reverse=1)
        net.put("CumSum", rng.integers(-9, 9, (2, columns, rows)), net.fixed(1, "int64"), exclusive=1)
        net.put("CumSum", drawn(columns, 2, 5), net.fixed(0, "int64"), reverse=1)
        odd = drawn(rows, columns)
        odd[0, columns // 3] = np.nan
        odd[rows // 2, columns // 2] = np.inf
        odd[-1] = -np.inf
        net.put("Hardmax", odd)
        for kind in ("ReduceMax", "ReduceMin", "ReduceSum"):
            net.put(kind, odd, net.fixed([-1], "int64"))
        net.put("ReduceL2", drawn(rows, columns), net.fixed([-1], "int64"), keepdims=0)
        outlier = 50 + drawn(2, 6, rows, columns)
        outlier[0, 3, 0, 0] = -2e3
        net.put("InstanceNormalization", outlier, *(net.fixed(drawn(6)) for _ in "ab"))
        net.put("MeanVarianceNormalization", outlier, axes=[0, 2, 3])
        net.put("LayerNormalization", outlier, *(net.fixed(drawn(rows, columns)) for _ in "ab"), axis=2)
        net.put("MaxPool", np.where(np.isinf(odd), 7, odd)[None], kernel_shape=[3], strides=[2], pads=[1, 1])
    for extents in ((101,), (11, 67), (5, 7, 40)):
        rank = len(extents)
        window: dict[str, Any] = {"kernel_shape": [3] * rank, "pads": [1] * 2 * rank}
        x = drawn(1, 3, *extents)
        net.put("MaxPool", np.where(x > 2, np.nan, x), strides=[2] * rank, **window)
        net.put("MaxPool", x, dilations=[2] * rank, ceil_mode=1, **window)
        net.put("AveragePool", x, strides=[3] * rank, ceil_mode=1, count_include_pad=rank % 2, **window)
        net.put("LpPool", x, strides=[2] * rank, **window)
    net.put("MaxPool", rng.integers(-128, 127, (2, 3, 9, 50)).astype(np.int8), kernel_shape=[2, 3])
    for read, outputs, groups, offsets in ((5, 21, 1, 1), (12, 66, 3, 2)):
        for columns in (1, 13):
            operands = [
                drawn(2, read, 9, columns),
                net.fixed(drawn(outputs, read // groups, 3, 2)),
                2 * drawn(2, 12 * offsets, 9, columns),
                net.fixed(drawn(outputs)),
                drawn(2, 6 * offsets, 9, columns),
            ]
            window = {"pads": [1, 1, 1, 0], "kernel_shape": [3, 2]}
            net.put("DeformConv", *operands, group=groups, offset_group=offsets, **window)
    for extents, kernel, pad in (((37,), 60, 30), ((23, 1), 9, 4), ((5, 9), 3, 1), ((6,), 9, 7)):
        rest = [1] * (len(extents) - 1) if extents[-1] == 1 else [kernel] * (len(extents) - 1)
        pads = [pad, *(pad if k > 1 else 0 for k in rest)]
        for stride in (1, 2)[: len(extents)]:
            weights = net.fixed(drawn(68, 3, kernel, *rest))
            net.put("Conv", drawn(2, 12, *extents), weights, group=4, pads=pads * 2, strides=[stride, *rest])
    return net


def test_rows_that_one_of_two_results_lacks_are_not_made(tmp_path: Path) -> None:
    net = Operators()
    x = net.given(np.arange(120, dtype=np.float32).reshape(1, 4, 6, 5) - 60)
    net.nodes += [
        helper.make_node("Relu", [x], ["above"]),
        helper.make_node("Split", ["above", net.fixed([4, 2], "int64")], ["most", "rest"], axis=2),
        helper.make_node("Neg", ["most"], ["y0"]),
        helper.make_node("Neg", ["rest"], ["y1"]),
    ]
    net.outputs += ["y0", "y1"]
    graph = graph_of(net)
    costs = GroupCosts.of(graph, Hardware(1 << 12, element_bytes=4), scheme="lbdf")
    plan = planned(costs, ((1 << len(graph.operators)) - 1,))
    (outputs,) = compiled([(plan, graph, net.inputs)], tmp_path, RUNS_HERE[-1:], "-O2")
    for name, wanted in reference(graph, net.inputs).items():
        assert np.array_equal(outputs[name], wanted), name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("operators", [moves, folds])
def test_elements_at_even_distances(
    threads: int, operators: Callable[[np.random.Generator], Operators], tmp_path: Path
) -> None:
    net = operators(np.random.default_rng(threads))
    graph = graph_of(net)
    plan, wanted = plan_of(graph), reference(graph, net.inputs)
    targets = [*dict.fromkeys(RUNS_HERE)][1 - threads :]  # several threads: the best of this machine
    cases = [Case(k, graph, plan, target, threads, 0, net.inputs) for k, target in enumerate(targets)]
    program = build([(case, case.printed(threads)) for case in cases], tmp_path / "many", ("-O2", "-w"), 2)
    outputs, complaints = run(program)
    assert not program.refused and not complaints
    for case in cases:
        for name, result in zip(graph.outputs, outputs[f"seed{case.seed}_threads{threads}"], strict=True):
            exact = result.dtype.kind != "f" or name.split("_")[0] in ("Transpose", "Tile", "Pad", "Slice")
            atol, rtol = (0, 0) if exact else (2e-5, 1e-6)
            close = np.allclose(result, wanted[name], atol=atol, rtol=rtol, equal_nan=True)
            assert close, (case.target, name)
