"""Why a group does not fit, what takes how much of the buffer, and what would repair it.

The data that `lfopt explain` and the report show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from explainers.graph import links
from lfopt.app.guidance import explainer, splitter
from lfopt.app.needs import BufferNeed, full_need, role_of
from lfopt.app.options import ExplainerName
from lfopt.fusion import Adapted, CostModel, Floor
from lfopt.ir import Cost, Graph, Hardware, InvalidConfig, LfoptError, Plan, Scheme
from lfopt.ops import Dataflow, bits
from lfopt.ops.excerpt import excerpt
from lfopt.planning import MODES, GroupCosts, Traffic
from lfopt.planning.defaults import MAX_RECOMPUTE
from lfopt.planning.modes import ModeOption
from lfopt.planning.modes.mode import is_single
from search.exact import solve
from search.options import SearchOptions
from search.partition import Partitions

Scores = Callable[[int], np.ndarray]  # (group) -> (links,) float64, see `explainers.graph.links`
Splits = Callable[[int], tuple[int, ...] | None]  # (group) -> legal groups in its place, or None
# those asked where nothing else is said, if there are weights for the scheme
SHIPPED: tuple[ExplainerName, ...] = ("rg", "pg")
NO_WAYS: Mapping[int, ModeOption] = MappingProxyType({})


# -- what would repair it ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossing:
    """A map that moves more often in a divided group than in a whole one."""

    map: int  # index in the dataflow
    bytes: int  # its size in DRAM
    stored_by: int  # position of the part; -1: it comes from outside
    loaded_by: tuple[int, ...]
    added: int  # bytes moved more


@dataclass(frozen=True, slots=True)
class Repair:
    """The groups that take the place of one that does not fit."""

    groups: tuple[int, ...]  # masks, in an executable order
    dram_bytes: int
    whole_bytes: int  # what the group would move as one, in a buffer that is large enough
    lower_bound_bytes: int  # no partition of these operators into legal groups moves less
    by: str  # exact, or the explainer whose SPLIT found less in the time that the exact search was given
    seconds: float
    crossings: tuple[Crossing, ...]  # the most bytes first

    @property
    def optimal(self) -> bool:
        """Whether nothing better exists."""
        return self.dram_bytes == self.lower_bound_bytes

    @property
    def again(self) -> int:
        """DRAM bytes beyond those of one group and of the crossings: weights, and maps of tiled groups."""
        return self.dram_bytes - self.whole_bytes - sum(crossing.added for crossing in self.crossings)


def whole_bytes(costs: GroupCosts, mask: int) -> int:
    """DRAM bytes of the group where the buffer is large enough: every tensor once."""
    return costs.groups.once(mask).total


def repair(
    costs: GroupCosts, mask: int, splits: Mapping[str, tuple[int, ...] | None], seconds: float
) -> Repair:
    """The partition of a group into legal groups that moves the fewest DRAM bytes.

    By exact search for at most so many seconds, or the best of `splits`, by explainer, where that is better.
    Raises KeyboardInterrupt where Ctrl-C ends the search.
    """
    clock = time.perf_counter()
    operators = [*bits(mask)]
    flights = [costs.dataflow.names(1 << i) for i in operators]  # what is in flight there is in flight here
    part = excerpt(costs.dataflow, mask)
    space = {"scheme": costs.scheme, "epilogue": costs.epilogue, "max_recompute": costs.max_recompute}
    inner = GroupCosts.of(part, costs.hardware, costs.traffic, **space, groups=flights)

    def outside(group: int) -> int:
        return sum(1 << operators[k] for k in bits(group))

    result = solve(_PricedOutside(inner, costs, outside), SearchOptions(time_limit=seconds))
    if result.interrupted:
        raise KeyboardInterrupt
    groups = tuple(map(outside, result.groups))
    moved = moved_bytes(costs, groups)
    by = "exact"
    for name, split in splits.items():
        if split is not None and (less := moved_bytes(costs, split)) < moved:
            groups = split
            moved = less
            by = name
    bound = min(result.lower_bound_bytes, moved)
    return Repair(
        groups,
        moved,
        whole_bytes(costs, mask),
        bound,
        by,
        time.perf_counter() - clock,
        _crossings(costs, mask, groups),
    )


class _PricedOutside(Adapted[Floor]):
    """A cost model of an excerpt of a network, in which groups cost what they do in the whole."""

    def __init__(self, inner: CostModel[Floor], costs: GroupCosts, outside: Callable[[int], int]) -> None:
        """`outside`: a group of the excerpt -> the same in the network."""
        super().__init__(inner)
        self.costs = costs
        self.outside = outside

    @property
    def simpler(self) -> CostModel | None:
        """The excerpt's own: it is only to begin with."""
        return self.model.simpler

    def price(self, group: int, /) -> Cost | None:
        """Cost of the group in the network."""
        return self.costs.price(self.outside(group))


