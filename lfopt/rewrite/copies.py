"""Rematerialisation: a map before a barrier is computed twice, so that it need not be stored.

A *barrier* is a reduction over the rows of a map whose result meets that map again, as the mean of a
squeeze-and-excite block does: all of the map must have existed before any of it can be used, so unless the
buffer holds all of it, it goes out and comes back. If instead the reduction reads a copy of the operators
that make the map, its *cone*, neither the copy's rows nor the map's are kept: the cone's own operands are
read once more.

A copy is an operator like any other, with the same constants by name; the plan says whose copy it is. Idea:
rematerialisation, as in MOCCASIN (arXiv 2304.14463), here of the cones of reductions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from lfopt.ir import Copy, Graph, Operator
from lfopt.ops import OPAQUE, Dataflow, bits, spec
from lfopt.ops.compute import folding

DEEPEST = 6  # cones of one barrier that are told apart
# transfers of a map that a larger cone may save: stored once, and loaded for either pass
PASSES = 3


@dataclass(frozen=True, slots=True)
class Cone:
    """Operators that make a map out of others."""

    operators: tuple[str, ...]  # in topological order
    reads: str  # the one map of several rows that it begins with
    macs: int  # of a copy


@dataclass(frozen=True, slots=True)
class Barrier:
    """A reduction whose result meets its operand again."""

    reduction: str  # the operator
    map: str  # that it folds
    cones: tuple[Cone, ...]  # that make the map, the smallest first


def barriers(graph: Graph) -> tuple[Barrier, ...]:
    """The barriers of a network that has no copies, in topological order."""
    flow = Dataflow.of(graph)
    crossed = list[Barrier]()
    for i, call in enumerate(flow.calls):
        if folding(call) != "rows" or len(flow.operands[i]) != 1:
            continue
        (read,) = flow.operands[i]
        others = flow.readers[read.map] & ~(1 << i)
        if flow.maps[read.map].rows < 2 or flow.producer[read.map] < 0:
            continue
        if any((flow.descendants[j] | 1 << j) & flow.descendants[i] for j in bits(others)):
            crossed.append(
                Barrier(
                    flow.operators[i].name,
                    flow.maps[read.map].name,
                    tuple(_promising(flow, _cones(flow, read.map))),
                )
            )
    return tuple(barrier for barrier in crossed if barrier.cones)


def _cones(flow: Dataflow, m: int) -> list[Cone]:
    """Cones that begin with one map, the smallest cone first.

    The map is smaller than its neighbours, or an input of the network, or read by several operators,
    reductions apart.
    """
    cuts: list[tuple[int, int]] = []  # (cone, the map that it begins with)
    cone = 0
    sizes = [flow.maps[m].elements]
    reads = {m}
    while len(reads) > 1 or flow.producer[next(iter(reads))] >= 0:
        nearest = max(reads, key=lambda r: flow.producer[r])
        op = flow.producer[nearest]
        if op < 0 or flow.specs[op] is OPAQUE or len(flow.results[op]) > 1:
            break
        cone |= 1 << op
        reads.remove(nearest)
        reads |= {o.map for o in flow.operands[op] if flow.maps[o.map].rows > 1 or flow.heights[op] == 1}
        if not reads:
            break
        if len(reads) == 1:
            (r,) = reads
            cuts.append((cone, r))
            sizes.append(flow.maps[r].elements)
    cones: list[Cone] = []
    for k, (cone, r) in enumerate(cuts):
        beyond = sizes[k + 2] if k + 2 < len(sizes) else sizes[k + 1]
        readers = [i for i in bits(flow.readers[r]) if folding(flow.calls[i]) != "rows"]
        needed = any(not cone >> i & 1 for i in readers) or (
            len(readers) > 1 and not all(flow.specs[i].elementwise for i in readers)
        )
        if flow.producer[r] < 0 or needed or sizes[k] > sizes[k + 1] <= beyond:
            cones.append(Cone(flow.names(cone), flow.maps[r].name, sum(flow.macs[i] for i in bits(cone))))
    return cones


def _promising(flow: Dataflow, cones: list[Cone]) -> list[Cone]:
    """The smallest cone, and larger ones that may save more elements of maps in between than they load.

    What they load includes weights.
    """

    def weights(cone: Cone) -> int:
        return sum(w.elements for name in cone.operators for w in flow.weights[flow.position[name]])

    promising = cones[:1]
    saved = 0
    for smaller, cone in pairwise(cones):
        saved += PASSES * flow.maps[flow.map_index[smaller.reads]].elements
        loaded = weights(cone) - weights(cones[0])
        if loaded >= saved:
            break
        if loaded + flow.maps[flow.map_index[cone.reads]].elements < saved:
            promising.append(cone)
    return promising[:DEEPEST]


def with_copies(graph: Graph, cones: Mapping[str, Cone]) -> tuple[Graph, tuple[Copy, ...]]:
    """The network in which each of these reductions reads a copy of its cone, and what is copied.

    A cone makes the operand of its reduction. Without cones: the network itself.
    """
    if not cones:
        return graph, ()
    operators = list[Operator]()
    copies = list[Copy]()
    tensors = dict(graph.tensors)
    taken = {*(op.name for op in graph.operators), *tensors}

    def another(name: str) -> str:
        unused = next(new for k in count(1) if (new := f"{name}~{k}") not in taken)
        taken.add(unused)
        return unused

    def renamed(op: Operator, names: Mapping[str, str]) -> Operator:
        return replace(op, inputs=tuple(names.get(name, name) for name in op.inputs))

    for op in graph.operators:
        if op.name not in cones:
            operators.append(op)
            continue
        wanted = set(cones[op.name].operators)
        new = dict[str, str]()
        for original in operators[:]:
            if original.name in wanted or (
                spec(original.kind, original.domain).view and original.inputs[0] in new
            ):
                name = another(original.name)
                copied = renamed(original, new)
                new |= {output: another(output) for output in original.outputs if output}
                tensors.update(
                    (new[output], tensors[output].named(new[output])) for output in original.outputs if output
                )
                operators.append(
                    replace(
                        copied, name=name, outputs=tuple(new.get(output, "") for output in original.outputs)
                    )
                )
                copies.append(Copy(name, original.name))
        operators.append(renamed(op, new))
    return replace(graph, operators=tuple(operators), tensors=tensors).without_unused(), tuple(copies)


def without_copies(graph: Graph, copies: Sequence[Copy]) -> Graph:
    """The network before: consumers of a copy read what the original makes."""
    of = {copy.name: copy.of for copy in copies}
    by_name = {op.name: op for op in graph.operators}
    original_of = {
        name: old
        for copy, original in of.items()
        for name, old in zip(by_name[copy].outputs, by_name[original].outputs, strict=True)
        if name
    }
    kept = (
        replace(op, inputs=tuple(original_of.get(name, name) for name in op.inputs))
        for op in graph.operators
        if op.name not in of
    )
    return replace(graph, operators=tuple(kept)).without_unused()
