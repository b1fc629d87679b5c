"""Operators of constants alone are constants, with ONNX Runtime's values, in bounded time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_graph, make_node, make_tensor_value_info

from benchmarks.bench_conformance import cases as conformance_cases
from lfopt.app.backend import bound
from lfopt.frontend import from_model
from lfopt.frontend.fold import MAX_BYTES
from lfopt.ir import LfoptError, UnsupportedModel
from tests.frontend.oracle import run
from tests.frontend.small_models import build, floats, ints
from tests.operators import ARITHMETIC, FAMILIES, RUNTIME_OPSET, Case, cases

PER_FAMILY = 10  # cases of each family of operators
PARTS = 8  # that ONNX's own cases are run in
NATIVE = [
    getattr(TensorProto, name)
    for name in "FLOAT DOUBLE FLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL".split()
]
LOOSE = ("dft", "stft", "fp16", "bf16", "softmax_precision")  # names of cases that round more


def differs(given: np.ndarray, wanted: np.ndarray, relative: float) -> str:
    """In what a constant is not what is wanted; "" where it is. Floats: `relative` of the largest."""
    if given.dtype.kind in "OSU":
        return "" if [*map(str, given.flat)] == [*map(str, wanted.flat)] else "texts"
    if given.dtype != wanted.dtype and given.dtype.itemsize == wanted.dtype.itemsize:
        wanted = wanted.view(given.dtype)  # ONNX Runtime gives 8-bit floats as bytes
    if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
        return f"{given.dtype} {given.shape}; wanted {wanted.dtype} {wanted.shape}"
    if given.dtype.kind not in "fV":
        return "" if np.array_equal(given, wanted) else f"{(given != wanted).sum()} of {given.size}"
    one, other = given.astype(np.float64), wanted.astype(np.float64)
    scale = np.abs(other[np.isfinite(other)]).max(initial=1e-6)
    with np.errstate(invalid="ignore"):
        equal = (np.abs(one - other) <= relative * scale) | (one == other) | (np.isnan(one) & np.isnan(other))
    return "" if equal.all() else f"{(~equal).sum()} of {given.size}"


def folded(model: ModelProto) -> list[np.ndarray]:
    """Values of the outputs, all of which are constants."""
    graph = from_model(model)
    assert graph.operators == ()
    values = [graph.constants[name] for name in graph.outputs]
    assert all(value is not None for value in values), graph.notes
    return [value for value in values if value is not None]


def single(case: Case) -> tuple[ModelProto, ModelProto, dict[str, np.ndarray]]:
    """(model of constants alone, the case's own model, its inputs)."""
    types = [helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)) for tensor in case.results()]
    constant = Case(
        case.kind, case.operands, case.attributes, (*range(len(case.operands)),), outputs=case.outputs
    )
    models = constant.model(RUNTIME_OPSET), case.model(RUNTIME_OPSET)
    for model in models:
        for value, kind in zip(model.graph.output, types, strict=True):
            value.CopyFrom(make_tensor_value_info(value.name, kind, None))
    feeds = {f"x{i}": v for i, v in enumerate(case.operands) if v is not None and i not in case.constant}
    return *models, feeds


def of_families(per_family: int) -> list[str]:
    """What is wrong with constants of operators drawn from every family of the table."""
    wrong: list[str] = []
    for family in FAMILIES + ARITHMETIC:
        for case in cases(family, per_family):
            if case.reference:  # what ONNX Runtime itself gets wrong
                continue
            model, original, feeds = single(replace(case, hidden=()))
            try:
                wanted = run(original, feeds)
            except Exception:  # it has no such operator
                continue
            for given, want in zip(folded(model), wanted, strict=True):
                if reason := differs(given, np.asarray(want), 2e-3 if given.dtype.itemsize < 4 else 1e-5):
                    wrong.append(f"{case}: {reason}")
    return wrong


