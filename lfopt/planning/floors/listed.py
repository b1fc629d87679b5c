"""Groups of the modes that few groups run in: all of them are looked at.

The floor of some operators is the smallest extra of all listed groups that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from lfopt.fusion import connected
from lfopt.ir import NEVER
from lfopt.ops import bits
from lfopt.planning.costs.covers import CoverCosts
from lfopt.planning.modes import ExecutionMode, PanelsMode
from lfopt.planning.modes.passes import GatedMode
from lfopt.planning.modes.sliced import SlicedMode
from lfopt.planning.panels.norms import NormGroup
from lfopt.planning.sliced.segments import Segment, Segments

MOST_LISTED = 6000  # groups; of more, nothing is known
MOST_READERS = 4  # contractions that read a normalisation; where there are more, nothing is known of them


@dataclass
class ListedGroup:
    """A group of a mode."""

    operators: int  # mask
    extra: int | None = None  # bytes beyond once; None: not worked out yet


class ListedGroups:
    """The groups of one mode, in any cover. What they move is worked out when it is asked for."""

    def __init__(
        self,
        covers: CoverCosts,
        name: str,
        modes: Sequence[ExecutionMode],
        kept: int,
        late: Callable[[], bool],
    ) -> None:
        """`name`: of the mode; `modes`: it, for the network as it is and with flights that may be others.

        `kept`: mask of maps that may stay on chip, and move for nothing then. `late`: whether the time is
        over; groups that are not looked at then count as if they moved everything once.
        """
        self.late = late
        self.covers = covers
        self.flow = covers.dataflow
        self.name = name
        self.kept = kept
        self._known: dict[Hashable, int] = {}
        # operators of which nothing is known where they are together
        self.unknown: list[int] = []
        self._by_operator: list[list[ListedGroup]] = [[] for _ in range(len(self.flow))]
        listed: set[int] = set()
        for operators in chain.from_iterable(map(self._groups, modes)):
            if operators in listed:
                continue
            if len(listed) == MOST_LISTED or late():
                self.unknown = [self.flow.everything]
                break
            listed.add(operators)
            group = ListedGroup(operators)
            for i in bits(operators):
                self._by_operator[i].append(group)

    def floor(self, operators: int) -> int:
        """Bytes beyond once of any of these groups that holds some operators; NEVER if none does."""
        if not operators:
            return 0
        for region in self.unknown:
            if not operators & ~region:
                return 0
        rarest = min(bits(operators), key=lambda i: len(self._by_operator[i]))
        least = NEVER
        for group in self._by_operator[rarest]:
            if not operators & ~group.operators:
                least = min(least, self._extra_of(group))
                if not least:
                    break
        return least

    # -- what there is ---------------------------------------------------------------------------------------

    def _groups(self, mode: ExecutionMode) -> Iterator[int]:
        """Masks of the groups that may run in the mode."""
        if isinstance(mode, SlicedMode):
            yield from self._segments(mode)
        elif isinstance(mode, GatedMode):
            self.unknown += mode.gates.others()
            yield from mode.find_candidates()
        elif isinstance(mode, PanelsMode):
            yield from self._norms(mode)

    def _segments(self, mode: SlicedMode) -> Iterator[int]:
        """Groups slice by slice, grown by index."""
        segments = mode.sliced.segments
        flow = segments.flow
        beta = self.covers.costs.hardware.buffer_bytes
        leads_to = _row_wise_descendants(segments)
        stack: list[tuple[int, Segment]] = []
        for first in range(len(flow)):
            begun = segments.grow(None, 0, first)
            if begun is not None:
                stack.append((1 << first, begun))
        while stack:
            if self.late():
                self.unknown = [flow.everything]
                return
            group, segment = stack.pop()
            if segment.least >= beta:
                continue
            if connected(flow.neighbours, group) and segments.of(group):
                yield group
            neighbours = 0
            dependents = 0
            for i in bits(group):
                neighbours |= flow.neighbours[i]
                dependents |= leads_to[i]
            for i in range(group.bit_length(), len(flow)):
                # two branches of what makes the source of the heads meet later
                meets = segment.head < 0 and segment.prologue and leads_to[i] & dependents
                if neighbours >> i & 1 or meets:
                    grown = segments.grow(segment, group, i)
                    if grown is not None:
                        stack.append((group | 1 << i, grown))

    def _norms(self, mode: PanelsMode) -> Iterator[int]:
        """Normalisations with some of the contractions that read them, and with their producer or not."""
        for norm in mode.norms.any_readers():
            if len(norm.readers) > MOST_READERS:
                self.unknown.append(norm.mask)
                continue
            for count in range(1, len(norm.readers) + 1):
                for readers in combinations(norm.readers, count):
                    yield NormGroup(norm.producer, norm.norm, readers).mask
                    yield NormGroup(-1, norm.norm, readers).mask

    # -- prices ----------------------------------------------------------------------------------------------

    def _extra_of(self, group: ListedGroup) -> int:
        """Bytes beyond once of a group; NEVER if it does not run so."""
        if group.extra is None:
            read = sum(1 << m for m in self.flow.arriving(group.operators))
            kept = tuple(self.kept >> m & 1 for m in bits(read))
            key = self.covers.structure(group.operators, self._ends(group.operators)), kept
            if key not in self._known:
                if self.late():
                    return 0
                self._known[key] = self._extra(group.operators, read & self.kept)
            group.extra = self._known[key]
        return group.extra

    def _extra(self, operators: int, kept: int) -> int:
        """Bytes beyond once of a group which stores as little as it may; NEVER if it does not run so.

        `kept`: the maps that it reads, and that may be on chip before. What it reads several times comes for
        nothing then.
        """
        ends = self._ends(operators)
        costs, group = self.covers.costs_of(operators, ends)
        names = {self.flow.maps[m].name for m in bits(kept)}
        prices_maps = isinstance(costs.modes[self.name], SlicedMode)  # by the bytes that groups give them
        if kept and prices_maps:
            costs = self.covers.alone(operators, ends, self.covers.costs.max_recompute)
            group = costs.dataflow.everything
            for m, tensor in enumerate(costs.dataflow.maps):
                if tensor.name in names:
                    costs.groups.map_bytes[m] = 0
        mode = costs.modes[self.name]
        once = sum(costs.groups.once_by_class(group))
        price = mode.price(group, costs.hardware.buffer_bytes, once)
        if price is None:
            return NEVER
        if kept and not prices_maps and not _reads_once(mode, group, names):
            return 0
        return max(price.dram_bytes - once, 0)

    def _ends(self, operators: int) -> int:
        """Mask of the maps that a group makes and does not read: it stores them, whatever else it stores."""
        flow = self.flow
        results = (m for i in bits(operators) for m in flow.results[i])
        return sum(1 << m for m in results if not flow.readers[m] & operators)


def _row_wise_descendants(segments: Segments) -> list[int]:
    """Per operator: mask of those that operators lead to from it that make a row from the same row each."""
    flow = segments.flow
    descendants = [0] * len(flow)
    for i in reversed(range(len(flow))):
        for reader in bits(flow.succs[i]):
            role = segments.roles[reader]
            if role is not None and role.row_wise:
                descendants[i] |= descendants[reader] | 1 << reader
    return descendants


def _reads_once(mode: ExecutionMode, group: int, kept: set[str]) -> bool:
    """Whether a group reads what is kept once in any case: the input of a gated block, whole on chip."""
    if not isinstance(mode, GatedMode):
        return False
    choices = mode.choices(group)
    if choices is None or choices.sizes.input < 0:
        return False
    return kept <= {choices.sizes.flow.maps[choices.sizes.input].name}
