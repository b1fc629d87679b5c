"""A recount agrees with every plan that the planner makes, and with none that was tampered with."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count, islice

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lfopt.app.files import sha256, write_plan
from lfopt.app.verify import search_problems, verified
from lfopt.frontend import from_model, save
from lfopt.ir import (
    UNWRITTEN,
    Compute,
    DramBytes,
    Graph,
    Hardware,
    InvalidPlan,
    Loop,
    ModelReference,
    Place,
    Plan,
    PlannedGroup,
    SearchRecord,
    Transfer,
    store_ends,
    unfold,
)
from lfopt.ir.listing import listing, parse
from lfopt.ops import OPAQUE, Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import SCHEMES as SCHEME_ROWS
from lfopt.planning import GroupCosts, Propose, Traffic, memory_map, plan_groups, totals_of
from search.exact import solve
from simulator.interpreter.execute import Violation, execute
from simulator.recount import RecountStopped, progressions, recount
from simulator.recount.progressions import Boxes, leaves, times_covered
from tests.cases import SHARES, few, some
from tests.following import follow, with_places, with_steps
from tests.real_networks import network
from tests.simulator.tampering import FIGURES, PLACES, STEPS, WASTEFUL, Tamper, edited, named, written
from tests.strategies import (
    OPSET,
    one_contraction,
    random_bands,
    random_contraction,
    random_graph,
    random_hardware,
    random_reduction,
    with_weight_buffer,
)

SCHEMES = tuple(SCHEME_ROWS)
KIB = 1024


def planned(
    graph: Graph,
    hardware: Hardware,
    scheme: str = "lbdf",
    traffic: Traffic = Traffic.TILED,
    *,
    epilogue: bool = True,
    alone: bool = False,
    bands: Propose | None = None,
) -> Plan:
    """The plan of the optimal scheme, or that of every operator alone."""
    costs = GroupCosts.of(graph, hardware, traffic, scheme=scheme, epilogue=epilogue)
    searched = solve(costs)
    planned_groups = plan_groups(
        costs, tuple(1 << i for i in range(len(costs.dataflow))) if alone else searched.groups, bands
    )
    assert isinstance(planned_groups, tuple)
    bound = costs.proven_bytes(searched.lower_bound_bytes)
    totals = totals_of(costs.unfused(), planned_groups, bound)
    model, search = (
        ModelReference(graph.name, "0" * 64, "simplified.onnx"),
        SearchRecord("exact", None, searched.plans_evaluated, searched.groups_evaluated, searched.seconds),
    )
    return Plan(
        model,
        hardware,
        scheme,
        traffic.value,
        epilogue,
        memory_map(costs, planned_groups),
        planned_groups,
        totals,
        search,
        costs.max_recompute,
    )


@cache
def random_plan(seed: int) -> tuple[Graph, Plan]:
    """A plan of a random graph for a random chip, any scheme, every other in bands of several rows."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 9)))
    traffic = [Traffic.TILED, Traffic.TILED, Traffic.TILED, Traffic.ONCE, Traffic.PAPER][int(rng.integers(5))]
    scheme = SCHEMES[int(rng.integers(2 if traffic is Traffic.PAPER else len(SCHEMES)))]
    hardware = random_hardware(rng, graph)
    epilogue, alone = bool(rng.random() < 0.5), bool(rng.random() < 0.3)
    return graph, planned(
        graph,
        hardware,
        scheme,
        traffic,
        epilogue=epilogue,
        alone=alone,
        bands=random_bands(rng) if seed % 2 else None,
    )


@cache
def reduction_plan(seed: int) -> tuple[Graph, Plan]:
    """A plan of a reduction over rows, for a chip that has little room for it."""
    rng = np.random.default_rng(seed)
    graph = random_reduction(rng)
    hardware = replace(random_hardware(rng, graph), buffer_bytes=int(2 ** rng.uniform(5, 9)))
    return graph, planned(graph, hardware, "lbdf", epilogue=bool(rng.random() < 0.7))


@cache
def contraction_plan(seed: int) -> tuple[Graph, Plan]:
    """A plan of a contraction with its epilogue, for a chip that has little room for it."""
    rng = np.random.default_rng(seed)
    graph = random_contraction(rng)
    hardware = replace(random_hardware(rng, graph), buffer_bytes=int(2 ** rng.uniform(4, 8)))
    return graph, planned(graph, hardware, "lbdf", epilogue=bool(rng.random() < 0.7))


