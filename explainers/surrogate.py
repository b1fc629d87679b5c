"""Surrogate of an expensive cost model of groups: an estimate of the cost, and of its error.

A judge takes milliseconds to seconds a group: cycles take a schedule and its timing. The estimate begins with
a roofline, what the compute engine takes on whole maps or the port takes to move the group's bytes, whichever
is more. Boosted trees say by how much the judge is above it, and others how far they may be off, on networks
that they have not learnt from. All of it in logarithms: an error of a tenth is the same of all groups.

The roofline knows the planner's price of a group (mode, bytes by class), which is cheap, and per operator
what it computes, which whoever knows the engine hands over. `explainers.train_surrogate` fits the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from explainers.graph import KINDS, kind, member_table
from explainers.predictor import WEIGHTS, read_weights
from explainers.trees import Trees
from lfopt.ir import InvalidConfig
from lfopt.ops import bits
from lfopt.planning import GroupCosts
from lfopt.planning.modes import MODES

JUDGES = ("cycles",)  # for which surrogates ship
# rows made at a time, of which an operator's cycles and commands are known; 0: all at once
HEIGHTS = (1, 4, 0)
SOME = 4  # rows of which it is looked at whether so many at a time fit
LEAST = 2.0**-12  # share of the roofline below which a part of it is as good as none

# modes of groups that run, as a search finds them
SEARCHED = tuple(name for name, mode in MODES.items() if not mode.given)
PLANNED = 11 + len(SEARCHED)  # figures of the planner

# (operator, rows made at a time, 0: all) -> (cycles, commands) on whole maps
Computing = Callable[[int, int], tuple[float, float]]


class Estimate(NamedTuple):
    """Estimate of a judge's costs of groups: log2 of the cost is about normal."""

    mean: np.ndarray  # (groups,) float64: log2 of the cost
    spread: np.ndarray  # (groups,) float64: standard deviation of that


class GroupColumns(NamedTuple):
    """Inputs of a surrogate, per group."""

    roof: np.ndarray  # (groups,) float64: log2 of the cycles of the roofline
    columns: np.ndarray  # (groups, len(COLUMNS)) float32


# what computes, as far as columns tell it apart
BUSY = ("contraction", "depthwise", "product", "pool", "other")
SHARES = (
    *(f"{name} {rows or 'all'}" for rows in HEIGHTS for name in ("cycles", "cycles and starts")),
    "input", "output", "weight", "parameter", "spill", "loads", "stores",
    "serial", "longest operator", "largest weights", "port latency",
    *(f"{name} cycles" for name in BUSY),
)  # fmt: skip
COLUMNS = (
    *SHARES,
    "roof", "operators", "links", "commands 1", "commands all", "rows", "fewest rows",
    "band rows", "weight passes", "buffer", "need 4 rows", "need all rows", "beta", "macs",
    *(f"mode {name}" for name in SEARCHED),
    *(f"kind {name}" for name in KINDS),
)  # fmt: skip


