"""Results kept between runs, in folders named by a digest of what they were made from.

A folder is opened only when it is whole, and otherwise made again. Damage and accidents are noticed: files
that are cut, absent or changed, runs that were killed, two runs that want the same. What another user owns or
may write is not opened: it holds code that would run.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import TypeAdapter

from lfopt.ir import Graph, InvalidConfig, LfoptError
from lfopt.ir.files import sync_folder, writing
from lfopt.ir.names import one_line

ROOT = Path(__file__).resolve().parents[2]  # of the packages
PACKAGES = ("lfopt", "search", "codegen")  # whose code decides what is compiled
KEY = 32  # hexadecimal digits
PROGRAMS = "rtl"  # folder of simulated accelerators, beside the models
ENTRY = "entry.json"  # of a folder: what it is, and its files with their sizes and digests
ENTRY_BYTES = 1 << 20  # more than any entry.json has
KEYS = "[0-9a-f]{24,32}"
LEFT = re.compile(rf"({KEYS}|profiles)\.(lock|\w{{8}}\.part)")  # what a run holds while it makes something
OTHERS = stat.S_IWGRP | stat.S_IWOTH  # permissions to write
BLOCK, BLOCKS = 4096, 64  # bytes; between the first block and the last one
Kind = Literal["model", "accelerator"]
# fills a folder; gives facts, for `opened` and for `lfopt cache list`
Make = Callable[[Path], Mapping[str, str]]
T = TypeVar("T")


class Damaged(Exception):
    """A folder is not what was written; the message says why."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of an entry."""

    name: str
    size: int  # bytes
    executable: bool
    sha256: str
    sample: str | None  # digest of blocks spread over it, where that is what is looked at when it is opened

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.+-]{0,254}", self.name, re.ASCII) or self.name == ENTRY:
            raise InvalidConfig(f"found a file {self.name!r}; accepted: plain names")
        if self.size < 0 or not all(
            re.fullmatch("[0-9a-f]{64}", digest) for digest in (self.sha256, self.sample or self.sha256)
        ):
            raise InvalidConfig(f"{self.name}: accepted: a size of at least 0, and hexadecimal digests")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """What entry.json says of its folder."""

    kind: Kind
    facts: dict[str, str]
    files: tuple[File, ...]

    def __post_init__(self) -> None:
        if len({file.name for file in self.files}) != len(self.files):
            raise InvalidConfig("files: a name is there twice")

    def text(self) -> str:
        """entry.json, which has a digest of itself."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()
        return json.dumps({**asdict(self), "sha256": digest}, indent=1) + "\n"


# -- names ---------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/lfopt, else ~/.cache/lfopt. Raises InvalidConfig where the home folder is not known."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (given if given.is_absolute() else Path.home() / ".cache") / "lfopt"
    except RuntimeError:
        raise InvalidConfig(
            "the home folder is not known, and $XDG_CACHE_HOME is not set; accepted: either"
        ) from None


def key_of(graph: Graph, *others: object) -> str:
    """A name for whatever this version of lfopt makes from a network and `others`, by their content."""
    digest = hashlib.sha256(repr((_code(), others)).encode())
    _hash_graph(digest, graph)
    return digest.hexdigest()[:KEY]


@functools.cache
def _code() -> str:
    """Digest of the code itself: changed code never meets what it made before."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _hash_graph(digest: Any, graph: Graph) -> None:
    """Everything that a network computes with: operators, shapes and values. Its notes do not count."""
    digest.update(repr((graph.name, graph.inputs, graph.outputs, graph.opset)).encode())
    for operator in graph.operators:
        digest.update(
            repr((operator.name, operator.kind, operator.domain, operator.inputs, operator.outputs)).encode()
        )
        for name, value in sorted(operator.attributes.items()):
            digest.update(name.encode())
            _hash_value(digest, value)
    for name, tensor in sorted(graph.tensors.items()):
        digest.update(repr((name, tensor)).encode())
    for name, value in sorted(graph.constants.items()):
        digest.update(name.encode())
        _hash_value(digest, value)


def _hash_value(digest: Any, value: object) -> None:
    if not isinstance(value, np.ndarray):
        digest.update(repr(value).encode())
        return
    digest.update(repr((value.dtype.name, value.shape)).encode())
    digest.update(
        repr(value.tolist()).encode()
        if value.dtype.hasobject
        else np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    )


# -- entries -------------------------------------------------------------------------------------------------


