"""One-operator models for every version of every operator in ONNX's schemas, with values.

A recipe draws operands for an operator as a version of its schema has them. Around each, attributes take
every value that the version knows, one at a time: absent, the default written out, and others. Element types
are those that the schema allows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

NEWEST = onnx.defs.onnx_opset_version()
SHAPE = (2, 4, 5, 6)
# operands that say shapes, places or counts: constants of a network
CONSTANT = frozenset(
    """shape pads axes axis repeats K split starts ends steps sizes scales roi depth tiles ratio training_mode
    dft_length output_shape image_shape block_shape condition size limit delta start frame_step frame_length
    num_mel_bins sample_rate lower_edge_hertz upper_edge_hertz""".split()
)
TYPES = {  # of operands that random values have
    f"tensor({name})": dtype
    for name, dtype in {
        "float": "float32", "double": "float64", "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
        **{name: name for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()},
    }.items()
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One operator of an opset on operands; None: absent."""

    kind: str
    opset: int
    what: str  # differs from the other cases of the operator and opset
    operands: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, Any]
    outputs: int = 1
    folded: bool = False  # all operands are constants

    def __str__(self) -> str:
        shapes = " ".join(
            "-" if value is None else f"{value.dtype.name}{[*value.shape]}" for value in self.operands
        )
        return f"{self.kind}-{self.opset} {self.what}: {shapes} {dict(self.attributes)}".replace("\n", " ")

    @property
    def constant(self) -> frozenset[int]:
        """Positions of operands that are constants."""
        inputs = schema_of(self.kind, self.opset).inputs
        return frozenset(
            i
            for i in range(len(self.operands))
            if self.folded
            or (self.kind in OF_CONSTANTS and i)
            or self.kind == "ConstantOfShape"
            or inputs[min(i, len(inputs) - 1)].name in CONSTANT
        )

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """Values of the model's inputs."""
        constant = self.constant
        return {
            f"x{i}": value for i, value in enumerate(self.operands) if value is not None and i not in constant
        }

    def model(self) -> ModelProto:
        """The operator as a model; outputs have types and no shapes."""
        names = [f"x{i}" if value is not None else "" for i, value in enumerate(self.operands)]
        while names and not names[-1]:
            names.pop()
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.kind, names, results, name="one")
        for name, value in self.attributes.items():
            stored = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            node.attribute.append(helper.make_attribute(name, stored, attr_type=self._type(name, stored)))
        infos = {
            f"x{i}": helper.make_tensor_value_info(f"x{i}", _code(value), value.shape)
            for i, value in enumerate(self.operands)
            if value is not None
        }
        constants = {f"x{i}": self.operands[i] for i in self.constant}
        ir = 3 if self.opset < 9 else 10  # in which initializers are inputs too
        graph = helper.make_graph(
            [node],
            "one",
            [info for name, info in infos.items() if ir == 3 or constants.get(name) is None],
            [helper.make_empty_tensor_value_info(name) for name in results],
            [numpy_helper.from_array(value, name) for name, value in constants.items() if value is not None],
        )
        for value, kind in zip(graph.output, self._result_types(), strict=True):
            value.type.tensor_type.elem_type = kind
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir)

    def _result_types(self) -> Iterator[int]:
        """Element types of the outputs: those of operands, or what the schema or an attribute says."""
        schema, told = schema_of(self.kind, self.opset), self.attributes
        of_operands = {
            schema.inputs[min(i, len(schema.inputs) - 1)].type_str: _code(value)
            for i, value in reversed([*enumerate(self.operands)])
            if value is not None
        }
        for i in range(self.outputs):
            formal = schema.outputs[min(i, len(schema.outputs) - 1)]
            allowed = [TYPES[t] for t in sorted(formal.types) if t in TYPES]
            if self.kind in RESULTS:
                yield RESULTS[self.kind](self)
            elif "dtype" in told:
                yield told["dtype"]
            elif formal.type_str in of_operands:
                yield of_operands[formal.type_str]
            elif len(allowed) == 1:
                yield helper.np_dtype_to_tensor_dtype(np.dtype(allowed[0]))
            else:
                yield TensorProto.FLOAT

    def _type(self, name: str, value: Any) -> int | None:
        if not isinstance(value, list) or value:
            return None
        return attributes_of(self.kind, self.opset)[name][0]


def _cast_type(case: Case) -> int:
    to = case.attributes["to"]
    return TensorProto.DataType.Value(to) if isinstance(to, str) else to


def _value_type(case: Case) -> int:
    for name, value in case.attributes.items():
        if name == "value":
            return _code(value)
        if name.startswith("value_int"):
            return TensorProto.INT64
    return TensorProto.FLOAT


def _quantized_type(case: Case) -> int:
    zero_point = case.operands[2] if len(case.operands) > 2 else None
    return TensorProto.UINT8 if zero_point is None else _code(zero_point)


def _code(value: np.ndarray) -> int:
    return TensorProto.STRING if value.dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(value.dtype)


@cache
def schema_of(kind: str, opset: int) -> onnx.defs.OpSchema:
    """The schema of a standard operator in an opset."""
    return onnx.defs.get_schema(kind, opset)


@cache
def attributes_of(kind: str, opset: int) -> dict[str, tuple[int, Any]]:
    """(type, default) of every attribute of an operator in an opset; default None: there is none."""
    return {
        name: (
            int(declared.type.value),  # type: ignore[attr-defined]
            helper.get_attribute_value(declared.default_value) if declared.default_value.name else None,
        )
        for name, declared in sorted(schema_of(kind, opset).attributes.items())
    }


@cache
def versions() -> dict[str, list[int]]:
    """Opsets in which each operator changed, the first one included; those that end it are left out."""
    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and (not schema.deprecated or schema.name == "GroupNormalization"):
            found.setdefault(schema.name, []).append(schema.since_version)
    return {kind: sorted(opsets) for kind, opsets in sorted(found.items())}


@dataclass
class Draw:
    """What a recipe draws operands with: an operator of an opset, and the type of its main operands."""

    kind: str
    v: int
    dtype: str
    rng: np.random.Generator

    def has(self, attribute: str) -> bool:
        """Whether the version has an attribute."""
        return attribute in attributes_of(self.kind, self.v)

    def of(self, *shape: int, low: float = -np.inf, high: float = np.inf, dtype: str = "") -> np.ndarray:
        """Values of the main type, moderate, between two ends."""
        name = dtype or self.dtype
        kind = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16) if name == "bfloat16" else np.dtype(name)
        if name == "bool":
            return self.rng.random(shape) < 0.5
        if kind.kind in "iu":
            least = max(-6 if kind.kind == "i" else 0, low)
            most = max(int(min(9, high)), int(np.ceil(least)))
            return self.rng.integers(int(np.ceil(least)), most + 1, shape).astype(kind)
        values = self.rng.standard_normal(shape)
        if np.isfinite(low) or np.isfinite(high):
            first, last = max(low, -3.0), min(high, 3.0)
            values = self.rng.uniform(first, last if last > first else first + 2, shape)
        return np.asarray(np.asarray(values).astype(np.float32).astype(kind))


