"""A hardware file with some fields changed: its other lines, and their comments, stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import yaml

from lfopt.app.config import validate
from lfopt.ir import Energy, Hardware, LfoptError
from lfopt.ir.hardware import UNSAID

FIELD = re.compile(r"(?P<indent> *)(?P<name>[a-z_0-9]+):(?P<value>[^#\n]*?)(?P<comment>\s+#.*)?")
ENERGY = "energy"


def changed_fields(before: Hardware, after: Hardware) -> dict[str, Any]:
    """The fields that differ, those of the energy table behind `energy.`."""
    top = {f.name: getattr(after, f.name) for f in fields(Hardware) if f.name != ENERGY}
    table = {f"{ENERGY}.{f.name}": getattr(after.energy, f.name) for f in fields(Energy)}
    old = {f.name: getattr(before, f.name) for f in fields(Hardware)}
    old |= {f"{ENERGY}.{f.name}": getattr(before.energy, f.name) for f in fields(Energy)}
    return {name: value for name, value in (top | table).items() if value != old[name]}


def with_fields(
    text: str, before: Hardware, after: Hardware, comments: Mapping[str, str]
) -> tuple[str, bool]:
    """(the text of a hardware file that says `after`, whether its lines were kept).

    `text` says `before`. `comments`: by field, what its line says behind the value. A text whose lines are
    not one field each is written anew, without its comments.
    """
    changes = {
        name: f"{_value(value)}{f'  # {comments[name]}' if name in comments else ''}"
        for name, value in changed_fields(before, after).items()
    }
    edited = _edited(text, changes)
    if _says(edited, after):
        return edited, True
    return _anew(after, comments), False


def _edited(text: str, changes: Mapping[str, str]) -> str:
    """The text with the values of fields changed, and fields that it does not have at its end."""
    lines: list[str] = []
    left = dict(changes)
    inside = False
    table_at: int | None = None  # the line behind the last one of the energy table
    indent = "  "
    for line in text.splitlines():
        match = FIELD.fullmatch(line.rstrip())
        if match is not None:
            if not match["indent"]:
                inside = match["name"] == ENERGY
                name = match["name"]
            else:
                name = f"{ENERGY}.{match['name']}" if inside else ""
                indent = match["indent"] if inside else indent
            if name in left:
                line = f"{match['indent']}{match['name']}: {left.pop(name)}"
        lines.append(line)
        if inside and line.strip():
            table_at = len(lines)
    new_table = [
        f"{indent}{name.partition('.')[2]}: {value}"
        for name, value in left.items()
        if name.startswith(f"{ENERGY}.")
    ]
    if new_table and table_at is None:
        lines += [f"{ENERGY}:", *new_table]
    elif new_table:
        lines[table_at:table_at] = new_table
    top = [f"{name}: {value}" for name, value in left.items() if not name.startswith(f"{ENERGY}.")]
    at = next((k for k, line in enumerate(lines) if line.startswith(f"{ENERGY}:")), len(lines))
    lines[at:at] = top
    return "\n".join(lines) + "\n"


def _says(text: str, hardware: Hardware) -> bool:
    """Whether a text is a description of this chip."""
    try:
        return validate(Hardware, yaml.safe_load(text), "text") == hardware
    except (LfoptError, yaml.YAMLError):
        return False


def _anew(hardware: Hardware, comments: Mapping[str, str]) -> str:
    """Every field of a chip, in order."""
    lines: list[str] = []
    for entry in fields(Hardware):
        value = getattr(hardware, entry.name)
        if entry.name == ENERGY:
            lines.append(f"{ENERGY}:")
            lines += [
                f"  {f.name}: {_value(getattr(value, f.name))}{_comment(f'{ENERGY}.{f.name}', comments)}"
                for f in fields(Energy)
            ]
        elif entry.metadata != UNSAID or value != entry.default:
            lines.append(f"{entry.name}: {_value(value)}{_comment(entry.name, comments)}")
    return "\n".join(lines) + "\n"


def _comment(name: str, comments: Mapping[str, str]) -> str:
    return f"  # {comments[name]}" if name in comments else ""


def _value(value: Any) -> str:
    """A value as YAML and JSON write it."""
    return json.dumps(value)
