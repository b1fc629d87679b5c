"""Random networks on random chips, priced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lfopt.ir import Graph
from lfopt.planning import GroupCosts, Traffic
from tests.strategies import random_graph, random_hardware


def random_job(seed: int, most: int = 6) -> tuple[Graph, GroupCosts]:
    """A small network and its costs in scheme auto on a chip of random sizes with a small MAC array."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(3, most + 1)))
    speed = {"mac_rows": 4, "mac_columns": 4, "port_bytes": 4, "start_cycles": 3, "accumulator_columns": 16}
    hardware = replace(random_hardware(rng, graph), **speed)
    return graph, GroupCosts.of(graph, hardware, Traffic.TILED, scheme="auto")
