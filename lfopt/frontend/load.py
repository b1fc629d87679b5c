"""From an ONNX model to a Graph: shapes known, constants evaluated, dead operators gone.

Shapes and constants come from one walk in topological order, because shapes often are computed by the graph
itself (Shape, Gather, Concat, Reshape). Shapes are ONNX's own inference, values its reference implementation,
but for ConvTranspose and Resize, where these are not what is specified. Where values are absent, a constant
is known by its shape alone, so a graph without weights and its filled copy give the same operators.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference
from onnx import ModelProto, NodeProto, TypeProto

from lfopt.frontend.absorption import absorb
from lfopt.frontend.bodies import BRANCHES, Bodies
from lfopt.frontend.control import Control
from lfopt.frontend.counted import AT_MOST, why
from lfopt.frontend.definitions import DEFINED, FUNCTIONS, Definitions, as_cast, as_identity
from lfopt.frontend.file_operators import file_operators, read_operators
from lfopt.frontend.fold import Folding
from lfopt.frontend.halves import widen
from lfopt.frontend.lowering import lowering
from lfopt.frontend.matrices import matmul, stacks
from lfopt.frontend.messages import ONNX_REFUSES, quoted, title
from lfopt.frontend.older import newer_form
from lfopt.frontend.operands import ill_typed, mismatch
from lfopt.frontend.origins import origins
from lfopt.frontend.qdq import Stored, is_q_or_dq, moved, quantization_of, standard_form
from lfopt.frontend.read import SMALL, prepare, read_model
from lfopt.frontend.shapes import dims_of, is_open, with_dims
from lfopt.frontend.spelling import labels, spell
from lfopt.frontend.upgrade import fault, newest_opset, own_opset
from lfopt.frontend.values import Values, attribute_value, check_shape, dtype_name, stated_value
from lfopt.ir import (
    Attribute,
    Graph,
    InvalidConfig,
    InvalidModel,
    LfoptError,
    Operator,
    Origin,
    Tensor,
    UnsupportedModel,
)
from lfopt.ir.graph import hashable
from lfopt.ir.names import one_line, plain
from lfopt.ops import Call, resizing, spec
from lfopt.ops.moving import same_width
from lfopt.ops.table import OPAQUE
from lfopt.ops.windows import transposed_extents, windows

# by input: lists or tuples of whole numbers; by named dimension: a whole number
InputShapes = Mapping[str, Sequence[int] | int]
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
SAME_ELEMENTS = frozenset(
    {"DepthToSpace", "Flatten", "Reshape", "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze"}
)
SAME_SHAPE = frozenset(
    {"GroupNormalization", "MeanVarianceNormalization"}
)  # ONNX has no inference for these: the result is shaped as the first input


def _check_order(call: Call) -> None:
    if (order := call.attribute("p", 2)) not in (1, 2):
        raise InvalidModel(f"node {call.operator.name!r} (LpNormalization): p is {order}; accepted: 1, 2")


CHECKS: dict[str, Callable[[Call], object]] = {
    "BitCast": same_width,
    "ConvTranspose": windows,
    "LpNormalization": _check_order,
    "Resize": resizing.check,
}  # raise InvalidModel, naming the node


def load(path: str | Path, input_shapes: InputShapes | None = None) -> Graph:
    """Read an ONNX file.

    `input_shapes` gives or overrides the shapes of inputs by name. Raises InvalidModel or UnsupportedModel
    with one line that names the file and the node or tensor.
    """
    path = Path(path)
    return from_model(read_model(path), input_shapes, folder=path.parent, label=str(path), name=path.stem)


def from_model(
    model: ModelProto,
    input_shapes: InputShapes | None = None,
    *,
    folder: Path | None = None,
    label: str = "model",
    name: str | None = None,
) -> Graph:
    """A Graph from a model in memory; external data is looked for in `folder`.

    Names in it are plain (see `lfopt.ir.names`).

    `label` is what messages call the model, `name` what the Graph is called (default: as the model's graph
    is).
    """
    try:
        return _from_model(
            model, _whole_shapes({} if input_shapes is None else input_shapes), folder, label, name
        )
    except LfoptError as error:
        raise type(error)(one_line(error)) from None  # names in the file may hold line breaks


def _whole_shapes(given: object) -> dict[str, tuple[int, ...]]:
    """Shapes of inputs, as callers give them. Raises InvalidConfig."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidConfig(f"input_shapes: found {type(given).__name__}; accepted: shapes by name")
    given = {name: (shape,) if _is_dim(shape) else shape for name, shape in given.items()}
    for name, shape in given.items():
        dims = shape if isinstance(shape, list | tuple) else ()
        if dims is not shape or not all(_is_dim(d) for d in dims):
            told = ", ".join(str(d) if _is_dim(d) else type(d).__name__ for d in dims[:16])
            text = f"[{told}]" if dims is shape else type(shape).__name__
            raise InvalidConfig(
                f"input_shapes: {name!r}: found {text}; "
                "accepted: a list or tuple of whole numbers, or one for a named dimension"
            )
    return {name: tuple(int(d) for d in shape) for name, shape in given.items()}


