"""A program of torch.export as generated code: tensors in, tensors out, on the memory that they have.

It says whether its weights are still those that it was compiled with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from weakref import ref

from onnx import ModelProto
from torch import Tensor
from torch.export import ExportedProgram

from codegen.runtime import Compiled
from lfopt.app.pytorch.export import exported
from lfopt.app.pytorch.tensors import as_array, as_tensor
from lfopt.ir import UnsupportedModel

# version of a tensor that was made in inference mode: PyTorch does not count what is written into it
UNCOUNTED = -1


class CapturedWeights:
    """Tensors that became constants, and how they were then.

    What is written through `.data` or NumPy is not noticed, nor is it by autograd.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._then = [(ref(tensor), _version(tensor), tensor.data_ptr()) for tensor in tensors]

    def unchanged(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are the same, where they were, with no element written since."""
        return len(tensors) == len(self._then) and all(
            of() is tensor and _version(tensor) == version and tensor.data_ptr() == at
            for tensor, (of, version, at) in zip(tensors, self._then, strict=True)
        )


def _version(tensor: Tensor) -> int:
    return UNCOUNTED if tensor.is_inference() else tensor._version  # noqa: SLF001  (PyTorch's count of changes in place has no other name)


@dataclass(frozen=True)
class Program:
    """Generated code for one program; its weights as they were."""

    compiled: Compiled
    weights: CapturedWeights
    order: tuple[int, ...]  # for each input of the code, which of the call's tensors it is
    results: tuple[str | None, ...]  # outputs by name

    @classmethod
    def of(
        cls,
        program: ExportedProgram,
        weights: CapturedWeights,
        label: str,
        make: Callable[[ModelProto], Compiled],
    ) -> Program:
        """A program, compiled.

        Raises UnsupportedModel where ONNX has its ends in other types, and whatever `make` raises.
        """
        export = exported(program, label)
        compiled = make(export.proto)
        for what, tensors, wanted in (
            ("input", compiled.inputs, export.inputs),
            ("output", compiled.outputs, export.types),
        ):
            for tensor in tensors:
                if wanted[tensor.name] != (has := f"{tensor.dtype} {list(tensor.shape)}"):
                    raise UnsupportedModel(
                        f"{label}: {what} {tensor.name!r}: found {wanted[tensor.name]}, which ONNX has as "
                        f"{has}; accepted: the same"
                    )
        places = {name: k for k, name in enumerate(export.inputs)}
        return cls(
            compiled, weights, tuple(places[tensor.name] for tensor in compiled.inputs), export.outputs
        )

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        """Results, flat, for the tensors of a call. Raises as `Compiled.run`."""
        outputs = self.compiled.run([as_array(tensors[k]) for k in self.order])
        by_name = {name: as_tensor(value) for name, value in outputs.items()}
        return [None if name is None else by_name[name] for name in self.results]
