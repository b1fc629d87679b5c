"""Cache entries: opened only when whole, made again when not, listed and removed by `lfopt cache`."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import lfopt
from codegen.build import build, find_compiler, write_source
from lfopt.app import cache, compiled
from lfopt.app.cache import Damaged, cache_folder, keeper, kept, key_of, locked, whole
from lfopt.app.cache_contents import contents, trim
from lfopt.app.files import write_bytes
from lfopt.app.profiles import Profiles, databases
from lfopt.app.screen import out
from lfopt.frontend import load
from lfopt.ir import CannotWrite, InvalidConfig
from tests.app.conftest import one_shape, refused
from tests.app.test_compiled import X, doubling
from tests.codegen.twice import twice

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
KEYS = [f"{k:032x}" for k in range(10)]
FORK = multiprocessing.get_context("fork")
Damage = Callable[[Path], object]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache, which is an empty one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "cache" / "lfopt"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twice")
    write_source(twice(), folder)
    return build(twice(), folder, find_compiler()).library


@pytest.fixture
def compiled_folders(library: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders in which `lfopt.compile` has compiled y = 2 * x. Here that is to copy the library."""
    folders: list[Path] = []

    def copied(source, folder: Path, *_):
        folders.append(folder)
        return SimpleNamespace(library=Path(shutil.copy(library, folder)))

    monkeypatch.setattr(compiled, "emit_c", lambda *_, **__: twice())
    monkeypatch.setattr(compiled, "build", copied)
    return folders


def keep(
    key: str,
    root: Path,
    content: bytes = b"content",
    *,
    name: str = "file",
    sampled: tuple[str, ...] = (),
    verify: bool = False,
):
    """(what is read, whether it was there)"""

    def make(folder: Path) -> dict[str, str]:
        (folder / name).write_bytes(content)
        return {"network": f"net {key[-1]}", "target": "native"}

    return kept(
        key,
        root,
        "model",
        make,
        lambda folder, _: (folder / name).read_bytes(),
        sampled=sampled,
        verify=verify,
    )


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


# -- damage --------------------------------------------------------------------------------------------------


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path: Path, size: float) -> None:
    os.truncate(path, int(path.stat().st_size * size) if size >= 0 else path.stat().st_size + int(size))


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_link(path: Path) -> None:
    """A link to the very same bytes."""
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


