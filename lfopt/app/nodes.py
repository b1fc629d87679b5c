"""Operators as the command line names them, made a group."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from lfopt.fusion import component, connected, convex_gap
from lfopt.ir import InvalidConfig
from lfopt.ops import OPAQUE, Dataflow, bits
from lfopt.ops.table import spec

CLOSE = 3  # names offered for one that is not known


def chosen(flow: Dataflow, text: str | Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """(mask of the group that --nodes names, notes on what was added).

    `text`: names and ranges A..B (all operators on paths from A to B), as a list or with commas between.
    Whatever lies between the operators is added, and where they fall into parts, the shortest path from part
    to part. Raises InvalidConfig for names that no operator has, ranges without a path, and operators that
    run alone.
    """
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    notes: list[str] = []
    named = 0
    for piece in _pieces(text, index):
        first, dots, last = piece.partition("..")
        if piece in index or not dots:
            named |= 1 << operator_named(flow, index, piece)
        else:
            named |= _between(
                flow,
                operator_named(flow, index, first.strip()),
                operator_named(flow, index, last.strip()),
                notes,
            )
    if unknown := [i for i in bits(named) if flow.specs[i] is OPAQUE]:
        operator = flow.operators[unknown[0]]
        if named & (named - 1):
            raise InvalidConfig(
                f"--nodes: found {operator.name!r} ({operator.kind}), which lfopt does not know: it runs "
                "alone; accepted: others"
            )
        return named, ()
    mask, joined = _connected(flow, named | convex_gap(flow, named))
    if between := convex_gap(flow, named):
        notes.append(f"--nodes: added what lies between them: {_listed(flow, between)}")
    if joined := joined & ~(named | between):
        notes.append(f"--nodes: added, because the operators are not connected: {_listed(flow, joined)}")
    return mask, tuple(notes)


def _pieces(text: str | Sequence[str], index: Mapping[str, int]) -> Sequence[str]:
    if not isinstance(text, str):
        return text or [""]
    if text in index:
        return [text]
    return [piece.strip() for piece in text.split(",")]


def operator_named(flow: Dataflow, index: Mapping[str, int], name: str, where: str = "--nodes") -> int:
    """Index of the operator of this name.

    Raises InvalidConfig, with the names that are close, for what `index` does not have; `where` begins the
    message.
    """
    if name in index:
        return index[name]
    view = next(
        (
            operator
            for operator in flow.graph.operators
            if operator.name == name and spec(operator.kind, operator.domain).view
        ),
        None,
    )
    if view is not None:
        raise InvalidConfig(
            f"{where}: found {name!r}, which is a view ({view.kind}) and moves nothing; accepted: operators "
            "that compute"
        )
    lower = name.lower()
    close = [known for known in index if lower and lower in known.lower()]
    close = sorted(close, key=len)[:CLOSE] or difflib.get_close_matches(name, index, CLOSE, 0.5)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    else:
        hint = f"accepted: names of operators, e.g. {flow.operators[0].name}"
    raise InvalidConfig(f"{where}: found {name!r}, which is no operator of {flow.graph.name}; {hint}")


def _between(flow: Dataflow, first: int, last: int, notes: list[str]) -> int:
    a = first
    b = last
    if flow.ancestors[a] >> b & 1:
        a, b = b, a
        notes.append(f"--nodes: {flow.operators[a].name} comes before {flow.operators[b].name}")
    elif a != b and not flow.ancestors[b] >> a & 1:
        one = flow.operators[a].name
        other = flow.operators[b].name
        raise InvalidConfig(
            f"--nodes {one}..{other}: no path leads from one to the other; accepted: both with a comma "
            "between, or another range"
        )
    return (flow.descendants[a] | 1 << a) & (flow.ancestors[b] | 1 << b)


def _connected(flow: Dataflow, mask: int) -> tuple[int, int]:
    """A convex set made connected, and still convex; and what was added for that."""
    added = 0
    while not connected(flow.neighbours, mask):
        path = _shortest_path(flow, mask)
        if not path:
            raise InvalidConfig(
                "--nodes: the operators are connected neither by maps nor by what they read; accepted: "
                "operators that do"
            )
        more = path | convex_gap(flow, mask | path)
        mask = mask | more
        added = added | more
    return mask, added


def _shortest_path(flow: Dataflow, mask: int) -> int:
    """Mask of the fewest operators that join the part of the lowest operator to another; 0 if none do."""
    part = component(flow.neighbours, mask, mask & -mask)
    came = dict.fromkeys(bits(part), -1)
    waiting = [*came]
    for i in waiting:
        for j in bits(flow.neighbours[i]):
            if j in came:
                continue
            came[j] = i
            if mask >> j & 1:
                path = 0
                while (j := came[j]) >= 0 and not part >> j & 1:
                    path |= 1 << j
                return path
            waiting.append(j)
    return 0


def _listed(flow: Dataflow, mask: int, most: int = 4) -> str:
    names = flow.names(mask)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
