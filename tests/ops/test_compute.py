"""Operator arithmetic on boxes: a part of a result is that of the whole, the whole is ONNX Runtime's.

An operator is only ever given the parts of its operands that its footprint names, so nothing outside the
footprint can matter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from lfopt.ir import Box, Operator, Tensor, box_elements, box_shape, row_axis, slices, whole
from lfopt.ops import TABLE, Call
from lfopt.ops.compute import Part, accumulate, compute, finish, folding, merge
from lfopt.ops.footprint import folded_axis, footprint, footprints
from lfopt.ops.statistics import state_box, statistics_axis
from tests.operators import (
    ARITHMETIC,
    FAMILIES,
    OPSET,
    RUNTIME_OPSET,
    Case,
    activation,
    along_an_axis,
    binary,
    cases,
    gathered,
    moved,
    other_elementwise,
    statistics,
)

Family = Callable[[np.random.Generator], Case | None]
CASES = 40  # per family
MANY: dict[Any, int] = {
    activation: 150,
    binary: 120,
    other_elementwise: 200,
    statistics: 80,
    along_an_axis: 80,
    moved: 80,
    gathered: 60,
}
every_family = pytest.mark.parametrize("family", FAMILIES + ARITHMETIC, ids=lambda f: f.__name__)


@cache
def drawn(family: Family) -> list[tuple[Case, Call, tuple[np.ndarray, ...]]]:
    """Cases with what the operators compute on whole operands."""
    computed = []
    for case in cases(family, MANY.get(family, CASES)):
        call = case.call()
        computed.append(
            (
                case,
                call,
                compute(call, parts(case, call), tuple(whole(shape) for shape in call.results), OPSET),
            )
        )
    return computed


def parts(
    case: Case, call: Call, outs: tuple[Box, ...] | None = None, inputs: tuple[int, int] | None = None
) -> list[Part | None]:
    """Footprints of boxes of the results, cut out of the operands; copies, so that nothing else is near."""
    operands: list[Part | None] = []
    for index, value in enumerate(case.operands):
        if value is None:
            operands.append(None)
        else:
            box = whole(value.shape) if outs is None else footprints(call, index, outs, inputs=inputs)
            operands.append(Part(value[slices(box)].copy(), box))
    return operands


def truth(case: Case) -> tuple[np.ndarray, ...]:
    """What ONNX Runtime computes, or ONNX's own reference where ONNX Runtime lacks the operator."""
    # ONNX Runtime crashes on a Split of which not all results are asked for
    if not (case.runtime or case.reference or case.hidden):
        try:
            ort.InferenceSession(
                case.model(RUNTIME_OPSET).SerializeToString(), providers=["CPUExecutionProvider"]
            )
        except Exception:
            return case.run(case.operands)
        case.runtime = True
    outputs = case.run(case.operands)
    return tuple(
        v.view(t.dtype) if t.dtype.startswith("float8") else v
        for v, t in zip(outputs, case.results(), strict=True)
    )


def same(values: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-5) -> bool:
    """Same type and shape, same values; floating ones within a part of the largest."""
    if values.shape != wanted.shape or values.dtype != wanted.dtype:
        return False
    if values.dtype.kind != "f":
        return bool((values == wanted).all())
    finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    tolerance = 2e-3 if values.dtype == np.float16 else tolerance
    return bool(
        np.allclose(
            values, wanted, rtol=tolerance, atol=tolerance * min(finite.max(initial=0), 100), equal_nan=True
        )
    )


def rows_of(shape: tuple[int, ...], start: int, stop: int) -> Box:
    """Rows start to stop - 1 of a map, as far as it has them."""
    axis = row_axis(shape)
    if axis is None:
        return whole(shape)
    return tuple((min(start, n), min(stop, n)) if a == axis else (0, n) for a, n in enumerate(shape))


def random_box(rng: np.random.Generator, shape: tuple[int, ...]) -> Box:
    spans = []
    for extent in shape:
        start = int(rng.integers(extent))
        spans.append((start, int(rng.integers(start, extent)) + 1) if rng.random() < 0.7 else (0, extent))
    return tuple(spans)


