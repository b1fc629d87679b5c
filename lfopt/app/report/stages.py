"""Stages of a network, by names of its exporter or by resolution, and where a drawing shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NamedTuple

from lfopt.app.report.layout import WIDTH, Drawing
from lfopt.ir.origins import parts
from lfopt.ops import Dataflow

MOST = 26  # stages of a network
FEW = 8  # stages: of fewer, the largest is divided
LARGE = 0.3  # of all operators: a stage with more is looked into


class StageMark(NamedTuple):
    """A stage above one line of a drawing."""

    name: str
    left: int
    right: int
    y: int  # top of the line


def stages(flow: Dataflow) -> list[str]:
    """Stage of each operator; empty names where nothing divides the network into a few."""
    named = by_path([parts(operator.origin.scope or operator.name) for operator in flow.operators])
    return named or _by_resolution(flow)


def by_path(paths: Sequence[Sequence[str]]) -> list[str]:
    """Stage of each operator: the first components of its path that divide all into a few stages; else [].

    >>> blocks = (f"net.block.{k}.{part}" for k in range(7) for part in "ab")
    >>> by_path([path.split(".") for path in ("net.stem", *blocks, "net.head")])[:5]
    ['stem', 'block.0', 'block.0', 'block.1', 'block.1']
    """
    depth = [1] * len(paths)
    while True:
        keys = [tuple(path[:k]) for path, k in zip(paths, depth, strict=True)]
        counts = Counter(keys)
        for key, count in counts.most_common():
            inside = {
                tuple(path[: len(key) + 1]) for path, own in zip(paths, keys, strict=True) if own == key
            }
            few = len(counts) - 1 + len(inside) <= MOST
            if few and key not in inside and (len(counts) < FEW or count > LARGE * len(paths)) and count > 1:
                depth = [k + (own == key) for own, k in zip(keys, depth, strict=True)]
                break
        else:
            labels = _labels(counts)
            if 1 < len(counts) <= MOST:
                return [labels[key] for key in keys]
            return []


def _labels(keys: Collection[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """The last component of each path, with those before it that tell paths apart or that a number needs."""
    labels: dict[tuple[str, ...], str] = {}
    for key in keys:
        last = 2 if key and key[-1].isdigit() else 1
        while last < len(key) and any(other[-last:] == key[-last:] for other in keys if other != key):
            last += 1
        labels[key] = ".".join(key[-last:])  # nothing of a name that is dots alone
    return labels


def _by_resolution(flow: Dataflow) -> list[str]:
    sizes = [
        "\u00d7".join(map(str, flow.maps[results[0]].shape[2:])) if results else ""
        for results in flow.results
    ]
    if 1 < sum(1 for _ in groupby(sizes)) <= MOST:
        return sizes
    return [""] * len(sizes)


def marks(drawing: Drawing, first: int, names: Sequence[str]) -> list[StageMark]:
    """Stages above the lines of a drawing: per column the stage of most of its operators.

    `first` is the node of the first operator.
    """
    columns: dict[tuple[int, int], Counter[str]] = {}
    for (x, y), name in zip(drawing.nodes[first:], names, strict=False):
        line = next(k for k, (top, bottom) in enumerate(drawing.lines) if top <= y <= bottom)
        columns.setdefault((line, x), Counter())[name] += 1
    stages: list[StageMark] = []
    for (line, name), run in groupby(
        sorted(columns), key=lambda at: (at[0], columns[at].most_common(1)[0][0])
    ):
        xs = [x for _, x in run]
        if name:
            stages.append(StageMark(name, xs[0] - WIDTH // 2, xs[-1] + WIDTH // 2, drawing.lines[line][0]))
    return stages
