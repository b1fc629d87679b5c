"""Files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lfopt.app.config import validate
from lfopt.ir import SCHEMA, InvalidConfig, InvalidPlan, Plan


def write_text(path: Path, text: str) -> None:
    """Write aside, then rename."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write aside, then rename."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_plan(plan: Plan, path: Path) -> None:
    """Write plan.json, one group a line."""
    data = {"schema": SCHEMA, **asdict(plan)}
    groups = ",\n  ".join(json.dumps(group) for group in data.pop("groups"))
    head = {key: data.pop(key) for key in ("schema", "model", "hardware", "scheme", "traffic", "epilogue")}
    text = json.dumps(head, indent=1)[:-2] + f',\n "groups": [\n  {groups}\n ],\n' + json.dumps(data, indent=1)[2:]
    write_text(path, text + "\n")


def read_plan(path: Path) -> Plan:
    """Read and validate plan.json (a folder means the plan.json in it)."""
    if path.is_dir():
        path /= "plan.json"
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPlan(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidPlan(f"{path}: not JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise InvalidPlan(f"{path}: schema: found {found!r}; accepted: {SCHEMA!r}")
    del data["schema"]
    try:
        return validate(Plan, data, str(path))
    except InvalidConfig as error:
        raise InvalidPlan(str(error)) from None
