"""Layers that were measured on a chip: a CSV file with a row for each, read as hostile input."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from lfopt.app.documents import read_bytes
from lfopt.app.layers import KINDS, LayerShape, layer_network, one_operator
from lfopt.app.pipeline import ZOO, load_network
from lfopt.ir import Graph, InvalidConfig, LfoptError
from lfopt.ir.names import one_line
from lfopt.rewrite import DEFAULT as RULES

MAX_BYTES = 1 << 20  # of the file
MOST_LAYERS = 500
MOST_SHOWN = 60  # characters of a cell in a message
MOST_SIZE = 1 << 20  # of one dimension
MOST_MEASURED = 1e15
TIMES = ("cycles", "ms")
ENERGIES = ("energy_uj", "power_mw")
MEASURED = (*TIMES, *ENERGIES)
SHAPE = (
    "kind", "in_channels", "out_channels", "height", "width", "kernel", "stride", "padding", "groups",
    "batch",
)  # fmt: skip
COLUMNS = ("layer", "model", *SHAPE, *MEASURED)


class MeasuredLayer(NamedTuple):
    """A layer, as a network of one operator, and what it took on the chip."""

    name: str
    graph: Graph
    cycles: float | None  # None: not measured
    energy_pj: float | None


class Row(NamedTuple):
    """A row of the file."""

    cells: Mapping[str, str]  # by column; empty cells are left out
    where: str  # file and line

    def refused(self, column: str, accepted: str) -> InvalidConfig:
        """The error that says what was found in a column."""
        cell = self.cells.get(column)
        shown = "nothing" if cell is None else repr(cell[:MOST_SHOWN])
        return InvalidConfig(one_line(f"{self.where}: {column}: found {shown}; accepted: {accepted}"))

    def whole(self, column: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of a column; `default` where its cell is empty. Raises InvalidConfig."""
        cell = self.cells.get(column)
        if cell is None and default is not None:
            return default
        if (
            cell is None
            or not re.fullmatch(r"[0-9]{1,9}", cell, re.ASCII)
            or not least <= int(cell) <= MOST_SIZE
        ):
            raise self.refused(column, f"a whole number from {least} to {MOST_SIZE:,}")
        return int(cell)

    def real(self, column: str) -> float | None:
        """A number above 0 of a column; None where its cell is empty. Raises InvalidConfig."""
        cell = self.cells.get(column)
        if cell is None:
            return None
        try:
            number = float(cell) if "_" not in cell else -1.0
        except ValueError:
            number = -1.0
        if not isfinite(number) or not 0 < number <= MOST_MEASURED:
            raise self.refused(column, "a number above 0, up to 1e15")
        return number

    def kernel(self) -> tuple[int, int]:
        """Rows and columns of the kernel: 3, or 3x5. Raises InvalidConfig."""
        sizes = re.fullmatch(r"([1-9][0-9]{0,3})(?:[xX]([1-9][0-9]{0,3}))?", self.cells.get("kernel", "1"))
        if sizes is None:
            raise self.refused("kernel", "a size such as 3, or 1x7: rows by columns")
        return int(sizes[1]), int(sizes[2] or sizes[1])


def read_measured(path: Path, clock_hz: int, *, quantized: bool) -> list[MeasuredLayer]:
    """The layers of a file, in its order.

    `clock_hz`: of the chip, which turns milliseconds into cycles. `quantized`: whether layers that are given
    by their shapes are in int8. Raises InvalidConfig, which names file, line and column.
    """
    rows = _rows(path)
    networks: dict[str, Graph] = {}
    lines: dict[str, str] = {}
    layers: list[MeasuredLayer] = []
    for row in rows:
        name = row.cells.get("layer", "")
        if not name or not name.isprintable() or len(name) > MOST_SHOWN:
            raise row.refused("layer", f"a name of up to {MOST_SHOWN} printable characters")
        # of one network, a layer is an operator; those of others may have the same name
        key = f"{row.cells.get('model', '')}\n{name}"
        if key in lines:
            raise row.refused("layer", f"layers of different names: {lines[key]} has it, too")
        lines[key] = row.where.rpartition(": ")[2]
        layers.append(_layer(row, path.parent, networks, clock_hz, quantized=quantized))
    return layers


