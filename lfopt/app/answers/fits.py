"""What `lfopt hw fit` says."""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.ir import Hardware


@dataclass(frozen=True, slots=True)
class FittedLayerAnswer:
    """A measured layer. Errors: predicted / measured - 1."""

    layer: str
    measured: float
    before: float  # predicted by the chip as it was
    after: float  # by the fitted one
    error_before: float
    error: float
    error_left_out: float  # of what a fit to the other layers predicts


@dataclass(frozen=True, slots=True)
class FittedParameterAnswer:
    """A parameter of the model."""

    field: str  # of the hardware description
    unit: str
    before: float
    after: float
    deviation: float | None  # standard; null: the layers do not determine it, and it is as it was, or loose
    at_bound: bool
    loose: bool  # other values fit as well, but not the one before


@dataclass(frozen=True, slots=True)
class FittedQuantityAnswer:
    """Cycles, or energy in pJ."""

    quantity: str
    mean_error_before: float
    mean_error: float
    worst_error: float
    mean_error_left_out: float
    mean_error_own_cycles: float  # of energy by the cycles of the model, where cycles were measured
    # whether layers that a fit left out were predicted no better than before: all is then as it was
    rejected: bool
    layers: tuple[FittedLayerAnswer, ...]
    parameters: tuple[FittedParameterAnswer, ...]


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """`lfopt hw fit`."""

    chip: str  # file that was read
    measured: str
    hardware: Hardware  # fitted
    fits: tuple[FittedQuantityAnswer, ...]
    file: str | None  # that was written
