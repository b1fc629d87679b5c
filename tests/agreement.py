"""Where a plan, its execution and the plain reference disagree."""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import pairwise

import numpy as np

from lfopt.ir import (
    Box,
    Cost,
    DramTensor,
    Graph,
    Plan,
    PlannedGroup,
    Transfer,
    box_shape,
    dram_bytes,
    parameters_of,
    row_axis,
    row_count,
    unfold,
)
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from simulator.interpreter.execute import Execution
from tests.random_plans import Values


def planned_need(costs: GroupCosts, mask: int, price: Cost, band_rows: int) -> int:
    """F_beta of the group as planned, in elements: the widest slices that fit, lbdf bands of several rows."""
    return costs.modes[price.mode].schedule(mask, costs.hardware.buffer_bytes, band_rows).buffer_bytes


def disagreements(
    costs: GroupCosts, groups: tuple[int, ...], plan: Plan, done: Execution, wanted: Values
) -> list[str]:
    """Where prediction, plan and execution differ; where outputs are not those of the reference."""
    problems: list[str] = []
    for mask, group, counted in zip(groups, plan.groups, done.groups, strict=True):
        what = f"group {group.id} ({group.mode}): "
        price = costs.evaluate(mask)
        assert isinstance(price, Cost)
        if price.dram_bytes != group.dram.total:
            problems.append(
                f"{what}the search was told {price.dram_bytes} bytes, the plan says {group.dram.total}"
            )
        if counted.by_formula:
            assert group.unexecutable, f"{what}no steps, and no reason why"
            continue
        if dram_bytes(group.steps) != group.dram:
            problems.append(f"{what}steps move {dram_bytes(group.steps)}, the plan says {group.dram}")
        if counted.dram != group.dram:
            problems.append(f"{what}counted {counted.dram}, the plan says {group.dram}")
        needed = planned_need(costs, mask, price, group.band_rows)
        allocated = group.allocated_bytes(plan.hardware)
        if not counted.peak_bytes == allocated == needed:
            problems.append(f"{what}peak {counted.peak_bytes}, plan {allocated}, F_beta {needed}")
        fixed = group.mode not in ("resident", "brr", "sliced", "gated", "panels") and (
            group.mode != "lbdf" or group.band_rows == 1
        )
        if fixed and needed != price.buffer_bytes:
            problems.append(f"{what}planned with {needed} bytes, the search was told {price.buffer_bytes}")
        if group.mode == "lbdf" and counted.touched_bytes != needed:
            problems.append(f"{what}touched {counted.touched_bytes}, rings and weights {needed}")
        if counted.peak_bytes >= plan.hardware.buffer_bytes:
            problems.append(f"{what}peak {counted.peak_bytes} of {plan.hardware.buffer_bytes}")
    return problems + misplaced(costs.dataflow.graph, plan, done) + differing(done.outputs, wanted)


def differing(outputs: Values, wanted: Values) -> list[str]:
    """Outputs that differ: floats by more than 1e-4 of the largest finite value, all else at all."""
    problems: list[str] = []
    for name, value in wanted.items():
        got = outputs[name]
        if got.dtype != value.dtype or got.shape != value.shape:
            problems.append(f"output {name!r}: {got.dtype} {got.shape}, wanted {value.dtype} {value.shape}")
        elif value.dtype.kind != "f":
            if not np.array_equal(got, value):
                problems.append(
                    f"output {name!r}: {int((got != value).sum())} of {value.size} elements differ"
                )
        elif np.isfinite(got[~(finite := np.isfinite(value))]).any():
            # which infinity, or none, depends on the order of sums
            problems.append(f"output {name!r}: finite where it overflows")
        elif not np.allclose(
            got[finite], value[finite], rtol=1e-4, atol=1e-4 * np.abs(value[finite]).max(initial=0)
        ):
            problems.append(f"output {name!r}: differs by {np.nanmax(np.abs(got - value))}")
    return problems


def roots(graph: Graph) -> dict[str, str]:
    """The map behind every tensor that is a map or a view of one."""
    real = {op.name for op in Dataflow.of(graph).operators}
    root_of = {name: name for name in graph.inputs}
    for op in graph.operators:
        for name in op.outputs:
            root_of[name] = name if op.name in real else root_of.get(op.inputs[0], name)
    return root_of


