"""Generated programs under the address and undefined-behaviour sanitizers, in memory of exact size."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from codegen.build import find_compiler, write_source
from codegen.source import CSource

CHECKS = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run_checked(
    source: CSource,
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    folder: Path,
    *,
    alignment: bool = False,
) -> dict[str, np.ndarray]:
    """Outputs of the program, by name; a report of a sanitizer is a failure. `alignment`: of accesses too.

    Not optimised: what the sanitizers add then takes three times as long to compile, and no access is left
    out.
    """
    write_source(source, folder)
    model = [name for name in source.files if name.endswith(".c")]
    checks = CHECKS if alignment else (*CHECKS, "-fno-sanitize=alignment")
    command = [*find_compiler(), *source.flags, *checks, *model, "main.c", "npy.c", "-o", "checked", "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    options: list[str] = []
    for k, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"in{k}.npy", array)
        options += ["--input", f"{name}=in{k}.npy"]
    for k, name in enumerate(outputs):
        options += ["--output", f"{name}=out{k}.npy"]
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        ["./checked", *options], cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    return {name: np.load(folder / f"out{k}.npy") for k, name in enumerate(outputs)}
