"""Where benchmarks leave their figures: one page each in docs/results, with commit, machine and command.

What people wrote on a page stays: only what lies between the two markers is replaced.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lfopt.app.files import write_text

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- measured: what follows is written by the benchmark -->", "<!-- end of what is measured -->"
WIDTH = 120  # columns, where no terminal says otherwise


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--results FOLDER`, as `make` gives it: a page is written only where somebody asks for it."""
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="also write the tables to this folder's page of the benchmark",
    )


class Sheet:
    """Tables and lines as they come: on the screen at once, on a page of results in the end."""

    def __init__(self, name: str, folder: Path | None, width: int = WIDTH) -> None:
        """`name`: of the page; `folder`: where it is, if it is to be written."""
        self._page = None if folder is None else folder / f"{name}.md"
        self._measured = "" if folder is None else circumstances()  # files may change meanwhile
        self._parts: list[str] = []
        self.console = Console(width=min(Console().width, width) if sys.stdout.isatty() else width)

    def show(self, part: Table | str) -> None:
        """Print a table or a line of text, and keep it for the page."""
        self.console.print(part, highlight=False)
        self.keep(part)

    def keep(self, part: Table | str) -> None:
        """For the page alone."""
        self._parts.append(
            markdown(part) if isinstance(part, Table) else Text.from_markup(part).plain.strip()
        )

    def write(self) -> None:
        """Write the page, if there is to be one: a new one, or the measured part of the one that there is."""
        if self._page is None:
            return
        measured = "\n\n".join((BEGIN, self._measured, *self._parts, END))
        title = self._page.stem.replace("-", " ").capitalize()
        page = (
            self._page.read_text(encoding="utf-8")
            if self._page.exists()
            else f"# {title}\n\n{BEGIN}\n{END}\n"
        )
        if page.count(BEGIN) != 1 or page.count(END) != 1:
            raise SystemExit(
                f"{self._page}: found no measured part, or several; "
                f"accepted: a page with {BEGIN} and {END} once each"
            )
        before, _, rest = page.partition(BEGIN)
        self._page.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._page, before + measured + rest.partition(END)[2])
        sys.stderr.write(f"wrote {self._page}\n")


Row = Mapping[str, Any]  # column -> text or number


def table_of(title: str, rows: Sequence[Row], digits: int = 2) -> Table:
    """Rows of one kind as a table: `digits` decimals below 100 and none from there on, NaN empty."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            *(value if isinstance(value, str) else _number(value, digits) for value in row.values())
        )
    return table


def _number(value: float, digits: int) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "" if math.isnan(value) else f"{value:,.{digits}f}" if abs(value) < 100 else f"{value:,.0f}"


def markdown(table: Table) -> str:
    """A table as Markdown, its title above and its caption below.

    >>> table = Table("network", title="bytes")
    >>> table.add_column("DRAM", justify="right")
    >>> table.add_row("[bold]vgg16[/]", "1,024")
    >>> print(markdown(table))
    bytes
    <BLANKLINE>
    | network | DRAM |
    |---|---:|
    | vgg16 | 1,024 |
    """
    heads = [_cell(str(column.header).replace("-\n", "").replace("\n", " ")) for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    rows = zip(*([_cell(cell) for cell in column.cells] for column in table.columns), strict=True)
    lines = [f"| {' | '.join(heads)} |", f"|{'|'.join(rules)}|", *(f"| {' | '.join(row)} |" for row in rows)]
    parts = [_cell(table.title or ""), "\n".join(lines), _cell(table.caption or "")]
    return "\n\n".join(part for part in parts if part)


def _cell(content: object) -> str:
    text = content.plain if isinstance(content, Text) else Text.from_markup(str(content)).plain
    return re.sub(r"\s*\n\s*", ", ", text.strip()).replace("|", "\\|").replace("*", "\\*")


def circumstances() -> str:
    """Commit, day, command and machine, in one paragraph."""
    command = shlex.join(["python", *_without_results([_relative(argument) for argument in sys.argv])])
    return f"Commit {commit()}, {datetime.now(UTC):%Y-%m-%d}, `{command}`, on {machine()}."


def _without_results(arguments: list[str]) -> list[str]:
    if "--results" in arguments:
        at = arguments.index("--results")
        return [*arguments[:at], *arguments[at + 2 :]]
    return arguments


def _relative(argument: str) -> str:
    """A path as it is named from the root of the repository, or by its last part alone."""
    path = Path(argument)
    if not path.is_absolute():
        return argument
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def commit() -> str:
    """The commit that is measured, and whether files differ from it (pages of results do not count)."""
    revision = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":!docs/results")
    return f"{revision or 'unknown'}{' with changes' if changed else ''}"


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
    except FileNotFoundError:
        return ""


def machine() -> str:
    """Processor, threads that this process may use, memory, system and Python."""
    model, memory = platform.machine(), ""
    if (cpu := Path("/proc/cpuinfo")).exists() and (
        match := re.search(r"^model name\s*: (.+)$", cpu.read_text(), re.MULTILINE)
    ):
        model = f"{match[1].strip()} ({model})"
    if (info := Path("/proc/meminfo")).exists() and (
        match := re.search(r"^MemTotal:\s+(\d+) kB", info.read_text(), re.MULTILINE)
    ):
        memory = f", {int(match[1]) / (1 << 20):.0f} GiB"
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{model}, {threads} threads{memory}, {platform.system()}, Python {platform.python_version()}"
