"""What prose names is there: every module, class, function, field, folder and test in backticks.

A rename is followed in the documentation too.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from lfopt.zoo.cells import PREFIX
from tests.docs.pages import DOCS, ROOT, blocks, pages, prose

CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"^[\w./-]+\.(?:py|md|yaml|svh?|toml|cff|ipynb)$")
FOLDER = re.compile(r"^[\w-]+(?:/[\w-]+)*/$")
DOTTED = re.compile(r"^(?:lfopt|search|simulator|codegen|explainers|hw_rtl|benchmarks)(?:\.\w+)+$")
WORD = re.compile(r"^[A-Za-z]\w*(?=\(|$)")
OURS = re.compile(r"[a-z][A-Z]|[A-Z]{2,}$|_")  # CamelCase of several parts, CONSTANTS, snake_case
SOURCES = (
    "lfopt",
    "search",
    "simulator",
    "codegen",
    "explainers",
    "hw_rtl",
    "benchmarks",
    "configs",
    "examples",
    "Makefile",
    "pyproject.toml",
    "docs/reference.py",
)
THEIRS = {"DaskCluster", "length_resized"}  # of dask-kubernetes, of ONNX's specification
PROSE = [page for page in pages() if page.parent.name != "results"]  # results say what was so at their commit


@cache
def files() -> tuple[str, ...]:
    """All files of the repository."""
    said = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    paths = (
        said.stdout.splitlines()
        if said.returncode == 0
        else [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    )
    return tuple(paths)


@cache
def words(*folders: str) -> frozenset[str]:
    """Every word of the sources in these folders."""
    suffixes = (
        ".py",
        ".pyi",
        ".c",
        ".h",
        ".sv",
        ".svh",
        ".cpp",
        ".yaml",
        ".toml",
        ".sh",
        "Makefile",
        ".j2",
        ".html",
        ".js",
    )
    texts = (
        (ROOT / name).read_text(errors="replace")
        for name in files()
        if name.startswith(folders) and name.endswith(suffixes)
    )
    return frozenset(word for text in texts for word in re.findall(r"\w+", text)) | {
        Path(name).stem for name in files() if name.startswith(folders)
    }


def shown(page: Path) -> frozenset[str]:
    """Words of the blocks of a page, which other tests hold against what is printed."""
    return frozenset(word for block in blocks(page) for word in re.findall(r"\w+", block.text))


def missing(name: str, page: Path) -> bool:
    """Whether something in backticks looks like ours and is not there."""
    if FILE.match(name):
        return (
            not any(known == name or known.endswith(f"/{name}") for known in files())
            and not (page.parent / name).exists()
        )
    if FOLDER.match(name):
        ours = any(known.startswith(f"{name.partition('/')[0]}/") for known in files())
        return ours and not any(known.startswith(name) or f"/{name}" in known for known in files())
    if DOTTED.match(name):
        return not _resolved(name.split("."))
    match = WORD.match(name)
    if match and OURS.search(match[0]):
        return match[0].removeprefix(PREFIX) not in THEIRS | shown(page) | words(
            *("tests",) * match[0].startswith("test_"), *SOURCES
        )
    return False


def _resolved(parts: list[str]) -> bool:
    """A module, and words that it has; or a field of `search` in a configuration or a plan."""
    for k in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:k])
        source = next(
            (
                path
                for path in (module.with_suffix(".py"), module / "__init__.py", module / "__init__.pyi")
                if path.is_file()
            ),
            None,
        )
        if source is not None:
            text = source.read_text() + (
                (module / "__init__.pyi").read_text() if (module / "__init__.pyi").is_file() else ""
            )
            if all(re.search(rf"\b{part}\b", text) for part in parts[k:]):
                return True
            break
    return parts[0] == "search" and all(
        re.search(
            rf"\b{part}\b",
            (ROOT / "lfopt/app/config.py").read_text() + (ROOT / "lfopt/ir/plan.py").read_text(),
        )
        for part in parts[1:]
    )


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    absent = [
        f"{page.relative_to(ROOT)}:{k}: {name}"
        for k, line in enumerate(prose(page).splitlines(), 1)
        for name in CODE.findall(line)
        if missing(name, page)
    ]
    assert absent == []


def test_names_of_before_a_rename_are_found() -> None:
    page = DOCS / "index.md"
    for name in (
        "lfopt/planning/no_such.py",
        "stagez.py",
        "lfopt.ir.NoSuch",
        "search.no_such",
        "GroupCostz",
        "no_such_field",
        "NO_SUCH_TABLE",
        "lfopt/no_such/",
        "nosuch_of(x)",
    ):
        assert missing(name, page), name
    for name in (
        "lfopt/planning/line_buffers/lbdf.py",
        "stages.py",
        "lfopt.ir",
        "search.slack",
        "GroupCosts",
        "dram_bytes",
        "MODES",
        "codegen/loops/",
        "Conv",
        "hopes_of(figures, doubt=0)",
    ):
        assert not missing(name, page), name
