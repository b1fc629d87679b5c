"""Train predictors and their explainers; measure what they will be used as: the stored weights, in NumPy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import torch

from explainers import train_pg, train_rg
from explainers.checker import Checker
from explainers.controls import analytic, by_need
from explainers.dataset import By, Dataset, Split, splits
from explainers.fidelity import measures
from explainers.fit import Checkpoint, ReportProgress, TrainingSettings, fit
from explainers.graph import FEATURES, KINDS, Batch, GroupGraph
from explainers.metrics import by_label, confusion, log_loss, measured
from explainers.minibatches import Material
from explainers.pg_explainer import LinkScores
from explainers.predictor import HIDDEN, LAYERS, SMALLEST_SPREAD, SURE, Forecast, Predictor
from explainers.rg_explainer import Agent, link_scores
from explainers.sampling import BETAS
from explainers.scheme_rule import ValidityQuery
from explainers.split import LINKS, Explain
from lfopt.ir import InvalidConfig
from lfopt.planning import SCHEMES

SCHEMA = "lfopt.card/1"
MEASURED = 300  # samples that explainers are measured on
NEAR = 0.25  # doublings between F_beta and the buffer
FACTORS = np.geomspace(0.25, 16, 121)  # by which all spreads may be multiplied


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """Weights as they are stored, and their model card."""

    weights: dict[str, np.ndarray]
    card: dict[str, Any]


def train_once(
    dataset: Dataset,
    parts: Split,
    settings: TrainingSettings,
    report: ReportProgress,
    checkpoint: Checkpoint | None = None,
    material: Material | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(weights as stored, by name, in the shapes of `ValidityGNN`; what the model card says of the training).

    Spreads are rescaled to suit the validation part.
    """
    weights, history = fit(dataset, parts, settings, report, checkpoint, material)
    factor = _factor(Predictor(weights), dataset, parts.validation)
    best = min(history, key=lambda epoch: epoch.validation)
    said = {
        "seed": settings.seed,
        "epochs": len(history),
        "best_epoch": best.number,
        "validation_loss": best.validation,
        "spread_factor": factor,
    }
    losses = [[epoch.loss, epoch.validation] for epoch in history]
    return _stored(rescaled(weights, factor, dataset.graphs(parts.validation))), {**said, "losses": losses}


def train_predictor(
    dataset: Dataset,
    by: By,
    settings: TrainingSettings,
    report: ReportProgress,
    seeds: int = 1,
    checkpoint: Callable[[int], Checkpoint] | None = None,
    material: Material | None = None,
) -> TrainedNetwork:
    """A predictor for the scheme of the data set: the best of `seeds` trainings by validation loss.

    `checkpoint`: of the training with a seed; `material`: prepared groups.
    """
    start = time.perf_counter()
    parts = splits(dataset, by, settings.seed)
    runs = [
        train_once(
            dataset,
            parts,
            replace(settings, seed=seed),
            report,
            checkpoint(seed) if checkpoint else None,
            material,
        )
        for seed in range(settings.seed, settings.seed + seeds)
    ]
    figures = [_figures(Predictor(stored), dataset, parts.test) for stored, _ in runs]
    chosen = min(range(seeds), key=lambda k: runs[k][1]["validation_loss"])
    stored, said = runs[chosen]
    accuracies = [part["accuracy"] for part in figures]
    return TrainedNetwork(
        stored,
        {
            "schema": SCHEMA,
            "what": f"least buffer that a fusion group runs whole from, scheme {dataset.scheme}: residual "
            "over a formula, in doublings, and spread",
            "network": (
                f"{LAYERS} GraphConv layers of {HIDDEN}, ReLU, sum aggregation (arXiv 2501.00636, section "
                f"IV-A); sums and maxima of operators, one layer of {HIDDEN}; "
                "residual, spread, whether it runs at all"
            ),
            "features": {"columns": FEATURES, "kinds": list(KINDS)},
            "data": described(dataset, parts, by),
            "settings": {**asdict(settings), "seeds": seeds, "split": by, "betas": list(BETAS)},
            **rounded(said),
            "seconds": round(time.perf_counter() - start, 1),
            "parameters": sum(value.size for value in stored.values()),
            "versions": _versions(),
            "metrics": {
                "validation": _figures(Predictor(stored), dataset, parts.validation),
                "test": figures[chosen],
                "test_rule": _figures(None, dataset, parts.test),
                "test_accuracy_over_seeds": rounded(
                    {"mean": fmean(accuracies), "standard_deviation": pstdev(accuracies), "seeds": seeds}
                ),
            },
        },
    )


