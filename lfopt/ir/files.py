"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lfopt.ir.errors import CannotWrite
from lfopt.ir.names import one_line


@contextmanager
def writing(path: Path) -> Generator[None, None, None]:
    """Whatever stops a file from being written becomes CannotWrite, which names it."""
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        raise CannotWrite(one_line(f"{path}: cannot be written: {error.strerror or error}")) from None


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO, None, None]:
    """A file to fill: it lies aside, is brought to the disk when the block ends, and then renamed.

    `path` is as it was or whole, whatever happens. Raises CannotWrite.
    """
    with writing(path):
        aside = _aside(path)
        try:
            with aside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
            sync_folder(path.parent)
        finally:
            with suppress(OSError):  # it was never made, or is renamed
                aside.unlink()


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that keeps names in its own way
            raise
    finally:
        os.close(opened)


def _aside(path: Path) -> Path:
    """Where a file lies until it is whole.

    Raises CannotWrite where it would take the place of a folder, a pipe or a device.
    """
    if not path.name or (path.exists() and not path.is_file()):
        raise CannotWrite(
            one_line(f"{path}: cannot be written: found a folder, a pipe or a device; accepted: a file name")
        )
    return path.with_name(f"{path.name}.{os.getpid()}.part")