def folds(plan: Plan) -> bool:
    """Whether rows are folded band by band."""
    return any(
        isinstance(step, Compute) and step.accumulator >= 0
        for group in plan.groups
        for step in unfold(group.steps)
    )


# -- plans that hold -----------------------------------------------------------------------------------------


def test_a_recount_agrees_with_every_plan_of_a_random_graph() -> None:
    walked: Counter[str] = Counter()
    for seed in range(250 if SHARES == 1 else 75):  # the first in which every mode occurs
        graph, plan = random_plan(seed)
        recounted = recount(graph, plan)
        assert recounted.agrees, f"seed {seed}: {recounted.discrepancies}"
        assert recounted.dram_bytes == plan.totals.dram_bytes
        walked.update(
            "bands" if group.mode == "lbdf" and group.band_rows > 1 else group.mode
            for group in plan.groups
            if group.steps
        )
    assert walked.keys() - {"gated"} == {
        "lbdf",
        "bands",
        "brr",
        "resident",
        "strips",
        "patches",
        "sliced",
        "tiled",
    }
    assert all(
        count > few({"strips": 3, "patches": 3, "sliced": 2, "gated": 0}.get(mode, 20))
        for mode, count in walked.items()
    ), walked


def test_a_recount_agrees_with_every_plan_that_folds_rows_band_by_band() -> None:
    folded = 0
    for seed in some(range(300)):
        graph, plan = reduction_plan(seed)
        recounted = recount(graph, plan)
        assert recounted.agrees, f"seed {seed}: {recounted.discrepancies}"
        folded += folds(plan)
    assert folded > few(40)


def test_a_recount_agrees_with_every_plan_of_a_contraction_in_tiles() -> None:
    modes = Counter[str]()
    for seed in some(range(120)):
        graph, plan = contraction_plan(seed)
        recounted = recount(graph, plan)
        assert recounted.agrees, f"seed {seed}: {recounted.discrepancies}"
        modes.update(group.mode for group in plan.groups if group.steps)
    assert modes["tiled"] > few(36)


@pytest.mark.parametrize(
    ("graph", "second"),
    [
        (
            one_contraction(
                "Conv", {"x": [1, 8, 16, 16]}, {"w": [8, 8, 3, 3]}, "x w", [1, 8, 16, 16], pads=[1] * 4
            ),
            "x beside",
        ),
        (one_contraction("MatMul", {"x": [1, 4, 8, 8]}, {}, "x x", [1, 4, 8, 8]), "x in blocks"),
    ],
    ids=["residual", "square"],
)
def test_a_recount_agrees_with_plans_in_which_a_map_has_two_places(graph: Graph, second: str) -> None:
    """The second is for an operand of the epilogue beside the head's, or for operand 1 of the head."""
    plans = [planned(graph, Hardware(size)) for size in (70, 80, 100, 200)]
    assert any(place.name == second for plan in plans for group in plan.groups for place in group.places)
    assert [discrepancy for plan in plans for discrepancy in recount(graph, plan).discrepancies] == []


@pytest.mark.parametrize(
    ("name", "scheme", "kib"),
    [
        ("hf_mobilenet_v2", "auto", 64),
        ("hf_resnet18", "brr", 256),
        ("tv_squeezenet1_1", "resident", 256),
        ("hf_distilbert_2l", "resident", 1024),
    ],
)
def test_a_recount_agrees_with_the_plan_of_a_real_network(name: str, scheme: str, kib: int) -> None:
    graph = network(name)
    recounted = recount(graph, planned(graph, Hardware(kib * KIB, channel_align=16), scheme))
    assert recounted.agrees, recounted.discrepancies
    assert recounted.not_recounted == (0, 0)