def moved_bytes(costs: GroupCosts, groups: Iterable[int]) -> int:
    """DRAM bytes of legal groups."""
    return sum(costs.dram(group).total for group in groups)


def _crossings(costs: GroupCosts, mask: int, groups: tuple[int, ...]) -> tuple[Crossing, ...]:
    flow = costs.dataflow
    owner = {i: g for g, group in enumerate(groups) for i in bits(group)}
    crossings: list[Crossing] = []
    for m in sorted({m for i in bits(mask) for m in (*flow.results[i], *(o.map for o in flow.operands[i]))}):
        maker = owner.get(flow.producer[m], -1)
        loaded = tuple(sorted({owner[i] for i in bits(flow.readers[m] & mask)} - {maker}))
        role = role_of(flow, mask, flow.maps[m].name)
        times = len(loaded) - (role == "input") + (role == "inner" and bool(loaded))
        if times > 0:
            size = costs.hardware.dram_bytes(flow.maps[m])
            crossings.append(Crossing(m, size, maker, loaded, times * size))
    return tuple(sorted(crossings, key=lambda crossing: -crossing.added))


# -- what explanations say -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Blame:
    """What one explainer says of the links of a group."""

    explainer: str
    scores: np.ndarray  # (links,) float64; -inf: not part of the explanation
    groups: tuple[int, ...] | None  # what SPLIT makes of the group with these scores
    dram_bytes: int  # of those groups

    @property
    def ranking(self) -> list[int]:
        """Links of the explanation, those to blame the most first."""
        return [k for k in np.argsort(-self.scores, kind="stable").tolist() if self.scores[k] != -np.inf]


@dataclass(frozen=True, eq=False)
class Explainers:
    """Explainers of the groups of one network."""

    by_name: Mapping[str, tuple[Scores, Splits]]  # each with the SPLIT that follows its scores
    requested: bool = False  # by name: such are asked about groups that fit, too
    missing: Mapping[str, str] = field(default_factory=dict[str, str])  # requested ones -> why they are not

    @classmethod
    def of(cls, costs: GroupCosts, names: Sequence[ExplainerName], seed: int) -> Explainers:
        """Explainers by name; if none is named, analytic, and those of `SHIPPED` that there are weights for.

        Raises InvalidConfig where none of those that are named can be had.
        """
        by_name: dict[str, tuple[Scores, Splits]] = {}
        missing: dict[str, str] = {}
        partitions = Partitions(costs)
        for name in names or ("analytic", *SHIPPED):
            try:
                scores = explainer(costs, name, seed)
            except (LfoptError, OSError) as error:
                missing[name] = str(error).removeprefix("search.guidance: ")
                continue
            by_name[name] = scores, splitter(scores, partitions)
        those = cls(by_name, bool(names), missing if names else {})
        if not by_name:
            those.refuse_missing()
        return those

    def refuse_missing(self) -> None:
        """Raise InvalidConfig where one that was asked for is not there."""
        if self.missing:
            raise InvalidConfig("; ".join(f"--explainer {name}: {why}" for name, why in self.missing.items()))


def blame(costs: GroupCosts, mask: int, name: str, scores: Scores, split: Splits | None) -> Blame:
    """What an explainer says of a group; `split` is None where the group fits, and is not to be split."""
    groups = None if split is None else split(mask)
    return Blame(name, np.asarray(scores(mask), np.float64), groups, moved_bytes(costs, groups or ()))


@dataclass(frozen=True, eq=False)
class Explanation:
    """All that is known of one group."""

    group: int  # mask of operators
    need: BufferNeed
    cost: Cost | None  # as a search sees it; None: not legal
    alone_bytes: int  # DRAM bytes of its operators unfused
    whole_bytes: int  # DRAM bytes as one group, every tensor once
    # DRAM bytes in the smallest sufficient buffer; None if there is none, or if it holds the smallest tiles
    enough_bytes: int | None
    links: np.ndarray  # (2, links) int64: indices of operators
    blames: tuple[Blame, ...]
    repair: Repair | None  # None where the group runs whole
    missing: Mapping[str, str] = field(default_factory=dict[str, str])  # explainers -> why they say nothing


