"""Einsum becomes the products, sums and transposes that it is, whatever its labels."""

import numpy as np
import pytest

from lfopt.ops import Dataflow
from lfopt.ops.recognise import attentions
from lfopt.ops.reference import reference
from lfopt.rewrite import simplify
from tests.rewrite.graphs import feeds_of, graph_of, kinds, without_values

EXTENTS = dict(zip("abcdefbhqkijmno", (2, 3, 4, 5, 2, 3, 2, 3, 4, 5, 4, 3, 2, 3, 4), strict=True))


def einsum(equation: str, constant: bool = False, **shapes: tuple[int, ...]):
    """One Einsum; with its last operand a constant, if so."""
    terms = equation.partition("->")[0].split(",")
    wanted = [shapes.get(f"x{n}") or tuple(EXTENTS[label] for label in term) for n, term in enumerate(terms)]
    names = [f"x{n}" for n in range(len(terms))]
    given = (
        {names[-1]: np.random.default_rng(0).standard_normal(wanted[-1]).astype(np.float32)}
        if constant
        else {}
    )
    inputs = {name: shape for name, shape in zip(names, wanted, strict=True) if name not in given}
    return graph_of(f"y = Einsum({', '.join(names)}) equation='{equation}'", inputs=inputs, constants=given)


PRODUCTS = {
    "bhqd,bhkd->bhqk": ["Transpose", "MatMul"],
    "bqhd,bkhd->bhqk": ["Transpose", "Transpose", "MatMul"],
    "bhqk,bkhd->bqhd": ["Transpose", "MatMul", "Transpose"],
    "bij,jk->bik": ["MatMul"],
    "bij,bjk->bik": ["MatMul"],
    "ij,jk": ["MatMul"],
    "ij,kj->ki": ["Transpose", "MatMul"],
    "bhqd,hdm->bqm": ["Transpose", "Reshape", "Reshape", "MatMul"],
    "i,j->ij": ["Reshape", "Reshape", "Mul"],
    "bi,bj->bij": ["Reshape", "Reshape", "Mul"],
    "ab,ab->ab": ["Mul"],
    "i,i->": ["Reshape", "Reshape", "MatMul", "Reshape"],
    "abc->cab": ["Transpose"],
    "abc->b": ["ReduceSum"],
    "abc->ca": ["ReduceSum", "Transpose"],
    "abi,bj->ij": ["ReduceSum", "Transpose", "MatMul"],
    "ai,bj->ij": ["ReduceSum", "ReduceSum", "Reshape", "Reshape", "Mul"],
    "aij,bjk->ik": ["ReduceSum", "ReduceSum", "MatMul"],
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("equation", PRODUCTS)
def test_what_it_computes_is_written_out(equation, constant):
    if constant and "," not in equation:
        pytest.skip("a constant by itself")
    graph = einsum(equation, constant)
    done = simplify(graph)
    feeds = feeds_of(graph)
    np.testing.assert_allclose(
        reference(done, feeds)["y"], reference(graph, feeds)["y"], rtol=1e-4, atol=1e-5
    )
    if not constant:
        assert kinds(done) == PRODUCTS[equation]
    assert kinds(simplify(without_values(graph))) == kinds(done)
    assert all(
        any(name in done.inputs or name not in done.constants for name in op.inputs) for op in done.operators
    )


def test_random_equations_compute_the_same():
    rng = np.random.default_rng(0)
    for _ in range(150):
        terms = [
            "".join(rng.permutation(list("abcde"))[: rng.integers(1, 5)]) for _ in range(rng.integers(1, 3))
        ]
        known = sorted(set("".join(terms)))
        labels = "".join(rng.permutation(known)[: rng.integers(0, len(known) + 1)])
        graph = einsum(f"{','.join(terms)}->{labels}")
        done, feeds = simplify(graph), feeds_of(graph)
        assert "Einsum" not in kinds(done)
        np.testing.assert_allclose(
            reference(done, feeds)["y"], reference(graph, feeds)["y"], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", {"x0": (2, 3, 4, 5), "x1": (2, 3, 5, 2)}),
        ("...ij,jk->...ik", {"x0": (2, 3, 4, 5), "x1": (5, 2)}),
        ("b...d,bd->b...", {"x0": (2, 3, 4, 5), "x1": (2, 5)}),
        ("...->...", {"x0": (2, 3)}),
    ],
)
def test_dots_stand_for_axes(equation, shapes):
    graph = einsum(equation, **shapes)
    done, feeds = simplify(graph), feeds_of(graph)
    assert "Einsum" not in kinds(done)
    np.testing.assert_allclose(
        reference(done, feeds)["y"], reference(graph, feeds)["y"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii->i", {"x0": (3, 3)}),
        ("ab,bc,cd->ad", {}),
        ("...ij,...jk->...ik", {"x0": (1, 4, 5), "x1": (3, 5, 2)}),
    ],
)
def test_what_is_no_product_stays(equation, shapes):
    assert kinds(simplify(einsum(equation, **shapes))) == ["Einsum"]


def test_attention_of_einsums_is_found():
    graph = graph_of(
        "s = Einsum(q, k) equation='bqhd,bkhd->bhqk'", "c = Mul(s, half)", "p = Softmax(c) axis=-1",
        "y = Einsum(p, v) equation='bhqk,bkhd->bqhd'",
        inputs={"q": (1, 4, 2, 3), "k": (1, 5, 2, 3), "v": (1, 5, 2, 3)}, constants={"half": 0.5},
    )  # fmt: skip
    (attention,) = attentions(Dataflow.of(simplify(graph)))
    assert len(attention.members) == len(Dataflow.of(simplify(graph)))
