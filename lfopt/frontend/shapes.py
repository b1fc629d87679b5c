"""Shapes of a network's inputs: what a file says, and what is given for open ones, by input or dimension."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onnx import ModelProto, ValueInfoProto

from lfopt.ir import InvalidModel, OpenShape

Dim = int | str  # extent, or the name of one that is open; "?" has none
LIKELY = {4: 224}  # extents behind the first axis that a message proposes, by rank
OTHERWISE = 128


def dims_of(value: ValueInfoProto) -> tuple[Dim, ...] | None:
    """What the file says of an input that is a tensor; None: not even how many axes it has."""
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in declared.shape.dim)


def is_open(dims: tuple[Dim, ...] | None) -> bool:
    """Whether a network of such an input needs shapes."""
    return dims is None or not all(isinstance(d, int) for d in dims)


def open_inputs(model: ModelProto) -> dict[str, tuple[Dim, ...] | None]:
    """Inputs that are open, by the names that the file gives them."""
    constants = {tensor.name for tensor in model.graph.initializer}
    declared = {
        v.name: dims_of(v)
        for v in model.graph.input
        if v.name not in constants and v.type.HasField("tensor_type")
    }
    return {name: dims for name, dims in declared.items() if is_open(dims)}


def with_dims(
    label: str, wanted: Sequence[ValueInfoProto], given: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Shapes by input, from shapes by input and extents by named dimension. An input's own name wins.

    Raises InvalidModel for a name that is neither, OpenShape for an input some of whose extents are still
    open.
    """
    known = {v.name: dims_of(v) for v in wanted}
    named = dict.fromkeys(d for dims in known.values() for d in dims or () if isinstance(d, str) and d != "?")
    extents: dict[Dim, int] = {}
    for name, shape in given.items():
        if name in known:
            continue
        if name not in named:
            dims = f"; named dimensions: {', '.join(named)}" if named else ""
            raise InvalidModel(
                f"{label}: --input-shape {name!r}: "
                f"the inputs are {', '.join(map(_told, known.items()))}{dims}"
            )
        if len(shape) != 1 or shape[0] < 1:
            raise InvalidModel(
                f"{label}: --input-shape {name}={','.join(map(str, shape))}: found for a dimension; "
                f"accepted: {name}= and one whole number"
            )
        extents[name] = shape[0]
    shapes = {name: shape for name, shape in given.items() if name in known}
    for name, dims in known.items():
        if name in shapes or not is_open(dims):
            continue
        filled = tuple(extents.get(d, d) for d in dims or ())
        if dims is None or is_open(filled):
            raise OpenShape(
                f"{label}: input {name!r}: shape {_shape(dims)} is not static; "
                f"give {_proposed(name, filled if dims else None)}"
            )
        shapes[name] = tuple(int(d) for d in filled)
    return shapes


def filled_by(
    dims: tuple[Dim, ...] | None, shape: tuple[int, ...], given: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    """The shape of an open input for an array: where a named dimension is given, that is what counts."""
    if dims is None or len(dims) != len(shape):
        return shape
    return tuple(
        given[d][0] if isinstance(d, str) and d in given else size
        for d, size in zip(dims, shape, strict=True)
    )


def _shape(dims: tuple[Dim, ...] | None) -> str:
    if dims is None:
        return "[...]"
    return f"[{','.join(map(str, dims))}]"


def _told(item: tuple[str, tuple[Dim, ...] | None]) -> str:
    return f"{item[0]} {_shape(item[1])}"


def _proposed(name: str, dims: tuple[Dim, ...] | None) -> str:
    """Options that would make an input static: by its named dimensions where all that is open has a name."""
    if dims is None:
        return f"--input-shape {name}=1,3,224,224 or the like"
    sizes = [
        d if isinstance(d, int) else 1 if k == 0 else LIKELY.get(len(dims), OTHERWISE)
        for k, d in enumerate(dims)
    ]
    whole = f"--input-shape {name}={','.join(map(str, sizes))}"
    missing = {d: size for d, size in zip(dims, sizes, strict=True) if not isinstance(d, int)}
    if not all(isinstance(d, str) and re.fullmatch(r"\w[\w.-]*", d) for d in missing):
        return f"{whole} or the like"
    return f"--input-shape {' '.join(f'{d}={size}' for d, size in missing.items())} or the like, or {whole}"
