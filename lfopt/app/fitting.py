"""Fit the parameters of a chip's model to measured layers: least squares of relative errors.

Each layer runs by itself, in its fastest steps on the chip. Residuals are
relative errors. Cycles are fitted first. Energy is that of the cycles which were measured, where they were:
what the model misses of cycles is then not taken for energy.

A parameter is left as it is where the layers do not determine it: where its standard deviation, from the
residuals and the slopes at the fit, is more than UNCERTAIN of it, or nothing changes with it. All are left as
they are where the fit predicts layers that it left out no better than the chip as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import Literal, NamedTuple

import numpy as np

from lfopt.app.deadline import ReportProgress
from lfopt.app.figures import GroupFigures
from lfopt.app.measured import MeasuredLayer
from lfopt.ir import Energy, Hardware, InvalidConfig
from lfopt.ir.names import one_line, plural
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from lfopt.planning.modes import PlacesAndSteps
from simulator.model.meter import WALKED as METER_WALKED
from simulator.model.meter import Meter
from simulator.model.timing import Accelerator

Quantity = Literal["cycles", "energy"]
SCHEME = "lbdf"  # as of the baseline layer by layer
ITERATIONS = 15  # of one fit
WALKED = 1000  # commands of a layer that are timed one by one while parameters are tried
PARTS = 20  # of the layers, each of which is predicted from the others: at the most
SCHEDULINGS = 3  # fits, each with the steps that are best on the chip of the one before
DAMPING = 1e-4  # of a step, against the greatest slope
LEAST_GAIN = 1e-4  # of the sum of squares, below which a fit ends
LEAST_NOISE = 1e-3  # standard deviation that residuals are taken to have at the least
UNCERTAIN = 0.35  # of a parameter: standard deviation from which on it is not determined
FLAT = 1e-6  # slope below which nothing changes with a parameter


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of Hardware, or of its energy table, that is fitted."""

    field: str
    quantity: Quantity
    unit: str
    read: Callable[[Hardware], float]
    write: Callable[[Hardware, float], Hardware]
    least: Callable[[float], float]  # from where it starts
    most: Callable[[float, Hardware], float]
    by_ratio: bool = True  # whether it is fitted by its logarithm; else by itself
    slope_step: float = 0.02  # by which it is changed to see what changes: a share, or in its unit
    uncertain: float = 0.0  # standard deviation in its unit that is none worth mentioning


def _reached_rate(hardware: Hardware) -> float:
    """Bytes per second of DRAM. Where nothing is said: of one direction of the port, where a fit begins."""
    return float(hardware.dram_bytes_per_second or hardware.port_bytes * hardware.clock_hz)


def _cycles_field(name: Literal["port_latency", "start_cycles"], most: int) -> Parameter:
    return Parameter(
        name,
        "cycles",
        "cycles",
        lambda hardware: float(getattr(hardware, name)),
        lambda hardware, value: replace(hardware, **{name: round(value)}),
        lambda _: 0.0,
        lambda _start, _hardware: float(most),
        by_ratio=False,
        slope_step=4,
        uncertain=10,
    )


def _energy_field(
    name: Literal["dram_byte_pj", "buffer_byte_pj", "accumulator_byte_pj", "mac_pj", "cycle_pj"],
    read: Callable[[Hardware], float],
) -> Parameter:
    def write(hardware: Hardware, value: float) -> Hardware:
        fields: dict[str, float | None] = {name: float(f"{value:.4g}")}
        if name == "dram_byte_pj":
            fields["dram_pj_per_bit"] = None
            if hardware.energy.buffer_byte_pj is None and not hardware.weight_buffer_bytes:
                fields["buffer_byte_pj"] = hardware.buffer_byte_pj  # which goes by that of DRAM
        return replace(hardware, energy=replace(hardware.energy, **fields))

    return Parameter(
        f"energy.{name}",
        "energy",
        "pJ",
        read,
        write,
        lambda start: start / 30,
        lambda start, _: start * 30,
    )


