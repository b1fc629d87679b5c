"""Constants of an ONNX file: their values agree with their dims, and none lies outside the model's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto

from lfopt.frontend.messages import ONNX_REFUSES, title
from lfopt.ir import InvalidModel, Tensor, UnsupportedModel

# elements of one tensor: beyond any real network, far below what overflows an int64 count of bytes
MAX_ELEMENTS = 1 << 36
MAX_RANK = 32  # axes of one tensor
DATA_TYPES: dict[str, int] = dict(TensorProto.DataType.items())
PACKED_BITS = {
    DATA_TYPES[name]: bits
    for bits, names in ((2, "INT2 UINT2"), (4, "INT4 UINT4 FLOAT4E2M1"), (6, "FLOAT6E2M3 FLOAT6E3M2"))
    for name in names.split()
    if name in DATA_TYPES
}


class Initializer(NamedTuple):
    """A constant of the file."""

    tensor: Tensor
    value: np.ndarray | None  # None: the external file is absent


Values = dict[str, Initializer]


class Folder:
    """External data: files below the model's folder, each mapped once, read only where weights are used."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._files: dict[str, np.ndarray] = {}

    def read(self, tensor: TensorProto, what: str) -> np.ndarray | None:
        """Values of an external tensor, shaped as its dims; None where its file is absent.

        Raises InvalidModel where the file does not have the bytes that the dims want, and for strings.
        """
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        data = self._open(location, what)
        if data is None:
            return None
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        bits = PACKED_BITS.get(tensor.data_type)
        if tensor.data_type == TensorProto.STRING:
            raise InvalidModel(f"{what}: strings cannot be external data")
        wanted = -(-prod(tensor.dims) * (bits or 8 * dtype.itemsize) // 8)
        offset = _integer(info, "offset", 0, what)
        length = _integer(info, "length", wanted, what)
        if offset + length > data.size:
            raise InvalidModel(
                f"{what}: bytes {offset} to {offset + length} of {location!r}, which has {data.size}"
            )
        if length != wanted:
            raise InvalidModel(
                f"{what}: {length} bytes in {location!r}, dims {list(tensor.dims)} want {wanted}"
            )
        stored = data[offset : offset + length]
        if bits:
            return onnx.numpy_helper.to_array(
                TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=stored.tobytes())
            )
        return stored.view(dtype).reshape(tensor.dims)

    def _open(self, location: str, what: str) -> np.ndarray | None:
        """Bytes of a file, as uint8."""
        if location in self._files:
            return self._files[location]
        relative = Path(location)
        outside = InvalidModel(f"{what}: external data location {location!r} lies outside the model's folder")
        if (
            not location
            or relative.is_absolute()
            or ".." in relative.parts
            or "\\" in location
            or "\0" in location
        ):
            raise outside
        if self._path is None:
            return None
        path = self._path / relative
        try:
            if not path.exists():
                return None
            if not path.resolve().is_relative_to(self._path.resolve()):
                raise outside
            if not path.is_file():
                raise InvalidModel(f"{what}: external data location {location!r} is not a file")
            empty = path.stat().st_size == 0  # which cannot be mapped
            self._files[location] = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r")
        except (OSError, RuntimeError) as error:
            raise InvalidModel(
                f"{what}: external data {location!r}: {getattr(error, 'strerror', None) or error}"
            ) from None
        return self._files[location]


def _integer(info: Mapping[str, str], key: str, default: int, what: str) -> int:
    """A field of external data, which is text."""
    text = info.get(key)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise InvalidModel(f"{what}: external data {key} is {text[:40]!r}; wanted is a number of bytes")
    return int(text)


def checked(tensor: TensorProto, name: str, folder: Folder, what: str) -> tuple[Tensor, np.ndarray | None]:
    """A constant, and its values, shaped as its dims; None where the external file is absent.

    Raises InvalidModel where the two do not agree.
    """
    shape = tuple(tensor.dims)
    dtype = dtype_name(tensor.data_type, what)
    check_shape(shape, what)
    try:
        if tensor.data_location == TensorProto.EXTERNAL:
            value = folder.read(tensor, what)
        else:
            value = onnx.numpy_helper.to_array(tensor)
    except (*ONNX_REFUSES, OverflowError) as error:
        raise InvalidModel(f"{what} of dims {list(shape)}: {error}") from None
    return Tensor(name, shape, dtype), value


def check_shape(shape: Sequence[int], what: str, least: int = 0) -> None:
    """Raise InvalidModel for a shape that no tensor has: negative or absurd dims; `least`: smallest dim."""
    if len(shape) > MAX_RANK or any(d < least for d in shape) or prod(shape) > MAX_ELEMENTS:
        text = list(shape) if len(shape) <= MAX_RANK else f"of rank {len(shape)}"
        raise InvalidModel(
            f"{what}: shape {text} is out of range (rank up to {MAX_RANK}, no dim below {least}, "
            f"up to {MAX_ELEMENTS} elements)"
        )


def dtype_name(data_type: int, what: str) -> str:
    """NumPy's name of an ONNX element type. Raises InvalidModel for what is none."""
    try:
        if data_type == TensorProto.STRING:
            return "string"
        return onnx.helper.tensor_dtype_to_np_dtype(data_type).name
    except (KeyError, TypeError):
        raise InvalidModel(f"{what}: element type {data_type} is not one of ONNX's") from None


def attribute_value(tensor: TensorProto, what: str) -> np.ndarray:
    """The values of a tensor attribute, shaped as its dims.

    Raises UnsupportedModel where they do not stand in the model itself.
    """
    if tensor.data_location == TensorProto.EXTERNAL:
        value = None
    else:
        value = checked(tensor, "", Folder(None), what)[1]
    if value is None:
        raise UnsupportedModel(
            f"{what}: external data is supported for initializers and Constant nodes of the graph itself"
        )
    return value


def options(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node: numbers, text, and lists of them.

    Raises InvalidModel for one without a value.
    """
    what = title(node)
    return {attribute.name: _text(stated_value(attribute, what)) for attribute in node.attribute}


def stated_value(attribute: AttributeProto, what: str) -> Any:
    """What an attribute says, as onnx has it. Raises InvalidModel where it says nothing."""
    if attribute.ref_attr_name:
        raise InvalidModel(
            f"{what}: attribute {attribute.name!r} refers to {attribute.ref_attr_name!r} of a function, and "
            "the node is in none; accepted: a value"
        )
    try:
        return onnx.helper.get_attribute_value(attribute)
    except ONNX_REFUSES as error:
        raise InvalidModel(f"{what}: attribute {attribute.name!r}: {error}") from None


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [_text(item) for item in value]
    return value