def explained(
    costs: GroupCosts,
    mask: int,
    by: Explainers,
    seconds: float,
    ways: Mapping[int, ModeOption] = NO_WAYS,
) -> Explanation:
    """Explain a connected, convex group.

    The exact search for its best cut takes at most so many seconds, the search for chains in smaller buffers
    as many. `ways`: see `take_planned`.
    """
    end = time.perf_counter() + seconds
    need, enough = full_need(costs, mask, ways, lambda: time.perf_counter() > end)
    where = np.array([*bits(mask)])[links(costs.dataflow, mask)]
    if where.size and (by.requested or not need.fits):
        blames = tuple(
            blame(costs, mask, name, scores, None if need.fits else split)
            for name, (scores, split) in by.by_name.items()
        )
    else:
        blames = ()
    best = None
    if not need.fits or not (MODES[need.mode].whole or is_single(mask)):
        best = repair(costs, mask, {b.explainer: b.groups for b in blames}, seconds)
    alone = moved_bytes(costs, (1 << i for i in bits(mask)))
    return Explanation(
        mask,
        need,
        costs.price(mask),
        alone,
        whole_bytes(costs, mask),
        enough,
        where,
        blames,
        best,
        by.missing,
    )


def divided(where: np.ndarray, groups: Sequence[int]) -> list[bool]:
    """(links,) bool: whether the operators of a link are in different groups; `where`: (2, links) int64."""
    owner = {i: g for g, group in enumerate(groups) for i in bits(group)}
    return [owner[u] != owner[v] for u, v in where.T.tolist()]


def costs_of_plan(plan: Plan, graph: Graph, hardware: Hardware, scheme: Scheme | None = None) -> GroupCosts:
    """What groups cost in the space of a plan, on its chip or another.

    What traffic paper leaves out is counted once, as everything else there.
    """
    traffic = Traffic.ONCE if plan.traffic == "paper" else Traffic(plan.traffic)
    groups = [group.nodes for group in plan.groups]
    most = plan.max_recompute if scheme in (None, plan.scheme) else MAX_RECOMPUTE
    space = {"scheme": scheme or plan.scheme, "epilogue": plan.epilogue, "max_recompute": most}
    return GroupCosts.of(graph, hardware, traffic, **space, groups=groups)


# -- as JSON -------------------------------------------------------------------------------------------------


def as_data(explanation: Explanation, flow: Dataflow) -> dict[str, Any]:
    """An explanation as plain data, with names for numbers."""
    need = explanation.need
    cost = explanation.cost
    best = explanation.repair
    names = [operator.name for operator in flow.operators]

    def groups(masks: Iterable[int]) -> list[list[str]]:
        return [list(flow.names(mask)) for mask in masks]

    return {
        "operators": list(flow.names(explanation.group)),
        "fits": need.fits,
        "mode": need.mode,
        "needed_bytes": need.bytes,
        "available_bytes": need.available,
        "over_bytes": 0 if need.fits or need.never else need.over,
        "smallest_sufficient_buffer_bytes": need.enough,
        "smaller_buffers_settled": need.settled,
        "smallest_buffer_to_run_whole_bytes": need.whole,
        "dram_bytes_in_that_buffer": explanation.enough_bytes,
        "never": need.never,
        "weight_bytes": need.weights,
        "takes": [asdict(use) for use in need.uses],
        "runs_as": cost.mode if cost else None,
        "dram_bytes": cost.dram_bytes if cost else None,
        "dram_bytes_one_by_one": explanation.alone_bytes,
        "dram_bytes_in_one_group": explanation.whole_bytes,
        "links": [[names[u], names[v]] for u, v in explanation.links.T.tolist()],
        "cut": best
        and {
            "found_by": best.by,
            "proof": "optimal" if best.optimal else "bound",
            "groups": groups(best.groups),
            "dram_bytes": best.dram_bytes,
            "dram_bytes_in_one_group": best.whole_bytes,
            "lower_bound_bytes": best.lower_bound_bytes,
            "seconds": round(best.seconds, 3),
            "links": [k for k, cut in enumerate(divided(explanation.links, best.groups)) if cut],
            "crossing": [
                asdict(crossing) | {"map": flow.maps[crossing.map].name} for crossing in best.crossings
            ],
            "moved_again_bytes": best.again,
        },
        "explainers": {
            blamed.explainer: {
                "scores": [None if score == -np.inf else score for score in blamed.scores.tolist()],
                "ranking": blamed.ranking,
                "split": None if blamed.groups is None else groups(blamed.groups),
                "split_dram_bytes": blamed.dram_bytes if blamed.groups else None,
            }
            for blamed in explanation.blames
        },
        "missing_explainers": dict(explanation.missing),
    }
