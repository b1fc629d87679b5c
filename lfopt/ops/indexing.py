"""Operators that gather from or scatter to places that operands say, on whole operands.

Source: ONNX operators GatherElements, GatherND, ScatterElements, ScatterND. Where places repeat, the last
update counts, or they are combined in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lfopt.ir import Operator

Operands = Sequence[np.ndarray | None]
# of a scatter, by its attribute: combines updates with what they meet, in place and one after the other
REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
}


def gather_elements(operator: Operator, operands: Operands) -> np.ndarray:
    """[*indices.shape]: the elements at indices along an axis."""
    data, indices = _present(operands, 2)
    axis = _integer(operator, "axis", 0) % data.ndim
    extent = tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))
    return np.take_along_axis(data[extent], indices, axis)


def gather_nd(operator: Operator, operands: Operands) -> np.ndarray:
    """[*indices.shape[:-1], ...]: the parts of the data at the places that the last axis of indices says."""
    data, indices = _present(operands, 2)
    lead, batch_dims = indices.ndim - 1, _integer(operator, "batch_dims", 0)
    batch = (_along(np.arange(data.shape[axis]), axis, lead) for axis in range(batch_dims))
    return np.asarray(data[(*batch, *np.moveaxis(indices, -1, 0))])


def scatter_elements(operator: Operator, operands: Operands) -> np.ndarray:
    """[*data.shape]: the data with updates at indices along an axis."""
    data, indices, updates = _present(operands, 3)
    axis = _integer(operator, "axis", 0) % data.ndim
    places = [
        indices if a == axis else _along(np.arange(n), a, data.ndim) for a, n in enumerate(indices.shape)
    ]
    return _scattered(operator, data, tuple(places), updates)


def scatter_nd(operator: Operator, operands: Operands) -> np.ndarray:
    """[*data.shape]: the data with updates at the places that the last axis of indices says."""
    data, indices, updates = _present(operands, 3)
    return _scattered(operator, data, tuple(np.moveaxis(indices, -1, 0)), updates)


def _scattered(
    operator: Operator, data: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray
) -> np.ndarray:
    result = np.array(data)
    reduction = operator.attributes.get("reduction", "none")
    if reduction in REDUCTIONS:
        REDUCTIONS[str(reduction)].at(result, places, updates)
    else:
        result[places] = updates
    return result


def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A vector, shaped to broadcast along one axis of so many."""
    return values.reshape([-1 if a == axis else 1 for a in range(rank)])


def _present(operands: Operands, count: int) -> Any:
    """The first operands, none of which is optional."""
    given = operands[:count]
    assert all(operand is not None for operand in given)
    return given


def _integer(operator: Operator, attribute: str, default: int) -> int:
    value = operator.attributes.get(attribute, default)
    assert isinstance(value, int)
    return value


# (operator, whole operands) -> its one result
WHOLE: dict[str, Callable[[Operator, Operands], np.ndarray]] = {
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
