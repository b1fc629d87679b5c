"""Recount of all claims of a plan: legality, bytes, places and steps, DRAM map, baselines, totals and gap."""

from __future__ import annotations

from collections.abc import Iterator
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
    Span,
    computations,
    line_count,
    step_count,
)
from lfopt.ops.call import Call
from lfopt.ops.recognise import attentions_in
from lfopt.ops.table import OPAQUE
from simulator.recount.attention import unmasked, with_attentions
from simulator.recount.bounds import bound_problems, compulsory_bytes, without_recompute_bytes
from simulator.recount.chained import chain_problems
from simulator.recount.copies import not_copies, without_copies
from simulator.recount.flights import flights_of, is_table, not_flights, with_flights
from simulator.recount.groups import (
    TABLE_BYTES,
    CompulsoryTraffic,
    count,
    epilogue_groups,
    in_order,
    least_parameters,
    moved_once,
    not_an_epilogue,
    not_connected,
    not_convex,
    run_line_buffered,
    runs,
    shared_tables,
    sums_bytes,
    table_count,
    weight_bytes,
)
from simulator.recount.levels import one_level
from simulator.recount.memory import memory_problems
from simulator.recount.modes import IN_FLIGHT, MODES, SCHEMES, Mode
from simulator.recount.network import RecountNetwork
from simulator.recount.places import place_problems
from simulator.recount.progressions import RowBudget, TooMuch
from simulator.recount.schedule import GroupSteps, called
from simulator.recount.sliced import repeated_macs, sliced_problems
from simulator.recount.strips import recomputed_macs, strip_bytes, strip_places, strip_problems, strips_of
from simulator.recount.traffic import byte_problems, traffic_problems


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
    l2_bytes: int
    by_formula: tuple[int, int]  # (groups, DRAM bytes) without steps that are what a formula says
    not_recounted: tuple[int, int]  # (groups, DRAM bytes) that were only bounded: no steps, and no formula

    @property
    def agrees(self) -> bool:
        """Whether nothing contradicts the plan."""
        return not self.discrepancies


def recount(graph: Graph, plan: Plan) -> Recount:
    """Recount the claims of a plan for this network."""
    wrong = tuple(not_copies(graph, plan.copies))
    original = RecountNetwork(without_copies(graph, plan.copies)) if plan.copies and not wrong else None
    return _Recounting(RecountNetwork(graph), original, plan, wrong).run()


def multiplications(net: RecountNetwork) -> int:
    """Multiply-accumulates of one inference, every operator once."""
    return sum(net.specs[op].macs(call) for op, call in net.calls.items())


