"""Arrays from and to files: inputs as a network takes them, outputs, and weights where there are none."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lfopt.app.documents import opened
from lfopt.app.files import write_with
from lfopt.app.random_weights import calibrated
from lfopt.app.screen import err
from lfopt.ir import Graph, InvalidConfig, MissingValues, Tensor
from lfopt.ir.names import file_name, one_line
from lfopt.ops.fixed_point import dequantized, quantized


def read_arrays(path: Path) -> dict[str, np.ndarray] | np.ndarray:
    """Arrays of a .npz by name, or the one of a .npy, in the shapes and types of the file.

    Raises InvalidConfig for any other file.
    """
    with opened(path) as file:
        try:
            data: Any = np.load(file, allow_pickle=False)
            if isinstance(data, np.lib.npyio.NpzFile):
                arrays = {name: data[name] for name in data.files}
            else:
                arrays = data
        except (
            OSError,
            ValueError,
            KeyError,
            EOFError,
            NotImplementedError,
            MemoryError,
            OverflowError,
            RecursionError,
            zipfile.BadZipFile,
            zlib.error,
        ) as error:
            raise InvalidConfig(f"{path}: not a NumPy archive of arrays: {one_line(error)[:200]}") from None
    if isinstance(arrays, dict) and (
        odd := [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]
    ):
        raise InvalidConfig(f"{path}: not a NumPy archive of arrays: {one_line(odd[0])!r} is none")
    return arrays


def read_inputs(graph: Graph, file: Path) -> dict[str, np.ndarray]:
    """Graph inputs by name, in the shapes and types of the graph, from a file.

    A .npz has an array for each input by its label, a .npy that of the first. Raises InvalidConfig.
    """
    try:
        data = read_arrays(file)
    except InvalidConfig as error:
        raise InvalidConfig(f"--input {error}") from None
    return taken(
        graph,
        data if isinstance(data, dict) else dict.fromkeys(map(graph.label, graph.inputs[:1]), data),
        f"--input {file}",
    )


def taken(graph: Graph, given: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Graph inputs by name, in the shapes and types of the graph, from arrays by label in the same shapes.

    Inputs that are held as integers may be given as integers too; floats are quantised. Raises InvalidConfig,
    which says `where` the arrays are from, for one that is absent or of another shape or type.
    """
    feed: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        label = graph.label(name)
        other = f", or {tensor.dtype} that stands for it" if graph.held(name) else ", or real numbers"
        accepted = f"accepted: {graph.end_type(name)} {list(tensor.shape)}" + (
            other if tensor.quantization else ""
        )
        if label not in given:
            raise InvalidConfig(
                f"{where}: input {label!r} is absent; found {', '.join(given) or 'nothing'}; {accepted}"
            )
        value = given[label]
        if tensor.quantization and value.dtype.kind == "f" and value.shape == tensor.shape:
            value = quantized(value, tensor.quantization, tensor.dtype)
        text = value.dtype.kind in "SU"
        if value.shape != tensor.shape or (
            tensor.dtype != "string" if text else value.dtype.name != tensor.dtype
        ):
            raise InvalidConfig(
                f"{where}: input {label!r}: found {value.dtype.name} {list(value.shape)}; {accepted}"
            )
        feed[name] = value.astype(str).astype(object) if text else value
    return feed


def with_values(graph: Graph, label: object, rng: np.random.Generator | None) -> Graph:
    """The graph, with weights drawn at random where it has none, which a note on stderr says.

    Raises MissingValues if it has none and `rng` is None.
    """
    if graph.has_values:
        return graph
    if rng is None:
        absent = next(name for name, value in graph.constants.items() if value is None)
        raise MissingValues(
            f"{label}: constant {absent!r} has no values; give a model with weights, or --fill to draw them "
            "at random"
        )
    err.print("note: weights were drawn at random where the model has none", style="yellow")
    return calibrated(graph, rng)


def write_outputs(path: Path, graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
    """Write graph outputs to a .npz by their labels, as `given_back`. Raises CannotWrite.

    `arrays`: by name, in the shapes and types of the graph.
    """
    write_arrays(path, given_back(graph, arrays))


def given_back(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs or outputs by label, as callers have them: of the types that the file says.

    `arrays`: by name, in the shapes and types of the graph.
    """
    real = {name: graph.held(name) for name in arrays}
    return {
        graph.label(name): value if (by := real[name]) is None else dequantized(value, by)
        for name, value in arrays.items()
    }


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays of any shape and type to a .npz by name. Raises CannotWrite.

    Names may be any: `np.savez` takes them as keywords, and has some of its own. None leads out of a folder.
    """

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, value in arrays.items():
                if ".." in re.split(r"[/\\]", name):
                    name = file_name(name)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)

    write_with(path, write)


def real(tensor: Tensor, value: np.ndarray) -> np.ndarray:
    """(same shape as `value`) real numbers of a quantised tensor; the array itself of any other."""
    if tensor.quantization:
        return dequantized(value, tensor.quantization)
    return value
