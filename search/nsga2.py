"""NSGA-II: plans as genomes, bred for few DRAM bytes and a small buffer at once.

pymoo runs the loop; the operators are ours. Its own survival sorts floats by an unstable sort, so that ties fall differently from machine to machine;
here ranks and crowding are exact integers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.crossover import Crossover
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.core.problem import Problem as Genomes
from pymoo.core.repair import Repair
from pymoo.core.sampling import Sampling
from pymoo.core.survival import Survival
from pymoo.core.termination import NoTermination
from pymoo.operators.selection.tournament import TournamentSelection

from lfopt.fusion import CostModel
from search.options import DEFAULTS, SearchOptions
from search.partition import Dice, Guide, Partitions, Plan
from search.result import Front, Result
from search.tally import PlanTally

Point = tuple[int, int]  # (DRAM bytes, required bytes)


def evolve(model: CostModel, options: SearchOptions = DEFAULTS, *, population: int = 20, offspring: int = 10) -> Result:
    """Breed plans by two-point crossover and mutation of their genomes, keep the best of old and new by non-dominated sorting.

    A genome that is not a legal plan is replaced by that of the plan it decodes to. Genomes already in the population are not evaluated again.
    At budgets of a few thousand plans, a population of 20 came nearer to the optimum than 100 on three of four networks (not on ResNet-50).
    `front` of the result holds the plans found that no other beats in both DRAM and required bytes.
    The first population has the legal plans of `options.start` among random ones.
    Source: Deb et al. 2002 for NSGA-II; arXiv 2501.00636 runs it on fusion plans.
    """
    tally = PlanTally(model, options, Dice((options.seed, 1)))  # pymoo draws from default_rng(seed)
    partitions, dice, guide = tally.partitions, tally.dice, tally.guide
    plans: dict[bytes, list[int]] = {}  # of the genomes asked for last
    front: dict[Point, tuple[int, ...]] = {}

    operators: dict[str, Any] = {  # Any: pymoo's signatures name its default operators as types
        "sampling": _Draws(partitions, dice, guide, options.start),
        "selection": TournamentSelection(func_comp=_smaller_index),
        "crossover": _TwoPoint(),
        "mutation": _Flip(),
        "survival": _RankAndCrowding(),
        "repair": _Legal(partitions, dice, guide, plans),
        "eliminate_duplicates": _NoRepeats(),
        "output": None,
    }
    algorithm = _Nsga2(pop_size=min(population, max(options.budget, 1)), n_offsprings=offspring, **operators)
    links = max(len(partitions.links), 1)
    algorithm.setup(Genomes(n_var=links, n_obj=2, xl=0, xu=1, vtype=np.uint8), seed=options.seed, termination=NoTermination())
    try:
        while tally.left > 0:
            plans.clear()
            asked = algorithm.ask()
            if asked is None or len(asked) == 0:
                break  # every genome that crossover and mutation reach is in the population
            points: list[Point] = []
            for individual in asked:
                if tally.left <= 0:
                    break
                plan = plans[individual.X.tobytes()]
                point = partitions.dram_bytes(plan), partitions.required_bytes(plan)
                points.append(point)
                tally.count(plan, point[0])
                _keep(front, point, plan)
            else:
                asked.set("F", np.array(points, dtype=np.int64))
                algorithm.tell(infills=asked)
    except KeyboardInterrupt:
        tally.interrupted = True
    return tally.sampled("nsga2", _ordered(partitions, front))


def fronts(points: Sequence[Point]) -> list[list[int]]:
    """Indices of the points that nothing dominates, then of those that only the first dominate, and so on; each by DRAM bytes.

    >>> fronts([(1, 5), (2, 2), (3, 3), (5, 1), (2, 2)])
    [[0, 1, 4, 3], [2]]
    """
    found: list[list[int]] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i], i)):
        # The last of a front has its smallest buffer. Fronts that dominate this point (key 0) come before those that do not.
        k = bisect_left(found, 1, key=lambda front: int(points[i][1] < points[front[-1]][1] or points[i] == points[front[-1]]))
        if k == len(found):
            found.append([])
        found[k].append(i)
    return found


def by_crowding(front: Sequence[int], points: Sequence[Point]) -> list[int]:
    """A front sorted by crowding, the loneliest first: both ends, then by the size of the gap that each leaves. Copies of a point come last."""
    distinct: dict[Point, int] = {}
    for i in front:
        distinct.setdefault(points[i], i)
    chain = list(distinct.values())
    drams, buffers = points[chain[-1]][0] - points[chain[0]][0], points[chain[0]][1] - points[chain[-1]][1]
    gaps = dict.fromkeys(front, -1)
    for left, i, right in zip(chain, chain[1:], chain[2:], strict=False):
        # Each objective relative to its range, both multiplied by the two ranges: exact.
        gaps[i] = (points[right][0] - points[left][0]) * buffers + (points[left][1] - points[right][1]) * drams
    gaps[chain[0]] = gaps[chain[-1]] = 2 * drams * buffers + 1
    return sorted(front, key=lambda i: (-gaps[i], i))


def _smaller_index(_: Population, pairs: np.ndarray, **__: object) -> np.ndarray:
    """Winners of tournaments; `_RankAndCrowding` leaves the population sorted."""
    return pairs.min(axis=1, keepdims=True)


def _keep(front: dict[Point, tuple[int, ...]], point: Point, plan: Sequence[int]) -> None:
    """Add a plan unless one at least as good in both is there; drop those it dominates."""
    if any(d <= point[0] and b <= point[1] for d, b in front):
        return
    for d, b in [p for p in front if point[0] <= p[0] and point[1] <= p[1]]:
        del front[d, b]
    front[point] = tuple(plan)


def _ordered(partitions: Partitions, front: dict[Point, tuple[int, ...]]) -> Front:
    return tuple((*point, partitions.in_order(plan)) for point, plan in sorted(front.items()))


class _Nsga2(NSGA2):
    """pymoo's loop without the upkeep of an optimum that nobody reads."""

    def _set_optimum(self, **_: object) -> None:
        self.opt = self.pop


