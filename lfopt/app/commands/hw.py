"""lfopt hw: hardware descriptions: those that come with lfopt, what a file says, and one of this machine.

Raises InvalidConfig for files that are not accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from cyclopts import App, Parameter
from rich.markup import escape
from rich.table import Table

from lfopt.app.answers.chips import (
    ChipAnswer,
    ChipCheckAnswer,
    ChipsAnswer,
    DetectAnswer,
    FieldAnswer,
    FieldsAnswer,
    FigureAnswer,
    ShowAnswer,
)
from lfopt.app.answers.writing import answer
from lfopt.app.chips import energy_fields, figures, hardware_fields, installed, judge
from lfopt.app.config import find_hardware, load_hardware, validate
from lfopt.app.detect import description
from lfopt.app.documents import read_yaml
from lfopt.app.files import write_text
from lfopt.app.options import HardwareOption
from lfopt.app.screen import out, shown, spread, table
from lfopt.app.sizes import buffers, format_size
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ir.names import plural

app = App(name="hw", help="List, show, check and fit hardware descriptions, and describe this machine.")
app.command("lfopt.app.commands.hw_fit:fit_", name="fit")
WITH_PROBLEMS = 1  # exit code
WIDE = 100  # columns of a terminal from which on a chip is shown with the meaning of its fields
SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@app.command(name="list")
def list_() -> None:
    """List the chips that come with lfopt, by the names that --hardware takes.

    Example: lfopt hw list
    """
    rows: list[tuple[str, ...]] = []
    for name, chip in installed():
        if chip.assumed:
            speed = ("*", "*", "*")
        else:
            speed = (
                f"{chip.mac_rows}x{chip.mac_columns}",
                str(chip.port_bytes),
                _scaled(chip.clock_hz, "Hz"),
            )
        rows.append((name, buffers(chip), *speed, chip.source))
    out.print(spread(("chip", "buffer", "MACs", "port B", "clock", "source"), rows, stretch=(5,)))
    out.print(
        "[dim]port B: bytes per cycle and direction; *: the chip does not say: cycles are a guess. One in "
        "full: lfopt hw show CHIP[/]"
    )
    answer(ChipsAnswer(tuple(ChipAnswer(name, chip, chip.assumed) for name, chip in installed())))


@app.command
def show(chip: HardwareOption, /) -> None:
    """Show every field of a chip, which of them it sets, and what follows from them.

    Example: lfopt hw show accelerator_256k
    """
    path = find_hardware(chip, "chip")
    hardware = load_hardware(path)
    given = read_yaml(path)
    derived = [*figures(hardware)]
    out.print(f"[bold]{shown(hardware.name)}[/]: {shown(path)}", soft_wrap=True)
    if hardware.source:
        out.print(shown(hardware.source))
    out.print("")
    rows = [
        (field.name, _value(hardware, field), "" if field.name in given else "*", field.meaning)
        for field in hardware_fields()
        if field.name not in ("name", "source", "energy")
    ]
    energy = given.get("energy")
    inside: Mapping[str, Any] = energy if isinstance(energy, dict) else {}
    rows += [
        (
            f"energy.{field.name}",
            _value(hardware.energy, field),
            "" if field.name in inside else "*",
            field.meaning,
        )
        for field in energy_fields()
    ]
    columns = 4 if out.width >= WIDE else 3
    out.print(_folded(("field", "value", "", "meaning")[:columns], (row[:columns] for row in rows)))
    out.print("[dim]*: a default; what the fields mean: lfopt hw fields[/]\n")
    out.print(spread(("what follows", "", ""), [(figure.name, *_printed(figure)) for figure in derived]))
    if hardware.assumed:
        out.print(
            "[dim]nothing is said of the MAC array, the port and the clock: cycles are those of the "
            "defaults[/]"
        )
    answer(ShowAnswer(str(path), hardware, tuple(_given(given)), hardware.assumed, tuple(derived)))


@app.command(name="fields")
def fields_() -> None:
    """List the fields of a hardware description: defaults, meaning, units, and the least that is accepted.

    Example: lfopt hw fields
    """
    tables = {"fields": [*hardware_fields()], "energy": [*energy_fields()]}
    rows = [
        (f"{prefix}{field.name}", field.default or "required", f"{field.meaning} ({_unit(field)})")
        for prefix, group in (("", tables["fields"]), ("energy.", tables["energy"]))
        for field in group
    ]
    out.print(_folded(("field", "default", "meaning (unit, least)"), rows))
    out.print(
        "[dim]units may be written: 256KiB, 800MHz, 12.8GB/s, 1.3nJ. In full: docs/hardware.md, or --json[/]"
    )
    answer(FieldsAnswer(*map(tuple, tables.values())))


@app.command
def check(file: HardwareOption, /) -> int:
    """Check a hardware description: every problem in one go, or what is unusual about it.

    Example: lfopt hw check my-chip.yaml

    Exit code 0: lfopt reads it; 1: it has problems.
    """
    path = find_hardware(file, "file")
    judged = judge(path)
    answer(ChipCheckAnswer(str(path), not judged.problems, judged.problems, judged.notes, judged.hardware))
    for line in judged.problems:
        out.print(f"[red]problem[/] {shown(line)}", soft_wrap=True)
    if judged.problems:
        out.print(f"{shown(path)}: {plural(len(judged.problems), 'problem')}", soft_wrap=True)
        return WITH_PROBLEMS
    out.print(f"{shown(path)}: ok", soft_wrap=True)
    for line in judged.notes:
        out.print(f"[yellow]note[/] {shown(line)}", soft_wrap=True)
    return 0


@app.command
def detect(*, out_file: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None) -> None:
    """Write a hardware description of this machine's CPU.

    A fusion group may fill half of the L2 cache that one core has.

    Example: lfopt hw detect --out cpu.yaml

    Parameters
    ----------
    out_file
        The file to write; the terminal if not given.
    """
    text = description()
    if out_file is None:
        out.print(text, end="", markup=False, soft_wrap=True)
        answer(_answer(text, None))
        return
    if not out_file.name or out_file.is_dir():
        raise InvalidConfig(f"--out {out_file}: found a folder; accepted: a file name")
    write_text(out_file, text)
    out.print(f"[dim]wrote[/] {shown(out_file)}", soft_wrap=True)
    answer(_answer(text, out_file))


def _answer(text: str, file: Path | None) -> DetectAnswer:
    return DetectAnswer(
        validate(Hardware, yaml.safe_load(text), "lfopt hw detect"), None if file is None else str(file)
    )


def _given(fields_given: Mapping[str, Any]) -> list[str]:
    """The fields that a file sets, those of the energy table behind a dot."""
    energy = fields_given.get("energy")
    inside = [f"energy.{name}" for name in energy] if isinstance(energy, dict) else []
    return [name for name in fields_given if name != "energy"] + inside


def _folded(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts, the last of which goes on in the next line."""
    grid = table(*names)
    for column in grid.columns:
        column.justify = "left"
    for row in rows:
        grid.add_row(*map(escape, row))
    return grid


