"""Variants of a chain: its stages run in other ways, which move as many bytes in fewer cycles, or more bytes.

What stays on chip between the stages is the same in every variant. Of each stage the options are looked at
that no other beats in bytes and cycles. A variant takes more bytes where they save the most cycles.
"""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.planning.chains.points import StagePoint, StagePoints, lower_hull, steps_along
from lfopt.planning.modes import ChainPart, Linked

# bytes over those of the chain that its variants move, as shares of them
SHARES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
MOST_EXTRA = SHARES[-1]


def chain_variants(chain: Linked, points: StagePoints, most_extra: float = MOST_EXTRA) -> list[Linked]:
    """Variants of a chain, the fewest bytes first.

    `points`: of the stages of the network's chains. `most_extra`: bytes over those of the chain, as a share.
    """
    extra = int(most_extra * chain.dram.total)
    hulls = [_hull(part, points, extra) for part in chain.parts]
    chosen = [hull[0] for hull in hulls]
    variants: list[Linked | None] = []
    if any(point.option for point in chosen):
        variants.append(_joined(chain, chosen, points))
    steps = [(rate, number, point) for number, hull in enumerate(hulls) for rate, point in steps_along(hull)]
    spent = 0
    written = 0  # bytes over those of the chain of the last variant
    for share in (share for share in SHARES[1:] if share <= most_extra):
        while steps:
            best = max(steps, key=lambda step: step[0])
            _, number, point = best
            more = point.dram_bytes - chosen[number].dram_bytes
            if spent + more > share * chain.dram.total:
                break
            steps.remove(best)
            chosen[number] = point
            spent += more
        if spent > written:
            written = spent
            variants.append(_joined(chain, chosen, points))
    return [variant for variant in variants if variant is not None]


def _hull(part: ChainPart, points: StagePoints, extra: int) -> list[StagePoint]:
    """Points of a stage, as it is among them; `extra`: bytes that it may move over those."""
    stage, around = part
    as_it_is = StagePoint(stage.dram.total, points.cycles(stage.places, stage.nodes), None)
    room = points.ways.room(stage.mask, around)
    return lower_hull([as_it_is, *points.of(stage.mask, around, room, stage.dram.total + extra)])


def _joined(chain: Linked, chosen: Sequence[StagePoint], points: StagePoints) -> Linked | None:
    """The chain with these options; None where its stages do not fit together."""
    parts: list[ChainPart] = []
    for part, point in zip(chain.parts, chosen, strict=True):
        stage = part.stage if point.option is None else points.stage(part.stage.mask, part.around, point)
        if stage is None:
            return None
        parts.append(ChainPart(stage, part.around))
    outcome = points.ways.join(parts)
    return outcome if isinstance(outcome, Linked) else None
