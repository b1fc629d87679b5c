"""A recount agrees with every plan that the planner makes, and with none that was tampered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from lfopt.ir import DramBytes, Graph, Hardware, ModelReference, Plan, PlannedGroup, SearchRecord, Totals
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.baselines import epilogue_fused_bytes, layer_by_layer_bytes
from lfopt.planning.plan import plan_groups, total_dram
from search.exact import solve
from simulator.recount import recount
from tests.strategies import random_graph, random_hardware
from tests.test_exact import network, problem


def planned(graph: Graph, hardware: Hardware, traffic: Traffic, *, epilogue: bool, groups: tuple[int, ...] | None = None) -> Plan:
    """The plan of the optimal scheme, or of the one given."""
    costs = GroupCosts(Dataflow.of(graph), hardware, traffic, epilogue=epilogue)
    found = solve(problem(costs))
    made = plan_groups(costs, found.groups if groups is None else groups)
    assert isinstance(made, tuple)
    moved, bound = total_dram(made).total, found.lower_bound_bytes
    return Plan(
        ModelReference(graph.name, "0" * 64, "simplified.onnx"),
        hardware,
        "lbdf",
        traffic.value,
        epilogue,
        made,
        Totals(
            dram_bytes=moved,
            layer_by_layer_bytes=layer_by_layer_bytes(costs),
            epilogue_fused_bytes=epilogue_fused_bytes(costs),
            compulsory_bytes=costs.compulsory_bytes,
            lower_bound_bytes=bound,
            gap=(moved - bound) / bound if bound else 0.0,
            proof="optimal" if moved == bound else "bound",
            excluded_bytes=total_dram(made, mode="excluded").total,
        ),
        SearchRecord("exact", None, found.evaluations, found.seconds),
    )


def random_plan(seed: int) -> tuple[Graph, Plan]:
    """A plan of a random graph for a random chip."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 9)))
    hardware, traffic, epilogue = random_hardware(rng, graph), list(Traffic)[int(rng.integers(3))], bool(rng.random() < 0.5)
    groups = None
    if rng.random() < 0.3:
        groups = tuple(1 << i for i in range(len(Dataflow.of(graph))))
    return graph, planned(graph, hardware, traffic, epilogue=epilogue, groups=groups)


def test_a_recount_agrees_with_every_plan_of_a_random_graph() -> None:
    tiled = 0
    for seed in range(1500):
        graph, plan = random_plan(seed)
        found = recount(graph, plan)
        assert found.agrees, f"seed {seed}: {found.discrepancies}"
        assert found.dram_bytes == plan.totals.dram_bytes
        tiled += sum(group.mode == "tiled" and plan.traffic == "tiled" for group in plan.groups)
    assert tiled > 500


@pytest.mark.parametrize("name", ["hf_mobilenet_v2", "hf_resnet18", "tv_squeezenet1_1", "hf_distilbert_2l"])
@pytest.mark.parametrize("kib", [16, 64, 256])
def test_a_recount_agrees_with_the_plan_of_a_real_network(name: str, kib: int) -> None:
    graph = network(name)
    found = recount(graph, planned(graph, Hardware(kib * 1024), Traffic.TILED, epilogue=True))
    assert found.agrees, found.discrepancies


# -- tampering -----------------------------------------------------------------------------------------------------------------------------

Tamper = Callable[[np.random.Generator, Graph, Plan], Plan | None]


def change_group(rng: np.random.Generator, plan: Plan, change: Callable[[PlannedGroup], PlannedGroup | None], modes: str) -> Plan | None:
    """The plan with one group, of one of these modes, changed."""
    found = [g for g, group in enumerate(plan.groups) if group.mode in modes.split()]
    if not found:
        return None
    g = found[int(rng.integers(len(found)))]
    changed = change(plan.groups[g])
    return None if changed is None else replace(plan, groups=(*plan.groups[:g], changed, *plan.groups[g + 1 :]))


