"""Compiled plans against ONNX Runtime, OpenVINO, MNN and ncnn on this machine, in float32.

Every library runs in a process of its own, in interleaved rounds.

    python benchmarks/bench_cpu.py [--networks ...] [--trained ...] [--model FILE ...] [--peers ...]
                                   [--plans ...] [--threads 1 2] [--rounds 9] [--element bf16] [--buffer 1MiB]
                                   [--json FILE]

`python benchmarks/peers.py` installs the other libraries, in environments of their own, and packages with
trained networks; what is absent is skipped by name. Every engine gets the same simplified model and the same
inputs, takes arrays and gives arrays. In a round each has a turn, a run that is not timed and three that are
(fewer, where half a second is over); meanwhile the processes of the others are stopped. `x` is how many times
longer than ours, `best` that of the fastest peer; means are geometric. `error`: largest difference from the
network computed in float64, over its largest output, the worst output of several. CPU time is that of all
threads together, spinning too.

OpenVINO is pinned to float32 (left alone it computes in bfloat16 where it can), or with --element bf16 to
that, as our plans then are; MNN and ncnn are pinned to float32 always. Plans: exact (least traffic under
LBDF) is ours; epilogue (epilogue fusion only) and alone (every operator alone) show what fusion itself
brings. Weights of the zoo are drawn at random. Files need weights and shapes; token ids are drawn below the
number of embeddings, other whole numbers (masks) are ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import (
    FAMILIES,
    NETWORKS,
    PLANS,
    TRANSFORMERS,
    BenchmarkNetwork,
    add_options,
    family,
    feeds,
    geometric_mean,
    planned,
    say,
    subjects,
)
from benchmarks.engines import EngineTimes, absent, conditions, measured, version_of
from benchmarks.peers import PEERS, TRAINED, trained
from benchmarks.results import Sheet
from codegen.elements import ElementName
from lfopt.app.sizes import size_option
from lfopt.ir import LfoptError

WIDTH = 200  # columns of a screen that is none
Time = Callable[[EngineTimes], float]


@dataclass(frozen=True)
class NetworkTimes:
    """A network with a number of threads."""

    network: str
    family: str
    threads: int
    groups: int
    dram_bytes: dict[str, int]  # by plan, as it predicts
    engines: dict[str, EngineTimes]

    def times(self, name: str, time: Time) -> float:
        """How many times longer than ours an engine takes."""
        return time(self.engines[name]) / time(self.engines["exact"])


def main() -> None:
    """Time every network on every engine, print tables for each number of threads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, (*NETWORKS, *TRANSFORMERS))
    names = [one.name for one in TRAINED]
    parser.add_argument(
        "--trained",
        nargs="*",
        choices=names,
        default=names,
        metavar="NAME",
        help="of packages (default: %(default)s)",
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all")
    parser.add_argument(
        "--plans", nargs="*", choices=PLANS, default=list(PLANS), help="of ours beside exact (default: all)"
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="tables for each (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=9, help="turns of each engine (default %(default)s)")
    parser.add_argument(
        "--element",
        choices=get_args(ElementName),
        default="float32",
        help="of our plans and of OpenVINO (default %(default)s)",
    )
    options = parser.parse_args()
    sheet = Sheet("cpu" if options.element == "float32" else f"cpu-{options.element}", options.results, WIDTH)
    missing = absent(options.peers)
    peers = [name for name in options.peers if name not in missing]
    about = conditions()
    rows = [*_rows(options, peers)]
    for threads in options.threads:
        if members := [row for row in rows if row.threads == threads]:
            for table in _tables(members, threads, options.element):
                sheet.show(table)
    sheet.show(f"{version_of(peers)}; {options.rounds} rounds. {about}")
    if rows:
        sheet.show(_huge_pages(rows))
    sheet.write()
    if options.json:
        options.json.write_text(
            json.dumps(
                {"versions": version_of(peers), "about": about, "rows": [asdict(row) for row in rows]},
                indent=1,
            )
            + "\n"
        )


def _rows(options: argparse.Namespace, peers: list[str]) -> Iterator[NetworkTimes]:
    """Of each network, for each number of threads; a line about each network that cannot be measured."""
    packed = [
        (BenchmarkNetwork(one.name, file, one.shapes), "trained")
        for one, file in trained()
        if one.name in options.trained
    ]
    for name in {*options.trained} - {subject.name for subject, _ in packed}:
        say(f"{name}: skipped: not installed; accepted: python benchmarks/peers.py")
    for subject, kind in [*((subject, "") for subject in subjects(options)), *packed]:
        try:
            for row in _network(subject, kind, options, peers):
                say(
                    f"{row.network}, {row.threads} threads: "
                    f"{', '.join(f'{name} {one.median:.2f} ms' for name, one in row.engines.items())}"
                )
                yield row
        except (LfoptError, OSError) as error:
            say(f"{subject.name}: skipped: {error}")


def _network(
    subject: BenchmarkNetwork, kind: str, options: argparse.Namespace, peers: list[str]
) -> Iterator[NetworkTimes]:
    graph = subject.graph()
    values, kinds = (
        feeds(graph, np.random.default_rng(0)),
        [name for name in PLANS if name in {"exact", *options.plans}],
    )
    with tempfile.TemporaryDirectory() as folder:
        plans = planned(graph, kinds, size_option(options.buffer, "--buffer"), Path(folder), options.element)
        moved = {name: one.plan.totals.dram_bytes for name, one in plans.items()}
        for threads in options.threads:
            engines = measured(graph, values, plans, peers, threads, options.rounds, options.element)
            if "exact" in engines:
                yield NetworkTimes(
                    subject.name,
                    kind or family(graph),
                    threads,
                    len(plans["exact"].plan.groups),
                    moved,
                    engines,
                )


# -- tables --------------------------------------------------------------------------------------------------


def _tables(rows: list[NetworkTimes], threads: int, element: ElementName) -> Iterator[Table]:
    many = f"{'one thread' if threads == 1 else f'{threads} threads'}, {element}"
    peers = [name for name in PEERS if any(name in row.engines for row in rows)]
    fused = [name for name in PLANS if any(name in row.engines for row in rows)]
    yield _against(rows, f"median ms, {many}", peers, lambda one: one.median, errors=True)
    yield _against(rows, f"least ms, {many}", peers, lambda one: one.least, errors=False)
    yield _against(rows, f"CPU time, median ms, {many}", peers, lambda one: one.cpu, errors=False)
    if len(fused) > 1:
        yield _fusion(rows, f"what fusion brings: least ms, {many}", fused)


def _against(rows: list[NetworkTimes], title: str, peers: list[str], time: Time, *, errors: bool) -> Table:
    table = _table(
        title,
        [
            "ours",
            *(["error"] if errors else []),
            *(head for name in peers for head in _heads(name, errors=errors)),
            "best",
        ],
    )

    def cells(row: NetworkTimes, name: str) -> list[str]:
        if name not in row.engines:
            return ["-"] * len(_heads(name, errors=errors))
        one = row.engines[name]
        return [f"{time(one):.2f}", f"{row.times(name, time):.2f}", *([f"{one.error:.0e}"] if errors else [])]

    def means(members: list[NetworkTimes]) -> list[str]:
        cells = ["", *([""] if errors else [])]
        for name in peers:
            cells += [
                "",
                _mean([row.times(name, time) for row in members if name in row.engines]),
                *([""] if errors else []),
            ]
        return [*cells, _mean([best for row in members if (best := _best(row, peers, time))])]

    def line(row: NetworkTimes) -> list[str]:
        own, best = row.engines["exact"], _best(row, peers, time)
        head = [f"{time(own):.2f}", *([f"{own.error:.0e}"] if errors else [])]
        return [*head, *(cell for name in peers for cell in cells(row, name)), f"{best:.2f}" if best else "-"]

    _fill(table, rows, line, means)
    return table


def _fusion(rows: list[NetworkTimes], title: str, plans: list[str]) -> Table:
    others = [name for name in plans if name != "exact"]
    table = _table(title, ["groups", "exact", *(f"{name} x" for name in others)])

    def least(one: EngineTimes) -> float:
        return one.least

    def line(row: NetworkTimes) -> list[str]:
        times = [f"{row.times(name, least):.2f}" if name in row.engines else "-" for name in others]
        return [str(row.groups), f"{row.engines['exact'].least:.2f}", *times]

    _fill(
        table,
        rows,
        line,
        lambda some: [
            "",
            "",
            *(_mean([row.times(name, least) for row in some if name in row.engines]) for name in others),
        ],
    )
    return table


def _table(title: str, heads: list[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("network", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _fill(
    table: Table,
    rows: list[NetworkTimes],
    line: Callable[[NetworkTimes], list[str]],
    means: Callable[[list[NetworkTimes]], list[str]],
) -> None:
    """Rows by family, each with the means of the family below."""
    kinds = [kind for kind in (*FAMILIES, "trained") if any(row.family == kind for row in rows)]
    for kind in kinds:
        members = [row for row in rows if row.family == kind]
        for row in members:
            table.add_row(row.network, *line(row))
        table.add_row(f"mean, {kind}", *means(members), style="bold", end_section=True)
    if len(kinds) > 1:
        table.add_row("mean, all", *means(rows), style="bold")


def _heads(name: str, *, errors: bool) -> list[str]:
    return [PEERS[name].title, "x", *(["error"] if errors else [])]


def _best(row: NetworkTimes, peers: list[str], time: Time) -> float | None:
    """How many times longer than ours the fastest peer takes."""
    return min((row.times(name, time) for name in peers if name in row.engines), default=None)


def _mean(ratios: list[float]) -> str:
    return f"{geometric_mean(ratios):.2f}" if ratios else "-"


def _huge_pages(rows: list[NetworkTimes]) -> str:
    names = dict.fromkeys(name for row in rows for name in row.engines if name == "exact" or name in PEERS)
    shares: list[str] = []
    for name in names:
        some = [row.engines[name] for row in rows if name in row.engines]
        share = sum(one.huge_bytes for one in some) / sum(one.resident_bytes for one in some)
        shares.append(f"{'ours' if name == 'exact' else PEERS[name].title} {share:.0%}")
    return f"Resident memory of the processes that is in huge pages: {', '.join(shares)}."


if __name__ == "__main__":
    main()
