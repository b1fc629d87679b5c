"""All rules on random networks, in floats and in integers: what comes out stays the same."""

from __future__ import annotations

import numpy as np

from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from tests.random_plans import in_integers, random_inputs
from tests.strategies import random_graph


def test_rewriting_keeps_what_random_networks_compute() -> None:
    changed = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(2, 14)))
        if any(operator.domain for operator in graph.operators):
            continue
        inputs = random_inputs(graph, rng)
        if seed % 4 == 0:
            graph, inputs = in_integers(graph, inputs, rng)
        rewritten = simplify(graph, "all")
        changed += len(rewritten.operators) != len(graph.operators)
        with np.errstate(all="ignore"):
            wanted, outputs = reference(graph, inputs), reference(rewritten, inputs)
        assert list(outputs) == list(wanted)
        for name, values in wanted.items():
            assert (outputs[name].shape, outputs[name].dtype) == (values.shape, values.dtype)
            real = values[np.isfinite(values)].astype(np.float64)
            np.testing.assert_allclose(
                outputs[name],
                values,
                rtol=0,
                atol=1e-5 * np.abs(real).max(initial=0),
                err_msg=f"seed {seed}, {name}",
            )
    assert changed > 20
