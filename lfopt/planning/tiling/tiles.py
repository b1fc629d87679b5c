"""Tilings of a single operator (with its epilogue) that exceeds the buffer, and the bytes they move.

Five schedules; the one with the fewest bytes wins. Every set of choices grows with the buffer, so more buffer
never costs more bytes.

    frames   blocks of output channels, each in column strips; the group runs row by row on each of them
             (`lfopt.planning.line_buffers.walk`): weights move once, an input that every block reads
             moves once per block
    bands    (contractions) bands of output rows, on column strips; the weights pass once per band through a
             double-buffered slice
    slices   (contractions) tiles of rows x columns x channels whose partial sums stay on chip while the input
             channels pass slice by slice
    folds    (reductions over rows) blocks of the result whose partial sums, or extremes, stay on chip while
             the input rows pass band by band
    grid     tiles along any axes, for whatever operator (`lfopt.planning.tiling.grids`): where none of the
             others reaches the fewest bytes

A contraction is an operator whose operand 1 (weights, or a second matrix) meets operand 0. Operators that are
neither are cut into frames and grids only. What is counted is what the steps of the schedule move: halos, and
the padding of rows that are cut, included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations
from math import ceil, prod

from lfopt.ir import NEVER, DramBytes, Hardware, Node, Place, row_axis
from lfopt.ops import Dataflow, bits
from lfopt.ops.attention import window_of
from lfopt.ops.compute import folding
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.contraction_bands import ContractionBands
from lfopt.planning.tiling.contractions import UNREACHED, ContractionSlices, TileExtents
from lfopt.planning.tiling.folds import Folds
from lfopt.planning.tiling.frames import Frames
from lfopt.planning.tiling.grids import Grids
from lfopt.planning.tiling.tiling_region import CHANNELS, MOST_FRAMES, TilingRegion, powers

MOST_STRIPS = 1 << 20  # of columns, in a tiling


@dataclass(frozen=True, slots=True)
class Tile:
    """A chosen tiling."""

    kind: str  # frames | bands | slices | folds | grid | none: no tiling fits
    dram: DramBytes
    buffer_bytes: int
    iterations: int = 0  # times that the anchor runs on a frame, a block, a slice or a band
    weight_passes: int = 1  # times that operand 1 is loaded
    # (axis, extent) of a frame or tile, outermost loop first; axis CHANNELS: output channels
    blocks: tuple[tuple[int, int], ...] = ()
    rows: int = 0  # output rows in a band, tile or block
    # input channels in a slice, input rows in a band that is folded, extent of a part that a grid folds
    inputs: int = 0
    finish: int = 0  # rows of a tile that the last slice finishes at a time
    width: int | None = None  # see `TilingRegion`


class Tiles:
    """Tilings of one dataflow, on a chip with whatever buffer."""

    def __init__(self, flow: Dataflow, hardware: Hardware, rings: Callable[[int], dict[int, int]]) -> None:
        self.flow = flow
        self.rings = rings
        self.layout = BufferLayout(flow, hardware)
        self._known: dict[object, tuple[int, Tile]] = {}  # a buffer, and the best tiling on it
        self._keys: dict[int, object] = {}
        self._grids: dict[object, Grids] = {}
        self._smallest: dict[object, int] = {}

    def best(self, mask: int, beta: int, width: int | None = None) -> Tile:
        """The tiling of a single operator or epilogue group that fits and moves the fewest DRAM bytes.

        It takes less than `beta` bytes of buffer. `width`: see `TilingRegion`. Blocks as narrow as the chip
        can have move the fewest bytes; wider ones may fill a MAC array better, or need fewer iterations.
        """
        if mask not in self._keys:
            self._keys[mask] = signature(self.flow, mask)
        key = self._keys[mask], width
        on, tile = self._known.get(key, (0, None))
        # the best tiling on a larger buffer is the best on this one, if it fits
        known = tile is not None and (
            on > beta and tile.buffer_bytes < beta if tile.kind != "none" else beta <= on
        )
        if tile is None or not (on == beta or known):
            region = self.region(mask, width)
            if key not in self._grids:
                self._grids[key] = Grids(region)
            tile = replace(best_tiling(region, self._grids[key], beta), width=width)
            self._known[key] = beta, tile
        return tile

    def smallest(self, mask: int) -> int:
        """Buffer bytes of the smallest step that a tiling of this group has; NEVER if it has none."""
        key = self._keys.setdefault(mask, signature(self.flow, mask)), None
        if key not in self._smallest:
            region = self.region(mask)
            self._smallest[key] = smallest_step(region, self._grids.setdefault(key, Grids(region)))
        return self._smallest[key]

    def region(self, mask: int, width: int | None = None) -> TilingRegion:
        """The region of a group that a tiling cuts up."""
        return TilingRegion(self.layout, mask, self.rings(mask), width)


def best_tiling(region: TilingRegion, grids: Grids, beta: int) -> Tile:
    """The tiling of a region that takes less than `beta` bytes and moves the fewest.

    `grids`: of that region, or of one like it.
    """
    best: Tile | None = None
    for choices in _kinds(region, grids):
        for tile in choices(region, beta, best):
            best = tile if best is None or _order(tile) < _order(best) else best
            if best.dram.total <= region.once.total:
                return best
    return best or Tile("none", region.once, finest_step(region, grids))


def _order(tile: Tile) -> tuple[int, int]:
    """Sort key: DRAM bytes, then iterations."""
    return tile.dram.total, tile.iterations


# -- choices -------------------------------------------------------------------------------------------------


# (region, buffer bytes, best so far) -> tilings that may be better
Choices = Callable[[TilingRegion, int, Tile | None], Iterator[Tile]]


def _kinds(region: TilingRegion, grids: Grids) -> Sequence[Choices]:
    in_grids = partial(_in_grids, grids)
    if not region.uniform or region.huge:
        return (in_grids,)
    if not region.contracts:
        return (_split, _folds, _split_twice, in_grids)
    if not region.rows_apart:
        return (partial(_on_strips, least=1, most=1), in_grids)
    return (partial(_on_strips, least=1, most=1), _slices, partial(_on_strips, least=2, most=MOST_STRIPS))


def _axes(region: TilingRegion) -> list[int]:
    rank = len(region.shape)
    channels = [1] if rank > 2 else []
    order = dict.fromkeys([*channels, *reversed(range(rank))])
    return [
        axis for axis in order if axis != row_axis(region.shape) and region.shape[axis] > region.finest(axis)
    ]


def _split(region: TilingRegion, beta: int, best: Tile | None) -> Iterator[Tile]:
    """Frames of an operator other than a contraction, along one axis."""
    for axis in _axes(region):
        yield from _evenly(region, beta, (), axis, best)


def _split_twice(
    region: TilingRegion, beta: int, best: Tile | None, *, finest: bool = False
) -> Iterator[Tile]:
    """Frames along two axes, where one is not enough or moves more. `finest`: see `_evenly`.

    To cut a frame once more never moves less.
    """
    axes = _axes(region)
    for outer in axes:
        if ceil(region.shape[outer] / region.grain(outer)) > MOST_FRAMES:
            continue
        if (
            best is not None
            and region.cost(region.frames(((outer, region.finest(outer)),)))[0].total >= best.dram.total
        ):
            continue
        for inner in axes:
            for tile in (
                _evenly(region, beta, ((outer, region.finest(outer)),), inner, best, finest=finest)
                if inner != outer
                else ()
            ):
                best = tile if best is None or _order(tile) < _order(best) else best
                yield tile


def _evenly(
    region: TilingRegion,
    beta: int,
    others: tuple[tuple[int, int], ...],
    axis: int,
    best: Tile | None,
    *,
    finest: bool = False,
) -> Iterator[Tile]:
    """Blocks of every size that fit; `finest`: of the smallest size alone.

    What an operator reads for a block may be read for others too, so the largest is not always the best.
    """
    repeats = prod(ceil(region.shape[outer] / extent) for outer, extent in others)
    sizes = [size for size in region.sizes(axis) if repeats * ceil(region.shape[axis] / size) <= MOST_FRAMES]
    for size in sizes[-1:] if finest else sizes:
        if (
            others
            and best is not None
            and region.cost(region.frames(((axis, size),)))[0].total >= best.dram.total
        ):
            continue
        blocks = (*others, (axis, size))
        if region.buffer_bytes(region.end_frames(blocks)) >= beta:
            continue
        frames = region.frames(blocks)
        dram, buffer_bytes = region.cost(frames)
        if buffer_bytes < beta:
            tile = Tile("frames", dram, buffer_bytes, len(frames), blocks=blocks)
            yield tile
            if dram.total <= region.once.total:
                return
            best = tile if best is None or _order(tile) < _order(best) else best


def _folds(region: TilingRegion, beta: int, best: Tile | None) -> Iterator[Tile]:
    """Bands of the rows that are folded, as high as fit. What moves does not depend on their height."""
    if not region.folds:
        return
    folds = Folds(region)
    for cuts in _ever_finer(region):
        if best is not None and folds.dram(cuts[0][:-1]).total >= best.dram.total:
            continue
        for blocks in cuts[
            bisect_left(range(len(cuts)), x=True, key=lambda k: folds.highest(cuts[k], beta) > 0) :
        ]:
            inputs = folds.highest(blocks, beta)
            tile = Tile(
                "folds",
                folds.dram(blocks),
                folds.need(blocks, inputs),
                folds.iterations(blocks, inputs),
                1,
                blocks,
                folds.rows(blocks),
                inputs,
            )
            yield tile
            best = tile if best is None or _order(tile) < _order(best) else best


def _ever_finer(region: TilingRegion) -> Iterator[list[tuple[tuple[int, int], ...]]]:
    """Blocks of a reduction's result, ever finer.

    All of it; cut along one axis, from large to small; cut so along one more, finely along the others.
    """
    yield [()]
    axes = [axis for axis, _ in _finest(region)]
    for count in range(len(axes)):
        for before in combinations(axes, count):
            finest = tuple((axis, region.finest(axis)) for axis in before)
            for axis in (axis for axis in axes if axis not in before):
                yield [(*finest, (axis, size)) for size in region.sizes(axis)[1:]]


def _finest(region: TilingRegion) -> tuple[tuple[int, int], ...]:
    """A reduction's result cut as finely as can be."""
    axes = _axes(region)
    return tuple(
        (axis, region.finest(axis))
        for axis in (
            *axes,
            *(a for a, extent in enumerate(region.shape) if extent > region.finest(a) and a not in axes),
        )
    )


