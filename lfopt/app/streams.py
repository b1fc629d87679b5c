"""Command streams as folders: the program, its constants, a listing to read, the memory map, and the plan that they carry out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from codegen.accel import packed, unpacked
from hw_rtl.build import Model, Parameters, build
from hw_rtl.run import Dram, RunResult
from hw_rtl.run import run as run_program
from lfopt.app.cache import cache_folder
from lfopt.app.config import validate
from lfopt.app.files import load_planned, sha256, write_bytes, write_text
from lfopt.ir import CommandStream, DramBytes, Graph, InvalidPlan, Plan
from lfopt.isa.program import decode, listing
from lfopt.isa.tables import BEAT_BYTES, Counter

SCHEMA = "lfopt.stream/1"
BINARIES = ("program", "constants")
LEAST_BEATS = 1 << 20  # of DRAM in a model: one serves most networks


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


def accelerator(stream: CommandStream) -> Model:
    """The simulated accelerator that a command stream is for: built once, and kept. Raises hw_rtl.build.BuildFailed."""
    beats = 1 << (max(-(-stream.memory_bytes // BEAT_BYTES), LEAST_BEATS) - 1).bit_length()
    return build(cache_folder() / "rtl", Parameters(lanes=stream.lanes, buffer_bytes=stream.buffer_bytes, dram_beats=beats))


def run(
    model: Model,
    stream: CommandStream,
    inputs: Mapping[str, np.ndarray],
    *,
    dram: Dram | None = None,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Run a command stream on the accelerator; it may write nowhere but in its maps. Raises hw_rtl.run.SimulationFailed."""
    region = (stream.maps_address, stream.memory_bytes)
    return run_program(model, stream.program, memory(stream, inputs), program_address=0, write_region=region, dram=dram, progress=progress)


def counted(counters: Mapping[Counter, int]) -> DramBytes:
    """What the accelerator counted at its memory port, instructions apart."""
    names = [field.name for field in fields(DramBytes)]
    return DramBytes(**{name: sum(counters[Counter[f"{way}_{name.upper()}"]] for way in ("READ", "WRITTEN")) for name in names})


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
    made = {name: unpacked(found, stored, stream.lanes) for name, stored in zip(graph.outputs, stream.outputs, strict=True)}
    return {name: values.reshape(graph.shape(name)) for name, values in made.items()}


def _put(into: np.ndarray, address: int, data: bytes) -> None:
    into[address : address + len(data)] = np.frombuffer(data, np.uint8)
