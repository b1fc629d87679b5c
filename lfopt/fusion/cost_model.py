"""What a search asks about fusion groups: the contract between models that price them and searches."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from lfopt.ir import Cost
from lfopt.ops import Dataflow

# what a model knows of the least buffer of a group, and of all that it is grown into; only passed on
Floor = TypeVar("Floor")


class CostModel(Protocol[Floor]):
    """What groups of operators cost on a chip, and bounds on it.

    A group is a mask of operators of `dataflow`; a cost never changes.

    Neither connectivity nor convexity is checked: a search asks for connected, convex groups, or sees to it
    that the groups it ends with are. A single operator is always legal.
    """

    @property
    def dataflow(self) -> Dataflow:
        """The operators, and what each reads and makes."""
        ...

    @property
    def least_bytes(self) -> int:
        """DRAM bytes that no scheme can avoid."""
        ...

    @property
    def compatible(self) -> tuple[int, ...]:
        """Per operator: a superset of the operators that share a legal group with it, itself included."""
        ...

    @property
    def simpler(self) -> CostModel[Any] | None:
        """A model of the same dataflow that is solved faster.

        All of its schemes are legal here too, and move no more bytes here than there.
        """
        ...

    def price(self, group: int, /) -> Cost | None:
        """What the group costs; None where it is not legal."""
        ...

    def at_least(self, group: int, /) -> int:
        """DRAM bytes that `price` is not below, for less work; 0 where none are known without it."""
        ...

    def grow(self, group: int, floor: Floor | None, dram: int, op: int, /) -> tuple[Floor, int]:
        """(floor, DRAM bytes if every tensor moves once) of the group with one operator more.

        `op` is above all operators of the group. `floor` and `dram` are those of the group; of the empty
        group they are None and 0.
        """
        ...

    def may_grow(self, group: int, floor: Floor, /) -> bool:
        """Whether the group, or a group that it is grown into, may be legal.

        What is denied of a group is denied of all that it is grown into.
        """
        ...

    def legal_anywhere(self, group: int, /) -> bool:
        """Whether the group may run on any buffer, tiled if need be."""
        ...

    def rest_bytes(self, executed: int, before: int, group: int, /) -> int:
        """Least DRAM bytes of the operators that are left once `executed` and the group have run.

        `before`: the same bound, in bytes, before the group has run.
        """
        ...


class Adapted(Generic[Floor]):
    """A cost model that says what another says: the base of those that change a part of it."""

    def __init__(self, model: CostModel[Floor]) -> None:
        self.model = model
        self.dataflow = model.dataflow
        self.least_bytes = model.least_bytes

    @property
    def compatible(self) -> tuple[int, ...]:
        """As the model adapted; so are all below."""
        return self.model.compatible

    @property
    def simpler(self) -> CostModel[Any] | None:
        """None: what is changed here is not changed there."""
        return None

    def price(self, group: int, /) -> Cost | None:
        """See `CostModel`."""
        return self.model.price(group)

    def at_least(self, group: int, /) -> int:
        """See `CostModel`."""
        return self.model.at_least(group)

    def grow(self, group: int, floor: Floor | None, dram: int, op: int, /) -> tuple[Floor, int]:
        """See `CostModel`."""
        return self.model.grow(group, floor, dram, op)

    def may_grow(self, group: int, floor: Floor, /) -> bool:
        """See `CostModel`."""
        return self.model.may_grow(group, floor)

    def legal_anywhere(self, group: int, /) -> bool:
        """See `CostModel`."""
        return self.model.legal_anywhere(group)

    def rest_bytes(self, executed: int, before: int, group: int, /) -> int:
        """See `CostModel`."""
        return self.model.rest_bytes(executed, before, group)