def one_byte_less_buffer(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return change_group(rng, plan, lambda g: replace(g, buffer_bytes=g.buffer_bytes - 1), "lbdf opaque")


def one_byte_less_input(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """Totals follow: only the group gives it away."""

    def less(group: PlannedGroup) -> PlannedGroup:
        return replace(group, dram=replace(group.dram, input=group.dram.input - 1))

    changed = change_group(rng, plan, less, "lbdf tiled opaque")
    return changed and replace(changed, totals=follow(changed))


def output_called_input(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    def moved(group: PlannedGroup) -> PlannedGroup:
        return replace(group, dram=replace(group.dram, input=group.dram.input + 1, output=group.dram.output - 1))

    return change_group(rng, plan, moved, "lbdf tiled opaque")


def weights_forgotten(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    changed = change_group(rng, plan, lambda g: replace(g, dram=replace(g.dram, weight=0)) if g.dram.weight else None, "lbdf tiled opaque")
    return changed and replace(changed, totals=follow(changed))


def another_weight_pass(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    del rng, graph
    found = [g for g in plan.groups if g.weight_passes > 1]
    if not found:
        return None
    return replace(plan, groups=tuple(replace(g, weight_passes=g.weight_passes - 1) if g is found[0] else g for g in plan.groups))


def a_row_less_of_a_tiled_input(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """Still above every tensor once: only the tiling gives it away."""
    if plan.traffic != "tiled":
        return None
    flow = GroupCosts(Dataflow.of(graph), plan.hardware, Traffic.ONCE)
    once = {flow.dataflow.names(1 << i): flow.dram(1 << i) for i in range(len(flow.dataflow))}
    reread = {
        g.nodes for g in plan.groups if g.mode == "tiled" and g.nodes in once and g.dram.input > once[g.nodes].input + plan.hardware.dram_row_align
    }

    def less(group: PlannedGroup) -> PlannedGroup | None:
        return replace(group, dram=replace(group.dram, input=group.dram.input - 1)) if group.nodes in reread else None

    changed = change_group(rng, plan, less, "tiled")
    return changed and replace(changed, totals=follow(changed))


def tiled_for_a_larger_buffer(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """Bytes of a tiling that does not fit."""
    if plan.traffic != "tiled":
        return None
    larger = GroupCosts(
        Dataflow.of(graph), replace(plan.hardware, buffer_bytes=4 * plan.hardware.buffer_bytes), Traffic.TILED, epilogue=plan.epilogue
    )
    names = {larger.dataflow.names(1 << i): 1 << i for i in range(len(larger.dataflow))}

    def less(group: PlannedGroup) -> PlannedGroup | None:
        if group.nodes not in names or larger.dram(names[group.nodes]).total == group.dram.total:
            return None
        (other,) = plan_groups(larger, (names[group.nodes],))  # type: ignore[misc]
        return replace(group, dram=other.dram, weight_passes=other.weight_passes)

    changed = change_group(rng, plan, less, "tiled")
    return changed and replace(changed, totals=follow(changed))


def operator_left_out(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return change_group(rng, plan, lambda g: replace(g, nodes=g.nodes[1:]), "lbdf tiled opaque excluded")


def operator_twice(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return change_group(rng, plan, lambda g: replace(g, nodes=(*g.nodes, g.nodes[0])), "lbdf tiled opaque excluded")


def unknown_operator(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return change_group(rng, plan, lambda g: replace(g, nodes=(*g.nodes[:-1], "nobody")), "lbdf tiled opaque excluded")


def group_in_two(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """Cut a group and share its bytes: what passed inside it now goes unpaid."""
    found = [g for g, group in enumerate(plan.groups) if len(group.nodes) > 1 and group.mode == "lbdf"]
    if not found:
        return None
    group = plan.groups[found[0]]
    head = replace(group, nodes=group.nodes[:1])
    tail = replace(group, nodes=group.nodes[1:], dram=DramBytes())
    groups = (*plan.groups[: found[0]], head, tail, *plan.groups[found[0] + 1 :])
    return replace(plan, groups=tuple(replace(g, id=k) for k, g in enumerate(groups)))


def groups_swapped(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """Two neighbours, one of which reads from the other."""
    del rng, graph
    for k in range(len(plan.groups) - 1):
        first, second = plan.groups[k], plan.groups[k + 1]
        if set(first.outputs) & set(second.inputs):
            return replace(plan, groups=(*plan.groups[:k], replace(second, id=k), replace(first, id=k + 1), *plan.groups[k + 2 :]))
    return None


def map_not_stored(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return change_group(rng, plan, lambda g: replace(g, outputs=g.outputs[1:]), "lbdf tiled opaque")


def smaller_buffer(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """A chip on which the largest line-buffer group just does not fit."""
    del rng, graph
    found = [group.buffer_bytes for group in plan.groups if group.mode == "lbdf"]
    return replace(plan, hardware=replace(plan.hardware, buffer_bytes=max(found))) if found else None


def other_mode(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return change_group(rng, plan, lambda g: replace(g, mode="opaque"), "lbdf tiled excluded")  # type: ignore[arg-type]


def total(field: str, by: int) -> Tamper:
    def changed(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
        del rng, graph
        return replace(plan, totals=replace(plan.totals, **{field: getattr(plan.totals, field) + by}))

    changed.__name__ = f"{field}_off_by_{by}"
    return changed


def bound_below_the_compulsory_bytes(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    del rng, graph
    bound = plan.totals.compulsory_bytes - 1
    if bound <= 0:
        return None
    return replace(plan, totals=replace(plan.totals, lower_bound_bytes=bound, proof="bound", gap=(plan.totals.dram_bytes - bound) / bound))


def bound_above_the_plan(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    del rng, graph
    bound = plan.totals.dram_bytes + 1
    return replace(plan, totals=replace(plan.totals, lower_bound_bytes=bound, proof="bound", gap=-1 / bound))


def claimed_optimal(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    del rng, graph
    return replace(plan, totals=replace(plan.totals, proof="optimal")) if plan.totals.proof == "bound" else None


def follow(plan: Plan) -> Totals:
    """Totals that agree with tampered groups."""
    moved, bound = total_dram(plan.groups).total, plan.totals.lower_bound_bytes
    return replace(plan.totals, dram_bytes=moved, gap=(moved - bound) / bound if bound else 0.0)


TAMPERINGS: list[Tamper] = [
    one_byte_less_buffer, one_byte_less_input, output_called_input, weights_forgotten, another_weight_pass, a_row_less_of_a_tiled_input,
    tiled_for_a_larger_buffer, operator_left_out, operator_twice,
    unknown_operator, group_in_two, groups_swapped, map_not_stored, smaller_buffer, other_mode, total("dram_bytes", -1),
    total("layer_by_layer_bytes", 1), total("epilogue_fused_bytes", -1), total("compulsory_bytes", 1), total("excluded_bytes", 1), total("gap", 1),
    bound_below_the_compulsory_bytes, bound_above_the_plan, claimed_optimal,
]  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_a_tampered_plan_is_found_out(tamper: Tamper) -> None:
    rng = np.random.default_rng(1)
    tried = 0
    for seed in range(5000, 5300):
        graph, plan = random_plan(seed)
        changed = tamper(rng, graph, plan)
        if changed is not None:
            tried += 1
            assert not recount(graph, changed).agrees, f"seed {seed}: {changed}"
    assert tried > 10
