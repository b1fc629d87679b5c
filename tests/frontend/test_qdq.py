"""Q and DQ become types and scales of tensors; the QDQ model written back computes the same bits."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from onnxruntime.quantization import QuantFormat

from lfopt.frontend import from_model, load, save, to_model
from lfopt.frontend.qdq import is_q_or_dq
from lfopt.frontend.qoperators import OF_MICROSOFT
from lfopt.ir import Graph, InvalidModel, LfoptError, Quantization, UnsupportedModel
from lfopt.ops import Dataflow, spec
from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from tests.frontend.oracle import newest_opset_of_onnxruntime
from tests.frontend.same import assert_same
from tests.qdq_models import integers, quantise, random_feeds, run, steps_apart, zoo_network
from tests.strategies import random_graph

FLOAT = TensorProto.FLOAT


class Net:
    """A small model, node by node."""

    def __init__(self, opset: int = 21, seed: int = 0, domain: str = "") -> None:
        self.opset, self.domain, self.rng = opset, domain, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, *shape: int, dtype: str = "float32") -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        )
        return name

    def constant(self, value: object, dtype: str = "float32", name: str | None = None) -> str:
        name = name or f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def node(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> str:
        results = [
            f"{kind.lower()}{len(self.nodes)}" + (f".{k}" if outputs > 1 else "") for k in range(outputs)
        ]
        self.nodes.append(
            helper.make_node(kind, inputs, results, f"n{len(self.nodes)}", domain=domain, **attributes)
        )
        return results[0]

    def q(self, x: str, scale: float = 0.05, zero: int | None = 3, dtype: str = "int8") -> str:
        return self.node("QuantizeLinear", x, *self._by(scale, zero, dtype), domain=self.domain)

    def dq(self, x: str, scale: float = 0.05, zero: int | None = 3, dtype: str = "int8") -> str:
        return self.node("DequantizeLinear", x, *self._by(scale, zero, dtype), domain=self.domain)

    def _by(self, scale: float, zero: int | None, dtype: str) -> list[str]:
        return [self.constant(scale)] + ([] if zero is None else [self.constant(zero, dtype)])

    def qdq(self, x: str, scale: float = 0.05, zero: int | None = 3, dtype: str = "int8") -> str:
        return self.dq(self.q(x, scale, zero, dtype), scale, zero, dtype)

    def weight(self, *shape: int, axis: int | None = 0, scale: float = 0.01) -> str:
        count = 1 if axis is None else shape[axis]
        held = self.constant(self.rng.integers(-127, 128, shape), "int8")
        scales = scale * np.arange(1, count + 1) if axis is not None else scale
        parameters = self.constant(scales), self.constant(np.zeros(np.shape(scales)), "int8")
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        return self.node("DequantizeLinear", held, *parameters, **attributes)

    def bias(self, count: int, unit: float = 0.05 * 0.01) -> str:
        held = self.constant(self.rng.integers(-500, 500, count), "int32")
        scales = self.constant(unit * np.arange(1, count + 1)), self.constant(np.zeros(count), "int32")
        return self.node("DequantizeLinear", held, *scales, axis=0)

    def conv(self, x: str, channels: int = 4, filters: int = 4) -> str:
        return self.node(
            "Conv", x, self.weight(filters, channels, 3, 3), self.bias(filters), pads=[1, 1, 1, 1]
        )

    def model(self, *outputs: str) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            self.inputs,
            [
                helper.make_tensor_value_info(name, FLOAT, None)
                if self.domain
                else helper.make_empty_tensor_value_info(name)
                for name in outputs
            ],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)] + (
            [helper.make_opsetid(self.domain, 1)] if self.domain else []
        )
        proto = helper.make_model(
            graph, opset_imports=opsets, ir_version=min(10, onnx.helper.VERSION_TABLE[-1][1])
        )
        return proto if self.domain else onnx.shape_inference.infer_shapes(proto)


IMAGE = (1, 4, 6, 5)

# -- forms of QDQ models: (model, kinds of the operators that are left) --------------------------------------


def plain(opset: int = 21) -> tuple[ModelProto, str]:
    net = Net(opset)
    x = net.qdq(net.input(*IMAGE))
    return net.model(net.qdq(net.conv(x))), "Conv"


def relu_without_q_between() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node("Relu", net.conv(net.qdq(net.input(*IMAGE))))
    return net.model(net.qdq(x, 0.1, -20)), "Conv Relu"


def several_operators_that_take_q_through() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node("Clip", net.conv(net.qdq(net.input(*IMAGE))), net.constant(0.0), net.constant(6.0))
    x = net.node("Transpose", net.node("MaxPool", x, kernel_shape=[2, 2]), perm=[0, 2, 3, 1])
    return net.model(net.qdq(x, 0.02, -128)), "Conv Clip MaxPool Transpose"


def concat_of_two_convolutions() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.input(*IMAGE))
    return net.model(
        net.qdq(net.node("Concat", net.conv(x), net.conv(x), axis=1), 0.3, 0)
    ), "Conv Conv Concat"


def concat_of_two_scales() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.input(*IMAGE))
    parts = net.qdq(net.conv(x), 0.2, 5), net.qdq(net.conv(x), 0.4, -5)
    return net.model(net.qdq(net.node("Concat", *parts, axis=1), 0.3, 0)), "Conv Conv Concat"


def view_of_one_scale() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.node("Flatten", net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)), 0.1, 0)
    return net.model(
        net.qdq(net.node("Gemm", x, net.weight(7, 120), net.bias(7, 0.1 * 0.01), transB=1), 0.5, 0)
    ), "Conv Flatten Gemm"


def view_without_q_behind() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node("Flatten", net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0))
    return net.model(
        net.qdq(net.node("MatMul", x, net.weight(120, 7, axis=1)), 0.5, 0)
    ), "Conv Flatten MatMul"


def view_that_changes_the_scale() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(
        net.qdq(net.node("Reshape", x, net.constant([1, -1], "int64")), 0.2, 7)
    ), "Conv Reshape QuantizeLinear"


def view_as_the_result() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(net.node("Reshape", x, net.constant([1, -1], "int64"))), "Conv Reshape"


def island() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    x = net.qdq(net.node("Softmax", net.node("HardSwish", x), axis=1), 1 / 256, -128)
    return net.model(
        net.qdq(net.conv(x), 0.2, 0)
    ), "Conv DequantizeLinear HardSwish Softmax QuantizeLinear Conv"


def island_up_to_the_result() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(net.node("Softmax", x, axis=1)), "Conv DequantizeLinear Softmax"


def softmax_between_q_and_dq() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(net.qdq(net.node("Softmax", x, axis=1), 1 / 256, -128)), "Conv Softmax"


def integers_with_a_reader_on_floats() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(net.qdq(net.conv(x), 0.2, 0), net.node("Exp", x)), "Conv DequantizeLinear Conv Exp"


def input_with_a_reader_on_floats() -> tuple[ModelProto, str]:
    net = Net()
    x = net.input(*IMAGE)
    return net.model(net.qdq(net.conv(net.qdq(x)), 0.1, 0), net.node("Exp", x)), "QuantizeLinear Conv Exp"


def one_map_in_two_scales() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node("Sigmoid", net.qdq(net.input(*IMAGE)))
    parts = net.conv(net.qdq(x, 0.05, 0)), net.conv(net.qdq(x, 0.06, 0))
    return net.model(
        *(net.qdq(part, 0.1, 0) for part in parts)
    ), "DequantizeLinear Sigmoid QuantizeLinear QuantizeLinear Conv Conv"


def a_pair_for_each_reader() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node("Sigmoid", net.qdq(net.input(*IMAGE)))
    return net.model(
        *(net.qdq(net.conv(net.qdq(x, 0.01, -100)), 0.1, 0) for _ in range(2))
    ), "Sigmoid Conv Conv"


def integers_in_and_out() -> tuple[ModelProto, str]:
    net = Net()
    return net.model(net.q(net.conv(net.dq(net.input(*IMAGE, dtype="int8"))), 0.1, 0)), "Conv"


def result_as_integers_and_as_reals() -> tuple[ModelProto, str]:
    net = Net()
    held = net.q(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(held, net.dq(held, 0.1, 0)), "Conv DequantizeLinear"


def result_that_is_read_too() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(x, net.qdq(net.conv(x), 0.2, 0)), "Conv Conv"


def result_that_is_read_as_reals_too() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    return net.model(x, net.node("Exp", x)), "Conv DequantizeLinear Exp"


def weight_in_floats() -> tuple[ModelProto, str]:
    net = Net()
    weight = net.constant(net.rng.standard_normal((4, 4, 3, 3)))
    scales = [net.constant(0.02 * np.arange(1, 5)), net.constant(np.zeros(4), "int8")]
    weight = net.node(
        "DequantizeLinear", net.node("QuantizeLinear", weight, *scales, axis=0), *scales, axis=0
    )
    return net.model(net.qdq(net.node("Conv", net.qdq(net.input(*IMAGE)), weight), 0.3, 0)), "Conv"


def weight_turned_after_dq() -> tuple[ModelProto, str]:
    net = Net()
    weight = net.node("Transpose", net.weight(7, 5, axis=0), perm=[1, 0])
    return net.model(net.qdq(net.node("MatMul", net.qdq(net.input(3, 5)), weight), 0.3, 0)), "MatMul"


def weight_of_an_island_too() -> tuple[ModelProto, str]:
    net = Net()
    weight, x = net.weight(4, 4, 3, 3), net.qdq(net.input(*IMAGE))
    return net.model(
        net.qdq(net.node("Conv", x, weight), 0.3, 0), net.node("Conv", x, weight)
    ), "DequantizeLinear Conv Conv"


def weights_only() -> tuple[ModelProto, str]:
    net = Net()
    return net.model(net.conv(net.input(*IMAGE))), "Conv"


def no_zero_point() -> tuple[ModelProto, str]:
    net = Net()
    return net.model(
        net.qdq(net.conv(net.qdq(net.input(*IMAGE), zero=None, dtype="uint8")), 0.1, None, "uint8")
    ), "Conv"


def index_of_the_greatest() -> tuple[ModelProto, str]:
    net = Net()
    return net.model(
        net.node("ArgMax", net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0), axis=1)
    ), "Conv ArgMax"


def sixteen_bits() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.001, 0, "int16")
    return net.model(
        net.qdq(net.conv(x), 0.2, 0)
    ), "DequantizeLinear Conv QuantizeLinear DequantizeLinear Conv QuantizeLinear"


def change_of_scale() -> tuple[ModelProto, str]:
    net = Net()
    return net.model(
        net.qdq(net.conv(net.qdq(net.qdq(net.input(*IMAGE)), 0.1, 0)), 0.4, 0)
    ), "QuantizeLinear Conv"


def integers_moved_as_integers() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node("Transpose", net.q(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0), perm=[0, 1, 3, 2])
    return net.model(net.qdq(net.conv(net.dq(x, 0.1, 0)), 0.4, 0)), "Conv Transpose Conv"


def integers_read_at_another_scale() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node("Transpose", net.q(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0), perm=[0, 1, 3, 2])
    return net.model(net.node("Exp", net.dq(x, 0.05, 0))), "Conv Transpose DequantizeLinear Exp"


def padded_with_another_number() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node(
        "Pad",
        net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0),
        net.constant([0, 0, 1, 1, 0, 0, 1, 1], "int64"),
        net.constant(0.33),
    )
    return net.model(net.qdq(x, 0.1, 0)), "Conv Pad"


def integers_padded_as_integers() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node(
        "Pad",
        net.q(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 40),
        net.constant([0, 0, 1, 1, 0, 0, 1, 1], "int64"),
    )
    return net.model(
        net.qdq(net.conv(net.dq(x, 0.1, 40)), 0.4, 0)
    ), "Conv Pad DequantizeLinear Conv QuantizeLinear"


def integers_split_as_integers() -> tuple[ModelProto, str]:
    net = Net()
    x = net.node(
        "Split", net.q(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 40), axis=1, num_outputs=2, outputs=2
    )
    parts = [net.conv(net.dq(part, 0.1, 40), 2) for part in (x, x.removesuffix(".0") + ".1")]
    return net.model(*(net.qdq(part, 0.4, 0) for part in parts)), "Conv Split Conv Conv"


def table_of_rows() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.node("Gather", net.weight(20, 8, axis=None), net.input(3, dtype="int64")), 0.02, 0)
    return net.model(net.qdq(net.node("MatMul", x, net.weight(8, 4, axis=1)), 0.1, 0)), "Gather MatMul"


def nothing_between() -> tuple[ModelProto, str]:
    net = Net()
    return net.model(net.qdq(net.input(*IMAGE))), "DequantizeLinear"


def casts_that_keep_the_type() -> tuple[ModelProto, str]:
    """As torch.onnx writes what PyTorch's FX quantisation makes."""
    net = Net()
    x = net.dq(net.node("Cast", net.q(net.input(*IMAGE)), to=TensorProto.INT8))
    x = net.node("Relu", net.conv(x))
    return net.model(net.dq(net.node("Cast", net.q(x, 0.1, -20), to=TensorProto.INT8), 0.1, -20)), "Conv Relu"


