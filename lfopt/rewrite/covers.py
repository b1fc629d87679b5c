"""A network whose groups compute some operators again, written out as a network with copies.

A *cover* is a sequence of groups in which an operator may run several times: a group makes again what the
buffer cannot keep, and stores only what later groups read. Written out, every group has operators of its own,
so that a plan of the network is a partition again. Of the runs of an operator one keeps its name, and the
others are copies; the plan says of what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import count
from typing import NamedTuple

from lfopt.ir import Copy, Graph, Operator
from lfopt.ops import Dataflow, bits
from lfopt.ops.excerpt import excerpt


class CoverGroup(NamedTuple):
    """A group of a cover."""

    operators: int  # mask
    stores: int  # mask of the maps that it stores


class WrittenCover(NamedTuple):
    """A cover as a network with copies."""

    graph: Graph
    copies: tuple[Copy, ...]  # those of what an operator reads before those of the operator
    groups: tuple[tuple[str, ...], ...]  # names of operators, in the order in which they run


def write_cover(flow: Dataflow, cover: Sequence[CoverGroup]) -> WrittenCover:
    """The network in which every group of a cover has operators of its own.

    `cover`: groups in the order in which they run. Each map is stored once, before it is read; all outputs of
    the network are.
    """
    return _Writer(flow, cover).write()


def without_copies(graph: Graph, copies: Sequence[Copy]) -> Graph:
    """The network before: what reads a copy reads what the original makes."""
    by_name = {op.name: op for op in graph.operators}
    same: dict[str, str] = {}  # tensor of a copy -> that of the original
    for copy in copies:
        outputs = zip(by_name[copy.name].outputs, by_name[copy.of].outputs, strict=True)
        same |= {name: original for name, original in outputs if name}
    gone = {copy.name for copy in copies}
    kept = {
        op.name: replace(op, inputs=tuple(same.get(name, name) for name in op.inputs))
        for op in graph.operators
        if op.name not in gone
    }
    maker = {tensor: op.name for op in kept.values() for tensor in op.outputs if tensor}
    needs = {op.name: [maker[name] for name in op.inputs if name in maker] for op in kept.values()}
    order = TopologicalSorter(needs).static_order()
    return replace(graph, operators=tuple(kept[name] for name in order)).without_unused()


class _Writer:
    def __init__(self, flow: Dataflow, cover: Sequence[CoverGroup]) -> None:
        self.flow = flow
        self.graph = flow.graph
        self.cover = cover
        self.operators: list[Operator] = []
        self.tensors = dict(self.graph.tensors)
        self.taken = {*(op.name for op in self.graph.operators), *self.tensors}
        self.copies: list[Copy] = []
        self.keeps_name = _runs_that_keep_names(flow, cover)
        self.in_dram: dict[str, str] = {name: name for name in self.graph.inputs}  # by map: its tensor
        self.views: dict[tuple[str, str], Mapping[str, str]] = {}  # by view and what it reads: its tensors

    def write(self) -> WrittenCover:
        """Group after group; then the views that no group reads."""
        groups = tuple(self._group(number, group) for number, group in enumerate(self.cover))
        self._unread_views()
        position = {op.name: k for k, op in enumerate(self.graph.operators)}
        copies = sorted(self.copies, key=lambda copy: position[copy.of])
        graph = replace(self.graph, operators=tuple(self.operators), tensors=self.tensors)
        return WrittenCover(graph.without_unused(), tuple(copies), groups)

    def _group(self, number: int, group: CoverGroup) -> tuple[str, ...]:
        """Names of the operators that a group has now."""
        flow = self.flow
        names: dict[str, str] = {}  # of tensors, as this group calls them
        own: list[str] = []
        part = excerpt(flow, group.operators, group.stores)
        names |= {name: self.in_dram[name] for name in part.inputs}
        for operator in part.operators:
            position = flow.position.get(operator.name)
            if position is None:
                names |= self._view(operator, names)
            else:
                written = self._written(operator, names, keeps_name=self.keeps_name[position] == number)
                names |= zip(operator.outputs, written.outputs, strict=True)
                own.append(written.name)
        self.in_dram |= {flow.maps[m].name: names[flow.maps[m].name] for m in bits(group.stores)}
        return tuple(own)

    def _view(self, operator: Operator, names: Mapping[str, str]) -> Mapping[str, str]:
        """Tensors of a view: written once for each tensor that it is a view of."""
        viewed = operator.inputs[0]
        source = names.get(viewed, viewed)
        key = operator.name, source
        if key not in self.views:
            written = self._written(operator, names, keeps_name=source == viewed)
            self.views[key] = dict(zip(operator.outputs, written.outputs, strict=True))
        return self.views[key]

    def _written(self, operator: Operator, names: Mapping[str, str], *, keeps_name: bool) -> Operator:
        """The operator, or a copy of it, on the tensors of its group."""
        inputs = tuple(names.get(name, name) for name in operator.inputs)
        written = replace(operator, inputs=inputs)
        if not keeps_name:
            outputs = {name: self._another(name) for name in operator.outputs if name}
            self.tensors |= {new: self.tensors[name].named(new) for name, new in outputs.items()}
            written = replace(
                written,
                name=self._another(operator.name),
                outputs=tuple(outputs.get(name, "") for name in operator.outputs),
            )
            self.copies.append(Copy(written.name, operator.name))
        self.operators.append(written)
        return written

    def _another(self, name: str) -> str:
        unused = next(new for k in count(1) if (new := f"{name}~{k}") not in self.taken)
        self.taken.add(unused)
        return unused

    def _unread_views(self) -> None:
        """Views that are results of the network, or that others are copies of."""
        written = {op.name for op in self.operators}
        copied = {copy.of for copy in self.copies}
        wanted = {*self.graph.outputs}
        missing: list[Operator] = []
        for operator in reversed(self.graph.operators):
            if operator.name in written or operator.name in self.flow.position:
                continue
            if operator.name in copied or wanted.intersection(operator.outputs):
                missing.append(operator)
                wanted.update(operator.inputs)
        self.operators += reversed(missing)


def _runs_that_keep_names(flow: Dataflow, cover: Sequence[CoverGroup]) -> dict[int, int]:
    """Per operator: the number of the group whose run of it keeps its name.

    That which makes a result of the network; else the first that stores something of it; else the first.
    """
    ranked: dict[int, tuple[int, int]] = {}  # (rank, number of the group), the least is taken
    for number, group in enumerate(cover):
        for i in bits(group.operators):
            stored = [m for m in flow.results[i] if group.stores >> m & 1]
            if any(flow.is_output[m] for m in stored):
                rank = 0
            elif stored:
                rank = 1
            else:
                rank = 2
            ranked[i] = min(ranked.get(i, (rank, number)), (rank, number))
    return {i: number for i, (_, number) in ranked.items()}
