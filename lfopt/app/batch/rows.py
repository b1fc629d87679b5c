"""Rows as a table in a file: CSV or Parquet, by its suffix."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from lfopt.app.batch.engine import needed
from lfopt.app.batch.jobs import BatchJob, Label
from lfopt.app.batch.work import JobResult
from lfopt.app.files import write_text, write_with
from lfopt.ir import InvalidConfig
from lfopt.ir.names import cell

SUFFIXES = (".csv", ".parquet")
LARGEST = 1 << 63  # of whole numbers in Parquet
SCHEMA = "lfopt.batch/1"
Row = Mapping[str, Label]


def check_table(path: Path, who: str) -> None:
    """Check a file. Raises InvalidConfig for one that `write_table` cannot write with what is installed."""
    if path.suffix not in SUFFIXES or path.is_dir():
        raise InvalidConfig(
            f"--out {path}: found {'a folder' if path.is_dir() else path.suffix or 'no suffix'}; accepted: a "
            f"file {' or '.join(SUFFIXES)}"
        )
    if path.suffix == ".parquet":
        needed("pyarrow.parquet", f"{who} --out {path.name}", "batch")


def row_of(job: BatchJob, result: JobResult) -> dict[str, Label]:
    """What the job was, and how it ended."""
    figures = asdict(result)
    if result.element_bytes is None:  # it failed: what was asked for
        del figures["element_bytes"]
    return {"key": job.key, **job.labels, **figures}


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows that all have the same fields, at least one. Raises CannotWrite."""
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(cell, rows[0]))
        writer.writerows(
            [cell(value) if isinstance(value, str) else _text(value) for value in row.values()]
            for row in rows
        )
        write_text(path, text.getvalue())
        return
    import pyarrow as pa  # noqa: PLC0415  (optional)
    from pyarrow import parquet  # noqa: PLC0415

    columns = {name: [row[name] for row in rows] for name in rows[0]}
    types = {name: _kind(name, values) for name, values in columns.items()}
    arrow = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    texts = {
        name: [v if v is None or types[name] is not str else _text(v) for v in values]
        for name, values in columns.items()
    }
    arrays = [pa.array(values, arrow[types[name]]) for name, values in texts.items()]
    table = pa.table(
        arrays, schema=pa.schema([(name, arrow[kind]) for name, kind in types.items()], {"schema": SCHEMA})
    )
    write_with(path, lambda file: parquet.write_table(table, file))


def _text(value: Label) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _kind(name: str, values: Sequence[Label]) -> type[Any]:
    """Type of a column: that of its field in JobResult, else the one of all its values; else text."""
    hints = get_type_hints(JobResult)
    if name in {column.name for column in fields(JobResult)}:
        kinds = {type(option) if isinstance(option, str) else option for option in _options(hints[name])} - {
            NoneType
        }
    else:
        kinds = {type(value) for value in values if value is not None}
    if kinds in ({int}, {float}, {int, float}) and all(
        abs(value) < LARGEST for value in values if isinstance(value, int | float)
    ):
        if float in kinds:
            return float
        return int
    if kinds == {bool}:
        return bool
    return str


def _options(hint: Any) -> list[Any]:
    """Types and texts that a hint allows, `int | None` or a Literal."""
    inner = get_args(hint)
    if not inner:
        return [hint]
    return [listed for option in inner for listed in _options(option)]
