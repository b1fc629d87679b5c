"""Plans from files: nothing that one claims is believed before it was recounted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import get_args

from lfopt.app.files import read_plan, sha256
from lfopt.app.options import GuidanceName
from lfopt.app.plan_nests import nest_problems
from lfopt.frontend import load
from lfopt.ir import FalsePlan, Graph, InvalidPlan, Plan
from lfopt.ir.names import one_line
from lfopt.planning import GIVEN
from lfopt.planning.modes import MODES, SCHEMES, unnamed_modes
from search.methods import METHODS
from search.objectives import PLANNED_FOR
from simulator.recount import Recount, RecountStopped, recount


@dataclass(frozen=True, repr=False)
class Verified:
    """A plan, its network, and what a recount of the plan found."""

    plan: Plan
    graph: Graph
    recount: Recount | None  # None: the plan was made for another network
    wrong: tuple[str, ...]  # one line for each claim that does not hold
    file: Path | None = None  # of the plan; None: it is in memory
    bound: str = "not verified"  # what is known of the lower bound that the plan claims
    # the same of that of plans in which no map stays between groups; empty: none is claimed, or nobody asked
    nothing_kept: str = ""

    @property
    def beyond(self) -> tuple[str, ...]:
        """Of the lines that are wrong: groups of more steps than a recount follows."""
        if self.recount is None:
            return ()
        return self.recount.beyond

    @property
    def false(self) -> list[str]:
        """The lines that are wrong whatever a recount follows."""
        return [line for line in self.wrong if line not in self.beyond]

    @property
    def holds(self) -> bool:
        """Whether every claim does that could be recounted."""
        return not self.wrong

    def __repr__(self) -> str:
        if self.holds:
            verdict = "every claim holds"
        else:
            verdict = f"{len(self.wrong)} claims do not hold: {self.wrong[0]}"
        return f"Verified({self.plan.model.name}: {verdict}; lower bound {self.bound})"


def verify(path: Path) -> Verified:
    """Recount a plan (the file, or its folder).

    Raises InvalidPlan and InvalidModel for files that are none.
    """
    file = path / "plan.json" if path.is_dir() else path
    plan = read_plan(file)
    model = file.parent / plan.model.onnx
    graph = load(model)
    if (digest := sha256(model)) != plan.model.sha256:
        if plan.model.written:
            expected = f"{plan.model.sha256[:16]}..."
        else:
            expected = "no file: the plan was never written with its model"
        return Verified(
            plan,
            graph,
            None,
            (f"{model.name}: its SHA-256 is {digest[:16]}..., the plan was made for {expected}",),
            file,
        )
    verification = verified(plan, graph)
    nests = () if verification.wrong else nest_problems(plan, graph)
    return replace(verification, file=file, wrong=(*verification.wrong, *nests))


def verified(plan: Plan, graph: Graph, late: Callable[[], bool] | None = None) -> Verified:
    """Recount a plan in memory. Raises RecountStopped where `late` says that the time is over."""
    counted = recount(graph, plan, late)
    return Verified(
        plan, graph, counted, (*counted.discrepancies, *mode_problems(plan), *search_problems(plan))
    )


def load_planned(path: Path) -> tuple[Plan, Graph]:
    """A plan whose every claim holds, and its network: what is executed, printed or shown.

    Raises InvalidPlan for one that is not what it claims.
    """
    verification = verify(path)
    if verification.wrong:
        if verification.wrong[1:]:
            more = f" (one of {len(verification.wrong)} claims that do not hold: `lfopt check` lists them)"
        else:
            more = ""
        raise InvalidPlan(
            one_line(f"{verification.file}: the plan is not what it claims: {verification.wrong[0]}") + more
        )
    return verification.plan, verification.graph


def require_true(plan: Plan, graph: Graph, late: Callable[[], bool] | None = None) -> bool:
    """Recount a plan that lfopt has made, before anybody gets it. Raises FalsePlan.

    False where it has more steps than a recount follows, and nothing else is wrong, or where `late` says that
    the time is over.
    """
    try:
        verification = verified(plan, graph, late)
    except RecountStopped:
        return False
    if wrong := verification.false:
        raise FalsePlan(
            one_line(
                f"internal error: the plan of {plan.model.name} is not what it claims, and was not written: "
                f"{wrong[0]}"
            )
        )
    return not verification.beyond


def mode_problems(plan: Plan) -> Iterator[str]:
    """What cannot be in the names of modes: a recount reads steps alone."""
    row = SCHEMES.get(plan.scheme)
    if row is None:
        yield f"scheme: found {plan.scheme!r}; accepted: {', '.join(SCHEMES)}"
        return
    known = {*row.modes, *unnamed_modes(row)}
    # tables of quantised operators may be shared in flight, in every scheme
    flies = row.flights or any(entry.role == "parameter" for entry in plan.memory)
    for group in plan.groups:
        mode = MODES.get(group.mode)
        if mode is None or group.mode not in known:
            yield (
                f"group {group.id}: mode: found {group.mode!r}; scheme {plan.scheme} has: "
                f"{', '.join(name for name in MODES if name in known)}"
            )
        elif mode.alone and (group.steps or group.nodes[1:]):
            yield f"group {group.id}: mode {group.mode} is of a single operator without steps"
        elif not mode.counted and plan.traffic != "paper":
            yield f"group {group.id}: mode {group.mode} is not of traffic {plan.traffic}"
        elif mode.whole and not group.steps and not group.unwritten and group.mode != "brr":
            yield f"group {group.id}: mode {group.mode}, but it has no steps"
        elif not mode.whole and not plan.epilogue and not flies and group.nodes[1:]:
            yield f"group {group.id}: mode {group.mode} with several operators, but epilogue is off"


def search_problems(plan: Plan) -> Iterator[str]:
    """What cannot be in the record of the search.

    How long it took, and after how many evaluations, cannot be recounted.
    """
    record = plan.search
    bound = plan.totals.lower_bound_bytes
    methods = (*METHODS, GIVEN.method)
    if record.method not in methods:
        yield f"search.method: found {record.method!r}; accepted: {', '.join(methods)}"
    if record.guidance not in get_args(GuidanceName):
        yield f"search.guidance: found {record.guidance!r}; accepted: {', '.join(get_args(GuidanceName))}"
    if record.objective not in PLANNED_FOR:
        yield f"search.objective: found {record.objective!r}; accepted: {', '.join(PLANNED_FOR)}"
    yield from record.constraints.broken((group.nodes, group.mode) for group in plan.groups)
    if not (isfinite(record.seconds) and record.seconds >= 0):
        yield f"search.seconds: found {record.seconds}; accepted: at least 0"
    for name, value in (
        ("plans_evaluated", record.plans_evaluated),
        ("groups_evaluated", record.groups_evaluated),
        ("seed", record.seed),
    ):
        if value is not None and value < 0:
            yield f"search.{name}: found {value}; accepted: at least 0"
    unkept = record.nothing_kept
    if not 0 <= unkept.lower_bound_bytes <= unkept.dram_bytes:
        yield (
            f"search.nothing_kept: found {unkept.dram_bytes} B and a bound of {unkept.lower_bound_bytes}; "
            "accepted: no bound above the bytes"
        )
    if any(claim.bytes < 0 for claim in record.certificate.claims):
        yield "search.certificate: found a claim of less than 0 bytes; accepted: at least 0"
    for dram, need in record.front:
        if need < 0 or dram < (0 if plan.totals.proof == "none" else bound):
            yield f"search.front: {dram} B moved with {need} B of buffer is less than the bound of {bound}"
    if beaten := _beaten(record.front):
        yield f"search.front: {beaten} is no better in anything than another of its plans"


def _beaten(front: tuple[tuple[int, int], ...]) -> tuple[int, int] | None:
    """A plan of a front that another is at least as good as in both; None if there is none."""
    least: int | None = None
    for dram, need in sorted(front):
        if least is not None and need >= least:
            return dram, need
        least = need
    return None
