"""A hardware description of this machine's CPU: its buffer is half of the L2 cache that one core has."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lfopt.app.sizes import format_size, parse_size
from lfopt.ir import InvalidConfig

CPU0 = Path("/sys/devices/system/cpu/cpu0")
CPUINFO = Path("/proc/cpuinfo")
LEVEL = "2"
HOLDS_DATA = ("Unified", "Data")


class L2Cache(NamedTuple):
    """A cache that a core reaches."""

    folder: Path  # that describes it
    size_bytes: int
    cores: int  # that share it; threads of one core count once


def description(cpu: Path = CPU0, info: Path = CPUINFO) -> str:
    """A hardware description in YAML. Raises InvalidConfig where the L2 cache is not known."""
    cache = l2_cache(cpu)
    buffer = cache.size_bytes // cache.cores // 2
    shared = f", {cache.cores} cores share it" if cache.cores > 1 else ""
    fields = {
        f"name: {json.dumps(model_name(info))}": f"{info}",
        f"buffer_bytes: {format_size(buffer).replace(',', '').replace(' ', '')}": (
            f"half of a core's share of L2: {format_size(cache.size_bytes)}{shared} ({cache.folder}); "
            "weights stream through the other half"
        ),
        "element_bytes: 4": "generated C computes in float32; `lfopt run` plans quantised networks for 1",
    }
    width = max(map(len, fields))
    lines = [
        (
            "# The CPU of one machine, written by `lfopt hw detect` for `lfopt run --hardware` and "
            "`lfopt search --hardware`."
        )
    ]
    return "\n".join([*lines, *(f"{field:{width}}  # {source}" for field, source in fields.items())]) + "\n"


def l2_cache(cpu: Path) -> L2Cache:
    """The L2 cache of one core, by the folder that /sys has for that CPU.

    Raises InvalidConfig where /sys describes none.
    """
    caches = [folder for folder in sorted((cpu / "cache").glob("index*")) if _is_l2(folder)]
    if not caches or (text := _read(caches[0] / "size")) is None:
        what = "no level-2 cache that holds data" if not caches else f"no size in {caches[0]}"
        raise InvalidConfig(
            f"{cpu / 'cache'}: {what}; write the file by hand: buffer_bytes (half of one core's L2 cache) "
            "and element_bytes: 4"
        )
    size = parse_size(text, str(caches[0] / "size"))
    sharers = _cpus(caches[0] / "shared_cpu_list")
    threads = sharers & _cpus(cpu / "topology" / "thread_siblings_list")
    return L2Cache(caches[0], size, max(len(sharers) // max(len(threads), 1), 1))


def model_name(info: Path) -> str:
    """The CPU as it calls itself; where it does not, the architecture."""
    lines = (_read(info) or "").splitlines()
    named = (line.partition(":")[2] for line in lines if re.match(r"model name\s*:", line))
    return " ".join(next(named, "").split()) or platform.machine() or "cpu"


def _is_l2(folder: Path) -> bool:
    return _read(folder / "level") == LEVEL and _read(folder / "type") in HOLDS_DATA


def _cpus(file: Path) -> set[int]:
    """Numbers of CPUs in a list such as 0-3,8; none if there is no such file."""

    def parts() -> Iterator[range]:
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", _read(file) or ""):
            yield range(int(first), int(last or first) + 1)

    return {number for part in parts() for number in part}


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
