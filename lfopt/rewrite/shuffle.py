"""Channel shuffles, exported as Reshape, Transpose and Reshape, as one Gather along channels.

So rows of the map stay rows.
"""

from __future__ import annotations

from math import prod

import numpy as np

from lfopt.ir import Graph, Operator
from lfopt.rewrite.mutable_graph import MutableGraph


def shuffles_as_gathers(graph: Graph) -> Graph:
    """Shuffles of the channels of maps [1, c, h, w], as Gather.

    They are cut into [1, a, b, .., h, w], transposed along a, b, .. alone and put together again.

    Source: the channel shuffle of ShuffleNet, arXiv 1707.01083, section 3.1.
    """
    mutable = MutableGraph(graph)
    for operator in graph.operators:
        if (shuffle := _shuffle(mutable, operator)) is not None:
            source, order = shuffle
            indices = mutable.add_constant(f"{operator.name}.channels", order.shape, "int64", order)
            mutable.change(
                Operator(
                    operator.name,
                    "Gather",
                    (source, indices),
                    operator.outputs,
                    {"axis": 1},
                    origin=operator.origin,
                )
            )
    mutable.drop_dead()
    return mutable.finish()


def _shuffle(mutable: MutableGraph, last: Operator) -> tuple[str, np.ndarray] | None:
    """(map, (c,) its channel for each channel of the result) of a Reshape that ends a shuffle; else None."""
    turn = mutable.maker(last.inputs[0]) if last.kind == "Reshape" else None
    first = mutable.maker(turn.inputs[0]) if turn is not None and turn.kind == "Transpose" else None
    if (
        turn is None
        or first is None
        or first.kind != "Reshape"
        or any(part.domain for part in (last, turn, first))
    ):
        return None
    source, cut, shape_out = (
        mutable.tensors[name].shape for name in (first.inputs[0], first.outputs[0], last.outputs[0])
    )
    axes = turn.attributes.get("perm", tuple(reversed(range(len(cut)))))
    assert isinstance(axes, tuple)
    inner = len(cut) - 2
    whole = (
        len(source) == 4
        and source == shape_out
        and source[0] == cut[0] == 1
        and cut[inner:] == source[2:]
        and prod(cut[1:inner]) == source[1]
    )
    kept = whole and axes[0] == 0 and tuple(axes[inner:]) == (inner, inner + 1)
    if (
        not kept
        or mutable.only_reader(first.outputs[0]) is not turn
        or mutable.only_reader(turn.outputs[0]) is not last
    ):
        return None
    order = (
        np.arange(source[1], dtype=np.int64)
        .reshape(cut[1:inner])
        .transpose([int(axis) - 1 for axis in axes[1:inner]])
    )
    return first.inputs[0], np.ascontiguousarray(order).reshape(-1)
