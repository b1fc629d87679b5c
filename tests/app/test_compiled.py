"""`lfopt codegen`, `lfopt run` and `lfopt.compile` around a back end that always prints y = 2 * x."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

import lfopt
from codegen.source import Unsupported
from lfopt.app import compiled
from lfopt.app.arrays import with_values
from lfopt.app.by_shape import CompiledByShape
from lfopt.app.cache import key_of
from lfopt.app.commands import codegen as command
from lfopt.app.compiled import compile_graph
from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import load_network
from lfopt.app.pipeline import run as search
from lfopt.frontend import load
from lfopt.ir import Hardware, InvalidConfig, LfoptError, MissingValues
from lfopt.ir.cpu import CpuGroup, CpuSchedule, CpuSection
from lfopt.ops import Dataflow
from tests.app.conftest import one_shape, refused
from tests.app.small_network import small_network
from tests.codegen.twice import SHAPE, twice
from tests.conftest import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
X = np.arange(48, dtype=np.float32).reshape(SHAPE)


def doubling(path: Path, factor: float = 2.0, *, weights: bool = True) -> Path:
    """y = x * 2, as ONNX: one weight for each channel."""
    factors = onnx.numpy_helper.from_array(np.full((1, 3, 1, 1), factor, np.float32), "factor")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"], "double")], "doubling", ends[:1], ends[1:], [factors]
    )
    if not weights:
        set_external_data(graph.initializer[0], "gone.bin")
        graph.initializer[0].ClearField("raw_data")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[object, ...]]:
    """What the back end was asked to print; the cache is an empty one."""
    asked: list[tuple[object, ...]] = []

    def emit_c(
        plan,
        graph,
        target="native",
        *,
        threads=1,
        embed=False,
        count=False,
        winograd=4,
        element="float32",
        images=1,
        prefix=None,
    ):
        asked.append((target, threads, embed, *([element] if element != "float32" else [])))
        return twice(embed=embed)

    for user in (compiled, command):
        monkeypatch.setattr(user, "emit_c", emit_c)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    return asked


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return doubling(tmp_path / "m.onnx")


@pytest.fixture
def plan(model: Path, tmp_path: Path) -> Path:
    search(
        Config(
            str(model),
            Hardware(1 << 20, element_bytes=4),
            scheme="auto",
            search=SearchConfig(objective="bytes"),
        ),
        tmp_path / "plan",
    )
    return tmp_path / "plan"


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "lfopt").iterdir())


# -- lfopt.compile -------------------------------------------------------------------------------------------


def test_a_model_is_compiled_once_and_run_as_often_as_one_likes(
    printed: list, model: Path, tmp_path: Path
) -> None:
    first = one_shape(model)
    assert np.array_equal(first.run({"x": X})["y"], 2 * X)
    again = one_shape(str(model), threads=1)
    assert np.array_equal(again.run({"x": X + 1})["y"], 2 * X + 2)
    assert printed == [("native", 1, False)]
    assert first.folder == again.folder
    assert entries(tmp_path) == [first.folder]
    assert "simplified.onnx" not in {path.name for path in first.folder.iterdir()}


def test_what_is_compiled_is_known_by_its_content_not_by_its_name(printed: list, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    folders = [
        one_shape(doubling(tmp_path / name, factor)).folder
        for name, factor in (("m.onnx", 2), ("m.onnx", 3), ("other/m.onnx", 2))
    ]
    assert folders[0] == folders[2] != folders[1]
    lfopt.compile(tmp_path / "m.onnx", threads=2)
    lfopt.compile(tmp_path / "m.onnx", target="c99")
    lfopt.compile(tmp_path / "m.onnx", hardware=Hardware(1 << 16, element_bytes=4))
    lfopt.compile(tmp_path / "m.onnx", target="neon", element="bf16")
    assert printed == [("native", 1, False)] * 2 + [
        ("native", 2, False),
        ("c99", 1, False),
        ("native", 1, False),
        ("neon", 1, False, "bf16"),
    ]
    assert len(entries(tmp_path)) == 6


def test_another_compiler_compiles_anew(printed: list, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = one_shape(model).folder
    monkeypatch.setenv("CC", "cc -pipe")
    assert one_shape(model).folder != one


def test_what_cannot_be_compiled_leaves_nothing_in_the_cache(
    printed: list, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_, **__):
        raise Unsupported("node 'double' (Mul): no")

    monkeypatch.setattr(compiled, "emit_c", refuse)
    with pytest.raises(Unsupported, match="double"):
        lfopt.compile(model)
    assert entries(tmp_path) == []


def test_options_that_nobody_knows_are_refused(printed: list, model: Path) -> None:
    with pytest.raises(
        InvalidConfig, match="target: found 'z80'; accepted: avx512, avx2, neon, rvv, c99, native"
    ):
        one_shape(model, target="z80")
    for threads in (0, "2", None, 1.5):
        with pytest.raises(
            InvalidConfig,
            match=f"threads: found {threads if threads is not None else 'NoneType'}".replace(
                "found 2", "found '2'"
            ),
        ):
            one_shape(model, threads=threads)
    with pytest.raises(InvalidConfig, match="element: found 'fp8'; accepted: float32, bf16"):
        one_shape(model, element="fp8")
    with pytest.raises(
        Unsupported, match="element bf16: found target c99; accepted: avx512 with AVX-512 BF16, or neon"
    ):
        lfopt.compile(model, target="c99", element="bf16")
    with pytest.raises(InvalidConfig, match="target: found ndarray; accepted"):
        one_shape(model, target=np.zeros(3))
    with pytest.raises(
        InvalidConfig, match=r"hardware: found int; accepted: a lfopt.Hardware, or the name of a file"
    ):
        one_shape(model, hardware=1 << 20)


def test_a_model_is_a_path_a_name_or_in_memory(
    printed: list, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    proto = onnx.load(model)
    before = proto.SerializeToString()
    for given in (model, str(model), model.name, proto):
        assert np.array_equal(lfopt.compile(given).run([X])["y"], 2 * X)
    assert proto.SerializeToString() == before
    proto.graph.name = "renamed"
    renamed = one_shape(proto)
    assert json.loads((renamed.folder / "entry.json").read_text())["facts"]["network"] == "renamed"
    assert one_shape("zoo:squeezenet1_1", input_shapes={"image": [1, 3, 64, 64]}).name == "twice"


def test_what_is_no_model_is_refused_in_one_line_that_does_not_show_it(printed: list, model: Path) -> None:
    proto = onnx.load(model)
    wrong = (None, 1, b"m.onnx", proto.graph, proto.SerializeToString(), [model], np.zeros(9))
    for given in wrong:
        with pytest.raises(
            InvalidConfig,
            match=f"^model: found {type(given).__name__}; accepted: a file name, zoo:NAME, an "
            "onnx.ModelProto, a torch.nn.Module, or a lfopt.Graph$",
        ):
            one_shape(given)
    proto.graph.node[0].input[0] = "nobody\n"
    for given in (onnx.ModelProto(), proto, str(model.parent / "none"), "", "zoo:", "zoo:nobody", "a\0b"):
        with pytest.raises(lfopt.LfoptError) as caught:
            lfopt.compile(given)
        assert str(caught.value).isprintable()
    bare = onnx.load(doubling(model.parent / "bare.onnx", weights=False), load_external_data=False)
    with pytest.raises(
        MissingValues, match=r"^doubling: constant 'factor' has no values; give a model with weights$"
    ):
        lfopt.compile(bare)
    assert printed == []


def test_input_shapes_are_lists_or_tuples_of_whole_numbers(printed: list, model: Path) -> None:
    folders = {
        one_shape(model, input_shapes={"x": shape}).folder
        for shape in (SHAPE, list(SHAPE), [*np.array(SHAPE)])
    }
    folders |= {one_shape(model, input_shapes=shapes).folder for shapes in (None, {})}
    assert len(folders) == 1
    wrong = (
        (10**5000, 3, 4, 4),
        1.0,
        "1,3,4,4",
        None,
        (1, 3, 4, 4.0),
        (1, 3, 4, True),
        [1, 3, 4, "4"],
        {1: 3},
        np.zeros((99, 99)),
        iter(SHAPE),
    )
    for shape in wrong:
        with pytest.raises(
            InvalidConfig,
            match=r"^input_shapes: 'x': found .*; accepted: a list or tuple of whole numbers, or one for a ",
        ) as caught:
            one_shape(model, input_shapes={"x": shape})
        assert len(str(caught.value)) < 200
    for shapes in ([("x", SHAPE)], "x=1", {1: SHAPE}):
        with pytest.raises(InvalidConfig, match=r"^input_shapes: found .*; accepted: shapes by name$"):
            one_shape(model, input_shapes=shapes)
    for shape in ((), (1, 3, 4), (0, 3, 4, 4), (-1, 3, 4, 4), (10**30, 3, 4, 4), (1, 5, 4, 4)):
        with pytest.raises(lfopt.LfoptError) as caught:
            lfopt.compile(model, input_shapes={"x": shape})
        assert str(caught.value).isprintable()


def test_importing_lfopt_brings_neither_cffi_nor_numpy() -> None:
    code = (
        "import sys, lfopt; print(sorted({'cffi', 'numpy', 'onnx', 'codegen'} & set(sys.modules)), "
        "callable(lfopt.compile))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"


# -- lfopt run -----------------------------------------------------------------------------------------------


def test_run_gives_outputs_by_name_and_compares_them(
    here, printed: list, model: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    done = here("run", model, "--input", tmp_path / "x.npz", "--out", tmp_path / "y.npz", "--check")
    assert done.returncode == 0, done.stderr
    assert "compiled in" in done.stdout
    assert "outputs equal the reference" in done.stdout
    assert re.search(r"y +float32 +1x3x4x4 +0 +47 +94", done.stdout)
    with np.load(tmp_path / "y.npz") as archive:
        assert archive.files == ["y"]
        assert np.array_equal(archive["y"], 2 * X)
    np.save(tmp_path / "x.npy", X)
    assert "found compiled" in here("run", model, "--input", tmp_path / "x.npy").stdout


def test_run_says_where_outputs_are_not_those_of_the_reference(here, printed: list, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    done = here("run", doubling(tmp_path / "m.onnx", 3.0), "--input", tmp_path / "x.npz", "--check")
    assert done.returncode == 1
    assert (
        "output 'y': 47 of 48 elements differ by up to 0.33 of its range; accepted: 1.2e-07 of 141"
        in done.stdout
    )


def test_run_names_what_it_needs(here, printed: list, model: Path, tmp_path: Path) -> None:
    assert "--input: not given; accepted: .npz with x: float32 [1, 3, 4, 4]" in refused(here("run", model))
    np.savez(tmp_path / "x.npz", z=X)
    assert "input 'x' is absent; found z; accepted: float32 [1, 3, 4, 4]" in refused(
        here("run", model, "--input", tmp_path / "x.npz")
    )
    assert "--buffer: found 'much'" in refused(here("run", model, "--buffer", "much"))
    assert printed == []


def test_run_draws_weights_only_when_it_may(here, printed: list, tmp_path: Path) -> None:
    bare = doubling(tmp_path / "bare.onnx", weights=False)
    np.savez(tmp_path / "x.npz", x=X)
    done = here("run", bare, "--input", tmp_path / "x.npz")
    assert done.returncode == 2
    assert "constant 'factor' has no values; give a model with weights, or --fill" in done.stderr
    done = here("run", bare, "--input", tmp_path / "x.npz", "--fill")
    assert done.returncode == 0
    assert "weights were drawn at random" in done.stderr
    filled = [with_values(load(bare), bare, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert compile_graph(filled[0])[1]  # as --fill --seed 0 made it
    assert key_of(filled[0]) == key_of(filled[1]) != key_of(filled[2])


# -- shapes that come with arrays ----------------------------------------------------------------------------


def open_model() -> onnx.ModelProto:
    """y = relu(x) of any batch and width, beside a bias of three channels."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, "w"]) for name in "xy"]
    bias = numpy_helper.from_array(np.ones((3, 1), np.float32), "b")
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "open", ends[:1], ends[1:], [bias])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_shapes_come_with_the_arrays_of_a_run_and_the_last_programs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = lfopt.compile(open_model(), target="c99")
    assert isinstance(model, CompiledByShape) and not model.programs
    model.most = 2
    for shape in ((1, 3, 4), (2, 3, 5), (1, 3, 4), (1, 3, 6)):
        x = np.linspace(-2, 2, np.prod(shape), dtype=np.float32).reshape(shape)
        assert np.array_equal(model.run({"x": x})["y"], np.maximum(x + 1, 0))
        assert np.array_equal(model.run(x)["y"], np.maximum(x + 1, 0))
    assert model.programs == (((1, 3, 4),), ((1, 3, 6),))  # (2, 3, 5) was used least recently
    assert repr(model).startswith(
        "CompiledByShape(open: x: an array [batch, 3, w]; programs for 2 shapes; the last: Compiled(open: x "
        "float32 [1, 3, 6] -> y "
    )
    x = np.linspace(-2, 2, 18, dtype=np.float32).reshape(1, 3, 6)
    assert np.array_equal(model(x=x), np.maximum(x + 1, 0))
    session = lfopt.InferenceSession(open_model(), target="c99")
    assert [(one.name, one.type, one.shape) for one in (*session.get_inputs(), *session.get_outputs())] == [
        (name, "tensor(float)", ["batch", 3, "w"]) for name in "xy"
    ]
    assert np.array_equal(session.run(None, {"x": x})[0], np.maximum(x + 1, 0))
    half = lfopt.compile(open_model(), target="c99", input_shapes={"batch": 1})
    with pytest.raises(
        InvalidConfig, match=r"input 'x': found float32 \[2, 3, 4\]; accepted: float32 \[1, 3, 4\]"
    ):
        half.run(np.zeros((2, 3, 4), np.float32))
    for wrong, said in (
        ({"z": x}, "found input 'z'; accepted: 'x'"),
        (np.zeros((1, 4, 4), np.float32), "x|b"),
        ("x", "found str; accepted: 'x'"),
    ):
        with pytest.raises(LfoptError, match=said):
            model.run(cast("Any", wrong))


