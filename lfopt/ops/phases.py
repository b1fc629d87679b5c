"""Least DRAM traffic of contractions with a buffer of S bytes, in any schedule that recomputes nothing.

The bound holds in whatever order, groups and modes.

The argument is that of Hong and Kung (phases) with the inequality of Loomis and Whitney, of all contractions
of a network at once, whatever is fused around them. A contraction by weights adds products of row p (a
position of the window), inner index l (input channel and tap) and column j (output channel): M x K x N in
all. In a stretch of time in which it does F of them, let the elements that it touches be

* a of its operand, b weights and c partial sums that were on chip when the stretch began, are there when it
  ends, or cross to or from DRAM meanwhile;
* other elements of the operand: they are made and forgotten within the stretch, so all N products of each are
  done in it: F / N pairs (p, l) at most;
* other sums: they are begun and finished within the stretch, so all K products of each are done in it: F / K
  of them at most.

Weights are never made. One element of the operand stands for as many pairs (p, l) as windows tap it: u =
product of ceil(kernel / stride) over the axes (dilated: kernel over stride / gcd(stride, dilation)); such
reuse of a window is the subject of Demmel and Dinh, arXiv 1802.06905. A transposed convolution has the same
factor v on the side of its sums. By Loomis and Whitney F^2 <= pairs (p, l) x pairs (l, j) x pairs (p, j):

    F^2  <=  (u a + F / N)  b  (v c + F / K)

Let r(F) be the fewest bytes of such a, b and c: element_bytes, bytes of a weight, and accumulator_bytes each.
What satisfies the inequality for some F does so for every smaller F, too; and what does so for some F does so
for every larger F, in proportion. So r(F) does not fall, r(F) / F does not rise, and r(F) <= the bytes of all
K N weights: where R is above those there is no bound.

Cut the schedule where the sum over contractions of (products done) / F_k has risen by 1, with F_k such that
r_k(F_k) >= R. A part in which contraction k does f_k products touches at least sum r_k(f_k) >= R sum f_k /
F_k >= R bytes of these kinds, of which S at most were there when it began, and S when it ended. So each part
moves R - 2 S bytes of operands, weights and sums of these contractions. Compulsory bytes of other tensors
come on top.

Counted are windows that lie in the map with all of their taps, so that all rows have K products. Left out are
contractions whose weights others read too, and those whose operand is laid out from elements of others
(Concat, Resize, ...), which one byte might serve twice; what is only transposed is the map before. Of
contractions that read one map, those of alike shapes are one with all their columns; of others, the largest
counts. Products of two maps are left out: both may be made and forgotten part by part.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, gcd, inf, prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Hardware
from lfopt.ops.call import Call
from lfopt.ops.table import OpSpec, row_of
from lfopt.ops.traits import Family, Tiling
from lfopt.ops.windows import Window, windows

FACTORS = (1.125, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)  # R over 2 S
RATIO = 1.02  # from one operand to the next that `_touched` looks at: it is at most so much below r
STEPS = 60  # of bisection
SAFE = 1 - 1e-9  # what rounding of floating point may take


class ContractionProducts(NamedTuple):
    """The products of a contraction, or of several that read one map."""

    rows: int  # M
    inner: int  # K
    columns: int  # N
    groups: int  # that share nothing, of these sizes each
    reads: int  # u
    adds: int  # v
    compulsory: int  # bytes of its tensors that count as compulsory

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all groups."""
        return self.groups * self.rows * self.inner * self.columns


class MapContraction(NamedTuple):
    """A contraction by weights of its own, and the map that it reads."""

    root: str  # the map, or what is laid out in another order to make it
    loaded: int  # compulsory bytes of that map: those of an input of the network
    products: ContractionProducts


def beyond_compulsory(uses: Iterable[MapContraction], hardware: Hardware, on_chip: int) -> int:
    """DRAM bytes beyond the compulsory ones that any schedule with these contractions moves.

    It computes nothing twice; `on_chip`: S, in bytes.
    """
    contractions = _by_map(uses)
    if contractions:
        return max((_beyond(contractions, hardware, on_chip, factor) for factor in FACTORS), default=0)
    return 0


def keeps_elements(row: OpSpec) -> bool | None:
    """Whether a result has the elements of its operand, each once; None: some may come several times."""
    if row.permutes:
        return True
    if row.family in (Family.MOVE, Family.INDEX, Family.INTERPOLATION, Family.OTHER, Family.VIEW):
        return None
    return False


def _beyond(contractions: list[ContractionProducts], hardware: Hardware, on_chip: int, factor: float) -> int:
    touched = 2 * on_chip * factor  # R
    moved = floor(touched - 2 * on_chip)
    progress = 0.0
    compulsory = 0
    least = inf
    parts = dict[tuple[int, ...], float]()
    for products in contractions:
        key = products[1:3] + products[4:6]
        if key not in parts:
            parts[key] = _products_within(products, hardware, touched)
        done = products.macs / parts[key]
        if done * moved > products.compulsory:
            progress = progress + done
            compulsory = compulsory + products.compulsory
            least = min(least, parts[key])
    if progress:
        return max(floor(progress / (1 + 1 / least) * SAFE) * moved - compulsory, 0)
    return 0


