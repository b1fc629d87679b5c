"""Modules of the exporter's network that operators are from, as one short text for a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lfopt.ir.graph import Operator

SOURCES = 3  # lines of a group that are named


def parts(path: str) -> list[str]:
    """Components of a module path, or of a name that is one.

    >>> parts("layer1.0.conv"), parts("/layer1/conv/Conv")
    (['layer1', '0', 'conv'], ['layer1', 'conv', 'Conv'])
    """
    return [part for part in path.replace("/", ".").split(".") if part]


def common(paths: Sequence[Sequence[str]]) -> int:
    """How many components all paths begin with alike."""
    return next(
        (k for k, along in enumerate(zip(*paths, strict=False)) if len(set(along)) > 1),
        min(map(len, paths), default=0),
    )


def source_of(operators: Iterable[Operator]) -> str:
    """The lines of source that operators are from, each once, up to three.

    Empty where the exporter says nothing.

    >>> from lfopt.ir import Origin
    >>> lines = ["net.py:3", "net.py:3", "net.py:7"]
    >>> source_of(Operator(s, "Add", (), (), {}, "", Origin("m", s)) for s in lines)
    'net.py:3, net.py:7'
    """
    lines = list(dict.fromkeys(operator.origin.source for operator in operators if operator.origin.source))
    return ", ".join(lines[:SOURCES]) + (f" and {len(lines) - SOURCES} more" if len(lines) > SOURCES else "")


def scope_of(operators: Iterable[Operator]) -> str:
    """The module that operators are from; of several the first and the last, behind what they have in common.

    Empty where the exporter says nothing.

    >>> from lfopt.ir import Origin
    >>> scopes = (["a.b", "a.b"], ["a.0.x", "a.0.z.y"], ["a", "b"])
    >>> [scope_of(Operator(s, "Add", (), (), {}, "", Origin(s)) for s in names) for names in scopes]
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
