"""lfopt hw fit: the parameters of a chip's model, fitted to layers that were measured on it.

Raises InvalidConfig for files that are not accepted, and for layers that do not run on the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lfopt.app.answers.fits import (
    FitAnswer,
    FittedLayerAnswer,
    FittedParameterAnswer,
    FittedQuantityAnswer,
)
from lfopt.app.answers.writing import answer
from lfopt.app.chip_files import with_fields
from lfopt.app.config import find_hardware, load_hardware
from lfopt.app.documents import MAX_YAML_BYTES, read_bytes
from lfopt.app.files import write_text
from lfopt.app.fitting import Fit, Fitted, fit, mean_error, worst_error
from lfopt.app.layers import is_quantized
from lfopt.app.measured import MeasuredLayer, read_measured
from lfopt.app.options import HardwareOption
from lfopt.app.screen import out, progress_line, shown, spread
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ir.hardware import MAX_TEXT
from lfopt.ir.names import plural, printable

FITTED = "-fitted"  # behind the name of the chip
MOST_NAME = 40  # characters of a file's name in the source of a chip
HEADS = {
    "cycles": ("cycles", 1.0),
    "energy": ("energy, uJ", 1e6),
}  # what is measured, in how many of our units


def fit_(
    chip: HardwareOption,
    measured: Path,
    /,
    *,
    without_dram: Annotated[bool, Parameter(negative="")] = False,
    out_file: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> None:
    """Fit the parameters of a chip's model to layers that were measured on it; say the error that is left.

    Fitted are the rate of DRAM, the cycles that begin a transfer and a command, the use of the MAC array, and
    the energy table. What the layers do not determine stays as it is.

    Example: lfopt hw fit my-chip.yaml measured.csv --out fitted.yaml

    Parameters
    ----------
    measured
        CSV, a row for each layer: layer, and cycles or ms, energy_uj or power_mw, of model (an ONNX file, or
        zoo:NAME, in which layer is an operator), or of kind (conv, dwconv, gemm), in_channels, out_channels,
        height, width, kernel, stride, padding, groups, batch.
    without_dram
        The energy that was measured is that of the chip alone: energy.dram_byte_pj stays as it is.
    out_file
        Hardware description to write, with the fitted fields.
    """
    if out_file is not None and (not out_file.name or out_file.is_dir()):
        raise InvalidConfig(f"--out {out_file}: found a folder; accepted: a file name")
    path = find_hardware(chip, "chip")
    before = load_hardware(path)
    layers = read_measured(measured, before.clock_hz, quantized=is_quantized(before))
    with progress_line() as report:
        after, fits = fit(layers, before, dram=not without_dram, report=report)
    for one in fits:
        _print(one, layers)
    if out_file is not None:
        after = _write(out_file, path, measured, (before, after), fits)
    answer(
        FitAnswer(
            str(path),
            str(measured),
            after,
            tuple(_answer(one, layers) for one in fits),
            None if out_file is None else str(out_file),
        )
    )


def _print(result: Fit, layers: Sequence[MeasuredLayer]) -> None:
    """The layers, the errors and the parameters of one quantity."""
    title, scale = HEADS[result.quantity]
    errors = result.errors(result.after)
    left_out = result.errors(result.left_out)
    rows = [
        (
            layers[k].name,
            _figure(measured / scale),
            _figure(before / scale),
            _figure(after / scale),
            f"{error:+.1%}",
            f"{other:+.1%}",
        )
        for k, measured, before, after, error, other in zip(
            result.layers, result.measured, result.before, result.after, errors, left_out, strict=True
        )
    ]
    out.print(spread((title, "measured", "before", "after", "error", "left out"), rows))
    out.print(
        f"error left: mean {mean_error(errors):.1%}, worst {worst_error(errors):.1%}; mean before the fit "
        f"{mean_error(result.errors(result.before)):.1%}, left out {mean_error(left_out):.1%}"
    )
    if result.quantity == "energy" and any(layers[k].cycles is not None for k in result.layers):
        own = mean_error(result.errors(result.own_cycles))
        out.print(f"[dim]energy is that of the measured cycles; of those of the model: mean {own:.1%}[/]")
    out.print("")
    rows = [
        (one.parameter.field, _figure(one.before), _figure(one.after), one.parameter.unit, _verdict(one))
        for one in result.parameters
    ]
    out.print(spread(("parameter", "before", "after", "unit", "deviation"), rows, stretch=(4,)))
    if result.rejected:
        out.print("[yellow]all is as it was: a fit predicts layers that it leaves out no better[/]")
    elif any(one.deviation is None and not one.loose for one in result.parameters):
        out.print("[dim]-: as it was; these layers do not determine it[/]")
    if any(one.loose for one in result.parameters):
        out.print("[dim]loose: other values fit as well, but not the one before[/]")
    out.print("")


def _verdict(fitted: Fitted) -> str:
    """Standard deviation of a parameter; a dash where it is not determined."""
    if fitted.loose:
        return "loose"
    if fitted.deviation is None:
        return "-"
    if fitted.parameter.by_ratio:
        certain = f"{fitted.deviation:.1%}"
    else:
        certain = f"{_figure(fitted.deviation)} {fitted.parameter.unit}"
    if fitted.at_bound:
        return f"{certain}, at its bound"
    return certain


def _figure(value: float) -> str:
    """Four digits, or all of a whole number.

    >>> _figure(1234567.8), _figure(0.07912), _figure(1.7e9)
    ('1,234,568', '0.07912', '1,700,000,000')
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _write(
    file: Path, chip: Path, measured: Path, hardware: tuple[Hardware, Hardware], fits: Sequence[Fit]
) -> Hardware:
    """Write the fitted chip, whose name and source say what it is; the chip as it was written."""
    before, after = hardware
    name = printable(measured.name)[:MOST_NAME]
    said = [
        f"{one.quantity} {mean_error(one.errors(one.after)):.1%} off on the mean of "
        f"{plural(len(one.layers), 'layer')}"
        for one in fits
    ]
    source = f"lfopt hw fit to {name}: {', '.join(said)}. Before: {before.source or 'not said'}"
    given = before.name.removesuffix(FITTED)[: MAX_TEXT - len(FITTED)]
    after = replace(after, name=given + FITTED, source=source[:MAX_TEXT])
    comments = {
        one.parameter.field: f"fitted to {name}; before: {_figure(one.before)}"
        for result in fits
        for one in result.parameters
        if one.after != one.before
    }
    text = read_bytes(chip, MAX_YAML_BYTES).decode("utf-8")
    written, kept = with_fields(text, before, after, comments)
    write_text(file, written)
    out.print(f"[dim]wrote[/] {shown(file)}", soft_wrap=True)
    if not kept:
        out.print(f"[dim]its comments are not those of {shown(chip)}: that is not a field a line[/]")
    return after


def _answer(result: Fit, layers: Sequence[MeasuredLayer]) -> FittedQuantityAnswer:
    before = result.errors(result.before)
    errors = result.errors(result.after)
    left_out = result.errors(result.left_out)
    return FittedQuantityAnswer(
        result.quantity,
        mean_error(before),
        mean_error(errors),
        worst_error(errors),
        mean_error(left_out),
        mean_error(result.errors(result.own_cycles)),
        result.rejected,
        tuple(
            FittedLayerAnswer(layers[k].name, *figures)
            for k, *figures in zip(
                result.layers,
                result.measured,
                result.before,
                result.after,
                before,
                errors,
                left_out,
                strict=True,
            )
        ),
        tuple(
            FittedParameterAnswer(
                one.parameter.field,
                one.parameter.unit,
                one.before,
                one.after,
                one.deviation,
                one.at_bound,
                one.loose,
            )
            for one in result.parameters
        ),
    )
