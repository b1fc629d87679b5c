"""Iterations that differ only in where they are, as loops made from the first two of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from lfopt.ir import Loop, Node, fold


def rolled(keys: Sequence[Hashable], body: Callable[[int], Sequence[Node]]) -> Iterator[Node]:
    """The body for one number after the other; where neighbours have equal keys, as a loop.

    Bodies of equal keys side by side differ only in where their steps are, and those move by the same amount
    from each to the next.
    """
    first = 0
    while first < len(keys):
        stop = first + 1
        while stop < len(keys) and keys[stop] == keys[first]:
            stop += 1
        if stop - first == 1:
            yield from body(first)
        elif folded := fold([tuple(body(first)), tuple(body(first + 1))]):
            (loop,) = folded
            assert isinstance(loop, Loop), "iterations differ in more than where they are"
            yield Loop(stop - first, loop.body)
        first = stop
