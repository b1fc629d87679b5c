"""lfopt sweep: traffic against buffer size, exactly.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape

from lfopt.app.answers.fronts import StairAnswer, SweepAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import INTERRUPTED, WITHOUT_STEPS, check_seconds, chip
from lfopt.app.config import Config
from lfopt.app.files import write_text
from lfopt.app.gaps import gap_text
from lfopt.app.options import (
    JOINING,
    JOINING_SWITCH,
    ElementBytesOption,
    HardwareOption,
    InputShapesOption,
    ModelOption,
    RulesOption,
    SchemeOption,
    Switch,
    TrafficOption,
)
from lfopt.app.pipeline import load_network
from lfopt.app.screen import err, mib, note, out, progress_line, shown, table
from lfopt.app.sizes import UNLIMITED, parse_shapes, plain_size, size_option
from lfopt.app.staircase import draw
from lfopt.app.sweeps import solve_each, solve_range
from lfopt.ir import InvalidConfig
from lfopt.ir.names import file_name
from lfopt.planning import SCHEMES, GroupCosts, Traffic, layer_by_layer_bytes
from lfopt.planning.defaults import GROUP_SCHEME
from search.staircase import Stair

NAMED_RANGES = 3  # of those in which steps may be missing


def sweep(
    model: ModelOption,
    /,
    *,
    buffers: str = "64KiB:4MiB",
    scheme: SchemeOption = GROUP_SCHEME,
    traffic: TrafficOption = Config.traffic,
    epilogue: Annotated[Switch, JOINING] = JOINING_SWITCH,
    hardware: HardwareOption | None = None,
    element_bytes: ElementBytesOption | None = None,
    input_shape: InputShapesOption = (),
    rules: RulesOption = Config.rules,
    time_limit: float = 60.0,
    out_dir: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Compute the exact staircase of DRAM traffic against buffer size.

    Example: lfopt sweep zoo:mobilenet_v2 --buffers 64KiB:1MiB

    It is printed as a table, and written as CSV and as a picture (SVG and PNG). Sizes in the CSV are bytes;
    one without a limit is `unlimited`, as --buffers takes it. Ctrl-C ends the search: what was found is
    printed and written, and the exit code is 130.

    Parameters
    ----------
    buffers
        A range such as 64KiB:4MiB gives every step in it; a list such as 128KiB,256KiB,unlimited gives those
        sizes. They replace the buffer of the hardware description.
    time_limit
        Seconds for a whole range, or for each size of a list; what takes longer gets a bound and no proof.
        Where a range takes longer, a note says between which sizes steps may be missing.
    out_dir
        Folder of the results; runs/NETWORK-sweep if not given.
    """
    sizes = [size_option(text, "--buffers") for text in buffers.replace(":", ",").split(",")]
    if sizes != sorted(set(sizes)) or (":" in buffers and len(sizes) != 2):
        raise InvalidConfig(
            f"--buffers: found {buffers!r}; accepted: LOW:HIGH, or sizes in rising order with commas between"
        )
    check_seconds(time_limit)
    if traffic == "paper" and ":" in buffers:
        raise InvalidConfig(
            "--traffic paper: what it leaves out changes with the buffer, so traffic may rise with it; "
            "accepted: --buffers as a list"
        )
    described = chip(hardware, None, element_bytes)
    graph = load_network(model, parse_shapes(input_shape), rules, weights=False)
    note(graph)
    costs = GroupCosts.of(graph, described, Traffic(traffic), scheme=scheme, epilogue=epilogue == "on")
    with progress_line() as report:
        swept = (solve_range if ":" in buffers else solve_each)(costs, sizes, time_limit, report)
    stairs, interrupted, unresolved = swept
    ends = {
        "layer by layer": layer_by_layer_bytes(costs.unfused()),
        "compulsory": costs.bounds.compulsory_bytes,
    }
    _print(stairs, graph.name, ends)
    folder = out_dir or Path("runs") / file_name(f"{graph.name}-sweep")
    folder.mkdir(parents=True, exist_ok=True)
    lines = [",".join([plain_size(stair.buffer_bytes), *map(str, stair[1:])]) for stair in stairs]
    write_text(folder / "staircase.csv", "\n".join([",".join(Stair._fields), *lines]) + "\n")
    draw(
        stairs,
        sizes,
        ends,
        f"{graph.name}: DRAM traffic of the optimal plan (traffic {traffic}, epilogue {epilogue})",
        folder,
    )
    out.print(f"[dim]wrote[/] {shown(folder)}/staircase.csv, staircase.svg, staircase.png", soft_wrap=True)
    if SCHEMES[scheme].copies:
        err.print(
            "note: a sweep has no copies, and nothing stays between groups; with both, lfopt search may move "
            "less",
            style="yellow",
            soft_wrap=True,
        )
    if unresolved:
        unproven = "not proven" if described.l2_bytes else "not proven in the time"
        err.print(f"note: {unproven}, {_said_of(unresolved)}", style="yellow", soft_wrap=True)
    if interrupted:
        err.print(
            "note: interrupted: these are the sizes that were done, and what was found until then",
            style="yellow",
            soft_wrap=True,
        )
    listed = tuple(StairAnswer(*stair) for stair in stairs)
    answer(
        SweepAnswer(
            graph.name,
            str(folder),
            scheme,
            ends["layer by layer"],
            ends["compulsory"],
            listed,
            interrupted,
            tuple(unresolved),
        )
    )
    if interrupted:
        return INTERRUPTED
    if any(stair.without_steps for stair in stairs):
        err.print(
            "note: where a plan cannot run, the bytes of its groups without steps are what must move, and no "
            "more",
            style="yellow",
            soft_wrap=True,
        )
        return WITHOUT_STEPS
    return 0


