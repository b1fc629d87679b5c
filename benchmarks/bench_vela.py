"""Arm's Vela beside the accelerator in RTL: bytes off the chip for the same int8 networks.

`lfopt quantize` makes a network, which is written as TFLite (`benchmarks/tflite.py`) and compiled by both
cores of Vela (Regor and, for U55 and U65, the older one) for every accelerator in every system: with 256 KiB
of dedicated SRAM in front of DRAM; with as much as all memories of our accelerator; and, in the slowest
system with flash and with DRAM, with maps in SRAM as a whole (Shared_Sram, Size), however much they need.
Systems and memory modes are those of Arm's vela.ini; it has none with DRAM for U55, so that one gets one of
U65's, at 256 KiB. In the system where a core names the fewest bytes for an accelerator, it compiles once more
for Size; Regor also without double buffers for weights, and on U85 without chaining.

There are three counts: the bytes that the command stream names (`benchmarks/ethos_stream.py`), and the
estimates in the summaries of both cores. Ours were counted in RTL (docs/results/rtl.md). An operator that is
left to the CPU stops the benchmark, and so do multiply-accumulates of a stream that are not those of the
summary. Where LiteRT is installed, it executes every operator alone, on the reference's maps.

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
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ethos_stream import Named, count
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
PERFORMANCE, SIZE = "Performance", "Size"
REGOR, LEGACY = "Regor", "legacy"
FORCE_LEGACY = "--debug-force-legacy-core"
WITH_LEGACY = ("u55", "u65")  # families that the older core knows
BORROWED = ("Ethos_U65_High_End",)  # systems with DRAM, for U55
NO_BUFFERS, NO_CHAINS = "--disable-buffering", "--disable-chaining"
SWITCHES = {
    "u55": ((NO_BUFFERS,),),
    "u65": ((NO_BUFFERS,),),
    "u85": ((NO_BUFFERS,), (NO_CHAINS,), (NO_BUFFERS, NO_CHAINS)),
}
PLANS = ("all", "auto")  # of ours
OFF_CHIP = {"dram": "Dram", "off_chip_flash": "OffChipFlash"}  # as the summary and as the database call them
# Regions of a command stream
CONSTANTS, ARENA = 0, 1
MAPS_OFF_CHIP = {DEDICATED: (ARENA,), SHARED: ()}

Counted = dict[tuple[str, str], tuple[int, int]]  # bytes and cycles, by network and plan


@dataclass(frozen=True)
class Setting:
    """What Vela compiles for."""

    accelerator: str
    system: str
    mode: str
    sram_kib: int
    optimise: str
    core: str = REGOR
    switches: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Of the accelerator: u55, u65 or u85."""
        return self.accelerator.split("-")[1]

    @property
    def arguments(self) -> list[str]:
        """For the command line."""
        return [
            *("--accelerator-config", self.accelerator),
            *("--config", CONFIG),
            *("--system-config", self.system),
            *("--memory-mode", self.mode),
            *("--arena-cache-size", str(self.sram_kib << 10)),
            *("--optimise", self.optimise),
            *((FORCE_LEGACY,) if self.core == LEGACY else ()),
            *self.switches,
        ]

    def __str__(self) -> str:
        return ", ".join((self.accelerator, self.core, self.optimise, self.system, *self.switches))


@dataclass(frozen=True)
class VelaReport:
    """What Vela makes of a network: bytes are those of memories off the chip."""

    setting: Setting
    named_map_bytes: int  # in the command stream
    named_constant_bytes: int  # weights, scales and biases
    estimated_bytes: int
    image_bytes: int  # of the estimate: reads of the network's input; 0 where the core does not say
    latency_cycles: int
    sram_bytes: int
    weight_ratio: float  # compressed weights to weights

    @property
    def named_bytes(self) -> int:
        """Maps and constants that the command stream names."""
        return self.named_map_bytes + self.named_constant_bytes


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
    dedicated: dict[tuple[str, int], list[VelaReport]] = {}
    details: list[Table | str] = []
    for name in options.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            quantized, path = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.tflite"
            quantize(f"zoo:{name}", out_file=quantized, samples=2, measure=0)
            graph = load(quantized)
            path.write_bytes(flatbuffer(graph))
            agreement = _agreement(graph, Path(folder))
            with ThreadPoolExecutor(options.jobs) as pool:
                reports = _compiled_all(pool, path, graph, settings(options.accelerators))
                reports += _compiled_all(pool, path, graph, further(reports))
        whole[name] = [one for one in reports if one.setting.mode == SHARED]
        for kib in (BUFFER_KIB, BUFFER_KIB + BESIDE_KIB):
            if members := [
                one for one in reports if one.setting.mode == DEDICATED and one.setting.sram_kib == kib
            ]:
                dedicated[name, kib] = members
                details.append(_table(f"{name}, {kib} KiB of SRAM", name, members, ours))
                details.append(_sentence(name, graph, members, ours))
        if agreement:
            details.append(agreement)
    sheet.keep(_summary(dedicated, ours))
    for part in details:
        sheet.keep(part)
    sheet.keep(_shared(whole))
    sheet.keep(_memories())
    sheet.keep(f"Vela {version('ethos-u-vela')} with its {CONFIG}; no operator is left to the CPU.")
    sheet.write()


