"""The documentation matches the code: generated tables, a section per command, links that resolve."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lfopt.app.chips import energy_fields, hardware_fields
from lfopt.app.command_line import COMMANDS
from lfopt.ir import Hardware
from lfopt.ir.listing import parse
from lfopt.planning import MODES
from tests.docs.pages import DOCS, ROOT, blocks


def reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_the_code() -> None:
    module = reference()
    late = [
        path.name
        for path in sorted(DOCS.rglob("*.md"))
        if module.renewed(path.read_text()) != path.read_text()
    ]
    assert late == [], "python docs/reference.py writes them anew"


def test_every_field_of_a_hardware_description_has_a_unit() -> None:
    page = (DOCS / "hardware.md").read_text()
    assert [name for name in Hardware.__dataclass_fields__ if f"| `{name}` |" not in page] == []
    assert all(field.unit for field in (*hardware_fields(), *energy_fields()))


def test_every_mode_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "modes.md").read_text(), re.MULTILINE)
    assert rows == list(MODES)


def test_every_command_has_a_section() -> None:
    sections = re.findall(r"^## (.+)$", (DOCS / "commands.md").read_text(), re.MULTILINE)
    assert sections == list(COMMANDS)


def test_the_grammar_reads_the_steps_of_the_page() -> None:
    text = next(block.text for block in blocks(DOCS / "plan-format.md") if block.text.startswith("load "))
    steps = parse([line for line in text.splitlines() if line != "..."])
    assert len(steps) == 4


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    """Every link leads somewhere."""
    pytest.importorskip("myst_parser")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_links_of_the_readme_lead_somewhere() -> None:
    """Sphinx sees those of the other pages."""
    links = re.findall(r"\]\(([^)#:]+)[^):]*\)", (ROOT / "README.md").read_text())
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_page_is_behind_a_door_of_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    listed = set(re.findall(r"\]\(([\w/-]+\.(?:md|ipynb))", index))
    there = {
        str(path.relative_to(DOCS))
        for pattern in ("*.md", "*/*.md", "*.ipynb")
        for path in DOCS.glob(pattern)
        if path.parent.name != "results"
    }
    assert there - {"index.md"} == listed - {"results/index.md"}


def test_the_citation_is_that_of_the_file() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    page = (DOCS / "citing.md").read_text()
    for name in ("title", "version", "license"):
        assert f"{{{cited[name]}}}" in page
    assert cited["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
