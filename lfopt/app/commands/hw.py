"""lfopt hw: hardware descriptions of real machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import App, Parameter

from lfopt.app.answers import DetectAnswer, answer
from lfopt.app.config import validate
from lfopt.app.detect import description
from lfopt.app.files import write_text
from lfopt.app.screen import out, shown
from lfopt.ir import Hardware, InvalidConfig

app = App(name="hw", help="Describe this machine, to plan and compile for it.")


@app.command
def detect(*, out_file: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None) -> None:
    """Write a hardware description of this machine's CPU: a fusion group may fill half of the L2 cache that one core has.

    Example: lfopt hw detect --out cpu.yaml

    Parameters
    ----------
    out_file
        The file to write; the terminal if not given.
    """
    text = description()
    if out_file is None:
        out.print(text, end="", markup=False, soft_wrap=True)
        answer(_answer(text, None))
        return
    if not out_file.name or out_file.is_dir():
        raise InvalidConfig(f"--out {out_file}: found a folder; accepted: a file name")
    write_text(out_file, text)
    out.print(f"[dim]wrote[/] {shown(out_file)}", soft_wrap=True)
    answer(_answer(text, out_file))


def _answer(text: str, file: Path | None) -> DetectAnswer:
    return DetectAnswer(validate(Hardware, yaml.safe_load(text), "lfopt hw detect"), None if file is None else str(file))
