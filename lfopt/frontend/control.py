"""If, Loop and Scan as the operators that they run: one branch or both, iterations one after the other.

Everything here depends on constants alone: how many iterations a loop has, and which branch is taken, if that
is known. Where a condition is computed, both branches are, as long as their results are alike, and a Where
takes one; a loop whose condition is computed makes all its iterations, and keeps what the last one with a
true condition made. Source: ONNX operators If, Loop and Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TypeProto

from lfopt.frontend.bodies import Bodies, Body, function_body
from lfopt.frontend.builder import Builder, PartialNetwork
from lfopt.frontend.definitions import definition
from lfopt.frontend.halves import widen
from lfopt.frontend.qoperators import Lowering
from lfopt.frontend.read import prepare
from lfopt.frontend.sequences import Sequences
from lfopt.frontend.spelling import spell
from lfopt.frontend.upgrade import newest_opset
from lfopt.frontend.values import Values, dtype_name, options
from lfopt.ir import InvalidModel, Tensor, UnsupportedModel
from lfopt.ir.names import plain

MAX_DEPTH = 8  # of graphs inside of graphs
MAX_ITERATIONS = 1 << 10  # of one loop; of one over constants alone, as many as nodes
MAX_NODES = 1 << 14  # that all bodies of a network come to


@dataclass(frozen=True)
class _Ready:
    """A body in the newest opset, on operands of some types; its constants are in the network, renamed."""

    body: Body  # which lives as long, as it is known by its identity
    model: ModelProto
    constants: Mapping[str, str]


@dataclass
class Control:
    """Writes the graphs of operators into a network."""

    network: PartialNetwork
    bodies: Bodies
    folder: Path | None  # of external data
    label: str
    depth: int = 0
    nodes: int = 0  # written so far
    ready: dict[tuple[bytes, ...], _Ready] = field(default_factory=dict[tuple[bytes, ...], _Ready])
    sequences: Sequences = field(default_factory=Sequences)

    def write(self, node: NodeProto, what: str) -> None:
        """The operators that an If, a Loop or a Scan runs. Raises InvalidModel, UnsupportedModel."""
        bodies = self.bodies.of(node)
        own = len(node.input) - len(bodies[0].captured)
        given = [*node.input[:own]]
        captured = [*node.input[own:]]
        self._replace(node, what, lambda: WRITERS[node.op_type](self, node, bodies, given, captured))

    def call(self, node: NodeProto, results: Mapping[str, TypeProto], what: str) -> None:
        """The operators by which ONNX defines another.

        `results`: types of what it makes. Raises InvalidModel, UnsupportedModel.
        """
        schema = onnx.defs.get_schema(node.op_type, newest_opset())
        defaults = {
            name: declared.default_value
            for name, declared in schema.attributes.items()
            if declared.default_value.name
        }
        function = definition(node, self.network.types, what)
        body = function_body(function, node, defaults, results)
        operands = [name for name in node.input if name]
        asked = [name for name in node.output if name]

        def inlined() -> list[str]:
            names = dict(zip(asked, self.inline(body, operands, node.name or asked[0]), strict=True))
            return [names.get(name, "") for name in node.output]

        self._replace(node, what, inlined)

    def lower(self, node: NodeProto, lowering: Lowering, what: str) -> None:
        """The operators that stand for one that has no row in the operator table.

        Raises InvalidModel, UnsupportedModel.
        """
        self._replace(node, what, lambda: lowering(self.build(node), node))

    def follow(self, node: NodeProto, what: str) -> None:
        """What an operator on sequences makes. Raises InvalidModel, UnsupportedModel."""
        self._replace(node, what, lambda: self.sequences.write(self.build(node), node))

    def build(self, node: NodeProto) -> Builder:
        """What adds operators under the name of a node."""
        return Builder(self.network, node.name or next(name for name in node.output if name))

    def _replace(self, node: NodeProto, what: str, written: Callable[[], list[str]]) -> None:
        """What is written stands for a node, under the names that the node's outputs have."""
        try:
            sources = written()
        except UnsupportedModel as error:
            raise error if self.label in str(error) else UnsupportedModel(f"{what}: {error}") from None
        except InvalidModel as error:
            raise error if self.label in str(error) else InvalidModel(f"{what}: {error}") from None
        self.stand_for(node, sources, what)

    def stand_for(self, node: NodeProto, sources: Sequence[str], what: str) -> None:
        """Give tensors the names that a node's outputs have. Raises InvalidModel where there are fewer."""
        if len(sources) < len(node.output):
            raise InvalidModel(f"{what}: found {len(node.output)} outputs; its graph makes {len(sources)}")
        for source, name in zip(sources, node.output, strict=False):
            if name and name != source:
                self.build(node).run("Identity", source, output=name)

    def inline(self, body: Body, operands: Sequence[str], prefix: str) -> list[str]:
        """Add the operators of a body on these operands: the names of what it makes.

        `prefix`: of the names of its operators.

        Raises InvalidModel where the body reads what nothing makes, UnsupportedModel for bodies nested too
        deep and for too many nodes.
        """
        if self.depth >= MAX_DEPTH:
            raise UnsupportedModel(f"graphs inside of graphs, {MAX_DEPTH} deep; lfopt reads fewer")
        ready = self._ready(body, operands)
        graph = ready.model.graph
        names = {"": "", **ready.constants}
        names |= {value.name: operand for value, operand in zip(graph.input, operands, strict=False)}
        self.check_nodes(len(graph.node))
        self.nodes += max(len(graph.node), 1)
        self.depth += 1
        for position, part in enumerate(graph.node):
            written = NodeProto.FromString(part.SerializeToString())
            written.name = plain(f"{prefix}.{part.name or part.op_type}")
            names |= {name: self.network.free(f"{prefix}.{name}") for name in part.output if name}
            if unknown := [name for name in part.input if name not in names]:
                raise InvalidModel(f"its graph reads {unknown[0]!r}, which nothing makes")
            written.input[:] = [names[name] for name in part.input]
            written.output[:] = [names[name] for name in part.output]
            self.network.step(written, position)
        self.depth -= 1
        return [names[value.name] for value in graph.output]

    def check_nodes(self, count: int) -> None:
        """Raise UnsupportedModel if so many nodes are too many, beside those that are written already."""
        if self.nodes + max(count, 1) > MAX_NODES:
            raise UnsupportedModel(f"more than {MAX_NODES} nodes once its iterations are written out")

    def _ready(self, body: Body, operands: Sequence[str]) -> _Ready:
        types = [
            self.sequences.type(name) if name in self.sequences.held else self.network.types[name]
            for name in operands
        ]
        key = (str(id(body.graph)).encode(), *(known.SerializeToString() for known in types))
        if (known_body := self.ready.get(key)) is None:
            light, values = prepare(body.model(types), self.folder, self.label, self.bodies)
            values, _ = spell(light, values)
            values, _ = widen(light, values, self.label, ends=False)
            inputs = {value.name for value in light.graph.input[: len(operands)]}
            known_body = self.ready[key] = _Ready(body, light, self._constants(light, values, inputs))
        return known_body

    def _constants(self, light: ModelProto, values: Values, inputs: set[str]) -> dict[str, str]:
        names: dict[str, str] = {}
        added = {t.name: t for t in light.graph.initializer if t.name not in values}  # by the up-conversion
        given = {name: (held.tensor, held.value) for name, held in values.items()}
        given |= {
            name: (
                Tensor(name, tuple(t.dims), dtype_name(t.data_type, self.label)),
                onnx.numpy_helper.to_array(t),
            )
            for name, t in added.items()
        }
        for name, (tensor, value) in given.items():
            if name not in inputs:
                names[name] = self.network.free(name)
                self.network.add_constant(names[name], tensor.named(names[name]), value)
        return names


