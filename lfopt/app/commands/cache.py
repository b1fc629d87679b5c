"""lfopt cache: what is kept between runs."""

from __future__ import annotations

import time

from cyclopts import App
from rich.markup import escape

from lfopt.app.answers.programs import CacheAnswer, ItemAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.cache import PROGRAMS, cache_folder, sweep
from lfopt.app.cache_contents import CacheItem, contents, drop
from lfopt.app.profiles import databases
from lfopt.app.screen import mib, out, shorten, shown, spread
from lfopt.app.sizes import format_age, parse_age, parse_size

app = App(
    name="cache",
    help="List and remove what is kept between runs: compiled models, simulated accelerators, times.",
)


@app.command(name="list")
def list_(*, verify: bool = False) -> None:
    """List what is kept between runs, what was used last first, and whether it is whole.

    It is in ~/.cache/lfopt, or $XDG_CACHE_HOME/lfopt.

    Example: lfopt cache list --verify

    Parameters
    ----------
    verify
        Read weights from end to end, too; else samples of them.
    """
    now = time.time()
    items = sorted(_items(verify=verify), key=lambda item: -item.used)
    if items:
        rows = [
            [
                item.kind,
                item.network,
                item.target,
                mib(item.size),
                format_age(now - item.used),
                "damaged" if item.damage else "whole",
            ]
            for item in items
        ]
        out.print(spread(["what", "network", "target", "MiB", "last used", "state"], rows, stretch=(1, 2)))
    for item in items:
        if item.damage:
            out.print(f"[dim]{escape(shorten(f'{item.path.name}: {item.damage}', 200))}[/]", soft_wrap=True)
    _total("", items)
    answer(CacheAnswer(str(cache_folder()), tuple(map(_answer, items))))


@app.command
def prune(*, older_than: str | None = None, max_size: str | None = None) -> None:
    """Remove what is damaged or left by killed runs, and what is old or too much.

    What was not used for longest goes first, until the rest is small enough.

    Example: lfopt cache prune --older-than 30d --max-size 1GiB

    Parameters
    ----------
    older_than
        Remove what was not used for so long, e.g. 30d.
    max_size
        How large the rest may be, e.g. 1GiB.
    """
    limit = None if max_size is None else parse_size(max_size, "--max-size")
    oldest = None if older_than is None else time.time() - parse_age(older_than, "--older-than")
    items = sorted(_items(), key=lambda item: item.used)
    chosen = [item for item in items if item.damage or (oldest is not None and item.used < oldest)]
    rest = [item for item in items if item not in chosen]
    size = sum(item.size for item in rest)
    for item in rest:
        if limit is not None and size > limit:
            chosen.append(item)
            size -= item.size
    _remove(chosen)


@app.command
def clear() -> None:
    """Remove everything that is kept.

    Example: lfopt cache clear
    """
    _remove(_items())


def _items(*, verify: bool = False) -> list[CacheItem]:
    return [*contents(verify=verify), *databases()]


def _remove(items: list[CacheItem]) -> None:
    """Remove these, and the locks of killed runs; say what is gone, and what stays."""
    sized = [(item, _answer(item)) for item in items]
    removed = [answer_of_item for item, answer_of_item in sized if drop(item)]
    for root in (cache_folder(), cache_folder() / PROGRAMS):
        sweep(root)
    for answer_of_item in removed:
        out.print(
            f"[dim]removed {shown(f'{answer_of_item.kind} {answer_of_item.network}')}, "
            f"{mib(answer_of_item.size_bytes)} MiB[/]",
            soft_wrap=True,
        )
    if len(removed) < len(items):
        out.print(f"{len(items) - len(removed)} in use by other runs: not removed")
    _total("left: ", left := _items())
    answer(CacheAnswer(str(cache_folder()), tuple(map(_answer, left)), tuple(removed)))


def _answer(item: CacheItem) -> ItemAnswer:
    return ItemAnswer(item.kind, item.network, item.target, item.size, time.time() - item.used, item.damage)


def _total(what: str, items: list[CacheItem]) -> None:
    size = mib(sum(item.size for item in items))
    out.print(
        f"{what}{len(items) or 'nothing'} in {escape(str(cache_folder()))}"
        + (f", {size} MiB" if items else ""),
        soft_wrap=True,
    )
