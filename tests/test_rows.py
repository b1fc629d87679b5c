"""Row rules against the operators themselves: perturb one input row, see which output rows change.

A rule is *right* if every output row that changes says that it reads the perturbed row, and *exact* if the lowest and the highest row that it names
really matter. Shapes come from ONNX's own inference, values from ONNX's own reference implementation; for windows, where that has errors of its own
(negative pads, auto_pad with strides beyond the kernel, dilated transposed convolutions, Resize by scales that leave a fraction), from ONNX Runtime.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime as ort
import pytest
from onnx import helper

from lfopt.ir import Operator, Tensor, row_axis, row_count
from lfopt.ops import Call, RowReads, spec
from lfopt.ops.evaluate import evaluate, to_node

OPSET = onnx.defs.onnx_opset_version()
RUNTIME_OPSET = 21  # what ONNX Runtime is sure to know
CASES = 60  # per family
WINDOWS = 400  # per family of windows
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
    session: ort.InferenceSession | None = None

    def __str__(self) -> str:
        shapes = [None if v is None else (v.tolist() if i in self.constant and v.size < 8 else v.shape) for i, v in enumerate(self.operands)]
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
                self.session = ort.InferenceSession(self.model(RUNTIME_OPSET).SerializeToString(), options, ["CPUExecutionProvider"])
            return tuple(self.session.run(None, {f"x{i}": v for i, v in enumerate(operands) if v is not None and i not in self.constant}))
        full = Operator("op", self.kind, self.operator.inputs, tuple(f"y{k}" for k in range(self.outputs)), self.attributes)  # type: ignore[arg-type]
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
                [onnx.numpy_helper.from_array(v, f"x{i}") for i, v in enumerate(self.operands) if v is not None and i in self.constant],
            ),
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=10,
        )

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the results, by ONNX's inference."""
        inferred = onnx.shape_inference.infer_shapes(self.model(OPSET), strict_mode=True, data_prop=True)
        return tuple(tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in inferred.graph.output)

    def rule(self, index: int) -> RowReads:
        """What the table says."""
        call = Call(
            self.operator,
            tuple(None if v is None else v.shape for v in self.operands),
            tuple(v if i in self.constant else None for i, v in enumerate(self.operands)),
            tuple(i in self.constant for i in range(len(self.operands))),
            self.shapes(),
            tuple(None if v is None else Tensor(str(i), v.shape, v.dtype.name) for i, v in enumerate(self.operands)),
            tuple(Tensor(f"out{k}", shape, "float32") for k, shape in enumerate(self.shapes())),
        )
        return spec(self.kind).reads(call, index)

    def depends(self, index: int) -> np.ndarray:
        """(output rows, input rows) bool: whether the output row changes with the input row."""
        source = self.operands[index]
        assert source is not None
        before = self.run(self.operands)
        assert tuple(v.shape for v in before) == self.shapes(), f"{self}: reference {[v.shape for v in before]}, inference {self.shapes()}"
        rows_out = max(row_count(v.shape) for v in before)
        found = np.zeros((rows_out, row_count(source.shape)), bool)
        noise = np.random.default_rng(7)
        for row in range(row_count(source.shape)):
            for sign in (1, -1):
                changed = source.copy()
                where = (slice(None),) * (row_axis(source.shape) or 0) + ((row,) if row_axis(source.shape) is not None else ())
                changed[where] = source[where] + sign * (50 + 50 * noise.random(source[where].shape)).astype(source.dtype)
                after = self.run([changed if i == index else v for i, v in enumerate(self.operands)])
                for old, new in zip(before, after, strict=True):
                    axis = row_axis(old.shape)
                    differs = ~np.isclose(old, new, rtol=1e-5, atol=1e-6, equal_nan=True)
                    per_row = differs.any(axis=tuple(a for a in range(old.ndim) if a != axis)) if axis is not None else np.array([differs.any()])
                    found[: len(per_row), row] |= per_row
        return found