class _Draws(Sampling):
    """Plans to start from: those given, then random ones."""

    def __init__(self, partitions: Partitions, dice: Dice, guide: Guide, start: Sequence[Plan]) -> None:
        super().__init__()
        for group in (group for plan in start for group in plan):
            partitions.price(group)
        self.start = [partitions.encode(plan) for plan in start]
        self.draw = lambda: partitions.encode(partitions.draw(dice, guide))

    def _do(self, problem: Genomes, n_samples: int, *_: object, **__: object) -> Any:
        plans = [*self.start[:n_samples], *(self.draw() for _ in range(n_samples - len(self.start)))]
        return np.stack([np.resize(plan, problem.n_var) for plan in plans])


class _Legal(Repair):
    """Replaces each genome by that of the legal plan that it decodes to, and remembers the plan."""

    def __init__(self, partitions: Partitions, dice: Dice, guide: Guide, plans: dict[bytes, list[int]]) -> None:
        super().__init__()
        self.partitions, self.dice, self.guide, self.plans = partitions, dice, guide, plans

    def _do(self, problem: Genomes, X: np.ndarray, **_: object) -> np.ndarray:  # noqa: N803 - pymoo's name
        for row, genome in enumerate(X):
            plan = self.partitions.fit(self.partitions.decode(genome.tobytes()), self.dice, self.guide)
            X[row] = np.resize(self.partitions.encode(plan), problem.n_var)
            self.plans[X[row].tobytes()] = plan
        return X


class _NoRepeats(DuplicateElimination):
    """Drops genomes that are there already."""

    def _do(self, pop: Population, other: Population | None, is_duplicate: np.ndarray) -> np.ndarray:
        known = set() if other is None else {individual.X.tobytes() for individual in other}
        for k, individual in enumerate(pop):
            genome = individual.X.tobytes()
            is_duplicate[k] = genome in known
            known.add(genome)
        return is_duplicate


class _TwoPoint(Crossover):
    """Exchanges a stretch of links. Links are in topological order, so a stretch is a part of the network, and its groups move together."""

    def __init__(self) -> None:
        super().__init__(n_parents=2, n_offsprings=2, prob=0.9)

    def _do(self, problem: Genomes, X: np.ndarray, *_: object, random_state: np.random.Generator, **__: object) -> Any:  # noqa: N803
        ends = np.sort(random_state.integers(0, problem.n_var + 1, size=(X.shape[1], 2)), axis=1)
        place = np.arange(problem.n_var)
        inside = (place >= ends[:, :1]) & (place < ends[:, 1:])
        return np.where(inside, X[::-1], X)


class _Flip(Mutation):
    """Flips one to three links. A neighbour of the other kind is often flipped too: the cut moves."""

    def _do(self, problem: Genomes, X: np.ndarray, *_: object, random_state: np.random.Generator, **__: object) -> Any:  # noqa: N803
        changed, links = X.copy(), problem.n_var
        sites = random_state.integers(0, links, size=(len(X), 3))
        flips = random_state.integers(1, 4, size=len(X))
        shifts = random_state.integers(-1, 2, size=(len(X), 3))
        for row in range(len(X)):
            genome = changed[row]
            for site, shift in zip(sites[row, : flips[row]].tolist(), shifts[row].tolist(), strict=False):
                beside = min(max(site + shift, 0), links - 1)
                if genome[beside] != genome[site]:
                    genome[beside] ^= 1
                genome[site] ^= 1
        return changed


class _RankAndCrowding(Survival):
    """Keeps the best by rank, then crowding, and leaves them in that order."""

    def __init__(self) -> None:
        super().__init__(filter_infeasible=False)

    def _do(self, _: Genomes, pop: Any, *__: object, n_survive: int, **___: object) -> Any:
        points: list[Point] = [(int(d), int(b)) for d, b in pop.get("F")]
        survivors: list[int] = []
        for rank, front in enumerate(fronts(points)):
            if len(survivors) >= n_survive:
                break
            pop[front].set("rank", rank)
            survivors += by_crowding(front, points)
        return pop[survivors[:n_survive]]
