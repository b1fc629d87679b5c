"""Constraints on groups as masks of one dataflow.

A group that parts what belongs together, or cannot run in the mode that it must, is not illegal but dearer
than every plan that keeps to the constraints: so single operators stay legal, as searches need it, and the
fewest bytes are those of a plan that keeps to all, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lfopt.ir import Constraints
from lfopt.ops import Call, Dataflow, bits
from lfopt.planning.written.parts import parts_of

UNMET = 1 << 50  # bytes that a group costs for breaking a constraint; no plan moves so many


@dataclass(frozen=True)
class Rules:
    """Constraints on the groups of one dataflow, as masks.

    Operators that it does not have are of no concern: parts of networks are searched too.
    """

    together: tuple[int, ...] = ()
    alone: int = 0
    cut: tuple[int, ...] = ()
    modes: Mapping[int, str] = field(default_factory=dict[int, str])  # by operator
    nests: Mapping[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])  # by operator
    touched: int = 0  # operators that any of these is about

    @classmethod
    def of(cls, flow: Dataflow, constraints: Constraints) -> Rules:
        """The rules of constraints that name operators. Raises InvalidConfig for parts that no nest has."""
        if not constraints:
            return NO_RULES
        where = flow.position

        def mask(names: Iterable[str]) -> int:
            return sum(1 << i for i in {where[name] for name in names if name in where})

        together = tuple(group for group in map(mask, constraints.together) if group & (group - 1))
        cut = tuple(group for group in map(mask, constraints.cut) if group & (group - 1))
        modes = {where[name]: mode for name, mode in constraints.mode.items() if name in where}
        alone = mask(constraints.alone)
        nests = {
            where[name]: parts_of(text, f"nests.{name}")
            for name, text in constraints.nests.items()
            if name in where
        }
        touched = alone | sum(1 << i for i in {*modes, *nests})
        for members in (*together, *cut):
            touched |= members
        return cls(together, alone, cut, modes, nests, touched)

    def forbid(self, group: int) -> bool:
        """Whether this group, and whatever it is grown into, breaks a constraint."""
        several = group & (group - 1)
        return bool(several) and (
            bool(group & self.alone) or any((apart := group & c) & (apart - 1) for c in self.cut)
        )

    def parts(self, group: int) -> bool:
        """Whether the group has some, but not all, of what belongs together."""
        return any(0 != group & members != members for members in self.together)

    def mode(self, group: int) -> str | None:
        """The mode in which the group must run, of contradicting ones the first; None: any."""
        return next((self.modes[i] for i in bits(group & self.touched) if i in self.modes), None)

    def parts_of_nest(self, group: int) -> frozenset[str]:
        """What the nest of the group must have."""
        wanted = [self.nests[i] for i in bits(group & self.touched) if i in self.nests]
        return frozenset[str]().union(*wanted)

    def contradict(self, group: int) -> bool:
        """Whether operators of the group are to run in different modes."""
        return len({self.modes[i] for i in bits(group & self.touched) if i in self.modes}) > 1

    def compatible(self, known: tuple[int, ...]) -> tuple[int, ...]:
        """Operators that may share a group, without those that must not."""
        compatible = list(known)
        for i in bits(self.touched):
            apart = (self.alone & ~(1 << i)) if not self.alone >> i & 1 else ~(1 << i)
            for members in self.cut:
                apart |= members & ~(1 << i) if members >> i & 1 else 0
            compatible[i] &= ~apart
        return tuple(
            mask if self.touched >> i & 1 else mask & ~self.alone for i, mask in enumerate(compatible)
        )


NO_RULES = Rules()


def may_share(call: Call, constraints: Constraints) -> bool:
    """Whether operators in one flight may be in one group."""
    names = {part.operator.name for part in call.parts}
    return len(names) == 1 or not (
        names.intersection(constraints.alone)
        or any(len(names.intersection(members)) > 1 for members in constraints.cut)
    )
