"""Single operators on small operands, drawn by family, for tests of row rules and of arithmetic."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime as ort
from onnx import helper

from lfopt.ir import Graph, Operator, Tensor, row_axis
from lfopt.ops import Call, RowReads, spec
from lfopt.ops.evaluate import evaluate, to_node

OPSET = onnx.defs.onnx_opset_version()
RUNTIME_OPSET = 21  # what ONNX Runtime is sure to know
ort.set_default_logger_severity(4)


@dataclass
class Case:
    """One operator on small operands."""

    kind: str
    operands: list[np.ndarray | None]
    attributes: dict[str, object]
    constant: tuple[int, ...] = ()  # operands that are constants
    exact: bool = True  # both ends of every window matter; False: coefficients may be zero there
    outputs: int = 1
    hidden: tuple[int, ...] = ()  # outputs that nobody asked for
    runtime: bool = False  # values by ONNX Runtime
    reference: bool = False  # values by ONNX's own reference, because ONNX Runtime has errors of its own
    session: ort.InferenceSession | None = None

    def __str__(self) -> str:
        shapes = [
            None if v is None else (v.tolist() if i in self.constant and v.size < 8 else v.shape)
            for i, v in enumerate(self.operands)
        ]
        return f"{self.kind}{shapes} {self.attributes}"

    @property
    def operator(self) -> Operator:
        names = tuple("" if v is None else f"x{i}" for i, v in enumerate(self.operands))
        asked = tuple("" if k in self.hidden else f"y{k}" for k in range(self.outputs))
        return Operator("op", self.kind, names, asked, self.attributes)  # type: ignore[arg-type]

    def run(self, operands: list[np.ndarray | None]) -> tuple[np.ndarray, ...]:
        """Results of all outputs that somebody asked for."""
        if self.runtime:
            if self.session is None:
                options = ort.SessionOptions()
                options.intra_op_num_threads = 1
                self.session = ort.InferenceSession(
                    self.model(RUNTIME_OPSET).SerializeToString(), options, ["CPUExecutionProvider"]
                )
            feeds = {f"x{i}": v for i, v in enumerate(operands) if v is not None and i not in self.constant}
            return tuple(map(np.asarray, self.session.run(None, feeds)))
        full = Operator(
            "op",
            self.kind,
            self.operator.inputs,
            tuple(f"y{k}" for k in range(self.outputs)),
            self.attributes,  # type: ignore[arg-type]
        )
        return tuple(value for k, value in enumerate(evaluate(full, operands, OPSET)) if k not in self.hidden)

    def model(self, opset: int) -> onnx.ModelProto:
        """The operator as a model."""
        return helper.make_model(
            helper.make_graph(
                [to_node(self.operator)],
                "single",
                [
                    helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                    for i, v in enumerate(self.operands)
                    if v is not None and i not in self.constant
                ],
                [helper.make_empty_tensor_value_info(name) for name in self.operator.outputs if name],
                [
                    onnx.numpy_helper.from_array(v, f"x{i}")
                    for i, v in enumerate(self.operands)
                    if v is not None and i in self.constant
                ],
            ),
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=10,
        )

    def results(self) -> tuple[Tensor, ...]:
        """Shapes and types of the results, by ONNX's inference."""
        # ONNX has no inference for these
        if self.kind in ("GroupNormalization", "MeanVarianceNormalization"):
            first = self.operands[0]
            assert first is not None
            return (Tensor("y0", first.shape, first.dtype.name),)
        outputs = onnx.shape_inference.infer_shapes(
            self.model(OPSET), strict_mode=True, data_prop=True
        ).graph.output
        return tuple(
            Tensor(
                v.name,
                tuple(d.dim_value for d in v.type.tensor_type.shape.dim),
                _dtype(v.type.tensor_type.elem_type),
            )
            for v in outputs
        )

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the results."""
        return tuple(tensor.shape for tensor in self.results())

    def call(self) -> Call:
        """The operator as the table's rules see it."""
        results = self.results()
        return Call(
            self.operator,
            tuple(None if v is None else v.shape for v in self.operands),
            tuple(v if i in self.constant else None for i, v in enumerate(self.operands)),
            tuple(i in self.constant for i in range(len(self.operands))),
            tuple(tensor.shape for tensor in results),
            tuple(
                None if v is None else Tensor(str(i), v.shape, v.dtype.name)
                for i, v in enumerate(self.operands)
            ),
            results,
        )

    def rule(self, index: int) -> RowReads:
        """What the table says."""
        return spec(self.kind).reads(self.call(), index)


def _dtype(element: int) -> str:
    return np.dtype(helper.tensor_dtype_to_np_dtype(element)).name


