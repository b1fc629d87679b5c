"""GroupNormalization exported as InstanceNormalization of groups is one operator again, same results."""

import numpy as np
import pytest

from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from tests.rewrite.graphs import graph_of, kinds, without_values

RNG = np.random.default_rng(0)
SHAPE = (2, 6, 4, 5)


def exported(*, behind: tuple[str, ...], groups: int = 3, **changed: np.ndarray):
    """What torch.onnx writes for nn.GroupNorm in opsets before 18."""
    channels = {name: RNG.standard_normal((6, 1, 1)).astype(np.float32) for name in "st"}
    own = {name: RNG.standard_normal(groups).astype(np.float32) for name in "vw"}
    dims = {"split": np.array([0, groups, -1], np.int64), "shape": np.array(SHAPE, np.int64)}
    lines = (
        "g = Reshape(x, split)",
        "n = InstanceNormalization(g, v, w) epsilon=0.01",
        "r = Reshape(n, shape)",
        *behind,
    )
    return graph_of(*lines, inputs={"x": SHAPE}, constants={**channels, **own, **dims, **changed})


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize(
    "behind",
    [
        ("m = Mul(r, s)", "y = Add(m, t)"),
        ("m = Mul(s, r)", "y = Add(t, m)"),
        ("y = Mul(r, s)",),
        ("y = Add(r, t)",),
        ("y = Relu(r)",),
    ],
)
def test_groups_are_recognised_and_give_the_same(behind, groups):
    graph = exported(behind=behind, groups=groups)
    done = simplify(graph)
    assert (
        kinds(done)
        == ["GroupNormalization", *(["Relu"] if "Relu" in behind[0] else [])]
        == kinds(simplify(without_values(graph)))
    )
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    np.testing.assert_allclose(
        reference(done, {"x": x})["y"], reference(graph, {"x": x})["y"], rtol=1e-5, atol=1e-5
    )


def test_operators_that_are_not_of_the_norm_stay():
    read_twice = exported(behind=("m = Mul(r, s)", "y = Sub(m, r)"))
    assert kinds(simplify(read_twice)) == ["GroupNormalization", "Mul", "Sub"]
    by_row = exported(behind=("y = Mul(r, s)",), s=np.ones((4, 1), np.float32))
    assert kinds(simplify(by_row)) == ["GroupNormalization", "Mul"]
    otherwise = exported(behind=("y = Relu(r)",), shape=np.array([2, 3, 8, 5], np.int64))
    assert kinds(simplify(otherwise)) == ["Reshape", "InstanceNormalization", "Reshape", "Relu"]
