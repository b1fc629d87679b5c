"""Every row of the table of modes, from price to bytes counted in C; other tables know the same rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from codegen.source import Unsupported
from lfopt.fusion import connected
from lfopt.ir import Graph, Plan
from lfopt.ops import bits
from lfopt.ops.reference import reference
from lfopt.planning import MODES, NEVER, SCHEMES, GroupCosts, link, totals_of
from search.exact import solve
from simulator.interpreter.execute import execute
from simulator.recount import recount
from tests.agreement import disagreements
from tests.attention_models import random_attention
from tests.codegen.counting import disagreement
from tests.line_buffers import line_buffer_problems
from tests.random_plans import Values, computable, planned, random_inputs, random_scheme
from tests.strategies import random_gate, random_graph, random_hardware, random_normed

LOOKED_THROUGH = 60  # random graphs, for a plan that has a group in a mode
# modes for what only some networks have, and such networks
NETWORKS = {"gated": random_gate, "panels": random_normed, "attention": random_attention}
GATES = {"gated", "panels"}  # of these modes, those that a search alone finds groups for
SEARCHED = {name: mode for name, mode in MODES.items() if not mode.given}
CHAINS = {"chained"}  # modes of groups that other groups are joined to


def modes_of(scheme: str) -> set[str]:
    """Modes that a group of a scheme may run in, but for those of every scheme."""
    return {*SCHEMES[scheme].modes, *(CHAINS if SCHEMES[scheme].chains else ())}


def plans_with(name: str) -> list[tuple[GroupCosts, tuple[int, ...], Plan, Graph, Values]]:
    """Random plans that have a group in this mode, with inputs."""
    schemes = [scheme for scheme in SCHEMES if name in modes_of(scheme) or not MODES[name].whole]
    plans: list[tuple[GroupCosts, tuple[int, ...], Plan, Graph, Values]] = []
    for seed, scheme in product(range(LOOKED_THROUGH), schemes):
        rng = np.random.default_rng(seed)
        drawn = NETWORKS[name](rng) if name in NETWORKS else random_graph(rng, 6)
        graph = computable(drawn)
        costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme=scheme)
        groups = (
            link(costs, solve(costs).groups)
            if name in CHAINS
            else solve(costs).groups
            if name in GATES
            else random_scheme(costs, seed)
        )
        plan = planned(costs, groups)
        if any(group.mode == name for group in plan.groups) and all(group.steps for group in plan.groups):
            plan = replace(
                plan,
                totals=totals_of(
                    costs.unfused(),
                    plan.groups,
                    costs.bounds.recomputing_bytes if name in CHAINS else costs.least_bytes,
                ),
            )
            plans.append((costs, groups, plan, graph, random_inputs(graph, rng)))
        if len(plans) == 8:
            break
    return plans


@pytest.mark.parametrize(
    "name",
    # groups in mode panels are rarely the best of small networks: tests/planning/test_panels.py has them
    [name for name, mode in SEARCHED.items() if not mode.alone and name != "panels"],
)
def test_a_mode_moves_the_same_bytes_priced_scheduled_executed_recounted_and_counted_in_c(
    name: str, tmp_path: Path
) -> None:
    counted = 0
    for number, (costs, groups, plan, graph, inputs) in enumerate(plans_with(name)):
        with threadpool_limits(1):
            assert not disagreements(
                costs, groups, plan, execute(plan, graph, inputs), reference(graph, inputs)
            )
        assert not recount(graph, plan).discrepancies
        for group in plan.groups:
            if group.mode == "lbdf":
                assert not line_buffer_problems(graph, plan.hardware, group)
        if counted:
            continue
        try:
            assert not disagreement(plan, graph, inputs, tmp_path / str(number))
            counted += 1
        except Unsupported:  # an operator that no code is printed for
            continue
    assert counted


@pytest.mark.parametrize(
    "name", [name for name, mode in SEARCHED.items() if mode.whole and name not in CHAINS]
)
def test_a_mode_prices_just_what_fits_and_its_bound_never_gives_up_what_has_a_price(name: str) -> None:
    scheme = next(scheme for scheme, row in SCHEMES.items() if name in row.modes)
    priced = refused = 0
    for seed in range(LOOKED_THROUGH):
        rng = np.random.default_rng(seed)
        graph = NETWORKS[name](rng) if name in GATES else random_graph(rng, 4)
        costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme=scheme)
        mode, beta = costs.modes[name], costs.hardware.buffer_bytes
        compatible = mode.compatible(beta)
        for mask in range(1, 1 << min(len(costs.dataflow), 9 if name in GATES else 6)):
            once = costs.groups.once(mask).total
            price, need = mode.price(mask, beta, once), mode.need(mask)
            assert (price is not None) == (need < beta)
            if price is None:
                refused += 1
                assert need == NEVER or sum(use.bytes for use in mode.uses(mask, beta)) <= need
                continue
            priced += 1
            assert price.mode == name
            assert price.dram_bytes == mode.terms(mask, beta).dram.total >= once
            if connected(costs.dataflow.neighbours, mask):
                assert not any(mask & ~compatible[op] for op in bits(mask))
            bound, done = None, 0
            for op in bits(mask):
                assert mode.least(op) < beta
                bound = mode.grow(done, bound, op)
                done |= 1 << op
                assert mode.may_fit(done, bound, beta)
    assert min(priced, refused) > (15 if name == "panels" else 50)  # a norm has few groups


def test_the_command_line_offers_the_schemes_of_the_table(lfopt) -> None:
    for command in ("search", "explain", "sweep"):
        text = " ".join(lfopt(command, "--help", columns=200).stdout.split())
        assert all(scheme in text for scheme in SCHEMES), text
        assert lfopt(command, "zoo:squeezenet1_1", "--scheme", "nothing", check=False).returncode == 2
