"""Sizes as people write them: 256KiB, 4MiB, 1000."""

from __future__ import annotations

import re

from lfopt.ir import UNLIMITED, Hardware, InvalidConfig, Plan, Store
from lfopt.ir.names import plural
from lfopt.ir.sizes import parse_size

NEVER = 1 << 60  # bytes from which on a size stands for: no buffer is large enough
LEAST_PLAIN = 4096  # bytes that the command line takes without a unit
AGES = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}  # seconds


def looks_like_a_size(text: str) -> bool:
    """Whether a text is meant for a size, not for a file.

    >>> looks_like_a_size("256KiB"), looks_like_a_size("unlimited"), looks_like_a_size("chip.yaml")
    (True, True, False)
    """
    return text == "unlimited" or re.fullmatch(r"[0-9.]+\s*[a-zA-Z]*", text.strip()) is not None


def parse_age(text: str, what: str) -> float:
    """Seconds of an age such as 12h, 30d or 8w. Raises InvalidConfig.

    >>> parse_age("30d", "--older-than")
    2592000.0
    """
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]+)", text.strip())
    if match is None or match[2] not in AGES:
        raise InvalidConfig(f"{what}: found {text!r}; accepted: an age such as 12h, 30d or 8w")
    return float(match[1]) * AGES[match[2]]


def format_age(seconds: float) -> str:
    """How long ago, roughly.

    >>> format_age(30), format_age(3 * 3600), format_age(40 * 86400)
    ('just now', '3 h ago', '40 d ago')
    """
    unit = next((name for name in ("d", "h", "min") if seconds >= AGES[name]), None)
    if unit:
        return f"{seconds // AGES[unit]:,.0f} {unit} ago"
    return "just now"


def size_option(text: str, option: str) -> int:
    """Bytes of a buffer, as given on the command line.

    Raises InvalidConfig for what is no size, and for a small number without a unit: it is more likely KiB
    than bytes, so it must say which.

    >>> size_option("256B", "--buffer"), size_option("4096", "--buffer")
    (256, 4096)
    """
    size = parse_size(text, option)
    if size < LEAST_PLAIN and not text.strip()[-1:].isalpha():
        raise InvalidConfig(
            f"{option}: found {text}, without a unit: {text.strip()} B or {text.strip()}KiB? accepted: "
            f"numbers below {LEAST_PLAIN:,} with one"
        )
    return size


def memories(hardware: Hardware) -> str:
    """The memories of a chip.

    >>> memories(Hardware("64KiB", l2_bytes="1MiB"))
    'buffer 64 KiB, second level 1 MiB'
    """
    return f"buffer {buffers(hardware)}" + (
        f", second level {format_size(hardware.l2_bytes)}" if hardware.l2_bytes else ""
    )


def second_level(plan: Plan) -> str:
    """What lies in the second level, and what it moves."""
    kept = sum(place.memory == "l2" for place in plan.memory)
    if plan.search.l2 == "exact":
        chosen = "no others that fit spare these groups more"
    else:
        chosen = "a heuristic choice"
    return (
        f"second level: {plural(kept, 'map')} in it, {chosen}; {plan.totals.l2_bytes:,} B read and "
        "written beside those of DRAM"
    )


def bytes_text(size: int) -> str:
    """A number of bytes, or what a size that stands for something else means.

    >>> bytes_text(262144), bytes_text(UNLIMITED), bytes_text(1 << 62)
    ('262,144 B', 'unlimited', 'more than any buffer')
    """
    if size == UNLIMITED:
        return "unlimited"
    if size < NEVER:
        return f"{size:,} B"
    return "more than any buffer"


def plain_size(size: int) -> str:
    """A buffer size for other programs: bytes without commas, as `parse_size` reads it again.

    >>> plain_size(262144), plain_size(UNLIMITED)
    ('262144', 'unlimited')
    """
    if size == UNLIMITED:
        return "unlimited"
    return str(size)


def of_buffer(used: int, size: int, store: Store = "buffer") -> str:
    """How much of a buffer is used.

    >>> of_buffer(1000, 262144), of_buffer(1000, UNLIMITED, "weight buffer")
    ('1,000 of 262,144 B of buffer', '1,000 B of an unlimited weight buffer')
    """
    if size == UNLIMITED:
        return f"{used:,} B of an unlimited {store}"
    return f"{used:,} of {size:,} B of {store}"


def buffers(hardware: Hardware) -> str:
    """The sizes of a chip's buffers.

    >>> buffers(Hardware(262144)), buffers(Hardware("192KiB", weight_buffer_bytes="64KiB"))
    ('256 KiB', '192 KiB, 64 KiB for weights')
    """
    size = format_size(hardware.buffer_bytes)
    if hardware.weight_buffer_bytes:
        return f"{size}, {format_size(hardware.weight_buffer_bytes)} for weights"
    return size


def share_of(used: int, size: int) -> str:
    """How much of a buffer is used, in percent; empty where it has no limit.

    >>> share_of(1000, 4000), share_of(1000, UNLIMITED)
    ('25.0 %', '')
    """
    if size == UNLIMITED:
        return ""
    return f"{100 * used / size:.1f} %"


def format_size(size: int) -> str:
    """A buffer size, exact.

    >>> format_size(262144), format_size(1000)
    ('256 KiB', '1,000 B')
    """
    if size == UNLIMITED:
        return "unlimited"
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit:,} {name}"
    return f"{size:,} B"


def parse_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Input shapes given as name=1,3,224,224, and named dimensions as name=1. Raises InvalidConfig.

    >>> parse_shapes(("x=1,3,8,8", "batch=2"))
    {'x': (1, 3, 8, 8), 'batch': (2,)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        if not equals or not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", dims):
            raise InvalidConfig(
                f"--input-shape: found {text!r}; accepted: name=1,3,224,224 for an input, or name=1 for a "
                "named dimension"
            )
        shapes[name] = tuple(int(d) for d in dims.split(","))
    return shapes
