"""Defaults of the options of planning; searches, configurations, commands and the API take them from here."""

from __future__ import annotations

from typing import Final

from lfopt.ir import Scheme, TrafficName

SCHEME: Final[Scheme] = "all"  # of a job: a row of `lfopt.planning.modes.SCHEMES`
GROUP_SCHEME: Final[Scheme] = "lbdf"  # of groups that are priced outside a job, and of staircases
TRAFFIC: Final[TrafficName] = "tiled"  # how operators that do not fit the buffer are counted
EPILOGUE: Final = True  # whether elementwise operators may always join their producer
MAX_RECOMPUTE: Final = 2.0  # multiply-accumulates over those without copies and halos
BAND_ROWS: Final = 1  # output rows that a group in mode lbdf makes at a time
