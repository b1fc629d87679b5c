"""Arm's Vela beside the accelerator in RTL: what its compiler reports for the same int8 networks.

`lfopt quantize` makes a network, which is written as TFLite (`benchmarks/tflite.py`) and compiled for every
accelerator in every system: with 256 KiB of dedicated SRAM in front of DRAM; with as much as all memories of
our accelerator; and with maps in SRAM as a whole (Shared_Sram, Size), however much they need. Systems and
memory modes are those of Arm's vela.ini; it has none with DRAM for U55, so that one gets those of U65, at 256
KiB. Bytes are those of Vela's summary; what is read of the image comes from its debug database. Ours were
counted in RTL (docs/results/rtl.md). An operator that is left to the CPU stops the benchmark. Where LiteRT is
installed, it executes every operator alone, on the reference's maps.

    pip install 'lfopt[vela]' ai-edge-litert
"""

from __future__ import annotations

import argparse
import configparser
import csv
import io
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import ROOT, Sheet, add_option
from benchmarks.tflite import NHWC, flatbuffer
from lfopt.app import screen
from lfopt.app.commands.quantize import quantize
from lfopt.frontend import load
from lfopt.ir import Graph
from lfopt.ops.reference import reference

NETWORKS = ("mobilenet_v2", "resnet18")
SIZES = {"u55": (32, 64, 128, 256), "u65": (256, 512), "u85": (128, 256, 512, 1024, 2048)}  # MACs a cycle
ACCELERATORS = tuple(f"ethos-{family}-{macs}" for family, sizes in SIZES.items() for macs in sizes)
CONFIG = "Arm/vela.ini"
DEDICATED, SHARED = "Dedicated_Sram", "Shared_Sram"
BUFFER_KIB, BESIDE_KIB = 256, 124  # of our accelerator: docs/accelerator.md
OPTIMISE = ("Performance", "Size")
PLANS = ("all", "auto")  # of ours
OFF_CHIP = {"dram": "Dram", "off_chip_flash": "OffChipFlash"}  # as the summary and as the database call them

Counted = dict[tuple[str, str], tuple[int, int]]  # bytes and cycles, by network and plan


@dataclass(frozen=True)
class Setting:
    """What Vela compiles for."""

    accelerator: str
    system: str
    mode: str
    sram_kib: int
    optimise: str

    @property
    def arguments(self) -> list[str]:
        """For the command line."""
        where = [
            "--config",
            CONFIG,
            "--system-config",
            self.system,
            "--memory-mode",
            self.mode,
            "--arena-cache-size",
            str(self.sram_kib << 10),
        ]
        return ["--accelerator-config", self.accelerator, *where, "--optimise", self.optimise]


@dataclass(frozen=True)
class VelaReport:
    """What Vela says of a network: bytes are those of memories off the chip."""

    setting: Setting
    dram_bytes: int
    map_bytes: int
    image_bytes: int  # of them: reads of the network's input
    image_efficiency: float  # of the bytes of these reads, what is used; 0: not read
    latency_cycles: int
    sram_bytes: int
    weight_ratio: float  # compressed weights to weights

    @property
    def weight_bytes(self) -> int:
        """Weights, scales and biases."""
        return self.dram_bytes - self.map_bytes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help=f"of the zoo (default: {', '.join(NETWORKS)})")
    parser.add_argument(
        "--accelerators",
        nargs="+",
        choices=ACCELERATORS,
        default=ACCELERATORS,
        metavar="NAME",
        help="default: all",
    )
    parser.add_argument("--jobs", type=int, default=1, help="compilations at once (default %(default)s)")
    add_option(parser)
    options = parser.parse_args()
    if find_spec("ethosu") is None:
        raise SystemExit("Vela is not installed; accepted: pip install 'lfopt[vela]'")
    sheet = Sheet("vela", options.results)
    screen.out.quiet = screen.err.quiet = True  # what quantize says
    ours = counted((ROOT / "docs" / "results" / "rtl.md").read_text(encoding="utf-8"))
    whole: dict[str, list[VelaReport]] = {}
    for name in options.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            quantized, path = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.tflite"
            quantize(f"zoo:{name}", out_file=quantized, samples=2, measure=0)
            graph = load(quantized)
            path.write_bytes(flatbuffer(graph))
            agreement = _agreement(graph, Path(folder))
            with ThreadPoolExecutor(options.jobs) as pool:
                reports = list(
                    pool.map(
                        lambda setting, path=path, graph=graph: compiled(path, setting, graph),
                        settings(options.accelerators),
                    )
                )
        whole[name] = [one for one in reports if one.setting.mode == SHARED]
        for kib in (BUFFER_KIB, BUFFER_KIB + BESIDE_KIB):
            if members := [
                one for one in reports if one.setting.mode == DEDICATED and one.setting.sram_kib == kib
            ]:
                sheet.keep(_table(f"{name}, {kib} KiB of SRAM", name, graph, members, ours))
                sheet.keep(_sentence(name, graph, members, ours))
        if agreement:
            sheet.keep(agreement)
    sheet.keep(_shared(whole))
    sheet.keep(_memories())
    sheet.keep(f"Vela {version('ethos-u-vela')} with its {CONFIG}; no operator is left to the CPU.")
    sheet.write()


