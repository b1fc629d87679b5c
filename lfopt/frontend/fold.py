"""Evaluate an operator whose operands are all constants, if that takes bounded time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lfopt.frontend.upgrade import newest_opset
from lfopt.ir import Operator, Tensor, UnsupportedModel, whole
from lfopt.ir.names import one_line
from lfopt.ops import Call, Family, Tiling, spec
from lfopt.ops.compute import Part, compute
from lfopt.ops.evaluate import evaluate

MAX_FOLDED_BYTES = 1 << 32  # of all evaluated constants together
MAX_WORK = 1 << 30  # elements touched or multiplied by one evaluation: a few seconds
MAX_LOOPED_WORK = 1 << 16  # the same, where the reference implementation loops in Python
# makers of constants with work linear in elements, as most operators of the table have
LINEAR = frozenset("Constant EyeLike GatherElements NonZero OneHot Range Unique".split())
# Of these ONNX's reference makes other numbers than the specification (docs/resize.md), goes over images in
# place of channels, or widens integers.
OWN = frozenset({"LRN", "ReduceSumSquare", "Resize"})


@dataclass
class Folding:
    """Evaluates constants within a budget of memory."""

    folded_bytes: int = 0

    def evaluate(
        self,
        operator: Operator,
        inputs: Sequence[np.ndarray | None],
        results: Mapping[str, Tensor],
        what: str,
    ) -> Mapping[str, np.ndarray] | str:
        """Values of the results by name, shaped as their tensors, or the reason why they stay unknown.

        Raises UnsupportedModel if they would not fit in memory.
        """
        self.folded_bytes += sum(tensor.elements * 8 for tensor in results.values())
        if self.folded_bytes > MAX_FOLDED_BYTES:
            shapes = " and ".join(str(list(tensor.shape)) for tensor in results.values())
            raise UnsupportedModel(
                f"{what}: a constant of shape {shapes}; "
                f"constants evaluated at load take at most {MAX_FOLDED_BYTES} bytes together"
            )
        if operator.kind == "ConstantOfShape":  # one number, however large the shape
            fill = np.asarray(operator.attributes.get("value", np.zeros(1, np.float32)))
            return (
                {name: np.broadcast_to(fill.reshape(()), t.shape) for name, t in results.items()}
                if fill.size == 1
                else "its value is not one element"
            )
        if (work := _work(operator.kind, inputs, results)) is None:
            return "lfopt does not evaluate this operator"
        if work > (limit := MAX_LOOPED_WORK if spec(operator.kind).looped else MAX_WORK):
            return f"it would take {work} steps; the limit is {limit}"
        try:
            values = (
                _computed(operator, inputs, results)
                if operator.kind in OWN
                else evaluate(operator, inputs, newest_opset())
            )
            return dict(zip(results, values, strict=True))
        except Exception as error:  # whatever NumPy or the reference implementation says of these operands
            return one_line(error)


def _computed(
    operator: Operator, inputs: Sequence[np.ndarray | None], results: Mapping[str, Tensor]
) -> tuple[np.ndarray, ...]:
    """Values by lfopt's own arithmetic, where those of ONNX's reference are others (docs/resize.md)."""
    outputs, given = tuple(results.values()), tuple(inputs)
    tensors = tuple(
        None if v is None else Tensor(name, v.shape, v.dtype.name)
        for name, v in zip(operator.inputs, given, strict=True)
    )
    shapes, known = tuple(None if v is None else v.shape for v in given), tuple(v is not None for v in given)
    call = Call(operator, shapes, given, known, tuple(tensor.shape for tensor in outputs), tensors, outputs)
    operands = [None if v is None else Part(v, whole(v.shape)) for v in given]
    return compute(call, operands, tuple(whole(tensor.shape) for tensor in outputs), newest_opset())


def _work(kind: str, inputs: Sequence[np.ndarray | None], results: Mapping[str, Tensor]) -> int | None:
    """Elements touched or multiplied, at most; None if that is not known."""
    if kind in ("Shape", "Size"):
        return 1
    written = sum(tensor.elements for tensor in results.values())
    read = sum(value.size for value in inputs if value is not None)
    if spec(kind).family is Family.PRODUCT:
        inner = max((n for value in inputs[:2] if value is not None for n in value.shape), default=1)
        return read + written * inner
    return read + written if kind in LINEAR or spec(kind).tiling in (Tiling.SPLIT, Tiling.FOLD) else None
