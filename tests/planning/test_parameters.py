"""Parameters of quantised operators: their bytes, loaded once per group, and noticed where left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from lfopt.ir import (
    BufferUse,
    Cost,
    DoesNotFit,
    Graph,
    Hardware,
    Node,
    Operator,
    Plan,
    Quantization,
    Tensor,
    Transfer,
    dram_bytes,
)
from lfopt.ir.listing import listing, parse
from lfopt.ops import Call, Dataflow
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.fixed_point import multipliers
from lfopt.ops.parameter_data import parameter_blocks, parameter_bytes
from lfopt.ops.scaling import requantization, table
from lfopt.ops.stages import least_parameters
from lfopt.ops.traits import Arithmetic
from lfopt.planning import GroupCosts, Traffic, memory_map, plan_groups, totals_of
from lfopt.planning.costs.baselines import layer_by_layer_bytes
from search.exact import solve
from simulator.interpreter.execute import Violation, execute
from simulator.model.simulate import simulate
from simulator.recount import recount
from tests.brute import brute_force
from tests.cases import few, some
from tests.random_plans import SCHEMES, drawn, planned, random_scheme

STORE = 1 << 20  # bytes


def quantised(
    name: str, shape: tuple[int, ...], scale: float = 0.5, zero_point: int = 0, dtype: str = "int8"
) -> Tensor:
    return Tensor(name, shape, dtype, Quantization((scale,), (zero_point,)))


def network(
    *operators: Operator, tensors: tuple[Tensor, ...], constants: dict[str, np.ndarray | None] | None = None
) -> Graph:
    """Operators in a row, from "x" to the last one's result."""
    return Graph(
        "network",
        operators,
        {t.name: t for t in tensors},
        dict(constants or {}),
        ("x",),
        tuple(name for name in operators[-1].outputs if name),
        18,
    )


def conv(channels: int, values: np.ndarray | None, **attributes: int) -> Graph:
    weights = Tensor(
        "w",
        (channels, 3, 1, 1),
        "int8",
        Quantization(tuple(0.01 * (k + 1) for k in range(channels)), (0,) * channels, 0),
    )
    tensors = (quantised("x", (1, 3, 4, 4)), weights, quantised("y", (1, channels, 4, 4)))
    return network(
        Operator("conv", "Conv", ("x", "w"), ("y",), {"kernel_shape": (1, 1)}),
        tensors=tensors,
        constants={"w": values},
    )


def call_of(graph: Graph, index: int = 0) -> Call:
    return Dataflow.of(graph).calls[index]


# -- what they are -------------------------------------------------------------------------------------------


