"""Float32 goes into quantised networks and comes out where the file says so, with ONNX Runtime's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

import lfopt
from lfopt.app.backend import Backend
from lfopt.frontend import from_model, load, to_model
from lfopt.ir import InvalidConfig, Quantization
from lfopt.rewrite import simplify
from tests.app.conftest import one_shape
from tests.qdq_models import run

NETWORKS = 60  # drawn
SHAPE = (1, 4, 6, 5)
ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40]  # among the elements of inputs
NOT_A_NUMBER = (9,)  # seeds of networks that show what becomes of a NaN
HALVES = np.arange(-20, 20) / 2


class Drawn:
    """A random quantised network: integers between operators, real numbers or integers at its ends."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.dtype = str(rng.choice(["int8", "uint8"]))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self.exact = True  # no sums, which lfopt and ONNX Runtime add up differently

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [*inputs], [name], name, **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def scale(self) -> tuple[str, str]:
        """Names of a scale and a zero point."""
        low = np.iinfo(self.dtype).min
        zero = low + int(self.rng.integers(100, 150))
        scale = np.float32(self.rng.choice([0.25, 0.1, 0.037]))
        return self.constant(np.asarray(scale)), self.constant(np.array(zero, self.dtype))

    def input(self, by: tuple[str, str]) -> str:
        """Real numbers behind an input: of floats, quantised; or of integers."""
        name = f"in{len(self.inputs)}"
        if self.rng.random() < 0.3:
            self.inputs[name] = self.dtype
            return self.node("DequantizeLinear", name, *by)
        self.inputs[name] = "float32"
        return self.node("DequantizeLinear", self.node("QuantizeLinear", name, *by), *by)

    def weight(self) -> str:
        held = self.constant(self.rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8))
        scales = self.constant(self.rng.uniform(0.002, 0.02, 4).astype(np.float32))
        return self.node("DequantizeLinear", held, scales, self.constant(np.zeros(4, np.int8)), axis=0)

    def layer(self, x: str, by: tuple[str, str]) -> tuple[str, tuple[str, str]]:
        """Real numbers behind an operator, quantised anew or with the scale that they have."""
        kind = self.rng.choice(["Conv", "MaxPool", "Relu", "Transpose", "Add"])
        if kind == "MaxPool":
            result = self.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
        elif kind == "Transpose":
            result = self.node("Transpose", self.node("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
        elif kind == "Relu":
            result = self.node("Relu", x)
        else:
            self.exact = False
            by = self.scale()
            result = (
                self.node("Conv", x, self.weight(), pads=[1] * 4)
                if kind == "Conv"
                else self.node("Add", x, self.input(self.scale()))
            )
        return self.node("DequantizeLinear", self.node("QuantizeLinear", result, *by), *by), by

    def end(self, x: str, by: tuple[str, str]) -> None:
        """Outputs of real numbers, of integers, or of both."""
        which = self.rng.integers(3)
        if which != 1:
            self.outputs[x] = "float32"
        if which:
            self.outputs[self.node("QuantizeLinear", x, *by)] = self.dtype

    def model(self) -> ModelProto:
        by = self.scale()
        x = self.input(by)
        first = self.nodes[0].input[0]
        for _ in range(int(self.rng.integers(1, 4))):
            x, by = self.layer(x, by)
        self.end(x, by)
        if self.rng.random() < 0.3 and self.inputs[first] == "float32":  # read by another scale as well
            other = self.scale()
            self.end(self.node("DequantizeLinear", self.node("QuantizeLinear", first, *other), *other), other)
        inputs, outputs = (
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), SHAPE)
                for name, dtype in ends.items()
            ]
            for ends in (self.inputs, self.outputs)
        )
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "drawn", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def feeds(self) -> dict[str, np.ndarray]:
        """Inputs by name: halves of steps and odd values among them."""
        feeds: dict[str, np.ndarray] = {}
        for name, dtype in self.inputs.items():
            if dtype == "float32":
                value = self.rng.standard_normal(SHAPE).astype(np.float32) * 4
                value.reshape(-1)[: HALVES.size] = HALVES * 0.25
                if self.exact:
                    value.reshape(-1)[-len(ODD) :] = ODD
            else:
                limits = np.iinfo(dtype)
                value = self.rng.integers(limits.min, limits.max + 1, SHAPE).astype(dtype)
            feeds[name] = value
        return feeds


