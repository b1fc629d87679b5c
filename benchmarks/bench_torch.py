"""PyTorch modules by `torch.compile`: backend lfopt against inductor and eager, float32.

Calls are in one process, in turns.

    python benchmarks/bench_torch.py [--threads 1 2] [--rounds 30]

`first` is the clock's seconds of the first call, from empty caches: capture, export, plan, C, and the
compiler; for inductor, its own. Times of a call are the least of all rounds in ms, `x` is how many times
longer than ours. `error`: the largest difference from eager, as a share of the largest output.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.table import Table
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from lfopt.app.pytorch.backend import backend

HEADS = ("threads", "first, ours", "first, inductor", "ours", "eager", "x", "inductor", "x", "error")


class Residual(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, channels: int, wide: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_normalised(channels, wide, 3, stride), nn.ReLU(), *_normalised(wide, wide, 3)
        )
        self.skip = (
            nn.Sequential(*_normalised(channels, wide, 1, stride))
            if (channels, 1) != (wide, stride)
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, h, w] to [n, wide, h / stride, w / stride]."""
        return (self.body(x) + self.skip(x)).relu()


class Inverted(nn.Module):
    """An inverted residual of MobileNet-V2."""

    def __init__(self, channels: int, wide: int, stride: int) -> None:
        super().__init__()
        inner = 6 * channels
        self.body = nn.Sequential(
            *_normalised(channels, inner, 1),
            nn.ReLU6(),
            *_normalised(inner, inner, 3, stride, inner),
            nn.ReLU6(),
            *_normalised(inner, wide, 1),
        )
        self.skips = (channels, 1) == (wide, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, h, w] to [n, wide, h / stride, w / stride]."""
        return x + self.body(x) if self.skips else self.body(x)


def resnet18() -> nn.Module:
    """He et al. 2015, table 1: 18 layers."""
    stages = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    stem = (*_normalised(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *(Residual(*stage) for stage in stages), *_head(512))


def mobilenet_v2() -> nn.Module:
    """Sandler et al. 2018, table 2, but for an expansion in the first block too."""
    # channels, blocks, stride of the first
    rows = [(16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)]
    blocks, channels = list[nn.Module](), 32
    for wide, count, stride in rows:
        for k in range(count):
            blocks.append(Inverted(channels, wide, 1 if k else stride))
            channels = wide
    return nn.Sequential(
        *_normalised(3, 32, 3, 2), nn.ReLU6(), *blocks, *_normalised(320, 1280, 1), nn.ReLU6(), *_head(1280)
    )


def encoder() -> nn.Module:
    """Six layers of a transformer's encoder, 384 wide, six heads."""
    layer = nn.TransformerEncoderLayer(384, 6, 1536, activation="gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)


def _normalised(
    channels: int, wide: int, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, wide, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(
        wide
    )


def _head(channels: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)


IMAGE = (1, 3, 224, 224)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "ResNet-18": (resnet18, IMAGE),
    "MobileNet-V2": (mobilenet_v2, IMAGE),
    "encoder, 196 tokens": (encoder, (1, 196, 384)),
}


def main() -> None:
    """A row for each module and number of threads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="a row for each (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=30, help="turns of each (default %(default)s)")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    add_option(parser)
    options = parser.parse_args()
    table = Table(
        title="seconds of first calls, least ms of a call",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("module", no_wrap=True)
    for head in HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for name in options.models:
        for threads in options.threads:
            table.add_row(name, *_row(*MODELS[name], threads, options.rounds))
    sheet = Sheet("torch", options.results)
    sheet.show(table)
    sheet.write()


@torch.no_grad()
def _row(make: Callable[[], nn.Module], shape: tuple[int, ...], threads: int, rounds: int) -> tuple[str, ...]:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    torch.compiler.reset()
    model, x = make().eval(), torch.randn(shape)
    backends: dict[str, Any] = {"ours": backend, "inductor": "inductor"}
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "eager": model,
        **{name: torch.compile(model, backend=compiler) for name, compiler in backends.items()},
    }
    first = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_CACHE_HOME=folder, TORCHINDUCTOR_CACHE_DIR=folder)
        for name, call in calls.items():
            start = time.perf_counter()
            call(x)
            first[name] = time.perf_counter() - start
        least = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for name, call in calls.items():
                call(x)  # while threads of whoever was called before still spin
                start = time.perf_counter()
                call(x)
                least[name] = min(least[name], time.perf_counter() - start)
        wanted = model(x)
        error = float((calls["ours"](x) - wanted).abs().max() / wanted.abs().max())
    ms = {name: 1e3 * seconds for name, seconds in least.items()}
    beside = [
        text for name in ("eager", "inductor") for text in (f"{ms[name]:.2f}", f"{ms[name] / ms['ours']:.2f}")
    ]
    return (
        str(threads),
        f"{first['ours']:.1f}",
        f"{first['inductor']:.1f}",
        f"{ms['ours']:.2f}",
        *beside,
        f"{error:.1e}",
    )


if __name__ == "__main__":
    main()
