"""Maps that lie within others, as strided aliases, so that nothing copies them.

What Transpose, Slice, Split and Gather by one index make of a map is there already: consumers read through
strides. Parts of a Concat are written where it wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from codegen.kernels.table import KERNELS, ON_IMAGES
from codegen.layout import MapLayout, split_starts, tensor_of
from codegen.source import Unsupported
from lfopt.ir import Tensor, row_axis
from lfopt.ops import Call, Dataflow, Family, bits
from lfopt.ops.parameters import permutation, slice_steps
from lfopt.planning.cpu.schedule import RowComputation

Runs = Sequence[Sequence[RowComputation]]


class Alias(NamedTuple):
    """Location of a map within another."""

    map: int  # that holds it, and lies by itself
    offset: int = 0  # elements
    read: bool = False  # whether it is there before its operator would copy it
    written: bool = False  # whether it is made where a Concat that reads it would copy it to


@dataclass(frozen=True)
class AliasMap:
    """The maps that lie within others, and how all maps lie."""

    flow: Dataflow
    layouts: Sequence[MapLayout]  # of all maps
    aliases: Mapping[int, Alias]

    def holder(self, m: int) -> Alias:
        """The alias of a map; of one that lies by itself, itself."""
        return self.aliases.get(m, Alias(m))

    def is_idle(self, i: int) -> bool:
        """Whether nothing is left to do for an operator."""
        return len(self.aliased(i)) == (
            len(self.flow.calls[i].operator.inputs)
            if self.flow.operators[i].kind == "Concat"
            else len(self.flow.results[i])
        )

    def aliased(self, i: int) -> set[int]:
        """Operands of a Concat, or results of others, that are where the operator would copy them."""
        if self.flow.operators[i].kind == "Concat":
            return {o.map for o in self.flow.operands[i] if self.holder(o.map).written}
        return {m for m in self.flow.results[i] if self.holder(m).read}


def alias(
    flow: Dataflow, layouts: Sequence[MapLayout], in_memory: AbstractSet[int], runs: Callable[[int], Runs]
) -> AliasMap:
    """Find the maps that can lie within others.

    `layouts`: of all maps, as they would lie by themselves; `in_memory`: maps that lie in memory as a whole;
    `runs`: the steps of the group of an operator, where maps lie in rings. Concats come first, the last of
    them before those that it joins again.
    """
    search = _Search(flow, in_memory, runs, [*layouts], {})
    for i in reversed(range(len(flow))):
        if flow.operators[i].kind == "Concat" and flow.calls[i].result_tensors[0].quantization is None:
            search.join(i)
    for i in range(len(flow)):
        search.look_through(i)
    return AliasMap(flow, tuple(search.layouts), search.aliases)


@dataclass
class _Search:
    """Aliases found so far, and the layouts that they give to maps."""

    flow: Dataflow
    in_memory: AbstractSet[int]
    runs: Callable[[int], Runs]
    layouts: list[MapLayout]
    aliases: dict[int, Alias]

    def holder(self, m: int) -> Alias:
        return self.aliases.get(m, Alias(m))

    # -- there already ---------------------------------------------------------------------------------------

    def look_through(self, i: int) -> None:
        """Let what an operator makes lie in what it reads."""
        flow = self.flow
        call = self.flow.calls[i]
        for m, layout, offset in seen_through(flow, self.layouts, i):
            source = flow.operands[i][0].map
            base = self.holder(source)
            alike = call.result_tensors[0].quantization == flow.maps[source].quantization
            if (
                m in self.aliases
                or flow.is_output[m]
                or not flow.maps[m].elements
                or base.map not in self.in_memory
                or not alike
            ):
                continue
            if layout.sequence == self.layouts[m].sequence and (
                not layout.alias_strides or _read(flow, m, layout)
            ):
                self.aliases[m] = Alias(base.map, base.offset + offset, read=True)
                self.layouts[m] = layout

    # -- parts of a Concat -----------------------------------------------------------------------------------

    def join(self, i: int) -> None:
        """Alias what a Concat reads, and no other operator does, to its place in the result."""
        flow, call, (joined,) = self.flow, self.flow.calls[i], self.flow.results[i]
        layout = self.layouts[joined]
        base = self.holder(joined)
        start = 0
        axis = call.attribute("axis", 0) % len(call.result)
        maps = {o.input: o.map for o in flow.operands[i]}
        for index in range(len(call.operator.inputs)):
            m = maps.get(index, -1)
            first = base.offset + start * layout.strides[axis]
            start += call.shape(index)[axis]
            if m < 0 or not self._is_free(m, i) or [*maps.values()].count(m) > 1:
                continue
            place = _spaced(tensor_of(call, index), layout.order, layout.strides).seen(flow.maps[m])
            if place is None or not self._can_write(m, place):
                continue
            place = self._usual(m, place)
            moved = (
                m in self.in_memory
                or axis == row_axis(call.result)
                or place.sequence != self.layouts[m].sequence
            )
            if base.map in self.in_memory or not (moved or not in_turn(flow, self.runs(i), m, base.map)):
                self.aliases[m] = Alias(base.map, first, written=True)
                self.layouts[m] = place
                self._turn(m)

    def _is_free(self, m: int, reader: int) -> bool:
        """Whether a map can lie anywhere for all but one reader."""
        flow = self.flow
        alone = flow.readers[m] == 1 << reader and not flow.is_output[m]
        return alone and m not in self.aliases and flow.producer[m] >= 0 and flow.maps[m].elements > 0

    def _usual(self, m: int, place: MapLayout) -> MapLayout:
        """The same location, with axes of one element ordered as the map has them."""
        if place.sequence == self.layouts[m].sequence:
            return MapLayout(place.tensor, self.layouts[m].order, place.alias_strides)
        return place

    def _can_write(self, m: int, place: MapLayout) -> bool:
        """Whether the operator that makes a map writes it there as well as anywhere."""
        maker = self.flow.operators[self.flow.producer[m]].kind
        return (place.sequence == self.layouts[m].sequence or maker == "Transpose") and (
            not place.alias_strides or _written(self.flow, m, place)
        )

    def _turn(self, m: int) -> None:
        """Where a Transpose makes a part, alias what it reads there too, permuted."""
        flow = self.flow
        i = self.flow.producer[m]
        base = self.aliases[m]
        if flow.operators[i].kind != "Transpose" or base.map not in self.in_memory:
            return
        source = flow.operands[i][0].map
        place = self.layouts[m]
        axes = permutation(flow.calls[i])
        steps = [0] * len(axes)
        for k, axis in enumerate(axes):
            steps[axis] = place.strides[k]
        before = _spaced(tensor_of(flow.calls[i], 0), [axes[k] for k in place.order], steps).seen(
            flow.maps[source]
        )
        if before is not None and self._is_free(source, i) and self._can_write(source, before):
            before = self._usual(source, before)
            self.aliases[source], self.aliases[m] = Alias(base.map, base.offset), base._replace(read=True)
            self.layouts[source] = before
            self._turn(source)


def even(layout: MapLayout) -> bool:
    """Whether all pixels lie equally far apart."""
    try:
        return layout.whole.channels > 0 and layout.extents.rows > 0
    except Unsupported:
        return False


def _spaced(tensor: Tensor, order: Sequence[int], steps: Sequence[int]) -> MapLayout:
    """The layout with these strides; with none of its own where the elements lie side by side."""
    side_by_side = MapLayout(tensor, tuple(order))
    same = all(
        a == b or extent == 1 for a, b, extent in zip(side_by_side.strides, steps, tensor.shape, strict=True)
    )
    if same:
        return side_by_side
    return MapLayout(tensor, tuple(order), tuple(steps))


# -- reading -------------------------------------------------------------------------------------------------


def seen_through(flow: Dataflow, layouts: Sequence[MapLayout], i: int) -> list[tuple[int, MapLayout, int]]:
    """Results of an operator that are an operand reordered, or a part of it.

    Each as (map, its layout within the operand, elements before its first).
    """
    call = flow.calls[i]
    kind = flow.operators[i].kind
    if kind not in THROUGH or [o.input for o in flow.operands[i]] != [0]:
        return []
    whole = layouts[flow.operands[i][0].map].seen(tensor_of(call, 0))
    if whole is None:
        return []
    return [(m, *part) for m, part in zip(flow.results[i], THROUGH[kind](call, whole), strict=False)]


Seen = Sequence[tuple[MapLayout, int]]


def _transposed(call: Call, whole: MapLayout) -> Seen:
    return [(whole.permuted(permutation(call), call.result_tensors[0]), 0)]


def _split(call: Call, whole: MapLayout) -> Seen:
    step = whole.strides[call.attribute("axis", 0) % len(whole.shape)]
    return [
        (_spaced(tensor, whole.order, whole.strides), start * step)
        for tensor, start in zip(call.result_tensors, split_starts(call), strict=True)
    ]


def _sliced(call: Call, whole: MapLayout) -> Seen:
    moves = slice_steps(call)
    if moves is None or any(step < 0 for _, step in moves):
        return []
    steps = [by * step for by, (_, step) in zip(whole.strides, moves, strict=True)]
    return [
        (
            _spaced(call.result_tensors[0], whole.order, steps),
            sum(by * first for by, (first, _) in zip(whole.strides, moves, strict=True)),
        )
    ]


def _taken(call: Call, whole: MapLayout) -> Seen:
    axis = call.attribute("axis", 0) % len(whole.shape)
    index = call.values[1]
    if index is None or index.size != 1 or not -whole.shape[axis] <= index.item() < whole.shape[axis]:
        return []
    ones = index.ndim  # axes that stand in the place of the one that is gone
    moved = {k: k if k < axis else k - 1 + ones for k in whole.order if k != axis}
    steps = [0] * len(call.result)
    for k, to in moved.items():
        steps[to] = whole.strides[k]
    place = int(index.item()) % whole.shape[axis]
    return [
        (
            _spaced(call.result_tensors[0], (*range(axis, axis + ones), *moved.values()), steps),
            place * whole.strides[axis],
        )
    ]


THROUGH: dict[str, Callable[[Call, MapLayout], Seen]] = {
    "Gather": _taken,
    "Slice": _sliced,
    "Split": _split,
    "Transpose": _transposed,
}


def _read(flow: Dataflow, m: int, layout: MapLayout) -> bool:
    """Whether all consumers of a map can read it through these strides, as well as they could read a copy."""
    for i in bits(flow.readers[m]):
        call = flow.calls[i]
        maps = flow.operands[i]
        elementwise = flow.specs[i].elementwise
        kind = call.operator.kind
        for seen in (layout.seen(tensor_of(call, operand.input)) for operand in maps if operand.map == m):
            if seen is None or not (
                call.result_tensors[0].quantization is layout.tensor.quantization is None
            ):
                return False
            anyhow = (
                flow.specs[i].family is Family.MOVE
                or (kind == "MatMul" and len(maps) == 2)
                or (elementwise and len(maps) == 1)
            )
            if (elementwise and seen.shape != call.result) or not (
                anyhow or ((elementwise or kind in KERNELS) and even(seen))
            ):
                return False
    return True


# -- writing -------------------------------------------------------------------------------------------------


def _written(flow: Dataflow, m: int, layout: MapLayout) -> bool:
    """Whether the producer of a map can write it at these strides.

    That holds of the fused kernel that may end there, down to its anchor: all of it has the shape of the map.
    """
    i = flow.producer[m]
    kind = flow.operators[i].kind
    rank = len(layout.shape)
    if not flow.specs[i].elementwise:
        return kind != "Transpose" and (
            even(layout) or kind not in KERNELS or (kind in ON_IMAGES and rank != 4)
        )
    for operand in flow.operands[i]:
        other = flow.maps[operand.map]
        if other.elements != layout.tensor.elements:
            continue
        if other.shape != layout.shape or flow.calls[i].shape(operand.input) != layout.shape:
            return False
        if (
            flow.producer[operand.map] >= 0
            and flow.readers[operand.map] == 1 << i
            and not _written(flow, operand.map, layout)
        ):
            return False
    return True


def in_turn(flow: Dataflow, runs: Runs, part: int, ring: int) -> bool:
    """Whether rows of a part and of the map that shall hold it are always made one after the other.

    No consumer reads others in between.

    No consumer reads others in between.
    """
    maker = flow.producer[part]
    joins = flow.producer[ring]
    read = flow.readers[ring]
    for run in runs:
        rows: tuple[object, ...] | None = None
        for step in run:
            if step.operator == maker:
                if rows is not None:
                    return False
                rows = step[1:]
            elif step.operator == joins:
                if rows != step[1:]:
                    return False
                rows = None
            elif rows is not None and read >> step.operator & 1:
                return False
        if rows is not None:
            return False
    return True
