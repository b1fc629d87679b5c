"""Surrogates of the judge of cycles: error on families they have not learnt from, and gain of searches.

    python benchmarks/bench_surrogate.py [--data FOLDER] [--models FILE ...] [--networks ...] [--budget 200]
                                         [--exact-seconds 40] [--jobs 1] [--weights FILE] [--json FILE]

First groups are judged that random plans have, on the accelerator under scheme auto and, of each network once
more, on a chip and under a scheme drawn at random; every family is left out in turn. Per network: Spearman's
rank correlation of what is said with what is so.

Then searches for the fewest cycles on the accelerator, scheme auto, each from the plan of the fewest bytes:
with the judge asked about whatever the search looks at, and guided by a surrogate that has learnt nothing of
the network's family. Judged: groups of different structures that were scheduled and timed. All cycles are the
judge's. `--weights`: also fit a surrogate to all groups, and write it to this file: what ships.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option, table_of
from benchmarks.surrogates import CHIP, JUDGES, SurrogateSamples, family_of, left_out, sources
from explainers.surrogate import Rooflines, Surrogate
from lfopt.app.commands.options import chip
from lfopt.app.figures import GroupFigures
from lfopt.app.pipeline import ZOO, load_network
from lfopt.app.screen import progress_line
from lfopt.app.surrogates import hopes_of
from lfopt.ir import Graph
from lfopt.planning import GroupCosts
from search.exact import solve
from search.lazy import settling, solve_lazily
from search.local import improve
from search.nsga2 import evolve
from search.options import SearchOptions
from search.partition import Partitions, Rng
from search.result import Result
from search.weighted import CostWeights, WeightedModel

NETWORKS = ("mobilenet_v2", "squeezenet1_0", "cells_inverted@9")
CYCLES = CostWeights(1, 1 << 24, 0)  # cycles first, then bytes; small enough for the 64 bits of NSGA-II
ENOUGH = 0.98  # of Spearman's correlation
COSTED = 60  # groups of a network of which it is measured what a verdict costs

Row = dict[str, Any]
Search = Callable[[GroupFigures, Surrogate | None, tuple[int, ...], argparse.Namespace], Result]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("build/surrogate"),
        help="folder of judged groups (default %(default)s)",
    )
    parser.add_argument("--models", nargs="+", default=[], help="ONNX files to learn from beside the zoo")
    parser.add_argument(
        "--networks", nargs="*", default=NETWORKS, help="of the zoo, to search (default: %(default)s)"
    )
    parser.add_argument(
        "--budget",
        type=int,
        default=200,
        help="plans of a local search, and of NSGA-II (default %(default)s)",
    )
    parser.add_argument(
        "--exact-seconds",
        type=float,
        default=40,
        help="CPU time of the exact search that asks the judge (default %(default)s)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument(
        "--weights", type=Path, help="write a surrogate of all groups to this file, and its card beside it"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    add_option(parser)
    options = parser.parse_args()
    sheet = Sheet("surrogate", options.results)
    with progress_line() as report:
        samples = SurrogateSamples.measured(options.data, sources(options.models), report)
    with ProcessPoolExecutor(options.jobs) as jobs:
        networks = [jobs.submit(_network, samples, name, options) for name in options.networks]
        estimates = {judge: jobs.submit(left_out, samples, judge) for judge in JUDGES}
        results = [network.result() for network in networks]
        accuracy = _accuracy(sheet, samples, {judge: rows.result() for judge, rows in estimates.items()})
    verdicts, searches = [verdict for verdict, _ in results], [row for _, rows in results for row in rows]
    if options.weights:
        _ship(samples, accuracy[-1], options.weights)
    if verdicts:
        sheet.show(table_of("milliseconds a group", verdicts, digits=2))
        sheet.show(table_of("searches for the fewest cycles", searches, digits=1))
    sheet.write()
    if options.json:
        options.json.write_text(
            json.dumps({"accuracy": accuracy, "verdicts": verdicts, "searches": searches}, indent=1) + "\n"
        )


def _network(samples: SurrogateSamples, name: str, options: argparse.Namespace) -> tuple[Row, list[Row]]:
    """What a verdict on a group of a network costs, and what searches of it find."""
    graph = load_network(ZOO + name, None, "default", weights=False)
    learnt = samples.surrogate(samples.family != family_of(ZOO + name))
    return {"network": name, **_verdicts(graph, learnt)}, [
        {"network": name, **row} for row in _searches(graph, learnt, options)
    ]


def _accuracy(sheet: Sheet, samples: SurrogateSamples, by_judge: Mapping[str, np.ndarray]) -> list[Row]:
    """`by_judge`: by each judge, of families left out; (groups,) log2 of the cycles."""
    truth, rows, ranks = np.log2(samples.cycles), list[Row](), dict[str, np.ndarray]()
    for judge, estimates in by_judge.items():
        error = np.abs(estimates - truth)
        of = [samples.network == k for k in range(len(samples.names))]
        ranks[judge] = np.array([spearmanr(estimates[here], truth[here])[0] for here in of])
        enough = f"{(ranks[judge] >= ENOUGH).sum()} of {len(of)}"
        rows.append({
            "judge": judge, "Spearman": ranks[judge].mean(), "worst": ranks[judge].min(),
            f"networks from {ENOUGH}": enough,
            "median error %": 100 * (2 ** np.median(error) - 1),
            "90th percentile %": 100 * (2 ** np.quantile(error, 0.9) - 1),
        })  # fmt: skip
    families = len(np.unique(samples.family))
    title = (
        f"{len(truth):,} groups of {len(samples.names)} networks on chips, {families} families, each "
        "left out in turn; Spearman per network"
    )
    sheet.show(table_of(title, rows, digits=4))
    by_network = [
        {
            "network": name,
            "groups": int((samples.network == k).sum()),
            **{judge: ranks[judge][k] for judge in JUDGES},
        }
        for k, name in enumerate(samples.names)
    ]
    sheet.keep(
        table_of(
            "Spearman by network; -1: on a chip and under a scheme drawn at random", by_network, digits=3
        )
    )
    return rows


def _ship(samples: SurrogateSamples, accuracy: Row, path: Path) -> None:
    everything = np.ones(len(samples.cycles), bool)
    save_file(
        {name: np.ascontiguousarray(array) for name, array in samples.surrogate(everything).arrays().items()},
        path,
    )
    networks = {name: int((samples.network == k).sum()) for k, name in enumerate(samples.names)}
    card = {
        "judge": "cycles",
        "groups": len(samples.cycles),
        "families left out": accuracy,
        "networks": networks,
    }
    path.with_suffix(".json").write_text(json.dumps(card, indent=1) + "\n")


def _verdicts(graph: Graph, surrogate: Surrogate) -> Row:
    """CPU time of the planner's price, the estimate and the judge on the same groups, nothing cached."""
    costs = _costs(graph)
    partitions, dice, met = Partitions(costs), Rng(1), dict[object, int]()
    figures = GroupFigures(costs, energy=False)
    while len(met) < COSTED:
        for group in partitions.draw(dice):
            met.setdefault(figures.key(group), group)
    groups = [*met.values()][:COSTED]
    costs = _costs(graph)
    figures, rooflines = (
        GroupFigures(costs, energy=False),
        Rooflines(costs, GroupFigures(costs).meter.by_rows),
    )
    price = _milliseconds(lambda: [costs.price(group) for group in groups])
    alone = _milliseconds(lambda: [surrogate.estimate(rooflines.read((group,))) for group in groups])
    judge = _milliseconds(lambda: [figures(group) for group in groups])
    return {
        "operators": len(costs.dataflow),
        "planner": price,
        "estimate": alone,
        "judge": judge,
        "judge over estimate": judge / alone,
    }


