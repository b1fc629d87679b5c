"""Views that split and merge dimensions: compiled C and executor give ONNX Runtime's results behind them.

Random operators, views and plans, ranks 1 to 6, batches 1 to 3, in float32 and between QDQ pairs in int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from simulator.interpreter.execute import execute
from tests.codegen.many import build, run
from tests.codegen.views import planned_case, view_case

FLAGS = ("-O0", "-w")
PARTS, MODELS, EACH = 10, 15, 10  # 1,500 networks
FOUND = (28, 99, 2072)  # seeds with which elements were once permuted, or a window turned


def check(models: Sequence[Sequence[int]], folder: Path) -> None:
    """Checks networks, each sequence of seeds as one model: two thirds of them in float32."""
    faults: list[str] = []
    networks = {number: view_case(seeds, quantised=number % 3 == 2) for number, seeds in enumerate(models)}
    cases = {number: planned_case(number, networks[number]) for number in networks}
    for number, case in cases.items():
        outputs = execute(case.plan, case.graph, case.inputs).outputs
        faults += [f"executor, {fault}" for fault in networks[number].wrong([*outputs.values()])]
    program = build(
        [(case, case.printed(case.threads)) for case in cases.values()], folder / "many", FLAGS, 2
    )
    assert not program.refused
    by_c, complaints = run(program)
    assert not complaints
    for case, source in program.models:
        faults += [f"{case}, {fault}" for fault in networks[case.seed].wrong(by_c[source.name])]
    assert not faults, "\n".join(faults)


def test_networks_with_views_give_onnx_runtimes_results(tmp_path: Path) -> None:
    check([FOUND, *(range(first, first + 25) for first in range(2000, 2100, 25))], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_over_a_thousand_networks_with_views_give_onnx_runtimes_results(part: int, tmp_path: Path) -> None:
    first = part * MODELS * EACH
    check([range(first + k * EACH, first + (k + 1) * EACH) for k in range(MODELS)], tmp_path)
