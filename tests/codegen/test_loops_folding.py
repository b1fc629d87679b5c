"""Plain loops that fold elements give NumPy's results, whole maps or row by row.

They are contractions, windows, reductions, normalizations and Resize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from codegen.emit import emit_c
from codegen.loops import reducing
from lfopt.app.compiled import plan_for_cpu
from lfopt.ir import Hardware
from tests.codegen.checked import run_checked
from tests.codegen.single_operators import Constant, Net, Operand, agrees, expected, fixed, same, types_of

FLOATS = ("float32", "float64")


def normal(rng: np.random.Generator, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def maybe(rng: np.random.Generator, values: np.ndarray) -> Operand:
    """A constant, or an input of the network."""
    return Constant(values) if rng.random() < 0.6 else values


def several(rng: np.random.Generator, rank: int, low: int, high: int) -> list[int]:
    return [int(n) for n in rng.integers(low, high, rank)]


# -- contractions --------------------------------------------------------------------------------------------


def window(rng: np.random.Generator, rank: int, kernel: Sequence[int]) -> dict[str, Any]:
    """Attributes of a window, pads less than the kernel."""
    attributes: dict[str, Any] = {
        "kernel_shape": [*kernel],
        "strides": several(rng, rank, 1, 4),
        "dilations": several(rng, rank, 1, 3),
    }
    how = rng.random()
    if how < 0.2:
        attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    elif how < 0.8:
        attributes["pads"] = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
    return attributes


def convolved(
    net: Net, rng: np.random.Generator, rank: int, dtype: str, group: int, read: int, outputs: int
) -> None:
    kernel, extents = several(rng, rank, 1, 4), several(rng, rank, 6, 10)
    x = normal(rng, (int(rng.integers(1, 3)), group * read, *extents), dtype)
    weights = normal(rng, (group * outputs, read, *kernel), dtype) / np.sqrt(read * np.prod(kernel)).astype(
        dtype
    )
    bias = [maybe(rng, normal(rng, (group * outputs,), dtype))] if rng.random() < 0.6 else []
    net.add("Conv", x, maybe(rng, weights), *bias, group=group, **window(rng, rank, kernel))


def scattered(
    net: Net, rng: np.random.Generator, rank: int, dtype: str, group: int, read: int, outputs: int
) -> None:
    kernel, extents = several(rng, rank, 2, 4), several(rng, rank, 3, 6)
    x = normal(rng, (int(rng.integers(1, 3)), group * read, *extents), dtype)
    weights = normal(rng, (group * read, outputs, *kernel), dtype) / np.sqrt(read).astype(dtype)
    bias = [maybe(rng, normal(rng, (group * outputs,), dtype))] if rng.random() < 0.6 else []
    attributes = window(rng, rank, kernel)
    strides, dilations = attributes["strides"], attributes["dilations"]
    if rng.random() < 0.4:
        attributes["output_padding"] = [
            int(rng.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True)
        ]
    elif "auto_pad" not in attributes and rng.random() < 0.4:
        del attributes["strides"], attributes["dilations"]
        attributes.pop("pads", None)
        attributes["output_shape"] = [
            n + k - 1 - int(rng.integers(-1, 2)) for n, k in zip(extents, kernel, strict=True)
        ]
    if attributes.get("auto_pad") == "VALID":
        del attributes["auto_pad"]
    net.add("ConvTranspose", x, maybe(rng, weights), *bias, group=group, **attributes)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_any_rank_group_and_type(rank: int, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(rank), Net()
    for make in (convolved, scattered):
        for group, read, outputs in ((1, 3, 2), (1, 5, 19), (2, 3, 17), (3, 1, 2), (4, 1, 1), (1, 2, 70)):
            for dtype in ("float32", *FLOATS):
                make(net, rng, rank, dtype, group, read, outputs)
    agrees(net, tmp_path)


def test_matrix_products_of_any_type(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    shapes = (
        ((3,), (3,)), ((2, 3), (3, 4)), ((3,), (2, 3, 4)), ((2, 5, 3), (3,)), ((2, 1, 4, 3), (5, 3, 20)),
        ((1, 2, 4, 3), (2, 2, 3, 150)), ((1, 6, 5), (1, 5, 33)), ((2, 1, 2, 1, 3), (3, 1, 3, 2)),
    )  # fmt: skip
    for a, b in shapes:
        for dtype in ("float32", str(rng.choice(["float64", "int32", "int64", "uint32", "uint64"]))):
            operands = [
                (9 * normal(rng, shape)).astype(dtype) if dtype not in FLOATS else normal(rng, shape, dtype)
                for shape in (a, b)
            ]
            net.add("MatMul", maybe(rng, operands[0]), operands[1])
            net.add("MatMul", operands[0], maybe(rng, operands[1]))
    for dtype in ("float32", "float64", "int32", "uint64"):
        for flipped, turned in ((0, 0), (0, 1), (1, 0), (1, 1)):
            a, b = (
                40 * normal(rng, shape) for shape in ((4, 3)[:: 1 - 2 * flipped], (3, 21)[:: 1 - 2 * turned])
            )
            a, b = (np.abs(x).astype(dtype) if dtype.startswith("u") else x.astype(dtype) for x in (a, b))
            c = (
                []
                if rng.random() < 0.3
                else [maybe(rng, np.ones(((), (21,), (4, 1), (4, 21))[int(rng.integers(4))], dtype))]
            )
            scales: dict[str, Any] = {"alpha": 0.5, "beta": 2.0} if rng.random() < 0.5 else {}
            net.add("Gemm", a, maybe(rng, b), *c, transA=flipped, transB=turned, **scales)
    agrees(net, tmp_path)


def test_sums_of_products_by_letters(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    equations = (
        "ij->ji ii->i ii i,i bij,bjk->bik bik,bjk->bij i,j->ij ...ij,...jk->...ik bi...->b... "
        "ab,bc,cd->da bhwc,hkc->bhwk"
    )
    for equation in equations.split():
        for dtype in ("float32", "float64", "int32"):
            extents = {letter: int(rng.integers(2, 5)) for letter in "abcdhijk"} | {"k": 18, "w": 3}
            terms = equation.split("->")[0].replace("...", "xy").split(",")
            extents |= {"x": 2, "y": 3}
            net.add(
                "Einsum",
                *((5 * normal(rng, [extents[c] for c in term])).astype(dtype) for term in terms),
                equation=equation,
            )
    net.add(
        "Einsum",
        normal(rng, (1, 3, 2, 4)),
        normal(rng, (2, 3, 4, 5)),
        equation="... i j , ... j k -> ... i k",
    )
    net.add("Einsum", normal(rng, (3, 2)), normal(rng, (2, 5)), equation="zb,ba")
    net.add("Einsum", normal(rng, (2, 3, 2, 4)), normal(rng, (2, 1, 4, 5)), equation="...ij,...jk->...ik")
    agrees(net, tmp_path)


# -- windows and reductions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools_of_any_rank_and_type(rank: int, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(rank), Net()
    for kind in ("MaxPool", "AveragePool", "LpPool"):
        for dtype in (*FLOATS, *(["int8", "uint8"] if kind == "MaxPool" else [])):
            for _ in range(4):
                kernel = several(rng, rank, 1, 4)
                attributes = window(rng, rank, kernel)
                attributes["ceil_mode"] = int(rng.integers(2))
                if kind == "AveragePool":
                    attributes["count_include_pad"] = int(rng.integers(2))
                if kind == "LpPool":
                    attributes["p"] = int(rng.integers(1, 4))
                outputs = int(rng.integers(1, 3)) if kind == "MaxPool" else 1
                attributes |= {"storage_order": int(rng.integers(2))} if outputs > 1 else {}
                x = 20 * normal(rng, (2, 3, *several(rng, rank, 6, 10)))
                net.add(
                    kind, (np.abs(x) if dtype == "uint8" else x).astype(dtype), outputs=outputs, **attributes
                )
    for kind in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        for dtype in FLOATS:
            net.add(kind, normal(rng, (2, 3, *several(rng, rank, 2, 6)), dtype))
    agrees(net, tmp_path)


def test_reductions_on_every_type(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for kind in [name for name in reducing.LOOPS if name.startswith("Reduce")]:
        for dtype in types_of(kind):
            rank = int(rng.integers(1, 6))
            axes = [int(a) for a in rng.permutation(rank)[: int(rng.integers(1, rank + 1))]]
            shape = several(rng, rank, 1, 5)
            x = (
                rng.random(shape) < 0.5
                if dtype == "bool"
                else rng.integers(1, 4, shape)
                if dtype not in FLOATS
                else 0.5 + rng.random(shape)
            )
            keep = int(rng.integers(2))
            net.add(
                kind,
                np.asarray(x).astype(dtype),
                fixed(*(a - rank * int(rng.integers(2)) for a in axes)),
                keepdims=keep,
            )
            net.add(
                kind, np.asarray(x).astype(dtype), keepdims=keep, noop_with_empty_axes=int(rng.integers(2))
            )
    agrees(net, tmp_path)


def test_extremes_of_what_is_no_number(tmp_path: Path) -> None:
    net, x = Net(), np.array([[1, np.nan, 2], [-np.inf, -np.inf, -np.inf], [np.inf, -1, np.inf]], np.float32)
    for kind in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"):
        net.add(kind, x, fixed(1))
    net.add("MaxPool", x[None], kernel_shape=[2])
    agrees(net, tmp_path)


def grouped(net: Net, x: Operand, shape: Sequence[int], scales: Sequence[Operand], groups: int) -> str:
    """A GroupNormalization, whose type and shape ONNX does not infer."""
    dtype = x.dtype if isinstance(x, np.ndarray) else np.dtype(np.float32)
    scaled = net.add("GroupNormalization", x, *scales, num_groups=groups)
    return net.add(
        "Reshape", net.add("Cast", scaled, to=helper.np_dtype_to_tensor_dtype(dtype)), fixed(*shape)
    )


def normalized(net: Net, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> None:
    """Every normalization on a map of that shape."""
    rank, channels = len(shape), shape[1]
    x, axis = normal(rng, shape, dtype), int(rng.integers(-rank, rank))
    for kind in ("Softmax", "LogSoftmax"):
        net.add(kind, 3 * x, axis=axis)
    net.add(
        "LpNormalization",
        np.where(np.arange(shape[-1]) == 1, 0, x).astype(dtype),
        axis=axis,
        p=int(rng.integers(1, 3)),
    )
    tail = shape[axis % rank :]
    scale, bias = (maybe(rng, normal(rng, tail, dtype)) for _ in range(2))
    net.add("LayerNormalization", x, scale, bias, axis=axis, outputs=int(rng.integers(1, 4)))
    net.add(
        "LayerNormalization",
        x,
        maybe(rng, normal(rng, tail[-1:], dtype)),
        axis=axis,
        outputs=3,
        hidden=(1,),
        epsilon=1e-2,
    )
    net.add("RMSNormalization", x, maybe(rng, normal(rng, tail, dtype)), axis=axis)
    scales = [maybe(rng, normal(rng, (channels,), dtype)) for _ in range(2)]
    if rank > 2:
        net.add("InstanceNormalization", x, *scales)
        net.add("LRN", x, size=int(rng.integers(1, 6)), alpha=0.3, beta=float(rng.choice([0.5, 0.75])))
    grouped(net, x, shape, scales, channels // 2)
    net.add("MeanVarianceNormalization", x, axes=[int(a) for a in rng.permutation(rank)[:2]])


@pytest.mark.parametrize("dtype", FLOATS)
def test_normalizations(dtype: str, tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for shape in ((3, 4), (2, 4, 5), (1, 6, 5), (1, 4, 3, 5), (2, 6, 3, 2), (1, 4, 3, 2, 5)):
        normalized(net, rng, shape, dtype)
    agrees(net, tmp_path)


def test_groups_of_channels_that_lie_side_by_side(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for channels, groups in ((21, 3), (16, 16), (5, 1)):
        x = conv(net, rng, normal(rng, (2, 3, 5, 4)), 3, channels)
        scales = [Constant(normal(rng, (channels,))), normal(rng, (channels,))]
        scaled = grouped(net, x, (2, channels, 5, 4), scales, groups)
        conv(net, rng, scaled, channels, 3)
    agrees(net, tmp_path)


MODES: tuple[dict[str, Any], ...] = (
    {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "linear"},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
    {"mode": "cubic", "antialias": 1, "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
)


def test_maps_of_any_rank_are_resized(tmp_path: Path) -> None:
    rng, net = np.random.default_rng(0), Net()
    for rank in range(1, 6):
        for attributes in MODES:
            dtype = (
                str(rng.choice([*FLOATS, "uint8"]))
                if attributes["mode"] == "nearest"
                else str(rng.choice(FLOATS))
            )
            x = (9 * np.abs(normal(rng, several(rng, rank, 2, 6)))).astype(dtype)
            net.add("Resize", x, None, None, fixed(*several(rng, rank, 1, 9)), **attributes)
            net.add(
                "Resize", x, None, Constant((0.6 + 2 * rng.random(rank)).astype(np.float32)), **attributes
            )
    region = Constant(np.array([0.2, -0.3, 1.1, 0.8], np.float32))
    crop: dict[str, Any] = {
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 7.0,
        "axes": [2, 1],
    }
    net.add("Resize", normal(rng, (1, 4, 5, 2)), region, None, fixed(4, 3), mode="linear", **crop)
    agrees(net, tmp_path)


# -- rings ---------------------------------------------------------------------------------------------------


def conv(
    net: Net,
    rng: np.random.Generator,
    x: Operand,
    read: int,
    outputs: int,
    group: int = 1,
    kernel: Sequence[int] = (3, 3),
) -> str:
    weights = normal(rng, (outputs, read // group, *kernel)) / np.float32(
        np.sqrt(read // group * np.prod(kernel))
    )
    return net.add(
        "Conv",
        x,
        Constant(weights),
        Constant(normal(rng, (outputs,))),
        pads=[k // 2 for k in kernel] * 2,
        group=group,
    )


def _attention(net: Net, rng: np.random.Generator, x: str) -> str:
    """Rows as a sequence: products of maps, a softmax over rows, LayerNormalization with its mean."""
    rows = net.add("Reshape", net.add("Transpose", x, perm=[0, 2, 1, 3]), fixed(1, 12, 80))
    scores = net.add("Softmax", net.add("MatMul", rows, net.add("Transpose", rows, perm=[0, 2, 1])), axis=1)
    mixed = net.add("MatMul", scores, rows)
    rescaled = net.add("LayerNormalization", mixed, Constant(normal(rng, (80,))), outputs=2)
    shifted = net.add("Sub", rescaled, f"layernormalization{len(net.nodes) - 1}_1")
    return net.add("Transpose", net.add("Reshape", shifted, fixed(1, 12, 8, 10)), perm=[0, 2, 1, 3])


def _images(net: Net, rng: np.random.Generator, x: str) -> str:
    """A batch of images, of which each channel is convolved by itself, then by groups."""
    pair = net.add("Concat", x, net.add("Neg", x), axis=0)
    mixed = conv(net, rng, conv(net, rng, pair, 8, 8, group=8), 8, 34, group=2)
    return net.add("ReduceMax", net.add("Slice", mixed, fixed(9), fixed(17), fixed(1)), fixed(0))


def _volume(net: Net, rng: np.random.Generator, x: str) -> str:
    """Rows of [1, 8, 12, 2, 5]."""
    volume = net.add("Reshape", x, fixed(1, 8, 12, 2, 5))
    grown = conv(net, rng, conv(net, rng, volume, 8, 20, kernel=(3, 1, 1)), 20, 8, kernel=(1, 3, 3))
    pooled = net.add("MaxPool", grown, kernel_shape=[3, 1, 3], pads=[1, 0, 1, 1, 0, 1])
    return net.add(
        "Reshape",
        net.add("AveragePool", pooled, kernel_shape=[3, 1, 1], pads=[1, 0, 0, 1, 0, 0]),
        fixed(1, 8, 12, 10),
    )


def _groups(net: Net, rng: np.random.Generator, x: str) -> str:
    product = conv(net, rng, x, 8, 8, group=4)
    return grouped(net, product, (1, 8, 12, 10), [Constant(normal(rng, (8,))), normal(rng, (8,))], 2)


def _resize(net: Net, rng: np.random.Generator, x: str) -> str:
    grown = net.add("Resize", x, None, None, fixed(1, 16, 7, 21), mode="cubic")
    return net.add("Resize", grown, None, None, fixed(1, 8, 12, 10))


Rows = Callable[[Net, np.random.Generator, str], str]
BETWEEN: dict[str, Rows] = {  # from rows of 12 of 8 channels by 10 pixels to such rows
    "attention": _attention,
    "einsum": lambda net, rng, x: net.add(
        "Einsum", x, Constant(normal(rng, (10, 10, 8)) / 10), equation="bchw,wvc->bchv"
    ),
    "groups": _groups,
    "images": _images,
    "instance": lambda net, rng, x: net.add(
        "InstanceNormalization", x, Constant(normal(rng, (8,))), Constant(normal(rng, (8,)))
    ),
    "layer": lambda net, rng, x: net.add("LayerNormalization", x, Constant(normal(rng, (8, 12, 10))), axis=1),
    "pools": lambda net, rng, x: net.add(
        "LpPool", net.add("LRN", x, size=3), kernel_shape=[3, 3], pads=[1, 1, 1, 1], p=3
    ),
    "resize": _resize,
    "softmax": lambda net, rng, x: net.add(
        "Softmax", net.add("LogSoftmax", net.add("LpNormalization", x, axis=2), axis=3), axis=2
    ),
    "sums": lambda net, rng, x: net.add(
        "Sub", x, net.add("ReduceMean", net.add("ReduceL2", x, fixed(1)), fixed(3))
    ),
    "transposed": lambda net, rng, x: net.add(
        "ConvTranspose", x, Constant(normal(rng, (8, 4, 3, 3)) / 4), pads=[1, 1, 1, 1], group=2
    ),
    "volume": _volume,
}


def rings(rng: np.random.Generator, names: Sequence[str]) -> Net:
    net = Net()
    for name in names:
        first = conv(net, rng, normal(rng, (1, 3, 12, 10)), 3, 8)
        conv(net, rng, BETWEEN[name](net, rng, net.add("Softsign", first)), 8, 2)
    return net


@pytest.mark.parametrize("part", range(3))
def test_rows_in_rings_are_what_whole_maps_are(part: int, tmp_path: Path) -> None:
    plan = agrees(rings(np.random.default_rng(part), [*BETWEEN][part::3]), tmp_path, kib=16)
    fused = [group for group in plan.groups if group.mode == "lbdf" and len(group.nodes) > 1]
    assert len(fused) >= 4
    assert any(0 < place.slots < 12 for group in fused for place in group.places)


# -- sanitizers ----------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_nothing_is_touched_beside_the_arrays(tmp_path: Path) -> None:
    """Under the address sanitizer, with memory of exactly the size that is asked for."""
    rng = np.random.default_rng(0)
    net = rings(rng, [*BETWEEN])
    for rank in (1, 2, 3):
        convolved(net, rng, rank, "float32", 2, 3, 17)
        scattered(net, rng, rank, "float32", 1, 3, 70)
    graph = net.graph
    source = emit_c(plan_for_cpu(graph, Hardware(1 << 14, element_bytes=4)), graph)
    same(run_checked(source, net.inputs, graph.outputs, tmp_path), expected(net, graph))
