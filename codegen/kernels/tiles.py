"""Cutting a row of pixels and channels into register tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from codegen.target import Target

LATENCY = 8  # sums that have to be under way so that multiply-adds do not wait for one another
LINE = 16  # floats in a line of the cache
FROM_MEMORY = (
    1 << 17
)  # weights of a convolution: so many come from memory, and are fetched before they are wanted
MANY_COLUMNS = 5  # of a kernel, and
EDGE = 16  # of so many pixels one at the edge of a row: tiles at the edges are single pixels
WIDEST = 8  # vectors of channels in a tile, at most


class Channels(NamedTuple):
    """Equal tiles of channels, side by side."""

    first: int  # channel
    lanes: tuple[int, ...]  # of the vectors of a tile
    tiles: int
    empty: int = 0  # lanes of the last vector that have no channel

    @property
    def width(self) -> int:
        """Number of lanes in a tile."""
        return sum(self.lanes)

    @property
    def channels(self) -> int:
        """Number of channels in a tile."""
        return self.width - self.empty

    def start(self, tile: str, groups: int, outputs: int) -> str:
        """C expression: the first channel of a tile, counted through groups of so many channels.

        >>> Channels(32, (16,), 4).start("t", 1, 96), Channels(32, (16,), 4).start("t", 8, 96)
        ('32 + t * 16', 't / 4 * 96 + 32 + t % 4 * 16')
        """
        if groups == 1:
            return f"{self.first} + {tile} * {self.width}"
        return f"{tile} / {self.tiles} * {outputs} + {self.first} + {tile} % {self.tiles} * {self.width}"

    @property
    def cost(self) -> int:
        """Cost of a tile: its vectors."""
        return len(self.lanes)


class Pixels(NamedTuple):
    """Equal tiles of pixels, side by side, of which none or the same taps fall off the row."""

    first: int  # pixel
    size: int  # pixels of a tile
    tiles: int
    missing: frozenset[tuple[int, int]]  # (pixel of the tile, column of the kernel) beside the row
    # whether it is single pixels, of which some taps fall off the row, others of each
    edge: bool = False

    @property
    def cost(self) -> int:
        """Cost of a tile: its pixels."""
        return self.size


def added(total: str, a: str, b: str, lanes: int) -> str:
    """C statement: a product is added to a sum, and rounded as often whatever the lanes.

    >>> added("s", "a0", "w0", 8), added("s", "a0", "w0", 1)
    ('s += a0 * w0;', 's = ADDED_1(s, a0, w0);')
    """
    if lanes == 1:
        return f"{total} = ADDED_1({total}, {a}, {b});"
    return f"{total} += {a} * {b};"


def tile_costs(runs: Iterable[Channels | Pixels]) -> list[int]:
    """Cost of every tile of some runs, in their order."""
    return [run.cost for run in runs for _ in range(run.tiles)]


def vectors(channels: int, target: Target) -> list[int]:
    """Lanes of the vectors that cover `channels` exactly, widest first.

    >>> from codegen.target import TARGETS
    >>> vectors(27, TARGETS["avx512"])
    [16, 8, 1, 1, 1]
    """
    widths: list[int] = []
    for lanes in target.lanes:
        widths += [lanes] * ((channels - sum(widths)) // lanes)
    return widths


def filled_vectors(channels: int, target: Target) -> list[int]:
    """Lanes of the fewest vectors that hold `channels`; the last may have lanes to spare.

    >>> from codegen.target import TARGETS
    >>> filled_vectors(27, TARGETS["avx512"])
    [16, 16]
    """
    whole, rest = divmod(channels, target.lanes[0])
    return [target.lanes[0]] * whole + [min(lanes for lanes in target.lanes if lanes >= rest)] * (rest > 0)


def tile(channels: int, pixels: int, target: Target, *, filled: bool = False) -> tuple[list[Channels], int]:
    """(tiles of channels, pixels of a tile) that should take the least time for one input channel.

    `filled`: whether the last vector may have lanes to spare.
    """
    lanes = (filled_vectors if filled else vectors)(channels, target)
    best: tuple[float, int, int] | None = None
    for wide in range(1, min(len(lanes), WIDEST) + 1):
        most = max(1, min(pixels, target.accumulators // wide))
        across = -(-pixels // most)
        size = -(-pixels // across)
        tiles = [wide] * (len(lanes) // wide) + ([len(lanes) % wide] if len(lanes) % wide else [])
        time = across * sum(max(w * size, w + size, LATENCY) for w in tiles)
        if best is None or time < best[0]:
            best = (time, wide, size)
    assert best is not None, "a result has channels"
    across = channels_in(lanes, best[1])
    return with_empty(across, sum(lanes) - channels), best[2]


def with_empty(across: Sequence[Channels], empty: int) -> list[Channels]:
    """The same tiles, of which the last has lanes without channels."""
    *before, last = across
    if not empty:
        return [*across]
    if last.tiles > 1:
        before.append(last._replace(tiles=last.tiles - 1))
        last = last._replace(first=last.first + (last.tiles - 1) * last.width, tiles=1)
    return [*before, last._replace(empty=empty)]


def steps(channels: int, pixels: int, target: Target) -> int:
    """Time for one input channel and tap of `pixels`, in multiplications of vectors."""
    across, size = tile(channels, pixels, target, filled=True)
    return -(-pixels // size) * sum(
        each.tiles * max(len(each.lanes) * size, len(each.lanes) + size, LATENCY) for each in across
    )


def by_tile(values: np.ndarray, channels: Channels, groups: int = 1) -> np.ndarray:
    """(groups x tiles, lanes of a tile, ...): what belongs to each tile of each group.

    `values`: (output channels, ...); `channels`: tiles of a group. Lanes without a channel are 0.
    """
    of_groups = values.reshape(groups, len(values) // groups, *values.shape[1:])
    of_tiles = of_groups[:, channels.first : channels.first + channels.channels * channels.tiles]
    in_lanes = np.pad(of_tiles, [(0, 0), (0, channels.empty), *[(0, 0)] * (values.ndim - 1)])
    return in_lanes.reshape(groups * channels.tiles, channels.width, *values.shape[1:])


def channels_in(lanes: Sequence[int], wide: int) -> list[Channels]:
    """Vectors of these lanes, `wide` of them in a tile."""
    return tiles_of([tuple(lanes[k : k + wide]) for k in range(0, len(lanes), wide)])


def tiles_of(tiles: Sequence[tuple[int, ...]]) -> list[Channels]:
    """Tiles side by side, each the lanes of its vectors."""
    runs: list[Channels] = []
    for each, same in groupby(tiles):
        first = runs[-1].first + runs[-1].width * runs[-1].tiles if runs else 0
        runs.append(Channels(first, each, len([*same])))
    return runs


def with_edges(count: int, size: int, stride: int, reach: Sequence[int], width: int) -> list[Pixels] | None:
    """A row as in `pixels`, with single pixels where taps fall off the row; None where these are many.

    Tiles of the pixels between are alike, so that wide kernels have few functions.
    """
    inside = [p for p in range(count) if p * stride + min(reach) >= 0 and p * stride + max(reach) < width]
    if len(reach) < MANY_COLUMNS or len(inside) * EDGE < count * (EDGE - 1):
        return None
    first = inside[0]
    stop = inside[-1] + 1
    between = pixels(stop - first, size, stride, [0], width)
    runs = [Pixels(0, 1, first, frozenset(), edge=True)] if first else []
    runs += [part._replace(first=first + part.first, missing=frozenset()) for part in between]
    return runs + ([Pixels(stop, 1, count - stop, frozenset(), edge=True)] if stop < count else [])


def pixels(count: int, size: int, stride: int, reach: Sequence[int], width: int) -> list[Pixels]:
    """A row of `count` results, in tiles of at most `size`.

    Column k of the kernel reads, in a row of `width`, from stride x pixel + reach[k].
    """
    across = -(-count // size)
    ends = [count * k // across for k in range(across + 1)]
    tiles: list[tuple[int, int, frozenset[tuple[int, int]]]] = []
    for first, stop in pairwise(ends):
        missing = {
            (p - first, k)
            for p in range(first, stop)
            for k, by in enumerate(reach)
            if not 0 <= p * stride + by < width
        }
        tiles.append((first, stop - first, frozenset(missing)))
    runs: list[Pixels] = []
    for (length, missing), same in groupby(tiles, key=lambda item: item[1:]):
        alike = [*same]
        runs.append(Pixels(alike[0][0], length, len(alike), missing))
    return runs
