"""Winograd's algorithm gives a direct convolution's results: sizes, pads, epilogues, rings, targets."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen.build import find_compiler
from codegen.elements import FLOAT32
from codegen.emit import emit_c
from codegen.epilogue import epilogue
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.window import KernelWindow
from codegen.kernels.winograd import POINTS, matrices, winograd, worthwhile
from codegen.layout import Image, MapLayout, layouts
from codegen.target import TARGETS, target
from codegen.writer import CModule
from lfopt.frontend import from_model
from lfopt.ops import Dataflow
from tests.codegen.random_networks import RUNS_HERE, agrees
from tests.codegen.test_aliasing import Image as Net
from tests.codegen.transformers import planned

TOLERANCE = {2: 1e-6, 4: 4e-6}  # of the largest result
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")


class Case(NamedTuple):
    """A convolution of kernel 3 x 3 and stride 1, and what follows it."""

    read: Image
    channels: int
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)  # above, left, below, right
    # kinds of operators; Add and Mul take a map as large as the result, and one value a channel
    epilogue: tuple[str, ...] = ()

    @property
    def output(self) -> Image:
        above, left, below, right = self.pads
        return Image(self.read.rows + above + below - 2, self.read.pixels + left + right - 2, self.channels)


class Arrays(NamedTuple):
    x: np.ndarray  # (rows, pixels, channels)
    other: np.ndarray  # (rows, pixels, channels) of the result
    weights: np.ndarray  # (output channels, input channels, 3, 3)
    bias: np.ndarray
    scale: np.ndarray  # (output channels,)


def arrays(case: Case, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    inputs = case.read.channels
    shapes = [
        case.read[:3],
        case.output[:3],
        (case.channels, inputs, 3, 3),
        (case.channels,),
        (case.channels,),
    ]
    drawn = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    drawn[2] /= np.float32(np.sqrt(9 * inputs))
    return Arrays(*drawn)


def reference(case: Case, given: Arrays) -> np.ndarray:
    """(rows, pixels, channels), in float64."""
    x, other, weights, bias, scale = (values.astype(np.float64) for values in given)
    above, left, below, right = case.pads
    padded = np.pad(x, ((above, below), (left, right), (0, 0)))
    rows, pixels, _ = case.output[:3]
    y = bias + sum(
        padded[i : i + rows, j : j + pixels] @ weights[:, :, i, j].T for i in range(3) for j in range(3)
    )
    for kind in case.epilogue:
        y = {"Add": y + other, "Mul": y * scale, "Relu": np.maximum(y, 0), "Sigmoid": 1 / (1 + np.exp(-y))}[
            kind
        ]
    return y


def unit_of(
    case: Case, given: Arrays, name: str, threads: int, slots: int
) -> tuple[FusedKernel, KernelWindow]:
    """What the kernel is printed from; the map it reads is a ring of so many rows."""
    planes = {"x": case.read, "y": case.output, "other": case.output}
    shapes = {key: [1, image.channels, image.rows, image.pixels] for key, image in planes.items()}
    last = [f"t{k}" for k in range(len(case.epilogue))] + ["y"]
    nodes = [
        helper.make_node(
            "Conv", ["x", "weights", "bias"], [last[0]], name="conv", kernel_shape=[3, 3], pads=case.pads
        )
    ]
    for k, kind in enumerate(case.epilogue):
        nodes.append(
            helper.make_node(
                kind, [last[k], *{"Add": ["other"], "Mul": ["scale"]}.get(kind, [])], [last[k + 1]], name=kind
            )
        )
    constants = {"weights": given.weights, "bias": given.bias, "scale": given.scale[:, None, None]}
    infos = [
        helper.make_tensor_value_info(key, TensorProto.FLOAT, shapes[key]) for key in ("x", "other", "y")
    ]
    tensors = [numpy_helper.from_array(values, key) for key, values in constants.items()]
    graph = helper.make_graph(nodes, "net", infos[:2], infos[2:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    flow = Dataflow.of(from_model(onnx.shape_inference.infer_shapes(model)))
    lie, maps = layouts(flow), {m.name: k for k, m in enumerate(flow.maps)}
    result = flow.results[len(case.epilogue)][0]
    chain = epilogue(
        flow, lie, range(1, len(flow.operators)), flow.results[0][0], lie[flow.results[0][0]], whole=True
    )

    def address(m: int, row: str) -> str:
        if m == maps["x"]:
            return f"m->arena + {row} % {slots} * {case.read.row}"
        return f"m->maps + {0 if m == result else case.output.elements} + {row} * {case.output.row}"

    def lies(m: int) -> MapLayout:
        return lie[m]

    chosen = replace(target(name), threads=threads)
    fused = FusedKernel(
        "unit",
        flow,
        0,
        chain,
        result,
        lies,
        lambda m: FLOAT32,
        address,
        dense=lambda m: True,
        target=chosen,
        source=result,
        whole=True,
        once=True,
    )
    return fused, KernelWindow(maps["x"], (3, 3), pads=case.pads[:2])


def run(
    case: Case,
    size: int,
    folder: Path,
    name: str = "native",
    *,
    rows: int = 0,
    threads: int = 1,
    checks: tuple[str, ...] = (),
) -> float:
    """The kernel's error, as a part of the largest result.

    `rows`: what one call makes; the map that it reads is then a ring of just enough rows.
    """
    given, step = arrays(case), rows or case.output.rows
    slots = min(rows + 2, case.read.rows) if rows else case.read.rows
    fused, window = unit_of(case, given, name, threads, slots)
    out = CModule()
    out(f"#define LANES {fused.target.lanes[0]}", f"#define THREADS {threads}\n#define CREW 1")
    for header in ("prelude.h", "crew.h") if threads > 1 else ("prelude.h",):
        out.all(files("codegen").joinpath(header).read_text(encoding="utf-8").splitlines())
    winograd(out, fused, window, given.weights, given.bias, size, rows)
    head = "void run(const float *x, float *maps, float *ring, const float *weights, float *scratch)"
    out(f"{head};")
    with out.block(head), out.block(f"for (int me = 0; me < {threads}; me++)"):
        out(
            "const context own = {.weights = weights, .maps = maps, "
            ".arena = ring, .scratch = scratch, .me = me}, *m = &own;",
            "int have = 0;",
        )
        with out.block(f"for (int r = 0; r < {case.output.rows}; r += {step})"):
            copy = (
                f"memcpy(ring + have % {slots} * {case.read.row}, x + have * {case.read.row}, "
                f"{case.read.row} * sizeof *x)"
            )
            out(
                f"for (; have < r + {step} + 2 - {case.pads[0]} && have < {case.read.rows}; have++) {copy};",
                "unit(m, r);",
            )
    (folder / "unit.c").write_text(out.text(), encoding="utf-8")
    base = [*find_compiler(), *fused.target.flags, *STRICT, *checks, "unit.c", "-lm"]
    subprocess.run([*base, "-shared", "-fPIC", "-o", f"unit{threads}.so"], cwd=folder, check=True)
    ring = np.full(slots * case.read.row, np.nan, np.float32)
    maps = np.concatenate([np.full(case.output.elements, np.nan, np.float32), given.other.reshape(-1)])
    scratch = np.full(out.scratch_floats + 16, np.nan, np.float32)
    scratch[out.scratch_floats :] = 7.0
    weights = np.frombuffer(out.blob.bytes(), np.float32).copy()
    ctypes.CDLL(str(folder / f"unit{threads}.so")).run(
        *(ctypes.c_void_p(values.ctypes.data) for values in (given.x, maps, ring, weights, scratch))
    )
    assert (scratch[out.scratch_floats :] == 7.0).all(), "the kernel wrote outside its scratch memory"
    assert np.array_equal(maps[case.output.elements :], given.other.reshape(-1)), (
        "the kernel wrote outside its map"
    )
    expected = reference(case, given)
    return float(
        np.abs(maps[: case.output.elements].reshape(case.output[:3]) - expected).max()
        / np.abs(expected).max()
    )


# -- results -------------------------------------------------------------------------------------------------

MAPS = [(1, 1), (2, 3), (4, 4), (5, 17), (7, 7), (14, 9)]
CHANNELS = [(1, 3), (3, 17), (17, 1), (24, 24), (64, 64), (70, 40)]
PADS = [(1, 1, 1, 1), (0, 1, 1, 0), (1, 0, 0, 2), (2, 2, 2, 2), (0, 0, 0, 0), (1, 1, 0, 1)]


@pytest.mark.parametrize("size", POINTS)
@pytest.mark.parametrize("k", range(len(MAPS)))
def test_results_are_those_of_a_direct_convolution(size: int, k: int, tmp_path: Path) -> None:
    for j, (inputs, outputs) in enumerate(CHANNELS):
        case = Case(Image(*MAPS[k], inputs), outputs, PADS[(j + k) % len(PADS)])
        if min(case.output) > 0:
            name = RUNS_HERE[(j + k) % len(RUNS_HERE)]
            (folder := tmp_path / str(j)).mkdir()
            assert run(case, size, folder, name) <= TOLERANCE[size], (case, name)


@pytest.mark.parametrize("name", RUNS_HERE)
@pytest.mark.parametrize("size", POINTS)
def test_a_tail_follows(size: int, name: str, tmp_path: Path) -> None:
    case = Case(Image(6, 9, 24), 33, epilogue=("Mul", "Add", "Relu", "Sigmoid"))
    assert run(case, size, tmp_path, name) <= TOLERANCE[size]


@pytest.mark.parametrize(("size", "rows"), [(2, 2), (2, 4), (4, 4), (4, 8)])
@pytest.mark.parametrize("height", [1, 5, 11, 16])
def test_bands_of_rows_are_made_from_a_ring(size: int, rows: int, height: int, tmp_path: Path) -> None:
    case = Case(Image(height, 13, 20), 16, epilogue=("Add", "Relu"))
    assert run(case, size, tmp_path, rows=rows) <= TOLERANCE[size]


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize(
    "case", [Case(Image(9, 30, 32), 48), Case(Image(3, 3, 16), 16), Case(Image(13, 13, 24), 40)]
)
def test_threads_make_the_same_between_them(case: Case, threads: int, tmp_path: Path) -> None:
    alone, together = (run(case, 4, tmp_path, threads=n) for n in (1, threads))
    assert together == alone <= TOLERANCE[4]


@pytest.mark.parametrize("size", POINTS)
def test_deep_sums_stay_exact(size: int, tmp_path: Path) -> None:
    assert run(Case(Image(8, 8, 1024), 16), size, tmp_path) <= TOLERANCE[size]


@pytest.mark.sanitize
def test_nothing_is_undefined(tmp_path: Path) -> None:
    checks = (
        "-fsanitize=undefined",
        "-fno-sanitize=alignment",
        "-fno-sanitize-recover=all",
        "-Wno-maybe-uninitialized",
    )
    assert run(Case(Image(5, 9, 19), 20, (1, 2, 0, 1), ("Add",)), 4, tmp_path, checks=checks) <= TOLERANCE[4]


def test_tiles_of_4_are_as_exact_as_one_long_sum(tmp_path: Path) -> None:
    case = Case(Image(8, 8, 256), 64)
    given = arrays(case)
    taps = np.pad(given.x, ((1, 1), (1, 1), (0, 0)))
    long = np.zeros(case.output[:3], np.float32)
    for i, j, c in product(range(3), range(3), range(256)):
        long += taps[i : i + 8, j : j + 8, c, None] * given.weights[:, c, i, j]
    expected = reference(case, given)
    assert run(case, 4, tmp_path) <= 1.5 * np.abs(long + given.bias - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("size", POINTS)
def test_c99_takes_it_without_warnings(size: int, tmp_path: Path) -> None:
    assert (
        run(Case(Image(5, 6, 5), 3, epilogue=("Add",)), size, tmp_path, "c99", checks=("-Wpedantic",))
        <= TOLERANCE[size]
    )


# -- transforms and choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", POINTS)
def test_the_transforms_are_a_convolution(size: int) -> None:
    rng = np.random.default_rng(size)
    inward, weights, outward = matrices(size)
    for _ in range(20):
        x, kernel = rng.standard_normal(size + 2), rng.standard_normal(3)
        assert np.allclose(outward @ ((weights @ kernel) * (inward @ x)), np.correlate(x, kernel), atol=1e-12)


def test_it_is_chosen_where_channels_are_many() -> None:
    chosen = TARGETS["avx512"]
    for channels, extent in ((64, 56), (128, 28), (256, 56), (512, 28)):
        assert worthwhile(Image(extent, extent, channels), Image(extent, extent, channels), chosen) == 4
    for inputs, outputs, extent in product((1, 3), (16, 64), (1, 2)):
        assert worthwhile(Image(extent, extent, inputs), Image(extent, extent, outputs), chosen) == 0


def test_operands_of_every_pixel_and_constants_as_large_as_the_map(tmp_path: Path) -> None:
    net = Net(x=(1, 64, 34, 34), gate=(1, 1, 34, 34))
    y = net.add("Mul", net.conv("x", 64, 64, 3), "gate")
    y = net.add("Mul", net.add("Add", y, net.drawn(1, 64, 34, 34)), net.drawn(1, 1, 34, 34))
    graph = net.graph(y)
    source = emit_c(planned(graph, "resident"), graph)
    assert [
        len(one.function.operators) for one in source.decisions if one.kernel == "Winograd convolution"
    ] == [4]
    agrees(source, graph, tmp_path)