DAMAGES: dict[str, Damage] = {
    "empty": lambda path: cut(path, 0.0),
    "half": lambda path: cut(path, 0.5),
    "a byte less": lambda path: cut(path, -1),
    "a byte more": grow,
    "first bit": lambda path: flip(path, 0),
    "a bit in the middle": lambda path: flip(path, path.stat().st_size // 2),
    "last bit": lambda path: flip(path, -1),
    "absent": Path.unlink,
    "folder": become_folder,
    "link": become_link,
    "pipe": become_pipe,
    "not executable, or executable": lambda path: path.chmod(path.stat().st_mode ^ stat.S_IXUSR),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_whatever_happens_to_a_file_of_a_compiled_model_it_runs_and_is_whole_again(
    kind: str, compiled_folders: list, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The models that were opened before stay alive: a process may hold what was damaged."""
    model = doubling(tmp_path / "m.onnx")
    alive = [one_shape(model)]
    ends = {".so", ".bin", ".json"}
    assert {path.suffix for path in alive[0].folder.iterdir()} == ends
    for end in sorted(ends):
        (victim,) = alive[-1].folder.glob(f"*{end}")
        if end == ".json" and kind.startswith("not exec"):
            continue
        DAMAGES[kind](victim)
        with pytest.raises(Damaged):
            whole(alive[-1].folder)
        capsys.readouterr()
        alive.append(one_shape(model))
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"note: {alive[0].folder}: {victim.name}: ")
        assert said.endswith("it is made again")
        assert np.array_equal(alive[-1].run({"x": X})["y"], 2 * X)
        whole(alive[-1].folder, verify=True)
        assert not [name for name in names(root) if name not in (alive[0].folder.name, "elsewhere")]
    assert len(compiled_folders) == len(alive)
    lfopt.compile(model)
    assert len(compiled_folders) == len(alive)


def rewritten(change: Callable[[dict], object]) -> Damage:
    """entry.json with something else in it, but a digest that says that nothing was changed."""

    def damage(path: Path) -> None:
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    return damage


ENTRIES: dict[str, Damage] = {
    "parent": rewritten(lambda data: data["files"][0].update(name="../../x")),
    "absolute": rewritten(lambda data: data["files"][0].update(name="/etc/passwd")),
    "dots": rewritten(lambda data: data["files"][0].update(name="..")),
    "itself": rewritten(lambda data: data["files"][0].update(name="entry.json")),
    "null": rewritten(lambda data: data["files"][0].update(name="a\0b")),
    "twice": rewritten(lambda data: data["files"].append(data["files"][0])),
    "negative": rewritten(lambda data: data["files"][0].update(size=-1)),
    "true": rewritten(lambda data: data["files"][0].update(size=True)),
    "huge": rewritten(lambda data: data["files"][0].update(size=10**400)),
    "digest": rewritten(lambda data: data["files"][0].update(sha256="g" * 64)),
    "no files": rewritten(lambda data: data.update(files=[])),
    "further field": rewritten(lambda data: data.update(more=1)),
    "field": rewritten(lambda data: data.pop("facts")),
    "other fact": rewritten(lambda data: data["facts"].update(library="../x.so")),
    "list": lambda path: path.write_text("[]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "long number": lambda path: path.write_text("1" * 10_000),
    "not text": lambda path: path.write_bytes(b"\xff\xfe"),
    "surrogate": lambda path: path.write_text('{"kind": "\\ud800"}'),
    "large": lambda path: path.write_bytes(b" " * (3 << 20)),
    "garbage": lambda path: path.write_bytes(random.Random(0).randbytes(1000)),
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_whatever_entry_json_says_only_what_was_written_is_believed(kind: str, root: Path) -> None:
    keep(KEYS[0], root)
    ENTRIES[kind](root / KEYS[0] / "entry.json")
    with pytest.raises(Damaged, match=r"entry\.json: not what was written"):
        whole(root / KEYS[0])
    assert keep(KEYS[0], root) == (b"content", False)
    assert keep(KEYS[0], root) == (b"content", True)


def test_every_byte_of_an_entry_counts(root: Path) -> None:
    keep(KEYS[0], root, bytes(range(40)))
    for path in sorted((root / KEYS[0]).iterdir()):
        for at in range(0, path.stat().st_size, 3):
            flip(path, at)
            with pytest.raises(Damaged):
                whole(root / KEYS[0])
            flip(path, at)
    whole(root / KEYS[0])


def test_a_folder_that_is_a_file_or_a_link_is_replaced_and_what_it_leads_to_stays(
    root: Path, tmp_path: Path
) -> None:
    keep(KEYS[0], root)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").write_text("x")
    shutil.copytree(root / KEYS[0], tmp_path / "copy")
    for target in (tmp_path / "mine", tmp_path / "copy", tmp_path / "gone"):
        shutil.rmtree(root / KEYS[0])
        (root / KEYS[0]).symlink_to(target)
        assert keep(KEYS[0], root) == (b"content", False)
    shutil.rmtree(root / KEYS[0])
    (root / KEYS[0]).write_text("a file")
    assert keep(KEYS[0], root) == (b"content", False)
    assert names(tmp_path / "mine") == ["kept"]
    assert names(tmp_path / "copy") == ["entry.json", "file"]


def test_of_large_weights_samples_are_read_and_with_verify_everything(root: Path) -> None:
    content = random.Random(0).randbytes(3 << 20)
    keep(KEYS[0], root, content, sampled=("file",))
    file = root / KEYS[0] / "file"
    for at in (0, -1, len(content) // 65 * 3):
        flip(file, at)
        assert keep(KEYS[0], root, content, sampled=("file",)) == (content, False)
    flip(file, 5000)  # between the first two samples
    assert keep(KEYS[0], root, content, sampled=("file",))[1]
    assert keep(KEYS[0], root, content, sampled=("file",), verify=True) == (content, False)
    assert keep(KEYS[0], root, content, sampled=("file",), verify=True) == (content, True)


def test_weights_that_the_code_itself_refuses_are_made_again_once(
    compiled_folders: list,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cache, "BLOCK", 0)  # samples that see nothing
    model = doubling(tmp_path / "m.onnx")
    flip(one_shape(model).folder / "weights.bin")
    assert np.array_equal(lfopt.compile(model).run([X])["y"], 2 * X)
    assert "not the weights of twice; it is made again" in capsys.readouterr().err
    flip(one_shape(model).folder / "weights.bin")
    assert np.array_equal(lfopt.compile(model, verify=True).run([X])["y"], 2 * X)
    assert "weights.bin: found other bytes than were written; it is made again" in capsys.readouterr().err
    assert len(compiled_folders) == 3


def test_what_cannot_be_opened_when_it_is_new_is_an_error_and_no_loop(root: Path) -> None:
    def refuse(folder: Path, _: object) -> None:
        raise InvalidConfig("never")

    makes: list[Path] = []

    def make(folder: Path) -> dict[str, str]:
        makes.append(folder)
        return {}

    for count in (1, 2):
        with pytest.raises(InvalidConfig, match="never"):
            kept(KEYS[0], root, "model", make, refuse)
        assert len(makes) == count


def test_folders_are_for_this_user_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        keeper(root / "rtl")(KEYS[0], lambda folder: {})
        for folder in (root.parent, root, root / "rtl", root / "rtl" / KEYS[0]):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        root.chmod(0o755)  # as it was made once
        keep(KEYS[0], root)
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def writable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IWGRP)


def foreign(path: Path) -> None:
    """Give a file or folder to another user."""
    os.chown(path, 65534, -1)


@pytest.mark.parametrize("part", [".", "entry.json", "file"])
@pytest.mark.parametrize("given", [writable, foreign])
def test_what_another_user_owns_or_may_write_is_made_again_with_one_line(
    given: Callable[[Path], None], part: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if given is foreign and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    keep(KEYS[0], root)
    given(root / KEYS[0] / part)
    assert keep(KEYS[0], root) == (b"content", False)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search("other users may write it|belongs to another user", line)
    assert line.endswith("it is made again")
    assert keep(KEYS[0], root) == (b"content", True)


def test_a_cache_of_another_user_is_not_used_at_all(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(KEYS[0], root)
    monkeypatch.setattr(cache, "own_folder", lambda folder: None)
    stat_of = Path.stat

    def of_a_stranger(path: Path, **how: bool) -> os.stat_result:
        status = stat_of(path, **how)
        return os.stat_result((*status[:4], 65534, *status[5:])) if path == root else status

    monkeypatch.setattr(Path, "stat", of_a_stranger)
    assert [keep(KEYS[0], root, b"anew") for _ in range(2)] == [(b"anew", False), (b"anew", True)]
    (line,) = capsys.readouterr().err.splitlines()
    assert "belongs to another user (65534): nothing in it is used" in line


def test_entries_are_for_this_user_whatever_the_umask_is(root: Path) -> None:
    before = os.umask(0)
    try:
        keep(KEYS[0], root)
    finally:
        os.umask(before)
    assert keep(KEYS[0], root) == (b"content", True)


# -- names ---------------------------------------------------------------------------------------------------


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, wanted in {
        "/else": Path("/else/lfopt"),
        "": tmp_path / ".cache" / "lfopt",
        "relative": tmp_path / ".cache" / "lfopt",
    }.items():
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert cache_folder() == wanted


def test_a_key_follows_every_value(tmp_path: Path) -> None:
    graphs = [load(doubling(tmp_path / "m.onnx", factor)) for factor in (2, 2, 3)]
    keys = [key_of(graph, 1) for graph in graphs]
    assert keys[0] == keys[1] != keys[2]
    assert key_of(graphs[0], 2) != keys[0]


# -- several runs, and those that are killed -----------------------------------------------------------------


def _slow(root: Path, start, number: int, results) -> None:
    def make(folder: Path) -> dict[str, str]:
        (folder / "one").write_text(str(number))
        time.sleep(0.05)
        (folder / "two").write_text(str(number))
        return {}

    start.wait()
    results.put(
        kept(
            KEYS[0],
            root,
            "model",
            make,
            lambda folder, _: ((folder / "one").read_text(), (folder / "two").read_text()),
        )
    )


@pytest.mark.parametrize("damaged", [False, True])
def test_processes_that_want_the_same_at_once_all_use_what_one_of_them_makes(
    damaged: bool, root: Path
) -> None:
    if damaged:
        keep(KEYS[0], root)
        flip(root / KEYS[0] / "file")
    start, results = FORK.Barrier(4), FORK.Queue()
    processes = [FORK.Process(target=_slow, args=(root, start, number, results)) for number in range(4)]
    for process in processes:
        process.start()
    entries = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert len({pair for pair, _ in entries}) == 1
    assert sorted(there for _, there in entries) == [False, True, True, True]
    assert names(root) == [KEYS[0]]


@pytest.fixture
def making(root: Path) -> Iterator[SimpleNamespace]:
    """A run that makes something and does not come to an end."""
    (started, starts), (waits, go_on) = FORK.Pipe(duplex=False), FORK.Pipe(duplex=False)

    def run() -> None:
        def make(folder: Path) -> dict[str, str]:
            (folder / "half").write_text("x")
            starts.send(1)
            waits.poll(30)
            return {}

        kept(KEYS[1], root, "model", make, lambda folder, _: folder)

    process = FORK.Process(target=run)
    process.start()
    assert started.poll(30)
    yield SimpleNamespace(process=process, go_on=lambda: go_on.send(1))
    process.kill()
    process.join(30)


def test_what_a_killed_run_has_left_is_removed_by_the_next_and_what_a_living_one_makes_is_not(
    making, root: Path, here
) -> None:
    keep(KEYS[0], root)
    (root / f"{KEYS[2]}.abcdefgh.part").mkdir()  # of a run whose lock is gone too
    (root / f"{KEYS[2]}.abcdefgh.part" / "file").write_text("x")
    assert keep(KEYS[0], root)[1]
    assert [name[:32] for name in names(root)] == [KEYS[0], KEYS[1], KEYS[1]]
    done = here("cache", "clear")
    assert done.returncode == 0
    assert [name[:32] for name in names(root)] == [KEYS[1], KEYS[1]]
    os.kill(making.process.pid, signal.SIGKILL)
    making.process.join()
    assert len(names(root)) == 2
    assert not keep(KEYS[0], root)[1]
    assert names(root) == [KEYS[0]]


def test_what_a_run_makes_while_others_clean_is_whole(making, root: Path, here) -> None:
    for command in ("list", "prune", "clear"):
        assert here("cache", command).returncode == 0
    making.go_on()
    making.process.join()
    assert names(root) == [KEYS[1]]
    whole(root / KEYS[1])


def test_whatever_stops_a_run_nothing_is_left(root: Path) -> None:
    def make(folder: Path) -> dict[str, str]:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(KEYS[0], root, "model", make, lambda folder, _: folder)
    assert names(root) == []


# -- full disks ----------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_at_any_moment_is_one_line_that_names_a_file(
    compiled_folders: list, here, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", X)
    arguments = ("run", doubling(tmp_path / "m.onnx"), "--input", tmp_path / "x.npy")
    left, sync = [0], os.fsync

    def full(file: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    for calls in range(4):  # that succeed: the library, the weights, entry.json and its folder
        left[0] = calls
        line = refused(here(*arguments))
        assert line.startswith(f"lfopt: {root}/")
        assert line.endswith(": cannot be written: No space left on device")
        assert names(root) == []
    left[0] = 5
    assert "compiled in" in here(*arguments).stdout
    assert left == [0]
    assert here(*arguments).stdout.count("found compiled") == 1


def test_files_that_may_not_grow_are_named_and_what_was_there_stays(root: Path, tmp_path: Path) -> None:
    """As on a full disk, by a limit of the system: writes end halfway."""
    write_bytes(tmp_path / "file", b"before")
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(CannotWrite, match=rf"{KEYS[0]}.*part: cannot be written: File too large"):
            keep(KEYS[0], root, bytes(10_000))
        with pytest.raises(CannotWrite, match=r"/file: cannot be written: File too large$"):
            write_bytes(tmp_path / "file", bytes(10_000))
        with pytest.raises(CannotWrite, match=r"model.c: cannot be written: File too large"):
            write_source(replace(twice(), files={"model.c": bytes(10_000)}), tmp_path / "c")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(root) == []
    assert (tmp_path / "file").read_bytes() == b"before"
    assert "file" in names(tmp_path)
    assert not list(tmp_path.glob("*.part"))


def test_a_place_that_cannot_be_a_cache_is_named(
    root: Path, here, compiled_folders: list, tmp_path: Path
) -> None:
    root.parent.write_text("a file")
    with pytest.raises(CannotWrite, match="cache: cannot be written: File exists"):
        lfopt.compile(doubling(tmp_path / "m.onnx"))
    assert here("cache", "list").stdout == f"nothing in {root}\n"


# -- lfopt cache ---------------------------------------------------------------------------------------------


@pytest.fixture
def filled(root: Path) -> Path:
    """A cache of three models of 1 MiB, not used for 1, 10 and 40 days, and of other entries.

    The others: a damaged one, one left over, an accelerator, a database, and what is nobody's.
    """
    for k, days in ((0, 1), (1, 10), (2, 40), (3, 0)):
        keep(KEYS[k], root, bytes(1 << 20))
        then = time.time() - 86400 * days - 60
        os.utime(root / KEYS[k] / "entry.json", (then, then))
    cut(root / KEYS[3] / "file", 0.5)
    keeper(root / "rtl")(
        KEYS[4],
        lambda folder: {"network": "lf_sim", "target": "Lanes 16, BufferBytes 262144, DramBeats 4194304"},
    )
    (root / f"{KEYS[5]}.abcdefgh.part").mkdir()
    Profiles(root / "profiles.sqlite", "here").add([(("code", 1), 0.5)])
    (root / "notes.txt").write_text("mine")
    (root / "mine").mkdir()
    (root.parent / "outside").mkdir()
    (root.parent / "outside" / "file").write_text("mine")
    (root / KEYS[6]).symlink_to(root.parent / "outside")
    (root / f"{KEYS[7]}.abcdefgh.part").symlink_to(root.parent / "outside")
    return root


MINE = sorted([KEYS[6], "mine", "notes.txt", "rtl"])


@pytest.mark.parametrize("width", [80, 120])
def test_list_says_what_there_is(filled: Path, here, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", width)
    kept(
        KEYS[8],
        filled,
        "model",
        lambda folder: {"network": "[red]\x1b[31mn\nm[/]" * 20, "target": "native"},
        lambda folder, _: 0,
    )
    lines = here("cache", "list").stdout.splitlines()
    table = [line for line in lines if line.startswith(("model", "accelerator", "times"))]
    assert all(len(line) <= width for line in table)
    whole_ones = [("accelerator", "whole"), *[("model", "whole")] * 4, ("times", "whole")]
    assert sorted((line.split()[0], line.split()[-1]) for line in table) == sorted(
        [*whole_ones, ("model", "damaged")]
    )
    (old,) = [line for line in table if "net 2" in line]
    assert old.split() == ["model", "net", "2", "native", "1.00", "40", "d", "ago", "whole"]
    assert any("[red]" in line for line in table)
    assert "\x1b" not in "".join(lines)
    assert f"{KEYS[3]}: file: found 524,288 B in place of 1,048,576 B" in lines
    assert lines[-1].startswith(f"7 in {filled}, ")


def test_prune_removes_what_is_damaged_or_left_over_and_nothing_else_unless_asked(filled: Path, here) -> None:
    assert f"{KEYS[5]}.abcdefgh.part: left by a run that was killed" in here("cache", "list").stdout
    done = here("cache", "prune")
    assert done.returncode == 0
    gone = {line.split(",")[0] for line in done.stdout.splitlines()[:-1]}
    assert gone == {f"removed leftover {KEYS[5]}.abcdefgh.part", f"removed model {KEYS[3]}"}
    assert [name for name in names(filled) if name not in MINE] == [
        *KEYS[:3],
        f"{KEYS[7]}.abcdefgh.part",
        "profiles.sqlite",
    ]
    here("cache", "prune", "--older-than", "30d")
    assert {item.path.name for item in contents()} == {*KEYS[:2], KEYS[4]}
    assert keep(KEYS[1], filled)[1], "which is then the last that was used"
    here("cache", "prune", "--max-size", "1.5MiB")
    assert {item.path.name for item in contents()} == {KEYS[1], KEYS[4]}
    assert databases()


def test_what_was_not_used_for_longest_goes_where_models_are_too_large(filled: Path) -> None:
    def left() -> set[str]:
        return {item.path.name for item in contents() if item.kind == "model"}

    trim(filled, 15 << 18, KEYS[0])  # 3.75 MiB; the damaged one is of half a MiB, and was used last
    assert left() == {*KEYS[:4]}
    trim(filled, 11 << 18, KEYS[0])
    assert left() == {KEYS[0], KEYS[1], KEYS[3]}
    with locked(filled, KEYS[1]):  # somebody makes it
        trim(filled, 1, KEYS[0])
    assert left() == {KEYS[0], KEYS[1]}
    assert {*MINE} <= {*names(filled)}


def test_a_model_that_is_compiled_puts_out_others_and_stays(
    compiled_folders: list[Path], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LFOPT_CACHE_SIZE", "1B")
    first, second = (one_shape(doubling(tmp_path / f"{k}.onnx", k)) for k in (2.0, 3.0))
    assert [item.path.name for item in contents()] == [second.folder.name]
    assert all(np.array_equal(model.run({"x": X})["y"], 2 * X) for model in (first, second)), (
        "the first runs on"
    )
    monkeypatch.setenv("LFOPT_CACHE_SIZE", "much")
    with pytest.raises(InvalidConfig, match=r"\$LFOPT_CACHE_SIZE: found 'much'; accepted: a size such as"):
        lfopt.compile(doubling(tmp_path / "2.0.onnx"))


def test_clear_removes_all_that_the_cache_has_made_and_nothing_else(filled: Path, here) -> None:
    (filled / f"{KEYS[9]}.lock").touch()
    done = here("cache", "clear")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"left: nothing in {filled}"
    assert [name for name in names(filled) if not name.startswith(KEYS[7])] == MINE
    assert names(filled / "rtl") == []
    assert names(filled.parent / "outside") == ["file"]
    assert here("cache", "list").stdout == f"nothing in {filled}\n"


def test_ages_and_sizes_that_nobody_knows_are_refused(here) -> None:
    for age in ("30", "d", "-1d", "1y", "nan d"):
        assert f"--older-than: found '{age}'; accepted: an age such as" in refused(
            here("cache", "prune", f"--older-than={age}")
        )
    assert "--max-size: found 'much'" in refused(here("cache", "prune", "--max-size", "much"))
