"""save and load are inverses, and a failed save leaves no trace."""

import importlib
import os
import re
import resource
import signal
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_function, make_graph, make_node, make_opsetid, make_tensor_value_info

from lfopt.frontend import from_model, load, save, to_model
from lfopt.ir import CannotWrite, FileOperator, InvalidModel, LfoptError, Tensor
from tests.frontend.oracle import LIGHT, SHARED
from tests.frontend.same import assert_same
from tests.frontend.schema_cases import sampled
from tests.frontend.small_models import build, declare, extra_forms, one, with_functions

module = importlib.import_module("lfopt.frontend.save")
NETWORKS = (
    [path for path in LIGHT if path.stem in ("light_squeezenet", "light_shufflenet")]
    + SHARED[:3]
    + SHARED[-2:]
)


HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
SHARE = 60  # of the cases of ONNX's schemas, of which one is saved


def forms():
    for case in sampled(SHARE):
        if "float16" not in str(case) and case.attributes.get("to") not in HALVES:  # casts are added to these
            yield str(case), case.model()
    yield from extra_forms()


@pytest.mark.parametrize("inline", [1 << 30, 0], ids=["inline", "external"])
def test_load_undoes_save(inline, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INLINE_BYTES", inline)
    for _, model in forms():
        try:
            graph = from_model(model, name="g")
        except LfoptError:
            continue
        save(graph, tmp_path / "g.onnx")
        assert_same(load(tmp_path / "g.onnx"), graph)


@pytest.mark.parametrize("inline", [1 << 30, 0], ids=["inline", "external"])
@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_load_undoes_save_on_networks(path, inline, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INLINE_BYTES", inline)
    graph = load(path)
    save(graph, tmp_path / "g.onnx")
    again = load(tmp_path / "g.onnx")
    assert_same(again, graph)
    assert again.files[0] == graph.files[0]


# -- operators of the file before ----------------------------------------------------------------------------


def with_unused():
    """A network with an operator that loading drops."""
    nodes = [make_node("Relu", ["x"], ["y"], name="kept"), make_node("Abs", ["x"], ["z"], name="unused")]
    return build(nodes, {"x": (2, 3)}, outputs=["y"], opset=18)


def test_a_saved_model_names_the_operators_of_the_file_before_it():
    graph = from_model(with_unused())
    assert [operator.name for operator in graph.operators] == ["kept"]
    assert graph.files[0]["unused"] == FileOperator("Abs", ("x",), ("z",))
    saved = to_model(graph)
    saved.graph.node.append(make_node("Neg", ["x"], ["n"], name="added"))
    again = from_model(saved)
    assert again.files[0] == graph.files[0] == from_model(to_model(again)).files[0]
    assert [*again.files[1]] == ["kept", "added"]


def test_a_model_without_the_operators_of_an_earlier_file_has_its_own():
    saved = to_model(from_model(with_unused()))
    saved.producer_name = "another"  # it may have given tensors other names
    assert [[*file] for file in from_model(saved).files] == [["kept"]]
    saved.producer_name = "lfopt"
    del saved.metadata_props[:]
    assert [[*file] for file in from_model(saved).files] == [["kept"]]
    assert not to_model(replace(from_model(saved), files=())).metadata_props


def test_operators_in_bodies_and_functions_belong_to_the_first_that_calls_them():
    inner = make_function(
        "f", "inner", ["a"], ["b"], [make_node("Relu", ["a"], ["b"], "deep")], [make_opsetid("", 18)]
    )
    calls = [make_node("inner", ["a"], ["b"], "call", domain="f")]
    outer = make_function("f", "outer", ["a"], ["b"], calls, [make_opsetid("f", 1)])
    nodes = [
        make_node("outer", ["x"], ["m"], "first", domain="f"),
        make_node("inner", ["m"], ["y"], "second", domain="f"),
    ]
    model = with_functions(build(nodes, {"x": (2, 3)}, opset=18, domains=["f"]), inner, outer)
    (file,) = from_model(model).files
    assert file["deep"] == file["call"] == FileOperator("outer", (), ("m",), "first")
    assert file["second"].inside == ""


def test_a_branch_that_nothing_reads_may_have_names_that_are_no_text():
    branches: dict[str, Any] = {
        f"{branch}_branch": make_graph(
            [make_node("Relu", ["x"], ["b"], name)], branch, [], [make_tensor_value_info("b", 1, None)]
        )
        for branch, name in (("then", "taken"), ("else", "QQQQ"))
    }
    always = {"c": np.array([True]).reshape(())}
    model = build([make_node("If", ["c"], ["y"], "maybe", **branches)], {"x": (2, 3)}, always, opset=18)
    odd = onnx.ModelProto.FromString(model.SerializeToString().replace(b"QQQQ", b"\xff\xfe\xff\xfe"))
    assert from_model(odd).files[0]["taken"].inside == "maybe"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: found ''; accepted: an operator, its kind, inputs, outputs"),
        ("a\tRelu\tx\ty\t", "line 1"),
        ("a\tRelu\tx\ty\t\t\t", "line 1"),
        ("a\tRelu\tx\ty\t\t\nb\tRelu\tx,,z\ty\t\t", "line 2"),
        ("\tRelu\tx\ty\t\t", "line 1"),
        ("a*\tRelu\tx\ty\t\t", "line 1"),
        ("a\tRelu\t<b>\ty\t\t", "line 1"),
        (f"{'a' * 1001}\tRelu\tx\ty\t\t", "line 1"),
        ("a\tRelu\tx\ty\t\tmaybe", "line 1"),
        ("a\tRelu\tx\ty\t\t\na\tRelu\tx\ty\t\t", "line 2: found 'a' twice; accepted: each operator once"),
        ("a" * ((1 << 24) + 1), "accepted: one text of UTF-8, of up to 16,777,216 characters"),
    ],
)
def test_operators_of_an_earlier_file_that_save_does_not_write_are_refused(text, said):
    saved = to_model(from_model(with_unused()))
    saved.metadata_props[0].value = text
    with pytest.raises(InvalidModel, match=re.escape(said)) as refused:
        from_model(saved, label="m.onnx")
    assert str(refused.value).startswith("m.onnx: metadata 'lfopt.operators': ")
    assert str(refused.value).isprintable()


