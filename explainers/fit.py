"""Training loop of the network that predicts a group's buffer requirement, with checkpoints to resume from.

The loss is the negative logarithm of the probability density that the network gives to F_beta, and that of
the probability it gives to running at all. Groups are shown whole, and with links cut or weighted for the
explainers' sake (`explainers.counterfactuals`).
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from explainers.dataset import Dataset, Split
from explainers.minibatches import Material, Minibatch, collate, whole
from explainers.model import ValidityGNN, spread
from explainers.predictor import SURE
from lfopt.ir import InvalidConfig
from lfopt.ir.names import printable

AT_ONCE = 20_000  # operators that are measured together
EXACT = 2**-9  # doublings: a rule that is off by less counts as exact
STEPS = 16  # minibatches at least, however small the data set

ReportProgress = Callable[[str, float], None]  # (what is going on, how much of it is done)


class Epoch(NamedTuple):
    """One epoch, as the log has it."""

    number: int  # from 1
    loss: float  # mean over the steps
    validation: float  # mean over the groups of the validation part
    seconds: float  # since training began, what came before a resumption included


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training."""

    epochs: int = 20  # at most
    patience: int = 8  # epochs without a smaller loss on the validation part before training ends
    seed: int = 0
    threads: int = 1
    device: str = "cpu"  # or cuda
    rate: float = 1e-3  # largest learning rate of Adam; it rises for a tenth of the steps, then falls
    operators: int = 3000  # per step
    cut: int = 1  # weightings of links with which every group is shown, beside the whole group


@dataclass
class Progress:
    """State of a training after an epoch, stored to resume from."""

    settings: dict[str, Any]  # and the data set: another run does not go on from here
    history: list[Epoch] = field(default_factory=list[Epoch])
    # of the network, the optimiser, the schedule, the draws, and the best weights
    state: dict[str, Any] = field(default_factory=dict[str, Any])

    def stored(self) -> bytes:
        """Bytes of a file."""
        file = io.BytesIO()
        torch.save(
            {
                "settings": self.settings,
                "history": [tuple(epoch) for epoch in self.history],
                "state": self.state,
            },
            file,
        )
        return file.getvalue()

    @classmethod
    def read(cls, path: Path, settings: dict[str, Any]) -> Progress:
        """Progress of a file. Raises InvalidConfig if it is no checkpoint, or of another training."""
        try:
            stored = torch.load(path, weights_only=True)
            progress = cls(
                stored["settings"], [Epoch(*epoch) for epoch in stored["history"]], stored["state"]
            )
        except (OSError, RuntimeError, UnpicklingError, KeyError, TypeError, EOFError, ValueError) as error:
            raise InvalidConfig(
                f"{path}: not a checkpoint of `lfopt train`: {str(error)[:100]}; "
                "remove it, or leave out --resume"
            ) from None
        if other := [key for key, value in settings.items() if progress.settings.get(key) != value]:
            key = other[0]
            before = printable(progress.settings.get(key))
            raise InvalidConfig(
                f"{path}: is of a training with {key} {before}; "
                f"found {settings[key]}: leave out --resume, or go on as it began"
            )
        return progress


class Checkpoint(NamedTuple):
    """Checkpointing of a run."""

    begun: Progress | None  # where an earlier one had got to
    keep: Callable[[Progress], None]  # told after every epoch


