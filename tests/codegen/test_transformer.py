"""Attention, layer normalisation and GELU as C, fused or in pieces, give the reference's results."""

from __future__ import annotations

import subprocess
from math import prod
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from codegen.build import find_compiler, write_source
from codegen.emit import emit_c
from codegen.layout import layouts
from codegen.source import CSource
from codegen.target import native
from lfopt.app.plans import make_draft
from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow
from lfopt.ops.parameters import permutation
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts
from search.result import Result
from tests.attention_models import Form
from tests.attention_models import attention as one_attention
from tests.codegen.checked import run_checked
from tests.codegen.transformers import KIB, SCHEMES, Net, drawn_inputs, planned
from tests.codegen.twice import compiled

TOLERANCE = 2e-5  # of the largest output
RUNS_HERE = [
    "c99",
    *(["avx2"] if native() in ("avx2", "avx512") else []),
    *([native()] if native() not in ("c99", "avx2") else []),
]
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-Wno-unused-function", "-Wno-sign-conversion"]


def attention(batch: int, length: int, heads: int, depth: int, mask: str, *, scaled: bool = True) -> Graph:
    """Attention as exporters write it: rows without any score are guarded, the factor is split in two."""
    width = heads * depth
    inputs: dict[str, tuple[int, ...]] = {"x": (batch, length, width)}
    if mask == "input":
        inputs["m"] = (1, 1, length, length)
    net = Net(**inputs)
    queries, keys, values = (
        net.add(
            "Transpose",
            net.shaped(net.linear("x", width, width), batch, length, heads, depth),
            perm=[0, 2, 1, 3],
        )
        for _ in range(3)
    )
    flat = net.shaped(keys, batch * heads, length, depth)
    turned = net.shaped(net.add("Transpose", flat, perm=[0, 2, 1]), batch, heads, depth, length)
    if scaled:
        factor = net.constant(depth**-0.25)
        queries, turned = net.add("Mul", queries, factor), net.add("Mul", turned, factor)
    scores = net.add("MatMul", queries, turned)
    if mask == "constant":
        scores = net.add(
            "Add", scores, net.constant(np.triu(np.full((1, 1, length, length), -1e9, np.float32), 1))
        )
    elif mask:
        scores = net.add("Add", scores, "m")
    shares = net.add("Softmax", scores, axis=-1)
    shares = net.add("Where", net.add("IsNaN", shares), net.constant(0.0), shares)
    mixed = net.add("Transpose", net.add("MatMul", shares, values), perm=[0, 2, 1, 3])
    return net.graph(net.add("Add", net.linear(net.shaped(mixed, batch, length, width), width, width), "x"))


def agrees(graph: Graph, folder: Path, scheme: str, target: str = "native", threads: int = 1) -> CSource:
    source = emit_c(planned(graph, scheme), graph, target, threads=threads)
    compares(source, graph, folder)
    return source


def compares(source: CSource, graph: Graph, folder: Path) -> dict[str, np.ndarray]:
    inputs = drawn_inputs(graph)
    outputs, expected = compiled(source, folder).run(inputs), reference(graph, inputs)
    for name, values in outputs.items():
        scale = max(float(np.abs(expected[name]).max()), 1e-3)
        assert float(np.abs(values - expected[name]).max()) <= TOLERANCE * scale, name
    return outputs


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("batch", "length", "heads", "depth", "mask"),
    [
        (1, 16, 4, 16, "constant"),
        (1, 13, 3, 7, "input"),
        (2, 9, 2, 5, ""),
        (1, 20, 1, 26, "constant"),
        (1, 1, 2, 8, "input"),
    ],
)
def test_attention(
    batch: int, length: int, heads: int, depth: int, mask: str, scheme: str, tmp_path: Path
) -> None:
    agrees(attention(batch, length, heads, depth, mask), tmp_path, scheme)


FORMS = [
    Form(queries=520, keys=520, size=20, width=20, mask="causal", joined=True),
    Form(heads=8, queries=261, keys=137, size=5, width=6, mask="map", scaled="both"),
    Form(heads=3, queries=49, keys=49, size=4, width=4, mask="per window", windows=32),
    Form(
        heads=16,
        queries=131,
        keys=131,
        size=7,
        width=3,
        mask="where",
        guarded=True,
        merged=True,
        scaled="none",
    ),
    Form(queries=200, keys=200, size=9, width=5, mask="window", first=True),
    Form(heads=6, queries=150, keys=290, size=16, width=16, mask="data", guarded=True),
]


