"""Operators as the command line names them, made a group."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from lfopt.app.fates import Fate, fates_of
from lfopt.fusion import component, connected, convex_gap
from lfopt.ir import InvalidConfig
from lfopt.ops import OPAQUE, Dataflow, bits
from lfopt.ops.table import spec

CLOSE = 3  # names offered for one that is not known


def chosen(flow: Dataflow, text: str | Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """(mask of the group that --nodes names, notes on what was added, and on what names stand for).

    `text`: names and ranges A..B (all operators on paths from A to B), as a list or with commas between;
    names of the network that is planned, and of the file that it was loaded from. Whatever lies between the
    operators is added, and where they fall into parts, the shortest path from part to part. Raises
    InvalidConfig for names that nothing has or several operators came of, ranges without a path, and
    operators that run alone.
    """
    naming = _Naming(flow)
    notes = naming.notes
    named = 0
    for piece in naming.pieces(text):
        first, dots, last = piece.partition("..")
        if not dots or naming.knows(piece):
            named |= naming.mask(piece)
        else:
            named |= _between(flow, naming.mask(first.strip()), naming.mask(last.strip()), notes)
    if unknown := [i for i in bits(named) if flow.specs[i] is OPAQUE]:
        operator = flow.operators[unknown[0]]
        if named & (named - 1):
            raise InvalidConfig(
                f"--nodes: found {operator.name!r} ({operator.kind}), which lfopt does not know: it runs "
                "alone; accepted: others"
            )
        return named, tuple(notes)
    mask, joined = _connected(flow, named | convex_gap(flow, named))
    if between := convex_gap(flow, named):
        notes.append(f"--nodes: added what lies between them: {_listed(flow, between)}")
    if joined := joined & ~(named | between):
        notes.append(f"--nodes: added, because the operators are not connected: {_listed(flow, joined)}")
    return mask, tuple(notes)


class _Naming:
    """Finds what names stand for, and notes where that is not the operator of the name."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.fates = fates_of(flow)
        self.notes: list[str] = []

    def knows(self, name: str) -> bool:
        """Whether anything has, or had, this name."""
        return self.fate(name) is not None

    def fate(self, name: str) -> Fate | None:
        """What became of a name; None of one that nothing has or had."""
        return next((fate for fates in self.fates if (fate := fates.fate(name)) is not None), None)

    def pieces(self, text: str | Sequence[str]) -> Sequence[str]:
        """The names and ranges of a text; a name that has commas stays whole."""
        if not isinstance(text, str):
            return text or [""]
        if self.knows(text):
            return [text]
        return [piece.strip() for piece in text.split(",")]

    def mask(self, name: str) -> int:
        """The operators that a name stands for. Raises InvalidConfig."""
        position = self.flow.position
        fate = self.fate(name)
        if fate is None:
            known = dict.fromkeys(chain.from_iterable(fates.names for fates in self.fates))
            return 1 << operator_named(self.flow, position, name, known=known)
        if fate.operators and fate.said == "is an operator":
            (name,) = fate.operators
            i = position[name]
            first = self.flow.operators[i].name
            if first != name:
                self.notes.append(f"--nodes: {name} runs in one step with {first}")
            return 1 << i
        said = f"{name!r} {fate.said}"
        if fate.together or len(fate.operators) == 1:
            self.notes.append(f"--nodes: {said}")
            return sum(1 << i for i in {position[part] for part in fate.operators})
        accepted = "one of these" if fate.operators else f"others, e.g. {self.flow.operators[0].name}"
        raise InvalidConfig(f"--nodes: {said}; accepted: {accepted}")


def operator_named(
    flow: Dataflow,
    index: Mapping[str, int],
    name: str,
    where: str = "--nodes",
    known: Iterable[str] | None = None,
) -> int:
    """Index of the operator of this name.

    Raises InvalidConfig, with the names that are close, for what `index` does not have; `where` begins the
    message. `known`: names that may be close; None: those of `index`.
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
    candidates = [*(index if known is None else known)]
    lower = name.lower()
    close = [other for other in candidates if lower and lower in other.lower()]
    close = sorted(close, key=len)[:CLOSE] or difflib.get_close_matches(name, candidates, CLOSE, 0.5)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    else:
        hint = f"accepted: names of operators, e.g. {flow.operators[0].name}"
    raise InvalidConfig(f"{where}: found {name!r}, which is no operator of {flow.graph.name}; {hint}")


def _between(flow: Dataflow, first: int, last: int, notes: list[str]) -> int:
    """All operators on paths from one set to another, ends included."""
    behind_first = _reach(flow.descendants, first)
    behind_last = _reach(flow.descendants, last)
    if behind_first & last:
        return behind_first & _reach(flow.ancestors, last)
    one = flow.operators[next(bits(first))].name
    other = flow.operators[next(bits(last))].name
    if behind_last & first:
        notes.append(f"--nodes: {other} comes before {one}")
        return behind_last & _reach(flow.ancestors, first)
    raise InvalidConfig(
        f"--nodes {one}..{other}: no path leads from one to the other; accepted: both with a comma "
        "between, or another range"
    )


def _reach(along: Sequence[int], mask: int) -> int:
    """A set with all that lies behind it, or before it."""
    reached = mask
    for i in bits(mask):
        reached |= along[i]
    return reached


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