def silu_without_integers_inside() -> tuple[ModelProto, str]:
    net = Net()
    x = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 5)
    return net.model(net.qdq(net.node("Mul", x, net.node("Sigmoid", x)), 0.05, -100)), "Conv Swish"


FORMS = [
    plain, relu_without_q_between, several_operators_that_take_q_through, concat_of_two_convolutions,
    concat_of_two_scales, view_of_one_scale, view_without_q_behind, view_that_changes_the_scale,
    view_as_the_result, island, island_up_to_the_result, softmax_between_q_and_dq,
    integers_with_a_reader_on_floats, input_with_a_reader_on_floats, one_map_in_two_scales,
    a_pair_for_each_reader, integers_in_and_out, result_as_integers_and_as_reals, result_that_is_read_too,
    result_that_is_read_as_reals_too, weight_in_floats, weight_turned_after_dq, weight_of_an_island_too,
    weights_only, no_zero_point, index_of_the_greatest, sixteen_bits, change_of_scale,
    integers_moved_as_integers, integers_read_at_another_scale, padded_with_another_number,
    integers_padded_as_integers, integers_split_as_integers, table_of_rows, nothing_between,
    casts_that_keep_the_type, silu_without_integers_inside,
]  # fmt: skip
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


def feeds_of(model: ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    rng, feeds = np.random.default_rng(seed), {}
    for value in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        feeds[value.name] = (
            (rng.standard_normal(shape) * 3).astype(dtype)
            if dtype == np.float32
            else rng.integers(0, 20, shape).astype(dtype)
        )
    return feeds


@every_form
def test_q_and_dq_are_absorbed_but_for_borders_of_islands(form):
    model, kinds = form()
    graph = from_model(model)
    assert sorted(op.kind for op in graph.operators) == sorted(kinds.split())
    Dataflow.of(graph)
    assert_views_keep_scales(graph)


def assert_views_keep_scales(graph: Graph) -> None:
    for op in graph.operators:
        if spec(op.kind, op.domain).view:
            before, after = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
            assert (before.dtype, before.quantization) == (after.dtype, after.quantization)


@every_form
def test_what_is_saved_is_legal_loads_back_equal_and_computes_the_same_bits(form, tmp_path):
    model, _ = form()
    graph = from_model(model, name="g")
    save(graph, tmp_path / "g.onnx")
    assert_same(load(tmp_path / "g.onnx"), graph)
    saved = onnx.load(tmp_path / "g.onnx")
    onnx.checker.check_model(saved, full_check=True)
    if form in (weights_only, sixteen_bits):
        newest_opset_of_onnxruntime(saved)
    feeds = feeds_of(model)
    theirs = run(model, feeds)
    ours = run(saved, feeds)
    assert list(ours) == list(theirs)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


@every_form
def test_integer_operators_compute_what_onnxruntime_computes(form):
    model, _ = form()
    graph = from_model(to_model(from_model(model)))  # as saved: a Q behind every map of integers
    saved = to_model(graph)
    if form in (weights_only, sixteen_bits):
        return
    for call, apart in steps_apart(graph, held_by(saved, graph)):
        assert apart.max() <= 1, call.operator


def held_by(saved: ModelProto, graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    return integers(saved, graph, feeds_of(saved, seed), optimised=False)


@pytest.mark.parametrize("opset", [13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25])
def test_every_opset_that_has_per_channel_scales_gives_the_same_graph(opset):
    graph, wanted = from_model(plain(opset)[0]), from_model(plain(21)[0])
    assert_same(graph, wanted)


def test_types_scales_and_names():
    graph = from_model(plain()[0])
    (conv,) = graph.operators
    source, weight, bias = (graph.tensors[name] for name in conv.inputs)
    assert (source.name, source.dtype, source.quantization) == (
        "in0",
        "int8",
        Quantization((float(np.float32(0.05)),), (3,)),
    )
    assert (weight.name, weight.dtype) == ("c4", "int8")
    assert weight.quantization is not None
    assert (len(weight.quantization.scale), weight.quantization.zero_point, weight.quantization.axis) == (
        4,
        (0, 0, 0, 0),
        0,
    )
    assert (bias.dtype, len(bias.quantization.scale)) == ("int32", 4)  # type: ignore[union-attr]
    assert graph.constants[weight.name].dtype == np.int8  # type: ignore[union-attr]
    assert graph.outputs == conv.outputs
    assert graph.tensors[graph.outputs[0]].quantization is not None
    assert graph.tensors.keys() == {*conv.inputs, *conv.outputs}


def test_zero_points_are_uint8_zero_where_there_are_none():
    graph = from_model(no_zero_point()[0])
    assert [
        (t.dtype, t.quantization.zero_point)  # type: ignore[union-attr]
        for t in map(graph.tensors.get, (*graph.inputs, *graph.outputs))
    ] == [("uint8", (0,))] * 2


def test_the_axis_of_a_weight_that_was_turned_turns_with_it():
    graph = from_model(weight_turned_after_dq()[0])
    weight = graph.tensors[graph.operators[0].inputs[1]]
    assert (weight.shape, weight.dtype, weight.quantization.axis) == ((5, 7), "int8", 1)  # type: ignore[union-attr]


def test_relu_before_q_takes_the_scale_of_q():
    graph = from_model(relu_without_q_between()[0])
    conv, relu = graph.operators
    assert graph.tensors[conv.outputs[0]].quantization == graph.tensors[relu.outputs[0]].quantization


def test_onnxruntimes_own_q_and_dq_are_the_standard_ones():
    net = Net(domain="com.microsoft")
    x = net.qdq(net.input(*IMAGE))
    model = net.model(net.qdq(net.node("Conv", x, net.weight(4, 4, 3, 3), net.bias(4), pads=[1, 1, 1, 1])))
    # shapes are stated, as its quantiser does: ONNX infers none for this domain
    for node in model.graph.node:
        model.graph.value_info.append(helper.make_tensor_value_info(node.output[0], FLOAT, IMAGE))
    graph = from_model(model)
    assert [op.kind for op in graph.operators] == ["Conv"]
    assert graph.tensors[graph.outputs[0]].quantization is not None


def test_notes_say_what_is_integers_and_where_islands_are():
    assert from_model(plain()[0]).notes == (
        (
            "quantised network: held are input 'in0' as int8, output 'dequantizelinear6' as int8; "
            "float32 goes in and out, as in the file"
        ),
    )
    assert from_model(island()[0]).notes[-1] == (
        "2 QuantizeLinear and DequantizeLinear stay operators, "
        "around what is not quantised: HardSwish, Softmax"
    )
    assert (
        from_model(view_that_changes_the_scale()[0]).notes[-1]
        == "1 QuantizeLinear change the scale of integers and stay operators"
    )
    assert from_model(integers_in_and_out()[0]).notes == ()


def test_batch_normalization_is_not_folded_across_integers():
    net = Net()
    statistics = [net.constant(net.rng.uniform(0.5, 1.5, 4)) for _ in range(4)]
    quantised = net.qdq(net.conv(net.qdq(net.input(*IMAGE))), 0.1, 0)
    model = net.model(net.qdq(net.node("BatchNormalization", quantised, *statistics), 0.2, 0))
    graph = simplify(from_model(model))
    assert [op.kind for op in graph.operators] == ["Conv", "BatchNormalization"]
    assert all(
        np.array_equal(a, b)
        for a, b in zip(
            run(model, feeds_of(model)).values(), run(to_model(graph), feeds_of(model)).values(), strict=True
        )
    )


def test_batch_normalization_of_an_island_is_folded():
    net = Net()
    statistics = [net.constant(net.rng.uniform(0.5, 1.5, 4)) for _ in range(4)]
    graph = simplify(
        from_model(
            net.model(
                net.qdq(
                    net.node("BatchNormalization", net.conv(net.qdq(net.input(*IMAGE))), *statistics), 0.2, 0
                )
            )
        )
    )
    assert [op.kind for op in graph.operators] == ["DequantizeLinear", "Conv", "QuantizeLinear"]


def test_weights_without_values_keep_their_scales():
    graph = from_model(plain()[0], name="g")
    bare = replace(graph, constants=dict.fromkeys(graph.constants))
    assert_same(replace(from_model(to_model(bare), name="g"), notes=()), replace(bare, notes=()))


@pytest.mark.parametrize("start", range(0, 48, 8))
def test_random_networks_survive_quantisation_loading_and_saving(start):
    """Saved models compute the same bits, and every integer operator is within one step."""
    counted = Counter()
    for seed in range(start, start + 8):
        rng = np.random.default_rng(seed)
        network = random_graph(rng, 3 + seed % 9)
        if any(op.domain for op in network.operators):
            continue
        options = {
            "extra_options": {
                "DedicatedQDQPair": seed % 5 == 0,
                "AddQDQPairToWeight": seed % 7 == 0,
                "QDQKeepRemovableActivations": seed % 4 == 0,
            },
            "op_types_to_quantize": ["Conv", "Gemm", "MatMul"] if seed % 3 == 0 else None,
        }
        with tempfile.TemporaryDirectory() as folder:
            try:
                model = quantise(
                    network, Path(folder) / "q.onnx", rng, "int8" if seed % 2 else "uint8", **options
                )
            except InvalidArgument:  # it does not compute every network
                continue
        graph = from_model(model, name="g")
        if all(tensor.quantization is None for tensor in graph.tensors.values()):
            continue
        saved = to_model(graph)
        assert_same(from_model(saved, name="g"), graph)
        assert_views_keep_scales(graph)
        feeds = random_feeds(network, rng)
        theirs, ours = run(model, feeds), run(saved, feeds)
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
        for call, apart in steps_apart(graph, integers(saved, graph, feeds, optimised=False)):
            assert apart.max(initial=0) <= 1, call.operator
            counted[call.operator.kind] += 1
    assert sum(counted.values()) > 10


# -- hostile files -------------------------------------------------------------------------------------------


def broken(**changes: object) -> ModelProto:
    """The plain form with constants changed: c0, c1 of the input; c4, c5, c6 of the weight.

    c0, c1: scale and zero point; c4, c5, c6: values, scales, zero points.
    """
    model, _ = plain()
    for tensor in model.graph.initializer:
        if tensor.name in changes:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(changes[tensor.name]), tensor.name))
    return model


