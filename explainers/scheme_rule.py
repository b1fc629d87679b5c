"""Rule without parameters for the buffer requirement of groups of one network, under one scheme.

A network that learns begins with it, and an explainer sees it change as links go. The rule of a mode is its
formula (`explainers.formulas`, `explainers.beyond_formulas`), that of a scheme the least over its modes. A
group that never runs by the rule counts with all its maps and weights whole: more than any group that can
run, and the more, the larger the group.

An explainer takes links away, or weighs them. Without some links, a group is in pieces, and needs what the
neediest piece needs, each with rows of its own at the border. Between links that are there and links that are
not, the requirement is interpolated: links are put in by falling weight, and what the requirement changes by
at each is multiplied by its weight. That is the Lovász extension of a function of sets (Lovász, in:
Mathematical Programming: The State of the Art, 1983): exact where weights are 0 or 1, continuous, and linear
in between, so that gradients say what a link brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from explainers.beyond_formulas import BeyondFormulas
from explainers.checker import LabelScheme
from explainers.graph import GroupGraph, GroupGraphs, links, member_table
from lfopt.ir import Hardware, Scheme
from lfopt.ops import Dataflow, bits
from lfopt.planning import SCHEMES
from lfopt.planning.defaults import MAX_RECOMPUTE

# (groups, operators) bool -> (groups,) bytes, by mode
FORMULAS: dict[LabelScheme, Callable[[BeyondFormulas, np.ndarray], np.ndarray]] = {
    "lbdf": BeyondFormulas.by_lines,
    "brr": BeyondFormulas.by_bands,
    "resident": BeyondFormulas.by_lives,
    "strips": BeyondFormulas.by_strips,
    "sliced": BeyondFormulas.by_slices,
    "gated": BeyondFormulas.by_gates,
}
WIDEST = 4  # bytes of an element where a group counts with everything whole
KEPT = 200_000  # pieces whose requirement is remembered before this memory starts afresh


class Requirement(NamedTuple):
    """Buffer requirement of a piece, or of the neediest of several."""

    log2_bytes: float
    never: float  # 1: no buffer is large enough; 0: some is


@dataclass(frozen=True, eq=False)
class ValidityQuery:
    """The question whether a group runs from a buffer, which an explainer is asked about."""

    rule: SchemeRule
    mask: int
    buffer_bytes: float

    @cached_property
    def graph(self) -> GroupGraph:
        """The group as the network reads it."""
        return self.rule.groups.graph(self.mask)

    def weighted(self, weights: np.ndarray) -> WeightedRequirement:
        """Requirement by the rule, with weights (links,)."""
        return weighted(self.rule.flow, self.mask, weights, self.rule.of)


class WeightedRequirement(NamedTuple):
    """Requirement of a group with links weighted, and its gradient."""

    need: Requirement
    slope: np.ndarray  # (2, links): of both


Judge = Callable[[Sequence[int]], np.ndarray]  # (pieces, as masks) -> (pieces, 2): their `Requirement`s


class SchemeRule:
    """The rule of a scheme, or of one mode, on the groups of one dataflow and chip."""

    def __init__(
        self,
        flow: Dataflow,
        hardware: Hardware,
        scheme: Scheme | LabelScheme,
        max_recompute: float = MAX_RECOMPUTE,
    ) -> None:
        """`max_recompute`: limit on a group's multiply-accumulates, as a multiple of its operators'."""
        self.flow = flow
        self.hardware = hardware
        self.scheme = scheme
        self.modes: list[LabelScheme] = [
            mode
            for mode in FORMULAS
            if mode == scheme or (scheme in SCHEMES and mode in SCHEMES[scheme].modes)
        ]
        self.groups = GroupGraphs(flow, hardware, self.evaluate)
        self._formulas = BeyondFormulas(flow, hardware, max_recompute)
        self._known: dict[int, np.ndarray] = {}

    def evaluate(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(bytes (groups,) float64, at least 1; whether they never run (groups,) bool).

        `members`: (groups, operators) bool.
        """
        bytes_needed = np.min([FORMULAS[mode](self._formulas, members) for mode in self.modes], 0)
        never = ~np.isfinite(bytes_needed)
        for k in np.flatnonzero(never).tolist():
            bytes_needed[k] = whole_bytes(self.flow, np.flatnonzero(members[k]).tolist())
        return np.maximum(bytes_needed, 1), never

    def of(self, masks: Sequence[int]) -> np.ndarray:
        """(groups, 2) float64: `Requirement`s of groups."""
        if len(self._known) >= KEPT:
            self._known.clear()
        if new := [mask for mask in dict.fromkeys(masks) if mask not in self._known]:
            bytes_needed, never = self.evaluate(member_table(new, len(self.flow)))
            self._known.update(zip(new, np.stack((np.log2(bytes_needed), never), 1), strict=True))
        return np.array([self._known[mask] for mask in masks]).reshape(-1, 2)


def whole_bytes(flow: Dataflow, operators: Sequence[int]) -> int:
    """Bytes of all maps that operators touch, and of all their weights, at WIDEST bytes an element."""
    touched = {m for i in operators for m in flow.results[i]} | {
        o.map for i in operators for o in flow.operands[i]
    }
    return WIDEST * (
        sum(flow.maps[m].elements for m in touched)
        + sum(w.elements for i in operators for w in flow.weights[i])
    )


def weighted(flow: Dataflow, mask: int, weights: np.ndarray, judge: Judge) -> WeightedRequirement:
    """Requirement and gradient of a group with weights (links,), given the requirement of its pieces.

    `judge`: requirement of pieces, see `Judge`; the interpolation is that of the module.
    """
    operators = [*bits(mask)]
    order = np.argsort(-weights, kind="stable")
    joined = [*_joined(operators, links(flow, mask)[:, order])]
    pieces = [1 << i for i in operators] + [piece for _, piece, _ in joined]
    known = dict(zip(pieces, judge(pieces), strict=True))
    current = {1 << i: known[1 << i] for i in operators}
    values = [_neediest(current)]
    after = np.zeros(len(order) + 1, np.int64)  # number of the value after so many links
    for at, piece, parts in joined:
        for part in parts:
            del current[part]
        current[piece] = known[piece]
        values.append(_neediest(current))
        after[at + 1 :] = len(values) - 1
    of_links = np.array(values)[after]  # (links + 1, 2)
    slope = np.zeros((2, len(order)))
    slope[:, order] = np.diff(of_links, axis=0).T
    return WeightedRequirement(Requirement(*(of_links[0] + slope @ weights).tolist()), slope)


def _neediest(pieces: dict[int, np.ndarray]) -> np.ndarray:
    return np.max([*pieces.values()], 0)


def _joined(operators: list[int], ordered: np.ndarray) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """(number of the link, joined piece, its two parts) of every link that joins two pieces.

    `ordered`: (2, links) int64, positions in `operators`.
    """
    piece = [1 << i for i in operators]  # of each operator: what it is part of
    for at, (u, v) in enumerate(ordered.T.tolist()):
        a = piece[u]
        b = piece[v]
        if a != b:
            yield at, a | b, (a, b)
            for k, i in enumerate(operators):
                if (a | b) >> i & 1:
                    piece[k] = a | b