@dataclass(frozen=True)
class Setup:
    """Operands, and the attributes that go with them."""

    operands: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: int = 1
    fixed: bool = False  # no other values of attributes are tried on it


# element type of results that no operand has, by operator
RESULTS: dict[str, Callable[[Case], int]] = {
    "BitCast": _cast_type,
    "Cast": _cast_type,
    "Constant": _value_type,
    "ConstantOfShape": _value_type,
    "QuantizeLinear": _quantized_type,
    "EyeLike": lambda case: case.attributes.get("dtype", _code(case.operands[0])),  # type: ignore[arg-type]
    "DynamicQuantizeLinear": lambda case: TensorProto.UINT8,
}


def ints(*values: int) -> np.ndarray:
    """An int64 vector."""
    return np.array(values, np.int64)


def scalar(value: float, dtype: str = "int64") -> np.ndarray:
    """A tensor without axes."""
    return np.array(value, dtype)


Recipe = Callable[[Draw], Iterator[Setup]]
RECIPES: dict[str, Recipe] = {}
# operands behind the first are constants, whatever they are called
OF_CONSTANTS = frozenset(
    """Upsample Resize Pad Tile Expand Reshape Squeeze Unsqueeze Slice Split TopK OneHot Compress Clip
    QLinearConv QLinearMatMul QuantizeLinear DequantizeLinear GRU LSTM RNN CumSum CumProd
    MeanVarianceNormalization CenterCropPad""".split()
)


def recipe(*kinds: str) -> Callable[[Recipe], Recipe]:
    """Registers a recipe of some operators."""

    def registered(function: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(kinds, function))
        return function

    return registered


# -- element by element --------------------------------------------------------------------------------------

ENDS = {
    "Acos": (-0.9, 0.9), "Acosh": (1.1, 3), "Asin": (-0.9, 0.9), "Atanh": (-0.9, 0.9), "Log": (0.1, 3),
    "Reciprocal": (0.2, 3), "Sqrt": (0.1, 3), "Tan": (-1, 1),
}  # fmt: skip


@recipe(
    *"""Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign
    Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu""".split()
)
def _unary(d: Draw) -> Iterator[Setup]:
    low, high = ENDS.get(d.kind, (-np.inf, np.inf))
    yield Setup([d.of(2, 3, 4, low=low, high=high)])
    if d.dtype == "float32":
        yield Setup([d.of(7, low=low, high=high)], fixed=True)


@recipe(*"Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Mod Mul Or Pow Sub Xor".split())
def _binary(d: Draw) -> Iterator[Setup]:
    low = {"Div": 1, "Mod": 1, "Pow": 0}.get(d.kind, -np.inf)
    real = d.dtype.startswith(("float", "bfloat"))
    told = {"fmod": 1} if d.kind == "Mod" and real else {}
    high = 3 if d.kind == "Pow" else np.inf
    left = d.of(
        2, 3, 4, 5, low=0.5 if d.kind == "Pow" and real else low if d.kind == "Pow" else -np.inf, high=high
    )
    low = max(low, 0.5) if real and d.kind in ("Div", "Mod") else low
    shapes = [(2, 3, 4, 5), (5,), (4, 5), (1,), (), (1, 4, 5)]
    for shape in shapes if d.dtype in ("float32", "bool") else shapes[:2]:
        if d.v >= 7:
            yield Setup([left, d.of(*shape, low=low, high=high)], told)
        else:
            yield Setup(
                [left, d.of(*shape, low=low, high=high)],
                {"broadcast": 1} if len(shape) < 4 else {},
                fixed=True,
            )
    if d.v < 7:
        for shape, axis in (((3, 4), 1), ((3,), 1), ((2,), 0), ((4,), 2), ((2, 3, 4), 0), ((4, 5), 2)):
            yield Setup([left, d.of(*shape, low=low, high=high)], {"broadcast": 1, "axis": axis}, fixed=True)
        yield Setup([left, d.of(5, low=low, high=high)], {}, fixed=True)  # not legal
    elif d.dtype == "float32":
        yield Setup([d.of(4, 1, low=0.5, high=3), d.of(2, 1, 5, low=0.5, high=3)], told)
    if d.kind == "Pow" and d.v >= 12 and d.dtype == "float32":
        yield Setup([left, d.of(5, low=0, high=3, dtype="int64")], fixed=True)
        yield Setup([d.of(2, 5, low=0, high=3, dtype="int32"), d.of(5, low=0, high=2)], fixed=True)


@recipe("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _bits(d: Draw) -> Iterator[Setup]:
    told = {"direction": "LEFT"} if d.kind == "BitShift" else {}
    yield Setup([d.of(2, 3, 4), d.of(4, low=0, high=5)], told)
    yield Setup([d.of(3, 1), d.of(2, 1, 4, low=0, high=5)], told)


@recipe("Max", "Mean", "Min", "Sum")
def _variadic(d: Draw) -> Iterator[Setup]:
    for count in (1, 2, 3):
        yield Setup([d.of(2, 3, 4) for _ in range(count)])
    if d.v >= 8:
        yield Setup([d.of(2, 1, 4), d.of(3, 1), d.of()])


@recipe("Where")
def _where(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4, dtype="bool"), d.of(2, 3, 4), d.of(2, 3, 4)])
    yield Setup([d.of(3, 1, dtype="bool"), d.of(2, 1, 4), d.of()])


@recipe("PRelu")
def _prelu(d: Draw) -> Iterator[Setup]:
    shapes = [(4,), (1,)] if d.v < 7 else [(6,), (4, 1, 1), (1,), (2, 4, 5, 6)]
    for shape in shapes:
        yield Setup([d.of(*SHAPE), d.of(*shape)])
    if d.v < 7:
        yield Setup([d.of(3, 4), d.of(4)])


@recipe("Clip")
def _clip(d: Draw) -> Iterator[Setup]:
    x = d.of(2, 3, 4)
    if d.v < 11:
        for told in ({}, {"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.75}, {"min": 0.0}, {"max": 0.0}):
            yield Setup([x], told, fixed=True)
    else:
        low, high = np.array(1, x.dtype), np.array(3, x.dtype)
        for ends in ((), (low,), (None, high), (low, high)):
            yield Setup([x, *ends])


@recipe("Cast")
def _cast(d: Draw) -> Iterator[Setup]:
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    outside = {"string"}
    results = next(c for c in schema_of("Cast", d.v).type_constraints if c.type_param_str == "T2")
    x = d.of(3, 5) if d.dtype == "bool" else d.of(3, 5, low=0 if d.dtype[0] == "u" else -5, high=9)
    for text in sorted(results.allowed_type_strs):
        to = TYPES.get(text)
        if to is None or to in outside or (d.dtype.startswith(("float", "bfloat")) and to[0] == "u"):
            continue
        name = names.get(to, to.upper())
        yield Setup([x], {"to": name if d.v < 6 else TensorProto.DataType.Value(name)})


@recipe("CastLike")
def _cast_like(d: Draw) -> Iterator[Setup]:
    for dtype in ("float32", "int64", "float64", "int8", "bool"):
        yield Setup([d.of(3, 5, low=0), d.of(1, dtype=dtype)])


@recipe("BitCast")
def _bit_cast(d: Draw) -> Iterator[Setup]:
    to = {1: "uint8", 2: "int16", 4: "int32", 8: "float64"}[np.dtype(d.of(1).dtype).itemsize]
    if d.dtype != "bool":
        yield Setup([d.of(3, 5)], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))})


