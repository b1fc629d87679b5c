"""Fit the parameters of a chip's model to measured layers: least squares of relative errors.

Each layer runs by itself, in its fastest steps on the chip. Cycles are fitted first. Energy is that of the
cycles which were measured, where they were: what the model misses of cycles is then not taken for energy.

Parameters are fitted one more at a time, the one that explains most first. One is left as it was if it
explains little, or if its standard deviation, from residuals and slopes at the fit, is more than a third of
it and the layers fit nearly as well without it. All are left as they were where the fit predicts layers that
it left out no better than the chip did before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np

from lfopt.app.deadline import ReportProgress
from lfopt.app.figures import GroupFigures
from lfopt.app.fit_parameters import PARAMETERS, UNCERTAIN, Parameter, Quantity
from lfopt.app.measured import MeasuredLayer
from lfopt.ir import Energy, Hardware, InvalidConfig
from lfopt.ir.names import one_line, plural
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from lfopt.planning.defaults import GROUP_SCHEME
from lfopt.planning.modes import PlacesAndSteps
from simulator.model.meter import WALKED as METER_WALKED
from simulator.model.meter import Meter
from simulator.model.timing import Accelerator

ITERATIONS = 15  # of one fit
WALKED = 1000  # commands of a layer that are timed one by one while parameters are tried
PARTS = 20  # of the layers, each of which is predicted from the others: at the most
SCHEDULINGS = 3  # fits, each with the steps that are best on the chip of the one before
DAMPINGS = (1e-4, 1e-2, 0.1, 1.0, 10.0)  # of a step, against the slopes: the first that is better is taken
LEAST_GAIN = 1e-4  # of the sum of squares, below which a fit ends
LEAST_NOISE = 1e-3  # standard deviation that residuals are taken to have at the least
LEAST_SHARE = 0.1  # of the sum of squares, that a parameter must explain
MISSED = 4  # times the sum of squares, with which a parameter is needed, however uncertain it is
FLAT = 1e-6  # slope below which nothing changes with a parameter


class Fitted(NamedTuple):
    """A parameter after the fit."""

    parameter: Parameter
    before: float
    after: float
    # standard; a share where it is fitted by its logarithm; None: not determined, but for what is loose
    deviation: float | None
    at_bound: bool = False
    loose: bool = False  # it is not as it was, or the layers would fit much worse; its value is uncertain


class Fit(NamedTuple):
    """What a fit of one quantity came to. Errors: predicted / measured - 1."""

    quantity: Quantity
    layers: tuple[int, ...]  # positions of those that were measured
    measured: tuple[float, ...]  # cycles, or pJ
    before: tuple[float, ...]
    after: tuple[float, ...]
    left_out: tuple[float, ...]  # predicted from the others alone
    own_cycles: tuple[float, ...]  # energy after the fit, of the model's own cycles
    parameters: tuple[Fitted, ...]
    # whether layers that were left out are predicted no better than by the chip as it was, which stays
    rejected: bool = False

    def errors(self, predicted: Sequence[float]) -> list[float]:
        """Of each layer."""
        return [ours / theirs - 1 for ours, theirs in zip(predicted, self.measured, strict=True)]


def mean_error(errors: Sequence[float]) -> float:
    """Mean of their sizes."""
    return sum(map(abs, errors)) / len(errors)


def worst_error(errors: Sequence[float]) -> float:
    """The greatest of their sizes."""
    return max(map(abs, errors))


def fit(
    layers: Sequence[MeasuredLayer],
    hardware: Hardware,
    *,
    dram: bool = True,
    report: ReportProgress = lambda _what, _done: None,
) -> tuple[Hardware, tuple[Fit, ...]]:
    """The chip with its parameters fitted to all layers, and how well, for each quantity that was measured.

    `dram`: whether measured energy has that of DRAM; else `energy.dram_byte_pj` is no part of it. `report`:
    told what is going on. Raises InvalidConfig for a layer that does not fit the chip.
    """
    fits: list[Fit] = []
    chip = hardware
    for quantity in ("cycles", "energy"):
        numbers = [k for k, layer in enumerate(layers) if _measured(layer, quantity) is not None]
        if numbers:
            problem = _Problem(quantity, [layers[k] for k in numbers], chip, dram=dram, report=report)
            chip, result = problem.fitted(tuple(numbers))
            fits.append(result)
    return chip, tuple(fits)


def _measured(layer: MeasuredLayer, quantity: Quantity) -> float | None:
    return layer.cycles if quantity == "cycles" else layer.energy_pj


class _Problem:
    """One quantity of all layers, by the parameters of a chip."""

    def __init__(
        self,
        quantity: Quantity,
        layers: Sequence[MeasuredLayer],
        chip: Hardware,
        *,
        dram: bool,
        report: ReportProgress,
    ) -> None:
        self.quantity: Quantity = quantity
        self.chip = chip
        self.layers = layers
        self.dram = dram
        self.report = report
        self.ways: dict[Hardware, list[PlacesAndSteps]] = {}  # by chip, whatever energy takes on it
        self.measured = np.array([_measured(layer, quantity) for layer in layers], dtype=float)
        self.flows = [Dataflow.of(layer.graph) for layer in layers]
        self.parameters = [
            parameter
            for parameter in PARAMETERS
            if parameter.quantity == quantity and (dram or parameter.field != "energy.dram_byte_pj")
        ]
        self.starts = [parameter.read(chip) for parameter in self.parameters]
        self.schedules: list[PlacesAndSteps] = []
        self.known: dict[tuple[float, ...], np.ndarray] = {}  # residuals by the values of parameters

    def fitted(self, numbers: tuple[int, ...]) -> tuple[Hardware, Fit]:
        """The chip, and how well it predicts. `numbers`: of the layers."""
        before = self._predicted(self.chip, self._schedules(self.chip))
        able = [k for k, value in enumerate(self.starts) if value > 0 or not self.parameters[k].by_ratio]
        start = np.array([self._inner(k, value) for k, value in enumerate(self.starts)])
        values = start
        deviations: dict[int, float] = {}
        chip = self.chip
        for _ in range(SCHEDULINGS):
            schedules = self._schedules(chip)
            if schedules == self.schedules:
                break
            self.schedules = schedules
            self.known.clear()
            values, deviations = self._determined(start, values, [*deviations], able)
            chip = self._chip(values)
        left_out = self._left_out(values, [*deviations])
        no_better = np.mean(np.abs(left_out / self.measured - 1)) >= np.mean(
            np.abs(before / self.measured - 1)
        )
        rejected = bool(deviations and no_better)
        if rejected or not deviations:
            chip = self.chip
            deviations = {}
            values = start
            left_out = before
        schedules = self._schedules(chip)
        after = self._predicted(chip, schedules)
        own_cycles = self._predicted(chip, schedules, own_cycles=True)
        loose = [
            k in deviations and deviations[k] > self._certain(k, values[k])
            for k in range(len(self.parameters))
        ]
        fitted = tuple(
            Fitted(
                parameter,
                parameter.read(self.chip),
                parameter.read(chip),
                None if loose[k] else deviations.get(k),
                k in deviations and self._at_bound(k, values[k]),
                loose[k],
            )
            for k, parameter in enumerate(self.parameters)
        )
        return chip, Fit(
            self.quantity,
            numbers,
            tuple(self.measured),
            tuple(before),
            tuple(after),
            tuple(left_out),
            tuple(own_cycles),
            fitted,
            rejected,
        )

    def _schedules(self, chip: Hardware) -> list[PlacesAndSteps]:
        """Per layer, as `schedules_of`."""
        key = replace(chip, energy=Energy())
        if key not in self.ways:
            self.report(f"{self.quantity}: ways of {plural(len(self.layers), 'layer')}", 0.0)
            self.ways[key] = schedules_of(self.layers, self.flows, chip)
        return self.ways[key]

    def _determined(
        self, start: np.ndarray, values: np.ndarray, free: list[int], able: Sequence[int]
    ) -> tuple[np.ndarray, dict[int, float]]:
        """(values, standard deviations of the parameters that the layers determine).

        `values` and `free`: of a fit to other steps of the same layers, from which this one begins.
        Parameters that are `able` are fitted one more at a time, while one explains LEAST_SHARE of the sum of
        squares. Of those that are not certain then, the one that is missed least is set back and left out,
        one after the other, unless that makes the sum of squares MISSED times as large.
        """
        rows = np.arange(len(self.layers))
        if free:
            values = self._descended(values, free, rows, ITERATIONS)
        while True:
            squares = float(np.sum(self._residuals(values) ** 2))
            best = (1 - LEAST_SHARE) * squares
            added: tuple[int, np.ndarray] | None = None
            for k in able:
                if k not in free and squares > LEAST_NOISE**2 * len(rows):
                    tried = self._descended(self._begun(values, k), [*free, k], rows, ITERATIONS)
                    left = float(np.sum(self._residuals(tried) ** 2))
                    if left < best:
                        best = left
                        added = k, tried
            if added is None:
                break
            free.append(added[0])
            values = added[1]
        while free:
            deviations = self._deviations(values, free)
            doubtful = [k for k in free if deviations[k] > self._certain(k, values[k])]
            if not doubtful:
                return values, deviations
            without = [self._set_back(values, start, [k for k in free if k != left]) for left in doubtful]
            sums = [float(np.sum(self._residuals(one) ** 2)) for one in without]
            least = sums.index(min(sums))
            now = float(np.sum(self._residuals(values) ** 2))
            if sums[least] > MISSED * max(now, LEAST_NOISE**2 * len(rows)):
                return values, deviations
            free.remove(doubtful[least])
            values = without[least]
        return start, {}

    def _begun(self, values: np.ndarray, k: int) -> np.ndarray:
        """Values with that of one parameter from which a fit had better begin.

        Where it is, nothing need change with it: DRAM may be faster than the port.
        """
        parameter = self.parameters[k]
        low = self._inner(k, self._least(k))
        high = self._inner(k, self._most(k))
        begins = [values]
        for step in parameter.leaps:
            begin = values.copy()
            begin[k] = min(max(values[k] + step, low), high)
            begins.append(begin)
        return min(begins, key=lambda begin: float(np.sum(self._residuals(begin) ** 2)))

    def _set_back(self, values: np.ndarray, start: np.ndarray, free: Sequence[int]) -> np.ndarray:
        """Values fitted with these parameters free, and all others where they began."""
        begun = start.copy()
        begun[list(free)] = values[list(free)]
        if not free:
            return begun
        return self._descended(begun, free, np.arange(len(self.layers)), ITERATIONS)

    def _deviations(self, values: np.ndarray, free: Sequence[int]) -> dict[int, float]:
        """Standard deviation of each parameter that is free; infinite where nothing changes with it."""
        slopes = self._slopes(values, free, np.arange(len(self.layers)))
        squares = float(np.sum(self._residuals(values) ** 2))
        spare = len(self.layers) - len(free)
        noise = max(squares / spare, LEAST_NOISE**2) if spare > 0 else np.inf
        sizes = np.sqrt(np.sum(slopes**2, axis=0))
        deviations = dict.fromkeys(free, float("inf"))
        felt = [at for at, size in enumerate(sizes) if size > FLAT]
        if not felt or spare <= 0:
            # the least felt goes first
            return {k: 1e9 / max(float(size), 1e-9) for k, size in zip(free, sizes, strict=True)}
        # columns of length 1: parameters that change the same layers alike leave small singular values
        _, singular, directions = np.linalg.svd(slopes[:, felt] / sizes[felt], full_matrices=False)
        spread = np.sum((directions / np.maximum(singular, FLAT)[:, np.newaxis]) ** 2, axis=0)
        for at, variance in zip(felt, spread / sizes[felt] ** 2 * noise, strict=True):
            deviations[free[at]] = sqrt(float(variance))
        return deviations

    def _descended(
        self, values: np.ndarray, free: Sequence[int], rows: np.ndarray, iterations: int
    ) -> np.ndarray:
        """Values of a least sum of squares of these rows, by damped Gauss-Newton steps within bounds."""
        from scipy.optimize import lsq_linear  # noqa: PLC0415  (takes half a second)

        low = np.array([self._inner(k, self._least(k)) for k in free])
        high = np.array([self._inner(k, self._most(k)) for k in free])
        for _ in range(iterations):
            residuals = self._residuals(values)[rows]
            squares = float(np.sum(residuals**2))
            slopes = self._slopes(values, free, rows)
            lengths = np.diag(np.maximum(np.linalg.norm(slopes, axis=0), FLAT))
            here = values[free]
            room = (low - here - 1e-12, high - here + 1e-12)
            wanted = np.concatenate((-residuals, np.zeros(len(free))))
            better = values
            for damping in DAMPINGS:
                step = lsq_linear(np.vstack((slopes, sqrt(damping) * lengths)), wanted, bounds=room).x
                tried = values.copy()
                tried[free] = np.clip(here + step, low, high)
                if float(np.sum(self._residuals(tried)[rows] ** 2)) < squares * (1 - LEAST_GAIN):
                    better = tried
                    break
            if better is values:
                return values
            values = better
        return values

    def _slopes(self, values: np.ndarray, free: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """(rows, free) change of each residual by each parameter, in what it is fitted by."""
        residuals = self._residuals(values)
        columns: list[np.ndarray] = []
        for k in free:
            step = self.parameters[k].slope_step
            if not self._inner(k, self._least(k)) <= values[k] + step <= self._inner(k, self._most(k)):
                step = -step
            moved = values.copy()
            moved[k] += step
            columns.append((self._residuals(moved) - residuals)[rows] / step)
        return np.stack(columns, axis=1)

    def _left_out(self, values: np.ndarray, free: Sequence[int]) -> np.ndarray:
        """(layers) predicted from the layers of all other parts: one step of a fit, from the fit to all."""
        everyone = np.arange(len(self.layers))
        parts = min(len(self.layers), PARTS)
        predicted = self.measured * (1 + self._residuals(values))
        for part in range(parts):
            inside = everyone % parts == part
            if free and not inside.all():
                others = self._descended(values, free, everyone[~inside], 1)
                predicted[inside] = (self.measured * (1 + self._residuals(others)))[inside]
        return predicted

    def _residuals(self, values: np.ndarray) -> np.ndarray:
        """(layers) predicted over measured, less 1."""
        chip = self._chip(values)
        key = tuple(parameter.read(chip) for parameter in self.parameters)
        if key not in self.known:
            self.report(f"{self.quantity}: {len(self.known):,} chips tried", 0.5)
            self.known[key] = self._predicted(chip, self.schedules, walked=WALKED) / self.measured - 1
        return self.known[key]

    def _predicted(
        self,
        chip: Hardware,
        schedules: Sequence[PlacesAndSteps],
        *,
        walked: int = METER_WALKED,
        own_cycles: bool = False,
    ) -> np.ndarray:
        """(layers) cycles, or pJ.

        `walked`: commands of a layer that are timed one by one. `own_cycles`: whether energy is that of the
        cycles of the model also where they were measured.
        """
        if self.quantity == "cycles":
            times = [
                Accelerator(flow, chip).time(steps, places, walked).total
                for flow, (places, steps) in zip(self.flows, schedules, strict=True)
            ]
            return np.maximum(np.array(times, dtype=float), 1)
        energies: list[float] = []
        for layer, flow, (places, steps) in zip(self.layers, self.flows, schedules, strict=True):
            use = Meter(flow, chip).energy(steps)
            cycles = layer.cycles
            if own_cycles or cycles is None:
                cycles = Accelerator(flow, self.chip).time(steps, places, walked).total
            spent = use.total_pj - (0 if self.dram else use.dram_pj)
            energies.append(spent + cycles * chip.energy.cycle_pj)
        return np.maximum(np.array(energies), 1)

    def _chip(self, values: np.ndarray) -> Hardware:
        """The chip with these values, but for those that are where they began."""
        chip = self.chip
        for k, parameter in enumerate(self.parameters):
            if values[k] != self._inner(k, self.starts[k]):
                chip = parameter.write(chip, exp(values[k]) if parameter.by_ratio else values[k])
        return chip

    def _inner(self, k: int, value: float) -> float:
        """A value as it is fitted: by its logarithm, or by itself."""
        if self.parameters[k].by_ratio:
            return log(max(value, 1e-9))
        return value

    def _least(self, k: int) -> float:
        return self.parameters[k].least(self.starts[k])

    def _most(self, k: int) -> float:
        return self.parameters[k].most(self.starts[k], self.chip)

    def _certain(self, k: int, value: float) -> float:
        """The greatest standard deviation of a parameter that the layers determine."""
        parameter = self.parameters[k]
        if parameter.by_ratio:
            return UNCERTAIN
        return max(parameter.uncertain, UNCERTAIN * value, 1e-9)

    def _at_bound(self, k: int, value: float) -> bool:
        room = min(value - self._inner(k, self._least(k)), self._inner(k, self._most(k)) - value)
        return bool(room < 1e-6)


def schedules_of(
    layers: Sequence[MeasuredLayer], flows: Sequence[Dataflow], hardware: Hardware
) -> list[PlacesAndSteps]:
    """Per layer, places and steps of the fastest way that it has on this chip.

    Raises InvalidConfig for a layer that has none.
    """
    schedules: list[PlacesAndSteps] = []
    for layer, flow in zip(layers, flows, strict=True):
        costs = GroupCosts(flow, hardware.with_wide_blocks, scheme=GROUP_SCHEME)
        schedule = None
        if len(flow) == 1 and costs.executable((1,)):
            fastest = GroupFigures(costs).fastest(1)
            schedule = fastest and fastest[1]
        if schedule is None:
            raise InvalidConfig(
                one_line(
                    f"layer {layer.name!r}: found no steps of it in {hardware.buffer_bytes:,} B of buffer; "
                    "accepted: layers that run on the chip by themselves"
                )
            )
        schedules.append(schedule)
    return schedules