def _said_of(unresolved: Sequence[tuple[int, int]]) -> str:
    """Where steps may be missing, the widest ranges first."""
    widest = sorted(unresolved, key=lambda ends: ends[0] - ends[1])
    named = [_ends(low, high) for low, high in widest[:NAMED_RANGES]]
    more = f" and {len(widest) - NAMED_RANGES} more ranges" if widest[NAMED_RANGES:] else ""
    return f"steps may be missing: buffers of {', '.join(named)}{more}"


def _ends(low: int, high: int) -> str:
    if high == UNLIMITED:
        return f"{low:,} B and more"
    return f"{low:,} to {high:,} B" if low < high else f"{low:,} B"


def _print(stairs: list[Stair], name: str, ends: dict[str, int]) -> None:
    listed = stairs if len(stairs) <= 40 else [stairs[round(k * (len(stairs) - 1) / 39)] for k in range(40)]
    rows = table("from buffer of", "bytes", "DRAM bytes", "MiB", "x compulsory", "groups", "")
    for stair in listed:
        if stair.without_steps:
            proof = f"cannot run: {stair.without_steps} without steps"
        elif stair.dram_bytes == stair.lower_bound_bytes:
            proof = "optimal"
        elif stair.lower_bound_bytes:
            proof = gap_text(stair.dram_bytes / stair.lower_bound_bytes - 1)
        else:
            proof = "no bound"
        ratio = f"{stair.dram_bytes / ends['compulsory']:.3f}" if ends["compulsory"] else ""
        endless = stair.buffer_bytes == UNLIMITED
        kib = "unlimited" if endless else f"{stair.buffer_bytes / 1024:,.1f} KiB"
        rows.add_row(
            kib,
            "" if endless else f"{stair.buffer_bytes:,}",
            f"{stair.dram_bytes:,}",
            mib(stair.dram_bytes),
            ratio,
            str(stair.groups),
            proof,
        )
    out.print(rows)
    if len(listed) < len(stairs):
        out.print(f"[dim]{len(listed)} of {len(stairs)} steps shown; all are in staircase.csv[/]")
    out.print(f"{escape(name)}: " + ", ".join(f"{what} {size:,} B" for what, size in ends.items()))
