"""What is said of a tensor's values is true of them."""

import numpy as np
import pytest

from lfopt.ops.reference import reference
from lfopt.rewrite.facts import RULES, Fact, Facts
from lfopt.rewrite.mutable_graph import MutableGraph
from tests.rewrite.graphs import feeds_of, graph_of, ints

ONE = (
    "Abs Acos Acosh Asin Atan Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish Identity Neg Reciprocal Relu "
    "Sigmoid Sign Sin Softplus Softsign Sqrt Swish Tanh"
)
TWO = "Add Sub Mul Div Pow Max Min"
FOLD = "ReduceL1 ReduceL2 ReduceSumSquare ReduceSum ReduceProd ReduceMean ReduceMax ReduceMin"


def checked(graph):
    """Every tensor of the graph against what is known of it."""
    facts = Facts(MutableGraph(graph))
    tame = True  # no number so far from which Exp is rounded to 0
    with np.errstate(all="ignore"):
        values = reference(graph, feeds_of(graph), everything=True)
    for name, value in values.items():
        numbers = np.asarray(getattr(value, "values", value))
        known = facts.of(name)
        tame = tame and bool((np.abs(numbers) < 100).all())
        numbers = numbers[np.isfinite(numbers)]
        assert (numbers >= known.low - 1e-6).all(), (name, known)
        assert (numbers <= known.high + 1e-6).all(), (name, known)
        assert not known.nonzero or not tame or (numbers != 0).all(), (name, known)


@pytest.mark.parametrize("seed", range(60))
def test_every_value_lies_within_its_bounds(seed):
    rng = np.random.default_rng(seed)
    lines, live = [], ["a", "b"]
    for i in range(25):
        one, other = rng.choice(live), rng.choice([*live, "half", "minus", "zero"])
        form = rng.integers(4)
        if form == 0:
            lines.append(f"t{i} = {rng.choice(TWO.split())}({one}, {other})")
        elif form == 1 and one in ("a", "b"):
            lines.append(f"t{i} = {rng.choice(FOLD.split())}({one}, axes) keepdims=1")
        elif form == 2:
            lines += [f"g{i} = Greater({one}, {other})", f"t{i} = Where(g{i}, {one}, {other})"]
        else:
            lines.append(f"t{i} = {rng.choice(ONE.split())}({one})")
        live.append(f"t{i}")
    lines.append("y = Add(a, b)")
    lines += [f"z{i} = Add(t{i}, a)" for i in range(25)]
    outputs = ("y", *(f"z{i}" for i in range(25)))
    constants = {"half": 0.5, "minus": -2.0, "zero": 0.0, "axes": ints(1)}
    checked(
        graph_of(
            *lines, inputs={"a": (3, 4), "b": (3, 4)}, constants=constants, outputs=outputs, dtype="float64"
        )
    )


MOVES = {
    "Clip": ["y = Clip(a, minus, half)"],
    "Clip below": ["y = Clip(a, half)"],
    "Clip above": ["y = Clip(a, , minus)"],
    "Pad": ["e = Exp(a)", "y = Pad(e, pads)"],
    "Concat": ["e = Exp(a)", "n = Neg(e)", "y = Concat(e, n) axis=0"],
    "Softmax": ["s = Softmax(a) axis=0", "y = LogSoftmax(s) axis=0"],
    "Transpose and Reshape": ["e = Exp(a)", "t = Transpose(e) perm=[1,0]", "y = Reshape(t, flat)"],
    "Slice and Expand": ["e = Neg(a)", "f = Abs(e)", "y = Slice(f, zero1, one1)"],
    "Trilu": ["e = Exp(a)", "y = Trilu(e)"],
}


@pytest.mark.parametrize("name", MOVES)
def test_bounds_through_what_moves_and_cuts(name):
    constants = {
        "half": 0.5,
        "minus": -1.0,
        "pads": ints(1, 0, 0, 1),
        "flat": ints(-1),
        "zero1": ints(0),
        "one1": ints(2),
    }
    checked(
        graph_of(
            *MOVES[name],
            inputs={"a": (3, 4)},
            constants={k: v for k, v in constants.items() if any(k in line for line in MOVES[name])},
        )
    )


def test_what_nothing_is_known_of_is_unknown():
    graph = graph_of("y = Add(a, a)", inputs={"a": (3, 4)})
    assert Facts(MutableGraph(graph)).of("y") == Fact()
    assert "Log" not in RULES


def test_a_tensor_that_is_read_often_is_looked_at_once():
    """Every step reads the one before twice: 2**200 ways back."""
    lines = ["s0 = Relu(a)", *(f"s{i + 1} = Add(s{i}, s{i})" for i in range(200)), "y = Sqrt(s200)"]
    assert Facts(MutableGraph(graph_of(*lines, inputs={"a": (3, 4)}))).of("y").low == 0
