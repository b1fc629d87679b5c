"""NSGA-II over plans as genomes: fewest DRAM bytes and smallest buffer, or several figures at once.

pymoo runs the loop; the operators are ours. Its own survival sorts floats by an unstable sort, so that ties
fall differently from machine to machine; here ranks and crowding are exact integers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
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
from lfopt.ir import Figures
from lfopt.ops import bits
from search.budget import NOTHING, PlanBudget
from search.objectives import Choice, total
from search.options import DEFAULTS, SearchOptions
from search.partition import Partition, Partitions, RepairPolicy, Rng
from search.result import Front, Result
from search.weighted import Evaluator

Point = tuple[int, ...]  # what is to be small: (DRAM bytes, required bytes), or some of the figures of a plan
# groups, and the alternative of each, where plans differ in those
Individual = tuple[Partition, tuple[int, ...]]


def evolve(
    model: CostModel, options: SearchOptions = DEFAULTS, *, population: int = 20, offspring: int = 10
) -> Result:
    """NSGA-II for few DRAM bytes and a small buffer: two-point crossover, mutation, non-dominated sorting.

    A genome that is not a legal plan is replaced by that of the plan it decodes to. Genomes already in the
    population are not evaluated again. At budgets of a few thousand plans, a population of 20 came nearer to
    the optimum than 100 on three of four networks (not on ResNet-50). `front` of the result holds the plans
    found that no other beats in both DRAM and required bytes.
    The first population has the legal plans of `options.start` among random ones.
    Source: Deb et al. 2002 for NSGA-II; arXiv 2501.00636 runs it on fusion plans.
    """
    budget = PlanBudget(model, options, Rng((options.seed, 1)))  # pymoo draws from default_rng(seed)
    partitions = budget.partitions
    code = _Code(partitions, budget.rng, budget.policy, [(plan, ()) for plan in options.start])
    bred: dict[Point, Individual] = {}

    def point(individual: Individual) -> Point:
        plan = individual[0]
        required = partitions.required_bytes(individual[0])
        # from there on another plan is as good in both
        below = min((d for d, b in bred if b <= required), default=NOTHING)
        settled = budget.settled(plan, partitions.dram_bytes(plan), below)
        dram_bytes = partitions.dram_bytes(plan) if settled is None else settled
        budget.count(plan, dram_bytes)
        return dram_bytes, required

    _breed(budget, code, point, _Flip(), 2, bred, population, offspring)
    front: Front = tuple((d, b, partitions.in_order(plan)) for (d, b), (plan, _) in sorted(bred.items()))
    return budget.sampled("nsga2", front)


def evolve_figures(
    model: CostModel,
    evaluator: Evaluator,
    axes: Sequence[int],
    start: Sequence[Choice],
    options: SearchOptions = DEFAULTS,
    *,
    population: int = 40,
) -> tuple[list[Choice], bool]:
    """(non-dominated plans, fewest bytes first; whether the search was interrupted).

    `axes`: positions in `Figures` of the objectives. A genome says which links are fused, and which
    alternative each group takes; the first population has the plans of `start` among neighbours of theirs, so
    that what lies inside the convex hull of the plans that exact searches find is looked for around them.
    """
    budget = PlanBudget(model, options, Rng((options.seed, 2)))
    code = _AlternativesCode(
        budget.partitions,
        budget.rng,
        budget.policy,
        [(choice.groups, choice.alternatives) for choice in start],
        evaluator,
    )
    known: dict[Individual, Figures] = {}

    def point(individual: Individual) -> Point:
        figures = known[individual] = total(evaluator, *individual)
        budget.count(individual[0], figures.dram_bytes)
        return tuple(figures[k] for k in axes)

    bred: dict[Point, Individual] = {}
    _breed(
        budget,
        code,
        point,
        _Turn(code),
        len(axes),
        bred,
        min(population, 2 * len(start) + 20),
        population // 2,
    )
    choices: list[Choice] = []
    for _, individual in sorted(bred.items()):
        taken = dict(zip(*individual, strict=True))
        groups = budget.partitions.in_order(individual[0])
        choices.append(Choice(known[individual], groups, tuple(taken[group] for group in groups)))
    return sorted(choices), budget.interrupted


def _breed(
    budget: PlanBudget,
    code: _Code,
    point: Callable[[Individual], Point],
    mutation: Mutation,
    width: int,
    front: dict[Point, Individual],
    population: int,
    offspring: int,
) -> None:
    """Run NSGA-II; fill `front` with the non-dominated plans found, by their objectives.

    Ctrl-C ends it.
    """
    decoded: dict[bytes, Individual] = {}  # of the genomes asked for last
    operators: dict[str, Any] = {  # Any: pymoo's signatures name its default operators as types
        "sampling": _Draws(code),
        "selection": TournamentSelection(func_comp=_smaller_index),
        "crossover": _TwoPoint(),
        "mutation": mutation,
        "survival": _RankAndCrowding(),
        "repair": _Legal(code, decoded),
        "eliminate_duplicates": _NoRepeats(),
        "output": None,
    }
    plans = budget.options.budget
    algorithm = _Nsga2(pop_size=min(population, max(plans, 1)), n_offsprings=offspring, **operators)
    genomes = Genomes(n_var=max(code.genes, 1), n_obj=width, xl=0, xu=code.largest, vtype=np.uint8)
    algorithm.setup(genomes, seed=budget.options.seed, termination=NoTermination())
    try:
        while budget.left > 0:
            decoded.clear()
            asked = algorithm.ask()
            if asked is None or len(asked) == 0:
                break  # every genome that crossover and mutation reach is in the population
            points: list[Point] = []
            for individual in asked:
                if budget.left <= 0:
                    break
                plan = decoded[individual.X.tobytes()]
                points.append(point(plan))
                _keep(front, points[-1], plan)
            else:
                asked.set("F", np.array(points, dtype=np.int64))
                algorithm.tell(infills=asked)
    except KeyboardInterrupt:
        budget.interrupted = True


def fronts(points: Sequence[Point]) -> list[list[int]]:
    """Non-dominated sorting: indices of the points, front by front, each front by DRAM bytes.

    >>> fronts([(1, 5), (2, 2), (3, 3), (5, 1), (2, 2)])
    [[0, 1, 4, 3], [2]]
    """
    ranked: list[list[int]] = []
    if points and len(points[0]) != 2:
        return _fronts(points)
    for i in sorted(range(len(points)), key=lambda i: (points[i], i)):
        # The last of a front has its smallest buffer. Fronts that dominate this point (key 0) come first.
        k = bisect_left(
            ranked,
            1,
            key=lambda front: int(points[i][1] < points[front[-1]][1] or points[i] == points[front[-1]]),
        )
        if k == len(ranked):
            ranked.append([])
        ranked[k].append(i)
    return ranked


def _fronts(points: Sequence[Point]) -> list[list[int]]:
    """`fronts` for any number of objectives: each point compared with those before it."""
    ranked: list[list[int]] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i], i)):
        rank = next(
            (k for k, front in enumerate(ranked) if not any(_beats(points[j], points[i]) for j in front)),
            len(ranked),
        )
        if rank == len(ranked):
            ranked.append([])
        ranked[rank].append(i)
    return ranked


def _beats(a: Point, b: Point) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def by_crowding(front: Sequence[int], points: Sequence[Point]) -> list[int]:
    """Indices of a front by crowding distance: both ends, then the largest gaps, copies of a point last."""
    distinct: dict[Point, int] = {}
    for i in front:
        distinct.setdefault(points[i], i)
    gaps = dict.fromkeys(front, -1)
    gaps.update(dict.fromkeys(distinct.values(), 0))
    ends: set[int] = set()
    ranges = [max(of) - min(of) or 1 for of in zip(*distinct, strict=True)]
    for axis, extent in enumerate(ranges):
        # Each objective relative to its range, all multiplied by the ranges of all: exact.
        chain = [distinct[point] for point in sorted(distinct, key=lambda point: (point[axis], point))]
        ends |= {chain[0], chain[-1]}
        for left, i, right in zip(chain, chain[1:], chain[2:], strict=False):
            gaps[i] += (points[right][axis] - points[left][axis]) * prod(ranges) // extent
    gaps.update(dict.fromkeys(ends, len(ranges) * prod(ranges) + 1))
    return sorted(front, key=lambda i: (-gaps[i], i))


def _smaller_index(_: Population, pairs: np.ndarray, **__: object) -> np.ndarray:
    """(tournaments, 1) int64: winners of pairs (tournaments, 2); `_RankAndCrowding` sorts the population."""
    return pairs.min(axis=1, keepdims=True)


def _keep(front: dict[Point, Individual], point: Point, plan: Individual) -> None:
    """Add a plan unless one at least as good in all objectives is there; drop those it dominates."""
    if any(point == other or _beats(other, point) for other in front):
        return
    for other in [other for other in front if _beats(point, other)]:
        del front[other]
    front[point] = plan


class _Code:
    """Genomes of plans: a gene per link, 1 = fused."""

    largest = 1  # value of a gene

    def __init__(
        self, partitions: Partitions, rng: Rng, policy: RepairPolicy, start: Sequence[Individual]
    ) -> None:
        self.partitions = partitions
        self.rng = rng
        self.policy = policy
        for group in (group for plan, _ in start for group in plan):
            partitions.price(group)
        self.genes = len(partitions.links)
        self.start = start

    def draw(self) -> np.ndarray:
        """(genes,) uint8: genome of a random plan."""
        return self.encode((tuple(self.partitions.draw(self.rng, self.policy)), ()))

    def encode(self, individual: Individual) -> np.ndarray:
        """(genes,) uint8: genome of a plan of legal groups."""
        return self.partitions.encode(individual[0])

    def decode(self, genome: np.ndarray) -> Individual:
        """The legal plan of a genome (genes,) uint8."""
        return tuple(self.partitions.fit(self.partitions.decode(genome.tobytes()), self.rng, self.policy)), ()


class _AlternativesCode(_Code):
    """Genomes of plans whose groups take different alternatives: per operator its links, then one gene more.

    That gene of a group's first operator is the group's alternative. A stretch of genes is a part of the
    network.
    """

    largest = 255

    def __init__(
        self,
        partitions: Partitions,
        rng: Rng,
        policy: RepairPolicy,
        start: Sequence[Individual],
        evaluator: Evaluator,
    ) -> None:
        super().__init__(partitions, rng, policy, start)
        self.evaluator = evaluator
        links = [0] * len(partitions.flow)
        for _, later in partitions.links:
            links[later] += 1
        # positions, per operator
        self.alternative_genes = np.array([end + i for i, end in enumerate(accumulate(links))])
        self.genes += len(links)
        self.link_genes = np.setdiff1d(np.arange(self.genes), self.alternative_genes)

    def draw(self) -> np.ndarray:
        """A plan of the start with a few of its genes changed, so that not everything is timed anew."""
        genome = self.encode(self.start[self.rng.below(len(self.start))])
        for _ in range(1 + self.rng.below(3)):
            at = self.rng.below(self.genes)
            genome[at] = self.rng.below(256) if at in self.alternative_genes else 1 - genome[at]
        return self.encode(self.decode(genome))

    def encode(self, individual: Individual) -> np.ndarray:
        """See `_Code`."""
        genome = np.zeros(self.genes, np.uint8)
        genome[self.link_genes] = super().encode(individual)
        for group, taken in zip(*individual, strict=True):
            genome[self.alternative_genes[next(bits(group))]] = taken
        return genome

    def decode(self, genome: np.ndarray) -> Individual:
        """See `_Code`. The gene of an alternative counts modulo the number of alternatives."""
        plan, _ = super().decode(genome[self.link_genes])
        return plan, tuple(
            int(genome[self.alternative_genes[next(bits(group))]]) % len(self.evaluator(group))
            for group in plan
        )


class _Nsga2(NSGA2):
    """pymoo's loop without the upkeep of an optimum that nothing reads."""

    def _set_optimum(self, **_: object) -> None:
        self.opt = self.pop