def test_rows_that_a_gather_picks_are_loaded_as_weights() -> None:
    """10 x 8 table, 4 indices: 32 elements move, not the table; without that step the plan is wrong."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["t"], "gather", axis=0),
        helper.make_node("Relu", ["t"], ["y"], "relu"),
    ]
    ends = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, (1, 4)),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 8)),
    ]
    table = helper.make_tensor(
        "table", TensorProto.FLOAT, (10, 8), np.zeros((10, 8), np.float32).tobytes(), raw=True
    )
    graph = from_model(
        helper.make_model(
            helper.make_graph(nodes, "g", ends[:1], ends[1:], [table]),
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
    )
    plan = planned(graph, Hardware(1 << 16))
    assert recount(graph, plan).agrees
    (group,) = plan.groups
    assert group.dram.weight == 64
    steps = [
        (path, node) for path, node in written(group.steps) if isinstance(node, Transfer) and node.gather
    ]
    lie = with_steps(group, edited(group.steps, steps[0][0], ()), plan.hardware)
    assert not recount(graph, follow(replace(plan, groups=(lie,)))).agrees


def test_what_has_no_steps_and_no_formula_is_reported_as_not_recounted() -> None:
    seen = 0
    for seed in some(range(300)):
        graph, plan = random_plan(seed)
        recounted = recount(graph, plan)
        open_ = [
            group
            for group in plan.groups
            if not group.steps and group.mode == "tiled" and plan.traffic == "tiled"
        ]
        assert recounted.not_recounted == (len(open_), sum(group.dram.total for group in open_))
        formula = [
            group for group in plan.groups if not group.steps and not group.is_access and group not in open_
        ]
        assert recounted.by_formula == (len(formula), sum(group.dram.total for group in formula))
        seen += bool(open_)
    assert seen > few(20)


# -- the arithmetic ------------------------------------------------------------------------------------------


def test_progressions_are_the_steps_one_by_one() -> None:
    steps = 0
    for seed in range(100):
        for group in random_plan(seed)[1].groups:
            at: dict[int, tuple[int, ...]] = {}
            for leaf in leaves(group.steps):
                origins = np.stack([leaf.start(c) for c in range(len(leaf.step.origin))], axis=1)
                at |= dict(zip(leaf.times.tolist(), map(tuple, origins.tolist()), strict=True))
                assert [leaf.ends(c) for c in range(origins.shape[1])] == list(
                    zip(origins.min(0), origins.max(0), strict=True)
                )
            assert at == {k: step.origin for k, step in enumerate(unfold(group.steps))}
            steps += len(at)
    assert steps > 5000


def test_coverage_is_what_painting_the_boxes_gives() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = tuple(int(extent) for extent in rng.integers(1, 6, int(rng.integers(0, 4))))
        canvas, boxes = np.zeros(shape, int), []
        for _ in range(int(rng.integers(0, 5))):
            extents = tuple(int(rng.integers(0, extent + 1)) for extent in shape)
            starts = np.array(
                [
                    [rng.integers(0, whole - part + 1) for whole, part in zip(shape, extents, strict=True)]
                    for _ in range(3)
                ],
                np.int64,
            )
            boxes.append(Boxes(starts.reshape(3, len(shape)), extents, int(rng.integers(-2, 3))))
            for start in boxes[-1].starts:
                canvas[tuple(slice(s, s + e) for s, e in zip(start, extents, strict=True))] += boxes[
                    -1
                ].weight
        covered = times_covered(shape, boxes)
        assert set(covered.reshape(-1)) == set(canvas.reshape(-1))


# -- tampering: the whole plan -------------------------------------------------------------------------------


def group_in_two(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """Cut a group and share its bytes: what passed inside it now goes unpaid."""
    candidates = [g for g, group in enumerate(plan.groups) if len(group.nodes) > 1 and group.steps]
    if not candidates:
        return None
    group = plan.groups[candidates[0]]
    head = replace(group, nodes=group.nodes[:1])
    tail = replace(group, nodes=group.nodes[1:], dram=DramBytes())
    groups = (*plan.groups[: candidates[0]], head, tail, *plan.groups[candidates[0] + 1 :])
    return replace(plan, groups=tuple(replace(g, id=k) for k, g in enumerate(groups)))


def groups_swapped(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """Two neighbours, one of which reads from the other."""
    for k in range(len(plan.groups) - 1):
        first, second = plan.groups[k], plan.groups[k + 1]
        if set(first.outputs) & set(second.inputs):
            return replace(
                plan,
                groups=(
                    *plan.groups[:k],
                    replace(second, id=k),
                    replace(first, id=k + 1),
                    *plan.groups[k + 2 :],
                ),
            )
    return None


def group_missing(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return follow(replace(plan, groups=plan.groups[:-1]))


def steps_of_another_group(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    stepped = [group for group in plan.groups if group.steps]
    if len(stepped) < 2:
        return None
    first, second = stepped[0], stepped[-1]
    lie = replace(
        first,
        steps=second.steps,
        places=second.places,
        dram=second.dram,
    )
    return follow(replace(plan, groups=tuple(lie if group is first else group for group in plan.groups)))


def smaller_buffer(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    """A chip on which the largest group just does not fit."""
    sizes = [group.allocated_bytes(plan.hardware) for group in plan.groups if group.steps]
    return replace(plan, hardware=replace(plan.hardware, buffer_bytes=max(sizes))) if sizes else None


def other_hardware(**entries: int | None) -> Tamper:
    """Another chip, where it makes a difference."""

    def changed(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
        if not any(group.mode == "lbdf" and group.dram.weight for group in plan.groups):
            return None
        return replace(plan, hardware=replace(plan.hardware, **entries))

    return named(changed, "_".join(f"{name}_{value}" for name, value in entries.items()))


def other_scheme(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    modes = {group.mode for group in plan.groups} & {"lbdf", "brr", "resident"}
    others: list[str] = [scheme for scheme in SCHEMES if scheme != "auto" and not modes <= {scheme}]
    return replace(plan, scheme=others[0]) if others else None


def epilogue_called_off(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    fused = any(group.mode == "tiled" and len(group.nodes) > 1 for group in plan.groups)
    # in scheme all, what is in flight needs no epilogue
    return replace(plan, epilogue=False) if fused and plan.scheme != "all" else None


def memory_changed(change: Callable[[np.random.Generator, Plan, int], Plan | None]) -> Tamper:
    def tamper(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
        return change(rng, plan, int(rng.integers(len(plan.memory))))

    return named(tamper, change.__name__)


def without_an_entry(rng: np.random.Generator, plan: Plan, k: int) -> Plan:
    return replace(plan, memory=(*plan.memory[:k], *plan.memory[k + 1 :]))


def entry_twice(rng: np.random.Generator, plan: Plan, k: int) -> Plan:
    return replace(plan, memory=(*plan.memory, plan.memory[k]))


def entry_of_nobody(rng: np.random.Generator, plan: Plan, k: int) -> Plan:
    end = max(entry.address + entry.rows * entry.row_bytes for entry in plan.memory)
    return replace(plan, memory=(*plan.memory, replace(plan.memory[k], name="nobody", address=end)))


def entry_changed(entry: str, by: int) -> Tamper:
    def change(rng: np.random.Generator, plan: Plan, k: int) -> Plan:
        place = plan.memory[k]
        return replace(
            plan,
            memory=(
                *plan.memory[:k],
                replace(place, **{entry: getattr(place, entry) + by}),
                *plan.memory[k + 1 :],
            ),
        )

    change.__name__ = f"memory_{entry}_{by:+}"
    return memory_changed(change)


def entries_overlap(rng: np.random.Generator, plan: Plan, k: int) -> Plan | None:
    if len(plan.memory) < 2:
        return None
    other = plan.memory[k - 1]
    return replace(
        plan,
        memory=tuple(
            replace(entry, address=other.address) if entry is plan.memory[k] else entry
            for entry in plan.memory
        ),
    )


def other_role(rng: np.random.Generator, plan: Plan, k: int) -> Plan:
    role = str(
        rng.choice([role for role in ("input", "output", "map", "weight") if role != plan.memory[k].role])
    )
    return replace(plan, memory=(*plan.memory[:k], replace(plan.memory[k], role=role), *plan.memory[k + 1 :]))  # type: ignore[arg-type]


def total(field: str, by: int) -> Tamper:
    def changed(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
        return replace(plan, totals=replace(plan.totals, **{field: getattr(plan.totals, field) + by}))

    return named(changed, f"{field}_off_by_{by}")


def bound_below_the_compulsory_bytes(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    bound = plan.totals.compulsory_bytes - 1
    if bound <= 0:
        return None
    return replace(
        plan,
        totals=replace(
            plan.totals, lower_bound_bytes=bound, proof="bound", gap=(plan.totals.dram_bytes - bound) / bound
        ),
    )


def bound_above_the_plan(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    bound = plan.totals.dram_bytes + 1
    return replace(plan, totals=replace(plan.totals, lower_bound_bytes=bound, proof="bound", gap=-1 / bound))


def claimed_optimal(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
    return (
        replace(plan, totals=replace(plan.totals, proof="optimal")) if plan.totals.proof == "bound" else None
    )


WHOLE = [
    group_in_two, groups_swapped, group_missing, steps_of_another_group, smaller_buffer,
    other_hardware(element_bytes=3), other_hardware(weight_bytes=3, weight_bits=None),
    other_hardware(dram_row_align=64), other_hardware(channel_align=32), other_scheme, epilogue_called_off,
    memory_changed(without_an_entry), memory_changed(entry_twice), memory_changed(entry_of_nobody),
    memory_changed(entries_overlap), memory_changed(other_role), entry_changed("rows", 1),
    entry_changed("row_bytes", -1), entry_changed("address", -(1 << 20)), total("dram_bytes", -1),
    total("layer_by_layer_bytes", 1), total("epilogue_fused_bytes", -1), total("compulsory_bytes", 1),
    total("excluded_bytes", 1), total("without_recompute_bytes", -1), total("gap", 1),
    bound_below_the_compulsory_bytes, bound_above_the_plan, claimed_optimal,
]  # fmt: skip


SPARING = {"load_of_a_map_shrunk"}  # what nobody reads need not be loaded


def found_out(tamper: Tamper, graph: Graph, plan: Plan, changed: Plan) -> bool:
    """Whether a changed plan is refused; if not, it must be true, and no more than wasteful."""
    if not verified(changed, graph).holds:
        return True
    assert tamper.__name__ in WASTEFUL | SPARING, f"accepted: {changed}"
    assert changed.totals.dram_bytes >= plan.totals.dram_bytes or tamper.__name__ in SPARING
    if not any(spec is OPAQUE for spec in Dataflow.of(graph).specs):
        inputs = some_inputs(graph)
        assert not (why := fails(graph, changed, inputs, reference(graph, inputs))), why
    return False


def some_inputs(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(graph.shape(name)).astype(graph.tensors[name].dtype)
        for name in graph.inputs
    }


@pytest.mark.parametrize("tamper", [*FIGURES, *PLACES, *STEPS, *WHOLE], ids=lambda tamper: tamper.__name__)
def test_a_tampered_plan_is_found_out(tamper: Tamper) -> None:
    """But for plans that stay true, and move, compute or take more than they need: these run."""
    rng = np.random.default_rng(1)
    tried = 0
    for seed in range(300):
        graph, plan = random_plan(seed)
        changed = tamper(rng, graph, plan)
        if changed is not None:
            tried += 1
            found_out(tamper, graph, plan, changed)
            if tried == len(some(range(12))):
                return
    assert tried > 2


# -- weights in a buffer of their own ------------------------------------------------------------------------


@cache
def split_plan(seed: int) -> tuple[Graph, Plan]:
    """A plan of a random graph for a random chip with a weight buffer."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 9)))
    hardware = with_weight_buffer(rng, graph, random_hardware(rng, graph))
    return graph, planned(
        graph,
        hardware,
        SCHEMES[seed % len(SCHEMES)],
        epilogue=bool(rng.random() < 0.5),
        bands=random_bands(rng),
    )


