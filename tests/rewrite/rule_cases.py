"""Rules as models: a pattern or replacement with random shapes, on operands that meet its guard or not.

Nothing here is shared with how `lfopt.rewrite` builds a replacement: terms become ONNX nodes, shapes are
ONNX's inference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, numpy_helper
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
)

from lfopt.frontend import from_model
from lfopt.ir import Graph, InvalidModel
from lfopt.rewrite import Rule
from lfopt.rewrite.match import ASSOCIATIVE
from lfopt.rewrite.terms import Apply, Derived, Number, Term, Variable, labels, subterms, variables
from tests.frontend.small_models import NEWEST

LOGICAL = frozenset("And Or Xor Not".split())
BITWISE = frozenset("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift".split())
CONTRACTIONS = frozenset("MatMul Conv ConvTranspose".split())
SPATIAL = frozenset("AveragePool Conv ConvTranspose GlobalAveragePool GlobalMaxPool MaxPool".split())
ONLY_FLOAT32 = frozenset({"Celu"})  # as ONNX declares it


@dataclass(frozen=True)
class Told:
    """Settings of a label: attributes, and inputs after the operands."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[np.ndarray | None] = ()
    axes: tuple[int, ...] = ()


@dataclass
class Case:
    """One rule with everything that is left open filled in."""

    rule: Rule
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
    values: dict[str, np.ndarray]
    constants: frozenset[str]
    told: dict[str, Told]
    number_type: np.dtype

    def graph(self, term: Term, wrappers: Mapping[str, str] | None = None) -> Graph:
        """A term as a graph whose output is y. Raises InvalidModel if the shapes do not fit."""
        build = _Nodes(self, wrappers or {})
        result = build.node(term)
        build.nodes.append(make_node("Identity", [result], ["y"], name="last"))
        read = {name for node in build.nodes for name in node.input}
        inputs = [v for v in self.shapes if v not in self.constants and v in read]
        constants = {**build.constants, **{v: self.values[v] for v in self.constants if v in read}}
        graph = make_graph(
            build.nodes,
            "law",
            [
                make_tensor_value_info(v, np_dtype_to_tensor_dtype(self.dtypes[v]), self.shapes[v])
                for v in inputs
            ],
            [make_tensor_value_info("y", np_dtype_to_tensor_dtype(_result_type(term, self)), None)],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        return from_model(make_model(graph, opset_imports=[make_opsetid("", NEWEST)], ir_version=11))

    def feeds(self, graph: Graph) -> dict[str, np.ndarray]:
        """Values of the graph's inputs."""
        return {name: self.values[name] for name in graph.inputs}


@dataclass
class _Nodes:
    case: Case
    wrappers: Mapping[str, str]  # operators between an input and the variable
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    printed: dict[Term, str] = field(default_factory=dict)

    def node(self, term: Term) -> str:
        if term not in self.printed:
            self.printed[term] = self._node(term)
        return self.printed[term]

    def _node(self, term: Term) -> str:
        if isinstance(term, Variable):
            name = term.name
            for kind in self.wrappers.get(name, "").split():
                name = self._add(kind, [name], {})
            return name
        if isinstance(term, Number):
            return self._constant(np.asarray(term.value, self.case.number_type))
        operands = [self.node(operand) for operand in term.operands]
        if term.label is not None:
            told = self.case.told[term.label]
            operands += ["" if value is None else self._constant(value) for value in told.inputs]
            return self._add(term.kind, operands, told.attributes)
        return self._add(
            term.kind, operands, {name: self._attribute(value) for name, value in term.attributes}
        )

    def _attribute(self, value: float | str | Derived) -> object:
        if not isinstance(value, Derived):
            return value
        if value.function == "value":
            return float(self.case.values[value.variable])
        axes = self.case.told[value.variable].axes
        return axes[0] if value.function == "only_axis" else -len(axes)

    def _constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _add(self, kind: str, operands: Sequence[str], attributes: Mapping[str, Any]) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(
            make_node(kind, list(operands), [name], name=f"{kind}_{len(self.nodes)}", **attributes)
        )
        return name


def _result_type(term: Term, case: Case) -> np.dtype:
    boolean = isinstance(term, Apply) and (
        term.kind in LOGICAL or term.kind in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    )
    if boolean:
        return np.dtype(bool)
    if isinstance(term, Variable):
        return case.dtypes[term.name]
    if isinstance(term, Number):
        return case.number_type
    return _result_type(term.operands[1 if term.kind == "Where" else 0], case)


def draw(rule: Rule, rng: np.random.Generator, *, valid: bool = True) -> Case:
    """A case; with `valid` its operands satisfy the guard, else at least one bound is broken."""
    names = variables(rule.pattern)
    dtypes = {name: _type_of(name, rule) for name in names}
    kinds = {t.kind for t in subterms(rule.pattern) if isinstance(t, Apply)}
    given = {c.subject: c.variables for c in rule.guard}
    scalars = {v for c in rule.guard if c.subject in ("scalar", "without_axes") for v in c.variables}
    constants = frozenset(scalars | {v for c in rule.guard if c.subject == "constant" for v in c.variables})
    told = _settings(rule, rng, kinds)
    shapes = _shapes(rule, rng, names, kinds, scalars, told)
    values = {name: _values(name, rule, shapes[name], dtypes[name], rng, valid=valid) for name in names}
    if "ordered" in given:
        low, high = given["ordered"]
        values[low], values[high] = (
            np.minimum(values[low], values[high]),
            np.maximum(values[low], values[high]),
        )
    number_type = next((t for t in dtypes.values() if t.kind != "b"), np.dtype(bool))
    return Case(rule, shapes, dtypes, values, constants, told, number_type)


def _type_of(name: str, rule: Rule) -> np.dtype:
    """By the operators that read it."""
    dtype = np.dtype(np.float64)
    for term in subterms(rule.pattern):
        if not isinstance(term, Apply):
            continue
        if term.kind in ONLY_FLOAT32:
            dtype = np.dtype(np.float32)
        operands = (
            term.operands[:1] if term.kind == "Where" else term.operands if term.kind in LOGICAL else ()
        )
        if Variable(name) in operands:
            return np.dtype(bool)
        if term.kind in BITWISE and any(Variable(name) in (t, *subterms(t)) for t in term.operands):
            return np.dtype(np.uint8)
    if any(isinstance(t, Apply) and t.kind == "BitwiseNot" for t in subterms(rule.pattern)) and _reads(
        rule, name, "Where", 1
    ):
        return np.dtype(np.uint8)
    whole = {v for c in rule.guard if c.subject == "integer" for v in c.variables}
    return np.dtype(np.int64) if name in whole else dtype


def _reads(rule: Rule, name: str, kind: str, start: int) -> bool:
    return any(
        isinstance(t, Apply) and t.kind == kind and Variable(name) in t.operands[start:]
        for t in subterms(rule.pattern)
    )


def _settings(rule: Rule, rng: np.random.Generator, kinds: set[str]) -> dict[str, Told]:
    settings: dict[str, Told] = {}
    guarded = {c.subject: c.variables for c in rule.guard}
    for label, kind in labels(rule.pattern).items():
        if kind.startswith("Reduce"):
            axes: tuple[int, ...] = ((0,), (1,), (0, 1))[rng.integers(3)]
            if label in guarded.get("trailing", ()):
                axes = ((1,), (0, 1))[rng.integers(2)]
            single = label in (*guarded.get("single_axis", ()), *guarded.get("along", ()))
            axes = (1,) if single else axes
            keeps = 1 if single or "trailing" in guarded or "uniform" in guarded else int(rng.integers(2))
            settings[label] = Told({"keepdims": keeps}, [np.array(axes, np.int64)], axes)
        elif kind in ("Softmax", "LogSoftmax", "LayerNormalization"):
            settings[label] = Told({"axis": 1}, (), (1,))
        elif kind == "Clip":
            low, high = (
                (np.float64(-0.5), np.float64(0.75))
                if "within" not in guarded
                else (np.float64(0), np.float64(6))
            )
            settings[label] = Told({}, [np.asarray(low), np.asarray(high)])
        else:
            settings[label] = SETTINGS.get(kind, Told())
    return settings


SETTINGS: dict[str, Told] = {
    "AveragePool": Told({"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "MaxPool": Told({"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "BitShift": Told({"direction": "LEFT"}),
    "Celu": Told({"alpha": 0.5}),
    "Conv": Told({"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "ConvTranspose": Told({"kernel_shape": [3, 3], "strides": [2, 2]}),
    "CumSum": Told({}, [np.array(1, np.int64)]),
    "Elu": Told({"alpha": 0.5}),
    "Gelu": Told({"approximate": "tanh"}),
    "GlobalAveragePool": Told(axes=(2, 3)),
    "HardSigmoid": Told({"alpha": 0.3}),
    "LeakyRelu": Told({"alpha": 0.2}),
    "Reshape": Told({}, [np.array([0, 2, -1], np.int64)]),
    "Shrink": Told({"bias": 0.5, "lambd": 0.5}),
    "Swish": Told({"alpha": 1.5}),
    "ThresholdedRelu": Told({"alpha": 0.5}),
}
ROWS, SHORT = (3, 4), ((3, 4), (4,), (1, 4), (3, 1), (1, 1))


def _shapes(
    rule: Rule,
    rng: np.random.Generator,
    names: Sequence[str],
    kinds: set[str],
    scalars: set[str],
    told: Mapping[str, Told],
) -> dict[str, tuple[int, ...]]:
    guarded = {c.subject: c.variables for c in rule.guard}
    first = "a" if "a" in names else names[0]
    signed = {v for c in rule.guard if c.subject in BREAKING for v in c.variables} & set(
        guarded.get("constant", ())
    )
    shapes: dict[str, tuple[int, ...]] = {}
    for name in names:
        if name in scalars or (name in signed and rng.integers(2)):
            shapes[name] = ()
        elif name in guarded.get("row", ()):
            shapes[name] = ((), (4,), (2,), (1,), (6,))[rng.integers(5)]
        elif kinds & {"Conv", "ConvTranspose"}:
            weight = _reads_at(rule, name, {"Conv", "ConvTranspose"}, 1)
            shapes[name] = (2, 2, 3, 3) if weight else (1, 2, 5, 5)
        elif "MatMul" in kinds:
            shapes[name] = tuple(int(n) for n in rng.choice([2, 4, 6], 2))
        elif kinds & SPATIAL:
            shapes[name] = (1, 2, 5, 6)
        elif rng.integers(2) or name == first:
            shapes[name] = ROWS
        else:
            shapes[name] = SHORT[rng.integers(len(SHORT))]
    if "same" in guarded:
        one, other = guarded["same"]
        shapes[other] = shapes[one]
    if "uniform" in guarded:
        k, x = guarded["uniform"]
        rank = len(shapes[first])
        shapes[k] = (
            tuple(1 if axis in told[x].axes else shapes[first][axis] for axis in range(rank)),
            (1,) * rank,
            (),
        )[rng.integers(3)]
    if "normalized" in guarded:
        scale, normal, x = guarded["normalized"]
        shapes[normal] = ROWS
        shapes[scale] = tuple(ROWS[axis] for axis in told[x].axes)
    if kinds & {"LayerNormalization"}:
        shapes = {name: (ROWS if name == "a" else ROWS[1:]) for name in names}
    return shapes


def _reads_at(rule: Rule, name: str, kinds: set[str], place: int) -> bool:
    return any(
        isinstance(t, Apply) and t.kind in kinds and t.operands[place] == Variable(name)
        for t in subterms(rule.pattern)
    )


DOMAINS = {
    "Acos": (-1, 1),
    "Acosh": (1, 3),
    "Asin": (-1, 1),
    "Atanh": (-0.9, 0.9),
    "Log": (0.2, 3),
    "ReduceLogSum": (0.2, 3),
    "Sqrt": (0.2, 3),
}


def domain(rule: Rule, name: str) -> tuple[float, float]:
    """Values for which the pattern is a number."""
    inside = [
        t.kind
        for t in subterms(rule.pattern)
        if isinstance(t, Apply) and t.kind in DOMAINS and Variable(name) in subterms(t)
    ]
    return DOMAINS[inside[-1]] if inside else (-2.0, 2.0)


def bounds(rule: Rule, name: str) -> tuple[float, float, bool]:
    """Lowest and highest value that the guard lets a variable have, and whether 0 is left out."""
    (low, high), nonzero = domain(rule, name), False
    for c in rule.guard:
        if c.variables == (name,) and c.subject in (">", ">="):
            low, nonzero = c.bound, nonzero or (c.subject == ">" and c.bound == 0)
            high = max(high, low + 2)
        elif c.variables == (name,) and c.subject in ("<", "<="):
            high, nonzero = (
                min(c.bound, 2.0) if c.bound <= 2 else c.bound,
                nonzero or (c.subject == "<" and c.bound == 0),
            )
        elif c.variables == (name,) and c.subject == "!=":
            nonzero = True
    if any(c.subject == "within" and c.variables[0] == name for c in rule.guard):
        low, high = 0.0, 1.0
    return low, high, nonzero


def _values(
    name: str, rule: Rule, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator, *, valid: bool
) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(2, size=shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 5, size=shape).astype(dtype)
    low, high, nonzero = bounds(rule, name)
    values = rng.uniform(low, high, shape)
    if nonzero:
        values = np.where(np.abs(values) < 0.2, 0.2 if low >= 0 else -0.2, values)
    if not valid and any(c.variables == (name,) for c in rule.guard if c.subject in BREAKING):
        c = next(c for c in rule.guard if c.variables == (name,) and c.subject in BREAKING)
        values = np.full(shape, BREAKING[c.subject](c.bound))
    return np.asarray(values, dtype)


BREAKING = {
    ">": lambda bound: bound - 1,
    ">=": lambda bound: bound - 1,
    "!=": lambda bound: bound,
    "<=": lambda bound: bound + 1,
    "<": lambda bound: bound + 1,
}

__all__ = ["ASSOCIATIVE", "BREAKING", "Case", "InvalidModel", "bounds", "draw"]