def kept(
    key: str,
    root: Path,
    kind: Kind,
    make: Make,
    opened: Callable[[Path, CacheEntry], T],
    *,
    sampled: Collection[str] = (),
    verify: bool = False,
) -> tuple[T, bool]:
    """(what `opened` makes of the folder of a key, whether the folder was there already).

    `key`: 24 to 32 hexadecimal digits. If there is no folder, or it is damaged, or `opened` raises an
    LfoptError for what it finds in it, `make` fills one aside, which is then renamed; where that replaces
    another, stderr says why. For a root that is another user's, see `own_root`. Of the files named in
    `sampled`, opening reads samples, with `verify` everything. Others who want the same meanwhile wait for
    it. Raises CannotWrite.
    """
    root = own_root(root)
    folder = root / key
    with suppress(OSError):  # a cache that is read-only, for one
        sweep(root)
    with suppress(OSError, Damaged):
        return _tried(folder, opened, verify), True
    own_folder(root)
    with writing(folder), locked(root, key):
        try:
            return _tried(folder, opened, verify), True  # somebody else was faster
        except FileNotFoundError:
            pass
        except Damaged as damage:
            note(f"{folder}: {damage}; it is made again")
            discard(folder, key)
        scratch = Path(tempfile.mkdtemp(prefix=f"{key}.", suffix=".part", dir=root))
        try:
            entry = _sealed(scratch, kind, _facts_of(scratch, make), sampled)
            scratch.rename(folder)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        sync_folder(root)
        return opened(folder, entry), False  # while it is locked: nobody removes it


def keeper(root: Path) -> Callable[[str, Make], Path]:
    """`kept` for those below the roof who make programs: (key, make) -> the folder."""

    def keep(key: str, make: Make) -> Path:
        return kept(key, root, "accelerator", make, lambda folder, _: folder)[0]

    return keep


def whole(folder: Path, *, verify: bool = False) -> CacheEntry:
    """The entry of a folder that holds what was written into it.

    Raises FileNotFoundError where there is no such folder, and Damaged.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise Damaged("found no folder")
    if others := writers(status):
        raise Damaged(others)
    try:
        entry = _read_entry(folder / ENTRY)
        for file in entry.files:
            _look_at(folder, file, verify=verify)
    except OSError as error:
        raise Damaged(f"{Path(str(error.filename or folder)).name}: {error.strerror or error}") from None
    return entry


def used(path: Path) -> None:
    """Remember that this was used now: `lfopt cache prune` goes by it."""
    with suppress(OSError):  # a cache that is read-only
        os.utime(path)


def note(text: str) -> None:
    """Say on stderr what became of the cache."""
    from lfopt.app.screen import err  # noqa: PLC0415  (seldom needed)

    err.print(f"note: {one_line(text)}", style="yellow", markup=False, soft_wrap=True)


def _tried(folder: Path, opened: Callable[[Path, CacheEntry], T], verify: bool) -> T:
    """What `opened` makes of a whole entry. Raises FileNotFoundError, Damaged."""
    entry = whole(folder, verify=verify)
    try:
        opened_entry = opened(folder, entry)
    except (LfoptError, KeyError) as error:
        raise Damaged(one_line(error)) from None
    used(folder / ENTRY)
    return opened_entry


def _facts_of(scratch: Path, make: Make) -> Mapping[str, str]:
    """What `make` says; errors name the file where they know it."""
    try:
        return make(scratch)
    except OSError as error:
        with writing(Path(str(error.filename or scratch))):
            raise


def _sealed(folder: Path, kind: Kind, facts: Mapping[str, str], sampled: Collection[str]) -> CacheEntry:
    """Bring all files to the disk, and write down what they are."""
    files: list[File] = []
    for path in sorted(folder.iterdir()):
        with writing(path):
            _for_this_user(path)
        with writing(path), _plain_file(path) as file:
            os.fsync(file.fileno())
            status = os.fstat(file.fileno())
            sample = _sample(file, status.st_size) if path.name in sampled else None
            files.append(File(path.name, status.st_size, _executable(status), _digest(file), sample))
    entry = CacheEntry(kind, {name: one_line(text) for name, text in facts.items()}, tuple(files))
    with writing(folder / ENTRY), (folder / ENTRY).open("w", encoding="utf-8") as file:
        file.write(entry.text())
        file.flush()
        os.fsync(file.fileno())
        _for_this_user(folder / ENTRY)
    sync_folder(folder)
    return entry


def _for_this_user(path: Path) -> None:
    """Take the permission to write from all others, whatever the umask was."""
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode) and mode & OTHERS:
        path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def _read_entry(path: Path) -> CacheEntry:
    """The entry in entry.json. Raises Damaged, OSError."""
    with _plain_file(path) as file:
        text = file.read(ENTRY_BYTES)
    try:
        entry = _schema().validate_json(text, strict=True)
    except (ValueError, InvalidConfig):
        entry = None
    if entry is None or entry.text().encode() != text:
        raise Damaged(f"{ENTRY}: not what was written")
    return entry


@functools.cache
def _schema() -> TypeAdapter[CacheEntry]:
    return TypeAdapter(CacheEntry)


def _look_at(folder: Path, file: File, *, verify: bool) -> None:
    """Compare a file with its entry. Raises Damaged, OSError."""
    with _plain_file(folder / file.name) as stream:
        status = os.fstat(stream.fileno())
        if status.st_size != file.size:
            raise Damaged(f"{file.name}: found {status.st_size:,} B in place of {file.size:,} B")
        if _executable(status) != file.executable:
            raise Damaged(f"{file.name}: found other permissions than were given")
        if file.sample and not verify:
            same = _sample(stream, file.size) == file.sample
        else:
            same = _digest(stream) == file.sha256
    if not same:
        raise Damaged(f"{file.name}: found other bytes than were written")


@contextmanager
def _plain_file(path: Path) -> Iterator[BufferedReader]:
    """The file itself, to be read: no link, no pipe."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    with open(path, "rb", opener=opener) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path.name}: found no plain file")
        if others := writers(status):
            raise Damaged(f"{path.name}: {others}")
        yield file