def _on_strips(
    region: TilingRegion, beta: int, best: Tile | None, *, least: int, most: int
) -> Iterator[Tile]:
    """A contraction in blocks of output channels or in bands of rows, on column strips."""
    width = region.columns.rows_out if region.columns else 1
    for strips in (count for count in powers(width) if least <= count <= most):
        extent = ceil(width / strips)
        if not region.movable(-1, extent):
            continue
        if best is not None and region.once.total + region.halo_bytes(extent) >= best.dram.total:
            # narrower strips may yet share less: where they begin with windows of a ConvTranspose or stride
            continue
        columns = () if strips == 1 else ((len(region.shape) - 1, extent),)
        for tile in chain(
            _largest(region, beta, columns, CHANNELS, region.channel_sizes(), best),
            _bands(region, beta, columns, best),
        ):
            best = tile if best is None or _order(tile) < _order(best) else best
            yield tile


def _largest(
    region: TilingRegion,
    beta: int,
    others: tuple[tuple[int, int], ...],
    axis: int,
    sizes: Sequence[int],
    best: Tile | None = None,
) -> Iterator[Tile]:
    """The largest blocks that fit.

    Where rows or blocks of constants are padded, those that move the fewest bytes.
    """

    def blocks(size: int) -> tuple[tuple[int, int], ...]:
        if axis == CHANNELS:
            return ((axis, size), *others)
        return (*others, (axis, size))

    def need(size: int) -> int:
        frames = region.frames(blocks(size))
        return region.buffer_bytes([*frames[:3], *frames[-2:]])

    for size in sizes[bisect_left(range(len(sizes)), x=True, key=lambda k: need(sizes[k]) < beta) :]:
        if best is not None and axis == CHANNELS and region.least_bytes(size, others) >= best.dram.total:
            return
        frames = region.frames(blocks(size))
        dram, buffer_bytes = region.cost(frames)
        if buffer_bytes < beta:
            tile = Tile("frames", dram, buffer_bytes, len(frames), blocks=blocks(size))
            yield tile
            best = tile if best is None or _order(tile) < _order(best) else best
            plain = region.layout.hardware.dram_row_align == 1 and not region.layout.hardware.pads_constants
            if plain or dram.total <= region.once.total or region.unpadded(frames) >= best.dram.total:
                return


