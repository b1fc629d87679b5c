"""Predictors of validity beside simple baselines on families they have not learnt from; cost of a verdict.

One core.

    python benchmarks/bench_validity.py [--data FOLDER] [--schemes ...] [--models FILE-OR-FOLDER ...]
                                        [--groups 11000] [--drawn 6] [--families SEEDS] [--jobs 1]
                                        [--networks ...] [--plans 40] [--budget 1000] [--seeds 3]
                                        [--json FILE] [--cards FOLDER]

First every family of a data set is left out in turn (`benchmarks.families`). The data set is made in the
folder if it is not there (`lfopt dataset`): the zoo, networks drawn at random, and the models given. The
network is trained anew for every fold, with --families; what was trained is kept in the folder, so a run that
was ended goes on. For three seeds of three schemes that takes about an hour and a half of one core.

--cards: also write a card for every scheme that no network ships for, with the figures of its rule and of
what learns.

Then what a verdict on a group costs: on the groups of the data set, by the rule and by the exact checker; on
those of some networks, by the predictor and the planner too; and what screening brings to a search.

The latter groups are those that random search meets at 256 KiB (traffic paper under lbdf, once under brr).
Each starts knowing nothing of them:

    rule       the formula, all groups at once
    predictor  the formula, features and network in NumPy, all groups at once
    checker    F_beta of every group
    planner    steps and places in the buffer of every group that runs whole from it: the cheapest thing that
               a compiler must do to say yes

Then local search, unguided and guided by the analytic explainer: plain, and with the rule deciding which
groups are worth a check. Checks are what the checker was asked for. If a check took c seconds more than it
does, screening would pay from c = (seconds lost) / (checks saved) on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.families import (
    DISTANCES,
    JUDGES,
    FamilyFigures,
    ValiditySamples,
    band,
    forecasts,
    left_out,
    train_unseen,
)
from benchmarks.results import Sheet, add_option, table_of
from explainers.checker import Checker, LabelScheme
from explainers.dataset import Dataset
from explainers.predictor import Predictor
from explainers.sampling import BETAS, EDGES
from explainers.scheme_rule import SchemeRule
from explainers.train import SCHEMA, origin, rounded
from lfopt import zoo
from lfopt.app.commands.dataset import IN_PAPER, dataflow, dataset
from lfopt.app.config import PREDICTED
from lfopt.app.guidance import explainer, rule, screener, splitter
from lfopt.app.screen import progress_line
from lfopt.frontend import from_model
from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic, plan_groups
from lfopt.rewrite import simplify
from search.exact import solve
from search.local import improve
from search.options import SearchOptions
from search.partition import Partitions, Rng

CHIP = Hardware(256 << 10)
NETWORKS = ("mobilenet_v2", "resnet50", "efficientnet_b3")
GATED = ("efficientnet_b3",)  # squeeze-and-excite: not under brr, as in the paper
PLANNED = 200  # groups that the planner plans

Row = dict[str, Any]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("build/validity"),
        help="folder of the data set (default %(default)s)",
    )
    parser.add_argument(
        "--schemes",
        nargs="+",
        choices=get_args(LabelScheme),
        default=PREDICTED,
        help="default: those with a predictor, %(default)s; of others alone, the page is validity-modes",
    )
    parser.add_argument(
        "--models", nargs="+", default=[], help="ONNX files, or folders of them, beside the zoo"
    )
    parser.add_argument(
        "--groups",
        type=int,
        default=11_000,
        help="of each scheme, where the data set is made (default %(default)s)",
    )
    parser.add_argument(
        "--drawn",
        type=int,
        default=6,
        help="networks drawn at random of each family of cells (default %(default)s)",
    )
    parser.add_argument(
        "--networks", nargs="+", choices=zoo.names(), default=NETWORKS, help="default: %(default)s"
    )
    parser.add_argument(
        "--plans", type=int, default=40, help="random plans whose groups are judged (default %(default)s)"
    )
    parser.add_argument(
        "--budget", type=int, default=1000, help="plans of a local search (default %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each search (default %(default)s)")
    parser.add_argument(
        "--families",
        type=int,
        default=0,
        metavar="SEEDS",
        help="networks to train for each fold, if not there",
    )
    parser.add_argument(
        "--learn", type=int, metavar="SAMPLES", help="baselines learn from so many at most (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes that learn (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--cards", type=Path, help="folder of cards for schemes without a network")
    add_option(parser)
    options = parser.parse_args()
    others = not set(options.schemes).intersection(PREDICTED)
    sheet = Sheet("validity-modes" if others else "validity", options.results)
    accuracy: list[Row] = []
    costs: list[Row] = []
    for scheme in options.schemes:
        dataset(
            *options.models, out_dir=options.data, scheme=scheme, groups=options.groups, drawn=options.drawn
        )
        data = Dataset.read(options.data, scheme, dataflow)
        accuracy += _accuracy(sheet, data, options)
        costs.append(_rule_and_checker(data))
    sheet.show(table_of("a verdict on a group of the data set, nothing known before", costs))
    verdicts: list[Row] = []
    searches: list[Row] = []
    for name in options.networks:
        flow = Dataflow.of(simplify(from_model(zoo.build(name, weights=False))))
        for scheme in IN_PAPER:
            if scheme not in options.schemes or (scheme == "brr" and name in GATED):
                continue
            verdicts.append({"network": name, "scheme": scheme, **_verdicts(flow, scheme, options.plans)})
            searches += [
                {"network": name, "scheme": scheme, **row}
                for row in _searches(flow, scheme, options.budget, options.seeds)
            ]
    if verdicts:
        sheet.show(table_of("groups a second, nothing known before", verdicts))
        sheet.show(
            table_of(f"local search, {options.budget:,} plans, {options.seeds} seeds: means", searches)
        )
    sheet.write()
    if options.json:
        options.json.write_text(
            json.dumps(
                {"accuracy": accuracy, "costs": costs, "verdicts": verdicts, "searches": searches}, indent=1
            )
            + "\n"
        )


def _accuracy(sheet: Sheet, data: Dataset, options: argparse.Namespace) -> list[Row]:
    """Each family left out: figures by judge, and by family."""
    scheme = data.scheme
    with progress_line() as report:
        if options.families:
            train_unseen(options.data, data, options.families, options.jobs, lambda what: report(what, 0.0))
        samples = ValiditySamples.of(data, forecasts(options.data, data))
        names = np.unique(samples.family).tolist()
        probabilities = left_out(
            samples, [*JUDGES], options.jobs, lambda what: report(f"{scheme}: {what}", 0.0), options.learn
        )
    figures = {judge: FamilyFigures.of(samples, probability) for judge, probability in probabilities.items()}
    bands = [band(least, most) for least, most in pairwise((0.0, *DISTANCES))]
    rows = [
        {
            "judge": judge, "accuracy": of.mean("accuracy"), "±": of.interval("accuracy"),
            **{
                name: of.mean(key)
                for key, name in (
                    ("f1", "F1"), ("auroc", "AUROC"), ("ece", "ECE"), ("valid_called_invalid", "valid lost"),
                )
            },
            "worst": of.worst("accuracy")[0], "family": of.worst("accuracy")[1],
        }
        for judge, of in figures.items()
    ]  # fmt: skip
    distances = [
        {
            "judge": judge,
            **{
                key: value
                for name in bands
                for key, value in ((name, of.mean(name)), (f"± {name}", of.interval(name)))
            },
        }
        for judge, of in figures.items()
    ]
    if options.cards and scheme not in PREDICTED:
        (options.cards / f"{scheme}.json").write_text(
            json.dumps(_card(data, figures, bands[0]), indent=1) + "\n"
        )
    title = (
        f"{scheme}: {len(samples.family):,} samples of {len(names)} families, "
        "each left out in turn; means over families"
    )
    if options.learn:
        title += f". logistic and trees learn from {options.learn:,} of the others"
    sheet.show(table_of(title, rows, digits=4))
    sheet.show(
        table_of(f"{scheme}: accuracy by doublings between F_beta and the buffer", distances, digits=3)
    )
    kinds = {
        "attention": samples.attending,
        "no attention": frozenset(names) - samples.attending,
    }
    by_attention = [
        {
            "judge": judge,
            **{
                f"{which}{where}": of.mean(key, families)
                for which, families in kinds.items()
                for key, where in (("accuracy", ""), (bands[0], f", {bands[0]}"))
            },
        }
        for judge, of in figures.items()
    ]
    counts = ", ".join(f"{which}: {', '.join(sorted(of))}" for which, of in kinds.items() if of)
    sheet.show(
        table_of(f"{scheme}: accuracy, families with attention and without apart", by_attention, digits=4)
    )
    sheet.show(f"{scheme}: {counts}")
    for judge, of in figures.items():
        if judge not in ("schedule", "sums"):
            more = [FamilyFigures.difference(of, figures["schedule"], key) for key in ("accuracy", bands[0])]
            differences = " and ".join(
                f"{mean:+.4f} ± {half:.4f} {where}"
                for (mean, half), where in zip(more, ("in all", bands[0]), strict=True)
            )
            sheet.show(f"{scheme}: {judge} over schedule: {differences} (95 % intervals over families)")
    for key, what in (("accuracy", "all samples"), (bands[0], f"samples {bands[0]} doublings")):
        families = [
            {"family": family, **{judge: of.by_family[family][key] for judge, of in figures.items()}}
            for family in names
        ]
        sheet.show(table_of(f"{scheme}: accuracy by family, {what}", families, digits=3))
        rows += [{"samples": what, **row} for row in families]
    return [{"scheme": scheme, **row} for row in (*rows, *distances, *by_attention)]


def _card(data: Dataset, figures: Mapping[str, FamilyFigures], near: str) -> dict[str, Any]:
    """What is said of a rule that ships without a network."""
    metrics: dict[str, Any] = {}
    for judge, of in figures.items():
        apart = {key: FamilyFigures.difference(of, figures["schedule"], key) for key in ("accuracy", near)}
        over = {key: {"mean": mean, "half_of_95_percent": half} for key, (mean, half) in apart.items()}
        metrics[judge] = {
            "accuracy": of.mean("accuracy"),
            near: of.mean(near),
            "worst_family": of.worst("accuracy")[1],
            "over_schedule": over,
        }
    ahead = [
        judge
        for judge, figures_of in metrics.items()
        if any(over["mean"] > over["half_of_95_percent"] for over in figures_of["over_schedule"].values())
    ]
    said = (
        f"ahead of it on families left out: {', '.join(ahead)}"
        if ahead
        else "nothing that learns is ahead of it on families left out"
    )
    counts = {
        source.stem: {"family": source.family, "groups": len(shard)}
        for source, shard in zip(data.networks, data.shards, strict=True)
    }
    return {
        "schema": SCHEMA,
        "what": f"least buffer that a fusion group runs whole from, mode {data.scheme}: a rule without "
        f"parameters (schedule), no network; {said}",
        "data": {**origin(data), "groups": len(data), "samples_per_group": len(BETAS), "networks": counts},
        "metrics": rounded(metrics),
    }


def _rule_and_checker(data: Dataset) -> Row:
    """CPU time: by the rule, all groups of a network at once; by the checker, one after the other."""

    def by_rule(n: int) -> np.ndarray:
        return SchemeRule(data.flow(n), data.chip(n), data.scheme).of(data.masks(n))

    def by_checker(n: int) -> list[int]:
        return [*map(Checker.of(data.flow(n), data.chip(n), data.scheme).need, data.masks(n))]

    networks, runs = range(len(data.networks)), float((data.needs < EDGES[-1]).mean())
    times = {
        name: 1e3 * _seconds(lambda way=way: [*map(way, networks)]) / len(data)
        for name, way in (("rule", by_rule), ("checker", by_checker))
    }
    return {
        "scheme": data.scheme,
        "groups": len(data),
        "run so %": 100 * runs,
        **{f"{name} ms": value for name, value in times.items()},
    }


def _verdicts(flow: Dataflow, scheme: LabelScheme, plans: int) -> Row:
    groups = _met(_costs(flow, scheme), plans)
    predictor, checker = Predictor.load(scheme), Checker.of(flow, CHIP, scheme)
    legal = [group for group in groups if checker.need(group) < CHIP.buffer_bytes][:PLANNED]
    operators = sum(group.bit_count() for group in groups)
    by_rule = _seconds(lambda: SchemeRule(flow, CHIP, scheme).of(groups))
    by_predictor = _seconds(lambda: predictor.forecast(SchemeRule(flow, CHIP, scheme).groups.batch(groups)))
    fresh, known = Checker.of(flow, CHIP, scheme), Checker.of(flow, CHIP, scheme).costs
    by_checker = _seconds(lambda: [fresh.need(group) for group in groups])
    before = _seconds(lambda: [known.evaluate(group) for group in legal])
    by_planner = _seconds(lambda: plan_groups(known, tuple(legal))) + before
    return {
        "groups": len(groups), "operators": operators / len(groups), "rule": len(groups) / by_rule,
        "predictor": len(groups) / by_predictor, "operators a second": operators / by_predictor,
        "checker": len(groups) / by_checker, "planner": len(legal) / by_planner,
    }  # fmt: skip


def _met(costs: GroupCosts, plans: int) -> list[int]:
    """Different groups that random search asks about."""
    met: dict[int, None] = {}

    class Recorded(Partitions):
        def price(self, mask: int) -> Any:
            met[mask] = None
            return super().price(mask)

    partitions, dice = Recorded(costs), Rng(0)
    for _ in range(plans):
        partitions.draw(dice)
    return list(met)


def _searches(flow: Dataflow, scheme: LabelScheme, budget: int, seeds: int) -> list[Row]:
    best = solve(_costs(flow, scheme), SearchOptions(time_limit=60)).lower_bound_bytes
    table_rows: list[Row] = []
    for guided in (False, True):
        for screened in (False, True):
            rows = [
                _search(flow, scheme, budget, seed, guided=guided, screened=screened) for seed in range(seeds)
            ]
            gap = fmean(row["dram_bytes"] for row in rows) / best - 1
            means = {key: fmean(row[key] for row in rows) for key in ("seconds", "checks", "unchecked")}
            table_rows.append(
                {
                    "guidance": "analytic" if guided else "none",
                    "screened": "yes" if screened else "no",
                    "gap %": 100 * gap,
                    **means,
                }
            )
    return table_rows


def _search(
    flow: Dataflow, scheme: LabelScheme, budget: int, seed: int, *, guided: bool, screened: bool
) -> Row:
    costs = _costs(flow, scheme)
    partitions = Partitions(costs)
    split = splitter(explainer(costs, "analytic", seed), partitions) if guided else None
    screen = screener(rule(costs)) if screened else None
    start = time.process_time()
    result = improve(
        costs, SearchOptions(budget=budget, seed=seed, partitions=partitions, split=split, screen=screen)
    )
    return {
        "dram_bytes": result.dram_bytes, "seconds": time.process_time() - start, "checks": partitions.judged,
        "unchecked": result.repairs.screened,
    }  # fmt: skip


def _costs(flow: Dataflow, scheme: LabelScheme) -> GroupCosts:
    return GroupCosts(
        flow, CHIP, Traffic.PAPER if scheme == "lbdf" else Traffic.ONCE, scheme=scheme, epilogue=False
    )


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
