"""Compare outputs with the float64 reference, within what rounding does to this network.

Two runs of the reference decide. One computes in float64. The other computes in the network's own types, and
disturbs every result as rounding does where sums are added up one product after another, the least favourable
order that a schedule has: errors then grow or fade from operator to operator as those of a plan do. How far
the two lie apart, times `MARGIN`, is what an output may be off. Maps that quantised ones are computed from
are left alone in both runs, for integers must be equal bit by bit. Where maps and weights are stored in a
shorter type than they are computed in, the second run disturbs inputs, results and products as rounding to
that type does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod

import numpy as np

from lfopt.ir import Graph
from lfopt.ops import Call, Family, row_of
from lfopt.ops.counts import none
from lfopt.ops.elementwise import REAL
from lfopt.ops.part import Part
from lfopt.ops.reference import Results, reference

VAGUE = 0.01  # of the range of an output: what is accepted beyond that is worth a note
MARGIN = 4.0  # a disturbed run is one sample of what rounding does
FEW, RUNS_OF_FEW = 16, 4  # an output of fewer elements than that shows too little of it in one run
# element type -> one ulp of 1
REALS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
MOVING = (Family.VIEW, Family.MOVE, Family.INDEX)
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Agreement:
    """An output beside a judge's: the reference's, or ONNX Runtime's."""

    output: str
    elements: int
    wrong: int  # elements that are further off than accepted
    not_finite: int  # elements of the judge's that are infinite, or no numbers
    # largest less smallest element of the judge's; the largest, if all are the same; null for integers,
    # which must be equal
    scale: float | None
    largest_error: float | None  # of the scale; null where some are no numbers, and wrong
    accepted_error: float | None  # of the scale
    judge: str = "reference"  # whose output it is compared with

    def __str__(self) -> str:
        differ = f"output {self.output!r}: {self.wrong:,} of {self.elements:,} elements differ"
        differ += "" if self.judge == "reference" else f" from those of {self.judge}"
        if self.scale is None or self.accepted_error is None:
            return differ
        if self.largest_error is not None:
            by = f"by up to {self.largest_error:.2g} of its range"
        else:
            by = "(infinite, or not a number)"
        return f"{differ} {by}; accepted: {self.accepted_error:.2g} of {self.scale:.3g}"


def said_of(agreements: Sequence[Agreement]) -> list[str]:
    """Lines for people: error of the output nearest to what is accepted, and how the reference was made."""
    real = [
        (one.largest_error, one.accepted_error, one)
        for one in agreements
        if one.largest_error is not None and one.accepted_error is not None
    ]
    if not real:
        if agreements:
            return ["reference: integers, to be equal bit by bit"]
        return []
    error, accepted, worst = max(real, key=lambda one: one[0] / max(one[1], np.finfo(np.float64).tiny))
    others = f", the worst of {len(real)} outputs" if len(real) > 1 else ""
    vague = [
        one.output for one in agreements if one.accepted_error is not None and one.accepted_error > VAGUE
    ]
    empty = [
        f"{one.output!r} ({one.not_finite:,} of {one.elements:,})" for one in agreements if one.not_finite
    ]
    return [
        *(
            [f"note: rounding decides much of {', '.join(map(repr, vague))}: little is left to compare"]
            if vague
            else []
        ),
        *([f"note: elements that are infinite, or no numbers: {', '.join(empty)}"] if empty else []),
        (
            f"largest error {error:.2g} of the range of {worst.output!r} ({worst.scale:.3g}){others}; "
            f"accepted {accepted:.2g}"
        ),
        f"reference: float64; accepted: {MARGIN:g} times what rounding does to this network",
    ]