class _Recounting:
    def __init__(
        self, net: RecountNetwork, original: RecountNetwork | None, plan: Plan, wrong: tuple[str, ...]
    ) -> None:
        """`original`: the network without copies, if it has any; `wrong`: problems of the copies."""
        self.net, self.original, self.claimed, self.hardware = net, original or net, plan, plan.hardware
        self.plan, levels = one_level(net, plan)
        self.discrepancies = [*wrong, *levels]
        if (plan.copies or plan.max_recompute != 1) and plan.scheme not in IN_FLIGHT:
            self.discrepancies.append(f"copies, or room for them, which are not of scheme {plan.scheme}")
        tables = bool(plan.hardware.parameter_store_bytes) and net.graph.quantized and plan.traffic != "paper"
        self.attentions = attentions_in(net.graph)
        # on chips with tables, what is one follows in flight in every scheme
        self.flies = plan.scheme in IN_FLIGHT or tables
        self.halo_macs = Fraction(0)  # of what groups compute again
        self.steps = 0
        self.work = RowBudget()
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
        if self.plan.scheme not in SCHEMES:
            self.discrepancies.append(
                f"scheme: found {self.plan.scheme!r}; a recount knows {', '.join(sorted(SCHEMES))}"
            )
        known = self._partition()
        for group, members in known:
            self._structure(group, members)
            self._group(group, members)
        self._order(known)
        done, without = multiplications(self.net) + self.halo_macs, multiplications(self.original)
        if not done <= self.plan.max_recompute * without * (1 + 1e-9):
            self.discrepancies.append(
                f"max_recompute: found {self.plan.max_recompute}, with {float(done):,.0f} "
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
        mode = MODES.get(group.mode)
        if mode is None:
            self._say(group, f"mode: found {group.mode!r}; a recount knows {', '.join(MODES)}")
            return
        tensors = {name for op in members for name in (*self.net.operators[op].inputs, *self.net.makes[op])}
        # views and partial sums have places of their own
        if len(group.places) > (most := 2 * len(tensors) + len(members)):
            self._say(
                group, f"{len(group.places):,} places, for {len(tensors)} tensors; a recount looks at {most}"
            )
            return
        net, flown, raw = self._in_flight(group, members)
        once = moved_once(raw, members, self.hardware)
        if self.flies and not group.steps:  # which operators share tables, only the steps say
            least = least_parameters(self.net, members, self.hardware)
            shared = min(max(group.dram.parameter, least), once.dram.parameter + TABLE_BYTES * len(members))
            once = replace(once, dram=replace(once.dram, parameter=shared))
        self._expect(group, "maps loaded", sorted(group.inputs), sorted(once.inputs))
        self._expect(group, "maps stored", sorted(group.outputs), sorted(once.outputs))
        results = {name for op in members for name in self.net.makes[op]}
        if group.spilled and not (mode.spills and results.issuperset(group.spilled)):
            self._say(
                group,
                f"it spills {', '.join(group.spilled)}, which it does not make, "
                f"or mode {group.mode} does not",
            )
        self._mode(group, mode, members, net, flown)
        if len(members) > 1 and once.dram.parameter > self.hardware.parameter_store_bytes and not mode.chains:
            self._say(
                group,
                f"parameters of {once.dram.parameter} B, their store has "
                f"{self.hardware.parameter_store_bytes}",
            )
        tables = sum(table_count(raw, name, self.hardware) for name in members)
        if len(members) > 1 and 0 < self.hardware.parameter_tables < tables and not mode.chains:
            self._say(group, f"{tables} tables, their store holds {self.hardware.parameter_tables}")
        if not mode.executed:
            self._expect(
                group,
                "allocated bytes",
                group.allocated_bytes,
                count(self.net, members, self.hardware).buffer_bytes,
            )
        elif group.allocated_bytes >= self.hardware.buffer_bytes:
            self._say(
                group,
                f"needs {group.allocated_bytes} B of buffer, must be below {self.hardware.buffer_bytes}",
            )
        results = self._line_buffers(net, group, flown) if mode.rings else {}
        if not mode.rings:
            self._requirement(group, mode)
        if bool(group.steps) == bool(group.unexecutable):
            self._say(group, "it must have steps, or a reason why it has none, and not both")
        formula = self._formula(group, mode, once.dram)
        if formula is not None:
            self._expect(group, "DRAM bytes", group.dram, formula)
        if group.steps:
            self._steps(net, raw, group, flown, results)
            return
        self._without_steps(group, mode, members, once)
        # how often weights pass in bands is in the steps alone
        counted = formula is not None and not mode.bands
        (self.by_formula if counted else self.not_recounted).append(group.dram.total)

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
        base, own = self.net, self.net
        # which of them are one operator, only the steps say
        if not group.steps and self.plan.scheme in IN_FLIGHT:
            inside = [
                one.call
                for one in self.attentions.recognised
                if {part.operator.name for part in one.call.parts} <= {*members}
            ]
            return base, members, unmasked(base, inside)
        if calls and self.plan.scheme in IN_FLIGHT:
            base, own = with_attentions(self.net, [*calls.values()]), unmasked(self.net, [*calls.values()])
            members = in_order(base, [op for op in members if op in base.operators])
            flown = [
                (flight[0], *flight[len(calls[flight].parts) :]) if flight in calls else flight
                for flight in flown
            ]
        flights = {flight for flight in flown if len(flight) > 1}
        if not flights:
            return base, members, own
        if self.plan.scheme not in IN_FLIGHT and (
            odd := next((f for f in sorted(flights) if not (self.flies and is_table(self.net, f))), None)
        ):
            self._say(
                group, f"operators in flight from {odd[0]!r} on, which are not of scheme {self.plan.scheme}"
            )
        if wrong := next(not_flights(base, members, dict.fromkeys(flown)), None):
            self._say(group, wrong)
            return base, members, own
        raw, net = copy(own), with_flights(base, flights)
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
        spans: dict[str, list[Span]],
    ) -> None:
        steps, lines = step_count(group.steps), line_count(group.steps)
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
            if not wrong and MODES[group.mode].strips:
                wrong = [*byte_problems(schedule), *self._strips(schedule)]
            elif not wrong and MODES[group.mode].slices:
                wrong = [*byte_problems(schedule), *sliced_problems(schedule)]
                self.halo_macs += repeated_macs(schedule)
            elif not wrong and MODES[group.mode].chains:
                wrong = [*byte_problems(schedule), *chain_problems(schedule)]
                self.halo_macs += repeated_macs(schedule)
            elif not wrong:
                wrong = [*byte_problems(schedule), *traffic_problems(schedule, spans)]
                if MODES[group.mode].spills:
                    self.halo_macs += repeated_macs(schedule)
            # the last is what takes time: nobody asks for it where the rest is wrong
            for what in wrong or place_problems(schedule):
                self._say(group, what)
        except TooMuch as error:
            self._say(group, str(error))

    def _strips(self, schedule: GroupSteps) -> Iterator[str]:
        """Check that places, bytes, rows and columns are those of strips."""
        group, strips = schedule.group, strips_of(schedule)
        if isinstance(strips, str):
            yield strips
            return
        self.halo_macs += recomputed_macs(schedule, strips)
        wanted = strip_places(schedule, strips)
        needed, counted = self._buffer_bytes(wanted), strip_bytes(schedule, strips)
        for what, claimed, recounted in (
            ("allocated bytes", group.allocated_bytes, needed),
            ("required bytes", group.required_bytes, needed),
            ("DRAM bytes", group.dram, counted),
            ("band rows", group.band_rows, 1),
            ("weight passes", group.weight_passes, 1),
        ):
            if claimed != recounted:
                yield f"{what}: the plan says {claimed}, counted {recounted}"
        recounted = {(place.name, place.slots, place.slot_bytes) for place in group.places}
        for name, slots, size in sorted(recounted ^ wanted):
            what = f"a place for {name!r} of {slots} x {size} B"
            yield (
                f"{what} is not what strips take"
                if (name, slots, size) in recounted
                else f"{what} is missing"
            )
        yield from strip_problems(schedule, strips)

    def _mode(
        self, group: PlannedGroup, mode: Mode, members: list[str], net: RecountNetwork, flown: list[str]
    ) -> None:
        """The mode is one of the scheme, and the operators are such as may run in it.

        `net`, `flown`: with those in flight as part of others.
        """
        name, plan, single = group.mode, self.plan, len(members) == 1
        if mode.schemes and plan.scheme not in mode.schemes:
            self._say(group, f"mode {name} is not of scheme {plan.scheme}")
        if mode.of != "left out" and (gone := self.left_out.intersection(members)):
            self._say(
                group,
                f"mode {name}, but the weights of {min(gone)!r} reach the buffer: "
                "traffic paper leaves it out",
            )
        if mode.of == "left out" and not (single and members[0] in self.left_out):
            self._say(
                group, f"mode {name}, but it is not one operator that traffic {plan.traffic} leaves out"
            )
        if (mode.of == "unknown") != (single and self.net.specs[members[0]] is OPAQUE):
            self._say(group, f"mode {name}: just one operator that is unknown to lfopt is opaque")
        unknown = self.flies and not group.steps  # what is in flight, only the steps say
        if mode.tiles and len(flown) > 1 and not unknown and not plan.epilogue:
            self._say(group, f"mode {name} with several operators, but epilogue is off")
        if mode.tiles and not unknown and (why := not_an_epilogue(net, flown)):
            self._say(group, f"mode {name}, but {why}")

    def _formula(self, group: PlannedGroup, mode: Mode, once: DramBytes) -> DramBytes | None:
        """DRAM bytes by class where the mode alone determines them; None: they follow from the steps."""
        if mode.strips or mode.slices or mode.spills or (mode.tiles and self.plan.traffic == "tiled"):
            return None
        weight = once.weight * (group.weight_passes if mode.bands else 1)
        if mode.blocks and self.hardware.pads_constants:
            # blocks are rounded up one by one: how many there are, only the steps say
            weight = max(weight, group.dram.weight)
        return replace(once, weight=weight)

    def _line_buffers(
        self, net: RecountNetwork, group: PlannedGroup, members: list[str]
    ) -> dict[str, list[Span]]:
        """Check that places are the rings of the line-buffer schedule in the group's bands, and its weights.

        They lie one beside the other. Returns, by operator, the rows of every step in that schedule.
        """
        claimed = group.band_rows
        if group.unwritten and self.flies:
            return {}  # what is in flight, and what runs, only the steps say
        running = {
            node.operator
            for node in computations(group.steps)
            if node.accumulator >= 0 and node.operator in net.operators
        }
        if odd := [op for op in sorted(running) if self.plan.scheme not in IN_FLIGHT or not runs(net, op)]:
            self._say(group, f"{odd[0]!r} takes its operand in parts")
            return {}
        highest = max(
            (
                net.height(op)
                for op in members
                if any(net.needed_outside(name, members) for name in net.makes[op])
            ),
            default=1,
        )
        # stands for any more than one, where results have one row
        whole = max(net.height(op) for op in members)
        if claimed not in (range(1, highest + 1) if highest > 1 else (1, whole)):
            self._say(
                group,
                f"band rows: the plan says {claimed}, "
                f"the results that leave the group have {highest} or fewer",
            )
            return {}
        ran = run_line_buffered(net, members, group.band_rows, running)
        wanted = self._lines_and_weights(net, members, ran.rings, running)
        self._expect(group, "allocated bytes", group.allocated_bytes, needed := self._buffer_bytes(wanted))
        if group.required_bytes is not None:
            if claimed != 1:
                ran_by_row = run_line_buffered(net, members, 1, running)
                needed = self._buffer_bytes(self._lines_and_weights(net, members, ran_by_row.rings, running))
            self._expect(group, "required bytes", group.required_bytes, needed)
        if group.unwritten:
            return ran.spans
        sums = {place.name for place in group.places if place.purpose == "sum"}
        known = {
            place.name: next((name for name, *_ in wanted if called(place.name, (name,))), place.name)
            for place in group.places
        }
        listed = [
            (known[place.name] if place.name in sums else place.name, place.slots, place.slot_bytes)
            for place in group.places
        ]
        for name, slots, size in sorted(set(listed) ^ wanted):
            what = f"a place for {name!r} of {slots} x {size} B"
            self._say(
                group,
                f"{what} is not what the line buffers take"
                if (name, slots, size) in listed
                else f"{what} is missing",
            )
        return ran.spans

    def _lines_and_weights(
        self, net: RecountNetwork, members: list[str], rings: dict[str, int], running: set[str]
    ) -> set[tuple[str, int, int]]:
        """(name, slots, bytes of a slot) of every place that line buffers take.

        Rings of so many rows, whole weights, and the sums of running reductions.
        """
        wanted = {
            (name, rows, self.hardware.row_bytes(net.tensor(name))) for name, rows in rings.items() if rows
        }
        for constant in (c for op in members for c in net.constants[op] if not c.gathered):
            wanted.add(
                (
                    constant.name,
                    1,
                    self.hardware.constant_bytes(constant.elements, bias=constant.name in net.biases),
                )
            )
        return wanted | {(f"sums of {op}", 1, sums_bytes(net, op, self.hardware)) for op in running}

    def _buffer_bytes(self, places: set[tuple[str, int, int]]) -> int:
        """Bytes of buffer of such places: without constants, if these have a buffer of their own."""
        elsewhere = self.net.graph.constants if self.hardware.weight_buffer_bytes else ()
        return sum(slots * size for name, slots, size in places if name not in elsewhere)

    def _requirement(self, group: PlannedGroup, mode: Mode) -> None:
        """Check the required bytes: 0 of tiled groups, else above 0 and below the buffer's bytes."""
        if group.required_bytes is None:
            return
        if mode.tiles or not mode.executed:
            self._expect(group, "required bytes", group.required_bytes, 0)
        elif not 0 < group.required_bytes < self.hardware.buffer_bytes:
            self._say(
                group,
                f"required bytes: found {group.required_bytes}, must be above 0 and below "
                f"{self.hardware.buffer_bytes}",
            )

    def _without_steps(
        self, group: PlannedGroup, mode: Mode, members: list[str], once: CompulsoryTraffic
    ) -> None:
        if group.places:
            self._say(group, "it has places, but no steps")
        if mode.always and not group.unwritten:
            self._say(group, f"mode {group.mode}, but it has no steps")
        if (mode.tiles or mode.slices) and group.unwritten:
            if not (
                1 <= group.band_rows <= max(self.net.height(op) for op in members)
                and group.weight_passes >= 1
            ):
                self._say(
                    group, f"{group.weight_passes} weight passes in bands of {group.band_rows} rows cannot be"
                )
        elif mode.strips:
            self._expect(group, "band rows", group.band_rows, 1)
            self._expect(group, "weight passes", group.weight_passes, 1)
        elif mode.rings:
            # the band rows are those of its line buffers
            self._expect(group, "weight passes", group.weight_passes, 1)
        elif not mode.bands and not mode.spills:
            height = (
                1
                if mode.tiles and self.plan.traffic == "tiled"
                else max(self.net.height(op) for op in members)
            )
            self._expect(group, "band rows", group.band_rows, height)
            self._expect(group, "weight passes", group.weight_passes, 1)
        read, written = (
            sum(self.net.tensor(name).elements for name in names) * self.hardware.element_bytes
            for names in (once.inputs, once.outputs)
        )
        least = DramBytes(read, written, once.dram.weight, once.dram.parameter)
        if group.allocated_bytes < 0:
            self._say(group, f"allocated bytes: found {group.allocated_bytes}")
        if any(
            getattr(group.dram, name) < getattr(least, name)
            for name in ("input", "output", "weight", "parameter", "spill")
        ):
            self._say(group, f"DRAM bytes: the plan says {group.dram}, it cannot be less than {least}")

    # -- baselines and totals --------------------------------------------------------------------------------

    def _totals(self, known: list[tuple[PlannedGroup, list[str]]]) -> Recount:
        net, hardware, totals = self.original, self.hardware, self.plan.totals
        kept = [op for op in net.operators if op not in self.left_out]
        fused = [
            members for members in epilogue_groups(net, self.left_out) if not self.left_out & set(members)
        ]
        left_out = sum(
            group.dram.total
            for group in self.claimed.groups
            if group.mode in MODES and not MODES[group.mode].counted
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
            **counted,
        )