def values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive numbers that are all different, and far from zero."""
    return (rng.permutation(int(np.prod(shape))).reshape(shape) * 0.25 + 1).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def choose(rng: np.random.Generator, *items):
    return items[int(rng.integers(len(items)))]


# -- families: rng -> Case, or None where the draw makes no operator -----------------------------------------


def _window_attributes(
    rng: np.random.Generator, size: list[int], *, dilate: bool = True, ceil_mode: bool = False
) -> dict[str, object] | None:
    kernel = [int(rng.integers(1, 5)) for _ in size]
    strides = [int(rng.integers(1, 4)) for _ in size]
    # a window of columns never lies in padding alone
    dilations = [int(rng.integers(1, 4)) if dilate else 1, *(1 for _ in size[1:])]
    mode = choose(rng, "NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    if mode.startswith("SAME"):
        dilations[0] = 1  # ONNX Runtime refuses these, or gives them another size than ONNX says
    pads = [int(rng.integers(0, k)) for k in kernel * 2]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padded = [
        s + a + b if mode == "NOTSET" else s
        for s, a, b in zip(size, pads[: len(size)], pads[len(size) :], strict=True)
    ]
    if mode in ("NOTSET", "VALID") and any(r > p for r, p in zip(reach, padded, strict=True)):
        return None
    attributes: dict[str, object] = {"kernel_shape": tuple(kernel), "strides": tuple(strides)}
    if dilate:
        attributes["dilations"] = tuple(dilations)
    attributes |= {"pads": tuple(pads)} if mode == "NOTSET" else {"auto_pad": mode}
    if ceil_mode and mode == "NOTSET":
        attributes["ceil_mode"] = int(rng.integers(2))
    return attributes


def conv(rng: np.random.Generator) -> Case | None:
    size = [int(rng.integers(1, 10)), int(rng.integers(1, 4))] + ([2] if rng.random() < 0.15 else [])
    attributes = _window_attributes(rng, size)
    if attributes is None:
        return None
    weight = values(rng, 2, 2, *attributes["kernel_shape"])  # type: ignore[misc]
    if rng.random() < 0.2:
        attributes.pop("kernel_shape")
    return Case("Conv", [values(rng, 1, 2, *size), weight], attributes, (1,), runtime=True)


def conv1d(rng: np.random.Generator) -> Case | None:
    length = int(rng.integers(2, 7))
    return Case("Conv", [values(rng, 1, 3, length), values(rng, 2, 3, 2)], {"kernel_shape": (2,)}, (1,))


def conv_with_computed_weights(rng: np.random.Generator) -> Case | None:
    del rng
    return Case(
        "Conv",
        [values(np.random.default_rng(1), 1, 2, 4, 3), values(np.random.default_rng(2), 2, 2, 3, 3)],
        {"pads": (1, 1, 1, 1)},
        exact=False,
    )


def conv_transpose(rng: np.random.Generator) -> Case | None:
    h, w = int(rng.integers(1, 6)), int(rng.integers(1, 3))
    kernel, stride, dilation = (int(rng.integers(1, 4)) for _ in range(3))
    attributes: dict[str, object] = {
        "kernel_shape": (kernel, 1),
        "strides": (stride, 1),
        "dilations": (dilation, 1),
    }
    extra = int(rng.integers(0, stride))
    kind = choose(rng, "pads", "pads", "auto", "shape")
    if kind == "pads":
        pads = [int(rng.integers(0, kernel)) for _ in range(2)]
        if stride * (h - 1) + extra + (kernel - 1) * dilation + 1 - sum(pads) < 1:
            return None
        attributes |= {"pads": (pads[0], 0, pads[1], 0), "output_padding": (extra, 0)}
    elif kind == "auto":
        attributes |= {"auto_pad": choose(rng, "SAME_UPPER", "SAME_LOWER", "VALID")}
        if stride > (kernel - 1) * dilation + 1:
            return None
    else:
        full = stride * (h - 1) + (kernel - 1) * dilation + 1
        if full < h:
            return None  # ONNX infers no shape where the result is smaller than the input
        attributes |= {"output_shape": (int(rng.integers(max(h, full - 3), full + 1)), w)}
    return Case(
        "ConvTranspose",
        [values(rng, 1, 2, h, w), values(rng, 2, 1, kernel, 1)],
        attributes,
        (1,),
        runtime=True,
    )


def pool(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "MaxPool", "AveragePool", "LpPool")
    size = [int(rng.integers(1, 10)), int(rng.integers(1, 4))]
    attributes = _window_attributes(rng, size, ceil_mode=True)
    if attributes is None:
        return None
    if attributes.get("auto_pad", "")[:4] == "SAME" and any(  # type: ignore[index, arg-type]
        k < s
        for k, s in zip(attributes["kernel_shape"], attributes["strides"], strict=True)  # type: ignore[call-overload]
    ):
        return None  # ONNX Runtime pads some pools by a negative number here, and refuses others
    if kind == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    return Case(kind, [values(rng, 1, 2, *size)], attributes, runtime=True)


def global_pool(rng: np.random.Generator) -> Case | None:
    return Case(
        choose(rng, "GlobalAveragePool", "GlobalMaxPool"), [values(rng, 1, 2, int(rng.integers(1, 6)), 3)], {}
    )


def resize(rng: np.random.Generator) -> Case | None:
    h, w, high = int(rng.integers(1, 8)), 2, int(rng.integers(1, 12))
    mode = choose(rng, "nearest", "linear", "cubic")
    coordinates = choose(
        rng, "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"
    )
    attributes: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = choose(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    empty = None
    if rng.random() < 0.5:
        scales = np.array(
            [1, 1, choose(rng, 0.375, 0.5, 0.625, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0), 1], np.float32
        )
        if int(h * scales[2]) in (0, h):
            return None  # ONNX Runtime copies maps that keep their size
        return Case(
            "Resize",
            [values(rng, 1, 2, h, w), empty, scales],
            attributes,
            (2,),
            exact=mode == "nearest",
            runtime=True,
        )
    if float(np.float32(high / h)) != high / h:
        return None  # ONNX Runtime computes positions in float32: ties fall to either side
    return Case(
        "Resize",
        [values(rng, 1, 2, h, w), empty, empty, ints(1, 2, high, w)],
        attributes,
        (3,),
        exact=mode == "nearest",
        runtime=True,
    )


def slice_(rng: np.random.Generator) -> Case | None:
    shape = (1, 3, int(rng.integers(1, 9)), 3)
    axis = choose(rng, 1, 2, 2, -2, 3)
    size = shape[axis]
    step = choose(rng, 1, 2, 3, -1, -2)
    start, end = int(rng.integers(-size - 2, size + 3)), int(rng.integers(-size - 2, size + 3))
    if len(range(*slice(start, end, step).indices(size))) == 0:
        return None
    x = values(rng, *shape)
    if rng.random() < 0.3 and axis == 2:
        return Case(
            "Slice",
            [x, ints(0, 1, start), ints(1, 3, end), ints(0, 1, 2), ints(1, 1, step)],
            {},
            (1, 2, 3, 4),
        )
    return Case("Slice", [x, ints(start), ints(end), ints(axis), ints(step)], {}, (1, 2, 3, 4))


def pad(rng: np.random.Generator) -> Case | None:
    h = int(rng.integers(2, 7))
    mode = choose(rng, "constant", "edge", "reflect", "wrap")
    low = -1 if mode == "constant" else 0
    before, after = int(rng.integers(low, min(h, 4))), int(rng.integers(low, min(h, 4)))
    if h + before + after < 1:
        return None
    if rng.random() < 0.5:
        return Case(
            "Pad",
            [values(rng, 1, 2, h, 2), ints(0, 0, before, 0, 0, 0, after, 1)],
            {"mode": mode},
            (1,),
            exact=mode in ("constant", "edge"),
            runtime=True,
        )
    axis = choose(rng, 2, -2)
    return Case(
        "Pad",
        [values(rng, 1, 2, h, 2), ints(before, after), None, ints(axis)],
        {"mode": mode},
        (1, 3),
        exact=mode in ("constant", "edge"),
        runtime=True,
    )


def pad_beside_the_rows(rng: np.random.Generator) -> Case | None:
    mode = choose(rng, "constant", "edge", "reflect", "wrap")
    return Case(
        "Pad",
        [values(rng, 1, 3, int(rng.integers(1, 6)), 3), ints(1, 1, 2, 0), None, ints(1, 3)],
        {"mode": mode},
        (1, 3),
    )


def concat(rng: np.random.Generator) -> Case | None:
    rank3 = rng.random() < 0.3
    axis = int(rng.integers(1, 3 if rank3 else 4))
    shape = [1, *(int(rng.integers(1, 5)) for _ in range(2 if rank3 else 3))]
    parts = [
        [int(rng.integers(1, 4)) if a == axis else d for a, d in enumerate(shape)]
        for _ in range(int(rng.integers(2, 4)))
    ]
    return Case(
        "Concat", [values(rng, *part) for part in parts], {"axis": choose(rng, axis, axis - len(shape))}
    )


def split(rng: np.random.Generator) -> Case | None:
    axis = choose(rng, 1, 2, 2, -2)
    sizes = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(2, 4)))]
    shape = [1, 3, 3, 2]
    shape[axis] = sum(sizes)
    hidden = (int(rng.integers(len(sizes))),) if rng.random() < 0.25 else ()
    # The ends of a window over several results matter to the results that are tall enough to have the row.
    return Case(
        "Split",
        [values(rng, *shape), ints(*sizes)],
        {"axis": axis},
        (1,),
        outputs=len(sizes),
        hidden=hidden,
        exact=not hidden,
    )


def transpose(rng: np.random.Generator) -> Case | None:
    rank = choose(rng, 3, 4, 4, 5)
    shape = [int(rng.integers(1, 5)) for _ in range(rank)]
    permutation = tuple(int(a) for a in rng.permutation(rank))
    # Whether all rows are truly mixed depends on what else moves: only the kept case is exact.
    own = row_axis(tuple(shape))
    return Case("Transpose", [values(rng, *shape)], {"perm": permutation}, exact=permutation[own] == own)  # type: ignore[index]


def depth_to_space(rng: np.random.Generator) -> Case | None:
    block = int(rng.integers(1, 4))
    attributes: dict[str, object] = {"blocksize": block, "mode": choose(rng, "DCR", "CRD")}
    return Case("DepthToSpace", [values(rng, 1, block * block * 2, int(rng.integers(1, 5)), 2)], attributes)


def space_to_depth(rng: np.random.Generator) -> Case | None:
    block = int(rng.integers(1, 4))
    return Case(
        "SpaceToDepth", [values(rng, 1, 2, block * int(rng.integers(1, 5)), block * 2)], {"blocksize": block}
    )


def reduction(rng: np.random.Generator) -> Case | None:
    rank = choose(rng, 3, 4, 4)
    kind = choose(
        rng,
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceSum",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceSumSquare",
        "ReduceL1",
    )
    shape = [1, *(int(rng.integers(2, 5)) for _ in range(rank - 1))]
    axes = [int(a) for a in rng.permutation(rank)[: int(rng.integers(1, rank))]]
    if rng.random() < 0.3:
        axes = [a - rank for a in axes]
    keep = int(rng.integers(2))
    # With the reduced axes gone, the row axis of the result is another one; what is left is mixed in most
    # shapes, not in all.
    return Case(kind, [values(rng, *shape), ints(*axes)], {"keepdims": keep}, (1,), exact=bool(keep))


def reduction_of_all_or_nothing(rng: np.random.Generator) -> Case | None:
    noop = int(rng.integers(2))
    axes = ints() if rng.random() < 0.5 else None
    return Case("ReduceSum", [values(rng, 1, 2, 4, 2), axes], {"noop_with_empty_axes": noop}, (1,))


def arg_reduction(rng: np.random.Generator) -> Case | None:
    axis = int(rng.integers(1, 4))
    attributes: dict[str, object] = {"axis": axis, "keepdims": int(rng.integers(2))}
    return Case(choose(rng, "ArgMax", "ArgMin"), [values(rng, 1, 4, 5, 4)], attributes, exact=False)


def softmax(rng: np.random.Generator) -> Case | None:
    rank = choose(rng, 3, 4, 4)
    shape = [1, *(int(rng.integers(2, 5)) for _ in range(rank - 1))]
    return Case(
        choose(rng, "Softmax", "LogSoftmax"),
        [values(rng, *shape) / 8],
        {"axis": int(rng.integers(-rank + 1, rank))},
        exact=False,
    )


def normalization(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "LayerNormalization", "RMSNormalization", "LpNormalization")
    rank = choose(rng, 3, 4)
    shape = [1, *(int(rng.integers(2, 5)) for _ in range(rank - 1))]
    axis = int(rng.integers(1, rank))
    operands: list[np.ndarray | None] = [values(rng, *shape)]
    if kind != "LpNormalization":
        operands.append(values(rng, *shape[axis:]))
    return Case(kind, operands, {"axis": choose(rng, axis, axis - rank)}, (1,), exact=False)


def lrn(rng: np.random.Generator) -> Case | None:
    return Case("LRN", [values(rng, 1, 4, int(rng.integers(1, 6)), 2)], {"size": choose(rng, 1, 3, 5)})


def whole_normalization(rng: np.random.Generator) -> Case | None:
    x = values(rng, 1, 4, int(rng.integers(2, 6)), 2)
    return Case("InstanceNormalization", [x, values(rng, 4), values(rng, 4)], {}, (1, 2))


def matmul(rng: np.random.Generator) -> Case | None:
    left, right = choose(
        rng, (3, 2), (3, 3), (4, 2), (4, 4), (4, 3), (3, 4), (2, 3), (2, 4), (3, 1), (4, 1), (1, 3), (1, 4)
    )
    m, k, n = (int(rng.integers(1, 5)) for _ in range(3))
    batch = int(rng.integers(1, 3))
    a = [*([batch] * (left - 2)), m, k][-left:] if left > 1 else [k]
    b = [*([batch] * (right - 2)), k, n][:right] if right > 1 else [k]
    if right > 1:
        b = [*([batch] * (right - 2)), k, n]
    # Batched first operands of rank 3 against rank 4 mix in ways that a window does not describe.
    return Case("MatMul", [values(rng, *a), values(rng, *b)], {}, exact=left == right and batch == 1)


def gemm(rng: np.random.Generator) -> Case | None:
    return Case("Gemm", [values(rng, 3, 4), values(rng, 4, 2), values(rng, 2)], {"transA": 0}, (1, 2))


def elementwise(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "Add", "Mul", "Sub", "Div", "Max")
    rank = choose(rng, 3, 4, 4, 5)
    shape = [int(rng.integers(1, 5)) for _ in range(rank)]
    other = [1 if rng.random() < 0.4 else d for d in shape][int(rng.integers(0, 3)) :]
    if kind == "Max":
        return Case(kind, [values(rng, *shape), values(rng, *other)], {}, exact=False)
    operands: list[np.ndarray | None] = [values(rng, *shape), values(rng, *other)]
    return Case(kind, operands if rng.random() < 0.5 else operands[::-1], {})


def unary(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "Abs", "Neg", "Erf", "Relu", "HardSwish", "LeakyRelu", "Floor", "Atan")
    shape = [int(rng.integers(1, 5)) for _ in range(choose(rng, 2, 3, 4, 5))]
    return Case(kind, [values(rng, *shape) / 100], {}, exact=False)


def prelu(rng: np.random.Generator) -> Case | None:
    return Case("PRelu", [-values(rng, 1, 3, int(rng.integers(1, 6)), 2), values(rng, 3, 1, 1)], {}, (1,))


def where(rng: np.random.Generator) -> Case | None:
    h = int(rng.integers(1, 5))
    return Case(
        "Where",
        [rng.random((1, 1, h, 3)) < 0.5, values(rng, 1, 2, h, 3), values(rng, 1, 2, 1, 3)],
        {},
        (0,),
        exact=False,
    )


def expand(rng: np.random.Generator) -> Case | None:
    h = int(rng.integers(1, 5))
    x, target = choose(
        rng,
        ((1, 1, h, 1), (1, 2, h, 3)),
        ((1, 2, 1, 3), (1, 2, h, 3)),
        ((h, 3), (1, 2, h, 3)),
        ((1, h, 2), (2, h, 2)),
        ((2, 1, 1), (3, 2, h, 1)),
    )
    return Case("Expand", [values(rng, *x), ints(*target)], {}, (1,))


def tile(rng: np.random.Generator) -> Case | None:
    rank = choose(rng, 3, 4)
    shape = [1, *(int(rng.integers(1, 4)) for _ in range(rank - 1))]
    return Case("Tile", [values(rng, *shape), ints(*(int(r) for r in rng.integers(1, 4, rank)))], {}, (1,))


def gather(rng: np.random.Generator) -> Case | None:
    rank = choose(rng, 2, 3, 4)
    shape = [int(rng.integers(1, 5)) for _ in range(rank)]
    axis = int(rng.integers(0, rank))
    index = rng.integers(0, shape[axis], [(), (2,), (2, 3)][int(rng.integers(3))]).astype(np.int64)
    return Case(
        "Gather", [values(rng, *shape), index], {"axis": choose(rng, axis, axis - rank)}, (1,), exact=False
    )


def trilu(rng: np.random.Generator) -> Case | None:
    return Case(
        "Trilu", [values(rng, 1, 2, int(rng.integers(1, 5)), 6)], {"upper": int(rng.integers(2))}, exact=False
    )


def cumulative_sum(rng: np.random.Generator) -> Case | None:
    axis = int(rng.integers(1, 4))
    return Case(
        "CumSum",
        [values(rng, 1, 2, 4, 3), np.array(axis, np.int64)],
        {"reverse": int(rng.integers(2))},
        (1,),
        exact=False,
    )


# -- families for arithmetic: attributes that no row rule looks at -------------------------------------------


def signed(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of either sign around one."""
    return rng.normal(size=shape).astype(np.float32)