def _chosen(build: Builder, condition: str, yes: str, no: str) -> str:
    """One of two tensors of the same type and shape. Raises UnsupportedModel for others."""
    if yes == no:
        return yes
    if not {yes, no} <= build.network.tensors.keys():
        raise UnsupportedModel(
            "its condition is computed, and decides about a sequence; lfopt reads tensors there"
        )
    one = build.network.tensors[yes]
    other = build.network.tensors[no]
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        types = " or ".join(f"{t.dtype} {[*t.shape]}" for t in (one, other))
        raise UnsupportedModel(
            f"its condition is computed, and decides about {types}; lfopt reads results of one type and shape"
        )
    return build.run("Where", condition, yes, no)


def _if(
    control: Control, node: NodeProto, bodies: Sequence[Body], given: list[str], captured: list[str]
) -> list[str]:
    """One branch, or both."""
    condition = given[0]
    build = control.build(node)
    stem = build.prefix
    value = build.known(condition)
    if value is not None:
        if value.size != 1:
            raise InvalidModel(f"a condition of shape {[*value.shape]}; accepted: one element")
        taken = bool(value.reshape(()))
        return control.inline(bodies[not taken], captured, f"{stem}.{'then' if taken else 'else'}")
    branches = [
        control.inline(body, captured, f"{stem}.{which}")
        for body, which in zip(bodies, ("then", "else"), strict=True)
    ]
    return [_chosen(build, condition, yes, no) for yes, no in zip(*branches, strict=True)]


