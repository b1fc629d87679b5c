"""TVM's fusion rules: an operator joins its post-dominator, if the patterns between them allow it."""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.fusion import CostModel, connected, convex_gap
from lfopt.fusion.patterns import Pattern, pattern_of
from lfopt.ops import bits
from search.budget import SearchBudget, one_scheme
from search.options import DEFAULTS, SearchOptions
from search.partition import Partitions
from search.result import Result

ELEMENTWISE, BROADCAST, INJECTIVE, REDUCTION, COMPLEX, OPAQUE = Pattern
DEEPEST = 256  # operators of one group


def fuse_by_patterns(model: CostModel, options: SearchOptions = DEFAULTS) -> Result:
    """The groups that the pass FuseOps of TVM makes.

    No cost is looked at; a group that is not legal on the chip is not made.

    Source: FuseOps and its graph partitioner in TVM (Relay, Relax). Two phases: complex operators take the
    elementwise ones behind them, simple ones join the injective ones and reductions that they lead to; then
    injective ones join one another.
    """
    partitions = options.partitions or Partitions(model)
    budget = SearchBudget(model, options, lambda: partitions.asked)
    fuser = _Fuser(partitions)
    try:
        for phase in (0, 1):
            for op in range(len(model.dataflow)):
                if budget.over():
                    break
                fuser.visit(op, phase)
    except KeyboardInterrupt:
        budget.interrupted = True
    return one_scheme("tvm", partitions, budget, fuser.group)


@dataclass(frozen=True, slots=True)
class _Node:
    """An operator in the tree of post-dominators."""

    parent: int  # the operator that every path from it to an output goes through first; -1: there is none
    depth: int
    pattern: Pattern  # the most complex way in which the operators between them, and the parent, read


class _Fuser:
    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions
        self.flow = partitions.flow
        self.kinds = [pattern_of(call) for call in self.flow.calls]
        self.tree: list[_Node] = []
        self.group = [1 << i for i in range(len(self.flow))]
        self.pattern = list(self.kinds)  # of the group, at each of its operators
        self._grow_tree()

    # -- post-dominators -------------------------------------------------------------------------------------

    def _grow_tree(self) -> None:
        flow = self.flow
        tree = [_Node(-1, 1, OPAQUE)] * len(flow)
        self.tree = tree
        for op in reversed(range(len(flow))):
            readers = list(bits(flow.succs[op]))
            if readers and not any(flow.is_output[m] for m in flow.results[op]):
                parent = readers[0]
                pattern = self.kinds[readers[0]]
                for other in readers[1:]:
                    parent, between = self._meet(parent, other)
                    pattern = max(pattern, between, self.kinds[other])
                tree[op] = _Node(parent, tree[parent].depth + 1 if parent >= 0 else 1, pattern)

    def _meet(self, a: int, b: int) -> tuple[int, Pattern]:
        """(first common post-dominator, most complex pattern on the paths to it)."""
        pattern = ELEMENTWISE
        while a != b:
            if a < 0 or b < 0:
                return -1, OPAQUE
            left = self.tree[a]
            right = self.tree[b]
            if left.depth >= right.depth:
                a = left.parent
                pattern = max(pattern, left.pattern)
            if right.depth >= left.depth:
                b = right.parent
                pattern = max(pattern, right.pattern)
        return a, pattern

    # -- fusing ----------------------------------------------------------------------------------------------

    def visit(self, op: int, phase: int) -> None:
        """Fuse an operator with its post-dominator, as one phase does."""
        node = self.tree[op]
        if self.kinds[op] is OPAQUE or node.parent < 0 or self.group[op] >> node.parent & 1:
            return
        own = self.pattern[op]
        if own is COMPLEX:
            if phase == 0 and node.pattern is ELEMENTWISE:
                self._fuse(op, node.parent, BROADCAST, BROADCAST)
        elif own <= BROADCAST:
            if node.pattern <= INJECTIVE or node.pattern is REDUCTION:
                self._fuse(op, node.parent, INJECTIVE, COMPLEX)
        elif own is INJECTIVE and phase == 1:
            self._fuse(op, node.parent, INJECTIVE, INJECTIVE)

    def _fuse(self, op: int, sink: int, between_at_most: Pattern, sink_at_most: Pattern) -> None:
        """Fuse an operator, and all between, with its post-dominator, if patterns and legality allow it."""
        between = self.flow.descendants[op] & self.flow.ancestors[sink]
        if self.pattern[sink] > sink_at_most or any(self.pattern[i] > between_at_most for i in bits(between)):
            return
        mask = self.group[op]
        for i in (*bits(between), sink):
            mask |= self.group[i]
        complexes = sum(1 for i in bits(mask) if self.kinds[i] > BROADCAST and self.kinds[i] is not INJECTIVE)
        if (
            complexes > 1
            or mask.bit_count() > DEEPEST
            or not connected(self.flow.neighbours, mask)
            or convex_gap(self.flow, mask)
            or self.partitions.price(mask) is None
        ):
            return
        pattern = max(self.pattern[i] for i in bits(mask))
        for i in bits(mask):
            self.group[i], self.pattern[i] = mask, pattern