@recipe("Dropout")
def _dropout(d: Draw) -> Iterator[Setup]:
    x = d.of(2, 3, 4)
    for outputs in (1, 2):
        if d.v < 7:
            yield Setup([x], {"is_test": 1}, outputs)
            yield Setup([x], {}, outputs, fixed=True)
        elif d.v < 12:
            yield Setup([x], {}, outputs)
        else:
            ratio, training = np.array(0.3, np.float32), np.zeros((), bool)
            for others in ((), (ratio,), (ratio, training), (None, training)):
                yield Setup([x, *others], {}, outputs)


# -- along axes ----------------------------------------------------------------------------------------------


@recipe("Hardmax", "LogSoftmax", "Softmax")
def _softmax(d: Draw) -> Iterator[Setup]:
    for shape in (SHAPE, (3, 7), (2, 5, 3), (2, 3, 1, 1), (1, 3, 4, 2)):
        x = d.of(*shape)
        for axis in (None, *range(-len(shape) if d.v >= 11 else 0, len(shape))):
            yield Setup([x], {} if axis is None else {"axis": axis}, fixed=True)
    yield Setup([d.of(5)], {"axis": 0}, fixed=True)


@recipe("ArgMax", "ArgMin")
def _arg(d: Draw) -> Iterator[Setup]:
    x = np.round(d.of(*SHAPE).astype(np.float32)).astype(d.of(1).dtype)  # with equal ones
    for axis in (0, 1, 3, *((-1, -3) if d.v >= 11 else ())):
        yield Setup([x], {"axis": axis})
    yield Setup([x])


@recipe(*(f"Reduce{way}" for way in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()))
def _reduce(d: Draw) -> Iterator[Setup]:
    low = 0.5 if d.kind == "ReduceLogSum" else -np.inf
    x = d.of(2, 3, 4, low=low, high=2 if d.kind in ("ReduceProd", "ReduceLogSum") else np.inf)
    lists = [[1], [0, 2], [2], [0, 1, 2], *([[-1], [-2, 0]] if d.v >= 11 else [])]
    yield Setup([x])
    for axes in lists:
        if d.has("axes"):
            yield Setup([x], {"axes": axes})
        else:
            yield Setup([x, ints(*axes)])
    if not d.has("axes"):
        yield Setup([x, ints()])
        yield Setup([x, ints()], {"noop_with_empty_axes": 1})


@recipe("CumProd", "CumSum")
def _cumulative(d: Draw) -> Iterator[Setup]:
    for axis in (0, 1, -1):
        yield Setup([d.of(3, 5), scalar(axis)])


@recipe("Concat")
def _concat(d: Draw) -> Iterator[Setup]:
    parts = [d.of(2, 3, 4), d.of(2, 3, 4)]
    if d.v < 4:
        yield Setup(parts)
    for axis in (0, 1, 2, *((-1, -3) if d.v >= 11 else ())):
        yield Setup(parts, {"axis": axis})
    yield Setup([d.of(2, 1, 4), d.of(2, 3, 4), d.of(2, 2, 4)], {"axis": 1})


@recipe("Split")
def _split(d: Draw) -> Iterator[Setup]:
    x = d.of(6, 4, 5)
    for axis, sizes in (
        (None, (2, 3, 1)),
        (0, (2, 3, 1)),
        (1, (1, 3)),
        (2, (2, 3)),
        *(((-1, (4, 1)),) if d.v >= 11 else ()),
    ):
        told = {} if axis is None else {"axis": axis}
        count = len(sizes)
        if d.has("split"):
            yield Setup([x], {**told, "split": [*sizes]}, count, fixed=True)
        if d.v < 2:
            yield Setup([x, np.array(sizes, x.dtype)], told, count, fixed=True)
        elif d.v >= 13:
            yield Setup([x, ints(*sizes)], told, count, fixed=True)
    for axis, count in ((None, 3), (0, 2), (1, 2)):
        told = {} if axis is None else {"axis": axis}
        yield Setup(
            [x], {**told, **({"num_outputs": count} if d.has("num_outputs") else {})}, count, fixed=True
        )
    if d.has("num_outputs"):
        yield Setup([x], {"axis": 2, "num_outputs": 3}, 3, fixed=True)


@recipe("Slice")
def _slice(d: Draw) -> Iterator[Setup]:
    x = d.of(*SHAPE)
    for starts, ends, axes, steps in (
        ([1, -3], [4, 9999], [2, 3], None), ([0, 1], [2, 3], None, None), ([1], [-1], [1], None),
        ([-9], [3], [2], None), ([4, 0], [0, 6], [2, 3], [-1, 2]), ([3], [1], [3], None),
        ([1], [4], [-1], [2]),
    ):  # fmt: skip
        if d.v < 10:
            if steps is None and (axes is None or min(axes) >= 0):
                yield Setup(
                    [x],
                    {"starts": starts, "ends": ends, **({} if axes is None else {"axes": axes})},
                    fixed=True,
                )
        elif d.v >= 11 or axes is None or min(axes) >= 0:
            given = [None if values is None else ints(*values) for values in (starts, ends, axes, steps)]
            yield Setup([x, *given])


@recipe("Squeeze", "Unsqueeze")
def _squeeze(d: Draw) -> Iterator[Setup]:
    x = d.of(1, 3, 1, 4)
    lists = [[0], [2], [0, 2], *([[-2]] if d.v >= 11 else [])]
    if d.kind == "Squeeze":
        yield Setup([x], fixed=True)
    for axes in lists:
        if d.has("axes"):
            yield Setup([x], {"axes": axes}, fixed=True)
        else:
            yield Setup([x, ints(*axes)])


@recipe("Transpose")
def _transpose(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4)])
    for perm in ([0, 2, 1], [2, 0, 1], [1, 0, 2]):
        yield Setup([d.of(2, 3, 4)], {"perm": perm})


@recipe("Flatten")
def _flatten(d: Draw) -> Iterator[Setup]:
    x = d.of(*SHAPE)
    yield Setup([x])
    for axis in (0, 2, 4, *((-1, -4) if d.v >= 11 else ())):
        yield Setup([x], {"axis": axis})


@recipe("Reshape")
def _reshape(d: Draw) -> Iterator[Setup]:
    x = d.of(2, 3, 4)
    for shape in ([4, 6], [0, -1], [-1], [2, 0, 2, 2], [1, 24]):
        if d.v < 5:
            yield Setup([x], {"shape": shape})
        else:
            yield Setup([x, ints(*shape)])
    if d.v < 5:
        yield Setup([x], fixed=True)  # without a shape: refused
    if d.has("allowzero"):
        yield Setup([x, ints(4, 6)], {"allowzero": 1}, fixed=True)
        yield Setup([d.of(0, 3), ints(3, 0)], {"allowzero": 1}, fixed=True)


