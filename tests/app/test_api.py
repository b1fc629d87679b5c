"""`import lfopt`: every name is there, typed, costs nothing until used, and does what the CLI does."""

from __future__ import annotations

import ast
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lfopt
from lfopt.app import wings
from lfopt.app.report.picture import picture
from lfopt.ir import __all__ as of_the_ir
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from tests.conftest import ROOT
from tests.test_tiny import residual_block

STUB = ROOT / "lfopt" / "__init__.pyi"
LINES: Any = {"scheme": "lbdf", "objective": "bytes"}  # as in the papers: proven at once
SMALL = {"image": (1, 3, 64, 64)}
UNTYPED: Any = lfopt  # for calls that a type checker refuses


def python(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What Python does in a folder of the user's."""
    command = [sys.executable, "-c", code, *arguments] if code else [sys.executable, *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return residual_block()


@pytest.fixture(scope="module")
def planned_block(model: onnx.ModelProto) -> lfopt.Planned:
    return lfopt.search(model, buffer="2KiB", **LINES)


# -- names ---------------------------------------------------------------------------------------------------


def stub_imports() -> dict[str, tuple[str, str]]:
    """Names that the stub has -> (module, name there)."""
    tree = ast.parse(STUB.read_text())
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_type_checkers_see_what_python_sees() -> None:
    listed = next(node.value for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.Assign))
    assert sorted(ast.literal_eval(listed)) == sorted(lfopt.__all__)
    seen = stub_imports()
    assert {*seen, "__version__"} == {*lfopt.__all__, *of_the_ir}
    for name, (module, original) in seen.items():
        expected = (
            sys.modules["lfopt.zoo"]
            if name == "zoo" and lfopt.zoo
            else getattr(__import__(module, fromlist=[original]), original)
        )
        assert getattr(lfopt, name) is expected, name


def test_dir_and_help_show_every_name() -> None:
    assert set(lfopt.__all__) <= set(dir(lfopt))
    page = pydoc.render_doc(lfopt, renderer=vars(pydoc)["plaintext"])
    assert [
        name
        for name in lfopt.__all__
        if name != "__version__" and not re.search(rf"\b{re.escape(name)}\b", page)
    ] == []
    assert "A fusion plan of little DRAM traffic that is no slower than today's, with a proof" in page


def test_every_function_says_what_it_does() -> None:
    functions = [name for name in lfopt.__all__ if name[0].islower()]
    assert len(functions) == 16
    assert [name for name in functions if not getattr(lfopt, name).__doc__] == []


def test_importing_lfopt_imports_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import lfopt; "
        "dir(lfopt); print(*sorted(set(sys.modules) - before))"
    )
    imported = python(code, tmp_path).stdout.split()
    assert [name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names] == ["lfopt"]
    assert len(imported) < 10


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'lfopt' has no attribute 'serach'$"):
        _ = lfopt.serach  # type: ignore[attr-defined]


def test_the_package_is_typed_and_has_a_version() -> None:
    assert (ROOT / "lfopt" / "py.typed").exists()
    assert re.fullmatch(r"\d+\.\d+\.\d+", lfopt.__version__)


def test_python_dash_m_is_the_command_line(tmp_path: Path) -> None:
    done = python("", tmp_path, "-m", "lfopt", "zoo", "export")
    assert done.returncode == 2
    assert python("", tmp_path, "-m", "lfopt", "--help").stdout.startswith("Usage: lfopt")


# -- models and sizes ----------------------------------------------------------------------------------------


def test_a_model_is_a_file_a_message_a_name_or_a_graph(
    model: onnx.ModelProto, tmp_path: Path, planned_block: lfopt.Planned
) -> None:
    file = tmp_path / "block.onnx"
    onnx.save(model, file)
    for given in (file, str(file), model, lfopt.load(model)):
        again = lfopt.search(given, "2KiB", **LINES)
        assert (again.plan.groups, again.scheme) == (planned_block.plan.groups, planned_block.scheme)
        assert lfopt.legal(given, planned_block.scheme).legal
    assert (
        lfopt.search(
            "zoo:squeezenet1_1", "64KiB", input_shapes=SMALL, weights=False, **LINES
        ).plan.totals.proof
        == "optimal"
    )


