"""Operators as plain loops give NumPy's results: types, ranks, layouts, whole maps and rings, no warnings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from codegen.emit import emit_c
from codegen.loops import elementwise
from codegen.source import Unsupported
from lfopt.app.compiled import plan_for_cpu
from lfopt.ir import Hardware
from tests.codegen.checked import run_checked
from tests.codegen.single_operators import (
    CHECKED,
    CTYPES,
    FLOATS,
    Constant,
    Net,
    Operand,
    agrees,
    expected,
    fixed,
    run,
    same,
    types_of,
    values,
)
from tests.operators import between_elements, bit_cast, cases

SHAPES: tuple[tuple[int, ...], ...] = ((), (5,), (3, 4), (2, 3, 4), (1, 3, 4, 5), (2, 3, 2, 2, 3))


# -- elementwise ---------------------------------------------------------------------------------------------

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "BitShift": [{"direction": "LEFT"}, {"direction": "RIGHT"}],
    "Gelu": [{}, {"approximate": "tanh"}],
    "IsInf": [
        {},
        {"detect_negative": 0},
        {"detect_positive": 0},
        {"detect_positive": 0, "detect_negative": 0},
    ],
    "Mod": [{"fmod": 0}, {"fmod": 1}],
    "Shrink": [{"bias": 0.25, "lambd": 1.5}],
    "ThresholdedRelu": [{"alpha": 0.5}],
    "LeakyRelu": [{"alpha": 0.3}],
}
COUNTS = {"Where": 3, "Clip": 3, "Max": 3, "Mean": 4, "Min": 2, "Sum": 3}


@pytest.mark.parametrize("part", range(4))
def test_elementwise_operators_give_what_numpy_gives_on_every_type(part: int, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(part), Net()
    for kind in [*elementwise.PLAIN, *elementwise.FOLDED, *elementwise.REAL, *elementwise.FUNCTIONS][part::4]:
        for dtype in types_of(kind):
            for attributes in VARIANTS.get(kind, [{}]):
                if attributes.get("fmod") == 0 and dtype in FLOATS:
                    continue  # ONNX has none
                shape = SHAPES[rng.integers(len(SHAPES))]
                schema = onnx.defs.get_schema(kind)
                count = COUNTS.get(kind, schema.min_input)
                operands = [
                    values(rng, dtype, shape),
                    *(values(rng, dtype, broadcast(rng, shape)) for _ in range(count - 1)),
                ]
                if kind == "Where":
                    operands[0] = values(rng, "bool", operands[0].shape)
                elif kind == "Clip":
                    operands[1:] = [np.array(low, dtype) for low in (1, 3)]
                elif kind == "Pow":
                    operands[1] = np.asarray(rng.integers(0, 20, operands[1].shape), dtype)
                net.add(kind, *operands, **attributes)
    agrees(net, tmp_path)


def broadcast(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that can be broadcast to another."""
    return tuple(
        1 if rng.random() < 0.3 else extent
        for extent in shape[int(rng.integers(len(shape) + 1)) if rng.random() < 0.3 else 0 :]
    )


