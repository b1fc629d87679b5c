"""What a one-operator model is to give, by implementations that share nothing with lfopt.

ONNX Runtime where it has the operator, for these types or wider ones; else ONNX's own reference. What both
read as a later opset has it is brought to that by rules of its own, in NumPy.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.frontend.schema_cases import BROADCASTING, Case, form, ints, versions

ort.set_default_logger_severity(4)
Outputs = list[Any]
FIRST_OF_ONNXRUNTIME = 7
WIDE = "ONNX Runtime in float32"
# element types that ONNX Runtime may lack a kernel for, where it has one for float32
NARROW = frozenset("bfloat16 float16 float64 int16 uint16 uint32 uint64 int8 uint8 int32 bool".split())
RANDOM = frozenset(
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
# largest error, of the largest element
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-9}
IN_FLOAT32 = ("GroupNormalization", "LayerNormalization")  # which ONNX Runtime computes so, whatever the type


def judged(case: Case, model: ModelProto) -> tuple[str, Outputs]:
    """(judge, outputs). Raises where none has an answer."""
    if case.opset < FIRST_OF_ONNXRUNTIME:
        case = since_7(case)
        model = case.model()
    if case.kind == "LRN":
        return "formula", [local_response(case)]
    for opset in dict.fromkeys((case.opset, *older(case))):
        try:
            alike = replace(case, opset=opset)
            return "ONNX Runtime", by_onnxruntime(alike, alike.model())
        except Exception:
            continue
    wide = replace(case, operands=tuple(map(_widened, case.operands)))
    if case.kind in ("Resize", "Upsample") and case.operands[0] is not None:
        wide = replace(wide, operands=(case.operands[0].astype(np.float32), *case.operands[1:]))
    for opset in dict.fromkeys((case.opset, *older(case))):
        try:
            alike = replace(wide, opset=opset)
            outputs = by_onnxruntime(alike, alike.model())
            break
        except Exception:
            continue
    else:
        with np.errstate(all="ignore"):
            return "reference", [np.asarray(y) for y in ReferenceEvaluator(model).run(None, case.feeds)]
    types = (helper.tensor_dtype_to_np_dtype(y.type.tensor_type.elem_type) for y in model.graph.output)
    return WIDE, [np.asarray(y).astype(dtype) for y, dtype in zip(outputs, types, strict=True)]


def _widened(value: np.ndarray | None) -> np.ndarray | None:
    if value is None:
        return None
    return value.astype(np.float32) if value.dtype.name in NARROW else value


def by_onnxruntime(case: Case, model: ModelProto) -> Outputs:
    """Outputs of ONNX Runtime without its optimizer."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, case.feeds))


def older(case: Case) -> list[int]:
    """Older opsets from 7 on in which an operator has the same form, newest first: it has new types alone."""
    own = form(case.kind, case.opset)
    starts = versions()[case.kind]
    opsets = [
        max(start, FIRST_OF_ONNXRUNTIME)
        for start, after in itertools.pairwise(starts)
        if after > FIRST_OF_ONNXRUNTIME and start < case.opset
    ]
    return [v for v in reversed(opsets) if form(case.kind, v) == own] if case.kind not in CHANGED else []


CHANGED = frozenset(
    {"Attention", "BatchNormalization", "ConvTranspose", "OneHot", "Softmax", "LogSoftmax", "Hardmax"}
)


def local_response(case: Case) -> np.ndarray:
    """LRN by its formula: ONNX's reference goes over images in place of channels."""
    x = case.operands[0]
    assert x is not None
    told = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, **case.attributes}
    below, wide = (told["size"] - 1) // 2, x.astype(np.float64)
    above = told["size"] - 1 - below
    sums = np.stack([(wide[:, max(0, c - below) : c + above + 1] ** 2).sum(1) for c in range(x.shape[1])], 1)
    return (wide / (told["bias"] + told["alpha"] / told["size"] * sums) ** told["beta"]).astype(x.dtype)