PARAMETERS = (
    Parameter(
        "dram_bytes_per_second",
        "cycles",
        "B/s",
        _reached_rate,
        lambda hardware, value: replace(hardware, dram_bytes_per_second=round(float(f"{value:.4g}"))),
        lambda start: start / 100,
        lambda _, hardware: 2.0 * hardware.port_bytes * hardware.clock_hz,
        slope_step=-0.05,  # downwards: what is faster than the port changes nothing
    ),
    _cycles_field("port_latency", 10_000),
    _cycles_field("start_cycles", 10_000),
    Parameter(
        "mac_utilization",
        "cycles",
        "",
        lambda hardware: hardware.mac_utilization,
        lambda hardware, value: replace(hardware, mac_utilization=float(f"{value:.4g}")),
        lambda _: 0.02,
        lambda _start, _hardware: 1.0,
        slope_step=-0.02,
    ),
    _energy_field("dram_byte_pj", lambda hardware: hardware.energy.pj_per_dram_byte),
    _energy_field("buffer_byte_pj", lambda hardware: hardware.buffer_byte_pj),
    _energy_field("accumulator_byte_pj", lambda hardware: hardware.energy.accumulator_byte_pj),
    _energy_field("mac_pj", lambda hardware: hardware.energy.mac_pj),
    replace(
        _energy_field("cycle_pj", lambda hardware: hardware.energy.cycle_pj),
        least=lambda _: 0.0,
        most=lambda _start, _hardware: 1e7,
        by_ratio=False,
        slope_step=1,
    ),
)


class Fitted(NamedTuple):
    """A parameter after the fit."""

    parameter: Parameter
    before: float
    after: float
    deviation: float | None  # standard; a share where it is fitted by its logarithm; None: not determined
    at_bound: bool = False


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
        free = [k for k, start in enumerate(self.starts) if start > 0 or not self.parameters[k].by_ratio]
        values = np.array([self._inner(k, start) for k, start in enumerate(self.starts)])
        deviations: dict[int, float] = {}
        chip = self.chip
        for _ in range(SCHEDULINGS):
            schedules = self._schedules(chip)
            if schedules == self.schedules:
                break
            self.schedules = schedules
            self.known.clear()
            values, free, deviations = self._determined(values, free)
            chip = self._chip(values)
        left_out = self._left_out(values, free)
        no_better = np.mean(np.abs(left_out / self.measured - 1)) >= np.mean(
            np.abs(before / self.measured - 1)
        )
        rejected = bool(free and no_better)
        if rejected:
            chip = self.chip
            free = []
            left_out = before
        schedules = self._schedules(chip)
        after = self._predicted(chip, schedules)
        own_cycles = self._predicted(chip, schedules, own_cycles=True)
        fitted = tuple(
            Fitted(
                parameter,
                parameter.read(self.chip),
                parameter.read(chip),
                deviations[k] if k in free else None,
                k in free and self._at_bound(k, values[k]),
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
        self, values: np.ndarray, free: list[int]
    ) -> tuple[np.ndarray, list[int], dict[int, float]]:
        """(values, parameters that the layers determine, their standard deviations).

        The least certain parameter is set back and left out, until all others are certain.
        """
        rows = np.arange(len(self.layers))
        start = np.array([self._inner(k, value) for k, value in enumerate(self.starts)])
        while free:
            values = self._descended(values, free, rows, ITERATIONS)
            deviations = self._deviations(values, free)
            doubts = {k: deviations[k] / self._certain(k, values[k]) for k in free}
            worst = max(doubts, key=lambda k: doubts[k])
            if doubts[worst] <= 1:
                return values, free, deviations
            free = [k for k in free if k != worst]
            values = values.copy()
            values[worst] = start[worst]
        return start, [], {}

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
            damping = sqrt(DAMPING) * np.diag(np.maximum(np.linalg.norm(slopes, axis=0), FLAT))
            here = values[free]
            room = (low - here - 1e-12, high - here + 1e-12)
            step = lsq_linear(
                np.vstack((slopes, damping)), np.concatenate((-residuals, np.zeros(len(free)))), bounds=room
            ).x
            better = values
            for share in (1.0, 0.5, 0.25, 0.1, 0.03):
                tried = values.copy()
                tried[free] = np.clip(here + share * step, low, high)
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
        costs = GroupCosts(flow, hardware.with_wide_blocks, scheme=SCHEME)
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
