"""The page of a front: what it says in words, and the data that its scripts draw."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from hw_rtl.area import LUTS_OF_DSP, LUTS_OF_RAM
from lfopt.app.front_data import Advice, FrontData, Point
from lfopt.app.report.page import Figure, as_json, fill
from lfopt.app.sizes import format_size
from lfopt.ir.names import plural
from search.objectives import FIGURE

SCRIPTS = ("theme", "base", "front")


def page_of(front: FrontData, *, every: bool = False) -> str:
    """One HTML page that asks for nothing from anywhere. `every`: with the plans that others dominate."""
    points = front.points if every else front.efficient
    values = {
        "name": front.network,
        "facts": _facts(front),
        "figures": _figures(front),
        "advice": [(_named(advice), advice.reason, advice.knee) for advice in front.advice],
        "notes": notes(front),
        "rule": KNEE,
        "version": version("lfopt"),
    }
    return fill("front.html", SCRIPTS, {**values, "data": as_json(_data(front, points))})


KNEE = (
    "A knee is the buffer (or array) at which the least value lies farthest below the straight line from the "
    "smallest size to the one that takes the least, sizes counted in doublings, both axes from 0 to 1; below "
    "a tenth of the whole fall there is none."
)


def notes(front: FrontData) -> list[str]:
    """What the figures rest on."""
    hardware = front.hardware
    assumed = ", assumed: the chip does not say" if hardware.assumed else ""
    arrays = {(p.mac_rows, p.mac_columns) for p in front.points}
    if len(arrays) == 1:
        array = "on " + "".join(f"{rows} x {columns} MACs, " for rows, columns in arrays)
    else:
        array = "at "
    lines = [
        (
            f"Cycles and energy are the model's, {array}{hardware.port_bytes} B a cycle and "
            f"{hardware.vector_lanes} vector lanes{assumed}."
        )
    ]
    lines.append(
        f"Area is an estimate: LUTs of UltraScale+, with {LUTS_OF_RAM} for a block RAM and {LUTS_OF_DSP} for "
        "a DSP, scaled from the cells that Yosys maps the accelerator with 16 x 16 MACs to."
    )
    if front.volume is not None:
        share = 100 * front.volume.share
        alone = 100 * front.volume_exact
        lines.append(
            f"Hypervolume: {share:.2f} % of the box between the best value of each cost and a tenth of its "
            f"range behind the worst ({alone:.2f} % without the sampled plans)."
        )
    if any(point.without_steps for point in front.points):
        lines.append(
            "Where groups of a plan cannot run, their bytes are what must move, and no more: such a plan "
            "dominates none that runs."
        )
    if front.chips < front.of:
        why = "Ctrl-C" if front.interrupted else "the time limit"
        lines.append(
            f"{front.chips} of {plural(front.of, 'chip')} were finished before {why}; of the others there "
            "are fewer plans, or none."
        )
    return lines


def _facts(front: FrontData) -> list[str]:
    sizes = sorted({p.buffer_bytes for p in front.points})
    arrays = {(p.mac_rows, p.mac_columns) for p in front.points}
    if not sizes:
        buffers = []
    else:
        buffers = [
            f"{format_size(sizes[0])} to {format_size(sizes[-1])}"
            if len(sizes) > 1
            else format_size(sizes[0])
        ]
    chip = [] if front.hardware.name in ("unnamed", "command line") else [front.hardware.name]
    if len(arrays) < 5:
        named = [f"{rows} x {columns} MACs" for rows, columns in sorted(arrays)]
    else:
        named = [plural(len(arrays), "MAC array")]
    return [*chip, *buffers, *named, f"scheme {front.scheme}", f"least {', '.join(front.minimise)}"]


def _figures(front: FrontData) -> list[Figure]:
    proven = sum(point.proof == "optimal" for point in front.efficient)
    figures = [
        Figure(
            "plans that no other beats",
            f"{len(front.efficient):,}",
            "",
            f"of {len(front.points):,} found, on {plural(front.chips, 'chip')}",
        ),
        Figure("proven optimal", f"{proven:,}", "", "in an objective or in a weighted sum", "good"),
    ]
    knees = [advice for advice in front.advice if advice.knee and advice.of == "buffer"]
    best = max(knees, key=lambda a: (a.figure == "bytes", a.depth), default=None)
    if best is not None:
        figures.append(
            Figure(
                f"knee in {best.figure}",
                format_size(best.buffer_bytes),
                "",
                f"{best.mac_rows} x {best.mac_columns} MACs",
            )
        )
    if front.volume is not None:
        figures.append(
            Figure("hypervolume", f"{100 * front.volume.share:.1f}", "%", "of the box of all plans")
        )
    return figures


def _named(advice: Advice) -> str:
    if advice.of == "buffer":
        return (
            f"{format_size(advice.buffer_bytes)} for {advice.figure}, with {advice.mac_rows} x "
            f"{advice.mac_columns} MACs"
        )
    return (
        f"{advice.mac_rows} x {advice.mac_columns} MACs for {advice.figure}, with "
        f"{format_size(advice.buffer_bytes)}"
    )


def _data(front: FrontData, points: tuple[Point, ...]) -> dict[str, Any]:
    """Short lists, and the empty ones that the page of a plan would fill."""
    return {
        "classes": [],
        "groups": [],
        "buffer": None,
        "minimise": list(front.minimise),
        "points": [
            [
                *(
                    p.buffer_bytes,
                    p.mac_rows,
                    p.mac_columns,
                    p.dram_bytes,
                    p.cycles,
                    p.energy_pj,
                    p.area.lut_equivalents,
                ),
                *(len(p.groups), p.found, list(p.best), p.gap, p.dominated, list(p.area)),
            ]
            for p in points
        ],
        "curves": {
            name: [
                [rows, columns, [*least], [*least.values()]]
                for (rows, columns), least in front.least(name).items()
            ]
            for name in FIGURE
            if any(name in point.best for point in front.points)
        },
        "knees": [asdict(advice) for advice in front.advice if advice.knee and advice.of == "buffer"],
    }