def _size(rng: np.random.Generator, *ranks: int) -> list[int]:
    rank = choose(rng, *ranks)
    return [int(rng.integers(1, 8 if rank < 3 else 5)) for _ in range(rank)]


def grouped_conv(rng: np.random.Generator) -> Case | None:
    size = _size(rng, 1, 2, 2, 2, 3)
    attributes = _window_attributes(rng, size)
    if attributes is None:
        return None
    group, per_group, filters = choose(rng, 1, 1, 2, 3, 4), choose(rng, 1, 1, 2, 3), choose(rng, 1, 2, 3)
    operands: list[np.ndarray | None] = [
        signed(rng, choose(rng, 1, 1, 2), group * per_group, *size),
        signed(rng, group * filters, per_group, *attributes["kernel_shape"]),  # type: ignore[misc]
    ]
    operands += [signed(rng, group * filters)] if rng.random() < 0.5 else []
    return Case("Conv", operands, attributes | {"group": group}, (1, 2)[: len(operands) - 1], runtime=True)


def grouped_conv_transpose(rng: np.random.Generator) -> Case | None:
    size = _size(rng, 1, 2, 2, 3)
    rank = len(size)
    kernel, stride, dilation = ([int(rng.integers(1, 4)) for _ in size] for _ in range(3))
    attributes: dict[str, object] = {
        "kernel_shape": tuple(kernel),
        "strides": tuple(stride),
        "dilations": tuple(dilation),
    }
    extra = [int(rng.integers(0, s)) for s in stride]
    pads = [int(rng.integers(0, k)) for k in kernel * 2]
    full = [
        s * (n - 1) + e + (k - 1) * d + 1
        for s, n, e, k, d in zip(stride, size, extra, kernel, dilation, strict=True)
    ]
    if any(f - a - b < 1 for f, a, b in zip(full, pads[:rank], pads[rank:], strict=True)):
        return None
    attributes |= {"pads": tuple(pads), "output_padding": tuple(extra)}
    group, per_group, filters = choose(rng, 1, 1, 2, 3), choose(rng, 1, 2, 3), choose(rng, 1, 2, 3)
    operands: list[np.ndarray | None] = [
        signed(rng, choose(rng, 1, 1, 2), group * per_group, *size),
        signed(rng, group * per_group, filters, *kernel),
    ]
    operands += [signed(rng, group * filters)] if rng.random() < 0.5 else []
    return Case(
        "ConvTranspose", operands, attributes | {"group": group}, (1, 2)[: len(operands) - 1], runtime=True
    )


