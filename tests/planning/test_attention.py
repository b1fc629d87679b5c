"""Attention as one operator over blocks of keys, in every form: found, planned, executed, recounted, in C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lfopt.ir import Compute, Cost, Graph, Hardware, Plan, unfold
from lfopt.ops import ATTENTION, Dataflow, bits
from lfopt.ops.attention import through_view
from lfopt.ops.flight import attending
from lfopt.ops.recognise import attentions
from lfopt.ops.reference import reference
from lfopt.planning import GIVEN, GroupCosts, PlanDraft, draft
from simulator.interpreter.execute import Violation, execute
from simulator.recount import recount
from tests.agreement import differing
from tests.attention_models import Form, attention
from tests.codegen.counting import disagreement
from tests.random_plans import random_inputs

FORMS = [
    Form(),
    Form(scaled="both", guarded=True),
    Form(mask="causal", queries=6, keys=6),
    Form(mask="where", queries=4, keys=9, guarded=True),
    Form(mask="window", queries=8, keys=8, scaled="none"),
    Form(mask="data"),
    Form(mask="map"),
    Form(joined=True, queries=6, keys=6, size=4, width=4, mask="causal"),
    Form(merged=True, heads=3),
    Form(merged=True, mask="map"),
    Form(shared=True, heads=4),
    Form(cached=True, queries=1, keys=1),
    Form(cached=True, queries=2, keys=2, shared=True, heads=4),
    Form(first=True),
    Form(first=True, mask="data", scaled="both"),
    Form(windows=4, queries=3, keys=3, mask="per window", guarded=True),
]


def groups_of(costs: GroupCosts) -> tuple[int, ...]:
    """Every operator alone."""
    return tuple(1 << i for i in range(len(costs.dataflow)))


def planned(
    graph: Graph, hardware: Hardware, groups: tuple[int, ...] | None = None
) -> tuple[Plan, GroupCosts]:
    costs = GroupCosts.of(graph, hardware, scheme="all")
    drafted = draft(graph, costs, groups or groups_of(costs), 0, GIVEN)
    assert isinstance(drafted, PlanDraft)
    return drafted.finished(), costs


def least_bytes(graph: Graph) -> int:
    """The smallest buffer on which every operator has steps."""
    low, high = 1, 1 << 16
    while low < high:
        middle = (low + high) // 2
        plan, _ = planned(graph, Hardware(middle))
        low, high = (low, middle) if all(group.steps for group in plan.groups) else (middle + 1, high)
    return low


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_one_operator_that_executes_as_planned(form: Form) -> None:
    graph = attention(form)
    inputs = random_inputs(graph, np.random.default_rng(1))
    wanted = reference(graph, inputs)
    (recognised,) = attentions(Dataflow.of(graph))
    assert {"MatMul", "Softmax"} <= {part.operator.kind for part in recognised.call.parts}
    for beta in sorted({least_bytes(graph), 300, 500, 1 << 16}):
        plan, costs = planned(graph, Hardware(beta))
        assert any(row is ATTENTION for row in costs.dataflow.specs)
        if not all(group.steps for group in plan.groups):
            continue
        check = recount(graph, plan)
        assert [what for what in check.discrepancies if "totals" not in what] == []
        done = execute(plan, graph, inputs)
        assert done.dram.total == sum(group.dram.total for group in plan.groups)
        assert differing(done.outputs, wanted) == []
        for group in plan.groups:
            assert done.groups[group.id].peak_bytes == group.allocated_bytes(plan.hardware) < beta


def test_c_counts_the_same(tmp_path: Path) -> None:
    for k, form in enumerate(FORMS):
        graph = attention(form)
        for beta in (least_bytes(graph), 600):
            plan, _ = planned(graph, Hardware(beta))
            folder = tmp_path / f"{k} {beta}"
            folder.mkdir()
            if all(group.steps for group in plan.groups):
                assert (
                    disagreement(plan, graph, random_inputs(graph, np.random.default_rng(k)), folder) == []
                ), form


def test_scores_are_never_on_chip_and_more_buffer_never_costs_more() -> None:
    for form in (
        Form(queries=40, keys=40),
        Form(queries=40, keys=40, mask="causal"),
        Form(queries=40, keys=40, mask="data", heads=4),
    ):
        graph, before, once = attention(form), None, 0
        for beta in range(200, 4000, 60):
            costs = GroupCosts.of(graph, Hardware(beta), scheme="all")
            (one,) = (i for i, row in enumerate(costs.dataflow.specs) if row is ATTENTION)
            price = costs.evaluate(1 << one)
            assert isinstance(price, Cost)
            once = costs.groups.once(1 << one).total
            assert price.dram_bytes >= once
            assert before is None or price.dram_bytes <= before
            before = price.dram_bytes
        assert before == once  # all of one head's keys and values are on chip then


def test_a_causal_mask_skips_what_it_hides() -> None:
    plain, causal = (attention(Form(queries=64, keys=64, mask=mask)) for mask in ("none", "causal"))
    (seen,), (hidden,) = (
        [g for g in planned(graph, Hardware(700))[0].groups if g.mode == "attention"]
        for graph in (plain, causal)
    )
    assert hidden.dram.total < seen.dram.total and hidden.dram.weight == 0
    spans = [step.inputs for step in unfold(hidden.steps) if isinstance(step, Compute)]
    assert len(spans) < len([step for step in unfold(seen.steps) if isinstance(step, Compute)])


def test_execution_needs_every_byte_and_every_block() -> None:
    graph = attention(Form(queries=12, keys=12))
    inputs = random_inputs(graph, np.random.default_rng(0))
    plan, _ = planned(graph, Hardware(160))
    (group,) = (g for g in plan.groups if g.mode == "attention")
    assert any(isinstance(step, Compute) and not step.last for step in unfold(group.steps)), (
        "keys come in blocks"
    )
    for k, place in enumerate(group.places):
        places = tuple(
            replace(p, slots=p.slots - 1)
            if n == k and p.slots > 1
            else replace(p, slot_bytes=p.slot_bytes - 4)
            if n == k
            else p
            for n, p in enumerate(group.places)
        )
        tight = replace(
            plan, groups=tuple(replace(g, places=places) if g is group else g for g in plan.groups)
        )
        with pytest.raises(Violation):
            execute(tight, graph, inputs)
        assert recount(graph, tight).discrepancies, place.name
    steps = [*unfold(group.steps)]
    for k, step in enumerate(steps):
        fewer = (*steps[:k], *steps[k + 1 :])
        dropped = replace(
            plan, groups=tuple(replace(g, steps=fewer) if g is group else g for g in plan.groups)
        )
        assert recount(graph, dropped).discrepancies, step


def test_views_are_looked_through() -> None:
    rng = np.random.default_rng(0)
    shapes = [
        ((1, 6, 4), (1, 6, 2, 2)),
        ((2, 3, 4), (6, 4)),
        ((1, 8), (8,)),
        ((4, 6), (2, 2, 3, 2)),
        ((1, 1, 5), (5, 1)),
    ]
    for source, seen in [*shapes, *((b, a) for a, b in shapes)]:
        numbers = np.arange(np.prod(source)).reshape(source)
        for _ in range(20):
            box = tuple(sorted(rng.choice(extent + 1, 2, replace=False).tolist()) for extent in seen)
            seen_box = through_view(tuple((a, b) for a, b in box), seen, source)
            inside = numbers[tuple(slice(a, b) for a, b in seen_box)]
            assert set(numbers.reshape(seen)[tuple(slice(a, b) for a, b in box)].ravel()) <= set(
                inside.ravel()
            )


def test_what_somebody_else_reads_stays_as_it_is() -> None:
    graph = attention(Form())
    softmax = next(op for op in graph.operators if op.kind == "Softmax")
    seen = replace(graph, outputs=(*graph.outputs, softmax.outputs[0]))
    assert attentions(Dataflow.of(seen)) == ()
    flow = attending(Dataflow.of(graph), {op.name: k for k, op in enumerate(graph.operators)})
    assert all(row is not ATTENTION for row in flow.specs), "its operators are in different groups"
    assert list(bits(flow.everything)) == list(range(len(flow)))


def test_a_simpler_scheme_of_the_same_dataflow_prices_attention() -> None:
    costs = GroupCosts.of(attention(Form(queries=9, keys=9)), Hardware(300), scheme="all")
    simpler = costs.simpler
    assert simpler is not None
    assert all(simpler.price(group) for group in groups_of(costs))
    assert (
        0
        < simpler.least_bytes
        <= sum(cost.dram_bytes for group in groups_of(costs) if (cost := simpler.price(group)))
    )
    assert "attention" not in GroupCosts.of(attention(Form()), Hardware(300), scheme="auto").modes
