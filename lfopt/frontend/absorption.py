"""QDQ form absorbed: QuantizeLinear and DequantizeLinear become quantizations of tensors.

In the file every map of integers stands between two operators, QuantizeLinear (Q) and DequantizeLinear (DQ),
and the operators around it compute with real numbers. In the graph the map itself is of type int8 or uint8
and says what its integers stand for (`Tensor.quantization`), and operators read and write it directly. A
constant behind a DQ likewise; a bias is int32.

Where no integers stand between two operators (an *island* of float32), both stay as they are, and so do the Q
and DQ at the island's border. A Q that reads integers is a change of scale. The graph's `notes` say where
this is so.

Exact, not approximate: taking Q through Relu, Clip or an operator that only moves elements changes no value,
because rounding is monotone. `lfopt.frontend.expansion` is the way back. Source: ONNX operators
QuantizeLinear, DequantizeLinear.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import NamedTuple

import numpy as np

from lfopt.frontend.qdq import BYTES, DQ, Q, Stored, is_q_or_dq, quantization_of
from lfopt.ir import Graph, Operator, Quantization, Tensor
from lfopt.ops import spec
from lfopt.ops.table import OPAQUE

# Operators that only move elements (operand 0; all of Concat's), or take the greatest of them: Q before them
# is Q after them, and so is DQ.
MOVES = frozenset(
    "Concat DepthToSpace Dropout Expand Flatten Gather GlobalMaxPool Identity MaxPool Pad Reshape Resize "
    "Slice SpaceToDepth Split Squeeze".split()
) | frozenset("Tile Transpose Unsqueeze".split())
CLAMPS = frozenset({"Clip", "Relu"})


class _StoredCode(NamedTuple):
    """What stands for a float map: integers of this type with this quantization."""

    dtype: str
    quantization: Quantization


def absorb(graph: Graph, stored: Mapping[str, Stored]) -> Graph:
    """The graph without the Q and DQ that its tensors can stand for.

    `stored`: the integers behind float constants, by name.
    """
    if not stored and not any(is_q_or_dq(operator) for operator in graph.operators):
        return graph
    return _Absorption(_with_swish(_without_casts(graph)), stored).result()


def _without_casts(graph: Graph) -> Graph:
    """The graph without Casts that keep the type: PyTorch's exporter writes one between every Q and DQ."""
    tensors = graph.tensors
    same = dict[str, str]()
    for operator in graph.operators:
        if (
            operator.kind == "Cast"
            and not operator.domain
            and tensors[operator.inputs[0]].dtype == tensors[operator.outputs[0]].dtype
        ):
            same[operator.outputs[0]] = same.get(operator.inputs[0], operator.inputs[0])
    for name in {*same} & {*graph.outputs}:
        del same[name]
    operators = tuple(
        replace(operator, inputs=tuple(same.get(name, name) for name in operator.inputs))
        for operator in graph.operators
        if operator.outputs[0] not in same
    )
    return replace(
        graph,
        operators=operators,
        tensors={name: tensor for name, tensor in tensors.items() if name not in same},
    )


def _with_swish(graph: Graph) -> Graph:
    """The graph with x * Sigmoid(x) behind a DQ as one operator, Swish.

    PyTorch leaves no integers between the two.
    """
    makers = {name: operator for operator in graph.operators for name in operator.outputs if name}
    reads = Counter(name for operator in graph.operators for name in operator.inputs)
    swishes: dict[str, Operator] = {}  # by name of the Mul
    gone = set[str]()
    for operator in graph.operators:
        if operator.kind == "Mul":
            gates = [(x, makers.get(gate)) for x, gate in (operator.inputs, operator.inputs[::-1])]
        else:
            gates = []
        for x, gate in gates:
            alone = (
                gate is not None
                and not (operator.domain or gate.domain)
                and gate.inputs == (x,)
                and reads[gate.outputs[0]] == 1
                and gate.outputs[0] not in graph.outputs
            )
            if (
                gate is not None
                and gate.kind == "Sigmoid"
                and alone
                and x in makers
                and is_q_or_dq(makers[x])
            ):
                swishes[operator.name] = replace(operator, kind="Swish", inputs=(x,), attributes={})
                gone.add(gate.name)
    operators = tuple(
        swishes.get(operator.name, operator) for operator in graph.operators if operator.name not in gone
    )
    dead = {name for operator in graph.operators if operator.name in gone for name in operator.outputs}
    if gone:
        return replace(
            graph,
            operators=operators,
            tensors={name: t for name, t in graph.tensors.items() if name not in dead},
        )
    return graph


