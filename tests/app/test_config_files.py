"""Configuration and hardware files as hostile input: one line that says where, or the value as written."""

from __future__ import annotations

import json
import os
import re
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from lfopt.app.arrays import read_arrays
from lfopt.app.config import Config, load_config, load_hardware, validate
from lfopt.app.documents import MAX_NODES, MAX_YAML_BYTES
from lfopt.app.files import read_plan, write_text
from lfopt.ir import CannotWrite, Hardware, InvalidConfig, LfoptError
from lfopt.ir.sizes import read_number
from tests.app.conftest import here, refused
from tests.app.mutations import VALUES, mutations
from tests.conftest import ROOT

__all__ = ["here"]
JOB = {
    "model": "zoo:vgg16",
    "hardware": {"buffer_bytes": "256KiB"},
    "scheme": "lbdf",
    "traffic": "tiled",
    "epilogue": True,
    "band_rows": 2,
    "rules": "default",
    "input_shapes": {"x": [1, 3]},
    "search": {
        "method": "nsga2", "compare": ["exact"], "seed": 1, "budget": 3, "time_limit": 2.5, "guidance": "rg",
        "profile": False, "propose": "mapping",
    },
    "out": "o",
}  # fmt: skip
CHIP = yaml.safe_load((ROOT / "configs" / "hardware" / "accelerator_256k.yaml").read_text())


@pytest.mark.parametrize(("document", "kind"), [(JOB, Config), (CHIP, Hardware)], ids=["job", "chip"])
def test_every_field_is_checked(document: dict[str, Any], kind: type[Config] | type[Hardware]) -> None:
    refusals = 0
    for path, what, spoilt in mutations(document):
        try:
            read_back = validate(kind, spoilt, "c.yaml")
        except InvalidConfig as error:
            line, refusals = str(error), refusals + 1
            assert line.isprintable(), (path, what)
            assert len(line) < 700, (path, what)
            assert path.split(".")[0] in line, (path, what, line)
        else:
            assert _holds(json.loads(json.dumps(asdict(read_back))), spoilt), (path, what, read_back)
    assert refusals > len(document) * len(VALUES) // 2


def _holds(read_back: Any, written: Any, name: str = "") -> bool:
    """Whether every value that was written was read back unchanged."""
    if isinstance(written, dict):
        return all(key in read_back and _holds(read_back[key], value, key) for key, value in written.items())
    if isinstance(written, str):
        return read_back == read_number(name, written, name)
    return read_back == written and isinstance(read_back, bool) == isinstance(written, bool)


