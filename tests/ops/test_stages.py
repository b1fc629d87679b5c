"""Operators in flight on one byte compose into one table, bit for bit, loaded once and priced once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lfopt.ir import Graph
from lfopt.ops import Dataflow
from lfopt.ops.flight import in_flight
from lfopt.ops.parameter_data import parameter_bytes
from lfopt.ops.reference import reference
from lfopt.ops.stages import least_parameters, parameter_sizes, parameters, stages
from lfopt.planning import GroupCosts
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from simulator.recount import recount
from tests.accelerator import accelerator_hardware
from tests.byte_chains import CASES, SHAPE, net, whole_plan


@pytest.mark.parametrize("name", CASES)
def test_operators_that_see_one_byte_share_a_table(name: str) -> None:
    """All 256 bytes give the reference's bits; loaded table bytes are those planned, in four accounts."""
    graph, holders = CASES[name]
    plan = whole_plan(graph)
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.permutation(np.tile(np.arange(256, dtype=np.uint8), 3)).view(np.int8).reshape(SHAPE)
        for name in graph.inputs
    }
    done, wanted = execute(plan, graph, inputs), reference(graph, inputs)
    assert all((done.outputs[output] == wanted[output]).all() for output in wanted)
    assert [
        entry.name.removeprefix("parameters of ") for entry in plan.memory if entry.role == "parameter"
    ] == holders
    tables = sum(not holder.startswith("Conv") for holder in holders)
    assert (
        done.dram.parameter == plan.groups[0].dram.parameter == 256 * tables + (holders[0][:4] == "Conv") * 80
    )
    assert recount(graph, plan).agrees, recount(graph, plan).discrepancies
    assert not simulate(plan, graph).disagreements


@pytest.mark.parametrize("name", CASES)
def test_a_composed_table_holds_what_the_operators_make_one_by_one(name: str) -> None:
    graph, _ = CASES[name]
    for flight in in_flight(Dataflow.of(graph)).calls:
        loaded = parameters(flight, 16)
        assert [
            (name, sum(block.size for block in blocks)) for name, blocks in loaded.items()
        ] == parameter_sizes(flight, 16)
        for stage in stages(flight):
            if stage.table is not None and stage.holder:
                assert np.array_equal(loaded[stage.holder][0], stage.table.view(np.uint8))
            if stage.call.operator.kind != "Conv" or not stage.behind:
                continue
            every_byte = {
                stage.call.result_tensors[0].name: np.arange(256, dtype=np.uint8)
                .view(np.int8)
                .reshape(1, 1, 16, 16)
            }
            alone = Graph(
                "alone",
                tuple(part.operator for part in stage.behind),
                {
                    tensor.name: replace(tensor, shape=(1, 1, 16, 16))
                    for part in stage.parts
                    for tensor in (*part.result_tensors, *part.tensors)
                    if tensor
                },
                {},
                (*every_byte,),
                (stage.result,),
                18,
            )
            assert stage.table is not None
            assert np.array_equal(reference(alone, every_byte)[stage.result].reshape(-1), stage.table)


def test_a_flight_has_one_value_at_a_time_on_a_chip_that_computes_in_place() -> None:
    """c is read by what comes after a map that is not made in flight has been added to it."""
    graph = net(("Conv", "xw", "c"), ("Add", "cg", "u"), ("Mul", "cu", "y"), inputs=("x", "g"))
    for hardware, flights in (
        (accelerator_hardware(1 << 16), 0),
        (replace(accelerator_hardware(1 << 16), parameter_store_bytes=0), 1),
    ):
        flow = GroupCosts.of(graph, hardware, scheme="all").dataflow
        assert sum(len(call.then) == 2 for call in flow.calls) == flights


@pytest.mark.parametrize("name", CASES)
def test_no_flights_load_less_than_the_compulsory_bound_says(name: str) -> None:
    flow = Dataflow.of(CASES[name][0])
    least = least_parameters(flow.calls, 16, flow.behind)
    assert least <= sum(size for call in in_flight(flow).calls for _, size in parameter_sizes(call, 16))
    assert least <= sum(parameter_bytes(call, 16) for call in flow.calls)
