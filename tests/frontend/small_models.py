"""Small ONNX models for the tests: one operator form each, at the opsets where ONNX spelled it so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

NEWEST = onnx.defs.onnx_opset_version()
IR_OF_OPSET = {
    7: 3,
    8: 3,
    9: 4,
    10: 5,
    11: 6,
    12: 7,
    13: 7,
    14: 7,
    15: 8,
    16: 8,
    17: 8,
    18: 8,
    19: 9,
    20: 9,
    21: 10,
    22: 10,
    23: 11,
    24: 11,
}
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    """Normal random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    """Random numbers between 0.5 and 1.5."""
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    """An int64 vector."""
    return np.array(values, np.int64)


def build(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    opset: int = NEWEST,
    dtype: int = TensorProto.FLOAT,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model whose outputs (by default what the last node makes) have no declared shape.

    IR 3 lists its initializers as inputs.
    """
    constants = constants or {}
    ir = IR_OF_OPSET.get(opset, 11)
    values = [make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()]
    if ir < 4:
        values += [
            make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in constants.items()
        ]
    graph = make_graph(
        nodes,
        "small",
        values,
        [make_tensor_value_info(name, dtype, None) for name in outputs or [o for o in nodes[-1].output if o]],
        [onnx.numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    imports = [make_opsetid("", opset), *(make_opsetid(d, 1) for d in domains)]
    return make_model(graph, opset_imports=imports, ir_version=ir)


def one(
    kind: str,
    shape: Sequence[int],
    *constants: np.ndarray | None,
    opset: int,
    outputs: int = 1,
    **attributes: Any,
) -> ModelProto:
    """One operator on input x and constants c0, c1, ..., between others: neither the first nor the last."""
    names = [f"c{i}" if c is not None else "" for i, c in enumerate(constants)]
    results = [f"y{i}" for i in range(outputs)]
    node = make_node(kind, ["r", *names], results, **attributes)
    relus = [make_node("Relu", [m], [f"z{i}"]) for i, m in enumerate(results)]
    values = {n: c for n, c in zip(names, constants, strict=True) if c is not None}
    return build(
        [make_node("Abs", ["x"], ["r"]), node, *relus],
        {"x": shape},
        values,
        [f"z{i}" for i in range(outputs)],
        opset=opset,
    )


def legacy_forms() -> Iterator[tuple[str, ModelProto]]:
    """(name, model): how each operator was spelled through the opsets."""
    image = (1, 4, 6, 7)
    for v in range(7, NEWEST + 1):
        for form, model in _forms(v, image):
            yield f"{form}-{v}", model


def _forms(v: int, image: tuple[int, ...]) -> Iterator[tuple[str, ModelProto]]:
    w = floats(8, 4, 3, 3)
    yield "conv", one("Conv", image, w, floats(8), opset=v, pads=[1, 1, 1, 1], strides=[2, 1])
    yield "conv_same", one("Conv", image, w, opset=v, auto_pad="SAME_UPPER", strides=[2, 2])
    yield (
        "conv_transpose",
        one(
            "ConvTranspose",
            image,
            floats(4, 2, 3, 3),
            opset=v,
            strides=[2, 2],
            output_padding=[1, 0],
            group=2,
        ),
    )
    yield (
        "batchnorm",
        one("BatchNormalization", image, positive(4), floats(4), floats(4), positive(4), opset=v),
    )
    if v < 9:
        yield (
            "batchnorm_spatial",
            one(
                "BatchNormalization",
                image,
                positive(4),
                floats(4),
                floats(4),
                positive(4),
                opset=v,
                spatial=1,
            ),
        )
    yield "instancenorm", one("InstanceNormalization", image, positive(4), floats(4), opset=v)
    yield "lrn", one("LRN", image, opset=v, size=3)
    yield "maxpool", one("MaxPool", image, opset=v, kernel_shape=[3, 3], strides=[2, 2])
    yield (
        "averagepool",
        one("AveragePool", image, opset=v, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    )
    yield "globalpool", one("GlobalAveragePool", image, opset=v)
    yield "gemm_broadcast", one("Gemm", (3, 5), floats(7, 5), floats(7), opset=v, transB=1, alpha=0.5)
    yield "matmul", one("MatMul", (2, 3, 5), floats(5, 4), opset=v)
    yield (
        "cast",
        build(
            [
                make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
                make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
            ],
            {"x": (3, 4)},
            opset=v,
        ),
    )
    yield "softmax_default", one("Softmax", (2, 3, 4), opset=v)
    yield "logsoftmax_axis", one("LogSoftmax", (2, 3, 4), opset=v, axis=1)
    yield "flatten", one("Flatten", image, opset=v)
    yield "reshape", one("Reshape", image, ints(0, -1, 7), opset=v)
    yield "tile", one("Tile", (2, 3), ints(2, 1), opset=v)
    yield "concat", build([make_node("Concat", ["x", "x"], ["y"], axis=1)], {"x": image}, opset=v)
    yield "gather", one("Gather", image, ints(0, 2), opset=v, axis=1)
    yield "transpose", one("Transpose", image, opset=v, perm=[0, 2, 3, 1])
    yield "prelu", one("PRelu", image, floats(4, 1, 1), opset=v)
    yield "depth_to_space", one("DepthToSpace", image, opset=v, blocksize=2)
    yield (
        "sum_max",
        build(
            [make_node("Sum", ["x", "x"], ["s"]), make_node("Max", ["s", "x"], ["y"])], {"x": image}, opset=v
        ),
    )
    yield (
        "constant_node",
        build(
            [
                make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(floats(7))),
                make_node("Mul", ["x", "c"], ["y"]),
            ],
            {"x": image},
            opset=v,
        ),
    )
    yield (
        "shape_arithmetic",
        build(
            [
                make_node("Shape", ["x"], ["s"]),
                make_node("Gather", ["s", "zero"], ["n"]),
                make_node("Concat", ["n", "rest"], ["t"], axis=0),
                make_node("Reshape", ["x", "t"], ["y"]),
            ],
            {"x": image},
            {"zero": ints(0), "rest": ints(-1)},
            opset=v,
        ),
    )
    # axes: attribute until 12 (ReduceSum, Squeeze, Unsqueeze) or 17 (other reductions), input afterwards
    if v < 13:
        yield "squeeze", one("Squeeze", (1, 4, 1, 3), opset=v, axes=[0, 2])
        yield "unsqueeze", one("Unsqueeze", (4, 3), opset=v, axes=[0, 2])
        yield "reducesum", one("ReduceSum", image, opset=v, axes=[2, 3])
        yield "split", one("Split", image, opset=v, outputs=2, axis=1, split=[1, 3])
        yield "split_equal", one("Split", image, opset=v, outputs=2, axis=1)
    else:
        yield "squeeze", one("Squeeze", (1, 4, 1, 3), ints(0, 2), opset=v)
        yield "unsqueeze", one("Unsqueeze", (4, 3), ints(0, 2), opset=v)
        yield "reducesum", one("ReduceSum", image, ints(2, 3), opset=v)
        yield "split", one("Split", image, ints(1, 3), opset=v, outputs=2, axis=1)
        yield (
            "split_equal",
            one("Split", image, opset=v, outputs=2, axis=1, **({} if v < 18 else {"num_outputs": 2})),
        )
    for kind in ("ReduceMean", "ReduceMax", "ReduceL2"):
        if v < 18:
            yield kind.lower(), one(kind, image, opset=v, axes=[1, -1] if v >= 11 else [1, 3], keepdims=0)
        else:
            yield kind.lower(), one(kind, image, ints(1, -1), opset=v, keepdims=0)
    yield "reduce_all", one("ReduceMean", image, opset=v)
    if v < 10:
        yield "slice", one("Slice", image, opset=v, axes=[2, 3], starts=[1, -3], ends=[4, 9999])
        yield (
            "topk",
            build([make_node("TopK", ["x"], ["y", "i"], k=2, axis=1)], {"x": (3, 9)}, opset=v, outputs=["y"]),
        )
    else:
        yield "slice", one("Slice", image, ints(1, -3), ints(4, 9999), ints(2, 3), opset=v)
        yield (
            "topk",
            build(
                [make_node("TopK", ["x", "k"], ["y", "i"], axis=1)],
                {"x": (3, 9)},
                {"k": ints(2)},
                ["y"],
                opset=v,
            ),
        )
    if v < 11:
        yield "pad", one("Pad", image, opset=v, pads=[0, 0, 1, 2, 0, 0, 3, 0], value=0.5)
        yield "pad_reflect", one("Pad", image, opset=v, pads=[0, 0, 1, 2, 0, 0, 3, 0], mode="reflect")
        yield "clip", one("Clip", image, opset=v, min=0.1, max=1.0)
        yield "clip_max", one("Clip", image, opset=v, max=1.0)
    else:
        yield "pad", one("Pad", image, ints(0, 0, 1, 2, 0, 0, 3, 0), np.array(0.5, np.float32), opset=v)
        yield "pad_reflect", one("Pad", image, ints(0, 0, 1, 2, 0, 0, 3, 0), opset=v, mode="reflect")
        yield "clip", one("Clip", image, np.array(0.1, np.float32), np.array(1, np.float32), opset=v)
        yield "clip_max", one("Clip", image, None, np.array(1, np.float32), opset=v)
    yield "dropout", one("Dropout", image, opset=v, ratio=0.3) if v < 12 else one("Dropout", image, opset=v)
    if v >= 12:
        yield "dropout_ratio", one("Dropout", image, np.array(0.3, np.float32), opset=v)
    if v >= 8:
        yield "expand", one("Expand", (1, 3, 1), ints(2, 1, 4), opset=v)
    if v >= 17:
        yield "layernorm", one("LayerNormalization", (2, 3, 8), positive(8), floats(8), opset=v)
    if 18 <= v < 21:
        yield "groupnorm", one("GroupNormalization", image, positive(2), floats(2), opset=v, num_groups=2)
    if v >= 21:
        yield "groupnorm", one("GroupNormalization", image, positive(4), floats(4), opset=v, num_groups=2)
    if v >= 20:
        yield "gelu", one("Gelu", image, opset=v)
    yield from _resizes(v)


SCALES = {
    "2": (2.0, 2.0),
    "3": (3.0, 3.0),
    "1.5": (1.5, 1.5),
    "2.3_1.7": (2.3, 1.7),
    "0.6": (0.6, 0.6),
    "0.5": (0.5, 0.5),
}


def _resizes(v: int) -> Iterator[tuple[str, ModelProto]]:
    """Upsample 7 (scales attribute) and 9 (scales input), Resize 10 (asymmetric, rounding down) and 11 on."""
    shape = (1, 2, 5, 7)
    for name, pair in SCALES.items():
        for mode in ("nearest", "linear"):
            scales = np.array([1, 1, *pair], np.float32)
            if v < 10 and min(pair) >= 1:
                if v < 9:
                    yield (
                        f"upsample_{mode}_{name}",
                        one("Upsample", shape, opset=v, scales=scales.tolist(), mode=mode),
                    )
                else:
                    yield f"upsample_{mode}_{name}", one("Upsample", shape, scales, opset=v, mode=mode)
            elif v == 10:
                yield f"resize_{mode}_{name}", one("Resize", shape, scales, opset=v, mode=mode)
            elif v > 10:
                yield (
                    f"resize_{mode}_{name}",
                    one("Resize", shape, np.zeros(0, np.float32), scales, opset=v, mode=mode),
                )


def extra_forms() -> Iterator[tuple[str, ModelProto]]:
    """(name, model): shapes that depend on constants, functions, unknown operators, external data."""
    v, image = NEWEST, (1, 4, 6, 7)
    for version in (13, v):
        fill = onnx.numpy_helper.from_array(np.array([2], np.float32))
        yield (
            f"constant_of_shape-{version}",
            build(
                [make_node("ConstantOfShape", ["s"], ["c"], value=fill), make_node("Add", ["x", "c"], ["y"])],
                {"x": (2, 3)},
                {"s": ints(2, 3)},
                opset=version,
            ),
        )
        yield (
            f"range-{version}",
            build(
                [
                    make_node("Range", ["a", "b", "d"], ["r"]),
                    make_node("Cast", ["r"], ["f"], to=1),
                    make_node("Add", ["x", "f"], ["y"]),
                ],
                {"x": (2, 3)},
                {"a": np.array(0), "b": np.array(3), "d": np.array(1)},
                opset=version,
            ),
        )
        yield (
            f"expand_constant-{version}",
            build(
                [
                    make_node("Expand", ["c", "s"], ["e"]),
                    make_node("Tile", ["e", "r"], ["t"]),
                    make_node("Add", ["x", "t"], ["y"]),
                ],
                {"x": (2, 6)},
                {"c": floats(1, 3), "s": ints(2, 3), "r": ints(1, 2)},
                opset=version,
            ),
        )
        yield (
            f"pad_constant-{version}",
            build(
                [make_node("Pad", ["c", "p"], ["q"]), make_node("Add", ["x", "q"], ["y"])],
                {"x": (3, 5)},
                {"c": floats(1, 3), "p": ints(1, 1, 1, 1)},
                opset=version,
            ),
        )
        yield (
            f"onehot-{version}",
            build(
                [make_node("OneHot", ["i", "n", "v"], ["h"]), make_node("MatMul", ["x", "h"], ["y"])],
                {"x": (2, 3)},
                {
                    "i": ints(0, 2, 1),
                    "n": np.array(4, np.int64).reshape(()),
                    "v": np.array([0, 1], np.float32),
                },
                opset=version,
            ),
        )
        yield (
            f"nonzero-{version}",
            build(
                [
                    make_node("NonZero", ["c"], ["i"]),
                    make_node("Reshape", ["i", "m"], ["j"]),
                    make_node("Gather", ["x", "j"], ["y"]),
                ],
                {"x": (9, 2)},
                {"c": np.array([0, 1, 1, 0, 5], np.float32), "m": ints(-1)},
                opset=version,
            ),
        )
        yield (
            f"einsum-{version}",
            build(
                [make_node("Einsum", ["x", "x"], ["y"], equation="ij,kj->ik")], {"x": (3, 4)}, opset=version
            ),
        )
        yield f"cumsum-{version}", one("CumSum", (3, 4), np.array(1, np.int64).reshape(()), opset=version)
        yield f"space_to_depth-{version}", one("SpaceToDepth", (1, 4, 6, 8), opset=version, blocksize=2)
        yield (
            f"gathernd-{version}",
            one("GatherND", (3, 4), np.array([[0, 1], [2, 3]], np.int64), opset=version),
        )
        yield (
            f"scatternd-{version}",
            one("ScatterND", (3, 4), np.array([[0], [2]], np.int64), floats(2, 4), opset=version),
        )
        yield (
            f"gather_elements-{version}",
            one("GatherElements", (3, 4), np.array([[0, 1], [2, 0]], np.int64), opset=version, axis=1),
        )
        yield (
            f"where-{version}",
            build(
                [make_node("Where", ["c", "x", "x"], ["y"])],
                {"x": (2, 3)},
                {"c": np.array([True, False, True])},
                opset=version,
            ),
        )
        yield (
            f"lstm-{version}",
            one("LSTM", (5, 2, 3), floats(1, 16, 3), floats(1, 16, 4), opset=version, hidden_size=4),
        )
        yield (
            f"quantize-{version}",
            build(
                [
                    make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                    make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
                ],
                {"x": image},
                {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)},
                opset=version,
            ),
        )
        yield (
            f"resize_sizes-{version}",
            build(
                [make_node("Resize", ["x", "", "", "s"], ["y"], mode="cubic")],
                {"x": image},
                {"s": ints(1, 4, 9, 9)},
                opset=version,
            ),
        )
        yield (
            f"roialign-{version}",
            one(
                "RoiAlign",
                image,
                np.array([[0, 0, 3, 3]], np.float32),
                ints(0),
                opset=version,
                output_height=2,
                output_width=2,
            ),
        )
        yield (
            f"sequence-{version}",
            build(
                [
                    make_node("SequenceConstruct", ["x", "x"], ["s"]),
                    make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
                ],
                {"x": (2, 3)},
                opset=version,
            ),
        )
        yield (
            f"nms-{version}",
            build(
                [make_node("NonMaxSuppression", ["x", "c"], ["i"]), make_node("Cast", ["i"], ["y"], to=1)],
                {"x": (1, 5, 4)},
                {"c": floats(1, 2, 5)},
                opset=version,
            ),
        )
        yield (
            f"strings-{version}",
            build(
                [make_node("Equal", ["a", "b"], ["e"]), make_node("Where", ["e", "x", "x"], ["y"])],
                {"x": (2, 2)},
                {"a": np.array(["p", "q"], object), "b": np.array(["p", "r"], object)},
                opset=max(version, 19),
            ),
        )
    yield (
        "function",
        with_functions(
            build(
                [make_node("Twice", ["x"], ["y"], domain="mine")], {"x": (2, 3)}, opset=v, domains=["mine"]
            ),
            twice(v),
        ),
    )
    stranger = build(
        [make_node("Relu", ["x"], ["r"]), make_node("Odd", ["r"], ["y"], domain="mine", k=3)],
        {"x": (2, 3)},
        opset=v,
        domains=["mine"],
    )
    yield "stranger", declare(stranger, {"y": (2, 4)})
    unregistered = build(
        [make_node("Affine", ["x"], ["r"], alpha=2.0), make_node("Relu", ["r"], ["y"])],
        {"x": (2, 3)},
        opset=8,
    )
    yield "unregistered", declare(unregistered, {"r": (2, 3)})
    external = one("MatMul", (2, 40), floats(40, 50), opset=v)
    location = external.graph.initializer[0]
    location.ClearField("raw_data")
    location.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "0", "length": "8000"}.items():
        location.external_data.add(key=key, value=value)
    yield "external", external


def twice(opset: int) -> onnx.FunctionProto:
    """Function mine.Twice."""
    body = [make_node("Add", ["a", "a"], ["b"]), make_node("Relu", ["b"], ["c"])]
    return onnx.helper.make_function("mine", "Twice", ["a"], ["c"], body, [make_opsetid("", opset)])


def with_functions(model: ModelProto, *functions: onnx.FunctionProto) -> ModelProto:
    """The model with local functions."""
    model.functions.extend(functions)
    return model


def declare(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """The model with the shapes of some of its tensors stated."""
    outputs = {v.name: v for v in model.graph.output}
    for name, shape in shapes.items():
        value = make_tensor_value_info(name, TensorProto.FLOAT, shape)
        if name in outputs:
            outputs[name].CopyFrom(value)
        else:
            model.graph.value_info.append(value)
    return model