@dataclass(frozen=True)
class Expected:
    """Outputs by name, as the reference has them."""

    exact: Arrays  # float64, or integers
    rounded: tuple[Arrays, ...]  # in the network's own types, disturbed; none where no output is real
    one_sum: float  # what rounding does to the longest sum of the network, of its value

    def compared(self, outputs: Arrays) -> tuple[Agreement, ...]:
        """Each output beside the reference; `outputs`: by name, in the shapes of the network."""
        with np.errstate(all="ignore"):
            return tuple(self._compared(name, outputs[name]) for name in self.exact)

    def _compared(self, name: str, output: np.ndarray) -> Agreement:
        exact = self.exact[name]
        rounded = [run[name] for run in self.rounded]
        as_given = np.any([_same(output, one) for one in (exact.astype(output.dtype), *rounded)], axis=0)
        if output.dtype.name not in REALS:
            return Agreement(name, output.size, int((~as_given).sum()), 0, None, None, None)
        last_place = REALS[output.dtype.name]
        output = output.astype(np.float64)
        rounded = [one.astype(np.float64) for one in rounded]
        finite = np.isfinite(exact) & np.all([np.isfinite(one) for one in (output, *rounded)], axis=0)
        sure = exact[finite]
        largest = float(np.abs(sure).max(initial=0.0))
        scale = float(np.ptp(sure)) if sure.size else 0.0
        scale = scale or largest or 1.0
        noise = max((_furthest(one[finite], sure) for one in rounded), default=0.0)
        accepted = max(MARGIN * noise, max(self.one_sum, last_place) * largest)
        far = finite & ~(
            np.abs(np.subtract(output, exact, where=finite, out=np.zeros(exact.shape))) <= accepted
        )
        odd = ~finite & ~as_given
        error = None if odd.any() else _furthest(output[finite], sure) / scale
        return Agreement(
            name,
            output.size,
            int((far | odd).sum()),
            int((~np.isfinite(exact)).sum()),
            scale,
            error,
            accepted / scale,
        )


def expected(graph: Graph, inputs: Arrays, stored: str = "") -> Expected:
    """Outputs of the reference, and how far off rounding may take them. Raises as `reference` does.

    `stored`: the element type, of REALS, that float32 maps and weights are rounded to; "": they are stored as
    they are.
    """
    real = _real(graph)
    exact = exactly(graph, inputs)
    sizes = [value.size for value in exact.values() if value.dtype.name in REALS]
    if not sizes:
        return Expected(exact, (), 0.0)
    rounding = _Rounding(real, np.random.default_rng(0), REALS[stored] if stored else 0.0)
    runs = RUNS_OF_FEW if min(sizes) < FEW else 1
    disturbed = tuple(
        reference(
            graph, {n: rounding.stored(v) if n in real else v for n, v in inputs.items()}, adjust=rounding
        )
        for _ in range(runs)
    )
    return Expected(exact, disturbed, rounding.one_sum)


def exactly(graph: Graph, inputs: Arrays) -> Arrays:
    """Outputs by name, computed in float64, but for what quantised maps are computed from.

    Raises as `reference` does.
    """
    real = _real(graph)
    tensors = {
        name: replace(tensor, dtype="float64") if name in real else tensor
        for name, tensor in graph.tensors.items()
    }
    return reference(
        replace(graph, tensors=tensors),
        {
            name: value.astype(tensors[name].dtype, copy=False) if name in real else value
            for name, value in inputs.items()
        },
    )


def _real(graph: Graph) -> frozenset[str]:
    """Real maps that no quantised map, and no text, is computed from."""
    fixed = {
        name
        for name, tensor in graph.tensors.items()
        if tensor.quantization or tensor.dtype.startswith(("float8", "float4", "string"))
    }
    for operator in reversed(graph.operators):
        if not fixed.isdisjoint(operator.outputs):
            fixed.update(operator.inputs)
    fixed.update(graph.constants)
    return frozenset(
        name for name, tensor in graph.tensors.items() if tensor.dtype in REALS and name not in fixed
    )


