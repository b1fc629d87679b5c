"""Plans that others run on the same chip, with steps.

Today's compilers run layer by layer, or fuse epilogues; the papers search for groups in one mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from lfopt.app.config import Config
from lfopt.app.figures import GroupFigures
from lfopt.app.recompute import Recomputed
from lfopt.ir import FREE, Figures, Graph, Hardware, Scheme
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, epilogue_groups, executable
from lfopt.planning.defaults import GROUP_SCHEME
from lfopt.planning.modes import SCHEMES
from lfopt.planning.steps.limit import never
from search.exact import solve
from search.objectives import best_of, lexical
from search.options import SearchOptions
from search.result import Result

PAPERS: dict[Scheme, str] = {"lbdf": "the papers' LBDF", "brr": "the papers' BRR"}


class Baseline(NamedTuple):
    """A plan of groups that need no search, each in the option of the fewest bytes, of equals the fastest."""

    name: str
    plan: Recomputed
    figures: Figures
    options: GroupFigures  # of its groups, those of the fewest bytes


def baselines_of(graph: Graph, hardware: Hardware, late: Callable[[], bool] = never) -> list[Baseline]:
    """Epilogue fusion and layer by layer; a baseline of which some operator does not run is left out.

    `late`: whether the time is over. A baseline that is not timed by then is left out, too.
    """
    chip = replace(hardware, block_channels=None)
    # groups run row by row where they fit whole, and in tiles where they do not
    costs = GroupCosts(Dataflow.of(graph), chip, scheme=GROUP_SCHEME)
    figures = GroupFigures(costs, extra=0, energy=False, late=late)
    layers = tuple(1 << i for i in range(len(costs.dataflow)))
    baselines: list[Baseline] = []
    for name, groups in (("epilogue fusion", epilogue_groups(costs)), ("layer by layer", layers)):
        if not costs.executable(groups):
            continue
        for group in groups:
            if late():
                return baselines
            figures(group)
        baselines.append(_baseline(name, graph, figures, executable(costs.dataflow, groups)))
    return baselines


def may_be_planned(config: Config) -> bool:
    """Whether a job allows its baselines as plans: it has no constraints, and its scheme has their modes."""
    return (
        config.constraints == FREE
        and config.epilogue
        and config.band_rows is None
        and GROUP_SCHEME in SCHEMES[config.scheme].modes
    )


def papers_plans(
    graph: Graph, hardware: Hardware, seconds: float | None, late: Callable[[], bool] = never
) -> list[Baseline]:
    """Plans of the fewest bytes in the schemes of the papers, by exact search of so many seconds each.

    None of a scheme in which the search ends late, or finds no plan that runs.
    """
    plans: list[Baseline] = []
    for scheme, name in PAPERS.items():
        if late():
            break
        costs = GroupCosts(Dataflow.of(graph), replace(hardware, block_channels=None), scheme=scheme)
        groups = solve(costs, SearchOptions(time_limit=seconds)).groups
        if not costs.executable(groups):
            continue
        figures = GroupFigures(costs, extra=0, energy=False, late=late)
        baseline = _baseline(name, graph, figures, executable(costs.dataflow, groups))
        if not late():
            plans.append(baseline)
    return plans


def _baseline(name: str, graph: Graph, figures: GroupFigures, groups: Sequence[int]) -> Baseline:
    costs = figures.costs
    choice = best_of(figures, groups, lexical("bytes"))
    bound = costs.bounds.compulsory_bytes
    moved = choice.figures.dram_bytes
    result = Result("exact", tuple(groups), moved, min(bound, moved), 1, len(groups), 0.0)
    return Baseline(name, Recomputed(graph, (), costs, result, optimal=False), choice.figures, figures)


def least_cycles(baselines: Sequence[Baseline]) -> int | None:
    """Cycles of the faster baseline; None if there is none."""
    return min((baseline.figures.cycles for baseline in baselines), default=None)