def _milliseconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return 1e3 * (time.process_time() - start) / COSTED


def _costs(graph: Graph) -> GroupCosts:
    return GroupCosts.of(graph, chip(CHIP, None, None), scheme="auto")


def _exact(
    figures: GroupFigures, surrogate: Surrogate | None, start: tuple[int, ...], options: argparse.Namespace
) -> Result:
    model = WeightedModel(figures.costs, figures, figures.least, CYCLES)
    if surrogate is None:
        end = time.process_time() + options.exact_seconds
        return solve(model, SearchOptions(passes=1, start=(start,), stop=lambda: time.process_time() > end))
    hopes = hopes_of(figures, surrogate=surrogate)
    return solve_lazily(
        WeightedModel(figures.costs, hopes, figures.least, CYCLES),
        hopes,
        SearchOptions(passes=1, start=(start,)),
    )


def _sampled(run: Callable[..., Result]) -> Search:
    def search(
        figures: GroupFigures,
        surrogate: Surrogate | None,
        start: tuple[int, ...],
        options: argparse.Namespace,
    ) -> Result:
        if surrogate is None:
            return run(
                WeightedModel(figures.costs, figures, figures.least, CYCLES),
                SearchOptions(budget=options.budget, start=(start,)),
            )
        hopes = hopes_of(figures, surrogate=surrogate)
        model = WeightedModel(figures.costs, hopes, figures.least, CYCLES)
        return run(model, SearchOptions(budget=options.budget, start=(start,), settle=settling(model, hopes)))

    return search


SEARCHES: dict[str, Search] = {"exact": _exact, "local": _sampled(improve), "nsga2": _sampled(evolve)}


def _searches(graph: Graph, surrogate: Surrogate, options: argparse.Namespace) -> list[Row]:
    start, rows = solve(_costs(graph), SearchOptions(time_limit=60)).groups, list[Row]()
    for name, search in {"fewest bytes": None, **SEARCHES}.items():
        for learnt in (None, surrogate) if search else (None,):
            figures, clock = GroupFigures(_costs(graph), energy=False), time.process_time()
            groups = search(figures, learnt, start, options).groups if search else start
            cpu_seconds = time.process_time() - clock
            cycles = sum(min(way.cycles for way in figures(group)) for group in groups)
            guided = "" if search is None else "yes" if learnt else "no"
            sys.stderr.write(
                f"{graph.name}: {name}{' guided' * (learnt is not None)}: {cycles:,} cycles, "
                f"{figures.timed:,} judged, {cpu_seconds:.0f} s\n"
            )
            rows.append(
                {
                    "search": name,
                    "guided": guided,
                    "cycles": cycles,
                    "judged": figures.timed,
                    "CPU s": cpu_seconds if search else np.nan,
                }
            )
    return rows


if __name__ == "__main__":
    main()
