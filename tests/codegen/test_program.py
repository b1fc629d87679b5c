"""The program around generated C: arguments, .npy files whatever is in them, weights, times."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codegen.build import build, find_compiler, write_source
from tests.codegen.twice import SHAPE, twice

pytestmark = pytest.mark.sanitize
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
X = np.arange(48, dtype=np.float32).reshape(SHAPE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with sanitizers, so that a slip with a malformed file is a crash."""
    folder = tmp_path_factory.mktemp("program")
    source = twice(*SANITIZED)
    write_source(source, folder)
    build(source, folder, find_compiler())
    np.save(folder / "x.npy", X)
    return folder


def call(folder: Path, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # who refuses a file does not tidy up first
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [str(folder / "twice"), *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd or folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refusal is."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("twice: ")
    return line


def test_the_program_reads_and_writes_what_numpy_writes_and_reads(folder: Path, tmp_path: Path) -> None:
    # the weights are found beside the program
    done = call(folder, "--input", folder / "x.npy", "--output", "y.npy", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    output = np.load(tmp_path / "y.npy")
    assert output.dtype == np.float32
    assert np.array_equal(output, 2 * X)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_npy_format_is_read(folder: Path, tmp_path: Path, version: tuple[int, int]) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, X, version=version)
    assert (
        call(folder, "--input", f"x={tmp_path / 'x.npy'}", "--output", f"y={tmp_path / 'y.npy'}").returncode
        == 0
    )
    assert np.array_equal(np.load(tmp_path / "y.npy"), 2 * X)


def npy(header: bytes, data: bytes = X.tobytes(), magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    return magic + len(header).to_bytes(2, "little") + header + data


GOOD = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 4, 4), }\n"
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends before its header"),
    "text": (b"1 2 3 4 5 6 7 8 9", "not a .npy file"),
    "magic alone": (b"\x93NUMPY", "ends before its header"),
    "format 4": (npy(GOOD, magic=b"\x93NUMPY\x04\x00"), "found .npy format 4; accepted: 1 to 3"),
    "format 2, cut off": (b"\x93NUMPY\x02\x00\x10\x00", "ends before its header"),
    "a huge header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "found a header of 4294967295 bytes"),
    "a header cut off": (npy(GOOD)[:40], "its header cannot be read"),
    "no header": (npy(b""), "its header cannot be read"),
    "a null in the header": (npy(GOOD.replace(b" ", b"\0", 1)), "its header cannot be read"),
    "no shape": (npy(b"{'descr': '<f4', 'fortran_order': False}"), "its header cannot be read"),
    "a key twice": (npy(GOOD.replace(b", }", b", 'descr': '<f4'}")), "its header cannot be read"),
    "another key": (npy(GOOD.replace(b", }", b", 'more': 1}")), "its header cannot be read"),
    "a key without end": (npy(b"{'descr"), "its header cannot be read"),
    "a long key": (npy(b"{'" + b"d" * 200 + b"': '<f4'}"), "its header cannot be read"),
    "a record": (
        npy(b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
        "its header cannot be read",
    ),
    "text after it": (npy(GOOD + b"x"), "its header cannot be read"),
    "a shape without end": (
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3"),
        "its header cannot be read",
    ),
    "a negative dim": (npy(GOOD.replace(b"(1,", b"(-1,")), "its header cannot be read"),
    "a dim beyond 64 bits": (
        npy(GOOD.replace(b"(1,", b"(99999999999999999999,")),
        "its header cannot be read",
    ),
    "33 dims": (npy(GOOD.replace(b"(1,", b"(" + b"1, " * 30)), "its header cannot be read"),
    "32 dims": (
        npy(GOOD.replace(b"(1,", b"(" + b"9223372036854775000, " * 29)),
        "found <f4 (9223372036854775000, 9223",
    ),
    "another type": (
        npy(GOOD.replace(b"f4", b"f8")),
        r"found <f8 (1, 3, 4, 4); accepted: <f4 (1, 3, 4, 4) (float32)",
    ),
    "another byte order": (npy(GOOD.replace(b"<", b">")), r"found >f4"),
    "another shape": (
        npy(GOOD.replace(b"3, 4", b"4, 3")),
        r"found <f4 (1, 4, 3, 4); accepted: <f4 (1, 3, 4, 4)",
    ),
    "a scalar": (npy(GOOD.replace(b"(1, 3, 4, 4)", b"()")), r"found <f4 ()"),
    "Fortran order": (npy(GOOD.replace(b"False", b"True")), "found Fortran order; accepted: C order"),
    "elements cut off": (npy(GOOD)[:-1], "cut off: found 191 bytes of elements; accepted: 192"),
    "no elements": (npy(GOOD, b""), "cut off: found 0 bytes"),
    "elements left over": (npy(GOOD, X.tobytes() + b"x"), "goes on after its 192 bytes"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_file_is_one_line_and_exit_code_2(folder: Path, tmp_path: Path, what: str) -> None:
    content, message = MALFORMED[what]
    (tmp_path / "bad.npy").write_bytes(content)
    line = refused(call(folder, "--input", tmp_path / "bad.npy", "--output", tmp_path / "y.npy"))
    assert message in line
    assert "input x: " in line
    assert not (tmp_path / "y.npy").exists()


def test_bytes_changed_at_random_never_break_the_reader(folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    good = npy(GOOD)
    for _ in range(60):
        bad = bytearray(good[: rng.integers(1, len(good) + 1)] if rng.random() < 0.3 else good)
        for at in rng.integers(0, min(len(bad), 80), rng.integers(1, 4)):
            bad[at] = rng.integers(0, 256)
        (tmp_path / "bad.npy").write_bytes(bad)
        done = call(folder, "--input", tmp_path / "bad.npy", "--output", tmp_path / "y.npy")
        assert (done.returncode == 0 and not done.stderr) or refused(done)


ARGUMENTS: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "nothing is asked for; accepted: --output FILE.npy, --bench RUNS"),
    "no output": (["--input", "x.npy"], "nothing is asked for"),
    "no input": (["--output", "y.npy"], "input x is not given; accepted: --input x=FILE.npy"),
    "two inputs": (
        ["--input", "x.npy", "--input", "x.npy", "--output", "y.npy"],
        "--input x.npy: found more than 1",
    ),
    "an input twice": (["--input", "x=x.npy", "--input", "x=x.npy"], "x has a file already: x.npy"),
    "an absent file": (["--input", "none.npy", "--output", "y.npy"], "none.npy: No such file or directory"),
    "a folder": (["--input", ".", "--output", "y.npy"], "Is a directory"),
    "an output nowhere": (
        ["--input", "x.npy", "--output", "none/y.npy"],
        "output y: none/y.npy: No such file",
    ),
    "a full disk": (["--input", "x.npy", "--output", "/dev/full"], "/dev/full: No space left on device"),
    "an unknown option": (["--inputs", "x.npy"], "--inputs: not an option; see --help"),
    "an option alone": (["--input"], "--input: nothing follows it"),
    "no runs": (["--bench", "0"], "--bench 0: accepted: a number of runs from 1"),
    "half a number": (["--bench", "1x"], "--bench 1x: accepted"),
    "too many runs": (["--bench", "99999999999999999999"], "accepted: a number of runs"),
    "absent weights": (["--bench", "1", "--weights", "none.bin"], "weights none.bin: No such file"),
    "weights of another size": (
        ["--bench", "1", "--weights", "x.npy"],
        "weights x.npy: not this model's: accepted: a file of 4 bytes",
    ),
    "weights of another model": (
        ["--bench", "1", "--weights", "other.bin"],
        "weights other.bin: not this model's",
    ),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_wrong_arguments_are_one_line_and_exit_code_2(folder: Path, what: str) -> None:
    (folder / "other.bin").write_bytes(b"\0\0\0\0")
    arguments, message = ARGUMENTS[what]
    assert message in refused(call(folder, *arguments))


def test_times_are_printed_in_order_and_say_how_many_runs_they_are_of(folder: Path) -> None:
    done = call(folder, "--bench", 25)
    number = r"(\d+\.\d{4})"
    match = re.fullmatch(
        rf"median {number} ms, min {number}, quartiles {number} {number}; 25 runs after 3 to warm up\n",
        done.stdout,
    )
    assert match
    median, least, first, third = map(float, match.groups())
    assert least <= first <= median <= third


def test_list_and_help_say_what_goes_in_and_out(folder: Path) -> None:
    assert call(folder, "--list").stdout.splitlines() == [
        "input x float32 [1, 3, 4, 4]",
        "output y float32 [1, 3, 4, 4]",
        "context 208 bytes, of which arena 192",
        "weights 4 bytes",
    ]
    assert call(folder, "--help").stdout.startswith("usage: twice --input x.npy")


def test_a_program_with_linked_weights_needs_no_file(tmp_path: Path) -> None:
    source = twice(embed=True)
    write_source(source, tmp_path)
    build(source, tmp_path, find_compiler())
    np.save(tmp_path / "x.npy", X)
    assert not (tmp_path / "weights.bin").exists()
    assert call(tmp_path, "--input", "x.npy", "--output", "y.npy").returncode == 0
    assert np.array_equal(np.load(tmp_path / "y.npy"), 2 * X)
    assert "weights 0 bytes: linked in" in call(tmp_path, "--list").stdout


def test_code_that_leaves_its_arena_is_told_from_a_wrong_file(tmp_path: Path) -> None:
    source = twice("-DOVERRUN")
    write_source(source, tmp_path)
    build(source, tmp_path, find_compiler())
    done = call(tmp_path, "--bench", 1)
    assert (done.returncode, done.stderr) == (3, "twice: the generated code wrote outside its arena\n")


def test_several_inputs_come_by_name_or_in_order(tmp_path: Path) -> None:
    source = twice("-DSCALED")
    write_source(source, tmp_path)
    build(source, tmp_path, find_compiler())
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "s.npy", np.int64(3))
    for inputs in (
        ["s=1=s.npy", "x=x.npy"],
        ["x=x.npy", "s=1=s.npy"],
        ["s.npy", "x.npy"],
        ["x=x.npy", "s.npy"],
    ):
        done = call(
            tmp_path, *(argument for file in inputs for argument in ("--input", file)), "--output", "y.npy"
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert np.array_equal(np.load(tmp_path / "y.npy"), 6 * X)
        (tmp_path / "y.npy").unlink()
    assert "input s=1 is not given" in refused(call(tmp_path, "--input", "x=x.npy", "--output", "y.npy"))
    assert "found <f4 (1, 3, 4, 4); accepted: <i8 () (int64)" in refused(
        call(tmp_path, "--input", "x.npy", "--input", "s.npy", "--output", "y.npy")
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_the_makefile_builds_the_same(tmp_path: Path) -> None:
    write_source(twice(), tmp_path)
    subprocess.run(["make", "-s", "bench"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["make", "-s"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "libtwice.so").exists()
    subprocess.run(["make", "-s", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "twice").exists()
    assert not list(tmp_path.glob("*.o"))
