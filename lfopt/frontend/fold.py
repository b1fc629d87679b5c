"""Evaluate operators whose operands are all constants, within one limit of memory and one of time.

Values are those of lfopt's own arithmetic, which follows ONNX Runtime where ONNX leaves something open; of
operators and element types that it does not have, those of ONNX's reference implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from lfopt.frontend.effort import bytes_of, effort
from lfopt.frontend.upgrade import newest_opset
from lfopt.ir import InvalidModel, LfoptError, Operator, Tensor, UnsupportedModel, whole
from lfopt.ir.names import one_line
from lfopt.ops import Call, spec
from lfopt.ops.compute import Part, compute
from lfopt.ops.evaluate import evaluate
from lfopt.ops.table import OPAQUE
from lfopt.ops.traits import Family

MAX_BYTES = 1 << 31  # of all constants that are made at load, and of what making one of them takes
MAX_STEPS = 1 << 32  # operations on one element, of all evaluations at load together: some seconds
# that lfopt computes with; others (8-bit floats, 4-bit integers) are evaluated by ONNX's reference
OWN_TYPES = frozenset(
    "bool float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)
MOVES_TEXT = frozenset("Concat Expand Gather Identity Reshape Slice Squeeze Tile Transpose Unsqueeze".split())


@dataclass
class Folding:
    """Evaluates constants of one model, and counts what that takes."""

    made_bytes: int = 0
    steps: int = 0

    def reserve(self, *tensors: Tensor) -> None:
        """Count constants that are about to be made.

        Raises UnsupportedModel for more than `MAX_BYTES`: before anything is allocated.
        """
        self._count(tensors, sum(map(bytes_of, tensors)), 0)

    def _count(self, tensors: Sequence[Tensor], made_bytes: int, working_bytes: int) -> None:
        if self.made_bytes + made_bytes + working_bytes > MAX_BYTES:
            shapes = " and ".join(str([*tensor.shape]) for tensor in tensors)
            beside = f", and {working_bytes:,} B while it is computed" if working_bytes else ""
            before = f", beside {self.made_bytes:,} B of others" if self.made_bytes else ""
            raise UnsupportedModel(
                f"a constant of shape {shapes} takes {made_bytes:,} B{beside}{before}; "
                f"accepted: constants made at load that take up to {MAX_BYTES:,} B together"
            )
        self.made_bytes += made_bytes

    def evaluate(
        self,
        operator: Operator,
        inputs: Sequence[np.ndarray | None],
        results: Mapping[str, Tensor],
        what: str,
    ) -> dict[str, np.ndarray]:
        """Values of the results by name, shaped as their tensors.

        Raises UnsupportedModel, naming the node, where they would take more than the limits or nothing
        evaluates the operator, and InvalidModel where the operands are not legal.
        """
        try:
            if operator.kind == "ConstantOfShape":
                return self._filled(operator, results)
            call = _call(operator, inputs, results)
            own = _is_own(call)
            self._spend(call, own=own)
            values = _computed(call) if own else evaluate(operator, inputs, newest_opset())
        except LfoptError as error:
            raise type(error)(_at(what, str(error))) from None
        except MemoryError:
            raise UnsupportedModel(f"{what}: a constant that does not fit in memory") from None
        except NotImplementedError as error:
            raise UnsupportedModel(f"{what}: ONNX's reference cannot compute it: {one_line(error)}") from None
        except Exception as error:  # whatever NumPy or the reference implementation says of these operands
            raise InvalidModel(f"{what}: a constant that cannot be computed: {one_line(error)}") from None
        return dict(zip(results, map(np.asarray, values), strict=True))

    def _filled(self, operator: Operator, results: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """One number, however large the shape."""
        self.reserve(*results.values())
        fill = np.asarray(operator.attributes.get("value", np.zeros(1, np.float32)))
        if fill.size != 1:
            raise InvalidModel(f"its value has {fill.size} elements; accepted: one")
        return {name: np.broadcast_to(fill.reshape(()), tensor.shape) for name, tensor in results.items()}

    def _spend(self, call: Call, *, own: bool) -> None:
        """Count an evaluation. Raises UnsupportedModel for one that goes beyond a limit."""
        takes = effort(call, own=own)
        self._count(call.result_tensors, takes.result_bytes, takes.working_bytes)
        self.steps += takes.steps
        if self.steps > MAX_STEPS:
            raise UnsupportedModel(
                f"a constant that takes {takes.steps:,} steps; "
                f"accepted: constants made at load that take up to {MAX_STEPS:,} together"
            )


def _call(operator: Operator, inputs: Sequence[np.ndarray | None], results: Mapping[str, Tensor]) -> Call:
    tensors = tuple(
        None if value is None else Tensor(name, value.shape, _dtype(value))
        for name, value in zip(operator.inputs, inputs, strict=True)
    )
    shapes = tuple(None if value is None else value.shape for value in inputs)
    known = tuple(value is not None for value in inputs)
    outputs = tuple(results.values())
    return Call(operator, shapes, tuple(inputs), known, tuple(t.shape for t in outputs), tensors, outputs)


def _is_own(call: Call) -> bool:
    """Whether lfopt has arithmetic of its own for the operator on these operands, which have elements."""
    operator = call.operator
    row = spec(operator.kind, operator.domain)
    if row is OPAQUE:
        return False
    if row.family is Family.INDEX:
        return True  # whatever the elements are
    if any(shape is not None and not prod(shape) for shape in call.shapes):
        return False  # nothing to take the largest of, for one
    types = {tensor.dtype for tensor in (*call.tensors, *call.result_tensors) if tensor is not None}
    return types <= (OWN_TYPES | {"string"} if operator.kind in MOVES_TEXT else OWN_TYPES)


def _computed(call: Call) -> tuple[np.ndarray, ...]:
    """Values of all results by lfopt's own arithmetic."""
    operands = [None if value is None else Part(value, whole(value.shape)) for value in call.values]
    return compute(call, operands, tuple(map(whole, call.results)), newest_opset())


def _at(what: str, text: str) -> str:
    """A message of the arithmetic, which may name the node itself, as a message of the file."""
    behind = what.find("node ")
    named = what[behind:] if behind >= 0 else what
    return f"{what}: {text.removeprefix(named).removeprefix(': ')}"


def _dtype(value: np.ndarray) -> str:
    if value.dtype.kind in "OSU":
        return "string"
    return value.dtype.name
