"""Resize against exact arithmetic, ONNX Runtime and ONNX's reference: thousands of axes, every mode.

The truth is `exact`: the specification's formulas in fractions, one output element at a time. Where an
implementation differs from it, one of the causes that docs/resize.md lists has to explain every element;
nothing else may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from lfopt.frontend import from_model
from lfopt.ir import Graph, InvalidModel
from lfopt.ops import Call, spec
from lfopt.ops.reference import reference

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
ENDS = (-0.25, 0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.75, 0.8, 1.0, 1.25)  # of regions
BEYOND = -7.0  # extrapolation value
CLOSE = Fraction(1, 10000)  # of a position: what float32 arithmetic may lose
ort.set_default_logger_severity(4)


class Axis(NamedTuple):
    """A Resize of the rows of a (1, 1, size, 1) map, by a scale or to a size."""

    size: int
    size_out: int
    scale: np.float32 | None
    region: tuple[np.float32, np.float32] | None
    attributes: dict[str, Any]

    @property
    def mode(self) -> str:
        return self.attributes["mode"]

    @property
    def coordinates(self) -> str:
        return self.attributes["coordinate_transformation_mode"]

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.size_out, self.size) if self.scale is None else Fraction(float(self.scale))

    @property
    def map(self) -> np.ndarray:
        rows = np.arange(self.size)
        return (
            (rows if self.mode == "nearest" else 3 * np.sin(1.7 * rows) + 0.1 * rows)
            .astype(np.float32)
            .reshape(1, 1, -1, 1)
        )


def drawn(rng: np.random.Generator, count: int) -> Iterator[Axis]:
    while count:
        size, size_out = int(rng.integers(1, 64)), int(rng.integers(1, 80))
        mode, coordinates = (
            str(rng.choice(["nearest"] * 3 + ["linear", "cubic"])),
            str(rng.choice(COORDINATES)),
        )
        attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
        if mode == "nearest":
            attributes["nearest_mode"] = str(rng.choice(ROUNDING))
        elif rng.random() < 0.25 and coordinates != "tf_crop_and_resize":
            attributes["antialias"] = 1
        if mode == "cubic":
            attributes |= {
                "exclude_outside": int(rng.integers(2)),
                "cubic_coeff_a": float(rng.choice([-0.5, -0.75])),
            }
        region = scale = None
        if coordinates == "tf_crop_and_resize":
            low, high = np.sort(rng.choice(np.array(ENDS, np.float32), 2, replace=False))
            region, attributes["extrapolation_value"] = (low, high), BEYOND
        if rng.random() < 0.5:
            ratios = (
                size_out / size,
                rng.integers(1, 40) / 8,
                rng.integers(1, 30) / 10,
                rng.integers(1, 13) / rng.integers(1, 13),
                rng.uniform(0.1, 4),
            )
            scale = np.float32(rng.choice(ratios))
            size_out = floor(size * Fraction(float(scale)))
        if size_out:
            count -= 1
            yield Axis(size, size_out, scale, region, attributes)


def model(axes: list[Axis]) -> onnx.ModelProto:
    """One node for each axis."""
    nodes, constants = [], []
    for k, axis in enumerate(axes):
        region = (
            []
            if axis.region is None
            else [np.array([0, 0, axis.region[0], 0, 1, 1, axis.region[1], 1], np.float32)]
        )
        wanted = (
            np.array([1, 1, axis.size_out, 1], np.int64)
            if axis.scale is None
            else np.array([1, 1, axis.scale, 1], np.float32)
        )
        constants += [numpy_helper.from_array(value, f"r{k}") for value in region] + [
            numpy_helper.from_array(wanted, f"s{k}")
        ]
        names = [f"x{k}", f"r{k}" if region else "", *([""] if axis.scale is None else []), f"s{k}"]
        nodes.append(helper.make_node("Resize", names, [f"y{k}"], name=f"axis {k}", **axis.attributes))
    inputs = [
        helper.make_tensor_value_info(f"x{k}", onnx.TensorProto.FLOAT, axis.map.shape)
        for k, axis in enumerate(axes)
    ]
    outputs = [helper.make_tensor_value_info(f"y{k}", onnx.TensorProto.FLOAT, None) for k in range(len(axes))]
    graph = helper.make_graph(nodes, "axes", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


# -- the specification, in fractions -------------------------------------------------------------------------


def position(axis: Axis, r: int) -> Fraction:
    """x_original of output r. Source: ONNX operator Resize, attribute coordinate_transformation_mode."""
    n, size_out, scale, half = axis.size, axis.size_out, axis.ratio, Fraction(1, 2)
    match axis.coordinates:
        case "half_pixel":
            return (r + half) / scale - half
        case "half_pixel_symmetric":
            return Fraction(n, 2) * (1 - size_out / (scale * n)) + (r + half) / scale - half
        case "pytorch_half_pixel":
            return (r + half) / scale - half if size_out > 1 else Fraction(0)
        case "align_corners":
            return r * Fraction(n - 1, size_out - 1) if size_out > 1 else Fraction(0)
        case "asymmetric":
            return r / scale
    assert axis.region is not None
    start, end = (Fraction(float(place)) * (n - 1) for place in axis.region)
    return start + r * (end - start) / (size_out - 1) if size_out > 1 else (start + end) / 2


def nearest(x: Fraction, rounding: str) -> int:
    half = Fraction(1, 2)
    return {
        "round_prefer_floor": ceil(x - half),
        "round_prefer_ceil": floor(x + half),
        "floor": floor(x),
        "ceil": ceil(x),
    }[rounding]


def kernel(axis: Axis, x: float) -> float:
    x, a = abs(x), axis.attributes.get("cubic_coeff_a", -0.75)
    if axis.mode == "linear":
        return max(1 - x, 0)
    return (
        (a + 2) * x**3 - (a + 3) * x**2 + 1
        if x <= 1
        else a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        if x < 2
        else 0
    )


def weights(axis: Axis, x: Fraction) -> dict[int, float]:
    """By place, which may lie beyond the map."""
    if axis.mode == "nearest":
        return {nearest(x, axis.attributes["nearest_mode"]): 1.0}
    stretch = min(axis.ratio, Fraction(1)) if axis.attributes.get("antialias") else Fraction(1)
    reach = ceil(2 / stretch)
    taps = {
        place: kernel(axis, float((place - x) * stretch))
        for place in range(floor(x) - reach, floor(x) + reach + 1)
    }
    if axis.attributes.get("exclude_outside"):
        taps = {place: w for place, w in taps.items() if 0 <= place < axis.size}
    total = (
        sum(taps.values())
        if axis.attributes.get("exclude_outside") or axis.attributes.get("antialias")
        else 1.0
    )
    return {place: w / total for place, w in taps.items() if w}


def exact(axis: Axis) -> np.ndarray:
    rows, elements = axis.map.reshape(-1), []
    for r in range(axis.size_out):
        x = position(axis, r)
        inside = axis.region is None or 0 <= x <= axis.size - 1
        elements.append(
            sum(w * float(rows[min(max(place, 0), axis.size - 1)]) for place, w in weights(axis, x).items())
            if inside
            else BEYOND
        )
    return np.array(elements, np.float32).reshape(1, 1, -1, 1)


# -- who differs, and why ------------------------------------------------------------------------------------


def differing(values: np.ndarray, wanted: np.ndarray) -> list[int]:
    return [int(r) for r in np.flatnonzero(~np.isclose(values, wanted, rtol=5e-4, atol=5e-4))]


def on_the_edge(axis: Axis, r: int, *, taps: bool = False) -> bool:
    """Whether float32 rounding of a position may select another element, or none; `taps`: other taps."""
    x = position(axis, r)
    edges = [Fraction(0), Fraction(axis.size - 1)] if axis.region is not None else []
    half = axis.attributes.get("nearest_mode", "").startswith("round")
    edges += (
        [round(x - Fraction(1, 2)) + Fraction(1, 2)]
        if half
        else [Fraction(round(x))]
        if axis.mode == "nearest"
        else []
    )
    edges += [Fraction(round(x))] if taps else []
    return any(abs(x - edge) < CLOSE for edge in edges)


def runtime_differs_by(axis: Axis, values: np.ndarray, wanted: np.ndarray) -> str:
    """What explains that ONNX Runtime differs."""
    if values.shape != wanted.shape:
        assert axis.scale is not None
        assert floor(np.float32(axis.size) * axis.scale) == values.shape[2], f"{axis}: {values.shape[2]} rows"
        return "length by float32"
    if not (where := differing(values, wanted)):
        return ""
    if axis.size == axis.size_out and (values == axis.map).all():
        return "a map that keeps its size is copied"
    assert all(on_the_edge(axis, r) for r in where), (
        f"{axis}: {where}, {values.reshape(-1)[where]} and not {wanted.reshape(-1)[where]}"
    )
    return "positions in floating point"


def reference_differs_by(axis: Axis, values: np.ndarray, wanted: np.ndarray) -> str:
    """What explains that ONNX's reference differs."""
    length = axis.ratio * axis.size
    if not (where := differing(values, wanted)):
        return ""
    if axis.coordinates in ("align_corners", "tf_crop_and_resize") and length != axis.size_out:
        return "length with its fraction"
    if axis.coordinates == "pytorch_half_pixel" and axis.size_out == 1:
        return "pytorch_half_pixel of one element"
    assert all(on_the_edge(axis, r, taps=True) for r in where), (
        f"{axis}: {where}, {values.reshape(-1)[where]} and not {wanted.reshape(-1)[where]}"
    )
    return "positions in floating point"


