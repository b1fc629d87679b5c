"""A bound is below the bytes of every legal schedule of its space, and of spaces in it, on less buffer too.

Compulsory bytes are below every scheme and buffer, and below every spelling of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.costs.baselines import epilogue_groups
from lfopt.planning.plans.outlines import totals_of
from lfopt.rewrite.simplify import simplify
from search.exact import solve
from search.options import SearchOptions
from search.partition import Partitions, Rng
from simulator.recount import RecountNetwork
from simulator.recount.bounds import (
    bound_problems,
    compulsory_bytes,
    least_known_bytes,
    without_recompute_bytes,
)
from tests.attention_models import random_attention
from tests.decompositions import KINDS, Pair
from tests.random_plans import computable, planned
from tests.strategies import (
    random_block,
    random_contraction,
    random_gate,
    random_graph,
    random_hardware,
    random_mlp,
)

INSIDE = {  # per scheme: those whose plans are plans of it
    "lbdf": ("lbdf",),
    "resident": ("resident",),
    "brr": ("brr",),
    "auto": ("lbdf", "resident", "brr", "auto"),
    "all": ("lbdf", "resident", "brr", "auto", "all"),
}
BRIEF = SearchOptions(passes=1)
SPECIAL: list[Callable[[np.random.Generator], Graph]] = [
    random_block,
    random_gate,
    random_mlp,
    random_contraction,
    random_attention,
]


def drawn_network(rng: np.random.Generator) -> Graph:
    """A small network: operators of all kinds, a block, a gate, linear layers, attention, a contraction."""
    if rng.random() < 0.6:
        return simplify(computable(random_graph(rng, int(rng.integers(2, 7)))), "none")
    return SPECIAL[int(rng.integers(len(SPECIAL)))](rng)


def has_schedules(costs: GroupCosts, groups: tuple[int, ...]) -> bool:
    """Whether the price of every group is that of a schedule."""
    return costs.traffic is Traffic.ONCE or all(is_scheduled(costs, group) for group in groups)


def is_scheduled(costs: GroupCosts, group: int) -> bool:
    mode = costs.chosen(group)
    if mode is None or mode.whole:
        return mode is not None
    return mode.alone or callable(mode.schedule(group, costs.hardware.buffer_bytes, 1).make)


def random_schedules(costs: GroupCosts, rng: np.random.Generator) -> list[int]:
    """DRAM bytes of legal schedules: groups drawn at random, operators alone, and epilogue fusion."""
    partitions = Partitions(costs)
    drawn = [partitions.in_order(partitions.draw(Rng((int(rng.integers(1 << 30)), k)))) for k in range(2)]
    schemes = [*drawn, tuple(1 << i for i in range(len(costs.dataflow)))]
    if costs.epilogue:
        fused = epilogue_groups(costs)
        schemes += [fused] if all(costs.price(group) is not None for group in fused) else []
    return [costs.dram_bytes(groups) for groups in schemes if has_schedules(costs, groups)]


def proven(costs: GroupCosts) -> int:
    """What one pass of the exact search proves of plans of this space."""
    return costs.proven_bytes(solve(costs, BRIEF).lower_bound_bytes)


def bound_without_formulas(costs: GroupCosts) -> int:
    """What is proven if operators without a schedule cost what they must move; else what is known before."""
    lone = [1 << i for i in range(len(costs.dataflow))]
    prices = [
        (costs.price(group), costs.groups.once(group).total)
        for group in lone
        if not is_scheduled(costs, group)
    ]
    sure = all(price is not None and price.dram_bytes == once for price, once in prices)
    return proven(costs) if sure else costs.proven_bytes(costs.least_bytes)


def check_random_schedules(seed: int) -> None:
    """Every bound of a random space, against schedules of it and of spaces inside."""
    rng = np.random.default_rng((seed, 48))
    graph = drawn_network(rng)
    hardware = random_hardware(rng, graph)
    traffic = Traffic(str(rng.choice(["tiled", "tiled", "tiled", "once"])))
    epilogue = bool(rng.random() < 0.8)
    scheme = str(rng.choice(["lbdf", "resident", "brr", "auto", "auto", "all", "all"]))
    space = GroupCosts.of(graph, hardware, traffic, scheme=scheme, epilogue=epilogue)
    plain = space.unfused()
    bounds = {
        "proven": proven(space),
        "least": space.proven_bytes(space.least_bytes - space.bounds.shareable_bytes),
        "compulsory": plain.bounds.compulsory_bytes,
    }
    if scheme == "all":
        bounds["recomputing"] = plain.bounds.recomputing_bytes
    assert bounds["compulsory"] <= min(bounds.values()) <= plain.bounds.once_bytes + bounds["least"]
    inside = INSIDE[scheme]
    for _ in range(2):
        smaller = replace(hardware, buffer_bytes=int(hardware.buffer_bytes * rng.choice([1, 1, 0.8, 0.5])))
        within = str(rng.choice(inside))
        costs = GroupCosts.of(
            graph, smaller, traffic, scheme=within, epilogue=epilogue and bool(rng.random() < 0.8)
        )
        moved = random_schedules(costs, rng)
        for name, bound in bounds.items():
            assert bound <= min(moved, default=bound), (seed, scheme, within, name, bound, moved)
        if within in ("lbdf", "resident") and moved:
            assert costs.unfused().bounds.without_recompute_bytes <= min(moved), (seed, within)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_no_bound_is_above_a_random_schedule(first: int) -> None:
    for seed in range(first, first + 20):
        check_random_schedules(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 600, 20))
def test_no_bound_is_above_a_random_schedule_600_cases(first: int) -> None:
    for seed in range(first, first + 20):
        check_random_schedules(seed)


# -- spellings -----------------------------------------------------------------------------------------------


def drawn_pair(seed: int) -> Pair:
    return KINDS[seed % len(KINDS)](np.random.default_rng((seed, 4)))


def drawn_chip(rng: np.random.Generator) -> Hardware:
    """Widths and alignments of a chip; its buffer is small or has no end."""
    hardware = Hardware(
        1 << int(rng.choice([8, 10, 30])),
        element_bytes=int(rng.choice([1, 2])),
        weight_bytes=int(rng.choice([1, 2])) if rng.random() < 0.3 else None,
        bias_bytes=int(rng.choice([1, 4])) if rng.random() < 0.3 else None,
        dram_row_align=int(rng.choice([1, 1, 16])),
        constant_align=int(rng.choice([1, 1, 4])),
    )
    return (
        replace(hardware, weight_bits=4) if rng.random() < 0.1 and hardware.weight_bytes is None else hardware
    )


def check_pair(seed: int) -> None:
    """Compulsory bytes of either spelling, and what no plan avoids, against plans of the other."""
    pair, rng = drawn_pair(seed), np.random.default_rng((seed, 5))
    graphs, hardware = pair.graphs(str(rng.choice(["default", "default", "none"]))), drawn_chip(rng)
    scheme = str(rng.choice(["auto", "all"]))
    both = [GroupCosts.of(graph, hardware, scheme=scheme) for graph in graphs]
    compulsory = [costs.unfused().bounds.compulsory_bytes for costs in both]
    schemes = [solve(costs, BRIEF).groups for costs in both]
    moved = [
        costs.dram_bytes(groups) if has_schedules(costs, groups) else None
        for costs, groups in zip(both, schemes, strict=True)
    ]
    # a plan of the parts is a schedule of the whole; one-hot vectors are made of constants of their own
    assert moved[1] is None or compulsory[0] <= moved[1], (seed, pair.kind)
    if pair.kind != "rows of a table":
        assert moved[0] is None or compulsory[1] <= moved[0], (seed, pair.kind)
        assert compulsory[0] == compulsory[1], (seed, pair.kind)


@pytest.mark.parametrize("first", range(0, 48, 16))
def test_compulsory_bytes_are_those_of_every_spelling(first: int) -> None:
    for seed in range(first, first + 16):
        check_pair(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(48, 480, 16))
def test_compulsory_bytes_are_those_of_every_spelling_480_cases(first: int) -> None:
    for seed in range(first, first + 16):
        check_pair(seed)


# -- constants, inputs and outputs ---------------------------------------------------------------------------


def network(
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]],
    inputs: dict[str, list[int]],
    outputs: list[str],
    constants: dict[str, np.ndarray],
    opset: int = 18,
) -> Graph:
    """A network of these nodes: kind, inputs, outputs, attributes."""
    operators = [
        helper.make_node(kind, read, results, f"n{k}", **attributes)
        for k, (kind, read, results, attributes) in enumerate(nodes)
    ]
    graph = helper.make_graph(
        operators,
        "network",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [
            helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v)
            for n, v in constants.items()
        ],
    )
    return simplify(
        from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])), "none"
    )


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def counted(graph: Graph) -> tuple[int, int, int]:
    """Compulsory elements of inputs, outputs and constants, which the recount counts alike."""
    hardware = Hardware(1 << 20, element_bytes=1)
    classes = GroupCosts.of(graph, hardware).bounds.compulsory
    assert compulsory_bytes(RecountNetwork(graph), hardware) == classes.total
    return classes.input, classes.output, classes.weight


@pytest.mark.parametrize(
    ("nodes", "constants", "wanted"),
    [
        ([("Relu", ["x"], ["y"], {})], {}, (24, 24, 0)),
        # views move nothing, whether they are outputs or not
        ([("Relu", ["x"], ["r"], {}), ("Reshape", ["r", "s"], ["y"], {})], {"s": ints(-1)}, (24, 24, 0)),
        ([("Reshape", ["x", "s"], ["y"], {})], {"s": ints(-1)}, (0, 0, 0)),
        # rows 1 and 3 of six, and 0 to 2 by another reader
        (
            [("Slice", ["x", "a", "b", "c", "d"], ["s"], {}), ("Sum", ["s", "s"], ["y"], {})],
            {"a": ints(1), "b": ints(4), "c": ints(0), "d": ints(2)},
            (8, 8, 0),
        ),
        (
            [
                ("Slice", ["x", "a", "b", "c"], ["s"], {}),
                ("Gather", ["x", "i"], ["g"], {"axis": 0}),
                ("Concat", ["s", "g"], ["y"], {"axis": 0}),
            ],
            {"a": ints(0), "b": ints(2), "c": ints(0), "i": ints(1, 3, 3)},
            (12, 20, 0),
        ),
        ([("Split", ["x", "n"], ["y", ""], {"axis": 0})], {"n": ints(2, 4)}, (8, 8, 0)),
        # of what one operator moves, another uses a part: it may read through the first
        (
            [("Split", ["x", "n"], ["s", "t"], {"axis": 0}), ("Split", ["s", "m"], ["y", ""], {"axis": 1})],
            {"n": ints(2, 4), "m": ints(1, 3)},
            (2, 2, 0),
        ),
        (
            [
                ("Transpose", ["x"], ["t"], {}),
                ("Slice", ["t", "a", "b", "c"], ["s"], {}),
                ("Gather", ["s", "i"], ["g"], {"axis": 1}),
                ("Relu", ["g"], ["y"], {}),
            ],
            {"a": ints(0), "b": ints(3), "c": ints(0), "i": ints(5)},
            (3, 3, 0),
        ),
        # one element of each vector is enough, if all are equal
        ([("Mul", ["x", "v"], ["y"], {})], {"v": np.full((6, 4), 0.5, np.float32)}, (24, 24, 0)),
        ([("Mul", ["x", "v"], ["y"], {})], {"v": np.repeat(floats(6, 1), 4, 1)}, (24, 24, 6)),
        ([("Mul", ["x", "v"], ["y"], {})], {"v": np.repeat(floats(1, 2), 2, 1)}, (24, 24, 2)),
        ([("Mul", ["x", "v"], ["y"], {})], {"v": np.tile(floats(3, 4), (2, 1))}, (24, 24, 12)),
        # a matrix and its transpose, a vector and a view of it
        (
            [("MatMul", ["x", "w"], ["m"], {}), ("MatMul", ["m", "t"], ["y"], {})],
            {"w": floats(4, 3), "t": floats(4, 3).T.copy()},
            (24, 24, 12),
        ),
        (
            [("Add", ["x", "v"], ["m"], {}), ("Mul", ["m", "u"], ["y"], {})],
            {"v": floats(4), "u": floats(1, 4)},
            (24, 24, 4),
        ),
        # rows of a table: as many as are picked, or all of them
        (
            [("Cast", ["x"], ["i"], {"to": TensorProto.INT64}), ("Gather", ["t", "i"], ["y"], {})],
            {"t": floats(3, 4)},
            (24, 96, 12),
        ),
        (
            [("Cast", ["x"], ["i"], {"to": TensorProto.INT64}), ("Gather", ["t", "i"], ["y"], {})],
            {"t": floats(90, 2)},
            (24, 48, 48),
        ),
    ],
)  # fmt: skip
def test_what_is_compulsory_is_used_and_counts_once(
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]],
    constants: dict[str, np.ndarray],
    wanted: tuple[int, int, int],
) -> None:
    assert counted(network(nodes, {"x": [6, 4]}, ["y"], constants)) == wanted


def test_inputs_that_nothing_reads_and_outputs_that_are_one_map_count_once_at_most() -> None:
    nodes = [("Relu", ["x"], ["y"], {}), ("Identity", ["y"], ["z"], {}), ("Neg", ["u"], ["dead"], {})]
    graph = network(nodes, {"x": [6, 4], "u": [5, 5], "unread": [7]}, ["y", "z"], {})
    assert counted(graph) == (24, 24, 0)


def test_compulsory_bytes_are_the_same_in_every_scheme_and_on_every_buffer() -> None:
    graph, figures = random_attention(np.random.default_rng(3)), set[int]()
    for scheme in INSIDE:
        for size in (64, 1 << 30):
            figures.add(GroupCosts.of(graph, Hardware(size), scheme=scheme).bounds.compulsory_bytes)
    assert len(figures) == 1


# -- operators whose schedules are not known -----------------------------------------------------------------


@cache
def standardised(channels: int, size: int) -> tuple[Graph, Graph]:
    """InstanceNormalization, and its parts."""
    vectors = {name: floats(channels, 1, 1) + k for k, name in enumerate("gb")}
    shape = {"x": [1, channels, size, size]}
    flat = {name: value.reshape(-1) for name, value in vectors.items()}
    whole = network([("InstanceNormalization", ["x", "g", "b"], ["y"], {})], shape, ["y"], flat)
    parts = [
        ("ReduceMean", ["x", "axes"], ["mean"], {}),
        ("Sub", ["x", "mean"], ["centred"], {}),
        ("Mul", ["centred", "centred"], ["square"], {}),
        ("ReduceMean", ["square", "axes"], ["variance"], {}),
        ("Add", ["variance", "epsilon"], ["shifted"], {}),
        ("Sqrt", ["shifted"], ["root"], {}),
        ("Div", ["centred", "root"], ["quotient"], {}),
        ("Mul", ["quotient", "g"], ["scaled"], {}),
        ("Add", ["scaled", "b"], ["y"], {}),
    ]
    constants = {**vectors, "axes": ints(2, 3), "epsilon": np.float32(1e-5).reshape(1)}
    return whole, network(parts, shape, ["y"], constants)


@pytest.mark.parametrize("scheme", ["lbdf", "auto", "all"])
@pytest.mark.parametrize("buffer_bytes", [8, 64, 1 << 10, 1 << 12])
def test_an_operator_without_a_schedule_enters_bounds_with_what_must_move(
    scheme: str, buffer_bytes: int
) -> None:
    whole, parts = (
        GroupCosts.of(graph, Hardware(buffer_bytes), scheme=scheme) for graph in standardised(3, 24)
    )
    bound = bound_without_formulas(whole)
    if not is_scheduled(whole, 1):
        assert bound <= whole.bounds.once_bytes
    groups = solve(parts, BRIEF).groups
    if has_schedules(parts, groups):
        assert bound <= parts.dram_bytes(groups)


def test_no_bound_is_above_every_operator_alone_with_what_must_move() -> None:
    nothing_fits = 0
    for seed in range(10):
        rng = np.random.default_rng((seed, 6))
        graph, scheme = drawn_network(rng), str(rng.choice(["lbdf", "auto", "all"]))
        costs = GroupCosts.of(graph, Hardware(2, element_bytes=1), scheme=scheme)
        nothing_fits += not any(is_scheduled(costs, 1 << i) for i in range(len(costs.dataflow)))
        assert bound_without_formulas(costs) <= sum(
            costs.groups.once(1 << i).total for i in range(len(costs.dataflow))
        )
    assert nothing_fits > 2


# -- the recount of bounds -----------------------------------------------------------------------------------


def planned_with_totals(costs: GroupCosts, groups: tuple[int, ...], bound: int) -> Plan:
    plan = planned(costs, groups)
    return replace(plan, totals=totals_of(costs.unfused(), plan.groups, bound))


def check_recount(seed: int) -> tuple[bool, bool]:
    """The recount of bounds agrees with a plan, and refutes a bound above what it finds.

    Whether partitions were gone through, and whether they moved as little as the plan.
    """
    rng = np.random.default_rng((seed, 7))
    graph = drawn_network(rng)
    hardware = random_hardware(rng, graph)
    scheme = str(rng.choice(["lbdf", "resident", "auto", "all"]))
    epilogue = bool(rng.random() < 0.8)
    costs = GroupCosts.of(graph, hardware, scheme=scheme, epilogue=epilogue)
    result = solve(costs, BRIEF)
    bound = costs.proven_bytes(result.lower_bound_bytes)
    plan = planned_with_totals(costs, result.groups, bound)
    net = RecountNetwork(graph)
    assert compulsory_bytes(net, hardware) == plan.totals.compulsory_bytes
    assert without_recompute_bytes(net, hardware) == plan.totals.without_recompute_bytes
    assert not [*bound_problems(graph, plan)], seed
    least = least_known_bytes(graph, plan)
    if least is None:
        return False, False
    wrong = replace(plan, totals=replace(plan.totals, lower_bound_bytes=least + 1))
    assert [*bound_problems(graph, wrong)], seed
    return True, least == plan.totals.dram_bytes


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_the_recount_of_bounds_agrees_and_refutes(first: int) -> None:
    verdicts = [check_recount(seed) for seed in range(first, first + 10)]
    assert sum(gone for gone, _ in verdicts) > 3
    assert sum(least for _, least in verdicts) > 1


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20, 300, 20))
def test_the_recount_of_bounds_agrees_and_refutes_300_cases(first: int) -> None:
    assert sum(gone for gone, _ in [check_recount(seed) for seed in range(first, first + 20)]) > 6


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("more", [-1, 0, 1, 2])
def test_a_map_normalised_as_a_whole_moves_again_what_the_buffer_does_not_hold(
    more: int, *, inside: bool
) -> None:
    """F_beta is below beta: of a map of just beta bytes one byte too many."""
    vectors = {"g": floats(4), "b": floats(4) + 1}
    nodes = [("GroupNormalization", ["r" if inside else "x", "g", "b"], ["y"], {"num_groups": 1})]
    nodes = ([("Relu", ["x"], ["r"], {})] if inside else []) + nodes
    graph = network(nodes, {"x": [1, 4, 6, 5]}, ["y"], vectors, opset=21)
    hardware = Hardware(4 * 6 * 5 + more, element_bytes=1)
    costs = GroupCosts.of(graph, hardware, scheme="lbdf")
    bounds = costs.bounds
    again = max(1 - more, 0) * (2 if inside else 1)
    assert bounds.without_recompute_bytes - bounds.compulsory_bytes == again
    net = RecountNetwork(graph)
    assert without_recompute_bytes(net, hardware) == bounds.without_recompute_bytes
    groups = solve(costs, BRIEF).groups
    assert not has_schedules(costs, groups) or costs.dram_bytes(groups) >= bounds.without_recompute_bytes