# -- what Vela is told, and what it says ---------------------------------------------------------------------


def settings(accelerators: Sequence[str]) -> Iterator[Setting]:
    """Every accelerator in each of Arm's systems for it; U55 at 256 KiB in those of U65 with DRAM."""
    for accelerator in accelerators:
        own = _systems(accelerator.split("-")[1])
        drams = [name for name, memory in own.items() if memory == "Dram"]
        lent = [] if drams else [name for name, memory in _systems("u65").items() if memory == "Dram"]
        rows = (
            (DEDICATED, BUFFER_KIB, drams or lent, OPTIMISE),
            (DEDICATED, BUFFER_KIB + BESIDE_KIB, drams, OPTIMISE),
            (SHARED, BUFFER_KIB, own, OPTIMISE[1:]),  # Size: as little SRAM as holds the maps
        )
        for mode, kib, names, strategies in rows:
            yield from (
                Setting(accelerator, name, mode, kib, optimise) for name in names for optimise in strategies
            )


def _systems(family: str) -> dict[str, str]:
    """Systems of a family, and the memory at their second port."""
    places = find_spec("ethosu")
    assert places is not None and places.submodule_search_locations
    parser = configparser.ConfigParser()
    parser.read(Path(next(iter(places.submodule_search_locations))) / "config_files" / CONFIG)
    names = [
        name.removeprefix("System_Config.")
        for name in parser.sections()
        if name.startswith(f"System_Config.Ethos_{family.upper()}_")
    ]
    return {name: parser[f"System_Config.{name}"]["axi1_port"] for name in names}


def compiled(path: Path, setting: Setting, graph: Graph) -> VelaReport:
    """What Vela reports of a network that it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "ethosu.vela",
            *setting.arguments,
            "--enable-debug-db",
            "--output-dir",
            folder,
            str(path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        on_cpu = re.search(r"^CPU operators = (\d+)", done.stdout, re.MULTILINE)
        if done.returncode or on_cpu is None or int(on_cpu[1]):
            raise SystemExit(f"{setting}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        summary = next(Path(folder).glob("*_summary_*.csv")).read_text()
        database = next(Path(folder).glob("*_debug.xml")).read_text()
    vela_report = report(setting, summary, database, graph.shape(graph.inputs[0]))
    print(
        f"{graph.name:<14}{' '.join(setting.arguments[1::2]):<100}{vela_report.dram_bytes:>12,}", flush=True
    )
    return vela_report


def report(setting: Setting, summary: str, database: str, image: tuple[int, ...]) -> VelaReport:
    """Vela's summary (CSV) and debug database (XML with CSV in it); `image`: NCHW shape of the input."""
    row = next(csv.DictReader(io.StringIO(summary)))

    def total(*names: str) -> int:
        return sum(int(float(row[f"{memory}_{name}_bytes"])) for memory in OFF_CHIP for name in names)

    reads = [_image_read(operation, image) for operation in _operations(database)]
    read = sum(moved for moved, _ in reads)
    return VelaReport(
        setting,
        dram_bytes=total("total"),
        map_bytes=total("feature_map_read", "feature_map_write"),
        image_bytes=read,
        image_efficiency=sum(moved * share for moved, share in reads) / read if read else 0.0,
        latency_cycles=int(float(row["cycles_total"])),
        sram_bytes=int(float(row["sram_memory_used"]) * 1024),
        weight_ratio=float(row["total_npu_encoded_weights"]) / float(row["total_original_weights"]),
    )


