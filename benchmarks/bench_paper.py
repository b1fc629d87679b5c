"""Tables II to V of arXiv 2501.00636 run again: every search with every guidance.

With them the distance to the proven optimum, which the paper lacks.

    python benchmarks/bench_paper.py [--full] [--budget N] [--seeds N] [--limit SECONDS]
                                     [--tables II III IV V] [--networks ...] [--scheme lbdf|brr]
                                     [--guidance none random analytic pg rg gnne] [--screen] [--jobs N]
                                     [--json FILE]

MB are the paper's: 1 MB = 1000 KB, 1 KB = 1024 B; 2 bytes an element. The paper's networks and cost formulas
are not published, so its MB stand beside ours for their order, not to be met. LBDF: operators whose weights
reach the buffer are left out, as in the paper. BRR: Optimus' own formula (`lfopt.planning.costs.optimus`, k =
16), all operators counted, for two readings of a 128 KB buffer: 65,536 elements of 2 bytes, and the 131,072
elements that Optimus' hardware description of that name holds; the learned explainers are those of the
executable BRR, the analytic one asks the formula.

GNNExplainer fits a mask afresh for every group, a tenth to half a second each, so it runs only with `--full`
or by name.

By default every run has 300 plans, at most 10 s, and there are two seeds; `--full` gives the paper's 5,000
(table II) and 2,000 plans, five seeds and no time limit. Every run starts knowing nothing. A run that reaches
the time limit is marked with the plans that it got to.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.guided import GUIDANCE, Trials, TrialSettings
from benchmarks.results import Sheet, add_option
from lfopt.app.batch.engine import in_order, processes, values
from lfopt.ir import Cost
from search.result import Result

KB, MB = 1024, 1024 * 1000
PLANS, SEEDS, FULL_SEEDS, LIMIT = 300, 2, 5, 10.0
MARKS = (100, 300, 1000)  # plans after which the best so far is noted
NEAR = 1.01  # times the optimum

Figures = dict[str, tuple[float | None, ...]]  # search -> figure without guidance, with GNNE, PG, RG

_EB3: Figures = {
    "RS": (172.802, 169.928, 164.086, 162.774),
    "LS": (90.5, 78.007, 73.569, 78.433),
    "NSGA-II": (77.334, 61.265, 61.792, 61.535),
}
_R152: Figures = {
    "RS": (113.661, 96.021, 96.413, 94.453),
    "LS": (80.733, 74.461, 76.421, 75.245),
    "NSGA-II": (77.205, 68.581, 67.013, 66.621),
}
_DL: Figures = {
    "RS": (148.153, 143.925, 142.548, 147.022),
    "LS": (116.644, 114.44, 114.18, 113.942),
    "NSGA-II": (114.351, 113.602, 113.84, 113.602),
}
_EB3_KB: Figures = {
    "RS": (251.674, 249.236, 249.236, 249.236),
    "LS": (248.674, 254.24, 250.361, 254.24),
    "NSGA-II": (249.236, 254.248, 254.217, 254.218),
}
_R152_KB: Figures = {
    "RS": (207.75, 188.25, 208.75, 213.375),
    "LS": (253.75, 199.875, 213.375, 213.375),
    "NSGA-II": (253.375, 199.875, 213.375, 253.375),
}
_DL_KB: Figures = {
    "RS": (235.156, 252.461, 252.461, 236.141),
    "LS": (252.461,) * 4,
    "NSGA-II": (252.461,) * 4,
}
RECTIFIED = {  # table V: (%, s)
    ("LS", "gnne"): (83.1, 168), ("LS", "pg"): (59.1, 72), ("LS", "rg"): (94.0, 99),
    ("RS", "gnne"): (72.1, 106), ("RS", "pg"): (50.7, 32), ("RS", "rg"): (91.4, 42),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One network on one chip."""

    tables: tuple[str, ...]
    network: str  # as the paper calls it
    zoo: str  # the zoo's name for it
    kib: int
    plans: int
    paper: Figures  # DRAM MB
    largest: Figures = field(default_factory=dict)  # KB of the largest group
    elements: int = 0  # BRR: what the buffer holds; 0: LBDF

    @property
    def scheme(self) -> str:
        return "brr" if self.elements else "lbdf"

    @property
    def chip(self) -> str:
        return f"BRR, {self.elements:,} elements" if self.elements else f"LBDF, {self.kib} KiB"


