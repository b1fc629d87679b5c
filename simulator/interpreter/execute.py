"""Execute a plan step by step within the buffer that it claims, and count the bytes that cross the DRAM port.

Every number that comes out of here is counted: elements that were really copied, addresses that were really
written. What an operator reads is worked out from the operator, not from the plan. A row that is not on chip,
a slot that is too small, a byte beyond the buffer, an element that nobody wrote: each stops the execution
with `Violation`. So a plan that executes to the end, with the outputs of the plain reference, has enough
buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lfopt.ir import (
    NO_L2,
    Box,
    Carry,
    Compute,
    DramBytes,
    DramTensor,
    Graph,
    Hardware,
    InvalidPlan,
    L2Bytes,
    MissingValues,
    Plan,
    PlannedGroup,
    Step,
    Transfer,
    box_elements,
    box_shape,
    cut,
    parameter_runs,
    parameters_of,
    round_up,
    row_axis,
    slices,
    unfold,
    whole,
)
from lfopt.ir.names import plural
from lfopt.ops import Call, Dataflow, Tiling, keeps_rows, row_of, same_axes
from lfopt.ops.access import AccessPatterns
from lfopt.ops.arithmetic import SUMS, arithmetic
from lfopt.ops.compute import Part, accumulate, compute, finish, folding, merge
from lfopt.ops.footprint import footprints
from lfopt.ops.on_chip import NotOnChip, kept_sums
from lfopt.ops.parameter_data import TABLE_BYTES
from lfopt.ops.recognise import attentions_of
from lfopt.ops.stages import calls_of, parameters
from lfopt.ops.statistics import has_statistics
from simulator.interpreter.buffer import Buffer, Overrun
from simulator.interpreter.second_level import SecondLevelMemory

Progress = Callable[[int, int], None]  # groups done, of how many


class Violation(InvalidPlan):
    """A step that cannot be executed: the message names group, step and reason."""


@dataclass(frozen=True, slots=True)
class GroupExecution:
    """Counts of one group's execution."""

    id: int
    dram: DramBytes
    peak_bytes: int  # end of the highest place of the buffer that held something
    touched_bytes: int  # bytes of it that were ever written
    steps: int
    by_formula: bool  # the group has no steps: its operators ran outside the buffer, and nothing was counted
    weight_peak_bytes: int = 0  # as `peak_bytes`, of the weight buffer, if the chip has one
    l2: L2Bytes = NO_L2  # between the buffer and the second level


@dataclass(frozen=True, slots=True, repr=False)
class Execution:
    """Outputs and counts of an execution."""

    outputs: Mapping[str, np.ndarray]  # by graph output
    groups: tuple[GroupExecution, ...]
    loaded: Mapping[str, int]  # bytes read, by tensor, from DRAM or the second level
    stored: Mapping[str, int]  # bytes written, by tensor

    def __repr__(self) -> str:
        outputs = ", ".join(f"{name} {list(value.shape)}" for name, value in self.outputs.items())
        return (
            f"Execution({plural(len(self.groups), 'group')}, "
            f"{self.dram.total:,} B of DRAM counted; {outputs})"
        )

    @property
    def dram(self) -> DramBytes:
        """Bytes counted, of all groups that have steps."""
        total = DramBytes()
        for group in self.groups:
            total += group.dram
        return total

    @property
    def l2(self) -> L2Bytes:
        """Bytes counted between the buffer and the second level."""
        return sum((group.l2 for group in self.groups), NO_L2)


def execute(
    plan: Plan, graph: Graph, inputs: Mapping[str, np.ndarray], progress: Progress | None = None
) -> Execution:
    """Run the plan of this graph on inputs: name of a graph input -> array in its shape and dtype.

    Raises Violation if the plan cannot be carried out, MissingValues if the model has no weights, InvalidPlan
    if it is not a plan of this graph.
    """
    machine = Machine(graph, plan.hardware, inputs, plan.memory)
    done: list[GroupExecution] = []
    for group in plan.groups:
        done.append(machine.run(group))
        if progress is not None:
            progress(len(done), len(plan.groups))
    return Execution(machine.outputs(), tuple(done), machine.loaded, machine.stored)


