"""Searches on one network and chip, with every guidance that there is, beside the proven optimum."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from explainers.controls import by_need
from explainers.predictor import WEIGHTS
from explainers.split import Explain, without
from lfopt.app.commands.dataset import dataflow
from lfopt.app.guidance import explainer, rule, screener, splitter
from lfopt.app.options import GuidanceName
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.costs.optimus import OptimusCosts
from search.exact import solve
from search.local import improve
from search.nsga2 import evolve
from search.options import SearchOptions
from search.partition import Partitions
from search.result import Result
from search.sampling import sample

SEARCHES: dict[str, Callable[..., Result]] = {"RS": sample, "LS": improve, "NSGA-II": evolve}
GUIDANCE: tuple[GuidanceName, ...] = ("none", "random", "analytic", "gnne", "pg", "rg")
MET = {"RS": 100, "LS": 300}  # plans of a search whose groups are looked at
PROOF_SECONDS = 120.0


@dataclass(frozen=True)
class TrialSettings:
    """What to run."""

    guidance: tuple[GuidanceName, ...]
    budget: int | None  # plans a run; None: what the case says
    seeds: int
    limit: float | None  # seconds a run
    screen: bool = False  # whether the rule says which groups are checked


@dataclass(frozen=True, eq=False)
class Trials:
    """One network on one chip."""

    flow: Dataflow
    kib: int  # of buffer
    elements: int  # BRR by Optimus' formula: what the buffer holds; 0: LBDF
    best: Result

    @classmethod
    def of(cls, source: str, kib: int, elements: int = 0) -> Trials:
        """`source`: an ONNX file, or zoo:NAME."""
        flow = dataflow(source)
        return cls(
            flow, kib, elements, solve(_costs(flow, kib, elements), SearchOptions(time_limit=PROOF_SECONDS))
        )

    def costs(self) -> GroupCosts | OptimusCosts:
        """Costs that know nothing yet."""
        return _costs(self.flow, self.kib, self.elements)

    def run(
        self, search: str, budget: int, settings: TrialSettings
    ) -> Iterator[tuple[GuidanceName, Result, Partitions]]:
        """(guidance, result, groups met) for each guidance to be had and seed; every run starts afresh."""
        for guidance in settings.guidance:
            for seed in range(settings.seeds):
                costs = self.costs()
                try:
                    explain = None if guidance == "none" else self._explainer(costs, guidance, seed)
                except InvalidConfig:
                    break
                partitions = Partitions(costs)
                options = SearchOptions(
                    budget=budget,
                    seed=seed,
                    time_limit=settings.limit,
                    lower_bound_bytes=self.best.lower_bound_bytes,
                    partitions=partitions,
                    split=splitter(explain, partitions) if explain else None,
                    screen=screener(rule(self._bound(costs))) if settings.screen else None,
                )
                yield guidance, SEARCHES[search](partitions.model, options), partitions

    def _explainer(self, costs: GroupCosts | OptimusCosts, guidance: GuidanceName, seed: int) -> Explain:
        if isinstance(costs, OptimusCosts) and guidance == "analytic":
            return by_need(
                costs.dataflow,
                lambda mask: min((least for least, _, _ in costs.model.needs(mask)), default=1 << 62),
            )
        return explainer(self._bound(costs), guidance, seed)

    def _bound(self, costs: GroupCosts | OptimusCosts) -> GroupCosts:
        """Costs that learned explainers and the predictor are bound to.

        Under Optimus' formula: the executable BRR on a chip with as large a buffer.
        """
        if isinstance(costs, GroupCosts):
            return costs
        return GroupCosts(
            costs.dataflow, Hardware(2 * self.elements), Traffic.ONCE, scheme="brr", epilogue=False
        )


def unfit(costs: GroupCosts) -> int:
    """The operators that do not fit by themselves."""
    return sum(
        1 << i
        for i in range(len(costs.dataflow))
        if costs.groups.line_need(1 << i) >= costs.hardware.buffer_bytes
    )


def met(costs: GroupCosts, name: str, seed: int, most: int) -> list[int]:
    """At most `most` groups that do not fit, of those that a search of MET meets.

    Operators that do not fit by themselves are taken out.
    """
    alone, beta, groups_met = unfit(costs), costs.hardware.buffer_bytes, set[int]()

    def note(group: int) -> None:
        parts = without(costs.dataflow, group, alone)
        groups_met.update(
            part for part in parts if part & (part - 1) and costs.groups.line_need(part) >= beta
        )

    SEARCHES[name](costs, SearchOptions(budget=MET[name], seed=seed, split=note))
    groups = sorted(groups_met)
    return [groups[k] for k in np.random.default_rng(seed).permutation(len(groups))[:most]]


def learnt_from() -> set[str]:
    """The networks that the shipped predictor of scheme lbdf, and with it PG and RG, have learnt from."""
    return set(json.loads((WEIGHTS / "lbdf.json").read_text(encoding="utf-8"))["data"]["networks"])


def _costs(flow: Dataflow, kib: int, elements: int) -> GroupCosts | OptimusCosts:
    hardware = Hardware(kib * 1024)
    if elements:
        return OptimusCosts(flow, hardware, buffer_elements=elements)
    return GroupCosts(flow, hardware, Traffic.PAPER, epilogue=False)
