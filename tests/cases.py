"""How many generated cases are run: all of them in `make test-slow`, the first tenth in `make test`."""

from __future__ import annotations

import os

SHARES = 1 if os.environ.get("LFOPT_CASES") == "all" else 10


def some(cases: range) -> range:
    """The cases that are run of all."""
    return cases[: -(-len(cases) // SHARES)]


def few(count: int) -> int:
    """A number that must be exceeded in the cases that are run, where all of them exceed `count`."""
    return count if SHARES == 1 else count // (2 * SHARES)
