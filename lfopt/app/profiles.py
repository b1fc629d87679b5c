"""Seconds of fusion groups on this machine, measured once and kept in a SQLite database for all models."""

from __future__ import annotations

import hashlib
import os
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen.build import build, compiler_version, find_compiler, write_source
from codegen.elements import ELEMENT, ElementName
from codegen.emit import emit_c
from codegen.runtime import Compiled
from lfopt.app.cache import cache_folder, locked, note, own_folder, own_root, remove, writers
from lfopt.app.cache_contents import CacheItem
from lfopt.app.plans import make_draft
from lfopt.app.random_values import random_inputs
from lfopt.app.random_weights import drawn
from lfopt.ir import Graph, InvalidConfig, Plan
from lfopt.ir.files import writing
from lfopt.ops.excerpt import excerpt
from lfopt.planning import GroupCosts, Propose
from lfopt.planning.plans.band_rows import heights
from lfopt.planning.tiling.tiles import signature
from search.options import Latency
from search.result import Result

DATABASE = "profiles.sqlite"
ASIDE = ".damaged"  # what such a database is called then
TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS profile (machine TEXT, code TEXT, band_rows INT, seconds REAL, PRIMARY "
        "KEY (machine, code, band_rows))"
    ),
    # everything is there twice: SQLite sees where they differ
    "CREATE INDEX IF NOT EXISTS twice ON profile (machine, code, band_rows, seconds)",
)
# SQLITE_ERROR: tables of another kind
DAMAGES = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
HEIGHTS = (1, 2, 4, 8, 16)  # bands to try
RUNS = 7  # of which the fastest counts: whatever disturbs a run makes it slower
Key = tuple[str, int]  # (what a group is, rows of a band)
Timed = Callable[[Propose], Sequence[float]]  # bands -> seconds of each group, in their order


