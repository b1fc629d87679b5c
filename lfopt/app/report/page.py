"""The page as one file: template, styles, scripts and data put together.

It asks for nothing from anywhere, and its policy forbids it to.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

FOLDER = Path(__file__).parent
# in the order in which they build on one another
SCRIPTS = ("theme", "base", "network", "charts", "group", "grown", "tables", "start")


@dataclass(frozen=True)
class Figure:
    """One of the headline figures."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = ""  # good | bad | nothing of the kind


@dataclass(frozen=True)
class PageSummary:
    """What the head of the page says."""

    name: str
    facts: tuple[str, ...]
    figures: tuple[Figure, ...]
    accounting: str  # how the bytes were counted
    warnings: tuple[str, ...]  # where the plan contradicts itself
    notes: tuple[str, ...]
    counts: str
    unfused: str  # what the operators would move alone
    sweep: str  # how the staircase was found
    grown: str  # which pictures there are
    colophon: tuple[str, ...]
    version: str


def render(summary: PageSummary, data: dict[str, Any]) -> str:
    """The page of a plan."""
    return fill("page.html", SCRIPTS, {**vars(summary), "data": as_json(data)})


def fill(template: str, scripts: Sequence[str], values: Mapping[str, Any]) -> str:
    """A template with styles, scripts and these values.

    Whatever comes from a model is escaped here, or arrives as data that scripts show as text.
    """
    body = "\n".join((FOLDER / "scripts" / f"{name}.js").read_text(encoding="utf-8") for name in scripts)
    script = f"(() => {{\n'use strict';\n{body}\n}})();\n"
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        **values,
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def as_json(data: object) -> str:
    r"""JSON that may stand inside a script element: no < to end it or to begin a comment in it.

    >>> as_json(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
