"""Plain documents (of JSON, of YAML), each field spoilt in every way: one change a document."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "negative": -1,
    "half": 0.5,
    "10**18": 10**18,
    "2**70": 1 << 70,
    "10**400": 10**400,
    "1e300": 1e300,
    "nan": float("nan"),
    "infinity": float("inf"),
    "text": "text",
    "empty text": "",
    "number as text": "16",
    "nul": "a\0b",
    "surrogate": "a\ud800b",
    "line break": "a\nb",
    "bell": "a\x1b]0;x\x07",
    "long text": "x" * 5000,
    "[]": [],
    "{}": {},
    "[1]": [1],
    "{text: 1}": {"text": 1},
    "deep": [[[[[[[[]]]]]]]],
}


class Mutation(NamedTuple):
    """A document, and what was done to it."""

    path: str  # of the field: a.0.b
    what: str
    document: Any


def mutations(document: Any) -> Iterator[Mutation]:
    """Each field and collection of a document: replaced by VALUES, nudged, deleted, repeated, renamed."""
    for keys in _paths(document):
        path = ".".join(map(str, keys))
        old = _at(document, keys)
        for what, value in VALUES.items():
            if type(value) is not type(old) or value != old:
                yield Mutation(path, what, _changed(document, keys, value))
        if type(old) is int:
            for by in (1, -1, 16, -16, 64):
                yield Mutation(path, f"{by:+}", _changed(document, keys, old + by))
            yield Mutation(path, "as float", _changed(document, keys, float(old)))
            yield Mutation(path, "as text", _changed(document, keys, str(old)))
        if isinstance(old, str):
            yield Mutation(path, "longer", _changed(document, keys, old + "x"))
            yield Mutation(path, "in a list", _changed(document, keys, [old]))
        if isinstance(old, list):
            for what, value in {
                "twice": old + old,
                "shorter": old[:-1],
                "backwards": old[::-1],
                "once more": [*old, *old[-1:]],
            }.items():
                if value != old:
                    yield Mutation(path, what, _changed(document, keys, value))
        if isinstance(old, dict):
            yield Mutation(path, "more", _changed(document, keys, {**old, "extra": 1}))
        if keys:
            holder = copy.deepcopy(document)
            del _at(holder, keys[:-1])[keys[-1]]
            yield Mutation(path, "deleted", holder)
            if isinstance(keys[-1], str):
                renamed = copy.deepcopy(holder)
                _at(renamed, keys[:-1])[keys[-1] + "x"] = old
                yield Mutation(path, "renamed", renamed)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*at, key))
    if isinstance(value, list):
        for k, inner in enumerate(value):
            yield from _paths(inner, (*at, k))


def _at(document: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        document = document[key]
    return document


def _changed(document: Any, keys: tuple[Any, ...], value: Any) -> Any:
    if not keys:
        return value
    changed = copy.deepcopy(document)
    _at(changed, keys[:-1])[keys[-1]] = value
    return changed
