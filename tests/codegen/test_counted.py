"""Generated C that counts: bytes through its loads and stores are those predicted; outputs are right."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info

from codegen.emit import emit_c
from codegen.runtime import CannotRun
from codegen.source import Unsupported
from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Loop, Node, Plan, Transfer
from lfopt.ops.reference import reference
from lfopt.planning import GIVEN, GroupCosts, PlanDraft, Traffic, draft, total_dram
from search.exact import solve
from search.options import SearchOptions
from tests.agreement import differing
from tests.cases import some
from tests.codegen.counting import built, counting, disagreement
from tests.codegen.shared import NETS
from tests.codegen.twice import compiled
from tests.random_plans import SCHEMES, drawn, planned, random_inputs, random_scheme
from tests.strategies import one_contraction, with_weight_buffer


def run_random(seeds: range, folder: Path, *, integers: bool = False, split: bool = False) -> Counter[str]:
    """Random graphs, chips and schemes.

    How many plans there were of each kind; those that cannot be executed are left out.

    `split`: on chips whose weights have a buffer of their own.
    """
    modes: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph, hardware, inputs = drawn(rng, integers=integers)
        hardware = with_weight_buffer(rng, graph, hardware) if split else hardware
        scheme: str = SCHEMES[seed % len(SCHEMES)]
        costs = GroupCosts.of(graph, hardware, Traffic.TILED, scheme=scheme)
        plan = planned(costs, random_scheme(costs, seed))
        if any(group.unexecutable for group in plan.groups):
            modes["not executable"] += 1
            continue
        try:
            wrong += [
                f"seed {seed}, {scheme}: {line}"
                for line in disagreement(plan, graph, inputs, folder / str(seed))
            ]
            modes.update(group.mode for group in plan.groups)
        except Unsupported as reason:
            modes[re.sub(r"node '[^']*' ", "", str(reason))] += 1
    assert not wrong, "\n".join(wrong[:10])
    return modes


def test_random_plans_move_in_c_what_was_planned(tmp_path: Path) -> None:
    modes = run_random(some(range(20_000, 20_100)), tmp_path)
    assert all(modes[mode] for mode in ("lbdf", "tiled")), modes


def test_two_buffers_move_in_c_what_was_planned(tmp_path: Path) -> None:
    modes = run_random(some(range(23_000, 23_030)), tmp_path, split=True)
    assert all(modes[mode] for mode in ("lbdf", "tiled")), modes


def test_integers_come_out_to_the_bit(tmp_path: Path) -> None:
    assert run_random(some(range(21_000, 21_060)), tmp_path, integers=True)["lbdf"]


@pytest.mark.slow
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("first", range(22_000, 22_400, 100))
def test_many_more_random_plans(first: int, integers: bool, tmp_path: Path) -> None:
    modes = run_random(range(first, first + 100), tmp_path, integers=integers)
    print(modes)
    assert all(modes[mode] for mode in ("lbdf", "brr", "resident", "tiled")), modes


@pytest.mark.parametrize(
    ("graph", "second"),
    [
        (
            one_contraction("MatMul", {"x": [1, 4, 8, 8]}, {}, "x x", [1, 4, 8, 8]),
            {"x in blocks", "x beside"},
        ),
        (one_contraction("Gemm", {"x": [6, 6]}, {"w": [6, 6]}, "x w x", [6, 6]), {"x beside"}),
    ],
    ids=["a matrix by itself", "its operand as the bias"],
)
def test_a_map_that_lies_in_two_places_is_found_in_both(
    graph: Graph, second: set[str], tmp_path: Path
) -> None:
    """Its rows, and other rows of it where they come in another order."""
    costs = GroupCosts.of(graph, Hardware(80))
    plan = planned(costs, (costs.dataflow.everything,))
    assert {place.name for group in plan.groups for place in group.places} >= second | {"x"}
    assert disagreement(plan, graph, random_inputs(graph, np.random.default_rng(0)), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "kib", "scheme"),
    [("mobilenet_v2", 32, "auto"), ("squeezenet1_1", 128, "lbdf"), ("resnet18", 64, "brr")],
)
def test_a_network_moves_in_c_what_was_planned(name: str, kib: int, scheme: str, tmp_path: Path) -> None:
    graph = load_network(f"zoo:{name}", {"image": (1, 3, 32, 32)}, "default")
    costs = GroupCosts.of(graph, Hardware(kib * 1024, element_bytes=4), scheme=scheme)
    plan = planned(costs, solve(costs, SearchOptions(time_limit=10)).groups)
    inputs = {"image": np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)}
    outputs, counted, _ = counting(plan, graph, tmp_path, "-O1").count(inputs)
    assert counted == total_dram(plan.groups)
    assert not differing(outputs, reference(graph, inputs))


# -- steps that are wrong are found --------------------------------------------------------------------------


@cache
def small_plan() -> tuple[Plan, Graph, dict[str, np.ndarray]]:
    rng = np.random.default_rng(20_003)
    graph = load_network("zoo:mobilenet_v3_small", {"image": (1, 3, 32, 32)}, "default")
    costs = GroupCosts.of(graph, Hardware(64 * 1024, element_bytes=4), scheme="lbdf")
    return planned(costs, solve(costs, SearchOptions(time_limit=10)).groups), graph, random_inputs(graph, rng)


def transfers(nodes: tuple[Node, ...], *, store: bool) -> list[Transfer]:
    moves: list[Transfer] = []
    for node in nodes:
        if isinstance(node, Loop):
            moves += transfers(node.body, store=store)
        elif isinstance(node, Transfer) and node.store == store:
            moves.append(node)
    return moves


def rewritten(nodes: tuple[Node, ...], old: Transfer, new: tuple[Transfer, ...]) -> tuple[Node, ...]:
    steps: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            steps.append(replace(node, body=rewritten(node.body, old, new)))
        else:
            steps += new if node is old else (node,)
    return tuple(steps)


def shortened(step: Transfer) -> Transfer:
    axis = max(range(len(step.box)), key=lambda k: step.box[k][1] - step.box[k][0])
    start, stop = step.box[axis]
    return replace(step, box=(*step.box[:axis], (start, stop - 1), *step.box[axis + 1 :]))


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("change", ["dropped", "doubled", "shortened"])
def test_a_step_that_is_dropped_doubled_or_shortened_is_found(
    change: str, store: bool, tmp_path: Path
) -> None:
    plan, graph, inputs = small_plan()
    group = next(g for g in plan.groups if transfers(g.steps, store=store) and len(g.nodes) > 1)
    step = transfers(group.steps, store=store)[-1]
    new = {"dropped": (), "doubled": (step, step), "shortened": (shortened(step),)}[change]
    wrong = replace(
        plan,
        groups=tuple(
            replace(g, steps=rewritten(g.steps, step, new)) if g is group else g for g in plan.groups
        ),
    )
    try:
        outputs, counted, _ = counting(wrong, graph, tmp_path).count(inputs)
    except CannotRun as error:
        complaint = str(error)
    else:
        complaint = (
            ""
            if counted == total_dram(plan.groups) and not differing(outputs, reference(graph, inputs))
            else "other bytes, or other outputs"
        )
    assert complaint


@pytest.mark.parametrize("change", ["dropped", "doubled", "shortened"])
def test_a_load_of_parameters_that_is_dropped_doubled_or_shortened_is_found(
    change: str, tmp_path: Path
) -> None:
    plan, graph, inputs = integer_plan()
    outputs, counted, _ = counting(plan, graph, tmp_path / "right").count(inputs)
    assert (
        counted == total_dram(plan.groups)
        and counted.parameter
        and not differing(outputs, reference(graph, inputs))
    )
    group = next(g for g in plan.groups if g.dram.parameter)
    step = next(step for step in group.steps if isinstance(step, Transfer) and step.kind == "parameter")
    new = {"dropped": (), "doubled": (step, step), "shortened": (shortened(step),)}[change]
    wrong = replace(
        plan,
        groups=tuple(
            replace(g, steps=rewritten(g.steps, step, new)) if g is group else g for g in plan.groups
        ),
    )
    try:
        noticed = counting(wrong, graph, tmp_path / "wrong").count(inputs)[1] != total_dram(plan.groups)
    except CannotRun:
        noticed = True
    assert noticed


@cache
def integer_plan() -> tuple[Plan, Graph, dict[str, np.ndarray]]:
    """A quantised network with factors and tables, on a chip that loads them."""
    for seed in range(23_000, 23_100):
        graph, hardware, inputs = drawn(np.random.default_rng(seed), integers=True)
        hardware = replace(hardware, parameter_store_bytes=1 << 16, constant_align=16, buffer_bytes=1 << 16)
        costs = GroupCosts.of(graph, hardware, scheme="lbdf")
        if (
            sum(size % 80 == 0 and size > 0 for size in costs.groups.parameters)
            and 256 in costs.groups.parameters
        ):
            plan = planned(costs, random_scheme(costs, seed))
            if all(group.steps for group in plan.groups):
                return plan, graph, inputs
    raise AssertionError("no such network")


@pytest.mark.sanitize
def test_dram_is_out_of_reach_but_for_loads_and_stores(tmp_path: Path) -> None:
    """Maps in DRAM are poisoned by the address sanitizer: a read but through dram_load aborts."""
    graph = NETS["gated"]().finish()
    costs = GroupCosts.of(graph, Hardware(1 << 20, element_bytes=4), scheme="lbdf")
    operators = range(len(costs.dataflow))
    plan = planned(costs, tuple(0b11 << k & costs.dataflow.everything for k in operators[::2]))
    source = emit_c(plan, graph, "c99", count=True)
    flags = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = built(source, tmp_path / "right", *flags).program
    done = subprocess.run([program, "--bench", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{total_dram(plan.groups).total} B counted" in done.stdout
    code = source.files["model.c"].decode()
    peeking = re.sub(
        r"(static void operator_0_\d+\(.*\n)",
        r"\1    if (((volatile float *)m->maps)[0] > 1e30f) return;\n",
        code,
        count=1,
    )
    assert peeking != code
    program = built(
        replace(source, files={**source.files, "model.c": peeking.encode()}), tmp_path / "wrong", *flags
    ).program
    done = subprocess.run([program, "--bench", "1"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "use-after-poison" in done.stderr


def test_code_that_does_not_count_says_so(tmp_path: Path) -> None:
    graph = load_network("zoo:squeezenet1_1", {"image": (1, 3, 32, 32)}, "default")
    costs = GroupCosts.of(graph, Hardware(1 << 20, element_bytes=4), scheme="lbdf")
    source = emit_c(planned(costs, tuple(1 << i for i in range(len(costs.dataflow)))), graph, "c99")
    model = compiled(replace(source, flags=(*source.flags, "-O0")), tmp_path)
    with pytest.raises(CannotRun, match="does not count"):
        model.count({"image": np.zeros((1, 3, 32, 32), np.float32)})
    with pytest.raises(Unsupported, match="threads: found 2"):
        emit_c(
            planned(costs, tuple(1 << i for i in range(len(costs.dataflow)))),
            graph,
            "c99",
            count=True,
            threads=2,
        )


def test_maps_of_16_bit_floats_are_refused_in_one_line() -> None:
    ends = [make_tensor_value_info(name, TensorProto.FLOAT16, (1, 4, 3, 3)) for name in "xy"]
    graph = from_model(
        make_model(make_graph([make_node("Relu", ["x"], ["y"])], "halves", ends[:1], ends[1:]))
    )
    costs = GroupCosts.of(graph, Hardware(1 << 20, element_bytes=4), scheme="lbdf")
    plan = planned(costs, tuple(1 << i for i in range(len(costs.dataflow))))
    with pytest.raises(Unsupported, match=r"tensor 'x': found float16 \[1, 4, 3, 3\]; counting C accepts"):
        emit_c(plan, graph, "c99", count=True)


def test_bytes_of_a_second_level_are_counted_apart(tmp_path: Path) -> None:
    """Maps lie in it at the addresses of the plan: two of them in the same bytes, one after the other."""
    graph = load_network("zoo:squeezenet1_1", {"image": (1, 3, 32, 32)}, "default")
    costs = GroupCosts.of(graph, Hardware(32 << 10, element_bytes=4, l2_bytes=10 << 10), scheme="lbdf")
    drafted = draft(graph, costs, solve(costs, SearchOptions(passes=1)).groups, 0, GIVEN)
    assert isinstance(drafted, PlanDraft)
    plan = drafted.plan
    kept = [entry for entry in plan.memory if entry.memory == "l2"]
    assert (
        plan.totals.l2_bytes > 0
        and sum(entry.rows * entry.row_bytes for entry in kept) > plan.hardware.l2_bytes
    )
    assert any(entry.memory == "dram" and entry.role == "map" for entry in plan.memory)
    assert disagreement(plan, graph, random_inputs(graph, np.random.default_rng(0)), tmp_path) == []