def _bands(
    region: TilingRegion, beta: int, columns: tuple[tuple[int, int], ...], best: Tile | None
) -> Iterator[Tile]:
    """The highest bands that fit, evened out."""
    if not region.rows_apart:
        return
    bands = ContractionBands(region, columns)
    height = bands.height
    if (
        best is not None
        and region.once.total + (bands.passes(height) - 1) * bands.weight_bytes >= best.dram.total
    ):
        return
    first = bisect_left(range(height), x=True, key=lambda k: bands.need(height - k) < beta)
    if first == height:
        return
    rows = ceil(height / ceil(height / (height - first)))
    if bands.need(rows) >= beta:
        rows = height - first
    passes = bands.passes(rows)
    yield Tile("bands", bands.dram(rows), bands.need(rows), passes * len(bands.blocks), passes, columns, rows)


def _slices(region: TilingRegion, beta: int, best: Tile | None) -> Iterator[Tile]:
    """Tiles whose partial sums stay on chip: of every shape that may move less, the highest that fit."""
    if not region.rows_apart:
        return
    slices = ContractionSlices(region)
    once = region.once
    for shape in slices.shapes():
        spare = UNREACHED if best is None else best.dram.total - once.total
        if slices.least_again(shape, beta, spare) >= spare:
            continue
        for by_row in (False, True):
            at = partial(slices.as_high, shape, by_row=by_row)
            heights = slices.heights(shape, by_row=by_row)
            if not heights or slices.need(at(heights[0])) >= beta:
                continue
            fitting = bisect_left(heights, x=True, key=lambda rows: slices.need(at(rows)) >= beta)
            grid = at(heights[fitting - 1])
            if (
                best is not None
                and once.total + (slices.passes(grid) - 1) * slices.weight_bytes >= best.dram.total
            ):
                continue
            tile = _slice_tile(slices, grid)
            if best is None or _order(tile) < _order(best):
                best = _widened(slices, grid, tile, beta)
                yield best


