"""Which operators of a group become one kernel: an operator, and the elementwise operators that always follow it on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from codegen.blob import Blob
from codegen.kernels.heads import WITH_TAIL
from codegen.layout import Layout
from codegen.source import Unsupported
from codegen.tails import is_elementwise, tail
from lfopt.ir import Compute, Loop, Node, row_axis
from lfopt.ops import Dataflow


class Made(NamedTuple):
    """An operator computed at one place of a schedule: rows, and how far they move with each turn of the loops around."""

    operator: int
    first: int
    stop: int
    moves: tuple[int, ...]


Body = Sequence["Made | tuple[int, Body]"]  # (turns, what is repeated)


def body(flow: Dataflow, index: dict[str, int], nodes: Sequence[Node]) -> Body:
    """The computations of a schedule. What is loaded and stored is left out: in generated code those are addresses."""
    found: list[Made | tuple[int, Body]] = []
    for node in nodes:
        if isinstance(node, Loop):
            found.append((node.count, body(flow, index, node.body)))
        elif isinstance(node, Compute):
            i, box = index[node.operator], node.boxes[0]
            axis = row_axis(flow.maps[flow.results[i][0]].shape)
            first, stop = (0, 1) if axis is None else box[axis]
            found.append(Made(i, first, stop, tuple(0 if axis is None else move[axis] for move in node.moves)))
    return found


def sequences(nodes: Body) -> list[list[Made]]:
    """Runs of computations without a loop between them."""
    found: list[list[Made]] = [[]]
    for node in nodes:
        if isinstance(node, Made):
            found[-1].append(node)
        else:
            found += [*sequences(node[1]), []]
    return [run for run in found if run]


def units(flow: Dataflow, lie: Sequence[Layout], mask: int, runs: Sequence[Sequence[Made]]) -> dict[int, tuple[int, ...]]:
    """Head of each unit -> its operators, in order. In every run, the operators of a unit follow one another on the same rows."""
    apart: set[int] = set()  # operators that must begin a unit of their own
    while True:
        found: dict[int, tuple[int, ...]] = {}
        again = False
        for run in runs:
            at = 0
            while at < len(run):
                head = run[at].operator
                most = found.get(head)
                here = _longest(flow, lie, mask, run, at, apart)
                if most is not None and here != most:  # what follows differs from place to place: keep what they have in common
                    common = [a for a, b in zip(most, here, strict=False) if a == b]
                    apart |= {*most[len(common) :], *here[len(common) :]} - {head}
                    again = True
                    break
                found[head] = here
                at += len(here)
            if again:
                break
        if not again:
            inside = {i for members in found.values() for i in members[1:]}
            if not inside & found.keys():
                return found
            apart |= inside & found.keys()  # computed on its own somewhere


def _longest(flow: Dataflow, lie: Sequence[Layout], mask: int, run: Sequence[Made], at: int, apart: set[int]) -> tuple[int, ...]:
    """The longest unit that begins here."""
    head = run[at]
    if flow.operators[head.operator].kind not in WITH_TAIL and not is_elementwise(flow, head.operator):
        return (head.operator,)
    chain, best = [head.operator], 1
    for step in run[at + 1 :]:
        i = step.operator
        if i in apart or step[1:] != head[1:] or not is_elementwise(flow, i) or not _follows(flow, lie, chain, i):
            break
        chain.append(i)
        if _closed(flow, mask, chain):
            best = len(chain)
    return tuple(chain[:best])


def _follows(flow: Dataflow, lie: Sequence[Layout], chain: list[int], i: int) -> bool:
    """Whether an operator reads what the chain makes, element by element, and nothing of it otherwise; and whether a tail can do what it does."""
    made, own = {flow.results[k][0] for k in chain}, lie[flow.results[i][0]]
    read = [o for o in flow.operands[i] if o.map in made]
    if not read or any(flow.calls[i].shape(o.input) != own.shape or (lie[o.map].shape, lie[o.map].order) != (own.shape, own.order) for o in read):
        return False
    try:
        tail(flow, lie, [i], read[0].map, Blob())
    except Unsupported:
        return False
    return own.tensor.dtype == lie[read[0].map].tensor.dtype == "float32"


def _closed(flow: Dataflow, mask: int, chain: list[int]) -> bool:
    """Whether nothing outside the chain reads any result of it but the last."""
    inside = sum(1 << i for i in chain)
    return all(not flow.is_output[m] and not flow.readers[m] & ~inside for i in chain[:-1] for m in flow.results[i])
