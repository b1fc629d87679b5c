"""Pictures of pairs of groups that do not fit as one: the scores of their links, and the cheapest cut."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from explainers.graph import links
from lfopt.app.explain import Blame, Explainers, blame, repair
from lfopt.app.report.cuts import GroupBoundary
from lfopt.app.report.layout import draw
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts

ASPECT = 1.6  # of a picture: width to height
STRETCH = 1.5  # along the flow, so that links between neighbours are long enough to see
DIGITS = 4  # of a score
# for the exact search for the best cut of one pair, where the plan is not proven to have it
CUTTING_SECONDS = 0.5
PICTURED = ("overflows", "never")  # verdicts
Data = dict[str, Any]


def pictures(
    costs: GroupCosts,
    groups: Sequence[int],
    cuts: Sequence[GroupBoundary],
    by: Explainers,
    *,
    optimal: bool,
    seconds: float,
) -> list[Data]:
    """A picture for each pair of groups that does not fit as one, what would save the most DRAM bytes first.

    There are as many as `seconds` allow. Where the plan is optimal, it cuts each pair best: a better cut of a
    pair would make a better plan.
    """
    deadline = time.perf_counter() + seconds
    drawings: list[Data] = []
    wanted = [k for k, cut in enumerate(cuts) if cut.verdict in PICTURED]
    for k in sorted(wanted, key=lambda k: -cuts[k].saves):
        if time.perf_counter() >= deadline:
            break
        pair = groups[cuts[k].before], groups[cuts[k].after]
        blames = [
            blame(costs, pair[0] | pair[1], name, *scores_and_splits)
            for name, scores_and_splits in by.by_name.items()
        ]
        if optimal:
            best: Data = {
                "parts": _parts(pair),
                "bytes": sum(costs.dram(group).total for group in pair),
                "proven": True,
                "by": "plan",
            }
        else:
            splits: dict[str, tuple[int, ...] | None] = {b.explainer: b.groups for b in blames}
            cheapest = repair(costs, pair[0] | pair[1], splits | {"plan": pair}, CUTTING_SECONDS)
            best = {
                "parts": _parts(cheapest.groups),
                "bytes": cheapest.dram_bytes,
                "proven": cheapest.optimal,
                "by": cheapest.by,
            }
        drawings.append(
            {
                "cut": k,
                **_drawn(costs.dataflow, pair[0] | pair[1]),
                "best": best,
                "by": {b.explainer: _said(b) for b in blames},
            }
        )
    return drawings


def _drawn(flow: Dataflow, mask: int) -> Data:
    """Operators, links between them, and where they are drawn.

    Links between two readers of a map come without a route.
    """
    operators = [*bits(mask)]
    pairs: list[tuple[int, int]] = [(u, v) for u, v in links(flow, mask).T.tolist()]
    direct = [flow.preds[operators[v]] >> operators[u] & 1 == 1 for u, v in pairs]
    (drawing,) = draw(
        [pair for pair, drawn in zip(pairs, direct, strict=True) if drawn],
        [0] * len(operators),
        [ASPECT / STRETCH],
    )
    routes = iter(drawing.routes)
    return {
        "ops": operators,
        "links": [end for pair in pairs for end in pair],
        "size": [round(drawing.width * STRETCH), drawing.height],
        "nodes": _stretched(drawing.nodes),
        "routes": [_stretched(next(routes)) if drawn else None for drawn in direct],
    }


def _stretched(points: Iterable[tuple[int, int]]) -> list[int]:
    return [value for x, y in points for value in (round(x * STRETCH), y)]


def _said(scored: Blame) -> Data:
    scores = [None if score == -np.inf else float(f"{score:.{DIGITS}g}") for score in scored.scores.tolist()]
    if scored.explainer == "analytic":
        scores = [round(score) for score in scored.scores.tolist()]
    return {
        "scores": scores,
        "parts": _parts(scored.groups) if scored.groups else None,
        "bytes": scored.dram_bytes,
    }


def _parts(groups: Iterable[int]) -> list[int]:
    """Per operator, in order: the position of its group."""
    owner = {i: g for g, group in enumerate(groups) for i in bits(group)}
    return [owner[i] for i in sorted(owner)]
