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
