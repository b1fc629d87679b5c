"""Bodies of If, Loop and Scan are inlined: results are those of onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto
from onnx.helper import (
    make_function,
    make_graph,
    make_node,
    make_opsetid,
    make_tensor_sequence_value_info,
    make_tensor_value_info,
)

from lfopt.frontend import from_model
from lfopt.ops.reference import reference
from tests.frontend.oracle import assert_close, run
from tests.frontend.small_models import build, floats, ints

X = {"x": (2, 3)}
TRUE = np.ones((), bool)
TYPES = {"i": TensorProto.INT64, "c": TensorProto.BOOL}


def graph(
    nodes: list[NodeProto],
    inputs: list[str],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
) -> GraphProto:
    """A body; names that begin with i are numbers, with c conditions, all others maps.

    It states no shapes.
    """
    ends, results = (
        [
            make_tensor_value_info(
                name, TYPES.get(name[0], TensorProto.FLOAT), [] if name[0] in TYPES else None
            )
            for name in of
        ]
        for of in (inputs, outputs)
    )
    return make_graph(
        nodes,
        "body",
        ends,
        results,
        [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )


def branches(condition: list[NodeProto], **constants: np.ndarray) -> ModelProto:
    """An If: one branch reads the outer graph, the other has an inner If and a constant of 2,000 elements."""
    inner = make_node(
        "If",
        ["c"],
        ["e"],
        then_branch=graph([make_node("Neg", ["d"], ["f"])], [], ["f"]),
        else_branch=graph([make_node("Identity", ["d"], ["k"])], [], ["k"]),
    )
    other = graph(
        [make_node("ReduceSum", ["w"], ["d"], keepdims=0), inner, make_node("Add", ["x", "e"], ["g"])],
        [],
        ["g"],
        {"w": floats(2000)},
    )
    choice = make_node(
        "If", ["c"], ["y"], then_branch=graph([make_node("Exp", ["r"], ["b"])], [], ["b"]), else_branch=other
    )
    return build(
        [*condition, make_node("Relu", ["x"], ["r"]), choice, make_node("Abs", ["y"], ["z"])],
        X,
        constants,
        opset=18,
    )


def turning(*inputs: str, going: list[NodeProto], opset: int = 18) -> ModelProto:
    """A loop with a state and what it makes in every turn, which reads the number of the turn."""
    nodes = [
        *going,
        make_node("Cast", ["i"], ["k"], to=1),
        make_node("Mul", ["s", "k"], ["p"]),
        make_node("Add", ["p", "x"], ["t"]),
    ]
    body = graph(nodes, ["i", "c", "s"], ["c_out", "t", "p"])
    loop = make_node("Loop", [*inputs, "x"], ["last", "all"], body=body)
    return build(
        [loop, make_node("Neg", ["last"], ["y"])],
        X,
        {"n": np.array(4), "true": TRUE, "none": np.array(0)},
        ["y", "all"],
        opset=opset,
    )


def until() -> ModelProto:
    """A loop that stops at a condition that is computed."""
    nodes = [
        make_node("Add", ["s", "s"], ["t"]), make_node("ReduceMax", ["t"], ["m"], keepdims=0),
        make_node("Less", ["m", "limit"], ["c_out"]),
    ]  # fmt: skip
    body = graph(nodes, ["i", "c", "s"], ["c_out", "t"], {"limit": np.array(9, np.float32)})
    first = [make_node("Abs", ["x"], ["a"]), make_node("Add", ["a", "one"], ["s0"])]
    return build(
        [*first, make_node("Loop", ["n", "", "s0"], ["y"], body=body)],
        X,
        {"n": np.array(12), "one": np.ones((), np.float32)},
        opset=18,
    )


def scanned(**attributes: Any) -> ModelProto:
    body = graph(
        [make_node("Add", ["s", "v"], ["t"]), make_node("Mul", ["t", "v"], ["o"])], ["s", "v"], ["t", "o"]
    )
    scan = make_node("Scan", ["s0", "x"], ["last", "y"], body=body, num_scan_inputs=1, **attributes)
    start = make_node("ReduceMin", ["x", "axis"], ["s0"], keepdims=0)
    return build(
        [start, scan], X, {"axis": ints(attributes.get("scan_input_axes", [0])[0])}, ["y", "last"], opset=18
    )


def listed(*, opset: int = 18) -> ModelProto:
    """A sequence that a loop adds to, and what is taken out of it."""
    body = graph(
        [make_node("Mul", ["a", "a"], ["p"]), make_node("SequenceInsert", ["s", "p"], ["t"]), *KEEP],
        ["i", "c"],
        ["c_out"],
    )
    for ends, name in ((body.input, "s"), (body.output, "t")):
        ends.append(make_tensor_sequence_value_info(name, TensorProto.FLOAT, None))
    nodes = [
        make_node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        make_node("SequenceAt", ["rows", "last"], ["a"]),
        make_node("SequenceErase", ["rows", "none"], ["rest"]),
        make_node("SequenceInsert", ["rest", "a", "none"], ["more"]),
        make_node("Loop", ["n", "", "more"], ["all"], body=body),
        make_node("SequenceLength", ["all"], ["count"]),
        make_node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        make_node("ConcatFromSequence", ["all"], ["y"], axis=1, new_axis=1),
        make_node("Mul", ["y", "number"], ["z"]),
        make_node("SplitToSequence", ["x", "two"], ["columns"], axis=-1),
        make_node("ConcatFromSequence", ["columns"], ["again"], axis=1),
    ]
    constants = {"n": np.array(2), "none": np.array(0), "last": np.array(-1), "two": np.array(2)}
    return build(nodes, X, constants, ["z", "again"], opset=opset)


def in_function() -> ModelProto:
    choice = make_node(
        "If",
        ["c"],
        ["b"],
        then_branch=graph([make_node("Relu", ["a"], ["p"])], [], ["p"]),
        else_branch=graph([make_node("Identity", ["a"], ["q"])], [], ["q"]),
    )
    nodes = [
        make_node("ReduceMax", ["a"], ["m"], keepdims=0),
        make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        choice,
    ]
    model = build([make_node("g", ["x"], ["y"], domain="f")], X, opset=18, domains=["f"])
    model.functions.append(make_function("f", "g", ["a"], ["b"], nodes, [make_opsetid("", 18)]))
    return model


COMPUTED = [make_node("ReduceMax", ["x"], ["m"], keepdims=0), make_node("Greater", ["m", "half"], ["c"])]
KEEP = [make_node("Identity", ["c"], ["c_out"])]
MODELS: dict[str, Callable[[], ModelProto]] = {
    "then": lambda: branches([], c=TRUE),
    "else": lambda: branches([], c=~TRUE),
    "both branches": lambda: branches(COMPUTED, half=np.array(0.5, np.float32)),
    "four turns": lambda: turning("n", "true", going=KEEP),
    "four turns, no condition": lambda: turning("n", "", going=KEEP),
    "four turns, of opset 11": lambda: turning("n", "true", going=KEEP, opset=11),
    "until the third turn": lambda: turning(
        "",
        "true",
        going=[make_node("Less", ["i", "two"], ["c_out"]), make_node("Constant", [], ["two"], value_int=2)][
            ::-1
        ],
    ),
    "until a sum is large": until,
    "slices": scanned,
    "slices backwards": lambda: scanned(scan_input_directions=[1], scan_output_directions=[1]),
    "columns": lambda: scanned(scan_input_axes=[1], scan_output_axes=[1]),
    "inside of a function": in_function,
    "sequences": listed,
    "sequences, of opset 13": lambda: listed(opset=13),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sign", [1, -1])
def test_bodies_do_what_they_say(name: str, sign: int) -> None:
    model = MODELS[name]()
    network, feeds = from_model(model), {"x": sign * np.linspace(0.25, 1, 6, dtype=np.float32).reshape(2, 3)}
    assert not {"If", "Loop", "Scan"} & {operator.kind for operator in network.operators}
    outputs = reference(network, feeds)
    assert_close([outputs[name] for name in network.outputs], run(model, feeds))


def test_what_is_known_is_not_computed() -> None:
    taken, both = (from_model(MODELS[name]()) for name in ("then", "both branches"))
    assert [operator.kind for operator in taken.operators] == ["Relu", "Exp", "Identity", "Abs"]
    assert [operator.kind for operator in both.operators].count("Where") == 2
    turns = [operator for operator in from_model(MODELS["four turns"]()).operators if operator.kind == "Mul"]
    assert len(turns) == 4


def test_a_network_may_be_constants_and_inputs_without_elements() -> None:
    nodes = [
        make_node("Shape", ["x"], ["s"]),
        make_node("Concat", ["x", "w"], ["y"], axis=0),
        make_node("ReduceProd", ["x"], ["p"], keepdims=0),
    ]
    model = build(nodes, {"x": (0, 3)}, {"w": floats(2, 3)}, ["y", "p"], opset=18)
    model.graph.output.append(make_tensor_value_info("s", TensorProto.INT64, [2]))
    network, feeds = from_model(model), {"x": np.zeros((0, 3), np.float32)}
    assert not network.operators
    assert network.notes == (
        "input 'x' of shape [0, 3] has no elements: what is made of it alone is a constant",
    )
    outputs = reference(network, feeds)
    assert_close([outputs[name] for name in network.outputs], run(model, feeds))
