"""Equal constants become one, whatever made them: folding, unrolled loops, operators written out, rewriting.

Equal is what has the same type, shape and quantization, and the same bits. Constants whose values are absent
are compared by what they are worked out from, where they are made (`lfopt.frontend.load`,
`MutableGraph.add_constant`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from lfopt.ir import Graph, Tensor

SAMPLED = 16  # elements that are compared before all are
# bytes up to which an array that repeats itself (broadcast) is written out to be compared
WRITTEN_OUT = 1 << 28


def merge_equal_constants(graph: Graph) -> Graph:
    """The graph in which operators read the first of equal constants; outputs keep theirs."""
    first = equal_constants(graph.tensors, graph.constants, graph.outputs)
    if not first:
        return graph
    operators = tuple(
        replace(op, inputs=tuple(first.get(name, name) for name in op.inputs))
        if not first.keys().isdisjoint(op.inputs)
        else op
        for op in graph.operators
    )
    return replace(graph, operators=operators).without_unused()


def equal_constants(
    tensors: Mapping[str, Tensor], constants: Mapping[str, np.ndarray | None], kept: Collection[str] = ()
) -> dict[str, str]:
    """Per constant that equals an earlier one, by name: the first of them.

    `constants`: arrays shaped as their tensors; `kept`: names left out.
    """
    alike = defaultdict[object, list[str]](list)
    for name, value in constants.items():
        if value is not None and name not in kept and value.dtype.kind not in "OSU":
            tensor = tensors[name]
            alike[tensor.dtype, tensor.shape, tensor.quantization, _sample(value)].append(name)
    first = dict[str, str]()
    for names in alike.values():
        for same in _by_bits(names, constants):
            first |= dict.fromkeys(same[1:], same[0])
    return first


def _by_bits(names: list[str], constants: Mapping[str, np.ndarray | None]) -> Iterable[list[str]]:
    """Names of constants of one shape and type, in lists of equal ones."""
    if len(names) == 1:
        return (names,)
    equal = defaultdict[object, list[str]](list)
    for name in names:
        value = constants[name]
        assert value is not None
        equal[id(value) if value.nbytes > WRITTEN_OUT and 0 in value.strides else _digest(value)].append(name)
    return equal.values()


def _sample(value: np.ndarray) -> bytes:
    step = max(value.size // SAMPLED, 1)
    return (value.reshape(-1)[::step] if value.flags.c_contiguous else value.flat[::step]).tobytes()


def _digest(value: np.ndarray) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(value):
        digest.update(part)
    return digest.digest()


def _parts(value: np.ndarray) -> Iterator[bytes | memoryview]:
    """Contents in C order; of a large array that does not lie so, row by row."""
    if value.flags.c_contiguous:
        yield value.reshape(-1).view(np.uint8).data if value.size else b""
    elif value.ndim > 1 and value.nbytes > 1 << 20:
        for row in value:
            yield from _parts(row)
    else:
        yield value.tobytes()
