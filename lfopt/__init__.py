"""Layer-fusion optimizer for accelerators.

The names of `lfopt.ir` are names of this package too, and `lfopt.compile("model.onnx").run({"x": x})` runs a network. Everything is imported when it
is first asked for, so that importing lfopt costs nothing.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "compile":
        from lfopt.app.compiled import compile_model  # noqa: PLC0415

        return compile_model
    import lfopt.ir as ir  # noqa: PLC0415

    if name in ir.__all__:
        return getattr(ir, name)
    raise AttributeError(f"module 'lfopt' has no attribute {name!r}")