def test_a_recount_agrees_with_every_plan_on_a_chip_with_a_weight_buffer() -> None:
    walked: Counter[str] = Counter()
    for seed in some(range(200)):
        graph, plan = split_plan(seed)
        recounted = recount(graph, plan)
        assert recounted.agrees, f"seed {seed}: {recounted.discrepancies}"
        walked.update(
            group.mode for group in plan.groups if any(place.purpose == "weight" for place in group.places)
        )
    assert all(walked[mode] > few(6) for mode in ("lbdf", "brr", "resident", "tiled")), walked


def weights_over_others(group: PlannedGroup, hardware: Hardware) -> Iterator[Place]:
    held = [place for place in group.places if place.purpose == "weight" and place.bytes]
    if len(held) > 1:
        yield replace(held[1], address=held[0].address)


def weights_beyond_the_end(group: PlannedGroup, hardware: Hardware) -> Iterator[Place]:
    for place in group.places:
        if place.purpose == "weight":
            yield replace(place, address=place.address + hardware.weight_buffer_bytes)


def weights_among_maps(group: PlannedGroup, hardware: Hardware) -> Iterator[Place]:
    end = store_ends(group.places, hardware)["buffer"]
    for place in group.places:
        if place.purpose == "weight" and end + place.bytes < hardware.buffer_bytes:
            yield replace(place, purpose="map", address=end)


