"""BatchNormalization goes into the convolution before it, where nothing else sees the difference."""

from dataclasses import replace

import numpy as np
import pytest
from onnx.helper import make_node

from lfopt.frontend import from_model, to_model
from lfopt.ir import InvalidConfig
from lfopt.rewrite import simplify
from lfopt.rewrite.movement import VIEWS
from tests.frontend.oracle import assert_close, newest_opset_of_onnxruntime, random_feeds, run, structure
from tests.frontend.small_models import build, floats, positive
from tests.rewrite.graphs import graph_of, ints, rewritten

NORM = ["scale", "shift", "mean", "variance"]


def statistics(channels):
    return dict(
        zip(NORM, (positive(channels), floats(channels), floats(channels), positive(channels)), strict=True)
    )


def network(*nodes, constants, channels=6, outputs=None, shape=(1, 4, 8, 8)):
    return from_model(build(nodes, {"x": shape}, {**constants, **statistics(channels)}, outputs, opset=18))


def conv(result="c", read="x", weight="w", bias="", kind="Conv", **attributes):
    return make_node(
        kind, [read, weight, bias] if bias else [read, weight], [result], name=result, **attributes
    )


def norm(result="y", read="c", **attributes):
    return make_node("BatchNormalization", [read, *NORM], [result], name=result, **attributes)


def kinds(graph):
    return [op.kind for op in graph.operators]


def without_values(graph):
    return replace(graph, constants=dict.fromkeys(graph.constants))


def assert_equal_results(before, after):
    feeds = random_feeds(before)
    outputs, wanted = (run(newest_opset_of_onnxruntime(to_model(g)), feeds) for g in (after, before))
    assert_close(outputs, wanted)


FOLDED = {
    "conv": network(conv(), norm(), constants={"w": floats(6, 4, 3, 3)}),
    "conv with bias": network(conv(bias="b"), norm(), constants={"w": floats(6, 4, 3, 3), "b": floats(6)}),
    "grouped conv": network(conv(group=2), norm(epsilon=0.1), constants={"w": floats(6, 2, 3, 3)}),
    "depthwise conv": network(
        conv(group=4, bias="b"), norm(), constants={"w": floats(4, 1, 3, 3), "b": floats(4)}, channels=4
    ),
    "conv over one axis": network(conv(), norm(), constants={"w": floats(6, 4, 3)}, shape=(1, 4, 9)),
    "transposed conv": network(conv(kind="ConvTranspose"), norm(), constants={"w": floats(4, 6, 3, 3)}),
    "transposed conv with bias": network(
        conv(kind="ConvTranspose", bias="b"), norm(), constants={"w": floats(4, 6, 3, 3), "b": floats(6)}
    ),
    "grouped transposed conv": network(
        conv(kind="ConvTranspose", group=2), norm(), constants={"w": floats(4, 3, 3, 3)}
    ),
    "two norms in a row": network(conv(), norm("n"), norm("y", "n"), constants={"w": floats(6, 4, 3, 3)}),
}


@pytest.mark.parametrize("name", FOLDED)
def test_a_norm_after_a_convolution_is_folded(name):
    before = FOLDED[name]
    after = simplify(before)
    assert len([operator for operator in after.operators if operator.kind not in VIEWS]) == 1
    assert after.operators[-1].outputs == ("y",)
    assert_equal_results(before, after)
    assert structure(simplify(without_values(before))) == structure(after)
    unknown = simplify(without_values(before))
    assert all(
        value is None for name, value in unknown.constants.items() if unknown.tensors[name].dtype == "float32"
    )


def test_convolutions_that_share_weights_get_weights_of_their_own():
    nodes = [conv("c"), conv("d"), norm("e", "c"), make_node("Add", ["e", "d"], ["y"])]
    before = network(*nodes, constants={"w": floats(6, 4, 3, 3)})
    after = simplify(before)
    assert kinds(after) == ["Conv", "Conv", "Add"]
    assert "w" in after.constants
    assert_equal_results(before, after)
    both = network(
        conv("c"),
        conv("d"),
        norm("e", "c"),
        norm("f", "d"),
        make_node("Add", ["e", "f"], ["y"]),
        constants={"w": floats(6, 4, 3, 3)},
    )
    assert "w" not in simplify(both).constants
    assert_equal_results(both, simplify(both))


