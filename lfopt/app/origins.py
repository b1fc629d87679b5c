"""Modules of the exporter's network beside names of operators: one short text for a group, and tables that have it where there is room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.console import RenderableType

from lfopt.app.screen import out, spread
from lfopt.ir import Graph, Operator

ROOM = 56  # characters: with less for both, names stand alone


def parts(path: str) -> list[str]:
    """Components of a module path, or of a name that is one.

    >>> parts("layer1.0.conv"), parts("/layer1/conv/Conv")
    (['layer1', '0', 'conv'], ['layer1', 'conv', 'Conv'])
    """
    return [part for part in path.replace("/", ".").split(".") if part]


def common(paths: Sequence[Sequence[str]]) -> int:
    """How many components all paths begin with alike."""
    return next((k for k, along in enumerate(zip(*paths, strict=False)) if len(set(along)) > 1), min(map(len, paths), default=0))


def scope_of(operators: Iterable[Operator]) -> str:
    """The module that operators are from; of several the first and the last, behind what they have in common. Empty where the exporter says nothing.

    >>> from lfopt.ir import Origin
    >>> [scope_of(Operator(s, "Add", (), (), {}, "", Origin(s)) for s in names) for names in (["a.b", "a.b"], ["a.0.x", "a.0.z.y"], ["a", "b"])]
    ['a.b', 'a.0: x .. z.y', 'a .. b']
    """
    known = [parts(operator.origin.scope) for operator in operators if operator.origin.scope]
    ends = known[:1] if all(path == known[0] for path in known) else [known[0], known[-1]]
    if not ends:
        return ""
    if len(ends) == 1 or ends[0] == ends[1]:
        return ".".join(ends[0])
    alike = min(common(ends), len(ends[0]) - 1, len(ends[1]) - 1)
    head = ".".join(ends[0][:alike])
    return f"{head}{': ' * bool(head)}{' .. '.join('.'.join(end[alike:]) for end in ends)}"


def by_name(graph: Graph) -> Mapping[str, Operator]:
    """Operators of which the exporter says where they are from."""
    return {operator.name: operator for operator in graph.operators if operator.origin.scope}


def scope_of_named(known: Mapping[str, Operator], names: Iterable[str]) -> str:
    """As `scope_of`, of operators by name."""
    return scope_of(known[name] for name in names if name in known)


def named_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], modules: Sequence[str], *, left: Sequence[int] = (), bold: Collection[int] = ()
) -> RenderableType:
    """As `spread`: names are in the first column. Beside them stand the modules that they are from, where any is known and the screen has room."""
    others = sum(max([len(column), *(len(row[k]) for row in rows)]) + 2 for k, column in enumerate(columns) if k)
    if not any(modules) or out.width - others < ROOM:
        return spread(columns, rows, left=left, bold=bold)
    wide = [(name, module, *rest) for (name, *rest), module in zip(rows, modules, strict=True)]
    return spread((columns[0], "module", *columns[1:]), wide, stretch=(0, 1), left=[k + 1 for k in left], bold=bold)
