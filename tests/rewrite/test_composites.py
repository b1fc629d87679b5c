"""Operators recognised from the pieces that exporters write."""

import numpy as np
import pytest

from tests.rewrite.graphs import graph_of, ints, kinds, rewritten

SHAPE = (2, 5, 8)
MEAN = ["m = ReduceMean(x, last) keepdims=1", "d = Sub(x, m)"]
SCALE = {
    "last": ints(-1),
    "e": 1e-5,
    "two": 2.0,
    "half": 0.5,
    "three": 3.0,
    "one": 1.0,
    "sixth": 1 / 6,
    "six": 6.0,
    "zero": 0.0,
    "s": np.linspace(0.5, 2, 8),
}
CUBE = ["q = Mul(p, cubic)", "r = Add(x, q)", "t = Mul(r, root)", "u = Tanh(t)", "v = Add(u, one)"]
PIECES = {
    "LayerNormalization, as PyTorch wrote it": (
        [
            *MEAN, "q = Pow(d, two)", "v = ReduceMean(q, last) keepdims=1", "w = Add(v, e)", "r = Sqrt(w)",
            "n = Div(d, r)", "t = Mul(n, s)", "y = Add(t, b)",
        ],
        ["LayerNormalization"],
    ),
    "LayerNormalization, mean taken twice": (
        [
            "k = ReduceMean(x, last) keepdims=1", "g = Sub(x, k)", *MEAN, "q = Mul(g, g)",
            "v = ReduceMean(q, last) keepdims=1", "w = Add(e, v)", "r = Sqrt(w)", "n = Div(d, r)",
            "t = Mul(s, n)", "y = Add(b, t)",
        ],
        ["LayerNormalization"],
    ),
    "LayerNormalization, by a reciprocal": (
        [
            *MEAN, "q = Mul(d, d)", "v = ReduceMean(q, last) keepdims=1", "w = Add(v, e)", "r = Sqrt(w)",
            "i = Reciprocal(r)", "j = Mul(i, s)", "t = Mul(d, j)", "y = Add(t, b)",
        ],
        ["LayerNormalization"],
    ),
    "LayerNormalization without a bias": (
        [
            *MEAN, "q = Pow(d, two)", "v = ReduceMean(q, last) keepdims=1", "w = Add(v, e)",
            "r = Pow(w, half)", "n = Div(d, r)", "y = Mul(n, s)",
        ],
        ["LayerNormalization"],
    ),
    "RMSNormalization, as LLaMA has it": (
        [
            "q = Pow(x, two)", "v = ReduceMean(q, last) keepdims=1", "w = Add(v, e)", "r = Sqrt(w)",
            "i = Div(one, r)", "n = Mul(x, i)", "y = Mul(s, n)",
        ],
        ["RMSNormalization"],
    ),
    "Softmax": (["q = Exp(x)", "t = ReduceSum(q, last) keepdims=1", "y = Div(q, t)"], ["Softmax"]),
    "Softmax moved by the largest": (
        [
            "m = ReduceMax(x, last) keepdims=1", "d = Sub(x, m)", "q = Exp(d)",
            "t = ReduceSum(q, last) keepdims=1", "y = Div(q, t)",
        ],
        ["Softmax"],
    ),
    "LogSoftmax": (["p = Softmax(x) axis=-1", "y = Log(p)"], ["LogSoftmax"]),
    "Softmax kept from what only a row of -inf makes": (
        [
            "h = MatMul(x, mat)", "o = Greater(x, zero)", "g = Where(o, zero, low)", "f = Add(h, g)",
            "p = Softmax(f) axis=-1", "n = IsNaN(p)", "y = Where(n, zero, p)",
        ],
        ["MatMul", "Greater", "Where", "Add", "Softmax"],
    ),
    "SiLU": (["p = Sigmoid(x)", "y = Mul(x, p)"], ["Swish"]),
    "SiLU by its definition": (["n = Neg(x)", "p = Exp(n)", "q = Add(one, p)", "y = Div(x, q)"], ["Swish"]),
    "quick GELU": (["h = Mul(x, quick)", "p = Sigmoid(h)", "y = Mul(p, x)"], ["Swish"]),
    "Sigmoid": (["n = Neg(x)", "p = Exp(n)", "q = Add(p, one)", "y = Div(one, q)"], ["Sigmoid"]),
    "Mish": (["p = Exp(x)", "q = Add(p, one)", "r = Log(q)", "t = Tanh(r)", "y = Mul(x, t)"], ["Mish"]),
    "HardSigmoid": (["p = Add(x, three)", "q = Clip(p, zero, six)", "y = Div(q, six)"], ["HardSigmoid"]),
    "HardSwish": (
        ["p = Add(x, three)", "q = Clip(p, zero, six)", "r = Div(q, six)", "y = Mul(x, r)"], ["HardSwish"],
    ),
    "HardSwish, multiplied first": (
        ["p = Add(x, three)", "q = Clip(p, zero, six)", "r = Mul(x, q)", "y = Mul(r, sixth)"], ["HardSwish"],
    ),
    "HardSwish of Relu6 as Min and Max": (
        ["p = Add(x, three)", "q = Max(p, zero)", "k = Min(q, six)", "r = Mul(x, k)", "y = Div(r, six)"],
        ["HardSwish"],
    ),
    "GELU by Erf": (
        ["p = Div(x, root2)", "q = Erf(p)", "r = Add(q, one)", "t = Mul(x, r)", "y = Mul(t, half)"], ["Gelu"],
    ),
    "GELU by Erf, halved first": (
        ["p = Mul(x, rhalf)", "q = Erf(p)", "r = Add(one, q)", "t = Mul(half, r)", "y = Mul(x, t)"], ["Gelu"],
    ),
    "GELU by Tanh": (["p = Pow(x, three)", *CUBE, "h = Mul(half, x)", "y = Mul(h, v)"], ["Gelu"]),
    "GELU by Tanh of a product": (
        ["o = Mul(x, x)", "p = Mul(o, x)", *CUBE, "h = Mul(x, v)", "y = Mul(h, half)"], ["Gelu"],
    ),
    "Tanh": (["p = Sinh(x)", "q = Cosh(x)", "y = Div(p, q)"], ["Tanh"]),
    "Relu6": (["p = Relu(x)", "y = Min(p, six)"], ["Clip"]),
    "2-norm": (["p = Mul(x, x)", "q = ReduceSum(p, last) keepdims=1", "y = Sqrt(q)"], ["ReduceL2"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PIECES)
def test_pieces_are_recognised(name):
    lines, wanted = PIECES[name]
    extra = {
        "b": np.linspace(-1, 1, 8),
        "root2": 2**0.5,
        "rhalf": 0.5**0.5,
        "root": (2 / np.pi) ** 0.5,
        "cubic": 0.044715,
        "quick": 1.702,
        "low": -3.4e38,
    }
    constants = {**SCALE, **extra, "mat": np.eye(8) * 0.5 + 0.1}
    read = " ".join(lines)
    constants = {
        k: v if k == "last" else np.asarray(v, np.float32)
        for k, v in constants.items()
        if f"{k}," in read or f"{k})" in read
    }
    done = rewritten(graph_of(*lines, inputs={"x": SHAPE}, constants=constants))
    assert kinds(done.graph) == wanted


def test_pieces_that_others_read_are_left():
    graph = graph_of("p = Sigmoid(x)", "y = Mul(x, p)", "z = Neg(p)", inputs={"x": SHAPE}, outputs=("y", "z"))
    assert "Swish" not in kinds(rewritten(graph).graph)


def test_a_mean_over_other_axes_is_no_layer_normalization():
    lines, _ = PIECES["LayerNormalization without a bias"]
    constants = {"last": ints(1), "e": 1e-5, "two": 2.0, "half": 0.5, "s": np.ones((5, 1), np.float32)}
    done = rewritten(graph_of(*lines, inputs={"x": SHAPE}, constants=constants))
    assert "LayerNormalization" not in kinds(done.graph)
    assert any("not the last ones" in refusal.reason for refusal in done.refusals)


def test_a_mask_that_may_hold_infinities_keeps_its_guard():
    lines = [
        "h = MatMul(x, mat)",
        "f = Add(h, mask)",
        "p = Softmax(f) axis=-1",
        "n = IsNaN(p)",
        "y = Where(n, zero, p)",
    ]
    constants = {
        "mat": np.eye(8, dtype=np.float32),
        "mask": np.where(np.tri(5, 8), 0, -np.inf).astype(np.float32),
        "zero": 0.0,
    }
    done = rewritten(graph_of(*lines, inputs={"x": SHAPE}, constants=constants))
    assert kinds(done.graph)[-2:] == ["IsNaN", "Where"]
    assert any(refusal.reason == "'mask' may hold infinities" for refusal in done.refusals)


def test_bert_s_layers_from_their_pieces():
    """Normalizations, activation and attention of two layers become operators of six kinds."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": (rng.standard_normal((8, 8)) / 3).astype(np.float32) for i in range(6)}
    scalars = {
        "two": 2.0,
        "e": 1e-5,
        "root2": 2**0.5,
        "one": 1.0,
        "half": 0.5,
        "scale": 0.5,
        "s": np.linspace(0.5, 2, 8).astype(np.float32),
    }
    heads = {
        "split": ints(1, 5, 2, 4),
        "join": ints(1, 5, 8),
        "flat": ints(2, 5, 4),
        "unflat": ints(1, 2, 4, 5),
        "last": ints(-1),
    }
    lines = []
    for part, weight in (("q", "w0"), ("k", "w1"), ("v", "w2")):
        lines += [
            f"{part}0 = MatMul(x, {weight})",
            f"{part}1 = Reshape({part}0, split)",
            f"{part}2 = Transpose({part}1) perm=[0,2,1,3]",
        ]
    lines += [
        "k3 = Reshape(k2, flat)",
        "k4 = Transpose(k3) perm=[0,2,1]",
        "k5 = Reshape(k4, unflat)",
        "q3 = Mul(q2, scale)",
        "k6 = Mul(k5, scale)",
    ]
    lines += [
        "a = MatMul(q3, k6)",
        "a1 = Exp(a)",
        "a2 = ReduceSum(a1, last) keepdims=1",
        "a3 = Div(a1, a2)",
        "h = MatMul(a3, v2)",
    ]
    lines += [
        "h1 = Transpose(h) perm=[0,2,1,3]",
        "h2 = Reshape(h1, join)",
        "h3 = MatMul(h2, w3)",
        "n = Add(h3, x)",
    ]
    lines += [
        "m = ReduceMean(n, last) keepdims=1",
        "d = Sub(n, m)",
        "d2 = Pow(d, two)",
        "d3 = ReduceMean(d2, last) keepdims=1",
        "d4 = Add(d3, e)",
    ]
    lines += [
        "d5 = Sqrt(d4)",
        "d6 = Div(d, d5)",
        "d7 = Mul(d6, s)",
        "f = MatMul(d7, w4)",
        "g = Div(f, root2)",
        "g1 = Erf(g)",
        "g2 = Add(g1, one)",
    ]
    lines += ["g3 = Mul(f, g2)", "g4 = Mul(g3, half)", "y = MatMul(g4, w5)"]
    graph = graph_of(*lines, inputs={"x": (1, 5, 8)}, constants={**weights, **scalars, **heads})
    operators = kinds(rewritten(graph).graph)
    assert set(operators) == {
        "MatMul",
        "Reshape",
        "Transpose",
        "Softmax",
        "Add",
        "LayerNormalization",
        "Gelu",
    }
    assert (len(graph.operators), len(operators)) == (38, 20)
