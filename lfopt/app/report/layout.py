"""Layered drawing of a network, folded into lines as text is.

Layers by longest path; an edge over several layers passes through a *bend* in each layer between, one for all
readers of a map; order within layers by barycentres; straight lines by aligning medians; lines broken where
the fewest edges cross. Layers run to the right, lanes downwards. Sources: Sugiyama et al. 1981 for the
phases; Brandes and Koepf 2001, "Fast and Simple Horizontal Coordinate Assignment", for the alignment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

PITCH = 34  # from one layer to the next
WIDTH = 26  # of an operator
LANE = 20  # from one operator to the next in a layer
BEND = 8  # what an edge takes that passes
GAP = 26  # between two lines
TRACK = 4  # between edges that return to the next line
SWEEPS = 8
MAX_LINES = 200
SLACK = 0.08  # by how much of an even share a line may be longer or shorter, to be broken at a better place

Point = tuple[int, int]
Route = tuple[Point, ...]  # from the centre of a node to that of another


class Drawing(NamedTuple):
    """Centres of nodes, and the route of every edge, in units of the page."""

    width: int
    height: int
    nodes: tuple[Point, ...]
    routes: tuple[Route, ...]  # per edge
    lines: tuple[tuple[int, int], ...] = ()  # (top, bottom) of those that it is folded into


class Layers(NamedTuple):
    """A drawing in one line, before it is folded. Items are nodes, and bends behind them."""

    layer: list[int]  # per item
    members: list[list[int]]  # items per layer, from above
    y: list[int]  # centre of each item
    size: list[int]  # extent of each item downwards
    paths: list[list[int]]  # per edge: items from its source to its target


def draw(
    edges: Sequence[tuple[int, int]], group: Sequence[int], aspects: Iterable[float], head: int = 0
) -> list[Drawing]:
    """A drawing of an acyclic graph for each ratio of width to height.

    Edges lead from a lower to a higher number; `group` is the group of each node. `head`, in units of the
    page, is left free above every line.

    >>> draw([(0, 1)], [0, 0], [2.0])[0].nodes
    ((21, 13), (55, 13))
    """
    layers = _layered(len(group), edges)
    return [_folded(layers, len(group), edges, group, aspect, head) for aspect in aspects]


# -- layers --------------------------------------------------------------------------------------------------


def _layered(count: int, edges: Sequence[tuple[int, int]]) -> Layers:
    layer = _longest_paths(count, edges)
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        targets[source].append(target)
    bends: list[list[int]] = [[] for _ in range(count)]  # per node: the items that its edges pass through
    for node in range(count):
        for at in range(layer[node] + 1, max((layer[t] for t in targets[node]), default=0)):
            bends[node].append(len(layer))
            layer.append(at)
    # per item: its neighbours in the layer before, and in the layer behind
    before: list[list[int]] = [[] for _ in layer]
    behind: list[list[int]] = [[] for _ in layer]
    paths: list[list[int]] = []
    links: set[tuple[int, int]] = set()
    for source, target in edges:
        paths.append([source, *bends[source][: layer[target] - layer[source] - 1], target])
        links.update(pairwise(paths[-1]))
    for a, b in sorted(links):
        behind[a].append(b)
        before[b].append(a)
    members: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for item, at in enumerate(layer):
        members[at].append(item)
    _order(members, before, behind)
    size = [LANE] * count + [BEND] * (len(layer) - count)
    y = _coordinates(members, layer, before, behind, size, count)
    return Layers(layer, members, y, size, paths)


def _longest_paths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Layer of every node: behind all that it reads; if it reads nothing, just before its first reader."""
    layer = [0] * count
    has_source = [False] * count
    first_reader = [1 << 30] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layer[target] = max(layer[target], layer[source] + 1)
        has_source[target] = True
    for source, target in edges:
        first_reader[source] = min(first_reader[source], layer[target])
    for node in range(count):
        if not has_source[node] and first_reader[node] < 1 << 30:
            layer[node] = first_reader[node] - 1
    return layer


def _order(members: list[list[int]], before: list[list[int]], behind: list[list[int]]) -> None:
    """Sort each layer by the mean position of the neighbours, forth and back."""
    place: dict[int, float] = {}
    for items in members:
        place.update((item, k) for k, item in enumerate(items))
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        near = before if forth else behind
        for items in members if forth else reversed(members):
            if len(items) > 1:
                mean = {
                    i: sum(place[n] for n in near[i]) / len(near[i]) if near[i] else place[i] for i in items
                }
                items.sort(key=mean.__getitem__)
                place.update((item, k) for k, item in enumerate(items))