class Profiles:
    """The database: (what a group is, rows of its bands) -> seconds, of one machine, target and compiler."""

    def __init__(self, path: Path, machine: str) -> None:
        """What is no database, or a damaged one, is set aside, and stderr says so.

        Raises InvalidConfig if there cannot be one.
        """
        self.path = path
        self.machine = machine
        own_folder(path.parent)
        if not damage(path):
            return
        with locked(path.parent, path.stem), writing(path):
            if not (fault := damage(path)):
                return  # somebody was faster
            for other in (*_journals(path), aside := path.with_name(f"{path.name}{ASIDE}")):
                if os.path.lexists(other):
                    remove(other)
            path.rename(aside)
            note(f"{path}: {fault}; it is set aside, and groups are measured again")

    @classmethod
    def here(cls, target: str, threads: int, compiler: Sequence[str]) -> Profiles:
        """Those of this machine, this target and this compiler, in ~/.cache/lfopt."""
        return cls(
            own_root(cache_folder()) / DATABASE,
            "\n".join((this_machine(), target, str(threads), compiler_version(compiler))),
        )

    def seconds(self) -> dict[Key, float]:
        """All that is known. Raises InvalidConfig."""
        with _database(self.path) as database:
            rows = database.execute(
                "SELECT code, band_rows, seconds FROM profile WHERE machine = ? AND typeof(seconds) = 'real'",
                (self.machine,),
            )
            return {(code, band): seconds for code, band, seconds in rows}

    def add(self, times: Iterable[tuple[Key, float]]) -> None:
        """Keep what was measured; of two measurements of the same, the faster. Raises InvalidConfig."""
        rows = [(self.machine, code, band, seconds) for (code, band), seconds in times]
        with _database(self.path) as database:
            database.executemany(
                "INSERT INTO profile VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET seconds = min(seconds, "
                "excluded.seconds)",
                rows,
            )


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open, with its table; what is changed is on the disk afterwards. Raises InvalidConfig."""
    with suppress(OSError):  # it is there; or SQLite says why it cannot be
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
            for line in TABLES:
                connection.execute(line)
            yield connection
    except sqlite3.Error as error:
        raise _DatabaseError(path, error) from None


class _DatabaseError(InvalidConfig):
    """A database that SQLite refuses; `reason`: its words where the file is damaged, else empty."""

    def __init__(self, path: Path, error: sqlite3.Error) -> None:
        super().__init__(
            f"{path}: found {error}; accepted: a database of profiles, or a place where one can be made"
        )
        self.reason = str(error) if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGES else ""


def damage(path: Path) -> str:
    """What is wrong with a database; nothing if it is whole, or not there.

    Raises InvalidConfig where that cannot be said.
    """
    if not path.exists():
        return ""
    if not path.is_file():
        return "found no file"
    if others := writers(path.stat()):
        return others
    try:
        with _database(path) as database:
            verdict = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except _DatabaseError as refused:
        if not refused.reason:
            raise
        return refused.reason
    if verdict == "ok":
        return ""
    return verdict


def databases() -> list[CacheItem]:
    """The database as something that lies in the cache, and one that was set aside."""
    path = cache_folder() / DATABASE
    items: list[CacheItem] = []
    for file, others in ((path, _journals(path)), (path.with_name(f"{path.name}{ASIDE}"), ())):
        if os.path.lexists(file) and not file.is_symlink():
            reason = damage(file) if file == path else "set aside"
            items.append(
                CacheItem(
                    file, path.stem, "times", file.name, "", file.lstat().st_mtime, reason, tuple(others)
                )
            )
    return items


def _journals(path: Path) -> list[Path]:
    """What SQLite has beside a database while it writes."""
    return [path.with_name(f"{path.name}{end}") for end in ("-journal", "-wal", "-shm")]


def code_of(costs: GroupCosts, group: int) -> str:
    """What a group is, whatever its model calls it."""
    return hashlib.sha256(repr(signature(costs.dataflow, group)).encode()).hexdigest()[:32]


def tuned(costs: GroupCosts, groups: Iterable[int], profiles: Profiles, timed: Timed) -> Propose:
    """The fastest band heights, in rows, of each group that has a choice.

    As the database says, and measured where it does not know.
    """
    choices = {group: _choices(costs, group) for group in groups}
    codes = {group: code_of(costs, group) for group, bands in choices.items() if len(bands) > 1}
    known = profiles.seconds()
    for rows in HEIGHTS:
        if any((code, rows) not in known for group, code in codes.items() if rows in choices[group]):
            seconds = timed(lambda group, rows=rows: [rows] if rows in choices[group] else [1])
            measured = zip(choices.items(), seconds, strict=True)
            profiles.add(
                [
                    ((codes[group], rows), taken)
                    for (group, possible), taken in measured
                    if group in codes and rows in possible
                ]
            )
    known = profiles.seconds()

    def propose(group: int) -> Sequence[int]:
        code = codes.get(group)
        if code:
            return [min(choices[group], key=lambda rows: known.get((code, rows), np.inf))]
        return [1]

    return propose


def _choices(costs: GroupCosts, group: int) -> tuple[int, ...]:
    """Heights of bands of a group that make a difference and fit.

    One that does not run by rows has no choice.
    """
    mode = costs.chosen(group)
    possible = set(heights(costs, group))
    if mode is None or group & (group - 1) == 0:
        return (1,)
    return tuple(
        rows
        for rows in HEIGHTS
        if rows == 1 or (rows in possible and mode.height_fits(group, rows, costs.hardware.buffer_bytes))
    )


def measured(costs: GroupCosts, profiles: Profiles, timed: Latency) -> Latency:
    """What a group takes alone: as the database says, and measured where it does not know.

    How it runs (its mode) is part of what it is; a group for which nothing is measured, because no plan has
    it, takes forever.
    """
    known = profiles.seconds()

    def seconds(group: int) -> float:
        price = costs.price(group)
        if price is None:
            return np.inf
        key = hashlib.sha256(f"alone {price.mode} {code_of(costs, group)}".encode()).hexdigest()[:32], 1
        if key not in known:
            known[key] = timed(group)
            profiles.add([(key, known[key])])
        return known[key]

    return seconds


def latency_here(costs: GroupCosts, progress: Callable[[int], None] | None = None) -> Latency:
    """Seconds of a group as C of its own on one thread of this machine, kept with the other profiles.

    `progress` is told how many are measured. Weights that are absent are drawn at random: times do not depend
    on them. Raises InvalidConfig where there is no compiler, Unsupported where the hardware description is
    none of a CPU, or no C can be printed.
    """
    compiler = find_compiler(os.environ.get("CC"))
    count = 0

    def timed(group: int) -> float:
        nonlocal count
        count += 1
        if progress is not None:
            progress(count)
        rng = np.random.default_rng(0)
        graph = drawn(excerpt(costs.dataflow, group), rng)
        space = {"scheme": costs.scheme, "epilogue": costs.epilogue, "max_recompute": costs.max_recompute}
        own = GroupCosts.of(graph, costs.hardware, costs.traffic, **space)
        alone = Result("profile", (own.dataflow.everything,), 0, 0, 0, 0, 0.0)
        plan = make_draft(graph, own, alone, 0).finished()
        return group_times(plan, graph, "native", 1, compiler, random_inputs(graph, rng))[0]

    return measured(costs, Profiles.here("native", 1, compiler), timed)


def group_times(
    plan: Plan,
    graph: Graph,
    target: str,
    threads: int,
    compiler: Sequence[str],
    inputs: Mapping[str, np.ndarray],
    element: ElementName = ELEMENT,
) -> list[float]:
    """(groups,) seconds: the fastest of a few runs.

    `inputs`: by name, in the shapes and types of the graph.
    """
    source = emit_c(plan, graph, target, threads=threads, profile=True, element=element)
    with TemporaryDirectory() as folder:
        write_source(source, Path(folder))
        model = Compiled(
            build(source, Path(folder), compiler or find_compiler()).library,
            source.name,
            Path(folder) / "weights.bin",
        )
        return np.min([model.profile(inputs, len(plan.groups)) for _ in range(RUNS + 1)][1:], axis=0).tolist()


def this_machine() -> str:
    """Architecture and a digest of what its processor can do: code for one need not run on another."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine() + platform.processor()
    named = ("model name", "flags", "Features", "CPU part")
    lines = sorted({line for line in text.splitlines() if line.startswith(named)})
    return platform.machine() + hashlib.sha256("\n".join(lines).encode()).hexdigest()
