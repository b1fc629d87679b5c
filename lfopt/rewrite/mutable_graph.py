"""A graph that can be edited: makers and readers of every tensor stay up to date as operators come and go."""

from __future__ import annotations

import heapq
from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from lfopt.ir import Attribute, Graph, Operator, Tensor
from lfopt.ir.graph import hashable
from lfopt.ops import Call

Signature = tuple[object, ...]


class MutableGraph:
    """The operators, tensors and constants of a graph, open to change.

    Graph inputs and outputs keep their names.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = dict(graph.tensors)
        self.constants: dict[str, np.ndarray | None] = dict(graph.constants)
        self.operators: dict[str, Operator] = {}
        self.makers: dict[str, str] = {}  # operator by the tensor that it makes
        # operators by the tensor that they read, in the order in which they came
        self.readers: dict[str, dict[str, None]] = {}
        self.outputs = frozenset(graph.outputs)
        self.position: dict[str, float] = {}  # where an operator stood in the graph, or what it replaces
        self._numbered: dict[str, int] = {}  # first number that a name may be free with
        self.version = 0  # changes so far
        self._by_signature: dict[Signature, str] = {}  # tensor by what makes it
        self._scalars: dict[tuple[str, float], str] = {}
        self._folded: dict[Signature, str] = {}  # constant by what it was worked out from
        self._made: dict[Hashable, str] = {}  # constant by what a pass worked it out from
        for place, operator in enumerate(graph.operators):
            self.add(operator, place)

    # -- questions -------------------------------------------------------------------------------------------

    def maker(self, tensor: str) -> Operator | None:
        """The operator that makes a tensor; None for inputs and constants."""
        name = self.makers.get(tensor)
        if name is None:
            return None
        return self.operators[name]

    def plain_maker(self, tensor: str) -> Operator | None:
        """The maker of a tensor where rules may look into it.

        A standard operator with one result in which no integers stand for real numbers.
        """
        operator = self.maker(tensor)
        if operator is None or not self.is_plain(operator):
            return None
        return operator

    def is_plain(self, operator: Operator) -> bool:
        """Whether it is a standard operator with one result, and neither that nor an operand is quantised."""
        if operator.domain or len(operator.outputs) != 1:
            return False
        return all(
            self.tensors[name].quantization is None for name in (*operator.inputs, *operator.outputs) if name
        )

    def only_reader(self, tensor: str) -> Operator | None:
        """The operator that reads a tensor which nothing else needs."""
        readers = self.readers.get(tensor, {})
        if len(readers) == 1 and tensor not in self.outputs:
            return self.operators[next(iter(readers))]
        return None

    def scalar(self, tensor: str) -> float | None:
        """Value of a constant of one element, None for everything else."""
        value = self.constants.get(tensor)
        if value is not None and value.size == 1 and value.dtype.kind in "fiub":
            return float(value.reshape(-1)[0])
        return None

    def call(self, operator: Operator) -> Call:
        """The operator as the operator table sees it."""
        return Call.over(operator, self.tensors.__getitem__, self.constants)

    def same(self, kind: str, inputs: tuple[str, ...], attributes: Mapping[str, Attribute]) -> str | None:
        """The tensor that an operator like this makes already."""
        key = signature(kind, inputs, attributes)
        return self._by_signature.get(key) or self._folded.get(key)

    # -- changes ---------------------------------------------------------------------------------------------

    def add(self, operator: Operator, position: float) -> None:
        """Put an operator in; the tensors that it makes are known already."""
        self.version += 1
        self.operators[operator.name] = operator
        self.position[operator.name] = position
        for tensor in operator.outputs:
            if tensor:
                self.makers[tensor] = operator.name
        for tensor in operator.inputs:
            if tensor:
                self.readers.setdefault(tensor, {})[operator.name] = None
        if len(operator.outputs) == 1 and not operator.domain:
            self._by_signature.setdefault(
                signature(operator.kind, operator.inputs, operator.attributes), operator.outputs[0]
            )

    def remove(self, name: str) -> None:
        """Take an operator out."""
        self.version += 1
        operator = self.operators.pop(name)
        for tensor in operator.outputs:
            self.makers.pop(tensor, None)
        for tensor in set(operator.inputs):
            if tensor:
                self.readers[tensor].pop(name, None)
        key = signature(operator.kind, operator.inputs, operator.attributes)
        if (
            not operator.domain
            and len(operator.outputs) == 1
            and self._by_signature.get(key) == operator.outputs[0]
        ):
            del self._by_signature[key]

    def change(self, operator: Operator) -> None:
        """Put an operator in the place of the one of that name."""
        position = self.position[operator.name]
        self.remove(operator.name)
        self.add(operator, position)

    def redirect(self, old: str, new: str) -> None:
        """Let `new` stand for `old` everywhere, which nothing makes any more.

        `old` stays if it is an output of the graph.
        """
        for name in tuple(self.readers.get(old, {})):
            reader = self.operators[name]
            self.change(
                replace(reader, inputs=tuple(new if tensor == old else tensor for tensor in reader.inputs))
            )
        if old not in self.outputs:
            return
        maker = self.maker(new)
        if maker is None or new in self.outputs:
            identity = Operator(self.fresh(f"{old}.Identity"), "Identity", (new,), (old,))
            self.add(identity, self.position[maker.name] if maker else -1)
            return
        self.change(
            replace(maker, outputs=tuple(old if tensor == new else tensor for tensor in maker.outputs))
        )
        self.redirect(new, old)

    def replace_and_erase(self, operator: Operator, tensor: str) -> None:
        """Take out an operator whose only result is a tensor that is there already."""
        self.remove(operator.name)
        self.redirect(operator.outputs[0], tensor)

    def add_constant(
        self,
        wanted: str,
        shape: tuple[int, ...],
        dtype: str,
        value: np.ndarray | None,
        of: tuple[Hashable, ...] | None = None,
    ) -> str:
        """Name of a new constant; value: of that shape, or None: it is known by its shape alone.

        `of`: what it is worked out from, names of constants among it; the same request later gets this one.
        """
        key = None if of is None else (of, shape, dtype)
        if key is not None and key in self._made:
            return self._made[key]
        name = self.fresh(wanted)
        self.tensors[name] = Tensor(name, shape, dtype)
        self.constants[name] = None if value is None else value.astype(dtype, copy=False)
        if key is not None:
            self._made[key] = name
        return name

    def add_scalar(self, value: float, dtype: str) -> str:
        """Name of the constant of no axes with this value."""
        key = (dtype, value)
        if key not in self._scalars:
            for name, value_of in self.constants.items():
                if (
                    value_of is not None
                    and value_of.shape == ()
                    and value_of.dtype == dtype
                    and value_of == np.asarray(value, dtype)
                ):
                    self._scalars[key] = name
                    break
            else:
                self._scalars[key] = self.add_constant(f"{value:.9g}", (), dtype, np.asarray(value))
        return self._scalars[key]

    def add_folded(self, operator: Operator, tensor: Tensor, value: np.ndarray | None) -> None:
        """Put in a constant that an operator would make of others; value: shaped as `tensor`, or None.

        The same request later gets this one.
        """
        self.tensors[tensor.name], self.constants[tensor.name] = tensor, value
        self._folded[signature(operator.kind, operator.inputs, operator.attributes)] = tensor.name

    def fresh(self, wanted: str, taken: Container[str] = ()) -> str:
        """A name that no tensor and no operator has, and that is not taken otherwise."""
        count = self._numbered.get(wanted, 0)
        name = f"{wanted}_{count}" if count else wanted
        while name in self.tensors or name in self.operators:
            count += 1
            name = f"{wanted}_{count}"
        self._numbered[wanted] = count  # the next search starts here
        while name in taken or name in self.tensors or name in self.operators:
            count += 1
            name = f"{wanted}_{count}"
        return name

    # -- back to a graph -------------------------------------------------------------------------------------

    def drop_dead(self) -> list[Operator]:
        """Take out operators that no output depends on, and say which they were."""
        todo = list(self.operators)
        dead = []
        while todo:
            operator = self.operators.get(todo.pop())
            if operator is None or any(
                tensor and (tensor in self.outputs or self.readers.get(tensor)) for tensor in operator.outputs
            ):
                continue
            makers = [self.makers[tensor] for tensor in operator.inputs if tensor in self.makers]
            self.remove(operator.name)
            dead.append(operator)
            todo.extend(makers)
        return dead

    def finish(self) -> Graph:
        """The graph as it stands, without what nothing reads.

        Operators are in topological order, as near as that allows to where they were.
        """
        return replace(
            self.graph, operators=self._ordered(), tensors=self.tensors, constants=self.constants
        ).without_unused()

    def _ordered(self) -> tuple[Operator, ...]:
        waiting = {
            name: len({t for t in op.inputs if t in self.makers}) for name, op in self.operators.items()
        }
        ready = [
            (self.position[name], place, name)
            for place, name in enumerate(self.operators)
            if waiting[name] == 0
        ]
        heapq.heapify(ready)
        done: list[Operator] = []
        while ready:
            operator = self.operators[heapq.heappop(ready)[2]]
            done.append(operator)
            for name in (reader for tensor in operator.outputs for reader in self.readers.get(tensor, {})):
                waiting[name] -= 1
                if waiting[name] == 0:
                    heapq.heappush(ready, (self.position[name], len(done), name))
        assert len(done) == len(self.operators), "a rewrite made a cycle"
        return tuple(done)


def signature(kind: str, inputs: Iterable[str], attributes: Mapping[str, Attribute]) -> Signature:
    """What two operators with the same result have in common."""
    return (kind, tuple(inputs), *((name, hashable(attributes[name])) for name in sorted(attributes)))
