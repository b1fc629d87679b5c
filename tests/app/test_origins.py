"""Modules of the exporter's network stand beside names in tables, where there is room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from rich.table import Table

from codegen.emit import emit_c
from lfopt.app.compiled import plan_for_cpu
from lfopt.app.origins import named_table
from lfopt.app.report.stages import by_path
from lfopt.frontend import from_model
from lfopt.ir import Hardware, Origin
from lfopt.rewrite.simplify import simplify
from tests.frontend.exported import block


def test_generated_c_says_where_groups_are_from() -> None:
    graph = simplify(from_model(block()))
    plan = plan_for_cpu(graph, Hardware(1 << 18, element_bytes=4))
    code = emit_c(plan, graph, "c99").files["model.c"].decode()
    assert "/* group 0: layer1.0: conv .. relu (net.py:31) */\nstatic void group_0(" in code
    silent = replace(
        graph, operators=tuple(replace(operator, origin=Origin()) for operator in graph.operators)
    )
    assert "/* group" not in emit_c(plan, silent, "c99").files["model.c"].decode()


def test_commands_name_the_module_of_a_group_where_the_screen_is_wide(
    here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(block(), tmp_path / "m.onnx")
    monkeypatch.setenv("COLUMNS", "160")
    commands = (
        ("search", tmp_path / "m.onnx", "--buffer", "64KiB", "--out", tmp_path / "plan"),
        ("simulate", tmp_path / "plan"),
        ("inspect", tmp_path / "m.onnx", "--all-operators"),
    )
    for command in commands:
        assert "layer1.0" in here(*command).stdout, command
    monkeypatch.setenv("COLUMNS", "80")
    narrow = here("simulate", tmp_path / "plan").stdout
    assert "layer1.0" not in narrow and "node_conv2d .. node_relu" in narrow


def test_a_table_without_modules_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "130")
    shown = [
        named_table(("name", "bytes"), [("conv", "1"), ("relu", "2")], modules)
        for modules in (["", ""], ["net.conv", ""])
    ]
    tables = [table for table in shown if isinstance(table, Table)]
    assert [[column.header for column in table.columns] for table in tables] == [
        ["name", "bytes"],
        ["name", "module", "bytes"],
    ]


def test_stages_follow_modules_until_there_are_a_few() -> None:
    bert = [
        f"bert.encoder.layer.{k}.{part}"
        for k in range(12)
        for part in ("attention.query", "attention.key", "output")
    ]
    stages = by_path([path.split(".") for path in ("bert.embeddings", *bert, "bert.pooler")])
    assert list(dict.fromkeys(stages)) == ["embeddings", *(f"layer.{k}" for k in range(12)), "pooler"]
    assert by_path([[f"node_{k}"] for k in range(100)]) == []
    assert by_path([[], ["a"], []]) == ["", "a", ""]  # of operators whose names are dots alone
    twice = by_path([path.split(".") for path in ("a.norm", "b.norm", "a.x", "b.x")])
    assert len(set(twice)) == 4