def _loop(
    control: Control, node: NodeProto, bodies: Sequence[Body], given: list[str], captured: list[str]
) -> list[str]:
    """The operators of all iterations of a Loop, one after the other."""
    (body,), (trips, condition, *state), build = (
        bodies,
        [*given, "", ""][: max(len(given), 2)],
        control.build(node),
    )
    count = build.known(trips) if trips else None
    if trips and count is None:
        raise UnsupportedModel(
            "its number of iterations is computed; lfopt reads loops whose number is a constant"
        )
    most = MAX_ITERATIONS + 1 if count is None else int(count.reshape(()))
    limit = _most_iterations(build, [*state, *captured])
    if count is not None and _is_steady(body):
        if most > limit:
            raise UnsupportedModel(f"{most} iterations; lfopt reads loops of up to {limit}")
        control.check_nodes(most * max(len(body.graph.node), 1))
    scanned: list[list[str]] = [[] for _ in range(len(body.graph.output) - 1 - len(state))]
    active, iteration = condition, 0  # active: a condition that is computed, or ""
    while iteration < most:
        value = build.known(active) if active else np.ones((), bool)
        if value is not None and not value.reshape(()):
            break
        if iteration >= limit or (value is None and count is None):
            raise UnsupportedModel(
                f"it ends by a condition that is computed, or after more than {limit} iterations; "
                "lfopt reads loops of fewer"
            )
        operands = [
            build.constant(np.array(iteration, np.int64)),
            active or build.constant(np.ones((), bool)),
            *state,
        ]
        going, *results = control.inline(body, [*operands, *captured], f"{build.prefix}.{iteration}")
        after = results[: len(state)]
        outs = results[len(state) :]
        if value is None:
            if outs:
                raise UnsupportedModel(
                    "a condition that is computed decides how long its results are; "
                    "lfopt reads results of known shapes"
                )
            after = [_chosen(build, active, new, old) for new, old in zip(after, state, strict=True)]
            going = build.run("And", active, going)
        state = after
        active = going
        iteration = iteration + 1
        for stack, name in zip(scanned, outs, strict=True):
            stack.append(name)
    return [*state, *(_stacked(build, names, body, len(state) + 1 + k) for k, names in enumerate(scanned))]


