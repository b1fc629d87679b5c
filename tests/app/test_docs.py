"""The documentation says what the code does: its tables, its commands, and one network at every stage."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lfopt.app.chips import energy_fields, hardware_fields
from lfopt.app.cli import COMMANDS
from lfopt.ir import Hardware
from lfopt.ir.listing import parse

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BUILT = ("lfopt rtl run",)  # commands that need the accelerator built


def reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks of a page."""
    return [(language, text) for language, text in FENCED.findall((DOCS / f"{page}.md").read_text())]


def test_tables_are_those_of_the_code() -> None:
    module = reference()
    late = [path.name for path in sorted(DOCS.glob("*.md")) if module.renewed(path.read_text()) != path.read_text()]
    assert late == [], "python docs/reference.py writes them anew"


def test_every_field_of_a_hardware_description_has_a_unit() -> None:
    page = (DOCS / "hardware.md").read_text()
    assert [name for name in Hardware.__dataclass_fields__ if f"| `{name}` |" not in page] == []
    assert all(field.unit for field in (*hardware_fields(), *energy_fields()))


def test_every_command_has_a_section() -> None:
    sections = re.findall(r"^## (.+)$", (DOCS / "commands.md").read_text(), re.MULTILINE)
    assert sections == list(COMMANDS)


def test_the_grammar_reads_the_steps_of_the_page() -> None:
    text = next(text for _, text in blocks("plan-format") if text.startswith("load "))
    steps = parse([line for line in text.splitlines() if line != "..."])
    assert len(steps) == 4


def test_the_traced_network_is_what_the_page_says(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the architecture page gives the lines that it shows; `...` stands for others."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    blocks_of_page = blocks("architecture")
    exec(next(text for language, text in blocks_of_page if language == "python"), {})
    here("quantize", "block.onnx", "-o", "block_int8.onnx")
    shown = [text for _, text in blocks_of_page if text.startswith("$ lfopt ")]
    assert len(shown) == 6
    for text in shown:
        if text.startswith(tuple(f"$ {command}" for command in BUILT)):
            continue
        output = ""
        expected: list[str] = []
        for line in text.splitlines():
            if line.startswith("$ lfopt "):
                done = here(*line.split()[2:])
                assert done.returncode == 0, done.stderr
                output += done.stdout
            elif line.startswith("$ cat "):
                output += Path(line.split()[2]).read_text()
            elif line != "...":
                expected.append(line.strip())
        printed = iter(line.strip() for line in output.splitlines())
        missing = next((line for line in expected if line not in printed), None)  # in order
        assert missing is None, f"{text.splitlines()[0]}: {missing!r} is not in\n{output}"
    steps = next(text for _, text in blocks_of_page if text.startswith("load image"))
    assert steps.split("\n") == here("simulate", "plan", "--group", "0").stdout.partition("-> 5.0\n")[2].split("\n")


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    """Every link leads somewhere."""
    pytest.importorskip("myst_parser")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
