"""Printed C in other programs: C++, CMake, pkg-config, two networks of one name, Arm, Python; examples."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.build import build, code_bytes, find_compiler, write_source
from codegen.emit import emit_c
from codegen.source import Unsupported
from lfopt.app.compiled import plan_for_cpu
from lfopt.app.pipeline import load_network
from lfopt.ir import Hardware
from tests.codegen.test_emulated import ABSENT, PACKAGES
from tests.codegen.twice import twice
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
CALLER = """#include "twice_model.h"
#include <cstdio>
#include <cstdlib>
int main() {
    float x[48], y[48];
    for (int k = 0; k < 48; k++) x[k] = k;
    const void *inputs[] = {x};
    void *outputs[] = {y}, *memory = std::aligned_alloc(twice_ALIGNMENT, 256);
    twice_context *context = static_cast<twice_context *>(memory);
    if (twice_init(context, nullptr) != twice_OK || twice_run(context, inputs, outputs) != twice_OK) return 1;
    twice_end(context);
    std::printf("%g %d\\n", y[47], twice_inputs[0].rank);
}
"""


def ran(*command: object, cwd: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=environment or None,
        timeout=600,
    )
    assert done.returncode == 0, (command, done.stdout[-1500:], done.stderr[-1500:])
    return done.stdout


def needs(*commands: str) -> None:
    if absent := [command for command in commands if not shutil.which(command)]:
        pytest.skip(f"no {', no '.join(absent)}")


def test_cpp_finds_a_network_by_pkg_config(tmp_path: Path) -> None:
    needs("g++", "pkg-config")
    source = twice(embed=True)
    write_source(source, tmp_path)
    built = build(source, tmp_path, find_compiler())
    assert 100 < code_bytes(built.library) < 20_000
    (tmp_path / "caller.cpp").write_text(CALLER)
    flags = ran(
        "pkg-config", "--cflags", "--libs", "twice", PKG_CONFIG_PATH=str(tmp_path), PATH="/usr/bin:/bin"
    ).split()
    ran(
        "g++",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        tmp_path / "caller.cpp",
        *flags,
        f"-Wl,-rpath,{tmp_path}",
        "-o",
        tmp_path / "caller",
    )
    assert ran(tmp_path / "caller") == "94 4\n"


def test_cmake_installs_a_network_that_another_project_finds(tmp_path: Path) -> None:
    needs("g++", "cmake")
    write_source(twice(embed=True), tmp_path / "net")
    for command in (
        ("-S", tmp_path / "net", "-B", tmp_path / "b"),
        ("--build", tmp_path / "b"),
        ("--install", tmp_path / "b", "--prefix", tmp_path / "to"),
    ):
        ran("cmake", *command)
    project = (
        "cmake_minimum_required(VERSION 3.14)\nproject(user LANGUAGES CXX)\nfind_package(twice "
        "REQUIRED)\nadd_executable(user caller.cpp)\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(f"{project}target_link_libraries(user twice::twice)\n")
    (tmp_path / "caller.cpp").write_text(CALLER)
    ran("cmake", "-S", tmp_path, "-B", tmp_path / "user", f"-DCMAKE_PREFIX_PATH={tmp_path / 'to'}")
    ran("cmake", "--build", tmp_path / "user")
    assert ran(tmp_path / "user/user") == "94 4\n"


def test_every_symbol_begins_with_the_prefix_and_every_status_is_in_the_header(tmp_path: Path) -> None:
    graph = load_network("zoo:squeezenet1_1", {"image": (1, 3, 32, 32)}, "default")
    plan = plan_for_cpu(graph, Hardware(1 << 18, element_bytes=4))
    source = emit_c(plan, graph, "c99", threads=2, prefix="mine")
    write_source(source, tmp_path)
    built = build(source, tmp_path, find_compiler())
    symbols = [
        line.split()[-1] for line in ran("nm", "--dynamic", "--defined-only", built.library).splitlines()
    ]
    assert len(symbols) > 8 and all(symbol.startswith("mine_") for symbol in symbols)
    header, code = (source.files[name].decode() for name in ("model.h", "model.c"))
    statuses = {int(number) for number in re.findall(r"mine_[A-Z_]+ = (\d),?\s", header)}
    entry = code[code.index("\nint mine_run(") :]
    assert (
        {int(number) for number in re.findall(r"return (\d);", entry[: entry.index("\n}")])}
        <= statuses
        == {0, 1, 2, 3, 4}
    )
    for wrong in ("", "1a", "a-b", "é", "a" * 61, "_a"):
        with pytest.raises(
            Unsupported, match=r"prefix: found .*; accepted: up to 60 letters, digits and _, a letter first"
        ):
            emit_c(plan, graph, "c99", prefix=wrong)


@pytest.mark.slow
def test_examples_do_what_they_say(lfopt, tmp_path: Path) -> None:
    """C++ with two networks of one name, Python, and emulated Arm print the same classes."""
    needs("g++", "cmake")
    if ABSENT:
        pytest.skip(f"no {' and no '.join(ABSENT)}: apt-get install {PACKAGES}")
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    commands = [
        line.strip() for line in (EXAMPLES / "README.md").read_text().splitlines() if line.startswith("    ")
    ]
    said: dict[str, str] = {}
    for line in commands:
        for command in line.split(" && "):
            first, *words = command.split()
            if first == "lfopt":
                lfopt(*words)
            else:
                said[first] = (
                    ran(sys.executable if first == "python" else first, *words, cwd=tmp_path)
                    if "/" not in first
                    else ran(tmp_path / first)
                )
    classes = re.findall(r"class (\d+), ([\d.]+)", said["cpp/build/two"])
    assert len(classes) == 2 and classes[0] == classes[1] and float(classes[0][1]) > 0
    assert "class" in said["python"] and "Compiled(squeezenet1_1" in said["python"]
    assert "logits" in said["sh"] and re.search(r"\d ms", said["sh"])