def pool_of_any_rank(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "MaxPool", "AveragePool", "AveragePool", "LpPool")
    size = _size(rng, 1, 2, 2, 3)
    attributes = _window_attributes(rng, size, ceil_mode=True)
    if attributes is None:
        return None
    if attributes.get("auto_pad", "")[:4] == "SAME" and any(  # type: ignore[index, arg-type]
        k < s
        for k, s in zip(attributes["kernel_shape"], attributes["strides"], strict=True)  # type: ignore[call-overload]
    ):
        return None  # ONNX Runtime pads some pools by a negative number here, and refuses others
    if kind == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    if kind == "LpPool":
        attributes["p"] = int(rng.integers(1, 4))
    return Case(kind, [signed(rng, choose(rng, 1, 2), 2, *size)], attributes, runtime=True)


def pool_beyond_the_map(rng: np.random.Generator) -> Case | None:
    h, w, kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(6, 10))
    attributes: dict[str, object] = {
        "kernel_shape": (kernel, kernel),
        "strides": (kernel, kernel),
        "ceil_mode": 1,
    }
    return Case(
        "AveragePool",
        [signed(rng, 1, 2, h, w)],
        attributes | {"count_include_pad": int(rng.integers(2))},
        runtime=True,
    )


def max_pool_indices(rng: np.random.Generator) -> Case | None:
    size = _size(rng, 1, 2, 2, 3)
    attributes = _window_attributes(rng, size)
    if attributes is None or "auto_pad" in attributes:
        return None
    x = rng.integers(-3, 4, (choose(rng, 1, 2), 2, *size)).astype(np.float32)  # with equal elements
    return Case("MaxPool", [x], attributes | {"storage_order": int(rng.integers(2))}, outputs=2, runtime=True)


