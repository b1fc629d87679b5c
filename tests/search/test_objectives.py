"""Plans of few cycles, little energy or a small product, against enumeration; caps, slack, ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lfopt
from lfopt.app.commands.options import chip
from lfopt.app.config import Config, SearchConfig
from lfopt.app.figures import GroupFigures
from lfopt.app.flights import groups_in_flight
from lfopt.app.objectives import break_ties, plan_for
from lfopt.app.pipeline import find_plan, load_network, steps_of
from lfopt.ir import Figures, Graph, Hardware, InvalidConfig, dram_bytes
from lfopt.ops import bits
from lfopt.planning import GroupCosts, Limit, Traffic
from search.exact import solve
from search.objectives import OBJECTIVES, Caps, Objective, ObjectiveName, best_of, lexical, optimise
from search.options import SearchOptions
from simulator.model.simulate import simulate
from tests.brute import Oracle
from tests.cases import few, some
from tests.random_plans import in_integers, random_inputs
from tests.search.random_jobs import random_job
from tests.strategies import random_windows

SEEDS = some(range(80))


def legal(graph: Graph, costs: GroupCosts) -> list[int]:
    """Connected convex groups that may run, as masks of the costs' dataflow."""
    oracle = Oracle(graph)
    order = [costs.dataflow.position[name] for name in oracle.names]
    masks = (sum(1 << order[i] for i in bits(mask)) for mask in oracle.legal_groups())
    return [mask for mask in masks if costs.price(mask) is not None]


def test_what_a_way_costs_is_what_its_steps_move_and_no_less_than_the_bounds_say() -> None:
    several = 0
    for seed in {*SEEDS, 40}:  # of 40, tiles load less of a map than rows do
        graph, costs = random_job(seed)
        ways, beta = GroupFigures(costs), costs.hardware.buffer_bytes
        for mask in legal(graph, costs):
            price, all_ways = costs.price(mask), [*costs.options(mask)]
            assert price is not None and min(way.cost.dram_bytes for way in all_ways) == price.dram_bytes, (
                f"seed {seed}: {mask:b}"
            )
            several += len(all_ways) > 1
            least = sum((ways.least[i] for i in bits(mask)), Figures(0, 0, 0))
            for way in all_ways:
                assert way.cost.dram_bytes == way.terms.dram.total
                if isinstance(way.scheduled.make, str):
                    continue
                places, steps = way.scheduled.make(Limit())
                assert dram_bytes(steps) == way.terms.dram, f"seed {seed}: {mask:b} in {way.cost}"
                assert max((place.end for place in places), default=0) <= way.scheduled.buffer_bytes < beta
                figures = ways.meter.figures(places, steps)
                assert figures.cycles >= least.cycles, f"seed {seed}: {mask:b} in {way.cost}"
                assert figures.energy_pj >= least.energy_pj
                assert figures.cycles >= ways.meter.computing(steps)
    assert several > few(300)


def test_groups_keep_their_operators_where_some_are_in_flight() -> None:
    """Masks are of another network there: plans of line buffers became groups of other operators."""
    kept = 0
    for seed in some(range(200)):
        rng = np.random.default_rng(seed)
        graph = random_windows(rng)
        graph, _ = in_integers(graph, random_inputs(graph, rng), rng)
        hardware = Hardware(4000, element_bytes=1, parameter_tables=64, parameter_store_bytes=1 << 14)
        costs = GroupCosts.of(graph, hardware, scheme="auto")
        plain = costs.grounded("lbdf")
        groups = solve(plain).groups
        there = groups_in_flight(costs, groups)
        names = [set(plain.dataflow.names(group)) for group in groups]
        if there:
            assert [set(costs.dataflow.names(group)) for group in there] == names
            assert all(costs.price(group) is not None for group in there)
            kept += costs.flies
        else:  # a group cuts through what is in flight
            flights = [{part.operator.name for part in call.parts} for call in costs.dataflow.calls]
            assert any(flight & group and not flight <= group for flight in flights for group in names)
        assert groups_in_flight(costs, ()) == ()
    assert kept > few(100)


