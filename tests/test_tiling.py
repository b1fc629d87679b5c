"""Operators that do not fit the buffer: what their tilings move, that it fits, and that more buffer never costs more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.ir import Cost, Graph, Hardware, dram_bytes
from lfopt.ops import OPAQUE, Dataflow
from lfopt.planning import GroupCosts
from lfopt.planning.contractions import Bands, Grid, Slices
from lfopt.planning.lbdf import LineBuffers
from lfopt.planning.tiles import Tile, Tiles, schedule
from lfopt.planning.work import CHANNELS, Work, channel_blocks
from simulator.recount import Network, count
from tests.strategies import random_graph, random_hardware

KIB = 1024
CHIPS = [Hardware(1), Hardware(1, dram_row_align=16, channel_align=4), Hardware(1, element_bytes=1, bias_bytes=4)]


def groups_to_tile(flow: Dataflow) -> list[int]:
    """One operator of every distinct kind, attributes and shapes; and the epilogue groups of two or three operators."""
    costs = GroupCosts(flow, Hardware(1))
    seen: dict[object, int] = {}
    for i, call in enumerate(flow.calls):
        if flow.specs[i] is not OPAQUE:
            seen.setdefault((call.operator.kind, repr(sorted(call.operator.attributes.items())), call.shapes, call.constant, call.results), 1 << i)
    pairs = [1 << i | 1 << j for i in range(len(flow)) for j in range(i + 1, min(i + 4, len(flow)))]
    triples = [pair | 1 << k for pair in pairs for k in range(pair.bit_length(), min(pair.bit_length() + 3, len(flow)))]
    return [*seen.values(), *(mask for mask in (*pairs, *triples) if costs.is_epilogue_group(mask))]


def needed(flow: Dataflow, mask: int, hardware: Hardware) -> int:
    """Buffer bytes of the group whole, under line buffers."""
    return GroupCosts(flow, hardware).buffer_bytes(mask)


def random_flows(seeds: Iterable[int], operators: int) -> Iterator[Dataflow]:
    for seed in seeds:
        yield Dataflow.of(random_graph(np.random.default_rng(seed), operators))


# -- what a tiling is ----------------------------------------------------------------------------------------------------------------------


def check(tiles: Tiles, mask: int, tile: Tile) -> None:
    """The schedule moves what the tiling says, in the space that it says, which is less than the buffer."""
    work, hardware = tiles.work(mask), tiles.hardware
    places, steps = schedule(work, tile)
    what = f"{tiles.flow.names(mask)} on {hardware}: {tile}"
    assert dram_bytes(steps) == tile.dram, f"{what}: steps move {dram_bytes(steps)}"
    assert max(place.end for place in places) == tile.buffer_bytes < hardware.buffer_bytes, what
    assert sorted(place.address for place in places)[0] == 0, what
    assert all(a.end == b.address for a, b in zip(places, places[1:], strict=False)), what
    if hardware.dram_row_align == 1:
        assert tile.dram.total >= work.once.total, what
        assert tile.dram.output == work.once.output, what  # nothing is stored twice
    assert tile.dram.weight >= work.once.weight, what


def scan(flow: Dataflow, mask: int, hardware: Hardware, sizes: Iterable[int]) -> tuple[Counter[str], int]:
    """Check the tilings of one group over growing buffers. Returns (tilings by kind, times that more buffer moved fewer bytes)."""
    kinds: Counter[str] = Counter()
    rings = LineBuffers(flow).ring_rows
    before, falls = None, 0
    for size in sizes:
        tiles = Tiles(flow, replace(hardware, buffer_bytes=size), rings)
        tile = tiles.best(mask)
        kinds[tile.kind] += 1
        if tile.kind != "none":
            check(tiles, mask, tile)
        if before is not None:
            assert tile.dram.total <= before.dram.total, f"{flow.names(mask)} at {size} B on {hardware}: {tile}, with less buffer {before}"
            assert before.kind == "none" or tile.kind != "none"
            falls += tile.dram.total < before.dram.total
        before = tile
    return kinds, falls