def test_factors_come_in_rows_of_sixteen_channels_of_five_bytes() -> None:
    call = call_of(conv(20, np.ones((20, 3, 1, 1), np.int8)))
    rows = parameter_blocks(call)
    assert [row.size for row in rows] == [80, 80]
    assert parameter_bytes(call) == 160
    words = [
        int.from_bytes(rows[k // 16][k % 16 * 5 : k % 16 * 5 + 5].tobytes(), "little") for k in range(32)
    ]
    by = requantization(call).by
    assert [word & (1 << 31) - 1 for word in words[:20]] == by.multiplier.tolist()
    assert [word >> 32 for word in words[:20]] == by.shift.tolist()
    assert words[20:] == [0] * 12
    assert words[3] == int(multipliers([0.04]).multiplier[0]) | int(multipliers([0.04]).shift[0]) << 32


def test_how_many_bytes_there_are_needs_no_weights() -> None:
    assert parameter_bytes(call_of(conv(33, None))) == 240
    assert parameter_bytes(call_of(conv(33, None)), 8) == 5 * 40


def relu(scale: float, kind: str = "Relu", zero_point: int = 0) -> Call:
    tensors = (quantised("x", (1, 3, 4, 4)), quantised("y", (1, 3, 4, 4), scale, zero_point))
    return call_of(network(Operator("f", kind, ("x",), ("y",), {}), tensors=tensors))


def test_a_table_that_only_clamps_is_none() -> None:
    assert arithmetic(relu(0.5)) is Arithmetic.TABLE
    assert parameter_bytes(relu(0.5)) == 0
    assert parameter_blocks(relu(0.5)) == ()
    for call in (relu(0.25), relu(0.5, zero_point=1), relu(0.5, "Sigmoid")):
        assert parameter_bytes(call) == 256
        (block,) = parameter_blocks(call)
        assert np.array_equal(block, table(call).view(np.uint8))


def test_every_operand_that_must_be_recoded_has_a_table() -> None:
    tensors = (
        quantised("x", (1, 2, 4, 4)),
        quantised("a", (1, 2, 4, 4), 0.25),
        quantised("b", (1, 2, 4, 4)),
        quantised("y", (1, 6, 4, 4)),
    )
    ends = (Operator("a", "Relu", ("x",), ("a",), {}), Operator("b", "Relu", ("x",), ("b",), {}))
    join = Operator("join", "Concat", ("a", "x", "b"), ("y",), {"axis": 1})
    assert [parameter_bytes(call) for call in Dataflow.of(network(*ends, join, tensors=tensors)).calls] == [
        256,
        0,
        256,
    ]


@pytest.mark.parametrize(
    ("kind", "attributes"), [("MaxPool", {"kernel_shape": (1, 1)}), ("DepthToSpace", {"blocksize": 1})]
)
def test_what_moves_or_chooses_needs_a_table_where_the_scale_changes(
    kind: str, attributes: dict[str, object]
) -> None:
    for scale, size in ((0.5, 0), (0.25, 256)):
        graph = network(
            Operator("f", kind, ("x",), ("y",), attributes),  # type: ignore[arg-type]
            tensors=(quantised("x", (1, 3, 4, 4)), quantised("y", (1, 3, 4, 4), scale)),
        )
        assert parameter_bytes(call_of(graph)) == size


def test_real_numbers_have_no_parameters() -> None:
    graph = network(
        Operator("f", "Sigmoid", ("x",), ("y",), {}),
        tensors=(Tensor("x", (1, 3, 4, 4), "float32"), Tensor("y", (1, 3, 4, 4), "float32")),
    )
    assert parameter_bytes(call_of(graph)) == 0


# -- plans ---------------------------------------------------------------------------------------------------


def random_plan(seed: int, **entries: int) -> tuple[Graph, GroupCosts, Plan, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    graph, hardware, inputs = drawn(rng, integers=True)
    hardware = replace(hardware, parameter_store_bytes=STORE, **entries)
    costs = GroupCosts(Dataflow.of(graph), hardware, scheme=SCHEMES[seed % len(SCHEMES)])
    return graph, costs, planned(costs, random_scheme(costs, seed)), inputs


def loads(plan: Plan) -> list[tuple[int, Transfer]]:
    return [
        (g, step)
        for g, group in enumerate(plan.groups)
        for step in group.steps
        if isinstance(step, Transfer) and step.kind == "parameter"
    ]


def test_they_are_loaded_once_per_group_at_its_head_and_are_what_the_operators_have() -> None:
    seen = Counter[str]()
    for seed in range(40_000, 40_080):
        _, costs, plan, _ = random_plan(seed)
        sizes = {call.operator.name: parameter_bytes(call) for call in costs.dataflow.calls}
        for group in plan.groups:
            if not group.steps:
                continue
            wanted = [(name, sizes[name]) for name in group.nodes if sizes[name]]
            head = group.steps[: len(wanted)]
            assert [(step.tensor, step.bytes, step.place) for step in head if isinstance(step, Transfer)] == [
                (n, s, -1) for n, s in wanted
            ]
            assert (
                dram_bytes(head).parameter
                == dram_bytes(group.steps).parameter
                == group.dram.parameter
                == sum(size for _, size in wanted)
            )
            assert parse(list(listing(group.steps))) == group.steps
            seen[group.mode] += bool(wanted)
    assert all(seen[mode] > 5 for mode in ("lbdf", "brr", "resident", "tiled")), seen


def test_without_a_store_nothing_is_counted() -> None:
    for seed in range(40_000, 40_020):
        _, costs, plan, _ = random_plan(seed)
        without = GroupCosts(
            costs.dataflow, replace(costs.hardware, parameter_store_bytes=0), scheme=costs.scheme
        )
        everything = sum(parameter_bytes(call) for call in costs.dataflow.calls)
        # tables may be shared in flight
        compulsory = least_parameters(costs.dataflow.calls, 16, costs.dataflow.behind)
        assert costs.bounds.compulsory_bytes == without.bounds.compulsory_bytes + compulsory
        assert layer_by_layer_bytes(costs) == layer_by_layer_bytes(without) + everything
        assert costs.least_bytes == without.least_bytes + everything
        groups = plan_groups(
            without,
            tuple(
                sum(1 << [o.name for o in costs.dataflow.operators].index(n) for n in g.nodes)
                for g in plan.groups
            ),
        )
        assert isinstance(groups, tuple)
        assert [replace(group.dram, parameter=0) for group in plan.groups] == [group.dram for group in groups]


def test_a_group_whose_parameters_exceed_the_store_does_not_fit_and_says_so() -> None:
    tensors = (
        quantised("x", (1, 2, 4, 4)),
        *(quantised(name, (1, 2, 4, 4), 0.5 / k) for k, name in enumerate("ab", 2)),
    )
    graph = network(
        Operator("f", "Sigmoid", ("x",), ("a",), {}),
        Operator("g", "Tanh", ("a",), ("b",), {}),
        tensors=tensors,
    )
    for store, tables, fits in (
        (512, 0, True),
        (512, 2, True),
        (511, 0, False),
        (100, 0, False),
        (512, 1, False),
    ):
        hardware = Hardware(1 << 16, element_bytes=1, parameter_store_bytes=store, parameter_tables=tables)
        costs = GroupCosts(Dataflow.of(graph), hardware, scheme="auto")
        # a single operator is always legal
        assert all(isinstance(costs.evaluate(mask), Cost) for mask in (1, 2))
        cost = costs.evaluate(3)
        assert isinstance(cost, Cost) == costs.legal_anywhere(3) == fits
        assert isinstance(cost, Cost) or cost == DoesNotFit(
            3,
            512,
            256 * tables or store,
            (BufferUse("f", "parameters", 0, 0, 256), BufferUse("g", "parameters", 0, 0, 256)),
            "parameter store",
        )
        groups = solve(costs).groups
        assert groups == ((3,) if fits else (1, 2))
        plan = planned(costs, groups)
        done = execute(plan, graph, {"x": np.zeros((1, 2, 4, 4), np.int8)})
        assert done.dram.parameter == 512
        assert done.loaded["parameters of f"] == done.loaded["parameters of g"] == 256
        if tables == 2:
            tight = replace(plan, hardware=replace(hardware, parameter_tables=1))
            with pytest.raises(Violation, match="2 tables overrun a store of 1"):
                execute(tight, graph, {"x": np.zeros((1, 2, 4, 4), np.int8)})
            assert "group 0: 2 tables at once, their store holds 1" in recount(graph, tight).discrepancies


def test_the_exact_search_proves_its_plans_and_a_recount_agrees_with_them() -> None:
    counted = 0
    for seed in some(range(41_000, 41_120)):
        rng = np.random.default_rng(seed)
        graph, hardware, _ = drawn(rng, integers=True)
        traffic = Traffic.TILED if seed % 3 else Traffic.ONCE
        costs = GroupCosts(Dataflow.of(graph), hardware, traffic, scheme=SCHEMES[seed % len(SCHEMES)])
        solution = solve(costs)
        groups = plan_groups(costs, solution.groups)
        assert isinstance(groups, tuple)
        plan = replace(
            planned(costs, solution.groups),
            totals=totals_of(costs.unfused(), groups, solution.lower_bound_bytes),
            memory=memory_map(costs, groups),
        )
        assert (
            costs.bounds.compulsory_bytes
            <= costs.least_bytes
            <= solution.lower_bound_bytes
            <= plan.totals.dram_bytes
        )
        assert recount(graph, plan).agrees, f"seed {seed}: {recount(graph, plan).discrepancies}"
        report = simulate(plan, graph)
        assert report.disagreements == ()
        assert sum(t.loaded_bytes for t in report.tensors if t.role == "parameter") == report.dram.parameter
        counted += report.dram.parameter > 0
    assert counted > few(30)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_exact_search_finds_what_trying_every_scheme_finds_with_a_small_store(scheme: str) -> None:
    tried, apart = 0, Counter[str]()
    for seed in range(42_000, 42_040):
        rng = np.random.default_rng(seed)
        graph, hardware, _ = drawn(rng, integers=True)
        if len(Dataflow.of(graph)) > 7:
            continue
        limited, most = (
            ("parameter_tables", 1)
            if seed % 3 == 0
            else ("parameter_store_bytes", int(rng.choice([81, 300, 600])))
        )
        hardware = replace(hardware, parameter_store_bytes=STORE)
        hardware = replace(hardware, **{limited: most})
        costs = GroupCosts(Dataflow.of(graph), hardware, scheme=scheme)
        wanted, _ = brute_force(graph, hardware, Traffic.TILED, epilogue=True, scheme=scheme)
        solution = solve(costs)
        assert (solution.dram_bytes, solution.proof) == (wanted, "optimal"), f"seed {seed}"
        roomy = solve(
            GroupCosts(
                costs.dataflow,
                replace(hardware, parameter_store_bytes=STORE, parameter_tables=0),
                scheme=scheme,
            )
        )
        assert roomy.dram_bytes <= solution.dram_bytes
        apart[limited] += roomy.dram_bytes < solution.dram_bytes
        tried += 1
    assert tried > 20
    assert apart["parameter_tables"]
    assert apart["parameter_store_bytes"]


# -- loads that are wrong are found --------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Transfer], tuple[Node, ...]]] = {
    "dropped": lambda step: (),
    "shortened": lambda step: (replace(step, box=((0, step.bytes - 1),), row_bytes=step.bytes - 1),),
    "later bytes": lambda step: (replace(step, box=((1, step.bytes),), row_bytes=step.bytes - 1),),
    "of nobody": lambda step: (replace(step, tensor="nobody"),),
    "into the buffer": lambda step: (replace(step, place=0),),
    "stored": lambda step: (replace(step, store=True),),
    "called a weight": lambda step: (replace(step, kind="weight"),),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_load_of_parameters_that_is_wrong_is_found(change: str) -> None:
    tried = 0
    with threadpool_limits(1):
        for seed in some(range(40_000, 40_035)):
            graph, _, plan, inputs = random_plan(seed)
            if not loads(plan) or any(group.unexecutable for group in plan.groups):
                continue
            g, step = loads(plan)[0]
            steps = tuple(
                new
                for node in plan.groups[g].steps
                for new in (CHANGES[change](step) if node is step else (node,))
            )
            lie = replace(plan.groups[g], steps=steps, dram=dram_bytes(steps))
            wrong = replace(plan, groups=(*plan.groups[:g], lie, *plan.groups[g + 1 :]))
            assert not of_group(g, graph, plan)
            assert of_group(g, graph, wrong)
            try:
                noticed = execute(wrong, graph, inputs).dram != plan_dram(plan)
            except Violation:
                noticed = True
            assert noticed, f"seed {seed}"
            tried += 1
    assert tried > few(10)


def of_group(g: int, graph: Graph, plan: Plan) -> list[str]:
    """What a recount has to say of a group."""
    return [line for line in recount(graph, plan).discrepancies if line.startswith(f"group {g}:")]


def plan_dram(plan: Plan) -> object:
    return sum((group.dram for group in plan.groups[1:]), plan.groups[0].dram)


def test_parameters_after_the_first_computation_are_found() -> None:
    graph, _, plan, inputs = next(
        drawn_plan for drawn_plan in map(random_plan, range(40_000, 40_100)) if loads(drawn_plan[2])
    )
    g, step = loads(plan)[0]
    group = plan.groups[g]
    lie = replace(group, steps=(*(node for node in group.steps if node is not step), step))
    wrong = replace(plan, groups=(*plan.groups[:g], lie, *plan.groups[g + 1 :]))
    assert any("are not in their store" in line for line in recount(graph, wrong).discrepancies)
    with pytest.raises(Violation, match="bytes of parameters"):
        execute(wrong, graph, inputs)