def general_gemm(rng: np.random.Generator) -> Case | None:
    m, k, n = (int(rng.integers(1, 6)) for _ in range(3))
    left, right = int(rng.integers(2)), int(rng.integers(2))
    operands: list[np.ndarray | None] = [
        signed(rng, *((k, m) if left else (m, k))),
        signed(rng, *((n, k) if right else (k, n))),
    ]
    if rng.random() < 0.8:
        operands.append(signed(rng, *choose(rng, (n,), (1, n), (m, 1), (m, n), (1,), ())))
    return Case(
        "Gemm",
        operands,
        {
            "transA": left,
            "transB": right,
            "alpha": choose(rng, 1.0, 0.5),
            "beta": choose(rng, 1.0, 0.25, 0.0),
        },
        (1, 2)[: len(operands) - 1],
    )


def batched_matmul(rng: np.random.Generator) -> Case | None:
    batch = [int(rng.integers(1, 3)) for _ in range(int(rng.integers(0, 4)))]
    m, k, n = (int(rng.integers(1, 5)) for _ in range(3))
    a, b = ([1 if rng.random() < 0.3 else d for d in batch][int(rng.integers(0, 2)) :] for _ in range(2))
    if rng.random() < 0.2:
        return Case(
            "MatMul",
            [
                rng.integers(-9, 9, (*a, m, k)).astype(np.int32),
                rng.integers(-9, 9, (*b, k, n)).astype(np.int32),
            ],
            {},
        )
    return Case("MatMul", [signed(rng, *a, m, k), signed(rng, *b, k, n)], {})


ACTIVATIONS: dict[str, dict[str, object]] = {
    **{
        kind: {}
        for kind in "Abs Asinh Atan Ceil Cos Erf Exp Floor HardSwish IsNaN Mish Neg Reciprocal Relu Round "
        "Sigmoid Sign Sin Sinh".split()
    },
    **{
        kind: {}
        for kind in "Cosh Softplus Softsign Tan Tanh Gelu Elu Celu Selu HardSigmoid LeakyRelu Shrink Swish "
        "ThresholdedRelu IsInf".split()
    },
    "ThresholdedRelu ": {"alpha": 0.3},
    "Gelu ": {"approximate": "tanh"},
    "Elu ": {"alpha": 0.5},
    "Celu ": {"alpha": 2.0},
    "Selu ": {"alpha": 1.5, "gamma": 1.25},
    "HardSigmoid ": {"alpha": 0.3, "beta": 0.4},
    "LeakyRelu ": {"alpha": 0.2},
    "Shrink ": {"bias": 0.1, "lambd": 0.4},
    "Swish ": {"alpha": 1.5},
    "IsInf ": {"detect_positive": 0},
}


def activation(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, *ACTIVATIONS)
    x = signed(rng, *_size(rng, 2, 3, 4)) * choose(rng, 1, 3)
    if kind[:5] in ("IsInf", "IsNaN"):
        x.reshape(-1)[::2] = choose(rng, np.inf, -np.inf, np.nan)
    return Case(kind.strip(), [x], ACTIVATIONS[kind])


def activation_of_a_part_of_the_reals(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "Acos", "Asin", "Atanh", "Log", "Sqrt", "Acosh")
    x = rng.uniform(0.01, 0.99, _size(rng, 3, 4)).astype(np.float32)
    return Case(kind, [x + 1 if kind == "Acosh" else x], {})


def half_precision(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "Sigmoid", "Exp", "Relu", "Erf", "Add", "Softmax", "ReduceMean", "MatMul")
    x = signed(rng, 1, 2, 3, 3).astype(np.float16)
    return Case(kind, [x, x * 2] if kind in ("Add", "MatMul") else [x], {})


BINARY = {
    "real": (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Max",
        "Min",
        "Mean",
        "Sum",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Equal",
        "PRelu",
    ),
    "integer": (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Mod",
        "Max",
        "Min",
        "Equal",
        "Less",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
    ),
    "boolean": ("And", "Or", "Xor", "Equal"),
}


