"""Lines, and what docstrings of the product say."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_names import PRODUCT, ROOT, modules

COLUMNS = 110
CODE = "*.sv *.svh *.c *.h *.cpp *.js *.css *.html"  # ruff holds Python to it
ARRAY = re.compile(r"\bndarray\b|\bNDArray\b")
SHAPE = re.compile(r"[Ss]hape|scalar|elementwise|broadcast|extents|\[[\w.*]|\([\w*][^()]*,[^()]*\)|\(\w+\)")
INNER = {"AssertionError", "NotImplementedError", "StopIteration"}  # never a caller's business

Block = ast.stmt | ast.ExceptHandler | ast.match_case
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """What stands right within a module, definition, statement or branch; expressions are left out."""
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, Block))


def definitions(node: ast.AST, inside: tuple[Definition, ...] = ()) -> Iterator[tuple[Definition, ...]]:
    """Classes and functions of a module, each behind the classes and functions that it is in."""
    for child in statements(node):
        if isinstance(child, Definition):
            yield (*inside, child)
            yield from definitions(child, (*inside, child))
        else:
            yield from definitions(child, inside)


def public() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Public functions and methods of the product: where, and the docstrings of it and of its class.

    That of a command is its help, so the docstring of its module counts too.
    """
    for path in modules(*PRODUCT):
        tree = parsed(path)
        head = (ast.get_docstring(tree) or "") if path.parent.name == "commands" else ""
        for *around, function in definitions(tree):
            if isinstance(function, ast.ClassDef) or not all(
                isinstance(part, ast.ClassDef) for part in around
            ):
                continue
            if any(part.name.startswith("_") for part in (*around, function)):
                continue
            said = "\n".join([head, *(ast.get_docstring(part) or "" for part in (*around, function))])
            yield f"{path.relative_to(ROOT).as_posix()}:{function.lineno} {function.name}", function, said


def raised(function: ast.AST) -> Iterator[str]:
    """Names of exceptions that a function raises itself."""
    for node in statements(function):
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = error.attr if isinstance(error, ast.Attribute) else getattr(error, "id", "")
            if name[:1].isupper() and name not in INNER:
                yield name
        if not isinstance(node, Definition):
            yield from raised(node)


def test_lines_end_at_110_columns() -> None:
    files = subprocess.run(
        ["git", "ls-files", *CODE.split()], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert files
    long = [
        f"{name}:{number}"
        for name in files
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert long == []


def test_docstrings_begin_with_a_summary_on_one_line() -> None:
    long = []
    for path in modules(*PRODUCT):
        tree = parsed(path)
        for node in (tree, *(chain[-1] for chain in definitions(tree))):
            first = (ast.get_docstring(node) or "").partition("\n\n")[0]
            if "\n" in first:
                long.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}")
    assert long == []


def test_docstrings_name_what_is_raised() -> None:
    silent = [
        f"{where}: {name}"
        for where, function, said in public()
        for name in sorted(set(raised(function)))
        if not re.search(rf"\b{name}\b", said)
    ]
    assert silent == []


def test_docstrings_give_the_shapes_of_arrays() -> None:
    silent = []
    for where, function, said in public():
        arguments = function.args
        hints = [a.annotation for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        spelled = " ".join(ast.unparse(hint) for hint in (*hints, function.returns) if hint)
        if ARRAY.search(spelled) and not SHAPE.search(said):
            silent.append(where)
    assert silent == []
