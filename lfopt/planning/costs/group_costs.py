"""The cost of a fusion group: the fewest DRAM bytes of a scheme's modes, with buffer bytes, or why not.

    valid iff it fits in some mode (each says what it needs), and the parameters of several operators fit the
    store for them

A single operator may always stand alone. An operator followed by elementwise operators (its epilogue) may run
where one of its smallest steps fits. If they do not fit whole, they are tiled. A single operator of which no
step fits has no steps: its price is what must move and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from lfopt.ir import (
    FREE,
    Constraints,
    Copy,
    Cost,
    DoesNotFit,
    DramBytes,
    Graph,
    Hardware,
    InvalidConfig,
)
from lfopt.ops import ATTENTION, Dataflow, bits
from lfopt.planning.bounds.bounds import Bounds
from lfopt.planning.costs.pricing import GroupPricing
from lfopt.planning.costs.rules import UNMET, Rules
from lfopt.planning.costs.schemes import check_scheme, seen_by, tables_fly
from lfopt.planning.costs.shortages import least_need, least_weights, parameter_shortage, shortage
from lfopt.planning.defaults import EPILOGUE, GROUP_SCHEME, MAX_RECOMPUTE
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes import (
    ANYWHERE,
    DEFAULT_TRAFFIC,
    MODES,
    NEVER,
    SCHEMES,
    AccessMode,
    ChainedMode,
    ExecutionMode,
    Linked,
    ModeOption,
    NestMode,
    SearchSpace,
    Traffic,
    TrafficTerms,
    unnamed_modes,
)
from lfopt.planning.modes.mode import is_single
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.passes.price import nest_macs
from lfopt.planning.passes.tree import Nest
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.steps.limit import never
from lfopt.rewrite.covers import without_copies

KEPT = 1 << 16  # groups whose bounds are remembered


class GroupCosts:
    """The `CostModel` of one dataflow on one chip, memoised.

    Groups are masks of operators; connectivity and convexity are not checked.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        hardware: Hardware,
        traffic: Traffic = DEFAULT_TRAFFIC,
        *,
        scheme: str = GROUP_SCHEME,
        epilogue: bool = EPILOGUE,
        max_recompute: float = MAX_RECOMPUTE,
        constraints: Constraints = FREE,
        known: GroupCosts | None = None,
        late: Callable[[], bool] = never,
    ) -> None:
        """`max_recompute`: MACs that a group may do over those of its operators; 1 without recomputation.

        `constraints`: what groups must keep to; one that does not costs `UNMET` bytes more, or is not legal.
        `known`: costs of the same dataflow on the same chip, but for its buffer and the scheme, with which
        everything else is shared. `late`: whether the time for bounds that take long is over.

        Raises InvalidConfig for an unknown scheme, one that traffic `paper` has no mode of, and for a mode
        that the scheme has not.
        """
        check_scheme(scheme, hardware, traffic)
        names = SCHEMES[scheme].modes
        self.dataflow = dataflow
        self.hardware = hardware
        self.traffic = traffic
        self.scheme = scheme
        self.epilogue = epilogue
        self.late = late
        self.max_recompute = max_recompute if SCHEMES[scheme].copies else 1.0
        self.groups = Groups(dataflow, hardware) if known is None else known.groups
        self._known: dict[str, ExecutionMode] = {} if known is None else known._known  # noqa: SLF001  (of the same class)
        every = (*names, *unnamed_modes(SCHEMES[scheme], attends=ATTENTION in dataflow.specs))
        self.modes = {name: self._mode(name) for name in every}
        self.constraints, self.rules = constraints, Rules.of(dataflow, constraints)
        fixed = {name for name, mode in self.modes.items() if mode.alone or name in ("chained", "nest")}
        selectable = [name for name in self.modes if name not in fixed]
        for operator, mode in constraints.mode.items():
            if mode not in selectable:
                raise InvalidConfig(
                    f"mode.{operator}: found {mode!r} with scheme {scheme}; accepted: {', '.join(selectable)}"
                )
        self._named = {name: self.modes[name] for name in names}  # of the scheme
        self.pricing = GroupPricing(self.groups, hardware, self.modes, self._named, self.rules)
        self._nothing = (None,) * len(names)  # bounds of the empty group
        # per group: (bounds, DRAM bytes with every tensor once)
        self._grown: dict[int, tuple[tuple[Any, ...], int]] = {}
        self._prices: dict[int, Cost | None] = {}
        self._unfused: dict[tuple[Copy, ...], GroupCosts] = {}
        # ways of groups that are to run otherwise than with the fewest bytes
        self._taken: dict[int, ModeOption] = {}

    @classmethod
    def of(
        cls,
        graph: Graph,
        hardware: Hardware,
        traffic: Traffic = DEFAULT_TRAFFIC,
        *,
        scheme: str = GROUP_SCHEME,
        epilogue: bool = EPILOGUE,
        max_recompute: float = MAX_RECOMPUTE,
        groups: Sequence[Sequence[str]] | None = None,
        constraints: Constraints = FREE,
        late: Callable[[], bool] = never,
    ) -> GroupCosts:
        """Costs of the groups of a network, as the scheme sees it.

        `hardware`: as it is for the network, see `Hardware.of_network`. `groups`: a partition of its
        operators, if there is one: nothing is in flight from one to another.
        """
        hardware = hardware.of_network(quantized=graph.quantized)
        flow = seen_by(scheme, graph, hardware, traffic, groups, constraints)
        return cls(
            flow,
            hardware,
            traffic,
            scheme=scheme,
            epilogue=epilogue,
            max_recompute=max_recompute,
            constraints=constraints,
            late=late,
        )

    @property
    def flies(self) -> bool:
        """Whether operators may be in flight.

        So if the scheme has flights, or if the chip has tables for functions of one byte (`tables_fly`).
        """
        return SCHEMES[self.scheme].flights or tables_fly(self.dataflow.graph, self.hardware, self.traffic)

    def _mode(self, name: str) -> ExecutionMode:
        if name not in self._known:
            most = self.max_recompute if SCHEMES[self.scheme].copies else float("inf")
            space = SearchSpace(self.traffic, self.epilogue, most)
            self._known[name] = MODES[name](self.groups, space)
        return self._known[name]

    def unfused(self, copies: Sequence[Copy] = ()) -> GroupCosts:
        """Costs of the network without these copies, on the same chip with nothing in flight.

        What baselines are counted by.
        """
        if not copies and not self.flies:
            return self
        key = tuple(copies)
        if key not in self._unfused:
            graph = self.dataflow.graph
            flow = Dataflow.of(without_copies(graph, copies) if copies else graph)
            space = {"scheme": self.scheme, "epilogue": self.epilogue, "late": self.late}
            self._unfused[key] = GroupCosts(flow, self.hardware, self.traffic, **space)
        return self._unfused[key]

    def grounded(self, scheme: str | None = None) -> GroupCosts:
        """Costs of the same network with nothing in flight, in the same space, or in another scheme."""
        flow = Dataflow.of(self.dataflow.graph)
        return GroupCosts(flow, self.hardware, self.traffic, **self._space(scheme or self.scheme))

    def copies_of(self, copies: Sequence[Copy]) -> tuple[Copy, ...]:
        """Those of some copies that the network has."""
        names = {operator.name for operator in self.dataflow.graph.operators}
        return tuple(copy for copy in copies if copy.name in names)

    def at(self, buffer_bytes: int) -> GroupCosts:
        """Costs on another buffer; all that does not depend on its size is shared."""
        resized = self._like(self.scheme, replace(self.hardware, buffer_bytes=buffer_bytes))
        resized._grown = self._grown  # noqa: SLF001
        return resized

    @property
    def simpler(self) -> GroupCosts | None:
        """Costs with fewer modes, None if there are none; a group moves no more here than there."""
        simpler = SCHEMES[self.scheme].simpler
        if simpler is None or self.rules.nests:  # groups may have to run in other modes
            return None
        if not {*self.rules.modes.values()} <= {*SCHEMES[simpler].modes, *ANYWHERE}:
            return None
        return self._like(simpler, self.hardware)

    def poorer(self) -> Iterator[GroupCosts]:
        """Costs in each scheme of fewer of the modes, of the same dataflow on the same chip."""
        if self.constraints != FREE:
            return
        modes = {*SCHEMES[self.scheme].modes}
        for name, row in SCHEMES.items():
            if {*row.modes} < modes and not row.flights:
                yield self._like(name, self.hardware)

    def _like(self, scheme: str, hardware: Hardware) -> GroupCosts:
        return GroupCosts(self.dataflow, hardware, self.traffic, known=self, **self._space(scheme))

    def _space(self, scheme: str) -> dict[str, Any]:
        return {
            "scheme": scheme,
            "epilogue": self.epilogue,
            "max_recompute": self.max_recompute,
            "constraints": self.constraints,
            "late": self.late,
        }

    # -- whole groups ----------------------------------------------------------------------------------------

    def evaluate(self, mask: int) -> Cost | DoesNotFit:
        """Cost of the group in the mode that moves the fewest bytes, or why it may not run.

        Of modes with equal bytes, the first of `MODES`.
        """
        return self.price(mask) or self.does_not_fit(mask)

    def price(self, mask: int) -> Cost | None:
        """As `evaluate`, without reasons."""
        if mask not in self._prices:
            bounds, once = self._grown.get(mask, (None, None))
            priced = self.pricing.price(mask, bounds, once)
            self._prices[mask] = self._or_as_chain(mask, priced.cost)
            if priced.way is not None:
                self._taken[mask] = priced.way
        return self._prices[mask]

    def executable(self, groups: Sequence[int]) -> bool:
        """Whether all of these groups have steps."""
        return not self.without_steps(groups)

    def without_steps(self, groups: Sequence[int]) -> int:
        """How many of these groups have no steps: nothing of them fits the buffer, or they are opaque."""
        return sum(price is None or not price.executable for price in map(self.price, groups))

    def at_least(self, mask: int) -> int:
        """0: a price is worked out at once, without a bound before."""
        return 0

    def breaks(self, mask: int) -> bool:
        """Whether a legal group breaks a constraint; its price has `UNMET` bytes more than it moves."""
        price = self.price(mask) if mask & self.rules.touched else None
        return price is not None and price.dram_bytes >= UNMET

    def learn(self, chain: Linked) -> None:
        """Let this group run as a chain, too, and price it so if that moves fewer bytes."""
        mode = self.modes["chained"]
        assert isinstance(mode, ChainedMode)
        mode.learn(chain, self.hardware.buffer_bytes)
        self._prices[chain.mask] = self._or_as_chain(chain.mask, self.price(chain.mask))

    def _or_as_chain(self, mask: int, other: Cost | None) -> Cost | None:
        """The price of a group as a chain, if it is known to be one and moves fewer bytes so."""
        mode = self.modes.get("chained")
        chained = None if mode is None else mode.price(mask, self.hardware.buffer_bytes, 0)
        if chained is not None and (other is None or chained.dram_bytes < other.dram_bytes):
            return chained
        return other

    def give(self, mask: int, nest: Nest) -> DoesNotFit | None:
        """Let a group run as a nest says; what it needs if it does not fit. Raises Unwritten."""
        mode = self.modes["nest"]
        assert isinstance(mode, NestMode)
        misfit = mode.give(mask, nest)
        if misfit is None:
            self._prices[mask] = mode.price(mask, self.hardware.buffer_bytes, 0)
        return misfit

    def options(self, mask: int, *, whole: bool | None = None) -> Iterator[ModeOption]:
        """The ways in which a group may run. None moves fewer bytes than `price` says, less what is `UNMET`.

        `whole`: only in modes whose attribute `whole` is this; None: in every mode.
        """
        chosen = self.chosen(mask)
        if chosen is None:
            return
        parts = self.rules.parts_of_nest(mask)
        if self.breaks(mask):  # no way has the parts that are asked for
            parts = frozenset()
        cost = self.price(mask)
        executable = cost is not None and cost.executable
        for option in self.pricing.options(mask, chosen, parts, whole=whole):
            if option.cost.executable or not executable:
                yield option

    def take(self, mask: int, option: ModeOption | None) -> None:
        """Let a group run in one of its ways; None: in that of the fewest bytes."""
        if option is None:
            self._taken.pop(mask, None)
            self._prices.pop(mask, None)
        else:
            self._taken[mask], self._prices[mask] = option, option.cost

    def taken(self, mask: int) -> ModeOption | None:
        """The way that was taken, if one was."""
        return self._taken.get(mask)

    def dram_bytes(self, groups: Sequence[int]) -> int:
        """DRAM bytes of groups that may run, all together."""
        prices = [self.price(group) for group in groups]
        assert None not in prices, "groups of a scheme are legal"
        return sum(price.dram_bytes for price in prices if price is not None)

    def proven_bytes(self, least: int, copies: Sequence[Copy] = ()) -> int:
        """Lower bound on the bytes of any plan of this space.

        `least`: the same for groups of the network with these copies, one at a time. Where maps may stay
        between groups, that proves nothing of plans, and the bound with recomputation is taken if it is less.
        """
        if not SCHEMES[self.scheme].chains:
            return least
        return min(least, self.unfused(copies).bounds.recomputing_bytes)

    def chosen(self, mask: int) -> ExecutionMode | None:
        """The mode that `evaluate` chose; None where the group may not run."""
        cost = self.price(mask)
        if cost is None:
            return None
        return self.modes[cost.mode]

    def terms(self, mask: int) -> TrafficTerms:
        """How the group runs in the mode that `evaluate` chose.

        Where it may not run: DRAM bytes with every tensor once.
        """
        if mask in self._taken:
            return self._taken[mask].terms
        mode = self.chosen(mask)
        if mode is None:
            return TrafficTerms(self.groups.once(mask))
        return mode.terms(mask, self.hardware.buffer_bytes)

    def dram(self, mask: int) -> DramBytes:
        """DRAM bytes of a group by class. See `terms`."""
        return self.terms(mask).dram

    def macs(self, mask: int, option: ModeOption | None = None) -> int:
        """Multiply-accumulates that a group may do at the most.

        `option`: the way that it runs in; None: the one that was taken, or that `evaluate` chose.
        """
        option = option or self._taken.get(mask)
        mode = self.chosen(mask) if option is None else self.modes[option.cost.mode]
        once = sum(self.dataflow.macs[i] for i in bits(mask))
        if mode is None or not mode.whole:
            return once
        beta = self.hardware.buffer_bytes
        scheduled = mode.schedule(mask, beta, 1) if option is None else option.scheduled
        if scheduled.macs is not None:
            return scheduled.macs
        if scheduled.nest is None:
            return once
        return nest_macs(self._nests, mask, scheduled.nest)

    @cached_property
    def _nests(self) -> NestPricing:
        return NestPricing(BufferLayout(self.dataflow, self.hardware), self.groups.line_buffers)

    def does_not_fit(self, mask: int) -> DoesNotFit:
        """The breakdown of what a group needs, in the mode of the scheme that needs the least buffer."""
        if not self.groups.parameters_fit(mask):
            return parameter_shortage(self.groups, self.hardware, mask)
        return shortage(self._named, self.hardware, mask, self.least_need(mask))

    def passes_rows(self, mask: int) -> bool:
        """See `GroupPricing.passes_rows`."""
        return self.pricing.passes_rows(mask)

    def least_weights(self, mask: int) -> tuple[str, int] | None:
        """(mode, bytes of weights) of the mode whose weights exceed the weight buffer least; or None."""
        return least_weights(self._named, self.hardware, mask)

    def least_need(self, mask: int) -> tuple[str, int]:
        """(mode of the scheme that needs the least buffer, F_beta in bytes); NEVER if no buffer is enough."""
        if self.passes_rows(mask):
            return least_need(self._named, mask)
        return next(iter(self._named)), NEVER

    def smallest_need(self, mask: int) -> tuple[str, int]:
        """(mode that runs the group on the smallest buffer, bytes that this must exceed); NEVER if none does.

        Tiles, blocks of attention and operators that are read through are modes here too. Chains, and groups
        that someone wrote, are not asked: those need what their steps say.
        """
        whole = self.pricing.whole if self.passes_rows(mask) else []
        modes = [*whole, *self.pricing.alone, *self.pricing.anywhere]
        needs = [(mode.need(mask), name) for name, mode in self.modes.items() if mode in modes]
        need, name = min(needs, key=itemgetter(0))
        return name, need

    def legal_anywhere(self, mask: int) -> bool:
        """Whether the group may run however little of it fits: a single operator, or an epilogue group."""
        if is_single(mask):
            return True
        return (
            any(mode.anywhere(mask) for mode in self.pricing.anywhere)
            and self.groups.parameters_fit(mask)
            and not self.rules.forbid(mask)
            and self.price(mask) is not None
        )

    @property
    def excluded(self) -> int:
        """Operators that traffic `paper` leaves out."""
        return self.pricing.excluded

    # -- what a search grows groups with ---------------------------------------------------------------------

    def grow(self, mask: int, floor: Any, dram: int, op: int) -> tuple[Any, int]:
        """Add an operator whose index is above all others in the group.

        `floor` bounds the buffer from below, for the group and for every group that it is grown into: a bound
        for each mode of the scheme; that of the empty group is not read. `dram` is F_D with every tensor
        once. Both are returned for the larger group.
        """
        before = floor if mask else self._nothing
        larger = mask | 1 << op
        floors = tuple(
            [mode.grow(mask, bound, op) for mode, bound in zip(self.pricing.whole, before, strict=True)]
        )
        if larger & self.excluded:  # an excluded operator stands alone, and moves nothing that is counted
            return floors, 0 if self.excluded >> op & 1 else self.groups.grow(mask, dram, op)
        dram = self.groups.grow(mask, dram, op)
        if len(self._grown) >= KEPT:
            self._grown.clear()
        self._grown[larger] = floors, dram
        return floors, dram

    def may_grow(self, mask: int, floor: Any) -> bool:
        """Whether this group, or one that it is grown into, may be legal by lower bounds on the buffer."""
        if not self.groups.parameters_fit(mask) or (mask & self.rules.touched and self.rules.forbid(mask)):
            return False
        beta = self.hardware.buffer_bytes
        for mode, bound in zip(self.pricing.whole, floor, strict=True):
            if mode.may_fit(mask, bound, beta):
                return True
        return any(mode.may_fit(mask, None, beta) for mode in self.pricing.anywhere)

    @cached_property
    def bounds(self) -> Bounds:
        """Bounds on whole schemes."""
        counted, access = self.dataflow.everything & ~self.excluded, self.modes.get("access")
        return Bounds(
            self.groups,
            self.pricing.whole,
            self.pricing.anywhere,
            self.hardware.buffer_bytes,
            counted,
            epilogue=self.epilogue,
            flights=self.flies,
            through=access.operators if isinstance(access, AccessMode) else 0,
            late=self.late,
        )

    @property
    def least_bytes(self) -> int:
        """Lower bound on the DRAM bytes of any scheme. See `Bounds`.

        What no schedule avoids may be more: of several parts of an input, `Bounds` counts the smallest.
        """
        return max(self.bounds.least_bytes, self.bounds.compulsory_bytes)

    @property
    def compatible(self) -> tuple[int, ...]:
        """Per operator: operators that may share a legal group with it, itself included. See `Bounds`."""
        return self._compatible

    @cached_property
    def _compatible(self) -> tuple[int, ...]:
        return self.rules.compatible(self.bounds.compatible)

    def rest_bytes(self, executed: int, before: int, group: int) -> int:
        """See `Bounds`: at first from its own figure, which may be below `least_bytes`."""
        known = before if executed else self.bounds.least_bytes
        return self.bounds.rest_bytes(executed, known, group)
