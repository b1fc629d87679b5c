"""The passes of a group around a barrier (mode gated), as `lfopt.planning.gated.sizes` chose to run it.

Loops over slices of the map have the same blocks in both phases:

    in passes
      keep so many channels of the map, what the reductions make, what gates it
      channels, slices
        line buffers: ahead, reductions
      in turn                                 (the operators between: vectors)
        channels, blocks
          at once: a vector
      channels, parts                         (of the tail's result)
        rows, bands
          channels, slices, summed by the tail
            line buffers: behind, tail        (and ahead, where slices are made again)
"""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.planning.gated.sizes import SLOTS, GatedChoice, Sizes
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
from lfopt.planning.passes.tree import Passes


class GatedNests:
    """The nests of one group, as one choice has it."""

    def __init__(self, sizes: Sizes, choice: GatedChoice) -> None:
        self.sizes = sizes
        self.choice = choice
        self.block = sizes.block
        self.flow = sizes.flow
        self.slices = Blocks.of_size(choice.width, sizes.channels, anew=(choice.kept,))
        # maps that stay between passes: of their channels so many, 0: all
        self.kept = dict.fromkeys((*sizes.folded, *sizes.gates), 0)
        if choice.option.stays:
            self.kept[sizes.input] = 0
        if choice.kept:
            # all of the map stays as a whole where it is made, or loaded at once
            is_whole = choice.kept == sizes.channels and (sizes.inside or self.slices.count == 1)
            self.kept[sizes.map] = 0 if is_whole else choice.kept

    def passes(self) -> Passes:
        """The passes, and what stays between them."""
        passes = [self._ahead()]
        if self.block.vectors:
            passes.append(self._vectors())
        passes.append(self._behind())
        return Passes(tuple(passes), self.kept)

    # -- the passes ------------------------------------------------------------------------------------------

    def _ahead(self) -> GroupNest:
        """Make the map slice by slice, and reduce its rows."""
        sizes = self.sizes
        rows, _ = self.choice.rows
        operators = tuple(sorted((*self.block.ahead, *self.block.folds)))
        at_once = rows >= sizes.height
        leaf = RowLeaf(operators, at_once=at_once, band_rows=1 if at_once else rows)
        root = self._by_slices(leaf)
        homes: dict[Held, Node] = dict.fromkeys((*self._made(self.block.ahead), *sizes.ahead_reads), leaf)
        homes[sizes.map] = leaf
        if sizes.input >= 0:
            homes[sizes.input] = root
        return self._nest(root, homes, self.block.ahead, self.choice.slots[0])

    def _vectors(self) -> GroupNest:
        """The operators between the reductions and the gate, one after the other."""
        sizes = self.sizes
        parts: list[Node] = []
        for i in self.block.vectors:
            part: Node = RowLeaf((i,), at_once=True)
            if sizes.streams(i) and self.choice.vector_width < sizes.channels_of(i):
                blocks = Blocks.of_size(self.choice.vector_width, sizes.channels_of(i))
                part = BlockLoop("channels", blocks, part)
            parts.append(part)
        root = Seq(tuple(parts))
        homes: dict[Held, Node] = dict.fromkeys((*sizes.vectors, *sizes.vector_reads), root)
        return self._nest(root, homes, self.block.vectors, SLOTS)

    def _behind(self) -> GroupNest:
        """Gate the map slice by slice, and sum over the slices."""
        sizes = self.sizes
        option = self.choice.option
        tail = self.block.tail
        _, rows = self.choice.rows
        ahead = self.block.ahead if option.again else ()
        operators = tuple(sorted((*ahead, *sizes.after)))
        sums = tail >= 0 and self.slices.count > 1
        leaf = RowLeaf(operators, band_rows=rows, summed_rows=rows if sums else 1)
        root = self._by_slices(leaf, (tail,) if sums else ())
        slice_loop = root if root is not leaf else None
        if option.band < sizes.rows_out:
            root = BlockLoop("rows", Blocks.of_size(option.band, sizes.rows_out), root)
        if tail >= 0 and option.part < sizes.outputs:
            root = BlockLoop("channels", Blocks.of_size(option.part, sizes.outputs), root)
        held: list[int] = [*self._made((*ahead, *sizes.after)), *sizes.behind_reads, sizes.map]
        if option.again:
            held += sizes.ahead_reads
        if slice_loop is None:  # else they come when sums are finished
            held += sizes.beside
        homes: dict[Held, Node] = dict.fromkeys(held, leaf)
        if slice_loop is not None and sums:
            homes[PartialSums(tail)] = slice_loop
        held_weights = (tail,) if option.held and tail >= 0 else ()
        return self._nest(root, homes, (*ahead, *sizes.after), self.choice.slots[1], held_weights)

    # -- what they share -------------------------------------------------------------------------------------

    def _by_slices(self, leaf: RowLeaf, folds: tuple[int, ...] = ()) -> Node:
        """A leaf in a loop over the slices of the map, if there are several."""
        if self.slices.count == 1:
            return leaf
        return BlockLoop("channels", self.slices, leaf, folds)

    def _made(self, operators: Sequence[int]) -> list[int]:
        return [m for i in operators for m in self.flow.results[i]]

    def _nest(
        self,
        root: Node,
        homes: dict[Held, Node],
        operators: Sequence[int],
        slots: int,
        held_weights: Sequence[int] = (),
    ) -> GroupNest:
        """A pass: constants that fall into blocks pass, others are held. What is kept whole lies around it.

        `held_weights`: operators of which all constants are held.
        """
        facts = self.sizes.slices.facts
        passing: list[str] = []
        for i in operators:
            homes |= dict.fromkeys(facts[i].held, root)
            names = [s.name for s in facts[i].streamed]
            if i in held_weights:
                homes |= dict.fromkeys(names, root)
            else:
                passing += names
        whole = {m for m, channels in self.kept.items() if not channels}
        homes = {held: home for held, home in homes.items() if held not in whole}
        streams = (Stream(root, frozenset(passing), slots),) if passing else ()
        return GroupNest(root, homes, streams, complete=True)
