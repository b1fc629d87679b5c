"""Generated C for NEON gives what the reference gives: cross-compiled, and run by an emulator."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lfopt.app.compiled import plan_for_cpu
from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from tests.codegen.many import STRICT, Case, build, drawn, run, wrong
from tests.codegen.test_emit import TOLERANCE, planned
from tests.codegen.test_integer import feeds, quantised
from tests.qdq_models import zoo_network

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
ABSENT = [command for command in (COMPILER, EMULATOR) if not shutil.which(command)]
PACKAGES = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=f"no {' and no '.join(ABSENT)}: apt-get install {PACKAGES}")


def emulated(cases: list[Case], folder: Path, tolerance: float) -> list[bytes]:
    """Checks all cases, in one static program; their code."""
    program = build([(case, case.printed(case.threads)) for case in cases], folder / "neon", (*STRICT, "-static"), 2, [COMPILER])
    assert not program.refused
    outputs, complaints = run(program, [EMULATOR])
    assert not complaints
    for case, source in program.models:
        assert source.target == "neon"
        assert not wrong(case, outputs[source.name], tolerance), case
    return [source.files["model.c"] for _, source in program.models]


def case(graph: Graph, plan: Plan, threads: int, winograd: int = 4) -> Case:
    return Case(0, graph, plan, "neon", threads, winograd, feeds(graph))


def test_line_buffers_and_threads(tmp_path: Path) -> None:
    graph = load_network("zoo:mobilenet_v2", {"image": (1, 3, 32, 32)}, "default")
    plan = planned(graph, 64)
    assert any(group.mode == "lbdf" and len(group.nodes) > 4 for group in plan.groups)
    emulated([case(graph, plan, 2)], tmp_path, TOLERANCE)


def test_winograd(tmp_path: Path) -> None:
    shape, rng = (1, 32, 16, 16), np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((32, 32, 3, 3), np.float32) / 17, name) for name in "uv"]
    nodes = [
        helper.make_node("Conv", ["x", "u"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "v"], ["c"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "x"], ["y"], "add"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xabcy"]
    net = helper.make_graph(nodes, "block", ends[:1], ends[-1:], weights, value_info=ends[1:-1])
    graph = from_model(helper.make_model(net, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    plan = planned(graph, 1, "resident")
    for code in emulated([replace(case(graph, plan, 2, size), seed=size) for size in (2, 4)], tmp_path, TOLERANCE):
        assert b"int have = -1" in code


def test_integers_as_plain_loops(tmp_path: Path) -> None:
    graph = quantised(zoo_network("squeezenet1_1", 32), tmp_path)
    plan = plan_for_cpu(graph, Hardware(1 << 16))
    emulated([case(graph, plan, 2)], tmp_path, 0.0)


def test_random_networks(tmp_path: Path) -> None:
    cases = [drawn(seed, ["neon"], element) for element, seeds in (("float32", (0, 1, 2, 3)), ("bf16", (5, 6, 7, 8))) for seed in seeds]
    emulated(cases, tmp_path, 1e-4)