def verdicts(axes: list[Axis]) -> list[tuple[str, str, str]]:
    """(why ONNX Runtime differs, why the reference does, whether they agree); asserts lfopt is exact."""
    onnx_model, maps = model(axes), {f"x{k}": axis.map for k, axis in enumerate(axes)}
    by_runtime = ort.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, maps
    )
    by_reference = ReferenceEvaluator(onnx_model).run(None, maps)
    graph = from_model(onnx_model)
    outputs, causes = reference(graph, maps), list[tuple[str, str, str]]()
    for k, (axis, one, other) in enumerate(zip(axes, by_runtime, by_reference, strict=True)):
        wanted = exact(axis)
        assert outputs[f"y{k}"].shape == wanted.shape, f"{axis}"
        assert not (where := differing(outputs[f"y{k}"], wanted)), (
            f"{axis}: {where}, {outputs[f'y{k}'].reshape(-1)[where]}"
        )
        assert_rows(axis, graph, k)
        assert isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        agree = one.shape == other.shape and not differing(one, other)
        causes.append(
            (
                runtime_differs_by(axis, one, wanted),
                reference_differs_by(axis, other, wanted),
                "agree" if agree else "differ",
            )
        )
    return causes


def assert_rows(axis: Axis, graph: Graph, k: int) -> None:
    """The row rule names the rows that have weight; of the nearest, no other."""
    rule = spec("Resize").reads(
        Call.of(graph, next(op for op in graph.operators if op.outputs == (f"y{k}",))), 0
    )
    for r in range(axis.size_out):
        if axis.region is not None and not 0 <= position(axis, r) <= axis.size - 1:
            continue
        real = [min(max(place, 0), axis.size - 1) for place in weights(axis, position(axis, r))]
        if axis.mode == "nearest":
            assert (rule.first[r], rule.last[r]) == (real[0], real[0]), f"{axis}, row {r}"
        assert rule.first[r] <= min(real) <= max(real) <= rule.last[r], f"{axis}, row {r}"