def run(model, start):
    return solve(model, SearchOptions(start=(tuple(start),)))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_least_value_is_that_of_trying_every_scheme_in_every_way(name: ObjectiveName) -> None:
    objective = Objective(name)
    differs = 0
    for seed in SEEDS:
        graph, costs = random_job(seed)
        ways, oracle = GroupFigures(costs), Oracle(graph)
        order = [costs.dataflow.position[known] for known in oracle.names]
        start = solve(costs)
        optimum = optimise(costs, ways, ways.least, objective, run, start.groups)
        assert optimum.choice.figures == sum(
            (ways(g)[k] for g, k in zip(optimum.choice.groups, optimum.choice.alternatives, strict=True)),
            Figures(0, 0, 0),
        )
        assert optimum.bound <= objective.value(optimum.choice.figures)
        if name == "edp":  # a product: of both its factors the least is known
            continue
        field = {"bytes": 0, "cycles": 1, "energy": 2}[name]

        def least(
            mask: int,
            ways: GroupFigures = ways,
            costs: GroupCosts = costs,
            order: list[int] = order,
            field: int = field,
        ) -> int | None:
            group = sum(1 << order[i] for i in bits(mask))
            return None if costs.price(group) is None else min(figures[field] for figures in ways(group))

        wanted, _ = oracle.least(least)
        assert objective.value(optimum.choice.figures) == optimum.bound == wanted, f"seed {seed}"
        differs += optimum.choice.groups != start.groups
    assert differs or name != "cycles"


def test_the_least_product_of_energy_and_delay_is_no_more_than_that_of_either_end() -> None:
    product = Objective("edp")
    for seed in SEEDS:
        _, costs = random_job(seed)
        ways, start = GroupFigures(costs), solve(costs).groups
        runs = [optimise(costs, ways, ways.least, Objective(name), run, start) for name in OBJECTIVES]
        assert product.value(runs[3].choice.figures) == min(product.value(run.choice.figures) for run in runs)


@pytest.mark.parametrize(
    ("name", "capped"),
    [("cycles", "dram_bytes"), ("cycles", "energy_pj"), ("energy", "cycles"), ("bytes", "cycles")],
)
def test_caps_are_kept_and_cost_what_they_must(name: ObjectiveName, capped: str) -> None:
    objective, costly, gaps = Objective(name), 0, list[float]()
    for seed in SEEDS:
        _, costs = random_job(seed)
        ways, start = GroupFigures(costs), solve(costs).groups
        other: ObjectiveName = {"dram_bytes": "bytes", "cycles": "cycles", "energy_pj": "energy"}[capped]  # type: ignore[assignment]
        least, free = (
            optimise(costs, ways, ways.least, Objective(of), run, start).choice.figures
            for of in (other, name)
        )
        cap = (getattr(least, capped) + getattr(free, capped)) // 2
        optimum = optimise(
            costs, ways, ways.least, Objective(name, Caps()._replace(**{capped: cap})), run, start
        )
        assert getattr(optimum.choice.figures, capped) <= cap, f"seed {seed}"
        value = objective.value(optimum.choice.figures)
        assert objective.value(free) <= optimum.bound <= value <= objective.value(least), f"seed {seed}"
        costly += value > objective.value(free)
        gaps.append(value / max(optimum.bound, 1) - 1)
    assert costly > few(9)
    assert sum(gaps) / len(gaps) < 0.1  # what a weighted sum cannot reach


def test_of_equal_bytes_the_fewest_cycles_are_taken() -> None:
    faster = 0
    for seed in SEEDS:
        graph, costs = random_job(seed)
        fewest, every = solve(costs), GroupFigures(costs)
        before = sum(every(group)[0].cycles for group in fewest.groups)
        judged = break_ties(
            costs,
            Config("random", costs.hardware, scheme="lbdf", search=SearchConfig(objective="bytes")),
            fewest,
            None,
        )
        assert judged.result.dram_bytes == fewest.dram_bytes == costs.dram_bytes(fewest.groups), (
            f"seed {seed}"
        )
        after = sum(_cycles(every, costs, group) for group in fewest.groups)
        assert after <= before, f"seed {seed}"
        faster += after < before
        verdict = lfopt.check(
            steps_of(
                find_plan(
                    Config("random", costs.hardware, scheme="auto", search=SearchConfig(objective="bytes")),
                    graph=graph,
                )
            ).plan,
            model=graph,
        )
        assert not verdict.wrong, f"seed {seed}: {verdict.wrong}"
    assert faster > few(15)


