"""Feature maps as the accelerator has them: channels in blocks of lanes, packed in DRAM, padded on chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from codegen.source import Unsupported
from lfopt.ir import Box, Graph, InvalidPlan, Plan, Span, StoredMap, Tensor, round_up
from lfopt.isa.tables import BEAT_BYTES
from lfopt.ops import Dataflow
from lfopt.planning import stored_maps

ALIGN = 64  # bytes: where a map begins
ADDRESSED_BYTES = 1 << 32  # of DRAM


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Addresses of a plan's maps in DRAM: inputs, then everything that is stored."""

    maps: Mapping[str, StoredMap]
    inputs: tuple[StoredMap, ...]
    outputs: tuple[StoredMap, ...]
    end: int  # first byte behind all of them


@dataclass(frozen=True, slots=True)
class Extent:
    """A box of a map: channels, rows, columns."""

    channels: Span
    rows: Span
    columns: Span

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.columns[1] - self.columns[0]

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.rows[1] - self.rows[0]

    @property
    def depth(self) -> int:
        """Number of channels."""
        return self.channels[1] - self.channels[0]


def extent(tensor: Tensor | StoredMap, box: Box) -> Extent:
    """A box of a map in channels, rows and columns.

    Raises Unsupported for maps that are neither [1, c, h, w] nor [1, c].
    """
    shape = tensor.shape
    if len(shape) == 4 and shape[0] == 1:
        return Extent(box[1], box[2], box[3])
    if len(shape) == 2 and shape[0] == 1:
        return Extent(box[1], (0, 1), (0, 1))
    raise Unsupported(
        f"tensor {tensor.name!r}: found shape {list(shape)}; the accelerator accepts [1, C, H, W] and [1, C]"
    )


def dimensions(tensor: Tensor | StoredMap) -> tuple[int, int, int]:
    """Channels, rows and columns of a map."""
    whole = extent(tensor, tuple((0, size) for size in tensor.shape))
    return whole.depth, whole.height, whole.width


def packed(values: np.ndarray, stored: StoredMap, lanes: int) -> bytes:
    """(rows * stored.row_bytes,) bytes: a map, (1, c, h, w) or (1, c) one-byte integers, as it lies in DRAM.

    `lanes`: channels of a block.
    """
    rows = values.reshape(dimensions(stored)).view(np.uint8).transpose(1, 0, 2)  # [h, c, w]
    pieces = [
        rows[:, c : c + lanes].transpose(0, 2, 1).reshape(len(rows), -1)
        for c in range(0, rows.shape[1], lanes)
    ]
    dense = np.concatenate(pieces, axis=1)
    return np.pad(dense, ((0, 0), (0, stored.row_bytes - dense.shape[1]))).tobytes()


def unpacked(memory: np.ndarray, stored: StoredMap, lanes: int) -> np.ndarray:
    """(1, c, h, w) or (1, c) of the map's type, from `memory`, (memory_bytes,) uint8.

    `lanes`: channels of a block.
    """
    c, h, w = dimensions(stored)
    rows = memory[stored.address : stored.address + h * stored.row_bytes].reshape(h, stored.row_bytes)
    values = np.empty((c, h, w), np.uint8)
    at = 0
    for first in range(0, c, lanes):
        n = min(lanes, c - first)
        values[first : first + n] = rows[:, at : at + w * n].reshape(h, w, n).transpose(2, 0, 1)
        at += w * n
    return values.view(stored.dtype).reshape(stored.shape)


def memory_map(plan: Plan, graph: Graph, address: int) -> MemoryMap:
    """The maps of a plan, one behind the other from `address` on.

    Raises Unsupported, and InvalidPlan for maps that the network does not have.
    """
    flow = Dataflow.of(graph)
    stored = dict.fromkeys(name for group in plan.groups for name in stored_maps(flow, group))
    maps: dict[str, StoredMap] = {}
    for name in [*graph.inputs, *stored]:
        if name not in graph.tensors:
            raise InvalidPlan(f"groups: found output {name!r}; accepted: a map of the network")
        tensor = graph.tensors[name]
        channels, rows, columns = dimensions(tensor)
        size = round_up(channels * columns, BEAT_BYTES)
        maps[name] = StoredMap(name, tensor.shape, tensor.dtype, address, size)
        address = round_up(address + size * rows, ALIGN)
    if address > ADDRESSED_BYTES:
        raise Unsupported(
            f"the network's maps: found {address} bytes; the accelerator addresses {ADDRESSED_BYTES}"
        )
    behind = flow.behind
    outputs = [behind.get(name, name) for name in graph.outputs]
    if absent := [name for name in outputs if name not in maps]:
        raise InvalidPlan(f"groups: found none that stores {absent[0]!r}, an output of the network")
    inputs = tuple(maps[name] for name in graph.inputs)
    return MemoryMap(maps, inputs, tuple(maps[name] for name in outputs), address)
