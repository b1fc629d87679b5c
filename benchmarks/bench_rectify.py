"""Rectify rate (arXiv 2501.00636, table V): how often explanations break groups into such as fit; the price.

    python benchmarks/bench_rectify.py [--networks ...] [--kib 128 256] [--groups 40] [--seeds 5]
        [--links 1 8] [--explainers ...] [--json FILE]

LBDF. Networks that the predictor has learnt from are marked. Groups are those that random search (100 plans)
and local search (300 plans) meet and cannot run, a sample from each. Valid is strict: F_beta < beta; a single
operator counts like any other. As in the paper, operators that do not fit by themselves are taken out first:
what is left of a group without them is what must be rectified. F_D of what comes out is compared with the
best split that there is, found by the exact search on the group alone. Mean and standard deviation over
seeds.

Columns: k, links of an explanation that are tried; rectified, groups broken into valid ones; one cut, by a
single cut; best, splits that move as few bytes as the best there is; pieces, valid groups a group;
explanations and checks (of F_beta) a group. Since every part is explained anew and every link is completed to
a cut, a group without unfit operators is always rectified: what tells explainers apart is F_D, and how much
work it takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.guided import MET, learnt_from, met, unfit
from benchmarks.results import Sheet, add_option
from explainers.controls import brute
from explainers.split import LINKS, Explain, Splitter
from lfopt import zoo
from lfopt.app.commands.dataset import dataflow
from lfopt.app.guidance import explainer
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow
from lfopt.ops.excerpt import excerpt
from lfopt.planning import GroupCosts, Traffic
from search.exact import solve

EXPLAINERS = ("random", "every link", "analytic", "brute", "gnne", "pg", "rg")
FEWER = {"gnne": 5, "brute": 2}  # of so many groups, one is given to a slow explainer
# table V, %
PAPER = {
    ("RS", "gnne"): 72.1,
    ("RS", "pg"): 50.7,
    ("RS", "rg"): 91.4,
    ("LS", "gnne"): 83.1,
    ("LS", "pg"): 59.1,
    ("LS", "rg"): 94.0,
}
BRUTE = 24  # operators of a group that brute force takes


class Rectification(NamedTuple):
    """What one explainer did with the groups of one seed."""

    groups: int
    rectified: float  # share of the groups
    at_once: float  # share broken by one cut into two valid groups
    ratio: float  # F_D over F_D of the best split, of those rectified
    best: float  # share of those rectified whose split is the best there is
    pieces: float  # groups that a group is broken into
    explained: float  # explanations asked for, per group
    checked: float  # groups checked, per group
    seconds: float  # per group


def main() -> None:
    """Collect groups, split them by every explainer, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks",
        nargs="+",
        default=["mobilenet_v2"],
        help="of the zoo, or ONNX files (default %(default)s)",
    )
    parser.add_argument(
        "--kib", type=int, nargs="+", default=[128, 256], help="buffers (default %(default)s)"
    )
    parser.add_argument(
        "--groups", type=int, default=40, help="groups of each search and seed (default %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=5, help="default %(default)s")
    parser.add_argument(
        "--links",
        type=int,
        nargs="+",
        default=[1, LINKS],
        help="links of an explanation that are tried (default %(default)s)",
    )
    parser.add_argument(
        "--explainers",
        nargs="+",
        choices=EXPLAINERS,
        default=list(EXPLAINERS),
        help="default: all that are there",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    add_option(parser)
    options = parser.parse_args()
    sheet = Sheet("rectify", options.results)
    rows: list[dict[str, object]] = []
    learnt = learnt_from()
    for network, kib in product(options.networks, options.kib):
        flow = dataflow(f"zoo:{network}" if network in zoo.names() else network)
        title = f"{Path(network).stem}{' (learnt from)' if network in learnt else ''}, {kib} KiB"
        costs = GroupCosts(flow, Hardware(kib * 1024), Traffic.PAPER, epilogue=False)
        sheet.show(
            f"{title}: {len(flow)} operators, of which {unfit(costs).bit_count()} do not fit by themselves"
        )
        groups = {
            (name, seed): met(costs, name, seed, options.groups)
            for name in MET
            for seed in range(options.seeds)
        }
        best = {group: best_bytes(costs, group) for masks in groups.values() for group in masks}
        table = _table(f"{title}: up to {options.groups} groups of each search, {options.seeds} seeds")
        for search in MET:
            for links in options.links:
                for name in options.explainers:
                    with sheet.console.status(f"{search}, {name}, {links} links"):
                        outcomes = [
                            *_outcomes(
                                costs,
                                [groups[search, seed] for seed in range(options.seeds)],
                                best,
                                name,
                                links,
                            )
                        ]
                    if outcomes and not (name == "every link" and links != options.links[-1]):
                        rows += [
                            {
                                "network": network,
                                "kib": kib,
                                "search": search,
                                "explainer": name,
                                "links": links,
                                "seed": k,
                                **each._asdict(),
                            }
                            for k, each in enumerate(outcomes)
                        ]
                        table.add_row(
                            search,
                            name,
                            "all" if name == "every link" else str(links),
                            *_cells(outcomes),
                            _paper(search, name, links),
                        )
            table.add_section()
        sheet.show(table)
    sheet.write()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def best_bytes(costs: GroupCosts, group: int) -> int:
    """F_D of the best split of a group, proven."""
    alone = Dataflow.of(excerpt(costs.dataflow, group))
    optimum = solve(GroupCosts(alone, costs.hardware, costs.traffic, scheme=costs.scheme, epilogue=False))
    assert optimum.proof == "optimal"
    return optimum.dram_bytes


def _outcomes(
    costs: GroupCosts, samples: Sequence[list[int]], best: dict[int, int], name: str, links: int
) -> Iterator[Rectification]:
    """One outcome a seed; none if the explainer cannot be had."""
    for seed, sample_ in enumerate(samples):
        groups = [
            group for group in sample_[:: FEWER.get(name, 1)] if name != "brute" or group.bit_count() <= BRUTE
        ]
        try:
            explain = _explainer(costs, name, seed)
        except InvalidConfig:
            return
        if groups:
            yield _split_all(costs, explain, groups, best, 1 << 30 if name == "every link" else links)


def _explainer(costs: GroupCosts, name: str, seed: int) -> Explain:
    if name == "brute":
        return brute(costs)
    return explainer(costs, "random" if name == "every link" else name, seed)


def _split_all(
    costs: GroupCosts, explain: Explain, groups: list[int], best: dict[int, int], links: int
) -> Rectification:
    beta = costs.hardware.buffer_bytes
    judged: dict[int, bool] = {}

    def valid(mask: int) -> bool:
        if mask not in judged:
            judged[mask] = costs.groups.line_need(mask) < beta
        return judged[mask]

    def dram_bytes(mask: int) -> int:
        return costs.dram(mask).total

    split = Splitter(costs.dataflow, explain, valid, dram_bytes, links=links)
    start = time.perf_counter()
    splits = [split(group) for group in groups]
    seconds = time.perf_counter() - start
    done = [(group, parts) for group, parts in zip(groups, splits, strict=True) if parts is not None]
    assert all(valid(part) for _, parts in done for part in parts)
    ratios = [sum(map(dram_bytes, parts)) / best[group] for group, parts in done]
    count = len(groups)
    return Rectification(
        count,
        len(done) / count,
        sum(len(parts) == 2 for _, parts in done) / count,
        fmean(ratios) if ratios else float("nan"),
        fmean(ratio == 1 for ratio in ratios) if ratios else float("nan"),
        fmean(len(parts) for _, parts in done) if done else float("nan"),
        split.explained / count,
        len(judged) / count,
        seconds / count,
    )


def _table(title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "explainer"):
        table.add_column(column, no_wrap=True)
    heads = (
        "k",
        "groups",
        "rectified %",
        "one cut\n%",
        "F_D / best",
        "best\n%",
        "pieces",
        "expla-\nnations",
        "checks",
        "ms",
        "paper\n%",
    )
    for column in heads:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _cells(outcomes: list[Rectification]) -> list[str]:
    def spread(values: list[float], digits: int, scale: float = 1) -> str:
        more = f" ± {scale * stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{scale * fmean(values):.{digits}f}{more}"

    return [
        str(sum(each.groups for each in outcomes)),
        spread([each.rectified for each in outcomes], 1, 100),
        f"{100 * fmean(each.at_once for each in outcomes):.0f}",
        spread([each.ratio for each in outcomes], 3),
        f"{100 * fmean(each.best for each in outcomes):.0f}",
        *(
            f"{fmean(values):.1f}"
            for values in zip(
                *((each.pieces, each.explained, each.checked) for each in outcomes), strict=True
            )
        ),
        f"{1000 * fmean(each.seconds for each in outcomes):.1f}",
    ]


def _paper(search: str, name: str, links: int) -> str:
    figure = PAPER.get((search, name))
    return f"{figure}" if figure and links == LINKS else ""


if __name__ == "__main__":
    main()
