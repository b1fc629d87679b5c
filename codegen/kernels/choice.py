"""A kernel is asked whether it takes an operator: it answers with a choice, or a refusal and its reason.

A choice has all that printing needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from codegen.kernels.fused_kernel import FusedKernel
from codegen.source import KernelRefusal, Unsupported
from codegen.writer import CModule

# prints the C function of a kernel after those that it calls, and refuses nothing
Write = Callable[[CModule], None]


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel that takes an operator."""

    kernel: str
    fused: FusedKernel  # as the kernel sees it
    write: Write


@dataclass(frozen=True, slots=True)
class Kernel:
    """A way to make an operator."""

    name: str
    # from what is known before anything is printed; raises Unsupported
    select: Callable[[FusedKernel], Write]
    whole_maps: bool = False  # whether each call makes the whole map, whatever a row is

    def match(self, fused: FusedKernel) -> KernelChoice | KernelRefusal:
        """Whether it takes the operator of a fused kernel, with what follows that."""
        fused = replace(fused, once=fused.once or self.whole_maps)
        try:
            return KernelChoice(self.name, fused, self.select(fused))
        except Unsupported as reason:
            return KernelRefusal(self.name, str(reason))


def first_match(
    kernels: Iterable[Kernel], fused: FusedKernel
) -> tuple[KernelChoice | None, tuple[KernelRefusal, ...]]:
    """The first kernel that takes an operator, and the refusals of those before it."""
    refused: list[KernelRefusal] = []
    for kernel in kernels:
        match = kernel.match(fused)
        if isinstance(match, KernelChoice):
            return match, tuple(refused)
        refused.append(match)
    return None, tuple(refused)
