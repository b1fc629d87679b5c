"""Programs do the same, to the cycle, whatever registers and memories hold before reset.

Verilator knows 0 and 1 alone, whatever a type says. What four states would show is shown by chance here:
every register and memory begins with random bits, as does every X that is assigned (--x-initial unique,
--x-assign unique), and a register that is read before it was written shows as soon as its value matters: in
bytes, counts or cycles. A variable of two states begins with 0 in SystemVerilog even so, and hides that; so
the datapaths have none. What this cannot show: an X that ends the same as 0 and as 1, in an `if` say, and one
whose value none of these programs looks at.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from codegen.accel import encode as encode_plan
from hw_rtl.build import HardwareParameters, SimulationModel, available, build
from hw_rtl.emulator import emulate
from hw_rtl.run import Dram, RunResult, run
from lfopt.app.cache import keeper
from lfopt.app.streams import memory as image
from lfopt.app.streams import outputs
from lfopt.isa.program import encode
from lfopt.ops.reference import reference
from tests.hw_rtl.programs import COMPUTED, LOOKED_UP, MEMORY_BYTES, WRITABLE, agrees, random_program, text
from tests.hw_rtl.test_rtl import encodable

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(available()), reason=f"not found: {available()}")]

SEEDS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def unknown_model(request: pytest.FixtureRequest) -> SimulationModel:
    assert request.config.cache is not None
    parameters = HardwareParameters(dram_beats=1 << 18, optimization="-O1", assertions=True, unknown=True)
    return build(keeper(Path(request.config.cache.mkdir("rtl"))), parameters)


def alike(results: list[RunResult], *, bytes_too: bool = True) -> None:
    for other in results[1:]:
        assert not bytes_too or np.array_equal(other.memory, results[0].memory)
        assert other.counters == results[0].counters
        assert (other.failure, other.finished) == (results[0].failure, results[0].finished)


@pytest.fixture(scope="module")
def memory() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, MEMORY_BYTES, np.uint8)


@pytest.mark.parametrize("lines", [COMPUTED, LOOKED_UP])
def test_programs_do_not_depend_on_what_was_there(
    unknown_model: SimulationModel, memory: np.ndarray, lines: str
) -> None:
    program, wanted = text(lines), emulate(text(lines), memory, write_region=WRITABLE, check=True)
    results = [run(unknown_model, program, memory, write_region=WRITABLE, unknown=seed) for seed in SEEDS]
    agrees(results[0], wanted)
    alike(results)


def test_transfers_do_not_depend_on_what_was_there(
    unknown_model: SimulationModel, memory: np.ndarray
) -> None:
    for k in range(12):
        commands, wanted = random_program(300 + k, memory)
        dram = Dram(latency_cycles=3, stall=100, seed=k + 1) if k % 2 else Dram()
        results = [
            run(unknown_model, encode(commands), memory, write_region=WRITABLE, dram=dram, unknown=seed)
            for seed in SEEDS
        ]
        agrees(results[0], wanted)
        alike(results)


def test_plans_do_not_depend_on_what_was_there(unknown_model: SimulationModel) -> None:
    plans = encodable(9000)
    for _ in range(12):
        plan, graph, inputs = next(plans)
        stream, wanted = encode_plan(plan, graph), reference(graph, inputs)
        region = (stream.maps_address, stream.memory_bytes)
        results = [
            run(unknown_model, stream.program, image(stream, inputs), write_region=region, unknown=seed)
            for seed in SEEDS
        ]
        arrays = outputs(stream, graph, results[0].memory)
        assert all((arrays[name] == wanted[name]).all() for name in wanted)
        alike(results)


def test_faults_do_not_depend_on_what_was_there(unknown_model: SimulationModel, memory: np.ndarray) -> None:
    """Except what a corrupted program stores: that may be words of the buffer never loaded."""
    rng, words = np.random.default_rng(11), text(COMPUTED)
    for _ in range(40):
        broken = bytearray(words)
        broken[int(rng.integers(0, len(words)))] ^= 1 << int(rng.integers(0, 8))
        limited = partial(
            run,
            unknown_model,
            bytes(broken),
            memory,
            write_region=WRITABLE,
            watchdog_cycles=2000,
            limit_cycles=60_000,
        )
        alike([limited(unknown=seed) for seed in SEEDS[:2]], bytes_too=False)
