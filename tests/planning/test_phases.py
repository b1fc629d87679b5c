"""Bytes of contractions in any schedule without recomputation: against plans and ideal blockings.

In those blockings the operand and the result are free.
"""

from __future__ import annotations

from itertools import pairwise, product
from math import ceil

import numpy as np
import pytest

from lfopt.frontend import from_model
from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from lfopt.ops.phases import (
    FACTORS,
    ContractionProducts,
    _beyond,
    _products_within,
    _touched,
    beyond_compulsory,
)  # pyright: ignore[reportPrivateUsage]
from lfopt.planning import GroupCosts
from lfopt.planning.bounds.phases import uses
from lfopt.zoo.builder import Net
from search.exact import solve
from tests.convolutions import random_convolutions


def blocked_bytes(products: ContractionProducts, hardware: Hardware, on_chip: int) -> int:
    """Fewest bytes of all blockings of one product, without what is made and used up at once or stays.

    Of M x K x N; a block of sums stays while K runs, or a block of weights while M runs. The operand moves
    unless one block has all columns, sums unless one has all of K.
    """
    m, k, n = products.rows, products.inner, products.columns
    a, w, c = hardware.element_bytes, hardware.constant_bits(bias=False) // 8, hardware.accumulator_bytes
    totals: list[int] = []
    sizes = [
        sorted({1, 2, 3, *(ceil(size / parts) for parts in range(1, 9))} & set(range(1, size + 1)))
        for size in (m, k, n)
    ]
    for rows, inner, columns in product(*sizes):
        if a * rows * inner + w * inner * columns + c * rows * columns > on_chip:
            continue
        over_m, over_k, over_n = ceil(m / rows), ceil(k / inner), ceil(n / columns)
        weights = w * k * n * (over_m if over_k * over_n > 1 else 1)
        # each block of it is made for one block of columns, or loaded
        operand = 0 if over_n == 1 else a * m * k * over_n
        totals.append(weights + operand)  # sums stay while l runs
        sums = 0 if over_k == 1 else 2 * c * m * n * (over_k - 1)
        totals.append(w * k * n + operand + sums)  # a block of weights stays while rows run
    return min(totals)


def check_blocked(seed: int) -> float:
    rng = np.random.default_rng(seed)
    rows, inner, columns = (int(2 ** rng.uniform(2, 9)) for _ in range(3))
    hardware = Hardware(
        int(2 ** rng.uniform(5, 12)),
        element_bytes=int(rng.choice([1, 2])),
        accumulator_bytes=int(rng.choice([2, 4])),
    )
    products = ContractionProducts(rows, inner, columns, 1, 1, 1, 0)
    bound = max(_beyond([products], hardware, hardware.buffer_bytes, factor) for factor in FACTORS)
    moved = blocked_bytes(products, hardware, hardware.buffer_bytes)
    assert bound <= moved, f"seed {seed}: {products}, {hardware}"
    return bound / moved


def test_no_blocking_of_a_product_moves_less_even_with_operand_and_result_made_and_used_on_chip() -> None:
    shares = [check_blocked(seed) for seed in range(150)]
    assert max(shares) > 0.2


def check_plan(seed: int) -> bool:
    """Whether the bound is above the compulsory bytes."""
    rng = np.random.default_rng(seed)
    net = Net("products", seed=0, weights=False)
    channels, size = int(rng.integers(8, 97)), int(rng.integers(4, 13))
    image = x = net.image((1, channels, size, size))
    for k in range(int(rng.integers(1, 4))):
        channels = int(rng.integers(8, 97))
        x = net.conv(f"conv{k}", x, channels, act="relu" if rng.random() < 0.5 else None)
    graph = from_model(net.model(image, x, doc=""))
    hardware = Hardware(int(2 ** rng.uniform(9, 12)), element_bytes=int(rng.choice([1, 2])))
    # kernels of 1 x 1: bands compute nothing twice
    bounds = GroupCosts(Dataflow.of(graph), hardware, scheme="auto").bounds
    for scheme in ("auto", "all"):
        costs = GroupCosts.of(graph, hardware, scheme=scheme, max_recompute=1.0)
        assert solve(costs).dram_bytes >= bounds.without_recompute_bytes >= bounds.compulsory_bytes, (
            f"seed {seed}: {hardware}, {scheme}"
        )
    return bounds.without_recompute_bytes > bounds.compulsory_bytes


def test_no_plan_that_computes_nothing_twice_moves_less() -> None:
    assert sum(map(check_plan, range(12))) > 3


@pytest.mark.slow
def test_no_plan_of_many_more_networks_does() -> None:
    assert sum(map(check_plan, range(1000, 1400))) > 100


@pytest.mark.slow
def test_no_blocking_of_many_more_products_does() -> None:
    for seed in range(1000, 6000):
        check_blocked(seed)


def test_bytes_touched_do_not_fall_with_the_products_done_and_per_product_do_not_rise() -> None:
    products, hardware = ContractionProducts(500, 700, 900, 1, 4, 1, 0), Hardware(4096)
    sizes = [_touched(products, hardware, 4.0**k, 1e15) for k in range(3, 12)]
    assert all(a < b < 4 * a for a, b in pairwise(sizes))
    assert sizes[-1] <= 700 * 900 * 2
    within = _products_within(products, hardware, 50_000)
    assert (
        _touched(products, hardware, within, 1e15)
        >= 50_000
        > _touched(products, hardware, 0.99 * within, 1e15) * 0.97
    )


def test_where_the_weights_fit_nothing_is_proven() -> None:
    graph = random_convolutions(np.random.default_rng(1), 4)
    flow = Dataflow.of(graph)
    assert beyond_compulsory(uses(flow, Hardware(1 << 20), flow.everything), Hardware(1 << 20), 1 << 20) == 0


def test_weights_that_several_operators_read_and_operands_laid_out_from_others_are_left_out() -> None:
    net = Net("left out", seed=0, weights=False)
    image = net.image((1, 64, 16, 16))
    plain = net.conv("plain", net.conv("first", image, 256), 256)
    joined = net.conv("joined", net.concat("concat", [plain, plain]), 8)
    flow, hardware = Dataflow.of(from_model(net.model(image, joined, doc=""))), Hardware(1024)
    everything = beyond_compulsory(uses(flow, hardware, flow.everything), hardware, 1024)
    without = beyond_compulsory(
        uses(flow, hardware, flow.everything & ~(1 << flow.position["joined"])), hardware, 1024
    )
    assert everything == without > 0