# -- coordinates ---------------------------------------------------------------------------------------------


def _coordinates(
    members: list[list[int]],
    layer: list[int],
    before: list[list[int]],
    behind: list[list[int]],
    size: list[int],
    count: int,
) -> list[int]:
    """Centres in the narrowest of four drawings: aligned to the layer before or behind, packed up or down."""
    place = [0] * len(layer)
    for items in members:
        for k, item in enumerate(items):
            place[item] = k
    crossed = _crossed(members, before, place, count)
    drawings: list[list[float]] = []
    for near in (before, behind):
        for up in (True, False):
            order = members if near is before else members[::-1]
            turned = [items if up else items[::-1] for items in order]
            at = place if up else [len(members[where]) - 1 - k for where, k in zip(layer, place, strict=True)]
            ys = _packed(turned, _aligned(turned, near, at, crossed), size)
            drawings.append(ys if up else [-y for y in ys])
    narrowest = min(
        drawings,
        key=lambda drawing: (max(drawing, default=0) - min(drawing, default=0), _bends(drawing, before)),
    )
    return [round(y) for y in narrowest]


def _bends(y: list[float], before: list[list[int]]) -> int:
    """Links that are not straight."""
    return sum(y[item] != y[other] for item, others in enumerate(before) for other in others)


def _crossed(
    members: list[list[int]], before: list[list[int]], place: list[int], count: int
) -> set[tuple[int, int]]:
    """Links that cross a link between two bends: those bends stay in line."""
    crossed: set[tuple[int, int]] = set()
    for items in members[1:]:
        inner = [(place[before[i][0]], place[i]) for i in items if i >= count and before[i][0] >= count]
        if not inner:
            continue
        ends = [b for _, b in inner]
        for item in items:
            for other in before[item]:
                if item >= count and other >= count:
                    continue
                k = bisect_left(ends, place[item])
                above = k > 0 and inner[k - 1][0] > place[other]
                below = k < len(inner) and inner[k][0] < place[other]
                if above or below:
                    crossed.add((other, item))
    return crossed


