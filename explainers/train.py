"""Train the network that predicts validity; measure what it will be used as: the stored weights, in NumPy.

A group's label at a buffer size follows from its F_beta, so besides the five sizes of the data set, groups are also shown at sizes near their F_beta:
what is learnt is where the border lies, not which sizes are common. Groups in pieces are shown too, for the explainers' sake
(`explainers.counterfactuals`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from explainers import train_pg, train_rg
from explainers.dataset import By, Dataset, Split, splits
from explainers.fidelity import measures
from explainers.graph import FEATURES, KINDS, Batch, GroupGraph, resized
from explainers.metrics import by as by_label
from explainers.metrics import log_loss, measured
from explainers.minibatches import Minibatch, collate, in_pieces, shown, whole
from explainers.model import HIDDEN, LAYERS, Network
from explainers.pg_explainer import LinkScores
from explainers.predictor import Predictor, sigmoid
from explainers.rg_explainer import Agent, link_scores
from explainers.sampling import BETAS
from explainers.split import LINKS
from lfopt.ir import InvalidConfig

SCHEMA = "lfopt.card/1"
AT_ONCE = 20_000  # operators that are measured together
STEPS = 16  # minibatches at least, however small the data set
MEASURED = 300  # samples that explainers are measured on

Report = Callable[[str, float], None]  # (what is going on, how much of it is done)


@dataclass(frozen=True)
class Settings:
    """How to train."""

    epochs: int = 50  # at most
    patience: int = 12  # epochs without a smaller loss on the validation part before training ends
    seed: int = 0
    threads: int = 1
    rate: float = 2e-3  # largest learning rate of Adam; it rises for a tenth of the steps, then falls
    operators: int = 3000  # per step
    near: float = 0.5  # share of groups that are shown at a buffer size near their F_beta
    cut: int = 2  # ways in which every group is cut into pieces
    cut_sizes: int = 2  # buffer sizes at which each of these is shown in an epoch


@dataclass(frozen=True, eq=False)
class Trained:
    """Weights as they are stored, and what is said of them."""

    weights: dict[str, np.ndarray]
    card: dict[str, Any]


def train_predictor(dataset: Dataset, by: By, settings: Settings, report: Report) -> Trained:
    """A predictor for the scheme of the data set."""
    torch.set_num_threads(settings.threads)
    start = time.perf_counter()
    parts = splits(dataset, by, settings.seed)
    network, history = _fit(dataset, parts, settings, report)
    weights = {name: value.detach().numpy() for name, value in network.state_dict().items()}
    temperature = _temperature(*_verdicts(weights, dataset, parts.validation)[:2])
    stored = _stored(rescaled(weights, temperature, dataset.examples(parts.validation).graphs))
    seconds = time.perf_counter() - start
    figures = {name: _figures(stored, dataset, getattr(parts, name)) for name in ("validation", "test")}
    figures["test"]["in_pieces"] = _figures_in_pieces(stored, dataset, parts.test, settings.seed)
    return Trained(
        stored,
        {
            "schema": SCHEMA,
            "what": f"probability that a fusion group does not run whole from the buffer, scheme {dataset.scheme}",
            "network": f"{LAYERS} GraphConv layers of {HIDDEN}, ReLU, sum aggregation, sum of operators, one logit (arXiv 2501.00636, section IV-A)",
            "features": {"columns": FEATURES, "kinds": list(KINDS)},
            "data": described(dataset, parts, by),
            "settings": {**asdict(settings), "split": by, "betas": list(BETAS)},
            "epochs": len(history),
            "best_epoch": 1 + int(np.argmin([loss for _, loss in history])),
            "losses": [[round(a, 5), round(b, 5)] for a, b in history],
            "temperature": round(temperature, 4),
            "seconds": round(seconds, 1),
            "parameters": sum(value.size for value in stored.values()),
            "versions": _versions(),
            "metrics": figures,
        },
    )


def train_explainers(dataset: Dataset, predictor: Predictor, settings: Settings, count: int, report: Report) -> dict[str, Trained]:
    """PGExplainer and RG-Explainer for a predictor, by the names pg and rg.

    They learn from `count` samples (a group at a buffer size) of the training part of the random split, as `blamed` picks them, and are measured on
    up to MEASURED others of the test part.
    """
    torch.set_num_threads(settings.threads)
    parts, rng = splits(dataset, "random", settings.seed), np.random.default_rng(settings.seed)
    graphs, tests = (blamed(dataset, part, predictor, most, rng) for part, most in ((parts.train, count), (parts.test, min(MEASURED, count))))
    if not graphs:
        raise InvalidConfig(
            f"scheme {dataset.scheme}: the predictor calls no group invalid whose operators fit one by one; explainers have nothing to learn from"
        )
    embedded = [predictor.embed(graph) for graph in tests]
    chance = measures([(graph, rng.random(graph.links.shape[1])) for graph in tests], predictor)

    def made(what: str, details: Any, trained: tuple[dict[str, np.ndarray], list[Any]], seconds: float, scores: Callable[..., Any]) -> Trained:
        card = {
            "schema": SCHEMA,
            "what": f"{what} for the predictor of scheme {dataset.scheme}; explained class: invalid",
            "data": {"sha256": dataset.sha256, "part": "train, random split", "samples": len(graphs), "measured_on": len(tests)},
            "settings": {**asdict(details), "seed": settings.seed, "threads": settings.threads},
            "seconds": round(seconds, 1),
            "epochs": rounded(trained[1]),
            "parameters": sum(value.size for value in trained[0].values()),
            "versions": _versions(),
            "metrics": rounded({"links_blamed": LINKS, **scores(trained[0]), "random_links": chance}),
        }
        return Trained(trained[0], card)

    def of_pg(weights: dict[str, np.ndarray]) -> dict[str, Any]:
        given = LinkScores(weights)
        return measures([(graph, given(rows, graph.links)) for graph, rows in zip(tests, embedded, strict=True)], predictor)

    def of_rg(weights: dict[str, np.ndarray]) -> dict[str, Any]:
        agent = Agent(weights)
        orders = [agent.order(rows, graph.links) for graph, rows in zip(tests, embedded, strict=True)]
        parts = [train_rg.part_of(graph, np.isin(np.arange(len(graph)), order[:end])) for graph, (order, end) in zip(tests, orders, strict=True)]
        scores = [link_scores(*order, graph.links, len(graph)) for graph, order in zip(tests, orders, strict=True)]
        own = {
            "share_of_operators": float(np.mean([end / len(graph) for graph, (_, end) in zip(tests, orders, strict=True)])),
            "invalid_alone": float((predictor.invalid(parts) > 0.5).mean()),
        }
        return {**measures(list(zip(tests, scores, strict=True)), predictor), **own}

    pg, rg = train_pg.Settings(), train_rg.Settings()
    start = time.perf_counter()
    by_pg = train_pg.train(predictor, graphs, pg, settings.seed, report)
    middle = time.perf_counter()
    by_rg = train_rg.train(predictor, graphs, rg, settings.seed, report)
    end = time.perf_counter()
    return {
        "pg": made("PGExplainer", pg, (_stored(by_pg[0]), by_pg[1]), middle - start, of_pg),
        "rg": made("RG-Explainer", rg, (_stored(by_rg[0]), by_rg[1]), end - middle, of_rg),
    }


def blamed(dataset: Dataset, groups: np.ndarray, predictor: Predictor, count: int, rng: np.random.Generator) -> list[GroupGraph]:
    """Up to `count` graphs of these groups at some buffer size, of those that the predictor calls invalid, that have links, and whose operators fit
    one by one: of an operator that does not, there is nothing to explain, and SPLIT takes it out beforehand.
    """
    found: list[GroupGraph] = []
    for few in np.array_split(rng.permutation(groups), max(len(groups) // 500, 1)):
        examples = dataset.examples(few)
        wanted = (predictor.invalid(examples.graphs) > 0.5) & (dataset.neediest[examples.groups] < examples.betas)
        found += [graph for graph, right in zip(examples.graphs, wanted.tolist(), strict=True) if right and graph.links.shape[1]]
        if len(found) >= 3 * count:
            break
    return [found[k] for k in rng.permutation(len(found))[:count].tolist()]


def _stored(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """In half precision, unless some are too large for it."""
    largest = max(float(np.abs(value).max(initial=0)) for value in weights.values())
    return {name: value.astype(np.float16 if largest < np.finfo(np.float16).max else np.float32) for name, value in weights.items()}


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "torch-geometric", "numpy")}


def rescaled(weights: dict[str, np.ndarray], temperature: float, graphs: Sequence[GroupGraph]) -> dict[str, np.ndarray]:
    """The same network with logits divided by the temperature, and embeddings of these graphs with a mean square of one in most channels.

    Explainers see the embeddings. A channel of the last layer can be scaled, as the head undoes it; those that are hardly used stay small.
    """
    embedded = Predictor(weights).embed_batch(Batch.of(graphs))
    size = np.sqrt(np.square(embedded, dtype=np.float64).mean(0))
    size = np.maximum(size, max(0.1 * float(np.median(size)), 1e-6)).astype(np.float32)
    last = f"convs.{LAYERS - 1}"
    smaller = {name: (value.T / size).T for name, value in weights.items() if name.startswith(f"{last}.")}
    return {**weights, **smaller, "head.weight": weights["head.weight"] * size / temperature, "head.bias": weights["head.bias"] / temperature}


def described(dataset: Dataset, parts: Split, by: By) -> dict[str, Any]:
    """What of the data set is in which part, network by network."""
    names = ("train", "validation", "test")
    counts = {name: np.bincount(dataset.network[getattr(parts, name)], minlength=len(dataset.networks)) for name in names}
    networks = {source.stem: {"family": source.family, **{name: int(counts[name][n]) for name in names}} for n, source in enumerate(dataset.networks)}
    total = {name: int(counts[name].sum()) for name in names}
    return {"sha256": dataset.sha256, "split": by, "groups": total, "samples_per_group": len(BETAS), "networks": networks}


def _fit(dataset: Dataset, parts: Split, settings: Settings, report: Report) -> tuple[Network, list[tuple[float, float]]]:
    """The network of the epoch with the smallest loss on the validation part, and (training loss, validation loss) of every epoch."""
    if not len(parts.train) or not len(parts.validation):
        raise InvalidConfig(
            f"scheme {dataset.scheme}: found {len(parts.train)} groups to train with, {len(parts.validation)} to validate with; needs both"
        )
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    order = rng.permutation(parts.train)
    batches = collate(whole(dataset, order), settings.operators, STEPS)
    pieces = [batch for _ in range(settings.cut) for batch in collate(in_pieces(dataset, order, rng), settings.operators, STEPS)]
    checks = collate(whole(dataset, parts.validation), AT_ONCE)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.rate)
    steps = len(batches) * len(BETAS) + len(pieces) * settings.cut_sizes  # of an epoch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, total_steps=settings.epochs * steps, pct_start=0.1)
    history: list[tuple[float, float]] = []
    best, kept = math.inf, dict[str, Tensor]()
    for epoch in range(settings.epochs):
        network.train()
        loss = 0.0
        every = shown(batches, len(BETAS), settings.near, rng) + shown(pieces, settings.cut_sizes, settings.near, rng)
        for batch, buffers in (every[k] for k in rng.permutation(steps).tolist()):
            logits = network(*batch.at(buffers))
            error = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy((batch.needs >= buffers).astype(np.float32)))
            optimizer.zero_grad()
            error.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            loss += error.item()
        found = _validation_loss(network.eval(), checks)
        history.append((loss / steps, found))
        if found < best:
            best, kept = found, {name: value.clone() for name, value in network.state_dict().items()}
        report(f"{dataset.scheme}: epoch {epoch + 1}, validation loss {found:.4f} (best {best:.4f})", (epoch + 1) / settings.epochs)
        if len(history) - 1 - int(np.argmin([loss for _, loss in history])) >= settings.patience:
            break
    network.load_state_dict(kept)
    return network, history


@torch.no_grad()
def _validation_loss(network: Network, batches: Sequence[Minibatch]) -> float:
    probability, invalid = [], []
    for batch in batches:
        for beta in BETAS:
            probability.append(network(*batch.at(np.full(len(batch.needs), float(beta)))).sigmoid().double().numpy())
            invalid.append(batch.needs >= beta)
    return log_loss(np.concatenate(probability), np.concatenate(invalid))


def _verdicts(weights: dict[str, np.ndarray], dataset: Dataset, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(logit, whether invalid, buffer size, group) of every group at every buffer size."""
    examples = dataset.examples(groups)
    predictor = Predictor(weights)
    return predictor.logits(Batch.of(examples.graphs)), ~examples.valid, examples.betas, examples.groups


