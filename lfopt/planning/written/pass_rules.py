"""What passes of a group must be like to run, beyond the rules of each nest (`lfopt.planning.written.rules`).

A pass reads what earlier passes have made, what it makes itself, and maps from outside. What is kept is
needed by two passes and by nothing outside the group. Where so many channels of a map stay, a loop in every
pass that touches it cuts them off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, bits
from lfopt.ops.statistics import has_statistics, normalized_axes
from lfopt.planning.nest.regions import Regions
from lfopt.planning.nest.tree import BlockLoop, PartialSums
from lfopt.planning.passes.tree import Passes, PassMaps
from lfopt.planning.written.rules import BrokenRule, broken_rule


class BrokenPass(NamedTuple):
    """A rule that a pass breaks, or what is said of a map that stays between passes."""

    number: int | None  # of the pass; None: the map that is kept
    broken: BrokenRule


def broken_pass(flow: Dataflow, passes: Passes) -> BrokenPass | None:
    """The first rule that passes break; None if they break none."""
    return next(_PassRules(flow, passes).broken(), None)


class _PassRules:
    """The rules of the passes of one group."""

    def __init__(self, flow: Dataflow, passes: Passes) -> None:
        self.flow = flow
        self.passes = passes
        self.masks = passes.masks
        self.maps = PassMaps(self.flow, passes)

    def broken(self) -> Iterator[BrokenPass]:
        """All rules that are broken; no rule is looked at if one before it is broken."""
        for number, nest in enumerate(self.passes.passes):
            broken = broken_rule(self.flow, nest)
            if broken is not None:
                yield BrokenPass(number, broken)
        yield from self._order()
        yield from self._statistics()
        for m, channels in self.passes.kept.items():
            yield from self._kept(m)
            for number in self.maps.touching(m):
                yield from self._in_pass(m, channels, number)

    def _order(self) -> Iterator[BrokenPass]:
        """Nothing is read before it is made."""
        for number, mask in enumerate(self.masks):
            reads = ((i, operand.map) for i in bits(mask) for operand in self.flow.operands[i])
            for i, m in reads:
                first = self.maps.first_maker(m)
                if first is not None and first > number:
                    maker = self._name(self.flow.producer[m])
                    wrong = f"{self._name(i)} in a pass before {maker}, whose result it reads"
                    leaf = self.passes.passes[number].leaf_of[i]
                    yield BrokenPass(number, BrokenRule(leaf, wrong, "passes behind what they read"))

    def _statistics(self) -> Iterator[BrokenPass]:
        """Statistics are made in one pass, of each element's channels, and then they are used."""
        passes = self.passes
        measures = [(number, i) for number, nest in enumerate(passes.passes) for i in nest.measures]
        for number, i in measures:
            if i not in passes.measured:
                wrong = f"statistics of {self._name(i)}, which are not kept"
                leaf = passes.passes[number].leaf_of[i]
                yield BrokenPass(number, BrokenRule(leaf, wrong, "'keep statistics of' it below 'in passes'"))
        for i in sorted(passes.measured):
            running = self.maps.running(i)
            call = self.flow.calls[i]
            wrong = ""
            if not has_statistics(call) or normalized_axes(call) != (
                CHANNEL_AXIS_OF_RANK.get(len(call.result)),
            ):
                wrong = f"statistics of {self._name(i)}, which does not normalize over channels"
            elif len(running) < 2 or [number for number, op in measures if op == i] != running[:1]:
                wrong = (
                    f"statistics of {self._name(i)}, which are not made in the first of two passes or more"
                )
            if wrong:
                accepted = (
                    "normalizations over channels, their statistics made in one pass and used in others"
                )
                yield BrokenPass(None, BrokenRule(PartialSums(i), wrong, accepted))

    def _kept(self, m: int) -> Iterator[BrokenPass]:
        """What is kept is needed by two passes, and by nothing outside the group."""
        tensor = self.flow.maps[m]
        channels = self.passes.kept[m]
        axis = CHANNEL_AXIS_OF_RANK.get(len(tensor.shape))
        if len(self.maps.touching(m)) < 2:
            wrong = f"{tensor.name[:60]!r}, which is kept and which fewer than two passes read or make"
            yield self._wrong(m, wrong, "maps that two passes touch")
        if m in self.maps.leaving:
            wrong = f"{tensor.name[:60]!r}, which is kept and needed outside the group"
            yield self._wrong(m, wrong, "maps of the group alone, or from outside")
        if channels and (axis is None or channels > tensor.shape[axis]):
            wrong = f"{channels:,} channels of {tensor.name[:60]!r} of shape {list(tensor.shape)}"
            yield self._wrong(m, wrong, "no more than it has")

    def _in_pass(self, m: int, channels: int, number: int) -> Iterator[BrokenPass]:
        """Where so many channels stay, a loop cuts them off; what stays whole lies around all passes."""
        nest = self.passes.passes[number]
        name = self.flow.maps[m].name[:60]
        first = self.maps.first_maker(m)
        if not channels:
            if m in nest.homes:
                yield self._wrong(m, f"{name!r}, which is kept and held in a pass", "one of them")
            if first is not None and number > first and self.flow.makes(self.masks[number], m):
                yield self._wrong(m, f"{name!r}, which is kept and made again", "one of them")
            return
        around = self.maps.around(number)
        flow = self.flow
        regions = Regions(flow, self.masks[number], nest, flow.operands, flow.heights, {}, around)
        loops = [loop for loop in self._loops(regions, m) if regions.axis_cut(loop, m) is not None]
        if len(loops) != 1:
            wrong = f"{channels:,} channels of {name!r} kept, and {len(loops)} loops that cut them in a pass"
            yield self._wrong(m, wrong, "one loop over its channels around where each pass holds it")
            return
        (loop,) = loops
        axis = CHANNEL_AXIS_OF_RANK[len(self.flow.maps[m].shape)]
        if not self._ends(regions, loop, m, channels) or regions.axis_cut(loop, m) != axis:
            wrong = f"{channels:,} channels of {name!r} kept, in the midst of a block"
            yield self._wrong(m, wrong, f"blocks of channels that begin anew at {channels}")
        idle = (i for i, kept in around.idle.items() if kept == m)
        extent = self.flow.maps[m].shape[axis]
        for i in idle:
            cut = regions.channels_cut(loop, i)
            if cut is None or self.flow.calls[i].result[cut] != extent:
                wrong = f"{self._name(i)}, which makes {name!r} again, and not the same channels of it"
                yield self._wrong(m, wrong, "operators that work channel by channel")

    def _loops(self, regions: Regions, m: int) -> list[BlockLoop]:
        """Loops over channels around the node of a pass that holds a map."""
        home = regions.homes.get(m)
        if home is None:
            return []
        loops = regions.nest.loops_to[home]
        return [loop for loop in loops if loop.cuts_channels and loop is not home]

    def _ends(self, regions: Regions, loop: BlockLoop, m: int, channels: int) -> bool:
        """Whether blocks of a map end behind so many channels, and none reaches over them."""
        extent = self.flow.maps[m].shape[CHANNEL_AXIS_OF_RANK[len(self.flow.maps[m].shape)]]
        if self.flow.makes(regions.mask, m):
            ends = loop.blocks.ends(extent)
            return channels in ends
        inputs = regions.input_channels(loop, m)
        if inputs is None:
            return False
        kept = inputs.start < channels
        return bool((inputs.stop[kept] <= channels).all()) and channels in inputs.stop

    def _wrong(self, m: int, wrong: str, accepted: str) -> BrokenPass:
        return BrokenPass(None, BrokenRule(m, wrong, accepted))

    def _name(self, op: int) -> str:
        return repr(self.flow.operators[op].name[:60])
