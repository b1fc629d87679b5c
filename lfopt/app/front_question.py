"""What a front is asked of, from the options of the command line or of Python: texts or lists, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from lfopt.app.config import MAX_SECONDS, Config
from lfopt.app.front import FrontQuery
from lfopt.app.front_data import COSTS, CostName
from lfopt.app.options import FRONT_ARRAYS, FRONT_BUFFERS
from lfopt.app.sizes import parse_size, size_option
from lfopt.ir import UNLIMITED, InvalidConfig
from lfopt.ir.names import one_line
from search.objectives import OBJECTIVES

AXES = ("buffer", "mac_array", "objective")
MOST_SIZES = 64  # buffers, and arrays
MOST_MACS = 4096  # rows or columns of an array
MOST_PLANS = 10**6

T = TypeVar("T")
Name = TypeVar("Name", bound=str)
Array = tuple[int, int]
Listed = str | Sequence[T]


def question(
    config: Config,
    *,
    over: Listed[str] | None,
    buffers: Listed[int | str] | None,
    mac_arrays: Listed[str | Array] | None,
    objectives: Listed[str] | None,
    minimise: Listed[str] | None,
    corners: int,
    budget: int,
    seed: int,
    time_limit: float | None,
    option: Callable[[str], str] = lambda name: name,
) -> FrontQuery:
    """The question that options ask; `option`: what a message calls one. Raises InvalidConfig.

    Where `over` says nothing, buffers and objectives are varied, and MAC arrays if some are given.
    """
    given = {"buffers": buffers, "mac_arrays": mac_arrays, "objectives": objectives}
    axes = ("buffer", "objective", *(["mac_array"] if mac_arrays is not None else []))
    if over is not None:
        axes = _names(over, AXES, option("over"))
        for (name, value), axis in zip(given.items(), ("buffer", "mac_array", "objective"), strict=True):
            if value is not None and axis not in axes:
                raise InvalidConfig(
                    f"{option(name)}: found with {option('over')} {','.join(axes)}; accepted: {axis} among "
                    "those, or leave it out"
                )
    chip = config.hardware
    if "buffer" in axes:
        sizes = _sizes(FRONT_BUFFERS if buffers is None else buffers, option("buffers"))
    else:
        sizes = (chip.buffer_bytes,)
    if sizes[-1] >= UNLIMITED:
        raise InvalidConfig(
            f"{option('buffers')}: found unlimited; accepted: sizes below it, since a buffer without end has "
            "no area"
        )
    if "mac_array" in axes:
        arrays = _arrays(FRONT_ARRAYS if mac_arrays is None else mac_arrays, option("mac_arrays"))
    else:
        arrays = None
    wanted = _names(
        ",".join(OBJECTIVES) if objectives is None else objectives, OBJECTIVES, option("objectives")
    )
    wanted = wanted if "objective" in axes else OBJECTIVES[:1]
    varied = {
        *wanted,
        *(("cycles", "energy") if "edp" in wanted else ()),
        *axes,
        *(("area",) if arrays is not None else ()),
    }
    costs: tuple[CostName, ...] = tuple(name for name in COSTS if name in varied)
    if minimise is not None:
        costs = _names(minimise, COSTS, option("minimise"))
    for name, value, least, most in (
        ("corners", corners, 3, MOST_PLANS),
        ("budget", budget, 0, MOST_PLANS),
        ("seed", seed, 0, 1 << 63),
    ):
        if type(value) is not int or not least <= value <= most:
            raise InvalidConfig(
                f"{option(name)}: found {value!r}; accepted: a whole number of at least {least}"
            )
    if time_limit is not None and not (isinstance(time_limit, int | float) and 0 < time_limit < MAX_SECONDS):
        raise InvalidConfig(f"{option('time_limit')}: found {time_limit}; accepted: seconds above 0")
    return FrontQuery(
        config,
        sizes,
        arrays or ((chip.mac_rows, chip.mac_columns),),
        wanted,
        costs,
        corners,
        budget,
        seed,
        time_limit,
    )


def _listed(given: Listed[T], place: str, what: str) -> list[T | str]:
    parts: list[T | str] = (
        [*given.split(",")] if isinstance(given, str) else [*given] if isinstance(given, Sequence) else []
    )
    if not parts or len(parts) > MOST_SIZES:
        raise InvalidConfig(
            one_line(f"{place}: found {given!r:.80}; accepted: {what}, up to {MOST_SIZES} of them")
        )
    return parts


def _names(given: Listed[str], accepted: Sequence[Name], place: str) -> tuple[Name, ...]:
    """Names of a table, each once, in its order."""
    names = [
        name.strip() if isinstance(name, str) else name
        for name in _listed(given, place, f"{', '.join(accepted)}, with commas between")
    ]
    for name in names:
        if name not in accepted:
            raise InvalidConfig(one_line(f"{place}: found {name!r:.80}; accepted: {', '.join(accepted)}"))
    return tuple(name for name in accepted if name in names)


def _sizes(given: Listed[int | str], place: str) -> tuple[int, ...]:
    """Sizes of buffers: a range that doubles, LOW:HIGH, or a list."""
    if isinstance(given, str) and ":" in given:
        low, high = (size_option(text, place) for text in given.split(":", 1))
        sizes = [low]
        while sizes[-1] * 2 <= high and len(sizes) <= MOST_SIZES:
            sizes.append(sizes[-1] * 2)
        if sizes[-1] != high:
            sizes.append(high)
    else:
        listed = _listed(given, place, "LOW:HIGH, or sizes with commas between")
        sizes = [
            size_option(size, place) if isinstance(size, str) else parse_size(size, place) for size in listed
        ]
    if sorted(set(sizes)) != sizes or len(sizes) > MOST_SIZES:
        raise InvalidConfig(
            one_line(
                f"{place}: found {given!r:.80}; accepted: LOW:HIGH, which doubles, or sizes in rising order "
                "with commas between"
            )
        )
    return tuple(sizes)


def _arrays(given: Listed[str | Array], place: str) -> tuple[Array, ...]:
    arrays: set[Array] = set()
    for array in _listed(given, place, "MAC arrays such as 16x16, with commas between"):
        match = re.fullmatch(r"\s*([0-9]{1,5})x([0-9]{1,5})\s*", array) if isinstance(array, str) else None
        size = (int(match[1]), int(match[2])) if match else array
        if not (
            isinstance(size, tuple)
            and len(size) == 2
            and all(type(n) is int and 0 < n <= MOST_MACS for n in size)
        ):
            raise InvalidConfig(
                one_line(
                    f"{place}: found {array!r:.80}; accepted: MAC arrays such as 16x16 (rows x columns), up "
                    f"to {MOST_MACS} each"
                )
            )
        arrays.add((size[0], size[1]))
    return tuple(sorted(arrays, key=lambda size: (size[0] * size[1], size)))
