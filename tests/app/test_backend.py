"""lfopt as an ONNX backend: the interface, and ONNX's own conformance cases that generated C accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.runner import Runner

from benchmarks.bench_conformance import cases, forms
from codegen.source import Unsupported
from lfopt.app.backend import Backend
from lfopt.ir import InvalidConfig, InvalidModel, UnsupportedModel

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)
PICKED = frozenset(
    "Add AveragePool Clip Concat Conv Div Erf Gemm GlobalAveragePool HardSwish MatMul MaxPool Mul Relu "
    "Sigmoid Softmax Sqrt Sub Tanh".split()
)
FEWEST_PICKED, FEWEST = 19, 1400  # cases that generated C accepts: a floor under what it learns
PARTS = 8  # that the cases are run in
ROUNDING = (
    "zeros of a transform, of which the case expects what "
    "NumPy's rounding left, 1.9e-7 at a tolerance of 1e-7"
)
LENGTHS = (
    "align_corners by the length of the result, as ONNX Runtime has it, where the case divides by a "
    "fraction (docs/resize.md)"
)
OFF = {  # cases whose outputs are not within the tolerance, and why
    "test_dft_inverse": ROUNDING,
    "test_dft_inverse_opset19": ROUNDING,
    "test_resize_downsample_scales_cubic_align_corners": LENGTHS,
    "test_resize_downsample_scales_linear_align_corners": LENGTHS,
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.delenv("CC", raising=False)
        yield folder


def one_node(
    kind: str,
    shape: Sequence[int | str] = X.shape,
    inputs: str = "x",
    dtype: int = TensorProto.FLOAT,
    **attributes: Any,
) -> ModelProto:
    ends = [helper.make_tensor_value_info(name, dtype, shape) for name in (*inputs, "y")]
    graph = helper.make_graph(
        [helper.make_node(kind, [*inputs], ["y"], "one", **attributes)], "net", ends[:-1], ends[-1:]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


# -- the interface -------------------------------------------------------------------------------------------


def test_a_prepared_model_takes_inputs_by_position_by_name_or_alone() -> None:
    prepared = Backend.prepare(one_node("Sub", inputs="ab"), "CPU")
    for given in ([X, 2 * X], (X, 2 * X), {"b": 2 * X, "a": X}):
        (y,) = prepared.run(given)
        assert np.array_equal(y, -X)
    outputs = Backend.run_model(one_node("Relu"), X)
    assert np.array_equal(outputs[0], np.maximum(X, 0))
    assert cast("Any", outputs)["y"] is outputs[0]


def test_inputs_that_do_not_fit_are_refused() -> None:
    prepared = Backend.prepare(one_node("Sub", inputs="ab"))
    with pytest.raises(InvalidConfig, match=r"found 1 inputs; accepted: 'a' \(float32"):
        prepared.run([X])
    with pytest.raises(InvalidConfig, match="input 'b': found float64"):
        prepared.run([X, X.astype(np.float64)])
    for given in (None, "x", [[1, 2], [3]], (x for x in (X, X)), X, {"a": X}):
        with pytest.raises(InvalidConfig, match="accepted"):
            prepared.run(given)
    for given in ("m.onnx", None, one_node("Relu").graph):
        with pytest.raises(
            InvalidConfig, match=f"model: found {type(given).__name__}; accepted: an onnx.ModelProto"
        ):
            Backend.prepare(cast("Any", given))


def test_one_operator_runs_on_arrays() -> None:
    (y,) = Backend.run_node(helper.make_node("Mul", ["a", "b"], ["y"]), [X, X])
    assert np.array_equal(y, X * X)
    (y,) = Backend.run_node(
        helper.make_node("Clip", ["x", "", "high"], ["y"]), [X, np.float32(0.5)], opset_version=13
    )
    assert np.array_equal(y, np.minimum(X, np.float32(0.5)))
    conv, weights = (
        helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1]),
        np.arange(6, dtype=np.float32).reshape(2, 3, 1, 1),
    )
    for outputs in (None, [(np.dtype("float32"), (1, 2, 4, 4))]):
        (y,) = Backend.run_node(conv, [X, weights], outputs_info=outputs)
        assert np.allclose(y, np.einsum("nchw,oc->nohw", X, weights[:, :, 0, 0]))
    with pytest.raises(InvalidConfig, match="Conv: found 1 inputs; accepted: 'x', 'w'"):
        Backend.run_node(conv, [X])


def test_what_generated_c_refuses_is_refused_by_name_and_compiles_nothing(cache: Path) -> None:
    before = sorted(cache.rglob("*"))
    refusals = [
        (
            one_node("RandomUniformLike"),
            Unsupported,
            r"node 'one' \(RandomUniformLike\): found an operator that has no kernel",
        ),
        (one_node("Identity", dtype=TensorProto.COMPLEX64), Unsupported, "found type complex64"),
        (one_node("Relu", ("n", 3)), UnsupportedModel, "is not static"),
        (one_node("Identity", inputs="x", unheard_of=1), InvalidModel, "unheard_of"),
    ]
    for model, error, message in refusals:
        with pytest.raises(error, match=message):
            Backend.prepare(model)
        assert not Backend.is_compatible(model)
    assert [path for path in sorted(cache.rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]


def test_to_ask_takes_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "nobody-cc")
    assert Backend.is_compatible(one_node("Relu"))
    assert Backend.is_compatible(one_node("Relu"), "CPU", target="c99")
    assert not Backend.is_compatible(one_node("Relu"), "CPU", threads=2**20)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_floats_come_and_go_as_they_are(kind: int) -> None:
    half = helper.tensor_dtype_to_np_dtype(kind)
    # some are subnormal, and some are not finite
    x = np.concatenate([X.reshape(-1) * 10.0**k for k in range(-9, 6)]).astype(half)
    for target in ("native", "c99"):
        (y,) = Backend.run_model(one_node("Mul", x.shape, "ab", dtype=kind), [x, x], target=target)
        assert y.dtype == half
        wanted = (x.astype(np.float32) * x.astype(np.float32)).astype(half)
        assert np.array_equal(y.astype(np.float32), wanted.astype(np.float32))


def test_it_runs_on_the_cpu_alone() -> None:
    assert Backend.supports_device("CPU")
    assert not Backend.supports_device("CUDA")
    assert not Backend.is_compatible(one_node("Relu"), "CUDA")
    with pytest.raises(InvalidConfig, match="device: found 'CUDA:1'; accepted: CPU"):
        Backend.prepare(one_node("Relu"), "CUDA:1")


# -- ONNX's own cases ----------------------------------------------------------------------------------------


def conformance(chosen: Sequence[Case], most: int | None = None) -> tuple[Counter[str], list[str]]:
    """How many cases of each kind of operator ran (`most` of a kind), and what was wrong with any."""
    ran, wrong = Counter[str](), list[str]()
    for case in chosen:
        assert case.model is not None
        if ran[case.model.graph.node[-1].op_type] == most:
            continue
        form = next((form for form in forms(case) if Backend.is_compatible(form.model)), None)
        if form is None:
            continue
        ran[case.model.graph.node[-1].op_type] += 1
        try:
            Runner.assert_similar_outputs(
                form.outputs, Backend.run_model(form.model, form.inputs), case.rtol, case.atol
            )
        except Exception as error:
            if case.name in OFF:
                print(f"\n{case.name}: not within the tolerance: {OFF[case.name]}")
                continue
            wrong.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return ran, wrong


def test_onnx_s_own_cases_of_common_operators_give_the_expected_outputs() -> None:
    ran, wrong = conformance(
        [
            case
            for case in cases("node")
            if case.model and len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in PICKED
        ],
        most=1,
    )
    assert not wrong, "\n".join(wrong)
    assert ran.total() >= FEWEST_PICKED, ran


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_conformance_case_that_is_accepted_gives_the_expected_outputs(part: int) -> None:
    chosen = cases("node")[part::PARTS]
    ran, wrong = conformance(chosen)
    print(
        f"\n{len(chosen)} cases: {ran.total() - len(wrong)} pass, {len(wrong)} fail, "
        f"{len(chosen) - ran.total()} refused"
    )
    assert not wrong, "\n".join(wrong)
    assert ran.total() >= FEWEST / PARTS, ran
