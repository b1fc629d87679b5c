"""ONNX's Attention and RotaryEmbedding as their definitions: same results, and attention recognised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from lfopt.frontend import from_model
from lfopt.ir import Hardware, InvalidModel
from lfopt.ops import Dataflow
from lfopt.ops.recognise import attentions, attentions_in
from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.agreement import differing
from tests.codegen.counting import disagreement
from tests.planning.test_attention import planned

TYPES = {"float32": TensorProto.FLOAT, "bool": TensorProto.BOOL, "int64": TensorProto.INT64}
HEADS = {"q": (2, 2, 5, 4), "k": (2, 2, 6, 4), "v": (2, 2, 6, 3)}
SHARED = {"q": (1, 4, 5, 4), "k": (1, 2, 6, 4), "v": (1, 2, 6, 3)}
FLAT = {"q": (1, 5, 16), "k": (1, 7, 8), "v": (1, 7, 6)}
Values = dict[str, np.ndarray]


def given(**shapes: tuple[int, ...]) -> Values:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def by_definition(written: ModelProto, values: Values) -> list[np.ndarray]:
    return [np.asarray(value) for value in ReferenceEvaluator(written).run(None, values)]


def model(
    kind: str,
    values: Values,
    reads: tuple[str, ...],
    makes: tuple[str, ...] = ("y",),
    opset: int = 24,
    **attributes: Any,
) -> ModelProto:
    """One operator on values as inputs."""
    inputs = [
        helper.make_tensor_value_info(name, TYPES[value.dtype.name], value.shape)
        for name, value in values.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in makes if name]
    node = helper.make_node(kind, reads, makes, name="it", **attributes)
    return helper.make_model(
        helper.make_graph([node], "one", inputs, outputs),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=11,
    )


HIDDEN = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [-np.inf] * 6,
        [0, -np.inf, 0, 0, 1, 0],
        [1, 2, 3, 4, 5, 6],
        [0, 0, 0, 0, 0, -np.inf],
    ],
    np.float32,
)
CASES: dict[str, tuple[Values, tuple[str, ...], tuple[str, ...], dict[str, Any]]] = {
    "four axes": (given(**HEADS), ("q", "k", "v"), ("y",), {}),
    "scale": (given(**HEADS), ("q", "k", "v"), ("y",), {"scale": 0.3}),
    "scale of 1": (given(**HEADS), ("q", "k", "v"), ("y",), {"scale": 1.0}),
    "causal": (given(**HEADS), ("q", "k", "v"), ("y",), {"is_causal": 1}),
    "softcap": (given(**HEADS), ("q", "k", "v"), ("y",), {"softcap": 2.0}),
    "mask of numbers, a row of it all hidden": (
        {**given(**HEADS), "mask": HIDDEN},
        ("q", "k", "v", "mask"),
        ("y",),
        {},
    ),
    "mask of truth values": ({**given(**HEADS), "mask": HIDDEN >= 0}, ("q", "k", "v", "mask"), ("y",), {}),
    "mask of numbers, causal": (
        {**given(**HEADS), "mask": HIDDEN},
        ("q", "k", "v", "mask"),
        ("y",),
        {"is_causal": 1},
    ),
    "mask per head": (given(**HEADS, mask=(1, 2, 5, 6)), ("q", "k", "v", "mask"), ("y",), {}),
    "shared heads": (given(**SHARED), ("q", "k", "v"), ("y",), {}),
    "three axes": (given(**FLAT), ("q", "k", "v"), ("y",), {"q_num_heads": 4, "kv_num_heads": 2}),
    "cached": (
        given(**HEADS, old_k=(2, 2, 3, 4), old_v=(2, 2, 3, 3)),
        ("q", "k", "v", "", "old_k", "old_v"),
        ("y", "new_k", "new_v"),
        {"is_causal": 1},
    ),
    "to be cached": (given(**HEADS), ("q", "k", "v"), ("y", "new_k", "new_v"), {}),
    "padded keys": (
        {**given(**HEADS), "length": np.array([6, 2])},
        ("q", "k", "v", "", "", "", "length"),
        ("y",),
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_attention_is_found_among_what_onnx_defines_it_by(case: str) -> None:
    values, reads, makes, attributes = CASES[case]
    written = model("Attention", values, reads, makes, **attributes)
    graph = simplify(from_model(written))
    assert len(attentions(Dataflow.of(graph))) == 1
    wanted = dict(zip(graph.outputs, by_definition(written, values), strict=True))
    assert differing(reference(graph, values), wanted) == []
    plan, _ = planned(graph, Hardware(400))
    assert [what for what in recount(graph, plan).discrepancies if "totals" not in what] == []
    done = execute(plan, graph, values)
    assert done.dram.total == sum(group.dram.total for group in plan.groups)
    assert differing(done.outputs, wanted) == []


def test_c_makes_rows_without_keys_0_too(tmp_path: Path) -> None:
    values, reads, makes, attributes = CASES["mask of numbers, a row of it all hidden"]
    graph = simplify(from_model(model("Attention", values, reads, makes, **attributes)))
    plan, _ = planned(graph, Hardware(1 << 12))
    assert disagreement(plan, graph, values, tmp_path) == []


def test_scores_that_are_an_output_are_made() -> None:
    values = given(**HEADS)
    written = model("Attention", values, ("q", "k", "v"), ("y", "", "", "scores"))
    graph = from_model(written)
    assert attentions(Dataflow.of(graph)) == ()
    assert (
        differing(
            reference(graph, values), dict(zip(graph.outputs, by_definition(written, values), strict=True))
        )
        == []
    )


def test_layers_share_their_masks() -> None:
    values = given(q=(1, 2, 9, 4), k=(1, 2, 9, 4), v=(1, 2, 9, 4))
    nodes = [
        helper.make_node(
            "Attention", [f"x{n}" if n else "q", "k", "v"], [f"x{n + 1}"], name=f"layer{n}", is_causal=1
        )
        for n in range(3)
    ]
    written = model("Attention", values, ("q", "k", "v"))
    del written.graph.node[:]
    written.graph.node.extend(nodes)
    written.graph.output[0].name = "x3"
    graph = from_model(written)
    assert [name for name in graph.constants if graph.shape(name) == (9, 9)] == [*attentions_in(graph).masks]
    assert [one.call.operator.name for one in attentions_in(graph).recognised] == [
        "layer0.KTranspose",
        "layer1.KTranspose",
        "layer2.KTranspose",
    ]
    assert differing(reference(graph, values), {"x3": by_definition(written, values)[0]}) == []


ROTATED: dict[str, tuple[Values, tuple[str, ...], dict[str, Any]]] = {
    "in full": (given(x=(1, 2, 3, 8), cos=(1, 3, 4), sin=(1, 3, 4)), ("x", "cos", "sin"), {}),
    "interleaved": (
        given(x=(1, 2, 3, 8), cos=(1, 3, 4), sin=(1, 3, 4)),
        ("x", "cos", "sin"),
        {"interleaved": 1},
    ),
    "in part": (
        given(x=(1, 2, 3, 8), cos=(1, 3, 2), sin=(1, 3, 2)),
        ("x", "cos", "sin"),
        {"rotary_embedding_dim": 4},
    ),
    "by positions": (
        {**given(x=(1, 3, 16), cos=(9, 4), sin=(9, 4)), "at": np.array([[4, 0, 7]])},
        ("x", "cos", "sin", "at"),
        {"num_heads": 2},
    ),
}


@pytest.mark.parametrize("case", ROTATED)
def test_rotary_embedding_is_what_onnx_defines_it_by(case: str) -> None:
    values, reads, attributes = ROTATED[case]
    written = model("RotaryEmbedding", values, reads, opset=23, **attributes)
    graph = from_model(written)
    assert "RotaryEmbedding" not in {op.kind for op in graph.operators}
    assert differing(reference(graph, values), {"y": by_definition(written, values)[0]}) == []


def test_operators_of_definitions_mean_the_same_in_the_newest_opset() -> None:
    """Definitions are of older opsets; what has changed of their operators since are types alone."""
    same = {
        "Cast",
        "Constant",
        "ConstantOfShape",
        "Identity",
        "Mod",
        "Pad",
        "Range",
        "Reshape",
        "Shape",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
    kinds: set[str] = set()
    for values, reads, makes, attributes in CASES.values():
        kinds |= {
            op.kind for op in from_model(model("Attention", values, reads, makes, **attributes)).operators
        }
    assert {kind for kind in kinds if onnx.defs.get_schema(kind).since_version > 23} <= same


def test_what_attention_cannot_be_is_refused() -> None:
    values = given(q=(1, 5, 32), k=(1, 7, 16), v=(1, 7, 12))
    with pytest.raises(InvalidModel, match="'it'"):
        from_model(model("Attention", values, ("q", "k", "v")))
    values = given(q=(1, 2, 5, 8), k=(1, 2, 7, 6), v=(1, 2, 7, 3))
    with pytest.raises(InvalidModel, match="it"):
        from_model(model("Attention", values, ("q", "k", "v")))
    with pytest.raises(InvalidModel, match="these attributes"):
        from_model(model("Attention", given(**HEADS), ("q", "k", "v"), softmax_precision=TensorProto.INT64))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_case_of_the_standard_s_backend_tests() -> None:
    """Attention is recognised where scores are no output; float16 and bfloat16 differ by 1 or 2 ulp."""
    from onnx.backend.test.case.node import collect_testcases

    recognised = 0
    for case in collect_testcases("Attention"):
        assert case.model is not None and case.data_sets is not None
        if case.model.graph.node[0].op_type != "Attention":
            continue
        graph = simplify(from_model(case.model))
        results = case.model.graph.node[0].output
        assert len(attentions(Dataflow.of(graph))) == (len(results) < 4 or not results[3]), case.name
        for inputs, outputs in case.data_sets:
            done = reference(graph, dict(zip(graph.inputs, inputs, strict=True)))
            for name, wanted in zip(graph.outputs, outputs, strict=True):
                unit = (
                    2.0**-6
                    if done[name].dtype.name == "bfloat16"
                    else 2.0**-9
                    if done[name].dtype == np.float16
                    else case.rtol
                )
                np.testing.assert_allclose(
                    done[name].astype(np.float64),
                    wanted.astype(np.float64),
                    rtol=unit,
                    atol=max(case.atol, unit * 1e-2),
                )
        recognised += 1
    assert recognised >= 60
