"""Row rules against the operators themselves: perturb one input row, see which output rows change.

A rule is *right* if every output row that changes says that it reads the perturbed row, and *exact* if the
lowest and the highest row that it names really matter. Shapes come from ONNX's own inference, values from
ONNX's own reference implementation; for windows, where that has errors of its own (negative pads, auto_pad
with strides beyond the kernel, dilated transposed convolutions, Resize by scales that leave a fraction), from
ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lfopt.ir import row_axis, row_count
from tests.operators import (
    FAMILIES,
    Case,
    cases,
    concat,
    conv,
    conv_transpose,
    pad,
    pool,
    resize,
    slice_,
    split,
)

CASES = 60  # per family
WINDOWS = 400  # per family of windows
SLIDING = (conv, conv_transpose, pool, resize, slice_, pad, concat, split)


def depends(case: Case, index: int) -> np.ndarray:
    """(output rows, input rows) bool: whether the output row changes with the input row."""
    source = case.operands[index]
    assert source is not None
    before = case.run(case.operands)
    assert tuple(v.shape for v in before) == case.shapes(), (
        f"{case}: reference {[v.shape for v in before]}, inference {case.shapes()}"
    )
    rows_out = max(row_count(v.shape) for v in before)
    matters = np.zeros((rows_out, row_count(source.shape)), bool)
    noise = np.random.default_rng(7)
    for row in range(row_count(source.shape)):
        for sign in (1, -1):
            changed = source.copy()
            where = (slice(None),) * (row_axis(source.shape) or 0) + (
                (row,) if row_axis(source.shape) is not None else ()
            )
            changed[where] = source[where] + sign * (50 + 50 * noise.random(source[where].shape)).astype(
                source.dtype
            )
            after = case.run([changed if i == index else v for i, v in enumerate(case.operands)])
            for old, new in zip(before, after, strict=True):
                axis = row_axis(old.shape)
                differs = ~np.isclose(old, new, rtol=1e-5, atol=1e-6, equal_nan=True)
                per_row = np.atleast_1d(
                    differs.any(
                        axis=tuple(a for a in range(old.ndim) if a != axis) if axis is not None else None
                    )
                )
                matters[: len(per_row), row] |= per_row
    return matters


def disagreements(case: Case) -> list[str]:
    """What the rule of any operand says that the operator does not do."""
    problems: list[str] = []
    for index, operand in enumerate(case.operands):
        if operand is None or index in case.constant or operand.dtype != np.float32:
            continue
        rule, real = case.rule(index), depends(case, index)
        if real.shape != (rule.rows_out, rule.rows_in):
            problems.append(
                f"{case}, input {index}: "
                f"the rule is for {rule.rows_out, rule.rows_in} rows, the operator has {real.shape}"
            )
            continue
        for row, changed in enumerate(real):
            rows = [int(j) for j in np.flatnonzero(changed)]
            says = rule.first[row], rule.last[row]
            if rows and not (says[0] <= rows[0] and rows[-1] <= says[1]):
                problems.append(
                    f"{case}, input {index}, output row {row}: "
                    f"rows {rows[0]} to {rows[-1]} matter, the rule says {says}"
                )
            elif case.exact and says != ((rows[0], rows[-1]) if rows else (rule.rows_in, -1)):
                problems.append(
                    f"{case}, input {index}, output row {row}: only rows {rows} matter, the rule says {says}"
                )
    return problems


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_rows_outside_the_window_never_matter_and_its_ends_do(
    family: Callable[[np.random.Generator], Case | None],
) -> None:
    drawn = cases(family, WINDOWS if family in SLIDING else CASES)
    assert len(drawn) > 10
    wrong = [line for case in drawn for line in disagreements(case)]
    assert not wrong, "\n".join(wrong[:5])
