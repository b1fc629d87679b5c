"""One model of the accelerator for a whole session and later ones, kept by the content of its sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from hw_rtl.build import HardwareParameters, SimulationModel, available, build
from lfopt.app.cache import keeper


def built(request: pytest.FixtureRequest, lanes: int) -> SimulationModel:
    if missing := available():
        pytest.skip(f"not found: {missing}")
    assert request.config.cache is not None
    return build(
        keeper(Path(request.config.cache.mkdir("rtl"))),
        HardwareParameters(lanes=lanes, dram_beats=1 << 21, assertions=True, quick=True),
    )


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest) -> SimulationModel:
    return built(request, 16)


@pytest.fixture(scope="session")
def wide_model(request: pytest.FixtureRequest) -> SimulationModel:
    """With 32 x 32 MACs."""
    return built(request, 32)
