"""Contractions whose weights any schedule without recomputation must load, for `lfopt.ops.phases`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lfopt.ir import Hardware
from lfopt.ops import Dataflow, bits
from lfopt.ops.content import contents
from lfopt.ops.phases import MapContraction, keeps_elements, products_of


def uses(flow: Dataflow, hardware: Hardware, counted: int) -> Iterator[MapContraction]:
    """Contractions of the mask `counted` that are the only readers of their weights, in whatever shape.

    Their operand has every element of a map once.
    """
    read = {w.name for weights in flow.weights for w in weights}
    graph = flow.graph
    held = {name: content.key for name, content in contents(read, graph.tensors, graph.constants).items()}
    readers = Counter(key for weights in flow.weights for key in {held[w.name] for w in weights})
    for i in bits(counted):
        data = [o.map for o in flow.operands[i] if o.input == 0]
        if (
            len(data) != 1
            or any(readers[held[w.name]] > 1 for w in flow.weights[i])
            or (root := _laid_out(flow, data[0])) is None
        ):
            continue
        own = sum(hardware.constant_bytes(w.elements, bias=w.bias, pieces=w.pieces) for w in flow.weights[i])
        own += sum(hardware.dram_bytes(flow.maps[m]) for m in flow.results[i] if flow.is_output[m])
        if (products := products_of(flow.calls[i], flow.maps[root].elements, own)) is not None:
            yield MapContraction(
                flow.maps[root].name,
                hardware.dram_bytes(flow.maps[root]) if flow.producer[root] < 0 else 0,
                products,
            )


def _laid_out(flow: Dataflow, m: int) -> int | None:
    """The map whose elements, each once, the map `m` has; None where that is not known."""
    while (producer := flow.producer[m]) >= 0 and (kept := keeps_elements(flow.specs[producer])) is not False:
        if kept is None or not flow.operands[producer]:  # nothing is known, or it has constants alone
            return None
        m = flow.operands[producer][0].map
    return m
