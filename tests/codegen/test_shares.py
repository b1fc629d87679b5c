"""Groups that threads cut among them: the bits of one thread, no data races, nothing beyond the arena of each."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen.emit import emit_c
from codegen.runtime import CannotRun
from codegen.source import CSource, Unsupported
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, up_to
from tests.codegen.many import STRICT, Case, build, drawn, run, wrong
from tests.codegen.test_emit import RUNS_HERE
from tests.codegen.twice import compiled
from tests.test_one_truth import planned, random_inputs

RACES = ("-O0", "-g", "-fsanitize=thread")
BEYOND = "wrote outside its arena"


class Net:
    """A network under construction: its last map is what the next operator reads, if not told otherwise."""

    def __init__(self, *shape: int) -> None:
        self.rng = np.random.default_rng(0)
        self.shape, self.last, self.outputs = shape, "x", list[str]()
        self.nodes, self.weights = list[onnx.NodeProto](), list[onnx.TensorProto]()
        self.channels = {"x": shape[1]}

    def add(self, kind: str, *inputs: str, channels: int = 0, **attributes: object) -> str:
        read = inputs or (self.last,)
        self.last = f"t{len(self.nodes)}"
        self.channels[self.last] = channels or self.channels[read[0]]
        self.nodes.append(helper.make_node(kind, read, [self.last], f"n{len(self.nodes)}", **attributes))
        return self.last

    def conv(self, channels: int, kernel: int = 3, *, source: str = "", group: int = 1, pads: Sequence[int] = (), **attributes: object) -> str:
        read = source or self.last
        values = self.rng.standard_normal((channels, self.channels[read] // group, kernel, kernel)).astype(np.float32) / kernel
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        around = list(pads) or [kernel // 2] * 4
        return self.add("Conv", read, self.weights[-1].name, channels=channels, group=group, kernel_shape=[kernel, kernel], pads=around, **attributes)

    def depthwise(self, kernel: int = 3, **attributes: object) -> str:
        channels = self.channels[self.last]
        return self.conv(channels, kernel, group=channels, **attributes)  # pyright: ignore[reportArgumentType]

    def gate(self, few: int) -> str:
        """Squeeze and excite."""
        x, channels = self.last, self.channels[self.last]
        self.add("GlobalAveragePool")
        self.conv(few, 1)
        self.add("Relu")
        self.conv(channels, 1)
        return self.add("Mul", x, self.add("HardSigmoid"))

    def finish(self) -> Graph:
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*self.outputs, self.last)]
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        graph = helper.make_graph(self.nodes, "net", [given], outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        return from_model(onnx.shape_inference.infer_shapes(model))


def odd() -> Net:
    """Odd heights, strides, dilations, pads that differ above and below."""
    net = Net(1, 3, 47, 19)
    net.conv(16, pads=(0, 1, 1, 0), strides=[2, 2])
    net.depthwise(5, pads=(3, 2, 1, 2))
    net.add("Relu")
    net.conv(24, 1)
    net.depthwise(3, pads=(0, 1, 2, 1), strides=[2, 1])
    net.depthwise(3, pads=(2, 2, 2, 2), dilations=[2, 2])
    net.conv(17, 1)
    return net


def residual() -> Net:
    net = Net(1, 8, 23, 17)
    before = net.conv(8, 1)
    net.conv(32, 1)
    net.add("Relu")
    net.depthwise(5)
    net.add("Add", net.conv(8, 1), before)
    net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2])
    net.conv(9)
    return net


def gated() -> Net:
    """Global pools: stages, and a skip across them."""
    net = Net(1, 8, 25, 13)
    before = net.conv(16, strides=[2, 2])
    net.conv(32, 1)
    net.depthwise(5)
    net.gate(4)
    net.add("Add", net.conv(16, 1), before)
    net.depthwise()
    net.gate(3)
    net.conv(11)
    return net


def several() -> Net:
    """Results of several heights, read on inside the group, by windows too."""
    net = Net(1, 5, 29, 11)
    net.outputs.append(net.conv(16))
    net.outputs.append(net.conv(16, strides=[2, 2]))
    net.conv(24, 1)
    net.outputs.append(net.depthwise(strides=[2, 2]))
    net.conv(8, 1, source=net.outputs[1])
    return net


def low() -> Net:
    """Fewer rows than threads."""
    net = Net(1, 16, 4, 30)
    net.conv(24, 1)
    net.depthwise()
    net.conv(20, strides=[2, 1])
    net.depthwise(3, strides=[1, 2])
    return net


def growing() -> Net:
    """More rows than before."""
    net = Net(1, 32, 9, 7)
    net.conv(32)
    net.add("DepthToSpace", blocksize=2, channels=8)
    net.conv(12)
    net.add("Resize", net.last, "", "scales", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    net.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    net.depthwise()
    return net


NETS: dict[str, Callable[[], Net]] = {found.__name__: found for found in (odd, residual, gated, several, low, growing)}


def fused(graph: Graph, rows: int = 1) -> Plan:
    """Everything as one group."""
    costs = GroupCosts(Dataflow.of(graph), Hardware(1 << 24, element_bytes=4))
    plan = planned(costs, (costs.dataflow.everything,), up_to(costs, rows))
    assert [group.mode for group in plan.groups] == ["lbdf"]
    assert plan.groups[0].band_rows == rows
    return plan


def cut(plan: Plan, graph: Graph, target: str, threads: int) -> CSource:
    """C that is cut among threads."""
    source = emit_c(plan, graph, target, threads=threads, embed=True)
    assert source.together == {}
    assert source.arena_bytes == threads * plan.groups[0].allocated_bytes
    return source


def cases() -> list[Case]:
    found: list[Case] = []
    for name, net in NETS.items():
        graph = net().finish()
        inputs = random_inputs(graph, np.random.default_rng(1))
        for rows in (1, 3) if name in ("odd", "gated") else (1,):
            for threads in (2, 3, 7):
                seed = len(found)
                found.append(Case(seed, graph, fused(graph, rows), RUNS_HERE[seed % len(RUNS_HERE)], threads, 0, inputs))
    return found


def test_threads_give_the_bits_of_one(tmp_path: Path) -> None:
    models: list[tuple[Case, CSource]] = []
    for case in cases():
        cut(case.plan, case.graph, case.target, case.threads)
        models += [(case, case.printed(threads)) for threads in (1, case.threads)]
    program = build(models, tmp_path / "plain", STRICT, 2)
    assert program.refused == {}
    outputs, complaints = run(program)
    assert complaints == {}
    for case, source in models:
        assert not wrong(case, outputs[source.name]), case
        alone = outputs[f"seed{case.seed}_threads1"]
        assert [found.tobytes() for found in outputs[source.name]] == [found.tobytes() for found in alone], case


@pytest.mark.sanitize
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="thread sanitizer")
@pytest.mark.parametrize("which", ["own", "random"])
def test_threads_never_touch_what_another_writes(which: str, tmp_path: Path) -> None:
    """Under the thread sanitizer."""
    found = cases() if which == "own" else [replace(drawn(seed, RUNS_HERE), threads=2 + seed % 2) for seed in range(6000, 6040)]
    models: list[tuple[Case, CSource]] = []
    for case in found:
        with suppress(Unsupported):  # of random networks
            models.append((case, case.printed(case.threads)))
    assert len(models) > 0.8 * len(found)
    program = build(models, tmp_path / "races", RACES, 2)
    assert program.refused == {}
    outputs, complaints = run(program)
    assert complaints == {}
    assert outputs.keys() == {source.name for _, source in models}


@pytest.mark.parametrize("thread", [0, 1, 2])
def test_whoever_leaves_an_arena_is_found(thread: int, tmp_path: Path) -> None:
    graph = residual().finish()
    source = cut(fused(graph), graph, "c99", 3)
    model, start = compiled(source, tmp_path / "good"), "static void group_0(const context *m) {"
    x = {"x": np.ones(graph.shape("x"), np.float32)}
    model.run(x)
    assert model.arena_bytes == source.arena_bytes
    code = source.files["model.c"].decode()
    assert start in code
    bad = code.replace(start, f"{start} if (m->me == {thread}) m->rings[ARENA - 16] = 1.0f;").encode()
    with pytest.raises(CannotRun, match=BEYOND):
        compiled(replace(source, files={**source.files, "model.c": bad}), tmp_path / "bad").run(x)


def test_what_costs_more_alone_is_done_together() -> None:
    """Rows of 7 that a large window needs from a heavy convolution would nearly all be made twice."""
    net = Net(1, 160, 7, 7)
    net.conv(512, 1)
    net.depthwise(7)
    graph = net.finish()
    source = emit_c(fused(graph), graph, threads=2)
    assert source.together == {0: "too many rows would be made twice"}
    assert b"m->rings" not in source.files["model.c"].partition(b"static void group_0")[2].partition(b"int net_run")[0]
    assert source.arena_bytes == fused(graph).groups[0].allocated_bytes
    assert emit_c(fused(graph), graph, threads=1).together == {}
