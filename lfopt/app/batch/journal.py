"""Rows kept as they come, a line of JSON each, in a file that only grows.

A run that ended in any way goes on from it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from lfopt.app.config import validate
from lfopt.app.documents import opened, parse_json
from lfopt.ir import CannotWrite, InvalidConfig
from lfopt.ir.files import writing
from lfopt.ir.names import one_line

MAX_LINE = 1 << 16  # bytes
SYNC_SECONDS = 0.5  # what a machine that loses its power may lose; a process that is killed loses nothing
Row = TypeVar("Row")


class Journal(Generic[Row]):
    """Rows by key, of a file that is open and locked. Of several rows with one key the last one holds."""

    def __init__(self, path: Path, file: BinaryIO, rows: dict[str, Row]) -> None:
        self.path = path
        self.rows = rows
        self._file = file
        self._synced = time.monotonic()

    def add(self, key: str, row: Row) -> None:
        """Keep a row. Raises CannotWrite."""
        self.rows[key] = row
        _append(self.path, self._file, {"key": key, "row": asdict(row)})  # type: ignore[call-overload]
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Bring all rows to the disk."""
        with writing(self.path):
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()


@contextmanager
def journal(path: Path, schema: str, kind: type[Row]) -> Iterator[Journal[Row]]:
    """The journal of a file, which is made where it is missing.

    What a killed run left of its last line is dropped. Raises InvalidConfig for a file that is no journal,
    and for one that another run writes; CannotWrite.
    """
    if path.exists():
        opened(path).close()  # a regular file
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    with file:
        _lock(path, file)
        kept = Journal(path, file, _read(path, file, schema, kind))
        if not os.fstat(file.fileno()).st_size:
            _append(path, file, {"schema": schema})
        try:
            yield kept
        finally:
            kept.sync()


def _append(path: Path, file: BinaryIO, data: dict[str, Any]) -> None:
    line = json.dumps(data, separators=(",", ":")).encode() + b"\n"
    with writing(path):
        if os.write(file.fileno(), line) < len(line):  # at the end, wherever that is
            raise OSError(errno.ENOSPC, "no space left")


def _lock(path: Path, file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidConfig(
            one_line(f"{path}: another run writes it; accepted: another --out, or wait for its end")
        ) from None
    except OSError as error:
        raise CannotWrite(one_line(f"{path}: cannot be locked: {error.strerror or error}")) from None


def _read(path: Path, file: BinaryIO, schema: str, kind: type[Row]) -> dict[str, Row]:
    """Rows by key; the file ends after the last whole line then. Raises InvalidConfig."""
    rows: dict[str, Row] = {}
    whole = number = 0
    file.seek(0)
    while line := file.readline(MAX_LINE + 1):
        number += 1
        where = f"{path}: line {number}"
        if len(line) > MAX_LINE:
            raise InvalidConfig(
                one_line(f"{where}: found more than {MAX_LINE:,} bytes; accepted: rows of lfopt batch")
            )
        if not line.endswith(b"\n"):
            break
        whole += len(line)
        data = _parsed(line, where)
        if number == 1:
            if data != {"schema": schema}:
                raise InvalidConfig(
                    one_line(
                        f"{where}: schema: found {str(data)[:80]}; accepted: {json.dumps({'schema': schema})}"
                    )
                )
        elif data.keys() != {"key", "row"} or not isinstance(data["key"], str):
            raise InvalidConfig(
                one_line(f"{where}: found fields {', '.join(map(str, data))[:80]}; accepted: key, row")
            )
        else:
            rows[data["key"]] = validate(kind, data["row"], where)
    with writing(path):
        file.truncate(whole)
    return rows


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        data = parse_json(line)
    except ValueError as error:
        raise InvalidConfig(one_line(f"{where}: not JSON: {error}")) from None
    if not isinstance(data, dict):
        raise InvalidConfig(one_line(f"{where}: found {type(data).__name__}; accepted: an object"))
    return data