def train_explainers(
    dataset: Dataset, predictor: Predictor, settings: TrainingSettings, count: int, report: ReportProgress
) -> dict[str, TrainedNetwork]:
    """PGExplainer and RG-Explainer for a predictor, by the names pg and rg.

    They learn from `count` samples (a group at a buffer size) of the training part of the random split, as
    `blamed` picks them, and are measured on up to MEASURED others of the test part. Raises InvalidConfig
    where there is no sample to learn from.
    """
    torch.set_num_threads(settings.threads)
    parts = splits(dataset, "random", settings.seed)
    rng = np.random.default_rng(settings.seed)
    queries, tests = (
        blamed(dataset, part, predictor, most, rng)
        for part, most in ((parts.train, count), (parts.test, min(MEASURED, count)))
    )
    if not queries:
        raise InvalidConfig(
            f"scheme {dataset.scheme}: the predictor calls no group invalid whose operators each fit alone; "
            "explainers have nothing to learn from"
        )
    embedded = [predictor.embed(test) for test in tests]
    beside = {
        "random_links": measures(
            [(test, rng.random(test.graph.links.shape[1])) for test in tests], predictor
        ),
        "analytic": measures([(test, _analytic(test)(test.mask)) for test in tests], predictor),
    }

    def trained_explainer(
        what: str,
        details: Any,
        trained: tuple[dict[str, np.ndarray], list[Any]],
        seconds: float,
        scores: Callable[..., Any],
    ) -> TrainedNetwork:
        card = {
            "schema": SCHEMA,
            "what": f"{what} for the predictor of scheme {dataset.scheme}; explained class: invalid",
            "data": {
                **origin(dataset),
                "part": "train, random split",
                "samples": len(queries),
                "measured_on": len(tests),
            },
            "settings": {**asdict(details), "seed": settings.seed, "threads": settings.threads},
            "seconds": round(seconds, 1),
            "epochs": rounded(trained[1]),
            "parameters": sum(value.size for value in trained[0].values()),
            "versions": _versions(),
            "metrics": rounded({"links_blamed": LINKS, **scores(trained[0]), **beside}),
        }
        return TrainedNetwork(trained[0], card)

    def of_pg(weights: dict[str, np.ndarray]) -> dict[str, Any]:
        given = LinkScores(weights)
        return measures(
            [(test, given(rows, test.graph.links)) for test, rows in zip(tests, embedded, strict=True)],
            predictor,
        )

    def of_rg(weights: dict[str, np.ndarray]) -> dict[str, Any]:
        agent = Agent(weights)
        orders = [agent.order(rows, test.graph.links) for test, rows in zip(tests, embedded, strict=True)]
        parts = [
            train_rg.part_of(test, order[:end]) for test, (order, end) in zip(tests, orders, strict=True)
        ]
        scores = [
            link_scores(*order, test.graph.links, len(test.graph))
            for test, order in zip(tests, orders, strict=True)
        ]
        own = {
            "share_of_operators": float(
                np.mean([end / len(test.graph) for test, (_, end) in zip(tests, orders, strict=True)])
            ),
            "invalid_alone": float((predictor.odds(parts) > 0).mean()),
        }
        return {**measures(list(zip(tests, scores, strict=True)), predictor), **own}

    pg = train_pg.PGSettings()
    rg = train_rg.RGSettings()
    start = time.perf_counter()
    by_pg = train_pg.train(predictor, queries, pg, settings.seed, report)
    middle = time.perf_counter()
    by_rg = train_rg.train(predictor, queries, rg, settings.seed, report)
    end = time.perf_counter()
    return {
        "pg": trained_explainer("PGExplainer", pg, (_stored(by_pg[0]), by_pg[1]), middle - start, of_pg),
        "rg": trained_explainer("RG-Explainer", rg, (_stored(by_rg[0]), by_rg[1]), end - middle, of_rg),
    }


def _analytic(query: ValidityQuery) -> Explain:
    """The analytic explainer for a group's network, chip, buffer and mode."""
    rule = query.rule
    checker = Checker.of(
        rule.flow, replace(rule.hardware, buffer_bytes=int(query.buffer_bytes)), rule.modes[0]
    )
    if rule.scheme in SCHEMES:
        return analytic(checker.costs)
    return by_need(rule.flow, checker.need)