def test_run_takes_open_shapes_from_its_input_file(
    here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    onnx.save(open_model(), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3, 7), np.float32))
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 7), np.float32))
    for file, options in (("x.npz", ()), ("x.npy", ()), ("x.npy", ("--input-shape", "batch=2", "w=7"))):
        done = here("run", tmp_path / "m.onnx", "--input", tmp_path / file, "--target", "c99", *options)
        assert done.returncode == 0 and "2x3x7" in done.stdout.replace(", ", "x"), (done.stdout, done.stderr)
    done = here("run", tmp_path / "m.onnx", "--target", "c99")
    assert (
        done.returncode == 2
        and "give --input-shape batch=1 w=128 or the like, or --input-shape x=1,3,128" in done.stderr
    )
    done = here(
        "run",
        tmp_path / "m.onnx",
        "--input",
        tmp_path / "x.npy",
        "--target",
        "c99",
        "--input-shape",
        "batch=1",
    )
    assert done.returncode == 2 and "found float32 [2, 3, 7]; accepted: float32 [1, 3, 7]" in done.stderr


# -- lfopt codegen -------------------------------------------------------------------------------------------


def test_codegen_writes_what_make_needs(here, printed: list, plan: Path, tmp_path: Path) -> None:
    done = here("codegen", plan, "--target", "c99", "--threads", 2, "-o", tmp_path / "c")
    assert done.returncode == 0, done.stderr
    assert printed == [("c99", 2, False)]
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names > {
        "model.c",
        "model.h",
        "weights.bin",
        "main.c",
        "Makefile",
        "README.md",
        "CMakeLists.txt",
        "twice.pc",
    }
    assert "arena 192 of 1,048,576 B of buffer; memory of one caller 208 B\nweights 64 B" in done.stdout