def wrong_parts(
    family: Family, draw: Callable[[np.random.Generator, Call], list[tuple[Box, ...]]]
) -> list[str]:
    rng, wrong = np.random.default_rng(3), list[str]()
    for case, call, results in drawn(family):
        for outs in draw(rng, call):
            computed = compute(call, parts(case, call, outs), outs, OPSET)
            wrong += [
                f"{case}, result {k}, box {box}:\n{values}\nthe whole has\n{result[slices(box)]}"
                for k, (values, result, box) in enumerate(zip(computed, results, outs, strict=True))
                if not same(values, result[slices(box)])
            ]
    return wrong


@every_family
def test_whole_results_are_those_of_onnx_runtime(family: Family) -> None:
    wrong = []
    for case, _, results in drawn(family):
        wanted = truth(case)
        wrong += [
            f"{case}, result {k}:\n{a}\n{a.dtype}, and not\n{b}\n{b.dtype}"
            for k, (a, b) in enumerate(zip(results, wanted, strict=True))
            if not same(a, b)
        ]
    assert len(drawn(family)) > 10
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:3])


@every_family
def test_every_row_alone_is_the_row_of_the_whole(family: Family) -> None:
    wrong = wrong_parts(
        family,
        lambda rng, call: [tuple(rows_of(s, r, r + 1) for s in call.results) for r in range(call.rows_out)],
    )
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:3])


@every_family
def test_any_range_of_rows_is_that_of_the_whole(family: Family) -> None:
    def draw(rng: np.random.Generator, call: Call) -> list[tuple[Box, ...]]:
        start = int(rng.integers(call.rows_out))
        return [tuple(rows_of(s, start, int(rng.integers(start, call.rows_out)) + 1) for s in call.results)]

    wrong = wrong_parts(family, draw)
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:3])


@every_family
def test_any_box_is_that_of_the_whole(family: Family) -> None:
    wrong = wrong_parts(
        family, lambda rng, call: [tuple(random_box(rng, s) for s in call.results) for _ in range(3)]
    )
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:3])


@every_family
def test_footprints_name_the_rows_that_the_row_rules_name(family: Family) -> None:
    rng, wrong = np.random.default_rng(5), list[str]()
    for case, call, _ in drawn(family):
        for index, value in enumerate(case.operands):
            if value is None or index in case.constant or row_axis(value.shape) is None:
                continue
            reads, start = case.rule(index), int(rng.integers(call.rows_out))
            stop = int(rng.integers(start, call.rows_out)) + 1
            box = footprints(call, index, tuple(rows_of(s, start, stop) for s in call.results))
            first, last = min(reads.first[start:stop]), max(reads.last[start:stop])
            span = box[row_axis(value.shape) or 0]
            if span != (first, last + 1) and not (first > last and span[0] == span[1]):
                wrong.append(
                    f"{case}, input {index}, rows {start} to {stop - 1}: "
                    f"{box}, and the rule says rows {first} to {last}"
                )
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:3])


CONTRACTIONS = [
    f for f in FAMILIES + ARITHMETIC if any(kind in f.__name__ for kind in ("conv", "gemm", "matmul"))
]
REDUCTIONS = [
    f
    for f in FAMILIES + ARITHMETIC
    if f.__name__ in ("global_pool", "reduction", "reduction_of_all_or_nothing", "statistics")
]


def folded(call: Call) -> int:
    """Input channels within a group; rows or elements along the axis that is folded."""
    shape = call.shape(0)
    if folding(call) == "statistics":
        return shape[statistics_axis(call)]
    if folding(call) != "input channels":
        axis = folded_axis(call, 0)
        assert axis is not None
        return shape[axis]
    if call.operator.kind == "MatMul":
        return shape[-1]
    if call.operator.kind == "Gemm":
        return shape[0 if call.attribute("transA", 0) else 1]
    return shape[1] // call.attribute("group", 1)


