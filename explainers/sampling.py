"""Groups sampled from random searches, stratified by F_beta: valid and invalid ones at every buffer size.

Left as drawn, most groups are far too large or far too small for whatever buffer. So of all that were drawn,
about equally many are taken from each doubling of F_beta, as far as they go round. That gives the shares that
the paper's figure 3 shows: more and more groups are valid as beta grows, and neither class vanishes.

Source: arXiv 2501.00636, section IV-A (random search; beta), figure 3 (share of valid groups), table I
(groups per network).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import NamedTuple

import numpy as np

from explainers.checker import Checker
from explainers.graph import Batch, GroupGraphs
from lfopt.ops import Dataflow

BETAS = tuple(size << 10 for size in (128, 256, 512, 1024, 2048))  # bytes
# of the strata of F_beta; above the last: no buffer is large enough
EDGES = (BETAS[0] // 2, *BETAS, 2 * BETAS[-1], 1 << 61)
STRATA = len(EDGES) + 1
SINGLES = 20  # at most one in so many groups is a single operator
LEAST_DRAWS = 20  # plans drawn of one network
ENOUGH = 30  # structures found for each group asked for: what is rare among so many is not waited for
AT_ONCE = 256  # groups whose graphs are made together

Seed = tuple[int, ...]
Fits = Callable[[int], bool]
# (seed, whether a group fits) -> the groups that a random search meets on its way to one legal plan
Draw = Callable[[Seed, Fits], Iterable[int]]


@dataclass(frozen=True, eq=False)
class Sample:
    """Groups of one network, each with the least buffer that it runs whole from."""

    masks: tuple[int, ...]
    # (groups,) int64: F_beta in bytes, in the mode asked about; a group is valid at beta iff it is less
    needs: np.ndarray
    draws: np.ndarray  # (groups,) int32: number of the draw that first met the group


def sample(checker: Checker, draw: Draw, count: int, seed: Seed) -> Sample:
    """Up to `count` different groups, spread over the strata of F_beta; fewer where no more turn up."""
    pool = _pool(checker, draw, count, seed)
    masks = list(pool)
    needs = np.array([checker.need(mask) for mask in masks], np.int64)
    single = np.array([mask & (mask - 1) == 0 for mask in masks], bool)
    new = np.array([origin.new for origin in pool.values()], bool)
    stratum = strata(needs)
    order = np.random.default_rng((*seed, count)).permutation(len(masks))
    order = order[~single[order] | (np.cumsum(single[order]) <= max(count // SINGLES, 1))]
    chosen = np.empty(0, np.int64)
    for candidates in (order[new[order]], order[~new[order]]):  # what only repeats a structure comes last
        available = np.bincount(stratum[candidates], minlength=STRATA).tolist()
        taken = [
            candidates[stratum[candidates] == k][:share]
            for k, share in enumerate(shares(available, count - len(chosen)))
        ]
        chosen = np.concatenate((chosen, *taken))
    chosen.sort()
    draws = np.array([origin.draw for origin in pool.values()], np.int32)
    return Sample(tuple(masks[k] for k in chosen), needs[chosen], draws[chosen])


class _Origin(NamedTuple):
    draw: int  # the first that met the group
    new: bool  # whether no group before it has the same structure


def _pool(checker: Checker, draw: Draw, count: int, seed: Seed) -> dict[int, _Origin]:
    """Groups of draws, until every stratum has enough different structures or patience is at its end."""
    pool: dict[int, _Origin] = {}
    structures: set[int] = set()
    filled = np.zeros(STRATA, np.int64)
    groups = GroupGraphs(checker.costs.dataflow, checker.costs.hardware)
    for number in range(_patience(len(checker.costs.dataflow))):
        met = [
            mask
            for mask in dict.fromkeys(draw((*seed, number), _fits(checker, BETAS[number % len(BETAS)])))
            if mask not in pool
        ]
        for mask, structure in zip(met, structure_hashes(groups, met).tolist(), strict=True):
            pool[mask] = _Origin(number, structure not in structures)
            if pool[mask].new:
                structures.add(structure)
                filled[strata(np.array(checker.need(mask)))] += 1
        if number >= LEAST_DRAWS and (
            filled[:-1].min() * (STRATA - 1) >= count or len(structures) >= ENOUGH * count
        ):
            break
    return pool


def _patience(operators: int) -> int:
    """Most draws, by the network's operators: a draw of a large network takes longer, and brings more."""
    return min(max(300_000 // max(operators, 1), 400), 3000)


def _fits(checker: Checker, beta: int) -> Fits:
    return lambda mask: checker.need(mask) < beta


def strata(needs: np.ndarray) -> np.ndarray:
    """(groups,) int64: stratum of needs (groups,) int64, F_beta in bytes: how many EDGES are at or below it.

    Every beta is an edge, so in a stratum all groups are valid at a beta, or none is.
    """
    return np.searchsorted(np.array(EDGES), needs, side="right")


def shares(available: Sequence[int], total: int) -> list[int]:
    """`total` handed out as evenly as what is available allows.

    >>> shares([5, 100, 0, 100], 45)
    [5, 20, 0, 20]
    """
    handed_out = [0] * len(available)
    left = min(total, sum(available))
    for rank, k in enumerate(sorted(range(len(available)), key=lambda k: (available[k], k))):
        handed_out[k] = min(available[k], left // (len(available) - rank))
        left -= handed_out[k]
    return handed_out


def quotas(networks: Sequence[tuple[str, int]], total: int) -> list[int]:
    """Groups to ask of each network, given its family and its number of operators (at least 1).

    A network's share grows with its operators, a family's with the root of them: eight EfficientNets should
    not be two thirds of everything. Nor is more asked than half of what a plain chain of so many operators
    has, n (n + 1) / 2 groups.

    >>> quotas([("VGG", 20), ("ResNet", 100), ("ResNet", 300)], 1000)
    [105, 224, 671]
    """
    weights = [
        operators / sqrt(sum(n for other, n in networks if other == family)) for family, operators in networks
    ]
    most = [operators * (operators + 1) // 4 for _, operators in networks]
    quota = [0] * len(networks)
    weight = sum(weights)
    for k in sorted(range(len(networks)), key=lambda k: most[k] / weights[k]):
        quota[k] = min(most[k], round(total * weights[k] / weight))
        total -= quota[k]
        weight -= weights[k]
    return quota


def batches(groups: GroupGraphs, masks: Sequence[int]) -> Iterator[tuple[int, Batch]]:
    """(number of the first group, graphs) of a few hundred groups at a time."""
    for start in range(0, len(masks), AT_ONCE):
        yield start, groups.batch(masks[start : start + AT_ONCE])


def parts(batch: Batch) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(features (operators, FEATURES), links (2, links)) of each group; links as positions in the group."""
    ends = [*batch.starts[1:].tolist(), len(batch.features)]
    borders = np.searchsorted(batch.links[0], [*batch.starts, len(batch.features)]).tolist()
    for k, (start, end) in enumerate(zip(batch.starts.tolist(), ends, strict=True)):
        yield batch.features[start:end], batch.links[:, borders[k] : borders[k + 1]] - start


def structure_hashes(groups: GroupGraphs, masks: Sequence[int]) -> np.ndarray:
    """(groups,) uint64: hashes of features and links, equal for the groups of repeated blocks."""
    hashes = np.empty(len(masks), np.uint64)
    for first, batch in batches(groups, masks):
        for k, (features, links) in enumerate(parts(batch), first):
            digest = hashlib.blake2b(features.tobytes() + links.tobytes(), digest_size=8).digest()
            hashes[k] = int.from_bytes(digest, "little")
    return hashes


def gated(flow: Dataflow) -> bool:
    """Whether a map is scaled per channel by a function of itself, as in squeeze-and-excite.

    Mode brr is not for such networks.
    """
    for i, operator in enumerate(flow.operators):
        operands = flow.operands[i]
        if operator.kind != "Mul" or len(operands) != 2:
            continue
        wide, gate = sorted(operands, key=lambda o: -prod(flow.calls[i].shape(o.input)))
        shape = flow.calls[i].shape(gate.input)
        scaled = flow.calls[i].shape(wide.input)
        maker = flow.producer[gate.map]
        per_channel = (
            len(shape) == len(scaled) > 2
            and shape[1] == scaled[1]
            and prod(shape[2:]) == 1 < prod(scaled[2:])
        )
        if per_channel and maker >= 0 and flow.readers[wide.map] & (flow.ancestors[maker] | 1 << maker):
            return True
    return False
