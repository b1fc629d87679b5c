"""Networks with open input shapes: shapes come with the arrays, and every shape has its own program."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from onnx import ModelProto

from codegen.arrays import Array, Inputs, arguments, array, by_name, returned
from codegen.runtime import Compiled
from lfopt.app.pipeline import Model, file_of, label_of
from lfopt.frontend import InputShapes
from lfopt.frontend.read import read_model
from lfopt.frontend.shapes import filled_by, open_inputs
from lfopt.ir.names import one_line, plural

PROGRAMS = 8  # that are kept in memory
Shapes = dict[str, tuple[int, ...]]


def proto_of(model: Model) -> ModelProto:
    """The model as the file has it, without external data."""
    if isinstance(model, ModelProto):
        return model
    return read_model(Path(file_of(label_of(model))))


def completed(model: Model, given: InputShapes, arrays: Mapping[str, np.ndarray] | np.ndarray) -> InputShapes:
    """Shapes by input: what is `given`, and for inputs that stay open the shapes of their arrays.

    `arrays`: by input, or one alone, which is of the first input.
    """
    proto = proto_of(model)
    opened = open_inputs(proto)
    constants = {tensor.name for tensor in proto.graph.initializer}
    first = next((v.name for v in proto.graph.input if v.name not in constants), "")
    named = arrays if isinstance(arrays, Mapping) else {first: arrays}
    extents = {name: (shape,) if isinstance(shape, int) else shape for name, shape in given.items()}
    return {
        **{
            name: filled_by(dims, named[name].shape, extents)
            for name, dims in opened.items()
            if name in named
        },
        **given,
    }


class CompiledByShape:
    """A network that is compiled when arrays of a new shape come.

    Keeps the programs of the shapes that were used last; the cache on disk keeps all, by content. Several
    threads may run it at once.
    """

    def __init__(
        self,
        model: Model,
        label: str,
        make: Callable[[InputShapes], Compiled],
        given: InputShapes,
        programs: int = PROGRAMS,
    ) -> None:
        """`make`: compiles for shapes by input. `given`: shapes and extents that do not follow the arrays."""
        proto = proto_of(model)
        constants = {tensor.name for tensor in proto.graph.initializer}
        self.inputs = tuple(v.name for v in proto.graph.input if v.name not in constants)
        self.name = label
        self.most = programs
        opened = open_inputs(proto)
        self._wanted = {
            name: f"an array [{', '.join(map(str, dims))}]"
            if (dims := opened.get(name)) is not None
            else "an array"
            for name in self.inputs
        }
        self.model = proto
        self._make = make
        self._given = given
        # by the shapes of inputs, the least recently used first
        self._programs: OrderedDict[tuple[tuple[int, ...], ...], Compiled] = OrderedDict()
        self._lock = Lock()

    @property
    def programs(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Shapes of inputs that there are programs for, the least recently used first."""
        return tuple(self._programs)

    def program(self, inputs: Inputs) -> Compiled:
        """The program for arrays of these shapes; compiled where there is none yet. Raises as `run`."""
        arrays = {
            name: array(value, name) for name, value in by_name(inputs, self._wanted, self.name).items()
        }
        shapes = tuple(value.shape for value in arrays.values())
        with self._lock:
            if shapes not in self._programs:
                self._programs[shapes] = self._make(completed(self.model, self._given, arrays))
            self._programs.move_to_end(shapes)
            while len(self._programs) > self.most:
                self._programs.popitem(last=False)
            return self._programs[shapes]

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Outputs by name, as `Compiled.run` gives them, for arrays of any shape that the network takes.

        Raises as that, and as `lfopt.compile`.
        """
        return self.program(inputs).run(inputs)

    def __call__(self, *arrays: Array, **named: Array) -> Any:
        """As `Compiled.__call__`. Raises as `run`."""
        return returned(
            self.run(arguments(arrays, named, self.inputs, self.name)).values(), (*arrays, *named.values())
        )

    def __repr__(self) -> str:
        ends = ", ".join(f"{name}: {what}" for name, what in self._wanted.items())
        last = f"; the last: {next(reversed(self._programs.values()))!r}" if self._programs else ""
        return one_line(
            f"CompiledByShape({self.name}: {ends}; programs for {plural(len(self._programs), 'shape')}{last})"
        )
