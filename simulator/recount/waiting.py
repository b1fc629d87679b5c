"""What no schedule avoids that computes nothing twice: maps that are gated by a function of their own mean, and contractions of many weights."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from lfopt.ir import Hardware
from lfopt.ops.dataflow import Dataflow
from lfopt.ops.phases import beyond_compulsory
from lfopt.ops.table import Tiling
from simulator.recount.needs import folded, folded_rows
from simulator.recount.network import Network


def gated_bytes(net: Network, hardware: Hardware, left_out: Container[str]) -> int:
    """Bytes beyond the compulsory ones.

    When such a mean has been mixed over all channels, every element of the map existed, and every one will be read: what the buffer (and the
    second level) cannot hold goes out, unless it is a result of the network anyway, and comes back.
    """
    total = 0
    for name in net.maker:
        tensor = net.tensor(name)
        over = tensor.elements * hardware.element_bytes - (hardware.buffer_bytes + hardware.l2_bytes) + 1
        if over > 0 and any(reader not in left_out for reader in _gates(net, name)):
            total += over if name in net.stored else 2 * over
    return total


def phased_bytes(net: Network, hardware: Hardware, left_out: Container[str]) -> int:
    """Bytes beyond the compulsory ones. The proof and its constants are those of `lfopt.ops.phases`: they are no part of what a recount doubts."""
    flow = Dataflow.of(net.graph)
    counted = sum(1 << i for i, operator in enumerate(flow.operators) if operator.name not in left_out)
    return beyond_compulsory(flow, hardware, hardware.buffer_bytes + hardware.weight_buffer_bytes + hardware.l2_bytes, counted)


def _gates(net: Network, name: str) -> Iterator[str]:
    """Elementwise operators that read the whole map, of whose results every element waits for all of it."""
    elements = net.tensor(name).elements
    whole = [op for op in net.readers[name] if net.specs[op].elementwise and net.tensor(net.makes[op][0]).elements == elements]
    for mean in net.readers[name] if whole else ():
        if _is_mean(net, mean):
            waiting = _waiting(net, mean)
            yield from (op for op in whole if waiting.issuperset(net.makes[op]))


def _is_mean(net: Network, op: str) -> bool:
    """Whether it folds the rows of its one operand, and leaves one element of each channel."""
    reads = net.reads[op]
    return folded_rows(net.calls[op]) > 0 and len(reads) == 1 and net.tensor(net.makes[op][0]).elements == net.tensor(reads[0].map).shape[1]


def _waiting(net: Network, mean: str) -> set[str]:
    """Maps of which every element depends on all channels of the mean, through elementwise operators and contractions."""
    carrying, waiting = set(net.makes[mean]), set[str]()  # the former: maps of which every element depends on one channel
    channels = net.tensor(net.makes[mean][0]).elements
    for op in islice(net.operators, net.position[mean] + 1, None):
        elementwise = net.specs[op].elementwise
        data = {read.map for read in net.reads[op] if elementwise or read.index == 0}
        if not elementwise and net.specs[op].tiling is not Tiling.CONTRACT:
            continue
        if data & waiting or (not elementwise and data & carrying and folded(net.calls[op]) == channels):
            waiting |= {*net.makes[op]}
        elif elementwise and data & carrying:
            carrying |= {*net.makes[op]}
    return waiting
