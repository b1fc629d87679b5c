"""A file that a command wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file that was written."""

    path: str
    size_bytes: int

    @classmethod
    def of(cls, path: Path) -> FileAnswer:
        """Path and size of a file that exists."""
        return cls(str(path), path.stat().st_size)
