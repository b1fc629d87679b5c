"""Generated C on quantised maps gives the reference's bits: operators, random and real networks, targets."""

from __future__ import annotations

import platform
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization import QuantType

from codegen.build import find_compiler, write_source
from codegen.emit import WINOGRAD, emit_c
from codegen.runtime import Compiled
from codegen.source import CSource, Unsupported
from codegen.target import target
from lfopt.app.compiled import plan_for_cpu
from lfopt.app.plans import make_draft
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, LfoptError, Plan
from lfopt.ops import Call, Dataflow
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.reference import reference
from lfopt.ops.traits import Arithmetic
from lfopt.planning import GroupCosts
from lfopt.rewrite import simplify
from lfopt.zoo.blocks import gate
from lfopt.zoo.builder import Net
from search.exact import solve
from search.options import SearchOptions
from simulator.interpreter.execute import execute
from tests.codegen.checked import run_checked
from tests.codegen.many import Case, build, run
from tests.codegen.quantised import feeds, quantised
from tests.codegen.random_networks import _Net
from tests.codegen.shared import NETS
from tests.codegen.shared import Net as Shared
from tests.codegen.twice import compiled
from tests.qdq_models import quantise, zoo_network
from tests.quantised_operators import EVERY_FAMILY, drawn

KIB = 1024
CHIP = Hardware(64 * KIB, element_bytes=1, weight_bytes=1, bias_bytes=4)
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-Wno-unused-function")
TARGETS = ("c99", "native")
OF_FLOATS = (
    "BatchNormalization CumSum Einsum Gemm GroupNormalization Hardmax InstanceNormalization LRN "
    "LayerNormalization LogSoftmax LpNormalization"
)
REFUSED = frozenset(
    f"{OF_FLOATS} DeformConv LpPool ReduceL1 ReduceL2 ReduceLogSum ReduceProd RoiAlign "
    "ScatterElements Trilu".split()
)  # computed in float64


def planned(graph: Graph, kib: int, scheme: str = "lbdf") -> Plan:
    costs = GroupCosts(Dataflow.of(graph), replace(CHIP, buffer_bytes=kib * KIB), scheme=scheme)  # pyright: ignore[reportArgumentType]
    solution = solve(costs, SearchOptions(time_limit=10))
    return make_draft(graph, costs, solution, solution.lower_bound_bytes).finished()


