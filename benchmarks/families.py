"""Accuracy of judges of validity on unseen families of networks, each family left out in turn.

Judges say how likely a group is not to run whole from a buffer:

    sums, schedule   formulas without parameters (`explainers.formulas`), the second by the scheme; they are
                     compared with the buffer; how sure that is comes from one number, fitted
    logistic, trees  logistic regression, and boosted trees, on the sums and maxima of what the network reads
                     of each operator
    trees+           boosted trees on those and on how far both formulas are from the buffer
    network          what ships (`explainers.predictor`), trained anew without the family, and without two or
                     three others (FOLDS); one for each seed
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from explainers.beyond_formulas import BeyondFormulas
from explainers.dataset import Dataset, splits
from explainers.fit import TrainingSettings, prepared
from explainers.graph import FEATURES, Batch, kind, member_table, resized
from explainers.metrics import log_loss, measured
from explainers.minibatches import Material
from explainers.predictor import Forecast, Predictor, sigmoid
from explainers.sampling import BETAS, batches
from explainers.scheme_rule import FORMULAS
from explainers.train import train_once
from lfopt.app.files import write_with

NEVER = 2.0**62  # bytes: what a formula says of a group that cannot run
FOLDS = 6  # in which families are left out together where a network is trained
DISTANCES = (0.25, 0.5, 1.0, np.inf)  # doublings between F_beta and the buffer, at the most
# (samples,) bool, those asked about -> their probabilities of being invalid
Verdicts = Callable[[np.ndarray], np.ndarray]
Fit = Callable[["ValiditySamples", np.ndarray], Verdicts]  # (samples; (samples,) bool, those to learn from)


@dataclass(frozen=True, eq=False)
class ValiditySamples:
    """Groups at buffer sizes."""

    family: np.ndarray  # (samples,) str
    invalid: np.ndarray  # (samples,) bool
    distance: np.ndarray  # (samples,) float64: doublings between F_beta and the buffer
    # (samples, 2 x FEATURES + 1) float32: sums and maxima over operators, and how many there are
    columns: np.ndarray
    over: Mapping[str, np.ndarray]  # formula -> (samples,) float64: doublings of what it says over the buffer
    # (samples,) float64 each: probability by a network that has not learnt from the family
    networks: Sequence[np.ndarray]
    attending: frozenset[str] = frozenset()  # families with products of two maps, as attention has them

    @classmethod
    def of(cls, data: Dataset, forecasts: Sequence[Forecast] = ()) -> ValiditySamples:
        """Every group of a data set at every one of BETAS, with the forecasts of trained networks."""
        parts: list[tuple[np.ndarray, ...]] = []
        attending: set[str] = set()
        for n, source in enumerate(data.networks):
            flow, masks, needs = data.flow(n), data.masks(n), data.shards[n].need
            formulas, members = BeyondFormulas(flow, data.chip(n)), member_table(masks, len(flow))
            says = [
                np.minimum(formula(formulas, members), NEVER)
                for formula in (BeyondFormulas.by_sums, FORMULAS[data.scheme])
            ]
            if any(kind(flow, i) == "product" for i in range(len(flow))):
                attending.add(source.family)
            graphs = [batch for _, batch in batches(data.rules(n).groups, masks)]
            here = data.network == n
            for beta in BETAS:
                columns = np.concatenate([_columns(batch, beta) for batch in graphs])
                far = np.abs(np.log2(needs / beta))
                guessed = (
                    np.array([forecast.invalid(beta)[here] for forecast in forecasts])
                    .reshape(-1, len(masks))
                    .T
                )
                parts.append(
                    (
                        np.full(len(masks), source.family),
                        needs >= beta,
                        far,
                        columns,
                        *(np.log2(need / beta) for need in says),
                        guessed,
                    )
                )
        family, invalid, distance, columns, sums, schedule, networks = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        over = {"sums": sums, "schedule": schedule}
        return cls(family, invalid, distance, columns, over, [*networks.T], frozenset(attending))

    @cached_property
    def wide(self) -> np.ndarray:
        """(samples, columns): with the formulas."""
        return np.concatenate([self.columns, *(column[:, None] for column in self.over.values())], 1).astype(
            np.float32
        )


def _columns(batch: Batch, buffer_bytes: int) -> np.ndarray:
    sizes = np.diff(np.append(batch.starts, len(batch.features)))
    features = resized(batch.features, buffer_bytes / batch.units[batch.group])
    sums, maxima = (of.reduceat(features, batch.starts, axis=0) for of in (np.add, np.maximum))
    columns = np.concatenate((sums, maxima, sizes[:, None]), 1).astype(np.float32)
    assert columns.shape[1] == 2 * FEATURES + 1
    return columns


def _formula(name: str) -> Fit:
    def fit(samples: ValiditySamples, known: np.ndarray) -> Verdicts:
        over = np.clip(samples.over[name], -20, 20)
        widths = np.geomspace(0.002, 2, 60)
        width = widths[
            np.argmin([log_loss(sigmoid(over[known] / width), samples.invalid[known]) for width in widths])
        ]
        return lambda tested: np.where(
            samples.over[name][tested] >= 0,
            np.maximum(sigmoid(over[tested] / width), 0.5 + 1e-9),
            sigmoid(over[tested] / width),
        )

    return fit


def _learnt(make: Callable[[], Any], *, wide: bool = False) -> Fit:
    def fit(samples: ValiditySamples, known: np.ndarray) -> Verdicts:
        columns = samples.wide if wide else samples.columns
        with threadpool_limits(1):  # threads that wait for one another are slow where cores are shared
            model = make().fit(columns[known], samples.invalid[known])
        return lambda tested: model.predict_proba(columns[tested])[:, 1]

    return fit


JUDGES: dict[str, Fit] = {
    "sums": _formula("sums"),
    "schedule": _formula("schedule"),
    "logistic": _learnt(lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))),
    "trees": _learnt(lambda: HistGradientBoostingClassifier(random_state=0)),
    "trees+": _learnt(lambda: HistGradientBoostingClassifier(random_state=0), wide=True),
}


def left_out(
    samples: ValiditySamples,
    judges: Sequence[str],
    jobs: int,
    report: Callable[[str], None],
    most: int | None = None,
) -> dict[str, np.ndarray]:
    """Probabilities by judge, (samples,) each: of every family by one that learnt from all others.

    `most`: samples of the others that are learnt from, drawn with a fixed seed; None: all.
    """
    probabilities = {judge: np.zeros(len(samples.family)) for judge in judges}
    order = np.random.default_rng(0).permutation(len(samples.family))

    def without(family: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        tested, known = samples.family == family, np.zeros(len(samples.family), bool)
        known[order[~tested[order]][:most]] = True
        return tested, {judge: JUDGES[judge](samples, known)(tested) for judge in judges}

    names = np.unique(samples.family).tolist()
    finished = Parallel(jobs, return_as="generator_unordered")(delayed(without)(family) for family in names)
    for done, (tested, said) in enumerate(
        cast("Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]", finished), 1
    ):
        for judge, probability in said.items():
            probabilities[judge][tested] = probability
        report(f"{done} of {len(names)} families left out")
    return probabilities | {f"network {k}": probability for k, probability in enumerate(samples.networks)}


def folds(data: Dataset) -> list[list[str]]:
    """Families that are left out together: every one once."""
    names = np.unique(data.families)
    order = np.random.default_rng(0).permutation(names).tolist()
    return [order[k::FOLDS] for k in range(min(FOLDS, len(order)))]


def kept(folder: Path, data: Dataset, seed: int, fold: int) -> Path:
    """Where it is kept what a network says of a fold."""
    return folder / "left_out" / data.scheme / f"{data.sha256[:12]}-{seed}-{fold}.npz"


def train_unseen(folder: Path, data: Dataset, seeds: int, jobs: int, report: Callable[[str], None]) -> None:
    """Train a network for each seed and fold whose forecasts are not kept already, and keep them."""
    wanted = [
        (seed, k)
        for seed in range(seeds)
        for k in range(len(folds(data)))
        if not kept(folder, data, seed, k).exists()
    ]
    if not wanted:
        return
    report(f"{data.scheme}: groups as graphs")
    material = prepared(data, TrainingSettings(), lambda what, done: None)

    def one(seed: int, k: int) -> tuple[int, int]:
        forecast = unseen(data, folds(data)[k], TrainingSettings(seed=seed), material)
        path = kept(folder, data, seed, k)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_with(path, lambda file: np.savez_compressed(file, **forecast._asdict()))
        return seed, k

    finished = cast(
        "Iterator[tuple[int, int]]",
        Parallel(jobs, return_as="generator_unordered")(delayed(one)(*each) for each in wanted),
    )
    for done, (seed, k) in enumerate(finished, 1):
        report(
            f"{data.scheme}: {done} of {len(wanted)} networks, "
            f"the last without {', '.join(folds(data)[k])}, seed {seed}"
        )


def forecasts(folder: Path, data: Dataset) -> list[Forecast]:
    """Of every group by a network that was trained without its family: one for each seed that is complete."""
    runs: list[Forecast] = []
    where = [np.isin(data.families, fold) for fold in folds(data)]
    while all(kept(folder, data, len(runs), k).exists() for k in range(len(where))):
        whole = np.zeros((len(Forecast._fields), len(data)))
        for k, mask in enumerate(where):
            with np.load(kept(folder, data, len(runs), k)) as archive:
                whole[:, mask] = [archive[name] for name in Forecast._fields]
        runs.append(Forecast(*whole))
    return runs


def unseen(
    data: Dataset, fold: Sequence[str], settings: TrainingSettings, material: Material | None = None
) -> Forecast:
    """What a network that is trained without some families says of their groups, in order."""
    parts = splits(data, "family", settings.seed, fold)
    weights, _ = train_once(data, parts, settings, lambda what, done: None, material=material)
    return Predictor(weights).forecast(Batch.of(data.graphs(parts.test)))


@dataclass(frozen=True)
class FamilyFigures:
    """What is said of one judge: by family, and means over families."""

    # family -> accuracy, f1, auroc, ece, valid_called_invalid, and accuracy within each of DISTANCES
    by_family: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, samples: ValiditySamples, probability: np.ndarray) -> FamilyFigures:
        """Of probabilities that groups are invalid."""
        by_family: dict[str, dict[str, float]] = {}
        for family in np.unique(samples.family).tolist():
            here = samples.family == family
            right = (probability > 0.5) == samples.invalid
            figures = {
                key: value
                for key, value in measured(probability[here], samples.invalid[here]).items()
                if key in KEPT
            }
            least = 0.0
            for most in DISTANCES:
                near = here & (samples.distance >= least) & (samples.distance < most)
                figures[band(least, most)] = float(right[near].mean()) if near.any() else np.nan
                least = most
            by_family[family] = figures
        return cls(by_family)

    def mean(self, key: str, families: Container[str] | None = None) -> float:
        """Over families that have it, or over those of these that do; NaN if none does."""
        values = [
            figures[key]
            for family, figures in self.by_family.items()
            if not np.isnan(figures[key]) and (families is None or family in families)
        ]
        return fmean(values) if values else np.nan

    def interval(self, key: str) -> float:
        """Half of a 95 % interval of the mean over families."""
        values = self._values(key)
        return 1.96 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else np.nan

    @staticmethod
    def difference(first: FamilyFigures, second: FamilyFigures, key: str) -> tuple[float, float]:
        """(mean over families, half of its 95 % interval) of the first less the second."""
        both = [(first.by_family[family][key], figures[key]) for family, figures in second.by_family.items()]
        differences = [one - other for one, other in both if not np.isnan(one)]
        return fmean(differences), 1.96 * stdev(differences) / len(differences) ** 0.5 if len(
            differences
        ) > 1 else np.nan

    def worst(self, key: str) -> tuple[float, str]:
        """The least, and the family."""
        return min(
            (figures[key], family) for family, figures in self.by_family.items() if not np.isnan(figures[key])
        )

    def _values(self, key: str) -> list[float]:
        return [figures[key] for figures in self.by_family.values() if not np.isnan(figures[key])]


KEPT = ("accuracy", "f1", "auroc", "ece", "valid_called_invalid")


def band(least: float, most: float) -> str:
    """Name of a range of distances.

    >>> band(0.0, 0.25), band(1.0, np.inf)
    ('within 0.25', 'over 1')
    """
    return f"over {least:g}" if most == np.inf else f"within {most:g}"
