"""Access patterns: operators that only move data, read through by those behind them.

What a Transpose, Split, Slice, Concat, DepthToSpace, SpaceToDepth or a Gather by one constant index makes is
there already, in the maps behind it. A reader can take it from there, in strided pieces
(`lfopt.ops.pieces`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate

from lfopt.ir import Graph, InvalidPlan
from lfopt.ops.call import Call
from lfopt.ops.dataflow import maps_behind
from lfopt.ops.parameters import permutation, slice_steps, split_sizes
from lfopt.ops.pieces import Access, AccessPiece, along, every, permuted, reshaped, stored_whole
from lfopt.ops.table import spec

MOST_PIECES = 64  # of a tensor behind all that may be read through

Sources = Sequence[Access]  # of the operands, in ONNX order


def _transpose(call: Call, sources: Sources) -> list[Access] | None:
    return [permuted(sources[0], permutation(call))]


def _split(call: Call, sources: Sources) -> list[Access] | None:
    sizes = split_sizes(call)
    if sizes is None:
        return None
    axis = call.attribute("axis", 0) % len(call.shape(0))
    starts = accumulate(sizes, initial=0)
    return [
        along(sources[0], axis, start, start + size)
        for start, size, name in zip(starts, sizes, call.operator.outputs, strict=False)
        if name
    ]


def _concat(call: Call, sources: Sources) -> list[Access] | None:
    axis = call.attribute("axis", 0) % len(call.result)
    joined: list[AccessPiece] = []
    start = 0
    for k, access in enumerate(sources):
        for piece in access:
            low, high = piece.box[axis]
            joined.append(piece.spanning(axis, (start + low, start + high), 0, piece.loops[axis]))
        start += call.shape(k)[axis]
    return [tuple(joined)]


def _slice(call: Call, sources: Sources) -> list[Access] | None:
    steps = slice_steps(call)
    if steps is None:
        return None
    access = sources[0]
    for axis, ((start, step), extent) in enumerate(zip(steps, call.result, strict=True)):
        if (start, step, extent) != (0, 1, call.shape(0)[axis]):
            access = every(access, axis, range(start, start + step * extent, step))
    return [access]


def _gather(call: Call, sources: Sources) -> list[Access] | None:
    """By one index: a list of them counts as weights, which somebody has to move."""
    indices = call.values[1]
    if indices is None or indices.size != 1 or call.constant[0]:
        return None
    shape = call.shape(0)
    axis = call.attribute("axis", 0) % len(shape)
    index = int(indices.reshape(())) % shape[axis]
    picked = (*shape[:axis], 1, *shape[axis + 1 :])
    return [reshaped(along(sources[0], axis, index, index + 1), picked, call.result)]


def _depth_to_space(call: Call, sources: Sources) -> list[Access] | None:
    n, c, h, w = call.shape(0)
    block = call.attribute("blocksize", 1)
    depth_first = call.attribute("mode", "DCR") == "DCR"
    blocks = (block, block, c // block**2) if depth_first else (c // block**2, block, block)
    order = (0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3)
    return [_rearranged(sources[0], call.shape(0), (n, *blocks, h, w), order, call.result)]


def _space_to_depth(call: Call, sources: Sources) -> list[Access] | None:
    n, c, h, w = call.shape(0)
    block = call.attribute("blocksize", 1)
    order = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = (n, c, h // block, block, w // block, block)
    return [_rearranged(sources[0], call.shape(0), blocks, order, call.result)]


def _rearranged(
    access: Access, shape: Sequence[int], blocks: Sequence[int], order: Sequence[int], result: Sequence[int]
) -> Access:
    """The elements in blocks, whose axes change their order."""
    turned = permuted(reshaped(access, shape, blocks), order)
    return reshaped(turned, [blocks[axis] for axis in order], result)


RULES: Mapping[str, Callable[[Call, Sources], list[Access] | None]] = {
    "Transpose": _transpose,
    "Split": _split,
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}


class AccessPatterns:
    """How tensors are read of which operators of a network are not executed, but read through."""

    def __init__(self, graph: Graph, *, by_rows: bool = False) -> None:
        """Nothing is read through at first. `by_rows`: maps lie row after row, not in ONNX's order."""
        self.graph = graph
        self.by_rows = by_rows
        # tensors made by operators that are read through, and views of them
        self.known: dict[str, Access] = {}

    @classmethod
    def through(cls, graph: Graph, operators: Collection[str], *, by_rows: bool = False) -> AccessPatterns:
        """`operators`: those that are read through, by name.

        Raises InvalidPlan for one through which nothing can be read, and where a tensor lies in too many
        pieces.
        """
        accesses = cls(graph, by_rows=by_rows)
        for operator in graph.operators if operators else ():
            if spec(operator.kind, operator.domain).view:
                accesses.known |= accesses.view(operator.inputs[0], operator.outputs[0])
            elif operator.name in operators:
                results = accesses.results(Call.of(graph, operator))
                if results is None:
                    raise InvalidPlan(f"node {operator.name!r} ({operator.kind}) cannot be read through")
                accesses.known |= results
        return accesses

    @cached_property
    def behind(self) -> dict[str, str]:
        """See `maps_behind`."""
        return maps_behind(self.graph)

    def of(self, name: str) -> Access:
        """The pieces of a tensor: of one that is stored itself, a single one."""
        if name in self.known:
            return self.known[name]
        stored = self.graph.tensors[self.behind.get(name, name)]
        return reshaped(stored_whole(stored, by_rows=self.by_rows), stored.shape, self.graph.shape(name))

    def view(self, source: str, name: str) -> dict[str, Access]:
        """The pieces of a view of a tensor that is read through, by name; nothing of others.

        Raises TooManyPieces.
        """
        if source not in self.known:
            return {}
        return {name: reshaped(self.known[source], self.graph.shape(source), self.graph.shape(name))}

    def results(self, call: Call) -> dict[str, Access] | None:
        """The pieces of an operator's results, by name; None where they cannot be read through it.

        Raises TooManyPieces.
        """
        rule = RULES.get(call.operator.kind)
        data = [k for k in range(len(call.operator.inputs)) if call.operator.kind == "Concat" or k == 0]
        operands = [call.operator.inputs[k] for k in data]
        if rule is None or call.then or call.attention is not None or call.operator.domain:
            return None
        first = call.tensors[0]
        alike = [call.tensors[k] for k in data]
        if first is None or first.dtype == "string" or call.constant[0] and len(data) == 1:
            return None
        kinds = {(t.dtype, t.quantization) for t in (*alike, *call.result_tensors) if t is not None}
        if len(kinds) > 1:  # integers of another scale are computed anew
            return None
        pieces = rule(call, [self.of(name) for name in operands])
        names = [name for name in call.operator.outputs if name]
        if pieces is None:
            return None
        return dict(zip(names, pieces, strict=True))

    def sources(self, name: str) -> frozenset[str]:
        """The stored maps and constants that a tensor lies in."""
        return frozenset(piece.source for piece in self.of(name))
