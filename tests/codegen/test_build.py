"""Generated C on disk, and what is said when it cannot be compiled."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from codegen.build import CannotBuild, build, find_compiler, program_name, write_source
from lfopt.ir.cpu import CpuSchedule
from tests.codegen.twice import twice


def test_what_is_written_is_the_model_and_a_program_with_its_name(tmp_path: Path) -> None:
    written = write_source(twice(), tmp_path / "new")
    model, program = (
        {"model.c", "model.h", "weights.bin"},
        {"main.c", "npy.c", "npy.h", "Makefile", "README.md"},
    )
    assert {path.name for path in written} == model | program | {
        "CMakeLists.txt",
        "twice.pc",
        "twice_model.h",
    }
    assert {path.name for path in (tmp_path / "new").iterdir()} == {path.name for path in written}
    for path in written:
        if path.name != "weights.bin":
            assert not re.search(r"\bNAME(?=_|\b)|@\w+@", path.read_text()), path
    assert "twice_run(context" in (tmp_path / "new" / "main.c").read_text()
    assert "208 bytes, of which 192 are the arena" in (tmp_path / "new" / "README.md").read_text()


def test_arenas_of_several_threads_are_counted_out(tmp_path: Path) -> None:
    write_source(
        replace(
            twice(),
            arena_bytes=384,
            context_bytes=464,
            schedule=CpuSchedule("c99", 1, (), (), images=2, crew=2),
        ),
        tmp_path,
    )
    assert "464 bytes, of which 384 are the 2 arenas that" in (tmp_path / "README.md").read_text()


def test_weights_of_before_do_not_stay_beside_a_model_that_holds_its_own(tmp_path: Path) -> None:
    write_source(twice(), tmp_path)
    write_source(twice(embed=True), tmp_path)
    assert not (tmp_path / "weights.bin").exists()


def test_no_program_is_called_what_make_means_something_by() -> None:
    assert program_name(twice()) == "twice"
    assert program_name(replace(twice(), name="clean")) == "clean_program"


def test_a_compiler_that_refuses_is_quoted_and_leaves_no_binaries(tmp_path: Path) -> None:
    broken = replace(twice(), files={**twice().files, "model.c": b"int f(void) { return nobody; }\n"})
    write_source(broken, tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CannotBuild, match=r"ended with 1: .*model.c:1:22: error: .nobody. undeclared"):
        build(broken, tmp_path, find_compiler())
    assert sorted(tmp_path.iterdir()) == before


def test_flags_that_the_compiler_does_not_know_are_quoted(tmp_path: Path) -> None:
    source = twice("-march=nonsense")
    write_source(source, tmp_path)
    with pytest.raises(CannotBuild, match="nonsense"):
        build(source, tmp_path, find_compiler())


def test_an_absent_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotBuild, match="CC=nobody-cc: no such command; accepted: one of GCC or Clang"):
        find_compiler("nobody-cc")
    with pytest.raises(CannotBuild, match="No closing quotation"):
        find_compiler("gcc '")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotBuild, match="none of cc, gcc, clang is installed"):
        find_compiler()


def test_the_compiler_may_bring_options() -> None:
    assert find_compiler("cc -pipe") == ("cc", "-pipe")
