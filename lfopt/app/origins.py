"""Modules of the exported network beside names of operators: a short text per group, and in tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.console import RenderableType

from lfopt.app.screen import out, spread
from lfopt.ir import Graph, Operator
from lfopt.ir.origins import scope_of

ROOM = 56  # characters: with less for both, names stand alone


def by_name(graph: Graph) -> Mapping[str, Operator]:
    """Operators of which the exporter says where they are from."""
    return {operator.name: operator for operator in graph.operators if operator.origin.scope}


def scope_of_named(known: Mapping[str, Operator], names: Iterable[str]) -> str:
    """Module that operators, given by name, are from: see `scope_of`."""
    return scope_of(known[name] for name in names if name in known)


def named_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    modules: Sequence[str],
    *,
    left: Sequence[int] = (),
    bold: Collection[int] = (),
) -> RenderableType:
    """A table as `spread` makes it, with names of operators in its first column.

    Beside them stand the modules that they are from, where any is known and the screen has room.
    """
    others = sum(
        max([len(column), *(len(row[k]) for row in rows)]) + 2 for k, column in enumerate(columns) if k
    )
    if not any(modules) or out.width - others < ROOM:
        return spread(columns, rows, left=left, bold=bold)
    wide = [(name, module, *rest) for (name, *rest), module in zip(rows, modules, strict=True)]
    return spread(
        (columns[0], "module", *columns[1:]), wide, stretch=(0, 1), left=[k + 1 for k in left], bold=bold
    )