GOOD = b"model: zoo:vgg16\nhardware: {buffer_bytes: 256KiB}\n"
LAUGHS = b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (k, k, k - 1, k - 1) for k in range(1, 60))
MERGED = b"a0: &a0 {x: 1}\n" + b"".join(
    b"a%d: &a%d {<<: [*a%d, *a%d]}\n" % (k, k, k - 1, k - 1) for k in range(1, 60)
)
LONG = b"x" * 5000
WRONG = {  # text of the file: what the line says
    LAUGHS: "found more than 10,000 values, aliases expanded",
    MERGED: "found more than 10,000 values, aliases expanded",
    GOOD + b"compare: &a [*a]\n": "line 3: found alias 'a' inside of what it stands for",
    GOOD + b"search: &a {compare: *a}\n": "line 3: found alias 'a' inside of what it stands for",
    GOOD + b"out: *a\n": "line 3: not YAML: found undefined alias 'a'",
    GOOD + b"out: a\0b\n": "line 3: found character U+0000; accepted: text",
    GOOD + b'out: "a\\0b"\n': "out: found 'a\\x00b'; accepted: a folder",
    GOOD + b"out: " + LONG: "line 3: found 5,000 characters; accepted: up to 4,096",
    GOOD + b"scheme: lbdf\nscheme: brr\n": "line 4: found field 'scheme' twice",
    GOOD + b"search: {seed: 1, seed: 1}\n": "line 3: found field 'seed' twice",
    GOOD + b"1: x\n": "line 3: found 1 as the name of a field; accepted: text, in quotes: '1'",
    GOOD + b"null: x\n": "line 3: found null as the name of a field; accepted: text, in quotes: 'null'",
    GOOD + b"input_shapes: {0: [1, 3, 8, 8]}\n": "line 3: found 0 as the name of a field",
    GOOD + b"2024-01-01: x\n": "2024-01-01: unknown field",
    GOOD + b"? [a]\n: x\n": "line 3: found a collection as the name of a field; accepted: text",
    GOOD + b"search: {<<: {seed: 1}}\n": "search.<<: unknown field",
    GOOD + b"epilogue: yes\n": "epilogue: found 'yes'; accepted: true or false",
    GOOD + b"search: {guidance: off, method: nsga2}\n": "search.guidance: found 'off'; accepted: 'none'",
    GOOD + b"scheme: no\n": "scheme: found 'no'; accepted: 'lbdf'",
    GOOD + b"search: {seed: 1_000}\n": "search.seed: found '1_000'; accepted: a whole number",
    GOOD + b"search: {seed: 0x10}\n": "search.seed: found '0x10'; accepted: a whole number",
    GOOD + b"search: {seed: 017}\n": "search.seed: found '017'; accepted: a whole number",
    GOOD + b"search: {time_limit: 1:30}\n": "search.time_limit: found '1:30'; accepted: a number",
    GOOD + b"search: {time_limit: .inf}\n": "search.time_limit: found inf; accepted: seconds above 0",
    GOOD + b"search: {time_limit: .nan}\n": "search.time_limit: found nan; accepted: seconds above 0",
    GOOD + b"band_rows: " + b"9" * 60: "line 3: found a number of 60 digits; accepted: up to 40",
    GOOD + b"input_shapes: {x: [-1]}\n": "input_shapes.x: found [-1]; accepted: sizes from 0",
    b"model: !!binary aGFsbG8=\nhardware: {buffer_bytes: 1}\n": (
        "line 1: found tag 'tag:yaml.org,2002:binary' here"
    ),
    b"!!python/object/apply:os.system [ls]\n": (
        "line 1: found tag 'tag:yaml.org,2002:python/object/apply:os.system' here"
    ),
    GOOD + b"band_rows: !!int hello\n": "line 3: found tag 'tag:yaml.org,2002:int' here",
    GOOD + b"epilogue: !!bool maybe\n": "line 3: found tag 'tag:yaml.org,2002:bool' here",
    GOOD + b"---\n" + GOOD: "line 3: not YAML: expected a single document",
    GOOD + b"out: " + b"[" * 100_000: "line 3: found collections 65 deep; accepted: up to 64",
    b"".join(b" " * k + b"a:\n" for k in range(999)): "line 64: found collections 65 deep",
    b"": "found nothing; accepted: a mapping of fields",
    b"hello\n": "found a single value; accepted: a mapping of fields",
    b"- a\n": "found a list; accepted: a mapping of fields",
    GOOD.decode().encode("utf-16"): "line 1: found byte 0xff; accepted: text in UTF-8",
    GOOD + b"out: caf\xe9\n": "line 3: found byte 0xe9; accepted: text in UTF-8",
    GOOD + b'out: "\\udce9"\n': "out: found '\\udce9'; accepted: text in UTF-8",
    b'model: "zoo:\\ud800"\nhardware: {buffer_bytes: 1}\n': (
        "model: found 'zoo:\\ud800'; accepted: text in UTF-8"
    ),
    b'model: "a\\0b"\nhardware: {buffer_bytes: 1}\n': "accepted: a file or zoo:NAME",
    b'model: ""\nhardware: {buffer_bytes: 1}\n': "model: found ''; accepted: a file or zoo:NAME",
    b'model: zoo:vgg16\nhardware: "\\udfff"\n': "hardware: ",
    b'model: zoo:vgg16\nhardware: "a\\0b"\n': "hardware: ",
    b"model: zoo:vgg16\nhardware: .\n": "found a folder; accepted: a file",
    GOOD + b'"\\e]0;x\\a": 1\n': r"\x1b]0;x\x07: unknown field",
    GOOD + b"x" * 1000 + b": 1\n": "search, out",
    GOOD + b"#" * MAX_YAML_BYTES: "found more than 1,048,576 bytes",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=lambda text: re.sub(rb"[^ -~]", b".", text[-24:]).decode())
