"""One concept, one name; one name, one concept."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("lfopt", "search", "simulator", "codegen", "explainers", "hw_rtl")

# Packages whose locals say what they hold; the others follow.
NAMED = ("lfopt", "search", "simulator", "codegen", "explainers", "hw_rtl", "benchmarks")


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_a_class_name_stands_for_one_thing() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for path in modules(*PRODUCT):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text("utf-8"), re.MULTILINE):
            defined[name].append(path.relative_to(ROOT).as_posix())
    several = {name: where for name, where in defined.items() if len(where) > 1}
    assert several == {}


def names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Locals, parameters and functions, with their lines; not the fields of a class, which a file may
    have.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name | ast.arg | ast.FunctionDef):
            yield (
                (
                    child.id
                    if isinstance(child, ast.Name)
                    else child.arg
                    if isinstance(child, ast.arg)
                    else child.name
                ),
                child.lineno,
            )
        if not (isinstance(node, ast.ClassDef) and isinstance(child, ast.AnnAssign)):
            yield from names(child)


def test_nothing_is_called_made_or_found() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules(*NAMED)
        for name, line in names(ast.parse(path.read_text("utf-8")))
        if name in ("made", "found")
    ]
    assert vague == []
