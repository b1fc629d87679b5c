"""The flow: load, simplify, search, plan. Joins the wings by plain callables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

from onnx import ModelProto

from lfopt.app.chains import fewest_bytes, in_wide_blocks, linked_plans
from lfopt.app.config import Config, SearchConfig
from lfopt.app.constraints import check_names, kept
from lfopt.app.deadline import LEAST_SECONDS, Deadline, ReportProgress
from lfopt.app.first_plan import FirstPlan, with_epilogues
from lfopt.app.levels import in_other_ways, with_or_without_flights
from lfopt.app.objectives import ObjectiveResult, break_ties, plan_among, plan_balanced, plan_for, with_least
from lfopt.app.options import GuidanceName
from lfopt.app.overlap import overlapped
from lfopt.app.plans import make_draft, write_files
from lfopt.app.pytorch import TorchModel
from lfopt.app.recompute import Recomputed, costs_of, macs_allowed, macs_of, may_copy, recompute
from lfopt.app.verify import require_true
from lfopt.frontend import InputShapes, from_model, load
from lfopt.fusion import CostModel
from lfopt.ir import Graph, Hardware, InvalidConfig, InvalidModel, Plan, step_count
from lfopt.ir.names import one_line, plural
from lfopt.ops import Dataflow
from lfopt.planning import (
    MODEL,
    NO_OUTLINES,
    SCHEMES,
    GroupCosts,
    Limit,
    MadeSteps,
    PlanDraft,
    executable,
    up_to,
)
from lfopt.planning.costs.alike import Prices
from lfopt.planning.defaults import BAND_ROWS
from lfopt.rewrite import simplify
from search.exact import LONG
from search.methods import METHODS, taking
from search.objectives import Caps, Objective
from search.options import SearchOptions
from search.partition import Partition, Partitions
from search.result import Result, unfused

ZOO = "zoo:"
Model = str | os.PathLike[str] | ModelProto | TorchModel  # an ONNX file, zoo:NAME, or what is in memory
T = TypeVar("T")
CHAINS = 0.5  # share of the time limit that maps between groups may be looked at
# where another objective than bytes is wanted: that share, and of how many parts of the time for searches the
# plan of the fewest bytes has one
OBJECTIVE_CHAINS = 0.1
OBJECTIVE_PARTS = 3
BALANCED_SECONDS = 28.0  # that a job for a balanced plan takes where it says nothing
CANDIDATES = 4  # plans that compute operators again, or keep maps, among which such an objective may choose


def load_network(
    model: Model, input_shapes: InputShapes | None, rules: str, *, weights: bool = True
) -> Graph:
    """The network of an ONNX file, of the zoo (zoo:NAME) or in memory, simplified."""
    return simplify(load_model(model, input_shapes, weights=weights), rules)


def load_model(model: Model, input_shapes: InputShapes | None, *, weights: bool = True) -> Graph:
    """The network of an ONNX file, of the zoo (zoo:NAME) or in memory, not simplified.

    Raises InvalidModel for an unknown network of the zoo, and whatever loading and exporting raise.
    """
    label = label_of(model)
    if isinstance(model, TorchModel):
        # PyTorch is optional, and slow to import
        model = import_module("lfopt.app.pytorch.export").to_onnx(model, input_shapes)
    if isinstance(model, ModelProto):
        return from_model(model, input_shapes, label=label)
    model = label
    if model.startswith(ZOO):
        from lfopt import zoo  # noqa: PLC0415  (a quarter of a second that a file does not need)

        name = model.removeprefix(ZOO)
        try:
            graph = from_model(zoo.build(name, weights=weights), input_shapes, label=model, name=name)
        except zoo.UnknownNetwork as error:
            raise InvalidModel(str(error)) from None
        return replace(graph, notes=())  # that its weights were not made is no news to anybody
    return load(file_of(model), input_shapes)


def file_of(model: str) -> str:
    """The ONNX file that a model is: itself, or in a folder simplified.onnx or the only one.

    Raises InvalidConfig for a folder of none or several.
    """
    folder = Path(model)
    if not model or not folder.is_dir():
        return model
    if (folder / MODEL).is_file():
        return str(folder / MODEL)
    files = sorted(folder.glob("*.onnx"))
    if len(files) != 1:
        counted = plural(len(files), "ONNX file")
        raise InvalidConfig(
            one_line(
                f"{model}: found a folder with {counted}; accepted: a file, or a folder with {MODEL} or one "
                "ONNX file"
            )
        )
    return str(files[0])


def label_of(model: Model) -> str:
    """What messages call a model. Raises InvalidConfig for what is none."""
    if isinstance(model, ModelProto):
        return one_line(model.graph.name or "model")
    if isinstance(model, TorchModel):
        return type(model).__name__
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else None
    if not isinstance(name, str):
        accepted = "a file name, zoo:NAME, an onnx.ModelProto, a torch.nn.Module, or a lfopt.Graph"
        raise InvalidConfig(f"model: found {type(model).__name__}; accepted: {accepted}")
    return name


def run_search(
    costs: GroupCosts,
    how: SearchConfig,
    *,
    model: CostModel | None = None,
    lower_bound_bytes: int = 0,
    report: ReportProgress | None = None,
    start: tuple[Partition, ...] = (),
) -> Result:
    """The result of the search that a configuration names; `how.compare` is not looked at.

    `model`: the cost model if it is not `costs` itself. `lower_bound_bytes`: what another search has proven
    of the same space. `start`: plans to begin with.
    """
    begin = time.perf_counter()
    method = METHODS[how.method]
    searched = model or (
        Prices().of(costs) if how.method == "exact" and len(costs.dataflow) >= LONG else costs
    )
    name = how.method if how.guidance == "none" else f"{how.method} guided by {how.guidance}"

    def progress(done: int, total: int, best: int | None, bound: int) -> None:
        if report is not None:
            standing = f", best {best:,} B, bound {bound:,} B" if best is not None else ""
            report(f"{name}: {done:,} of {total:,} {method.unit}{standing}", done / total)

    partitions = Partitions(searched)
    # bounds take a while too
    if how.time_limit is None:
        left = None
    else:
        left = max(how.time_limit - (time.perf_counter() - begin), LEAST_SECONDS)
    options = SearchOptions(
        left, None, progress, lower_bound_bytes, partitions, how.budget, how.seed, start=start
    )
    if how.propose == "mapping":
        proposed = METHODS["dnnfusion"].run(searched, options)
        if proposed.interrupted:
            return replace(proposed, method=how.method, seed=how.seed)
        options = replace(options, start=(proposed.groups,))
    if how.guidance != "none":
        from lfopt.app.guidance import explainer, splitter  # noqa: PLC0415  (they bring the explainers)

        split = splitter(explainer(costs, how.guidance, how.seed), partitions)
        options = replace(options, split=split)
    if how.profile:
        options = replace(options, latency=_measured(costs, report))
    return method.run(searched, options)


def _measured(costs: GroupCosts, report: ReportProgress | None) -> Callable[[int], float]:
    from lfopt.app.profiles import latency_here  # noqa: PLC0415  (it brings the code generator)

    return latency_here(
        costs, None if report is None else lambda count: report(f"dnnfusion: {count} groups measured", 0.0)
    )


class SearchRun(NamedTuple):
    """One search of a job."""

    result: Result
    guidance: GuidanceName

    @property
    def name(self) -> str:
        """The method, and who guided it."""
        if self.guidance == "none":
            return self.result.method
        return f"{self.result.method}+{self.guidance}"


@dataclass(frozen=True)
class JobOutcome:
    """What a search job produced."""

    graph: Graph
    costs: GroupCosts
    draft: PlanDraft
    runs: tuple[SearchRun, ...]  # in the order in which they ran
    # whose plan is written: that of the fewest bytes, the first of equals; where another objective is given,
    # of the least value
    best: SearchRun
    wanted: Objective  # what was asked for
    judged: ObjectiveResult | None  # the plan as its objective sees it; None where traffic leaves bytes out
    seconds: dict[str, float]  # by stage
    interrupted: bool  # by Ctrl-C, which stops the job, not just one of its methods
    proven: bool  # whether the search for the fewest bytes came to its end
    deadline: Deadline  # of the whole job, its steps included
    first: FirstPlan  # the plan that is written where the steps of the draft are not made in time
    first_draft: Callable[[], PlanDraft]  # of that plan

    @property
    def plan(self) -> Plan:
        """The plan without places and steps."""
        return self.draft.plan

    def with_draft(self, draft: PlanDraft) -> JobOutcome:
        """The outcome with another plan than the one that was found."""
        groups = tuple(outlined.mask for outlined in draft.outlines)
        best = self.best._replace(result=replace(self.best.result, groups=groups))
        known = {"graph": draft.graph, "costs": draft.costs, "judged": None}
        return replace(self, draft=draft, best=best, proven=False, **known)

    @cached_property
    def network(self) -> Dataflow:
        """The network as it is without copies, nothing in flight."""
        return self.costs.unfused(self.plan.copies).dataflow


class FinishedPlan(NamedTuple):
    """A plan with its steps."""

    plan: Plan
    interrupted: bool  # by Ctrl-C, now or earlier
    draft: PlanDraft  # that it was made of
    # for each group of the plan found that was replaced, as its steps were not made: why not
    replaced: tuple[str, ...] = ()
    # False: the time limit struck before, or there are too many steps; nobody knows whether it holds
    recounted: bool = True

    @property
    def graph(self) -> Graph:
        """The network that it is of."""
        return self.draft.graph


def find_plan(
    config: Config, report: ReportProgress | None = None, *, graph: Graph | None = None, before: float = 0.0
) -> JobOutcome:
    """The job of a configuration but for the steps of the plan and the files.

    Ctrl-C leaves the best plan so far. `graph`: the network as it is to be planned, where there is no need to
    load one; `before`: seconds that have passed in a process that has this one job.
    """
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(stage: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[stage], clock = now - clock, now

    asked = config.search.time_limit is not None
    config = _with_limit(replace(config, search=replace(config.search, objective=config.objective)))
    deadline = Deadline(config.search.time_limit, before=before, open_ended=not asked)
    graph = load_network(config.model, config.input_shapes, config.rules) if graph is None else graph
    config = replace(config, hardware=_chip(config, quantized=graph.quantized))
    if config.constraints:
        check_names(Dataflow.of(graph), config.constraints)
    lap("load")
    deadline = loaded = deadline.after_loading()
    costs = costs_of(config, graph, late=lambda: loaded.late("bounds"))
    first_plan = FirstPlan(graph, costs)
    stopped = False  # by Ctrl-C before the search
    if config.search.time_limit is not None:
        try:
            first_plan = FirstPlan.of(graph, costs, config.search.time_limit)
            deadline = first_plan.make_steps(deadline)
        except KeyboardInterrupt:
            stopped = True
        lap("first plan")
        deadline = deadline.for_network(seconds["first plan"])
    first = replace(config.search, compare=())
    others = _compared(config.search)

    def timed(how: SearchConfig, methods: int) -> SearchConfig:
        """The same, in its part of the time that it and the methods behind it have left."""
        return replace(how, time_limit=deadline.left("search", methods))

    methods = 1 + len(others)
    copying = may_copy(config)
    for_bytes = first.wanted == Objective()
    is_balanced = first.objective == "balanced"
    if stopped:
        searched = Recomputed(graph, (), costs, unfused(costs, first.method), optimal=False)
    else:
        searched = _first_search(config, first_plan, deadline, methods, report)
    network = graph
    searched = searched._replace(result=kept(searched.costs, searched.result))
    graph, copies, costs, result, optimal, *_ = searched
    bound = result.lower_bound_bytes
    runs = [SearchRun(result, first.guidance)]
    lap(runs[-1].name)
    for behind, how in zip(range(len(others), 0, -1), others, strict=True):
        if result.interrupted:
            break
        result = kept(costs, _searched(costs, timed(how, behind), bound, report))
        # that of one set of copies does not hold for others
        bound = bound if copying else max(bound, result.lower_bound_bytes)
        runs.append(SearchRun(result, how.guidance))
        lap(runs[-1].name)
    best = min(runs, key=lambda run: run.result.dram_bytes)
    front = next((run.result.front for run in runs if run.result.front), ())
    judged = None
    most_macs = macs_allowed(config, network)
    plans = [searched._replace(result=best.result), *searched.others]  # that an objective may choose among
    if SCHEMES[config.scheme].chains and (for_bytes or copying) and not is_balanced:
        over = deadline.clock("chains", CHAINS if for_bytes else OBJECTIVE_CHAINS)
        linked = fewest_bytes(linked_plans(searched, best.result, most_macs, over, report))
        chained = in_wide_blocks(config, searched, linked, over)
        plans = [*chained, *plans]
        linked = chained[0]
        graph, copies, costs, result, optimal, *_ = linked
        changed = best._replace(result=result)
        runs = [changed if run is best else run for run in runs]
        best = changed
        lap("chains")
        bound = result.lower_bound_bytes if copying else costs.proven_bytes(bound, copies)
    proven = optimal or searched.ended or best.result.dram_bytes <= bound
    bands = up_to(costs, None if config.band_rows == "max" else config.band_rows or BAND_ROWS)

    def drafted(result: Result, guidance: GuidanceName) -> PlanDraft:
        # steps are made here only for a second level
        stage = "steps" if config.hardware.l2_bytes else "layout"
        most_macs = config.recompute_allowed if SCHEMES[costs.scheme].copies else 1.0  # of a baseline: 1
        allowed = most_macs, first.wanted.name, Limit(lambda: deadline.late(stage))
        known = first_plan.known(costs) if config.band_rows is None else NO_OUTLINES
        return make_draft(
            costs.dataflow.graph, costs, result, bound, front, guidance, bands, copies, *allowed, known
        )

    if config.hardware.l2_bytes and for_bytes:
        costs, stayed_result = with_or_without_flights(
            costs,
            copies,
            best.result,
            lambda searched: drafted(searched, best.guidance),
            partial(deadline.left, "second level"),
        )
        graph = costs.dataflow.graph
        copies = costs.copies_of(copies)
        stayed = best._replace(result=stayed_result)
        runs = [stayed if run is best else run for run in runs]
        best = stayed
        lap("second level")
    if config.traffic == "tiled" and not (for_bytes and deadline.late("cycles")):
        if is_balanced or (copying and not for_bytes):
            macs = most_macs if copying else None
            chosen, judged = _judged_among(plans, first_plan, config, deadline, report, macs)
            graph, copies, costs, *_ = chosen
            bound = judged.result.lower_bound_bytes
        else:
            judged = _judged(costs, config, best.result, deadline, report, most_macs if copies else None)
        judged = with_least(judged, first_plan.costs, bound)
        changed = best._replace(result=judged.result)
        runs = [changed if run is best else run for run in runs]
        best = changed
        lap("cycles")
    interrupted = result.interrupted or best.result.interrupted
    draft, interrupted = _despite_ctrl_c(lambda: drafted(best.result, best.guidance), interrupted)
    if config.hardware.l2_bytes and for_bytes and not interrupted:
        draft = in_other_ways(costs, best.result, draft, lambda searched: drafted(searched, best.guidance))
    lap("plan")
    return JobOutcome(
        graph,
        costs,
        draft,
        tuple(runs),
        best,
        first.wanted,
        judged,
        seconds,
        interrupted,
        proven,
        deadline,
        first_plan,
        lambda: first_plan.draft(best.result, bound, config.recompute_allowed, first.wanted.name),
    )


def _with_limit(config: Config) -> Config:
    """A job with a time limit, if it is for a balanced plan and has none."""
    if config.search.objective != "balanced" or config.search.time_limit is not None:
        return config
    return replace(config, search=replace(config.search, time_limit=BALANCED_SECONDS))


def _chip(config: Config, *, quantized: bool) -> Hardware:
    """The chip of a job; of a balanced plan, weights pass in blocks that fill its array."""
    hardware = config.hardware.of_network(quantized=quantized)
    return hardware.with_wide_blocks if config.search.objective == "balanced" else hardware


def _first_search(
    config: Config, first: FirstPlan, deadline: Deadline, methods: int, report: ReportProgress | None
) -> Recomputed:
    """The plan of the fewest bytes by the method that a configuration names, before chains.

    `methods`: those that share the time, this one included.
    """
    how = replace(config.search, compare=(), time_limit=deadline.left("search", methods))
    if first.groups and deadline.late("search"):
        return Recomputed(first.graph, (), first.costs, first.result(how.method), optimal=False)
    if may_copy(config):
        parts = methods if how.wanted == Objective() else methods * OBJECTIVE_PARTS
        return recompute(config, first, deadline, parts, report)
    start = (first.groups,) if first.groups and how.method == "exact" else ()
    result = _searched(first.costs, how, 0, report, start)
    return Recomputed(first.graph, (), first.costs, result, optimal=False)


def _compared(search: SearchConfig) -> list[SearchConfig]:
    """The searches by other methods that a search is compared with."""
    first = replace(search, compare=())
    plain = replace(first, guidance="none", propose="none")
    others = (
        replace(plain, method=method, profile=first.profile and method in taking("latency"))
        for method in search.compare
    )
    return [other for other in dict.fromkeys(others) if other != first]


def _searched(
    costs: GroupCosts,
    how: SearchConfig,
    bound: int,
    report: ReportProgress | None,
    start: tuple[Partition, ...] = (),
) -> Result:
    """The result of `run_search`; Ctrl-C leaves the best plan so far."""
    try:
        return run_search(costs, how, lower_bound_bytes=bound, report=report, start=start)
    except KeyboardInterrupt:  # before the search began, or after it ended
        return unfused(costs, how.method)


def _judged(
    costs: GroupCosts,
    config: Config,
    searched: Result,
    deadline: Deadline,
    report: ReportProgress | None,
    most_macs: int | None,
) -> ObjectiveResult:
    """The plan that the objective wants. Ctrl-C leaves that of the fewest bytes.

    `most_macs`: multiply-accumulates of the plan at the most; None: groups do not have too many.
    """
    choose = break_ties if config.search.wanted == Objective() else plan_for
    try:
        judged = choose(costs, config, searched, report, deadline)
    except KeyboardInterrupt:
        return ObjectiveResult(None, 0, replace(searched, interrupted=True))
    if most_macs is not None and macs_of(costs, judged.result.groups) > most_macs:
        for group in judged.result.groups:  # in the way of the fewest bytes
            costs.take(group, None)
        return ObjectiveResult(None, 0, searched)
    return judged


def _judged_among(
    plans: Sequence[Recomputed],
    first: FirstPlan,
    config: Config,
    deadline: Deadline,
    report: ReportProgress | None,
    most_macs: int | None,
) -> tuple[Recomputed, ObjectiveResult]:
    """The plan that the objective wants, of some, the best in bytes first. Ctrl-C leaves that.

    `first`: of the network in which nothing is computed again. `most_macs`: of the plan at the most; None:
    groups do not have too many.
    """
    fewest = plans[0]
    # the last with these costs: maps stay on chip in one before it
    once = next((plan for plan in reversed(plans) if plan.costs is first.costs), fewest)
    others = _unlike([once, *plans])[1 : 1 + CANDIDATES]
    try:
        if config.search.objective == "balanced":
            return plan_balanced(_unlike(plans), first.graph, config, report, deadline, most_macs)
        return plan_among([once, *others], config, fewest.result, report, deadline, most_macs)
    except KeyboardInterrupt:
        return fewest, ObjectiveResult(None, 0, replace(fewest.result, interrupted=True))


def _unlike(plans: Sequence[Recomputed]) -> list[Recomputed]:
    """Plans, those left out that have the groups of one before."""
    unlike: dict[Hashable, Recomputed] = {}
    for plan in plans:
        names = [tuple(plan.costs.dataflow.names(group)) for group in plan.result.groups]
        unlike.setdefault((plan.result.dram_bytes, tuple(names)), plan)
    return [*unlike.values()]


def _despite_ctrl_c(action: Callable[[], T], interrupted: bool) -> tuple[T, bool]:
    """(what the action gives, whether there was a Ctrl-C): the first starts it anew, a second is raised."""
    try:
        return action(), interrupted
    except KeyboardInterrupt:
        if interrupted:
            raise
        return action(), True


def check_folder(folder: Path, option: str = "--out") -> None:
    """Check a folder. Raises InvalidConfig where plan.json and simplified.onnx cannot be in it."""
    if folder.exists() and not folder.is_dir():
        raise InvalidConfig(f"{option} {folder}: found a file; accepted: a folder")
    if (folder / "plan.json").is_dir() or (folder / MODEL).is_dir():
        raise InvalidConfig(f"{option} {folder}: plan.json or simplified.onnx is a folder")


def steps_of(outcome: JobOutcome, report: ReportProgress | None = None) -> FinishedPlan:
    """The plan with its steps, and its groups placed to overlap, as far as the job's time allows; recounted.

    Ctrl-C ends the making of steps as the time limit does. Raises KeyboardInterrupt for a second one, also if
    the first has ended the search; FalsePlan for a plan that its recount refuses. Where the time limit leaves
    no time for a recount, the result says so.
    """

    def late() -> bool:
        if report is not None:
            report(f"steps: {limit.spent:,} made", 1.0)
        if unsearched:
            return outcome.deadline.over()
        return outcome.deadline.late("steps")

    first = outcome.first
    draft = outcome.draft
    unsearched = draft.costs is first.costs and outcome.best.result.groups == first.groups
    limit = Limit(late, interruptible=not outcome.interrupted)
    known_steps = first.known_steps if draft.costs is first.costs else MadeSteps()
    plan = draft.finished(limit, known_steps)
    interrupted = outcome.interrupted or limit.interrupted
    finished: FinishedPlan | None = None
    if any(group.unwritten for group in plan.groups) and not (interrupted or unsearched):
        finished = _made_in_time(outcome, plan, known_steps)
    if finished is None:
        finished = FinishedPlan(overlapped(plan, outcome.graph, late), interrupted, draft)
    clock = time.perf_counter()
    if report is not None:
        report("recount", 1.0)
    steps = sum(step_count(group.steps) for group in finished.plan.groups)
    in_time = outcome.deadline.allows_recount(len(finished.plan.groups), steps)
    late_for_recount = outcome.deadline.recount_over
    recounted = in_time and require_true(finished.plan, finished.graph, late_for_recount)
    outcome.seconds["recount"] = time.perf_counter() - clock
    return finished._replace(recounted=recounted)


def _made_in_time(outcome: JobOutcome, plan: Plan, known_steps: MadeSteps) -> FinishedPlan | None:
    """A plan with all its steps, for one of which some were not made in time; None if there is none.

    It is the plan found, with the operators of those groups as before the search, or the plan of before the
    search where that moves less.
    """
    first = outcome.first
    draft = outcome.draft
    if not first.groups or outcome.wanted.caps != Caps():
        return None
    over = outcome.deadline.over
    costs = draft.costs
    unwritten = tuple(group.unexecutable for group in plan.groups if group.unwritten)
    kept = [o.mask for o, group in zip(draft.outlines, plan.groups, strict=True) if not group.unwritten]
    rest = costs.dataflow.everything & ~sum(kept)
    pricing = 0.0 if costs is first.costs else first.seconds * rest.bit_count() / len(costs.dataflow)
    possible = kept and not rest & costs.rules.touched and not costs.hardware.l2_bytes
    if possible and not outcome.deadline.over(pricing):
        groups = executable(costs.dataflow, [*kept, *with_epilogues(costs, rest)])
        if costs.dram_bytes(groups) < first.dram_bytes:
            mixed = draft.regrouped(groups)
            finished = mixed.finished(Limit(over), known_steps)
            if not any(group.unwritten for group in finished.groups):
                return FinishedPlan(finished, interrupted=False, draft=mixed, replaced=unwritten)
    before = outcome.first_draft()
    finished = before.finished(Limit(over), first.known_steps)
    if any(group.unwritten for group in finished.groups):
        return None
    return FinishedPlan(finished, interrupted=False, draft=before, replaced=unwritten)


def write_outcome(outcome: JobOutcome, folder: Path, report: ReportProgress | None = None) -> FinishedPlan:
    """`steps_of`, then plan.json and simplified.onnx in `folder`. Raises CannotWrite."""
    return write_finished(steps_of(outcome, report), folder)


def write_finished(finished: FinishedPlan, folder: Path) -> FinishedPlan:
    """plan.json and simplified.onnx in `folder`. Raises CannotWrite."""
    plan, interrupted = _despite_ctrl_c(
        lambda: write_files(finished.plan, finished.graph, folder), finished.interrupted
    )
    return finished._replace(plan=plan, interrupted=interrupted)


def run(config: Config, folder: Path, report: ReportProgress | None = None) -> JobOutcome:
    """`check_folder`, `find_plan`, then `write_outcome`."""
    check_folder(folder)
    outcome = find_plan(config, report)
    write_outcome(outcome, folder, report)
    return outcome