def _is_dim(value: object) -> bool:
    """A whole number that a file of ONNX could hold."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < 1 << 63


def _from_model(
    model: ModelProto,
    input_shapes: Mapping[str, tuple[int, ...]],
    folder: Path | None,
    label: str,
    name: str | None,
) -> Graph:
    bodies = Bodies()
    light, values = prepare(model, folder, label, bodies)
    values, spelled = spell(light, values)
    values, note = widen(light, values, label, ends=True)
    # of the model as it was: the upgrade to the newest opset drops it
    said = {spelled.get(tensor, tensor): origin for tensor, origin in origins(model).items()}
    walk = _Walk(label, light, values, labels(model, spelled, label), said, bodies, folder, note)
    walk.take_inputs({spelled.get(given, given): shape for given, shape in input_shapes.items()})
    for position, node in enumerate(light.graph.node):
        walk.step(node, position)
    graph = absorb(walk.finish(plain(name or light.graph.name)), walk.stored)
    files = (read_operators(model, label), file_operators(graph, model))
    return replace(graph, files=tuple(filter(None, files)))


@dataclass
class _Walk:
    label: str
    model: ModelProto
    values: Values
    labels: Mapping[str, str]  # what callers call inputs and outputs, where it is not their plain name
    origins: dict[str, Origin]  # of the operator that makes a tensor
    bodies: Bodies
    folder: Path | None  # of external data
    note: str  # of how the file was read; or ""
    types: dict[str, TypeProto] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, np.ndarray | None] = field(default_factory=dict)
    # constants that shape inference may look into
    small: dict[str, onnx.TensorProto] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # of operators, and how many wanted each
    folding: Folding = field(default_factory=Folding)
    # inputs without elements, and the constants that are read in their places
    nothing: dict[str, str] = field(default_factory=dict[str, str])
    # integers that a DequantizeLinear made float constants of, by the constant's name
    stored: dict[str, Stored] = field(default_factory=dict)
    # constants that were folded, by what they were worked out from; and which of them stands for an equal one
    folded: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.declared = {v.name: v.type for v in (*graph.value_info, *graph.output)}
        self.read = {name for node in graph.node for name in node.input if name} | {
            v.name for v in graph.output
        }
        taken = (
            {v.name for v in (*graph.input, *graph.initializer)}
            | {name for node in graph.node for name in node.output}
            | {*self.values}
        )
        self.definitions = Definitions(self.tensors, self.constants, self.types, taken)
        self.control = Control(self, self.bodies, self.folder, self.label)
        for name, (tensor, value) in self.values.items():
            self.add_constant(name, tensor, value)
        for tensor in graph.initializer:  # those that the up-conversion added
            if tensor.name not in self.constants:
                dtype = dtype_name(tensor.data_type, self.label)
                self.add_constant(
                    tensor.name,
                    Tensor(tensor.name, tuple(tensor.dims), dtype),
                    onnx.numpy_helper.to_array(tensor),
                )

    def take_inputs(self, given: Mapping[str, tuple[int, ...]]) -> None:
        """Graph inputs that are not initializers, with static shapes."""
        wanted = [v for v in self.model.graph.input if v.name not in self.constants]
        given = with_dims(self.label, [v for v in wanted if v.type.HasField("tensor_type")], given)
        for value in wanted:
            what = f"{self.label}: input {value.name!r}"
            if not value.type.HasField("tensor_type"):
                raise UnsupportedModel(f"{what}: only tensors are supported")
            declared = value.type.tensor_type
            dims = dims_of(value)
            shape = given.get(value.name)
            if shape is not None:
                if dims is not None and len(shape) != len(dims):
                    raise InvalidModel(
                        f"{what}: --input-shape gives {len(shape)} dims, "
                        f"the model has {len(dims)}: {list(dims)}"
                    )
                if any(d <= 0 for d in shape):
                    raise InvalidModel(
                        f"{what}: --input-shape {','.join(map(str, shape))}: dims are at least 1"
                    )
                if not is_open(dims) and shape != dims:
                    self.declared = {}  # the shapes that the file states were those of its own input shape
            else:
                shape = tuple(int(d) for d in dims or ())
            dtype = dtype_name(declared.elem_type, what)
            self._add_tensor(value.name, Tensor(value.name, shape, dtype), what)
            self.inputs.append(value.name)
            if not prod(shape) and dtype != "string":
                self.nothing[value.name] = self.free(f"{value.name}.empty")
                self.add_constant(
                    self.nothing[value.name],
                    Tensor(self.nothing[value.name], shape, dtype),
                    np.zeros(shape, dtype),
                )

    def step(self, node: NodeProto, position: int) -> None:
        """Evaluate the node if it depends on constants alone; otherwise make it an operator."""
        node, opset = own_opset(node)
        node = standard_form(node, f"{self.label}: {title(node)}")
        node.input[:] = [self.nothing.get(name, self.same.get(name, name)) for name in node.input]
        origin = next((self.origins[name] for name in node.output if name in self.origins), Origin())
        if node.op_type == "Range" and not node.domain:
            self._take_scalars(node)
        if node.op_type == "CastLike" and not node.domain and node.input[1] in self.types:
            node = as_cast(node, self.types[node.input[1]])
        if node.op_type == "BitCast" and not node.domain:
            node = as_identity(node, self.types.get(node.input[0]))
        what = f"{self.label}: {title(node)}"
        self._refuse_unmade(node, what)
        if self.control.sequences.reads(node):
            self.control.follow(node, what)
            return
        self._refuse_sequences(node, what)
        if not node.domain and opset != newest_opset():
            newer = self._in_newest_form(node, opset, what)
            if newer is None:
                return
            node = newer
        node = _with_one_padding(node)
        operator = Operator(
            self._unique_name(node, position),
            node.op_type,
            tuple(node.input),
            tuple(node.output),
            {},
            node.domain,
            origin,
        )
        operator = replace(operator, attributes=_attributes(node, what))
        if wrong := mismatch(
            operator, [self.tensors[name].shape if name in self.tensors else None for name in operator.inputs]
        ):
            raise InvalidModel(f"{what}: {wrong}")
        if self._written_out(node, what, origin, position) or self._fold_counted(operator, node, what):
            return
        results = self._infer(node, what)
        self._check(operator, results)
        if is_q_or_dq(operator):
            # refuses what is not legal
            quantization_of(operator, {**self.tensors, **results}, self.constants, what)
        self._refuse_training(operator, what)
        if self._fold(operator, results, what):
            return
        operator = self._without_constants(operator, results)
        if not any(operator.outputs):
            return
        for name in operator.outputs:
            if name:
                self._add_tensor(name, results[name], what)
        self.operators.append(operator)

    def _stacks_matrices(self, node: NodeProto) -> bool:
        """Whether a node multiplies stacks of matrices along more axes than need be.

        Not where operands are dequantised: those scales belong to the operator that they stand before.
        """
        if node.op_type != "MatMul" or node.domain or len(node.input) != 2:
            return False
        if not all(name in self.tensors for name in node.input):
            return False
        if stacks(*(self.tensors[name].shape for name in node.input)) is None:
            return False
        return not any(
            operator.kind == "DequantizeLinear" and set(operator.outputs) & set(node.input)
            for operator in self.operators
        )

    def _refuse_unmade(self, node: NodeProto, what: str) -> None:
        for name in node.input:
            if name and name not in self.tensors and name not in self.control.sequences.held:
                raise InvalidModel(
                    f"{what}: input {name!r} is made by nothing before it (a cycle, or nodes out of order)"
                )

    def _refuse_sequences(self, node: NodeProto, what: str) -> None:
        held = [name for name in node.input if name in self.control.sequences.held]
        if held and node.op_type not in ("If", "Loop"):
            raise UnsupportedModel(
                f"{what}: input {held[0]!r} is a sequence; "
                "lfopt reads those that other operators take apart again"
            )

    def _in_newest_form(self, node: NodeProto, opset: int, what: str) -> NodeProto | None:
        """A standard node of an older opset as the newest has it; None: others stand for it."""
        first = opset
        while (step := newer_form(node, opset)) is not None:
            opset, form = step
            try:
                newer = form(self.control.build(node), node)
            except (InvalidModel, UnsupportedModel) as error:
                if self.label in str(error):
                    raise
                raise type(error)(f"{what}: {error} (opset {first})") from None
            if not isinstance(newer, NodeProto):
                self.control.stand_for(node, newer, what)
                return None
            node = newer
        return node

    def _written_out(self, node: NodeProto, what: str, origin: Origin, position: int) -> bool:
        """Whether an operator is one that others stand for, which are in the network then."""
        other = matmul if self._stacks_matrices(node) else lowering(node)
        if other is not None:
            self._inferred(node, what)
            self.control.lower(node, other, what)
        elif node.domain:
            return False
        elif node.op_type in BRANCHES and self.bodies.of(node):
            self.control.write(node, what)
        elif node.op_type in DEFINED:
            self._inferred(node, what)
            for part in self.definitions.nodes(node, what):
                self.origins.update(dict.fromkeys(part.output, origin))
                self.step(part, position)
        elif node.op_type in FUNCTIONS:
            self.control.call(node, self._inferred(node, what), what)
        else:
            return False
        return True

    def _take_scalars(self, node: NodeProto) -> None:
        """Make scalars of operands of one element, as ONNX's inference wants those of Range.

        Lists of one element are common.
        """
        for k, name in enumerate(node.input):
            if (value := self.constants.get(name)) is not None and value.shape == (1,):
                node.input[k] = self.free(f"{name}.scalar")
                self.add_constant(
                    node.input[k],
                    replace(self.tensors[name], name=node.input[k], shape=()),
                    value.reshape(()),
                )

    def free(self, wanted: str) -> str:
        """A name that no tensor has."""
        return self.definitions.free(wanted)

    def reserve(self, shape: tuple[int, ...], dtype: str) -> None:
        """Count a constant that is about to be made. Raises UnsupportedModel for one that is too large."""
        self.folding.reserve(Tensor("", shape, dtype))

    def _check(self, operator: Operator, results: Mapping[str, Tensor]) -> None:
        """Refuse what the arithmetic of an operator does not take."""
        if operator.domain or operator.kind not in CHECKS:
            return
        try:
            CHECKS[operator.kind](
                Call.over(operator, ChainMap({**results}, self.tensors).__getitem__, self.constants)
            )
        except InvalidModel as error:
            raise type(error)(f"{self.label}: {error}") from None

    def _refuse_training(self, operator: Operator, what: str) -> None:
        if operator.kind == "BatchNormalization" and operator.attributes.get("training_mode", 0):
            raise UnsupportedModel(f"{what}: training mode is not supported")
        if operator.kind == "Dropout" and len(operator.inputs) > 2 and operator.inputs[2]:
            training, ratio = (self.constants.get(name) for name in operator.inputs[:0:-1])
            drops = not operator.inputs[1] or ratio is None or ratio.any()
            if training is None or (training.any() and drops):
                raise UnsupportedModel(f"{what}: training mode is not supported")

    def finish(self, name: str) -> Graph:
        """Drop what no output depends on."""
        outputs = tuple(v.name for v in self.model.graph.output)
        for output in outputs:
            if output in self.control.sequences.held:
                raise UnsupportedModel(
                    f"{self.label}: graph output {output!r} is a sequence; only tensors are supported"
                )
            if output not in self.tensors:
                raise InvalidModel(f"{self.label}: graph output {output!r} is made by nothing")
        needed, alive = set(outputs), list[Operator]()  # last operator first
        for operator in reversed(self.operators):
            if needed.intersection(operator.outputs):
                needed.update(name for name in operator.inputs if name)
                alive.append(replace(operator, outputs=_asked(operator, needed)))
        kept = (
            {t for operator in alive for t in (*operator.inputs, *operator.outputs) if t}
            | set(self.inputs)
            | set(outputs)
        )
        constants = {t: value for t, value in self.constants.items() if t in kept}
        return Graph(
            name,
            tuple(reversed(alive)),
            {t: tensor for t, tensor in self.tensors.items() if t in kept},
            constants,
            tuple(self.inputs),
            outputs,
            newest_opset(),
            tuple(one_line(note) for note in self._notes(alive, constants)),
            self.labels,
        )

    def _notes(
        self, operators: Sequence[Operator], constants: Mapping[str, np.ndarray | None]
    ) -> Iterator[str]:
        if self.note:
            yield self.note
        for name in self.nothing:
            yield (
                f"input {name!r} of shape {[*self.tensors[name].shape]} has no elements: "
                "what is made of it alone is a constant"
            )
        if absent := sum(
            value is None and (t not in self.stored or self.stored[t].value is None)
            for t, value in constants.items()
        ):
            yield (
                f"{absent} of {len(constants)} constants have no values (external data that is absent, "
                "or made from it): shapes alone are used"
            )
        strangers = Counter(op.kind for op in reversed(operators) if spec(op.kind, op.domain) is OPAQUE)
        if strangers:
            listed = ", ".join(
                f"{kind} ({count})" if count > 1 else kind for kind, count in strangers.items()
            )
            yield f"operators unknown to lfopt, each kept alone and opaque: {listed}"

    def _unique_name(self, node: NodeProto, position: int) -> str:
        wanted = name = node.name or f"{node.op_type}_{position}"
        while name in self.names:
            self.names[wanted] += 1
            name = f"{wanted}#{self.names[wanted]}"
        self.names[name] = 1
        return name

    def _inferred(self, node: NodeProto, what: str) -> Mapping[str, TypeProto]:
        """What ONNX knows of the outputs, which refuses what is not legal."""
        inferred: dict[str, TypeProto] = {}
        if node.domain == "" and onnx.defs.has(node.op_type):
            schema = onnx.defs.get_schema(node.op_type, newest_opset())
            present = [name for name in node.input if name]
            if reason := fault(node, self.types) or ill_typed(node, self.types):
                raise InvalidModel(f"{what}: {reason}")
            types = {name: self.types[name] for name in present}
            data = {name: self.small[name] for name in present if name in self.small}
            try:
                inferred = onnx.shape_inference.infer_node_outputs(
                    schema, node, types, data, opset_imports=list(self.model.opset_import)
                )
            except ONNX_REFUSES as error:
                raise InvalidModel(f"{what}: {quoted('shape inference', error)}") from None
            if node.op_type in SAME_SHAPE:
                inferred = {node.output[0]: types[node.input[0]]}
        return inferred

    def _infer(self, node: NodeProto, what: str) -> dict[str, Tensor]:
        """Static shape and type of every output."""
        inferred = self._inferred(node, what)
        results: dict[str, Tensor] = {}
        for name in node.output:
            if not name:
                continue
            tensor = (
                self._derived(node, name, what)
                or _static(name, inferred.get(name), what)
                or _static(name, self.declared.get(name), what)
            )
            if tensor is None:
                unknown = "" if inferred else ", and lfopt does not know the operator"
                raise UnsupportedModel(
                    f"{what}: the shape of output {name!r} is not static{unknown}{why(node.op_type)}"
                )
            check_shape(tensor.shape, f"{what}: output {name!r}")
            if (
                node.op_type in SAME_ELEMENTS
                and not node.domain
                and tensor.elements != (source := self.tensors[node.input[0]]).elements
            ):
                raise InvalidModel(
                    f"{what}: from {list(source.shape)} to {list(tensor.shape)}, "
                    "which has another number of elements"
                )
            results[name] = tensor
        return results

    def _derived(self, node: NodeProto, name: str, what: str) -> Tensor | None:
        """The result of a ConvTranspose or Resize, whose shape ONNX's inference has otherwise than specified.

        Inference rounds it, or departs from the specification. None for all others.
        """
        if not node.domain and node.op_type in ("ConvTranspose", "Resize"):
            first = self.tensors[node.input[0]]
        else:
            first = None
        if first is None or not first.elements:
            return None
        attributes = _attributes(node, what)
        shape: tuple[int, ...] | None = None
        if node.op_type == "ConvTranspose" and (spatial := transposed_extents(attributes, first.shape[2:])):
            group: int = attributes.get("group", 1)  # type: ignore[assignment]
            shape = first.shape[0], self.tensors[node.input[1]].shape[1] * group, *spatial
        elif node.op_type == "Resize":
            scales, sizes = (
                self.constants.get(node.input[i]) if len(node.input) > i else None for i in (2, 3)
            )
            if scales is not None and scales.size and np.isfinite(scales).all():
                shape = resizing.extents(attributes, first.shape, scales, None)
            elif sizes is not None and sizes.size:
                shape = resizing.extents(attributes, first.shape, None, sizes.tolist())
        if shape is None:
            return None
        return Tensor(name, shape, first.dtype)

    def _fold(self, operator: Operator, results: dict[str, Tensor], what: str) -> bool:
        """Make the results constants, if they depend on shapes and constants alone."""
        by_shape = operator.kind in ("Shape", "Size") and not operator.domain
        constant = all(name in self.constants for name in operator.inputs if name)
        if operator.kind in RANDOM or not (by_shape or constant) or (operator.domain and not by_shape):
            return False
        key = None if by_shape else self._expression(operator)
        if key in self.folded:
            self._repeat(self.folded[key], results)
            return True
        if key is not None:
            self.folded[key] = tuple(results)
        if not by_shape and self._keep_stored(operator, results, what):
            return True
        inputs = [self._operand(name, by_shape=by_shape) if name else None for name in operator.inputs]
        absent = any(name and value is None for name, value in zip(operator.inputs, inputs, strict=True))
        values: Mapping[str, np.ndarray | None] = (
            dict.fromkeys(results) if absent else self.folding.evaluate(operator, inputs, results, what)
        )
        for name, tensor in results.items():
            self.add_constant(name, tensor, values[name])
        return True

    def _expression(self, operator: Operator) -> Hashable:
        """What a constant is worked out from: equal for equal constants. None where that is long."""
        attributes = sorted(operator.attributes.items())
        if any(isinstance(value, np.ndarray) and value.size > SMALL for _, value in attributes):
            return None
        operands = tuple(self._content(name) if name else None for name in operator.inputs)
        stated = tuple((name, hashable(value)) for name, value in attributes)
        return operator.kind, operands, stated, tuple(map(bool, operator.outputs))

    def _content(self, name: str) -> Hashable:
        """A constant's values where they are few, else its name."""
        value = self.constants[name]
        tensor = self.tensors[name]
        few = value is not None and value.size <= SMALL and value.dtype.kind not in "OSU"
        if few and value is not None:
            return (tensor.dtype, tensor.shape, value.tobytes())
        return name

    def _repeat(self, known: tuple[str, ...], results: Mapping[str, Tensor]) -> None:
        """Let constants that are worked out already stand for the results."""
        for (name, tensor), first in zip(results.items(), known, strict=True):
            self.same[name] = first
            if first in self.stored:
                self.stored[name] = self.stored[first]
            self.add_constant(name, tensor, self.constants[first])

    def _fold_counted(self, operator: Operator, node: NodeProto, what: str) -> bool:
        """Make constants of results that are as large as the values of constants say."""
        if operator.domain or operator.kind not in AT_MOST:
            return False
        if any(name and name not in self.constants for name in operator.inputs):
            return False
        inputs = [self._operand(name, by_shape=False) if name else None for name in operator.inputs]
        if any(name and value is None for name, value in zip(operator.inputs, inputs, strict=True)):
            return False
        inferred = self._inferred(node, what)
        shapes = AT_MOST[operator.kind](operator, inputs)
        at_most = {
            name: Tensor(name, shape, dtype_name(inferred[name].tensor_type.elem_type, what))
            for name, shape in zip(operator.outputs, shapes, strict=False)
            if name
        }
        for name, value in self.folding.evaluate(operator, inputs, at_most, what).items():
            self.add_constant(name, at_most[name], value)
        return True

    def _without_constants(self, operator: Operator, results: Mapping[str, Tensor]) -> Operator:
        """The operator without results that are constants whatever it reads.

        They are those without elements, and the mask of a Dropout that drops nothing.
        """
        known = {
            name: np.zeros(t.shape, t.dtype)
            for name, t in results.items()
            if not t.elements and t.dtype != "string"
        }
        if operator.kind == "ConstantOfShape" and not operator.domain:
            fill = np.asarray(operator.attributes.get("value", np.zeros(1, np.float32)))
            known |= {
                name: np.broadcast_to(fill.reshape(()), tensor.shape)
                for name, tensor in results.items()
                if fill.size == 1
            }
        if operator.kind == "Dropout" and not operator.domain:
            known |= {
                name: np.broadcast_to(np.ones((), bool), results[name].shape)
                for name in operator.outputs[1:]
                if name
            }
        for name, value in known.items():
            self.add_constant(name, results[name], value)
        if known:
            return replace(
                operator, outputs=tuple("" if name in known else name for name in operator.outputs)
            )
        return operator

    def _keep_stored(self, operator: Operator, results: Mapping[str, Tensor], what: str) -> bool:
        """Keep the result as integers if it is a constant behind DequantizeLinear; whether it is.

        It is dequantised where its values are asked for.
        """
        source = operator.inputs[0] if operator.inputs else ""
        stored = None
        if is_q_or_dq(operator) and operator.kind == "DequantizeLinear":
            by = quantization_of(operator, {**self.tensors, **results}, self.constants, what)
            if by is not None:
                stored = Stored(replace(self.tensors[source], quantization=by), self.constants[source])
        elif source in self.stored and len(results) == 1:
            others = [None, *(self.constants[name] if name else None for name in operator.inputs[1:])]
            stored = moved(
                operator, self.stored[source], others, next(iter(results.values())), newest_opset()
            )
        if stored is None:
            return False
        (name, tensor), *_ = results.items()
        self.stored[name] = stored
        self.add_constant(name, tensor, stored.real() if tensor.elements <= SMALL else None)
        return True

    def _operand(self, name: str, *, by_shape: bool) -> np.ndarray | None:
        if by_shape:
            return np.broadcast_to(np.float32(0), self.tensors[name].shape)
        if self.constants[name] is None and name in self.stored:
            self.constants[name] = self.stored[name].real()
        return self.constants[name]

    def add_constant(self, name: str, tensor: Tensor, value: np.ndarray | None) -> None:
        """Add a constant; value: of any shape, and that of the constant; None: `tensor` says it alone."""
        if value is not None:
            tensor = Tensor(
                name, tuple(value.shape), "string" if value.dtype.kind in "OSU" else value.dtype.name
            )
        self.tensors[name], self.constants[name] = tensor, value
        self.types[name] = _type_proto(tensor)
        if value is not None and value.size <= SMALL:
            self.small[name] = onnx.numpy_helper.from_array(
                np.ascontiguousarray(value).reshape(value.shape), name
            )

    def _add_tensor(self, name: str, tensor: Tensor, what: str) -> None:
        check_shape(tensor.shape, f"{what}: tensor {name!r}")
        self.tensors[name] = tensor
        self.types[name] = _type_proto(tensor)


