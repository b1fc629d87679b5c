"""A draft of a replacement: shapes, constants and cost of its operators, with the graph left as it is."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
import onnx
import onnx.shape_inference

from lfopt.ir import Attribute, Operator, Tensor, whole
from lfopt.ops import Call, spec
from lfopt.ops.compute import compute
from lfopt.ops.part import Part
from lfopt.rewrite.match import ASSOCIATIVE, flattened
from lfopt.rewrite.mutable_graph import MutableGraph, Signature, signature
from lfopt.rewrite.rule import Match
from lfopt.rewrite.terms import Derived, Number, Term, Variable

BOOLEAN = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf".split())
MAX_FOLDED = 1 << 26  # elements of a constant that is worked out


class ReplacementError(ValueError):
    """Why a replacement does not fit in the pattern's place."""


class Draft:
    """New operators that together make one tensor.

    An operator whose operands are all constants becomes a constant; one that the graph has already is read,
    not repeated.
    """

    def __init__(self, mutable: MutableGraph, root: Operator, match: Match) -> None:
        self.mutable = mutable
        self.root = root
        self.match = match
        self.operators: list[Operator] = []
        self.tensors: dict[str, Tensor] = {}
        # constants that are worked out once the replacement is taken, by name, in order
        self.folds: dict[str, Operator] = {}
        self._by_signature: dict[Signature, str] = {}
        self._dtype = self._type_of_numbers()

    def build(self, term: Term) -> str:
        """Name of the tensor that holds the value of a term. Raises ReplacementError."""
        if isinstance(term, Variable):
            return self.match.tensors[term.name]
        if isinstance(term, Number):
            return self.mutable.add_scalar(term.value, self._dtype)
        if term.kind in ASSOCIATIVE:
            return self.combine(term.kind, [self.build(leaf) for leaf in flattened(term)])
        operands = [self.build(operand) for operand in term.operands]
        attributes = {name: self._attribute(value) for name, value in term.attributes}
        if term.label is None:
            return self.operator(term.kind, operands, attributes)
        settings = self.match.settings[term.label]
        if settings.rank not in (None, len(self.tensor(operands[0]).shape)):
            raise ReplacementError(
                f"{term.kind} counts axes of rank {settings.rank}, "
                f"and its operand has rank {len(self.tensor(operands[0]).shape)}"
            )
        return self.operator(term.kind, [*operands, *settings.inputs], dict(settings.attributes))

    def combine(self, kind: str, leaves: Sequence[str]) -> str:
        """Leaves of an associative operator combined, as the name of the result.

        Constants come first, so that they meet at once, then small shapes before large ones.
        """
        order = sorted(leaves, key=lambda name: (not self.is_constant(name), self.tensor(name).elements))
        result = order[0]
        for leaf in order[1:]:
            result = self.operator(kind, [result, leaf], {})
        return result

    def operator(self, kind: str, inputs: Sequence[str], attributes: Mapping[str, Attribute]) -> str:
        """Name of the tensor that an operator makes of these inputs."""
        key = signature(kind, inputs, attributes)
        known = self._by_signature.get(key) or self.mutable.same(kind, tuple(inputs), attributes)
        if known is not None and known != self.root.outputs[0]:
            return known
        operator = Operator(
            self._name(kind),
            kind,
            tuple(inputs),
            (self._tensor_name(kind),),
            attributes,
            origin=self.root.origin,
        )
        shape, dtype = infer(
            operator, [self.tensor(name) if name else None for name in inputs], self.mutable.constants.get
        )
        result = Tensor(operator.outputs[0], shape, dtype)
        self.tensors[result.name] = result
        if all(self.is_constant(name) for name in inputs if name) and result.elements <= MAX_FOLDED:
            self.folds[result.name] = operator
        else:
            self.operators.append(operator)
        self._by_signature[key] = result.name
        return result.name

    def tensor(self, name: str) -> Tensor:
        """A tensor of the graph or of the draft."""
        drafted = self.tensors.get(name)
        if drafted is not None:
            return drafted
        return self.mutable.tensors[name]

    def is_constant(self, name: str) -> bool:
        """Whether it is a constant of the graph or of the draft."""
        return name in self.folds or name in self.mutable.constants

    def call(self, operator: Operator) -> Call:
        """One of the new operators as the operator table sees it."""
        return Call.over(operator, self.tensor, ChainMap(self.mutable.constants, dict.fromkeys(self.folds)))

    def _name(self, kind: str) -> str:
        """After the operator that it replaces; one of the same kind has its name."""
        taken = {operator.name for operator in self.operators}
        if kind == self.root.kind and self.root.name not in taken:
            return self.root.name
        return self.mutable.fresh(f"{self.root.name}.{kind}", taken)

    def _tensor_name(self, kind: str) -> str:
        return self.mutable.fresh(f"{self.root.outputs[0]}.{kind}", self.tensors)

    def _type_of_numbers(self) -> str:
        real = [
            self.mutable.tensors[name].dtype
            for name in (self.root.outputs[0], *self.match.tensors.values(), *self.match.rest)
        ]
        return next((dtype for dtype in real if dtype != "bool"), "bool")

    def _attribute(self, value: float | str | Derived) -> Attribute:
        if isinstance(value, Derived):
            return DERIVED[value.function](self, value.variable)
        return value


