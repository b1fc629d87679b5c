"""A chain of Transposes and Reshapes becomes as short as possible and moves every element alike."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfopt.rewrite.movement import composed
from tests.rewrite.graphs import graph_of, ints, kinds, rewritten


def moved(x, steps):
    for perm, shape in steps:
        x = x.transpose(perm) if perm is not None else x.reshape(shape)
        assert x.shape == shape
    return x


@st.composite
def chains(draw):
    """(shape, moves): splits, joins and permutations of small axes."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    now, moves = shape, []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            perm = tuple(draw(st.permutations(range(len(now)))))
            now = tuple(now[axis] for axis in perm)
            moves.append((perm, now))
            continue
        primes = [
            p
            for extent in now
            for p in {1: [1], 2: [2], 3: [3], 4: [2, 2], 6: draw(st.permutations([2, 3]))}.get(
                extent, [extent]
            )
        ]
        cuts = sorted(draw(st.sets(st.integers(1, max(len(primes) - 1, 1)), max_size=3)))
        now = tuple(prod(primes[a:b]) for a, b in zip([0, *cuts], [*cuts, len(primes)], strict=True) if a < b)
        moves.append((None, now))
    return shape, moves


@given(chains())
def test_the_short_chain_moves_elements_to_the_same_places(chain):
    shape, moves = chain
    x = np.arange(prod(shape)).reshape(shape)
    steps = composed(shape, moves)
    if steps is not None:
        np.testing.assert_array_equal(moved(x, steps), moved(x, moves))


@given(chains())
def test_the_short_chain_cannot_be_shortened(chain):
    shape, moves = chain
    steps = composed(shape, moves)
    if steps:
        again = composed(shape, steps)
        assert again is None or len(again) == len(steps)
        assert len(steps) <= len(moves)
        assert again is None or sum(perm is not None for perm, _ in steps) <= 1


CHAINS = {
    "a key transposed through a merged batch": (
        [
            "r = Transpose(x) perm=[0,2,1,3]", "s = Reshape(r, to3)", "t = Transpose(s) perm=[0,2,1]",
            "y = Reshape(t, to4)",
        ],
        {"to3": ints(-1, 5, 4), "to4": ints(1, 3, 4, 5)}, (1, 5, 3, 4), ["Transpose"],
    ),
    "a Reshape there and back around an activation": (
        ["r = Reshape(x, to)", "s = Gelu(r)", "y = Reshape(s, back)"],
        {"to": ints(1, 5, 12), "back": ints(5, 12)}, (5, 12), ["Gelu"],
    ),
    "a split and a Transpose": (
        ["r = Reshape(x, to)", "y = Transpose(r) perm=[0,2,1,3]"], {"to": ints(1, 5, 3, 4)}, (1, 5, 12),
        ["Reshape", "Transpose"],
    ),
    "only axes of extent 1 move": (
        ["r = Transpose(x) perm=[1,0,2]", "y = Reshape(r, to)"], {"to": ints(5, 12)}, (5, 1, 12), ["Reshape"],
    ),
    "shuffled channels": (
        ["r = Reshape(x, to)", "s = Transpose(r) perm=[0,2,1,3,4]", "y = Reshape(s, back)"],
        {"to": ints(1, 2, 3, 4, 4), "back": ints(1, 6, 4, 4)}, (1, 6, 4, 4),
        ["Reshape", "Transpose", "Reshape"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name):
    lines, constants, shape, wanted = CHAINS[name]
    done = rewritten(graph_of(*lines, inputs={"x": shape}, constants=constants), tolerance=0)
    assert kinds(done.graph) == wanted


def test_axes_that_are_cut_at_other_places_are_left():
    constants = {"to": ints(4, 6), "back": ints(3, 8)}
    lines = [
        "r = Transpose(x) perm=[1,0]",
        "s = Reshape(r, to)",
        "t = Transpose(s) perm=[1,0]",
        "y = Reshape(t, back)",
    ]
    done = rewritten(graph_of(*lines, inputs={"x": (3, 8)}, constants=constants))
    assert len(kinds(done.graph)) == 4


def test_a_step_that_others_read_ends_the_chain():
    lines = ["r = Transpose(x) perm=[1,0]", "y = Transpose(r) perm=[1,0]", "z = Relu(r)"]
    done = rewritten(graph_of(*lines, inputs={"x": (3, 8)}, outputs=("y", "z")))
    assert "Transpose" in kinds(done.graph)
