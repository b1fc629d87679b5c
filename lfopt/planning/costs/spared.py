"""A cost model for chips with a second level of memory: maps that may stay there count little.

So a search spends its bytes elsewhere.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from lfopt.fusion import Adapted
from lfopt.ir import Cost
from lfopt.ops import bits
from lfopt.planning.costs.group_costs import GroupCosts

# units per byte; of each, so many are spared where a map that may stay is stored or loaded whole
SCALE = 16
SPARED = 15


class Spared(Adapted[Any]):
    """Groups priced as if some maps stayed in the second level.

    What `CostModel` and `Result` call DRAM bytes is `SCALE` times that here.

    Nothing says that those maps fit together: the groups are what a search gives for
    `lfopt.planning.plans.second_level` to judge.
    """

    def __init__(self, costs: GroupCosts, staying: Container[str]) -> None:
        """`staying`: maps by name. Graph inputs and outputs among them count in full."""
        super().__init__(costs)
        flow = costs.dataflow
        sizes = costs.groups.map_bytes
        self._sizes = {
            m: sizes[m]
            for m, tensor in enumerate(flow.maps)
            if flow.producer[m] >= 0 and not flow.is_output[m] and tensor.name in staying
        }
        self._forced = costs.bounds.forced
        self._apart = costs.bounds.apart
        self._spared: dict[int, int] = {0: 0}  # per group
        # per set of executed operators: bytes that the others move at the least
        self._rest: dict[int, int] = {0: costs.least_bytes}
        self.least_bytes = self._rest_value(0)

    @staticmethod
    def _value(moved: int, spared: int) -> int:
        return SCALE * moved - SPARED * spared

    def price(self, group: int, /) -> Cost | None:
        """See `CostModel`."""
        cost = self.model.price(group)
        return cost and cost._replace(dram_bytes=self._value(cost.dram_bytes, self._spared_by(group)))

    def grow(self, group: int, floor: Any, dram: int, op: int, /) -> tuple[Any, int]:
        """See `CostModel`."""
        larger, grown = self.model.grow(group, floor, (dram + SPARED * self._spared_by(group)) // SCALE, op)
        return larger, self._value(grown, self._spared_by(group | 1 << op))

    def rest_bytes(self, executed: int, before: int, group: int, /) -> int:
        """See `CostModel`."""
        after = executed | group
        if after not in self._rest:
            self._rest[after] = self.model.rest_bytes(executed, self._rest[executed], group)
        return self._rest_value(after)

    def _rest_value(self, executed: int) -> int:
        """Lower bound on the bytes of the rest, each map counted by itself.

        Of bytes that several maps prove only together (`_apart`) none can be said to be those of a map that
        may stay. In their place stands what each map is forced to move alone (`_forced`).
        """
        flow = self.dataflow
        together = sum(self._apart[i] for i in bits(flow.everything & ~executed))
        alone = sum(
            size for m, size in enumerate(self._forced) if size and not executed >> flow.producer[m] & 1
        )
        return self._value(self._rest[executed] - together + alone, self._spared_later(executed))

    def _spared_by(self, group: int) -> int:
        """Bytes of the maps that may stay which a group loads and stores, each once."""
        if group not in self._spared:
            flow = self.dataflow
            sizes = self._sizes
            loaded = {
                o.map
                for i in bits(group)
                for o in flow.operands[i]
                if o.map in sizes and not group >> flow.producer[o.map] & 1
            }
            stored = [m for i in bits(group) for m in flow.results[i] if flow.readers[m] & ~group]
            self._spared[group] = sum(sizes.get(m, 0) for m in (*loaded, *stored))
        return self._spared[group]

    def _spared_later(self, executed: int) -> int:
        """Bytes of maps that may stay in `GroupCosts.rest_bytes`.

        Loaded by operators that are left, or by necessity stored and loaded by them.
        """
        flow = self.dataflow
        spared = 0
        for m, size in self._sizes.items():
            if not executed >> flow.producer[m] & 1:
                spared += self._forced[m]
            elif flow.readers[m] & ~executed:
                spared += size
        return spared
