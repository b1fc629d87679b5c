"""Command streams as folders: the program, its constants, a listing to read, the memory map, and the plan that they carry out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from codegen.accel import packed, unpacked
from lfopt.app.config import validate
from lfopt.app.files import load_planned, sha256, write_bytes, write_text
from lfopt.ir import CommandStream, Graph, InvalidPlan, Plan, StoredMap
from lfopt.isa.program import decode, listing

SCHEMA = "lfopt.stream/1"
BINARIES = ("program", "constants")


def write_stream(stream: CommandStream, plan: Path, folder: Path) -> tuple[Path, ...]:
    """Write program.bin, constants.bin, program.lst, stream.json, and the plan with its model. `plan`: the file. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    model = json.loads(plan.read_text(encoding="utf-8"))["model"]["onnx"]
    for name in (plan.name, model):
        if (folder / name).resolve() != (plan.parent / name).resolve():
            shutil.copyfile(plan.parent / name, folder / name)
    for name in BINARIES:
        write_bytes(folder / f"{name}.bin", getattr(stream, name))
    write_text(folder / "program.lst", "\n".join(listing(decode(stream.program))) + "\n")
    data = {name: value for name, value in asdict(stream).items() if name not in BINARIES}
    digests = {name: sha256(folder / f"{name}.bin") for name in BINARIES}
    write_text(folder / "stream.json", json.dumps({"schema": SCHEMA, "sha256": digests, **data}, indent=1) + "\n")
    return tuple(folder / name for name in ("program.bin", "program.lst", "constants.bin", "stream.json", plan.name, model))


def read_stream(folder: Path) -> tuple[CommandStream, Plan, Graph]:
    """A command stream, its plan and its network. Raises InvalidPlan."""
    path = folder / "stream.json"
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPlan(f"{path}: {error.strerror or error}; accepted: a folder that `lfopt codegen --target accel` has written") from None
    except (ValueError, RecursionError) as error:
        raise InvalidPlan(f"{path}: not JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise InvalidPlan(f"{path}: schema: accepted: {SCHEMA!r}")
    digests = data.pop("sha256", {})
    binaries: dict[str, bytes] = {}
    for name in BINARIES:
        file = folder / f"{name}.bin"
        binaries[name] = file.read_bytes()
        if sha256(file) != digests.get(name):
            raise InvalidPlan(f"{file}: it is not the file that was written with {path.name}")
    stream = validate(CommandStream, {**data, **dict.fromkeys(BINARIES, "")}, str(path))
    plan, graph = load_planned(folder)
    return replace(stream, **binaries), plan, graph


def memory(stream: CommandStream, inputs: Mapping[str, np.ndarray]) -> np.ndarray:  # (memory_bytes,) uint8
    """The accelerator's memory before it starts."""
    found = np.zeros(stream.memory_bytes, np.uint8)
    _put(found, 0, stream.program)
    _put(found, stream.constants_address, stream.constants)
    for stored in stream.inputs:
        _put(found, stored.address, packed(inputs[stored.name], stored, stream.lanes))
    return found


def outputs(stream: CommandStream, graph: Graph, found: np.ndarray) -> dict[str, np.ndarray]:
    """The network's outputs in the accelerator's memory when it has stopped."""
    made = {name: _map(stream, stored, found) for name, stored in zip(graph.outputs, stream.outputs, strict=True)}
    return {name: values.reshape(graph.shape(name)) for name, values in made.items()}


def _map(stream: CommandStream, stored: StoredMap, found: np.ndarray) -> np.ndarray:
    rows = stored.shape[2] if len(stored.shape) == 4 else 1
    return unpacked(found[stored.address : stored.address + rows * stored.row_bytes], stored, stream.lanes)


def _put(into: np.ndarray, address: int, data: bytes) -> None:
    into[address : address + len(data)] = np.frombuffer(data, np.uint8)
