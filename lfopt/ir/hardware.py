"""The chip: one on-chip buffer in front of DRAM, and how many bytes things take on either side."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod

from lfopt.ir.errors import InvalidConfig
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK, Tensor, row_axis


def round_up(value: int, step: int) -> int:
    """Smallest multiple of `step` that is at least `value`.

    >>> round_up(17, 16), round_up(17, 1)
    (32, 17)
    """
    return -(-value // step) * step


@dataclass(frozen=True, slots=True)
class Hardware:
    """A hardware description. Bytes are integers; KiB = 1024 B."""

    buffer_bytes: int  # beta: the on-chip buffer that feature maps and weights share
    element_bytes: int = 2  # one element of a feature map
    weight_bytes: int | None = None  # one weight; None: as element_bytes
    bias_bytes: int | None = None  # one bias element; None: as element_bytes
    accumulator_bytes: int = 4  # one partial sum held on chip
    dram_row_align: int = 1  # bytes: a row in DRAM is padded up to a multiple of this
    channel_align: int = 1  # elements: on chip, channels are padded up to a multiple of this
    name: str = "unnamed"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            optional = field.name in ("weight_bytes", "bias_bytes") and value is None
            if field.name != "name" and not optional and not (isinstance(value, int) and 1 <= value <= 1 << 40):
                raise InvalidConfig(f"hardware.{field.name}: found {value!r}; accepted: a whole number from 1 to 2**40")

    def dram_bytes(self, tensor: Tensor) -> int:
        """Bytes of a whole feature map in DRAM, row padding included."""
        rows = tensor.rows
        return rows * round_up(tensor.elements // max(rows, 1) * self.element_bytes, self.dram_row_align)

    def row_bytes(self, tensor: Tensor) -> int:
        """Bytes of one row of a feature map on chip, channel padding included; all n images of a batch lie inside the row."""
        shape = list(tensor.shape)
        axis, channel = row_axis(tensor.shape), CHANNEL_AXIS_OF_RANK.get(len(shape))
        if channel is not None:
            shape[channel] = round_up(shape[channel], self.channel_align)
        if axis is not None:
            shape[axis] = 1
        return prod(shape) * self.element_bytes

    def constant_bytes(self, elements: int, *, bias: bool) -> int:
        """Bytes of a weight (or bias) tensor, on chip and in DRAM."""
        per_element = self.bias_bytes if bias else self.weight_bytes
        return elements * (self.element_bytes if per_element is None else per_element)
