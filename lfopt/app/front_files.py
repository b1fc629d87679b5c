"""A front as data, CSV, and a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lfopt.app.files import write_text
from lfopt.app.front_data import Advice, FrontData, Point
from lfopt.app.report.front import page_of
from lfopt.app.sizes import format_size
from lfopt.ir.names import printable
from search.objectives import FIGURE, ObjectiveName

SCHEMA = "lfopt.pareto/1"
COLUMNS = (
    *(
        "buffer_bytes",
        "mac_rows",
        "mac_columns",
        "dram_bytes",
        "cycles",
        "energy_pj",
        "lut",
        "ff",
        "dsp",
        "ram",
        "lut_equivalents",
        "groups",
    ),
    *("found", "best", "gap", "proof", "without_steps", "dominated", "knee_of"),
)
INK = "#1b1f24"
COLOURS = ("#0b62a4", "#b3403a", "#1f7a4d", "#9d712d", "#8c69a7", "#188d7c")
UNITS: dict[ObjectiveName, tuple[str, float]] = {
    "bytes": ("DRAM MiB", 1 << 20),
    "cycles": ("million cycles", 1e6),
    "energy": ("energy, mJ", 1e9),
}


def write_front(front: FrontData, folder: Path, *, every: bool = False) -> tuple[str, ...]:
    """Write front.csv, .json, .svg and .html; names of what was written.

    `every`: dominated plans too. Raises CannotWrite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "front.csv": as_csv(front, every=every),
        "front.json": json.dumps(as_data(front, every=every), indent=1) + "\n",
        "front.svg": as_svg(front),
        "front.html": page_of(front, every=every),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return tuple(texts)


def listed(front: FrontData, *, every: bool) -> Sequence[Point]:
    """The plans that are shown."""
    if every:
        return front.points
    return front.efficient


def as_data(front: FrontData, *, every: bool = False) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "schema": SCHEMA,
        "network": front.network,
        "hardware": asdict(front.hardware),
        "assumed_hardware": front.hardware.assumed,
        "scheme": front.scheme,
        "minimise": list(front.minimise),
        "points": [_point(point) for point in listed(front, every=every)],
        "advice": [asdict(advice) for advice in front.advice],
        "hypervolume": None
        if front.volume is None
        else {
            "share": front.volume.share,
            "exact_alone": front.volume_exact,
            "reference_point": dict(zip(front.minimise, front.volume.reference, strict=True)),
        },
        "dominated": sum(point.dominated for point in front.points),
        "chips_finished": front.chips,
        "chips": front.of,
        "seconds": round(front.seconds, 3),
        "interrupted": front.interrupted,
    }


def _point(point: Point) -> dict[str, Any]:
    area = point.area._asdict() | {"lut_equivalents": point.area.lut_equivalents}
    return asdict(point) | {
        "area": area,
        "proof": point.proof,
        "best": dict(zip(point.best, point.gaps, strict=True)),
    }


def as_csv(front: FrontData, *, every: bool = False) -> str:
    """A row for each plan."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for p in listed(front, every=every):
        gap = "" if p.gap is None else f"{p.gap:.6g}"
        size = (p.buffer_bytes, p.mac_rows, p.mac_columns)
        figures = (p.dram_bytes, p.cycles, p.energy_pj)
        knees = " ".join(advice.figure for advice in knees_at(front, p))
        row = (
            *size,
            *figures,
            *p.area,
            p.area.lut_equivalents,
            len(p.groups),
            p.found,
            " ".join(p.best),
            gap,
            p.proof,
            p.without_steps,
            int(p.dominated),
            knees,
        )
        writer.writerow(row)
    return text.getvalue()


def knees_at(front: FrontData, point: Point) -> list[Advice]:
    """The knees in the buffer whose least value this plan has."""
    size = point.buffer_bytes, point.mac_rows, point.mac_columns
    knees = [a for a in front.advice if a.knee and a.of == "buffer"]
    return [
        a for a in knees if (a.buffer_bytes, a.mac_rows, a.mac_columns) == size and a.figure in point.best
    ]


# -- the picture ---------------------------------------------------------------------------------------------


def as_svg(front: FrontData) -> str:
    """Each figure against the buffer: plans as dots, the least of each array as a line, its knee ringed."""
    names: list[ObjectiveName] = [name for name in UNITS if any(name in p.best for p in front.points)]
    figure = Figure(figsize=(4.4 * max(len(names), 1), 4), layout="constrained")
    for k, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), k + 1)
        unit, scale = UNITS[name]
        sizes = sorted({p.buffer_bytes for p in front.points})
        for number, ((rows, columns), least) in enumerate(front.least(name).items()):
            colour = COLOURS[number % len(COLOURS)]
            here = [p for p in front.efficient if (p.mac_rows, p.mac_columns) == (rows, columns)]
            values = [getattr(p, FIGURE[name]) / scale for p in here]
            axes.plot(
                [p.buffer_bytes for p in here],
                values,
                "o",
                markersize=3,
                color=colour,
                alpha=0.35,
                markeredgewidth=0,
            )
            axes.plot(
                [*least],
                [v / scale for v in least.values()],
                "-o",
                markersize=4,
                linewidth=1.6,
                color=colour,
                label=f"{rows} x {columns} MACs",
            )
            for advice in front.advice:
                if advice.knee and (advice.of, advice.figure, advice.mac_rows, advice.mac_columns) == (
                    "buffer",
                    name,
                    rows,
                    columns,
                ):
                    at = advice.buffer_bytes
                    axes.plot(
                        at,
                        least[at] / scale,
                        "o",
                        markersize=11,
                        markerfacecolor="none",
                        markeredgecolor=colour,
                        markeredgewidth=1.4,
                    )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // 6)]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(round(size))))
        axes.tick_params(labelsize=8)
        axes.set_xlabel("on-chip buffer", fontsize=9)
        axes.set_ylabel(f"{unit} per inference", fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, color="#e3e6ea", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        if k == len(names) - 1:
            axes.legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"{printable(front.network)}: least of each figure by buffer; a ring is a knee",
        x=0.01,
        ha="left",
        fontsize=11,
        color=INK,
        parse_math=False,
    )
    with mpl.rc_context({"svg.hashsalt": "lfopt", "svg.fonttype": "none"}):
        picture = BytesIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue().decode()