def _operations(database: str) -> Iterator[dict[str, str]]:
    text = next(
        table.text for table in ET.fromstring(database).iter("table") if table.get("name") == "perf_debug"
    )
    yield from csv.DictReader(io.StringIO((text or "").strip()))


def _image_read(operation: dict[str, str], image: tuple[int, ...]) -> tuple[int, float]:
    """Bytes that an operation reads of the image off the chip, and what share of them is used."""
    if any(operation[f"ifm_shape_{axis}"] != str(size) for axis, size in zip("nchw", image, strict=True)):
        return 0, 0.0
    memory = next((name for name in OFF_CHIP.values() if name == operation["ifm_memory"]), None)
    return (
        (int(operation[f"{memory}FeatureMap_read"] or 0), float(operation[f"{memory}_read_efficiency"]))
        if memory
        else (0, 0.0)
    )


# -- ours ----------------------------------------------------------------------------------------------------


def counted(page: str) -> Counted:
    """Bytes and cycles by network and plan, of the table that bench_rtl.py wrote.

    >>> head = "| network | plan | DRAM bytes | cycles |\\n|---|---|---:|---:|\\n"
    >>> counted(head + "| a | all | 1,024 | 2,000 |\\n")
    {('a', 'all'): (1024, 2000)}
    """
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in page.splitlines()
        if line.startswith("|")
    ]
    heads = next((row for row in rows if {"network", "plan", "DRAM bytes", "cycles"} <= {*row}), None)
    if heads is None:
        raise SystemExit("rtl.md has no table of bytes; accepted: one that make bench-rtl wrote")
    named = [dict(zip(heads, row, strict=False)) for row in rows[rows.index(heads) + 2 :]]
    return {
        (row["network"], row["plan"]): (_whole(row["DRAM bytes"]), _whole(row["cycles"])) for row in named
    }


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


# -- the page ------------------------------------------------------------------------------------------------


def _table(title: str, name: str, graph: Graph, reports: list[VelaReport], ours: Counted) -> Table:
    """The least of the systems for each accelerator and optimisation, under what we count."""
    table = Table(title=title)
    for head in ("accelerator", "optimise", "system of the least"):
        table.add_column(head)
    for head in (
        "DRAM bytes",
        "x auto",
        "most",
        "maps",
        "weights",
        "image read",
        "image once",
        "x auto",
        "cycles",
    ):
        table.add_column(head, justify="right")
    auto, _ = ours[name, "auto"]
    for plan in PLANS:
        moved, cycles = ours[name, plan]
        table.add_row(
            "ours, counted in RTL", plan, "", f"{moved:,}", f"{moved / auto:.2f}", *[""] * 6, f"{cycles:,}"
        )
    for accelerator in dict.fromkeys(one.setting.accelerator for one in reports):
        for optimise in OPTIMISE:
            members = [
                one
                for one in reports
                if (one.setting.accelerator, one.setting.optimise) == (accelerator, optimise)
            ]
            least, most = min(members, key=_bytes), max(members, key=_bytes)
            once = _image_once(least, graph)
            left = [
                accelerator,
                optimise,
                least.setting.system,
                f"{least.dram_bytes:,}",
                f"{least.dram_bytes / auto:.2f}",
                f"{most.dram_bytes:,}",
            ]
            parts = [
                f"{least.map_bytes:,}",
                f"{least.weight_bytes:,}",
                f"{least.image_bytes / _image_bytes(graph):.1f}",
            ]
            table.add_row(*left, *parts, f"{once:,}", f"{once / auto:.2f}", f"{least.latency_cycles:,}")
    return table


def _sentence(name: str, graph: Graph, reports: list[VelaReport], ours: Counted) -> str:
    """The least of all; the same with the image counted once; how often it is read."""
    image, (auto, _), (scheme_all, _) = _image_bytes(graph), ours[name, "auto"], ours[name, "all"]
    least, once = min(reports, key=_bytes), min(reports, key=lambda one: _image_once(one, graph))
    reads, ratios = [one.image_bytes / image for one in reports], [one.weight_ratio for one in reports]
    most = max(reports, key=lambda one: one.image_bytes)

    def times(moved: int) -> str:
        return f"{moved:,} bytes, {moved / auto:.2f} times auto, {moved / scheme_all:.2f} times all"

    return (
        f"Least: {times(least.dram_bytes)} ({_label(least)}). Least with the image of {image:,} bytes "
        f"counted once: {times(_image_once(once, graph))} ({_label(once)}). The image is read "
        f"{min(reads):.1f} to {max(reads):.1f} times; at most {most.image_bytes:,} bytes of "
        f"{most.dram_bytes:,} ({_label(most)}), of which Vela takes {most.image_efficiency:.1%} for used. "
        f"Its compressed weights are {min(ratios):.1%} to {max(ratios):.1%} of the weights."
    )