def test_codegen_says_what_threads_do(
    here, printed: list, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tuple(
        CpuGroup(k, rings=True, why="its maps have one row", functions=(), sections=(CpuSection(((), ())),))
        for k in (3, 5)
    )
    cut = replace(twice(), arena_bytes=384, context_bytes=464, schedule=CpuSchedule("c99", 2, groups, ()))
    monkeypatch.setattr(command, "emit_c", lambda *given, **options: cut)
    done = here("codegen", plan, "--target", "c99", "--threads", 2, "-o", tmp_path / "c")
    assert "arena 192 of 1,048,576 B of buffer, 2 of them; memory of one caller 464 B" in done.stdout
    assert "2 groups in which threads share every row: its maps have one row" in done.stdout


def test_codegen_says_why_kernels_were_chosen(here, tmp_path: Path) -> None:
    names = ["a [bold]long[/] name " * 3, "second"]
    nodes = [
        helper.make_node("Conv", [x, "weights"], [y], name)
        for x, y, name in zip(("x", "t"), ("t", "y"), names, strict=True)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 5, 9, 9)) for name in "xy"]
    weights = onnx.numpy_helper.from_array(np.ones((5, 5, 1, 1), np.float32), "weights")
    model = helper.make_model(
        helper.make_graph(nodes, "two", ends[:1], ends[1:], [weights]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.save(model, tmp_path / "m.onnx")
    search(
        Config(
            str(tmp_path / "m.onnx"),
            Hardware(1 << 20, element_bytes=4),
            scheme="auto",
            search=SearchConfig(objective="bytes"),
        ),
        tmp_path / "plan",
    )
    done = here("codegen", tmp_path / "plan", "--target", "c99", "--why", "--json", tmp_path / "why.json")
    assert done.returncode == 0, done.stderr
    wide = [line for line in done.stdout.splitlines() if len(line) > 80 and str(tmp_path) not in line]
    assert wide == []
    kernels = json.loads((tmp_path / "why.json").read_text())["kernels"]
    assert [one["kernel"] for one in kernels] == ["direct convolution"] * 2
    before = ["Winograd convolution", "depthwise convolution", "matrix-vector product"]
    assert [[*one["refused"]] for one in kernels] == [[*before, "direct convolution of a whole map"]] * 2
    text = " ".join(done.stdout.split())
    assert "5Bbold" in text and "Winograd" in text
    assert "--why: found with --count" in refused(here("codegen", tmp_path / "plan", "--why", "--count"))


def test_codegen_builds_a_program_that_runs(here, printed: list, plan: Path, tmp_path: Path) -> None:
    done = here("codegen", plan / "plan.json", "--embed", "--build", "-o", tmp_path / "c")
    assert done.returncode == 0, done.stderr
    assert printed == [("native", 1, True)]
    assert (tmp_path / "c" / "libtwice.so").exists()
    np.save(tmp_path / "x.npy", X)
    subprocess.run(
        [tmp_path / "c" / "twice", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy"], check=True
    )
    assert np.array_equal(np.load(tmp_path / "y.npy"), 2 * X)


def test_codegen_refuses_in_one_line(
    here, printed: list, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert "file: found a file; accepted: a folder" in refused(here("codegen", plan, "-o", tmp_path / "file"))
    assert "threads: found 0" in refused(here("codegen", plan, "--threads", 0, "-o", tmp_path / "c"))
    assert "element bf16: found target avx2" in refused(
        here("codegen", plan, "--target", "avx2", "--element", "bf16", "-o", tmp_path / "c")
    )
    monkeypatch.setenv("CC", "nobody-cc")
    assert "CC=nobody-cc: no such command" in refused(here("codegen", plan, "--build", "-o", tmp_path / "c"))
    monkeypatch.setenv("CC", "false")
    assert "false ended with 1" in refused(here("codegen", plan, "--build", "-o", tmp_path / "d"))
    assert not (tmp_path / "c").exists()
    data = json.loads((plan / "plan.json").read_text())
    data["model"]["sha256"] = "0" * 64
    (plan / "plan.json").write_text(json.dumps(data))
    assert "its SHA-256 is" in refused(here("codegen", plan, "-o", tmp_path / "c"))


# -- the real back end ---------------------------------------------------------------------------------------


def test_a_small_network_goes_all_the_way(here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = small_network(tmp_path / "small.onnx")
    np.savez(
        tmp_path / "x.npz", image=np.random.default_rng(0).standard_normal((1, 3, 24, 24)).astype(np.float32)
    )
    options = ("--buffer", "16KiB", "--check", "--roofline", "--json", tmp_path / "run.json")
    done = here("run", model, "--input", tmp_path / "x.npz", *options)
    assert done.returncode == 0, done.stderr
    assert "outputs equal the reference" in done.stdout
    data, flow = (
        json.loads((tmp_path / "run.json").read_text())["roofline"],
        Dataflow.of(load_network(model, {}, "default")),
    )
    assert sum(kernel["flops"] for kernel in data["kernels"]) == 2 * sum(flow.macs) > 0
    assert sorted(name for kernel in data["kernels"] for name in kernel["operators"]) == sorted(
        operator.name for operator in flow.operators
    )
    assert min(data["peak_flops"], *(kernel["seconds"] for kernel in data["kernels"])) > 0
