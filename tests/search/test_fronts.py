"""Fronts: corners are those of enumeration, samples never beat what is proven; knees; area."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hw_rtl.area import MAPPED, PARTS, estimate
from lfopt.app.config import Config, SearchConfig
from lfopt.app.figures import GroupFigures
from lfopt.app.front import Front, FrontQuery, front_of
from lfopt.ir import Figures, Graph
from lfopt.ops import bits
from lfopt.planning import GroupCosts
from search.exact import solve
from search.fronts import AXES, dominates, efficient, hypervolume, knee, supported
from search.nsga2 import by_crowding, evolve_figures, fronts
from search.objectives import Objective, best_of, optimise
from search.options import SearchOptions
from search.weighted import CostWeights
from tests.brute import Oracle, partitions
from tests.search.random_jobs import random_job

SEEDS = (*range(7), 15)  # the front of 15 has a corner between the fewest bytes and the fewest cycles
PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "rtl-area.md"


def every_front(graph: Graph, costs: GroupCosts, ways: GroupFigures) -> set[Figures]:
    """Pareto front in bytes, cycles and energy of all legal schemes with their groups in all ways."""
    oracle = Oracle(graph)
    order = [costs.dataflow.position[name] for name in oracle.names]
    of = {mask: sum(1 << order[i] for i in bits(mask)) for mask in oracle.legal_groups()}
    legal = {mask: group for mask, group in of.items() if costs.price(group) is not None}
    by_lowest: dict[int, list[int]] = {1 << i: [] for i in range(len(order))}
    for mask in legal:
        by_lowest[mask & -mask].append(mask)
    front: set[Figures] = set()
    for scheme in partitions(by_lowest, (1 << len(order)) - 1):
        if oracle.acyclic(scheme):
            sums = {Figures(0, 0, 0)}
            for mask in scheme:
                sums = kept({figures + way for figures in sums for way in ways(legal[mask])})
            front |= sums
    return kept(front)


@cache
def small_job(seed: int) -> tuple[GroupCosts, GroupFigures, set[Figures]]:
    """What groups of a small network cost and take, and the front of all its plans."""
    graph, costs = random_job(seed, most=5)
    ways = GroupFigures(costs)
    return costs, ways, every_front(graph, costs, ways)


def kept(points: set[Figures]) -> set[Figures]:
    listed = sorted(points)
    return {point for point, good in zip(listed, efficient(listed), strict=True) if good}


def run(model, start):
    return solve(model, SearchOptions(start=(tuple(start),)))


@pytest.mark.parametrize(
    "axes", [("dram_bytes", "cycles", "energy_pj"), ("dram_bytes", "cycles"), ("energy_pj",)], ids=len
)
def test_corners_are_those_of_every_scheme_in_every_way(axes: tuple[str, ...]) -> None:
    several = 0
    for seed in SEEDS:
        costs, ways, wanted = small_job(seed)
        rng, exact = (
            np.random.default_rng(seed),
            [*supported(costs, ways, ways.least, run, solve(costs).groups, axes)],
        )
        corners = {corner.choice.figures for corner in exact}
        assert all(corner.value == corner.bound for corner in exact), f"seed {seed}"
        assert corners <= wanted, f"seed {seed}"
        several += len(corners) > 2
        for _ in range(100):  # no weights have a plan below all corners
            weights = np.array(
                [
                    int(w) if name in axes else 0
                    for name, w in zip(AXES, rng.integers(0, 1000, 3) ** 3, strict=True)
                ],
                dtype=object,
            )
            least = [
                min(sum(weights * np.array(point, dtype=object)) for point in points)
                for points in (wanted, corners)
            ]
            assert least[0] == least[1], f"seed {seed}, {weights}"
    assert several or len(axes) == 1


def test_sampled_plans_are_plans_and_none_is_better_than_an_optimum() -> None:
    inside = 0
    for seed in SEEDS:
        costs, ways, wanted = small_job(seed)
        start = [
            corner.choice
            for corner in supported(costs, ways, ways.least, run, solve(costs).groups, tuple(AXES))
        ]
        sampled, interrupted = evolve_figures(
            costs, ways, [0, 1, 2], start, SearchOptions(budget=60, seed=seed)
        )
        assert not interrupted
        assert {choice.figures for choice in start} <= {choice.figures for choice in sampled}, (
            "an exact plan is lost"
        )
        for choice in sampled:
            assert choice.figures == best_sum(ways, choice), f"seed {seed}"
            assert not any(dominates(choice.figures, point) for point in wanted), f"seed {seed}"
        assert all(efficient([choice.figures for choice in sampled]))
        if seed == 0:
            assert evolve_figures(costs, ways, [0, 1, 2], start, SearchOptions(budget=60, seed=seed)) == (
                sampled,
                False,
            ), "a seed gives the same plans"
        inside += len(sampled) > len({choice.figures for choice in start})
    assert inside


def best_sum(ways: GroupFigures, choice) -> Figures:
    return sum(
        (ways(group)[k] for group, k in zip(choice.groups, choice.alternatives, strict=True)),
        Figures(0, 0, 0),
    )


def asked(seed: int = 3, **given) -> tuple[Graph, FrontQuery]:
    graph, costs = random_job(seed)
    size = costs.hardware.buffer_bytes
    config = Config("random", costs.hardware, scheme="auto", search=SearchConfig(objective="bytes"))
    question = FrontQuery(config, (size, 2 * size), ((4, 4), (8, 8)), budget=20)
    return graph, replace(question, **given)


def test_a_front_has_the_optimum_of_every_chip_and_marks_what_is_dominated() -> None:
    graph, question = asked()
    front = front_of(graph, question)
    assert (front.chips, front.of, front.interrupted) == (4, 4, False)
    costs = [tuple(point.cost(name) for name in front.minimise) for point in front.points]
    for point, cost in zip(front.points, costs, strict=True):
        assert point.dominated == any(dominates(other, cost) for other in costs)
        assert sorted(name for group in point.groups for name in group) == sorted(
            n for g in front.points[0].groups for n in g
        )
    for size in question.buffers:
        for rows, columns in question.arrays:
            hardware = replace(
                question.config.hardware, buffer_bytes=size, mac_rows=rows, mac_columns=columns
            )
            here = [
                p
                for p in front.points
                if (p.buffer_bytes, p.mac_rows, p.mac_columns) == (size, rows, columns)
            ]
            costs = GroupCosts.of(graph, hardware, scheme="auto")
            ways, start = GroupFigures(costs), solve(costs)
            assert min(p.dram_bytes for p in here) == start.dram_bytes
            for name in question.objectives:
                value = [Objective(name).value(Figures(p.dram_bytes, p.cycles, p.energy_pj)) for p in here]
                best = [p for p, v in zip(here, value, strict=True) if v == min(value)]
                assert any(p.found == "exact" for p in best), name
                (gap,) = {p.gaps[p.best.index(name)] for p in best}
                assert gap is not None and (name != "bytes" or gap == 0)
                least = optimise(costs, ways, ways.least, Objective(name), run, start.groups).choice.figures
                assert min(value) / (1 + gap) <= Objective(name).value(least) * (1 + 1e-9), name
    assert front.volume is not None and 0 < front.volume_exact <= front.volume.share <= 1


def test_what_is_not_weighed_leaves_the_fewest_bytes_of_each_chip() -> None:
    graph, question = asked(objectives=("bytes",), minimise=("bytes", "buffer"))
    front = front_of(graph, question)
    assert len(front.points) == 4 and all(p.best == ("bytes",) for p in front.points)
    assert all(p.proof == ("none" if p.without_steps else "optimal") for p in front.points)


def test_ctrl_c_leaves_the_plans_that_were_found() -> None:
    graph, question = asked()
    seen: list[str] = []

    def stop(what: str, done: float) -> None:
        seen.append(what.partition(":")[0])
        if len(set(seen)) == 3 and seen.count(seen[-1]) == 8:  # in the middle of the third chip
            raise KeyboardInterrupt

    front = front_of(graph, question, stop)
    assert front.interrupted and 0 < front.chips < front.of
    assert len({(p.buffer_bytes, p.mac_rows) for p in front.points}) == 3
    (cut,) = {(p.buffer_bytes, p.mac_rows) for p in front.points if any(gap is None for gap in p.gaps)}
    for point in front.points:
        if (point.buffer_bytes, point.mac_rows) == cut:  # bytes alone are proven
            assert [name for name, gap in zip(point.best, point.gaps, strict=True) if gap is not None] in (
                [],
                ["bytes"],
            )
    assert front_of(graph, replace(question, time_limit=1e-9)).points == ()


# -- figures of fronts ---------------------------------------------------------------------------------------


def test_hypervolume_is_what_a_hand_counts() -> None:
    """Of 11 x 11 an end dominates 11 x 1, both 21; (2, 2) 9 x 9, of which 9 are shared with each end."""
    ends, middle = [(0, 10), (10, 0)], (2, 2)
    assert hypervolume(ends, ends).reference == (11, 11)
    assert hypervolume(ends, ends).share == pytest.approx((11 + 11 - 1) / 121)
    assert hypervolume([middle], ends).share == pytest.approx(81 / 121)
    assert hypervolume([*ends, middle], ends).share == pytest.approx((81 + 2 * (11 - 9)) / 121)
    # an axis without a range does not count
    assert hypervolume([(5, 1), (5, 3)], [(5, 1), (5, 3)]).share == 1.0


def test_a_knee_is_where_a_staircase_bends() -> None:
    sizes = [64, 128, 256, 512, 1024]
    bend = knee(sizes, [100, 60, 20, 18, 16])
    assert bend is not None
    assert (bend.at, bend.end, round(bend.before, 3), round(bend.behind, 3)) == (2, 4, 0.4, 0.02)
    assert bend.depth == pytest.approx(80 / 84 - 2 / 4)
    assert knee(sizes, [100, 80, 60, 40, 20]) is None  # on the chord
    assert knee(sizes, [100, 99, 98, 97, 20]) is None  # above it
    assert knee(sizes, [10, 20, 30, 40, 50]) is None  # the smallest is the best
    rising = knee(sizes, [100, 30, 20, 40, 60])  # what is behind the least does not count
    assert rising is not None and (rising.at, rising.end) == (1, 2)


def test_ranks_and_crowding_of_three_figures() -> None:
    points = [(1, 1, 9), (1, 9, 1), (9, 1, 1), (5, 5, 5), (6, 6, 6), (4, 4, 4)]
    assert [sorted(rank) for rank in fronts(points)] == [[0, 1, 2, 5], [3], [4]]
    assert set(by_crowding([0, 1, 2, 5], points)[:3]) == {0, 1, 2}


def test_a_way_that_weighs_the_least_is_taken() -> None:
    ways = {1: [Figures(1, 9, 0), Figures(5, 1, 0)], 2: [Figures(3, 3, 3)]}.__getitem__
    assert best_of(ways, (1, 2), CostWeights(10, 1, 0)).alternatives == (0, 0)
    assert best_of(ways, (1, 2), CostWeights(1, 10, 0)).figures == Figures(8, 4, 3)


# -- area ----------------------------------------------------------------------------------------------------


def test_area_of_the_mapped_accelerator_is_what_the_page_of_results_says() -> None:
    rows = {
        name: [int(n.replace(",", "")) for n in re.split(r" *\| *", rest)[2:6]]
        for name, rest in re.findall(r"^\| (lf_\w+) (.*)$", PAGE.read_text(), re.M)
    }
    assert [*estimate(MAPPED)] == rows["lf_core"]
    for name in ("lf_array", "lf_weights", "lf_accumulators", "lf_drain"):
        assert [*PARTS[name].area] == rows[name], name
    assert [*PARTS["lf_buffer"].area[:3]] == rows["lf_buffer"][:3]
    assert rows["lf_buffer"][3] == MAPPED.buffer_bytes // 4096


def test_area_grows_with_the_array_and_the_buffer() -> None:
    small, wide, large = (
        estimate(replace(MAPPED, **size))
        for size in ({"mac_rows": 8, "mac_columns": 8}, {"mac_columns": 32}, {"buffer_bytes": 1 << 20})
    )
    assert small.dsp == 64 + 32 + 16 and wide.dsp == 512 + 128 + 16
    assert large.ram - estimate(MAPPED).ram == 192 and large[:3] == estimate(MAPPED)[:3]


def test_a_front_says_what_it_is() -> None:
    graph, question = asked(budget=0)
    front = front_of(graph, question)
    assert re.match(r"Front\([^:]+: \d+ plans? on 4 chips; knees: ", repr(front))
    assert isinstance(front, Front) and len(repr(front)) < 300
