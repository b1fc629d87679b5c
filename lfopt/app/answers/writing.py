"""Write the answer of a command as JSON, where the command line asked for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from lfopt.app.answers.table import ANSWERS, name_of
from lfopt.app.files import write_text
from lfopt.app.screen import begin, out, shown, write
from lfopt.app.tokens import STDOUT, CommandLine
from lfopt.ir import InvalidConfig

_asked: dict[str, str] = {}  # of this run of the command line: "json" -> where it is to go


def expect(command_line: CommandLine) -> None:
    """Begin a run of the command line: where its answer goes.

    Raises InvalidConfig for a command without an answer, or a file that cannot be written.
    """
    _asked.clear()
    begin(quiet=command_line.quiet, verbose=command_line.verbose, json=command_line.json == STDOUT)
    if command_line.json is None:
        return
    command = next(
        (name for name in (" ".join(command_line.tokens[:2]), *command_line.tokens[:1]) if name in ANSWERS),
        None,
    )
    if command is None:
        raise InvalidConfig(
            f"--json: found with lfopt {' '.join(command_line.tokens[:1])}; accepted: with "
            f"{', '.join(ANSWERS)}"
        )
    file = Path(command_line.json)
    if command_line.json != STDOUT and (
        not file.name or file.is_dir() or not file.absolute().parent.is_dir()
    ):
        raise InvalidConfig(f"--json {command_line.json}: accepted: a file name in a folder that exists")
    _asked.update(json=command_line.json, command=command)


def answer(content: object) -> None:
    """Write the answer of the command that runs, if the command line asked for one. Raises CannotWrite.

    `content`: one of the dataclasses in ANSWERS, or its fields as a mapping.
    """
    where = _asked.get("json")
    if where is None:
        return
    data: Mapping[str, Any] = (
        content
        if isinstance(content, Mapping)
        else asdict(content)
        if is_dataclass(content) and not isinstance(content, type)
        else {}
    )
    text = json.dumps({"schema": name_of(_asked["command"]), **data}, indent=1, allow_nan=False) + "\n"
    if where == STDOUT:
        write(text)
        return
    write_text(Path(where), text)
    out.print(f"[dim]wrote[/] {shown(where)}", soft_wrap=True)
