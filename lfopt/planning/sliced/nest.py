"""The nest of a group in mode sliced.

rows, T blocks
  [line buffers: the prologue]
  channels, blocks of a part                        (of the tail's results)
    channels, blocks of a slice, summed by the tail
      line buffers: the heads, what follows them, the tail
"""

from __future__ import annotations

from lfopt.ops import bits
from lfopt.planning.nest.tree import (
    BlockLoop,
    Blocks,
    GroupNest,
    Held,
    Node,
    PartialSums,
    RowLeaf,
    Seq,
    Stream,
)
from lfopt.planning.sliced.profile import SlicedOption
from lfopt.planning.sliced.rows import MOST_ROWS, SegmentRows
from lfopt.planning.sliced.segments import SLOTS, Segments


def sliced_nest(rows: SegmentRows, segments: Segments, mask: int, option: SlicedOption) -> GroupNest:
    """How a group runs with an option, in slices as wide as those of `segments`."""
    segment = option.segment
    reads = rows.reads(mask, segment)
    weights = segments.weights(mask, segment)
    operators = tuple(bits(rows.of_slices(mask, segment)))
    by_rows = MOST_ROWS if rows.in_step(segment, reads) else 1
    leaf = RowLeaf(operators, band_rows=by_rows, last_lead=True)
    folds = (segment.tail,) if segment.tail >= 0 else ()
    stays = (option.pinned, option.pinned_tail)
    slices = Blocks.of_size(segments.width, segment.channels, anew=stays)
    slice_loop = BlockLoop("channels", slices, leaf, folds)
    body: Node = slice_loop
    if 0 < option.part < rows.outputs(segment):
        body = BlockLoop("channels", Blocks.of_size(option.part, rows.outputs(segment)), body)
    ahead = RowLeaf(tuple(bits(segment.prologue)))
    if segment.prologue:
        body = Seq((ahead, body))
    root = BlockLoop("rows", Blocks(option.bands), body)

    homes: dict[Held, Node] = dict.fromkeys(segment.sliced_maps, leaf)
    at = {"rows": root, "vector": root, "slice": leaf, "row": ahead}  # "part" is late: the leaf loads it
    homes |= {m: at[access] for m, access in rows.outer(mask, segment, reads) if access in at}
    homes |= {m: root if m == segment.source else ahead for m in segment.ahead}
    if segment.tail >= 0:
        homes |= dict.fromkeys(rows.flow.results[segment.tail], leaf)
        homes[PartialSums(segment.tail)] = slice_loop
    if segment.mean >= 0:
        homes |= dict.fromkeys(rows.flow.results[segment.mean], root)
        if option.bands > 1:
            homes[PartialSums(segment.mean)] = root
    homes |= dict.fromkeys(weights.held, root)
    before = frozenset(s.name for constants in weights.sliced.values() for s in constants)
    tail = frozenset(s.name for s in weights.tail)
    streams = (
        Stream(root, before, SLOTS, min(option.pinned, segment.channels)),
        Stream(root, tail, SLOTS, min(option.pinned_tail, segment.channels)),
    )
    return GroupNest(root, homes, tuple(s for s in streams if s.constants), complete=True)
