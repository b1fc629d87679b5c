"""Which kernel takes which operator, and what those say that were asked before."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
from onnx import numpy_helper

from codegen.emit import emit_c
from codegen.source import CSource, Decision
from lfopt.ir import Graph
from tests.codegen.shared import Net, fused
from tests.codegen.transformers import Net as Tokens
from tests.codegen.transformers import planned

REASON = re.compile(r"found .*accept(s|ed:) ")


def decisions(source: CSource) -> Mapping[str, Decision]:
    """By operator, those that follow another in its kernel too."""
    assert [one.function for one in source.decisions] == [*source.schedule.functions]
    assert all(REASON.search(refusal.reason) for one in source.decisions for refusal in one.refused)
    return {name: one for one in source.decisions for name in one.function.operators}


def images() -> Graph:
    """Convolutions for every kernel that there is, and an operator that none takes."""
    net = Net(1, 64, 34, 34)
    net.conv(64, pads=(1, 1, 1, 1))
    net.depthwise()
    net.add("Relu")
    net.conv(64, 1, strides=[2, 2])
    net.conv(64, group=2)
    net.add("GlobalAveragePool")
    net.conv(24, 1)
    net.add("HardSigmoid")
    net.add("CumSum", net.last, "axis")
    net.weights.append(numpy_helper.from_array(np.array(1, np.int64), "axis"))
    return net.finish()


def test_convolutions_ask_the_fastest_kernel_first() -> None:
    graph = images()
    source = emit_c(planned(graph, "resident"), graph, "avx512")
    chosen = decisions(source)
    names = {operator.name: (operator.kind, k) for k, operator in enumerate(graph.operators)}
    kinds = [(chosen[name].kernel, [refusal.kernel for refusal in chosen[name].refused]) for name in names]
    by_winograd, depthwise, vector = "Winograd convolution", "depthwise convolution", "matrix-vector product"
    of_map = "direct convolution of a whole map"
    assert kinds == [
        (by_winograd, []),
        (depthwise, [by_winograd]),
        (depthwise, [by_winograd]),  # Relu, in the same kernel
        ("direct convolution", [by_winograd, depthwise, vector, of_map]),
        (by_winograd, []),  # in groups
        ("mean over pixels", []),
        (vector, [by_winograd, depthwise]),
        (vector, [by_winograd, depthwise]),
        ("plain loops", ["any kernel"]),
    ]
    assert source.loops == {
        name: chosen[name].refused[-1].reason for name, (kind, _) in names.items() if kind == "CumSum"
    }


def test_rows_in_rings_are_no_maps_for_winograd() -> None:
    net = Net(1, 64, 34, 34)
    net.conv(64)
    net.conv(64)
    graph = net.finish()
    refused = {
        refusal.reason
        for one in emit_c(fused(graph), graph, "avx512").decisions
        for refusal in one.refused
        if "Winograd" in refusal.kernel
    }
    assert all("found rows in rings" in reason for reason in refused) and len(refused) == 2


@pytest.mark.parametrize(("queries", "fused"), [(16, True), (4, False)])
def test_an_attention_in_parts_says_why(queries: int, *, fused: bool) -> None:
    net = Tokens(q=(1, queries, 8), k=(1, 32, 8), v=(1, 32, 8))
    scores = net.add("Softmax", net.add("MatMul", "q", net.add("Transpose", "k", perm=[0, 2, 1])), axis=-1)
    mixed = net.add("MatMul", scores, "v")
    graph = net.graph(mixed)
    one = decisions(emit_c(planned(graph, "all"), graph, "avx512"))[mixed]
    assert (one.kernel == "attention") == fused
    assert [refusal.kernel for refusal in one.refused] == ([] if fused else ["attention"])
    assert fused or "found 4 queries" in one.refused[0].reason
