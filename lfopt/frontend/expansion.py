"""A graph with quantized tensors written with QuantizeLinear and DequantizeLinear, as a file has it.

`lfopt.frontend.absorption` undoes it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lfopt.frontend.qdq import BYTES, DQ, Q, is_q_or_dq
from lfopt.ir import Graph, Operator, Tensor


def in_qdq_form(graph: Graph) -> Graph:
    """The graph with Q and DQ around every quantised tensor, and no quantizations; `absorb` undoes it.

    Its opset is the lowest in which its operators are what they are in the newest, so that runtimes which lag
    behind read it.
    """
    if all(tensor.quantization is None for tensor in graph.tensors.values()):
        return graph
    return _Expansion(graph).result()


class _Expansion:
    """Writes Q and DQ beside the operators.

    Each quantised tensor has up to three names: real numbers before Q, integers, real numbers behind DQ.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.taken = set(graph.tensors)
        self.names = {operator.name for operator in graph.operators}
        self.operators: list[Operator] = []
        self.tensors = {name: replace(tensor, quantization=None) for name, tensor in graph.tensors.items()}
        self.constants = dict(graph.constants)
        self.held: dict[str, str] = {}  # name of the integers of a quantised tensor
        self.real: dict[str, str] = {}  # name of the real numbers that they stand for
        self.parameters: dict[str, tuple[str, str]] = {}  # names of scale and zero point
        self.read = {name for op in graph.operators if self._reads_real(op) for name in op.inputs}
        self.read |= {*graph.outputs} - graph.integer_ends

    def result(self) -> Graph:
        graph = self.graph
        for name in (*graph.constants, *graph.inputs):
            if graph.tensors[name].quantization is not None:
                self._enter(name)
        for operator in graph.operators:
            self._expand(operator)
        return replace(graph, operators=tuple(self.operators), tensors=self.tensors, constants=self.constants)

    def _enter(self, name: str) -> None:
        """A constant is held as it is, as an input of integers is; other inputs are real, and quantised."""
        if name in self.constants or name in self.graph.integer_ends:
            self.held[name] = name
        else:
            self.tensors[name] = Tensor(name, self.graph.shape(name), "float32")
            self._quantize(name, name)
        self._dequantize(name)

    def _reads_real(self, operator: Operator) -> bool:
        """Whether the operator reads the real numbers behind a quantised operand.

        All do but DQ, and what moves integers that nothing explains.
        """
        if is_q_or_dq(operator):
            return operator.kind == Q
        results = (self.graph.tensors[name] for name in operator.outputs if name)
        return not any(tensor.dtype in BYTES and tensor.quantization is None for tensor in results)

    def _expand(self, operator: Operator) -> None:
        names = self.real if self._reads_real(operator) else self.held
        inputs = tuple(names.get(name, name) for name in operator.inputs)
        quantised = [
            name for name in operator.outputs if name and self.graph.tensors[name].quantization is not None
        ]
        spelled: dict[str, str] = {}
        for name in quantised:
            integers = is_q_or_dq(operator)
            if name in self.graph.outputs and not (integers and name in self.graph.integer_ends):
                spelled[name] = self._fresh(f"{name}.quantized" if integers else f"{name}.real")
            if integers:
                self.held[name] = spelled.get(name, name)
                self.tensors[self.held[name]] = replace(
                    self.graph.tensors[name], name=self.held[name], quantization=None
                )
            else:
                result = spelled.get(name, name)
                self.tensors[result] = Tensor(result, self.graph.shape(name), "float32")
        self.operators.append(
            replace(
                operator, inputs=inputs, outputs=tuple(spelled.get(name, name) for name in operator.outputs)
            )
        )
        for name in quantised:
            if name not in self.held:
                self._quantize(name, spelled.get(name, name))
            self._dequantize(name)

    def _quantize(self, name: str, real: str) -> None:
        named = name in self.graph.outputs and name in self.graph.integer_ends
        self.held[name] = held = name if named else self._fresh(f"{name}.quantized")
        self.tensors[held] = replace(self.graph.tensors[name], name=held, quantization=None)
        self._add(Q, f"{name}.quantize", name, real, held)

    def _dequantize(self, name: str) -> None:
        if name not in self.read:
            return
        named = name in self.graph.outputs and name not in self.graph.integer_ends
        self.real[name] = real = name if named else self._fresh(f"{name}.dequantized")
        self.tensors[real] = Tensor(real, self.graph.shape(name), "float32")
        self._add(DQ, f"{name}.dequantize", name, self.held[name], real)

    def _add(self, kind: str, wanted: str, name: str, read: str, result: str) -> None:
        by = self.graph.tensors[name].quantization
        assert by is not None
        if name not in self.parameters:
            self.parameters[name] = self._fresh(f"{name}.scale"), self._fresh(f"{name}.zero_point")
            shape = () if by.axis is None else (len(by.scale),)
            values = (
                np.array(by.scale, np.float32).reshape(shape),
                np.array(by.zero_point, self.graph.tensors[name].dtype).reshape(shape),
            )
            for parameter, value in zip(self.parameters[name], values, strict=True):
                self.tensors[parameter], self.constants[parameter] = (
                    Tensor(parameter, shape, value.dtype.name),
                    value,
                )
        while wanted in self.names:
            wanted += "_"
        self.names.add(wanted)
        self.operators.append(
            Operator(
                wanted,
                kind,
                (read, *self.parameters[name]),
                (result,),
                {} if by.axis is None else {"axis": by.axis},
            )
        )

    def _fresh(self, wanted: str) -> str:
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted
