"""The picture of a sweep."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from lfopt.app.files import write_bytes
from lfopt.app.steps import corners
from lfopt.ir import UNLIMITED
from search.staircase import Stair

INK, BLUE, GREY = "#1b1f24", "#0b62a4", "#8a9199"


def draw(stairs: list[Stair], sizes: list[int], ends: dict[str, int], title: str, folder: Path) -> None:
    """Write staircase.svg and staircase.png: DRAM MiB against buffer size on a log axis.

    `sizes`, `ends`: bytes; the levels `ends` are dashed lines. Raises CannotWrite.
    """
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    buffers, names = _places([s.buffer_bytes for s in stairs] + [sizes[-1]])
    traffic = [s.dram_bytes / (1 << 20) for s in stairs]
    *starts, end = buffers
    axes.plot(*_line(starts, traffic, end), color=BLUE, linewidth=2, label="optimal plan")
    if any(s.lower_bound_bytes < s.dram_bytes for s in stairs):
        bounds = [s.lower_bound_bytes / (1 << 20) for s in stairs]
        axes.plot(
            *_line(starts, bounds, end), color=BLUE, linewidth=1, linestyle=":", label="proven lower bound"
        )
    for name, size in ends.items():
        level = size / (1 << 20)
        if level > 3 * max(traffic):
            continue  # it would flatten the staircase
        axes.axhline(level, color=GREY, linewidth=1, linestyle="--")
        above = level > max(traffic)
        place = {
            "xycoords": ("axes fraction", "data"),
            "textcoords": "offset points",
            "fontsize": 9,
            "color": INK,
        }
        axes.annotate(
            f"{name}: {level:,.1f} MiB",
            (0, level),
            xytext=(6, 4 if above else -4),
            va="bottom" if above else "top",
            **place,
        )
    axes.set_xscale("log", base=2)
    axes.set_xlim(buffers[0], max(buffers[-1], buffers[0] * 2))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(FixedLocator(list(names)) if names else LogLocator(base=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: names.get(size, _size(size))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("on-chip buffer")
    axes.set_ylabel("DRAM traffic, MiB per inference")
    axes.set_title(title, loc="left", fontsize=11, color=INK, parse_math=False)
    axes.grid(visible=True, which="major", color="#e3e6ea", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(frameon=False, loc="center right")
    with mpl.rc_context({"svg.hashsalt": "lfopt", "svg.fonttype": "none"}):
        for kind, metadata in (("svg", {"Date": None}), ("png", {})):
            picture = BytesIO()
            figure.savefig(picture, format=kind, dpi=150, metadata=metadata)
            write_bytes(folder / f"staircase.{kind}", picture.getvalue())


def _line(starts: list[int], levels: list[float], end: int) -> tuple[list[float], list[float]]:
    """The staircase as x and y."""
    points = corners(list(zip(starts, levels, strict=True)), end)
    return [x for x, _ in points], [y for _, y in points]


def _places(sizes: list[int]) -> tuple[list[int], dict[float, str]]:
    """(places of sizes on the axis, names by place; none where every size is its own place).

    One without a limit stands behind the others, and then names stand at places along the axis.
    """
    limited = [size for size in sizes if size < UNLIMITED]
    if limited == sizes:
        return sizes, {}
    # powers of two
    low, high = ((limited[0] - 1).bit_length(), limited[-1].bit_length() - 1) if limited else (1, 0)
    end = 1 << (high + 3)
    ticks = [1 << k for k in range(low, high + 1, max(1, (high - low + 8) // 8))]
    return [*(min(size, end) for size in sizes[:-1]), 2 * end], {
        **{tick: _size(tick) for tick in ticks},
        end: "unlimited",
    }


def _size(size: float) -> str:
    unit, name = next(
        ((unit, name) for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")) if size >= unit),
        (1 << 10, "KiB"),
    )
    return f"{size / unit:g} {name}"
