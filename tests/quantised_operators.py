"""Cases of single operators in integers, and what ONNX Runtime makes of them."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from lfopt.frontend import from_model
from lfopt.ir import whole
from lfopt.ops import Call
from lfopt.ops.compute import Part
from tests.operators import ARITHMETIC, FAMILIES, cases
from tests.qdq_models import quantised_operator, run

EVERY_FAMILY = [
    family
    for family in FAMILIES + ARITHMETIC
    if family.__name__ not in ("quantization", "half_precision", "arg_reduction")
]


@cache
def drawn(
    family,
) -> list[tuple[Call, list[Part | None], dict[str, np.ndarray], onnx.ModelProto, dict[str, np.ndarray]]]:
    """(call, operands, ONNX Runtime's plain results, model, feeds) of quantised cases of a family."""
    calls = []
    for index, case in enumerate(cases(family, 24)):
        maps = [
            v
            for i, v in enumerate(case.operands)
            if v is not None and v.dtype == np.float32 and i not in case.constant
        ]
        if not maps or case.hidden or case.reference:  # the last two: what ONNX Runtime itself gets wrong
            continue
        # sums would cancel out to noise, and the region of interest would move
        if index % 2 and case.kind not in ("ReduceSum", "Resize"):
            case.operands = [
                v
                if v is None or v.dtype != np.float32 or (i in case.constant and v.size == 1)
                else ((v - v.mean()) / 4).astype(np.float32)
                for i, v in enumerate(case.operands)
            ]
        model_and_feeds = quantised_operator(
            case, np.random.default_rng(index), "int8" if index % 4 < 2 else "uint8"
        )
        if model_and_feeds is None:
            continue
        try:
            wanted = run(*model_and_feeds)
        except Fail:  # it has no such operator
            continue
        graph = from_model(model_and_feeds[0])
        if (
            len(graph.operators) == 1
            and (call := Call.of(graph, graph.operators[0])).result_tensors[0].quantization is not None
        ):
            operands = [
                Part(graph.constants.get(t, model_and_feeds[1].get(t)), whole(graph.shape(t))) if t else None  # type: ignore[arg-type]
                for t in call.operator.inputs
            ]
            calls.append((call, operands, wanted, *model_and_feeds))
    return calls
