"""Recount of all claims of a plan: legality, bytes, places and steps, DRAM map, baselines, totals and gap."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isclose

from lfopt.ir import (
    MOST_LINES,
    MOST_STEPS,
    DramBytes,
    Graph,
    Plan,
    PlannedGroup,
    computations,
    line_count,
    step_count,
)
from lfopt.ops.call import Call
from lfopt.ops.recognise import attentions_in
from lfopt.ops.table import OPAQUE
from simulator.recount.accesses import access_problems, pattern_problems
from simulator.recount.attention import unmasked, with_attentions
from simulator.recount.bounds import bound_problems, compulsory_bytes, without_recompute_bytes
from simulator.recount.copies import not_copies, without_copies
from simulator.recount.flights import flights_of, not_flights, with_flights
from simulator.recount.groups import (
    TABLE_BYTES,
    CompulsoryTraffic,
    epilogue_groups,
    in_order,
    least_parameters,
    moved_once,
    not_an_epilogue,
    not_connected,
    not_convex,
    shared_tables,
    weight_bytes,
)
from simulator.recount.levels import one_level
from simulator.recount.memory import memory_problems
from simulator.recount.network import RecountNetwork
from simulator.recount.places import place_problems
from simulator.recount.progressions import RowBudget, TooMuch
from simulator.recount.schedule import GroupSteps
from simulator.recount.sums import sum_problems
from simulator.recount.traffic import executed_macs, traffic_problems

# schemes in whose space operators follow in flight, which the compulsory bytes know of, or are read through
IN_FLIGHT = {"all"}


@dataclass(frozen=True, slots=True)
class Recount:
    """Result of a recount."""

    discrepancies: tuple[str, ...]  # one line each: the group, what the plan says, what was counted
    groups: int
    steps: int  # that were walked, all iterations
    dram_bytes: int  # of the whole plan
    layer_by_layer_bytes: int
    epilogue_fused_bytes: int
    compulsory_bytes: int
    excluded_bytes: int
    without_recompute_bytes: int
    macs: int  # of the steps
    l2_bytes: int
    by_formula: tuple[int, int]  # (groups, DRAM bytes) without steps that are what a formula says
    not_recounted: tuple[int, int]  # (groups, DRAM bytes) that were only bounded: no steps, and no formula
    # those discrepancies that only say that there is more than a recount follows
    beyond: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing contradicts the plan."""
        return not self.discrepancies


def recount(graph: Graph, plan: Plan, late: Callable[[], bool] | None = None) -> Recount:
    """Recount the claims of a plan for this network.

    `late`: whether the time is over; None: there is no limit. Raises RecountStopped where it is.
    """
    wrong = tuple(not_copies(graph, plan.copies))
    original = RecountNetwork(without_copies(graph, plan.copies)) if plan.copies and not wrong else None
    return _Recounting(RecountNetwork(graph), original, plan, wrong, late).run()


def multiplications(net: RecountNetwork) -> int:
    """Multiply-accumulates of one inference, every operator once."""
    return sum(net.specs[op].macs(call) for op, call in net.calls.items())


