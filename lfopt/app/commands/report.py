"""lfopt report: a plan as a page to look at.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lfopt.app.answers.files import FileAnswer
from lfopt.app.answers.plans import ReportAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.config import MAX_SECONDS
from lfopt.app.files import write_text
from lfopt.app.options import (
    PICTURE_SECONDS,
    SWEEP_SECONDS,
    ExplainersOption,
    PictureSecondsOption,
    PlanOption,
    SweepSecondsOption,
)
from lfopt.app.report.summary import page_of
from lfopt.app.screen import note, out, shown
from lfopt.app.verify import load_planned
from lfopt.ir import InvalidConfig


def report(
    plan: PlanOption,
    /,
    *,
    out_file: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    sweep_seconds: SweepSecondsOption = SWEEP_SECONDS,
    explainer: ExplainersOption = (),
    explain_seconds: PictureSecondsOption = PICTURE_SECONDS,
) -> None:
    """Write a plan as one HTML page to look at.

    It shows the network, the groups and their traffic, the buffer while they run, and why no group is larger.

    Example: lfopt report runs/mobilenet_v2 --out mobilenet_v2.html

    Parameters
    ----------
    out_file
        The page; report.html beside the plan if not given.
    """
    clock = time.perf_counter()
    if not 0 <= sweep_seconds < MAX_SECONDS:
        raise InvalidConfig(f"--sweep-seconds: found {sweep_seconds}; accepted: seconds from 0")
    if not 0 <= explain_seconds < MAX_SECONDS:
        raise InvalidConfig(f"--explain-seconds: found {explain_seconds}; accepted: seconds from 0")
    file = plan / "plan.json" if plan.is_dir() else plan
    page = file.parent / "report.html" if out_file is None else out_file
    if page.is_dir() or not page.parent.is_dir():
        raise InvalidConfig(f"--out {page}: accepted: a file name in a folder that exists")
    claimed, graph = load_planned(file)
    note(graph)
    write_text(page, page_of(claimed, graph, sweep_seconds, explain_seconds, tuple(dict.fromkeys(explainer))))
    size = page.stat().st_size
    seconds = time.perf_counter() - clock
    out.print(f"[dim]wrote[/] {shown(page)}: {size:,} B [dim]in[/] {seconds:.1f} s", soft_wrap=True)
    answer(ReportAnswer(FileAnswer(str(page), size), seconds))
