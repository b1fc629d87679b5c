"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lfopt.app.config import MAX_SECONDS, find_hardware, validate
from lfopt.app.documents import read_yaml
from lfopt.app.options import DEFAULT_BUFFER
from lfopt.app.sizes import size_option
from lfopt.ir import Hardware, InvalidConfig, Plan

WITHOUT_STEPS = 3  # exit code: what was asked for is written, but for the steps of some groups
FIGURES = ("svg", "png")  # endings of the files that a figure is written to
INTERRUPTED = 130  # exit code: Ctrl-C; what there was until then is written where the command says so


def chip(hardware: str | None, buffer: str | None, element_bytes: int | None) -> Hardware:
    """A chip from a hardware file, or from its buffer alone, with elements as `Hardware.of_network` says.

    `buffer` and `element_bytes` win over the file. Raises InvalidConfig.
    """
    data: dict[str, object] = {"buffer_bytes": DEFAULT_BUFFER, "name": "command line"}
    where = "--buffer"
    if hardware is not None:
        path = find_hardware(hardware)
        data = read_yaml(path)
        where = str(path)
    if buffer is not None:
        data["buffer_bytes"] = size_option(buffer, "--buffer")
    if element_bytes is not None:
        data["element_bytes"] = element_bytes
    return validate(Hardware, data, where)


def check_seconds(seconds: float | None, option: str = "--time-limit") -> None:
    """Check a time limit in seconds. Raises InvalidConfig."""
    if seconds is not None and not 0 < seconds < MAX_SECONDS:
        raise InvalidConfig(f"{option}: found {seconds}; accepted: seconds above 0")


def check_top(top: int) -> None:
    """Check a number of lines. Raises InvalidConfig for one below 1."""
    if top < 1:
        raise InvalidConfig(f"--top: found {top}; accepted: a whole number of at least 1")


def check_figure(path: Path, option: str = "--save") -> Path:
    """The path. Raises InvalidConfig unless a figure can be written as a file of this name."""
    if path.suffix.lower().removeprefix(".") not in FIGURES:
        raise InvalidConfig(
            f"{option}: found {path.name}; accepted: {', '.join(f'NAME.{kind}' for kind in FIGURES)}"
        )
    return path


def generator(seed: int) -> np.random.Generator:
    """Random numbers of a seed from the command line. Raises InvalidConfig for one below 0."""
    if seed < 0:
        raise InvalidConfig(f"--seed: found {seed}; accepted: a whole number of at least 0")
    return np.random.default_rng(seed)


def check_group(group: int | None, plan: Plan) -> None:
    """Check the number of a group. Raises InvalidConfig for one that the plan has not."""
    if group is not None and not 0 <= group < len(plan.groups):
        accepted = f"a group of the plan, 0 to {len(plan.groups) - 1}" if plan.groups else "no --group"
        has = "" if plan.groups else ", and the plan has no groups"
        raise InvalidConfig(f"--group: found {group}{has}; accepted: {accepted}")