def test_elements_are_those_of_exact_arithmetic_and_every_other_answer_has_a_known_cause() -> None:
    causes = Counter(verdicts(list(drawn(np.random.default_rng(0), 500))))
    assert causes["", "", "agree"] > 350


@pytest.mark.slow
def test_elements_are_those_of_exact_arithmetic_5000_times() -> None:
    """Prints each case in which an implementation differs, and counts by cause: docs/resize.md's table."""
    rng, causes = np.random.default_rng(1), Counter[tuple[str, str, str]]()
    for _ in range(10):
        axes = list(drawn(rng, 500))
        for axis, verdict in zip(axes, verdicts(axes), strict=True):
            causes[verdict] += 1
            if verdict[:2] != ("", ""):
                by = f"to {axis.size_out}" if axis.scale is None else f"by {axis.scale:.9g}"
                print(
                    axis.size,
                    by,
                    *axis.attributes.values(),
                    *map(float, axis.region or ()),
                    "|",
                    *("; ".join(filter(None, verdict)),),
                )
    print(*(f"{count:5} {key}" for key, count in sorted(causes.items())), sep="\n")
    assert causes["", "", "agree"] > 4000


@pytest.mark.parametrize(
    ("size", "size_out", "scale", "coordinates", "row", "element"),
    [
        (15, 21, None, "half_pixel", 10, 7),
        (11, 5, 0.5, "half_pixel_symmetric", 0, 1),
        (57, 67, None, "half_pixel", 33, 28),  # the other two both say 27, rounding down
        (10, 6, 0.7, "asymmetric", 0, 0),  # the exact product is 6.99999988; ONNX Runtime makes 7 rows
    ],
)
def test_a_position_that_is_whole_is_its_own_ceiling(
    size: int, size_out: int, scale: float | None, coordinates: str, row: int, element: int
) -> None:
    for rounding in ROUNDING:
        attributes = {
            "mode": "nearest",
            "coordinate_transformation_mode": coordinates,
            "nearest_mode": rounding,
        }
        axis = Axis(size, size_out, None if scale is None else np.float32(scale), None, attributes)
        output = reference(from_model(model([axis])), {"x0": axis.map})["y0"]
        assert output.shape[2] == size_out
        assert output[0, 0, row, 0] == element


