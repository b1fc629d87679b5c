"""What a fusion group costs: DRAM bytes, buffer bytes, and whether it may run at all.

    F_beta = sum over maps t that the group touches of rows(t) * row_bytes(t)  +  its weights and biases
    F_D    = external inputs once each  +  maps needed outside once each  +  its weights and biases once
    valid iff F_beta < beta

A single operator may always run, and so may an operator followed by elementwise operators (its epilogue): if they do not fit whole, they are tiled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import Enum
from functools import cached_property

from lfopt.ir import Cost, DoesNotFit, DramBytes, Hardware, RingNeed
from lfopt.ops import OPAQUE, Dataflow, Tiling, bits
from lfopt.planning.epilogue import families, followed, is_epilogue_group, streams_and_held
from lfopt.planning.lbdf import LineBuffers
from lfopt.planning.mates import mates
from lfopt.planning.tiling import Contraction, Tile, contraction, tile


class Traffic(Enum):
    """How the bytes of a group that must be tiled are counted."""

    TILED = "tiled"  # what a tiled schedule moves
    ONCE = "once"  # every tensor once even then: a bound, to compare with tools that count so
    PAPER = "paper"  # as once, but operators whose weights reach beta are left out and reported apart (arXiv 2501.00636, section III)


class GroupCosts:
    """Costs of the groups of one dataflow on one chip, memoised. Groups are masks of operators; connectivity and convexity are not checked."""

    def __init__(self, dataflow: Dataflow, hardware: Hardware, traffic: Traffic = Traffic.TILED, *, epilogue: bool = True) -> None:
        self.dataflow = dataflow
        self.hardware = hardware
        self.traffic = traffic
        self.epilogue = epilogue
        self.line_buffers = LineBuffers(dataflow)
        self._needs: dict[int, int] = {}  # F_beta by group, the same on any buffer
        self._tiles: dict[int, tuple[int, Tile]] = {}  # per group: a buffer, and the best tiling on it
        self._costs: dict[int, Cost | DoesNotFit] = {}
        self._map_bytes = [hardware.dram_bytes(m) for m in dataflow.maps]
        self._row_bytes = [hardware.row_bytes(m) for m in dataflow.maps]
        self._own: list[tuple[int, int]] = []  # per operator: (DRAM bytes, buffer bytes) of the weights that it alone reads
        self._shared: list[tuple[tuple[str, int], ...]] = []  # per operator: weights with several readers
        uses = Counter(name for weights in dataflow.weights for name in {w.name for w in weights if not w.gathered})
        data = {w.name for weights in dataflow.weights for w in weights if not w.bias}  # stored as weights, even where also read as a bias
        for weights in dataflow.weights:
            sizes = {(w.name, w.gathered): hardware.constant_bytes(w.elements, bias=w.bias and w.name not in data) for w in weights}
            own = {key: size for key, size in sizes.items() if key[1] or uses[key[0]] == 1}
            self._own.append((sum(own.values()), sum(size for (_, gathered), size in own.items() if not gathered)))
            self._shared.append(tuple((name, size) for (name, gathered), size in sizes.items() if (name, gathered) not in own))
        self._with_shared = sum(1 << i for i, shared in enumerate(self._shared) if shared)

    def at(self, buffer_bytes: int) -> GroupCosts:
        """The same with another buffer; what does not depend on its size is shared."""
        other = GroupCosts(self.dataflow, replace(self.hardware, buffer_bytes=buffer_bytes), self.traffic, epilogue=self.epilogue)
        other.line_buffers, other._needs, other._tiles = self.line_buffers, self._needs, self._tiles
        return other

    # -- whole groups --------------------------------------------------------------------------------------------------------------------

    def evaluate(self, mask: int) -> Cost | DoesNotFit:
        """Cost of the group, or why it may not run."""
        if mask not in self._costs:
            self._costs[mask] = self._evaluate(mask)
        return self._costs[mask]

    def _evaluate(self, mask: int) -> Cost | DoesNotFit:
        flow = self.dataflow
        first = (mask & -mask).bit_length() - 1
        single = mask & (mask - 1) == 0
        if flow.specs[first] is OPAQUE and single:
            return Cost(self.dram(mask).total, self.buffer_bytes(mask), "opaque")
        if mask & self.excluded and single:
            return Cost(0, self.buffer_bytes(mask), "excluded")
        needed = self.buffer_bytes(mask)
        if needed < self.hardware.buffer_bytes:
            return Cost(sum(self._once(mask)), needed, "lbdf")
        if single or (self.epilogue and not mask & self.excluded and self.is_epilogue_group(mask)):
            chosen = self.tile(mask)
            return Cost(self.dram(mask).total, chosen.buffer_bytes, "tiled")
        return self.does_not_fit(mask)

    def dram(self, mask: int) -> DramBytes:
        """DRAM bytes of a group by class: F_D, or what its tiling moves where it must be tiled."""
        read, written, weights = self._once(mask)
        once = DramBytes(input=read, output=written, weight=weights)
        return once + self._rereads(mask) if self.traffic is Traffic.TILED else once

    def _once(self, mask: int) -> tuple[int, int, int]:
        """(input, output, weight) bytes with every tensor once."""
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
        return read, written, self.weight_bytes(mask)[0]

    def _rereads(self, mask: int) -> DramBytes:
        """What tiling adds to every tensor once."""
        first = (mask & -mask).bit_length() - 1
        if not self._contracts(first) or self.buffer_bytes(mask) < self.hardware.buffer_bytes:
            return DramBytes()
        chosen = self.tile(mask)
        extra_input, extra_weight = chosen.extra_input_bytes, chosen.extra_weight_bytes
        second_is_map = any(o.input == 1 for o in self.dataflow.operands[first])
        return DramBytes(input=extra_input + extra_weight) if second_is_map else DramBytes(input=extra_input, weight=extra_weight)

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

    def buffer_bytes(self, mask: int) -> int:
        """F_beta: what the group takes on chip when it runs in line-buffer depth-first order."""
        need = self._needs.get(mask)
        if need is None:
            row_bytes = self._row_bytes
            rings = self.line_buffers.ring_rows(mask)
            need = self._needs[mask] = sum([rows * row_bytes[m] for m, rows in rings.items()]) + self.weight_bytes(mask)[1]
        return need

    def does_not_fit(self, mask: int) -> DoesNotFit:
        """The breakdown of F_beta."""
        flow = self.dataflow
        rings = self.line_buffers.ring_rows(mask)
        return DoesNotFit(
            mask,
            self.buffer_bytes(mask),
            self.hardware.buffer_bytes,
            tuple(RingNeed(flow.maps[m].name, rows, rows * self._row_bytes[m]) for m, rows in sorted(rings.items())),
            tuple((flow.operators[i].name, self.weight_bytes(1 << i)[1]) for i in bits(mask) if flow.weights[i]),
        )

    # -- epilogue groups and tiling ------------------------------------------------------------------------------------------------------

    @cached_property
    def _follows(self) -> list[int]:
        return followed(self.dataflow)

    def legal_anywhere(self, mask: int) -> bool:
        """Whether the group may run on any buffer: a single operator, or an epilogue group where those are allowed."""
        return mask & (mask - 1) == 0 or (self.epilogue and self.is_epilogue_group(mask))

    def is_epilogue_group(self, mask: int) -> bool:
        """Whether the group is one operator followed by elementwise operators on its output."""
        return is_epilogue_group(self.dataflow, self._follows, mask)

    def tile(self, mask: int) -> Tile:
        """The tiling of a single operator or epilogue group that does not fit whole."""
        beta = self.hardware.buffer_bytes
        on, known = self._tiles.get(mask, (0, None))
        # What is best among the tilings of a larger buffer, and fits this one, is best among those of this one.
        if known is None or not (on == beta or (on > beta and known.buffer_bytes < beta)):
            known = self._tile(mask)
            self._tiles[mask] = beta, known
        return known

    def _tile(self, mask: int) -> Tile:
        head = (mask & -mask).bit_length() - 1
        if self._contracts(head):
            return tile(self._contraction(mask), self.hardware)
        channels = max(self.dataflow.maps[self.dataflow.results[head][0]].shape, default=1)
        return Tile("split", 0, 0, min(-(-self.buffer_bytes(mask) // channels), self.hardware.buffer_bytes - 1))

    def _contracts(self, op: int) -> bool:
        return self.dataflow.specs[op].tiling is Tiling.CONTRACT and any(o.input == 0 for o in self.dataflow.operands[op])

    def _contraction(self, mask: int) -> Contraction:
        head = (mask & -mask).bit_length() - 1
        streaming, held = streams_and_held(self.dataflow, mask, self.hardware)
        epilogue_weights = self.weight_bytes(mask & ~(1 << head))[1]
        weights = self.weight_bytes(mask)[1] - epilogue_weights
        return contraction(self.dataflow, head, self.hardware, weights, streaming, held + epilogue_weights)

    # -- what the exact search grows groups with -----------------------------------------------------------------------------------------

    @cached_property
    def _least_computed(self) -> list[int]:
        """Per operator: rows that it computes in whatever group."""
        flow = self.dataflow
        least = list(flow.heights)
        for i in reversed(range(len(flow))):
            if any(flow.is_output[m] for m in flow.results[i]):
                continue
            demands = [
                operand.reads.need[least[c] - 1] if least[c] else 0
                for c in bits(flow.succs[i])
                for operand in flow.operands[c]
                if operand.map in flow.results[i]
            ]
            least[i] = min([least[i], *demands])
        return least

    @cached_property
    def _holds(self) -> list[dict[int, int]]:
        """Per operator: rows of each map it reads that are held at once for it in whatever group."""
        flow = self.dataflow
        found: list[dict[int, int]] = []
        for i, operands in enumerate(flow.operands):
            held: dict[int, int] = {}
            for operand in operands:
                producer = flow.producer[operand.map]
                least = 1 if producer < 0 or self._least_computed[producer] else 0
                held[operand.map] = max(held.get(operand.map, least), operand.reads.widest[self._least_computed[i]])
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

    def grow(self, mask: int, floor: int, dram: int, op: int) -> tuple[int, int]:
        """Add an operator whose index is above all others in the group.

        `floor` bounds F_beta from below, for the group and for every group that contains it: weights plus, per map, the widest window among its
        readers in the group. `dram` is F_D with every tensor once. Both are returned for the larger group.
        """
        flow = self.dataflow
        bit = 1 << op
        for m, rows in self._holds[op].items():
            held = 0
            if flow.readers[m] & mask:
                held = next(wide for reader, wide in self._widest_readers[m] if reader & mask)
            producer = flow.producer[m]
            if producer >= 0 and mask >> producer & 1:
                held = held or min(1, self._least_computed[producer])
                if not flow.is_output[m] and not flow.readers[m] & ~(mask | bit):
                    dram -= self._map_bytes[m]
            elif not flow.readers[m] & mask:
                dram += self._map_bytes[m]
            if rows > held:
                floor += (rows - held) * self._row_bytes[m]
        for m in flow.results[op]:
            if self._least_computed[op]:
                floor += self._row_bytes[m]
            if flow.is_output[m] or flow.readers[m]:
                dram += self._map_bytes[m]
        own = self._own[op]
        dram, floor = dram + own[0], floor + own[1]
        if bit & self._with_shared:
            have = {name for i in bits(mask & self._with_shared) for name, _ in self._shared[i]}
            extra = sum(size for name, size in self._shared[op] if name not in have)
            dram, floor = dram + extra, floor + extra
        return floor, 0 if bit & self.excluded else dram  # an excluded operator stands alone, and moves nothing that is counted

    def may_grow(self, mask: int, floor: int) -> bool:
        """Whether some group that contains this one may be legal, as far as a lower bound on its buffer tells."""
        return floor < self.hardware.buffer_bytes or (self.epilogue and self.is_epilogue_group(mask))

    @cached_property
    def excluded(self) -> int:
        """Operators that traffic `paper` leaves out."""
        if self.traffic is not Traffic.PAPER:
            return 0
        beta = self.hardware.buffer_bytes
        return sum(1 << i for i, row in enumerate(self.dataflow.specs) if row is not OPAQUE and self.weight_bytes(1 << i)[1] >= beta)

    @property
    def compulsory_bytes(self) -> int:
        """Weights, graph inputs and graph outputs once, of the operators that are not excluded: no plan moves less."""
        flow = self.dataflow
        counted = flow.everything & ~self.excluded
        moved = [
            size
            for m, size in enumerate(self._map_bytes)
            if flow.producer[m] < 0 and flow.readers[m] & counted or flow.is_output[m] and flow.producer[m] >= 0 and counted >> flow.producer[m] & 1
        ]
        return sum(moved) + self.weight_bytes(counted)[0]

    def rest_bytes(self, executed: int, before: int, group: int) -> int:
        """Bytes that the operators outside a downset must move at the very least, once `group` has joined it; `before` is that figure without.

        Their weights, the graph outputs that they make, each map that they need but do not make, once, and what `least_bytes` adds.
        """
        flow = self.dataflow
        counted = flow.everything & ~executed & ~self.excluded
        rest = counted & ~group
        seen: set[int] = set()
        for i in bits(group):
            before -= self._retiled[i]
            if counted >> i & 1:
                before -= self._own[i][0]
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

        Such an operator is alone or heads an epilogue group, and an epilogue only adds to what its tiles must hold (unless they share weights).
        """
        if self.traffic is not Traffic.TILED:
            return [0] * len(self.dataflow)
        beta, count = self.hardware.buffer_bytes, len(self.dataflow)
        too_big = [self.grow(0, 0, 0, i)[0] >= beta and not self._with_shared >> i & 1 for i in range(count)]
        return [self._rereads(1 << i).total if big else 0 for i, big in enumerate(too_big)]

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
        found = mates(self.dataflow, self._holds, self._row_bytes, [own[1] for own in self._own], self.hardware.buffer_bytes)
        if self.epilogue:
            for family in families(self._follows):
                for i in bits(family):
                    found[i] |= family
        return tuple(found)
