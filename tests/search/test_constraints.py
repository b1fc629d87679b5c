"""Constraints on partitions: the fewest bytes among schemes that meet them; the infeasible is said.

Whichever search.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lfopt
from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan, steps_of
from lfopt.app.plan_nests import nest_problems
from lfopt.app.verify import search_problems, verified
from lfopt.ir import Constraints, Graph, InvalidConfig
from lfopt.ops import bits
from lfopt.planning import GroupCosts
from lfopt.planning.costs.rules import UNMET
from search.methods import METHODS
from tests.brute import Oracle
from tests.cases import few, some
from tests.search.random_jobs import random_job

SEEDS = some(range(60))


def drawn(rng: np.random.Generator, graph: Graph, costs: GroupCosts) -> Constraints:
    """One or two constraints that do not contradict each other of themselves."""
    names = [operator.name for operator in costs.dataflow.operators]
    a, b, c = (str(name) for name in rng.choice(names, 3, replace=False))
    modes = {c: str(rng.choice(["lbdf", "resident", "brr", "tiled"]))} if rng.random() < 0.4 else {}
    kind = rng.integers(3)
    if kind == 0:
        return Constraints(together=((a, b),), mode=modes)
    return (
        Constraints(alone=(a,), mode=modes)
        if kind == 1
        else Constraints(cut=((a, b),), together=((a, c),) if rng.random() < 0.5 else ())
    )


def least(graph: Graph, plain: GroupCosts, asked: Constraints) -> int:
    """Fewest bytes of all schemes that meet the constraints, by enumeration over sets of names."""
    oracle, beta = Oracle(graph), plain.hardware.buffer_bytes

    def price(mask: int) -> int | None:
        names = {oracle.names[i] for i in bits(mask)}
        if any(names & {*together} and not names >= {*together} for together in asked.together):
            return None
        if any(len(names & {*apart}) > 1 for apart in asked.cut) or (
            len(names) > 1 and names & {*asked.alone}
        ):
            return None
        group = sum(1 << plain.dataflow.position[name] for name in names)
        wanted = {asked.mode[name] for name in names if name in asked.mode}
        if len(wanted) > 1:
            return None
        if wanted:
            cost = plain.modes[wanted.pop()].price(group, beta, plain.groups.once(group).total)
            return None if cost is None else cost.dram_bytes
        cost = plain.price(group)
        return None if cost is None else cost.dram_bytes

    return oracle.least(
        lambda mask: UNMET if (bytes_ := price(mask)) is None and not mask & (mask - 1) else bytes_
    )[0]


def test_every_search_keeps_to_constraints_and_the_exact_one_finds_the_fewest_bytes_of_all_that_do() -> None:
    met = unmet = 0
    for seed in SEEDS:
        graph, plain = random_job(seed)
        rng = np.random.default_rng((seed, 1))
        if len(plain.dataflow) < 3:
            continue
        asked = drawn(rng, graph, plain)
        wanted = least(graph, plain, asked)
        job = Config(
            "random",
            plain.hardware,
            scheme="auto",
            together=asked.together,
            alone=asked.alone,
            cut=asked.cut,
            mode=asked.mode,
            search=SearchConfig(objective="bytes"),
        )
        if wanted >= UNMET:
            unmet += 1
            with pytest.raises(InvalidConfig):
                find_plan(job, graph=graph)
            continue
        outcome = find_plan(job, graph=graph)
        proof = "bound" if outcome.plan.unschedulable else "optimal"  # nothing is optimal that cannot run
        assert (outcome.plan.totals.dram_bytes, outcome.plan.totals.proof) == (wanted, proof), (
            f"seed {seed}: {asked}"
        )
        assert not [*asked.broken((group.nodes, group.mode) for group in outcome.plan.groups)]
        met += 1
        if seed % 6 == 0:
            for method in METHODS:
                other = find_plan(
                    replace(job, search=SearchConfig(method=method, budget=60)), graph=graph
                ).plan
                assert other.totals.dram_bytes >= wanted
                assert not [*asked.broken((group.nodes, group.mode) for group in other.groups)], (
                    f"seed {seed}: {method}"
                )
            fast = find_plan(replace(job, search=SearchConfig(objective="cycles")), graph=graph).plan
            assert not [*asked.broken((group.nodes, group.mode) for group in fast.groups)]
    assert met > few(20)
    assert unmet > few(5)


def test_a_plan_says_what_it_keeps_to_and_check_holds_it_to_that(tmp_path: Path) -> None:
    free = lfopt.search(
        "zoo:squeezenet1_1", buffer="256KiB", scheme="all", max_recompute=1, weights=False, objective="bytes"
    )
    searched = lfopt.search(
        "zoo:squeezenet1_1",
        buffer="256KiB",
        scheme="all",
        max_recompute=1,
        weights=False,
        together=[["fire8.squeeze", "fire9.squeeze"]],
        alone=["pool1"],
        cut=[["conv1", "conv1.relu"]],
        objective="bytes",
    )
    assert searched.plan.totals.dram_bytes > free.plan.totals.dram_bytes
    assert searched.plan.totals.proof != "none"
    searched.save(tmp_path)
    again = lfopt.load_plan(tmp_path).plan
    assert again.search.constraints == Constraints(
        (("fire8.squeeze", "fire9.squeeze"),), ("pool1",), (("conv1", "conv1.relu"),)
    )
    lying = replace(
        again,
        search=replace(
            again.search,
            constraints=Constraints(alone=("conv1", "fire9.squeeze"), mode={"pool1": "resident"}),
        ),
    )
    said = [*search_problems(lying)]
    assert said[0] == "alone: fire9.squeeze is not a group of its own"
    assert not verified(lying, searched.graph).holds


def test_groups_run_as_the_part_of_a_nest_that_was_asked_for_says() -> None:
    asked = {
        "fire3.squeeze": "rows outermost, weights held",
        "fire9.squeeze": "rows outermost, weights streamed",
        "fire9.expand1x1": "in turn",
    }
    free = lfopt.search("zoo:squeezenet1_1", buffer="256KiB", scheme="auto", weights=False, objective="bytes")
    searched = lfopt.search(
        "zoo:squeezenet1_1", buffer="256KiB", scheme="auto", weights=False, nests=asked, objective="bytes"
    )
    assert searched.plan.totals.proof == "optimal"
    assert searched.plan.totals.dram_bytes > free.plan.totals.dram_bytes
    nests = {name: group.nest for group in searched.plan.groups for name in group.nodes if name in asked}
    streamed = {name: any("stream" in line for line in nest) for name, nest in nests.items()}
    assert streamed == {"fire3.squeeze": False, "fire9.squeeze": True, "fire9.expand1x1": True}
    first = {name: nest[0].split(",")[0].split(":")[0] for name, nest in nests.items()}
    assert first["fire9.expand1x1"] == "in turn"
    assert {first["fire3.squeeze"], first["fire9.squeeze"]} <= {"rows", "line buffers"}
    assert [*nest_problems(searched.plan, searched.graph)] == []
    record = replace(searched.plan.search, constraints=Constraints(nests={"fire9.expand1x1": "weights held"}))
    (problem,) = nest_problems(replace(searched.plan, search=record), searched.graph)
    assert "nests.fire9.expand1x1 asks for weights held" in problem


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"together": [["conv1", "classifier"]]},
            "together: conv1, classifier: with what lies between them, they need 2,992,672 B of buffer",
        ),
        (
            {"alone": ["conv"]},
            "alone: found 'conv', which is no operator of squeezenet1_1; did you mean conv1",
        ),
        (
            {"mode": {"conv1": "fast"}},
            "mode.conv1: found 'fast' with scheme auto; accepted: lbdf, resident, brr, tiled",
        ),
        (
            {"mode": {"classifier": "lbdf"}},
            "mode.classifier: no group of it was found that runs in mode lbdf: classifier needs 1,065,312 B",
        ),
        (
            {"together": [["conv1", "conv1.relu"]], "cut": [["conv1.relu", "conv1"]]},
            "together.0: found 'conv1.relu' and 'conv1', which are cut",
        ),
        ({"together": "conv1"}, "together: found 'conv1'; accepted: a list"),
        ({"nests": {"conv": "rows outermost"}}, "nests: found 'conv', which is no operator of squeezenet1_1"),
        (
            {"nests": {"conv1": "rows, somehow"}},
            "nests.conv1: found 'rows'; accepted: rows outermost, columns",
        ),
        ({"nests": {"classifier": "columns outermost"}}, "nests.classifier: no way to run"),
    ],
)
def test_what_no_plan_can_meet_is_said(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        lfopt.search("zoo:squeezenet1_1", buffer="256KiB", scheme="auto", weights=False, **asked)  # type: ignore[arg-type]
    assert said in str(error.value)


def test_a_plan_with_constraints_has_steps_and_moves_what_it_says() -> None:
    graph, costs = random_job(3)
    names = [operator.name for operator in costs.dataflow.operators]
    job = Config(
        "random", costs.hardware, scheme="auto", alone=(names[1],), search=SearchConfig(objective="bytes")
    )
    outcome = find_plan(job, graph=graph)
    assert verified(steps_of(outcome).plan, outcome.graph).holds