HOSTILE = {
    "weight scales of wrong length": (
        broken(c5=np.ones(3, np.float32)),
        "3 scales for 4 channels of [4, 4, 3, 3], axis 0",
    ),
    "zero points of wrong length": (broken(c6=np.zeros(3, np.int8)), "4 scales and 3 zero points"),
    "zero scale": (broken(c0=np.float32(0)), "a scale is 0; scales are above 0"),
    "negative scale": (broken(c5=np.array([1, -1, 1, 1], np.float32)), "a scale is -1"),
    "infinite scale": (broken(c0=np.float32(np.inf)), "a scale is inf"),
    "scale that is no number": (broken(c0=np.float32(np.nan)), "a scale is nan"),
    "zero point of another type": (
        broken(c6=np.zeros(4, np.uint8)),
        "are of types int8 and uint8; accepted: one type",
    ),
    "zero point that is no integer": (broken(c1=np.float32(3)), "zero_point"),
    "map scales of wrong length": (
        broken(c0=np.ones(3, np.float32), c1=np.zeros(3, np.int8)),
        "3 scales for 4 channels",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scales_give_one_line_that_names_the_node(name):
    model, expected = HOSTILE[name]
    with pytest.raises(InvalidModel) as caught:
        from_model(model, label="bad.onnx")
    message = str(caught.value)
    assert expected in message
    assert message.startswith("bad.onnx: node 'n")
    assert message.isprintable()
    assert len(message) < 300


def test_dq_of_a_tensor_that_is_not_there_is_named():
    model, _ = plain()
    next(node for node in model.graph.node if node.op_type == "DequantizeLinear").input[0] = "gone"
    with pytest.raises(InvalidModel, match="'gone'"):
        from_model(model)


def test_an_axis_out_of_range_is_refused():
    net = Net()
    held = net.node(
        "DequantizeLinear", net.constant(np.ones((4, 4, 3, 3)), "int8"), net.constant(np.ones(4)), axis=9
    )
    with pytest.raises(InvalidModel):
        from_model(net.model(net.qdq(net.node("Conv", net.qdq(net.input(*IMAGE)), held))))


def test_scales_without_values_are_refused():
    model = broken()
    scale = next(tensor for tensor in model.graph.initializer if tensor.name == "c0")
    scale.CopyFrom(TensorProto(name="c0", data_type=FLOAT, dims=[], data_location=TensorProto.EXTERNAL))
    scale.external_data.add(key="location", value="gone")
    with pytest.raises(UnsupportedModel, match="scale 'c0' has no values"):
        from_model(model)


class OnIntegers(Net):
    """A model of one operator in the operator-oriented format."""

    def __init__(self) -> None:
        super().__init__(21, domain="com.microsoft")

    def by(self, scale: float | list[float], zero: int = 9, dtype: str = "uint8") -> list[str]:
        """A scale and its zero point, or one of each for every channel."""
        return [self.constant(scale), self.constant(np.full(np.shape(scale), zero), dtype)]

    def map(self, *shape: int, scale: float = 0.05) -> list[str]:
        return [self.input(*shape, dtype="uint8"), *self.by(scale)]

    def held(self, *shape: int, scale: float | list[float] = 0.02) -> list[str]:
        return [self.constant(self.rng.integers(-99, 99, shape), "int8"), *self.by(scale, 0, "int8")]

    def sums(self, count: int) -> str:
        return self.constant(self.rng.integers(-500, 500, count), "int32")


CHANNELS = [0.01, 0.02, 0.03, 0.04]
QOPERATORS: dict[
    str, tuple[Callable[[OnIntegers, list[str]], list[str]], dict[str, object]]
] = {  # operands, with the scale of the result; attributes
    "QLinearConv": (
        lambda net, by: [*net.map(*IMAGE), *net.held(4, 4, 3, 3, scale=CHANNELS), *by, net.sums(4)],
        {"pads": [1, 1, 1, 1]},
    ),
    "QLinearConv, two groups": (lambda net, by: [*net.map(*IMAGE), *net.held(4, 2, 3, 3), *by], {"group": 2}),
    "QLinearMatMul": (lambda net, by: [*net.map(*IMAGE), *net.held(5, 3, scale=CHANNELS[:3]), *by], {}),
    "ConvInteger": (
        lambda net, by: [net.map(*IMAGE)[0], net.held(4, 4, 3, 3)[0], by[1]],
        {"strides": [2, 1]},
    ),
    "MatMulInteger": (
        lambda net, by: [net.map(*IMAGE)[0], net.held(5, 3)[0], by[1], net.constant([1, 2, 3], "int8")],
        {},
    ),
    "DynamicQuantizeLinear": (lambda net, by: [net.input(*IMAGE)], {}),
    "QGemm": (lambda net, by: [*net.map(3, 6), *net.held(4, 6), net.sums(4), *by], {"transB": 1}),
    "QLinearAdd": (lambda net, by: [*net.map(*IMAGE), *net.map(*IMAGE, scale=0.02), *by], {}),
    "QLinearMul": (lambda net, by: [*net.map(*IMAGE), *net.map(*IMAGE, scale=0.02), *by], {}),
    "QLinearConcat": (lambda net, by: [*by, *net.map(*IMAGE), *net.map(*IMAGE, scale=0.02)], {"axis": 1}),
    "QLinearAveragePool": (lambda net, by: [*net.map(*IMAGE), *by], {"kernel_shape": [2, 2]}),
    "QLinearGlobalAveragePool": (lambda net, by: [*net.map(*IMAGE), *by], {}),
    "QLinearLeakyRelu": (lambda net, by: [*net.map(*IMAGE), *by], {"alpha": 0.25}),
    "QLinearSigmoid": (lambda net, by: [*net.map(*IMAGE), *by], {}),
    "QLinearSoftmax": (lambda net, by: [*net.map(*IMAGE), *by], {"axis": -1, "opset": 13}),
}


@pytest.mark.parametrize("name", QOPERATORS)
def test_the_operator_oriented_format_is_read_as_qdq(name):
    """Integers within one step of ONNX Runtime's; sums, and what is quantised by its own range, equal."""
    net, kind, (operands, attributes) = OnIntegers(), name.partition(",")[0], QOPERATORS[name]
    by = net.by(0.06)
    scaled = not kind.endswith("Integer") and not kind.startswith("Dynamic")
    domain, outputs = "com.microsoft" if kind in OF_MICROSOFT else "", 3 if kind.startswith("Dynamic") else 1
    result = net.node(kind, *operands(net, by), domain=domain, outputs=outputs, **attributes)
    model = net.model(
        net.node("DequantizeLinear", result, *by) if scaled else net.node("Cast", result, to=FLOAT)
    )
    graph, feeds = from_model(model), feeds_of(model)
    (theirs,), (ours,) = run(model, feeds).values(), reference(graph, feeds).values()
    if not scaled:
        assert np.array_equal(ours, theirs)
        return
    quantization = graph.tensors[graph.outputs[0]].quantization
    assert quantization is not None
    assert not any(is_q_or_dq(operator) for operator in graph.operators)
    assert (
        np.abs((ours.astype(np.float64) - quantization.zero_point[0]) * quantization.scale[0] - theirs).max()
        < 1.01 * quantization.scale[0]
    )


def test_a_network_in_the_operator_oriented_format_is_the_one_in_qdq(tmp_path):
    network, rng = zoo_network("squeezenet1_1", 32), np.random.default_rng(1)
    models = [
        quantise(network, tmp_path / "q.onnx", np.random.default_rng(0), quant_format=form)
        for form in (QuantFormat.QDQ, QuantFormat.QOperator)
    ]
    assert "QLinearConv" in {node.op_type for node in models[1].graph.node}
    one, other = (simplify(from_model(model)) for model in models)
    assert [(op.kind, op.attributes) for op in one.operators] == [
        (op.kind, op.attributes) for op in other.operators
    ]
    feeds = random_feeds(one, rng)
    held = {name: rng.integers(0, 256, one.shape(name)).astype(one.tensors[name].dtype) for name in feeds}
    assert all(
        np.array_equal(*pair)
        for pair in zip(reference(one, held).values(), reference(other, held).values(), strict=True)
    )


def test_what_of_the_operator_oriented_format_is_not_read_is_said():
    net = OnIntegers()
    whole = [*net.map(*IMAGE), *net.map(*IMAGE), *net.by(0.1)]
    for kind, operands, message in (
        (
            "QLinearReduceMean",
            whole,
            r"lfopt reads quantised networks in QDQ form \(QuantFormat.QDQ\); export this one so",
        ),
        ("QLinearAdd", whole[:3], "scales that are absent"),
        ("QLinearConcat", whole[:4], "4 inputs; accepted: three for each part"),
    ):
        model = net.model(net.node(kind, *operands, domain="com.microsoft"))
        with pytest.raises(LfoptError, match=rf"\({kind}\): .*{message}"):
            from_model(model)
        net.nodes.clear()
