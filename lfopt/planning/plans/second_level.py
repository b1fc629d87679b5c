"""Maps between groups that stay in a second level of memory, and their addresses there.

None of their bytes goes to DRAM. A map may stay that groups store and load, and that is no output of the
network: from the group that makes it to the last that reads it, it takes its rows, padded as in DRAM. What it
spares is every byte that the steps move of it, however often it is loaded. Graph inputs, graph outputs and
constants are in DRAM and stay there: each is moved at least once, and nothing here copies what a group has
loaded into the second level for the next.

`choose` walks the groups in their order with every set of maps that may be in the second level at once, and
what each set has spared so far. Where it kept all sets, and has addresses for the maps of the best one, no
other choice spares more: it is *exact*. Else it is a *heuristic*: sets beyond `WIDEST` are dropped, those
that spared the least first, and a choice without addresses gives up maps that spare little for the room they
take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lfopt.ir import (
    Hardware,
    L2Choice,
    Loop,
    Node,
    PlannedGroup,
    Transfer,
    counted_leaves,
    dram_bytes,
    l2_bytes,
    round_up,
)
from lfopt.ops import Dataflow
from lfopt.planning.plans.outlines import DRAM_ALIGN, loaded_maps, masks_of, stored_maps
from lfopt.planning.steps.addresses import Life, allocate

WIDEST = 4096  # sets of maps that are followed from one group to the next


class SecondLevelCandidate(NamedTuple):
    """A map that may stay in the second level."""

    name: str
    life: Life  # its bytes, and the groups from the one that makes it to the last that reads it
    spared: int  # bytes that the plan moves of it

    @property
    def density(self) -> float:
        """Bytes spared for each byte that it takes while a group runs."""
        return self.spared / max(self.life.bytes * (self.life.last - self.life.first + 1), 1)


@dataclass(frozen=True, slots=True)
class SecondLevelPlan:
    """Maps in the second level."""

    addresses: Mapping[str, int] = field(default_factory=dict[str, int])  # by map
    choice: L2Choice = "none"


def in_levels(
    flow: Dataflow, hardware: Hardware, groups: Sequence[PlannedGroup]
) -> tuple[tuple[PlannedGroup, ...], SecondLevelPlan]:
    """Groups on a chip with a second level, their transfers moved to it, and the maps that stay there."""
    level = choose(candidates(flow, hardware, groups), hardware.l2_bytes)
    return tuple(_moved_to(group, flow, level.addresses) for group in groups), level


def candidates(
    flow: Dataflow, hardware: Hardware, groups: Sequence[PlannedGroup]
) -> tuple[SecondLevelCandidate, ...]:
    """The maps that may stay, in the order of the groups that make them.

    What a group without steps reads or makes may not: it runs on DRAM.
    """
    moved: dict[str, int] = defaultdict(int)
    life: dict[str, tuple[int, int]] = {}
    written = {name for group in groups for name in stored_maps(flow, group)}
    written -= {flow.maps[m].name for m, is_output in enumerate(flow.is_output) if is_output}
    for k, group in enumerate(groups):
        if not group.steps:
            (mask,) = masks_of(flow, [group.nodes])
            written -= {*loaded_maps(flow, mask), *stored_maps(flow, group)}
        for times, step in counted_leaves(group.steps):
            if isinstance(step, Transfer) and step.kind in ("input", "output", "spill"):
                name = flow.behind[step.tensor]
                moved[name] += times * step.bytes
                life[name] = life.get(name, (k, k))[0], k
    maps = ((name, flow.maps[flow.map_index[name]]) for name in life if name in written)
    spilled = (
        SecondLevelCandidate(
            name, Life(round_up(hardware.dram_bytes(tensor), DRAM_ALIGN), *life[name]), moved[name]
        )
        for name, tensor in maps
    )
    return tuple(one for one in spilled if one.life.bytes)


def choose(offered: Sequence[SecondLevelCandidate], capacity: int) -> SecondLevelPlan:
    """The maps that stay in `capacity` bytes, with addresses: those that spare the most DRAM bytes.

    As far as the search went: see the module.
    """
    lines = capacity // DRAM_ALIGN * DRAM_ALIGN  # a map takes whole lines
    kept, complete = _most_spared(offered, lines)
    placed = _placed([offered[k] for k in kept], lines)
    if placed is not None:
        return SecondLevelPlan(placed, "exact" if complete else "heuristic")
    return SecondLevelPlan(_fewer([offered[k] for k in kept], offered, lines), "heuristic")


def _most_spared(offered: Sequence[SecondLevelCandidate], capacity: int) -> tuple[list[int], bool]:
    """(maps that spare the most, whether no set was dropped on the way).

    They never take more than `capacity` bytes at once, addresses aside.
    """
    born = defaultdict[int, list[int]](list)
    died = defaultdict[int, list[int]](list)
    for k, one in enumerate(offered):
        born[one.life.first].append(k)
        died[one.life.last].append(k)
    states = {0: (0, 0, 0)}  # maps that are there -> (bytes spared, bytes taken, all maps kept)
    complete = True
    for group in sorted({*born, *died}):
        for k in born[group]:
            size = offered[k].life.bytes
            spared = offered[k].spared
            for there, (before, taken, kept) in list(states.items()):
                if taken + size <= capacity:
                    states[there | 1 << k] = before + spared, taken + size, kept | 1 << k
            if len(states) > WIDEST:
                complete = False
                states = dict(sorted(states.items(), key=lambda state: -state[1][0])[:WIDEST])
        for k in died[group]:
            size = offered[k].life.bytes
            after = dict[int, tuple[int, int, int]]()
            for there, (spared, taken, kept) in states.items():
                left = there & ~(1 << k), (spared, taken - size * (there >> k & 1), kept)
                if left[0] not in after or after[left[0]][0] < spared:
                    after[left[0]] = left[1]
            states = after
    ((_, _, best),) = states.values()  # no map is left in the last set
    return [k for k in range(len(offered)) if best >> k & 1], complete


def _placed(kept: Sequence[SecondLevelCandidate], capacity: int) -> dict[str, int] | None:
    """Addresses of these maps; None where none were found below the end."""
    addresses, end = allocate([one.life for one in kept])
    if end <= capacity:
        return {one.name: address for one, address in zip(kept, addresses, strict=True)}
    return None


def _fewer(
    kept: Sequence[SecondLevelCandidate], offered: Sequence[SecondLevelCandidate], capacity: int
) -> dict[str, int]:
    """Addresses of as many maps as fit, by density.

    Of those kept, the least dense are given up until the rest fits; then others that fit join, the densest
    first.
    """
    rest = sorted(kept, key=lambda one: one.density)
    while (placed := _placed(rest, capacity)) is None:
        rest = rest[1:]
    for one in sorted(offered, key=lambda one: -one.density):
        if one not in rest and (larger := _placed([*rest, one], capacity)) is not None:
            rest = [*rest, one]
            placed = larger
    return placed


def _moved_to(group: PlannedGroup, flow: Dataflow, names: Mapping[str, int]) -> PlannedGroup:
    """The group with every transfer of these maps between the buffer and the second level."""
    steps = tuple(_moved(node, flow, names) for node in group.steps)
    if steps:
        return replace(group, steps=steps, dram=dram_bytes(steps), l2=l2_bytes(steps))
    return group


def _moved(node: Node, flow: Dataflow, names: Mapping[str, int]) -> Node:
    if isinstance(node, Loop):
        return replace(node, body=tuple(_moved(inner, flow, names) for inner in node.body))
    away = (
        isinstance(node, Transfer)
        and node.kind in ("input", "output", "spill")
        and flow.behind[node.tensor] in names
    )
    if isinstance(node, Transfer) and away:
        return replace(node, kind="l2")
    return node
