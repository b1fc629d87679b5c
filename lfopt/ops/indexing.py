"""Elements at places that are computed, on boxes: GatherElements, GatherND, ScatterElements, ScatterND.

Source: the ONNX operators of the same names. A negative index counts from the end; IndexError for one that
lies outside.
"""

from __future__ import annotations

import numpy as np

from lfopt.ir import Box, box_shape
from lfopt.ops.call import Call
from lfopt.ops.contraction import present
from lfopt.ops.footprint import needs
from lfopt.ops.part import Operands, take

FOLDS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _taken(call: Call, operands: Operands, index: int, out: Box) -> np.ndarray:
    return take(present(operands, index), needs(call, index, out))


def _from_start(call: Call, indices: np.ndarray, extent: int) -> np.ndarray:
    """The indices counted from the start, int64. Raises IndexError for one that lies outside."""
    counted = indices.astype(np.int64)
    counted = np.where(counted < 0, counted + extent, counted)
    if counted.size and not (counted.min() >= 0 and counted.max() < extent):
        raise IndexError(f"{call.operator.name!r}: an index is outside of {extent} elements")
    return counted


def gather_elements(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """An element of the data along an axis for every index, shaped as box `out`."""
    data = _taken(call, operands, 0, out)
    indices = _taken(call, operands, 1, out)
    axis = call.attribute("axis", 0) % data.ndim
    return np.take_along_axis(data, _from_start(call, indices, data.shape[axis]), axis)


def gather_nd(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Parts of the data by indices along several axes, shaped as box `out`."""
    data = _taken(call, operands, 0, out)
    indices = _taken(call, operands, 1, out)
    shared = call.attribute("batch_dims", 0)
    # the axes that data and indices share are counted along, so that they take part in the indexing
    place: list[np.ndarray] = []
    rank = indices.ndim - 1
    for axis in range(shared):
        counted = np.arange(indices.shape[axis])
        place.append(counted.reshape((-1, *(1,) * (rank - axis - 1))))
    for k in range(indices.shape[-1]):
        place.append(_from_start(call, indices[..., k], data.shape[shared + k]))
    return np.broadcast_to(data[tuple(place)], box_shape(out))


def scatter_elements(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The data with updates each at an index of its own along an axis, shaped as box `out`."""
    indices, updates = (_taken(call, operands, k, out) for k in (1, 2))
    axis = call.attribute("axis", 0) % len(out)
    rows = _from_start(call, indices, call.result[axis])
    place = [np.asarray(along) for along in np.indices(indices.shape, np.int64)]
    place[axis] = rows - out[axis][0]
    return _scattered(call, _taken(call, operands, 0, out), place, updates)


def scatter_nd(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The data with parts of it updated, each by an index along the first axes, shaped as box `out`."""
    indices, updates = (_taken(call, operands, k, out) for k in (1, 2))
    count = indices.shape[-1]
    place = [_from_start(call, indices[..., k], call.result[k]).reshape(-1) - out[k][0] for k in range(count)]
    behind = updates.shape[indices.ndim - 1 :]
    return _scattered(call, _taken(call, operands, 0, out), place, updates.reshape((-1, *behind)))


def _scattered(call: Call, data: np.ndarray, place: list[np.ndarray], updates: np.ndarray) -> np.ndarray:
    """A copy of the data with updates where they lie in it, one after the other."""
    inside = np.ones(place[0].shape if place else (1,), bool)
    for at, extent in zip(place, data.shape, strict=False):
        inside &= (at >= 0) & (at < extent)
    chosen = tuple(at[inside] for at in place)
    scattered = data.copy()
    values = updates[inside]
    fold = FOLDS.get(call.attribute("reduction", "none"))
    if fold is not None:
        fold.at(scattered, chosen, values)
    else:
        scattered[chosen] = values  # NumPy: of several values for one place, the last one stays
    return scattered
