"""Generated C for NEON and RISC-V vectors, cross-compiled and emulated, gives the reference's results."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen.elements import ElementName
from codegen.target import BF16_FLAGS
from lfopt.app.compiled import plan_for_cpu
from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from tests.codegen.many import STRICT, Case, build, drawn, run, wrong
from tests.codegen.quantised import feeds, quantised
from tests.codegen.random_networks import TOLERANCE, planned
from tests.qdq_models import zoo_network


@dataclass(frozen=True)
class Machine:
    """What compiles for a target here, and what runs it."""

    compiler: tuple[str, ...]
    emulator: tuple[str, ...]
    packages: str  # of Debian
    flags: tuple[str, ...] = ()  # behind all others

    @property
    def absent(self) -> list[str]:
        return [command for command in (self.compiler[0], self.emulator[0]) if not shutil.which(command)]


MACHINES = {
    "neon": Machine(
        ("aarch64-linux-gnu-gcc",), ("qemu-aarch64",), "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
    ),
    "rvv": Machine(
        ("clang-16", "--target=riscv64-linux-gnu"),
        ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=256,elen=64,vext_spec=v1.0"),
        "clang-16 gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-user",
        ("-Wno-unused-function",),  # GCC has no complaint of inline ones
    ),
}
ABSENT, PACKAGES = MACHINES["neon"].absent, MACHINES["neon"].packages


@pytest.fixture
def target(request: pytest.FixtureRequest) -> str:
    machine = MACHINES[request.param]
    if machine.absent:
        pytest.skip(f"no {' and no '.join(machine.absent)}: apt-get install {machine.packages}")
    return request.param


every_target = pytest.mark.parametrize("target", MACHINES, indirect=True)
# of tests that take long, rvv is among the slow ones
neon_first = pytest.mark.parametrize(
    "target", ["neon", pytest.param("rvv", marks=pytest.mark.slow)], indirect=True
)


def emulated(target: str, cases: list[Case], folder: Path, tolerance: float) -> list[bytes]:
    """Checks all cases, in one static program; their code."""
    machine = MACHINES[target]
    program = build(
        [(case, case.printed(case.threads)) for case in cases],
        folder / target,
        (*STRICT, "-static", *machine.flags),
        2,
        machine.compiler,
    )
    assert not program.refused
    outputs, complaints = run(program, machine.emulator)
    assert not complaints
    for case, source in program.models:
        assert source.target == target
        assert not wrong(case, outputs[source.name], tolerance), case
    return [source.files["model.c"] for _, source in program.models]


def case(target: str, graph: Graph, plan: Plan, threads: int, winograd: int = 4) -> Case:
    return Case(0, graph, plan, target, threads, winograd, feeds(graph))


@neon_first
def test_line_buffers_and_threads(target: str, tmp_path: Path) -> None:
    graph = load_network("zoo:mobilenet_v2", {"image": (1, 3, 32, 32)}, "default")
    plan = planned(graph, 64)
    assert any(group.mode == "lbdf" and len(group.nodes) > 4 for group in plan.groups)
    emulated(target, [case(target, graph, plan, 2)], tmp_path, TOLERANCE)


@every_target
def test_winograd(target: str, tmp_path: Path) -> None:
    shape, rng = (1, 32, 16, 16), np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((32, 32, 3, 3), np.float32) / 17, name) for name in "uv"
    ]
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
    for code in emulated(
        target,
        [replace(case(target, graph, plan, 2, size), seed=size) for size in (2, 4)],
        tmp_path,
        TOLERANCE,
    ):
        assert b"int have = -1" in code


@neon_first
def test_integers_as_plain_loops(target: str, tmp_path: Path) -> None:
    graph = quantised(zoo_network("squeezenet1_1", 32), tmp_path)
    plan = plan_for_cpu(graph, Hardware(1 << 16))
    emulated(target, [case(target, graph, plan, 2)], tmp_path, 0.0)


@every_target
def test_random_networks(target: str, tmp_path: Path) -> None:
    elements: dict[ElementName, tuple[int, ...]] = {
        "float32": (0, 1, 2, 3),
        **({"bf16": (5, 6, 7, 8)} if target in BF16_FLAGS else {}),
    }
    cases = [drawn(seed, [target], element) for element, seeds in elements.items() for seed in seeds]
    emulated(target, cases, tmp_path, 1e-4)
