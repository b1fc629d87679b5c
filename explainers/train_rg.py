"""Train RG-Explainer's agent for a frozen predictor: first by imitation, then by policy gradient.

The example begins at an end of the link that is worth the most, and goes on along the link that is worth the
most of those that lead on, as long as one is worth an operator's price. A link is worth how much less the
needier half needs when the group is cut there, as the predictor says.

Then, of every group, some explanations are drawn. One is rewarded for the worth of the links that it takes
in, the later, the less; and it pays for every operator. So the agent begins where a cut frees most. The mean
over the explanations of the same group is the baseline. The paper rewards that what was chosen is invalid
alone, which any large part of a group is; of groups that are cut where it begins, as few bytes are moved as
of those that are cut at random (`explainers.train_pg` says why).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from explainers.fit import ReportProgress
from explainers.predictor import EMBEDDED, Predictor
from explainers.rg_explainer import PARTS
from explainers.scheme_rule import ValidityQuery
from explainers.train_pg import freed, shares


@dataclass(frozen=True)
class RGSettings:
    """Settings of a training."""

    shown: int = 60  # epochs in which it follows the example
    epochs: int = 15  # of policy gradient
    rate: float = 2e-3
    groups: int = 48  # per step
    drawn: int = 4  # explanations of each group per step
    hidden: int = 64
    largest: int = 64  # operators of a group that is trained with
    price: float = 0.5  # of an operator, as a share of what the best link of the group frees
    later: float = 0.7  # what the next operator counts beside the one before
    entropy: float = 0.01  # reward of not being sure, so that other choices are tried


class Policy(nn.ModuleDict):
    """The three perceptrons, on groups padded to one size."""

    def __init__(self, channels: int, hidden: int) -> None:
        make = lambda seen: nn.Sequential(nn.Linear(seen * channels, hidden), nn.ReLU(), nn.Linear(hidden, 1))  # noqa: E731
        super().__init__({part: make(seen) for part, seen in PARTS.items()})

    def score(self, part: str, first: Tensor, *rest: Tensor) -> Tensor:
        """first: (groups, operators, channels), rest: (groups, channels) each -> (groups, operators)."""
        enter, _, leave = self[part].children()
        assert isinstance(enter, nn.Linear)
        width = first.shape[-1]
        hidden = (
            first @ enter.weight[:, :width].T
            + nn.functional.linear(torch.cat(rest, 1), enter.weight[:, width:], enter.bias)[:, None]
        )
        return leave(hidden.relu()).squeeze(-1)


@dataclass(frozen=True, eq=False)
class Padded:
    """Groups padded to one number of operators."""

    questions: Sequence[ValidityQuery]
    worth: Sequence[np.ndarray]  # (links,) of each: what a cut frees, as a share of the most that one does
    # (groups, choices) int64: operators that the example chooses, then stops, each the number of operators
    examples: Tensor
    embedded: Tensor  # (groups, operators, channels)
    present: Tensor  # (groups, operators) bool
    adjacent: Tensor  # (groups, operators, operators) float: 1 where linked

    @classmethod
    def of(
        cls,
        questions: Sequence[ValidityQuery],
        worth: Sequence[np.ndarray],
        examples: Sequence[list[int]],
        embedded: Sequence[np.ndarray],
    ) -> Padded:
        """These groups: worth (links,), examples in order, embedded (operators, channels), of each."""
        count = len(questions)
        most = max(map(len, embedded))
        shown = np.full((count, max(map(len, examples)) + 1), most)
        for k, example in enumerate(examples):
            shown[k, : len(example)] = example
        values = np.zeros((count, most, embedded[0].shape[1]), np.float32)
        present = np.zeros((count, most), bool)
        adjacent = np.zeros((count, most, most), np.float32)
        for k, (query, rows) in enumerate(zip(questions, embedded, strict=True)):
            u, v = query.graph.links
            values[k, : len(rows)], present[k, : len(rows)] = rows, True
            adjacent[k, u, v] = adjacent[k, v, u] = 1
        return cls(
            questions,
            worth,
            torch.from_numpy(shown),
            torch.from_numpy(values),
            torch.from_numpy(present),
            torch.from_numpy(adjacent),
        )


@dataclass(frozen=True, eq=False)
class Drawn:
    """One explanation per group, as sampled."""

    chosen: Tensor  # (groups, operators) bool
    likelihood: Tensor  # (groups,) logarithm of its probability
    entropy: Tensor  # (groups,) summed over the choices
    order: Tensor  # (groups, operators) int64: after how many others each was chosen


def draw(policy: Policy, groups: Padded, examples: Tensor | None = None) -> Drawn:
    """Sample explanations of all groups at once; with `examples`, follow those instead."""
    count, most = groups.present.shape
    rows = torch.arange(count)
    mean = groups.embedded.sum(1) / groups.present.sum(1, keepdim=True)
    scores = policy.score("seed", groups.embedded, mean).masked_fill(~groups.present, -torch.inf)
    shown = iter(examples.T) if examples is not None else None
    seeds, likelihood, entropy = _choose(scores, shown)
    chosen = torch.zeros_like(groups.present)
    chosen[rows, seeds] = True
    order = torch.zeros(count, most, dtype=torch.long)
    total = groups.embedded[rows, seeds].clone()
    going = torch.ones(count, dtype=torch.bool)
    while True:
        candidates = ((groups.adjacent @ chosen.float()[..., None]).squeeze(-1) > 0) & ~chosen
        going = going & candidates.any(1)
        if not going.any():
            break
        so_far = total / chosen.sum(1, keepdim=True)
        add = policy.score("grow", groups.embedded, so_far, mean).masked_fill(~candidates, -torch.inf)
        stop = policy.score("stop", so_far[:, None], mean)
        picked, gained, sure = _choose(torch.cat((add, stop), 1), shown)
        likelihood = likelihood + torch.where(going, gained, 0)
        entropy = entropy + torch.where(going, sure, 0)
        going = going & (picked < most)
        here = rows[going]
        which = picked[going]
        order[here, which] = chosen[here].sum(1)
        chosen[here, which] = True
        total[here] += groups.embedded[here, which]
    return Drawn(chosen, likelihood, entropy, order)


def _choose(scores: Tensor, shown: Iterator[Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
    """(choice, log-probability, entropy), (rows,) each, of scores (rows, choices): sampled, or as shown."""
    logs = scores.log_softmax(1)
    choice = torch.multinomial(logs.detach().exp(), 1) if shown is None else next(shown)[:, None]
    return (
        choice[:, 0],
        logs.gather(1, choice)[:, 0],
        -(logs.exp() * logs.masked_fill(logs == -torch.inf, 0)).sum(1),
    )


def example(size: int, links: np.ndarray, worth: np.ndarray, price: float) -> list[int]:
    """Operators of a group in the order in which they are best chosen, see the module.

    `size` operators; links: (2, links) int64; worth: (links,). Of the first link's ends, it begins at that
    with fewer links, or at the later one.

    >>> example(4, np.array([[0, 1, 2], [1, 2, 3]]), np.array([0.1, 0.7, 1.0]), price=0.5)
    [3, 2, 1]
    """
    degree = np.bincount(links.ravel(), minlength=size)
    first = int(np.argmax(worth))
    u, v = links[:, first].tolist()
    order = [v, u] if degree[v] <= degree[u] else [u, v]
    inside = np.zeros(size, bool)
    inside[order] = True
    while True:
        leads = inside[links[0]] != inside[links[1]]
        if not leads.any() or worth[leads].max() <= price:
            return order
        u, v = links[:, np.flatnonzero(leads)[int(np.argmax(worth[leads]))]].tolist()
        order.append(v if inside[u] else u)
        inside[order[-1]] = True


def part_of(query: ValidityQuery, chosen: Iterable[int]) -> ValidityQuery:
    """The question whether the chosen operators, by position, run as a group from the same buffer."""
    return replace(query, mask=sum(1 << query.graph.operators[k] for k in chosen))


def rewards(groups: Padded, drawn: Drawn, settings: RGSettings) -> Tensor:
    """(groups,) float32: discounted sum over the chosen operators but the first.

    Of each, the worth of the best link that takes it in, less its price.
    """
    chosen = drawn.chosen.numpy()
    order = drawn.order.numpy()
    totals = np.zeros(len(chosen))
    for k, (query, worth) in enumerate(zip(groups.questions, groups.worth, strict=True)):
        u, v = query.graph.links
        inside = chosen[k, u] & chosen[k, v]
        best = np.zeros(int(chosen[k].sum()))
        np.maximum.at(best, np.maximum(order[k, u], order[k, v])[inside], worth[inside])
        steps = np.arange(len(best) - 1)
        totals[k] = (settings.later**steps) @ (best[1:] - settings.price)
    return torch.from_numpy(totals).float()


def train(
    predictor: Predictor,
    questions: Sequence[ValidityQuery],
    settings: RGSettings,
    seed: int,
    report: ReportProgress,
) -> tuple[dict[str, np.ndarray], list[dict[str, float]]]:
    """(weights by name, in PyTorch's shapes; means of every epoch).

    `questions`: groups that the predictor calls invalid.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    used = [query for query in questions if 1 < len(query.graph) <= settings.largest]
    embedded = [predictor.embed(query) for query in used]
    every = np.concatenate(embedded)
    mean = every.mean(0)
    spread = every.std(0) + 1e-3
    embedded = [(rows - mean) / spread for rows in embedded]
    worth = [shares(doublings) for doublings in freed(predictor, used)]
    examples = [
        example(len(query.graph), query.graph.links, each, settings.price)
        for query, each in zip(used, worth, strict=True)
    ]
    policy = Policy(EMBEDDED, settings.hidden)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.rate)
    history: list[dict[str, float]] = []
    for epoch in range(settings.shown + settings.epochs):
        follows = epoch < settings.shown
        sums: dict[str, float] = dict.fromkeys(("reward", "share"), 0.0)
        for numbers in _alike([len(rows) for rows in embedded], settings.groups, rng):
            repeated = np.repeat(numbers, 1 if follows else settings.drawn).tolist()
            groups = Padded.of(*([each[k] for k in repeated] for each in (used, worth, examples, embedded)))
            drawn = draw(policy, groups, groups.examples if follows else None)
            reward = rewards(groups, drawn, settings)
            loss = -drawn.likelihood.mean() if follows else -_better(reward, drawn, settings)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            share = drawn.chosen.sum(1) / groups.present.sum(1)
            for name, value in (("reward", reward), ("share", share)):
                sums[name] += value.mean().item() * len(numbers) / len(used)
        history.append(sums)
        done = (epoch + 1) / (settings.shown + settings.epochs)
        report(
            f"RG-Explainer: epoch {epoch + 1}, reward {sums['reward']:.3f}, "
            f"{100 * sums['share']:.0f} % of a group",
            done,
        )
    return _of_raw(
        {name: value.detach().numpy() for name, value in policy.state_dict().items()}, mean, spread
    ), history