def _three(network: str, zoo_name: str, lbdf: Figures, brr: Figures) -> list[Case]:
    """Tables III (LS) and IV (RS); BRR under both readings of the buffer."""
    tables = ("III", "IV", "V") if zoo_name == "mobilenet_v2" else ("III", "IV")
    return [
        Case(tables, network, zoo_name, 128, 2_000, lbdf),
        *(
            Case(("III", "IV"), network, zoo_name, 128, 2_000, brr, elements=elements)
            for elements in (1 << 16, 1 << 17)
        ),
    ]


CASES = (
    Case(("II",), "EfficientNet-B3", "efficientnet_b3", 256, 5_000, _EB3, _EB3_KB),
    Case(("II",), "ResNet-152", "resnet152", 256, 5_000, _R152, _R152_KB),
    Case(("II",), "DeepLabV3+MBv3", "deeplabv3_mobilenet_v3_large", 256, 5_000, _DL, _DL_KB),
    *_three(
        "MobileNet-V2", "mobilenet_v2",
        {"RS": (13.209, 11.432, 13.049, 12.890), "LS": (9.803, 8.823, 9.068, 8.823)},
        {"RS": (16.195, 12.593, 13.307, 12.838), "LS": (15.101, 13.401, 14.609, 13.790)},
    ),
    *_three(
        "VGG-16", "vgg16",
        {"RS": (6.856, 6.268, 6.562, 6.464), "LS": (5.973, 5.973, 5.973, 5.973)},
        {"RS": (29.274, 28.593, 28.124, 28.847), "LS": (27.606, 27.415, 26.975, 27.174)},
    ),
    *_three(
        "ResNet-50", "resnet50",
        {"RS": (39.092, 35.564, 32.820, 32.036), "LS": (25.764, 24.588, 24.588, 24.196)},
        {"RS": (91.866, 91.669, 91.763, 92.376), "LS": (83.685, 83.344, 83.493, 83.317)},
    ),
    *_three(
        "ResNet-18", "resnet18",
        {"RS": (6.856, 6.464, 6.562, 6.464), "LS": (5.974, 5.974, 5.974, 5.974)},
        {"RS": (28.525, 27.919, 27.599, 28.081), "LS": (27.127, 27.127, 26.975, 27.127)},
    ),
    *_three(
        "SqueezeNet 1.1", "squeezenet1_1",
        {"RS": (10.080, 7.948, 7.751, 7.333), "LS": (3.839, 3.585, 3.585, 3.585)},
        {"RS": (10.249, 8.258, 7.817, 7.601), "LS": (8.202, 6.232, 6.790, 7.714)},
    ),
)  # fmt: skip

Run = dict[str, Any]  # one search, as it is written to --json


