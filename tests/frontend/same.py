"""Whether two graphs are the same."""

from dataclasses import replace

import numpy as np


def assert_same(found, wanted):
    for f, w in zip(found.operators, wanted.operators, strict=True):
        assert replace(f, attributes={}) == replace(w, attributes={})
        assert f.attributes.keys() == w.attributes.keys()
        assert all(np.array_equal(f.attributes[name], w.attributes[name]) for name in w.attributes)
    assert (found.tensors, found.inputs, found.outputs, found.opset) == (wanted.tensors, wanted.inputs, wanted.outputs, wanted.opset)
    assert found.constants.keys() == wanted.constants.keys()
    for name, value in wanted.constants.items():
        assert (value is None) == (found.constants[name] is None)
        assert value is None or (value.dtype == found.constants[name].dtype and np.array_equal(value, found.constants[name]))