def test_a_constant_that_is_resized_is_what_lfopt_computes_and_not_what_the_reference_does() -> None:
    """align_corners by a scale that leaves a fraction: folded at load, or computed, it is the same."""
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    axis = Axis(5, 2, np.float32(0.5), None, attributes)
    folded = model([axis])
    folded.graph.initializer.append(numpy_helper.from_array(axis.map, "x0"))
    del folded.graph.input[:]
    folded.graph.input.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, (1, 1, 2, 1)))
    folded.graph.node.append(helper.make_node("Add", ["a", "y0"], ["z"]))
    folded.graph.output[0].name = "z"
    output = reference(from_model(folded), {"a": np.zeros((1, 1, 2, 1), np.float32)})["z"]
    assert np.allclose(output, exact(axis))


@pytest.mark.parametrize(
    ("changed", "region", "told"),
    [
        (
            {"coordinate_transformation_mode": "middle"},
            None,
            "coordinate_transformation_mode 'middle'; accepted: half_pixel",
        ),
        ({"mode": "quintic"}, None, "mode 'quintic'; accepted: nearest, linear, cubic"),
        ({"nearest_mode": "round"}, None, "nearest_mode 'round'; accepted: round_prefer_floor"),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            None,
            "roi []; tf_crop_and_resize takes 8 finite numbers",
        ),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            (0.0, np.nan),
            "tf_crop_and_resize takes 8 finite numbers",
        ),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            (-np.inf, 1.0),
            "tf_crop_and_resize takes 8 finite numbers",
        ),
    ],
)
def test_a_resize_of_no_known_mode_or_region_is_refused_by_name(
    changed: dict[str, str], region: Any, told: str
) -> None:
    plain = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "ceil"}
    with pytest.raises(InvalidModel, match=r"model: node 'axis 0' \(Resize\)") as caught:
        from_model(
            model(
                [Axis(4, 6, None, region and (np.float32(region[0]), np.float32(region[1])), plain | changed)]
            )
        )
    assert told in str(caught.value)
