"""The notebook of the documentation does what it says: its cells, run one after the other by Python alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

NOTEBOOK = ROOT / "docs" / "guided-search.ipynb"


def test_the_notebook_is_plain_json_without_outputs() -> None:
    data = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert data["nbformat"] == 4
    for cell in data["cells"]:
        assert cell["cell_type"] in ("markdown", "code") and not cell.get("outputs")
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), str(NOTEBOOK), "exec")


@pytest.mark.slow
def test_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    said = capsys.readouterr().out
    assert "1000 graphs" in said and "the predictor is right in" in said
    assert (tmp_path / "why.svg").read_text().startswith("<?xml")
    assert names["found"].dram_bytes >= names["best"] > 0