def test_constants_of_every_family_are_those_of_onnxruntime():
    assert of_families(1) == []


@pytest.mark.slow
def test_all_constants_of_every_family_are_those_of_onnxruntime():
    assert of_families(PER_FAMILY) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_onnx_s_own_cases_over_constants_are_constants(part):
    """Every operator of ONNX's schemas: what is not folded is random, or refused in one line.

    Values are ONNX Runtime's, or where it departs from ONNX those that the case expects.
    """
    count, wrong = 0, []
    for case in conformance_cases("node")[part::PARTS]:
        if case.model is None or not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        if not all(isinstance(value, np.ndarray | np.generic) for value in inputs):
            continue  # sequences
        names = [value.name for value in case.model.graph.input]
        model = bound(case.model, dict(zip(names, map(np.asarray, inputs), strict=True)))
        try:
            graph = from_model(model)
        except LfoptError:
            continue
        if any("Random" in op.kind or op.kind in ("Bernoulli", "FlexAttention") for op in graph.operators):
            continue
        count += 1
        expected = [
            numpy_helper.to_array(v) if isinstance(v, TensorProto) else np.asarray(v) for v in outputs
        ]
        judges = [(expected, 5e-3)]  # cases are written down with four digits
        with suppress(Exception):  # an operator or a type that ONNX Runtime has not
            loose = any(word in case.name for word in LOOSE)
            judges.append((run(model, {}), 5e-3 if loose else 1e-5))
        for k, name in enumerate(graph.outputs):
            value = graph.constants.get(name)
            if value is None:
                wrong.append(f"{case.name}: no values")
            elif all(reasons := [differs(value, judge[k], near) for judge, near in judges]):
                wrong.append(f"{case.name}: {reasons}")
    assert wrong == []
    assert count > 150


@pytest.mark.parametrize(
    "sources", [pytest.param(NATIVE[:1], id="float32"), pytest.param(NATIVE[1:], marks=pytest.mark.slow)]
)
def test_casts_of_constants_round_as_onnxruntime_does(sources):
    halves = [0.5, 1.5, 2.5, 3.7, 100.49, 127, 0.1, 1e-6, 2049, 2051, 65519, 1.00048828125, 1e-40]
    for source in sources:
        kind = helper.tensor_dtype_to_np_dtype(source)
        signs = [1, -1] if kind.kind in "if" else [1]
        with np.errstate(all="ignore"):
            values = np.array([sign * value for sign in signs for value in halves]).astype(kind)
        for target in NATIVE:
            into = helper.tensor_dtype_to_np_dtype(target)
            within = values
            if into.kind in "iu" and kind.kind == "f":
                low, high = np.iinfo(into).min, np.iinfo(into).max
                wide = values.astype(np.float64)
                within = values[(wide >= low) & (wide <= high)]
            node = make_node("Cast", ["c"], ["y"], to=target)
            graph = make_graph(
                [node], "cast", [], [make_tensor_value_info("y", target, None)],
                [numpy_helper.from_array(within, "c")],
            )  # fmt: skip
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
            (given,), (wanted,) = folded(model), run(model, {})
            assert given.dtype == wanted.dtype
            assert given.tobytes() == wanted.tobytes(), (kind, into)


# -- absent values, and graphs inside of operators -----------------------------------------------------------


def added(*nodes: NodeProto, opset: int = 20, **constants: np.ndarray) -> ModelProto:
    """x + c, where nodes make c of constants."""
    return build([*nodes, make_node("Add", ["x", "c"], ["y"])], {"x": (1,)}, constants, opset=opset)


def body(*nodes: NodeProto, inputs: Mapping[str, int], outputs: Mapping[str, int], shape: Sequence[int]):
    return make_graph(
        nodes,
        "body",
        [make_tensor_value_info(n, t, [] if n in ("k", "go") else shape) for n, t in inputs.items()],
        [make_tensor_value_info(n, t, [] if n == "on" else shape) for n, t in outputs.items()],
    )


