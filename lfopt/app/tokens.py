"""Options that every command takes (--quiet, --verbose, --json)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

QUIET = ("--quiet", "-q")
VERBOSE = ("--verbose", "-v")
JSON = "--json"
SHAPE_OPTION, SHAPE = "--input-shape", re.compile(r"[^=-][^=]*=[0-9]+(,[0-9]+)*")  # one after the other
STDOUT = "-"  # as a file of JSON


@dataclass(frozen=True)
class CommandLine:
    """A command line as commands take it."""

    tokens: tuple[str, ...]
    quiet: bool = False
    verbose: bool = False
    json: str | None = None  # where: - is the standard output


def read(tokens: Sequence[str], takes: Callable[[Sequence[str]], bool]) -> CommandLine:
    """What a command line says. `takes`: whether a command has all it needs in such words.

    >>> line = read(["simulate", "runs/x", "-q", "--json"], lambda tokens: True)
    >>> line.tokens, line.quiet, line.verbose, line.json
    (('simulate', 'runs/x'), True, False, '-')
    """
    end = tokens.index("--") if "--" in tokens else len(tokens)
    words = list(tokens[:end])
    rest = tokens[end:]
    kept = [word for word in words if word not in (*QUIET, *VERBOSE)]
    before, target = _without_target(_spread_shapes(kept), lambda some: takes([*some, *rest]))
    quiet, verbose = (any(word in names for word in words) for names in (QUIET, VERBOSE))
    return CommandLine((*before, *rest), quiet, verbose, target)


def _spread_shapes(words: Sequence[str]) -> list[str]:
    """Words in which every shape has an option of its own.

    >>> _spread_shapes(["inspect", "--input-shape", "batch=1", "height=320", "m.onnx"])
    ['inspect', '--input-shape', 'batch=1', '--input-shape', 'height=320', 'm.onnx']
    """
    spread: list[str] = []
    for k, word in enumerate(words):
        if (
            len(spread) > 1
            and spread[-2] == SHAPE_OPTION
            and words[k - 1] != SHAPE_OPTION
            and SHAPE.fullmatch(word)
        ):
            spread.append(SHAPE_OPTION)
        spread.append(word)
    return spread


def _without_target(words: list[str], takes: Callable[[list[str]], bool]) -> tuple[list[str], str | None]:
    """The words without --json and its file, and where JSON is to go: --json, --json=FILE, or --json FILE.

    With a blank between, FILE is - or a name in .json, unless the command lacks what it works on then:
    `simulate --json x/plan.json` shows a plan.
    """
    k = next((k for k, word in enumerate(words) if word.partition("=")[0] == JSON), None)
    if k is None:
        return words, None
    before = words[:k]
    file = words[k + 1 : k + 2]
    after = words[k + 2 :]
    if "=" in words[k]:
        return [*before, *words[k + 1 :]], words[k].partition("=")[2]
    if file and (file[0] == STDOUT or (file[0].lower().endswith(".json") and takes([*before, *after]))):
        return [*before, *after], file[0]
    return [*before, *file, *after], STDOUT