def folded(mutable: MutableGraph, operator: Operator, result: Tensor) -> np.ndarray | None:
    """Values of a constant made from others, shaped as `result`, in float64; None if those are absent."""
    values = [mutable.constants[name] if name else None for name in operator.inputs]
    if any(name and value is None for name, value in zip(operator.inputs, values, strict=True)):
        return None
    wide = [
        value.astype(np.float64) if value is not None and value.dtype.kind == "f" else value
        for value in values
    ]
    parts = [None if value is None else Part(value, whole(value.shape)) for value in wide]
    mutable.tensors[result.name] = result
    return compute(mutable.call(operator), parts, (whole(result.shape),), mutable.graph.opset)[0]


def infer(
    operator: Operator, inputs: Sequence[Tensor | None], value: Callable[[str], np.ndarray | None]
) -> tuple[tuple[int, ...], str]:
    """Shape and type of an operator's result; `value`: of a constant, shaped as its tensor, by name.

    Raises ReplacementError where there is no such result.
    """
    given = [tensor for tensor in inputs if tensor is not None]
    if spec(operator.kind).elementwise:
        dtype = "bool" if operator.kind in BOOLEAN else given[1 if operator.kind == "Where" else 0].dtype
        parameters = spec(operator.kind).parameters
        try:
            return np.broadcast_shapes(
                *(t.shape for i, t in enumerate(inputs) if t is not None and i not in parameters)
            ), dtype
        except ValueError as error:
            raise ReplacementError(f"{operator.kind}: {error}") from None
    return _inferred_by_onnx(operator, given, value)


def _inferred_by_onnx(
    operator: Operator, given: Sequence[Tensor], value: Callable[[str], np.ndarray | None]
) -> tuple[tuple[int, ...], str]:
    types = {
        t.name: onnx.helper.make_tensor_type_proto(
            onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)), t.shape
        )
        for t in given
    }
    small = {t.name: v for t in given if (v := value(t.name)) is not None and prod(t.shape) <= 64}
    data = {
        name: onnx.numpy_helper.from_array(np.ascontiguousarray(v).reshape(v.shape), name)
        for name, v in small.items()
    }
    node = onnx.helper.make_node(
        operator.kind,
        list(operator.inputs),
        list(operator.outputs),
        **operator.attributes,  # type: ignore[arg-type]
    )
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(operator.kind), node, types, data
        )
        result = inferred[operator.outputs[0]].tensor_type
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, KeyError) as error:
        raise ReplacementError(f"{operator.kind}: {str(error).splitlines()[0]}") from None
    if not result.HasField("shape") or not all(dim.HasField("dim_value") for dim in result.shape.dim):
        raise ReplacementError(f"{operator.kind}: its shape is not known")
    return tuple(dim.dim_value for dim in result.shape.dim), onnx.helper.tensor_dtype_to_np_dtype(
        result.elem_type
    ).name


def _only_axis(draft: Draft, label: str) -> Attribute:
    """The axis that is folded, which is guarded to be one."""
    return min(draft.match.settings[label].axes or {-1})


def _first_axis(draft: Draft, label: str) -> Attribute:
    """The first of the axes that are folded, which are guarded to be the last ones; counted from the end."""
    return -len(draft.match.settings[label].axes or ())


def _value_of(draft: Draft, variable: str) -> Attribute:
    """Value of a constant of one element."""
    value = draft.mutable.scalar(draft.match.tensors[variable])
    assert value is not None, f"{variable} is guarded to be a constant of one element"
    return value


DERIVED: dict[str, Callable[[Draft, str], Attribute]] = {
    "only_axis": _only_axis,
    "first_axis": _first_axis,
    "value": _value_of,
}
