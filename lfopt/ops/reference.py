"""The plain reference of a whole graph: every operator once, on whole tensors, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lfopt.ir import Graph, InvalidConfig, MissingValues, Tensor, whole
from lfopt.ops.call import Call
from lfopt.ops.compute import compute
from lfopt.ops.part import Part

Results = tuple[np.ndarray, ...]
# (operator, whole operands, results) -> what its readers get in their place
Adjust = Callable[[Call, Sequence[Part | None], Results], Results]


def reference(
    graph: Graph, inputs: Mapping[str, np.ndarray], *, everything: bool = False, adjust: Adjust | None = None
) -> dict[str, np.ndarray]:
    """Graph outputs by name for graph inputs by name, arrays shaped as their tensors.

    With `everything`: all tensors that operators make as well, views included.

    Maps are dropped after their last reader. `adjust` may replace the results of each operator before
    anything reads them.

    Raises InvalidConfig if the inputs are not the graph's (one line: which, what was found, what is
    accepted), MissingValues if a constant that an operator reads has no values, UnsupportedModel for an
    operator that nothing defines.
    """
    for name in graph.inputs:
        _check(graph.tensors[name], inputs.get(name))
    if unknown := [name for name in inputs if name not in graph.inputs]:
        raise InvalidConfig(f"input {unknown[0]!r}: the inputs are {', '.join(graph.inputs)}")
    values: dict[str, np.ndarray] = {name: np.asarray(inputs[name]) for name in graph.inputs}
    left = Counter(name for operator in graph.operators for name in operator.inputs)
    left.update(graph.outputs)
    for operator in graph.operators:
        call = Call.of(graph, operator)
        operands = [_operand(graph, values, name) if name else None for name in operator.inputs]
        names = [name for name in operator.outputs if name]
        boxes = tuple(whole(shape) for shape in call.results)
        results = compute(call, operands, boxes, graph.opset)
        values.update(zip(names, adjust(call, operands, results) if adjust else results, strict=True))
        left.subtract(operator.inputs)
        for name in {*operator.inputs, *names} if not everything else ():
            if left[name] == 0:
                values.pop(name, None)
    if everything:
        return {
            name: value for name, value in values.items() if name not in graph.inputs or name in graph.outputs
        }
    return {name: _operand(graph, values, name).values for name in graph.outputs}


def _operand(graph: Graph, values: Mapping[str, np.ndarray], name: str) -> Part:
    data = values.get(name) if name not in graph.constants else graph.constants[name]
    if data is None:
        shape = list(graph.shape(name))
        raise MissingValues(
            f"constant {name!r} of shape {shape}: its values are absent from the model; "
            "give a model with weights"
        )
    return Part(data, whole(graph.shape(name)))


def _check(tensor: Tensor, data: np.ndarray | None) -> None:
    accepted = f"accepted: {tensor.dtype} {list(tensor.shape)}"
    if data is None:
        raise InvalidConfig(f"input {tensor.name!r}: absent; {accepted}")
    dtype = "string" if data.dtype.kind in "OSUT" else data.dtype.name
    if data.shape != tensor.shape or dtype != tensor.dtype:
        raise InvalidConfig(f"input {tensor.name!r}: found {dtype} {list(data.shape)}; {accepted}")
