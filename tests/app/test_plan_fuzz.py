"""Plans that were changed at random are refused, or whatever reads them gives the right thing: simulator, report, executor, C under sanitizers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.ir import Hardware
from lfopt.planning import Traffic
from tests.plan_fuzz import Subject, mutated, verdict
from tests.strategies import random_graph

SCHEMES: tuple[str, ...] = ("lbdf", "brr", "resident", "auto")
ZOO = {"mobilenet_v3_small": ((1, 3, 32, 32), 16), "squeezenet1_1": ((1, 3, 32, 32), 32), "resnet18": ((1, 3, 32, 32), 64),
       "unet": ((1, 3, 32, 32), 64), "fsrcnn": ((1, 1, 12, 12), 8)}  # fmt: skip


def tried(subjects: list[Subject], count: int, seed: int, scratch: Path) -> Counter[str]:
    """What became of so many changed plans."""
    found: Counter[str] = Counter()
    for k in range(count):
        what, document = mutated(subjects[k % len(subjects)].document, np.random.default_rng((seed, k)))
        try:
            found[verdict(subjects[k % len(subjects)], document, scratch)] += 1
        except Exception as error:
            raise AssertionError(f"change {k} of {subjects[k % len(subjects)].folder.name}: {what}") from error
    return found


def test_a_changed_plan_is_refused_or_right(tmp_path: Path) -> None:
    """Five random networks in every scheme, on chips for which some groups fit."""
    subjects: list[Subject] = []
    seed = 0
    while len(subjects) < 5 * len(SCHEMES):
        rng = np.random.default_rng((7, seed := seed + 1))
        graph = random_graph(rng, 8)
        if any(operator.domain for operator in graph.operators):  # it cannot be executed
            continue
        size = 4 * sum(tensor.elements for tensor in graph.tensors.values())
        for scheme in SCHEMES:
            hardware = Hardware(64 + int(size * rng.uniform(0.05, 0.5)), element_bytes=4)
            traffic = Traffic.ONCE if len(subjects) % 7 == 6 else Traffic.TILED
            subjects.append(Subject.of(graph, hardware, scheme, tmp_path / f"{seed}{scheme}", traffic))
    modes = Counter(group.mode for subject in subjects for group in subject.plan.groups if group.steps)
    assert modes.keys() == {"lbdf", "brr", "resident", "tiled"}
    found = tried(subjects, 300, 0, tmp_path / "scratch")
    assert found["refused"] > 200
    assert found["right"] > 10


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", ZOO)
def test_a_changed_plan_of_a_real_network_is_refused_or_right(name: str, tmp_path: Path) -> None:
    shape, kib = ZOO[name]
    bare = load_network(f"zoo:{name}", {}, "default", weights=False)
    graph = load_network(f"zoo:{name}", {bare.inputs[0]: shape}, "default")
    subjects = [Subject.of(graph, Hardware(kib * 1024, element_bytes=4), scheme, tmp_path / scheme) for scheme in SCHEMES]
    found = tried(subjects, 600, 1, tmp_path / "scratch")
    assert found["refused"] > 400
    assert found["right"] > 10
