"""What a transfer takes of DRAM beyond its bytes: whole bursts, and pages that it opens.

DRAM is read and written in bursts, and within the page (row) of a bank that is open; to open another, the
open one is precharged and the new one activated. The model is that of a controller that leaves pages open:

    run     bytes of a transfer that lie side by side, in the layout of the plan (rows one after the other;
            within a row, the other axes in order): whole rows are one run, a block of constants is one, what
            a Gather picks lies apart; each begins with a burst, and with a page
    bursts  every run is rounded up to dram_burst_bytes
    pages   a transfer opens every page that it touches once; pages left open by transfers before it do not
            help it: loads, stores and programs meet

Bytes of a plan do not change: only cycles and energy do. The terms are those of DRAMsim3's configuration
files (BL, columns, tRP, tRCD; OPEN_PAGE).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from lfopt.ir import DramAccess, Hardware, Transfer, box_shape, round_up, row_axis
from lfopt.ops import Dataflow
from lfopt.ops.dataflow import gathered_pieces
from lfopt.ops.pieces import Access, runs_in

STORED: Mapping[str, Access] = {}  # every tensor lies in memory itself


def access(
    step: Transfer,
    flow: Dataflow,
    operators: dict[str, int],
    hardware: Hardware,
    accesses: Mapping[str, Access] = STORED,
) -> DramAccess:
    """DRAM bursts and pages of one transfer; none where a second level serves it.

    `operators`: their numbers, by name. `accesses`: pieces of tensors that are read through operators that
    only move data, of memory that lies row after row.
    """
    if step.kind == "l2":
        return DramAccess()
    if hardware.plain_dram or not step.bytes:
        return DramAccess(step.bytes)
    runs = 1
    reach = step.bytes
    if step.gather:
        runs = max(gathered_pieces(flow.calls[operators[step.gather]], step.box), 1)
        reach = 0
    elif step.tensor in accesses:
        apart, elements = runs_in(accesses[step.tensor], step.box)
        runs = max(apart, 1)
        reach = elements * hardware.element_bytes
    elif step.tensor in flow.graph.tensors and step.tensor not in flow.graph.constants:
        runs, reach = _runs(step, flow.graph.shape(step.tensor))
    return in_runs(runs, -(-step.bytes // runs), hardware, reach)


def in_runs(runs: int, size: int, hardware: Hardware, reach: int = 0) -> DramAccess:
    """Of so many runs of so many bytes each.

    `reach`: bytes from the first of the first run to the last of the last; 0: they lie anywhere.
    """
    page = hardware.dram_page_bytes
    pages = runs * -(-size // page) if page else 0
    if page and reach:
        pages = min(pages, -(-reach // page))
    return DramAccess(runs * round_up(size, hardware.dram_burst_bytes), pages)


def _runs(step: Transfer, shape: tuple[int, ...]) -> tuple[int, int]:
    """(contiguous runs, bytes from first to last) of a box of a map in DRAM."""
    axis = row_axis(shape)
    extents = box_shape(step.box)
    across = [(part, whole) for k, (part, whole) in enumerate(zip(extents, shape, strict=True)) if k != axis]
    if all(part == whole for part, whole in across):
        return 1, step.bytes
    run = 1
    for part, whole in reversed(across):
        run *= part
        if part < whole:
            break
    elements = prod(part for part, _ in across)
    return step.rows * (elements // run), step.rows * -(
        -step.row_bytes * prod(whole for _, whole in across) // elements
    )
