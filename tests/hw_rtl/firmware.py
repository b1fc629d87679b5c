"""A small command stream as a driver gets it, and the driver in C as a library for Python."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from codegen.accel import driver, encode
from codegen.accel.manifest import manifest
from hw_rtl.build import FIRMWARE, tool
from lfopt.ir import CommandStream, DramBytes, Graph
from lfopt.ops.reference import reference
from lfopt.planning import dram_at_port
from tests.accelerator import random_plan

SEED = 5033  # of a plan of two groups, outputs of 48, 8 and 1 channels, 2,500 cycles


@dataclass(frozen=True)
class Firmware:
    """A stream, what goes in, and what must come out."""

    stream: CommandStream
    graph: Graph
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    planned: DramBytes  # that cross the memory port, instructions apart

    @property
    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Manifest, program, constants."""
        return manifest(self.stream), self.stream.program, self.stream.constants


def firmware(seed: int = SEED) -> Firmware:
    """That of a random plan."""
    plan, graph, inputs = random_plan(seed)
    return Firmware(encode(plan, graph), graph, inputs, reference(graph, inputs), dram_at_port(plan.groups))


def packed(values: Mapping[str, np.ndarray]) -> bytes:
    """Arrays of one byte an element, one behind the other."""
    return b"".join(np.ascontiguousarray(array).tobytes() for array in values.values())


def library(folder: Path) -> Path:
    """The driver, compiled into this folder, with its declarations for cffi."""
    for name, text in driver.files().items():
        (folder / name).write_text(text)
    for name in ("stdbool.h", "stddef.h", "stdint.h"):  # which cffi knows
        (folder / "known").mkdir(exist_ok=True)
        (folder / "known" / name).write_text("")
    cc = tool("cc")
    subprocess.run(
        [cc, *FIRMWARE, "-fPIC", "-shared", driver.SOURCE, "-o", "lf_device.so"], cwd=folder, check=True
    )
    declared = subprocess.run(
        [cc, "-E", "-P", "-nostdinc", "-I", "known", driver.HEADER],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    (folder / "lf_device.cdef").write_text(declared.stdout)
    return folder / "lf_device.so"


def opened(path: Path) -> tuple[cffi.FFI, Any]:
    """(cffi, the driver) from what `library` has made."""
    ffi = cffi.FFI()
    ffi.cdef(path.with_suffix(".cdef").read_text())
    return ffi, ffi.dlopen(str(path))