@recipe("Expand")
def _expand(d: Draw) -> Iterator[Setup]:
    for shape in ([2, 1, 6], [3, 1], [1], [3, 4]):
        yield Setup([d.of(3, 1), ints(*shape)])


@recipe("Tile")
def _tile(d: Draw) -> Iterator[Setup]:
    x = d.of(2, 3, 4)
    if d.v < 6:
        for tiles, axis in ((2, 0), (3, 1), (2, 2)):
            yield Setup([x, scalar(tiles, "int64").astype(x.dtype), scalar(axis, "int64").astype(x.dtype)])
        return
    for repeats in ([1, 2, 3], [2, 1, 1], [1, 1, 1]):
        yield Setup([x, ints(*repeats)])


@recipe("Pad")
def _pad(d: Draw) -> Iterator[Setup]:
    x = d.of(2, 3, 4, 5)
    for pads in ([0, 0, 1, 2, 0, 0, 2, 1], [0, 1, 0, 0, 0, 2, 0, 3], [0, 0, -1, 1, 0, 0, 1, -1], [0] * 8):
        if d.v < 11:
            name = "paddings" if d.v < 2 else "pads"
            yield Setup([x], {name: pads}, fixed=min(pads) < 0)
        else:
            yield Setup([x, ints(*pads)], fixed=min(pads) < 0)
            yield Setup([x, ints(*pads), d.of()], fixed=min(pads) < 0)
    if d.v >= 18:
        yield Setup([x, ints(1, 2, 2, 1), None, ints(3, -2)])


@recipe("Gather")
def _gather(d: Draw) -> Iterator[Setup]:
    x = d.of(3, 4, 5)
    yield Setup([x, ints(0, 2)])
    for axis in (0, 1, 2, -1):
        yield Setup([x, np.array([[0, 2], [1, 0]])], {"axis": axis})
    yield Setup([x, scalar(1, "int32")], {"axis": 1})
    if d.v >= 11:
        yield Setup([x, ints(-1, -2)], {"axis": 1})


@recipe("GatherElements")
def _gather_elements(d: Draw) -> Iterator[Setup]:
    for axis in (0, 1, -1):
        yield Setup([d.of(3, 4), np.array([[0, 2, 1, 0], [1, 0, 2, -1]])[:, :4]], {"axis": axis})


@recipe("GatherND")
def _gather_nd(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(3, 4, 5), np.array([[0, 1], [2, 3]])], fixed=True)
    yield Setup([d.of(3, 4, 5), np.array([[0, 1, 4], [2, -1, 0]])], fixed=True)
    if d.has("batch_dims"):
        yield Setup([d.of(2, 4, 5), np.array([[1], [3]])], {"batch_dims": 1}, fixed=True)


@recipe("Scatter", "ScatterElements")
def _scatter_elements(d: Draw) -> Iterator[Setup]:
    for axis in (0, 1, *((-1,) if d.v >= 11 else ())):
        yield Setup([d.of(3, 4), np.array([[0, 2, 1], [1, 0, 2]]), d.of(2, 3)], {"axis": axis})
    yield Setup([d.of(3, 4), np.array([[0, 2, 1]]), d.of(1, 3)])


@recipe("ScatterND")
def _scatter_nd(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(4, 3, 2), np.array([[0], [2]]), d.of(2, 3, 2)])
    yield Setup([d.of(4, 3), np.array([[0, 1], [3, 2]]), d.of(2)])


@recipe("TensorScatter")
def _tensor_scatter(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 5, 4), d.of(2, 3, 2, 4), ints(1, 2)])
    yield Setup([d.of(2, 3, 5, 4), d.of(2, 3, 2, 4)])


@recipe("OneHot")
def _one_hot(d: Draw) -> Iterator[Setup]:
    indices = np.array([[0, 2, 3], [1, 4, 0]], d.dtype)
    for values in (np.array([0, 1], np.float32), np.array([2, 5], np.int64)):
        yield Setup([indices, scalar(5), values])
    if d.v >= 11 and d.dtype in ("int64", "int32"):
        yield Setup([np.array([-1, 2, -5], d.dtype), scalar(5), np.array([0, 1], np.float32)])


@recipe("TopK")
def _top_k(d: Draw) -> Iterator[Setup]:
    x = d.rng.permutation(24).reshape(4, 6).astype(d.of(1).dtype)
    for axis in (None, 0, 1, *((-1, -2) if d.v >= 11 else ())):
        told = {} if axis is None else {"axis": axis}
        if d.v < 10:
            yield Setup([x], {**told, "k": 3}, 2)
        else:
            yield Setup([x, ints(3)], told, 2)


@recipe("Trilu")
def _trilu(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 4, 5)])
    for k in (-1, 0, 2):
        yield Setup([d.of(2, 4, 5), scalar(k)])


@recipe("DepthToSpace", "SpaceToDepth")
def _space(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 8, 4, 6)], {"blocksize": 2})


@recipe("Size", "Shape", "NonZero")
def _shape(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4)])
    if d.has("end"):
        for told in (
            {"start": 1},
            {"start": -2},
            {"end": 2},
            {"start": 1, "end": -1},
            {"start": 9},
            {"end": -9},
        ):
            yield Setup([d.of(2, 3, 4)], told, fixed=True)


@recipe("Unique")
def _unique(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(3, 4)], outputs=4)
    yield Setup([d.of(3, 4)], {"axis": 0})


@recipe("Compress")
def _compress(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(3, 4), np.array([True, False, True])])
    for axis in (0, 1, *((-1,) if d.v >= 11 else ())):
        yield Setup([d.of(3, 4), np.array([True, False, True])], {"axis": axis})


@recipe("ReverseSequence")
def _reverse_sequence(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(4, 4, 3), ints(1, 4, 2, 3)])
    yield Setup([d.of(4, 4, 3), ints(1, 4, 2, 3)], {"time_axis": 1, "batch_axis": 0})


@recipe("EyeLike")
def _eye_like(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(4, 5)])
    yield Setup([d.of(4, 5)], {"dtype": TensorProto.INT32})
    yield Setup([d.of(4, 5)], {"k": -1})


@recipe("ConstantOfShape")
def _constant_of_shape(d: Draw) -> Iterator[Setup]:
    yield Setup([ints(2, 3)])
    for value in (np.array([2.5], np.float32), np.array([-3], np.int64), np.array([True])):
        yield Setup([ints(2, 3)], {"value": value})


@recipe("Constant")
def _constant(d: Draw) -> Iterator[Setup]:
    yield Setup([], {"value": np.arange(6, dtype=np.float32).reshape(2, 3)})
    if d.has("value_int"):
        for told in (
            {"value_int": 3},
            {"value_ints": [1, 2]},
            {"value_float": 1.5},
            {"value_floats": [1.5, 2.0]},
        ):
            yield Setup([], told, fixed=True)


