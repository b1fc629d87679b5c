"""Groups that surrogates learn from and are measured on, judged by the real judge.

They are of the zoo, of networks drawn at random, and of models given.

What was judged stays in a folder, one archive for each network and chip; what is there is not judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from scipy.optimize import nnls
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from explainers.dataset import family
from explainers.surrogate import COLUMNS, GroupColumns, Surrogate
from explainers.train_surrogate import ROUNDS, SETTINGS, fit, trees
from lfopt.app.commands.options import chip
from lfopt.app.pipeline import ZOO, load_network
from lfopt.app.surrogates import judged, varied
from lfopt.ir.names import file_name
from lfopt.planning import GroupCosts
from lfopt.zoo import cells

NETWORKS = (
    "efficientnet_b0", "efficientnet_b3", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small",
    "mobilenet_v3_large", "resnet18", "resnet50", "squeezenet1_0", "vgg16", "deeplabv3_mobilenet_v3_large",
    "fsrcnn", "fsrcnn_deconv", "mobilenet_v1_ssd", "yolov4", "unet", "c3d", "bert_base", "gpt2", "vit_tiny",
    "whisper_tiny_encoder", "detr_resnet50", "segformer_b0",
)  # fmt: skip
DRAWN = 3  # networks of each family of cells
GROUPS = 60  # of a network on a chip
CHIP = "accelerator_256k.yaml"
# columns whose sum, each with a rate of its own, and a constant are the linear roofline
LINEAR = ("cycles all", "loads", "stores")


def sources(models: Sequence[str]) -> list[str]:
    """Networks to learn from."""
    drawn = [f"{cells.PREFIX}{name}@{seed}" for name in cells.FAMILIES for seed in range(1, DRAWN + 1)]
    return [*(ZOO + name for name in (*NETWORKS, *drawn)), *models]


def family_of(source: str) -> str:
    return family(Path(source.removeprefix(ZOO)).stem)


@dataclass(frozen=True, eq=False)
class SurrogateSamples:
    """Groups of several networks, network after network."""

    names: tuple[str, ...]  # per network
    families: tuple[str, ...]  # per network
    network: np.ndarray  # (groups,) int64
    read: GroupColumns
    cycles: np.ndarray  # (groups,) int64

    @classmethod
    def measured(
        cls, folder: Path, networks: Sequence[str], report: Callable[[str, float], None]
    ) -> SurrogateSamples:
        """Judge what is not in the folder yet."""
        folder.mkdir(parents=True, exist_ok=True)
        names, families, parts = list[str](), list[str](), list[tuple[np.ndarray, ...]]()
        jobs = [(source, other) for source in networks for other in (False, True)]
        for k, (source, other) in enumerate(jobs):
            stem = source.removeprefix(ZOO) if source.startswith(ZOO) else Path(source).stem
            path = folder / f"{file_name(stem)}-{int(other)}.npz"
            report(f"judging {path.stem}", k / len(jobs))
            if not path.exists():
                hardware, scheme = (
                    (chip(CHIP, None, None), "auto") if not other else varied(chip(CHIP, None, None), source)
                )
                costs = GroupCosts.of(
                    load_network(source, None, "default", weights=False), hardware, scheme=scheme
                )
                groups = judged(costs, GROUPS, crc32(source.encode()))
                np.savez(
                    path,
                    roof=groups.read.roof,
                    columns=groups.read.columns,
                    cycles=groups.cycles,
                    names=np.array(COLUMNS),
                )
            with np.load(path) as archive:
                if tuple(archive["names"].tolist()) != COLUMNS:
                    raise SystemExit(f"{path}: found other columns than there are now; remove the folder")
                parts.append(
                    (
                        np.full(len(archive["cycles"]), len(names)),
                        archive["roof"],
                        archive["columns"],
                        archive["cycles"],
                    )
                )
            names.append(path.stem)
            families.append(family_of(source))
        network, roof, columns, cycles = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls(tuple(names), tuple(families), network, GroupColumns(roof, columns), cycles)

    @cached_property
    def family(self) -> np.ndarray:
        """(groups,) str."""
        return np.array(self.families)[self.network]

    @cached_property
    def above(self) -> np.ndarray:
        """(groups,): log2 of the cycles over the roofline."""
        return np.log2(self.cycles) - self.read.roof

    def surrogate(self, known: np.ndarray) -> Surrogate:
        """Fitted to some of the groups, (groups,) bool."""
        return fit(self.read.columns[known], self.above[known], self.family[known].tolist())


# -- what surrogates are measured beside: (samples; (groups,) bool, those to learn from; the same, those asked

Says = Callable[[SurrogateSamples, np.ndarray, np.ndarray], np.ndarray]


def roofline(samples: SurrogateSamples, known: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """No parameters: the larger of computation and transfers."""
    return samples.read.roof[tested]


def linear(samples: SurrogateSamples, known: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """Four coefficients, none negative: of computation, loads, stores, and a constant, by relative errors."""
    terms = np.exp2(
        samples.read.columns[:, [COLUMNS.index(name) for name in LINEAR]].astype(np.float64)
        + samples.read.roof[:, None]
    )
    terms = np.column_stack([terms, np.ones(len(terms))])
    rates, _ = nnls(terms[known] / samples.cycles[known, None], np.ones(known.sum()))
    return np.log2(np.maximum(terms[tested] @ rates, 1))


def _learnt(
    make: Callable[[], Any], columns: Callable[[SurrogateSamples], np.ndarray], *, above: bool
) -> Says:
    """`above`: whether the cycles over the roofline are learnt, or the cycles."""

    def says(samples: SurrogateSamples, known: np.ndarray, tested: np.ndarray) -> np.ndarray:
        base = samples.read.roof if above else np.zeros(len(samples.cycles))
        with threadpool_limits(1):
            model = make().fit(columns(samples)[known], np.log2(samples.cycles[known]) - base[known])
            return model.predict(columns(samples)[tested]) + base[tested]

    return says


def surrogate(samples: SurrogateSamples, known: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """What ships, learnt anew."""
    learnt = trees(samples.read.columns[known], samples.above[known], ROUNDS)
    return samples.read.roof[tested] + learnt(samples.read.columns[tested])


def _plain(samples: SurrogateSamples) -> np.ndarray:
    """(groups, columns): what a group moves and computes, as it is, and its operators; no roofline."""
    roof, columns = samples.read.roof[:, None], samples.read.columns
    shares = [COLUMNS.index(name) for name in (*LINEAR, "input", "output", "weight", "spill")]
    rest = [k for k, name in enumerate(COLUMNS) if name.startswith(("kind ", "mode ", "operators", "rows"))]
    return np.concatenate((columns[:, shares] + roof, columns[:, rest]), 1)


def _trees() -> Any:
    return HistGradientBoostingRegressor(max_iter=ROUNDS, **SETTINGS)


JUDGES: dict[str, Says] = {
    "roofline": roofline,
    "linear roofline": linear,
    "ridge": _learnt(
        lambda: make_pipeline(StandardScaler(), Ridge(3.0)), lambda samples: samples.read.columns, above=True
    ),
    "trees on sums": _learnt(_trees, _plain, above=False),
    "extra trees": _learnt(
        lambda: ExtraTreesRegressor(40, min_samples_leaf=2, max_features=0.5, random_state=0),
        lambda samples: samples.read.columns,
        above=True,
    ),
    "perceptrons": _learnt(
        lambda: make_pipeline(
            StandardScaler(),
            MLPRegressor(
                hidden_layer_sizes=(64, 64), alpha=0.01, max_iter=60, early_stopping=True, random_state=0
            ),
        ),
        lambda samples: samples.read.columns,
        above=True,
    ),
    "surrogate": surrogate,
}


def left_out(samples: SurrogateSamples, judge: str) -> np.ndarray:
    """(groups,): log2 of the cycles, of every family by what has learnt from all others."""
    says = JUDGES[judge]
    estimates = np.zeros(len(samples.cycles))
    for name in np.unique(samples.family).tolist():
        tested = samples.family == name
        estimates[tested] = says(samples, ~tested, tested)
    return estimates
