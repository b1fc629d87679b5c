"""One-operator networks in the shapes that operators have in real networks: three for each operator.

Feature maps are those of ResNet, YOLO, U-Nets and segmenters, tokens those of BERT, GPT-2, ViT and Swin, rows
those of classifiers, detectors and recurrent networks. Weights, tables, and whatever says where something
goes are constants, as in files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
IR = 9
MAPS = ((1, 64, 80, 80), (1, 256, 14, 14), (1, 128, 768))
VIEWED = ((1, 256, 7, 7), (1, 197, 768), (8, 1, 512))


@dataclass(frozen=True)
class Given:
    """An operand that is an input of the network."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = -3.0  # values are drawn evenly between these two
    high: float = 3.0

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Random values."""
        if self.dtype == "bool":
            return rng.random(self.shape) < 0.5
        if np.dtype(self.dtype).kind in "iu":
            return rng.integers(int(self.low), int(self.high), self.shape).astype(self.dtype)
        return rng.uniform(self.low, self.high, self.shape).astype(self.dtype)


Operand = Given | np.ndarray | None  # an input of the network, a constant, absent


@dataclass(frozen=True)
class OperatorCase:
    """An operator on operands of given shapes."""

    kind: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: int = 1
    opset: int = OPSET

    def __str__(self) -> str:
        """Shapes of what is given, and the attributes."""
        shapes = [
            f"{'' if o.dtype == 'float32' else o.dtype + ' '}{'x'.join(map(str, o.shape)) or 'scalar'}"
            for o in self.operands
            if isinstance(o, Given)
        ]
        constants = [
            f"constant {'x'.join(map(str, o.shape))}"
            for o in self.operands
            if isinstance(o, np.ndarray) and o.size > 1 and o.dtype == np.float32
        ]
        attributes = [
            f"{name} {' '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
            for name, value in self.attributes.items()
        ]
        return ", ".join([*shapes, *constants, *attributes])

    def model(self) -> onnx.ModelProto:
        """The network."""
        inputs: list[onnx.ValueInfoProto] = []
        constants: list[onnx.TensorProto] = []
        names: list[str] = []
        for k, operand in enumerate(self.operands):
            name = f"x{k}"
            if operand is None:
                name = ""
            elif isinstance(operand, Given):
                code = helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
                inputs.append(helper.make_tensor_value_info(name, code, operand.shape))
            else:
                constants.append(numpy_helper.from_array(operand, name))
            names.append(name)
        results = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.kind, names, results, "operator", **self.attributes)
        outputs = [  # whoever reads it infers the shapes
            helper.make_tensor_value_info(name, code, None)
            for name, code in zip(results, self._result_types(), strict=True)
        ]
        graph = helper.make_graph([node], self.kind, inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR)

    def _result_types(self) -> Sequence[int]:
        """ONNX's codes of the element types of the results."""
        read = [helper.np_dtype_to_tensor_dtype(np.dtype(o.dtype)) for o in self.operands if o is not None]
        if self.kind == "TopK":
            return read[0], TensorProto.INT64
        code = read[0]
        if self.kind in TRUTHS:
            code = TensorProto.BOOL
        elif self.kind in ("Cast", "BitCast"):
            code = self.attributes["to"]
        elif self.kind in ("CastLike", "Where", "DequantizeLinear"):
            code = read[1]
        elif self.kind in ("QuantizeLinear", "OneHot"):
            code = read[2]
        elif self.kind in ("ArgMax", "ArgMin"):
            code = TensorProto.INT64
        return [code] * self.outputs

    def values(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Inputs of the network, by name."""
        return {f"x{k}": o.draw(rng) for k, o in enumerate(self.operands) if isinstance(o, Given)}


def given(*shape: int, dtype: str = "float32", low: float = -3.0, high: float = 3.0) -> Given:
    """A map of real numbers, or of what else `dtype` says."""
    return Given(shape, dtype, low, high)


def ids(below: int, *shape: int) -> Given:
    """Indices."""
    return Given(shape, "int64", 0, below)


def weights(*shape: int) -> np.ndarray:
    """Constants as large as those of a trained layer."""
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) / max(1.0, float(np.prod(shape[1:]))) ** 0.5).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    """Constants above 0, such as variances."""
    return np.abs(weights(*shape)) + np.float32(0.5)


def ints(*values: int) -> np.ndarray:
    """A list of whole numbers."""
    return np.array(values, np.int64)


def real(value: float) -> np.ndarray:
    """A real number."""
    return np.array(value, np.float32)


def places(below: int, *shape: int) -> np.ndarray:
    """Constant indices, in no order."""
    return np.random.default_rng(below).integers(0, below, shape)


Rows = Sequence[tuple[Sequence[Operand], Mapping[str, Any]]]
DOMAINS = {  # between which the operands of some functions lie
    "Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.95, 0.95), "Acosh": (1, 9), "Log": (0.01, 9),
    "Sqrt": (0, 9), "Reciprocal": (0.5, 9), "Tan": (-1.5, 1.5),
}  # fmt: skip
UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh
    Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Identity Dropout""".split()
NEWER = {
    "Swish": 24,
    "RMSNormalization": 23,
    "BitCast": 26,
    "CumProd": 26,
    "GroupNormalization": 21,
}  # opsets
COMPARED = "Equal Greater GreaterOrEqual Less LessOrEqual".split()
TRUTHS = {*COMPARED, "IsInf", "IsNaN"}  # operators with results of type bool


def _elementwise() -> Iterator[tuple[str, Rows]]:
    """Operators on single elements: kind, operands and attributes of each case."""
    for kind in (*UNARY, "Swish"):
        low, high = DOMAINS.get(kind, (-3, 3))
        yield kind, [([given(*shape, low=low, high=high)], {}) for shape in MAPS]
    yield (
        "Not",
        [([given(*shape, dtype="bool")], {}) for shape in ((1, 1, 128, 128), (1, 77), (1, 64, 80, 80))],
    )
    whole = [(1, 128), (1, 12, 128, 128), (1, 64, 80, 80)]
    yield "BitwiseNot", [([given(*shape, dtype="int32", low=0, high=99)], {}) for shape in whole]
    for kind in ("And", "Or", "Xor"):
        yield (
            kind,
            [
                ([given(1, 1, 128, 128, dtype="bool"), given(1, 1, 1, 128, dtype="bool")], {}),
                ([given(8, 512, dtype="bool"), given(8, 512, dtype="bool")], {}),
                ([given(1, 64, 80, 80, dtype="bool"), given(1, 64, 80, 80, dtype="bool")], {}),
            ],
        )
    for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"):
        dtype = "uint32" if kind == "BitShift" else "int32"
        high = 8 if kind == "BitShift" else 999
        attributes = {"direction": "LEFT"} if kind == "BitShift" else {}
        yield (
            kind,
            [
                (
                    [given(*a, dtype=dtype, low=0, high=high), given(*b, dtype=dtype, low=0, high=high)],
                    attributes,
                )
                for a, b in (((1, 128), (1, 128)), ((1, 512, 64), (64,)), ((1, 64, 80, 80), (1, 64, 80, 80)))
            ],
        )
    for kind in COMPARED:
        yield (
            kind,
            [
                ([given(1, 12, 128, 128), real(0.0)], {}),
                ([ids(9, 1, 1, 128, 1), ids(9, 1, 1, 1, 128)], {}),
                ([given(1, 64, 80, 80), given(1, 64, 80, 80)], {}),
            ],
        )
    for kind in ("Add", "Mul", "Sub", "Div", "Max", "Min"):
        low = 0.5 if kind == "Div" else -3
        yield (
            kind,
            [
                ([given(1, 256, 56, 56), given(1, 256, 56, 56, low=low)], {}),
                ([given(1, 96, 28, 28), given(1, 96, 1, 1, low=low)], {}),
                ([given(1, 128, 768), positive(768)], {}),
            ],
        )
    for kind in ("Sum", "Mean"):
        yield kind, [([given(*shape)] * 3, {}) for shape in MAPS]
    yield (
        "Mod",
        [
            ([ids(999, 1, 128), ints(7)], {}),
            ([ids(999, 1, 64, 64), ints(8)], {}),
            ([given(1, 64, 80, 80), real(1.5)], {"fmod": 1}),
        ],
    )
    yield (
        "Pow",
        [
            ([given(1, 128, 768), real(2.0)], {}),
            ([given(1, 256, 14, 14, low=0.1), real(0.5)], {}),
            ([given(1, 128, 80, low=0.1), given(1, 1, 80, low=0.1)], {}),
        ],
    )
    yield (
        "PRelu",
        [
            ([given(1, 64, 56, 56), weights(64, 1, 1)], {}),
            ([given(1, 28, 10, 10), weights(28, 1, 1)], {}),
            ([given(1, 128, 768), weights(1)], {}),
        ],
    )
    yield "Clip", [([given(*shape), real(0.0), real(6.0)], {}) for shape in MAPS]
    yield (
        "Where",
        [
            ([given(1, 1, 128, 128, dtype="bool"), given(1, 12, 128, 128), real(-1e9)], {}),
            ([given(1, 256, 1, dtype="bool"), given(1, 256, 768), given(768)], {}),
            ([given(1, 64, 80, 80, dtype="bool"), given(1, 64, 80, 80), given(1, 64, 80, 80)], {}),
        ],
    )
    yield (
        "Cast",
        [
            ([ids(2, 1, 1, 1, 128)], {"to": TensorProto.FLOAT}),
            ([given(1, 3, 224, 224, dtype="uint8", low=0, high=255)], {"to": TensorProto.FLOAT}),
            ([given(1, 128, 768)], {"to": TensorProto.INT32}),
        ],
    )
    yield (
        "CastLike",
        [([ids(2, *shape), real(0.0)], {}) for shape in ((1, 128), (1, 128, 128), (1, 64, 80, 80))],
    )
    yield "BitCast", [([given(*shape)], {"to": TensorProto.INT32}) for shape in MAPS]
    yield (
        "BatchNormalization",
        [
            ([given(*shape), *(positive(shape[1]) for _ in range(4))], {})
            for shape in ((1, 64, 112, 112), (1, 512, 7, 7), (1, 128, 400))
        ],
    )
    yield (
        "QuantizeLinear",
        [
            ([given(1, 64, 56, 56), real(0.05), np.array(128, np.uint8)], {}),
            ([given(1, 128, 768), real(0.05), np.array(0, np.int8)], {}),
            ([given(1, 3, 224, 224), real(0.05), np.array(128, np.uint8)], {}),
        ],
    )
    yield (
        "DequantizeLinear",
        [
            ([given(1, 64, 56, 56, dtype="uint8", low=0, high=255), real(0.05), np.array(128, np.uint8)], {}),
            ([given(1, 128, 768, dtype="int8", low=-99, high=99), real(0.05), np.array(0, np.int8)], {}),
            ([given(1, 1000, dtype="uint8", low=0, high=255), real(0.05), np.array(128, np.uint8)], {}),
        ],
    )


def _products() -> Iterator[tuple[str, Rows]]:
    yield (
        "Conv",
        [
            ([given(1, 64, 56, 56), weights(64, 64, 3, 3), weights(64)], {"pads": [1, 1, 1, 1]}),
            (
                [given(1, 144, 56, 56), weights(144, 1, 3, 3), weights(144)],
                {"pads": [1, 1, 1, 1], "group": 144},
            ),
            ([given(1, 80, 3000), weights(384, 80, 3), weights(384)], {"pads": [1, 1]}),
        ],
    )
    yield (
        "ConvTranspose",
        [
            ([given(1, 256, 14, 14), weights(256, 128, 2, 2), weights(128)], {"strides": [2, 2]}),
            ([given(1, 64, 32, 32), weights(64, 32, 4, 4)], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
            ([given(1, 128, 100), weights(128, 64, 16)], {"strides": [8], "pads": [4, 4]}),
        ],
    )
    yield (
        "Gemm",
        [
            ([given(1, 2048), weights(1000, 2048), weights(1000)], {"transB": 1}),
            ([given(128, 768), weights(768, 3072), weights(3072)], {}),
            ([given(8, 512), weights(10, 512), weights(10)], {"transB": 1}),
        ],
    )
    yield (
        "MatMul",
        [
            ([given(1, 128, 768), weights(768, 768)], {}),
            ([given(1, 12, 128, 64), given(1, 12, 64, 128)], {}),
            ([given(64, 3, 49, 32), given(64, 3, 32, 49)], {}),
        ],
    )
    yield (
        "Einsum",
        [
            ([given(1, 128, 12, 64), given(1, 128, 12, 64)], {"equation": "bqhd,bkhd->bhqk"}),
            ([given(8, 28, 28, 64), weights(28, 28, 64)], {"equation": "bhwc,hkc->bhwk"}),
            ([given(1, 256, 64), given(1, 256, 64)], {"equation": "bnc,bnc->bn"}),
        ],
    )
    yield (
        "DeformConv",
        [
            (
                [given(1, c, s, s), weights(c, c, 3, 3), given(1, 18, s, s, low=-1, high=1)],
                {"pads": [1, 1, 1, 1]},
            )
            for c, s in ((64, 28), (128, 14), (32, 56))
        ],
    )


def _windows() -> Iterator[tuple[str, Rows]]:
    pools = (
        (given(1, 64, 112, 112), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        (given(1, 256, 20, 20), {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}),
        (given(1, 64, 1000), {"kernel_shape": [4], "strides": [4]}),
    )
    for kind in ("MaxPool", "AveragePool", "LpPool"):
        yield kind, [([x], attributes) for x, attributes in pools]
    for kind in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield kind, [([given(*shape)], {}) for shape in ((1, 2048, 7, 7), (1, 32, 112, 112), (1, 512, 100))]
    yield (
        "RoiAlign",
        [
            (
                [given(1, c, s, s), given(n, 4, low=1, high=s - 1), np.zeros(n, np.int64)],
                {"output_height": 7, "output_width": 7, "sampling_ratio": 2},
            )
            for c, s, n in ((256, 50, 50), (256, 25, 100), (64, 56, 16))
        ],
    )
    yield (
        "Resize",
        [
            ([given(1, 64, 40, 40), None, np.array([1, 1, 2, 2], np.float32)], {"mode": "nearest"}),
            (
                [given(1, 21, 33, 33), None, None, ints(1, 21, 260, 260)],
                {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
            ),
            (
                [given(1, 64, 28, 28), None, np.array([1, 1, 2, 2], np.float32)],
                {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
            ),
        ],
    )
    yield (
        "GridSample",
        [
            ([given(1, c, s, s), given(1, s, s, 2, low=-1, high=1)], {"mode": mode, "align_corners": 1})
            for c, s, mode in ((64, 40, "linear"), (16, 80, "linear"), (3, 128, "nearest"))
        ],
    )


def _reductions() -> Iterator[tuple[str, Rows]]:
    for kind in (
        "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceSumSquare ReduceL2 ReduceLogSum "
        "ReduceLogSumExp"
    ).split():
        low = 0.1 if "Log" in kind else -3
        yield (
            kind,
            [
                ([given(1, 128, 768, low=low), ints(-1)], {"keepdims": 1}),
                ([given(1, 96, 56, 56, low=low), ints(2, 3)], {"keepdims": 1}),
                ([given(1, 64, 80, 80, low=low), ints(1)], {"keepdims": 0}),
            ],
        )
    for kind in ("ArgMax", "ArgMin"):
        yield (
            kind,
            [
                ([given(1, 21, 128, 128)], {"axis": 1, "keepdims": 0}),
                ([given(1, 32000)], {"axis": -1}),
                ([given(1, 8400, 80)], {"axis": -1}),
            ],
        )
    softened = (((1, 12, 128, 128), -1), ((1, 1000), -1), ((1, 21, 128, 128), 1))
    for kind in ("Softmax", "LogSoftmax", "Hardmax"):
        yield kind, [([given(*shape)], {"axis": axis}) for shape, axis in softened]
    for kind, constants in (("LayerNormalization", 2), ("RMSNormalization", 1)):
        yield (
            kind,
            [
                ([given(*shape), *(positive(shape[-1]) for _ in range(constants))], {"axis": -1})
                for shape in ((1, 128, 768), (1, 3136, 96), (1, 1500, 384))
            ],
        )
    yield (
        "InstanceNormalization",
        [
            ([given(*shape), positive(shape[1]), weights(shape[1])], {})
            for shape in ((1, 64, 128, 128), (1, 128, 64, 64), (1, 512, 1000))
        ],
    )
    yield (
        "GroupNormalization",
        [
            ([given(*shape), positive(shape[1]), weights(shape[1])], {"num_groups": 32})
            for shape in ((1, 320, 64, 64), (1, 1280, 16, 16), (1, 128, 128, 128))
        ],
    )
    yield (
        "MeanVarianceNormalization",
        [([given(*shape)], {}) for shape in ((1, 3, 224, 224), (1, 64, 56, 56), (4, 64, 14, 14))],
    )
    yield (
        "LpNormalization",
        [
            ([given(1, 512)], {"axis": 1}),
            ([given(1, 256, 32, 32)], {"axis": 1}),
            ([given(128, 768)], {"axis": -1}),
        ],
    )
    yield (
        "LRN",
        [
            ([given(*shape)], {"size": 5, "alpha": 1e-4, "beta": 0.75})
            for shape in ((1, 96, 55, 55), (1, 256, 27, 27), (1, 64, 56, 56))
        ],
    )
    for kind in ("CumSum", "CumProd"):
        yield (
            kind,
            [
                ([given(1, 128, low=0.9, high=1.1), ints(1)[0]], {}),
                ([given(1, 64, 1000, low=0.9, high=1.1), ints(2)[0]], {}),
                ([given(1, 32, 32, 64, low=0.9, high=1.1), ints(1)[0]], {}),
            ],
        )
    yield (
        "TopK",
        [
            ([given(1, 8400), ints(300)], {}),
            ([given(1, 32000), ints(50)], {}),
            ([given(1, 1000), ints(5)], {}),
        ],
    )


def _moves() -> Iterator[tuple[str, Rows]]:
    yield (
        "Concat",
        [
            ([given(1, 128, 40, 40), given(1, 128, 40, 40)], {"axis": 1}),
            ([given(1, 1, 768), given(1, 196, 768)], {"axis": 1}),
            ([given(1, 8, 128, 32), given(1, 8, 128, 32)], {"axis": -1}),
        ],
    )
    yield (
        "Slice",
        [
            ([given(1, 128, 2304), ints(768), ints(1536), ints(2)], {}),
            ([given(1, 3, 640, 640), ints(0, 0), ints(9999, 9999), ints(2, 3), ints(2, 2)], {}),
            ([given(1, 56, 56, 96), ints(3), ints(56), ints(1)], {}),
        ],
    )
    yield (
        "Pad",
        [
            ([given(1, 64, 56, 56), ints(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "reflect"}),
            ([given(1, 96, 54, 54), ints(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "constant"}),
            ([given(1, 1, 16000), ints(0, 0, 200, 0, 0, 200)], {"mode": "reflect"}),
        ],
    )
    yield (
        "Expand",
        [
            ([given(1, 1, 1, 128), ints(1, 12, 128, 128)], {}),
            ([given(1, 1, 768), ints(8, 1, 768)], {}),
            ([given(1, 256, 1, 1), ints(1, 256, 28, 28)], {}),
        ],
    )
    yield (
        "Tile",
        [
            ([given(1, 1, 768), ints(1, 128, 1)], {}),
            ([given(1, 64, 28, 28), ints(1, 1, 2, 2)], {}),
            ([given(1, 32, 1, 64), ints(1, 1, 4, 1)], {}),
        ],
    )
    yield (
        "Gather",
        [
            ([weights(30522, 768), ids(30522, 1, 128)], {"axis": 0}),
            ([given(1, 128, 768), ints(0)[0]], {"axis": 1}),
            ([given(1, 197, 768), places(197, 64)], {"axis": 1}),
        ],
    )
    yield (
        "GatherElements",
        [
            ([given(1, 8400, 4), ids(8400, 1, 300, 4)], {"axis": 1}),
            ([given(128, 768), ids(768, 128, 64)], {"axis": 1}),
            ([given(1, 64, 28, 28), ids(28, 1, 64, 28, 28)], {"axis": 2}),
        ],
    )
    yield (
        "GatherND",
        [
            ([given(1, 128, 768), np.stack([np.zeros(32, np.int64), places(128, 32)], 1)], {}),
            ([given(56, 56, 64), ids(56, 1000, 2)], {}),
            ([given(8, 512, 64), ids(512, 8, 100, 1)], {"batch_dims": 1}),
        ],
    )
    yield (
        "ScatterElements",
        [
            ([given(1, 1000), places(1000, 1, 100), given(1, 100)], {"axis": 1}),
            ([given(128, 768), places(768, 128, 64), given(128, 64)], {"axis": 1, "reduction": "add"}),
            ([given(1, 8400, 4), places(8400, 1, 300, 4), given(1, 300, 4)], {"axis": 1}),
        ],
    )
    yield (
        "ScatterND",
        [
            (
                [given(1, 128, 768), np.stack([np.zeros(32, np.int64), places(128, 32)], 1), given(32, 768)],
                {},
            ),
            ([given(8400, 4), places(8400, 300, 1), given(300, 4)], {}),
            ([given(64, 64, 32), places(64, 500, 2), given(500, 32)], {}),
        ],
    )
    yield (
        "Transpose",
        [
            ([given(1, 128, 12, 64)], {"perm": [0, 2, 1, 3]}),
            ([given(1, 64, 80, 80)], {"perm": [0, 2, 3, 1]}),
            ([given(1, 768, 196)], {"perm": [0, 2, 1]}),
        ],
    )
    yield (
        "DepthToSpace",
        [
            ([given(1, 256, 32, 32)], {"blocksize": 2}),
            ([given(1, 48, 64, 64)], {"blocksize": 4, "mode": "CRD"}),
            ([given(1, 12, 120, 120)], {"blocksize": 2, "mode": "CRD"}),
        ],
    )
    yield (
        "SpaceToDepth",
        [
            ([given(*shape)], {"blocksize": block})
            for shape, block in (((1, 3, 640, 640), 2), ((1, 64, 56, 56), 2), ((1, 3, 224, 224), 4))
        ],
    )
    yield (
        "Trilu",
        [
            ([given(128, 128)], {"upper": 1}),
            ([given(1, 12, 128, 128)], {"upper": 0}),
            ([given(1, 1, 1024, 1024)], {"upper": 1}),
        ],
    )
    yield "Reshape", [([given(*shape), ints(shape[0], -1)], {}) for shape in VIEWED]
    yield "Flatten", [([given(*shape)], {}) for shape in VIEWED]
    yield "Squeeze", [([given(*shape), ints(0 if shape[0] == 1 else 1)], {}) for shape in VIEWED]
    yield "Unsqueeze", [([given(*shape), ints(1)], {}) for shape in VIEWED]
    yield (
        "OneHot",
        [
            ([ids(n, *shape), ints(n)[0], np.array([0, 1], np.float32)], {"axis": -1})
            for n, shape in ((10, (1, 64)), (257, (1, 512)), (1000, (32,)))
        ],
    )


def _with_several_results() -> Iterator[OperatorCase]:
    yield OperatorCase("Split", (given(1, 128, 2304), ints(768, 768, 768)), {"axis": 2}, 3)
    yield OperatorCase("Split", (given(1, 128, 40, 40), ints(64, 64)), {"axis": 1}, 2)
    yield OperatorCase("Split", (given(1, 84, 8400), ints(4, 80)), {"axis": 1}, 2)


def cases() -> Iterator[OperatorCase]:
    """All cases, kind by kind."""
    for part in (_elementwise, _products, _windows, _reductions, _moves):
        for kind, rows in part():
            for operands, attributes in rows:
                yield OperatorCase(
                    kind, tuple(operands), attributes, 2 if kind == "TopK" else 1, NEWER.get(kind, OPSET)
                )
    yield from _with_several_results()