@recipe("Range")
def _range(d: Draw) -> Iterator[Setup]:
    for first, limit, delta in ((1, 9, 2), (0, 4, 1)):
        yield Setup([np.array(n).astype(d.of(1).dtype) for n in (first, limit, delta)])


# -- sums of products ----------------------------------------------------------------------------------------


@recipe("Conv", "ConvInteger")
def _conv(d: Draw) -> Iterator[Setup]:
    if d.kind == "ConvInteger":
        x, w = d.of(1, 2, 6, 7), d.of(3, 2, 3, 3, dtype="int8")
        yield Setup([x, w])
        yield Setup([x, w, np.array(2, x.dtype)])
        yield Setup([x, w, np.array(2, x.dtype), np.array(1, np.int8)])
        return
    yield Setup([d.of(1, 4, 7, 8), d.of(6, 4, 3, 3), d.of(6)])
    yield Setup([d.of(1, 4, 7, 8), d.of(6, 2, 3, 3)], {"group": 2})
    yield Setup([d.of(2, 3, 9), d.of(4, 3, 3), d.of(4)], {"strides": [2], "pads": [1, 0]}, fixed=True)
    yield Setup([d.of(1, 2, 4, 5, 4), d.of(3, 2, 2, 3, 2)], {"pads": [1, 1, 0, 0, 1, 1]}, fixed=True)


@recipe("ConvTranspose")
def _conv_transpose(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(1, 4, 4, 5), d.of(4, 3, 3, 3), d.of(3)])
    yield Setup([d.of(1, 4, 4, 5), d.of(4, 2, 3, 3)], {"group": 2, "strides": [2, 2]})
    told = {"strides": [2, 2], "output_padding": [1, 0]}
    yield Setup([d.of(1, 2, 4, 5), d.of(2, 3, 3, 2)], told, fixed=True)
    yield Setup(
        [d.of(1, 2, 4, 5), d.of(2, 3, 3, 3)], {"strides": [2, 2], "output_shape": [8, 10]}, fixed=True
    )
    yield Setup([d.of(1, 2, 6), d.of(2, 3, 3)], {"strides": [2], "pads": [1, 0]}, fixed=True)


@recipe("DeformConv")
def _deform_conv(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(1, 2, 5, 5), d.of(3, 2, 3, 3), d.of(1, 18, 3, 3), d.of(3), d.of(1, 9, 3, 3, low=0)])


@recipe("Gemm")
def _gemm(d: Draw) -> Iterator[Setup]:
    a, b = d.of(3, 4), d.of(4, 5)
    yield Setup([a, b, d.of(3, 5)])
    for shape in ((5,), (1, 5), (3, 1), (1,), ()):
        yield Setup([a, b, d.of(*shape)], {"broadcast": 1} if d.v < 7 else {}, fixed=d.v < 7)
    yield Setup([d.of(4, 3), b, d.of(3, 5)], {"transA": 1})
    yield Setup([a, d.of(5, 4), d.of(3, 5)], {"transB": 1})
    if d.v >= 11:
        yield Setup([a, b])
    if d.v < 7:
        yield Setup([a, b, d.of(5)], fixed=True)  # not legal


@recipe("MatMul")
def _mat_mul(d: Draw) -> Iterator[Setup]:
    for one, other in (
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
    ):
        yield Setup([d.of(*one), d.of(*other)])


@recipe("MatMulInteger")
def _mat_mul_integer(d: Draw) -> Iterator[Setup]:
    a, b = d.of(3, 4), d.of(4, 5, dtype="int8")
    yield Setup([a, b])
    yield Setup([a, b, np.array(2, a.dtype), np.array(1, np.int8)])


@recipe("QLinearMatMul")
def _qlinear_mat_mul(d: Draw) -> Iterator[Setup]:
    s, z = (lambda x: np.array(x, np.float32)), (lambda x: np.array(x, d.dtype))
    if d.dtype in ("int8", "uint8"):
        yield Setup([d.of(3, 4), s(0.47), z(1), d.of(4, 5), s(0.21), z(2), s(1.37), z(3)])


@recipe("QLinearConv")
def _qlinear_conv(d: Draw) -> Iterator[Setup]:
    s, z = (lambda x: np.array(x, np.float32)), (lambda x: np.array(x, d.dtype))
    yield Setup([d.of(1, 2, 6, 6), s(0.47), z(1), d.of(3, 2, 3, 3), s(0.21), z(2), s(1.37), z(3)])


@recipe("Einsum")
def _einsum(d: Draw) -> Iterator[Setup]:
    for equation, shapes in (
        ("ij,jk->ik", ((3, 4), (4, 5))), ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))), ("ij->ji", ((3, 4),)),
        ("ij->", ((3, 4),)), ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))), ("i,j", ((3,), (4,))),
    ):  # fmt: skip
        yield Setup([d.of(*shape) for shape in shapes], {"equation": equation})


@recipe("Det")
def _det(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 3)])
    yield Setup([d.of(2, 2)])


@recipe("GRU", "LSTM", "RNN")
def _recurrent(d: Draw) -> Iterator[Setup]:
    gates, hidden = {"GRU": 3, "LSTM": 4, "RNN": 1}[d.kind], 3
    for ways, direction in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
        x, w, r = d.of(2, 2, 5), d.of(ways, gates * hidden, 5), d.of(ways, gates * hidden, hidden)
        told = {"hidden_size": hidden, "direction": direction}
        bias, first = d.of(ways, 2 * gates * hidden), d.of(ways, 2, hidden)
        for operands in ([x, w, r], [x, w, r, bias], [x, w, r, bias, None, first]):
            yield Setup(operands, told, 2, fixed=len(operands) < 4)
    if d.has("layout"):
        operands = [d.of(2, 2, 5), d.of(1, gates * hidden, 5), d.of(1, gates * hidden, hidden)]
        yield Setup(operands, {"hidden_size": hidden, "layout": 1}, 2, fixed=True)


# -- windows and norms ---------------------------------------------------------------------------------------


@recipe("AveragePool", "LpPool", "MaxPool")
def _pool(d: Draw) -> Iterator[Setup]:
    outputs = schema_of(d.kind, d.v).max_output
    x = d.of(1, 2, 7, 8)
    for told in (
        {"kernel_shape": [3, 3]}, {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1]},
    ):  # fmt: skip
        yield Setup([x], told)
        if outputs > 1:
            yield Setup([x], told, outputs)
    yield Setup([d.of(2, 3, 9)], {"kernel_shape": [3], "strides": [2]}, fixed=True)
    yield Setup([d.of(1, 2, 4, 5, 6)], {"kernel_shape": [2, 3, 2]}, fixed=True)
    if d.has("ceil_mode"):
        for pads in ([0, 0, 0, 0], [1, 1, 1, 1]):
            for include in (0, 1) if d.has("count_include_pad") else (None,):
                told = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads, "ceil_mode": 1}
                yield Setup(
                    [d.of(1, 2, 6, 8)],
                    told if include is None else {**told, "count_include_pad": include},
                    fixed=True,
                )


