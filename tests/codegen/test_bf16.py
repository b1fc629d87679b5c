"""Maps and weights in bfloat16: sums that it holds are exact, others as near as rounding; else refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from codegen.elements import rounded
from codegen.emit import better_whole, emit_c
from codegen.source import Unsupported
from codegen.target import target
from lfopt.app.agreement import expected
from lfopt.app.compiled import plan_for_cpu
from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from tests.codegen.quantised import quantised
from tests.codegen.twice import compiled
from tests.qdq_models import zoo_network

CHIP = Hardware(1 << 16)


def runs_here() -> bool:
    try:
        return bool(target("native", "bf16"))
    except Unsupported:
        return False


here = pytest.mark.skipif(not runs_here(), reason="no arithmetic on bfloat16")


def test_tokens_want_whole_maps_and_fewer_windows_do() -> None:
    """Products of tokens gain by many rows as in float32; 3 x 3 windows only by Winograd, on floats."""
    transformer, resnet = (
        Dataflow.of(load_network(f"zoo:{name}", None, "default")) for name in ("vit_tiny", "resnet18")
    )
    assert better_whole(transformer, "avx512", "bf16") == better_whole(transformer, "avx512")
    # Q, K, V, what follows attention, and two of each block
    assert better_whole(transformer, "avx512").bit_count() == 6 * 12
    some, all_of_them = better_whole(resnet, "avx512", "bf16"), better_whole(resnet, "avx512")
    assert some & ~all_of_them == 0 < some.bit_count() < all_of_them.bit_count()


class Integers:
    """A network of small integers: every sum is below 256, which is as far as bfloat16 holds all integers."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.weights = [
            numpy_helper.from_array(np.array(value, np.float32), name)
            for name, value in (("low", -1), ("high", 2))
        ]
        self.nodes: list[NodeProto] = []

    def weight(self, *extents: int, share: float = 1.0) -> str:
        values = self.rng.integers(-2, 3, extents) * (self.rng.random(extents) < share)
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{len(self.weights)}"))
        return f"w{len(self.weights) - 1}"

    def add(self, kind: str, *inputs: str, **settings: Any) -> str:
        self.nodes.append(
            helper.make_node(kind, [*inputs], [f"t{len(self.nodes)}"], f"n{len(self.nodes)}", **settings)
        )
        return f"t{len(self.nodes) - 1}"

    def limited(self, x: str) -> str:
        return self.add("Clip", x, "low", "high")

    def finish(self, read: tuple[int, ...], last: str, written: tuple[int, ...]) -> Graph:
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", read), (last, written))
        ]
        net = helper.make_graph(self.nodes, "integers", ends[:1], ends[1:], self.weights)
        return from_model(helper.make_model(net, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def convolutions() -> Graph:
    net = Integers()
    weight, add, limited = net.weight, net.add, net.limited
    first = limited(add("Conv", "x", weight(74, 3, 3, 3, share=0.5), weight(74), pads=[1, 1, 1, 1]))
    down = limited(add("Conv", first, weight(74, 1, 3, 3), group=74, strides=[2, 2], pads=[1, 1, 1, 1]))
    wide = limited(add("Conv", down, weight(74, 1, 5, 5, share=0.6), weight(74), group=74, pads=[2, 2, 2, 2]))
    narrow = limited(add("Conv", wide, weight(29, 74, 1, 1, share=0.4)))
    tall = limited(add("Conv", narrow, weight(13, 29, 3, 2, share=0.3), dilations=[1, 2], pads=[1, 1, 1, 1]))
    pooled = add("MaxPool", add("Concat", tall, narrow, axis=1), kernel_shape=[2, 1], strides=[2, 2])
    last = add("Gemm", add("Flatten", limited(pooled)), weight(672, 11, share=0.1))
    return net.finish((1, 3, 17, 15), last, (1, 11))


def products() -> Graph:
    net = Integers()
    add, limited = net.add, net.limited
    rows = limited(add("MatMul", "x", net.weight(13, 19, share=0.5)))
    squares = limited(add("MatMul", rows, add("Transpose", rows, perm=[0, 1, 3, 2])))
    last = add("Add", add("MatMul", squares, rows), "low")
    return net.finish((1, 2, 21, 13), last, (1, 2, 21, 19))


def moves() -> Graph:
    net = Integers()
    add, limited = net.add, net.limited
    rows = limited(add("MatMul", "x", net.weight(13, 19, share=0.5)))
    turned = add("Transpose", rows, perm=[0, 1, 3, 2])
    joined = add("Concat", turned, turned, axis=3)
    last = add("MatMul", add("Transpose", joined, perm=[0, 3, 1, 2]), net.weight(19, 5))
    return net.finish((1, 2, 21, 13), last, (1, 42, 2, 5))


@here
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("network", [convolutions, products, moves])
def test_sums_that_bfloat16_holds_are_exact(
    network: Callable[[], Graph], threads: int, tmp_path: Path
) -> None:
    graph = network()
    source = emit_c(plan_for_cpu(graph, CHIP, element="bf16"), graph, element="bf16", threads=threads)
    assert not source.loops or network is moves
    values = {"x": np.random.default_rng(1).integers(-2, 3, graph.shape("x")).astype(np.float32)}
    (sums,), (wanted,) = compiled(source, tmp_path).run(values).values(), reference(graph, values).values()
    assert len(np.unique(wanted)) > 5
    assert np.array_equal(sums, wanted)


@here
@pytest.mark.parametrize(("name", "pixels"), [("mobilenet_v3_small", 64), ("resnet18", 112)])
def test_a_network_is_as_far_off_as_rounding_takes_it(name: str, pixels: int, tmp_path: Path) -> None:
    graph = load_network(f"zoo:{name}", {"image": (1, 3, pixels, pixels)}, "default")
    source = emit_c(plan_for_cpu(graph, CHIP, element="bf16"), graph, element="bf16")
    assert ("block that is in v" in source.files["model.c"].decode()) == (name == "resnet18")
    model = compiled(source, tmp_path)
    values = {"image": np.random.default_rng(0).standard_normal(graph.shape("image")).astype(np.float32)}
    (agreement,) = expected(graph, values, "bfloat16").compared(model.run(values))
    assert not agreement.wrong, agreement
    assert agreement.largest_error is not None
    assert agreement.largest_error > 2.0**-12  # it was rounded


def test_maps_that_plain_loops_work_on_stay_floats() -> None:
    weights = [numpy_helper.from_array(np.ones((8, 8, 1, 1), np.float32), name) for name in "uv"]
    chain = [
        ("Conv", ["x", "u"]),
        ("Cos", ["t0"]),
        ("Conv", ["t1", "v"]),
        ("Relu", ["t2"]),
        ("Conv", ["t3", "u"]),
    ]
    nodes = [helper.make_node(kind, read, [f"t{k}"], f"n{k}") for k, (kind, read) in enumerate(chain)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 6, 6)) for name in ("x", "t4")]
    net = helper.make_graph(nodes, "cosine", ends[:1], ends[1:], weights)
    graph = from_model(helper.make_model(net, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    source = emit_c(plan_for_cpu(graph, CHIP, "neon", element="bf16"), graph, "neon", element="bf16")
    assert list(source.loops) == ["n1"]
    kernels = re.findall(
        r"void unit_\d_0\(const (\w+) \*const .*, (\w+) \*restrict y", source.files["model.c"].decode()
    )
    # before the cosine, whose kernel makes the output too, and after it
    assert kernels == [("bf16", "float"), ("float", "bf16")]
    assert len(re.findall(r"^ +unit_0_0\(", source.files["model.c"].decode(), re.MULTILINE)) == 2


def test_weights_are_rounded_to_the_nearest_even() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4096, dtype=np.uint32)
    bits[:64] = (bits[:64] & 0xFFFF0000) | 0x8000  # half way
    values = bits.view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < 3e38)]
    nearest = (rounded(values).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    below = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    above = ((values.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    off = [np.abs(end.astype(np.float64) - values) for end in (below, above)]
    assert np.array_equal(np.abs(nearest - values), np.minimum(*off))
    assert not (rounded(values) & 1)[off[0] == off[1]].any()


def test_what_bfloat16_is_not_for_is_refused_by_name(tmp_path: Path) -> None:
    graph = load_network("zoo:fsrcnn", {"image": (1, 1, 8, 8)}, "default")
    plan = plan_for_cpu(graph, CHIP, "neon", element="bf16")
    for name in ("avx2", "c99"):
        with pytest.raises(Unsupported, match=f"element bf16: found target {name}"):
            emit_c(plan, graph, name, element="bf16")
    with pytest.raises(Unsupported, match="element bf16: found code that counts"):
        emit_c(plan, graph, "neon", element="bf16", count=True)
    with pytest.raises(
        Unsupported, match="element_bytes: found 4; generated C accepts plans for bf16, element_bytes 2"
    ):
        emit_c(replace(plan, hardware=replace(plan.hardware, element_bytes=4)), graph, "neon", element="bf16")
    integers = quantised(zoo_network("squeezenet1_1", 32), tmp_path)
    with pytest.raises(Unsupported, match="element bf16: found a quantised network"):
        emit_c(plan_for_cpu(integers, CHIP), integers, "neon", element="bf16")
