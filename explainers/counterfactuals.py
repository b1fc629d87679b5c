"""Groups with links cut, and their labels: what a network must have seen that will be asked what its verdict would be without some links.

An explainer masks links of a group and looks at the verdict. A network that knows whole groups only has never seen such a graph, and what it says of
one means little (measured: whichever eight links are taken away, four in five verdicts turn). A group in pieces has a label too: it runs piece by
piece, and fits if each piece does. So the network is also shown groups in pieces, with the features that their operators have in the whole.

Not in arXiv 2501.00636. Its splits (section IV-B) are the cuts that are drawn here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from explainers.cuts import GroupCuts
from explainers.graph import links
from lfopt.ops import Dataflow, bits

MOST_CUTS = 3  # of one group
TRIED = 4  # cuts of a link, of which one is drawn


def cut_apart(flow: Dataflow, mask: int, need: Callable[[int], int], rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """A connected, convex group cut up to MOST_CUTS times by chance: ((links,) bool: which are left; bytes: F_beta of the neediest piece)."""
    pieces = [mask]
    for _ in range(int(rng.integers(1, MOST_CUTS + 1))):
        piece = pieces.pop(int(rng.integers(len(pieces))))
        pieces += _halves(flow, piece, rng)
    where = links(flow, mask)
    owner = np.zeros(mask.bit_count(), np.int64)
    for number, piece in enumerate(pieces):
        owner[[piece >> i & 1 == 1 for i in bits(mask)]] = number
    return owner[where[0]] == owner[where[1]], max(map(need, pieces))


def _halves(flow: Dataflow, mask: int, rng: np.random.Generator) -> tuple[int, ...]:
    where, operators = links(flow, mask), [*bits(mask)]
    if not where.size:
        return (mask,)
    u, v = where[:, rng.integers(where.shape[1])].tolist()
    cuts = GroupCuts(flow, mask).through(operators[u], operators[v], TRIED)
    cut = cuts[int(rng.integers(len(cuts)))]
    return cut.first, cut.second