def _shared(whole: dict[str, list[VelaReport]]) -> Table:
    """SRAM needed where it holds whole maps, and bytes from flash or DRAM: the least over the systems."""
    table = Table(
        "accelerator",
        title="Maps, image and result in SRAM as a whole (Shared_Sram, Size), weights in flash or DRAM",
    )
    for name in whole:
        for head in (f"{name}: SRAM, KiB", "flash or DRAM bytes", "cycles"):
            table.add_column(head, justify="right")
    for accelerator in dict.fromkeys(
        one.setting.accelerator for reports in whole.values() for one in reports
    ):
        cells: list[str] = []
        for reports in whole.values():
            least = min((one for one in reports if one.setting.accelerator == accelerator), key=_bytes)
            cells += [f"{least.sram_bytes / 1024:.1f}", f"{least.dram_bytes:,}", f"{least.latency_cycles:,}"]
        table.add_row(accelerator, *cells)
    return table


def _memories() -> str:
    """What lies in an accelerator beside the SRAM, by Vela's own tables (which have U55 and U65)."""
    features = import_module("ethosu.vela.architecture_features")
    configurations = features.ArchitectureFeatures.accelerator_configs
    rows = {
        kind.name.replace("_", "-").lower(): (config.shram_banks, config.cores)
        for kind, config in configurations.items()
    }
    known = [(name, *rows[name]) for name in ACCELERATORS if name in rows]
    listed = ", ".join(
        f"{name} {banks}" + (f" ({cores} cores)" if cores > 1 else "") for name, banks, cores in known
    )
    return f"Banks of 1 KiB of internal memory (SHRAM) in Vela's architecture_features.py: {listed}."


def _bytes(vela_report: VelaReport) -> int:
    return vela_report.dram_bytes


def _image_bytes(graph: Graph) -> int:
    return graph.tensors[graph.inputs[0]].elements


def _image_once(vela_report: VelaReport, graph: Graph) -> int:
    return vela_report.dram_bytes - max(vela_report.image_bytes - _image_bytes(graph), 0)


def _label(vela_report: VelaReport) -> str:
    return f"{vela_report.setting.accelerator}, {vela_report.setting.optimise}, {vela_report.setting.system}"


# -- is it the same network? ---------------------------------------------------------------------------------


def _agreement(graph: Graph, folder: Path) -> str:
    """What LiteRT makes of every operator alone, beside the reference; nothing where it is not installed."""
    if find_spec("ai_edge_litert") is None:
        return ""
    litert = import_module("ai_edge_litert.interpreter")
    image = np.random.default_rng(0).integers(-128, 128, graph.shape(graph.inputs[0])).astype(np.int8)
    names = tuple(operator.outputs[0] for operator in graph.operators)
    maps = {graph.inputs[0]: image, **reference(replace(graph, outputs=names), {graph.inputs[0]: image})}
    worst = 0
    for k, operator in enumerate(graph.operators):
        read = tuple(name for name in operator.inputs if name in maps)
        alone = replace(graph, operators=(operator,), inputs=read, outputs=operator.outputs).without_unused()
        path = folder / f"{k}.tflite"
        path.write_bytes(flatbuffer(alone))
        interpreter = litert.Interpreter(str(path))
        interpreter.allocate_tensors()
        for place, name in zip(interpreter.get_input_details(), read, strict=True):
            interpreter.set_tensor(place["index"], _as_nhwc(maps[name]))
        interpreter.invoke()
        output = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        worst = max(worst, int(np.abs(output.astype(int) - _as_nhwc(maps[operator.outputs[0]])).max()))
    return (
        f"Every operator of the TFLite file alone, in LiteRT {version('ai-edge-litert')}: at most "
        f"{worst} of 255 from the reference."
    )


def _as_nhwc(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(NHWC)) if array.ndim == len(NHWC) else array


if __name__ == "__main__":
    main()
