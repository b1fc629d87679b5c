"""Access patterns: pieces say, element by element, what operators that move data make."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import Graph, InvalidPlan, Tensor, whole
from lfopt.ops import Dataflow
from lfopt.ops.access import MOST_PIECES, AccessPatterns
from lfopt.ops.pieces import Access, AccessPiece, permuted, reshaped, runs_in, stored_whole
from lfopt.ops.reference import reference
from lfopt.planning.groups.accesses import readable

SEEDS = range(60)
SHAPES = [(1, 4, 6, 8), (2, 6, 4), (1, 12, 12), (8, 6), (1, 2, 3, 4, 6), (24,)]


class _Network:
    """A random chain of operators that move data, over two maps."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.movers: list[str] = []
        self.listed: list[str] = []
        shape = SHAPES[self.rng.integers(len(SHAPES))]
        self.inputs = {"a": shape, "b": shape}
        self.shapes: dict[str, tuple[int, ...]] = dict(self.inputs)

    def graph(self, length: int) -> Graph:
        for _ in range(length):
            steps = (self.transpose, self.slice, self.split, self.concat, self.reshape, self.gather)
            steps[self.rng.integers(len(steps))]()
        last = [name for name in self.shapes if name not in self.inputs]
        outputs = [
            helper.make_tensor_value_info(f"{name}_", TensorProto.FLOAT, self.shapes[name]) for name in last
        ]
        for name in last:
            self.nodes.append(helper.make_node("Relu", [name], [f"{name}_"], name=f"relu_{name}"))
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in self.inputs.items()
        ]
        graph = helper.make_graph(self.nodes, "movers", inputs, outputs, self.constants)
        return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))

    def any(self) -> str:
        names = list(self.shapes)
        return names[max(self.rng.integers(len(names)), self.rng.integers(len(names)))]

    def add(self, kind: str, inputs: list[str], shapes: list[tuple[int, ...]], **attributes: Any) -> None:
        outputs = [f"t{len(self.shapes) + k}" for k in range(len(shapes))]
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        self.shapes.update(zip(outputs, shapes, strict=True))
        if kind != "Reshape":
            self.movers.append(name)

    def ints(self, *values: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def transpose(self) -> None:
        x = self.any()
        order = self.rng.permutation(len(self.shapes[x])).tolist()
        self.add("Transpose", [x], [tuple(self.shapes[x][k] for k in order)], perm=order)

    def slice(self) -> None:
        x = self.any()
        shape = list(self.shapes[x])
        axis = int(self.rng.integers(len(shape)))
        start, stop = sorted(self.rng.choice(shape[axis] + 1, 2, replace=shape[axis] < 1).tolist())
        step = int(self.rng.choice([1, 1, 2, -1, -2]))
        indices = range(start, stop)[::step]
        bounds = (indices.start, indices.stop if indices.stop >= 0 else -(10**9))
        shape[axis] = len(indices)
        names = [self.ints(value) for value in (bounds[0], bounds[1], axis, step)]
        self.add("Slice", [x, *names], [tuple(shape)])

    def split(self) -> None:
        x = self.any()
        shape = self.shapes[x]
        axis = int(self.rng.integers(len(shape)))
        if shape[axis] < 2:
            return
        first = int(self.rng.integers(1, shape[axis]))
        sizes = (first, shape[axis] - first)
        shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        self.add("Split", [x, self.ints(*sizes)], shapes, axis=axis)

    def concat(self) -> None:
        x = self.any()
        shape = self.shapes[x]
        axis = int(self.rng.integers(len(shape)))
        others = [
            y
            for y, other in self.shapes.items()
            if len(other) == len(shape)
            and all(p == q for k, (p, q) in enumerate(zip(shape, other, strict=True)) if k != axis)
        ]
        y = others[self.rng.integers(len(others))]
        joined = (*shape[:axis], shape[axis] + self.shapes[y][axis], *shape[axis + 1 :])
        self.add("Concat", [x, y], [joined], axis=axis)

    def reshape(self) -> None:
        x = self.any()
        left, shape = prod(self.shapes[x]), list[int]()
        while left > 1 and len(shape) < 4:
            divisors = [k for k in range(2, left + 1) if left % k == 0]
            shape.append(int(divisors[self.rng.integers(len(divisors))]))
            left //= shape[-1]
        shape.append(left)
        self.add("Reshape", [x, self.ints(*shape)], [tuple(shape)])

    def gather(self) -> None:
        x = self.any()
        shape = self.shapes[x]
        axis = int(self.rng.integers(len(shape)))
        if self.rng.integers(2):
            name = f"c{len(self.constants)}"
            self.constants.append(
                numpy_helper.from_array(np.array(self.rng.integers(shape[axis]), np.int64), name)
            )
            result = (*shape[:axis], *shape[axis + 1 :])
        else:
            picked = self.rng.integers(shape[axis], size=3)
            name, result = self.ints(*picked.tolist()), (*shape[:axis], 3, *shape[axis + 1 :])
        if result:
            self.add("Gather", [x, name], [result], axis=axis)
            if len(result) == len(shape):  # by a list, which counts as weights
                self.listed.append(self.movers.pop())


def elements(piece: AccessPiece) -> np.ndarray:
    """Numbers of the elements of its source, shaped as the piece's box."""
    numbers = np.array(piece.offset)
    for loops in piece.loops:
        axis = np.zeros(1, int)
        for count, stride in loops:
            axis = (axis[:, None] + np.arange(count) * stride).reshape(-1)
        numbers = numbers[..., None] + axis
    return numbers


def gathered(access: Access, shape: tuple[int, ...], stored: dict[str, np.ndarray]) -> np.ndarray:
    """What the pieces read; every element of the tensor must be in one piece alone."""
    values, times = np.zeros(shape, np.float32), np.zeros(shape, int)
    for piece in access:
        where = tuple(slice(*span) for span in piece.box)
        values[where] = stored[piece.source].reshape(-1)[elements(piece)]
        times[where] += 1
    assert (times == 1).all()
    return values


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_are_what_the_operators_make(seed: int) -> None:
    """Whichever of the operators are read through, and whichever are executed."""
    network = _Network(seed)
    graph = network.graph(1 + seed % 9)
    feeds = {
        name: network.rng.normal(size=shape).astype(np.float32) for name, shape in network.inputs.items()
    }
    known = {operator.name for operator in graph.operators}
    movers = [name for name in network.movers if name in known]
    wanted = reference(graph, feeds, everything=True)
    for name in known.intersection(network.listed):
        with pytest.raises(InvalidPlan, match="cannot be read through"):
            AccessPatterns.through(graph, {name})
    for through in _choices(movers, network.rng):
        accesses = AccessPatterns.through(graph, through)
        for name, access in accesses.known.items():
            shape = graph.shape(name)
            stored = feeds | wanted
            assert (gathered(access, shape, stored) == wanted[name]).all()
            assert through.isdisjoint(_makers(graph, accesses.sources(name)))
            assert runs_in(access, whole(shape))[0] >= _runs(access, shape)


def _choices(movers: list[str], rng: np.random.Generator) -> Iterator[set[str]]:
    yield set(movers)
    for _ in range(3):
        yield {name for name in movers if rng.integers(2)}


def _makers(graph: Graph, names: frozenset[str]) -> list[str]:
    return [op.name for op in graph.operators if names.intersection(op.outputs)]


def _runs(access: Access, shape: tuple[int, ...]) -> int:
    """Runs of elements side by side, piece by piece."""
    numbers = [np.sort(elements(piece).reshape(-1)) for piece in access if prod(shape)]
    return sum(1 + int((np.diff(own) != 1).sum()) for own in numbers)


def test_a_view_that_cuts_everything_apart_is_not_read_through() -> None:
    """A matrix turned, in rows of another length: each of its elements would be a piece."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (101, 103))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (101, 103))
    shape = numpy_helper.from_array(np.array([101, 103], np.int64), "shape")
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="turn"),
        helper.make_node("Reshape", ["t", "shape"], ["u"], name="view"),
        helper.make_node("Relu", ["u"], ["y"], name="relu"),
    ]
    model = helper.make_model(helper.make_graph(nodes, "turned", [x], [y], [shape]))
    graph = from_model(model)
    assert len(AccessPatterns.through(graph, ["turn"]).known["u"]) > MOST_PIECES
    assert readable(Dataflow.of(graph)) == 0


def test_maps_laid_out_anew_for_tokens_and_windows_lie_in_long_runs() -> None:
    """An image as tokens, in memory that lies row after row, and windows of a map of pixels."""
    image, tokens = Tensor("x", (1, 64, 8, 6), "float32"), (1, 48, 64)
    flat = reshaped(stored_whole(image, by_rows=True), image.shape, (1, 64, 48))
    turned = permuted(flat, (0, 2, 1))
    assert len(turned) == 1
    assert runs_in(turned, whole(tokens)) == (1, 64 * 48)
    assert runs_in(turned, ((0, 1), (6, 12), (0, 64))) == (1, 64 * 6)  # a row of the image
    assert runs_in(turned, ((0, 1), (6, 7), (0, 64))) == (64, 63 * 6 + 1)  # one of its pixels
