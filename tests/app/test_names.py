"""Names are data: whatever a model's names hold, nothing written of it runs, and no output is broken."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen.build import find_compiler
from lfopt.app.backend import Backend
from lfopt.app.streams import read_stream
from lfopt.frontend import from_model, load, to_model
from lfopt.ir import InvalidGraph, InvalidPlan, LfoptError, ModelReference
from lfopt.ir.names import LONGEST, distinct, file_name, identifier, is_plain, plain
from lfopt.ops.reference import reference
from tests.app.conftest import one_shape
from tests.conftest import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
RUNS = '__attribute__((constructor)) static void ran(void) { *(int *)0 = fopen("RAN", "w") == 0; }'
BREAKERS = (
    "*/", "*\\\n/", "*\\\r\n/", "*\\ \n/", "*??/\n/", "*\\\n\\\n/", "\n", "\r", "\r\n", "\\", "\\\n", "??/\n",
    "\v\f", "\0", '"', "'", '\\"', '")', "</script><script>", "</style><svg onload=x>", "--><b>", "]]>",
    "&lt;i&gt;&amp;", "<!--", "\x1b]0;t\x07", "\x1b[2J\x1b[H", "\x9b31m", "[red]", "[/]",
    "[link=file:///etc/passwd]x[/link]", "$(touch RAN)", "`touch RAN`", "${HOME}", "$$", "%s%n%x", "{{7*7}}",
    "{% raw %}", "|", "\u202e", "\u2028", "\x85", "\ufeff", "../../RAN", "/etc/RAN", "..", "~/RAN", "-rf",
    "#define network", "%:define network", "=cmd|'/C calc'!A0",
)  # fmt: skip
HOSTILE = tuple(
    dict.fromkeys(
        itertools.chain.from_iterable(
            (breaker, f"a{breaker}b", f"x {breaker} {RUNS} /*", f"{breaker}{RUNS}{breaker}")
            for breaker in BREAKERS
        )
    )
)
# names that are spelled alike, or nearly
ALIKE = ("a*", "a%2A", "a%2a", "a%252A", "b" * 2000, "b" * 2001, "é", "e\u0301", "")
STANDARDS = (("-std=gnu11",), ("-std=c11", "-trigraphs"))


def hostile_model(names: list[str]) -> onnx.ModelProto:
    """y = relu(conv(x)) + c, repeated, with a view and a product between; `names` are all its names."""
    left = iter(names)

    def name() -> str:
        return next(left)

    rng = np.random.default_rng(0)
    image, other, product = name(), name(), name()
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    before = image
    for k in range((len(names) - 8) // 7):
        weight, bias = name(), name()
        weights += [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), n)
            for n, shape in ((weight, (4, 4, 1, 1)), (bias, (4,)))
        ]
        conv, relu = name(), name()
        nodes.append(helper.make_node("Conv", [before, weight, bias], [conv], name=name(), doc_string=RUNS))
        nodes.append(helper.make_node("Relu", [conv], [relu], name=name()))
        added = name()
        nodes.append(helper.make_node("Add", [relu, other if k % 2 else before], [added]))
        before = added
    pooled = name()
    nodes.append(helper.make_node("GlobalAveragePool", [before], [pooled], name=name()))
    nodes.append(helper.make_node("Mul", [before, pooled], [product]))
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 4, 5, 6), doc_string=RUNS)
        for n in (image, other)
    ]
    outputs = [
        helper.make_tensor_value_info(product, TensorProto.FLOAT, (1, 4, 5, 6)),
        helper.make_tensor_value_info(before, TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, name(), ends, outputs, weights, doc_string=RUNS)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(name(), 1)],
        producer_name=RUNS,
        ir_version=10,
    )
    model.metadata_props.add(key=RUNS, value=RUNS)
    model.doc_string = RUNS
    return model


def dealt(count: int) -> list[list[str]]:
    """All the names, so many to a network; the last network has those that are alike too."""
    names = [*HOSTILE, *(n for n in ALIKE if n)]
    names += [f"{n} {k}" for k, n in enumerate(HOSTILE)][: -len(names) % count]
    return [names[k : k + count] for k in range(0, len(names), count)]


NETWORKS = dealt(71)


def test_any_text_has_one_plain_spelling() -> None:
    for text in [*HOSTILE, *ALIKE, "\ud800", "漢字", "\U0001f600" * 500]:
        spelling = plain(text)
        assert is_plain(spelling)
        assert plain(spelling) == spelling
        assert len(spelling) <= LONGEST
        assert not re.search(r"[*\\?\"'<>&`$|=\[\]{}\x00-\x1f\x7f]|[^\x00-\x7f]", spelling)
        assert re.fullmatch(r"[A-Za-z]\w{0,62}", identifier(text), re.ASCII)
        part = file_name(text)
        assert (Path("folder") / part).parent == Path("folder")
        assert part not in (".", "..")
        assert not part.startswith((".", "-", "~"))
        assert len(part) <= 255


def test_names_stay_apart_however_they_are_spelled() -> None:
    names = [*HOSTILE, *ALIKE, *(plain(name) for name in HOSTILE)]
    spelled = distinct(names)
    assert len(set(spelled.values())) == len(set(names))
    assert all(spelled[name] == name for name in names if is_plain(name) and len(name) <= LONGEST)
    assert distinct(spelled.values()) == {name: name for name in spelled.values()}


def test_200_names_are_hostile() -> None:
    assert len(HOSTILE) >= 200
    assert sum(not is_plain(name) for name in HOSTILE) > 180
    assert {name for names in NETWORKS for name in names} >= set(HOSTILE)


def test_no_graph_and_no_plan_has_a_name_that_is_not_plain() -> None:
    graph = from_model(hostile_model([f"n{k}" for k in range(71)]))
    for changed in (
        {"name": "*/"},
        {"tensors": {**graph.tensors, "*/": graph.tensors["n0"]}},
        {"operators": (*graph.operators[:-1], _renamed(graph.operators[-1], name="*/"))},
        {"operators": (*graph.operators[:-1], _renamed(graph.operators[-1], kind="*/"))},
        {"operators": (*graph.operators[:-1], _renamed(graph.operators[-1], domain="*/"))},
    ):
        with pytest.raises(InvalidGraph, match="plain names"):
            type(graph)(**{**vars(graph), **changed})
    with pytest.raises(InvalidPlan, match="plain name"):
        ModelReference("*/", "", "simplified.onnx")
    for file in ("../x", "/x", "..", "", "a*"):
        with pytest.raises(InvalidPlan, match="file name"):
            ModelReference("m", "", file)


def _renamed(operator, **names):
    from dataclasses import replace

    return replace(operator, **names)


@pytest.fixture(params=range(len(NETWORKS)))
def planned(request, here, tmp_path: Path):
    """A network of hostile names, planned: (its model, folder of the plan)."""
    model = hostile_model(NETWORKS[request.param])
    onnx.save(model, tmp_path / "m.onnx")
    done = here(
        "search",
        tmp_path / "m.onnx",
        "--buffer",
        "4KiB",
        "--element-bytes",
        "4",
        "--scheme",
        "lbdf",
        "--out",
        tmp_path / "plan",
    )
    assert done.returncode == 0, done.stderr
    return model, tmp_path / "plan"


def preprocessed(folder: Path, flags: tuple[str, ...]) -> str:
    """The C of a folder, preprocessed: no comments, no strings, lines spliced, trigraphs replaced."""
    source = ""
    for file in sorted(folder.glob("*.[ch]")):
        done = subprocess.run(
            [*find_compiler(), *flags, "-E", "-P", "-I.", file.name],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        source += done.stdout
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', source)


@pytest.mark.parametrize("options", [(), ("--count",), ("--embed",)], ids=["plain", "count", "embed"])
def test_no_name_runs_in_generated_code(planned, options, here, tmp_path: Path) -> None:
    """The preprocessor sees no name's code under two standards; under one the program is built and right."""
    _, folder = planned
    code = tmp_path / "code"
    done = here("codegen", folder, "--target", "c99", "--out", code, *options)
    assert done.returncode == 0, done.stderr
    for flags in STANDARDS:
        seen = preprocessed(code, flags)
        assert not {"ran", "RAN"} & set(re.findall(r"\w+", seen))
    text = "".join(file.read_text() for file in [*code.glob("*.[ch]"), code / "Makefile", code / "README.md"])
    assert text.isascii()
    assert "\r" not in text
    if not options or not shutil.which("make"):
        return
    flags = " ".join(STANDARDS[len(options[0]) % 2])
    subprocess.run(
        ["make", f"CFLAGS={flags} -O0 -Wall -Werror -Wno-unused-function"],
        cwd=code,
        check=True,
        capture_output=True,
    )
    graph = load(folder / "simplified.onnx")
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}
    given = [
        part
        for k, name in enumerate(graph.inputs)
        for part in ("--input", f"in{k}.npy")
        if np.save(code / f"in{k}.npy", values[name]) is None
    ]
    given += [part for k in range(2) for part in ("--output", f"out{k}.npy")]
    (program,) = (
        path for path in code.iterdir() if path.name.startswith(identifier(plain("m"))) and path.suffix == ""
    )
    subprocess.run([program, *given], cwd=code, check=True)
    for k, (name, wanted) in enumerate(reference(graph, values).items()):
        assert np.allclose(np.load(code / f"out{k}.npy"), wanted, atol=1e-3), name
    assert not list(tmp_path.rglob("RAN"))