class _Draws(Sampling):
    """Plans to start from: those given, then random ones."""

    def __init__(self, code: _Code) -> None:
        super().__init__()
        self.code = code

    def _do(self, problem: Genomes, n_samples: int, *_: object, **__: object) -> Any:
        start = [self.code.encode(individual) for individual in self.code.start]
        plans = [*start[:n_samples], *(self.code.draw() for _ in range(n_samples - len(start)))]
        return np.stack([np.resize(plan, problem.n_var) for plan in plans])


class _Legal(Repair):
    """Replaces each genome by that of the legal plan that it decodes to, and remembers the plan."""

    def __init__(self, code: _Code, decoded: dict[bytes, Individual]) -> None:
        super().__init__()
        self.code = code
        self.decoded = decoded

    def _do(self, problem: Genomes, X: np.ndarray, **_: object) -> np.ndarray:  # noqa: N803 - pymoo's name
        for row, genome in enumerate(X):
            plan = self.code.decode(genome)
            X[row] = np.resize(self.code.encode(plan), problem.n_var)
            self.decoded[X[row].tobytes()] = plan
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
    """Exchanges a stretch of links.

    Links are in topological order, so a stretch is a part of the network, and its groups move together.
    """

    def __init__(self) -> None:
        super().__init__(n_parents=2, n_offsprings=2, prob=0.9)

    def _do(
        self,
        problem: Genomes,
        X: np.ndarray,  # noqa: N803
        *_: object,
        random_state: np.random.Generator,
        **__: object,
    ) -> Any:
        ends = np.sort(random_state.integers(0, problem.n_var + 1, size=(X.shape[1], 2)), axis=1)
        place = np.arange(problem.n_var)
        inside = (place >= ends[:, :1]) & (place < ends[:, 1:])
        return np.where(inside, X[::-1], X)


