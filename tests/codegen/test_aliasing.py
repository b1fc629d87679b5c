"""Operators that only move elements are index arithmetic: no function copies, and results are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from codegen.emit import emit_c
from codegen.layout import MapLayout, alike
from codegen.memory import PlannedFlow, lay_out, lay_out_dram
from codegen.target import native, target
from lfopt.app.compiled import CPU, plan_for_cpu
from lfopt.app.pipeline import load_network
from lfopt.ir import Graph, Plan, Tensor
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from tests.codegen.checked import run_checked
from tests.codegen.transformers import SCHEMES, Net, drawn_inputs, planned
from tests.codegen.twice import compiled

TOLERANCE = 2e-5  # of the largest output
STRICT = "-Wall -Wextra -Wconversion -Werror -Wno-unused-function -Wno-sign-conversion".split()
MOVING = "Concat Slice Split Transpose Gather".split()


def functions(code: str) -> set[int]:
    """Operators that have a function."""
    return {int(i) for i in re.findall(r"^static void (?:unit|loops)_(\d+)\(", code, re.MULTILINE)}


def copied(graph: Graph, plan: Plan) -> list[str]:
    """Kinds of the moving operators that have a function to themselves, with no computation in it."""
    flow = Dataflow.of(graph)
    code = emit_c(plan, graph).files["model.c"].decode()
    alone = {name: i for i, name in enumerate(flow.names(flow.everything))}
    comments = re.findall(
        r"^/\* (.*) \*/\nstatic void unit_\d+\(|^/\* (.*) \([A-Z].*as plain loops \*/$", code, re.MULTILINE
    )
    return sorted(
        flow.operators[alone[name]].kind
        for name in map("".join, comments)
        if name in alone and flow.operators[alone[name]].kind in MOVING
    )


def agrees(graph: Graph, plan: Plan, folder: Path) -> None:
    """The reference's results, without warnings, and the same bits on two threads."""
    inputs = drawn_inputs(graph)
    expected = reference(graph, inputs)
    one, two = (emit_c(plan, graph, threads=threads) for threads in (1, 2))
    outputs = compiled(replace(one, flags=(*one.flags, *STRICT)), folder / "one").run(inputs)
    for name, values in compiled(two, folder / "two").run(inputs).items():
        scale = max(float(np.abs(expected[name]).max()), 1e-3)
        assert float(np.abs(outputs[name] - expected[name]).max()) <= TOLERANCE * scale, name
        assert np.array_equal(values.view(np.uint32), outputs[name].view(np.uint32)), name


class Image(Net):
    """A graph of images."""

    def conv(self, x: str, read: int, outputs: int, side: int = 1, **attributes: Any) -> str:
        pad = side // 2
        return self.add(
            "Conv",
            x,
            self.drawn(outputs, read, side, side),
            self.drawn(outputs),
            pads=[pad] * 4,
            **attributes,
        )

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def split(self, x: str, axis: int, *sizes: int) -> list[str]:
        names = [f"{x}_{k}" for k in range(len(sizes))]
        self.nodes.append(
            helper.make_node("Split", [x, self.ints(*sizes)], names, name=f"split of {x}", axis=axis)
        )
        return names


@dataclass(frozen=True)
class Case:
    """A network, and what of it is copied nevertheless, with each scheme."""

    build: Callable[[], Graph]
    lbdf: tuple[str, ...] = ()
    resident: tuple[str, ...] = ()


def fire() -> Graph:
    """Convolutions side by side, one behind an elementwise operator, as one map for the next, twice."""
    net = Image(x=(1, 3, 13, 11))
    x, channels = net.add("Relu", net.conv("x", 3, 5, 3)), 5
    for first, second in ((7, 18), (16, 3)):
        wide = net.add("Relu", net.conv(x, channels, first))
        x, channels = (
            net.add("Concat", wide, net.add("Sigmoid", net.conv(x, channels, second, 3)), axis=1),
            first + second,
        )
    return net.graph(net.conv(x, channels, 4, 3))


