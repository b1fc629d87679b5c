"""What a fusion group costs: DRAM bytes, buffer bytes, and whether it may run at all.

    F_D  = external inputs once each  +  maps needed outside once each  +  weights and biases once (mode brr: once per band)  +  parameters once
    valid iff F_beta < beta, and the parameters of several operators fit the store for them

F_beta is that of the mode: `lbdf` (line buffers), `resident` (maps whole), `brr` (bands of rows, weights streamed). Scheme `auto` takes, per group,
the mode that moves the fewest bytes. A single operator may always run, and so may an operator followed by elementwise operators (its epilogue): if
they do not fit whole, they are tiled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import Enum
from functools import cached_property, reduce
from operator import or_
from typing import Any, NamedTuple

from lfopt.ir import Cost, DoesNotFit, DramBytes, Hardware, InvalidConfig, RingNeed, Scheme
from lfopt.ir.cost import Mode
from lfopt.ops import OPAQUE, Dataflow, bits
from lfopt.ops.parameter_data import parameter_bytes
from lfopt.planning.brr import NEVER, Banded, Bands
from lfopt.planning.epilogue import families, followed, is_epilogue_group
from lfopt.planning.lbdf import LineBuffers
from lfopt.planning.mates import band_bytes, band_mates, convex, mates
from lfopt.planning.resident import Peak, Resident
from lfopt.planning.tiles import Tile, Tiles


class Traffic(Enum):
    """How the bytes of a group that must be tiled are counted."""

    TILED = "tiled"  # what a tiled schedule moves
    ONCE = "once"  # every tensor once even then: a bound, to compare with tools that count so
    PAPER = "paper"  # as once, but operators whose weights reach beta are left out and reported apart (arXiv 2501.00636, section III)


class Floor(NamedTuple):
    """Lower bounds on what a group, and every group that it is grown into, takes in each mode."""

    line: int = 0  # bytes: line buffers
    peak: Peak = Peak()  # resident


KEPT = 1 << 16  # floors of groups that are remembered


class GroupCosts:
    """Costs of the groups of one dataflow on one chip, memoised. Groups are masks of operators; connectivity and convexity are not checked."""

    def __init__(
        self, dataflow: Dataflow, hardware: Hardware, traffic: Traffic = Traffic.TILED, *, scheme: Scheme = "lbdf", epilogue: bool = True
    ) -> None:
        if traffic is Traffic.PAPER and scheme in ("resident", "auto"):
            raise InvalidConfig(
                f"scheme {scheme!r} with traffic 'paper': found no such mode in the paper; accepted: scheme lbdf or brr, or another traffic"
            )
        self.dataflow = dataflow
        self.hardware = hardware
        self.traffic = traffic
        self.scheme: Scheme = scheme
        self.epilogue = epilogue
        self._line, self._resident, self._bands = (scheme in (mode, "auto") for mode in ("lbdf", "resident", "brr"))
        self.parameters = [parameter_bytes(call, hardware.parameter_channels) if hardware.parameter_store_bytes else 0 for call in dataflow.calls]
        self.line_buffers = LineBuffers(dataflow)
        self.tiles = Tiles(dataflow, hardware, self.line_buffers.ring_rows)
        self._grown: dict[int, tuple[Floor, int]] = {}  # per group: floor, DRAM bytes if every tensor moves once
        self._needs: dict[int, int] = {}  # F_beta by group, the same on any buffer
        self._prices: dict[int, Cost | None] = {}
        self._map_bytes = [hardware.dram_bytes(m) for m in dataflow.maps]
        self._row_bytes = [hardware.row_bytes(m) for m in dataflow.maps]
        self._own: list[tuple[int, int]] = []  # per operator: (DRAM bytes, buffer bytes) of the weights that it alone reads
        self._shared: list[tuple[tuple[str, int], ...]] = []  # per operator: weights with several readers
        uses = Counter(name for weights in dataflow.weights for name in {w.name for w in weights if not w.gathered})
        for weights in dataflow.weights:
            sizes = {(w.name, w.gathered): hardware.constant_bytes(w.elements, bias=w.bias, pieces=w.pieces) for w in weights}
            own = {key: size for key, size in sizes.items() if key[1] or uses[key[0]] == 1}
            self._own.append((sum(own.values()), sum(size for (_, gathered), size in own.items() if not gathered)))
            self._shared.append(tuple((name, size) for (name, gathered), size in sizes.items() if (name, gathered) not in own))
        self._with_shared = sum(1 << i for i, shared in enumerate(self._shared) if shared)

    def at(self, buffer_bytes: int) -> GroupCosts:
        """The same with another buffer; what does not depend on its size is shared."""
        hardware = replace(self.hardware, buffer_bytes=buffer_bytes)
        other = GroupCosts(self.dataflow, hardware, self.traffic, scheme=self.scheme, epilogue=self.epilogue)
        other.line_buffers = self.line_buffers
        if self._resident:
            other.resident = self.resident
        if self._bands:
            other.bands = self.bands
        other._needs, other._grown = self._needs, self._grown
        other.tiles = self.tiles.at(hardware)
        return other

    @property
    def simpler(self) -> GroupCosts | None:
        """Of scheme auto: the same with line buffers alone; a group moves no more here than there."""
        if self.scheme != "auto":
            return None
        other = GroupCosts(self.dataflow, self.hardware, self.traffic, epilogue=self.epilogue)
        other.line_buffers, other.tiles, other._needs = self.line_buffers, self.tiles, self._needs
        return other

    @cached_property
    def resident(self) -> Resident:
        """Needs and schedules of groups that run operator by operator, the same on any buffer."""
        return Resident(self.dataflow, self.hardware)

    @cached_property
    def bands(self) -> Bands:
        """Needs and schedules of groups that run in bands, the same on any buffer."""
        return Bands(self.dataflow, self.hardware)

    # -- whole groups --------------------------------------------------------------------------------------------------------------------

    def evaluate(self, mask: int) -> Cost | DoesNotFit:
        """Cost of the group in the mode that moves the fewest bytes (of equals: lbdf, resident, brr, tiled), or why it may not run."""
        return self.price(mask) or self.does_not_fit(mask)

    def price(self, mask: int) -> Cost | None:
        """As `evaluate`, without reasons."""
        if mask not in self._prices:
            self._prices[mask] = self._price(mask)
        return self._prices[mask]

    def _price(self, mask: int) -> Cost | None:
        flow = self.dataflow
        first = (mask & -mask).bit_length() - 1
        single = mask & (mask - 1) == 0
        if not self.parameters_fit(mask):
            return None
        if flow.specs[first] is OPAQUE and single:
            return Cost(sum(self._once(mask)), self.buffer_bytes(mask), "opaque")
        if mask & self.excluded and single:
            return Cost(0, self.buffer_bytes(mask), "excluded")
        beta = self.hardware.buffer_bytes
        floor, once = self._grown.get(mask) or (None, sum(self._once(mask)))
        if self._line and (floor is None or floor.line < beta) and (needed := self.buffer_bytes(mask)) < beta:
            return Cost(once, needed, "lbdf")
        best = None
        if self._resident and (floor.peak.bytes if floor else self.resident.least(mask)) < beta and (needed := self.resident.need(mask)) < beta:
            best = Cost(once + self.resident.padding(mask), needed, "resident")
            if best.dram_bytes == once:
                return best
        if self._bands and (banded := self.banded(mask)) is not None:
            moved = self._banded_dram(mask, banded).total
            if best is None or moved < best.dram_bytes:
                best = Cost(moved, banded.buffer_bytes, "brr")
        if single or (self.epilogue and not mask & self.excluded and self.is_epilogue_group(mask)):
            moved = self._tiled_dram(mask).total
            if best is None or moved < best.dram_bytes:
                best = Cost(moved, self.tile(mask).buffer_bytes, "tiled")
        return best

    def banded(self, mask: int) -> Banded | None:
        """How the group runs in bands with the fewest weight passes; None if it does not."""
        return self.bands.cheapest(mask, self.hardware.buffer_bytes)

    def dram(self, mask: int) -> DramBytes:
        """DRAM bytes of a group by class, in the mode that `evaluate` chose; F_D where the group may not run."""
        mode = self._mode(mask)
        if mode == "tiled":
            return self._tiled_dram(mask)
        if mode == "brr" and (banded := self.banded(mask)):
            return self._banded_dram(mask, banded)
        found = self.once(mask)
        return found + DramBytes(weight=self.resident.padding(mask)) if mode == "resident" else found

    def weight_passes(self, mask: int) -> int:
        """Times that the group's weights are loaded, in the mode that `evaluate` chose."""
        mode = self._mode(mask)
        if mode == "tiled" and self.traffic is Traffic.TILED:
            return self.tile(mask).weight_passes
        if mode == "brr" and (banded := self.banded(mask)):
            return banded.weight_passes
        return 1

    def band_rows(self, mask: int) -> int:
        """Output rows made at a time, in the mode that `evaluate` chose; in mode lbdf a plan may make more of them."""
        mode = self._mode(mask)
        if mode == "tiled" and self.traffic is Traffic.TILED:
            return self.tile(mask).rows or 1
        if mode == "brr" and (banded := self.banded(mask)):
            return banded.band_rows
        return 1 if mode == "lbdf" else max(self.dataflow.heights[i] for i in bits(mask))

    def _mode(self, mask: int) -> Mode | None:
        found = self.price(mask)
        return found.mode if found else None

    def once(self, mask: int) -> DramBytes:
        """DRAM bytes of a group by class with every tensor once: no mode moves less."""
        read, written, weights, parameters = self._once(mask)
        return DramBytes(input=read, output=written, weight=weights, parameter=parameters)

    def _banded_dram(self, mask: int, banded: Banded) -> DramBytes:
        return replace(self.once(mask), weight=banded.weight_bytes)

    def _tiled_dram(self, mask: int) -> DramBytes:
        if self.traffic is Traffic.TILED:
            return self.tile(mask).dram + DramBytes(parameter=self.parameter_bytes(mask))
        return self.once(mask)

    def _once(self, mask: int) -> tuple[int, int, int, int]:
        """(input, output, weight, parameter) bytes with every tensor once."""
        flow = self.dataflow
        touched: set[int] = set()
        read = written = 0
        for i in bits(mask):
            for operand in flow.operands[i]:
                m = operand.map
                if m not in touched and (flow.producer[m] < 0 or not mask >> flow.producer[m] & 1):
                    touched.add(m)
                    read += self._map_bytes[m]
            for m in flow.results[i]:
                if flow.is_output[m] or flow.readers[m] & ~mask:
                    written += self._map_bytes[m]
        return read, written, self.weight_bytes(mask)[0], self.parameter_bytes(mask)

    def parameter_bytes(self, mask: int) -> int:
        """DRAM bytes of the parameters of the group's operators; 0 on a chip where they come with the commands."""
        return sum([self.parameters[i] for i in bits(mask)]) if self.hardware.parameter_store_bytes else 0

    def parameters_fit(self, mask: int) -> bool:
        """Whether the store for parameters holds those of the group. What is too much for it stays so, however the group grows."""
        return mask & (mask - 1) == 0 or self.parameter_bytes(mask) <= self.hardware.parameter_store_bytes

    def weight_bytes(self, mask: int) -> tuple[int, int]:
        """(DRAM bytes, buffer bytes) of the group's weights and biases; one read by several of its operators counts once."""
        dram = held = 0
        for i in bits(mask):
            own = self._own[i]
            dram += own[0]
            held += own[1]
        if mask & self._with_shared:
            shared = sum(dict(pair for i in bits(mask & self._with_shared) for pair in self._shared[i]).values())
            dram, held = dram + shared, held + shared
        return dram, held

    def buffer_bytes(self, mask: int, band_rows: int = 1) -> int:
        """F_beta: what the group takes on chip when it runs in line-buffer depth-first order, in bands of so many rows."""
        need = self._needs.get(mask) if band_rows == 1 else None
        if need is None:
            row_bytes = self._row_bytes
            rings = self.line_buffers.ring_rows(mask, band_rows)
            need = sum([rows * row_bytes[m] for m, rows in rings.items()]) + self.weight_bytes(mask)[1]
            if band_rows == 1:
                self._needs[mask] = need
        return need

    def does_not_fit(self, mask: int) -> DoesNotFit:
        """The breakdown of F_beta in the mode of the scheme that needs the least buffer."""
        beta, flow = self.hardware.buffer_bytes, self.dataflow
        if not self.parameters_fit(mask):
            loaded = tuple((f"parameters of {flow.operators[i].name}", self.parameters[i]) for i in bits(mask) if self.parameters[i])
            return DoesNotFit(mask, self.parameter_bytes(mask), self.hardware.parameter_store_bytes, (), loaded, "parameter store")
        mode, needed = self.least_need(mask)
        if mode == "resident":
            return self.resident.does_not_fit(mask, beta)
        if needed == NEVER:
            return DoesNotFit(mask, needed, beta, (), ())
        if mode == "brr":
            places, _ = self.bands.schedule(mask, self.bands.choices(mask)[-1])
            maps = tuple(RingNeed(place.name, place.slots, place.bytes) for place in places if place.purpose != "weight")
            return DoesNotFit(mask, needed, beta, maps, tuple((place.name, place.bytes) for place in places if place.purpose == "weight"))
        rings = self.line_buffers.ring_rows(mask)
        return DoesNotFit(
            mask,
            self.buffer_bytes(mask),
            beta,
            tuple(RingNeed(flow.maps[m].name, rows, rows * self._row_bytes[m]) for m, rows in sorted(rings.items())),
            tuple((flow.operators[i].name, self.weight_bytes(1 << i)[1]) for i in bits(mask) if flow.weights[i]),
        )

    def least_need(self, mask: int) -> tuple[Mode, int]:
        """(mode of the scheme that needs the least buffer, F_beta in it); `brr.NEVER` bytes where no buffer is large enough."""
        needs: list[tuple[int, Mode]] = []
        if self._line:
            needs.append((self.buffer_bytes(mask), "lbdf"))
        if self._resident:
            needs.append((self.resident.need(mask), "resident"))
        if self._bands:
            needs.append((self.bands.least(mask), "brr"))
        needed, mode = min(needs, key=lambda item: item[0])
        return mode, needed

    # -- epilogue groups and tiling ------------------------------------------------------------------------------------------------------

    @cached_property
    def _follows(self) -> list[int]:
        return followed(self.dataflow)

    def legal_anywhere(self, mask: int) -> bool:
        """Whether the group may run on any buffer: a single operator, or an epilogue group where those are allowed."""
        return mask & (mask - 1) == 0 or (self.epilogue and self.is_epilogue_group(mask) and self.parameters_fit(mask))

    def is_epilogue_group(self, mask: int) -> bool:
        """Whether the group is one operator followed by elementwise operators on its output."""
        return is_epilogue_group(self.dataflow, self._follows, mask)

    def tile(self, mask: int) -> Tile:
        """The tiling of a single operator or epilogue group that does not fit whole."""
        return self.tiles.best(mask)

    # -- what the exact search grows groups with -----------------------------------------------------------------------------------------

    @cached_property
    def _holds(self) -> list[dict[int, int]]:
        """Per operator: rows of each map it reads that are held at once for it in whatever group."""
        flow = self.dataflow
        found: list[dict[int, int]] = []
        for i, operands in enumerate(flow.operands):
            held: dict[int, int] = {}
            for operand in operands:
                producer = flow.producer[operand.map]
                least = 1 if producer < 0 or self.dataflow.least_rows[producer] else 0
                held[operand.map] = max(held.get(operand.map, least), operand.reads.widest[self.dataflow.least_rows[i]])
            found.append(held)
        return found

    @cached_property
    def _widest_readers(self) -> list[list[tuple[int, int]]]:
        """Per map: (bit of a reader, rows held for it), widest first."""
        readers: list[list[tuple[int, int]]] = [[] for _ in self.dataflow.maps]
        for i, held in enumerate(self._holds):
            for m, rows in held.items():
                readers[m].append((1 << i, rows))
        return [sorted(found, key=lambda item: -item[1]) for found in readers]

    def grow(self, mask: int, floor: Any, dram: int, op: int) -> tuple[Any, int]:
        """Add an operator whose index is above all others in the group.

        `floor` bounds F_beta from below, for the group and for every group that it is grown into: bytes under scheme lbdf, a `Floor` under the
        others; that of the empty group is not read. `dram` is F_D with every tensor once. Both are returned for the larger group.
        """
        if self.scheme == "lbdf":
            return self._grow_line(mask, floor if mask else 0, dram, op)
        before: Floor = floor if mask else Floor()
        line, dram = self._grow_line(mask, before.line, dram, op)
        found = Floor(line, self.resident.grow(mask, before.peak, op) if self._resident else before.peak)
        if not (mask | 1 << op) & self.excluded:
            if len(self._grown) >= KEPT:
                self._grown.clear()
            self._grown[mask | 1 << op] = found, dram
        return found, dram

    def _grow_line(self, mask: int, floor: int, dram: int, op: int) -> tuple[int, int]:
        """The floor of line buffers: weights plus, per map, the widest window among its readers in the group; and F_D."""
        flow = self.dataflow
        bit = 1 << op
        for m, rows in self._holds[op].items():
            held = 0
            if flow.readers[m] & mask:
                held = next(wide for reader, wide in self._widest_readers[m] if reader & mask)
            producer = flow.producer[m]
            if producer >= 0 and mask >> producer & 1:
                held = held or min(1, self.dataflow.least_rows[producer])
                if not flow.is_output[m] and not flow.readers[m] & ~(mask | bit):
                    dram -= self._map_bytes[m]
            elif not flow.readers[m] & mask:
                dram += self._map_bytes[m]
            if rows > held:
                floor += (rows - held) * self._row_bytes[m]
        for m in flow.results[op]:
            if self.dataflow.least_rows[op]:
                floor += self._row_bytes[m]
            if flow.is_output[m] or flow.readers[m]:
                dram += self._map_bytes[m]
        own = self._own[op]
        dram, floor = dram + own[0] + self.parameters[op], floor + own[1]
        if bit & self._with_shared:
            have = {name for i in bits(mask & self._with_shared) for name, _ in self._shared[i]}
            extra = sum(size for name, size in self._shared[op] if name not in have)
            dram, floor = dram + extra, floor + extra
        return floor, 0 if bit & self.excluded else dram  # an excluded operator stands alone, and moves nothing that is counted

    def may_grow(self, mask: int, floor: Any) -> bool:
        """Whether this group, or one that it is grown into, may be legal, as far as lower bounds on the buffer tell."""
        return self.parameters_fit(mask) and (self._may_fit(mask, floor) or (self.epilogue and self.is_epilogue_group(mask)))

    def _may_fit(self, mask: int, floor: Any) -> bool:
        """Whether the group, or one that it is grown into, may fit in some mode of the scheme."""
        beta = self.hardware.buffer_bytes
        if self.scheme == "lbdf":
            return floor < beta
        if (self._line and floor.line < beta) or (self._resident and floor.peak.bytes < beta):
            return True
        return self._bands and self.bands.floor(mask) < beta

    @cached_property
    def excluded(self) -> int:
        """Operators that traffic `paper` leaves out."""
        if self.traffic is not Traffic.PAPER:
            return 0
        beta = self.hardware.buffer_bytes
        return sum(1 << i for i, row in enumerate(self.dataflow.specs) if row is not OPAQUE and self.weight_bytes(1 << i)[1] >= beta)

    @property
    def compulsory_bytes(self) -> int:
        """Weights, parameters, graph inputs and graph outputs once, of the operators that are not excluded: no plan moves less."""
        flow = self.dataflow
        counted = flow.everything & ~self.excluded
        moved = [
            size
            for m, size in enumerate(self._map_bytes)
            if flow.producer[m] < 0 and flow.readers[m] & counted or flow.is_output[m] and flow.producer[m] >= 0 and counted >> flow.producer[m] & 1
        ]
        return sum(moved) + self.weight_bytes(counted)[0] + self.parameter_bytes(counted)

    def rest_bytes(self, executed: int, before: int, group: int) -> int:
        """Bytes that the operators outside a downset must move at the very least, once `group` has joined it; `before` is that figure without.

        Their weights and parameters, the graph outputs that they make, each map that they need but do not make, once, and what `least_bytes` adds.
        """
        flow = self.dataflow
        counted = flow.everything & ~executed & ~self.excluded
        rest = counted & ~group
        seen: set[int] = set()
        for i in bits(group):
            before -= self._retiled[i]
            if counted >> i & 1:
                before -= self._own[i][0] + self.parameters[i]
            for operand in flow.operands[i]:
                m = operand.map
                if m not in seen and (flow.producer[m] < 0 or not group >> flow.producer[m] & 1):
                    seen.add(m)
                    if flow.readers[m] & counted and not flow.readers[m] & rest:
                        before -= self._map_bytes[m]
            for m in flow.results[i]:
                before -= self._forced[m]
                if flow.is_output[m] and counted >> i & 1:
                    before -= self._map_bytes[m]
                if flow.readers[m] & rest:
                    before += self._map_bytes[m]
        if group & self._with_shared:
            gone = {pair for i in bits(group & self._with_shared & counted) for pair in self._shared[i]}
            kept = {pair for i in bits(rest & self._with_shared) for pair in self._shared[i]}
            before -= sum(size for _, size in gone - kept)
        return before

    @property
    def mates(self) -> tuple[int, ...]:
        """Per operator: operators that may share a legal group with it, itself included."""
        return self._mates

    @property
    def least_bytes(self) -> int:
        """What no scheme can avoid: the compulsory bound, maps that no group keeps on chip, and re-reads of operators that always must be tiled."""
        return self.compulsory_bytes + sum(self._forced) + sum(self._retiled)

    @cached_property
    def _retiled(self) -> list[int]:
        """Per operator: bytes that it re-reads in whatever group, because even the lower bound of its buffer does not fit.

        Such an operator is alone or heads an epilogue group, and an epilogue only adds to what its tiles must hold (unless they share weights). What
        may stand in an epilogue itself is left out: there it re-reads nothing.
        """
        found = [0] * len(self.dataflow)
        if self.traffic is not Traffic.TILED:
            return found
        for i in range(len(found)):
            follows = self.epilogue and self._follows[i]
            if not follows and not self._with_shared >> i & 1 and self._fits_in_no_mode(i):
                found[i] = max(self._tiled_dram(1 << i).total - sum(self._once(1 << i)), 0)
        return found

    def _fits_in_no_mode(self, op: int) -> bool:
        """Whether an operator is too much for the buffer in whatever group, but for one that is tiled."""
        beta = self.hardware.buffer_bytes
        if self._line and self._grow_line(0, 0, 0, op)[0] < beta:
            return False
        if self._resident and self.resident.grow(0, Peak(), op).bytes < beta:
            return False
        return not self._bands or band_bytes(self.bands.slices, op) >= beta

    @cached_property
    def _forced(self) -> list[int]:
        """Per map: bytes beyond the compulsory bound, because no group holds its producer and all of its readers: it is written and read again."""
        flow = self.dataflow
        counted = flow.everything & ~self.excluded
        found: list[int] = []
        for m, size in enumerate(self._map_bytes):
            producer = flow.producer[m]
            apart = flow.readers[m] & ~self._mates[producer] if producer >= 0 else 0
            written = bool(apart) and not flow.is_output[m] and bool(counted >> producer & 1)
            found.append(size * (written + bool(apart & counted)))
        return found

    @cached_property
    def _mates(self) -> tuple[int, ...]:
        """See `mates`; operators of one epilogue may meet whatever the buffer."""
        flow, beta = self.dataflow, self.hardware.buffer_bytes
        if self.scheme == "lbdf":
            found = self._line_mates()
        else:
            modes = [self._line_mates()] if self._line else []
            modes += [self.resident.mates(beta)] if self._resident else []
            modes += [band_mates(self.bands.slices, beta)] if self._bands else []
            found = [reduce(or_, masks) for masks in zip(*(convex(flow, each) for each in modes), strict=True)]
        if self.epilogue:
            for family in families(self._follows):
                for i in bits(family):
                    found[i] |= family
        return tuple(found)

    def _line_mates(self) -> list[int]:
        return mates(self.dataflow, self._holds, self._row_bytes, [own[1] for own in self._own], self.hardware.buffer_bytes)
