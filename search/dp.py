"""Dynamic programming over the groups that mapping types allow: the best of a rule-based compiler."""

from __future__ import annotations

from dataclasses import replace

from lfopt.fusion import Adapted, CostModel, Floor, TypeRules
from lfopt.ir import Cost
from search.exact import solve
from search.options import DEFAULTS, SearchOptions
from search.result import Result


def solve_by_types(model: CostModel, options: SearchOptions = DEFAULTS, *, strict: bool = False) -> Result:
    """The scheme of fewest DRAM bytes whose groups DNNFusion's table of mapping types allows.

    The table is number 3 of arXiv 2108.13342. When the time is over, the best scheme found is returned. Gao
    et al. (Computer Science 52(5), 2025; its abstract) put rules of mapping types, a dynamic program over a
    cost model, and pruning together; the program here is that of `search.exact`: states are the operators
    executed so far, and a group is given up as soon as the table breaks it, because whatever it is grown into
    is broken too. With `strict`, no group has two many-to-many operators; without, pools, reductions, softmax
    and normalisation may join.
    """
    legal = solve(_OfTypes(model, TypeRules.of(model.dataflow, strict=strict)), options)
    # other groups may move less
    return replace(legal, method="dp", lower_bound_bytes=max(options.lower_bound_bytes, model.least_bytes))


class _OfTypes(Adapted[Floor]):
    """A cost model in which only the groups that mapping types allow are legal."""

    def __init__(self, model: CostModel[Floor], rules: TypeRules) -> None:
        super().__init__(model)
        self.allow = rules.allow
        self._compatible = tuple(
            mask & ~(rules.single & ~(1 << i)) if rules.single >> i & 1 else mask
            for i, mask in enumerate(model.compatible)
        )

    @property
    def compatible(self) -> tuple[int, ...]:
        """Per operator: the operators that a group may have beside it, by model and rules."""
        return self._compatible

    def price(self, group: int, /) -> Cost | None:
        """The model's cost; None where the rules break the group."""
        if self.allow(group):
            return self.model.price(group)
        return None

    def may_grow(self, group: int, floor: Floor, /) -> bool:
        """Whether the group may grow; a group that the rules break stays broken."""
        return self.allow(group) and self.model.may_grow(group, floor)

    def legal_anywhere(self, group: int, /) -> bool:
        """Whether the group is legal on any buffer, by model and rules."""
        return self.allow(group) and self.model.legal_anywhere(group)
