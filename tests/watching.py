"""A cost model that tells of every group whose price is asked."""

from __future__ import annotations

from collections.abc import Callable

from lfopt.fusion import Adapted, CostModel, Floor
from lfopt.ir import Cost


class Watched(Adapted[Floor]):
    """The same prices; `tell` hears of each group before it is priced, here and in the simpler model."""

    def __init__(self, model: CostModel[Floor], tell: Callable[[int], object]) -> None:
        super().__init__(model)
        self.tell = tell

    @property
    def simpler(self) -> CostModel | None:
        simpler = self.model.simpler
        return None if simpler is None else Watched(simpler, self.tell)

    def price(self, group: int, /) -> Cost | None:
        self.tell(group)
        return self.model.price(group)
