"""Mode `gated`: a block around a barrier (squeeze-and-excite) in two phases, slice by slice.

What fits of the map stays on chip between them (`lfopt.planning.gated.sizes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

from lfopt.ir import BufferUse, Cost, DramBytes
from lfopt.ops import bits
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.gated.choices import Choices
from lfopt.planning.gated.gates import GatedBlock, Gates
from lfopt.planning.gated.nest import GatedNests
from lfopt.planning.gated.sizes import GatedChoice, Sizes
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    NEVER,
    ExecutionMode,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    place_use,
)
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.passes.lowering import PassesLowering, lower_passes
from lfopt.planning.passes.price import PassesPrice
from lfopt.planning.steps.layout import BufferLayout


class GatedMode(ExecutionMode):
    """Groups around a barrier. Growing carries no bound: a group says which it can become."""

    summary = (
        "a gate and what it waits for: slices of channels in two phases, kept between them as far as "
        "they fit, else stored and loaded or made again"
    )
    in_paper = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.max_recompute` caps what a group makes again."""
        self.groups = groups
        self.space = space
        self._options: dict[int, Choices | None] = {}
        self._choices: dict[tuple[int, int], GatedChoice | None] = {}
        self._wide: dict[tuple[int, int], GatedChoice] = {}
        self._floors: dict[int, int] = {}

    @cached_property
    def slices(self) -> SliceSizes:
        """Slice sizes of the network's operators."""
        return SliceSizes(self.groups.dataflow, self.groups.hardware, self.groups.hardware.channel_align)

    @cached_property
    def gates(self) -> Gates:
        """The blocks of the network."""
        return Gates(self.slices)

    def choices(self, mask: int) -> Choices | None:
        """The choices of a group; None if it cannot run so."""
        if mask not in self._options:
            block = self.gates.find(mask)
            sizes = None if block is None else self._sized(mask, block)
            self._options[mask] = (
                Choices(sizes, self.groups.most_macs(mask, self.space.max_recompute))
                if sizes is not None and sizes.able
                else None
            )
        return self._options[mask]

    def _sized(self, mask: int, block: GatedBlock) -> Sizes:
        return Sizes(self.slices, block, self.groups.once(mask).total - self.groups.parameter_bytes(mask))

    def cheapest(self, mask: int, beta: int) -> GatedChoice | None:
        """How the group moves the fewest bytes; None if it does not run."""
        key = mask, beta
        if key not in self._choices:
            choices = self.choices(mask)
            self._choices[key] = None if choices is None else choices.cheapest(beta)
        return self._choices[key]

    def _widened(self, mask: int, beta: int) -> tuple[Sizes, GatedChoice]:
        """The choice with as many channels and rows in each step as fit, for the same bytes."""
        choices = self.choices(mask)
        choice = self.cheapest(mask, beta)
        assert choices is not None and choice is not None, "mode gated means that the group fits so"
        key = mask, beta
        if key not in self._wide:
            self._wide[key] = choices.widened(choice, beta)
        return choices.sizes, self._wide[key]

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """Every tensor once, what else is loaded twice, and the bytes of slices that are not kept.

        Those are stored once and loaded for each part, or what makes them again is loaded.
        """
        choice = self.cheapest(mask, beta)
        if choice is None:
            return None
        return Cost(
            choice.dram.total + self.groups.parameter_bytes(mask),
            choice.buffer_bytes,
            "gated",
            choice.buffer_bytes,
        )

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Weights of the tail pass once if they are held, else once for each band of rows of the result."""
        sizes, choice = self._widened(mask, beta)
        bands = -(-sizes.rows_out // choice.option.band)
        passes = 1 if choice.option.held else bands
        spilled = (self.groups.dataflow.maps[sizes.map].name,) if choice.dram.spill else ()
        dram = choice.dram + DramBytes(parameter=self.groups.parameter_bytes(mask))
        return TrafficTerms(dram, passes, choice.option.band, spilled)

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """See `GatedNests`."""
        sizes, choice = self._widened(mask, beta)
        price = self._priced(sizes, choice)
        end = price.ends["buffer"]
        assert end <= choice.buffer_bytes, f"{end} B on chip, planned were {choice.buffer_bytes}"
        assert price.dram == choice.dram, f"DRAM bytes are {price.dram}, planned were {choice.dram}"
        return Scheduled(end, partial(lower_passes, price), price.passes)

    def _priced(self, sizes: Sizes, choice: GatedChoice) -> PassesPrice:
        return PassesPrice(self._pricing, GatedNests(sizes, choice).passes())

    @cached_property
    def _pricing(self) -> NestPricing:
        layout = BufferLayout(self.groups.dataflow, self.groups.hardware)
        return NestPricing(layout, self.groups.line_buffers)

    def need(self, mask: int) -> int:
        """F_beta with slices as narrow as the chip allows, and nothing kept."""
        choices = self.choices(mask)
        if choices is None:
            return NEVER
        return choices.least

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Places of the phase that takes the most."""
        choices = self.choices(mask)
        if choices is None:
            return
        choice = choices.cheapest(beta) or choices.cheapest(choices.least + 1)
        assert choice is not None, "on the least buffer a group fits"
        for what, place in PassesLowering(self._priced(choices.sizes, choice)).fullest():
            yield place_use(place, what)

    def never(self, mask: int) -> str:
        """Why it is no group of a block: operators that it lacks, or has beside one."""
        flow = self.groups.dataflow
        block = self.gates.by_folds.get(mask & flow.running)
        if block is None:
            return "no reduction of it gates the map that it reduces"
        for others, what in (
            (block.core & ~mask, "it lacks"),
            (mask & ~block.members, "it cannot run together with"),
        ):
            if others:
                name = flow.operators[next(bits(others))].name
                return f"what runs around a barrier belongs together, and {what} {name}"
        return "some of its operators are not those next to the barrier, or read the same constants"

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """As far as the groups tell that it can become."""
        if mask not in self._floors:
            self._floors[mask] = self._floor(mask)
        return self._floors[mask] < beta

    def _floor(self, mask: int) -> int:
        """The least need in bytes of groups of blocks that `mask` may be grown into.

        They have these operators, and else only operators of higher index.
        """
        below = (1 << mask.bit_length()) - 1
        blocks = (block for block in self.gates.blocks if not mask & ~block.members)
        return min(
            (self.need(group) for block in blocks for group in block.groups if group & below == mask),
            default=NEVER,
        )

    def least(self, op: int) -> int:
        """The least need of the groups that it can be in."""
        groups = (group for block in self.gates.blocks for group in block.groups if group >> op & 1)
        return min(map(self.need, groups), default=NEVER)

    def compatible(self, beta: int) -> list[int]:
        """Operators of one block."""
        return [*self.gates.compatible]