def test_a_size_is_a_number_or_a_text(model: onnx.ModelProto) -> None:
    plans = [lfopt.search(model, size, **LINES).plan for size in (2048, "2KiB", "2048B", "2 kib")]
    plans += [
        lfopt.search(model, hardware="2KiB", **LINES).plan,
        lfopt.search(model, hardware=lfopt.Hardware(2048), **LINES).plan,
    ]
    assert {plan.hardware for plan in plans} == {lfopt.Hardware(2048)}
    assert lfopt.Hardware("256KiB", element_bytes=1) == lfopt.Hardware(262144, element_bytes=1)  # type: ignore[arg-type]
    assert lfopt.search(model).plan.hardware.buffer_bytes == 262144
    assert lfopt.search(model, "1KiB", hardware="accelerator_256k.yaml").plan.hardware.dram_row_align == 16


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m, f: lfopt.search(m, "256"), "buffer: found 256, without a unit: 256 B or 256KiB?"),
        (
            lambda m, f: UNTYPED.search(m, 2.5),
            "buffer: found float; accepted: bytes, or a size such as '256KiB'",
        ),
        (
            lambda m, f: UNTYPED.search(m, hardware=3),
            "hardware: found int; accepted: a lfopt.Hardware, a file, or the size",
        ),
        (lambda m, f: lfopt.search(m, hardware="chip.yaml"), "hardware chip.yaml: no such file"),
        (
            lambda m, f: UNTYPED.Hardware("2XB"),
            "hardware.buffer_bytes: found '2XB'; accepted: a size such as",
        ),
        (
            lambda m, f: UNTYPED.search(3),
            (
                "model: found int; accepted: a file name, zoo:NAME, "
                "an onnx.ModelProto, a torch.nn.Module, or a lfopt.Graph"
            ),
        ),
        (lambda m, f: lfopt.search("nothing.onnx"), "nothing.onnx: no such file"),
        (lambda m, f: lfopt.search(m, scheme="fast"), "search: scheme: found 'fast'; accepted: "),
        (lambda m, f: UNTYPED.search(m, method=["exact"]), "method: found list; accepted: "),
        (lambda m, f: lfopt.search(m, time_limit=float("nan")), "search: search.time_limit: found nan"),
        (lambda m, f: lfopt.load(f.graph, SMALL), "input_shapes: found some with a Graph"),
        (lambda m, f: lfopt.compile(f.graph, input_shapes=SMALL), "input_shapes: found some with a Graph"),
        (lambda m, f: lfopt.legal(m, "conv1"), "scheme: found str; accepted: a lfopt.FusionScheme"),
        (
            lambda m, f: lfopt.plan(m, [["conv1"]], "1KiB"),
            "scheme: not legal: operator 'relu' is in no group",
        ),
        (lambda m, f: UNTYPED.simulate(3), "plan: found int; accepted: what lfopt.search gives"),
        (lambda m, f: lfopt.simulate(f.plan), "model: absent; accepted: the network that the Plan is for"),
        (
            lambda m, f: lfopt.simulate(f.plan, model="zoo:squeezenet1_1"),
            "plan: not of network 'squeezenet1_1': ",
        ),
        (lambda m, f: lfopt.load_plan("nowhere"), "nowhere: No such file or directory"),
        (
            lambda m, f: lfopt.execute(f, {"z": np.zeros(3)}),
            "inputs: found input 'z'; accepted: 'x' (float32 [1, 4, 8, 8])",
        ),
        (
            lambda m, f: lfopt.execute(f, [np.zeros(3, np.float32)]),
            "inputs: input 'x': found float32 [3]; accepted: float32 [1, 4, 8, 8]",
        ),
        (lambda m, f: lfopt.execute(f, seed=-1), "seed: found -1; accepted: a whole number of at least 0"),
        (lambda m, f: lfopt.explain(f), "explain: found neither nodes nor group; accepted: one of them"),
        (lambda m, f: UNTYPED.explain(f, 3), "nodes: found int; accepted: a text"),
        (lambda m, f: lfopt.explain(f, group=9), "group: found 9; accepted: a group of the plan, 0 to 0"),
        (lambda m, f: lfopt.explain(m, "conv1", scheme="q"), "scheme: found 'q'; accepted: lbdf, "),
        (
            lambda m, f: UNTYPED.explain(m, "conv1", seconds="1"),
            "seconds: found '1'; accepted: seconds above 0",
        ),
        (lambda m, f: lfopt.report(f, sweep_seconds=-1), "sweep_seconds: found -1; accepted: seconds from 0"),
        (lambda m, f: UNTYPED.emit_c(f, "z80"), "target: found 'z80'; accepted: "),
        (lambda m, f: f.save(3), "folder: found int; accepted: a file name"),
    ],
)
def test_wrong_input_is_one_line_that_names_it(
    call: Callable[[Any, Any], object],
    said: str,
    model: onnx.ModelProto,
    planned_block: lfopt.Planned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lfopt.LfoptError) as error:
        call(model, planned_block)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


