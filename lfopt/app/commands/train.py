"""lfopt train: predictors of validity and their explainers, from a data set."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from lfopt.app.answers.networks import TrainAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.commands.dataset import dataflow
from lfopt.app.files import sha256, write_bytes, write_text
from lfopt.app.pipeline import Report
from lfopt.app.screen import err, out, progress_line, shown, spread, table
from lfopt.ir import InvalidConfig


def train(
    dataset: Path,
    /,
    *,
    out_dir: Annotated[Path, Parameter(name=["--out", "-o"])],
    scheme: Literal["lbdf", "brr"] = "lbdf",
    split: Literal["random", "family"] = "random",
    explainers: bool = False,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    epochs: int = 50,
    patience: int = 12,
    samples: int = 6000,
    seed: int = 0,
    threads: int = 1,
) -> None:
    """Train the network that predicts whether a group runs whole from the buffer, and measure it.

    Example: lfopt train data/groups --out weights --explainers

    Writes SCHEME.safetensors and a model card, SCHEME.json. With the same data, seed and one thread, a machine gives the same weights.

    Parameters
    ----------
    dataset
        Folder that `lfopt dataset` wrote.
    out_dir
        Folder of the weights.
    scheme
        How groups run.
    split
        random: tested on a tenth of the groups; family: tested on EfficientNet and DeepLab, trained without them.
    explainers
        Also train PGExplainer and RG-Explainer for the predictor (SCHEME_pg, SCHEME_rg).
    everything
        Both schemes with explainers by the random split, and the figures of the split by family in the cards: what ships with lfopt.
    epochs
        At most.
    patience
        Epochs without a smaller validation loss before training ends.
    samples
        Groups, each at one buffer size, that explainers are trained with.
    seed
        Seed of splits, initial weights and minibatches.
    threads
        Of PyTorch.
    """
    if min(epochs, patience, samples, threads) < 1 or seed < 0:
        raise InvalidConfig(
            f"--epochs {epochs}, --patience {patience}, --samples {samples}, --threads {threads}, --seed {seed}: "
            "accepted: at least 1, and a seed of at least 0"
        )
    if everything and (split != "random" or explainers or scheme != "lbdf"):
        raise InvalidConfig("--all: with --scheme, --split or --explainers; accepted: --all alone, it trains both schemes and all explainers")
    if out_dir.exists() and not out_dir.is_dir():
        raise InvalidConfig(f"--out {out_dir}: found a file; accepted: a folder")
    torch = _torch()
    settings = torch.Settings(epochs=epochs, patience=patience, seed=seed, threads=threads)
    options = "--all" if everything else f"--scheme {scheme} --split {split}{' --explainers' if explainers else ''}"
    command = f"lfopt train DATASET -o DIR {options} --epochs {epochs} --patience {patience} --samples {samples} --seed {seed} --threads {threads}"
    cards: dict[str, dict[str, Any]] = {}
    for name in ("lbdf", "brr") if everything else (scheme,):
        data = torch.Dataset.read(dataset, name, dataflow)
        with progress_line() as report:
            job = _Job(torch, data, settings, out_dir, command, report, cards)
            job.predictor(split, families=everything)
            if explainers or everything:
                job.explainers(samples)
        for line in job.lines:
            out.print(line)
    answer(TrainAnswer(str(out_dir), cards))


def _torch() -> Any:
    try:
        return import_module("explainers.train")  # torch is optional, and slow to import
    except ImportError as error:
        raise InvalidConfig(f"lfopt train needs PyTorch Geometric ({error}): pip install 'lfopt[learn]'") from None


class _Job:
    """What is trained from one scheme of a data set."""

    def __init__(self, torch: Any, data: Any, settings: Any, folder: Path, command: str, report: Report, cards: dict[str, dict[str, Any]]) -> None:
        self.torch, self.data, self.settings, self.folder, self.command, self.report = torch, data, settings, folder, command, report
        self.cards = cards  # by name, as they are written
        self.lines: list[Any] = []  # to print when the progress line is gone

    def predictor(self, split: Literal["random", "family"], *, families: bool) -> None:
        """Train the predictor and write it; with `families`, its card says what one that is trained by family does."""
        made = self.torch.train_predictor(self.data, split, self.settings, self.report)
        others: dict[str, Any] = {}
        if families:
            try:
                other = self.torch.train_predictor(self.data, "family", self.settings, self.report).card
                others = {"unseen_families": {key: other[key] for key in ("data", "epochs", "seconds", "temperature", "metrics")}}
            except InvalidConfig as error:  # a data set without those families
                err.print(f"note: {error}", style="yellow", markup=False)
        name = self.data.scheme
        self._write(name, made.weights, {**made.card, **others})
        figures = [(f"{split} split", made.card["metrics"]["test"])]
        figures += [("unseen families", found["metrics"]["test"]) for found in others.values()]
        keys = ("accuracy", "f1", "auroc", "ece", "valid_called_invalid", "invalid_called_valid")
        rows = [(label, f"{found['samples']:,}", *("-" if found[key] is None else f"{found[key]:.4f}" for key in keys)) for label, found in figures]
        columns = (name, "samples", "accuracy", "F1", "AUROC", "calibration error", "valid called invalid", "invalid called valid")
        self.lines += [
            spread(columns, rows),
            f"[dim]{made.card['epochs']} epochs, {made.card['seconds']:.0f} s; wrote[/] {shown(self.folder / name)}.safetensors\n",
        ]

    def explainers(self, samples: int) -> None:
        """Train PGExplainer and RG-Explainer for the predictor that was written."""
        name = self.data.scheme
        path = self.folder / f"{name}.safetensors"
        rows = table(f"{name}: explainer", "fidelity+", "fidelity-", "unfaithfulness", "sparsity")
        found = self.torch.train_explainers(self.data, self.torch.Predictor.load(path), self.settings, samples, self.report)
        for what, made in found.items():
            self._write(f"{name}_{what}", made.weights, {**made.card, "predictor_sha256": sha256(path)})
        keys = ("fidelity_plus", "fidelity_minus", "unfaithfulness", "sparsity")
        measured = {what: made.card["metrics"] for what, made in found.items()}
        for label, figures in [*measured.items(), ("random links", measured["pg"]["random_links"])]:
            rows.add_row(label, *("-" if figures[key] is None else f"{figures[key]:.4f}" for key in keys))
        self.lines += [rows, ""]

    def _write(self, name: str, weights: dict[str, Any], card: dict[str, Any]) -> None:
        from safetensors.numpy import save  # noqa: PLC0415  (with torch: only once there is something to write)

        self.folder.mkdir(parents=True, exist_ok=True)
        write_bytes(self.folder / f"{name}.safetensors", save(weights))
        digest = sha256(self.folder / f"{name}.safetensors")
        self.cards[name] = {**card, "command": self.command, "weights_sha256": digest}
        write_text(self.folder / f"{name}.json", json.dumps(self.cards[name], indent=1) + "\n")
