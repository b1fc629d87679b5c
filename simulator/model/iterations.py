"""Sums over all iterations of loops, without a walk through them.

A step of a loop takes less where its window meets padding: in the first and the last iterations. Those in
between are alike, and are counted together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lfopt.ir import Loop, Node, Step
from lfopt.ir.schedule import distance

Runs = tuple[tuple[int, int], ...]  # (iterations that follow one another, value of the step in each)


def summed(nodes: Sequence[Node], value: Callable[[Step], int]) -> int:
    """Sum of a value over all steps that run.

    Exact if, along every loop, the value of a step changes in first and last iterations alone. Where it does
    not, all iterations between two that are alike count as if they were like them.
    """
    return _summed(nodes, (), value)


def _summed(nodes: Sequence[Node], counts: tuple[int, ...], value: Callable[[Step], int]) -> int:
    """`counts`: iterations of the loops around, outermost first."""
    total = 0
    for node in nodes:
        if isinstance(node, Loop):
            total += _summed(node.body, (*counts, node.count), value)
        else:
            total += sum(times * each for times, each in _runs(node, counts, (), value))
    return total


def _runs(
    step: Step, counts: tuple[int, ...], iterations: tuple[int, ...], value: Callable[[Step], int]
) -> Runs:
    """Values of a step in all iterations of the inner loops; `iterations`: those of the loops around them."""
    level = len(iterations)
    if level == len(counts):
        if not any(iterations):
            return ((1, value(step)),)
        return ((1, value(step.moved(distance(step, iterations)))),)
    count = counts[level]
    known: dict[int, Runs] = {}

    def runs(iteration: int) -> Runs:
        if iteration not in known:
            known[iteration] = _runs(step, counts, (*iterations, iteration), value)
        return known[iteration]

    if not step.strides or not any(step.strides[level]):
        return tuple((count * times, each) for times, each in runs(0))
    middle = count // 2
    first = _first_alike(runs, middle)
    last = _last_alike(runs, middle, count - 1)
    parts = [run for iteration in range(first) for run in runs(iteration)]
    parts += [((last - first + 1) * times, each) for times, each in runs(middle)]
    parts += [run for iteration in range(last + 1, count) for run in runs(iteration)]
    return tuple(parts)


def _first_alike(runs: Callable[[int], Runs], middle: int) -> int:
    """First iteration from which on all are like the one in the middle."""
    low, high = 0, middle
    while low < high:
        between = (low + high - 1) // 2
        if runs(between) == runs(middle):
            high = between
        else:
            low = between + 1
    return high


def _last_alike(runs: Callable[[int], Runs], middle: int, end: int) -> int:
    """Last iteration up to which all are like the one in the middle."""
    low, high = middle, end
    while low < high:
        between = (low + high + 2) // 2
        if runs(between) == runs(middle):
            low = between
        else:
            high = between - 1
    return low
