"""Every row of the operator table is in each back end's table, or refused there with a user's reason."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from codegen.accel import encode
from codegen.accel.computations import METHODS
from codegen.kernels.table import KERNELS as FAST
from codegen.loops import integer as integer_loops
from codegen.loops import reals as real_loops
from codegen.loops import table as loops
from codegen.source import Unsupported
from lfopt.app.config import load_hardware
from lfopt.ir import Compute, Hardware, whole
from lfopt.ops import TABLE, Dataflow, Family, OpSpec, Tiling
from lfopt.ops import contraction as contractions
from lfopt.ops.arithmetic import APPLIES, arithmetics
from lfopt.ops.elementwise import KINDS, elementwise
from lfopt.ops.floating import KERNELS
from lfopt.ops.integer import METHODS as INTEGER_METHODS
from lfopt.ops.traits import Arithmetic, Pattern
from lfopt.planning import GroupCosts
from lfopt.planning.accelerator.commands import SUPPORTED
from simulator.model.engines import COMMAND_CYCLES
from simulator.model.timing import Accelerator
from tests.conftest import ROOT
from tests.operators import ARITHMETIC, FAMILIES, Case, alone, cases, conv_transpose
from tests.random_plans import in_integers, planned

every_row = pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
ACCELERATOR = load_hardware(ROOT / "configs" / "hardware" / "accelerator_256k.yaml")
LEAST_WORDS = 4  # of a reason


@cache
def drawn() -> dict[str, Case]:
    """One operator of every kind that the random tests of arithmetic, rows and footprints draw."""
    drawn_cases = (case for family in dict.fromkeys(FAMILIES + ARITHMETIC) for case in cases(family, 200))
    return {case.kind: case for case in drawn_cases}


@every_row
def test_the_reference_and_the_executor_compute_it(row: OpSpec) -> None:
    if row.tiling is Tiling.CONTRACT:
        assert row.kind in contractions.SUMS
        assert row.kind in contractions.RESULTS
    else:
        assert row.kind in KERNELS
    assert all(
        how in INTEGER_METHODS and how in APPLIES for how in arithmetics(row) if how is not Arithmetic.SUMS
    )


@every_row
def test_portable_c_has_loops_for_it_or_a_reason(row: OpSpec) -> None:
    if row.view:
        return  # plans move nothing, and nothing is emitted
    assert (row.kind in loops.LOOPS) != (row.kind in loops.REFUSED)
    assert row.kind in loops.LOOPS or len(loops.REFUSED[row.kind].split()) >= LEAST_WORDS
    for how in arithmetics(row):  # on quantised maps
        assert how in integer_loops.LOOPS or (
            how in (Arithmetic.MOVE, Arithmetic.CHOICE) and row.kind in loops.LOOPS
        )


def refused(case: Case) -> str | None:
    """Why the accelerator refuses an operator on bytes; "" if it takes it, None if types are not float32."""
    graph, rng = alone(case), np.random.default_rng(0)
    given = {f"x{i}": value for i, value in enumerate(case.operands) if value is not None}
    if any(graph.tensors[name].dtype != "float32" for name in (*graph.inputs, *graph.outputs)):
        return None
    graph, _ = in_integers(graph, {name: given[name] for name in graph.inputs}, rng)
    try:
        encode(planned(GroupCosts(Dataflow.of(graph), ACCELERATOR), (1,)), graph)
    except Unsupported as error:
        return str(error)
    return ""


@every_row
def test_an_operator_on_bytes_becomes_commands_or_is_refused_in_one_line(row: OpSpec) -> None:
    message = None if row.view else refused(drawn()[row.kind])
    if message is None:
        return
    assert message or any(how in SUPPORTED and SUPPORTED[how].does(row.kind) for how in arithmetics(row))
    assert "\n" not in message
    assert not message or len(message.split()) >= LEAST_WORDS


def test_a_transposed_convolution_on_bytes_is_encoded_or_refused_before_its_weights_are_laid_out() -> None:
    reasons = [refused(case) or "" for case in cases(conv_transpose, 40)]
    assert all(
        "the accelerator does" in reason or "the accelerator accepts" in reason
        for reason in reasons
        if reason
    ), reasons


def test_no_back_end_has_an_operator_without_a_row() -> None:
    named = {
        "kernels": {*KERNELS, *KINDS, *contractions.SUMS},
        "loops": {*loops.LOOPS, *loops.REFUSED, *real_loops.FLOATS, *integer_loops.PRODUCTS},
        "fast kernels": {*FAST},
        "accelerator": {kind for support in SUPPORTED.values() for kind in support.kinds},
    }
    assert {name: kinds - TABLE.keys() for name, kinds in named.items()} == {key: set() for key in named}


def test_an_arithmetic_that_the_accelerator_supports_is_encoded_and_what_it_does_of_it_is_said() -> None:
    assert SUPPORTED.keys() == METHODS.keys()
    assert all(
        len(support.accepted.split()) >= LEAST_WORDS for support in SUPPORTED.values() if support.kinds
    )


@every_row
def test_random_tests_draw_it(row: OpSpec) -> None:
    assert row.kind in drawn()


@every_row
def test_its_time_is_known(row: OpSpec) -> None:
    """No fewer cycles than elements over lanes, or products over the MAC array."""
    flow = Dataflow.of(alone(drawn()[row.kind]))
    if row.view:
        assert not len(flow)
        return
    chip = Hardware(1 << 20)
    machine, call = Accelerator(flow, chip), flow.calls[0]
    step = Compute(flow.operators[0].name, tuple(map(whole, call.results)), ())
    elements, least = sum(tensor.elements for tensor in call.result_tensors), COMMAND_CYCLES
    if row.tiling is Tiling.CONTRACT:
        least += row.macs(call) // (chip.mac_rows * chip.mac_columns)
    else:
        least += row.passes * elements // chip.vector_lanes
    assert machine.cycles(step) >= least
    assert machine.work(step).buffer_bytes > 0 or not elements


@every_row
def test_traits_agree(row: OpSpec) -> None:
    assert (row.tiling is Tiling.CONTRACT) == bool(row.macs(drawn()[row.kind].call()))
    assert row.tiling is not Tiling.CONTRACT or row.channel_axis is not None
    assert not row.transposed or row.family is Family.CONVOLUTION
    assert row.family is not Family.NORMALISATION or row.passes in (1, 3)
    assert not row.view or row.pattern is Pattern.OPAQUE
    assert (row.kind in KINDS) == (KERNELS.get(row.kind) is elementwise)
    assert row.kind not in KINDS or row.elementwise
    assert row.range is None or row.range.low < row.range.high