class _Flip(Mutation):
    """Flips one to three links. A neighbour of the other kind is often flipped too: the cut moves."""

    def _do(
        self,
        problem: Genomes,
        X: np.ndarray,  # noqa: N803
        *_: object,
        random_state: np.random.Generator,
        **__: object,
    ) -> Any:
        changed = X.copy()
        links = problem.n_var
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


class _Turn(_Flip):
    """`_Flip` of the links of half of the plans; in the others, one group takes another alternative."""

    def __init__(self, code: _AlternativesCode) -> None:
        super().__init__()
        self.code = code

    def _do(
        self,
        problem: Genomes,
        X: np.ndarray,  # noqa: N803
        *_: object,
        random_state: np.random.Generator,
        **__: object,
    ) -> Any:
        changed = X.copy()
        code = self.code
        turned = random_state.integers(0, 2, size=len(X)) > 0
        sites = code.alternative_genes[random_state.integers(0, len(code.alternative_genes), size=len(X))]
        values = random_state.integers(0, code.largest + 1, size=len(X))
        changed[turned, sites[turned]] = values[turned]
        if len(code.link_genes):
            links = Genomes(n_var=len(code.link_genes), xl=0, xu=1, vtype=np.uint8)
            flipped = super()._do(links, X[:, code.link_genes], random_state=random_state)
            changed[np.ix_(~turned, code.link_genes)] = flipped[~turned]
        return changed


class _RankAndCrowding(Survival):
    """Keeps the best by rank, then crowding, and leaves them in that order."""

    def __init__(self) -> None:
        super().__init__(filter_infeasible=False)

    def _do(self, _: Genomes, pop: Any, *__: object, n_survive: int, **___: object) -> Any:
        points: list[Point] = [tuple(map(int, row)) for row in pop.get("F")]
        survivors: list[int] = []
        for rank, front in enumerate(fronts(points)):
            if len(survivors) >= n_survive:
                break
            pop[front].set("rank", rank)
            survivors += by_crowding(front, points)
        return pop[survivors[:n_survive]]