def test_callers_keep_their_own_names(planned, here, tmp_path: Path) -> None:
    """Inputs and outputs in .npz keep the names of the model file, however they are spelled inside."""
    model, folder = planned
    wanted_names = [value.name for value in model.graph.output]
    graph = from_model(model)
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}
    named = {graph.label(name): value for name, value in values.items()}
    assert set(named) == {value.name for value in model.graph.input}
    from lfopt.app.arrays import write_arrays

    write_arrays(tmp_path / "x.npz", named)
    done = here("execute", folder, "--input", tmp_path / "x.npz", "--out", tmp_path / "y.npz")
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(tmp_path / "y.npz") as archive:
        for name, (plain_name, value) in zip(wanted_names, reference(graph, values).items(), strict=True):
            assert graph.label(plain_name) == name
            key = name if ".." not in name else file_name(name)
            assert np.allclose(archive[key], value, atol=1e-3)
    again = from_model(to_model(graph))
    assert again.labels == graph.labels
    assert [again.operators, again.inputs, again.outputs] == [graph.operators, graph.inputs, graph.outputs]


def test_compiled_networks_take_and_give_the_names_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = hostile_model(NETWORKS[1])
    graph, compiled = from_model(model), one_shape(model, target="c99")
    assert [tensor.name for tensor in compiled.inputs] == [value.name for value in model.graph.input]
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}
    done = compiled.run({graph.label(name): value for name, value in values.items()})
    assert list(done) == [value.name for value in model.graph.output]
    for got, wanted in zip(done.values(), reference(graph, values).values(), strict=True):
        assert np.allclose(got, wanted, atol=1e-3)
    assert len(Backend.prepare(model, target="c99").run(list(values.values()))) == 2


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))


