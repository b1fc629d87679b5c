"""Files that lfopt writes, whole or not at all, and plan.json among them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from lfopt.app.config import validate
from lfopt.app.documents import read_json
from lfopt.ir import MOST_LINES, SCHEMA, InvalidConfig, InvalidPlan, Node, Plan, PlannedGroup
from lfopt.ir.files import whole_file
from lfopt.ir.hardware import UNSAID
from lfopt.ir.listing import listing, parse
from lfopt.ir.names import is_plain, one_line
from lfopt.planning.modes import MODES, SCHEMES


def path_of(path: object, what: str) -> Path:
    """A path that a caller gives. Raises InvalidConfig for what is none."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        shown = repr(text) if isinstance(text, str) else type(text).__name__
        raise InvalidConfig(f"{what}: found {shown}; accepted: a file name")
    return Path(text)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 as `write_with` does. Raises CannotWrite."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes as `write_with` does. Raises CannotWrite."""
    write_with(path, lambda file: file.write(data))


def write_with(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file that appears whole or not at all: see `whole_file`. Raises CannotWrite."""
    with whole_file(path) as file:
        write(file)


def copy_file(source: Path, path: Path) -> None:
    """Copy a file as `write_with` writes; nothing where both are the same. Raises CannotWrite."""
    if path.resolve() != source.resolve():
        with source.open("rb") as original:
            write_with(path, partial(shutil.copyfileobj, original))


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_plan(plan: Plan, path: Path) -> None:
    """Write plan.json, one group a line but for its steps. Raises CannotWrite."""
    data: dict[str, Any] = {"schema": SCHEMA, **_plain(replace(plan, groups=()))}
    groups = ",\n  ".join(_group_text(group) for group in plan.groups)
    memory = ",\n  ".join(json.dumps(tensor) for tensor in data.pop("memory"))
    head = {key: data.pop(key) for key in ("schema", "model", "hardware", "scheme", "traffic", "epilogue")}
    del data["groups"]
    tail = json.dumps(data, indent=1)[2:]
    text = (
        json.dumps(head, indent=1)[:-2]
        + f',\n "memory": [\n  {memory}\n ],\n "groups": [\n  {groups}\n ],\n'
        + tail
    )
    write_text(path, text + "\n")


def _plain(value: Any) -> Any:
    """Dataclasses as mappings, without the fields that say nothing: see `UNSAID`."""
    if is_dataclass(value):
        written = (
            f for f in fields(value) if not (f.metadata == UNSAID and getattr(value, f.name) == f.default)
        )
        return {f.name: _plain(getattr(value, f.name)) for f in written}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return value


def _group_text(group: PlannedGroup) -> str:
    data = _plain(replace(group, steps=()))
    del data["steps"]
    lines = ",\n   ".join(json.dumps(line) for line in listing(group.steps))
    return json.dumps(data)[:-1] + (f', "steps": [\n   {lines}]}}' if lines else ', "steps": []}')


def read_plan(path: Path) -> Plan:
    """Read and validate plan.json; a folder means the plan.json in it. Raises InvalidPlan."""
    if path.is_dir():
        path /= "plan.json"
    data = read_json(path, InvalidPlan)
    schema = data.get("schema") if isinstance(data, dict) else type(data).__name__
    if schema != SCHEMA:
        raise InvalidPlan(one_line(f"{path}: schema: found {schema!r}; accepted: {SCHEMA!r}"))
    del data["schema"]
    groups = data.get("groups")
    if isinstance(groups, list) and (lines := sum(_line_count(group) for group in groups)) > MOST_LINES:
        raise InvalidPlan(one_line(f"{path}: found {lines:,} lines of steps; accepted: up to {MOST_LINES:,}"))
    if isinstance(groups, list):
        schedules = [_pop_steps(group, f"{path}: groups.{k}") for k, group in enumerate(groups)]
    else:
        schedules = []
    try:
        plan = validate(Plan, data, str(path))
    except InvalidConfig as error:
        raise InvalidPlan(str(error)) from None
    except InvalidPlan as error:
        raise InvalidPlan(one_line(f"{path}: {error}")) from None
    _check_modes(plan, path)
    _check_names(plan, path)
    return replace(
        plan,
        groups=tuple(
            replace(group, steps=steps) for group, steps in zip(plan.groups, schedules, strict=True)
        ),
    )


def _check_modes(plan: Plan, path: Path) -> None:
    """Check scheme and modes. Raises InvalidPlan for one that is in no table."""
    if plan.scheme not in SCHEMES:
        raise InvalidPlan(one_line(f"{path}: scheme: found {plan.scheme!r}; accepted: {', '.join(SCHEMES)}"))
    for k, group in enumerate(plan.groups):
        if group.mode not in MODES:
            raise InvalidPlan(
                one_line(f"{path}: groups.{k}.mode: found {group.mode!r}; accepted: {', '.join(MODES)}")
            )


def _check_names(plan: Plan, path: Path) -> None:
    """Check names. Raises InvalidPlan for one that is not plain: no model has it."""
    named = {
        "memory": [entry.name for entry in plan.memory],
        "copies": [name for copy in plan.copies for name in (copy.name, copy.of)],
    }
    for k, group in enumerate(plan.groups):
        named[f"groups.{k}.nodes"] = [*group.nodes]
        named[f"groups.{k}.places"] = [place.name for place in group.places]
    for where, names in named.items():
        if odd := [name for name in names if not is_plain(name)]:
            raise InvalidPlan(
                one_line(f"{path}: {where}: found {odd[0]!r}; accepted: plain names (lfopt.ir.names)")
            )


def _line_count(group: Any) -> int:
    lines = group.get("steps") if isinstance(group, dict) else None
    if isinstance(lines, list):
        return len(lines)
    return 0


def _pop_steps(group: Any, where: str) -> tuple[Node, ...]:
    """Take the steps, which are lines of text, out of a group."""
    lines = group.pop("steps", []) if isinstance(group, dict) else []
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InvalidPlan(f"{where}.steps: found {type(lines).__name__}; accepted: a list of lines")
    try:
        return parse(lines)
    except InvalidPlan as error:
        raise InvalidPlan(f"{where}: {error}") from None
