"""Command streams as folders: program, constants, listing, memory map, driver, plan and model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from codegen.accel import ALIGN, check, driver, memory_map, packed, unpacked
from codegen.accel.manifest import manifest
from hw_rtl.build import HardwareParameters, SimulationModel, build
from hw_rtl.run import Dram, RunResult
from hw_rtl.run import run as run_program
from lfopt.app.cache import PROGRAMS, cache_folder, keeper
from lfopt.app.config import validate
from lfopt.app.documents import read_bytes, read_json
from lfopt.app.files import copy_file, sha256, write_bytes, write_text
from lfopt.app.verify import load_planned
from lfopt.ir import CommandStream, DramBytes, Graph, InvalidConfig, InvalidPlan, Plan, round_up
from lfopt.ir.names import one_line
from lfopt.isa.program import BadProgram, count_runs, decode, listing
from lfopt.isa.tables import BEAT_BYTES, WINDOW, Counter

SCHEMA = "lfopt.stream/1"
BINARIES = ("program", "constants")
PLAN = "plan.json"
DIGESTED = ("program.bin", "constants.bin", PLAN)
# files of a stream, beside the model
WRITTEN = ("program.bin", "program.lst", "constants.bin", "manifest.bin", "stream.json", PLAN)
DRIVER = "driver"  # folder of the driver in C
MAX_FILE_BYTES = 1 << 30
ROOM_BYTES = 1 << 20
LEAST_BEATS = 1 << 20  # of DRAM in a model: one serves most networks


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256, in hexadecimal, of the files that stream.json describes."""

    program: str
    constants: str
    plan: str | None = None  # None in files that older versions wrote


def write_stream(stream: CommandStream, plan: Plan, file: Path, folder: Path) -> tuple[Path, ...]:
    """Write the folder of a command stream; gives its files.

    They are program.bin, constants.bin, manifest.bin, program.lst, stream.json, the plan with its model, and
    the driver. `file`: where the plan was read. Raises InvalidPlan for a model whose name is that of another
    of these files; CannotWrite.
    """
    model = plan.model.onnx
    if model in (*WRITTEN, DRIVER):
        raise InvalidPlan(
            f"{file}: model.onnx: found {model!r}; accepted: a name other than "
            f"{', '.join((*WRITTEN, DRIVER))}"
        )
    (folder / DRIVER).mkdir(parents=True, exist_ok=True)
    copy_file(file, folder / PLAN)
    copy_file(file.parent / model, folder / model)
    for name in BINARIES:
        write_bytes(folder / f"{name}.bin", getattr(stream, name))
    write_bytes(folder / "manifest.bin", manifest(stream))
    for name, text in driver.files().items():
        write_text(folder / DRIVER / name, text)
    write_text(folder / "program.lst", "\n".join(listing(decode(stream.program))) + "\n")
    data = {name: value for name, value in asdict(stream).items() if name not in BINARIES}
    digests = asdict(Digests(*(sha256(folder / name) for name in DIGESTED)))
    write_text(
        folder / "stream.json", json.dumps({"schema": SCHEMA, "sha256": digests, **data}, indent=1) + "\n"
    )
    return (
        *(folder / name for name in (*WRITTEN, model)),
        *(folder / DRIVER / name for name in driver.files()),
    )


def read_stream(folder: Path) -> tuple[CommandStream, Plan, Graph]:
    """A command stream, its plan and its network.

    Nothing in stream.json is believed: each field is what the plan, the network and the program say. The
    program may be any that decodes. Raises InvalidPlan, and Unsupported for a plan that is not for the
    accelerator.
    """
    path = folder / "stream.json"
    if not path.exists():
        accepted = "a folder that `lfopt codegen --target accel` has written"
        raise InvalidPlan(one_line(f"{path}: no such file; accepted: {accepted}"))
    data = read_json(path, InvalidPlan)
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise InvalidPlan(one_line(f"{path}: schema: accepted: {SCHEMA!r}"))
    digests = data.pop("sha256", None)
    try:
        known = validate(Digests, digests, f"{path}: sha256")
        stream = validate(CommandStream, {**dict.fromkeys(BINARIES, ""), **data}, str(path))
    except InvalidConfig as error:
        raise InvalidPlan(one_line(error)) from None
    digested = zip(DIGESTED, astuple(known), strict=True)
    program, constants, _ = (_read_digested(folder / name, digest) for name, digest in digested)
    plan, graph = load_planned(folder)
    stream = replace(stream, program=program, constants=constants)
    try:
        _check(stream, plan, graph)
    except InvalidPlan as error:
        raise InvalidPlan(one_line(f"{path}: {error}")) from None
    except BadProgram as error:
        raise InvalidPlan(one_line(f"{folder / 'program.bin'}: {error}")) from None
    return stream, plan, graph


def _read_digested(file: Path, digest: str | None) -> bytes:
    data = read_bytes(file, MAX_FILE_BYTES, InvalidPlan)
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        claim = f"which says sha256.{file.stem}: {digest}"
        raise InvalidPlan(one_line(f"{file}: it is not the file that was written with stream.json, {claim}"))
    return data