def _executable(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IXUSR)


def _digest(file: BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _sample(file: BufferedReader, size: int) -> str:
    """Digest of the first block, the last one and `BLOCKS` between them; of shorter files the whole."""
    if size <= BLOCK * (BLOCKS + 2):
        return _digest(file)
    places = (k * (size - BLOCK) // (BLOCKS + 1) for k in range(BLOCKS + 2))
    return hashlib.sha256(b"".join(os.pread(file.fileno(), BLOCK, place) for place in places)).hexdigest()


# -- folders and locks ---------------------------------------------------------------------------------------


def writers(status: os.stat_result) -> str:
    """Who else than this user may write a file or folder, in words; nothing where nobody may."""
    if status.st_uid != os.geteuid():
        return f"it belongs to another user ({status.st_uid})"
    if status.st_mode & OTHERS:
        return "other users may write it"
    return ""


def own_root(root: Path) -> Path:
    """The root of a cache: `root`, or where another user owns it a folder of this process alone.

    Permissions of others are taken from a root that is this user's; a stranger could replace what lies in one
    between the check and its use.
    """
    try:
        status = root.stat()
    except OSError:
        return root  # it is made, or whoever makes it says why not
    if status.st_uid == os.geteuid():
        if status.st_mode & OTHERS:
            own_folder(root)
        return root
    return _folder_instead(root, writers(status))


@functools.cache
def _folder_instead(root: Path, why: str) -> Path:
    """A folder that goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="lfopt-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    note(f"{root}: {why}: nothing in it is used, and nothing is kept")
    return folder


def own_folder(folder: Path) -> None:
    """Make a folder, and those above it that are not there, for this user alone. Raises CannotWrite."""
    for part in (*reversed(folder.parents), folder):
        with writing(part):
            if not part.is_dir():
                part.mkdir(mode=0o700, exist_ok=True)
    with writing(folder):
        status = folder.stat()
        if status.st_mode & 0o077 and status.st_uid == os.getuid():
            folder.chmod(0o700)


class Busy(Exception):
    """Another process or thread has the lock."""


@contextmanager
def locked(root: Path, key: str, *, wait: bool = True) -> Iterator[None]:
    """A lock that one process, and one thread of it, holds for a key at a time; a process that dies lets go.

    Raises CannotWrite; Busy if it may not wait.
    """
    path = root / f"{key}.lock"
    with writing(path):
        held = _lock(path, wait=wait)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held: whoever waits for it sees that it is gone, and makes another
        os.close(held)


def _lock(path: Path, *, wait: bool) -> int:
    """A descriptor of the file that lies there, locked. Raises OSError, Busy."""
    while True:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if path.exists() and os.path.samestat(os.fstat(opened), path.lstat()):
                return opened
        except FileNotFoundError:  # it went between the two
            pass
        except BlockingIOError:
            os.close(opened)
            raise Busy from None
        except BaseException:
            os.close(opened)
            raise
        os.close(opened)


def sweep(root: Path) -> None:
    """Remove what killed runs have left: all that no process has the lock of. Raises OSError."""
    try:
        names = os.listdir(root)  # noqa: PTH208  (at every opening; nearly always there is nothing to do)
    except FileNotFoundError:
        return
    for key in {leftover[1] for name in names if (leftover := LEFT.fullmatch(name))}:
        with suppress(Busy), locked(root, key, wait=False):
            for path in root.glob(f"{key}.*.part"):
                if LEFT.fullmatch(path.name) and not path.is_symlink():
                    remove(path)


def discard(path: Path, key: str) -> None:
    """Remove a file or folder of the cache at once, for all who look: it is renamed first.

    The lock of the key is held. Raises CannotWrite.
    """
    aside = path.with_name(f"{key}.{secrets.token_hex(4)}.part")
    with writing(path):
        path.rename(aside)
        remove(aside)


def remove(path: Path) -> None:
    """Remove a file, a link itself, or a folder with what is in it. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
