"""Why groups end where they end: for each pair of groups with a map between them, what would happen if they were one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lfopt.ir import Cost, DoesNotFit
from lfopt.ops import OPAQUE, bits
from lfopt.planning import GroupCosts

Verdict = Literal["overflows", "cycle", "alone", "no gain", "gain"]
PARTS = 4  # of what overflows, named one by one


@dataclass(frozen=True, slots=True)
class Part:
    """Something that takes space in the buffer."""

    what: str  # the ring of a map, or an operator's weights
    rows: int  # of a ring; 0 for weights
    bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The maps that cross from one group to another, and what keeps the two apart."""

    before: int  # position of the group that writes
    after: int  # position of the group that reads
    maps: tuple[int, ...]  # by index in the dataflow
    verdict: Verdict
    why: str  # one sentence
    needed: int = 0  # bytes of buffer, merged; 0 where merging them is not legal at all
    rings: int = 0  # bytes of all rings
    weights: int = 0  # bytes of all weights
    largest: tuple[Part, ...] = ()  # the largest first


def cuts(costs: GroupCosts, groups: tuple[int, ...], modes: tuple[str, ...]) -> list[Cut]:
    """Every pair of groups with a map that one writes and the other reads, in order. Groups are masks, in an executable order."""
    flow = costs.dataflow
    owner = {i: g for g, group in enumerate(groups) for i in bits(group)}
    between: dict[tuple[int, int], list[int]] = {}
    for m, producer in enumerate(flow.producer):
        for g in sorted({owner[reader] for reader in bits(flow.readers[m])}) if producer >= 0 else ():
            if g != owner[producer]:
                between.setdefault((owner[producer], g), []).append(m)
    next_to = [0] * len(groups)  # masks of groups
    for a, b in between:
        next_to[a] |= 1 << b
    reach = list(next_to)
    for g in reversed(range(len(groups))):
        for after in bits(next_to[g]):
            reach[g] |= reach[after]
    found: list[Cut] = []
    for (a, b), maps in sorted(between.items()):
        detour = next((c for c in bits(next_to[a]) if reach[c] >> b & 1), None)
        found.append(_cut(costs, groups, modes, (a, b), tuple(maps), detour))
    return found


def _cut(costs: GroupCosts, groups: tuple[int, ...], modes: tuple[str, ...], pair: tuple[int, int], maps: tuple[int, ...], detour: int | None) -> Cut:
    flow, (a, b) = costs.dataflow, pair
    for g in pair:
        first = flow.operators[next(bits(groups[g]))]
        if modes[g] == "excluded":
            return Cut(a, b, maps, "alone", f"The weights of {first.name} reach the size of the buffer; traffic paper leaves it out.")
        if any(flow.specs[i] is OPAQUE for i in bits(groups[g])):
            return Cut(a, b, maps, "alone", f"{first.kind} is an operator that lfopt does not know: it always runs alone.")
    if detour is not None:
        why = f"Group {detour} reads from group {a} and feeds group {b}, directly or through others: it would have to run in the middle of the two."
        return Cut(a, b, maps, "cycle", why)
    merged = costs.evaluate(groups[a] | groups[b])
    if isinstance(merged, DoesNotFit):
        return _overflow(pair, maps, merged)
    return _fits(costs, groups, pair, maps, merged)


def _overflow(pair: tuple[int, int], maps: tuple[int, ...], merged: DoesNotFit) -> Cut:
    rings = [Part(need.tensor, need.rows, need.buffer_bytes) for need in merged.per_tensor]
    weights = [Part(operator, 0, size) for operator, size in merged.per_weight if size]
    ring_bytes, weight_bytes = sum(r.bytes for r in rings), merged.needed - sum(r.bytes for r in rings)
    largest = sorted(rings + weights, key=lambda part: -part.bytes)[:PARTS]
    over = merged.needed - merged.available + 1
    shares = sorted(((weight_bytes, f"weights {_b(weight_bytes)}"), (ring_bytes, f"rows of {len(rings)} maps {_b(ring_bytes)}")), reverse=True)
    head = f"Together they need {_b(merged.needed)}, {_b(over)} more than fits: " + ", ".join(text for size, text in shares if size)
    what = largest[0] if largest else None
    most = f"; the most for {_named(what)}, {_b(what.bytes)}" if what else ""
    return Cut(*pair, maps, "overflows", f"{head}{most}.", merged.needed, ring_bytes, weight_bytes, tuple(largest))


def _fits(costs: GroupCosts, groups: tuple[int, ...], pair: tuple[int, int], maps: tuple[int, ...], merged: Cost) -> Cut:
    apart = sum(costs.dram(groups[g]).total for g in pair)
    gain = apart - merged.dram_bytes
    room = f"They fit together in {_b(merged.buffer_bytes)}"
    if gain > 0:
        return Cut(*pair, maps, "gain", f"{room} and would move {_b(gain)} less: the search that made this plan missed it.", merged.buffer_bytes)
    how = f"move {_b(-gain)} more" if gain else "move as many bytes"
    tiled = ", because they would have to be tiled" if merged.mode == "tiled" else ""
    return Cut(*pair, maps, "no gain", f"{room}, but would {how}{tiled}.", merged.buffer_bytes)


def _named(part: Part) -> str:
    return f"{part.rows} row{'s' * (part.rows > 1)} of {part.what}" if part.rows else f"the weights of {part.what}"


def _b(size: int) -> str:
    """Bytes that no line break tears apart."""
    return f"{size:,}\u00a0B"
