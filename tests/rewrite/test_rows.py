"""Linear layers of every spelling work on maps [b, s, d], and compute what they did."""

import numpy as np
import pytest

from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from lfopt.rewrite.movement import VIEWS
from tests.rewrite.graphs import feeds_of, graph_of, ints, kinds

RNG = np.random.default_rng(0)
CONSTANTS = {
    "w": RNG.standard_normal((6, 8)).astype(np.float32),
    "v": RNG.standard_normal((6, 8)).astype(np.float32),  # of transB=1
    "b": RNG.standard_normal(8).astype(np.float32),
    "c": RNG.standard_normal(6).astype(np.float32),
    "row": RNG.standard_normal((1, 8)).astype(np.float32),
    "wide": RNG.standard_normal((1, 1, 1, 8)).astype(np.float32),
    "one": np.float32(1),
    "flat": ints(10, 6),
    "deep": ints(2, 5, 6),
    "last": ints(-1),
}
MLP = ("h = Gemm(x, w, b)", "a = Erf(h)", "g = Mul(h, a)", "y = Gemm(g, v, c) transB=1")
CASES = {  # lines, shape of x, kinds in order
    "Gemm between views": (
        (
            "f = Reshape(x, flat)",
            *(line.replace("(x", "(f").replace("y =", "o =") for line in MLP),
            "r = Reshape(o, deep)",
            "y = Add(r, x)",
        ),
        (2, 5, 6),
        ["MatMul", "Add", "Erf", "Mul", "MatMul", "Add", "Add"],
    ),
    "Gemm of a batch": (MLP, (7, 6), ["Reshape", "MatMul", "Add", "Erf", "Mul", "MatMul", "Add", "Reshape"]),
    "a bias with a row of its own": (
        ("y = Gemm(x, w, row)",),
        (4, 6),
        ["Reshape", "MatMul", "Add", "Reshape"],
    ),
    "channels last": (
        (
            "n = LayerNormalization(x, c) axis=3",
            "h = MatMul(n, w)",
            "s = Add(wide, h)",
            "p = Softmax(s)",
            "y = Mul(p, one)",
        ),
        (2, 3, 2, 6),
        ["Reshape", "LayerNormalization", "MatMul", "Add", "Softmax", "Mul", "Reshape"],
    ),
    "a norm spelled out": (
        (
            "q = Mul(x, x)",
            "m = ReduceMean(q, last)",
            "e = Add(m, one)",
            "r = Sqrt(e)",
            "d = Div(x, r)",
            "y = MatMul(d, w)",
        ),
        (1, 4, 3, 6),
        ["Reshape", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "MatMul", "Reshape"],
    ),
    "heads": (
        ("q = MatMul(x, w)", "t = Transpose(x) perm=[0,1,3,2]", "y = MatMul(t, q)"),
        (1, 2, 5, 6),
        ["MatMul", "Transpose", "MatMul"],
    ),
    "one vector": (("y = Gemm(x, w, b)",), (1, 6), ["Gemm"]),
    "a scaled product": (("y = Gemm(x, w, b) alpha=0.5",), (4, 6), ["Gemm"]),
}


@pytest.mark.parametrize("name", CASES)
def test_linear_layers_work_on_rows(name):
    lines, shape, wanted = CASES[name]
    used = {
        k: v
        for k, v in CONSTANTS.items()
        if any(
            word.strip(" ()") == k
            for line in lines
            for word in line.replace("(", ",").replace(")", ",").split(",")
        )
    }
    before = graph_of(*lines, inputs={"x": shape}, constants=used)
    after = simplify(before)
    assert kinds(after) == wanted
    assert after.outputs == before.outputs
    assert after.tensors["y"] == before.tensors["y"]
    assert all(
        len(after.shape(op.outputs[0])) == 3 for op in after.operators if op.kind not in VIEWS
    ) or wanted == kinds(before)
    given = feeds_of(before)
    np.testing.assert_allclose(
        reference(after, given)["y"], reference(before, given)["y"], rtol=1e-5, atol=1e-6
    )
    assert kinds(simplify(before, "none")) == kinds(before)


def test_one_matrix_is_turned_once():
    graph = graph_of(
        "h = Gemm(x, v) transB=1",
        "k = Gemm(x, v) transB=1",
        "y = Add(h, k)",
        inputs={"x": (4, 8)},
        constants={"v": CONSTANTS["v"]},
    )
    after = simplify(graph)
    assert len({op.inputs[1] for op in after.operators if op.kind == "MatMul"}) == 1
