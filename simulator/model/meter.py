"""Figures of groups on the chip: DRAM bytes, cycles and energy of their steps, and lower bounds.

For searches: bounds first, for many groups; then the model (`simulator.model.timing`), for those that may be
worth it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    DramAccess,
    DramBytes,
    EnergyUse,
    Figures,
    Hardware,
    Node,
    Place,
    Transfer,
    box_shape,
    counted_leaves,
    dram_bytes,
    row_axis,
    whole,
)
from lfopt.ops import Dataflow, bits
from lfopt.ops.flight import flight_names
from simulator.model.dram import in_runs
from simulator.model.energy import Spending
from simulator.model.floors import Floors
from simulator.model.timing import Accelerator

WALKED = 4000  # steps of a group that are timed one by one
ROWS = 4  # that are made at a time, where the cycles of an operator are estimated


class Meter:
    """Figures of groups of one dataflow, in which operators may be in flight; steps name them one by one."""

    def __init__(self, flow: Dataflow, hardware: Hardware, known: Meter | None = None) -> None:
        """`known`: a meter of the same dataflow and chip, whose cycles are reused.

        Its buffer may have another size, on which the cycles of steps do not depend.
        """
        self.flow = flow
        self.hardware = hardware
        self.accelerator = Accelerator(Dataflow.of(flow.graph), hardware)
        self.floors = Floors(self.accelerator)
        self._cycles: dict[Hashable, int] = {} if known is None else known._cycles  # noqa: SLF001  (of the same class)

    def figures(self, places: Sequence[Place], steps: Sequence[Node]) -> Figures:
        """Bytes, cycles and energy of a schedule; beyond WALKED steps, cycles are extrapolated."""
        moved = dram_bytes(steps)
        spending = self._spent(steps, moved)
        key = hash((tuple(places), tuple(steps))), moved  # not the steps themselves: they are many
        if key not in self._cycles:
            self._cycles[key] = self.accelerator.time(steps, places, WALKED).total
        spending.cycles(self._cycles[key])
        return Figures(moved.total, self._cycles[key], round(spending.use.total_pj))

    def energy(self, steps: Sequence[Node]) -> EnergyUse:
        """Energy of a schedule by kind of event, but for what its cycles take."""
        return self._spent(steps, dram_bytes(steps)).use

    def _spent(self, steps: Sequence[Node], moved: DramBytes) -> Spending:
        """Energy of all events of a schedule, which moves these bytes."""
        spending = Spending(self.hardware)
        weights = 0
        for times, step in counted_leaves(steps):
            if isinstance(step, Compute):
                for one in self.accelerator.passes(step):
                    spending.compute(self.accelerator.work(one), times)
            elif isinstance(step, Carry):
                spending.compute(self.accelerator.carried(step), times)
            elif step.kind == "weight" and not step.gather:
                weights += times * step.bytes
        spending.transfer(moved.total, self._access(steps, moved), weights)
        return spending

    def without_steps(self, mask: int, dram: DramBytes) -> Figures:
        """Figures of a group without steps: its bytes through the port beside operators on whole maps."""
        spending = Spending(self.hardware)
        compute = 0
        spending.transfer(dram.total, in_runs(1, dram.total, self.hardware), dram.weight)
        for i in bits(mask):
            step = self._whole(i)
            for one in self.accelerator.passes(step):
                spending.compute(self.accelerator.work(one), 1)
            compute += self.accelerator.cycles(step)
        moved = self.hardware.port_latency + self.port_cycles(dram)
        cycles = max(moved, compute) if self.hardware.overlap else moved + compute
        spending.cycles(cycles)
        return Figures(dram.total, cycles, round(spending.use.total_pj))

    def estimated_cycles(self) -> list[float]:
        """Per operator: cycles of the array and of the vector unit, of a few rows at a time."""
        return [self.by_rows(i, ROWS)[0] for i in range(len(self.flow))]

    def by_rows(self, op: int, rows: int) -> tuple[float, float]:
        """(cycles, commands) of an operator on whole maps that makes so many rows at a time; 0: all at once.

        All rows are taken to be like those in the middle of the map.
        """
        step = self._whole(op)
        times = 1.0
        axes = [row_axis(box_shape(box)) for box in step.boxes]
        height = max(
            (box[axis][1] for box, axis in zip(step.boxes, axes, strict=True) if axis is not None), default=1
        )
        if 0 < rows < height:
            times = height / rows
            boxes = list[Box]()
            for box, axis in zip(step.boxes, axes, strict=True):
                if axis is not None:
                    first = max(box[axis][1] - rows, 0) // 2
                    box = (*box[:axis], (first, min(first + rows, box[axis][1])), *box[axis + 1 :])
                boxes.append(box)
            step = replace(step, boxes=tuple(boxes))
        parts = self.accelerator.split(step)
        return times * sum(self.accelerator.command(part).cycles for part in parts), times * len(parts)

    def _whole(self, op: int) -> Compute:
        """A Compute of an operator, with what follows in flight, on whole maps."""
        results = self.flow.results[op]
        boxes = tuple(whole(self.flow.maps[m].shape) for m in results)
        return Compute(
            self.flow.operators[op].name, boxes, (-1,) * len(results), then=flight_names(self.flow.calls[op])
        )

    def _access(self, steps: Sequence[Node], moved: DramBytes) -> DramAccess:
        """DRAM bursts and pages of all transfers."""
        if self.hardware.plain_dram:
            return DramAccess(moved.total)
        loose = (
            self.accelerator.access(step) * times
            for times, step in counted_leaves(steps)
            if isinstance(step, Transfer)
        )
        return sum(loose, DramAccess())

    def computing(self, steps: Sequence[Node]) -> int:
        """Cycles of the compute engine: a lower bound on those of the steps."""
        return self.accelerator.computing(steps)

    def port_cycles(self, dram: DramBytes) -> int:
        """Cycles of these bytes: the larger of the busier channel to DRAM, and of DRAM itself."""
        stores = dram.output + dram.spill // 2
        shared = 0 if self.hardware.dram_bytes_per_second is None else self.hardware.dram_cycles(dram.total)
        return max(-(-max(dram.total - stores, stores) // self.hardware.port_bytes), shared)

    def least(self, op: int) -> Figures:
        """What an operator takes at the least in whatever steps, its bytes aside.

        See `simulator.model.floors`.
        """
        call = self.flow.calls[op]
        cycles = self.floors.cycles(call)
        return Figures(0, cycles, self.floors.energy_pj(call) + int(cycles * self.hardware.energy.cycle_pj))

    def least_of_network(self, dram_bytes: int, loads: int) -> Figures:
        """What every plan of the network takes at the least, each figure by itself.

        Operators are computed once at the least, one after the other; bytes pass the port beside that, or
        after it. `dram_bytes`: that no plan moves less than; `loads`: bytes that no plan loads less than.
        """
        hardware = self.hardware
        operators = [self.least(i) for i in range(len(self.flow))]
        computing = sum(figures.cycles for figures in operators)
        shared = 0 if hardware.dram_bytes_per_second is None else hardware.dram_cycles(dram_bytes)
        moving = max(-(-loads // hardware.port_bytes), shared)
        cycles = max(computing, moving) if hardware.overlap else computing + moving
        on_chip = min(hardware.on_chip_pj(dram_bytes, 0), hardware.on_chip_pj(0, dram_bytes))
        moved = dram_bytes * hardware.energy.pj_per_dram_byte + on_chip
        waiting = (cycles - computing) * hardware.energy.cycle_pj
        energy = sum(figures.energy_pj for figures in operators) + int(moved + waiting)
        return Figures(dram_bytes, cycles, energy)
