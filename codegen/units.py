"""Which operators of a group become one kernel: an operator, and the elementwise operators that always follow it on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from codegen.blob import Blob
from codegen.kernels.heads import WITH_TAIL, takes_tail
from codegen.layout import Layout
from codegen.source import Unsupported
from codegen.tails import in_step, is_elementwise, tail
from lfopt.ir import Compute, Loop, Node, row_axis
from lfopt.ops import Dataflow, bits


class Made(NamedTuple):
    """An operator computed at one place of a schedule: rows, and how far they move with each turn of the loops around."""

    operator: int
    first: int
    stop: int
    moves: tuple[int, ...]


Body = Sequence["Made | tuple[int, Body]"]  # (turns, what is repeated)


def body(flow: Dataflow, index: dict[str, int], nodes: Sequence[Node]) -> Body:
    """The computations of a schedule, and the rows that it gathers. Other loads and stores are left out: in generated code those are addresses."""
    found: list[Made | tuple[int, Body]] = []
    for node in nodes:
        if isinstance(node, Loop):
            found.append((node.count, body(flow, index, node.body)))
        elif isinstance(node, Compute):
            i = index[node.operator]
            axes = [row_axis(flow.maps[m].shape) for m in flow.results[i]]
            spans = [(0, 1) if axis is None else box[axis] for box, axis in zip(node.boxes, axes, strict=True)]
            k = max(range(len(spans)), key=lambda k: spans[k][1] - spans[k][0])  # a result that has fewer rows may have none here
            axis, before = axes[k], sum(map(len, node.boxes[:k]))
            found.append(Made(i, *spans[k], tuple(0 if axis is None else move[before + axis] for move in node.moves)))
        elif node.gather:
            axis = row_axis(flow.maps[flow.results[index[node.gather]][0]].shape)
            span = (0, 1) if axis is None else node.box[axis]
            found.append(Made(index[node.gather], *span, tuple(0 if axis is None else move[axis] for move in node.moves)))
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


def chained(flow: Dataflow, mask: int) -> list[int]:
    """The operators of a set, each followed, where that may be, by the elementwise operator that alone reads its result."""
    left, found = [*bits(mask)], list[int]()
    done = ~mask
    while left:
        after = flow.succs[found[-1]] if found else 0
        i = next((k for k in left if after == 1 << k and is_elementwise(flow, k) and not flow.preds[k] & ~done), left[0])
        left.remove(i)
        found.append(i)
        done |= 1 << i
    return found


def units(flow: Dataflow, lie: Sequence[Layout], mask: int, runs: Sequence[Sequence[Made]], *, whole: bool) -> dict[int, tuple[int, ...]]:
    """Head of each unit -> its operators, in order. In every run, the operators of a unit follow one another, on the same rows or on `whole` maps."""
    apart: set[int] = set()  # operators that must begin a unit of their own
    while True:
        found: dict[int, tuple[int, ...]] = {}
        again = False
        for run in runs:
            at = 0
            while at < len(run):
                head = run[at].operator
                most = found.get(head)
                here = _longest(flow, lie, mask, run, at, apart, whole=whole)
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


def _longest(flow: Dataflow, lie: Sequence[Layout], mask: int, run: Sequence[Made], at: int, apart: set[int], *, whole: bool) -> tuple[int, ...]:
    """The longest unit that begins here."""
    head = run[at]
    if flow.operators[head.operator].kind not in WITH_TAIL and not is_elementwise(flow, head.operator):
        return (head.operator,)
    chain, best = [head.operator], 1
    for step in run[at + 1 :]:
        i = step.operator
        if i in apart or (step[1:] != head[1:] and not whole) or not is_elementwise(flow, i) or not _follows(flow, lie, chain, i, whole=whole):
            break
        chain.append(i)
        if _closed(flow, mask, chain) and flow.maps[flow.results[i][0]].dtype == "float32":
            best = len(chain)
    return tuple(chain[:best])


def _follows(flow: Dataflow, lie: Sequence[Layout], chain: list[int], i: int, *, whole: bool) -> bool:
    """Whether an operator reads what the chain makes, element by element, and nothing of it otherwise; and whether a tail can do what it does."""
    made, own, first = {flow.results[k][0] for k in chain}, lie[flow.results[i][0]], lie[flow.results[chain[0]][0]]
    read = [o for o in flow.operands[i] if o.map in made]
    if not read or first.tensor.dtype != "float32" or own.tensor.dtype not in ("float32", "bool"):
        return False
    if any(not in_step(flow.calls[i], o.input, lie[o.map], own) for o in read):
        return False
    try:
        found = tail(flow, lie, chain[1:] + [i], flow.results[chain[0]][0], first, Blob(), whole=whole)
        alike = first.by_rows and own.by_rows and first.tensor.rows == own.tensor.rows
        return (whole or alike) and takes_tail(flow.calls[chain[0]], found)
    except Unsupported:
        return False


def _closed(flow: Dataflow, mask: int, chain: list[int]) -> bool:
    """Whether nothing outside the chain reads any result of it but the last."""
    inside = sum(1 << i for i in chain)
    return all(not flow.is_output[m] and not flow.readers[m] & ~inside for i in chain[:-1] for m in flow.results[i])
