"""Properties of execution modes for a recount: a table that shares nothing with the planner's."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Mode(NamedTuple):
    """Properties that a group of a mode must have."""

    schemes: tuple[str, ...] = ()  # that have it; empty: all
    executed: bool = True  # it has steps, and needs less than the buffer holds
    always: bool = False  # it has steps wherever it may run; others may have a reason why not
    rings: bool = False  # its places are line buffers, and its steps make rows in their order
    # one operator with its epilogue, cut up: what traffic `tiled` counts, only the steps say
    tiles: bool = False
    # results are made in bands of rows: weights may be loaded, and rows of some maps made, several times
    bands: bool = False
    # one map waits for reductions of itself: part of it is kept, the rest is spilled or loaded again
    spills: bool = False
    blocks: bool = False  # weights are loaded in blocks, each rounded up for itself
    # line buffers, for one strip of columns after the other; both strips load or make the columns of a halo
    strips: bool = False
    # some channels at a time, in bands of rows: operands and weights are loaded as often as bands and parts
    # need them
    slices: bool = False
    # stages of other modes, one after the other: what is loaded and stored, and how often, only the steps say
    chains: bool = False
    reuses_bytes: bool = False  # places may share bytes, one after the other
    # operators that it is for, each alone where not known
    of: Literal["known", "unknown", "left out"] = "known"
    counted: bool = True  # whether its bytes are in the plan's totals


MODES = {
    "lbdf": Mode(("lbdf", "auto", "all"), always=True, rings=True),
    "resident": Mode(("resident", "auto", "all"), always=True, blocks=True, reuses_bytes=True),
    "brr": Mode(("brr", "auto", "all"), bands=True, blocks=True, reuses_bytes=True),
    "strips": Mode(("all",), always=True, strips=True),
    "sliced": Mode(("all",), slices=True, blocks=True),
    "gated": Mode(("all",), always=True, spills=True, blocks=True, reuses_bytes=True),
    "chained": Mode(("all",), spills=True, chains=True, blocks=True, reuses_bytes=True),
    "attention": Mode(tiles=True, reuses_bytes=True),
    "tiled": Mode(tiles=True),
    "opaque": Mode(executed=False, of="unknown"),
    "excluded": Mode(executed=False, of="left out", counted=False),
}
SCHEMES = {scheme for mode in MODES.values() for scheme in mode.schemes}
# schemes in which elementwise operators follow in flight, and reductions advance with their operand's rows
IN_FLIGHT = {"all"}