def fit(
    dataset: Dataset,
    parts: Split,
    settings: TrainingSettings,
    report: ReportProgress,
    checkpoint: Checkpoint | None = None,
    material: Material | None = None,
) -> tuple[dict[str, np.ndarray], list[Epoch]]:
    """(weights of the epoch of least validation loss, by name, in the shapes of `ValidityGNN`; all epochs).

    `material`: the prepared groups, if there are already.

    Raises InvalidConfig where there is nothing to learn from, or no such device.
    """
    if not len(parts.train) or not len(parts.validation):
        raise InvalidConfig(
            f"scheme {dataset.scheme}: found {len(parts.train)} groups to train with, "
            f"{len(parts.validation)} to validate with; needs both"
        )
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise InvalidConfig("--device cuda: PyTorch finds no GPU here; accepted: cpu")
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    order = rng.permutation(parts.train)
    material = material or prepared(dataset, settings, report, np.sort(order))
    batches = material.minibatches(order, settings.operators, STEPS, settings.device)
    checks = collate(whole(dataset, parts.validation), AT_ONCE, device=settings.device)
    network = ValidityGNN().to(settings.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.rate, total_steps=settings.epochs * len(batches), pct_start=0.1
    )
    progress = checkpoint.begun if checkpoint and checkpoint.begun else Progress(checked(settings, dataset))
    best: dict[str, Tensor] = {}
    if progress.state:
        network.load_state_dict(progress.state["network"])
        optimizer.load_state_dict(progress.state["optimizer"])
        schedule.load_state_dict(progress.state["schedule"])
        rng.bit_generator.state = progress.state["draws"]
        best = progress.state["best"]
    history = progress.history
    before = time.perf_counter() - (history[-1].seconds if history else 0.0)
    while len(history) < settings.epochs and (
        not history or len(history) - _best(history) < settings.patience
    ):
        network.train()
        loss = 0.0
        for k in rng.permutation(len(batches)).tolist():
            error = _loss(network(*batches[k].inputs), batches[k])
            optimizer.zero_grad()
            error.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            loss += error.item()
        history.append(
            Epoch(
                len(history) + 1,
                loss / len(batches),
                _validation(network.eval(), checks),
                time.perf_counter() - before,
            )
        )
        if _best(history) == len(history):
            best = {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
        progress.state = {
            "network": network.state_dict(), "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "draws": rng.bit_generator.state, "best": best,
        }  # fmt: skip
        if checkpoint:
            checkpoint.keep(progress)
        last = history[-1]
        least = min(epoch.validation for epoch in history)
        report(
            f"{dataset.scheme}: epoch {last.number}, "
            f"validation loss {last.validation:.4f} (best {least:.4f})",
            last.number / settings.epochs,
        )
    return {name: value.numpy() for name, value in best.items()}, history


def prepared(
    dataset: Dataset, settings: TrainingSettings, report: ReportProgress, groups: np.ndarray | None = None
) -> Material:
    """Material for any number of trainings; groups: (groups,) int64 in the data set, None: all."""
    report(f"{dataset.scheme}: groups as graphs, whole and in pieces", 0.0)
    return Material.of(
        dataset,
        np.arange(len(dataset)) if groups is None else groups,
        settings.cut,
        np.random.default_rng(settings.seed),
    )


def checked(settings: TrainingSettings, dataset: Dataset) -> dict[str, Any]:
    """Settings that must be equal for a training to resume."""
    return {**asdict(settings), "data": dataset.sha256}


def _best(history: Sequence[Epoch]) -> int:
    """Number of the epoch of least validation loss; 0 without epochs."""
    if history:
        return min(history, key=lambda epoch: epoch.validation).number
    return 0


def _losses(outputs: Tensor, batch: Minibatch) -> Tensor:
    """(groups,) negative log-likelihood, the sum of three terms.

    Of whether the rule is exact, of the logistic distribution of log2 F_beta where it is not, and of whether
    the group never runs.
    """
    finite = batch.residual.isfinite() & (batch.never == 0)
    exact = batch.residual.abs() < EXACT
    wide = spread(outputs)
    off = (torch.where(finite, batch.residual, 0) - outputs[:, 0]) / wide
    size = off + wide.log() + 2 * nn.functional.softplus(-off)
    hurdle = nn.functional.softplus(torch.where(exact, -outputs[:, 2], outputs[:, 2])) + torch.where(
        exact, 0, size
    )
    never = nn.functional.binary_cross_entropy_with_logits(
        SURE * (2 * batch.rule_never - 1) + outputs[:, 3], batch.never, reduction="none"
    )
    return torch.where(finite, hurdle, 0) + never


def _loss(outputs: Tensor, batch: Minibatch) -> Tensor:
    return _losses(outputs, batch).mean()


@torch.no_grad()
def _validation(network: ValidityGNN, batches: Sequence[Minibatch]) -> float:
    total = sum(float(_losses(network(*batch.inputs), batch).double().sum()) for batch in batches)
    count = sum(len(batch.never) for batch in batches)
    if count:
        return total / count
    return math.nan
