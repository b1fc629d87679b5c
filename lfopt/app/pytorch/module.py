"""`lfopt.compile(module)`: a `torch.nn.Module`, exported and compiled when tensors of new shapes come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np
import torch
from onnx import ModelProto
from torch import Tensor

# torch.export's own view of nested arguments, which has no other name
from torch.utils import _pytree as pytree

from codegen.arrays import Inputs
from codegen.runtime import Compiled
from lfopt.app.pytorch import CompiledModule
from lfopt.app.pytorch.export import captured, check_installed
from lfopt.app.pytorch.program import CapturedWeights, Program
from lfopt.app.pytorch.tensors import as_array, type_of
from lfopt.ir import InvalidConfig
from lfopt.ir.names import one_line, plural


class CompiledByCall(CompiledModule):
    """A module whose forward pass runs as generated code.

    Takes what the module takes, gives what it gives, without gradients. A program is kept for each shape and
    type of tensors, each value of other arguments, and each mode (training or not); it is made again where a
    weight was replaced, or changed in place. NumPy's arrays are taken as tensors: where there are no others,
    results are NumPy's too.
    """

    def __init__(self, module: torch.nn.Module, make: Callable[[ModelProto], Compiled]) -> None:
        """`make`: compiles an ONNX model. Raises InvalidConfig where PyTorch cannot write one."""
        check_installed()
        self.module = module
        self.name = type(module).__name__
        self._make = make
        self._programs: dict[object, tuple[Program, pytree.TreeSpec]] = {}
        self._lock = Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives.

        Raises UnsupportedModel where it cannot be written as ONNX, and whatever `lfopt.compile` raises.
        """
        leaves, form = pytree.tree_flatten((args, kwargs))
        tensors = [_taken(leaf) for leaf in leaves if isinstance(leaf, Tensor | np.ndarray | np.generic)]
        program, results = self._program(leaves, tensors, form)
        values = program(tensors)
        if tensors and not any(isinstance(leaf, Tensor) for leaf in leaves):
            values = [None if value is None else as_array(value) for value in values]
        return pytree.tree_unflatten(values, results)

    def run(self, inputs: Inputs) -> Any:
        """What the module gives, as in a call, for arguments by name, in a list or tuple, or one alone."""
        if isinstance(inputs, Mapping):
            return self(**inputs)
        if isinstance(inputs, list | tuple):
            return self(*inputs)
        return self(inputs)

    def _program(
        self, leaves: list[Any], tensors: list[Tensor], form: pytree.TreeSpec
    ) -> tuple[Program, pytree.TreeSpec]:
        others = tuple(
            None if isinstance(leaf, Tensor | np.ndarray | np.generic) else (type(leaf), leaf)
            for leaf in leaves
        )
        key = (
            repr(form),
            others,
            tuple((tensor.dtype, tensor.shape) for tensor in tensors),
            self.module.training,
        )
        try:
            entry = self._programs.get(key)
        except TypeError:
            odd = next(type(leaf).__name__ for leaf in leaves if not getattr(leaf, "__hash__", None))
            raise InvalidConfig(
                f"{self.name}: found an argument of type {odd}; accepted: tensors, arrays, numbers, texts, "
                "None, and lists of them"
            ) from None
        held = [*self.module.parameters(), *self.module.buffers()]
        if entry is not None and entry[0].weights.unchanged(held):
            return entry
        with self._lock:
            entry = self._programs.get(key)
            if entry is None or not entry[0].weights.unchanged(held):
                entry = self._programs[key] = self._compiled(leaves, form, CapturedWeights(held))
            return entry

    def _compiled(
        self, leaves: list[Any], form: pytree.TreeSpec, weights: CapturedWeights
    ) -> tuple[Program, pytree.TreeSpec]:
        examples = [
            _example(leaf) if isinstance(leaf, Tensor | np.ndarray | np.generic) else leaf for leaf in leaves
        ]
        args, kwargs = pytree.tree_unflatten(examples, form)
        program = captured(self.module, args, kwargs, self.name)
        results = program.call_spec.out_spec
        assert results is not None, "a program that was captured here"
        return Program.of(program, weights, self.name, self._make), results

    def __repr__(self) -> str:
        if self._programs:
            last = f"; the last: {next(reversed(self._programs.values()))[0].compiled!r}"
        else:
            last = ""
        return one_line(f"CompiledByCall({self.name}: {plural(len(self._programs), 'program')}{last})")


def _taken(leaf: Tensor | np.ndarray | np.generic) -> Tensor:
    """A tensor of a call. Raises InvalidConfig for one that is not on the CPU."""
    if not isinstance(leaf, Tensor):
        return torch.from_numpy(np.asarray(leaf))
    if leaf.device.type != "cpu" or leaf.layout != torch.strided:
        raise InvalidConfig(
            f"input: found {type_of(leaf)}, {leaf.layout}, on {leaf.device}; accepted: a dense tensor on the "
            "CPU"
        )
    return leaf


def _example(leaf: Tensor | np.ndarray | np.generic) -> Tensor:
    """A tensor of the same type and shape: programs are made for these alone, not for strides and values."""
    value = _taken(leaf)
    return torch.zeros(value.shape, dtype=value.dtype)


def by_call(model: object, make: Callable[[ModelProto], Compiled]) -> CompiledByCall | None:
    """A Module that is compiled when it is called; None for an ExportedProgram, whose shapes are known."""
    if isinstance(model, torch.nn.Module):
        return CompiledByCall(model, make)
    return None
