r"""Nests as text, read. `lfopt.planning.written.writer` writes them.

A line for each node, those inside it indented by two more spaces; below a node's own line, what it holds and
what streams through it:

    rows, 2 blocks
      hold x, project.out
      stream 2 blocks of expand.weight, project.weight
      in turn
        channels, blocks of 16 of 96, summed by project
          hold sums of project
          in turn
            hold expand.out
            at once: expand
            at once: project

Maps that every loop around carries on to the next block stand behind `carry` in place of `hold`. A group in
several passes says so at the left margin, and what stays on chip between them; each pass is a nest:

    in passes
      keep 96 channels of expand.out, gate.out
      line buffers: expand, mean
      line buffers: multiply, project

A name that is not of letters, digits and . : / ~ @ + - _ alone is written as a JSON string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from lfopt.ir import InvalidConfig
from lfopt.ops import Dataflow
from lfopt.planning.nest.tree import (
    Axis,
    BlockLoop,
    Blocks,
    GroupNest,
    Held,
    Node,
    PartialSums,
    RowLeaf,
    Seq,
    Stream,
)
from lfopt.planning.passes.tree import Nest, Passes
from lfopt.planning.written.pass_rules import broken_pass
from lfopt.planning.written.rules import BrokenRule, broken_rule
from lfopt.planning.written.writer import MEASURED, PASSES

NAMES = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[\w.:/~@+-]+)\s*(,|$)')
LEAF = re.compile(
    r"(at once|line buffers(?: by (\d+) rows)?(?:, sums by (\d+) rows)?(, last results lead)?): (.+)"
)
LOOP = re.compile(
    r"(rows|columns|channels|outputs), (?:(\d+) blocks|blocks of (\d+) of (\d+)(?: in runs of (\d+))?)"
    r"((?:, anew at \d+)*)(?:, summed by (.+))?"
)
SEQ = re.compile(r"in turn(, sharing space)?")
KEEP = re.compile(r"keep (?:(\d+) channels of |(statistics of ))?(.+)")
HOLD = re.compile(r"(hold|carry) (sums of )?(.+)")
STREAM = re.compile(r"stream (\d+) blocks(?: behind (\d+) channels that stay)? of (.+)")
NODES = (
    "'rows, N blocks', 'columns, blocks of N of M', 'channels, blocks of N of M', 'in turn', "
    "'line buffers: operators', 'at once: operators', 'in passes'"
)
MOST_NODES = 10_000
MOST_NUMBER = 1 << 40


@dataclass
class _Line:
    """One node as it is written, with what is said below it."""

    number: int  # of the line in the file
    text: str
    below: list[_Line] = field(default_factory=list["_Line"])


def parse_nest(text: str, flow: Dataflow, file: str) -> tuple[int, Nest]:
    """(mask of the operators, nest) of a text. Raises InvalidConfig that names file and line.

    Checked: see `lfopt.planning.written.rules`, and `lfopt.planning.written.pass_rules`.
    """
    line = _root(text, file)
    if line.text == PASSES:
        written = _written_passes(line, flow, file)
        _check_passes(written, flow, file)
        return written.passes.mask, written.passes
    reader = _Reader(flow, file)
    nest = reader.nest(line)
    broken = broken_rule(flow, nest)
    if broken is None and nest.measures:
        leaf = nest.leaf_of[min(nest.measures)]
        broken = BrokenRule(leaf, "statistics in a nest of one pass", "statistics kept by 'in passes'")
    if broken is not None:
        raise _refused(file, reader.line_of(broken.where), broken)
    return sum(1 << i for i in nest.leaf_of), nest


def operators_of_text(text: str, flow: Dataflow, file: str) -> int:
    """Mask of the operators that a text names. Raises InvalidConfig; rules are not looked at."""
    line = _root(text, file)
    if line.text == PASSES:
        return _written_passes(line, flow, file).passes.mask
    return sum(1 << i for i in _Reader(flow, file).nest(line).leaf_of)


def _root(text: str, file: str) -> _Line:
    """The only line at the left margin."""
    lines = [*_outline(text, file)]
    if len(lines) != 1:
        wrong = f"{len(lines)} nodes" if lines else "nothing"
        raise InvalidConfig(f"{file}: found {wrong} at the left margin; accepted: one node, {NODES}")
    return lines[0]


def _refused(file: str, line: int, broken: BrokenRule) -> InvalidConfig:
    return InvalidConfig(f"{file}:{line}: found {broken.wrong}; accepted: {broken.accepted}")


class _WrittenPasses(NamedTuple):
    """Passes, and where they stand."""

    passes: Passes
    readers: tuple[_Reader, ...]  # one per pass
    kept_at: dict[int | PartialSums, int]  # per map, or statistics, that are kept: the line that says so


def _written_passes(head: _Line, flow: Dataflow, file: str) -> _WrittenPasses:
    """The passes below a line that says `in passes`."""
    kept: dict[int, int] = {}
    kept_at: dict[int | PartialSums, int] = {}
    measured: set[int] = set()
    readers: list[_Reader] = []
    nests: list[GroupNest] = []
    for line in head.below:
        reader = _Reader(flow, file)
        if line.text.startswith("keep "):
            for held, channels in reader.kept(line):
                if held in kept_at:
                    raise reader.error(line, "what is kept twice", "one 'keep' for each")
                kept_at[held] = line.number
                if isinstance(held, int):
                    kept[held] = channels
                else:
                    measured.add(held.operator)
        else:
            nests.append(reader.nest(line))
            readers.append(reader)
    if len(nests) < 2:
        raise _Reader(flow, file).error(head, f"{len(nests)} nodes below 'in passes'", "two or more")
    passes = Passes(tuple(nests), kept, frozenset(measured))
    return _WrittenPasses(passes, tuple(readers), kept_at)


def _check_passes(written: _WrittenPasses, flow: Dataflow, file: str) -> None:
    refused = broken_pass(flow, written.passes)
    if refused is None:
        return
    if refused.number is not None:
        raise _refused(file, written.readers[refused.number].line_of(refused.broken.where), refused.broken)
    held = refused.broken.where
    assert isinstance(held, int | PartialSums), "what is said of no pass is said of what is kept"
    raise _refused(file, written.kept_at[held], refused.broken)


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines by number, without comments; one that ends with a comma goes on with the next."""
    begun = ""
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        if begun:
            begun = f"{begun} {content}"
        else:
            begun = line.rstrip()
            first = number
        if not content.endswith(","):
            yield first, begun
            begun = ""
    if begun:
        yield first, begun


