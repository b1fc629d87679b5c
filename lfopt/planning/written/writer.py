"""Nests as text, written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from lfopt.ops import Dataflow
from lfopt.planning.nest.tree import GroupNest, Node, PartialSums, RowLeaf, Seq, children
from lfopt.planning.passes.tree import Nest
from lfopt.planning.steps.renamed import Renaming

BARE = re.compile(r"[\w.:/~@+-]+")
PASSES = "in passes"
MEASURED = "statistics of "
# what a line is broken behind: a comma, but for those in JSON strings
LISTED = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^",])*(?:, |$)|.')
UNCHANGED = Renaming()


def nest_text(flow: Dataflow, nest: Nest) -> str:
    """The nest of a group as text. `parse_nest` reads it."""
    return "\n".join(nest_lines(flow, nest)) + "\n"


def nest_lines(flow: Dataflow, nest: Nest, names: Renaming = UNCHANGED) -> tuple[str, ...]:
    """The lines of that text. `names`: those of a group of the same structure, in place of its own."""
    if isinstance(nest, GroupNest):
        return tuple(_Writer(flow, nest, names).lines(nest.root, 0))
    lines = [PASSES]
    for channels in sorted({*nest.kept.values()}):
        kept = (m for m, kept_channels in nest.kept.items() if kept_channels == channels)
        of_so_many = f"{channels} channels of " if channels else ""
        lines.append(f"  keep {of_so_many}{_joined(_called(flow, kept, names))}")
    if nest.measured:
        measured = (flow.operators[i].name for i in sorted(nest.measured))
        lines.append(f"  keep {MEASURED}{_joined([names.operators.get(name, name) for name in measured])}")
    for one in nest.passes:
        lines += _Writer(flow, one, names).lines(one.root, 1)
    return tuple(lines)


def folded(lines: Iterable[str], width: int) -> Iterator[str]:
    """The lines, those of more than `width` columns broken behind commas: `parse_nest` reads them too."""
    for line in lines:
        here = ""
        deeper = " " * (len(line) - len(line.lstrip(" ")) + 4)
        for word in LISTED.findall(line):
            if here and len(here) + len(word.rstrip()) > width and here.rstrip().endswith(","):
                yield here.rstrip()
                here = deeper + word
            else:
                here += word
        yield here


class _Writer:
    """Writes one nest."""

    def __init__(self, flow: Dataflow, nest: GroupNest, names: Renaming) -> None:
        self.flow = flow
        self.nest = nest
        self.names = names

    def lines(self, node: Node, depth: int) -> Iterator[str]:
        """The lines of a node, and of those inside it."""
        indent = "  " * depth
        yield indent + self._head(node)
        here = [held for held, home in self.nest.homes.items() if home is node]
        carried = [held for held in here if isinstance(held, int) and held in self.nest.carried]
        held_here = (held for held in here if held not in carried and not isinstance(held, PartialSums))
        tensors = self._tensors(held_here)
        sums = sorted(held.operator for held in here if isinstance(held, PartialSums))
        if tensors:
            yield f"{indent}  hold {_joined(tensors)}"
        if carried:
            yield f"{indent}  carry {_joined(self._tensors(carried))}"
        if sums:
            yield f"{indent}  hold sums of {self._operators(sums)}"
        for stream in self.nest.streams:
            if stream.home is node:
                constants = _joined(self._tensors(stream.constants))
                stays = f" behind {stream.stays} channels that stay" if stream.stays else ""
                yield f"{indent}  stream {stream.slots} blocks{stays} of {constants}"
        for child in children(node):
            yield from self.lines(child, depth + 1)

    def _head(self, node: Node) -> str:
        """The line of a node."""
        if isinstance(node, RowLeaf):
            kind = "at once" if node.at_once else "line buffers"
            rows = f" by {node.band_rows} rows" if node.band_rows > 1 else ""
            sums = f", sums by {node.summed_rows} rows" if node.summed_rows > 1 else ""
            lead = ", last results lead" if node.last_lead else ""
            operators = [
                f"{MEASURED if i in node.measures else ''}{self._operators([i])}" for i in node.operators
            ]
            return f"{kind}{rows}{sums}{lead}: {', '.join(operators)}"
        if isinstance(node, Seq):
            if node.lives:
                return "in turn, sharing space"
            return "in turn"
        blocks = node.blocks
        cut = f"{blocks.count} blocks"
        if blocks.size:
            cut = f"blocks of {blocks.size} of {blocks.extent}"
            cut += f" in runs of {blocks.period}" if blocks.period != blocks.extent else ""
            cut += "".join(f", anew at {start}" for start in blocks.anew)
        folds = f", summed by {self._operators(node.folds)}" if node.folds else ""
        return f"{node.axis}, {cut}{folds}"

    def _operators(self, operators: Iterable[int]) -> str:
        names = [self.flow.operators[i].name for i in operators]
        return _joined([self.names.operators.get(name, name) for name in names])

    def _tensors(self, held: Iterable[int | str]) -> list[str]:
        return _called(self.flow, held, self.names)


def _called(flow: Dataflow, held: Iterable[int | str], names: Renaming) -> list[str]:
    """Names: of maps in the order of the network, then of constants."""
    own = [flow.maps[one].name if isinstance(one, int) else one for one in held]
    order = flow.map_index
    called = (names.tensors.get(name, name) for name in own)
    return sorted(called, key=lambda name: (order.get(name, len(order)), name))


def _joined(names: Sequence[str]) -> str:
    return ", ".join(name if BARE.fullmatch(name) else json.dumps(name) for name in names)