@pytest.mark.parametrize(("number", "form"), enumerate(FORMS))
def test_no_scores_are_stored(number: int, form: Form, tmp_path: Path) -> None:
    """On one target each."""
    graph, target = one_attention(form), RUNS_HERE[number % len(RUNS_HERE)]
    source = agrees(graph, tmp_path, "all", target, threads=1 + number % 2)
    scores = [call.result for call in Dataflow.of(graph).calls if call.operator.kind == "Softmax"]
    assert source.context_bytes < sum(4 * prod(shape) for shape in scores)


@pytest.mark.parametrize("target", RUNS_HERE)
def test_scores_may_grow_from_block_to_block(target: str, tmp_path: Path) -> None:
    """Later keys far above the largest score so far rescale; NaN spreads as in the reference."""
    graph = one_attention(Form(queries=520, keys=270, size=8, width=8, first=True))
    inputs = drawn_inputs(graph)
    inputs["k"] *= np.linspace(0, 60, 270, dtype=np.float32) ** 2 / 60
    broken = {name: values.copy() for name, values in inputs.items()}
    broken["k"][0, 0, 0, 200], broken["k"][0, 1, 3, 260] = np.nan, np.inf
    model = compiled(emit_c(planned(graph, "all"), graph, target), tmp_path)
    for given in (inputs, broken):
        with np.errstate(invalid="ignore"):
            expected = reference(graph, given)
        for name, output in model.run(given).items():
            assert np.array_equal(np.isnan(output), np.isnan(expected[name]))
            assert np.nanmax(np.abs(output - expected[name])) <= TOLERANCE * np.nanmax(np.abs(expected[name]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_threads_give_the_same_bits(heads: int, scheme: str, tmp_path: Path) -> None:
    graph = attention(1, 19, heads, 10, "constant")
    plan = planned(graph, scheme)
    one, two = (
        compares(emit_c(plan, graph, threads=threads), graph, tmp_path / str(threads)) for threads in (1, 2)
    )
    for name, values in one.items():
        assert np.array_equal(values.view(np.uint32), two[name].view(np.uint32))


def test_keys_are_never_turned() -> None:
    """Where no rings are, a Transpose whose readers can read through steps leaves its operand where it is."""
    flow = Dataflow.of(attention(1, 16, 4, 8, ""))
    free = {m for m, producer in enumerate(flow.producer) if producer >= 0}
    laid_out = layouts(flow, free)
    for i, operator in enumerate(flow.operators):
        if operator.kind == "Transpose":
            (read,), (written,) = flow.operands[i], flow.results[i]
            tensor = flow.calls[i].tensors[0]
            assert tensor is not None
            seen = laid_out[read.map].seen(tensor)
            assert seen is not None
            before = [(seen.shape[axis], seen.strides[axis]) for axis in permutation(flow.calls[i])]
            after = zip(laid_out[written].shape, laid_out[written].strides, strict=True)
            assert [item for item in before if item[0] > 1] == [item for item in after if item[0] > 1]


def test_rows_are_read_from_what_a_transpose_left_where_it_was(tmp_path: Path) -> None:
    """By a group with rings, which sees the result of a Transpose of whole maps in ONNX's order."""
    net = Net(x=(1, 3, 400, 8))
    turned = net.shaped(net.add("Transpose", net.add("Relu", "x"), perm=[0, 2, 1, 3]), 1, 400, 24)
    graph = net.graph(net.linear(net.add("Relu", net.linear(turned, 24, 40)), 40, 24))
    costs = GroupCosts.of(graph, Hardware(48 * KIB, element_bytes=4), scheme="lbdf")
    plan = make_draft(graph, costs, Result("by hand", (0b1, 0b10, 0b1111100), 0, 0, 0, 0, 0.0), 0).finished()
    assert [group.mode for group in plan.groups] == ["lbdf", "tiled", "lbdf"]
    source = emit_c(plan, graph)
    assert not source.loops
    compares(source, graph, tmp_path)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [16, 27, 312])
def test_layer_normalization_in_one_and_in_pieces(width: int, scheme: str, tmp_path: Path) -> None:
    net = Net(x=(2, 5, width))
    last = net.constant(np.array([-1], np.int64))
    one = net.add("LayerNormalization", "x", net.drawn(width), net.drawn(width), axis=-1, epsilon=1e-5)
    away = net.add("Sub", one, net.add("ReduceMean", one, last))
    spread = net.add("ReduceMean", net.add("Pow", away, net.constant(2.0)), last)
    even = net.add("Div", away, net.add("Sqrt", net.add("Add", spread, net.constant(1e-6))))
    pieces = net.add("Add", net.add("Mul", even, net.drawn(width)), net.drawn(width))
    agrees(net.graph(net.add("Mul", pieces, net.add("ReduceSum", one, last, keepdims=1))), tmp_path, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_form_of_gelu(scheme: str, tmp_path: Path) -> None:
    net = Net(x=(1, 6, 20))
    x = net.linear("x", 20, 35)
    half, one = net.constant(0.5), net.constant(1.0)
    by_erf = net.add(
        "Mul",
        x,
        net.add("Mul", half, net.add("Add", net.add("Erf", net.add("Div", x, net.constant(2**0.5))), one)),
    )
    cube = net.add("Mul", net.add("Pow", x, net.constant(3.0)), net.constant(0.044715))
    inner = net.add("Tanh", net.add("Mul", net.add("Add", x, cube), net.constant((2 / np.pi) ** 0.5)))
    by_tanh = net.add("Mul", net.add("Mul", x, half), net.add("Add", inner, one))
    agrees(net.graph(net.add("Gelu", by_erf), net.add("Gelu", by_tanh, approximate="tanh")), tmp_path, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("batch", [1, 3])
def test_embeddings_are_gathered(batch: int, scheme: str, tmp_path: Path) -> None:
    net = Net(ids=(batch, 11))
    words = net.add("Gather", net.drawn(9, 24), "ids", axis=0)
    graph = net.graph(net.linear(net.add("Add", words, net.drawn(1, 11, 24)), 24, 24))
    inputs = {"ids": np.random.default_rng(0).integers(0, 9, (batch, 11))}
    outputs = compiled(emit_c(planned(graph, scheme), graph), tmp_path).run(inputs)
    for name, expected in reference(graph, inputs).items():
        assert np.abs(outputs[name] - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_product_for_queries_keys_and_values_that_is_split(scheme: str, tmp_path: Path) -> None:
    net = Net(x=(1, 12, 24))
    whole = net.shaped(net.add("Gemm", net.shaped("x", 12, 24), net.drawn(24, 72), net.drawn(72)), 1, 12, 72)
    names = ["q", "k", "v"]
    net.nodes.append(helper.make_node("Split", [whole], names, name="split", axis=2, num_outputs=3))
    queries, keys, values = (
        net.add("Transpose", net.shaped(name, 1, 12, 3, 8), perm=[0, 2, 1, 3]) for name in names
    )
    shares = net.add(
        "Softmax", net.add("MatMul", queries, net.add("Transpose", keys, perm=[0, 1, 3, 2])), axis=-1
    )
    mixed = net.shaped(net.add("Transpose", net.add("MatMul", shares, values), perm=[0, 2, 1, 3]), 12, 24)
    agrees(
        net.graph(
            net.add(
                "Add", net.shaped(net.add("Gemm", mixed, net.drawn(24, 24), net.drawn(24)), 1, 12, 24), "x"
            )
        ),
        tmp_path,
        scheme,
    )


@pytest.mark.parametrize(
    "shapes",
    [
        ((7, 5), (5, 9)),
        ((3, 7, 5), (3, 5, 18)),
        ((2, 1, 4, 6), (3, 6, 5)),
        ((2, 3, 1, 8), (2, 3, 8, 33)),
        ((4, 6), (2, 6, 3)),
    ],
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_products_of_two_maps(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], scheme: str, tmp_path: Path
) -> None:
    net = Net(a=shapes[0], b=shapes[1])
    agrees(net.graph(net.add("MatMul", net.add("Relu", "a"), net.add("Relu", "b"))), tmp_path, scheme)


@pytest.mark.parametrize("target", RUNS_HERE)
@pytest.mark.parametrize("scheme", ["lbdf", "resident"])
def test_no_warnings(scheme: str, target: str, tmp_path: Path) -> None:
    graph = attention(1, 13, 3, 7, "constant")
    source = emit_c(planned(graph, scheme), graph, target)
    write_source(source, tmp_path)
    done = subprocess.run(
        [*find_compiler(), *source.flags, *STRICT, "-c", "model.c"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.sanitize
@pytest.mark.skipif(native() == "neon", reason="address sanitizer")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_touched_that_is_not_its_own(scheme: str, tmp_path: Path) -> None:
    graph = attention(1, 13, 3, 7, "constant")
    source = emit_c(planned(graph, scheme), graph)
    inputs = drawn_inputs(graph)
    (expected,) = reference(graph, inputs).values()
    (output,) = run_checked(source, inputs, graph.outputs, tmp_path).values()
    assert np.abs(output - expected).max() <= TOLERANCE * np.abs(expected).max()
