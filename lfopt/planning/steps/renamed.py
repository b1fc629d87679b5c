"""Places and steps of a group, for another one of the same structure: the same but for names."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lfopt.ir import Carry, Loop, Node, Place, Transfer
from lfopt.planning.steps.place_names import SUFFIXES


@dataclass(frozen=True, slots=True)
class Renaming:
    """New names by old ones; an operator and a tensor may have one name, and two new ones."""

    operators: Mapping[str, str] = field(default_factory=dict[str, str])
    tensors: Mapping[str, str] = field(default_factory=dict[str, str])


def renamed(
    places: Sequence[Place], nodes: Sequence[Node], names: Renaming, tensors: Container[str]
) -> tuple[tuple[Place, ...], tuple[Node, ...]] | None:
    """Places and steps with other names of operators and tensors; None if a place's name is unknown.

    `tensors`: names that only places of those tensors may have.
    """
    called = [_called(place.name, names, tensors) for place in places]
    if not all(called):
        return None
    return tuple(
        replace(place, name=name) for place, name in zip(places, called, strict=True) if name
    ), _nodes(nodes, names)


def _called(name: str, names: Renaming, tensors: Container[str]) -> str | None:
    """The new name of a place, by what it is called after; None where that is unknown.

    A tensor, sums of an operator, something beside a tensor, or itself.
    """
    if name in names.tensors:
        return names.tensors[name]
    new = name
    if name.startswith("sums of "):
        operator = names.operators.get(name.removeprefix("sums of "))
        new = operator and f"sums of {operator}"
    for suffix in SUFFIXES:
        tensor = name.removesuffix(suffix)
        if tensor != name and tensor in names.tensors:
            new = names.tensors[tensor] + suffix
    if not new or new.endswith("~") or new in tensors:
        return None
    return new


def _nodes(nodes: Sequence[Node], names: Renaming) -> tuple[Node, ...]:
    return tuple(_node(node, names) for node in nodes)


def _node(node: Node, names: Renaming) -> Node:
    if isinstance(node, Loop):
        return Loop(node.count, _nodes(node.body, names))
    if isinstance(node, Transfer):
        gather = names.operators[node.gather] if node.gather else ""
        of = names.operators if node.kind == "parameter" else names.tensors
        return replace(node, tensor=of[node.tensor], gather=gather)
    if isinstance(node, Carry):
        return replace(node, tensor=names.tensors[node.tensor])
    then = tuple(names.operators[name] for name in node.then)
    return replace(node, operator=names.operators[node.operator], then=then)