# -- every function, once ------------------------------------------------------------------------------------


def test_a_network_is_loaded_simplified_and_judged(model: onnx.ModelProto) -> None:
    graph = lfopt.simplify(lfopt.load(model), "all")
    assert [operator.name for operator in graph.operators] == ["conv1", "relu", "conv2", "add"]
    assert lfopt.legal(graph, [["conv1", "relu"], ["conv2", "add"]])
    assert not lfopt.legal(graph, [["conv1", "relu"]])
    assert "not convex" in lfopt.legal(graph, (("conv1", "add"), ("relu",), ("conv2",))).reasons[0]


def test_a_search_gives_a_proven_plan_with_its_steps(planned_block: lfopt.Planned) -> None:
    assert (planned_block.plan.totals.proof, len(planned_block.plan.groups)) == ("optimal", 1)
    assert planned_block.plan.groups[0].steps
    assert isinstance(planned_block.result, lfopt.Result)
    assert lfopt.search(planned_block.graph, "2KiB", method="random", budget=5, seed=1).plan.search.seed == 1


def test_a_scheme_is_planned_or_does_not_fit(planned_block: lfopt.Planned) -> None:
    planned = lfopt.plan(planned_block.graph, planned_block.scheme, "2KiB")
    assert isinstance(planned, lfopt.Plan)
    assert planned.groups == planned_block.plan.groups
    assert lfopt.check(planned, model=planned_block.graph).holds
    assert isinstance(lfopt.plan(planned_block.graph, planned_block.scheme, "300B"), lfopt.DoesNotFit)


def test_a_plan_is_executed_and_gives_what_the_reference_gives(
    model: onnx.ModelProto, planned_block: lfopt.Planned
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)
    wanted = reference(planned_block.graph, {"x": x})["y"]
    for inputs in ({"x": x}, [x], x):
        done = lfopt.execute(planned_block, inputs)
        np.testing.assert_allclose(done.outputs["y"], wanted, rtol=1e-5, atol=1e-5)
        assert done.dram == lfopt.simulate(planned_block).dram
    assert lfopt.execute(planned_block.plan, model=model).outputs["y"].shape == (1, 4, 8, 8)


def test_weights_that_are_absent_are_drawn_where_that_is_asked_for() -> None:
    bare = lfopt.search(
        "zoo:squeezenet1_1", "64KiB", input_shapes={"image": (1, 3, 32, 32)}, weights=False, **LINES
    )
    with pytest.raises(lfopt.MissingValues):
        lfopt.execute(bare)
    assert lfopt.execute(bare, fill=True).dram.total == bare.plan.totals.dram_bytes