def _compiled_all(
    pool: ThreadPoolExecutor, path: Path, graph: Graph, chosen: Iterable[Setting]
) -> list[VelaReport]:
    return list(pool.map(lambda setting: compiled(path, setting, graph), chosen))


# -- what Vela is told, and what it says ---------------------------------------------------------------------


def settings(accelerators: Sequence[str]) -> Iterator[Setting]:
    """Every accelerator by each core: for Performance in each of Arm's systems with DRAM (U55 at 256 KiB in
    one of U65's); for Size, with as little SRAM as holds the maps, in the slowest system of each memory.
    """
    for accelerator in accelerators:
        family = accelerator.split("-")[1]
        own = _systems(family)
        drams = [name for name, memory in own.items() if memory == "Dram"]
        slowest = {memory: name for name, memory in reversed(own.items())}
        rows = (
            (DEDICATED, BUFFER_KIB, drams or BORROWED, PERFORMANCE),
            (DEDICATED, BUFFER_KIB + BESIDE_KIB, drams, PERFORMANCE),
            (SHARED, BUFFER_KIB, slowest.values(), SIZE),
        )
        cores = (REGOR, LEGACY) if family in WITH_LEGACY else (REGOR,)
        for mode, kib, names, optimise in rows:
            yield from (
                Setting(accelerator, name, mode, kib, optimise, core) for name in names for core in cores
            )


def further(reports: Sequence[VelaReport]) -> Iterator[Setting]:
    """Where a core names the fewest bytes for an accelerator and a size of SRAM: for Size, and Regor with
    its switches.
    """
    least: dict[tuple[str, int, str], VelaReport] = {}
    for one in reports:
        setting = one.setting
        if setting.mode == DEDICATED:
            place = setting.accelerator, setting.sram_kib, setting.core
            least[place] = min(least.get(place, one), one, key=_named)
    for one in least.values():
        yield replace(one.setting, optimise=SIZE)
        if one.setting.core == REGOR:
            for switches in SWITCHES[one.setting.family]:
                yield replace(one.setting, switches=switches)


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
        named = count(next(Path(folder).glob("*_vela.tflite")).read_bytes())
    vela_report = report(setting, summary, database, graph.shape(graph.inputs[0]), named)
    print(
        f"{graph.name:<14}{setting!s:<85}{setting.mode:<15}{setting.sram_kib}"
        f"{vela_report.named_bytes:>12,}{vela_report.estimated_bytes:>12,}",
        flush=True,
    )
    return vela_report


def report(setting: Setting, summary: str, database: str, image: tuple[int, ...], named: Named) -> VelaReport:
    """Vela's summary (CSV), debug database (XML with CSV in it) and stream; `image`: NCHW shape."""
    row = next(csv.DictReader(io.StringIO(summary)))
    if named.macs != int(row["nn_macs"]):
        raise SystemExit(f"{setting}: {named.macs:,} MACs in the stream, {row['nn_macs']} in the summary")
    return VelaReport(
        setting,
        named_map_bytes=named.total(MAPS_OFF_CHIP[setting.mode]),
        named_constant_bytes=named.total((CONSTANTS,)),
        estimated_bytes=sum(int(float(row[f"{memory}_total_bytes"])) for memory in OFF_CHIP),
        image_bytes=sum(_image_read(operation, image) for operation in _operations(database)),
        latency_cycles=int(float(row["cycles_total"])),
        sram_bytes=int(float(row["sram_memory_used"]) * 1024),
        weight_ratio=float(row["total_npu_encoded_weights"]) / float(row["total_original_weights"]),
    )


def _operations(database: str) -> Iterator[dict[str, str]]:
    """Operations as Regor estimates them; the older core writes no such table."""
    tables = {table.get("name"): table.text for table in ET.fromstring(database).iter("table")}
    yield from csv.DictReader(io.StringIO((tables.get("perf_debug") or "").strip()))


def _image_read(operation: dict[str, str], image: tuple[int, ...]) -> int:
    """Bytes that an operation reads of the image off the chip."""
    if any(operation[f"ifm_shape_{axis}"] != str(size) for axis, size in zip("nchw", image, strict=True)):
        return 0
    memory = next((name for name in OFF_CHIP.values() if name == operation["ifm_memory"]), None)
    return int(operation[f"{memory}FeatureMap_read"] or 0) if memory else 0


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