def nested() -> Graph:
    """A Concat of Concats, of a pool, a deconvolution, a resized and a padded map."""
    net = Image(x=(1, 6, 9, 10))
    small = net.conv("x", 6, 5, 3, strides=[2, 2])
    inner = net.add(
        "Concat", net.conv("x", 6, 3), net.add("MaxPool", "x", kernel_shape=[3, 3], pads=[1] * 4), axis=1
    )
    larger = net.add(
        "ConvTranspose", small, net.drawn(5, 2, 3, 2), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]
    )
    resized = net.add("Resize", net.conv("x", 6, 2, 5), "", "", net.ints(1, 2, 9, 10), mode="nearest")
    grouped = net.add("Conv", "x", net.drawn(6, 1, 3, 3), pads=[1] * 4, group=6)
    outer = net.add("Concat", inner, larger, net.add("Concat", grouped, resized, axis=1), axis=1)
    return net.graph(net.add("AveragePool", outer, kernel_shape=[2, 2]), net.conv(outer, 19, 3))


def heads() -> Graph:
    """What detectors end with: maps of several sizes, pixel by pixel, one after the other."""
    net = Image(x=(1, 4, 12, 10))
    outputs: list[str] = []
    x = "x"
    for size in (120, 30, 9):
        seen = net.add("Transpose", net.conv(x, 4, 6, 3), perm=[0, 2, 3, 1])
        outputs.append(net.shaped(seen, 1, size * 2, 3))
        x = net.add("Relu", net.conv(x, 4, 4, 3, strides=[2, 2]))
    return net.graph(net.add("Concat", *outputs, axis=1))


def shuffled() -> Graph:
    """Channels cut apart, each part on its way, and put together again."""
    net = Image(x=(1, 3, 8, 9))
    one, two, three = net.split(net.conv("x", 3, 23, 3), 1, 7, 12, 4)
    parts = [net.conv(one, 7, 5, 3), net.add("Relu", two), net.add("Mul", net.conv(three, 4, 4), three)]
    return net.graph(net.conv(net.add("Concat", *parts, axis=1), 21, 3))


def sliced() -> Graph:
    """Rows, columns and channels cut off, with steps."""
    net = Image(x=(1, 3, 11, 13))
    x = net.conv("x", 3, 10, 3)
    channels = net.add("Slice", x, net.ints(2), net.ints(9), net.ints(1))
    rows = net.add("Slice", x, net.ints(3), net.ints(10), net.ints(2))
    every = net.add("Slice", x, net.ints(1, 0), net.ints(11, 13), net.ints(2, 3), net.ints(2, 3))
    outputs = [
        net.conv(channels, 7, 3, 3),
        net.add("Sigmoid", rows),
        net.add("Exp", every),
        net.add("MaxPool", every, kernel_shape=[2, 2]),
    ]
    return net.graph(*outputs)


def volumes() -> Graph:
    """Inception over time: no fast kernel makes convolutions of three axes."""
    net = Net(x=(1, 2, 4, 6, 5))
    one = net.add("Relu", net.add("Conv", "x", net.drawn(3, 2, 1, 1, 1)))
    two = net.add("Conv", "x", net.drawn(4, 2, 3, 3, 3), pads=[1] * 6)
    three = net.add("MaxPool", "x", kernel_shape=[3, 3, 3], pads=[1] * 6)
    return net.graph(net.add("Relu", net.add("Concat", one, two, three, axis=1)))


def fused_attention(*, scaled: bool = False) -> Graph:
    """Queries, keys and values of one product, as GPT-2 and its exporters have them."""
    net = Image(x=(1, 11, 21))
    whole = net.linear("x", 21, 63)
    queries, keys, values = (
        net.add("Transpose", net.shaped(name, 1, 11, 3, 7), perm=[0, 2, 1, 3])
        for name in net.split(whole, 2, 21, 21, 21)
    )
    turned = net.add("Transpose", keys, perm=[0, 1, 3, 2])
    if scaled:
        queries, turned = (
            net.add("Mul", queries, net.constant(0.3)),
            net.add("Mul", turned, net.constant(0.3)),
        )
    shares = net.add("Softmax", net.add("MatMul", queries, turned), axis=-1)
    mixed = net.shaped(net.add("Transpose", net.add("MatMul", shares, values), perm=[0, 2, 1, 3]), 1, 11, 21)
    return net.graph(net.add("Add", net.linear(mixed, 21, 21), "x"))