def _outline(text: str, file: str) -> Iterator[_Line]:
    """The lines at the left margin, each with those below it."""
    stack: list[_Line] = []
    for count, (number, line) in enumerate(_whole_lines(text), 1):
        content = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if count > MOST_NODES or indent % 2 or indent // 2 > len(stack) or line[indent : indent + 1] == "\t":
            raise InvalidConfig(
                f"{file}:{number}: found {indent} spaces before {content[:40]!r}; accepted: two more than "
                f"the line of the node around it, at most {MOST_NODES:,} lines"
            )
        del stack[indent // 2 :]
        entry = _Line(number, content)
        if stack:
            stack[-1].below.append(entry)
        else:
            yield entry
        stack.append(entry)


class _Reader:
    """Nodes, homes and streams of one text."""

    def __init__(self, flow: Dataflow, file: str) -> None:
        self.flow = flow
        self.file = file
        self.homes: dict[Held, Node] = {}
        self.streams: list[Stream] = []
        self.carried: set[int] = set()
        self.lines: dict[Node, int] = {}  # per node: the line that it stands on
        self.held_at: dict[Held, int] = {}  # per tensor: the line that says where it is held
        self._index = {tensor.name: m for m, tensor in enumerate(flow.maps)}
        self._constants = {w.name for weights in flow.weights for w in weights if not w.gathered}

    def nest(self, line: _Line) -> GroupNest:
        """The nest whose root stands on a line. Raises InvalidConfig; rules are not looked at."""
        root = self.node(line)
        return GroupNest(root, self.homes, tuple(self.streams), frozenset(self.carried))

    def kept(self, line: _Line) -> Iterator[tuple[int | PartialSums, int]]:
        """(map, or statistics; channels of the map that stay between passes, 0: all) of a line."""
        keep = KEEP.fullmatch(line.text)
        if keep is None or line.below:
            accepted = "'keep names', 'keep N channels of names', 'keep statistics of operators'"
            raise self.error(line, repr(line.text[:60]), accepted)
        if keep[2]:
            yield from ((PartialSums(i), 0) for i in self._operators(line, keep[3]))
            return
        channels = self._number(line, keep[1]) if keep[1] else 0
        for name in self._names(line, keep[3]):
            if name not in self._index:
                raise self.error(line, f"map {name[:60]!r}", "maps of the simplified network")
            yield self._index[name], channels

    def node(self, line: _Line) -> Node:
        """A node, and all that is below it."""
        said = [below for below in line.below if below.text.startswith(("hold ", "carry ", "stream "))]
        inner = [self.node(below) for below in line.below if below not in said]
        if (leaf := LEAF.fullmatch(line.text)) is not None:
            node: Node = self._leaf(line, leaf, inner)
        elif (loop := LOOP.fullmatch(line.text)) is not None:
            node = self._loop(line, loop, inner)
        elif (seq := SEQ.fullmatch(line.text)) is not None:
            if not inner:
                raise self.error(line, "nothing below 'in turn'", "one node or more")
            node = Seq(tuple(inner), lives=seq[1] is not None)
        else:
            raise self.error(line, repr(line.text[:60]), NODES)
        self.lines[node] = line.number
        for below in said:
            self._said(node, below)
        return node

    def _leaf(self, line: _Line, match: re.Match[str], inner: Sequence[Node]) -> RowLeaf:
        if inner:
            raise self.error(line, "nodes below a leaf", "none")
        measures: set[int] = set()
        operators: set[int] = set()  # what follows in flight is part of what it follows
        rest = match[5]
        while rest:
            is_measured = rest.startswith(MEASURED)
            name, rest = self._first_name(line, rest.removeprefix(MEASURED))
            operators.add(self._operator(line, name))
            if is_measured:
                measures.add(self._operator(line, name))
        rows = self._number(line, match[2]) if match[2] else 1
        sums = self._number(line, match[3]) if match[3] else 1
        at_once = match[1] == "at once"
        return RowLeaf(
            tuple(sorted(operators)), at_once, rows, sums, match[4] is not None, frozenset(measures)
        )

    def _loop(self, line: _Line, match: re.Match[str], inner: Sequence[Node]) -> BlockLoop:
        if len(inner) != 1:
            raise self.error(line, f"{len(inner)} nodes below a loop", "one; several stand below 'in turn'")
        axes: dict[str, Axis] = {axis: axis for axis in get_args(Axis)}
        if match[2]:
            blocks = Blocks(self._number(line, match[2]))
        else:
            size = self._number(line, match[3])
            extent = self._number(line, match[4])
            period = self._number(line, match[5]) if match[5] else 0
            anew = [self._number(line, start) for start in re.findall(r"\d+", match[6])]
            if period and anew:
                raise self.error(line, "'in runs of' and 'anew at'", "one of them")
            blocks = Blocks.of_size(size, extent, period, anew)
            if list(blocks.anew) != anew:
                raise self.error(line, f"anew at {anew}", "ascending ends that are no ends of blocks")
        folds = tuple(self._operators(line, match[7])) if match[7] else ()
        return BlockLoop(axes[match[1]], blocks, inner[0], folds)

    def _said(self, node: Node, line: _Line) -> None:
        """What a node holds, or streams."""
        if line.below:
            raise self.error(line.below[0], "a line below what a node holds", "none")
        if (stream := STREAM.fullmatch(line.text)) is not None:
            names = [*self._names(line, stream[3])]
            for name in names:
                if name not in self._constants:
                    raise self.error(line, f"constant {name[:60]!r}", "weights of operators of the network")
            stays = self._number(line, stream[2]) if stream[2] else 0
            self.streams.append(Stream(node, frozenset(names), self._number(line, stream[1]), stays))
            return
        hold = HOLD.fullmatch(line.text)
        if hold is None:
            raise self.error(
                line,
                repr(line.text[:60]),
                "'hold names', 'carry names', 'hold sums of operators', 'stream N blocks of names'",
            )
        held = self._operators(line, hold[3]) if hold[2] else self._tensors(line, hold[3])
        for one in held:
            key: Held = PartialSums(one) if hold[2] and isinstance(one, int) else one
            if hold[1] == "carry":
                if not isinstance(key, int):
                    raise self.error(line, "what is no map behind 'carry'", "maps")
                self.carried.add(key)
            if key in self.homes:
                raise self.error(line, "a tensor that is held in two places", "one place for each")
            self.homes[key] = node
            self.held_at[key] = line.number

    def _operators(self, line: _Line, text: str) -> Iterator[int]:
        for name in self._names(line, text):
            yield self._operator(line, name)

    def _operator(self, line: _Line, name: str) -> int:
        if name not in self.flow.position:
            accepted = "operators of the simplified network, by name"
            raise self.error(line, f"operator {name[:60]!r}", accepted)
        return self.flow.position[name]

    def _tensors(self, line: _Line, text: str) -> Iterator[int | str]:
        for name in self._names(line, text):
            if name in self._index:
                yield self._index[name]
            elif name in self._constants:
                yield name
            else:
                raise self.error(line, f"tensor {name[:60]!r}", "maps and weights of the simplified network")

    def _names(self, line: _Line, text: str) -> Iterator[str]:
        while text:
            name, text = self._first_name(line, text)
            yield name

    def _first_name(self, line: _Line, text: str) -> tuple[str, str]:
        """(the first name of a list, what follows the comma behind it)."""
        match = NAMES.match(text)
        if match is None:
            raise self.error(line, repr(text[:40]), "names between commas, quoted where need be")
        name = match[1]
        if name.startswith('"'):
            try:
                name = json.loads(name)
            except ValueError as error:
                raise self.error(line, name[:40], "a JSON string") from error
        return name, text[match.end() :].lstrip(" ")

    def _number(self, line: _Line, text: str) -> int:
        if len(text) > 14 or not 0 < int(text) <= MOST_NUMBER:
            raise self.error(line, text[:20], f"a whole number from 1 to {MOST_NUMBER:,}")
        return int(text)

    def line_of(self, where: Node | Held) -> int:
        """The line of a node, or that which says where a tensor is held."""
        if isinstance(where, (RowLeaf, BlockLoop, Seq)):
            return self.lines[where]
        return self.held_at[where]

    def error(self, line: _Line, wrong: str, accepted: str) -> InvalidConfig:
        """What is wrong with a line."""
        return InvalidConfig(f"{self.file}:{line.number}: found {wrong}; accepted: {accepted}")