def _unit(field: FieldAnswer) -> str:
    if field.least is None:
        return field.type
    return f"{field.unit}, from {field.least}"


def _value(of: object, field: FieldAnswer) -> str:
    """The value of a field, with its unit."""
    value = getattr(of, field.name)
    if value is None or isinstance(value, bool):
        if value is None:
            return "-"
        return str(value).lower()
    if field.unit == "bytes":
        if value:
            return format_size(value)
        return "0 B"
    if field.unit in ("Hz", "bytes per second"):
        return _scaled(value, "Hz" if field.unit == "Hz" else "B/s")
    if isinstance(value, int | float):
        return f"{value:,} {field.unit}"
    return str(value)


def _printed(figure: FigureAnswer) -> tuple[str, str]:
    """Value and unit, with a prefix where the unit takes one."""
    if figure.unit in ("MAC/s", "B/s"):
        number, _, prefixed = _scaled(figure.value, figure.unit).partition(" ")
        return number, prefixed
    return f"{figure.value:,.4g}" if figure.value < 1e4 else f"{figure.value:,.0f}", figure.unit


def _scaled(value: float, name: str) -> str:
    """A figure with a prefix.

    >>> _scaled(200_000_000, "Hz"), _scaled(51.2e9, "MAC/s")
    ('200 MHz', '51.2 GMAC/s')
    """
    scale, prefix = next(((scale, prefix) for scale, prefix in SCALES if value >= scale), (1.0, ""))
    return f"{value / scale:.4g} {prefix}{name}"
