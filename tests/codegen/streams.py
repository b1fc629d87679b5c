"""Command streams that are emulated, and where they disagree with the plan or the network."""

from __future__ import annotations

import numpy as np

from codegen.accel import encode
from hw_rtl.emulator import Emulation, QueueOrder, emulate
from lfopt.app.streams import memory, outputs
from lfopt.ir import CommandStream, Graph, Plan
from lfopt.isa.tables import Class
from lfopt.ops.reference import reference
from lfopt.planning import dram_at_port
from tests.random_plans import Values


def emulated(stream: CommandStream, inputs: Values, order: QueueOrder, seed: int) -> Emulation:
    """The stream on a chip full of garbage; every pair of accesses that no wait orders is an error."""
    dram = memory(stream, dict(inputs))
    return emulate(
        stream.program,
        dram,
        lanes=stream.lanes,
        buffer_bytes=stream.buffer_bytes,
        order=order,
        rng=np.random.default_rng(seed),
        check=True,
    )


def disagreement(plan: Plan, graph: Graph, inputs: Values, seed: int) -> list[str]:
    """Where the stream differs from the plan's bytes and the network's outputs."""
    stream = encode(plan, graph)
    done = emulated(stream, inputs, list(QueueOrder)[seed % len(QueueOrder)], seed)
    planned, differences = dram_at_port(plan.groups), list[str]()
    counted = (
        done.read[Class.INPUT],
        done.read[Class.WEIGHT],
        done.read[Class.PARAMETER],
        done.written[Class.OUTPUT],
    )
    if counted != (planned.input, planned.weight, planned.parameter, planned.output):
        differences.append(f"counted {counted}, planned {planned}")
    if done.read[Class.INSTRUCTION] != len(stream.program):
        differences.append(
            f"instructions: {done.read[Class.INSTRUCTION]} bytes read, the program has {len(stream.program)}"
        )
    wanted, computed = reference(graph, inputs), outputs(stream, graph, done.memory)
    differing = {name: int((computed[name] != wanted[name]).sum()) for name in wanted}
    return differences + [
        f"output {name}: {count} of {wanted[name].size} differ" for name, count in differing.items() if count
    ]