def first_token() -> Graph:
    """What BERT's pooler reads: the first of all positions."""
    net = Image(x=(1, 9, 12))
    y = net.add("Tanh", net.linear("x", 12, 17))
    taken = net.add("Gather", y, net.constant(np.array(-2, np.int64)), axis=1)
    return net.graph(
        net.add("Gemm", taken, net.drawn(17, 5)), net.add("Relu", net.add("Gather", y, net.ints(3), axis=1))
    )


def blocks_of_pixels(mode: str) -> Graph:
    """Channels spread over pixels, and what is done to these."""
    net = Image(x=(1, 3, 5, 7))
    spread = net.add("DepthToSpace", net.conv("x", 3, 20, 3), blocksize=2, mode=mode)
    return net.graph(
        net.conv(
            net.add(
                "Mul",
                net.add("Relu", spread),
                net.constant(np.arange(5.0).astype(np.float32).reshape(5, 1, 1)),
            ),
            5,
            3,
        )
    )


CASES = {
    "fire": Case(fire),
    "nested": Case(nested),
    "heads": Case(heads),
    "shuffled": Case(shuffled, lbdf=("Split",)),
    # a pool reads pixels that lie three apart, and rows two apart, less well
    "sliced": Case(sliced, lbdf=("Slice",) * 3, resident=("Slice",)),
    "volumes": Case(volumes),
    "attention": Case(fused_attention, lbdf=("Split", *["Transpose"] * 5)),
    "scaled attention": Case(partial(fused_attention, scaled=True), lbdf=("Split", *["Transpose"] * 5)),
    "first token": Case(first_token, lbdf=("Gather",) * 2),
    "depth": Case(partial(blocks_of_pixels, "DCR")),
    "columns": Case(partial(blocks_of_pixels, "CRD")),
}


# in `make test` the first scheme, in `make test-slow` all
FEW_SCHEMES = [
    pytest.param(scheme, marks=[pytest.mark.slow] if number else []) for number, scheme in enumerate(SCHEMES)
]


@pytest.mark.parametrize("scheme", FEW_SCHEMES)
@pytest.mark.parametrize("name", CASES)
def test_what_only_moves_elements(name: str, scheme: str, tmp_path: Path) -> None:
    graph = CASES[name].build()
    plan = planned(graph, scheme)
    if scheme != "all":
        assert copied(graph, plan) == [*{"lbdf": CASES[name].lbdf, "resident": CASES[name].resident}[scheme]]
    agrees(graph, plan, tmp_path)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_parts_that_others_read_too_are_copied(scheme: str, tmp_path: Path) -> None:
    """So are inputs and outputs of the graph, constants, and a part that comes twice."""
    net = Image(x=(1, 3, 6, 7))
    read, own, twice, output = (net.conv("x", 3, channels, 3) for channels in (4, 5, 6, 7))
    joined = net.add("Concat", read, "x", own, twice, twice, output, net.drawn(1, 2, 6, 7), axis=1)
    graph = net.graph(net.conv(joined, 33, 3), net.add("Relu", read), output)
    plan = planned(graph, scheme)
    flow = Dataflow.of(graph)
    (i,) = (i for i, operator in enumerate(flow.operators) if operator.kind == "Concat")
    memory = lay_out(PlannedFlow(plan, graph), target("c99"), frozenset(), {})
    assert [flow.maps[m].name for m in memory.aliases.aliased(i)] == [own]
    agrees(graph, plan, tmp_path)


def test_a_sound_comes_in_as_pixels(tmp_path: Path) -> None:
    net = Net(x=(1, 5, 40))
    filtered = net.add(
        "Conv", net.shaped("x", 1, 5, 40, 1), net.drawn(20, 5, 3, 1), kernel_shape=[3, 1], pads=[1, 0, 1, 0]
    )
    graph = net.graph(
        net.add(
            "Conv", net.add("Relu", filtered), net.drawn(7, 20, 3, 1), kernel_shape=[3, 1], strides=[2, 1]
        )
    )
    plan = planned(graph, "lbdf")
    assert emit_c(plan, graph).loops == {}
    agrees(graph, plan, tmp_path)