@pytest.mark.parametrize("family", CONTRACTIONS + REDUCTIONS, ids=lambda f: f.__name__)
def test_partial_sums_over_any_partition_of_what_is_folded_finish_to_the_result(family: Family) -> None:
    rng, wrong, tried = np.random.default_rng(4), list[str](), 0
    for case, call, (result, *_) in drawn(family):
        if folding(call) is None:
            continue
        most = folded(call)
        cuts = sorted({0, most, *(int(c) for c in rng.integers(0, most + 1, 2))})
        box = random_box(rng, call.result)
        sums, given = None, list[Part | None]()
        for inputs in pairwise(cuts):
            given = parts(case, call, (box,), inputs)
            whole_weights = [*given[:1], *parts(case, call)[1:]]
            part = accumulate(call, given, box, OPSET, inputs)
            assert part.shape == box_shape(state_box(call, box) if folding(call) == "statistics" else box)
            assert same(part, accumulate(call, whole_weights, box, OPSET, inputs)), (
                f"{case}, box {box}, inputs {inputs}: whole weights give other sums"
            )
            sums = part if sums is None else merge(call, sums, part)
            assert sums.dtype == part.dtype
        assert sums is not None
        if folding(call) == "statistics":  # what is left to be read are the elements themselves
            given = parts(case, call, (box,), (most, most))
        finished = finish(call, sums, given, box)
        if not same(finished, result[slices(box)]):
            wrong.append(
                f"{case}, box {box}, inputs cut at {cuts}:\n{finished}\nthe whole has\n{result[slices(box)]}"
            )
        tried += 1
    assert tried > 5
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:3])


def test_what_folds_rows_is_every_reduction_but_one() -> None:
    """ReduceLogSumExp goes over its rows twice."""
    kinds = {
        call.operator.kind
        for family in FAMILIES + ARITHMETIC
        for _, call, _ in drawn(family)
        if folding(call) == "rows"
    }
    assert kinds == {kind for kind in TABLE if kind.startswith(("Reduce", "Global"))} - {"ReduceLogSumExp"}


@pytest.mark.parametrize(
    ("shape", "axes", "folds"),
    [
        ((1, 4, 6, 5), (2,), True),
        ((1, 4, 6, 5), (1, -2), True),
        ((1, 4, 6, 5), (1, 3), False),
        ((1, 4, 6), (1, 2), True),
        ((1, 4, 6), (-1,), False),
        ((1, 4, 6, 5, 2), (0, 2), True),
        ((4, 6), (0,), False),  # one row
    ],
)
def test_a_reduction_folds_rows_if_the_row_axis_is_among_its_axes(
    shape: tuple[int, ...], axes: tuple[int, ...], folds: bool
) -> None:
    kept = tuple(
        1 if axis in axes or axis - len(shape) in axes else extent for axis, extent in enumerate(shape)
    )
    call = call_of("ReduceMax", [shape], kept, axes=axes)
    assert folding(call) == ("rows" if folds else "elements")
    # else elements along the longest of the axes that are folded
    cut = row_axis(shape) if folds else max((a % len(shape) for a in axes), key=lambda a: shape[a])
    box = footprint(call, 0, whole(kept), inputs=(1, 3))
    assert box == tuple((1, 3) if axis == cut else (0, extent) for axis, extent in enumerate(shape))


def test_every_operator_of_the_table_is_computed() -> None:
    drawn_kinds = {case.kind for family in FAMILIES + ARITHMETIC for case, _, _ in drawn(family)}
    assert set(TABLE) <= drawn_kinds, sorted(set(TABLE) - drawn_kinds)


def call_of(
    kind: str,
    shapes: list[tuple[int, ...]],
    result: tuple[int, ...],
    constant: tuple[int, ...] = (),
    **attributes: Any,
) -> Call:
    operator = Operator("op", kind, tuple(f"x{i}" for i in range(len(shapes))), ("y",), attributes)  # type: ignore[arg-type]
    tensors = tuple(Tensor(f"x{i}", shape, "float32") for i, shape in enumerate(shapes))
    is_constant = tuple(i in constant for i in range(len(shapes)))
    return Call(
        operator,
        tuple(shapes),
        (None,) * len(shapes),
        is_constant,
        (result,),
        tensors,
        (Tensor("y", result, "float32"),),
    )


