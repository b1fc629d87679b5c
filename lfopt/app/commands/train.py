"""lfopt train: predictors of what groups need and their explainers, from a data set.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from explainers.checker import LabelScheme
from lfopt.app.answers.networks import TrainAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.commands.dataset import dataflow
from lfopt.app.config import PREDICTED, SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.files import sha256, write_bytes, write_text
from lfopt.app.options import SeedOption
from lfopt.app.screen import err, out, progress_line, shown, spread
from lfopt.ir import InvalidConfig

COLUMNS = ("samples", "accuracy", "near", "F1", "AUROC", "ECE", "valid lost")  # of a predictor's figures
LOG = ("scheme", "split", "seed", "epoch", "loss", "validation_loss", "seconds")


def train(
    dataset: Path,
    /,
    *,
    out_dir: Annotated[Path, Parameter(name=["--out", "-o"])],
    scheme: LabelScheme = "lbdf",
    split: Literal["random", "family"] = "random",
    explainers: bool = False,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    epochs: int = 20,
    patience: int = 8,
    samples: int = 1200,
    seed: SeedOption = SearchConfig.seed,
    seeds: int = 1,
    threads: int = 1,
    device: Literal["cpu", "cuda"] = "cpu",
    resume: Annotated[bool, Parameter(negative="")] = False,
    log: Path | None = None,
) -> None:
    """Train the network that predicts how much buffer a group needs, and measure it.

    Example: lfopt train data/groups --out weights --explainers

    Writes SCHEME.safetensors and a model card, SCHEME.json. Splits, initial weights and minibatches are
    drawn; with the same data, seed and one thread, a machine gives the same weights.

    Parameters
    ----------
    dataset
        Folder that `lfopt dataset` wrote.
    out_dir
        Folder of the weights.
    scheme
        How groups run.
    split
        random: tested on a tenth of the groups; family: tested on EfficientNet and DeepLab, trained without
        them.
    explainers
        Also train PGExplainer and RG-Explainer for the predictor (SCHEME_pg, SCHEME_rg).
    everything
        All schemes with explainers by the random split, and the figures of the split by family in the cards:
        what ships with lfopt.
    epochs
        At most.
    patience
        Epochs without a smaller validation loss before training ends.
    samples
        Groups, each at one buffer size, that explainers are trained with.
    seeds
        Trainings, with this seed and the next ones; the best on the validation part is written, the card has
        the figures of all.
    threads
        Of PyTorch.
    device
        Where predictors are trained; explainers are trained on the CPU.
    resume
        Go on where a run with the same data and options got to; a checkpoint is written after every epoch,
        and removed at the end.
    log
        CSV file that gets a line for every epoch.
    """
    if min(epochs, patience, samples, threads, seeds) < 1 or seed < 0:
        raise InvalidConfig(
            f"--epochs {epochs}, --patience {patience}, --samples {samples}, --threads {threads}, --seeds "
            f"{seeds}, --seed {seed}: accepted: at least 1, and a seed of at least 0"
        )
    if everything and (split != "random" or explainers or scheme != "lbdf"):
        raise InvalidConfig(
            "--all: with --scheme, --split or --explainers; accepted: --all alone, it trains all schemes and "
            "all explainers"
        )
    if out_dir.exists() and not out_dir.is_dir():
        raise InvalidConfig(f"--out {out_dir}: found a file; accepted: a folder")
    torch = _torch()
    settings = torch.TrainingSettings(
        epochs=epochs, patience=patience, seed=seed, threads=threads, device=device
    )
    if everything:
        options = "--all"
    else:
        options = f"--scheme {scheme} --split {split}{' --explainers' if explainers else ''}"
    command = (
        f"lfopt train DATASET -o DIR {options} --epochs {epochs} --patience {patience} --samples "
        f"{samples} --seed {seed} --seeds {seeds}"
    )
    files = _Files(out_dir, log, command=f"{command} --threads {threads}", resume=resume)
    for name in PREDICTED if everything else (scheme,):
        data = torch.Dataset.read(dataset, name, dataflow)
        with progress_line() as report:
            job = _Training(torch, data, settings, seeds, files, report)
            job.predictor(split, families=everything)
            if explainers or everything:
                job.explainers(samples)
        for line in job.lines:
            out.print(line)
    files.finished()
    answer(TrainAnswer(str(out_dir), files.cards))


def _torch() -> Any:
    try:
        return import_module("explainers.train")  # torch is optional, and slow to import
    except ImportError as error:
        raise InvalidConfig(
            f"lfopt train needs PyTorch Geometric ({error}): pip install 'lfopt[learn]'"
        ) from None


class _Files:
    """What is written: weights and cards, a log, and checkpoints until all is done."""

    def __init__(self, folder: Path, log: Path | None, *, command: str, resume: bool) -> None:
        self.folder = folder
        self.log = log
        self.command = command
        self.resume = resume
        self.cards: dict[str, dict[str, Any]] = {}  # by name, as they are written
        self._rows: dict[tuple[str, str, int], list[tuple[Any, ...]]] = {}
        self._checkpoints: list[Path] = []

    def checkpoint(self, data: Any, split: str, settings: Any) -> Any:
        """The checkpoint of one training, begun where an earlier run ended if it is to be resumed."""
        fitting = import_module("explainers.fit")  # torch is optional, and nothing but explainers knows it
        key = data.scheme, split, settings.seed
        path = self.folder / ".checkpoints" / f"{data.scheme}-{split}-{settings.seed}.pt"
        begun = None
        if self.resume and path.exists():
            begun = fitting.Progress.read(path, fitting.checked(settings, data))
        self._checkpoints.append(path)

        def keep(progress: Any) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, progress.stored())
            self._rows[key] = [(*key, *epoch) for epoch in progress.history]
            self._write_log()

        if begun:
            self._rows[key] = [(*key, *epoch) for epoch in begun.history]
        return fitting.Checkpoint(begun, keep)

    def write(self, name: str, weights: dict[str, Any], card: dict[str, Any]) -> None:
        """Weights and their card."""
        from safetensors.numpy import save  # noqa: PLC0415  (with torch: only once there is something to write)

        self.folder.mkdir(parents=True, exist_ok=True)
        write_bytes(self.folder / f"{name}.safetensors", save(weights))
        digest = sha256(self.folder / f"{name}.safetensors")
        self.cards[name] = {**card, "command": self.command, "weights_sha256": digest}
        write_text(self.folder / f"{name}.json", json.dumps(self.cards[name], indent=1) + "\n")

    def finished(self) -> None:
        """Everything is written: there is nothing to go on with."""
        self._write_log()
        for path in self._checkpoints:
            path.unlink(missing_ok=True)
        if (folder := self.folder / ".checkpoints").is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def _write_log(self) -> None:
        if self.log:
            text = io.StringIO()
            lines = csv.writer(text, lineterminator="\n")
            lines.writerows([LOG, *(row for rows in self._rows.values() for row in rows)])
            write_text(self.log, text.getvalue())


class _Training:
    """What is trained from one scheme of a data set."""

    def __init__(
        self, torch: Any, data: Any, settings: Any, seeds: int, files: _Files, report: ReportProgress
    ) -> None:
        self.torch = torch
        self.data = data
        self.settings = settings
        self.seeds = seeds
        self.files = files
        self.report = report
        self.material: Any = None
        self.lines: list[Any] = []  # to print when the progress line is gone

    def predictor(self, split: Literal["random", "family"], *, families: bool) -> None:
        """Train the predictor and write it; with `families`, its card has the figures of the family split."""
        if families:  # both trainings learn from the same
            self.material = import_module("explainers.fit").prepared(self.data, self.settings, self.report)
        trained = self._trained(split, self.seeds)
        others: dict[str, Any] = {}
        if families:
            try:
                other = self._trained("family", 1).card
                others = {
                    "unseen_families": {
                        key: other[key] for key in ("data", "epochs", "seconds", "spread_factor", "metrics")
                    }
                }
            except InvalidConfig as error:  # a data set without those families
                err.print(f"note: {error}", style="yellow", markup=False)
        name = self.data.scheme
        self.files.write(name, trained.weights, {**trained.card, **others})
        rows: list[tuple[str, ...]] = []
        for label, metrics in [(f"{split} split", trained.card["metrics"])] + [
            ("unseen families", other["metrics"]) for other in others.values()
        ]:
            for what, key in (("network", "test"), ("rule", "test_rule")):
                figures = {**metrics[key], "near": metrics[key]["near"]["accuracy"]}
                keys = ("accuracy", "near", "f1", "auroc", "ece", "valid_called_invalid")
                rows.append(
                    (
                        f"{label}, {what}",
                        f"{figures['samples']:,}",
                        *("-" if figures[key] is None else f"{figures[key]:.4f}" for key in keys),
                    )
                )
        took = (
            f"[dim]{trained.card['epochs']} epochs, {trained.card['seconds']:.0f} s; wrote[/] "
            f"{shown(self.files.folder / name)}.safetensors\n"
        )
        self.lines += [spread((name, *COLUMNS), rows), took]

    def _trained(self, split: Literal["random", "family"], seeds: int) -> Any:
        def checkpoint(seed: int) -> Any:
            return self.files.checkpoint(self.data, split, replace(self.settings, seed=seed))

        return self.torch.train_predictor(
            self.data, split, self.settings, self.report, seeds, checkpoint, self.material
        )

    def explainers(self, samples: int) -> None:
        """Train PGExplainer and RG-Explainer for the predictor that was written."""
        name = self.data.scheme
        path = self.files.folder / f"{name}.safetensors"
        trained = self.torch.train_explainers(
            self.data, self.torch.Predictor.load(path), self.settings, samples, self.report
        )
        for what, network in trained.items():
            self.files.write(
                f"{name}_{what}", network.weights, {**network.card, "predictor_sha256": sha256(path)}
            )
        keys = ("fidelity_plus", "fidelity_minus", "unfaithfulness", "sparsity")
        measured = {what: network.card["metrics"] for what, network in trained.items()}
        beside = [(what.replace("_", " "), measured["pg"][what]) for what in ("random_links", "analytic")]
        rows = [
            (label, *("-" if figures[key] is None else f"{figures[key]:.4f}" for key in keys))
            for label, figures in [*measured.items(), *beside]
        ]
        self.lines += [
            spread((f"{name}: explainer", "fidelity+", "fidelity-", "unfaithfulness", "sparsity"), rows),
            "",
        ]