def difference(case: Case, judge: str, given: np.ndarray, wanted: np.ndarray) -> str:
    """How an output differs from the judge's; "" if it does not."""
    if (given.dtype, given.shape) != (wanted.dtype, wanted.shape):
        return f"{given.dtype} {[*given.shape]} for {wanted.dtype} {[*wanted.shape]}"
    if case.kind in RANDOM:
        return ""
    if (tolerance := TOLERANCES.get(given.dtype.name)) is None:
        off = given != wanted
        first = case.operands[0] if case.operands else None
        if (
            case.kind == "QuantizeLinear"
            and first is not None
            and first.dtype.name in ("float16", "bfloat16")
        ):
            # the quotient of two numbers of few bits falls between two integers more often
            off = np.abs(given.astype(np.int64) - wanted.astype(np.int64)) > 1
        return f"{int(off.sum())} of {off.size} elements" if off.any() else ""
    if judge == WIDE or case.kind in IN_FLOAT32:
        tolerance = max(tolerance, TOLERANCES["float32"])
    one, other = given.astype(np.float64), wanted.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    scale = np.abs(other[np.isfinite(other)]).max(initial=1e-6)
    with np.errstate(all="ignore"):
        off = ~same & ~(np.abs(one - other) <= tolerance * scale)
        furthest = float(np.abs(one - other)[off].max(initial=0.0))
    return (
        f"{int(off.sum())} of {off.size} elements by up to {furthest:.3g} of {scale:.3g}" if off.any() else ""
    )


# -- opsets that ONNX Runtime does not have ------------------------------------------------------------------


def since_7(case: Case) -> Case:
    """The same in opset 7: as the operator's documentation of opsets 1 to 6 says."""
    told, operands, kind = dict(case.attributes), list(case.operands), case.kind
    told.pop("consumed_inputs", None)
    told.pop("output_sequence", None)
    told.pop("is_test", None)
    outputs = case.outputs
    if kind in BROADCASTING:
        axis, left, right = told.pop("axis", None), operands[0], operands[1]
        told.pop("broadcast", None)
        assert left is not None and right is not None
        first = left.ndim - right.ndim if axis is None else axis
        behind = left.ndim - first - right.ndim
        operands[1] = np.ascontiguousarray(
            np.broadcast_to(right.reshape(right.shape + (1,) * behind), left.shape)
        )
    elif kind == "Gemm":
        told.pop("broadcast", None)
    elif kind == "PRelu":
        slope, x = operands[1], operands[0]
        assert slope is not None and x is not None
        operands[1] = slope.reshape(-1, *(1,) * (x.ndim - 2)) if slope.size > 1 else slope
    elif kind == "Cast":
        told["to"] = TensorProto.DataType.Value(told["to"]) if isinstance(told["to"], str) else told["to"]
    elif kind == "Concat":
        told.setdefault("axis", 1)
    elif kind == "Reshape" and "shape" in told:
        operands.append(ints(*told.pop("shape")))
    elif kind == "Pad" and "paddings" in told:
        told["pads"] = told.pop("paddings")
    elif kind == "Split":
        told.setdefault("axis", 0)
        if len(operands) > 1:
            sizes = operands.pop()
            told["split"] = [int(size) for size in sizes]  # type: ignore[union-attr]
    elif kind == "Tile" and len(operands) == 3:
        x, tiles, axis = operands
        assert x is not None and tiles is not None and axis is not None
        operands = [x, ints(*(int(tiles) if k == int(axis) else 1 for k in range(x.ndim)))]
    elif kind == "Upsample":
        told["scales"] = [1.0, 1.0, told.pop("height_scale"), told.pop("width_scale")]
        told["mode"] = {"bilinear": "linear"}.get(told.get("mode", ""), "nearest")
    elif kind == "Selu" and case.opset < 6:
        told = {"alpha": 1.6732, "gamma": 1.0507, **told}
    elif kind in ("LpPool", "GlobalLpPool") and "p" in told:
        told["p"] = int(told["p"])
    return replace(case, opset=7, operands=tuple(operands), attributes=told, outputs=outputs)