def _aligned(
    order: list[list[int]], near: list[list[int]], place: list[int], crossed: set[tuple[int, int]]
) -> list[int]:
    """Root of the straight line that each item lies on.

    Every item joins a median neighbour, unless that crosses a line already joined.
    """
    root = list(range(len(place)))
    taken = [False] * len(place)  # whether a line goes on from the item
    for items in order:
        reached = -1
        for item in items:
            neighbours = sorted(near[item], key=place.__getitem__)
            for middle in (
                dict.fromkeys(((len(neighbours) - 1) // 2, len(neighbours) // 2)) if neighbours else ()
            ):
                other = neighbours[middle]
                if (other, item) in crossed or (item, other) not in crossed:
                    link = (other, item)
                else:
                    link = (item, other)
                if link not in crossed and not taken[other] and place[other] > reached:
                    root[item], taken[other], reached = root[other], True, place[other]
                    break
    return root


def _packed(order: list[list[int]], root: list[int], size: list[int]) -> list[float]:
    """Centres: every line as far up as those above it allow."""
    # per root: (root of the line above, distance between the centres)
    above: list[list[tuple[int, float]]] = [[] for _ in root]
    for items in order:
        for upper, lower in pairwise(items):
            above[root[lower]].append((root[upper], (size[upper] + size[lower]) / 2))
    y: dict[int, float] = {}
    for start in {root[item]: None for items in order for item in items}:
        stack = [start]
        while stack:
            line = stack[-1]
            waiting = [upper for upper, _ in above[line] if upper not in y] if line not in y else []
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if line not in y:
                y[line] = max(
                    (y[upper] + distance for upper, distance in above[line]), default=size[line] / 2
                )
    return [y[line] for line in root]


# -- lines ---------------------------------------------------------------------------------------------------


def _folded(
    layers: Layers,
    count: int,
    edges: Sequence[tuple[int, int]],
    group: Sequence[int],
    aspect: float,
    head: int,
) -> Drawing:
    breaks = _breaks(layers, edges, group, aspect, head)
    lines = [layers.members[start:stop] for start, stop in pairwise(breaks)]
    line_of = [k for k, line in enumerate(lines) for _ in line]  # per layer
    # per line: sources of the edges that leave it for the next, each with its own track back
    tracks: list[dict[int, int]] = [{} for _ in lines]
    for path in layers.paths:
        for k in range(line_of[layers.layer[path[0]]], line_of[layers.layer[path[-1]]]):
            tracks[k].setdefault(path[0], len(tracks[k]))
    margin = TRACK * (max(map(len, tracks), default=0) + 2)
    nodes: dict[int, Point] = {}
    gaps: list[int] = []  # per line: where the gap below it starts
    spans: list[tuple[int, int]] = []
    top = 3 + head
    for line, leaving in zip(lines, tracks, strict=True):
        items = [item for layer in line for item in layer]
        shift = top - min(layers.y[i] - layers.size[i] // 2 for i in items)
        for x, layer in enumerate(line):
            nodes.update((item, (margin + WIDTH // 2 + PITCH * x, layers.y[item] + shift)) for item in layer)
        bottom = max(nodes[i][1] + layers.size[i] // 2 for i in items)
        gaps.append(bottom + GAP // 3)
        spans.append((top, bottom))
        top = bottom + GAP + TRACK * len(leaving) + head
    width = 2 * margin + PITCH * max(map(len, lines), default=1) - (PITCH - WIDTH)
    routes = tuple(_route(path, layers.layer, line_of, nodes, tracks, gaps) for path in layers.paths)
    return Drawing(
        width,
        top - GAP - head + 3 if lines else 0,
        tuple(nodes[i] for i in range(count)),
        routes,
        tuple(spans),
    )


def _route(
    path: list[int],
    layer: list[int],
    line_of: list[int],
    nodes: dict[int, Point],
    tracks: list[dict[int, int]],
    gaps: list[int],
) -> Route:
    """Points of an edge, without those on a straight line between two others."""
    points = [nodes[path[0]]]
    for before, item in pairwise(path):
        left = line_of[layer[before]]
        if left != line_of[layer[item]]:
            # It turns off to the right, runs back in the gap on its own track, and comes in from the left.
            aside = TRACK * tracks[left][path[0]]
            out = points[-1][0] + WIDTH // 2 + TRACK + aside
            into = nodes[item][0] - WIDTH // 2 - TRACK - aside
            level = gaps[left] + aside
            points += [(out, points[-1][1]), (out, level), (into, level), (into, nodes[item][1])]
        if len(points) > 1 and points[-2][1] == points[-1][1] == nodes[item][1]:
            points.pop()
        points.append(nodes[item])
    return tuple(points)


def _breaks(
    layers: Layers, edges: Sequence[tuple[int, int]], group: Sequence[int], aspect: float, head: int
) -> list[int]:
    """First layer of every line, and the number of layers.

    Lines have about equal lengths, and are broken where the fewest edges cross.
    """
    total = len(layers.members)
    if not total:
        return [0]
    # per layer: edges that come from the layer before; those inside a group count more
    torn = [0] * (total + 1)
    links: dict[tuple[int, int], int] = {}
    for path, (source, target) in zip(layers.paths, edges, strict=True):
        weight = 4 if group[source] == group[target] >= 0 else 1
        for item in path[1:]:
            key = (path[0], layers.layer[item])
            links[key] = max(links.get(key, 0), weight)
    for (_, at), weight in links.items():
        torn[at] += weight
    lines = -(-total // _line_length(layers, aspect, head))
    breaks = [0]
    for left in range(lines, 1, -1):
        even = (total - breaks[-1]) / left
        slack = max(int(even * SLACK), 1)
        middle = breaks[-1] + max(round(even), 1)
        choices = range(max(middle - slack, breaks[-1] + 1), min(middle + slack, total - left + 1) + 1)
        breaks.append(min(choices, key=lambda k: (torn[k], abs(k - middle))))
    return [*breaks, total]


def _line_length(layers: Layers, aspect: float, head: int) -> int:
    """Layers per line, for a drawing of about this ratio of width to height."""
    total = len(layers.members)
    low = [min(layers.y[i] - layers.size[i] // 2 for i in items) for items in layers.members]
    high = [max(layers.y[i] + layers.size[i] // 2 for i in items) for items in layers.members]

    def off(length: int) -> float:
        starts = range(0, total, length)
        height = sum(max(high[k : k + length]) - min(low[k : k + length]) + GAP + head for k in starts)
        ratio = min(length, total) * PITCH / height / aspect
        return max(ratio, 1 / ratio)

    lengths = {-(-total // lines) for lines in range(1, min(total, MAX_LINES) + 1)}
    return min(sorted(lengths), key=off)
