"""What an operator takes at the least: no schedule takes less, and those of whole maps hardly take more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from lfopt.ir import Compute, Hardware, Node, unfold
from lfopt.ops import Dataflow, bits
from lfopt.planning import SCHEMES, GroupCosts, Limit
from search.exact import solve
from simulator.model.energy import Spending
from simulator.model.meter import Meter
from simulator.model.simulate import simulate
from tests.cases import some
from tests.simulator.test_simulate import planned, real
from tests.strategies import random_graph, random_hardware


def chips(rng: np.random.Generator, hardware: Hardware) -> Hardware:
    """The chip with an array, lanes and a port of weights drawn at random."""
    return replace(
        hardware,
        mac_rows=int(rng.choice([4, 8, 16, 32])),
        mac_columns=int(rng.choice([4, 16, 64])),
        vector_lanes=int(rng.choice([4, 16])),
        weight_port_bytes=int(rng.choice([1, 16, 64])),
        window_columns=int(rng.choice([1, 2, 4])),
        depthwise_columns=int(rng.choice([1, 4])),
        mac_utilization=float(rng.choice([0.8, 1.0])),
    )


def schedules(costs: GroupCosts) -> Iterator[tuple[int, tuple[Node, ...]]]:
    """(group, steps) of all options of the groups of the best plan, and of each operator by itself."""
    groups = {*solve(costs).groups, *(1 << i for i in range(len(costs.dataflow)))}
    for group in groups:
        if costs.price(group) is None:
            continue
        for option in costs.options(group):
            schedule = option.scheduled.within(Limit(most=5000))
            if schedule is not None:
                yield group, schedule[1]


@pytest.mark.parametrize("seed", some(range(2000)))
def test_no_schedule_takes_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 8)))
    hardware = chips(rng, random_hardware(rng, graph))
    costs = GroupCosts(Dataflow.of(graph), hardware, scheme=[*SCHEMES][seed % len(SCHEMES)])
    meter = Meter(costs.dataflow, hardware)
    accelerator = meter.accelerator
    for group, steps in schedules(costs):
        cycles: dict[str, int] = defaultdict(int)
        energy: dict[str, Spending] = defaultdict(lambda: Spending(hardware))
        for step in unfold(steps):
            for one in accelerator.passes(step) if isinstance(step, Compute) else ():
                cycles[one.operator] += accelerator.cycles(one)
                energy[one.operator].compute(accelerator.work(one), 1)
        for i in bits(group):
            call = costs.dataflow.calls[i]
            parts = [part.operator.name for part in call.parts]
            assert meter.floors.cycles(call) <= sum(cycles[part] for part in parts), call
            assert meter.floors.energy_pj(call) <= sum(energy[part].use.total_pj for part in parts) + 1, call
        assert sum(meter.least(i).cycles for i in bits(group)) <= meter.computing(steps)


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_plans_of_whole_networks_are_near(name: str) -> None:
    graph, hardware = real(name), Hardware(256 << 10, channel_align=16)
    plan = planned(graph, hardware)
    meter = Meter(Dataflow.of(graph), hardware)
    floor = sum(meter.least(i).cycles for i in range(len(meter.flow)))
    assert floor <= sum(group.cycles.compute for group in simulate(plan, graph).groups) <= 1.15 * floor
