"""What a nest must be like to run. A recount of its steps proves the rest.

Each operator runs in one leaf, behind those that it reads. A tensor is held around all operators that touch
it. No two loops cut one axis of a tensor. An operator that reads sums runs after the loop that makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lfopt.ops import Dataflow
from lfopt.ops.columns import column_count, column_reads
from lfopt.planning.nest.channels import channels_cut, folded_extent
from lfopt.planning.nest.tree import (
    BlockLoop,
    GroupNest,
    Held,
    Node,
    PartialSums,
    RowLeaf,
    Stream,
    walk,
)


class BrokenRule(NamedTuple):
    """A rule that a nest breaks."""

    where: Node | Held  # a node, or what it says of something that it holds
    wrong: str
    accepted: str


def broken_rule(flow: Dataflow, nest: GroupNest) -> BrokenRule | None:
    """The first rule that a nest breaks; None if it breaks none."""
    return next(_Rules(flow, nest).broken(), None)


class _Rules:
    """The rules of one nest."""

    def __init__(self, flow: Dataflow, nest: GroupNest) -> None:
        self.flow = flow
        self.nest = nest

    def broken(self) -> Iterator[BrokenRule]:
        """All rules that the nest breaks; no rule is looked at if one before it is broken."""
        yield from self._order()
        for loop in (node for node in self.nest.paths if isinstance(node, BlockLoop)):
            yield from self._count(loop)
        for held in self.nest.homes:
            yield from self._home(held)
        for m in sorted(self.nest.carried):
            yield from self._carried(m)
        for leaf in (node for node in self.nest.paths if isinstance(node, RowLeaf)):
            yield from self._loops_around(leaf)
        for loop in (node for node in self.nest.paths if isinstance(node, BlockLoop)):
            yield from self._loop(loop)
        for stream in self.nest.streams:
            yield from self._stream(stream)

    def _order(self) -> Iterator[BrokenRule]:
        """Every operator runs in one leaf, behind those that it reads."""
        run: list[int] = []
        for leaf in (node for node in walk(self.nest.root) if isinstance(node, RowLeaf)):
            for i in leaf.operators:
                if i in run:
                    yield BrokenRule(leaf, f"operator {self._name(i)} in two leaves", "one leaf for each")
                run.append(i)
        order = {i: k for k, i in enumerate(run)}
        for i in run:
            for operand in self.flow.operands[i]:
                maker = self.flow.producer[operand.map]
                if order.get(maker, -1) > order[i]:
                    wrong = f"{self._name(i)} before {self._name(maker)}, whose result it reads"
                    yield BrokenRule(self.nest.leaf_of[i], wrong, "operators behind those that they read")

    def _count(self, loop: BlockLoop) -> Iterator[BrokenRule]:
        """There are no more blocks than indices of anything that operators of the loop make or read."""
        flow = self.flow
        most = 1
        for i in self.nest.operators[loop]:
            shapes = [flow.calls[i].result, *(flow.maps[o.map].shape for o in flow.operands[i])]
            for shape in shapes:
                if loop.axis == "columns":
                    most = max(most, column_count(shape))
                else:
                    most = max(most, *shape)
        if loop.blocks.count > most:
            wrong = f"{loop.blocks.count:,} blocks of at most {most:,} {loop.axis}"
            yield BrokenRule(loop, wrong, "no more blocks than that")

    def _home(self, held: Held) -> Iterator[BrokenRule]:
        """A tensor is held around all operators that touch it; a leaf may load what it reads late itself."""
        home = self.nest.homes[held]
        touching = [i for i in self.nest.leaf_of if held in self._touched(i)]
        inside = self.nest.operators[home]
        outside = [i for i in touching if i not in inside and not self._may_load_late(i, held)]
        if outside:
            wrong = f"{self._name(outside[0])}, which touches it, outside"
        elif not any(i in inside for i in touching):
            wrong = "nothing that touches it"
        else:
            return
        accepted = "a node around all operators of the nest that make or read what is held"
        yield BrokenRule(held, wrong, accepted)

    def _may_load_late(self, op: int, held: Held) -> bool:
        """Whether an operator reads a map from outside only once the sums of its row engine are finished."""
        leaf = self.nest.leaf_of[op]
        sums = any(op in loop.folds for loop in self.nest.loops_to[leaf])
        if leaf.at_once or not sums or not isinstance(held, int):
            return False
        if self.flow.producer[held] in self.nest.leaf_of:
            return False
        own = len(self.flow.calls[op].operator.inputs)
        return all(o.input >= own for o in self.flow.operands[op] if o.map == held)

    def _carried(self, m: int) -> Iterator[BrokenRule]:
        """A map is carried by a loop over rows and one over columns inside it, and has both."""
        home = self.nest.homes[m]
        tensor = self.flow.maps[m]
        axes = [loop.axis for loop in self.nest.loops_to[home]]
        at_once = isinstance(home, RowLeaf) and home.at_once
        if not at_once or axes != ["rows", "columns"]:
            wrong = "'carry' elsewhere"
        elif tensor.rows < 2 or column_count(tensor.shape) < 2:
            wrong = f"{tensor.name[:60]!r} of shape {list(tensor.shape)} behind 'carry'"
        elif not {*self.nest.leaf_of} <= {*self.nest.operators[home]}:
            wrong = "'carry' in a nest of several leaves"
        else:
            return
        accepted = "maps with rows and columns, 'at once', in a loop over columns, in one over rows"
        yield BrokenRule(m, wrong, accepted)

    def _touched(self, op: int) -> set[Held]:
        flow = self.flow
        constants = {w.name for w in flow.weights[op]}
        return {*(o.map for o in flow.operands[op]), *flow.results[op], *constants, PartialSums(op)}

    def _loops_around(self, leaf: RowLeaf) -> Iterator[BrokenRule]:
        """Rows and columns are cut once, and so are the channels of every operator."""
        loops = self.nest.loops_to[leaf]
        axes = Counter(loop.axis for loop in loops)
        for axis in ("rows", "columns"):
            if axes[axis] > 1:
                (_, inner, *_) = (loop for loop in loops if loop.axis == axis)
                yield BrokenRule(inner, f"a loop over {axis} in another", "one around each leaf")
        if not leaf.at_once and axes["rows"] and axes["columns"]:
            wrong = "line buffers in loops over rows and columns"
            yield BrokenRule(leaf, wrong, "'at once', or one of the two")
        for i in leaf.operators if axes["columns"] else ():
            for operand in self.flow.operands[i]:
                if column_reads(self.flow.calls[i], operand.input) is None:
                    wrong = f"{self._name(i)} in a loop over columns"
                    yield BrokenRule(leaf, wrong, "operators that read known columns for each of their own")
        yield from self._channels_again(leaf, loops)
        for i in leaf.operators:
            summing = [loop for loop in loops if i in loop.folds]
            if len(summing) > 1:
                yield BrokenRule(summing[1], f"sums of {self._name(i)} twice", "one loop for each operator")

    def _channels_again(self, leaf: RowLeaf, loops: Sequence[BlockLoop]) -> Iterator[BrokenRule]:
        """A loop over channels is of some use, though loops inside it cut the channels of the leaf."""
        for number, loop in enumerate(loops):
            inside = self.nest.operators[loop]
            if not loop.cuts_channels or loop.folds or any(self._cuts(loop, i) for i in inside):
                continue
            for inner in loops[number + 1 :]:
                cut_again = [i for i in leaf.operators if self._cuts(inner, i)]
                if cut_again:
                    wrong = f"a loop that cuts the channels of {self._name(cut_again[0])} again"
                    yield BrokenRule(inner, wrong, "one loop over channels for each operator")
                    return

    def _cuts(self, loop: BlockLoop, op: int) -> bool:
        return channels_cut(self.flow, self.nest, loop, op) is not None

    def _channels(self, loop: BlockLoop) -> Iterator[BrokenRule]:
        """There are no more blocks of channels than each operator has that the loop cuts."""
        for i in self.nest.operators[loop]:
            if (i in loop.folds or self._cuts(loop, i)) and loop.blocks.count > self._extent(loop, i):
                wrong = (
                    f"{loop.blocks.count:,} blocks of {self._extent(loop, i):,} channels of {self._name(i)}"
                )
                yield BrokenRule(loop, wrong, "no more blocks than that")

    def _loop(self, loop: BlockLoop) -> Iterator[BrokenRule]:
        if loop.folds and loop.axis != "channels":
            yield BrokenRule(loop, f"sums over blocks of {loop.axis}", "sums over blocks of channels")
        if loop.folds and loop.blocks.count == 1:
            yield BrokenRule(loop, "sums over one block", "two blocks or more, or no loop")
        sums = [i for i in loop.folds if i not in self.nest.measures]
        missing = [i for i in sums if self.nest.homes.get(PartialSums(i)) is not loop]
        if missing:
            wrong = f"no 'hold sums of {self._name(missing[0])}' below the loop that it sums over"
            yield BrokenRule(loop, wrong, "one for each operator that sums")
        if self.nest.parent(loop) is None and not all(map(self._is_held_by_rows, sums)):
            wrong = "a loop that sums at the left margin"
            accepted = "one below 'in turn' or another loop, or results held row by row by line buffers"
            yield BrokenRule(loop, wrong, accepted)
        inside = self.nest.operators[loop]
        if any(i not in inside for i in loop.folds):
            yield BrokenRule(loop, "an operator that sums and runs elsewhere", "operators in the loop")
        for i in loop.folds:
            readers = [j for j in inside if self.flow.succs[i] >> j & 1 and not self._may_wait(i, j)]
            if readers:
                wrong = f"{self._name(readers[0])}, which reads the sums of {self._name(i)}, in their loop"
                yield BrokenRule(loop, wrong, "readers of sums behind the loop that makes them")
        if len({folded_extent(self.flow, i) for i in loop.folds}) > 1:
            yield BrokenRule(loop, "operators that sum over different channels", "one extent for all of them")
        if loop.axis == "rows" and loop.blocks.count > 1:
            yield from self._running(loop)
        if loop.cuts_channels:
            yield from self._channels(loop)

    def _may_wait(self, op: int, reader: int) -> bool:
        """Whether a reader of an operator's sums runs in the same row engine, with the last block."""
        leaf = self.nest.leaf_of[op]
        return leaf is self.nest.leaf_of[reader] and not leaf.at_once

    def _is_held_by_rows(self, op: int) -> bool:
        """Whether the row engine in which an operator runs holds its results."""
        leaf = self.nest.leaf_of.get(op)
        if leaf is None or leaf.at_once:
            return False
        return all(self.nest.homes.get(m) is leaf for m in self.flow.results[op])

    def _running(self, loop: BlockLoop) -> Iterator[BrokenRule]:
        """Reductions that take their operand row by row end with the last block of rows."""
        engines = [leaf for leaf in self.nest.row_engines if loop in self.nest.paths[leaf]]
        for i in (i for leaf in engines for i in leaf.operators):
            if not self.flow.running >> i & 1:
                continue
            readers = [j for j in self.nest.operators[loop] if self.flow.succs[i] >> j & 1]
            if readers:
                wrong = f"{self._name(readers[0])}, which waits for the last row that {self._name(i)} takes"
                yield BrokenRule(loop, wrong, "readers behind the loop over rows")
            holders = self.nest.paths[loop]
            for held, what in ((PartialSums(i), "sums of "), (self.flow.results[i][0], "")):
                if self.nest.homes.get(held) not in holders:
                    wrong = f"no 'hold {what}...' of {self._name(i)} at a loop over rows"
                    yield BrokenRule(loop, wrong, "what is summed over all rows held there, or further out")

    def _stream(self, stream: Stream) -> Iterator[BrokenRule]:
        """Constants that stay are those of whole blocks."""
        if not stream.stays:
            return
        for i in self.nest.operators[stream.home]:
            if not {w.name for w in self.flow.weights[i]} & stream.constants:
                continue
            home = stream.home
            around = self.nest.loops_to[self.nest.leaf_of[i]]
            loops = [loop for loop in around if home in self.nest.paths[loop] and loop is not home]
            summing = [loop for loop in loops if i in loop.folds]
            cutting = summing or [loop for loop in loops if self._cuts(loop, i)]
            if not cutting:
                wrong = (
                    f"channels that stay of weights of {self._name(i)}, which come in no blocks of channels"
                )
                yield BrokenRule(self.nest.leaf_of[i], wrong, "a loop over channels below the stream")
            for loop in cutting:
                extent = self._extent(loop, i)
                if stream.stays < extent and stream.stays not in loop.blocks.ends(extent):
                    wrong = f"{stream.stays} channels that stay, in the midst of a block of {self._name(i)}"
                    yield BrokenRule(loop, wrong, f"blocks that begin anew at {stream.stays}")

    def _extent(self, loop: BlockLoop, op: int) -> int:
        """Channels of which a loop makes blocks for an operator."""
        if op in loop.folds:
            return folded_extent(self.flow, op)
        axis = channels_cut(self.flow, self.nest, loop, op)
        assert axis is not None, "the loop cuts them"
        return self.flow.calls[op].result[axis]

    def _name(self, op: int) -> str:
        return repr(self.flow.operators[op].name[:60])