@dataclass
class _Absorption:
    graph: Graph
    stored: Mapping[str, Stored]
    by: dict[str, Quantization | None] = field(default_factory=dict)  # of Q and DQ operators, by their name
    producer: dict[str, Operator] = field(default_factory=dict)  # by tensor
    readers: dict[str, list[Operator]] = field(default_factory=lambda: defaultdict(list))  # by tensor
    held: dict[str, _StoredCode] = field(default_factory=dict)  # maps of integers of the file, by name
    codes: dict[str, _StoredCode] = field(default_factory=dict)  # float maps that integers stand for
    source: dict[str, str] = field(default_factory=dict)  # the map of integers that a DQ makes a float map of
    integer: set[str] = field(default_factory=set)  # names of operators that read and write integers

    def __post_init__(self) -> None:
        for operator in self.graph.operators:
            if is_q_or_dq(operator):
                self.by[operator.name] = quantization_of(
                    operator,
                    self.graph.tensors,
                    self.graph.constants,
                    f"node {operator.name!r} ({operator.kind})",
                )
            self.producer.update((name, operator) for name in operator.outputs if name)
            for name in dict.fromkeys(operator.inputs):
                if name:
                    self.readers[name].append(operator)
        self.outputs = set(self.graph.outputs)

    # -- which maps are integers -----------------------------------------------------------------------------

    def result(self) -> Graph:
        self._find_held()
        self._find_codes()
        self._shrink()
        return _Rewriting(self).result()

    def _find_held(self) -> None:
        """Maps of integers of the file, whose quantization the operators around them give."""
        for name in self.graph.inputs:
            self._hold(
                name,
                next((self.by[r.name] for r in self.readers[name] if is_q_or_dq(r) and r.kind == DQ), None),
            )
        for operator in self.graph.operators:
            if is_q_or_dq(operator):
                if operator.kind == Q:
                    self._hold(operator.outputs[0], self.by[operator.name])
            elif operator.kind in MOVES - {"Pad"} and self._takes_through(operator, forward=True):
                # integers moved as such; Pad adds its own
                sources = [self.held.get(name) for name in self._moved(operator)]
                if sources[0] is not None and all(source == sources[0] for source in sources):
                    for name in filter(None, operator.outputs):
                        self._hold(name, sources[0].quantization)

    def _hold(self, name: str, by: Quantization | None) -> None:
        dtype = self.graph.tensors[name].dtype
        if by is not None and by.axis is None and dtype in BYTES:
            self.held[name] = _StoredCode(dtype, by)

    def _find_codes(self) -> None:
        """Find the float maps that integers can stand for: behind a DQ, or before a Q.

        Or one operator away from those, if it takes Q or DQ through.
        """
        for operator in self.graph.operators:
            if is_q_or_dq(operator):
                held = self.held.get(operator.inputs[0])
                if operator.kind == DQ and held is not None and held.quantization == self.by[operator.name]:
                    self.codes[operator.outputs[0]], self.source[operator.outputs[0]] = (
                        held,
                        operator.inputs[0],
                    )
                continue
            for name in operator.outputs:
                if name and (code := self._forward(operator, name) or self._wanted(name)) is not None:
                    self.codes[name] = code
        for name in self.graph.inputs:
            if (code := self._wanted(name)) is not None:
                self.codes[name] = code
        for operator in reversed(self.graph.operators):
            for name in operator.outputs if not is_q_or_dq(operator) else ():
                if name and name not in self.codes and (code := self._backward(name)) is not None:
                    self.codes[name] = code

    def _moved(self, operator: Operator) -> list[str]:
        """Operands whose elements the operator moves."""
        if operator.kind == "Concat":
            return [*operator.inputs]
        return [operator.inputs[0]]

    def _takes_through(self, operator: Operator, *, forward: bool) -> bool:
        """Whether Q after the operator is Q before it, or (forward) DQ before it is DQ after it."""
        if (
            operator.domain
            or operator.kind not in MOVES | CLAMPS
            or (any(operator.outputs[1:]) and operator.kind != "Split")
        ):
            return False
        constants = self.graph.constants
        if operator.kind == "Resize":
            # then a number of its own is filled in
            beyond = operator.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
            return operator.attributes.get("mode", "nearest") == "nearest" and not beyond
        if (
            operator.kind == "Pad"
            and operator.attributes.get("mode", "constant") == "constant"
            and len(operator.inputs) > 2
            and operator.inputs[2]
        ):
            value = constants.get(operator.inputs[2])
            return operator.inputs[2] in constants and (
                not forward or (value is not None and not value.any())
            )
        if operator.kind == "Clip":
            return not forward and all(name in constants for name in operator.inputs[1:] if name)
        return True

    def _forward(self, operator: Operator, name: str) -> _StoredCode | None:
        """Code of a result of an operator that takes DQ through.

        Where Q follows, that says it; but a view cannot change a scale.
        """
        if not self._takes_through(operator, forward=True) or (
            self._all_q(name) and not spec(operator.kind).view
        ):
            return None
        codes = {self._code(operand) for operand in self._moved(operator)}
        if len(codes) == 1:
            return codes.pop()
        return None

    def _code(self, name: str) -> _StoredCode | None:
        """Code of an operand, be it a map or a constant."""
        if name in self.stored:
            tensor = self.stored[name].tensor
            assert tensor.quantization is not None
            if tensor.quantization.axis is None and tensor.dtype in BYTES:
                return _StoredCode(tensor.dtype, tensor.quantization)
            return None
        return self.codes.get(name)

    def _all_q(self, name: str) -> bool:
        """Whether a map is read by Q alone."""
        return (
            name not in self.outputs
            and bool(self.readers[name])
            and all(is_q_or_dq(r) and r.kind == Q for r in self.readers[name])
        )

    def _wanted(self, name: str) -> _StoredCode | None:
        """What the Qs that read a map agree upon, where nothing else reads it."""
        if not self._all_q(name) or self.graph.tensors[name].dtype != "float32":
            return None
        codes = {self.held.get(r.outputs[0]) for r in self.readers[name]}
        if len(codes) == 1:
            return codes.pop()
        return None

    def _backward(self, name: str) -> _StoredCode | None:
        """What the readers of a map agree upon, where all take Q through."""
        readers = self.readers[name]
        if name in self.outputs or not readers or self.graph.tensors[name].dtype != "float32":
            return None
        codes: set[_StoredCode | None] = set()
        for reader in readers:
            if is_q_or_dq(reader) and reader.kind == Q:
                codes.add(self.held.get(reader.outputs[0]))
            elif (
                not is_q_or_dq(reader)
                and self._takes_through(reader, forward=False)
                and name in self._moved(reader)
            ):
                codes.update(self.codes.get(result) for result in reader.outputs if result)
            else:
                return None
        if len(codes) == 1:
            return codes.pop()
        return None

    def _shrink(self) -> None:
        """Find the operators on integers; drop the codes of maps that operators on floats make or read."""
        while True:
            self.integer = {operator.name for operator in self.graph.operators if self._is_integer(operator)}
            lost = [name for name in self.codes if not self._stands(name)]
            if not lost:
                return
            for name in lost:
                del self.codes[name]

    def _stands(self, name: str) -> bool:
        """Whether the maker and the readers of the map can work in integers.

        What a DQ makes is there as floats too, if need be.
        """
        if name in self.source:
            return True
        if name in self.producer and self.producer[name].name not in self.integer:
            return False
        return all(map(self.on_integers, self.readers[name]))

    def on_integers(self, operator: Operator) -> bool:
        """Whether the operator reads integers where the file has floats that a DQ makes."""
        if is_q_or_dq(operator):
            return operator.outputs[0] in self.held
        return operator.name in self.integer

    def _is_integer(self, operator: Operator) -> bool:
        """Whether integers stand for every float map that the operator reads or makes."""
        if spec(operator.kind, operator.domain) is OPAQUE or is_q_or_dq(operator):
            return False
        tensors = self.graph.tensors
        constants = self.graph.constants
        read = [
            name
            for name in operator.inputs
            if name and tensors[name].dtype.startswith(("float", "bfloat")) and name not in constants
        ]
        results = [
            name for name in operator.outputs if name and tensors[name].dtype.startswith(("float", "bfloat"))
        ]
        coded = any(self._code(name) is not None for name in operator.inputs if name)
        if not results:  # the index of the greatest is that of the greatest integer
            return operator.kind in ("ArgMax", "ArgMin") and coded
        return coded and all(name in self.codes for name in (*read, *results))


