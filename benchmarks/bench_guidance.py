"""What guidance brings a search at a small budget: its gap to the proven optimum, in-sample and beyond.

    python benchmarks/bench_guidance.py [--networks ...] [--kib 256] [--budget 300] [--seeds 5]
                                        [--searches ...] [--guidance ...] [--groups 40] [--limit SECONDS]
                                        [--jobs N] [--json FILE]

LBDF, DRAM traffic as in arXiv 2501.00636. Networks are names of the zoo, or ONNX files; those that the
shipped predictor, PG and RG have learnt from are marked `in-sample`. Unguided, groups that do not fit are
split at random. Gaps are means over seeds, in %; ± standard deviations.

Then how well the eight links that each explainer blames most stand for the predictor's verdict, on groups of
the same networks that random search meets and cannot run: fidelity+ (1 is best) and fidelity- (0 is best),
see `explainers.fidelity`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.guided import GUIDANCE, SEARCHES, Trials, TrialSettings, learnt_from, met
from benchmarks.results import Sheet, add_option, table_of
from explainers.fidelity import measures
from explainers.predictor import Predictor
from explainers.scheme_rule import ValidityQuery
from lfopt import zoo
from lfopt.app.batch.engine import in_order, processes, values
from lfopt.app.guidance import explainer, rule
from lfopt.app.options import GuidanceName
from lfopt.planning import GroupCosts

NETWORKS = ("efficientnet_b3", "resnet152", "deeplabv3_mobilenet_v3_large", "mobilenet_v2", "squeezenet1_1")
TITLES = {
    "none": "unguided",
    "random": "random links",
    "analytic": "analytic",
    "gnne": "GNNE",
    "pg": "PG",
    "rg": "RG",
}

Run = dict[str, Any]


def main() -> None:
    """Run every search with every guidance on every network, then ask every explainer, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks",
        nargs="+",
        default=list(NETWORKS),
        help="of the zoo, or ONNX files (default %(default)s)",
    )
    parser.add_argument("--kib", type=int, default=256, help="buffer (default %(default)s)")
    parser.add_argument("--budget", type=int, default=300, help="plans per run (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each search (default %(default)s)")
    parser.add_argument(
        "--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES), help="default: all"
    )
    chosen = [name for name in GUIDANCE if name != "gnne"]
    parser.add_argument(
        "--guidance",
        nargs="+",
        choices=GUIDANCE,
        default=chosen,
        help="default: all but gnne, which fits a mask to every group",
    )
    parser.add_argument(
        "--groups",
        type=int,
        default=40,
        help="groups of a network that explainers are asked about (default %(default)s)",
    )
    parser.add_argument("--limit", type=float, help="seconds a run (default: none)")
    parser.add_argument("--jobs", type=int, default=1, help="searches at once (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    add_option(parser)
    options = parser.parse_args()
    settings = TrialSettings(tuple(options.guidance), options.budget, options.seeds, options.limit)
    sheet, start = Sheet("guidance", options.results), time.perf_counter()
    ask = partial(asked, kib=options.kib, settings=settings, groups=options.groups)
    jobs = [(network, search) for network in options.networks for search in (*options.searches, "")]
    runs: list[Run] = []
    judged: list[Run] = []
    for gaps, fidelities in in_order(
        values(ask, jobs, processes(options.jobs, "bench_guidance --jobs", "learn"))
    ):
        runs += gaps
        judged += fidelities
        if options.json:
            options.json.write_text(json.dumps({"runs": runs, "fidelity": judged}, indent=1) + "\n")
    sheet.show(_table(runs, settings, options))
    if judged:
        sheet.show(table_of("fidelity+ and fidelity- of the eight links that are blamed most", judged, 2))
    sheet.show(f"{time.perf_counter() - start:.0f} s")
    sheet.write()


def asked(
    job: tuple[str, str], kib: int, settings: TrialSettings, groups: int
) -> tuple[list[Run], list[Run]]:
    """(runs of a search on a network, []); for search "", ([], fidelities of explainers on its groups)."""
    network, search = job
    trials = Trials.of(f"zoo:{network}" if network in zoo.names() else network, kib)
    title = f"{Path(network).stem}{' (in-sample)' if network in learnt_from() else ''}"
    if not search:
        costs = trials.costs()
        assert isinstance(costs, GroupCosts)
        return [], _fidelities(costs, title, [name for name in settings.guidance if name != "none"], groups)
    assert settings.budget is not None
    return [
        {
            "network": title,
            "search": search,
            "guidance": guidance,
            "seed": result.seed,
            "plans": result.plans_evaluated,
            "dram_bytes": result.dram_bytes,
            "lower_bound_bytes": trials.best.lower_bound_bytes,
            "proof": trials.best.proof,
            "gap": result.dram_bytes / trials.best.lower_bound_bytes - 1,
            "seconds": result.seconds,
        }
        for guidance, result, _ in trials.run(search, settings.budget, settings)
    ], []


def _fidelities(costs: GroupCosts, title: str, names: list[GuidanceName], groups: int) -> list[Run]:
    """Of groups that the predictor calls invalid, without operators that do not fit by themselves."""
    beta, scheme_rule, predictor = costs.hardware.buffer_bytes, rule(costs), Predictor.load(costs.scheme)
    queries = [ValidityQuery(scheme_rule, mask, beta) for mask in met(costs, "RS", 0, groups)]
    invalid = (
        [each for each, odds in zip(queries, predictor.odds(queries), strict=True) if odds > 0]
        if queries
        else []
    )
    rows: list[Run] = []
    for name in names if invalid else []:
        explain = explainer(costs, name, 0)
        figures = measures([(each, explain(each.mask)) for each in invalid], predictor)
        rows.append({
            "network": title, "explainer": TITLES[name], "groups": int(figures["groups"]),
            "fidelity+": figures["fidelity_plus"], "fidelity-": figures["fidelity_minus"],
        })  # fmt: skip
    return rows


def _table(runs: list[Run], settings: TrialSettings, options: argparse.Namespace) -> Table:
    """A row for each network and search, a column for each guidance."""
    rows: list[dict[str, Any]] = []
    for network in dict.fromkeys(run["network"] for run in runs):
        for k, search in enumerate(options.searches):
            by_guidance = {
                name: [
                    run
                    for run in runs
                    if (run["network"], run["search"], run["guidance"]) == (network, search, name)
                ]
                for name in settings.guidance
            }
            first = next(iter(by_guidance.values()))[0]
            best = f"{'' if first['proof'] == 'optimal' else '>= '}{first['lower_bound_bytes'] / 1e6:.2f}"
            rows.append(
                {"network": "" if k else network, "optimum, MB": "" if k else best, "search": search}
                | {
                    TITLES[name]: _spread([100 * run["gap"] for run in each]) if each else "-"
                    for name, each in by_guidance.items()
                }
            )
    return table_of(
        f"gap to the optimum in %, {options.kib} KiB, {settings.budget} plans, {settings.seeds} seeds", rows
    )


def _spread(gaps: list[float]) -> str:
    return f"{fmean(gaps):.1f} ±{pstdev(gaps):.1f}"


if __name__ == "__main__":
    main()
