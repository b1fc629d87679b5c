"""Products of stacks of matrices, stacked along at most two axes.

A MatMul of rank 5 and more has its outer axes made one: equal work is then planned, executed and compiled
alike, whatever its rank. Reshapes move nothing.
"""

from __future__ import annotations

from math import prod

from onnx import NodeProto

from lfopt.frontend.builder import Builder

Shape = tuple[int, ...]
MOST = 4  # axes of a stack of matrices, as it is


def stacks(first: Shape, second: Shape) -> tuple[Shape, Shape] | None:
    """Both shapes with the outer axes made one; None where they are few, or some of them are broadcast.

    >>> stacks((2, 3, 4, 5, 6), (6, 7)), stacks((2, 3, 4, 5, 6), (2, 1, 4, 6, 7))
    (((6, 4, 5, 6), (6, 7)), None)
    """
    if max(len(first), len(second)) <= MOST or min(len(first), len(second)) < 2:
        return None
    outer = max(len(first), len(second)) - MOST + 1
    shapes = [(*(1,) * (outer + MOST - 1 - len(shape)), *shape) for shape in (first, second)]
    stack = tuple(max(pair) for pair in zip(*(shape[:outer] for shape in shapes), strict=True))
    if not all(shape[:outer] in (stack, (1,) * outer) for shape in shapes):
        return None
    merged = [(prod(shape[:outer]), *shape[outer:]) for shape in shapes]
    return (
        first if len(first) <= MOST else merged[0],
        second if len(second) <= MOST else merged[1],
    )


def matmul(build: Builder, node: NodeProto) -> list[str]:
    """A MatMul of the merged stacks, and its result in its own shape; only where `stacks` has them."""
    first, second = node.input
    shapes = build.shape(first), build.shape(second)
    merged = stacks(*shapes)
    assert merged is not None, "asked for only where stacks can be merged"
    product = build.run("MatMul", build.reshape(first, *merged[0]), build.reshape(second, *merged[1]))
    longest = max(map(len, shapes))
    outer = [(*(1,) * (longest - len(shape)), *shape)[:-2] for shape in shapes]
    stack = tuple(max(pair) for pair in zip(*outer, strict=True))
    return [build.reshape(product, *stack, shapes[0][-2], shapes[1][-1])]