def test_operators_of_an_earlier_file_are_one_text():
    saved = to_model(from_model(with_unused()))
    twice = (
        saved.SerializeToString() + onnx.ModelProto(metadata_props=saved.metadata_props).SerializeToString()
    )
    odd = saved.SerializeToString().replace(b"unused", b"\xff\xfe\xff\xfe\xff\xfe")
    for data in (twice, odd):
        with pytest.raises(InvalidModel, match=r"metadata 'lfopt.operators': accepted: one text of UTF-8"):
            from_model(onnx.ModelProto.FromString(data))


def test_operators_that_are_too_many_to_be_read_are_not_written(monkeypatch):
    graph = from_model(with_unused())
    monkeypatch.setattr("lfopt.frontend.file_operators.MOST_BYTES", 30)
    assert not to_model(graph).metadata_props


# -- whole or not at all -------------------------------------------------------------------------------------


def weights(seed):
    return from_model(
        one("MatMul", (2, 40), np.random.default_rng(seed).random((40, 50), np.float32), opset=18), name="g"
    )


def test_values_beyond_the_limit_go_to_one_file_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INLINE_BYTES", 4000)
    save(weights(0), tmp_path / "g.onnx")
    model, data = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_size)
    assert (model.name, data.suffix, data.stat().st_size) == ("g.onnx", ".data", 8000)
    onnx.checker.check_model(str(tmp_path / "g.onnx"))


