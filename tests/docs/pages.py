"""Blocks of the pages: what each is, and what its marker says of it.

A marker is an HTML comment on the line before a fence:

    <!-- slow -->                takes more than a second or so: run by `make test-slow`, after what stands
                                 above it on its page
    <!-- not run: WHY -->        needs what the checks do not have; commands are parsed
    <!-- run by: tests/... -->   another test runs it
    <!-- file: NAME -->          a file of the page's folder, for commands below
    <!-- part of: FILE -->       stands so in a file of the repository
    <!-- given: NAME SPEC -->    files that the reader has, `; ` between them: zoo:NETWORK in ONNX,
                                 INPUT=SHAPE in .npz, SHAPE in .npy
    <!-- output of: COMMAND -->  a part of what COMMAND prints; `...` stands for lines left out
    <!-- exit: N -->             the last command of the block ends with N (0 if nothing is said)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCED = re.compile(r"((?:^<!-- [^\n]*? -->\n)*)^```([\w{}]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARKER = re.compile(
    r"^<!-- (slow|not run|run by|file|part of|given|output of|exit)(?:: ([^\n]*))? -->$", re.MULTILINE
)
PROMPT = "$ "
SHELL = re.compile(r"^ {4}(?:lfopt|make|pip|python|cmake|docker|dask|\.venv/bin/\w+) ", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    """of the opening fence"""
    language: str
    text: str
    markers: dict[str, str]

    @property
    def where(self) -> str:
        """`page:line`, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def does(self) -> bool:
        """Whether there is something to do that tests/docs does, at once or among the slow blocks."""
        return not {"not run", "run by"} & self.markers.keys() and bool(
            self.markers or self.language == "python" or self.commands()
        )

    @property
    def slow(self) -> bool:
        """Whether it is left to `make test-slow`."""
        return "slow" in self.markers

    def commands(self) -> list[tuple[str, list[str]]]:
        """(command, its output lines) of a block; without `$ ` prompts there is no output."""
        if self.language == "sh":
            return [(line, []) for line in joined(self.text) if line.strip() and not line.startswith("#")]
        commands: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith(PROMPT):
                commands.append((line.removeprefix(PROMPT), []))
            elif commands:
                commands[-1][1].append(line)
        return commands


def joined(text: str) -> list[str]:
    """Lines, with those that end in a backslash continued."""
    return text.replace("\\\n", " ").splitlines()


def pages() -> list[Path]:
    """All pages that people read: README, CONTRIBUTING and docs."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Fenced blocks, in order."""
    text = page.read_text(encoding="utf-8")
    for match in FENCED.finditer(text):
        markers = dict(MARKER.findall(match[1]))
        yield Block(page, text.count("\n", 0, match.start(2)) + 1, match[2], match[3], markers)


def prose(page: Path) -> str:
    """A page without its blocks and HTML comments, lines kept where they are."""
    blank = lambda match: "\n" * match[0].count("\n")  # noqa: E731
    return re.sub(r"<!--.*?-->", blank, FENCED.sub(blank, page.read_text(encoding="utf-8")), flags=re.DOTALL)