class _Rewriting:
    """The graph with integers in place of the float maps that they stand for."""

    def __init__(self, absorption: _Absorption) -> None:
        self.absorption = absorption
        self.graph = absorption.graph
        # name of the map of integers that stands for a map of the file, where it is another
        self.now: dict[str, str] = {}
        # Qs whose result is what their operand's maker makes, and DQs of which the graph's output is the
        # operand
        self.needless: set[str] = set()
        self.copies: set[str] = set()  # Qs in place of which the integers get a second name
        self.added: dict[str, Stored] = {}  # constants, by name

    def result(self) -> Graph:
        for operator in self.graph.operators:
            self._find_stand_in(operator)
        self._name_outputs()
        operators = self._alive(
            [self._rewritten(op) for op in self.graph.operators if op.name not in self.needless]
        )
        used = (
            {name for op in operators for name in (*op.inputs, *op.outputs) if name}
            | set(self.graph.inputs)
            | set(self.graph.outputs)
        )
        tensors = {
            tensor.name: tensor
            for tensor in map(self._tensor, self.graph.tensors.values())
            if tensor.name in used
        }
        tensors |= {name: stored.tensor for name, stored in self.added.items()}
        constants = {name: self._value(name) for name in self.graph.constants if name in used}
        constants |= {name: stored.value for name, stored in self.added.items()}
        before = self.graph.tensors
        integer_ends = frozenset(
            name
            for name in (*self.graph.inputs, *self.graph.outputs)
            if before[name].dtype in BYTES and tensors[name].quantization is not None
        )
        graph = replace(
            self.graph,
            operators=tuple(operators),
            tensors=tensors,
            constants=constants,
            integer_ends=integer_ends,
        )
        return replace(graph, notes=(*graph.notes, *self._notes(graph)))

    def _value(self, name: str) -> np.ndarray | None:
        """Values of a constant that an operator reads as it is; integers are dequantised on first use."""
        value = self.graph.constants[name]
        stored = self.absorption.stored.get(name)
        if value is None and stored is not None:
            return stored.real()
        return value

    def _root(self, name: str) -> str:
        return self.now.get(name, name)

    def _find_stand_in(self, operator: Operator) -> None:
        """Q and DQ that say nothing new: their result is what they read."""
        if not is_q_or_dq(operator):
            return
        read = operator.inputs[0]
        result = operator.outputs[0]
        absorption = self.absorption
        if result in absorption.source:
            self.now[result] = self._root(read)
        elif (
            operator.kind == Q
            and result in absorption.held
            and absorption.codes.get(read) == absorption.held[result]
        ):
            self.now[result] = self._root(read)
            self.needless.add(operator.name)

    def _name_outputs(self) -> None:
        """Give integers that are a result of the graph its name, unless they have to keep another."""
        taken = {*self.graph.inputs, *self.graph.outputs}
        # results that are integers in the file first
        for wanted in sorted(self.graph.outputs, key=lambda name: name in self.absorption.source):
            root = self._root(wanted)
            if root == wanted:
                continue
            if root not in taken and (
                wanted not in self.absorption.source
                or all(map(self.absorption.on_integers, self.absorption.readers[wanted]))
            ):
                self.now.update([(name, wanted) for name in (*self.now, root) if self._root(name) == root])
                if wanted in self.absorption.source:
                    self.needless.add(self.absorption.producer[wanted].name)
            elif wanted not in self.absorption.source:  # the same integers under two names
                del self.now[wanted]
                maker = self.absorption.producer[wanted].name
                self.needless.discard(maker)
                self.copies.add(maker)

    def _rewritten(self, operator: Operator) -> Operator:
        """The operator as it reads and makes integers, if it does."""
        read, *others = operator.inputs
        if operator.name in self.copies:
            return Operator(
                operator.name, "Identity", (self._root(read),), operator.outputs, origin=operator.origin
            )
        if is_q_or_dq(operator):
            as_integers = operator.kind == DQ or self.absorption.on_integers(operator)
            results = operator.outputs if operator.kind == DQ else (self._root(operator.outputs[0]),)
            return replace(
                operator, inputs=(self._root(read) if as_integers else read, *others), outputs=results
            )
        inputs = tuple(
            self._operand(operator, i, name) if name else "" for i, name in enumerate(operator.inputs)
        )
        return replace(
            operator,
            inputs=inputs,
            outputs=tuple(self._root(name) if name else "" for name in operator.outputs),
        )

    def _operand(self, operator: Operator, index: int, name: str) -> str:
        if operator.name not in self.absorption.integer:
            if name in self.absorption.source:
                return name
            return self._root(name)
        if name in self.absorption.stored and index not in spec(operator.kind).parameters:
            return self._add(name)
        return self._root(name)

    def _add(self, name: str) -> str:
        """The name under which the integers behind a float constant are a constant of the graph."""
        stored = self.absorption.stored[name]
        for chosen in chain((stored.tensor.name, f"{name}.stored"), (f"{name}.stored{n}" for n in count(2))):
            wanted = replace(stored.tensor, name=chosen)
            if chosen not in self.graph.tensors and (
                chosen not in self.added or self.added[chosen].tensor == wanted
            ):
                self.added[chosen] = Stored(wanted, stored.value)
                return chosen
        raise AssertionError

    def _alive(self, operators: Sequence[Operator]) -> list[Operator]:
        """Without the Q and DQ whose results nothing reads."""
        asked = set(self.graph.outputs)
        alive = list[Operator]()
        for operator in reversed(operators):
            if not is_q_or_dq(operator) or operator.outputs[0] in asked:
                asked.update(operator.inputs)
                alive.append(operator)
        return alive[::-1]

    def _tensor(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor of the file; itself, if that is a float map that a DQ still makes."""
        root = self._root(tensor.name)
        code = self.absorption.codes.get(tensor.name) or self.absorption.held.get(tensor.name)
        if code is None or (tensor.name in self.absorption.source and root != tensor.name):
            return tensor
        return Tensor(root, tensor.shape, code.dtype, code.quantization)

    def _notes(self, graph: Graph) -> Iterator[str]:
        after = graph.tensors
        held = [
            f"{what} {name!r} as {after[name].dtype}"
            for what, names in (("input", graph.inputs), ("output", graph.outputs))
            for name in names
            if graph.held(name) is not None
        ]
        if held:
            yield f"quantised network: held are {', '.join(held)}; float32 goes in and out, as in the file"
        borders = [op for op in graph.operators if is_q_or_dq(op)]
        rescaled = [op for op in borders if op.kind == Q and after[op.inputs[0]].quantization is not None]
        if rescaled:
            yield f"{len(rescaled)} QuantizeLinear change the scale of integers and stay operators"
        if len(borders) > len(rescaled):
            kinds = Counter(
                op.kind
                for op in graph.operators
                if not is_q_or_dq(op) and any(self._is_real(name, graph) for name in op.outputs)
            )
            island = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.items())
            yield (
                f"{len(borders) - len(rescaled)} QuantizeLinear and DequantizeLinear stay operators, "
                f"around what is not quantised: {island}"
            )

    def _is_real(self, name: str, graph: Graph) -> bool:
        return bool(name) and graph.tensors[name].dtype == "float32"
