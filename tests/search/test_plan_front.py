"""The front of plans of given groups, against enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lfopt.ir import Figures
from search import plan_front
from search.plan_front import PlanFront
from tests.cases import some


def options_of(seed: int, most: int) -> list[list[Figures]]:
    """Figures of the options of some groups."""
    rng = np.random.default_rng(seed)
    return [
        [Figures(*rng.integers(1, most, 3).tolist()) for _ in range(rng.integers(1, 5))]
        for _ in range(rng.integers(1, 6))
    ]


@pytest.mark.parametrize("seed", some(range(60)))
def test_a_front_has_every_plan_that_no_other_beats(seed: int) -> None:
    options = options_of(seed, 40)
    front = PlanFront(options.__getitem__, range(len(options)))
    every = [sum(chosen, Figures(0, 0, 0)) for chosen in product(*options)]
    efficient = {
        (one.dram_bytes, one.cycles)
        for one in every
        if not any(
            (other.dram_bytes, other.cycles) != (one.dram_bytes, one.cycles)
            and other.dram_bytes <= one.dram_bytes
            and other.cycles <= one.cycles
            for other in every
        )
    }
    assert {(front[k].dram_bytes, front[k].cycles) for k in range(len(front))} == efficient
    for k in range(len(front)):
        choice = front.choice(k)
        chosen = [options[group][way] for group, way in zip(choice.groups, choice.alternatives, strict=True)]
        assert sum(chosen, Figures(0, 0, 0)) == choice.figures == front[k]
    for cap in (every[0].cycles, 1):
        within = [one.dram_bytes for one in every if one.cycles <= cap]
        plan = front.fewest_bytes(cap)
        assert (None if plan is None else front[plan].dram_bytes) == min(within, default=None)
        most = every[-1].dram_bytes - 1
        plan = front.fewest_cycles(most)
        cycles = [one.cycles for one in every if one.dram_bytes <= most]
        assert (None if plan is None else front[plan].cycles) == min(cycles, default=None)


def test_a_thinned_front_keeps_its_ends_and_loses_a_cell_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(3, 10**6) * 3
    whole = PlanFront(options.__getitem__, range(len(options)))
    monkeypatch.setattr(plan_front, "CELLS", 12)
    thin = PlanFront(options.__getitem__, range(len(options)))
    assert len(thin) < len(whole) and thin[0] == whole[0] and thin[-1].cycles == whole[-1].cycles
    cell = (whole[-1].dram_bytes - whole[0].dram_bytes) / 12
    for k in range(len(whole)):
        near = thin.fewest_bytes(whole[k].cycles)
        assert near is not None
        assert thin[near].dram_bytes <= whole[k].dram_bytes + len(options) * (cell + 1)
