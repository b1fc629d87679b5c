"""What code generation hands on: C text with its weights, and how to compile it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lfopt.ir import LfoptError


class Unsupported(LfoptError):
    """An operator, a mode or a type that the back end does not know; raised before anything is written."""


class NotFused(Unsupported):
    """An attention that is printed in its parts: what it reads lies in no order that its kernel knows."""

    def __init__(self, operator: str, reason: str) -> None:
        """`operator`: the name of the product with the values."""
        super().__init__(reason)
        self.operator = operator


@dataclass(frozen=True, repr=False)
class CSource:
    """A network as C: model.h, model.c and its weights, in a file of their own or as C too."""

    name: str  # C identifier made from the model's name; prefix of every exported symbol
    target: str  # avx512, avx2, neon, c99
    flags: tuple[str, ...]  # of the compiler for this target, without -I and -o
    files: Mapping[str, bytes]  # by file name; weights.bin is absent where the weights are linked in
    arena_bytes: int  # the buffer that fusion groups run in, as large as the plan says, or one of each thread
    context_bytes: int  # memory of one caller, the arena included
    loops: Mapping[str, str] = field(default_factory=dict[str, str])  # operators printed as plain loops, and why no faster kernel took them
    arenas: int = 1
    together: Mapping[int, str] = field(default_factory=dict[int, str])  # groups with rings that threads do not cut among them (see codegen.shares)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(text):,} B" for name, text in self.files.items())
        return f"CSource({self.name} for {self.target}: {sizes})"
