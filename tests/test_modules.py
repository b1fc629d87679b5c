"""Modules import one another in no circle, and `lfopt.planning` lies in packages of a size to oversee."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.test_names import PRODUCT, ROOT, modules

PLANNING = ROOT / "lfopt" / "planning"
MOST_MODULES = 12  # of a package of planning, beside its `__init__.py`
MOST_LINES = 500  # of a module of planning
QUOTED = re.compile(r'"{3}.*?"{3}', re.DOTALL)
# a whole import, wherever it stands: modules are long, and to parse all of them takes seconds
IMPORT = re.compile(r"^[ \t]*(from [\w.]+ import (?:\([^)]*\)|[^\n(]+)|import [\w., ]+)", re.MULTILINE)


def name_of(path: Path) -> str:
    """The dotted name of a module or package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str, package: str) -> Iterator[str]:
    """Dotted names that a module of this package imports: at its top, in functions, for type checkers alone.

    `from a import b` gives `a.b`, which need not be a module.
    """
    for node in ast.parse("\n".join(IMPORT.findall(QUOTED.sub("", text)))).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def imports(texts: Mapping[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Per module: the modules that it imports, of those that are given with their texts and packages.

    Python runs the packages that a module lies in before it. They are not counted: a package may give out
    names of its modules, none of which asks for the package.
    """
    graph: dict[str, set[str]] = {}
    for name, (text, package) in texts.items():
        targets = (
            target if target in texts else target.rpartition(".")[0] for target in imported(text, package)
        )
        graph[name] = {target for target in targets if target in texts and target != name}
    return graph


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each imports the next, the last one the first; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = imports(
        {
            name_of(path): (path.read_text("utf-8"), name_of(path.parent / "__init__.py"))
            for path in modules(*PRODUCT)
        }
    )
    assert len(graph) > 500
    assert "lfopt.ir" in graph["lfopt.planning.modes.mode"]
    assert circle(graph) == []


def test_circles_are_found_however_they_are_imported() -> None:
    parts = {
        "p.one": "from p.two import x",
        "p.two": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import three",
        "p.three": "def f():\n    import p.four",
        "p.four": "class A:\n    def f(self):\n        from .one import (\n            y,\n        )",
        "p.five": "from p import one, f",
        "p": "from p.five import f",
    }
    texts = {name: (text, "p") for name, text in parts.items()}
    del texts["p.five"]
    found = circle(imports(texts))
    assert found[0] == found[-1]
    assert {*found} == {"p.one", "p.two", "p.three", "p.four"}
    del texts["p.two"]
    assert circle(imports(texts)) == []
    texts["p.five"] = parts["p.five"], "p"
    assert {*circle(imports(texts))} == {"p", "p.five"}


def test_packages_of_planning_have_few_modules_and_these_few_lines() -> None:
    packages = [PLANNING, *(path.parent for path in sorted(PLANNING.rglob("*/__init__.py")))]
    assert len(packages) > 10
    sizes = {name_of(folder / "__init__.py"): len([*folder.glob("*.py")]) - 1 for folder in packages}
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}
    assert {path.parent for path in PLANNING.rglob("*.py")} == {*packages}
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in PLANNING.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
