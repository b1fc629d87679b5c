"""save and load are inverses, and a failed save leaves no trace."""

import importlib
import os
import resource
import signal
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node

from lfopt.frontend import from_model, load, save, to_model
from lfopt.ir import CannotWrite, LfoptError, Tensor
from tests.frontend.oracle import LIGHT, SHARED
from tests.frontend.same import assert_same
from tests.frontend.schema_cases import sampled
from tests.frontend.small_models import build, declare, extra_forms, one

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
    assert_same(load(tmp_path / "g.onnx"), graph)


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