def main() -> None:
    """Run every search with every guidance on every network, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help=f"the paper's budgets, {FULL_SEEDS} seeds, no time limit: hours"
    )
    parser.add_argument("--budget", type=int, help=f"plans per run (default {PLANS})")
    parser.add_argument("--seeds", type=int, help=f"runs of each search (default {SEEDS})")
    parser.add_argument("--limit", type=float, help=f"seconds a run (default {LIMIT:g})")
    parser.add_argument(
        "--tables",
        nargs="+",
        choices=("II", "III", "IV", "V"),
        default=["II", "III", "IV", "V"],
        help="default: all",
    )
    parser.add_argument(
        "--networks", nargs="+", choices=sorted({case.zoo for case in CASES}), help="default: all"
    )
    parser.add_argument("--scheme", choices=("lbdf", "brr"), help="default: both")
    parser.add_argument(
        "--guidance", nargs="+", choices=GUIDANCE, help="default: all, but gnne only with --full"
    )
    parser.add_argument(
        "--screen", action="store_true", help="let the rule say which groups are worth checking"
    )
    parser.add_argument("--jobs", type=int, default=1, help="searches at once (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    add_option(parser)
    options = parser.parse_args()
    settings = TrialSettings(
        tuple(options.guidance or [name for name in GUIDANCE if options.full or name != "gnne"]),
        options.budget or (None if options.full else PLANS),
        options.seeds or (FULL_SEEDS if options.full else SEEDS),
        options.limit or (None if options.full else LIMIT),
        options.screen,
    )
    cases = [
        case
        for case in CASES
        if set(case.tables) & set(options.tables)
        and options.scheme in (None, case.scheme)
        and (options.networks is None or case.zoo in options.networks)
    ]
    sheet = Sheet("paper", options.results)
    start = time.perf_counter()
    runs: list[Run] = []
    for case, case_runs in zip(cases, _all(cases, settings, options.jobs), strict=True):
        runs += case_runs
        sheet.show(_table(case, case_runs, settings))
        if options.json:
            options.json.write_text(json.dumps(runs, indent=1) + "\n")
    if "V" in options.tables and any("V" in run["tables"] for run in runs):
        sheet.show(_rectified([run for run in runs if "V" in run["tables"]]))
    sheet.show(
        "gap: to the proven optimum. at N: gap after N plans. to 1%: plans until within 1 % of it (median), "
        "and in how many runs. KB: the largest group. Guidance random and analytic are not in the paper."
    )
    sheet.show(f"{time.perf_counter() - start:.0f} s")
    sheet.write()


def _all(cases: Sequence[Case], settings: TrialSettings, jobs: int) -> Iterator[list[Run]]:
    """The runs of each case, as they are done, in order; every search of a case is a job of its own."""
    asked = [(case, search) for case in cases for search in case.paper]
    done = iter(
        in_order(
            values(
                partial(run_search, settings=settings), asked, processes(jobs, "bench_paper --jobs", "learn")
            )
        )
    )
    for case in cases:
        yield [run for _ in case.paper for run in next(done)]


def run_search(asked: tuple[Case, str], settings: TrialSettings) -> list[Run]:
    """A search with every guidance that can be had."""
    case, search = asked
    trials = Trials.of(f"zoo:{case.zoo}", case.kib, case.elements)
    best, budget = trials.best, settings.budget or case.plans
    costs = trials.costs()
    prices = [costs.evaluate(group) for group in best.groups]
    largest = max(
        (price.buffer_bytes for price in prices if isinstance(price, Cost) and price.mode == "lbdf"),
        default=0,
    )
    return [
        _run(case, search, guidance, budget, result, best) | {
            "operators": len(partitions.flow),
            "buffer_bytes": None if case.elements else partitions.required_bytes(result.groups),
            "optimum_buffer_bytes": None if case.elements else largest,
        }
        for guidance, result, partitions in trials.run(search, budget, settings)
    ]  # fmt: skip


def _run(case: Case, search: str, guidance: str, budget: int, result: Result, best: Result) -> Run:
    def at(plans: int) -> float | None:
        sizes = [size for done, size in result.history if done <= plans]
        return sizes[-1] / best.dram_bytes - 1 if sizes and plans <= result.plans_evaluated else None

    column = (
        ("none", "gnne", "pg", "rg").index(guidance) if guidance in ("none", "gnne", "pg", "rg") else None
    )
    paper = case.paper[search]
    largest = case.largest.get(search)
    repairs = result.repairs
    return {
        "tables": list(case.tables), "network": case.network, "scheme": case.scheme, "kib": case.kib,
        "buffer_elements": case.elements or None,
        "search": search, "guidance": guidance, "seed": result.seed, "budget": budget,
        "plans": result.plans_evaluated,
        "dram_bytes": result.dram_bytes, "optimum_bytes": best.dram_bytes,
        "lower_bound_bytes": best.lower_bound_bytes, "proof": best.proof,
        "gap": result.dram_bytes / best.lower_bound_bytes - 1,
        **{f"gap_at_{plans}": at(plans) for plans in MARKS},
        "plans_to_1_percent": next(
            (done for done, size in result.history if size <= NEAR * best.lower_bound_bytes), None
        ),
        "seconds": result.seconds, "guided": repairs.guided, "at_random": repairs.random,
        "unchecked": repairs.screened,
        "paper_mb": None if column is None or column >= len(paper) else paper[column],
        "paper_kb": None if column is None or largest is None else largest[column],
    }  # fmt: skip


def _table(case: Case, runs: list[Run], settings: TrialSettings) -> Table:
    optimum = (
        f"{runs[0]['optimum_bytes'] / MB:.3f} MB"
        if runs[0]["proof"] == "optimal"
        else f">= {runs[0]['lower_bound_bytes'] / MB:.3f} MB"
    )
    plans = settings.budget or case.plans
    tables = f"table{'s'[: len(case.tables) - 1]} {', '.join(case.tables)}"
    title = (
        f"{case.network}, {case.chip} ({tables}): {runs[0]['operators']} operators, {plans:,} plans, "
        f"{settings.seeds} seeds"
    )
    marks = [mark for mark in MARKS if mark <= plans]
    table = Table(
        title=f"{title}; optimum {optimum}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    late: list[str] = []
    table.add_column("", no_wrap=True)
    table.add_column("guidance", no_wrap=True)
    heads = [
        "MB",
        "gap",
        "worst",
        *(f"at {mark}" for mark in marks),
        "to 1%",
        "s",
        *(["KB"] if case.largest else []),
        "paper\nMB",
    ]
    for head in [*heads, *(["paper\nKB"] if case.largest else [])]:
        table.add_column(head, justify="right", no_wrap=True)
    for search in case.paper:
        names = [
            name
            for name in GUIDANCE
            if any((run["search"], run["guidance"]) == (search, name) for run in runs)
        ]
        for name in names:
            selected = [run for run in runs if (run["search"], run["guidance"]) == (search, name)]
            stopped = min(run["plans"] for run in selected)
            if stopped < plans:
                late.append(f"{search} {name} after {stopped:,} plans")
            reached = [run["plans_to_1_percent"] for run in selected if run["plans_to_1_percent"]]
            at = [[run[f"gap_at_{mark}"] for run in selected] for mark in marks]
            paper_kb = selected[0]["paper_kb"]
            table.add_row(
                search if name == names[0] else "",
                name if stopped == plans else f"{name} *",
                f"{fmean(run['dram_bytes'] for run in selected) / MB:.3f}",
                f"{fmean(run['gap'] for run in selected):.2%}",
                f"{max(run['gap'] for run in selected):.2%}",
                *("-" if None in gaps else f"{fmean(gaps):.2%}" for gaps in at),
                f"{median(reached):,.0f} ({len(reached)}/{len(selected)})" if reached else "-",
                f"{fmean(run['seconds'] for run in selected):.1f}",
                *([f"{fmean(run['buffer_bytes'] for run in selected) / KB:.0f}"] if case.largest else []),
                f"{selected[0]['paper_mb']:.3f}" if selected[0]["paper_mb"] else "",
                *([f"{paper_kb:.0f}" if paper_kb else ""] if case.largest else []),
                end_section=name == names[-1],
            )
    if late:
        table.caption = f"* stopped after {settings.limit:g} s: {', '.join(late)}"
        table.caption_justify = "left"
    return table


def _rectified(runs: list[Run]) -> Table:
    """Table V: % of a search's groups without a fit that SPLIT broke, and seconds of the search."""
    table = Table(title="MobileNet-V2, LBDF, 128 KiB: table V", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("", "guidance", "groups", "rectified %", "search s", "plans", "paper %", "paper s"):
        table.add_column(head, justify="left" if head in ("", "guidance") else "right", no_wrap=True)
    for search in ("LS", "RS"):
        for name in GUIDANCE[1:]:
            selected = [
                run
                for run in runs
                if (run["search"], run["guidance"], run["scheme"]) == (search, name, "lbdf")
            ]
            if not selected:
                continue
            broken = sum(run["guided"] + run["at_random"] for run in selected)
            rate, seconds = RECTIFIED.get((search, name), ("", ""))
            table.add_row(
                search,
                name,
                f"{broken // len(selected):,}",
                f"{100 * sum(run['guided'] for run in selected) / max(broken, 1):.1f}",
                f"{fmean(run['seconds'] for run in selected):.1f}",
                f"{fmean(run['plans'] for run in selected):,.0f}",
                str(rate),
                str(seconds),
            )
    return table


if __name__ == "__main__":
    main()
