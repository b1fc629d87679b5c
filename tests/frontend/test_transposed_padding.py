"""Padding of transposed convolutions by output_shape or auto_pad: taken where settled, else refused by name.

docs/resize.md has the table. The expected padding is that of the specification's formula.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from lfopt.frontend import from_model
from lfopt.ir import UnsupportedModel
from lfopt.ops.reference import reference

ort.set_default_logger_severity(4)


def model(rows: int, kernel: int, **attributes: Any) -> onnx.ModelProto:
    """A ConvTranspose along the rows of a (1, 1, rows, 1) map; attributes are those of the rows.

    Powers of ten tell the taps apart.
    """
    beside = {"output_padding": 0}
    both: dict[str, Any] = {
        name: [value, beside.get(name, 1)] if isinstance(value, int) else value
        for name, value in attributes.items()
    }
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up", kernel_shape=[kernel, 1], **both)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 1, rows, 1))
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    weights = numpy_helper.from_array(
        (10.0 ** np.arange(kernel)).astype(np.float32).reshape(1, 1, -1, 1), "w"
    )
    graph = helper.make_graph([node], "up", [x], [y], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def numbered(rows: int) -> np.ndarray:
    return np.arange(1, rows + 1, dtype=np.float32).reshape(1, 1, -1, 1)


def specified(rows: int, kernel: int, a: dict[str, Any]) -> list[float]:
    """ONNX operator ConvTranspose, its equations for output_shape, total_padding and pads."""
    stride, dilation, mode = a["strides"], a["dilations"], a.get("auto_pad", "NOTSET")
    full = stride * (rows - 1) + a.get("output_padding", 0) + (kernel - 1) * dilation + 1
    length = a.get("output_shape", rows * stride if mode.startswith("SAME") else full)
    before = (full - length) // 2 if mode == "SAME_UPPER" else full - length - (full - length) // 2
    spread = np.zeros(full + 2 * length + 8)
    for i in range(rows):
        for j in range(kernel):
            spread[length + 4 + i * stride + j * dilation] += (i + 1) * 10.0**j
    return spread[length + 4 + before :][:length].tolist()


def by_runtime(proto: onnx.ModelProto, rows: int) -> list[float] | None:
    """None where ONNX Runtime refuses."""
    try:
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"x": numbered(rows)})[0]).reshape(-1).tolist()
    except (InvalidArgument, Fail):
        return None


def test_what_is_taken_is_specified_and_what_is_refused_is_disputed() -> None:
    rng, tally = np.random.default_rng(0), Counter[str]()
    for _ in range(200):
        rows, kernel, stride, dilation = (int(rng.integers(1, high)) for high in (5, 4, 4, 3))
        attributes: dict[str, Any] = {"strides": stride, "dilations": dilation}
        if extra := int(rng.integers(0, max(stride, dilation))):
            attributes["output_padding"] = extra
        if (mode := str(rng.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))) != "NOTSET":
            attributes["auto_pad"] = mode
        if rng.random() < 0.5:
            natural = stride * (rows - 1) + extra + (kernel - 1) * dilation + 1
            attributes["output_shape"] = max(1, natural + int(rng.integers(-3, 4)))
        proto, x, wanted = (
            model(rows, kernel, **attributes),
            {"x": numbered(rows)},
            specified(rows, kernel, attributes),
        )
        runtime = by_runtime(proto, rows)
        try:
            graph = from_model(proto)
        except UnsupportedModel:
            assert runtime is None or runtime != wanted, f"{rows} {kernel} {attributes} is settled"
            tally["refused"] += 1
            continue
        assert reference(graph, x)["y"].reshape(-1).tolist() == wanted, f"{rows} {kernel} {attributes}"
        assert runtime in (None, wanted), f"{rows} {kernel} {attributes}"
        tally["as ONNX Runtime" if runtime else "alone"] += 1
    assert tally["refused"] > 20
    assert tally["as ONNX Runtime"] > 100


@pytest.mark.parametrize(
    ("rows", "kernel", "attributes", "wanted"),
    [
        # 4 rows; ONNX's inference says 5
        (2, 3, {"auto_pad": "SAME_UPPER", "output_padding": 1}, [10, 102, 20, 200]),
        (2, 3, {"auto_pad": "SAME_LOWER", "output_padding": 1}, [10, 102, 20, 200]),
        (2, 3, {"output_shape": 6}, [1, 10, 102, 20, 200, 0]),  # one row more than there is
        (2, 3, {"output_shape": 3, "pads": [9, 9, 9, 9]}, [10, 102, 20]),  # pads are ignored
        (3, 2, {"output_shape": 2}, [2, 20]),  # less than the input, of which ONNX infers nothing
    ],
)
def test_the_result_is_as_long_as_the_specification_says(
    rows: int, kernel: int, attributes: dict[str, Any], wanted: list[float]
) -> None:
    proto = model(rows, kernel, strides=2, **attributes)
    assert reference(from_model(proto), {"x": numbered(rows)})["y"].reshape(-1).tolist() == wanted


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        # a row in front or behind
        ({"auto_pad": "SAME_UPPER", "output_shape": 6}, "output_shape makes axis 2 longer by 1 than"),
        # two rows: one on each side, or both behind
        ({"output_shape": 7}, "output_shape makes axis 2 longer by 2 than"),
        # 8 rows or 7
        ({"auto_pad": "SAME_LOWER", "strides": 4}, "auto_pad SAME_LOWER makes axis 2 longer by 1 than"),
    ],
)
def test_zeros_whose_place_is_disputed_are_refused(attributes: dict[str, Any], told: str) -> None:
    proto = model(2, 3, **{"strides": 2} | attributes)
    with pytest.raises(UnsupportedModel, match=r"^model: node 'up' \(ConvTranspose\): ") as caught:
        from_model(proto)
    assert told in str(caught.value)
