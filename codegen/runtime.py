"""Run a compiled model from Python: arrays in, arrays out.

Without copies where they lie as the code wants them.
"""

from __future__ import annotations

import itertools
import mmap
import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import cffi
import numpy as np

from codegen.arrays import Array, Inputs, arguments, by_name, readable, returned
from lfopt.ir import DramBytes, L2Bytes, LfoptError, Quantization, Tensor
from lfopt.ir.names import one_line, plural
from lfopt.ops.fixed_point import dequantized, quantized

ALIGNMENT = 64  # bytes, of a context
INTERFACE = """
typedef struct {
  const char *name; const char *dtype; int rank; const int64_t *shape; size_t bytes;
  float scale; int zero_point;
} NAME_tensor;
typedef struct NAME_context NAME_context;
extern int NAME_input_count, NAME_output_count;
extern const NAME_tensor NAME_inputs[], NAME_outputs[];
size_t NAME_context_bytes(void);
size_t NAME_arena_bytes(void);
size_t NAME_weights_bytes(void);
int NAME_init(NAME_context *memory, const void *weights);
int NAME_run(NAME_context *, const void *const *inputs, void *const *outputs);
void NAME_end(NAME_context *);
uint64_t NAME_dram_bytes(const NAME_context *, int kind);
double NAME_group_seconds(const NAME_context *, int group);
int NAME_quantize(int input, const float *from, void *to);
int NAME_dequantize(int output, const void *from, float *to);
"""  # of model.h; cffi reads `const int` as a constant of the compiler, which it cannot load

FAULTS = {
    2: "the generated code wrote outside its arena",
    3: "a thread could not be started",
    4: "the plan's steps read what was not in the buffer, or wrote where there was no room",
}
KINDS = len(fields(DramBytes))  # of bytes; behind them, those of a second level
LOADS = itertools.count(1)
T = TypeVar("T")


class CannotRun(LfoptError):
    """A library or its weights cannot be loaded, or the code broke its own rules."""


@dataclass(frozen=True, slots=True)
class _Context:
    """Memory of one caller: what the code works in, and what it is called with."""

    memory: np.ndarray  # (context_bytes,) uint8, aligned
    pointer: Any
    inputs: Any  # void *[]
    outputs: Any  # void *[]


