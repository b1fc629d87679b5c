"""The panels of a group around a normalization that move the fewest bytes on a buffer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import Hardware, round_up
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.nest.channels import folded_extent
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.panels.nest import PanelNests, Panels
from lfopt.planning.panels.norms import NormGroup
from lfopt.planning.passes.price import PassesPrice, pass_needs
from lfopt.planning.passes.tree import Passes, PassMaps

# numbers of blocks up to which all are tried, and then powers of two
MOST_BANDS = 8
MOST_PANELS = 64


class PanelChoice(NamedTuple):
    """How a group runs."""

    panels: tuple[Panels, ...]  # by contraction
    price: PassesPrice

    @property
    def buffer_bytes(self) -> int:
        """F_beta, bytes."""
        return self.price.ends["buffer"]

    def fits(self, hardware: Hardware, beta: int) -> bool:
        """Whether it fits a buffer of beta bytes, and the weight buffer if there is one."""
        stores = hardware.stores | {"buffer": beta}
        return all(end < stores[store] for store, end in self.price.ends.items())


class _PassFigures(NamedTuple):
    """One pass in panels of one kind."""

    panels: Panels
    buffer: int  # bytes that it takes itself
    weights: int  # bytes of a weight buffer, if there is one
    moved: int  # DRAM bytes


class PanelChoices:
    """The choices of one group. Passes share only what stays between them: each is chosen by itself."""

    def __init__(self, pricing: NestPricing, slices: SliceSizes, group: NormGroup) -> None:
        self.pricing = pricing
        self.nests = PanelNests(slices, group)
        self.group = group
        self.flow = slices.dataflow
        self.hardware = slices.hardware
        self._known: dict[tuple[int, Panels], _PassFigures] = {}

    def cheapest(self, beta: int) -> PanelChoice | None:
        """The choice of the fewest bytes that fits below beta; None if none does."""
        fitting = [self._best(number, beta) for number in range(len(self.nests.contractions))]
        chosen = [figures.panels for figures in fitting if figures is not None]
        if len(chosen) < len(fitting):
            return None
        choice = self._choice(chosen)
        return choice if choice.fits(self.hardware, beta) else None

    def widened(self, choice: PanelChoice, beta: int) -> PanelChoice:
        """The choice with slices as wide as fit, for the same bytes: fewer, longer steps."""
        for number in range(len(self.nests.contractions)):
            while (wider := self._wider(choice, number, beta)) is not None:
                choice = wider
        return choice

    def _wider(self, choice: PanelChoice, number: int, beta: int) -> PanelChoice | None:
        """The choice with wider slices in a pass, or more rows in each step; None if neither fits.

        Slices that fill the rows of a MAC array come first, then rows, then slices that are wider still.
        """
        panels = choice.panels[number]
        extent = folded_extent(self.flow, self.nests.contractions[number])
        taller = panels._replace(step=min(2 * panels.step, panels.rows))
        deeper = panels._replace(inputs=min(2 * panels.inputs, extent))
        fills = panels.inputs >= self.hardware.mac_rows
        for wider in (taller, deeper) if fills else (deeper, taller):
            if wider != panels:
                cuts = [*choice.panels]
                cuts[number] = wider
                other = self._choice(cuts)
                if other.fits(self.hardware, beta) and other.price.dram == choice.price.dram:
                    return other
        return None

    @cached_property
    def least(self) -> PanelChoice:
        """The choice of the least buffer: one row, and as few channels as the chip allows."""
        step = self.hardware.channel_align
        contractions = self.nests.contractions
        return self._choice([Panels(min(step, self.nests.outputs(op)), 1, step) for op in contractions])

    def _choice(self, panels: list[Panels]) -> PanelChoice:
        return PanelChoice(tuple(panels), PassesPrice(self.pricing, self._passes(panels)))

    def _passes(self, panels: list[Panels]) -> Passes:
        contractions = self.nests.contractions
        passes = [self.nests.contraction(op, cut) for op, cut in zip(contractions, panels, strict=True)]
        if self.group.producer < 0:
            passes.insert(0, self.nests.statistics())
        return Passes(tuple(passes), {}, frozenset((self.group.norm,)))

    # -- one pass --------------------------------------------------------------------------------------------

    def _best(self, number: int, beta: int) -> _PassFigures | None:
        """The panels of one pass that fit, and move the fewest bytes."""
        best: _PassFigures | None = None
        height = self.flow.heights[self.nests.contractions[number]]
        for rows in self._heights(number):
            if best is not None and -(-height // rows) * self._weight_bytes[number] >= best.moved:
                break  # each band loads the weights
            figures = self._widest(number, rows, beta)
            if figures is not None and (best is None or figures.moved < best.moved):
                best = figures
        return best

    @cached_property
    def _weight_bytes(self) -> tuple[int, ...]:
        """Bytes of the weights of each contraction."""
        facts = self.nests.slices.facts
        sizes = self.nests.slices.constant_bytes
        return tuple(sum(sizes[s.name] for s in facts[op].streamed) for op in self.nests.contractions)

    def _heights(self, number: int) -> list[int]:
        """Rows of bands that are tried, most first: each band loads the weights again."""
        rows = self.flow.heights[self.nests.contractions[number]]
        return sorted({-(-rows // count) for count in _counts(MOST_BANDS, rows)}, reverse=True)

    def _widest(self, number: int, rows: int, beta: int) -> _PassFigures | None:
        """The widest panels that fit with bands of so many rows: wider ones need more."""
        panels = [*self._panels(number, rows)]
        widest = bisect_left(panels, x=True, key=lambda one: self._has_room(self._figures(number, one), beta))
        if widest == len(panels):
            return None
        return self._figures(number, panels[widest])

    def _has_room(self, figures: _PassFigures, beta: int) -> bool:
        return figures.buffer < beta and figures.weights < self._weight_buffer

    def _panels(self, number: int, rows: int) -> Iterator[Panels]:
        """Panels of as equal widths as the chip allows, widest first."""
        op = self.nests.contractions[number]
        step = self.hardware.channel_align
        outputs = self.nests.outputs(op)
        widths = {round_up(-(-outputs // count), step) for count in _counts(MOST_PANELS, outputs)}
        for width in sorted({min(width, outputs) for width in widths}, reverse=True):
            yield Panels(width, rows, step)

    @cached_property
    def _statistics_bytes(self) -> int:
        return sum(part.bytes for part in self.least.price.kept)

    @property
    def _weight_buffer(self) -> int:
        return self.hardware.stores.get("weight buffer", 1 << 62)

    def _figures(self, number: int, panels: Panels) -> _PassFigures:
        """What one pass takes and moves; the others are as small as they can be."""
        key = number, panels
        if key not in self._known:
            cuts = [*self.least.panels]
            cuts[number] = panels
            own = number + (self.group.producer < 0)
            passes = self._passes(cuts)
            around = PassMaps(self.flow, passes).around(own)
            price = self.pricing.price(passes.masks[own], passes.passes[own], around=around)
            needs = pass_needs(price)
            buffer = needs["buffer"] + self._statistics_bytes
            weights = needs.get("weight buffer", 0)
            self._known[key] = _PassFigures(panels, buffer, weights, price.dram.total)
        return self._known[key]


def _counts(few: int, extent: int) -> list[int]:
    """Numbers of blocks that are tried of an axis."""
    counts = {*range(1, min(few, extent) + 1), extent}
    count = few
    while count < extent:
        counts.add(count)
        count *= 2
    return sorted(counts)
