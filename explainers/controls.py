"""Baselines of explainers, without a network: random links, bytes of the row schedule, and brute force.

Each gives one number per link of a group (see `explainers.graph.links`), the higher, the better a place to
cut.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from explainers.cuts import Cut, GroupCuts, cheapest
from explainers.graph import links
from explainers.scheme_rule import whole_bytes
from explainers.split import Explain
from lfopt.ops import Dataflow, bits
from lfopt.planning import MODES, SCHEMES, GroupCosts

MOST_GROUPS = 20_000  # groups that brute force looks at
NEVER = 1 << 60  # bytes: more than any buffer


def random_links(flow: Dataflow, seed: int) -> Explain:
    """Explainer whose scores are uniform in [0, 1), the same whenever a group is asked for."""

    def explain(mask: int) -> np.ndarray:
        return np.random.default_rng([seed, mask]).random(links(flow, mask).shape[1])

    return explain


def analytic(costs: GroupCosts) -> Explain:
    """Explainer whose scores are the bytes of buffer that a cut at each link frees.

    In line buffers: by the rings of the group as it stands. Both halves of the cut (of the link's cuts, the
    one that moves the fewest elements) keep their weights and the rings of the maps that they read, and one
    row of each map that they only make; what the larger of them takes less than the whole is freed. What
    rings shrink by once a skip is cut is left out: measured, to schedule every half takes ten times as long
    and splits no better. Other schemes: see `by_need`.
    """
    if not all(MODES[name].rings for name in SCHEMES[costs.scheme].modes):
        return by_need(costs.dataflow, lambda mask: costs.least_need(mask)[1])
    flow = costs.dataflow
    rows = [costs.hardware.row_bytes(m) for m in costs.dataflow.maps]
    weights = [costs.groups.weight_bytes(1 << i)[1] for i in range(len(flow))]

    def explain(mask: int) -> np.ndarray:
        resident = [(1 << i, weights[i]) for i in bits(mask) if weights[i]]  # (operators that need it, bytes)
        # (operator that makes it, operators that read it, bytes of a row)
        internal_maps: list[tuple[int, int, int]] = []
        for m, count in costs.groups.line_buffers.ring_rows(mask).items():
            maker = (1 << flow.producer[m]) & mask if flow.producer[m] >= 0 else 0
            readers = flow.readers[m] & mask
            resident.append((readers or maker, count * rows[m]))
            if maker and readers:
                internal_maps.append((maker, readers, rows[m]))
        total = sum(size for _, size in resident)

        def taken(half: int) -> int:
            stored = sum(
                [row for maker, readers, row in internal_maps if maker & half and not readers & half]
            )
            return stored + sum([size for users, size in resident if users & half])

        return _scored(flow, mask, lambda cut: total - max(taken(cut.first), taken(cut.second)))

    return explain


def by_need(flow: Dataflow, need: Callable[[int], int]) -> Explain:
    """Explainer whose scores are the bytes that the larger half of a link's cut needs less than the group.

    `need`: F_beta of a group in bytes, asked for every half. A group that needs more than NEVER bytes cannot
    run, whatever the buffer. It counts with all its maps and weights whole, as elements of 4 bytes: more than
    any group that can run, and the more, the larger the group.
    """

    def bytes_or_whole(mask: int) -> int:
        bytes_needed = need(mask)
        if bytes_needed < NEVER:
            return bytes_needed
        return whole_bytes(flow, [*bits(mask)])

    def explain(mask: int) -> np.ndarray:
        total = bytes_or_whole(mask)
        return _scored(
            flow, mask, lambda cut: total - max(bytes_or_whole(cut.first), bytes_or_whole(cut.second))
        )

    return explain


def brute(costs: GroupCosts) -> Explain:
    """Exact explainer of small groups: a link's score is minus the fewest DRAM bytes if it is cut first.

    The fewest over all recursive splits whose first cut holds the link; -inf where none ends in legal groups.
    The explainer raises ValueError where there are more than MOST_GROUPS groups to look at.
    """
    flow = costs.dataflow
    fewest_bytes: dict[int, float] = {}

    def best(mask: int) -> float:
        """Fewest bytes of any split of the group, or of the group as it is."""
        if mask not in fewest_bytes:
            if len(fewest_bytes) >= MOST_GROUPS:
                raise ValueError(f"brute force: found a group with more than {MOST_GROUPS:,} groups in it")
            price = costs.price(mask)
            least = price.dram_bytes if price is not None else np.inf
            # where every tensor moves once, no split moves less
            if price is None or not MODES[price.mode].steady:
                least = min([least, *(best(cut.first) + best(cut.second) for cut in _every_cut(flow, mask))])
            fewest_bytes[mask] = least
        return fewest_bytes[mask]

    def explain(mask: int) -> np.ndarray:
        where = links(flow, mask)
        operators = [*bits(mask)]
        through = GroupCuts(flow, mask)
        cuts = ([*through.through(operators[u], operators[v], MOST_GROUPS)] for u, v in where.T)
        return np.array(
            [-min(best(cut.first) + best(cut.second) for cut in each) for each in cuts], np.float64
        )

    return explain


def _every_cut(flow: Dataflow, mask: int) -> set[Cut]:
    operators = [*bits(mask)]
    through = GroupCuts(flow, mask)
    return {
        cut
        for u, v in links(flow, mask).T
        for cut in through.through(operators[u], operators[v], MOST_GROUPS)
    }


def _scored(flow: Dataflow, mask: int, freed: Callable[[Cut], int]) -> np.ndarray:
    """(links,) float64: what the cheapest cut of each link frees."""
    cuts = cheapest(flow, mask, links(flow, mask))
    known = {cut: freed(cut) for cut in dict.fromkeys(cuts)}
    return np.array([known[cut] for cut in cuts], np.float64)