def binary(rng: np.random.Generator) -> Case | None:
    type_ = choose(rng, *BINARY)
    kind = choose(rng, *BINARY[type_])
    shape = _size(rng, 3, 4, 4, 5)
    other = [1 if rng.random() < 0.4 else d for d in shape][int(rng.integers(0, 3)) :]
    if type_ == "real":
        operands: list[np.ndarray | None] = [signed(rng, *shape), signed(rng, *other)]
    elif type_ == "integer":
        dtype = choose(rng, np.int32, np.int64)
        operands = [
            rng.integers(-9, 10, shape).astype(dtype),
            rng.choice([-3, -2, -1, 1, 2, 5], other).astype(dtype),
        ]
    else:
        operands = [rng.random(shape) < 0.5, rng.random(other) < 0.5]
    if kind in ("Max", "Min", "Mean", "Sum") and rng.random() < 0.5:
        operands.append(operands[0])
    return Case(
        kind, operands if kind == "PRelu" or rng.random() < 0.5 or type_ == "integer" else operands[::-1], {}
    )


def other_elementwise(rng: np.random.Generator) -> Case | None:
    shape = _size(rng, 3, 4)
    x = signed(rng, *shape)
    integers = rng.integers(1, 99, shape).astype(np.int32)
    return choose(
        rng,
        Case("Mod", [x, np.abs(signed(rng, shape[-1])) + 0.1], {"fmod": 1}),
        Case("Pow", [np.abs(x) + 0.1, signed(rng, shape[-1])], {}),
        Case("Pow", [x, np.array(2.0, np.float32)], {}, (1,)),
        Case("Pow", [x, np.array(3, np.int64)], {}, (1,)),
        Case("Pow", [integers, np.array(2, np.int32)], {}, (1,)),
        Case(
            "BitShift",
            [integers.astype(np.uint32), np.array([1, 3], np.uint32)[: shape[-1] and 1]],
            {"direction": choose(rng, "LEFT", "RIGHT")},
        ),
        Case("BitwiseNot", [integers], {}),
        Case("Not", [x > 0], {}),
        Case("Neg", [integers], {}),
        Case("Abs", [-integers], {}),
        Case("Relu", [rng.integers(-9, 9, shape).astype(np.int32)], {}),
        Case("Clip", [x, np.array(-0.5, np.float32), np.array(0.5, np.float32)], {}, (1, 2)),
        Case("Clip", [x, None, np.array(0.5, np.float32)], {}, (2,)),
        Case("Clip", [x, np.array(0.0, np.float32)], {}, (1,)),
        Case("Clip", [integers, np.array(3, np.int32), np.array(40, np.int32)], {}, (1, 2)),
        Case("Where", [x > 0, integers, -integers], {}),
        Case("Cast", [x * 10], {"to": int(onnx.TensorProto.INT32)}),
        Case("Cast", [x], {"to": int(onnx.TensorProto.BOOL)}),
        Case("Cast", [integers], {"to": int(onnx.TensorProto.FLOAT)}),
        Case("Cast", [x], {"to": int(onnx.TensorProto.FLOAT16)}),
        Case("Cast", [x], {"to": int(onnx.TensorProto.FLOAT8E4M3FN)}),
        Case("CastLike", [x * 10, integers], {}),
    )


def statistics(rng: np.random.Generator) -> Case | None:
    n, c, *size = [choose(rng, 1, 2), 4, *_size(rng, 1, 2, 2, 3)]
    x, per_channel = signed(rng, n, c, *size), [signed(rng, c) for _ in range(3)]
    return choose(
        rng,
        Case(
            "BatchNormalization",
            [x, *per_channel, np.abs(signed(rng, c)) + 0.1],
            {"epsilon": choose(rng, 1e-5, 0.1)},
            (1, 2, 3, 4),
        ),
        Case("InstanceNormalization", [x, *per_channel[:2]], {"epsilon": 0.01}, (1, 2)),
        Case(
            "GroupNormalization",
            [x, *per_channel[:2]],
            {"num_groups": choose(rng, 1, 2, 4), "epsilon": 0.01},
            (1, 2),
        ),
        Case(
            "LRN",
            [signed(rng, 1, 5, *_size(rng, 2))],
            {"size": choose(rng, 1, 3, 5, 9), "alpha": 0.5, "beta": 0.6, "bias": 2.0},
        ),
        Case(choose(rng, "GlobalAveragePool", "GlobalMaxPool"), [x], {}),
        Case("GlobalLpPool", [x], {"p": choose(rng, 1, 2, 3)}),
        Case(
            "MeanVarianceNormalization",
            [signed(rng, 2, 3, 4, 3)],
            choose(rng, {}, {"axes": (2, 3)}, {"axes": (1,)}, {"axes": (0, 1, 2, 3)}),
        ),
    )


def layer_normalization(rng: np.random.Generator) -> Case | None:
    shape = _size(rng, 2, 3, 4)
    axis = int(rng.integers(0, len(shape)))
    operands: list[np.ndarray | None] = [signed(rng, *shape), signed(rng, *shape[axis:])]
    if rng.random() < 0.6:
        operands.append(signed(rng, *shape[axis:]))
    return Case(
        "LayerNormalization",
        operands,
        {"axis": choose(rng, axis, axis - len(shape)), "epsilon": 0.01},
        (1, 2),
        outputs=choose(rng, 1, 3),
    )


def along_an_axis(rng: np.random.Generator) -> Case | None:
    shape = _size(rng, 2, 3, 4)
    axis = int(rng.integers(-len(shape), len(shape)))
    x = rng.integers(-3, 4, shape).astype(np.float32)
    k = int(rng.integers(1, shape[axis] + 1))
    return choose(
        rng,
        Case("TopK", [x, ints(k)], {"axis": axis, "largest": int(rng.integers(2))}, (1,), outputs=2),
        Case(
            choose(rng, "ArgMax", "ArgMin"),
            [x],
            {"axis": axis, "keepdims": int(rng.integers(2)), "select_last_index": int(rng.integers(2))},
        ),
        Case(
            choose(rng, "CumProd", "CumSum"),
            [x, np.array(axis, np.int64)],
            {"reverse": int(rng.integers(2)), "exclusive": int(rng.integers(2))},
            (1,),
        ),
        Case(choose(rng, "Softmax", "LogSoftmax", "Hardmax"), [x], {"axis": axis}),
        Case("LpNormalization", [signed(rng, *shape)], {"axis": axis, "p": choose(rng, 1, 2)}),
        Case(
            choose(rng, "ReduceLogSum", "ReduceProd", "ReduceL2"),
            [np.abs(x) + 0.5, ints(axis)],
            {"keepdims": int(rng.integers(2))},
            (1,),
        ),
        Case(
            choose(rng, "ReduceMax", "ReduceSum", "ReduceMin"),
            [x.astype(np.int32), ints(axis)],
            {"keepdims": int(rng.integers(2))},
            (1,),
        ),
    )