class _Rounding:
    """Disturbs what implementations round differently: functions and sums.

    Functions are disturbed by half an ulp, sums as if each partial sum had been rounded. Partial sums of k
    terms of either sign grow with the square root of their number, and their errors, a quarter of an ulp each
    (root mean square), add up in quadrature: sqrt(k / 2) / 4 ulps of the whole sum. Operators on two numbers
    give the same wherever they are computed.

    Where results are stored in a shorter type, each is disturbed by a quarter of its ulp, and so is each
    product, for that of its weight: in quadrature, that is a quarter of an ulp of what the products come to.
    """

    def __init__(self, real: frozenset[str], rng: np.random.Generator, last_place: float) -> None:
        """`last_place`: ulp of 1 of the type that results are stored in, if shorter than theirs; else 0."""
        self.real = real
        self.rng = rng
        self.last_place = last_place
        self.one_sum = last_place  # largest relative error of a sum so far

    def stored(self, value: np.ndarray) -> np.ndarray:
        """A float32 array as it is found where it was stored."""
        if not self.last_place or value.dtype != np.float32:
            return value
        with np.errstate(all="ignore"):
            return value * (
                1 + np.float32(self.last_place / 4) * self.rng.standard_normal(value.shape, np.float32)
            )

    def __call__(self, call: Call, operands: Sequence[Part | None], results: Results) -> Results:
        row = row_of(call)
        names = [name for name in call.operator.outputs if name]
        if (
            row.picks
            or row.family in MOVING
            or (row.elementwise and row.kind not in REAL and not self.last_place)
        ):
            return results
        real = (value.dtype.name in REALS and value.size > 0 for value in results)
        disturbed = (
            self.stored(self._disturbed(call, operands, v)) if one else v
            for v, one in zip(results, real, strict=True)
        )
        return tuple(
            other if name in self.real else one
            for name, one, other in zip(names, results, disturbed, strict=True)
        )

    def _disturbed(self, call: Call, operands: Sequence[Part | None], result: np.ndarray) -> np.ndarray:
        wide = np.float64 if result.dtype == np.float64 else np.float32  # of the accumulator
        terms = _terms(call)
        ulp = float(np.finfo(wide).eps)
        relative = ulp / 4 * (terms / 2) ** 0.5 if terms > 1 else ulp / 2
        if row_of(call).macs is not none and result.dtype == np.float32:
            relative = max(relative, self.last_place / 4)
        self.one_sum = max(self.one_sum, relative)
        noise = self.rng.standard_normal(result.shape, wide)  # pyright: ignore[reportCallIssue, reportArgumentType]  (overloads, not unions)
        noise *= wide(relative)
        with np.errstate(all="ignore"):
            if row_of(call).macs is none:
                return (result + result * noise).astype(result.dtype)
            # A sum that has cancelled is as far off as one that has not.
            largest = max(
                _rms(result),
                terms**0.5 * prod(_rms(part.values) for part in operands[:2] if part is not None),
            )
            return (result + wide(largest) * noise if np.isfinite(largest) else result).astype(result.dtype)


def _terms(call: Call) -> int:
    """Terms that are added up one after another for each element of the result; 1: it is no sum.

    Reductions and windows add up each row, then the rows: about 2 sqrt(terms) one after another.
    """
    row = row_of(call)
    result = call.result
    if products := row.macs(call):
        return products // max(prod(result), 1)
    if row.family is Family.REDUCTION:
        return 2 * isqrt(prod(call.shape(0)) // max(prod(result), 1)) or 1
    if row.family is Family.POOL:  # whose window may be larger than the map
        return 2 * isqrt(min(prod(call.attribute("kernel_shape", (1,))), prod(call.shape(0)[2:]))) or 1
    if row.family is Family.NORMALISATION:
        return prod(result[2:] if row.channel_axis else result[call.attribute("axis", -1) :])
    return 1


def _rms(values: np.ndarray) -> float:
    """Root mean square, in the array's own precision: a scale."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return float(np.sqrt(np.vdot(flat, flat) / max(flat.size, 1)))


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(same shape) bool: elements that are equal, where NaN equals NaN."""
    return (one == other) | (np.not_equal(one, one) & np.not_equal(other, other))


def _furthest(output: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(output - exact).max(initial=0.0))