def _slice_tile(slices: ContractionSlices, grid: TileExtents) -> Tile:
    blocks = ((CHANNELS, grid.channels), (-1, grid.columns))
    iterations = slices.iterations(grid)
    passes = slices.passes(grid)
    extents = grid.rows, grid.inputs, grid.finish
    return Tile("slices", slices.dram(grid), slices.need(grid), iterations, passes, blocks, *extents)


def _widened(slices: ContractionSlices, grid: TileExtents, tile: Tile, beta: int) -> Tile:
    """The tiling with larger tiles and slices that fit and move as many bytes: fewer iterations."""
    most = TileExtents(
        slices.reads.rows_out, slices.columns_out, slices.per_group, slices.depth, slices.reads.rows_out
    )
    for name in ("inputs", "columns", "channels", "rows", "finish"):
        while (extent := getattr(grid, name)) < getattr(most, name):
            larger = replace(grid, **{name: min(2 * extent, getattr(most, name))})
            if grid.finish == grid.rows or larger.finish > larger.rows or larger.inputs == slices.depth:
                larger = replace(larger, finish=larger.rows)
            if (
                larger == grid
                or not slices.region.movable(-1, larger.columns)
                or slices.need(larger) >= beta
                or (wider := _slice_tile(slices, larger)).dram.total != tile.dram.total
            ):
                break
            grid = larger
            tile = wider
    return tile


