"""Plans as command streams: planned bytes move and output bits are right in any order the waits allow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen.accel import encode
from codegen.accel.folding import Entry, Item, Repetition, folded
from codegen.accel.runs import IssuedCommand, numbers
from codegen.source import Unsupported
from lfopt.frontend import from_model
from lfopt.ir import Compute, Graph, PlannedGroup, computations
from lfopt.isa.program import assemble, decode, listing
from lfopt.isa.program import encode as to_words
from lfopt.isa.tables import NO_WAIT, Opcode
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from simulator.model.timing import Accelerator
from tests.accelerator import accelerator_hardware, random_plan
from tests.byte_chains import CASES, SHAPE, whole_plan
from tests.cases import few, some
from tests.codegen.streams import disagreement
from tests.random_plans import in_integers, planned, random_inputs
from tests.strategies import one_contraction

MODES = ("lbdf", "brr", "resident", "tiled")
RESIZES_BY_WHOLE_FACTORS = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")}


def beyond(group: PlannedGroup, step: Compute) -> Iterator[str]:
    """What a step has that no scheme of the papers has."""
    if step.then:
        yield "in flight"
    if step.accumulator >= 0 and group.mode == "lbdf":
        yield "running"


def run_random(seeds: range) -> tuple[Counter[str], Counter[str]]:
    """(groups that ran, by mode, and plans with flights or running reductions; refused plans, by reason)."""
    ran, refused, wrong = Counter[str](), Counter[str](), list[str]()
    for seed in seeds:
        plan, graph, inputs = random_plan(seed)
        if any(group.unexecutable for group in plan.groups):
            refused["no steps"] += 1
            continue
        try:
            wrong += [f"seed {seed}: {line}" for line in disagreement(plan, graph, inputs, seed)]
            ran.update(group.mode for group in plan.groups)
            ran.update(
                {
                    what
                    for group in plan.groups
                    for step in computations(group.steps)
                    for what in beyond(group, step)
                }
            )
        except Unsupported as reason:
            refused[re.sub(r"'[^']*'|\d+", "_", str(reason))] += 1
    assert not wrong, "\n".join(wrong)
    return ran, refused


def test_random_plans_move_what_was_planned_and_make_every_bit() -> None:
    seeds = some(range(240))
    ran, refused = run_random(seeds)
    assert all(ran[mode] for mode in MODES), ran
    assert min(ran["in flight"], ran["running"]) > few(15), ran
    assert refused.total() < len(seeds) / 4, refused


@pytest.mark.parametrize("name", CASES)
def test_what_is_in_flight_makes_every_bit(name: str) -> None:
    graph, _ = CASES[name]
    inputs = {
        name: np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8) for name in graph.inputs
    }
    assert not disagreement(whole_plan(graph), graph, inputs, 0)


@pytest.mark.parametrize(
    ("scheme", "shape", "parts"),
    [("resident", [40, 40], 4), ("resident", [3, 600], 6), ("lbdf", [3, 600], 2)],
)
def test_the_model_of_cycles_times_the_commands_that_are_encoded(
    scheme: str, shape: list[int], parts: int
) -> None:
    """`parts` commands a step and operator: 512 accumulators hold 12 rows of 40 columns, not one of 600."""
    rng, size = np.random.default_rng(0), [1, 16, *shape]
    graph = one_contraction("Conv", {"x": size}, {"w": [16, 16, 3, 3]}, "x w", size, pads=[1] * 4)
    graph, _ = in_integers(graph, random_inputs(graph, rng), rng)
    plan = planned(GroupCosts(Dataflow.of(graph), accelerator_hardware(1 << 18), scheme=scheme), (3,))
    (group,) = plan.groups
    line = Accelerator(Dataflow.of(graph), plan.hardware).timeline(group.steps, group.places)
    assert encode(plan, graph).commands == sum(map(len, line))
    assert len(line.computes) == 2 * parts * (shape[0] if scheme == "lbdf" else 1)


def unrolled(entries: Sequence[Entry]) -> Iterator[Item]:
    for entry in entries:
        yield from (
            [entry]
            if isinstance(entry, Item)
            else [item for _ in range(entry.count) for item in unrolled(entry.body)]
        )


@pytest.mark.parametrize(
    ("distances", "iterations"),
    [([0] * 12, [12]), ([0, 6] * 6, [6]), ([0, 0, 3, 3, 3, 3], [2, 4]), ([8, 9, 20, 31], [4])],
)
def test_in_loops_nothing_waits_for_more_than_it_does_outside(
    distances: list[int], iterations: list[int]
) -> None:
    """Loads wait for the computation `distance` before them; a queue holds 8, so older ones are done."""
    runs: list[IssuedCommand] = []
    for k, distance in enumerate(distances):
        waits = {Opcode.LOAD: NO_WAIT, Opcode.STORE: NO_WAIT, Opcode.EXEC: distance}
        runs += [
            IssuedCommand(Opcode.LOAD, (("base", 1),), 1, numbers(row=k), waits=waits),
            IssuedCommand(Opcode.EXEC, (("a_base", 1),), 1, numbers(row=k)),
        ]
    entries = folded(runs, 8)
    assert [min(item.waits[2], 8) for item in unrolled(entries) if item.opcode is Opcode.LOAD] == [
        min(distance, 8) for distance in distances
    ]
    assert [entry.count for entry in entries if isinstance(entry, Repetition)] == iterations


def alone(
    kind: str,
    shapes: list[list[int]],
    weights: list[list[int] | np.ndarray],
    result: list[int],
    **attributes: Any,
) -> Graph:
    """One operator on feature maps, then weights: arrays as they are, of shapes random ones."""
    rng = np.random.default_rng(0)
    maps, names = {f"x{i}": shape for i, shape in enumerate(shapes)}, [f"w{i}" for i in range(len(weights))]
    values = [w if isinstance(w, np.ndarray) else rng.standard_normal(w).astype(np.float32) for w in weights]
    constants = [numpy_helper.from_array(value, name) for name, value in zip(names, values, strict=True)]
    roi = [""] if kind == "Resize" else []
    node = helper.make_node(kind, [*maps, *roi, *names], ["y"], "y", **attributes)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {**maps, "y": result}.items()
    ]
    return from_model(
        helper.make_model(
            helper.make_graph([node], "alone", ends[:-1], ends[-1:], constants),
            opset_imports=[helper.make_opsetid("", 18)],
        )
    )


def run_alone(graph: Graph) -> list[str]:
    """Where the stream of one operator in int8 differs from its plan and its values.

    Raises Unsupported if it becomes none.
    """
    rng = np.random.default_rng(0)
    graph, inputs = in_integers(graph, random_inputs(graph, rng), rng)
    return disagreement(
        planned(GroupCosts(Dataflow.of(graph), accelerator_hardware(1 << 16)), (1,)), graph, inputs, 0
    )


@pytest.mark.parametrize(
    "graph",
    [
        alone("MatMul", [[1, 16, 4, 16]], [[16, 32]], [1, 16, 4, 32]),
        alone("MatMul", [[1, 2, 4, 16]], [[2, 16, 32]], [1, 2, 4, 32]),
        alone("MatMul", [[1, 16, 4, 16]], [[16]], [1, 16, 4]),
        alone("Add", [[1, 16], [1, 16, 1, 1]], [], [1, 16, 1, 16]),
        alone("Mul", [[1, 16, 5, 16], [1, 16]], [], [1, 16, 5, 16]),
        alone("Resize", [[1, 16]], [np.array([1, 2], np.float32)], [1, 32], mode="nearest"),
        alone("Resize", [[1, 16, 2, 2]], [np.array([1, 2, 1, 1], np.float32)], [1, 32, 2, 2], mode="nearest"),
    ],
    ids=lambda graph: (
        f"{graph.operators[0].kind} "
        f"{[list(graph.tensors[name].shape) for name in graph.operators[0].inputs if name]}"
    ),
)
def test_sizes_that_look_like_those_of_maps_and_vectors_are_refused(graph: Graph) -> None:
    with pytest.raises(Unsupported):
        run_alone(graph)


@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "align_corners"])
@pytest.mark.parametrize("rounding", ["floor", "round_prefer_floor", "ceil"])
def test_a_resize_is_refused_or_makes_every_bit(coordinates: str, rounding: str) -> None:
    """By 2.2, 4 rows become 8, but not two of each."""
    done, refused = 0, list[str]()
    for down, right in ((2, 1), (2.2, 1), (2, 3), (1.5, 2), (3, 2.4)):
        size, scales = [1, 16, int(4 * down), int(5 * right)], np.array([1, 1, down, right], np.float32)
        how = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
        try:
            assert not run_alone(alone("Resize", [[1, 16, 4, 5]], [scales], size, **how)), (down, right)
            done += 1
        except Unsupported as reason:
            refused.append(str(reason))
    assert all("by Resize to the nearest one" in reason for reason in refused)
    assert done == 2 or (coordinates, rounding) not in RESIZES_BY_WHOLE_FACTORS


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 200))
def test_many_more_random_plans(first: int) -> None:
    ran, refused = run_random(range(first, first + 200))
    print(ran, refused)
    assert all(ran[mode] for mode in MODES), ran


def test_a_listing_can_be_assembled_again() -> None:
    for seed in range(12):
        plan, graph, _ = random_plan(seed)
        if not any(group.unexecutable for group in plan.groups):
            try:
                program = encode(plan, graph).program
            except Unsupported:
                continue
            assert to_words(assemble(listing(decode(program)))) == program


SCATTERED = {  # kernel, strides, pads, output padding, rows and columns of the operand, channels in and out
    "as U-Net has it": ((2, 2), (2, 2), (0, 0, 0, 0), (0, 0), (5, 7), (24, 18)),
    "as FSRCNN has it": ((9, 9), (4, 4), (3, 3, 4, 4), (0, 0), (5, 6), (20, 1)),
    "overlapping": ((4, 3), (2, 2), (1, 1, 1, 1), (0, 1), (6, 5), (16, 33)),
    "with gaps": ((1, 2), (3, 4), (0, 0, 0, 0), (1, 0), (4, 4), (3, 8)),
    "of stride one": ((3, 3), (1, 1), (1, 0, 1, 2), (0, 0), (6, 6), (4, 16)),
}


@pytest.mark.parametrize("name", SCATTERED)
def test_a_transposed_convolution_makes_every_bit(name: str) -> None:
    kernel, strides, pads, more, size, (c, m) = SCATTERED[name]
    extents = [
        s * (n - 1) + o + k - a - b
        for s, n, o, k, a, b in zip(strides, size, more, kernel, pads[:2], pads[2:], strict=True)
    ]
    how = {"kernel_shape": kernel, "strides": strides, "pads": pads, "output_padding": more}
    assert not run_alone(
        alone("ConvTranspose", [[1, c, *size]], [[c, m, *kernel], [m]], [1, m, *extents], **how)
    )


def test_a_refusal_says_what_the_host_could_do() -> None:
    """Operators behind which there are outputs alone; not those that a convolution reads."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "a"),
        helper.make_node("Transpose", ["a"], ["b"], "b", perm=[0, 2, 3, 1]),
        helper.make_node("Conv", ["a", "w"], ["c"], "c"),
        helper.make_node("Conv", ["b", "v"], ["d"], "d"),
    ]
    rng = np.random.default_rng(0)
    constants = [
        numpy_helper.from_array(rng.standard_normal((m, c, 1, 1)).astype(np.float32), name)
        for name, m, c in (("w", 16, 16), ("v", 4, 5))
    ]
    ends = {"x": [1, 16, 5, 6], "b": [1, 5, 6, 16], "c": [1, 16, 5, 6], "d": [1, 4, 6, 16]}
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends.items()
    }
    for asked, said in (
        (("b", "c"), "1 operator at the end could be the host's: lfopt quantize --end a --end c"),
        (("d", "c"), ""),
    ):
        kept = nodes if "d" in asked else nodes[:3]
        net = helper.make_graph(kept, "g", [infos["x"]], [infos[name] for name in asked], constants)
        graph = from_model(helper.make_model(net, opset_imports=[helper.make_opsetid("", 18)]))
        graph, _ = in_integers(graph, random_inputs(graph, rng), rng)
        with pytest.raises(Unsupported) as refused:
            encode(whole_plan(graph), graph)
        assert "Transpose" in str(refused.value)
        assert (said in str(refused.value)) if said else "--end" not in str(refused.value)