def _better(reward: Tensor, drawn: Drawn, settings: RGSettings) -> Tensor:
    """Objective of policy gradient: likelihood weighted by advantage over the group's mean, plus entropy."""
    each = reward.view(-1, settings.drawn)
    better = (each - each.mean(1, keepdim=True)).flatten()
    return (better / (better.std() + 1e-6) * drawn.likelihood + settings.entropy * drawn.entropy).mean()


def _of_raw(weights: dict[str, np.ndarray], mean: np.ndarray, spread: np.ndarray) -> dict[str, np.ndarray]:
    """Weights of the same perceptrons over raw embeddings, neither centred nor scaled.

    `mean`, `spread`: (channels,), of the embeddings.
    """
    rescaled = dict(weights)
    for part, seen in PARTS.items():
        scaled = weights[f"{part}.0.weight"] / np.tile(spread, seen)
        rescaled[f"{part}.0.weight"] = scaled
        rescaled[f"{part}.0.bias"] = weights[f"{part}.0.bias"] - scaled @ np.tile(mean, seen)
    return rescaled


def _alike(sizes: Sequence[int], count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Batches (count,) of numbers of groups in random order, groups of like size together."""
    order = rng.permutation(len(sizes))
    order = order[np.argsort(np.array(sizes)[order] // 4, kind="stable")]
    chunks = [order[first : first + count] for first in range(0, len(order), count)]
    return [chunks[k] for k in rng.permutation(len(chunks))]
