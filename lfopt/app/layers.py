"""Networks of one layer: of its shape alone, or of one operator of a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from lfopt.ir import Graph, Hardware, InvalidConfig, Operator, Quantization, Tensor
from lfopt.ir.graph import Attribute

OPSET = 21
KINDS = ("conv", "dwconv", "gemm")
MOST_ELEMENTS = 1 << 32  # of one map, or of the weights


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A convolution (conv), one of each channel by itself (dwconv), or a product by a matrix (gemm)."""

    kind: str
    in_channels: int  # of all groups
    out_channels: int
    height: int = 1  # of the input; gemm: rows of the first factor
    width: int = 1
    kernel: tuple[int, int] = (1, 1)  # rows, columns
    stride: int = 1
    padding: int = 0  # on every side
    groups: int = 1
    batch: int = 1  # images

    @property
    def out_size(self) -> tuple[int, int]:
        """Rows and columns of the output.

        >>> LayerShape("conv", 3, 96, 227, 227, (11, 11), stride=4).out_size
        (55, 55)
        """
        rows, columns = (
            (size + 2 * self.padding - kernel) // self.stride + 1
            for size, kernel in zip((self.height, self.width), self.kernel, strict=True)
        )
        return rows, columns

    def check(self) -> None:
        """Raise InvalidConfig, whose text begins with the column, for a layer that there cannot be."""
        if self.kind == "gemm":
            if (self.width, self.kernel, self.stride, self.padding, self.groups) != (1, (1, 1), 1, 0, 1):
                raise InvalidConfig(
                    "kind: found gemm with a width, kernel, stride, padding or groups; accepted: "
                    "in_channels, out_channels, and height: rows of the first factor"
                )
        elif min(self.out_size) < 1:
            raise InvalidConfig(
                f"kernel: found {self.kernel[0]}x{self.kernel[1]} on {self.height} x {self.width} with "
                f"padding {self.padding}; accepted: a kernel that the padded input holds"
            )
        for name, channels in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if channels % self.groups:
                raise InvalidConfig(f"{name}: found {channels}; accepted: a multiple of {self.groups} groups")
        maps = (
            (self.in_channels, self.height, self.width),
            (self.out_channels, *self.out_size),
            (self.out_channels, self.in_channels // self.groups, *self.kernel),
        )
        if (most := max(map(prod, maps)) * self.batch) > MOST_ELEMENTS:
            raise InvalidConfig(f"in_channels: found a layer of {most:,} elements; accepted: up to 2^32")


def layer_network(shape: LayerShape, name: str, *, quantized: bool) -> Graph:
    """A network of one layer with a bias, without values. `quantized`: in int8, with a scale per channel."""
    weights: tuple[int, ...] = (shape.out_channels, shape.in_channels // shape.groups, *shape.kernel)
    taken: tuple[int, ...] = (shape.batch, shape.in_channels, shape.height, shape.width)
    result: tuple[int, ...] = (shape.batch, shape.out_channels, *shape.out_size)
    attributes: dict[str, Attribute] = {
        "kernel_shape": shape.kernel,
        "strides": (shape.stride, shape.stride),
        "pads": (shape.padding,) * 4,
        "dilations": (1, 1),
        "group": shape.groups,
    }
    if shape.kind == "gemm":
        taken = (shape.batch * shape.height, shape.in_channels)
        result = (shape.batch * shape.height, shape.out_channels)
        weights = (shape.out_channels, shape.in_channels)
        attributes = {"transB": 1}
    of_map = Quantization((1.0,), (0,))
    channels = shape.out_channels
    of_channels = Quantization((1.0,) * channels, (0,) * channels, 0)
    dtypes = ("int8", "int8", "int32") if quantized else ("float32",) * 3
    tensors = (
        Tensor("x", taken, dtypes[0], of_map if quantized else None),
        Tensor("weights", weights, dtypes[1], of_channels if quantized else None),
        Tensor("bias", (channels,), dtypes[2], of_channels if quantized else None),
        Tensor("y", result, dtypes[0], of_map if quantized else None),
    )
    operator = Operator(
        name, "Gemm" if shape.kind == "gemm" else "Conv", ("x", "weights", "bias"), ("y",), attributes
    )
    return Graph(
        name,
        (operator,),
        {tensor.name: tensor for tensor in tensors},
        {"weights": None, "bias": None},
        ("x",),
        ("y",),
        OPSET,
    )


def one_operator(graph: Graph, name: str) -> Graph:
    """The network of one operator of a network: what it reads and makes are inputs and outputs."""
    operator = next(operator for operator in graph.operators if operator.name == name)
    names = {tensor for tensor in (*operator.inputs, *operator.outputs) if tensor}
    return replace(
        graph,
        operators=(operator,),
        tensors={tensor: graph.tensors[tensor] for tensor in graph.tensors if tensor in names},
        constants={tensor: graph.constants[tensor] for tensor in graph.constants if tensor in names},
        inputs=tuple(
            dict.fromkeys(tensor for tensor in operator.inputs if tensor and tensor not in graph.constants)
        ),
        outputs=tuple(tensor for tensor in operator.outputs if tensor),
        notes=(),
        labels={},
        integer_ends=frozenset(),
        files=(),
    )


def is_quantized(hardware: Hardware) -> bool:
    """Whether layers of a chip are taken to be in int8: its elements take a byte."""
    return hardware.element_bytes == 1