def _temperature(logits: np.ndarray, invalid: np.ndarray) -> float:
    """What to divide logits by for the smallest log loss. Source: Guo et al., ICML 2017, section 4.2."""
    candidates = np.geomspace(0.25, 8, 201)
    return float(candidates[np.argmin([log_loss(sigmoid(logits / candidate), invalid) for candidate in candidates])])


def _figures(weights: dict[str, np.ndarray], dataset: Dataset, groups: np.ndarray) -> dict[str, Any]:
    """All figures of one part of the data set."""
    logits, invalid, betas, owners = _verdicts(weights, dataset, groups)
    probability = sigmoid(logits)
    networks = np.array([source.stem for source in dataset.networks])[dataset.network[owners]]
    cuts = {"by_beta": betas, "by_family": dataset.families[owners], "by_network": networks}
    return rounded({**measured(probability, invalid), **{name: by_label(labels, probability, invalid) for name, labels in cuts.items()}})


def _figures_in_pieces(weights: dict[str, np.ndarray], dataset: Dataset, groups: np.ndarray, seed: int) -> dict[str, Any]:
    """Overall figures of groups that were cut, at every buffer size."""
    labelled = in_pieces(dataset, groups, np.random.default_rng(seed))
    if not labelled:
        return rounded(measured(np.empty(0), np.empty(0, bool)))
    batch, needs, predictor = Batch.of([group.graph for group in labelled]), np.array([group.need for group in labelled]), Predictor(weights)
    logits = [predictor.logits(replace(batch, features=resized(batch.features, np.full(len(batch.features), beta)))) for beta in BETAS]
    return rounded(measured(sigmoid(np.concatenate(logits)), np.concatenate([needs >= beta for beta in BETAS])))


def rounded(found: Any) -> Any:
    """Figures as a card shows them: five decimals, None for NaN."""
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, float):
        return None if math.isnan(found) else round(found, 5)
    return found
