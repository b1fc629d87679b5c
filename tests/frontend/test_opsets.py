"""What older opsets spelled otherwise means the same after import."""

import numpy as np
import onnx
import pytest
from onnx.helper import make_function, make_node, make_opsetid

from lfopt.frontend import from_model, to_model
from lfopt.ir import UnsupportedModel
from lfopt.rewrite import simplify
from tests.frontend.oracle import assert_close, newest_opset_of_onnxruntime, random_feeds, run
from tests.frontend.small_models import NEWEST, build, extra_forms, floats, legacy_forms, one, with_functions

FORMS: dict[int, list] = {}
for _name, _model in legacy_forms():
    FORMS.setdefault(int(_name.rsplit("-", 1)[1]), []).append((_name, _model))


@pytest.mark.parametrize("opset", FORMS)
def test_every_form_imports_and_keeps_its_values(opset):
    graphs = {name: (model, from_model(model)) for name, model in FORMS[opset]}
    if opset > 27:
        pytest.skip("imported; onnxruntime has no such opset to compare with")
    for name, (model, graph) in graphs.items():
        feeds = random_feeds(graph)
        wanted = run(model, feeds)
        for network in (graph, simplify(graph)):
            assert_close(run(newest_opset_of_onnxruntime(to_model(network)), feeds), wanted, what=name)


def test_the_forms_reach_from_the_oldest_opset_to_the_newest():
    assert set(FORMS) == set(range(7, NEWEST + 1))


@pytest.mark.parametrize("opset", [0, -1, NEWEST + 1, 1 << 40])
def test_other_opsets_are_refused_with_the_range_that_is_read(opset):
    model = one("Relu", (2, 3), opset=13)
    model.opset_import[0].version = opset
    with pytest.raises(UnsupportedModel, match=rf"opset {opset}; lfopt reads 1 to {NEWEST}"):
        from_model(model)


def test_no_opset_import_or_two_are_refused():
    model = one("Relu", (2, 3), opset=13)
    model.opset_import.add(domain="ai.onnx", version=12)
    with pytest.raises(UnsupportedModel, match="opset 13 and 12"):
        from_model(model)
    del model.opset_import[:]
    with pytest.raises(UnsupportedModel, match="opset not declared"):
        from_model(model)


def test_a_resize_of_opset_10_inside_a_function_keeps_its_coordinates():
    scales = make_node(
        "Constant", [], ["s"], value=onnx.numpy_helper.from_array(np.array([1, 1, 1.5, 2.5], np.float32))
    )
    body = [scales, make_node("Resize", ["a", "s"], ["b"], mode="nearest")]
    function = make_function("mine", "Grow", ["a"], ["b"], body, [make_opsetid("", 10)])
    called = with_functions(
        build(
            [make_node("Grow", ["x"], ["y"], domain="mine")], {"x": (1, 2, 5, 7)}, opset=10, domains=["mine"]
        ),
        function,
    )
    plain = one("Resize", (1, 2, 5, 7), np.array([1, 1, 1.5, 2.5], np.float32), opset=10, mode="nearest")
    operator, wanted = (
        next(op for op in from_model(m).operators if op.kind == "Resize") for m in (called, plain)
    )
    assert operator.attributes == wanted.attributes
    assert operator.attributes["coordinate_transformation_mode"] == "asymmetric"


def test_a_resize_of_opset_10_whose_scales_are_computed_shrinks_with_ceil():
    nodes = [
        make_node("Concat", ["one", "half"], ["s"], axis=0),
        make_node("Resize", ["x", "s"], ["y"], mode="nearest"),
    ]
    ones = {"one": np.ones(2, np.float32), "half": np.full(2, 0.6, np.float32)}
    model = build(nodes, {"x": (1, 2, 5, 7)}, ones, opset=10)
    graph = from_model(model)
    feeds = random_feeds(graph)
    assert_close(run(newest_opset_of_onnxruntime(to_model(graph)), feeds), run(model, feeds))


def test_a_nearest_resize_of_opset_10_that_grows_and_shrinks_is_refused():
    with pytest.raises(UnsupportedModel, match="growing or shrinking, not both"):
        from_model(
            one("Resize", (1, 2, 6, 6), np.array([1, 1, 2, 0.5], np.float32), opset=10, mode="nearest")
        )


@pytest.mark.parametrize(
    ("name", "model"), list(extra_forms()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_operators_whose_shapes_hang_on_constants_keep_their_values(name, model):
    try:
        graph = from_model(model)
    except UnsupportedModel:
        assert name.startswith("nms")
        return
    if name.startswith(("stranger", "unregistered", "external", "roialign", "strings")):
        return  # nothing to compare with: no values, or none that onnxruntime computes
    feeds = random_feeds(graph)
    wanted = run(newest_opset_of_onnxruntime(model), feeds)
    assert_close(run(newest_opset_of_onnxruntime(to_model(graph)), feeds), wanted)


def test_training_is_refused():
    dropout = one("Dropout", (2, 3), np.array(0.5, np.float32), np.array([True]).reshape(()), opset=13)
    with pytest.raises(UnsupportedModel, match=r"\(Dropout\): training mode is not supported"):
        from_model(dropout)


def test_a_dropout_that_drops_nothing_has_a_mask_that_keeps_all():
    model = build(
        [make_node("Dropout", ["x"], ["y", "m"]), make_node("Where", ["m", "x", "y"], ["z"])],
        {"x": (2, 3)},
        opset=13,
    )
    graph = from_model(model)
    feeds = random_feeds(graph)
    assert_close(run(newest_opset_of_onnxruntime(to_model(graph)), feeds), run(model, feeds))
    assert all(value is not None and value.all() for value in graph.constants.values())


def test_an_output_that_nobody_reads_is_kept_where_onnx_wants_it():
    model = build(
        [make_node("Split", ["x"], ["a", "b", "c"], axis=1, num_outputs=3), make_node("Relu", ["a"], ["y"])],
        {"x": (2, 6)},
        opset=18,
    )
    graph = from_model(model)
    assert graph.operators[0].outputs == ("a", "", "")
    feeds = random_feeds(graph)
    assert_close(run(newest_opset_of_onnxruntime(to_model(graph)), feeds), run(model, feeds))


def test_initializers_may_or_may_not_be_listed_as_inputs():
    graph = from_model(one("Conv", (1, 4, 6, 6), floats(8, 4, 3, 3), opset=8))
    assert graph.inputs == ("x",)
    assert graph.constants.keys() == {"c0"}