COUNTS = tuple(
    head
    for measure in ("named", "estimated")
    for core in (REGOR, LEGACY)
    for head in (f"{measure}, {core}", "x auto")
)


def _summary(dedicated: dict[tuple[str, int], list[VelaReport]], ours: Counted) -> Table:
    """The least of all accelerators and settings, for each network and size."""
    table = Table("network", title="The least of all accelerators and settings")
    for head in ("SRAM, KiB", "ours, auto", *COUNTS):
        table.add_column(head, justify="right")
    for (name, kib), reports in dedicated.items():
        auto, _ = ours[name, "auto"]
        table.add_row(name, str(kib), f"{auto:,}", *_counts(reports, auto))
    return table


def _table(title: str, name: str, reports: list[VelaReport], ours: Counted) -> Table:
    """The least of the systems and settings for each accelerator."""
    table = Table("accelerator", title=title)
    for head in (*COUNTS, "fewest cycles"):
        table.add_column(head, justify="right")
    auto, _ = ours[name, "auto"]
    for plan in PLANS:
        moved, cycles = ours[name, plan]
        counted_in_rtl = (f"{moved:,}", f"{moved / auto:.2f}")
        empty = [""] * (len(COUNTS) - len(counted_in_rtl))
        table.add_row(f"ours, {plan}, counted in RTL", *counted_in_rtl, *empty, f"{cycles:,}")
    for accelerator in dict.fromkeys(one.setting.accelerator for one in reports):
        members = [one for one in reports if one.setting.accelerator == accelerator]
        fewest = min(one.latency_cycles for one in members)
        table.add_row(accelerator, *_counts(members, auto), f"{fewest:,}")
    return table


def _counts(reports: Sequence[VelaReport], auto: int) -> list[str]:
    """The least of what is named and of what is estimated, by each core, and times the bytes of auto."""
    cells: list[str] = []
    for measure in (_named, _estimated):
        for core in (REGOR, LEGACY):
            values = [measure(one) for one in reports if one.setting.core == core]
            cells += [f"{min(values):,}", f"{min(values) / auto:.2f}"] if values else ["", ""]
    return cells


def _sentence(name: str, graph: Graph, reports: list[VelaReport], ours: Counted) -> str:
    """Where the least of all is, by each count; how often the image is read by estimate."""
    (auto, _), (scheme_all, _) = ours[name, "auto"], ours[name, "all"]
    least = min(reports, key=_named)
    sentence = (
        f"Least named: {least.named_bytes:,} bytes, {least.named_bytes / auto:.2f} times auto, "
        f"{least.named_bytes / scheme_all:.2f} times all ({least.setting}); {least.named_map_bytes:,} are of "
        f"maps, {least.named_constant_bytes:,} of constants."
    )
    for core in (REGOR, LEGACY):
        members = [one for one in reports if one.setting.core == core]
        if members:
            estimate = min(members, key=_estimated)
            sentence += f" Least estimated by {core}: {estimate.estimated_bytes:,} ({estimate.setting})."
    image = graph.tensors[graph.inputs[0]].elements
    reads = [one.image_bytes / image for one in reports if one.image_bytes]
    ratios = [one.weight_ratio for one in reports]
    return (
        f"{sentence} By Regor's estimate the image of {image:,} bytes is read {min(reads):.1f} to "
        f"{max(reads):.1f} times. Compressed weights are {min(ratios):.1%} to {max(ratios):.1%} of the "
        "weights."
    )


def _shared(whole: dict[str, list[VelaReport]]) -> Table:
    """The least SRAM that holds whole maps, over systems and cores, and bytes from flash or DRAM there."""
    table = Table(
        "accelerator",
        title="Maps, image and result in SRAM as a whole (Shared_Sram, Size), weights in flash or DRAM",
    )
    for name in whole:
        for head in (f"{name}: SRAM, KiB", "named", "estimated", "cycles"):
            table.add_column(head, justify="right")
    for accelerator in dict.fromkeys(
        one.setting.accelerator for reports in whole.values() for one in reports
    ):
        cells: list[str] = []
        for reports in whole.values():
            members = [one for one in reports if one.setting.accelerator == accelerator]
            least = min(members, key=lambda one: (one.sram_bytes, one.named_bytes))
            cells += [
                f"{least.sram_bytes / 1024:.1f}",
                f"{least.named_bytes:,}",
                f"{least.estimated_bytes:,}",
                f"{least.latency_cycles:,}",
            ]
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


def _named(vela_report: VelaReport) -> int:
    return vela_report.named_bytes


def _estimated(vela_report: VelaReport) -> int:
    return vela_report.estimated_bytes


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