def _with_one_padding(node: NodeProto) -> NodeProto:
    """The node without pads where auto_pad says another padding, which counts for ONNX Runtime too."""
    stated = {attribute.name: attribute for attribute in node.attribute}
    if "pads" not in stated or "auto_pad" not in stated or stated["auto_pad"].s in (b"", b"NOTSET"):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.attribute.remove(stated["pads"])
    return copy


def _attributes(node: NodeProto, what: str) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    for attribute in node.attribute:
        value = stated_value(attribute, what)
        if isinstance(value, onnx.TensorProto):
            value = attribute_value(value, f"{what}: attribute {attribute.name!r}")
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.ndarray | int | float):
            pass
        elif attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            value = tuple(value)
        elif attribute.type == onnx.AttributeProto.STRINGS:
            value = tuple(text.decode("utf-8", "replace") for text in value)
        else:
            raise UnsupportedModel(
                f"{what}: attribute {attribute.name!r} is no number, string, "
                "tensor or list of numbers or strings"
            )
        attributes[attribute.name] = value
    return attributes


def _asked(operator: Operator, needed: Collection[str]) -> tuple[str, ...]:
    """Outputs with "" for those that nothing reads.

    Optional ones are cut off at the end; how many others there are may matter (Split).
    """
    asked = [o if o in needed else "" for o in operator.outputs]
    if not operator.domain and onnx.defs.has(operator.kind):
        schema = onnx.defs.get_schema(operator.kind, newest_opset())
    else:
        schema = None
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    while (
        schema
        and not asked[-1]
        and len(asked) <= len(schema.outputs)
        and schema.outputs[len(asked) - 1].option == optional
    ):
        asked.pop()
    return tuple(asked)


def _static(name: str, declared: TypeProto | None, what: str) -> Tensor | None:
    """A tensor of static shape, or None."""
    if declared is None or not declared.HasField("tensor_type") or not declared.tensor_type.HasField("shape"):
        return None
    dims = declared.tensor_type.shape.dim
    if not all(d.HasField("dim_value") for d in dims):
        return None
    return Tensor(
        name,
        tuple(d.dim_value for d in dims),
        dtype_name(declared.tensor_type.elem_type, f"{what}: output {name!r}"),
    )


def _type_proto(tensor: Tensor) -> TypeProto:
    if tensor.dtype == "string":
        kind = onnx.TensorProto.STRING
    else:
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return onnx.helper.make_tensor_type_proto(kind, tensor.shape)
