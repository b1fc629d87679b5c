"""`lfopt codegen --target accel` and `lfopt rtl run` as a user meets them, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hw_rtl.build import BuildFailed, Model
from lfopt.app import streams
from lfopt.app.commands.quantize import quantize
from lfopt.app.config import Config
from lfopt.app.pipeline import run as search
from lfopt.ir import Hardware
from tests.app.conftest import Done, here, refused
from tests.app.test_execute_command import SHAPE, small_network
from tests.rtl.networks import accelerator_hardware

__all__ = ["here"]
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small network in int8, its plan, and a plan for a chip that is not the accelerator."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("made")
    quantize(str(small_network(folder / "float.onnx")), out_file=folder / "small.onnx", samples=2)
    search(Config(str(folder / "small.onnx"), accelerator_hardware(8192), scheme="auto"), folder / "plan")
    search(Config(str(folder / "small.onnx"), Hardware(8192, element_bytes=1), scheme="auto"), folder / "other")
    search(Config(str(folder / "float.onnx"), Hardware(8192, element_bytes=4), scheme="auto"), folder / "float")
    return folder


@pytest.fixture
def stream(made: Path, here: Run, tmp_path: Path) -> Path:
    done = here("codegen", made / "plan", "--target", "accel", "-o", tmp_path / "stream")
    assert done.returncode == 0, done.stderr
    return tmp_path / "stream"


def test_a_plan_becomes_a_folder_that_runs(stream: Path, here: Run, model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = {path.name for path in stream.iterdir()}
    assert names == {"program.bin", "program.lst", "constants.bin", "stream.json", "plan.json", "simplified.onnx"}
    assert (stream / "program.lst").read_text().splitlines()[-1] == "halt"
    monkeypatch.setattr(streams, "build", lambda *_: model)
    np.savez(tmp_path / "x.npz", image=np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32))
    done = here("rtl", "run", stream, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bytes counted in hardware equal bytes planned; every bit of the outputs is right" in " ".join(done.stdout.split())
    rows = dict(re.findall(r"^(input|output|weight|all) +([\d,]+) +\2$", done.stdout, re.M))
    assert set(rows) == {"input", "output", "weight", "all"}
    assert np.load(tmp_path / "y.npz")["scores"].shape == (1, 5)


def test_what_differs_is_said(stream: Path, here: Run, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "build", lambda *_: model)
    plan = json.loads((stream / "plan.json").read_text())
    plan["groups"][0]["dram"]["input"] += 16
    (stream / "plan.json").write_text(json.dumps(plan))
    done = here("rtl", "run", stream)
    assert done.returncode == 1
    assert "things differ" in done.stdout
    assert "planned DramBytes" in done.stdout


def test_chips_that_are_not_the_accelerator_are_refused(made: Path, here: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = {
        name: here("codegen", made / folder, "--target", "accel", "-o", out, *more)
        for name, folder, more in (("bias", "other", ()), ("element", "float", ()), ("option", "plan", ("--count",)))
    }
    assert {done.returncode for done in found.values()} == {2}
    assert found["bias"].stderr.splitlines()[-1] == "lfopt: hardware.bias_bytes: found 1; the accelerator has 4"
    assert found["element"].stderr.splitlines()[-1].startswith("lfopt: hardware.element_bytes: found 4")
    assert found["option"].stderr.splitlines()[-1].startswith("lfopt: --target accel: found an option for C")
    assert not out.exists()


def test_folders_that_are_no_streams_are_refused(stream: Path, here: Run, tmp_path: Path) -> None:
    assert "stream.json: No such file or directory; accepted: a folder that" in refused(here("rtl", "run", tmp_path / "nothing"))
    (stream / "program.bin").write_bytes(bytes(16))
    assert "program.bin: it is not the file that was written with stream.json" in refused(here("rtl", "run", stream))
    shutil.copy(stream / "plan.json", stream / "stream.json")
    assert "stream.json: schema: accepted: 'lfopt.stream/1'" in refused(here("rtl", "run", stream))


def test_without_verilator_there_is_one_line(stream: Path, here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Model:
        raise BuildFailed("not found: verilator")

    monkeypatch.setattr(streams, "build", missing)
    assert refused(here("rtl", "run", stream)) == "lfopt: not found: verilator"


def test_the_instruction_set_is_printed(here: Run) -> None:
    done = here("rtl", "isa")
    assert done.returncode == 0
    assert "# The accelerator's instruction set" in done.stdout
    assert "| 3:0 | `opcode` | Opcode |" in done.stdout