def values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive numbers that are all different, and far from zero."""
    return (rng.permutation(int(np.prod(shape))).reshape(shape) * 0.25 + 1).astype(np.float32)


def ints(*found: int) -> np.ndarray:
    return np.array(found, np.int64)


def choose(rng: np.random.Generator, *items):
    return items[int(rng.integers(len(items)))]


# -- families: rng -> Case, or None where the draw makes no operator ------------------------------------------------------------------------


def _window_attributes(rng: np.random.Generator, size: list[int], *, dilate: bool = True, ceil_mode: bool = False) -> dict[str, object] | None:
    kernel = [int(rng.integers(1, 5)) for _ in size]
    strides = [int(rng.integers(1, 4)) for _ in size]
    dilations = [int(rng.integers(1, 4)) if dilate else 1, *(1 for _ in size[1:])]  # a window of columns never lies in padding alone
    mode = choose(rng, "NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    if mode.startswith("SAME"):
        dilations[0] = 1  # ONNX Runtime refuses these, or gives them another size than ONNX says
    pads = [int(rng.integers(0, k)) for k in kernel * 2]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padded = [s + a + b if mode == "NOTSET" else s for s, a, b in zip(size, pads[: len(size)], pads[len(size) :], strict=True)]
    if mode in ("NOTSET", "VALID") and any(r > p for r, p in zip(reach, padded, strict=True)):
        return None
    found: dict[str, object] = {"kernel_shape": tuple(kernel), "strides": tuple(strides)}
    if dilate:
        found["dilations"] = tuple(dilations)
    found |= {"pads": tuple(pads)} if mode == "NOTSET" else {"auto_pad": mode}
    if ceil_mode and mode == "NOTSET":
        found["ceil_mode"] = int(rng.integers(2))
    return found


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
        "Conv", [values(np.random.default_rng(1), 1, 2, 4, 3), values(np.random.default_rng(2), 2, 2, 3, 3)], {"pads": (1, 1, 1, 1)}, exact=False
    )


def conv_transpose(rng: np.random.Generator) -> Case | None:
    h, w = int(rng.integers(1, 6)), int(rng.integers(1, 3))
    kernel, stride, dilation = (int(rng.integers(1, 4)) for _ in range(3))
    attributes: dict[str, object] = {"kernel_shape": (kernel, 1), "strides": (stride, 1), "dilations": (dilation, 1)}
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
    return Case("ConvTranspose", [values(rng, 1, 2, h, w), values(rng, 2, 1, kernel, 1)], attributes, (1,), runtime=True)


def pool(rng: np.random.Generator) -> Case | None:
    kind = choose(rng, "MaxPool", "AveragePool", "LpPool")
    size = [int(rng.integers(1, 10)), int(rng.integers(1, 4))]
    attributes = _window_attributes(rng, size, ceil_mode=True)
    if attributes is None:
        return None
    if attributes.get("auto_pad", "")[:4] == "SAME" and any(k < s for k, s in zip(attributes["kernel_shape"], attributes["strides"], strict=True)):  # type: ignore[index, arg-type]
        return None  # ONNX Runtime pads some pools by a negative number here, and refuses others
    if kind == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    return Case(kind, [values(rng, 1, 2, *size)], attributes, runtime=True)


def global_pool(rng: np.random.Generator) -> Case | None:
    return Case(choose(rng, "GlobalAveragePool", "GlobalMaxPool"), [values(rng, 1, 2, int(rng.integers(1, 6)), 3)], {})


def resize(rng: np.random.Generator) -> Case | None:
    h, w, high = int(rng.integers(1, 8)), 2, int(rng.integers(1, 12))
    mode = choose(rng, "nearest", "linear", "cubic")
    coordinates = choose(rng, "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    attributes: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = choose(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    empty = None
    if rng.random() < 0.5:
        scales = np.array([1, 1, choose(rng, 0.375, 0.5, 0.625, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0), 1], np.float32)
        if int(h * scales[2]) in (0, h):
            return None  # ONNX Runtime copies maps that keep their size
        return Case("Resize", [values(rng, 1, 2, h, w), empty, scales], attributes, (2,), exact=mode == "nearest", runtime=True)
    if float(np.float32(high / h)) != high / h:
        return None  # ONNX Runtime computes positions in float32: ties fall to either side
    return Case("Resize", [values(rng, 1, 2, h, w), empty, empty, ints(1, 2, high, w)], attributes, (3,), exact=mode == "nearest", runtime=True)


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
        return Case("Slice", [x, ints(0, 1, start), ints(1, 3, end), ints(0, 1, 2), ints(1, 1, step)], {}, (1, 2, 3, 4))
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
    return Case("Pad", [values(rng, 1, 3, int(rng.integers(1, 6)), 3), ints(1, 1, 2, 0), None, ints(1, 3)], {"mode": mode}, (1, 3))


def concat(rng: np.random.Generator) -> Case | None:
    rank3 = rng.random() < 0.3
    axis = int(rng.integers(1, 3 if rank3 else 4))
    shape = [1, *(int(rng.integers(1, 5)) for _ in range(2 if rank3 else 3))]
    parts = [[int(rng.integers(1, 4)) if a == axis else d for a, d in enumerate(shape)] for _ in range(int(rng.integers(2, 4)))]
    return Case("Concat", [values(rng, *part) for part in parts], {"axis": choose(rng, axis, axis - len(shape))})


def split(rng: np.random.Generator) -> Case | None:
    axis = choose(rng, 1, 2, 2, -2)
    sizes = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(2, 4)))]
    shape = [1, 3, 3, 2]
    shape[axis] = sum(sizes)
    hidden = (int(rng.integers(len(sizes))),) if rng.random() < 0.25 else ()
    # The ends of a window over several results matter to the results that are tall enough to have the row.
    return Case("Split", [values(rng, *shape), ints(*sizes)], {"axis": axis}, (1,), outputs=len(sizes), hidden=hidden, exact=not hidden)


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
    return Case("SpaceToDepth", [values(rng, 1, 2, block * int(rng.integers(1, 5)), block * 2)], {"blocksize": block})


def reduction(rng: np.random.Generator) -> Case | None:
    rank = choose(rng, 3, 4, 4)
    kind = choose(rng, "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceL1")
    shape = [1, *(int(rng.integers(2, 5)) for _ in range(rank - 1))]
    axes = [int(a) for a in rng.permutation(rank)[: int(rng.integers(1, rank))]]
    if rng.random() < 0.3:
        axes = [a - rank for a in axes]
    keep = int(rng.integers(2))
    # With the reduced axes gone, the row axis of the result is another one; what is left is mixed in most shapes, not in all.
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
    return Case(choose(rng, "Softmax", "LogSoftmax"), [values(rng, *shape) / 8], {"axis": int(rng.integers(-rank + 1, rank))}, exact=False)


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
    left, right = choose(rng, (3, 2), (3, 3), (4, 2), (4, 4), (4, 3), (3, 4), (2, 3), (2, 4), (3, 1), (4, 1), (1, 3), (1, 4))
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
    return Case("Where", [rng.random((1, 1, h, 3)) < 0.5, values(rng, 1, 2, h, 3), values(rng, 1, 2, 1, 3)], {}, (0,), exact=False)


def expand(rng: np.random.Generator) -> Case | None:
    h = int(rng.integers(1, 5))
    x, target = choose(
        rng, ((1, 1, h, 1), (1, 2, h, 3)), ((1, 2, 1, 3), (1, 2, h, 3)), ((h, 3), (1, 2, h, 3)), ((1, h, 2), (2, h, 2)), ((2, 1, 1), (3, 2, h, 1))
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
    return Case("Gather", [values(rng, *shape), index], {"axis": choose(rng, axis, axis - rank)}, (1,), exact=False)


def trilu(rng: np.random.Generator) -> Case | None:
    return Case("Trilu", [values(rng, 1, 2, int(rng.integers(1, 5)), 6)], {"upper": int(rng.integers(2))}, exact=False)


def cumulative_sum(rng: np.random.Generator) -> Case | None:
    axis = int(rng.integers(1, 4))
    return Case("CumSum", [values(rng, 1, 2, 4, 3), np.array(axis, np.int64)], {"reverse": int(rng.integers(2))}, (1,), exact=False)


FAMILIES: list[Callable[[np.random.Generator], Case | None]] = [
    conv, conv1d, conv_with_computed_weights, conv_transpose, pool, global_pool, resize, slice_, pad, pad_beside_the_rows, concat, split, transpose,
    depth_to_space, space_to_depth, reduction, reduction_of_all_or_nothing, arg_reduction, softmax, normalization, lrn, whole_normalization, matmul,
    gemm, elementwise, unary, prelu, where, expand, tile, gather, trilu, cumulative_sum,
]  # fmt: skip
SLIDING = (conv, conv_transpose, pool, resize, slice_, pad, concat, split)


def cases(family: Callable[[np.random.Generator], Case | None], wanted: int = CASES) -> list[Case]:
    """So many cases of a family, the same in every run."""
    rng = np.random.default_rng(zlib.crc32(family.__name__.encode()))
    found: list[Case] = []
    for _ in range(20 * wanted):
        if len(found) == wanted:
            break
        case = family(rng)
        if case is not None:
            found.append(case)
    return found


def disagreements(case: Case) -> list[str]:
    """What the rule of any operand says that the operator does not do."""
    found: list[str] = []
    for index, operand in enumerate(case.operands):
        if operand is None or index in case.constant or operand.dtype != np.float32:
            continue
        rule, real = case.rule(index), case.depends(index)
        if real.shape != (rule.rows_out, rule.rows_in):
            found.append(f"{case}, input {index}: the rule is for {rule.rows_out, rule.rows_in} rows, the operator has {real.shape}")
            continue
        for row, changed in enumerate(real):
            rows = [int(j) for j in np.flatnonzero(changed)]
            says = rule.first[row], rule.last[row]
            if rows and not (says[0] <= rows[0] and rows[-1] <= says[1]):
                found.append(f"{case}, input {index}, output row {row}: rows {rows[0]} to {rows[-1]} matter, the rule says {says}")
            elif case.exact and says != ((rows[0], rows[-1]) if rows else (rule.rows_in, -1)):
                found.append(f"{case}, input {index}, output row {row}: only rows {rows} matter, the rule says {says}")
    return found


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_rows_outside_the_window_never_matter_and_its_ends_do(family: Callable[[np.random.Generator], Case | None]) -> None:
    found = cases(family, WINDOWS if family in SLIDING else CASES)
    assert len(found) > 10
    wrong = [line for case in found for line in disagreements(case)]
    assert not wrong, "\n".join(wrong[:5])