def _most_iterations(build: Builder, operands: Sequence[str]) -> int:
    """Of a loop over these operands: where all are constants, no operator is left of it."""
    if all(name in build.network.constants for name in operands):
        return MAX_NODES
    return MAX_ITERATIONS


def _is_steady(body: Body) -> bool:
    """Whether a loop's condition stays as it is before the first iteration, as far as is seen at once."""
    condition = body.graph.output[0].name
    for node in reversed(body.graph.node):
        if condition in node.output:
            if node.op_type not in ("Identity", "Cast"):
                return False
            condition = node.input[0]
    return len(body.graph.input) > 1 and condition == body.graph.input[1].name


def _stacked(build: Builder, names: Sequence[str], body: Body, output: int) -> str:
    """What a loop made in all its iterations, along a new first axis."""
    if names:
        return build.concat([build.unsqueeze(name, 0) for name in names], 0)
    declared = body.graph.output[output].type.tensor_type
    if not declared.HasField("shape") or not all(dim.HasField("dim_value") for dim in declared.shape.dim):
        raise UnsupportedModel("it has no iterations, and does not say of what shape its results are")
    shape = 0, *(dim.dim_value for dim in declared.shape.dim)
    return build.constant(np.zeros(shape, dtype_name(declared.elem_type, "a loop")))


def _scan(
    control: Control, node: NodeProto, bodies: Sequence[Body], given: list[str], captured: list[str]
) -> list[str]:
    """The operators of all iterations of a Scan, over slices of operands."""
    (body,), build, told = bodies, control.build(node), options(node)
    if any(opset.domain == "" and opset.version < 9 for opset in body.opsets):
        raise UnsupportedModel("Scan of opset 8; lfopt reads that of opset 9 and later")
    count = int(told.get("num_scan_inputs", 0))
    if not 0 < count <= len(given):
        raise InvalidModel(f"num_scan_inputs is {count}; it has {len(given)} inputs")
    state = given[: len(given) - count]
    scanned = given[len(given) - count :]
    results = len(body.graph.output) - len(state)
    axes, directions = (told.get(f"scan_input_{what}") or [0] * count for what in ("axes", "directions"))
    to_axes, to_directions = (
        told.get(f"scan_output_{what}") or [0] * results for what in ("axes", "directions")
    )
    shapes = [build.shape(name) for name in scanned]
    axes = [axis % len(shape) for axis, shape in zip(axes, shapes, strict=True)]
    iterations = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
    limit = _most_iterations(build, [*given, *captured])
    if len(iterations) != 1 or not 0 < max(iterations) <= limit:
        raise UnsupportedModel(
            f"it goes over {', '.join(map(str, sorted(iterations)))} slices; "
            f"lfopt reads one number of them, from 1 to {limit}"
        )
    (extent,) = iterations
    control.check_nodes(extent * max(len(body.graph.node), 1))
    outs: list[list[str]] = [[] for _ in range(results)]
    for iteration in range(extent):
        slices = [
            build.entry(name, axis, extent - 1 - iteration if back else iteration)
            for name, axis, back in zip(scanned, axes, directions, strict=True)
        ]
        after = control.inline(body, [*state, *slices, *captured], f"{build.prefix}.{iteration}")
        state = after[: len(state)]
        for stack, name, back in zip(outs, after[len(state) :], to_directions, strict=True):
            stack.insert(0 if back else len(stack), name)
    ranks = [len(build.shape(names[0])) + 1 for names in outs]
    stacked = [(names, axis % rank) for names, axis, rank in zip(outs, to_axes, ranks, strict=True)]
    return [
        *state,
        *(build.concat([build.unsqueeze(name, axis) for name in names], axis) for names, axis in stacked),
    ]


# -> what the node's outputs are
Writer = Callable[[Control, NodeProto, Sequence[Body], list[str], list[str]], list[str]]
WRITERS: dict[str, Writer] = {"If": _if, "Loop": _loop, "Scan": _scan}
