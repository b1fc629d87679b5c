"""Every figure is a benchmark's: pages of results name it, and prose quotes the page that it links to."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks, pages, prose
from tests.docs.test_pages import reference

MADE = re.compile(r"[Cc]ommit [0-9a-f]{7,12}\b[^\n]*\d{4}-\d\d-\d\d")
COMMAND = re.compile(r"`(?:make [\w-]+|python benchmarks/\w+\.py[^`]*|(?:bench|rtl)_\w+\.py[^`]*)`")
LINK = re.compile(r"\]\(([\w/.-]+\.md)")
FIGURE = re.compile(
    r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?) ?(?:ms|us|s|MB|dB|%|GMAC/s|GFLOP/s|minutes|hours)(?![\w/])|(\d+\.\d+) "
    r"times\b|(?<![\w.,-])(0\.\d{3,})(?!\w)"
)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
SAID = re.compile(r"\bcommit\s+[0-9a-f]{7,12}\b|<!-- figures: [^\n]+ -->")
PROSE = [page for page in pages() if page.parent.name != "results"]


@pytest.mark.parametrize(
    "page",
    sorted(set((DOCS / "results").glob("*.md")) - {DOCS / "results" / "index.md"}),
    ids=lambda page: page.stem,
)
def test_a_page_of_results_names_its_commit_day_and_command(page: Path) -> None:
    text = page.read_text()
    assert MADE.search(text)
    assert COMMAND.search(text)
    assert page.stem in reference().QUESTIONS, "docs/reference.py has the question that the page answers"


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_in_prose_stand_on_a_page_of_results(page: Path) -> None:
    """Each section links the page with its figures, or names the command or commit they come from."""
    assert [f"{page.relative_to(ROOT)}: {name}: {figure}" for name, figure in unfounded(page)] == []


def unfounded(page: Path) -> list[tuple[str, str]]:
    """(heading, figure) of figures on neither a linked page nor in an output on this one, even rounded."""
    text, said = page.read_text(), prose(page)
    figures: list[tuple[str, str]] = []
    lines, heads = said.splitlines(), [k for k, line in enumerate(said.splitlines()) if line.startswith("#")]
    for first, last in pairwise([0, *heads, len(lines)]):
        section, spoken = (
            "\n".join(text.splitlines()[first:last]),
            re.sub(r"`[^`\n]*`", "", "\n".join(lines[first:last])),
        )
        if SAID.search(section):
            continue
        known = {
            float(number.replace(",", ""))
            for at in (page, *(page.parent / link for link in LINK.findall(section)))
            for number in NUMBER.findall(measured(at))
        }
        for figure in FIGURE.finditer(spoken):
            number = next(filter(None, figure.groups())).replace(",", "")
            digits = len(number.partition(".")[2])
            if not any(abs(float(number) - exact) <= 0.501 * 10**-digits for exact in known):
                figures.append((section.partition("\n")[0], figure[0]))
    return figures


@cache
def measured(page: Path) -> str:
    """What a page has of measured figures: all of a page of results, else what its commands print."""
    return (
        page.read_text()
        if page.parent.name == "results"
        else "\n".join(block.text for block in blocks(page) if block.does)
    )


def test_a_figure_of_nobodys_is_found(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "cpu.md").write_text("| 8.46 |")
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\nIt takes 8.5 ms, not 8.4 ms ([figures](results/cpu.md)).\n\n## B\n\nIt takes 8.5 ms.\n\n"
        "## C\n\nIt took 18 ms (commit 0123abc).\n\n## D\n\n<!-- figures: lfopt x -->\n\n19 ms.\n\n"
        "## E\n\n```\n$ lfopt x\n20 ms\n```\n\nAs said, 20 ms.\n"
    )
    assert unfounded(page) == [("# A", "8.4 ms"), ("## B", "8.5 ms")]