def _products_within(products: ContractionProducts, hardware: Hardware, touched: float) -> float:
    """F with r(F) >= `touched`, the least that bisection finds; infinite where there is none."""
    if products.inner * products.columns * hardware.constant_bits(bias=False) <= 8 * touched:
        return inf
    low = 0.0
    high = float(products.inner * products.columns)
    while _touched(products, hardware, high, touched) < touched:
        low = high
        high = 4 * high
        if high > 4.0**STEPS:
            return inf
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _touched(products, hardware, middle, touched) >= touched else (middle, high)
        )
        if high - low < 1e-3 * high:
            break
    return high


def _touched(products: ContractionProducts, hardware: Hardware, macs: float, most: float) -> float:
    """A lower bound of r(F) in bytes, at most `most`; `macs`: F.

    Of every interval of pairs (p, l), its low end counts for the operand, its high end for the rest.
    """
    per_pair = hardware.element_bytes / products.reads
    per_sum = hardware.accumulator_bytes / products.adds
    weight = hardware.constant_bits(bias=False) / 8
    rows = macs / products.columns
    begun = macs / products.inner
    count = ceil(np.log(1 + most / (per_pair * rows)) / np.log(RATIO)) + 1
    pairs = rows * RATIO ** np.arange(count + 1)
    sums = np.maximum(np.sqrt(weight / per_sum / pairs[1:]) * macs, begun)
    least = (
        per_pair * (pairs[:-1] - rows) + weight * macs / pairs[1:] * (macs / sums) + per_sum * (sums - begun)
    )
    return min(float(least.min()) * SAFE, most)


def _by_map(uses: Iterable[MapContraction]) -> list[ContractionProducts]:
    """Per map, of those that read it: those of alike shapes as one, or another; what has most products."""
    by_map = dict[str, dict[object, list[ContractionProducts]]]()
    loaded = dict[str, int]()
    for number, (root, size, products) in enumerate(uses):
        alike = (0, products.rows, products.inner) if products[3:6] == (1, 1, 1) else (1, number)
        by_map.setdefault(root, {}).setdefault(alike, []).append(products)
        loaded[root] = size
    best = {
        root: max(map(_merged, kinds.values()), key=lambda products: products.macs)
        for root, kinds in by_map.items()
    }
    return [kind._replace(compulsory=kind.compulsory + loaded[root]) for root, kind in best.items()]


def _merged(same: list[ContractionProducts]) -> ContractionProducts:
    columns = sum(p.columns for p in same)
    compulsory = sum(p.compulsory for p in same)
    return same[0]._replace(columns=columns, compulsory=compulsory)


def products_of(call: Call, elements: int, compulsory: int) -> ContractionProducts | None:
    """The products of a contraction by weights; None for others, and where no window is wholly in the map.

    `elements`: of the map that it reads, behind views; `compulsory`: bytes of its constants, and of its
    result if that is one of the network.
    """
    row = row_of(call)
    if (
        row.tiling is not Tiling.CONTRACT
        or not call.constant[1]
        or call.constant[0]
        or len(call.shape(1)) < 2
    ):
        return None
    if row.family is Family.CONVOLUTION:
        axes = windows(call)
        groups = call.attribute("group", 1)
        taps = prod(axis.kernel for axis in axes)
        rows = call.shape(0)[0] * prod(_inside(axis) for axis in axes)
        reuse = prod(ceil(axis.kernel * gcd(axis.stride, axis.dilation) / axis.stride) for axis in axes)
        channels = call.shape(0)[1] // groups
        filters = call.result[1] // groups
        if not rows:
            return None
        if row.transposed:
            return ContractionProducts(rows, channels, filters * taps, groups, 1, reuse, compulsory)
        return ContractionProducts(rows, channels * taps, filters, groups, reuse, 1, compulsory)
    columns = call.result[-1]
    if len(call.shape(1)) != 2 or elements != prod(call.shape(0)) or row.family is not Family.PRODUCT:
        return None
    inner = _inner(call)
    return ContractionProducts(elements // inner, inner, columns, 1, 1, 1, compulsory)


def _inner(call: Call) -> int:
    if call.operator.kind == "Gemm" and call.attribute("transA", 0):
        return call.shape(0)[0]
    return call.shape(0)[-1]


def _inside(axis: Window) -> int:
    """Positions of a window with all taps in the map; transposed: elements with all products in it."""
    wide = (axis.kernel - 1) * axis.dilation
    within = axis.size
    places = axis.size_out
    if axis.transposed:
        within, places = places, within
    first = ceil(axis.pad / axis.stride)
    last = (within - 1 - wide + axis.pad) // axis.stride
    return max(min(last, places - 1) - first + 1, 0)