def test_a_plan_is_checked_and_its_bound_proven(planned_block: lfopt.Planned, tmp_path: Path) -> None:
    assert lfopt.check(planned_block).bound == "not verified"
    proven = lfopt.check(planned_block, prove=True)
    assert (proven.holds, proven.bound) == (True, "verified: 1,600")
    saved = planned_block.save(tmp_path / "plan")
    assert saved.plan.model.written
    assert lfopt.load_plan(tmp_path / "plan").plan == saved.plan
    assert lfopt.check(tmp_path / "plan" / "plan.json").holds
    text = (tmp_path / "plan" / "plan.json").read_text()
    (tmp_path / "plan" / "plan.json").write_text(text.replace('"dram_bytes": 1600', '"dram_bytes": 1599'))
    assert not lfopt.check(tmp_path / "plan").holds
    with pytest.raises(lfopt.InvalidPlan, match="is not what it claims"):
        lfopt.simulate(tmp_path / "plan")


def test_what_does_not_fit_is_explained(model: onnx.ModelProto, planned_block: lfopt.Planned) -> None:
    whole = lfopt.explain(model, "conv1..add", buffer="700B")
    assert not whole.fits
    assert sorted(name for group in whole.groups for name in group) == sorted(whole.operators)
    assert whole.data["cut"]["proof"] == "optimal"
    assert lfopt.explain(planned_block, group=0).fits
    assert lfopt.explain(planned_block, ["conv1", "relu"], buffer="300B").operators == ("conv1", "relu")


def test_a_plan_is_reported_printed_and_encoded(planned_block: lfopt.Planned, tmp_path: Path) -> None:
    page = lfopt.report(planned_block, tmp_path / "page.html", sweep_seconds=0, explain_seconds=0)
    assert (tmp_path / "page.html").read_text() == page
    assert (
        "model.c"
        in lfopt.emit_c(lfopt.search(planned_block.graph, "4KiB", element_bytes=4, **LINES), "c99").files
    )
    with pytest.raises(lfopt.Unsupported, match="the accelerator has 1"):
        lfopt.encode(planned_block)


