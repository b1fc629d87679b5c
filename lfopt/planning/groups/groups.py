"""Figures of groups in any mode and buffer: DRAM bytes by class, weights, parameters, rings.

F_D    = external inputs once each  +  maps needed outside once each  +  weights and biases once  +
         parameters once
F_beta = rows of line buffers  +  weights and biases          (of mode lbdf; other modes have their own needs)

Where weights have a buffer of their own, F_beta is without them, and they must fit that buffer
(`Hardware.buffer_need`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import DramBytes, Hardware
from lfopt.ops import Call, Dataflow, bits
from lfopt.ops.content import elements_used
from lfopt.ops.stages import least_parameters, one_by_one, parameter_sizes, stages, table_count
from lfopt.planning.groups.compulsory import Compulsory
from lfopt.planning.groups.epilogue import extends_epilogue, followed, is_epilogue_group
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.line_buffers.lines import Lines


def may_fly(flight: Call, hardware: Hardware) -> bool:
    """Whether the chip runs operators in one flight.

    With a store for parameters it holds those of all, and of bytes one value at a time.
    """
    if not hardware.parameter_store_bytes or flight.result_tensors[0].quantization is None:
        return True
    size = sum(size for _, size in parameter_sizes(flight, hardware.parameter_channels))
    return one_by_one(flight) and hardware.holds_parameters(size, table_count(flight))


def is_table(flight: Call, hardware: Hardware) -> bool:
    """Whether all that follows an operator is a function of the byte that it makes: one table.

    A chip that has tables looks it up at no cost.
    """
    return may_fly(flight, hardware) and len(stages(flight)) == 1


class _Read(NamedTuple):
    """A map that an operator reads, as `grow` asks for it."""

    bytes: int  # in DRAM
    readers: int  # mask of all of them
    maker: int  # the bit of its producer; 0: it comes from outside the network
    is_output: bool


class Groups:
    """Figures of the groups of one dataflow on a chip, memoised.

    Groups are masks of operators; connectivity and convexity are not checked.
    """

    def __init__(self, dataflow: Dataflow, hardware: Hardware) -> None:
        self.dataflow = dataflow
        self.hardware = hardware  # but for the size of its buffer, which nothing here depends on
        self.lines = Lines.of(dataflow)
        self.line_buffers = LineBuffers(dataflow, self.lines)
        self.waiting = (
            LineBuffers(dataflow, Lines.plain(dataflow)) if self.lines.running else self.line_buffers
        )  # where reductions take all rows at once
        self.follows = followed(dataflow)
        self.map_bytes = [hardware.dram_bytes(m) for m in dataflow.maps]
        self.row_bytes = [hardware.row_bytes(m) for m in dataflow.maps]
        # per operator: buffer bytes of the partial results of a running reduction
        self.sums = [0] * len(dataflow)
        for i in bits(self.lines.running):
            self.sums[i] = hardware.sums_bytes(self.row_bytes[dataflow.results[i][0]])
        self.parameters = [sum(size for _, size in self.parameters_of(i)) for i in range(len(dataflow))]
        self.tables = [
            table_count(call) if hardware.parameter_tables and self.parameters[i] else 0
            for i, call in enumerate(dataflow.calls)
        ]
        # per operator: (DRAM bytes, buffer bytes) of the weights that it alone reads
        self.own: list[tuple[int, int]] = []
        self.shared: list[tuple[tuple[str, int], ...]] = []  # per operator: weights with several readers
        uses = Counter(
            name for weights in dataflow.weights for name in {w.name for w in weights if not w.gathered}
        )
        for weights in dataflow.weights:
            sizes = {
                (w.name, w.gathered): hardware.constant_bytes(w.elements, bias=w.bias, pieces=w.pieces)
                for w in weights
            }
            own = {key: size for key, size in sizes.items() if key[1] or uses[key[0]] == 1}
            self.own.append(
                (sum(own.values()), sum(size for (_, gathered), size in own.items() if not gathered))
            )
            self.shared.append(
                tuple((name, size) for (name, gathered), size in sizes.items() if (name, gathered) not in own)
            )
        self.with_shared = sum(1 << i for i, shared in enumerate(self.shared) if shared)
        self._needs: dict[int, int] = {}  # F_beta by group
        self._ends: dict[int, tuple[int, int, int]] = {}  # by group: see `_end`
        self._reads = [
            tuple(self._read(m) for m in dict.fromkeys(o.map for o in operands))
            for operands in dataflow.operands
        ]
        self._added = [self._own_dram(i) for i in range(len(dataflow))]

    @cached_property
    def compulsory(self) -> Compulsory:
        """Compulsory bytes of the network, with nothing in flight."""
        flow = self.dataflow
        plain = all(len(call.parts) == 1 for call in flow.calls)
        return Compulsory(flow if plain else Dataflow.of(flow.graph), self.hardware)

    @cached_property
    def stepping_over(self) -> int:
        """Mask of operators that do not use all elements of what they read: modes may load less of it."""
        flow = self.dataflow
        stepping = 0
        for i, call in enumerate(flow.calls):
            for operand in flow.operands[i]:
                own = operand.input < len(call.operator.inputs)
                tensor = flow.maps[operand.map]
                if own and elements_used(tensor.shape, [(call, operand.input)]) < tensor.elements:
                    stepping |= 1 << i
        return stepping

    def most_macs(self, mask: int, allowed: float) -> float:
        """Multiply-accumulates that a group may do: `allowed` times those of its operators."""
        return allowed * sum(self.dataflow.macs[i] for i in bits(mask))

    def _read(self, m: int) -> _Read:
        flow = self.dataflow
        maker = flow.producer[m]
        return _Read(self.map_bytes[m], flow.readers[m], 1 << maker if maker >= 0 else 0, flow.is_output[m])

    def _own_dram(self, op: int) -> int:
        """DRAM bytes that an operator adds to a group that does not read its results yet.

        Operands and shared weights apart.
        """
        flow = self.dataflow
        written_bytes = sum(
            self.map_bytes[m] for m in flow.results[op] if flow.is_output[m] or flow.readers[m]
        )
        return written_bytes + self.own[op][0] + self.parameters[op]

    def parameters_of(self, op: int) -> list[tuple[str, int]]:
        """(operator, bytes) of the parameters of an operator and of what follows it in flight.

        Empty on a chip without a store for them.
        """
        if not self.hardware.parameter_store_bytes:
            return []
        return parameter_sizes(self.dataflow.calls[op], self.hardware.parameter_channels)

    # -- bytes -----------------------------------------------------------------------------------------------

    def once(self, mask: int) -> DramBytes:
        """DRAM bytes of a group by class with every tensor once: no mode moves less."""
        read, written, weights, parameters = self.once_by_class(mask)
        return DramBytes(input=read, output=written, weight=weights, parameter=parameters)

    def once_by_class(self, mask: int) -> tuple[int, int, int, int]:
        """(input, output, weight, parameter) bytes with every tensor once."""
        flow = self.dataflow
        touched: set[int] = set()
        read = written = 0
        for i in bits(mask):
            for operand in flow.operands[i]:
                m = operand.map
                if m not in touched and (flow.producer[m] < 0 or not mask >> flow.producer[m] & 1):
                    touched.add(m)
                    read += self.map_bytes[m]
            for m in flow.results[i]:
                if flow.is_output[m] or flow.readers[m] & ~mask:
                    written += self.map_bytes[m]
        return read, written, self.weight_bytes(mask)[0], self.parameter_bytes(mask)

    def parameter_bytes(self, mask: int) -> int:
        """DRAM bytes of the parameters of the group's operators.

        0 on a chip where they come with the commands.
        """
        if self.hardware.parameter_store_bytes:
            return sum([self.parameters[i] for i in bits(mask)])
        return 0

    def shareable_bytes(self, mask: int) -> int:
        """Parameter bytes that other flights of the same operators might save, as far as bounds know."""
        calls = [
            replace(part, then=()) if part.then else part
            for i in bits(mask)
            for part in self.dataflow.calls[i].parts
        ]
        counted = self.parameter_bytes(mask)
        if counted:
            return counted - least_parameters(calls, self.hardware.parameter_channels, self.dataflow.behind)
        return 0

    def parameters_fit(self, mask: int) -> bool:
        """Whether the store for parameters holds those of the group; of one operator it does.

        Parameters that exceed it do so however the group grows.
        """
        return mask & (mask - 1) == 0 or self.parameters_at_once(mask)

    def parameters_at_once(self, mask: int) -> bool:
        """Whether the store for parameters holds all of the group's."""
        return self.hardware.holds_parameters(self.parameter_bytes(mask), self.tables_of(mask))

    def tables_of(self, mask: int) -> int:
        """Tables of the group's operators; 0 on a chip whose store has no number of them."""
        if self.hardware.parameter_tables:
            return sum([self.tables[i] for i in bits(mask)])
        return 0

    def weight_bytes(self, mask: int) -> tuple[int, int]:
        """(DRAM bytes, buffer bytes) of the group's weights and biases.

        One read by several of its operators counts once.
        """
        dram = held = 0
        for i in bits(mask):
            own = self.own[i]
            dram += own[0]
            held += own[1]
        shared = self.shared_bytes(mask)
        return dram + shared, held + shared

    def shared_bytes(self, mask: int, but: Collection[str] = ()) -> int:
        """DRAM bytes of the group's weights and biases that several operators of the network read.

        `but`: names of those that do not count.
        """
        if not mask & self.with_shared:
            return 0
        sizes = dict(pair for i in bits(mask & self.with_shared) for pair in self.shared[i])
        return sum(size for name, size in sizes.items() if name not in but)

    def line_need(self, mask: int, band_rows: int = 1) -> int:
        """F_beta in bytes in line-buffer depth-first order, in bands of `band_rows` rows."""
        need = self._needs.get(mask) if band_rows == 1 else None
        if need is None:
            need = self.hardware.buffer_need(self._ring_bytes(mask, band_rows), self.weight_bytes(mask)[1])
            if band_rows == 1:
                self._needs[mask] = need
        return need

    def line_bytes(self, mask: int) -> int:
        """Buffer bytes in line-buffer depth-first order, rows computed one at a time.

        Its weights are left out where a weight buffer holds them.
        """
        return self._ring_bytes(mask, 1) + (
            0 if self.hardware.weight_buffer_bytes else self.weight_bytes(mask)[1]
        )

    def _ring_bytes(self, mask: int, band_rows: int) -> int:
        """Buffer bytes of maps and sums."""
        rings = self.line_buffers.ring_rows(mask, band_rows)
        return self._bytes_of(mask, rings) + self._sums(mask)

    def _bytes_of(self, mask: int, rings: Mapping[int, int]) -> int:
        """Buffer bytes of rings of a group; `rings`: rows, by map."""
        row_bytes = self.row_bytes
        if not self.line_buffers.seen.by_reader:
            return sum([rows * row_bytes[m] for m, rows in rings.items()])
        return sum([rows * self.ring_row_bytes(mask, m) for m, rows in rings.items()])

    def ring_row_bytes(self, mask: int, m: int) -> int:
        """Bytes of a row of a map in its ring: of a view of it where the group loads that."""
        seen = self.line_buffers.seen.of(mask, m)
        if seen is None:
            return self.row_bytes[m]
        return self.hardware.row_bytes(seen.tensor)

    def _sums(self, mask: int) -> int:
        """Buffer bytes of running reductions."""
        return sum([self.sums[i] for i in bits(mask & self.lines.running)])

    def line_fits(self, mask: int, band_rows: int, beta: int) -> bool:
        """Whether `line_need` is less than `beta` bytes.

        Rings only grow as a group runs: as a rule, the first band says it of bands that are too high.
        """
        if band_rows == 1:
            return self.line_need(mask) < beta
        if mask not in self._ends:
            self._ends[mask] = self._end(mask)
        beside, highest, row_bytes = self._ends[mask]
        left = beta - beside
        if min(band_rows, highest) * row_bytes >= left:
            return False
        return self.line_buffers.ring_rows_within(
            mask, band_rows, lambda rings: self._bytes_of(mask, rings) < left
        )

    def _end(self, mask: int) -> tuple[int, int, int]:
        """(bytes beside rings, rows, bytes of a row) of the highest maps without readers in the group.

        A band of them is held. Bytes of a row are those of all of them together.
        """
        flow = self.dataflow
        last_maps = [
            m
            for i in bits(flow.sinks(mask))
            if not flow.succs[i] & mask
            for m in flow.results[i]
            if flow.maps[m].rows <= self.lines.iterations[i]
        ]
        highest = max((flow.maps[m].rows for m in last_maps), default=0)
        beside = self.hardware.buffer_need(self._sums(mask), self.weight_bytes(mask)[1])
        return beside, highest, sum(self.row_bytes[m] for m in last_maps if flow.maps[m].rows == highest)

    def is_epilogue_group(self, mask: int) -> bool:
        """Whether the group is one operator followed by elementwise operators on its output."""
        return is_epilogue_group(self.dataflow, self.follows, mask)

    def extends(self, mask: int, op: int) -> bool:
        """Whether an operator extends a group to an epilogue group.

        The group is one, or a single operator, and the operator comes behind all of its own.
        """
        return extends_epilogue(self.dataflow, self.follows, mask, op)

    # -- growing ---------------------------------------------------------------------------------------------

    def grow(self, mask: int, dram: int, op: int) -> int:
        """F_D in bytes, every tensor once, of the group and `op`, whose index is above all others in it.

        `dram`: that of the group without it.
        """
        outside = ~(mask | 1 << op)
        for size, readers, maker, is_output in self._reads[op]:
            if maker & mask:
                if not is_output and not readers & outside:
                    dram -= size
            elif not readers & mask:
                dram += size
        dram += self._added[op]
        if self.with_shared >> op & 1:
            return dram + self.added_shared(mask, op)
        return dram

    def added_shared(self, mask: int, op: int) -> int:
        """Bytes of weights with several readers that no operator of the group reads, and this one does."""
        have = {name for i in bits(mask & self.with_shared) for name, _ in self.shared[i]}
        return sum(size for name, size in self.shared[op] if name not in have)
