"""`lfopt hw detect`: what /sys says of a CPU, as a hardware description that reads back."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
import pytest

import lfopt
from codegen.source import Unsupported
from lfopt.app import detect
from lfopt.app.config import load_hardware
from lfopt.ir import Hardware, InvalidConfig
from tests.app.conftest import one_shape, refused
from tests.app.test_backend import X, one_node

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
LEVELS = (
    ("1", "Data", "32K", "0-1"),
    ("1", "Instruction", "32K", "0-1"),
    ("2", "Unified", "1280K", "0-1"),
    ("3", "Unified", "32M", "0-15"),
)


def cpu(root: Path, *caches: tuple[str, str, str, str], siblings: str = "0") -> Path:
    """cpu0 as /sys has it. A file that would be empty is absent."""
    (root / "topology").mkdir(parents=True)
    (root / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
    for k, values in enumerate(caches):
        folder = root / "cache" / f"index{k}"
        folder.mkdir(parents=True)
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
            if value:
                (folder / name).write_text(f"{value}\n")
    return root


def info(
    folder: Path,
    text: str = 'processor\t: 0\nmodel name\t: Quick  CPU "9" @ 2.0GHz: new\nmodel name\t: another\n',
) -> Path:
    path = folder / "cpuinfo"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("size", "shared", "siblings", "buffer"),
    [
        ("1024K", "0", "0", 512 << 10),
        ("1280K", "0-1", "0-1", 640 << 10),  # two threads of one core
        ("2M", "0,8", "0,8", 1 << 20),
        ("2048K", "0-3", "0", 256 << 10),  # four cores
        ("4096K", "0-7", "0,1", 512 << 10),  # four cores of two threads
        ("512K", "", "", 256 << 10),  # nobody says who shares it
    ],
)
def test_a_group_may_fill_half_of_what_a_core_has_of_l2(
    tmp_path: Path, size: str, shared: str, siblings: str, buffer: int
) -> None:
    root = cpu(tmp_path / "cpu0", *LEVELS[:2], ("2", "Unified", size, shared), LEVELS[3], siblings=siblings)
    file = tmp_path / "cpu.yaml"
    file.write_text(detect.description(root, info(tmp_path)))
    assert load_hardware(file) == Hardware(buffer, element_bytes=4, name='Quick CPU "9" @ 2.0GHz: new')


def test_every_figure_says_where_it_comes_from(tmp_path: Path) -> None:
    root = cpu(tmp_path / "cpu0", *LEVELS[:2], ("2", "Unified", "2048K", "0-3"))
    text = detect.description(root, info(tmp_path))
    assert "buffer_bytes: 256KiB" in text
    assert f"half of a core's share of L2: 2 MiB, 4 cores share it ({root / 'cache' / 'index2'})" in text
    assert all("  # " in line for line in text.splitlines()[1:])


def test_a_cpu_without_a_name_is_called_by_its_architecture(tmp_path: Path) -> None:
    for path in (info(tmp_path, "processor : 0\nCPU part : 0xd0c\n"), tmp_path / "absent"):
        assert detect.model_name(path) == platform.machine()


@pytest.mark.parametrize(
    "caches",
    [
        (),
        LEVELS[:2],
        (("2", "Instruction", "1M", "0"),),
        (("2", "Unified", "", "0"),),
        (("2", "Unified", "much", "0"),),
    ],
)
def test_where_no_l2_is_known_it_says_so(
    here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: tuple
) -> None:
    root = cpu(tmp_path / "cpu0", *caches)
    with pytest.raises(InvalidConfig, match="cpu0/cache"):
        detect.description(root, info(tmp_path))
    monkeypatch.setattr("lfopt.app.commands.hw.description", lambda: detect.description(root))
    assert "cpu0/cache" in refused(here("hw", "detect", "-o", tmp_path / "cpu.yaml"))
    assert not (tmp_path / "cpu.yaml").exists()


@pytest.fixture
def written(here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A description as the command writes it; an empty cache of compiled models."""
    root, path = cpu(tmp_path / "cpu0", *LEVELS, siblings="0-1"), info(tmp_path)
    monkeypatch.setattr("lfopt.app.commands.hw.description", lambda: detect.description(root, path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    file = tmp_path / "cpu.yaml"
    done = here("hw", "detect", "-o", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert here("hw", "detect").stdout == file.read_text()
    assert "found a folder" in refused(here("hw", "detect", "-o", tmp_path))
    return file


def test_a_written_file_is_taken_where_chips_are(here, written: Path, tmp_path: Path) -> None:
    onnx.save(one_node("Relu"), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    by_file = one_shape(tmp_path / "m.onnx", hardware=written)
    assert by_file.folder == one_shape(tmp_path / "m.onnx", hardware=load_hardware(written)).folder
    done = here("run", tmp_path / "m.onnx", "--input", tmp_path / "x.npy", "--hardware", written, "--check")
    assert done.returncode == 0, done.stderr
    assert "found compiled" in done.stdout
    assert (
        "compiled in"
        in here(
            "run",
            tmp_path / "m.onnx",
            "--input",
            tmp_path / "x.npy",
            "--hardware",
            written,
            "--buffer",
            "64KiB",
        ).stdout
    )
    assert here("search", tmp_path / "m.onnx", "--hardware", written, "-o", tmp_path / "plan").returncode == 0


def test_a_chip_of_other_elements_is_refused_by_name(here, written: Path, tmp_path: Path) -> None:
    onnx.save(one_node("Relu"), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    refusal = refused(
        here("run", tmp_path / "m.onnx", "--input", tmp_path / "x.npy", "--hardware", "buffer_256k.yaml")
    )
    assert "hardware.element_bytes: found 2" in refusal
    written.write_text(written.read_text().replace("element_bytes: 4", "element_bytes: 2"))
    with pytest.raises(Unsupported, match="element_bytes: found 2"):
        lfopt.compile(tmp_path / "m.onnx", hardware=str(written))
