"""The passes of a group around a normalization (mode panels).

    in passes
      keep statistics of the norm
      rows, bands
        channels, panels of the producer's results, summed by the norm
          channels, slices, summed by the producer
            line buffers: producer, statistics of the norm
      rows, bands                                                          (one pass for each reader)
        channels, panels of its results
          channels, slices, summed by the reader
            line buffers: norm, reader

Without a producer the first pass reads what is normalized row by row.
"""

from __future__ import annotations

from typing import NamedTuple

from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.nest.channels import folded_extent
from lfopt.planning.nest.tree import (
    BlockLoop,
    Blocks,
    GroupNest,
    Held,
    Node,
    PartialSums,
    RowLeaf,
    Stream,
)
from lfopt.planning.panels.norms import NormGroup


class Panels(NamedTuple):
    """How the results of a contraction are cut in one pass."""

    outputs: int  # channels of a panel
    rows: int  # of a band
    inputs: int  # channels of a slice
    step: int = 1  # rows made at a time


class PanelNests:
    """The nests of one group."""

    def __init__(self, slices: SliceSizes, group: NormGroup) -> None:
        self.slices = slices
        self.flow: Dataflow = slices.dataflow
        self.group = group
        self.normalized = self.flow.operands[group.norm][0].map

    @property
    def contractions(self) -> tuple[int, ...]:
        """The contractions that have a pass each, in order."""
        return tuple(i for i in (self.group.producer, *self.group.readers) if i >= 0)

    def outputs(self, op: int) -> int:
        """Channels of a contraction's results."""
        shape = self.flow.calls[op].result
        return shape[CHANNEL_AXIS_OF_RANK[len(shape)]]

    def statistics(self) -> GroupNest:
        """The pass that makes statistics of a map from outside."""
        norm = self.group.norm
        leaf = RowLeaf((norm,), measures=frozenset((norm,)))
        return GroupNest(leaf, {self.normalized: leaf}, complete=True)

    def contraction(self, op: int, panels: Panels) -> GroupNest:
        """The pass of one contraction: of the producer with the norm's statistics, else with its result."""
        flow = self.flow
        norm = self.group.norm
        extent = folded_extent(flow, op)
        outputs = self.outputs(op)
        several = panels.inputs < extent
        first = op == self.group.producer
        leaf = RowLeaf(
            tuple(sorted((norm, op))),
            band_rows=panels.step,
            summed_rows=panels.step if several else 1,
            measures=frozenset((norm,) if first else ()),
        )
        root: Node = leaf
        if several:
            root = BlockLoop("channels", Blocks.of_size(panels.inputs, extent), root, (op,))
        sums = root
        if panels.outputs < outputs:
            folds = (norm,) if first else ()
            root = BlockLoop("channels", Blocks.of_size(panels.outputs, outputs), root, folds)
        if panels.rows < flow.heights[op]:
            root = BlockLoop("rows", Blocks.of_size(panels.rows, flow.heights[op]), root)
        own, *others = flow.operands[op]
        held = [own.map, *flow.results[op]]
        if not first:
            held += [self.normalized, *flow.results[norm]]
        if not several:
            held += [o.map for o in others]
        homes: dict[Held, Node] = dict.fromkeys(held, leaf)
        if several:
            homes[PartialSums(op)] = sums
        facts = self.slices.facts
        passing = frozenset(s.name for s in facts[op].streamed)
        constants = list(facts[op].held)
        if not first:
            constants += [w.name for w in flow.weights[norm]]
        homes |= dict.fromkeys((name for name in constants if name not in passing), root)
        return GroupNest(root, homes, (Stream(root, passing, 1),), complete=True)
