"""How a tensor of integers stands for real numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantization:
    """real = scale * (stored - zero_point), per tensor or per index along `axis`.

    The stored type is the tensor's dtype.

    Source: ONNX operators QuantizeLinear and DequantizeLinear.
    """

    scale: tuple[float, ...]  # one, or one per index along the axis; all above 0
    zero_point: tuple[int, ...]  # as many as scales
    axis: int | None = None  # None: one scale for the whole tensor
