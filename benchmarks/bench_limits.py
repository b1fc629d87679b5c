"""Whether `lfopt search --time-limit` keeps its limit, and whether the plan that it leaves has steps.

    python benchmarks/bench_limits.py [--models FOLDER] [--limits S ...] [--schemes NAME ...]

Each search is a process of its own, timed from its start to its end: imports, loading and writing count. A
plan with steps is to be on disk within 1.1 times the limit and 5 seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Row, Sheet, add_option, table_of
from lfopt import zoo

ENDLESS = 600.0  # seconds after which a search is given up
SHARE, SECONDS = 1.1, 5.0  # of the limit, and beyond it


def main() -> None:
    """Search every network within every limit, and say what was late or without steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, help="folder of ONNX files, in place of the zoo's networks")
    parser.add_argument("--limits", type=float, nargs="+", default=[2.0, 10.0], help="seconds")
    parser.add_argument("--schemes", nargs="+", default=["auto", "all"])
    parser.add_argument("--buffer", default="256KiB")
    add_option(parser)
    options = parser.parse_args()
    names = [f"zoo:{name}" for name in zoo.names()]
    if options.models:
        names = sorted(map(str, options.models.glob("*.onnx")))
    sheet = Sheet("limits", options.results)
    for scheme in options.schemes:
        for limit in options.limits:
            rows = [_searched(name, scheme, limit, options.buffer) for name in names]
            title = f"scheme {scheme}, {options.buffer}, --time-limit {limit:g}"
            sheet.show(table_of(title, rows))
            for line in _summary(rows, limit):
                sheet.show(line)
    sheet.write()


def _searched(name: str, scheme: str, limit: float, buffer: str) -> Row:
    """A search, from the start of its process to its end."""
    with TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "lfopt", "search", name, "--quiet"),
            *("--scheme", scheme, "--objective", "bytes"),
            *("--buffer", buffer, "--time-limit", f"{limit:g}", "--out", folder),
        ]
        start = time.perf_counter()
        try:
            code = subprocess.run(command, capture_output=True, check=False, timeout=ENDLESS).returncode
        except subprocess.TimeoutExpired:
            code = -1
        seconds = time.perf_counter() - start
        path = Path(folder) / "plan.json"
        plan = json.loads(path.read_text()) if path.exists() else None
    groups = plan["groups"] if plan else []
    return {
        "network": name.removeprefix("zoo:") if name.startswith("zoo:") else Path(name).stem,
        "seconds": seconds,
        "exit code": code,
        "groups": len(groups),
        "without steps": sum(not group["steps"] for group in groups),
        "DRAM bytes": plan["totals"]["dram_bytes"] if plan else 0,
        "x bound": plan["totals"]["gap"] + 1 if plan else float("nan"),
    }


def _summary(rows: list[Row], limit: float) -> Iterator[str]:
    """How many were in time, and which were not."""
    allowed = SHARE * limit + SECONDS
    late = [row["network"] for row in rows if row["seconds"] > allowed]
    bare = [row["network"] for row in rows if row["without steps"] or not row["groups"]]
    kept = len(rows) - len({*late, *bare})
    yield f"{kept} of {len(rows)} with steps within {allowed:.1f} s"
    if late:
        yield f"late: {', '.join(late)}"
    if bare:
        yield f"without steps: {', '.join(bare)}"


if __name__ == "__main__":
    main()
