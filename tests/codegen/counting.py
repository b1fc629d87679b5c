"""Generated C that counts bytes, and where it disagrees with its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from codegen.build import Built, build, find_compiler, write_source
from codegen.emit import emit_c
from codegen.runtime import Compiled
from codegen.source import CSource
from lfopt.ir import Graph, L2Bytes, Plan
from lfopt.ops.reference import reference
from lfopt.planning import total_dram
from simulator.interpreter.execute import execute
from tests.agreement import differing
from tests.codegen.twice import compiled
from tests.random_plans import Values

QUICK = ("-O0", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror")


def built(source: CSource, folder: Path, *flags: str) -> Built:
    code = replace(source, flags=(*source.flags, *flags))
    write_source(code, folder)
    return build(code, folder, find_compiler())


def counting(plan: Plan, graph: Graph, folder: Path, *flags: str) -> Compiled:
    source = emit_c(plan, graph, "c99", count=True)
    return compiled(replace(source, flags=(*source.flags, *(flags or QUICK))), folder)


def disagreement(plan: Plan, graph: Graph, inputs: Values, folder: Path) -> list[str]:
    """Where the C differs from prediction, execution and reference."""
    outputs, *counted = counting(plan, graph, folder).count(inputs)
    executed = execute(plan, graph, inputs)
    ran, planned = (
        [executed.dram, executed.l2],
        [total_dram(plan.groups), sum((group.l2 for group in plan.groups), L2Bytes())],
    )
    differences = (
        [] if counted == ran == planned else [f"counted {counted}, executed {ran}, planned {planned}"]
    )
    return differences + differing(outputs, reference(graph, inputs))