def test_what_is_wrong_with_a_file_is_one_line(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(text)
    with pytest.raises(InvalidConfig) as caught:
        load_config(tmp_path / "c.yaml")
    line = str(caught.value)
    assert WRONG[text] in line
    assert line.isprintable()
    assert len(line) < 700


def test_plain_values_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    text = (
        "\ufeffmodel: zoo:vgg16\n"
        "hardware: &h {buffer_bytes: 1024, energy: {mac_pj: 1e-1}, name: yes, bias_bytes: ~}\n"
    )
    file.write_text(
        text + 'out: 2024-01-01\ninput_shapes: {"1": &s [1, 3], x: *s}\n'
        "epilogue: False\nsearch: {time_limit: 1.}\n"
    )
    job = load_config(file)
    assert (job.hardware.name, job.hardware.energy.mac_pj, job.hardware.bias_bytes) == ("yes", 0.1, None)
    assert (job.out, job.input_shapes, job.epilogue, job.search.time_limit) == (
        "2024-01-01",
        {"1": (1, 3), "x": (1, 3)},
        False,
        1.0,
    )


def test_as_many_values_as_are_accepted_are_read(tmp_path: Path) -> None:
    around = 11  # mappings, names and other values
    for count in (MAX_NODES - around, MAX_NODES - around + 1):
        (tmp_path / "c.yaml").write_text(
            f"{{model: x, hardware: {{buffer_bytes: 1}}, input_shapes: {{x: [{'1, ' * count}]}}}}\n"
        )
        if count == MAX_NODES - around:
            assert len(load_config(tmp_path / "c.yaml").input_shapes["x"]) == count
        else:
            with pytest.raises(InvalidConfig, match="found more than 10,000 values"):
                load_config(tmp_path / "c.yaml")


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_plan, read_arrays):
        with pytest.raises(LfoptError, match="found a pipe or device; accepted: a file"):
            read(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InvalidConfig, match="found a pipe or device; accepted: a file"):
            load_hardware(path)


def test_an_archive_of_something_else_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("image", b"hello")
    for data in ((tmp_path / "x.npz").read_bytes(), (tmp_path / "x.npz").read_bytes()[:40], b"", b"hello"):
        (tmp_path / "x.npz").write_bytes(data)
        with pytest.raises(InvalidConfig, match="not a NumPy archive of arrays: "):
            read_arrays(tmp_path / "x.npz")


def test_no_file_takes_the_place_of_a_pipe_or_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path(), Path("/dev/null")):
        with pytest.raises(CannotWrite, match="found a folder, a pipe or a device; accepted: a file name"):
            write_text(path, "x")
    assert (tmp_path / "pipe").is_fifo()


def test_file_names_that_are_no_text_are_printed_and_found(
    here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9")
    Path(f"{name}.yaml").write_text("{buffer_bytes: 1KiB}\n")
    assert here("zoo", "export", "squeezenet1_1", "--no-weights", "-o", f"{name}.onnx").returncode == 0
    done = here("inspect", f"{name}.onnx", "--hardware", f"{name}.yaml")
    assert done.returncode == 0, done.stderr
    assert "caf%E9: " in done.stdout
    line = refused(here("search", f"{name}.onnx", "--buffer", "128KiB"))
    assert line == "lfopt: command line: model: found 'caf\\udce9.onnx'; accepted: text in UTF-8"


def test_a_name_longer_than_any_file_may_have_is_one_line(
    here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("inspect", "x" * 5000),
        ("search", "--config", "x" * 5000),
        ("search", "x" * 5000),
        ("check", "x" * 5000),
    ):
        line = refused(here(*arguments))
        assert "File name too long" in line or "found 'xxx" in line
        assert len(line) < 5200
