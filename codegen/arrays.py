"""Arrays that callers bring and take: NumPy's, and those of libraries that share memory by DLPack."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lfopt.ir import InvalidConfig, Tensor
from lfopt.ir.names import one_line

Array = Any  # a NumPy array, or one in host memory that has __dlpack__
# by name; a list or tuple in the model's order; alone, if it is the only one
Inputs = Mapping[str, Array] | Sequence[Array] | Array


def by_name(inputs: object, wanted: Mapping[str, str], label: str) -> dict[str, object]:
    """Arrays given for each input of a model, by name: see `Inputs`.

    `wanted`: what each takes. Raises InvalidConfig for other containers, names, lengths.
    """
    accepted = "accepted: " + (
        ", ".join(f"{name!r} ({what})" if what else repr(name) for name, what in wanted.items())
        or "no inputs"
    )
    if isinstance(inputs, Mapping):
        if unknown := [name for name in inputs if name not in wanted]:
            unknown_name = unknown[0] if isinstance(unknown[0], str) else type(unknown[0]).__name__
            raise InvalidConfig(f"{label}: found input {unknown_name!r}; {accepted}")
        if absent := [name for name in wanted if name not in inputs]:
            raise InvalidConfig(f"input {absent[0]!r}: absent; accepted: {wanted[absent[0]] or 'an array'}")
        return {name: inputs[name] for name in wanted}
    if len(wanted) == 1 and hasattr(inputs, "__dlpack__") | isinstance(inputs, np.generic):
        given = [inputs]
    else:
        given = inputs
    if not isinstance(given, list | tuple):
        raise InvalidConfig(
            f"{label}: found {type(given).__name__}; {accepted}, as arrays by name, or a list or tuple of "
            "arrays in this order"
        )
    if len(given) != len(wanted):
        raise InvalidConfig(f"{label}: found {len(given)} inputs; {accepted}")
    return dict(zip(wanted, given, strict=True))


def array(given: object, name: str, wanted: str = "") -> np.ndarray:
    """An input as a NumPy array, of any shape and dtype, without a copy; scalars of NumPy have no axes.

    Raises InvalidConfig, also for one some of whose elements are masked, and for one that is not in host
    memory.
    """
    accepted = f"accepted: a NumPy array, or one with __dlpack__{wanted}"
    if isinstance(given, np.ndarray | np.generic) and not isinstance(given, np.ma.MaskedArray):
        return np.asarray(given)
    if isinstance(given, np.ma.MaskedArray) or not hasattr(given, "__dlpack__"):
        raise InvalidConfig(f"input {name!r}: found {type(given).__name__}; {accepted}")
    try:
        return np.from_dlpack(given)  # pyright: ignore[reportArgumentType]
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        # what libraries raise for devices, types, gradients
        raise InvalidConfig(
            f"input {name!r}: found {type(given).__name__}, not shared: {one_line(error)}; {accepted}"
        ) from None


def readable(tensor: Tensor, given: object) -> np.ndarray:
    """An input as generated code reads it: of the tensor's shape and dtype, dense, in C order and aligned.

    The array itself, if it is so. Raises InvalidConfig for another shape or dtype.
    """
    wanted = f"{tensor.dtype} {list(tensor.shape)}"
    values = array(given, tensor.name, f", {wanted}")
    if values.dtype.name != tensor.dtype or values.shape != tensor.shape:
        raise InvalidConfig(
            f"input {tensor.name!r}: found {values.dtype.name} {list(values.shape)}; accepted: {wanted}"
        )
    return np.require(values, tensor.dtype, ["C_CONTIGUOUS", "ALIGNED"])


def arguments(
    positional: Sequence[Array], named: Mapping[str, Array], wanted: Sequence[str], label: str
) -> Inputs:
    """Arguments of a call, as `by_name` takes them: those without a name are in the model's order.

    Raises InvalidConfig.
    """
    if not named:
        return list(positional)
    twice = [name for name in wanted[: len(positional)] if name in named]
    if twice or len(positional) > len(wanted):
        if len(positional) <= len(wanted):
            excess = f"input {twice[0]!r} twice"
        else:
            excess = f"{len(positional)} inputs without a name"
        raise InvalidConfig(
            f"{label}: found {excess}; accepted: each of {', '.join(map(repr, wanted)) or 'no inputs'} once"
        )
    return {**dict(zip(wanted, positional, strict=False)), **named}


def returned(outputs: Iterable[np.ndarray], given: Iterable[Array]) -> Any:
    """Results of a call, each of the shape and dtype of its output: one alone, several as a tuple.

    Without copies. Arrays of the library that the first foreign array of `given` is from, where that library
    has `from_dlpack`; else NumPy's.
    """
    foreign = next((value for value in given if not isinstance(value, np.ndarray | np.generic)), None)
    library = None if foreign is None else sys.modules.get(type(foreign).__module__.partition(".")[0])
    share = getattr(library, "from_dlpack", None)
    shared = tuple(outputs if share is None else map(share, outputs))
    if len(shared) == 1:
        return shared[0]
    return shared