KEPT = {
    "the convolution's result is an output": network(
        conv(), norm(), constants={"w": floats(6, 4, 3, 3)}, outputs=["c", "y"]
    ),
    "something else reads the convolution's result": network(
        conv(), norm("n"), make_node("Add", ["c", "n"], ["y"]), constants={"w": floats(6, 4, 3, 3)}
    ),
    "the norm stands alone": network(norm(read="x"), constants={}, channels=4),
    "there is an activation between": network(
        conv(), make_node("Relu", ["c"], ["r"]), norm(read="r"), constants={"w": floats(6, 4, 3, 3)}
    ),
    "the weights are computed from the input": network(
        make_node("ReduceMean", ["x"], ["m"], keepdims=1),
        make_node("Mul", ["m", "w"], ["v"]),
        conv(weight="v"),
        norm(),
        constants={"w": floats(6, 4, 3, 3)},
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_norm_stays_where(name):
    assert kinds(simplify(KEPT[name])) == kinds(KEPT[name])
    assert_equal_results(KEPT[name], simplify(KEPT[name]))


def test_a_name_that_is_taken_is_not_taken_again():
    nodes = [conv(weight="c.weight.folded"), norm("n"), make_node("Mul", ["n", "c.bias.folded"], ["y"])]
    before = network(
        *nodes, constants={"c.weight.folded": floats(6, 4, 3, 3), "c.bias.folded": floats(6, 1, 1)}
    )
    assert_equal_results(before, simplify(before))


def test_half_precision_is_computed_in_float32():
    constants = {"w": floats(6, 4, 3, 3), **statistics(6)}
    halves = {name: value.astype(np.float16) for name, value in constants.items()}
    graph = simplify(from_model(build([conv(), norm()], {"x": (1, 4, 8, 8)}, halves, opset=18, dtype=10)))
    ends = [*graph.inputs, *graph.outputs]
    assert {graph.tensors[name].dtype for name in ends} == {"float16"}
    assert kinds(graph) == ["Cast", "Conv", "Cast"]


def test_simplifying_twice_changes_nothing():
    once = simplify(FOLDED["conv"])
    assert structure(simplify(once)) == structure(once)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_keep_their_values(seed):
    rng = np.random.default_rng(seed)
    nodes, constants, live = [], {}, [("x", 4)]
    for i in range(12):
        read, channels = live[rng.integers(len(live))]
        result, kind = f"t{i}", rng.choice(["Conv", "BatchNormalization", "Relu", "Add", "ConvTranspose"])
        if kind in ("Conv", "ConvTranspose"):
            wide = int(rng.integers(2, 5))
            constants[f"w{i}"] = (
                rng.standard_normal((wide, channels, 3, 3) if kind == "Conv" else (channels, wide, 3, 3)) / 6
            ).astype(np.float32)
            nodes.append(conv(result, read, f"w{i}", kind=kind, pads=[1, 1, 1, 1]))
            channels = wide
        elif kind == "BatchNormalization":
            names = [f"{n}{i}" for n in NORM]
            constants |= dict(zip(names, statistics(channels).values(), strict=True))
            nodes.append(make_node(kind, [read, *names], [result], name=result))
        else:
            others = [name for name, c in live if c == channels]
            nodes.append(
                make_node(
                    kind, [read, rng.choice(others)] if kind == "Add" else [read], [result], name=result
                )
            )
        live.append((result, channels))
    before = from_model(
        build(nodes, {"x": (1, 4, 6, 6)}, constants, [name for name, _ in live[-2:]], opset=18)
    )
    after = simplify(before)
    assert_equal_results(before, after)
    assert structure(simplify(without_values(before))) == structure(after)


def test_unknown_rules_are_refused_with_those_that_exist():
    with pytest.raises(InvalidConfig, match="rules 'most': the sets of rules are default, all, none"):
        simplify(FOLDED["conv"], "most")


BELOW = [
    "m = ReduceMax(x, last) keepdims=1",
    "d = Sub(x, m)",
    "p = Exp(d)",
    "t = ReduceSum(p, last) keepdims=1",
]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([*BELOW, "y = Div(p, t)"], ["Softmax"]),
        ([*BELOW, "i = Reciprocal(t)", "y = Mul(i, p)"], ["Softmax"]),
        ([*BELOW, "g = Log(t)", "y = Sub(d, g)"], ["LogSoftmax"]),
        # where Exp may overflow
        (["p = Exp(x)", "t = ReduceSum(p, last) keepdims=1", "y = Div(p, t)"], ["Exp", "ReduceSum", "Div"]),
        (
            [*BELOW[:-1], "t = ReduceSum(p, first) keepdims=1", "y = Div(p, t)"],
            ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"],
        ),
    ],
)
def test_softmax_is_made_of_its_parts_where_they_compute_the_same(lines, wanted):
    used = {"last": ints(-1)} | ({"first": ints(0)} if "first" in " ".join(lines) else {})
    graph = graph_of(*lines, inputs={"x": (2, 5, 8)}, constants=used)
    assert kinds(rewritten(graph, "default").graph) == wanted


def test_softmax_stays_in_parts_where_others_read_one():
    graph = graph_of(
        *BELOW,
        "y = Div(p, t)",
        "z = Neg(p)",
        inputs={"x": (2, 5, 8)},
        constants={"last": ints(-1)},
        outputs=("y", "z"),
    )
    assert kinds(rewritten(graph, "default").graph) == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div", "Neg"]
