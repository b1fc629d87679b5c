"""One concept, one name; one name, one concept."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("lfopt", "search", "simulator", "codegen", "explainers", "hw_rtl")

# What the recount holds beside planning, which it must not import: the same concept, under the same name.
RECOUNTED = {"LineBuffered"}

# Names of codegen, simulator, hw_rtl, explainers and lfopt.app that still stand for several things: their own change empties this set.
PENDING = frozenset(
    "Barrier Block Chip Command Counted Cut Entry Failure Groups Item Job Judged Mark Model Moved Need Network Order Parameters Part Piece Question "
    "Read Reduction Result Ring Run Settings Source Stair Trace Verdict Weights Window Work".split()
)

# Packages whose locals say what they hold; the others follow.
NAMED = ("lfopt/planning", "lfopt/ops", "lfopt/ir", "lfopt/isa", "lfopt/fusion", "lfopt/rewrite", "lfopt/frontend", "lfopt/zoo", "search")


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_a_class_name_stands_for_one_thing() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in modules(*PRODUCT):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text("utf-8"), re.MULTILINE):
            defined[name].append(path.relative_to(ROOT).as_posix())
    several = {name: where for name, where in defined.items() if len(where) > 1}
    for name in RECOUNTED & several.keys():
        elsewhere = [where for where in several.pop(name) if not where.startswith("simulator/recount/")]
        assert len(elsewhere) == 1, f"{name}: {elsewhere}"
    assert {name: where for name, where in several.items() if name not in PENDING} == {}
    assert several.keys() >= PENDING, f"no longer pending: {PENDING - several.keys()}"


def test_no_local_is_called_made_or_found() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules(*NAMED)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Name) and node.id in ("made", "found")) or (isinstance(node, ast.arg) and node.arg in ("made", "found"))
    ]
    assert vague == []