def test_a_convolution_needs_the_groups_and_the_windows_that_its_box_touches() -> None:
    conv = call_of(
        "Conv",
        [(1, 12, 8, 8), (6, 4, 3, 3), (6,)],
        (1, 6, 4, 4),
        (1, 2),
        group=3,
        pads=(1, 1, 1, 1),
        strides=(2, 2),
    )
    box = ((0, 1), (1, 3), (0, 1), (3, 4))  # of groups 0 and 1
    assert footprint(conv, 0, box) == ((0, 1), (0, 8), (0, 2), (5, 8))
    assert footprint(conv, 0, box, inputs=(1, 3)) == ((0, 1), (1, 7), (0, 2), (5, 8))
    assert footprint(conv, 1, box, inputs=(1, 3)) == ((1, 3), (1, 3), (0, 3), (0, 3))
    assert footprint(conv, 2, box) == ((1, 3),)


def test_a_transposed_convolution_needs_weights_of_its_groups_alone() -> None:
    conv = call_of("ConvTranspose", [(1, 6, 4, 4), (6, 2, 3, 3)], (1, 6, 9, 9), (1,), group=3, strides=(2, 2))
    assert footprint(conv, 0, ((0, 1), (2, 3), (4, 5), (0, 9))) == ((0, 1), (2, 4), (1, 3), (0, 4))
    assert footprint(conv, 1, ((0, 1), (2, 3), (4, 5), (0, 9))) == ((2, 4), (0, 1), (0, 3), (0, 3))
    assert footprint(conv, 1, ((0, 1), (1, 4), (4, 5), (0, 9)), inputs=(1, 2)) == (
        (1, 4),
        (0, 2),
        (0, 3),
        (0, 3),
    )


def test_products_of_matrices_need_rows_of_the_first_and_columns_of_the_second() -> None:
    gemm = call_of("Gemm", [(5, 3), (4, 5), (4,)], (3, 4), (1, 2), transA=1, transB=1)
    assert [footprint(gemm, i, ((1, 2), (0, 3)), inputs=(2, 5)) for i in range(3)] == [
        ((2, 5), (1, 2)),
        ((0, 3), (2, 5)),
        ((0, 3),),
    ]
    matmul = call_of("MatMul", [(2, 1, 6, 8), (3, 8, 4)], (2, 3, 6, 4), (1,))
    box = ((0, 1), (1, 3), (2, 3), (0, 4))
    assert footprint(matmul, 0, box, inputs=(0, 4)) == ((0, 1), (0, 1), (2, 3), (0, 4))
    assert footprint(matmul, 1, box, inputs=(0, 4)) == ((1, 3), (0, 4), (0, 4))


def test_operands_that_a_box_does_not_touch_have_empty_footprints() -> None:
    concat = call_of("Concat", [(1, 2, 4, 4), (1, 3, 4, 4)], (1, 5, 4, 4), axis=1)
    box = ((0, 1), (0, 2), (1, 2), (0, 4))
    assert footprint(concat, 0, box) == box
    assert 0 in box_shape(footprint(concat, 1, box))


def test_an_empty_box_needs_nothing_and_is_nothing() -> None:
    conv = call_of("Conv", [(1, 2, 4, 4), (3, 2, 3, 3)], (1, 3, 2, 2), (1,))
    box = ((0, 1), (0, 3), (1, 1), (0, 2))
    assert box_elements(footprint(conv, 0, box)) == 0
    nothing = Part(np.empty((0, 0, 0, 0), np.float32), ((0, 0),) * 4)
    (values,) = compute(conv, [nothing, nothing], (box,), OPSET)
    assert (values.shape, values.dtype) == ((1, 3, 0, 2), np.float32)


def test_half_precision_is_summed_in_float32() -> None:
    x = np.full((1, 4096), 1, np.float16)
    call = call_of("MatMul", [(1, 4096), (4096, 1)], (1, 1))
    operands = [Part(x, whole(x.shape)), Part(x.T, whole(x.T.shape))]
    assert accumulate(call, operands, ((0, 1), (0, 1)), OPSET).dtype == np.float32
    assert compute(call, operands, (((0, 1), (0, 1)),), OPSET)[0] == 4096
