"""Which arithmetic of `lfopt.ops.integer` an operator on quantised maps has."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from lfopt.ir import Tensor
from lfopt.ops import floating
from lfopt.ops.call import Call, once_per_call
from lfopt.ops.elementwise import elementwise
from lfopt.ops.fixed_point import BYTES
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.scaling import channel_axes
from lfopt.ops.table import OpSpec, row_of
from lfopt.ops.traits import Arithmetic

SUMS, TABLE, TERMS, PRODUCT, SLOPES, MEAN, EXTREME, CHOICE, MOVE, FLOAT = Arithmetic


@once_per_call
def arithmetic(call: Call) -> Arithmetic:
    """How this operator on quantised maps is computed."""
    kind = call.operator.kind
    row = row_of(call)
    data = [i for i, tensor in enumerate(call.tensors) if tensor is not None and i not in row.parameters]
    if kind == "QuantizeLinear":
        return TABLE if in_bytes(call.tensors[0]) else FLOAT  # a change of scale, of whatever has one
    if not all(in_bytes(tensor) for tensor in call.result_tensors if tensor.quantization is not None):
        return FLOAT
    if TABLE in arithmetics(row) and _reads_one_map(call, data):
        return TABLE
    if APPLIES[row.integers](call, data):
        return row.integers
    return FLOAT


def arithmetics(row: OpSpec) -> tuple[Arithmetic, ...]:
    """How operators of a row may be computed, depending on their operands; FLOAT aside."""
    tabled = row.elementwise and floating.KERNELS.get(row.kind) is elementwise
    return tuple(dict.fromkeys((*(TABLE,) * tabled, *(row.integers,) * (row.integers is not FLOAT))))


def in_bytes(tensor: Tensor | None) -> bool:
    """Whether the tensor is of 8 bits, with one scale."""
    return (
        tensor is not None
        and tensor.quantization is not None
        and tensor.quantization.axis is None
        and tensor.dtype in BYTES
    )


def _all_in_bytes(call: Call, data: list[int]) -> bool:
    return all(in_bytes(call.tensors[i]) for i in data)


def _first_in_bytes(call: Call, data: list[int]) -> bool:
    return in_bytes(call.tensors[0])


def _reads_one_map(call: Call, data: list[int]) -> bool:
    """Whether it reads one quantised map, shaped as the result, and else constants of one known element."""
    maps = [i for i, tensor in enumerate(call.tensors) if tensor is not None and not call.constant[i]]
    others = [i for i, tensor in enumerate(call.tensors) if tensor is not None and call.constant[i]]
    return (
        len(maps) == 1
        and in_bytes(call.tensors[maps[0]])
        and call.shape(maps[0]) == call.result
        and all(prod(call.shape(i)) == 1 and call.values[i] is not None for i in others)
    )


def _chooses(call: Call, data: list[int]) -> bool:
    choices = {"Where": [1, 2], "Pad": [0]}.get(call.operator.kind, data)
    known_fill = call.operator.kind != "Pad" or not call.has(2) or call.values[2] is not None
    return _all_in_bytes(call, choices) and known_fill


def _moves(call: Call, data: list[int]) -> bool:
    nearest = (
        call.attribute("mode", "nearest") == "nearest"
        and call.attribute("coordinate_transformation_mode", "") != "tf_crop_and_resize"
    )
    return in_bytes(call.tensors[0]) and (call.operator.kind != "Resize" or nearest)


def _is_contraction_in_bytes(call: Call, data: list[int]) -> bool:
    """8-bit operands; the second may have a scale per channel of the result, if it is constant."""
    first, second = call.tensors[:2]
    assert second is not None
    by = second.quantization
    if not in_bytes(first) or by is None or second.dtype not in BYTES:
        return False
    if call.has(2) and not call.constant[2]:
        return False
    return by.axis is None or (
        call.constant[1] and len(second.shape) > 1 and by.axis == channel_axes(call)[1]
    )


APPLIES: dict[Arithmetic, Callable[[Call, list[int]], bool]] = {
    SUMS: _is_contraction_in_bytes,
    TABLE: _reads_one_map,
    TERMS: _all_in_bytes,
    PRODUCT: _all_in_bytes,
    SLOPES: lambda call, data: in_bytes(call.tensors[0]) and call.values[1] is not None,
    MEAN: lambda call, data: (
        in_bytes(call.tensors[0]) and (row_of(call).slides or reduced_axes(call) is not None)
    ),
    EXTREME: _first_in_bytes,
    CHOICE: _chooses,
    MOVE: _moves,
    FLOAT: lambda call, data: True,
}
