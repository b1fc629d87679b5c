"""What is wrong with a command line, in one line and in words of the command line: no types of Python."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    ConsumeMultipleError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

KINDS = {int: "a whole number", float: "a number", bool: "nothing behind it", str: "text", Path: "a path"}


def refusal(error: CycloptsError) -> str:
    """`place: found ...; accepted: ...`."""
    chain = " ".join(error.command_chain or ())
    place = f"{chain}: " if chain else ""
    match error:
        case UnknownOptionError():
            name = str(error.token.keyword or error.token.value).partition("=")[0]
            known = sorted(
                {
                    name
                    for argument in error.argument_collection
                    for name in argument.names
                    if name.startswith("--")
                }
            )
            return f"{place}found {name}, which is no option of it; {_close(name, known)}"
        case UnknownCommandError():
            tokens = error.unused_tokens or [""]
            listed = [name for name in (error.app or ()) if not name.startswith("-")]
            return f"{place}found {tokens[0]!r}, which is no command; {_close(tokens[0], listed)}"
        case CoercionError() if error.argument is not None:
            token = error.token
            shown = "nothing" if token is None else repr(token.value)
            return (
                f"{_name(error, place)}: found {shown}; accepted: "
                f"{accepted(error.target_type or error.argument.hint)}"
            )
        case ConsumeMultipleError() | MissingArgumentError() if error.argument is not None:
            names = error.argument.names
            if not any(name.startswith("-") for name in names):
                return (
                    f"{place}{names[0]} is missing; accepted: {accepted(error.argument.hint)} (lfopt "
                    f"{chain} --help)"
                )
            given = error.keyword is not None or any(
                str(token).partition("=")[0] in names for token in error.root_input_tokens or ()
            )
            what = "nothing behind it" if given else "it missing"
            return f"{_name(error, place)}: found {what}; accepted: {accepted(error.argument.hint)}"
        case RepeatArgumentError():
            return f"{error.token.keyword or chain}: found twice; accepted: once"
        case UnusedCliTokensError():
            return (
                f"{place}found {' '.join(map(repr, error.unused_tokens or ()))} beside all that it "
                f"takes; lfopt {chain} --help lists that"
            )
        case _:
            return f"{place}{error}"


def accepted(hint: Any) -> str:
    """A type in words.

    >>> accepted(Literal["on", "off"] | None), accepted(int | Literal["max"])
    ('on, off', 'a whole number, max')
    """
    return ", ".join(dict.fromkeys(_words(hint)))


def _words(hint: Any) -> Iterator[str]:
    origin = get_origin(hint)
    options = get_args(hint)
    if origin is Annotated:
        yield from _words(options[0])
    elif origin is Literal:
        yield from map(str, options)
    elif origin in (Union, UnionType, tuple):
        for option in options:
            if option not in (NoneType, Ellipsis):
                yield from _words(option)
    else:
        yield KINDS.get(hint, "a value")


def _name(error: CycloptsError, place: str) -> str:
    """The option that an error is about, or the argument."""
    names = error.argument.names if error.argument is not None else ()
    return next(
        (name for name in names if name.startswith("--")),
        f"{place}{names[0]}" if names else place.rstrip(": "),
    )


def _close(name: str, known: Iterable[str]) -> str:
    listed = [*known]
    close = difflib.get_close_matches(name, listed, 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"accepted: {', '.join(listed)}"