def _rows(path: Path) -> list[Row]:
    """The rows of the file by the columns of its first line."""
    accepted = f"a table with columns layer, {' or '.join(MEASURED)}, and model, or {', '.join(SHAPE)}"
    try:
        text = read_bytes(path, MAX_BYTES).decode("utf-8-sig")
        reader = csv.reader(text.splitlines(), strict=True)
        table = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidConfig(
            one_line(f"{path}: found no CSV in UTF-8 ({error}); accepted: {accepted}")
        ) from None
    table = [(line, row) for line, row in table if any(row) and not row[0].startswith("#")]
    if not table:
        raise InvalidConfig(one_line(f"{path}: found no rows; accepted: {accepted}"))
    header = [name.lower() for name in table[0][1]]
    where = f"{path}: line {table[0][0]}"
    for k, name in enumerate(header):
        if name not in COLUMNS or name in header[:k]:
            again = " twice" if name in COLUMNS else ""
            raise InvalidConfig(
                one_line(
                    f"{where}: found column {name[:MOST_SHOWN]!r}{again}; accepted: {', '.join(COLUMNS)}"
                )
            )
    _check_header(header, where)
    body = table[1:]
    if not 0 < len(body) <= MOST_LAYERS:
        raise InvalidConfig(
            one_line(f"{path}: found {len(body):,} layers; accepted: from 1 to {MOST_LAYERS:,}")
        )
    rows: list[Row] = []
    for line, cells in body:
        if len(cells) != len(header):
            raise InvalidConfig(
                one_line(
                    f"{path}: line {line}: found {len(cells)} cells; accepted: {len(header)}, one for each "
                    "column"
                )
            )
        filled = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
        rows.append(Row(filled, f"{path}: line {line}"))
    return rows


def _check_header(header: Sequence[str], where: str) -> None:
    """Raise InvalidConfig for columns that say too little, or the same twice."""
    if "layer" not in header:
        raise InvalidConfig(one_line(f"{where}: found no column layer; accepted: one that names the layers"))
    if not set(header) & set(MEASURED):
        raise InvalidConfig(
            one_line(f"{where}: found no measurements; accepted: columns {', '.join(MEASURED)}")
        )
    for pair in (TIMES, ENERGIES):
        if set(pair) <= set(header):
            raise InvalidConfig(one_line(f"{where}: found {' beside '.join(pair)}; accepted: one of them"))
    if "power_mw" in header and not set(header) & set(TIMES):
        raise InvalidConfig(
            one_line(f"{where}: found power_mw alone; accepted: with cycles or ms, which make energy of it")
        )


def _layer(
    row: Row, folder: Path, networks: dict[str, Graph], clock_hz: int, *, quantized: bool
) -> MeasuredLayer:
    """The layer of a row. `networks`: those read so far, by their names in the file."""
    if "model" in row.cells:
        graph = _operator(row, folder, networks)
    else:
        graph = layer_network(_shape(row), "layer", quantized=quantized)
    cycles = row.real("cycles")
    if (milliseconds := row.real("ms")) is not None:
        cycles = milliseconds * 1e-3 * clock_hz
    microjoules = row.real("energy_uj")
    if (power := row.real("power_mw")) is not None:
        if cycles is None:
            raise row.refused("power_mw", "power of a row with cycles or ms, which make energy of it")
        microjoules = power * cycles / clock_hz * 1e3
    if cycles is None and microjoules is None:
        raise InvalidConfig(one_line(f"{row.where}: found no measurement; accepted: {', '.join(MEASURED)}"))
    energy_pj = None if microjoules is None else microjoules * 1e6
    return MeasuredLayer(row.cells["layer"], graph, cycles, energy_pj)


def _shape(row: Row) -> LayerShape:
    kind = row.cells.get("kind", "").lower()
    if kind not in KINDS:
        raise row.refused("kind", ", ".join(KINDS))
    in_channels = row.whole("in_channels")
    gemm = kind == "gemm"
    height = row.whole("height", 1 if gemm else None)
    shape = LayerShape(
        kind,
        in_channels,
        row.whole("out_channels", in_channels if kind == "dwconv" else None),
        height,
        row.whole("width", 1 if gemm else height),
        row.kernel(),
        row.whole("stride", 1),
        row.whole("padding", 0, 0),
        row.whole("groups", in_channels if kind == "dwconv" else 1),
        row.whole("batch", 1),
    )
    if kind == "dwconv" and shape.groups != in_channels:
        raise row.refused("groups", f"of dwconv: as many as in_channels, {in_channels}")
    try:
        shape.check()
    except InvalidConfig as error:
        raise InvalidConfig(one_line(f"{row.where}: {error}")) from None
    return shape


def _operator(row: Row, folder: Path, networks: dict[str, Graph]) -> Graph:
    """The operator of a network that a row names."""
    if beside := [name for name in SHAPE if name in row.cells]:
        raise row.refused(beside[0], "no shape beside a model, which has it")
    model = row.cells["model"]
    if model not in networks:
        file = model if model.startswith(ZOO) else str(folder / model)
        try:
            networks[model] = load_network(file, None, RULES, weights=False)
        except LfoptError as error:
            raise InvalidConfig(one_line(f"{row.where}: model: {error}")) from None
    graph = networks[model]
    name = row.cells["layer"]
    if all(operator.name != name for operator in graph.operators):
        some = ", ".join(operator.name for operator in graph.operators[:3])
        raise row.refused("layer", f"an operator of {model}, such as {some} (lfopt inspect names all)")
    return one_operator(graph, name)