def test_a_graph_is_compiled_for_a_buffer_given_as_a_size(
    planned_block: lfopt.Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = np.ones((1, 4, 8, 8), np.float32)
    compiled = lfopt.compile(planned_block.graph, hardware="64KiB", target="c99")
    np.testing.assert_allclose(
        compiled.run({"x": x})["y"], reference(planned_block.graph, {"x": x})["y"], rtol=1e-5
    )
    sizes = r"1 group, [\d,]+ B of DRAM, [\d,]+ B of weights, [\d,]+ B for each caller"
    assert re.fullmatch(
        r"Compiled\(block: x float32 \[1, 4, 8, 8\] -> y float32 \[1, 4, 8, 8\]; " + sizes + r"\)",
        repr(compiled),
    )
    assert np.array_equal(compiled(x), compiled(x=x))


class Shared:
    """An array of another library, in memory that it shares, or does not."""

    def __init__(self, array: np.ndarray, *, near: bool = True) -> None:
        self.array, self.near = array, near

    def __dlpack__(self, **options: Any) -> object:
        if not self.near:
            raise BufferError("it is far away")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_a_compiled_model_is_called_as_a_function_and_as_a_session(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled, x = lfopt.compile(model, target="c99"), np.ones((1, 4, 8, 8), np.float32)
    y = compiled.run([x])["y"]
    for output in (
        compiled(x),
        compiled(x=x),
        compiled(Shared(x)),
        lfopt.InferenceSession(model, target="c99").run(["y"], {"x": x})[0],
    ):
        assert np.array_equal(output, y)
    for call, said in (
        (lambda: compiled(x, x=x), "block: found input 'x' twice; accepted: each of 'x' once"),
        (lambda: compiled(x, x, x=x), "block: found 2 inputs without a name; accepted: each of 'x' once"),
        (lambda: compiled(z=x), "block: found input 'z'; accepted: 'x' (float32 [1, 4, 8, 8])"),
        (
            lambda: compiled(Shared(x, near=False)),
            (
                "input 'x': found Shared, not shared: it is far away; "
                "accepted: a NumPy array, or one with __dlpack__"
            ),
        ),
        (lambda: compiled(x[:, :3]), "input 'x': found float32 [1, 3, 8, 8]; accepted: float32 [1, 4, 8, 8]"),
        (
            lambda: lfopt.InferenceSession(model, target="c99").run(["z"], {"x": x}),
            "output_names: found 'z'; accepted: None, or a list of 'y'",
        ),
        (
            lambda: UNTYPED.InferenceSession(model, target="c99").run(None, [x]),
            "input_feed: found list; accepted: arrays by name",
        ),
    ):
        with pytest.raises(lfopt.InvalidConfig, match=re.escape(said)):
            call()


def test_the_examples_of_the_documentation_run(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "model.onnx")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert (tmp_path / "runs" / "model" / "plan.json").exists()
    assert isinstance(names["plan"], lfopt.Plan)


# -- what one sees -------------------------------------------------------------------------------------------


def test_whatever_a_user_holds_says_what_it_is_in_a_line(
    planned_block: lfopt.Planned, model: onnx.ModelProto
) -> None:
    plan = "Plan(block: 2,048 B of buffer, lbdf, 1 group, 1,600 B of DRAM, optimal)"
    assert repr(planned_block) == f"Planned({plan})"
    assert repr(planned_block.plan) == plan
    assert (
        repr(planned_block.graph)
        == "Graph(block: 4 operators, 288 weights; x [1, 4, 8, 8] -> y [1, 4, 8, 8])"
    )
    assert repr(planned_block.result) == "Result(exact: 1 group, 1,600 B of DRAM, optimal)"
    assert repr(planned_block.scheme) == "FusionScheme(1 group of 4 operators)"
    assert repr(planned_block.plan.hardware) == "Hardware(buffer_bytes=2048)"
    assert repr(lfopt.check(planned_block)) == "Verified(block: every claim holds; lower bound not verified)"
    others = [
        planned_block.plan.groups[0],
        lfopt.simulate(planned_block),
        lfopt.execute(planned_block),
        lfopt.explain(model, "conv1..add", buffer="700B"),
    ]
    others.append(lfopt.emit_c(lfopt.search(model, "4KiB", element_bytes=4, **LINES), "c99"))
    for value in others:
        assert len(repr(value)) < 160
        assert repr(value).startswith(f"{type(value).__name__}(")


def test_a_notebook_shows_the_network_in_the_colours_of_its_groups(planned_block: lfopt.Planned) -> None:
    html = planned_block._repr_html_()
    assert html.count("<rect") == 6  # x, four operators, y
    assert "<script" not in html
    assert "conv1 (Conv); group 0, lbdf, moves 1,600 B" in html
    alone = lfopt.plan(planned_block.graph, [["conv1"], ["relu"], ["conv2"], ["add"]], "2KiB")
    assert isinstance(alone, lfopt.Plan)
    assert (
        len(set(re.findall(r'rx="2.5" fill="(#\w+)"', picture(alone, Dataflow.of(planned_block.graph))))) == 4
    )


def test_names_in_a_picture_are_text(model: onnx.ModelProto) -> None:
    hostile = onnx.ModelProto()
    hostile.CopyFrom(model)
    hostile.graph.node[0].name = "</title><script>alert(1)</script>&"
    html = lfopt.search(hostile, "2KiB")._repr_html_()
    assert "<script" not in html


# -- other people's modules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", wings.WINGS)
def test_a_module_that_hides_a_part_of_lfopt_is_named(name: str, tmp_path: Path) -> None:
    own = tmp_path / f"{name}.py"
    own.write_text("")
    (tmp_path / "mine.py").write_text(
        "import lfopt\ntry:\n    lfopt.Graph\nexcept lfopt.LfoptError as error:\n    print(error)\n"
    )
    said = (
        f"{own}: it hides {ROOT / name / '__init__.py'}, a part of lfopt that has the same name; rename "
        "it, or run lfopt from another folder"
    )
    done = python("", tmp_path, "-m", "lfopt", "zoo")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"lfopt: {said}\n")
    if name == wings.WINGS[0]:
        shown = python("", tmp_path, "mine.py")
        assert shown.stderr.endswith(f"InvalidConfig: {said}\n")


def test_a_folder_of_the_same_name_that_is_no_package_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    assert python("", tmp_path, "-m", "lfopt", "zoo").returncode == 0
