"""Adds operators and constants to a network that is being read, to write one operator as others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import NodeProto, TypeProto

from lfopt.ir import Tensor
from lfopt.ir.names import plain

Operand = str | np.ndarray  # the name of a tensor; or the values of a constant, which becomes one


class PartialNetwork(Protocol):
    """What is known of a network so far, and how it grows."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Tensors by name."""
        ...

    @property
    def constants(self) -> Mapping[str, np.ndarray | None]:
        """Values by name, shaped as their tensors; None: not at hand."""
        ...

    @property
    def types(self) -> Mapping[str, TypeProto]:
        """ONNX types by name."""
        ...

    def free(self, wanted: str) -> str:
        """A name that no tensor has."""
        ...

    def step(self, node: NodeProto, position: int) -> None:
        """Add an operator, or what others stand for it."""
        ...

    def reserve(self, shape: tuple[int, ...], dtype: str) -> None:
        """Count a constant that is about to be made. Raises UnsupportedModel for one that is too large."""
        ...

    def add_constant(self, name: str, tensor: Tensor, value: np.ndarray | None) -> None:
        """Add a constant; value: shaped as its tensor, None if not at hand."""
        ...


@dataclass(frozen=True)
class Builder:
    """Operators of the newest opset, added one at a time; what each makes is known at once."""

    network: PartialNetwork
    prefix: str  # of the names of what is added

    def run(self, kind: str, *operands: Operand, output: str = "", **attributes: Any) -> str:
        """The name of the one result of an operator. `output`: what it is to be."""
        return self.results(kind, *operands, outputs=[output], **attributes)[0]

    def results(self, kind: str, *operands: Operand, outputs: list[str], **attributes: Any) -> list[str]:
        """The names of all results of an operator, each as it is wanted, or "" for any."""
        names = [operand if isinstance(operand, str) else self.constant(operand) for operand in operands]
        results = [name or self.network.free(f"{self.prefix}.{kind}") for name in outputs]
        self.network.step(
            onnx.helper.make_node(kind, names, results, name=plain(results[0]), **attributes), 0
        )
        return results

    def constant(self, value: np.ndarray) -> str:
        """The name of a new constant with the value, its shape and its type."""
        name = self.network.free(f"{self.prefix}.constant")
        self.network.add_constant(name, Tensor(name, value.shape, value.dtype.name), value)
        return name

    def reserve(self, *shape: int, dtype: str = "int64") -> tuple[int, ...]:
        """The shape of a constant that is about to be made. Raises UnsupportedModel if it is too large."""
        self.network.reserve(shape, dtype)
        return shape

    def filled(self, shape: tuple[int, ...], value: float, dtype: str) -> np.ndarray:
        """An array of a shape, all of whose elements are one value, of which it keeps one.

        Raises UnsupportedModel if it is too large.
        """
        self.network.reserve(shape, dtype)
        return np.broadcast_to(np.array(value, dtype), shape)

    def known(self, name: str) -> np.ndarray | None:
        """The values of a constant, shaped as its tensor; None for what is computed."""
        return self.network.constants.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.network.tensors[name].shape

    def dtype(self, name: str) -> str:
        """NumPy's name of a tensor's element type."""
        return self.network.tensors[name].dtype

    # -- what is wanted often --------------------------------------------------------------------------------

    def reshape(self, name: str, *shape: int) -> str:
        """The tensor in another shape of as many elements."""
        if self.shape(name) == shape:
            return name
        return self.run("Reshape", name, np.array(shape, np.int64))

    def squeeze(self, name: str, axis: int) -> str:
        """The tensor without an axis of extent 1."""
        return self.run("Squeeze", name, np.array([axis], np.int64))

    def unsqueeze(self, name: str, axis: int) -> str:
        """The tensor with a new axis of extent 1."""
        return self.run("Unsqueeze", name, np.array([axis], np.int64))

    def slice(self, name: str, axis: int, first: int, stop: int) -> str:
        """The tensor at indices first .. stop - 1 of an axis."""
        if (first, stop) == (0, self.shape(name)[axis]):
            return name
        return self.run("Slice", name, *(np.array([value], np.int64) for value in (first, stop, axis)))

    def entry(self, name: str, axis: int, index: int) -> str:
        """The tensor at one index of an axis, without the axis."""
        return self.squeeze(self.slice(name, axis, index, index + 1), axis)

    def split(self, name: str, axis: int, count: int) -> list[str]:
        """Equal parts of a tensor along an axis."""
        if count == 1:
            return [name]
        return self.results("Split", name, outputs=[""] * count, axis=axis, num_outputs=count)

    def concat(self, names: list[str], axis: int) -> str:
        """Tensors one after the other along an axis."""
        if len(names) == 1:
            return names[0]
        return self.run("Concat", *names, axis=axis)

    def cast(self, name: str, dtype: str) -> str:
        """The tensor in another element type."""
        if self.dtype(name) == dtype:
            return name
        return self.run("Cast", name, to=int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