def gathered(rng: np.random.Generator) -> Case | None:
    h = int(rng.integers(1, 5))
    x = signed(rng, 2, 3, h, 4)
    axis = int(rng.integers(-4, 4))
    extent = x.shape[axis]
    anywhere = rng.integers(-extent, extent, (2, 3, h, 4)).astype(np.int64)
    return choose(
        rng,
        Case(
            "Gather",
            [x, rng.integers(-extent, extent, choose(rng, (), (3,), (2, 2))).astype(np.int64)],
            {"axis": axis},
        ),
        Case("GatherElements", [x, anywhere], {"axis": axis}),
        Case(
            "ScatterElements",
            [x, np.arange(extent)[:1].reshape(1, 1, 1, 1).astype(np.int64), signed(rng, 1, 1, 1, 1)],
            {"axis": axis},
        ),
        Case("GatherND", [x, ints(0, 1, 1, 2).reshape(2, 2)], {}),
        Case("ScatterND", [x, ints(0, 1, 1, 2).reshape(2, 2), signed(rng, 2, h, 4)], {}),
    )


def between_elements(rng: np.random.Generator) -> Case | None:
    n, h, w = (int(rng.integers(1, 3)), *(int(v) for v in rng.integers(2, 7, 2)))
    x = signed(rng, n, 4, h, w)
    if rng.random() < 0.4:
        regions = np.sort(rng.uniform(-3, 12, (3, 2, 2)), axis=1).reshape(3, 4).astype(np.float32)
        attributes: dict[str, object] = {
            "output_height": int(rng.integers(1, 4)),
            "output_width": 2,
            "spatial_scale": 0.5,
            "mode": choose(rng, "avg", "max"),
        }
        attributes |= {
            "sampling_ratio": int(rng.integers(3)),
            "coordinate_transformation_mode": choose(rng, "half_pixel", "output_half_pixel"),
        }
        return Case("RoiAlign", [x, regions, rng.integers(0, n, 3).astype(np.int64)], attributes)
    kernel, strides, dilations, pads = (
        [int(v) for v in rng.integers(low, high, k)]
        for low, high, k in ((1, 4, 2), (1, 3, 2), (1, 3, 2), (0, 2, 4))
    )
    extents = [
        (size + pads[k] + pads[k + 2] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1
        for k, size in enumerate((h, w))
    ]
    if min(extents) < 1:
        return None
    groups, parts = (int(choose(rng, 1, 2)) for _ in range(2))
    taps = parts * kernel[0] * kernel[1]
    attributes = {
        "group": groups,
        "offset_group": parts,
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": tuple(pads),
    }
    moved = rng.uniform(-2, 2, (n, 2 * taps, *extents)).astype(np.float32)
    operands: list[np.ndarray | None] = [x, signed(rng, 6, 4 // groups, *kernel), moved]
    operands += choose(
        rng,
        [],
        [signed(rng, 6)],
        [None, signed(rng, n, taps, *extents)],
        [signed(rng, 6), signed(rng, n, taps, *extents)],
    )
    return Case("DeformConv", operands, attributes | {"kernel_shape": tuple(kernel)}, choose(rng, (), (1,)))


def bit_cast(rng: np.random.Generator) -> Case | None:
    x = choose(rng, signed(rng, 2, 3, 4), rng.integers(0, 2**32, (2, 3, 4)).astype(np.uint32))
    return Case("BitCast", [x], {"to": int(onnx.TensorProto.INT32)})


def einsum(rng: np.random.Generator) -> Case | None:
    a, b, c, d = (int(rng.integers(1, 5)) for _ in range(4))
    return choose(
        rng,
        Case("Einsum", [signed(rng, a, b, c), signed(rng, a, c, d)], {"equation": "bij,bjk->bik"}),
        Case("Einsum", [signed(rng, a, b, c, d), signed(rng, a, b, d)], {"equation": "nchw,ncw->nch"}),
        Case("Einsum", [signed(rng, a, b), signed(rng, b, c)], {"equation": "ij, jk"}),
        Case("Einsum", [signed(rng, a, b, c, d)], {"equation": "...ij->...ji"}),
        Case("Einsum", [signed(rng, a, b, c)], {"equation": "abc->cb"}),
    )


def resize_in_every_way(rng: np.random.Generator) -> Case | None:
    h, w = int(rng.integers(2, 8)), int(rng.integers(2, 8))
    mode = choose(rng, "nearest", "linear", "cubic")
    attributes: dict[str, object] = {
        "mode": mode,
        "coordinate_transformation_mode": choose(rng, "half_pixel", "asymmetric", "align_corners"),
    }
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": choose(rng, -0.5, -0.75), "exclude_outside": int(rng.integers(2))}
    x, empty = signed(rng, 1, 2, h, w), None
    scales = np.array([1, 1, choose(rng, 0.5, 2.0, 4.0), choose(rng, 0.5, 1.0, 2.0)], np.float32)
    way = choose(rng, "scales", "axes", "policy", "antialias", "crop")
    if way == "axes":
        return Case("Resize", [x, empty, scales[2:]], attributes | {"axes": (2, 3)}, (2,))
    if way == "policy":
        attributes |= {"keep_aspect_ratio_policy": choose(rng, "not_larger", "not_smaller"), "axes": (2, 3)}
        return Case("Resize", [x, empty, empty, ints(2 * h, 3 * w)], attributes, (3,))
    if way == "antialias" and mode != "nearest":
        attributes |= {"antialias": 1, "exclude_outside": 0, "coordinate_transformation_mode": "half_pixel"}
    if way == "crop":
        attributes |= {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
        region = np.array(
            [0, 0, choose(rng, 0.0, 0.25), choose(rng, -0.25, 0.125), 1, 1, choose(rng, 0.75, 1.5), 0.875],
            np.float32,
        )
        high, wide = choose(rng, 1, 2, 3, 5, 9), choose(rng, 1, 2, 3, 5)  # positions are exact
        return Case("Resize", [x, region, empty, ints(1, 2, high, wide)], attributes, (1, 3), reference=True)
    return Case("Resize", [x, empty, scales], attributes, (2,))


def quantization(rng: np.random.Generator) -> Case | None:
    shape = [2, 4, *_size(rng, 1, 2)]
    dtype = choose(rng, np.int8, np.uint8, np.int16)
    axis = choose(rng, None, 1, -1)
    count = () if axis is None else (shape[axis],)
    scale = rng.uniform(0.01, 0.2, count).astype(np.float32)
    zero = rng.integers(0, 9, count).astype(dtype)
    attributes: dict[str, object] = {} if axis is None else {"axis": axis}
    if rng.random() < 0.5:
        return Case("QuantizeLinear", [signed(rng, *shape) * 4, scale, zero], attributes, (1, 2))
    x = rng.integers(0, 99, shape).astype(dtype)
    if rng.random() < 0.3:
        blocks = rng.uniform(0.01, 0.2, (2, 2, *shape[2:])).astype(np.float32)
        return Case("DequantizeLinear", [x, blocks], {"axis": 1, "block_size": 2}, (1,))
    return Case(
        "DequantizeLinear", [x, scale] if rng.random() < 0.3 else [x, scale, zero], attributes, (1, 2)
    )


def view(rng: np.random.Generator) -> Case | None:
    x = signed(rng, 1, 2, int(rng.integers(1, 5)), 3)
    h = x.shape[2]
    return choose(
        rng,
        Case(
            "Reshape", [x, ints(*choose(rng, (1, 2, h, 3, 1), (1, h, 2, 3), (2, 3 * h), (1, 6, h)))], {}, (1,)
        ),
        Case("Squeeze", [x, ints(0)], {}, (1,)),
        Case("Unsqueeze", [x, ints(0)], {}, (1,)),
        Case("Flatten", [x], {"axis": choose(rng, 1, 2)}),
        Case("Identity", [x], {}),
        Case("Dropout", [x], {}),
    )


def moved(rng: np.random.Generator) -> Case | None:
    rank = choose(rng, 2, 3, 4, 5)
    shape = [int(rng.integers(1, 5)) for _ in range(rank)]
    x = rng.integers(0, 99, shape).astype(choose(rng, np.float32, np.int64, np.uint8))
    starts, ends, steps = (
        [choose(rng, *options) for _ in shape] for options in ((0, 0, -1, 9), (9, 9, -99), (1, 2, -1, -2))
    )
    ends = [9 if step > 0 else -99 for step in steps]
    starts = [0 if step > 0 else choose(rng, -1, 9) for step in steps]
    pads = [int(n) for n in rng.integers(0, 3, 2 * rank)]
    mode = choose(rng, "constant", "edge", "reflect", "wrap")
    if mode == "reflect":
        pads = [min(p, n - 1) for p, n in zip(pads, shape * 2, strict=True)]
    if mode == "constant":
        pads = [p - 1 for p in pads] if all(n > 2 for n in shape) else pads
    fill = np.array(5, x.dtype)
    return choose(
        rng,
        Case("Slice", [x, ints(*starts), ints(*ends), ints(*range(rank)), ints(*steps)], {}, (1, 2, 3, 4)),
        Case(
            "Pad",
            [x, ints(*pads), fill] if mode == "constant" else [x, ints(*pads)],
            {"mode": mode},
            (1, 2)[: 2 if mode == "constant" else 1],
            runtime=True,
        ),
        Case("Concat", [x, x[..., :1], x], {"axis": -1}),
        Case("Expand", [x[..., :1], ints(*shape[:-1], 4)], {}, (1,)),
        Case("Tile", [x, ints(*(int(n) for n in rng.integers(1, 4, rank)))], {}, (1,)),
        Case("Transpose", [x], {}),
        Case(
            "Trilu", [x, np.array(int(rng.integers(-3, 4)), np.int64)], {"upper": int(rng.integers(2))}, (1,)
        ),
        Case("Split", [x], {"axis": -1, "num_outputs": 1}, outputs=1),
        Case(
            "Split", [np.concatenate([x, x, x[..., :1]], -1)], {"axis": rank - 1, "num_outputs": 2}, outputs=2
        ),
    )


FAMILIES: list[Callable[[np.random.Generator], Case | None]] = [
    conv, conv1d, conv_with_computed_weights, conv_transpose, pool, global_pool, resize, slice_, pad,
    pad_beside_the_rows, concat, split, transpose, depth_to_space, space_to_depth, reduction,
    reduction_of_all_or_nothing, arg_reduction, softmax, normalization, lrn, whole_normalization, matmul,
    gemm, elementwise, unary, prelu, where, expand, tile, gather, trilu, cumulative_sum,
]  # fmt: skip
ARITHMETIC: list[Callable[[np.random.Generator], Case | None]] = [
    grouped_conv, grouped_conv_transpose, pool_of_any_rank, pool_beyond_the_map, max_pool_indices,
    general_gemm, batched_matmul, activation, activation_of_a_part_of_the_reals, half_precision, binary,
    other_elementwise, statistics, layer_normalization, along_an_axis, gathered, einsum, between_elements,
    bit_cast, resize_in_every_way, quantization, view, moved,
]  # fmt: skip


def cases(family: Callable[[np.random.Generator], Case | None], wanted: int) -> list[Case]:
    """So many cases of a family, the same in every run."""
    rng = np.random.default_rng(zlib.crc32(family.__name__.encode()))
    drawn: list[Case] = []
    for _ in range(20 * wanted):
        if len(drawn) == wanted:
            break
        case = family(rng)
        if case is not None:
            drawn.append(case)
    return drawn


def alone(case: Case) -> Graph:
    """A graph of that operator."""
    operator, results = case.operator, case.call().result_tensors
    tensors = dict(zip(operator.inputs, case.call().tensors, strict=True))
    given = {f"x{i}": value for i, value in enumerate(case.operands) if value is not None}
    read = {name: replace(tensor, name=name) for name, tensor in tensors.items() if name and tensor}
    written = dict(zip((name for name in operator.outputs if name), results, strict=True))
    constants = {name: value for name, value in given.items() if int(name[1:]) in case.constant}
    return Graph(
        "alone",
        (operator,),
        {**read, **written},
        constants,
        tuple(n for n in given if n not in constants),
        tuple(written),
        OPSET,
    )