@pytest.mark.parametrize("columns", [80, 120])
def test_no_name_leaves_its_place_on_a_screen_or_a_page(
    planned, columns, here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands print printable characters alone; the report has the same elements as for other names."""
    monkeypatch.setenv("COLUMNS", str(columns))
    _, folder = planned
    told = [
        here("inspect", tmp_path / "m.onnx", "--buffer", "4KiB"),
        here("simulate", folder),
        here("check", folder),
        here("explain", folder, "--group", "0"),
        here("sweep", tmp_path / "m.onnx", "--buffers", "4KiB,64KiB", "--out", tmp_path / "sweep"),
        here(
            "report",
            folder,
            "--out",
            tmp_path / "hostile.html",
            "--sweep-seconds",
            "0",
            "--explain-seconds",
            "0",
        ),
    ]
    for done in told:
        assert done.returncode == 0, done.stderr
        text = done.stdout + done.stderr
        assert all(c.isprintable() or c == "\n" for c in text), text
    json.loads((folder / "plan.json").read_text())
    onnx.save(hostile_model([f"n{k}" for k in range(71)]), tmp_path / "m.onnx")
    here(
        "search",
        tmp_path / "m.onnx",
        "--buffer",
        "4KiB",
        "--element-bytes",
        "4",
        "--scheme",
        "lbdf",
        "--out",
        tmp_path / "other",
    )
    here(
        "report",
        tmp_path / "other",
        "--out",
        tmp_path / "plain.html",
        "--sweep-seconds",
        "0",
        "--explain-seconds",
        "0",
    )
    pages = [(tmp_path / name).read_text() for name in ("hostile.html", "plain.html")]
    tags = []
    for page in pages:
        reader = _Tags()
        reader.feed(page)
        tags.append(reader.elements)
    assert tags[0] == tags[1]
    assert (tmp_path / "sweep" / "staircase.svg").read_text().count("<script") == 0


def test_no_name_leaves_its_place_in_a_command_stream(here, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx.save(hostile_model(NETWORKS[2]), tmp_path / "m.onnx")
    chip = ROOT / "configs" / "hardware" / "accelerator_256k.yaml"
    for arguments in (
        ("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx"),
        ("search", tmp_path / "q.onnx", "--hardware", chip, "--scheme", "auto", "--out", tmp_path / "plan"),
        ("codegen", tmp_path / "plan", "--target", "accel", "--out", tmp_path / "stream"),
    ):
        done = here(*arguments)
        assert done.returncode == 0, done.stderr
    stream, _, graph = read_stream(tmp_path / "stream")
    assert [stored.name for stored in stream.inputs] == list(graph.inputs)
    for name in ("program.lst", "stream.json", "plan.json"):
        text = (tmp_path / "stream" / name).read_text()
        assert all(c.isprintable() or c == "\n" for c in text)
        assert text.isascii()
    assert "RAN" not in (tmp_path / "stream" / "program.lst").read_text()


def test_a_name_in_a_plan_is_no_code_either(planned, here) -> None:
    """A plan that is edited by hand: names that are not plain are refused wherever they stand."""
    _, folder = planned
    whole = json.loads((folder / "plan.json").read_text())
    for path in (
        ("model", "name"),
        ("model", "onnx"),
        ("groups", 0, "nodes", 0),
        ("groups", 0, "steps", 0),
        ("memory", 0, "name"),
    ):
        plan = json.loads(json.dumps(whole))
        at = plan
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = f"*/ {RUNS} /*"
        (folder / "plan.json").write_text(json.dumps(plan))
        done = here("codegen", folder, "--out", folder / "code")
        assert done.returncode == 2, path
        assert len(done.stderr.splitlines()) == 1
        assert not (folder / "code").exists()


def test_operators_and_domains_of_hostile_names_stay_alone(here, tmp_path: Path) -> None:
    """An operator that nobody knows is planned by itself, whatever it and its domain are called."""
    chosen = HOSTILE[::10]
    nodes = [helper.make_node(name, [f"x{k}"], [f"x{k + 1}"], domain=name) for k, name in enumerate(chosen)]
    ends = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, (1, 4)) for k in range(len(chosen) + 1)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[-1:], value_info=ends[1:-1])
    imports = [helper.make_opsetid(name, 1) for name in ("", *chosen)]
    imports[0].version = 18
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    for arguments, code in (
        (("inspect", tmp_path / "m.onnx"), 0),
        (("search", tmp_path / "m.onnx", "--out", tmp_path), 3),  # what nobody knows has no steps
        (("check", tmp_path), 0),
    ):
        done = here(*arguments)
        assert done.returncode == code, done.stderr
        assert all(c.isprintable() or c == "\n" for c in done.stdout + done.stderr)


def test_models_of_hostile_names_are_refused_in_one_line() -> None:
    """Two inputs that callers call by one name: nobody could tell which is meant."""
    model = to_model(from_model(hostile_model(NETWORKS[0])))
    for value in model.graph.input:
        del value.metadata_props[:]
        value.metadata_props.add(key="lfopt.name", value="same")
    with pytest.raises(LfoptError, match="both called 'same'"):
        from_model(model)


def test_every_comment_with_something_in_it_is_checked() -> None:
    """Code generators print text of a model through `Writer.comment` and `string` alone."""
    for file in sorted((ROOT / "codegen").rglob("*.py")):
        if file.name == "writer.py":
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for text in re.findall(r"""f(?:"[^"]*"|'[^']*')""", line):
                inside = re.search(r"/\*(?:(?!\*/).)*\{|//[^/]*\{", re.sub(r"\{[^{}]*//[^{}]*\}", "", text))
                assert not inside, f"{file}:{number}"
