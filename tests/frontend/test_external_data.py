"""Weights in files beside the model: read from its folder only, and only as many bytes as the dims want."""

import numpy as np
import onnx
import pytest

from lfopt.frontend import from_model, load
from lfopt.ir import Graph, InvalidModel
from tests.frontend.oracle import structure
from tests.frontend.small_models import NEWEST, build, floats, make_node, one

WEIGHTS = floats(40, 50)


def external(folder, write=True, **info):
    """A MatMul with its weights in weights.bin; returns the model's path."""
    model = one("MatMul", (2, 40), WEIGHTS, opset=NEWEST)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", **info}.items():
        tensor.external_data.add(key=key, value=str(value))
    if write:
        (folder / "weights.bin").write_bytes(bytes(64) + WEIGHTS.tobytes())
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def given(graph: Graph, name: str) -> np.ndarray:
    """The values of a constant, which has some."""
    value = graph.constants[name]
    assert value is not None
    return value


def test_values_come_from_the_file(tmp_path):
    graph = load(external(tmp_path, offset=64, length=8000))
    assert np.array_equal(given(graph, "c0"), WEIGHTS)
    assert graph.notes == ()


def test_without_the_file_shapes_are_known_and_one_note_says_so(tmp_path):
    graph = load(external(tmp_path, write=False))
    assert graph.constants == {"c0": None}
    assert graph.notes == (
        (
            "1 of 1 constants have no values (external data that is absent, "
            "or made from it): shapes alone are used"
        ),
    )
    assert structure(graph) == structure(load(external(tmp_path, offset=64)))


@pytest.mark.parametrize(
    "location",
    [
        "../weights.bin",
        "/etc/passwd",
        "a/../../weights.bin",
        "..\\weights.bin",
        "",
        "a\0b",
        "link",
        "linked/weights.bin",
    ],
)
def test_a_location_outside_the_folder_is_refused(location, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(8000))
    (tmp_path / "model/link").symlink_to(tmp_path / "weights.bin")
    (tmp_path / "model/linked").symlink_to(tmp_path)
    with pytest.raises(
        InvalidModel, match=r"initializer 'c0': external data location .* lies outside the model's folder"
    ):
        load(external(tmp_path / "model", location=location))


@pytest.mark.parametrize(
    ("info", "wanted"),
    [
        ({"offset": -64}, "offset is '-64'; wanted is a number of bytes"),
        ({"offset": "many"}, "offset is 'many'"),
        ({"offset": "9" * 5000}, "offset is '999"),
        ({"offset": 65}, "bytes 65 to 8065 of 'weights.bin', which has 8064"),
        ({"offset": 1 << 59}, "which has 8064"),
        ({"length": 1 << 59}, "which has 8064"),
        ({"length": 400}, r"400 bytes in 'weights.bin', dims \[40, 50\] want 8000"),
        ({"location": "folder"}, "is not a file"),
        ({"location": "loop"}, "."),
        ({"location": "n" * 5000}, "File name too long"),
    ],
)
def test_what_does_not_agree_with_the_dims_is_refused(info, wanted, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    if info.get("location") == "loop":
        assert load(external(tmp_path, **info)).constants == {"c0": None}
        return
    with pytest.raises(InvalidModel, match=wanted):
        load(external(tmp_path, **info))


def test_a_sparse_file_of_a_terabyte_is_not_read(tmp_path):
    model = build(
        [make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, 1 << 18), "w": (1 << 18, 1 << 17)}, opset=NEWEST
    )
    tensor = model.graph.initializer.add(
        name="w", data_type=1, dims=[1 << 18, 1 << 17], data_location=onnx.TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="w")
    with (tmp_path / "w").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert load(tmp_path / "m.onnx").shape("y") == (1, 1 << 17)


def test_constant_nodes_may_keep_their_values_outside_too(tmp_path):
    path = external(tmp_path, offset=64)
    model = onnx.load(path, load_external_data=False)
    model.graph.node.insert(0, make_node("Constant", [], ["c0"], value=model.graph.initializer[0]))
    del model.graph.initializer[:]
    path.write_bytes(model.SerializeToString())
    assert np.array_equal(given(load(path), "c0"), WEIGHTS)


def test_a_model_in_memory_has_no_folder(tmp_path):
    model = onnx.load(external(tmp_path), load_external_data=False)
    assert from_model(model).constants == {"c0": None}


def test_packed_types_are_unpacked(tmp_path):
    values = np.arange(-8, 7).astype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4))
    model = build(
        [make_node("Cast", ["w"], ["f"], to=1), make_node("Add", ["x", "f"], ["y"])],
        {"x": (15,)},
        opset=NEWEST,
    )
    tensor = model.graph.initializer.add()
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    (tmp_path / "w").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert given(load(tmp_path / "m.onnx"), "f").tolist() == list(range(-8, 7))
