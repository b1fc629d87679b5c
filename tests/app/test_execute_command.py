"""`lfopt execute` as a user meets it: a searched plan run on given inputs; one clear line for each error."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import run as search
from lfopt.ir import Hardware
from tests.app.conftest import refused
from tests.app.small_network import SHAPE, small_network

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")


@pytest.fixture(scope="module")
def small_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small network, and with its plan on a buffer of 4 KiB."""
    folder = tmp_path_factory.mktemp("made")
    config = Config(
        str(small_network(folder / "small.onnx")),
        Hardware(4096),
        scheme="lbdf",
        search=SearchConfig(objective="bytes"),
    )
    search(config, folder / "plan")
    return folder


@pytest.fixture
def plan(small_plan: Path, tmp_path: Path) -> Path:
    """A copy of that plan, to be spoilt."""
    return shutil.copytree(small_plan / "plan", tmp_path / "plan")


def edited(plan: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads((plan / "plan.json").read_text())
    change(data)
    (plan / "plan.json").write_text(json.dumps(data))
    return plan


def test_a_searched_plan_runs_on_given_inputs_and_gives_what_onnx_runtime_gives(
    lfopt, tmp_path: Path
) -> None:
    model, plan = small_network(tmp_path / "small.onnx"), tmp_path / "plan"
    lfopt("search", model, "--buffer", "4KiB", "--scheme", "auto", "--out", plan)
    image = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    np.savez(tmp_path / "in.npz", image=image)
    done = lfopt("execute", plan, "--input", tmp_path / "in.npz", "--out", tmp_path / "out.npz")
    (wanted,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"image": image})
    with np.load(tmp_path / "out.npz") as archive:
        assert archive.files == ["scores"]
        assert np.allclose(archive["scores"], np.asarray(wanted), rtol=1e-4, atol=1e-5)
    total = json.loads((plan / "plan.json").read_text())["totals"]["dram_bytes"]
    assert re.search(rf"all +{total:,} +{total:,}", done.stdout)
    assert "bytes counted equal bytes planned; outputs equal the reference" in done.stdout
    assert done.stderr == ""


def test_inputs_drawn_at_random_are_said_to_be_and_follow_the_seed(here, plan: Path, tmp_path: Path) -> None:
    outputs = []
    for seed in (0, 0, 1):
        done = here(
            "execute", plan / "plan.json", "--seed", seed, "--out", tmp_path / "out.npz", "--no-check"
        )
        assert "inputs are drawn at random" in done.stderr
        assert "outputs not compared" in done.stdout
        with np.load(tmp_path / "out.npz") as archive:
            outputs.append(archive["scores"])
    assert np.array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


IMAGE = np.zeros(SHAPE, np.float32)
WRONG_INPUTS: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "another name": (
        {"picture": IMAGE},
        r"input 'image' is absent; found picture; accepted: float32 \[1, 3, 24, 24\]",
    ),
    "another shape": (
        {"image": IMAGE[:, :, :8]},
        r"input 'image': found float32 \[1, 3, 8, 24\]; accepted: float32 \[1, 3, 24, 24\]",
    ),
    "another type": (
        {"image": IMAGE.astype(np.float64)},
        r"found float64 \[1, 3, 24, 24\]; accepted: float32",
    ),
    "nothing": ({}, r"input 'image' is absent; found nothing"),
}


@pytest.mark.parametrize("what", WRONG_INPUTS)
def test_wrong_inputs_are_refused_in_one_line(here, plan: Path, tmp_path: Path, what: str) -> None:
    arrays, message = WRONG_INPUTS[what]
    np.savez(tmp_path / "in.npz", **arrays)  # type: ignore[arg-type]
    assert re.search(message, refused(here("execute", plan, "--input", tmp_path / "in.npz")))


