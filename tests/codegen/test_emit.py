"""Generated C gives the reference's results: real and random networks, every target this machine runs."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from codegen.build import write_source
from codegen.emit import emit_c
from codegen.source import Unsupported
from codegen.target import TARGETS, native
from lfopt.app.pipeline import load_network
from lfopt.app.plans import make_draft
from lfopt.frontend import from_model
from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts
from search.exact import solve
from search.options import SearchOptions
from tests.cases import some
from tests.codegen.checked import run_checked
from tests.codegen.random_networks import KIB, RUNS_HERE, TOLERANCE, _Net, agrees, planned

SMALL = {"image": (1, 3, 64, 64)}


# -- real networks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("mobilenet_v1", "lbdf"),
        ("mobilenet_v2", "auto"),
        ("mobilenet_v3_small", "lbdf"),
        ("mobilenet_v3_small", "auto"),
        ("squeezenet1_1", "auto"),
        ("resnet18", "lbdf"),
        pytest.param("mobilenet_v1", "auto", marks=pytest.mark.slow),
        pytest.param("mobilenet_v2", "lbdf", marks=pytest.mark.slow),
        pytest.param("squeezenet1_1", "lbdf", marks=pytest.mark.slow),
        pytest.param("resnet18", "auto", marks=pytest.mark.slow),
    ],
)
def test_a_network_gives_what_the_reference_gives(name: str, scheme: str, tmp_path: Path) -> None:
    graph = load_network(f"zoo:{name}", SMALL, "default")
    agrees(emit_c(planned(graph, 256, scheme), graph), graph, tmp_path)


@pytest.mark.parametrize("target", RUNS_HERE)
def test_every_target_gives_the_same(target: str, tmp_path: Path) -> None:
    graph = load_network("zoo:efficientnet_b0", {"image": (1, 3, 40, 56)}, "default")
    source = emit_c(planned(graph, 128), graph, target)
    assert source.target == target
    agrees(source, graph, tmp_path)


@pytest.mark.parametrize("name", ["fsrcnn", "fsrcnn_deconv"])
def test_networks_whose_maps_grow(name: str, tmp_path: Path) -> None:
    graph = load_network(f"zoo:{name}", {"image": (1, 1, 40, 56)}, "default")
    agrees(emit_c(planned(graph, 64), graph), graph, tmp_path)


def test_weights_may_be_linked_in(tmp_path: Path) -> None:
    graph = load_network("zoo:squeezenet1_1", SMALL, "default")
    source = emit_c(planned(graph, 256), graph, "c99", embed=True)
    assert "weights.bin" not in source.files
    agrees(source, graph, tmp_path)


# -- random networks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", some(range(60)))
def test_random_networks_give_what_the_reference_gives(seed: int, tmp_path: Path) -> None:
    graph = _Net(seed).finish()
    kib = (2, 8, 64)[seed % 3]
    source = emit_c(planned(graph, kib, ("lbdf", "auto")[seed % 2]), graph, RUNS_HERE[seed % len(RUNS_HERE)])
    agrees(source, graph, tmp_path, 1e-4)


@pytest.mark.sanitize
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="address sanitizer")
def test_nothing_is_touched_that_is_not_its_own(tmp_path: Path) -> None:
    """Sanitizers watch memory of exactly the sizes that are asked for."""
    graph = load_network("zoo:mobilenet_v3_small", {"image": (1, 3, 40, 40)}, "default")
    source = emit_c(planned(graph, 64), graph)
    image = {"image": np.ones(graph.shape("image"), np.float32)}
    (output,) = graph.outputs
    expected = reference(graph, image)[output]
    assert (
        np.abs(run_checked(source, image, graph.outputs, tmp_path)[output] - expected).max()
        <= TOLERANCE * np.abs(expected).max()
    )


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "squeezenet1_1", "fsrcnn_deconv"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_generated_code_compiles_without_warnings(compiler: str, name: str, tmp_path: Path) -> None:
    """For C99 to the letter, weights linked in, with threads."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    graph = load_network(
        f"zoo:{name}", {"image": (1, 1, 40, 56)} if name.startswith("fsrcnn") else SMALL, "default"
    )
    plan = planned(graph, 128)
    for target in RUNS_HERE:
        source = emit_c(plan, graph, target, threads=2, embed=True)
        write_source(source, tmp_path)
        strict = [
            "-O1",
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Werror",
            *(["-pedantic"] if target == "c99" else []),
        ]
        strict += ["-Wno-unused-function"] if compiler == "clang" else []  # it looks at inline functions too
        # weights of one network compile like those of all others, and take longer than the code
        numbers = ["weights.c"] if name.startswith("fsrcnn") else []
        command = [compiler, *source.flags, *strict, "-c", "model.c", *numbers]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:2000]


# -- what is refused -----------------------------------------------------------------------------------------


def test_what_nothing_can_print_is_refused_by_name() -> None:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4]),
        helper.make_tensor_value_info("axis", TensorProto.INT64, []),
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="first"),
        helper.make_node("CumSum", ["h", "axis"], ["y"], name="odd_one"),
    ]
    graph = helper.make_graph(nodes, "net", inputs, [output])
    read = from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    with pytest.raises(Unsupported, match=re.escape("node 'odd_one' (CumSum)")):
        emit_c(planned(read, 64), read)


def test_plans_for_other_element_sizes_are_refused() -> None:
    graph = load_network("zoo:squeezenet1_1", SMALL, "default")
    costs = GroupCosts(Dataflow.of(graph), Hardware(256 * KIB))
    solution = solve(costs, SearchOptions(time_limit=10))
    with pytest.raises(Unsupported, match="element_bytes"):
        emit_c(make_draft(graph, costs, solution, solution.lower_bound_bytes).finished(), graph)


def test_targets_by_name() -> None:
    assert native() in TARGETS