def smallest_step(region: TilingRegion, grids: Grids) -> int:
    """Buffer bytes of the smallest step of any tiling; NEVER if there is none. Found by halving."""
    # grids come last, and say the soonest that there are some
    reverse = reversed(_kinds(region, grids))
    kinds = [partial(_split_twice, finest=True) if kind is _split_twice else kind for kind in reverse]

    def fits(beta: int) -> bool:
        return any(True for choices in kinds for _ in choices(region, beta, None))

    finest = finest_step(region, grids)
    enough = finest + 1
    while not fits(enough):  # the finest cut may have too many tiles
        if enough >= NEVER:
            return NEVER
        enough *= 2
    too_small = finest if enough == finest + 1 and not fits(finest) else 0
    return bisect_left(range(1, enough), x=True, lo=too_small, key=fits)


def finest_step(region: TilingRegion, grids: Grids) -> int:
    """Buffer bytes of a step of the finest tiling; one of another kind may have a smaller step."""
    if region.uniform and region.contracts and region.rows_apart and not region.huge:
        slices = ContractionSlices(region)
        return min(slices.need(shape) for shape in slices.shapes())
    return grids.smallest


def _in_grids(grids: Grids, region: TilingRegion, beta: int, best: Tile | None) -> Iterator[Tile]:
    """Tiles along any axes."""
    cut = grids.best(beta, None if best is None else best.dram.total)
    if cut is not None:
        yield Tile("grid", cut.dram, cut.need, cut.tiles, 1, cut.blocks, cut.rows, cut.grids[0].parts)


def schedule(
    region: TilingRegion, tile: Tile, limit: Limit | None = None
) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
    """Places and steps of a tiling. Raises Unwritten beyond the limit."""
    limit = limit or Limit()
    if tile.kind == "frames":
        return Frames(region.layout, region.mask, region.rings, region.frames(tile.blocks)).schedule(limit)
    if tile.kind == "bands":
        return ContractionBands(region, tile.blocks).schedule(tile.rows, limit)
    if tile.kind == "folds":
        return Folds(region).schedule(tile.blocks, tile.inputs, limit)
    if tile.kind == "grid":
        return Grids(region).at(tile.blocks, tile.inputs).schedule(limit)
    (_, channels), (_, columns) = tile.blocks
    return ContractionSlices(region).schedule(
        TileExtents(tile.rows, columns, channels, tile.inputs, tile.finish), limit
    )


def signature(flow: Dataflow, mask: int) -> object:
    """Structure that a tiling depends on: equal for the repeated blocks of a network."""
    local: dict[str, int] = {}
    rows: list[object] = []
    for i in bits(mask):
        call = flow.calls[i]
        for part in call.parts:
            operator = part.operator
            attributes = tuple(sorted((name, str(value)) for name, value in operator.attributes.items()))
            names = tuple(
                local.setdefault(name, len(local)) for name in (*operator.inputs, *operator.outputs)
            )
            values = tuple(None if v is None or v.size > 64 else v.tobytes() for v in part.values)
            rows.append((operator.kind, attributes, part.shapes, part.constant, part.results, names, values))
        roots = tuple(
            (o.input, o.map if flow.producer[o.map] < 0 else -1, flow.maps[o.map].shape)
            for o in flow.operands[i]
        )
        behind = tuple(local.setdefault(flow.maps[o.map].name, len(local)) for o in flow.operands[i])
        outside = tuple(bool(flow.is_output[m] or flow.readers[m] & ~mask) for m in flow.results[i])
        weights = tuple((w.elements, w.bias, w.gathered) for w in flow.weights[i])
        window = window_of(call)
        seen = None if window is None else tuple(ends.tobytes() for ends in window)
        rows.append((roots and behind, outside, weights, folding(call), seen))
    return tuple(rows)
