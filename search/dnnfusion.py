"""DNNFusion's planner: blocks grown from one-to-one operators by the table of mapping types."""

from __future__ import annotations

from lfopt.fusion import CostModel, FusionOutcome, TypeRules, combined, mapping_of
from lfopt.ops import bits
from lfopt.ops.table import Mapping
from search.budget import SearchBudget, one_scheme
from search.options import DEFAULTS, Latency, SearchOptions
from search.partition import Partitions
from search.result import Result


def grow_blocks(model: CostModel, options: SearchOptions = DEFAULTS, *, strict: bool = False) -> Result:
    """Grow blocks from seeds: the unfused one-to-one operators, that of the smallest result first.

    A block grows over its successors, then its predecessors. Source: DNNFusion (arXiv 2108.13342), listing 1,
    with the type of the block in place of that of its last operator, as its figure 3 has it; an operator
    joins only if there is no cyclic dependency between blocks then, and the block stays legal. Doubtful pairs
    (yellow in table 3) are fused if the larger block takes no longer than its parts by `options.latency`;
    without one, if it moves no more DRAM bytes. With `strict`, no block has two many-to-many operators, as
    table 3 has it; without, pools, reductions, softmax and normalisation may stand beside another (doubtful),
    as the paper's table 5 counts.
    """
    partitions = options.partitions or Partitions(model)
    budget = SearchBudget(model, options, lambda: partitions.asked)
    blocks = _Blocks(partitions, options.latency or partitions.bytes_of, strict=strict)
    try:
        for seed in blocks.seeds():
            if budget.over():
                break
            if blocks.block[seed] == 1 << seed:
                blocks.grow(seed)
    except KeyboardInterrupt:
        budget.interrupted = True
    return one_scheme("dnnfusion", partitions, budget, blocks.block)


class _Blocks:
    """Blocks so far, by operator."""

    def __init__(self, partitions: Partitions, latency: Latency, *, strict: bool) -> None:
        self.partitions = partitions
        self.flow = partitions.flow
        self.latency = latency
        self.types = [mapping_of(call) for call in self.flow.calls]
        self.rules = TypeRules.of(self.flow, strict=strict)
        self.block = [1 << i for i in range(len(self.flow))]  # of every operator

    def seeds(self) -> list[int]:
        """One-to-one operators, that of the smallest result first."""
        flow = self.flow
        one_to_one = [i for i, kind in enumerate(self.types) if kind is Mapping.ONE_TO_ONE]
        return sorted(one_to_one, key=lambda i: (sum(flow.maps[m].elements for m in flow.results[i]), i))

    def grow(self, seed: int) -> None:
        """Grow the block of a seed, over successors, then predecessors."""
        kind = self.types[seed]
        for after in (True, False):
            left = list(bits(self.block[seed]))
            while left:
                op = left.pop(0)
                for other in bits(
                    (self.flow.succs if after else self.flow.preds)[op] & self.flow.neighbours[op]
                ):
                    mask = self.block[seed]
                    joined = self.block[other]
                    if mask >> other & 1 or joined != 1 << other:
                        continue
                    fused, outcome = self.judged(mask, kind, other, after=after)
                    if outcome is FusionOutcome.BREAK or not self.may_join(mask, other):
                        continue
                    if outcome is FusionOutcome.PROFILE and self.latency(mask | joined) > self.latency(
                        mask
                    ) + self.latency(joined):
                        continue
                    kind = fused
                    for member in bits(mask | joined):
                        self.block[member] = mask | joined
                    left.append(other)

    def judged(self, mask: int, kind: Mapping, other: int, *, after: bool) -> tuple[Mapping, FusionOutcome]:
        """(type of the fused block, outcome) by table 3 for a block and an operator after, or before, it."""
        fused, outcome = combined(kind, self.types[other]) if after else combined(self.types[other], kind)
        spared = kind is self.types[other] is Mapping.MANY_TO_MANY and self.rules.allow(mask | 1 << other)
        return fused, FusionOutcome.PROFILE if outcome is FusionOutcome.BREAK and spared else outcome

    def may_join(self, mask: int, other: int) -> bool:
        """Whether an operator can join: no cyclic dependency of blocks then, and the group is legal."""
        flow = self.flow
        joined = mask | 1 << other
        below = self._reached(joined, flow.descendants)
        above = self._reached(joined, flow.ancestors)
        return not below & above & ~joined and self.partitions.price(joined) is not None

    def _reached(self, mask: int, beyond: tuple[int, ...]) -> int:
        """Operators that the set reaches through operators and blocks outside it."""
        reached = pending = 0
        for i in bits(mask):
            pending |= beyond[i]
        pending &= ~mask
        while pending:
            op = (pending & -pending).bit_length() - 1
            block = self.block[op]
            reached |= block
            for member in bits(block) if block != 1 << op else ():
                pending |= beyond[member]
            pending &= ~reached & ~mask
        return reached
