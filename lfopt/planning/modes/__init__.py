"""The modes in which groups run, and the schemes made of them.

A new mode is a module here, a row in `MODES`, and a row of the recount's table.
"""

from __future__ import annotations

from typing import NamedTuple

from lfopt.planning.modes.alone import AccessMode, ExcludedMode, OpaqueMode
from lfopt.planning.modes.attention import AttentionMode
from lfopt.planning.modes.brr import BrrMode
from lfopt.planning.modes.chained import ChainedMode, ChainPart, Linked
from lfopt.planning.modes.columns import PatchesMode, StripsMode
from lfopt.planning.modes.lbdf import LbdfMode
from lfopt.planning.modes.mode import (
    DEFAULT_TRAFFIC,
    NEVER,
    ExecutionMode,
    ModeOption,
    PlacesAndSteps,
    Scheduled,
    SearchSpace,
    Traffic,
    TrafficTerms,
)
from lfopt.planning.modes.nest import NestMode
from lfopt.planning.modes.passes import GatedMode, PanelsMode
from lfopt.planning.modes.resident import ResidentMode
from lfopt.planning.modes.sliced import SlicedMode
from lfopt.planning.modes.tiled import TiledMode

MODES: dict[str, type[ExecutionMode]] = {  # of modes that move equally many bytes, the first is taken
    "lbdf": LbdfMode,
    "resident": ResidentMode,
    "brr": BrrMode,
    "strips": StripsMode,
    "patches": PatchesMode,
    "sliced": SlicedMode,
    "gated": GatedMode,
    "panels": PanelsMode,
    "chained": ChainedMode,
    "nest": NestMode,
    "attention": AttentionMode,
    "tiled": TiledMode,
    "access": AccessMode,
    "opaque": OpaqueMode,
    "excluded": ExcludedMode,
}


class SchemeRow(NamedTuple):
    """A named set of modes. Those that run on any buffer are in every scheme."""

    modes: tuple[str, ...]  # in the order of `MODES`
    # a scheme of fewer modes, in which a search finds a first plan faster; None: there is none
    simpler: str | None
    summary: str
    # whether elementwise operators follow in flight, and reductions run through the rows of their operand
    flights: bool = False
    # whether maps may stay on chip from one group to the next, which makes them one group in mode chained
    chains: bool = False
    # whether operators may be recomputed: those before a reduction, columns between strips
    copies: bool = False
    # whether operators that only move data may be read through, in mode access
    accesses: bool = False


SCHEMES: dict[str, SchemeRow] = {
    "lbdf": SchemeRow(("lbdf",), None, "line buffers, weights resident"),
    "brr": SchemeRow(("brr",), None, "bands of rows, weights streamed for each"),
    "resident": SchemeRow(("resident",), None, "whole maps, weights streamed once"),
    "patches": SchemeRow(
        ("lbdf", "patches"), "lbdf", "line buffers, or patches of rows and columns in smaller buffers"
    ),
    "auto": SchemeRow(
        ("lbdf", "resident", "brr"), "lbdf", "per group, whichever of these moves the fewest bytes"
    ),
    "all": SchemeRow(
        ("lbdf", "resident", "brr", "strips", "sliced", "gated", "panels"),
        "lbdf",
        "as auto, with strips of columns, slices of channels, gates in two phases, norms whose statistics "
        "are apart, maps kept between groups, "
        "elementwise operators in flight, means that run, what is computed again where that spares bytes, "
        "and operators that only move data read through",
        flights=True,
        chains=True,
        copies=True,
        accesses=True,
    ),
}

# modes that are in every scheme
ANYWHERE = tuple(name for name, mode in MODES.items() if not mode.whole and mode is not AccessMode)


def unnamed_modes(row: SchemeRow, *, attends: bool = True) -> tuple[str, ...]:
    """Modes of a scheme besides those that it names.

    `attends`: whether the network has attention; if not, modes of attention alone (`flown`) are left out.
    """
    chained = ("chained",) if row.chains else ()
    access = ("access",) if row.accesses else ()
    anywhere = (name for name in ANYWHERE if attends or not MODES[name].flown)
    return (*chained, *access, "nest", *anywhere)


__all__ = [
    "ANYWHERE",
    "DEFAULT_TRAFFIC",
    "MODES",
    "NEVER",
    "SCHEMES",
    "AccessMode",
    "ChainPart",
    "ChainedMode",
    "ExecutionMode",
    "Linked",
    "ModeOption",
    "NestMode",
    "PanelsMode",
    "PatchesMode",
    "PlacesAndSteps",
    "Scheduled",
    "SchemeRow",
    "SearchSpace",
    "Traffic",
    "TrafficTerms",
    "unnamed_modes",
]
