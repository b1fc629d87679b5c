"""The glossary: every name of a closed set has an entry, and every entry is a word in use."""

from __future__ import annotations

import re
from typing import get_args

from lfopt.ir.plan import Proof, TrafficName
from lfopt.ir.schedule import ByteClass, Purpose
from lfopt.planning.modes import MODES, SCHEMES
from lfopt.planning.nest.tree import Axis
from tests.docs.pages import DOCS, ROOT

ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
SHIPPED = ("lfopt", "simulator", "search", "codegen", "explainers")


def entries() -> list[list[str]]:
    """The words of every row, in order."""
    rows = ROW.findall((DOCS / "glossary.md").read_text("utf-8"))
    return [row.split(", ") for row in rows if row not in ("word", "---")]


def test_every_name_that_a_user_meets_in_a_plan_is_explained() -> None:
    named = {word.strip("`") for words in entries() for word in words}
    closed = {*MODES, *SCHEMES}
    for names in (ByteClass, Purpose, Proof, TrafficName, Axis):
        closed |= {*get_args(names)}
    assert closed - named == set()
    assert {"group", "place", "slot", "ring", "step", "flight", "stretch", "piece", "home", "leaf"} <= named


def test_every_word_is_in_use_and_in_order() -> None:
    first = [words[0].strip("`").casefold() for words in entries()]
    assert first == sorted(first)
    text = "\n".join(
        path.read_text("utf-8") for folder in SHIPPED for path in (ROOT / folder).rglob("*.py")
    ).casefold()
    words = {word.strip("`").casefold() for words in entries() for word in words}
    assert [word for word in sorted(words) if not re.search(rf"\b{re.escape(word)}", text)] == []
