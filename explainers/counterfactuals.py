"""Counterfactual training samples: groups with links cut or weighted, and their labels.

An explainer masks links of a group and looks at the verdict. A network that knows whole groups only has never
seen such a graph, and what it says of one means little (measured: whichever eight links are taken away, four
in five verdicts turn). A group in pieces has a label too: it runs piece by piece, and fits if each piece
does. So the network is also shown groups in pieces, with the features that their operators have in the whole.

Explainers that learn by gradients weigh links between 0 and 1. A network that was shown cut groups, but no
weights, turns then: on MobileNet-V2, log-odds of a group were 0.9 of what they are at weights of 1, without
any one link, and -1.7 at weights of 0.8; their slope told nothing of what links bring any more (Spearman's
correlation with the bytes that a cut frees: 0.66 link by link, 0.18 at weights of a half). That is why
PGExplainer, which lives there, ranked links the wrong way round (-0.50). So weights are shown too.

Not in arXiv 2501.00636. Its splits (section IV-B) are the cuts that are drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explainers.cuts import GroupCuts
from explainers.graph import links
from lfopt.fusion import connected_parts
from lfopt.ops import Dataflow, bits

MOST_CUTS = 3  # of one group
TRIED = 4  # cuts of a link, of which one is drawn


def cut_apart(flow: Dataflow, mask: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Pieces of a connected, convex group before and after each of up to MOST_CUTS random cuts.

    A piece hangs together by links of the whole group. Of three that read one map, two may do so without the
    third as a group, and not here.
    """
    neighbours = [0] * len(flow)
    operators = [*bits(mask)]
    for u, v in links(flow, mask).T.tolist():
        neighbours[operators[u]] |= 1 << operators[v]
        neighbours[operators[v]] |= 1 << operators[u]
    pieces = [mask]
    stages: list[tuple[int, ...]] = [(mask,)]
    for _ in range(int(rng.integers(1, MOST_CUTS + 1))):
        piece = pieces.pop(int(rng.integers(len(pieces))))
        pieces += [part for half in _halves(flow, piece, rng) for part in connected_parts(neighbours, half)]
        stages.append((*pieces,))
    return stages


def link_weights(
    flow: Dataflow, mask: int, stages: Sequence[tuple[int, ...]], shares: np.ndarray
) -> np.ndarray:
    """(links,) float64, 0 to 1: of each link, the sum of the shares (stages,) of the stages that keep it.

    The group's requirement with these weights is the sum over stages of share x requirement (see
    `explainers.scheme_rule`: stages are nested).
    """
    where = links(flow, mask)
    weights = 0.0
    for pieces, share in zip(stages, shares.tolist(), strict=True):
        owner = np.zeros(mask.bit_count(), np.int64)
        for number, piece in enumerate(pieces):
            owner[[piece >> i & 1 == 1 for i in bits(mask)]] = number
        weights = weights + share * (owner[where[0]] == owner[where[1]])
    return np.minimum(weights, 1)  # shares that add up to a little more, as rounded


def _halves(flow: Dataflow, mask: int, rng: np.random.Generator) -> tuple[int, ...]:
    where = links(flow, mask)
    operators = [*bits(mask)]
    if not where.size:
        return (mask,)
    u, v = where[:, rng.integers(where.shape[1])].tolist()
    cuts = GroupCuts(flow, mask).through(operators[u], operators[v], TRIED)
    cut = cuts[int(rng.integers(len(cuts)))]
    return cut.first, cut.second
