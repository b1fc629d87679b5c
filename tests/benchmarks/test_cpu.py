"""What the benchmarks of C for CPUs measure is what they say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.bench_cpu_memory import ProcessFailed, peak_bytes
from benchmarks.bench_traffic import BLOCKS
from benchmarks.cpu import CLASSIC, MOBILE, BenchmarkNetwork, family, feeds, planned
from benchmarks.engines import TIMES, EngineProcess, Refused, error_of, measured
from lfopt.frontend import from_model
from lfopt.ir import Graph


def embedded() -> Graph:
    """Token ids that are looked up in five rows, and a mask that is multiplied."""
    ids, mask = (helper.make_tensor_value_info(name, TensorProto.INT64, [1, 64]) for name in ("ids", "mask"))
    nodes = [
        helper.make_node("Reshape", ["ids", "shape"], ["rows"]),
        helper.make_node("Gather", ["table", "rows"], ["found"]),
        helper.make_node("Cast", ["mask"], ["factors"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["found", "factors"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([1, 64]), "shape"),
        numpy_helper.from_array(np.ones((5, 64), np.float32), "table"),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 64])
    graph = helper.make_graph(nodes, "embedded", [ids, mask], [output], constants)
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def test_token_ids_are_below_the_vocabulary_and_masks_are_ones() -> None:
    arrays = feeds(embedded(), np.random.default_rng(0))
    assert arrays["ids"].dtype == np.int64 and set(arrays["ids"].ravel()) == {0, 1, 2, 3, 4}
    assert (arrays["mask"] == 1).all()


@pytest.mark.parametrize(("name", "expected"), [(MOBILE[2], "mobile"), (CLASSIC[2], "classic")])
def test_depthwise_convolutions_make_a_network_mobile(name: str, expected: str) -> None:
    assert family(BenchmarkNetwork(name, None, {}).graph()) == expected


def test_blocks_are_what_their_names_say() -> None:
    for block in BLOCKS:
        graph = block.graph()
        assert graph.shape(graph.inputs[0]) == (1, block.channels, block.size, block.size)
        assert graph.shape(graph.outputs[0]) == (
            1,
            block.out,
            block.size // block.stride,
            block.size // block.stride,
        )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_peak_memory_is_that_of_the_process_alone_and_seen_after_it_was_freed() -> None:
    here = bytearray(200_000_000)
    there = "import time; x = bytearray(b'x') * 80_000_000; del x; time.sleep(0.5)"
    assert 80_000_000 < peak_bytes([sys.executable, "-c", there]) < len(here)


def test_a_process_that_fails_is_not_measured() -> None:
    with pytest.raises(ProcessFailed, match=r"ended with 3: too bad"):
        peak_bytes([sys.executable, "-c", "import sys; sys.stderr.write('too bad\\n'); sys.exit(3)"])


@pytest.fixture
def values() -> dict[str, np.ndarray]:
    return {"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)}


def test_an_engine_in_a_process_of_its_own_computes_the_plan(
    tmp_path: Path, values: dict[str, np.ndarray]
) -> None:
    weight = np.random.default_rng(0).standard_normal((8, 3, 3, 3), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 4, 4])
        for name, channels in (("x", 3), ("y", 8))
    ]
    model = helper.make_graph(nodes, "small", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    graph = from_model(helper.make_model(model, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    plans = planned(graph, ["exact"], 1 << 20, tmp_path)
    times = measured(graph, values, plans, [], threads=2, rounds=2)["exact"]
    assert 0 < times.error < 1e-6 and times.runs == 2 * TIMES
    assert 0 < times.least <= times.median and 0 < times.huge_bytes + 1 <= times.resident_bytes


@pytest.mark.parametrize(
    ("program", "reason"),
    [("/bin/false", "it ended with 1"), (sys.executable, "it ended with 1: KeyError: 'TURBO'")],
    ids=["ends", "unknown"],
)
def test_an_engine_that_ends_says_how(tmp_path: Path, program: str, reason: str) -> None:
    engine = EngineProcess("TURBO", Path(program), tmp_path)
    with pytest.raises(Refused, match=re.escape(reason)):
        engine.ask(do="run", times=1)
    engine.close()


def test_outputs_of_another_size_are_no_answer() -> None:
    with pytest.raises(Refused, match=r"shapes \[\[3\]\]; accepted: \[\[1, 4\]\]"):
        error_of([np.zeros(3, np.float32)], [np.zeros((1, 4))])
