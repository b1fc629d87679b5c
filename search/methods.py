"""Table of all searches by name, which configurations, command line and documentation offer.

A new search is a module and a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from lfopt.fusion import CostModel
from search.dnnfusion import grow_blocks
from search.dp import solve_by_types
from search.exact import solve
from search.local import improve
from search.options import SearchOptions
from search.result import Result
from search.sampling import sample
from search.tvm import fuse_by_patterns

SAMPLES = ("budget", "seed", "split", "screen")


class Method(NamedTuple):
    """Row of the table: a search and its properties."""

    run: Callable[[CostModel, SearchOptions], Result]
    summary: str  # for help and documentation
    takes: tuple[str, ...] = ()  # fields of `SearchOptions` that it reads beside those that all do
    # whether it raises the lower bound above what the cost model knows, and so may end with a proof
    proves: bool = False
    unit: Literal["operators", "plans"] = "operators"  # what its progress counts
    # whether it may take any group of the space. Rules leave others out: how far its plans are above a bound
    # of the whole space says nothing of the search
    whole_space: bool = True


def _evolve(model: CostModel, options: SearchOptions) -> Result:
    from search.nsga2 import evolve  # noqa: PLC0415  (pymoo takes a second)

    return evolve(model, options)


METHODS: dict[str, Method] = {
    "exact": Method(
        solve, "the optimum, or a plan and a bound when it is stopped", ("passes", "start"), proves=True
    ),
    "nsga2": Method(
        _evolve,
        "breeds plans for few DRAM bytes and little buffer",
        (*SAMPLES, "settle", "start"),
        unit="plans",
    ),
    "local": Method(
        improve, "edits the best few plans at random places", (*SAMPLES, "settle", "start"), unit="plans"
    ),
    "random": Method(sample, "draws plans at random", SAMPLES, unit="plans"),
    "dnnfusion": Method(
        grow_blocks,
        "fuses by mapping types, blocks grown from one operator",
        ("latency",),
        whole_space=False,
    ),
    "tvm": Method(fuse_by_patterns, "fuses by TVM's rules of operator kinds", whole_space=False),
    "dp": Method(
        solve_by_types,
        "the optimum among groups that mapping types allow",
        ("passes", "start"),
        whole_space=False,
    ),
}


def taking(option: str) -> tuple[str, ...]:
    """Names of the methods that read this field of `SearchOptions`, in the order of the table."""
    return tuple(name for name, method in METHODS.items() if option in method.takes)
