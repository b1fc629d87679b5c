"""What a kernel is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.blob import Blob
from codegen.images import Image
from codegen.kernels.tiles import channels_in, vectors
from codegen.source import Unsupported
from codegen.tails import Extra, Tail
from codegen.target import Target
from codegen.writer import Writer
from lfopt.ops import Call, Dataflow

Address = Callable[[int, str], str]  # (map, row as a C expression) -> C expression for the address of that row


@dataclass(frozen=True)
class Unit:
    """An operator and its tail, as one C function `name(m, r)` that makes row r of the result."""

    name: str
    flow: Dataflow
    head: int  # index of the operator
    tail: Tail
    result: int  # index of the map that is stored
    images: Callable[[int], Image]  # of maps; flat where the whole map is made in one go
    address: Address
    target: Target
    blob: Blob

    @property
    def call(self) -> Call:
        """The head."""
        return self.flow.calls[self.head]

    def operand(self, index: int) -> int:
        """Map behind an input of the head."""
        return next(o.map for o in self.flow.operands[self.head] if o.input == index)

    def constant(self, index: int) -> np.ndarray:
        """Values of a constant input of the head. Raises Unsupported."""
        value = self.call.values[index]
        if value is None:
            raise self.unsupported(f"input {index} is computed, or the model has no values for it", "constants with values")
        return value

    def unsupported(self, found: str, accepted: str) -> Unsupported:
        """The error for a head that no kernel knows."""
        operator = self.call.operator
        return Unsupported(f"node {operator.name!r} ({operator.kind}): found {found}; generated C accepts {accepted}")

    # -- tails as parameters of a function -------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> str:
        """The operands of the tail, as parameters."""
        return "".join(f", const float *restrict {extra.name}" for extra in self.tail.extras)

    def arguments(self, pixel: str, channel: str, channels: int) -> str:
        """The operands of the tail for the pixel and channel where a tile begins."""
        return "".join(f", {_at(extra, pixel, channel, channels)}" for extra in self.tail.extras)

    def declarations(self) -> list[str]:
        """The operands of the tail for row r."""
        return [f"const float *{extra.name} = {self._extra(extra)};" for extra in self.tail.extras]

    def _extra(self, extra: Extra) -> str:
        return extra.pointer if extra.map < 0 else self.address(extra.map, "r" if extra.reach == "element" else "0")

    def store(self, out: Writer, pixels: int, lanes: Sequence[int], channels: int, name: str) -> None:
        """The tail on a tile of sums, and the stores; `name`: C variable of the sums of a pixel and a vector."""
        offsets = [sum(lanes[:k]) for k in range(len(lanes))]
        for p in range(pixels):
            for k, width in enumerate(lanes):
                value = name.format(p=p, k=k)
                out.all(self.finish(value, width, p, offsets[k], channels))
                out(f"*(u{width} *)(y + {p * channels + offsets[k]}) = {value};")

    def finish(self, value: str, lanes: int, pixel: int | str, channel: int | str, channels: int) -> list[str]:
        """The tail on one vector of a tile; offsets are from where the tile begins."""
        return self.tail.apply(value, lanes, lambda extra: _at(extra, pixel, channel, channels))

    def over(self, out: Writer, count: int) -> Iterator[int]:
        """Loops over so many elements, c being the first of a vector: one for every width, whose body is written before the next is asked for."""
        for part in channels_in(vectors(count, self.target), 1):
            with out.block(f"for (int c = {part.first}; c < {part.first + part.width * part.tiles}; c += {part.width})"):
                yield part.width


def _at(extra: Extra, pixel: int | str, channel: int | str, channels: int) -> str:
    """Address of an operand of the tail, so many pixels and channels on."""
    return f"{extra.name} + " + {"element": f"({pixel}) * {channels} + {channel}", "channel": str(channel), "one": "0"}[extra.reach]
