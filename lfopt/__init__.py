"""Layer-fusion optimizer for accelerators.

The names of `lfopt.ir` are names of this package too; they are imported when first asked for, so that importing lfopt costs nothing.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    import lfopt.ir as ir  # noqa: PLC0415

    if name in ir.__all__:
        return getattr(ir, name)
    raise AttributeError(f"module 'lfopt' has no attribute {name!r}")
