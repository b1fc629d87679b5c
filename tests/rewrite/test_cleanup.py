"""Exporters' noise goes; what only looks like noise stays."""

import numpy as np
import pytest

from lfopt.rewrite import rewrite
from tests.rewrite.graphs import graph_of, ints, kinds, rewritten, without_values

X = {"x": (2, 3, 4)}
NOISE = {
    "Identity": (["r = Identity(x)", "s = Identity(r)", "y = Relu(s)"], {}, ["Relu"]),
    "Dropout": (["r = Dropout(x)", "y = Relu(r)"], {}, ["Relu"]),
    "Reshape to the same shape": (["r = Reshape(x, to)", "y = Relu(r)"], {"to": ints(2, -1, 4)}, ["Relu"]),
    "Expand to the same shape": (["r = Expand(x, to)", "y = Relu(r)"], {"to": ints(1, 3, 1)}, ["Relu"]),
    "Tile once": (["r = Tile(x, to)", "y = Relu(r)"], {"to": ints(1, 1, 1)}, ["Relu"]),
    "Pad by nothing": (["r = Pad(x, to)", "y = Relu(r)"], {"to": ints(0, 0, 0, 0, 0, 0)}, ["Relu"]),
    "Slice of everything": (
        ["r = Slice(x, from, to, axes)", "y = Relu(r)"], {"from": ints(0), "to": ints(99), "axes": ints(2)},
        ["Relu"],
    ),
    "Concat of one": (["r = Concat(x) axis=1", "y = Relu(r)"], {}, ["Relu"]),
    "Sum of one": (["r = Sum(x)", "y = Relu(r)"], {}, ["Relu"]),
    "Transpose of nothing": (["r = Transpose(x) perm=[0,1,2]", "y = Relu(r)"], {}, ["Relu"]),
    "Cast to the same type": (["r = Cast(x) to=1", "y = Relu(r)"], {}, ["Relu"]),
    "Cast there and back": (["r = Cast(x) to=11", "s = Cast(r) to=1", "y = Relu(s)"], {}, ["Relu"]),
    "plus 0, times 1": (
        ["r = Add(x, zero)", "s = Mul(one, r)", "t = Div(s, one)", "u = Sub(t, zero)", "y = Relu(u)"],
        {"zero": 0.0, "one": 1.0}, ["Relu"],
    ),
    "Transpose of Transpose": (
        ["r = Transpose(x) perm=[1,2,0]", "s = Transpose(r) perm=[2,0,1]", "y = Relu(s)"], {}, ["Relu"],
    ),
    "two Transposes": (
        ["r = Transpose(x) perm=[1,2,0]", "s = Transpose(r) perm=[1,0,2]", "y = Relu(s)"], {},
        ["Transpose", "Relu"],
    ),
    "Reshapes in a row": (
        ["r = Reshape(x, flat)", "s = Unsqueeze(r, axes)", "t = Squeeze(s, axes)", "y = Reshape(t, to)"],
        {"flat": ints(-1), "axes": ints(0), "to": ints(4, 6)}, ["Reshape"],
    ),
    "moves around functions": (
        ["r = Transpose(x) perm=[2,0,1]", "s = Relu(r)", "t = Mul(s, two)", "y = Transpose(t) perm=[1,2,0]"],
        {"two": 2.0}, ["Relu", "Mul"],
    ),
    "Expand before a broadcast": (
        ["r = Expand(v, to)", "y = Mul(x, r)"], {"v": np.ones(4, np.float32) * 3, "to": ints(2, 3, 4)},
        ["Mul"],
    ),
    "the same twice": (["r = Exp(x)", "s = Exp(x)", "y = Div(r, s)"], {}, ["Sub", "Exp"]),
    "nobody reads it": (["r = Exp(x)", "s = Sub(r, r)", "t = Sub(x, s)", "y = Relu(x)"], {}, ["Relu"]),
    "constants add up": (
        ["r = Add(x, v)", "s = Add(r, w)", "y = Sub(s, v)"], {"v": [1.0, 2, 3, 4], "w": [4.0, 3, 2, 1]},
        ["Add"],
    ),
    "constants multiply": (
        ["r = Mul(x, v)", "s = Div(r, two)", "y = Mul(s, v)"], {"v": [1.0, 2, 3, 4], "two": 2.0}, ["Mul"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOISE)
def test_noise_goes(name):
    lines, constants, wanted = NOISE[name]
    graph = graph_of(*lines, inputs=X, constants=constants)
    done = rewritten(graph)
    assert kinds(done.graph) == wanted
    assert kinds(rewrite(without_values(graph)).graph) == wanted
    assert not rewrite(done.graph).applied


KEPT = {
    "Slice backwards": (
        ["r = Slice(x, from, to, axes, by)", "y = Relu(r)"],
        {"from": ints(-1), "to": ints(-99), "axes": ints(2), "by": ints(-1)},
    ),
    "Pad that moves": (["r = Pad(x, to)", "y = Relu(r)"], {"to": ints(0, 0, 1, 0, 0, -1)}),
    "Cast that loses digits": (["r = Cast(x) to=7", "s = Cast(r) to=1", "y = Relu(s)"], {}),
    "Transpose that moves": (["r = Transpose(x) perm=[0,2,1]", "y = Relu(r)"], {}),
    "random numbers": (["r = RandomNormalLike(x)", "s = RandomNormalLike(x)", "y = Add(r, s)"], {}),
    "Expand that gives the shape": (["r = Expand(x, to)", "y = Relu(r)"], {"to": ints(5, 2, 3, 4)}),
    "not quite 1": (["y = Mul(x, one)"], {"one": 1.001}),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_does_something_stays(name):
    lines, constants = KEPT[name]
    graph = graph_of(*lines, inputs=X, constants=constants)
    assert kinds(rewrite(graph).graph) == kinds(graph)


def test_an_input_that_is_an_output_keeps_its_identity():
    graph = graph_of("y = Identity(x)", "z = Identity(y)", "w = Relu(z)", inputs=X, outputs=("y", "z", "w"))
    done = rewritten(graph)
    assert kinds(done.graph) == ["Identity", "Identity", "Relu"]


def test_two_outputs_that_are_the_same_both_stay():
    graph = graph_of("y = Exp(x)", "z = Exp(x)", inputs=X, outputs=("y", "z"))
    assert set(rewritten(graph).graph.outputs) == {"y", "z"}


def test_a_result_takes_the_name_of_the_output_that_it_becomes():
    graph = graph_of(
        "r = Exp(x)", "s = Neg(r)", "y = Identity(s)", "z = Relu(s)", inputs=X, outputs=("y", "z")
    )
    done = rewritten(graph)
    assert kinds(done.graph) == ["Exp", "Neg", "Relu"]


CONV = {
    "w": np.linspace(-1, 1, 6 * 2 * 9).reshape(6, 2, 3, 3),
    "b": np.linspace(0, 1, 6),
    "k": np.linspace(1, 2, 6).reshape(6, 1, 1),
    "l": np.linspace(-1, 2, 6).reshape(1, 6, 1, 1),
}
FOLDED = {
    "Mul": ["r = Conv(x, w)", "y = Mul(r, k)"],
    "Mul and bias": ["r = Conv(x, w, b)", "y = Mul(k, r)"],
    "Add": ["r = Conv(x, w)", "y = Add(r, l)"],
    "scale and shift": ["r = Conv(x, w, b)", "s = Mul(r, k)", "y = Add(l, s)"],
    "Div and Sub": ["r = Conv(x, w, b)", "s = Div(r, k)", "y = Sub(s, l)"],
    "subtracted from": ["r = Conv(x, w, b)", "y = Sub(l, r)"],
    "one number": ["r = Conv(x, w)", "y = Mul(r, half)"],
    "a grouped convolution": ["r = Conv(x, g) group=2", "y = Mul(r, k)"],
    "a transposed convolution": ["r = ConvTranspose(x, t) group=2", "y = Mul(r, k)"],
}


@pytest.mark.parametrize("name", FOLDED)
def test_a_constant_per_channel_goes_into_a_convolution(name):
    lines = FOLDED[name]
    grouped = {
        "g": np.linspace(-1, 1, 6 * 9).reshape(6, 1, 3, 3),
        "t": np.linspace(-1, 1, 4 * 3 * 9).reshape(4, 3, 3, 3),
        "half": 0.5,
    }
    constants = {
        k: np.asarray(v, np.float32)
        for k, v in {**CONV, **grouped}.items()
        if any(f"{k})" in line or f"{k}," in line for line in lines)
    }
    graph = graph_of(*lines, inputs={"x": (1, 4 if "transposed" in name else 2, 7, 7)}, constants=constants)
    done = rewritten(graph)
    assert kinds(done.graph) == kinds(graph)[:1]
    assert kinds(rewrite(without_values(graph)).graph) == kinds(graph)[:1]


@pytest.mark.parametrize("told", ["transB=1", "alpha=0.5", "beta=0.5", "transA=1"])
@pytest.mark.parametrize("last", ["Mul", "Add"])
def test_a_constant_per_column_goes_into_gemm(told, last):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 5) if "transB" in told else (5, 6)).astype(np.float32)
    constants = {
        "w": weight,
        "b": rng.standard_normal(6).astype(np.float32),
        "k": rng.uniform(1, 2, 6).astype(np.float32),
    }
    graph = graph_of(
        f"r = Gemm(x, w, b) {told}",
        f"y = {last}(r, k)",
        inputs={"x": (5, 3) if "transA" in told else (3, 5)},
        constants=constants,
    )
    done = rewritten(graph)
    stays = told == "beta=0.5" and last == "Add"
    assert kinds(done.graph) == (["Gemm", "Add"] if stays else ["Gemm"])
    assert any("beta is not 1" in refusal.reason for refusal in done.refusals) == stays


NOT_FOLDED = {
    "the result is needed by others": (
        ["r = Conv(x, w)", "y = Mul(r, k)", "z = Relu(r)"],
        ("y", "z"),
        "needed by others",
    ),
    "the constant changes along a row": (
        ["r = Conv(x, w)", "y = Mul(r, row)"],
        ("y",),
        "does not stand for channels",
    ),
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_a_constant_stays_where(name):
    lines, outputs, reason = NOT_FOLDED[name]
    constants = {"w": CONV["w"], "row": np.ones(5, np.float32) * 2} | (
        {"k": CONV["k"]} if "k)" in lines[1] else {}
    )
    constants = {k: np.asarray(v, np.float32) for k, v in constants.items()}
    graph = graph_of(*lines, inputs={"x": (1, 2, 7, 7)}, constants=constants, outputs=outputs)
    done = rewritten(graph)
    assert "Mul" in kinds(done.graph)
    assert any(reason in refusal.reason for refusal in done.refusals)