def test_weights_of_the_last_layer_come_while_the_one_before_computes() -> None:
    """MobileNet-V2's head, pool and logits: by slices of channels through all three, same bytes."""
    graph, hardware = (
        load_network("zoo:mobilenet_v2", None, "default", weights=False),
        chip("accelerator_256k.yaml", None, None),
    )
    costs = GroupCosts.of(graph, hardware, Traffic.TILED, scheme="auto")
    group = sum(1 << i for i in range(costs.dataflow.position["head"], len(costs.dataflow)))
    price, meter = costs.price(group), GroupFigures(costs).meter
    ways = [way for way in costs.options(group) if way.cost.dram_bytes == price.dram_bytes]  # type: ignore[union-attr]
    schedules = [way.scheduled.make(Limit()) for way in ways if not isinstance(way.scheduled.make, str)]
    cycles = [meter.figures(*one).cycles for one in schedules]
    assert min(cycles) < 0.75 * cycles[0]


def test_slack_buys_cycles_also_in_other_groups() -> None:
    cheaper = others = 0
    for seed in SEEDS:
        cycles, groups = list[int](), list[tuple[int, ...]]()
        for slack in (0.0, 0.5):
            _, costs = random_job(seed)
            fewest = solve(costs)
            judged = break_ties(
                costs,
                Config(
                    "random",
                    costs.hardware,
                    search=SearchConfig(slack=slack, objective="bytes"),
                    scheme="lbdf",
                ),
                fewest,
                None,
            ).result
            assert (
                fewest.dram_bytes
                <= judged.dram_bytes
                == costs.dram_bytes(judged.groups)
                <= (1 + slack) * fewest.dram_bytes
            )
            ways = GroupFigures(costs)
            cycles.append(sum(_cycles(ways, costs, group) for group in judged.groups))
            groups.append(judged.groups)
        assert cycles[1] <= 1.005 * cycles[0], f"seed {seed}"
        cheaper, others = cheaper + (cycles[1] < cycles[0]), others + (groups[0] != groups[1])
    assert cheaper > few(9)
    assert others > few(6)


def _cycles(ways: GroupFigures, costs: GroupCosts, group: int) -> int:
    """Cycles of a group in the way that it takes."""
    way = costs.taken(group) or next(way for way in costs.options(group) if costs.price(group) == way.cost)
    if isinstance(way.scheduled.make, str):
        return ways.meter.without_steps(group, way.terms.dram).cycles
    places, steps = way.scheduled.make(Limit())
    return ways.meter.figures(places, steps).cycles


@pytest.mark.parametrize("name", ["cycles", "energy", "edp"])
def test_a_plan_for_another_objective_is_carried_out_with_the_figures_that_were_promised(
    name: ObjectiveName,
) -> None:
    seed, plans = 0, 0
    while plans < 4:
        graph, costs = random_job(seed)
        seed += 1
        how = SearchConfig(objective=name, max_dram_bytes=None)
        outcome = find_plan(Config("random", costs.hardware, scheme="auto", search=how), graph=graph)
        plan = outcome.draft.finished()
        assert outcome.judged is not None
        figures, report = outcome.judged.figures, simulate(plan, graph)
        if figures is None or any(group.unexecutable for group in plan.groups):
            continue
        plans += 1
        assert (report.dram.total, report.cycles.total + report.overlapped_cycles) == (
            figures.dram_bytes,
            figures.cycles,
        )
        assert report.energy.total_pj == pytest.approx(figures.energy_pj, abs=len(plan.groups))
        assert plan.search.objective == name
        assert not lfopt.check(plan, model=graph).wrong


