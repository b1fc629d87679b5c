"""Convolutions along one axis work on maps [n, c, l, 1], and compute what they did."""

import numpy as np
import pytest

from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from tests.rewrite.graphs import feeds_of, graph_of, kinds

RNG = np.random.default_rng(0)
CONSTANTS = {
    "w": RNG.standard_normal((6, 4, 3)).astype(np.float32),
    "v": RNG.standard_normal((4, 6, 3)).astype(np.float32),
    "d": RNG.standard_normal((6, 1, 3)).astype(np.float32),
    "b": RNG.standard_normal(6).astype(np.float32),
    "c": RNG.standard_normal((6, 1)).astype(np.float32),
    "l": RNG.standard_normal(10).astype(np.float32),
    "place": RNG.standard_normal((10, 6)).astype(np.float32),
    "one": np.float32(1),
    "u": RNG.standard_normal((6, 4, 3, 1)).astype(np.float32),
    "from": np.zeros(4, np.int64),
    "to": np.full(4, 99),
    "last": np.array([3]),
}
CASES = {  # lines, shape of x, kinds in order
    "a convolution": (
        ("y = Conv(x, w, b) kernel_shape=[3] pads=[1,1]",),
        (2, 4, 10),
        ["Reshape", "Conv", "Reshape"],
    ),
    "strides and dilations": (
        ("y = Conv(x, w) kernel_shape=[3] pads=[2,1] strides=[2] dilations=[2]",),
        (1, 4, 11),
        ["Reshape", "Conv", "Reshape"],
    ),
    "transposed": (
        ("y = ConvTranspose(x, v) strides=[2] output_padding=[1]",),
        (1, 4, 5),
        ["Reshape", "ConvTranspose", "Reshape"],
    ),
    "transposed to a size": (
        ("y = ConvTranspose(x, v) strides=[2] output_shape=[10]",),
        (1, 4, 5),
        ["Reshape", "ConvTranspose", "Reshape"],
    ),
    "a block": (
        (
            "h = Conv(x, w, b) pads=[1,1]",
            "e = Erf(h)",
            "m = Mul(h, e)",
            "s = Add(m, c)",
            "t = Mul(s, l)",
            "y = Conv(t, d) group=6 pads=[1,1]",
        ),
        (1, 4, 10),
        ["Reshape", "Conv", "Erf", "Mul", "Add", "Mul", "Conv", "Reshape"],
    ),
    "a pool": (
        (
            "h = Conv(x, w)",
            "p = MaxPool(h) kernel_shape=[2] strides=[2]",
            "y = AveragePool(p) kernel_shape=[3] pads=[1,1]",
        ),
        (1, 4, 12),
        ["Reshape", "Conv", "MaxPool", "AveragePool", "Reshape"],
    ),
    "a global pool": (
        ("h = Conv(x, w)", "y = GlobalMaxPool(h)"),
        (1, 4, 12),
        ["Reshape", "Conv", "GlobalMaxPool", "Reshape"],
    ),
    "a column": (
        (
            "h = Conv(x, u)",
            "k = Slice(h, from, to)",
            "s = Squeeze(k, last)",
            "e = Erf(s)",
            "a = Add(e, c)",
            "y = GlobalMaxPool(a)",
        ),
        (1, 4, 12, 1),
        ["Conv", "Erf", "Add", "GlobalMaxPool", "Reshape"],
    ),
    "channels last at the end": (
        ("h = Conv(x, w)", "r = Relu(h)", "t = Transpose(r) perm=[0,2,1]", "y = Add(t, place)"),
        (1, 4, 12),
        ["Reshape", "Conv", "Relu", "Transpose", "Add", "Reshape"],
    ),
    "channels last": (
        ("t = Transpose(x) perm=[0,2,1]", "h = Conv(t, w)", "y = Transpose(h) perm=[0,2,1]"),
        (1, 12, 4),
        ["Reshape", "Transpose", "Conv", "Transpose", "Reshape"],
    ),
    "no convolution": (("y = Relu(x)",), (1, 4, 10), ["Relu"]),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_work_on_positions(name):
    lines, shape, wanted = CASES[name]
    words = {
        word.strip(" ()") for line in lines for word in line.replace("(", ",").replace(")", ",").split(",")
    }
    before = graph_of(
        *lines, inputs={"x": shape}, constants={k: v for k, v in CONSTANTS.items() if k in words}
    )
    after = simplify(before)
    assert kinds(after) == wanted
    assert after.outputs == before.outputs
    feeds = feeds_of(before)
    for output, same in zip(reference(after, feeds).values(), reference(before, feeds).values(), strict=True):
        np.testing.assert_allclose(output, same, rtol=1e-5, atol=1e-5)
