"""Small graphs written as lines of text, and what all tests ask of a rewritten one.

"m = ReduceMean(x, axes) keepdims=1"
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import numpy_helper
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
)

from lfopt.frontend import from_model
from lfopt.ir import Graph
from lfopt.ops.reference import reference
from lfopt.rewrite import Rewriting, rewrite
from tests.frontend.small_models import NEWEST


def graph_of(
    *lines: str,
    inputs: Mapping[str, Sequence[int]],
    constants: Mapping[str, object] | None = None,
    outputs: Sequence[str] = ("y",),
    dtype: str = "float32",
    dtypes: Mapping[str, str] | None = None,
) -> Graph:
    """A graph; constants that are Python numbers or lists take the graph's type, NumPy arrays keep theirs."""
    types = {
        name: np_dtype_to_tensor_dtype(np.dtype((dtypes or {}).get(name, dtype)))
        for name in (*inputs, *outputs)
    }
    values = {
        name: v if isinstance(v, np.ndarray) else np.asarray(v, dtype)
        for name, v in (constants or {}).items()
    }
    graph = make_graph(
        [_node(line) for line in lines],
        "small",
        [make_tensor_value_info(name, types[name], shape) for name, shape in inputs.items()],
        [make_tensor_value_info(name, types[name], None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return from_model(make_model(graph, opset_imports=[make_opsetid("", NEWEST)], ir_version=11))


def _node(line: str):
    results, _, rest = line.partition(" = ")
    head, _, told = rest.partition(")")
    kind, _, read = head.partition("(")
    attributes = {k: ast.literal_eval(v) for k, v in (word.split("=") for word in told.split())}
    names = [name.strip() for name in results.split(",")]
    return make_node(
        kind,
        [name.strip() for name in read.split(",")] if read else [],
        names,
        name=f"make_{names[0]}",
        **attributes,
    )


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def kinds(graph: Graph) -> list[str]:
    return [operator.kind for operator in graph.operators]


def feeds_of(graph: Graph, seed: int = 0, shift: float = 0.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        kind = np.dtype(tensor.dtype).kind
        values = (
            rng.standard_normal(tensor.shape) + shift
            if kind == "f"
            else rng.integers(0, 2 if kind == "b" else 5, tensor.shape)
        )
        feeds[name] = values.astype(tensor.dtype)
    return feeds


def rewritten(graph: Graph, rules="all", tolerance: float = 1e-5, shift: float = 0.0) -> Rewriting:
    """The graph rewritten: same values, same inputs and outputs, unique names."""
    done = rewrite(graph, rules)
    after = done.graph
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    assert [after.tensors[t] for t in (*graph.inputs, *graph.outputs)] == [
        graph.tensors[t] for t in (*graph.inputs, *graph.outputs)
    ]
    results = [name for operator in after.operators for name in operator.outputs if name]
    assert len(set(results)) == len(results)
    assert len({operator.name for operator in after.operators}) == len(after.operators)
    feeds = feeds_of(graph, shift=shift)
    wanted, outputs = reference(graph, feeds), reference(after, feeds)
    for name in graph.outputs:
        assert outputs[name].dtype == wanted[name].dtype
        scale = max(np.abs(wanted[name]).max(), 1e-6)
        assert np.abs(outputs[name].astype(np.float64) - wanted[name]).max() <= tolerance * scale, name
    return done


def without_values(graph: Graph) -> Graph:
    """The graph as read from a file without weights: only scalars and whole numbers have values."""
    constants = {
        name: v if v is None or v.size == 1 or v.dtype.kind in "iub" else None
        for name, v in graph.constants.items()
    }
    return replace(graph, constants=constants)
