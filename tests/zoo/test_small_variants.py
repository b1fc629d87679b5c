"""Slow networks at a size that takes no time: they load, they run, and their parts compute as stated."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from lfopt import zoo
from lfopt.zoo.activations import FUNCTIONS, pieces_of
from lfopt.zoo.builder import Net
from lfopt.zoo.gpt2 import gpt2

ort = pytest.importorskip("onnxruntime")

VOCABULARY, WIDTH = 101, 64
SHAPES = {  # reduced input -> shapes of the outputs
    "yolov4": ((1, 3, 64, 96), [(1, 255, 8, 12), (1, 255, 4, 6), (1, 255, 2, 3)]),
    "c3d": ((1, 3, 16, 32, 32), [(1, 101)]),
    "unet": ((1, 3, 32, 48), [(1, 2, 32, 48)]),
}


def small_gpt2(weights: bool = True) -> onnx.ModelProto:
    """Two layers, four heads, 101 words."""
    net = Net("small_gpt2", seed=0, weights=weights)
    tokens = net.tokens((1, 12), VOCABULARY)
    return net.model(tokens, gpt2(net, tokens, layers=2, width=WIDTH, heads=4, vocabulary=VOCABULARY), "")


def run(model: onnx.ModelProto, given: np.ndarray, *watched: str) -> list[np.ndarray]:
    """The outputs, or the watched tensors, of a model with one input."""
    onnx.checker.check_model(model, full_check=True)
    if watched:
        typed = {v.name: v for v in (*model.graph.value_info, *model.graph.output)}
        del model.graph.output[:]
        model.graph.output.extend([typed[name] for name in watched])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: given})


def words(seed: int) -> np.ndarray:
    """A text of twelve tokens."""
    return np.random.default_rng(seed).integers(VOCABULARY, size=(1, 12))


@pytest.mark.parametrize("name", SHAPES)
def test_reduced_network_runs(name: str) -> None:
    shape, wanted = SHAPES[name]
    net = Net(name, seed=0, weights=True)
    image = net.image(shape)
    outputs = run(
        net.model(image, zoo.summary(name).layers(net, image), ""),
        np.random.default_rng(0).standard_normal(shape, dtype=np.float32),
    )
    assert [y.shape for y in outputs] == wanted
    assert all(0.1 < y.std() < 10 for y in outputs)


def test_small_gpt2_sees_no_word_before_its_time() -> None:
    text, changed = words(1), words(1)
    changed[0, 7] = (text[0, 7] + 1) % VOCABULARY
    (before,), (after,) = run(small_gpt2(), text), run(small_gpt2(), changed)
    np.testing.assert_array_equal(before[:, :7], after[:, :7])
    assert (np.abs(before - after)[:, 7:].max(axis=-1) > 1e-3).all()


def test_small_gpt2_tells_the_order_of_words() -> None:
    text = words(1)
    (before,), (after,) = (
        run(small_gpt2(), text),
        run(small_gpt2(), np.concatenate([text[:, 1::-1], text[:, 2:]], axis=1)),
    )
    assert np.abs(before - after)[:, -1].max() > 1e-3


def test_normalization_in_pieces_is_layer_normalization() -> None:
    model = small_gpt2()
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    x, y = run(model, words(2), "embedded", "layer1.norm1")
    normal = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(
        y, normal * weights["layer1.norm1.weight"] + weights["layer1.norm1.bias"], atol=1e-5
    )


def test_softmax_in_pieces_shares_one_among_what_is_seen() -> None:
    shares = run(small_gpt2(), words(2), "layer1.attention.softmax")[0]
    np.testing.assert_allclose(shares.sum(axis=-1), 1, atol=1e-6)
    assert (shares[:, :, ~np.tril(np.ones((12, 12), bool))] == 0).all()


def test_gelu_in_pieces_is_gelu() -> None:
    """Within the error of the form with tanh, which is below 5e-4."""
    erf = np.vectorize(math.erf)
    x = np.linspace(-6, 6, 1001)
    np.testing.assert_allclose(pieces_of("gelu", x)["gelu"], x / 2 * (1 + erf(x / 2**0.5)), atol=5e-4)
    before, after = run(small_gpt2(), words(2), "layer1.expand.unflat", "layer1.expand.unflat.gelu")
    np.testing.assert_allclose(after, pieces_of("gelu", before)["gelu"], atol=1e-5)


@pytest.mark.parametrize("kind", ["leaky_relu", "mish", "gelu", "silu"])
def test_activation_of_the_graph_is_the_function_that_moments_use(kind: str) -> None:
    net = Net("one", seed=0, weights=True)
    image = net.image((1, 2, 3, 4))
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4), dtype=np.float32)
    np.testing.assert_allclose(
        run(net.model(image, net.act(image, kind), ""), x)[0], FUNCTIONS[kind](x), atol=1e-6
    )


def test_gains_without_values_state_that_their_mean_is_one() -> None:
    net = Net("wide", seed=0, weights=False)
    net.weight("gain", (768,), std=0.1, mean=1.0)
    tokens = net.tokens((1, 4), VOCABULARY)
    model = net.model(tokens, gpt2(net, tokens, layers=1, width=512, heads=4, vocabulary=VOCABULARY), "")
    stated = {
        t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer if t.external_data
    }
    assert stated["gain"] == {
        "location": "__random__",
        "mean": "1.0",
        "std": "0.1",
        "min": "0.6",
        "max": "1.4",
    }
    assert "layer1.norm1.weight" in stated
    assert "causal_mask" not in stated
