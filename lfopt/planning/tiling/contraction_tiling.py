"""A contraction with its second operand and its bias apart, for all tilings of contractions."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.ir import Box, Span, Step
from lfopt.ops import Call, Family, row_of
from lfopt.ops.footprint import footprint
from lfopt.planning.steps.place_names import IN_BLOCKS
from lfopt.planning.tiling.finish import Finish
from lfopt.planning.tiling.tiling_region import TilingRegion


class ContractionTiling:
    """Shared by both schedules: the anchor's second operand and bias apart, the rest as in frames."""

    def __init__(self, region: TilingRegion) -> None:
        self.region = region
        self.layout = region.layout
        self.flow = region.flow
        self.call = region.call
        self.anchor = region.anchor
        held = {w.name for w in self.flow.weights[self.anchor]}
        parameters = self.flow.specs[self.anchor].parameters
        self.constants = [
            (i, n)
            for i, n in enumerate(self.call.operator.inputs)
            if i > 0 and n in held and i not in parameters
        ]
        self.second = next((o for o in region.operands if o.op == self.anchor and o.input == 1), None)
        self.finish = Finish(region, (0, 1))
        self.results = self.finish.results
        self.passing = self.layout.place_name("weights")
        if self.second:
            self.second_place = self.layout.place_name(f"{self.second.source.name}{IN_BLOCKS}")
        else:
            self.second_place = ""

    def block_constants(self, out: Box, inputs: Span | None = None) -> list[tuple[str, Box]]:
        """Weights, then bias, of a block of the anchor's result."""
        return [
            (name, footprint(self.call, i, out, inputs=inputs if i == 1 else None))
            for i, name in self.constants
        ]

    def constant_bytes(self, out: Box, inputs: Span | None = None) -> int:
        """DRAM bytes of the weights and bias of a block of the anchor's result."""
        return sum(self.layout.constant_bytes(name, box) for name, box in self.block_constants(out, inputs))

    def load_constants(self, pairs: Sequence[tuple[str, Box]], place: int, slot: int) -> list[Step]:
        """Loads of constants into one slot, one behind the other."""
        steps: list[Step] = []
        offset = 0
        for name, box in pairs:
            steps.append(self.layout.load_constant(name, box, place, slot, offset))
            offset += steps[-1].bytes  # type: ignore[union-attr]
        return steps


def input_channels(call: Call) -> int:
    """Input channels that one output element of a contraction sums over."""
    if row_of(call).family is Family.CONVOLUTION:
        return call.shape(0)[1] // call.attribute("group", 1)
    first = call.shape(0)
    if call.operator.kind == "Gemm" and call.attribute("transA", 0):
        return first[0]
    return first[-1]
