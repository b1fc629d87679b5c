"""Whether two graphs are the same."""

from dataclasses import replace

import numpy as np


def assert_same(graph, wanted):
    for f, w in zip(graph.operators, wanted.operators, strict=True):
        assert replace(f, attributes={}) == replace(w, attributes={})
        assert f.attributes.keys() == w.attributes.keys()
        assert all(np.array_equal(f.attributes[name], w.attributes[name]) for name in w.attributes)
    assert (graph.tensors, graph.inputs, graph.outputs, graph.opset) == (
        wanted.tensors,
        wanted.inputs,
        wanted.outputs,
        wanted.opset,
    )
    assert graph.constants.keys() == wanted.constants.keys()
    for name, value in wanted.constants.items():
        assert (value is None) == (graph.constants[name] is None)
        assert value is None or (
            value.dtype == graph.constants[name].dtype and np.array_equal(value, graph.constants[name])
        )