def full_rows(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether the box is made of whole rows."""
    return all(
        axis == row_axis(shape) or span == (0, extent)
        for axis, (span, extent) in enumerate(zip(box, shape, strict=True))
    )


def misplaced(graph: Graph, plan: Plan, done: Execution) -> list[str]:
    """Where the DRAM map does not hold what was moved."""
    problems: list[str] = []
    root, memory = roots(graph), {entry.name: entry for entry in plan.memory}
    ranges = sorted(
        (entry.address, entry.address + entry.rows * entry.row_bytes, entry.name) for entry in plan.memory
    )
    problems += [f"{a[2]!r} and {b[2]!r} overlap in DRAM" for a, b in pairwise(ranges) if b[0] < a[1]]
    problems += [
        f"{entry.name!r} is listed twice" for entry in plan.memory if memory[entry.name] is not entry
    ]
    if (moved := sum(done.loaded.values()) + sum(done.stored.values())) != done.dram.total:
        problems.append(f"{moved} bytes by tensor, {done.dram.total} by class")
    through = {name for op in graph.operators if op.name in plan.read_through for name in op.outputs}
    if absent := (done.loaded.keys() - through | done.stored.keys()) - memory.keys():
        return [*problems, f"{sorted(absent)} were moved and have no place in DRAM"]
    parameters = {parameters_of(node) for group in plan.groups for node in group.nodes}
    for name in done.loaded.keys() - through:
        wanted = (
            ("weight",)
            if name in graph.constants
            else ("parameter",)
            if name in parameters
            else ("input", "output", "map")
        )
        if memory[name].role not in wanted:
            problems.append(f"{name!r} is a {memory[name].role}")
    problems += [
        f"{name!r} was stored, and is a {memory[name].role}"
        for name in done.stored
        if memory[name].role not in ("output", "map")
    ]
    ran = [group for group, counted in zip(plan.groups, done.groups, strict=True) if not counted.by_formula]
    for group in ran:
        problems += _misplaced_steps(graph, plan, group, memory, root, through)
    aligned = plan.hardware.dram_row_align == 1
    for name, entry in memory.items():
        size = entry.rows * entry.row_bytes
        stores = sum(name in group.outputs for group in ran)
        if stores and (done.stored.get(name, 0) != size if aligned else done.stored.get(name, 0) < size):
            problems.append(f"{name!r} has {size} bytes, {done.stored.get(name, 0)} were stored")
        # steps may name a view of the map
        readers = [group for group in ran if any(root.get(read, read) == name for read in group.inputs)]
        once = aligned or all(group.mode == "lbdf" for group in readers)
        moved_again = ("attention", "tiled", "strips", "sliced", "gated", "panels", "chained")
        once = (
            once
            and entry.role not in ("weight", "parameter")
            and all(group.mode not in moved_again for group in readers)
        )
        # what such groups make they may load again themselves
        loads_own = [group for group in ran if group.mode in ("chained", "panels")]
        own = {*(out for group in loads_own for out in group.outputs)}
        once = once and name not in own and not any(name in group.spilled for group in ran)
        if once and done.loaded.get(name, 0) != size * len(readers):
            problems.append(
                f"{name!r} has {size} bytes and {len(readers)} groups read it, "
                f"{done.loaded.get(name, 0)} were loaded"
            )
    return problems


def _misplaced_steps(
    graph: Graph,
    plan: Plan,
    group: PlannedGroup,
    memory: Mapping[str, DramTensor],
    root: Mapping[str, str],
    through: Container[str],
) -> list[str]:
    """Where transfers of a group are not those of what the DRAM map says."""
    problems: list[str] = []
    for step in {step for step in unfold(group.steps) if isinstance(step, Transfer) and not step.gather}:
        if step.kind == "parameter":
            if step.bytes != memory[parameters_of(step.tensor)].row_bytes:
                problems.append(f"parameters of {step.tensor!r}: {step.bytes} bytes are moved")
            continue
        name = root.get(step.tensor, step.tensor)
        if name in through:
            continue
        shape, entry = graph.shape(name), memory[name]
        if name in graph.constants:
            sizes = [
                tuple(
                    plan.hardware.constant_bytes(int(np.prod(extents)), bias=bias)
                    for extents in (shape, box_shape(step.box))
                )
                for bias in (False, True)
            ]
            if (entry.rows * entry.row_bytes, step.bytes) not in sizes:
                problems.append(
                    f"{name!r}: {step.box} moves {step.bytes} bytes, all of it are "
                    f"{entry.rows * entry.row_bytes}"
                )
        elif row_count(shape) != entry.rows or step.row_bytes > entry.row_bytes and name == step.tensor:
            problems.append(
                f"{name!r}: {row_count(shape)} rows of at least {step.row_bytes} bytes, in DRAM "
                f"{entry.rows} of {entry.row_bytes}"
            )
        elif name == step.tensor and full_rows(step.box, shape) and step.row_bytes != entry.row_bytes:
            problems.append(
                f"{name!r}: rows of {step.row_bytes} bytes are moved, in DRAM they have {entry.row_bytes}"
            )
    return problems
