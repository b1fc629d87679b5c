"""Plans on the accelerator in RTL: bytes at its memory port are those predicted; every bit is right.

They are also those executed and those counted in C.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from codegen.accel import encode
from codegen.source import Unsupported
from hw_rtl.build import SimulationModel
from hw_rtl.run import Dram, RunResult
from hw_rtl.run import run as run_program
from lfopt.app.commands.quantize import quantize
from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan
from lfopt.app.streams import counted, memory, outputs, run
from lfopt.app.trace import COMPUTATION, LOADS, RTL, STORES, rtl_trace
from lfopt.frontend import load
from lfopt.ir import CommandStream, Graph, InvalidPlan, Plan, StoredMap
from lfopt.isa.program import Command, decode
from lfopt.isa.program import encode as to_words
from lfopt.isa.tables import RUN, Counter, Opcode
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, dram_at_port, total_dram
from search.exact import solve
from search.options import SearchOptions
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from tests.accelerator import LANES, accelerator_hardware, random_plan
from tests.cases import SHARES, some
from tests.codegen.counting import counting
from tests.random_plans import planned


def completed(result: RunResult) -> int:
    """Commands that the hardware completed."""
    return sum(result.counters[counter] for counter in (Counter.LOADS, Counter.STORES, Counter.EXECS))


def disagreement(
    model: SimulationModel, plan: Plan, graph: Graph, inputs: dict[str, np.ndarray], dram: Dram | None = None
) -> list[str]:
    """Where the hardware differs from the plan and from the reference."""
    stream = encode(plan, graph)
    done, wanted = run(model, stream, inputs, dram=dram), reference(graph, inputs)
    if done.failure is not None or not done.finished:
        return [f"it stopped: {done.failure}"]
    arrays = outputs(stream, graph, done.memory)
    differing = {name: int((arrays[name] != wanted[name]).sum()) for name in wanted}
    problems = [
        f"output {name}: {count} of {wanted[name].size} differ" for name, count in differing.items() if count
    ]
    if (moved := counted(done.counters)) != dram_at_port(plan.groups):
        problems.append(f"counted {moved}, planned {dram_at_port(plan.groups)}")
    if completed(done) != stream.commands:
        problems.append(f"{completed(done)} commands completed, the stream has {stream.commands}")
    if done.counters[Counter.READ_INSTRUCTION] != len(stream.program):
        problems.append(
            f"{done.counters[Counter.READ_INSTRUCTION]} bytes of instructions, the program has "
            f"{len(stream.program)}"
        )
    return problems


def run_random(
    model: SimulationModel, seeds: range, folder: Path | None = None, lanes: int = LANES
) -> Tally[str]:
    """Random plans, some on a memory that holds back; with a folder, in C that counts, and executed, too."""
    ran, wrong = Tally[str](), list[str]()
    for seed in seeds:
        plan, graph, inputs = random_plan(seed, lanes)
        if any(group.unexecutable for group in plan.groups):
            continue
        try:
            dram = Dram(latency_cycles=(40, 1, 200)[seed % 3], stall=(0, 0, 100)[seed % 3], seed=seed + 1)
            wrong += [f"seed {seed}: {line}" for line in disagreement(model, plan, graph, inputs, dram)]
        except Unsupported as reason:
            ran[re.sub(r"'[^']*'|\d+", "_", str(reason))] += 1
            continue
        if folder is not None:
            moved = total_dram(plan.groups)
            _, in_c, _ = counting(plan, graph, folder / str(seed), "-O0").count(inputs)
            others = {
                "simulate": simulate(plan, graph).dram,
                "execute": execute(plan, graph, inputs).dram,
                "C": in_c,
            }
            wrong += [
                f"seed {seed}: {name} says {counted}, the plan {moved}"
                for name, counted in others.items()
                if counted != moved
            ]
        ran.update(group.mode for group in plan.groups)
    assert not wrong, "\n".join(wrong)
    return ran


def test_random_plans_count_the_same_bytes_in_four_ways(model: SimulationModel, tmp_path: Path) -> None:
    ran = run_random(model, some(range(5000, 5080)), tmp_path)
    assert all(ran[mode] for mode in ("lbdf", "brr", "resident")), ran


def test_random_plans_on_rtl(model: SimulationModel) -> None:
    ran = run_random(model, some(range(5100, 5300)))
    assert all(ran[mode] for mode in ("lbdf", "brr", "resident", "tiled")), ran


@pytest.mark.slow
@pytest.mark.parametrize("first", range(6000, 6400, 50))
def test_hundreds_of_random_plans_on_rtl(model: SimulationModel, first: int, tmp_path: Path) -> None:
    print(run_random(model, range(first, first + 50), tmp_path))


@pytest.mark.slow
def test_random_plans_at_32_lanes(wide_model: SimulationModel) -> None:
    ran = run_random(wide_model, range(8000, 8060), lanes=32)
    assert all(ran[mode] for mode in ("lbdf", "brr", "resident", "tiled")), ran


def mutants(commands: Sequence[Command]) -> Iterator[tuple[str, list[Command]]]:
    """The program with one transfer dropped, doubled or shortened, or one computation dropped."""
    for at, command in enumerate(commands):
        if command.layout is not RUN:
            continue
        before, after = [*commands[:at]], [*commands[at + 1 :]]
        yield f"without {command.text()}", before + after
        if command.opcode is not Opcode.EXEC:
            yield f"twice {command.text()}", [*before, command, command, *after]
        if command.values["count"] > 1:
            shorter = Command(command.opcode, {**command.values, "count": command.values["count"] - 1})
            yield f"shorter {command.text()}", [*before, shorter, *after]


def test_a_step_that_is_dropped_doubled_or_shortened_shows(model: SimulationModel) -> None:
    missed, tried = list[str](), 0
    every = 1 if SHARES == 1 else 3  # of the programs, from the first command to the last
    for plan, graph, inputs in islice(encodable(7000), 4):
        stream, moved, wanted = encode(plan, graph), dram_at_port(plan.groups), reference(graph, inputs)
        for what, commands in islice(mutants(decode(stream.program)), 0, 40, every):
            program = to_words(commands)
            region = (stream.maps_address, stream.memory_bytes)
            done = run_program(
                model, program, memory(stream, inputs), write_region=region, watchdog_cycles=2000
            )
            arrays = outputs(stream, graph, done.memory)
            tried += 1
            # rows that nobody reads are computed all the same
            same = counted(done.counters) == moved and completed(done) == stream.commands
            if done.failure is None and same and all((arrays[name] == wanted[name]).all() for name in wanted):
                missed.append(what)
    assert tried > 60 // every
    assert not missed, "\n".join(missed)


def encodable(first: int) -> Iterator[tuple[Plan, Graph, dict[str, np.ndarray]]]:
    """Random plans that the accelerator does."""
    for seed in count(first):
        drawn = random_plan(seed)
        with suppress(Unsupported):
            if not any(group.unexecutable for group in drawn[0].groups):
                encode(*drawn[:2])
                yield drawn


# -- networks ------------------------------------------------------------------------------------------------


def test_a_trace_shows_the_cycles_that_the_hardware_counts(model: SimulationModel) -> None:
    busy = {LOADS: Counter.LOAD_BUSY, STORES: Counter.STORE_BUSY, COMPUTATION: Counter.EXEC_BUSY}
    for plan, graph, inputs in islice(encodable(40), 4):
        done = run(model, encode(plan, graph), inputs, timed=True)
        trace, left = rtl_trace(plan, graph, simulate(plan, graph), done)
        assert not left
        bars = [event for event in trace.events if event["ph"] == "X" and event["pid"] == RTL]
        for track, counter in busy.items():
            mine = [event for event in bars if event["tid"] == track]
            assert sum(event["args"]["cycles"] for event in mine) == done.counters[counter]
            assert all(one["ts"] + one["dur"] <= other["ts"] + 1e-9 for one, other in pairwise(mine))
        assert len([event for event in bars if event["tid"] in busy]) == completed(done)
        held = [
            event["args"]["bytes"] for event in trace.events if event["ph"] == "C" and event["pid"] == RTL
        ]
        assert min(held) == 0 <= max(held) <= plan.hardware.buffer_bytes
        with pytest.raises(InvalidPlan, match="accepted: the"):
            rtl_trace(plan, graph, simulate(plan, graph), replace(done, commands=done.commands[1:]))


def network(
    name: str, size: int, scheme: str, folder: Path, buffer_bytes: int = 1 << 18
) -> tuple[Plan, Graph, dict[str, np.ndarray]]:
    """A network of the zoo in int8, planned for the accelerator."""
    pytest.importorskip("onnxruntime")
    quantize(
        f"zoo:{name}", out_file=folder / f"{name}.onnx", samples=2, input_shape=(f"image=1,3,{size},{size}",)
    )
    graph = load(folder / f"{name}.onnx")
    hardware = accelerator_hardware(buffer_bytes)
    if scheme == "all":
        outcome = find_plan(
            Config(name, hardware, scheme, search=SearchConfig(time_limit=60, objective="bytes")), graph=graph
        )
        plan, graph = outcome.draft.finished(), outcome.graph
    else:
        costs = GroupCosts(Dataflow.of(graph), hardware, scheme=scheme)
        plan = planned(costs, solve(costs, SearchOptions(time_limit=60)).groups)
    shape = graph.shape("image")
    return plan, graph, {"image": np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)}


@pytest.mark.parametrize(
    ("name", "kib", "scheme"), [("mobilenet_v2", 32, "auto"), ("squeezenet1_1", 128, "lbdf")]
)
def test_small_networks(model: SimulationModel, name: str, kib: int, scheme: str, tmp_path: Path) -> None:
    plan, graph, inputs = network(name, 64, scheme, tmp_path, kib << 10)
    assert not disagreement(model, plan, graph, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["all", "auto", "lbdf"])
def test_every_group_of_efficientnet_b3_at_reduced_resolution(
    model: SimulationModel, scheme: str, tmp_path: Path
) -> None:
    """Every map that a group stores is an output here, so that no group may hide behind the next one."""
    plan, graph, inputs = network("efficientnet_b3", 96, scheme, tmp_path, 1 << 17)
    stream = encode(plan, graph)
    done = run(model, stream, inputs)
    assert counted(done.counters) == dram_at_port(plan.groups)
    wanted = reference(graph, inputs, everything=True)
    between = [name for group in plan.groups for name in group.outputs]
    assert len(between) > (1 if scheme == "all" else 20)  # with chains, most maps stay on chip
    arrays = outputs(
        replace(stream, outputs=tuple(stored_maps(plan, graph, stream))),
        replace(graph, outputs=tuple(between)),
        done.memory,
    )
    assert not [name for name in between if (arrays[name] != wanted[name]).any()]


def stored_maps(plan: Plan, graph: Graph, stream: CommandStream) -> list[StoredMap]:
    """Where the maps that groups store lie."""
    by_name = {stored.name: stored for stored in stream.maps}
    return [by_name[name] for group in plan.groups for name in group.outputs]


NETWORKS = [
    ("mobilenet_v2", 224),
    ("squeezenet1_1", 224),
    ("resnet18", 224),
    ("efficientnet_b0", 224),
    ("efficientnet_b3", 300),
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scheme", ["all", "auto", "lbdf"])
@pytest.mark.parametrize(("name", "size"), NETWORKS)
def test_whole_networks(model: SimulationModel, name: str, size: int, scheme: str, tmp_path: Path) -> None:
    plan, graph, inputs = network(name, size, scheme, tmp_path)
    assert not disagreement(model, plan, graph, inputs)