def test_one_input_may_come_as_npy(here, plan: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", IMAGE)
    assert here("execute", plan, "--input", tmp_path / "in.npy").returncode == 0


def test_files_that_hold_no_inputs_are_refused_in_one_line(here, plan: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_text("image = 1")
    np.savez(tmp_path / "objects.npz", image=np.array([{"a": 1}], object))
    for name in ("absent.npz", "empty.npz", "text.npz", "objects.npz"):
        assert name in refused(here("execute", plan, "--input", tmp_path / name))
    assert "nowhere" in refused(here("execute", plan, "--out", tmp_path / "nowhere" / "out.npz"))


def first_with_steps(data: dict[str, Any]) -> dict[str, Any]:
    return next(group for group in data["groups"] if group["steps"])


def drop_a_load(data: dict[str, Any]) -> None:
    steps = first_with_steps(data)["steps"]
    steps.remove(next(line for line in steps if line.startswith("load image")))


def take_a_slot(data: dict[str, Any]) -> None:
    place = next(place for place in first_with_steps(data)["places"] if place["slots"] > 1)
    place["slots"] -= 1


CORRUPTED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a load is missing": (
        drop_a_load,
        r"group 0: input bytes: the plan says \d+, its steps move \d+$",
    ),
    "a ring has a row less": (
        take_a_slot,
        r"group 0: step \d+, compute '.*': at step \d+ row \d+ of 'image', or a part of it, is not on chip",
    ),
    "a step that is none": (
        lambda data: first_with_steps(data)["steps"].insert(0, "fetch image"),
        r"steps, line 1: found 'fetch image'; accepted: load",
    ),
    "steps that are no text": (
        lambda data: first_with_steps(data).update(steps=[1]),
        r"groups\.0\.steps: found list; accepted: a list of lines",
    ),
    "no steps at all": (
        lambda data: first_with_steps(data).update(steps=[]),
        r"group 0: it must have steps, or a reason why it has none",
    ),
    "a group is missing": (
        lambda data: data["groups"].pop(0),
        r"group 1: id: the plan says 1, counted 0 \(one of \d+ claims",
    ),
    "a node of no model": (
        lambda data: data["groups"][0]["nodes"].append("nobody"),
        r"group 0: 'nobody' is not an operator of the network",
    ),
    "a buffer too small": (
        lambda data: data["hardware"].update(buffer_bytes=64),
        r"group 0: its places in the buffer end at \d+, must be below 64",
    ),
    "a place of a wrong type": (
        lambda data: first_with_steps(data)["places"][0].update(slots="many"),
        r"groups\.0\.places\.0\.slots",
    ),
    "bytes of a class": (
        lambda data: first_with_steps(data)["dram"].update(
            weight=first_with_steps(data)["dram"]["weight"] + 1
        ),
        r"group 0: weight bytes: the plan says",
    ),
    "a field of an older schema": (
        lambda data: first_with_steps(data).update(allocated_bytes=1),
        r"allocated_bytes: unknown field",
    ),
    "another schema": (lambda data: data.update(schema="lfopt.plan/9"), r"schema: found 'lfopt.plan/9'"),
    "another model": (lambda data: data["model"].update(sha256="0" * 64), r"simplified.onnx: its SHA-256 is"),
    "a model elsewhere": (
        lambda data: data["model"].update(onnx="../small.onnx"),
        r"model.onnx: found '../small.onnx'; accepted: a file name",
    ),
}


@pytest.mark.parametrize("what", CORRUPTED)
def test_a_corrupted_plan_is_refused_in_one_line(here, plan: Path, what: str) -> None:
    change, message = CORRUPTED[what]
    assert re.search(message, refused(here("execute", edited(plan, change), "--seed", 1)))


def test_a_plan_that_is_cut_off_is_refused_in_one_line(here, plan: Path) -> None:
    text = (plan / "plan.json").read_text()
    (plan / "plan.json").write_text(text[: len(text) // 2])
    assert "not JSON" in refused(here("execute", plan))


ALTERED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "bytes of a class": (
        lambda data: first_with_steps(data)["dram"].update(
            weight=first_with_steps(data)["dram"]["weight"] + 1
        ),
        "planned DramBytes",
    ),
    "a load twice": (
        lambda data: first_with_steps(data)["steps"].insert(0, first_with_steps(data)["steps"][0]),
        "planned DramBytes",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_a_figure_that_is_not_what_was_counted_is_named_and_exits_with_1(
    here, unchecked, plan: Path, what: str
) -> None:
    change, message = ALTERED[what]
    unchecked("lfopt.app.commands.execute")
    done = here("execute", edited(plan, change))
    assert done.returncode == 1
    assert message in done.stdout
    assert "1 things differ" in done.stdout


def test_a_model_without_weights_runs_only_with_weights_drawn_at_random(here, tmp_path: Path) -> None:
    bare = small_network(tmp_path / "bare.onnx", weights=False)
    here("search", bare, "--buffer", "4KiB", "--out", tmp_path / "bare")
    assert "has no values; give a model with weights, or --fill" in refused(
        here("execute", tmp_path / "bare")
    )
    done = here("execute", tmp_path / "bare", "--fill")
    assert "weights were drawn at random" in done.stderr
    assert "outputs equal the reference" in done.stdout


def test_outputs_may_have_any_name(here, tmp_path: Path) -> None:
    named = small_network(tmp_path / "named.onnx", output="file")
    here("search", named, "--buffer", "4KiB", "--out", tmp_path / "named")
    here("execute", tmp_path / "named", "--out", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert archive.files == ["file"]


@pytest.mark.slow
def test_a_network_of_the_zoo_runs_from_search_to_outputs(lfopt, tmp_path: Path) -> None:
    done = lfopt("search", "zoo:squeezenet1_1", "--buffer", "256KiB", "--out", tmp_path / "plan")
    assert "optimal" in done.stdout
    done = lfopt("execute", tmp_path / "plan")
    assert "bytes counted equal bytes planned; outputs equal the reference" in done.stdout
