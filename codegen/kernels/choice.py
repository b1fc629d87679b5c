"""A kernel is asked whether it takes an operator: it answers with a choice, which has all that printing needs, or with a refusal, which says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from codegen.kernels.unit import Unit
from codegen.source import Refusal, Unsupported
from codegen.writer import Module

Write = Callable[[Module], None]  # prints the C function of a kernel after those that it calls, and refuses nothing


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel that takes an operator."""

    kernel: str
    unit: Unit  # as the kernel sees it
    write: Write


@dataclass(frozen=True, slots=True)
class Kernel:
    """A way to make an operator."""

    name: str
    select: Callable[[Unit], Write]  # looks at what is known before anything is printed; raises Unsupported
    whole_maps: bool = False  # whether each call makes the whole map, whatever a row is

    def match(self, unit: Unit) -> Choice | Refusal:
        """Whether it takes the operator of a unit, with what follows that."""
        unit = replace(unit, once=unit.once or self.whole_maps)
        try:
            return Choice(self.name, unit, self.select(unit))
        except Unsupported as reason:
            return Refusal(self.name, str(reason))


def first_match(kernels: Iterable[Kernel], unit: Unit) -> tuple[Choice | None, tuple[Refusal, ...]]:
    """The first kernel that takes an operator, and the refusals of those before it."""
    refused: list[Refusal] = []
    for kernel in kernels:
        found = kernel.match(unit)
        if isinstance(found, Choice):
            return found, tuple(refused)
        refused.append(found)
    return None, tuple(refused)