def blamed(
    dataset: Dataset, groups: np.ndarray, predictor: Predictor, count: int, rng: np.random.Generator
) -> list[ValidityQuery]:
    """Up to `count` samples to explain, of groups (groups,) int64: each a group at a buffer size.

    The predictor calls them invalid, they have links, and each of their operators fits alone: where one does
    not, there is nothing to explain, and SPLIT takes it out beforehand.
    """
    candidates: list[tuple[int, int]] = []
    for few in np.array_split(rng.permutation(groups), max(len(groups) // 500, 1)):
        graphs = dataset.graphs(few)
        forecast = predictor.forecast(Batch.of(graphs))
        linked = np.array([graph.links.shape[1] > 0 for graph in graphs])
        for beta in BETAS:
            candidates += [
                (group, beta)
                for group in few[
                    linked & (forecast.invalid(beta) > 0.5) & (dataset.neediest[few] < beta)
                ].tolist()
            ]
        if len(candidates) >= 3 * count:
            break
    return [dataset.question(*candidates[k]) for k in rng.permutation(len(candidates))[:count].tolist()]


def _stored(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights by name in half precision, unless some are too large for it: then in single."""
    largest = max(float(np.abs(value).max(initial=0)) for value in weights.values())
    return {
        name: value.astype(np.float16 if largest < float(np.finfo(np.float16).max) else np.float32)
        for name, value in weights.items()
    }


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "torch-geometric", "numpy")}


def rescaled(
    weights: dict[str, np.ndarray], factor: float, graphs: Sequence[GroupGraph]
) -> dict[str, np.ndarray]:
    """Weights, by name in the same shapes, with spreads times a factor, and embeddings normalised.

    Embeddings of these graphs have a mean square of one in most channels. Explainers see the embeddings. A
    channel of the last layer can be scaled, as the head undoes it; those that are hardly used stay small.
    """
    embedded = Predictor(weights).embed_batch(Batch.of(graphs))
    size = np.sqrt(np.square(embedded, dtype=np.float64).mean(0))
    size = np.maximum(size, max(0.1 * float(np.median(size)), 1e-6)).astype(np.float32)
    last = f"convs.{LAYERS - 1}"
    smaller = {name: (value.T / size).T for name, value in weights.items() if name.startswith(f"{last}.")}
    enter = weights["head.0.weight"].copy()
    bias = weights["head.2.bias"].copy()
    enter[:, : 2 * HIDDEN] *= np.tile(size, 2)
    bias[1] += np.float32(math.log(factor))
    return {**weights, **smaller, "head.0.weight": enter, "head.2.bias": bias}


def origin(dataset: Dataset) -> dict[str, Any]:
    """Digest of a data set, and the command that makes it again."""
    return {"sha256": dataset.sha256, "command": dataset.command}


def described(dataset: Dataset, parts: Split, by: By) -> dict[str, Any]:
    """Model card's account of the parts: groups per network in each."""
    names = ("train", "validation", "test")
    counts = {
        name: np.bincount(dataset.network[getattr(parts, name)], minlength=len(dataset.networks))
        for name in names
    }
    networks = {
        source.stem: {"family": source.family, **{name: int(counts[name][n]) for name in names}}
        for n, source in enumerate(dataset.networks)
    }
    total = {name: int(counts[name].sum()) for name in names}
    return {
        **origin(dataset),
        "split": by,
        "groups": total,
        "samples_per_group": len(BETAS),
        "networks": networks,
    }


def _verdicts(forecast: Forecast, dataset: Dataset, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(probability of being invalid, whether invalid), (betas, groups) each, for groups (groups,)."""
    return np.array([forecast.invalid(beta) for beta in BETAS]), np.array(
        [dataset.needs[groups] >= beta for beta in BETAS]
    )


def _factor(predictor: Predictor, dataset: Dataset, groups: np.ndarray) -> float:
    """Factor of the spreads with the smallest log loss on these groups.

    Source: Guo et al., ICML 2017, section 4.2 (temperature).
    """
    forecast = predictor.forecast(Batch.of(dataset.graphs(groups)))
    losses = [
        log_loss(
            *map(np.ravel, _verdicts(forecast._replace(spread=factor * forecast.spread), dataset, groups))
        )
        for factor in FACTORS
    ]
    return float(FACTORS[np.argmin(losses)])


def _figures(predictor: Predictor | None, dataset: Dataset, groups: np.ndarray) -> dict[str, Any]:
    """All metrics of groups (groups,) int64; without a predictor, of the rule, taken for certain."""
    batch = Batch.of(dataset.graphs(groups))
    forecast = predictor.forecast(batch) if predictor else _certain(batch)
    probability, invalid = (array.ravel() for array in _verdicts(forecast, dataset, groups))
    owners = np.tile(groups, len(BETAS))
    near = np.abs(np.log2(np.divide.outer(dataset.needs[groups], BETAS))).T.ravel() < NEAR
    networks = np.array([source.stem for source in dataset.networks])[dataset.network[owners]]
    cuts = {
        "by_beta": np.repeat(BETAS, len(groups)),
        "by_family": dataset.families[owners],
        "by_network": networks,
    }
    return rounded({
        **measured(probability, invalid),
        "near": confusion(probability[near], invalid[near]),
        **{name: by_label(labels, probability, invalid) for name, labels in cuts.items()},
    })  # fmt: skip


def _certain(batch: Batch) -> Forecast:
    rule = np.log2(batch.units) + 1e-9
    sure = np.full(len(batch), 2 * SURE)
    return Forecast(
        rule, rule, np.full(len(batch), SMALLEST_SPREAD), sure, np.where(batch.never, sure, -sure)
    )


def rounded(figures: Any) -> Any:
    """Figures as a card shows them: five decimals, None for NaN."""
    if isinstance(figures, dict):
        return {key: rounded(value) for key, value in figures.items()}
    if isinstance(figures, float):
        if math.isnan(figures):
            return None
        return round(figures, 5)
    return figures