def test_maps_between_convolutions_of_a_sound_stay_in_pixels(tmp_path: Path) -> None:
    net = Net(x=(1, 3, 70))
    wide = net.add("Conv", net.shaped("x", 1, 3, 70, 1), net.drawn(24, 3, 3, 1), pads=[1, 0, 1, 0])
    sound = net.add("PRelu", net.shaped(wide, 1, 24, 70), net.drawn(1))
    normal = net.add("InstanceNormalization", sound, net.drawn(24), net.drawn(24))
    depthwise = net.add("Conv", net.shaped(normal, 1, 24, 70, 1), net.drawn(24, 1, 3, 1), group=24)
    gate = net.add("Sigmoid", net.shaped(depthwise, 1, 24, 68))
    graph = net.graph(net.add("Conv", net.shaped(gate, 1, 24, 68, 1), net.drawn(2, 24, 3, 1)))
    plan = plan_for_cpu(graph, CPU)
    source = emit_c(plan, graph)
    looped = {
        graph.operators[i].kind
        for i in range(len(graph.operators))
        if graph.operators[i].name in source.loops
    }
    assert looped <= {"InstanceNormalization"}
    agrees(graph, plan, tmp_path)


def test_a_counted_build_follows_the_plan() -> None:
    graph = fire()
    plan = planned(graph, "resident")
    assert not lay_out_dram(PlannedFlow(plan, graph), target("c99")).aliases.aliases


@pytest.mark.sanitize
@pytest.mark.skipif(native() == "neon", reason="address sanitizer")
@pytest.mark.parametrize("scheme", ["lbdf", pytest.param("resident", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["fire", "nested", "heads", "sliced"])
def test_nothing_is_touched_that_is_not_its_own(name: str, scheme: str, tmp_path: Path) -> None:
    graph = CASES[name].build()
    run_checked(emit_c(planned(graph, scheme), graph), drawn_inputs(graph), graph.outputs, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "fsrcnn",
        pytest.param("mobilenet_v1_ssd", marks=pytest.mark.slow),
        "mobilenet_v2",
        "resnet18",
        "squeezenet1_1",
        "unet",
    ],
)
def test_layouts_are_converted_at_the_border_of_a_graph_alone(name: str) -> None:
    """A function stands for an operator (never a Transpose), and nothing else.

    Inputs and outputs are moved, or lie where the caller has them.
    """
    shapes = {"fsrcnn": (1, 1, 40, 56), "mobilenet_v1_ssd": (1, 3, 300, 300)}
    graph = load_network(f"zoo:{name}", {"image": shapes.get(name, (1, 3, 64, 64))}, "default")
    flow = Dataflow.of(graph)
    code = emit_c(plan_for_cpu(graph, CPU), graph).files["model.c"].decode()
    kinds = {flow.operators[i].kind for i in functions(code)}
    assert kinds and "Transpose" not in kinds
    named = set(
        re.findall(r"^static void ([a-z]+)_?[0-9]*\(const context \*m(?:, int r)?\)", code, re.MULTILINE)
    )
    assert named == {"group", "unit"} | ({"loops"} & named)
    body = code[code.index("static void network(") :].split("\n}\n")[0]
    there = set(re.findall(r"m->(?:inputs|outputs)\[\d+\]", code))
    assert len(re.findall(r"\*inside = ", body)) + len(there) == len(graph.inputs) + len(graph.outputs)


def test_views_of_maps_that_lie_within_others() -> None:
    """Axes split from one keep its stride; axes merged into one must be contiguous."""
    whole = Tensor("x", (1, 5, 6, 4), "float32")
    within = MapLayout(whole, (2, 0, 3, 1), (999, 1, 80, 20))
    apart = within.seen(Tensor("y", (5, 3, 2, 4), "float32"))
    assert apart is not None and apart.strides == (1, 160, 80, 20) and apart.order == (1, 2, 3, 0)
    joined = within.seen(Tensor("z", (5, 24), "float32"))
    assert joined is not None and joined.strides == (1, 20)
    assert within.seen(Tensor("z", (30, 4), "float32")) is None
    assert (within.image.pitch, within.image.step, within.whole.pixels) == (20, 80, 24)
    assert alike((5, 3, 2, 4), whole.shape) == [([0], [1]), ([1, 2], [2]), ([3], [3])]