def loops() -> dict[str, tuple[ModelProto, np.ndarray]]:
    """Models of a constant c that graphs inside of operators make, and c."""
    step = body(
        make_node("Add", ["s", "w"], ["t"]), make_node("Identity", ["go"], ["on"]),
        inputs={"k": TensorProto.INT64, "go": TensorProto.BOOL, "s": 1},
        outputs={"on": TensorProto.BOOL, "t": 1}, shape=[1],
    )  # fmt: skip
    until = body(
        make_node("Add", ["s", "w"], ["t"]), make_node("ReduceMax", ["t"], ["m"], keepdims=0),
        make_node("Less", ["m", "ten"], ["on"]),
        inputs={"k": TensorProto.INT64, "go": TensorProto.BOOL, "s": 1},
        outputs={"on": TensorProto.BOOL, "t": 1}, shape=[1],
    )  # fmt: skip
    scan = body(
        make_node("Add", ["s", "v"], ["t"]), make_node("Identity", ["t"], ["u"]),
        inputs={"s": 1, "v": 1}, outputs={"t": 1, "u": 1}, shape=[1],
    )  # fmt: skip
    yes, no = (
        make_graph([make_node(kind, ["s0"], ["b"])], kind, [], [make_tensor_value_info("b", 1, [1])])
        for kind in ("Neg", "Abs")
    )
    given: dict[str, Any] = {
        "s0": np.array([2], np.float32),
        "w": np.array([1.5], np.float32),
        "ten": np.float32(10),
    }
    return {
        "Loop": (
            added(make_node("Loop", ["n", "", "s0"], ["c"], body=step), n=np.array(30), **given),
            np.array([2 + 30 * 1.5], np.float32),
        ),
        "Loop until a condition": (
            added(make_node("Loop", ["", "true", "s0"], ["c"], body=until), true=np.ones((), bool), **given),
            np.array([11], np.float32),
        ),
        "Scan": (
            added(
                make_node("Scan", ["s0", "v"], ["c", "d"], body=scan, num_scan_inputs=1),
                v=np.arange(9, dtype=np.float32).reshape(9, 1), **given,
            ),
            np.array([38], np.float32),
        ),
        "If": (
            added(
                make_node("If", ["true"], ["c"], then_branch=yes, else_branch=no),
                true=np.ones((), bool), **given,
            ),
            np.array([-2], np.float32),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", loops())
def test_graphs_inside_of_operators_over_constants_are_constants(name):
    model, wanted = loops()[name]
    graph = from_model(model)
    assert [op.kind for op in graph.operators] == ["Add"]
    (value,) = (graph.constants[name] for name in graph.operators[0].inputs[1:])
    assert np.array_equal(np.asarray(value), wanted)


@pytest.mark.slow
def test_a_loop_over_constants_may_have_more_iterations_than_one_that_leaves_operators():
    model, _ = loops()["Loop"]
    (count,) = (tensor for tensor in model.graph.initializer if tensor.name == "n")
    count.CopyFrom(numpy_helper.from_array(np.array(1500), "n"))
    (value,) = (value for value in from_model(model).constants.values() if value is not None)
    assert value == 2 + 1500 * 1.5


def without_values(model: ModelProto) -> ModelProto:
    """The model with the floats among its constants in a file that is not there."""
    copy = ModelProto.FromString(model.SerializeToString())
    for tensor in copy.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="gone")
    return copy


@pytest.mark.parametrize(
    "nodes",
    [
        [make_node("Einsum", ["a", "b"], ["p"], equation="i,j->ij"), make_node("ReduceSum", ["p"], ["c"])],
        [make_node("Conv", ["t", "f"], ["p"]), make_node("GlobalMaxPool", ["p"], ["c"])],
        [make_node("GatherND", ["a", "i"], ["c"])],
        [make_node("TopK", ["a", "k"], ["c", "places"])],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
def test_a_graph_without_weights_and_its_filled_copy_give_the_same_operators(nodes):
    constants = {
        "a": floats(3), "b": floats(4), "t": floats(1, 2, 4, 4), "f": floats(3, 2, 1, 1),
        "i": ints(2).reshape(1, 1), "k": ints(1),
    }  # fmt: skip
    used = {name for node in nodes for name in node.input}
    model = added(*nodes, **{name: value for name, value in constants.items() if name in used})
    filled, bare = from_model(model), from_model(without_values(model))
    assert [op.kind for op in filled.operators] == ["Add"]
    assert filled.has_values
    assert filled.operators == bare.operators
    assert filled.tensors == bare.tensors
    assert not bare.has_values


def test_what_onnx_s_reference_refuses_is_one_line():
    model = added(make_node("Gather", ["a", "i"], ["c"]), a=floats(3), i=ints(9))
    with pytest.raises(
        LfoptError, match=r"^model: node 'c' \(Gather\): a constant that cannot be computed: "
    ):
        from_model(model)


# -- memory --------------------------------------------------------------------------------------------------

FEW_BYTES = 64 << 20  # that refusing a constant may take
MANY = 1 << 29
ONES: dict[str, Any] = {"s": ints(MANY)}  # of a ConstantOfShape, which keeps one number
FILL = make_node("ConstantOfShape", ["s"], ["e"])
LARGE: dict[str, Callable[[], ModelProto]] = {
    "OneHot of a computed index": lambda: build(
        [make_node("Cast", ["x"], ["i"], to=7), make_node("OneHot", ["i", "d", "v"], ["y"])],
        {"x": (1, 4)}, {"d": np.array(2_000_000_000), "v": np.array([0, 1], np.float32)}, opset=17,
    ),
    "Range": lambda: added(
        make_node("Range", ["a", "b", "d"], ["c"]), a=np.array(0), b=np.array(3_000_000_000), d=np.array(1)
    ),
    "Tile": lambda: added(make_node("Tile", ["a", "n"], ["c"]), a=floats(1), n=ints(1 << 33)),
    "Pad": lambda: added(make_node("Pad", ["a", "n"], ["c"]), a=floats(1), n=ints(1 << 33, 0)),
    "Sin": lambda: added(FILL, make_node("Sin", ["e"], ["c"]), **ONES),
    "TopK": lambda: added(FILL, make_node("TopK", ["e", "s"], ["c", "i"]), **ONES),
    "ReduceSum": lambda: added(FILL, make_node("ReduceSum", ["e"], ["c"]), **ONES),
    "NonZero": lambda: added(FILL, make_node("NonZero", ["e"], ["c"]), **ONES),
    "Unique": lambda: added(FILL, make_node("Unique", ["e"], ["c"]), **ONES),
    "Split": lambda: added(FILL, make_node("Split", ["e"], ["c", "d"], num_outputs=2), **ONES),
    "Concat": lambda: added(FILL, make_node("Concat", ["e"] * 4, ["c"], axis=0), **ONES),
    "ScatterND": lambda: added(
        FILL, make_node("ScatterND", ["e", "i", "u"], ["c"]), i=ints(0).reshape(1, 1), u=floats(1), **ONES
    ),
    "MatMul": lambda: added(
        make_node("MatMul", ["a", "b"], ["c"]), a=floats(1 << 16, 1), b=floats(1, 1 << 16)
    ),
    "Einsum": lambda: added(
        make_node("Einsum", ["a", "a"], ["c"], equation="i,j->ij"), a=floats(1 << 16)
    ),
    "maps between the axes of a Resize": lambda: added(
        make_node("Resize", ["a", "", "", "n"], ["c"], mode="linear"),
        a=floats(1, 1, 1, 1 << 15), n=ints(1, 1, 1 << 20, 1),
    ),
    "padding of a Conv": lambda: added(
        make_node("Conv", ["a", "w"], ["c"], pads=[1 << 15] * 4, strides=[1 << 12] * 2),
        a=floats(1, 1, 4, 4), w=floats(1, 1, 1, 1),
    ),
    "the kernel of an AveragePool": lambda: added(
        make_node("AveragePool", ["a"], ["c"], kernel_shape=[1 << 30, 1], pads=[1 << 29, 0, 1 << 29, 0]),
        a=floats(1, 1, 4, 4),
    ),
    "samples of a RoiAlign": lambda: added(
        make_node("RoiAlign", ["a", "r", "i"], ["c"]),
        a=floats(1, 1, 4, 4), r=np.array([[0, 0, 1e9, 1e9]], np.float32), i=ints(0),
    ),
    "MaxUnpool": lambda: build(
        [make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[1, 1], strides=[1 << 14] * 2)],
        {"x": (1, 1, 4, 4)}, {"i": np.zeros((1, 1, 4, 4), np.int64)}, opset=20,
    ),
    "Compress": lambda: build(
        [
            make_node(
                "ConstantOfShape", ["s"], ["e"],
                value=helper.make_tensor("v", TensorProto.BOOL, [1], [True]),
            ),
            make_node("Compress", ["x", "e"], ["y"], axis=0),
        ],
        {"x": (MANY,)}, ONES, opset=20,
    ),
    "ReverseSequence": lambda: build(
        [make_node("ReverseSequence", ["x", "l"], ["y"])], {"x": (1 << 31, 1)}, {"l": ints(4)}, opset=20
    ),
    "the mask of a Dropout": lambda: build(
        [make_node("Dropout", ["x"], ["d", "m"]), make_node("Cast", ["m"], ["y"], to=1)],
        {"x": (1 << 32,)}, opset=20,
    ),
    "HannWindow": lambda: added(make_node("HannWindow", ["n"], ["c"]), n=np.array(MANY)),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_constants_beyond_the_limit_are_refused_before_they_are_made(name):
    model = LARGE[name]()
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedModel) as refused:
            from_model(model, label="m.onnx")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(refused.value).startswith("m.onnx: node '")
    assert ": a constant of shape " in str(refused.value)
    assert str(refused.value).endswith(
        f"accepted: constants made at load that take up to {MAX_BYTES:,} B together"
    )
    assert peak < FEW_BYTES


@pytest.mark.parametrize(
    "model",
    [
        lambda: added(
            make_node("Einsum", ["a", "a", "a"], ["c"], equation="ij,jk,ki->"), a=floats(1500, 1500)
        ),
        lambda: added(
            make_node("Expand", ["b", "n"], ["boxes"]), make_node("Expand", ["p", "m"], ["scores"]),
            make_node("NonMaxSuppression", ["boxes", "scores", "k"], ["kept"]),
            make_node("Cast", ["kept"], ["c"], to=TensorProto.FLOAT),
            b=floats(1, 1, 4), n=ints(1, 1 << 14, 4), p=floats(1, 1, 1), m=ints(1, 1, 1 << 14), k=ints(9),
        ),
    ],
    ids=["Einsum", "NonMaxSuppression"],
)  # fmt: skip
def test_constants_that_take_too_long_are_refused(model):
    with pytest.raises(
        UnsupportedModel, match=r"a constant that takes [\d,]+ steps; accepted: constants made"
    ):
        from_model(model())


def test_weights_that_only_change_their_shape_or_order_count_as_nothing():
    weight = np.broadcast_to(np.float32(1), (1 << 15, 1 << 14))  # 2 GiB
    nodes = [make_node("Transpose", ["w"], ["t"]), make_node("Reshape", ["t", "n"], ["c"])]
    model = added(
        make_node("Expand", ["one", "s"], ["w"]), *nodes, one=floats(1), s=ints(*weight.shape), n=ints(-1, 1)
    )
    (operator,) = from_model(model).operators
    assert operator.kind == "Add"
