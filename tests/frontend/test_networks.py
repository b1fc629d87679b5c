"""Real networks import, compute what they did, and look the same with and without weights."""

import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest

from lfopt.frontend import load, to_model
from lfopt.rewrite import simplify
from tests.frontend.oracle import (
    LIGHT,
    SHARED,
    assert_close,
    newest_opset_of_onnxruntime,
    random_feeds,
    run,
    structure,
)


@pytest.mark.parametrize("path", LIGHT + SHARED, ids=lambda path: path.stem)
def test_it_imports(path):
    graph = load(path)
    assert len(graph.operators) > 10
    assert [note.split(" ")[0] for note in graph.notes if "unknown to lfopt" not in note] == (
        [] if path in LIGHT else [str(sum(value is None for value in graph.constants.values()))]
    )


def test_there_are_nine_light_networks():
    assert len(LIGHT) == 9


HEAVY = ("light_vgg19", "light_bvlc_alexnet", "light_zfnet512")  # hundreds of MB of weights


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] if p.stem in HEAVY else []) for p in LIGHT],
    ids=[path.stem for path in LIGHT],
)
def test_light_networks_keep_their_values(path):
    model, graph = onnx.load(path), load(path)
    feeds = {name: abs(value) for name, value in random_feeds(graph).items()}
    wanted = run(model, feeds)
    for network in (graph, simplify(graph)):
        assert_close(run(newest_opset_of_onnxruntime(to_model(network)), feeds), wanted)


def filled(name, folder):
    path = next((p for p in SHARED if p.stem == name), None)
    pytest.importorskip("onnxruntime")
    if path is None:
        pytest.skip(f"no model {name}")
    out = folder / "filled.onnx"
    subprocess.run(
        [sys.executable, str(path.parent / "skeleton.py"), "fill", str(path), str(out), "1"],
        check=True,
        cwd=folder,
    )
    return path, out


@pytest.mark.parametrize("name", ["tv_squeezenet1_1", "hf_mobilenet_v2"])
def test_weights_change_no_operator_and_no_value(name, tmp_path):
    path, out = filled(name, tmp_path)
    bare, graph = load(path), load(out)
    assert structure(bare) == structure(graph)
    assert structure(simplify(bare)) == structure(simplify(graph))
    assert graph.has_values
    feeds = random_feeds(graph)
    assert_close(
        run(newest_opset_of_onnxruntime(to_model(simplify(graph))), feeds), run(onnx.load(out), feeds)
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.stem)
def test_every_shared_network_is_the_same_with_weights(path, tmp_path):
    path, out = filled(path.stem, tmp_path)
    assert structure(simplify(load(path))) == structure(simplify(load(out)))


def test_a_network_without_weights_loads_at_once():
    path = next((p for p in SHARED if p.stem == "hf_efficientnet_b3"), None) or next(
        p for p in LIGHT if "resnet50" in p.stem
    )
    started = time.process_time()
    load(Path(path))
    assert time.process_time() - started < 1
