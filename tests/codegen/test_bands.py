"""Generated C of groups in bands of several rows gives what the reference gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codegen.emit import emit_c
from lfopt.app.pipeline import load_network
from lfopt.app.plans import make_draft
from lfopt.ir import Graph, Hardware, Plan
from lfopt.planning import GroupCosts, Propose, up_to
from search.exact import solve
from search.options import SearchOptions
from simulator.recount import recount
from tests.cases import few, some
from tests.codegen.random_networks import KIB, RUNS_HERE, _Net, agrees
from tests.strategies import random_bands


def planned(graph: Graph, kib: int, room: int, bands: Propose | None = None, rows: int | None = None) -> Plan:
    """Groups that fit `kib`, in bands of several rows on a chip with `room` times as much."""
    costs = GroupCosts.of(graph, Hardware(kib * KIB, element_bytes=4))
    solution = solve(costs, SearchOptions(time_limit=10))
    larger = costs.at(room * kib * KIB)
    return make_draft(
        graph, larger, solution, larger.bounds.compulsory_bytes, bands=bands or up_to(larger, rows)
    ).finished()


def in_bands(plan: Plan) -> int:
    """Groups in bands of several rows."""
    return sum(group.mode == "lbdf" and group.band_rows > 1 for group in plan.groups)


@pytest.mark.parametrize("rows", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 7, None))])
@pytest.mark.parametrize(
    "name", ["mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1", "resnet18", "fsrcnn_deconv"]
)
def test_a_network_in_bands_gives_what_the_reference_gives(
    name: str, rows: int | None, tmp_path: Path
) -> None:
    shape = (1, 1, 40, 56) if name.startswith("fsrcnn") else (1, 3, 64, 64)
    graph = load_network(f"zoo:{name}", {"image": shape}, "default")
    plan = planned(graph, 128, 4, rows=rows)
    assert in_bands(plan) > len(plan.groups) // 3
    assert recount(graph, plan).agrees
    agrees(emit_c(plan, graph), graph, tmp_path)


def test_random_networks_in_bands_give_what_the_reference_gives(tmp_path: Path) -> None:
    ran = 0
    for seed in some(range(1000, 1030)):
        graph, folder = _Net(seed).finish(), tmp_path / str(seed)
        plan = planned(graph, (2, 8, 64)[seed % 3], 3, bands=random_bands(np.random.default_rng(seed)))
        if in_bands(plan):
            agrees(emit_c(plan, graph, RUNS_HERE[seed % len(RUNS_HERE)]), graph, folder, 1e-4)
            ran += 1
    assert ran > few(15)


@pytest.mark.slow
def test_many_random_networks_in_bands_give_what_the_reference_gives(tmp_path: Path) -> None:
    for seed in range(1030, 1230):
        graph, folder = _Net(seed).finish(), tmp_path / str(seed)
        plan = planned(graph, (2, 8, 64)[seed % 3], 3, bands=random_bands(np.random.default_rng(seed)))
        agrees(emit_c(plan, graph, RUNS_HERE[seed % len(RUNS_HERE)]), graph, folder, 1e-4)
