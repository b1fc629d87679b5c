"""What commands say of chips."""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.ir import Hardware


@dataclass(frozen=True, slots=True)
class ChipAnswer:
    """A chip that comes with lfopt."""

    chip: str  # its name for --hardware
    hardware: Hardware
    assumed_speed: bool  # whether it says nothing of MAC array, port and clock


@dataclass(frozen=True, slots=True)
class ChipsAnswer:
    """`lfopt hw list`."""

    chips: tuple[ChipAnswer, ...]


@dataclass(frozen=True, slots=True)
class FigureAnswer:
    """What follows from the fields of a chip."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class ShowAnswer:
    """`lfopt hw show`."""

    file: str
    hardware: Hardware
    given: tuple[str, ...]  # fields that the file sets
    assumed_speed: bool
    figures: tuple[FigureAnswer, ...]


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """A field of a hardware description."""

    name: str
    type: str
    default: str  # as YAML writes it; empty where a value is required
    least: float | None  # null: it is no number
    most: int | None
    unit: str
    default_from: str
    meaning: str


@dataclass(frozen=True, slots=True)
class FieldsAnswer:
    """`lfopt hw fields`."""

    fields: tuple[FieldAnswer, ...]
    energy: tuple[FieldAnswer, ...]


@dataclass(frozen=True, slots=True)
class ChipCheckAnswer:
    """`lfopt hw check`."""

    file: str
    ok: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    hardware: Hardware | None  # null: it has problems


@dataclass(frozen=True, slots=True)
class DetectAnswer:
    """`lfopt hw detect`."""

    hardware: Hardware
    file: str | None  # that was written