def test_saving_over_a_model_with_external_values_is_safe_even_from_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INLINE_BYTES", 0)
    first = weights(0)
    save(first, tmp_path / "g.onnx")
    held = load(tmp_path / "g.onnx")  # its values are mapped from the file that is about to be replaced
    save(weights(1), tmp_path / "g.onnx")
    assert_same(held, first)
    assert_same(load(tmp_path / "g.onnx"), weights(1))
    itself = load(tmp_path / "g.onnx")
    save(itself, tmp_path / "g.onnx")
    assert_same(load(tmp_path / "g.onnx"), weights(1))
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(module, "INLINE_BYTES", 1 << 30)
    save(itself, tmp_path / "g.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["g.onnx"]
    assert_same(load(tmp_path / "g.onnx"), weights(1))


@pytest.mark.parametrize("inline", [1 << 30, 0], ids=["inline", "external"])
def test_a_full_disk_leaves_what_was_there(inline, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INLINE_BYTES", inline)
    save(weights(0), tmp_path / "g.onnx")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(CannotWrite, match=r"g\.onnx(\.\w+\.data)?: cannot be written: File too large"):
            save(weights(1), tmp_path / "g.onnx")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("inline", [1 << 30, 0], ids=["inline", "external"])
def test_a_model_is_on_the_disk_before_it_has_its_name(inline, tmp_path, monkeypatch):
    """The file, then its name: what a crash at any moment leaves is the model before or the whole new one."""
    monkeypatch.setattr(module, "INLINE_BYTES", inline)
    save(weights(0), tmp_path / "g.onnx")
    seen, sync = [], os.fsync

    def synced(file):
        path = Path(f"/proc/self/fd/{file}").readlink()
        seen.append(
            "folder" if path == tmp_path else path.suffixes[-3] if path.suffix == ".part" else path.name
        )
        assert_same(
            load(tmp_path / "g.onnx"), weights(1 if seen.count("folder") == (1 if inline else 2) else 0)
        )
        sync(file)

    monkeypatch.setattr(os, "fsync", synced)
    save(weights(1), tmp_path / "g.onnx")
    assert seen == [*([] if inline else [".data", "folder"]), ".onnx", "folder"]


def test_a_place_that_cannot_be_written_is_an_os_error_of_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for path in (
        tmp_path / "gone/g.onnx",
        tmp_path / "folder",
        tmp_path / "file/g.onnx",
        tmp_path / ("n" * 300),
    ):
        with pytest.raises(CannotWrite, match="cannot be written") as caught:
            save(weights(0), path)
        assert isinstance(caught.value, OSError)
        assert str(caught.value).isprintable()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder"]


def test_a_folder_without_write_permission_is_named(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        (tmp_path / "probe").touch()
    except OSError:
        with pytest.raises(CannotWrite, match="Permission denied"):
            save(weights(0), tmp_path / "g.onnx")
    else:
        pytest.skip("this user may write anywhere")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_the_checker_accepts_what_is_saved():
    for name, model in forms():
        try:
            graph = from_model(model)
        except LfoptError:
            continue
        if all(value is not None for value in graph.constants.values()) and name not in ("unregistered",):
            onnx.checker.check_model(to_model(graph), full_check=True)


def test_an_empty_list_attribute_survives():
    model = declare(
        build([make_node("Odd", ["x"], ["y"], domain="mine")], {"x": (2,)}, opset=18, domains=["mine"]),
        {"y": (2,)},
    )
    model.graph.node[0].attribute.add(name="axes", type=onnx.AttributeProto.INTS)
    graph = from_model(model)
    assert graph.operators[0].attributes == {"axes": ()}
    assert from_model(to_model(graph)).operators[0].attributes == {"axes": ()}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "uint8", "string"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (70_000,)])
def test_constants_are_written_without_a_copy_as_protobuf_would(tmp_path, dtype: str, shape) -> None:
    values = np.zeros(shape, dtype) if dtype != "string" else np.full(shape, b"word", object)
    graph = from_model(one("Add", [2, 3], np.ones(3, "float32"), opset=17))
    added = (Tensor("c", shape, dtype), Tensor("absent", (4,), "float32"))
    tensors = {**graph.tensors, **{tensor.name: tensor for tensor in added}}
    graph = replace(graph, tensors=tensors, constants={**graph.constants, "c": values, "absent": None})
    save(graph, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == to_model(graph).SerializeToString()
