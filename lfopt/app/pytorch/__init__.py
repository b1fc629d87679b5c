"""PyTorch's models, through torch.onnx.

The modules of this folder import torch; they are imported only where a model is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from lfopt.app.wings import check_wings

check_wings()  # PyTorch finds the backend by its entry point: this may be the first that is imported of lfopt

from codegen.arrays import Inputs  # noqa: E402  (another package of this name would be imported)


class EagerFallback(UserWarning):
    """Why `torch.compile(..., backend="lfopt")` runs a part of a model as PyTorch does."""


@runtime_checkable
class TorchModel(Protocol):
    """What a `torch.nn.Module` and a `torch.export.ExportedProgram` have in common."""

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Parameters with their names."""
        ...

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """Buffers with their names."""
        ...


class CompiledModule(Protocol):
    """A `torch.nn.Module` as `lfopt.compile` gives it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives, for what it takes."""
        ...

    def run(self, inputs: Inputs) -> Any:
        """The same for arguments of `forward` by name, for a list or tuple of them, or for one alone."""
        ...
