"""Operators of all opsets as C give what ONNX Runtime, or ONNX's reference, makes of the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from codegen.source import CSource, Unsupported
from lfopt.app.compiled import plan_for_cpu
from lfopt.frontend import from_model
from lfopt.ir import Hardware, LfoptError
from lfopt.rewrite import simplify
from tests.codegen import many
from tests.frontend.judges import RANDOM, difference, judged
from tests.frontend.schema_cases import Case, cases_of, sampled

CHIP = Hardware(1 << 16, element_bytes=4)
OLDER = {  # operators in opsets that spell them otherwise
    "Add": 6, "BatchNormalization": 7, "Clip": 6, "GroupNormalization": 18, "Hardmax": 11, "Pad": 2,
    "PRelu": 6, "ReduceMean": 11, "Resize": 10, "Slice": 1, "Softmax": 12, "Split": 2, "Tile": 1,
    "Upsample": 7,
}  # fmt: skip
SHARE, PARTS = 3, 12  # one of so many cases is compiled, in so many parts
FLAGS = ("-O1", "-w")


def printed(case: Case, seed: int) -> tuple[many.Case, CSource] | None:
    """The case as C; None for what loading, or generated C, refuses."""
    try:
        graph = simplify(from_model(case.model()))
        if case.kind in RANDOM or set(case.feeds) != {*graph.inputs} or not graph.operators:
            return None
        if any(graph.tensors[name].quantization for name in (*graph.inputs, *graph.outputs)):
            return None  # of which tests/codegen/test_integer.py has cases
        one = many.Case(seed, graph, plan_for_cpu(graph, CHIP), "c99", 1, 0, case.feeds)
        return one, one.printed(1)
    except (LfoptError, Unsupported):
        return None


def wrong(cases: Sequence[Case], folder: Path) -> tuple[int, list[str]]:
    """How many cases ran as C, and what differs."""
    by_name: dict[str, Case] = {}
    models = list[tuple[many.Case, CSource]]()
    for seed, case in enumerate(cases):
        if (model := printed(case, seed)) is not None:
            models.append(model)
            by_name[model[1].name] = case
    program = many.build(models, folder, FLAGS, 1)
    outputs, complaints = many.run(program)
    said = [f"{by_name[name]}: {text}" for name, text in {**program.refused, **complaints}.items()]
    for name, arrays in outputs.items():
        case = by_name[name]
        judge, wanted = judged(case, case.model())
        off = [difference(case, judge, one, np.asarray(y)) for one, y in zip(arrays, wanted, strict=True)]
        if any(off):
            said.append(f"{case}: by {judge}: {'; '.join(filter(None, off))}")
    return len(outputs), said


def test_operators_of_older_opsets_give_as_c_what_they_give_elsewhere(tmp_path: Path) -> None:
    cases = [[*cases_of(kind, opset, types=False, values=False)] for kind, opset in OLDER.items()]
    ran, said = wrong([of_one[len(of_one) // 2] for of_one in cases], tmp_path / "c")
    assert not said, "\n".join(said)
    assert ran == len(OLDER)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_of_all_opsets_give_as_c_what_they_give_elsewhere(part: int, tmp_path: Path) -> None:
    cases = [case for case in sampled(SHARE, seed=2) if not case.folded][part::PARTS]
    ran, said = wrong(cases, tmp_path / "c")
    print(f"\n{len(cases)} cases: {ran} ran")
    assert not said, "\n".join(said)