@recipe("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def _global_pool(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4, 5)])
    yield Setup([d.of(2, 3, 7)])


@recipe("BatchNormalization")
def _batch_normalization(d: Draw) -> Iterator[Setup]:
    told: dict[str, Any] = {"consumed_inputs": [0, 0, 0, 1, 1]} if d.has("consumed_inputs") else {}
    test = {**told, "is_test": 1} if d.has("is_test") else told
    for shape in ((2, 3, 4, 5), (4, 3), (2, 3, 5)):
        by_channel = [d.of(3, low=0.5), d.of(3), d.of(3), d.of(3, low=0.5)]
        yield Setup([d.of(*shape), *by_channel], test, fixed=shape != (2, 3, 4, 5))
    if d.has("spatial"):
        by_element = [d.of(3, 4, 5, low=0.5), d.of(3, 4, 5), d.of(3, 4, 5), d.of(3, 4, 5, low=0.5)]
        yield Setup([d.of(2, 3, 4, 5), *by_element], {**test, "spatial": 0}, fixed=True)
    by_channel = [d.of(3, low=0.5), d.of(3), d.of(3), d.of(3, low=0.5)]
    if d.has("training_mode"):
        yield Setup([d.of(2, 3, 4, 5), *by_channel], {"training_mode": 1}, 3, fixed=True)
    else:
        yield Setup([d.of(2, 3, 4, 5), *by_channel], told, 5, fixed=True)  # training


@recipe("InstanceNormalization")
def _instance_normalization(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4, 5), d.of(3), d.of(3)])
    yield Setup([d.of(2, 3, 9), d.of(3), d.of(3)])


@recipe("GroupNormalization")
def _group_normalization(d: Draw) -> Iterator[Setup]:
    for groups in (1, 2, 4):
        extent = groups if d.v < 21 else 4
        yield Setup([d.of(2, 4, 3, 5), d.of(extent), d.of(extent)], {"num_groups": groups})


@recipe("LayerNormalization", "RMSNormalization")
def _layer_normalization(d: Draw) -> Iterator[Setup]:
    for axis in (None, -1, 1, -2):
        shape = (2, 3, 4)[-1 if axis is None else axis :]
        told = {} if axis is None else {"axis": axis}
        yield Setup([d.of(2, 3, 4), d.of(*shape)], told)
        if d.kind == "LayerNormalization":
            yield Setup([d.of(2, 3, 4), d.of(*shape), d.of(*shape)], told)
            yield Setup([d.of(2, 3, 4), d.of(*shape), d.of(*shape)], told, 3)


@recipe("LRN")
def _lrn(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 5, 3, 4)], {"size": 3})
    yield Setup([d.of(2, 5, 3, 4)], {"size": 2})


@recipe("LpNormalization")
def _lp_normalization(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4)])
    for axis in (0, 1):
        yield Setup([d.of(2, 3, 4)], {"axis": axis})


@recipe("MeanVarianceNormalization")
def _mvn(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4, 5)])
    yield Setup([d.of(2, 3, 4, 5)], {"axes": [2, 3]})


@recipe("MaxUnpool")
def _max_unpool(d: Draw) -> Iterator[Setup]:
    places = np.array([[[[0, 3], [9, 14]]]])
    yield Setup([d.of(1, 1, 2, 2), places], {"kernel_shape": [2, 2], "strides": [2, 2]}, fixed=True)
    yield Setup(
        [d.of(1, 1, 2, 2), places, ints(1, 1, 5, 5)], {"kernel_shape": [2, 2], "strides": [2, 2]}, fixed=True
    )


@recipe("MaxRoiPool")
def _max_roi_pool(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(1, 2, 6, 6), np.array([[0, 0, 0, 3, 3]], d.of(1).dtype)], {"pooled_shape": [2, 2]})


@recipe("RoiAlign")
def _roi_align(d: Draw) -> Iterator[Setup]:
    regions = np.array([[0.5, 1, 4, 4.5], [1, 0, 5, 3]]).astype(d.of(1).dtype)
    yield Setup(
        [d.of(2, 3, 6, 6), regions, ints(0, 1)], {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
    )


@recipe("Resize", "Upsample")
def _resize(d: Draw) -> Iterator[Setup]:
    x = d.of(1, 2, 4, 6)
    if d.kind == "Upsample" and d.v < 7:
        for scale in (2.0, 3.0, 1.5):
            yield Setup([x], {"height_scale": scale, "width_scale": 2.0})
        return
    pairs = [(2.0, 2.0), (1.5, 2.5), (3.0, 1.0)]
    pairs += [(0.5, 0.5), (0.625, 0.75), (2.0, 0.5)] if d.kind == "Resize" else []
    for k, pair in enumerate(pairs):
        scales = np.array([1, 1, *pair], np.float32)
        for mode in (
            ("nearest", "linear", *(("cubic",) if d.v >= 11 else ()))
            if d.dtype == "float32"
            else ("nearest",)
        ):
            if d.kind == "Upsample" and d.v < 9:
                yield Setup([x], {"scales": scales.tolist(), "mode": mode})
            elif d.v < 11:
                yield Setup([x, scales], {"mode": mode})
            else:
                yield Setup([x, np.zeros(0, np.float32), scales], {"mode": mode}, fixed=k not in (1, 4))
    if d.v >= 11:
        empty = np.zeros(0, np.float32)
        yield Setup([x, empty, empty, ints(1, 2, 7, 9)])
        if d.v >= 13:
            yield Setup([x, None, None, ints(1, 2, 3, 4)])
        region = np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], np.float32)
        told = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
        yield Setup([x, region, empty, ints(1, 2, 3, 4)], told, fixed=True)
    if d.v >= 18:
        for policy in ("stretch", "not_larger", "not_smaller"):
            told = {"axes": [2, 3], "keep_aspect_ratio_policy": policy}
            yield Setup([x, None, None, ints(6, 9)], told, fixed=policy != "stretch")
        yield Setup([x, None, np.array([1.5, 2], np.float32)], {"axes": [3, 2]}, fixed=True)


@recipe("GridSample")
def _grid_sample(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(1, 2, 4, 5), d.of(1, 3, 4, 2, low=-1.2, high=1.2, dtype="float32")])


@recipe("DFT")
def _dft(d: Draw) -> Iterator[Setup]:
    for parts in (1, 2):
        x = d.of(2, 6, 4, parts)
        yield Setup([x], fixed=True)
        yield Setup([x], {"inverse": 1} if parts == 2 else {"onesided": 1}, fixed=True)
        yield Setup([x, scalar(4)], fixed=True)
        for axis in (0, 1, 2):
            if d.has("axis"):
                yield Setup([x], {"axis": axis}, fixed=True)
            else:
                yield Setup([x, None, scalar(axis)], fixed=True)


@recipe("STFT")
def _stft(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(1, 16, 1), scalar(4), d.of(8, low=0.1)])
    yield Setup([d.of(1, 16, 1), scalar(4), None, scalar(8)])


