"""Check that lfopt's other packages are not hidden by modules of the same name.

Their names are plain: a module of the user's own may have one, and the first on Python's path hides the
other. Nothing but the standard library is imported here: it runs before everything else.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

WINGS = ("search", "simulator", "codegen", "explainers", "hw_rtl")
ROOT = Path(__file__).resolve().parents[2]


@cache
def check_wings() -> None:
    """Check the packages. Raises InvalidConfig where Python would import others under their names."""
    for name in WINGS:
        ours = ROOT / name / "__init__.py"
        origin = _origin(name)
        if origin is not None and origin.resolve() != ours:
            from lfopt.ir import InvalidConfig  # noqa: PLC0415  (it brings NumPy, which nobody needs so far)

            raise InvalidConfig(
                f"{origin}: it hides {ours}, a part of lfopt that has the same name; rename it, or run lfopt "
                "from another folder"
            )


def _origin(name: str) -> Path | None:
    """The file that a package of this name is, or would be, imported from."""
    module = sys.modules.get(name)
    file = module.__file__ if module is not None else (spec := find_spec(name)) and spec.origin
    if file:
        return Path(file)
    return None
