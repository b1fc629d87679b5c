"""Which operators of a group become one kernel: an anchor, and the elementwise operators that follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codegen.epilogue import arity, epilogue, in_step
from codegen.kernels.table import WITH_EPILOGUE, takes_epilogue
from codegen.layout import MapLayout
from codegen.source import Unsupported
from lfopt.ops import Call, Dataflow, bits
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.stages import BYTES, stages
from lfopt.ops.traits import Arithmetic
from lfopt.planning.cpu.schedule import RowComputation

Layouts = Sequence[MapLayout]  # of all maps

# whose kernels take a table of what follows
IN_BYTES = (Arithmetic.SUMS, Arithmetic.TERMS, Arithmetic.PRODUCT, Arithmetic.TABLE, Arithmetic.MEAN)


def fusion_chains(flow: Dataflow, mask: int) -> list[int]:
    """The operators of a set, in topological order.

    Each is followed, where that may be, by the elementwise operator that alone reads its result.
    """
    left = [*bits(mask)]
    order = list[int]()
    done = ~mask
    while left:
        after = flow.succs[order[-1]] if order else 0
        i = next(
            (k for k in left if after == 1 << k and arity(flow.calls[k]) and not flow.preds[k] & ~done),
            left[0],
        )
        left.remove(i)
        order.append(i)
        done |= 1 << i
    return order


def fused_kernels(
    flow: Dataflow, layouts: Layouts, mask: int, runs: Sequence[Sequence[RowComputation]], *, whole: bool
) -> dict[int, tuple[int, ...]]:
    """Anchor of each fused kernel -> its operators, in order.

    In every run they follow one another, on the same rows or on `whole` maps.
    """
    apart: set[int] = set()  # operators that must begin a fused kernel of their own
    while True:
        kernels, wrong = _longest_kernels(flow, layouts, mask, runs, apart, whole=whole)
        if not wrong:
            return kernels
        apart |= wrong


def _longest_kernels(
    flow: Dataflow,
    layouts: Layouts,
    mask: int,
    runs: Sequence[Sequence[RowComputation]],
    apart: set[int],
    *,
    whole: bool,
) -> tuple[dict[int, tuple[int, ...]], set[int]]:
    """The longest fused kernels, by anchor, and operators that must not be inside one after all."""
    kernels: dict[int, tuple[int, ...]] = {}
    for run in runs:
        at = 0
        while at < len(run):
            anchor = run[at].operator
            here = _longest(flow, layouts, mask, run, at, apart, whole=whole)
            most = kernels.setdefault(anchor, here)
            # what follows differs from place to place: keep what they have in common
            if here != most:
                common = [a for a, b in zip(most, here, strict=False) if a == b]
                return kernels, {*most[len(common) :], *here[len(common) :]} - {anchor}
            at += len(here)
    inside = {i for members in kernels.values() for i in members[1:]}
    return kernels, inside & kernels.keys()  # computed on its own somewhere


def _longest(
    flow: Dataflow,
    layouts: Layouts,
    mask: int,
    run: Sequence[RowComputation],
    at: int,
    apart: set[int],
    *,
    whole: bool,
) -> tuple[int, ...]:
    """The longest fused kernel that begins here."""
    anchor = run[at]
    in_bytes = flow.calls[anchor.operator].result_tensors[0].quantization is not None
    if in_bytes:
        takes = arithmetic(flow.calls[anchor.operator]) in IN_BYTES
    else:
        takes = flow.operators[anchor.operator].kind in WITH_EPILOGUE
    follows = _follows_in_bytes if in_bytes else _follows
    chain = [anchor.operator]
    best = 1
    for step in run[at + 1 :] if takes or (not in_bytes and arity(flow.calls[anchor.operator])) else ():
        i = step.operator
        if (
            i in apart
            or (step[1:] != anchor[1:] and not whole)
            or not follows(flow, layouts, chain, i, whole=whole)
        ):
            break
        chain.append(i)
        if _closed(flow, mask, chain) and (in_bytes or flow.maps[flow.results[i][0]].dtype == "float32"):
            best = len(chain)
    return tuple(chain[:best])


def _flight(flow: Dataflow, chain: Sequence[int]) -> Call:
    return replace(flow.calls[chain[0]], then=tuple(flow.calls[i] for i in chain[1:]))


def table_behind(flow: Dataflow, operators: Sequence[int]) -> np.ndarray | None:
    """(256,) uint8 or int8: the table of what follows an operator on integers, by the byte that it makes.

    None where nothing does, or nothing changes. Raises Unsupported where what follows is no function of that
    byte.
    """
    if len(operators) == 1:
        return None
    first, *others = stages(_flight(flow, operators))
    if others:
        raise Unsupported(
            f"node {flow.operators[operators[0]].name!r}: found operators behind it that are no function of "
            "its bytes"
        )
    table = first.table
    own = arithmetic(flow.calls[operators[0]]) is Arithmetic.TABLE
    if not own and table is not None and np.array_equal(table.view(np.uint8), np.arange(BYTES)):
        return None
    return table


def _follows_in_bytes(flow: Dataflow, layouts: Layouts, chain: list[int], i: int, *, whole: bool) -> bool:
    """Whether an operator on integers makes a function of the byte that the chain makes."""
    written = {flow.results[k][0] for k in chain}
    own = layouts[flow.results[i][0]]
    read = [o for o in flow.operands[i] if o.map in written]
    alike = all(
        layouts[o.map].by_rows and own.by_rows and layouts[o.map].tensor.rows == own.tensor.rows for o in read
    )
    in_place = all(in_step(flow.calls[i], o.input, layouts[o.map], own) for o in read) and not any(
        layouts[o.map].alias_strides for o in read
    )
    joins = bool(read) and in_place and flow.specs[i].elementwise and (whole or alike)
    return joins and len(stages(_flight(flow, [*chain, i]))) <= 1


def _follows(flow: Dataflow, layouts: Layouts, chain: list[int], i: int, *, whole: bool) -> bool:
    """Whether an operator reads what the chain makes element by element, and an epilogue can do it."""
    written = {flow.results[k][0] for k in chain}
    own = layouts[flow.results[i][0]]
    first = layouts[flow.results[chain[0]][0]]
    read = [o for o in flow.operands[i] if o.map in written]
    if (
        not arity(flow.calls[i])
        or not read
        or first.tensor.dtype != "float32"
        or own.tensor.dtype not in ("float32", "bool")
    ):
        return False
    if any(not in_step(flow.calls[i], o.input, layouts[o.map], own) for o in read):
        return False
    try:
        extended = epilogue(flow, layouts, chain[1:] + [i], flow.results[chain[0]][0], first, whole=whole)
        alike = first.by_rows and own.by_rows and first.tensor.rows == own.tensor.rows
        return (whole or alike) and takes_epilogue(flow.calls[chain[0]], extended)
    except Unsupported:
        return False


def _closed(flow: Dataflow, mask: int, chain: list[int]) -> bool:
    """Whether nothing outside the chain reads any result of it but the last."""
    inside = sum(1 << i for i in chain)
    return all(
        not flow.is_output[m] and not flow.readers[m] & ~inside for i in chain[:-1] for m in flow.results[i]
    )