def test_what_is_computed_again_and_what_stays_on_chip_serve_every_objective() -> None:
    better = 0
    # of 20, a gated group reads part of a map; of 21, fewer bands take fewer cycles for the same bytes
    for seed in {*some(range(60)), 20, 21}:
        graph, costs = random_job(seed, most=10)
        hardware = replace(costs.hardware, port_bytes=1, mac_rows=16, mac_columns=16)
        for name in ("cycles", "energy", "edp"):
            objective = Objective(name)
            config = Config("random", hardware, scheme="all", search=SearchConfig(objective=name))
            outcome = find_plan(config, graph=graph)
            once = find_plan(replace(config, max_recompute=1.0), graph=graph)
            fewest = find_plan(replace(config, search=SearchConfig(objective="bytes")), graph=graph)
            assert outcome.judged is not None and once.judged is not None
            figures, without = outcome.judged.figures, once.judged.figures
            assert figures is not None and without is not None
            groups = fewest.best.result.groups
            as_it_is = best_of(GroupFigures(fewest.costs), groups, lexical(name)).figures
            assert objective.value(figures) <= objective.value(without), f"seed {seed}, {name}"
            assert objective.value(figures) <= objective.value(as_it_is), f"seed {seed}, {name}"
            better += objective.value(figures) < objective.value(without)
            finished = steps_of(outcome)
            assert not lfopt.check(finished.plan, model=finished.graph).wrong, f"seed {seed}, {name}"
            report = simulate(finished.plan, finished.graph)
            if not any(group.unexecutable for group in finished.plan.groups):
                assert report.dram.total == figures.dram_bytes
                assert report.cycles.total <= figures.cycles
    assert better > few(20)


def test_a_cap_that_nothing_meets_is_answered_with_the_nearest_plan() -> None:
    _, costs = random_job(3)
    fewest = solve(costs)
    for how in (
        SearchConfig(max_cycles=1, objective="bytes"),
        SearchConfig(objective="energy", max_cycles=1),
    ):
        with pytest.raises(
            InvalidConfig,
            match=r"no plan was found below the caps: the nearest has [\d,]+ cycles where 1 are allowed",
        ):
            plan_for(costs, Config("random", costs.hardware, search=how, scheme="lbdf"), fewest, None)
    with pytest.raises(
        InvalidConfig, match=r"no plan of these modes moves less than [\d,]+ bytes; found a cap of 1"
    ):
        plan_for(
            costs,
            Config("random", costs.hardware, search=SearchConfig(max_dram_bytes=1), scheme="lbdf"),
            fewest,
            None,
        )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"objective": "speed"},
            "search.objective: found 'speed'; accepted: 'bytes', 'cycles', 'energy', 'edp' or 'balanced'",
        ),
        (
            {"slack": -0.1},
            "search.slack: found -0.1; accepted: a share of the bytes such as 0.1%, up to 100%",
        ),
        ({"max_cycles": 0}, r"search.max_cycles: found 0; accepted: a number above 0, up to 2\*\*40"),
        (
            {"objective": "cycles", "method": "random"},
            "search.method: found random with objective cycles; accepted: exact",
        ),
        (
            {"objective": "energy", "traffic": "once"},
            "traffic: found once with objective energy; accepted: tiled",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        lfopt.search("zoo:squeezenet1_1", weights=False, **given)  # type: ignore[arg-type]


def test_a_short_hardware_file_needs_no_alignment_for_wide_tiles() -> None:
    """SqueezeNet's last modules: at channel_align 1 weights came a channel at a time, same bytes."""
    ones, sixteens = (
        lfopt.search(
            "zoo:squeezenet1_1",
            hardware=Hardware(256 * 1024, channel_align=align),
            weights=False,
            scheme="lbdf",
            objective="bytes",
        )
        for align in (1, 16)
    )
    assert ones.plan.totals.dram_bytes == sixteens.plan.totals.dram_bytes
    assert lfopt.simulate(ones).cycles.total < 1.05 * lfopt.simulate(sixteens).cycles.total
