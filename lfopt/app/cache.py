"""Results kept between runs in folders named by what they were made from. A folder is there whole or not at all, whoever else makes it meanwhile."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lfopt.ir import Graph, InvalidConfig

ROOT = Path(__file__).resolve().parents[2]  # of the packages
PACKAGES = ("lfopt", "search", "codegen")  # whose code decides what is compiled
KEY = 32  # hexadecimal digits


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/lfopt, else ~/.cache/lfopt."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (given if given.is_absolute() else Path.home() / ".cache") / "lfopt"
    except RuntimeError:
        raise InvalidConfig("the home folder is not known, and $XDG_CACHE_HOME is not set; accepted: either") from None


def key_of(graph: Graph, *others: object) -> str:
    """A name for whatever this version of lfopt makes from a network and `others`, by their content."""
    digest = hashlib.sha256(repr((_code(), others)).encode())
    _hash_graph(digest, graph)
    return digest.hexdigest()[:KEY]


@functools.cache
def _code() -> str:
    """Digest of the code itself: whoever changes it never meets what it made before."""
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
        digest.update(repr((operator.name, operator.kind, operator.domain, operator.inputs, operator.outputs)).encode())
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
    digest.update(repr(value.tolist()).encode() if value.dtype.hasobject else np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


def kept(key: str, is_whole: Callable[[Path], bool], make: Callable[[Path], None], root: Path) -> tuple[Path, bool]:
    """The folder of `key`, and whether it was there already; if not, `make` fills one aside, which is then renamed.

    Two who make the same at once both succeed, and both use what the first has made.
    """
    folder = root / key
    if is_whole(folder):
        return folder, True
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{key}.", suffix=".part", dir=root) as scratch:
        aside, spoilt = Path(scratch) / "made", Path(scratch) / "spoilt"
        aside.mkdir()
        make(aside)
        for _ in range(2):
            try:
                aside.rename(folder)
            except OSError:
                if is_whole(folder):  # somebody else was faster
                    break
                with contextlib.suppress(OSError):
                    folder.rename(spoilt)  # somebody took files out of it
            else:
                break
        if not is_whole(folder):
            raise InvalidConfig(f"{folder}: cannot be replaced; remove it")
    return folder, False
