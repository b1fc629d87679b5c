"""Entries of a group: the same steps and places in another order, so that its first loads come early.

They run while the group before it still computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lfopt.ir import Loop, Node, PlannedGroup, Transfer, leaves, parameter_runs

SHORT = 8  # steps of a loop whose first iteration may be written apart


def entries(group: PlannedGroup, align: int) -> Iterator[PlannedGroup]:
    """The group as it is, with its constants first, with its places in reverse, and with both.

    `align`: bytes that addresses of places are multiples of.
    """
    yield group
    early = constants_first(group.steps)
    turned = _from_the_end(group, align)
    if early != group.steps:
        yield replace(group, steps=early)
    if turned is not None:
        yield turned
        if early != group.steps:
            yield replace(turned, steps=early)


def constants_first(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The steps, with parameters and constants first of the loads before the first step of another kind.

    They wait for no other group, as maps do. A step that reads what is on chip may be the last one to do so:
    what is loaded behind it may lie in the same place, and stays behind it. Where it stands in a short loop,
    the first iteration is written apart.
    """
    head = list[Node]()
    rest = list(nodes)
    while rest:
        node = rest[0]
        if isinstance(node, Loop) and not all(map(_is_load, leaves((node,)))):
            if sum(1 for _ in leaves((node,))) > SHORT:
                break
            rest[:1] = _first_turn_apart(node)
        elif isinstance(node, Loop) or _is_load(node):
            head.append(rest.pop(0))
        else:
            break
    constants = [node for node in head if isinstance(node, Transfer) and node.kind in ("parameter", "weight")]
    maps = [node for node in head if node not in constants]
    if head[: len(constants)] == constants or len([*parameter_runs((*constants, *maps))]) != len(
        [*parameter_runs(head)]
    ):
        return tuple(nodes)
    return (*constants, *maps, *rest)


def _is_load(step: Node) -> bool:
    """Whether a step puts something on chip, and reads nothing there, as a gather does."""
    return isinstance(step, Transfer) and not step.store and not step.gather


def _from_the_end(group: PlannedGroup, align: int) -> PlannedGroup | None:
    """The group with places in reverse order, in the same bytes; None where addresses do not allow it."""
    end = max((place.end for place in group.places), default=0)
    places = tuple(replace(place, address=end - place.end) for place in group.places)
    if min((place.address for place in places), default=0) or any(place.address % align for place in places):
        return None
    return replace(group, places=places)


def _first_turn_apart(loop: Loop) -> tuple[Node, ...]:
    """The steps of the first iteration, and a loop of the others."""
    first = tuple(_outside(node) for node in loop.body)
    if loop.count == 1:
        return first
    others = tuple(_next_turn(node) for node in loop.body)
    if loop.count > 2:
        return (*first, Loop(loop.count - 1, others))
    return (*first, *map(_outside, others))


def _outside(node: Node) -> Node:
    """A node of a loop as it runs in the first iteration, outside of it."""
    if isinstance(node, Loop):
        return Loop(node.count, tuple(map(_outside, node.body)))
    return replace(node, strides=node.strides[1:])


def _next_turn(node: Node) -> Node:
    """A node of a loop that begins an iteration later."""
    if isinstance(node, Loop):
        return Loop(node.count, tuple(map(_next_turn, node.body)))
    if node.strides:
        return replace(node.moved(node.strides[0]), strides=node.strides)
    return node
