"""What the benchmarks of C for CPUs measure is what they say."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.bench_cpu_memory import Failed, peak_bytes
from benchmarks.bench_traffic import BLOCKS
from benchmarks.cpu import CLASSIC, MOBILE, Subject, family, feeds
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
    constants = [numpy_helper.from_array(np.array([1, 64]), "shape"), numpy_helper.from_array(np.ones((5, 64), np.float32), "table")]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 64])
    graph = helper.make_graph(nodes, "embedded", [ids, mask], [output], constants)
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def test_token_ids_are_below_the_vocabulary_and_masks_are_ones() -> None:
    found = feeds(embedded(), np.random.default_rng(0))
    assert found["ids"].dtype == np.int64 and set(found["ids"].ravel()) == {0, 1, 2, 3, 4}
    assert (found["mask"] == 1).all()


@pytest.mark.parametrize(("name", "expected"), [(MOBILE[2], "mobile"), (CLASSIC[2], "classic")])
def test_depthwise_convolutions_make_a_network_mobile(name: str, expected: str) -> None:
    assert family(Subject(name, None, {}).graph()) == expected


def test_blocks_are_what_their_names_say() -> None:
    for block in BLOCKS:
        graph = block.graph()
        assert graph.shape(graph.inputs[0]) == (1, block.channels, block.size, block.size)
        assert graph.shape(graph.outputs[0]) == (1, block.out, block.size // block.stride, block.size // block.stride)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_peak_memory_is_that_of_the_process_alone_and_seen_after_it_was_freed() -> None:
    here = bytearray(200_000_000)
    there = "import time; x = bytearray(b'x') * 80_000_000; del x; time.sleep(0.5)"
    assert 80_000_000 < peak_bytes([sys.executable, "-c", there]) < len(here)


def test_a_process_that_fails_is_not_measured() -> None:
    with pytest.raises(Failed, match=r"ended with 3: too bad"):
        peak_bytes([sys.executable, "-c", "import sys; sys.stderr.write('too bad\\n'); sys.exit(3)"])
