"""Whether compiled plans move the bytes predicted: last-level misses of a simulated cache.

Of the exact plan, and of every operator alone.

    python benchmarks/bench_traffic.py [--no-blocks] [--networks mobilenet_v2] [--buffer 1MiB] [--caches 1 2]
        [--json FILE]

The code is built for AVX2 (Valgrind knows no AVX-512) and runs once, from a cold cache, under cachegrind: 32
KiB of L1, and a last level of as many times the buffer as --caches says, 16 ways, lines of 64 B. What it
misses is the difference to the same program without the run (cold_run.c), reads and writes, a line each. A
write that misses stands for the line that is written back later: `callgrind --simulate-wb=yes` counts as many
write-backs. `ends` are the network's inputs and outputs, which the code copies between ONNX's order of
channels and its own; the plan does not know of that. `ratio` is missed / (predicted + ends). Beside a single
block the ends are large, and the rings too, which the first touch brings into the cache.

What we found on MobileNet-V2. A cache has no plan: what was used least recently goes first, and weights and
maps that stream through push out rows that are needed again. With a last level as large as the buffer, fused
code misses 1.07 times what is predicted at 1 MiB, 1.39 times at 256 KiB, where streams are larger beside the
rings. With twice the buffer, 0.92 and 1.11 times; with four times, 0.90 and 0.81: a cache also keeps what one
group leaves to the next, which the plan stores and loads again. So plan for half of the cache, as `lfopt run`
does: there the prediction holds within a tenth. Operators one by one miss 2 to 5 times as much; less than
predicted, because small maps never leave the cache, as in the blocks of 28 x 28 and 14 x 14 pixels with a
last level of 2 MiB. The smaller the maps are beside the cache, the less fusion has to win.

Two simulations at a time; MobileNet-V2 takes a quarter of a minute each, all of it one and a half.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import Code, add_options, compiled, graphs, planned, say
from benchmarks.results import Sheet
from codegen.build import find_compiler
from lfopt.app.sizes import format_size, size_option
from lfopt.frontend import from_model
from lfopt.ir import Graph, LfoptError
from lfopt.rewrite import simplify
from lfopt.zoo.builder import Net

PLANS = ("exact", "alone")
LINE, WAYS, L1 = 64, 16, "32768,8,64"
DRAINED = 4  # times the last level is read through before the run
MB = 1e6


class InvertedResidual(NamedTuple):
    """An inverted residual of MobileNet-V2 or EfficientNet: expand, depthwise, project."""

    size: int  # height and width of the input
    channels: int
    wide: int
    out: int
    kernel: int
    stride: int

    @property
    def name(self) -> str:
        """As in 56: 24-144-24 k3 s1."""
        return f"{self.size}: {self.channels}-{self.wide}-{self.out} k{self.kernel} s{self.stride}"

    def graph(self) -> Graph:
        """The block alone, with random weights."""
        net = Net("block", seed=0, weights=True)
        image = net.image((1, self.channels, self.size, self.size))
        x = net.conv("expand", image, self.wide, act="relu6")
        x = net.conv("depthwise", x, self.wide, self.kernel, stride=self.stride, group=self.wide, act="relu6")
        return simplify(from_model(net.model(image, net.conv("project", x, self.out), doc=""), name="block"))


BLOCKS = (
    InvertedResidual(112, 16, 96, 24, 3, 2),
    InvertedResidual(56, 24, 144, 24, 3, 1),
    InvertedResidual(28, 40, 240, 40, 5, 1),
    InvertedResidual(14, 112, 672, 112, 5, 1),
)


class Misses(NamedTuple):
    """Of the last level, in lines."""

    reads: int
    writes: int


class MeasurementFailed(LfoptError):
    """Valgrind, the compiler or the program did not do its work."""


def main() -> None:
    """Count for every block and network, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, networks=("mobilenet_v2",))
    parser.add_argument(
        "--caches",
        type=int,
        nargs="+",
        default=[1, 2],
        help="last levels, in buffers: powers of two (default %(default)s)",
    )
    parser.add_argument("--no-blocks", action="store_true", help="only networks")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind: not installed; accepted: apt-get install -y valgrind")
    buffer_bytes = size_option(options.buffer, "--buffer")
    for times in options.caches:
        if buffer_bytes & (buffer_bytes - 1) or times < 1 or times & (times - 1):
            raise SystemExit(
                f"--buffer {options.buffer} --caches {times}: "
                "accepted: powers of two, which cachegrind simulates"
            )
    sheet = Sheet("traffic", options.results)
    blocks = () if options.no_blocks else BLOCKS
    rows: list[dict[str, Any]] = []
    for name, graph in chain(
        ((block.name, block.graph()) for block in blocks), ((graph.name, graph) for graph in graphs(options))
    ):
        try:
            rows += _rows(name, graph, buffer_bytes, options.caches)
        except LfoptError as error:
            say(f"{name}: skipped: {error}")
    sheet.show(_table(rows, buffer_bytes))
    sheet.write()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _rows(name: str, graph: Graph, buffer_bytes: int, caches: list[int]) -> Iterator[dict[str, Any]]:
    """A row for each cache. Two simulations at a time."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        start = time.perf_counter()
        plans = planned(graph, PLANS, buffer_bytes, Path(folder))
        programs = {kind: _program(compiled(plan, "avx2")) for kind, plan in plans.items()}
        wanted = [(times, kind) for times in caches for kind in PLANS]
        missed = dict(
            zip(
                wanted,
                pool.map(lambda key: _missed(programs[key[1]], buffer_bytes * key[0]), wanted),
                strict=True,
            )
        )
        seconds = time.perf_counter() - start
        ends = sum(
            tensor.elements * np.dtype(tensor.dtype).itemsize
            for tensor in (graph.tensors[name] for name in (*graph.inputs, *graph.outputs))
        )
        for times in caches:
            row: dict[str, Any] = {
                "network": name,
                "buffer": buffer_bytes,
                "cache": times * buffer_bytes,
                "ends": ends,
            }
            row["seconds"] = seconds / len(caches)
            for kind in PLANS:
                misses = missed[times, kind]
                row[f"{kind} predicted"] = plans[kind].plan.totals.dram_bytes
                row[f"{kind} read"], row[f"{kind} written"] = LINE * misses.reads, LINE * misses.writes
            yield row


def _program(code: Code) -> list[str]:
    """The command that runs a library cold; how often, and from how large a cache, is to follow."""
    folder = code.built.library.parent.resolve()
    source = Path(__file__).with_name("cold_run.c").read_text(encoding="utf-8")
    (folder / "cold_run.c").write_text(re.sub(r"\bNAME(?=_|\b)", code.source.name, source), encoding="utf-8")
    command = [
        *find_compiler(),
        "-O1",
        "-o",
        str(folder / "cold_run"),
        str(folder / "cold_run.c"),
        str(folder / code.built.library.name),
    ]
    _said(command)
    return [str(folder / "cold_run"), str(code.weights.resolve())]


def _missed(program: list[str], cache_bytes: int) -> Misses:
    """What one run misses."""
    cache = f"{cache_bytes},{WAYS},{LINE}"
    simulated = [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=yes",
        "--cachegrind-out-file=/dev/null",
        f"--I1={L1}",
        f"--D1={L1}",
        f"--LL={cache}",
    ]
    counted: list[Misses] = []
    for runs in (0, 1):
        output = _said([*simulated, *program, str(DRAINED * cache_bytes), str(runs)])
        match = re.search(r"LLd misses:\s+[\d,]+\s+\(\s*([\d,]+) rd\s+\+\s+([\d,]+) wr", output)
        if match is None:
            raise MeasurementFailed(f"valgrind: no line of LLd misses in {output[-200:]!r}")
        counted.append(Misses(*(int(text.replace(",", "")) for text in match.groups())))
    before, after = counted
    return Misses(after.reads - before.reads, after.writes - before.writes)


def _said(command: list[str]) -> str:
    """What a command writes to stderr. Raises MeasurementFailed if it does not end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason is given"])[-1]
        raise MeasurementFailed(f"{Path(command[0]).name} ended with {done.returncode}: {last}")
    return done.stderr


def _table(rows: list[dict[str, Any]], buffer_bytes: int) -> Table:
    title = (
        f"DRAM traffic of one run, MB: predicted for a buffer of {format_size(buffer_bytes)}, and "
        "missed by a simulated last level"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("network or block", no_wrap=True, max_width=24)
    figures = [head for kind in PLANS for head in (f"{kind}\npredicted", "\nmissed", "\nratio")]
    for head in ("last\nlevel", "\nends", *figures, "alone / exact\nmissed"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        missed = {kind: row[f"{kind} read"] + row[f"{kind} written"] for kind in PLANS}
        cells: list[str] = []
        for kind in PLANS:
            predicted = row[f"{kind} predicted"]
            cells += [
                f"{predicted / MB:.2f}",
                f"{missed[kind] / MB:.2f}",
                f"{missed[kind] / (predicted + row['ends']):.2f}",
            ]
        table.add_row(
            row["network"],
            format_size(row["cache"]),
            f"{row['ends'] / MB:.2f}",
            *cells,
            f"{missed['alone'] / missed['exact']:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