class Compiled:
    """A compiled model. May be run by several threads at once: each has a context of its own while it runs.

    Threads that the code starts wait for the next run in the same context, asleep if it does not come soon.
    They end with this object.
    """

    inputs: tuple[Tensor, ...]  # as `run` takes them; those with a quantization are integers in the code
    outputs: tuple[Tensor, ...]
    stored_inputs: tuple[Tensor, ...]  # as the code has them
    stored_outputs: tuple[Tensor, ...]

    def __init__(
        self,
        library: Path,
        name: str,
        weights: Path,
        labels: Mapping[str, str] | None = None,
        *,
        real_ends: Collection[str] = (),
        groups: int | None = None,
        dram_bytes: int | None = None,
    ) -> None:
        """Load a shared library whose symbols begin with `name`.

        The file `weights` is read only if they are not linked in.

        `labels`: what callers call inputs and outputs, where it is not their name in the code (see
        `Graph.labels`). `real_ends`: inputs and outputs, by their name in the code, that callers have in
        float32 where the code has integers. `groups`, `dram_bytes`: of the plan, where they are known.
        """
        self._labels: Mapping[str, str] = labels or {}
        self._real_ends = frozenset(real_ends)
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(INTERFACE.replace("NAME", name))
        try:
            self._library: Any = _loaded(self._ffi, library.resolve())
            symbols = {
                key: getattr(self._library, f"{name}_{key}")
                for key in ("inputs", "outputs", "init", "run", "end")
            }
            sizes = [
                getattr(self._library, f"{name}_{key}_bytes")() for key in ("context", "arena", "weights")
            ]
            counts = [int(getattr(self._library, f"{name}_{key}_count")) for key in ("input", "output")]
        except (OSError, AttributeError, KeyError):
            # cffi raises KeyError for a variable, AttributeError for a function
            raise CannotRun(f"{library}: not a library of model {name!r}") from None
        self.name = name
        self.folder = library.parent
        self.groups = groups
        self.dram_bytes = dram_bytes
        self.context_bytes, self.arena_bytes, self.weights_bytes = (int(size) for size in sizes)
        stored = [
            [symbols[key][k] for k in range(count)]
            for key, count in zip(("inputs", "outputs"), counts, strict=True)
        ]
        self.stored_inputs, self.stored_outputs = (tuple(map(self._tensor, ends)) for ends in stored)
        self.inputs, self.outputs = (tuple(map(self._as_given, ends)) for ends in stored)
        self._wanted = {tensor.name: f"{tensor.dtype} {list(tensor.shape)}" for tensor in self.inputs}
        self._made = [(end.shape, np.dtype(end.dtype)) for end in self.stored_outputs]
        self._init = symbols["init"]
        self._run = symbols["run"]
        self._end = symbols["end"]
        self._bytes = getattr(self._library, f"{name}_dram_bytes", None)
        self._seconds = getattr(self._library, f"{name}_group_seconds", None)
        self._quantize = getattr(self._library, f"{name}_quantize", None)
        self._dequantize = getattr(self._library, f"{name}_dequantize", None)
        self._weights_file = weights
        self._weights = _mapped(weights, self.weights_bytes) if self.weights_bytes else None
        # contexts without a run; the first is made now, so that wrong weights are found now
        self._idle = [self._new_context()]
        weakref.finalize(self, _end_all, self._idle, self._end, self._library)

    def __repr__(self) -> str:
        ends = [
            ", ".join(f"{tensor.name} {tensor.dtype} {list(tensor.shape)}" for tensor in of)
            for of in (self.inputs, self.outputs)
        ]
        groups = f"{plural(self.groups, 'group')}, " if self.groups is not None else ""
        moved = f"{self.dram_bytes:,} B of DRAM, " if self.dram_bytes is not None else ""
        sizes = f"{self.weights_bytes:,} B of weights, {self.context_bytes:,} B for each caller"
        return one_line(f"Compiled({self.name}: {ends[0]} -> {ends[1]}; {groups}{moved}{sizes})")

    def _tensor(self, descriptor: Any) -> Tensor:
        """An input or output as the code has it."""
        name, dtype = (self._ffi.string(text).decode() for text in (descriptor.name, descriptor.dtype))
        shape = tuple(int(descriptor.shape[axis]) for axis in range(descriptor.rank))
        scale = float(descriptor.scale)
        zero = int(descriptor.zero_point)
        meaning = Quantization((scale,), (zero,)) if scale else None
        return Tensor(self._labels.get(name, name), shape, dtype, meaning)

    def _as_given(self, descriptor: Any) -> Tensor:
        """An input or output as callers have it."""
        tensor = self._tensor(descriptor)
        name = self._ffi.string(descriptor.name).decode()
        real = tensor.quantization is not None and name in self._real_ends
        if real:
            return replace(tensor, dtype="float32")
        return tensor

    def _new_context(self) -> _Context:
        memory = np.empty(self.context_bytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        memory = memory[start : start + self.context_bytes]
        pointer = self._ffi.cast("void *", memory.ctypes.data)
        if (
            self._init(pointer, self._ffi.NULL if self._weights is None else self._pointer(self._weights))
            != 0
        ):
            raise CannotRun(f"{self._weights_file}: not the weights of {self.name}")
        return _Context(
            memory, pointer, *(self._ffi.new("void *[]", len(of) or 1) for of in (self.inputs, self.outputs))
        )

    def _pointer(self, array: Any) -> Any:
        return self._ffi.from_buffer(array)

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Outputs by name, each of its tensor's shape and dtype.

        `inputs`: arrays by name, a list or tuple of them in the model's order, or one array if there is one
        input; each of its tensor's shape and dtype. Where the code has integers and callers have float32,
        that is quantised before it runs and made of its results, as QuantizeLinear and DequantizeLinear do.

        Arrays in C order and this machine's byte order are read where they are; others are copied. Raises
        InvalidConfig if an input is absent, unknown, no array, or of another type or shape.
        """
        return self._ran(inputs, lambda context: None)[0]

    def run_stored(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """As `run`, with the integers that the code has: inputs of the shapes and types of `stored_inputs`.

        Raises as `run`.
        """
        return self._ran(inputs, lambda context: None, stored=True)[0]

    def __call__(self, *arrays: Array, **named: Array) -> Any:
        """The output, or a tuple of several, for arrays in the model's order and then by name.

        Raises as `run`.

        Outputs are of the library that the first foreign array is from: PyTorch's tensors for PyTorch's. See
        `returned`.
        """
        return returned(
            self.run(arguments(arrays, named, tuple(self._wanted), self.name)).values(),
            (*arrays, *named.values()),
        )

    def count(self, inputs: Inputs) -> tuple[dict[str, np.ndarray], DramBytes, L2Bytes]:
        """Outputs by name, of their tensors' shapes, and counted bytes: of DRAM, and of a second level.

        Each is what was moved between there and the buffer.

        Raises CannotRun for code that does not count.
        """
        if (counted := self._bytes) is None:
            raise CannotRun(
                f"{self.name}: this code does not count; accepted: what emit_c(..., count=True) prints"
            )
        outputs, moved = self._ran(
            inputs,
            lambda context: [int(counted(context, kind)) for kind in range(KINDS + len(fields(L2Bytes)))],
        )
        return outputs, DramBytes(*moved[:KINDS]), L2Bytes(*moved[KINDS:])

    def profile(self, inputs: Inputs, groups: int) -> list[float]:
        """Seconds that each of the plan's groups took in one run.

        Raises CannotRun for code that does not take times.
        """
        if (seconds := self._seconds) is None:
            raise CannotRun(
                f"{self.name}: this code takes no times; accepted: what emit_c(..., profile=True) prints"
            )
        return self._ran(inputs, lambda context: [float(seconds(context, group)) for group in range(groups)])[
            1
        ]

    def _ran(
        self, inputs: Inputs, after: Callable[[Any], T], *, stored: bool = False
    ) -> tuple[dict[str, np.ndarray], T]:
        """Outputs by name, and what `after` makes of the context that they were made in.

        `stored`: inputs and outputs are of the types that the code has.
        """
        given = self._arrays(inputs, self.stored_inputs if stored else self.inputs)
        if not stored:
            given = [self._held(k, array) for k, array in enumerate(given)]
        outputs = [np.empty(shape, dtype) for shape, dtype in self._made]
        try:
            context = self._idle.pop()
        except IndexError:
            context = self._new_context()
        status = -1
        try:
            for pointers, arrays in ((context.inputs, given), (context.outputs, outputs)):
                for k, array in enumerate(arrays):
                    pointers[k] = self._pointer(array)
            # the interpreter's lock is free meanwhile
            status = self._run(context.pointer, context.inputs, context.outputs)
            said = after(context.pointer)
        finally:
            if status == 0:
                self._idle.append(context)
            else:  # it is not used again
                self._end(context.pointer)
        if status != 0:
            raise CannotRun(
                f"{self.name}: {FAULTS.get(status, f'it ended with {status}')}; its outputs are worthless"
            )
        if not stored:
            outputs = [self._real(k, array) for k, array in enumerate(outputs)]
        return {end.name: array for end, array in zip(self.outputs, outputs, strict=True)}, said

    def _held(self, k: int, array: np.ndarray) -> np.ndarray:
        """What the code reads of an input, of the same shape: integers where callers have float32."""
        end = self.inputs[k]
        stored = self.stored_inputs[k]
        if end.dtype == stored.dtype:
            return array
        integers = np.empty(stored.shape, stored.dtype)
        if self._quantize and self._quantize(k, self._floats(array), self._pointer(integers)):
            return integers
        assert end.quantization is not None
        return quantized(array, end.quantization, stored.dtype)

    def _real(self, k: int, array: np.ndarray) -> np.ndarray:
        """What callers get of an output, of the same shape: float32 where the code makes integers."""
        end = self.outputs[k]
        stored = self.stored_outputs[k]
        if end.dtype == stored.dtype:
            return array
        reals = np.empty(end.shape, end.dtype)
        if self._dequantize and self._dequantize(k, self._pointer(array), self._floats(reals)):
            return reals
        assert end.quantization is not None
        return dequantized(array, end.quantization)

    def _floats(self, array: np.ndarray) -> Any:
        return self._ffi.from_buffer("float *", array)

    def _arrays(self, inputs: Inputs, ends: tuple[Tensor, ...]) -> list[np.ndarray]:
        """Inputs in order, each of its end's type: dense, in C order and aligned.

        The arrays themselves where they are so.
        """
        alone = len(self.inputs) == 1 and isinstance(inputs, np.ndarray)
        if alone:
            values: Sequence[object] = (inputs,)
        elif type(inputs) is dict and inputs.keys() == self._wanted.keys():
            values = [inputs[name] for name in self._wanted]
        else:
            values = [*by_name(inputs, self._wanted, self.name).values()]
        arrays: list[np.ndarray] = []
        for end, value in zip(ends, values, strict=True):
            if (
                type(value) is np.ndarray
                and value.dtype == end.dtype
                and value.shape == end.shape
                and value.flags.c_contiguous
                and value.flags.aligned
            ):
                arrays.append(value)
            else:
                arrays.append(readable(end, value))
        return arrays


def _end_all(idle: list[_Context], end: Callable[[Any], None], library: object) -> None:
    """End the threads of all contexts. `library`: is kept until then, as they run its code."""
    while idle:
        context = idle.pop()  # its memory is there until its threads have ended
        end(context.pointer)
    del library


def _loaded(ffi: Any, library: Path) -> Any:
    """The library, loaded from a copy in memory.

    Whatever happens to the file afterwards, this process keeps its code. Raises OSError.
    """
    if not hasattr(os, "memfd_create"):  # not Linux
        return ffi.dlopen(str(library))
    copy = os.memfd_create(library.name[:200])
    try:
        with os.fdopen(copy, "wb", closefd=False) as file:
            file.write(library.read_bytes())
        # a path that was never used before: dlopen gives the library that it has loaded for a path that it
        # knows, though this is another file
        unique = "".join("/." if digit == "1" else "/" for digit in f"{next(LOADS):b}")
        return ffi.dlopen(f"/proc/self/fd{unique}/{copy}")
    except OSError:  # nothing may be executed in memory here, or /proc is not there; or it is no library
        return ffi.dlopen(str(library))
    finally:
        os.close(copy)


def _mapped(path: Path, size: int) -> mmap.mmap:
    """The weights, mapped: pages are shared by all processes, and read when they are first used."""
    try:
        with path.open("rb") as file:
            weights = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise CannotRun(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(weights) != size:
        raise CannotRun(f"{path}: not this model's weights: found {len(weights):,} B; accepted: {size:,} B")
    return weights