def maps_among_weights(group: PlannedGroup, hardware: Hardware) -> Iterator[Place]:
    end = store_ends(group.places, hardware)["weight buffer"]
    for place in group.places:
        if place.purpose == "map" and end + place.bytes < hardware.weight_buffer_bytes:
            yield replace(place, purpose="weight", address=end)


@pytest.mark.parametrize(
    ("misplace", "runs"),
    [
        (weights_over_others, None),
        (weights_beyond_the_end, False),
        (weights_among_maps, False),
        (maps_among_weights, False),
    ],
)
def test_what_lies_in_the_wrong_buffer_or_over_weights_is_found_out(
    misplace: Callable[[PlannedGroup, Hardware], Iterator[Place]], runs: bool | None
) -> None:
    """The recount always notices; the executor too, unless it is loaded again before it is read."""
    tried = 0
    for seed in range(60):
        graph, plan = split_plan(seed)
        for k, group in enumerate(plan.groups):
            for new in islice(misplace(group, plan.hardware), 1 if tried < 12 else 0):
                ends = [
                    replace(p, purpose=new.purpose, address=new.address) if p.name == new.name else p
                    for p in group.places
                ]
                changed = replace(group, places=tuple(ends))
                wrong = replace(plan, groups=(*plan.groups[:k], changed, *plan.groups[k + 1 :]))
                if runs is None and recount(graph, wrong).agrees:  # it is loaded again before it is read
                    inputs = some_inputs(graph)
                    assert not fails(graph, wrong, inputs, reference(graph, inputs))
                    continue
                assert not recount(graph, wrong).agrees, f"seed {seed}: {new}"
                if runs is False and not any(spec is OPAQUE for spec in Dataflow.of(graph).specs):
                    with pytest.raises(Violation):
                        execute(
                            wrong,
                            graph,
                            some_inputs(graph),
                        )
                tried += 1
    assert tried > 3


