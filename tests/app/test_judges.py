"""ONNX Runtime as a second judge: it sees errors of reading, and where it cannot judge a note says why."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from lfopt.app.agreement import Arrays, expected
from lfopt.app.judges import Judgement, judged
from lfopt.app.standard import judge_is_at_work
from lfopt.frontend import from_model
from lfopt.ir import Graph
from lfopt.ops.reference import reference
from tests.frontend.small_models import one

VERSION = f"ONNX Runtime {'.'.join(onnxruntime.__version__.split('.')[:2])}"
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def judgement(
    graph: Graph, file: str | Path, outputs: Arrays | None = None, *, drawn: bool = False
) -> Judgement:
    """Of the reference's own outputs, or of others."""
    values = dict.fromkeys(graph.inputs, X)
    given = reference(graph, values) if outputs is None else outputs
    return judged(graph, values, given, expected(graph, values), file, drawn=drawn)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def test_a_file_that_is_misread_equals_the_reference_and_not_onnx_runtime(tmp_path: Path) -> None:
    file = saved(one("Hardmax", X.shape, opset=11), tmp_path)
    of_both = judgement(from_model(onnx.load(file)), file)
    assert of_both.judges == ("reference", VERSION)
    assert not any(agreement.wrong for agreement in of_both.agreements)
    assert of_both.lines() == []
    misread = judgement(from_model(one("Hardmax", X.shape, opset=13)), file)
    assert [(a.judge, bool(a.wrong)) for a in misread.agreements] == [("reference", False), (VERSION, True)]
    assert f"elements differ from those of {VERSION} by up to 1" in str(misread.agreements[1])


def test_outputs_that_are_off_are_off_for_both(tmp_path: Path) -> None:
    file = saved(one("Softmax", X.shape, opset=13), tmp_path)
    graph = from_model(onnx.load(file))
    (name,) = graph.outputs
    found = judgement(graph, file, {name: reference(graph, {"x": X})[name] + np.float32(0.01)})
    assert all(agreement.wrong == X.size for agreement in found.agreements)
    assert found.lines() == [f"judges: reference, {VERSION}"]


def test_without_onnx_runtime_the_reference_judges_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(one("Relu", X.shape, opset=13), tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    alone = judgement(from_model(onnx.load(file)), file)
    assert alone.judges == ("reference",)
    assert alone.lines() == [
        "note: ONNX Runtime is no judge: it is not installed (pip install 'lfopt[quantize]')"
    ]


def test_a_file_that_it_does_not_run_and_weights_that_are_drawn_are_said_in_one_line(tmp_path: Path) -> None:
    model = one("Clip", X.shape, opset=6, min=0.1, max=1.0)  # it has this operator from opset 6 on
    model.opset_import[0].version = 5
    file = saved(model, tmp_path)
    graph = from_model(onnx.load(file))
    (line,) = judgement(graph, file).lines()
    assert line.startswith(f"note: ONNX Runtime is no judge: {VERSION} does not run the file: ")
    (line,) = judgement(graph, file, drawn=True).lines()
    assert line == "note: ONNX Runtime is no judge: its weights were drawn at random"


def test_a_judge_that_does_not_come_to_an_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ONNX Runtime does within a pool whose kernel has 2^31 rows."""
    ended = threading.Event()
    monkeypatch.setattr("lfopt.app.judges._outputs", lambda *_: ended.wait(60))
    monkeypatch.setattr("lfopt.app.judges.MOST_SECONDS", 0.05)
    file = saved(one("Softmax", X.shape, opset=13), tmp_path)
    found = judgement(from_model(onnx.load(file)), file)
    assert found.lines() == [f"note: ONNX Runtime is no judge: {VERSION} gives no answer within 0.05 seconds"]
    assert judge_is_at_work()
    ended.set()
