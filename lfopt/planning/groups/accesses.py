"""Operators of a network that only move data, and that a plan may read through (`lfopt.ops.access`).

A reader moves as many bytes as it would of a map that is stored, since elements lie in DRAM without padding:
on chips that pad rows, nothing is read through.
"""

from __future__ import annotations

from collections.abc import Callable

from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from lfopt.ops.access import MOST_PIECES, AccessPatterns
from lfopt.ops.pieces import Access, TooManyPieces
from lfopt.ops.table import spec


def unpadded(hardware: Hardware) -> bool:
    """Whether every element in DRAM lies next to the one before it, in one memory."""
    return hardware.dram_row_align == 1 and not hardware.l2_bytes


def readable(flow: Dataflow) -> int:
    """Mask of the operators that may be read through, in whatever groups the others run.

    Not those that make an output of the network, which is stored as a whole; nor those of whose results, or a
    view of them, there would be too many pieces.
    """
    refused = sum(1 << i for i in range(len(flow)) if any(flow.is_output[m] for m in flow.results[i]))
    while True:
        mask, viewed_in_pieces = _readable(flow, refused)
        if not viewed_in_pieces:
            return mask
        refused |= viewed_in_pieces


def _readable(flow: Dataflow, refused: int) -> tuple[int, int]:
    """(mask, refused operators left out; an operator of whose results a view lies in too many pieces)."""
    accesses = AccessPatterns(flow.graph)
    apart = AccessPatterns(flow.graph)
    mask = 0
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    for operator in flow.graph.operators:
        if spec(operator.kind, operator.domain).view:
            source = operator.inputs[0]
            name = operator.outputs[0]
            seen = _few(lambda source=source, name=name: accesses.view(source, name))
            if seen is None:
                return mask, 1 << flow.producer[flow.map_index[flow.behind[source]]]
            accesses.known |= seen
            continue
        i = index.get(operator.name)
        if i is None or refused >> i & 1:
            continue
        # read from behind all that is read through, and from operands that are stored
        far, near = (_few(lambda of=of, i=i: of.results(flow.calls[i])) for of in (accesses, apart))
        if far and near:
            accesses.known |= far
            mask |= 1 << i
    return mask, 0


def _few(pieces: Callable[[], dict[str, Access] | None]) -> dict[str, Access] | None:
    """The pieces of some tensors; None where there are none, or too many."""
    try:
        known = pieces()
    except TooManyPieces:
        return None
    few = known is not None and all(len(access) <= MOST_PIECES for access in known.values())
    if few:
        return known
    return None