def _check(stream: CommandStream, plan: Plan, graph: Graph) -> None:
    """Refuse a stream that is not what its plan, its network and its program make it.

    Constants and maps may lie up to ROOM_BYTES behind what is before them, so that a program can be changed
    without moving them. Raises InvalidPlan, BadProgram, Unsupported.
    """
    check(plan, graph)
    constants_end = stream.constants_address + len(stream.constants)
    for name, end in (("constants_address", len(stream.program)), ("maps_address", constants_end)):
        given = getattr(stream, name)
        least = round_up(end, ALIGN)
        if given % ALIGN or not least <= given <= least + ROOM_BYTES:
            raise InvalidPlan(
                f"{name}: found {given}; accepted: multiples of {ALIGN} from {least} to {least + ROOM_BYTES}"
            )
    laid_out = memory_map(plan, graph, stream.maps_address)
    wanted = replace(
        stream,
        name=plan.model.name,
        lanes=plan.hardware.mac_columns,
        buffer_bytes=plan.hardware.buffer_bytes,
        memory_bytes=laid_out.end,
        maps=tuple(laid_out.maps.values()),
        inputs=laid_out.inputs,
        outputs=laid_out.outputs,
        commands=count_runs(decode(stream.program)),
    )
    if stream != wanted:
        path, given, accepted = next(_differences(asdict(stream), asdict(wanted), ""))
        raise InvalidPlan(
            f"{path}: found {given}; accepted: {accepted}, as {PLAN}, its model and program.bin say"
        )


def _differences(given: Any, wanted: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """(field, found, wanted) where two documents are not the same."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            yield from _differences(given[name], value, f"{path}.{name}" if path else name)
    elif isinstance(wanted, tuple) and wanted and isinstance(wanted[0], dict):
        if len(given) != len(wanted):
            yield path, f"{len(given)} maps", f"{len(wanted)}"
        for k, (one, other) in enumerate(zip(given, wanted, strict=False)):
            yield from _differences(one, other, f"{path}.{k}")
    elif given != wanted:
        yield (
            path,
            repr(list(given) if isinstance(given, tuple) else given),
            repr(list(wanted) if isinstance(wanted, tuple) else wanted),
        )


def accelerator(stream: CommandStream) -> SimulationModel:
    """The simulated accelerator that a command stream is for: built once, and kept.

    Raises hw_rtl.build.BuildFailed.
    """
    beats = 1 << (max(-(-stream.memory_bytes // BEAT_BYTES), LEAST_BEATS) - 1).bit_length()
    buffer_bytes = round_up(stream.buffer_bytes, WINDOW * stream.lanes)
    return build(
        keeper(cache_folder() / PROGRAMS),
        HardwareParameters(lanes=stream.lanes, buffer_bytes=buffer_bytes, dram_beats=beats),
    )


def run(
    model: SimulationModel,
    stream: CommandStream,
    inputs: Mapping[str, np.ndarray],
    *,
    dram: Dram | None = None,
    timed: bool = False,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Run a command stream on the accelerator; it may write nowhere but in its maps.

    `inputs`: by the names and in the shapes of `stream.inputs`. Raises
    hw_rtl.run.SimulationFailed.
    """
    region = (stream.maps_address, stream.memory_bytes)
    known = {"program_address": 0, "write_region": region}
    return run_program(
        model, stream.program, memory(stream, inputs), **known, dram=dram, timed=timed, progress=progress
    )


def counted(counters: Mapping[Counter, int]) -> DramBytes:
    """What the accelerator counted at its memory port, instructions apart."""
    names = [field.name for field in fields(DramBytes)]
    return DramBytes(
        **{
            name: sum(counters[Counter[f"{way}_{name.upper()}"]] for way in ("READ", "WRITTEN"))
            for name in names
        }
    )


def memory(stream: CommandStream, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """(memory_bytes,) uint8: the accelerator's memory before it starts; `inputs`: as `run` takes them."""
    image = np.zeros(stream.memory_bytes, np.uint8)
    _put(image, 0, stream.program)
    _put(image, stream.constants_address, stream.constants)
    for stored in stream.inputs:
        _put(image, stored.address, packed(inputs[stored.name], stored, stream.lanes))
    return image


def outputs(stream: CommandStream, graph: Graph, image: np.ndarray) -> dict[str, np.ndarray]:
    """The network's outputs by name, in its shapes, when the accelerator has stopped.

    `image`: (memory_bytes,) uint8, its memory then.
    """
    by_name = {
        name: unpacked(image, stored, stream.lanes)
        for name, stored in zip(graph.outputs, stream.outputs, strict=True)
    }
    return {name: values.reshape(graph.shape(name)) for name, values in by_name.items()}


def _put(into: np.ndarray, address: int, data: bytes) -> None:
    into[address : address + len(data)] = np.frombuffer(data, np.uint8)
