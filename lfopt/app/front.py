"""The Pareto front of a network's plans over buffers and MAC arrays, and advice on which chip to buy.

For each chip, an exact search finds the plan of least value of every objective and the corners between them
(`search.fronts.supported`); NSGA-II, started from those, looks for plans inside their convex hull. In schemes
that compute again, the searches of a balanced plan follow, and of the groups that they find the plans that
none of them beats. Then plans that another one dominates, on whatever chip, are marked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple

from hw_rtl.area import estimate
from lfopt.app.balanced import BalancedCandidate
from lfopt.app.config import Config, SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.figures import GroupFigures, least_figures
from lfopt.app.files import path_of
from lfopt.app.front_data import COSTS, Advice, CostName, Found, FrontData, Point
from lfopt.app.options import ChipBudgetOption, CornersOption, FrontSecondsOption, SeedOption
from lfopt.app.pipeline import BALANCED_SECONDS, JobOutcome, find_plan
from lfopt.app.recompute import Recomputed, costs_of, macs_allowed
from lfopt.app.sizes import format_size
from lfopt.fusion import CostModel
from lfopt.ir import Figures, Graph, InvalidConfig
from lfopt.ops import Dataflow
from lfopt.planning import SCHEMES, GroupCosts
from search.exact import solve
from search.fronts import AXES, Bend, Supported, efficient, hypervolume, knee, supported
from search.objectives import FIGURE, OBJECTIVES, Choice, Objective, ObjectiveName, best_of, optimise
from search.options import SearchOptions
from search.result import Result
from search.weighted import CostWeights

FIRST = CostWeights(1 << 48, 1, 0)  # bytes, then cycles
ONCE = 0.3  # of a chip's time, for plans that compute nothing again, where others follow
MOST_RECOMPUTED = 32  # plans of a chip that compute again, beside the best of each objective


@dataclass(frozen=True)
class FrontQuery:
    """What a front is asked of."""

    config: Config  # network, chip, scheme; of its search nothing is read
    buffers: tuple[int, ...]  # bytes, rising
    arrays: tuple[tuple[int, int], ...]  # MACs: input channels x output channels, in order of their product
    # whose best plan is wanted of each chip
    objectives: tuple[ObjectiveName, ...] = OBJECTIVES
    minimise: tuple[CostName, ...] = COSTS  # in which a plan must be beaten to be left out
    corners: CornersOption = 32
    budget: ChipBudgetOption = 200
    seed: SeedOption = SearchConfig.seed
    time_limit: FrontSecondsOption | None = None

    @property
    def figures(self) -> tuple[str, ...]:
        """Fields of Figures that the objectives are of."""
        wanted = {
            name
            for objective in self.objectives
            for name in ([FIGURE[objective]] if objective in FIGURE else ["cycles", "energy_pj"])
        }
        return tuple(name for name in AXES if name in wanted)


@dataclass(frozen=True, repr=False)
class Front(FrontData):
    """Plans on chips, and what they say; it can be written as files."""

    def save(self, folder: str | os.PathLike[str], *, every: bool = False) -> None:
        """Write front.csv, front.json, front.svg and front.html into a folder.

        `every`: with dominated plans. Raises CannotWrite.
        """
        from lfopt.app.front_files import write_front  # noqa: PLC0415  (it brings matplotlib)

        write_front(self, path_of(folder, "folder"), every=every)


def front_of(graph: Graph, question: FrontQuery, report: ReportProgress | None = None) -> Front:
    """The Pareto front of a network; Ctrl-C and the time limit leave what was found.

    Raises InvalidConfig for a network in which nothing moves.
    """
    if not len(Dataflow.of(graph)):
        raise InvalidConfig(
            f"{graph.name}: found no operators that compute anything; accepted: a network whose plans differ"
        )
    clock = time.perf_counter()
    end = None if question.time_limit is None else clock + question.time_limit
    points: list[Point] = []
    interrupted = False
    done = 0
    chips = list(_chips(graph, question))
    try:
        for k, chip in enumerate(chips):
            now = time.perf_counter()
            if end is not None and now >= end:
                break
            chip.deadline = None if end is None else now + (end - now) / (len(chips) - k)
            if report is None:
                progress = None
            else:
                progress = _share(report, f"{chip.name} ({k + 1} of {len(chips)})", k, len(chips))
            try:
                chip.finished = chip.explore(question, progress)
            finally:
                points += chip.points(question)
            done += chip.finished
            interrupted = chip.interrupted
            if interrupted:
                break
    except KeyboardInterrupt:
        interrupted = True
    return _assembled(
        graph.name, question, points, done, len(chips), time.perf_counter() - clock, interrupted=interrupted
    )


def _share(report: ReportProgress, name: str, k: int, count: int) -> ReportProgress:
    return lambda what, done: report(f"{name}: {what}", (k + min(done, 1.0)) / count)


def _chips(graph: Graph, question: FrontQuery) -> Iterator[_Chip]:
    """Every buffer with every array. What does not depend on the buffer is shared."""
    for rows, columns in question.arrays:
        hardware = replace(
            question.config.hardware, mac_rows=rows, mac_columns=columns, buffer_bytes=max(question.buffers)
        )
        costs = costs_of(replace(question.config, hardware=hardware), graph)
        before = None
        for size in question.buffers:
            before = _Chip(costs.at(size), before)
            yield before


class _Exact(NamedTuple):
    choice: Choice
    gap: float | None


class _Recomputed(NamedTuple):
    """A plan that may compute again and keep maps on chip."""

    groups: tuple[tuple[str, ...], ...]  # names of operators; a copy of one has a name of its own
    without_steps: int  # groups that cannot run


class _Chip:
    """One buffer and one array, and the plans found for it."""

    def __init__(self, costs: GroupCosts, before: _Chip | None) -> None:
        self.costs = costs
        self.before = before  # same array, another buffer
        self.deadline: float | None = None
        self.interrupted = False
        # whether everything was looked at; if not, nothing but bytes is proven: some options were not timed
        self.finished = False
        self.figures: GroupFigures | None = None
        self.exact: dict[Figures, _Exact] = {}
        self.sampled: list[Choice] = []
        self.recomputed: dict[Figures, _Recomputed] = {}
        self.bounds: dict[ObjectiveName, int] = {}  # of the objectives

    @property
    def name(self) -> str:
        """Sizes of its buffer and MAC array, for messages."""
        hardware = self.costs.hardware
        return f"{format_size(hardware.buffer_bytes)}, {hardware.mac_rows} x {hardware.mac_columns}"

    def late(self) -> bool:
        """Whether its time is over."""
        return self.deadline is not None and time.perf_counter() > self.deadline

    def explore(self, question: FrontQuery, report: ReportProgress | None) -> bool:
        """Find its plans; whether that came to an end."""
        if not SCHEMES[self.costs.scheme].copies or self.costs.hardware.l2_bytes:
            return self._explore_once(question, report)
        begun, end = time.perf_counter(), self.deadline
        if end is not None:
            self.deadline = begun + ONCE * (end - begun)
        complete = self._explore_once(question, report)
        self.deadline = end
        if not self.interrupted:
            self._explore_recomputed(question, report)
        return complete and not self.interrupted

    def _explore_recomputed(self, question: FrontQuery, report: ReportProgress | None) -> None:
        """Find plans that compute again and keep maps on chip, and what no plan takes less of."""
        graph = self.costs.dataflow.graph

        def searched(objective: ObjectiveName, seconds: float) -> JobOutcome:
            how = SearchConfig(objective=objective, time_limit=seconds)
            config = replace(question.config, hardware=self.costs.hardware, search=how)
            outcome = find_plan(config, report, graph=graph)
            self.interrupted = self.interrupted or outcome.interrupted
            return outcome

        left = self._left()
        fewest = searched("bytes", BALANCED_SECONDS if left is None else left / 2)
        balanced = searched("balanced", self._left() or BALANCED_SECONDS)
        if balanced.judged is None or balanced.judged.least is None:
            return
        result = Recomputed.unproven(fewest.graph, (), fewest.costs, fewest.best.result.groups)
        candidates = [
            *balanced.judged.candidates,
            BalancedCandidate.of(result, GroupFigures(fewest.costs, late=self.late)),
        ]
        most_macs = macs_allowed(question.config, graph)
        self.recomputed = _thinned(_unbeaten(candidates, question.figures, most_macs))
        bound = min(balanced.judged.least.dram_bytes, fewest.best.result.lower_bound_bytes)
        least = least_figures(self.costs, bound)
        for objective in OBJECTIVES:
            self.bounds[objective] = Objective(objective).value(least)

    def _explore_once(self, question: FrontQuery, report: ReportProgress | None) -> bool:
        """Find its plans in which nothing is computed again; whether that came to an end."""
        known = self.before.figures if self.before is not None else None
        progress = None if report is None else lambda count: report(f"{count:,} kinds of groups timed", 0.5)
        figures = self.figures = GroupFigures(self.costs, progress, late=self.late, known=known)
        fewest = solve(self.costs, SearchOptions(time_limit=self._left()))
        self.bounds["bytes"] = fewest.lower_bound_bytes
        self._add(
            best_of(figures, fewest.groups, FIRST), fewest.dram_bytes / max(fewest.lower_bound_bytes, 1) - 1
        )
        if fewest.interrupted:
            self.interrupted = True
            return False
        if question.figures == ("dram_bytes",):
            return not self.late()
        complete = self._corners(question, figures, fewest.groups)
        if complete and question.budget and len(question.figures) > 1:
            self._sample(question, figures, report)
        return complete and not self.interrupted and not self.late()

    def _corners(self, question: FrontQuery, figures: GroupFigures, start: Sequence[int]) -> bool:
        """The best plan of each objective, and corners between; whether all were looked for."""

        def run(model: CostModel, first: Sequence[int]) -> Result:
            searched = solve(model, SearchOptions(time_limit=self._left(), passes=1, start=(tuple(first),)))
            self.interrupted = self.interrupted or searched.interrupted
            return searched

        searched = 0
        proven = True
        for corner in supported(
            self.costs, figures, figures.least, run, start, question.figures, question.corners
        ):
            searched = searched + 1
            proven = proven and corner.bound >= corner.value
            self._add(corner.choice, _gap(corner))
            name: ObjectiveName | None = next(
                (name for name, figure in FIGURE.items() if corner.weights == _only(AXES[figure])), None
            )
            if name is not None:
                self.bounds[name] = max(self.bounds.get(name, 0), corner.bound)
            if self.late():
                return False
        if not self.interrupted and "edp" in question.objectives:
            optimum = optimise(self.costs, figures, figures.least, Objective("edp"), run, start, self.late)
            if not self.interrupted:
                self._add(optimum.choice, None)
                # a product is least at a corner of the hull, and no corner is missing
                every = proven and searched < question.corners
                self.bounds["edp"] = min(map(Objective("edp").value, self.exact)) if every else optimum.bound
        return not self.interrupted

    def _sample(self, question: FrontQuery, figures: GroupFigures, report: ReportProgress | None) -> None:
        from search.nsga2 import evolve_figures  # noqa: PLC0415  (pymoo takes a second)

        def progress(done: int, total: int, best: int | None, bound: int) -> None:
            if report is not None:
                report(f"nsga2: {done:,} of {total:,} plans", 0.5 + 0.5 * done / total)

        options = SearchOptions(
            time_limit=self._left(), progress=progress, budget=question.budget, seed=question.seed
        )
        start = [exact.choice for exact in self.exact.values()]
        self.sampled, stopped = evolve_figures(
            self.costs, figures, [AXES[name] for name in question.figures], start, options
        )
        self.interrupted = self.interrupted or stopped

    def _add(self, choice: Choice, gap: float | None) -> None:
        known = self.exact.get(choice.figures)
        gaps = [g for g in (gap, known.gap if known else None) if g is not None]
        self.exact[choice.figures] = _Exact(known.choice if known else choice, min(gaps, default=None))

    def _left(self) -> float | None:
        if self.deadline is None:
            return None
        return max(self.deadline - time.perf_counter(), 0.1)

    def points(self, question: FrontQuery) -> Iterator[Point]:
        """The plans found for it; of equal ones, that of an exact search."""
        every = [*self.exact, *(choice.figures for choice in self.sampled), *self.recomputed]
        values: list[tuple[ObjectiveName, int]] = [
            (name, min((Objective(name).value(figures) for figures in every), default=0))
            for name in question.objectives
        ]
        hardware = self.costs.hardware
        flow = self.costs.dataflow
        area = estimate(hardware)

        proven = {
            name: bound
            for name, bound in self.bounds.items()
            if bound and (self.finished or name == "bytes" or self.recomputed)
        }

        def point(
            figures: Figures,
            groups: tuple[tuple[str, ...], ...],
            how: Found,
            gap: float | None,
            without_steps: int,
        ) -> Point:
            best: list[tuple[ObjectiveName, int]] = [
                (name, value) for name, value in values if Objective(name).value(figures) == value
            ]
            gaps = tuple(value / proven[name] - 1 if name in proven else None for name, value in best)
            # a weighted sum is the least among plans that compute nothing again
            gap = gap if self.finished and not self.recomputed else None
            least = min((g for g in (*gaps, gap) if g is not None), default=None)
            size = hardware.buffer_bytes, hardware.mac_rows, hardware.mac_columns
            names: tuple[ObjectiveName, ...] = tuple(name for name, _ in best)
            return Point(*size, *figures, area, how, names, gaps, least, groups, without_steps)

        def once(choice: Choice, how: Found, gap: float | None) -> Point:
            groups = tuple(flow.names(group) for group in choice.groups)
            return point(choice.figures, groups, how, gap, self.costs.without_steps(choice.groups))

        for exact in self.exact.values():
            yield once(exact.choice, "exact", exact.gap)
        for choice in self.sampled:
            if choice.figures not in self.exact:
                yield once(choice, "sampled", None)
        sampled = {choice.figures for choice in self.sampled}
        for figures, plan in self.recomputed.items():
            if figures not in self.exact and figures not in sampled:
                yield point(figures, plan.groups, "recomputed", None, plan.without_steps)


def _unbeaten(
    candidates: Sequence[BalancedCandidate], names: Sequence[str], most_macs: int
) -> Iterator[tuple[Figures, _Recomputed]]:
    """The plans of some groups that none of them beats in figures of these names, fewest bytes first.

    Of plans that are equal in these, the first. `most_macs`: multiply-accumulates of a plan at the most.
    """
    plans: list[tuple[BalancedCandidate, Choice]] = []
    for candidate in candidates:
        choices = [candidate.front.choice(k) for k in range(len(candidate.front))]
        plans += [(candidate, choice) for choice in (*choices, candidate.least_energy())]
    plans.sort(key=lambda plan: plan[1].figures)
    compared = [tuple(plan[1].figures[AXES[name]] for name in names) for plan in plans]
    unlike: set[tuple[int, ...]] = set()
    for (candidate, choice), figures, stays in zip(plans, compared, efficient(compared), strict=True):
        if stays and figures not in unlike and candidate.figures.macs_of(choice) <= most_macs:
            unlike.add(figures)
            costs = candidate.plan.costs
            groups = tuple(costs.dataflow.names(group) for group in choice.groups)
            yield choice.figures, _Recomputed(groups, costs.without_steps(choice.groups))


def _thinned(plans: Iterable[tuple[Figures, _Recomputed]]) -> dict[Figures, _Recomputed]:
    """At most MOST_RECOMPUTED of some plans, evenly, and the best of each objective."""
    every = dict(plans)
    figures = list(every)
    step = max(len(figures) / MOST_RECOMPUTED, 1.0)
    kept = {figures[int(k * step)] for k in range(min(len(figures), MOST_RECOMPUTED))}
    if figures:
        kept |= {min(figures, key=Objective(name).value) for name in OBJECTIVES}
    return {one: every[one] for one in figures if one in kept}


def _only(k: int) -> tuple[int, ...]:
    return tuple(int(i == k) for i in range(3))


def _gap(corner: Supported) -> float:
    if corner.bound:
        return corner.value / corner.bound - 1
    if not corner.value:
        return 0.0
    return float("inf")


# -- all chips together --------------------------------------------------------------------------------------


def _assembled(
    name: str,
    question: FrontQuery,
    sampled: list[Point],
    done: int,
    of: int,
    seconds: float,
    *,
    interrupted: bool,
) -> Front:
    costs = [tuple(point.cost(axis) for axis in question.minimise) for point in sampled]
    # the bytes of a plan that cannot run are too few: it dominates none that runs
    compared = [(point.without_steps, *cost) for point, cost in zip(sampled, costs, strict=True)]
    marked = [
        replace(point, dominated=not kept) for point, kept in zip(sampled, efficient(compared), strict=True)
    ]
    points = tuple(
        sorted(
            marked,
            key=lambda p: (
                p.mac_rows * p.mac_columns,
                p.mac_rows,
                p.buffer_bytes,
                p.dram_bytes,
                p.cycles,
                p.energy_pj,
            ),
        )
    )
    volume = hypervolume(costs, costs) if costs else None
    exact = [cost for point, cost in zip(sampled, costs, strict=True) if point.found != "sampled"]
    alone = hypervolume(exact, costs).share if exact else 0.0
    config = question.config
    fewest = min((point.without_steps for point in points), default=0)
    advice = tuple(_advice(question, [point for point in points if point.without_steps == fewest]))
    return Front(
        name,
        config.hardware,
        config.scheme,
        question.minimise,
        points,
        advice,
        volume,
        alone,
        done,
        of,
        seconds,
        interrupted,
    )


def _advice(question: FrontQuery, points: Sequence[Point]) -> Iterator[Advice]:
    """Which buffer to buy for each array, and which array for the largest buffer."""
    names: list[ObjectiveName] = [name for name in question.objectives if name in FIGURE]
    for _, some in groupby(points, key=lambda p: (p.mac_rows, p.mac_columns)):
        of_array = list(some)
        for name in names:
            yield from _choice(of_array, name, "buffer")
    largest = max((p.buffer_bytes for p in points), default=0)
    if "cycles" in names:
        yield from _choice([p for p in points if p.buffer_bytes == largest], "cycles", "MAC array")


def _choice(
    points: Sequence[Point], name: ObjectiveName, of: Literal["buffer", "MAC array"]
) -> Iterator[Advice]:
    """The size to choose by the least value at each size; nothing where there is one size."""
    size: Callable[[Point], int] = (
        (lambda p: p.buffer_bytes) if of == "buffer" else lambda p: p.mac_rows * p.mac_columns
    )
    value = Objective(name).value
    least: dict[int, Point] = {}
    for point in points:
        here = least.get(size(point))
        if here is None or value(point.figures) < value(here.figures):
            least[size(point)] = point
    curve = [least[k] for k in sorted(least)]
    if len(curve) < 2:
        return
    values = [value(p.figures) for p in curve]
    bend = knee([size(p) for p in curve], values)
    shown = [
        format_size(p.buffer_bytes) if of == "buffer" else f"{p.mac_rows} x {p.mac_columns}" for p in curve
    ]
    at = bend.at if bend else min(range(len(values)), key=lambda k: (values[k], k))
    chip = curve[at]
    reason = _reason(name, shown, values, bend)
    yield Advice(
        of,
        name,
        chip.buffer_bytes,
        chip.mac_rows,
        chip.mac_columns,
        bend is not None,
        bend.depth if bend else 0.0,
        reason,
    )


def _reason(name: ObjectiveName, shown: Sequence[str], values: Sequence[int], bend: Bend | None) -> str:
    """One sentence. Shares are of what the smallest size takes."""
    if bend is not None:
        more = f", beyond it {100 * bend.behind:.1f} %"
        least = f" (the least, at {shown[bend.end]})" if bend.end < len(values) - 1 else ""
        return (
            f"up to {shown[bend.at]}, a doubling spares {100 * bend.before:.1f} % of the {name} of "
            f"{shown[0]}{more}{least}"
        )
    end = min(range(len(values)), key=lambda k: (values[k], k))
    if end == 0:
        if name != "energy":
            return f"no larger size takes less: {name} are the least at {shown[0]}"
        return f"no larger size takes less energy than {shown[0]}"
    share = 100 * (values[0] - values[end]) / values[0]
    if end == 1:
        return f"{shown[1]} takes {share:.1f} % less than {shown[0]}, and nothing larger takes less"
    return (
        f"no knee: from {shown[0]} to {shown[end]} every doubling spares about as much, {share:.1f} % in all"
    )
