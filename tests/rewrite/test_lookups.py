"""Products of one-hot vectors with a matrix become lookups of its rows, for every index there is."""

import numpy as np
import pytest

from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from tests.rewrite.graphs import graph_of, kinds, without_values

MATRIX = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)


def one_hot(
    dtype: str,
    first: int,
    matrix: np.ndarray = MATRIX,
    turned: bool = False,
    classes: np.ndarray | None = None,
):
    """Rows of a matrix, as frameworks that have one-hot vectors in place of integers look them up."""
    known = (
        np.arange(first, first + len(MATRIX), dtype=dtype).reshape(1, 1, -1) if classes is None else classes
    )
    operands = "classes, index" if turned else "index, classes"
    lines = f"e = Equal({operands})", "h = Cast(e) to=1", "y = MatMul(h, matrix)"
    return graph_of(
        *lines,
        inputs={"index": (2, 6, 1)},
        constants={"classes": known, "matrix": matrix},
        dtypes={"index": dtype},
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("first", [0, 1, -3])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_lookups_give_what_the_product_gave(dtype, first, turned):
    graph = one_hot(dtype, first, turned=turned)
    done = simplify(graph)
    assert (
        kinds(done)
        == ["Reshape", "Clip", *(["Sub"] if first != 1 else []), "Gather"]
        == kinds(simplify(without_values(graph)))
    )
    limits = np.iinfo(dtype)
    index = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -3, limits.max - 1], dtype).reshape(2, 6, 1)
    index[0, 0] = limits.min
    np.testing.assert_array_equal(
        reference(done, {"index": index})["y"], reference(graph, {"index": index})["y"]
    )


@pytest.mark.parametrize(
    "told",
    [
        {"matrix": np.where(MATRIX > 1, np.inf, MATRIX)},
        {"classes": np.array([0, 1, 2, 3, 4, 6, 5], "int64").reshape(1, 1, -1)},
    ],
)
def test_what_is_no_lookup_stays(told):
    assert kinds(simplify(one_hot("int64", 0, **told))) == ["Equal", "Cast", "MatMul"]