class Rooflines:
    """Rooflines and columns of groups of one network on one chip."""

    def __init__(self, costs: GroupCosts, computing: Computing) -> None:
        self.costs = costs
        self.computing = computing

    @cached_property
    def _own(self) -> np.ndarray:
        """(operators, figures) float64.

        Cycles and commands at each of HEIGHTS, bytes of weights, cycles of each of BUSY, kinds.
        """
        flow = self.costs.dataflow
        of = self.costs.hardware.constant_bytes
        rows: list[list[float]] = []
        for i in range(len(flow)):
            taken = [figure for rows_ in HEIGHTS for figure in self.computing(i, rows_)]
            weights = sum(of(w.elements, bias=w.bias) for w in flow.weights[i] if not w.gathered)
            own = kind(flow, i)
            busy = own if own in BUSY else "contraction" if own == "transposed" else "other"
            rows.append(
                [
                    *taken,
                    weights,
                    *(taken[-2] * (busy == name) for name in BUSY),
                    *(own == name for name in KINDS),
                ]
            )
        return np.array(rows, np.float64).reshape(len(flow), -1)

    @cached_property
    def _heights(self) -> np.ndarray:
        return np.maximum(np.array(self.costs.dataflow.heights, np.float64), 1)

    def read(self, masks: Sequence[int]) -> GroupColumns:
        """Columns of legal groups, given as masks of operators."""
        hardware = self.costs.hardware
        flow = self.costs.dataflow
        members = member_table(masks, len(flow)).astype(np.float64)
        sums = members @ self._own
        taken = sums[:, : 2 * len(HEIGHTS)]
        rest = sums[:, 2 * len(HEIGHTS) + 1 :]
        cycles = taken[:, ::2]
        commands = taken[:, 1::2]
        largest = (members[:, :, None] * self._own[:, [2 * len(HEIGHTS) - 2, 2 * len(HEIGHTS)]]).max(1)
        planned = np.array([self._planned(mask) for mask in masks], np.float64).reshape(len(masks), PLANNED)
        moved = planned[:, :5] / hardware.port_bytes
        how = planned[:, 5:]
        stores = moved[:, 1] + moved[:, 4] / 2
        loads = moved.sum(1) - stores
        if hardware.dram_bytes_per_second is not None:
            shared = [hardware.dram_cycles(int(total)) for total in planned[:, :5].sum(1)]
        else:
            shared = loads
        roof = np.maximum.reduce([np.maximum(cycles[:, -1], 1), loads, stores, np.array(shared)])
        started = cycles + commands * (hardware.start_cycles + hardware.drain_cycles)
        shares = np.column_stack([
            np.stack([cycles, started], 2).reshape(len(masks), -1), moved, loads, stores,
            cycles[:, -1] + loads + stores, largest[:, 0], largest[:, 1] / hardware.port_bytes,
            np.full(len(masks), hardware.port_latency), rest[:, : len(BUSY)],
        ])  # fmt: skip
        heights = np.where(members > 0, self._heights, np.nan)
        chip = np.tile(
            [hardware.buffer_bytes / hardware.port_bytes, hardware.mac_rows * hardware.mac_columns],
            (len(masks), 1),
        )
        scales = np.column_stack([
            roof, members.sum(1), 1 + planned[:, -1], commands[:, 0], commands[:, -1],
            np.nanmax(heights, 1), np.nanmin(heights, 1),
            how[:, :2], np.maximum(how[:, 2:5], 1) / hardware.buffer_bytes, chip,
        ])  # fmt: skip
        columns = (
            np.log2(np.maximum(shares / roof[:, None], LEAST)),
            np.log2(scales),
            how[:, 5:-1],
            rest[:, len(BUSY) :],
        )
        return GroupColumns(np.log2(roof), np.concatenate(columns, 1).astype(np.float32))

    def _planned(self, mask: int) -> list[float]:
        """Bytes by class, rows made at a time, weight passes, bytes of buffer, which of SEARCHED, links."""
        cost = self.costs.price(mask)
        terms = self.costs.terms(mask)
        assert cost is not None, "estimates are of legal groups"
        dram = terms.dram
        preds = self.costs.dataflow.preds
        mode = self.costs.modes[cost.mode]
        most = max(mode.heights(mask), default=0)
        needs = [
            mode.height_need(mask, min(rows, most)) if most else cost.buffer_bytes for rows in (SOME, most)
        ]
        links = sum((preds[i] & mask).bit_count() for i in bits(mask))
        return [
            dram.input, dram.output, dram.weight, dram.parameter, dram.spill,
            terms.band_rows, terms.weight_passes, cost.buffer_bytes, *needs,
            *(cost.mode == name for name in SEARCHED), links,
        ]  # fmt: skip


class Surrogate:
    """Surrogate of one judge."""

    def __init__(self, mean: Trees, doubt: Trees) -> None:
        """`mean`: log2 of the cost over the roofline; `doubt`: log2 of the spread."""
        self.mean = mean
        self.doubt = doubt

    @classmethod
    def load(cls, source: str | Path) -> Surrogate:
        """The surrogate that ships for a judge (cycles), or one from a .safetensors file.

        Raises InvalidConfig where it is unreadable, or has other columns.
        """
        path = WEIGHTS / f"{source}.safetensors" if source in JUDGES else Path(source)
        arrays = read_weights(path, "columns", "mean.base", "doubt.base")
        if bytes(arrays["columns"]).decode() != "\n".join(COLUMNS):
            raise InvalidConfig(
                f"{path}: reads other columns of a group than lfopt gives; `make surrogate` trains anew"
            )
        return cls(Trees.of(arrays, "mean"), Trees.of(arrays, "doubt"))

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays of a file by name: the fields of both `Trees`, and names of columns (bytes,) uint8."""
        names = np.frombuffer("\n".join(COLUMNS).encode(), np.uint8)
        return {"columns": names, **self.mean.arrays("mean"), **self.doubt.arrays("doubt")}

    def estimate(self, read: GroupColumns) -> Estimate:
        """Estimate of groups, as `Rooflines` reads them."""
        return Estimate(read.roof + self.mean(read.columns), np.exp2(self.doubt(read.columns)))
