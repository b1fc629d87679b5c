"""Modes of groups that run in several passes (`lfopt.planning.passes`): `gated` and `panels`.

gated    a block around a barrier (squeeze-and-excite) in two phases, slice by slice; what fits of the map
         stays on chip between them (`lfopt.planning.gated.sizes`)
panels   contractions around a normalization, whose statistics are made first; its result is made from them
         element by element, as each contraction reads it (`lfopt.planning.panels`)

         F_beta = statistics  +  the most that a contraction takes: sums of a panel of outputs for a band of
                  rows, and a slice of its inputs and weights
         F_D    = what is normalized once, and once for every panel of each contraction that reads the norm;
                  other operands once for every panel; weights once for every band; results once
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import chain

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
    ModeOption,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    place_use,
)
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.panels.choices import PanelChoice, PanelChoices
from lfopt.planning.panels.norms import Norms
from lfopt.planning.passes.lowering import PassesLowering, lower_passes
from lfopt.planning.passes.price import PassesPrice
from lfopt.planning.steps.layout import BufferLayout


class PassesMode(ExecutionMode):
    """Groups that are known beforehand. Growing carries no bound: a group says which it can become."""

    in_paper = False

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._floors: dict[int, int] = {}

    @abstractmethod
    def find_candidates(self) -> Iterator[int]:
        """Masks of all groups that may run so on some buffer."""

    @cached_property
    def candidates(self) -> dict[int, list[int]]:
        """Those masks, by the bit of their first operator."""
        by_first: dict[int, list[int]] = {}
        for group in self.find_candidates():
            by_first.setdefault(group & -group, []).append(group)
        return by_first

    def _with(self, op: int) -> Iterator[int]:
        """The groups that an operator can be in."""
        for groups in self.candidates.values():
            yield from (group for group in groups if group >> op & 1)

    @cached_property
    def slices(self) -> SliceSizes:
        """Slice sizes of the network's operators."""
        return SliceSizes(self.groups.dataflow, self.groups.hardware, self.groups.hardware.narrowest_block)

    @cached_property
    def pricing(self) -> NestPricing:
        """Prices of nests of the network."""
        layout = BufferLayout(self.groups.dataflow, self.groups.hardware)
        return NestPricing(layout, self.groups.line_buffers)

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """As far as the groups tell that it can become: those with more operators, of higher index."""
        if mask not in self._floors:
            below = (1 << mask.bit_length()) - 1
            grown = (group for group in self.candidates.get(mask & -mask, ()) if group & below == mask)
            self._floors[mask] = min(map(self.need, grown), default=NEVER)
        return self._floors[mask] < beta

    def least(self, op: int) -> int:
        """The least need of the groups that it can be in."""
        return min(map(self.need, self._with(op)), default=NEVER)

    def compatible(self, beta: int) -> list[int]:
        """Operators that share a group."""
        compatible = [1 << i for i in range(len(self.groups.dataflow))]
        for group in self.find_candidates():
            for i in bits(group):
                compatible[i] |= group
        return compatible


KEPT_SHARES = (1.0, 0.75, 0.5)  # of the buffer, of which as much is kept as fits