def built(source: CSource, folder: Path) -> Compiled:
    """The library alone, compiled quickly, and without warnings: for C99, in the letter of the standard."""
    write_source(source, folder)
    level = "-O0" if source.target == "c99" else "-O1"
    flags = [flag if flag != "-O2" else level for flag in source.flags] + (
        ["-Wpedantic"] if source.target == "c99" else []
    )
    command = [*find_compiler(), *flags, *STRICT, "-shared", "-fPIC", "model.c", "-o", "model.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return Compiled(folder / "model.so", source.name, folder / "weights.bin")


def same_bits(model: Compiled, inputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for _ in range(2):  # nothing is left over from one run to the next
        for name, values in model.run(inputs).items():
            assert values.dtype == expected[name].dtype
            assert np.array_equal(values, expected[name], equal_nan=values.dtype.kind == "f"), name


# -- operators -----------------------------------------------------------------------------------------------


WITH_INDICES = ("MaxPool",)  # refused: a result of integers beside the one of bytes


def every_case(name: str, folder: Path, most: int) -> tuple[Counter[Arithmetic], set[str]]:
    """Checks the first cases of every family: (cases by arithmetic, kinds of operators refused).

    They are linked into one program, which runs each of them twice.
    """
    counts, refused = Counter[Arithmetic](), set[str]()
    models: list[tuple[Case, CSource]] = []
    for family in EVERY_FAMILY:
        for k, (call, _, _, model, inputs) in enumerate(drawn(family)[:most]):
            graph = from_model(model)
            case = Case(len(models), graph, planned(graph, 64), name, 1 + k % 2, WINOGRAD, inputs)
            try:
                source = case.printed(case.threads)
            except LfoptError:
                refused.add(call.operator.kind)
                assert arithmetic(call) is Arithmetic.FLOAT or call.operator.kind in WITH_INDICES, (
                    call.operator
                )
                continue
            models.append((case, source))
            counts[arithmetic(call)] += 1
    level = "-O0" if name == "c99" else "-O1"
    program = build(models, folder / "many", (level, *STRICT), 1)
    assert program.refused == {}
    outputs, complaints = run(program)
    assert complaints == {}
    for case, source in models:
        expected = reference(case.graph, case.inputs)
        for output, values in zip(case.graph.outputs, outputs[source.name], strict=True):
            assert values.dtype == expected[output].dtype
            assert np.array_equal(values, expected[output], equal_nan=values.dtype.kind == "f"), (
                case.graph.operators
            )
    return counts, refused


@pytest.mark.parametrize("name", TARGETS)
def test_every_operator_gives_the_bits_of_the_reference(name: str, tmp_path: Path) -> None:
    counts, refused = every_case(name, tmp_path, 2)
    assert set(counts) == set(Arithmetic)
    assert refused <= {*REFUSED, *WITH_INDICES}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_operators_give_the_bits_of_the_reference(name: str, tmp_path: Path) -> None:
    assert sum(every_case(name, tmp_path, 24)[0].values()) > 300


# -- networks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_give_the_bits_of_the_reference(seed: int, tmp_path: Path) -> None:
    graph = quantised(_Net(seed).finish(), tmp_path, seed, ("int8", "uint8")[seed % 2])
    plan = planned(graph, (2, 8, 64)[seed % 3], ("lbdf", "auto", "brr")[seed % 3])
    kinds = {
        Call.of(graph, op).operator.kind
        for op in graph.operators
        if graph.tensors[op.outputs[0]].quantization is None
    }
    inputs = feeds(graph, seed)
    expected = reference(graph, inputs)
    if kinds - {"DequantizeLinear", "QuantizeLinear"}:
        pytest.skip(f"{', '.join(kinds)} in float32: to be compared within a tolerance")
    try:
        source = emit_c(plan, graph, TARGETS[seed % 2], threads=1 + seed % 2)
    except Unsupported as refused:
        assert "float64" in str(refused)  # noqa: PT017
        pytest.skip(str(refused))
    same_bits(built(source, tmp_path / "c"), inputs, expected)
    for name, values in execute(plan, graph, inputs).outputs.items():
        assert np.array_equal(values, expected[name])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 112))
def test_many_random_networks_give_the_bits_of_the_reference(seed: int, tmp_path: Path) -> None:
    test_random_networks_give_the_bits_of_the_reference(seed, tmp_path)


NETWORKS = [
    ("mobilenet_v2", "int8"),
    ("resnet18", "uint8"),
    ("squeezenet1_1", "uint8"),
    ("efficientnet_b0", "int8"),
]


@pytest.mark.parametrize(
    ("network", "dtype"),
    [
        pytest.param(*network, id=network[0], marks=() if network[0] == "mobilenet_v2" else pytest.mark.slow)
        for network in NETWORKS
    ],
)
def test_a_network_gives_the_bits_of_the_reference(network: str, dtype: str, tmp_path: Path) -> None:
    graph = quantised(zoo_network(network, 64), tmp_path, dtype=dtype)
    inputs = feeds(graph)
    expected = reference(graph, inputs)
    for name, scheme, threads in (("native", "lbdf", 1), ("native", "auto", 2), ("c99", "lbdf", 2)):
        source = emit_c(planned(graph, 128, scheme), graph, name, threads=threads)
        same_bits(compiled(source, tmp_path / f"{name}{threads}"), inputs, expected)


@pytest.mark.skipif(not target("native").dots, reason="AVX-512 VNNI")
def test_convolutions_run_on_dot_products_where_there_are_some(tmp_path: Path) -> None:
    graph = quantised(zoo_network("mobilenet_v2", 32), tmp_path)
    assert not emit_c(planned(graph, 128), graph).loops
    assert len(emit_c(planned(graph, 128), graph, "avx512").loops) == len(Dataflow.of(graph))


