"""What became of the operators and tensors of an ONNX file: names that the simplified network may not have.

A name is looked for in the network as it is planned, then in the file. An operator of the file that is gone
left its results to others, or is read through by them: which, tensors say, whose names a rewrite keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import FileOperator
from lfopt.ir.names import plain
from lfopt.ops import Dataflow

NAMED = 4  # operators that a line names
PASSING = frozenset({"Cast", "CastLike", "Dropout", "Expand", "Flatten", "Identity", "Reshape"}) | {
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}


class Fate(NamedTuple):
    """What a name stands for in the network that is planned."""

    said: str  # one line, without the name
    operators: tuple[str, ...]  # by name, in the order of the network
    together: bool = False  # whether all of these operators are meant, where they are several


@dataclass
class Fates:
    """Names of one network, as it is planned and as a file has it that it is from."""

    flow: Dataflow
    file: Mapping[str, FileOperator]  # operators by name

    def fate(self, name: str) -> Fate | None:
        """What became of an operator or a tensor; None of a name that the network never had."""
        if name not in self.flow.position and not self._knows(name):
            name = plain(name)  # as the file spells it
        if name in self.flow.position:
            return Fate("is an operator", (name,))
        if name in self._graph_operators:
            return self._of_view(name)
        if name in self.file:
            return self._of_operator(name, self.file[name])
        if name in self.flow.graph.tensors:
            return self._of_tensor(name)
        if name in self._file_makers:
            return self._of_gone(self.file[self._file_makers[name]], "is a tensor that")
        if name in self._file_readers:
            return self._read(name, "is a constant")
        return None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names of operators."""
        return tuple(dict.fromkeys((*self.flow.position, *self._graph_operators, *self.file)))

    def _knows(self, name: str) -> bool:
        known = (self._graph_operators, self.file, self.flow.graph.tensors, self._file_makers)
        return any(name in names for names in known)

    # -- names of the network that is planned ----------------------------------------------------------------

    @cached_property
    def _graph_operators(self) -> dict[str, int]:
        """All operators of the network, views too: position by name."""
        return {operator.name: k for k, operator in enumerate(self.flow.graph.operators)}

    @cached_property
    def _makers(self) -> dict[str, str]:
        """Operator that makes a tensor of the network, by the tensor."""
        return {
            name: operator.name for operator in self.flow.graph.operators for name in operator.outputs if name
        }

    @cached_property
    def _readers(self) -> dict[str, list[str]]:
        """Operators that read a tensor of the network, by the tensor."""
        readers: dict[str, list[str]] = {}
        for operator in self.flow.graph.operators:
            for name in dict.fromkeys(operator.inputs):
                readers.setdefault(name, []).append(operator.name)
        return readers

    def _of_view(self, name: str) -> Fate:
        operator = self.flow.graph.operators[self._graph_operators[name]]
        kind = f"is a view ({operator.kind}), which moves nothing"
        source = self.flow.behind.get(operator.outputs[0])
        if source in self._makers:
            maker = self._makers[source]
            return Fate(f"{kind}: it is another shape of what {maker!r} makes", (maker,))
        readers = self._through_views(operator.outputs[0])
        return Fate(f"{kind}, of an input of the network{self._that(readers, ', and is read by')}", readers)

    def _of_tensor(self, name: str) -> Fate:
        source = self.flow.behind.get(name, name)
        if source in self._makers:
            maker = self._makers[source]
            parts = self._parts(source)
            if len(parts) > 1:
                return Fate(f"is a tensor that {_listed(parts)} make", parts, together=True)
            return Fate(f"is a tensor that {maker!r} makes", (maker,))
        what = "is an input of the network" if name in self.flow.graph.inputs else "is a constant"
        readers = self._through_views(name)
        return Fate(what + self._that(readers, " that is read by"), readers)

    def _through_views(self, tensor: str) -> tuple[str, ...]:
        """Operators but views that read a tensor, or a view of it."""
        readers: dict[str, None] = {}
        waiting = [tensor]
        for name in waiting:
            for reader in self._readers.get(name, ()):
                if reader in self.flow.position:
                    readers[reader] = None
                else:
                    waiting += self.flow.graph.operators[self._graph_operators[reader]].outputs
        return self._in_order(readers)

    def _in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self._graph_operators.__getitem__))

    @staticmethod
    def _that(operators: Sequence[str], verb: str) -> str:
        return f"{verb} {_listed(operators)}" if operators else ""

    # -- names of the file -----------------------------------------------------------------------------------

    @cached_property
    def _file_makers(self) -> dict[str, str]:
        return {tensor: name for name, operator in self.file.items() for tensor in operator.outputs if tensor}

    @cached_property
    def _file_readers(self) -> dict[str, list[str]]:
        readers: dict[str, list[str]] = {}
        for name, operator in self.file.items():
            for tensor in dict.fromkeys(operator.inputs):
                readers.setdefault(tensor, []).append(name)
        return readers

    def _of_operator(self, name: str, operator: FileOperator) -> Fate:
        if operator.inside:
            what = f"is a part of {operator.inside!r} ({operator.kind}), which"
        else:
            what = f"({operator.kind})"
        written = self._written_out(name)
        if len(written) > 1:
            return Fate(f"{what} is written out as {_listed(written)}", written, together=True)
        return self._of_gone(operator, what)

    def _written_out(self, name: str) -> tuple[str, ...]:
        """Operators of the network that were made of one of the file, and are called after it."""
        called = (other for other in self.flow.position if other.startswith((f"{name}.", f"{name}#")))
        return self._in_order(other for other in called if other not in self.file or self.file[other].loaded)

    def _of_gone(self, operator: FileOperator, what: str) -> Fate:
        """What became of an operator that the network has not under its name."""
        graph = self.flow.graph
        for tensor in filter(None, operator.outputs):
            source = self.flow.behind.get(tensor)
            if source in self._makers:
                parts = self._parts(source) if source == tensor else (self._makers[source],)
                if len(parts) > 1:
                    return Fate(f"{what} is computed by {_listed(parts)}", parts, together=True)
                verb = "became part of" if source == tensor else "is another shape of what is made by"
                return Fate(f"{what} {verb} {_listed(parts)}", parts)
            if tensor in graph.constants:
                return self._read(tensor, f"{what} gives a constant")
        if not self._reaches(operator.outputs, lambda tensor: tensor in graph.outputs):
            after = self._next(operator.outputs)
            if not after:
                return Fate(f"{what} was dropped: no output of the network depends on it", ())
        before = self._previous(operator.inputs)
        after = self._next(operator.outputs)
        if operator.kind in PASSING and len(before) == 1:
            return Fate(f"{what} was removed: it passes on what {before[0]!r} makes", before)
        if after:
            return Fate(f"{what} became part of {_listed(after)}", after)
        return Fate(f"{what} was removed{self._that(before, ': it passes on what is made by')}", before)

    def _read(self, tensor: str, what: str) -> Fate:
        readers = self._through_views(tensor) or self._next((tensor,))
        return Fate(what + self._that(readers, " that is read by"), readers)

    def _parts(self, tensor: str) -> tuple[str, ...]:
        """Operators that make a tensor of the file through tensors that the file does not have."""
        if not self.file:
            return (self._makers[tensor],)
        parts: dict[str, None] = {}
        waiting = [tensor]
        for name in waiting:
            maker = self._makers.get(name)
            if maker is None or maker in parts:
                continue
            parts[maker] = None
            operator = self.flow.graph.operators[self._graph_operators[maker]]
            waiting += [
                result for result in operator.inputs if result in self._makers and self._is_new(result)
            ]
        computing = [name for name in parts if name in self.flow.position]
        return self._in_order(computing or parts)

    def _is_new(self, tensor: str) -> bool:
        return tensor not in self._file_makers

    def _reaches(self, tensors: Iterable[str], wanted: Callable[[str], bool]) -> bool:
        return any(map(wanted, self._downstream(tensors)))

    def _downstream(self, tensors: Iterable[str]) -> Iterator[str]:
        """Tensors of the file that are made of these, themselves included."""
        waiting = dict.fromkeys(filter(None, tensors))
        for tensor in (order := [*waiting]):
            yield tensor
            for reader in self._file_readers.get(tensor, ()):
                new = [result for result in self.file[reader].outputs if result and result not in waiting]
                waiting.update(dict.fromkeys(new))
                order += new

    def _next(self, tensors: Iterable[str]) -> tuple[str, ...]:
        """The first operators of the network behind tensors of the file that it does not have."""
        return self._nearest(
            tensors,
            lambda tensor: (
                result for name in self._file_readers.get(tensor, ()) for result in self.file[name].outputs
            ),
        )

    def _previous(self, tensors: Iterable[str]) -> tuple[str, ...]:
        """The last operators of the network before tensors of the file."""
        return self._nearest(
            tensors,
            lambda tensor: self.file[self._file_makers[tensor]].inputs if tensor in self._file_makers else (),
        )

    def _nearest(self, tensors: Iterable[str], onward: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
        """Operators of the network that make the first tensors that it has, on the way from these."""
        reached: dict[str, None] = {}
        waiting = dict.fromkeys(filter(None, tensors))
        for tensor in (order := [*waiting]):
            source = self.flow.behind.get(tensor)
            if source in self._makers:
                reached[self._makers[source]] = None
                continue
            new = [name for name in onward(tensor) if name and name not in waiting]
            waiting.update(dict.fromkeys(new))
            order += new
        return self._in_order(reached)


def fates_of(flow: Dataflow) -> tuple[Fates, ...]:
    """Names of a network, by each of the files that it is from; the first that knows a name is right."""
    return tuple(Fates(flow, file) for file in flow.graph.files or ({},))


def _listed(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:NAMED]]
    if names[NAMED:]:
        return f"{', '.join(shown)} and {len(names) - NAMED} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