@recipe("BlackmanWindow", "HammingWindow", "HannWindow")
def _window(d: Draw) -> Iterator[Setup]:
    yield Setup([scalar(8, d.dtype if d.dtype in ("int32", "int64") else "int64")])


@recipe("MelWeightMatrix")
def _mel(d: Draw) -> Iterator[Setup]:
    yield Setup([scalar(4), scalar(16), scalar(8192), np.array(0, np.float32), np.array(4096, np.float32)])


@recipe("Col2Im")
def _col2im(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(1, 18, 9), ints(5, 5), ints(3, 3)])


@recipe("CenterCropPad")
def _center_crop_pad(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(5, 4, 3), ints(3, 7, 3)])
    yield Setup([d.of(5, 4, 3), ints(3, 6)], {"axes": [0, 1]})


@recipe("AffineGrid")
def _affine_grid(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 2, 3), ints(2, 3, 4, 5)])


# -- quantisation and losses ---------------------------------------------------------------------------------


@recipe("QuantizeLinear")
def _quantize(d: Draw) -> Iterator[Setup]:
    x = d.of(3, 4, 5)
    kind = np.dtype("float32") if d.dtype == "int32" else x.dtype
    for dtype in ("uint8", "int8"):
        yield Setup([x, np.array(0.05, kind), np.array(3, dtype)])
        if d.v >= 13:
            for axis in (0, 1, 2, -1):
                extent = x.shape[axis]
                scales = np.linspace(0.02, 0.1, extent).astype(kind)
                yield Setup([x, scales, np.arange(extent).astype(dtype)], {"axis": axis})
    yield Setup([x, np.array(0.05, kind)])


@recipe("DequantizeLinear")
def _dequantize(d: Draw) -> Iterator[Setup]:
    x = d.of(3, 4, 5)
    yield Setup([x, np.array(0.05, np.float32)])
    if d.dtype != "int32":
        yield Setup([x, np.array(0.05, np.float32), np.array(3, x.dtype)])
        if d.v >= 13:
            for axis in (0, 1, 2, -1):
                extent = x.shape[axis]
                scales = np.linspace(0.02, 0.1, extent).astype(np.float32)
                yield Setup([x, scales, np.arange(extent).astype(x.dtype)], {"axis": axis})


@recipe("DynamicQuantizeLinear")
def _dynamic(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(3, 4)], outputs=3)


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(d: Draw) -> Iterator[Setup]:
    labels = d.rng.integers(0, 4, (3,))
    yield Setup([d.of(3, 4), labels])
    yield Setup([d.of(3, 4), labels, d.of(4, low=0.1)])
    yield Setup([d.of(3, 4, 2), d.rng.integers(0, 4, (3, 2))])


@recipe("NonMaxSuppression")
def _nms(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(1, 5, 4, dtype="float32"), d.of(1, 2, 5, dtype="float32"), ints(2)])


# -- attention -----------------------------------------------------------------------------------------------


@recipe("Attention")
def _attention(d: Draw) -> Iterator[Setup]:
    q, k, v = (d.of(2, 2, rows, 4) for rows in (3, 5, 5))
    yield Setup([q, k, v])
    yield Setup([q, k, v, d.of(3, 5)])
    yield Setup([q, k, v, d.of(3, 5, dtype="bool") | np.eye(3, 5, dtype=bool)], fixed=True)
    flat = [d.of(2, rows, 8) for rows in (3, 5, 5)]
    yield Setup(flat, {"q_num_heads": 2, "kv_num_heads": 2})


@recipe("RotaryEmbedding")
def _rotary(d: Draw) -> Iterator[Setup]:
    x, cos, sin = d.of(2, 2, 3, 8), d.of(10, 4), d.of(10, 4)
    yield Setup([x, cos, sin, np.array([[0, 1, 2], [3, 4, 5]])])
    yield Setup([x, d.of(2, 3, 4), d.of(2, 3, 4)])


@recipe("SwiGLU")
def _swiglu(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(2, 3, 4)] + [d.of(2, 3, 4)] * (schema_of(d.kind, d.v).min_input - 1))


# -- what lfopt refuses --------------------------------------------------------------------------------------


@recipe("Bernoulli", "RandomNormalLike", "RandomUniformLike", "Multinomial")
def _random_like(d: Draw) -> Iterator[Setup]:
    yield Setup(
        [d.of(2, 3, low=0.1, high=0.9)], {"dtype": TensorProto.FLOAT} if d.kind != "Multinomial" else {}
    )


@recipe("RandomNormal", "RandomUniform")
def _random(d: Draw) -> Iterator[Setup]:
    yield Setup([], {"shape": [2, 3]})


@recipe("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")
def _strings(d: Draw) -> Iterator[Setup]:
    words = np.array(["some", "words"], object)
    schema, told = schema_of(d.kind, d.v), {"pattern": "s.*"} if d.kind == "RegexFullMatch" else {}
    yield Setup([words] * schema.min_input, told, schema.min_output)


@recipe("ImageDecoder")
def _image_decoder(d: Draw) -> Iterator[Setup]:
    yield Setup([d.of(9, dtype="uint8")])


# -- attributes ----------------------------------------------------------------------------------------------

