"""What lies in the cache: listed, and removed where it is too much."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lfopt.app.cache import ENTRY, KEYS, LEFT, PROGRAMS, Busy, Damaged, cache_folder, discard, locked, whole
from lfopt.ir import CannotWrite
from lfopt.ir.sizes import parse_size

LIMIT = "LFOPT_CACHE_SIZE"  # environment: bytes that compiled models may take
MOST = 8 << 30  # bytes, where it says nothing


def size_limit() -> int:
    """Bytes that compiled models may take together: $LFOPT_CACHE_SIZE, such as 2GiB or unlimited; else 8 GiB.

    Raises InvalidConfig.
    """
    return parse_size(os.environ.get(LIMIT) or MOST, f"${LIMIT}")


@dataclass(frozen=True, slots=True)
class CacheItem:
    """Something that lies in the cache."""

    path: Path
    key: str  # of the lock that is held to make it, or to remove it
    kind: str
    network: str
    target: str
    used: float  # seconds since the epoch
    damage: str = ""  # nothing where it is whole
    others: tuple[Path, ...] = ()  # files that go with it

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(_size(path) for path in (self.path, *self.others))


def contents(*, verify: bool = False) -> list[CacheItem]:
    """The folders that the cache has made, and those that killed runs have left. Links are not its work."""
    items: list[CacheItem] = []
    for root in (cache_folder(), cache_folder() / PROGRAMS):
        for path, key in _folders(root):
            with suppress(FileNotFoundError):  # somebody has removed it
                items.extend(_item(path, key, verify=verify))
    return items


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    """Folders whose names begin with a key, and these; none where there is no such root."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as names:
        for name in names:
            if name.is_dir(follow_symlinks=False) and (key := re.match(KEYS, name.name)):
                yield Path(name.path), key[0]


def _item(path: Path, key: str, *, verify: bool) -> Iterator[CacheItem]:
    """Nothing, where it is not the cache's, or where it is being made."""
    if LEFT.fullmatch(path.name):
        with suppress(Busy), locked(path.parent, key, wait=False):
            yield CacheItem(
                path, key, "leftover", path.name, "", path.lstat().st_mtime, "left by a run that was killed"
            )
    elif path.name == key:
        try:
            entry = whole(path, verify=verify)
        except Damaged as damage:
            kind = "accelerator" if path.parent.name == PROGRAMS else "model"
            yield CacheItem(path, key, kind, path.name, "", path.lstat().st_mtime, str(damage))
        else:
            facts = entry.facts
            yield CacheItem(
                path,
                key,
                entry.kind,
                facts.get("network", ""),
                facts.get("target", ""),
                (path / ENTRY).lstat().st_mtime,
            )


def drop(item: CacheItem) -> bool:
    """Remove an item, and say whether it is gone: not while a run makes it. Raises CannotWrite."""
    try:
        with locked(item.path.parent, item.key, wait=False):
            for path in (item.path, *item.others):
                with suppress(FileNotFoundError):
                    path.lstat()
                    discard(path, item.key)
    except Busy:
        return False
    return True


def trim(root: Path, limit: int, spared: str) -> None:
    """Remove the least recently used models of a folder until those left take at most `limit` bytes.

    The one of key `spared` stays, and so does what a run makes at this moment, or what cannot be removed.
    """
    models = sorted(_models(root), key=lambda item: item.used)
    sizes = [item.size for item in models]
    excess = sum(sizes) - limit
    for item, size in zip(models, sizes, strict=True):
        if excess > 0 and item.key != spared:
            with suppress(CannotWrite):
                excess -= size if drop(item) else 0


def _models(root: Path) -> Iterator[CacheItem]:
    """The compiled models of a folder, whole or not."""
    for path, key in _folders(root):
        if path.name == key:
            with suppress(FileNotFoundError):  # somebody has removed it
                yield CacheItem(path, key, "model", "", "", (path / ENTRY).lstat().st_mtime)


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            return sum(_size(part) for part in path.iterdir())
        return path.lstat().st_size
    return 0