def compared(
    seeds: Iterable[int], outputs_of: Callable[[ModelProto, dict[str, np.ndarray]], Any]
) -> Iterator[str]:
    """What is wrong with the outputs of drawn networks."""
    for seed in seeds:
        drawn = Drawn(np.random.default_rng(seed))
        model = drawn.model()
        feeds = drawn.feeds()
        wanted, given = run(model, feeds), outputs_of(model, feeds)
        for name, want in wanted.items():
            value = given[name]
            if (value.dtype, value.shape) != (want.dtype, want.shape):
                yield f"{seed}: {name}: {value.dtype} {value.shape}; wanted {want.dtype} {want.shape}"
                continue
            apart = np.abs(value.astype(np.float64) - want.astype(np.float64))
            step = 1 if want.dtype.kind in "iu" else 0.2501
            # sums may be rounded to the other side, and what follows a MaxPool with them
            if apart.max() > (0 if drawn.exact else 2 * step):
                yield f"{seed}: {name}: {(apart > 0).sum()} of {apart.size} by up to {apart.max()}"


def executed(model: ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    graph = simplify(from_model(model))
    plan = lfopt.search(graph, buffer="64KiB", element_bytes=1, scheme="lbdf", objective="bytes")
    return dict(lfopt.execute(plan, feeds).outputs)


def compiled(model: ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return one_shape(model, target="c99").run(feeds)


def test_executed_networks_take_and_give_what_the_file_says():
    assert [*compared((*range(NETWORKS // 20), *NOT_A_NUMBER), executed)] == []


@pytest.mark.slow
def test_all_drawn_networks_take_and_give_what_the_file_says():
    assert [*compared(range(NETWORKS), executed)] == []


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_compiled_networks_take_and_give_what_the_file_says():
    assert [*compared(range(NETWORKS), compiled)] == []


def small() -> tuple[ModelProto, Drawn]:
    """MaxPool between floats, and a second input of int8."""
    drawn = Drawn(np.random.default_rng(0))
    drawn.dtype = "int8"
    by = drawn.constant(np.array(0.25, np.float32)), drawn.constant(np.array(3, np.int8))
    drawn.inputs = {"x": "float32", "k": "int8"}
    x = drawn.node("DequantizeLinear", drawn.node("QuantizeLinear", "x", *by), *by)
    k = drawn.node("DequantizeLinear", "k", *by)
    both = drawn.node("Concat", x, k, axis=1)
    held = [
        drawn.node("QuantizeLinear", drawn.node("MaxPool", x, kernel_shape=[2, 2], pads=pads), *by)
        for x, pads in ((both, [0, 0, 1, 1]), (both, [1, 1, 0, 0]))
    ]
    drawn.outputs = {drawn.node("DequantizeLinear", held[0], *by): "float32", held[1]: "int8"}
    nodes = drawn.nodes
    inputs, outputs = (
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, dtype in ends.items()
        ]
        for ends, shape in ((drawn.inputs, SHAPE), (drawn.outputs, (1, 8, 6, 5)))
    )
    constants = [numpy_helper.from_array(value, name) for name, value in drawn.constants.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), drawn


def test_every_way_in_takes_floats_and_gives_them_back(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """compile, InferenceSession, the backend, `lfopt run`, `lfopt search` and `execute`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, drawn = small()
    feeds = drawn.feeds()
    wanted = run(model, feeds)
    by = Quantization((0.25,), (3,))

    program = one_shape(model, target="c99")
    assert [(t.name, t.dtype, t.quantization) for t in program.inputs] == [
        ("x", "float32", by),
        ("k", "int8", by),
    ]
    assert [t.dtype for t in program.stored_inputs] == ["int8", "int8"]
    first = program.outputs[0]
    assert (first.dtype, first.quantization) == ("float32", by)
    with pytest.raises(InvalidConfig, match=r"input 'x': found int8 .*; accepted: float32"):
        program.run({"x": feeds["k"], "k": feeds["k"]})
    with pytest.raises(InvalidConfig, match=r"input 'k': found float32 .*; accepted: int8"):
        program.run({"x": feeds["x"], "k": feeds["x"]})

    session = lfopt.InferenceSession(model, target="c99")
    assert [(arg.type, arg.quantization) for arg in session.get_inputs()] == [
        ("tensor(float)", by),
        ("tensor(int8)", by),
    ]
    assert [arg.type for arg in session.get_outputs()] == ["tensor(float)", "tensor(int8)"]
    from_session = dict(zip(wanted, session.run(None, feeds), strict=True))

    prepared = Backend.prepare(model, target="c99")
    from_backend = dict(zip(wanted, prepared.run([feeds["x"], feeds["k"]]), strict=True))

    file, given, written = tmp_path / "small.onnx", tmp_path / "given.npz", tmp_path / "made.npz"
    onnx.save(model, file)
    arrays: Any = feeds  # by name: none is called allow_pickle
    np.savez(given, **arrays)
    assert here("run", file, "--input", given, "--out", written, "--target", "c99").returncode == 0
    from_run = dict(np.load(written))
    folder = tmp_path / "plan"
    assert here("search", file, "--out", folder).returncode == 0
    assert here("execute", folder, "--input", given, "--out", written).returncode == 0
    from_execute = dict(np.load(written))

    for outputs in (program.run(feeds), from_session, from_backend, from_run, from_execute):
        assert outputs.keys() == wanted.keys()
        for name, want in wanted.items():
            assert outputs[name].dtype == want.dtype
            assert outputs[name].tobytes() == want.tobytes(), name
    # a plan's model takes and gives the same types again
    saved = onnx.load(folder / "simplified.onnx")
    kinds = [v.type.tensor_type.elem_type for v in (*saved.graph.input, *saved.graph.output)]
    assert kinds == [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
    assert load(folder / "simplified.onnx").integer_ends == {"k", [*wanted][1]}


def test_a_saved_model_reads_back_with_the_same_ends():
    for seed in range(8):
        graph = from_model(Drawn(np.random.default_rng(seed)).model())
        back = from_model(to_model(graph))
        assert back.integer_ends == graph.integer_ends, seed
        assert [back.tensors[n] for n in back.inputs] == [graph.tensors[n] for n in graph.inputs], seed
        assert [back.tensors[n] for n in back.outputs] == [graph.tensors[n] for n in graph.outputs], seed
        assert [op.kind for op in back.operators] == [op.kind for op in graph.operators], seed


# -- bytes of an element -------------------------------------------------------------------------------------


def test_a_quantised_network_is_planned_at_one_byte_unless_something_says_otherwise(
    here: Any, tmp_path: Path
):
    model, _ = small()
    real = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "real",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, SHAPE)],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    stated = tmp_path / "two.yaml"
    stated.write_text("buffer_bytes: 256KiB\nelement_bytes: 2\n")
    silent = tmp_path / "silent.yaml"
    silent.write_text("buffer_bytes: 256KiB\n")

    def planned(network: ModelProto, **options: Any) -> int:
        return lfopt.search(network, **options).plan.hardware.element_bytes

    assert planned(model) == planned(model, hardware=silent) == planned(model, buffer="64KiB") == 1
    assert planned(model, element_bytes=2) == planned(model, hardware=stated) == 2
    assert planned(real) == planned(real, hardware=silent) == 2
    for name, network in (("int8.onnx", model), ("real.onnx", real)):
        onnx.save(network, tmp_path / name)
    job = tmp_path / "job.yaml"
    job.write_text("model: int8.onnx\nhardware: {buffer_bytes: 256KiB}\n")
    out = "--out", tmp_path / "plan"
    for arguments, size in (
        ((tmp_path / "int8.onnx",), 1),
        ((tmp_path / "real.onnx",), 2),
        ((tmp_path / "int8.onnx", "--element-bytes", 2), 2),
        (("--config", job), 1),
    ):
        done = here("search", *arguments, *out)
        assert done.returncode == 0
        assert f", {size} B per element" in done.stdout


def test_scales_of_inputs_and_outputs_are_shown(here: Any, tmp_path: Path):
    model, _ = small()
    onnx.save(model, tmp_path / "int8.onnx")
    shown = here("inspect", tmp_path / "int8.onnx").stdout
    assert "input   x [1, 4, 6, 5] float32 held as int8, scale 0.25, zero point 3" in shown
    assert "input   k [1, 4, 6, 5] int8, scale 0.25, zero point 3" in shown
