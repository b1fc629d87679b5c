"""The result of code generation: C text with its weights, and how to compile it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lfopt.ir import LfoptError
from lfopt.ir.cpu import CpuFunction, CpuSchedule


class Unsupported(LfoptError):
    """An operator, a mode or a type that the back end does not know; raised before anything is written."""


@dataclass(frozen=True, slots=True)
class KernelRefusal:
    """Why a kernel does not take an operator."""

    kernel: str
    reason: str  # one line


@dataclass(frozen=True, slots=True)
class Decision:
    """The kernel of a function, and those that were asked before."""

    function: CpuFunction
    kernel: str  # "plain loops" where none takes its operator
    refused: tuple[KernelRefusal, ...]  # in the order in which they were asked


@dataclass(frozen=True, repr=False)
class CSource:
    """A network as C: model.h, model.c and its weights, in a file of their own or as C too."""

    name: str  # C identifier made from the model's name; prefix of every exported symbol
    target: str  # avx512, avx2, neon, rvv, c99
    flags: tuple[str, ...]  # of the compiler for this target, without -I and -o
    files: Mapping[str, bytes]  # by file name; weights.bin is absent where the weights are linked in
    arena_bytes: int  # the buffer that fusion groups run in, as large as the plan says, or one of each thread
    context_bytes: int  # memory of one caller, the arena included
    weights_bytes: int  # of weights.bin, or of what is linked in
    # what its threads run; without groups where the C counts, as that follows the plan's steps
    schedule: CpuSchedule
    decisions: tuple[Decision, ...] = ()  # for every function of the schedule, in order

    @property
    def arenas(self) -> int:
        """Buffers for fusion groups: one, or one of each thread."""
        return self.schedule.arenas

    @property
    def loops(self) -> dict[str, str]:
        """Operators printed as plain loops, and why no faster kernel took them."""
        return {
            name: function.why
            for function in self.schedule.functions
            if function.how == "loops"
            for name in function.operators
        }

    @property
    def together(self) -> dict[int, str]:
        """Groups with rings whose every row all threads make together, and why."""
        return {group.id: group.why for group in self.schedule.groups if group.rings and group.why}

    @property
    def not_followed(self) -> dict[int, str]:
        """Groups of several operators that make whole maps, not in the order of the plan's steps, and why."""
        return {
            group.id: group.why
            for group in self.schedule.groups
            if not group.rings and len(group.functions) > 1
        }

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(text):,} B" for name, text in self.files.items())
        return f"CSource({self.name} for {self.target}: {sizes})"
