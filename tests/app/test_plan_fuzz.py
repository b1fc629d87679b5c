"""Plans changed at random are refused, or simulator, report, executor and sanitized C get them right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.ir import Hardware, step_count
from lfopt.planning import Traffic
from tests.cases import few, some
from tests.plan_fuzz import Subject, mutated, verdict
from tests.strategies import random_gate, random_graph

SCHEMES: tuple[str, ...] = ("lbdf", "brr", "resident", "auto")


class Base(NamedTuple):
    """A plan that is changed."""

    network: str
    scheme: str
    kib: float  # of buffer
    size: int  # rows and columns of the network's input
    most: int | None = None  # steps that are made; None: all


# Small inputs, and buffers for which plans have few steps, and yet groups of every mode, tiles of every kind,
# and groups without steps.
BASES = (
    Base("mobilenet_v3_small", "lbdf", 4, 128),
    Base("mobilenet_v3_small", "brr", 128, 32),
    Base("mobilenet_v3_small", "resident", 4, 32, 15_000),
    Base("mobilenet_v3_small", "auto", 24, 64),
    Base("squeezenet1_1", "lbdf", 16, 32),
    Base("squeezenet1_1", "brr", 4, 32),
    Base("squeezenet1_1", "resident", 16, 32),
    Base("squeezenet1_1", "auto", 4, 32),
    Base("resnet18", "lbdf", 64, 32),
    Base("resnet18", "brr", 256, 32),
    Base("resnet18", "resident", 128, 32),
    Base("resnet18", "auto", 128, 32),
    Base("unet", "lbdf", 64, 32),
    Base("unet", "brr", 16, 32),
    Base("unet", "resident", 64, 32),
    Base("unet", "auto", 16, 32),
    Base("fsrcnn", "lbdf", 8, 12),
    Base("fsrcnn", "brr", 8, 12),
    Base("fsrcnn", "resident", 8, 12),
    Base("fsrcnn", "auto", 8, 12),
)
NETWORKS = tuple(dict.fromkeys(base.network for base in BASES))
MODES = {"lbdf", "brr", "resident", "tiled"}
TILINGS = {"frames", "bands", "slices", "folds"}


def tried(subjects: list[Subject], count: int, seed: int, scratch: Path) -> Counter[str]:
    """What became of so many changed plans."""
    tally: Counter[str] = Counter()
    for k in range(count):
        what, document = mutated(subjects[k % len(subjects)].document, np.random.default_rng((seed, k)))
        try:
            tally[verdict(subjects[k % len(subjects)], document, scratch)] += 1
        except Exception as error:
            raise AssertionError(
                f"change {k} of {subjects[k % len(subjects)].folder.name}: {what}"
            ) from error
    return tally


def test_a_changed_plan_is_refused_or_right(tmp_path: Path) -> None:
    """Random networks in every scheme on chips that some groups fit, and two gated in two phases."""
    subjects: list[Subject] = []
    seed = 0
    while len(subjects) < len(some(range(5))) * len(SCHEMES):
        rng = np.random.default_rng((7, seed := seed + 1))
        graph = random_graph(rng, 8)
        if any(operator.domain for operator in graph.operators):  # it cannot be executed
            continue
        size = 4 * sum(tensor.elements for tensor in graph.tensors.values())
        for scheme in SCHEMES:
            hardware = Hardware(64 + int(size * rng.uniform(0.05, 0.5)), element_bytes=4)
            traffic = Traffic.ONCE if len(subjects) % 7 == 6 else Traffic.TILED
            subjects.append(Subject.of(graph, hardware, scheme, tmp_path / f"{seed}{scheme}", traffic))
    spilling = 0
    for seed in range(40):
        rng = np.random.default_rng((11, seed))
        graph = random_gate(rng)
        size = 4 * sum(tensor.elements for tensor in graph.tensors.values())
        hardware = Hardware(64 + int(size * rng.uniform(0.05, 0.4)), element_bytes=4, mac_columns=2)
        outcomes = Subject.of(graph, hardware, "all", tmp_path / f"gate {seed}")
        if any(group.spilled for group in outcomes.plan.groups):
            subjects.append(outcomes)
            spilling += 1
        if spilling == 2:
            break
    assert spilling == 2
    modes = Counter(group.mode for subject in subjects for group in subject.plan.groups if group.steps)
    assert modes.keys() >= {*MODES, "gated"}
    outcomes = tried(subjects, len(some(range(300))), 0, tmp_path / "scratch")
    print(outcomes)
    assert outcomes["refused"] > few(200)
    assert outcomes["same"] + outcomes["right"] > few(10)


def subject_of(base: Base, folder: Path) -> Subject:
    """The network, planned."""
    network = f"zoo:{base.network}"
    bare = load_network(network, {}, "default", weights=False)
    (image,) = bare.inputs
    graph = load_network(network, {image: (*bare.shape(image)[:2], base.size, base.size)}, "default")
    return Subject.of(
        graph, Hardware(int(1024 * base.kib), element_bytes=4), base.scheme, folder, most=base.most
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_changed_plan_of_a_real_network_is_refused_or_right(network: str, tmp_path: Path) -> None:
    """600 changes to plans of one network in four schemes: most are refused, over ten are read right."""
    subjects = [subject_of(base, tmp_path / base.scheme) for base in BASES if base.network == network]
    for subject in subjects:
        subject.prove(tmp_path / "scratch")
    outcomes = tried(subjects, 600, 1, tmp_path / "scratch")
    print(f"\n{network}: {dict(outcomes)}")
    assert outcomes["refused"] > 400
    assert outcomes["same"] + outcomes["right"] > 10


@pytest.mark.slow
def test_the_plans_that_are_changed_have_groups_of_every_mode_and_tiles_of_every_kind(tmp_path: Path) -> None:
    modes, tilings, unwritten = set[str](), set[str](), 0
    for k, base in enumerate(BASES):
        subject = subject_of(base, tmp_path / str(k))
        modes |= {group.mode for group in subject.plan.groups if group.steps}
        tilings |= subject.tilings
        unwritten += sum(group.unwritten for group in subject.plan.groups)
        assert sum(step_count(group.steps) for group in subject.plan.groups) < 100_000
    assert (modes, tilings) == (MODES, TILINGS)
    assert unwritten
