"""What every command prints with: consoles, tables, numbers, a progress line.

It is the state of one run of the command line.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from lfopt.app.deadline import ReportProgress
from lfopt.ir import Graph, Hardware
from lfopt.ir.names import printable

NARROWEST = 16  # characters of a column that is folded
NARROW = 24  # of the first, where it is folded into more than three lines
INDENT = "  "  # of its lines but the first
BREAKS = "./_:-"  # behind which names are broken
CELL_LINES = 24  # of one cell; the names of files are hostile


class Screen(Console):
    """A console on which a text never acts: what is no printable character in it is escaped.

    `lfopt.ir.names.printable` is what escapes them.
    """

    verbose = False  # whether progress is lines
    silent = False  # whether there is none

    def follow(self) -> None:
        """Take the width from $COLUMNS or the terminal as they are now, not when the console was made."""
        self._width = None

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is printed, in segments: only those of rich itself hold control characters."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                text = "\n".join(map(printable, segment.text.split("\n")))
                yield Segment(text, segment.style)


out = Screen(highlight=False, emoji=False)
err = Screen(stderr=True, highlight=False, emoji=False)


def begin(*, quiet: bool, verbose: bool, json: bool) -> None:
    """Begin a run: `quiet` prints errors, notes and JSON alone, as does `json` on standard output."""
    for console in (out, err):
        console.follow()
    out.quiet = quiet or json
    err.quiet = False
    err.verbose = verbose and not quiet
    err.silent = quiet


def write(text: str) -> None:
    """Text for programs, as it is, to standard output."""
    sys.stdout.write(text)
    sys.stdout.flush()


def table(*columns: str, title: str | None = None) -> Table:
    """A plain table: the first column on the left, numbers on the right.

    What is too wide for the screen is folded; no cell is ever cut.
    """
    grid = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for k, column in enumerate(columns):
        grid.add_column(column, justify="left" if k == 0 else "right", overflow="fold")
    return grid


def shown(path: object) -> str:
    """A path, or other text of the user's own, as markup that prints it in one line and does nothing else."""
    return escape(printable(path))


def shorten(text: str, width: int) -> str:
    """Cut in the middle: for what is no more than a hint, as tables fold names.

    >>> shorten("stage1.block1.expand", 11)
    'stage…xpand'
    """
    text = printable(text)
    if len(text) <= width:
        return text
    left = max(width - 1, 2) // 2
    return f"{text[:left]}…{text[len(text) - (max(width - 1, 2) - left) :]}"


def mib(size: int) -> str:
    """Bytes as MiB, two decimals.

    >>> mib(1 << 20)
    '1.00'
    """
    return f"{size / (1 << 20):,.2f}"


def speed(hardware: Hardware) -> str:
    """What modelled cycles are of; where the chip does not say, that is said.

    >>> speed(Hardware(1024))
    '16 x 16 MACs, 16 B a cycle, assumed: the chip does not say'
    """
    what = f"{hardware.mac_rows} x {hardware.mac_columns} MACs, {hardware.port_bytes} B a cycle"
    return what + (", assumed: the chip does not say" if hardware.assumed else "")


def note(graph: Graph) -> None:
    """Say on stderr what was remarkable in reading the network."""
    for line in graph.notes:
        err.print(f"note: {line}", style="yellow", markup=False)


@contextmanager
def progress_line() -> Iterator[ReportProgress]:
    """A line on stderr that says what is going on; nothing where stderr is not a terminal, nor with --quiet.

    With --verbose, a line a stage.
    """
    if err.verbose:
        yield _lines()
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=err.silent or not err.is_terminal) as bar:
        task = bar.add_task("", total=1.0)

        def report(what: str, done: float) -> None:
            bar.update(task, description=what, completed=done)

        yield report


def _lines() -> ReportProgress:
    """Says what is new: numbers that count on are not."""
    start = time.perf_counter()
    last = ""

    def report(what: str, done: float) -> None:
        nonlocal last
        if (stage := re.sub(r"[0-9][0-9,.]*", "", what)) != last:
            last = stage
            err.print(f"{time.perf_counter() - start:8.2f} s  {what}", markup=False, soft_wrap=True)

    return report


