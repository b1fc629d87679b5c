"""Networks in which nothing moves, and networks of text: planned, shown, and refused in one line or run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from tests.app.conftest import refused

TEXT, FLOAT, WHOLE = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")


def saved(folder: Path, nodes: list[onnx.NodeProto], given: Mapping[str, int], result: int) -> Path:
    inputs = [make_tensor_value_info(name, kind, [4]) for name, kind in given.items()]
    graph = make_graph(nodes, "g", inputs, [make_tensor_value_info("y", result, [4])])
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 20)], ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


def test_where_nothing_moves_every_command_says_so(here, tmp_path: Path) -> None:
    model = saved(tmp_path, [make_node("Identity", ["x"], ["y"], name="...")], {"x": FLOAT}, FLOAT)
    plan = tmp_path / "p"
    for words in (
        ("search", model, "--buffer", "64KiB", "-o", plan),
        ("check", plan),
        ("simulate", plan),
        ("report", plan, "-o", tmp_path / "r.html"),
        ("sweep", model, "--buffers", "16KiB,64KiB", "-o", tmp_path / "s"),
    ):
        assert here(*words).returncode == 0, words
    assert "no operators that compute anything" in refused(here("pareto", model, "-o", tmp_path / "f"))
    assert "the plan has no groups" in refused(here("explain", plan, "--group", "0"))


TEXTS = {
    "text in": ([make_node("Gather", ["s", "i"], ["y"])], {"s": TEXT, "i": WHOLE}, TEXT),
    "numbers to text": ([make_node("Cast", ["x"], ["y"], to=TEXT)], {"x": FLOAT}, TEXT),
    "text to numbers": (
        [make_node("Equal", ["s", "s"], ["b"]), make_node("Cast", ["b"], ["y"], to=FLOAT)],
        {"s": TEXT},
        FLOAT,
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_planned_and_executed_and_no_c_is_printed_of_it(here, tmp_path: Path, name: str) -> None:
    model, plan = saved(tmp_path, *TEXTS[name]), tmp_path / "p"
    assert here("search", model, "--buffer", "64KiB", "--element-bytes", "4", "-o", plan).returncode == 0
    done = here("execute", plan)
    assert (done.returncode, "outputs equal the reference" in done.stdout) == (0, True), done
    assert "found type string; generated C accepts numbers" in refused(
        here("codegen", plan, "-o", tmp_path / "c")
    )
    if "s" in TEXTS[name][1]:
        np.savez(tmp_path / "i.npz", s=np.array(["a", "b", "c", "d"]), i=np.array([0, 1, 2, 3]))
        assert here("execute", plan, "--input", tmp_path / "i.npz").returncode == 0
