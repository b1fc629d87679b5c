"""Why groups end where they do: what two groups as one would cost, or a group with an operator of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lfopt.app.needs import BufferNeed, BufferOccupant, need_of
from lfopt.fusion import connected_parts
from lfopt.ir import Cost
from lfopt.ops import OPAQUE, bits
from lfopt.planning import MODES, GroupCosts

BoundaryVerdict = Literal["overflows", "never", "cycle", "alone", "no gain", "gain"]
PARTS = 4  # of what overflows, named one by one


@dataclass(frozen=True, slots=True)
class GroupBoundary:
    """The maps that cross from one group to another, and what keeps the two apart."""

    before: int  # position of the group that writes
    after: int  # position of the group that reads
    maps: tuple[int, ...]  # by index in the dataflow
    verdict: BoundaryVerdict
    why: str  # one sentence
    needed: int = 0  # bytes of buffer, merged; 0 where merging them is not legal at all
    rings: int = 0  # bytes of all rings
    weights: int = 0  # bytes of all weights
    largest: tuple[BufferOccupant, ...] = ()  # the largest first
    # DRAM bytes moved less if they were one; where they overflow: in a buffer that is large enough
    saves: int = 0
    enough: int = 0  # the smallest buffer in which they run as one; 0 if there is none


@dataclass(frozen=True, slots=True)
class Growth:
    """What a group could take from a neighbour, and what would come of it."""

    group: int  # the neighbour's position
    operators: int  # mask of those taken: the whole neighbour, or one of its operators
    whole: bool
    cut: GroupBoundary


def cuts(costs: GroupCosts, groups: tuple[int, ...], modes: tuple[str, ...]) -> list[GroupBoundary]:
    """Every pair of groups with a map that one writes and the other reads, in order.

    Groups are masks, in an executable order.
    """
    merging = _Merging(costs, groups, modes)
    return [merging.cut(a, b) for a, b in sorted(merging.between)]


def growths(costs: GroupCosts, groups: tuple[int, ...], modes: tuple[str, ...], group: int) -> list[Growth]:
    """All that one group could take, what would save the most DRAM bytes first.

    That is every group that it touches, or reads a map with, and every operator of theirs next to it. An
    operator whose group could not do without it is left out.
    """
    flow = costs.dataflow
    merging = _Merging(costs, groups, modes)
    beside = 0
    for i in bits(groups[group]):
        beside |= flow.neighbours[i]
    options: list[Growth] = []
    for other, mask in enumerate(groups):
        if other == group or not mask & beside:
            continue
        options.append(Growth(other, mask, whole=True, cut=merging.cut(*sorted((group, other)))))
        for i in bits(mask & beside) if mask & (mask - 1) else ():
            if (parts := _without(costs, mask, i)) is not None:
                options.append(
                    Growth(
                        other,
                        1 << i,
                        whole=False,
                        cut=_taken(costs, groups, modes, (group, other), parts, 1 << i),
                    )
                )
    return sorted(options, key=lambda growth: -growth.cut.saves)


def _without(costs: GroupCosts, group: int, op: int) -> list[int] | None:
    """Parts of a group without one operator, and that operator, in an executable order; None if not legal."""
    flow = costs.dataflow
    before: list[int] = []
    behind: list[int] = []
    for part in connected_parts(flow.neighbours, group & ~(1 << op)):
        (before if part & flow.ancestors[op] else behind).append(part)
        if part & flow.ancestors[op] and part & flow.descendants[op] or costs.price(part) is None:
            return None
    return [*before, 1 << op, *behind]


def _taken(
    costs: GroupCosts,
    groups: tuple[int, ...],
    modes: tuple[str, ...],
    pair: tuple[int, int],
    parts: list[int],
    moved: int,
) -> GroupBoundary:
    """What would happen if the first group took an operator from the second, which falls into these parts."""
    group, other = pair
    divided = (*groups[:other], *parts, *groups[other + 1 :])
    named = (*range(other), *([other] * len(parts)), *range(other + 1, len(groups)))
    merging = _Merging(costs, divided, tuple(modes[g] for g in named), named)
    a, b = sorted((divided.index(groups[group]), divided.index(moved)))
    kept = sum(costs.dram(part).total for part in parts if part != moved)
    return merging.cut(a, b, separate_bytes=sum(costs.dram(groups[g]).total for g in pair) - kept)


class _Merging:
    """Groups in an executable order, and what happens if two of them become one."""

    def __init__(
        self,
        costs: GroupCosts,
        groups: tuple[int, ...],
        modes: tuple[str, ...],
        named: Sequence[int] | None = None,
    ) -> None:
        flow = costs.dataflow
        self.costs = costs
        self.groups = groups
        self.modes = modes
        self.named = named if named is not None else range(len(groups))  # how each is called
        owner = {i: g for g, group in enumerate(groups) for i in bits(group)}
        # maps, by the group that writes and one that reads
        self.between: dict[tuple[int, int], list[int]] = {}
        for m, producer in enumerate(flow.producer):
            for g in sorted({owner[reader] for reader in bits(flow.readers[m])}) if producer >= 0 else ():
                if g != owner[producer]:
                    self.between.setdefault((owner[producer], g), []).append(m)
        self.next_to = [0] * len(groups)  # masks of groups
        for a, b in self.between:
            self.next_to[a] |= 1 << b
        self.reach = list(self.next_to)
        for g in reversed(range(len(groups))):
            for after in bits(self.next_to[g]):
                self.reach[g] |= self.reach[after]

    def cut(self, a: int, b: int, separate_bytes: int | None = None) -> GroupBoundary:
        """Two groups as one, the earlier first.

        `separate_bytes`: DRAM bytes that they move now, if not those that the two move as they are.
        """
        costs = self.costs
        flow = self.costs.dataflow
        groups = self.groups
        maps = tuple(self.between.get((a, b), ()))
        a_name = self.named[a]
        b_name = self.named[b]
        for g in (a, b):
            first = flow.operators[next(bits(groups[g]))]
            if not MODES[self.modes[g]].counted:
                return GroupBoundary(
                    a_name,
                    b_name,
                    maps,
                    "alone",
                    f"The weights of {first.name} reach the size of the buffer; traffic paper leaves it out.",
                )
            if any(flow.specs[i] is OPAQUE for i in bits(groups[g])):
                return GroupBoundary(
                    a_name,
                    b_name,
                    maps,
                    "alone",
                    f"{first.kind} is an operator that lfopt does not know: it always runs alone.",
                )
        merged = groups[a] | groups[b]
        if separate_bytes is None:
            separate_bytes = sum(costs.dram(groups[g]).total for g in (a, b))
        detour = next((self.named[c] for c in bits(self.next_to[a]) if self.reach[c] >> b & 1), None)
        if detour is not None:
            who = f"Group {detour}" if detour not in (a_name, b_name) else f"The rest of group {detour}"
            why = f"{who} reads from group {a_name} and feeds group {b_name}, directly or through others"
            why += ": it would have to run in the middle of the two."
            return GroupBoundary(
                a_name,
                b_name,
                maps,
                "cycle",
                why,
                saves=separate_bytes - self.costs.groups.once(merged).total,
            )
        if (price := costs.price(merged)) is not None:
            return _fits(costs, (a_name, b_name), maps, merged, price, separate_bytes)
        return _overflow(
            (a_name, b_name),
            maps,
            need_of(costs, merged),
            separate_bytes - self.costs.groups.once(merged).total,
        )


def _overflow(pair: tuple[int, int], maps: tuple[int, ...], need: BufferNeed, saves: int) -> GroupBoundary:
    if need.never:
        return GroupBoundary(*pair, maps, "never", f"No buffer is large enough: {need.never}.", saves=saves)
    rings = [use for use in need.uses if use.role != "weights"]
    ring_bytes = sum(use.bytes for use in rings)
    weight_bytes = need.bytes - ring_bytes
    shares = sorted(
        (
            (weight_bytes, f"weights {_b(weight_bytes)}"),
            (ring_bytes, f"rows of {len(rings)} maps {_b(ring_bytes)}"),
        ),
        reverse=True,
    )
    head = f"Together they need {_b(need.bytes)}, {_b(need.over)} more than fits: " + ", ".join(
        text for size, text in shares if size
    )
    most = f"; the most for {named(need.uses[0])}, {_b(need.uses[0].bytes)}" if need.uses else ""
    return GroupBoundary(
        *pair,
        maps,
        "overflows",
        f"{head}{most}.",
        need.bytes,
        ring_bytes,
        weight_bytes,
        need.uses[:PARTS],
        saves,
        need.enough,
    )


def _fits(
    costs: GroupCosts,
    pair: tuple[int, int],
    maps: tuple[int, ...],
    merged: int,
    price: Cost,
    separate_bytes: int,
) -> GroupBoundary:
    gain = separate_bytes - price.dram_bytes
    room = f"They fit together in {_b(price.buffer_bytes)}"
    need = need_of(costs, merged)
    room_needed = {"largest": need.uses[:PARTS], "enough": need.enough}
    if gain > 0:
        why = f"{room} and would move {_b(gain)} less: the search that made this plan missed it."
        return GroupBoundary(*pair, maps, "gain", why, price.buffer_bytes, saves=gain, **room_needed)
    how = f"move {_b(-gain)} more" if gain else "move as many bytes"
    tiled = ", because they would have to be tiled" if not MODES[price.mode].whole else ""
    return GroupBoundary(
        *pair,
        maps,
        "no gain",
        f"{room}, but would {how}{tiled}.",
        price.buffer_bytes,
        saves=gain,
        **room_needed,
    )


def named(use: BufferOccupant) -> str:
    """What takes space, in words."""
    if use.rows:
        return f"{use.rows} row{'s' * (use.rows > 1)} of {use.what}"
    return f"the weights of {use.what}"


def _b(size: int) -> str:
    """Bytes that no line break tears apart."""
    return f"{size:,}\u00a0B"
