"""A group as a network of its own."""

from __future__ import annotations

from dataclasses import replace

from lfopt.ir import Graph, Operator
from lfopt.ops.dataflow import Dataflow, bits


def excerpt(flow: Dataflow, mask: int, stores: int | None = None) -> Graph:
    """The operators of a group, and the views between them, as a graph.

    Its inputs are the maps read from outside. `stores`: mask of the maps that are its outputs; None: those
    that are needed outside.
    """
    graph = flow.graph
    behind = flow.behind
    own, moving = set(flow.names(mask)), flow.position  # of all operators but views
    kept: list[Operator] = []
    wanted: set[str] = set()
    for operator in reversed(graph.operators):
        if operator.name in own or (operator.name not in moving and wanted.intersection(operator.outputs)):
            kept.append(operator)
            wanted.update(operator.inputs)
    produced = {name for operator in kept for name in operator.outputs}
    read = dict.fromkeys(
        behind[name] for operator in reversed(kept) for name in operator.inputs if name in behind
    )
    return replace(
        graph,
        operators=tuple(reversed(kept)),
        inputs=tuple(name for name in read if name not in produced),
        outputs=tuple(flow.maps[m].name for m in (flow.leaving(mask) if stores is None else bits(stores))),
        notes=(),
        files=(),
    ).without_unused()