@dataclass
class Machine:
    """DRAM, a second level, buffer and counters."""

    graph: Graph
    hardware: Hardware
    inputs: Mapping[str, np.ndarray]
    memory: Sequence[DramTensor] = ()  # of the plan: what lies in the second level
    loaded: dict[str, int] = field(default_factory=dict[str, int])
    stored: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.flow = flow = Dataflow.of(self.graph)
        self.calls = {op.name: call for op, call in zip(flow.operators, flow.calls, strict=True)}
        self.results = {
            op.name: tuple(flow.maps[m].name for m in results)
            for op, results in zip(flow.operators, flow.results, strict=True)
        }
        self.weights = {
            (op.name, w.name)
            for op, weights in zip(flow.operators, flow.weights, strict=True)
            for w in weights
        }
        self.root = flow.behind
        self.attentions = attentions_of(flow)
        self.patterns = AccessPatterns(self.graph)
        self.weights |= {
            (one.call.operator.name, w.name) for one in self.attentions.recognised for w in one.weights
        }
        self.dram: dict[str, np.ndarray] = {}  # maps, whole; the values of those in the second level too
        self.written: dict[str, np.ndarray] = {}  # bool, per map: which elements anybody wrote
        for name in self.graph.inputs:
            tensor = self.graph.tensors[name]
            value = self.inputs.get(name)
            if value is None or value.shape != tensor.shape or _type(value) != tensor.dtype:
                given = "nothing" if value is None else f"{_type(value)} {list(value.shape)}"
                raise InvalidPlan(
                    f"input {name!r}: found {given}; accepted: {tensor.dtype} {list(tensor.shape)}"
                )
            self.dram[name] = np.ascontiguousarray(value)
            self.written[name] = np.ones(tensor.shape, bool)
        self.level_2 = SecondLevelMemory(self.graph, self.hardware, self.memory)
        self.counted: dict[str, int] = {}
        self.buffer = Buffer(self.hardware, ())
        # of the group at hand, per operator: its parameters, bytes
        self.parameters: dict[str, np.ndarray] = {}
        self.store: dict[str, np.ndarray] = {}  # the same, as far as they are in the store beside the buffer
        # steps that load the first of parameters that come together, by identity
        self.renewing: set[int] = set()

    # -- groups ----------------------------------------------------------------------------------------------

    def run(self, group: PlannedGroup) -> GroupExecution:
        """Run one group.

        Raises InvalidPlan for a node that is not in the model, Violation where a step cannot be carried out.
        """
        if unknown := [name for name in group.nodes if name not in self.calls]:
            raise InvalidPlan(f"group {group.id}: node {unknown[0]!r} is not in the model")
        for name in (n for node in group.nodes for n in self.results[node]):
            tensor = self.graph.tensors[name]
            self.dram[name] = np.empty(tensor.shape, object if tensor.dtype == "string" else tensor.dtype)
            self.written[name] = np.zeros(tensor.shape, bool)
        if group.is_access:
            self._read_through(group)
            return GroupExecution(group.id, DramBytes(), 0, 0, 0, by_formula=False)
        if not group.steps:
            if not group.unexecutable:
                raise Violation(f"group {group.id}: there are no steps, and nothing is said of why")
            self._run_whole(group)
            return GroupExecution(group.id, DramBytes(), 0, 0, 0, by_formula=True)
        self.counted, self.store, self.parameters = {}, {}, self._parameters(group)
        self.renewing = {id(run[0]) for run in parameter_runs(group.steps)}
        try:
            self.buffer = Buffer(self.hardware, group.places)
        except Overrun as error:
            raise Violation(f"group {group.id}: {error}") from None
        inside = frozenset(group.nodes)
        count = 0
        for step in unfold(group.steps):
            count += 1
            try:
                self._step(step, inside)
            except (NotOnChip, Overrun, IndexError, KeyError) as error:
                raise Violation(f"group {group.id}, step {count} ({_describe(step)}): {error}") from error
        here = self.buffer
        level_2 = L2Bytes(self.counted.pop("l2 read", 0), self.counted.pop("l2 written", 0))
        return GroupExecution(
            group.id,
            DramBytes(**self.counted),
            here.peak_bytes,
            here.touched_bytes,
            count,
            by_formula=False,
            weight_peak_bytes=here.weight_peak_bytes,
            l2=level_2,
        )

    def _parameters(self, group: PlannedGroup) -> dict[str, np.ndarray]:
        """Parameters of the group's operators in the store beside the buffer: operator -> bytes (size,)."""
        if not self.hardware.parameter_store_bytes:
            return {}
        try:
            calls = calls_of(group.nodes, group.steps, self.calls)
        except KeyError as name:
            raise Violation(
                f"group {group.id}: node {name} follows in flight, and is not in the model"
            ) from None
        channels = self.hardware.parameter_channels
        return {
            name: np.concatenate(blocks)
            for call in calls.values()
            for name, blocks in parameters(call, channels).items()
        }

    def _read_through(self, group: PlannedGroup) -> None:
        """Let the results of operators that only move data be the elements of what they read.

        Nothing is moved: of these elements, loads of the results count what they take.
        """
        for node in group.nodes:
            if self.patterns.results(self.calls[node]) is None:
                kind = self.calls[node].operator.kind
                raise Violation(f"group {group.id}: node {node!r} ({kind}) cannot be read through")
        self._run_whole(group)
        for node in group.nodes:
            operands = (self.root[name] for name in self.calls[node].inputs if name in self.root)
            if any(not self.written[name].all() for name in operands):
                raise Violation(f"group {group.id}: not all that {node!r} is read through to was stored")

    def _run_whole(self, group: PlannedGroup) -> None:
        """Operators outside the buffer model, on whole tensors in DRAM."""
        for node in group.nodes:
            call = self.calls[node]
            operands: list[Part | None] = []
            for index, name in enumerate(call.operator.inputs):
                if name and name not in self.graph.constants and self.root[name] not in self.dram:
                    raise Violation(f"group {group.id}: {name!r} is read, and no group before has made it")
                operands.append(self._from_dram(call, index, name) if name else None)
            boxes = tuple(whole(shape) for shape in call.results)
            for name, value in zip(
                self.results[node], compute(call, operands, boxes, self.graph.opset), strict=True
            ):
                self.dram[name][...] = value
                self.written[name][...] = True

    def _from_dram(self, call: Call, index: int, name: str) -> Part:
        box = whole(call.shape(index))
        return Part(
            self._constant(name) if name in self.graph.constants else self._map(name, self.dram)[slices(box)],
            box,
        )

    def outputs(self) -> dict[str, np.ndarray]:
        """The graph's outputs: name -> array in its shape and dtype.

        Raises Violation if an element of one was never stored.
        """
        arrays: dict[str, np.ndarray] = {}
        for name in self.graph.outputs:
            if name in self.graph.constants:
                arrays[name] = self._constant(name)
                continue
            root = self.root[name]
            if not self.written[root].all():
                raise Violation(
                    f"output {name!r}: {int((~self.written[root]).sum()):,} of its elements were never stored"
                )
            arrays[name] = self._map(name, self.dram)
        return arrays

    def _map(self, name: str, where: Mapping[str, np.ndarray]) -> np.ndarray:
        """A map in DRAM, in the shape of the view of this name."""
        return where[self.root[name]].reshape(self.graph.shape(name))

    def _constant(self, name: str) -> np.ndarray:
        value = self.graph.constants[name]
        if value is None:
            raise MissingValues(
                f"constant {name!r} of shape {list(self.graph.shape(name))}: the model has no values for it; "
                "execution needs weights"
            )
        return value

    # -- steps -----------------------------------------------------------------------------------------------

    def _step(self, step: Step, inside: frozenset[str]) -> None:
        if isinstance(step, Compute):
            if missing := [name for name in (step.operator, *step.then) if name not in inside]:
                raise NotOnChip(f"node {missing[0]!r} is not in the group")
            names = self.results[step.then[-1] if step.then else step.operator]
            if not len(step.boxes) == len(step.places) == len(names):
                raise IndexError(
                    f"{len(step.boxes)} boxes and {len(step.places)} places, for {len(names)} results"
                )
            for name, box in zip(names, step.boxes, strict=True):
                self._check(name, box)
            if step.inputs is not None or not (step.first and step.last):
                what = folding(self._called(step)[0])
                if what is None:
                    raise IndexError("it has no partial sums")
                start, stop = step.inputs or (0, 1)
                from_statistics = what == "statistics" and step.last and not step.first
                if stop <= start and not from_statistics:
                    raise IndexError(f"there are no {what} {start}:{stop}")
            self._compute(step)
            return
        if isinstance(step, Carry):
            self._carry(step)
            return
        if step.kind == "parameter":
            self._load_parameters(step, inside)
            return
        if step.tensor not in self.graph.constants and step.tensor not in self.root:
            raise IndexError(f"{step.tensor!r} is no tensor of the network")
        self._check(step.tensor, step.box)
        if step.gather:
            if step.gather not in inside or not self._gathers(step):
                raise NotOnChip(
                    f"node {step.gather!r} does not gather {step.tensor!r} from a constant in this group"
                )
            self._gather(step)
        elif step.store:
            self._store(step)
        elif step.tensor in self.graph.constants:
            self._load_constant(step)
        else:
            self._load(step)

    def _load_parameters(self, step: Transfer, inside: frozenset[str]) -> None:
        """Copy what an operator needs beside its operands into the store."""
        if step.tensor not in inside or step.store or step.gather or step.place >= 0:
            raise NotOnChip(
                "these are no parameters of a node of the group, "
                f"on their way to their store: {step.tensor!r}"
            )
        known = self.parameters.get(step.tensor, np.empty(0, np.uint8))
        ((start, stop),) = step.box if len(step.box) == 1 else ((-1, -1),)
        if not 0 <= start <= stop <= known.size:
            raise IndexError(f"box {_text(step.box)} is not in {known.size} bytes of parameters")
        copied = known[start:stop].copy()
        if id(step) in self.renewing:  # what comes after other steps takes the place of what was there
            self.store.clear()
        self.store[step.tensor] = copied
        held_bytes = sum(held.size for held in self.store.values())
        if not self.hardware.parameter_store_bytes or (
            held_bytes > self.hardware.parameter_store_bytes and len(inside) > 1
        ):
            raise Overrun(
                f"{held_bytes} bytes of parameters overrun a store of {self.hardware.parameter_store_bytes}"
            )
        tables = sum(
            held.size // TABLE_BYTES
            for name, held in self.store.items()
            if arithmetic(self.calls[name]) is not SUMS
        )
        if (most := self.hardware.parameter_tables) and tables > most and len(inside) > 1:
            raise Overrun(f"{tables} tables overrun a store of {most}")
        self._count(step, copied.size, parameters_of(step.tensor))

    def _check_parameters(self, call: Call) -> None:
        """Raise NotOnChip unless the operator's parameters are all in the store, or need not be."""
        if self.hardware.parameter_store_bytes and call.result_tensors[0].quantization is not None:
            size, held = (
                of[name].size if (name := call.operator.name) in of else 0
                for of in (self.parameters, self.store)
            )
            if size != held:
                raise NotOnChip(
                    f"{call.operator.name!r} has {size} bytes of parameters, {held} are in their store"
                )

    def _gathers(self, step: Transfer) -> bool:
        operator = self.calls[step.gather].operator
        return (
            operator.kind == "Gather"
            and operator.inputs[0] in self.graph.constants
            and self.results[step.gather] == (step.tensor,)
        )

    def _check(self, name: str, box: Box) -> None:
        shape = self.graph.shape(name)
        if len(box) != len(shape) or not all(
            0 <= start <= stop <= extent for (start, stop), extent in zip(box, shape, strict=True)
        ):
            raise IndexError(f"box {_text(box)} is not in {name!r} of shape {list(shape)}")

    def _count(self, step: Transfer, size: int, source: str = "") -> None:
        """Count bytes by class, and by tensor in memory: `source`, or the root map of the step's tensor."""
        kind = ("l2 written" if step.store else "l2 read") if step.kind == "l2" else step.kind
        self.counted[kind] = self.counted.get(kind, 0) + size
        by_tensor = self.stored if step.store else self.loaded
        name = source or self.root.get(step.tensor, step.tensor)
        by_tensor[name] = by_tensor.get(name, 0) + size

    def _moved(self, values: np.ndarray) -> int:
        """Bytes that move with rows of a map, each row padded as in DRAM."""
        axis = row_axis(values.shape)
        rows = 1 if axis is None else values.shape[axis]
        return rows * round_up(
            values.size // max(rows, 1) * self.hardware.element_bytes, self.hardware.dram_row_align
        )

    def _load(self, step: Transfer) -> None:
        if self.root[step.tensor] not in self.dram:
            raise NotOnChip(f"{step.tensor!r} is loaded, and no group before has made it")
        index = slices(step.box)
        self._reach(step)
        values = self._map(step.tensor, self.dram)[index]
        if not self._map(step.tensor, self.written)[index].all():
            raise NotOnChip(f"{step.tensor!r} is loaded, and part of it was never stored")
        self._count(step, self._moved(values))
        self.buffer.write_rows(
            step.tensor, self.graph.shape(step.tensor), step.box, values, step.place, step.slot
        )

    def _reach(self, step: Transfer) -> None:
        """Check that the map of a transfer lies in the memory that the step names, and touch it there."""
        name = self.root[step.tensor]
        in_level_2 = name in self.level_2.entries
        if (step.kind == "l2") != in_level_2:
            raise NotOnChip(
                f"{step.tensor!r} is moved as {step.kind}, and lies in "
                f"{'the second level' if in_level_2 else 'DRAM'}"
            )
        if in_level_2:
            self.level_2.touch(name, step.tensor, step.box, store=step.store)

    def _load_constant(self, step: Transfer) -> None:
        values = self._constant(step.tensor)[slices(step.box)]
        size = self.hardware.constant_bytes(values.size, bias=step.tensor in self.flow.biases)
        self._count(step, size)
        self.buffer.write_block(step.tensor, step.box, values, size, step.place, step.slot, step.offset)

    def _gather(self, step: Transfer) -> None:
        call = self.calls[step.gather]
        indices = self._operand(call, 1, call.operator.inputs[1], (step.box,), None)
        data = Part(self._constant(call.operator.inputs[0]), whole(call.shape(0)))
        self._check_parameters(call)
        (values,) = compute(call, [data, indices], (step.box,), self.graph.opset)
        # along the last axis; else each element is picked alone
        side_by_side = call.attribute("axis", 0) % data.values.ndim < data.values.ndim - 1
        pieces = values.size // max(values.shape[-1], 1) if side_by_side else values.size
        self._count(
            step,
            self.hardware.constant_bytes(values.size, bias=False, pieces=pieces),
            call.operator.inputs[0],
        )
        self.buffer.write_rows(
            step.tensor, self.graph.shape(step.tensor), step.box, values, step.place, step.slot
        )

    def _store(self, step: Transfer) -> None:
        if box_elements(step.box) == 0:
            return
        values = self.buffer.read_rows(step.tensor, step.box)
        self._reach(step)
        self._count(step, self._moved(values))
        self._map(step.tensor, self.dram)[slices(step.box)] = values
        self._map(step.tensor, self.written)[slices(step.box)] = True

    def _carry(self, step: Carry) -> None:
        if step.tensor not in self.root:
            raise IndexError(f"{step.tensor!r} is no map of the network")
        self._check(step.tensor, step.box)
        if box_elements(step.box):
            values = self._from_buffer(step.tensor, step.box).copy()
            shape = self.graph.shape(step.tensor)
            self.buffer.write_rows(step.tensor, shape, step.box, values, step.place, step.slot, together=True)

    def _compute(self, step: Compute) -> None:
        call, then = self._called(step)
        self._check_parameters(call)
        operator = call.operator
        names = self.results[step.operator] if call.attention is None else call.operator.outputs
        boxes = step.boxes
        # a bias is read when the sums are finished
        parts = 1 if has_statistics(call) else 2
        wanted = range(len(operator.inputs)) if step.last or call.attention is not None else range(parts)
        operands = [
            self._operand(call, i, name, boxes, step.inputs) if name and i in wanted else None
            for i, name in enumerate(operator.inputs)
        ]
        if step.first and step.last:
            values = compute(call, operands, boxes, self.graph.opset)
        elif has_statistics(call) and step.last:
            held, _, box = kept_sums(call, boxes[0])
            values = (finish(call, self.buffer.read_rows(held, box), operands, boxes[0]),)
        else:
            sums = accumulate(call, operands, boxes[0], self.graph.opset, step.inputs)
            held, shape, box = kept_sums(call, boxes[0])
            if not step.first:
                sums = merge(call, self.buffer.read_rows(held, box), sums)
            if not step.last:
                self.buffer.write_rows(
                    held, shape, box, sums, step.accumulator, _first_row(box), sums=True, together=True
                )
                return
            values = (finish(call, sums, operands, boxes[0]),)
        if then:
            names, values = self._in_flight(then, boxes[0], names, values)
        for name, box, value, place in zip(names, boxes, values, step.places, strict=True):
            if box_elements(box) and place >= 0:
                self.buffer.write_rows(
                    name,
                    self.graph.shape(name),
                    box,
                    np.asarray(value),
                    place,
                    _first_row(box),
                    together=True,
                )

    def _called(self, step: Compute) -> tuple[Call, tuple[str, ...]]:
        """(operator that a step computes, names of those that follow in flight).

        An attention is one operator where the step names all its parts.
        """
        attention, then = self.attentions.named(step)
        return self.calls[step.operator] if attention is None else attention.call, then

    def _in_flight(
        self, following: tuple[str, ...], box: Box, names: tuple[str, ...], values: tuple[np.ndarray, ...]
    ) -> tuple[tuple[str, ...], tuple[np.ndarray, ...]]:
        """(names, values) of the result of the last of the operators that follow in flight."""
        flying = dict(zip(names, values, strict=True))
        for then in following:
            call = self.calls[then]
            if (
                len(self.results[then]) != 1
                or not row_of(call).elementwise
                or call.result != self.graph.shape(names[0])
            ):
                raise IndexError(
                    f"{then!r} cannot follow in flight: it is not elementwise, or makes another shape"
                )
            self._check_parameters(call)
            operands: list[Part | None] = []
            for i, name in enumerate(call.operator.inputs):
                if name in flying:
                    if i in row_of(call).parameters or call.shape(i) != call.result:
                        raise IndexError(f"{then!r} reads more of {name!r} than is in flight")
                    operands.append(Part(np.asarray(flying[name]), box))
                else:
                    operands.append(self._operand(call, i, name, (box,), None) if name else None)
            (flying[self.results[then][0]],) = compute(call, operands, (box,), self.graph.opset)
        names = self.results[following[-1]]
        return names, (flying[names[0]],)

    def _operand(
        self, call: Call, index: int, name: str, boxes: tuple[Box, ...], inputs: tuple[int, int] | None
    ) -> Part:
        """Part of one operand that an operator reads, from the buffer.

        Shapes, axes and scalars come with the command.
        """
        if name in self.graph.constants:
            if (call.operator.name, name) not in self.weights:
                return Part(self._constant(name), whole(call.shape(index)))
            box = footprints(call, index, boxes, inputs=inputs, by_rows=False)
            # of a Concat: the part that comes from elsewhere
            if box_elements(box) == 0 and row_of(call).tiling is not Tiling.CONTRACT:
                return Part(np.empty(box_shape(box), self.graph.tensors[name].dtype), box)
            return Part(self.buffer.read_block(name, box), box)
        box = footprints(call, index, boxes, inputs=inputs, by_rows=False)
        return Part(self._from_buffer(name, box), box)

    def _from_buffer(self, name: str, box: Box) -> np.ndarray:
        """A box of a map or view on chip, under its name or that of the map behind the view."""
        root = self.root[name]
        shape = self.graph.shape(name)
        root_shape = self.graph.shape(root)
        if box_elements(box) == 0:
            tensor = self.graph.tensors[name]
            return np.empty(box_shape(box), object if tensor.dtype == "string" else tensor.dtype)
        if root == name or self.buffer.knows(name):
            return self.buffer.read_rows(name, box)
        if (axes := same_axes(root_shape, shape)) is not None:
            part = whole(root_shape)
            for own, viewed in axes:
                part = cut(part, own, box[viewed])
            return self.buffer.read_rows(root, part).reshape(box_shape(box))
        if keeps_rows(root_shape, shape):
            axis = row_axis(shape)
            own = row_axis(root_shape)
            rows = box[axis] if axis is not None else (0, 1)
            if own is None or root_shape[own] == 1:
                part = whole(root_shape)
            else:
                part = cut(whole(root_shape), own, rows)
            seen = whole(shape) if axis is None or shape[axis] == 1 else cut(whole(shape), axis, rows)
            return self.buffer.read_rows(root, part).reshape(box_shape(seen))[slices(box, seen)]
        return self.buffer.read_rows(root, whole(root_shape)).reshape(shape)[slices(box)]


def _type(value: np.ndarray) -> str:
    if value.dtype.kind in "OSUT":
        return "string"
    return value.dtype.name


def _first_row(box: Box) -> int:
    axis = row_axis(box_shape(box))
    if axis is None:
        return 0
    return box[axis][0]


def _describe(step: Step) -> str:
    if isinstance(step, Compute):
        return f"compute {step.operator!r} {_text(step.boxes[0])}"
    if isinstance(step, Carry):
        return f"carry {step.tensor!r} {_text(step.box)}"
    return f"{'store' if step.store else 'load'} {step.tensor!r} {_text(step.box)}"


def _text(box: Box) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"