@pytest.mark.parametrize("name", TARGETS)
def test_what_follows_a_mean_goes_through_its_table(name: str, tmp_path: Path) -> None:
    net = Shared(1, 20, 9, 7)
    net.conv(20, 1)
    net.add("GlobalAveragePool")
    net.add("HardSigmoid")
    graph = quantised(net.finish(), tmp_path)
    inputs = feeds(graph)
    same_bits(
        built(emit_c(plan_for_cpu(graph, CHIP), graph, name), tmp_path / "c"),
        inputs,
        reference(graph, inputs),
    )


FORMS = {  # of ONNX Runtime's quantiser: type of maps, and options
    "per channel": ("uint8", {}),
    "per tensor": ("int8", {"per_channel": False}),
    "weights beyond int8": ("uint8", {"per_channel": False, "weight_type": QuantType.QUInt8}),
    "asymmetric per channel": ("int8", {"extra_options": {"WeightSymmetric": False}}),
}


@pytest.mark.skipif(not target("native").dots, reason="AVX-512 VNNI")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_mobile_block_runs_on_dot_products(form: str, tmp_path: Path) -> None:
    """Depthwise by 64 and 16 channels, SiLU and Relu epilogues, squeeze and excite, Winograd at borders."""
    net = Net("block", seed=0, weights=True)
    image = net.image((1, 3, 30, 26))
    stem = net.conv("stem", image, 32, 3, stride=2, act="silu")
    x = net.conv("depthwise", net.conv("expand", stem, 84, act="silu"), 84, 5, group=84, act="silu")
    x = net.conv("project", net.mul("gated", x, gate(net, "gate", x, 8, "silu", "sigmoid")), 32)
    x = net.conv("square", net.add("add", x, stem), 48, 3, act="relu")
    dtype, options = FORMS[form]
    model = quantise(
        simplify(from_model(net.model(image, x, doc=""))),
        tmp_path / "q.onnx",
        np.random.default_rng(0),
        dtype,
        **options,
    )
    graph = from_model(model)
    inputs = feeds(graph)
    source = emit_c(
        plan_for_cpu(graph, Hardware(1 << 20, element_bytes=4)), graph, threads=1 + [*FORMS].index(form) % 2
    )
    assert not source.loops
    assert b"_in(const uint8_t *x, int row, int pixel, int16_t *restrict v)" in source.files["model.c"]
    same_bits(built(source, tmp_path / "c"), inputs, reference(graph, inputs))


# -- sanitizers, and what is refused -------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="address sanitizer")
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("network", ["gated", pytest.param("efficientnet_b0", marks=pytest.mark.slow)])
def test_nothing_is_touched_that_is_not_its_own(network: str, name: str, tmp_path: Path) -> None:
    """Sanitizers watch memory of exactly the sizes that are asked for."""
    floating = NETS[network]().finish() if network in NETS else zoo_network(network, 32)
    graph = quantised(floating, tmp_path)
    source = emit_c(planned(graph, 64), graph, name)
    inputs, output = feeds(graph), graph.outputs[0]
    assert np.array_equal(
        run_checked(source, inputs, graph.outputs, tmp_path)[output], reference(graph, inputs)[output]
    )


def test_plans_of_quantised_networks_are_for_bytes(tmp_path: Path) -> None:
    graph = quantised(zoo_network("squeezenet1_1", 32), tmp_path)
    assert plan_for_cpu(graph, Hardware(1 << 20, element_bytes=4)).hardware == replace(
        CHIP, buffer_bytes=1 << 20
    )
    costs = GroupCosts(Dataflow.of(graph), Hardware(64 * KIB, element_bytes=4))
    solution = solve(costs, SearchOptions(time_limit=10))
    with pytest.raises(
        Unsupported,
        match="element_bytes: found 4; "
        "generated C accepts plans of quantised networks for int8, element_bytes 1",
    ):
        emit_c(make_draft(graph, costs, solution, solution.lower_bound_bytes).finished(), graph)