def test_casts_are_those_of_numpy(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for source in CTYPES:
        for to in CTYPES:
            x = values(rng, source, (60,))
            if source in FLOATS and "int" in to:  # of what does not fit, NumPy makes one thing or another
                x = np.linspace(-400, 400, 60, dtype=source)
                x[:7] = [70000, 3e9, 1e10, -1e10, np.nan, np.inf, -np.inf] if to == "int64" else [70000] * 7
            net.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
            net.add("CastLike", x.reshape(3, 20), np.zeros(2, to))
    agrees(net, tmp_path)


def test_what_is_not_a_number_survives_bounds(tmp_path: Path) -> None:
    net, x = Net(), np.array([np.nan, -2, 0.5, 2, np.inf], np.float32)
    low, high = np.array(0, np.float32), np.array(1, np.float32)
    for operands in ((x, low, high), (x, None, high), (x, low), (x, Constant(low), Constant(high)), (x,)):
        net.add("Clip", *operands)
    for kind in ("Max", "Min"):
        net.add(kind, x.astype(np.float64), x[::-1].astype(np.float64))
    net.add("Relu", x)
    agrees(net, tmp_path)


def test_given_statistics_normalize_a_batch(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for dtype in FLOATS:
        for shape in ((4, 3), (2, 3, 5), (2, 3, 4, 5), (1, 3, 2, 2, 2)):
            x, given = (
                rng.standard_normal(shape).astype(dtype),
                [rng.random(3).astype(dtype) + 0.1 for _ in range(4)],
            )
            net.add("BatchNormalization", x, *map(Constant, given), epsilon=1e-3)
            net.add("BatchNormalization", x, *given)
    agrees(net, tmp_path)


# -- moving --------------------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, rank: int) -> np.ndarray:
    dtype = str(rng.choice([*CTYPES]))
    return values(rng, dtype, tuple(int(n) for n in rng.integers(1, 6, rank)))


def sliced(rng: np.random.Generator, extent: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice that is not empty."""
    start, step = int(rng.integers(extent)), int(rng.choice([-3, -2, -1, 1, 2]))
    stop = (
        int(rng.integers(start + 1, extent + 3))
        if step > 0
        else int(rng.integers(-extent - 3, start - extent))
    )
    return start - int(rng.choice([0, extent])), stop, step


def moved(net: Net, rng: np.random.Generator, rank: int) -> None:
    """Every operator that moves elements, on a map of that rank."""
    x = draw(rng, rank)
    axis = int(rng.integers(-rank, rank))
    k = axis % rank
    longer = [
        values(
            rng, x.dtype.name, tuple(n + (a == k) * int(rng.integers(0, 3)) for a, n in enumerate(x.shape))
        )
        for _ in range(2)
    ]
    net.add("Concat", x, Constant(longer[0]), longer[1], axis=axis)
    if x.shape[k] > 2:
        first = int(rng.integers(1, x.shape[k] - 1))
        net.add(
            "Split",
            x,
            fixed(first, 1, x.shape[k] - first - 1),
            outputs=3,
            hidden=(1,) if rng.random() < 0.5 else (),
            axis=axis,
        )
    starts, stops, steps = zip(*(sliced(rng, n) for n in x.shape), strict=True)
    net.add("Slice", x, fixed(*starts), fixed(*stops), fixed(*range(rank)), fixed(*steps))
    net.add("Transpose", x, perm=[int(a) for a in rng.permutation(rank)])
    net.add("Expand", x, fixed(*(int(rng.integers(2, 4)) if n == 1 else n for n in (1, *x.shape))))
    net.add("Tile", x, fixed(*rng.integers(1, 4, rank)))
    amounts = [int(n) for n in rng.integers(-1, 4, 2 * rank)]
    amounts = [max(n, 0) if x.shape[a % rank] < 3 else n for a, n in enumerate(amounts)]
    net.add("Pad", x, fixed(*amounts), values(rng, x.dtype.name, ()))
    net.add("Pad", x, fixed(2, 1), None, fixed(axis))
    for mode in ("edge", "reflect", "wrap"):
        net.add("Pad", x, fixed(*np.minimum(amounts, np.tile(x.shape, 2) - 1).clip(0)), mode=mode)
    indices = rng.integers(
        -x.shape[k], x.shape[k], tuple(rng.integers(1, 4, int(rng.integers(0, 3))))
    ).astype(rng.choice(["int32", "int64"]))
    net.add("Gather", x, np.asarray(indices), axis=axis)
    net.add("Gather", Constant(x), Constant(np.asarray(indices)), axis=axis)
    taken = tuple(
        int(rng.integers(1, 6)) if a == k else int(rng.integers(1, n + 1)) for a, n in enumerate(x.shape)
    )
    net.add("GatherElements", x, rng.integers(-x.shape[k], x.shape[k], taken), axis=axis)
    batch = int(rng.integers(0, min(rank, 2)))
    depth = int(rng.integers(1, rank - batch + 1))
    picked = np.stack(
        [rng.integers(-n, n, (*x.shape[:batch], 3)) for n in x.shape[batch : batch + depth]], -1
    )
    net.add("GatherND", x, picked, batch_dims=batch)
    if rank >= 2:
        net.add("Trilu", x, upper=int(rng.integers(2)))
        net.add("Trilu", x, rng.choice([np.array(int(rng.integers(-3, 4)))], ()), upper=int(rng.integers(2)))


@pytest.mark.parametrize("rank", range(1, 6))
def test_elements_arrive_where_they_belong(rank: int, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(rank), Net()
    for _ in range(2):
        moved(net, rng, rank)
    agrees(net, tmp_path)


def test_blocks_become_pixels_and_back(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for dtype in ("float64", "uint8", "int32"):
        for mode in ("DCR", "CRD"):
            net.add("DepthToSpace", values(rng, dtype, (2, 12, 3, 4)), blocksize=2, mode=mode)
        net.add("SpaceToDepth", values(rng, dtype, (2, 3, 6, 9)), blocksize=3)
    agrees(net, tmp_path)


def test_updates_are_scattered_in_order(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for reduction in ("none", "add", "mul", "max", "min"):
        for dtype in ("float32", "float64", "int8", "uint64"):
            x, new, parts = (
                np.nan_to_num(values(rng, dtype, shape)) for shape in ((4, 3, 5), (2, 3, 4), (6, 5))
            )
            indices = (
                rng.integers(-3, 3, (2, 3, 4))
                if reduction != "none"
                else np.argsort(rng.random((2, 3, 4)), 1)
            )
            net.add("ScatterElements", x, indices, new, axis=1, reduction=reduction)
            pairs = (
                rng.integers(-3, 3, (6, 2))
                if reduction != "none"
                else np.argwhere(np.ones((4, 3)))[rng.permutation(12)[:6]]
            )
            net.add("ScatterND", x, pairs, parts, reduction=reduction)
    agrees(net, tmp_path)


def test_indices_that_lie_outside_touch_nothing_outside(tmp_path: Path) -> None:
    """NumPy refuses such indices; C reads the nearest element, and writes nothing."""
    x, far, net = np.arange(4, dtype=np.float32), np.array([-(2**62), -5, 4, 2**62]), Net()
    net.add("Gather", x, far)
    net.add("GatherElements", x, far)
    net.add("GatherND", x, far[:, None])
    net.add("ScatterElements", x, far, -x)
    net.add("ScatterND", x, far[:, None], -x)
    graph = net.graph
    source = emit_c(plan_for_cpu(graph, Hardware(1 << 16, element_bytes=4)), graph, "c99")
    outputs = run(replace(source, flags=CHECKED), net, tmp_path / "checked")
    for name, output in outputs.items():
        assert output.tolist() == ([0, 1, 2, 3] if name.startswith("scatter") else [0, 0, 3, 3]), name


# -- between elements ----------------------------------------------------------------------------------------


def test_maps_are_read_between_their_elements(tmp_path: Path) -> None:
    """Some regions and offsets lie beyond the map or are NaN: C touches nothing outside."""
    rng, net = np.random.default_rng(0), Net()
    for family in (between_elements, bit_cast):
        for case in cases(family, 12):
            operands = [
                Constant(v) if i in case.constant and v is not None else v
                for i, v in enumerate(case.operands)
            ]
            net.add(case.kind, *operands, **dict[str, Any](case.attributes))
    agrees(net, tmp_path)
    odd = Net()
    x, far = (
        np.ones((1, 2, 3, 4), np.float32),
        rng.choice(np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1], np.float32), (1, 8, 4, 5)),
    )
    odd.add("DeformConv", x, Constant(np.ones((2, 2, 2, 2), np.float32)), far, pads=[1, 1, 1, 1])
    odd.add(
        "RoiAlign",
        x,
        far.reshape(-1, 4),
        rng.integers(-9, 9, 40),
        output_height=2,
        output_width=2,
        sampling_ratio=2,
    )
    source = emit_c(plan_for_cpu(odd.graph, Hardware(1 << 16, element_bytes=4)), odd.graph, "c99")
    outputs = run(replace(source, flags=CHECKED), odd, tmp_path / "odd")
    assert all(np.isfinite(values).all() for values in outputs.values())


# -- searching -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", range(1, 6))
def test_the_best_elements_are_found(rank: int, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(rank), Net()
    for _ in range(5):
        dtype, axis = str(rng.choice(types_of("TopK"))), int(rng.integers(-rank, rank))
        x = values(rng, dtype, tuple(int(n) for n in rng.integers(1, 7, rank)))
        count, largest = int(rng.integers(1, x.shape[axis] + 1)), int(rng.integers(2))
        net.add("TopK", x, fixed(count), outputs=2, axis=axis, largest=largest)
        for kind in ("ArgMax", "ArgMin"):
            net.add(kind, x, axis=axis, keepdims=int(rng.integers(2)), select_last_index=int(rng.integers(2)))
        net.add("Hardmax", values(rng, str(rng.choice(FLOATS)), x.shape), axis=axis)
        summed = rng.integers(-99, 99, x.shape).astype(
            str(rng.choice(["float32", "float64", "int32", "int64", "uint32", "uint64"]))
        )
        net.add(
            "CumSum",
            summed,
            Constant(np.array(axis)),
            exclusive=int(rng.integers(2)),
            reverse=int(rng.integers(2)),
        )
    agrees(net, tmp_path)


# -- rings ---------------------------------------------------------------------------------------------------


def conv(net: Net, rng: np.random.Generator, x: Operand, channels: int, outputs: int, kernel: int = 3) -> str:
    weights = rng.standard_normal((outputs, channels, kernel, kernel)).astype(np.float32) / (3 * channels)
    return net.add("Conv", x, Constant(weights), pads=[kernel // 2] * 4)


Rows = Callable[[Net, np.random.Generator, str], str]


def _pad(net: Net, rng: np.random.Generator, x: str) -> str:
    grown = net.add("Pad", x, fixed(0, 1, 3, -1, 0, -1, -2, 2), Constant(np.array(0.5, np.float32)))
    return net.add(
        "Slice",
        net.add("Pad", grown, fixed(0, 0, 0, 0, 0, 0, 4, 0), mode="edge"),
        fixed(5),
        fixed(17),
        fixed(2),
    )


def _reflect(net: Net, rng: np.random.Generator, x: str) -> str:
    grown = net.add("Pad", x, fixed(0, 0, 2, 2, 0, 0, 1, 1), mode="reflect")
    return net.add("Slice", grown, fixed(1, 0), fixed(13, 10), fixed(2, 3))


def _split(net: Net, rng: np.random.Generator, x: str) -> str:
    return net.add(
        "Concat", net.add("Split", x, fixed(5, 7), outputs=2, axis=2), f"split{len(net.nodes) - 1}_1", axis=2
    )


def _halves(net: Net, rng: np.random.Generator, x: str) -> str:
    left = net.add("Split", x, fixed(1, 2, 1), outputs=3, hidden=(1,), axis=1)
    right = f"split{len(net.nodes) - 1}_2"
    return net.add(
        "Concat", right, Constant(rng.standard_normal((1, 2, 12, 10)).astype(np.float32)), left, axis=1
    )


def _topk(net: Net, rng: np.random.Generator, x: str) -> str:
    best = net.add("TopK", x, fixed(12), outputs=2, axis=2)
    return net.add("TopK", best, fixed(4), outputs=2, axis=1, largest=0)


def _scatter(net: Net, rng: np.random.Generator, x: str) -> str:
    numbers = rng.standard_normal((1, 2, 1, 10)).astype(np.float32)
    rows = net.add(
        "ScatterND",
        x,
        Constant(np.array([[0, 1, 3], [0, 2, -1]])),
        Constant(numbers[0, :, 0]),
        reduction="add",
    )
    return net.add("ScatterElements", rows, Constant(np.full(numbers.shape, 4)), Constant(numbers), axis=2)


def _masked(net: Net, rng: np.random.Generator, x: str) -> str:
    bounds = Constant(rng.standard_normal((1, 4, 12, 10)).astype(np.float32))
    return net.add("Where", net.add("Greater", x, bounds), net.add("Trilu", x, Constant(np.array(1))), x)


def _integers(net: Net, rng: np.random.Generator, x: str) -> str:
    whole = net.add("Cast", net.add("Mul", x, Constant(np.array(9, np.float32))), to=onnx.TensorProto.INT32)
    return net.add("Cast", net.add("Mod", whole, Constant(np.array(5, np.int32))), to=onnx.TensorProto.FLOAT)


def _sequence(net: Net, rng: np.random.Generator, x: str) -> str:
    """A view as [1, 12, 40]: rows stay, but lie otherwise."""
    flat = net.add("Reshape", net.add("Transpose", x, perm=[0, 2, 1, 3]), fixed(1, 12, 40))
    flat = net.add("Slice", net.add("Softsign", flat), fixed(-1), fixed(-99), fixed(2), fixed(-1))
    return net.add(
        "Transpose", net.add("Reshape", net.add("Atan", flat), fixed(1, 12, 4, 10)), perm=[0, 2, 1, 3]
    )


BETWEEN: dict[str, Rows] = {  # from rows of 12 of 4 channels by 10 pixels to such rows
    "arg": lambda net, rng, x: net.add(
        "Add", x, net.add("Cast", net.add("ArgMax", x, axis=2), to=onnx.TensorProto.FLOAT)
    ),
    "cumsum": lambda net, rng, x: net.add(
        "CumSum", net.add("CumSum", x, fixed(3), reverse=1), fixed(2), exclusive=1
    ),
    "gather": lambda net, rng, x: net.add(
        "Gather", net.add("Gather", x, fixed(3, -3, 0, 1), axis=1), fixed(*range(9, -1, -1)), axis=3
    ),
    "halves": _halves,
    "hardmax": lambda net, rng, x: net.add(
        "Add", net.add("Hardmax", x, axis=2), net.add("Hardmax", x, axis=1)
    ),
    "integers": _integers,
    "masked": _masked,
    "pad": _pad,
    "reflect": _reflect,
    "rows": lambda net, rng, x: net.add(
        "Gather", net.add("Tile", x, fixed(1, 1, 2, 1)), fixed(*range(20, 8, -1)), axis=2
    ),
    "scatter": _scatter,
    "sequence": _sequence,
    "slice": lambda net, rng, x: net.add(
        "Slice", net.add("Concat", x, x, axis=2), fixed(18, 8), fixed(2, -11), fixed(2, 3), fixed(-1, -1)
    ),
    "split": _split,
    "topk": _topk,
    "transpose": lambda net, rng, x: net.add(
        "Transpose", net.add("Transpose", x, perm=[0, 3, 2, 1]), perm=[0, 3, 2, 1]
    ),
}


@pytest.mark.parametrize("part", range(4))
def test_rows_in_rings_are_what_whole_maps_are(part: int, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(part), Net()
    for name in [*BETWEEN][part::4]:
        first = conv(net, rng, rng.standard_normal((1, 3, 12, 10)).astype(np.float32), 3, 4)
        conv(net, rng, BETWEEN[name](net, rng, net.add("Softsign", first)), 4, 2)
    plan = agrees(net, tmp_path, kib=16)
    fused = [group for group in plan.groups if group.mode == "lbdf" and len(group.nodes) > 1]
    assert len(fused) >= 4
    assert any(0 < place.slots < 12 for group in fused for place in group.places)


# -- sanitizers ----------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_nothing_is_touched_beside_the_arrays(tmp_path: Path) -> None:
    """Under the address sanitizer, with memory of exactly the size that is asked for."""
    rng, net = np.random.default_rng(0), Net()
    for rows in BETWEEN.values():
        first = conv(net, rng, rng.standard_normal((1, 3, 12, 10)).astype(np.float32), 3, 4)
        conv(net, rng, rows(net, rng, net.add("Softsign", first)), 4, 1)
    moved(net, rng, 3)
    graph = net.graph
    source = emit_c(plan_for_cpu(graph, Hardware(1 << 15, element_bytes=4)), graph, "c99")
    same(run_checked(source, net.inputs, graph.outputs, tmp_path), expected(net, graph))


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "operands"), [("RandomUniformLike", []), ("CumSum", [np.array(0)])])
def test_what_loops_do_not_know_is_refused_by_name(kind: str, operands: list[np.ndarray]) -> None:
    net = Net()
    net.add(kind, np.ones((1, 1, 3, 3), np.float32), *operands)
    graph = net.graph
    with pytest.raises(Unsupported, match=rf"node '{kind} 0' \({kind}\): found"):
        emit_c(plan_for_cpu(graph, Hardware(1 << 16, element_bytes=4)), graph)
