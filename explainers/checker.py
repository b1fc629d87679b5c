"""Labels of groups by the planner: the buffer that they need in one mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from lfopt.ops.flight import attending, in_flight
from lfopt.planning import SCHEMES, GroupCosts

# modes that a group needs some buffer for
LabelScheme = Literal["lbdf", "brr", "resident", "strips", "sliced", "gated"]


@dataclass(frozen=True, eq=False)
class Checker:
    """Exact requirement of groups of one dataflow and chip, in one mode, untiled."""

    costs: GroupCosts  # of a scheme that has the mode
    mode: LabelScheme

    @classmethod
    def of(cls, flow: Dataflow, hardware: Hardware, mode: LabelScheme) -> Checker:
        """`flow`: as `seen`."""
        return cls(GroupCosts(flow, hardware, scheme=scheme_with(mode), epilogue=False), mode)

    def need(self, mask: int) -> int:
        """F_beta in bytes: the group is valid iff the buffer is larger; NEVER where none is large enough."""
        return self.costs.modes[self.mode].need(mask)


def scheme_with(mode: LabelScheme) -> str:
    """The first scheme that has a mode: that of this mode alone, if there is one."""
    return next(name for name, row in SCHEMES.items() if mode in row.modes)


def seen(flow: Dataflow, mode: LabelScheme) -> Dataflow:
    """A network as the scheme of a mode sees it.

    Where the scheme has them, elementwise operators are in flight, and an attention is one operator.
    """
    if SCHEMES[scheme_with(mode)].flights:
        return in_flight(attending(flow))
    return flow
