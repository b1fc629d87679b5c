"""The oldest opset in which a graph's operators are what they are in the newest, for older runtimes."""

from __future__ import annotations

import onnx

from lfopt.ir import Graph, Operator

# Operators whose newest form says more than that of opset 13, which has these attributes alone; with no
# others, on these types, they mean the same.
AS_IN_13: dict[str, frozenset[str]] = {
    "Cast": frozenset({"to"}),
    "DepthToSpace": frozenset({"blocksize", "mode"}),
    "DequantizeLinear": frozenset({"axis"}),
    "QuantizeLinear": frozenset({"axis"}),
    "SpaceToDepth": frozenset({"blocksize"}),
}
TYPES_OF_13 = frozenset({"bool", "float32", "int8", "int32", "int64", "uint8"})


def oldest_opset(graph: Graph) -> int:
    """Oldest opset, from 13 on, that the graph may be marked with instead of its own.

    Source: since_version of ONNX's own schemas.
    """
    return max((_oldest_opset(graph, operator) for operator in graph.operators), default=13)


def _oldest_opset(graph: Graph, operator: Operator) -> int:
    if operator.domain:
        return 13
    if not onnx.defs.has(operator.kind):
        return graph.opset
    known = AS_IN_13.get(operator.kind)
    plain = all(
        not name or graph.tensors[name].dtype in TYPES_OF_13 for name in (*operator.inputs, *operator.outputs)
    )
    if known is not None and plain and operator.attributes.keys() <= known:
        return 13
    return max(onnx.defs.get_schema(operator.kind, graph.opset).since_version, 13)