def in_bands(seeds: range) -> Iterator[tuple[int, Graph, Plan]]:
    """Plans of random graphs with a group in bands of several rows, on chips with room for that."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 9)))
        hardware = random_hardware(rng, graph)
        plan = planned(
            graph, replace(hardware, buffer_bytes=4 * hardware.buffer_bytes), bands=random_bands(rng)
        )
        if any(group.mode == "lbdf" and group.band_rows > 1 for group in plan.groups):
            yield seed, graph, plan


def test_a_recount_agrees_with_every_plan_in_bands() -> None:
    tried = 0
    for seed, graph, plan in in_bands(some(range(3000, 3200))):
        recounted = recount(graph, plan)
        assert recounted.agrees, f"seed {seed}: {recounted.discrepancies}"
        tried += 1
    assert tried > few(50)


@pytest.mark.parametrize("tamper", [*FIGURES, *PLACES, *STEPS], ids=lambda tamper: tamper.__name__)
def test_a_tampered_plan_in_bands_is_found_out(tamper: Tamper) -> None:
    rng = np.random.default_rng(4)
    for _, graph, plan in in_bands(some(range(3300, 3315))):
        changed = tamper(rng, graph, plan)
        if changed is not None:
            found_out(tamper, graph, plan, changed)


@pytest.mark.parametrize(
    "tamper",
    [t for t in (*PLACES, *STEPS) if t.__name__ != "made_nowhere"],
    ids=lambda tamper: tamper.__name__,
)
def test_a_tampered_plan_that_folds_rows_is_found_out(tamper: Tamper) -> None:
    """Where a result will be, a step may leave open that makes no more than partial sums."""
    rng = np.random.default_rng(2)
    for seed in some(range(200)):
        graph, plan = reduction_plan(seed)
        changed = tamper(rng, graph, plan) if folds(plan) else None
        if changed is not None:
            found_out(tamper, graph, plan, changed)


# -- tampering: anything -------------------------------------------------------------------------------------


def scrambled(rng: np.random.Generator, group: PlannedGroup, hardware: Hardware) -> PlannedGroup:
    """The group with one number of a place or step altered, or a step missing, doubled or swapped.

    Bytes follow now and then.
    """
    if rng.random() < 0.2:
        k, entry = int(rng.integers(len(group.places))), str(rng.choice(["address", "slots", "slot_bytes"]))
        place = replace(
            group.places[k], **{entry: getattr(group.places[k], entry) + int(rng.choice([-2, -1, 1, 2]))}
        )
        places = (*group.places[:k], place, *group.places[k + 1 :])
        return with_places(group, places) if rng.random() < 0.5 else replace(group, places=places)
    lines = list(listing(group.steps))
    k = int(rng.choice([k for k, line in enumerate(lines) if line.strip() != "}"]))
    is_loop, chance = lines[k].strip().startswith("loop"), rng.random()
    if is_loop or chance < 0.7:
        begin = lines[k].index("loop" if is_loop else "[")
        numbers = list(re.finditer(r"-?\d+", lines[k][begin:]))
        number = numbers[int(rng.integers(len(numbers)))]
        other = str(int(number[0]) + int(rng.choice([-2, -1, 1, 2])))
        lines[k] = (
            lines[k][:begin] + lines[k][begin:][: number.start()] + other + lines[k][begin:][number.end() :]
        )
    elif chance < 0.8:
        lines[k : k + 1] = [lines[k], lines[k]]
    elif chance < 0.9 or k == 0 or lines[k - 1].strip()[-1] in "{}":
        del lines[k]
    else:
        lines[k - 1 : k + 1] = [lines[k], lines[k - 1]]
    steps = parse(lines)
    return (
        with_places(with_steps(group, steps, hardware), group.places)
        if rng.random() < 0.5
        else replace(group, steps=steps)
    )


def fails(graph: Graph, plan: Plan, inputs: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> str:
    """Why an execution of the plan does not give what it claims; empty if it does."""
    try:
        done = execute(plan, graph, inputs)
    except InvalidPlan as error:
        return str(error)
    for group, counted in zip(plan.groups, done.groups, strict=True):
        if not counted.by_formula and (
            group.dram != counted.dram or group.allocated_bytes(plan.hardware) < counted.peak_bytes
        ):
            return f"group {group.id}: {counted}"
    wrong = [
        name
        for name, value in wanted.items()
        if not np.allclose(done.outputs[name], value, rtol=1e-3, atol=1e-4, equal_nan=True)
    ]
    return f"outputs {wrong}" if wrong else ""


@pytest.mark.parametrize(
    ("draw", "seeds"), [(random_plan, range(1000, 1090)), (reduction_plan, range(1000, 1090))]
)
def test_a_scrambled_schedule_that_a_recount_accepts_can_be_executed(
    draw: Callable[[int], tuple[Graph, Plan]], seeds: range
) -> None:
    tried = accepted = 0
    for seed in some(seeds):
        graph, plan = draw(seed)
        rng = np.random.default_rng(seed)
        groups = [g for g in plan.groups if g.steps]
        if not groups or any(group.mode == "opaque" for group in plan.groups):
            continue
        inputs = {
            name: rng.standard_normal(graph.shape(name)).astype(graph.tensors[name].dtype)
            for name in graph.inputs
        }
        wanted = reference(graph, inputs)
        for _ in range(8):
            group = groups[int(rng.integers(len(groups)))]
            try:
                other = scrambled(rng, group, plan.hardware)
            except InvalidPlan:
                continue  # no steps at all
            changed = follow(replace(plan, groups=tuple(other if g is group else g for g in plan.groups)))
            tried += other != group
            if other != group and recount(graph, changed).agrees:
                accepted += 1
                assert not (why := fails(graph, changed, inputs, wanted)), f"seed {seed}: {why}: {other}"
    assert tried > few(300)
    assert few(5) < accepted < tried / 5


def test_a_bound_that_a_better_plan_refutes_is_found_out(lfopt, tmp_path) -> None:
    """Every operator alone, said to be optimal: the recount of the plan holds, the search does not agree."""
    graph = random_graph(np.random.default_rng(4), 14)  # more than `check` goes through all partitions of
    save(graph, tmp_path / "simplified.onnx")
    plan = planned(graph, Hardware(1 << 16), alone=True)
    dram, model = plan.totals.dram_bytes, replace(plan.model, sha256=sha256(tmp_path / "simplified.onnx"))
    lie = replace(
        plan, model=model, totals=replace(plan.totals, lower_bound_bytes=dram, gap=0.0, proof="optimal")
    )
    write_plan(lie, tmp_path / "plan.json")
    assert "not verified" in lfopt("check", tmp_path).stdout
    done = lfopt("check", tmp_path, "--prove", check=False)
    assert done.returncode == 1
    assert f"wrong totals.lower_bound_bytes: {dram}, and a plan of this space moves" in done.stdout


def test_a_schedule_of_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, plan = random_plan(3)
    assert recount(graph, plan).agrees
    for name, most, said in (("MOST_STEPS", 3, "steps, after"), ("MOST_LINES", 3, "lines of steps, after")):
        with monkeypatch.context() as less:
            less.setattr(sys.modules["simulator.recount.plan"], name, most)
            assert any(said in line for line in recount(graph, plan).discrepancies)
    (k, group), *_ = ((k, group) for k, group in enumerate(plan.groups) if group.places)
    crowd = replace(group, places=group.places * 1000)
    changed = replace(
        plan, groups=(*plan.groups[:k], crowd, *plan.groups[k + 1 :]), memory=plan.memory * 1000
    )
    recounted = recount(graph, changed).discrepancies
    assert any("places, for" in line for line in recounted)
    assert any("entries, for" in line for line in recounted)
    for name, said in (
        ("MOST_CELLS", "boxes cut a tensor"),
        ("MOST_ROWS", "rows more than 0 times"),
        ("MOST_HELD", "rows of one map"),
    ):
        with monkeypatch.context() as less:
            less.setattr(progressions, name, 0)
            if name == "MOST_ROWS":
                less.setattr(progressions.RowBudget.__init__, "__defaults__", (0, None))
            assert any(said in line for line in recount(graph, plan).discrepancies)


def test_a_recount_ends_when_its_time_is_over() -> None:
    graph, plan = random_plan(3)
    questions = count()
    assert recount(graph, plan, lambda: next(questions) < 0).agrees
    question_count = next(questions)
    assert question_count > len(plan.groups)
    for question in (0, 1, question_count // 2, question_count - 1):
        now = count()
        with pytest.raises(RecountStopped):
            recount(graph, plan, lambda: next(now) == question)  # noqa: B023  (it is called at once)


def test_a_schedule_with_absurd_numbers_is_found_out_without_walking_it() -> None:
    graph, plan = random_plan(3)
    group = next(group for group in plan.groups if group.steps)
    path, step = next((path, node) for path, node in written(group.steps) if isinstance(node, Transfer))
    for lie in (
        replace(step, slot=10**30),
        replace(step, offset=10**30),
        replace(step, box=((0, 10**30),) * len(step.box)),
        Loop(10**30, (step,)),
    ):
        changed = replace(group, steps=edited(group.steps, path, (lie,)))
        assert not recount(
            graph, replace(plan, groups=tuple(changed if g is group else g for g in plan.groups))
        ).agrees


# -- the command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "value", "wrong"),
    [
        ("method", "oracle", "search.method"),
        ("seconds", -1.0, "search.seconds"),
        ("seconds", float("nan"), "search.seconds"),
        ("plans_evaluated", -1, "search.plans_evaluated"),
        ("groups_evaluated", -1, "search.groups_evaluated"),
        ("seed", -1, "search.seed"),
        ("front", ((-1, 10),), "search.front"),
        ("front", ((1 << 40, 20), (1 << 41, 20)), "search.front"),
    ],
)
def test_what_cannot_be_in_the_record_of_a_search_is_found_out(entry: str, value: object, wrong: str) -> None:
    _, plan = random_plan(0)
    assert not list(search_problems(plan))
    (problem,) = search_problems(replace(plan, search=replace(plan.search, **{entry: value})))
    assert problem.startswith(wrong)


@pytest.mark.parametrize("columns", [80, 120])
def test_check_says_what_it_recounted_and_what_it_could_not(lfopt, tmp_path, columns: int) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"], "conv"),
        helper.make_node("Relu", ["t"], ["y"], "relu"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 8, 8)) for name in "xy"]
    weights = helper.make_tensor(
        "w", TensorProto.FLOAT, (4, 4, 1, 1), np.zeros(16, np.float32).tobytes(), raw=True
    )
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], [weights]),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    onnx.save(model, tmp_path / "m.onnx")
    lfopt("search", "m.onnx", "--buffer", "64KiB", "--out", "plan")
    done = lfopt("check", "plan", columns=columns)
    assert "1 group, 2 operators: every figure holds\n" in done.stdout
    assert re.search(r"1 group recounted from \d+ steps", done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert re.search(r"lower bound +[\d,]+ +not verified", done.stdout)
    proven = lfopt("check", "plan", "--prove", columns=columns)
    assert re.search(r"lower bound +([\d,]+) +verified: \1\n", proven.stdout)
    file = tmp_path / "plan" / "plan.json"
    plan = json.loads(file.read_text())
    (group,) = plan["groups"]
    group |= {
        "mode": "tiled",
        "places": [],
        "steps": [],
        "unexecutable": f"{UNWRITTEN}: it is a secret",
    }
    file.write_text(json.dumps(plan))
    done = lfopt("check", "plan", columns=columns)
    assert (
        "1 group not recounted, without steps (or with too many) or a formula: "
        f"{sum(group['dram'].values()):,} B" in " ".join(done.stdout.split())
    )
    assert "every figure holds that could be recounted" in done.stdout
    group["dram"]["weight"] -= 1
    plan["search"]["method"] = "oracle"
    file.write_text(json.dumps(plan))
    done = lfopt("check", "plan", columns=columns, check=False)
    assert done.returncode == 1
    for wrong in ("group 0: DRAM bytes", "totals.dram_bytes", "search.method"):
        assert f"wrong {wrong}: " in done.stdout
