"""What an operator takes at the least on the accelerator, in whatever steps it runs: cycles and energy.

Steps may cut its result into boxes and its sums into parts, and may compute parts again. The least is what
`simulator.model.engines` says of all of it at once, without what commands cost beside their passes over
pixels. Cuts only add to that: each part begins blocks of channels and rows of weights of its own.

Nothing is counted for operators whose work depends on the steps around them: those that only move elements,
what lies between the products of attention, elementwise operators on quantised maps, which become tables of
others, and what makes elements that no other operator may use. Of attention, the two products count where all
keys are seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from math import ceil, prod

from lfopt.ir import Compute, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Call, Dataflow, Family, Tiling
from lfopt.ops.attention import form_of
from lfopt.ops.recognise import attentions_of
from lfopt.ops.windows import Window, windows
from lfopt.planning.accelerator.commands import (
    ContractionLoops,
    contraction_loops,
    reach,
    vector_passes,
)
from lfopt.planning.accelerator.lanes import MOVES
from simulator.model.energy import Spending
from simulator.model.engines import ComputeWork
from simulator.model.needed import needed_operators
from simulator.model.timing import Accelerator

LISTED = 1 << 12  # outputs along an axis, or elements of a window, that are looked at one by one
COUNTED = frozenset({Family.ELEMENTWISE, Family.POOL, Family.REDUCTION})  # beside contractions


class Floors:
    """Cycles of the compute engine, and energy, that the operators of a network take at the least."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.flow: Dataflow = accelerator.flow
        self.hardware = accelerator.hardware

    @cached_property
    def _needed(self) -> int:
        """Mask of the operators whose work every plan does."""
        return needed_operators(self.flow) & ~_in_attention(self.flow)

    def cycles(self, call: Call) -> int:
        """Cycles of an operator, with what follows it in flight."""
        return sum(int(self._cycles(op)) for op in self._counted(call))

    def energy_pj(self, call: Call) -> int:
        """Energy of an operator, with what follows it in flight; that of cycles and of DRAM aside."""
        spending = Spending(self.hardware)
        for op in self._counted(call):
            spending.compute(self._work(op), 1)
        return int(spending.use.total_pj)

    def _counted(self, call: Call) -> Iterator[int]:
        """The operators of which something is counted."""
        for part in call.parts:
            op = self.accelerator.number(part.operator.name)
            if op is not None and self._counts(op):
                yield op

    def _counts(self, op: int) -> bool:
        """Whether the work of an operator is the same in whatever steps."""
        spec = self.flow.specs[op]
        if not self._needed >> op & 1 or not all(map(prod, self.flow.calls[op].results)):
            return False
        if spec.tiling is Tiling.CONTRACT:
            return True
        if spec.kind in MOVES or spec.family not in COUNTED:
            return False
        return spec.family is not Family.ELEMENTWISE or not self.flow.calls[op].result_tensors[0].quantization

    def _cycles(self, op: int) -> Fraction:
        call = self.flow.calls[op]
        if self.flow.specs[op].tiling is not Tiling.CONTRACT:
            return self._vector(op)
        loops = contraction_loops(call)
        cycles = self._depthwise(op, loops) if loops.depthwise else self._contraction(op, loops)
        return cycles / Fraction(self.hardware.mac_utilization)

    def _window(self, op: int) -> tuple[Window, Window] | None:
        """The window of an operator that slides over [n, c, h, w], rows and columns; None of others."""
        call = self.flow.calls[op]
        if len(call.result) != 4 or not self.flow.specs[op].slides:
            return None
        rows, columns = windows(call)
        return rows, columns

    def _pixel_passes(self, op: int, loops: ContractionLoops) -> list[int]:
        """Per row of the kernel: pixels that it passes over, where it meets the map."""
        window = self._window(op)
        if window is None:
            return [loops.pixels] * loops.rows
        rows = window[0]
        return [loops.pixels // rows.size_out * meeting for meeting in _meeting(rows)]

    def _contraction(self, op: int, loops: ContractionLoops) -> Fraction:
        """Cycles of a contraction that is not depthwise."""
        hardware = self.hardware
        call = self.flow.calls[op]
        pixel_passes = self._pixel_passes(op, loops)
        busy = self._blocks(loops) * self._passes(loops) * sum(max(count, 2) for count in pixel_passes)
        bits = hardware.constant_bits(bias=False) if call.constant[1] else 8 * hardware.element_bytes
        column = Fraction(bits, 8 * hardware.weight_port_bytes)  # cycles of one weight through their own port
        full, rest = divmod(loops.outer, hardware.mac_columns)
        arrivals = full * min(hardware.mac_columns * column, 1) + min(rest * column, 1)
        weights = loops.groups * arrivals * len(pixel_passes) * loops.columns * loops.inner
        return max(Fraction(busy), Fraction(weights))

    def _blocks(self, loops: ContractionLoops) -> int:
        """Blocks of output channels, of all groups."""
        if loops.groups == 1:
            return ceil(loops.outer / self.hardware.mac_columns)
        # boxes of the result may cut through groups
        return ceil(loops.groups * loops.outer / min(loops.outer, self.hardware.mac_columns))

    def _passes(self, loops: ContractionLoops) -> int:
        """Passes over the pixels for one row of the kernel and one block of output channels."""
        hardware = self.hardware
        together = ceil(Fraction(loops.inner * loops.columns, hardware.mac_rows))
        if loops.narrow(hardware.mac_rows, hardware.window_columns):
            return max(together, ceil(Fraction(loops.columns, hardware.window_columns)))
        if loops.side_by_side and loops.columns > 1:
            return together  # parts of few input channels take several columns in one pass
        return loops.columns * ceil(Fraction(loops.inner, hardware.mac_rows))

    def _depthwise(self, op: int, loops: ContractionLoops) -> Fraction:
        """Cycles of a convolution of every channel by itself."""
        hardware = self.hardware
        blocks = ceil(Fraction(loops.outer, hardware.mac_columns))
        pixels = sum(self._pixel_passes(op, loops))
        window = self._window(op)
        if window is None:
            taps = hardware.window_columns if loops.side_by_side else 1
            return Fraction(blocks * pixels * ceil(Fraction(loops.columns, taps)))
        columns = window[1]
        kernel = sum(meeting == columns.size_out for meeting in _meeting(columns))  # met by every window
        if not loops.side_by_side:
            return Fraction(blocks * pixels * kernel)
        stride = columns.stride if columns.size_out > 1 else 1
        # cycles of a pixel for one row of the kernel, in the best box
        each = Fraction(kernel)
        for width in (1, 2):  # a single column, and more
            for count in range(kernel, len(_meeting(columns)) + 1):
                together, taps = reach(
                    count,
                    stride,
                    width,
                    hardware.mac_rows,
                    hardware.window_columns,
                    hardware.depthwise_columns,
                )
                each = min(each, Fraction(ceil(Fraction(count, taps)), together))
        return blocks * pixels * each

    def _vector(self, op: int) -> Fraction:
        """Cycles of an operator on the vector lanes."""
        hardware = self.hardware
        call = self.flow.calls[op]
        rows, columns, sums = vector_passes(call, len(self.flow.operands[op]))
        passes = Fraction(rows * columns if sums else rows * ceil(Fraction(columns, hardware.window_columns)))
        window = self._window(op)
        if window is not None:
            passes = Fraction(sum(_meeting(window[0])), window[0].size_out)
        cycles = Fraction(0)
        for shape in call.results:
            axis = CHANNEL_AXIS_OF_RANK.get(len(shape))
            size = prod(shape)
            if size and axis is not None and not sums:
                lanes = ceil(Fraction(shape[axis], hardware.vector_lanes))
                cycles += lanes * max(size // shape[axis], 2) * passes
            else:
                cycles += Fraction(size, hardware.vector_lanes) * passes
        return cycles

    def _work(self, op: int) -> ComputeWork:
        """Products and bytes of an operator."""
        call = self.flow.calls[op]
        boxes = tuple(whole(shape) for shape in call.results)
        step = Compute(call.operator.name, boxes, (-1,) * len(boxes))
        work = self.accelerator.work(step)
        if self.flow.specs[op].tiling is not Tiling.CONTRACT:
            return work if self.flow.specs[op].family is not Family.REDUCTION else ComputeWork()
        loops = contraction_loops(call)
        sums = 2 * loops.groups * loops.outer * loops.pixels * self.hardware.accumulator_bytes
        accumulated = sums * (1 if loops.depthwise else self._passes(loops) * loops.rows)
        if loops.groups == 1 or loops.depthwise:
            return work._replace(accumulator_bytes=min(accumulated, work.accumulator_bytes))
        return ComputeWork(macs=work.macs, width=work.width)


def _meeting(axis: Window) -> list[int]:
    """How many outputs have windows that meet more than k elements of the map, for k = 0, 1, ...

    Of very many outputs or elements, the first of these numbers alone.
    """
    if max(axis.size_out, axis.kernel) > LISTED:
        return [axis.size_out]
    counts = Counter(axis.trimmed((k, k + 1)).kernel for k in range(axis.size_out))
    return [sum(times for count, times in counts.items() if count > k) for k in range(max(counts))]


def _in_attention(flow: Dataflow) -> int:
    """Mask of the operators of attentions, but for products in which all keys are seen."""
    inside = 0
    for attention in attentions_of(flow).recognised:
        form = form_of(attention.call)
        counted = {form.product.operator.name, form.mixing.operator.name} if form.window is None else set()
        for op in attention.members:
            if flow.operators[op].name not in counted:
                inside |= 1 << op
    return inside
