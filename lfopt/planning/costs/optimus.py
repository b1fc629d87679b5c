"""The buffer model of Optimus as it stands (`buffer_model: paper`): validity of groups, weight passes.

Everything is in elements; channels C_l, rows H_l and columns W_l are those of each layer's output. A *layer
with weights* is a convolution (not a depthwise one), Gemm or MatMul by a constant. All others are *local*:
they have no buffer of their own.

    scale     s_last = lcm of the cumulative strides / its own;  s_l = stride_d * s_d for every consumer d in
                                                                 the group, which must agree
    rows      m_last = s_last;  m_l = min(H_l, max over consumers d of (m_d - 1) * stride_d + kernel_d)
    full      a layer with weights after a producer that is not full; not full (k channels) after a full one;
              a local layer if any producer is
    minF      sum over layers with weights of (C_l if full else k) * m_l * W_l, and the inputs of first layers
              that are not full, C * min((m_l - 1) * stride + kernel, H) * W
    addLine   the same with s_l in place of m_l: what one more line of output takes
    valid     iff S > minF, for one of the two starts (first layers full, or not); the one with the smaller
              addLine / (S - minF) is kept
    T         1 if S >= weights + minF; else ceil(H * N / (b * h)), H the rows of the lowest last layer, N
              images, h = floor((S - minF) / addLine) + 1 lines at a time but at most H, b images at a time if
              lines are left over

The model does not hold weights that stream past nor what a residual connection brings in, and sums up slices
in place; the executable variant is `lfopt.planning.brr.banded`. Where its description is silent: k is at most
C_l, m_last at most H_l, a map that several first layers read counts once, a layer that makes one row of all
rows has the whole height as its kernel and stride, and a layer that reads rows otherwise (Resize, attention,
squeeze-and-excite) or a local layer without a producer in the group is in no group of several.

Source: Optimus (Cai, Wang and Zhang, LCTES'21), as its authors' code has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod
from typing import NamedTuple

from lfopt.ir import BufferUse, Cost, DoesNotFit, Hardware, row_count
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import OPAQUE, Dataflow, RowReads, Tiling, bits
from lfopt.ops.rows import all_rows, same_row
from lfopt.ops.windows import windows
from lfopt.planning.costs.group_costs import GroupCosts, Traffic
from lfopt.planning.groups.compatibility import convex

CHANNELS = 16  # k: channels of a map that is not full
NEVER = 1 << 62  # elements: more than any buffer
UNLIMITED = 1 << 40  # bytes


@dataclass(frozen=True, slots=True)
class OptimusFigures:
    """Figures of the model for a group on a given buffer, in elements."""

    least: int  # minF
    line: int  # addLine
    full_first: bool  # which start
    lines: int  # h: rows of the lowest last layer made at once
    weight_passes: int  # T


class Layer(NamedTuple):
    """An operator as the model sees it."""

    weighted: bool
    windows: dict[int, tuple[int, int]]  # per map that it reads row by row: (kernel with dilation, stride)
    channels: int
    height: int
    row: int  # elements of one row of one channel of one image
    images: int


class Optimus:
    """The model on the groups of one dataflow; nothing depends on the buffer but `fuse`."""

    def __init__(self, dataflow: Dataflow, channels: int = CHANNELS) -> None:
        self.dataflow = dataflow
        self.channels = channels
        self._needs: dict[int, tuple[tuple[int, int, bool], ...]] = {}
        self._floors: dict[int, int] = {0: 0}

    @cached_property
    def layers(self) -> list[Layer | None]:
        """Per operator; None if it cannot be fused."""
        return [_layer(self.dataflow, i) for i in range(len(self.dataflow))]

    def fuse(self, mask: int, buffer_elements: int) -> OptimusFigures | None:
        """How the group runs; None if it is not valid. `least`, `line`: minF and addLine of the model."""
        valid = [
            (line / (buffer_elements - least), full, least, line)
            for least, line, full in self.needs(mask)
            if buffer_elements > least
        ]
        if not valid:
            return None
        _, full, least, line = min(valid)
        ends = [layer for i in self._ends(mask) if (layer := self.layers[i]) is not None]
        height = min(layer.height for layer in ends)
        images = max(layer.images for layer in ends)
        if buffer_elements >= self.weight_elements(mask) + least:
            return OptimusFigures(least, line, full, height, 1)
        fitting = (buffer_elements - least) // line + 1  # lines that the buffer has room for
        lines = min(fitting, height)
        at_once = min(max(fitting // height, 1), images)
        return OptimusFigures(least, line, full, lines, -(-height * images // (at_once * lines)))

    def weight_elements(self, mask: int) -> int:
        """W: weights and biases of the group, each constant once."""
        flow = self.dataflow
        return sum({w.name: w.elements for i in bits(mask) for w in flow.weights[i]}.values())

    def needs(self, mask: int) -> tuple[tuple[int, int, bool], ...]:
        """(minF, addLine, whether first layers are full) of both starts, in elements.

        Empty if the model does not cover the group, whatever the buffer.
        """
        if mask not in self._needs:
            self._needs[mask] = self._both(mask)
        return self._needs[mask]

    def floor(self, mask: int) -> int:
        """Lower bound on minF in elements; NEVER if no such group is valid.

        Of the group and every group that it is grown into by operators of higher index: full or not is
        decided by what comes before, and every term only grows as consumers join. Last layers make at least
        one row in any group.
        """
        least = self._floors.get(mask)
        if least is None:
            members = self._members(mask)
            least = NEVER
            if members is not None:
                rows = self._rows(mask, members, dict.fromkeys(members, 1))
                least = min(
                    self._elements(mask, members, self._full(mask, members, full), rows)
                    for full in (False, True)
                )
            self._floors[mask] = least
        return least

    # -- the formula -----------------------------------------------------------------------------------------

    def _both(self, mask: int) -> tuple[tuple[int, int, bool], ...]:
        members = self._members(mask)
        scale = self._scale(mask, members) if members is not None else None
        if members is None or scale is None:
            return ()
        rows = self._rows(mask, members, scale)
        kinds = ((full, self._full(mask, members, full)) for full in (False, True))
        return tuple(
            (self._elements(mask, members, kind, rows), self._elements(mask, members, kind, scale), full)
            for full, kind in kinds
        )

    def _members(self, mask: int) -> dict[int, Layer] | None:
        """Layers by operator, consumers last.

        None if an operator cannot be fused so, whatever joins the group after it.
        """
        flow = self.dataflow
        members: dict[int, Layer] = {}
        for i in bits(mask):
            layer = self.layers[i]
            inside = [o.map for o in flow.operands[i] if self._inside(o.map, mask)]
            if layer is None or not all(m in layer.windows for m in inside) or not (inside or layer.weighted):
                return None
            members[i] = layer
        return members

    def _inside(self, m: int, mask: int) -> bool:
        producer = self.dataflow.producer[m]
        return producer >= 0 and bool(mask >> producer & 1)

    def _ends(self, mask: int) -> list[int]:
        """The last layers: those without readers in the group."""
        return [i for i in bits(mask) if not self.dataflow.succs[i] & mask]

    def _consumers(self, i: int, mask: int, members: dict[int, Layer]) -> list[tuple[int, int, int]]:
        """(consumer, kernel, stride) for everything in the group that reads the layer."""
        flow = self.dataflow
        return [
            (d, *members[d].windows[m])
            for d in bits(flow.succs[i] & mask)
            for m in flow.results[i]
            if m in members[d].windows
        ]

    def _scale(self, mask: int, members: dict[int, Layer]) -> dict[int, int] | None:
        """Rows of each layer per line of output; None where consumers do not agree."""
        flow = self.dataflow
        strides: dict[int, int] = {}  # cumulative
        for i, layer in members.items():
            inside = {o.map for o in flow.operands[i] if self._inside(o.map, mask)}
            own = {layer.windows[o.map][1] for o in flow.operands[i] if o.map in layer.windows}
            strides[i] = max([*own, *(layer.windows[m][1] * strides[flow.producer[m]] for m in inside)])
        ends = self._ends(mask)
        line = lcm(*(strides[i] for i in ends))
        scale: dict[int, int] = {}
        for i in reversed(members):
            wanted = {stride * scale[d] for d, _, stride in self._consumers(i, mask, members)} or {
                line // strides[i]
            }
            if len(wanted) > 1:
                return None
            (scale[i],) = wanted
        return scale

    def _rows(self, mask: int, members: dict[int, Layer], last: dict[int, int]) -> dict[int, int]:
        """Rows of each layer that one line of output takes; `last`: of the last layers."""
        rows: dict[int, int] = {}
        for i, layer in reversed(members.items()):
            consumers = self._consumers(i, mask, members)
            rows[i] = min(
                layer.height,
                max(((rows[d] - 1) * stride + kernel for d, kernel, stride in consumers), default=last[i]),
            )
        return rows

    def _full(self, mask: int, members: dict[int, Layer], first: bool) -> dict[int, bool]:
        """Whether each layer is full."""
        flow = self.dataflow
        full: dict[int, bool] = {}
        for i, layer in members.items():
            before = [full[flow.producer[o.map]] for o in flow.operands[i] if self._inside(o.map, mask)]
            full[i] = (not any(before) if before else first) if layer.weighted else any(before)
        return full

    def _elements(
        self, mask: int, members: dict[int, Layer], full: dict[int, bool], rows: dict[int, int]
    ) -> int:
        """Elements on chip with these `rows` of each layer."""
        flow = self.dataflow
        total = 0
        inputs: dict[int, int] = {}
        for i, layer in members.items():
            if not layer.weighted:
                continue
            total += (layer.channels if full[i] else min(self.channels, layer.channels)) * rows[i] * layer.row
            for o in flow.operands[i]:
                if not full[i] and not self._inside(o.map, mask) and o.map in layer.windows:
                    kernel, stride = layer.windows[o.map]
                    inputs[o.map] = max(
                        inputs.get(o.map, 0), min((rows[i] - 1) * stride + kernel, flow.maps[o.map].rows)
                    )
        for m, held in inputs.items():
            channels, height, row, _ = _extents(flow.maps[m].shape)
            total += channels * min(held, height) * row
        return total


def paper_bands(
    dataflow: Dataflow, mask: int, buffer_elements: int, channels: int = CHANNELS
) -> OptimusFigures | None:
    """The model on one group."""
    return Optimus(dataflow, channels).fuse(mask, buffer_elements)


def _extents(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """(channels, rows, elements of one row of one channel, images) of a map."""
    axis = CHANNEL_AXIS_OF_RANK.get(len(shape))
    images = shape[0] if axis is not None else 1
    channels = shape[axis] if axis is not None else 1
    height = row_count(shape)
    return channels, height, prod(shape) // max(images * channels * height, 1), images


def _layer(flow: Dataflow, op: int) -> Layer | None:
    call = flow.calls[op]
    row = flow.specs[op]
    if row is OPAQUE or not flow.operands[op] or any(w.gathered for w in flow.weights[op]):
        return None
    read_windows: dict[int, tuple[int, int]] = {}
    for o in flow.operands[op]:
        window = _window(flow, op, o.input, o.reads)
        if window is not None:
            read_windows[o.map] = window
    contracts = row.tiling is Tiling.CONTRACT
    constant_weights = contracts and call.constant[1] and not row.transposed
    group = call.attribute("group", 1)
    depthwise = contracts and row.slides and group > 1 and group == call.shape(0)[1]
    if contracts and (not constant_weights or not read_windows):
        return None
    return Layer(constant_weights and not depthwise, read_windows, *_extents(call.result))


def _window(flow: Dataflow, op: int, index: int, reads: RowReads) -> tuple[int, int] | None:
    """(kernel with dilation, stride) along rows; None if rows are read otherwise.

    The whole height for both if one row is made of all rows.
    """
    call = flow.calls[op]
    height = flow.heights[op]
    if reads is same_row(height):
        return 1, 1
    if flow.specs[op].slides and index == 0 and len(call.shape(0)) in (4, 5):
        window = windows(call)[0]
        return (window.kernel - 1) * window.dilation + 1, window.stride
    if height == 1 and reads is all_rows(reads.rows_in, 1):
        return reads.rows_in, reads.rows_in
    return None


class OptimusCosts:
    """The `CostModel` of groups under the model. Bytes are those of `GroupCosts`, the weights times T.

    A group of several operators is legal if the model calls it valid. A single operator always is: weights
    pass T times where the model has an answer; local layers, and what it has no answer for, move every tensor
    once. No operator is left out: weights need not fit.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        hardware: Hardware,
        channels: int = CHANNELS,
        *,
        buffer_elements: int | None = None,
    ) -> None:
        """`buffer_elements`: S, if it is not what the buffer holds of maps."""
        self.dataflow = dataflow
        self.hardware = hardware
        self.model = Optimus(dataflow, channels)
        store = hardware.parameter_store_bytes and UNLIMITED
        roomy = replace(
            hardware,
            buffer_bytes=UNLIMITED,
            weight_buffer_bytes=0,
            parameter_store_bytes=store,
            parameter_tables=0,
        )
        self._once = GroupCosts(dataflow, roomy, Traffic.ONCE, epilogue=False)
        # S, elements
        if buffer_elements is None:
            self._elements = hardware.buffer_bytes // hardware.element_bytes
        else:
            self._elements = buffer_elements
        self._costs: dict[int, Cost | DoesNotFit] = {}

    @property
    def simpler(self) -> None:
        """None: there is no simpler model."""

    def evaluate(self, mask: int) -> Cost | DoesNotFit:
        """Cost of the group, or why it may not run."""
        if mask not in self._costs:
            self._costs[mask] = self._evaluate(mask)
        return self._costs[mask]

    def _evaluate(self, mask: int) -> Cost | DoesNotFit:
        fused = self.model.fuse(mask, self._elements)
        size = self.hardware.element_bytes
        if fused is not None:
            once = self._once.dram(mask)
            return Cost(
                once.total + (fused.weight_passes - 1) * once.weight,
                fused.least * size,
                "brr",
                fused.least * size,
            )
        if self.legal_anywhere(mask):
            opaque = self.dataflow.specs[mask.bit_length() - 1] is OPAQUE
            return Cost(self._once.dram(mask).total, 0, "opaque" if opaque else "tiled")
        needed = min((least for least, _, _ in self.model.needs(mask)), default=NEVER)
        return DoesNotFit(
            mask,
            needed * size,
            self.hardware.buffer_bytes,
            (BufferUse("minF", "map", 1, needed * size, needed * size),),
        )

    def price(self, mask: int) -> Cost | None:
        """As `evaluate`, without reasons."""
        cost = self.evaluate(mask)
        if isinstance(cost, Cost):
            return cost
        return None

    def at_least(self, _mask: int) -> int:
        """0: a price is worked out at once, without a bound before."""
        return 0

    def grow(self, mask: int, _floor: int | None, dram: int, op: int) -> tuple[int, int]:
        """(lower bound on minF in elements, DRAM bytes with every tensor once) with `op` added.

        Its index is above all others in the group.
        """
        return self.model.floor(mask | 1 << op), self._once.groups.grow(mask, dram, op)

    def may_grow(self, _mask: int, floor: int) -> bool:
        """Whether this group, or one that it is grown into, may be valid."""
        return floor < self._elements

    def legal_anywhere(self, mask: int) -> bool:
        """Whether the group may run on any buffer: a single operator."""
        return mask & (mask - 1) == 0

    def rest_bytes(self, executed: int, before: int, group: int) -> int:
        """See `Bounds.rest_bytes`."""
        return self._once.rest_bytes(executed, before, group)

    @property
    def least_bytes(self) -> int:
        """Lower bound on DRAM bytes: every weight, graph input and graph output once."""
        return self._once.least_bytes

    @property
    def compatible(self) -> tuple[int, ...]:
        """Per operator: operators that may share a valid group with it, itself included."""
        return self._compatible

    @cached_property
    def _compatible(self) -> tuple[int, ...]:
        flow = self.dataflow
        layers = self.model.layers
        fusible = sum(
            1 << i for i, layer in enumerate(layers) if layer is not None and self._may_join(i, layer)
        )
        return tuple(convex(flow, [fusible if fusible >> i & 1 else 1 << i for i in range(len(flow))]))

    def _may_join(self, op: int, layer: Layer) -> bool:
        return layer.weighted or any(o.map in layer.windows for o in self.dataflow.operands[op])
