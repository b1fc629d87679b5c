"""Why a group does not fit, what takes how much of the buffer, and what would repair it.

The data that `lfopt explain` and the report show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from explainers.graph import links
from lfopt.app.guidance import explainer, splitter
from lfopt.app.options import ExplainerName
from lfopt.fusion import Adapted, CostModel, Floor
from lfopt.ir import Cost, Graph, Hardware, InvalidConfig, LfoptError, Plan, Scheme
from lfopt.ir.cost import Mode
from lfopt.ops import Dataflow, bits
from lfopt.ops.excerpt import excerpt
from lfopt.planning import NEVER, GroupCosts, Traffic
from lfopt.planning.steps.place_names import tensor_in
from search.exact import solve
from search.options import SearchOptions
from search.partition import Partitions

Scores = Callable[[int], np.ndarray]  # (group) -> (links,) float64, see `explainers.graph.links`
Splits = Callable[[int], tuple[int, ...] | None]  # (group) -> legal groups in its place, or None
# those asked where nothing else is said, if there are weights for the scheme
SHIPPED: tuple[ExplainerName, ...] = ("rg", "pg")
Role = Literal["input", "inner", "output", "weights", "sums", "parameters", "gaps"]


# -- what takes the buffer -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferOccupant:
    """Something that takes space in the buffer."""

    what: str  # a map, an operator with weights, or a constant
    # of a map: input, read from outside; inner, read by the group alone; output, needed outside. gaps: left
    # between maps of different sizes
    role: Role
    rows: int  # of a map or of partial sums, held at once; else 0
    row_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BufferNeed:
    """What a group takes of the buffer: in its mode, or, where none fits, in the one that needs the least."""

    mode: Mode
    bytes: int  # F_beta; 0 where no buffer is large enough
    available: int  # beta
    uses: tuple[BufferOccupant, ...]  # the largest first; they add up to `bytes`
    enough: int  # the smallest sufficient buffer, in whatever mode of the scheme; 0 if there is none
    never: str = ""  # why no buffer is large enough
    weights: int = 0  # bytes of weights, where they have a buffer of their own

    @property
    def fits(self) -> bool:
        """Whether the group runs whole from the buffer."""
        return not self.never and self.bytes < self.available

    @property
    def over(self) -> int:
        """Bytes by which the group, or the buffer, would have to change."""
        return self.bytes - self.available + 1


def need_of(costs: GroupCosts, mask: int) -> BufferNeed:
    """What takes how much of the buffer."""
    beta = costs.hardware.buffer_bytes
    price = costs.price(mask)
    name, least = costs.least_need(mask)
    if not costs.groups.parameters_fit(mask):
        store = costs.hardware.parameter_store_bytes
        needed_parameters = costs.groups.parameter_bytes(mask)
        if needed_parameters <= store:
            tables = costs.groups.tables_of(mask)
            most = costs.hardware.parameter_tables
            return BufferNeed(
                name, 0, beta, (), 0, f"its operators have {tables:,} tables, and their store holds {most:,}"
            )
        return BufferNeed(
            name,
            0,
            beta,
            (),
            0,
            f"its parameters take {needed_parameters:,} B, and their store has {store:,}",
        )
    if least == NEVER:
        if (weights := costs.least_weights(mask)) is not None:
            lacking = (
                f"its weights take {weights[1]:,} B on chip at the least, and their buffer has "
                f"{costs.hardware.weight_buffer_bytes:,}"
            )
            return BufferNeed(weights[0], 0, beta, (), 0, lacking, weights[1])
        return BufferNeed(name, 0, beta, (), 0, costs.modes[name].never(mask))
    mode, needed = (
        (price.mode, price.buffer_bytes)
        if price is not None and costs.modes[price.mode].whole
        else (name, least)
    )
    uses = sorted(costs.modes[mode].uses(mask, beta), key=lambda use: -use.bytes)
    flow = costs.dataflow
    weights = 0
    if costs.hardware.weight_buffer_bytes:
        weights = sum(use.bytes for use in uses if use.kind == "weights")
        uses = [use for use in uses if use.kind != "weights"]
    uses_of_maps = [
        BufferOccupant(use.what, _role(flow, mask, use.what) if use.kind == "map" else use.kind, *use[2:])
        for use in uses
        if use.bytes
    ]
    if gaps := needed - sum(use.bytes for use in uses_of_maps):
        uses_of_maps.append(BufferOccupant("between maps", "gaps", 0, 0, gaps))
    return BufferNeed(mode, needed, beta, tuple(uses_of_maps), least + 1, weights=weights)


def _role(flow: Dataflow, mask: int, name: str) -> Role:
    """What a map is to a group, by the name of its place."""
    m = flow.map_index[name if name in flow.map_index else tensor_in(name)]
    if flow.producer[m] < 0 or not mask >> flow.producer[m] & 1:
        return "input"
    if flow.is_output[m] or flow.readers[m] & ~mask:
        return "output"
    return "inner"


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
        role = _role(flow, mask, flow.maps[m].name)
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
    enough_bytes: int  # DRAM bytes in the smallest sufficient buffer; 0 if there is none
    links: np.ndarray  # (2, links) int64: indices of operators
    blames: tuple[Blame, ...]
    repair: Repair | None  # None where the group fits
    missing: Mapping[str, str] = field(default_factory=dict[str, str])  # explainers -> why they say nothing


def explained(costs: GroupCosts, mask: int, by: Explainers, seconds: float) -> Explanation:
    """Explain a connected, convex group. The exact search for its best cut takes at most so many seconds."""
    need = need_of(costs, mask)
    where = np.array([*bits(mask)])[links(costs.dataflow, mask)]
    if where.size and (by.requested or not need.fits):
        blames = tuple(
            blame(costs, mask, name, scores, None if need.fits else split)
            for name, (scores, split) in by.by_name.items()
        )
    else:
        blames = ()
    best = None if need.fits else repair(costs, mask, {b.explainer: b.groups for b in blames}, seconds)
    alone = moved_bytes(costs, (1 << i for i in bits(mask)))
    enough = costs.at(need.enough).dram(mask).total if need.enough else 0
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
    groups = [group.nodes for group in plan.groups] if scheme in (None, plan.scheme) else None
    space = {"scheme": scheme or plan.scheme, "epilogue": plan.epilogue}
    return GroupCosts.of(graph, hardware, traffic, **space, max_recompute=plan.max_recompute, groups=groups)


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