BROADCASTING = frozenset("Add And Div Equal Greater Less Mul Or Pow Sub Xor".split())
ALPHA = (0.3, 1.5)
CHOICES: dict[str, Sequence[Any]] = {  # values that are tried beside the default, by operator and attribute
    "alpha": ALPHA, "beta": ALPHA, "gamma": ALPHA, "lambd": ALPHA, "bias": ALPHA, "epsilon": (1e-2,),
    "keepdims": (0,), "noop_with_empty_axes": (1,), "select_last_index": (1,), "exclusive": (1,),
    "reverse": (1,), "upper": (0,), "approximate": ("tanh",), "direction": (), "p": (1, 2, 3),
    "Mod.fmod": (0, 1), "BitShift.direction": ("LEFT", "RIGHT"), "detect_negative": (0,),
    "detect_positive": (0,), "largest": (0,), "allowzero": (1,),
    "Pad.mode": ("constant", "reflect", "edge", "wrap"), "Pad.value": (1.5,),
    "DepthToSpace.mode": ("DCR", "CRD"),
    "SpaceToDepth.mode": ("DCR", "CRD"), "reduction": ("none", "add", "mul", "max", "min"),
    "OneHot.axis": (0, 1, -1), "ScatterElements.reduction": ("add", "mul", "max", "min"),
    "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"), "dilations": ([2, 2], [1, 2]),
    "strides": ([2, 2], [1, 3]), "pads": ([1, 0, 2, 1], [1, 1, 1, 1]), "ceil_mode": (1,),
    "count_include_pad": (1,), "storage_order": (1,), "transA": (), "transB": (),
    "LpPool.pads": ([1, 0, 1, 1],), "output_padding": (), "Pad.pads": (), "Reshape.allowzero": (),
    "linear_before_reset": (1,), "clip": (0.5,), "input_forget": (1,),
    "GRU.activations": (["Tanh", "Sigmoid"],), "RNN.activations": (["Relu"],), "momentum": (0.5,),
    "AveragePool.pads": ([1, 0, 1, 1], [1, 1, 1, 1]), "MaxPool.pads": ([1, 0, 1, 1], [1, 1, 1, 1]),
    "LSTM.activations": (["Sigmoid", "Tanh", "Relu"],), "size": (5,),
    "Col2Im.dilations": (), "Col2Im.pads": (),
    "Col2Im.strides": (), "DeformConv.strides": (), "DeformConv.pads": (), "DeformConv.dilations": (),
    "LpNormalization.p": (1, 2), "sorted": (),
    "Resize.mode": ("nearest", "linear", "cubic"), "Upsample.mode": ("nearest", "linear", "bilinear"),
    "Resize.coordinate_transformation_mode": (
        "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
        "half_pixel_symmetric",
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"), "cubic_coeff_a": (-0.5,),
    "exclude_outside": (1,), "antialias": (1,),
    "RoiAlign.mode": ("avg", "max"),
    "RoiAlign.coordinate_transformation_mode": ("output_half_pixel", "half_pixel"),
    "RoiAlign.spatial_scale": (0.5,), "RoiAlign.sampling_ratio": (0, 1),
    "GridSample.mode": ("bilinear", "bicubic", "nearest", "linear", "cubic"),
    "padding_mode": ("zeros", "border", "reflection"), "align_corners": (1,), "saturate": (0,),
    "is_causal": (1,), "scale": (0.5,), "softcap": (2.0,), "qk_matmul_output_mode": (), "interleaved": (1,),
    "rotary_embedding_dim": (), "periodic": (0,), "onesided": (0,),
    "TensorScatter.mode": ("linear", "circular"),
    "NegativeLogLikelihoodLoss.reduction": ("none", "sum", "mean"), "ignore_index": (1,),
    "SoftmaxCrossEntropyLoss.reduction": ("none", "sum", "mean"), "center_point_box": (1,),
    "Cast.round_mode": ("up", "down", "nearest"), "left_window_size": (1,), "right_window_size": (1,),
    "Einsum.equation": (), "stash_type": (), "ratio": (0.3,),
}  # fmt: skip


def legal(kind: str, opset: int, base: Mapping[str, Any], attribute: str, value: Any) -> bool:
    """Whether a version knows a value that the table lists for all."""
    if kind == "Resize" and attribute in ("antialias", "cubic_coeff_a", "exclude_outside", "nearest_mode"):
        modes = {"antialias": ("linear", "cubic"), "nearest_mode": ("nearest",)}.get(attribute, ("cubic",))
        return base.get("mode", "nearest") in modes
    if kind == "GridSample" and attribute == "mode":
        return value == "nearest" or (value in ("bilinear", "bicubic")) == (opset < 20)
    if kind == "Upsample" and attribute == "mode":
        return value == "nearest" or (value == "bilinear") == (opset < 7)
    if kind == "Resize":
        if attribute == "mode" and value == "cubic":
            return opset >= 11
        if value == "tf_half_pixel_for_nn":
            return opset < 13
        if value == "half_pixel_symmetric":
            return opset >= 19
    if kind == "Pad" and value == "wrap":
        return opset >= 19
    if kind in ("ScatterElements", "ScatterND") and value in ("max", "min"):
        return opset >= 18
    return not (kind in ("LpPool", "GlobalLpPool") and attribute == "p" and opset < 2)


def attribute_variants(
    kind: str, opset: int, base: Mapping[str, Any], *, defaults: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what, attributes): the attributes of a setup, and those with one of them another.

    `defaults`: those of the schema are written out too.
    """
    yield "as given", dict(base)
    for name, (kind_of_value, default) in attributes_of(kind, opset).items():
        if defaults and default is not None and name not in base:
            yield f"{name} default", {**base, name: default}
        for value in CHOICES.get(f"{kind}.{name}", CHOICES.get(name, ())):
            if name == "activations" and base.get("direction") == "bidirectional":
                value = [*value, *value]
            if base.get(name) != value and legal(kind, opset, base, name, value):
                is_real = kind_of_value == onnx.AttributeProto.FLOAT
                yield (
                    f"{name} {value}",
                    {**base, name: float(value) if is_real and not isinstance(value, list) else value},
                )


def main_types(kind: str, opset: int) -> list[str]:
    """Element types of the first operand that is not a number of something."""
    schema = schema_of(kind, opset)
    formals = [i for i in schema.inputs if i.name not in CONSTANT or kind in ("Range", "Compress")] or [
        *schema.inputs
    ]
    if kind == "Where":
        formals = formals[1:]
    if not formals:
        return ["float32"]
    own = formals[0].type_str
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == own), [own])
    types = [TYPES[text] for text in sorted(allowed) if text in TYPES]
    return types or ["float32"]


def cases_of(kind: str, opset: int, *, types: bool, values: bool) -> Iterator[Case]:
    """Cases of one operator in an opset.

    `types`: of all element types, not of the first alone; `values`: attributes take all their values.
    """
    allowed = main_types(kind, opset)
    first = "float32" if "float32" in allowed else allowed[0]
    for dtype in sorted(allowed, key=lambda name: name != first) if types else [first]:
        seed = zlib.crc32(f"{kind} {opset} {dtype}".encode())
        draw = Draw(kind, opset, dtype, np.random.default_rng(seed))
        for k, setup in enumerate(RECIPES[kind](draw)):
            if k and dtype != first and kind not in ("Cast", "CastLike"):
                break
            operands = tuple(setup.operands)
            if k == 0 and operands and types:
                yield Case(
                    kind, opset, f"{dtype} folded", operands, setup.attributes, setup.outputs, folded=True
                )
            variants = attribute_variants(kind, opset, setup.attributes, defaults=k == 0)
            for n, (what, attributes) in enumerate(variants):
                if n and (setup.fixed or dtype != first or not values):
                    break
                yield Case(kind, opset, f"{dtype} {k} {what}", operands, attributes, setup.outputs)


@cache
def form(kind: str, opset: int) -> object:
    """What a schema says of attributes and operands, without types."""
    return str(attributes_of(kind, opset)), [formal.name for formal in schema_of(kind, opset).inputs]


@cache
def every_case() -> list[Case]:
    """Every operator that has a recipe, in the first and the last opset of each version of its schema.

    All element types are those of the last version of a form.
    """
    cases: list[Case] = []
    for kind, opsets in versions().items():
        for first, following in (
            zip(opsets, [*opsets[1:], NEWEST + 1], strict=True) if kind in RECIPES else ()
        ):
            last = following - 1
            if schema_of(kind, last).deprecated and kind != "GroupNormalization":
                last = first
            changes = following > NEWEST or form(kind, following) != form(kind, first)
            cases += cases_of(kind, first, types=changes, values=True)
            if last != first:
                cases += cases_of(kind, last, types=False, values=False)
    return cases


def sampled(share: int, seed: int = 0) -> list[Case]:
    """One of so many cases, drawn at random."""
    cases = every_case()
    places = np.random.default_rng(seed).permutation(len(cases))[: len(cases) // share]
    return [cases[k] for k in sorted(places)]
