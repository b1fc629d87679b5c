"""Mode strips: a group in line buffers, one strip of columns after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.ir import (
    Compute,
    Graph,
    Hardware,
    Node,
    Plan,
    Transfer,
    box_shape,
    computations,
    cut,
    unfold,
    whole,
)
from lfopt.ops import Dataflow
from lfopt.ops.columns import column_count, column_reads
from lfopt.ops.footprint import footprints
from lfopt.ops.reference import reference
from lfopt.ops.windows import read_span
from lfopt.planning import NEVER, GroupCosts, Limit, totals_of
from lfopt.planning.modes.columns import StripsMode
from search.exact import solve
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from simulator.recount import recount
from tests.agreement import differing, disagreements
from tests.cases import few, some
from tests.codegen.counting import disagreement
from tests.planning.alterations import (
    CAUGHT_BY,
    Stage,
    altered_steps,
    rings_with_a_row_less,
    stages,
    verdict,
    with_place,
)
from tests.random_plans import Values, computable, in_integers, planned, random_inputs
from tests.simulator.tampering import FIGURES, PLACES, STEPS
from tests.strategies import random_graph, random_hardware, random_windows


class Case(NamedTuple):
    """A plan with a group in strips."""

    seed: int
    costs: GroupCosts
    groups: tuple[int, ...]
    plan: Plan
    graph: Graph
    inputs: Values


def strips(costs: GroupCosts) -> StripsMode:
    mode = costs.modes["strips"]
    assert isinstance(mode, StripsMode)
    return mode


@cache
def cases(first: int, stop: int, *, integers: bool = False) -> list[Case]:
    """Some of `drawn`."""
    return [*drawn(range(first, stop), integers=integers)]


def drawn(seeds: range, *, integers: bool) -> Iterator[Case]:
    """Plans of random networks on chips too small for whole rows, one group where that runs in strips."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_windows(rng)
        inputs = random_inputs(graph, rng)
        if integers:
            graph, inputs = in_integers(graph, inputs, rng)
        hardware = random_hardware(rng, graph)
        if seed % 4:  # else few strips begin where the chip can move them
            hardware = replace(hardware, dram_row_align=1)
        costs = GroupCosts.of(
            graph, hardware, scheme="all", max_recompute=float(rng.choice([1.0, 4.0, 50.0]))
        )
        everything = costs.dataflow.everything
        if (need := strips(costs).need(everything)) < NEVER:
            costs = costs.at(need + 1 + int(rng.integers(0, need // 4 + 1)))
        price = costs.price(everything)
        groups = (everything,) if price is not None and price.mode == "strips" else solve(costs).groups
        plan = planned(costs, groups)
        if any(group.mode == "strips" for group in plan.groups):
            yield Case(
                seed,
                costs,
                groups,
                replace(plan, totals=totals_of(costs.unfused(), plan.groups, costs.least_bytes)),
                graph,
                inputs,
            )


# -- columns -------------------------------------------------------------------------------------------------


def test_columns_needed_are_those_of_the_operators_footprints() -> None:
    """Of any span of columns, and whatever the operator, where it can be made a strip at a time."""
    rng, able = np.random.default_rng(0), Counter[str]()
    for seed in range(80):
        flow = Dataflow.of(random_windows(rng) if seed % 2 else random_graph(rng, 6))
        for call, operands in zip(flow.calls, flow.operands, strict=True):
            for operand in operands:
                reads = column_reads(call, operand.input)
                if reads is None or column_count(call.shape(operand.input)) == 1:
                    continue
                able[call.operator.kind] += 1
                first = int(rng.integers(reads.rows_out))
                span = first, int(rng.integers(first, reads.rows_out)) + 1
                box = footprints(
                    call, operand.input, tuple(cut(whole(shape), -1, span) for shape in call.results)
                )
                assert read_span(reads, span) == box[-1]
    assert {
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "Resize",
        "DepthToSpace",
        "Slice",
        "Pad",
        "Add",
        "Concat",
    } <= able.keys()
    assert not {"GlobalAveragePool", "LayerNormalization"} & able.keys()


# -- one truth -----------------------------------------------------------------------------------------------


def check(cases: Iterable[Case]) -> Counter[str]:
    """Kinds of operators and other cases seen in strips; planned, executed, recounted, simulated alike."""
    seen = Counter[str]()
    for case in cases:
        done = execute(case.plan, case.graph, case.inputs)
        wrong = disagreements(case.costs, case.groups, case.plan, done, reference(case.graph, case.inputs))
        report = simulate(case.plan, case.graph)
        assert not (*wrong, *recount(case.graph, case.plan).discrepancies, *report.disagreements), (
            f"seed {case.seed}"
        )
        assert report.macs <= case.costs.max_recompute * (report.macs - report.recomputed_macs) * (1 + 1e-9)
        if report.recomputed_macs:
            seen["halos computed again"] += 1
            beyond = replace(case.plan, max_recompute=1.0)
            assert any("max_recompute" in line for line in recount(case.graph, beyond).discrepancies)
        for mask, group, counted in zip(case.groups, case.plan.groups, done.groups, strict=True):
            if group.mode == "strips":
                once = case.costs.groups.once(mask)
                assert counted.dram.weight == once.weight
                assert counted.dram.input >= once.input
                assert counted.dram.output == once.output or case.plan.hardware.dram_row_align > 1
                seen.update({op.kind for op in case.graph.operators if op.name in group.nodes})
                seen["loops of strips"] += any(len(step.strides) > 1 for step in computations(group.steps))
    return seen


def test_strips_move_what_was_planned_and_compute_the_same() -> None:
    seen = check(cases(0, 20))
    assert {"Conv", "ConvTranspose", "Resize", "DepthToSpace", "Pad", "Add", "Mul", "Concat"} <= seen.keys()
    assert min(seen["halos computed again"], seen["loops of strips"]) > 1


def test_strips_of_quantised_networks_compute_the_same_to_the_bit() -> None:
    assert check(cases(0, 12, integers=True))["loops of strips"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("integers", [False, True])
def test_many_more_strips_do(*, integers: bool) -> None:
    seen = check(drawn(range(1000, 1400), integers=integers))
    assert min(seen["Slice"], seen["halos computed again"], seen["loops of strips"]) > 15


@pytest.mark.parametrize("integers", [False, True])
def test_generated_c_counts_the_bytes_of_strips(tmp_path: Path, *, integers: bool) -> None:
    case = next(
        case
        for case in cases(0, 12 if integers else 20, integers=integers)
        if len(case.groups) == 1 and len(case.costs.dataflow) > 2
    )
    assert not disagreement(case.plan, case.graph, case.inputs, tmp_path)


# -- choices -------------------------------------------------------------------------------------------------


def test_the_strips_chosen_move_the_fewest_bytes_that_fit_and_more_buffer_never_costs_bytes() -> None:
    chosen = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        graph = random_windows(rng)
        costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme="all", max_recompute=8.0)
        mode, everything = strips(costs), costs.dataflow.everything
        choices, once = mode.cuts.choices(everything), costs.groups.once(everything).total
        for beta in sorted(
            {size for choice in choices for size in (choice.buffer_bytes, choice.buffer_bytes + 1)}
        ):
            fitting = [choice.read + choice.written for choice in choices if choice.buffer_bytes < beta]
            price = mode.price(everything, beta, once)
            assert (price is not None) == bool(fitting)
            if price is not None:
                terms = mode.terms(everything, beta)
                assert terms.dram.input + terms.dram.output == min(fitting)
                assert once <= price.dram_bytes == terms.dram.total
                chosen += 1
        moved = [
            price.dram_bytes for beta in range(16, 2048, 64) if (price := mode.price(everything, beta, once))
        ]
        assert moved == sorted(moved, reverse=True)
    assert chosen > 40


def column_cuts(flow: Dataflow, steps: Sequence[Node]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """(bytes of a column in the last of blocks of 4 channels, columns, where a part begins, or is cut)."""
    for step in unfold(steps):
        if isinstance(step, Transfer) and step.kind in ("input", "output", "spill") and len(step.box) == 4:
            channels, width = flow.graph.shape(step.tensor)[1::2]
            if step.box[3] != (0, width) and step.box[1][1] == channels:
                yield channels % 4 or 4, width, step.box[3] if step.store else step.box[3][:1]


def test_parts_of_rows_begin_where_the_chip_can_move_them() -> None:
    """Rows of few channels have columns of few bytes; the accelerator moves 16 bytes at a time."""
    narrow: Counter[str] = Counter()
    for seed in some(range(300)):
        rng = np.random.default_rng(seed)
        flow = Dataflow.of(random_windows(rng) if seed % 2 else random_graph(rng, 4))
        for beta, scheme in ((1 << 20, "all"), (1 << 20, "patches"), (2000, "all"), (600, "all")):
            hardware = Hardware(beta, element_bytes=1, channel_align=4, dram_row_align=4)
            costs = GroupCosts(flow, hardware, scheme=scheme, max_recompute=50.0)
            for group in {flow.everything, *(1 << i for i in range(len(flow)))}:
                for option in costs.options(group) if costs.price(group) else ():
                    schedule = option.scheduled.within(Limit(most=3000))
                    for size, width, cuts in column_cuts(flow, schedule[1]) if schedule else ():
                        assert all(at * size % 4 == 0 or at == width for at in cuts), (seed, option.cost)
                        narrow[option.cost.mode] += size < 4
    assert narrow["strips"] > few(10_000) and narrow["tiled"] > few(100), narrow


def test_reductions_over_columns_do_not_run_in_strips() -> None:
    graph = load_network("zoo:efficientnet_b0", {"image": (1, 3, 64, 64)}, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(1 << 18), scheme="all")
    mode = strips(costs)
    for i, call in enumerate(costs.dataflow.calls):
        if call.operator.kind in ("GlobalAveragePool", "ReduceMean"):
            assert mode.need(1 << i) == mode.least(i) == NEVER
            assert "cannot be computed on strips" in mode.never(1 << i)


# -- nothing in vain -----------------------------------------------------------------------------------------


def in_strips(cases: Iterable[Case]) -> Iterator[tuple[Case, Stage]]:
    """The groups that run in strips, each of them a whole network."""
    for case in (case for case in cases if len(case.groups) == 1):
        yield from (
            (case, stage)
            for stage in stages(case.plan, case.graph, case.inputs)
            if stage.group.mode == "strips"
        )


def test_a_row_or_a_column_less_anywhere_is_noticed() -> None:
    tally: Counter[tuple[str, str]] = Counter()
    for case, stage in in_strips(cases(0, 20)[:14]):
        for name, seen, why in rings_with_a_row_less(Dataflow.of(case.graph), stage):
            assert seen == "violation" or (seen == "" and why in ("padding", "never computed")), (
                f"seed {case.seed}: {name}: {seen} {why}"
            )
            tally[seen, why] += 1
        for index, place in enumerate(stage.group.places):
            assert (
                verdict(stage, with_place(stage.group, index, slot_bytes=place.slot_bytes - 1)) == "violation"
            ), f"seed {case.seed}: {place}"
    assert tally["violation", ""] > 20


def test_no_step_of_strips_can_be_altered_unnoticed() -> None:
    """But for rows that nobody reads, whose columns other strips have too.

    A recount notices that, and bytes of padded rows in DRAM.
    """
    rng, counts = np.random.default_rng(7), Counter[str]()
    for _, stage in in_strips([case for case in cases(0, 20) if case.plan.hardware.dram_row_align == 1][:14]):
        for change, kind, step, seen in altered_steps(stage, rng, 5):
            assert seen in CAUGHT_BY[change, kind] or (
                seen == "" and (change, kind) == ("drop", "compute")
            ), f"{change} {step}: {seen or 'nothing'}"
            counts[seen] += 1
    assert counts.total() > 40
    assert counts[""] < 0.04 * counts.total()


def test_a_tampered_plan_in_strips_is_found_out() -> None:
    """Or it is as true as before: rows that nobody reads may be made nowhere, maps be loaded twice.

    What a mode is called is a label, by which nothing is recounted.
    """
    rng, tried, found = np.random.default_rng(3), 0, 0
    labels = "other_mode", "mode_of_another_scheme"
    for tamper in (tamper for tamper in (*FIGURES, *PLACES, *STEPS) if tamper.__name__ not in labels):
        for k in rng.permutation(len(cases(0, 20)))[:2]:
            case = cases(0, 20)[k]
            changed = tamper(rng, case.graph, case.plan)
            if changed is None:
                continue
            tried += 1
            if not recount(case.graph, changed).agrees:
                found += 1
                continue
            assert tamper not in FIGURES, f"{tamper.__name__}, seed {case.seed}: {changed}"
            before = execute(case.plan, case.graph, case.inputs).outputs
            after = execute(changed, case.graph, case.inputs).outputs
            assert not differing(after, before), f"{tamper.__name__}, seed {case.seed}: {changed}"
    assert tried > 50 and found > 0.9 * tried


def test_columns_that_are_not_those_of_the_strips_are_found_out() -> None:
    """A column less is made somewhere: it is missed, or nobody reads it and nothing changes."""
    tried = 0
    for case in cases(0, 20):
        for g, group in enumerate(case.plan.groups):
            steps = list(unfold(group.steps)) if group.mode == "strips" else []
            wide = [
                k
                for k, step in enumerate(steps)
                if isinstance(step, Compute) and len(step.boxes) == 1 and box_shape(step.boxes[0])[-1] > 1
            ]
            for k in wide[:1]:
                step = steps[k]
                assert isinstance(step, Compute)
                start, stop = step.boxes[0][-1]
                narrow = replace(step, boxes=(cut(step.boxes[0], -1, (start, stop - 1)),))
                other = replace(group, steps=(*steps[:k], narrow, *steps[k + 1 :]))
                plan = replace(case.plan, groups=(*case.plan.groups[:g], other, *case.plan.groups[g + 1 :]))
                if recount(case.graph, plan).agrees:
                    before = execute(case.plan, case.graph, case.inputs).outputs
                    assert not differing(execute(plan, case.graph, case.inputs).outputs, before)
                else:
                    tried += 1
    assert tried > 10


# -- real networks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "megabytes", "auto"), [("fsrcnn", 5.6, 182.8), ("unet", 19.6, 22.8)])
def test_wide_maps_at_fp16_and_256_kib_move_no_more_than(name: str, megabytes: float, auto: float) -> None:
    graph = load_network(f"zoo:{name}", {}, "default", weights=False)
    optimum = solve(GroupCosts.of(graph, Hardware(256 * 1024, element_bytes=2), scheme="all"))
    assert optimum.dram_bytes <= megabytes * 1e6 < auto * 1e6
    assert optimum.proof == "optimal"


def test_narrow_networks_in_strips_are_one_truth() -> None:
    """FSRCNN and U-Net on small images: planned, executed and recounted."""
    for name, shape, kib in (("fsrcnn", (1, 1, 12, 96), 20), ("unet", (1, 3, 32, 64), 48)):
        graph = computable(load_network(f"zoo:{name}", {"image": shape}, "default"))
        costs = GroupCosts.of(graph, Hardware(kib * 1024), scheme="all")
        groups = solve(costs).groups
        plan = planned(costs, groups)
        inputs = random_inputs(graph, np.random.default_rng(0))
        assert any(group.mode == "strips" and len(group.nodes) > 4 for group in plan.groups)
        assert not disagreements(costs, groups, plan, execute(plan, graph, inputs), reference(graph, inputs))
