"""The parameters of a chip's model that are fitted to measured layers: what each reads, writes and may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from lfopt.ir import Hardware

Quantity = Literal["cycles", "energy"]
UNCERTAIN = 0.35  # of a parameter: standard deviation from which on it is not determined


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
    # from the value before: others from which a fit may begin, as slope_step
    leaps: tuple[float, ...] = (-2.0, -1.4, -0.7, 0.7, 1.4)
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
        leaps=(30, 100, 300, 1000),
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
        leaps=(10, 100, 1000, 10_000),
    ),
)