def spread(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    stretch: Sequence[int] = (0,),
    left: Sequence[int] = (),
    bold: Collection[int] = (),
) -> RenderableType:
    """A table at most as wide as the screen: columns `stretch` share what the others leave, folded.

    Texts are on the left: the first column, `stretch` and `left`. `bold` are rows to stand out. Where too
    little is left for a text, it has lines of its own.
    """
    needs = [max([len(name), *(len(row[k]) for row in rows)]) for k, name in enumerate(names)]
    room = out.width - sum(need for k, need in enumerate(needs) if k not in stretch) - 2 * (len(names) - 1)
    widths: dict[int, int] = {}
    # the narrowest takes no more than it needs
    for at, k in enumerate(sorted(stretch, key=needs.__getitem__)):
        widths[k] = min(needs[k], (room - sum(widths.values())) // (len(stretch) - at))
    texts = {0, *stretch, *left}
    if any(
        width < min(needs[k], NARROWEST) or (k == 0 and width < NARROW and 3 * width < needs[k])
        for k, width in widths.items()
    ):
        return Group(
            *_stacked(names, rows, {k: (need, k in texts) for k, need in enumerate(needs)}, stretch, bold)
        )
    grid = table(*names)
    for k in texts:
        grid.columns[k].justify = "left"
    for number, row in enumerate(rows):
        cells = (escape(folded(cell, widths[k]) if k in widths else cell) for k, cell in enumerate(row))
        grid.add_row(*cells, style="bold" if number in bold else None)
    return grid


def _stacked(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    needs: Mapping[int, tuple[int, bool]],
    stretch: Sequence[int],
    bold: Collection[int],
) -> Iterator[Text]:
    """Lines of `spread` where columns have no room: long texts of a row have lines of their own.

    `needs`: (characters, whether on the left).
    """
    lines: list[list[int]] = [[]]  # columns of figures in each line
    for k in (k for k in needs if k not in stretch):
        if lines[-1] and len(INDENT) + sum(needs[c][0] + 2 for c in lines[-1]) + needs[k][0] > out.width:
            lines.append([])
        lines[-1].append(k)
    ahead = 0 in stretch  # whether the name of the row is a text of its own
    for number, row in enumerate((names, *rows), start=-1):
        style = "dim" if number < 0 else "bold" if number in bold else ""
        figures = [
            "  ".join(
                row[k].ljust(needs[k][0]) if needs[k][1] else row[k].rjust(needs[k][0]) for k in columns
            )
            for columns in lines
        ]
        figures = [INDENT * (ahead or at > 0) + line for at, line in enumerate(figures) if line.strip()]
        text = folded("  ".join(row[k] for k in stretch if row[k]), out.width - len(INDENT))
        text_lines = [text] if ahead else [f"{INDENT}{line}" for line in text.split("\n")]
        for line in (*text_lines, *figures) if ahead else (*figures, *text_lines):
            if line.strip():
                yield Text(line.rstrip(), style)


def folded(text: str, width: int) -> str:
    """Text in lines of at most so many characters, all but the first indented.

    Broken behind blanks, dots and slashes where that goes.

    >>> print(folded("3 stage6.block2.expand .. stage6.block3.project", 28))
    3 stage6.block2.expand ..
      stage6.block3.project
    """
    text = printable(text)
    lines: list[str] = []
    while text:
        room = width - (len(INDENT) if lines else 0)
        end = len(text)
        if end > room:
            blank = text.rfind(" ", 0, room + 1)
            behind = max(text.rfind(mark, 0, room) + 1 for mark in BREAKS)
            end = blank if blank > room // 3 else behind if behind > room // 3 else room
        lines.append(f"{INDENT if lines else ''}{text[:end].rstrip()}")
        text = text[end:].lstrip()
        if len(lines) == CELL_LINES and text:
            return "\n".join([*lines[:-1], f"{INDENT}… {len(lines[-1] + text)} characters more"])
    return "\n".join(lines)
