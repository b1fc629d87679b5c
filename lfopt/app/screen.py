"""What every command prints with: consoles, numbers, a progress line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lfopt.app.pipeline import Report
from lfopt.ir import Graph
from lfopt.ir.names import printable

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def table(*columns: str, title: str | None = None) -> Table:
    """A plain table: the first column on the left, numbers on the right; no cell is ever cut."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for k, column in enumerate(columns):
        made.add_column(column, justify="left" if k == 0 else "right", no_wrap=True)
    return made


def shown(path: object) -> str:
    """A path, or other text of the user's own, as markup that prints it in one line and does nothing else."""
    return escape(printable(path))


def shorten(text: str, width: int) -> str:
    """Cut in the middle, where names of neighbours are alike.

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


def note(graph: Graph) -> None:
    """Say on stderr what was remarkable in reading the network."""
    for line in graph.notes:
        err.print(f"note: {line}", style="yellow", markup=False)


@contextmanager
def progress_line() -> Iterator[Report]:
    """A line on stderr that says what is going on; nothing where stderr is not a terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=1.0)

        def report(what: str, done: float) -> None:
            bar.update(task, description=what, completed=done)

        yield report


def spread(names: Sequence[str], rows: Sequence[Sequence[str]], *, stretch: Sequence[int] = (0,), bold: Collection[int] = ()) -> Table:
    """A table as wide as the screen at most: what the other columns leave is shared by the columns `stretch`, whose texts are shortened.

    Columns of names are on the left; `bold` are rows to stand out.
    """
    needs = [max([len(name), *(len(row[k]) for row in rows)]) for k, name in enumerate(names)]
    left = out.width - sum(need for k, need in enumerate(needs) if k not in stretch) - 2 * (len(names) - 1)
    widths: dict[int, int] = {}
    for at, k in enumerate(sorted(stretch, key=needs.__getitem__)):  # the narrowest takes no more than it needs
        widths[k] = min(needs[k], max((left - sum(widths.values())) // (len(stretch) - at), 12))
    made = table(*names)
    for k in stretch:
        made.columns[k].justify = "left"
    for number, row in enumerate(rows):
        cells = (escape(shorten(cell, widths.get(k, len(cell)))) for k, cell in enumerate(row))
        made.add_row(*cells, style="bold" if number in bold else None)
    return made