class GatedMode(PassesMode):
    """Groups around a barrier."""

    summary = (
        "a gate and what it waits for: slices of channels in two phases, kept between them as far as "
        "they fit, else stored and loaded or made again"
    )

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.max_recompute` caps what a group makes again."""
        super().__init__(groups)
        self.space = space
        self._options: dict[int, Choices | None] = {}
        self._choices: dict[tuple[int, int], GatedChoice | None] = {}
        self._wide: dict[tuple[int, int, GatedChoice], GatedChoice] = {}
        self._offered: dict[tuple[int, int], tuple[GatedChoice, ...]] = {}  # by group and buffer: its options

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

    def _chosen(self, mask: int, beta: int) -> GatedChoice:
        choice = self.cheapest(mask, beta)
        assert choice is not None, "mode gated means that the group fits so"
        return choice

    def _widened(self, mask: int, beta: int, choice: GatedChoice) -> tuple[Sizes, GatedChoice]:
        """A choice with as many channels and rows in each step as fit, for the same bytes."""
        choices = self.choices(mask)
        assert choices is not None, "mode gated means that the group fits so"
        key = mask, beta, choice
        if key not in self._wide:
            self._wide[key] = choices.widened(choice, beta)
        return choices.sizes, self._wide[key]

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """That of the fewest bytes, then those that make less again, or leave more room to each step.

        Room is left where less is kept than fits.
        """
        choices = self.choices(mask)
        if choices is None:
            return
        key = mask, beta
        if key not in self._offered:
            shares = (choices.of_fewer_macs(int(share * beta)) for share in KEPT_SHARES)
            self._offered[key] = tuple(dict.fromkeys(chain.from_iterable(shares)))
        for choice in self._offered[key]:
            scheduled = self._schedule(mask, beta, choice)
            yield ModeOption(self._cost(mask, choice), self._terms(mask, beta, choice), scheduled)

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """Every tensor once, what else is loaded twice, and the bytes of slices that are not kept.

        Those are stored once and loaded for each part, or what makes them again is loaded.
        """
        choice = self.cheapest(mask, beta)
        return None if choice is None else self._cost(mask, choice)

    def _cost(self, mask: int, choice: GatedChoice) -> Cost:
        moved = choice.dram.total + self.groups.parameter_bytes(mask)
        return Cost(moved, choice.buffer_bytes, "gated", choice.buffer_bytes)

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Weights of the tail pass once if they are held, else once for each band of rows of the result."""
        return self._terms(mask, beta, self._chosen(mask, beta))

    def _terms(self, mask: int, beta: int, narrow: GatedChoice) -> TrafficTerms:
        sizes, choice = self._widened(mask, beta, narrow)
        bands = -(-sizes.rows_out // choice.option.band)
        passes = 1 if choice.option.held else bands
        spilled = (self.groups.dataflow.maps[sizes.map].name,) if choice.dram.spill else ()
        dram = choice.dram + DramBytes(parameter=self.groups.parameter_bytes(mask))
        return TrafficTerms(dram, passes, choice.option.band, spilled)

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """See `GatedNests`."""
        return self._schedule(mask, beta, self._chosen(mask, beta))

    def _schedule(self, mask: int, beta: int, narrow: GatedChoice) -> Scheduled:
        sizes, choice = self._widened(mask, beta, narrow)
        price = self._priced(sizes, choice)
        end = price.ends["buffer"]
        assert end <= choice.buffer_bytes, f"{end} B on chip, planned were {choice.buffer_bytes}"
        assert price.dram == choice.dram, f"DRAM bytes are {price.dram}, planned were {choice.dram}"
        return Scheduled(end, partial(lower_passes, price), price.passes)

    def _priced(self, sizes: Sizes, choice: GatedChoice) -> PassesPrice:
        return PassesPrice(self.pricing, GatedNests(sizes, choice).passes())

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

    def find_candidates(self) -> Iterator[int]:
        """Masks of the groups of all blocks."""
        for block in self.gates.blocks:
            yield from block.groups


class PanelsMode(PassesMode):
    """Groups around a normalization."""

    summary = (
        "contractions around a normalization: its statistics first, then its result as each of them reads it"
    )

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space` changes nothing here."""
        super().__init__(groups)
        self._choices: dict[int, PanelChoices | None] = {}
        self._known: dict[tuple[int, int], PanelChoice | None] = {}

    @cached_property
    def norms(self) -> Norms:
        """The groups of the network."""
        return Norms(self.slices)

    def choices(self, mask: int) -> PanelChoices | None:
        """The choices of a group; None if it cannot run so."""
        if mask not in self._choices:
            group = self.norms.groups.get(mask)
            choices = None
            if group is not None:
                choices = PanelChoices(self.pricing, self.norms.slices, group)
            self._choices[mask] = choices
        return self._choices[mask]

    def cheapest(self, mask: int, beta: int) -> PanelChoice | None:
        """How the group moves the fewest bytes; None if it does not run."""
        key = mask, beta
        if key not in self._known:
            choices = self.choices(mask)
            self._known[key] = None if choices is None else choices.cheapest(beta)
        return self._known[key]

    def _chosen(self, mask: int, beta: int) -> PanelChoice:
        choice = self.cheapest(mask, beta)
        assert choice is not None, "mode panels means that the group fits so"
        return choice

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """What the passes move."""
        choice = self.cheapest(mask, beta)
        if choice is None:
            return None
        moved = choice.price.dram.total + self.groups.parameter_bytes(mask)
        return Cost(moved, choice.buffer_bytes, "panels", choice.buffer_bytes)

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Weights pass once for each band of rows; the contraction of most bands counts."""
        choice = self._chosen(mask, beta)
        height = self.groups.dataflow.heights[self.norms.groups[mask].norm]
        passes = max(-(-height // panels.rows) for panels in choice.panels)
        dram = choice.price.dram + DramBytes(parameter=self.groups.parameter_bytes(mask))
        return TrafficTerms(dram, passes)

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """See `PanelNests`."""
        choices = self.choices(mask)
        assert choices is not None, "mode panels means that the group fits so"
        choice = choices.widened(self._chosen(mask, beta), beta)
        return Scheduled(choice.buffer_bytes, partial(lower_passes, choice.price), choice.price.passes)

    def need(self, mask: int) -> int:
        """F_beta with panels and slices as narrow as the chip allows, one row at a time."""
        choices = self.choices(mask)
        if choices is None or not choices.least.fits(self.groups.hardware, NEVER):
            return NEVER
        return choices.least.buffer_bytes

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Places of the pass that takes the most."""
        choices = self.choices(mask)
        if choices is not None:
            choice = self.cheapest(mask, beta) or choices.least
            for what, place in PassesLowering(choice.price).fullest():
                yield place_use(place, what)

    def never(self, mask: int) -> str:
        """Why it is no group around a normalization."""
        return "it is no normalization over channels with all contractions that read it, and nothing else"

    def find_candidates(self) -> Iterator[int]:
        """Masks of the groups around all norms."""
        yield from self.norms.groups
