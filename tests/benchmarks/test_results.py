"""Pages of results: what a benchmark measured is replaced, what people wrote is kept."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rich.table import Table

from benchmarks.results import BEGIN, END, Sheet, markdown

ROOT = Path(__file__).resolve().parents[2]


def table(title: str) -> Table:
    sheet = Table("network", title=title)
    sheet.add_column("x\nslower", justify="right")
    sheet.add_row("[bold]vgg|16[/]", "2.5\n1.5")
    return sheet


def test_a_table_is_markdown_with_the_same_cells() -> None:
    assert markdown(table("ms")) == "ms\n\n| network | x slower |\n|---|---:|\n| vgg\\|16 | 2.5, 1.5 |"


def test_measuring_again_replaces_only_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/bench_x.py", "--results", str(tmp_path), "--runs", "3"])
    for title in ("first", "second"):
        sheet = Sheet("some-page", tmp_path)
        sheet.show(table(title))
        sheet.write()
        if title == "first":
            page = (tmp_path / "some-page.md").read_text()
            (tmp_path / "some-page.md").write_text(
                page.replace("# Some page\n", "# Better title\n\nProse.\n") + "\nMore prose.\n"
            )
    page = (tmp_path / "some-page.md").read_text()
    assert page.startswith("# Better title\n\nProse.\n")
    assert page.endswith(f"{END}\n\nMore prose.\n")
    assert "second" in page
    assert "first" not in page
    assert "`python benchmarks/bench_x.py --runs 3`" in page
    assert str(tmp_path) not in page


def test_nothing_is_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sheet = Sheet("page", None)
    sheet.show(table("ms"))
    sheet.write()
    assert not list(tmp_path.iterdir())


def test_a_page_without_markers_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# By hand\n")
    with pytest.raises(SystemExit, match="found no measured part"):
        Sheet("page", tmp_path).write()
    assert (tmp_path / "page.md").read_text() == "# By hand\n"


def test_every_benchmark_finds_a_page_that_it_may_write() -> None:
    """A page that there is has one measured part, so that minutes of measuring do not end in an error."""
    names = {
        page
        for path in (ROOT / "benchmarks").glob("*.py")
        for page in re.findall(r'Sheet\("([\w-]+)"', path.read_text())
    }
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "results").glob("*.md")}
    assert {"paper", "cpu", "rtl", "fusion"} <= names & pages.keys()
    assert [
        name for name in names & pages.keys() if not pages[name].count(BEGIN) == pages[name].count(END) == 1
    ] == []