class _Recounting:
    def __init__(
        self,
        net: RecountNetwork,
        original: RecountNetwork | None,
        plan: Plan,
        wrong: tuple[str, ...],
        late: Callable[[], bool] | None,
    ) -> None:
        """`original`: the network without copies, if it has any; `wrong`: problems of the copies."""
        self.net = net
        self.original = original or net
        self.claimed = plan
        self.hardware = plan.hardware
        self.plan, levels = one_level(net, plan)
        self.discrepancies = [*wrong, *levels]
        self.beyond: list[str] = []
        if (plan.copies or plan.max_recompute != 1) and plan.scheme not in IN_FLIGHT:
            self.discrepancies.append(f"copies, or room for them, which are not of scheme {plan.scheme}")
        tables = bool(plan.hardware.parameter_store_bytes) and net.graph.quantized and plan.traffic != "paper"
        self.attentions = attentions_in(net.graph)
        # on chips with tables, what is one follows in flight in every scheme
        self.flies = plan.scheme in IN_FLIGHT or tables
        self.macs = Fraction(0)  # of all steps
        self.steps = 0
        self.work = RowBudget(late=late)
        self.lines = 0  # of steps, as they are written
        self.tables: dict[str, int] = {}  # of operators in flight: see `shared_tables`
        self.by_formula: list[int] = []  # DRAM bytes of groups
        self.not_recounted: list[int] = []
        if plan.traffic == "paper" and plan.hardware.weight_buffer_bytes:
            self.discrepancies.append(
                f"traffic paper, with a weight buffer of {plan.hardware.weight_buffer_bytes} B: "
                "the paper has one buffer"
            )
        self.left_out = {  # operators that traffic paper leaves out
            op
            for op in net.operators
            if plan.traffic == "paper"
            and net.specs[op] is not OPAQUE
            and weight_bytes(net, [op], plan.hardware)[1] >= plan.hardware.buffer_bytes
        }

    def run(self) -> Recount:
        known = self._partition()
        for group, members in known:
            self.work.check_time()
            self._structure(group, members)
            self._group(group, members)
        self._order(known)
        self.discrepancies += pattern_problems(self.net, self.claimed)
        without = multiplications(self.original)
        # in other schemes bands may overlap, and nothing limits that
        limited = self.plan.scheme in IN_FLIGHT
        if limited and not self.macs <= self.plan.max_recompute * without * (1 + 1e-9):
            self.discrepancies.append(
                f"max_recompute: found {self.plan.max_recompute}, with {float(self.macs):,.0f} "
                f"multiply-accumulates, of {without:,} without"
            )
        free = self.attentions.masks if self.plan.scheme in IN_FLIGHT else frozenset[str]()
        self.discrepancies += memory_problems(
            self.net, self.claimed, known, self.tables, free, flies=self.flies
        )
        return self._totals(known)

    def _say(self, group: PlannedGroup, what: str) -> None:
        self.discrepancies.append(f"group {group.id}: {what}")

    def _expect(self, group: PlannedGroup, what: str, claimed: object, counted: object) -> None:
        if claimed != counted:
            self._say(group, f"{what}: the plan says {claimed}, counted {counted}")

    # -- legality --------------------------------------------------------------------------------------------

    def _partition(self) -> list[tuple[PlannedGroup, list[str]]]:
        """Groups with those of their operators that exist; checks that every operator is in exactly one."""
        owner: dict[str, int] = {}
        known: list[tuple[PlannedGroup, list[str]]] = []
        for position, group in enumerate(self.plan.groups):
            self._expect(group, "id", group.id, position)
            members: list[str] = []
            for name in group.nodes:
                if name not in self.net.operators:
                    self._say(group, f"{name!r} is not an operator of the network (or it is a view)")
                elif name in owner:
                    self._say(group, f"{name!r} is in group {owner[name]} already")
                else:
                    members.append(name)
                    owner[name] = group.id
            if members:
                known.append((group, in_order(self.net, members)))
                if members != known[-1][1]:
                    self._say(group, "its operators are not in the order of the network")
            else:
                self._say(group, "it has no operator")
        self.discrepancies += [
            f"operator {name!r} is in no group" for name in self.net.operators if name not in owner
        ]
        return known

    def _structure(self, group: PlannedGroup, members: list[str]) -> None:
        unknown = [name for name in members if self.net.specs[name] is OPAQUE]
        if unknown and len(members) > 1:
            self._say(
                group,
                f"{unknown[0]!r} ({self.net.operators[unknown[0]].kind}) "
                "is unknown to lfopt and must be alone",
            )
        gone = [name for name in members if name in self.left_out]
        if gone and (len(members) > 1 or group.steps):
            self._say(group, f"the weights of {gone[0]!r} reach the buffer: traffic paper leaves it out")
        for why in (not_connected(self.net, members), not_convex(self.net, members)):
            if why:
                self._say(group, why)

    def _order(self, known: list[tuple[PlannedGroup, list[str]]]) -> None:
        """Check that every group comes after those that it reads from: no cyclic dependency."""
        executed: set[str] = set()
        for group, members in known:
            executed.update(members)
            for op in members:
                for producer in sorted(self.net.producers(op) - executed):
                    self._say(group, f"{op!r} reads a result of {producer!r}, which runs later")

    # -- groups ----------------------------------------------------------------------------------------------

    def _group(self, group: PlannedGroup, members: list[str]) -> None:
        tensors = {name for op in members for name in (*self.net.operators[op].inputs, *self.net.makes[op])}
        # views, partial sums, and what later patches read have places of their own
        if len(group.places) > (most := 4 * len(tensors) + len(members)):
            self._say(
                group, f"{len(group.places):,} places, for {len(tensors)} tensors; a recount looks at {most}"
            )
            return
        if group.is_access:
            offered = self.plan.scheme in IN_FLIGHT
            for what in access_problems(self.net, self.claimed, group, members, offered=offered):
                self._say(group, what)
            return
        if bool(group.steps) == bool(group.unexecutable):
            self._say(group, "it must have steps, or a reason why it has none, and not both")
        if group.steps:
            net, fused, raw = self._in_flight(group, members)
            self._steps(net, raw, group, fused)
        else:
            self._without_steps(group, members)

    def _in_flight(
        self, group: PlannedGroup, members: list[str]
    ) -> tuple[RecountNetwork, list[str], RecountNetwork]:
        """(network with flights as one operator, the group's operators in it, network without flights).

        What follows in flight is part of the operator that it follows, as in the steps. The last network has
        every operator by itself, but with the tables that those in flight share.
        """
        flown = [*dict.fromkeys(flights_of(group.steps))]
        calls: dict[tuple[str, ...], Call] = {}
        for step in computations(group.steps):
            if (one := self.attentions.named(step)[0]) is not None:
                calls[step.operator, *step.then] = one.call
        base = self.net
        own = self.net
        if calls:
            base = with_attentions(self.net, [*calls.values()])
            own = unmasked(self.net, [*calls.values()])
            members = in_order(base, [op for op in members if op in base.operators])
            flown = [
                (flight[0], *flight[len(calls[flight].parts) :]) if flight in calls else flight
                for flight in flown
            ]
        flights = {flight for flight in flown if len(flight) > 1}
        if not flights:
            return base, members, own
        if wrong := next(not_flights(base, members, dict.fromkeys(flown)), None):
            self._say(group, wrong)
            return base, members, own
        raw = copy(own)
        net = with_flights(base, flights)
        raw.tables = {
            op: tables
            for flight in flights
            for op, tables in shared_tables(self.net, flight, self.hardware).items()
        }
        self.tables |= raw.tables
        return net, in_order(net, [op for op in members if op in net.operators]), raw

    def _steps(
        self,
        net: RecountNetwork,
        raw: RecountNetwork,
        group: PlannedGroup,
        members: list[str],
    ) -> None:
        steps = step_count(group.steps)
        lines = line_count(group.steps)
        for number, before, most, what in (
            (steps, self.steps, MOST_STEPS, "steps"),
            (lines, self.lines, MOST_LINES, "lines of steps"),
        ):
            if before + number > most:
                self._say(
                    group, f"{number:,} {what}, after {before:,} of other groups; a plan has at most {most:,}"
                )
                return
        self.steps += steps
        self.lines += lines
        schedule = GroupSteps(net, raw, self.hardware, group, members, self.work)
        try:
            wrong = [*schedule.senseless()]
            if not wrong:
                self.macs += executed_macs(schedule)
                wrong = [*traffic_problems(schedule), *sum_problems(schedule)]
            # the last is what takes time: nobody asks for it where the rest is wrong
            for what in wrong or place_problems(schedule):
                self._say(group, what)
        except TooMuch as error:
            self._say(group, str(error))
            self.beyond.append(self.discrepancies[-1])

    def _without_steps(self, group: PlannedGroup, members: list[str]) -> None:
        """Check bytes and reason of a group without steps.

        An operator that nobody knows, or that traffic paper leaves out, moves every tensor once. What the
        buffer is too small for is cut up in a way that the plan does not say; so is what a limit left out:
        nothing moves less than once.
        """
        net = self.net
        plan = self.plan
        single = len(members) == 1
        self.macs += sum(net.specs[op].macs(net.calls[op]) for op in members)
        if group.places:
            self._say(group, "it has places, but no steps")
        once = self._moved_once(group, members).dram
        if single and (net.specs[members[0]] is OPAQUE or members[0] in self.left_out):
            exact = True
        else:
            exact = False
            if plan.traffic == "tiled" and not group.unwritten:
                self._must_have_steps(group, members)
        classes = ("input", "output", "weight", "parameter", "spill")
        least = once if exact or plan.traffic != "tiled" else self._least(members, once)
        if any(getattr(group.dram, name) < getattr(least, name) for name in classes):
            self._say(group, f"DRAM bytes: the plan says {group.dram}, it cannot be less than {least}")
        elif exact and group.dram != once:
            self._say(group, f"DRAM bytes: the plan says {group.dram}, counted {once}")
        elif plan.traffic != "tiled" and replace(group.dram, weight=once.weight) != once:
            self._say(group, f"DRAM bytes: the plan says {group.dram}, counted {once}, or more weights")
        counted = (exact or plan.traffic != "tiled") and group.dram == once
        (self.by_formula if counted else self.not_recounted).append(group.dram.total)

    def _must_have_steps(self, group: PlannedGroup, members: list[str]) -> None:
        """Complain of a group without steps that is no single operator, with its epilogue."""
        if not self.flies and (why := not_an_epilogue(self.net, members)):
            self._say(group, f"it has no steps, and {why}")
        if group.mode != "tiled":
            self._say(group, f"mode {group.mode}, but it has no steps")

    def _moved_once(self, group: PlannedGroup, members: list[str]) -> CompulsoryTraffic:
        """Traffic of a group without steps, every tensor once."""
        net = self.net
        if self.plan.scheme in IN_FLIGHT:  # which of them are one operator, only the steps would say
            inside = [
                one.call
                for one in self.attentions.recognised
                if {part.operator.name for part in one.call.parts} <= {*members}
            ]
            net = unmasked(net, inside)
        once = moved_once(net, members, self.hardware)
        if self.flies:  # which operators share tables, only the steps say
            least = least_parameters(self.net, members, self.hardware)
            shared = min(max(group.dram.parameter, least), once.dram.parameter + TABLE_BYTES * len(members))
            once = replace(once, dram=replace(once.dram, parameter=shared))
        return once

    def _least(self, members: list[str], once: DramBytes) -> DramBytes:
        """Least bytes of a group whose steps nobody knows: every tensor once, rows not padded."""
        moved = moved_once(self.net, members, self.hardware)
        read, written = (
            sum(self.net.tensor(name).elements for name in names) * self.hardware.element_bytes
            for names in (moved.inputs, moved.outputs)
        )
        # an attention may read a part alone of what lays its queries, keys and values out
        inside = {*members}
        if any(one.call.operator.name in inside for one in self.attentions.recognised):
            read = 0
        return DramBytes(read, written, once.weight, once.parameter)

    # -- baselines and totals --------------------------------------------------------------------------------

    def _totals(self, known: list[tuple[PlannedGroup, list[str]]]) -> Recount:
        net = self.original
        hardware = self.hardware
        totals = self.plan.totals
        kept = [op for op in net.operators if op not in self.left_out]
        fused = [
            members for members in epilogue_groups(net, self.left_out) if not self.left_out & set(members)
        ]
        left_out = sum(
            group.dram.total for group in self.claimed.groups if self.left_out.intersection(group.nodes)
        )
        dram = sum(group.dram.total for group in self.claimed.groups) - left_out
        counted = {
            "dram_bytes": dram,
            "layer_by_layer_bytes": sum(moved_once(net, [op], hardware).dram.total for op in kept),
            "epilogue_fused_bytes": sum(moved_once(net, members, hardware).dram.total for members in fused),
            "compulsory_bytes": compulsory_bytes(net, hardware, self.left_out),
            "without_recompute_bytes": without_recompute_bytes(net, hardware, self.left_out),
            "excluded_bytes": left_out,
        }
        counted["macs"] = int(self.macs)
        counted["l2_bytes"] = sum(group.l2.total for group in self.claimed.groups)
        for name, value in counted.items():
            if getattr(totals, name) not in (value, *([None] if name == "without_recompute_bytes" else [])):
                self.discrepancies.append(
                    f"totals.{name}: the plan says {getattr(totals, name)}, counted {value}"
                )
        bound = totals.lower_bound_bytes
        if totals.proof != "none" and not counted["compulsory_bytes"] <= bound <= dram:
            self.discrepancies.append(
                f"totals.lower_bound_bytes: {bound} is not between the compulsory "
                f"{counted['compulsory_bytes']} and the plan's {dram}"
            )
        if totals.proof == "optimal" and self.plan.unschedulable:
            self.discrepancies.append("totals.proof: optimal, but groups of the plan cannot run")
        if totals.proof == "optimal" and bound != dram:
            self.discrepancies.append(
                f"totals.proof: optimal, but the bound is {bound} and the plan moves {dram}"
            )
        gap = (dram - bound) / bound if bound else 0.0
        if not isclose(totals.gap, gap, rel_tol=1e-9, abs_tol=1e-12):
            self.discrepancies.append(f"totals.gap: the plan says {totals.gap}, counted {gap}")
        if not self.discrepancies:
            self.discrepancies += bound_problems(net.graph, self.claimed)
        by_formula, not_recounted = (
            (len(sizes), sum(sizes)) for sizes in (self.by_formula, self.not_recounted)
        )
        return Recount(
            discrepancies=tuple(self.discrepancies),
            groups=len(known),
            steps=self.steps,
            by_formula=by_formula,
            not_recounted=not_recounted,
            beyond=tuple(self.beyond),
            **counted,
        )
