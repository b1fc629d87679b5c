"""Mapping types of operators, and what becomes of two of them that are fused.

Source: DNNFusion (PLDI'21, arXiv 2108.13342), tables 2 and 3. The colours of table 3 are those that its
section 3.2 tells in prose; of one-to-many followed by one-to-many it says nothing: taken for doubtful here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lfopt.ops import Call, Dataflow, spec
from lfopt.ops.table import Mapping, OpSpec, Tiling


class FusionOutcome(Enum):
    """What fusing two operators brings."""

    FUSE = "fuse"  # it pays: table 3, green
    PROFILE = "profile"  # it may pay: yellow
    BREAK = "break"  # it does not pay: red


O2O, O2M, M2M, REORGANIZE, SHUFFLE = Mapping
COMPLEXITY = (O2O, REORGANIZE, SHUFFLE, O2M, M2M)  # footnote 1 of the paper; simplest first
SECOND = (O2O, O2M, M2M, REORGANIZE, SHUFFLE)

_G, _Y, _R = FusionOutcome
# First operator; second operator: one-to-one, one-to-many, many-to-many, reorganize, shuffle.
_COMBINED: dict[Mapping, tuple[tuple[Mapping, FusionOutcome], ...]] = {
    O2O:        ((O2O, _G),        (O2M, _G), (M2M, _G), (REORGANIZE, _G), (SHUFFLE, _G)),
    O2M:        ((O2M, _G),        (O2M, _Y), (M2M, _R), (O2M, _Y),        (O2M, _Y)),
    M2M:        ((M2M, _G),        (M2M, _Y), (M2M, _R), (M2M, _Y),        (M2M, _Y)),
    REORGANIZE: ((REORGANIZE, _G), (O2M, _Y), (M2M, _Y), (REORGANIZE, _G), (REORGANIZE, _G)),
    SHUFFLE:    ((SHUFFLE, _G),    (O2M, _Y), (M2M, _Y), (REORGANIZE, _G), (SHUFFLE, _G)),
}  # fmt: skip


def combined(first: Mapping, second: Mapping) -> tuple[Mapping, FusionOutcome]:
    """(mapping type, outcome) of an operator, or block, of the first type followed by one of the second.

    >>> combined(Mapping.MANY_TO_MANY, Mapping.ONE_TO_ONE)
    (<Mapping.MANY_TO_MANY: 'many-to-many'>, <FusionOutcome.FUSE: 'fuse'>)
    """
    return _COMBINED[first][SECOND.index(second)]


def mapping_of(call: Call) -> Mapping:
    """The mapping type of an operator where it stands: the most complex of its pairs of input and output.

    An elementwise operator that spreads a map over a larger result is one-to-many. Constants are no pairs:
    they are loaded like weights.
    """
    row = spec(call.operator.kind, call.operator.domain)
    return max(
        (_of_input(call, row, i) for i in range(len(call.shapes))), key=COMPLEXITY.index, default=row.mapping
    )


def _of_input(call: Call, row: OpSpec, index: int) -> Mapping:
    spreads = (
        row.elementwise and row.mapping is O2O and index not in row.parameters and not call.constant[index]
    )
    if spreads and call.shapes[index] not in (None, call.result):
        return O2M
    return row.mapping


@dataclass(frozen=True, slots=True)
class TypeRules:
    """Which sets of operators table 3 does not break, whatever it says of their profit.

    Strictly, a group has one many-to-many operator, and no one-to-many operator before it. Pools, reductions,
    and what is made of them (softmax, normalisation) may be let off: the paper's own counts of fused layers
    (its table 5) are lower than there are many-to-many operators.
    """

    single: int  # operators of which a group has one at the most
    before: dict[int, int]  # such an operator -> the one-to-many operators that it depends on

    @classmethod
    def of(cls, flow: Dataflow, *, strict: bool) -> TypeRules:
        """The rules for the operators of a graph."""
        types = [mapping_of(call) for call in flow.calls]
        spreading = sum(1 << i for i, kind in enumerate(types) if kind is O2M)
        single = [
            i for i, kind in enumerate(types) if kind is M2M and (strict or _sums_products(flow.specs[i]))
        ]
        return cls(sum(1 << i for i in single), {i: flow.ancestors[i] & spreading for i in single})

    def allow(self, group: int) -> bool:
        """Whether the operators may be one group. Of a group that is not allowed, no larger one is."""
        single = group & self.single
        return not single or (not single & (single - 1) and not group & self.before[single.bit_length() - 1])


def _sums_products(row: OpSpec) -> bool:
    """Whether a many-to-many operator is one in earnest: a contraction, or one of which nothing is known."""
    return row.tiling in (Tiling.CONTRACT, Tiling.WHOLE)
