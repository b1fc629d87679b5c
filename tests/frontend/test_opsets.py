"""What older opsets spelled otherwise means the same after import."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx.helper import make_function, make_node, make_opsetid

from lfopt.frontend import from_model, to_model
from lfopt.ir import Graph, LfoptError, UnsupportedModel
from lfopt.ir.names import one_line
from lfopt.ops.fixed_point import quantized
from lfopt.ops.reference import reference
from tests.frontend.judges import difference, judged
from tests.frontend.oracle import assert_close, newest_opset_of_onnxruntime, random_feeds, run
from tests.frontend.schema_cases import Case, every_case, sampled, versions
from tests.frontend.small_models import NEWEST, build, extra_forms, floats, one, with_functions

PARTS = 20  # that all cases are tried in
SHARE = 10  # of which every time one is tried
FEWEST, FEWEST_EQUAL = 10_000, 0.95  # cases, and the share of them whose numbers are equal
# Outputs that are not the judge's, and why.
OFF = {"MaxUnpool": "ONNX Runtime takes indices as those of output_shape; ONNX's own case as lfopt does"}


def verdict(case: Case) -> tuple[str, str]:
    """("equal", judge), ("refused", message) or ("wrong", how).

    Anything that is not lfopt's error is raised.
    """
    model = case.model()
    try:
        graph = from_model(model)
        feeds = {name: quantised(graph, name, value) for name, value in case.feeds.items()}
        outputs = [*reference(graph, feeds).values()]
    except LfoptError as error:
        return "refused", str(error)
    try:
        judge, wanted = judged(case, model)
    except Exception as error:
        return "wrong", f"{case}: computed, and no judge has numbers: {one_line(error)[:200]}"
    said = [difference(case, judge, one, other) for one, other in zip(outputs, wanted, strict=True)]
    if any(said) and not (case.kind in OFF and len(case.operands) > 2):
        return "wrong", f"{case}: by {judge}: {'; '.join(filter(None, said))}"
    return "equal", judge


def quantised(graph: Graph, name: str, value: np.ndarray) -> np.ndarray:
    """An input as the graph takes it: where it holds integers for real numbers, these."""
    tensor = graph.tensors[name]
    if tensor.quantization is None or value.dtype.name == tensor.dtype:
        return value
    return quantized(value, tensor.quantization, tensor.dtype)


def tried(cases: Sequence[Case]) -> Counter[str]:
    """Verdicts, counted; the test fails where one is wrong, or a refusal is not one line of lfopt's."""
    counts, wrong, reasons = Counter[str](), list[str](), Counter[str]()
    for case in cases:
        what, said = verdict(case)
        counts[what] += 1
        if what == "refused":
            reasons[re.sub(r"\d+|'[^']*'", "#", said)] += 1
            if "\n" in said or not re.search(rf"{case.kind}|'[xy]\d'", said) or FOREIGN.search(said):
                wrong.append(f"{case}: refused with {said!r}")
        elif what == "wrong":
            wrong.append(said)
        else:
            counts[said] += 1
    print(
        f"\n{len(cases)} cases: {dict(counts)}",
        *(f"{n:6} {text[:150]}" for text, n in reasons.most_common()),
        sep="\n",
    )
    assert not wrong, "\n".join(wrong)
    return counts


FOREIGN = re.compile(r"ShapeInference|typestr|\.cc:|\.h:|Traceback|op_type:|==>")


def test_every_version_of_every_operator_has_cases():
    tried_versions: dict[str, set[int]] = {}
    cases = every_case()
    for case in cases:
        tried_versions.setdefault(case.kind, set()).add(case.opset)
    assert len(cases) >= FEWEST
    assert {kind for kind in versions() if kind not in tried_versions} == WITHOUT_CASES
    for kind, opsets in tried_versions.items():
        assert opsets >= {*versions()[kind]}, kind


# operators on sequences, with graphs inside, or defined by long functions: tests/frontend/test_bodies.py and
# ONNX's own cases (tests/app/test_backend.py) have them
WITHOUT_CASES = {
    *"""CausalConvWithState ConcatFromSequence If LinearAttention Loop Optional OptionalGetElement
    OptionalHasElement Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap SplitToSequence TfIdfVectorizer""".split()
}


@pytest.mark.parametrize("half", [0, 1])
def test_a_tenth_of_the_operators_of_all_opsets_mean_what_they_mean_elsewhere(half):
    counts = tried(sampled(SHARE)[half::2])
    assert counts["equal"] > FEWEST_EQUAL * (counts["equal"] + counts["refused"])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_of_all_opsets_mean_what_they_mean_elsewhere(part):
    tried(every_case()[part::PARTS])


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


def test_a_nearest_resize_of_opset_10_may_grow_and_shrink():
    model = one("Resize", (1, 2, 6, 6), np.array([1, 1, 2, 0.5], np.float32), opset=10, mode="nearest")
    graph = from_model(model)
    feeds = random_feeds(graph)
    assert_close(run(newest_opset_of_onnxruntime(to_model(graph)), feeds), run(model, feeds))


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
