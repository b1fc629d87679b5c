"""Random networks, chips and schemes as C: no sanitizer fault, no warning, the reference's results."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import pytest

from codegen.elements import ElementName
from tests.codegen.many import tried
from tests.codegen.random_networks import RUNS_HERE
from tests.codegen.test_bf16 import here

pytestmark = [
    pytest.mark.sanitize,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="address sanitizer"),
]
PARTS, EACH = 100, 50  # 5,000 networks: about an hour on two cores
FEW = 6
FOUND = (92, 136, 229, 2551, 2556, 2560, 2679, 2715, 2746, 2793)  # seeds that once found a fault


def check(seeds: Sequence[int], folder: Path, element: ElementName = "float32") -> None:
    tally = tried(seeds, folder, RUNS_HERE if element == "float32" else ["native"], element=element)
    print(f"\n{seeds}: ran {dict(tally.ran)}, refused {dict(tally.refused)}")
    assert not tally.faults, "\n".join(tally.faults)
    assert len(seeds) - tally.refused.total() > 0.8 * len(seeds), tally.refused


@pytest.mark.parametrize(
    ("part", "element"), [(0, "float32"), (1, "float32"), (2, "float32"), pytest.param(3, "bf16", marks=here)]
)
def test_random_networks_compile_run_and_agree(part: int, element: ElementName, tmp_path: Path) -> None:
    check(range(PARTS * EACH + part * FEW, PARTS * EACH + (part + 1) * FEW), tmp_path, element)


def test_networks_that_once_found_faults_find_none(tmp_path: Path) -> None:
    check(FOUND, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_thousands_of_random_networks_compile_run_and_agree(part: int, tmp_path: Path) -> None:
    check(range(part * EACH, (part + 1) * EACH), tmp_path)


@pytest.mark.slow
@here
@pytest.mark.parametrize("part", range(PARTS // 10))
def test_hundreds_of_random_networks_agree_in_bfloat16(part: int, tmp_path: Path) -> None:
    check(range(part * EACH, (part + 1) * EACH), tmp_path, "bf16")
